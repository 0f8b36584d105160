//! External ports of a NAT: which are free, and which host inside has which.
//!
//! Ports are kept in pairs (an even one and the following), so that a host can have two ports in a row (RFC 5973
//! §4.2.4). Pairs are drawn in a random order: nobody can guess the next port. A port at an end of the range whose pair is
//! not in the range is given alone.

use core::net::IpAddr;

use signalbox_core::Random;
use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::shares::Shares;
use signalbox_core::slab::{Key, Slab};

/// The end of a flow inside, and what it needs outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Inside {
    pub(super) address: IpAddr,
    pub(super) protocol: u8,
    pub(super) port: u16,
    /// It needs the following port as well.
    pub(super) second: bool,
}

/// An external port of a host inside.
#[derive(Debug)]
struct Lease {
    inside: Inside,
    port: u16,
    /// Sessions that hold it.
    users: u32,
}

#[derive(Debug)]
pub(super) struct Ports {
    /// Even ports of free pairs.
    pairs: Vec<u16>,
    /// Free ports whose neighbour is in use. Entries may be stale: [`Ports::is_used`] decides.
    singles: Vec<u16>,
    /// One bit for each port.
    used: Box<[u64]>,
    leases: Slab<Lease>,
    by_inside: Index,
    hasher: KeyedHasher,
    shares: Shares<IpAddr>,
}

/// No port is left, or what is left is for other hosts.
#[derive(Debug)]
pub(super) struct NoPort;

impl Ports {
    /// The ports from `first` to `last`, without 0.
    pub(super) fn new(first: u16, last: u16, rng: &mut Random) -> Self {
        let range = first.max(1)..=last;
        let mut pairs: Vec<u16> =
            range.clone().filter(|port| port % 2 == 0 && range.contains(&(port | 1))).collect();
        for at in (1..pairs.len()).rev() {
            let other = usize::try_from(rng.range(0..at as u64 + 1)).unwrap_or(0);
            pairs.swap(at, other);
        }
        let singles: Vec<u16> = range.clone().filter(|port| !range.contains(&(port ^ 1))).collect();
        let most = u32::try_from(range.len()).unwrap_or(0);
        let mut ports = Self {
            pairs,
            singles: singles.clone(),
            used: vec![0; 1 << 10].into(),
            leases: Slab::new(most),
            by_inside: Index::new(),
            hasher: KeyedHasher::new(rng),
            shares: Shares::new(most.max(1), KeyedHasher::new(rng)),
        };
        // The neighbour of a port that is given alone is never free.
        for port in singles {
            ports.set_used(port ^ 1, true);
        }
        ports
    }

    /// A lease for the end of a flow: the one that it has, or a new one. The caller holds it until it calls
    /// [`Ports::release`].
    pub(super) fn acquire(&mut self, inside: Inside) -> Result<(Key, u16), NoPort> {
        let hash = self.hasher.hash_one(&inside);
        let leases = &self.leases;
        let found = self.by_inside.find(hash, |i| leases.get_index(i).is_some_and(|l| l.inside == inside));
        if let Some(key) = found.and_then(|index| self.leases.key_of(index))
            && let Some(lease) = self.leases.get_mut(key)
        {
            lease.users += 1;
            return Ok((key, lease.port));
        }
        self.shares.take(inside.address).map_err(|_| NoPort)?;
        let port = if inside.second { self.take_pair() } else { self.take_single() };
        let key = port.and_then(|port| self.leases.insert(Lease { inside, port, users: 1 }).ok());
        let (Some(port), Some(key)) = (port, key) else {
            self.shares.release(inside.address);
            return Err(NoPort);
        };
        let Self { leases, by_inside, hasher, .. } = self;
        by_inside.insert(hash, key.index(), |i| {
            leases.get_index(i).map_or(0, |lease| hasher.hash_one(&lease.inside))
        });
        Ok((key, port))
    }

    /// One more session holds a lease.
    pub(super) fn hold(&mut self, key: Key) {
        if let Some(lease) = self.leases.get_mut(key) {
            lease.users += 1;
        }
    }

