//! Signaling applications of other processes: the clients of GIST's service interface (RFC 5971, Appendix B).

pub(crate) mod call;
pub(crate) mod client;
mod convert;
