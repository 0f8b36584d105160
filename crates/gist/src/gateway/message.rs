//! Messages as the gateway changes them: MRI, NLI, ports and the NAT-Traversal object; all other octets are copied
//! (RFC 5971 §7.2.2).

use core::net::IpAddr;

use signalbox_core::SessionId;
use signalbox_wire::Reader;

use crate::error::DecodeError;
use crate::wire::{
    Encapsulation, HEADER_LENGTH, Header, MAGIC, MaProtocolId, Message, NatTraversal, ObjectType, Objects,
    RawObject,
};

/// NATs in a row whose entries a gateway searches for its own. A Query that has passed so many is refused.
pub(super) const MAX_NATS: usize = 16;
/// Octets of a TLV header.
const TLV: usize = 4;

/// The objects of a message with C=1 that the gateway uses. The other objects are not judged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) header: Header,
    pub(super) octets: &'a [u8],
    pub(super) nat: Option<NatTraversal<'a>>,
    pub(super) mri: RawObject<'a>,
    pub(super) session: SessionId,
    pub(super) nli: RawObject<'a>,
    pub(super) cookie: Option<&'a [u8]>,
    pub(super) stack: bool,
}

/// Why a message cannot be translated.
#[derive(Debug)]
pub(super) enum Broken {
    /// An error that the sender is informed about.
    Error(DecodeError),
    /// An object that the gateway needs is missing, or the objects do not add up to the message.
    Objects,
}

impl<'a> Parts<'a> {
    /// Finds the objects of a message with C=1. GISTNAT-X-17: a malformed NAT-Traversal object is an error of the sender.
    pub(super) fn of(octets: &'a [u8]) -> Result<Self, Broken> {
        let header = Header::parse(octets).map_err(Broken::Error)?;
        header.check(Encapsulation::QMode).map_err(Broken::Error)?;
        let [mut nat, mut mri, mut session, mut nli, mut cookie, mut stack] = [None; 6];
        let mut objects = Objects::of(octets);
        while let Some(object) = objects.next() {
            let object = object.map_err(|_| broken(octets))?;
            let place = match object.kind {
                ObjectType::NAT_TRAVERSAL if object.start == HEADER_LENGTH => &mut nat,
                ObjectType::NAT_TRAVERSAL => return Err(broken(octets)),
                ObjectType::MRI => &mut mri,
                ObjectType::SESSION_ID => &mut session,
                ObjectType::NLI => &mut nli,
                ObjectType::QUERY_COOKIE => &mut cookie,
                ObjectType::STACK_CONFIGURATION => &mut stack,
                _ => continue,
            };
            if place.replace(object).is_some() {
                return Err(broken(octets));
            }
        }
        let whole = octets.len() == header.message_octets();
        let (Some(mri), Some(session), Some(nli), true) = (mri, session, nli, whole) else {
            return Err(broken(octets));
        };
        let nat = nat.map(|object| NatTraversal::parse(&object)).transpose().map_err(Broken::Error)?;
        let session = SessionId(session.value.try_into().map_err(|_| broken(octets))?);
        crate::wire::Nli::parse(&nli).map_err(Broken::Error)?;
        let cookie = cookie.map(|cookie: RawObject<'_>| cookie.value);
        Ok(Self { header, octets, nat, mri, session, nli, cookie, stack: stack.is_some() })
    }

    /// The MRI that the first NAT received.
    pub(super) fn original_mri(&self) -> &'a [u8] {
        self.nat.map_or(self.mri.value, |nat| nat.original_mri)
    }
}

fn broken(octets: &[u8]) -> Broken {
    Message::parse(octets, Encapsulation::QMode).map_or_else(Broken::Error, |_| Broken::Objects)
}

/// New values of addresses and ports in an MRI. `None`: the value stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NewMri {
    pub(super) source: Option<(IpAddr, Option<u16>)>,
    pub(super) destination: Option<(IpAddr, Option<u16>)>,
}

/// Appends the translated message with magic number; false if it is too large for the format. GISTNAT-R5.1-01,
/// GISTNAT-R5.1-02.
pub(super) fn translated(
    parts: &Parts<'_>,
    header: Header,
    mri: &NewMri,
    interface: Option<IpAddr>,
    entry: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&header.octets());
    let object = out.len();
    out.extend_from_slice(&[0; TLV]);
    append_object(parts, entry, out);
    let words = (out.len() - object - TLV) / 4;
    let Some(words) = u16::try_from(words).ok().filter(|words| *words <= 0xfff) else { return false };
    patch(out, object, &ObjectType::NAT_TRAVERSAL.0.to_be_bytes());
    patch(out, object + 2, &words.to_be_bytes());
    // What follows is copied; values are overwritten at the places where they are.
    let rest = if parts.nat.is_some() { first_length(parts.octets) } else { 0 } + HEADER_LENGTH;
    let moved = out.len().wrapping_sub(rest);
    out.extend_from_slice(parts.octets.get(rest..).unwrap_or_default());
    let value = |object: &RawObject<'_>| moved.wrapping_add(object.start + TLV);
    patch_mri(out, value(&parts.mri), parts.mri.value, mri);
    if let Some(interface) = interface {
        patch_end(out, value(&parts.nli) + parts.nli.value.len(), interface);
    }
    close(out, start)
}

