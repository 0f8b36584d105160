//! PACKET_FILTER and NAT_OBJECT: packets, with lists of protocols, ports and SPIs.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_core::node::Prefix;
use signalbox_wire::{Reader, Short, Writer};

/// A flow-label word follows the addresses.
const LABEL: u8 = 0x80;
/// Protocols that have ports.
pub(crate) const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// ESP and AH.
const IPSEC: [u8; 2] = [50, 51];

/// A packet filter. An empty list stands for any value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NatfwFilter {
    /// Source addresses.
    pub src: Prefix,
    /// Destination addresses, of the same IP version.
    pub dst: Prefix,
    /// IPv6 flow label.
    pub flow_label: Option<u32>,
    /// IP protocols.
    pub protocols: Vec<u8>,
    /// Source ports, first and last of each range.
    pub src_ports: Vec<(u16, u16)>,
    /// Destination ports.
    pub dst_ports: Vec<(u16, u16)>,
    /// Security parameter indexes.
    pub spis: Vec<u32>,
}

impl NatfwFilter {
    /// Reads the contents of the object; `None`: they contradict themselves.
    #[must_use]
    pub fn parse(contents: &[u8]) -> Option<Self> {
        let mut r = Reader::new(contents);
        let filter = Self::read(&mut r).ok().flatten()?;
        (r.is_empty() && filter.is_valid()).then_some(filter)
    }

    fn read(r: &mut Reader<'_>) -> Result<Option<Self>, Short> {
        let [version, src_len, dst_len, flags] = r.array()?;
        let mut address = || {
            Ok(Some(match version {
                4 => IpAddr::V4(Ipv4Addr::from(r.array::<4>()?)),
                6 => IpAddr::V6(Ipv6Addr::from(r.array::<16>()?)),
                _ => return Ok(None),
            }))
        };
        let (Some(src), Some(dst)) = (address()?, address()?) else { return Ok(None) };
        let flow_label = if flags & LABEL != 0 { Some(r.u32()? & 0x000f_ffff) } else { None };
        let [protocols, src_ports, dst_ports, spis] = r.array()?;
        let protocols = r.take(protocols.into())?.to_vec();
        r.take(protocols.len().next_multiple_of(4) - protocols.len())?;
        let mut ranges =
            |count: u8| (0..count).map(|_| Ok((r.u16()?, r.u16()?))).collect::<Result<Vec<_>, Short>>();
        let (src_ports, dst_ports) = (ranges(src_ports)?, ranges(dst_ports)?);
        let spis = (0..spis).map(|_| r.u32()).collect::<Result<Vec<_>, Short>>()?;
        let (src, dst) = (Prefix { addr: src, len: src_len }, Prefix { addr: dst, len: dst_len });
        Ok(Some(Self { src, dst, flow_label, protocols, src_ports, dst_ports, spis }))
    }

    /// Whether the filter does not contradict itself: prefixes of one version, ports only with protocols that have them,
    /// SPIs only with ESP and AH, ranges in order.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let most = if self.src.addr.is_ipv4() { 32 } else { 128 };
        let prefixes = self.src.addr.is_ipv4() == self.dst.addr.is_ipv4()
            && self.src.len <= most
            && self.dst.len <= most;
        let all_of = |allowed: &[u8]| {
            !self.protocols.is_empty() && self.protocols.iter().all(|one| allowed.contains(one))
        };
        let no_ports = self.src_ports.is_empty() && self.dst_ports.is_empty();
        let ordered = self.src_ports.iter().chain(&self.dst_ports).all(|(low, high)| low <= high);
        let lists = [self.protocols.len(), self.src_ports.len(), self.dst_ports.len(), self.spis.len()];
        prefixes
            && ordered
            && (no_ports || all_of(&WITH_PORTS))
            && (self.spis.is_empty() || all_of(&IPSEC))
            && lists.iter().all(|length| *length <= usize::from(u8::MAX))
    }

    /// Appends the contents of the object. Lists have at most 255 entries.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let version = if self.src.addr.is_ipv4() { 4 } else { 6 };
        w.bytes(&[version, self.src.len, self.dst.len, if self.flow_label.is_some() { LABEL } else { 0 }]);
        for address in [self.src.addr, self.dst.addr] {
            match address {
                IpAddr::V4(v4) => w.bytes(&v4.octets()),
                IpAddr::V6(v6) => w.bytes(&v6.octets()),
            }
        }
        if let Some(label) = self.flow_label {
            w.u32(label & 0x000f_ffff);
        }
        let count = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
        w.bytes(&[
            count(self.protocols.len()),
            count(self.src_ports.len()),
            count(self.dst_ports.len()),
            count(self.spis.len()),
        ]);
        let most = usize::from(u8::MAX);
        let protocols = self.protocols.get(..most).unwrap_or(&self.protocols);
        w.bytes(protocols);
        w.bytes([0; 3].get(..protocols.len().next_multiple_of(4) - protocols.len()).unwrap_or_default());
        for (low, high) in self.src_ports.iter().take(most).chain(self.dst_ports.iter().take(most)) {
            w.u16(*low);
            w.u16(*high);
        }
        self.spis.iter().take(most).for_each(|spi| w.u32(*spi));
    }
}
