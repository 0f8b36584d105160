//! The QSPEC (RFC 5975, RFC 5976).

mod code_points;
mod composer;
mod corpus;
mod faults;
mod golden;
mod local;
mod parameters;
mod random;
mod support;
mod sweep;
mod text;
