//! Aggregation regions, and nodes without state.

use signalbox_core::NslpId;
use signalbox_qos::engine::{Aggregate, Command, Config, QosEvent, StateKeeping};
use signalbox_qos::wire::{BindingCode, Info, MessageType};

use crate::net::{Net, addr, request};

const RAISED: NslpId = NslpId(1001);

/// 0 – 1 (aggregator) – 2 (interior) – 3 (deaggregator) – 4.
fn region(interior: &str) -> Net {
    let mut configs = vec![Config::default(); 5];
    configs[1].bypass_nslp = Some(RAISED);
    configs[3].bypass_nslp = Some(RAISED);
    configs[1].aggregates =
        vec![Aggregate { interface: "to2".into(), deaggregator: addr(3), dscp: 46, step: 200_000 }];
    let mut net = Net::with(configs, "10mbit");
    net.nodes[2].resources = crate::net::resources(interior);
    net.hosts.insert(2, [NslpId::QOS].into());
    let from = "10.1.2.1".parse().unwrap();
    net.paths.insert((from, addr(3)), vec![1, 2, 3]);
    net
}

/// QOS-3.3.1-01, QOS-4.5-01, QOS-4.6-01, QOS-5.1.2.1-10, QSPEC-4.1-05
#[test]
fn flows_enter_an_aggregate_and_pass_its_interior_unseen() {
    let mut net = region("10mbit");
    for n in 0..3u16 {
        let mut one = request(4, 100_000);
        one.flow.dst_port = Some(7000 + n);
        net.reserve(0, n.into(), one);
        net.seconds(2);
    }
    let granted = net.events(0).iter().filter(|e| matches!(e, QosEvent::Granted(_))).count();
    assert_eq!(granted, 3);
    // Two flows fit the first step, the third needs another.
    assert_eq!(net.all_held(), [300_000, 300_000, 400_000, 300_000, 0]);
    assert_eq!(net.nodes[2].qos.sessions(), 1, "the interior has the aggregate alone");
    assert!(
        net.log
            .iter()
            .filter(|l| l.from == 1 && l.to == Some(2))
            .all(|l| l.message().bound_sessions.is_empty()),
        "the aggregate names no members"
    );
    // The interior node receives an Initiator QSPEC of the region's own.
    for message in net.log.iter().filter(|l| l.from == 1 && l.to == Some(2)) {
        let message = message.message();
        let qspecs = message.qspec.map(|qspec| signalbox_qos::wire::qspec::Qspec::parse(qspec).unwrap());
        assert!(qspecs.is_none_or(|qspec| !qspec.header.local));
    }
    for message in net.log.iter().filter(|l| l.from == 1 && l.to == Some(3)) {
        assert_eq!(message.nslp, RAISED);
        let bound: Vec<_> = message.message().bound_sessions.sessions().collect();
        assert_eq!(bound.first().map(|b| b.code), Some(BindingCode::AGGREGATE));
    }
    assert!(net.log.iter().filter(|l| l.from == 3 && l.to == Some(4)).all(|l| l.nslp == NslpId::QOS));
    net.seconds(600);
    assert_eq!(net.all_held(), [300_000, 300_000, 400_000, 300_000, 0]);
}

/// QOS-4.6-05
///
/// The message that a flow's RESERVE is bound to may arrive first. After the region, messages are not bound any more.
#[test]
fn a_reserve_that_comes_after_its_aggregate_waits_for_nothing() {
    let mut net = region("10mbit");
    net.cut.insert((1, 3));
    net.gaps.insert(3, 1);
    net.reserve(0, 1, request(4, 100_000));
    net.seconds(1);
    assert_eq!(net.all_held(), [100_000, 100_000, 200_000, 0, 0]);
    net.cut.clear();
    net.seconds(4);
    // The routers that it passed in the region are no gap.
    assert!(
        matches!(net.events(0).last(), Some(QosEvent::Granted(granted)) if !granted.gaps),
        "{:?}",
        net.events(0)
    );
    assert_eq!(net.all_held(), [100_000, 100_000, 200_000, 100_000, 0]);
    assert!(
        net.log.iter().filter(|l| l.from == 3 && l.to == Some(4)).all(|l| l.message().bound_msg_id.is_none())
    );
}

