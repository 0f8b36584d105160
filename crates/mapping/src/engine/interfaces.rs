//! Interfaces and addresses of this node.

use core::net::IpAddr;

use signalbox_core::IfIndex;
use signalbox_core::node::Interface;

use super::config::Config;

/// An interface at which requests are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) ifindex: IfIndex,
    /// The addresses to which requests come.
    addresses: Vec<IpAddr>,
    /// The addresses from which announcements leave, one of each IP version that it has.
    pub(super) ipv4: Option<IpAddr>,
    pub(super) ipv6: Option<IpAddr>,
}

/// The interfaces of the node.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    served: Vec<Served>,
    own: Vec<IpAddr>,
}

impl Interfaces {
    /// Replaces all interfaces.
    pub(super) fn set(&mut self, interfaces: &[Interface], config: &Config) {
        let served =
            interfaces.iter().filter(|interface| interface.up && config.interfaces.contains(&interface.name));
        self.served = served
            .map(|interface| {
                let first =
                    |ipv4: bool| interface.addresses.iter().copied().find(|one| one.is_ipv4() == ipv4);
                // An announcement of IPv6 leaves from the link's own address (RFC 6887 §14.1.3: the address of the service).
                let link = interface.addresses.iter().copied().find(|one| is_link_local_v6(*one));
                let (ifindex, addresses) = (interface.ifindex, interface.addresses.clone());
                Served { ifindex, addresses, ipv4: first(true), ipv6: link.or_else(|| first(false)) }
            })
            .collect();
        self.own = interfaces.iter().flat_map(|interface| interface.addresses.iter().copied()).collect();
    }

    /// The interfaces at which requests are accepted.
    pub(super) fn served(&self) -> &[Served] {
        &self.served
    }

    /// Whether a request that came in here from `client` to `local` is accepted: by an interface that is served, to an address of this
    /// interface, and from a host that is not this node (RFC 6887 §8.2; RFC 6886 §3.3: not to the external address).
    pub(super) fn accepts(&self, ifindex: IfIndex, client: IpAddr, local: IpAddr) -> bool {
        self.served.iter().any(|one| one.ifindex == ifindex && one.addresses.contains(&local))
            && !self.own.contains(&client)
            && is_host(client)
    }
}

fn is_link_local_v6(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Whether a packet outside of its link can come from this address, and a mapping can be for it.
fn is_host(address: IpAddr) -> bool {
    let odd = match address {
        IpAddr::V4(v4) => {
            v4.is_link_local()
                || v4.is_broadcast()
                || v4.octets().first().is_none_or(|first| *first >= 240 || *first == 0)
        }
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
    };
    !odd && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
}
