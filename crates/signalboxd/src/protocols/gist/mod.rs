//! GIST (RFC 5971). Its clients, signaling applications in other processes, are in
//! [`applications`](super::applications).

pub(crate) mod service;
