//! A source that has lost its reservation, in a crash for example, asks again for the same flow in the same session.

use std::time::Duration;

use signalbox_casp::clients::qos::{QosEvent, QosRequest, Range};
use signalbox_casp::wire::qos::{QosErrorCode, QosMessage, QosType};
use signalbox_core::SessionId;

use crate::rig::{Packet, Rig, mbit, with_rate};

const KEPT: SessionId = SessionId([77; 16]);

/// A request in a session that the path may know.
fn kept(rig: &Rig, rate: f32) -> QosRequest {
    QosRequest { kept: Some(KEPT), ..rig.request(Range::only(mbit(rate))) }
}

/// The user of the first node has this rate, and each node on the path holds it once.
fn stands(rig: &Rig, rate: f32, both: bool) {
    let last = rig.events(0).pop();
    assert_eq!(last, Some(QosEvent::Committed { amount: mbit(rate) }));
    for n in 0..rig.nodes.len() - 1 {
        let [there, back] = [f64::from(rate), if both && n > 0 { f64::from(rate) } else { 0.0 }];
        assert_eq!((rig.both(n), rig.given(n)), ([there, back], there + back), "node {n}");
    }
    assert!(rig.nodes.iter().all(|node| node.client.sessions() == 1));
}

/// What the path has of the session is replaced, also by another rate, and by one for which there would be no room beside it.
#[test]
fn what_a_crash_left_on_the_path_is_replaced() {
    for (both, by_receiver) in [(false, false), (true, false), (false, true)] {
        let mut rig = Rig::new(4);
        let request = |rig: &Rig, rate| QosRequest { both, by_receiver, ..kept(rig, rate) };
        let first = request(&rig, 6.0);
        rig.reserve(0, 1, &first);
        stands(&rig, 6.0, both);
        for rate in [6.0, 8.0, 3.0] {
            rig.wait(Duration::from_secs(1));
            rig.restart(0);
            let again = request(&rig, rate);
            rig.reserve(0, 1, &again);
            stands(&rig, rate, both);
        }
        // Nothing of an earlier one comes back.
        rig.wait(Duration::from_secs(400));
        stands(&rig, 3.0, both);
        rig.release(0, 1);
        rig.wait(Duration::from_secs(400));
        assert_eq!([0, 1, 2].map(|n| rig.booked(n)), [0.0; 3]);
    }
}

/// A session without the name is another one, which the reservation that is left refuses.
#[test]
fn another_session_is_refused_as_before() {
    let mut rig = Rig::new(4);
    let request = kept(&rig, 2.0);
    rig.reserve(0, 1, &request);
    rig.restart(0);
    rig.reserve(0, 2, &QosRequest { kept: None, ..request });
    assert_eq!(rig.refused(0).0, QosErrorCode::BELOW_MINIMUM);
    assert_eq!((rig.booked(1), rig.given(1)), (2.0, 2.0));
}

/// An answer to a request before the crash is not taken for one to the next request.
#[test]
fn an_old_answer_is_none() {
    let mut rig = Rig::new(3);
    rig.deaf = Some(2);
    let request = kept(&rig, 2.0);
    rig.reserve(0, 1, &request);
    let before = rig.last(1, QosType::RESERVE).message().sequence;
    rig.wait(Duration::from_secs(1));
    rig.restart(0);
    rig.reserve(0, 1, &request);
    let now = rig.last(1, QosType::RESERVE).message().sequence;
    assert!(now > before, "{now:?} after {before:?}");
    let mut answer = QosMessage::new(QosType::SUCCESS, request.flow);
    with_rate(&mut answer, 2.0);
    answer.echo = before;
    let packet = rig.packet(0, 1, KEPT, &answer);
    rig.inject(packet);
    assert_eq!(rig.events(0), [QosEvent::Opened { session: KEPT }]);
}

/// Two users of one node, or one user twice: the session is that of the first request.
#[test]
fn a_session_in_use_is_not_given_to_another_request() {
    let mut rig = Rig::new(3);
    let request = kept(&rig, 2.0);
    rig.reserve(0, 1, &request);
    rig.reserve(0, 2, &request);
    assert_eq!(rig.refused(0).0, QosErrorCode::BELOW_MINIMUM);
    stands_of(&rig, 1, 2.0);
    // The name is free again after the end.
    rig.release(0, 1);
    rig.clear();
    rig.reserve(0, 3, &request);
    assert_eq!(rig.events(0).first(), Some(&QosEvent::Opened { session: KEPT }));
    stands_of(&rig, 3, 2.0);
}

fn stands_of(rig: &Rig, user: u64, rate: f32) {
    assert!(rig.nodes[0].events.contains(&(user, QosEvent::Committed { amount: mbit(rate) })));
    assert_eq!((rig.booked(1), rig.given(1)), (f64::from(rate), f64::from(rate)));
}

/// CASPQOS-8-04: a node has the session from another hop, which who asks again cannot prove to be: the request goes on in a session of its
/// own. What the other one holds stays.
#[test]
fn a_session_of_another_hop_is_not_taken() {
    let mut rig = Rig::new(4);
    let elsewhere = QosRequest { flow: crate::rig::to_port(4, 601), ..kept(&rig, 2.0) };
    rig.reserve(0, 1, &elsewhere);
    // The same session comes to node 2 by another hop than before.
    let reserve = rig.last(2, QosType::RESERVE);
    rig.restart(2);
    rig.inject(Packet { branch: 7, from: 3, reverse: false, ..reserve });
    rig.wait(Duration::from_secs(1));
    rig.restart(0);
    rig.restart(1);
    let request = kept(&rig, 1.0);
    rig.clear();
    rig.reserve(0, 2, &request);
    let opened =
        |event: &QosEvent| if let QosEvent::Opened { session } = event { Some(*session) } else { None };
    let sessions: Vec<_> = rig.events(0).iter().filter_map(opened).collect();
    assert_eq!((sessions.len(), sessions[0]), (2, KEPT));
    assert_ne!(sessions[1], KEPT);
    assert_eq!(rig.events(0).last(), Some(&QosEvent::Committed { amount: mbit(1.0) }));
    assert_eq!((rig.given(1), rig.nodes[0].torn_down), (1.0, 1));
}
