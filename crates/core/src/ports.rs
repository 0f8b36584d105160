//! External ports of a NAT: which are free, and which host inside has which.
//!
//! Ports are kept in pairs (an even one and the following), so that a host can have two ports in a row (RFC 5973
//! §4.2.4). Pairs are drawn in a random order, so that the next port cannot be predicted. A port at an end of the range whose pair is
//! not in the range is given alone. A port that comes back is given last, so that the flows of its former holder are over
//! when it has a new one.

pub mod left;

use core::net::{IpAddr, Ipv4Addr};
use std::collections::VecDeque;

use crate::Random;
use crate::index::{Index, KeyedHasher};
use crate::invariant;
use crate::node::Interface;
use crate::shares::Shares;
use crate::slab::{Key, Slab};

/// The first IPv4 address of the first of these interfaces that has one: the external address of a NAT whose outside they are.
#[must_use]
pub fn external_address(interfaces: &[Interface], outside: &[String]) -> Option<Ipv4Addr> {
    outside.iter().find_map(|name| {
        let interface = interfaces.iter().find(|interface| interface.name == *name)?;
        interface.addresses.iter().find_map(|address| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        })
    })
}

/// The end of a flow inside, and what it needs outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inside {
    /// The address inside.
    pub address: IpAddr,
    /// The IP protocol, one with ports.
    pub protocol: u8,
    /// The port inside.
    pub port: u16,
    /// It needs the following port as well.
    pub second: bool,
}

/// An external port that the kernel still translates for a host inside, although no session of this process has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The address inside.
    pub address: IpAddr,
    /// The IP protocol.
    pub protocol: u8,
    /// The port inside.
    pub port: u16,
    /// The port outside.
    pub external: u16,
}

/// An external port of a host inside.
#[derive(Debug)]
struct Lease {
    inside: Inside,
    /// Whose share it takes.
    holder: IpAddr,
    port: u16,
    /// Sessions that hold it.
    users: u32,
}

/// One bit for each port.
#[derive(Debug)]
struct Bits(Box<[u64]>);

impl Bits {
    fn new() -> Self {
        Self(vec![0; 1 << 10].into())
    }

    fn has(&self, port: u16) -> bool {
        self.0.get(usize::from(port / 64)).is_some_and(|word| word & 1 << (port % 64) != 0)
    }

    fn set(&mut self, port: u16, on: bool) {
        if let Some(word) = self.0.get_mut(usize::from(port / 64)) {
            let bit = 1 << (port % 64);
            *word = if on { *word | bit } else { *word & !bit };
        }
    }
}

/// Ports to draw from, each once, the first that came first. Entries may be stale: [`Ports::is_used`] decides.
#[derive(Debug)]
struct List {
    ports: VecDeque<u16>,
    has: Bits,
}

impl List {
    fn new(ports: Vec<u16>) -> Self {
        let mut has = Bits::new();
        ports.iter().for_each(|port| has.set(*port, true));
        Self { ports: ports.into(), has }
    }

    fn push(&mut self, port: u16) {
        if !self.has.has(port) {
            self.has.set(port, true);
            self.ports.push_back(port);
        }
    }

    fn pop(&mut self) -> Option<u16> {
        let port = self.ports.pop_front()?;
        self.has.set(port, false);
        Some(port)
    }
}

/// Free ports whose neighbor is in use are kept back: the number of ports in the range, divided by this.
const WAITING: usize = 16;

/// The external ports of a NAT.
#[derive(Debug)]
pub struct Ports {
    first: u16,
    last: u16,
    /// The first and the last port that is given to who wishes for it, whether or not ports are drawn from there.
    wishes: (u16, u16),
    /// Even ports of free pairs.
    pairs: List,
    /// Free ports whose neighbor is in use.
    singles: List,
    used: Bits,
    leases: Slab<Lease>,
    by_inside: Index,
    hasher: KeyedHasher,
    shares: Shares<IpAddr>,
}

/// No port is left, or what is left is for other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPort;

impl Ports {
    /// The ports from `first` to `last`, without 0.
    #[must_use]
    pub fn new(first: u16, last: u16, rng: &mut Random) -> Self {
        let range = first.max(1)..=last;
        let mut pairs: Vec<u16> =
            range.clone().filter(|port| port % 2 == 0 && range.contains(&(port | 1))).collect();
        for at in (1..pairs.len()).rev() {
            let other = usize::try_from(rng.range(0..at as u64 + 1)).unwrap_or(0);
            pairs.swap(at, other);
        }
        let singles: Vec<u16> = range.clone().filter(|port| !range.contains(&(port ^ 1))).collect();
        let most = u32::try_from(range.len()).unwrap_or(0);
        let mut used = Bits::new();
        // The neighbor of a port that is given alone is never free.
        singles.iter().for_each(|port| used.set(port ^ 1, true));
        Self {
            first: *range.start(),
            last,
            wishes: (*range.start(), last),
            pairs: List::new(pairs),
            singles: List::new(singles),
            used,
            leases: Slab::new(most),
            by_inside: Index::new(),
            hasher: KeyedHasher::new(rng),
            shares: Shares::new(most.max(1), KeyedHasher::new(rng)),
        }
    }

