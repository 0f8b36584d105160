//! QoS as a signaling application: QoS NSLP (RFC 5974) and the QSPEC that it carries (RFC 5975, RFC 5976).
//!
//! [`wire`] is the octets. Everything else is behind the feature `engine`; a dissector leaves it off.

#[cfg(feature = "engine")]
mod counters;
#[cfg(feature = "engine")]
pub mod engine;
pub mod fuzz;
#[cfg(feature = "engine")]
pub mod qspec;
pub mod wire;

#[cfg(feature = "engine")]
pub use counters::Counters;
