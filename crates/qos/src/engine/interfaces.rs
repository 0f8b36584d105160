//! Addresses of this node that its messages contain.

use core::net::IpAddr;

use signalbox_core::IfIndex;
use signalbox_core::node::Interface;

/// The interfaces of the node, by their index.
#[derive(Debug, Default)]
pub(super) struct Interfaces(Vec<Interface>);

impl Interfaces {
    /// Replaces all interfaces.
    pub(super) fn set(&mut self, interfaces: &[Interface]) {
        self.0 = interfaces.to_vec();
        self.0.sort_unstable_by_key(|interface| interface.ifindex);
    }

    fn find(&self, ifindex: IfIndex) -> Option<&Interface> {
        let at = self.0.binary_search_by_key(&ifindex, |interface| interface.ifindex).ok()?;
        self.0.get(at)
    }

    /// The name of an interface.
    pub(super) fn name(&self, ifindex: IfIndex) -> Option<&str> {
        self.find(ifindex).map(|interface| interface.name.as_str())
    }

    /// The address of the node on an interface, of the IP version of `like`, if possible not a link-local one. If the
    /// interface has none, an address of another interface.
    pub(super) fn on(&self, ifindex: IfIndex, like: IpAddr) -> Option<IpAddr> {
        let address_of = |interface: &Interface| {
            let fits = |a: &&IpAddr| a.is_ipv4() == like.is_ipv4() && !a.is_loopback();
            let local = |a: &IpAddr| matches!(a, IpAddr::V6(v6) if v6.is_unicast_link_local());
            let all = || interface.addresses.iter().filter(fits);
            all().find(|a| !local(a)).or_else(|| all().next()).copied()
        };
        self.find(ifindex).and_then(address_of).or_else(|| self.0.iter().find_map(address_of))
    }

    /// Largest IP packet of an interface, in octets; 0 if it is not known.
    pub(super) fn mtu(&self, ifindex: IfIndex) -> u32 {
        self.find(ifindex).map_or(0, |interface| interface.mtu)
    }
}
