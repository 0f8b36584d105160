//! The objects of RFC 2205 Appendix A and RFC 2207 §3 as values.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::code_points::{Class, ErrorCode, ErrorFlags};
use super::object::{ObjectType, RawObject};
use crate::error::{DecodeError, Fault};

/// How the packets of a session are classified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SessionKind {
    /// By UDP or TCP port (RFC 2205).
    Ports,
    /// By IPsec SPI; the session has a virtual port (RFC 2207).
    Gpi,
}

/// SESSION (RFC 2205 Appendix A.1). The E_Police flag does not identify a session and is a field of the
/// [`Message`](super::Message).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Session {
    /// Destination of the data, unicast or multicast; not zero.
    pub dest: IpAddr,
    /// IP protocol of the data; not zero.
    pub protocol: u8,
    /// Kind of the port.
    pub kind: SessionKind,
    /// DstPort, 0 for none; or the virtual vDstPort.
    pub port: u16,
}

impl Session {
    /// Flag of the SESSION object: no node policed the flow so far (RFC 2205 §3.8).
    pub(crate) const E_POLICE: u8 = 0x01;

    /// Parses a SESSION, with its E_Police flag.
    pub(crate) fn parse(object: &RawObject<'_>) -> Result<(Self, bool), DecodeError> {
        let (dest, [protocol, flags, p1, p0]) = match object.kind.c_type {
            1 | 3 => v4_and_word(object)?,
            _ => v6_and_word(object)?,
        };
        let kind = if object.kind.c_type <= 2 { SessionKind::Ports } else { SessionKind::Gpi };
        if dest.is_unspecified() || protocol == 0 {
            return Err(object.error(Fault::Value));
        }
        let session = Self { dest, protocol, kind, port: u16::from_be_bytes([p1, p0]) };
        Ok((session, flags & Self::E_POLICE != 0))
    }

    pub(crate) const fn c_type(&self) -> u8 {
        match (self.dest, self.kind) {
            (IpAddr::V4(_), SessionKind::Ports) => 1,
            (IpAddr::V6(_), SessionKind::Ports) => 2,
            (IpAddr::V4(_), SessionKind::Gpi) => 3,
            (IpAddr::V6(_), SessionKind::Gpi) => 4,
        }
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = match self.kind {
            SessionKind::Ports => "port",
            SessionKind::Gpi => "vport",
        };
        write!(f, "{} protocol {} {port} {}", self.dest, self.protocol, self.port)
    }
}

/// Classifier of a sender's packets beside the address. Selectors of different kinds never match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Selector {
    /// SrcPort; 0: none, which matches 0 only.
    Port(u16),
    /// IPv6 flow label, 24 bits.
    FlowLabel(u32),
    /// Generalized port identifier: the SPI of ESP or AH (RFC 2207).
    Gpi(u32),
}

/// FILTER_SPEC or SENDER_TEMPLATE (RFC 2205 Appendix A.9, A.10): the packets of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Filter {
    /// Source of the data; not zero.
    pub src: IpAddr,
    /// Port, flow label or SPI.
    pub selector: Selector,
}

impl Filter {
    /// Parses a FILTER_SPEC or SENDER_TEMPLATE (RFC 2205 Appendix A.9, A.10; RFC 2207 §3.2).
    pub(crate) fn parse(object: &RawObject<'_>) -> Result<Self, DecodeError> {
        let c_type = object.kind.c_type;
        let (src, word) = if matches!(c_type, 1 | 4) { v4_and_word(object)? } else { v6_and_word(object)? };
        if src.is_unspecified() {
            return Err(object.error(Fault::Value));
        }
        let [_, high, p1, p0] = word;
        let selector = match c_type {
            1 | 2 => Selector::Port(u16::from_be_bytes([p1, p0])),
            3 => Selector::FlowLabel(u32::from_be_bytes([0, high, p1, p0])),
            _ => Selector::Gpi(u32::from_be_bytes(word)),
        };
        Ok(Self { src, selector })
    }

    pub(crate) const fn c_type(&self) -> u8 {
        match (self.src, self.selector) {
            (IpAddr::V4(_), Selector::Port(_) | Selector::FlowLabel(_)) => 1,
            (IpAddr::V6(_), Selector::Port(_)) => 2,
            (IpAddr::V6(_), Selector::FlowLabel(_)) => 3,
            (IpAddr::V4(_), Selector::Gpi(_)) => 4,
            (IpAddr::V6(_), Selector::Gpi(_)) => 5,
        }
    }

