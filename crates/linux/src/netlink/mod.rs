//! Route netlink: route lookups, interfaces, events, and the rule and route that interception needs.
//!
//! The crate has a small codec of its own: a lookup takes little over a microsecond and allocates nothing, which a
//! general message library cannot do. With the hot path written, such a library would save no further code.

mod batch;
mod cache;
pub(crate) mod codec;
mod events;
pub(crate) mod interfaces;
mod lookup;
mod multicast;
mod neighbors;
pub(crate) mod nftables;
mod removals;
pub(crate) mod rules;
mod socket;

pub(crate) use batch::Batch;
pub(crate) use events::Events;
pub(crate) use lookup::Routes;
pub use multicast::MulticastRoute;
pub(crate) use neighbors::Neighbors;
pub(crate) use removals::Removals;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use signalbox_core::IfIndex;
use signalbox_core::node::Prefix;

/// Names of all interfaces of this network namespace, whether or not they are up. It needs no privilege.
///
/// # Errors
/// The kernel refuses the request.
pub fn interface_names() -> io::Result<Vec<String>> {
    let links = interfaces::links(&mut codec::Connection::open()?)?;
    Ok(links.into_iter().map(|link| link.name).collect())
}

/// How many octets of packets have left by each interface of this network namespace, by its number. It needs no privilege.
///
/// # Errors
/// The kernel refuses the request.
pub fn sent_octets() -> io::Result<BTreeMap<IfIndex, u64>> {
    let links = interfaces::links(&mut codec::Connection::open()?)?;
    Ok(links.into_iter().filter_map(|link| Some((IfIndex(link.ifindex), link.sent?))).collect())
}

/// The setting `rp_filter` of each interface by its number, and of all by -1. It needs no privilege.
pub(crate) fn reverse_path_filters() -> io::Result<BTreeMap<i32, i32>> {
    /// Attributes of RTM_NEWNETCONF (linux/netconf.h).
    const IFINDEX: u16 = 1;
    const RP_FILTER: u16 = 3;
    let mut filters = BTreeMap::new();
    let family = [libc::AF_INET as u8, 0, 0, 0];
    let mut connection = codec::Connection::open()?;
    connection.begin(libc::RTM_GETNETCONF, libc::NLM_F_DUMP, &family).transact(|message| {
        let Some((_, attributes)) = message.split::<1>() else { return };
        let number = |kind| codec::find(attributes, kind).and_then(codec::u32_of).map(u32::cast_signed);
        filters.extend(number(IFINDEX).zip(number(RP_FILTER)));
    })?;
    Ok(filters)
}

/// The policy rules of other programs that would stand before that of the interception of this configuration, by the preference
/// of the configuration. It needs no privilege.
///
/// # Errors
/// The kernel refuses the request.
pub fn rules_before(config: &crate::IoConfig) -> io::Result<Vec<String>> {
    let mut all = Vec::new();
    for (ipv6, on, family) in [(false, config.ipv4, "IPv4"), (true, config.ipv6, "IPv6")] {
        if on {
            let before = rules::before(ipv6, config.rule())?;
            all.extend(before.into_iter().map(|rule| format!("{family}: {rule}")));
        }
    }
    Ok(all)
}

/// A change that the kernel reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Interfaces or addresses have changed: read [`crate::Io::interfaces`] again.
    Interfaces,
    /// Routes to these destinations may have changed. A prefix of length 0 stands for the whole family: the kernel
    /// removes IPv4 routes together with a link or an address, and does not report which.
    Route(Prefix),
    /// The kernel sends what goes to this neighbor to another link-layer address than before: another router may have its place, and
    /// anybody on the link can forge that.
    Neighbor {
        /// The link.
        ifindex: IfIndex,
        /// Address of the neighbor.
        address: IpAddr,
    },
    /// A requested multicast route has changed: call [`crate::Io::multicast_route`] again.
    Multicast {
        /// The group.
        group: IpAddr,
        /// The sender to the group.
        source: IpAddr,
    },
    /// Something that this process put into the kernel may be gone, or other rules may stand before its own: call
    /// [`crate::Io::restore`], [`crate::Io::judge_interception`] and [`crate::traffic::Enforcer::restore`].
    Removed,
    /// Other programs have changed rules of nftables, which can be in the way of intercepted packets: try them again by
    /// [`crate::Io::begin_self_test`].
    Rules,
}
