//! The octets of the QSPEC (RFC 5975 §5, RFC 5976 §3), both ways.

mod code_points;

pub use code_points::{
    AdmissionPriority, ExcessTreatment, MessageSequence, ObjectType, ParameterId, Procedure, QspecType,
    RestorationPriority,
};
