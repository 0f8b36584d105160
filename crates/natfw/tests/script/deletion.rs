//! Deletions that arrive where the session has ended before.

use signalbox_core::service::{AddressValidation, RecvMessage};
use signalbox_core::{Mri, SessionId};
use signalbox_natfw::engine::{Command, Config, Mapping, Middlebox};
use signalbox_natfw::wire::{Info, Message};

use crate::rig::{
    BEFORE, BEHIND, FAR, HOST, INSIDE, OTHER, OUTSIDE, Rig, SESSION, Sent, addr, boxed, create, external,
    flow, inward, loose, notify, octets, only, success, udp,
};

/// A peer on another route than [`HOST`].
const ELSEWHERE: &str = "10.0.1.66";

/// A message of the peer at this address.
fn from(rig: &mut Rig, peer: &str, mri: Mri, message: &Message<'_>) -> Vec<Sent> {
    let data = octets(message);
    let received = rig.received(OTHER, INSIDE, mri, &data);
    rig.indicate(RecvMessage { peer_address: Some(addr(peer)), ..received })
}

/// A message of a sender whose address GIST does not know.
fn from_unknown(rig: &mut Rig, mri: Mri, message: &Message<'_>) -> Vec<Sent> {
    let data = octets(message);
    let received = rig.received(OTHER, INSIDE, mri, &data);
    let validation = AddressValidation::default();
    rig.indicate(RecvMessage { sii: None, peer_address: None, validation, ..received })
}

/// A node whose session an administrator has ended.
fn ended(mut rig: Rig) -> Rig {
    let sent = only(rig.by_inside(flow(), &create(1, 100)));
    rig.answer(&sent, &success(1, 100));
    rig.command(Command::Delete(SESSION));
    assert_eq!((rig.natfw.session_count(), rig.holes.len()), (0, 0));
    rig
}

/// NATFW-3.7.4-09: a deletion goes on to the nodes that still have the session, although it ended here. It is not answered.
#[test]
fn a_deletion_goes_on_past_a_node_whose_session_has_ended() {
    for mut rig in [Rig::firewall(), Rig::host()].map(ended) {
        let sent = only(rig.by_inside(flow(), &create(2, 0)));
        assert_eq!((sent.message(), sent.mri, sent.session), (create(2, 0), flow(), SESSION));
        assert_eq!(sent.handle, None, "nothing is done if it does not arrive");
        assert_eq!(rig.by_inside(flow(), &create(2, 0)), [], "once");
        assert_eq!(rig.pass_secs(100), []);
    }
}

/// NATFW-3.7.4-09: a session that expired here is known too, for as long as its number is kept.
#[test]
fn a_deletion_goes_on_past_a_node_whose_session_has_expired() {
    for (seconds, goes_on) in [(699, true), (701, false)] {
        let mut rig = Rig::firewall();
        rig.established(100);
        rig.pass_secs(seconds);
        assert_eq!(rig.by_inside(flow(), &create(2, 0)).len(), usize::from(goes_on), "{seconds}");
    }
}

/// NATFW-3.7.4-09: a deletion that this node did not wait for opens no way through it: of a session that it never had, of another flow,
/// of another host. It does not use up the number that the deletion of the host itself has: each message of a host has its own.
#[test]
fn only_the_deletion_of_an_own_session_goes_on() {
    let mut rig = ended(Rig::firewall());
    let other = SessionId([9; 16]);
    for msn in [5, 6] {
        assert_eq!(rig.in_session(other, BEFORE, INSIDE, flow(), &create(msn, 0)), []);
    }
    let elsewhere = Mri::PathCoupled(udp(HOST, 5000, "203.0.113.10", 6000));
    assert_eq!(rig.by_inside(elsewhere, &create(2, 0)), []);
    assert_eq!(from(&mut rig, ELSEWHERE, flow(), &create(9, 0)), []);
    assert_eq!(rig.receive(BEFORE, OUTSIDE, inward(), &create(9, 0)), []);
    assert_eq!(rig.natfw.counters().unknown_session, 5);
    assert_eq!(only(rig.by_inside(flow(), &create(3, 0))).message(), create(3, 0), "the host itself");
}

