//! Changes of interfaces and routes, as the kernel reports them.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, RawFd};

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use signalbox_core::IfIndex;
use signalbox_core::node::{Interface, Prefix};

use super::codec::{Message, Messages, REPLY, u32_of};
use super::lookup::{RTA_DST, RTA_MULTIPATH, RTA_NH_ID, RTA_OIF, RTA_TABLE};
use super::multicast::Watched;
use super::{Change, Routes};
use crate::sys::sockaddr;

/// The multicast groups of netlink: RTNLGRP_LINK, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE,
/// IPV6_RULE.
const GROUPS: [u32; 7] = [1, 5, 7, 8, 9, 11, 19];
/// RTNLGRP_NEXTHOP, which kernels have from Linux 5.3 on.
const NEXTHOP_GROUP: u32 = 32;
/// A next hop or a group of them is made or changed, or removed; a bucket of a resilient group has another next hop.
const NEXTHOP_MESSAGES: [u16; 3] = [104, 105, 116];
/// RTNLGRP_IPV4_MROUTE and IPV6_MROUTE, which are joined when the first multicast route is watched.
const MULTICAST_GROUPS: [u32; 2] = [6, 10];
/// The table of local and broadcast addresses. Its changes appear as address changes.
const LOCAL_TABLE: u32 = 255;
const RTM_F_CLONED: u32 = 0x200;
/// Most changed prefixes of a link that are reported one by one.
const MOST_PREFIXES: usize = 64;
/// Most changes of routes that one call reports one by one: a routing daemon can change a million of them at once.
const MOST_CHANGES: usize = 1024;
/// Most datagrams that one call reads. The next one goes on, with packets in between.
const MOST_DATAGRAMS: usize = 4096;

/// All destinations of IPv4, or of IPv6.
const EVERYWHERE: [Prefix; 2] = [
    Prefix { addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 },
    Prefix { addr: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 },
];

/// The receiver of the kernel's events.
pub(crate) struct Events {
    socket: Socket,
    buffer: Vec<u8>,
    /// The table of our own, whose routes are not reported.
    own_table: u32,
    /// The watched multicast routes; `None` until one is requested.
    watched: Option<Watched>,
    /// Whether the interfaces have changed and could not be read.
    unread: bool,
}

