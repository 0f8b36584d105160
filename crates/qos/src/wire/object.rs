//! Objects: TLV headers and extensibility flags (RFC 5974 §5.1.3).

use core::fmt;

use signalbox_wire::{Reader, Writer};

use super::code_points::{Info, ObjectType};
use super::values::BoundSession;
use crate::error::{DecodeError, EncodeError};

/// Length of the common header, in octets.
pub const HEADER_OCTETS: usize = 4;

/// Handling of an object of unknown type (RFC 5974 §5.1.3). AB=11 differs from GIST and NATFW, where it is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extensibility {
    /// AB=00: reject the message.
    Mandatory,
    /// AB=01: drop the object.
    Ignore,
    /// AB=10: keep the object in what is forwarded.
    Forward,
    /// AB=11: keep it with the session, forward it, repeat it in refreshes and repairs.
    Refresh,
}

impl Extensibility {
    const fn from_high_bits(first: u16) -> Self {
        match first >> 14 {
            0 => Self::Mandatory,
            1 => Self::Ignore,
            2 => Self::Forward,
            _ => Self::Refresh,
        }
    }

    /// The upper two of 16 bits.
    #[must_use]
    pub const fn high_bits(self) -> u16 {
        (match self {
            Self::Mandatory => 0,
            Self::Ignore => 1,
            Self::Forward => 2,
            Self::Refresh => 3,
        }) << 14
    }
}

/// An object that is not interpreted yet.
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

impl<'a> RawObject<'a> {
    pub(crate) const fn error(&self, info: Info, field: &'static str, offset: usize) -> DecodeError {
        DecodeError {
            info,
            object: Some(self.kind),
            field,
            offset: self.start + 4 + offset,
            object_start: self.start,
        }
    }

    /// The value as `N` octets.
    pub(crate) fn fixed<const N: usize>(&self) -> Result<[u8; N], DecodeError> {
        self.value.try_into().map_err(|_| self.error(Info::OBJECT_LENGTH, "Length", 0))
    }

    /// The value as one word.
    pub(crate) fn word(&self) -> Result<u32, DecodeError> {
        self.fixed().map(u32::from_be_bytes)
    }
}

/// An iterator over objects.
#[derive(Debug, Clone)]
pub struct Objects<'a> {
    reader: Reader<'a>,
}

impl<'a> Objects<'a> {
    /// Those after the common header of `message`.
    #[must_use]
    pub fn of(message: &'a [u8]) -> Self {
        Self { reader: Reader::at(message.get(HEADER_OCTETS..).unwrap_or_default(), HEADER_OCTETS) }
    }

    /// Those in `octets`, which hold nothing else.
    #[must_use]
    pub const fn within(octets: &'a [u8]) -> Self {
        Self { reader: Reader::new(octets) }
    }
}

impl<'a> Iterator for Objects<'a> {
    type Item = Result<RawObject<'a>, DecodeError>;

    /// The next object. After an error, which means that the message ends inside an object, there is none.
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let start = self.reader.offset();
        let octets = self.reader.peek_rest();
        let Ok([a, b, c, d]) = self.reader.array() else {
            self.reader.take_rest();
            return Some(Err(DecodeError::message(Info::MESSAGE_LENGTH, "object header", start)));
        };
        let first = u16::from_be_bytes([a, b]);
        let length = usize::from(u16::from_be_bytes([c, d]) & 0xfff) * 4;
        let Ok(value) = self.reader.take(length) else {
            self.reader.take_rest();
            return Some(Err(DecodeError {
                info: Info::MESSAGE_LENGTH,
                object: Some(ObjectType(first & 0xfff)),
                field: "Length",
                offset: start + 2,
                object_start: start,
            }));
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

/// Appends a TLV: header and what `value` writes.
pub(crate) fn write_object(
    w: &mut Writer<'_>,
    kind: ObjectType,
    extensibility: Extensibility,
    value: impl FnOnce(&mut Writer<'_>),
) -> Result<(), EncodeError> {
    w.u16(kind.0 & 0xfff | extensibility.high_bits());
    let slot = w.open_u16();
    value(w);
    w.pad_to(4);
    let words = w.since(&slot) / 4;
    w.close_u16(slot, words, 0xfff, 0).map_err(|overflow| EncodeError::Length { object: kind, overflow })
}

/// The kind of objects in a [`Carried`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Select {
    Kind(ObjectType),
    Unknown(Extensibility),
}

/// Objects of one kind that a message may have several of. They are found in the octets when they are read. A copy of
/// this value in a composed message contains the same objects.
#[derive(Clone, Copy)]
pub struct Carried<'a> {
    octets: &'a [u8],
    select: Select,
}

impl<'a> Carried<'a> {
    pub(crate) const fn of_kind(octets: &'a [u8], kind: ObjectType) -> Self {
        Self { octets, select: Select::Kind(kind) }
    }

    pub(crate) const fn unknown(octets: &'a [u8], extensibility: Extensibility) -> Self {
        Self { octets, select: Select::Unknown(extensibility) }
    }

    /// The same sort of objects out of `octets`, which hold nothing but objects.
    #[must_use]
    pub const fn from_octets(self, octets: &'a [u8]) -> Self {
        Self { octets, select: self.select }
    }

    /// No BOUND-SESSION-ID, or those in `octets`.
    #[must_use]
    pub const fn bound_sessions(octets: &'a [u8]) -> Self {
        Self::of_kind(octets, ObjectType::BOUND_SESSION_ID)
    }

    /// No SESSION-AUTH, or those in `octets`.
    #[must_use]
    pub const fn auth(octets: &'a [u8]) -> Self {
        Self::of_kind(octets, ObjectType::SESSION_AUTH)
    }

    /// No unknown object with AB=10, or those in `octets`.
    #[must_use]
    pub const fn forwarded(octets: &'a [u8]) -> Self {
        Self::unknown(octets, Extensibility::Forward)
    }

    /// No unknown object with AB=11, or those in `octets`.
    #[must_use]
    pub const fn refreshed(octets: &'a [u8]) -> Self {
        Self::unknown(octets, Extensibility::Refresh)
    }

    /// The objects in their order.
    pub fn iter(&self) -> impl Iterator<Item = RawObject<'a>> + use<'a> {
        let select = self.select;
        Objects::within(self.octets).map_while(Result::ok).filter(move |object| match select {
            Select::Kind(kind) => object.kind == kind,
            Select::Unknown(ab) => object.kind.name().is_none() && object.extensibility == ab,
        })
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The sessions of BOUND-SESSION-IDs; empty for objects of another kind.
    pub fn sessions(&self) -> impl Iterator<Item = BoundSession> + use<'a> {
        self.iter().filter_map(|object| BoundSession::parse(&object).ok())
    }

    /// Appends the objects as they are.
    pub fn write(&self, w: &mut Writer<'_>) {
        self.iter().for_each(|object| w.bytes(object.octets));
    }
}

impl PartialEq for Carried<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().map(|o| o.octets).eq(other.iter().map(|o| o.octets))
    }
}

impl fmt::Debug for Carried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Appends a SESSION-AUTH object with these attributes (RFC 5981 §3.1: AB=10); nothing if they are too long.
pub fn write_auth(attributes: &[u8], w: &mut Writer<'_>) {
    let start = w.len();
    if write_object(w, ObjectType::SESSION_AUTH, Extensibility::Forward, |w| w.bytes(attributes)).is_err() {
        w.truncate(start);
    }
}
