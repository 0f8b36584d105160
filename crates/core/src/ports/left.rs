//! External ports that a daemon before this one left to their holders.
//!
//! A daemon that crashes leaves its bindings in the kernel, and one that stops writes them down. The next one knows from them which end
//! inside had which port, but neither the session nor who asked for it. So it keeps the port for that end, for as long as the binding
//! would have stood: a request for the same end gets the port again, if the rules allow the request, and no other end gets it.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeSet, HashMap};

use super::Binding;
use crate::Time;
use crate::handover::Entries;
use crate::index::KeyedHasher;

/// How much longer a port is kept than its binding, so that the kernel has removed it.
const REST: Duration = Duration::from_secs(1);

/// An address, a protocol and a port inside.
pub type End = (IpAddr, u8, u16);

/// The ports that are kept for ends inside without a session. `H`: what keeps a port from others.
#[derive(Debug)]
pub struct Left<H> {
    by_end: HashMap<End, Kept<H>, KeyedHasher>,
    /// When each of them goes, the first one first.
    order: BTreeSet<(Time, End)>,
}

/// A port that is kept for an end.
#[derive(Debug)]
struct Kept<H> {
    port: u16,
    hold: H,
    until: Time,
}

/// Why a port that the node before this one left is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// Its entry cannot be read.
    Damaged,
    /// The port is not one of this node's, or it is not free.
    NotFree(Binding),
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged => f.write_str("damaged"),
            Self::NotFree(Binding { address, protocol, port, external }) => {
                write!(
                    f,
                    "external port {external} of {address} port {port} protocol {protocol} is not free here"
                )
            }
        }
    }
}

impl<H> Left<H> {
    /// No port.
    #[must_use]
    pub fn new(hasher: KeyedHasher) -> Self {
        Self { by_end: HashMap::with_hasher(hasher), order: BTreeSet::new() }
    }

    /// When the next one goes; `None`: none is kept.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// The number of ports that are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_end.len()
    }

    /// Whether no port is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_end.is_empty()
    }

    /// The port that is kept for an end.
    #[must_use]
    pub fn port(&self, end: &End) -> Option<u16> {
        self.by_end.get(end).map(|kept| kept.port)
    }

    /// Keeps a port for its end, some time from now on. The result is the hold of the port that was kept for it before.
    pub fn keep(&mut self, now: Time, time: Duration, binding: &Binding, hold: H) -> Option<H> {
        let (end, until) = (binding.end(), now + time + REST);
        let former = self.take(&end);
        self.by_end.insert(end, Kept { port: binding.external, hold, until });
        self.order.insert((until, end));
        former
    }

    /// Keeps the ports of the entries that [`Binding::write`] wrote. `hold` keeps a port from others; `None`: it is not free here. An end
    /// that has a port already keeps that one. `not_kept` gets what is left out.
    pub fn take_over(
        &mut self,
        now: Time,
        mut entries: Entries,
        mut hold: impl FnMut(&Binding) -> Option<H>,
        mut not_kept: impl FnMut(NotKept),
    ) {
        while let Some(entry) = entries.take() {
            let Some((binding, time)) = Binding::read(entry) else {
                not_kept(NotKept::Damaged);
                continue;
            };
            if self.port(&binding.end()).is_some() {
                continue;
            }
            match hold(&binding) {
                Some(hold) => {
                    self.keep(now, time, &binding, hold);
                }
                None => not_kept(NotKept::NotFree(binding)),
            }
        }
    }

    /// Keeps the port of an end no longer. The result is its hold.
    pub fn take(&mut self, end: &End) -> Option<H> {
        let Kept { hold, until, .. } = self.by_end.remove(end)?;
        self.order.remove(&(until, *end));
        Some(hold)
    }

    /// The hold of a port that is kept for too long. Call it until it returns `None`.
    pub fn expired(&mut self, now: Time) -> Option<H> {
        let (_, end) = self.order.first().copied().filter(|(at, _)| *at <= now)?;
        self.take(&end)
    }
}

impl Binding {
    /// The end inside.
    #[must_use]
    pub const fn end(&self) -> End {
        (self.address, self.protocol, self.port)
    }

