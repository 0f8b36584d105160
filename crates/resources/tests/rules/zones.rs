//! Rules that name the zones between which a passage opens.

use std::time::Duration;

use signalbox_core::node::{Interface, Prefix};
use signalbox_core::pinhole::Pinhole;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{IfIndex, Time};
use signalbox_resources::config::{Action, Opening, RuleConfig, Zones};
use signalbox_resources::opening::Crossing;
use signalbox_resources::{Config, Neighbor, Passage, PassageRequest, Proof, Requester, Resources};

/// The interfaces, by number from 1 on. `tun0` and `wan` have no zone.
const INTERFACES: [&str; 5] = ["lan0", "lan1", "guest", "wan", "tun0"];
const LAN: u32 = 1;
const LAN_1: u32 = 2;
const GUEST: u32 = 3;
const WAN: u32 = 4;
/// There is no such interface.
const UNKNOWN: u32 = 0;

fn zones(of: &[(&str, &str)]) -> Zones {
    Zones(of.iter().map(|(interface, zone)| ((*interface).to_owned(), (*zone).to_owned())).collect())
}

fn usual() -> Zones {
    zones(&[("lan0", "lan"), ("lan1", "lan"), ("guest", "guest")])
}

fn rule(action: Action, from: &[&str], to: &[&str]) -> RuleConfig {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let opens = vec![Opening::Outward, Opening::Between, Opening::Inward];
    RuleConfig { opens, from_zone: names(from), to_zone: names(to), ..RuleConfig::new("", action) }
}

fn interfaces() -> Vec<Interface> {
    let interface = |(number, name): (u32, &&str)| Interface {
        ifindex: IfIndex(number),
        name: (*name).to_owned(),
        up: true,
        mtu: 1500,
        tunnel: false,
        addresses: Vec::new(),
    };
    (1..).zip(&INTERFACES).map(interface).collect()
}

fn config(zones: &Zones, rules: Vec<RuleConfig>) -> Config {
    Config { zones: zones.clone(), rules, ..Config::default() }
}

fn resources(zones: &Zones, rules: Vec<RuleConfig>) -> Resources {
    let mut resources = Resources::new(config(zones, rules), 0, [1; 32]).unwrap();
    resources.interfaces(&interfaces());
    resources
}

fn pinhole() -> Pinhole {
    let host = |text: &str| Prefix::host(text.parse().unwrap());
    Pinhole::allow(FlowFilter::between(host("10.0.0.1"), host("10.0.9.1")))
}

/// The answer to a node that asks between these interfaces for another host.
fn open(resources: &mut Resources, opening: Opening, [from, to]: [u32; 2]) -> Option<Passage> {
    let address = "10.0.0.7".parse().unwrap();
    let ifindex = IfIndex(from);
    let requester = Requester::neighbor(Neighbor { address, ifindex, proof: Proof::Handshake });
    let crossing = Crossing { from: ifindex, to: IfIndex(to) };
    let (pinhole, lifetime) = (pinhole(), Duration::from_secs(60));
    let request = PassageRequest {
        requester: &requester,
        opening,
        crossing,
        pinhole: &pinhole,
        lifetime,
        invited: false,
    };
    let (dry, held) = (resources.dry_passage(Time::ZERO, &request), resources.passage_count());
    let opened = resources.open_passage(Time::ZERO, &request);
    // What a user is told beforehand is what happens.
    assert_eq!(dry.result.as_ref().err(), opened.as_ref().err());
    if let Ok(passage) = &opened {
        assert_eq!((dry.rule.as_ref(), held + 1), (passage.rule(), resources.passage_count()));
    }
    opened.ok()
}

