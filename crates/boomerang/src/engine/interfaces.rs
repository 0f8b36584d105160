//! The node's interfaces: their addresses, and the small numbers by which records refer to them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_core::IfIndex;
use signalbox_core::node::Interface;

use super::config::Config;

/// Number of an interface in records. An interface keeps its number for the engine's lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Iface(u16);

impl Iface {
    /// The users of this node.
    pub(super) const LOCAL: Self = Self(u16::MAX);

    pub(super) const fn number(self) -> u16 {
        self.0
    }
}

#[derive(Debug)]
struct KnownInterface {
    ifindex: IfIndex,
    mtu: u32,
    trusted: bool,
    aggregates: bool,
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

/// All interfaces.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    known: Vec<KnownInterface>,
    /// Numbers of the interfaces, sorted by the kernel's numbers.
    by_index: Vec<(IfIndex, Iface)>,
    /// All addresses of this node, sorted.
    local: Vec<IpAddr>,
}

impl Interfaces {
    /// Takes over a whole list of interfaces.
    pub(super) fn set(&mut self, list: &[Interface], config: &Config) {
        self.local = list.iter().filter(|one| one.up).flat_map(|one| one.addresses.iter().copied()).collect();
        self.local.sort_unstable();
        for one in list {
            let v4 = one.addresses.iter().find_map(|address| match address {
                IpAddr::V4(v4) => Some(*v4),
                IpAddr::V6(_) => None,
            });
            let all_v6 = || {
                one.addresses.iter().filter_map(|address| match address {
                    IpAddr::V6(v6) => Some(*v6),
                    IpAddr::V4(_) => None,
                })
            };
            // A link-local address has no meaning on other links.
            let v6 = all_v6().find(|a| !a.is_unicast_link_local()).or_else(|| all_v6().next());
            let trusted = config.trusted.get(&one.name).copied().unwrap_or(config.trusted_elsewhere);
            let from = &config.aggregates;
            let aggregates = from.from.get(&one.name).copied().unwrap_or(from.from_elsewhere);
            let known = KnownInterface { ifindex: one.ifindex, mtu: one.mtu, trusted, aggregates, v4, v6 };
            match self.iface(one.ifindex) {
                Some(iface) => {
                    if let Some(place) = self.known.get_mut(usize::from(iface.0)) {
                        *place = known;
                    }
                }
                // There are numbers for 65535 interfaces.
                None => {
                    if let Some(iface) =
                        u16::try_from(self.known.len()).ok().map(Iface).filter(|i| *i != Iface::LOCAL)
                    {
                        self.known.push(known);
                        self.by_index.push((one.ifindex, iface));
                        self.by_index.sort_unstable();
                    }
                }
            }
        }
    }

    fn get(&self, iface: Iface) -> Option<&KnownInterface> {
        self.known.get(usize::from(iface.0))
    }

    /// The number of an interface.
    pub(super) fn iface(&self, ifindex: IfIndex) -> Option<Iface> {
        let at = self.by_index.binary_search_by_key(&ifindex, |(index, _)| *index).ok()?;
        self.by_index.get(at).map(|(_, iface)| *iface)
    }

    /// The kernel's number of an interface.
    pub(super) fn ifindex(&self, iface: Iface) -> IfIndex {
        self.get(iface).map_or(IfIndex::NONE, |known| known.ifindex)
    }

    /// Largest IP packet of an interface, octets.
    pub(super) fn mtu(&self, iface: Iface) -> u32 {
        self.get(iface).map_or(0, |known| known.mtu)
    }

    /// Whether messages that come in by the interface are interpreted.
    pub(super) fn is_trusted(&self, ifindex: IfIndex) -> bool {
        self.iface(ifindex).and_then(|iface| self.get(iface)).is_none_or(|known| known.trusted)
    }

    /// Whether aggregation options in messages that come in by the interface are of nodes of this domain.
    pub(super) fn brings_aggregates(&self, iface: Iface) -> bool {
        self.get(iface).is_some_and(|known| known.aggregates)
    }

    pub(super) fn is_local(&self, address: IpAddr) -> bool {
        self.local.binary_search(&address).is_ok()
    }

    /// An address of this node at an interface, of the version of `like`.
    pub(super) fn address(&self, iface: Iface, like: IpAddr) -> Option<IpAddr> {
        let known = self.get(iface)?;
        match like {
            IpAddr::V4(_) => known.v4.map(IpAddr::V4),
            IpAddr::V6(_) => known.v6.map(IpAddr::V6),
        }
    }
}
