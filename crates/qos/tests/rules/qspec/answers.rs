//! Answers (RFC 5975 §4.3).

use signalbox_qos::qspec::{Collect, Message, Offer, Wish, check, reserve_for, respond};
use signalbox_qos::wire::qspec::{Excess, ExcessTreatment, ObjectType, ParameterId, Procedure, Qspec, Value};

use super::support::*;

const D: ObjectType = ObjectType::DESIRED;
const A: ObjectType = ObjectType::AVAILABLE;
const R: ObjectType = ObjectType::RESERVED;
const MIN: ObjectType = ObjectType::MINIMUM;

fn answer(request: &[u8], message: Message) -> Vec<u8> {
    let mut out = Vec::new();
    respond(request, message, &mut out).unwrap_or_else(|e| panic!("{e}"));
    let qspec = Qspec::parse(&out).unwrap();
    assert_eq!(check(&qspec, Message::Response), Ok(()), "{qspec}");
    out
}

fn reserve(query: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    reserve_for(query, &mut out).unwrap_or_else(|e| panic!("{e}"));
    let qspec = Qspec::parse(&out).unwrap();
    assert_eq!(check(&qspec, Message::Reserve), Ok(()), "{qspec}");
    out
}

fn kinds(octets: &[u8]) -> Vec<ObjectType> {
    Qspec::frame(octets).unwrap().objects().map(|o| o.kind).collect()
}

