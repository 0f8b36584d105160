//! Decode and encode errors, and the Protocol Error of each (RFC 5974 §5.1.3.6).

use signalbox_wire::LengthOverflow;

use crate::wire::{Info, MessageType, ObjectType};

/// Octets that are no QoS NSLP message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field} at offset {offset}: {info}")]
pub struct DecodeError {
    /// The error that §5.1.3.6 has for it; class Protocol Error.
    pub info: Info,
    /// The object it is in; `None`: the common header, or the message as a whole.
    pub object: Option<ObjectType>,
    /// Name of the field or, where an object is missing, of that object.
    pub field: &'static str,
    /// Offset of the field from the start of the message, in octets.
    pub offset: usize,
    /// Where the object's TLV header starts, in octets from the start of the message; for Object Value Info.
    pub object_start: usize,
}

impl DecodeError {
    pub(crate) const fn message(info: Info, field: &'static str, offset: usize) -> Self {
        Self { info, object: None, field, offset, object_start: 0 }
    }

    /// Whether the message must be answered (RFC 5974 §5.2.3, §5.1.3). Other errors are ignored unless the sender is
    /// authenticated (§5.4).
    #[must_use]
    pub fn must_be_answered(&self) -> bool {
        [Info::MISSING_OBJECT, Info::UNKNOWN_OBJECT].contains(&self.info)
    }
}

/// A message that must not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A value is too long for its length field.
    #[error("{object}: {overflow}")]
    Length {
        /// The object.
        object: ObjectType,
        /// The excess.
        overflow: LengthOverflow,
    },
    /// ACK-REQ together with an RII (§5.1.1).
    #[error("ACK-REQ together with an RII")]
    AckWithRii,
    /// ACK-REQ in a message that is neither RESERVE nor QUERY (§5.1.1).
    #[error("ACK-REQ in a message other than RESERVE or QUERY")]
    AckReq,
    /// An object that the grammar of the message does not have (§5.1.2).
    #[error("{object} is not allowed in {message}")]
    NotAllowed {
        /// The object.
        object: ObjectType,
        /// The message.
        message: MessageType,
    },
    /// An object that the grammar of the message demands (§5.1.2).
    #[error("{object} is missing in {message}")]
    Missing {
        /// The object.
        object: ObjectType,
        /// The message.
        message: MessageType,
    },
    /// A PACKET-CLASSIFIER without QSPEC (§5.1.2.1).
    #[error("PACKET-CLASSIFIER without QSPEC")]
    ClassifierAlone,
    /// MSG-ID and BOUND-MSG-ID in one message (§4.6).
    #[error("MSG-ID and BOUND-MSG-ID in one message")]
    TwoMessageIds,
    /// SESSION-ID-LIST and RSN-LIST need the same number of entries (§5.3.7).
    #[error("{sessions} sessions with {rsns} sequence numbers")]
    ListLengths {
        /// Entries of the SESSION-ID-LIST.
        sessions: usize,
        /// Entries of the RSN-LIST.
        rsns: usize,
    },
}
