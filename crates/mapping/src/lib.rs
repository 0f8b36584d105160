//! PCP (RFC 6887) and NAT-PMP (RFC 6886): how programs ask their router for a port.
//!
//! [`wire`] is the octets ([`error`]: what can be wrong with them). The engine (feature `engine`) is the server: it answers hosts
//! with what the whole path granted. [`client`] asks another server, which speaks PCP or NAT-PMP only.
//! `docs/wire/mapping.md` describes the octets.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

#[cfg(feature = "engine")]
pub mod client;
#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
#[cfg_attr(not(test), expect(clippy::panic, reason = "a fuzz target fails by a panic"))]
pub mod fuzz;
pub mod wire;

pub use error::{Answer, DecodeError, NatPmpError};
