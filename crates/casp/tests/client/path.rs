//! Reserve, Commit, Release and Query along a path.

use std::time::Duration;

use signalbox_casp::clients::qos::{Config, QosEvent, QosRequest, Range};
use signalbox_casp::engine::Indication;
use signalbox_casp::wire::qos::{QosErrorCode, QosFlags, QosMessage, QosType, QosVersion};
use signalbox_core::SessionId;

use crate::rig::{MBIT, Rig, at, between, flow, mbit, to_port, with_rate};

/// CASPQOS-1-01, CASPQOS-2-04, CASPQOS-2-17, CASPQOS-2-27, CASPQOS-2-07, CASPQOS-1-12: two rounds of the source.
/// What is reserved is booked, and the flow gets it with the Commit.
#[test]
fn the_source_reserves_in_two_rounds() {
    let mut rig = Rig::new(4);
    rig.deaf = Some(3);
    let request = rig.request(Range::only(mbit(2.0)));
    rig.reserve(0, 1, &request);
    for n in 0..3 {
        assert_eq!((rig.booked(n), rig.given(n)), (2.0, 0.0), "node {n}");
    }
    let mut rig = Rig::new(4);
    rig.reserve(0, 1, &request);
    let session = SessionId([2; 16]);
    let all = [
        QosEvent::Opened { session },
        QosEvent::Reserved { amount: mbit(2.0) },
        QosEvent::Committed { amount: mbit(2.0) },
    ];
    assert_eq!(rig.events(0), all);
    for n in 0..3 {
        assert_eq!((rig.booked(n), rig.given(n)), (2.0, 2.0), "node {n}");
    }
    assert_eq!(rig.booked(3), 0.0, "the data end there");
    assert_eq!(rig.kinds(3), [QosType::RESERVE, QosType::COMMIT]);
    assert_eq!(rig.kinds(0), [QosType::SUCCESS, QosType::SUCCESS]);
    let (reserve, commit) = (rig.last(3, QosType::RESERVE), rig.last(3, QosType::COMMIT));
    let (reserve, commit) = (reserve.message(), commit.message());
    assert_eq!((reserve.sequence, commit.sequence), (Some(1), Some(2)));
    assert_eq!(reserve.age, commit.age);
    let answers: Vec<_> = rig.seen.iter().filter(|one| one.to == 0).map(|one| one.message().echo).collect();
    assert_eq!(answers, [Some(1), Some(2)]);
}

/// CASPQOS-2-11, CASPQOS-2-35, CASPQOS-4-01, CASPQOS-4-02, CASPQOS-A.1-04, CASPQOS-A.2-12: what requests contain.
#[test]
fn requests_have_their_objects() {
    let mut rig = Rig::standing(2, Range::only(mbit(1.0)));
    rig.release(0, 1);
    let release = rig.last(1, QosType::RELEASE);
    let release = release.message();
    assert_eq!((release.version, release.sequence), (None, Some(3)));
    assert_eq!(release.flags, QosFlags::REMOVE);
    let mut rig = Rig::new(2);
    let amount = signalbox_casp::clients::qos::Amount::Flowspec(crate::rig::flowspec(1.0));
    let request = rig.request(Range::only(amount));
    rig.reserve(0, 1, &request);
    for kind in [QosType::RESERVE, QosType::COMMIT] {
        let packet = rig.last(1, kind);
        let message = packet.message();
        assert_eq!((message.version, message.desired), (Some(QosVersion::FLOWSPEC), None));
        assert!(message.minimum.is_some() && message.age.is_some());
        assert_eq!(packet.data[4] & 0x0f, 0);
    }
}

