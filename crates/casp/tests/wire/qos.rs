//! Octets of the QoS client.

use signalbox_casp::fuzz;
use signalbox_casp::wire::FlowId;
use signalbox_casp::wire::qos::{
    Bandwidth, Flowspec, Local, Partial, QosClass, QosErrorCode, QosFault, QosFlags, QosMessage, QosType,
    QosVersion, Refusal,
};

use crate::support::hex;

pub(crate) const V1: &str = "
    00000058 80010100 0a000101 0a000202 13880258 11000000 00080a01 00000007 000c0b01 c2e01234 80000000 00080201
    00000000 00240301 00000007 05000006 7f000005 47f42400 44bb8000 48742400 00000040 000005dc";
pub(crate) const V2: &str = "
    00000034 00040100 0a000101 0a000202 13880258 11000000 00080a02 00000007 000c0b01 c2e01234 80000000 00080201
    00000000";
pub(crate) const V3: &str = "
    00000048 40050100 0a000101 0a000202 13880258 11000000 00080a02 00000007 00080201 00000000 00100501 00010000
    00000000 03000000 00080101 0a0001fe 00080c01 00010000";
pub(crate) const V4: &str = "00000020 40030100 0a000101 0a000202 13880258 11000000 00080a01 00000009";
pub(crate) const V5: &str = "
    00000058 00020100 0a000101 0a000202 13880258 11000000 00080a01 00000008 000c0b01 c2e01234 80000000 00080201
    00000000 00240301 00000007 05000006 7f000005 47f42400 44bb8000 48742400 00000040 000005dc";
pub(crate) const V6: &str = "
    00000094 20060300 20010db8 00010000 00000000 00000001 20010db8 00020000 00000000 00000002 00012345 00080a01
    00000001 00080201 00000000 00100501 00000000 00010002 01000000 00240301 00000007 05000006 7f000005 47c35000
    44bb8000 47c35000 00000040 000005dc 00240401 00000007 05000006 7f000005 48435000 453b8000 48435000 00000040
    000005dc";

const SPEC: &str = "00240301 00000007 05000006 7f000005 47f42400 44bb8000 48742400 00000040 000005dc";

fn parse(octets: &[u8]) -> QosMessage<'_> {
    QosMessage::parse(octets).unwrap()
}

fn composed(message: &QosMessage<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    message.encode(&mut octets).unwrap();
    octets
}

/// A message of this type with these objects behind the header of the vectors, with its length.
fn with(flags: u8, kind: u8, objects: &[&str]) -> Vec<u8> {
    let mut octets = hex(V4);
    octets.truncate(24);
    (octets[4], octets[5]) = (flags, kind);
    objects.iter().for_each(|object| octets.extend(hex(object)));
    let length = u32::try_from(octets.len()).unwrap();
    octets[..4].copy_from_slice(&length.to_be_bytes());
    octets
}

fn fault(octets: &[u8]) -> (Option<u32>, u16, u16) {
    let QosFault { sequence, code, detail } = QosMessage::parse(octets).unwrap_err();
    (sequence, code.0, detail)
}

const OWN: &str = "00080a01 00000007";
const ECHO: &str = "00080a02 00000007";
const AGE: &str = "000c0b01 c2e01234 80000000";
const VERSION: &str = "00080201 00000000";

/// CASPQOS-2-01, CASPQOS-A.1-01, CASPQOS-A.2-01, CASPQOS-A.2-18: all vectors are composed as they were read.
#[test]
fn vectors_are_composed_as_they_were_read() {
    for (vector, kind) in [(V1, 1), (V2, 4), (V3, 5), (V4, 3), (V5, 2), (V6, 6)] {
        let octets = hex(vector);
        let message = parse(&octets);
        assert_eq!(message.kind, QosType(kind));
        assert_eq!(composed(&message), octets);
        assert_eq!(octets[..4], u32::try_from(octets.len()).unwrap().to_be_bytes());
    }
}

