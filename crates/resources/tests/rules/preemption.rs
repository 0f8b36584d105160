//! The victims of a request with a higher priority.

use proptest::prelude::*;
use signalbox_core::traffic::ServiceClass;
use signalbox_resources::units::Share;
use signalbox_resources::{Config, GrantRequest, LostWhy};

use crate::support::*;

fn preemptive() -> Config {
    Config { preemption: true, ..config() }
}

/// The owners that lose a reservation, by key, in the order of the reports; `None`: refused.
fn victims(config: Config, standing: &[(u16, u64, u16)], setup: u16, mbit: u64) -> Option<Vec<u64>> {
    let mut resources = start(config);
    let mut kernel = Kernel::default();
    for (port, mbit, defending) in standing {
        admit(&mut resources, &at_priority(0, *defending, request_of(*port, *mbit)));
    }
    kernel.drain(&mut resources);
    let strong = at_priority(setup, setup, request_of(99, mbit));
    let before = reserved(&resources);
    let foreseen = resources.dry_run(NOW, &strong).result;
    let Ok(admitted) = resources.admit(NOW, &strong) else {
        assert!(foreseen.is_err());
        assert_eq!((reserved(&resources), kernel.drain(&mut resources).len()), (before, 0));
        return None;
    };
    let lost = kernel.drain(&mut resources);
    assert_eq!(usize::try_from(admitted.preempted), Ok(lost.len()));
    assert!(lost.iter().all(|(.., why)| *why == LostWhy::Preempted));
    let lost: Vec<u64> = lost.into_iter().map(|(key, ..)| key).collect();
    assert_eq!(foreseen.unwrap().victims.iter().map(|owner| owner.key).collect::<Vec<_>>(), lost);
    assert_eq!(kernel.sum(ETH1), reserved(&resources));
    Some(lost)
}

/// Each row has (port, Mbit/s, defending priority), then setup priority and rate, then the victims.
#[test]
fn the_weakest_lose_and_as_few_as_possible() {
    type Case = (&'static [(u16, u64, u16)], u16, u64, Option<&'static [u64]>);
    let cases: [Case; 11] = [
        // Sufficient resources: no victim.
        (&[(1, 5, 0)], 9, 5, Some(&[])),
        // Equal priorities do not preempt each other, and priority 0 preempts no reservation.
        (&[(1, 10, 5)], 5, 1, None),
        (&[(1, 10, 0)], 0, 1, None),
        (&[(1, 10, 5)], 6, 1, Some(&[1])),
        // The weaker one is preempted, although the stronger one alone would be sufficient.
        (&[(1, 5, 1), (2, 5, 2)], 9, 5, Some(&[1])),
        // Of equal priorities the smallest sufficient one is preempted.
        (&[(1, 5, 1), (2, 3, 1), (3, 2, 1)], 9, 3, Some(&[2])),
        // If no single one is sufficient: the largest, and the smallest that completes it.
        (&[(1, 5, 1), (2, 3, 1), (3, 2, 1)], 9, 7, Some(&[3, 1])),
        // Of equal priorities and rates the newest one is preempted.
        (&[(1, 5, 1), (2, 5, 1)], 9, 5, Some(&[2])),
        // A victim that is unnecessary because of the level above is kept.
        (&[(1, 1, 0), (2, 1, 0), (3, 8, 1)], 9, 8, Some(&[3])),
        (&[(1, 1, 0), (2, 1, 0), (3, 8, 1)], 9, 9, Some(&[2, 3])),
        // All weaker ones together are not sufficient.
        (&[(1, 3, 1), (2, 7, 9)], 9, 4, None),
    ];
    for (standing, setup, mbit, expected) in cases {
        let lost = victims(preemptive(), standing, setup, mbit);
        assert_eq!(lost.as_deref(), expected, "{standing:?} {setup} {mbit}");
    }
}

