//! M, E and N (RFC 5975 §4, §4.2).

use signalbox_qos::qspec::{Message, Offer, Supported, Wish};
use signalbox_qos::wire::qspec::{
    Admission, AdmissionPriority, Excess, ExcessTreatment, ObjectType, Outcome, ParameterId, PhbClass,
    Procedure, Value,
};

use super::support::*;

const D: ObjectType = ObjectType::DESIRED;
const A: ObjectType = ObjectType::AVAILABLE;

/// Values that the default node does not support, unknown and unassigned ones included.
fn unsupported() -> Vec<Value<'static>> {
    let excess = |n| Value::Excess(Excess { treatment: ExcessTreatment(n), remark: None });
    vec![
        Value::Unknown { id: ParameterId(256), octets: &[] },
        Value::Unknown { id: ParameterId(300), octets: &[1, 2, 3, 4] },
        Value::Tmod2(tmod(1.0)),
        Value::Dste(1),
        Value::Y1541(5),
        Value::TmodExtension(1000.0),
        excess(ExcessTreatment::NO_METERING.0),
        excess(ExcessTreatment::SHAPE.0),
        Value::Excess(Excess { treatment: ExcessTreatment::RE_MARK, remark: Some(0) }),
        excess(77),
        Value::Admission(Admission { y2171: AdmissionPriority(63), priority: 63 }),
        Value::Phb(PhbClass::Local { code: 1, set: false }),
    ]
}

/// QSPEC-4-01, QSPEC-4-04, QSPEC-5.1.2-03, QSPEC-4.2.2-01, QSPEC-4.4-01: an unsupported parameter gets N; with M the
/// reservation fails (4/0x07), without M it continues.
#[test]
fn not_supported() {
    for value in unsupported() {
        for mandatory in [true, false] {
            let desired = [(M, Value::Tmod1(tmod(10.0))), (if mandatory { M } else { PLAIN }, value)];
            let sent = compose(&Wish::of(Procedure::DESIRED, &desired));
            let (out, passed) = at(&sent, Message::Reserve, &node(1e6));
            let flags = flags(&out, D, value.id());
            assert!(flags.not_supported && !flags.error, "{value}");
            assert_eq!((passed.failed, passed.not_supported), (mandatory, true), "{value}");
            let outcome = if mandatory { Outcome::FAILURE } else { Outcome::SUCCESS };
            assert_eq!(passed.outcome(), outcome);
            assert_eq!(values(&out, D), values(&sent, D));
            // A node that answers for a node without state sees the failure.
            let (_, next) = at(
                &out,
                Message::Reserve,
                &Offer { y1541: Some(0), supported: Supported::EVERYTHING, ..node(1e6) },
            );
            assert_eq!(next.failed, mandatory, "{value}");
        }
    }
    assert_eq!(Outcome::FAILURE, Outcome { class: 4, code: 0x07 });
    assert_eq!(Outcome::SUCCESS, Outcome { class: 2, code: 0x01 });
}

/// QSPEC-4-02, QSPEC-4-05, QSPEC-4-03, QSPEC-4.2.1-01, QSPEC-4.2.1-02, QSPEC-4.2.1-03: a supported parameter that
/// cannot be satisfied gets E, as does its object, and the reservation fails, with or without M; all such parameters
/// are flagged.
#[test]
fn not_satisfied() {
    for mandatory in [M, PLAIN] {
        let desired =
            [(M, Value::Tmod1(tmod(10.0))), (mandatory, Value::Y1541(0)), (mandatory, Value::SlackTerm(1))];
        let sent = compose(&Wish::of(Procedure::DESIRED, &desired));
        let offer = Offer { y1541: Some(4), ..node(9.0) };
        let (out, passed) = at(&sent, Message::Reserve, &offer);
        assert_eq!((passed.failed, passed.outcome()), (true, Outcome::FAILURE));
        let flagged: Vec<_> =
            object(&out, D).parameters().filter(|p| p.flags.error).map(|p| p.id.0).collect();
        assert_eq!(flagged, [1, 14]);
        assert!(object(&out, D).error);
        assert!(object(&out, D).parameters().all(|p| !p.flags.not_supported));
    }
}

/// QSPEC-4.2.3-02: without E the reservation succeeds, even with N.
#[test]
fn success() {
    let desired = [(M, Value::Tmod1(tmod(10.0))), (PLAIN, Value::Dste(1))];
    let sent = compose(&Wish::of(Procedure::DESIRED, &desired));
    let (out, passed) = at(&sent, Message::Reserve, &node(10.0));
    assert_eq!(passed.outcome(), Outcome { class: 2, code: 1 });
    assert!(!object(&out, D).error && flags(&out, D, ParameterId::DSTE_CLASS_TYPE).not_supported);
}

/// QSPEC-4.2.2-02: nodes that support a sum with N still add to it, and N stays.
#[test]
fn sums_with_n_go_on() {
    use signalbox_qos::qspec::{Collect, Estimate, Quality};
    let desired = [(M, Value::Tmod1(tmod(10.0)))];
    let collect = Collect { latency: true, ..Collect::default() };
    let sent = compose(&Wish { collect, ..Wish::of(Procedure::AVAILABLE, &desired) });
    let knows =
        |us| Offer { quality: Quality { latency: Estimate::Known(us), ..Quality::default() }, ..node(1e6) };
    let cannot = Offer { supported: Supported::NOTHING, ..node(1e6) };
    let (out, said) = along(&sent, Message::Reserve, &[knows(1), cannot, knows(30)]);
    assert_eq!(value(&out, A, ParameterId::PATH_LATENCY), Value::PathLatency(31));
    assert!(flags(&out, A, ParameterId::PATH_LATENCY).not_supported);
    assert_eq!(said.iter().map(|p| p.not_supported).collect::<Vec<_>>(), [false, true, true]);
    assert!(said.iter().all(|p| !p.failed));
}

/// QSPEC-5.2.11-05: shaping without a TMOD: E on the parameter, and the reservation fails. Only a Local QSPEC can reach
/// this check: an Initiator QSPEC without TMOD is malformed, and that has precedence.
#[test]
fn shape_without_tmod() {
    let shape = Value::Excess(Excess { treatment: ExcessTreatment::SHAPE, remark: None });
    let initiator = qspec(Procedure::DESIRED, &[(D, &[(M, Value::Tmod1(tmod(10.0)))])]);
    let offer = Offer { supported: Supported::EVERYTHING, ..node(1e6) };
    for (tmod, good) in
        [(None, false), (Some(Value::Tmod1(tmod(10.0))), true), (Some(Value::Tmod2(tmod(10.0))), true)]
    {
        let mut parameters = vec![(PLAIN, shape)];
        parameters.extend(tmod.map(|tmod| (M, tmod)));
        let mut octets = Vec::new();
        let mut w = signalbox_wire::Writer::new(&mut octets);
        let header = signalbox_qos::wire::qspec::Header {
            local: true,
            ..signalbox_qos::wire::qspec::Header::initiator(Procedure::DESIRED)
        };
        let mut composer = signalbox_qos::wire::qspec::Composer::new(header, &mut w).unwrap();
        composer.object(D, false, |o| parameters.iter().try_for_each(|(f, v)| o.put(*f, v))).unwrap();
        composer.finish(Some(&initiator)).unwrap();
        let (out, passed) = at(&octets, Message::Reserve, &offer);
        assert_eq!(passed.failed, !good);
        assert_eq!(flags(&out, D, ParameterId::EXCESS_TREATMENT).error, !good);
    }
}
