//! Confidence intervals of medians and means by bootstrap.
//!
//! The runs of a point are drawn again, with replacement, many times; the interval is what the averages of these draws leave between
//! their outer shares. With the shares of the confidence itself such an interval is too narrow for few runs: the draws vary less than samples
//! do, by the factor √((n−1)/n), and the deviation is itself an estimate. The shares are therefore Φ(−√(n/(n−1))·t), with t of Student's
//! distribution: the *expanded percentile interval* (T. Hesterberg, What Teachers Should Know About the Bootstrap, The American Statistician 69, 2015,
//! §4.1).

use std::collections::BTreeMap;

use serde::Serialize;
use signalbox_core::Random;

/// How often an interval contains the true value.
pub(crate) const CONFIDENCE: f64 = 0.95;
/// The number of draws of each interval.
pub(crate) const RESAMPLES: usize = 10_000;
/// Fewer runs have no interval: even between the least and the greatest of five there are only 93.75 % of medians.
pub(crate) const LEAST: usize = 6;

/// The share of a normal distribution above this many deviations is half of what [`CONFIDENCE`] leaves.
const NORMAL: f64 = 1.959_964;

/// An average and its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    /// Nothing with fewer than [`LEAST`] runs.
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
}

/// Draws for intervals. The same seed and the same values give the same intervals.
#[derive(Debug)]
pub(crate) struct Bootstrap {
    seed: u64,
    resamples: usize,
    /// By the number of values: for each draw the places of the values that it takes, in order.
    draws: BTreeMap<u16, Vec<u16>>,
}

impl Bootstrap {
    /// Returns the draws of a seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self::with(seed, RESAMPLES)
    }

    /// Returns so many draws of a seed.
    pub(crate) const fn with(seed: u64, resamples: usize) -> Self {
        Self { seed, resamples, draws: BTreeMap::new() }
    }

    /// Returns median and mean of values, which are sorted; nothing without values.
    pub(crate) fn averages(&mut self, sorted: &[f64]) -> Option<[Estimate; 2]> {
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        let plain = |value| Estimate { value, low: None, high: None };
        let (median, mean) = (plain(median(sorted)), plain(mean(sorted)));
        let Some(number) = u16::try_from(sorted.len()).ok().filter(|number| usize::from(*number) >= LEAST)
        else {
            return Some([median, mean]);
        };
        let over = |estimate: Estimate, low, high| Estimate { low: Some(low), high: Some(high), ..estimate };
        if first.total_cmp(&last).is_eq() {
            return Some([over(median, first, last), over(mean, first, last)]);
        }
        let (seed, resamples) = (self.seed, self.resamples);
        let draws = self.draws.entry(number).or_insert_with(|| draw(number, resamples, seed));
        let (mut medians, mut means) = (Vec::with_capacity(resamples), Vec::with_capacity(resamples));
        let mut values = vec![0.0; sorted.len()];
        for places in draws.chunks_exact(sorted.len()) {
            for (value, place) in values.iter_mut().zip(places) {
                *value = sorted.get(usize::from(*place)).copied().unwrap_or_default();
            }
            medians.push(self::median(&values));
            means.push(self::mean(&values));
        }
        let share = expanded(number);
        let [low, high] = inner(&mut medians, share);
        let median = over(median, low, high);
        let [low, high] = inner(&mut means, share);
        Some([median, over(mean, low, high)])
    }
}

/// Draws places of values, with replacement. The places of a draw are in order, so that its values are, too.
fn draw(number: u16, resamples: usize, seed: u64) -> Vec<u16> {
    let mut random = Random::from_number(seed);
    let mut all = Vec::with_capacity(resamples * usize::from(number));
    for _ in 0..resamples {
        let begin = all.len();
        let places = (0..number).map(|_| u16::try_from(random.range(0..u64::from(number))).unwrap_or(0));
        all.extend(places);
        if let Some(places) = all.get_mut(begin..) {
            places.sort_unstable();
        }
    }
    all
}

