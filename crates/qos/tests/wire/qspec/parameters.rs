//! Each parameter separately, octet by octet and at its limits.

use signalbox_qos::wire::qspec::{
    Admission, AdmissionPriority, EncodeError, Excess, ExcessTreatment, Jitter, MAX_BUCKET, MAX_RATE,
    ParameterId, PhbClass, Preemption, Qspec, Restoration, RestorationPriority, Rph, Tmod, Value,
};

use super::support::*;

/// Checks that the value composes to these words after its header, and that they parse to the value.
fn both_ways(value: &Value<'_>, words: &str) {
    let octets = desired_of(&parameter_of(value.id().0, words));
    assert_eq!(compose_one(value).unwrap(), octets, "{value}");
    let qspec = Qspec::parse(&octets).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(qspec.desired().unwrap().value(value.id()), Some(*value));
}

/// QSPEC-5.2.2-01, QSPEC-5.2.3-01, QSPEC-5.2.4-01, QSPEC-5.2.5-01, QSPEC-5.2.6-01, QSPEC-5.2.7-01, QSPEC-5.2.8-01,
/// QSPEC-5.2.9-01, QSPEC-5.2.11-01 and QSPEC-5.2.14-01 with the two parameters of RFC 5976; a slack of 0 and of 2^32−1
/// are both valid (QSPEC-5.2.7-02); a re-marking contains its code point (QSPEC-5.2.11-06); both priorities of RFC 3181
/// are always present (QSPEC-5.2.8-02).
#[test]
fn golden_values() {
    let tmod = Tmod { rate: 1e6, bucket: 3e3, peak: 2e6, min_policed: 64, max_packet: 1500 };
    both_ways(&Value::Tmod2(tmod), "49742400 453b8000 49f42400 00000040 000005dc");
    both_ways(&Value::PathLatency(6000), "00001770");
    let jitter = Jitter { variance: 1, percentile: 0x0102_0304, minimum: u32::MAX };
    both_ways(&Value::PathJitter(jitter), "00000001 01020304 ffffffff 00000000");
    both_ways(&Value::PathPlr(1e-11), "2d2febff");
    both_ways(&Value::PathPlr(0.1), "3dcccccd");
    both_ways(&Value::PathPer(0.0), "00000000");
    both_ways(&Value::SlackTerm(0), "00000000");
    both_ways(&Value::SlackTerm(u32::MAX), "ffffffff");
    both_ways(&Value::Preemption(Preemption { preemption: 0x0102, defending: 0x0103 }), "01020103");
    both_ways(&Value::Admission(Admission::y2171(AdmissionPriority::HIGH)), "02020000");
    both_ways(&Value::Admission(Admission::y2171(AdmissionPriority::BEST_EFFORT)), "00000000");
    both_ways(&Value::Admission(Admission::local(9)), "ff090000");
    for (treatment, remark, words) in [
        (ExcessTreatment::DROP, None, "00000000"),
        (ExcessTreatment::SHAPE, None, "01000000"),
        (ExcessTreatment::RE_MARK, Some(63), "02fc0000"),
        (ExcessTreatment::NO_METERING, None, "03000000"),
        (ExcessTreatment(9), None, "09000000"),
    ] {
        both_ways(&Value::Excess(Excess { treatment, remark }), words);
    }
    for class in 0..8 {
        both_ways(&Value::Y1541(class), &format!("{class:02x}000000"));
    }
    both_ways(&Value::TmodExtension(65_536.0), "47800000");
    both_ways(&Value::TmodExtension(f32::INFINITY), "7f800000");
    let restoration = Restoration { priority: RestorationPriority::HIGH, time: 1, extent: 5 };
    both_ways(&Value::Restoration(restoration), "02150000");
}

/// QSPEC-5.2.10-01: RPH Priority next to the Admission Priority that it needs.
#[test]
fn rph() {
    let (adm, rph) = (Admission::y2171(AdmissionPriority::HIGH), Rph { namespace: 0x0102, priority: 3 });
    let octets = compose_desired(|o| {
        o.put(Default::default(), &Value::Admission(adm))?;
        o.put(Default::default(), &Value::Rph(rph))
    })
    .unwrap();
    assert_eq!(octets, desired_of("00090001 02020000 000a0001 01020300"));
    let qspec = Qspec::parse(&octets).unwrap();
    assert_eq!(qspec.desired().unwrap().value(ParameterId::RPH_PRIORITY), Some(Value::Rph(rph)));
}

