//! Objects: their header and its flags (RFC 5973 §4.2).

use core::fmt;
use core::net::IpAddr;

use signalbox_wire::hops::Hops;
use signalbox_wire::{Reader, Writer};

use super::code_points::{Info, ObjectType};
use super::publication::{PUBLICATION, Publication};
use crate::error::DecodeError;

/// Length of the NSLP header, in octets.
pub const HEADER_OCTETS: usize = 4;
/// The largest length of an object in words, without its header: 12 bits.
pub const MAX_WORDS: usize = 0xfff;
/// Length of an object's header, in octets.
const OBJECT_HEADER: usize = 4;

/// The flags AB=01.
const OPTIONAL: u16 = 0x4000;
/// The flags AB=10.
const FORWARD: u16 = 0x8000;
/// SESSION_AUTH (RFC 5981 §7), which RFC 5973 does not have: a node that does not know it forwards it.
const SESSION_AUTH: ObjectType = ObjectType(0x016);
/// Private to Signalbox: the list of the nodes that granted a request ([`signalbox_wire::hops`]). A request without the list that its
/// RESPONSE shall have has an empty one. The QoS NSLP of this suite has the same object.
const HOPS: ObjectType = ObjectType(2000);
/// Private to Signalbox, without a value: the node that sent the request takes part in the list. A node of another make deletes the object,
/// because of its flags (AB=01), so that the next node knows of it.
const NEIGHBOR: ObjectType = ObjectType(2004);
/// Private to Signalbox: a text for people. The QoS NSLP of this suite has the same object.
const NOTE: ObjectType = ObjectType(2001);
/// Private to Signalbox: the address of the node that refused.
const NODE: ObjectType = ObjectType(2002);
/// Octets of the text of a note, at most.
const MAX_NOTE: usize = 128;

/// What a node does with an object of unknown type (RFC 5973 §4.2). AB=11 is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// AB=00: it rejects the message.
    Mandatory,
    /// AB=01: it deletes the object.
    Optional,
    /// AB=10: it keeps the object in what it forwards.
    Forward,
}

/// An object that is not interpreted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Object<'a> {
    pub(super) kind: ObjectType,
    pub(super) treatment: Treatment,
    /// Offset of its header from the start of the message, in octets.
    pub(super) start: usize,
    /// Its value: whole words.
    pub(super) value: &'a [u8],
    /// Header and value.
    pub(super) octets: &'a [u8],
}

impl<'a> Object<'a> {
    /// Takes the next object off `r`; `None` at its end.
    pub(super) fn next(r: &mut Reader<'a>) -> Result<Option<Self>, DecodeError> {
        if r.is_empty() {
            return Ok(None);
        }
        let (start, rest) = (r.offset(), r.peek_rest());
        let message = |field| DecodeError { info: Info::MESSAGE_LENGTH, object: None, field, offset: start };
        let word = r.u32().map_err(|_| message("object header"))?;
        let [high, low, ..] = word.to_be_bytes();
        let kind = ObjectType(u16::from_be_bytes([high, low]) & 0xfff);
        let error =
            |info, field, offset| DecodeError { info, object: Some(kind), field, offset: start + offset };
        let treatment = match high >> 6 {
            0 => Treatment::Mandatory,
            1 => Treatment::Optional,
            2 => Treatment::Forward,
            _ => return Err(error(Info::FLAG_COMBINATION, "A and B flags", 0)),
        };
        let words = usize::try_from(word & 0xfff).unwrap_or(MAX_WORDS);
        let value = r.take(words * 4).map_err(|_| error(Info::OBJECT_LENGTH, "Object Length", 2))?;
        let octets = rest.get(..OBJECT_HEADER + value.len()).unwrap_or_default();
        Ok(Some(Self { kind, treatment, start, value, octets }))
    }

    /// An error at `offset` octets behind the object's header.
    pub(super) const fn error(&self, info: Info, field: &'static str, offset: usize) -> DecodeError {
        let offset = self.start + OBJECT_HEADER + offset;
        DecodeError { info, object: Some(self.kind), field, offset }
    }

    /// Whether it is, by its type, a list of the nodes that granted a request.
    pub(super) fn is_hops(&self) -> bool {
        self.kind == HOPS
    }

    /// Whether it is a publication. Other flags make it an object of another make.
    pub(super) fn is_publication(&self) -> bool {
        self.kind == PUBLICATION && self.treatment == Treatment::Mandatory
    }

    /// Whether it says that the node before takes part in that list.
    pub(super) fn is_neighbor(&self) -> bool {
        self.kind == NEIGHBOR && self.treatment == Treatment::Optional && self.value.is_empty()
    }

    /// The value, if it has exactly `N` octets.
    pub(super) fn exactly<const N: usize>(&self) -> Result<[u8; N], DecodeError> {
        self.value.try_into().map_err(|_| self.wrong_length())
    }

    /// The value as one word.
    pub(super) fn word(&self) -> Result<u32, DecodeError> {
        self.exactly().map(u32::from_be_bytes)
    }

