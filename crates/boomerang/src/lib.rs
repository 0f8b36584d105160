//! Boomerang (draft-bergkvist-boomerang-spec-00 and its framework): reservations in one loop of an ICMP Echo.
//!
//! [`wire`] is the octets ([`error`]: what can be wrong with them). The engine (feature `engine`) is initiating node, node
//! on the path and far-end node in one. `docs/wire/boomerang.md` describes the octets.
//!
//! ```
//! use signalbox_boomerang::wire::{Message, Pass};
//!
//! // A node on the path refused 64 kbit/s, and has 48 kbit/s.
//! let octets = signalbox_wire::parse_hex(concat!(
//!     "0000600a12340001471147110000000110120001140100000000000000000000",
//!     "c0000201c6336402138c138c11b8000000000000000000000000000000ffffff",
//!     "0000bb800000fa00",
//! ))?;
//! let message = Message::parse(&octets, false)?;
//! assert_eq!((message.pass, message.is_refused()), (Pass::Reply, true));
//! let rates = message.body.and_then(|body| body.qos.rates());
//! assert_eq!(rates.map(|rates| rates.forward), Some(48_000));
//! # Ok::<(), Box<dyn core::error::Error>>(())
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
