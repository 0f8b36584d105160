//! QoS as a signaling application: QoS NSLP (RFC 5974) and the QSPEC that it carries (RFC 5975, RFC 5976).
//!
//! [`wire`] is the octets ([`error`]: what can be wrong with them). [`engine`] and [`qspec`] (feature `engine`) are what
//! a node does with them. The engine uses GIST by the data types of [`signalbox_core::service`] only, so it runs over any
//! implementation of that interface.
//!
#![cfg_attr(feature = "engine", doc = include_str!("../README.md"))]
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
#[cfg_attr(not(test), expect(clippy::expect_used, reason = "a kit of tests fails by a panic"))]
pub mod kit;
#[cfg(feature = "engine")]
pub mod qspec;
pub mod wire;

#[cfg(feature = "engine")]
pub use engine::Counters;
