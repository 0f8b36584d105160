//! Sequence numbers of sessions that ended (RFC 5973 §3.5).
//!
//! A session takes its number with it. A CREATE that the network delays, or that somebody repeats, would then open the passage once more,
//! as long as GIST has the routing state of the session. So the number is kept for some time after the end of the session.
//!
//! With it a node knows the deletion of a session that it had: nodes further on may still have it (§3.7.4).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use signalbox_core::index::KeyedHasher;
use signalbox_core::shares::Shares;
use signalbox_core::{Mri, SessionId, Time};

use super::session::newer;

/// How long a number is kept: longer than GIST keeps unused routing state with its default settings.
const KEPT: Duration = Duration::from_secs(600);
/// Numbers whose time is over that are removed for each one that comes.
const AT_ONCE: usize = 4;

/// The last sequence number of each session that ended of late. There are at most as many as sessions, and a quarter of the places is for
/// sources that have few: a source that ends many sessions leaves others theirs.
#[derive(Debug)]
pub(super) struct Ended {
    numbers: HashMap<SessionId, Number, KeyedHasher>,
    /// When each of them goes, and whose share it takes.
    order: VecDeque<(Time, SessionId, IpAddr)>,
    shares: Shares<IpAddr>,
}

/// What is kept of a session.
#[derive(Debug, Clone, Copy)]
struct Number {
    last: u32,
    /// What the session was to this node.
    had: Had,
    until: Time,
}

/// Whose session of which flow it was that ended: a keyed hash. 0: this node had none, and heard of its deletion only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Had(u32);

impl Had {
    /// A session for this flow, asked for by this source.
    pub(super) fn of(hasher: &KeyedHasher, mri: &Mri, source: IpAddr) -> Self {
        let [a, b, c, d, ..] = hasher.hash_one(&(mri, source)).to_be_bytes();
        Self(u32::from_be_bytes([a, b, c, d]).max(1))
    }
}

impl Ended {
    pub(super) fn new(most: u32, hasher: KeyedHasher) -> Self {
        Self {
            numbers: HashMap::with_hasher(hasher),
            order: VecDeque::new(),
            shares: Shares::new(most, hasher),
        }
    }

    pub(super) const fn set_limit(&mut self, most: u32) {
        self.shares.set_limit(most);
    }

    /// Whether a request has a number that its session had before it ended.
    pub(super) fn has(&self, now: Time, session: &SessionId, msn: u32) -> bool {
        self.kept(now, session).is_some_and(|kept| !newer(msn, kept.last))
    }

    /// What a session that ended was to this node.
    pub(super) fn had(&self, now: Time, session: &SessionId) -> Had {
        self.kept(now, session).map_or(Had::default(), |kept| kept.had)
    }

    fn kept(&self, now: Time, session: &SessionId) -> Option<&Number> {
        self.numbers.get(session).filter(|kept| now < kept.until)
    }

    /// Keeps the number of a session that ends. False if there is no place for it.
    pub(super) fn keep(
        &mut self,
        now: Time,
        session: SessionId,
        (last, had): (u32, Had),
        source: IpAddr,
    ) -> bool {
        for _ in 0..AT_ONCE {
            let Some((until, session, source)) =
                self.order.front().copied().filter(|(until, ..)| *until <= now)
            else {
                break;
            };
            self.order.pop_front();
            self.shares.release(source);
            // The session may have begun and ended again since.
            if self.numbers.get(&session).is_some_and(|kept| kept.until == until) {
                self.numbers.remove(&session);
            }
        }
        if self.shares.take(source).is_err() {
            return false;
        }
        let until = now + KEPT;
        self.numbers.insert(session, Number { last, had, until });
        self.order.push_back((until, session, source));
        true
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

    fn source(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn number(last: u32) -> (u32, Had) {
        (last, Had(7))
    }

    #[test]
    fn numbers_are_kept_for_some_time_and_in_shares() {
        let mut ended = Ended::new(64, KeyedHasher::with_key([1; 16]));
        let (begin, later) = (Time::from_secs(9), Time::from_secs(10) + KEPT);
        assert_eq!((0..100).filter(|n| ended.keep(begin, id(*n), number(5), source(1))).count(), 48);
        assert!(ended.keep(begin, id(200), number(5), source(2)), "others find their place");
        assert!(ended.has(begin, &id(200), 5) && ended.has(begin, &id(200), 4));
        assert!(!ended.has(begin, &id(200), 6) && !ended.has(begin, &id(201), 5));
        assert!(!ended.has(later, &id(200), 5));
        assert_eq!((ended.had(begin, &id(200)), ended.had(later, &id(200))), (Had(7), Had::default()));
        // The places come back, a few with each session that ends.
        assert!((300..600).all(|n| ended.keep(later, id(n), number(1), source(3)) == (n < 348)));
        let last = later + KEPT;
        (0..30).for_each(|n| assert!(ended.keep(last, id(n), number(1), source(4))));
        assert_eq!((ended.order.len(), ended.numbers.len()), (30, 30));
    }

    #[test]
    fn a_session_that_ends_twice_keeps_its_last_number_for_the_whole_time() {
        let mut ended = Ended::new(64, KeyedHasher::with_key([1; 16]));
        let (first, second) = (Time::from_secs(9), Time::from_secs(99));
        assert!(
            ended.keep(first, id(1), number(5), source(1)) && ended.keep(second, id(1), number(8), source(1))
        );
        let between = first + KEPT + Duration::from_secs(1);
        assert!(ended.keep(between, id(2), number(1), source(1)));
        assert!(ended.has(between, &id(1), 8) && !ended.has(between, &id(1), 9));
        assert_eq!((ended.order.len(), ended.shares.total()), (2, 2));
    }
}