    /// Gives ports of this range, too, to who wishes for one. The number of leases stays that of the ports that are drawn.
    #[must_use]
    pub fn with_wishes(self, first: u16, last: u16) -> Self {
        Self { wishes: (first.max(1), last), ..self }
    }

    /// A lease for the end of a flow: the one that it has, or a new one, which takes of the share of `holder`. A new one is
    /// for the port `wish`, if that is free. The caller holds the lease until it calls [`Ports::release`].
    ///
    /// # Errors
    /// No port is left for this holder.
    pub fn acquire(
        &mut self,
        inside: Inside,
        holder: IpAddr,
        wish: Option<u16>,
    ) -> Result<(Key, u16), NoPort> {
        let hash = self.hasher.hash_one(&inside);
        let leases = &self.leases;
        let found = self.by_inside.find(hash, |i| {
            invariant!(leases.get_index(i), "the index of ends inside names leases")
                .is_some_and(|l| l.inside == inside)
        });
        if let Some(key) = found.and_then(|index| self.leases.key_of(index))
            && let Some(lease) = self.leases.get_mut(key)
        {
            lease.users += 1;
            return Ok((key, lease.port));
        }
        self.shares.take(holder).map_err(|_| NoPort)?;
        let wished = wish.and_then(|port| self.take_wished(port, inside.second));
        let port = wished.or_else(|| if inside.second { self.take_pair() } else { self.take_single() });
        let key = port.and_then(|port| self.leases.insert(Lease { inside, holder, port, users: 1 }).ok());
        let (Some(port), Some(key)) = (port, key) else {
            self.shares.release(holder);
            return Err(NoPort);
        };
        let Self { leases, by_inside, hasher, .. } = self;
        by_inside.insert(hash, key.index(), |i| {
            invariant!(leases.get_index(i), "each entry of the index is a lease")
                .map_or(0, |lease| hasher.hash_one(&lease.inside))
        });
        Ok((key, port))
    }

    /// One more session holds a lease that another one holds.
    pub fn hold(&mut self, key: Key) {
        if let Some(lease) = invariant!(self.leases.get_mut(key), "a lease stands while it is held") {
            lease.users += 1;
        }
    }

    /// A session holds a lease no longer.
    pub fn release(&mut self, key: Key) {
        let Some(lease) = invariant!(self.leases.get_mut(key), "a lease is given back by its holders only")
        else {
            return;
        };
        lease.users -= 1;
        if lease.users > 0 {
            return;
        }
        let Some(Lease { inside, holder, port, .. }) = self.leases.remove(key) else { return };
        let found = self.by_inside.remove(self.hasher.hash_one(&inside), |i| i == key.index());
        invariant!(found, "each lease is in the index");
        self.shares.release(holder);
        self.used.set(port, false);
        if inside.second {
            self.used.set(port | 1, false);
        }
        if !self.is_drawn(port) {
            return;
        }
        if inside.second {
            self.pairs.push(port & !1);
        } else if self.is_used(port ^ 1) {
            self.singles.push(port);
        } else {
            self.pairs.push(port & !1);
        }
    }

    /// The port of a lease.
    #[must_use]
    pub fn port(&self, key: Key) -> Option<u16> {
        self.leases.get(key).map(|lease| lease.port)
    }

