//! Sessions by destination: the index of the sessions that a change of routes concerns.
//!
//! Sessions are in the order of their destinations, so that a prefix or a destination is a range of them. A change
//! costs only the sessions that it concerns.

use core::net::IpAddr;
use std::collections::BTreeSet;

use signalbox_core::node::Prefix;

/// Sessions by destination, and by their numbers in the table of sessions.
#[derive(Debug, Default)]
pub(crate) struct Destinations {
    /// Destination and number in one integer, so that one comparison orders them.
    v4: BTreeSet<u64>,
    v6: BTreeSet<(u128, u32)>,
}

/// A range of destinations that is visited session by session. `next` is the destination and number to go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    v6: bool,
    next: Option<(u128, u32)>,
    last: u128,
}

impl Range {
    /// All destinations of a prefix.
    pub(crate) fn of(prefix: Prefix) -> Self {
        let (bits, width, v6) = match prefix.addr {
            IpAddr::V4(a) => (u128::from(a.to_bits()), 32, false),
            IpAddr::V6(a) => (a.to_bits(), 128, true),
        };
        let length = u32::from(prefix.len).min(width);
        let host = u128::MAX.checked_shr(128 - (width - length)).unwrap_or(0);
        Self { v6, next: Some((bits & !host, 0)), last: bits | host }
    }
}

const fn word(dest: u32, index: u32) -> u64 {
    (dest as u64) << 32 | index as u64
}

impl Destinations {
    /// Enters a session.
    pub(crate) fn insert(&mut self, index: u32, dest: IpAddr) {
        match dest {
            IpAddr::V4(a) => self.v4.insert(word(a.to_bits(), index)),
            IpAddr::V6(a) => self.v6.insert((a.to_bits(), index)),
        };
    }

    /// Removes a session.
    pub(crate) fn remove(&mut self, index: u32, dest: IpAddr) {
        match dest {
            IpAddr::V4(a) => self.v4.remove(&word(a.to_bits(), index)),
            IpAddr::V6(a) => self.v6.remove(&(a.to_bits(), index)),
        };
    }

    /// The next session of a range. Sessions may be entered and removed between two steps.
    pub(crate) fn step(&self, range: &mut Range) -> Option<u32> {
        let from = range.next?;
        let found = if range.v6 {
            self.v6.range(from..=(range.last, u32::MAX)).next().copied()
        } else {
            let (dest, last) = (u32::try_from(from.0).ok()?, u32::try_from(range.last).ok()?);
            let found = self.v4.range(word(dest, from.1)..=word(last, u32::MAX)).next();
            #[expect(clippy::cast_possible_truncation, reason = "two halves")]
            found.map(|word| (u128::from(*word >> 32), *word as u32))
        };
        let (dest, index) = found?;
        // No session has the number u32::MAX.
        range.next = Some((dest, index.saturating_add(1)));
        Some(index)
    }

    /// The sessions of a destination.
    pub(crate) fn sessions(&self, dest: IpAddr) -> impl Iterator<Item = u32> + '_ {
        let mut range = Range::of(Prefix::host(dest));
        core::iter::from_fn(move || self.step(&mut range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_gone_through_session_by_session_while_they_come_and_go() {
        let mut all = Destinations::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let (one, two, other) = (address("10.0.0.255"), address("10.0.0.7"), address("10.0.1.0"));
        for (index, dest) in [(5, one), (3, one), (9, two), (1, other), (2, address("fd00::1"))] {
            all.insert(index, dest);
        }
        assert!(all.sessions(one).eq([3, 5]) && all.sessions(address("fd00::1")).eq([2]));
        assert_eq!(all.sessions(address("10.0.0.8")).next(), None);
        let mut range = Range::of(Prefix { addr: two, len: 24 });
        assert_eq!(all.step(&mut range), Some(9));
        assert_eq!(all.step(&mut range), Some(3));
        all.remove(3, one);
        all.remove(5, one);
        all.insert(4, one);
        assert_eq!((all.step(&mut range), all.step(&mut range)), (Some(4), None));
        let mut everything = Range::of(Prefix::all_like(one));
        assert!(core::iter::from_fn(|| all.step(&mut everything)).eq([9, 4, 1]));
    }
}
