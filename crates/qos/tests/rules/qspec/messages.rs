//! The objects of each message.

use signalbox_qos::qspec::{Message, Offer, available_is_collected, check, faults, pass, wants_response};
use signalbox_qos::wire::qspec::{ObjectType, Outcome, ParameterId, Problem, Procedure, Qspec, Value};

use super::support::*;

const MESSAGES: [Message; 4] = [Message::Reserve, Message::Query, Message::Response, Message::Notify];
const PROCEDURES: [Procedure; 7] = [
    Procedure::DESIRED,
    Procedure::AVAILABLE,
    Procedure::MINIMUM,
    Procedure::RECEIVER_DESIRED,
    Procedure::RECEIVER_AVAILABLE,
    Procedure::RECEIVER_COLLECTED,
    Procedure::QUERY,
];

/// Sets of objects as bits: 1 Desired, 2 Available, 4 Reserved, 8 Minimum.
fn allowed(procedure: Procedure, message: Message) -> &'static [u8] {
    match (procedure.0, message) {
        (0x00, Message::Reserve) | (0x10, Message::Query | Message::Reserve) => &[1],
        (0x01, Message::Reserve) | (0x12, Message::Query | Message::Reserve) => &[3],
        (0x02, Message::Reserve) => &[11],
        (0x11, Message::Query) => &[1, 9],
        (0x11, Message::Reserve) => &[3, 11],
        (0x00 | 0x10, Message::Response) => &[4],
        (0x20, Message::Query | Message::Response) => &[2],
        (_, Message::Response) => &[6],
        (_, Message::Notify) => &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        _ => &[],
    }
}

/// QSPEC-4.3-02, QSPEC-4.3.3-01, QSPEC-3.2-10: tables 1 to 3 for every procedure, message and set of objects; any other
/// set is malformed. A RESPONSE to a message with QoS Desired needs QoS Reserved.
#[test]
fn the_tables() {
    let voice = [(M, Value::Tmod1(tmod(1000.0)))];
    for procedure in PROCEDURES {
        for message in MESSAGES {
            for set in 1..16_u8 {
                let objects: Vec<_> =
                    (0..4_u16).filter(|n| set >> n & 1 != 0).map(|n| (ObjectType(n), &voice[..])).collect();
                let octets = qspec(procedure, &objects);
                let qspec = Qspec::parse(&octets).unwrap();
                let result = check(&qspec, message);
                assert_eq!(
                    result.is_ok(),
                    allowed(procedure, message).contains(&set),
                    "{procedure} {message:?} {set:04b}"
                );
                if let Err(error) = result {
                    assert_eq!(error.outcome(), Outcome::MALFORMED);
                    assert!(matches!(error.problem, Problem::Missing | Problem::NotAllowed));
                    let mut out = Vec::new();
                    assert_eq!(pass(&octets, message, &node(1.0), &mut out), Err(error));
                    assert!(out.is_empty());
                }
            }
        }
    }
}

/// Objects for private use may be in any message.
#[test]
fn private_objects_may_be_in_any_message() {
    let voice = [(M, Value::Tmod1(tmod(1000.0)))];
    let octets = qspec(Procedure::DESIRED, &[(ObjectType(66), &voice), (ObjectType::DESIRED, &voice)]);
    let (out, passed) = at(&octets, Message::Reserve, &node(1e6));
    assert_eq!((&out, passed.failed), (&octets, false));
}