/// RFC 4495: one reservation keeps the rest of its rate, the other victims lose all of it.
#[test]
fn a_part_may_be_enough() {
    let reducible = |request: GrantRequest| GrantRequest { reducible: true, ..request };
    type Case = (&'static [(u16, u64)], u64, &'static [u64], &'static [(u64, u64)]);
    let cases: [Case; 4] = [
        (&[(1, 8)], 5, &[], &[(1, 5)]),
        // Free resources are used first.
        (&[(1, 6)], 5, &[], &[(1, 5)]),
        (&[(1, 4), (2, 4)], 7, &[2], &[(1, 3)]),
        (&[(1, 8)], 10, &[1], &[]),
    ];
    for (standing, mbit, expected_lost, expected) in cases {
        let mut resources = start(preemptive());
        let mut kernel = Kernel::default();
        for (port, mbit) in standing {
            admit(&mut resources, &reducible(at_priority(0, 1, request_of(*port, *mbit))));
        }
        kernel.drain(&mut resources);
        let admitted = admit(&mut resources, &at_priority(9, 9, request_of(99, mbit)));
        let lost: Vec<u64> = kernel.drain(&mut resources).into_iter().map(|(key, ..)| key).collect();
        assert_eq!(lost, expected_lost, "{standing:?}");
        let left: Vec<_> = expected.iter().map(|(key, mbit)| (*key, mbit * MBIT)).collect();
        assert_eq!(kernel.reduced, left, "{standing:?}");
        assert_eq!(usize::try_from(admitted.preempted), Ok(lost.len() + left.len()));
        assert_eq!((kernel.sum(ETH1), reserved(&resources)), (10 * MBIT, 10 * MBIT));
        assert_eq!(resources.counters().reduced, u64::try_from(left.len()).unwrap());
    }
}

/// With guaranteed service R is reduced first, then r with it. An owner that kept a part may request that part.
#[test]
fn a_part_of_guaranteed_service_may_be_taken() {
    for (strong, rate, token) in [(5, 5, 2), (9, 1, 1)] {
        let mut resources = start(preemptive());
        let mut kernel = Kernel::default();
        let weak = |rate, mbit| GrantRequest {
            reducible: true,
            ..at_priority(0, 1, guaranteed(request_of(1, rate), mbit, 0))
        };
        let grant = admit(&mut resources, &weak(2, 8)).grant;
        admit(&mut resources, &at_priority(9, 9, request_of(99, strong)));
        assert!(kernel.drain(&mut resources).is_empty());
        assert_eq!(kernel.reduced, [(1, rate * MBIT)]);
        let view = resources.reservation(grant).unwrap();
        assert_eq!((view.traffic.rate, view.charged), (token * MBIT, rate * MBIT));
        resources.modify(NOW, grant, &weak(token, rate)).unwrap();
        assert!(resources.modify(NOW, grant, &weak(2, 8)).is_err());
    }
}

#[test]
fn preemption_is_a_setting() {
    assert_eq!(victims(config(), &[(1, 10, 0)], 9, 1), None);
    let few = Config { max_victims: 1, ..preemptive() };
    assert_eq!(victims(few.clone(), &[(1, 5, 0), (2, 5, 0)], 9, 6), None);
    assert_eq!(victims(few, &[(1, 5, 0), (2, 5, 0)], 9, 5), Some(vec![2]));
}

/// If a service is at its limit, only its own reservations can be victims.
#[test]
fn victims_are_of_the_service_that_is_short() {
    let mut config = preemptive();
    config.links[0].controlled_load.max_share = Some(Share::percent(50));
    let mut resources = start(config);
    let other = GrantRequest { service: ServiceClass::Dscp(46), ..request_of(1, 5) };
    admit(&mut resources, &other);
    admit(&mut resources, &at_priority(0, 3, request_of(2, 5)));
    let mut kernel = Kernel::default();
    kernel.drain(&mut resources);
    admit(&mut resources, &at_priority(4, 4, request_of(3, 5)));
    let lost = kernel.drain(&mut resources);
    assert_eq!(lost.iter().map(|(key, ..)| *key).collect::<Vec<_>>(), [2]);
}

/// A change may preempt other reservations, never its own.
#[test]
fn a_change_takes_from_others_only() {
    let mut resources = start(preemptive());
    let mut kernel = Kernel::default();
    let first = admit(&mut resources, &at_priority(0, 0, request_of(1, 5)));
    admit(&mut resources, &at_priority(0, 1, request_of(2, 5)));
    kernel.drain(&mut resources);
    let more = at_priority(9, 9, request_of(1, 8));
    assert_eq!(resources.modify(NOW, first.grant, &more).unwrap().preempted, 1);
    let lost = kernel.drain(&mut resources);
    assert_eq!(lost.iter().map(|(key, ..)| *key).collect::<Vec<_>>(), [2]);
    assert_eq!(reserved(&resources), 8 * MBIT);
}

#[test]
fn a_place_can_be_taken_as_well() {
    let mut config = preemptive();
    config.links[0].max_reservations = Some(2);
    assert_eq!(victims(config.clone(), &[(1, 3, 0), (2, 2, 0)], 9, 1), Some(vec![2]));
    assert_eq!(victims(config, &[(1, 3, 9), (2, 2, 9)], 9, 1), None);
    let mut config = preemptive();
    config.links[0].buffer = Some(20_000);
    assert_eq!(victims(config, &[(1, 3, 2), (2, 2, 1)], 9, 1), Some(vec![2]));
}

proptest! {
    /// Compared with every possible set of victims: no smaller set of weaker ones would be sufficient, no victim is
    /// unnecessary, and a request is refused only if all weaker ones together are not sufficient.
    #[test]
    fn victims_are_needed_and_weak(
        standing in prop::collection::vec((1u64..4, 0u16..4), 1..8), setup in 0u16..5, mbit in 1u64..11
    ) {
        let mut all = Vec::new();
        let mut free = 10;
        for (port, (mbit, defending)) in (1..).zip(standing) {
            if free >= mbit {
                free -= mbit;
                all.push((port, mbit, defending));
            }
        }
        let weak: u64 = all.iter().filter(|one| one.2 < setup).map(|one| one.1).sum();
        match victims(preemptive(), &all, setup, mbit) {
            None => prop_assert!(free + weak < mbit),
            Some(lost) => {
                let size = |key: &u64| all.iter().find(|one| u64::from(one.0) == *key).unwrap();
                let freed: u64 = lost.iter().map(|key| size(key).1).sum();
                prop_assert!(free + freed >= mbit);
                for key in &lost {
                    prop_assert!(size(key).2 < setup);
                    prop_assert!(free + freed - size(key).1 < mbit, "{} was not needed", key);
                }
                // A level has victims only if all levels below it together are not sufficient.
                if let Some(level) = lost.iter().map(|key| size(key).2).max() {
                    let below: u64 = all.iter().filter(|one| one.2 < level).map(|one| one.1).sum();
                    prop_assert!(free + below < mbit);
                }
            }
        }
    }
}