/// CASPQOS-2-13, CASPQOS-2-14, CASPQOS-2-16, CASPQOS-4-07, CASPQOS-A.1-13: a Release frees all nodes. The session of the
/// messaging layer ends after its answer.
#[test]
fn a_release_frees_the_path() {
    let mut rig = Rig::standing(4, Range::only(mbit(2.0)));
    rig.deaf = Some(0);
    rig.release(0, 1);
    assert_eq!(rig.nodes[0].torn_down, 0);
    for n in 0..3 {
        assert_eq!((rig.booked(n), rig.given(n)), (0.0, 0.0), "node {n}");
    }
    assert_eq!(rig.kinds(3), [QosType::RELEASE]);
    let mut rig = Rig::standing(4, Range::only(mbit(2.0)));
    rig.release(0, 1);
    assert_eq!(rig.events(0), [QosEvent::Released { confirmed: true }]);
    assert_eq!(rig.nodes[0].torn_down, 1);
    let answer = rig.last(0, QosType::SUCCESS);
    assert_eq!((answer.message().version, answer.message().echo), (Some(QosVersion::BANDWIDTH), Some(3)));
    assert!(rig.nodes.iter().all(|node| node.client.sessions() == 0));
    // R clear is obeyed too.
    let mut rig = Rig::standing(3, Range::only(mbit(2.0)));
    let mut release = QosMessage::new(QosType::RELEASE, flow(3));
    release.sequence = Some(9);
    let packet = rig.packet(1, 0, SessionId([2; 16]), &release);
    rig.inject(packet);
    assert_eq!(rig.booked(1), 0.0);
}

/// CASPQOS-2-15, CASPQOS-4-07: a Release without reservation goes on; the last node answers with Error 11.
#[test]
fn a_release_of_nothing_goes_to_the_end() {
    let mut rig = Rig::new(4);
    let mut release = QosMessage::new(QosType::RELEASE, flow(4));
    release.sequence = Some(9);
    let packet = rig.packet(1, 0, SessionId([7; 16]), &release);
    rig.inject(packet);
    assert_eq!(rig.kinds(3), [QosType::RELEASE]);
    let error = rig.last(0, QosType::ERROR);
    let error = error.message();
    assert_eq!(error.error, Some((QosErrorCode::NO_RESERVATION, 0)));
    assert_eq!((error.version, error.echo), (Some(QosVersion::FLOWSPEC), Some(9)));
}

/// CASPQOS-2-05, CASPQOS-2-18, CASPQOS-2-39, CASPQOS-A.1-10, CASPQOS-2-06: with C the receiver commits in one exchange, and
/// the source answers nothing.
#[test]
fn the_receiver_commits_at_once() {
    let mut rig = Rig::new(4);
    let request = QosRequest { at_once: true, ..rig.request(Range::only(mbit(2.0))) };
    rig.reserve(0, 1, &request);
    assert_eq!(rig.kinds(3), [QosType::RESERVE]);
    assert_eq!(rig.kinds(0), [QosType::COMMIT]);
    let commit = rig.last(0, QosType::COMMIT);
    assert_eq!(commit.message().echo, Some(1));
    assert_eq!(commit.message().age, rig.last(3, QosType::RESERVE).message().age);
    for n in 0..3 {
        assert_eq!(rig.booked(n), 2.0, "node {n}");
    }
    for n in 1..3 {
        assert_eq!(rig.given(n), 2.0, "node {n}");
    }
    assert!(matches!(rig.events(0)[..], [_, QosEvent::Committed { .. }]), "{:?}", rig.events(0));
    assert_eq!(rig.given(0), 2.0);
}

/// CASPQOS-2-39: a Commit that fails on its way back is reported to both ends.
#[test]
fn a_failed_commit_of_the_receiver_is_reported_to_both() {
    let mut rig = Rig::new(3);
    let mut commit = QosMessage::new(QosType::COMMIT, flow(3));
    (commit.sequence, commit.echo, commit.age) = (Some(1), Some(7), Some(5));
    commit.version = Some(QosVersion::BANDWIDTH);
    commit.bandwidth = Some(signalbox_casp::wire::qos::Bandwidth { upper: 20.0 * MBIT, lower: 20.0 * MBIT });
    let packet = rig.packet(1, 2, SessionId([7; 16]), &commit);
    rig.inject(packet);
    assert_eq!(rig.last(2, QosType::ERROR).message().echo, Some(1));
    assert_eq!(rig.last(0, QosType::ERROR).message().echo, Some(7));
}

