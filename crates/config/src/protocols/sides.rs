//! The sides of a firewall or NAT: which interfaces are inside and which are outside.

use std::collections::BTreeMap;

use crate::keys::Keys;
use crate::kind::choice;

/// The side that an interface belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Inside,
    Outside,
}

const SIDES: &[(&str, Side)] = &[("inside", Side::Inside), ("outside", Side::Outside)];

/// Interfaces with their sides.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Sides(BTreeMap<String, Side>);

impl Sides {
    /// The names of the interfaces of a side.
    pub(super) fn of(&self, side: Side) -> Vec<String> {
        self.0.iter().filter(|(_, one)| **one == side).map(|(name, _)| name.clone()).collect()
    }

    /// The names of the interfaces outside.
    pub(crate) fn outside(&self) -> Vec<String> {
        self.of(Side::Outside)
    }

    /// The names of the interfaces with those of their sides.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let name = |side| SIDES.iter().find(|(_, one)| *one == side).map_or("", |(name, _)| name);
        self.0.iter().map(move |(interface, side)| (interface.as_str(), name(*side)))
    }

    /// Whether the table of this interface gives a side.
    pub(super) fn has(&self, interface: &str) -> bool {
        self.0.contains_key(interface)
    }

    /// Declares the key `side` of an interface.
    pub(super) fn declare(
        &mut self,
        interface: &str,
        keys: &mut Keys<'_>,
        absent: &'static str,
        meaning: &'static str,
    ) {
        let mut side = self.0.get(interface).copied();
        keys.option("side", &mut side, choice(SIDES), absent, meaning);
        if let Some(side) = side {
            self.0.insert(interface.to_owned(), side);
        }
    }
}