    /// A session holds a lease no longer.
    pub(super) fn release(&mut self, key: Key) {
        let Some(lease) = self.leases.get_mut(key) else { return };
        lease.users -= 1;
        if lease.users > 0 {
            return;
        }
        let Some(Lease { inside, port, .. }) = self.leases.remove(key) else { return };
        self.by_inside.remove(self.hasher.hash_one(&inside), |i| i == key.index());
        self.shares.release(inside.address);
        self.set_used(port, false);
        if inside.second {
            self.set_used(port | 1, false);
            self.pairs.push(port & !1);
        } else if self.is_used(port ^ 1) {
            self.singles.push(port);
        } else {
            self.pairs.push(port & !1);
        }
    }

    /// Number of leases.
    pub(super) const fn len(&self) -> u32 {
        self.leases.len()
    }

    /// Limit of leases.
    pub(super) const fn limit(&self) -> u32 {
        self.leases.limit()
    }

    fn take_pair(&mut self) -> Option<u16> {
        let port = self.pairs.pop()?;
        self.set_used(port, true);
        self.set_used(port | 1, true);
        Some(port)
    }

    fn take_single(&mut self) -> Option<u16> {
        while let Some(port) = self.singles.pop() {
            // Stale: it is used again, or its pair is whole again.
            if !self.is_used(port) && self.is_used(port ^ 1) {
                self.set_used(port, true);
                return Some(port);
            }
        }
        let port = self.pairs.pop()?;
        self.set_used(port, true);
        self.singles.push(port | 1);
        Some(port)
    }

    fn is_used(&self, port: u16) -> bool {
        self.used.get(usize::from(port / 64)).is_some_and(|word| word & 1 << (port % 64) != 0)
    }

    fn set_used(&mut self, port: u16, used: bool) {
        if let Some(word) = self.used.get_mut(usize::from(port / 64)) {
            let bit = 1 << (port % 64);
            *word = if used { *word | bit } else { *word & !bit };
        }
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

    #[test]
    fn one_end_has_one_port_while_any_session_holds_it() {
        let mut ports = ports(40000, 40063);
        let (key, port) = ports.acquire(inside(1, 5000, false)).unwrap();
        let (again, same) = ports.acquire(inside(1, 5000, false)).unwrap();
        assert_eq!((key, port), (again, same));
        ports.release(key);
        assert_eq!(ports.acquire(inside(1, 5000, false)).unwrap().1, port);
        ports.release(key);
        ports.release(key);
        assert_eq!((ports.len(), ports.shares.total()), (0, 0));
    }

    #[test]
    fn a_host_that_takes_all_leaves_others_their_share() {
        let mut ports = ports(40000, 40255);
        let greedy = (0..999).filter(|n| ports.acquire(inside(1, *n, false)).is_ok()).count();
        assert_eq!(greedy, 192, "three quarters");
        assert!(ports.acquire(inside(2, 1, false)).is_ok());
    }

    #[test]
    fn a_range_is_used_to_its_ends() {
        for (first, last) in [(40000, 40000), (40001, 40001), (1, 2), (40001, 40004), (65534, 65535), (0, 1)]
        {
            let mut ports = ports(first, last);
            for _ in 0..2 {
                let hosts = 1..=u8::MAX;
                let held: Vec<_> =
                    hosts.filter_map(|host| ports.acquire(inside(host, 5000, false)).ok()).collect();
                let given: BTreeSet<u16> = held.iter().map(|(_, port)| *port).collect();
                assert_eq!(held.len(), given.len());
                assert_eq!(given, (first.max(1)..=last).collect());
                held.into_iter().for_each(|(key, _)| ports.release(key));
            }
        }
        assert_eq!(ports(1, 0).limit(), 0);
        assert!(ports(40001, 40002).acquire(inside(1, 5000, true)).is_err(), "no two ports in a row");
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
                } else if let Ok((key, port)) =
                    ports.acquire(inside(u8::try_from(number).unwrap(), 5000 + u16::from(second), second))
                {
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
            let pairs: BTreeSet<u16> = ports.pairs.iter().copied().collect();
            prop_assert_eq!((pairs.len(), ports.pairs.len()), (16, 16));
        }
    }
}
