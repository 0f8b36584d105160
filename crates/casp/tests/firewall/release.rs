//! RELEASE and QUERY.

use signalbox_casp::clients::natfw::NatfwEvent;
use signalbox_casp::engine::Indication;
use signalbox_casp::wire::natfw::{NatfwStatus, NatfwType, NatfwValue, REMOVED};

use crate::rig::{FIRST, Node, Packet, Rig, at, filter, flow, wants_response};

/// CASPMID-7-09: RELEASE removes the rules of the path at once. CASPMID-A-16: the messaging layer tears the session down
/// only after the answer.
#[test]
fn a_release_closes_all_firewalls() {
    for by_receiver in [false, true] {
        let mut rig = Rig::standing(4, by_receiver);
        rig.close();
        assert!([1, 2].iter().all(|n| rig.passes(*n).is_empty()));
        assert_eq!(rig.last(0, NatfwType::RESPONSE).results()[0].flags & REMOVED, REMOVED);
        assert_eq!(rig.events(0), [NatfwEvent::Closed]);
        assert_eq!(rig.nodes[0].torn_down, 1);
        assert!(rig.nodes.iter().all(|node| node.resources.passage_count() == 0));
        rig.wait(std::time::Duration::from_secs(20));
        assert!(rig.nodes.iter().all(|node| node.client.sessions() == 0));
    }
}

/// CASPMID-7-10: other sessions keep their rules. CASPMID-7-12: who did not create them may not remove them.
/// CASPMID-11.2-04: the sender of a RELEASE is the node at the other end of its connection.
#[test]
fn a_stranger_releases_nothing() {
    let mut rig = Rig::standing(4, false);
    let mut data = Vec::new();
    signalbox_casp::wire::natfw::NatfwMessage::compose(
        NatfwType::RELEASE,
        &[NatfwValue::MsgId(9), wants_response()],
        &mut data,
    )
    .unwrap();
    // A node that is no hop of the session.
    let stranger =
        Packet { session: FIRST, flow: flow(4), reverse: false, to: 2, from: 3, hops: 1, data: data.clone() };
    rig.carry(stranger);
    assert_eq!(rig.passes(2).len(), 1);
    assert_eq!(rig.nodes[2].client.counters().strangers, 1);
    assert_eq!(rig.status(1), NatfwStatus::NOT_OWNER);
    // Another session of the same node.
    let other = Packet {
        session: signalbox_core::SessionId([77; 16]),
        flow: flow(4),
        reverse: false,
        to: 1,
        from: 0,
        hops: 1,
        data,
    };
    rig.carry(other);
    assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (1, 1));
}

/// CASPMID-7-11: the session names what goes, whatever the flow of the message.
#[test]
fn a_release_is_of_the_session() {
    let mut rig = Rig::standing(3, false);
    let mut data = Vec::new();
    let values = [NatfwValue::MsgId(9)];
    signalbox_casp::wire::natfw::NatfwMessage::compose(NatfwType::RELEASE, &values, &mut data).unwrap();
    let moved = match flow(3) {
        signalbox_casp::wire::FlowId::V4Ports { src, dst, dst_port, protocol, .. } => {
            signalbox_casp::wire::FlowId::V4Ports { src, dst, src_port: 9, dst_port, protocol }
        }
        _ => unreachable!(),
    };
    rig.carry(Packet { session: FIRST, flow: moved, reverse: false, to: 1, from: 0, hops: 1, data });
    assert!(rig.passes(1).is_empty());
}

/// CASPMID-7-14: the last node has no state to release.
#[test]
fn an_unknown_session_cannot_be_released() {
    let mut rig = Rig::open(3);
    rig.inject(0, 1, NatfwType::RELEASE, &[NatfwValue::MsgId(9), wants_response()]);
    assert_eq!(rig.status(1), NatfwStatus::NO_STATE);
}

