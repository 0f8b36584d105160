//! The Error object (RFC 5971 A.4.1, A.4.2).

use core::fmt;

use signalbox_core::{Mri, SessionId};
use signalbox_wire::{LengthOverflow, Reader, Short, Writer};

use super::code_points::{ErrorClass, ErrorCode, InfoType, ObjectType};
use super::header::{HEADER_LENGTH, Header};
use super::list::{Item, List, ListIter};
use super::mri::mri_parse;
use super::nat::words_u8;
use super::object::RawObject;
use crate::error::{DecodeError, EncodeError, GistError, Problem};

/// Additional information about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Info<'a> {
    /// The words after the common header as the objects add up to.
    MessageLength(u16),
    /// MTU in octets of a link that the message did not fit.
    Mtu(u16),
    /// The type of object at fault.
    ObjectType(ObjectType),
    /// The object at fault.
    ObjectValue {
        /// The octet at fault, counted from the start of the object's TLV header.
        offset: u16,
        /// The object with its TLV header: whole words, fewer than 4096, cut if it was very long.
        object: &'a [u8],
    },
    /// Information of unknown type, or with a wrong length for its type.
    Other {
        /// Its type.
        kind: InfoType,
        /// Its value: whole words.
        value: &'a [u8],
    },
}

impl Info<'_> {
    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> InfoType {
        match self {
            Self::MessageLength(_) => InfoType::MESSAGE_LENGTH,
            Self::Mtu(_) => InfoType::MTU,
            Self::ObjectType(_) => InfoType::OBJECT_TYPE,
            Self::ObjectValue { .. } => InfoType::OBJECT_VALUE,
            Self::Other { kind, .. } => *kind,
        }
    }
}

impl<'a> Item<'a> for Info<'a> {
    fn read(r: &mut Reader<'a>) -> Result<Self, Short> {
        let kind = InfoType(r.u16()?);
        let words = usize::from(r.u16()?);
        let value = r.take(words * 4)?;
        let other = Self::Other { kind, value };
        let Some((&[a, b, c, d], object)) = value.split_first_chunk::<4>() else { return Ok(other) };
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Ok(match kind {
            InfoType::MESSAGE_LENGTH if object.is_empty() => Self::MessageLength(first),
            InfoType::MTU if object.is_empty() => Self::Mtu(first),
            InfoType::OBJECT_TYPE if object.is_empty() => Self::ObjectType(ObjectType(first)),
            InfoType::OBJECT_VALUE if usize::from(first & 0xfff) * 4 == object.len() => {
                Self::ObjectValue { offset: second, object }
            }
            _ => other,
        })
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        w.u16(self.kind().0);
        let slot = w.open_u16();
        match *self {
            Self::MessageLength(v) | Self::Mtu(v) | Self::ObjectType(ObjectType(v)) => {
                w.u16(v);
                w.u16(0);
            }
            Self::ObjectValue { offset, object } => {
                let real = w.open_u16();
                w.u16(offset);
                w.bytes(object);
                w.close_u16(real, object.len() / 4, 0xfff, 0)?;
            }
            Self::Other { value, .. } => w.bytes(value),
        }
        let octets = w.since(&slot);
        if !octets.is_multiple_of(4) {
            return Err(EncodeError::forbidden(ObjectType::ERROR, "AI-Length"));
        }
        Ok(w.close_u16(slot, octets / 4, u16::MAX, 0)?)
    }
}

/// The additional information of an Error object.
#[derive(Clone, Copy, Default)]
pub struct Infos<'a> {
    own: [Option<Info<'a>>; 2],
    list: List<'a, Info<'a>>,
}

impl<'a> Infos<'a> {
    /// No information.
    pub const NONE: Self = Self { own: [None, None], list: List::EMPTY };

    /// One.
    #[must_use]
    pub const fn one(info: Info<'a>) -> Self {
        Self { own: [Some(info), None], list: List::EMPTY }
    }

    /// Up to two, in this order.
    #[must_use]
    pub const fn some(first: Option<Info<'a>>, second: Option<Info<'a>>) -> Self {
        Self { own: [first, second], list: List::EMPTY }
    }

    /// Any number.
    #[must_use]
    pub const fn of(infos: &'a [Info<'a>]) -> Self {
        Self { own: [None, None], list: List::of(infos) }
    }

    /// All of them in order.
    pub fn iter(&self) -> InfosIter<'a> {
        self.own.into_iter().flatten().chain(self.list.iter())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.own.iter().flatten().count() + self.list.len()
    }

    /// Whether there is no information.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Iterator of [`Infos::iter`].
pub type InfosIter<'a> = core::iter::Chain<
    core::iter::Flatten<core::array::IntoIter<Option<Info<'a>>, 2>>,
    ListIter<'a, Info<'a>>,
>;

impl PartialEq for Infos<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Infos<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

