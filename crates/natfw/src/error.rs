//! Decode errors, and the response code of each (RFC 5973 §4.2.5).

use crate::wire::{Info, ObjectType};

/// Octets that are no NATFW NSLP message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field} at offset {offset}: {info}")]
pub struct DecodeError {
    /// The error that §4.2.5 has for it; class Protocol error.
    pub info: Info,
    /// The object it is in; `None`: the header, or the message as a whole.
    pub object: Option<ObjectType>,
    /// Name of the field or, where an object is missing, of that object.
    pub field: &'static str,
    /// Offset of the field from the start of the message, in octets.
    pub offset: usize,
}
