//! Who may open what through a firewall or NAT.

use std::sync::Arc;
use std::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{Endpoint, Pinhole, Sender};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{IfIndex, Time};
use signalbox_resources::config::{Action, Opening, RuleConfig};
use signalbox_resources::opening::Crossing;
use signalbox_resources::token::Token;
use signalbox_resources::{Config, Neighbor, Passage, PassageRequest, Proof, Requester, Resources};

const INSIDE: &str = "10.0.0.1";
const FAR: &str = "192.0.2.1";

fn host(text: &str) -> Prefix {
    Prefix::host(text.parse().unwrap())
}

fn resources(config: Config) -> Resources {
    Resources::new(config, 0, [1; 32]).unwrap()
}

/// The answer to an adjacent node that asks for a flow.
fn open(
    resources: &mut Resources,
    requester: &str,
    opening: Opening,
    (src, dst): (&str, &str),
    invited: bool,
) -> Result<Passage, String> {
    let pinhole = Pinhole::allow(FlowFilter::between(host(src), host(dst)));
    open_pinhole(resources, requester, opening, &pinhole, invited)
}

/// The answer to an adjacent node that asks for a pinhole.
fn open_pinhole(
    resources: &mut Resources,
    requester: &str,
    opening: Opening,
    pinhole: &Pinhole,
    invited: bool,
) -> Result<Passage, String> {
    let address = requester.parse().unwrap();
    let neighbor = Neighbor { address, ifindex: IfIndex(3), proof: Proof::Handshake };
    let requester = Requester::neighbor(neighbor);
    let lifetime = Duration::from_secs(60);
    let crossing = Crossing::default();
    let request = PassageRequest { requester: &requester, opening, crossing, pinhole, lifetime, invited };
    let dry = resources.dry_passage(Time::ZERO, &request);
    let opened = resources.open_passage(Time::ZERO, &request);
    assert_eq!(
        dry.result.as_ref().err(),
        opened.as_ref().err(),
        "what a user is told beforehand is what happens"
    );
    opened.map_err(|refusal| refusal.to_string())
}

const DEFAULT: &str = "policy: no rule applies, and the default is to deny";

#[test]
fn a_host_opens_for_itself_and_no_node_opens_towards_the_inside() {
    let mut resources = resources(Config::default());
    let (out, back) = ((INSIDE, FAR), (FAR, INSIDE));
    for (requester, opening, flow, invited, allowed) in [
        (INSIDE, Opening::Outward, out, false, true),
        (INSIDE, Opening::Outward, back, false, false),
        ("10.0.0.2", Opening::Outward, out, false, false),
        (INSIDE, Opening::Reserve, back, false, true),
        (INSIDE, Opening::Block, back, false, true),
        ("10.0.0.2", Opening::Reserve, back, false, false),
        (FAR, Opening::Inward, back, false, false),
        (INSIDE, Opening::Inward, back, false, false),
        (FAR, Opening::Inward, back, true, true),
    ] {
        let result = open(&mut resources, requester, opening, flow, invited);
        assert_eq!(result.as_ref().map(Passage::rule).ok(), allowed.then_some(None), "{opening}");
        if !allowed {
            assert_eq!(result.unwrap_err(), DEFAULT);
        }
    }
    assert_eq!(resources.counters().refused_policy, 5);
}

/// Neither the own address nor trust nor an invitation nor a rule about something else lets strangers in: only a rule that says so.
#[test]
fn only_a_rule_publishes() {
    let back = (FAR, INSIDE);
    let trusted = vec!["10.0.0.0/8".parse().unwrap()];
    let all = Opening::ALL.into_iter().filter(|opening| *opening != Opening::Publish).collect();
    let others = RuleConfig { opens: all, ..RuleConfig::new("others", Action::Allow) };
    let mut strict = resources(Config { trusted, rules: vec![others], ..Config::default() });
    for invited in [false, true] {
        assert_eq!(open(&mut strict, INSIDE, Opening::Publish, back, invited).unwrap_err(), DEFAULT);
    }
    let publish = RuleConfig {
        opens: vec![Opening::Publish],
        max_reservations: Some(1),
        ..RuleConfig::new("servers", Action::Allow)
    };
    let mut resources = resources(Config { rules: vec![publish], ..Config::default() });
    let passage = open(&mut resources, INSIDE, Opening::Publish, back, false).unwrap();
    assert_eq!(passage.rule().unwrap().to_string(), "rule 1 'servers'");
    assert!(open(&mut resources, INSIDE, Opening::Publish, back, false).is_err(), "limits count");
    assert!(open(&mut resources, FAR, Opening::Inward, back, false).is_err(), "it opens nothing else");
}

