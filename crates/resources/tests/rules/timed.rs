//! Reservations in advance: each takes its resources in its own time only.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use signalbox_core::Time;
use signalbox_core::traffic::FlowFilter;
use signalbox_resources::{Config, During, GrantId, GrantRequest, Resources};

use crate::support::*;

fn during(from: u64, until: u64) -> Option<During> {
    Some(During { from: Time::from_secs(from), until: Time::from_secs(until) })
}

/// A request for a time, in seconds.
fn timed(port: u16, mbit: u64, from: u64, until: u64) -> GrantRequest {
    GrantRequest { held: Time::from_secs(from) > NOW, during: during(from, until), ..request_of(port, mbit) }
}

/// Two reservations get the same resources one after the other, and not at one moment.
#[test]
fn times_that_do_not_meet_share_the_link() {
    let mut resources = start(config());
    admit(&mut resources, &timed(1, 8, 100, 200));
    admit(&mut resources, &timed(2, 8, 200, 300));
    assert_eq!(reserved(&resources), 8 * MBIT);
    for (from, until) in [(150, 250), (50, 101), (299, 400), (100, 300)] {
        assert!(resources.admit(NOW, &timed(3, 3, from, until)).is_err(), "{from} to {until}");
    }
    admit(&mut resources, &timed(3, 2, 100, 300));
    admit(&mut resources, &timed(4, 10, 300, 400));
    assert_eq!(reserved(&resources), 10 * MBIT);
}

/// One flow has a reservation in advance at each time, but not two at one moment.
#[test]
fn a_flow_has_one_reservation_after_another() {
    let mut resources = start(config());
    let first = admit(&mut resources, &timed(1, 1, 100, 200)).grant;
    let second = admit(&mut resources, &timed(1, 2, 200, 300)).grant;
    for request in [timed(1, 1, 199, 201), timed(1, 1, 0, 101), timed(1, 1, 299, 400), request_of(1, 1)] {
        assert!(refusal(&mut resources, &request).contains("has a reservation already"), "{request:?}");
    }
    assert!(resources.modify(NOW, first, &timed(1, 1, 100, 201)).is_err());
    // One whose end is past is there until it is released.
    let (late, third) = (Time::from_secs(310), timed(1, 1, 400, 500));
    for grant in [second, first] {
        assert!(resources.admit(late, &third).is_err());
        resources.release(grant);
    }
    resources.admit(late, &third).unwrap();
    // What counts from the request on, because there are no more places, is for all times.
    let mut resources = start(config());
    for start in 1..=15 {
        admit(&mut resources, &timed(2, 1, 1000 * start, 1000 * start + 1));
    }
    admit(&mut resources, &timed(1, 1, 100, 200));
    assert!(refusal(&mut resources, &timed(1, 1, 200, 300)).contains("has a reservation already"));
}

/// A request without an end needs room at each moment that is to come.
#[test]
fn a_request_without_an_end_leaves_room_for_what_is_to_start() {
    let mut resources = start(config());
    let first = admit(&mut resources, &timed(1, 6, 100, 200)).grant;
    admit(&mut resources, &timed(2, 7, 200, 300));
    assert!(refusal(&mut resources, &request_of(3, 4)).contains("share"));
    admit(&mut resources, &request_of(3, 3));
    // What stands without an end counts at each later moment.
    assert!(resources.admit(NOW, &timed(4, 8, 400, 500)).is_err());
    admit(&mut resources, &timed(4, 7, 400, 500));
    // One whose end is past counts until it is released.
    let late = Time::from_secs(210);
    assert!(resources.admit(late, &timed(5, 1, 220, 230)).is_err());
    resources.release(first);
    assert!(resources.admit(late, &timed(5, 1, 220, 230)).is_err(), "the second one and that without an end");
    resources.admit(Time::from_secs(210), &timed(5, 3, 300, 400)).unwrap();
}

