//! Fair shares of the table of sessions: what one source can take of it.
//!
//! Sessions with a reservation and those with a QUERY only have a limit each. A quarter of each is for sources that hold little. A
//! source is the address of the previous peer, if it proved that address. Sessions that begin at this node have the limit alone.
//!
//! Messages that wait for another message have at most three quarters of the places of waiting messages, and these in shares as
//! well: messages that wait for their route have the rest.
//!
//! Octets of long objects that sessions and waiting messages keep have a limit too.

use core::net::{IpAddr, Ipv6Addr};

use signalbox_core::index::KeyedHasher;
use signalbox_core::shares::{Refused, Shares, source};

use super::Config;

/// The source of a session; `None`: it began at this node.
pub(super) type Holder = Option<IpAddr>;

/// What sources hold.
#[derive(Debug)]
pub(super) struct Holders {
    reserving: Shares<Holder>,
    asking: Shares<Holder>,
    parked: Shares<Holder>,
    contents: Shares<Holder>,
}

impl Holders {
    pub(super) fn new(config: &Config, hasher: KeyedHasher) -> Self {
        Self {
            reserving: Shares::new(config.max_sessions, hasher),
            asking: Shares::new(config.max_queries, hasher),
            parked: Shares::new(config.max_parked - config.max_parked / 4, hasher),
            contents: Shares::new(config.max_contents, hasher),
        }
    }

    /// Takes a place for a message that waits for another message, or for the result of such a message.
    pub(super) fn park(&mut self, holder: Holder) -> bool {
        self.parked.limit() > 0 && self.parked.take(holder).is_ok()
    }

    /// Gives the place of such a message back.
    pub(super) fn unpark(&mut self, holder: Holder) {
        self.parked.release(holder);
    }

    /// Takes the limits of other settings. Sessions beyond a lower limit stay.
    pub(super) const fn set_limits(&mut self, config: &Config) {
        self.reserving.set_limit(config.max_sessions);
        self.asking.set_limit(config.max_queries);
        self.contents.set_limit(config.max_contents);
    }

    /// Whether a source may keep further octets of long objects.
    pub(super) fn has_room(&self, holder: Holder, octets: u32) -> bool {
        fits(&self.contents, holder, octets)
    }

    /// Counts other octets for a source than before.
    pub(super) fn keep(&mut self, holder: Holder, before: u32, octets: u32) {
        self.contents.release_many(holder, before);
        if octets > 0 {
            self.contents.hold_many(holder, octets);
        }
    }

    /// Octets of long objects that all sources keep.
    pub(super) const fn contents(&self) -> u32 {
        self.contents.total()
    }

    /// The source of a message from a peer. Peers that did not prove their address are one source together.
    pub(super) fn of(peer: Option<IpAddr>) -> Holder {
        Some(peer.map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), source))
    }

    const fn part(&mut self, asks: bool) -> &mut Shares<Holder> {
        if asks { &mut self.asking } else { &mut self.reserving }
    }

    /// Whether the table has a place for one more session of a source.
    pub(super) fn has_place(&mut self, asks: bool, holder: Holder) -> bool {
        fits(self.part(asks), holder, 1)
    }

    pub(super) fn hold(&mut self, asks: bool, holder: Holder) {
        self.part(asks).hold(holder);
    }

    pub(super) fn release(&mut self, asks: bool, holder: Holder) {
        self.part(asks).release(holder);
    }
}

/// Whether a source may have more of something. What begins at this node has the limit alone.
fn fits(shares: &Shares<Holder>, holder: Holder, count: u32) -> bool {
    match shares.check(&holder, count) {
        // Shares take a limit of 0 as no limit; here it permits nothing.
        Ok(()) => shares.limit() > 0,
        Err(Refused::Share) => holder.is_none(),
        Err(Refused::Full) => false,
    }
}