/// Each sender of a pinhole is judged.
#[test]
fn a_rule_has_to_cover_all_senders() {
    let deny = RuleConfig {
        opens: vec![Opening::Publish],
        source: vec!["192.0.2.9".parse().unwrap()],
        ..RuleConfig::new("enemy", Action::Deny)
    };
    let allow = RuleConfig { opens: vec![Opening::Publish], ..RuleConfig::new("servers", Action::Allow) };
    let mut resources = resources(Config { rules: vec![deny, allow], ..Config::default() });
    let sender = |text| Sender { from: host(text), port: None };
    let pinhole =
        |senders| Pinhole { senders, ..Pinhole::allow(FlowFilter::between(host(FAR), host(INSIDE))) };
    let mut ask = |senders| open_pinhole(&mut resources, INSIDE, Opening::Publish, &pinhole(senders), false);
    assert!(ask(vec![sender("192.0.2.8")]).is_ok());
    let refused = ask(vec![sender("192.0.2.8"), sender("192.0.2.9")]).unwrap_err();
    assert_eq!(refused, "rule 1 'enemy': denied");
}

#[test]
fn rules_with_opens_are_for_passages_and_others_are_not() {
    let opens =
        |name: &str, action| RuleConfig { opens: vec![Opening::Inward], ..RuleConfig::new(name, action) };
    let limited = RuleConfig { max_reservations: Some(1), ..opens("web", Action::Allow) };
    let rules = vec![
        RuleConfig::new("bandwidth", Action::Allow),
        RuleConfig { destination: vec!["10.0.0.9".parse().unwrap()], ..opens("printer", Action::Deny) },
        limited,
    ];
    let mut resources = resources(Config { rules, ..Config::default() });
    let refused = open(&mut resources, FAR, Opening::Inward, (FAR, "10.0.0.9"), true).unwrap_err();
    assert_eq!(refused, "rule 2 'printer': denied", "also what a host inside waits for");
    let first = open(&mut resources, FAR, Opening::Inward, (FAR, INSIDE), false).unwrap();
    assert_eq!(first.rule().unwrap().to_string(), "rule 3 'web'");
    let refused = open(&mut resources, FAR, Opening::Inward, (FAR, INSIDE), false).unwrap_err();
    assert_eq!(refused, "rule 3 'web': reservations: this requester has all 1");
    resources.close_passage(first);
    assert!(open(&mut resources, FAR, Opening::Inward, (FAR, INSIDE), false).is_ok());
    assert!(open(&mut resources, FAR, Opening::Outward, (INSIDE, FAR), false).is_err(), "for one kind only");
}

#[test]
fn a_requester_leaves_others_their_share() {
    let mut resources = resources(Config { max_pinholes: 64, ..Config::default() });
    let taken = (0..99)
        .filter(|_| open(&mut resources, INSIDE, Opening::Outward, (INSIDE, FAR), false).is_ok())
        .count();
    assert_eq!(taken, 48);
    assert!(open(&mut resources, "10.0.0.2", Opening::Outward, ("10.0.0.2", FAR), false).is_ok());
    let refused = open(&mut resources, INSIDE, Opening::Outward, (INSIDE, FAR), false).unwrap_err();
    assert_eq!((refused.as_str(), resources.passage_count()), ("max_pinholes: all 64 in use", 49));
}

/// UDP to a port of a host inside.
fn udp(dst_port: Option<u16>) -> FlowFilter {
    FlowFilter { protocol: Some(17), dst_port, ..FlowFilter::between(host(FAR), host(INSIDE)) }
}

/// A rule about UDP to these ports.
fn about(name: &str, action: Action, ports: &str) -> RuleConfig {
    RuleConfig {
        opens: vec![Opening::Inward],
        protocol: vec![17],
        ports: vec![ports.parse().unwrap()],
        ..RuleConfig::new(name, action)
    }
}

