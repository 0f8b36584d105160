//! Bounds, and partial reservations.

use signalbox_casp::clients::qos::{Amount, QosEvent, QosRequest, Range};
use signalbox_casp::wire::qos::{QosErrorCode, QosFlags, QosMessage, QosType};
use signalbox_core::SessionId;

use crate::rig::{MBIT, Rig, at, between, flow, flowspec, mbit};

/// CASPQOS-1-09, CASPQOS-1-10, CASPQOS-5.1-01, CASPQOS-5.1-02, CASPQOS-5.1-05, CASPQOS-5.1-06, CASPQOS-4-05: each node
/// takes what it has and lowers the upper bound; the way back trims all to the minimum of the path.
#[test]
fn the_path_is_trimmed_to_its_minimum() {
    let mut rig = Rig::new(4);
    rig.occupy(1, 4.0);
    rig.occupy(2, 7.0);
    let request = rig.request(between(1.0, 8.0));
    rig.reserve(0, 1, &request);
    let bound = |rig: &Rig, n| {
        let first =
            rig.seen.iter().find(|one| one.to == n && one.message().kind == QosType::RESERVE).unwrap();
        first.message().bandwidth.unwrap().upper / MBIT
    };
    assert_eq!(bound(&rig, 1), 8.0);
    assert!((5.98..=6.0).contains(&bound(&rig, 2)), "{}", bound(&rig, 2));
    assert!((2.98..=3.0).contains(&bound(&rig, 3)), "{}", bound(&rig, 3));
    let answer = rig.last(0, QosType::SUCCESS);
    assert!(answer.message().echo.is_some());
    for (n, others) in [(0, 0.0), (1, 4.0), (2, 7.0)] {
        let own = rig.booked(n) - others;
        assert!((2.98..=3.0).contains(&own), "node {n}: {own}");
    }
    assert!(
        matches!(rig.events(0).last(), Some(QosEvent::Committed { amount }) if amount.rate() <= 3.0 * MBIT)
    );
}

/// CASPQOS-5.1-03, CASPQOS-2-20, CASPQOS-2-21, CASPQOS-2-19, CASPQOS-2-30, CASPQOS-2-22, CASPQOS-2-25, CASPQOS-A.1-11: under
/// the lower bound the request ends. The Error names the node, and removes what others reserved.
#[test]
fn a_request_under_its_lower_bound_fails() {
    let mut rig = Rig::new(4);
    rig.occupy(2, 9.5);
    let request = rig.request(between(1.0, 8.0));
    rig.reserve(0, 1, &request);
    assert_eq!(rig.refused(0), (QosErrorCode::BELOW_MINIMUM, 0));
    assert_eq!(rig.kinds(3), []);
    let error = rig.last(0, QosType::ERROR);
    let error = error.message();
    assert_eq!((error.echo, error.error_node), (Some(1), Some(at(2))));
    assert!(error.flags.contains(QosFlags::REMOVE));
    assert_eq!(error.partial.unwrap().failed, 1);
    for (n, booked) in [(0, 0.0), (1, 0.0), (2, 9.5)] {
        assert_eq!(rig.booked(n), booked, "node {n}");
    }
}

/// CASPQOS-5.1-04, CASPQOS-A.2-11, CASPQOS-4-05: flowspecs are lowered together, and the answer has the granted one.
#[test]
fn flowspecs_are_lowered_by_their_rate() {
    let mut rig = Rig::new(3);
    rig.occupy(1, 6.0);
    let most = signalbox_casp::wire::qos::Flowspec { bucket: 9000.0, ..flowspec(6.0) };
    let range = Range { least: Amount::Flowspec(flowspec(2.0)), most: Amount::Flowspec(most) };
    let request = rig.request(range);
    rig.reserve(0, 1, &request);
    let reserve = rig.last(2, QosType::RESERVE);
    let granted = reserve.message().desired.unwrap();
    assert!((3.98..=4.0).contains(&(granted.rate / MBIT)), "{granted:?}");
    assert!((5900.0..=6000.0).contains(&granted.bucket), "{granted:?}");
    let answers = rig.seen.iter().filter(|one| one.to == 0);
    let first = answers.map(|one| one.message().desired).next().unwrap();
    assert_eq!(first, Some(granted));
}

/// CASPQOS-A.2-13: one flowspec alone stands for both bounds, of either class.
#[test]
fn one_flowspec_is_both_bounds() {
    for desired in [false, true] {
        let mut rig = Rig::new(3);
        rig.occupy(1, 9.0);
        let mut reserve = reserve(1);
        let bound = Some(flowspec(2.0));
        (reserve.minimum, reserve.desired) = if desired { (None, bound) } else { (bound, None) };
        let packet = rig.packet(1, 0, SessionId([7; 16]), &reserve);
        rig.inject(packet);
        assert_eq!(rig.last(0, QosType::ERROR).message().error, Some((QosErrorCode::BELOW_MINIMUM, 0)));
    }
}

