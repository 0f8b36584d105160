//! The numbers that IANA registered.

use signalbox_qos::wire::qspec::{
    AdmissionPriority, ExcessTreatment, MessageSequence, ObjectType, Outcome, ParameterId, Procedure,
    QspecType, RestorationPriority,
};

/// QSPEC-5.1.1-03, QSPEC-7-01: each assigned number has its name, and other numbers have no name.
#[test]
fn registries() {
    let named = |name: fn(u16) -> bool| (0..=0xfff).filter(|n| name(*n)).collect::<Vec<_>>();
    assert_eq!(named(|n| ParameterId(n).name().is_some()), (1..=16).collect::<Vec<_>>());
    assert_eq!(named(|n| ObjectType(n).name().is_some()), [0, 1, 2, 3]);
    assert_eq!(named(|n| ObjectType(n).is_private()), [64, 65, 66, 67]);
    let named = |name: fn(u8) -> bool| (0..=255).filter(|n| name(*n)).collect::<Vec<u8>>();
    assert_eq!(named(|n| QspecType(n).name().is_some()), [0, 1, 2]);
    assert_eq!(named(|n| MessageSequence(n).name().is_some()), [0, 1, 2]);
    assert_eq!(named(|n| Procedure(n).is_assigned()), [0, 1, 2, 0x10, 0x11, 0x12, 0x20]);
    assert_eq!(named(|n| ExcessTreatment(n).name().is_some()), [0, 1, 2, 3]);
    assert_eq!(named(|n| AdmissionPriority(n).name().is_some()), [0, 1, 2, 0xff]);
    assert_eq!(named(|n| RestorationPriority(n).name().is_some()), [0, 1, 2]);
    assert_eq!((QspecType::DEFAULT.0, QspecType::Y1541.0, QspecType::RMD.0), (0, 1, 2));
}

/// QSPEC-4.2.3-07: QoS models have an error class of their own; this node uses no code of it.
#[test]
fn class_of_qos_models() {
    assert_eq!(Outcome::QOS_MODEL_CLASS, 6);
    for code in 0..=255 {
        assert_eq!(Outcome { class: Outcome::QOS_MODEL_CLASS, code }.name(), None);
    }
}