/// T25 (SEC-T25-01, SEC-T25-02): a pair of ports is two flows. A rule that allows has to cover both, a rule that denies touches one.
#[test]
fn both_ports_of_a_pair_are_judged() {
    let config = Config {
        rules: vec![about("games", Action::Deny, "5900-5998"), about("calls", Action::Allow, "5000-5899")],
        ..Config::default()
    };
    let mut resources = resources(config);
    let mut pair = |port, second_port| {
        let pinhole = Pinhole { second_port, ..Pinhole::allow(udp(Some(port))) };
        let passage = open_pinhole(&mut resources, FAR, Opening::Inward, &pinhole, false)?;
        let reloaded = resources.judge_passage(Time::ZERO, passage, &pinhole, Duration::from_secs(60));
        assert!(reloaded.is_ok(), "{port}");
        Ok::<_, String>(())
    };
    assert_eq!((pair(5899, false), pair(5898, true)), (Ok(()), Ok(())));
    assert_eq!(pair(5899, true), Err("rule 1 'games': denied".to_owned()));
    assert_eq!(pair(4999, true), Err(DEFAULT.to_owned()), "the first port is beside what is allowed");
    let mut narrow = resources_with(vec![about("one", Action::Allow, "5899")]);
    let pinhole = Pinhole { second_port: true, ..Pinhole::allow(udp(Some(5899))) };
    assert_eq!(open_pinhole(&mut narrow, FAR, Opening::Inward, &pinhole, false).unwrap_err(), DEFAULT);
}

fn resources_with(rules: Vec<RuleConfig>) -> Resources {
    resources(Config { rules, ..Config::default() })
}

/// Wildcards and prefixes: a rule that denies a part of them denies all, and one that allows a part does not allow them.
#[test]
fn wildcards_are_judged_as_all_that_they_match() {
    let any_port = udp(None);
    let any_protocol = FlowFilter { protocol: None, dst_port: None, ..any_port };
    let net = FlowFilter { dst: Prefix { addr: INSIDE.parse().unwrap(), len: 24 }, ..udp(Some(5000)) };
    let senders = FlowFilter { src: Prefix { addr: FAR.parse().unwrap(), len: 0 }, ..udp(Some(5000)) };
    let printer = RuleConfig {
        destination: vec!["10.0.0.9".parse().unwrap()],
        ..about("printer", Action::Deny, "5000")
    };
    let sender = RuleConfig {
        source: vec!["198.51.100.0/24".parse().unwrap()],
        ..about("sender", Action::Deny, "5000")
    };
    let only = RuleConfig {
        source: vec![format!("{FAR}/32").parse().unwrap()],
        destination: vec![format!("{INSIDE}/32").parse().unwrap()],
        ..about("one", Action::Allow, "5000")
    };
    for (packets, deny) in [
        (any_port, about("port", Action::Deny, "5900")),
        (any_protocol, about("port", Action::Deny, "5900")),
        (net, printer),
        (senders, sender),
    ] {
        let asked = |rules| {
            let pinhole = Pinhole::allow(packets);
            open_pinhole(&mut resources_with(rules), FAR, Opening::Inward, &pinhole, true).map(drop)
        };
        assert_eq!(asked(vec![deny.clone()]), Err(format!("rule 1 '{}': denied", deny.name)), "{packets}");
        assert_eq!(asked(Vec::new()), Ok(()));
        let pinhole = Pinhole::allow(packets);
        let result =
            open_pinhole(&mut resources_with(vec![only.clone()]), FAR, Opening::Inward, &pinhole, false);
        assert_eq!(result.unwrap_err(), DEFAULT, "{packets}");
    }
}

