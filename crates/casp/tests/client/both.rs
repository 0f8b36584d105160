//! Both directions in one session.

use std::time::Duration;

use signalbox_casp::clients::qos::{QosEvent, QosRequest, Range};
use signalbox_casp::wire::FlowId;
use signalbox_casp::wire::qos::{QosErrorCode, QosMessage, QosType};
use signalbox_core::SessionId;

use crate::rig::{BACK, LIFETIME, MBIT, Rig, between, flow, ip, mbit, with_rate};

fn request(rig: &Rig, range: Range) -> QosRequest {
    QosRequest { both: true, ..rig.request(range) }
}

fn standing(nodes: usize, range: Range) -> Rig {
    let mut rig = Rig::new(nodes);
    let request = request(&rig, range);
    rig.reserve(0, 1, &request);
    assert!(matches!(rig.events(0).last(), Some(QosEvent::Committed { .. })), "{:?}", rig.events(0));
    rig.clear();
    rig
}

/// What the nodes of a path of four hold, if each direction has this much.
const fn held(mbit: f64) -> [[f64; 2]; 4] {
    [[mbit, 0.0], [mbit, mbit], [mbit, mbit], [0.0, mbit]]
}

fn all(rig: &Rig) -> [[f64; 2]; 4] {
    [0, 1, 2, 3].map(|n| rig.both(n))
}

/// CASPQOS-1-05: one request reserves both directions at each node, each at the interface by which its data leave. Refreshes
/// keep both, and the release frees both.
#[test]
fn one_request_reserves_both_directions() {
    let mut rig = standing(4, Range::only(mbit(2.0)));
    assert_eq!(all(&rig), held(2.0));
    for (n, given) in [2.0, 4.0, 4.0, 2.0].into_iter().enumerate() {
        assert_eq!(rig.given(n), given, "node {n}");
    }
    let back = rig.nodes[2].installed.values().find(|one| one.ifindex == BACK).unwrap();
    assert_eq!(back.filters, [flow(4).reversed().filter()]);
    rig.wait(Duration::from_secs(u64::from(LIFETIME) * 5));
    assert_eq!(all(&rig), held(2.0));
    assert!(rig.events(0).is_empty(), "{:?}", rig.events(0));
    rig.release(0, 1);
    assert_eq!((all(&rig), rig.events(0)), (held(0.0), vec![QosEvent::Released { confirmed: true }]));
    assert!(rig.nodes.iter().all(|node| node.installed.is_empty()));
}

/// CASPQOS-1-05: if one direction has no room at one node, no node keeps anything of either.
#[test]
fn both_directions_or_none() {
    let mut rig = Rig::new(4);
    rig.occupy_at(2, BACK, 9.0);
    let asked = request(&rig, Range::only(mbit(2.0)));
    rig.reserve(0, 1, &asked);
    assert_eq!(rig.refused(0), (QosErrorCode::BELOW_MINIMUM, 0));
    let mut left = held(0.0);
    left[2][1] = 9.0;
    assert_eq!(all(&rig), left);
    // A stronger request for both ends no weaker one, as long as one direction has no room.
    let mut rig = Rig::new(4);
    rig.occupy_at(2, BACK, 9.0);
    rig.reserve(0, 1, &rig.request(Range::only(mbit(9.0))));
    let owner = rig.nodes[2].client.counters().lost;
    let asked = QosRequest { priority: Some(9), ..request(&rig, Range::only(mbit(20.0))) };
    rig.reserve(0, 2, &asked);
    assert_eq!((rig.both(1), rig.nodes[2].client.counters().lost), ([9.0, 0.0], owner));
}

/// CASPQOS-1-05, CASPQOS-5.1-02: between the bounds both directions get what the narrower one has.
#[test]
fn both_directions_get_the_same() {
    let mut rig = Rig::new(4);
    rig.occupy_at(1, BACK, 8.5);
    let asked = request(&rig, between(1.0, 2.0));
    rig.reserve(0, 1, &asked);
    let mut held = held(1.5);
    held[1][1] = 10.0;
    let near = |one: f64, other: f64| (one - other).abs() < 0.02;
    for (there, wanted) in all(&rig).iter().flatten().zip(held.iter().flatten()) {
        assert!(near(*there, *wanted), "{:?}", all(&rig));
    }
}

