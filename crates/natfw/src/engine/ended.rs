//! Sequence numbers that are kept when there is no session (RFC 5973 §3.5).
//!
//! A session takes its number with it. A CREATE that the network delays, or that somebody repeats, would then open the passage once more,
//! as long as GIST has the routing state of the session. So the number is kept for some time after the end of the session. It counts
//! for the requests of all peers.
//!
//! A deletion may come before the request that it ends, also from a peer that never had the session here: the route has changed, and
//! the network delays the request. Nothing shows that this peer may end the session. So the number of such a deletion counts for
//! the requests of the same peer only, and a stranger cannot keep out those of others.
//!
//! With the number of a session a node knows its deletion: nodes further on may still have it (§3.7.4).

use core::hash::Hash;
use core::net::IpAddr;
use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use signalbox_core::index::KeyedHasher;
use signalbox_core::shares::{Shares, source};
use signalbox_core::{Mri, SessionId, Time};

use super::session::newer;

/// How long a number is kept: longer than GIST keeps unused routing state with its default settings.
const KEPT: Duration = Duration::from_secs(600);
/// Numbers whose time is over that are removed for each one that comes.
const AT_ONCE: usize = 4;

/// The last sequence number of each session that ended of late, and those of deletions by other peers. There are at most as many as
/// sessions, and a quarter of the places is for sources that have few: a source with many numbers leaves others theirs.
#[derive(Debug)]
pub(super) struct Ended {
    sessions: HashMap<SessionId, Number, KeyedHasher>,
    /// Of requests that no session had, by the peer that they are of.
    requests: HashMap<(SessionId, IpAddr), Number, KeyedHasher>,
    /// What goes when, in this order.
    order: VecDeque<Place>,
    shares: Shares<IpAddr>,
}

/// A number that is kept.
#[derive(Debug, Clone, Copy)]
struct Number {
    last: u32,
    /// Who held the session here; `None`: it was not here.
    holder: Option<Holder>,
    until: Time,
}

impl Number {
    /// Whether a request with the number `msn` is not newer.
    fn covers(&self, now: Time, msn: u32) -> bool {
        now < self.until && !newer(msn, self.last)
    }
}

/// The place that a number takes.
#[derive(Debug, Clone, Copy)]
struct Place {
    until: Time,
    session: SessionId,
    /// The peer that the number is of. Its source has the place.
    peer: IpAddr,
    of_session: bool,
}

/// Who held a session that ended, and for which flow: a keyed hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder(NonZeroU32);

impl Holder {
    /// This source, for this flow.
    pub(super) fn of(hasher: &KeyedHasher, mri: &Mri, source: IpAddr) -> Self {
        let [a, b, c, d, ..] = hasher.hash_one(&(mri, source)).to_be_bytes();
        Self(NonZeroU32::new(u32::from_be_bytes([a, b, c, d])).unwrap_or(NonZeroU32::MIN))
    }
}

impl Ended {
    pub(super) fn new(most: u32, hasher: KeyedHasher) -> Self {
        Self {
            sessions: HashMap::with_hasher(hasher),
            requests: HashMap::with_hasher(hasher),
            order: VecDeque::new(),
            shares: Shares::new(most, hasher),
        }
    }

    pub(super) const fn set_limit(&mut self, most: u32) {
        self.shares.set_limit(most);
    }

    /// Whether a request of a peer has a number that its session had before it ended, or that is not newer than a deletion of this peer.
    pub(super) fn has(&self, now: Time, session: SessionId, peer: IpAddr, msn: u32) -> bool {
        self.sessions.get(&session).is_some_and(|number| number.covers(now, msn))
            || self.requests.get(&(session, peer)).is_some_and(|number| number.covers(now, msn))
    }

    /// Whether this holder had a session that ended here.
    pub(super) fn was_held_by(&self, now: Time, session: SessionId, holder: Holder) -> bool {
        self.sessions.get(&session).is_some_and(|number| now < number.until && number.holder == Some(holder))
    }

    /// Keeps the last number of a session that ended, if it has a holder, or else that of a request of this peer. False if there is no
    /// place for it.
    pub(super) fn keep(
        &mut self,
        now: Time,
        (session, peer): (SessionId, IpAddr),
        (last, holder): (u32, Option<Holder>),
    ) -> bool {
        self.remove_old(now);
        if self.shares.take(source(peer)).is_err() {
            return false;
        }
        let until = now + KEPT;
        let number = Number { last, holder, until };
        if holder.is_some() {
            self.sessions.insert(session, number);
        } else {
            self.requests.insert((session, peer), number);
        }
        self.order.push_back(Place { until, session, peer, of_session: holder.is_some() });
        true
    }

