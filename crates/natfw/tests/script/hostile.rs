//! What others cannot do.

use signalbox_core::service::{RecvMessage, SendError, TransferAttributes};
use signalbox_core::{Mri, SessionId};
use signalbox_natfw::engine::{Config, Input, Middlebox};
use signalbox_natfw::wire::{Info, Message};

use crate::rig::{
    BEFORE, FAR, HOST, INSIDE, OTHER, OUTSIDE, Rig, addr, boxed, create, error, flow, notify, octets, only,
    success, udp,
};

/// NATFW-3.6-01, NATFW-3.3-03: nothing is done for a sender without verified routing state.
#[test]
fn a_message_without_routing_state_does_nothing() {
    let mut rig = Rig::firewall();
    let data = octets(&create(7, 100));
    let received = rig.received(BEFORE, INSIDE, flow(), &data);
    let stateless = TransferAttributes { stateless: true, ..received.attributes };
    let cases = [
        RecvMessage { state: None, ..received.clone() },
        RecvMessage { attributes: stateless, ..received.clone() },
    ];
    for message in cases {
        assert_eq!(rig.indicate(message), []);
    }
    // Explicitly routed requests follow no route that this node could send them on.
    let mut explicit = received;
    explicit.validation.unchecked_route = true;
    assert_eq!(rig.indicate(explicit), []);
    assert_eq!((rig.natfw.session_count(), rig.natfw.counters().unverified), (0, 3));
}

/// NATFW-5.2.1-01, NATFW-5.2.1-02
#[test]
fn with_secure_only_protected_messages_count() {
    let mut rig = Rig::with(Config { secure: true, ..boxed(Middlebox::Firewall) });
    assert_eq!(rig.by_inside(flow(), &create(7, 100)), []);
    assert_eq!(rig.natfw.counters().insecure, 1);
    rig.secure = true;
    let sent = only(rig.by_inside(flow(), &create(7, 100)));
    assert_eq!(sent.attributes.security, signalbox_core::service::Security::Channel);
}

/// A peer that is not the session's can neither delete it nor turn its rule elsewhere, but may be on a new route.
#[test]
fn a_session_belongs_to_its_peer() {
    let mut rig = Rig::firewall();
    rig.established(1000);
    let theirs = Mri::PathCoupled(udp("10.0.1.66", 1, FAR, 2));
    assert_eq!(rig.receive(OTHER, INSIDE, flow(), &create(2, 0)), []);
    assert_eq!(
        only(rig.receive(OTHER, INSIDE, theirs, &create(2, 100))).message(),
        error(2, Info::AUTHORIZATION)
    );
    assert_eq!((rig.natfw.counters().foreign, rig.holes.len(), rig.kernel.len()), (2, 1, 0));
    let counters = rig.natfw.counters();
    assert_eq!((counters.creates_received, counters.responses_received), (3, 1), "dropped ones too");
    // The same flow by a new route.
    let sent = only(rig.receive(OTHER, INSIDE, flow(), &create(3, 1000)));
    assert_eq!(sent.message(), create(3, 1000));
    assert_eq!(rig.receive(BEFORE, INSIDE, flow(), &create(4, 0)), [], "the old peer");
}

/// A peer that is not allowed to open a flow cannot take the session of it over either, although it knows the session.
#[test]
fn a_session_is_not_taken_over_by_a_stranger() {
    let mut rig = Rig::with_rules(boxed(Middlebox::Firewall), |_| {});
    rig.established(1000);
    for (msn, lifetime) in [(2, 1000), (9, u32::MAX)] {
        let data = octets(&create(msn, lifetime));
        let received = rig.received(OTHER, INSIDE, flow(), &data);
        let stranger = RecvMessage { peer_address: Some(addr("10.0.1.66")), ..received };
        assert_eq!(only(rig.indicate(stranger)).message(), error(msn, Info::AUTHORIZATION));
    }
    assert_eq!(rig.receive(OTHER, INSIDE, flow(), &create(10, 0)), []);
    assert_eq!((rig.holes.len(), rig.kernel.len(), rig.resources.passage_count()), (1, 0, 1));
    // It still belongs to its peer, which has not used these numbers.
    assert_eq!(only(rig.by_inside(flow(), &create(2, 0))).message(), create(2, 0));
    assert_eq!((rig.holes.len(), rig.resources.passage_count()), (0, 0));
}

