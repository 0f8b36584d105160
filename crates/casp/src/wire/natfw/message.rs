//! Messages of the client for firewalls and NATs: type-length-value objects whose length counts words.

use signalbox_wire::{Reader, Writer};

use super::code_points::{NatfwObject, NatfwStatus, NatfwType};
use super::filter::NatfwFilter;
use super::token::{NatfwIdentity, NatfwToken};

/// Octets of the header of a message or object.
const HEADER: usize = 4;

/// Why octets are no message of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{status}, at offset {offset}")]
pub struct NatfwFault {
    /// Number of the message, to which a RESPONSE can refer. `None`: it cannot be read, and nothing is answered.
    pub msg_id: Option<u64>,
    /// The reason.
    pub status: NatfwStatus,
    /// Offset of the object or field at fault.
    pub offset: usize,
}

/// An object as it stands in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// Offset of its header.
    pub offset: usize,
    /// Type.
    pub kind: NatfwObject,
    /// Contents with their padding.
    pub contents: &'a [u8],
}

impl<'a> Tlv<'a> {
    /// Reads the next object; `None`: no octets are left.
    ///
    /// # Errors
    /// The offset of an object whose length is 0 or beyond the enclosing one.
    pub fn next(r: &mut Reader<'a>) -> Result<Option<Self>, usize> {
        if r.is_empty() {
            return Ok(None);
        }
        let offset = r.offset();
        let kind = NatfwObject(r.u16().map_err(|_| offset)?);
        let words = usize::from(r.u16().map_err(|_| offset)?);
        let octets = (words * 4).checked_sub(HEADER).ok_or(offset)?;
        let contents = r.take(octets).map_err(|_| offset)?;
        Ok(Some(Self { offset, kind, contents }))
    }
}

/// Several objects, in a message or nested in another object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tlvs<'a> {
    octets: &'a [u8],
    start: usize,
}

impl<'a> Tlvs<'a> {
    /// Objects that are given by their octets.
    #[must_use]
    pub const fn of(octets: &'a [u8]) -> Self {
        Self { octets, start: 0 }
    }

    /// All objects, up to the first that cannot be read.
    pub fn iter(&self) -> impl Iterator<Item = Tlv<'a>> + use<'a> {
        let mut r = Reader::at(self.octets, self.start);
        core::iter::from_fn(move || Tlv::next(&mut r).ok().flatten())
    }

    /// Whether all octets are objects.
    fn fault(&self) -> Option<usize> {
        let mut r = Reader::at(self.octets, self.start);
        loop {
            match Tlv::next(&mut r) {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(offset) => return Some(offset),
            }
        }
    }
}

/// STATUS: the result of a request at one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatfwResult<'a> {
    /// Its code.
    pub status: NatfwStatus,
    /// 0x80: the request reached its target. 0x40: the node removed its state.
    pub flags: u8,
    /// Type of the request.
    pub request: u8,
    /// Number of the request.
    pub msg_id: u64,
    /// Further objects: of the node, and what it granted.
    pub nested: Tlvs<'a>,
}

/// The request reached its target.
pub const REACHED: u8 = 0x80;
/// The reporting node removed its state.
pub const REMOVED: u8 = 0x40;