/// CASPQOS-1-05: a change is for both directions, and what stood before stays in both if it fails.
#[test]
fn a_change_is_for_both_directions() {
    let mut rig = standing(4, Range::only(mbit(2.0)));
    rig.change(0, 1, Range::only(mbit(3.0)));
    assert_eq!(all(&rig), held(3.0));
    rig.occupy_at(3, BACK, 5.0);
    rig.change(0, 1, Range::only(mbit(6.0)));
    assert!(matches!(rig.events(0).last(), Some(QosEvent::Refused { stands: true, .. })));
    let mut left = held(3.0);
    left[3][1] = 8.0;
    assert_eq!(all(&rig), left);
}

/// CASPQOS-1-05: the loss of one direction at one node ends both everywhere.
#[test]
fn the_loss_of_one_direction_ends_both() {
    let mut rig = standing(4, Range::only(mbit(2.0)));
    rig.lose(2, BACK);
    assert_eq!(rig.events(0), [QosEvent::Lost { code: QosErrorCode::PREEMPTED }]);
    assert_eq!(all(&rig), held(0.0));
}

/// CASPQOS-1-05, CASPQOS-2-34: without refreshes both directions expire.
#[test]
fn both_directions_expire() {
    let mut rig = standing(4, Range::only(mbit(2.0)));
    rig.deaf = Some(1);
    rig.wait(Duration::from_secs(u64::from(LIFETIME) * 3));
    assert_eq!(all(&rig), held(0.0));
}

/// CASPQOS-1-05: the receiver reserves both directions, if the source asks for that.
#[test]
fn the_receiver_reserves_both_directions() {
    let mut rig = Rig::new(4);
    let asked = QosRequest { by_receiver: true, ..request(&rig, Range::only(mbit(2.0))) };
    rig.reserve(0, 1, &asked);
    assert_eq!(all(&rig), held(2.0));
    rig.release(0, 1);
    assert_eq!(all(&rig), held(0.0));
}

/// CASPQOS-1-05: a query answers what both directions have.
#[test]
fn a_query_is_about_both_directions() {
    let mut rig = Rig::new(4);
    rig.occupy_at(2, BACK, 7.0);
    let asked = request(&rig, between(0.5, 8.0));
    rig.query(0, 1, &asked);
    let Some(QosEvent::Available { amount: Some(amount) }) = rig.events(0).last().cloned() else {
        panic!("{:?}", rig.events(0))
    };
    assert!((2.9..=3.0).contains(&(amount.rate() / MBIT)), "{amount:?}");
}

/// CASPQOS-1-05: the packets of other hosts are no second direction of a session.
#[test]
fn the_second_direction_has_the_same_ends() {
    let FlowId::V4Ports { src, dst, .. } = flow(3).reversed() else { unreachable!() };
    let flow = |src, dst| FlowId::V4Ports { src, dst, src_port: 7, dst_port: 8, protocol: 17 };
    let std::net::IpAddr::V4(other) = ip("192.0.2.1") else { unreachable!() };
    for (back, taken) in [(flow(src, dst), true), (flow(other, dst), false), (flow(src, other), false)] {
        let mut rig = Rig::new(3);
        let mut reserve = QosMessage::new(QosType::RESERVE, crate::rig::flow(3));
        (reserve.sequence, reserve.age, reserve.reverse_flow) = (Some(1), Some(5), Some((back, true)));
        with_rate(&mut reserve, 1.0);
        let packet = rig.packet(1, 0, SessionId([7; 16]), &reserve);
        rig.inject(packet);
        assert_eq!(rig.both(1) == [1.0, 1.0], taken, "{back:?}");
        if !taken {
            assert_eq!(rig.last(0, QosType::ERROR).message().error, Some((QosErrorCode::MALFORMED, 8)));
        }
    }
}
