//! Arbitrary QSPECs, composed and parsed.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use signalbox_qos::fuzz;
use signalbox_qos::wire::qspec::{
    Admission, AdmissionPriority, Excess, ExcessTreatment, Flags, Header, Jitter, MAX_BUCKET, MAX_RATE,
    ObjectType, ParameterId, PhbClass, Preemption, Procedure, Qspec, QspecType, Restoration,
    RestorationPriority, Rph, Tmod, Value,
};

use super::support::*;

fn tmod() -> impl Strategy<Value = Tmod> {
    (
        1.0..=MAX_RATE,
        1.0..=MAX_BUCKET,
        prop_oneof![Just(f32::INFINITY), 1.0..=MAX_RATE],
        1..=u32::MAX,
        1..=u32::MAX,
    )
        .prop_map(|(rate, bucket, peak, m, mps)| Tmod {
            rate: if peak < rate { peak } else { rate },
            bucket,
            peak: if peak < rate { rate } else { peak },
            min_policed: m.min(mps),
            max_packet: m.max(mps),
        })
}

/// Every value except those of unknown parameters, which need octets to borrow.
pub(crate) fn value() -> impl Strategy<Value = Value<'static>> {
    let excess = (0..=255_u8, 0..64_u8).prop_map(|(n, dscp)| {
        let treatment = ExcessTreatment(n);
        Excess { treatment, remark: (treatment == ExcessTreatment::RE_MARK).then_some(dscp) }
    });
    let phb = prop_oneof![
        (0..64_u8, any::<bool>()).prop_map(|(dscp, set)| PhbClass::Standard { dscp, set }),
        (0..0x1000_u16, any::<bool>()).prop_map(|(code, set)| PhbClass::Local { code, set }),
    ];
    let restoration = (any::<u8>(), 0..16_u8, 0..16_u8).prop_map(|(p, time, extent)| Restoration {
        priority: RestorationPriority(p),
        time,
        extent,
    });
    let jitter = any::<[u32; 3]>().prop_map(|[variance, percentile, minimum]| Jitter {
        variance,
        percentile,
        minimum,
    });
    prop_oneof![
        tmod().prop_map(Value::Tmod1),
        tmod().prop_map(Value::Tmod2),
        any::<u32>().prop_map(Value::PathLatency),
        jitter.prop_map(Value::PathJitter),
        (0.0..=1.0_f32).prop_map(Value::PathPlr),
        (0.0..=1.0_f32).prop_map(Value::PathPer),
        any::<u32>().prop_map(Value::SlackTerm),
        any::<[u16; 2]>()
            .prop_map(|[a, b]| Value::Preemption(Preemption { preemption: a.min(b), defending: a.max(b) })),
        any::<[u8; 2]>()
            .prop_map(|[y, priority]| Value::Admission(Admission { y2171: AdmissionPriority(y), priority })),
        (any::<u16>(), any::<u8>()).prop_map(|(namespace, priority)| Value::Rph(Rph { namespace, priority })),
        excess.prop_map(Value::Excess),
        phb.prop_map(Value::Phb),
        (0..8_u8).prop_map(Value::Dste),
        (0..8_u8).prop_map(Value::Y1541),
        (1.0..=f32::MAX).prop_map(Value::TmodExtension),
        restoration.prop_map(Value::Restoration),
    ]
}

fn flags() -> impl Strategy<Value = Flags> {
    any::<[bool; 3]>().prop_map(|[mandatory, error, not_supported]| Flags { mandatory, error, not_supported })
}

/// Parameters by id, so that there is no duplicate.
type Parameters = Vec<(Flags, Value<'static>)>;

fn parameters() -> impl Strategy<Value = Parameters> {
    vec((flags(), value()), 1..8).prop_map(|mut list| {
        list.sort_by_key(|(_, value)| value.id());
        list.dedup_by_key(|(_, value)| value.id());
        let has = |list: &Parameters, id| list.iter().any(|(_, value)| value.id() == id);
        if has(&list, ParameterId::RPH_PRIORITY) && !has(&list, ParameterId::ADMISSION_PRIORITY) {
            let admission = Admission::y2171(AdmissionPriority::HIGH);
            list.push((Flags::default(), Value::Admission(admission)));
        }
        list
    })
}

fn header() -> impl Strategy<Value = Header> {
    let procedure = prop::sample::select(vec![0x00, 0x01, 0x02, 0x10, 0x11, 0x12, 0x20]);
    (0..32_u8, procedure).prop_map(|(kind, procedure)| Header {
        local: false,
        qspec_type: QspecType(kind),
        procedure: Procedure(procedure),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// QSPEC-5.1-01: a composed QSPEC parses to an equal one, and encodes to the same octets.
    #[test]
    fn there_and_back(
        header in header(),
        objects in btree_map(0..4_u16, (any::<bool>(), parameters()), 1..=4),
        unknown in vec(any::<[u8; 4]>(), 0..5),
        unknown_id in prop_oneof![Just(0_u16), 17..=0xfff_u16],
    ) {
        let unknown = unknown.concat();
        let unknown = Value::Unknown { id: ParameterId(unknown_id), octets: &unknown };
        let octets = compose(header, |c| {
            for (kind, (error, parameters)) in &objects {
                c.object(ObjectType(*kind), *error, |o| {
                    o.put(Flags::MANDATORY, &unknown)?;
                    parameters.iter().try_for_each(|(flags, value)| o.put(*flags, value))
                })?;
            }
            Ok(())
        }).unwrap();
        let qspec = Qspec::parse(&octets).unwrap();
        prop_assert_eq!(qspec.header, header);
        for (object, (kind, (error, parameters))) in qspec.objects().zip(&objects) {
            prop_assert_eq!((object.kind.0, object.error), (*kind, *error));
            let mut found = object.parameters();
            prop_assert_eq!(found.next().unwrap().value().unwrap(), unknown);
            for (flags, value) in parameters {
                let parameter = found.next().unwrap();
                prop_assert_eq!(parameter.value().unwrap(), *value);
                prop_assert_eq!(parameter.flags.error, flags.error);
                let first = value.id() == ParameterId::TMOD_1;
                prop_assert_eq!(parameter.flags.mandatory, flags.mandatory || first);
                prop_assert_eq!(parameter.flags.not_supported, flags.not_supported && !first);
            }
            prop_assert!(found.next().is_none());
        }
        prop_assert_eq!(encode(&qspec).unwrap(), octets.clone());
        fuzz::qspec(&octets);
    }

    /// Arbitrary octets, and arbitrary octets after a header that fits them.
    #[test]
    fn noise(mut octets in vec(any::<u8>(), 0..200)) {
        fuzz::qspec(&octets);
        octets.truncate(octets.len() / 4 * 4);
        let words = u32::try_from((octets.len() / 4).saturating_sub(1)).unwrap();
        if octets.len() >= 4 {
            octets[..4].copy_from_slice(&words.to_be_bytes());
            fuzz::qspec(&octets);
        }
    }
}
