//! The NAT and firewall signaling application (RFC 5973). A host asks for the passage of a flow, and each firewall and
//! NAT on the path opens what this flow needs, for as long as the host refreshes the request.
//!
//! [`wire`] is the octets ([`error`]: what can be wrong with them). The engine (feature `engine`) uses GIST by the data
//! types of [`signalbox_core::service`] only, and asks the driver for rules by those of [`signalbox_core::pinhole`].
//!
//! ```
//! use signalbox_natfw::wire::{FlowInfo, Message, MessageType};
//!
//! let create = Message {
//!     lifetime: Some(1575),
//!     msn: Some(7),
//!     efi: Some(FlowInfo::ALLOW),
//!     ..Message::new(MessageType::CREATE)
//! };
//! let mut octets = Vec::new();
//! create.encode(&mut signalbox_wire::Writer::new(&mut octets));
//! assert_eq!(octets.len(), 28);
//! assert_eq!(Message::parse(&octets), Ok(create));
//! ```

#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
#[cfg_attr(not(test), expect(clippy::panic, reason = "a fuzz target fails by a panic"))]
pub mod fuzz;
pub mod wire;

#[cfg(feature = "engine")]
pub use engine::Counters;
