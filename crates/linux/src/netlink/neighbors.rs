//! Link-layer addresses of neighbors, as the kernel reports them.
//!
//! Where two routers share an address (VRRP, RFC 5798), the other one takes it over and no route changes. All that the kernel reports
//! is another link-layer address in the entry of the neighbor. The reports have a socket of their own: anybody who scans a network
//! behind this node makes many of them, and those about routes must not be lost beside them. A program in the kernel passes only
//! those that name a link-layer address.
//!
//! What is remembered is bounded for each link. Anybody on a link can make neighbors there until the gateway's entry is forgotten;
//! then its change goes unnoticed, and state follows when it is refreshed.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use signalbox_core::node::Interface;
use signalbox_core::{IfIndex, KeyedHasher};
use socket2::{SockFilter, SockRef};

use super::Routes;
use super::codec::{Message, find};
use super::removals::{drain, listen};
use crate::clock;
use crate::sys::sockaddr;

/// RTNLGRP_NEIGH.
const GROUP: u32 = 3;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// The states in which an entry has a link-layer address that packets are sent to: reachable, stale, delay, probe, permanent.
const USABLE: u8 = 0x02 | 0x04 | 0x08 | 0x10 | 0x80;
/// Neighbors of a link that are remembered since the last time that there were that many. As many from before are remembered too.
const GENERATION: usize = 256;
/// Octets of a netlink message that the kernel sends about a neighbor, at most.
const MESSAGE: usize = 4096;

/// The link-layer addresses of the neighbors of a link, by hashes.
#[derive(Debug, Default)]
struct Link {
    recent: HashMap<IpAddr, u64>,
    older: HashMap<IpAddr, u64>,
}

impl Link {
    /// Remembers the link-layer address of a neighbor. The result is true if it was another one before.
    fn note(&mut self, address: IpAddr, place: u64) -> bool {
        if let Some(known) = self.recent.get_mut(&address) {
            return std::mem::replace(known, place) != place;
        }
        let before = self.older.remove(&address);
        if self.recent.len() >= GENERATION {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(address, place);
        before.is_some_and(|before| before != place)
    }
}

/// The receiver of these reports.
pub(crate) struct Neighbors {
    /// `None`: the kernel refuses it, and changes go unnoticed.
    socket: Option<Socket>,
    buffer: Vec<u8>,
    known: Known,
}

/// What is remembered.
struct Known {
    links: HashMap<IfIndex, Link>,
    hasher: KeyedHasher,
}

impl Known {
    /// Takes a report. The result is the neighbor, if it had another link-layer address before.
    fn take(&mut self, message: &Message<'_>) -> Option<(IfIndex, IpAddr)> {
        let (fixed, attributes) = message.split::<12>().filter(|_| message.kind == libc::RTM_NEWNEIGH)?;
        let [family, _, _, _, i0, i1, i2, i3, s0, s1, _, _] = *fixed;
        let internet = [libc::AF_INET, libc::AF_INET6].contains(&i32::from(family));
        let state = u16::from_ne_bytes([s0, s1]);
        if !internet || state & u16::from(USABLE) == 0 {
            return None;
        }
        let ifindex = IfIndex(u32::from_ne_bytes([i0, i1, i2, i3]));
        let address = find(attributes, NDA_DST).and_then(sockaddr::ip)?;
        let place = self.hasher.hash_octets(find(attributes, NDA_LLADDR)?);
        let moved = self.links.entry(ifindex).or_default().note(address, place);
        moved.then_some((ifindex, address))
    }
}

impl Neighbors {
    /// Starts the watch, and remembers what the kernel knows at present.
    pub(crate) fn open(routes: &mut Routes) -> io::Result<Self> {
        let hasher = KeyedHasher::with_key(*clock::seed()?.first_chunk().ok_or(io::ErrorKind::InvalidData)?);
        let socket = listen(NETLINK_ROUTE, GROUP).and_then(|socket| {
            SockRef::from(&socket).attach_filter(&filter())?;
            Ok(socket)
        });
        let socket =
            socket.inspect_err(|error| tracing::warn!(%error, "changes of neighbors will go unnoticed")).ok();
        let known = Known { links: HashMap::new(), hasher };
        let mut watch = Self { socket, buffer: vec![0; MESSAGE], known };
        watch.read(routes, &mut Vec::new());
        Ok(watch)
    }

