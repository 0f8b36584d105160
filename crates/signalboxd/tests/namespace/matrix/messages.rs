//! Messages of each protocol, octet by octet, and the IP packets of them. Each has a tag of its own, which is also in what a router
//! sends because of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::firewall::{checksum, message};

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const RSVP: u8 = 46;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const SCTP: u8 = 132;
pub(crate) const GIST_PORT: u16 = 270;
pub(crate) const SCOUT_PORT: u16 = 50004;
pub(crate) const CASP_PORT: u16 = 50003;
/// NSLPIDs of applications, and one of none.
pub(crate) const QOS: u16 = 1;
pub(crate) const NATFW: u16 = 33;
pub(crate) const PING: u16 = 32704;
pub(crate) const STRANGE: u16 = 32760;
/// The magic number of GIST.
pub(crate) const MAGIC: [u8; 4] = [0x4e, 0x04, 0xbd, 0xa5];
/// Hops of a message that reaches its end.
pub(crate) const HOPS: u8 = 64;
/// The C flag of GIST's common header, beside the type of a message.
const C_MODE: u8 = 0x80;

/// A kind of message.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Of GIST, with this hop count.
    Query {
        nslp: u16,
        hops: u8,
    },
    /// Of GIST, in a datagram.
    Data,
    NoGist,
    Rsvp(Rsvp),
    Scout {
        kind: u8,
    },
    /// Of CASP's messaging layer, in a datagram, with a cookie that no node has made.
    Casp,
    Echo,
    /// The first segment of a TCP connection to a port.
    Connect {
        port: u16,
    },
    /// The first packet of an SCTP association to GIST's port.
    Init,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rsvp {
    Path,
    /// A Path with an object whose class is an error where it is not known.
    UnknownPath,
    /// A Path that is longer than any link takes at once.
    LongPath,
    PathError,
}

/// A query of an application, for a node that can be reached.
pub(crate) const fn query(nslp: u16) -> Kind {
    Kind::Query { nslp, hops: HOPS }
}

/// Message, protocol and tag.
pub(crate) struct Composed {
    pub(crate) protocol: u8,
    pub(crate) octets: Vec<u8>,
    pub(crate) tag: Vec<u8>,
}

pub(crate) const fn group(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 1, 0x203)),
    }
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A message with a number of its own. With `answered` the tag is in the answer to it.
pub(crate) fn compose(ends: [IpAddr; 2], kind: Kind, number: u16, answered: bool) -> Composed {
    let ((octets, tag), protocol) = match kind {
        Kind::Query { nslp, hops } => (gist_query(ends, nslp, hops, number), UDP),
        Kind::Data => (gist_data(ends, number), UDP),
        Kind::NoGist => {
            let tag = format!("no message of GIST {number:05}").into_bytes();
            ((datagram(ends, GIST_PORT, &tag), tag), UDP)
        }
        Kind::Rsvp(kind) => (rsvp(ends, kind, number), RSVP),
        Kind::Scout { kind } => (scout(ends, kind, number), UDP),
        Kind::Casp => (casp(ends, number), UDP),
        Kind::Connect { port } => (connect(ends, port, number, answered), TCP),
        Kind::Init => (init(number, answered), SCTP),
        Kind::Echo => {
            let tag = format!("echo {number:05}").into_bytes();
            let protocol = if ends[0].is_ipv4() { ICMP } else { ICMPV6 };
            ((message(ends, number.into(), &tag), tag), protocol)
        }
    };
    Composed { protocol, octets, tag }
}

/// A message of GIST (RFC 5971 A.1, A.2) of a type and with these flags.
pub(crate) fn gist((nslp, hops): (u16, u8), kind: [u8; 2], objects: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, value) in objects {
        body.extend_from_slice(&kind.to_be_bytes());
        body.extend_from_slice(&u16::try_from(value.len() / 4).unwrap().to_be_bytes());
        body.extend_from_slice(value);
    }
    let words = u16::try_from(body.len() / 4).unwrap().to_be_bytes();
    [&MAGIC[..], &[1, hops], &words, &nslp.to_be_bytes(), &kind, &body].concat()
}