    /// The four octets after the address. IPv4 has no flow labels: one is written as port 0.
    pub(crate) fn word(&self) -> [u8; 4] {
        match (self.src, self.selector) {
            (_, Selector::Port(port)) => u32::from(port).to_be_bytes(),
            (IpAddr::V6(_), Selector::FlowLabel(label)) => (label & 0x00ff_ffff).to_be_bytes(),
            (IpAddr::V4(_), Selector::FlowLabel(_)) => [0; 4],
            (_, Selector::Gpi(gpi)) => gpi.to_be_bytes(),
        }
    }

    /// The SrcPort; 0 for the other kinds.
    #[must_use]
    pub const fn port(&self) -> u16 {
        match self.selector {
            Selector::Port(port) => port,
            _ => 0,
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.selector {
            Selector::Port(port) => write!(f, "{} port {port}", self.src),
            Selector::FlowLabel(label) => write!(f, "{} flow label {label:#07x}", self.src),
            Selector::Gpi(gpi) => write!(f, "{} SPI {gpi:#010x}", self.src),
        }
    }
}

/// RSVP_HOP (RFC 2205 Appendix A.2): the node that sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RsvpHop {
    /// Address of its outgoing interface; a unicast address.
    pub addr: IpAddr,
    /// Logical Interface Handle: it has a meaning only for the node that put it into a Path; 0: none.
    pub lih: u32,
}

/// Hashed by hand: each Resv hashes two hops, and IPv4 takes one word.
impl Hash for RsvpHop {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.addr {
            IpAddr::V4(v4) => state.write_u64(u64::from(v4.to_bits()) << 32 | u64::from(self.lih)),
            IpAddr::V6(v6) => {
                state.write_u128(v6.to_bits());
                state.write_u32(self.lih);
            }
        }
    }
}

impl RsvpHop {
    /// Parses an RSVP_HOP (RFC 2205 Appendix A.2).
    pub(crate) fn parse(object: &RawObject<'_>) -> Result<Self, DecodeError> {
        let (addr, lih) = if object.kind.c_type == 1 { v4_and_word(object)? } else { v6_and_word(object)? };
        if !is_host(addr) {
            return Err(object.error(Fault::HopAddress));
        }
        Ok(Self { addr, lih: u32::from_be_bytes(lih) })
    }
}

/// Whether the address can be that of a node.
pub(crate) fn is_host(addr: IpAddr) -> bool {
    let broadcast = matches!(addr, IpAddr::V4(v4) if v4.is_broadcast());
    !(addr.is_unspecified() || addr.is_multicast() || broadcast)
}

/// ERROR_SPEC (RFC 2205 Appendix A.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ErrorSpec {
    /// The node that found the error.
    pub node: IpAddr,
    /// InPlace and NotGuilty.
    pub flags: ErrorFlags,
    /// Error Code.
    pub code: ErrorCode,
    /// Error Value.
    pub value: u16,
}

impl ErrorSpec {
    /// Parses an ERROR_SPEC (RFC 2205 Appendix A.5).
    pub(crate) fn parse(object: &RawObject<'_>) -> Result<Self, DecodeError> {
        let (node, [flags, code, v1, v0]) =
            if object.kind.c_type == 1 { v4_and_word(object)? } else { v6_and_word(object)? };
        let value = u16::from_be_bytes([v1, v0]);
        Ok(Self { node, flags: ErrorFlags(flags), code: ErrorCode(code), value })
    }
}

impl fmt::Display for ErrorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#06x}) at {}", self.code, self.value, self.node)
    }
}

/// Reservation styles (RFC 2205 §1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Style {
    /// Wildcard filter: one reservation for all senders.
    Wf,
    /// Fixed filter: one reservation for each sender.
    Ff,
    /// Shared explicit: one reservation for the senders that are named.
    Se,
}

impl Style {
    /// The option vector, 24 bits (RFC 2205 Appendix A.7). Error 05 returns its low 16 bits.
    #[must_use]
    pub const fn option_vector(self) -> u32 {
        match self {
            Self::Wf => 0b10001,
            Self::Ff => 0b01010,
            Self::Se => 0b10010,
        }
    }