/// CASPQOS-A.1-06, CASPQOS-A.1-07, CASPQOS-A.2-14, CASPQOS-A.2-15, CASPQOS-A.2-19, CASPQOS-A.2-07, CASPQOS-3.1-01: each field
/// of a Reserve.
#[test]
fn a_reserve_field_by_field() {
    let octets = hex(V1);
    let message = parse(&octets);
    assert_eq!((message.flags, message.kind), (QosFlags::COMMIT, QosType::RESERVE));
    let (src, dst) = ("10.0.1.1".parse().unwrap(), "10.0.2.2".parse().unwrap());
    assert_eq!(message.flow, FlowId::V4Ports { src, dst, src_port: 5000, dst_port: 600, protocol: 17 });
    assert_eq!((message.sequence, message.echo), (Some(7), None));
    assert_eq!((message.age, message.version), (Some(0xc2e0_1234_8000_0000), Some(QosVersion::FLOWSPEC)));
    let spec = Flowspec {
        rate: 125_000.0,
        bucket: 1500.0,
        peak: 250_000.0,
        min_policed: 64,
        max_packet: 1500,
        guaranteed: None,
    };
    assert_eq!((message.minimum, message.desired), (Some(spec), None));
    assert_eq!(octets[52..56], [0, 0x24, 3, 1]);
}

/// CASPQOS-A.2-06, CASPQOS-A.2-20, CASPQOS-3.2-01: each field of an Error, and the IPv6 form of its node.
#[test]
fn an_error_field_by_field() {
    let octets = hex(V3);
    let message = parse(&octets);
    assert_eq!((message.flags, message.echo), (QosFlags::REMOVE, Some(7)));
    assert_eq!(message.partial, Some(Partial { failed: 1, last_hops: 3, ..Partial::default() }));
    assert_eq!(message.error_node, Some("10.0.1.254".parse().unwrap()));
    assert_eq!(message.error, Some((QosErrorCode::BELOW_MINIMUM, 0)));
    let other = QosMessage { error_node: Some("2001:db8::1".parse().unwrap()), ..message };
    let octets = composed(&other);
    assert_eq!(parse(&octets).error_node, other.error_node);
    assert!(octets.windows(4).any(|four| four == [0, 20, 1, 2]));
}

/// What a node of this suite adds to an Error, octet by octet. Other implementations skip the class.
#[test]
fn an_error_with_a_refusal() {
    let octets = hex(V3);
    let message = parse(&octets);
    let other = QosMessage { refusal: Some(Refusal::new(Some(750_000), "rule 1")), ..message };
    let composed_octets = composed(&other);
    let object = [0, 18, 18, 1, 0, 0, 0, 0, 0, 0x0b, 0x71, 0xb0, b'r', b'u', b'l', b'e', b' ', b'1', 0, 0];
    assert!(composed_octets.windows(object.len()).any(|some| some == object), "{composed_octets:?}");
    assert_eq!(parse(&composed_octets).refusal, other.refusal);
    let nothing = Refusal::new(None, "");
    let octets = composed(&QosMessage { refusal: Some(nothing), ..message });
    assert_eq!((parse(&octets).refusal, nothing.text()), (Some(nothing), None));
    assert_eq!(Refusal::new(None, &"ä".repeat(99)).note.len(), Refusal::MAX_NOTE);
    assert_eq!(Refusal::new(None, "a\u{1b}b").text().as_deref(), Some("ab"));
}

/// CASPQOS-A.1-07, CASPQOS-3.2-01, CASPQOS-A.2-11: a Query with an IPv6 flow, bounds and counters.
#[test]
fn a_query_field_by_field() {
    let octets = hex(V6);
    let message = parse(&octets);
    let (src, dst) = ("2001:db8:1::1".parse().unwrap(), "2001:db8:2::2".parse().unwrap());
    assert_eq!(message.flow, FlowId::V6Label { src, dst, label: 0x12345 });
    assert_eq!(message.flags, QosFlags::PARTIAL);
    let (least, most) = (message.minimum.unwrap(), message.desired.unwrap());
    assert_eq!((least.rate, most.rate, most.bucket), (100_000.0, 200_000.0, 3000.0));
    let partial = message.partial.unwrap();
    assert_eq!((partial.failures_allowed, partial.indeterminate_allowed, partial.last_hops), (1, 2, 1));
}

