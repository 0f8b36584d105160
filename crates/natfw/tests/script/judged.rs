//! Everything that opens is judged by the rules: both ports of a pair, what a NAT makes of a flow, and what an edge opens by
//! itself, and in each direction.

use std::net::IpAddr;

use signalbox_core::{Direction, Mri, PathCoupled, SessionId, Time};
use signalbox_natfw::engine::{Config, Middlebox, OpenBits};
use signalbox_natfw::wire::{DataTerminal, FlowInfo, Info, Message};
use signalbox_resources::config::{Action, Opening, RuleConfig};

use crate::rig::{
    BEFORE, EDGE, FAR, HOST, INSIDE, OTHER, OUTSIDE, Rig, boxed, create, external, inward, loose, only,
    success, udp,
};

const CALL: SessionId = SessionId([8; 16]);
const PAIR: FlowInfo = FlowInfo { sub_ports: 1, ..FlowInfo::ALLOW };

/// A rule about UDP to these ports.
fn rule(action: Action, opens: Opening, ports: &str) -> RuleConfig {
    RuleConfig {
        opens: vec![opens],
        protocol: vec![17],
        ports: vec![ports.parse().unwrap()],
        ..RuleConfig::new("", action)
    }
}

fn with_rules(config: Config, rules: Vec<RuleConfig>) -> Rig {
    Rig::with_rules(config, |config| config.rules = rules)
}

/// T25 (SEC-T25-01): the next port is refused where a rule denies it, and where no rule allows it.
#[test]
fn both_ports_of_a_pair_are_judged() {
    let deny = rule(Action::Deny, Opening::Inward, "5900-5998");
    let allow = rule(Action::Allow, Opening::Inward, "5000-5899");
    for rules in [vec![deny.clone(), allow.clone()], vec![allow.clone()]] {
        for (port, efi, granted) in [
            (5899, FlowInfo::ALLOW, true),
            (5898, PAIR, true),
            (5899, PAIR, false),
            (4999, PAIR, false),
            (5900, FlowInfo::ALLOW, false),
        ] {
            let mut rig = with_rules(boxed(Middlebox::Firewall), rules.clone());
            let request = Message { efi: Some(efi), ..create(7, 100) };
            let sent = only(rig.by_outside(Mri::PathCoupled(udp(FAR, 6000, HOST, port)), &request));
            assert_eq!(sent.message().info.is_none(), granted, "{port} {efi:?}");
            if !granted {
                assert_eq!(sent.info(), Info::AUTHORIZATION);
            }
        }
    }
}

/// T25: a request that changes to a pair of ports is judged like the first one. The former rule stays.
#[test]
fn a_change_to_a_pair_is_judged() {
    let mut rig = with_rules(boxed(Middlebox::Firewall), vec![rule(Action::Allow, Opening::Inward, "5899")]);
    let mri = Mri::PathCoupled(udp(FAR, 6000, HOST, 5899));
    let sent = only(rig.by_outside(mri, &create(7, 100)));
    only(rig.answer(&sent, &success(7, 100)));
    let before = rig.holes.clone();
    let answer = only(rig.by_outside(mri, &Message { efi: Some(PAIR), ..create(8, 100) }));
    assert_eq!((answer.info(), &rig.holes), (Info::AUTHORIZATION, &before));
}

/// T25: a refresh changes nothing, but the rule may be for an hour that is over.
#[test]
fn a_refresh_is_judged_by_the_hour() {
    let hours = Some("00:00-01:00".parse().unwrap());
    let first_hour = RuleConfig { hours, ..rule(Action::Allow, Opening::Inward, "5899") };
    let mut rig = with_rules(boxed(Middlebox::Firewall), vec![first_hour]);
    rig.now = Time::from_secs(3590);
    let mri = Mri::PathCoupled(udp(FAR, 6000, HOST, 5899));
    let sent = only(rig.by_outside(mri, &create(7, 100)));
    only(rig.answer(&sent, &success(7, 100)));
    rig.now = Time::from_secs(3599);
    let sent = only(rig.by_outside(mri, &create(8, 100)));
    only(rig.answer(&sent, &success(8, 100)));
    assert_eq!(rig.holes.len(), 1);
    rig.now = Time::from_secs(3600);
    let sent = rig.by_outside(mri, &create(9, 100));
    assert!(sent.iter().any(|sent| sent.info_of() == Some(Info::AUTHORIZATION)), "{sent:?}");
    assert_eq!((rig.holes.len(), rig.resources.passage_count(), rig.natfw.session_count()), (0, 0, 0));
}