    /// The descriptor to wait for; -1 for none.
    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// The neighbors that have another link-layer address since the last call, each once.
    pub(crate) fn drain(&mut self, routes: &mut Routes) -> Vec<(IfIndex, IpAddr)> {
        let mut moved = Vec::new();
        let Self { socket: Some(socket), buffer, known } = self else { return moved };
        let lost = drain(socket, buffer, |message| add(&mut moved, known.take(message)));
        if lost {
            self.read(routes, &mut moved);
        }
        moved
    }

    /// Forgets the neighbors of links that are gone.
    pub(crate) fn keep(&mut self, interfaces: &[Interface]) {
        self.known.links.retain(|ifindex, _| interfaces.iter().any(|one| one.ifindex == *ifindex));
    }

    /// Reads all neighbors from the kernel.
    fn read(&mut self, routes: &mut Routes, moved: &mut Vec<(IfIndex, IpAddr)>) {
        let known = &mut self.known;
        let all = routes.connection().begin(libc::RTM_GETNEIGH, libc::NLM_F_DUMP, &[0; 12]);
        if let Err(error) = all.transact(|message| add(moved, known.take(message))) {
            tracing::debug!(%error, "the neighbors cannot be read");
        }
    }
}

fn add(moved: &mut Vec<(IfIndex, IpAddr)>, neighbor: Option<(IfIndex, IpAddr)>) {
    moved.extend(neighbor.filter(|one| !moved.contains(one)));
}

/// The program that passes reports of the Internet protocols about neighbors with a link-layer address.
fn filter() -> [SockFilter; 9] {
    const LOAD_HALF: u16 = 0x28; // BPF_LD | BPF_H | BPF_ABS
    const LOAD_OCTET: u16 = 0x30; // BPF_LD | BPF_B | BPF_ABS
    const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const JUMP_SET: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const HEADER: u32 = 16;
    // The kernel loads in network order what it wrote in the machine's.
    let kind = u32::from(u16::from_be_bytes(libc::RTM_NEWNEIGH.to_ne_bytes()));
    let usable = u32::from(u16::from_be_bytes(u16::from(USABLE).to_ne_bytes()));
    [
        SockFilter::new(LOAD_HALF, 0, 0, 4),
        SockFilter::new(JUMP_EQUAL, 0, 5, kind),
        SockFilter::new(LOAD_OCTET, 0, 0, HEADER),
        SockFilter::new(JUMP_EQUAL, 1, 0, libc::AF_INET as u32),
        SockFilter::new(JUMP_EQUAL, 0, 2, libc::AF_INET6 as u32),
        SockFilter::new(LOAD_HALF, 0, 0, HEADER + 8),
        SockFilter::new(JUMP_SET, 1, 0, usable),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbor_moves_when_its_link_layer_address_is_another_one() {
        let mut link = Link::default();
        let gateway: IpAddr = "fe80::1".parse().unwrap();
        assert_eq!([1, 1, 2, 2, 1].map(|place| link.note(gateway, place)), [false, false, true, false, true]);
    }

    #[test]
    fn neighbors_without_number_are_bounded_and_those_in_use_stay() {
        let mut link = Link::default();
        let gateway: IpAddr = "10.0.0.1".parse().unwrap();
        link.note(gateway, 1);
        for n in 0..10_000_u32 {
            link.note(IpAddr::V4((0x0a01_0000 + n).into()), 7);
            assert!(n % 200 != 0 || !link.note(gateway, 1), "it is reported now and then");
        }
        assert!(link.recent.len() + link.older.len() <= 2 * GENERATION);
        assert!(link.note(gateway, 2));
    }
}
