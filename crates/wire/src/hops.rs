//! The list of the nodes of a path that granted a request, as the signaling protocols of the suite carry it in an object of their
//! own. Nodes of other makes forward the object unread.
//!
//! An entry is a word `family (4 or 6), flags, routers, part`, the node's address, and with part 0 the rate as 64 bits. Nothing
//! proves an entry: each node on the way can write what it likes.

use core::fmt;
use core::net::IpAddr;

use crate::{Reader, Writer};

/// A node appends no entry beyond this size, and drops a longer list. With the other objects a request of the QoS NSLP then stays
/// within the 512 octets that GIST may send over a path of unknown MTU. The list has room for 9 IPv4 or 5 IPv6 nodes that hold a
/// rate, and for 18 or 7 others.
pub const MAX_HOPS_OCTETS: usize = 144;

/// What a node did for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Part {
    /// It holds, or could give, this rate in octets a second.
    Rate(u64),
    /// It is the end of the flow.
    End,
    /// It lets the packets pass.
    Opened,
    /// It lets the packets pass, and translates addresses or ports.
    Translated,
    /// It keeps a place for a flow that is opened later.
    Reserved,
    /// It drops the packets.
    Blocked,
    /// It only passed the request on.
    Passed,
}

impl Part {
    /// The parts without a value. The code of each is its place, counted from 1.
    const PLAIN: [Self; 6] =
        [Self::End, Self::Opened, Self::Translated, Self::Reserved, Self::Blocked, Self::Passed];

    fn code(self) -> u8 {
        let place = Self::PLAIN.iter().position(|part| *part == self);
        place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(0)
    }

    const fn has_rate(self) -> bool {
        matches!(self, Self::Rate(_))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => write!(f, "holds {rate} octets/s"),
            Self::End => f.write_str("is the end of the flow"),
            Self::Opened => f.write_str("opened"),
            Self::Translated => f.write_str("opened and translates"),
            Self::Reserved => f.write_str("keeps a place"),
            Self::Blocked => f.write_str("blocks"),
            Self::Passed => f.write_str("passed the request on"),
        }
    }
}

/// A node that granted a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Hop {
    /// Its address, as a rule that of the interface by which the request arrived.
    pub address: IpAddr,
    /// What it did.
    pub part: Part,
    /// The node before it in the list is not the one before it on the path: routers or nodes that do not take part are between them.
    pub after_gap: bool,
    /// How many routers, by the TTL of the message; 0 if that is not known.
    pub routers: u8,
    /// It sent the answer, as the last node of the request.
    pub answered: bool,
}

const AFTER_GAP: u8 = 0x01;
const ANSWERED: u8 = 0x02;

impl Hop {
    /// A node with nothing unknown before it.
    #[must_use]
    pub const fn new(address: IpAddr, part: Part) -> Self {
        Self { address, part, after_gap: false, routers: 0, answered: false }
    }

    fn parse(r: &mut Reader<'_>) -> Option<Self> {
        let [family, flags, routers, part] = r.array().ok()?;
        let address = match family {
            4 => IpAddr::from(r.array::<4>().ok()?),
            6 => IpAddr::from(r.array::<16>().ok()?),
            _ => return None,
        };
        let part = match part.checked_sub(1) {
            None => Part::Rate(r.u64().ok()?),
            Some(place) => *Part::PLAIN.get(usize::from(place))?,
        };
        Some(Self {
            address,
            part,
            after_gap: flags & AFTER_GAP != 0,
            routers,
            answered: flags & ANSWERED != 0,
        })
    }

    /// Appends the entry.
    pub fn write(&self, w: &mut Writer<'_>) {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.after_gap, AFTER_GAP) | flag(self.answered, ANSWERED);
        let family = if self.address.is_ipv4() { 4 } else { 6 };
        w.bytes(&[family, flags, self.routers, self.part.code()]);
        match self.address {
            IpAddr::V4(v4) => w.bytes(&v4.octets()),
            IpAddr::V6(v6) => w.bytes(&v6.octets()),
        }
        if let Part::Rate(rate) = self.part {
            w.u64(rate);
        }
    }

    /// Octets of the entry.
    #[must_use]
    pub const fn octets(&self) -> usize {
        let rate = if self.part.has_rate() { 8 } else { 0 };
        rate + if self.address.is_ipv4() { 8 } else { 20 }
    }

    /// Appends the entry to a list, if the list has room for it.
    pub fn append(&self, list: &mut Vec<u8>) {
        if list.len() + self.octets() <= MAX_HOPS_OCTETS {
            self.write(&mut Writer::new(list));
        }
    }
}

/// The list, in the order in which the nodes wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Hops<'a>(&'a [u8]);

impl<'a> Hops<'a> {
    /// A list without entries, by which a request asks for one.
    pub const EMPTY: Hops<'static> = Hops(&[]);

    /// From entries one after the other.
    ///
    /// # Errors
    /// `None` if an entry is cut or of an unknown kind, or the list is longer than [`MAX_HOPS_OCTETS`].
    #[must_use]
    pub fn from_octets(octets: &'a [u8]) -> Option<Self> {
        if octets.len() > MAX_HOPS_OCTETS {
            return None;
        }
        let mut r = Reader::new(octets);
        while !r.is_empty() {
            Hop::parse(&mut r)?;
        }
        Some(Self(octets))
    }

