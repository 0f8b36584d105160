//! Rules that allow or deny requests, and the text of their refusals.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::security::{Fingerprint, Identity};
use signalbox_core::traffic::{FlowFilter, ServiceClass, TrafficSpec};
use signalbox_core::{IfIndex, Key, Time};
use signalbox_resources::config::{Action, Day, RuleConfig};
use signalbox_resources::token::Token;
use signalbox_resources::units::Trusted;
use signalbox_resources::{
    Cause, Config, GrantRequest, Neighbor, Proof, Rate, RequestedBy, Requester, Resources,
};

use crate::support::*;

fn allow(name: &str) -> RuleConfig {
    RuleConfig::new(name, Action::Allow)
}

fn deny(name: &str) -> RuleConfig {
    RuleConfig::new(name, Action::Deny)
}

/// Resources that deny every request that no rule allows.
fn only(rules: Vec<RuleConfig>) -> Resources {
    start(Config { rules, default: Action::Deny, ..config() })
}

/// The same for a flow from this address, to one of the same IP version.
fn from(address: &str, request: GrantRequest) -> GrantRequest {
    let address: IpAddr = address.parse().unwrap();
    let to =
        if address.is_ipv4() { request.filters[0].dst } else { Prefix::host("fd00::2".parse().unwrap()) };
    let filters =
        request.filters.iter().map(|one| FlowFilter { src: Prefix::host(address), dst: to, ..*one });
    let neighbor = Neighbor { address, ifindex: IfIndex(3), proof: Proof::Handshake };
    GrantRequest { requester: Requester::neighbor(neighbor), filters: filters.collect(), ..request.clone() }
}

fn parse<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> Vec<T> {
    vec![text.parse().unwrap()]
}

/// The text of the refusal, or the number of the rule that allows the request.
fn decided(resources: &Resources, request: &GrantRequest) -> Result<Option<u32>, String> {
    let run = resources.dry_run(NOW, request);
    run.result.map(|_| run.rule.map(|rule| rule.number)).map_err(|refusal| refusal.to_string())
}

const DEFAULT: &str = "policy: no rule applies, and the default is to deny";

/// A rule for requesters by their address is for packets that they send or receive themselves. One for all packets of a link
/// would take those of all others: they would share the rate that one requester asked for.
#[test]
fn a_requester_reserves_for_its_own_packets() {
    let staff = RuleConfig { from: parse("10.1.0.0/16"), ..allow("staff") };
    let anything = RuleConfig { source: parse("0.0.0.0/0"), ..staff.clone() };
    let own_packets = from("10.1.2.3", request_of(1, 1));
    let all = Prefix::all_like(own_packets.filters[0].src.addr);
    let net = |text: &str, len| Prefix { addr: text.parse().unwrap(), len };
    let between = |src, dst| GrantRequest {
        filters: vec![FlowFilter { src, dst, ..own_packets.filters[0] }],
        ..own_packets.clone()
    };
    let host = Prefix::host("10.9.9.9".parse().unwrap());
    for (request, allowed) in [
        (own_packets.clone(), true),
        (between(all, own_packets.filters[0].src), true),
        (between(net("10.1.2.0", 24), all), false),
        (between(all, net("10.1.0.0", 16)), false),
        (between(all, net("239.1.1.1", 32)), true),
        (between(all, all), false),
        (between(all, host), false),
        (between(host, host), false),
        (between(net("10.0.0.0", 8), host), false),
        (
            GrantRequest {
                filters: [own_packets.filters.clone(), between(all, all).filters].concat(),
                ..own_packets.clone()
            },
            false,
        ),
    ] {
        let expected = if allowed { Ok(Some(1)) } else { Err(DEFAULT.to_owned()) };
        assert_eq!(decided(&only(vec![staff.clone()]), &request), expected, "{:?}", request.filters);
        assert_eq!(decided(&only(vec![anything.clone()]), &request), Ok(Some(1)), "`source` says so");
        assert_eq!(decided(&only(vec![allow("all")]), &request), Ok(Some(1)), "it is for everybody");
    }
}