/// T25: at a reload the whole pair is judged again.
#[test]
fn a_pair_ends_with_rules_that_deny_its_second_port() {
    let mut rig =
        with_rules(boxed(Middlebox::Firewall), vec![rule(Action::Allow, Opening::Inward, "5000-5999")]);
    let request = Message { efi: Some(PAIR), ..create(7, 100) };
    let sent = only(rig.by_outside(Mri::PathCoupled(udp(FAR, 6000, HOST, 5899)), &request));
    only(rig.answer(&sent, &success(7, 100)));
    assert_eq!(rig.holes.len(), 1);
    let rules = signalbox_resources::Config {
        rules: vec![rule(Action::Allow, Opening::Inward, "5000-5899")],
        ..Default::default()
    };
    rig.resources.reload(rig.now, rules).unwrap();
    rig.judge();
    assert_eq!((rig.holes.len(), rig.resources.passage_count()), (0, 0));
}

/// T25: EXTERNAL for a pair of ports, to be reached or to block.
#[test]
fn a_pair_of_a_receiver_is_judged() {
    for (efi, opening) in
        [(PAIR, Opening::Reserve), (FlowInfo { sub_ports: 1, ..FlowInfo::DENY }, Opening::Block)]
    {
        for (port, granted) in [(5898, true), (5899, false)] {
            let config = Config { edge: true, ..boxed(Middlebox::Firewall) };
            let mut rig = with_rules(config, vec![rule(Action::Deny, opening, "5900-5998")]);
            let request = Message { efi: Some(efi), ..external(1, 100, port) };
            let answer = only(rig.by_inside(loose(HOST, FAR), &request));
            let expected = if granted { Info::PROCESSED } else { Info::AUTHORIZATION };
            assert_eq!(answer.info(), expected, "{opening} {port}");
        }
    }
}

/// T31: an EXTERNAL that goes against its flow is of the receiver. A trusted neighbor speaks for that one, and not for the sender that
/// the flow names.
#[test]
fn who_asks_against_the_flow_is_its_receiver() {
    for (from, granted) in [(FAR, true), (HOST, false)] {
        let none = RuleConfig {
            opens: vec![Opening::Reserve],
            from: vec![format!("{from}/32").parse().unwrap()],
            max_reservations: Some(0),
            ..RuleConfig::new("none", Action::Allow)
        };
        let config = Config { edge: true, ..boxed(Middlebox::Firewall) };
        let mut rig = Rig::with_rules(config, |config| {
            config.rules = vec![none];
            config.trusted = vec!["10.0.0.0/8".parse().unwrap()];
        });
        let flow = PathCoupled { direction: Direction::Upstream, ..udp(FAR, 6000, HOST, 5899) };
        let answer = only(rig.by_inside(Mri::PathCoupled(flow), &external(1, 100, 5899)));
        let expected = if granted { Info::PROCESSED } else { Info::AUTHORIZATION };
        assert_eq!(answer.info(), expected, "{from}");
    }
}

/// An EXTERNAL in proxy mode for senders with this address.
fn proxied(from: &str, efi: FlowInfo, port: u16) -> Message<'static> {
    let sender = match from.parse().unwrap() {
        IpAddr::V4(address) => (address, if from == "0.0.0.0" { 0 } else { 32 }),
        IpAddr::V6(_) => panic!("the object has no IPv6 form"),
    };
    let terminal = DataTerminal { sender, ..DataTerminal::receiver(17, port) };
    let request = external(1, 100, port);
    Message { proxy: true, nonce: Some(1), efi: Some(efi), terminal: Some(terminal), ..request }
}

