//! The Ping signaling application. A Ping message visits every node of a flow's path that has the application, up to
//! the end of the flow and back. Each node adds its address and times to it.
//!
//! [`wire`] is the octets ([`error`]: what can be wrong with them). The engine (feature `engine`) uses GIST by the
//! data types of [`signalbox_core::service`] only, so it runs over any implementation of that interface. Nodes on the
//! path keep no state of a session: all results are in the message.
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
pub mod wire;

#[cfg(feature = "engine")]
pub use engine::Counters;
