//! Fair shares of the tables of sessions, senders and reservations.
//!
//! While three quarters of a table are not in use, everybody gets places. Half of the rest is for sources that hold
//! little, and the other half only for sources behind interfaces that hold little. Whoever floods a table leaves places
//! to others: with one source to other sources, with any number of forged sources to other interfaces.

use core::net::IpAddr;

use signalbox_core::index::KeyedHasher;
use signalbox_core::shares::{Shares, source};

use crate::engine::Rsvp;
use crate::engine::interfaces::Iface;

/// The part of a table that is kept for those who hold little.
const RESERVE: u32 = 4;
/// Number of sources that find their share in the reserve, and number of interfaces.
const SOURCES: u32 = 64;
const INTERFACES: u32 = 16;

/// What sources and interfaces hold.
#[derive(Debug)]
pub(super) struct Holders {
    /// Senders by their source, and by the interface of their first Path.
    sources: Shares<IpAddr>,
    interfaces: Shares<Iface>,
    /// Reservations by their interface.
    reserved: Shares<Iface>,
}

impl Holders {
    pub(in crate::engine) fn new(mut hasher: impl FnMut() -> KeyedHasher) -> Self {
        // They only count; the limits are those of the tables.
        Self {
            sources: Shares::new(0, hasher()),
            interfaces: Shares::new(0, hasher()),
            reserved: Shares::new(0, hasher()),
        }
    }

    /// Whether nothing is held.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.sources.total() == 0 && self.interfaces.total() == 0 && self.reserved.total() == 0
    }
}

/// Whether a table gives a place to somebody whose source and interface hold this number of places.
const fn has_place(limit: u32, used: u32, of_source: u32, of_interface: u32) -> bool {
    let (free, reserve) = (limit.saturating_sub(used), limit / RESERVE);
    free > 0
        && (free > reserve || of_source <= reserve / SOURCES)
        && (free > reserve / 2 || of_interface <= reserve / INTERFACES)
}

impl Rsvp {
    /// Takes a place for a sender whose Path came by an interface; `opens`: it needs a session too.
    pub(in crate::engine) fn take_place(&mut self, src: IpAddr, iface: Iface, opens: bool) -> bool {
        let src = source(src);
        let (limit, used) = (self.config.max_senders, self.senders.len());
        let (sessions_limit, sessions) = (self.config.max_sessions, self.sessions.len());
        // Only a scarce table needs the count of the source.
        let scarce = limit.saturating_sub(used) <= limit / RESERVE
            || opens && sessions_limit.saturating_sub(sessions) <= sessions_limit / RESERVE;
        if scarce {
            let held =
                (self.sessions.holders.sources.held(&src), self.sessions.holders.interfaces.held(&iface));
            let fits = has_place(limit, used, held.0, held.1)
                && (!opens || has_place(sessions_limit, sessions, held.0, held.1));
            if !fits {
                self.counters.shares_refused += 1;
                tracing::debug!(%src, reason = "the rest of the table is for others", "sender not created");
                return false;
            }
        }
        let _ = self.sessions.holders.sources.take(src); // they have no limit
        let _ = self.sessions.holders.interfaces.take(iface);
        true
    }

    /// Gives the place of a sender back.
    pub(in crate::engine) fn give_place_back(&mut self, src: IpAddr, iface: Iface) {
        self.sessions.holders.sources.release(source(src));
        self.sessions.holders.interfaces.release(iface);
    }

    /// Takes a place for a reservation at an interface.
    pub(in crate::engine) fn take_reservation(&mut self, oif: Iface) -> bool {
        let held = self.sessions.holders.reserved.held(&oif);
        let fits = has_place(self.config.max_reservations, self.branches.len(), 0, held);
        if fits {
            let _ = self.sessions.holders.reserved.take(oif);
        } else {
            self.counters.shares_refused += 1;
        }
        fits
    }

    /// Gives the place of a reservation back.
    pub(in crate::engine) fn give_reservation_back(&mut self, oif: Iface) {
        self.sessions.holders.reserved.release(oif);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_table_is_for_those_who_hold_little() {
        let admitted = |used, of_source, of_interface| has_place(6400, used, of_source, of_interface);
        assert!(admitted(4799, 4799, 4799), "most of it is for everybody");
        assert!(!admitted(4800, 26, 0) && admitted(4800, 25, 4800), "then for other sources");
        assert!(!admitted(5600, 0, 101) && admitted(5600, 25, 100), "then for other interfaces");
        assert!(!admitted(6400, 0, 0));
        assert!(has_place(1, 0, 0, 0) && !has_place(1, 1, 0, 0) && has_place(3, 2, 2, 2));
    }
}
