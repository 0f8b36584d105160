//! Each fault of a message, and the response code that RFC 5973 has for it.

use signalbox_natfw::wire::{Info, Message, ObjectType, sequence_number};
use signalbox_wire::parse_hex;

const LT: &str = "000c0001 0000012c";
const MSN: &str = "00120001 00000009";
const EFI: &str = "000f0001 00010000";
const DTINFO: &str = "00130003 c0000011 4f060000 00000000";
const INFO: &str = "00100001 02010000";
const NONCE: &str = "00110001 01020304";

/// The code and the object of the error in this message, of header and objects.
fn fault(header: &str, objects: &[&str]) -> (Info, Option<ObjectType>) {
    let octets = parse_hex(&format!("{header} {}", objects.join(" "))).unwrap();
    let error = Message::parse(&octets).unwrap_err();
    assert!(!error.to_string().is_empty() && error.offset <= octets.len());
    (error.info, error.object)
}

/// NATFW-4.1-05, NATFW-4.2.5-05
#[test]
fn an_illegal_type() {
    for header in ["00000000", "05000000", "ff000000"] {
        assert_eq!(fault(header, &[LT, MSN, EFI]), (Info::ILLEGAL_MESSAGE_TYPE, None));
    }
    assert_eq!(Message::parse(&[1, 0, 0]).unwrap_err().info, Info::MESSAGE_LENGTH);
}

/// NATFW-4.3-02, NATFW-4.3-04, NATFW-4.2.5-07, NATFW-4.3.1-01, NATFW-4.3.2-01, NATFW-4.3.3-01, NATFW-4.3.4-01
#[test]
fn a_missing_object() {
    let cases: [(&str, &[&str], ObjectType); 11] = [
        ("01000000", &[MSN, EFI], ObjectType::LT),
        ("01000000", &[LT, EFI], ObjectType::MSN),
        ("01000000", &[LT, MSN], ObjectType::EFI),
        ("01800000", &[LT, MSN, EFI], ObjectType::NONCE),
        ("02000000", &[LT, MSN, EFI], ObjectType::DTINFO),
        ("02800000", &[LT, MSN, EFI, DTINFO], ObjectType::NONCE),
        ("02000000", &[LT, MSN, DTINFO], ObjectType::EFI),
        ("03000000", &[MSN, INFO], ObjectType::LT),
        ("03000000", &[LT, INFO], ObjectType::MSN),
        ("03000000", &[LT, MSN], ObjectType::INFO),
        ("04000000", &[], ObjectType::INFO),
    ];
    for (header, objects, object) in cases {
        assert_eq!(fault(header, objects), (Info::MISSING_OBJECT, Some(object)), "{header} {objects:?}");
    }
    // A nonce may be there without proxy mode, and a refusal needs no lifetime.
    for text in [format!("01000000 {LT} {MSN} {EFI} {NONCE}"), format!("03000000 {MSN} 00100001 05020000")] {
        assert!(Message::parse(&parse_hex(&text).unwrap()).is_ok(), "{text}");
    }
}

/// NATFW-4.3-05, NATFW-4.2.5-07
#[test]
fn an_object_of_another_message() {
    let cases: [(&str, &[&str], ObjectType); 6] = [
        ("01000000", &[LT, MSN, EFI, DTINFO], ObjectType::DTINFO),
        ("01000000", &[LT, MSN, EFI, INFO], ObjectType::INFO),
        ("01000000", &[LT, MSN, EFI, "000e0001 00004000"], ObjectType::EXTERNAL_BINDING),
        ("02000000", &[LT, MSN, EFI, DTINFO, "000d0002 00004000 c0000201"], ObjectType::EXTERNAL_IP),
        ("03000000", &[LT, MSN, INFO, EFI], ObjectType::EFI),
        ("04000000", &[INFO, MSN], ObjectType::MSN),
    ];
    for (header, objects, object) in cases {
        assert_eq!(fault(header, objects), (Info::ILLEGAL_OBJECT, Some(object)), "{header} {objects:?}");
    }
}

/// NATFW-4.3-06, NATFW-4.2.5-09
#[test]
fn an_object_twice() {
    for (object, kind) in [(LT, ObjectType::LT), (MSN, ObjectType::MSN), (EFI, ObjectType::EFI)] {
        assert_eq!(
            fault("01000000", &[LT, MSN, EFI, object]),
            (Info::DUPLICATE_OBJECT, Some(kind)),
            "{object}"
        );
    }
}

/// NATFW-4.2-02, NATFW-4.2.5-08
#[test]
fn a_wrong_length() {
    let create = |object: &str| fault("01000000", &[LT, MSN, EFI, object]);
    let external = |object: &str| fault("02000000", &[LT, MSN, EFI, object]);
    assert_eq!(create("00110000").0, Info::OBJECT_LENGTH, "NONCE without value");
    assert_eq!(create("00110002 01020304 00000000").0, Info::OBJECT_LENGTH, "NONCE of two words");
    assert_eq!(create("00110002 01020304"), (Info::OBJECT_LENGTH, Some(ObjectType::NONCE)), "beyond the end");
    assert_eq!(create("00140001 04010203").0, Info::OBJECT_LENGTH, "four types in three octets");
    assert_eq!(create("00140002 01010000 00000000").0, Info::OBJECT_LENGTH, "a word too many");
    assert_eq!(external("00130002 c0000011 4f060000").0, Info::OBJECT_LENGTH, "DTINFO without sender");
    assert_eq!(external("00130003 80000011 00000000 00000000").0, Info::OBJECT_LENGTH, "a word too many");
    assert_eq!(external(&format!("{DTINFO} 000e0000")).0, Info::OBJECT_LENGTH, "BINDING without port");
}

