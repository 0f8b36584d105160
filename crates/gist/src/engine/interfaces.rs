//! Interfaces and addresses of the node.

use core::net::IpAddr;

use signalbox_core::IfIndex;
use signalbox_core::node::{Interface, Prefix};

use super::config::{ANY_INTERFACE, Config};

/// An interface with the addresses by which peers can reach this node, one of each IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Usable {
    ifindex: IfIndex,
    v4: Option<IpAddr>,
    v6: Option<IpAddr>,
    /// The configured addresses among these two.
    configured: [Option<IpAddr>; 2],
    mtu: u16,
}

/// Most addresses of a table that is read one by one.
const SHORT: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Interfaces {
    /// Sorted.
    local_v4: Vec<u32>,
    /// Sorted.
    local_v6: Vec<u128>,
    /// By rising number.
    usable: Vec<Usable>,
    /// Addresses that peers can use on any interface (RFC 5971 §5.2.2).
    any: Option<Usable>,
    on: Vec<(IfIndex, IpAddr)>,
    /// Addresses of interfaces that are down. They are not reachable, but belong to this node.
    down: Vec<IpAddr>,
    /// The ingress filters of each interface, and whether the configuration names that interface.
    ingress: Vec<(IfIndex, Prefix, bool)>,
}

/// Whether the NLI may contain the address: it is unicast, and peers on other links can use it (RFC 5971 §5.2.2, §7.4).
fn is_routable(address: IpAddr) -> bool {
    let special = match address {
        IpAddr::V4(a) => a.is_loopback() || a.is_link_local() || a.is_unspecified() || a.is_multicast(),
        IpAddr::V6(a) => {
            a.is_loopback() || a.is_unicast_link_local() || a.is_unspecified() || a.is_multicast()
        }
    };
    !special && !is_anycast(address)
}

/// Whether the address is one of those that are reserved for anycast: relays of 6to4 (RFC 3068), and the highest 128
/// addresses of an IPv6 subnet (RFC 2526). Other anycast addresses look like unicast addresses. GIST-7.4-04.
pub(crate) fn is_anycast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.octets().starts_with(&[192, 88, 99]),
        IpAddr::V6(a) => {
            let [.., g, h, i, j] = a.segments();
            [g, h, i] == [0xfdff, 0xffff, 0xffff] && j >= 0xff80
        }
    }
}

/// The entries of a list of the configuration for an interface: its own, else those for all others.
fn entries<'a, T>(list: &'a [T], named: &'a str, name: impl Fn(&T) -> &str) -> impl Iterator<Item = &'a T> {
    let has_own = list.iter().any(|entry| name(entry) == named);
    let wanted = if has_own { named } else { ANY_INTERFACE };
    list.iter().filter(move |entry| name(entry) == wanted)
}

fn filters_of<'a>(
    interface: &'a Interface,
    config: &'a Config,
) -> impl Iterator<Item = (IfIndex, Prefix, bool)> + 'a {
    let ifindex = interface.ifindex;
    entries(&config.ingress_filters, &interface.name, |filter| &filter.interface)
        .map(move |filter| (ifindex, filter.prefix, filter.interface != ANY_INTERFACE))
}

fn configured_of<'a>(
    interface: &'a Interface,
    config: &'a Config,
    v6: bool,
) -> impl Iterator<Item = IpAddr> + 'a {
    let all = entries(&config.own_addresses, &interface.name, |own| &own.interface);
    all.map(|own| own.address).filter(move |address| address.is_ipv6() == v6)
}

impl Interfaces {
    /// Replaces all interfaces; returns the previous ones.
    pub(crate) fn update(&mut self, interfaces: &[Interface], config: &Config) -> Self {
        let mut new = Self::default();
        for interface in interfaces {
            new.ingress.extend(filters_of(interface, config));
        }
        let up = || interfaces.iter().filter(|interface| interface.up);
        let down = interfaces.iter().filter(|i| !i.up);
        new.down.extend(down.flat_map(|i| &i.addresses));
        for interface in up() {
            for address in &interface.addresses {
                match address {
                    IpAddr::V4(a) => new.local_v4.push(a.to_bits()),
                    IpAddr::V6(a) => new.local_v6.push(a.to_bits()),
                }
            }
            let first =
                |v6: bool| interface.addresses.iter().copied().find(|a| a.is_ipv6() == v6 && is_routable(*a));
            let mtu = u16::try_from(interface.mtu).unwrap_or(u16::MAX);
            let is_there = |a: &IpAddr| up().any(|interface| interface.addresses.contains(a));
            let configured = [false, true].map(|v6| configured_of(interface, config, v6).find(is_there));
            let [v4, v6] = configured;
            let (v4, v6) = (v4.or_else(|| first(false)), v6.or_else(|| first(true)));
            let usable = Usable { ifindex: interface.ifindex, v4, v6, configured, mtu };
            new.usable.push(usable);
            new.on.extend(interface.addresses.iter().map(|a| (interface.ifindex, *a)));
            let none = Usable { ifindex: IfIndex::NONE, v4: None, v6: None, configured: [None; 2], mtu: 0 };
            let any = new.any.get_or_insert(none);
            any.v4 = any.v4.or(usable.v4);
            any.v6 = any.v6.or(usable.v6);
        }
        new.usable.sort_by_key(|u| u.ifindex);
        new.local_v4.sort_unstable();
        new.local_v4.dedup();
        new.local_v6.sort_unstable();
        new.local_v6.dedup();
        core::mem::replace(self, new)
    }

