//! Reports of errors (RFC 5975 §4.2).

use signalbox_qos::qspec::{Message, Wish, blamed, flagged, malformed, pass, refuse};
use signalbox_qos::wire::qspec::{Flags, ObjectType, Outcome, ParameterId, Procedure, Qspec, Value};

use super::support::*;

const D: ObjectType = ObjectType::DESIRED;
const A: ObjectType = ObjectType::AVAILABLE;

fn refused(octets: &[u8], blame: Option<ParameterId>) -> Vec<u8> {
    let mut out = Vec::new();
    refuse(octets, blame, &mut out).unwrap_or_else(|e| panic!("{e}"));
    out
}

/// The octets with `bits` of this parameter's first value word replaced.
fn changed(mut octets: Vec<u8>, kind: ObjectType, id: ParameterId, word: u32) -> Vec<u8> {
    let at = object(&octets, kind).parameter(id).unwrap().start + 4;
    octets[at..at + 4].copy_from_slice(&word.to_be_bytes());
    octets
}

/// QSPEC-4.2.1-03, QSPEC-4.2.3-03: a refusal for lack of resources has E on the parameter and on its object.
#[test]
fn refusal_of_a_parameter() {
    let desired = [(M, Value::Tmod1(tmod(100.0))), (PLAIN, Value::PathLatency(5))];
    for (procedure, blame, kind) in [
        (Procedure::DESIRED, ParameterId::TMOD_1, D),
        (Procedure::AVAILABLE, ParameterId::TMOD_1, D),
        (Procedure::QUERY, ParameterId::TMOD_1, A),
    ] {
        let sent = compose(&Wish::of(procedure, &desired));
        let out = refused(&sent, Some(blame));
        let qspec = Qspec::parse(&out).unwrap();
        let errors: Vec<_> = blamed(&qspec, Outcome::FAILURE).map(|p| (p.object, p.id)).collect();
        assert_eq!(errors, [(kind, blame)]);
        for object in qspec.objects() {
            assert_eq!(object.error, object.kind == kind);
            assert_eq!(values(&out, object.kind), values(&sent, object.kind));
        }
    }
}

/// QSPEC-4.2.1-04: a refusal that is not about a parameter has E on the object only.
#[test]
fn refusal_as_a_whole() {
    let sent = compose(&Wish::of(Procedure::AVAILABLE, &[(M, Value::Tmod1(tmod(100.0)))]));
    for blame in [None, Some(ParameterId::DSTE_CLASS_TYPE)] {
        let out = refused(&sent, blame);
        assert!(object(&out, D).error && !object(&out, A).error);
        assert_eq!(blamed(&Qspec::parse(&out).unwrap(), Outcome::FAILURE).count(), 0);
        // The next node with state can report the failure.
        assert!(at(&out, Message::Reserve, &node(1e6)).1.failed);
    }
}

/// QSPEC-4.2.3-05, QSPEC-4.2.4-03: of a malformed QSPEC only the wrong parameters are returned, unchanged except for E.
/// QSPEC-4.2.4-06, QSPEC-4.2.1-06: this error has precedence, and a parameter that is only not satisfied has no flag.
#[test]
fn malformed_ones_are_quoted() {
    let parameters = [
        (M, Value::Tmod1(tmod(1e6))),
        (M, Value::Y1541(0)),
        (PLAIN, Value::Dste(7)),
        (PLAIN, Value::PathPlr(0.5)),
    ];
    let good = qspec(Procedure::AVAILABLE, &[(D, &parameters), (A, &parameters)]);
    let bad = changed(good.clone(), D, ParameterId::Y1541_CLASS, 0x0900_0000);
    let bad = changed(bad, A, ParameterId::PATH_PLR, 0xbf00_0000);
    let poor = node(1.0);
    assert!(at(&good, Message::Reserve, &poor).1.failed);
    let mut out = Vec::new();
    let error = pass(&bad, Message::Reserve, &poor, &mut out).unwrap_err();
    assert_eq!(error.outcome(), Outcome { class: 3, code: 0x0c });
    assert!(out.is_empty());
    assert!(malformed(&bad, Message::Reserve, &mut out));
    let shown = Qspec::frame(&out).unwrap();
    let e = |flags: Flags| Flags { error: true, ..flags };
    let all: Vec<_> = shown
        .objects()
        .flat_map(|o| o.parameters().map(move |p| (o.kind, o.error, p.id, p.flags, p.octets)))
        .collect();
    assert_eq!(
        all,
        [
            (D, true, ParameterId::Y1541_CLASS, e(M), &[9, 0, 0, 0][..]),
            (A, true, ParameterId::PATH_PLR, e(PLAIN), &[0xbf, 0, 0, 0][..]),
        ]
    );
}

