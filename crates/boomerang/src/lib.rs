//! Boomerang (draft-bergkvist-boomerang-spec-00 and its framework): reservations in one loop of an ICMP Echo.
//!
//! [`wire`] is the octets ([`error`]: what can be wrong with them). The engine (feature `engine`) is initiating node, node
//! on the path and far-end node in one. `docs/wire/boomerang.md` describes the octets.
//!
//! A section without a document, such as §3.2.2, is one of the specification; `framework §4.2` is one of the framework. An id such as
//! BOOM-3.2.2-04 is a row of `conformance/boomerang.tsv`.
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
