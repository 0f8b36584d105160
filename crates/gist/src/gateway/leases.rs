//! External ports of hosts inside.
//!
//! One end inside has one external port, whatever the other end of its flows is. An end keeps its own port number outside if
//! it can.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::HashMap;

use signalbox_core::Random;
use signalbox_core::index::KeyedHasher;

use super::config::{Config, Forward};

/// Attempts to find a free port.
const ATTEMPTS: u32 = 32;

/// An IP protocol and an external port.
pub(super) type External = (u8, u16);

/// Which external ports may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// One of the configured range.
    Range,
    /// The same port if it is free, although it is not in the range. For ports at which hosts inside listen.
    Same,
}

#[derive(Debug)]
struct Lease {
    inside: SocketAddrV4,
    /// Bindings that hold it.
    users: u32,
}

/// The external ports in use.
#[derive(Debug)]
pub(super) struct Leases {
    first: u16,
    last: u16,
    forwards: Vec<Forward>,
    own_ports: Vec<u16>,
    by_external: HashMap<External, Lease, KeyedHasher>,
    by_inside: HashMap<(u8, SocketAddrV4), u16, KeyedHasher>,
}

impl Leases {
    pub(super) fn new(config: &Config, rng: &mut Random) -> Self {
        Self {
            first: config.first_port,
            last: config.last_port,
            forwards: config.forwards.clone(),
            own_ports: config.own_ports.clone(),
            by_external: HashMap::with_hasher(KeyedHasher::new(rng)),
            by_inside: HashMap::with_hasher(KeyedHasher::new(rng)),
        }
    }

    /// The external port of an end inside, which the caller holds until it calls [`Leases::release`]; `None`: no port was
    /// found. GISTNAT-D6.2-04.
    pub(super) fn acquire(
        &mut self,
        protocol: u8,
        inside: SocketAddrV4,
        choice: Choice,
        rng: &mut Random,
    ) -> Option<u16> {
        if let Some(port) = self.forward_of(protocol, inside) {
            return Some(port);
        }
        if let Some(port) = self.by_inside.get(&(protocol, inside)).copied() {
            self.hold(protocol, port);
            return Some(port);
        }
        let port = self.free(protocol, inside, choice, rng)?;
        self.by_external.insert((protocol, port), Lease { inside, users: 1 });
        self.by_inside.insert((protocol, inside), port);
        Some(port)
    }

    fn free(&self, protocol: u8, inside: SocketAddrV4, choice: Choice, rng: &mut Random) -> Option<u16> {
        let wanted = inside.port();
        let range = self.first..=self.last;
        let same = choice == Choice::Same || range.contains(&wanted);
        if same && wanted > 0 && self.is_free(protocol, wanted) {
            return Some(wanted);
        }
        // A random port, so that senders off the path cannot predict it (RFC 6056).
        let size = u64::from(self.last - self.first) + 1;
        (0..ATTEMPTS)
            .filter_map(|_| self.first.checked_add(u16::try_from(rng.range(0..size)).ok()?))
            .find(|port| self.is_free(protocol, *port))
    }

    fn is_free(&self, protocol: u8, port: u16) -> bool {
        !self.own_ports.contains(&port)
            && !self.by_external.contains_key(&(protocol, port))
            && self.forward(protocol, port).is_none()
    }

    /// One more binding holds the port.
    fn hold(&mut self, protocol: u8, port: u16) {
        if let Some(lease) = self.by_external.get_mut(&(protocol, port)) {
            lease.users += 1;
        }
    }

    /// A binding holds the port no longer.
    pub(super) fn release(&mut self, protocol: u8, port: u16) {
        let Some(lease) = self.by_external.get_mut(&(protocol, port)) else { return };
        lease.users -= 1;
        if lease.users == 0 {
            let inside = lease.inside;
            self.by_external.remove(&(protocol, port));
            self.by_inside.remove(&(protocol, inside));
        }
    }

    /// The end inside that has an external port by the configuration or by a lease. GISTNAT-D6.2-02.
    pub(super) fn inside(&self, protocol: u8, port: u16) -> Option<SocketAddrV4> {
        let forward = self.forward(protocol, port).map(|(address, port)| SocketAddrV4::new(address, port));
        forward.or_else(|| self.by_external.get(&(protocol, port)).map(|lease| lease.inside))
    }

    /// The host and its port for which the configuration forwards an external port.
    fn forward(&self, protocol: u8, port: u16) -> Option<(Ipv4Addr, u16)> {
        self.forwards.iter().find_map(|forward| {
            let is_its =
                forward.protocol == protocol && (forward.first_port..=forward.last_port).contains(&port);
            is_its.then(|| (forward.address, forward.port + (port - forward.first_port)))
        })
    }

    /// The external port that the configuration forwards to an end inside.
    fn forward_of(&self, protocol: u8, inside: SocketAddrV4) -> Option<u16> {
        self.forwards.iter().find_map(|forward| {
            let nth = inside.port().checked_sub(forward.port)?;
            let its = forward.protocol == protocol && forward.address == *inside.ip();
            let port = forward.first_port.checked_add(nth)?;
            (its && port <= forward.last_port).then_some(port)
        })
    }

    /// The number of leases.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.by_external.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn leases(change: impl FnOnce(&mut Config)) -> (Leases, Random) {
        let mut rng = Random::from_number(7);
        let mut config = Config { first_port: 100, last_port: 103, ..Config::default() };
        change(&mut config);
        (Leases::new(&config, &mut rng), rng)
    }

    #[test]
    fn an_end_has_one_port_and_gives_it_back() {
        let (mut leases, mut rng) = leases(|_| ());
        let end = |port| SocketAddrV4::new(INSIDE, port);
        let mut take = |leases: &mut Leases, port| leases.acquire(17, end(port), Choice::Range, &mut rng);
        assert_eq!(take(&mut leases, 102), Some(102), "its own number");
        assert_eq!(take(&mut leases, 102), Some(102));
        let other: Vec<_> = (1..=3).map(|port| take(&mut leases, port).unwrap()).collect();
        assert!(other.iter().all(|port| (100..=103).contains(port) && *port != 102), "{other:?}");
        assert_eq!(take(&mut leases, 4), None, "all are in use");
        assert_eq!(leases.inside(17, 102), Some(end(102)));
        assert_eq!(leases.inside(6, 102), None);
        leases.release(17, 102);
        assert_eq!(take(&mut leases, 4), None, "held once more");
        leases.release(17, 102);
        assert_eq!(take(&mut leases, 4), Some(102));
        assert_eq!(leases.len(), 4);
    }

    #[test]
    fn forwards_and_ports_of_this_node_are_not_given_away() {
        let forward = Forward { protocol: 17, first_port: 100, last_port: 102, address: INSIDE, port: 5000 };
        let (mut leases, mut rng) = leases(|config| {
            config.forwards = vec![forward];
            config.own_ports = vec![103];
        });
        let end = |port| SocketAddrV4::new(INSIDE, port);
        assert_eq!(leases.inside(17, 102), Some(end(5002)));
        assert_eq!(leases.acquire(17, end(5001), Choice::Range, &mut rng), Some(101), "as it is forwarded");
        assert_eq!(leases.acquire(17, end(5003), Choice::Range, &mut rng), None);
        assert_eq!(leases.acquire(17, end(103), Choice::Same, &mut rng), None, "a port of this node");
        assert_eq!(leases.acquire(17, end(270), Choice::Same, &mut rng), Some(270));
    }
}
