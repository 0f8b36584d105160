//! CASP, the Cross-Application Signaling Protocol (draft-schulzrinne-nsis-casp-01 and its client drafts).
//!
//! [`wire`] is the octets of the messaging layer and of scout ([`error`]: what can be wrong with them). The engine (feature
//! `engine`) is the messaging layer; [`clients`] use it. `docs/wire/casp.md` describes the octets.
//!
#![doc = include_str!("../README.md")]
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
#[cfg(feature = "kit")]
pub mod kit;
pub mod wire;

#[cfg(feature = "engine")]
pub use engine::Counters;
