//! Objects (RFC 2205 §3.1.2).

use core::fmt;

use super::code_points::Class;
use crate::error::{DecodeError, Fault};

/// Length of the common header, in octets.
pub const HEADER_OCTETS: usize = 8;
/// Length of an object's header, in octets.
pub const OBJECT_HEADER_OCTETS: usize = 4;

/// Class-Num and C-Type, together the type of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectType {
    /// The class.
    pub class: Class,
    /// The type within the class, as a rule by address family.
    pub c_type: u8,
}

impl ObjectType {
    /// The type with these numbers.
    #[must_use]
    pub const fn new(class: Class, c_type: u8) -> Self {
        Self { class, c_type }
    }

    /// Both as one 16-bit number, as in the value of errors 13 and 14.
    #[must_use]
    pub const fn number(self) -> u16 {
        u16::from_be_bytes([self.class.0, self.c_type])
    }
}

impl fmt::Display for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.class, self.c_type)
    }
}

/// An object of a message whose contents were not parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawObject<'a> {
    /// Its type.
    pub kind: ObjectType,
    /// Offset of its header from the start of the message.
    pub offset: usize,
    /// The whole object with its header.
    pub octets: &'a [u8],
}

impl<'a> RawObject<'a> {
    /// Its contents, without the header.
    #[must_use]
    pub fn content(&self) -> &'a [u8] {
        self.octets.get(OBJECT_HEADER_OCTETS..).unwrap_or_default()
    }

    /// Its contents, of exactly `N` octets.
    pub(crate) fn array<const N: usize>(&self) -> Result<[u8; N], DecodeError> {
        self.content().try_into().map_err(|_| self.error(Fault::ObjectLength))
    }

    pub(crate) const fn error(&self, fault: Fault) -> DecodeError {
        DecodeError { fault, object: Some(self.kind), offset: self.offset }
    }
}

/// The object that fills `octets`, if it is of this class and C-Type 2.
pub(crate) fn whole(octets: &[u8], class: Class) -> Option<RawObject<'_>> {
    let object = Objects::at(octets, 0).next()?.ok()?;
    (object.octets.len() == octets.len() && object.kind == ObjectType::new(class, 2)).then_some(object)
}

/// Iterator over consecutive objects, NULL objects too.
#[derive(Debug, Clone)]
pub struct Objects<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Objects<'a> {
    /// The objects of a whole message.
    #[must_use]
    pub fn of(message: &'a [u8]) -> Self {
        Self::at(message.get(HEADER_OCTETS..).unwrap_or_default(), HEADER_OCTETS)
    }

    /// The objects in `octets`, which are at `offset` of the message.
    #[must_use]
    pub const fn at(octets: &'a [u8], offset: usize) -> Self {
        Self { rest: octets, offset }
    }
}

impl<'a> Iterator for Objects<'a> {
    type Item = Result<RawObject<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        let Some(&[l1, l0, class, c_type]) = self.rest.first_chunk() else {
            let left = core::mem::take(&mut self.rest);
            return (!left.is_empty()).then_some(Err(DecodeError::header(Fault::ObjectLength, offset)));
        };
        let kind = ObjectType { class: Class(class), c_type };
        let length = usize::from(u16::from_be_bytes([l1, l0]));
        let split = if length < OBJECT_HEADER_OCTETS || !length.is_multiple_of(4) {
            None
        } else {
            self.rest.split_at_checked(length)
        };
        let Some((octets, rest)) = split else {
            self.rest = &[];
            return Some(Err(DecodeError { fault: Fault::ObjectLength, object: Some(kind), offset }));
        };
        self.rest = rest;
        self.offset += length;
        Some(Ok(RawObject { kind, offset, octets }))
    }
}