#[test]
fn without_rules_the_default_decides() {
    assert_eq!(decided(&start(config()), &request_of(1, 1)), Ok(None));
    let mut none = only(vec![]);
    assert_eq!(decided(&none, &request_of(1, 1)), Err(DEFAULT.to_owned()));
    assert_eq!(none.admit(NOW, &request_of(1, 1)).unwrap_err().cause(), Cause::Policy);
    assert_eq!(none.counters().refused_policy, 1);
}

#[test]
fn the_first_rule_that_applies_decides() {
    let staff = RuleConfig { from: parse("10.1.0.0/16"), ..allow("staff") };
    let one_host = RuleConfig { from: parse("10.1.2.3"), ..deny("one of them") };
    let guests = RuleConfig { from: parse("10.0.0.0/8"), max_rate: Some(Rate(5 * MBIT)), ..allow("guests") };
    let resources = only(vec![one_host, staff, guests]);
    assert_eq!(decided(&resources, &from("10.1.2.4", request_of(1, 10))), Ok(Some(2)));
    assert_eq!(decided(&resources, &from("10.9.0.1", request_of(1, 5))), Ok(Some(3)));
    assert_eq!(
        decided(&resources, &from("10.9.0.1", request_of(1, 6))),
        Err("rule 3 'guests': rate 6 Mbit/s over 5 Mbit/s".to_owned())
    );
    assert_eq!(
        decided(&resources, &from("10.1.2.3", request_of(1, 1))),
        Err("rule 1 'one of them': denied".to_owned())
    );
    assert_eq!(decided(&resources, &from("192.0.2.1", request_of(1, 1))), Err(DEFAULT.to_owned()));
    assert_eq!(decided(&resources, &from("::1", request_of(1, 1))), Err(DEFAULT.to_owned()));
    // The policy uses the service rate of guaranteed service.
    assert_eq!(
        decided(&resources, &from("10.9.0.1", guaranteed(request_of(1, 4), 6, 0))),
        Err("rule 3 'guests': rate 6 Mbit/s over 5 Mbit/s".to_owned())
    );
}

#[test]
fn every_limit_names_itself() {
    type Change = fn(&mut RuleConfig);
    let strong = at_priority(3, 4, request_of(1, 2));
    let lasting = GrantRequest { lifetime: Some(Duration::from_secs(7200)), ..strong.clone() };
    let burst = GrantRequest { traffic: TrafficSpec { burst: 20_000, ..strong.traffic }, ..strong.clone() };
    let cases: [(Change, &GrantRequest, &str); 6] = [
        (|rule| rule.max_rate = Some(Rate(MBIT)), &strong, "rate 2 Mbit/s over 1 Mbit/s"),
        (|rule| rule.max_burst = Some(15_000), &burst, "burst of 20000 octets over 15000"),
        (|rule| rule.max_setup_priority = Some(2), &strong, "setup priority 3 over 2"),
        (|rule| rule.max_defending_priority = Some(3), &strong, "defending priority 4 over 3"),
        (|rule| rule.max_lifetime = Some("1h".parse().unwrap()), &lasting, "lifetime 2h over 1h"),
        (|rule| rule.max_lifetime = Some("5m".parse().unwrap()), &strong, "no lifetime given, at most 5m"),
    ];
    for (change, request, words) in cases {
        let mut rule = allow("r");
        assert_eq!(decided(&only(vec![rule.clone()]), request), Ok(Some(1)));
        change(&mut rule);
        assert_eq!(decided(&only(vec![rule]), request), Err(format!("rule 1 'r': {words}")));
    }
}

