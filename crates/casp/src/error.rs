//! Decode and encode errors.

use signalbox_wire::Short;

use crate::wire::{Class, FlowError, MessageType};

/// Why octets are not a CASP message. Such a message is discarded without answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The octets end inside a field.
    #[error("{field}: {short}")]
    Short {
        /// The field where the octets end.
        field: &'static str,
        /// The offset, and how many octets are missing.
        short: Short,
    },
    /// A type that is not valid.
    #[error("message type {0:?} at offset 3, known are 1 to 3")]
    Type(MessageType),
    /// The Length of an object is less than that of its header.
    #[error("object Length {length} at offset {offset}, at least 4 is needed")]
    Length {
        /// Offset of the object.
        offset: usize,
        /// The Length.
        length: u16,
    },
    /// The Length of an object is not that of its class and C-Type.
    #[error("{class} at offset {offset} has {octets} octets of contents, {wanted} are needed")]
    Size {
        /// The class.
        class: Class,
        /// Offset of the object.
        offset: usize,
        /// Octets of the contents.
        octets: usize,
        /// Octets that they must have.
        wanted: usize,
    },
    /// A class that may stand in a message once stands there again.
    #[error("a second {class} at offset {offset}")]
    Duplicate {
        /// The class.
        class: Class,
        /// Offset of the second object.
        offset: usize,
    },
    /// A message without an object that its type requires.
    #[error("no {0}")]
    Missing(Class),
    /// A FLOW_ID of unknown C-Type.
    #[error("FLOW_ID of C-Type {c_type} at offset {offset}, which is unknown")]
    FlowForm {
        /// The C-Type.
        c_type: u8,
        /// Offset of the object.
        offset: usize,
    },
    /// CLIENT_DATA and ERROR in one message.
    #[error("CLIENT_DATA and ERROR in one message")]
    DataAndError,
    /// The flags R and D together.
    #[error("the flags R and D are set together")]
    ReverseDiscovery,
}

impl DecodeError {
    /// Offset of the field that is wrong, in octets from the start of the Common Header.
    #[must_use]
    pub const fn offset(&self) -> usize {
        match self {
            Self::Short { short, .. } => short.offset,
            Self::Type(_) => 3,
            Self::Length { offset, .. }
            | Self::Size { offset, .. }
            | Self::Duplicate { offset, .. }
            | Self::FlowForm { offset, .. } => *offset,
            Self::Missing(_) | Self::DataAndError => crate::wire::HEADER,
            Self::ReverseDiscovery => 0,
        }
    }
}

/// Why a message cannot be composed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The contents of an object do not fit.
    #[error("{class} of {octets} octets, at most 65535 fit")]
    TooLong {
        /// The class.
        class: Class,
        /// Octets with the object header.
        octets: usize,
    },
    /// The flags R and D together.
    #[error("the flags R and D are not set together")]
    ReverseDiscovery,
    /// The flow.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

/// Why a stream cannot be split into messages any more: it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Length Header {length}: not from 24 to {max}, or not a multiple of 4")]
pub struct FramingError {
    /// The length found.
    pub length: u32,
    /// The largest length that is accepted.
    pub max: u32,
}
