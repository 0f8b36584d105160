//! Values of the objects (RFC 5973 §4.2.2–4.2.9).

use core::net::Ipv4Addr;

use signalbox_wire::{Reader, Writer};

use super::code_points::{Info, InfoClass, ObjectType, RuleAction};
use super::object::Object;
use crate::error::DecodeError;

/// Addresses that [`Bindings`] takes at most. A path has few NATs; a peer chooses the number.
pub const MAX_BINDINGS: usize = 64;

/// NATFW_EXTERNAL_IP: the external address of an edge-NAT (RFC 5973 §4.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExternalAddress {
    /// The address. The object has no IPv6 form.
    pub address: Ipv4Addr,
    /// The port; `None` (0 in the message): only an address is reserved.
    pub port: Option<u16>,
}

/// Octets before the addresses: port, IP version and reserved bits.
fn port_and_version(object: &Object<'_>, r: &mut Reader<'_>) -> Result<Option<u16>, DecodeError> {
    let port = r.u16().map_err(|_| object.wrong_length())?;
    let version = r.u16().map_err(|_| object.wrong_length())? >> 12;
    if version != 4 {
        return Err(object.error(Info::UNKNOWN_VALUE, "IP-Ver", 2));
    }
    Ok(Some(port).filter(|port| *port != 0))
}

fn write_port_and_version(w: &mut Writer<'_>, port: Option<u16>) {
    w.u16(port.unwrap_or(0));
    w.u16(4 << 12);
}

impl ExternalAddress {
    pub(super) fn parse(object: &Object<'_>) -> Result<Self, DecodeError> {
        let octets: [u8; 8] = object.exactly()?;
        let mut r = Reader::new(&octets);
        let port = port_and_version(object, &mut r)?;
        let address = r.array::<4>().map_err(|_| object.wrong_length())?;
        Ok(Self { address: address.into(), port })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        write_port_and_version(w, self.port);
        w.bytes(&self.address.octets());
    }
}

/// NATFW_EXTERNAL_BINDING: external addresses of the NATs on the path (RFC 5973 §4.2.3). The object has one port for
/// all of them; it is that of the NAT that was added last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bindings<'a> {
    /// The port; `None` (0 in the message): only addresses are reserved.
    pub port: Option<u16>,
    /// The addresses, in the order of the NATs, 4 octets each.
    addresses: &'a [u8],
}

impl<'a> Bindings<'a> {
    /// The object of a data receiver that asks for the addresses: no address yet.
    pub const EMPTY: Bindings<'static> = Bindings { port: None, addresses: &[] };

    /// An object with these addresses, 4 octets each. Further octets, and further addresses than [`MAX_BINDINGS`], are
    /// left out.
    #[must_use]
    pub fn of(port: Option<u16>, addresses: &'a [u8]) -> Self {
        let whole = addresses.len().min(MAX_BINDINGS * 4) / 4 * 4;
        Self { port, addresses: addresses.get(..whole).unwrap_or_default() }
    }

    /// The octets of the addresses.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.addresses
    }

    /// The addresses.
    pub fn iter(&self) -> impl Iterator<Item = Ipv4Addr> + use<'a> {
        self.addresses.as_chunks::<4>().0.iter().map(|octets| Ipv4Addr::from(*octets))
    }

    pub(super) fn parse(object: &Object<'a>) -> Result<Self, DecodeError> {
        let mut r = Reader::new(object.value);
        let port = port_and_version(object, &mut r)?;
        let addresses = r.take_rest();
        if addresses.len() > MAX_BINDINGS * 4 {
            return Err(object.wrong_length());
        }
        Ok(Self { port, addresses })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        write_port_and_version(w, self.port);
        w.bytes(self.addresses);
    }
}

/// NATFW_EFI: action of the policy rule, and the number of further ports (RFC 5973 §4.2.4). Any value parses, because
/// wrong ones are failures of the session, not of the syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowInfo {
    /// The action.
    pub action: RuleAction,
    /// 1: the rule is also for the port that follows the one of the flow.
    pub sub_ports: u16,
}

impl FlowInfo {
    /// Allows the flow, one port.
    pub const ALLOW: Self = Self { action: RuleAction::ALLOW, sub_ports: 0 };
    /// Blocks the flow, one port.
    pub const DENY: Self = Self { action: RuleAction::DENY, sub_ports: 0 };

    pub(super) fn parse(object: &Object<'_>) -> Result<Self, DecodeError> {
        let [a, b, c, d] = object.exactly()?;
        Ok(Self { action: RuleAction(u16::from_be_bytes([a, b])), sub_ports: u16::from_be_bytes([c, d]) })
    }

    pub(super) fn write(self, w: &mut Writer<'_>) {
        w.u16(self.action.0);
        w.u16(self.sub_ports);
    }
}

/// NATFW_INFO: class and code, and the object that is concerned (RFC 5973 §4.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Information {
    /// Class and code.
    pub info: Info,
    /// The object concerned; `None`: none is.
    pub object: Option<ObjectType>,
}

impl From<Info> for Information {
    fn from(info: Info) -> Self {
        Self { info, object: None }
    }
}

impl Information {
    pub(super) fn parse(object: &Object<'_>) -> Result<Self, DecodeError> {
        let [class, code, high, low] = object.exactly()?;
        let concerned = u16::from_be_bytes([high, low]) & 0xfff;
        let info = Info { class: InfoClass(class & 0x0f), code };
        Ok(Self { info, object: (concerned != 0).then_some(ObjectType(concerned)) })
    }

    pub(super) fn write(self, w: &mut Writer<'_>) {
        w.u8(self.info.class.0 & 0x0f);
        w.u8(self.info.code);
        w.u16(self.object.map_or(0, |object| object.0 & 0xfff));
    }
}