/// QSPEC-4.2.4-04: after a malformed QSPEC only parameters with E count.
#[test]
fn what_the_initiator_reads() {
    let e = Flags { error: true, ..PLAIN };
    let n = Flags { not_supported: true, ..M };
    let octets = qspec(
        Procedure::DESIRED,
        &[(
            D,
            &[
                (M, Value::Tmod1(tmod(1.0))),
                (e, Value::Y1541(1)),
                (n, Value::Dste(1)),
                (PLAIN, Value::SlackTerm(0)),
            ],
        )],
    );
    let shown = Qspec::frame(&octets).unwrap();
    let ids = |outcome| blamed(&shown, outcome).map(|p| p.id.0).collect::<Vec<_>>();
    assert_eq!(ids(Outcome::MALFORMED), [14]);
    assert_eq!(ids(Outcome::FAILURE), [14, 13]);
}

/// A node without state sets E on the wrong part of a malformed QSPEC and leaves everything else unchanged.
#[test]
fn flagged_in_place() {
    let parameters = [(M, Value::Tmod1(tmod(10.0))), (PLAIN, Value::Y1541(0)), (PLAIN, Value::Dste(7))];
    let good = qspec(Procedure::DESIRED, &[(D, &parameters)]);
    let bad = changed(good, D, ParameterId::DSTE_CLASS_TYPE, 0x0800_0000);
    let bad = changed(bad, D, ParameterId::TMOD_1, 0x8000_0000);
    let mut out = vec![1, 2, 3];
    assert!(flagged(&bad, Message::Reserve, &mut out));
    let copy = out.split_off(3);
    let different: Vec<_> = (0..bad.len()).filter(|at| bad[*at] != copy[*at]).collect();
    let start = |id| object(&bad, D).parameter(id).unwrap().start;
    assert_eq!(different, [4, start(ParameterId::TMOD_1), start(ParameterId::DSTE_CLASS_TYPE)]);
    assert!(
        pass(&copy, Message::Reserve, &node(1e6), &mut Vec::new()).is_err(),
        "still malformed for the next"
    );
    let mut again = Vec::new();
    assert!(flagged(&copy, Message::Reserve, &mut again));
    assert_eq!(again, copy);
}

/// A parameter that occurs twice is reported once. For a QSPEC without an error in a parameter the output is unchanged.
#[test]
fn what_cannot_be_shown() {
    let good =
        qspec(Procedure::DESIRED, &[(D, &[(M, Value::Tmod1(tmod(1.0))), (PLAIN, Value::SlackTerm(1))])]);
    let slack = object(&good, D).parameter(ParameterId::SLACK_TERM).unwrap().start;
    let mut twice = good.clone();
    twice.extend_from_within(slack..);
    twice[3] += 2;
    twice[7] += 2;
    let mut out = Vec::new();
    assert!(malformed(&twice, Message::Reserve, &mut out));
    let shown = Qspec::frame(&out).unwrap();
    assert_eq!(shown.objects().flat_map(|o| o.parameters()).map(|p| p.id.0).collect::<Vec<_>>(), [7]);

    let missing = qspec(Procedure::DESIRED, &[(D, &[(PLAIN, Value::SlackTerm(1))])]);
    let mut procedure = good.clone();
    procedure[2] |= 0x30;
    for octets in [&missing[..], &procedure, &good[..9], &[0x10]] {
        let mut out = vec![5];
        assert!(!malformed(octets, Message::Reserve, &mut out));
        assert_eq!(out, [5]);
    }
    let mut out = vec![5];
    assert!(!flagged(&good[..9], Message::Reserve, &mut out));
    assert_eq!(out, [5]);
}

/// The report stays small for any number of errors.
#[test]
fn quotes_are_bounded() {
    let long = [0_u8; 4000];
    let wide =
        [(M, Value::Tmod1(tmod(1.0))), (PLAIN, Value::Unknown { id: ParameterId(260), octets: &long })];
    let octets = qspec(Procedure::DESIRED, &[(D, &wide)]);
    // The same parameter becomes one with a known id and a wrong length.
    let at = object(&octets, D).parameter(ParameterId(260)).unwrap().start;
    let mut bad = octets;
    bad[at..at + 2].copy_from_slice(&[0, 7]);
    let mut out = Vec::new();
    assert!(!malformed(&bad, Message::Reserve, &mut out));
    assert!(out.is_empty());
}
