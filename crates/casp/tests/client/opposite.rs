//! A receiver that reserves the opposite flow over the same nodes, in the same exchange.

use std::time::Duration;

use signalbox_casp::clients::qos::{Config, QosEvent, QosRequest, Range};
use signalbox_casp::wire::qos::{QosErrorCode, QosType};

use crate::rig::{BACK, LIFETIME, Rig, at, between, flow, mbit};

fn rig() -> Rig {
    Rig::with(4, Config { reserve_opposite: true, ..Config::default() })
}

fn standing(range: Range) -> Rig {
    let mut rig = rig();
    let request = rig.request(range);
    rig.reserve(0, 1, &request);
    assert!(matches!(rig.events(0).last(), Some(QosEvent::Committed { .. })), "{:?}", rig.events(0));
    rig
}

fn all(rig: &Rig) -> [[f64; 2]; 4] {
    [0, 1, 2, 3].map(|n| rig.both(n))
}

/// What the nodes hold, if each direction has this much.
const fn held(mbit: f64) -> [[f64; 2]; 4] {
    [[mbit, 0.0], [mbit, mbit], [mbit, mbit], [0.0, mbit]]
}

/// CASPQOS-1-06, CASPQOS-2-06: the Reserve of the receiver answers that of the source, and both directions are held at each
/// node. Both ends refresh what is theirs, and the Release of the source frees all.
#[test]
fn one_exchange_reserves_both_directions() {
    let mut rig = standing(Range::only(mbit(2.0)));
    assert_eq!(all(&rig), held(2.0));
    for (n, given) in [2.0, 4.0, 4.0, 2.0].into_iter().enumerate() {
        assert_eq!(rig.given(n), given, "node {n}");
    }
    assert_eq!(rig.kinds(0), [QosType::RESERVE, QosType::SUCCESS, QosType::COMMIT]);
    assert_eq!(rig.kinds(3), [QosType::RESERVE, QosType::COMMIT, QosType::SUCCESS, QosType::SUCCESS]);
    let answer = rig.last(0, QosType::RESERVE);
    assert_eq!((answer.flow, answer.message().flow, answer.message().echo), (flow(4), flow(4), Some(1)));
    assert_eq!(answer.message().reverse_flow, Some((flow(4).reversed(), false)));
    let back = rig.nodes[2].installed.values().find(|one| one.ifindex == BACK).unwrap();
    assert_eq!(back.filters, [flow(4).reversed().filter()]);
    rig.clear();
    rig.wait(Duration::from_secs(u64::from(LIFETIME) * 5));
    assert_eq!((all(&rig), rig.events(0)), (held(2.0), vec![]));
    rig.release(0, 1);
    assert_eq!((all(&rig), rig.events(0)), (held(0.0), vec![QosEvent::Released { confirmed: true }]));
    assert!(rig.nodes.iter().all(|node| node.client.sessions() == 0));
}

/// CASPQOS-1-06: the opposite flow gets what the path of the flow has. If there is no room for it, the source learns that, and
/// nothing is left.
#[test]
fn the_opposite_flow_fails_with_the_flow() {
    let mut rig = rig();
    rig.occupy(1, 8.5);
    let request = rig.request(between(1.0, 2.0));
    rig.reserve(0, 1, &request);
    assert!((rig.both(2)[0] - 1.5).abs() < 0.02 && (rig.both(2)[1] - 1.5).abs() < 0.02, "{:?}", all(&rig));
    let mut rig = self::rig();
    rig.occupy_at(1, BACK, 9.0);
    let request = rig.request(Range::only(mbit(2.0)));
    rig.reserve(0, 1, &request);
    assert!(
        matches!(
            rig.events(0).last(),
            Some(QosEvent::Refused { code: QosErrorCode::BELOW_MINIMUM, node: Some(node), stands: false, .. })
                if *node == at(1)
        ),
        "{:?}",
        rig.events(0)
    );
    let mut left = held(0.0);
    left[1][1] = 9.0;
    assert_eq!(all(&rig), left);
    assert!(rig.nodes.iter().all(|node| node.client.sessions() == 0));
}

/// CASPQOS-1-06: a change is for both directions. If the opposite one fails, what stood before stands.
#[test]
fn a_change_is_answered_by_a_change() {
    let mut rig = standing(Range::only(mbit(2.0)));
    rig.change(0, 1, Range::only(mbit(3.0)));
    assert_eq!(all(&rig), held(3.0));
    rig.occupy_at(2, BACK, 5.0);
    rig.change(0, 1, Range::only(mbit(6.0)));
    assert!(
        matches!(rig.events(0).last(), Some(QosEvent::Refused { stands: true, .. })),
        "{:?}",
        rig.events(0)
    );
    rig.wait(Duration::from_secs(u64::from(LIFETIME) * 2));
    let mut left = held(3.0);
    left[2][1] = 8.0;
    assert_eq!(all(&rig), left);
}

/// CASPQOS-1-06: the loss of the opposite direction ends the session.
#[test]
fn the_loss_of_the_opposite_direction_ends_both() {
    let mut rig = standing(Range::only(mbit(2.0)));
    rig.clear();
    rig.lose(2, BACK);
    assert_eq!(rig.events(0), [QosEvent::Lost { code: QosErrorCode::PREEMPTED }]);
    assert_eq!(all(&rig), held(0.0));
}

/// CASPQOS-1-06: without their source both directions expire.
#[test]
fn without_the_source_both_directions_end() {
    let mut rig = standing(Range::only(mbit(2.0)));
    rig.deaf = Some(1);
    rig.wait(Duration::from_secs(u64::from(LIFETIME) * 4));
    assert_eq!(all(&rig), held(0.0));
    assert!(rig.nodes[1..].iter().all(|node| node.client.sessions() == 0));
}

/// CASPQOS-1-06: a source that asks for both directions itself, or for an answer by Commit, gets no second reservation.
#[test]
fn one_reservation_for_the_opposite_flow_is_enough() {
    for (both, at_once) in [(true, false), (true, true), (false, true)] {
        let mut rig = rig();
        let request = QosRequest { both, at_once, ..rig.request(Range::only(mbit(2.0))) };
        rig.reserve(0, 1, &request);
        assert!(matches!(rig.events(0).last(), Some(QosEvent::Committed { .. })), "{:?}", rig.events(0));
        assert_eq!(all(&rig)[1], [2.0, if both { 2.0 } else { 0.0 }]);
        assert_eq!(rig.seen.iter().filter(|one| one.message().kind == QosType::RESERVE).count(), 3);
    }
}

/// CASPQOS-1-06: a part of the path will do for the opposite flow, if it does for the flow.
#[test]
fn a_part_of_the_path_will_do_for_both() {
    let mut rig = rig();
    rig.occupy_at(1, BACK, 9.0);
    let request = QosRequest { partial: Some((1, 0)), ..rig.request(Range::only(mbit(2.0))) };
    rig.reserve(0, 1, &request);
    assert!(matches!(rig.events(0).last(), Some(QosEvent::Committed { .. })), "{:?}", rig.events(0));
    let mut held = held(2.0);
    held[1][1] = 9.0;
    assert_eq!(all(&rig), held);
}
