//! What opens is judged in its own direction.

use signalbox_casp::clients::natfw::{Config, NatfwEvent};
use signalbox_casp::wire::natfw::{NatfwMessage, NatfwStatus, NatfwType, NatfwValue, Tlvs};
use signalbox_resources::Proof;
use signalbox_resources::config::{Action, Opening, RuleConfig, Zones};

use crate::rig::{FIRST, Packet, Rig, back, filter, flow};

fn rules(action: Action, opens: Opening) -> signalbox_resources::Config {
    let rule = RuleConfig { opens: vec![opens], ..RuleConfig::new("", action) };
    signalbox_resources::Config { rules: vec![rule], ..signalbox_resources::Config::default() }
}

/// T29 (SEC-T29-01): from the inside to the inside only a rule opens, whether the sender asks or the receiver.
#[test]
fn inside_to_inside_needs_a_rule() {
    let all_inside = |_, config| Config { inside: vec!["left".to_owned(), "right".to_owned()], ..config };
    for by_receiver in [false, true] {
        for (policy, granted) in [
            (signalbox_resources::Config::default(), false),
            (rules(Action::Allow, Opening::Outward), false),
            (rules(Action::Allow, Opening::Reserve), false),
            (rules(Action::Allow, Opening::Between), true),
        ] {
            let mut rig = Rig::with(3, &|_| policy.clone(), &all_inside);
            rig.accept();
            rig.ask(by_receiver);
            assert_eq!(rig.passes(1).len(), usize::from(granted), "{by_receiver} {policy:?}");
            let opened = matches!(rig.events(0).last(), Some(NatfwEvent::Opened { .. }));
            assert_eq!(opened, granted);
        }
    }
}

/// T31: a host opens for its own address if it has answered there, where the policy demands that. The node that opened a passage is not
/// replaced by one that only writes its address.
#[test]
fn a_neighbor_without_a_cookie_opens_nothing_that_needs_a_handshake() {
    for (proof, answered, granted) in [
        (Proof::Link, false, true),
        (Proof::Link, true, true),
        (Proof::Handshake, false, false),
        (Proof::Handshake, true, true),
    ] {
        let policy = signalbox_resources::Config { proof, ..Default::default() };
        let mut rig = Rig::with(3, &|_| policy.clone(), &|_, config| config);
        rig.answered = answered;
        rig.accept();
        rig.ask(false);
        assert_eq!(rig.passes(1).len(), usize::from(granted), "{proof} {answered}");
    }
    let mut rig = Rig::standing(3, false);
    for (answered, number, left) in [(false, 6, 1), (true, 7, 0)] {
        rig.answered = answered;
        rig.inject(0, 1, NatfwType::RELEASE, &[NatfwValue::MsgId(number)]);
        assert_eq!(rig.passes(1).len(), left);
    }
}

/// T31: where the receiver asks, a trusted neighbor speaks for the receiver, and not for the sender that the flow names.
#[test]
fn a_receiver_asks_for_itself() {
    for (from, granted) in [("10.0.0.0/24", true), ("10.0.3.0/24", false)] {
        let none = RuleConfig {
            opens: vec![Opening::Reserve, Opening::Inward],
            from: vec![from.parse().unwrap()],
            max_reservations: Some(0),
            ..RuleConfig::new("none", Action::Allow)
        };
        let policy = signalbox_resources::Config {
            trusted: vec!["10.0.3.0/24".parse().unwrap()],
            rules: vec![none],
            ..Default::default()
        };
        let mut rig =
            Rig::with(4, &|n| if n == 2 { policy.clone() } else { Default::default() }, &|_, config| config);
        rig.accept();
        rig.ask(true);
        assert_eq!(rig.passes(2).len(), usize::from(granted), "{from}");
    }
}

/// A receiver inside opens the way in without the sender: the rules about flows from the outside count.
#[test]
fn what_a_receiver_opens_is_judged_as_a_flow_from_the_outside() {
    for (action, opens, granted) in [
        (Action::Deny, Opening::Inward, false),
        (Action::Deny, Opening::Reserve, false),
        (Action::Deny, Opening::Outward, true),
    ] {
        let policy = |n| if n == 2 { rules(action, opens) } else { signalbox_resources::Config::default() };
        let mut rig = Rig::with(4, &policy, &|_, config| config);
        rig.accept();
        rig.ask(true);
        assert_eq!(rig.passes(2).len(), usize::from(granted), "{opens}");
        if !granted {
            assert_eq!(rig.status(3), NatfwStatus::POLICY);
        }
    }
}

/// T29: rules name the zones of the interfaces by which the flow passes, whoever asks for it. Node 1 has the sender on its left.
#[test]
fn a_rule_is_for_the_zones_of_a_flow() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let zones = || {
        let zones = [("left", "lan"), ("right", "guest")];
        Zones(zones.map(|(interface, zone)| (interface.to_owned(), zone.to_owned())).into())
    };
    for (inside, opening) in [
        (&["left", "right"][..], Opening::Between),
        (&["left"], Opening::Outward),
        (&["right"], Opening::Inward),
    ] {
        let config = |_, config| Config { inside: names(inside), ..config };
        for by_receiver in [false, true] {
            for (from, to, matches) in [
                (&["lan"][..], &["guest"][..], true),
                (&["guest"], &["lan"], false),
                (&["lan"], &[], true),
                (&[], &["lan"], false),
                (&["lan"], &["lan"], false),
            ] {
                for action in [Action::Allow, Action::Deny] {
                    let rule = |action, from, to| RuleConfig {
                        opens: vec![opening],
                        from_zone: names(from),
                        to_zone: names(to),
                        ..RuleConfig::new("", action)
                    };
                    let other = if action == Action::Deny { Action::Allow } else { Action::Deny };
                    let rules = vec![rule(action, from, to), rule(other, &[], &[])];
                    let policy = signalbox_resources::Config { rules, zones: zones(), ..Default::default() };
                    let mut rig = Rig::with(3, &|_| policy.clone(), &config);
                    rig.accept();
                    rig.ask(by_receiver);
                    let granted = matches == (action == Action::Allow);
                    assert_eq!(
                        rig.passes(1).len(),
                        usize::from(granted),
                        "{opening} {by_receiver} {action:?} {from:?} {to:?}"
                    );
                }
            }
        }
    }
}

