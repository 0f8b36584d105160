//! Objects whose contents must be refused (RFC 5971 A.4.4.10).

use signalbox_gist::wire::{DecodeError, Encapsulation, ErrorClass, Fault, Message, ObjectType, Problem};

use crate::support::*;

/// The code, subcode, and offset within the object.
fn refused(header: &str, encapsulation: Encapsulation, objects: &[&str]) -> (u16, u8, usize, DecodeError) {
    let octets = message(header, objects);
    let error = Message::parse(&octets, encapsulation).unwrap_err();
    let e = error.gist_error().unwrap();
    assert_eq!(e.class, ErrorClass::PROTOCOL_ERROR);
    (e.code.0, e.subcode, error.offset - error.object_start, error)
}

fn query_with(nli: &str, proposal: &str, configuration: &str) -> (u16, u8, usize) {
    let objects = [MRI, SID, nli, QUERY_COOKIE, proposal, configuration];
    let (code, subcode, at, error) = refused(QUERY_HEADER, Encapsulation::QMode, &objects);
    assert!(error.object.is_some());
    (code, subcode, at)
}

/// GIST-A.2-02 GIST-A.4.4.10-02: lengths that do not fit the contents.
#[test]
fn lengths() {
    for sid in [
        "0001 0003 000102030405060708090a0b",
        "0001 0005 000102030405060708090a0b0c0d0e0f00000000",
        "0001 0000",
    ] {
        let (code, subcode, at, error) =
            refused(QUERY_HEADER, Encapsulation::QMode, &[MRI, sid, NLI, QUERY_COOKIE]);
        assert_eq!((code, subcode, at, error.object), (10, 0, 2, Some(ObjectType::SESSION_ID)));
    }
    for hello in ["000a 0000", "000a 0002 0000000000000000"] {
        let (code, subcode, ..) = refused(HELLO_HEADER, Encapsulation::Association, &[hello]);
        assert_eq!((code, subcode), (10, 0));
    }
    for nli in [
        "0002 0000",
        "0002 0001 04 40 40 00",
        "0002 0004 09 40 40 00 00007530 0a000001 c0000201",
        "0002 0004 ff 40 40 00 00007530 0a000001 c0000201",
        "0002 0004 00 40 40 00 00007530 0a000001 c0000201",
        "0002 0004 04 40 60 00 00007530 0a000001 c0000201",
    ] {
        let (code, subcode, _) = query_with(nli, PROPOSAL, CONFIGURATION);
        assert_eq!((code, subcode), (10, 0), "{nli}");
    }
    for proposal in [
        "0003 0002 02 000000 01 01 00 00",
        "0003 0003 01 000000 01 01 00 00 00000000",
        "0003 0002 01 000000 ff 010101",
    ] {
        let (code, subcode, _) = query_with(NLI, proposal, CONFIGURATION);
        assert_eq!((code, subcode), (10, 0), "{proposal}");
    }
    for configuration in [
        "0004 0000",
        "0004 0001 00 000000",
        "0004 0002 01 000000 00007530",
        "0004 0003 00 000000 00007530 01 00 00 00",
        "0004 0003 01 000000 00007530 01 00 04 00",
    ] {
        let (code, subcode, _) = query_with(NLI, PROPOSAL, configuration);
        assert_eq!((code, subcode), (10, 0), "{configuration}");
    }
    for nat in [
        "0007 0000",
        "0007 0001 01 00 00 00",
        "0007 0001 00 01 00 00",
        "0007 0002 00 00 01 00 0003 0000",
        "0007 0002 00 00 00 00 00000000",
    ] {
        let (code, subcode, ..) =
            refused(QUERY_HEADER, Encapsulation::QMode, &[nat, MRI, SID, NLI, QUERY_COOKIE]);
        assert_eq!((code, subcode), (10, 0), "{nat}");
    }
}

/// GIST-A.4.4.10-03 GIST-A.3.3-02 GIST-A.3.5-03: IP versions that do not exist, and times of zero, for which the RFC has no
/// error: this node sends 10/1.
#[test]
fn values() {
    for (nli, at) in [
        ("0002 0004 04 40 50 00 00007530 0a000001 c0000201", 6),
        ("0002 0004 04 40 00 00 00007530 0a000001 c0000201", 6),
        ("0002 0004 04 40 40 00 00000000 0a000001 c0000201", 8),
    ] {
        assert_eq!(query_with(nli, PROPOSAL, CONFIGURATION), (10, 1, at));
    }
    let never = "0004 0003 01 000000 00000000 01 00 00 00";
    assert_eq!(query_with(NLI, PROPOSAL, never), (10, 1, 8));
}