/// The object NLI of a node at an address.
pub(crate) fn nli(node: IpAddr) -> (u16, Vec<u8>) {
    let version = if node.is_ipv4() { 0x40 } else { 0x60 };
    (2, [&[4, HOPS, version, 0][..], &30_000_u32.to_be_bytes(), &[7; 4], &octets(node)].concat())
}

/// The objects MRI, for a flow of UDP, and Session-Identifier.
fn subject([src, dst]: [IpAddr; 2], number: u16) -> [(u16, Vec<u8>); 2] {
    // A protocol and both ports are given.
    let (version, bits) = if src.is_ipv4() { (0x48, 32) } else { (0x68, 128) };
    let addresses = [octets(src), octets(dst)].concat();
    let ports = [20_000 + number, 5000].map(u16::to_be_bytes).concat();
    let mri = [&[0, 0, version, 0xc0][..], &addresses, &[bits, bits, UDP, 0], &ports].concat();
    [(0, mri), (1, [&[0x5e; 14][..], &number.to_be_bytes()].concat())]
}

/// GIST's Query, with a new session.
fn gist_query(ends: [IpAddr; 2], nslp: u16, hops: u8, number: u16) -> (Vec<u8>, Vec<u8>) {
    let subject = subject(ends, number);
    let session = subject[1].1.clone();
    let cookie = (5, [&[9; 6][..], &number.to_be_bytes()].concat());
    let objects = [&subject[..], &[nli(ends[0]), cookie]].concat();
    (datagram(ends, GIST_PORT, &gist((nslp, hops), [C_MODE, 0x40], &objects)), session)
}

/// GIST's Data in a datagram, for which no node has routing state.
fn gist_data(ends: [IpAddr; 2], number: u16) -> (Vec<u8>, Vec<u8>) {
    let subject = subject(ends, number);
    let session = subject[1].1.clone();
    let objects = [&subject[..], &[nli(ends[0]), (8, vec![0xda; 200])]].concat();
    (datagram(ends, GIST_PORT, &gist((PING, HOPS), [3, 0x80], &objects)), session)
}

/// A message of RSVP about a new session (RFC 2205 §3.1).
fn rsvp([src, dst]: [IpAddr; 2], kind: Rsvp, number: u16) -> (Vec<u8>, Vec<u8>) {
    let family = if src.is_ipv4() { 1 } else { 2 };
    let port = (20_000 + number).to_be_bytes();
    let session = [&octets(dst)[..], &[UDP, 0], &port].concat();
    let template = [&octets(src)[..], &[0, 0, 0x13, 0x88]].concat();
    let floats = [1000.0_f32, 3000.0, f32::INFINITY].map(f32::to_be_bytes).concat();
    let bounds = [64_u32, 1500].map(u32::to_be_bytes).concat();
    let tspec = [&[0, 0, 0, 7, 1, 0, 0, 6, 127, 0, 0, 5][..], &floats, &bounds].concat();
    let hop = [&octets(src)[..], &[0, 0, 0, 7]].concat();
    let error = [&octets(src)[..], &[0, 24, 0, 0]].concat();
    let period = (5, 1, 30_000_u32.to_be_bytes().to_vec());
    let sender = [(11, family, template), (12, 2, tspec)];
    let first = (1, family, session.clone());
    let (message_type, middle, last) = match kind {
        Rsvp::PathError => (3, vec![(6, family, error)], vec![]),
        Rsvp::Path => (1, vec![(3, family, hop), period], vec![]),
        Rsvp::UnknownPath => (1, vec![(3, family, hop), period], vec![(0x7f, 1, vec![0; 4])]),
        // An ADSPEC with a service that no node knows, and an object that every node passes on.
        Rsvp::LongPath => {
            let general = [4, 6, 8, 10].map(|number| [number, 0, 0, 1, 0, 0, 0, 0]).concat();
            let adspec = [&[0, 0, 0, 110, 1, 0, 0, 8][..], &general, &[200, 0, 0, 100], &[0; 400]].concat();
            (1, vec![(3, family, hop), period], vec![(13, 2, adspec), (0xc7, 1, vec![0x55; 1000])])
        }
    };
    let mut body = Vec::new();
    for (class, c_type, value) in [vec![first], middle, sender.to_vec(), last].concat() {
        body.extend_from_slice(&u16::try_from(4 + value.len()).unwrap().to_be_bytes());
        body.extend_from_slice(&[class, c_type]);
        body.extend_from_slice(&value);
    }
    let length = u16::try_from(8 + body.len()).unwrap().to_be_bytes();
    let mut octets = [&[0x10, message_type, 0, 0, 64, 0][..], &length, &body].concat();
    let sum = checksum(&octets);
    octets[2..4].copy_from_slice(&sum);
    (octets, session)
}