/// T29: a host of one zone that asks for the packets of a host of another zone is not of the zone of that host. Node 1 has the sender of
/// the flow in the zone on its left, and who asks in the one on its right.
#[test]
fn a_request_for_a_host_of_another_zone_is_not_of_its_zone() {
    let both = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    let zones = [("left", "lan"), ("right", "guest")];
    let zones = Zones(zones.map(|(interface, zone)| (interface.to_owned(), zone.to_owned())).into());
    for (from_zone, by, granted) in [("lan", 0, true), ("lan", 2, false), ("", 2, true)] {
        let rule = RuleConfig {
            opens: vec![Opening::Between],
            from_zone: Some(from_zone.to_owned()).filter(|zone| !zone.is_empty()).into_iter().collect(),
            ..RuleConfig::new("", Action::Allow)
        };
        let policy = signalbox_resources::Config {
            rules: vec![rule],
            zones: zones.clone(),
            ..signalbox_resources::Config::default()
        };
        let config = |_, config| Config { inside: both(["left", "right"]), ..config };
        let mut rig = Rig::with(3, &|_| policy.clone(), &config);
        let (kind, mut data) = (NatfwType::CREATE, Vec::new());
        let values = [NatfwValue::MsgId(5), NatfwValue::Age(1), NatfwValue::Filter(filter(3))];
        NatfwMessage::compose(kind, &values, &mut data).unwrap();
        rig.carry(Packet { session: FIRST, flow: flow(3), reverse: false, to: 1, from: by, hops: 1, data });
        assert_eq!(rig.passes(1).len(), usize::from(granted), "{from_zone} {by}");
    }
}

/// T29: a border opens against the flow of a host inside by the rules for the packets that it lets pass: from the inside to the inside by one
/// with `between`.
#[test]
fn what_a_border_answers_is_judged_in_its_own_direction() {
    for (port, granted) in [("600", false), ("600-5000", true)] {
        let policy = |_| {
            let mut policy = rules(Action::Allow, Opening::Between);
            policy.rules[0].protocol = vec![17];
            policy.rules[0].ports = vec![port.parse().unwrap()];
            policy
        };
        let inside = || vec!["left".to_owned(), "right".to_owned()];
        let mut rig = Rig::with(3, &policy, &|_, config| Config { border: true, inside: inside(), ..config });
        let mut nested = Vec::new();
        NatfwValue::Filter(back(3)).encode(&mut nested).unwrap();
        let next = NatfwValue::Next(NatfwType::CREATE, Tlvs::of(&nested));
        let values = [NatfwValue::MsgId(5), NatfwValue::Age(1), next, NatfwValue::Scope(1, b"")];
        rig.inject(0, 1, NatfwType::CREATE, &values);
        assert_eq!(rig.passes(1).len(), 1 + usize::from(granted), "{port}: {:?}", rig.passes(1));
    }
}

/// T29 (SEC-T29-03): who asks for the packets of a host on the other side would be judged in another direction than the packets have.
#[test]
fn a_request_for_a_host_of_the_other_side_is_refused() {
    let ask = |from: usize, flow, kind, filter| {
        let policy = |_| {
            let opens = vec![Opening::Reserve, Opening::Inward];
            let rule = RuleConfig { opens, ..RuleConfig::new("", Action::Allow) };
            signalbox_resources::Config { rules: vec![rule], ..signalbox_resources::Config::default() }
        };
        let mut rig = Rig::with(3, &policy, &|_, config| Config { border: true, ..config });
        let values =
            [NatfwValue::MsgId(5), NatfwValue::Age(1), NatfwValue::Filter(filter), NatfwValue::Scope(1, b"")];
        let mut data = Vec::new();
        NatfwMessage::compose(kind, &values, &mut data).unwrap();
        rig.carry(Packet { session: FIRST, flow, reverse: false, to: 1, from, hops: 1, data });
        let refused =
            |packet: &Packet| packet.results().iter().any(|result| result.status == NatfwStatus::POLICY);
        (rig.passes(1).len(), rig.seen.iter().any(refused))
    };
    let refused = (0, true);
    assert_eq!(ask(0, flow(3).reversed(), NatfwType::TRIGGER, filter(3)), refused);
    assert_eq!(ask(0, flow(3).reversed(), NatfwType::CREATE, back(3)), refused);
    assert_eq!(ask(2, flow(3), NatfwType::CREATE, filter(3)), refused);
    // The same requests for the own side.
    assert_eq!(ask(0, flow(3), NatfwType::TRIGGER, back(3)), (1, false));
    assert_eq!(ask(2, flow(3).reversed(), NatfwType::CREATE, back(3)).0, 1);
}