/// An object with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NatfwValue<'a> {
    /// Positions of the filters that are logged, from 0; empty: all.
    Logging(Vec<u16>),
    /// Name of the application.
    ApplicationId(&'a [u8]),
    /// The message that is to be sent next, and the objects that it shall have.
    Next(NatfwType, Tlvs<'a>),
    /// A token.
    Token(NatfwToken<'a>),
    /// A CMS object, DER.
    Cms(&'a [u8]),
    /// NTP timestamp from which the rules are in force.
    Time(u64),
    /// Stamp of the rule, compared for equality only.
    Age(u64),
    /// A result.
    Status(NatfwResult<'a>),
    /// Packets.
    Filter(NatfwFilter),
    /// Packets behind the NATs of the path; `None`: not known yet.
    Nat(Option<NatfwFilter>),
    /// Lifetime, seconds.
    Lifetime(u32),
    /// 0 end to end, 1 local network only, 2 the named domain.
    Scope(u16, &'a [u8]),
    /// Number of a request.
    MsgId(u64),
    /// Identity of a node.
    Node(NatfwIdentity<'a>),
    /// Octets that a credential has to contain.
    Challenge(&'a [u8]),
    /// An object of unknown type, which is sent on.
    Unknown(NatfwObject, &'a [u8]),
}

/// Length in 16 bits, octets, padding.
fn string<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = usize::from(r.u16().ok()?);
    let octets = r.take(length).ok()?;
    padding(r)?;
    Some(octets)
}

/// Fewer than four octets up to the end.
fn padding(r: &mut Reader<'_>) -> Option<()> {
    (r.take_rest().len() < 4).then_some(())
}

fn write_string(w: &mut Writer<'_>, octets: &[u8]) {
    let octets = octets.get(..usize::from(u16::MAX)).unwrap_or(octets);
    w.u16(u16::try_from(octets.len()).unwrap_or(u16::MAX));
    w.bytes(octets);
}

impl<'a> NatfwValue<'a> {
    /// The value of an object; `None`: its contents are malformed.
    #[must_use]
    pub fn of(tlv: &Tlv<'a>) -> Option<Self> {
        let mut r = Reader::at(tlv.contents, tlv.offset + HEADER);
        let nested = |r: &mut Reader<'a>| {
            let tlvs = Tlvs { octets: r.peek_rest(), start: r.offset() };
            r.take_rest();
            tlvs.fault().is_none().then_some(tlvs)
        };
        let value = match tlv.kind {
            NatfwObject::LOGGING_ACTION => {
                let count = r.u16().ok()?;
                let filters = (0..count).map(|_| r.u16().ok()).collect::<Option<Vec<u16>>>()?;
                padding(&mut r)?;
                Self::Logging(filters)
            }
            NatfwObject::APPLICATION_ID => Self::ApplicationId(string(&mut r)?),
            NatfwObject::NEXT => {
                let kind = NatfwType(r.u16().ok()?);
                r.u16().ok()?;
                Self::Next(kind, nested(&mut r)?)
            }
            NatfwObject::AUTH_TOKEN => return NatfwToken::parse(tlv.contents).map(Self::Token),
            NatfwObject::CMS_CREDENTIAL => {
                let length = usize::try_from(r.u32().ok()?).ok()?;
                let octets = r.take(length).ok()?;
                padding(&mut r)?;
                Self::Cms(octets)
            }
            NatfwObject::TIME => Self::Time(r.u64().ok()?),
            NatfwObject::AGE => Self::Age(r.u64().ok()?),
            NatfwObject::STATUS => {
                let status = NatfwStatus(r.u16().ok()?);
                let [flags, request] = r.array().ok()?;
                let msg_id = r.u64().ok()?;
                Self::Status(NatfwResult { status, flags, request, msg_id, nested: nested(&mut r)? })
            }
            NatfwObject::PACKET_FILTER => return NatfwFilter::parse(tlv.contents).map(Self::Filter),
            NatfwObject::NAT_OBJECT if tlv.contents.is_empty() => Self::Nat(None),
            NatfwObject::NAT_OBJECT => {
                return NatfwFilter::parse(tlv.contents).map(|filter| Self::Nat(Some(filter)));
            }
            NatfwObject::LIFETIME => Self::Lifetime(r.u32().ok()?),
            NatfwObject::SCOPE => {
                let kind = r.u16().ok()?;
                let domain = string(&mut r)?;
                if (kind == 2) == domain.is_empty() || kind > 2 {
                    return None;
                }
                Self::Scope(kind, domain)
            }
            NatfwObject::MSG_ID => Self::MsgId(r.u64().ok()?),
            NatfwObject::NODE_ID => Self::Node(NatfwIdentity::parse(&mut r)?),
            NatfwObject::CHALLENGE => Self::Challenge(string(&mut r)?),
            kind => Self::Unknown(kind, r.take_rest()),
        };
        r.is_empty().then_some(value)
    }

    /// The type of the object.
    #[must_use]
    pub const fn kind(&self) -> NatfwObject {
        match self {
            Self::Logging(_) => NatfwObject::LOGGING_ACTION,
            Self::ApplicationId(_) => NatfwObject::APPLICATION_ID,
            Self::Next(..) => NatfwObject::NEXT,
            Self::Token(_) => NatfwObject::AUTH_TOKEN,
            Self::Cms(_) => NatfwObject::CMS_CREDENTIAL,
            Self::Time(_) => NatfwObject::TIME,
            Self::Age(_) => NatfwObject::AGE,
            Self::Status(_) => NatfwObject::STATUS,
            Self::Filter(_) => NatfwObject::PACKET_FILTER,
            Self::Nat(_) => NatfwObject::NAT_OBJECT,
            Self::Lifetime(_) => NatfwObject::LIFETIME,
            Self::Scope(..) => NatfwObject::SCOPE,
            Self::MsgId(_) => NatfwObject::MSG_ID,
            Self::Node(_) => NatfwObject::NODE_ID,
            Self::Challenge(_) => NatfwObject::CHALLENGE,
            Self::Unknown(kind, _) => *kind,
        }
    }

    fn contents(&self, w: &mut Writer<'_>) {
        match self {
            Self::Logging(filters) => {
                w.u16(u16::try_from(filters.len()).unwrap_or(u16::MAX));
                filters.iter().take(usize::from(u16::MAX)).for_each(|filter| w.u16(*filter));
            }
            Self::ApplicationId(octets) | Self::Challenge(octets) => write_string(w, octets),
            Self::Next(kind, nested) => {
                w.u16(kind.0);
                w.u16(0);
                w.bytes(nested.octets);
            }
            Self::Token(token) => token.encode(w),
            Self::Cms(octets) => {
                w.u32(u32::try_from(octets.len()).unwrap_or(u32::MAX));
                w.bytes(octets);
            }
            Self::Time(value) | Self::Age(value) | Self::MsgId(value) => w.u64(*value),
            Self::Status(result) => {
                w.u16(result.status.0);
                w.bytes(&[result.flags, result.request]);
                w.u64(result.msg_id);
                w.bytes(result.nested.octets);
            }
            Self::Filter(filter) | Self::Nat(Some(filter)) => filter.encode(w),
            Self::Nat(None) => {}
            Self::Lifetime(seconds) => w.u32(*seconds),
            Self::Scope(kind, domain) => {
                w.u16(*kind);
                write_string(w, domain);
            }
            Self::Node(identity) => identity.encode(w),
            Self::Unknown(_, octets) => w.bytes(octets),
        }
    }

    /// Appends the object.
    ///
    /// # Errors
    /// It has more words than its length can count.
    pub fn encode(&self, octets: &mut Vec<u8>) -> Result<(), NatfwTooLong> {
        tlv(octets, self.kind().0, |octets| {
            self.contents(&mut Writer::new(octets));
            Ok(())
        })
    }
}

/// A message or object has more words than its length can count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} octets, which are more words than 65535")]
pub struct NatfwTooLong(pub usize);

/// Appends a header and the contents that `contents` writes, padded to words. If it fails, nothing is appended.
fn tlv(
    octets: &mut Vec<u8>,
    kind: u16,
    contents: impl FnOnce(&mut Vec<u8>) -> Result<(), NatfwTooLong>,
) -> Result<(), NatfwTooLong> {
    let start = octets.len();
    octets.extend_from_slice(&kind.to_be_bytes());
    octets.extend_from_slice(&[0; 2]);
    let result = contents(octets);
    let length = octets.len() - start;
    octets.resize(start + length.next_multiple_of(4), 0);
    let words = u16::try_from(length.div_ceil(4)).map_err(|_| NatfwTooLong(length));
    match (result, words) {
        (Ok(()), Ok(words)) => {
            if let Some(place) = octets.get_mut(start + 2..start + 4) {
                place.copy_from_slice(&words.to_be_bytes());
            }
            Ok(())
        }
        (Err(error), _) | (Ok(()), Err(error)) => {
            octets.truncate(start);
            Err(error)
        }
    }
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatfwMessage<'a> {
    /// Type.
    pub kind: NatfwType,
    /// Its objects, all of which were checked.
    pub objects: Tlvs<'a>,
}

impl<'a> NatfwMessage<'a> {
    /// Parses the contents of CLIENT_DATA, and checks each object.
    ///
    /// # Errors
    /// [`NatfwFault`]: a RESPONSE reports it, if the number of the message could be read.
    pub fn parse(octets: &'a [u8]) -> Result<Self, NatfwFault> {
        let mut r = Reader::new(octets);
        let silent = |offset| NatfwFault { msg_id: None, status: NatfwStatus::MALFORMED, offset };
        let kind = NatfwType(r.u16().map_err(|_| silent(0))?);
        let words = r.u16().map_err(|_| silent(0))?;
        let objects = Tlvs { octets: r.peek_rest(), start: r.offset() };
        let values = || objects.iter().map(|tlv| (tlv.offset, NatfwValue::of(&tlv)));
        let msg_id = values().find_map(|(_, value)| match value {
            Some(NatfwValue::MsgId(id)) => Some(id),
            _ => None,
        });
        let fault = |status, offset| Err(NatfwFault { msg_id, status, offset });
        if usize::from(words) * 4 != octets.len() {
            return fault(NatfwStatus::MALFORMED, 0);
        }
        if kind.name().is_none() {
            return fault(NatfwStatus::TYPE, 0);
        }
        if let Some(offset) = objects.fault() {
            return fault(NatfwStatus::MALFORMED, offset);
        }
        let mut seen = 0u32;
        for (offset, value) in values() {
            let Some(value) = value else { return fault(NatfwStatus::MALFORMED, offset) };
            match value {
                NatfwValue::Next(next, _)
                    if kind != NatfwType::RESPONSE && !kind.may_be_followed_by(next) =>
                {
                    return fault(NatfwStatus::NEXT, offset);
                }
                // Several of these are allowed.
                NatfwValue::Filter(_)
                | NatfwValue::Token(_)
                | NatfwValue::Cms(_)
                | NatfwValue::Status(_)
                | NatfwValue::Unknown(..) => {}
                value => {
                    let bit = 1 << (value.kind().0 & 31);
                    if seen & bit != 0 {
                        return fault(NatfwStatus::MALFORMED, offset);
                    }
                    seen |= bit;
                }
            }
        }
        let has = |kind: NatfwObject| objects.iter().any(|tlv| tlv.kind == kind);
        let complete = match kind {
            NatfwType::RESPONSE => has(NatfwObject::STATUS),
            NatfwType::PATH | NatfwType::CREATE => has(NatfwObject::MSG_ID) && has(NatfwObject::AGE),
            NatfwType::TRIGGER => has(NatfwObject::MSG_ID) && has(NatfwObject::PACKET_FILTER),
            _ => has(NatfwObject::MSG_ID),
        };
        if complete { Ok(Self { kind, objects }) } else { fault(NatfwStatus::MALFORMED, octets.len()) }
    }

    /// The values of its objects, in their order.
    pub fn values(&self) -> impl Iterator<Item = NatfwValue<'a>> + use<'a> {
        self.objects.iter().filter_map(|tlv| NatfwValue::of(&tlv))
    }

    /// Appends a message of these objects.
    ///
    /// # Errors
    /// It has more words than its length can count. Nothing is appended then.
    pub fn compose(
        kind: NatfwType,
        values: &[NatfwValue<'_>],
        octets: &mut Vec<u8>,
    ) -> Result<(), NatfwTooLong> {
        tlv(octets, kind.0, |octets| values.iter().try_for_each(|value| value.encode(octets)))
    }
}
