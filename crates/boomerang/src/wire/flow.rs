//! The flow specification (§3.2.2): a classifier, and a mask of the same layout.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_wire::{Reader, Short, Writer};

use super::code_points::Family;

/// Fields of packets, or a mask over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Classifier {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// IP protocol of the data.
    pub protocol: u8,
    /// PHB of the flow: its code point in the upper six bits.
    pub tos: u8,
    /// Not defined: sent as 0, ignored.
    pub flags: u16,
}

impl Classifier {
    /// The same packets in the other direction: addresses and ports exchanged.
    #[must_use]
    pub const fn inverted(self) -> Self {
        Self { src: self.dst, dst: self.src, src_port: self.dst_port, dst_port: self.src_port, ..self }
    }

    // BOOM-3.2.2-06
    fn parse(r: &mut Reader<'_>, ipv6: bool) -> Result<Self, Short> {
        let mut address = || -> Result<IpAddr, Short> {
            Ok(if ipv6 {
                Ipv6Addr::from(r.array::<16>()?).into()
            } else {
                Ipv4Addr::from(r.array::<4>()?).into()
            })
        };
        let (src, dst) = (address()?, address()?);
        Ok(Self {
            src,
            dst,
            src_port: r.u16()?,
            dst_port: r.u16()?,
            protocol: r.u8()?,
            tos: r.u8()?,
            flags: r.u16()?,
        })
    }

    // BOOM-3.2.2-02, BOOM-3.2.2-03
    fn encode(&self, w: &mut Writer<'_>) {
        for address in [self.src, self.dst] {
            match address {
                IpAddr::V4(v4) => w.bytes(&v4.octets()),
                IpAddr::V6(v6) => w.bytes(&v6.octets()),
            }
        }
        w.u16(self.src_port);
        w.u16(self.dst_port);
        w.u8(self.protocol);
        w.u8(self.tos);
        w.u16(self.flags);
    }
}

/// The packets of a flow. It describes packets that travel from the initiating node to the far end.
///
/// A set bit of the mask means "ignore": a mask of zeros is an exact match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowSpec {
    /// The fields of the packets.
    pub classifier: Classifier,
    /// The bits of these fields that do not count.
    pub mask: Classifier,
}

impl FlowSpec {
    /// Packets of one 5-tuple, with any tos octet.
    #[must_use]
    pub const fn exact(classifier: Classifier) -> Self {
        let zero: IpAddr = match classifier.src {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let mask = Classifier {
            src: zero,
            dst: zero,
            src_port: 0,
            dst_port: 0,
            protocol: 0,
            tos: 0xff,
            flags: u16::MAX,
        };
        Self { classifier, mask }
    }

    /// Family of its addresses.
    #[must_use]
    pub const fn family(&self) -> Family {
        if self.classifier.src.is_ipv4() { Family::IPV4 } else { Family::IPV6 }
    }

    /// Octets of a flow specification of this family; `None`: the family is unknown.
    #[must_use]
    pub const fn octets(family: Family) -> Option<usize> {
        match family {
            Family::IPV4 => Some(32),
            Family::IPV6 => Some(80),
            _ => None,
        }
    }

    /// The same packets in the other direction.
    #[must_use]
    pub const fn inverted(self) -> Self {
        Self { classifier: self.classifier.inverted(), mask: self.mask.inverted() }
    }

    pub(super) fn parse(r: &mut Reader<'_>, ipv6: bool) -> Result<Self, Short> {
        Ok(Self { classifier: Classifier::parse(r, ipv6)?, mask: Classifier::parse(r, ipv6)? })
    }

    // BOOM-3.2.2-01
    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        self.classifier.encode(w);
        self.mask.encode(w);
    }
}
