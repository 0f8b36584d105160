//! Errors: malformed requests, and requests that a node does not accept.

use signalbox_casp::clients::qos::{Config, QosEvent, QosRequest, Range};
use signalbox_casp::engine::Indication;
use signalbox_casp::wire::qos::{
    Bandwidth, Flowspec, QosErrorCode, QosFlags, QosMessage, QosType, QosVersion,
};
use signalbox_core::SessionId;

use crate::rig::{MBIT, Packet, Rig, between, flow, flowspec, mbit, to_port};

const SESSION: SessionId = SessionId([7; 16]);

fn reserve(sequence: u32, age: u64, mbit: f32) -> QosMessage<'static> {
    let mut reserve = QosMessage::new(QosType::RESERVE, flow(3));
    (reserve.sequence, reserve.age) = (Some(sequence), Some(age));
    reserve.version = Some(QosVersion::BANDWIDTH);
    reserve.bandwidth = Some(Bandwidth { upper: mbit * MBIT, lower: mbit * MBIT });
    reserve
}

/// The code of the Error that a request to node 1 of 3 gets; nothing may go on.
fn answer(config: &Config, message: &QosMessage<'_>) -> (QosErrorCode, u16) {
    let mut rig = Rig::with(3, config.clone());
    let packet = rig.packet(1, 0, SESSION, message);
    rig.inject(packet);
    assert_eq!(rig.kinds(2), []);
    assert_eq!(rig.booked(1), 0.0);
    rig.last(0, QosType::ERROR).message().error.unwrap()
}

