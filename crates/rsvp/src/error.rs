//! What can be wrong with octets, and what of it is told to the sender.

use crate::wire::ObjectType;
use crate::wire::{Class, ErrorCode};

/// Kinds of local format errors (RFC 2205 Appendix B, "message formatting errors … logged locally"). None of them is
/// ever answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// The RSVP Length is not that of the datagram, or no multiple of 4.
    #[error("wrong message length")]
    MessageLength,
    /// Not version 1.
    #[error("bad version")]
    Version,
    /// Altered under way.
    #[error("bad checksum")]
    Checksum,
    /// No such message.
    #[error("illegal message type")]
    MessageType,
    /// Below 4, no multiple of 4, beyond the message, or not what its type has.
    #[error("illegal object length")]
    ObjectLength,
    /// A zero, multicast or broadcast address in an RSVP_HOP, or one of the wrong family.
    #[error("illegal hop address")]
    HopAddress,
    /// A SrcPort although the DstPort is zero.
    #[error("bad source port")]
    SourcePort,
    /// An object that the message must have.
    #[error("missing object")]
    Missing,
    /// An object that the message cannot have.
    #[error("object class illegal in this message")]
    NotAllowed,
    /// A second object where one is all that may be.
    #[error("second object of its class")]
    Duplicate,
    /// Objects out of order where order counts.
    #[error("wrong order of objects")]
    Order,
    /// Not the FLOWSPECs and FILTER_SPECs that the style has.
    #[error("wrong number of flow descriptors for the style")]
    DescriptorCount,
    /// A class that must be known, in a message whose errors are not answered.
    #[error("unknown object class")]
    UnknownClass,
    /// A C-Type that must be known, in a message whose errors are not answered.
    #[error("unknown object C-Type")]
    UnknownCType,
    /// A style that must be known, in a message whose errors are not answered.
    #[error("unknown reservation style")]
    UnknownStyle,
    /// A value that its field cannot have.
    #[error("illegal value")]
    Value,
    /// Objects of two address families, or of ports and GPIs, in one message.
    #[error("object types that do not go together")]
    MixedTypes,
    /// Of a Bundle: empty, or a Bundle within.
    #[error("malformed bundle")]
    Bundle,
}

impl Fault {
    /// All of them, for counters: a fault's place here is [`Fault::index`].
    pub const ALL: [Self; 18] = [
        Self::MessageLength,
        Self::Version,
        Self::Checksum,
        Self::MessageType,
        Self::ObjectLength,
        Self::HopAddress,
        Self::SourcePort,
        Self::Missing,
        Self::NotAllowed,
        Self::Duplicate,
        Self::Order,
        Self::DescriptorCount,
        Self::UnknownClass,
        Self::UnknownCType,
        Self::UnknownStyle,
        Self::Value,
        Self::MixedTypes,
        Self::Bundle,
    ];

    /// Its place in [`Fault::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Octets that are no RSVP message. It is discarded and counted; its sender hears nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at offset {offset}{}", .object.map(|o| format!(" ({o})")).unwrap_or_default())]
pub struct DecodeError {
    /// What is wrong.
    pub fault: Fault,
    /// In which object; `None`: the common header.
    pub object: Option<ObjectType>,
    /// Where, in octets from the start of the message.
    pub offset: usize,
}

impl DecodeError {
    pub(crate) const fn header(fault: Fault, offset: usize) -> Self {
        Self { fault, object: None, offset }
    }

    pub(crate) const fn missing(class: Class, offset: usize) -> Self {
        Self { fault: Fault::Missing, object: Some(ObjectType { class, c_type: 0 }), offset }
    }
}

/// Why a Path or Resv that can be read is rejected as a whole, in an ERROR_SPEC's terms: codes 06, 13 and 14.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// Error Code.
    pub code: ErrorCode,
    /// Error Value.
    pub value: u16,
}

/// A message that must not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// An object over 65535 octets.
    #[error("{class} of {octets} octets: an object holds at most 65532")]
    ObjectLength {
        /// Which.
        class: Class,
        /// How long it would be.
        octets: usize,
    },
    /// A message that fits no IP datagram.
    #[error("message of {octets} octets: the length field holds at most 65535")]
    MessageLength {
        /// How long it would be.
        octets: usize,
    },
    /// Octets given as one whole object, and they are not.
    #[error("not one whole object")]
    RawObject,
    /// A list of addresses of two families.
    #[error("addresses of two families in {class}")]
    Mixed {
        /// Of which object.
        class: Class,
    },
}