/// CASPQOS-A.1-05, CASPQOS-A.2-05, CASPQOS-A.1-03: the numbers.
#[test]
fn code_points_are_those_of_the_specification() {
    let types = [
        QosType::RESERVE,
        QosType::COMMIT,
        QosType::RELEASE,
        QosType::SUCCESS,
        QosType::ERROR,
        QosType::QUERY,
    ];
    assert_eq!(types.map(|one| one.0), [1, 2, 3, 4, 5, 6]);
    let names = [
        "ERROR_NODE",
        "VERSION",
        "MINIMUM_FLOWSPEC",
        "DESIRED_FLOWSPEC",
        "PARTIAL_RESERVATION",
        "BANDWIDTH",
        "PHB",
        "L2_PROPERTIES",
        "LOCAL",
        "SEQUENCE",
        "AGE",
        "ERROR_CODE",
        "NEXT",
        "PRIORITY",
        "TIME",
        "CMS",
        "REVERSE_FLOW",
        "REFUSAL",
        "HOPS",
    ];
    for (class, name) in (1..).zip(names) {
        assert_eq!(QosClass(class).name(), Some(name));
    }
    assert_eq!(QosClass(20).name(), None);
    let flags = [QosFlags::COMMIT, QosFlags::REMOVE, QosFlags::PARTIAL, QosFlags::UNSECURE, QosFlags::BRANCH];
    assert_eq!(flags.map(QosFlags::octet), [0x80, 0x40, 0x20, 0x10, 0x08]);
}

/// CASPQOS-A.2-20: each code has its number, and stands in front of the detail.
#[test]
fn error_codes_stand_in_front_of_their_details() {
    let codes = [
        QosErrorCode::BELOW_MINIMUM,
        QosErrorCode::TOO_MANY_FAILED,
        QosErrorCode::TOO_MANY_INDETERMINATE,
        QosErrorCode::AUTHENTICATION,
        QosErrorCode::POLICY,
        QosErrorCode::MALFORMED,
        QosErrorCode::MISSING,
        QosErrorCode::VERSION,
        QosErrorCode::C_TYPE,
        QosErrorCode::TYPE,
        QosErrorCode::NO_RESERVATION,
        QosErrorCode::PREEMPTED,
        QosErrorCode::NO_ANSWER,
        QosErrorCode::TIME,
        QosErrorCode::NOT_OWNER,
        QosErrorCode::UNSECURE,
    ];
    let octets = hex(V3);
    for (number, code) in (1..).zip(codes) {
        let message = QosMessage { error: Some((code, 0x0203)), ..parse(&octets) };
        let composed = composed(&message);
        assert_eq!(composed[composed.len() - 8..], [0, 8, 12, 1, 0, number, 2, 3]);
        assert_eq!(parse(&composed).error, Some((code, 0x0203)));
    }
    assert_eq!(QosErrorCode(17).name(), None);
}

/// CASPQOS-A.1-04: unused flag bits are ignored, and sent as zero.
#[test]
fn unused_bits_are_ignored() {
    let mut octets = hex(V1);
    octets[4] |= 7;
    octets[7] = 9;
    assert_eq!(composed(&parse(&octets)), hex(V1));
}

/// CASPQOS-A.2-04: objects in any order.
#[test]
fn objects_have_any_order() {
    let octets = with(0x80, 1, &[SPEC, VERSION, AGE, OWN]);
    assert_eq!(composed(&parse(&octets)), hex(V1));
}

