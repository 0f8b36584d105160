//! Sides, addresses and MTUs of this node.

use core::net::{IpAddr, Ipv4Addr};

use signalbox_core::IfIndex;
use signalbox_core::node::Interface;

use super::config::Config;

/// The side of the NAT that an interface belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Inside,
    Outside,
}

#[derive(Debug)]
struct InterfaceEntry {
    ifindex: IfIndex,
    side: Option<Side>,
    mtu: u32,
    address: Option<IpAddr>,
}

/// The interfaces of the node.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    all: Vec<InterfaceEntry>,
    own: Vec<IpAddr>,
    external: Option<Ipv4Addr>,
}

impl Interfaces {
    /// Replaces all interfaces.
    pub(super) fn set(&mut self, interfaces: &[Interface], config: &Config) {
        let v4 =
            |interface: &Interface| interface.addresses.iter().find(|address| address.is_ipv4()).copied();
        let one = |interface: &Interface| InterfaceEntry {
            ifindex: interface.ifindex,
            side: if config.inside.contains(&interface.name) {
                Some(Side::Inside)
            } else {
                config.outside.contains(&interface.name).then_some(Side::Outside)
            },
            mtu: interface.mtu,
            address: v4(interface),
        };
        self.all = interfaces.iter().map(one).collect();
        self.own = interfaces.iter().flat_map(|interface| interface.addresses.iter().copied()).collect();
        let first = config.outside.iter().find_map(|name| {
            match v4(interfaces.iter().find(|interface| interface.name == *name)?)? {
                IpAddr::V4(v4) => Some(v4),
                IpAddr::V6(_) => None,
            }
        });
        self.external = config.external.or(first);
    }

    pub(super) fn side(&self, ifindex: IfIndex) -> Option<Side> {
        self.all.iter().find(|one| one.ifindex == ifindex)?.side
    }

    /// The number of interfaces that are on a side.
    pub(super) fn with_side(&self) -> u32 {
        u32::try_from(self.all.iter().filter(|one| one.side.is_some()).count()).unwrap_or(u32::MAX)
    }

    pub(super) const fn external(&self) -> Option<Ipv4Addr> {
        self.external
    }

    /// Whether the node has this address.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.own.contains(&address) || self.external.is_some_and(|external| address == IpAddr::V4(external))
    }

    /// The smallest MTU on a side.
    pub(super) fn mtu(&self, side: Side) -> u32 {
        let of_side = self.all.iter().filter(|one| one.side == Some(side));
        of_side.map(|one| one.mtu).min().unwrap_or(1500)
    }

    /// The IPv4 address of an interface.
    pub(super) fn address(&self, ifindex: IfIndex) -> Option<IpAddr> {
        self.all.iter().find(|one| one.ifindex == ifindex)?.address
    }
}
