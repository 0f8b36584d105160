//! RSVP (RFC 2205).

pub(crate) mod config;
pub(crate) mod convert;
pub(crate) mod service;