/// What an edge opens for a receiver in proxy mode is a flow to the inside, and the rules about such flows count.
#[test]
fn what_an_edge_opens_by_itself_is_judged() {
    for middlebox in [Middlebox::Firewall, Middlebox::Nat] {
        for (port, efi, granted) in
            [(5899, FlowInfo::ALLOW, true), (5900, FlowInfo::ALLOW, false), (5899, PAIR, false)]
        {
            let config = Config { edge: true, ..boxed(middlebox) };
            let mut rig = with_rules(config, vec![rule(Action::Deny, Opening::Inward, "5900-5998")]);
            let request = proxied(FAR, efi, port);
            let sent = rig.by_inside(loose(HOST, FAR), &request);
            if !granted {
                assert_eq!(only(sent).info(), Info::AUTHORIZATION, "{middlebox:?} {port} {efi:?}");
                assert_eq!((rig.natfw.session_count(), rig.resources.passage_count()), (0, 0));
                assert_eq!(rig.natfw.tables()[1].size, 0, "the port is free");
                continue;
            }
            let create = sent.last().unwrap();
            rig.answer(create, &success(create.message().msn.unwrap(), 100));
            assert_eq!((rig.holes.len(), rig.resources.passage_count()), (1, 2));
        }
    }
}

/// At a reload, too: the EXTERNAL ends with what it opened.
#[test]
fn what_an_edge_opened_ends_with_its_rules() {
    let mut rig = with_rules(Config { edge: true, ..boxed(Middlebox::Nat) }, Vec::new());
    let request = proxied(FAR, FlowInfo::ALLOW, 5900);
    let sent = rig.by_inside(loose(HOST, FAR), &request);
    let create = sent.last().unwrap();
    rig.answer(create, &success(create.message().msn.unwrap(), 100));
    assert_eq!(rig.holes.len(), 1);
    let rules = signalbox_resources::Config {
        rules: vec![rule(Action::Deny, Opening::Inward, "5900-5998")],
        ..Default::default()
    };
    rig.resources.reload(rig.now, rules).unwrap();
    rig.judge();
    assert_eq!((rig.holes.len(), rig.natfw.session_count(), rig.resources.passage_count()), (0, 0, 0));
}

/// A flow through a NAT is judged with the host and the port behind it as well as with the external ones.
#[test]
fn a_translated_flow_is_judged_in_both_forms() {
    let reserve = RuleConfig { opens: vec![Opening::Reserve], ..RuleConfig::new("", Action::Allow) };
    let deny = |destination: &str| RuleConfig {
        opens: vec![Opening::Inward],
        destination: vec![destination.parse().unwrap()],
        ..RuleConfig::new("", Action::Deny)
    };
    for (rule, granted) in [
        (deny(HOST), false),
        (deny(EDGE), false),
        (deny("10.0.1.3"), true),
        (rule(Action::Deny, Opening::Inward, "20230"), false),
        (rule(Action::Deny, Opening::Inward, "20231"), true),
    ] {
        let mut rig = with_rules(Config { edge: true, ..boxed(Middlebox::Nat) }, vec![reserve.clone(), rule]);
        let answer = only(rig.by_inside(loose(HOST, FAR), &external(1, 1000, 20230)));
        let port = answer.message().external.unwrap().port.unwrap();
        rig.end = true;
        let mri = Mri::PathCoupled(udp(FAR, 6000, EDGE, port));
        let sent = only(rig.in_session(CALL, OTHER, OUTSIDE, mri, &create(7, 100)));
        assert_eq!(sent.message().info.is_none(), granted);
    }
}

/// A host opens for its own address, not for a prefix that begins with it.
#[test]
fn a_prefix_is_not_a_hosts_own() {
    let open_bits = OpenBits { source: 8, destination: 8 };
    let wide = || Config { open_bits, edge: true, ..boxed(Middlebox::Firewall) };
    let flow = udp(HOST, 5000, FAR, 6000);
    for (src_prefix, granted) in [(32, true), (24, false)] {
        let mut rig = with_rules(wide(), Vec::new());
        let mri = Mri::PathCoupled(PathCoupled { src_prefix, ..flow });
        let sent = only(rig.by_inside(mri, &create(7, 100)));
        assert_eq!(sent.message().info.is_none(), granted, "{src_prefix}");
    }
    // Nor is an invitation of one host one of its neighbors.
    for (dst_prefix, granted) in [(32, true), (24, false)] {
        let mut rig = with_rules(wide(), Vec::new());
        only(rig.receive(BEFORE, INSIDE, loose(HOST, FAR), &external(1, 100, 5000)));
        let Mri::PathCoupled(path) = inward() else { unreachable!() };
        let mri = Mri::PathCoupled(PathCoupled { dst_prefix, ..path });
        let sent = only(rig.in_session(CALL, OTHER, OUTSIDE, mri, &create(7, 100)));
        assert_eq!(sent.message().info.is_none(), granted, "{dst_prefix}");
    }
}

