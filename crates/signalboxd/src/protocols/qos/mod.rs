//! The QoS application (RFC 5974).

pub(crate) mod config;
pub(crate) mod convert;