/// QSPEC-5.2.12-01: the four forms of a PHB; the two reserved bits of a local one are ignored, and a standard one with
/// a bit set between code point and bit 14 is malformed.
#[test]
fn phb_forms() {
    for (class, field) in [
        (PhbClass::dscp(46), 0xb800_u16),
        (PhbClass::Standard { dscp: 10, set: true }, 0x2802),
        (PhbClass::Local { code: 0xabc, set: false }, 0xabc1),
        (PhbClass::Local { code: 0xabc, set: true }, 0xabc3),
    ] {
        both_ways(&Value::Phb(class), &format!("{field:04x}0000"));
        assert_eq!(class.field(), Some(field));
    }
    assert_eq!(PhbClass::from_field(0xabcf), Some(PhbClass::Local { code: 0xabc, set: true }));
    for bit in 2..10 {
        assert_eq!(PhbClass::from_field(0xb800 | 1 << bit), None);
        let octets = desired_of(&format!("000c0001 {:04x}0000", 0xb800 | 1 << bit));
        assert_eq!(Qspec::parse(&octets).unwrap_err().field, "PHB Field");
    }
    assert!(compose_one(&Value::Phb(PhbClass::dscp(64))).is_err());
    assert!(compose_one(&Value::Phb(PhbClass::Local { code: 0x1000, set: false })).is_err());
}

/// QSPEC-5.2.13-01: class types 0 to 7.
#[test]
fn dste_class_types() {
    for class in 0..8 {
        both_ways(&Value::Dste(class), &format!("{class:02x}000000"));
    }
    assert!(Qspec::parse(&desired_of("000d0001 08000000")).is_err());
    assert!(compose_one(&Value::Dste(8)).is_err());
}

/// QSPEC-5.2.1-04, QSPEC-3.3.1-02: the ends of the ranges: 1 octet, 40 teraoctets a second, 250 gigaoctets, and
/// infinity for p only, as 7f 80 00 00.
#[test]
fn ends_of_tmod() {
    let least = Tmod { rate: 1.0, bucket: 1.0, peak: 1.0, min_policed: 1, max_packet: 1 };
    let most = Tmod {
        rate: MAX_RATE,
        bucket: MAX_BUCKET,
        peak: MAX_RATE,
        min_policed: u32::MAX,
        max_packet: u32::MAX,
    };
    both_ways(&Value::Tmod1(least), "3f800000 3f800000 3f800000 00000001 00000001");
    both_ways(&Value::Tmod1(most), "561184e7 5268d4a5 561184e7 ffffffff ffffffff");
    both_ways(
        &Value::Tmod1(Tmod { peak: f32::INFINITY, ..most }),
        "561184e7 5268d4a5 7f800000 ffffffff ffffffff",
    );
    for wrong in [
        Tmod { rate: MAX_RATE.next_up(), peak: f32::INFINITY, ..most },
        Tmod { bucket: MAX_BUCKET.next_up(), ..most },
        Tmod { peak: MAX_RATE.next_up(), ..most },
        Tmod { rate: f32::INFINITY, peak: f32::INFINITY, ..most },
        Tmod { bucket: f32::INFINITY, ..most },
        Tmod { rate: 1.0_f32.next_down(), ..least },
        Tmod { bucket: 1.0_f32.next_down(), ..least },
        Tmod { rate: f32::NAN, ..least },
        Tmod { peak: f32::NAN, ..least },
    ] {
        assert!(!wrong.is_valid());
        let refused = compose_one(&Value::Tmod1(wrong));
        assert!(
            matches!(refused, Err(EncodeError::Forbidden { parameter: Some(ParameterId::TMOD_1), .. })),
            "{wrong:?}"
        );
    }
}

/// QSPEC-4.4-01: unknown parameters are kept with all their words, flags and id.
#[test]
fn unknown_parameters_are_kept() {
    for (id, words) in
        [(17_u16, ""), (257, "01020304"), (300, "00000000 ffffffff"), (0xfff, ""), (0, "05060708")]
    {
        let octets = desired_of(&object_of(0xe000 | id, words));
        let qspec = Qspec::parse(&octets).unwrap();
        let parameter = qspec.desired().unwrap().parameters().next().unwrap();
        let octets_of_value = hex(words);
        assert_eq!(parameter.value(), Ok(Value::Unknown { id: ParameterId(id), octets: &octets_of_value }));
        assert!(parameter.flags.mandatory && parameter.flags.error && parameter.flags.not_supported);
        assert_eq!(encode(&qspec).unwrap(), octets);
    }
}