/// A change of the time is judged like a request, and one within the former time is granted.
#[test]
fn a_time_can_change() {
    let mut resources = start(config());
    let first = admit(&mut resources, &timed(1, 8, 100, 200)).grant;
    admit(&mut resources, &timed(2, 8, 200, 300));
    assert!(resources.modify(NOW, first, &timed(1, 8, 100, 201)).is_err());
    resources.modify(NOW, first, &timed(1, 8, 120, 150)).unwrap();
    admit(&mut resources, &timed(3, 8, 150, 200));
    assert!(resources.modify(NOW, first, &request_of(1, 8)).is_err(), "without an end");
    // At its start the flow gets it.
    let now = Time::from_secs(120);
    resources.modify(now, first, &GrantRequest { held: false, ..timed(1, 8, 120, 150) }).unwrap();
    let mut kernel = Kernel::default();
    kernel.drain(&mut resources);
    assert_eq!(kernel.sum(ETH1), 8 * MBIT);
}

/// A stronger request ends weaker ones that count in its time, and no others.
#[test]
fn preemption_takes_what_counts_then() {
    let mut resources = start(Config { preemption: true, ..config() });
    for (port, from) in [(1, 100), (2, 200), (3, 300)] {
        admit(&mut resources, &at_priority(1, 1, timed(port, 8, from, from + 100)));
    }
    let strong = at_priority(5, 5, timed(4, 6, 200, 250));
    assert_eq!(resources.dry_run(NOW, &strong).result.unwrap().victims.len(), 1);
    assert_eq!(admit(&mut resources, &strong).preempted, 1);
    let lost = Kernel::default().drain(&mut resources);
    assert_eq!(lost.iter().map(|(key, ..)| *key).collect::<Vec<_>>(), [2]);
    let always = at_priority(5, 5, request_of(5, 2));
    assert_eq!(admit(&mut resources, &always).preempted, 0);
    assert_eq!(admit(&mut resources, &at_priority(5, 5, request_of(6, 2))).preempted, 2);
}

/// Beyond the places for them, a reservation counts from the request on.
#[test]
fn the_places_are_bounded() {
    let mut resources = start(config());
    for port in 0..16 {
        admit(&mut resources, &timed(port, 10, 100 * u64::from(port) + 100, 100 * u64::from(port) + 200));
    }
    assert_eq!(reserved(&resources), 10 * MBIT);
    assert!(resources.admit(NOW, &timed(16, 1, 10_000, 10_100)).is_err(), "this source has its places");
    let mut of_other = timed(17, 10, 10_000, 10_100);
    of_other.requester.claimed = "10.0.7.1".parse().ok();
    admit(&mut resources, &of_other);
}

/// A link with less capacity loses what does not fit at some moment.
#[test]
fn a_link_with_less_to_give_loses_reservations() {
    let mut link = link("eth1", 10);
    link.capacity = None;
    let mut resources = start(Config { links: vec![link], ..Config::default() });
    resources.measured(ETH1, Some(10 * MBIT));
    for (port, mbit, from) in [(1, 8, 100), (2, 3, 200)] {
        admit(&mut resources, &timed(port, mbit, from, from + 100));
    }
    resources.measured(ETH1, Some(5 * MBIT));
    assert_eq!((reserved(&resources), resources.len()), (3 * MBIT, 1));
}

#[derive(Debug, Clone)]
enum Step {
    /// Rate, start and length in seconds, priority. A length of 0: without a time.
    Ask(u64, u64, u64, u16),
    Change(usize, u64, u64, u64),
    Release(usize),
    /// Lets seconds pass.
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u64..8, 0u64..60, 0u64..30, 0u16..3).prop_map(|(mbit, start, length, priority)| {
            Step::Ask(mbit, start, length, priority)
        }),
        3 => (any::<usize>(), 1u64..8, 0u64..60, 0u64..30)
            .prop_map(|(at, mbit, start, length)| Step::Change(at, mbit, start, length)),
        1 => any::<usize>().prop_map(Step::Release),
        3 => (0u64..12).prop_map(Step::Wait),
    ]
}

/// An owner that gives its reservations to their flows at the start, and releases them at the end.
struct World {
    resources: Resources,
    kernel: Kernel,
    now: u64,
    next: u16,
    grants: BTreeMap<GrantId, GrantRequest>,
}

impl World {
    fn request(&mut self, port: u16, mbit: u64, start: u64, length: u64, priority: u16) -> GrantRequest {
        let from = self.now + start;
        let time = if length == 0 { None } else { during(from, from + length) };
        let held = time.is_some_and(|time| time.from > self.time());
        at_priority(priority, priority, GrantRequest { held, during: time, ..request_of(port, mbit) })
    }

