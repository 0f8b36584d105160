//! Octets of CASP.

mod corpus;
mod damaged;
mod formats;
mod messages;
mod natfw;
mod qos;
mod route;
mod streams;
mod support;
mod vectors;
