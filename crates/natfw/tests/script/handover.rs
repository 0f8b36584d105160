//! A planned restart and a crash: what a node leaves, and what the next one does with it.

use std::time::Duration;

use signalbox_core::handover::Entries;
use signalbox_core::ports::Binding;
use signalbox_core::service::RecvMessage;
use signalbox_core::{Mri, SessionId};
use signalbox_natfw::engine::{Config, Input, Middlebox, State, left_binding};
use signalbox_natfw::wire::{FlowInfo, Info, Message};
use signalbox_resources::config::{Action, Opening, RuleConfig};
use signalbox_resources::decision::Outcome;

use crate::rig::{
    BEFORE, EDGE, FAR, HOST, INSIDE, Kernel, OTHER, OUTSIDE, Rig, SESSION, addr, boxed, create, error,
    external, flow, loose, octets, only, success, udp,
};

const CALL: SessionId = SessionId([8; 16]);
const TOWARDS: &str = "198.51.100.1";

fn nat() -> Config {
    Config { edge: true, ..boxed(Middlebox::Nat) }
}

/// What the node leaves, as many entries as are expected.
fn left(rig: &Rig, count: usize) -> Entries {
    let mut entries = Entries::default();
    rig.natfw.hand_over(rig.now, &mut entries);
    let mut all = entries.clone();
    assert_eq!(std::iter::from_fn(|| all.take().map(|_| ())).count(), count);
    entries
}

/// The node that starts in the place of another one.
fn successor(entries: Entries, mut rig: Rig) -> Rig {
    rig.resources.record_decisions(true);
    assert_eq!(rig.input(Input::Handover(entries)), [], "no message leaves because of it");
    rig
}

/// A NAT whose host has a flow, and the external port of that. Another host had the first port that is given.
fn with_flow(lifetime: u32) -> (Rig, u16) {
    let mut rig = Rig::edge_nat();
    let other = Mri::PathCoupled(udp("10.0.1.3", 5000, FAR, 6000));
    only(rig.in_session(CALL, OTHER, INSIDE, other, &create(1, 100)));
    let sent = only(rig.by_inside(flow(), &create(7, lifetime)));
    only(rig.answer(&sent, &success(7, lifetime)));
    let port = port_of(&sent.mri);
    rig.in_session(CALL, OTHER, INSIDE, other, &create(2, 0));
    assert_eq!((rig.natfw.session_count(), rig.holes.len()), (1, 1));
    (rig, port)
}

fn port_of(mri: &Mri) -> u16 {
    let Mri::PathCoupled(flow) = mri else { panic!("{mri}") };
    flow.src_port.unwrap()
}

fn decisions(rig: &mut Rig) -> Vec<(Outcome, String)> {
    let next = || rig.resources.next_decision().map(|one| (one.outcome, one.why.to_string()));
    std::iter::from_fn(next).collect()
}

/// O08: the binding stands at once, with its port and the time that is left. The request that the host repeats is answered like a
/// refresh, and the host has the session again.
#[test]
fn a_binding_stands_with_its_port_after_a_planned_restart() {
    let (mut rig, port) = with_flow(100);
    rig.pass_secs(40);
    let id = rig.holes[0].0;
    assert!(rig.natfw.leaves(id));
    let mut rig = successor(left(&rig, 1), Rig::edge_nat());
    let rule = format!("allow 10.0.1.2 port 5000 > 203.0.113.9 port 6000 proto 17 from {EDGE} port {port}");
    assert_eq!(rig.kernel, [Kernel::Open(rule.clone(), 60)]);
    assert_eq!(decisions(&mut rig), [(Outcome::Restored, "allowed".to_owned())]);
    let view = rig.natfw.view_of(rig.now, SESSION).unwrap();
    assert_eq!((view.state, view.active, view.msn), (State::Established, true, 7));
    assert_eq!(rig.natfw.counters().restored, 1);
    // GIST gives the host another handle than before.
    rig.kernel.clear();
    let sent = only(rig.receive(OTHER, INSIDE, flow(), &create(8, 100)));
    assert_eq!(port_of(&sent.mri), port);
    let answer = only(rig.answer(&sent, &success(8, 100)));
    assert_eq!((answer.info(), answer.mri), (Info::PROCESSED, flow().inverted()));
    assert_eq!(rig.kernel, [Kernel::Open(rule, 100)]);
    assert_eq!(rig.natfw.counters().refreshed, 1);
    // From now on the session is of that handle.
    rig.receive(BEFORE, INSIDE, flow(), &create(9, 0));
    assert_eq!(rig.natfw.session_count(), 1);
    rig.receive(OTHER, INSIDE, flow(), &create(9, 0));
    assert_eq!((rig.natfw.session_count(), rig.holes.len()), (0, 0));
}

