//! Malformed QSPECs: the reported errors and their positions.

use signalbox_qos::wire::qspec::{ObjectType, Outcome, ParameterId, Problem, Qspec, QspecError};

use super::support::*;

/// The only error in `octets`.
fn only_fault(octets: &[u8]) -> QspecError {
    let error = Qspec::parse(octets).unwrap_err();
    if let Ok(qspec) = Qspec::frame(octets) {
        assert_eq!(qspec.faults().collect::<Vec<_>>(), [error]);
    }
    assert!(error.offset < octets.len() && error.parameter_start <= error.offset + 4);
    error
}

/// QSPEC-3.2-03, QSPEC-4.2.3-06: a higher version is incompatible, with any contents.
#[test]
fn higher_versions() {
    for version in 1..16_u8 {
        for rest in [&[][..], &[0, 0, 0], &[0xff; 9]] {
            let octets = [&[version << 4][..], rest].concat();
            let error = only_fault(&octets);
            assert_eq!((error.problem, error.outcome()), (Problem::Version, Outcome::INCOMPATIBLE));
            assert_eq!((error.offset, error.value), (0, version.into()));
        }
    }
    assert_eq!(Outcome::INCOMPATIBLE, Outcome { class: 3, code: 0x0f });
    assert_eq!(Outcome::MALFORMED, Outcome { class: 3, code: 0x0c });
}

/// QSPEC-5.1-04: an empty QSPEC, an empty object, and a Local QSPEC without local objects are refused.
#[test]
fn empty_ones() {
    let error = only_fault(&hex("00000000"));
    assert_eq!((error.problem, error.object, error.outcome()), (Problem::Empty, None, Outcome::MALFORMED));
    let error = only_fault(&qspec_of(0x1000, &format!("{} 00010000", object_of(0, VOICE_HEX))));
    assert_eq!((error.problem, error.object), (Problem::Empty, Some(ObjectType::AVAILABLE)));
    assert_eq!((error.object_start, error.offset), (32, 34));
    let error = only_fault(&qspec_of(0x0800_0000, "00000003 00000002 00070001 00000000"));
    assert_eq!((error.problem, error.field), (Problem::Empty, "local objects"));
}

/// QSPEC-5.1-05: a duplicate object or parameter is refused, known or unknown.
#[test]
fn duplicates() {
    for kind in [0_u16, 1, 2, 3, 64, 67] {
        let object = object_of(kind, "00070001 00000000");
        let error = only_fault(&qspec_of(0, &format!("{object} {object}")));
        assert_eq!((error.problem, error.object), (Problem::Duplicate, Some(ObjectType(kind))));
        assert_eq!((error.object_start, error.outcome()), (16, Outcome::MALFORMED));
    }
    for id in [3_u16, 7, 300] {
        let parameter = object_of(id, "00000001");
        let error = only_fault(&desired_of(&format!("{parameter} 00040004 {} {parameter}", "0".repeat(32))));
        assert_eq!((error.problem, error.parameter), (Problem::Duplicate, Some(ParameterId(id))));
        assert_eq!((error.parameter_start, error.outcome()), (36, Outcome::MALFORMED));
    }
}

/// An object that is neither one of the four nor private cannot be read.
#[test]
fn unknown_objects() {
    for kind in [4_u16, 63, 68, 4095] {
        let error = only_fault(&qspec_of(0, &object_of(kind, "00070001 00000000")));
        assert_eq!((error.problem, error.object), (Problem::UnknownObject, Some(ObjectType(kind))));
    }
    for kind in 64..68 {
        assert!(Qspec::parse(&qspec_of(0, &object_of(kind, "00070001 00000000"))).is_ok());
    }
}

/// QSPEC-4.3-02: only seven procedures are valid.
#[test]
fn procedures() {
    let voice = object_of(0, VOICE_HEX);
    for procedure in 0..256_u32 {
        let octets = qspec_of(procedure << 12, &voice);
        if matches!(procedure, 0x00..=0x02 | 0x10..=0x12 | 0x20) {
            assert!(Qspec::parse(&octets).is_ok());
            continue;
        }
        let error = only_fault(&octets);
        assert_eq!((error.problem, error.outcome()), (Problem::Procedure, Outcome::MALFORMED));
        assert_eq!((error.offset, error.value, error.object), (1, procedure.into(), None));
    }
}

