//! A rate that neighbors share, such as that of messages which they cause.
//!
//! One bucket for all is used up by the busiest neighbor, honest or not. [`FairRate`] divides a guaranteed part of the rate equally among
//! the interfaces that are in use, the part of each interface among its neighbors, and that of each neighbor among the parties that it
//! speaks for. A peer that stays within its share is served while others use up the rest. Nothing is divided while there is enough for all.

use core::hash::Hash;
use core::net::IpAddr;

use crate::bucket::TokenBucket;
use crate::id::IfIndex;
use crate::index::KeyedHasher;
use crate::shares::source;
use crate::time::Time;

/// Who causes what is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Causer {
    /// The interface by which its messages come in; [`IfIndex::NONE`]: users of this node.
    pub ifindex: IfIndex,
    /// The neighbor that sends them.
    pub neighbor: IpAddr,
    /// For whom the neighbor sends them, such as the source of the flow.
    pub party: IpAddr,
}

/// Places of interfaces. Their numbers follow each other, so that the places differ.
const INTERFACES: usize = 64;
/// Places of the neighbors of an interface, and of the parties of a neighbor.
const NEIGHBORS: usize = 64;
const PARTIES: usize = 32;
/// Places in which one of them can be.
const WAYS: usize = 4;
/// The guaranteed part of the rate: a half. The other half is for what has a limit of its own.
const GUARANTEED: u32 = 2;
/// The part of the burst that is for those within their share: an eighth, half of what others leave.
const OF_BURST: u32 = 8;

/// A share of the rate and of the burst.
#[derive(Debug, Clone, Copy)]
struct Share {
    rate: u32,
    burst: u32,
}

impl Share {
    const fn of(rate: u32, burst: u32) -> Self {
        Self { rate: rate.div_ceil(GUARANTEED), burst: burst.div_ceil(OF_BURST) }
    }
}

/// What an interface, a neighbor or a party uses, and how many places below it are in use.
#[derive(Debug, Clone, Copy)]
struct Place {
    bucket: TokenBucket,
    /// Whose place it is.
    tag: u32,
    /// The second in which it was used last.
    second: u32,
    /// Places below it that were used in this second, and in the one before.
    below: u32,
    before: u32,
}

impl Place {
    const EMPTY: Self = Self { bucket: TokenBucket::new(0, 0), tag: 0, second: 0, below: 0, before: 0 };

    /// Whether it was not used in this second or the one before.
    const fn is_idle(&self, second: u32) -> bool {
        second.wrapping_sub(self.second) > 1
    }

    /// Notes a use. Whether it is the first one in its second.
    const fn enter(&mut self, tag: u32, second: u32) -> bool {
        if self.is_idle(second) && self.tag != tag {
            *self = Self { tag, ..Self::EMPTY };
        }
        if self.second == second {
            return false;
        }
        self.before = if self.is_idle(second) { 0 } else { self.below };
        (self.second, self.below) = (second, 0);
        true
    }

    /// The share of each place below it.
    fn each(&self, of: Share) -> Share {
        let count = self.below.max(self.before).max(1);
        Share { rate: (of.rate / count).max(1), burst: (of.burst / count).max(1) }
    }

    fn allow(&mut self, now: Time, share: Share) -> bool {
        if self.bucket.is_of_rate_0() {
            self.bucket = TokenBucket::new(share.rate, share.burst);
        } else {
            self.bucket.set_limits(now, share.rate, share.burst);
        }
        self.bucket.allow(now)
    }
}

#[derive(Debug, Clone, Copy)]
struct Neighbor {
    place: Place,
    parties: [Place; PARTIES],
}

#[derive(Debug)]
struct Interface {
    place: Place,
    neighbors: Box<[Neighbor]>,
}

impl Interface {
    fn new() -> Self {
        let neighbor = Neighbor { place: Place::EMPTY, parties: [Place::EMPTY; PARTIES] };
        Self { place: Place::EMPTY, neighbors: vec![neighbor; NEIGHBORS].into() }
    }
}

