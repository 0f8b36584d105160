//! Sides and addresses of this node.

use core::net::{IpAddr, Ipv4Addr};

use signalbox_core::IfIndex;
use signalbox_core::node::Interface;
use signalbox_core::ports::external_address;

use super::config::Config;

/// The side of a middlebox that an interface belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Towards the protected or private network.
    Inside,
    /// Towards the other network, or not known.
    Outside,
}

/// The interfaces of the node.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    inside: Vec<IfIndex>,
    external: Option<Ipv4Addr>,
    own: Vec<IpAddr>,
}

impl Interfaces {
    /// Replaces all interfaces.
    pub(super) fn set(&mut self, interfaces: &[Interface], config: &Config) {
        let inside = interfaces.iter().filter(|interface| config.inside.contains(&interface.name));
        self.inside = inside.map(|interface| interface.ifindex).collect();
        self.external = config.external.or_else(|| external_address(interfaces, &config.outside));
        self.own = interfaces.iter().flat_map(|interface| interface.addresses.iter().copied()).collect();
    }

    /// The side of an interface. One that is in no list counts as outside, where less is allowed.
    pub(super) fn side(&self, ifindex: IfIndex) -> Side {
        if self.inside.contains(&ifindex) { Side::Inside } else { Side::Outside }
    }

    /// The address of a NAT on its external side.
    pub(super) const fn external(&self) -> Option<Ipv4Addr> {
        self.external
    }

    /// Whether the node has this address.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.own.contains(&address) || self.external.is_some_and(|external| address == IpAddr::V4(external))
    }
}