/// Ports of a flow in NATFW_DTINFO; 0 in the message is a wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ports {
    /// Port of the data receiver.
    pub receiver: Option<u16>,
    /// Port of the data sender.
    pub sender: Option<u16>,
}

/// What distinguishes flows above the IP protocol in NATFW_DTINFO: ports (P) or an SPI (S), never both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TerminalPorts {
    /// P=1.
    Ports(Ports),
    /// S=1: security parameter index of IPsec.
    Spi(u32),
}

/// NATFW_DTINFO: protocol, ports and sender of the data (RFC 5973 §4.2.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DataTerminal {
    /// IP protocol, and ports or SPI, which need it; `None` (I=0): the protocol is not given.
    pub transport: Option<(u8, Option<TerminalPorts>)>,
    /// Address of the data sender, with the number of significant bits; a length of 0 is a wildcard.
    pub sender: (Ipv4Addr, u8),
}

impl DataTerminal {
    const I: u8 = 0x80;
    const P: u8 = 0x40;
    const S: u8 = 0x20;

    /// A receiver of this protocol at this port, from any sender.
    #[must_use]
    pub const fn receiver(protocol: u8, port: u16) -> Self {
        let ports = Ports { receiver: if port == 0 { None } else { Some(port) }, sender: None };
        Self {
            transport: Some((protocol, Some(TerminalPorts::Ports(ports)))),
            sender: (Ipv4Addr::UNSPECIFIED, 0),
        }
    }

    /// The IP protocol.
    #[must_use]
    pub const fn protocol(&self) -> Option<u8> {
        match self.transport {
            Some((protocol, _)) => Some(protocol),
            None => None,
        }
    }

    /// The ports; wildcards if there are none.
    #[must_use]
    pub const fn ports(&self) -> Ports {
        match self.transport {
            Some((_, Some(TerminalPorts::Ports(ports)))) => ports,
            _ => Ports { receiver: None, sender: None },
        }
    }

    /// The SPI.
    #[must_use]
    pub const fn spi(&self) -> Option<u32> {
        match self.transport {
            Some((_, Some(TerminalPorts::Spi(spi)))) => Some(spi),
            _ => None,
        }
    }

    pub(super) fn parse(object: &Object<'_>) -> Result<Self, DecodeError> {
        let mut r = Reader::new(object.value);
        let short = |_| object.wrong_length();
        let [flags, _, prefix, protocol] = r.array().map_err(short)?;
        let set = |flag: u8| flags & flag != 0;
        // §4.2.8: P and S exclude each other, and both need I.
        if set(Self::P) && set(Self::S) || (set(Self::P) || set(Self::S)) && !set(Self::I) {
            return Err(object.error(Info::FLAG_COMBINATION, "I, P and S flags", 0));
        }
        let given = |port: u16| Some(port).filter(|port| *port != 0);
        let ports = if set(Self::P) {
            let (receiver, sender) = (r.u16().map_err(short)?, r.u16().map_err(short)?);
            Some(TerminalPorts::Ports(Ports { receiver: given(receiver), sender: given(sender) }))
        } else if set(Self::S) {
            Some(TerminalPorts::Spi(r.u32().map_err(short)?))
        } else {
            None
        };
        let address = r.array::<4>().map_err(short)?;
        if !r.is_empty() {
            return Err(object.wrong_length());
        }
        if prefix > 32 {
            return Err(object.error(Info::UNKNOWN_VALUE, "sender prefix", 2));
        }
        // With a prefix of 0 the address has no meaning.
        let address = if prefix == 0 { Ipv4Addr::UNSPECIFIED } else { address.into() };
        Ok(Self { transport: set(Self::I).then_some((protocol, ports)), sender: (address, prefix) })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        let (protocol, ports) = self.transport.map_or((0, None), |(protocol, ports)| (protocol, ports));
        let flags = match (self.transport, ports) {
            (None, _) => 0,
            (Some(_), None) => Self::I,
            (Some(_), Some(TerminalPorts::Ports(_))) => Self::I | Self::P,
            (Some(_), Some(TerminalPorts::Spi(_))) => Self::I | Self::S,
        };
        let (address, prefix) = self.sender;
        w.bytes(&[flags, 0, prefix, protocol]);
        match ports {
            Some(TerminalPorts::Ports(ports)) => {
                w.u16(ports.receiver.unwrap_or(0));
                w.u16(ports.sender.unwrap_or(0));
            }
            Some(TerminalPorts::Spi(spi)) => w.u32(spi),
            None => {}
        }
        // §4.2.8: 0 if no address is given.
        let address = if prefix == 0 { Ipv4Addr::UNSPECIFIED } else { address };
        w.bytes(&address.octets());
    }
}

/// NATFW_ICMP_TYPES: the types of ICMP messages that a rule is for (RFC 5973 §4.2.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpTypes<'a>(&'a [u8]);

impl<'a> IcmpTypes<'a> {
    /// The object with these types. Those beyond 255 are left out.
    #[must_use]
    pub fn of(types: &'a [u8]) -> Self {
        Self(types.get(..types.len().min(255)).unwrap_or_default())
    }

    /// The types.
    #[must_use]
    pub const fn types(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn parse(object: &Object<'a>) -> Result<Self, DecodeError> {
        let (count, rest) = object.value.split_first().ok_or_else(|| object.wrong_length())?;
        let count = usize::from(*count);
        if object.value.len() != (count + 1).next_multiple_of(4) {
            return Err(object.wrong_length());
        }
        Ok(Self(rest.get(..count).unwrap_or_default()))
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u8(u8::try_from(self.0.len()).unwrap_or(u8::MAX));
        w.bytes(self.0);
    }
}
