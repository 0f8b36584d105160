//! In which order the runs of a sweep are made, and how long the rest of them takes.

use std::time::Duration;

use signalbox_core::Random;
use signalbox_units::Span;

use crate::language::sweep::{Order, Sweep};
use crate::report::sweep::{Finished, Place};

/// Returns all runs in their order: one repetition after the other, each with all points. The seed decides; an order does not
/// depend on how many repetitions follow.
pub(super) fn schedule(sweep: &Sweep, points: usize, seed: u64) -> Vec<Place> {
    let of = |repetition: u32| {
        let mut places: Vec<_> = (1..=points).map(|point| Place { point, repetition }).collect();
        if sweep.order == Order::Random {
            shuffle(&mut places, seed.wrapping_add(u64::from(repetition)));
        }
        places
    };
    (1..=sweep.repeat).flat_map(of).collect()
}

/// Puts places into an order in which each order is equally likely (Fisher and Yates).
fn shuffle(places: &mut [Place], seed: u64) {
    let mut random = Random::from_number(seed);
    for last in (1..places.len()).rev() {
        let other = random.range(0..last as u64 + 1);
        places.swap(last, usize::try_from(other).unwrap_or(last));
    }
}

/// Returns about how long the pending runs take: as long as the finished ones at their points, or else as all finished ones.
pub(super) fn left(finished: &[Finished], pending: &[Place]) -> Option<Span> {
    let mean = |of: &dyn Fn(&Finished) -> bool| {
        let (mut sum, mut number) = (Duration::ZERO, 0_u32);
        for run in finished.iter().filter(|run| of(run)) {
            sum += run.elapsed;
            number += 1;
        }
        (number > 0).then(|| sum / number)
    };
    let all = mean(&|_| true)?;
    let time: Duration =
        pending.iter().map(|place| mean(&|run| run.place.point == place.point).unwrap_or(all)).sum();
    // No estimate here is more exact.
    let seconds = time.as_secs_f64().ceil();
    let step = if seconds < 90.0 { 1.0 } else { 60.0 };
    Some(Span(Duration::from_secs_f64((seconds / step).round() * step)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::sweep::Sweep;

    fn sweep(repeat: u32, order: Order) -> Sweep {
        Sweep { repeat, order, ..Sweep::default() }
    }

    #[test]
    fn each_repetition_has_all_points_in_an_order_of_its_own() {
        let order = schedule(&sweep(4, Order::Random), 8, 3);
        for (number, repetition) in order.chunks(8).enumerate() {
            assert!(repetition.iter().all(|place| usize::try_from(place.repetition) == Ok(number + 1)));
            let mut points: Vec<_> = repetition.iter().map(|place| place.point).collect();
            points.sort_unstable();
            assert_eq!(points, (1..=8).collect::<Vec<_>>());
        }
        let points = |part: &[Place]| part.iter().map(|place| place.point).collect::<Vec<_>>();
        assert_ne!(points(&order[..8]), points(&order[8..16]));
        assert_eq!(schedule(&sweep(2, Order::Random), 8, 3), order[..16], "more repetitions change no order");
        assert_ne!(schedule(&sweep(4, Order::Random), 8, 4), order);
        let listed = schedule(&sweep(2, Order::Listed), 3, 3);
        assert_eq!(points(&listed), [1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn the_time_left_is_that_of_the_points_that_are_left() {
        let run = |point, seconds| Finished {
            place: Place { point, repetition: 1 },
            seed: 0,
            started_unix_us: 0,
            elapsed: Duration::from_secs(seconds),
            verdict: String::new(),
            ok: true,
            failures: Vec::new(),
            numbers: Vec::new(),
        };
        let pending = |points: &[usize]| {
            points.iter().map(|point| Place { point: *point, repetition: 2 }).collect::<Vec<_>>()
        };
        let left =
            |runs: &[Finished], points: &[usize]| left(runs, &pending(points)).map(|time| time.to_string());
        assert_eq!(left(&[], &[1]), None);
        let runs = [run(1, 10), run(2, 40), run(1, 20)];
        assert_eq!(left(&runs, &[1, 2]).as_deref(), Some("55s"));
        // A point that has not run takes as long as the mean of all runs.
        assert_eq!(left(&runs, &[3, 3]).as_deref(), Some("47s"));
        assert_eq!(left(&runs, &[2, 2, 2, 2, 2]).as_deref(), Some("3m"));
    }
}
