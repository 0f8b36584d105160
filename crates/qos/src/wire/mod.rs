//! Encoding and decoding of QoS NSLP messages and of the QSPEC.

mod code_points;
mod encode;
mod info_spec;
mod lists;
mod message;
mod object;
pub mod qspec;
mod values;

pub use crate::error::{DecodeError, EncodeError};
pub use code_points::{
    AGGREGATION_LEVELS, BindingCode, GenericFlags, Info, InfoClass, MessageFlags, MessageType, ObjectType,
    router_alert_value,
};
pub use info_spec::{Diagnosis, InfoSpec, Source};
pub use lists::{RsnList, SessionIds};
pub use message::{Message, identify};
pub use object::{Carried, Extensibility, HEADER_OCTETS, Objects, RawObject, write_auth};
pub use signalbox_wire::hops::{Hop, Hops, MAX_HOPS_OCTETS, Part};
pub use values::{BoundSession, Classifier, MessageId, Rsn};
