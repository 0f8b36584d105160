//! T29: rules that name the zones of the interfaces by which a flow comes in and leaves.

use signalbox_core::{IfIndex, Mri, PathCoupled, SessionId};
use signalbox_natfw::engine::{Config, Middlebox, OpenBits};
use signalbox_natfw::wire::{DataTerminal, FlowInfo, Info, Message};
use signalbox_resources::config::{Action, Opening, RuleConfig, Zones};

use crate::rig::{
    EDGE, FAR, GUEST, HOST, INSIDE, OTHER, OUTSIDE, Rig, boxed, create, external, loose, only, success, udp,
};

const CALL: SessionId = SessionId([8; 16]);
/// A host of the guests. [`HOST`] is in the zone `lan`.
const VISITOR: &str = "10.0.9.3";

fn zones() -> Zones {
    Zones([("lan", "lan"), ("guest", "guest")].map(|(one, zone)| (one.to_owned(), zone.to_owned())).into())
}

fn rule(action: Action, opens: Opening, from: &[&str], to: &[&str]) -> RuleConfig {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    RuleConfig {
        opens: vec![opens],
        from_zone: names(from),
        to_zone: names(to),
        ..RuleConfig::new("", action)
    }
}

fn with(config: Config, rules: Vec<RuleConfig>) -> Rig {
    Rig::with_rules(config, |config| (config.rules, config.zones) = (rules, zones()))
}

/// Whether a CREATE by this interface is sent on.
fn granted(rig: &mut Rig, by: IfIndex, flow: PathCoupled) -> bool {
    let sent = only(rig.in_session(CALL, OTHER, by, Mri::PathCoupled(flow), &create(7, 100)));
    match sent.info_of() {
        None => true,
        Some(info) => {
            assert_eq!(info, Info::AUTHORIZATION);
            false
        }
    }
}

#[test]
fn a_sender_opens_between_the_zones_of_a_rule() {
    for middlebox in [Middlebox::Firewall, Middlebox::Nat] {
        for (from, to, [lan_guest, guest_lan, lan_lan]) in [
            (&["lan"][..], &["guest"][..], [true, false, false]),
            (&["guest"], &["lan"], [false, true, false]),
            (&["lan"], &["lan"], [false, false, true]),
            (&["lan"], &[], [true, false, true]),
            (&[], &["lan"], [false, true, true]),
            (&["lan"], &["outside"], [false, false, false]),
        ] {
            for (by, src, dst, expected) in [
                (INSIDE, HOST, VISITOR, lan_guest),
                (GUEST, VISITOR, HOST, guest_lan),
                (INSIDE, HOST, "10.0.1.9", lan_lan),
            ] {
                let rules = vec![rule(Action::Allow, Opening::Between, from, to)];
                let mut rig = with(boxed(middlebox), rules);
                let is = granted(&mut rig, by, udp(src, 5000, dst, 6000));
                assert_eq!(is, expected, "{middlebox:?} {from:?} {to:?} {src} {dst}");
                assert_eq!(rig.resources.passage_count(), u32::from(expected));
            }
        }
    }
}

/// From the outside, too, the route to the destination decides. At a NAT this is the host that waits.
#[test]
fn a_sender_outside_opens_to_the_zones_of_a_rule() {
    for (to, [lan, guest]) in [("lan", [true, false]), ("guest", [false, true]), ("outside", [false, false])]
    {
        for (host, expected) in [(HOST, lan), (VISITOR, guest)] {
            let allow = rule(Action::Allow, Opening::Inward, &["outside"], &[to]);
            let mut rig = with(boxed(Middlebox::Firewall), vec![allow.clone()]);
            assert_eq!(granted(&mut rig, OUTSIDE, udp(FAR, 5000, host, 6000)), expected, "{host} {to}");

            let reserve = RuleConfig { opens: vec![Opening::Reserve], ..RuleConfig::new("", Action::Allow) };
            let rest = rule(Action::Deny, Opening::Inward, &[], &[]);
            let edge = Config { edge: true, ..boxed(Middlebox::Nat) };
            let mut rig = with(edge, vec![allow, reserve, rest]);
            let answer = only(rig.by_inside(loose(host, FAR), &external(1, 1000, 6000)));
            let port = answer.message().external.unwrap().port.unwrap();
            rig.end = true;
            assert_eq!(granted(&mut rig, OUTSIDE, udp(FAR, 5000, EDGE, port)), expected, "{host} {to}");
        }
    }
}

