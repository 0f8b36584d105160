//! Addresses of the node that its records contain.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_core::IfIndex;
use signalbox_core::node::Interface;

/// For each interface one address of each IP version.
#[derive(Debug, Default)]
pub(super) struct Interfaces(Vec<(IfIndex, Option<Ipv4Addr>, Option<Ipv6Addr>)>);

impl Interfaces {
    /// Replaces all interfaces.
    pub(super) fn set(&mut self, interfaces: &[Interface]) {
        self.0.clear();
        for interface in interfaces {
            let v4 = interface.addresses.iter().find_map(|a| match a {
                IpAddr::V4(v4) => Some(*v4),
                IpAddr::V6(_) => None,
            });
            let v6 = || {
                interface.addresses.iter().filter_map(|a| match a {
                    IpAddr::V6(v6) => Some(*v6),
                    IpAddr::V4(_) => None,
                })
            };
            // A link-local address has no meaning on other links.
            let global = v6().find(|a| !a.is_unicast_link_local()).or_else(|| v6().next());
            self.0.push((interface.ifindex, v4, global));
        }
        self.0.sort_unstable_by_key(|(ifindex, ..)| *ifindex);
    }

    /// The address of the node on an interface, of the same IP version as `like`. Unspecified if the interface has no
    /// such address.
    pub(super) fn on(&self, ifindex: IfIndex, like: IpAddr) -> IpAddr {
        let found = self.0.binary_search_by_key(&ifindex, |(i, ..)| *i).ok().and_then(|at| self.0.get(at));
        match (like, found) {
            (IpAddr::V4(_), Some((_, Some(v4), _))) => IpAddr::V4(*v4),
            (IpAddr::V6(_), Some((_, _, Some(v6)))) => IpAddr::V6(*v6),
            (IpAddr::V4(_), _) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            (IpAddr::V6(_), _) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }

    /// Whether records of this node may have this address.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|(_, v4, v6)| match address {
            IpAddr::V4(address) => *v4 == Some(address),
            IpAddr::V6(address) => *v6 == Some(address),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_global_address_is_preferred() {
        let mut interfaces = Interfaces::default();
        let interface = |n: u32, list: &[&str]| Interface {
            ifindex: IfIndex(n),
            name: format!("eth{n}"),
            up: true,
            mtu: 1500,
            tunnel: false,
            addresses: list.iter().map(|a| a.parse().unwrap()).collect(),
        };
        interfaces.set(&[interface(7, &["fe80::1", "2001:db8::1", "192.0.2.1"]), interface(3, &["fe80::2"])]);
        let (v4, v6) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
        assert_eq!(interfaces.on(IfIndex(7), v6).to_string(), "2001:db8::1");
        assert_eq!(interfaces.on(IfIndex(7), v4).to_string(), "192.0.2.1");
        assert_eq!(interfaces.on(IfIndex(3), v6).to_string(), "fe80::2");
        assert_eq!(interfaces.on(IfIndex(3), v4).to_string(), "0.0.0.0");
        assert_eq!(interfaces.on(IfIndex(4), v6).to_string(), "::");
    }
}
