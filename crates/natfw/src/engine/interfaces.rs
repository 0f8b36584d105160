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
    /// Addresses by which the node names itself.
    names: Vec<(IfIndex, IpAddr)>,
    by_name: Vec<(String, IfIndex)>,
}

impl Interfaces {
    /// Replaces all interfaces.
    pub(super) fn set(&mut self, interfaces: &[Interface], config: &Config) {
        let inside = interfaces.iter().filter(|interface| config.inside.contains(&interface.name));
        self.inside = inside.map(|interface| interface.ifindex).collect();
        self.external = config.external.or_else(|| external_address(interfaces, &config.outside));
        let named = interfaces
            .iter()
            .flat_map(|interface| interface.addresses.iter().map(|address| (interface.ifindex, *address)));
        self.names = named.filter(|(_, address)| is_name(*address)).collect();
        self.by_name =
            interfaces.iter().map(|interface| (interface.name.clone(), interface.ifindex)).collect();
        self.own = interfaces.iter().flat_map(|interface| interface.addresses.iter().copied()).collect();
    }

    /// The side of an interface. One that is in no list counts as outside, where less is allowed.
    pub(super) fn side(&self, ifindex: IfIndex) -> Side {
        if self.inside.contains(&ifindex) { Side::Inside } else { Side::Outside }
    }

    /// The interface of this name.
    pub(super) fn index(&self, name: &str) -> Option<IfIndex> {
        self.by_name.iter().find(|(known, _)| known == name).map(|(_, ifindex)| *ifindex)
    }

    /// The address of a NAT on its external side.
    pub(super) const fn external(&self) -> Option<Ipv4Addr> {
        self.external
    }

    /// The address by which this node names itself to a peer: that of the interface towards it, else another one of the IP version.
    pub(super) fn address(&self, ifindex: Option<IfIndex>, ipv4: bool) -> Option<IpAddr> {
        let mut like = self.names.iter().filter(|(_, address)| address.is_ipv4() == ipv4);
        let first = like.clone().next();
        like.find(|(of, _)| Some(*of) == ifindex).or(first).map(|(_, address)| *address)
    }

    /// Whether the node has this address.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.own.contains(&address) || self.external.is_some_and(|external| address == IpAddr::V4(external))
    }
}

/// Whether other nodes can use an address: it is none of a link, or of this host only.
fn is_name(address: IpAddr) -> bool {
    let of_link = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !of_link && !address.is_loopback() && !address.is_unspecified()
}
