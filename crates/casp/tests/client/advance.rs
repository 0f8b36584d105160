//! Reservations in advance.

use std::time::Duration;

use signalbox_casp::clients::qos::{QosEvent, QosRequest, Range};
use signalbox_casp::wire::FlowId;
use signalbox_casp::wire::qos::{QosErrorCode, QosMessage, QosType};
use signalbox_core::SessionId;

use crate::rig::{LIFETIME, Rig, WALL_US, flow, mbit, with_rate};

const SECOND: Duration = Duration::from_secs(1);

/// Seconds from now as microseconds since 1970.
fn wall_clock_in(rig: &Rig, seconds: u64) -> u64 {
    WALL_US + rig.now.as_micros() + seconds * 1_000_000
}

/// A request for a start and an end, seconds from now.
fn request(rig: &Rig, start: u64, end: u64) -> QosRequest {
    let time = Some((wall_clock_in(rig, start), wall_clock_in(rig, end)));
    QosRequest { time, ..rig.request(Range::only(mbit(2.0))) }
}

/// An NTP timestamp, seconds from now.
fn stamp(rig: &Rig, seconds: u64) -> u64 {
    (wall_clock_in(rig, seconds) / 1_000_000 + 2_208_988_800) << 32
}

/// CASPQOS-9-05: the state is there from the first message to the end, and the flow has its resources from the start on. Then
/// nothing is left, although no message says so.
#[test]
fn the_flow_is_served_from_the_start_to_the_end() {
    let mut rig = Rig::new(3);
    let asked = request(&rig, 600, 900);
    rig.reserve(0, 1, &asked);
    assert!(matches!(rig.events(0).last(), Some(QosEvent::Committed { .. })), "{:?}", rig.events(0));
    let stamps = (stamp(&rig, 600), stamp(&rig, 900));
    for kind in [QosType::RESERVE, QosType::COMMIT] {
        assert_eq!(rig.last(2, kind).message().time, Some(stamps));
    }
    let state = |rig: &Rig| [0, 1].map(|n| (rig.booked(n), rig.given(n)));
    rig.wait(SECOND * 599);
    assert_eq!(state(&rig), [(2.0, 0.0); 2]);
    rig.wait(SECOND * 2);
    assert_eq!(state(&rig), [(2.0, 2.0); 2]);
    rig.wait(SECOND * 298);
    assert_eq!(state(&rig), [(2.0, 2.0); 2]);
    rig.clear();
    rig.wait(SECOND * 2);
    assert_eq!((state(&rig), rig.events(0)), ([(0.0, 0.0); 2], vec![QosEvent::Released { confirmed: true }]));
    assert!(rig.nodes.iter().all(|node| node.client.sessions() == 0));
}

/// CASPQOS-9-05: a node on the path ends it by its own clock, if the originator is gone.
#[test]
fn each_node_ends_it_by_itself() {
    let mut rig = Rig::new(3);
    let asked = request(&rig, 20, 40);
    rig.reserve(0, 1, &asked);
    rig.deaf = Some(1);
    rig.wait(SECOND * 30);
    assert_eq!((rig.booked(1), rig.given(1)), (2.0, 2.0));
    rig.wait(SECOND * 11);
    assert_eq!((rig.booked(1), rig.nodes[1].client.sessions()), (0.0, 0));
}

/// CASPQOS-9-04, CASPQOS-9-05: a start of 0, and one that is past, mean now.
#[test]
fn a_start_of_zero_is_now() {
    for start in [0, 1_000_000] {
        let mut rig = Rig::new(3);
        let time = Some((start, wall_clock_in(&rig, 40)));
        let asked = QosRequest { time, ..rig.request(Range::only(mbit(2.0))) };
        rig.reserve(0, 1, &asked);
        assert_eq!((rig.booked(1), rig.given(1)), (2.0, 2.0));
        rig.wait(SECOND * 41);
        assert_eq!(rig.booked(1), 0.0);
    }
}

