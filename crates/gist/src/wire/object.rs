//! Objects as such: TLV headers, extensibility flags, and finding one without judging the rest.

use core::fmt;

use signalbox_core::{Mri, SessionId};
use signalbox_wire::Reader;

use super::code_points::ObjectType;
use super::header::HEADER_LENGTH;
use super::mri::mri_parse;
use crate::error::{DecodeError, Problem};

/// Treatment of an object of unknown type (RFC 5971 A.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extensibility {
    /// AB=00: reject the message.
    Mandatory,
    /// AB=01: drop the object.
    Ignore,
    /// AB=10: keep the object in the forwarded message.
    Forward,
    /// AB=11: reject the message, also if the type is known.
    Reserved,
}

impl Extensibility {
    /// From the upper two of 16 bits.
    pub(crate) const fn from_high_bits(first: u16) -> Self {
        match first >> 14 {
            0 => Self::Mandatory,
            1 => Self::Ignore,
            2 => Self::Forward,
            _ => Self::Reserved,
        }
    }
}

impl fmt::Display for Extensibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mandatory => "mandatory",
            Self::Ignore => "ignore",
            Self::Forward => "forward",
            Self::Reserved => "reserved",
        })
    }
}

/// An object with its value not parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawObject<'a> {
    /// Its type, 12 bits.
    pub kind: ObjectType,
    /// Its A and B flags.
    pub extensibility: Extensibility,
    /// Offset of its TLV header, in octets from the start of the common header.
    pub start: usize,
    /// Its value: whole words.
    pub value: &'a [u8],
    /// TLV header and value.
    pub octets: &'a [u8],
}

/// The objects of a message, one by one.
#[derive(Debug, Clone)]
pub struct Objects<'a> {
    reader: Reader<'a>,
}

impl<'a> Objects<'a> {
    /// Those after the common header of `message`.
    #[must_use]
    pub fn of(message: &'a [u8]) -> Self {
        Self { reader: Reader::at(message.get(HEADER_LENGTH..).unwrap_or_default(), HEADER_LENGTH) }
    }

    /// The next object.
    ///
    /// # Errors
    /// The octets by which the message is too short for the object.
    #[expect(clippy::should_implement_trait, reason = "an iterator could not say that the end is broken")]
    pub fn next(&mut self) -> Option<Result<RawObject<'a>, usize>> {
        if self.reader.is_empty() {
            return None;
        }
        let start = self.reader.offset();
        let octets = self.reader.peek_rest();
        let Ok([a, b, c, d]) = self.reader.array() else {
            self.reader.take_rest();
            return Some(Err(4 - octets.len().min(4)));
        };
        let first = u16::from_be_bytes([a, b]);
        let length = usize::from(u16::from_be_bytes([c, d]) & 0xfff) * 4;
        let Ok(value) = self.reader.take(length) else {
            return Some(Err(length - self.reader.take_rest().len()));
        };
        Some(Ok(RawObject {
            kind: ObjectType(first & 0xfff),
            extensibility: Extensibility::from_high_bits(first),
            start,
            value,
            octets: octets.get(..4 + length).unwrap_or_default(),
        }))
    }
}

/// The first object of type `kind` (RFC 5971 A.2). Neither the object nor the rest of the message is checked.
#[must_use]
pub fn find_object(message: &[u8], kind: ObjectType) -> Option<RawObject<'_>> {
    let mut objects = Objects::of(message);
    while let Some(Ok(object)) = objects.next() {
        if object.kind == kind {
            return Some(object);
        }
    }
    None
}

/// The MRI of a message that is not parsed otherwise (RFC 5971 §4.3.4); `None` if it has no valid MRI.
#[must_use]
pub fn find_mri(message: &[u8]) -> Option<Mri> {
    mri_parse(find_object(message, ObjectType::MRI)?.value).ok()
}

/// The session of a message that is not judged otherwise.
#[must_use]
pub fn find_session(message: &[u8]) -> Option<SessionId> {
    find_object(message, ObjectType::SESSION_ID)?.value.try_into().ok().map(SessionId)
}

/// The objects of unknown type with AB=10 of a received message, for the message that is forwarded (RFC 5971 A.2.1). The
/// encoder puts them last.
#[derive(Clone, Copy, Default)]
pub struct Unknown<'a> {
    message: &'a [u8],
    count: u16,
}

impl<'a> Unknown<'a> {
    /// `count` such objects are somewhere in `message`.
    pub(crate) const fn within(message: &'a [u8], count: u16) -> Self {
        Self { message, count }
    }

    /// Number of objects.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is no such object.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The objects in their order.
    pub fn iter(&self) -> impl Iterator<Item = RawObject<'a>> + use<'a> {
        let mut objects = Objects::of(if self.count == 0 { &[] } else { self.message });
        core::iter::from_fn(move || objects.next()?.ok())
            .filter(|o| o.extensibility == Extensibility::Forward && o.kind.name().is_none())
    }
}

impl PartialEq for Unknown<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().map(|o| o.octets).eq(other.iter().map(|o| o.octets))
    }
}

impl fmt::Debug for Unknown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl RawObject<'_> {
    /// An error in this object.
    pub(crate) const fn error(
        &self,
        problem: Problem,
        field: &'static str,
        offset: usize,
        value: u64,
    ) -> DecodeError {
        DecodeError { object: Some(self.kind), field, offset, object_start: self.start, value, problem }
    }

    /// Checks that the whole value was parsed.
    pub(crate) fn end(&self, r: Reader<'_>) -> Result<(), DecodeError> {
        if r.is_empty() {
            return Ok(());
        }
        Err(self.error(Problem::ObjectLength, "Length", r.offset(), (self.value.len() / 4) as u64))
    }
}