/// CASPQOS-1-02, CASPQOS-1-03, CASPQOS-1-04: the receiver reserves in the session of a Query of the source, and stays within
/// its bounds.
#[test]
fn the_receiver_reserves_within_what_the_source_suggests() {
    let mut rig = Rig::new(4);
    let request = rig.request(between(1.0, 3.0));
    rig.query(0, 1, &request);
    assert_eq!(rig.events(0).last(), Some(&QosEvent::Available { amount: Some(mbit(3.0)) }));
    let QosEvent::Suggested { session, range, .. } = rig.events(3)[0].clone() else { panic!() };
    assert_eq!(range, between(1.0, 3.0));
    let request = QosRequest { session: Some(session), range: between(2.0, 5.0), ..request };
    rig.reserve(3, 2, &request);
    assert_eq!(rig.events(3).last(), Some(&QosEvent::Committed { amount: mbit(3.0) }));
    for n in 0..3 {
        assert_eq!((rig.booked(n), rig.given(n)), (3.0, 3.0), "node {n}");
    }
    let over = QosRequest { range: between(4.0, 5.0), ..request };
    let mut rig2 = Rig::new(4);
    rig2.query(0, 1, &QosRequest { session: None, range: between(1.0, 3.0), ..request });
    rig2.reserve(3, 2, &over);
    assert_eq!(rig2.refused(3).0, QosErrorCode::BELOW_MINIMUM);
    assert_eq!(rig2.booked(0), 0.0);
}

/// CASPQOS-1-02: a source asks the receiver to reserve. No user of the receiver takes part; both ends refresh what stands, and
/// the source ends it.
#[test]
fn the_receiver_reserves_because_the_source_asks() {
    let mut rig = Rig::new(4);
    let request = QosRequest { by_receiver: true, ..rig.request(between(1.0, 3.0)) };
    rig.reserve(0, 1, &request);
    assert_eq!(rig.events(0).last(), Some(&QosEvent::Committed { amount: mbit(3.0) }));
    assert!(rig.kinds(0).contains(&QosType::RESERVE) && !rig.kinds(3).contains(&QosType::RESERVE));
    rig.wait(Duration::from_secs(500));
    for n in 0..3 {
        assert_eq!((rig.booked(n), rig.given(n)), (3.0, 3.0), "node {n}");
    }
    assert_eq!(rig.events(0).len(), 3, "{:?}", rig.events(0));
    rig.release(0, 1);
    assert_eq!(rig.events(0).last(), Some(&QosEvent::Released { confirmed: true }));
    assert!((0..4).all(|n| rig.booked(n) == 0.0));
}

/// Where the path has no room, the source learns it before the receiver is asked.
#[test]
fn the_receiver_is_not_asked_for_what_the_path_has_not() {
    let mut rig = Rig::new(4);
    rig.occupy(1, 9.0);
    let request = QosRequest { by_receiver: true, ..rig.request(Range::only(mbit(2.0))) };
    rig.reserve(0, 1, &request);
    assert_eq!(rig.refused(0).0, QosErrorCode::BELOW_MINIMUM);
    assert!((0..4).all(|n| rig.booked(n) == if n == 1 { 9.0 } else { 0.0 }));
}

/// CASPQOS-2-02, CASPQOS-2-03, CASPQOS-2-32, CASPQOS-4-05: a Query changes nothing, and its answer says what there is.
#[test]
fn a_query_changes_nothing() {
    let mut rig = Rig::standing(4, Range::only(mbit(2.0)));
    rig.occupy(1, 5.0);
    let mut request = rig.request(between(0.5, 6.0));
    request.flow = to_port(4, 601);
    rig.query(0, 2, &request);
    let QosEvent::Available { amount: Some(amount) } = rig.events(0).last().unwrap().clone() else {
        panic!()
    };
    assert!((2.98..=3.0).contains(&(amount.rate() / MBIT)), "{amount:?}");
    let answer = rig.last(0, QosType::SUCCESS);
    assert!(answer.message().bandwidth.is_some() && answer.message().desired.is_none());
    for n in 0..3 {
        assert_eq!(rig.given(n), if n == 1 { 7.0 } else { 2.0 }, "node {n}");
    }
}

