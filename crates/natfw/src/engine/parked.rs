//! Requests that wait for routes. One waits for each peer of a session: the last one.
//!
//! What waits dies with its session. A request that was resumed after the deletion of its session would open a passage that no message
//! refreshes, and that its user cannot close.

use core::net::IpAddr;
use std::collections::BTreeMap;

use signalbox_core::index::KeyedHasher;
use signalbox_core::node::RouteQuery;
use signalbox_core::octets::Octets;
use signalbox_core::service::{Indication, OwnedIndication, RecvMessage, SiiHandle};
use signalbox_core::shares::{Shares, source};
use signalbox_core::{IfIndex, SessionId, invariant};

use super::far::{Far, Routes};
use super::request::numbered_peer;
use super::session::newer;
use super::sweep::initiator;

/// Requests that wait at one time. A quarter of the places is for sources that have few.
const MOST: u32 = 1024;

/// The routes that a request waits for: one, or those to both ends of its flow.
pub(super) type Queries = [Option<RouteQuery>; 2];

/// A request that waits for the routes to the ends of its flow.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) request: OwnedIndication,
    queries: Queries,
    /// Which of them have an answer.
    answered: [bool; 2],
    /// The routes that are known.
    pub(super) routes: Routes,
    /// The routes that were asked for are those of an earlier request in its place.
    outdated: bool,
    pub(super) msn: u32,
    owner: Owner,
    initiator: IpAddr,
    /// The peer that sent it, whose source has the place.
    pub(super) peer: IpAddr,
}

/// The session of a request, and the peer that it came from.
type Owner = (SessionId, Option<u64>);

/// What became of a request that is to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It waits for its lookups, which are to be made.
    New,
    /// It has the place of an earlier one of its session.
    Taken,
    /// A later one waits.
    Old,
    /// There is no place.
    None,
}

/// What an answer to a lookup changes.
#[derive(Debug)]
pub(super) enum Answered {
    /// The request has all its routes.
    Request(Box<Parked>),
    /// It waits for the other route.
    Waits,
    /// The request needs other routes, which are to be looked up.
    Again(Queries),
    /// No request waits for it.
    Unknown,
}

/// The requests that wait.
#[derive(Debug)]
pub(super) struct Requests {
    /// By the number of the first lookup. That of the second one, or what is left free for it, is the next number.
    waiting: BTreeMap<u64, Box<Parked>>,
    by_owner: BTreeMap<Owner, u64>,
    shares: Shares<IpAddr>,
}

