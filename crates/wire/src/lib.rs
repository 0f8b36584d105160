//! Octets in and out, for every protocol of the suite.
//!
//! [`Reader`] is a cursor that cannot index: every step either yields what was asked for or says at which
//! offset the octets ran out. [`Writer`] appends to a caller's buffer and patches lengths through guards
//! that return an error instead of truncating. [`code_points!`] makes newtypes whose unknown values survive
//! decoding, printing and encoding.
//!
//! This crate depends on nothing of ours and knows no protocol.

#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod code_point;
mod hex;
mod reader;
mod writer;

pub use hex::{HexError, hex, parse_hex};
pub use reader::{Reader, Short};
pub use writer::{LengthOverflow, LengthSlot, Writer};
