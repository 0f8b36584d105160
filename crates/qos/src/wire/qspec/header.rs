//! The common header (RFC 5975 §5.1.1).

use super::code_points::{Procedure, QspecType};
use super::error::{EncodeError, Problem, QspecError};

/// The supported version.
pub const VERSION: u8 = 0;
/// Length of the common header, in octets.
pub const HEADER_LENGTH: usize = 4;

/// The common header without the length (RFC 5975 §5.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// I: a Local QSPEC, which ends with the Initiator QSPEC that it stands for.
    pub local: bool,
    /// The QoS model (5 bits).
    pub qspec_type: QspecType,
    /// The procedure: the objects of each message.
    pub procedure: Procedure,
}

impl Header {
    /// The header of an Initiator QSPEC of no particular QoS model.
    #[must_use]
    pub const fn initiator(procedure: Procedure) -> Self {
        Self { local: false, qspec_type: QspecType::DEFAULT, procedure }
    }

    /// Parses the first word of `octets` at offset `base` (RFC 5975 §5.1.1). Returns the length in words too. Only the
    /// version is checked.
    pub(super) fn read(octets: &[u8], base: usize) -> Result<(Self, usize), QspecError> {
        let version = octets.first().map_or(0, |first| first >> 4);
        if version > VERSION {
            return Err(QspecError::header(Problem::Version, "Version", base, version.into()));
        }
        let Some(word) = octets.first_chunk().map(|word| u32::from_be_bytes(*word)) else {
            let left = octets.len() as u64;
            return Err(QspecError::header(Problem::Length, "common header", base, left));
        };
        let [first, second, third, _] = word.to_be_bytes();
        let header = Self {
            local: first & 0x08 != 0,
            qspec_type: QspecType((first & 0x07) << 2 | second >> 6),
            procedure: Procedure(second << 4 | third >> 4),
        };
        Ok((header, (word & 0xfff) as usize))
    }

    /// The 16 bits before those that hold the length, and the upper four of those.
    pub(super) fn bits(self) -> Result<(u16, u16), EncodeError> {
        if self.qspec_type.0 > 31 {
            return Err(EncodeError::header("QSPEC Type"));
        }
        if !self.procedure.is_assigned() {
            return Err(EncodeError::header("QSPEC Procedure"));
        }
        let (kind, procedure) = (u16::from(self.qspec_type.0), u16::from(self.procedure.0));
        let high = u16::from(VERSION) << 12 | u16::from(self.local) << 11 | kind << 6 | procedure >> 4;
        Ok((high, (procedure & 0x0f) << 12))
    }
}
