//! Multicast routes in the kernel's own forwarding cache, whatever process fills it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound;

use signalbox_core::IfIndex;
use signalbox_core::node::RouteQuery;

use super::Routes;
use super::codec::{Connection, Message, u32_of};
use super::events::hops;
use super::lookup::{RTA_DST, RTA_IIF, RTA_MULTIPATH, RTA_SRC, RTA_TABLE, address};
use crate::sys::sockaddr;

/// The address families RTNL_FAMILY_IPMR and RTNL_FAMILY_IP6MR.
const FAMILIES: [u8; 2] = [128, 129];
/// Most watched routes. Routes beyond that are looked up once only.
const MOST: usize = 65_536;

/// The route of packets from a source to a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MulticastRoute {
    /// The incoming interface; [`IfIndex::NONE`] where this node is the source, or there is no route.
    pub iif: IfIndex,
    /// The outgoing interfaces; empty if the packets are not forwarded.
    pub oifs: Vec<IfIndex>,
}

/// Group and source of the routes whose changes are reported.
#[derive(Debug, Default)]
pub(super) struct Watched(BTreeSet<(IpAddr, IpAddr)>);

impl Watched {
    pub(super) fn add(&mut self, group: IpAddr, source: IpAddr) {
        if self.0.len() < MOST {
            self.0.insert((group, source));
        }
    }

    pub(super) fn remove(&mut self, group: IpAddr, source: IpAddr) {
        self.0.remove(&(group, source));
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (IpAddr, IpAddr)> {
        self.0.iter().copied()
    }

    /// The watched routes that a message of the kernel concerns: one, or all of the group if the message is about any
    /// source.
    pub(super) fn concerned(&self, message: &Message<'_>) -> Vec<(IpAddr, IpAddr)> {
        let Some((fixed, attributes)) = message.split::<12>() else { return Vec::new() };
        if !FAMILIES.contains(&fixed[0]) {
            return Vec::new();
        }
        let (mut group, mut source) = (None, None);
        for (kind, data) in attributes {
            match kind {
                RTA_DST => group = sockaddr::ip(data),
                RTA_SRC => source = sockaddr::ip(data),
                _ => {}
            }
        }
        let Some(group) = group else { return Vec::new() };
        match source.filter(|source| !source.is_unspecified()) {
            Some(source) => self.0.get(&(group, source)).copied().into_iter().collect(),
            None => {
                let from = (group, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                let to = (group, IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)));
                self.0.range((Bound::Included(from), Bound::Included(to))).copied().collect()
            }
        }
    }
}

impl Routes {
    /// The multicast route as it is now: of the source alone, or of any source. Packets that this node sends itself
    /// follow, where the node forwards nothing, its route to the group.
    pub(crate) fn multicast(&mut self, group: IpAddr, source: IpAddr) -> MulticastRoute {
        for source in [Some(source), None] {
            if let Some(route) = self.ask_multicast(group, source) {
                return route;
            }
        }
        if !self.is_local(source) {
            return MulticastRoute::default();
        }
        let query = RouteQuery { src: Some(source), ..RouteQuery::to(group) };
        let oif =
            self.lookup(&query).ok().map(|route| route.ifindex).or_else(|| {
                self.interfaces().iter().find(|i| i.addresses.contains(&source)).map(|i| i.ifindex)
            });
        MulticastRoute { iif: IfIndex::NONE, oifs: oif.into_iter().collect() }
    }

    fn ask_multicast(&mut self, group: IpAddr, source: Option<IpAddr>) -> Option<MulticastRoute> {
        let (family, length) = if group.is_ipv4() { (FAMILIES[0], 32) } else { (FAMILIES[1], 128) };
        let mut message = [0; 12];
        message[..3].copy_from_slice(&[family, length, if source.is_some() { length } else { 0 }]);
        let vrf = self.vrf();
        let connection: &mut Connection = self.connection();
        connection.begin(libc::RTM_GETROUTE, 0, &message);
        address(connection, RTA_DST, group);
        if let Some(source) = source {
            address(connection, RTA_SRC, source);
        }
        if let Some(vrf) = vrf {
            connection.attribute(RTA_TABLE, &vrf.table.to_ne_bytes());
        } else if group.is_ipv6() {
            // The number of this table differs from the kernel's default for this request.
            connection.attribute(RTA_TABLE, &u32::from(libc::RT_TABLE_MAIN).to_ne_bytes());
        }
        let mut route = None;
        // Another refusal means that there is no such route.
        if let Err(error) = connection.transact(|message| route = read(message))
            && error.raw_os_error() == Some(libc::EOPNOTSUPP)
            && group.is_ipv6()
            && !std::mem::replace(&mut self.groups_refused, true)
        {
            tracing::warn!(
                "the kernel does not tell the routes of IPv6 groups (from Linux 6.0 on, with CONFIG_IPV6_MROUTE): nothing is reserved \
                 for groups beyond this node"
            );
        }
        route
    }
}

/// Reads the kernel's answer; `None` for an entry that still waits for its outgoing interfaces.
fn read(message: &Message<'_>) -> Option<MulticastRoute> {
    let (_, attributes) = message.split::<12>()?;
    let mut route = MulticastRoute::default();
    for (kind, data) in attributes {
        match kind {
            RTA_IIF => route.iif = IfIndex(u32_of(data)?),
            RTA_MULTIPATH => {
                route.oifs = hops(data).filter_map(|hop| u32_of(hop.get(4..8)?)).map(IfIndex).collect();
            }
            _ => {}
        }
    }
    (route.iif != IfIndex::NONE).then_some(route)
}
