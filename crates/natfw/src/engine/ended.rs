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
/// One number of a request is kept for this many of sessions.
const REQUESTS: u32 = 4;

/// Why a request is too old.
const OF_SESSION: &str = "number of a session that ended";
const OF_REQUEST: &str = "deleted by the same peer";

/// The last sequence number of each session that ended of late, and those of deletions by other peers. Of the former there are at most as
/// many as sessions; of the latter, which cost their sender nothing, a quarter of that. A quarter of the places of both is for sources that
/// have few: a source with many numbers leaves others theirs.
#[derive(Debug)]
pub(super) struct Ended {
    sessions: HashMap<SessionId, Number, KeyedHasher>,
    /// Of requests that no session had, by the peer that they are of.
    requests: HashMap<(SessionId, IpAddr), Number, KeyedHasher>,
    /// What goes when, about in this order: a later number in the same place stays longer.
    order: VecDeque<Place>,
    session_shares: Shares<IpAddr>,
    request_shares: Shares<IpAddr>,
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
    /// As that of the number.
    holder: Option<Holder>,
}

/// Who held a session that ended, and for which flow: a keyed hash of the whole address. Neighbors on the link of a host have its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder(NonZeroU32);

impl Holder {
    /// This peer, for this flow.
    pub(super) fn of(hasher: &KeyedHasher, mri: &Mri, peer: IpAddr) -> Self {
        let [a, b, c, d, ..] = hasher.hash_one(&(mri, peer)).to_be_bytes();
        Self(NonZeroU32::new(u32::from_be_bytes([a, b, c, d])).unwrap_or(NonZeroU32::MIN))
    }
}

impl Ended {
    pub(super) fn new(most: u32, hasher: KeyedHasher) -> Self {
        Self {
            sessions: HashMap::with_hasher(hasher),
            requests: HashMap::with_hasher(hasher),
            order: VecDeque::new(),
            session_shares: Shares::new(most, hasher),
            request_shares: Shares::new(most.div_ceil(REQUESTS), hasher),
        }
    }

    pub(super) const fn set_limit(&mut self, most: u32) {
        self.session_shares.set_limit(most);
        self.request_shares.set_limit(most.div_ceil(REQUESTS));
    }

