//! External ports of hosts inside.
//!
//! One end inside has one external port, whatever the other end of its flows is. An end keeps its own port number outside if
//! it can.

use core::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::collections::HashMap;

use signalbox_core::Random;
use signalbox_core::index::KeyedHasher;
use signalbox_core::ports::Binding;
use signalbox_core::shares::is_scarce;

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
    /// This port if it is free, otherwise one of the configured range.
    Prefer(u16),
}

/// A binding's hold on an external port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) external: External,
    /// The host inside asked for the port itself. Otherwise Queries from outside do not find the host by it.
    pub(super) own: bool,
}

#[derive(Debug)]
struct Lease {
    inside: SocketAddrV4,
    /// Bindings that hold it, and those among them that the host itself asked for.
    users: u32,
    own: u32,
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
        let [external, inside] = [KeyedHasher::new(rng), KeyedHasher::new(rng)];
        Self {
            first: config.first_port,
            last: config.last_port,
            forwards: config.forwards.clone(),
            own_ports: config.own_ports.clone(),
            by_external: HashMap::with_hasher(external),
            by_inside: HashMap::with_hasher(inside),
        }
    }

    /// What hashes ends inside.
    pub(super) fn hasher(&self) -> KeyedHasher {
        *self.by_inside.hasher()
    }

    /// The external port of an end inside, which the caller holds until it calls [`Leases::release`]; `None`: no port was
    /// found. `own`: see [`Hold`]. GISTNAT-D6.2-04.
    pub(super) fn acquire(
        &mut self,
        protocol: u8,
        inside: SocketAddrV4,
        (choice, own): (Choice, bool),
        rng: &mut Random,
    ) -> Option<Hold> {
        let hold = |port| Hold { external: (protocol, port), own };
        let preferred = match choice {
            Choice::Prefer(port) => self.is_free(protocol, port),
            Choice::Range | Choice::Same => false,
        };
        if let Some(port) = self.by_inside.get(&(protocol, inside)).copied() {
            if let Some(lease) = self.by_external.get_mut(&(protocol, port)) {
                lease.users += 1;
                lease.own += u32::from(own);
            }
            return Some(hold(port));
        }
        // A flow that stood may have had another port than the forwarded one; then that is its port until it ends.
        if let Some(port) = self.forward_of(protocol, inside).filter(|_| !preferred) {
            return Some(hold(port));
        }
        let port = self.free(protocol, inside, choice, rng)?;
        self.by_external.insert((protocol, port), Lease { inside, users: 1, own: own.into() });
        self.by_inside.insert((protocol, inside), port);
        Some(hold(port))
    }

    /// Holds the external port by which the kernel translates an end inside already; `None`: the end has another one, or
    /// the port is another end's.
    pub(super) fn adopt(
        &mut self,
        (protocol, port): External,
        inside: SocketAddrV4,
        own: bool,
    ) -> Option<Hold> {
        // As in `acquire`: no other end gets a forwarded port, so it has no lease.
        if self.is_forwarded((protocol, port), inside) {
            return Some(Hold { external: (protocol, port), own });
        }
        let known = self.by_inside.get(&(protocol, inside)).is_some_and(|known| *known == port);
        let free = !self.by_inside.contains_key(&(protocol, inside)) && self.is_free(protocol, port);
        if !known && !free {
            return None;
        }
        let lease = self.by_external.entry((protocol, port)).or_insert(Lease { inside, users: 0, own: 0 });
        lease.users += 1;
        lease.own += u32::from(own);
        self.by_inside.insert((protocol, inside), port);
        Some(Hold { external: (protocol, port), own })
    }

    /// The external port of an end inside, if it has one.
    pub(super) fn port_of(&self, protocol: u8, inside: SocketAddrV4) -> Option<u16> {
        let lease = self.by_inside.get(&(protocol, inside)).copied();
        lease.or_else(|| self.forward_of(protocol, inside))
    }

    fn free(&self, protocol: u8, inside: SocketAddrV4, choice: Choice, rng: &mut Random) -> Option<u16> {
        let (wanted, any) = match choice {
            Choice::Range => (inside.port(), false),
            Choice::Same => (inside.port(), true),
            Choice::Prefer(port) => (port, true),
        };
        let same = any || self.is_in_range(wanted);
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

    /// A binding holds the port no longer.
    pub(super) fn release(&mut self, hold: Hold) {
        let Some(lease) = self.by_external.get_mut(&hold.external) else { return };
        lease.users -= 1;
        lease.own = lease.own.saturating_sub(hold.own.into());
        if lease.users == 0 {
            let inside = (hold.external.0, lease.inside);
            self.by_external.remove(&hold.external);
            self.by_inside.remove(&inside);
        }
    }

    /// The end inside that has an external port by the configuration, or by a lease that it asked for. GISTNAT-D6.2-02.
    pub(super) fn inside(&self, protocol: u8, port: u16) -> Option<SocketAddrV4> {
        let forward = self.forward(protocol, port).map(|(address, port)| SocketAddrV4::new(address, port));
        let lease = || self.by_external.get(&(protocol, port)).filter(|lease| lease.own > 0);
        forward.or_else(|| lease().map(|lease| lease.inside))
    }

    /// The host and its port for which the configuration forwards an external port.
    fn forward(&self, protocol: u8, port: u16) -> Option<(Ipv4Addr, u16)> {
        self.forwards.iter().find_map(|forward| {
            let is_its =
                forward.protocol == protocol && (forward.first_port..=forward.last_port).contains(&port);
            is_its.then(|| (forward.address, forward.port + (port - forward.first_port)))
        })
    }

    /// Whether the configuration forwards an external port to this end inside.
    pub(super) fn is_forwarded(&self, (protocol, port): External, inside: SocketAddrV4) -> bool {
        self.forward(protocol, port) == Some((*inside.ip(), inside.port()))
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

    /// Whether a port is one of the configured range.
    pub(super) fn is_in_range(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// All leases.
    pub(super) fn iter(&self) -> impl Iterator<Item = Binding> {
        self.by_external.iter().map(|((protocol, external), lease)| Binding {
            address: IpAddr::V4(*lease.inside.ip()),
            protocol: *protocol,
            port: lease.inside.port(),
            external: *external,
        })
    }

    /// The number of ports.
    pub(super) fn limit(&self) -> u32 {
        u32::from(self.last - self.first) + 1
    }

    /// Whether what is left is for interfaces that have few.
    pub(super) fn is_scarce(&self) -> bool {
        is_scarce(self.limit(), self.len() + 1)
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
        let mut take = |leases: &mut Leases, port| {
            let hold = leases.acquire(17, end(port), (Choice::Range, true), &mut rng)?;
            Some(hold.external.1)
        };
        let hold = |port| Hold { external: (17, port), own: true };
        assert_eq!(take(&mut leases, 102), Some(102), "its own number");
        assert_eq!(take(&mut leases, 102), Some(102));
        let other: Vec<_> = (1..=3).map(|port| take(&mut leases, port).unwrap()).collect();
        assert!(other.iter().all(|port| (100..=103).contains(port) && *port != 102), "{other:?}");
        assert_eq!(take(&mut leases, 4), None, "all are in use");
        assert_eq!(leases.inside(17, 102), Some(end(102)));
        assert_eq!(leases.inside(6, 102), None);
        leases.release(hold(102));
        assert_eq!(take(&mut leases, 4), None, "held once more");
        leases.release(hold(102));
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
        let mut take = |port, choice| {
            let hold = leases.acquire(17, end(port), (choice, true), &mut rng)?;
            Some(hold.external.1)
        };
        assert_eq!(take(5001, Choice::Range), Some(101), "as it is forwarded");
        assert_eq!(take(5003, Choice::Range), None);
        assert_eq!(take(103, Choice::Same), None, "a port of this node");
        assert_eq!(take(270, Choice::Same), Some(270));
    }

    #[test]
    fn a_host_is_found_by_ports_that_it_asked_for() {
        let (mut leases, mut rng) = leases(|_| ());
        let end = SocketAddrV4::new(INSIDE, 102);
        let mut take = |leases: &mut Leases, own| leases.acquire(17, end, (Choice::Range, own), &mut rng);
        let by_another = take(&mut leases, false).unwrap();
        assert_eq!((by_another.external.1, leases.inside(17, 102)), (102, None));
        let own = take(&mut leases, true).unwrap();
        assert_eq!(leases.inside(17, 102), Some(end));
        leases.release(own);
        assert_eq!(leases.inside(17, 102), None);
        leases.release(by_another);
        assert_eq!(leases.len(), 0);
    }
}
