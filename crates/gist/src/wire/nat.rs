//! NAT-Traversal (RFC 5971 A.3.9): a node behind a NAT parses it, and repeats it octet by octet in its reply (§7.2.3).

use signalbox_core::Mri;
use signalbox_wire::{LengthOverflow, Reader, Short, Writer};

use super::code_points::ObjectType;
use super::list::{Item, List, padding};
use super::mri::mri_parse;
use super::object::{Extensibility, RawObject};
use crate::error::{DecodeError, EncodeError, Problem};

/// A type of object that every NAT on the path translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Translated(
    /// The first 16 bits of such an object's TLV header.
    pub u16,
);

impl Translated {
    /// The object type.
    #[must_use]
    pub const fn kind(self) -> ObjectType {
        ObjectType(self.0 & 0xfff)
    }

    /// The A and B flags.
    #[must_use]
    pub const fn extensibility(self) -> Extensibility {
        Extensibility::from_high_bits(self.0)
    }
}

impl<'a> Item<'a> for Translated {
    fn read(r: &mut Reader<'a>) -> Result<Self, Short> {
        r.u16().map(Self)
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        w.u16(self.0);
        Ok(())
    }
}

/// The information of one NAT, which the reply repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Replaced<'a>(
    /// Octets that only the NAT understands.
    pub &'a [u8],
);

impl<'a> Item<'a> for Replaced<'a> {
    fn read(r: &mut Reader<'a>) -> Result<Self, Short> {
        let length = usize::from(r.u16()?);
        let octets = r.take(length)?;
        r.take(padding(2 + length))?;
        Ok(Self(octets))
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        let length = self.0.len();
        w.u16(u16::try_from(length).map_err(|_| LengthOverflow { length, max: 0xffff })?);
        w.bytes(self.0);
        w.bytes([0; 3].get(..padding(2 + length)).unwrap_or_default());
        Ok(())
    }
}

/// The NAT-Traversal object (RFC 5971 A.3.9).
#[derive(Debug, Clone, Copy)]
pub struct NatTraversal<'a> {
    /// The received object, which a reply repeats octet by octet. Empty: the encoder writes the other fields.
    pub octets: &'a [u8],
    /// Value of the MRI as first sent: whole words, at most 255; not judged ([`NatTraversal::mri`]).
    pub original_mri: &'a [u8],
    /// Object types that every NAT translated.
    pub translated: List<'a, Translated>,
    /// The information of the NATs, that of the first NAT first.
    pub replaced: List<'a, Replaced<'a>>,
}

impl PartialEq for NatTraversal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.original_mri == other.original_mri
            && self.translated == other.translated
            && self.replaced == other.replaced
    }
}

impl<'a> NatTraversal<'a> {
    /// The MRI as first sent, if it can be understood.
    #[must_use]
    pub fn mri(&self) -> Option<Mri> {
        mri_parse(self.original_mri).ok()
    }

    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        let mut r = Reader::at(object.value, object.start + 4);
        let words = (object.value.len() / 4) as u64;
        let short = |s: Short| object.error(Problem::ObjectLength, "Length", s.offset, words);
        let [mri_words, types, nats, _] = r.array().map_err(short)?;
        let original_mri = r.take(usize::from(mri_words) * 4).map_err(short)?;
        let translated = List::read(&mut r, types).map_err(short)?;
        r.take(usize::from(types % 2) * 2).map_err(short)?;
        let replaced = List::read(&mut r, nats).map_err(short)?;
        object.end(r)?;
        Ok(Self { octets: object.octets, original_mri, translated, replaced })
    }

    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        w.u8(words_u8(self.original_mri, ObjectType::NAT_TRAVERSAL, "MRI-Length")?);
        w.bytes(&[self.translated.count_u8()?, self.replaced.count_u8()?, 0]);
        w.bytes(self.original_mri);
        self.translated.write(w)?;
        if self.translated.len() % 2 == 1 {
            w.u16(0);
        }
        self.replaced.write(w)
    }
}

/// The length of `octets` in whole words, for an 8-bit field.
pub(crate) fn words_u8(octets: &[u8], object: ObjectType, field: &'static str) -> Result<u8, EncodeError> {
    if !octets.len().is_multiple_of(4) {
        return Err(EncodeError::forbidden(object, field));
    }
    let length = octets.len() / 4;
    Ok(u8::try_from(length).map_err(|_| LengthOverflow { length, max: 255 })?)
}