impl Events {
    pub(crate) fn open(own_table: u32) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        if let Err(error) = socket.add_membership(NEXTHOP_GROUP) {
            tracing::debug!(%error, "this kernel has no nexthop objects");
        }
        socket.set_non_blocking(true)?;
        // Best effort: without it the kernel may drop events in a storm. It reports the loss, which `drain` handles.
        let _ = socket.set_rx_buf_sz(1 << 20);
        Ok(Self { socket, buffer: vec![0; REPLY], own_table, watched: None, unread: false })
    }

    /// Reports changes of this multicast route from now on.
    pub(crate) fn watch(&mut self, group: IpAddr, source: IpAddr) {
        if self.watched.is_none() {
            for group in MULTICAST_GROUPS {
                if let Err(error) = self.socket.add_membership(group) {
                    tracing::warn!(%error, "changes of multicast routes will go unnoticed");
                }
            }
        }
        self.watched.get_or_insert_default().add(group, source);
    }

    /// Ends the reports of changes of this multicast route.
    pub(crate) fn remove(&mut self, group: IpAddr, source: IpAddr) {
        if let Some(watched) = &mut self.watched {
            watched.remove(group, source);
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Whether the interfaces changed and could not be read. No further event may come for it, so [`Self::drain`] has to be called again.
    pub(crate) const fn is_unread(&self) -> bool {
        self.unread
    }

    /// The events since the last call. If the interfaces changed, `routes` reads them again.
    pub(crate) fn drain(&mut self, routes: &mut Routes) -> Vec<Change> {
        let mut news = News {
            interfaces: self.unread,
            removed: false,
            all: [false; 2],
            routes: BTreeSet::new(),
            multicast: BTreeSet::new(),
            own_table: self.own_table,
            watched: &self.watched,
        };
        for _ in 0..MOST_DATAGRAMS {
            match self.socket.recv(&mut &mut self.buffer[..], 0) {
                Ok(length) => {
                    routes.clear();
                    for message in Messages(self.buffer.get(..length).unwrap_or(&[])) {
                        news.take(&message);
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    // Events were lost, so anything may have changed.
                    routes.clear();
                    (news.interfaces, news.removed) = (true, true);
                    EVERYWHERE.into_iter().for_each(|prefix| news.route(prefix));
                    news.watched.iter().flat_map(Watched::all).for_each(|route| news.multicast(route));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let mut changes = Vec::new();
        let before = if news.interfaces { routes.refresh().map(Some) } else { Ok(None) };
        self.unread = before.is_err();
        if let Err(error) = &before {
            tracing::warn!(%error, "the interfaces have changed and cannot be read");
        }
        if let Ok(Some(before)) = before
            && before != routes.interfaces()
        {
            changes.push(Change::Interfaces);
            // The kernel does not report the routes that disappear with a link or an address. The change of interfaces
            // is reported to the users of that link. The kernel does not report the routes that return with a carrier
            // either, and these may concern any flow.
            for ifindex in came_up(&before, routes.interfaces()) {
                match through(routes, ifindex, self.own_table) {
                    Some(prefixes) => prefixes.into_iter().for_each(|prefix| news.route(prefix)),
                    None => EVERYWHERE.into_iter().for_each(|prefix| news.route(prefix)),
                }
            }
        }
        let removed = news.removed;
        changes.extend(news.of_routes());
        changes.extend(removed.then_some(Change::Removed));
        changes
    }
}

struct News<'a> {
    interfaces: bool,
    /// A rule or route of ours may be gone, or no longer the first one.
    removed: bool,
    /// Whether all routes of IPv4, and of IPv6, may have changed.
    all: [bool; 2],
    /// The destinations of other routes that may have changed.
    routes: BTreeSet<(IpAddr, u8)>,
    /// The watched multicast routes that may have changed.
    multicast: BTreeSet<(IpAddr, IpAddr)>,
    own_table: u32,
    watched: &'a Option<Watched>,
}

impl News<'_> {
    fn route(&mut self, Prefix { addr, len }: Prefix) {
        let ipv6 = usize::from(addr.is_ipv6());
        if self.all[ipv6] {
            return;
        }
        self.routes.insert((addr, len));
        // One report of all is handled faster than so many.
        if len == 0 || self.routes.len() > MOST_CHANGES {
            self.all[ipv6] = true;
            self.routes.retain(|(addr, _)| addr.is_ipv4() != (ipv6 == 0));
        }
    }

    fn multicast(&mut self, route: (IpAddr, IpAddr)) {
        self.multicast.insert(route);
    }

    /// The changes of routes, each once.
    fn of_routes(self) -> impl Iterator<Item = Change> {
        let all = EVERYWHERE.into_iter().zip(self.all).filter_map(|(prefix, all)| all.then_some(prefix));
        let some = self.routes.into_iter().map(|(addr, len)| Prefix { addr, len });
        let multicast = self.multicast.into_iter().map(|(group, source)| Change::Multicast { group, source });
        all.chain(some).map(Change::Route).chain(multicast)
    }

    fn take(&mut self, message: &Message<'_>) {
        match message.kind {
            libc::RTM_NEWLINK | libc::RTM_DELLINK | libc::RTM_NEWADDR | libc::RTM_DELADDR => {
                self.interfaces = true;
            }
            libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
                if let Some(prefix) = prefix(message, self.own_table) {
                    self.route(prefix);
                }
                self.removed |= message.kind == libc::RTM_DELROUTE && table(message) == Some(self.own_table);
                let concerned = self.watched.iter().flat_map(|watched| watched.concerned(message));
                concerned.for_each(|route| self.multicast(route));
            }
            libc::RTM_NEWRULE | libc::RTM_DELRULE => {
                // A rule can route any packet differently.
                let Some((fixed, _)) = message.split::<12>() else { return };
                if table(message) != Some(self.own_table) {
                    self.route(EVERYWHERE[usize::from(i32::from(fixed[0]) == libc::AF_INET6)]);
                    // It can stand before the rule of ours.
                    self.removed = true;
                } else if message.kind == libc::RTM_DELRULE {
                    self.removed = true;
                }
            }
            // The message does not say which routes use the next hop, and the kernel does not report these routes.
            kind if NEXTHOP_MESSAGES.contains(&kind) => {
                EVERYWHERE.into_iter().for_each(|all| self.route(all))
            }
            _ => {}
        }
    }
}

/// The table of a route or rule message. Its fixed part has one octet for it, which is not enough.
fn table(message: &Message<'_>) -> Option<u32> {
    let (fixed, mut attributes) = message.split::<12>()?;
    let table = attributes.find(|(kind, _)| *kind == RTA_TABLE).and_then(|(_, data)| u32_of(data));
    Some(table.unwrap_or_else(|| u32::from(fixed[4])))
}

/// The destinations of a route message, unless the route is one of our own.
fn prefix(message: &Message<'_>, own_table: u32) -> Option<Prefix> {
    let (fixed, attributes) = message.split::<12>()?;
    let [family, len, _, _, table, _, _, kind, f0, f1, f2, f3] = *fixed;
    if u32::from_ne_bytes([f0, f1, f2, f3]) & RTM_F_CLONED != 0
        || [libc::RTN_LOCAL, libc::RTN_BROADCAST, libc::RTN_ANYCAST, libc::RTN_MULTICAST].contains(&kind)
    {
        return None;
    }
    let default = match i32::from(family) {
        libc::AF_INET => EVERYWHERE[0].addr,
        libc::AF_INET6 => EVERYWHERE[1].addr,
        _ => return None,
    };
    let (mut table, mut addr) = (u32::from(table), default);
    for (kind, data) in attributes {
        match kind {
            RTA_DST => addr = sockaddr::ip(data)?,
            RTA_TABLE => table = u32_of(data)?,
            _ => {}
        }
    }
    (table != LOCAL_TABLE && table != own_table).then_some(Prefix { addr, len })
}

/// The destinations whose routes lead through a link; `None` if there are too many, or if they cannot be read.
fn through(routes: &mut Routes, ifindex: IfIndex, own_table: u32) -> Option<Vec<Prefix>> {
    let mut prefixes = Vec::new();
    let dumped = routes.dump(|message| {
        if leads_through(message, ifindex)
            && prefixes.len() <= MOST_PREFIXES
            && let Some(prefix) = prefix(message, own_table)
        {
            prefixes.push(prefix);
        }
    });
    (dumped.is_ok() && prefixes.len() <= MOST_PREFIXES).then_some(prefixes)
}

/// Whether a route message contains a link, also as one of several. A route that names a nexthop object only may lead by any
/// link.
fn leads_through(message: &Message<'_>, ifindex: IfIndex) -> bool {
    let Some((_, attributes)) = message.split::<12>() else { return false };
    let is_it = |data: &[u8]| u32_of(data) == Some(ifindex.0);
    let named = |kind: u16| attributes.into_iter().any(|(found, _)| found == kind);
    if named(RTA_NH_ID) && !named(RTA_OIF) && !named(RTA_MULTIPATH) {
        return true;
    }
    attributes.into_iter().any(|(kind, data)| match kind {
        RTA_OIF => is_it(data),
        RTA_MULTIPATH => hops(data).any(|hop| hop.get(4..8).is_some_and(is_it)),
        _ => false,
    })
}

/// The next hops of a route with several: length, flags, weight, interface, attributes.
pub(super) fn hops(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let [a, b, ..] = *data else { return None };
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let hop = data.get(..length).filter(|hop| hop.len() >= 8)?;
        data = data.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(hop)
    })
}

