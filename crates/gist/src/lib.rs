//! GIST, the General Internet Signalling Transport (RFC 5971).
//!
//! [`wire`] is the octets of all messages and objects, [`error`] what can be wrong with them. The state machines are
//! behind the feature `engine`, which a dissector does not need.
//!
#![cfg_attr(feature = "engine", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod error;
#[cfg_attr(not(test), expect(clippy::panic, reason = "a fuzz target fails by a panic"))]
pub mod fuzz;
pub mod wire;

#[cfg(feature = "engine")]
pub mod apd;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "engine")]
pub mod gateway;
#[cfg(feature = "kit")]
#[cfg_attr(not(test), expect(clippy::expect_used, reason = "a kit of tests fails by a panic"))]
pub mod kit;

#[cfg(feature = "engine")]
pub use engine::Counters;