    /// Why a request of a peer is too old: it has a number that its session had before it ended, or it is not newer than a deletion of this
    /// peer.
    pub(super) fn outdated(
        &self,
        now: Time,
        session: SessionId,
        peer: IpAddr,
        msn: u32,
    ) -> Option<&'static str> {
        if self.sessions.get(&session).is_some_and(|number| number.covers(now, msn)) {
            return Some(OF_SESSION);
        }
        self.requests.get(&(session, peer)).filter(|number| number.covers(now, msn)).map(|_| OF_REQUEST)
    }

    /// Whether this holder had a session that ended here.
    pub(super) fn was_held_by(&self, now: Time, session: SessionId, holder: Holder) -> bool {
        self.sessions.get(&session).is_some_and(|number| now < number.until && number.holder == Some(holder))
    }

    /// Keeps the last number of a session that ended, if it has a holder, or else that of a request of this peer. It takes the place of an
    /// older one of the same holder or peer. False if there is no place for it.
    pub(super) fn keep(
        &mut self,
        now: Time,
        (session, peer): (SessionId, IpAddr),
        (last, holder): (u32, Option<Holder>),
    ) -> bool {
        self.remove_old(now);
        let until = now + KEPT;
        if let Some(number) = self.number((session, peer), holder) {
            if !number.covers(now, last) {
                (number.last, number.until) = (last, until);
            }
            return true;
        }
        if self.shares(holder).take(source(peer)).is_err() {
            return false;
        }
        let number = Number { last, holder, until };
        if holder.is_some() {
            self.sessions.insert(session, number);
        } else {
            self.requests.insert((session, peer), number);
        }
        self.order.push_back(Place { until, session, peer, holder });
        true
    }

    /// The number of this holder of a session that ended, or else that of the requests of this peer.
    fn number(
        &mut self,
        (session, peer): (SessionId, IpAddr),
        holder: Option<Holder>,
    ) -> Option<&mut Number> {
        let number = match holder {
            Some(_) => self.sessions.get_mut(&session),
            None => self.requests.get_mut(&(session, peer)),
        };
        number.filter(|number| number.holder == holder)
    }

    const fn shares(&mut self, holder: Option<Holder>) -> &mut Shares<IpAddr> {
        if holder.is_some() { &mut self.session_shares } else { &mut self.request_shares }
    }

    fn remove_old(&mut self, now: Time) {
        for _ in 0..AT_ONCE {
            let Some(place) = self.order.front().copied().filter(|place| place.until <= now) else { return };
            self.order.pop_front();
            let Place { session, peer, holder, .. } = place;
            // The session may have had another holder since, whose number has a place of its own.
            if let Some(until) = self.number((session, peer), holder).map(|number| number.until) {
                if until > now {
                    self.order.push_back(Place { until, ..place });
                    continue;
                }
                if holder.is_some() {
                    self.sessions.remove(&session);
                } else {
                    self.requests.remove(&(session, peer));
                }
            }
            self.shares(holder).release(source(peer));
        }
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
        let outdated = |now, n, from, msn| ended.outdated(now, id(n), peer(from), msn);
        assert_eq!([5, 4].map(|msn| outdated(begin, 200, 9, msn)), [Some(OF_SESSION); 2]);
        assert_eq!((outdated(begin, 200, 2, 6), outdated(begin, 201, 2, 5)), (None, None));
        assert_eq!(outdated(later, 200, 2, 5), None);
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
    fn a_later_number_takes_the_place_of_an_older_one_for_the_whole_time() {
        let second = Time::from_secs(99);
        let (between, last) = (Time::from_secs(10) + KEPT, Time::from_secs(100) + KEPT);
        for (holder, reason) in [(Some(holder(7)), OF_SESSION), (None, OF_REQUEST)] {
            let mut ended = ended();
            for (now, msn) in [(Time::from_secs(9), 5), (second, 8), (second, 7)] {
                assert!(ended.keep(now, (id(1), peer(1)), (msn, holder)));
            }
            assert_eq!(ended.order.len(), 1);
            assert!(ended.keep(between, (id(2), peer(1)), number(1)));
            let outdated = |ended: &Ended, now, msn| ended.outdated(now, id(1), peer(1), msn);
            assert_eq!([8, 9].map(|msn| outdated(&ended, between, msn)), [Some(reason), None]);
            assert!(ended.keep(last, (id(3), peer(1)), number(1)));
            assert_eq!((outdated(&ended, last, 8), ended.order.len()), (None, 2));
            let totals = (ended.session_shares.total(), ended.request_shares.total());
            assert_eq!((ended.sessions.len(), ended.requests.len(), totals), (2, 0, (2, 0)));
        }
    }

    #[test]
    fn another_holder_of_a_session_has_a_place_of_its_own() {
        let mut ended = ended();
        let begin = Time::from_secs(9);
        for (from, hash, msn) in [(1, 7, 5), (2, 8, 6), (2, 8, 9)] {
            assert!(ended.keep(begin, (id(1), peer(from)), (msn, Some(holder(hash)))));
        }
        assert!(ended.was_held_by(begin, id(1), holder(8)) && !ended.was_held_by(begin, id(1), holder(7)));
        assert_eq!((ended.order.len(), ended.sessions.len(), ended.session_shares.total()), (2, 1, 2));
        let later = begin + KEPT;
        assert!(ended.keep(later, (id(2), peer(1)), number(3)));
        assert_eq!((ended.order.len(), ended.sessions.len(), ended.session_shares.total()), (1, 1, 1));
    }

    #[test]
    fn the_number_of_a_deletion_counts_for_its_peer_and_takes_a_place_of_its_source() {
        let mut ended = ended();
        let now = Time::from_secs(9);
        let lan = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        assert_eq!((0..100).filter(|n| ended.keep(now, (id(*n), lan(1)), (5, None))).count(), 12);
        assert!(!ended.keep(now, (id(1), lan(2)), (5, None)), "a host has all addresses of its prefix");
        let outdated = |ended: &Ended, from, msn| ended.outdated(now, id(1), lan(from), msn);
        assert_eq!([5, 6].map(|msn| outdated(&ended, 1, msn)), [Some(OF_REQUEST), None]);
        assert!(outdated(&ended, 2, 5).is_none() && !ended.was_held_by(now, id(1), holder(7)));
        assert_eq!((0..100).filter(|n| ended.keep(now, (id(*n), lan(2)), number(3))).count(), 48);
        assert_eq!([3, 4].map(|msn| outdated(&ended, 2, msn)), [Some(OF_SESSION), None]);
    }
}
