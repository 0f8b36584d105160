//! Octets of the Ping application; drawing and test vectors are in `docs/wire/ping.md`.
//!
//! One message travels from the initiator to the end of the flow and back. It starts as 24 octets; every node
//! that has the application appends one [`Record`]. [`Message`] is a view over received octets and composes
//! itself again with one record more, so that a node on the way copies once and allocates nothing.

mod error;
mod message;
mod record;

pub use error::DecodeError;
pub use message::{
    Flags, HEADER_OCTETS, Kind, List, MAX_OCTETS, MAX_PADDING, Message, PADDING_HEADER_OCTETS, VERSION,
};
pub use record::{IPV4_RECORD_OCTETS, IPV6_RECORD_OCTETS, MAX_TIME_US, Record, Records};