/// By another peer of the same flow the rule and the external port stay.
#[test]
fn a_session_that_moves_to_another_peer_keeps_its_rule() {
    for middlebox in [Middlebox::Firewall, Middlebox::Nat] {
        let mut rig = Rig::with(boxed(middlebox));
        rig.established(1000);
        let before = rig.holes.clone();
        let sent = only(rig.receive(OTHER, INSIDE, flow(), &create(2, 1000)));
        assert_eq!((&rig.holes, rig.kernel.len()), (&before, 0));
        only(rig.answer(&sent, &success(2, 1000)));
        assert_eq!((&rig.holes, rig.resources.passage_count()), (&before, 1));
        only(rig.receive(OTHER, INSIDE, flow(), &create(3, 0)));
        let ports = rig.natfw.tables()[1].size;
        assert_eq!((rig.holes.len(), rig.resources.passage_count(), ports), (0, 0, 0));
    }
}

/// NATFW-3.3-01, NATFW-3.3-03, NATFW-4.1-05
#[test]
fn a_malformed_request_is_refused_and_not_sent_on() {
    let mut rig = Rig::firewall();
    let mut data = octets(&create(7, 100));
    data.truncate(data.len() - 4);
    let answer = only(rig.receive_octets(BEFORE, INSIDE, flow(), &data));
    assert_eq!((answer.info(), answer.message().msn), (Info::OBJECT_LENGTH, Some(7)));
    // Malformed, and not allowed either: the syntax counts first.
    let mut rig = Rig::with_rules(boxed(Middlebox::Firewall), |_| {});
    let answer = only(rig.receive_octets(BEFORE, OUTSIDE, flow(), &data));
    assert_eq!((answer.info(), answer.mri), (Info::OBJECT_LENGTH, flow().inverted()));
    let mut unknown = octets(&create(7, 100));
    unknown[0] = 9;
    let answer = only(rig.receive_octets(BEFORE, INSIDE, flow(), &unknown));
    assert_eq!(answer.message(), error(7, Info::ILLEGAL_MESSAGE_TYPE));
    assert_eq!(only(rig.receive_octets(BEFORE, INSIDE, flow(), &[1, 0])).info(), Info::MESSAGE_LENGTH);
    assert_eq!((rig.natfw.session_count(), rig.natfw.counters().malformed), (0, 3));
}

/// NATFW-3.2.7-01
#[test]
fn malformed_responses_and_notifies_are_not_answered() {
    let mut rig = Rig::firewall();
    rig.established(100);
    for mut data in [octets(&success(1, 100)), octets(&notify(Info::TERMINATED))] {
        data.truncate(data.len() - 4);
        assert_eq!(rig.receive_octets(BEFORE, INSIDE, flow().inverted(), &data), []);
    }
    assert_eq!((rig.natfw.counters().malformed, rig.holes.len()), (2, 1));
}

/// A lifetime of 136 years is lowered.
#[test]
fn the_longest_lifetime_is_that_of_this_node() {
    let mut rig = Rig::firewall();
    let sent = only(rig.by_inside(flow(), &create(7, u32::MAX)));
    assert_eq!(sent.message().lifetime, Some(3600));
    rig.pass_secs(3600);
    assert_eq!(rig.natfw.session_count(), 0);
}

/// A source that floods leaves room for others, and nothing of it stays.
#[test]
fn sessions_are_shared_by_source() {
    let mut rig = Rig::with(Config { max_sessions: 64, ..boxed(Middlebox::Firewall) });
    let ask = |rig: &mut Rig, n: u8, host: &str| {
        let data = octets(&create(7, 100));
        let mri = Mri::PathCoupled(udp(host, n.into(), FAR, 6000));
        let received = rig.received(BEFORE, INSIDE, mri, &data);
        let message = RecvMessage { session: SessionId([n; 16]), peer_address: Some(addr(host)), ..received };
        only(rig.indicate(message)).message().info.is_none()
    };
    let taken = (1..=64).filter(|n| ask(&mut rig, *n, HOST)).count();
    assert_eq!(taken, 48);
    assert!(ask(&mut rig, 99, "10.0.1.3"));
    assert_eq!(rig.natfw.counters().sessions_full, 16);
    rig.pass_secs(100);
    assert_eq!((rig.natfw.session_count(), rig.resources.passage_count()), (0, 0));
}

