//! The Ping application.

pub(crate) mod config;
pub(crate) mod convert;