/// CASPMID-7-19, CASPMID-7-21: each firewall adds what it has to the RESPONSE of the target. CASPMID-7-28: without NEXT too.
#[test]
fn a_query_collects_the_nodes() {
    let mut rig = Rig::standing(4, false);
    let now = rig.now;
    rig.nodes[0].client.query(now, 1);
    rig.run();
    let events = rig.events(0);
    let [NatfwEvent::State { nodes }] = &events[..] else { panic!("{events:?}") };
    let addresses: Vec<_> = nodes.iter().filter_map(|node| node.node).collect();
    assert_eq!(addresses, [at(3), at(2), at(1)]);
    assert!(nodes.iter().all(|node| node.lifetime == Some(90)), "{nodes:?}");
    rig.clear();
    rig.inject(0, 1, NatfwType::QUERY, &[NatfwValue::MsgId(9)]);
    assert_eq!(rig.status(0), NatfwStatus::DONE);
}

/// CASPMID-7-20: nothing is shown to others.
#[test]
fn a_stranger_sees_nothing() {
    let mut rig = Rig::standing(4, false);
    let mut data = Vec::new();
    let values = [NatfwValue::MsgId(9), wants_response()];
    signalbox_casp::wire::natfw::NatfwMessage::compose(NatfwType::QUERY, &values, &mut data).unwrap();
    rig.carry(Packet { session: FIRST, flow: flow(4), reverse: false, to: 2, from: 3, hops: 1, data });
    assert_eq!(rig.status(1), NatfwStatus::NOT_OWNER);
    assert_eq!(rig.kinds(3), []);
}

/// CASPMID-A-14: the end of the session in the messaging layer ends the rules.
#[test]
fn the_rules_end_with_the_session() {
    let mut rig = Rig::standing(3, false);
    rig.indicate(1, &Indication::Ended { session: FIRST, flow: flow(3), torn_down: true });
    assert!(rig.nodes[1].rules.is_empty());
    rig.indicate(0, &Indication::Ended { session: FIRST, flow: flow(3), torn_down: false });
    assert_eq!(rig.events(0), [NatfwEvent::Lost { status: NatfwStatus::NO_STATE, node: None }]);
}

/// O18: a CREATE waits for its route when the RELEASE of its session arrives, when an administrator ends the session, or when the
/// messaging layer does. It opens nothing any more, and does not go on.
#[test]
fn a_create_that_waits_ends_with_its_session() {
    let values = [NatfwValue::MsgId(5), NatfwValue::Age(7), NatfwValue::Filter(filter(4)), wants_response()];
    let ends: [fn(&mut Rig); 3] = [
        |rig| rig.inject(0, 1, NatfwType::RELEASE, &[NatfwValue::MsgId(6), wants_response()]),
        |rig| {
            let Node { client, resources, .. } = &mut rig.nodes[1];
            client.delete(rig.now, FIRST, resources);
            rig.run();
        },
        |rig| {
            rig.indicate(1, &Indication::Ended { session: FIRST, flow: flow(4), torn_down: true });
        },
    ];
    for (at, end) in ends.into_iter().enumerate() {
        for standing in [false, true] {
            let mut rig = if standing { Rig::standing(4, false) } else { Rig::open(4) };
            rig.slow_routes = true;
            rig.inject(0, 1, NatfwType::CREATE, &values);
            end(&mut rig);
            rig.routed();
            assert_eq!(rig.passes(1), [], "{at} {standing}");
            assert!(!rig.kinds(2).contains(&NatfwType::CREATE), "{at} {standing}");
            assert_eq!(rig.nodes[1].resources.passage_count(), 0);
            if at == 1 && !standing {
                assert_eq!(rig.status(0), NatfwStatus::ADMINISTRATOR);
            }
        }
    }
}

/// A RELEASE of another node ends no CREATE that waits.
#[test]
fn a_create_that_waits_stays_when_a_stranger_releases() {
    let values = [NatfwValue::MsgId(5), NatfwValue::Age(7), NatfwValue::Filter(filter(4)), wants_response()];
    let mut rig = Rig::open(4);
    rig.slow_routes = true;
    rig.inject(0, 1, NatfwType::CREATE, &values);
    rig.inject(2, 1, NatfwType::RELEASE, &[NatfwValue::MsgId(6), wants_response()]);
    rig.routed();
    assert_eq!(rig.passes(1).len(), 1);
}