const SESSION: u8 = 0x80;
const MRI: u8 = 0x40;
const COMMENT: u8 = 0x20;
const D_MODE: u8 = 0x10;
const Q_MODE: u8 = 0x08;

/// The Error object (RFC 5971 A.4.1): an error, and the message that caused it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ErrorObject<'a> {
    /// The error.
    pub error: GistError,
    /// D: the message was received in a datagram.
    pub d_mode: bool,
    /// Q: the message was received in Q-mode (only with D).
    pub q_mode: bool,
    /// The message's common header.
    pub header: [u8; HEADER_LENGTH],
    /// The message's session, if it could be decoded; never with code 1.
    pub session: Option<SessionId>,
    /// Value of the message's MRI, not judged ([`ErrorObject::mri`]): whole words, at most 255; never with
    /// code 1.
    pub mri_octets: Option<&'a [u8]>,
    /// More about the error.
    pub infos: Infos<'a>,
    /// Words for people; without NUL.
    pub comment: Option<&'a str>,
}

impl<'a> ErrorObject<'a> {
    /// The common header of the message, if its version is known.
    #[must_use]
    pub fn original(&self) -> Option<Header> {
        Header::parse(&self.header).ok()
    }

    /// The message's MRI, if it can be understood.
    #[must_use]
    pub fn mri(&self) -> Option<Mri> {
        mri_parse(self.mri_octets?).ok()
    }

    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        let mut r = Reader::at(object.value, object.start + 4);
        let words = (object.value.len() / 4) as u64;
        let short = |s: Short| object.error(Problem::ObjectLength, "Length", s.offset, words);
        let [class, c1, c0, subcode] = r.array().map_err(short)?;
        let at = r.offset();
        let [flags, _, mri_words, info_count] = r.array().map_err(short)?;
        let set = |flag| flags & flag != 0;
        if set(Q_MODE) && !set(D_MODE) {
            return Err(object.error(Problem::FlagField, "Q-flag", at, flags.into()));
        }
        let header = r.array().map_err(short)?;
        let session = if set(SESSION) { Some(SessionId(r.array().map_err(short)?)) } else { None };
        let mri_octets =
            if set(MRI) { Some(r.take(usize::from(mri_words) * 4).map_err(short)?) } else { None };
        let list = List::read(&mut r, info_count).map_err(short)?;
        let comment = if set(COMMENT) { Some(comment(object, &mut r)?) } else { None };
        object.end(r)?;
        Ok(Self {
            error: GistError {
                class: ErrorClass(class),
                code: ErrorCode(u16::from_be_bytes([c1, c0])),
                subcode,
            },
            d_mode: set(D_MODE),
            q_mode: set(Q_MODE),
            header,
            session,
            mri_octets,
            infos: Infos { own: [None, None], list },
            comment,
        })
    }

    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        if self.q_mode && !self.d_mode {
            return Err(EncodeError::forbidden(ObjectType::ERROR, "Q-flag"));
        }
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        w.u8(self.error.class.0);
        w.u16(self.error.code.0);
        w.u8(self.error.subcode);
        let infos = u8::try_from(self.infos.len())
            .map_err(|_| LengthOverflow { length: self.infos.len(), max: 255 })?;
        w.bytes(&[
            flag(self.session.is_some(), SESSION)
                | flag(self.mri_octets.is_some(), MRI)
                | flag(self.comment.is_some(), COMMENT)
                | flag(self.d_mode, D_MODE)
                | flag(self.q_mode, Q_MODE),
            0,
            words_u8(self.mri_octets.unwrap_or_default(), ObjectType::ERROR, "MRI Length")?,
            infos,
        ]);
        w.bytes(&self.header);
        if let Some(session) = self.session {
            w.bytes(&session.0);
        }
        w.bytes(self.mri_octets.unwrap_or_default());
        self.infos.iter().try_for_each(|info| info.write(w))?;
        if let Some(comment) = self.comment {
            if comment.contains('\0') {
                return Err(EncodeError::forbidden(ObjectType::ERROR, "Debugging Comment"));
            }
            w.bytes(comment.as_bytes());
            w.bytes([0; 4].get(..4 - comment.len() % 4).unwrap_or_default());
        }
        Ok(())
    }
}

/// UTF-8 text that ends with a NUL in the last word.
fn comment<'a>(object: &RawObject<'a>, r: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let at = r.offset();
    let octets = r.take_rest();
    let end = octets.iter().position(|o| *o == 0).filter(|end| octets.len() - end <= 4);
    let text = end.and_then(|end| octets.get(..end)).ok_or_else(|| {
        object.error(Problem::ObjectLength, "Debugging Comment", at, (octets.len() / 4) as u64)
    })?;
    core::str::from_utf8(text)
        .map_err(|e| object.error(Problem::Value, "Debugging Comment", at + e.valid_up_to(), 0))
}
