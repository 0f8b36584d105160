//! NAT-PMP (RFC 6886): the protocol before PCP, on the same port.

use core::net::Ipv4Addr;

use signalbox_wire::{Reader, Short, Writer};

use super::{NatPmpOpcode, NatPmpResult, RESPONSE};
use crate::NatPmpError;

/// Version of NAT-PMP.
const VERSION: u8 = 0;

const fn short(field: &'static str) -> impl Fn(Short) -> NatPmpError {
    move |short| NatPmpError::Short { field, short }
}

/// The transport protocol of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

impl Transport {
    /// The IP protocol.
    #[must_use]
    pub const fn protocol(self) -> u8 {
        match self {
            Self::Udp => 17,
            Self::Tcp => 6,
        }
    }

    const fn opcode(self) -> NatPmpOpcode {
        match self {
            Self::Udp => NatPmpOpcode::MAP_UDP,
            Self::Tcp => NatPmpOpcode::MAP_TCP,
        }
    }

    const fn of(opcode: NatPmpOpcode) -> Result<Self, NatPmpError> {
        match opcode {
            NatPmpOpcode::MAP_UDP => Ok(Self::Udp),
            NatPmpOpcode::MAP_TCP => Ok(Self::Tcp),
            found => Err(NatPmpError::Opcode { found }),
        }
    }
}

/// A request of NAT-PMP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatPmpRequest {
    /// The external address of the gateway.
    Address,
    /// A mapping, or the end of one.
    Map {
        /// The transport protocol.
        transport: Transport,
        /// Port of the host; 0 with a lifetime of 0 stands for all of its mappings of this transport.
        internal_port: u16,
        /// The port that the host wishes; 0 is no wish.
        external_port: u16,
        /// In seconds; 0 deletes the mapping.
        lifetime: u32,
    },
}

/// A response of NAT-PMP, or an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatPmpResponse {
    /// The external address of the gateway; 0.0.0.0 with an error.
    Address {
        /// The result.
        result: NatPmpResult,
        /// Seconds since the gateway lost its mappings.
        epoch: u32,
        /// The address by which other hosts reach mappings.
        address: Ipv4Addr,
    },
    /// A mapping.
    Map {
        /// The transport protocol.
        transport: Transport,
        /// The result.
        result: NatPmpResult,
        /// Seconds since the gateway lost its mappings.
        epoch: u32,
        /// Port of the host.
        internal_port: u16,
        /// The port that was given; 0 with an error, or after a deletion.
        external_port: u16,
        /// In seconds; 0 with an error, or after a deletion.
        lifetime: u32,
    },
    /// The version of the request is not supported (RFC 6886 §3.5); 8 octets with opcode 0, by the figure.
    UnsupportedVersion {
        /// Seconds since the gateway lost its mappings.
        epoch: u32,
    },
}

/// A request or a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatPmpMessage {
    /// From a host.
    Request(NatPmpRequest),
    /// From a gateway.
    Response(NatPmpResponse),
}

impl NatPmpRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// [`NatPmpError`].
    pub fn parse(octets: &[u8]) -> Result<Self, NatPmpError> {
        let mut r = Reader::new(octets);
        let kind = head(&mut r)?;
        if kind & RESPONSE != 0 {
            return Err(NatPmpError::Direction { response: true });
        }
        if NatPmpOpcode(kind) == NatPmpOpcode::ADDRESS {
            return Ok(Self::Address);
        }
        let transport = Transport::of(NatPmpOpcode(kind))?;
        r.u16().map_err(short("reserved"))?;
        let internal_port = r.u16().map_err(short("internal port"))?;
        let external_port = r.u16().map_err(short("external port"))?;
        let lifetime = r.u32().map_err(short("lifetime"))?;
        Ok(Self::Map { transport, internal_port, external_port, lifetime })
    }

    /// Appends the request.
    pub fn encode(&self, w: &mut Writer<'_>) {
        match *self {
            Self::Address => w.bytes(&[VERSION, NatPmpOpcode::ADDRESS.0]),
            Self::Map { transport, internal_port, external_port, lifetime } => {
                w.bytes(&[VERSION, transport.opcode().0, 0, 0]);
                w.u16(internal_port);
                w.u16(external_port);
                w.u32(lifetime);
            }
        }
    }
}

