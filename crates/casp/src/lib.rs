//! CASP, the Cross-Application Signaling Protocol (draft-schulzrinne-nsis-casp-01 and its client drafts).
//!
//! [`wire`] is the octets of the messaging layer and of scout ([`error`]: what can be wrong with them). The engine (feature
//! `engine`) is the messaging layer; [`clients`] use it. `docs/wire/casp.md` describes the octets.
//!
//! ```
//! use signalbox_casp::wire::{Body, ClientType, Message};
//!
//! // The first message of a session over TCP, behind its Length Header.
//! let octets = signalbox_wire::parse_hex(concat!(
//!     "10400001000102030405060708090a0b0c0d0e0f00140101c0000201c6336407138c138e11000000",
//!     "000802010000005a000c0601b1b2b3b4b5b6b7b80009030168656c6c6f000000",
//! ))?;
//! let Message::Signaling(message) = Message::parse(&octets)? else { unreachable!() };
//! assert_eq!((message.ttd, message.hops, message.timeout), (64, 0, Some(90)));
//! assert_eq!(message.flow.to_string(), "192.0.2.1 port 5004 > 198.51.100.7 port 5006 proto 17");
//! assert_eq!(message.body, Body::Client { client: ClientType::QOS, data: b"hello" });
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

#[cfg(feature = "engine")]
pub mod clients;
#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
#[cfg_attr(not(test), expect(clippy::panic, reason = "a fuzz target fails by a panic"))]
pub mod fuzz;
pub mod wire;

#[cfg(feature = "engine")]
pub use engine::Counters;
