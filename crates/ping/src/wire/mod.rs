//! Octets of the Ping application. `docs/wire/ping.md` has a drawing and test vectors.
//!
//! One message travels from the initiator to the end of the flow and back. It starts with 24 octets. Every node
//! that has the application appends one [`Record`]. [`Message`] is a view of received octets; it is encoded with one
//! additional record, so that a node on the path copies the octets once and allocates nothing.
//!
//! [`nsis`] is the format of another tool.

mod message;
pub mod nsis;
mod record;

pub use crate::error::DecodeError;
pub use message::{
    Flags, HEADER_OCTETS, Kind, List, MAX_OCTETS, MAX_PADDING, Message, PADDING_HEADER_OCTETS, VERSION,
};
pub use record::{IPV4_RECORD_OCTETS, IPV6_RECORD_OCTETS, MAX_TIME_US, Record, Records};
