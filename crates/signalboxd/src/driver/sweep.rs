//! A comparison of standing reservations with the kernel's routes, in the background.
//!
//! The daemon follows the kernel's reports of routes. What changes without a report, for example the parameter by which flows are
//! split between the next hops of a route, is found here: a few reservations in each tick, in the order of their table. A
//! reservation whose packets leave elsewhere for some time makes the protocols look up the route again. If the reservation then
//! leaves its link, that is a repair, and it is counted: where the reports suffice, the counter stays 0.

use std::collections::BTreeMap;
use std::time::Duration;

use signalbox_core::node::{Input, Interface, NoRoute, Prefix, Route, RouteQuery};
use signalbox_core::{IfIndex, Time};
use signalbox_node::resources::GrantId;

use super::Driver;
use super::query::Routed;
use crate::course::{self, Routing};

/// Time between two ticks of one pass over all reservations.
const TICK: Duration = Duration::from_millis(250);
/// Reservations that one tick looks at.
const STEP: usize = 32;
/// Questions to the kernel after which a tick looks at no further reservation: a filter costs one question, and one for each
/// interface where the first answer names another link.
const QUESTIONS: usize = 64;
/// Shortest time from the begin of a pass to the next one.
const PASS: Duration = Duration::from_secs(2);
/// How long packets leave elsewhere before the protocols look again: by then they have followed what the kernel reported.
const SETTLED: Duration = Duration::from_secs(5);
/// How long after that the move of a reservation counts as a consequence.
const CONSEQUENCE: Duration = Duration::from_secs(3);
/// Most reservations whose packets leave elsewhere that are followed at one time.
const MOST: usize = 1024;

/// A reservation whose packets leave elsewhere.
#[derive(Debug, Clone, Copy)]
struct Stray {
    ifindex: IfIndex,
    since: Time,
    /// When the protocols were asked to look again.
    asked: Option<Time>,
}

/// The state of the comparison.
#[derive(Debug)]
pub(super) struct Sweep {
    due: Time,
    /// When the next pass may begin.
    next_pass: Time,
    /// Where the present pass goes on.
    place: u32,
    strays: BTreeMap<GrantId, Stray>,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { due: Time::ZERO, next_pass: Time::ZERO, place: 0, strays: BTreeMap::new() }
    }
}

/// Counts what the kernel is asked.
struct Questions<T> {
    of: T,
    asked: usize,
}

impl<T: Routing> Routing for Questions<T> {
    fn interfaces(&self) -> &[Interface] {
        self.of.interfaces()
    }

    fn route(&mut self, query: &RouteQuery) -> Result<Route, NoRoute> {
        self.asked += 1;
        self.of.route(query)
    }
}

/// What is to be done about a reservation that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Nothing,
    LookAgain,
}

impl Sweep {
    /// When the next tick is due.
    pub(super) const fn due(&self) -> Time {
        self.due
    }

    /// A reservation was looked at; `elsewhere`: its packets leave by another link.
    fn seen(&mut self, now: Time, grant: GrantId, ifindex: IfIndex, elsewhere: bool) -> Verdict {
        if !elsewhere {
            self.strays.remove(&grant);
            return Verdict::Nothing;
        }
        let room = self.strays.len() < MOST;
        match self.strays.get_mut(&grant) {
            Some(stray) if stray.ifindex != ifindex => *stray = Stray { ifindex, since: now, asked: None },
            Some(stray) if stray.asked.is_none() && now.since(stray.since) >= SETTLED => {
                stray.asked = Some(now);
                return Verdict::LookAgain;
            }
            Some(_) => {}
            None if room => {
                self.strays.insert(grant, Stray { ifindex, since: now, asked: None });
            }
            None => {}
        }
        Verdict::Nothing
    }

    /// Leaves out what stands at its link no more, and returns how many of these are repairs. `place_of` gives where a
    /// reservation stands.
    fn repaired(&mut self, now: Time, place_of: impl Fn(GrantId) -> Option<IfIndex>) -> u64 {
        let mut repairs = 0;
        self.strays.retain(|grant, stray| {
            let stands = place_of(*grant) == Some(stray.ifindex);
            let recent = stray.asked.is_some_and(|asked| now.since(asked) <= CONSEQUENCE);
            repairs += u64::from(!stands && recent);
            stands
        });
        repairs
    }

