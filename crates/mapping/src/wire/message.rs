//! Requests and responses of PCP.

use core::net::{IpAddr, SocketAddr};

use signalbox_wire::{Reader, Short, Writer};

use super::{HEADER_OCTETS, MAX_OCTETS, Opcode, Options, RESPONSE, ResultCode, VERSION, address};
use crate::DecodeError;

const fn short(field: &'static str) -> impl Fn(Short) -> DecodeError {
    move |short| DecodeError::Short { field, short }
}

/// What all requests begin with, RFC 6887 §7.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The opcode, known or not.
    pub opcode: Opcode,
    /// Requested lifetime of the mapping in seconds; 0 deletes it.
    pub lifetime: u32,
    /// The client address field. A server compares it with the packet's source.
    pub client: IpAddr,
}

impl Header {
    /// Reads the header of a request in the order of RFC 6887 §8.2: the bit of responses, the version, the length of the header,
    /// the size of the message. A server compares [`client`](Self::client) with the source before it reads the rest.
    ///
    /// # Errors
    /// [`DecodeError`] names the first fault in this order.
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(octets);
        let version = r.u8().map_err(short("version"))?;
        let kind = r.u8().map_err(short("opcode"))?;
        if kind & RESPONSE != 0 {
            return Err(DecodeError::Direction { response: true });
        }
        if version != VERSION {
            return Err(DecodeError::Version { found: version });
        }
        r.u16().map_err(short("reserved"))?;
        let lifetime = r.u32().map_err(short("lifetime"))?;
        let client = r.array().map_err(short("client address"))?;
        if octets.len() > MAX_OCTETS || !octets.len().is_multiple_of(4) {
            return Err(DecodeError::Size { octets: octets.len() });
        }
        Ok(Self { opcode: Opcode(kind), lifetime, client: address::read(client) })
    }
}

/// What a MAP request or response is about, RFC 6887 §11.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Map {
    /// What the client proves with that the mapping is its own.
    pub nonce: [u8; 12],
    /// IP protocol; 0 stands for all.
    pub protocol: u8,
    /// Port of the client; 0 stands for all ports.
    pub internal_port: u16,
    /// The suggested external address and port of a request, the assigned ones of a response. An address without a bit
    /// set means that any will do, port 0 likewise.
    pub external: SocketAddr,
}

/// What a PEER request or response is about, RFC 6887 §12.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The part that MAP has, too.
    pub map: Map,
    /// Address and port of the remote peer.
    pub remote: SocketAddr,
}

/// What stands behind the header, without options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    Announce,
    /// A mapping.
    Map(Map),
    /// A mapping for a flow to one peer.
    Peer(Peer),
}

impl Body {
    /// The opcode that has such a body.
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Announce => Opcode::ANNOUNCE,
            Self::Map(_) => Opcode::MAP,
            Self::Peer(_) => Opcode::PEER,
        }
    }

    fn parse(opcode: Opcode, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match opcode {
            Opcode::ANNOUNCE => Ok(Self::Announce),
            Opcode::MAP => Ok(Self::Map(Map::parse(r)?)),
            Opcode::PEER => {
                let map = Map::parse(r)?;
                let port = r.u16().map_err(short("remote port"))?;
                r.u16().map_err(short("reserved"))?;
                let remote = r.array().map_err(short("remote address"))?;
                Ok(Self::Peer(Peer { map, remote: SocketAddr::new(address::read(remote), port) }))
            }
            found => Err(DecodeError::Opcode { found }),
        }
    }

    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Announce => {}
            Self::Map(map) => map.encode(w),
            Self::Peer(peer) => {
                peer.map.encode(w);
                w.u16(peer.remote.port());
                w.u16(0);
                w.bytes(&address::octets(peer.remote.ip()));
            }
        }
    }
}

impl Map {
    fn parse(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let nonce = r.array().map_err(short("nonce"))?;
        let [protocol, _, _, _] = r.array().map_err(short("protocol"))?;
        let internal_port = r.u16().map_err(short("internal port"))?;
        let port = r.u16().map_err(short("external port"))?;
        let external = r.array().map_err(short("external address"))?;
        Ok(Self { nonce, protocol, internal_port, external: SocketAddr::new(address::read(external), port) })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.nonce);
        w.bytes(&[self.protocol, 0, 0, 0]);
        w.u16(self.internal_port);
        w.u16(self.external.port());
        w.bytes(&address::octets(self.external.ip()));
    }
}

