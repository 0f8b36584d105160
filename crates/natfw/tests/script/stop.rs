//! A node that stops reports what ends with it.

use signalbox_core::handover::Entries;
use signalbox_core::{Direction, Mri, SessionId};
use signalbox_natfw::engine::Input;
use signalbox_natfw::wire::Info;

use crate::rig::{
    BEFORE, BEHIND, FAR, HOST, INSIDE, OTHER, Rig, SESSION, Sent, create, external, flow, loose, notify,
    only, success, udp,
};

fn stop(rig: &mut Rig, handed_over: bool) -> Vec<Sent> {
    rig.input(Input::Stop { handed_over })
}

/// Another session of a peer.
fn with_another(rig: &mut Rig, n: u8, peer: signalbox_core::service::SiiHandle) {
    let mri = Mri::PathCoupled(udp(HOST, n.into(), FAR, 6000));
    let sent = only(rig.in_session(SessionId([n; 16]), peer, INSIDE, mri, &create(7, 1000)));
    only(rig.answer(&sent, &success(7, 1000)));
}

/// A session of a peer whose request has no answer: no other node takes it over.
fn with_pending(rig: &mut Rig, n: u8) {
    let mri = Mri::PathCoupled(udp(HOST, n.into(), FAR, 6000));
    only(rig.in_session(SessionId([n; 16]), BEFORE, INSIDE, mri, &create(7, 1000)));
}

/// The sessions whose end is reported towards the initiators; zeros: all of a peer.
fn reported(rig: &mut Rig, handed_over: bool) -> Vec<SessionId> {
    stop(rig, handed_over).iter().filter(|sent| inbound(sent)).map(|sent| sent.session).collect()
}

fn inbound(sent: &Sent) -> bool {
    sent.mri.direction() == Direction::Upstream
}

/// NATFW-3.7.5-19: the initiator is told that its session ends, and the nodes further on are told, too.
#[test]
fn a_session_that_ends_with_the_node_is_reported() {
    let mut rig = Rig::firewall();
    rig.established(1000);
    let sent = stop(&mut rig, false);
    let [to_initiator, further] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((to_initiator.message(), to_initiator.mri), (notify(Info::TERMINATED), flow().inverted()));
    assert_eq!((further.message(), further.sii), (notify(Info::TERMINATED), Some(BEHIND)));
    assert!(sent.iter().all(|sent| sent.attributes.reliable && sent.session == SESSION));
    // The node does nothing else: what the kernel has is the driver's.
    assert_eq!((rig.natfw.session_count(), rig.holes.len(), rig.kernel.len()), (1, 1, 0));
}

/// NATFW-3.7.5-19: what the next node takes over does not end.
#[test]
fn what_is_handed_over_is_not_reported() {
    let mut rig = Rig::firewall();
    rig.established(1000);
    assert_eq!(stop(&mut rig, true), []);
    // It is what the file has.
    let mut entries = Entries::default();
    rig.natfw.hand_over(rig.now, &mut entries);
    assert!(entries.take().is_some());
    // A request without an answer is not handed over.
    let mut rig = Rig::firewall();
    only(rig.by_inside(flow(), &create(1, 100)));
    assert_eq!(only(stop(&mut rig, true).into_iter().filter(inbound).collect()).session, SESSION);
}

/// Nothing ends where nothing is open: at the end of a flow, and at a node that only passes requests on.
#[test]
fn a_node_that_opened_nothing_reports_nothing() {
    for end in [true, false] {
        let mut rig = Rig::host();
        rig.end = end;
        rig.by_inside(flow(), &create(1, 100));
        assert_eq!((rig.natfw.session_count(), stop(&mut rig, false)), (1, vec![]));
    }
}

