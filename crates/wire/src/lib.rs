//! Decoding and encoding of octets, for all protocols of the suite.
//!
//! [`Reader`] is a cursor without indexing: each step returns the octets, or an error with the offset where they ended.
//! [`Writer`] appends to a buffer of the caller and fills in length fields; a length that does not fit is an error.
//! [`code_points!`] and [`flags!`] declare newtypes that keep unknown values when they are decoded, printed and encoded.
//!
//! [`hops`] is the list of the nodes that granted a request, which protocols carry in objects of our own.
//!
//! This crate depends on no other crate of the suite and contains no protocol.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod code_point;
mod flags;
mod hex;
pub mod hops;
mod reader;
mod writer;

pub use hex::{HexError, hex, parse_hex};
pub use reader::{Reader, Short};
pub use writer::{LengthOverflow, LengthSlot, Writer};

/// The beginning of a text: as many whole characters as fit into `most` octets.
#[must_use]
pub fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}