impl Requests {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self { waiting: BTreeMap::new(), by_owner: BTreeMap::new(), shares: Shares::new(MOST, hasher) }
    }

    /// Lets a request wait for routes. `lookup` and the next number are those of its lookups.
    pub(super) fn put(
        &mut self,
        lookup: u64,
        received: &RecvMessage<'_>,
        msn: u32,
        (queries, routes): (Queries, Routes),
    ) -> Place {
        let owner = owner(received.session, received.sii);
        let held = self
            .by_owner
            .get(&owner)
            .and_then(|lookup| invariant!(self.waiting.get_mut(lookup), "an owner has a request"));
        if let Some(parked) = held {
            if !newer(msn, parked.msn) {
                return Place::Old;
            }
            if parked.queries != queries {
                (parked.queries, parked.routes, parked.outdated) = (queries, routes, true);
            }
            (parked.request, parked.msn) = (copy(received), msn);
            parked.initiator = initiator(&received.mri);
            return Place::Taken;
        }
        let peer = numbered_peer(received);
        // One that waits again has its place.
        if routes == Routes::default() && self.shares.take(source(peer)).is_err() {
            return Place::None;
        }
        let parked = Parked {
            request: copy(received),
            queries,
            answered: [false; 2],
            routes,
            outdated: false,
            msn,
            owner,
            initiator: initiator(&received.mri),
            peer,
        };
        self.waiting.insert(lookup, Box::new(parked));
        self.by_owner.insert(owner, lookup);
        Place::New
    }

    /// Handles the answer to a lookup: the interface of the route, if there is one. A request that needs other routes waits for the
    /// lookup with the number `next`, and the one after it.
    pub(super) fn answer(&mut self, lookup: u64, ifindex: Option<IfIndex>, next: u64) -> Answered {
        let Some((first, second)) = self.place(lookup) else { return Answered::Unknown };
        let Some(parked) = invariant!(self.waiting.get_mut(&first), "a lookup has a request") else {
            return Answered::Unknown;
        };
        if parked.outdated {
            return self.ask_again(first, next);
        }
        let [one, other] = &mut parked.answered;
        let (at, query) = if second { (other, parked.queries[1]) } else { (one, parked.queries[0]) };
        *at = true;
        if let Some(query) = query {
            parked.routes = parked.routes.with(Far { address: query.dst, ifindex });
        }
        let waits =
            parked.queries.iter().zip(parked.answered).any(|(query, known)| query.is_some() && !known);
        if waits {
            return Answered::Waits;
        }
        invariant!(self.resume(first), "an answered request waits")
            .map_or(Answered::Unknown, Answered::Request)
    }

    /// The number under which the request of a lookup waits, and whether this lookup is its second one.
    fn place(&self, lookup: u64) -> Option<(u64, bool)> {
        if self.waiting.contains_key(&lookup) {
            return Some((lookup, false));
        }
        let first = lookup.checked_sub(1)?;
        self.waiting.contains_key(&first).then_some((first, true))
    }

    fn ask_again(&mut self, first: u64, next: u64) -> Answered {
        let Some(mut parked) = invariant!(self.waiting.remove(&first), "an outdated request waits") else {
            return Answered::Unknown;
        };
        (parked.outdated, parked.answered) = (false, [false; 2]);
        let queries = parked.queries;
        self.by_owner.insert(parked.owner, next);
        self.waiting.insert(next, parked);
        Answered::Again(queries)
    }

    /// Takes out the request that waits for a lookup.
    fn take(&mut self, lookup: u64) -> Option<Box<Parked>> {
        let parked = invariant!(self.resume(lookup), "a request that ends waits")?;
        self.release(&parked);
        Some(parked)
    }

    /// The same without its place, which it needs again if it waits for another route.
    fn resume(&mut self, lookup: u64) -> Option<Box<Parked>> {
        let parked = self.waiting.remove(&lookup)?;
        self.by_owner.remove(&parked.owner);
        Some(parked)
    }

    /// Gives back the place of a request.
    pub(super) fn release(&mut self, parked: &Parked) {
        self.shares.release(source(parked.peer));
    }

    /// Takes out the request that a deletion by its own peer with this number ends.
    pub(super) fn end(
        &mut self,
        session: SessionId,
        peer: Option<SiiHandle>,
        msn: u32,
    ) -> Option<Box<Parked>> {
        let lookup = *self.by_owner.get(&owner(session, peer))?;
        invariant!(self.waiting.get(&lookup), "a deleted request waits")
            .filter(|parked| newer(msn, parked.msn))?;
        self.take(lookup)
    }

    /// Takes out the next request of a session, whatever peer it came from.
    pub(super) fn end_any(&mut self, session: SessionId) -> Option<Box<Parked>> {
        let owners = (session, None)..=(session, Some(u64::MAX));
        let lookup = *self.by_owner.range(owners).next()?.1;
        self.take(lookup)
    }

    /// Takes out all requests of an initiator that is the previous peer. There are few: the number that may wait is bounded.
    pub(super) fn end_of(&mut self, peer: SiiHandle, from: IpAddr) -> Vec<(SessionId, u32, IpAddr)> {
        let concerned = |parked: &Parked| parked.owner.1 == Some(peer.0) && parked.initiator == from;
        let found: Vec<u64> =
            self.waiting.iter().filter(|(_, parked)| concerned(parked)).map(|(lookup, _)| *lookup).collect();
        let ended = found.into_iter().filter_map(|lookup| self.take(lookup));
        ended.map(|parked| (parked.owner.0, parked.msn, parked.peer)).collect()
    }
}

fn owner(session: SessionId, peer: Option<SiiHandle>) -> Owner {
    (session, peer.map(|peer| peer.0))
}

fn copy(received: &RecvMessage<'_>) -> OwnedIndication {
    Indication::RecvMessage(received.clone()).map(|octets| Octets::from(*octets))
}