/// A PCP request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Requested lifetime of the mapping in seconds; 0 deletes it.
    pub lifetime: u32,
    /// The client address field: the address of the host that sends.
    pub client: IpAddr,
    /// What it is about.
    pub body: Body,
    /// The options, each with a length that fits.
    pub options: Options<'a>,
}

impl<'a> Request<'a> {
    /// Reads a request. What may stand in reserved fields is ignored.
    ///
    /// # Errors
    /// [`DecodeError`] names the first fault in the order of RFC 6887 §8.2.
    pub fn parse(octets: &'a [u8]) -> Result<Self, DecodeError> {
        let Header { opcode, lifetime, client } = Header::parse(octets)?;
        let mut r = Reader::new(octets);
        r.take(HEADER_OCTETS).map_err(short("header"))?;
        let body = Body::parse(opcode, &mut r)?;
        Ok(Self { lifetime, client, body, options: Options::parse(&mut r)? })
    }

    /// Appends the request.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&[VERSION, self.body.opcode().0, 0, 0]);
        w.u32(self.lifetime);
        w.bytes(&address::octets(self.client));
        self.body.encode(w);
        self.options.encode(w);
    }
}

/// A PCP response, or an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// The result.
    pub result: ResultCode,
    /// Lifetime in seconds: of the mapping, or of the error.
    pub lifetime: u32,
    /// Seconds since the server lost its mappings.
    pub epoch: u32,
    /// What it is about. An error repeats what the request had.
    pub body: Body,
    /// Of a success: the options that were processed. Of an error: all of the request.
    pub options: Options<'a>,
}

impl<'a> Response<'a> {
    /// Reads a response.
    ///
    /// # Errors
    /// [`DecodeError`]; an error response to a request that the server could not read may have no body that can be read.
    pub fn parse(octets: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(octets);
        let version = r.u8().map_err(short("version"))?;
        let kind = r.u8().map_err(short("opcode"))?;
        if kind & RESPONSE == 0 {
            return Err(DecodeError::Direction { response: false });
        }
        if version != VERSION {
            return Err(DecodeError::Version { found: version });
        }
        let [_, result] = r.array().map_err(short("result"))?;
        let lifetime = r.u32().map_err(short("lifetime"))?;
        let epoch = r.u32().map_err(short("epoch"))?;
        r.take(12).map_err(short("reserved"))?;
        if octets.len() > MAX_OCTETS || !octets.len().is_multiple_of(4) {
            return Err(DecodeError::Size { octets: octets.len() });
        }
        let body = Body::parse(Opcode(kind & !RESPONSE), &mut r)?;
        Ok(Self { result: ResultCode(result), lifetime, epoch, body, options: Options::parse(&mut r)? })
    }

    /// Appends the response.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&[VERSION, self.body.opcode().0 | RESPONSE, 0, self.result.0]);
        w.u32(self.lifetime);
        w.u32(self.epoch);
        w.bytes(&[0; 12]);
        self.body.encode(w);
        self.options.encode(w);
    }
}

/// Appends an error response: a copy of the request with the header of a response (RFC 6887 §7.3, §8.2). What exceeds
/// [`MAX_OCTETS`] is cut off, and what is no whole word is filled up with zeros.
///
/// `parsed` says whether the request could be read. Otherwise 12 octets of its client address stay where they were (§7.2).
pub fn refusal(
    request: &[u8],
    parsed: bool,
    result: ResultCode,
    lifetime: u32,
    epoch: u32,
    w: &mut Writer<'_>,
) {
    let request = request.get(..MAX_OCTETS).unwrap_or(request);
    let opcode = request.get(1).copied().unwrap_or_default();
    w.bytes(&[VERSION, opcode | RESPONSE, 0, result.0]);
    w.u32(lifetime);
    w.u32(epoch);
    let reserved = if parsed { None } else { request.get(12..) };
    let reserved = reserved.map_or(&[][..], |rest| rest.get(..12).unwrap_or(rest));
    w.bytes(reserved);
    // A header is whole, also in the answer to a request of two octets.
    while w.len() < HEADER_OCTETS {
        w.u8(0);
    }
    w.bytes(request.get(HEADER_OCTETS..).unwrap_or_default());
    w.pad_to(4);
}
