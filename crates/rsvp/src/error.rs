//! Faults of received octets, and errors of composing.

use crate::wire::ObjectType;
use crate::wire::{Class, ErrorCode};

/// Format errors, which are counted and never answered (RFC 2205 Appendix B: "message formatting errors … logged
/// locally").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// The RSVP Length differs from the datagram's, or is not a multiple of 4.
    #[error("wrong message length")]
    MessageLength,
    /// The version is not 1.
    #[error("bad version")]
    Version,
    /// The checksum is wrong.
    #[error("bad checksum")]
    Checksum,
    /// The message type is unknown.
    #[error("illegal message type")]
    MessageType,
    /// The object length is below 4, not a multiple of 4, beyond the message, or wrong for its type.
    #[error("illegal object length")]
    ObjectLength,
    /// The RSVP_HOP has a zero, multicast or broadcast address, or one of the wrong family.
    #[error("illegal hop address")]
    HopAddress,
    /// A SrcPort is set although the DstPort is zero.
    #[error("bad source port")]
    SourcePort,
    /// A mandatory object is missing.
    #[error("missing object")]
    Missing,
    /// An object is illegal in the message.
    #[error("object class illegal in this message")]
    NotAllowed,
    /// There are two objects of a class that allows one.
    #[error("second object of its class")]
    Duplicate,
    /// Objects are in the wrong order.
    #[error("wrong order of objects")]
    Order,
    /// The FLOWSPECs and FILTER_SPECs do not follow the grammar of the style.
    #[error("wrong number of flow descriptors for the style")]
    DescriptorCount,
    /// An object of an unknown class, in a message whose errors are not answered.
    #[error("unknown object class")]
    UnknownClass,
    /// An object of an unknown C-Type, in a message whose errors are not answered.
    #[error("unknown object C-Type")]
    UnknownCType,
    /// An unknown style, in a message whose errors are not answered.
    #[error("unknown reservation style")]
    UnknownStyle,
    /// A field has an illegal value.
    #[error("illegal value")]
    Value,
    /// The message mixes address families, or ports and GPIs.
    #[error("object types that do not go together")]
    MixedTypes,
    /// A Bundle is empty, or contains a Bundle.
    #[error("malformed bundle")]
    Bundle,
}

impl Fault {
    /// All faults, in the order of [`Fault::index`].
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

    /// Its index in [`Fault::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Reason why octets are not a valid RSVP message. The message is dropped and counted; no answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at offset {offset}{}", .object.map(|o| format!(" ({o})")).unwrap_or_default())]
pub struct DecodeError {
    /// The fault.
    pub fault: Fault,
    /// The object at fault; `None`: the common header.
    pub object: Option<ObjectType>,
    /// Offset from the start of the message.
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

/// Error with which a Path or Resv is rejected as a whole: codes 06, 13 and 14 of RFC 2205 Appendix B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// Error Code.
    pub code: ErrorCode,
    /// Error Value.
    pub value: u16,
}

/// Reason why a message cannot be composed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// An object over 65535 octets.
    #[error("{class} of {octets} octets: an object holds at most 65532")]
    ObjectLength {
        /// Class of the object.
        class: Class,
        /// Its length.
        octets: usize,
    },
    /// A message that does not fit an IP datagram.
    #[error("message of {octets} octets: the length field holds at most 65535")]
    MessageLength {
        /// Its length.
        octets: usize,
    },
    /// The octets are not one whole object.
    #[error("not one whole object")]
    RawObject,
    /// A list has addresses of two families.
    #[error("addresses of two families in {class}")]
    Mixed {
        /// Class of the object.
        class: Class,
    },
}
