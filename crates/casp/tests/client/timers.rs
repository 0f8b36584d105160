//! Refreshes and lifetimes.

use std::time::Duration;

use signalbox_casp::clients::qos::{QosEvent, Range};
use signalbox_casp::engine::Indication;
use signalbox_casp::wire::qos::{QosErrorCode, QosType};
use signalbox_core::SessionId;

use crate::rig::{LIFETIME, Rig, flow, mbit};

const SESSION: SessionId = SessionId([2; 16]);

/// The Reserve and the Commit of the standing reservation, as node 1 got them.
fn kept(rig: &mut Rig) -> (crate::rig::Packet, crate::rig::Packet) {
    rig.wait(Duration::from_secs(60));
    (rig.last(1, QosType::RESERVE), rig.last(1, QosType::COMMIT))
}

/// CASPQOS-2-28, CASPQOS-2-29, CASPQOS-A.2-21, CASPQOS-7-10: both states are refreshed each third of the lifetime, with the
/// same AGE and new numbers, and without a new decision.
#[test]
fn both_states_are_refreshed() {
    let mut rig = Rig::standing(3, Range::only(mbit(2.0)));
    let granted = rig.nodes[1].client.counters().granted;
    let start = rig.now;
    let mut times = Vec::new();
    for _ in 0..9000 {
        let before = rig.seen.len();
        rig.wait(Duration::from_millis(100));
        if rig.seen.len() > before {
            times.push(rig.now.since(start).as_secs_f64());
        }
    }
    let intervals: Vec<f64> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(intervals.len() >= 20, "{}", intervals.len());
    assert!(intervals.iter().all(|one| (14.8..45.2).contains(one)), "{intervals:?}");
    assert!(intervals.iter().any(|one| *one < 22.0) && intervals.iter().any(|one| *one > 38.0));
    let reserves: Vec<_> = rig.seen.iter().filter(|one| one.to == 1).map(|one| one.message()).collect();
    let ages: std::collections::BTreeSet<_> = reserves.iter().filter_map(|one| one.age).collect();
    assert_eq!(ages.len(), 1);
    let numbers: Vec<u32> = reserves.iter().filter_map(|one| one.sequence).collect();
    assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "{numbers:?}");
    assert!(rig.kinds(1).contains(&QosType::COMMIT));
    assert_eq!(rig.nodes[1].client.counters().granted, granted);
    assert_eq!((rig.booked(1), rig.given(1)), (2.0, 2.0));
    assert_eq!(rig.events(0), [], "refreshes make no events");
}

/// CASPQOS-2-23, CASPQOS-2-24, CASPQOS-2-34, CASPQOS-7-13: without its Commit the flow loses its service and the resources stay;
/// without its Reserve too, they go.
#[test]
fn reserve_and_commit_state_end_apart() {
    let mut rig = Rig::standing(3, Range::only(mbit(2.0)));
    let (reserve, commit) = kept(&mut rig);
    // The source is silent from now on.
    rig.nodes[0] = Rig::new(3).nodes.remove(0);
    rig.deaf = Some(0);
    let half = Duration::from_secs(u64::from(LIFETIME) / 2);
    for _ in 0..4 {
        rig.inject(reserve.clone());
        rig.wait(half);
    }
    assert_eq!((rig.booked(1), rig.given(1)), (2.0, 0.0));
    rig.inject(commit.clone());
    assert_eq!((rig.booked(1), rig.given(1)), (2.0, 2.0));
    for _ in 0..4 {
        rig.inject(commit.clone());
        rig.wait(half);
    }
    assert_eq!((rig.booked(1), rig.given(1)), (2.0, 2.0), "Commit state holds the resources alone");
    rig.wait(2 * half);
    assert_eq!((rig.booked(1), rig.given(1)), (0.0, 0.0));
    assert_eq!(rig.nodes[1].client.counters().expired, 3);
    rig.wait(4 * half);
    assert_eq!(rig.nodes[1].client.sessions(), 0);
}

/// CASPQOS-2-38: no answer within a lifetime is reported.
#[test]
fn no_answer_is_reported() {
    let mut rig = Rig::new(3);
    rig.deaf = Some(1);
    let request = rig.request(Range::only(mbit(1.0)));
    rig.reserve(0, 1, &request);
    rig.wait(Duration::from_secs(89));
    assert_eq!(rig.events(0), [QosEvent::Opened { session: SESSION }]);
    rig.wait(Duration::from_secs(2));
    assert_eq!(rig.refused(0), (QosErrorCode::NO_ANSWER, 0));
    assert_eq!((rig.booked(0), rig.nodes[0].client.sessions()), (0.0, 0));
}

/// CASPQOS-A.2-22: the end of the session in the messaging layer ends the reservation.
#[test]
fn the_end_of_the_session_ends_the_reservation() {
    for torn_down in [false, true] {
        let mut rig = Rig::standing(3, Range::only(mbit(2.0)));
        rig.indicate(1, &Indication::Ended { session: SESSION, flow: flow(3), torn_down });
        assert_eq!((rig.booked(1), rig.given(1), rig.nodes[1].client.sessions()), (0.0, 0.0, 0));
        rig.indicate(0, &Indication::Ended { session: SESSION, flow: flow(3), torn_down });
        assert!(matches!(rig.events(0)[..], [QosEvent::Lost { .. }]));
    }
}
