//! What changes in interfaces and routes, as the kernel reports it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, RawFd};

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use signalbox_core::node::{Interface, Prefix};

use super::codec::{Message, Messages, REPLY, u32_of};
use super::lookup::{RTA_DST, RTA_TABLE};
use super::{Change, Routes};
use crate::sys::sockaddr;

/// RTNLGRP_LINK, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE, IPV6_RULE
const GROUPS: [u32; 7] = [1, 5, 7, 8, 9, 11, 19];
/// The table of local and broadcast addresses: its changes show as address changes.
const LOCAL_TABLE: u32 = 255;
const RTM_F_CLONED: u32 = 0x200;

/// All destinations of IPv4, or of IPv6.
const EVERYWHERE: [Prefix; 2] = [
    Prefix { addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 },
    Prefix { addr: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 },
];

/// Listens to the kernel.
pub(crate) struct Events {
    socket: Socket,
    buffer: Vec<u8>,
    /// The table of our own, whose routes are no news.
    own_table: u32,
}

impl Events {
    pub(crate) fn open(own_table: u32) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        socket.set_non_blocking(true)?;
        // Best effort: without it the kernel may drop events in a storm and says so, which we handle.
        let _ = socket.set_rx_buf_sz(1 << 20);
        Ok(Self { socket, buffer: vec![0; REPLY], own_table })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// What has happened since the last call; `routes` reads its interfaces again if they changed.
    pub(crate) fn drain(&mut self, routes: &mut Routes) -> Vec<Change> {
        let mut news = News { changes: Vec::new(), interfaces: false, own_table: self.own_table };
        loop {
            match self.socket.recv(&mut &mut self.buffer[..], 0) {
                Ok(length) => {
                    for message in Messages(self.buffer.get(..length).unwrap_or(&[])) {
                        news.take(&message);
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    // Events were lost: anything may have changed.
                    news.interfaces = true;
                    EVERYWHERE.into_iter().for_each(|prefix| news.route(prefix));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if news.interfaces
            && let Ok(before) = routes.refresh()
            && before != routes.interfaces()
        {
            news.changes.insert(0, Change::Interfaces);
            if lost_something(&before, routes.interfaces()) {
                EVERYWHERE.into_iter().for_each(|prefix| news.route(prefix));
            }
        }
        news.changes
    }
}

struct News {
    changes: Vec<Change>,
    interfaces: bool,
    own_table: u32,
}

impl News {
    fn route(&mut self, prefix: Prefix) {
        let change = Change::Route(prefix);
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
    }

    fn take(&mut self, message: &Message<'_>) {
        match message.kind {
            libc::RTM_NEWLINK | libc::RTM_DELLINK | libc::RTM_NEWADDR | libc::RTM_DELADDR => {
                self.interfaces = true;
            }
            libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
                if let Some(prefix) = self.prefix(message) {
                    self.route(prefix);
                }
            }
            libc::RTM_NEWRULE | libc::RTM_DELRULE => {
                // A rule can send any packet elsewhere.
                let Some((fixed, attributes)) = message.split::<12>() else { return };
                let mut table = u32::from(fixed[4]);
                attributes
                    .filter(|(k, _)| *k == RTA_TABLE)
                    .for_each(|(_, d)| table = u32_of(d).unwrap_or(table));
                if table != self.own_table {
                    self.route(EVERYWHERE[usize::from(i32::from(fixed[0]) == libc::AF_INET6)]);
                }
            }
            _ => {}
        }
    }

    /// The destinations that a route message is about, if it concerns others than ourselves.
    fn prefix(&self, message: &Message<'_>) -> Option<Prefix> {
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
        (table != LOCAL_TABLE && table != self.own_table).then_some(Prefix { addr, len })
    }
}

/// Whether an interface went down or away, or an address went: IPv4 routes may have gone with it unsaid.
fn lost_something(before: &[Interface], after: &[Interface]) -> bool {
    before.iter().any(|old| {
        let Some(new) = after.iter().find(|new| new.ifindex == old.ifindex) else { return true };
        (old.up && !new.up) || old.addresses.iter().any(|address| !new.addresses.contains(address))
    })
}
