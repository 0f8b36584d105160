//! The test protocol: it shows what a protocol needs here. It has no clients, and so no service.

pub(crate) mod config;
