//! Complete QSPECs, octet by octet.

use signalbox_qos::wire::qspec::{
    Flags, Header, Jitter, ObjectType, ParameterId, Procedure, Qspec, QspecType, Tmod, Value,
};

use super::support::*;

/// QSPEC-B-01, QSPEC-5.2.1-01: the TMOD of Appendix B for IPv4 and IPv6, with M set and N clear for any requested
/// flags, and the unknown peak rate as infinity (QSPEC-3.3.1-04).
#[test]
fn the_tmod_of_appendix_b() {
    let v6 = Tmod { rate: 11_000.0, bucket: 2_200.0, min_policed: 220, max_packet: 220, ..VOICE };
    let cases = [
        (VOICE, "80010005 461c4000 44fa0000 7f800000 000000c8 000000c8"),
        (v6, "80010005 462be000 45098000 7f800000 000000dc 000000dc"),
    ];
    for (tmod, words) in cases {
        let flags = Flags { not_supported: true, ..Flags::default() };
        let octets = compose_desired(|o| o.put(flags, &Value::Tmod1(tmod))).unwrap();
        assert_eq!(octets, desired_of(words));
        let qspec = Qspec::parse(&octets).unwrap();
        let parameter = qspec.desired().unwrap().parameter(ParameterId::TMOD_1).unwrap();
        assert_eq!(parameter.value(), Ok(Value::Tmod1(tmod)));
        assert_eq!(parameter.flags, Flags::MANDATORY);
    }
}

/// QSPEC-5.1-01, QSPEC-5.1.1-01, QSPEC-5.1.1-02, QSPEC-5.1.2-01, QSPEC-5.1.2-02, QSPEC-5-01: the example of RFC 5976
/// §4.5 with the header of RFC 5975: 23 words, two objects of 10 and 11, all of it in network order. The flags and the
/// id of TMOD apply to the whole container (QSPEC-5.1.2-04).
#[test]
fn the_example_of_rfc_5976() {
    let octets = hex("00401017 \
         0000000a 80010005 49742400 47800000 4a742400 00000040 000005dc 800f0001 48000000 800e0001 01000000 \
         8001000b c0030001 00001388 80040004 00000064 000001f4 000009c4 00000000 80050001 3a83126f \
         a00e0001 00000000");
    let qspec = Qspec::parse(&octets).unwrap();
    let header = Header { local: false, qspec_type: QspecType::Y1541, procedure: Procedure::AVAILABLE };
    assert_eq!(qspec.header, header);
    assert_eq!((header.procedure.sequence().0, header.procedure.combination()), (0, 1));
    let desired = qspec.desired().unwrap();
    let tmod = Tmod { rate: 1e6, bucket: 65_536.0, peak: 4e6, min_policed: 64, max_packet: 1500 };
    let values: Vec<_> = desired.parameters().map(|p| p.value().unwrap()).collect();
    assert_eq!(values, [Value::Tmod1(tmod), Value::TmodExtension(131_072.0), Value::Y1541(1)]);
    assert_eq!((desired.kind, desired.error, desired.start), (ObjectType::DESIRED, false, 4));
    let available = qspec.available().unwrap();
    assert_eq!((available.kind, available.error, available.start), (ObjectType::AVAILABLE, true, 48));
    let found: Vec<_> = available.parameters().map(|p| (p.start, p.flags, p.value().unwrap())).collect();
    let m = Flags::MANDATORY;
    let jitter = Jitter { variance: 100, percentile: 500, minimum: 2500 };
    assert_eq!(
        found,
        [
            (52, Flags { error: true, ..m }, Value::PathLatency(5000)),
            (60, m, Value::PathJitter(jitter)),
            (80, m, Value::PathPlr(1e-3)),
            (88, Flags { not_supported: true, ..m }, Value::Y1541(0)),
        ]
    );
    assert!(desired.parameters().all(|p| p.flags == m));
    assert_eq!((qspec.reserved(), qspec.minimum(), qspec.encapsulated()), (None, None, None));
    assert_eq!(encode(&qspec).unwrap(), octets);
}

/// QSPEC-5.2.1-01: a node has to understand TMOD-1 even if the sender did not set M.
#[test]
fn tmod_1_is_always_mandatory() {
    for (id, mandatory) in [(1_u16, true), (2, false)] {
        let octets = desired_of(&object_of(id, "461c4000 44fa0000 7f800000 000000c8 000000c8"));
        let parameter = Qspec::parse(&octets).unwrap().desired().unwrap().parameters().next().unwrap();
        assert_eq!((parameter.flags.mandatory, parameter.is_mandatory()), (false, mandatory));
    }
}

/// QSPEC-3.2-01, QSPEC-3.2-04, QSPEC-3.2-05: one to four objects in any order, each found.
#[test]
fn objects_in_any_order() {
    let kinds = [ObjectType::DESIRED, ObjectType::AVAILABLE, ObjectType::RESERVED, ObjectType::MINIMUM];
    for order in [[0_u16, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
        for count in 1..=4 {
            let words: String = order[..count].iter().map(|kind| object_of(*kind, VOICE_HEX)).collect();
            let octets = qspec_of(0x1000, &words);
            let qspec = Qspec::parse(&octets).unwrap();
            for kind in kinds {
                let there = order[..count].contains(&kind.0);
                assert_eq!(qspec.object(kind).map(|o| o.kind), there.then_some(kind));
            }
            let found: Vec<_> = qspec.objects().map(|o| o.kind.0).collect();
            assert_eq!(found, order[..count]);
            assert_eq!(encode(&qspec).unwrap(), octets);
        }
    }
}

/// QSPEC-5.1-03: reserved bits in every header and value are ignored, and zero when the QSPEC is composed again.
#[test]
fn reserved_bits() {
    let clean = desired_of(ALL_PARAMETERS);
    let mut dirty = clean.clone();
    dirty[1] |= 0x30;
    let qspec = Qspec::parse(&clean).unwrap();
    let object = qspec.desired().unwrap();
    dirty[object.start] |= 0x70;
    dirty[object.start + 2] |= 0xf0;
    // Bits of the first word of each value that belong to no field.
    let unused =
        [(9, 0x0000_ffff), (10, 0x0000_00ff), (11, 0x0003_ffff), (12, 0x0000_ffff), (13, 0x00ff_ffff)];
    let more = [(14, 0x00ff_ffff_u32), (16, 0x0000_ffff)];
    let mut or = |at: usize, bits: u32| {
        for (n, octet) in bits.to_be_bytes().into_iter().enumerate() {
            dirty[at + n] |= octet;
        }
    };
    for parameter in object.parameters() {
        or(parameter.start, 0x1000_f000);
        for (id, bits) in unused.iter().chain(&more) {
            if parameter.id.0 == *id {
                or(parameter.start + 4, *bits);
            }
        }
        if parameter.id == ParameterId::PATH_JITTER {
            or(parameter.start + 16, 0xffff_ffff);
        }
    }
    assert_ne!(dirty, clean);
    let again = Qspec::parse(&dirty).unwrap();
    let values = |qspec: &Qspec<'_>| -> Vec<_> {
        qspec.desired().unwrap().parameters().map(|p| (p.flags, format!("{:?}", p.value()))).collect()
    };
    assert_eq!(values(&again), values(&qspec));
    assert_eq!(encode(&again).unwrap(), clean);
}
