//! GIST, the General Internet Signalling Transport (RFC 5971).
//!
//! [`wire`] holds the octets, [`error`] what can be wrong with them. The state machines are behind the feature
//! `engine`; a dissector leaves them off.

pub mod error;
pub mod fuzz;
pub mod wire;

#[cfg(feature = "engine")]
pub mod apd;
#[cfg(feature = "engine")]
pub mod counters;
#[cfg(feature = "engine")]
pub mod engine;