    /// The style of an option vector, by its low five bits; `None`: the style is unknown.
    #[must_use]
    pub const fn from_option_vector(vector: u32) -> Option<Self> {
        match vector & 0b11111 {
            0b10001 => Some(Self::Wf),
            0b01010 => Some(Self::Ff),
            0b10010 => Some(Self::Se),
            _ => None,
        }
    }

    /// Whether the style names its senders.
    #[must_use]
    pub const fn is_explicit(self) -> bool {
        !matches!(self, Self::Wf)
    }

    /// Whether one reservation is shared by several senders.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        !matches!(self, Self::Ff)
    }
}

impl fmt::Display for Style {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wf => "WF",
            Self::Ff => "FF",
            Self::Se => "SE",
        })
    }
}

/// SCOPE (RFC 2205 Appendix A.6): the senders of a wildcard message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope<'a> {
    ipv6: bool,
    octets: &'a [u8],
}

impl<'a> Scope<'a> {
    /// Parses a SCOPE (RFC 2205 Appendix A.6).
    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        let ipv6 = object.kind.c_type == 2;
        let octets = object.content();
        if !octets.len().is_multiple_of(if ipv6 { 16 } else { 4 }) {
            return Err(object.error(Fault::ObjectLength));
        }
        Ok(Self { ipv6, octets })
    }

    /// The addresses in the order received; it should be ascending.
    pub fn senders(&self) -> impl Iterator<Item = IpAddr> + use<'a> {
        addresses(self.ipv6, self.octets)
    }
}

/// The addresses of a list, all of one version.
pub(crate) fn addresses(ipv6: bool, octets: &[u8]) -> impl Iterator<Item = IpAddr> + use<'_> {
    let (v4, v6) = if ipv6 { (&[][..], octets) } else { (octets, &[][..]) };
    let (v4, _) = v4.as_chunks::<4>();
    let (v6, _) = v6.as_chunks::<16>();
    v4.iter()
        .map(|octets| IpAddr::V4(Ipv4Addr::from(*octets)))
        .chain(v6.iter().map(|octets| IpAddr::V6(Ipv6Addr::from(*octets))))
}

/// Parses the address of a RESV_CONFIRM (RFC 2205 Appendix A.14).
pub(crate) fn confirm(object: &RawObject<'_>) -> Result<IpAddr, DecodeError> {
    let addr = if object.kind.c_type == 1 {
        IpAddr::V4(Ipv4Addr::from(object.array::<4>()?))
    } else {
        IpAddr::V6(Ipv6Addr::from(object.array::<16>()?))
    };
    if is_host(addr) { Ok(addr) } else { Err(object.error(Fault::Value)) }
}

/// Whether the C-Type of a known class is known. That of POLICY_DATA is for policy control: the object is forwarded in
/// any case (RFC 2750 §4).
pub(crate) const fn is_known(kind: ObjectType) -> bool {
    let c_type = kind.c_type;
    match kind.class {
        Class::NULL | Class::POLICY_DATA => true,
        Class::SESSION => matches!(c_type, 1..=4),
        Class::RSVP_HOP | Class::ERROR_SPEC | Class::SCOPE | Class::RESV_CONFIRM => matches!(c_type, 1 | 2),
        Class::FILTER_SPEC | Class::SENDER_TEMPLATE => matches!(c_type, 1..=5),
        Class::FLOWSPEC | Class::SENDER_TSPEC | Class::ADSPEC => c_type == 2,
        Class::HELLO | Class::MESSAGE_ID_ACK | Class::DIAGNOSTIC | Class::ROUTE | Class::DIAG_RESPONSE => {
            matches!(c_type, 1 | 2)
        }
        Class::MESSAGE_ID_LIST => matches!(c_type, 1..=5),
        _ => c_type == 1,
    }
}

fn v4_and_word(object: &RawObject<'_>) -> Result<(IpAddr, [u8; 4]), DecodeError> {
    let [a, b, c, d, word @ ..] = object.array::<8>()?;
    Ok((IpAddr::V4(Ipv4Addr::new(a, b, c, d)), word))
}

fn v6_and_word(object: &RawObject<'_>) -> Result<(IpAddr, [u8; 4]), DecodeError> {
    let octets = object.array::<20>()?;
    match (octets.first_chunk::<16>(), octets.last_chunk::<4>()) {
        (Some(addr), Some(word)) => Ok((IpAddr::V6(Ipv6Addr::from(*addr)), *word)),
        _ => Err(object.error(Fault::ObjectLength)),
    }
}