/// NATFW-4.2-03, NATFW-4.2-05, NATFW-4.2-06, NATFW-4.2.5-07, NATFW-4.2.5-09
#[test]
fn an_unknown_object_by_its_flags() {
    let object = |first: &str| fault("01000000", &[LT, MSN, EFI, first]);
    assert_eq!(object("07d00000"), (Info::UNKNOWN_OBJECT, Some(ObjectType(2000))), "AB=00");
    assert_eq!(object("c7d00000"), (Info::FLAG_COMBINATION, Some(ObjectType(2000))), "AB=11");
    assert_eq!(object("c0110001 01020304").0, Info::FLAG_COMBINATION, "AB=11 in a known one");
    // The objects of the QoS NSLP are not known here.
    assert_eq!(object("00020001 01020304").0, Info::UNKNOWN_OBJECT);
}

/// The private object of publications, which has the flags AB=00.
#[test]
fn a_publication_that_is_none() {
    let kind = Some(ObjectType(2005));
    let external = |objects: &[&str]| {
        let all: Vec<&str> = [LT, MSN, EFI, DTINFO].into_iter().chain(objects.iter().copied()).collect();
        fault("02000000", &all)
    };
    let plain = "07d50004 80000000 00000000 00000000 00000000";
    let filter = |first: &str| {
        format!("07d50009 80000000 00000000 00000000 00000000 {first} 00000000 00000000 0000ffff c6336400")
    };
    assert_eq!(external(&["07d50003 80000000 00000000 00000000"]), (Info::OBJECT_LENGTH, kind));
    assert_eq!(
        external(&["07d50005 80000000 00000000 00000000 00000000 00000000"]),
        (Info::OBJECT_LENGTH, kind)
    );
    let nine = format!("07d50031 80000000{}", " 00000000".repeat(48));
    assert_eq!(external(&[&nine]), (Info::OBJECT_LENGTH, kind), "nine filters");
    for prefix in ["005f0000", "00810000"] {
        assert_eq!(external(&[&filter(prefix)]), (Info::UNKNOWN_VALUE, kind), "{prefix}");
    }
    assert_eq!(external(&[plain, plain]), (Info::DUPLICATE_OBJECT, kind));
    assert_eq!(fault("01000000", &[LT, MSN, EFI, plain]), (Info::ILLEGAL_OBJECT, kind));
    assert_eq!(fault("04000000", &[INFO, plain]), (Info::ILLEGAL_OBJECT, kind));
    // With other flags it is an object of somebody else.
    let other = parse_hex(&format!("02000000 {LT} {MSN} {EFI} {DTINFO} 87d50000 47d50001 00000000")).unwrap();
    let message = Message::parse(&other).unwrap();
    assert_eq!((message.publication, message.forwarded.iter().count()), (None, 1));
}

/// NATFW-4.2.8-02, NATFW-4.2.8-03, NATFW-4.2.8-04, NATFW-4.2.8-05
#[test]
fn flags_of_a_data_terminal_that_exclude_each_other() {
    for flags in ["e0", "60", "40", "20"] {
        let object = format!("00130003 {flags}000011 00000000 00000000");
        let found = fault("02000000", &[LT, MSN, EFI, &object]);
        assert_eq!(found, (Info::FLAG_COMBINATION, Some(ObjectType::DTINFO)), "{flags}");
    }
}

/// NATFW-4.2.2-04, NATFW-4.2.3-03, NATFW-4.2.5-08
#[test]
fn an_ip_version_other_than_4() {
    let response = |object: &str| fault("03000000", &[LT, MSN, INFO, object]);
    assert_eq!(response("000d0002 00006000 c0000201"), (Info::UNKNOWN_VALUE, Some(ObjectType::EXTERNAL_IP)));
    assert_eq!(response("000e0001 00005000"), (Info::UNKNOWN_VALUE, Some(ObjectType::EXTERNAL_BINDING)));
    let prefix = fault("02000000", &[LT, MSN, EFI, "00130002 00002100 00000000"]);
    assert_eq!(prefix, (Info::UNKNOWN_VALUE, Some(ObjectType::DTINFO)), "a prefix of 33 bits");
}

/// A faulty request is answered with its own number.
#[test]
fn the_number_of_a_faulty_message_can_be_read() {
    let octets = parse_hex(&format!("01000000 {LT} {MSN} 07d00000")).unwrap();
    assert!(Message::parse(&octets).is_err());
    assert_eq!(sequence_number(&octets), Some(9));
    assert_eq!(sequence_number(&octets[..12]), None);
    assert_eq!(sequence_number(&[1, 0]), None);
}
