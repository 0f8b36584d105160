//! Decode errors.

use signalbox_wire::Short;

/// Why octets are not a Ping message of a known version.
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
    /// An unknown version.
    #[error("version {found} at offset 0, known is 1")]
    Version {
        /// The version found.
        found: u8,
    },
    /// A record whose address family is neither 4 nor 6.
    #[error("address family {found} at offset {offset}, known are 4 and 6")]
    Family {
        /// The family found.
        found: u8,
        /// Offset of the record in octets.
        offset: usize,
    },
    /// A length of the padding that is not a multiple of 4.
    #[error("{found} octets of padding at offset {offset}, not a multiple of 4")]
    Padding {
        /// The length found.
        found: u32,
        /// Offset of the length in octets.
        offset: usize,
    },
    /// Octets after the last record and the padding.
    #[error("{octets} octets too many, from offset {offset} on")]
    Trailing {
        /// Offset of the first of them.
        offset: usize,
        /// Their number.
        octets: usize,
    },
}

impl DecodeError {
    /// Offset of the field that is wrong, in octets from the start of the message.
    #[must_use]
    pub const fn offset(&self) -> usize {
        match self {
            Self::Short { short, .. } => short.offset,
            Self::Version { .. } => 0,
            Self::Family { offset, .. } | Self::Padding { offset, .. } | Self::Trailing { offset, .. } => {
                *offset
            }
        }
    }

    /// Name of the field that is wrong.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Short { field, .. } => field,
            Self::Version { .. } => "version",
            Self::Family { .. } => "address family",
            Self::Padding { .. } => "length of the padding",
            Self::Trailing { .. } => "end of message",
        }
    }
}

/// Why octets are not a message of the NSIS Ping tool (draft-juchem-nsis-ping-tool-02 §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NsisDecodeError {
    /// The message ends inside a field.
    #[error("{field}: {short}")]
    Short {
        /// The field where it ends.
        field: &'static str,
        /// The offset, and how many octets are missing.
        short: Short,
    },
    /// An unknown version.
    #[error("version {found}, known is 1")]
    Version {
        /// The version found.
        found: u8,
    },
    /// The message is longer than what carries it.
    #[error("length {found}, but the payload has {payload} octets")]
    Length {
        /// The length found.
        found: u8,
        /// Octets of the payload.
        payload: usize,
    },
    /// The records are not whole.
    #[error("{octets} octets of records, not a multiple of {each}")]
    Records {
        /// Octets behind the object headers.
        octets: usize,
        /// Octets of one record: the sum of the announced lengths.
        each: usize,
    },
}