/// Packets to many addresses may leave by any interface, and those of many senders come in by any. The same without a route.
#[test]
fn what_is_not_known_is_in_no_zone_that_a_rule_allows() {
    let open_bits = OpenBits { source: 8, destination: 8 };
    let wide = || Config { open_bits, ..boxed(Middlebox::Firewall) };
    let flow = udp(HOST, 5000, VISITOR, 6000);
    for (flow, routes, from, to, allowed, denied) in [
        (flow, true, &["lan"][..], &["guest"][..], true, true),
        (flow, true, &["guest"], &["guest"], false, false),
        (PathCoupled { src_prefix: 24, ..flow }, true, &["lan"], &[], false, true),
        (PathCoupled { src_prefix: 24, ..flow }, true, &[], &["guest"], true, true),
        (PathCoupled { dst_prefix: 24, ..flow }, true, &[], &["guest"], false, true),
        (flow, false, &[], &["guest"], false, true),
        (flow, false, &["lan"], &[], true, true),
    ] {
        for (action, expected) in [(Action::Allow, allowed), (Action::Deny, !denied)] {
            let all = RuleConfig { opens: vec![Opening::Between], ..RuleConfig::new("", Action::Allow) };
            let more = Some(all).filter(|_| action == Action::Deny);
            let rules = [rule(action, Opening::Between, from, to)].into_iter().chain(more).collect();
            let mut rig = with(wide(), rules);
            rig.routes = routes;
            assert_eq!(granted(&mut rig, INSIDE, flow), expected, "{action:?} {from:?} {to:?} {flow:?}");
        }
    }
}

/// An edge that opens for a receiver: the zone of the sender is that of the route to it, and for all senders it is not known.
#[test]
fn an_edge_opens_between_the_zones_of_a_rule() {
    for middlebox in [Middlebox::Firewall, Middlebox::Nat] {
        for (sender, rules, expected) in [
            (VISITOR, vec![rule(Action::Allow, Opening::Between, &["guest"], &["lan"])], true),
            (VISITOR, vec![rule(Action::Allow, Opening::Between, &["lan"], &["guest"])], false),
            (VISITOR, vec![rule(Action::Allow, Opening::Between, &["lan"], &["lan"])], false),
            (FAR, vec![rule(Action::Deny, Opening::Inward, &["outside"], &["lan"])], false),
            (FAR, vec![rule(Action::Deny, Opening::Inward, &["outside"], &["guest"])], true),
            ("0.0.0.0", vec![rule(Action::Allow, Opening::Between, &["guest"], &["lan"])], false),
            ("0.0.0.0", vec![rule(Action::Allow, Opening::Between, &[], &["lan"])], true),
        ] {
            let mut rig = with(Config { edge: true, ..boxed(middlebox) }, rules);
            let any = sender == "0.0.0.0";
            let terminal = DataTerminal {
                sender: (sender.parse().unwrap(), if any { 0 } else { 32 }),
                ..DataTerminal::receiver(17, 6000)
            };
            let request = Message {
                proxy: true,
                nonce: Some(1),
                efi: Some(FlowInfo::ALLOW),
                terminal: Some(terminal),
                ..external(1, 100, 6000)
            };
            let sent = rig.by_inside(loose(HOST, FAR), &request);
            assert_eq!(sent[0].info() == Info::PROCESSED, expected, "{middlebox:?} {sender}");
        }
    }
}