    /// A tick is done; the pass goes on at `next`, or is complete.
    fn done(&mut self, now: Time, next: Option<u32>) {
        self.due = match next {
            Some(place) => {
                self.place = place;
                now + TICK
            }
            None => {
                self.place = 0;
                let due = self.next_pass.max(now + TICK);
                self.next_pass = due + PASS;
                due
            }
        };
    }
}

impl Driver {
    /// Compares some reservations with the kernel's routes. Returns their number.
    pub(super) fn sweep(&mut self, now: Time) -> usize {
        let (mut looked_at, mut again) = (0, Vec::new());
        let sweep = &mut self.sweep;
        let resources = self.engine.node.resources();
        let mut kernel = Questions { of: Routed(&mut self.engine.io), asked: 0 };
        let next = resources.walk(sweep.place, |held| {
            looked_at += 1;
            let elsewhere = course::elsewhere(&mut kernel, held.ifindex, &held.filters);
            let verdict = sweep.seen(now, held.grant, held.ifindex, elsewhere.is_some());
            again.extend(elsewhere.filter(|_| verdict == Verdict::LookAgain));
            looked_at < STEP && kernel.asked < QUESTIONS
        });
        self.sweep.done(now, next);
        if !again.is_empty() {
            // What was answered before the kernel's state changed without a report counts no more.
            self.engine.io.forget_routes();
        }
        for dst in again {
            tracing::debug!(%dst, "packets of a reservation leave by another link; their route is looked up again");
            self.input(Input::RouteChanged(Prefix::host(dst)));
        }
        let resources = self.engine.node.resources();
        let place_of = |grant| resources.reservation(grant).map(|held| held.ifindex);
        let repairs = self.sweep.repaired(now, place_of);
        if repairs > 0 {
            self.counters.reservations_repaired += repairs;
            self.unreported = true;
            tracing::warn!(
                reservations = repairs,
                "packets of reservations had left by other links without a report of the kernel; the reservations follow"
            );
        }
        looked_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: IfIndex = IfIndex(7);

    fn s(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_reservation_that_strays_for_some_time_is_looked_up_once() {
        let (mut sweep, grant) = (Sweep::default(), GrantId(1));
        assert_eq!(sweep.seen(s(10), grant, LINK, true), Verdict::Nothing);
        assert_eq!(sweep.seen(s(14), grant, LINK, true), Verdict::Nothing, "the reports are on their way");
        assert_eq!(sweep.seen(s(15), grant, LINK, true), Verdict::LookAgain);
        assert_eq!(sweep.seen(s(20), grant, LINK, true), Verdict::Nothing, "a copy that is held ready");
        assert_eq!(sweep.repaired(s(21), |_| Some(LINK)), 0);
    }

    #[test]
    fn only_what_follows_the_lookup_is_a_repair() {
        let moved = |asked_at: u64, gone_at: u64| {
            let (mut sweep, grant) = (Sweep::default(), GrantId(1));
            sweep.seen(s(asked_at - 5), grant, LINK, true);
            assert_eq!(sweep.seen(s(asked_at), grant, LINK, true), Verdict::LookAgain);
            sweep.repaired(s(gone_at), |_| None)
        };
        assert_eq!(moved(20, 21), 1);
        assert_eq!(moved(20, 60), 0, "its user ended it");
        let mut sweep = Sweep::default();
        sweep.seen(s(1), GrantId(2), LINK, true);
        assert_eq!(sweep.repaired(s(2), |_| Some(IfIndex(8))), 0, "it followed a report");
        assert_eq!(sweep.seen(s(9), GrantId(2), LINK, true), Verdict::Nothing, "another reservation by then");
    }

    #[test]
    fn many_strays_are_bounded_and_a_pass_begins_when_its_time_has_come() {
        let mut sweep = Sweep::default();
        for grant in 0..5000 {
            sweep.seen(s(1), GrantId(grant), LINK, true);
        }
        assert_eq!(sweep.strays.len(), MOST);
        sweep.done(s(1), Some(32));
        assert_eq!((sweep.due(), sweep.place), (s(1) + TICK, 32));
        sweep.done(s(1), None);
        assert_eq!(sweep.place, 0);
        let first = sweep.due();
        sweep.done(first, None);
        assert!(sweep.due() >= first + PASS, "{:?}", sweep.due());
    }
}
