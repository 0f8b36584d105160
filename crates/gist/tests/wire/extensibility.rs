//! Objects of unknown type, and the A and B flags (RFC 5971 A.2.1).

use signalbox_gist::wire::{Encapsulation, Extensibility, Info, Message, ObjectType, error_object_for};

use crate::support::*;

/// The Data message with `object` at each possible place.
fn with(object: &str) -> Vec<Vec<u8>> {
    let parts = [MRI, SID, NLI, DATA];
    (0..=parts.len())
        .map(|at| {
            let mut parts = parts.to_vec();
            parts.insert(at, object);
            message(DATA_HEADER, &parts)
        })
        .collect()
}

/// GIST-A.2.1-01 GIST-A.4.4.9-03 GIST-A.4.4.9-01: unknown with AB=00 is 9/1, and Object Type Info has its type.
#[test]
fn mandatory() {
    for octets in with("01f4 0001 00000001") {
        let error = Message::parse(&octets, Encapsulation::Normal).unwrap_err();
        assert_eq!(error.object, Some(ObjectType(500)));
        let report = error_object_for(&error, &octets, Encapsulation::Normal).unwrap();
        assert_eq!((report.error.code.0, report.error.subcode, report.error.class.0), (9, 1, 2));
        assert!(report.infos.iter().eq([Info::ObjectType(ObjectType(500))]));
    }
}

/// GIST-5.1-04 GIST-A.2.1-02: an unknown object with AB=01 is ignored, and omitted when the message is composed again.
#[test]
fn ignore() {
    let plain = data();
    let plain = Message::parse(&plain, Encapsulation::Normal).unwrap();
    for object in ["41f4 0001 00000001", "41f4 0000", "7fff 0002 0000000000000000"] {
        for octets in with(object) {
            let m = Message::parse(&octets, Encapsulation::Normal).unwrap();
            assert_eq!(m, plain);
            assert!(m.unknown.is_empty());
            assert_eq!(encode(&m).unwrap(), data());
        }
    }
}

/// GIST-5.1-04 GIST-A.2.1-03: unknown with AB=10 is kept, every octet of it, when the message is composed again;
/// several objects keep their order; reserved bits of its TLV header included.
#[test]
fn forward() {
    for octets_in in with("81f4 0001 00000001 b1f5 f000") {
        let m = Message::parse(&octets_in, Encapsulation::Normal).unwrap();
        assert_eq!(m.unknown.len(), 2);
        assert!(m.unknown.iter().map(|o| o.kind.0).eq([500, 501]));
        assert_eq!(
            encode(&m).unwrap(),
            message(DATA_HEADER, &[MRI, SID, NLI, DATA, "81f4 0001 00000001 b1f5 f000"])
        );
    }
}

/// The same unknown type twice is not a duplicate: only known objects are counted.
#[test]
fn forward_twice() {
    let octets = message(DATA_HEADER, &["81f4 0000", MRI, SID, NLI, DATA, "81f4 0000"]);
    assert_eq!(Message::parse(&octets, Encapsulation::Normal).unwrap().unknown.len(), 2);
}

/// GIST-A.2.1-04 GIST-A.4.4.9-07: AB=11 is 9/5 for known and unknown types alike.
#[test]
fn reserved() {
    for octets in with("c1f4 0001 00000001") {
        let error = Message::parse(&octets, Encapsulation::Normal).unwrap_err();
        assert_eq!((error.object, error.gist_error().unwrap().subcode), (Some(ObjectType(500)), 5));
    }
    for kind in 0..=10 {
        let object = format!("c00{kind:x} 0000");
        let error = Message::parse(&message(DATA_HEADER, &[&object]), Encapsulation::Normal).unwrap_err();
        assert_eq!((error.object, error.offset), (Some(ObjectType(kind)), 8));
        assert_eq!(error.gist_error().map(|e| (e.code.0, e.subcode)), Some((9, 5)));
    }
}

/// GIST-A.2-01: the other three combinations do not affect known objects, and neither do the reserved bits.
#[test]
fn flags_of_known_objects() {
    let plain = data();
    let plain = Message::parse(&plain, Encapsulation::Normal).unwrap();
    for (first, second) in [(0x40, 0), (0x80, 0), (0x30, 0xf0), (0xb0, 0x50)] {
        let mut octets = data();
        octets[8] |= first;
        octets[10] |= second;
        assert_eq!(Message::parse(&octets, Encapsulation::Normal).unwrap(), plain);
    }
    let m = Message::parse(plain.octets, Encapsulation::Normal).unwrap();
    assert_eq!(m.unknown.iter().next().map(|o| o.extensibility), None::<Extensibility>);
}