/// Octets of the first object of a message.
fn first_length(octets: &[u8]) -> usize {
    Objects::of(octets).next().and_then(Result::ok).map_or(0, |object| object.octets.len())
}

/// Appends the value of the NAT-Traversal object with the entry of this gateway as the last one. Types that this gateway
/// does not treat are removed from the list. GISTNAT-R7.2.3-04.
fn append_object(parts: &Parts<'_>, entry: &[u8], out: &mut Vec<u8>) {
    let treated =
        |kind: ObjectType| kind == ObjectType::NLI || kind == ObjectType::STACK_CONFIGURATION && parts.stack;
    let at = out.len();
    let mri = parts.original_mri();
    // A NAT-Traversal object has at most 255 words of MRI; one that is made here is that of the smallest two methods or a
    // private one that fits.
    let words = u8::try_from(mri.len() / 4).unwrap_or(u8::MAX);
    out.extend_from_slice(&[words, 0, 0, 0]);
    out.extend_from_slice(mri);
    let mut types = 0_u8;
    let mut list = |kind: u16, out: &mut Vec<u8>| {
        out.extend_from_slice(&kind.to_be_bytes());
        types = types.saturating_add(1);
    };
    let mut nats = 0_usize;
    match &parts.nat {
        None => {
            list(ObjectType::NLI.0, out);
            if parts.stack {
                list(ObjectType::STACK_CONFIGURATION.0, out);
            }
        }
        Some(nat) => {
            nat.translated.iter().filter(|one| treated(one.kind())).for_each(|one| list(one.0, out));
            nats = nat.replaced.len();
        }
    }
    if types % 2 == 1 {
        out.extend_from_slice(&[0; 2]);
    }
    for replaced in parts.nat.iter().flat_map(|nat| nat.replaced.iter()) {
        append_entry(replaced.0, out);
    }
    append_entry(entry, out);
    let nats = u8::try_from(nats + 1).unwrap_or(u8::MAX);
    patch(out, at + 1, &[types, nats]);
}

fn append_entry(entry: &[u8], out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&u16::try_from(entry.len()).unwrap_or(0).to_be_bytes());
    out.extend_from_slice(entry);
    let padded = at + (out.len() - at).next_multiple_of(4);
    out.resize(padded, 0);
}

/// The NAT-Traversal object of an answer, read as every variant of NATs leaves it: octets after the counted entries are
/// accepted. GISTNAT-X-05.
#[derive(Debug, Clone, Copy)]
pub(super) struct Echo<'a> {
    /// Octets of the whole object.
    length: usize,
    value: &'a [u8],
    pub(super) mri: &'a [u8],
    nats: u8,
    /// The last entries: offset of the length field in the value, and octets of the entry.
    entries: [(usize, usize); MAX_NATS],
}

impl<'a> Echo<'a> {
    /// The object, which must be the first of the message.
    pub(super) fn of(octets: &'a [u8]) -> Option<Self> {
        let object = Objects::of(octets).next()?.ok().filter(|o| o.kind == ObjectType::NAT_TRAVERSAL)?;
        let mut r = Reader::new(object.value);
        let [words, types, nats, _] = r.array().ok()?;
        let mri = r.take(usize::from(words) * 4).ok()?;
        r.take(usize::from(types).next_multiple_of(2) * 2).ok()?;
        let mut entries = [(0, 0); MAX_NATS];
        for number in 0..usize::from(nats) {
            let at = r.offset();
            let length = usize::from(r.u16().ok()?);
            r.take((2 + length).next_multiple_of(4) - 2).ok()?;
            if let Some(place) = entries.get_mut(number % MAX_NATS) {
                *place = (at, length);
            }
        }
        Some(Self { length: object.octets.len(), value: object.value, mri, nats, entries })
    }

    /// The last entries, beginning with the last one. GISTNAT-X-02.
    pub(super) fn last_entries(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let (value, entries) = (self.value, self.entries);
        let nats = usize::from(self.nats);
        (nats.saturating_sub(MAX_NATS)..nats).rev().filter_map(move |number| {
            let (at, length) = *entries.get(number % MAX_NATS)?;
            Some((at, value.get(at + 2..at + 2 + length)?))
        })
    }