/// NATFW-3.7.4-09: it ends at the end of the flow, and where the hop count of GIST is used up; a NAT does not know the translation any more.
#[test]
fn a_deletion_ends_where_its_request_ended() {
    let mut rig = ended(Rig::firewall());
    rig.end = true;
    assert_eq!(rig.by_inside(flow(), &create(2, 0)), []);
    rig.end = false;
    let mut rig = ended(Rig::firewall());
    let data = octets(&create(2, 0));
    let received = rig.received(BEFORE, INSIDE, flow(), &data);
    assert_eq!(rig.indicate(RecvMessage { hops: 1, ..received }), []);
    let mut rig = ended(Rig::nat());
    assert_eq!(rig.by_inside(flow(), &create(2, 0)), []);
}

/// An EXTERNAL does not leave the network.
#[test]
fn the_deletion_of_an_external_ends_at_the_edge() {
    for (mut rig, goes_on) in [(Rig::firewall(), true), (Rig::edge_firewall(), false)] {
        rig.by_inside(loose(HOST, FAR), &external(1, 100, 20230));
        rig.command(Command::Delete(SESSION));
        let sent = rig.by_inside(loose(HOST, FAR), &external(2, 0, 20230));
        assert_eq!(sent.len(), usize::from(goes_on), "{sent:?}");
        assert!(sent.iter().all(|sent| sent.message() == external(2, 0, 20230)));
    }
}

/// A twice-NAT has its mapping without a session.
#[test]
fn a_twice_nat_translates_what_it_sends_on() {
    let mapping = |inside: &str, outside: &str| Mapping { inside: addr(inside), outside: addr(outside) };
    let mappings = vec![mapping(HOST, "192.0.2.1"), mapping(FAR, "192.0.2.2")];
    let mut rig = ended(Rig::with(Config { mappings, ..boxed(Middlebox::TwiceNat) }));
    let mapped = Mri::PathCoupled(udp("192.0.2.1", 5000, "192.0.2.2", 6000));
    assert_eq!(only(rig.by_inside(flow(), &create(2, 0))).mri, mapped);
}

/// The receiver reported that its session ended, so that a host deletes what is between, and not the session of the receiver.
#[test]
fn a_deletion_crosses_a_report_of_the_end() {
    let mut rig = Rig::firewall();
    rig.established(100);
    only(rig.receive(BEHIND, OUTSIDE, flow().inverted(), &notify(Info::TERMINATED)));
    assert_eq!(only(rig.by_inside(flow(), &create(2, 0))).message(), create(2, 0));
}

/// The host has another route since its session ended here, and its deletion overtakes its CREATE on it. This CREATE opens nothing, and
/// the number of that deletion is not that of the former peer.
#[test]
fn a_create_that_its_deletion_overtook_on_another_route_opens_nothing() {
    let mut rig = ended(Rig::firewall());
    assert_eq!(from(&mut rig, ELSEWHERE, flow(), &create(4, 0)), []);
    assert_eq!(from(&mut rig, ELSEWHERE, flow(), &create(3, 100)), []);
    assert_eq!((rig.natfw.session_count(), rig.holes.len(), rig.natfw.counters().old_msn), (0, 0, 1));
    assert_eq!(only(rig.by_inside(flow(), &create(2, 0))).message(), create(2, 0));
    assert_eq!(only(from(&mut rig, ELSEWHERE, flow(), &create(5, 100))).message(), create(5, 100));
}