/// CASPQOS-1-07, CASPQOS-1-08: when it has a reservation, the receiver reserves for its own data to the source, in a session of
/// its own whose way does not lead over all nodes of the first one. Each session is refreshed, changed (CASPQOS-7-11) and released
/// without the other one.
#[test]
fn the_other_direction_has_its_own_session() {
    let mut rig = Rig::standing(4, Range::only(mbit(2.0)));
    rig.around = Some(1);
    let back = QosRequest { flow: flow(4).reversed(), ..rig.request(Range::only(mbit(1.0))) };
    rig.reserve(3, 5, &back);
    let QosEvent::Opened { session } = rig.events(3)[0].clone() else { panic!("{:?}", rig.events(3)) };
    assert_ne!(session, SessionId([2; 16]));
    let amount = mbit(1.0);
    assert_eq!(rig.events(3)[1..], [QosEvent::Reserved { amount }, QosEvent::Committed { amount }]);
    assert!(
        rig.seen.iter().all(|one| one.session == session && one.to != 1),
        "messages of the other session"
    );
    let booked = |rig: &Rig| [0, 1, 2, 3].map(|n| rig.both(n));
    assert_eq!(booked(&rig), [[2.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 1.0]]);
    rig.wait(Duration::from_secs(500));
    rig.change(0, 1, Range::only(mbit(3.0)));
    assert_eq!(booked(&rig), [[3.0, 0.0], [3.0, 0.0], [3.0, 1.0], [0.0, 1.0]]);
    rig.release(0, 1);
    assert_eq!(booked(&rig), [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]);
    rig.release(3, 5);
    assert!(rig.nodes.iter().all(|node| node.client.sessions() == 0));
}

/// CASPQOS-2-08: a Commit of what is reserved needs nothing more, so that it does not fail at a link that is full by now.
#[test]
fn a_commit_of_what_is_reserved_does_not_fail() {
    let mut rig = Rig::new(3);
    let mut message = QosMessage::new(QosType::RESERVE, flow(3));
    with_rate(&mut message, 2.0);
    (message.sequence, message.age) = (Some(1), Some(5));
    let session = SessionId([7; 16]);
    let packet = rig.packet(1, 0, session, &message);
    rig.inject(packet);
    rig.occupy(1, 7.5);
    assert_eq!((rig.booked(1), rig.given(1)), (9.5, 7.5));
    (message.kind, message.sequence) = (QosType::COMMIT, Some(2));
    let packet = rig.packet(1, 0, session, &message);
    rig.inject(packet);
    assert_eq!((rig.booked(1), rig.given(1)), (9.5, 9.5));
    assert_eq!(rig.kinds(2), [QosType::RESERVE, QosType::COMMIT]);
    assert_eq!(rig.kinds(0), [QosType::SUCCESS, QosType::SUCCESS]);
}

/// CASPQOS-2-12, CASPQOS-2-09: a Commit alone admits and commits; one with another AGE takes the place of what was reserved.
#[test]
fn a_commit_of_another_reservation() {
    let mut rig = Rig::new(3);
    let mut commit = QosMessage::new(QosType::COMMIT, flow(3));
    (commit.sequence, commit.age) = (Some(1), Some(5));
    with_rate(&mut commit, 2.0);
    let session = SessionId([7; 16]);
    let packet = rig.packet(1, 0, session, &commit);
    rig.inject(packet);
    assert_eq!((rig.booked(1), rig.given(1)), (2.0, 2.0));
    (commit.sequence, commit.age) = (Some(2), Some(6));
    with_rate(&mut commit, 1.0);
    let packet = rig.packet(1, 0, session, &commit);
    rig.inject(packet);
    assert_eq!((rig.booked(1), rig.given(1)), (1.0, 1.0));
}

/// CASPQOS-2-10, CASPQOS-2-26: a refused change leaves the reservation, on all nodes.
#[test]
fn a_refused_change_leaves_what_stood() {
    let mut rig = Rig::standing(4, Range::only(mbit(2.0)));
    rig.occupy(2, 6.0);
    rig.change(0, 1, Range::only(mbit(8.0)));
    assert_eq!(rig.refused(0).0, QosErrorCode::BELOW_MINIMUM);
    let error = rig.last(0, QosType::ERROR);
    assert!(!error.message().flags.contains(QosFlags::REMOVE));
    assert_eq!(error.message().error_node, Some(at(2)));
    for n in 0..3 {
        let others = if n == 2 { 6.0 } else { 0.0 };
        assert_eq!((rig.booked(n), rig.given(n)), (2.0 + others, 2.0 + others), "node {n}");
    }
    // It is refreshed as before.
    rig.wait(Duration::from_secs(300));
    assert_eq!((rig.booked(1), rig.given(1)), (2.0, 2.0));
    rig.change(0, 1, Range::only(mbit(3.0)));
    assert_eq!((rig.booked(1), rig.given(1), rig.given(2)), (3.0, 3.0, 9.0));
}

