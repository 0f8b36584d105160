//! Decode errors.

use signalbox_wire::Short;

/// Why octets are not a Boomerang message that a node interprets. Such a message is forwarded unchanged.
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
    /// An ICMP message that is neither an Echo Request nor an Echo Reply.
    #[error("ICMP type {kind} code {code}, known are Echo and Echo Reply")]
    NotEcho {
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
    },
    /// The container does not begin with the magic number.
    #[error("magic number {found:#010x} at offset 8, known is 0x47114711")]
    Magic {
        /// The number found.
        found: u32,
    },
    /// A message type other than BOOMERANG_RESERVATION.
    #[error("message type {found:#04x} at offset 16, known is 0x10")]
    Type {
        /// The type found.
        found: u8,
    },
    /// An unknown version.
    #[error("version {found} at offset 21, known is 1")]
    Version {
        /// The version found.
        found: u8,
    },
    /// A DOWNGRADE list without elements, with more than 32, or with an element that exceeds the one before it.
    #[error("DOWNGRADE list at offset {offset}: {why}")]
    Downgrade {
        /// Offset of the list in octets.
        offset: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An IntServ message that is not of version 0.
    #[error("IntServ message of version {found} at offset {offset}, known is 0")]
    IntServ {
        /// The version found.
        found: u8,
        /// Offset of the message in octets.
        offset: usize,
    },
    /// A number of octets that is not a multiple of 4.
    #[error("{octets} octets are not whole words")]
    Unaligned {
        /// The number of octets.
        octets: usize,
    },
}

impl DecodeError {
    /// Offset of the field that is wrong, in octets from the start of the ICMP message.
    #[must_use]
    pub const fn offset(&self) -> usize {
        match self {
            Self::Short { short, .. } => short.offset,
            Self::NotEcho { .. } => 0,
            Self::Magic { .. } => 8,
            Self::Type { .. } => 16,
            Self::Version { .. } => 21,
            Self::Downgrade { offset, .. } | Self::IntServ { offset, .. } => *offset,
            Self::Unaligned { octets } => *octets,
        }
    }

    /// Name of the field that is wrong.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Short { field, .. } => field,
            Self::NotEcho { .. } => "ICMP type",
            Self::Magic { .. } => "magic number",
            Self::Type { .. } => "message type",
            Self::Version { .. } => "version",
            Self::Downgrade { .. } => "DOWNGRADE list",
            Self::IntServ { .. } => "IntServ message",
            Self::Unaligned { .. } => "end of message",
        }
    }
}