/// The same while the session stands here: it stays with its peer. The CREATE may have arrived, and wait for its routes.
#[test]
fn a_create_that_its_deletion_overtook_on_another_route_takes_no_session() {
    for waits in [false, true] {
        let mut rig = Rig::firewall();
        rig.established(1000);
        rig.slow_routes = waits;
        if waits {
            assert_eq!(from(&mut rig, ELSEWHERE, flow(), &create(2, 1000)), []);
        }
        assert_eq!(from(&mut rig, ELSEWHERE, flow(), &create(3, 0)), []);
        assert_eq!(rig.natfw.counters().deleted, u64::from(waits));
        assert_eq!(from(&mut rig, ELSEWHERE, flow(), &create(2, 1000)), []);
        assert_eq!(rig.routed(), []);
        assert_eq!((rig.natfw.counters().old_msn, rig.holes.len(), rig.kernel.len()), (1, 1, 0));
        // Its own peer has not used these numbers, and still has it.
        assert_eq!(only(rig.by_inside(flow(), &create(2, 1000))).message(), create(2, 1000));
        assert_eq!(only(from(&mut rig, ELSEWHERE, flow(), &create(4, 1000))).message(), create(4, 1000));
    }
}

/// A stranger that knows the session of a host cannot keep its CREATE out, whatever numbers the deletions of the stranger have: before the
/// host has begun, after the end of its session, and with IPv6 on the link of the host.
#[test]
fn a_deletion_by_a_stranger_keeps_no_request_of_others_out() {
    for (mut rig, first) in [(Rig::firewall(), 1), (ended(Rig::firewall()), 2)] {
        for msn in [first, first + 900, 1 << 30] {
            assert_eq!(from(&mut rig, ELSEWHERE, flow(), &create(msn, 0)), []);
        }
        assert_eq!(only(rig.by_inside(flow(), &create(first, 100))).message(), create(first, 100));
    }
    let mut rig = Rig::host();
    let (host, stranger, server) = ("2001:db8:1::2", "2001:db8:1::66", "2001:db8:2::9");
    let flow = Mri::PathCoupled(udp(host, 5000, server, 6000));
    assert_eq!(from(&mut rig, stranger, flow, &create(900, 0)), []);
    assert_eq!(only(from(&mut rig, host, flow, &create(1, 100))).message(), create(1, 100));
}

/// The flow of a deletion is what its sender writes: one whose address GIST does not know is not the host of the flow. Later requests of
/// such senders count as those of one peer.
#[test]
fn a_deletion_of_an_unknown_sender_keeps_no_request_of_the_host_out() {
    for (mut rig, first) in [(Rig::firewall(), 1), (ended(Rig::firewall()), 2)] {
        assert_eq!(from_unknown(&mut rig, flow(), &create(900, 0)), []);
        assert_eq!(from_unknown(&mut rig, flow(), &create(899, 100)), [], "it was overtaken");
        assert_eq!(only(rig.by_inside(flow(), &create(first, 100))).message(), create(first, 100));
    }
    // The same for one that waits when the session of the host ends.
    let mut rig = Rig::firewall();
    rig.established(100);
    rig.slow_routes = true;
    assert_eq!(from_unknown(&mut rig, flow(), &create(900, 100)), []);
    rig.command(Command::Delete(SESSION));
    rig.routed();
    assert_eq!(only(rig.by_inside(flow(), &create(2, 100))).message(), create(2, 100));
}

/// With IPv6 a neighbor on the link of a host is not the host whose session ended here.
#[test]
fn a_deletion_by_a_neighbor_of_the_host_does_not_go_on() {
    let (host, neighbor, server) = ("2001:db8:1::2", "2001:db8:1::66", "2001:db8:2::9");
    let flow = Mri::PathCoupled(udp(host, 5000, server, 6000));
    let mut rig = Rig::host();
    let sent = only(from(&mut rig, host, flow, &create(1, 100)));
    rig.answer(&sent, &success(1, 100));
    only(from(&mut rig, host, flow, &create(2, 0)));
    assert_eq!(from(&mut rig, neighbor, flow, &create(900, 0)), []);
    assert_eq!(only(from(&mut rig, host, flow, &create(3, 0))).message(), create(3, 0), "the host itself");
    assert_eq!(only(from(&mut rig, host, flow, &create(4, 100))).message(), create(4, 100));
}