/// The interfaces that existed before and are up again.
fn came_up(before: &[Interface], after: &[Interface]) -> Vec<IfIndex> {
    let was_down = |new: &&Interface| before.iter().any(|old| old.ifindex == new.ifindex && !old.up);
    after.iter().filter(|new| new.up).filter(was_down).map(|new| new.ifindex).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news() -> News<'static> {
        News {
            interfaces: false,
            removed: false,
            all: [false; 2],
            routes: BTreeSet::new(),
            multicast: BTreeSet::new(),
            own_table: 270,
            watched: &None,
        }
    }

    fn v4(number: u32) -> Prefix {
        Prefix { addr: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number)), len: 32 }
    }

    /// A routing daemon takes in a full table: the number of reports is bounded, and so is the time that they take.
    #[test]
    fn many_changes_of_routes_are_one_change_of_all() {
        let mut news = news();
        let v6 = Prefix { addr: "2001:db8::".parse().unwrap(), len: 32 };
        news.route(v6);
        (0..1_000_000).for_each(|number| news.route(v4(number)));
        let changes: Vec<_> = news.of_routes().collect();
        assert_eq!(changes, [Change::Route(EVERYWHERE[0]), Change::Route(v6)]);
    }

    #[test]
    fn a_change_is_reported_once_and_not_beside_one_of_all() {
        let mut some = news();
        [2, 1, 2].into_iter().for_each(|number| some.route(v4(number)));
        assert_eq!(some.of_routes().collect::<Vec<_>>(), [v4(1), v4(2)].map(Change::Route));
        let mut all = news();
        [v4(1), EVERYWHERE[0], v4(2)].into_iter().for_each(|prefix| all.route(prefix));
        assert_eq!(all.of_routes().collect::<Vec<_>>(), [Change::Route(EVERYWHERE[0])]);
    }
}
