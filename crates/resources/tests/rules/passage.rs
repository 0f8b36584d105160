//! Who may open what through a firewall or NAT.

use std::time::Duration;

use signalbox_core::Time;
use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;
use signalbox_resources::config::{Action, Opening, RuleConfig};
use signalbox_resources::{Config, Neighbour, Passage, PassageRequest, RequestedBy, Requester, Resources};

const INSIDE: &str = "10.0.0.1";
const FAR: &str = "192.0.2.1";

fn host(text: &str) -> Prefix {
    Prefix::host(text.parse().unwrap())
}

fn resources(config: Config) -> Resources {
    Resources::new(config, 0, [1; 32]).unwrap()
}

/// The answer to an adjacent node that asks for a flow.
fn ask(
    resources: &mut Resources,
    requester: &str,
    opening: Opening,
    (src, dst): (&str, &str),
    invited: bool,
) -> Result<Passage, String> {
    let address = requester.parse().unwrap();
    let neighbour = RequestedBy::Neighbour(Neighbour { address, authenticated: false });
    let requester = Requester { requested_by: neighbour, ..Requester::at(address) };
    let packets = FlowFilter::between(host(src), host(dst));
    let lifetime = Duration::from_secs(60);
    let ask = PassageRequest { requester: &requester, opening, packets: &packets, lifetime, invited };
    resources.open_passage(Time::ZERO, &ask).map_err(|refusal| refusal.to_string())
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
        let result = ask(&mut resources, requester, opening, flow, invited);
        assert_eq!(result.as_ref().map(Passage::rule).ok(), allowed.then_some(None), "{opening}");
        if !allowed {
            assert_eq!(result.unwrap_err(), DEFAULT);
        }
    }
    assert_eq!(resources.counters().refused_policy, 5);
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
    let refused = ask(&mut resources, FAR, Opening::Inward, (FAR, "10.0.0.9"), true).unwrap_err();
    assert_eq!(refused, "rule 2 'printer': denied", "also what a host inside waits for");
    let first = ask(&mut resources, FAR, Opening::Inward, (FAR, INSIDE), false).unwrap();
    assert_eq!(first.rule().unwrap().to_string(), "rule 3 'web'");
    let refused = ask(&mut resources, FAR, Opening::Inward, (FAR, INSIDE), false).unwrap_err();
    assert_eq!(refused, "rule 3 'web': reservations: this requester has all 1");
    resources.close_passage(first);
    assert!(ask(&mut resources, FAR, Opening::Inward, (FAR, INSIDE), false).is_ok());
    assert!(ask(&mut resources, FAR, Opening::Outward, (INSIDE, FAR), false).is_err(), "for one kind only");
}

#[test]
fn a_requester_leaves_others_their_share() {
    let mut resources = resources(Config { max_pinholes: 64, ..Config::default() });
    let taken = (0..99)
        .filter(|_| ask(&mut resources, INSIDE, Opening::Outward, (INSIDE, FAR), false).is_ok())
        .count();
    assert_eq!(taken, 48);
    assert!(ask(&mut resources, "10.0.0.2", Opening::Outward, ("10.0.0.2", FAR), false).is_ok());
    let refused = ask(&mut resources, INSIDE, Opening::Outward, (INSIDE, FAR), false).unwrap_err();
    assert_eq!((refused.as_str(), resources.passage_count()), ("max_pinholes: all 64 in use", 49));
}