/// QSPEC-3.3-01: a request without TMOD-1 is malformed, a RESPONSE is not.
#[test]
fn no_request_without_tmod() {
    let slack = [(PLAIN, Value::SlackTerm(1))];
    for (procedure, message, kinds) in [
        (Procedure::DESIRED, Message::Reserve, &[ObjectType::DESIRED][..]),
        (Procedure::AVAILABLE, Message::Reserve, &[ObjectType::AVAILABLE, ObjectType::DESIRED]),
        (Procedure::RECEIVER_DESIRED, Message::Query, &[ObjectType::DESIRED]),
        (Procedure::QUERY, Message::Query, &[ObjectType::AVAILABLE]),
    ] {
        let objects: Vec<_> = kinds.iter().map(|kind| (*kind, &slack[..])).collect();
        let octets = qspec(procedure, &objects);
        let qspec = Qspec::parse(&octets).unwrap();
        let error = check(&qspec, message).unwrap_err();
        assert_eq!(
            (error.problem, error.field, error.object),
            (Problem::Missing, "TMOD-1", kinds.last().copied())
        );
        assert_eq!(error.outcome(), Outcome::MALFORMED);
    }
    let octets = qspec(Procedure::DESIRED, &[(ObjectType::RESERVED, &slack)]);
    assert_eq!(check(&Qspec::parse(&octets).unwrap(), Message::Response), Ok(()));
}

/// All errors are reported, those of the message after those of the QSPEC.
#[test]
fn all_faults_of_a_message() {
    let lonely = [(PLAIN, Value::SlackTerm(1))];
    let octets =
        qspec(Procedure::MINIMUM, &[(ObjectType::DESIRED, &lonely), (ObjectType::RESERVED, &lonely)]);
    let found: Vec<_> = faults(&Qspec::frame(&octets).unwrap(), Message::Reserve)
        .map(|e| (e.problem, e.object.map(|o| o.0)))
        .collect();
    let (missing, extra) = (Problem::Missing, Problem::NotAllowed);
    assert_eq!(found, [(missing, Some(1)), (missing, Some(3)), (extra, Some(2)), (missing, Some(0))]);
}

/// QSPEC-4.3-01: the procedures with QoS Available need a RESPONSE.
#[test]
fn who_wants_a_response() {
    let without: Vec<_> = PROCEDURES.into_iter().filter(|p| !wants_response(*p)).collect();
    assert_eq!(without, [Procedure::DESIRED, Procedure::RECEIVER_DESIRED]);
}

/// QSPEC-3.2-09: QoS Available is collected by one message of each procedure that has it, and read-only in all others:
/// a RESPONSE, and the RESERVE of sequence 1 combination 2, are forwarded with the same octets.
#[test]
fn where_available_is_written() {
    let collecting: Vec<_> = PROCEDURES
        .into_iter()
        .flat_map(|p| MESSAGES.into_iter().map(move |m| (p, m)))
        .filter(|(p, m)| available_is_collected(*p, *m))
        .collect();
    assert_eq!(
        collecting,
        [
            (Procedure::AVAILABLE, Message::Reserve),
            (Procedure::MINIMUM, Message::Reserve),
            (Procedure::RECEIVER_AVAILABLE, Message::Reserve),
            (Procedure::RECEIVER_COLLECTED, Message::Query),
            (Procedure::QUERY, Message::Query),
        ]
    );
    let voice = [(M, Value::Tmod1(tmod(1000.0))), (PLAIN, Value::PathLatency(7))];
    let poor = Offer { quality: Default::default(), ..node(10.0) };
    for (procedure, message, kinds) in [
        (Procedure::AVAILABLE, Message::Response, [ObjectType::RESERVED, ObjectType::AVAILABLE]),
        (Procedure::RECEIVER_COLLECTED, Message::Response, [ObjectType::RESERVED, ObjectType::AVAILABLE]),
        (Procedure::RECEIVER_COLLECTED, Message::Reserve, [ObjectType::DESIRED, ObjectType::AVAILABLE]),
    ] {
        let octets = qspec(procedure, &kinds.map(|kind| (kind, &voice[..])));
        let (out, _) = at(&octets, message, &poor);
        assert_eq!(values(&out, ObjectType::AVAILABLE), voice.map(|(_, value)| value));
        let unflagged = flags(&out, ObjectType::AVAILABLE, ParameterId::PATH_LATENCY);
        assert_eq!(unflagged, PLAIN);
    }
}
