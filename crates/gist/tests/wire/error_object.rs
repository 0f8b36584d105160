//! The Error object (RFC 5971 A.4.1 to A.4.3).

use signalbox_core::NslpId;
use signalbox_gist::wire::{
    Encapsulation, EncodeError, ErrorClass, ErrorCode, ErrorObject, GistError, Info, InfoType, Infos,
    Message, MessageType, ObjectType,
};
use signalbox_wire::hex;

use crate::support::*;

const ORIGINAL: [u8; 8] = [1, 29, 0, 29, 0x7f, 0xc0, 0x80, 0x40];

fn plain() -> ErrorObject<'static> {
    ErrorObject {
        error: GistError::NO_ROUTING_STATE,
        d_mode: false,
        q_mode: false,
        header: ORIGINAL,
        session: None,
        mri_octets: None,
        infos: Infos::NONE,
        comment: None,
    }
}

fn around(object: ErrorObject<'_>) -> Message<'_> {
    let mut m = Message::new(MessageType::ERROR, NslpId::NONE, 30);
    m.error = Some(object);
    m
}

/// Checks composition and parsing within an Error message over an association.
fn value(object: ErrorObject<'_>, value: &str) {
    let value = octets(value);
    let object_octets = format!("0009 {:04x} {}", value.len() / 4, hex(&value));
    both_ways(&message(ERROR_HEADER, &[&object_octets]), Encapsulation::Association, &around(object));
}

/// GIST-A.4.1-01 GIST-A.4.1-02 GIST-A.4.1-05: the shortest Error object, and each flag by itself.
#[test]
fn least() {
    let header = "011d001d7fc08040";
    value(plain(), &format!("02 0005 00 00 00 00 00 {header}"));
    value(ErrorObject { d_mode: true, ..plain() }, &format!("02 0005 00 10 00 00 00 {header}"));
    value(ErrorObject { d_mode: true, q_mode: true, ..plain() }, &format!("02 0005 00 18 00 00 00 {header}"));
    let session = ErrorObject { session: Some(SESSION), ..plain() };
    value(session, &format!("02 0005 00 80 00 00 00 {header} {}", hex(&SESSION.0)));
    let mri = octets("01 00 40 00 c0000201 c6336407");
    let flow = ErrorObject { mri_octets: Some(&mri), ..plain() };
    value(flow, &format!("02 0005 00 40 00 03 00 {header} {}", hex(&mri)));
}

/// GIST-A.4.1-04: Q without D is refused on both sides (10/2; although no Error is sent about an Error).
#[test]
fn q_without_d() {
    let m = around(ErrorObject { q_mode: true, ..plain() });
    assert_eq!(encode(&m), Err(EncodeError::Forbidden { object: Some(ObjectType::ERROR), field: "Q-flag" }));
    let octets = message(ERROR_HEADER, &["0009 0004 02 0005 00 08 00 00 00 011d001d7fc08040"]);
    let error = Message::parse(&octets, Encapsulation::Association).unwrap_err();
    assert_eq!(error.gist_error(), Some(GistError::INVALID_FLAG_FIELD_COMBINATION));
}

/// GIST-A.4.1-08: comments of 0, 3, 4 and 5 octets.
#[test]
fn comments() {
    for (comment, padded) in [
        ("", "00000000"),
        ("abc", "61626300"),
        ("abcd", "6162636400000000"),
        ("abcde", "6162636465000000"),
        ("ü", "c3bc0000"),
    ] {
        let object = ErrorObject { comment: Some(comment), ..plain() };
        value(object, &format!("02 0005 00 20 00 00 00 011d001d7fc08040 {padded}"));
    }
    for broken in ["", "61626364", "6100000000000000", "ff000000"] {
        let object = format!("02 0005 00 20 00 00 00 011d001d7fc08040 {broken}");
        let object = format!("0009 {:04x} {object}", 4 + broken.len() / 8);
        let octets = message(ERROR_HEADER, &[&object]);
        let error = Message::parse(&octets, Encapsulation::Association).unwrap_err();
        assert_eq!(error.field, "Debugging Comment");
    }
    let m = around(ErrorObject { comment: Some("a\0b"), ..plain() });
    assert!(encode(&m).is_err());
}

/// GIST-A.4.2-01 GIST-A.4.2-02 GIST-A.4.2-03 GIST-A.4.2-04 GIST-A.4.2-05 GIST-A.4.2-06: each kind of additional information,
/// two Object Value Infos, one of unknown type, and one without a value.
#[test]
fn additional_information() {
    let object = octets("0001 0001 11223344");
    let infos = [
        Info::MessageLength(0x0102),
        Info::Mtu(1500),
        Info::ObjectType(ObjectType(500)),
        Info::ObjectValue { offset: 6, object: &object },
        Info::ObjectValue { offset: 0, object: &object[..4] },
        Info::Other { kind: InfoType(99), value: &[1, 2, 3, 4, 5, 6, 7, 8] },
        Info::Other { kind: InfoType(100), value: &[] },
    ];
    value(
        ErrorObject { infos: Infos::of(&infos), ..plain() },
        "02 0005 00 00 00 00 07 011d001d7fc08040
         0001 0001 0102 0000
         0002 0001 05dc 0000
         0003 0001 01f4 0000
         0004 0003 0002 0006 0001 0001 11223344
         0004 0002 0001 0000 0001 0001
         0063 0002 0102030405060708
         0064 0000",
    );
}

/// Information of a known type and a wrong length is kept as it is: an Error is not answered, so its sender could not
/// be informed.
#[test]
fn information_of_wrong_length() {
    let infos = [
        Info::Other { kind: InfoType::MTU, value: &[] },
        Info::Other { kind: InfoType::OBJECT_VALUE, value: &[0, 2, 0, 0, 0, 1, 0, 1] },
    ];
    value(
        ErrorObject { infos: Infos::of(&infos), ..plain() },
        "02 0005 00 00 00 00 02 011d001d7fc08040 0002 0000 0004 0002 0002 0000 0001 0001",
    );
}

/// GIST-A.4.3-01: the classes by number; unknown classes are kept.
#[test]
fn classes() {
    let classes = [
        ErrorClass::INFORMATIONAL,
        ErrorClass::SUCCESS,
        ErrorClass::PROTOCOL_ERROR,
        ErrorClass::TRANSIENT_FAILURE,
        ErrorClass::PERMANENT_FAILURE,
    ];
    assert!(classes.iter().map(|c| c.0).eq(0..5));
    let error = GistError { class: ErrorClass(9), code: ErrorCode(0x1234), subcode: 7 };
    value(ErrorObject { error, ..plain() }, "09 1234 07 00 00 00 00 011d001d7fc08040");
}

/// Classes, codes and subcodes of the whole catalogue, as A.4.4 lists them.
#[test]
fn catalogue() {
    let expected: &[(u8, u16, u8)] = &[
        (2, 1, 0),
        (2, 1, 1),
        (2, 1, 2),
        (2, 1, 3),
        (2, 1, 4),
        (2, 1, 5),
        (4, 2, 0),
        (2, 3, 0),
        (2, 4, 0),
        (2, 5, 0),
        (4, 6, 0),
        (4, 7, 0),
        (4, 8, 0),
        (2, 9, 0),
        (2, 9, 1),
        (2, 9, 2),
        (2, 9, 3),
        (2, 9, 4),
        (2, 9, 5),
        (2, 10, 0),
        (2, 10, 1),
        (2, 10, 2),
        (2, 10, 3),
        (2, 10, 4),
        (2, 10, 5),
        (4, 11, 0),
        (4, 12, 0),
        (4, 12, 1),
        (4, 12, 2),
    ];
    assert!(
        GistError::CATALOGUE.iter().map(|e| (e.class.0, e.code.0, e.subcode)).eq(expected.iter().copied())
    );
    assert!(GistError::CATALOGUE.iter().all(|e| e.name().is_some()));
}
