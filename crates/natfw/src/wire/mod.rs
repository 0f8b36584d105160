//! Encoding and decoding of NATFW NSLP messages (RFC 5973 §4). `docs/wire/natfw.md` has test vectors.

mod code_points;
mod encode;
mod message;
mod object;
mod publication;
mod values;

pub use crate::error::DecodeError;
pub use code_points::{Info, InfoClass, MessageType, ObjectType, RuleAction};
pub use message::{Message, sequence_number};
pub use object::{Forwarded, HEADER_OCTETS, MAX_WORDS, refused_by, session_auth};
pub use publication::{Filter, MAX_FILTERS, PUBLICATION, Publication, Wish};
pub use signalbox_wire::hops::{Hop, Hops, Part};
pub use values::{
    Bindings, DataTerminal, ExternalAddress, FlowInfo, IcmpTypes, Information, MAX_BINDINGS, Ports,
    TerminalPorts,
};