/// GIST-A.3.4-05: an empty list of profiles is 10/1, also if the object has no value.
#[test]
fn no_profiles() {
    for proposal in ["0003 0001 00 000000", "0003 0000", "0003 0003 00 000000 01 01 00 00 00000000"] {
        assert_eq!(query_with(NLI, proposal, CONFIGURATION), (10, 1, 4));
    }
    // The value 0 is reserved as a protocol.
    assert_eq!(query_with(NLI, "0003 0002 01 000000 02 01 00 00", CONFIGURATION), (10, 1, 10));
}

/// GIST-A.3.4-06 GIST-A.4.4.10-05: an empty profile, first or later, is 10/3.
#[test]
fn empty_profile() {
    assert_eq!(query_with(NLI, "0003 0002 01 000000 00 00 00 00", CONFIGURATION), (10, 3, 8));
    assert_eq!(query_with(NLI, "0003 0003 02 000000 01 01 00 00 00 01 00 00", CONFIGURATION), (10, 3, 12));
}

/// GIST-5.7.1-02 GIST-5.7.2-02: options for a profile or protocol that is not offered, or missing options for an
/// offered Forwards-TCP: 10/5.
#[test]
fn stack_mismatch() {
    for configuration in [
        "0004 0004 02 000000 00007530 01 00 00 00 01 03 00 00", // profile 3 of 2
        "0004 0004 02 000000 00007530 01 00 00 00 03 00 00 00", // no profile has SCTP
        "0004 0004 02 000000 00007530 01 00 00 00 02 02 00 00", // TLS is not in the second
        "0004 0002 00 000000 00007530",                         // no options for TCP
        "0004 0003 01 000000 00007530 01 01 00 00",             // no options for TCP in the second
    ] {
        let (code, subcode, _) = query_with(NLI, PROPOSAL, configuration);
        assert_eq!((code, subcode), (10, 5), "{configuration}");
    }
    // Options by profile number, or one for all profiles, are valid. TLS alone needs no options.
    for (proposal, configuration) in [
        (PROPOSAL, "0004 0004 02 000000 00007530 01 01 00 00 01 02 00 00"),
        ("0003 0002 01 000000 01 02 00 00", "0004 0002 00 000000 00007530"),
    ] {
        let octets = message(QUERY_HEADER, &[MRI, SID, NLI, QUERY_COOKIE, proposal, configuration]);
        Message::parse(&octets, Encapsulation::QMode).unwrap();
    }
}

/// GIST-5.2.2-11: a request with Hello-ID 0 is 10/1.
#[test]
fn hello_request_without_id() {
    let (code, subcode, at, error) =
        refused("01 01 0000 0000 05 c0", Encapsulation::Association, &["000a 0001 00000000"]);
    assert_eq!((code, subcode, at), (10, 1, 4));
    assert_eq!(error.object, Some(ObjectType::HELLO_ID));
}

/// GIST-5.8.1.1-04 GIST-A.4.4.10-04: errors of the MRI have the offset from the start of the message, and identify the
/// cause.
#[test]
fn mri_within_a_message() {
    for (mri, offset, problem, fault) in [
        (
            "0000 0005 63 00 48 c0 c0000201 c6336407 20 20 11 00 1388 1389",
            12,
            Problem::Value,
            Fault::Unsupported,
        ),
        (
            "0000 0005 00 00 40 c0 c0000201 c6336407 20 20 11 00 1388 1389",
            15,
            Problem::FlagField,
            Fault::Malformed,
        ),
        ("0000 0004 00 00 48 c0 c0000201 c6336407 20 20 11 00", 28, Problem::ObjectLength, Fault::Malformed),
    ] {
        let (.., error) = refused(QUERY_HEADER, Encapsulation::QMode, &[mri, SID, NLI, QUERY_COOKIE]);
        assert_eq!((error.offset, error.object_start), (offset, 8));
        assert_eq!((error.problem, error.fault()), (problem, fault));
    }
}

/// The text of an error is readable as a sentence.
#[test]
fn display() {
    let octets = message(QUERY_HEADER, &[MRI, SID, "0002 0004 04 40 50 00 00007530 0a000001 c0000201"]);
    let error = Message::parse(&octets, Encapsulation::QMode).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Network-Layer-Information: IP-Ver at octet 58: value not supported (value 5)"
    );
    assert_eq!(error.gist_error().unwrap().to_string(), "10/1 Object Value Error: Value Not Supported");
}
