//! The node's addresses.

use core::net::IpAddr;

use signalbox_core::IfIndex;
use signalbox_core::node::Interface;

/// Most addresses that are compared one by one.
const SHORT: usize = 8;

/// All addresses of this node.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    /// Those of interfaces that are up, sorted.
    local: Vec<IpAddr>,
    /// Sorted by interface.
    at: Vec<(IfIndex, Vec<IpAddr>)>,
}

impl Interfaces {
    /// Takes over a whole list of interfaces.
    pub(super) fn set(&mut self, list: &[Interface]) {
        let up = || list.iter().filter(|one| one.up);
        self.local = up().flat_map(|one| one.addresses.iter().copied()).collect();
        self.local.sort_unstable();
        self.at = up().map(|one| (one.ifindex, one.addresses.clone())).collect();
        self.at.sort_unstable_by_key(|(ifindex, _)| *ifindex);
    }

    pub(super) fn is_local(&self, address: IpAddr) -> bool {
        // A search takes longer in the few addresses that most nodes have.
        if self.local.len() <= SHORT {
            return self.local.contains(&address);
        }
        self.local.binary_search(&address).is_ok()
    }

    /// An address of this node at an interface, of the version of `like`. A link-local one is the last choice.
    pub(super) fn address(&self, ifindex: IfIndex, like: IpAddr) -> Option<IpAddr> {
        let at = self.at.binary_search_by_key(&ifindex, |(index, _)| *index).ok()?;
        let (_, all) = self.at.get(at)?;
        let fits = || all.iter().copied().filter(|one| one.is_ipv4() == like.is_ipv4());
        let wide = |one: &IpAddr| match one {
            IpAddr::V4(_) => true,
            IpAddr::V6(v6) => !v6.is_unicast_link_local(),
        };
        fits().find(wide).or_else(|| fits().next())
    }
}