/// CASPQOS-5-03, CASPQOS-3.1-01, CASPQOS-3.1-03, CASPQOS-5.3-01: the answer names the kind of resource; a change keeps it.
#[test]
fn answers_name_the_kind_of_resource() {
    let amount =
        |mbit| Range::only(signalbox_casp::clients::qos::Amount::Flowspec(crate::rig::flowspec(mbit)));
    let mut rig = Rig::standing(3, amount(2.0));
    assert_eq!(rig.given(1), 2.0);
    rig.change(0, 1, amount(1.0));
    assert_eq!(rig.last(0, QosType::SUCCESS).message().version, Some(QosVersion::FLOWSPEC));
    assert_eq!(rig.given(1), 1.0);
}

/// A receiver without CASP is answered for by the last node, if that is configured.
#[test]
fn the_last_node_answers_for_a_plain_receiver() {
    for proxy in [false, true] {
        let mut rig = Rig::with(3, Config { proxy, ..Config::default() });
        let mut request = rig.request(Range::only(mbit(2.0)));
        request.flow = flow(5);
        rig.reserve(0, 1, &request);
        assert_eq!(rig.booked(1), if proxy { 2.0 } else { 0.0 });
        assert_eq!(rig.booked(2), if proxy { 2.0 } else { 0.0 });
    }
}

/// O18: a Reserve waits for its route when the Release of its session arrives, or when the session ends. Neither the Reserve nor the
/// Commit behind it reserves any more, here or at the nodes behind.
#[test]
fn a_request_that_waits_ends_with_its_session() {
    let session = SessionId([7; 16]);
    let mut release = QosMessage::new(QosType::RELEASE, flow(3));
    release.sequence = Some(9);
    for (standing, ended) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut rig = Rig::new(3);
        let mut message = QosMessage::new(QosType::RESERVE, flow(3));
        with_rate(&mut message, 2.0);
        let request = |kind, sequence| QosMessage { kind, sequence: Some(sequence), age: Some(5), ..message };
        if standing {
            let packet = rig.packet(1, 0, session, &request(QosType::RESERVE, 1));
            rig.inject(packet);
            assert_eq!(rig.booked(1), 2.0);
        }
        rig.clear();
        rig.slow_routes = true;
        for (kind, sequence) in [(QosType::RESERVE, 2), (QosType::COMMIT, 3)] {
            let packet = rig.packet(1, 0, session, &request(kind, sequence));
            rig.inject(packet);
        }
        if ended {
            rig.indicate(1, &Indication::Ended { session, flow: flow(3), torn_down: true });
        } else {
            let packet = rig.packet(1, 0, session, &release);
            rig.inject(packet);
        }
        rig.routed();
        assert_eq!((rig.booked(1), rig.given(1), rig.booked(2)), (0.0, 0.0, 0.0), "{standing} {ended}");
        let onward: Vec<_> = rig.kinds(2);
        assert_eq!(onward, if ended { vec![] } else { vec![QosType::RELEASE] });
        assert_eq!(rig.nodes[1].client.sessions(), 0);
    }
}

/// A Release of another hop ends no request that waits.
#[test]
fn a_request_that_waits_stays_when_another_hop_releases() {
    let session = SessionId([7; 16]);
    let mut rig = Rig::new(3);
    rig.slow_routes = true;
    let mut message = QosMessage::new(QosType::RESERVE, flow(3));
    with_rate(&mut message, 2.0);
    (message.sequence, message.age) = (Some(1), Some(5));
    let packet = rig.packet(1, 0, session, &message);
    rig.inject(packet);
    let mut release = QosMessage::new(QosType::RELEASE, flow(3));
    release.sequence = Some(9);
    let packet = rig.packet(1, 2, session, &release);
    rig.inject(packet);
    rig.routed();
    assert_eq!(rig.booked(1), 2.0);
}
