//! EXTERNAL at firewalls, and who may reserve.

use signalbox_core::{Direction, Mri, PathCoupled, SessionId};
use signalbox_natfw::engine::{Config, Middlebox};
use signalbox_natfw::wire::{Bindings, DataTerminal, ExternalAddress, FlowInfo, Info, Message};

use crate::rig::{
    BEFORE, FAR, HOST, INSIDE, Kernel, OTHER, OUTSIDE, Rig, boxed, create, error, external, inward, loose,
    only, success, udp,
};

const CALL: SessionId = SessionId([8; 16]);

/// NATFW-3.7.2-05, NATFW-3.7.2-20, NATFW-3.7.2-21, NATFW-3.7.2-22, NATFW-3.7.2-27
#[test]
fn an_edge_firewall_answers_and_remembers() {
    let mut rig = Rig::edge_firewall();
    let before = [172, 16, 0, 1];
    let bindings = Some(Bindings::of(Some(9), &before));
    let answer = only(rig.by_inside(loose(HOST, FAR), &Message { bindings, ..external(1, 100, 5000) }));
    let address = Some(ExternalAddress { address: [10, 0, 1, 2].into(), port: Some(5000) });
    assert_eq!(answer.message(), Message { external: address, bindings, ..success(1, 100) });
    assert_eq!(answer.mri, loose(HOST, FAR).inverted());
    assert_eq!(rig.kernel, []);
}

/// NATFW-3.7.2-20, NATFW-4.2.4-03, NATFW-3.7.1-06
#[test]
fn an_edge_firewall_blocks_at_once() {
    let mut rig = Rig::edge_firewall();
    let deny = Message { efi: Some(FlowInfo::DENY), ..external(1, 100, 5000) };
    rig.slow = true;
    assert_eq!(rig.by_inside(loose(HOST, FAR), &deny), []);
    let rule = format!("deny 0.0.0.0/0 > {HOST} port 5000 proto 17");
    assert_eq!(rig.kernel, [Kernel::Open(rule, 100)]);
    assert_eq!(only(rig.opened()).message(), success(1, 100), "no external address");
    // The signaling for it is blocked too, even if it is for more than that.
    let answer = only(rig.in_session(CALL, OTHER, OUTSIDE, inward(), &create(7, 100)));
    assert_eq!(answer.message(), error(7, Info::POLICY_CONFLICT));
    rig.pass_secs(100);
    assert_eq!((rig.kernel.last(), rig.natfw.session_count()), (Some(&Kernel::Close), 0));
}

/// NATFW-3.7.1-06: a pair of ports is blocked, and one port: so is a request for a pair that has one of them.
#[test]
fn a_block_counts_for_each_port_of_a_pair() {
    let pair = |efi: FlowInfo| FlowInfo { sub_ports: 1, ..efi };
    for (deny, asked, efi, blocked) in [
        (pair(FlowInfo::DENY), 5001, FlowInfo::ALLOW, true),
        (pair(FlowInfo::DENY), 5001, pair(FlowInfo::ALLOW), true),
        (FlowInfo::DENY, 4999, pair(FlowInfo::ALLOW), true),
        (pair(FlowInfo::DENY), 5002, FlowInfo::ALLOW, false),
        (FlowInfo::DENY, 5001, pair(FlowInfo::ALLOW), false),
        (FlowInfo::DENY, 4999, FlowInfo::ALLOW, false),
    ] {
        let mut rig = Rig::edge_firewall();
        only(rig.by_inside(loose(HOST, FAR), &Message { efi: Some(deny), ..external(1, 100, 5000) }));
        let flow = Mri::PathCoupled(udp(FAR, 6000, HOST, asked));
        let request = Message { efi: Some(efi), ..create(7, 100) };
        let answer = only(rig.in_session(CALL, OTHER, OUTSIDE, flow, &request));
        assert_eq!(answer.message() == error(7, Info::POLICY_CONFLICT), blocked, "{deny:?} {asked} {efi:?}");
    }
}

/// NATFW-4.2.4-02: who announced itself is reached without a rule of the operator; others are not.
#[test]
fn an_announced_receiver_is_reached() {
    let mut rig = Rig::with_rules(Config { edge: true, ..boxed(Middlebox::Firewall) }, |_| {});
    only(rig.by_inside(loose(HOST, FAR), &external(1, 100, 5000)));
    let other = Mri::PathCoupled(udp(FAR, 6000, HOST, 5001));
    let answer = only(rig.in_session(CALL, OTHER, OUTSIDE, other, &create(7, 100)));
    assert_eq!(answer.info(), Info::AUTHORIZATION);
    let sent = only(rig.in_session(CALL, OTHER, OUTSIDE, inward(), &create(7, 100)));
    assert_eq!((sent.message(), sent.mri), (create(7, 100), inward()));
    rig.answer(&sent, &success(7, 100));
    assert_eq!(rig.holes[0].1.to_string(), format!("allow {FAR} port 6000 > {HOST} port 5000 proto 17"));
}