/// QSPEC-3.3.1-02 (r and b positive), QSPEC-3.3.1-03 (p ≥ r), QSPEC-3.3.1-05 (m, MPS positive), QSPEC-3.3.1-06 (m ≤
/// MPS), QSPEC-5.2.1-02 and QSPEC-5.2.2-02 (signs), QSPEC-5.2.1-03 (below 1), QSPEC-3.3.1-01 (all five): each is
/// malformed in both TMODs, and the report names the field.
#[test]
fn bad_tmods() {
    let good = ["461c4000", "44fa0000", "461c4000", "00000040", "000005dc"];
    let (value, relation) = (Problem::Value, Problem::Relation);
    for (word, bits, problem) in [
        (0, "00000000", value),    // r = 0
        (0, "c61c4000", value),    // r < 0
        (0, "3f000000", value),    // r = 0.5
        (0, "7f800000", value),    // r infinite
        (0, "7fc00000", value),    // r is not a number
        (1, "00000000", value),    // b = 0
        (1, "c4fa0000", value),    // b < 0
        (1, "3f7fffff", value),    // b just below 1
        (1, "7f800000", value),    // b infinite
        (2, "80000000", value),    // p = −0
        (2, "ff800000", value),    // p = −infinity
        (2, "3f000000", value),    // p = 0.5
        (2, "461c3fff", relation), // p just below r
        (3, "00000000", value),    // m = 0
        (3, "000005dd", relation), // m = MPS + 1
        (4, "00000000", value),    // MPS = 0
    ] {
        let fields = ["Rate (r)", "Size (b)", "Rate (p)", "Unit (m)", "Size (MPS)"];
        for id in [1_u16, 2] {
            let mut words = good;
            words[word] = bits;
            let error = only_fault(&desired_of(&parameter_of(id, &words.join(" "))));
            assert_eq!((error.problem, error.parameter), (problem, Some(ParameterId(id))), "{bits}");
            assert_eq!(error.offset, 12 + word * 4, "{bits}");
            assert!(error.field.ends_with(fields[word]), "{bits}: {}", error.field);
            assert_eq!(error.value, u64::from_str_radix(bits, 16).unwrap());
            assert_eq!(
                (error.outcome(), error.object_start, error.parameter_start),
                (Outcome::MALFORMED, 4, 8)
            );
        }
    }
    for words in [0, 1, 2, 3, 4, 6] {
        let words: Vec<&str> = good.iter().cycle().take(words).copied().collect();
        let error = only_fault(&desired_of(&parameter_of(1, &words.join(" "))));
        assert_eq!(error.problem, Problem::ParameterLength);
    }
}

/// QSPEC-3.3.3-02: a preemption priority above the defending one; ratios, classes and code points out of range.
#[test]
fn bad_values() {
    for (parameter, field) in [
        ("00080001 00080007", "Preemption Priority"),
        ("00050001 80000000", "Path Packet Loss Ratio"),
        ("00050001 3f800001", "Path Packet Loss Ratio"),
        ("00060001 7fc00000", "Path Packet Error Ratio"),
        ("00060001 bdcccccd", "Path Packet Error Ratio"),
        ("000d0001 08000000", "DSTE Class Type"),
        ("000e0001 08000000", "Y.1541 QoS Class"),
        ("000e0001 ff000000", "Y.1541 QoS Class"),
        ("000f0001 3f000000", "Peak Bucket Size (Bp)"),
        ("00030002 00000000 00000000", "Length"),
        ("00040003 00000000 00000000 00000000", "Length"),
        ("00070000", "Length"),
    ] {
        let error = only_fault(&desired_of(&format!("{VOICE_HEX} {parameter}")));
        assert_eq!((error.field, error.outcome()), (field, Outcome::MALFORMED), "{parameter}");
        assert_eq!(error.parameter_start, 32);
    }
}

/// QSPEC-5.2.10-04, QSPEC-5.2.10-02: of the 15 combinations of four priorities only five are allowed. Two of the four are
/// one parameter, so the other combinations with only one of the two cannot be expressed.
#[test]
fn priorities() {
    for combination in 1..8 {
        let (pre, adm, rph) = (combination & 1 != 0, combination & 2 != 0, combination & 4 != 0);
        let mut words = String::new();
        for (there, parameter) in
            [(rph, "000a0001 00010100"), (pre, "00080001 00010002"), (adm, "00090001 01010000")]
        {
            words += if there { parameter } else { "" };
        }
        let octets = desired_of(&words);
        if adm || !rph {
            assert!(Qspec::parse(&octets).is_ok(), "{combination:03b}");
        } else {
            let error = only_fault(&octets);
            assert_eq!((error.problem, error.outcome()), (Problem::Priorities, Outcome::MALFORMED));
            assert_eq!(error.parameter, Some(ParameterId::RPH_PRIORITY));
        }
    }
}

/// QSPEC-4.2.1-05: every faulty parameter of every object is reported, not only the first.
#[test]
fn all_faults_are_found() {
    let bad = "000e0001 08000000 00070001 00000001 00080001 00020001";
    let octets = qspec_of(0x1000, &format!("{} {}", object_of(0, bad), object_of(1, bad)));
    let faults: Vec<_> = Qspec::frame(&octets)
        .unwrap()
        .faults()
        .map(|e| (e.object.unwrap().0, e.parameter.unwrap().0, e.object_start, e.parameter_start))
        .collect();
    assert_eq!(faults, [(0, 14, 4, 8), (0, 8, 4, 24), (1, 14, 32, 36), (1, 8, 32, 52)]);
    assert_eq!(Qspec::parse(&octets).unwrap_err().parameter_start, 8);
}

/// The text of an error contains its cause and its position.
#[test]
fn errors_in_words() {
    let error = only_fault(&desired_of("00080001 00080007"));
    assert_eq!(
        error.to_string(),
        "QSPEC: QoS Desired: Preemption and Defending Priority: Preemption Priority at octet 12: \
         values contradict each other (value 524295)"
    );
    assert_eq!(error.outcome().to_string(), "3/0x0c malformed QSPEC");
}
