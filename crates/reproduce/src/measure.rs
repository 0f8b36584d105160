//! The numbers of an experiment, from what its commands printed.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::experiment::{Experiment, Measurement, Of, Places, Source};
use crate::pointer::Pointer;

/// A number that was measured, in the unit of its measurement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measured {
    pub(crate) value: f64,
    pub(crate) samples: Option<f64>,
    /// The least and the greatest sample.
    pub(crate) interval: Option<(f64, f64)>,
    /// What the same run measured without the protocol, and what that is.
    pub(crate) baseline: Option<(f64, String)>,
}

impl Measured {
    /// Returns the same in another unit.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            samples: self.samples,
            interval: self.interval.map(|(least, most)| (least * factor, most * factor)),
            baseline: self.baseline.as_ref().map(|(value, is)| (value * factor, is.clone())),
        }
    }
}

/// Returns what was measured, by the names of the measurements. `outputs` are the objects that each run printed, by the names of the runs;
/// a run that failed has none.
pub(crate) fn measure(
    experiment: &Experiment,
    outputs: &BTreeMap<&str, &[Value]>,
) -> BTreeMap<String, Measured> {
    let mut all = BTreeMap::new();
    for Measurement { name, source, times, .. } in &experiment.measurements {
        let found = match source {
            Source::Read { run, places } => outputs.get(&**run).and_then(|objects| read(objects, places)),
            Source::Computed { of, parts } => {
                let parts: Option<Vec<&Measured>> = parts.iter().map(|part| all.get(part)).collect();
                parts.and_then(|parts| computed(*of, &parts))
            }
        };
        all.extend(found.map(|found| (name.clone(), found.scaled(*times))));
    }
    all
}

/// Reads a number of each object, of which the median counts.
fn read(objects: &[Value], places: &Places) -> Option<Measured> {
    let numbers = |place: &Pointer| -> Vec<f64> {
        let mut all: Vec<f64> = objects.iter().flat_map(|object| place.numbers(object)).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let values = numbers(&places.value);
    let value = median(&values)?;
    let several = (values.len() > 1).then(|| count(values.len()));
    let samples = places.samples.as_ref().map(|place| numbers(place).iter().sum()).or(several);
    let least = places.least.as_ref().and_then(|place| numbers(place).first().copied());
    let most = places.most.as_ref().and_then(|place| numbers(place).last().copied());
    let ends = values.first().zip(values.last()).filter(|_| values.len() > 1);
    let interval = least.zip(most).or_else(|| ends.map(|(least, most)| (*least, *most)));
    let baseline =
        places.baseline.as_ref().and_then(|(place, is)| Some((median(&numbers(place))?, is.clone())));
    Some(Measured { value, samples, interval, baseline })
}

fn computed(of: Of, parts: &[&Measured]) -> Option<Measured> {
    let mut values = parts.iter().map(|part| part.value);
    let first = values.next()?;
    let mut interval = None;
    let value = match of {
        Of::Sum => values.fold(first, |sum, value| sum + value),
        Of::Difference => values.fold(first, |rest, value| rest - value),
        Of::Quotient => first / values.next().filter(|value| *value != 0.0)?,
        Of::Range => {
            let least = values.clone().fold(first, f64::min);
            let most = values.fold(first, f64::max);
            interval = Some((least, most));
            f64::midpoint(least, most)
        }
    };
    // The least number of samples says how much the result is worth.
    let samples = parts.iter().filter_map(|part| part.samples).reduce(f64::min);
    Some(Measured { value, samples, interval, baseline: None })
}

/// Returns the middle one of sorted numbers, or the mean of the middle two.
fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[expect(clippy::cast_precision_loss, reason = "samples are few")]
const fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn places(value: &str) -> Places {
        let pointer = |text| Pointer::read(text).expect("sound");
        Places {
            value: pointer(value),
            samples: Some(pointer("count")),
            least: None,
            most: None,
            baseline: Some((pointer("bare"), "a bare forwarder".to_owned())),
        }
    }

    #[test]
    fn the_median_of_all_runs_counts() {
        let objects = [
            json!({"v": 3, "count": 30, "bare": 2}),
            json!({"v": 1, "count": 30, "bare": 2}),
            json!({"v": 2, "count": 30}),
        ];
        let found = read(&objects, &places("v")).expect("measured");
        assert_eq!((found.value, found.samples, found.interval), (2.0, Some(90.0), Some((1.0, 3.0))));
        assert_eq!(found.baseline, Some((2.0, "a bare forwarder".to_owned())));
        assert_eq!(read(&objects, &places("nothing")), None);
    }

    #[test]
    fn numbers_follow_from_others() {
        let of = |of: Of, values: &[f64]| {
            let all: Vec<_> = values
                .iter()
                .map(|value| Measured {
                    value: *value,
                    samples: Some(*value),
                    interval: None,
                    baseline: None,
                })
                .collect();
            computed(of, &all.iter().collect::<Vec<_>>()).map(|found| (found.value, found.samples))
        };
        assert_eq!(of(Of::Sum, &[2.0, 2.0, 3.0]), Some((7.0, Some(2.0))));
        assert_eq!(of(Of::Difference, &[9.0, 2.0]), Some((7.0, Some(2.0))));
        assert_eq!(of(Of::Quotient, &[9.0, 2.0]), Some((4.5, Some(2.0))));
        assert_eq!(of(Of::Quotient, &[9.0, 0.0]), None);
        assert_eq!(of(Of::Range, &[5.0, 9.0, 2.0]), Some((5.5, Some(2.0))));
    }
}