/// NATFW-3.6-03, NATFW-5.3-01: a host reserves for itself only, and nothing for everything.
#[test]
fn a_reservation_is_for_the_host_that_asks() {
    let mut rig = Rig::with_rules(Config { edge: true, ..boxed(Middlebox::Firewall) }, |_| {});
    let answer = only(rig.by_inside(loose("10.0.1.3", FAR), &external(1, 100, 5000)));
    assert_eq!(answer.message(), error(1, Info::AUTHORIZATION));
    assert_eq!(rig.resources.counters().refused_policy, 1);
    for (terminal, info) in [
        (DataTerminal { transport: None, sender: ([0; 4].into(), 0) }, Info::PLAIN_IP),
        (DataTerminal { transport: Some((6, None)), sender: ([0; 4].into(), 0) }, Info::DESTINATION_PORTS),
    ] {
        let request = Message { terminal: Some(terminal), ..external(1, 100, 1) };
        assert_eq!(only(rig.by_inside(loose(HOST, FAR), &request)).info(), info);
    }
    assert_eq!(rig.natfw.session_count(), 0);
}

/// Rules of the operator decide first, in their order, and limit what one requester gets.
#[test]
fn rules_decide_who_opens_what() {
    use signalbox_resources::config::{Action, Opening, RuleConfig};
    let rule =
        |name: &str, action| RuleConfig { opens: vec![Opening::Inward], ..RuleConfig::new(name, action) };
    let mut rig = Rig::with_rules(boxed(Middlebox::Firewall), |rules| {
        rules.rules = vec![
            RuleConfig { destination: vec!["10.0.1.3".parse().unwrap()], ..rule("printer", Action::Deny) },
            RuleConfig {
                from: vec!["203.0.113.0/24".parse().unwrap()],
                max_reservations: Some(2),
                max_lifetime: Some("40s".parse().unwrap()),
                ..rule("partners", Action::Allow)
            },
            // Without `opens` it is for reservations of bandwidth.
            RuleConfig::new("all", Action::Allow),
        ];
    });
    let mut ask = |session: u8, dst: &str| {
        let mri = Mri::PathCoupled(udp(FAR, 6000, dst, session.into()));
        only(rig.in_session(SessionId([session; 16]), OTHER, OUTSIDE, mri, &create(7, 100)))
    };
    assert_eq!(ask(1, "10.0.1.3").info(), Info::AUTHORIZATION);
    assert_eq!(ask(2, HOST).message(), create(7, 40), "the rule limits the lifetime");
    assert_eq!(ask(3, HOST).message(), create(7, 40));
    assert_eq!(ask(4, HOST).info(), Info::AUTHORIZATION, "the rule limits the number");
    rig.pass_secs(40);
    assert_eq!(rig.resources.passage_count(), 0);
    let mri = Mri::PathCoupled(udp(FAR, 6000, HOST, 9));
    let sent = only(rig.in_session(CALL, OTHER, OUTSIDE, mri, &create(7, 100)));
    assert_eq!(sent.message(), create(7, 40), "room again");
}

/// NATFW-3.7.2-19
#[test]
fn an_inner_firewall_sends_an_external_on() {
    let mut rig = Rig::firewall();
    let sent = only(rig.by_inside(loose(HOST, FAR), &external(1, 100, 5000)));
    assert_eq!((sent.message(), sent.mri), (external(1, 100, 5000), loose(HOST, FAR)));
    only(rig.answer(&sent, &success(1, 80)));
    assert_eq!((rig.kernel.len(), rig.natfw.session_count()), (0, 1));
    rig.pass_secs(80);
    assert_eq!(rig.natfw.session_count(), 0);
}

/// NATFW-3.7.2-23
#[test]
fn an_external_that_meets_no_edge_is_refused() {
    let mut rig = Rig::host();
    rig.end = true;
    let answer = only(rig.by_inside(loose(HOST, FAR), &external(1, 100, 5000)));
    assert_eq!(answer.message(), error(1, Info::NO_EDGE));
    let mut rig = Rig::firewall();
    let sent = only(rig.by_inside(loose(HOST, FAR), &external(1, 100, 5000)));
    let answer = only(rig.failed(&sent, signalbox_core::service::SendError::NoNextNode));
    assert_eq!(answer.message(), error(1, Info::NO_EDGE));
}

/// An EXTERNAL along the reverse path of the data, and one in the wrong direction.
#[test]
fn a_path_coupled_external_travels_upstream() {
    let mut rig = Rig::edge_firewall();
    let flow = PathCoupled { direction: Direction::Upstream, ..udp(FAR, 6000, HOST, 5000) };
    let answer = only(rig.by_inside(Mri::PathCoupled(flow), &external(1, 100, 5000)));
    assert_eq!(answer.message(), success(1, 100), "no external address: the receiver has its own");
    let wrong = Mri::PathCoupled(udp(FAR, 6000, HOST, 5000));
    let answer = only(rig.in_session(CALL, BEFORE, INSIDE, wrong, &external(1, 100, 5000)));
    assert_eq!(answer.info(), Info::POLICY_CONFLICT);
}

/// A path cannot be filled with reservations that differ by nothing that is looked up.
#[test]
fn reservations_that_are_alike_are_limited() {
    let mut rig = Rig::edge_firewall();
    for n in 1..=17u8 {
        let terminal =
            DataTerminal { sender: ([203, 0, 113, n].into(), 32), ..DataTerminal::receiver(17, 5000) };
        let request = Message { terminal: Some(terminal), ..external(1, 100, 5000) };
        let sent = only(rig.in_session(SessionId([n; 16]), BEFORE, INSIDE, loose(HOST, FAR), &request));
        let expected = if n <= 16 { Info::PROCESSED } else { Info::NO_RESOURCES };
        assert_eq!(sent.info(), expected, "{n}");
    }
}
