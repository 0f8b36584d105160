//! Sessions by destination: the index of the sessions that a change of routes concerns.
//!
//! Sessions are in the order of their destinations, so that a prefix or a destination is a range of them. A change
//! costs only the sessions that it concerns. Those of a destination are in the order of their protocols, so that a
//! session without a port finds those with a port in one step.

use core::net::IpAddr;
use std::collections::BTreeSet;

use signalbox_core::node::Prefix;

/// Bits of a session's number; the bits above are its protocol and kind.
const NUMBER: u32 = 23;
/// Maximum number of sessions.
pub(crate) const MOST: u32 = 1 << NUMBER;

/// Where a session is among those of its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) dest: IpAddr,
    pub(crate) protocol: u8,
    /// It has a generalized port identifier (RFC 2207).
    pub(crate) gpi: bool,
}

impl Place {
    /// The place of a session with this number, behind its destination.
    const fn low(self, index: u32) -> u32 {
        ((self.protocol as u32) << 1 | self.gpi as u32) << NUMBER | (index & (MOST - 1))
    }
}

/// Sessions by destination, and by their places and numbers in the table of sessions.
#[derive(Debug, Default)]
pub(crate) struct Destinations {
    /// Destination and number in one integer, so that one comparison orders them.
    v4: BTreeSet<u64>,
    v6: BTreeSet<(u128, u32)>,
}

/// A range of destinations that is visited session by session. `next` is the destination and place to go on from.
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
    pub(crate) fn insert(&mut self, index: u32, place: Place) {
        let low = place.low(index);
        match place.dest {
            IpAddr::V4(a) => self.v4.insert(word(a.to_bits(), low)),
            IpAddr::V6(a) => self.v6.insert((a.to_bits(), low)),
        };
    }

    /// Removes a session.
    pub(crate) fn remove(&mut self, index: u32, place: Place) {
        let low = place.low(index);
        match place.dest {
            IpAddr::V4(a) => self.v4.remove(&word(a.to_bits(), low)),
            IpAddr::V6(a) => self.v6.remove(&(a.to_bits(), low)),
        };
    }

    /// The next session of a range. Sessions may be entered and removed between two steps.
    pub(crate) fn step(&self, range: &mut Range) -> Option<u32> {
        let from = range.next.filter(|(dest, _)| *dest <= range.last)?;
        let found = if range.v6 {
            self.v6.range(from..=(range.last, u32::MAX)).next().copied()
        } else {
            let (dest, last) = (u32::try_from(from.0).ok()?, u32::try_from(range.last).ok()?);
            let found = self.v4.range(word(dest, from.1)..=word(last, u32::MAX)).next();
            #[expect(clippy::cast_possible_truncation, reason = "two halves")]
            found.map(|word| (u128::from(*word >> 32), *word as u32))
        };
        let (dest, low) = found?;
        range.next = low.checked_add(1).map(|low| (dest, low)).or_else(|| Some((dest.checked_add(1)?, 0)));
        Some(low & (MOST - 1))
    }

    /// The sessions with the destination, protocol and kind of a place.
    pub(crate) fn alike(&self, place: Place) -> impl Iterator<Item = u32> + '_ {
        let (first, last) = (place.low(0), place.low(MOST - 1));
        let (v4, v6) = match place.dest {
            IpAddr::V4(a) => (Some(self.v4.range(word(a.to_bits(), first)..=word(a.to_bits(), last))), None),
            IpAddr::V6(a) => (None, Some(self.v6.range((a.to_bits(), first)..=(a.to_bits(), last)))),
        };
        #[expect(clippy::cast_possible_truncation, reason = "the low half")]
        let v4 = v4.into_iter().flatten().map(|word| *word as u32);
        let v6 = v6.into_iter().flatten().map(|(_, low)| *low);
        v4.chain(v6).map(|low| low & (MOST - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dest: &str, protocol: u8) -> Place {
        Place { dest: dest.parse().unwrap(), protocol, gpi: false }
    }

    #[test]
    fn a_prefix_is_gone_through_session_by_session_while_they_come_and_go() {
        let mut all = Destinations::default();
        let (one, two, other) = (place("10.0.0.255", 17), place("10.0.0.7", 17), place("10.0.1.0", 17));
        for (index, place) in [(5, one), (3, one), (9, two), (1, other), (2, place("fd00::1", 17))] {
            all.insert(index, place);
        }
        let mut range = Range::of(Prefix { addr: two.dest, len: 24 });
        assert_eq!(all.step(&mut range), Some(9));
        assert_eq!(all.step(&mut range), Some(3));
        all.remove(3, one);
        all.remove(5, one);
        all.insert(4, one);
        assert_eq!((all.step(&mut range), all.step(&mut range)), (Some(4), None));
        let mut everything = Range::of(Prefix::all_like(one.dest));
        assert!(core::iter::from_fn(|| all.step(&mut everything)).eq([9, 4, 1]));
    }

    #[test]
    fn sessions_of_a_destination_are_apart_by_protocol_and_kind() {
        for dest in ["10.0.0.255", "255.255.255.255", "fd00::1"] {
            let mut all = Destinations::default();
            let (udp, tcp) = (place(dest, 17), place(dest, 6));
            let (esp, spi) = (place(dest, 255), Place { gpi: true, ..place(dest, 255) });
            let numbered = [(5, udp), (3, udp), (4, tcp), (MOST - 1, esp), (7, spi), (MOST - 1, spi)];
            numbered.iter().for_each(|(index, place)| all.insert(*index, *place));
            assert!(all.alike(udp).eq([3, 5]) && all.alike(tcp).eq([4]));
            assert!(all.alike(esp).eq([MOST - 1]) && all.alike(spi).eq([7, MOST - 1]));
            let mut range = Range::of(Prefix::host(udp.dest));
            let numbers = core::iter::from_fn(|| all.step(&mut range));
            assert!(numbers.eq([4, 3, 5, MOST - 1, 7, MOST - 1]));
            assert_eq!(all.alike(place("10.0.0.8", 17)).next(), None);
        }
    }
}
