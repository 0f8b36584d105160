//! Processing of a QSPEC by nodes (RFC 5975 §3, §4).

mod admit;
mod answers;
mod arithmetic;
mod damaged;
mod demand;
mod failures;
mod flags;
mod local;
mod messages;
mod path;
mod sums;
mod support;