/// Returns what lies between the outer shares of the values.
fn inner(values: &mut [f64], share: f64) -> [f64; 2] {
    #[expect(clippy::cast_precision_loss, reason = "ten thousand draws")]
    let outside = share * (values.len() + 1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the draws")]
    let outside = (outside as usize).saturating_sub(1);
    let last = values.len().saturating_sub(1);
    let mut at = |place: usize| *values.select_nth_unstable_by(place.min(last), f64::total_cmp).1;
    [at(outside), at(last.saturating_sub(outside))]
}

/// Returns the share of the drawn means that is left out on each side. It depends on the number of values.
fn expanded(number: u16) -> f64 {
    let (n, free) = (f64::from(number), f64::from(number) - 1.0);
    below(-(n / free).sqrt() * student(free))
}

/// Returns how many deviations [`CONFIDENCE`] takes in Student's distribution: the expansion of Cornish and Fisher, whose error
/// is below 0.3 % from four degrees of freedom on.
fn student(free: f64) -> f64 {
    let z = NORMAL;
    let terms = [
        z,
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
    ];
    terms.iter().rev().fold(0.0, |sum, term| sum / free + term)
}

/// Returns the share of a normal distribution below a number that is not positive (Abramowitz and Stegun, 26.2.17).
fn below(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let factors = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = factors.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt() * sum
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 values")]
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    let at = |place: usize| sorted.get(place).copied().unwrap_or_default();
    if sorted.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.saturating_sub(1)), at(middle)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIALS: u32 = 600;
    /// Fewer than a sweep has: the ends vary more, and cover as often.
    const DRAWS: usize = 2000;

    type Draw = fn(&mut Random) -> f64;

    /// A normal distribution around 0, by the method of Box and Muller.
    fn normal(random: &mut Random) -> f64 {
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * random.unit()).cos()
    }

    /// Times between events that have no memory: mean 1, median ln 2.
    fn exponential(random: &mut Random) -> f64 {
        -(1.0 - random.unit()).ln()
    }

    /// Returns how often the intervals of median and mean contain the true ones.
    fn covered(draw: Draw, size: usize, [median, mean]: [f64; 2]) -> [f64; 2] {
        let (mut random, mut bootstrap) = (Random::from_number(17), Bootstrap::with(3, DRAWS));
        let mut covers = [0_u32; 2];
        for _ in 0..TRIALS {
            let mut sample: Vec<_> = (0..size).map(|_| draw(&mut random)).collect();
            sample.sort_by(f64::total_cmp);
            let found = bootstrap.averages(&sample).expect("there are values");
            for ((covers, found), truth) in covers.iter_mut().zip(found).zip([median, mean]) {
                *covers += u32::from((found.low..=found.high).contains(&Some(truth)));
            }
        }
        covers.map(|covers| f64::from(covers) / f64::from(TRIALS))
    }

    /// With a true 95 %, 600 trials give 93 to 97 % in 97 of 100 cases. The interval of a median of few runs ends at measured
    /// values, so that it is wider. The mean of a skewed distribution needs more runs.
    #[test]
    fn an_interval_contains_the_true_value_as_often_as_it_says() {
        let ln2 = 2_f64.ln();
        for (name, draw, size, truth, [[least, most], [mean_least, mean_most]]) in [
            ("normal", normal as Draw, 6, [0.0, 0.0], [[0.945, 0.985], [0.91, 0.96]]),
            ("normal", normal, 10, [0.0, 0.0], [[0.94, 0.985], [0.92, 0.97]]),
            ("normal", normal, 30, [0.0, 0.0], [[0.935, 0.98], [0.925, 0.97]]),
            ("exponential", exponential, 10, [ln2, 1.0], [[0.935, 0.98], [0.87, 0.93]]),
            ("exponential", exponential, 30, [ln2, 1.0], [[0.93, 0.975], [0.91, 0.96]]),
        ] {
            let [median, mean] = covered(draw, size, truth);
            assert!((least..=most).contains(&median), "the median of {size} {name} values: {median}");
            assert!((mean_least..=mean_most).contains(&mean), "the mean of {size} {name} values: {mean}");
        }
    }

    #[test]
    fn the_seed_decides() {
        let values: Vec<_> = (1..=30).map(|number| f64::from(number).sqrt()).collect();
        let of = |seed| Bootstrap::new(seed).averages(&values).expect("there are values");
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        // An interval does not depend on others that were drawn before.
        let mut bootstrap = Bootstrap::new(1);
        let _ = bootstrap.averages(&values[..9]);
        assert_eq!(bootstrap.averages(&values), Some(of(1)));
    }

    #[test]
    fn few_values_have_an_average_and_no_interval() {
        let mut bootstrap = Bootstrap::new(1);
        assert_eq!(bootstrap.averages(&[]), None);
        let [median, mean] = bootstrap.averages(&[1.0, 2.0, 6.0, 7.0]).expect("there are values");
        assert_eq!((median, mean.value), (Estimate { value: 4.0, low: None, high: None }, 4.0));
        let [median, mean] = bootstrap.averages(&[3.0; 6]).expect("there are values");
        assert_eq!((median.low, mean.high), (Some(3.0), Some(3.0)));
    }

    #[test]
    fn shares_are_those_of_the_tables() {
        for (free, expected) in [(4.0, 2.776), (9.0, 2.262), (29.0, 2.045)] {
            assert!((student(free) / expected - 1.0).abs() < 0.003, "{free}: {}", student(free));
        }
        for (x, expected) in [(0.0, 0.5), (-1.959_964, 0.025), (-3.0, 0.001_349_9)] {
            assert!((below(x) - expected).abs() < 1e-6, "{x}: {}", below(x));
        }
    }
}