    /// Whether an interface has changed since `before`: its state, its addresses or its MTU.
    pub(crate) fn differs_on(&self, ifindex: IfIndex, before: &Self) -> bool {
        let addresses = |all: &Self| {
            all.on.iter().filter(|(other, _)| *other == ifindex).map(|(_, a)| *a).collect::<Vec<_>>()
        };
        self.on_index(ifindex) != before.on_index(ifindex) || addresses(self) != addresses(before)
    }

    /// All addresses of this node.
    pub(crate) fn all(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.on.iter().map(|(_, address)| *address)
    }

    /// Whether `address` is an address of this node.
    ///
    /// It is called three times per message. IPv4 and IPv6 have separate tables, so that integers are compared. In short tables they
    /// are compared one by one, which takes half of the instructions.
    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) if self.local_v4.len() <= SHORT => self.local_v4.contains(&a.to_bits()),
            IpAddr::V4(a) => self.local_v4.binary_search(&a.to_bits()).is_ok(),
            IpAddr::V6(a) => self.local_v6.binary_search(&a.to_bits()).is_ok(),
        }
    }

    /// Whether `address` is an address of this node; its interface may be down.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        self.is_local(address) || self.down.contains(&address)
    }

    /// Whether `address` is on interface `ifindex`.
    pub(crate) fn is_on(&self, ifindex: IfIndex, address: IpAddr) -> bool {
        self.on.contains(&(ifindex, address))
    }

    /// The interface that has `address`.
    pub(crate) fn index_of(&self, address: IpAddr) -> IfIndex {
        self.on.iter().find(|(_, other)| *other == address).map_or(IfIndex::NONE, |(ifindex, _)| *ifindex)
    }

    /// MTU of an interface; 0: not known.
    pub(crate) fn mtu(&self, ifindex: IfIndex) -> u16 {
        self.on_index(ifindex).map_or(0, |u| u.mtu)
    }

    fn on_index(&self, ifindex: IfIndex) -> Option<&Usable> {
        let at = self.usable.binary_search_by_key(&ifindex, |u| u.ifindex).ok()?;
        self.usable.get(at)
    }

    /// The address that the configuration gives this node on `ifindex`, if it is an address of this node.
    pub(crate) fn configured(&self, ifindex: IfIndex, v6: bool) -> Option<IpAddr> {
        let [of_v4, of_v6] = self.on_index(ifindex)?.configured;
        if v6 { of_v6 } else { of_v4 }
    }

    /// The ingress filters: the interface, the prefix, and whether the configuration names that interface.
    pub(crate) fn ingress(&self) -> &[(IfIndex, Prefix, bool)] {
        &self.ingress
    }

    /// The address by which peers of that IP version reach this node on `ifindex`, or else on any interface.
    pub(crate) fn address(&self, ifindex: IfIndex, v6: bool) -> Option<IpAddr> {
        let address = |u: &Usable| if v6 { u.v6 } else { u.v4 };
        self.on_index(ifindex).and_then(address).or_else(|| self.any.as_ref().and_then(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(number: u32, up: bool, addresses: &[&str]) -> Interface {
        Interface {
            ifindex: IfIndex(number),
            name: format!("if{number}"),
            up,
            mtu: 1500,
            tunnel: false,
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        }
    }

    /// GIST-7.4-04: the relays of 6to4, and the subnet anycast addresses of RFC 2526.
    #[test]
    fn reserved_anycast_addresses_are_not_for_the_nli() {
        for (address, anycast) in [
            ("192.88.99.1", true),
            ("192.88.98.1", false),
            ("2001:db8:0:1:fdff:ffff:ffff:ff80", true),
            ("2001:db8:0:1:fdff:ffff:ffff:fffe", true),
            ("2001:db8:0:1:fdff:ffff:ffff:ff7f", false),
            ("2001:db8:0:1::", false),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!((is_anycast(address), is_routable(address)), (anycast, !anycast), "{address}");
        }
    }

    /// GIST-5.2.2-01, GIST-5.2.2-04: never a loopback or link-local address, always one of the requested version.
    #[test]
    fn addresses_for_peers_are_routable_and_of_the_right_version() {
        let (mut all, config) = (Interfaces::default(), Config::default());
        let list = [
            interface(2, true, &["fe80::1", "2001:db8::1", "169.254.1.1", "192.0.2.1"]),
            interface(1, true, &["127.0.0.1", "::1"]),
            interface(3, false, &["198.51.100.1"]),
        ];
        all.update(&list, &config);
        let before = all.update(&list, &config);
        assert!(list.iter().all(|i| !all.differs_on(i.ifindex, &before)));
        assert_eq!(all.address(IfIndex(2), false), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(all.address(IfIndex(2), true), Some("2001:db8::1".parse().unwrap()));
        assert_eq!(all.address(IfIndex(1), false), Some("192.0.2.1".parse().unwrap()));
        assert!(all.is_local("127.0.0.1".parse().unwrap()));
        assert!(!all.is_local("198.51.100.1".parse().unwrap()));
        assert!(all.is_on(IfIndex(2), "fe80::1".parse().unwrap()));
        let mut changed = list.clone();
        changed[0].mtu = 1400;
        changed[2].up = true;
        let before = all.update(&changed, &config);
        let differing = |all: &Interfaces| [1, 2, 3, 4].map(|n| all.differs_on(IfIndex(n), &before));
        assert_eq!(differing(&all), [false, true, true, false]);
        assert_eq!(all.all().count(), 7);
    }
}