/// NATFW-3.7.5-16: all sessions of a peer end by one NOTIFY for all, over the association with it.
#[test]
fn all_sessions_of_a_peer_end_by_one_notify() {
    let mut rig = Rig::firewall();
    rig.established(1000);
    (1..=3).for_each(|n| with_another(&mut rig, n, BEFORE));
    with_another(&mut rig, 4, OTHER);
    let sent = stop(&mut rig, false);
    let towards: Vec<_> = sent.iter().filter(|sent| inbound(sent)).collect();
    let [all, one] = towards.as_slice() else { panic!("{towards:?}") };
    assert_eq!(
        (all.session, all.sii, all.message()),
        (SessionId([0; 16]), Some(BEFORE), notify(Info::TERMINATED))
    );
    let Mri::PathCoupled(mri) = all.mri else { panic!("{}", all.mri) };
    assert_eq!((mri.src_prefix, mri.dst_prefix, mri.protocol), (0, 0, None));
    assert_eq!((one.session, one.sii), (SessionId([4; 16]), None));
    assert_eq!(sent.len(), 2 + 5, "the nodes further on get one for each");
}

/// A peer that keeps a session does not get the NOTIFY for all.
#[test]
fn a_peer_that_keeps_a_session_is_told_of_each() {
    let mut rig = Rig::firewall();
    rig.established(1000);
    [1, 2].into_iter().for_each(|n| with_pending(&mut rig, n));
    assert_eq!(reported(&mut rig, true), [SessionId([1; 16]), SessionId([2; 16])]);
}

/// NATFW-3.7.5-19: the peer of a session that the node before this one left is not known until it refreshes the session. It may be any
/// peer. The next node takes the session over, so no peer gets a NOTIFY for all.
#[test]
fn a_session_whose_peer_is_not_known_yet_does_not_end() {
    let mut rig = Rig::firewall();
    rig.established(1000);
    let mut entries = Entries::default();
    rig.natfw.hand_over(rig.now, &mut entries);
    let mut rig = Rig::firewall();
    rig.input(Input::Handover(entries));
    [1, 2].into_iter().for_each(|n| with_pending(&mut rig, n));
    assert_eq!((rig.natfw.session_count(), rig.holes.len()), (3, 1));
    assert_eq!(reported(&mut rig, true), [SessionId([1; 16]), SessionId([2; 16])]);
    assert_eq!(reported(&mut rig, false), [SessionId([0; 16])], "that session ends too");
    // Another peer refreshes it.
    only(rig.receive(OTHER, INSIDE, flow(), &create(2, 1000)));
    assert_eq!(reported(&mut rig, true), [SessionId([0; 16])]);
}

/// A reservation at an edge ends as well; beyond the edge no node has it.
#[test]
fn a_reservation_that_ends_is_reported_towards_its_host() {
    let mut rig = Rig::edge_nat();
    only(rig.by_inside(loose(HOST, FAR), &external(1, 1000, 20230)));
    let sent = only(stop(&mut rig, false));
    assert_eq!((sent.message(), sent.mri), (notify(Info::TERMINATED), loose(HOST, FAR).inverted()));
    assert_eq!(stop(&mut rig, true), [], "it is handed over");
}

/// NATFW-3.7.5-12, NATFW-3.7.6.1-05: the edge is the initiator of the CREATE that it began, so that nothing but its lifetime ends it.
#[test]
fn the_create_of_an_edge_is_left_to_its_lifetime() {
    let mut rig = Rig::edge_nat();
    let (_, create) = crate::proxy::begun(&mut rig);
    rig.answer(&create, &success(create.message().msn.unwrap(), 1000));
    let sent = stop(&mut rig, false);
    let [to_host] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((to_host.session, to_host.mri), (SESSION, loose(HOST, FAR).inverted()));
    assert_eq!(to_host.message(), notify(Info::TERMINATED));
    assert_eq!(stop(&mut rig, true), [], "the next node goes on with both");
}

/// A stop sends a bounded number of messages. Those who asked come first.
#[test]
fn a_stop_sends_no_storm() {
    let mut rig = Rig::firewall();
    for n in 0..1500_u16 {
        let mri = Mri::PathCoupled(udp(HOST, 5000 + n, FAR, 6000));
        let [high, low] = n.to_be_bytes();
        let mut id = [1; 16];
        (id[0], id[1]) = (high, low);
        rig.in_session(SessionId(id), BEFORE, INSIDE, mri, &create(1, 100));
    }
    let sent = stop(&mut rig, false);
    assert_eq!(
        (sent.len(), sent.iter().filter(|sent| sent.session == SessionId([0; 16])).count()),
        (1000, 1)
    );
    assert_eq!(sent[0].session, SessionId([0; 16]));
}
