//! Values that the composer refuses.

use signalbox_qos::wire::qspec::{
    Composer, EncodeError, Excess, ExcessTreatment, Flags, Header, ObjectType, ParameterId, Preemption,
    Procedure, QspecType, Rph, Value,
};
use signalbox_wire::Writer;

use super::support::*;

/// QSPEC-5.1-04, QSPEC-5.1-05: no empty object and no duplicate is ever composed.
#[test]
fn nothing_empty_and_nothing_twice() {
    let header = Header::initiator(Procedure::DESIRED);
    let slack = |o: &mut signalbox_qos::wire::qspec::ObjectComposer<'_, '_>| {
        o.put(Flags::default(), &Value::SlackTerm(1))
    };
    assert_eq!(compose(header, |_| Ok(())), Err(EncodeError::Empty(None)));
    let desired = ObjectType::DESIRED;
    assert_eq!(
        compose(header, |c| c.object(desired, false, |_| Ok(()))),
        Err(EncodeError::Empty(Some(desired)))
    );
    for kind in [desired, ObjectType::MINIMUM, ObjectType(65)] {
        let twice = compose(header, |c| {
            c.object(kind, false, slack)?;
            c.object(kind, false, slack)
        });
        assert_eq!(twice, Err(EncodeError::DuplicateObject(kind)));
    }
    for value in [Value::SlackTerm(1), Value::Unknown { id: ParameterId(300), octets: &[] }] {
        let twice = compose_desired(|o| {
            o.put(Flags::default(), &value)?;
            o.put(Flags::MANDATORY, &value)
        });
        assert_eq!(twice, Err(EncodeError::DuplicateParameter(value.id())));
    }
}

/// QSPEC-5.2.8-02, QSPEC-5.2.10-04, QSPEC-5.2.11-06 and others: values that are not allowed in any message.
#[test]
fn forbidden_values() {
    for value in [
        Value::Preemption(Preemption { preemption: 2, defending: 1 }),
        Value::Excess(Excess { treatment: ExcessTreatment::RE_MARK, remark: None }),
        Value::Excess(Excess { treatment: ExcessTreatment::RE_MARK, remark: Some(64) }),
        Value::Excess(Excess { treatment: ExcessTreatment::DROP, remark: Some(1) }),
        Value::PathPlr(1.5),
        Value::PathPer(-0.0),
        Value::PathPer(f32::NAN),
        Value::Y1541(8),
        Value::TmodExtension(0.5),
        Value::BadPhb(4),
        Value::Unknown { id: ParameterId::TMOD_1, octets: &[] },
        Value::Unknown { id: ParameterId(0x1000), octets: &[] },
        Value::Unknown { id: ParameterId(300), octets: &[1, 2, 3] },
    ] {
        assert!(matches!(compose_one(&value), Err(EncodeError::Forbidden { .. })), "{value:?}");
    }
    let rph = Value::Rph(Rph { namespace: 1, priority: 1 });
    assert_eq!(compose_one(&rph), Err(EncodeError::Priorities));
}

/// QSPEC-4.3-02, QSPEC-5.1.1-03: headers that are not allowed in any message.
#[test]
fn forbidden_headers() {
    let good = Header::initiator(Procedure::DESIRED);
    let mut octets = Vec::new();
    for header in [
        Header { procedure: Procedure(0x03), ..good },
        Header { procedure: Procedure(0x30), ..good },
        Header { qspec_type: QspecType(32), ..good },
    ] {
        assert!(Composer::new(header, &mut Writer::new(&mut octets)).is_err(), "{header:?}");
    }
    assert!(octets.is_empty());
    let other = compose(good, |c| c.object(ObjectType(4), false, |_| Ok(())));
    assert!(matches!(other, Err(EncodeError::Forbidden { .. })));
}

/// Twelve bits of length can express at most 4,095 words.
#[test]
fn too_long() {
    let words = vec![0; 4 * 4092];
    let long = |n: usize| {
        let value = Value::Unknown { id: ParameterId(300), octets: words.get(..n * 4).unwrap_or(&[]) };
        compose_one(&value)
    };
    assert_eq!(long(4092).unwrap().len(), 4 * 4095);
    let one_more = compose_desired(|o| {
        o.put(Flags::default(), &Value::Unknown { id: ParameterId(300), octets: &words })?;
        o.put(Flags::default(), &Value::SlackTerm(1))
    });
    assert!(matches!(one_more, Err(EncodeError::Length(_))));
}
