//! TLS and plain channels, two ends in memory.

mod authentication;
mod hostile;
mod pair;
mod transfer;