impl NatPmpResponse {
    /// Reads a response.
    ///
    /// # Errors
    /// [`NatPmpError`].
    pub fn parse(octets: &[u8]) -> Result<Self, NatPmpError> {
        let mut r = Reader::new(octets);
        let kind = head(&mut r)?;
        let head = (|| Ok::<_, Short>((r.u16()?, r.u32()?)))();
        if kind & RESPONSE == 0 {
            // The answer to an unsupported version has the opcode of a request.
            return match head {
                Ok((result, epoch))
                    if NatPmpResult(result) == NatPmpResult::UNSUPPORTED_VERSION && kind == 0 =>
                {
                    Ok(Self::UnsupportedVersion { epoch })
                }
                _ => Err(NatPmpError::Direction { response: false }),
            };
        }
        let (result, epoch) = head.map_err(short("result"))?;
        let result = NatPmpResult(result);
        let opcode = NatPmpOpcode(kind & !RESPONSE);
        if opcode == NatPmpOpcode::ADDRESS {
            let address = Ipv4Addr::from(r.array::<4>().map_err(short("external address"))?);
            return Ok(Self::Address { result, epoch, address });
        }
        let transport = Transport::of(opcode)?;
        let internal_port = r.u16().map_err(short("internal port"))?;
        let external_port = r.u16().map_err(short("external port"))?;
        let lifetime = r.u32().map_err(short("lifetime"))?;
        Ok(Self::Map { transport, result, epoch, internal_port, external_port, lifetime })
    }

    /// Appends the response.
    pub fn encode(&self, w: &mut Writer<'_>) {
        match *self {
            Self::Address { result, epoch, address } => {
                w.bytes(&[VERSION, NatPmpOpcode::ADDRESS.0 | RESPONSE]);
                w.u16(result.0);
                w.u32(epoch);
                w.bytes(&address.octets());
            }
            Self::Map { transport, result, epoch, internal_port, external_port, lifetime } => {
                w.bytes(&[VERSION, transport.opcode().0 | RESPONSE]);
                w.u16(result.0);
                w.u32(epoch);
                w.u16(internal_port);
                w.u16(external_port);
                w.u32(lifetime);
            }
            Self::UnsupportedVersion { epoch } => {
                w.bytes(&[VERSION, 0]);
                w.u16(NatPmpResult::UNSUPPORTED_VERSION.0);
                w.u32(epoch);
            }
        }
    }

    /// Appends the answer to a request of an unknown opcode: the whole request with the bit of responses and result 5, which takes the
    /// octets 2 and 3 (RFC 6886 §3.5). What exceeds the most octets of PCP is cut off.
    pub fn unsupported_opcode(request: &[u8], w: &mut Writer<'_>) {
        let request = request.get(..super::MAX_OCTETS).unwrap_or(request);
        w.bytes(&[VERSION, request.get(1).copied().unwrap_or_default() | RESPONSE]);
        w.u16(NatPmpResult::UNSUPPORTED_OPCODE.0);
        w.bytes(request.get(4..).unwrap_or_default());
    }
}

impl NatPmpMessage {
    /// Reads a message of either direction.
    ///
    /// # Errors
    /// [`NatPmpError`].
    pub fn parse(octets: &[u8]) -> Result<Self, NatPmpError> {
        // An answer to an unsupported version has 8 octets, a request of this opcode 2.
        match NatPmpResponse::parse(octets) {
            Ok(response) => Ok(Self::Response(response)),
            Err(NatPmpError::Direction { .. }) => NatPmpRequest::parse(octets).map(Self::Request),
            Err(error) => Err(error),
        }
    }

    /// Appends the message.
    pub fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Request(request) => request.encode(w),
            Self::Response(response) => response.encode(w),
        }
    }
}

fn head(r: &mut Reader<'_>) -> Result<u8, NatPmpError> {
    let version = r.u8().map_err(short("version"))?;
    if version != VERSION {
        return Err(NatPmpError::Version { found: version });
    }
    r.u8().map_err(short("opcode"))
}