/// CASPQOS-9-07: an end before the start or before now, and a start more than a day ahead, are refused.
#[test]
fn impossible_times_are_refused() {
    for (start, end, possible) in
        [(60, 61, true), (86_399, 86_401, true), (61, 60, false), (60, 60, false), (86_500, 90_000, false)]
    {
        let mut rig = Rig::new(3);
        let asked = request(&rig, start, end);
        rig.reserve(0, 1, &asked);
        assert_eq!(rig.booked(1) == 2.0, possible, "{start} {end}");
        if !possible {
            assert_eq!(rig.refused(0), (QosErrorCode::TIME, 0));
        }
        let mut rig = Rig::new(3);
        let mut message = QosMessage::new(QosType::RESERVE, flow(3));
        (message.sequence, message.age) = (Some(1), Some(5));
        message.time = Some((stamp(&rig, start), stamp(&rig, end)));
        with_rate(&mut message, 2.0);
        let packet = rig.packet(1, 0, SessionId([7; 16]), &message);
        rig.inject(packet);
        assert_eq!(rig.booked(1) == 2.0, possible, "{start} {end}");
        if !possible {
            assert_eq!(rig.last(0, QosType::ERROR).message().error, Some((QosErrorCode::TIME, 0)));
        }
    }
}

/// CASPQOS-9-05: what is reserved in advance is taken from others until then, also in both directions, and goes without
/// refreshes like every other reservation.
#[test]
fn what_is_reserved_in_advance_is_taken() {
    let mut rig = Rig::new(3);
    let asked = QosRequest { both: true, range: Range::only(mbit(8.0)), ..request(&rig, 600, 900) };
    rig.reserve(0, 1, &asked);
    assert_eq!((rig.both(1), rig.given(1)), ([8.0, 8.0], 0.0));
    rig.reserve(0, 2, &rig.request(Range::only(mbit(3.0))));
    assert_eq!(rig.refused(0), (QosErrorCode::BELOW_MINIMUM, 0));
    rig.deaf = Some(1);
    rig.wait(SECOND * LIFETIME);
    assert_eq!(rig.both(1), [0.0, 0.0]);
}

/// CASPQOS-9-05: a release before the start frees the path, and no Release of the past comes at the end.
#[test]
fn a_release_before_the_start_frees_the_path() {
    let mut rig = Rig::new(3);
    let asked = request(&rig, 600, 900);
    rig.reserve(0, 1, &asked);
    rig.release(0, 1);
    assert_eq!(rig.events(0).last(), Some(&QosEvent::Released { confirmed: true }));
    rig.clear();
    rig.wait(SECOND * 1000);
    assert_eq!((rig.booked(1), rig.seen.len()), (0.0, 0));
}

/// CASPQOS-9-05: the receiver reserves for the time that the source suggests.
#[test]
fn the_receiver_reserves_in_advance() {
    let mut rig = Rig::new(3);
    let asked = QosRequest { by_receiver: true, ..request(&rig, 600, 900) };
    rig.reserve(0, 1, &asked);
    assert!(matches!(rig.events(0).last(), Some(QosEvent::Committed { .. })), "{:?}", rig.events(0));
    assert_eq!((rig.booked(1), rig.given(1)), (2.0, 0.0));
    rig.wait(SECOND * 601);
    assert_eq!((rig.booked(1), rig.given(1)), (2.0, 2.0));
    rig.wait(SECOND * 300);
    assert_eq!(rig.booked(1), 0.0);
    assert_eq!(rig.events(0).last(), Some(&QosEvent::Released { confirmed: true }));
    assert!(rig.nodes.iter().all(|node| node.client.sessions() == 0));
}