/// T29 (SEC-T29-02): a rule with zones is for packets between them alone. What is not known is in no zone of a rule that allows.
#[test]
fn a_rule_with_zones_allows_between_them() {
    for (from, to, way, allowed) in [
        (&["lan"][..], &["guest"][..], [LAN, GUEST], true),
        (&["lan"], &["guest"], [LAN_1, GUEST], true),
        (&["lan"], &["guest"], [GUEST, LAN], false),
        (&["lan"], &["guest"], [LAN, LAN_1], false),
        (&["lan"], &["lan"], [LAN, LAN_1], true),
        (&["lan", "guest"], &["outside"], [GUEST, WAN], true),
        (&["lan", "guest"], &["outside"], [GUEST, 5], true),
        (&["lan", "guest"], &["outside"], [WAN, 5], false),
        (&[], &["guest"], [WAN, GUEST], true),
        (&["guest"], &[], [GUEST, UNKNOWN], true),
        (&["guest"], &["lan"], [GUEST, UNKNOWN], false),
        (&["guest"], &[], [UNKNOWN, LAN], false),
        (&[], &[], [UNKNOWN, UNKNOWN], true),
    ] {
        let mut resources = resources(&usual(), vec![rule(Action::Allow, from, to)]);
        for opening in [Opening::Outward, Opening::Between, Opening::Inward] {
            assert_eq!(
                open(&mut resources, opening, way).is_some(),
                allowed,
                "{from:?} {to:?} {way:?} {opening}"
            );
        }
        assert!(open(&mut resources, Opening::Block, way).is_none(), "opens restricts as before");
    }
}

/// A rule that denies is for packets that may be between its zones.
#[test]
fn a_rule_with_zones_denies_what_may_be_between_them() {
    for (from, to, way, allowed) in [
        (&["guest"][..], &["lan"][..], [GUEST, LAN], false),
        (&["guest"], &["lan"], [GUEST, WAN], true),
        (&["guest"], &["lan"], [LAN, LAN_1], true),
        (&["guest"], &["lan"], [GUEST, UNKNOWN], false),
        (&["guest"], &["lan"], [UNKNOWN, LAN], false),
        (&["guest"], &["lan"], [LAN, UNKNOWN], true),
        (&["guest"], &[], [LAN, GUEST], true),
    ] {
        let rules = vec![rule(Action::Deny, from, to), rule(Action::Allow, &[], &[])];
        let mut resources = resources(&usual(), rules);
        assert_eq!(open(&mut resources, Opening::Between, way).is_some(), allowed, "{from:?} {to:?} {way:?}");
    }
}

/// An interface that has another zone after a reload is judged by that, and by its name: its number may change.
#[test]
fn a_reload_judges_by_the_zones_of_now() {
    let rules = || vec![rule(Action::Allow, &["lan"], &["guest"])];
    for (zones, stands) in [
        (usual(), true),
        (zones(&[("lan0", "lan"), ("guest", "dmz")]), false),
        (zones(&[("*", "guest"), ("lan0", "lan")]), true),
        (Zones::default(), false),
    ] {
        let mut resources = resources(&usual(), rules());
        let passage = open(&mut resources, Opening::Between, [LAN, GUEST]).unwrap();
        let mut interfaces = interfaces();
        interfaces[2].ifindex = IfIndex(9);
        resources.interfaces(&interfaces);
        let max_pinholes = 99;
        resources.reload(Time::ZERO, Config { max_pinholes, ..config(&zones, rules()) }).unwrap();
        assert!(resources.is_outdated(&passage));
        let judged = resources.judge_passage(Time::ZERO, passage, &pinhole(), Duration::from_secs(60));
        assert_eq!((judged.is_ok(), resources.passage_count()), (stands, u32::from(stands)), "{zones:?}");
    }
}

#[test]
fn zones_are_of_rules_for_passages() {
    let check = |rule| config(&usual(), vec![rule]).validated().map_err(|error| error.to_string());
    let with = |opens: &[Opening], from: &[&str]| RuleConfig {
        opens: opens.to_vec(),
        ..rule(Action::Allow, from, &["lan"])
    };
    assert_eq!(check(with(&[Opening::Between], &["lan"])), Ok(()));
    assert_eq!(check(with(&[Opening::Reserve, Opening::Block], &[])), Ok(()));
    let wrong = check(with(&[], &["lan"])).unwrap_err();
    assert!(wrong.starts_with("rule[1].from_zone: is for passages"), "{wrong}");
    let wrong = check(with(&[], &[])).unwrap_err();
    assert!(wrong.starts_with("rule[1].to_zone: is for passages"), "{wrong}");
    for opening in [Opening::Reserve, Opening::Block] {
        let wrong = check(with(&[Opening::Inward, opening], &["outside"])).unwrap_err();
        assert!(wrong.contains("senders anywhere"), "{wrong}");
    }
}
