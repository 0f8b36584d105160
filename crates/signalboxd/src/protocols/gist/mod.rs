//! GIST (RFC 5971).

pub(crate) mod config;
pub(crate) mod convert;