/// Requests of a stranger that wait when the session of a host ends use up no number of the host either.
#[test]
fn a_waiting_request_of_a_stranger_keeps_no_request_of_others_out() {
    let mut rig = Rig::firewall();
    rig.established(100);
    rig.slow_routes = true;
    assert_eq!(from(&mut rig, ELSEWHERE, flow(), &create(900, 100)), []);
    only(rig.by_inside(flow(), &create(2, 0)));
    assert_eq!(rig.routed(), []);
    assert_eq!(from(&mut rig, ELSEWHERE, flow(), &create(900, 100)), [], "it died with the session");
    assert_eq!(only(rig.by_inside(flow(), &create(3, 100))).message(), create(3, 100));
}

/// Deletions of one source take a part of the places, whatever sessions and numbers they have. Those of others are remembered.
#[test]
fn deletions_of_a_stranger_leave_places_to_others() {
    let mut rig = Rig::with(Config { max_sessions: 64, ..boxed(Middlebox::Firewall) });
    for n in 1..=100_u8 {
        let other = SessionId([n; 16]);
        assert_eq!(rig.in_session(other, OTHER, OUTSIDE, inward(), &create(n.into(), 0)), []);
    }
    assert_eq!(rig.by_inside(flow(), &create(2, 0)), []);
    assert_eq!(rig.by_inside(flow(), &create(1, 100)), [], "it was overtaken");
    assert_eq!((rig.natfw.session_count(), rig.natfw.counters().old_msn), (0, 1));
    // Their own are forgotten where no place was left.
    let other = SessionId([99; 16]);
    let sent = only(rig.in_session(other, OTHER, OUTSIDE, inward(), &create(99, 100)));
    assert_eq!(sent.message(), create(99, 100));
    // All deletions of a peer for one session have one place.
    for n in 1..=100 {
        assert_eq!(from(&mut rig, ELSEWHERE, flow(), &create(n, 0)), []);
    }
    assert_eq!(from(&mut rig, ELSEWHERE, flow(), &create(100, 100)), [], "the last one is remembered");
}

/// Nor do deletions, which cost nothing, take places of sessions that ended: those of a stranger for one session or many, and those of
/// the host itself.
#[test]
fn deletions_leave_places_to_sessions_that_end() {
    let deletions: [fn(&mut Rig); 3] = [
        |rig| (1..=100).for_each(|n| drop(from(rig, ELSEWHERE, flow(), &create(n, 0)))),
        |rig| {
            for n in 1..=100 {
                rig.in_session(SessionId([n; 16]), OTHER, OUTSIDE, inward(), &create(1, 0));
            }
        },
        |rig| {
            rig.established(100);
            (2..=100).for_each(|n| drop(rig.by_inside(flow(), &create(n, 0))));
        },
    ];
    for (case, deletions) in deletions.into_iter().enumerate() {
        let mut rig = Rig::with(Config { max_sessions: 64, ..boxed(Middlebox::Firewall) });
        deletions(&mut rig);
        for session in [101, 102, 103].map(|n| SessionId([n; 16])) {
            for (msn, lifetime) in [(1, 100), (2, 0)] {
                only(rig.in_session(session, BEFORE, INSIDE, flow(), &create(msn, lifetime)));
            }
            let again = rig.in_session(session, BEFORE, INSIDE, flow(), &create(1, 100));
            assert_eq!(again, [], "{session} after the deletions of case {case}");
        }
    }
}

/// A request that waits when the session ends has an older number than a deletion of its peer, which came by another way.
#[test]
fn an_older_number_replaces_no_newer_one() {
    let mut rig = Rig::firewall();
    rig.established(100);
    rig.slow_routes = true;
    assert_eq!(from(&mut rig, ELSEWHERE, flow(), &create(5, 100)), []);
    let data = octets(&create(900, 0));
    let received = rig.received(BEHIND, INSIDE, flow(), &data);
    assert_eq!(rig.indicate(RecvMessage { peer_address: Some(addr(ELSEWHERE)), ..received }), []);
    only(rig.by_inside(flow(), &create(2, 0)));
    assert_eq!(rig.routed(), []);
    assert_eq!(from(&mut rig, ELSEWHERE, flow(), &create(6, 100)), []);
    assert_eq!((rig.natfw.session_count(), rig.holes.len()), (0, 0));
    assert_eq!(only(from(&mut rig, ELSEWHERE, flow(), &create(901, 100))).message(), create(901, 100));
}