    /// Number of leases.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.leases.len()
    }

    /// Whether there is no lease.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.leases.len() == 0
    }

    /// Limit of leases.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.leases.limit()
    }

    fn take_pair(&mut self) -> Option<u16> {
        // Stale: one of them was wished for.
        while let Some(port) = self.pairs.pop() {
            if !self.is_used(port) && !self.is_used(port | 1) {
                self.used.set(port, true);
                self.used.set(port | 1, true);
                return Some(port);
            }
        }
        None
    }

    fn take_single(&mut self) -> Option<u16> {
        // Some wait, so that none of them comes back at once.
        self.take_left(self.leases.limit() as usize / WAITING)
            .or_else(|| self.split_pair())
            .or_else(|| self.take_left(0))
    }

    /// Takes a port whose neighbor is in use, if more than `wait` are free.
    fn take_left(&mut self, wait: usize) -> Option<u16> {
        while self.singles.ports.len() > wait {
            let port = self.singles.pop()?;
            // Stale: it is used again, or its pair is whole again.
            if !self.is_used(port) && self.is_used(port ^ 1) {
                self.used.set(port, true);
                return Some(port);
            }
        }
        None
    }

    fn split_pair(&mut self) -> Option<u16> {
        let port = self.take_pair()?;
        self.used.set(port | 1, false);
        self.singles.push(port | 1);
        Some(port)
    }

    /// Takes this port, if it is free.
    fn take_wished(&mut self, port: u16, second: bool) -> Option<u16> {
        let free = |port: u16| {
            let given = self.is_drawn(port) || (self.wishes.0..=self.wishes.1).contains(&port);
            given && !self.is_used(port)
        };
        if !free(port) {
            return None;
        }
        if second {
            let pair = port.is_multiple_of(2) && free(port | 1);
            return pair.then(|| {
                self.used.set(port, true);
                self.used.set(port | 1, true);
                port
            });
        }
        self.used.set(port, true);
        if self.is_drawn(port) && !self.is_used(port ^ 1) {
            self.singles.push(port ^ 1);
        }
        Some(port)
    }

    /// Whether the port is one of those that are drawn.
    #[must_use]
    pub fn is_drawn(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    fn is_used(&self, port: u16) -> bool {
        self.used.has(port)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn inside(host: u8, port: u16, second: bool) -> Inside {
        Inside { address: [10, 0, 0, host].into(), protocol: 17, port, second }
    }

    fn ports(first: u16, last: u16) -> Ports {
        Ports::new(first, last, &mut Random::from_number(7))
    }

    fn take(ports: &mut Ports, inside: Inside) -> Result<(Key, u16), NoPort> {
        ports.acquire(inside, inside.address, None)
    }

    #[test]
    fn a_wish_is_granted_if_the_port_is_free() {
        let mut ports = ports(40000, 40031);
        let host: IpAddr = [10, 0, 0, 9].into();
        let mut wish = |n, port| ports.acquire(inside(n, 1, false), host, Some(port)).unwrap();
        let (key, port) = wish(1, 40007);
        assert_eq!(port, 40007);
        let other = wish(2, 40007).1;
        assert_ne!(other, 40007);
        for outside in [39999, 40032, 0] {
            assert!((40000..=40031).contains(&wish(3, outside).1));
        }
        // Ports that are in use stay with their holders.
        assert_eq!(wish(1, 40009).1, 40007);
        for _ in 0..2 {
            ports.release(key);
        }
        assert_eq!(ports.acquire(inside(4, 1, false), host, Some(40007)).unwrap().1, 40007);
        let pair =
            |ports: &mut Ports, n, wish| ports.acquire(inside(n, 3, true), host, Some(wish)).unwrap().1;
        assert_eq!(pair(&mut ports, 4, 40010), 40010);
        assert_ne!(pair(&mut ports, 5, 40006), 40006, "its second port is in use");
        assert_ne!(pair(&mut ports, 6, 40013), 40013, "a pair begins with an even port");
        // All of them are of one holder.
        let many = (5..=250).filter(|n| ports.acquire(inside(*n, 1, false), host, None).is_ok()).count();
        assert!(many < 32 && take(&mut ports, inside(251, 1, false)).is_ok(), "{many}");
    }

    /// Ports from 1024 on can be wished for; those outside of the range are never drawn, also not when they come back.
    #[test]
    fn a_wish_may_be_for_a_port_that_is_not_drawn() {
        let mut ports = ports(40000, 40015).with_wishes(1024, 65535);
        let host: IpAddr = [10, 0, 0, 9].into();
        for (n, wish, second, given) in [
            (1, 22000, false, true),
            (2, 22000, false, false),
            (3, 22001, false, true),
            (4, 3074, true, true),
            (5, 3075, false, false),
            (6, 1023, false, false),
            (7, 65535, true, false),
            (8, 65535, false, true),
        ] {
            let (key, port) = ports.acquire(inside(n, 1, second), host, Some(wish)).unwrap();
            assert_eq!(port == wish, given, "{n} {wish}");
            if !given {
                assert!((40000..=40015).contains(&port), "{port}");
                ports.release(key);
            }
        }
        let again = ports.acquire(inside(1, 1, false), host, None).unwrap();
        assert_eq!(again.1, 22000);
        (0..2).for_each(|_| ports.release(again.0));
        let drawn: Vec<u16> =
            (20..32).filter_map(|n| Some(take(&mut ports, inside(n, 1, false)).ok()?.1)).collect();
        assert!(drawn.len() > 8 && drawn.iter().all(|port| (40000..=40015).contains(port)), "{drawn:?}");
    }

    #[test]
    fn one_end_has_one_port_while_any_session_holds_it() {
        let mut ports = ports(40000, 40063);
        let (key, port) = take(&mut ports, inside(1, 5000, false)).unwrap();
        let (again, same) = take(&mut ports, inside(1, 5000, false)).unwrap();
        assert_eq!((key, port), (again, same));
        ports.release(key);
        assert_eq!(take(&mut ports, inside(1, 5000, false)).unwrap().1, port);
        ports.release(key);
        ports.release(key);
        assert_eq!((ports.len(), ports.shares.total()), (0, 0));
    }

    #[test]
    fn a_port_that_comes_back_is_given_last() {
        for second in [false, true] {
            let mut ports = ports(40000, 40255);
            let (key, first) = take(&mut ports, inside(1, 5000, second)).unwrap();
            let others: Vec<_> =
                (2..12).map(|host| take(&mut ports, inside(host, 5000, second)).unwrap()).collect();
            ports.release(key);
            others.iter().for_each(|(key, _)| ports.release(*key));
            let next: Vec<u16> =
                (20..30).map(|host| take(&mut ports, inside(host, 5000, second)).unwrap().1).collect();
            assert!(
                !next.contains(&first) && others.iter().all(|(_, port)| !next.contains(port)),
                "{next:?}"
            );
        }
    }

    #[test]
    fn a_host_that_takes_all_leaves_others_their_share() {
        let mut ports = ports(40000, 40255);
        let greedy = (0..999).filter(|n| take(&mut ports, inside(1, *n, false)).is_ok()).count();
        assert_eq!(greedy, 192, "three quarters");
        assert!(take(&mut ports, inside(2, 1, false)).is_ok());
    }

    #[test]
    fn a_range_is_used_to_its_ends() {
        for (first, last) in [(40000, 40000), (40001, 40001), (1, 2), (40001, 40004), (65534, 65535), (0, 1)]
        {
            let mut ports = ports(first, last);
            for _ in 0..2 {
                let hosts = 1..=u8::MAX;
                let held: Vec<_> =
                    hosts.filter_map(|host| take(&mut ports, inside(host, 5000, false)).ok()).collect();
                let given: BTreeSet<u16> = held.iter().map(|(_, port)| *port).collect();
                assert_eq!(held.len(), given.len());
                assert_eq!(given, (first.max(1)..=last).collect());
                held.into_iter().for_each(|(key, _)| ports.release(key));
            }
        }
        assert_eq!(ports(1, 0).limit(), 0);
        assert!(take(&mut ports(40001, 40002), inside(1, 5000, true)).is_err(), "no two ports in a row");
    }

    proptest! {
        /// No port is given twice, a pair is even, and all ports come back.
        #[test]
        fn ports_are_given_once(steps in proptest::collection::vec((0u16..40, any::<bool>(), any::<bool>()), 0..300)) {
            let mut ports = ports(40000, 40031);
            let mut held: Vec<(Key, Vec<u16>)> = Vec::new();
            for (number, second, release) in steps {
                if release && !held.is_empty() {
                    let (key, _) = held.swap_remove(usize::from(number) % held.len());
                    ports.release(key);
                } else if let Ok((key, port)) = {
                    let end = inside(u8::try_from(number).unwrap(), 5000 + u16::from(second), second);
                    let wish = (number % 3 == 0).then_some(40000 + number);
                    ports.acquire(end, end.address, wish)
                } {
                    if held.iter().any(|(other, _)| *other == key) {
                        ports.release(key);
                        continue;
                    }
                    prop_assert!(!second || port % 2 == 0);
                    held.push((key, (port..=port + u16::from(second)).collect()));
                }
                let all: Vec<u16> = held.iter().flat_map(|(_, ports)| ports.clone()).collect();
                prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
            }
            for (key, _) in held {
                ports.release(key);
            }
            let free = (40000..=40031).filter(|port| !ports.is_used(*port)).count();
            prop_assert_eq!((ports.len(), free), (0, 32));
            prop_assert!(ports.pairs.ports.len() <= 16 && ports.singles.ports.len() <= 32);
            let given: BTreeSet<u16> =
                (1..=9).filter_map(|n| Some(take(&mut ports, inside(n, 1, true)).ok()?.1)).collect();
            prop_assert_eq!(given.len(), 9, "pairs are whole again");
        }
    }
}