/// Who may be reached is asked with the zone of the host.
#[test]
fn a_reservation_is_of_the_zone_of_its_host() {
    for (zone, granted) in [("lan", false), ("guest", true)] {
        let rules = vec![rule(Action::Deny, Opening::Reserve, &[], &[zone])];
        let mut rig = with(Config { edge: true, ..boxed(Middlebox::Nat) }, rules);
        let answer = only(rig.by_inside(loose(HOST, FAR), &external(1, 1000, 6000)));
        assert_eq!(answer.info() == Info::PROCESSED, granted, "{zone}");
    }
}

/// What stands is judged again when an interface gets another zone, and ends if no rule allows it any more.
#[test]
fn what_stands_is_judged_by_other_zones() {
    let rules = vec![rule(Action::Allow, Opening::Between, &["lan"], &["guest"])];
    for (zone, stands) in [("guest", true), ("dmz", false)] {
        let mut rig = with(boxed(Middlebox::Firewall), rules.clone());
        let flow = Mri::PathCoupled(udp(HOST, 5000, VISITOR, 6000));
        let sent = only(rig.by_inside(flow, &create(7, 100)));
        only(rig.answer(&sent, &success(7, 100)));
        assert_eq!(rig.holes.len(), 1);
        let mut zones = zones();
        zones.0.insert("guest".to_owned(), zone.to_owned());
        let max_pinholes = 99;
        let config =
            signalbox_resources::Config { rules: rules.clone(), zones, max_pinholes, ..Default::default() };
        rig.resources.reload(rig.now, config).unwrap();
        rig.judge();
        assert_eq!((rig.holes.len(), rig.resources.passage_count() == 1), (usize::from(stands), stands));
    }
}

/// A host of one zone that asks for the packets of a host in another one does not open them as its own zone may. Without a route
/// to the host its zone is not known. SEC-T29-03: for a host of the other side nothing opens, whatever the rules say.
#[test]
fn a_request_for_a_host_of_another_zone_is_not_of_the_zone_of_the_peer() {
    let all = RuleConfig { opens: vec![Opening::Between], ..RuleConfig::new("", Action::Allow) };
    let allow = rule(Action::Allow, Opening::Between, &["guest"], &[]);
    let deny = |zone: &str| vec![rule(Action::Deny, Opening::Between, &[zone], &[]), all.clone()];
    for (rules, src, granted) in [
        (vec![allow.clone()], VISITOR, true),
        (vec![allow.clone()], "10.0.9.4", true),
        (vec![allow.clone()], HOST, false),
        (vec![allow], "203.0.113.10", false),
        (deny("lan"), HOST, false),
        (deny("guest"), HOST, false),
        (deny("lan"), VISITOR, true),
        (vec![all.clone()], HOST, true),
        (vec![all.clone()], "203.0.113.10", false),
    ] {
        for middlebox in [Middlebox::Firewall, Middlebox::Nat] {
            let mut rig = with(boxed(middlebox), rules.clone());
            let flow = udp(src, 5000, "10.0.1.9", 6000);
            assert_eq!(self::granted(&mut rig, GUEST, flow), granted, "{middlebox:?} {src} {rules:?}");
        }
    }
    // A receiver, too.
    let deny = |zone: &str| vec![rule(Action::Deny, Opening::Reserve, &[], &[zone])];
    for (rules, granted) in [(Vec::new(), true), (deny("guest"), false), (deny("lan"), false)] {
        let config = Config { edge: true, ..boxed(Middlebox::Nat) };
        let mut rig = Rig::with_rules(config, |config| {
            (config.rules, config.zones) = (rules, zones());
            config.trusted = vec!["203.0.113.0/24".parse().unwrap()];
        });
        let sent = only(rig.in_session(CALL, OTHER, GUEST, loose(HOST, FAR), &external(1, 1000, 6000)));
        assert_eq!(sent.info() == Info::PROCESSED, granted);
    }
}