/// Without a refresh it ends at the time when it would have ended without the restart.
#[test]
fn what_nobody_refreshes_ends_at_its_time() {
    let (rig, _) = with_flow(100);
    let mut rig = successor(left(&rig, 1), Rig::edge_nat());
    rig.pass_secs(99);
    assert_eq!(rig.natfw.session_count(), 1);
    rig.pass_secs(2);
    assert_eq!((rig.natfw.session_count(), rig.holes.len()), (0, 0));
    // What is over when the node ends is not left.
    let (mut late, _) = with_flow(10);
    late.now = late.now + Duration::from_secs(10);
    left(&late, 0);
}

/// Before the first refresh the session is of whom it was: the address where the peer answered. It may change and delete it, and
/// nobody else may. Also an old number does not count.
#[test]
fn a_session_is_of_its_former_peer() {
    let to_other = Mri::PathCoupled(udp(HOST, 5000, FAR, 6002));
    for (peer, msn, mri, sessions, answered) in [
        (HOST, 8, flow(), 0, false),
        ("10.0.1.3", 8, flow(), 1, false),
        (HOST, 7, flow(), 1, false),
        ("10.0.1.3", 8, to_other, 1, true),
    ] {
        let (rig, _) = with_flow(100);
        let mut rig = successor(left(&rig, 1), Rig::edge_nat());
        let request = create(msn, if mri == flow() { 0 } else { 100 });
        let octets = octets(&request);
        let received = rig.received(OTHER, INSIDE, mri, &octets);
        let sent = rig.indicate(RecvMessage { peer_address: Some(addr(peer)), ..received });
        assert_eq!(rig.natfw.session_count(), sessions, "{peer} {msn}");
        assert_eq!(
            sent.iter().any(|one| one.info_of() == Some(Info::AUTHORIZATION)),
            answered,
            "{peer} {msn}"
        );
        assert_eq!(u32::try_from(rig.holes.len()).unwrap(), sessions);
    }
}

/// The present rules judge: what they refuse ends, and the log has who it was and which rule.
#[test]
fn what_the_present_rules_refuse_ends() {
    let (rig, _) = with_flow(100);
    let deny = |rules: &mut signalbox_resources::Config| {
        let deny = RuleConfig { opens: vec![Opening::Outward], ..RuleConfig::new("closed", Action::Deny) };
        rules.rules = vec![deny];
        rules.trusted = vec!["10.0.0.0/8".parse().unwrap()];
    };
    let entries = left(&rig, 1);
    let mut refusing = successor(entries.clone(), Rig::with_rules(nat(), deny));
    assert_eq!((refusing.natfw.session_count(), &refusing.kernel[..]), (0, &[][..]));
    let decision = refusing.resources.next_decision().unwrap();
    assert_eq!((decision.outcome, decision.session), (Outcome::Lost, Some(SESSION)));
    assert!(decision.why.to_string().contains("closed"), "{}", decision.why);
    assert_eq!(decision.requester.to_string(), format!("{HOST} (handshake)"));
    assert_eq!(refusing.natfw.counters().not_restored, 1);
    // Another role, another range of ports, another side.
    let ports = Config { first_port: 2000, last_port: 2999, ..nat() };
    let sides = Config { inside: vec!["guest".to_owned()], ..nat() };
    for config in [boxed(Middlebox::Firewall), ports, sides] {
        let mut other = successor(entries.clone(), Rig::with(config));
        assert_eq!((other.natfw.session_count(), &other.kernel[..]), (0, &[][..]));
        assert_eq!(
            decisions(&mut other).iter().map(|(outcome, _)| *outcome).collect::<Vec<_>>(),
            [Outcome::Lost]
        );
    }
}