/// Another host inside.
const OTHER_HOST: &str = "10.0.9.3";

/// T29 (SEC-T29-01): from the inside to the inside nothing opens without a rule: not for a host's own address, in no proxy mode, and not
/// because the receiver waits for it. Without a route the flow is not known to leave the inside.
#[test]
fn inside_to_inside_needs_a_rule() {
    for middlebox in [Middlebox::Firewall, Middlebox::Nat] {
        for (rules, routes, granted) in [
            (Vec::new(), true, false),
            (vec![rule(Action::Allow, Opening::Outward, "6000")], true, false),
            (vec![rule(Action::Allow, Opening::Inward, "6000")], true, false),
            (vec![rule(Action::Allow, Opening::Between, "6000")], true, true),
            (Vec::new(), false, false),
        ] {
            for proxy in [false, true] {
                let mut rig = with_rules(Config { edge: true, ..boxed(middlebox) }, rules.clone());
                rig.routes = routes;
                let nonce = proxy.then_some(1);
                let request = Message { proxy, nonce, ..create(7, 100) };
                let mri = Mri::PathCoupled(udp(HOST, 5000, OTHER_HOST, 6000));
                let sent = rig.by_inside(mri, &request);
                if granted {
                    assert_ne!(sent[0].info_of(), Some(Info::AUTHORIZATION), "{middlebox:?}");
                } else {
                    assert_eq!(only(sent).info_of(), Some(Info::AUTHORIZATION), "{middlebox:?} {proxy}");
                    assert_eq!((rig.natfw.session_count(), rig.resources.passage_count()), (0, 0));
                }
            }
        }
    }
    // To the outside a host still opens for its own address.
    let mut rig = with_rules(boxed(Middlebox::Firewall), Vec::new());
    let mri = Mri::PathCoupled(udp(HOST, 5000, FAR, 6000));
    assert_eq!(only(rig.by_inside(mri, &create(7, 100))).info_of(), None);
}

/// T29: who waits for senders outside does not open the way from the inside.
#[test]
fn an_invitation_is_not_for_the_inside() {
    for middlebox in [Middlebox::Firewall, Middlebox::Nat] {
        let reserve = RuleConfig { opens: vec![Opening::Reserve], ..RuleConfig::new("", Action::Allow) };
        let mut rig = with_rules(Config { edge: true, ..boxed(middlebox) }, vec![reserve]);
        let answer = only(rig.by_inside(loose(OTHER_HOST, FAR), &external(1, 1000, 6000)));
        let at = answer.message().external.unwrap();
        rig.end = middlebox == Middlebox::Nat;
        let flow = udp(HOST, 5000, &at.address.to_string(), at.port.unwrap());
        let mri = Mri::PathCoupled(flow);
        let sent = only(rig.in_session(CALL, OTHER, INSIDE, mri, &create(7, 100)));
        assert_eq!(sent.info_of(), Some(Info::AUTHORIZATION), "{middlebox:?}");
        let sent = only(rig.in_session(
            SessionId([9; 16]),
            OTHER,
            OUTSIDE,
            Mri::PathCoupled(PathCoupled { src: FAR.parse().unwrap(), ..flow }),
            &create(7, 100),
        ));
        assert_eq!(sent.info_of(), None, "{middlebox:?}");
    }
}

/// T29: nor does the receiver itself, in proxy mode, for a sender inside or for all senders.
#[test]
fn an_edge_opens_for_senders_inside_by_a_rule_only() {
    let between = RuleConfig { opens: vec![Opening::Between], ..RuleConfig::new("", Action::Allow) };
    for (from, rules, granted) in [
        (FAR, Vec::new(), true),
        (OTHER_HOST, Vec::new(), false),
        ("0.0.0.0", Vec::new(), false),
        (OTHER_HOST, vec![between.clone()], true),
        ("0.0.0.0", vec![between], true),
    ] {
        for middlebox in [Middlebox::Firewall, Middlebox::Nat] {
            let mut rig = with_rules(Config { edge: true, ..boxed(middlebox) }, rules.clone());
            let sent = rig.by_inside(loose(HOST, FAR), &proxied(from, FlowInfo::ALLOW, 6000));
            assert_eq!(sent[0].info() == Info::PROCESSED, granted, "{middlebox:?} {from}");
        }
    }
}