/// A message of scout (docs/wire/casp.md).
fn scout(ends: [IpAddr; 2], kind: u8, number: u16) -> (Vec<u8>, Vec<u8>) {
    let cookie = [&[0xc0; 6][..], &number.to_be_bytes()].concat();
    let head = [&[0, 0, 0, kind][..], &[0; 16], &[0, 12, 5, 1]].concat();
    (datagram(ends, SCOUT_PORT, &[head, cookie.clone()].concat()), cookie)
}

/// A signaling message of CASP (docs/wire/casp.md).
fn casp([src, dst]: [IpAddr; 2], number: u16) -> (Vec<u8>, Vec<u8>) {
    let session = [&[0xca; 14][..], &number.to_be_bytes()].concat();
    let addresses = [octets(src), octets(dst)].concat();
    let flow = if src.is_ipv4() {
        [&[0, 20, 1, 1][..], &addresses, &[0x13, 0x88, 0x13, 0x88, UDP, 0, 0, 0]].concat()
    } else {
        [&[0, 40, 1, 3][..], &addresses, &[0, 0, 0, 5]].concat()
    };
    let cookie = [&[0, 12, 6, 1][..], &[0xbb; 8]].concat();
    let octets = [&[0, HOPS, 0, 1][..], &session, &flow, &cookie].concat();
    (datagram([src, dst], CASP_PORT, &octets), session)
}

/// The first segment of a TCP connection, and the number that acknowledges it, or at the far end its own.
fn connect([src, dst]: [IpAddr; 2], port: u16, number: u16, answered: bool) -> (Vec<u8>, Vec<u8>) {
    let sequence = 0x5ac0_0000 + u32::from(number);
    let tag = sequence + u32::from(answered);
    let [from, port] = [(40_000 + number).to_be_bytes(), port.to_be_bytes()];
    let mut octets =
        [&from[..], &port, &sequence.to_be_bytes(), &[0; 4], &[0x50, 2, 0xff, 0xff, 0, 0, 0, 0]].concat();
    let pseudo = [self::octets(src), self::octets(dst), vec![0, TCP, 0, 20]].concat();
    let sum = checksum(&[pseudo, octets.clone()].concat());
    octets[16..18].copy_from_slice(&sum);
    (octets, tag.to_be_bytes().to_vec())
}

/// An INIT (RFC 9260 §3.3.2), and the ports and the verification tag of what answers it, or at the far end its own.
fn init(number: u16, answered: bool) -> (Vec<u8>, Vec<u8>) {
    let ends = [40_000 + number, GIST_PORT].map(u16::to_be_bytes);
    let initiate = (0x5c7b_0000 + u32::from(number)).to_be_bytes();
    let chunk = [&[1, 0, 0, 20][..], &initiate, &[0, 1, 0, 0, 0, 8, 0, 8], &initiate].concat();
    let mut octets = [&ends[0][..], &ends[1], &[0; 8], &chunk].concat();
    let sum = crc32c(&octets);
    octets[8..12].copy_from_slice(&sum);
    let tag = if answered { [&ends[1][..], &ends[0], &initiate] } else { [&ends[0][..], &ends[1], &[0; 4]] };
    (octets, tag.concat())
}

/// The checksum of SCTP (RFC 9260 appendix A).
fn crc32c(octets: &[u8]) -> [u8; 4] {
    let shift = |sum: u32, _| (sum >> 1) ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
    let sum = octets.iter().fold(u32::MAX, |sum, octet| (0..8).fold(sum ^ u32::from(*octet), shift));
    (!sum).to_le_bytes()
}

