//! Hold-down of routes that flap (RFC 5971 §7.1.3: "to wait for the network to stabilise").
//!
//! The first change of a destination's route is followed at once. Further changes wait until its hold-down ends. The
//! hold-down time doubles with each change that is followed, until the route has been stable for one more hold-down time.
//! Sessions whose egress does not exist any more do not wait.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use signalbox_core::Time;

#[derive(Debug, Clone, Copy)]
struct Hold {
    until: Time,
    length: Duration,
    /// The route changed during the hold-down.
    waiting: bool,
}

/// Destinations whose route changed recently.
#[derive(Debug)]
pub(crate) struct HoldDowns {
    first: Duration,
    longest: Duration,
    max: usize,
    holds: BTreeMap<IpAddr, Hold>,
    /// One entry for each hold-down: its end and, after that, the time at which it is removed.
    due: BTreeSet<(Time, IpAddr)>,
}

impl HoldDowns {
    /// A `first` of zero: no hold-down.
    pub(crate) const fn new(first: Duration, longest: Duration, max: usize) -> Self {
        Self { first, longest, max, holds: BTreeMap::new(), due: BTreeSet::new() }
    }

    /// Whether a change of the route to `dst` must wait. [`HoldDowns::pop_due`] returns `dst` later.
    pub(crate) fn is_held(&mut self, now: Time, dst: IpAddr) -> bool {
        let Some(hold) = self.holds.get_mut(&dst).filter(|hold| now < hold.until) else { return false };
        hold.waiting = true;
        true
    }

    /// Starts the hold-down of `dst` when a session to it is rerouted; all sessions to `dst` together are one change. False:
    /// the table is full.
    pub(crate) fn moved(&mut self, now: Time, dst: IpAddr) -> bool {
        if self.first.is_zero() {
            return true;
        }
        let full = self.holds.len() >= self.max;
        match self.holds.get_mut(&dst) {
            Some(hold) if now < hold.until => {}
            Some(hold) => {
                self.due.remove(&(hold.until + hold.length, dst));
                hold.length = hold.length.saturating_mul(2).min(self.longest);
                hold.until = now + hold.length;
                self.due.insert((hold.until, dst));
            }
            None if full => return false,
            None => {
                let until = now + self.first;
                self.holds.insert(dst, Hold { until, length: self.first, waiting: false });
                self.due.insert((until, dst));
            }
        }
        true
    }

    /// When [`HoldDowns::pop_due`] is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// A destination whose hold-down has ended and whose route changed during it.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<IpAddr> {
        while let Some((at, dst)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.pop_first();
            let Some(hold) = self.holds.get_mut(&dst) else { continue };
            if at > hold.until {
                self.holds.remove(&dst); // the route was stable
                continue;
            }
            self.due.insert((hold.until + hold.length, dst));
            if core::mem::take(&mut hold.waiting) {
                return Some(dst);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DST: IpAddr = IpAddr::V4(core::net::Ipv4Addr::LOCALHOST);

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn holds() -> HoldDowns {
        HoldDowns::new(Duration::from_secs(1), Duration::from_secs(4), 2)
    }

    #[test]
    fn the_hold_down_doubles_while_the_route_flaps() {
        let mut holds = holds();
        let mut now = 0;
        for length in [1000, 2000, 4000, 4000] {
            assert!(!holds.is_held(at(now), DST) && holds.moved(at(now), DST));
            assert!(holds.moved(at(now + 1), DST), "one of the same change");
            assert!(holds.is_held(at(now + length - 1), DST));
            assert_eq!(holds.deadline(), Some(at(now + length)));
            assert_eq!(holds.pop_due(at(now + length)), Some(DST));
            assert_eq!(holds.pop_due(at(now + length)), None);
            now += length;
        }
        // Quiet for as long again: removed.
        assert_eq!(holds.pop_due(at(now + 4000)), None);
        assert_eq!((holds.deadline(), holds.holds.len()), (None, 0));
    }

    #[test]
    fn without_a_change_no_route_is_checked() {
        let mut holds = holds();
        holds.moved(at(0), DST);
        assert_eq!(holds.pop_due(at(1000)), None);
        assert_eq!(holds.pop_due(at(2000)), None);
        assert!(holds.holds.is_empty());
    }

    #[test]
    fn it_is_bounded_and_can_be_off() {
        let mut holds = holds();
        let addr = |n| IpAddr::V4(core::net::Ipv4Addr::from_bits(n));
        assert!(holds.moved(at(0), addr(1)) && holds.moved(at(0), addr(2)));
        assert!(!holds.moved(at(0), addr(3)) && !holds.is_held(at(0), addr(3)));
        let mut off = HoldDowns::new(Duration::ZERO, Duration::ZERO, 2);
        assert!(off.moved(at(0), DST) && !off.is_held(at(0), DST) && off.deadline().is_none());
    }
}