/// A NAT changes a flow. Rules may name it as it arrives or as it goes on; a rule that denies one of both forms denies.
#[test]
fn a_translated_flow_is_judged_in_both_forms() {
    let external = FlowFilter { dst: host("198.51.100.1"), ..udp(Some(40000)) };
    let inside = Some(Endpoint { address: INSIDE.parse().unwrap(), port: Some(5899) });
    let pinhole = Pinhole { destination: inside, second_port: true, ..Pinhole::allow(external) };
    let to = |destination: &str, action, ports: &str| RuleConfig {
        destination: vec![destination.parse().unwrap()],
        ..about("", action, ports)
    };
    for (rule, invited, allowed) in [
        (to("198.51.100.1", Action::Allow, "40000-40001"), false, true),
        (to("198.51.100.1", Action::Allow, "40000"), false, false),
        (to(INSIDE, Action::Allow, "5899-5900"), false, true),
        (to(INSIDE, Action::Allow, "5899"), false, false),
        (to(INSIDE, Action::Allow, "40000-40001"), false, false),
        (to(INSIDE, Action::Deny, "5900"), true, false),
        (to("198.51.100.1", Action::Deny, "40001"), true, false),
        (to(INSIDE, Action::Deny, "5901"), true, true),
        (to(INSIDE, Action::Deny, "40001"), true, true),
    ] {
        let text = format!("{rule:?}");
        let result = open_pinhole(&mut resources_with(vec![rule]), FAR, Opening::Inward, &pinhole, invited);
        assert_eq!(result.is_ok(), allowed, "{text}");
    }
    // What a host reserves is its own behind the translation.
    let asked = open_pinhole(&mut resources_with(Vec::new()), INSIDE, Opening::Reserve, &pinhole, false);
    assert!(asked.is_ok());
    // The source that a NAT gives is that of all hosts inside: no rule allows by it.
    let out = FlowFilter { protocol: Some(17), ..FlowFilter::between(host(INSIDE), host(FAR)) };
    let source = Some(Endpoint { address: "198.51.100.1".parse().unwrap(), port: Some(40000) });
    let out = Pinhole { source, ..Pinhole::allow(out) };
    for (source, action, allowed) in [
        (INSIDE, Action::Allow, true),
        ("198.51.100.1", Action::Allow, false),
        (INSIDE, Action::Deny, false),
        ("198.51.100.1", Action::Deny, false),
    ] {
        let rule = RuleConfig {
            opens: vec![Opening::Outward],
            source: vec![source.parse().unwrap()],
            ..RuleConfig::new("", action)
        };
        let mut resources = resources_with(vec![rule]);
        assert_eq!(
            open_pinhole(&mut resources, "10.0.0.77", Opening::Outward, &out, action == Action::Deny).is_ok(),
            allowed
        );
    }
}

/// A host opens for its own address without a rule, not for a prefix that begins with it.
#[test]
fn a_prefix_is_not_a_hosts_own() {
    let mut resources = resources_with(Vec::new());
    for (len, allowed) in [(32, true), (31, false), (0, false)] {
        let src = Prefix { addr: INSIDE.parse().unwrap(), len };
        let pinhole = Pinhole::allow(FlowFilter::between(src, host(FAR)));
        assert_eq!(
            open_pinhole(&mut resources, INSIDE, Opening::Outward, &pinhole, false).is_ok(),
            allowed,
            "{len}"
        );
        let pinhole = Pinhole::allow(FlowFilter::between(host(FAR), src));
        assert_eq!(
            open_pinhole(&mut resources, INSIDE, Opening::Reserve, &pinhole, false).is_ok(),
            allowed,
            "{len}"
        );
    }
}

/// RFC 5981: a token for one port is not one for a pair.
#[test]
fn a_token_has_to_name_both_ports() {
    let ports = |text: &str| {
        let ports = signalbox_resources::token::PortList { protocol: 17, ports: text.parse().unwrap() };
        Token { entity: "pdp".to_owned(), destination_ports: vec![ports], ..Token::default() }
    };
    for (text, second_port, allowed) in
        [("5898-5899", true, true), ("5898", true, false), ("5898", false, true), ("5899", true, false)]
    {
        let rule = RuleConfig {
            opens: vec![Opening::Inward],
            token: vec!["pdp".to_owned()],
            ..RuleConfig::new("", Action::Allow)
        };
        let requester =
            Requester { token: Some(Arc::new(ports(text))), ..Requester::at(FAR.parse().unwrap()) };
        let pinhole = Pinhole { second_port, ..Pinhole::allow(udp(Some(5898))) };
        let request = PassageRequest {
            requester: &requester,
            opening: Opening::Inward,
            crossing: Crossing::default(),
            pinhole: &pinhole,
            lifetime: Duration::from_secs(60),
            invited: false,
        };
        assert_eq!(resources_with(vec![rule]).open_passage(Time::ZERO, &request).is_ok(), allowed, "{text}");
    }
}