/// A host may have all addresses of its IPv6 prefix: they have one share of the sessions, and of the messages whose result is awaited.
#[test]
fn the_addresses_of_a_prefix_have_one_share() {
    for (max_sessions, max_watched) in [(64, 1000), (1000, 64)] {
        let mut rig = Rig::with(Config { max_sessions, max_watched, ..Config::default() });
        let mut ask = |n: u8, net: u8| {
            let host = format!("2001:db8:{net}::{n}");
            let data = octets(&Message { proxy: true, nonce: Some(1), ..create(7, 100) });
            let mri = Mri::PathCoupled(udp(&host, n.into(), "2001:db8:ff::9", 6000));
            let received = rig.received(BEFORE, INSIDE, mri, &data);
            let session = SessionId([n; 16]);
            let sent =
                only(rig.indicate(RecvMessage { session, peer_address: Some(addr(&host)), ..received }));
            sent.message().info.is_none() && sent.handle.is_some()
        };
        assert_eq!((1..=100).filter(|n| ask(*n, 1)).count(), 48, "{max_sessions}");
        assert!(ask(101, 2), "another prefix");
    }
}

/// What ends at one time ends in parts, so that messages have their turn in between.
#[test]
fn many_sessions_end_in_parts() {
    let mut rig = Rig::firewall();
    let data = octets(&create(7, 100));
    for n in 0..600u128 {
        let received = rig.received(BEFORE, INSIDE, flow(), &data);
        rig.indicate(RecvMessage { session: SessionId((n + 1000).to_be_bytes()), ..received });
    }
    assert_eq!(rig.natfw.session_count(), 600);
    rig.now = rig.now + core::time::Duration::from_secs(200);
    let mut left = || {
        rig.input(Input::Timer);
        (rig.natfw.session_count(), rig.natfw.next_deadline().is_some_and(|at| at <= rig.now))
    };
    assert_eq!([left(), left(), left()], [(344, true), (88, true), (0, false)]);
}

/// A source whose requests wait for next nodes that do not answer: those of others are answered in proxy mode all the same.
#[test]
fn a_source_whose_requests_find_no_node_leaves_answers_to_others() {
    let mut rig = Rig::with(Config { max_watched: 64, ..boxed(Middlebox::Firewall) });
    let ask = |rig: &mut Rig, n: u8, host: &str| {
        let data = octets(&Message { proxy: true, nonce: Some(1), ..create(7, 100) });
        let mri = Mri::PathCoupled(udp(host, n.into(), FAR, 6000));
        let received = rig.received(BEFORE, INSIDE, mri, &data);
        let message = RecvMessage { session: SessionId([n; 16]), peer_address: Some(addr(host)), ..received };
        only(rig.indicate(message))
    };
    let watched = (1..=100).filter(|n| ask(&mut rig, *n, HOST).handle.is_some()).count();
    assert_eq!((watched, rig.natfw.counters().unwatched), (48, 52));
    let sent = ask(&mut rig, 101, "10.0.1.3");
    assert_eq!(only(rig.failed(&sent, SendError::NoNextNode)).message(), success(7, 100));
    assert!(ask(&mut rig, 102, "10.0.1.3").handle.is_some(), "the place was given back");
}

/// Replays and reordered copies of a whole exchange open nothing after the session was deleted.
#[test]
fn a_replayed_response_opens_nothing() {
    let mut rig = Rig::firewall();
    let sent = only(rig.by_inside(flow(), &create(7, 100)));
    only(rig.answer(&sent, &success(7, 100)));
    only(rig.by_inside(flow(), &create(8, 0)));
    assert_eq!(rig.holes.len(), 0);
    assert_eq!(rig.answer(&sent, &success(7, 100)), []);
    assert_eq!((rig.holes.len(), rig.natfw.session_count()), (0, 0));
}

/// NATFW-3.5-08: a CREATE that the network delays, or that somebody who read it repeats, opens nothing after the end of its session,
/// while GIST has the routing state. The host opens the same flow again with its next number.
#[test]
fn a_repeated_create_does_not_open_an_ended_session_again() {
    for by_deletion in [true, false] {
        let mut rig = Rig::firewall();
        rig.established(100);
        if by_deletion {
            only(rig.by_inside(flow(), &create(2, 0)));
        } else {
            rig.pass_secs(200);
        }
        assert_eq!((rig.natfw.session_count(), rig.holes.len()), (0, 0));
        let last = if by_deletion { 2 } else { 1 };
        for (seconds, msn) in [(0, 1), (30, last), (300, last)] {
            rig.pass_secs(seconds);
            assert_eq!(rig.by_inside(flow(), &create(msn, 100)), [], "number {msn}");
        }
        assert_eq!((rig.natfw.session_count(), rig.natfw.counters().old_msn), (0, 3));
        let sent = only(rig.by_inside(flow(), &create(3, 100)));
        only(rig.answer(&sent, &success(3, 100)));
        assert_eq!(rig.holes.len(), 1);
    }
}