/// A host that waits and the flows to it: the reservation comes first, so that the flow from outside finds it.
#[test]
fn a_reserved_port_and_its_flows_stand() {
    let mut rig = Rig::edge_nat();
    let other = loose("10.0.1.3", TOWARDS);
    only(rig.in_session(SessionId([9; 16]), OTHER, INSIDE, other, &external(1, 100, 20_230)));
    let answer = only(rig.by_inside(loose(HOST, TOWARDS), &external(1, 1000, 20_230)));
    let port = answer.message().external.unwrap().port.unwrap();
    rig.in_session(SessionId([9; 16]), OTHER, INSIDE, other, &external(2, 0, 20_230));
    rig.end = true;
    let towards = Mri::PathCoupled(udp(FAR, 6000, EDGE, port));
    let sent = only(rig.in_session(CALL, OTHER, OUTSIDE, towards, &create(7, 100)));
    only(rig.answer(&sent, &success(7, 100)));

    let mut rig = successor(left(&rig, 2), Rig::edge_nat());
    let rule = format!("allow 203.0.113.9 port 6000 > {EDGE} port {port} proto 17 to {HOST} port 20230");
    assert_eq!(rig.kernel, [Kernel::Open(rule, 100)]);
    assert_eq!(rig.natfw.session_count(), 2);
    let again = only(rig.receive(OTHER, INSIDE, loose(HOST, TOWARDS), &external(2, 1000, 20_230)));
    assert_eq!(again.message().external.unwrap().port, Some(port));
    rig.end = true;
    let sent = only(rig.in_session(CALL, BEFORE, OUTSIDE, towards, &create(8, 100)));
    assert_eq!(only(rig.answer(&sent, &success(8, 100))).info(), Info::PROCESSED);
    // The reservation may be gone while a flow stands: it is not taken over then.
    let mut rig = Rig::edge_nat();
    let answer = only(rig.by_inside(loose(HOST, TOWARDS), &external(1, 1000, 20_230)));
    let port = answer.message().external.unwrap().port.unwrap();
    rig.end = true;
    let towards = Mri::PathCoupled(udp(FAR, 6000, EDGE, port));
    let sent = only(rig.in_session(CALL, OTHER, OUTSIDE, towards, &create(7, 100)));
    only(rig.answer(&sent, &success(7, 100)));
    rig.end = false;
    rig.by_inside(loose(HOST, TOWARDS), &external(2, 0, 20_230));
    let mut rig = successor(left(&rig, 1), Rig::edge_nat());
    assert_eq!((rig.natfw.session_count(), rig.holes.len()), (0, 0));
    assert_eq!(decisions(&mut rig)[0].0, Outcome::Lost);
}

/// A firewall leaves what it let in, and what it blocks.
#[test]
fn a_firewall_leaves_passages_and_blocks() {
    let mut rig = Rig::edge_firewall();
    rig.established(100);
    let block = Message { efi: Some(FlowInfo::DENY), ..external(1, 300, 20_230) };
    only(rig.in_session(CALL, BEFORE, INSIDE, loose(HOST, TOWARDS), &block));
    let rules: Vec<String> = rig.holes.iter().map(|(_, pinhole)| pinhole.to_string()).collect();
    let rig = successor(left(&rig, 2), Rig::edge_firewall());
    let mut again: Vec<String> = rig.holes.iter().map(|(_, pinhole)| pinhole.to_string()).collect();
    again.reverse();
    assert_eq!(again, rules);
}

/// What is not granted yet, and what a user of the node asked for, is not left. Entries of nobody are no fault.
#[test]
fn only_what_stands_is_left() {
    let mut rig = Rig::edge_nat();
    rig.by_inside(flow(), &create(7, 100));
    left(&rig, 0);
    let mut entries = Entries::default();
    assert!([&b""[..], b"\x01", b"\x02abc", b"\xff"].iter().all(|entry| entries.push(entry)));
    let rig = successor(entries, Rig::edge_nat());
    assert_eq!((rig.natfw.session_count(), rig.holes.len()), (0, 0));
}

/// The kernel refuses what stood: the session ends.
#[test]
fn a_session_that_the_kernel_refuses_ends() {
    let (rig, _) = with_flow(100);
    let mut next = Rig::edge_nat();
    next.answer = Err(signalbox_core::pinhole::PinholeError::Conflict);
    next.natfw.handle(next.now, Input::Handover(left(&rig, 1)), &mut next.resources);
    next.input(Input::Timer);
    assert_eq!((next.natfw.session_count(), next.natfw.counters().kernel_refused), (0, 1));
}