    /// The binding and the time that is left of it, as an entry of a [handover](crate::handover).
    #[must_use]
    pub fn write(&self, left: Duration) -> Vec<u8> {
        let seconds = left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0));
        let mut octets = Vec::with_capacity(26);
        match self.address {
            IpAddr::V4(v4) => {
                octets.push(4);
                octets.extend(v4.octets());
            }
            IpAddr::V6(v6) => {
                octets.push(6);
                octets.extend(v6.octets());
            }
        }
        octets.push(self.protocol);
        octets.extend(self.port.to_be_bytes());
        octets.extend(self.external.to_be_bytes());
        octets.extend(u32::try_from(seconds).unwrap_or(u32::MAX).to_be_bytes());
        octets
    }

    /// Reads what [`Binding::write`] wrote; `None`: it is damaged.
    #[must_use]
    pub fn read(octets: &[u8]) -> Option<(Self, Duration)> {
        let (family, rest) = octets.split_first()?;
        let (address, rest) = match family {
            4 => rest.split_first_chunk::<4>().map(|(address, rest)| (IpAddr::from(*address), rest))?,
            6 => rest.split_first_chunk::<16>().map(|(address, rest)| (IpAddr::from(*address), rest))?,
            _ => return None,
        };
        let [protocol, p1, p0, e1, e0, s3, s2, s1, s0] = <[u8; 9]>::try_from(rest).ok()?;
        let (port, external) = (u16::from_be_bytes([p1, p0]), u16::from_be_bytes([e1, e0]));
        let left = Duration::from_secs(u32::from_be_bytes([s3, s2, s1, s0]).into());
        Some((Self { address, protocol, port, external }, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(address: &str, port: u16) -> Binding {
        Binding { address: address.parse().unwrap(), protocol: 17, port, external: 40_000 + port }
    }

    #[test]
    fn a_binding_comes_back_as_it_was_written() {
        for one in [binding("10.0.0.1", 1), binding("2001:db8::1", 2)] {
            let octets = one.write(Duration::from_millis(1500));
            assert_eq!(Binding::read(&octets), Some((one, Duration::from_secs(2))));
            for end in 0..octets.len() {
                assert_eq!(Binding::read(&octets[..end]), None);
            }
            assert_eq!(Binding::read(&[&octets[..], &[0]].concat()), None);
        }
    }

    /// Ports go in the order of their times, whatever the order in which they came; one that was taken is no longer there.
    #[test]
    fn ports_are_kept_for_their_time() {
        let mut left = Left::new(KeyedHasher::with_key([7; 16]));
        let now = Time::from_secs(10);
        for (port, seconds) in [(1, 30), (2, 10), (3, 20)] {
            left.keep(now, Duration::from_secs(seconds), &binding("10.0.0.1", port), port);
        }
        let end = binding("10.0.0.1", 3).end();
        assert_eq!((left.port(&end), left.deadline()), (Some(40_003), Some(Time::from_secs(21))));
        assert_eq!(left.expired(Time::from_secs(20)), None);
        assert_eq!((left.take(&end), left.port(&end)), (Some(3), None));
        // Kept again it stays for the later time, and nothing of the former one is left.
        let again = left.keep(now, Duration::from_secs(40), &binding("10.0.0.1", 2), 9);
        assert_eq!((again, left.len(), left.deadline()), (Some(2), 2, Some(Time::from_secs(41))));
        let mut gone = Vec::new();
        while let Some(hold) = left.expired(Time::from_secs(100)) {
            gone.push(hold);
        }
        assert_eq!((gone, left.deadline(), left.is_empty()), (vec![1, 9], None, true));
    }

    /// What cannot be read and what is not free is left out; an end keeps the port that it has; the others stay for their time.
    #[test]
    fn ports_of_the_predecessor_are_taken_over() {
        let mut left = Left::new(KeyedHasher::with_key([7; 16]));
        let now = Time::from_secs(10);
        let (first, second, used) =
            (binding("10.0.0.1", 1), binding("2001:db8::1", 2), binding("10.0.0.1", 3));
        let mut entries = Entries::default();
        for one in [first, second, used, Binding { external: 50_000, ..first }] {
            assert!(entries.push(&one.write(Duration::from_secs(30))));
        }
        assert!(entries.push(b"") && entries.push(&[4; 13]) && entries.push(b"\x07foreign"));
        let (mut held, mut not_kept) = (Vec::new(), Vec::new());
        let hold = |binding: &Binding| {
            held.push(binding.external);
            (*binding != used).then_some(binding.external)
        };
        left.take_over(now, entries, hold, |why| not_kept.push(why));
        assert_eq!(held, [first.external, second.external, used.external], "each end is asked for once");
        assert_eq!(not_kept, [NotKept::NotFree(used), NotKept::Damaged, NotKept::Damaged, NotKept::Damaged]);
        assert_eq!(
            NotKept::NotFree(used).to_string(),
            "external port 40003 of 10.0.0.1 port 3 protocol 17 is not free here"
        );
        let kept = [first, second, used].map(|one| left.port(&one.end()));
        assert_eq!(kept, [Some(40_001), Some(40_002), None]);
        assert_eq!(left.expired(Time::from_secs(40)), None);
        assert_eq!(left.expired(Time::from_secs(41)), Some(40_001));
    }
}
