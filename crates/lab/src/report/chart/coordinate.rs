//! Places on an axis, its ends and its ticks.

use std::ops::Range;

use plotters::coord::ranged1d::{BoldPoints, KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;

use super::{Axis, Scale};

/// The largest number of decades that have a label each.
const DECADES_MAX: i32 = 8;
/// With fewer decades 2 and 5 of each have a label, too.
const DECADES_FEW: i32 = 3;

/// An axis with its ends.
#[derive(Debug, Clone)]
pub(super) struct Coordinate {
    scale: Scale,
    range: Range<f64>,
    ticks: Vec<(f64, String)>,
}

impl Coordinate {
    /// Returns an axis for values with at most `ticks` round ticks. With `zero` it begins at 0, unless it is logarithmic.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>, zero: bool, ticks: usize) -> Self {
        let scale = axis.scale;
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| places(scale, *value)) {
            (least, most) = (least.min(value), most.max(value));
        }
        if least > most {
            (least, most) = (1.0, 1.0);
        }
        let range = match scale {
            Scale::Log if zero => {
                decade(least, f64::floor)..decade(most, f64::ceil).max(decade(least, f64::floor) * 10.0)
            }
            Scale::Log if least < most => least..most,
            Scale::Log => least / 2.0..most * 2.0,
            Scale::Linear if zero => {
                let (low, high) = (least.min(0.0), most.max(0.0));
                // Room above the greatest value.
                let room = if high > low { (high - low) * 0.06 } else { 1.0 };
                (if low < 0.0 { low - room } else { low })..high + room
            }
            Scale::Linear if least < most => least..most,
            Scale::Linear => least - 0.5..most + 0.5,
        };
        let ticks = if axis.ticks.is_empty() { round(scale, &range, ticks) } else { axis.ticks.clone() };
        Self { scale, range, ticks }
    }

    /// The same with room at both ends, for markers.
    pub(super) fn wider(mut self, share: f64) -> Self {
        match self.scale {
            Scale::Linear => {
                let room = (self.range.end - self.range.start) * share;
                self.range = self.range.start - room..self.range.end + room;
            }
            Scale::Log => {
                let room = (self.range.end / self.range.start).powf(share);
                self.range = self.range.start / room..self.range.end * room;
            }
        }
        self
    }

    /// Whether a value is between the ends.
    pub(super) fn holds(&self, value: f64) -> bool {
        places(self.scale, value) && value >= self.range.start && value <= self.range.end
    }

    /// Returns a value between the ends.
    pub(super) fn inside(&self, value: f64) -> f64 {
        value.clamp(self.range.start, self.range.end)
    }
}

/// Whether a value has a place.
fn places(scale: Scale, value: f64) -> bool {
    value.is_finite() && (scale == Scale::Linear || value > 0.0)
}

/// Returns a power of ten beside a value.
fn decade(value: f64, side: fn(f64) -> f64) -> f64 {
    10_f64.powf(side(value.log10()))
}

/// Returns round values between the ends, with their labels.
fn round(scale: Scale, range: &Range<f64>, most: usize) -> Vec<(f64, String)> {
    let values = match scale {
        Scale::Linear => RangedCoordf64::from(range.clone()).key_points(BoldPoints(most)),
        Scale::Log => decades(range),
    };
    values.into_iter().map(|value| (value, short(value))).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "logarithms of finite numbers")]
fn decades(range: &Range<f64>) -> Vec<f64> {
    let (first, last) = (range.start.log10().floor() as i32, range.end.log10().ceil() as i32);
    let step = usize::try_from((last - first) / DECADES_MAX + 1).unwrap_or(1);
    let factors: &[f64] = if last - first <= DECADES_FEW { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let all = (first..=last)
        .step_by(step)
        .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
    // Powers of ten are not exact.
    all.filter(|value| *value >= range.start * 0.999 && *value <= range.end * 1.001).collect()
}

/// Returns a number with at most four digits behind the point, or with k, M and G for thousands.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    if size > 0.0 && size < 1e-3 {
        return format!("{value:.0e}");
    }
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (factor, unit) = units.into_iter().find(|(factor, _)| size >= *factor).unwrap_or((1.0, ""));
    let text = format!("{:.4}", value / factor);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{unit}", if text == "-0" { "0" } else { text })
}

impl Ranged for Coordinate {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let place = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(f64::MIN_POSITIVE).log10(),
        };
        let (start, end) = (place(self.range.start), place(self.range.end));
        let share = (place(self.inside(*value)) - start) / (end - start);
        #[expect(clippy::cast_possible_truncation, reason = "between two places of the drawing")]
        let offset = (f64::from(high - low) * share).round() as i32;
        low + offset
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // There are no lines between the ticks.
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.ticks.iter().map(|(value, _)| *value).filter(|value| self.holds(*value)).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Coordinate {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(tick, _)| tick.total_cmp(value).is_eq());
        tick.map_or_else(|| short(*value), |(_, label)| label.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: &Axis, values: &[f64], zero: bool) -> Vec<String> {
        let coordinate = Coordinate::new(axis, values.iter().copied(), zero, 6);
        coordinate.key_points(BoldPoints(6)).iter().map(|tick| coordinate.format_ext(tick)).collect()
    }

    #[test]
    fn ticks_are_round() {
        let linear = Axis::linear("");
        assert_eq!(ticks(&linear, &[3.0, 97.0], true), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(ticks(&linear, &[0.1, 0.3], true), ["0", "0.1", "0.2", "0.3"]);
        assert_eq!(ticks(&linear, &[4_100_000.0], true), ["0", "1M", "2M", "3M", "4M"]);
        assert_eq!(ticks(&linear, &[], true), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(
            ticks(&Axis::log(""), &[0.5, 40.0], true),
            ["0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50", "100"]
        );
        assert_eq!(ticks(&Axis::log(""), &[1.0, 1e6], true), ["1", "10", "100", "1k", "10k", "100k", "1M"]);
    }

    #[test]
    fn places_are_in_proportion() {
        let place = |axis: &Axis, value: f64| {
            Coordinate::new(axis, [1.0, 100.0].into_iter(), false, 6).map(&value, (0, 1000))
        };
        assert_eq!(
            [1.0, 50.5, 100.0, 500.0].map(|value| place(&Axis::linear(""), value)),
            [0, 500, 1000, 1000]
        );
        assert_eq!([1.0, 10.0, 100.0, 0.0].map(|value| place(&Axis::log(""), value)), [0, 500, 1000, 0]);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.300_000_000_000_000_04, "0.3"),
            (1500.0, "1.5k"),
            (2e6, "2M"),
            (0.000_2, "2e-4"),
            (-3.0, "-3"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