/// The place of a hash among `places`: its own, or one that is idle, or else one that it has together with another.
fn position<T>(places: &[T], hash: u64, second: u32, place: impl Fn(&T) -> &Place) -> usize {
    let first = usize::try_from(hash % places.len().max(1) as u64).unwrap_or_default();
    let ways = || (0..WAYS).map(|way| first ^ way);
    let look = |at: &usize| places.get(*at).map(&place);
    ways()
        .find(|at| look(at).is_some_and(|one| one.tag == tag(hash) && !one.is_idle(second)))
        .or_else(|| ways().find(|at| look(at).is_some_and(|one| one.is_idle(second))))
        .unwrap_or(first)
}

/// The part of a hash that does not choose the place.
const fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// A rate with equal shares for interfaces, neighbors and parties that use it.
#[derive(Debug)]
pub struct FairRate {
    /// `None`: no limit.
    all: Option<TokenBucket>,
    share: Share,
    hasher: KeyedHasher,
    top: Place,
    /// Those by which messages came in when the rate was scarce.
    interfaces: Vec<Option<Interface>>,
    /// What others that have a limit of their own may take of the last quarter of the burst.
    others: TokenBucket,
}

impl FairRate {
    /// At most `rate` a second, and `burst` at once; with a rate of 0 there is no limit.
    #[must_use]
    pub fn new(rate: u32, burst: u32, hasher: KeyedHasher) -> Self {
        let share = Share::of(rate, burst);
        Self {
            all: (rate > 0).then(|| TokenBucket::new(rate, burst)),
            share,
            hasher,
            top: Place::EMPTY,
            interfaces: Vec::new(),
            others: TokenBucket::new(share.rate, share.burst),
        }
    }

    /// Sets other limits from now on. What is used up stays used up, except after a rate of 0.
    pub fn set_limits(&mut self, now: Time, rate: u32, burst: u32) {
        self.share = Share::of(rate, burst);
        self.others.set_limits(now, self.share.rate, self.share.burst);
        match &mut self.all {
            Some(all) if rate > 0 => all.set_limits(now, rate, burst),
            all => *all = (rate > 0).then(|| TokenBucket::new(rate, burst)),
        }
    }

    /// Whether one more may pass. Who causes it is asked only if half of the burst is used up.
    #[inline]
    pub fn allow(&mut self, now: Time, causer: impl FnOnce() -> Causer) -> bool {
        let Some(all) = &mut self.all else { return true };
        all.allow_half(now) || self.allow_scarce(now, &causer())
    }

    /// Whether one more may pass that has a limit of its own.
    pub fn allow_other(&mut self, now: Time) -> bool {
        let Some(all) = &mut self.all else { return true };
        all.allow_most(now) || (self.others.allow(now) && all.allow(now))
    }

    /// Half of the burst is used up: who is within its share may take the rest, and others leave a quarter of the burst.
    fn allow_scarce(&mut self, now: Time, causer: &Causer) -> bool {
        let within = self.is_within_share(now, causer);
        self.all.as_mut().is_none_or(|all| if within { all.allow(now) } else { all.allow_most(now) })
    }

