//! GIST (RFC 5971). Its clients, signaling applications in other processes, are in
//! [`applications`](super::applications).

mod convert;
pub(crate) mod service;

pub(crate) use convert::routing_method;
