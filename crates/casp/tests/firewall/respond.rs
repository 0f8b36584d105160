//! RESPONSE: timers, duplicates, errors.

use std::time::Duration;

use signalbox_casp::clients::natfw::NatfwEvent;
use signalbox_casp::engine::Indication;
use signalbox_casp::wire::natfw::{
    NatfwFilter, NatfwMessage, NatfwResult, NatfwStatus, NatfwType, NatfwValue, Tlvs,
};

use crate::rig::{FIRST, Packet, Rig, at, filter, flow, wants_response};

fn response<'a>(msg_id: u64, nested: &'a [u8]) -> [NatfwValue<'a>; 1] {
    let nested = Tlvs::of(nested);
    let result = NatfwResult { status: NatfwStatus::DONE, flags: 0x80, request: 2, msg_id, nested };
    [NatfwValue::Status(result)]
}

/// CASPMID-6-10: without a RESPONSE the firewalls report after 10 s less 0.25 s for each node before them, the farthest one
/// first. CASPMID-6-12: the initiator gets one RESPONSE. CASPMID-6-15: the rules stay. CASPMID-6-16: the session too, and
/// the user is informed.
#[test]
fn the_farthest_firewall_reports() {
    let mut rig = Rig::open(5);
    rig.deaf = Some(4);
    rig.ask(false);
    rig.wait(Duration::from_millis(9_249));
    assert_eq!(rig.kinds(0), []);
    rig.wait(Duration::from_millis(60));
    assert_eq!(rig.kinds(0), [NatfwType::RESPONSE]);
    assert_eq!(rig.status(0), NatfwStatus::NOT_DELIVERED);
    let refused = NatfwEvent::Refused { status: NatfwStatus::NOT_DELIVERED, node: Some(at(3)), note: None };
    assert_eq!(rig.events(0).last(), Some(&refused));
    rig.wait(Duration::from_secs(10));
    assert_eq!(rig.kinds(0), [NatfwType::RESPONSE]);
    assert!([1, 2, 3].iter().all(|n| rig.passes(*n).len() == 1));
    assert_eq!(rig.nodes[0].client.sessions(), 1);
}

/// The timer of a firewall behind many nodes is 2 s.
#[test]
fn the_timer_has_a_least_value() {
    let mut rig = Rig::open(3);
    rig.deaf = Some(2);
    let mut data = Vec::new();
    let values = [NatfwValue::MsgId(5), NatfwValue::Age(1), wants_response()];
    NatfwMessage::compose(NatfwType::CREATE, &values, &mut data).unwrap();
    rig.carry(Packet { session: FIRST, flow: flow(3), reverse: false, to: 1, from: 0, hops: 200, data });
    rig.wait(Duration::from_millis(1_990));
    assert_eq!(rig.kinds(0), []);
    rig.wait(Duration::from_millis(50));
    assert_eq!(rig.status(0), NatfwStatus::NOT_DELIVERED);
}

/// CASPMID-6-11, CASPMID-5-01: a firewall that is the last node reports at once. What was reached stays open.
#[test]
fn the_last_firewall_reports_at_once() {
    let mut rig = Rig::open(4);
    rig.deaf = Some(3);
    rig.ask(false);
    rig.indicate(2, &Indication::Undelivered { session: FIRST, flow: flow(4) });
    assert_eq!(rig.status(0), NatfwStatus::NOT_DELIVERED);
    assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (1, 1));
}

