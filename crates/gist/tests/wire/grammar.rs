//! The objects of each message (RFC 5971 §5.1): missing, twice, not allowed, out of order.

use signalbox_gist::wire::{DecodeError, Encapsulation, Info, Message, ObjectType, error_object_for};

use crate::support::*;
use Encapsulation::{Association, Normal, QMode};

const NAT: &str = "0007 0001 00000000";
const HELLO: &str = "000a 0001 00000000";
const ERROR: &str = "0009 0004 02000900 00000000 011e000000000040";
/// One object of each known type, by number.
const EACH: [&str; 11] =
    [MRI, SID, NLI, PROPOSAL, CONFIGURATION, QUERY_COOKIE, RESPONDER_COOKIE, NAT, DATA, ERROR, HELLO];

/// A header, an encapsulation, the mandatory objects and the optional ones, all in order.
type Grammar = (&'static str, Encapsulation, &'static [u16], &'static [u16]);

const GRAMMARS: &[Grammar] = &[
    (QUERY_HEADER, QMode, &[0, 1, 2, 5], &[7, 0, 1, 2, 5, 3, 4, 8]),
    (RESPONSE_HEADER, Normal, &[0, 1, 2, 5], &[7, 0, 1, 2, 5, 6, 3, 4, 8]),
    (RESPONSE_HEADER, Association, &[0, 1, 2, 5], &[7, 0, 1, 2, 5, 6, 3, 4, 8]),
    (CONFIRM_HEADER, Normal, &[0, 1, 2], &[0, 1, 2, 6, 3, 4, 8]),
    (CONFIRM_HEADER, Association, &[0, 1, 2], &[0, 1, 2, 6, 3, 4, 8]),
    (DATA_HEADER, Normal, &[0, 1, 2, 8], &[7, 0, 1, 2, 8]),
    ("01 1e 0000 7fc0 83 80", QMode, &[0, 1, 2, 8], &[7, 0, 1, 2, 8]),
    (DATA_HEADER, Association, &[0, 1, 8], &[7, 0, 1, 8]),
    (ERROR_HEADER, Normal, &[2, 9], &[7, 2, 9]),
    (ERROR_HEADER, Association, &[9], &[7, 2, 9]),
    (HELLO_HEADER, Association, &[10], &[10]),
];

fn build(header: &str, kinds: &[u16]) -> Vec<u8> {
    let objects: Vec<_> = kinds.iter().map(|kind| EACH[usize::from(*kind)]).collect();
    message(header, &objects)
}

/// The error and its subcode of code 9; the report must name the object.
fn rejected(octets: &[u8], encapsulation: Encapsulation) -> (u8, u16, DecodeError) {
    let error = Message::parse(octets, encapsulation).unwrap_err();
    let kind = error.object.unwrap();
    let e = error.gist_error().unwrap();
    assert_eq!((e.class.0, e.code.0), (2, 9), "{error}");
    if let Some(report) = error_object_for(&error, octets, encapsulation) {
        assert!(report.infos.iter().eq([Info::ObjectType(kind)]));
    }
    (e.subcode, kind.0, error)
}

/// GIST-5.1-09 GIST-5.1-13 GIST-5.1-15 GIST-5.1-18 GIST-5.1-20 GIST-5.1-22: least and full messages are accepted.
#[test]
fn least_and_full() {
    for (header, encapsulation, must, may) in GRAMMARS {
        for kinds in [must, may] {
            let octets = build(header, kinds);
            let m = Message::parse(&octets, *encapsulation).unwrap();
            assert_eq!(encode(&m).unwrap(), octets);
        }
    }
}

/// GIST-5.1-03 GIST-5.1-18 GIST-A.4.4.9-04 GIST-A.4.4.9-01: each mandatory object left out is 9/2, with its type in the
/// report.
#[test]
fn missing() {
    for (header, encapsulation, must, _) in GRAMMARS {
        for absent in *must {
            let kinds: Vec<_> = must.iter().copied().filter(|k| k != absent).collect();
            let octets = build(header, &kinds);
            let (subcode, kind, error) = rejected(&octets, *encapsulation);
            assert_eq!((subcode, kind), (2, *absent), "{header}");
            assert_eq!(error.offset, octets.len());
        }
    }
}

/// GIST-A.4.4.9-04 GIST-5.1-13: Stack-Proposal and Stack-Configuration-Data need each other, and need the
/// Responder-Cookie in messages that can have it.
#[test]
fn missing_partner() {
    for (header, encapsulation, kinds, absent) in [
        (QUERY_HEADER, QMode, &[0, 1, 2, 5, 3][..], 4),
        (QUERY_HEADER, QMode, &[0, 1, 2, 5, 4], 3),
        (RESPONSE_HEADER, Normal, &[0, 1, 2, 5, 6, 3], 4),
        (RESPONSE_HEADER, Normal, &[0, 1, 2, 5, 6, 4], 3),
        (RESPONSE_HEADER, Normal, &[0, 1, 2, 5, 3, 4], 6),
        (CONFIRM_HEADER, Association, &[0, 1, 2, 3], 6),
        (CONFIRM_HEADER, Association, &[0, 1, 2, 6, 4], 3),
    ] {
        let (subcode, kind, _) = rejected(&build(header, kinds), encapsulation);
        assert_eq!((subcode, kind), (2, absent), "{header} {kinds:?}");
    }
    // A Confirm that repeats the proposal on an association that is no longer new has no configuration.
    Message::parse(&build(CONFIRM_HEADER, &[0, 1, 2, 6, 3]), Association).unwrap();
}

/// GIST-5.1-03 GIST-A.4.4.9-02: each object twice is 9/0.
#[test]
fn duplicate() {
    for (header, encapsulation, _, may) in GRAMMARS {
        for twice in *may {
            let kinds: Vec<_> =
                may.iter().flat_map(|k| if k == twice { vec![*k, *k] } else { vec![*k] }).collect();
            assert_eq!(rejected(&build(header, &kinds), *encapsulation).0, 0);
        }
    }
}

/// GIST-5.1-03 GIST-A.4.4.9-05 GIST-5.1-17: each known object that the message does not allow is 9/3, at any place; an
/// NLI in Data over an association is such an object.
#[test]
fn not_allowed() {
    for (header, encapsulation, _, may) in GRAMMARS {
        for stray in (0..=10).filter(|kind| !may.contains(kind)) {
            for at in 0..=may.len() {
                let mut kinds = may.to_vec();
                kinds.insert(at, stray);
                let (subcode, kind, _) = rejected(&build(header, &kinds), *encapsulation);
                assert_eq!((subcode, kind), (3, stray), "{header}");
            }
        }
    }
}

/// GIST-5.1-03: the RFC has no subcode for the order; an object after one that it must precede is 9/3.
#[test]
fn out_of_order() {
    for (header, encapsulation, _, may) in GRAMMARS {
        for i in 1..may.len() {
            let mut kinds = may.to_vec();
            kinds.swap(i - 1, i);
            let (subcode, kind, _) = rejected(&build(header, &kinds), *encapsulation);
            assert_eq!((subcode, ObjectType(kind)), (3, ObjectType(may[i - 1])), "{header}");
        }
    }
}
