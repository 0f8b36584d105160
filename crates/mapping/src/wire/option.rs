//! Options of PCP (RFC 6887 §7.3).

use core::net::IpAddr;

use signalbox_wire::{Reader, Short, Writer};

use super::{OptionCode, address};
use crate::DecodeError;

/// Most octets of a description, RFC 7220 §2.
const DESCRIPTION_OCTETS: usize = 1_016;

/// Octets of an option's header.
const HEADER: usize = 4;

/// The options of a message. Each has a length that fits the message; contents are read by [`RawOption::known`].
///
/// Two are equal if codes and data are, wherever they stand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    octets: &'a [u8],
    /// Of the first option in the message.
    offset: usize,
}

impl PartialEq for Options<'_> {
    fn eq(&self, other: &Self) -> bool {
        let mine = self.iter().map(|option| (option.code, option.data));
        mine.eq(other.iter().map(|option| (option.code, option.data)))
    }
}

impl Eq for Options<'_> {}

/// One option with its data as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// The code, known or not.
    pub code: OptionCode,
    /// The data without padding.
    pub data: &'a [u8],
    /// Offset of the option from the start of the message, in octets.
    pub offset: usize,
}

/// Who may send to a mapping, RFC 6887 §13.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    /// Length of the prefix of [`address`](Self::address) in its own bits: up to 32 for IPv4. Nothing: all filters of the mapping are
    /// removed.
    pub prefix: Option<u8>,
    /// The port of the remote peer; 0 stands for all.
    pub port: u16,
    /// The address of the remote peer.
    pub address: IpAddr,
}

/// An option that this suite knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known<'a> {
    /// The request is for the host with this address.
    ThirdParty(IpAddr),
    /// Exactly the suggested place, or an error.
    PreferFailure,
    /// Only these may send.
    Filter(Filter),
    /// What the mapping is for: UTF-8 of a stranger, not checked here.
    Description(&'a [u8]),
}

impl<'a> Options<'a> {
    /// Reads the rest of a message as options, and checks that each ends inside it.
    pub(super) fn parse(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let offset = r.offset();
        let octets = r.take_rest();
        let all = Self { octets, offset };
        let mut rest = Reader::at(octets, offset);
        while !rest.is_empty() {
            next(&mut rest)?;
        }
        Ok(all)
    }

    /// The options in their order.
    pub fn iter(&self) -> impl Iterator<Item = RawOption<'a>> + use<'a> {
        let mut rest = Reader::at(self.octets, self.offset);
        core::iter::from_fn(move || if rest.is_empty() { None } else { next(&mut rest).ok() })
    }

    /// Options that somebody composed with [`Known::encode`].
    ///
    /// # Errors
    /// [`DecodeError`] if an option does not end inside the octets.
    pub fn from_octets(octets: &'a [u8]) -> Result<Self, DecodeError> {
        Self::parse(&mut Reader::new(octets))
    }

    /// Whether there is no option.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        for option in self.iter() {
            option.encode(w);
        }
    }
}

fn next<'a>(r: &mut Reader<'a>) -> Result<RawOption<'a>, DecodeError> {
    let offset = r.offset();
    let [code, _, high, low] = r.array().map_err(|short| DecodeError::Short { field: "option", short })?;
    let code = OptionCode(code);
    let length = u16::from_be_bytes([high, low]);
    let left = r.left();
    let beyond = |_: Short| DecodeError::OptionLength { code, offset, length, left };
    let data = r.take(usize::from(length)).map_err(beyond)?;
    r.take(data.len().next_multiple_of(4) - data.len()).map_err(beyond)?;
    Ok(RawOption { code, data, offset })
}

impl<'a> RawOption<'a> {
    /// Reads the contents of an option; nothing if its code is unknown.
    ///
    /// # Errors
    /// [`DecodeError::Option`] if the contents are not those of its code.
    pub fn known(&self) -> Result<Option<Known<'a>>, DecodeError> {
        let wrong = |why| DecodeError::Option { code: self.code, offset: self.offset, why };
        Ok(Some(match self.code {
            OptionCode::THIRD_PARTY => {
                let octets = self.data.try_into().map_err(|_| wrong("the length is not 16"))?;
                Known::ThirdParty(address::read(octets))
            }
            OptionCode::PREFER_FAILURE if self.data.is_empty() => Known::PreferFailure,
            OptionCode::PREFER_FAILURE => return Err(wrong("the length is not 0")),
            OptionCode::FILTER => Known::Filter(Filter::parse(self.data).map_err(wrong)?),
            OptionCode::DESCRIPTION if self.data.len() <= DESCRIPTION_OCTETS => Known::Description(self.data),
            OptionCode::DESCRIPTION => return Err(wrong("more than 1016 octets")),
            _ => return Ok(None),
        }))
    }

    /// Appends the option as it came, with reserved bits and padding of zeros.
    pub fn encode(&self, w: &mut Writer<'_>) {
        // It was read from a length field of 16 bits.
        let length = u16::try_from(self.data.len()).unwrap_or(u16::MAX);
        w.bytes(&[self.code.0, 0]);
        w.u16(length);
        w.bytes(self.data);
        w.pad_to(4);
    }
}

impl Filter {
    fn parse(data: &[u8]) -> Result<Self, &'static str> {
        let mut r = Reader::new(data);
        let read = (|| Ok::<_, Short>((r.u8()?, r.u8()?, r.u16()?, r.array()?)))();
        let (_, prefix, port, octets) = read.map_err(|_| "the length is not 20")?;
        if !r.is_empty() {
            return Err("the length is not 20");
        }
        let address = address::read(octets);
        let prefix = match (prefix, address) {
            (0, _) => None,
            (96..=128, IpAddr::V4(_)) => Some(prefix - 96),
            (..=128, IpAddr::V6(_)) => Some(prefix),
            (_, IpAddr::V4(_)) => return Err("the prefix length of an IPv4 address is not 0 or 96 to 128"),
            (_, IpAddr::V6(_)) => return Err("the prefix length is more than 128"),
        };
        Ok(Self { prefix, port, address })
    }
}

impl Known<'_> {
    /// Appends the option. A description is cut off at 1,016 octets.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let start = w.len();
        let (code, length) = match self {
            Self::ThirdParty(_) => (OptionCode::THIRD_PARTY, 16),
            Self::PreferFailure => (OptionCode::PREFER_FAILURE, 0),
            Self::Filter(_) => (OptionCode::FILTER, 20),
            Self::Description(text) => (OptionCode::DESCRIPTION, text.len().min(DESCRIPTION_OCTETS)),
        };
        w.bytes(&[code.0, 0]);
        w.u16(u16::try_from(length).unwrap_or(u16::MAX));
        match self {
            Self::ThirdParty(address) => w.bytes(&address::octets(*address)),
            Self::PreferFailure => {}
            Self::Filter(filter) => {
                let own = if filter.address.is_ipv4() { 96 } else { 0 };
                w.bytes(&[0, filter.prefix.map_or(0, |prefix| prefix.saturating_add(own))]);
                w.u16(filter.port);
                w.bytes(&address::octets(filter.address));
            }
            Self::Description(text) => w.bytes(text.get(..length).unwrap_or(text)),
        }
        debug_assert_eq!(w.len() - start, HEADER + length, "the length field");
        w.pad_to(4);
    }
}
