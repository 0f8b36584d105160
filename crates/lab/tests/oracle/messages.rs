//! Messages of NATFW and of CASP's client for firewalls as docs/wire has them, octet for octet: a host that writes its requests itself can
//! change them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use signalbox_core::SessionId;

use crate::judge::{Passage, What};

/// What a RESPONSE says about the request with this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) number: u64,
    pub(crate) granted: bool,
}

/// A request of NATFW.
#[derive(Debug, Clone)]
pub(crate) struct Natfw<'a> {
    pub(crate) what: &'a What,
    pub(crate) session: SessionId,
    pub(crate) number: u32,
    /// Seconds; 0 ends the session.
    pub(crate) lifetime: u32,
    pub(crate) proxy: bool,
    /// The attributes of its token.
    pub(crate) token: Option<Vec<u8>>,
}

fn octets_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn short(octets: &[u8]) -> Option<u16> {
    octets.first_chunk().map(|two| u16::from_be_bytes(*two))
}

impl Natfw<'_> {
    pub(crate) fn octets(&self) -> Vec<u8> {
        let second = match self.what {
            What::Open { second, .. } | What::Expose { second, .. } => u8::from(*second),
            What::Passage(_) | What::Accept => unreachable!("a request of CASP"),
        };
        let kind = if let What::Open { .. } = self.what { 1 } else { 2 };
        let mut octets = vec![kind, if self.proxy { 0x80 } else { 0 }, 0, 0];
        let mut put = |kind: u16, value: &[u8]| {
            octets.extend(kind.to_be_bytes());
            octets.extend(u16::try_from(value.len() / 4).unwrap().to_be_bytes());
            octets.extend(value);
        };
        put(0x00c, &self.lifetime.to_be_bytes());
        put(0x012, &self.number.to_be_bytes());
        put(0x00f, &[0, 1, 0, second]);
        if let What::Expose { protocol, port, sender, .. } = self.what {
            let [a, b] = port.to_be_bytes();
            // It has place for senders with IPv4 only.
            let (from, prefix) = sender.map_or((vec![0; 4], 0), |sender| (octets_of(sender), 32));
            put(0x013, &[&[0xc0, 0, prefix, *protocol, a, b, 0, 0][..], &from].concat());
        }
        if self.proxy {
            put(0x011, &self.session.0[..4]);
        }
        if let Some(attributes) = &self.token {
            put(0x8016, attributes);
        }
        octets
    }
}

/// The objects of a message of NATFW, by their types.
fn objects(message: &[u8]) -> Option<BTreeMap<u16, &[u8]>> {
    let (mut rest, mut objects) = (message.get(4..)?, BTreeMap::new());
    while let (Some(kind), Some(words)) = (short(rest), rest.get(2..).and_then(short)) {
        let end = 4 + 4 * usize::from(words & 0xfff);
        objects.insert(kind & 0xfff, rest.get(4..end)?);
        rest = rest.get(end..)?;
    }
    Some(objects)
}

/// The answer in a message of NATFW; `None`: it is another message.
pub(crate) fn natfw_answer(message: &[u8]) -> Option<Answer> {
    let objects = objects(message).filter(|_| message.first() == Some(&3))?;
    let number = u32::from_be_bytes(*objects.get(&0x012)?.first_chunk()?);
    Some(Answer { number: number.into(), granted: objects.get(&0x010)?.first()? & 0xf == 2 })
}

/// The RESPONSE by which the host at the end grants a CREATE of NATFW; `None`: it is another message, or ends its session.
pub(crate) fn natfw_granted(message: &[u8]) -> Option<Vec<u8>> {
    let objects = objects(message).filter(|_| message.first() == Some(&1))?;
    let (lifetime, number) = (*objects.get(&0x00c)?, *objects.get(&0x012)?);
    let words =
        [&[3, 0, 0, 0, 0, 0x0c, 0, 1][..], lifetime, &[0, 0x12, 0, 1], number, &[0, 0x10, 0, 1, 2, 1, 0, 0]];
    (lifetime != [0; 4]).then(|| words.concat())
}

/// A request of CASP's client for firewalls.
#[derive(Debug, Clone)]
pub(crate) struct Casp<'a> {
    pub(crate) passage: &'a Passage,
    pub(crate) number: u64,
    /// Another one says that the packets are others.
    pub(crate) age: u64,
    pub(crate) lifetime: u32,
    /// An AUTH_TOKEN.
    pub(crate) token: Vec<u8>,
}

/// An object, or a message, of these contents.
pub(crate) fn casp_object(kind: u16, contents: &[u8]) -> Vec<u8> {
    let mut octets = kind.to_be_bytes().to_vec();
    octets.extend(u16::try_from(contents.len().div_ceil(4) + 1).unwrap().to_be_bytes());
    octets.extend(contents);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

const NEXT_RESPONSE: [u8; 4] = [0, 4, 0, 0];

impl Casp<'_> {
    /// A CREATE.
    pub(crate) fn octets(&self) -> Vec<u8> {
        let Passage { src, dst, protocol, src_port, dst_port, further, .. } = *self.passage;
        let list = |given: bool| u8::from(given);
        let counts = [list(protocol.is_some()), list(src_port.is_some()), list(dst_port.is_some()), 0];
        let first = if src.is_ipv4() { [4, 32, 32, 0] } else { [6, 128, 128, 0] };
        let mut filter = [&first[..], &octets_of(src), &octets_of(dst), &counts].concat();
        filter.extend(protocol.into_iter().flat_map(|protocol| [protocol, 0, 0, 0]));
        for (port, up) in [(src_port, 0), (dst_port, further)] {
            filter.extend(port.into_iter().flat_map(|port| [port, port + up]).flat_map(u16::to_be_bytes));
        }
        let objects = [
            casp_object(0x1d, &self.number.to_be_bytes()),
            casp_object(0x17, &self.age.to_be_bytes()),
            casp_object(0x1b, &self.lifetime.to_be_bytes()),
            casp_object(0x19, &filter),
            casp_object(0x13, &NEXT_RESPONSE),
            self.token.clone(),
        ];
        casp_object(2, &objects.concat())
    }
}

/// A RELEASE.
pub(crate) fn casp_release(number: u64) -> Vec<u8> {
    casp_object(3, &[casp_object(0x1d, &number.to_be_bytes()), casp_object(0x13, &NEXT_RESPONSE)].concat())
}

/// The answer in a message of CASP's client; `None`: it is another message.
pub(crate) fn casp_answer(message: &[u8]) -> Option<Answer> {
    if short(message)? != 4 {
        return None;
    }
    let mut rest = message.get(4..)?;
    while let (Some(kind), Some(words)) = (short(rest), rest.get(2..).and_then(short)) {
        let contents = rest.get(4..4 * usize::from(words))?;
        if kind == 0x18 {
            let number = contents.get(4..)?.first_chunk().map(|eight| u64::from_be_bytes(*eight))?;
            return Some(Answer { number, granted: short(contents)? == 0 });
        }
        rest = rest.get(4 * usize::from(words)..)?;
    }
    None
}