/// O08, a crash: the kernel has bindings of the node before. Their ports are kept for their ends inside and for nobody else, until
/// the kernel has removed the bindings.
#[test]
fn ports_that_a_crash_left_are_kept_for_their_ends() {
    let binding = |host: &str, port, external| {
        let binding = Binding { address: addr(host), protocol: 17, port, external };
        left_binding(&binding, Duration::from_millis(59_500))
    };
    let config = Config { first_port: 40_000, last_port: 40_007, ..nat() };
    let mut entries = Entries::default();
    for entry in [
        binding(HOST, 5000, 40_003),
        binding("10.0.1.3", 7000, 40_004),
        binding("10.0.1.3", 7001, 40_005),
        binding("10.0.1.4", 1, 40_003),
        // Neither a port of this NAT nor one that a publication may wish for.
        binding("10.0.1.4", 2, 1_023),
    ] {
        assert!(entries.push(&entry));
    }
    let mut rig = successor(entries, Rig::with(config));
    assert_eq!((rig.natfw.session_count(), rig.natfw.tables()[1].size), (0, 3));
    // Strangers get other ports, and none when no other one is left.
    let mut given = Vec::new();
    for host in 25..=32u8 {
        let mri = Mri::PathCoupled(udp(&format!("10.0.1.{host}"), 5000, FAR, 6000));
        let sent = only(rig.in_session(SessionId([host; 16]), OTHER, INSIDE, mri, &create(1, 10)));
        match sent.info_of() {
            None => given.push(port_of(&sent.mri)),
            Some(info) => assert_eq!(info, Info::NO_RESOURCES),
        }
    }
    assert!(given.iter().all(|port| ![40_003, 40_004, 40_005].contains(port)), "{given:?}");
    assert_eq!(given.len(), 5);
    // The same end gets its port, in another session too, and a pair its two ports.
    let sent = only(rig.by_inside(flow(), &create(1, 1000)));
    assert_eq!(port_of(&sent.mri), 40_003);
    let pair = Message { efi: Some(FlowInfo { sub_ports: 1, ..FlowInfo::ALLOW }), ..create(1, 1000) };
    let mri = Mri::PathCoupled(udp("10.0.1.3", 7000, FAR, 6000));
    let sent = only(rig.in_session(CALL, OTHER, INSIDE, mri, &pair));
    assert_eq!(port_of(&sent.mri), 40_004);
    rig.pass_secs(62);
    assert_eq!(rig.natfw.tables()[1].size, 2, "what nobody asked for is free");
}

/// Ports that were kept are given to others later.
#[test]
fn kept_ports_come_back() {
    let mut entries = Entries::default();
    let binding = Binding { address: addr(HOST), protocol: 17, port: 5000, external: 40_000 };
    assert!(entries.push(&left_binding(&binding, Duration::from_secs(60))));
    let mut rig = successor(entries, Rig::with(Config { first_port: 40_000, last_port: 40_000, ..nat() }));
    let other = Mri::PathCoupled(udp("10.0.1.3", 5000, FAR, 6000));
    let refused = only(rig.in_session(CALL, OTHER, INSIDE, other, &create(1, 100)));
    assert_eq!(refused.message(), error(1, Info::NO_RESOURCES));
    rig.pass_secs(62);
    let sent = only(rig.in_session(CALL, OTHER, INSIDE, other, &create(2, 100)));
    assert_eq!(port_of(&sent.mri), 40_000);
}

/// A stop writes no end of what the next node takes over.
#[test]
fn what_is_left_has_no_end_in_the_log() {
    let (rig, _) = with_flow(100);
    let mut rig = successor(left(&rig, 1), Rig::edge_nat());
    decisions(&mut rig);
    for (left, ends) in [(true, 0), (false, 1)] {
        rig.natfw.record_stop(0, left, &mut rig.resources);
        let ended = decisions(&mut rig).into_iter().filter(|(outcome, _)| *outcome == Outcome::Ended);
        assert_eq!(ended.count(), ends);
    }
}
