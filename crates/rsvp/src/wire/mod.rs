//! The octets of RSVP messages: parsing and composing (RFC 2205 §3.1, Appendix A).
//!
//! [`Message::parse`] reads a message in one pass as a view over its buffer. [`Writer`] composes a message into a
//! buffer that is used again. Contents that the format does not decide are read on request: the traffic specifications
//! ([`RawFlowSpec`], [`RawTspec`], [`RawAdspec`]) are for traffic control, POLICY_DATA for policy control.

mod adspec;
pub mod attribute;
mod bundle;
mod checksum;
mod code_points;
mod compose;
mod diagnostic;
mod elements;
mod grammar;
pub mod granting;
mod intserv;
mod message;
mod object;
mod policy;
mod reduction;
mod security;
mod typed;
mod user_error;
mod values;
mod writer;

pub use crate::error::{DecodeError, EncodeError, Fault, Refusal};
pub use adspec::{Adspec, ControlledLoad, Guaranteed, LocalService, LocalServices, Overrides, RawAdspec};
pub use bundle::SubMessages;
pub use checksum::{checksum, checksum_is_valid};
pub use code_points::{
    AdmissionValue, Class, DiagErrors, ErrorCode, ErrorFlags, ErrorValue, HeaderFlags, MessageType,
    PolicyValue, TrafficControlValue, UnknownClass, ValueScope,
};
pub use diagnostic::{DiagResponse, DiagSelect, Diagnostic, Route, ntp_middle};
pub use elements::{Identity, Preemption, elements, policy_data};
pub use intserv::{FlowSpec, RawFlowSpec, RawTspec, Service, SpecFault};
pub use message::{Flow, Flows, Message};
pub use object::{HEADER_OCTETS, OBJECT_HEADER_OCTETS, ObjectType, Objects, RawObject};
pub use policy::{PolicyData, PolicyElement, PolicyElements, PolicyOptions};
pub use reduction::{IdList, ListedId, MessageId};
pub use security::{Challenge, Hello, Integrity};
pub use typed::Object;
pub use user_error::UserError;
#[cfg(feature = "engine")]
pub(crate) use values::is_host;
pub use values::{ErrorSpec, Filter, RsvpHop, Scope, Selector, Session, SessionKind, Style};
pub use writer::Writer;