/// An aggregate becomes smaller by two steps at least, and ends with its last member.
#[test]
fn an_aggregate_shrinks_as_its_members_leave() {
    let mut net = region("10mbit");
    for n in 0..6u16 {
        let mut one = request(4, 100_000);
        one.flow.dst_port = Some(7000 + n);
        net.reserve(0, n.into(), one);
        net.seconds(1);
    }
    let mut sizes = Vec::new();
    for n in 0..6 {
        sizes.push(net.held(2));
        net.command(0, n, Command::Release);
        net.seconds(1);
    }
    assert_eq!(sizes, [600_000, 600_000, 600_000, 600_000, 200_000, 200_000]);
    assert_eq!(net.all_held(), [0; 5]);
    // Operation state is kept for a RESPONSE, at most one refresh period.
    net.seconds(40);
    assert_eq!(net.nodes[2].qos.sessions(), 0, "the region has removed it");
    // It starts again.
    net.reserve(0, 9, request(4, 100_000));
    net.seconds(2);
    assert_eq!(net.all_held(), [100_000, 100_000, 200_000, 100_000, 0]);
}

/// QOS-4.7-02, QOS-4.6-07, QOS-5.1.3.6-27
#[test]
fn a_flow_fails_where_its_aggregate_cannot_grow() {
    let mut net = region("1mbit");
    net.reserve(0, 1, request(4, 100_000));
    net.seconds(40);
    let events = net.events(0);
    let [QosEvent::Started { .. }, QosEvent::Failed(failure)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((failure.class, failure.code), (Info::SYNCHRONISATION.class.0, Info::SYNCHRONISATION.code));
    assert!(net.log.iter().all(|l| l.to != Some(4)), "it did not go on");
    assert_eq!(net.all_held(), [0; 5]);
}

/// QOS-4.7-01, QOS-5.3.1-10, QOS-5.3.1-09
#[test]
fn nodes_without_state_pass_on_and_answer_nothing() {
    for state in [StateKeeping::Stateless, StateKeeping::Reduced] {
        let mut configs = vec![Config::default(); 4];
        configs[1].state = state;
        let mut net = Net::with(configs, "10mbit");
        let mut one = request(3, 100_000);
        one.flow.dscp = Some(46);
        net.reserve(0, 1, one);
        net.seconds(1);
        assert_eq!(net.nodes[1].qos.sessions(), 0);
        let held = if state == StateKeeping::Reduced { 100_000 } else { 0 };
        assert_eq!(net.held(1), held, "{state:?}");
        let rsn = |from: usize| {
            let reserve =
                |l: &&crate::net::Logged| l.from == from && l.message().kind == MessageType::RESERVE;
            net.log.iter().find(reserve).and_then(|l| l.message().rsn)
        };
        assert_eq!(rsn(0), rsn(1), "{state:?}");
        assert_eq!(net.nodes[1].qos.counters().responses_sent, 0);
    }
}

/// Messages whose RESPONSE is lost are sent again: the RESERVE of the aggregate, which has the MSG-ID, and the flow's
/// RESERVE, which has the BOUND-MSG-ID. Both are retransmitted unchanged.
///
/// QOS-4.6-08
#[test]
fn a_message_that_is_sent_again_keeps_its_msg_id() {
    let mut net = region("10mbit");
    // The end of the region is out of reach of both.
    net.cut.extend([(2, 3), (1, 3)]);
    net.reserve(0, 1, request(4, 100_000));
    net.seconds(20);
    let ids: Vec<_> = net
        .log
        .iter()
        .filter(|l| (l.from, l.nslp) == (1, NslpId::QOS))
        .filter_map(|l| l.message().msg_id)
        .collect();
    let bound: Vec<_> =
        net.log.iter().filter(|l| l.nslp == RAISED).map(|l| l.message().bound_msg_id).collect();
    assert!(ids.len() > 2 && bound.len() > 2, "{ids:?} {bound:?}");
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert!(bound.iter().all(|id| *id == Some(ids[0])), "{bound:?}");
}