/// CASPQOS-9-05: a reservation takes its resources in its time only. Another one that begins at its end gets the same ones, and the kernel
/// never has both.
#[test]
fn one_reservation_follows_another() {
    let mut rig = Rig::new(3);
    let asked = |rig: &Rig, port, start, end, rate| {
        let flow = match flow(3) {
            FlowId::V4Ports { src, dst, src_port, protocol, .. } => {
                FlowId::V4Ports { src, dst, src_port, dst_port: port, protocol }
            }
            other => panic!("{other:?}"),
        };
        QosRequest { flow, range: Range::only(mbit(rate)), ..request(rig, start, end) }
    };
    for (id, (start, end, rate)) in
        [(600, 900, 8.0), (900, 1200, 8.0), (800, 1000, 2.0)].into_iter().enumerate()
    {
        let asked = asked(&rig, 7000 + u16::try_from(id).unwrap(), start, end, rate);
        rig.reserve(0, 1 + id as u64, &asked);
        assert!(matches!(rig.events(0).last(), Some(QosEvent::Committed { .. })), "{:?}", rig.events(0));
    }
    let more = asked(&rig, 8000, 899, 901, 1.0);
    rig.reserve(0, 9, &more);
    assert_eq!(rig.refused(0), (QosErrorCode::BELOW_MINIMUM, 0));
    assert_eq!(rig.booked(1), 10.0);
    let mut given = Vec::new();
    for _ in 0..1250 {
        rig.wait(SECOND);
        let now = [0, 1].map(|n| rig.given(n));
        if given.last() != Some(&now) {
            given.push(now);
        }
    }
    assert_eq!(given, [0.0, 8.0, 10.0, 8.0, 0.0].map(|mbit| [mbit; 2]));
    assert!(rig.nodes.iter().all(|node| node.client.sessions() == 0));
}

/// CASPQOS-9-05: a flow has a reservation in advance after another one, but not two at one moment. The kernel
/// never has both.
#[test]
fn one_flow_has_one_after_another() {
    let mut rig = Rig::new(3);
    for (id, (start, end, free)) in
        [(600, 900, true), (800, 1000, false), (900, 1200, true), (0, 100, true)].into_iter().enumerate()
    {
        let asked = request(&rig, start, end);
        rig.reserve(0, 1 + id as u64, &asked);
        let stands = matches!(rig.events(0).last(), Some(QosEvent::Committed { .. }));
        assert_eq!(stands, free, "{start} {:?}", rig.events(0));
    }
    let mut given = Vec::new();
    for _ in 0..1250 {
        let now = [0, 1].map(|n| rig.given(n));
        if given.last() != Some(&now) {
            given.push(now);
        }
        rig.wait(SECOND);
    }
    assert_eq!(given, [2.0, 0.0, 2.0, 0.0].map(|mbit| [mbit; 2]));
    assert!(rig.nodes.iter().all(|node| node.client.sessions() == 0));
}

/// Who reserves in advance chooses when the reservations end. If many end together, one call ends a part of them.
#[test]
fn periods_that_end_together_end_in_parts() {
    const SESSIONS: u16 = 1000;
    let mut rig = Rig::new(3);
    for n in 0..SESSIONS {
        let FlowId::V4Ports { src, dst, src_port, protocol, .. } = flow(3) else { panic!("a flow of IPv4") };
        let flow = FlowId::V4Ports { src, dst, src_port, dst_port: 7000 + n, protocol };
        let range = Range::only(mbit(0.001));
        let asked = QosRequest { flow, range, ..request(&rig, 0, 20) };
        rig.reserve(0, u64::from(n) + 1, &asked);
    }
    let end = rig.now + SECOND * 21;
    let node = &mut rig.nodes[1];
    let mut left = vec![node.client.sessions()];
    while node.client.sessions() > 0 {
        assert!(node.client.next_deadline().is_some_and(|next| next <= end), "the rest stays due");
        node.client.timer(end, &mut node.resources);
        while node.client.poll().is_some() {}
        left.push(node.client.sessions());
    }
    let most = left.windows(2).map(|pair| pair[0] - pair[1]).max();
    // The ends of periods, and the other timers of sessions.
    assert!(most.is_some_and(|most| most <= 2 * 256), "{left:?}");
    assert_eq!(left[0], u32::from(SESSIONS));
}
