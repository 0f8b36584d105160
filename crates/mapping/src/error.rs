//! Decode errors.

use signalbox_wire::Short;

use crate::wire::{NatPmpOpcode, Opcode, OptionCode, ResultCode};

/// Why octets are not a message of PCP. [`answer`](Self::answer) says what a server does with such a request.
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
    /// A response where a request is due, or the other way round.
    #[error("{} at offset 1", if *.response { "a response instead of a request" } else { "a request instead of a response" })]
    Direction {
        /// Whether the message is a response.
        response: bool,
    },
    /// An unknown version.
    #[error("version {found} at offset 0, known is {}", crate::wire::VERSION)]
    Version {
        /// The version found.
        found: u8,
    },
    /// A number of octets that RFC 6887 §7 does not allow.
    #[error("{octets} octets; a message has at most {} and is a multiple of 4", crate::wire::MAX_OCTETS)]
    Size {
        /// The number of octets.
        octets: usize,
    },
    /// An unknown opcode.
    #[error("opcode {} at offset 1, known are ANNOUNCE, MAP and PEER", .found.0)]
    Opcode {
        /// The opcode found.
        found: Opcode,
    },
    /// An option whose length goes beyond the message.
    #[error("option {code} at offset {offset} has {length} octets of data, {left} are left")]
    OptionLength {
        /// The option.
        code: OptionCode,
        /// Offset of the option in octets.
        offset: usize,
        /// Its length field.
        length: u16,
        /// The octets behind its header.
        left: usize,
    },
    /// An option with contents that its code does not allow.
    #[error("option {code} at offset {offset}: {why}")]
    Option {
        /// The option.
        code: OptionCode,
        /// Offset of the option in octets.
        offset: usize,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// What a server does with a request that it cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The request is discarded without an answer.
    Discard,
    /// An error response with this code.
    Refuse(ResultCode),
}

impl DecodeError {
    /// Returns what RFC 6887 §7.3, §8.2 and §9 demand of a server that receives such a request.
    #[must_use]
    pub const fn answer(&self) -> Answer {
        match self {
            // Less than a header; the body is judged by its opcode.
            Self::Short { short, .. } if short.offset < crate::wire::HEADER_OCTETS => Answer::Discard,
            Self::Direction { .. } => Answer::Discard,
            Self::Short { .. } | Self::Size { .. } => Answer::Refuse(ResultCode::MALFORMED_REQUEST),
            Self::Version { .. } => Answer::Refuse(ResultCode::UNSUPP_VERSION),
            Self::Opcode { .. } => Answer::Refuse(ResultCode::UNSUPP_OPCODE),
            Self::OptionLength { .. } | Self::Option { .. } => Answer::Refuse(ResultCode::MALFORMED_OPTION),
        }
    }
}

/// Why octets are not a message of NAT-PMP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NatPmpError {
    /// The octets end inside a field. Such a request is discarded.
    #[error("{field}: {short}")]
    Short {
        /// The field where the octets end.
        field: &'static str,
        /// The offset, and how many octets are missing.
        short: Short,
    },
    /// Another version than 0.
    #[error("version {found} at offset 0, known is 0")]
    Version {
        /// The version found.
        found: u8,
    },
    /// A response where a request is due, or the other way round. Such a request is discarded (RFC 6886 §3.5).
    #[error("{} at offset 1", if *.response { "a response instead of a request" } else { "a request instead of a response" })]
    Direction {
        /// Whether the message is a response.
        response: bool,
    },
    /// An unknown opcode. A request is answered with result 5 (RFC 6886 §3.5).
    #[error("opcode {} at offset 1, known are 0, 1 and 2", .found.0)]
    Opcode {
        /// The opcode found, without the bit of responses.
        found: NatPmpOpcode,
    },
}
