//! The NAT and firewall signaling application (RFC 5973). A host asks for the passage of a flow, and each firewall and
//! NAT on the path opens what this flow needs, for as long as the host refreshes the request.
//!
//! [`wire`] is the octets ([`error`]: what can be wrong with them). The engine (feature `engine`) uses GIST by the data
//! types of [`signalbox_core::service`] only, and asks the driver for rules by those of [`signalbox_core::pinhole`].
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
#[cfg_attr(not(test), expect(clippy::panic, reason = "a fuzz target fails by a panic"))]
pub mod fuzz;
#[cfg(feature = "kit")]
pub mod kit;
pub mod wire;

#[cfg(feature = "engine")]
pub use engine::Counters;