/// A UDP datagram with this source and destination port.
fn datagram([src, dst]: [IpAddr; 2], port: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
    let port = port.to_be_bytes();
    let mut octets = [&port[..], &port, &length, &[0, 0], payload].concat();
    let pseudo = [self::octets(src), self::octets(dst), vec![0, UDP], length.to_vec()].concat();
    let sum = checksum(&[pseudo, octets.clone()].concat());
    octets[6..8].copy_from_slice(&sum);
    octets
}

/// How a message travels.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Form {
    /// The value of its Router Alert with IPv6; `None`: it has none.
    pub(crate) alert: Option<u16>,
    /// In two fragments.
    pub(crate) fragments: bool,
}

/// The value of the Router Alert of a protocol, with IPv6.
pub(crate) const fn alert(kind: Kind) -> u16 {
    match kind {
        Kind::Scout { .. } => 0xffdf,
        Kind::Rsvp(_) => 1,
        Kind::Query { .. }
        | Kind::Data
        | Kind::NoGist
        | Kind::Casp
        | Kind::Echo
        | Kind::Connect { .. }
        | Kind::Init => 0,
    }
}

/// The IP packets of a message.
pub(crate) fn packets(
    [src, dst]: [IpAddr; 2],
    protocol: u8,
    form: Form,
    message: &[u8],
    number: u16,
) -> Vec<Vec<u8>> {
    // The first fragment ends on a multiple of eight octets.
    let cut = if form.fragments { message.len() / 16 * 8 } else { message.len() };
    let (first, rest) = message.split_at(cut);
    let parts = [(0, first), (cut, rest)].into_iter().filter(|(_, part)| !part.is_empty());
    let packet = |(offset, part): (usize, &[u8])| {
        let more = offset + part.len() < message.len();
        let length = |extra: usize| u16::try_from(part.len() + extra).unwrap().to_be_bytes();
        if src.is_ipv4() {
            let options: &[u8] = if form.alert.is_some() { &[0x94, 4, 0, 0] } else { &[] };
            let words = u8::try_from(5 + options.len() / 4).unwrap();
            let [l0, l1] = length(20 + options.len());
            let place = u16::try_from(offset / 8).unwrap() | u16::from(more) << 13;
            let ([i0, i1], [p0, p1]) = ((0x1000 + number).to_be_bytes(), place.to_be_bytes());
            let mut head = vec![0x40 | words, 0, l0, l1, i0, i1, p0, p1, 64, protocol, 0, 0];
            head.extend_from_slice(&[octets(src), octets(dst), options.to_vec()].concat());
            let sum = checksum(&head);
            head[10..12].copy_from_slice(&sum);
            return [&head, part].concat();
        }
        let (mut next, mut extra) = (protocol, Vec::new());
        if form.fragments {
            let place = (u16::try_from(offset).unwrap() | u16::from(more)).to_be_bytes();
            let id = number.to_be_bytes();
            extra = [next, 0, place[0], place[1], 0, 0, id[0], id[1]].to_vec();
            next = FRAGMENT;
        }
        if let Some(value) = form.alert {
            let [v0, v1] = value.to_be_bytes();
            extra = [&[next, 0, 5, 2, v0, v1, 1, 0][..], &extra].concat();
            next = 0;
        }
        let [l0, l1] = length(extra.len());
        let head = [0x60, 0, 0, 0, l0, l1, next, 64];
        [&head[..], &octets(src), &octets(dst), &extra, part].concat()
    };
    parts.map(packet).collect()
}

/// The next header of IPv6 fragments.
const FRAGMENT: u8 = 44;

/// Whether an Ethernet frame has a fragment of an IP packet.
pub(crate) fn is_fragment(frame: &[u8]) -> bool {
    match (&frame[12..14], &frame[14..]) {
        // More fragments follow, or the offset is not zero.
        ([8, 0], packet) => packet[6] & 0x3f != 0 || packet[7] != 0,
        // Hop-by-hop options may come before.
        ([0x86, 0xdd], packet) => packet[6] == FRAGMENT || packet[6] == 0 && packet[40] == FRAGMENT,
        _ => false,
    }
}