#[test]
fn one_asker_has_a_total_at_an_interface() {
    let rule = RuleConfig { max_total: Some(Rate(5 * MBIT)), max_reservations: Some(2), ..allow("") };
    let mut resources = only(vec![rule]);
    let first = admit(&mut resources, &request_of(1, 3));
    assert_eq!(
        refusal(&mut resources, &request_of(2, 3)),
        "rule 1: total: 3 of 5 Mbit/s in use by this requester, 3 Mbit/s asked"
    );
    // A change counts once, and another requester has a separate total.
    resources.modify(NOW, first.grant, &request_of(1, 4)).unwrap();
    assert!(resources.modify(NOW, first.grant, &request_of(1, 6)).is_err());
    admit(&mut resources, &from("10.0.0.9", request_of(7, 3)));
    let second = admit(&mut resources, &request_of(2, 1));
    assert_eq!(
        refusal(&mut resources, &request_of(3, 1)),
        "rule 1: total: 5 of 5 Mbit/s in use by this requester, 1 Mbit/s asked"
    );
    resources.modify(NOW, first.grant, &request_of(1, 1)).unwrap();
    assert_eq!(refusal(&mut resources, &request_of(3, 1)), "rule 1: reservations: this requester has all 2");
    resources.release(second.grant);
    admit(&mut resources, &request_of(3, 4));
}

/// A session of two grants counts once, for the last requester.
#[test]
fn a_shared_session_counts_once_in_the_total() {
    let rule = RuleConfig { max_total: Some(Rate(5 * MBIT)), max_reservations: Some(1), ..allow("") };
    let mut resources = only(vec![rule]);
    let session = |request| GrantRequest {
        session: signalbox_resources::request::Session::of(Key::from_u64(1)),
        ..request
    };
    let old = admit(&mut resources, &session(request_of(1, 4)));
    let new = admit(&mut resources, &session(request_of(2, 5)));
    assert!(resources.admit(NOW, &request_of(3, 1)).is_err());
    resources.release(old.grant);
    assert!(resources.admit(NOW, &request_of(3, 1)).is_err());
    resources.release(new.grant);
    admit(&mut resources, &request_of(3, 5));
}

#[test]
fn an_authenticated_peer_is_known_by_key_or_name() {
    let key = Fingerprint([0xAB; 32]);
    let mut named = Identity::of_key(Fingerprint([1; 32]));
    named.dns = vec!["R1.Core.example".to_owned()];
    let by = |identity: &Identity| GrantRequest {
        requester: Requester { peer: Some(Arc::new(identity.clone())), ..request_of(1, 1).requester },
        ..request_of(1, 1)
    };
    let keyed = Identity::of_key(key);
    let cases: [(&str, &Identity, bool); 8] = [
        (&format!("key:{key}"), &keyed, true),
        (&format!("key:{key}"), &named, false),
        ("authenticated", &keyed, true),
        ("dns:r1.core.example", &named, true),
        ("dns:r1.core.example", &keyed, false),
        ("dns:*.core.example", &named, true),
        ("dns:*.example", &named, false),
        ("dns:core.example", &named, false),
    ];
    for (peer, identity, applies) in cases {
        let resources = only(vec![RuleConfig { peer: vec![peer.parse().unwrap()], ..allow("") }]);
        assert_eq!(decided(&resources, &by(identity)).is_ok(), applies, "{peer} {identity}");
        assert!(decided(&resources, &request_of(1, 1)).is_err(), "{peer}: nothing is proved");
    }
}

#[test]
fn a_total_belongs_to_the_strongest_proof() {
    let mut resources = only(vec![RuleConfig { max_total: Some(Rate(5 * MBIT)), ..allow("") }]);
    let by = |address: &str, key: u8, request: GrantRequest| {
        let asked = from(address, request);
        let peer = Some(Arc::new(Identity::of_key(Fingerprint([key; 32]))));
        GrantRequest { requester: Requester { peer, ..asked.requester.clone() }, ..asked }
    };
    admit(&mut resources, &by("10.0.0.1", 1, request_of(1, 3)));
    assert!(
        resources.admit(NOW, &by("10.0.0.2", 1, request_of(2, 3))).is_err(),
        "another address, the same peer"
    );
    admit(&mut resources, &by("10.0.0.1", 2, request_of(2, 3)));
}