    fn remove_old(&mut self, now: Time) {
        for _ in 0..AT_ONCE {
            let Some(&Place { until, session, peer, of_session }) = self.order.front() else { return };
            if until > now {
                return;
            }
            self.order.pop_front();
            self.shares.release(source(peer));
            if of_session {
                remove(&mut self.sessions, &session, until);
            } else {
                remove(&mut self.requests, &(session, peer), until);
            }
        }
    }
}

/// Removes a number whose time is over. A later one may have come in its place since.
fn remove<K: Hash + Eq>(numbers: &mut HashMap<K, Number, KeyedHasher>, key: &K, until: Time) {
    if numbers.get(key).is_some_and(|number| number.until == until) {
        numbers.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> SessionId {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        SessionId(id)
    }

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn ended() -> Ended {
        Ended::new(64, KeyedHasher::with_key([1; 16]))
    }

    fn holder(hash: u32) -> Holder {
        Holder(NonZeroU32::new(hash).unwrap())
    }

    /// The number of a session that ended.
    fn number(last: u32) -> (u32, Option<Holder>) {
        (last, Some(holder(7)))
    }

    #[test]
    fn numbers_are_kept_for_some_time_and_in_shares() {
        let mut ended = ended();
        let (begin, later) = (Time::from_secs(9), Time::from_secs(10) + KEPT);
        assert_eq!((0..100).filter(|n| ended.keep(begin, (id(*n), peer(1)), number(5))).count(), 48);
        assert!(ended.keep(begin, (id(200), peer(2)), number(5)), "others find their place");
        assert!(ended.has(begin, id(200), peer(9), 5) && ended.has(begin, id(200), peer(9), 4));
        assert!(!ended.has(begin, id(200), peer(2), 6) && !ended.has(begin, id(201), peer(2), 5));
        assert!(!ended.has(later, id(200), peer(2), 5));
        let was_held_by = |now, hash| ended.was_held_by(now, id(200), holder(hash));
        assert_eq!(
            (was_held_by(begin, 7), was_held_by(begin, 8), was_held_by(later, 7)),
            (true, false, false)
        );
        // The places come back, a few with each session that ends.
        assert!((300..600).all(|n| ended.keep(later, (id(n), peer(3)), number(1)) == (n < 348)));
        let last = later + KEPT;
        (0..30).for_each(|n| assert!(ended.keep(last, (id(n), peer(4)), number(1))));
        assert_eq!((ended.order.len(), ended.sessions.len()), (30, 30));
    }

    #[test]
    fn a_session_that_ends_twice_keeps_its_last_number_for_the_whole_time() {
        let mut ended = ended();
        let (first, second) = (Time::from_secs(9), Time::from_secs(99));
        for holder in [Some(holder(7)), None] {
            assert!(ended.keep(first, (id(1), peer(1)), (5, holder)));
        }
        for holder in [Some(holder(7)), None] {
            assert!(ended.keep(second, (id(1), peer(1)), (8, holder)));
        }
        let between = first + KEPT + Duration::from_secs(1);
        assert!(ended.keep(between, (id(2), peer(1)), number(1)));
        assert!(ended.has(between, id(1), peer(1), 8) && !ended.has(between, id(1), peer(1), 9));
        assert_eq!((ended.order.len(), ended.shares.total(), ended.requests.len()), (3, 3, 1));
        let last = second + KEPT + Duration::from_secs(1);
        assert!(ended.keep(last, (id(3), peer(1)), number(1)) && !ended.has(last, id(1), peer(1), 8));
        assert_eq!((ended.order.len(), ended.sessions.len(), ended.requests.len()), (2, 2, 0));
    }

    #[test]
    fn the_number_of_a_deletion_counts_for_its_peer_and_takes_a_place_of_its_source() {
        let mut ended = ended();
        let now = Time::from_secs(9);
        let lan = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        assert_eq!((0..100).filter(|n| ended.keep(now, (id(*n), lan(1)), (5, None))).count(), 48);
        assert!(!ended.keep(now, (id(1), lan(2)), (5, None)), "a host has all addresses of its prefix");
        assert!(ended.has(now, id(1), lan(1), 5) && !ended.has(now, id(1), lan(1), 6));
        assert!(!ended.has(now, id(1), lan(2), 5) && !ended.was_held_by(now, id(1), holder(7)));
        assert!(ended.keep(now, (id(1), peer(2)), number(3)));
        assert!(ended.has(now, id(1), lan(2), 3) && !ended.has(now, id(1), lan(2), 4));
    }
}