fn reserve(sequence: u32) -> QosMessage<'static> {
    let mut reserve = QosMessage::new(QosType::RESERVE, flow(3));
    (reserve.sequence, reserve.age) = (Some(sequence), Some(5));
    reserve.version = Some(signalbox_casp::wire::qos::QosVersion::FLOWSPEC);
    reserve
}

/// CASPQOS-1-11, CASPQOS-3.2-02, CASPQOS-3.2-04, CASPQOS-3.2-06, CASPQOS-3.2-09, CASPQOS-A.1-14: a tolerated failure is
/// counted, and the node has no part in the reservation.
#[test]
fn a_tolerated_failure_is_counted() {
    let mut rig = Rig::new(4);
    rig.occupy(1, 9.5);
    let request = QosRequest { partial: Some((1, 0)), ..rig.request(Range::only(mbit(2.0))) };
    rig.reserve(0, 1, &request);
    let first = rig.last(1, QosType::RESERVE).message().partial.unwrap();
    assert_eq!((first.failed, first.failures_allowed), (0, 1));
    let at_end = rig.last(3, QosType::RESERVE).message().partial.unwrap();
    assert_eq!((at_end.failed, at_end.failures_allowed), (1, 0));
    assert!(matches!(rig.events(0).last(), Some(QosEvent::Committed { .. })));
    assert_eq!((rig.booked(0), rig.given(0)), (2.0, 2.0));
    assert_eq!((rig.booked(1), rig.booked(2), rig.given(2)), (9.5, 2.0, 2.0));
}

/// CASPQOS-3.2-05, CASPQOS-2-19, CASPQOS-2-31: one failure more than allowed ends the request.
#[test]
fn more_failures_than_allowed_end_the_request() {
    let mut rig = Rig::new(4);
    rig.occupy(1, 9.5);
    rig.occupy(2, 9.5);
    let request = QosRequest { partial: Some((1, 0)), ..rig.request(Range::only(mbit(2.0))) };
    rig.reserve(0, 1, &request);
    assert_eq!(rig.refused(0), (QosErrorCode::TOO_MANY_FAILED, 2));
    assert_eq!(rig.last(0, QosType::ERROR).message().partial.unwrap().failed, 2);
    assert_eq!(rig.booked(0), 0.0);
    // With more allowance it can be tried again.
    rig.clear();
    rig.reserve(0, 2, &QosRequest { partial: Some((2, 0)), ..request });
    assert!(matches!(rig.events(0).last(), Some(QosEvent::Committed { .. })));
}

/// CASPQOS-3.2-03, CASPQOS-3.2-05: nodes without the client are counted by the next one with it.
#[test]
fn nodes_without_the_client_are_counted() {
    for (allowed, refused) in [(2, false), (1, true)] {
        let mut rig = Rig::new(3);
        let mut reserve = reserve(1);
        reserve.minimum = Some(flowspec(1.0));
        reserve.flags = QosFlags::PARTIAL;
        reserve.partial =
            Some(signalbox_casp::wire::qos::Partial { indeterminate_allowed: allowed, ..Default::default() });
        let mut packet = rig.packet(1, 0, SessionId([7; 16]), &reserve);
        packet.hops = 3;
        rig.inject(packet);
        if refused {
            let error = rig.last(0, QosType::ERROR);
            assert_eq!(error.message().error, Some((QosErrorCode::TOO_MANY_INDETERMINATE, 2)));
            assert_eq!(rig.booked(1), 0.0);
        } else {
            let partial = rig.last(2, QosType::RESERVE).message().partial.unwrap();
            assert_eq!((partial.indeterminate, partial.indeterminate_allowed), (2, 0));
        }
    }
}

/// CASPQOS-3.2-08: P without counters is without limit; counters without P only count.
#[test]
fn counters_and_their_flag_are_independent() {
    for (partial, counters) in [(true, false), (false, true)] {
        let mut rig = Rig::new(3);
        rig.occupy(1, 9.5);
        let mut reserve = reserve(1);
        reserve.minimum = Some(flowspec(1.0));
        if partial {
            reserve.flags = QosFlags::PARTIAL;
        }
        reserve.partial = counters
            .then(|| signalbox_casp::wire::qos::Partial { failures_allowed: 5, ..Default::default() });
        let packet = rig.packet(1, 0, SessionId([7; 16]), &reserve);
        rig.inject(packet);
        if partial {
            assert_eq!(rig.kinds(2), [QosType::RESERVE]);
        } else {
            let error = rig.last(0, QosType::ERROR);
            assert_eq!(error.message().error, Some((QosErrorCode::BELOW_MINIMUM, 0)));
            assert_eq!(error.message().partial.unwrap().failed, 1);
        }
    }
}