/// A rule that allows has to match all packets, a rule that denies only some.
#[test]
fn asking_for_more_is_no_way_around_a_denial() {
    let between = |src: &str, src_len, dst: &str, dst_len| {
        let prefix = |addr: &str, len| Prefix { addr: addr.parse().unwrap(), len };
        FlowFilter::between(prefix(src, src_len), prefix(dst, dst_len))
    };
    let narrow = between("10.0.0.1", 32, "10.1.2.3", 32);
    let wide = between("10.0.0.1", 32, "10.0.0.0", 8);
    let elsewhere = between("10.0.0.1", 32, "10.2.0.1", 32);
    let asking = |filters: &[FlowFilter]| GrantRequest { filters: filters.to_vec(), ..request_of(1, 1) };
    let allowed = only(vec![RuleConfig { destination: parse("10.1.0.0/16"), ..allow("") }]);
    assert!(decided(&allowed, &asking(&[narrow])).is_ok());
    for filters in [&[wide][..], &[elsewhere], &[narrow, elsewhere]] {
        assert!(decided(&allowed, &asking(filters)).is_err(), "{filters:?}");
    }
    let denied = start(Config {
        rules: vec![RuleConfig { destination: parse("10.1.0.0/16"), ..deny("") }],
        ..config()
    });
    assert!(decided(&denied, &asking(&[elsewhere])).is_ok());
    for filters in [&[wide][..], &[narrow], &[elsewhere, narrow]] {
        assert!(decided(&denied, &asking(filters)).is_err(), "{filters:?}");
    }
}

#[test]
fn what_is_asked_for_is_matched() {
    type Change = fn(&mut RuleConfig);
    let base = request_of(5004, 1);
    let any_port = GrantRequest { filters: vec![FlowFilter { dst_port: None, ..flow(1) }], ..base.clone() };
    let any_protocol = GrantRequest {
        filters: vec![FlowFilter { protocol: None, dst_port: None, ..flow(1) }],
        ..base.clone()
    };
    let marked = GrantRequest { service: ServiceClass::Dscp(46), ..base.clone() };
    let cases: [(Change, &GrantRequest, bool, bool); 13] = [
        (|r| r.service = parse("controlled-load"), &base, true, true),
        (|r| r.service = parse("guaranteed"), &base, false, false),
        (|r| r.service = parse("dscp"), &marked, true, true),
        (|r| r.service = parse("dscp:46"), &marked, true, true),
        (|r| r.service = parse("dscp:10"), &marked, false, false),
        (|r| r.interface = vec!["eth1".to_owned()], &base, true, true),
        (|r| r.interface = vec!["eth2".to_owned()], &base, false, false),
        (|r| r.source = parse("10.0.0.0/24"), &base, true, true),
        (|r| r.source = parse("10.0.1.0/24"), &base, false, false),
        (|r| (r.protocol, r.ports) = (vec![17], parse("5000-5999")), &base, true, true),
        (|r| (r.protocol, r.ports) = (vec![17], parse("80")), &base, false, false),
        (|r| (r.protocol, r.ports) = (vec![17], parse("80")), &any_port, false, true),
        (|r| r.protocol = vec![6], &any_protocol, false, true),
    ];
    for (change, request, allows, denies) in cases {
        let (mut yes, mut no) = (allow(""), deny(""));
        change(&mut yes);
        change(&mut no);
        assert_eq!(decided(&only(vec![yes.clone()]), request).is_ok(), allows, "{yes:?}");
        let denying = start(Config { rules: vec![no], ..config() });
        assert_eq!(decided(&denying, request).is_err(), denies, "{yes:?}");
    }
}