    pub(super) const fn wrong_length(&self) -> DecodeError {
        DecodeError {
            info: Info::OBJECT_LENGTH,
            object: Some(self.kind),
            field: "Object Length",
            offset: self.start + 2,
        }
    }
}

/// Appends an object of RFC 5973: AB=00 (§4.3), and what `value` writes, padded to whole words.
pub(super) fn put(w: &mut Writer<'_>, kind: ObjectType, value: impl FnOnce(&mut Writer<'_>)) {
    put_as(w, 0, kind, value);
}

/// Appends an object with these flags.
fn put_as(w: &mut Writer<'_>, flags: u16, kind: ObjectType, value: impl FnOnce(&mut Writer<'_>)) {
    let start = w.len();
    w.u16(flags | kind.0 & 0xfff);
    let slot = w.open_u16();
    value(w);
    w.pad_to(4);
    let words = w.since(&slot) / 4;
    // The types of the values keep every length below the limit, that of a token excepted.
    if w.close_u16(slot, words, 0xfff, 0).is_err() {
        w.truncate(start);
    }
}

/// Appends the list of the nodes that granted a request.
pub(super) fn put_hops(w: &mut Writer<'_>, hops: Hops<'_>) {
    put_as(w, FORWARD, HOPS, |w| w.bytes(hops.octets()));
}

/// Appends a publication.
pub(super) fn put_publication(w: &mut Writer<'_>, publication: Publication<'_>) {
    put(w, PUBLICATION, |w| w.bytes(publication.octets()));
}

/// Appends the object by which the next node knows that no node of another make is between.
pub(super) fn put_neighbor(w: &mut Writer<'_>) {
    put_as(w, OPTIONAL, NEIGHBOR, |_| {});
}

/// A SESSION_AUTH object with these attributes (RFC 5981 §3.1: AB=10); `None`: they are too long.
#[must_use]
pub fn session_auth(attributes: &[u8]) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    put_as(&mut Writer::new(&mut octets), FORWARD, SESSION_AUTH, |w| w.bytes(attributes));
    (!octets.is_empty()).then_some(octets)
}

/// What a node adds to its refusal: its address, and a text for people. RFC 5973 has no place for them, so they are objects of the range for
/// private use, with AB=10: other nodes forward them unread.
#[must_use]
pub fn refused_by(node: Option<IpAddr>, note: Option<&str>) -> Vec<u8> {
    let mut octets = Vec::new();
    let w = &mut Writer::new(&mut octets);
    match node {
        Some(IpAddr::V4(v4)) => put_as(w, FORWARD, NODE, |w| w.bytes(&v4.octets())),
        Some(IpAddr::V6(v6)) => put_as(w, FORWARD, NODE, |w| w.bytes(&v6.octets())),
        None => {}
    }
    let note = note.map(|note| signalbox_wire::beginning(note, MAX_NOTE));
    if let Some(note) = note.filter(|note| !note.is_empty()) {
        put_as(w, FORWARD, NOTE, |w| w.bytes(note.as_bytes()));
    }
    octets
}

/// Objects of unknown type with AB=10, which a node keeps in what it forwards, without the list of nodes that granted. They are found in the
/// octets of a message when they are read.
#[derive(Clone, Copy)]
pub struct Forwarded<'a>(&'a [u8]);

impl<'a> Forwarded<'a> {
    /// No objects.
    pub const NONE: Forwarded<'static> = Forwarded(&[]);

    /// Those among `objects`, which hold nothing but objects.
    #[must_use]
    pub const fn among(objects: &'a [u8]) -> Self {
        Self(objects)
    }

    /// The values of the SESSION_AUTH objects (RFC 5981 §3.1).
    pub fn tokens(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.objects().filter(|object| object.kind == SESSION_AUTH).map(|object| object.value)
    }

    /// The address of the node that refused, if it gives one.
    #[must_use]
    pub fn node(&self) -> Option<IpAddr> {
        let value = self.objects().find(|object| object.kind == NODE)?.value;
        let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
        v4.or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from)).ok()
    }

    /// What the node that refused adds for people. Control characters are left out: a stranger may have written it.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let value = self.objects().find(|object| object.kind == NOTE)?.value;
        let text = core::str::from_utf8(value).ok()?;
        let text: String = text.chars().filter(|c| !c.is_control()).take(MAX_NOTE).collect();
        (!text.is_empty()).then_some(text)
    }

    /// The octets of each, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.objects().map(|object| object.octets)
    }

    fn objects(&self) -> impl Iterator<Item = Object<'a>> + use<'a> {
        let mut r = Reader::new(self.0);
        core::iter::from_fn(move || Object::next(&mut r).ok().flatten())
            .filter(|object| object.kind.name().is_none() && object.treatment == Treatment::Forward)
            .filter(|object| !object.is_hops())
    }
}

impl PartialEq for Forwarded<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Forwarded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