/// CASPQOS-A.1-02: a length that is not that of the contents.
#[test]
fn the_length_is_that_of_the_contents() {
    for change in [4u32, 0xffff_fffc] {
        let mut octets = hex(V1);
        let length = 88u32.wrapping_add(change);
        octets[..4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(fault(&octets), (Some(7), 6, 0));
    }
}

/// CASPQOS-A.1-08, CASPQOS-A.1-18: without a header that can be read, nothing refers to the message.
#[test]
fn an_unreadable_header_has_no_number() {
    let mut octets = hex(V1);
    octets[6] = 9;
    assert_eq!(fault(&octets), (None, 6, 6));
    let octets = hex(V1);
    for length in 0..octets.len() {
        let (sequence, code, _) = fault(&octets[..length]);
        assert_eq!((sequence, code), ((length >= 32).then_some(7), 6), "{length}");
    }
}

/// CASPQOS-A.1-17: an unknown type.
#[test]
fn unknown_types_have_an_error() {
    assert_eq!(fault(&with(0, 200, &[OWN])), (Some(7), 10, 200));
}

/// CASPQOS-A.1-12: R in a request that makes state. CASPQOS-A.1-13: a Release is read with either value.
#[test]
fn requests_do_not_remove() {
    for kind in [1, 2, 6] {
        assert_eq!(fault(&with(0x40, kind, &[OWN, AGE, VERSION, SPEC])), (Some(7), 6, 4));
    }
    for flags in [0, 0x40] {
        assert!(QosMessage::parse(&with(flags, 3, &[OWN])).is_ok());
    }
}

/// CASPQOS-4-01, CASPQOS-4-04, CASPQOS-4-06, CASPQOS-2-11, CASPQOS-4-03: each object that a type requires.
#[test]
fn missing_objects_are_named() {
    let all = [(OWN, 10), (AGE, 11), (VERSION, 2), (SPEC, 3)];
    for kind in [1, 2] {
        for (missing, class) in all {
            let rest: Vec<&str> =
                all.iter().map(|(object, _)| *object).filter(|one| *one != missing).collect();
            let sequence = (missing != OWN).then_some(7);
            assert_eq!(fault(&with(0, kind, &rest)), (sequence, 7, class));
        }
    }
    assert!(QosMessage::parse(&with(0, 6, &[OWN, VERSION, SPEC])).is_ok(), "a Query has no AGE");
    assert_eq!(fault(&with(0, 3, &[])), (None, 7, 10));
    assert_eq!(fault(&with(0, 4, &[VERSION])), (None, 7, 10));
    assert_eq!(fault(&with(0, 4, &[ECHO])), (None, 7, 2));
    let (partial, node) = ("00100501 00010000 00000000 03000000", "00080101 0a0001fe");
    assert_eq!(fault(&with(0, 5, &[ECHO, VERSION, node])), (None, 7, 5));
    assert_eq!(fault(&with(0, 5, &[ECHO, VERSION, partial])), (None, 7, 1));
}

/// CASPQOS-3.1-02, CASPQOS-3.1-04: kinds of resource that are unknown, or not there.
#[test]
fn versions_must_fit() {
    assert_eq!(fault(&with(0, 1, &[OWN, AGE, "00080201 0000004d", SPEC])), (Some(7), 8, 77));
    let bandwidth = "000c0601 48435000 47c35000";
    assert_eq!(fault(&with(0, 1, &[OWN, AGE, VERSION, bandwidth])).1, 6);
    assert!(QosMessage::parse(&with(0, 1, &[OWN, AGE, "00080201 00000001", bandwidth])).is_ok());
    assert!(QosMessage::parse(&with(0, 1, &[OWN, AGE, "00080201 00000002", "00080701 30000000"])).is_ok());
}

/// CASPQOS-4-02: a Release is composed without VERSION.
#[test]
fn a_release_has_no_version() {
    let octets = with(0x40, 3, &[OWN, VERSION]);
    let message = parse(&octets);
    assert_eq!(composed(&message), with(0x40, 3, &[OWN]));
}

/// CASPQOS-5.1-07, CASPQOS-5.1-08: BANDWIDTH, and values that are not valid.
#[test]
fn bandwidth_is_two_rates_in_order() {
    let bandwidth = Bandwidth { upper: 200_000.0, lower: 100_000.0 };
    let mut octets = Vec::new();
    bandwidth.encode(&mut signalbox_wire::Writer::new(&mut octets));
    assert_eq!(octets, hex("48435000 47c35000"));
    assert_eq!(Bandwidth::parse(&octets), Some(bandwidth));
    for wrong in
        ["47c35000 48435000", "7fc00000 00000000", "48435000 bf800000", "7f800000 00000000", "48435000"]
    {
        assert_eq!(Bandwidth::parse(&hex(wrong)), None, "{wrong}");
    }
}

/// CASPQOS-5.2-01: a per-hop behaviour as RFC 3140 writes it.
#[test]
fn a_phb_has_sixteen_bits() {
    let octets = with(0, 1, &[OWN, AGE, "00080201 00000002", "00080701 30000000"]);
    let message = parse(&octets);
    assert_eq!(message.phb, Some(0x3000));
    assert_eq!(composed(&message), octets);
}

/// CASPQOS-A.2-16, CASPQOS-A.2-17: each field of a flowspec that is not valid; the guaranteed service.
#[test]
fn flowspecs_are_those_of_rfc_2210() {
    let spec = hex(SPEC).split_off(4);
    assert!(Flowspec::parse(&spec).is_some());
    for (at, value) in
        [(0, 0x10), (3, 8), (4, 6), (7, 5), (8, 126), (11, 4), (12, 0xc7), (16, 0xff), (20, 0xff)]
    {
        let mut wrong = spec.clone();
        wrong[at] = value;
        assert_eq!(Flowspec::parse(&wrong), None, "{at}");
    }
    for length in 0..spec.len() {
        assert_eq!(Flowspec::parse(&spec[..length]), None);
    }
    let mut nan = spec.clone();
    nan[12..16].copy_from_slice(&f32::NAN.to_bits().to_be_bytes());
    assert_eq!(Flowspec::parse(&nan), None);
    let guaranteed = Flowspec { guaranteed: Some((150_000.0, 30)), ..Flowspec::parse(&spec).unwrap() };
    let mut octets = Vec::new();
    guaranteed.encode(&mut signalbox_wire::Writer::new(&mut octets));
    assert_eq!(octets[..8], hex("0000000a 02000009"));
    assert_eq!(octets[32..], hex("82000002 48127c00 0000001e"));
    assert_eq!(Flowspec::parse(&octets), Some(guaranteed));
}

/// CASPQOS-5.1-04: r 100, desired 200, b 1000 to 2000, 150 fits: r 150, b 1500.
#[test]
fn a_lowered_flowspec_keeps_its_shape() {
    let least = Flowspec {
        rate: 100.0,
        bucket: 1000.0,
        peak: 100.0,
        min_policed: 64,
        max_packet: 1500,
        guaranteed: None,
    };
    let most = Flowspec {
        rate: 200.0,
        bucket: 2000.0,
        peak: f32::INFINITY,
        min_policed: 32,
        max_packet: 9000,
        ..least
    };
    let between = most.lowered(&least, 150.0);
    assert_eq!((between.rate, between.bucket, between.peak), (150.0, 1500.0, 100.0));
    assert_eq!((between.min_policed, between.max_packet), (32, 1500));
    assert_eq!(most.lowered(&least, 500.0).rate, 200.0);
    assert_eq!(most.lowered(&least, 5.0).rate, 100.0);
    assert_eq!(least.lowered(&least, 100.0), least);
}

/// CASPQOS-3.2-03, CASPQOS-3.2-05, CASPQOS-3.2-06, CASPQOS-3.2-07: the counters.
#[test]
fn partial_reservations_count() {
    let mut partial =
        Partial { failures_allowed: 1, indeterminate_allowed: 2, last_hops: 1, ..Partial::default() };
    assert!(partial.count_failed() && !partial.count_failed());
    assert_eq!((partial.failed, partial.failures_allowed), (2, 0));
    assert!(partial.count_indeterminate(2));
    assert_eq!((partial.indeterminate, partial.last_hops), (0, 2));
    assert!(partial.count_indeterminate(4) && !partial.count_indeterminate(7));
    assert_eq!((partial.indeterminate, partial.indeterminate_allowed), (3, 0));
    let mut full = Partial { failed: u16::MAX, indeterminate: u16::MAX, ..Partial::default() };
    full.count_failed();
    full.count_indeterminate(200);
    assert_eq!((full.failed, full.indeterminate), (u16::MAX, u16::MAX));
    let mut octets = Vec::new();
    partial.encode(&mut signalbox_wire::Writer::new(&mut octets));
    assert_eq!((octets.len(), Partial::parse(&octets)), (12, Some(partial)));
}

/// CASPQOS-6-04, CASPQOS-6-05, CASPQOS-6-06, CASPQOS-6-07, CASPQOS-6-10, CASPQOS-A.2-02: LOCAL objects, several of them, with
/// padding; they go on as they came.
#[test]
fn local_objects_pass_untouched() {
    let (first, second) = ("00090901 00010201 2e000000", "000d0901 00020602 01020304 05000000");
    let octets = with(0x80, 1, &[OWN, AGE, VERSION, SPEC, first, second]);
    let message = parse(&octets);
    let local: Vec<Local<'_>> = message.local().collect();
    assert_eq!(local[0], Local { id: 1, kind: 2, scope: 1, data: &[0x2e] });
    assert_eq!((local[1].kind, local[1].scope, local[1].data.len()), (6, 2, 5));
    assert_eq!(composed(&message), octets);
}

/// CASPQOS-A.2-08, CASPQOS-5.4-01, CASPQOS-9-01, CASPQOS-8-02: unknown classes and CMS are sent on; NEXT is ignored.
#[test]
fn unknown_classes_are_sent_on() {
    let (unknown, l2, cms) =
        ("0009c801 01020304 05000000", "00080801 00000001", "00091001 30030201 05000000");
    let octets = with(0x80, 1, &[OWN, AGE, VERSION, SPEC, unknown, l2, cms, "00080d01 00000002"]);
    let message = parse(&octets);
    assert_eq!(composed(&message), with(0x80, 1, &[OWN, AGE, VERSION, SPEC, unknown, l2, cms]));
}

/// CASPQOS-A.2-09, CASPQOS-A.2-10, CASPQOS-A.2-03: unknown C-Types, second objects, wrong lengths.
#[test]
fn wrong_objects_have_their_errors() {
    assert_eq!(fault(&with(0, 3, &[OWN, "00080207 00000000"])), (Some(7), 9, 0x0207));
    assert_eq!(fault(&with(0, 3, &[VERSION, VERSION, OWN])), (Some(7), 6, 32));
    for wrong in ["00000000", "00030201", "00ff0201 00000000"] {
        assert_eq!(fault(&with(0, 3, &[OWN, wrong])).1, 6);
    }
    assert_eq!(fault(&with(0, 3, &["00040a01"])), (None, 6, 24));
}

/// CASPQOS-9-04: TIME, PRIORITY and REVERSE_FLOW.
#[test]
fn further_objects() {
    let (src, dst) = ("10.0.2.2".parse().unwrap(), "10.0.1.1".parse().unwrap());
    let reverse = FlowId::V4Ports { src, dst, src_port: 600, dst_port: 5000, protocol: 17 };
    let octets = hex(V1);
    for also in [true, false] {
        let message = QosMessage {
            time: Some((1, 0xc2e0_1234_8000_0000)),
            priority: Some(9),
            reverse_flow: Some((reverse, also)),
            ..parse(&octets)
        };
        let composed = composed(&message);
        let again = parse(&composed);
        assert_eq!(
            (again.time, again.priority, again.reverse_flow),
            (message.time, Some(9), Some((reverse, also)))
        );
        assert!(composed.windows(4).any(|four| four == [0, 24, 17, if also { 1 } else { 2 }]));
        assert!(composed.windows(4).any(|four| four == [0, 20, 15, 1]));
    }
}

#[test]
fn damaged_messages_are_survived() {
    for vector in [V1, V2, V3, V4, V5, V6] {
        let octets = hex(vector);
        for at in 0..octets.len() {
            fuzz::qos(&octets[..at]);
            for change in 1..=255u8 {
                let mut changed = octets.clone();
                changed[at] ^= change;
                fuzz::qos(&changed);
            }
        }
    }
}