/// A desire with a directive, a sum and something unknown.
fn desired() -> [(signalbox_qos::wire::qspec::Flags, Value<'static>); 4] {
    let drop = Excess { treatment: ExcessTreatment::DROP, remark: None };
    [
        (M, Value::Tmod1(tmod(100.0))),
        (PLAIN, Value::PathLatency(9000)),
        (PLAIN, Value::Excess(drop)),
        (PLAIN, Value::Unknown { id: ParameterId(258), octets: &[4, 3, 2, 1] }),
    ]
}

/// QSPEC-4.3.1-01: QoS Reserved has the values of QoS Desired, and no other object is returned. QSPEC-4.3.1-07:
/// directives are returned.
#[test]
fn sender_desired() {
    let desired = desired();
    let sent = compose(&Wish::of(Procedure::DESIRED, &desired));
    let (arrived, _) = at(&sent, Message::Reserve, &node(1e6));
    let response = answer(&arrived, Message::Reserve);
    assert_eq!(kinds(&response), [R]);
    assert_eq!(values(&response, R), desired.map(|(_, value)| value));
    assert!(flags(&response, R, ParameterId(258)).not_supported);
}

/// QSPEC-4.3.1-04, QSPEC-4.3.1-05, QSPEC-4.3.1-07, QSPEC-3.2-10: QoS Reserved has the parameters of QoS Desired, with
/// the values of QoS Available where it has them; QoS Available is returned complete.
#[test]
fn sender_available() {
    let desired = desired();
    let minimum = [(M, Value::Tmod1(tmod(10.0)))];
    for procedure in [Procedure::AVAILABLE, Procedure::MINIMUM] {
        let collect = Collect { per: true, ..Collect::default() };
        let sent = compose(&Wish { minimum: &minimum, collect, ..Wish::of(procedure, &desired) });
        let (arrived, _) = along(&sent, Message::Reserve, &[node(80.0), node(50.0)]);
        let response = answer(&arrived, Message::Reserve);
        assert_eq!(kinds(&response), [R, A]);
        let reserved = values(&response, R);
        assert_eq!(reserved[0], Value::Tmod1(tmod(50.0)));
        assert_eq!(reserved[1], value(&arrived, A, ParameterId::PATH_LATENCY));
        assert_eq!(reserved[2..], [desired[2].1, desired[3].1]);
        assert_eq!(object(&response, A).octets(), object(&arrived, A).octets());
        assert!(object(&response, A).parameter(ParameterId::PATH_PER).is_some());
    }
}

/// QSPEC-4.3.2-01: QUERY and RESERVE carry QoS Desired, RESPONSE carries QoS Reserved.
#[test]
fn receiver_desired() {
    let desired = desired();
    let query = compose(&Wish::of(Procedure::RECEIVER_DESIRED, &desired));
    assert_eq!(kinds(&query), [D]);
    let (query, _) = at(&query, Message::Query, &node(1.0));
    let sent = reserve(&query);
    assert_eq!(kinds(&sent), [D]);
    assert_eq!(values(&sent, D), desired.map(|(_, value)| value));
    let response = answer(&at(&sent, Message::Reserve, &node(1e6)).0, Message::Reserve);
    assert_eq!(kinds(&response), [R]);
}

/// QSPEC-4.3.2-02: with a minimum in the QUERY the RESERVE collects QoS Available, and carries the minimum.
#[test]
fn receiver_available() {
    let desired = desired();
    let minimum = [(M, Value::Tmod1(tmod(10.0)))];
    for minimum in [&minimum[..], &[]] {
        let query = compose(&Wish { minimum, ..Wish::of(Procedure::RECEIVER_AVAILABLE, &desired) });
        let sent = reserve(&at(&query, Message::Query, &node(20.0)).0);
        let rest: &[ObjectType] = if minimum.is_empty() { &[D, A] } else { &[D, A, MIN] };
        assert_eq!(kinds(&sent), rest);
        assert_eq!(values(&sent, D), desired.map(|(_, value)| value));
        assert_eq!(values(&sent, A), [Value::Tmod1(tmod(100.0)), Value::PathLatency(0)]);
        let (arrived, said) = along(&sent, Message::Reserve, &[node(90.0), node(60.0)]);
        assert!(said.iter().all(|passed| !passed.failed));
        let response = answer(&arrived, Message::Reserve);
        assert_eq!(kinds(&response), [R, A]);
        assert_eq!((rate(&response, R), rate(&response, A)), (60.0, 60.0));
    }
}

/// QSPEC-4.3.2-03, QSPEC-4.3.2-04: in the style of RSVP the QUERY collects. The RESERVE desires the collected values,
/// has all parameters with the values with which they arrived, and QoS Available does not change any more.
#[test]
fn receiver_collected() {
    let desired = desired();
    let collect = Collect { plr: true, ..Collect::default() };
    let query = compose(&Wish { collect, ..Wish::of(Procedure::RECEIVER_COLLECTED, &desired) });
    assert_eq!(kinds(&query), [D, A]);
    let (query, said) = along(&query, Message::Query, &[node(80.0), node(40.0)]);
    assert!(said.iter().all(|passed| !passed.failed));
    let sent = reserve(&query);
    assert_eq!(kinds(&sent), [D, A]);
    assert_eq!(object(&sent, A).octets(), object(&query, A).octets());
    let wanted = values(&sent, D);
    assert_eq!(wanted[..2], [Value::Tmod1(tmod(40.0)), value(&query, A, ParameterId::PATH_LATENCY)]);
    assert_eq!(wanted[2..], [desired[2].1, desired[3].1]);
    let (arrived, said) = along(&sent, Message::Reserve, &[node(40.0), node(300.0)]);
    assert!(said.iter().all(|passed| !passed.failed && passed.demand.tmod.unwrap().rate == 40.0));
    assert_eq!(values(&arrived, A), values(&sent, A));
    let (_, passed) = at(&sent, Message::Reserve, &node(39.0));
    assert!(passed.failed, "what has gone since the QUERY is missing");
    assert_eq!(kinds(&answer(&arrived, Message::Reserve)), [R, A]);
}

/// QSPEC-4.3.3-01: a QUERY for resources collects over three nodes, and the RESPONSE returns the result.
#[test]
fn resource_query() {
    let desired = [(M, Value::Tmod1(tmod(100.0)))];
    let sent = compose(&Wish::of(Procedure::QUERY, &desired));
    assert_eq!(kinds(&sent), [A]);
    let (arrived, _) = along(&sent, Message::Query, &[node(70.0), node(30.0), node(50.0)]);
    let response = answer(&arrived, Message::Query);
    assert_eq!(kinds(&response), [A]);
    assert_eq!(rate(&response, A), 30.0);
    let (back, _) = along(&response, Message::Response, &[node(1.0), Offer::of(tmod(2.0))]);
    assert_eq!(back, response);
}

/// Answers are composed for valid requests only; invalid ones leave the output unchanged.
#[test]
fn no_answer_to_nonsense() {
    let sent = compose(&Wish::of(Procedure::DESIRED, &desired()));
    let mut out = vec![7];
    assert!(respond(&sent, Message::Query, &mut out).is_err());
    assert!(respond(&sent[..8], Message::Reserve, &mut out).is_err());
    assert!(reserve_for(&sent, &mut out).is_err());
    let query = compose(&Wish::of(Procedure::QUERY, &desired()));
    assert!(reserve_for(&query, &mut out).is_err(), "a QUERY reserves nothing");
    assert_eq!(out, [7]);
}