/// CASPMID-6-13, CASPMID-6-14: a second RESPONSE to a request ends at the firewall, unless it reports other packets.
#[test]
fn a_second_response_is_dropped() {
    let mut rig = Rig::standing(3, false);
    rig.deaf = Some(2);
    rig.inject(0, 1, NatfwType::CREATE, &[NatfwValue::MsgId(5), NatfwValue::Age(1), wants_response()]);
    rig.clear();
    let count = |rig: &Rig| rig.kinds(0).len();
    rig.inject(2, 1, NatfwType::RESPONSE, &response(5, &[]));
    assert_eq!(count(&rig), 1);
    rig.inject(2, 1, NatfwType::RESPONSE, &response(5, &[]));
    assert_eq!(count(&rig), 1);
    let mut nested = Vec::new();
    NatfwValue::Filter(NatfwFilter { src_ports: vec![(7, 7)], ..filter(3) }).encode(&mut nested).unwrap();
    rig.inject(2, 1, NatfwType::RESPONSE, &response(5, &nested));
    assert_eq!(count(&rig), 2);
    assert_eq!(rig.nodes[1].client.counters().duplicates, 1);
}

/// CASPMID-7-16: a RESPONSE changes no rule, whatever it says. CASPMID-7-18: it is never answered, even if it is faulty.
#[test]
fn a_response_changes_nothing() {
    let mut rig = Rig::standing(3, false);
    rig.deaf = Some(0);
    let nested = Tlvs::of(&[]);
    let result = NatfwResult { status: NatfwStatus::POLICY, flags: 0x40, request: 2, msg_id: 5, nested };
    rig.inject(2, 1, NatfwType::RESPONSE, &[NatfwValue::Status(result)]);
    // An empty RESPONSE, and one that is cut.
    rig.inject_octets(2, 1, vec![0, 4, 0, 1]);
    rig.inject_octets(2, 1, vec![0, 4, 0, 9, 0, 0x1d, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(rig.passes(1), [flow(3).filter()]);
    assert_eq!(rig.kinds(2), []);
}

/// CASPMID-7-30: NEXT in a RESPONSE is ignored.
#[test]
fn next_in_a_response_is_ignored() {
    let mut rig = Rig::standing(3, false);
    let [status] = response(5, &[]);
    let next = NatfwValue::Next(NatfwType::CREATE, Tlvs::of(&[]));
    rig.inject(2, 1, NatfwType::RESPONSE, &[status, next]);
    assert_eq!(rig.kinds(0), [NatfwType::RESPONSE]);
    assert_eq!(rig.kinds(1), [NatfwType::RESPONSE]);
}

/// CASPMID-11.2-06, CASPMID-11.2-07: a request that comes again is not processed again, and is answered as before.
#[test]
fn a_repeated_request_is_answered_from_memory() {
    let mut rig = Rig::new(3);
    let values =
        [NatfwValue::MsgId(5), NatfwValue::Age(1), NatfwValue::Logging(Vec::new()), wants_response()];
    rig.inject(0, 1, NatfwType::CREATE, &[NatfwValue::MsgId(4), NatfwValue::Age(1), wants_response()]);
    rig.clear();
    for _ in 0..2 {
        rig.wait(Duration::from_secs(2));
        rig.inject(0, 1, NatfwType::CREATE, &values);
        assert_eq!(rig.status(0), NatfwStatus::LOGGING);
    }
    assert_eq!(rig.kinds(0).len(), 2);
    assert_eq!(rig.nodes[1].client.counters().repeated, 1);
    // One that succeeded neither opens nor goes on again.
    rig.clear();
    for _ in 0..2 {
        rig.inject(0, 1, NatfwType::CREATE, &[NatfwValue::MsgId(8), NatfwValue::Age(2)]);
    }
    assert_eq!(rig.kinds(2).len(), 1);
}

/// CASPMID-A-19: one error a second for a session.
#[test]
fn errors_are_limited() {
    let mut rig = Rig::standing(3, false);
    for msg_id in 0..100 {
        let values = [NatfwValue::MsgId(msg_id), NatfwValue::Age(9), NatfwValue::Logging(Vec::new())];
        rig.inject(0, 1, NatfwType::CREATE, &values);
    }
    assert_eq!(rig.kinds(0), [NatfwType::RESPONSE]);
    assert_eq!(rig.nodes[1].client.counters().errors_limited, 99);
}
