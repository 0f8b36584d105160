//! INFO-SPEC (RFC 5974 §5.1.3.6).

use core::net::IpAddr;

use signalbox_wire::{Reader, Writer};

use super::code_points::{Info, InfoClass, ObjectType};
use super::object::{Extensibility, RawObject, write_object};
use crate::error::{DecodeError, EncodeError};

/// The source of an INFO-SPEC, for logs and people only: nothing is ever sent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source<'a> {
    /// Unknown.
    #[default]
    None,
    /// An address of the node.
    Address(IpAddr),
    /// Its name, without the padding.
    Name(&'a str),
    /// A source of an unknown type.
    Other {
        /// The type, 4 bits.
        kind: u8,
        /// Its octets, whole words.
        octets: &'a [u8],
    },
}

/// An INFO-SPEC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InfoSpec<'a> {
    /// Class and code.
    pub info: Info,
    /// The node that raised it.
    pub source: Source<'a>,
    /// Diagnosis, by the class and code; see [`Diagnosis`].
    pub specific: &'a [u8],
}

impl From<Info> for InfoSpec<'_> {
    fn from(info: Info) -> Self {
        Self { info, source: Source::None, specific: &[] }
    }
}

impl<'a> InfoSpec<'a> {
    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        let mut r = Reader::new(object.value);
        let short = |_| object.error(Info::OBJECT_LENGTH, "Length", 0);
        let [_, code, class_and_type, words] = r.array().map_err(short)?;
        let octets = r.take(usize::from(words) * 4).map_err(short)?;
        let wrong = || object.error(Info::BAD_VALUE, "ESI-Length", 3);
        let source = match class_and_type & 0x0f {
            0 if octets.is_empty() => Source::None,
            0 => return Err(wrong()),
            1 => Source::Address(IpAddr::from(<[u8; 4]>::try_from(octets).map_err(|_| wrong())?)),
            2 => Source::Address(IpAddr::from(<[u8; 16]>::try_from(octets).map_err(|_| wrong())?)),
            3 => {
                let end = octets.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
                let name = core::str::from_utf8(octets.get(..end).unwrap_or_default());
                Source::Name(name.map_err(|_| object.error(Info::BAD_VALUE, "Error Source Identifier", 4))?)
            }
            kind => Source::Other { kind, octets },
        };
        let info = Info { class: InfoClass(class_and_type >> 4), code };
        Ok(Self { info, source, specific: r.take_rest() })
    }

    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        let (kind, octets): (u8, &[u8]) = match &self.source {
            Source::None => (0, &[]),
            Source::Address(IpAddr::V4(v4)) => (1, &v4.octets()),
            Source::Address(IpAddr::V6(v6)) => (2, &v6.octets()),
            Source::Name(name) => (3, name.as_bytes()),
            Source::Other { kind, octets } => (kind & 0x0f, octets),
        };
        // A name that does not fit the length field is cut: it is for people only.
        let octets = octets.get(..octets.len().min(255 * 4)).unwrap_or_default();
        let words = u8::try_from(octets.len().div_ceil(4)).unwrap_or(u8::MAX);
        write_object(w, ObjectType::INFO_SPEC, Extensibility::Mandatory, |w| {
            w.bytes(&[0, self.info.code, self.info.class.0 << 4 | kind, words]);
            w.bytes(octets);
            w.bytes([0; 3].get(..usize::from(words) * 4 - octets.len()).unwrap_or_default());
            w.bytes(self.specific);
        })
    }
}

/// The diagnosis of a Protocol Error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Diagnosis<'a> {
    /// Object Type Info: the type of the object that is wrong.
    Type(ObjectType),
    /// Object Value Info: the object that is wrong.
    Value {
        /// Its true length with its TLV header, in octets; 12 bits.
        length: u16,
        /// From which of its octets on it is shown.
        offset: u16,
        /// It, from there on; whole words.
        object: &'a [u8],
    },
}

impl<'a> Diagnosis<'a> {
    /// The first one in [`InfoSpec::specific`]. The octets do not say which of the two they are: one word is a type,
    /// more are a value.
    #[must_use]
    pub fn parse(specific: &'a [u8]) -> Option<Self> {
        let ([a, b, c, d], object) = specific.split_first_chunk::<4>()?;
        let first = u16::from_be_bytes([*a, *b]);
        if object.is_empty() {
            return Some(Self::Type(ObjectType(first)));
        }
        Some(Self::Value { length: first & 0x0fff, offset: u16::from_be_bytes([*c, *d]), object })
    }

    /// Appends it to what goes into [`InfoSpec::specific`].
    pub fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::Type(kind) => {
                w.u16(kind.0);
                w.u16(0);
            }
            Self::Value { length, offset, object } => {
                w.u16(length & 0x0fff);
                w.u16(*offset);
                w.bytes(object);
                w.pad_to(4);
            }
        }
    }
}