/// 2026-11-21 was a Saturday; `wall_clock_us` is its midnight in UTC.
#[test]
fn days_and_hours_are_those_of_utc() {
    const SATURDAY: u64 = 1_795_219_200_000_000;
    let at = |hours: Option<&str>, days: &[Day], minutes: u64| {
        let hours = hours.map(|text| text.parse().unwrap());
        let rule = RuleConfig { hours, days: days.to_vec(), ..allow("") };
        let config = Config { rules: vec![rule], default: Action::Deny, ..config() };
        let mut resources = Resources::new(config, SATURDAY, [7; 32]).unwrap();
        resources.interfaces(&[interface(ETH1, "eth1")]);
        resources.dry_run(Time::from_secs(minutes * 60), &request_of(1, 1)).result.is_ok()
    };
    let office = Some("08:00-18:30");
    let cases = [
        (None, &[Day::Sat][..], 0, true),
        (None, &[Day::Sat], 24 * 60 - 1, true),
        (None, &[Day::Sat], 24 * 60, false),
        (None, &[Day::Mon, Day::Sun], 24 * 60, true),
        (office, &[], 8 * 60 - 1, false),
        (office, &[], 8 * 60, true),
        (office, &[], 18 * 60 + 29, true),
        (office, &[], 18 * 60 + 30, false),
        (Some("22:00-06:00"), &[], 23 * 60, true),
        (Some("22:00-06:00"), &[], 5 * 60, true),
        (Some("22:00-06:00"), &[], 6 * 60, false),
        // The night of Saturday ends on Sunday; the first hours of Saturday belong to Friday's night.
        (Some("22:00-06:00"), &[Day::Sat], 29 * 60, true),
        (Some("22:00-06:00"), &[Day::Sat], 5 * 60, false),
        (Some("22:00-06:00"), &[Day::Fri], 5 * 60, true),
        (Some("00:00-24:00"), &[], 24 * 60 - 1, true),
    ];
    for (hours, days, minutes, expected) in cases {
        assert_eq!(at(hours, days, minutes), expected, "{hours:?} {days:?} {minutes}");
    }
}

#[test]
fn a_token_lets_in_and_holds_to_what_it_says() {
    let rules = vec![RuleConfig { token: vec!["billing.example".to_owned()], ..allow("prepaid") }];
    let resources = only(rules);
    let address = |text: &str| Prefix::host(text.parse::<IpAddr>().unwrap());
    let with = |token: Token| GrantRequest {
        requester: Requester { token: Some(Arc::new(token)), ..request_of(1, 1).requester },
        ..request_of(1, 1)
    };
    let good = Token {
        entity: "billing.example".to_owned(),
        sources: vec![address("10.0.0.1")],
        destinations: vec![address("10.0.0.2")],
        destination_ports: vec![signalbox_resources::token::PortList {
            protocol: 17,
            ports: "1".parse().unwrap(),
        }],
        end_us: Some(60_000_000),
        ..Token::default()
    };
    assert_eq!(decided(&resources, &with(good.clone())), Ok(Some(1)));
    assert_eq!(decided(&resources, &request_of(1, 1)), Err(DEFAULT.to_owned()));
    let other = Token { entity: "other.example".to_owned(), ..good.clone() };
    assert_eq!(decided(&resources, &with(other)), Err(DEFAULT.to_owned()));
    let cases = [
        (
            Token { sources: vec![address("10.0.0.9")], ..good.clone() },
            "token: the flow's source is not among those that it names",
        ),
        (
            Token { destinations: vec![address("10.0.0.9")], ..good.clone() },
            "token: the flow's destination is not among those that it names",
        ),
        (
            Token { source_ports: good.destination_ports.clone(), ..good.clone() },
            "token: the flow's source port is not among those that it names",
        ),
        (Token { end_us: Some(1_000_000), ..good.clone() }, "token: its time is over"),
        (Token { start_us: Some(1_000_001), ..good.clone() }, "token: its time has not come"),
    ];
    for (token, words) in cases {
        assert_eq!(decided(&resources, &with(token)), Err(words.to_owned()));
    }
}

