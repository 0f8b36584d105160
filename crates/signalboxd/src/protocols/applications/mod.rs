//! Signaling applications of other processes.

pub(crate) mod convert;
pub(crate) mod service;
