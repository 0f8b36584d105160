//! The Ping signaling application: a message that visits every node of a flow's path which has the
//! application, up to the end of the flow and back, and lets each add its address and times.
//!
//! [`wire`] is the octets. The engine (feature `engine`) meets GIST in [`signalbox_core::service`] only: it
//! runs behind any implementation of that interface. Nodes on the way keep nothing for a session: the
//! message carries all that is known.

#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

#[cfg(feature = "engine")]
mod counters;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg_attr(not(test), expect(clippy::panic, reason = "a fuzz target fails by a panic"))]
pub mod fuzz;
pub mod wire;

#[cfg(feature = "engine")]
pub use counters::Counters;
