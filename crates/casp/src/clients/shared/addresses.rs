//! The addresses of the node.

use core::net::IpAddr;

use signalbox_core::node::Interface;

/// The addresses of the node, without those of loopback.
#[derive(Debug, Default)]
pub(in crate::clients) struct Addresses(Vec<IpAddr>);

impl Addresses {
    /// Takes over the addresses of the interfaces that are up.
    pub(in crate::clients) fn set(&mut self, list: &[Interface]) {
        self.0 = list.iter().filter(|one| one.up).flat_map(|one| one.addresses.iter().copied()).collect();
        self.0.retain(|address| !address.is_loopback());
    }

    /// Whether an address is one of the node.
    pub(in crate::clients) fn has(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// An address of the IP version of another one, else any.
    pub(in crate::clients) fn like(&self, other: IpAddr) -> Option<IpAddr> {
        let same = self.0.iter().find(|address| address.is_ipv4() == other.is_ipv4());
        same.or(self.0.first()).copied()
    }
}