    /// Appends the object without the entry at this place. GISTNAT-D6.1-07, GISTNAT-X-03.
    fn append_without(&self, entry: (usize, usize), out: &mut Vec<u8>) {
        let at = out.len();
        let (start, length) = entry;
        let end = start + (2 + length).next_multiple_of(4);
        out.extend_from_slice(&ObjectType::NAT_TRAVERSAL.0.to_be_bytes());
        let words = u16::try_from(self.value.len().saturating_sub(end - start) / 4).unwrap_or(0);
        out.extend_from_slice(&words.to_be_bytes());
        out.extend_from_slice(self.value.get(..start).unwrap_or_default());
        out.extend_from_slice(self.value.get(end..).unwrap_or_default());
        patch(out, at + TLV + 2, &[self.nats.saturating_sub(1)]);
    }
}

/// Appends the answer with magic number, without the entry of this gateway; its objects are copied. It returns the octets
/// by which they have moved.
pub(super) fn unwound(
    octets: &[u8],
    header: Header,
    echo: &Echo<'_>,
    entry: (usize, usize),
    out: &mut Vec<u8>,
) -> usize {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&header.octets());
    echo.append_without(entry, out);
    let rest = HEADER_LENGTH + echo.length;
    let moved = out.len().wrapping_sub(rest);
    out.extend_from_slice(octets.get(rest..).unwrap_or_default());
    close(out, start);
    moved
}

/// Writes the length field of the message that begins, with its magic number, at `start`; false if it is too long.
fn close(out: &mut [u8], start: usize) -> bool {
    let words = (out.len() - start - MAGIC.len() - HEADER_LENGTH) / 4;
    let Ok(words) = u16::try_from(words) else { return false };
    patch(out, start + MAGIC.len() + 2, &words.to_be_bytes());
    true
}

/// Overwrites octets at a place.
pub(super) fn patch(out: &mut [u8], at: usize, octets: &[u8]) {
    if let Some(place) = out.get_mut(at..at.wrapping_add(octets.len())) {
        place.copy_from_slice(octets);
    }
}

/// Overwrites the address that ends at a place.
pub(super) fn patch_end(out: &mut [u8], end: usize, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => patch(out, end.wrapping_sub(4), &v4.octets()),
        IpAddr::V6(v6) => patch(out, end.wrapping_sub(16), &v6.octets()),
    }
}

/// Overwrites addresses and ports of an MRI whose value begins at a place. Ports are in its last word.
fn patch_mri(out: &mut [u8], at: usize, value: &[u8], new: &NewMri) {
    let ports = at + value.len().saturating_sub(4);
    for (end, nth) in [(new.source, 0), (new.destination, 1)] {
        let Some((address, port)) = end else { continue };
        let octets = if address.is_ipv4() { 4 } else { 16 };
        patch_end(out, at + 4 + (nth + 1) * octets, address);
        if let Some(port) = port {
            patch(out, ports + nth * 2, &port.to_be_bytes());
        }
    }
}

/// A port of a messaging association in a Stack-Configuration-Data object (RFC 5971 A.3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    /// The IP protocol.
    pub(super) protocol: u8,
    pub(super) port: u16,
    /// Offset of the port in the message.
    pub(super) at: usize,
}

/// Most ports of one Response that are bound.
pub(super) const MAX_OFFERS: usize = 4;

/// The ports in the Stack-Configuration-Data of a Response.
pub(super) fn offers(stack: &RawObject<'_>) -> [Option<Offer>; MAX_OFFERS] {
    let mut offers = [None; MAX_OFFERS];
    let mut places = offers.iter_mut();
    let mut r = Reader::at(stack.value, stack.start + TLV);
    let Ok([count, ..]) = r.array::<8>() else { return offers };
    for _ in 0..count {
        let Ok([protocol, _, length, flags]) = r.array() else { break };
        let at = r.offset();
        let Ok(data) = r.take(usize::from(length).next_multiple_of(4)) else { break };
        let protocol = match MaProtocolId(protocol) {
            MaProtocolId::FORWARDS_TCP => 6,
            MaProtocolId::FORWARDS_SCTP => 132,
            _ => continue,
        };
        if let (Some(port), true) = (data.first_chunk::<2>(), flags & 0x80 == 0 && length >= 2) {
            let Some(place) = places.next() else { break };
            *place = Some(Offer { protocol, port: u16::from_be_bytes(*port), at });
        }
    }
    offers
}