    /// Each in turn.
    pub fn iter(&self) -> impl Iterator<Item = Hop> + use<'a> {
        let mut r = Reader::new(self.0);
        core::iter::from_fn(move || Hop::parse(&mut r))
    }

    /// As in the object's value.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.0
    }

    /// Whether a node may have found no room for its entry: one like the last entry does not fit any more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.iter().last().is_some_and(|last| self.0.len() + last.octets() > MAX_HOPS_OCTETS)
    }
}

/// What a list says of the path, for the user who asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Path {
    /// The nodes, in the order of the request.
    pub hops: Vec<Hop>,
    /// Some routers or nodes of the path are not known.
    pub gaps: bool,
    /// Whether the end of the flow answered; `None`: it is not known who answered.
    pub far_end: Option<bool>,
}

impl Path {
    /// From a list; `backwards`: the nodes wrote it on the way of the answer.
    #[must_use]
    pub fn of(list: Hops<'_>, backwards: bool) -> Self {
        let mut hops: Vec<Hop> = list.iter().collect();
        if backwards {
            hops.reverse();
        }
        let answered = hops.last().filter(|hop| hop.answered);
        let far_end = answered.map(|hop| hop.part == Part::End);
        let gaps = far_end.is_none() || list.is_full() || hops.iter().any(|hop| hop.after_gap);
        Self { hops, gaps, far_end }
    }
}

impl fmt::Debug for Hops<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(hops: &[Hop]) -> Vec<u8> {
        let mut octets = Vec::new();
        hops.iter().for_each(|hop| hop.append(&mut octets));
        octets
    }

    #[test]
    fn a_list_has_what_the_nodes_wrote() {
        let address = IpAddr::from([192, 0, 2, 1]);
        let rate = Hop { after_gap: true, routers: 2, ..Hop::new(address, Part::Rate(125_000)) };
        let mut hops = vec![rate];
        hops.extend(Part::PLAIN.map(|part| Hop::new(address, part)));
        hops.push(Hop { answered: true, ..Hop::new(IpAddr::from([0x20; 16]), Part::End) });
        let octets = list(&hops);
        assert_eq!(octets[..16], [4, 1, 2, 0, 192, 0, 2, 1, 0, 0, 0, 0, 0, 1, 0xe8, 0x48]);
        assert_eq!(octets[16..24], [4, 0, 0, 1, 192, 0, 2, 1]);
        assert_eq!(octets.len(), hops.iter().map(Hop::octets).sum::<usize>());
        assert_eq!(Hops::from_octets(&octets).unwrap().iter().collect::<Vec<_>>(), hops);
        assert_eq!(Hops::from_octets(&[]), Some(Hops::EMPTY));
    }

    /// What another make, or a hostile node, writes in its place is no list.
    #[test]
    fn other_octets_are_no_list() {
        let octets = list(&[Hop::new(IpAddr::from([192, 0, 2, 1]), Part::Opened)]);
        for end in 1..octets.len() {
            assert_eq!(Hops::from_octets(&octets[..end]), None, "{end}");
        }
        for (at, value) in [(0, 5), (3, 7), (3, 0)] {
            let mut wrong = octets.clone();
            wrong[at] = value;
            assert_eq!(Hops::from_octets(&wrong), None, "{at} {value}");
        }
        let long = octets.repeat(MAX_HOPS_OCTETS / octets.len() + 1);
        assert_eq!(Hops::from_octets(&long), None);
    }

    #[test]
    fn a_path_is_known_if_the_list_has_all_of_it() {
        let middle = Hop::new(IpAddr::from([192, 0, 2, 1]), Part::Rate(1));
        let end = Hop { answered: true, ..Hop::new(IpAddr::from([192, 0, 2, 2]), Part::End) };
        let gap = Hop { after_gap: true, ..end };
        let proxy = Hop { answered: true, ..middle };
        for (hops, gaps, far_end) in [
            (vec![middle, end], false, Some(true)),
            (vec![middle, gap], true, Some(true)),
            (vec![middle], true, None),
            (vec![proxy], false, Some(false)),
            (vec![], true, None),
        ] {
            let path = Path { hops: hops.clone(), gaps, far_end };
            assert_eq!(Path::of(Hops::from_octets(&list(&hops)).unwrap(), false), path);
            let mut back = hops;
            back.reverse();
            assert_eq!(Path::of(Hops::from_octets(&list(&back)).unwrap(), true), path);
        }
    }

    #[test]
    fn a_list_does_not_grow_without_bound() {
        let hop = Hop::new(IpAddr::from([192, 0, 2, 1]), Part::Opened);
        let octets = list(&[hop; 100]);
        assert_eq!(octets.len(), MAX_HOPS_OCTETS);
        assert!(Hops::from_octets(&octets).unwrap().is_full());
        assert!(!Hops::from_octets(&octets[..MAX_HOPS_OCTETS - 8]).unwrap().is_full());
    }
}
