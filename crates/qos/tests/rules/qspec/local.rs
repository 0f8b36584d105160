//! Local QSPECs (RFC 5975 §4.1, §4.2.5).

use signalbox_qos::qspec::{
    Collect, Estimate, Message, Offer, Quality, Supported, Translation, Wish, enter, is_consistent, leave,
};
use signalbox_qos::wire::qspec::{
    Admission, AdmissionPriority, ObjectType, ParameterId, PhbClass, Procedure, Qspec, QspecType, Tmod, Value,
};

use super::support::*;

const D: ObjectType = ObjectType::DESIRED;
const A: ObjectType = ObjectType::AVAILABLE;

const AS_IT_IS: Translation = Translation {
    qspec_type: QspecType::RMD,
    keep: Supported::EVERYTHING,
    peak_only: false,
    admission: None,
    phb: None,
};

fn desired() -> [(signalbox_qos::wire::qspec::Flags, Value<'static>); 3] {
    [
        (M, Value::Tmod1(tmod(100.0))),
        (PLAIN, Value::Admission(Admission::y2171(AdmissionPriority::HIGH))),
        (PLAIN, Value::Unknown { id: ParameterId(257), octets: &[] }),
    ]
}

fn sent() -> Vec<u8> {
    let collect = Collect { latency: true, jitter: true, ..Collect::default() };
    compose(&Wish { collect, ..Wish::of(Procedure::AVAILABLE, &desired()) })
}

fn entered(initiator: &[u8], translation: &Translation) -> Vec<u8> {
    let mut out = Vec::new();
    enter(initiator, translation, &mut out).unwrap_or_else(|e| panic!("{e}"));
    out
}

fn left(local: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    leave(local, &mut out).unwrap_or_else(|e| panic!("{e}"));
    out
}

/// QSPEC-4.1-04: after a domain that changes no value, the Initiator QSPEC is unchanged and is the first again.
#[test]
fn in_and_out() {
    let sent = sent();
    let local = entered(&sent, &AS_IT_IS);
    let qspec = Qspec::parse(&local).unwrap();
    assert!(qspec.header.local);
    assert_eq!((qspec.header.qspec_type, qspec.encapsulated()), (QspecType::RMD, Some(&sent[..])));
    let out = left(&local);
    assert_eq!(out, sent);
    assert!(!Qspec::parse(&out).unwrap().header.local);
}

/// QSPEC-4.1-02, QSPEC-4.1-03: a domain that supports peak rates only gets no less than the Initiator QSPEC requests; a
/// smaller value is detected.
#[test]
fn never_less() {
    for peak in [100.0, 250.0, f32::INFINITY] {
        let traffic = Tmod { peak, ..tmod(100.0) };
        let sent = compose(&Wish::of(Procedure::DESIRED, &[(M, Value::Tmod1(traffic))]));
        let local = entered(&sent, &Translation { peak_only: true, ..AS_IT_IS });
        assert_eq!(rate(&local, D), if peak.is_finite() { peak } else { 100.0 });
        assert!(is_consistent(&Qspec::parse(&local).unwrap()));
        for (at, word) in [(0, 99.0_f32.to_bits()), (1, 9_999.0_f32.to_bits()), (4, 1499)] {
            let mut less = local.clone();
            let start = object(&less, D).parameter(ParameterId::TMOD_1).unwrap().start + 4 + at * 4;
            less[start..start + 4].copy_from_slice(&word.to_be_bytes());
            assert!(!is_consistent(&Qspec::parse(&less).unwrap()), "word {at}");
        }
    }
    assert!(!is_consistent(&Qspec::parse(&sent()).unwrap()), "not a Local QSPEC");
}

/// QSPEC-5.2.9-04, QSPEC-5.2.9-05: inside the domain, the Admission Priority is that of the domain for the same Y.2171
/// priority; outside it has its old value.
#[test]
fn admission_priority_inside() {
    let translation = Translation { admission: Some([10, 20, 30]), ..AS_IT_IS };
    let sent = sent();
    let local = entered(&sent, &translation);
    let inside = Admission { y2171: AdmissionPriority::HIGH, priority: 30 };
    assert_eq!(value(&local, D, ParameterId::ADMISSION_PRIORITY), Value::Admission(inside));
    assert!(is_consistent(&Qspec::parse(&local).unwrap()));
    assert_eq!(left(&local), sent);
    // A local priority has no Y.2171 value for the translation.
    let rsvp = [(M, Value::Tmod1(tmod(1.0))), (PLAIN, Value::Admission(Admission::local(7)))];
    let local = entered(&compose(&Wish::of(Procedure::DESIRED, &rsvp)), &translation);
    assert_eq!(value(&local, D, ParameterId::ADMISSION_PRIORITY), Value::Admission(Admission::local(7)));
    let mut other = local;
    let at = object(&other, D).parameter(ParameterId::ADMISSION_PRIORITY).unwrap().start + 4;
    other[at] = 0;
    assert!(!is_consistent(&Qspec::parse(&other).unwrap()));
}

/// Interior nodes read the local objects only, with the parameters of their domain.
#[test]
fn what_is_inside() {
    let translation = Translation { keep: Supported::NOTHING, phb: Some(PhbClass::dscp(34)), ..AS_IT_IS };
    let local = entered(&sent(), &translation);
    let ids = |kind| object(&local, kind).parameters().map(|p| p.id.0).collect::<Vec<_>>();
    assert_eq!((ids(D), ids(A)), (vec![1, 12], vec![1]));
    let (out, passed) = at(&local, Message::Reserve, &node(60.0));
    assert_eq!(passed.demand.dscp(), Some(34));
    assert_eq!(passed.demand.tmod.unwrap().rate, 60.0);
    let (before, after) = (Qspec::parse(&local).unwrap(), Qspec::parse(&out).unwrap());
    assert_eq!(after.encapsulated(), before.encapsulated(), "untouched inside");
}

/// QSPEC-4.2.5-01: the egress carries the results of the domain to the Initiator QSPEC: lowered values, E, N, and N on
/// sums that the domain did not update.
#[test]
fn what_happened_inside_is_seen_outside() {
    let sent = sent();
    let keep = Supported::NOTHING.with(ParameterId::PATH_LATENCY).with(ParameterId::ADMISSION_PRIORITY);
    let local = entered(&sent, &Translation { keep, ..AS_IT_IS });
    let quality = Quality { latency: Estimate::Known(700), ..Quality::default() };
    let (inside, said) = along(
        &local,
        Message::Reserve,
        &[
            Offer { quality, ..node(80.0) },
            Offer { quality, supported: keep.without(ParameterId::ADMISSION_PRIORITY), ..node(90.0) },
        ],
    );
    assert!(said.iter().all(|passed| !passed.failed));
    let out = left(&inside);
    assert_eq!(rate(&out, A), 80.0);
    assert_eq!(value(&out, A, ParameterId::PATH_LATENCY), Value::PathLatency(1400));
    assert!(!flags(&out, A, ParameterId::PATH_LATENCY).not_supported);
    assert!(flags(&out, A, ParameterId::PATH_JITTER).not_supported);
    assert!(flags(&out, D, ParameterId::ADMISSION_PRIORITY).not_supported);
    assert_eq!(values(&out, D), values(&sent, D));

    let (inside, said) = along(&local, Message::Reserve, &[node(0.5)]);
    assert!(said[0].failed);
    let out = left(&inside);
    assert!(flags(&out, A, ParameterId::TMOD_1).error && object(&out, A).error && !object(&out, D).error);
}

/// QSPEC-4.2.5-01, QSPEC-3.3-03: an error in a parameter that exists in the domain only is visible outside too; the
/// egress reads the Initiator QSPEC and detects errors in it.
#[test]
fn errors_without_a_match() {
    let sent = compose(&Wish::of(Procedure::DESIRED, &desired()[..1]));
    let local = entered(&sent, &Translation { phb: Some(PhbClass::dscp(34)), ..AS_IT_IS });
    let mut failed = Vec::new();
    signalbox_qos::qspec::refuse(&local, Some(ParameterId::PHB_CLASS), &mut failed).unwrap();
    let out = left(&failed);
    assert!(object(&out, D).error && !flags(&out, D, ParameterId::TMOD_1).error);
    assert!(at(&out, Message::Reserve, &node(1e6)).1.failed);

    let mut changed = local.clone();
    let initiator = local.len() - sent.len();
    changed[initiator + 12] = 0x80;
    assert!(Qspec::parse(&changed).is_ok());
    let mut out = vec![1];
    assert!(leave(&changed, &mut out).is_err());
    assert!(leave(&sent, &mut out).is_err());
    assert!(enter(&changed[initiator..], &AS_IT_IS, &mut out).is_err());
    assert!(enter(&local, &AS_IT_IS, &mut out).is_err(), "no Local QSPEC in another");
    assert_eq!(out, [1]);
}