/// CASPQOS-3.1-02, CASPQOS-3.1-04, CASPQOS-4-06, CASPQOS-5.1-08, CASPQOS-A.1-12, CASPQOS-A.1-17, CASPQOS-9-07,
/// CASPQOS-A.2-09: what is wrong with a request is in the Error.
#[test]
fn errors_say_what_is_wrong() {
    let config = Config::default();
    let good = || reserve(1, 5, 1.0);
    let mut cases: Vec<(QosMessage<'_>, (QosErrorCode, u16))> = Vec::new();
    let mut add = |message, code, detail| cases.push((message, (code, detail)));
    add(QosMessage { version: Some(QosVersion(9)), ..good() }, QosErrorCode::VERSION, 9);
    add(QosMessage { version: Some(QosVersion::PHB), phb: Some(0x3000), ..good() }, QosErrorCode::VERSION, 2);
    add(QosMessage { version: Some(QosVersion::FLOWSPEC), ..good() }, QosErrorCode::MALFORMED, 8);
    add(QosMessage { bandwidth: None, ..good() }, QosErrorCode::MISSING, 6);
    add(QosMessage { age: None, ..good() }, QosErrorCode::MISSING, 11);
    add(QosMessage { flags: QosFlags::REMOVE, ..good() }, QosErrorCode::MALFORMED, 4);
    add(QosMessage { time: Some((1, 2)), ..good() }, QosErrorCode::TIME, 0);
    add(QosMessage { reverse_flow: Some((flow(2), true)), ..good() }, QosErrorCode::MALFORMED, 8);
    add(QosMessage { reverse_flow: Some((flow(2), false)), ..good() }, QosErrorCode::MALFORMED, 8);
    add(QosMessage { kind: QosType(99), ..good() }, QosErrorCode::TYPE, 99);
    let over = Some(Bandwidth { upper: 1.0, lower: 2.0 });
    for (message, expected) in &cases {
        assert_eq!(answer(&config, message), *expected, "{message:?}");
    }
    assert_eq!(answer(&config, &QosMessage { bandwidth: over, ..good() }).0, QosErrorCode::MALFORMED);
    let nothing = Flowspec { rate: 0.0, ..flowspec(1.0) };
    let empty =
        QosMessage { version: Some(QosVersion::FLOWSPEC), bandwidth: None, minimum: Some(nothing), ..good() };
    assert_eq!(answer(&config, &empty).0, QosErrorCode::MALFORMED);
}

/// CASPQOS-A.1-02, CASPQOS-A.1-08, CASPQOS-A.1-18, CASPQOS-A.2-03, CASPQOS-A.2-10, CASPQOS-A.1-19: octets that cannot be
/// read are answered only if they have a number, and not more than once in a second.
#[test]
fn unreadable_messages_are_not_answered() {
    let mut rig = Rig::new(3);
    let good = rig.packet(1, 0, SESSION, &reserve(1, 5, 1.0));
    let change = |at: usize, octet: u8| {
        let mut packet = good.clone();
        packet.data[at] = octet;
        packet
    };
    // The form of the flow, and the class of the number.
    for packet in [change(6, 77), change(26, 99), Packet { data: good.data[..10].to_vec(), ..good.clone() }] {
        rig.inject(packet);
    }
    assert_eq!((rig.kinds(0).len(), rig.kinds(2).len()), (0, 0));
    assert_eq!(rig.nodes[1].client.counters().unreadable, 3);
    // The length of the message.
    rig.inject(change(3, 1));
    assert_eq!(rig.last(0, QosType::ERROR).message().error, Some((QosErrorCode::MALFORMED, 0)));
    // A session that the node has gets one Error in a second.
    rig.inject(good.clone());
    rig.clear();
    for _ in 0..5 {
        rig.inject(change(3, 1));
    }
    assert_eq!(rig.kinds(0), [QosType::ERROR]);
    rig.wait(core::time::Duration::from_secs(1));
    rig.inject(change(3, 1));
    assert_eq!(rig.kinds(0).len(), 2);
    assert_eq!(rig.nodes[1].client.counters().errors_limited, 4);
    assert_eq!(rig.booked(1), 1.0, "nothing changed");
}

/// CASPQOS-2-37: answers are never answered, whatever is in them.
#[test]
fn answers_are_not_answered() {
    let mut rig = Rig::new(3);
    for kind in [QosType::SUCCESS, QosType::ERROR] {
        let mut message = QosMessage::new(kind, flow(3));
        (message.echo, message.version) = (Some(3), Some(QosVersion(9)));
        let packet = rig.packet(1, 2, SESSION, &message);
        rig.inject(packet);
    }
    assert_eq!(rig.kinds(2), []);
}

/// CASPQOS-A.1-15, CASPQOS-A.1-16: a hop without channel security sets U, which stays. A node may refuse it.
#[test]
fn unsecure_hops_are_marked() {
    let mut rig = Rig::new(3);
    rig.unsecure = true;
    let packet = rig.packet(1, 0, SESSION, &reserve(1, 5, 1.0));
    rig.inject(packet);
    assert!(rig.last(2, QosType::RESERVE).message().flags.contains(QosFlags::UNSECURE));
    let mut rig = Rig::new(3);
    let tainted = QosMessage { flags: QosFlags::UNSECURE, ..reserve(1, 5, 1.0) };
    let packet = rig.packet(1, 0, SESSION, &tainted);
    rig.inject(packet);
    assert!(rig.last(2, QosType::RESERVE).message().flags.contains(QosFlags::UNSECURE));
    let strict = Config { refuse_unsecure: true, ..Config::default() };
    assert_eq!(answer(&strict, &tainted), (QosErrorCode::UNSECURE, 0));
}

/// CASPQOS-8-03: the rules of admission control decide before its resources.
#[test]
fn policy_refuses_before_admission() {
    use signalbox_resources::config::{Action, RuleConfig};
    let mut rig = Rig::new(3);
    let deny = RuleConfig::new("no", Action::Deny);
    let config = signalbox_resources::Config {
        rules: vec![deny],
        links: vec![signalbox_resources::config::LinkConfig::new(
            "eth0",
            Some(signalbox_resources::Rate(1_250_000)),
        )],
        ..signalbox_resources::Config::default()
    };
    let mut resources = signalbox_resources::Resources::new(config, 0, [1; 32]).unwrap();
    resources.interfaces(&[signalbox_core::node::Interface {
        ifindex: crate::rig::ETH,
        name: "eth0".to_owned(),
        up: true,
        mtu: 1500,
        tunnel: false,
        addresses: vec![crate::rig::at(1)],
    }]);
    rig.nodes[1].resources = resources;
    let request = rig.request(Range::only(mbit(1.0)));
    rig.reserve(0, 1, &request);
    assert_eq!(rig.refused(0), (QosErrorCode::POLICY, 0));
    assert_eq!(rig.booked(0), 0.0);
}

/// CASPQOS-9-02, CASPQOS-9-03: a request of a higher priority takes the place of one of a lower priority, which is reported. The
/// policy says who may use which level.
#[test]
fn a_higher_priority_preempts() {
    let mut rig = Rig::new(4);
    let request = QosRequest { priority: Some(1), ..rig.request(Range::only(mbit(8.0))) };
    rig.reserve(0, 1, &request);
    let other = QosRequest { flow: to_port(4, 601), ..request };
    rig.reserve(0, 2, &other);
    assert_eq!(rig.refused(0).0, QosErrorCode::BELOW_MINIMUM);
    rig.reserve(0, 3, &QosRequest { priority: Some(5), ..other });
    assert_eq!(rig.last(3, QosType::RESERVE).message().priority, Some(5));
    let events = rig.events(0);
    assert!(events.contains(&QosEvent::Lost { code: QosErrorCode::PREEMPTED }), "{events:?}");
    assert_eq!(events.last(), Some(&QosEvent::Committed { amount: mbit(8.0) }));
    assert_eq!((rig.given(0), rig.given(1), rig.given(2)), (8.0, 8.0, 8.0));
}

/// CASPQOS-9-03: a reservation that admission control takes back is reported in both directions, and goes everywhere.
#[test]
fn a_lost_reservation_goes_everywhere() {
    let mut rig = Rig::standing(4, Range::only(mbit(2.0)));
    let grant = rig.nodes[1].resources.reservations().next().unwrap().grant;
    rig.nodes[1].resources.delete(grant);
    rig.run();
    for (n, reverse) in [(0, true), (2, false)] {
        let error = rig.last(n, QosType::ERROR);
        assert_eq!(error.reverse, reverse);
        assert_eq!(error.message().error, Some((QosErrorCode::PREEMPTED, 0)));
        assert!(error.message().flags.contains(QosFlags::REMOVE));
    }
    assert_eq!(rig.events(0), [QosEvent::Lost { code: QosErrorCode::PREEMPTED }]);
    for n in 0..4 {
        assert_eq!((rig.booked(n), rig.given(n)), (0.0, 0.0), "node {n}");
    }
}

/// A message that cannot be sent on fails at the last node that has it.
#[test]
fn a_node_fails_for_the_next_one() {
    let mut rig = Rig::new(3);
    rig.deaf = Some(2);
    let request = rig.request(Range::only(mbit(1.0)));
    rig.reserve(0, 1, &request);
    assert_eq!(rig.booked(1), 1.0);
    rig.indicate(1, &Indication::Undelivered { session: SessionId([2; 16]), flow: flow(3) });
    assert_eq!(rig.refused(0), (QosErrorCode::NO_ANSWER, 0));
    assert_eq!((rig.booked(0), rig.booked(1)), (0.0, 0.0));
}

/// CASPQOS-A.2-24: an error of the messaging layer ends the wait of the originator and changes no other state.
#[test]
fn an_error_of_the_messaging_layer_ends_the_wait() {
    let mut rig = Rig::standing(3, Range::only(mbit(2.0)));
    rig.deaf = Some(1);
    rig.change(0, 1, Range::only(mbit(1.0)));
    let code = signalbox_casp::wire::ErrorCode::TTD_EXCEEDED;
    rig.indicate(0, &Indication::Error { session: SessionId([2; 16]), flow: flow(3), code });
    assert_eq!(rig.refused(0), (QosErrorCode::NO_ANSWER, 0));
    assert_eq!((rig.given(0), rig.given(1)), (2.0, 2.0));
}

/// A change of a change: if both fail, the reservation stands as it was before them.
#[test]
fn two_changes_that_fail_leave_the_reservation() {
    let mut rig = Rig::standing(3, Range::only(mbit(2.0)));
    rig.deaf = Some(1);
    rig.change(0, 1, Range::only(mbit(1.0)));
    rig.change(0, 1, Range::only(mbit(1.5)));
    let code = signalbox_casp::wire::ErrorCode::TTD_EXCEEDED;
    rig.indicate(0, &Indication::Error { session: SessionId([2; 16]), flow: flow(3), code });
    assert!(matches!(rig.events(0)[..], [QosEvent::Refused { stands: true, .. }]), "{:?}", rig.events(0));
    rig.deaf = None;
    rig.wait(core::time::Duration::from_secs(60));
    assert_eq!((rig.given(0), rig.given(1)), (2.0, 2.0));
}

/// CASPQOS-A.2-25: what the messaging layer does not take fails at the originator.
#[test]
fn a_request_that_is_not_taken_fails_here() {
    let mut rig = Rig::new(3);
    rig.deaf = Some(1);
    let request = rig.request(between(1.0, 2.0));
    rig.reserve(0, 1, &request);
    assert_eq!(rig.booked(0), 2.0);
    let why = signalbox_casp::engine::Refused::TooLong;
    rig.indicate(0, &Indication::Refused { tag: rig.last_tag, why });
    assert_eq!(rig.refused(0), (QosErrorCode::NO_ANSWER, 0));
    assert_eq!(rig.booked(0), 0.0);
}

/// If the messaging layer does not take a request of a reservation that was granted, the user learns that it is lost.
#[test]
fn a_granted_reservation_that_is_not_taken_is_lost() {
    let mut rig = Rig::standing(3, Range::only(mbit(2.0)));
    rig.deaf = Some(1);
    rig.wait(core::time::Duration::from_secs(46));
    let why = signalbox_casp::engine::Refused::Full;
    rig.indicate(0, &Indication::Refused { tag: rig.last_tag, why });
    assert_eq!(rig.events(0), [QosEvent::Lost { code: QosErrorCode::NO_ANSWER }]);
    assert_eq!(rig.booked(0), 0.0);
}

/// CASPQOS-3.1-04: a reservation does not change its kind of resource under one AGE. A refresh that asks for more gets
/// what stands.
#[test]
fn one_age_is_one_reservation() {
    let mut rig = Rig::new(3);
    let packet = rig.packet(1, 0, SESSION, &reserve(1, 5, 1.0));
    rig.inject(packet);
    let other = QosMessage {
        version: Some(QosVersion::FLOWSPEC),
        bandwidth: None,
        minimum: Some(flowspec(1.0)),
        ..reserve(2, 5, 1.0)
    };
    let packet = rig.packet(1, 0, SESSION, &other);
    rig.inject(packet);
    assert_eq!(rig.last(0, QosType::ERROR).message().error, Some((QosErrorCode::MALFORMED, 8)));
    let packet = rig.packet(1, 0, SESSION, &reserve(3, 5, 4.0));
    rig.inject(packet);
    assert_eq!(rig.last(2, QosType::RESERVE).message().bandwidth.unwrap().upper, MBIT);
    assert_eq!(rig.booked(1), 1.0);
}

/// A flow without a route is refused, here and at a node of the path.
#[test]
fn a_flow_without_a_route_is_refused() {
    let mut rig = Rig::new(3);
    rig.no_route = true;
    let request = rig.request(Range::only(mbit(1.0)));
    rig.reserve(0, 1, &request);
    assert_eq!(rig.refused(0), (QosErrorCode::BELOW_MINIMUM, 0));
    let packet = rig.packet(1, 0, SESSION, &reserve(1, 5, 1.0));
    rig.inject(packet);
    assert_eq!(rig.last(0, QosType::ERROR).message().error, Some((QosErrorCode::BELOW_MINIMUM, 0)));
}
