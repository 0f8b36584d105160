//! Signaling applications of other processes: the clients of GIST's service interface (RFC 5971, Appendix B).

mod client;
mod convert;
pub(crate) mod service;