    fn is_within_share(&mut self, now: Time, causer: &Causer) -> bool {
        let second = u32::try_from(now.as_micros() / 1_000_000).unwrap_or(u32::MAX);
        let of_neighbor = self.hasher.hash_one(&source(causer.neighbor));
        let of_party = self.hasher.hash_one(&source(causer.party));
        if self.interfaces.is_empty() {
            self.interfaces.resize_with(INTERFACES, || None);
        }
        let at = usize::try_from(causer.ifindex.0).unwrap_or_default() % INTERFACES;
        let Some(interface) = self.interfaces.get_mut(at) else { return false };
        let Interface { place: interface, neighbors } = interface.get_or_insert_with(Interface::new);
        let at = position(neighbors, of_neighbor, second, |one| &one.place);
        let Some(Neighbor { place: neighbor, parties }) = neighbors.get_mut(at) else { return false };
        let at = position(parties, of_party, second, |one| one);
        let Some(party) = parties.get_mut(at) else { return false };
        self.top.enter(0, second);
        self.top.below += u32::from(interface.enter(0, second));
        interface.below += u32::from(neighbor.enter(tag(of_neighbor), second));
        neighbor.below += u32::from(party.enter(tag(of_party), second));
        let for_interface = self.top.each(self.share);
        let for_neighbor = interface.each(for_interface);
        let for_party = neighbor.each(for_neighbor);
        party.allow(now, for_party)
            && neighbor.allow(now, for_neighbor)
            && interface.allow(now, for_interface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn causer(ifindex: u32, neighbor: u32, party: u32) -> Causer {
        let address = |number: u32| IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        Causer { ifindex: IfIndex(ifindex), neighbor: address(neighbor), party: address(party) }
    }

    /// What passes of `honest`, 40 a second, while each of `greedy` sends 5000 a second.
    fn served(honest: Causer, greedy: impl Fn(u32) -> Causer) -> usize {
        let mut rate = FairRate::new(1000, 1000, KeyedHasher::with_key([7; 16]));
        let mut passed = 0;
        let mut flood = 0;
        for number in 0..50_000 {
            let now = Time::from_micros(5_000_000 + u64::from(number) * 200);
            flood += u32::from(rate.allow(now, || greedy(number)));
            if number % 125 == 124 {
                passed += usize::from(rate.allow(now, || honest));
            }
        }
        assert!(flood > 9_000, "{flood}: what is not used is not lost");
        assert!(flood < 11_000, "{flood}");
        passed
    }

    #[test]
    fn a_greedy_neighbor_leaves_others_their_share() {
        for honest in [causer(2, 2, 2), causer(1, 2, 2), causer(1, 1, 2)] {
            assert_eq!(served(honest, |_| causer(1, 1, 1)), 400, "{honest:?}");
        }
    }

    #[test]
    fn many_parties_of_a_neighbor_leave_other_neighbors_their_share() {
        assert_eq!(served(causer(1, 2, 2), |number| causer(1, 1, 100 + number)), 400);
    }

    #[test]
    fn many_neighbors_of_an_interface_leave_other_interfaces_their_share() {
        assert_eq!(served(causer(2, 2, 2), |number| causer(1, 100 + number, number)), 400);
    }

    #[test]
    fn what_has_a_limit_of_its_own_has_its_part() {
        let mut rate = FairRate::new(1000, 1000, KeyedHasher::with_key([7; 16]));
        let mut others = 0;
        for number in 0..50_000_u64 {
            let now = Time::from_micros(5_000_000 + number * 200);
            rate.allow(now, || causer(1, 1, 1));
            others += u32::from(number.is_multiple_of(25) && rate.allow_other(now));
        }
        assert_eq!(others, 2000);
    }

    #[test]
    fn one_user_has_the_whole_rate() {
        let mut rate = FairRate::new(100, 40, KeyedHasher::with_key([7; 16]));
        let now = Time::from_secs(9);
        let burst = (0..99).filter(|_| rate.allow(now, || causer(1, 1, 1))).count();
        assert_eq!(burst, 30, "others find a quarter of the burst");
        let later =
            (1..=1000).filter(|ms| rate.allow(Time::from_millis(9000 + ms), || causer(1, 1, 1))).count();
        assert!((99..=101).contains(&later), "{later}");
    }

    #[test]
    fn other_limits_give_nothing_back_that_was_used() {
        let mut rate = FairRate::new(64, 64, KeyedHasher::with_key([7; 16]));
        let served = |rate: &mut FairRate, secs| {
            (0..999).filter(|_| rate.allow(Time::from_secs(secs), || causer(1, 1, 1))).count()
        };
        assert_eq!(served(&mut rate, 9), 48);
        for limit in [64, 6400, 64] {
            rate.set_limits(Time::from_secs(9), limit, limit);
            assert!(served(&mut rate, 9) == 0, "{limit}");
        }
        rate.set_limits(Time::from_secs(9), 0, 0);
        assert_eq!(served(&mut rate, 9), 999);
        rate.set_limits(Time::from_secs(9), 8, 8);
        assert_eq!(served(&mut rate, 9), 6);
    }
}
