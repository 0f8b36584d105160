//! Objects: a header of one word, the contents, and padding to the next word (section 4.3 of the draft).

use signalbox_wire::{Reader, Writer};

use super::code_points::Class;
use crate::error::{DecodeError, EncodeError};

/// Octets of an object's header.
pub const OBJECT_HEADER: usize = 4;
/// Most octets of an object's contents.
pub const MAX_CONTENTS: usize = u16::MAX as usize - OBJECT_HEADER;

/// An object as it stands in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    /// Offset of its header in the message.
    pub offset: usize,
    /// Class-Num.
    pub class: Class,
    /// C-Type.
    pub c_type: u8,
    /// Contents without padding.
    pub contents: &'a [u8],
}

impl<'a> Object<'a> {
    /// Reads the next object with its padding; `None`: no octets are left.
    ///
    /// # Errors
    /// A length below that of a header, or beyond the message.
    pub fn next(r: &mut Reader<'a>) -> Result<Option<Self>, DecodeError> {
        if r.is_empty() {
            return Ok(None);
        }
        let offset = r.offset();
        let short = |short| DecodeError::Short { field: "object", short };
        let length = r.u16().map_err(short)?;
        let [class, c_type] = r.array().map_err(short)?;
        let octets = usize::from(length);
        let contents = octets.checked_sub(OBJECT_HEADER).ok_or(DecodeError::Length { offset, length })?;
        let contents = r.take(contents).map_err(short)?;
        r.take(octets.next_multiple_of(4) - octets).map_err(short)?;
        Ok(Some(Self { offset, class: Class(class), c_type, contents }))
    }

    /// A cursor over the contents.
    #[must_use]
    pub const fn reader(&self) -> Reader<'a> {
        Reader::at(self.contents, self.offset + OBJECT_HEADER)
    }

    /// Appends the object with zeros up to the next word.
    ///
    /// # Errors
    /// The contents are longer than [`MAX_CONTENTS`].
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        write(w, self.class, self.c_type, |w| w.bytes(self.contents))
    }
}

/// Appends an object whose contents `contents` writes.
///
/// # Errors
/// The contents are longer than [`MAX_CONTENTS`].
pub fn write(
    w: &mut Writer<'_>,
    class: Class,
    c_type: u8,
    contents: impl FnOnce(&mut Writer<'_>),
) -> Result<(), EncodeError> {
    let length = w.open_u16();
    w.bytes(&[class.0, c_type]);
    contents(w);
    let octets = w.since(&length) + 2;
    w.close_u16(length, octets, u16::MAX, 0).map_err(|_| EncodeError::TooLong { class, octets })?;
    let padding = octets.next_multiple_of(4) - octets;
    w.bytes([0; 3].get(..padding).unwrap_or_default());
    Ok(())
}

/// The objects of a message that was checked when it was parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Objects<'a> {
    octets: &'a [u8],
    start: usize,
    /// Some of them may be of classes that its reader does not use, and sends on.
    pub(super) unused: bool,
}

impl<'a> Objects<'a> {
    /// No objects, for a message that is to be composed.
    pub const NONE: Self = Self { octets: &[], start: 0, unused: false };

    pub(super) const fn new(octets: &'a [u8], start: usize) -> Self {
        Self { octets, start, unused: true }
    }

    /// The same, with a note whether some of them may be sent on without being used.
    pub(super) const fn with_unused(self, unused: bool) -> Self {
        Self { unused, ..self }
    }

    /// Objects that are given by their octets, padding included, for a message that is to be composed.
    #[must_use]
    pub const fn of(octets: &'a [u8]) -> Self {
        Self { octets, start: 0, unused: true }
    }

    /// All objects, up to the first that cannot be read.
    pub fn iter(&self) -> impl Iterator<Item = Object<'a>> + use<'a> {
        let mut r = Reader::at(self.octets, self.start);
        core::iter::from_fn(move || Object::next(&mut r).ok().flatten())
    }
}
