//! SESSION-ID-LIST and RSN-LIST (RFC 5974 §5.1.3.7, §5.1.3.8).

use core::fmt;

use signalbox_core::SessionId;

use super::code_points::Info;
use super::object::RawObject;
use crate::error::DecodeError;

/// Sessions, each 16 octets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionIds<'a>(&'a [u8]);

impl<'a> SessionIds<'a> {
    /// From session identifiers one after the other; `None` if the last one is cut.
    #[must_use]
    pub const fn from_octets(octets: &'a [u8]) -> Option<Self> {
        if octets.len().is_multiple_of(16) { Some(Self(octets)) } else { None }
    }

    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        match Self::from_octets(object.value) {
            Some(list) if !list.0.is_empty() => Ok(list),
            _ => Err(object.error(Info::OBJECT_LENGTH, "Length", 0)),
        }
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len() / 16
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each in turn.
    pub fn iter(&self) -> impl Iterator<Item = SessionId> + use<'a> {
        self.0.as_chunks().0.iter().copied().map(SessionId)
    }

    /// As in the object's value.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for SessionIds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Sequence numbers of one epoch, each 4 octets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RsnList<'a> {
    /// The epoch of all of them.
    pub epoch: u32,
    numbers: &'a [u8],
}

impl<'a> RsnList<'a> {
    /// From sequence numbers one after the other; `None` if the last one is cut.
    #[must_use]
    pub const fn from_octets(epoch: u32, numbers: &'a [u8]) -> Option<Self> {
        if numbers.len().is_multiple_of(4) { Some(Self { epoch, numbers }) } else { None }
    }

    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        match object.value.split_first_chunk() {
            Some((epoch, numbers)) if !numbers.is_empty() => {
                Ok(Self { epoch: u32::from_be_bytes(*epoch), numbers })
            }
            _ => Err(object.error(Info::OBJECT_LENGTH, "Length", 0)),
        }
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.numbers.len() / 4
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Each in turn.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.numbers.as_chunks().0.iter().copied().map(u32::from_be_bytes)
    }

    /// The numbers as in the object's value, without the epoch.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.numbers
    }
}

impl fmt::Debug for RsnList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {:#x} ", self.epoch)?;
        f.debug_list().entries(self.iter()).finish()
    }
}
