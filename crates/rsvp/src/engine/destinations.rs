//! Which sessions go to which destination: the index that tells whom a change of routes concerns.
//!
//! Destinations are kept in order, so that a prefix is a range of them; the sessions of one are linked through their
//! records. A change costs what it touches, whatever else the node holds.

use core::net::IpAddr;
use std::collections::BTreeMap;

use signalbox_core::node::Prefix;
use signalbox_core::slab::Slab;

use super::session::{NONE, Session};

/// First session of each destination.
#[derive(Debug, Default)]
pub(crate) struct Destinations {
    v4: BTreeMap<u32, u32>,
    v6: BTreeMap<u128, u32>,
}

/// A range of destinations, gone through from `next` to `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    v6: bool,
    next: Option<u128>,
    last: u128,
}

impl Range {
    /// All that a prefix covers.
    pub(crate) fn of(prefix: Prefix) -> Self {
        let (bits, width, v6) = match prefix.addr {
            IpAddr::V4(a) => (u128::from(a.to_bits()), 32, false),
            IpAddr::V6(a) => (a.to_bits(), 128, true),
        };
        let length = u32::from(prefix.len).min(width);
        let host = u128::MAX.checked_shr(128 - (width - length)).unwrap_or(0);
        Self { v6, next: Some(bits & !host), last: bits | host }
    }
}

impl Destinations {
    /// The first session of a destination.
    pub(crate) fn first(&self, dest: IpAddr) -> Option<u32> {
        match dest {
            IpAddr::V4(a) => self.v4.get(&a.to_bits()).copied(),
            IpAddr::V6(a) => self.v6.get(&a.to_bits()).copied(),
        }
    }

    /// Enters a session.
    pub(crate) fn link(&mut self, sessions: &mut Slab<Session>, index: u32, dest: IpAddr) {
        let head = match dest {
            IpAddr::V4(a) => self.v4.entry(a.to_bits()).or_insert(NONE),
            IpAddr::V6(a) => self.v6.entry(a.to_bits()).or_insert(NONE),
        };
        let next = core::mem::replace(head, index);
        if let Some(one) = sessions.get_index_mut(next) {
            let [_, after] = one.near;
            one.near = [index, after];
        }
        if let Some(own) = sessions.get_index_mut(index) {
            own.near = [NONE, next];
        }
    }

    /// Takes a session out.
    pub(crate) fn unlink(&mut self, sessions: &mut Slab<Session>, index: u32, dest: IpAddr) {
        let Some(own) = sessions.get_index_mut(index) else { return };
        let [before, after] = core::mem::replace(&mut own.near, [NONE; 2]);
        if let Some(one) = sessions.get_index_mut(after) {
            let [_, next] = one.near;
            one.near = [before, next];
        }
        if let Some(one) = sessions.get_index_mut(before) {
            let [previous, _] = one.near;
            one.near = [previous, after];
            return;
        }
        match (dest, after) {
            (IpAddr::V4(a), NONE) => self.v4.remove(&a.to_bits()),
            (IpAddr::V4(a), after) => self.v4.insert(a.to_bits(), after),
            (IpAddr::V6(a), NONE) => self.v6.remove(&a.to_bits()),
            (IpAddr::V6(a), after) => self.v6.insert(a.to_bits(), after),
        };
    }

    /// The first session of the next destination of a range, which then goes on behind it.
    pub(crate) fn step(&self, range: &mut Range) -> Option<u32> {
        let from = range.next?;
        let found = if range.v6 {
            self.v6.range(from..=range.last).next().map(|(at, first)| (*at, *first))
        } else {
            let (from, last) = (u32::try_from(from).ok()?, u32::try_from(range.last).ok()?);
            self.v4.range(from..=last).next().map(|(at, first)| (u128::from(*at), *first))
        };
        let (at, first) = found?;
        range.next = at.checked_add(1).filter(|next| *next <= range.last);
        Some(first)
    }
}