    fn time(&self) -> Time {
        Time::ZERO + Duration::from_secs(self.now)
    }

    fn drain(&mut self) {
        while let Some(lost) = self.kernel.step(&mut self.resources) {
            assert!(self.kernel.sum(ETH1) <= 10 * MBIT, "the kernel has too much");
            let filters = || self.kernel.installed.values().map(|one| one.filters[0]);
            let twice = |filter: &FlowFilter| filters().filter(|other| other == filter).count() > 1;
            assert!(!filters().any(|filter| twice(&filter)), "a flow has two reservations");
            lost.into_iter().for_each(|(_, grant, _)| _ = self.grants.remove(&grant));
        }
    }

    /// The next second: what is over ends, and then what is to start begins.
    fn tick(&mut self) {
        self.now += 1;
        let now = self.time();
        self.grants.retain(|grant, request| {
            let over = request.during.is_some_and(|time| time.until <= now);
            if over {
                self.resources.release(*grant);
            }
            !over
        });
        for (grant, request) in &mut self.grants {
            if request.held && request.during.is_some_and(|time| time.from <= now) {
                request.held = false;
                self.resources.modify(now, *grant, request).expect("what was granted is there at its start");
            }
        }
        self.drain();
    }

    fn take(&mut self, step: &Step) {
        let pick = |grants: &BTreeMap<GrantId, GrantRequest>, at: usize| {
            grants.keys().nth(at % grants.len().max(1)).copied()
        };
        match *step {
            Step::Ask(mbit, start, length, priority) => {
                // Some are for one flow.
                self.next = (self.next + 1) % 10;
                let request = self.request(self.next, mbit, start, length, priority);
                let foreseen = self.resources.dry_run(self.time(), &request).result.is_ok();
                let admitted = self.resources.admit(self.time(), &request);
                assert_eq!(admitted.is_ok(), foreseen);
                if let Ok(admitted) = admitted {
                    self.grants.insert(admitted.grant, request);
                }
            }
            Step::Change(at, mbit, start, length) => {
                let Some(grant) = pick(&self.grants, at) else { return };
                let port = self.grants[&grant].filters[0].dst_port.unwrap();
                let request = self.request(port, mbit, start, length, 1);
                if self.resources.modify(self.time(), grant, &request).is_ok() {
                    self.grants.insert(grant, request);
                }
            }
            Step::Release(at) => {
                if let Some(grant) = pick(&self.grants, at) {
                    self.resources.release(grant);
                    self.grants.remove(&grant);
                }
            }
            Step::Wait(seconds) => (0..seconds).for_each(|_| self.tick()),
        }
        self.drain();
    }

    /// What is granted at any moment that is to come fits into the link.
    fn check(&self) {
        for second in self.now..self.now + 100 {
            let at = Time::from_secs(second);
            let counts = |request: &&GrantRequest| {
                request.during.is_none_or(|time| time.from <= at && at < time.until)
            };
            let sum: u64 = self.grants.values().filter(counts).map(GrantRequest::rate).sum();
            assert!(sum <= 10 * MBIT, "{sum} at {second}");
            let mut flows: Vec<_> =
                self.grants.values().filter(counts).map(|request| request.filters[0].dst_port).collect();
            let all = flows.len();
            flows.sort_unstable();
            flows.dedup();
            assert_eq!(flows.len(), all, "a flow has two reservations at {second}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Requests with and without a time, changes, preemption and releases in any order: at no moment is more granted than the link
    /// has, or in the kernel, and what was granted is there at its start.
    #[test]
    fn the_share_is_never_exceeded_at_any_time(steps in prop::collection::vec(step(), 1..80)) {
        let resources = start(Config { preemption: true, ..config() });
        let mut world =
            World { resources, kernel: Kernel::default(), now: 1, next: 0, grants: BTreeMap::new() };
        for step in &steps {
            world.take(step);
            world.check();
        }
        (0..100).for_each(|_| world.tick());
        for grant in core::mem::take(&mut world.grants).into_keys() {
            world.resources.release(grant);
        }
        world.drain();
        prop_assert!(world.kernel.installed.is_empty() && world.resources.is_empty());
        prop_assert_eq!(reserved(&world.resources), 0);
    }
}