#[test]
fn who_a_request_says_that_it_is_for() {
    let user = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let rules = vec![
        RuleConfig { user: user(&["mallory"]), ..deny("banned") },
        RuleConfig { user: user(&["ann", "CN=Bob, O=Example"]), ..allow("known") },
        RuleConfig { user: user(&["any"]), max_rate: Some(Rate(MBIT)), ..allow("named") },
    ];
    let resources = only(rules);
    let with = |names: &[&str]| GrantRequest {
        requester: Requester { names: Some(Arc::new(user(names))), ..request_of(1, 1).requester },
        ..request_of(1, 1)
    };
    assert_eq!(decided(&resources, &request_of(1, 1)), Err(DEFAULT.to_owned()), "no rule");
    assert_eq!(decided(&resources, &with(&["ann"])), Ok(Some(2)));
    assert_eq!(decided(&resources, &with(&["bob", "CN=Bob, O=Example"])), Ok(Some(2)));
    assert_eq!(decided(&resources, &with(&["Ann"])), Ok(Some(3)), "another name");
    assert!(decided(&resources, &with(&["ann", "mallory"])).unwrap_err().contains("banned"));
}

/// Where the default is to deny, users of this host and authenticated neighbors need no rule, and addresses only if they
/// are configured. The address in the request itself counts for nothing.
#[test]
fn the_trusted_need_no_rule_and_others_do() {
    let by = |requested_by| {
        let request = request_of(1, 1);
        GrantRequest { requester: Requester { requested_by, ..request.requester.clone() }, ..request }
    };
    let neighbor =
        |address: &str, proof| Neighbor { address: address.parse().unwrap(), ifindex: IfIndex(3), proof };
    let usual = start(Config { default: Action::Deny, trusted: Trusted::usual(), ..config() });
    assert_eq!(decided(&usual, &by(RequestedBy::LocalUser(None))), Ok(None));
    let near = || RequestedBy::Neighbor(neighbor("10.0.0.1", Proof::Link));
    for stranger in [RequestedBy::Unknown, near()] {
        assert_eq!(decided(&usual, &by(stranger)), Err(DEFAULT.to_owned()));
    }
    assert_eq!(decided(&usual, &by(RequestedBy::Neighbor(neighbor("192.0.2.1", Proof::Identity)))), Ok(None));

    let trusted = parse("10.0.0.0/24");
    let configured = start(Config { default: Action::Deny, trusted, ..config() });
    assert_eq!(decided(&configured, &by(near())), Ok(None));
    assert_eq!(decided(&configured, &by(RequestedBy::Unknown)), Err(DEFAULT.to_owned()));
    // A merged request is as good as the worst of its parts.
    let merged = |other: &str| {
        by(RequestedBy::Neighbors(vec![neighbor("10.0.0.1", Proof::Link), neighbor(other, Proof::Link)]))
    };
    assert_eq!(decided(&configured, &merged("10.0.0.2")), Ok(None));
    assert_eq!(decided(&configured, &merged("10.0.1.2")), Err(DEFAULT.to_owned()));
    // A rule that denies comes before.
    let rules = vec![RuleConfig { from: parse("10.0.0.1"), ..deny("closed") }];
    let trusted = Trusted::usual();
    let closed = start(Config { default: Action::Deny, trusted, rules, ..config() });
    assert_eq!(
        decided(&closed, &by(RequestedBy::LocalUser(None))),
        Err("rule 1 'closed': denied".to_owned())
    );
}

#[test]
fn a_name_without_proof_cannot_be_trusted() {
    for text in ["local", "authenticated", "dns:r1.example", "192.0.2.0/24"] {
        assert_eq!(text.parse::<Trusted>().unwrap().to_string(), text);
    }
    for text in ["any", "everybody", "192.0.2.0/33"] {
        assert!(text.parse::<Trusted>().is_err(), "{text}");
    }
}
