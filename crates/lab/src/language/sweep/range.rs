//! Ranges of values: a first value, a last value and the number of points. The points have equal distances, or their logarithms do.

use serde::Deserialize;
use toml::Spanned;

use super::quantity::amount;
use crate::language::Mistake;

/// More points are no experiment that ends.
const POINTS_MAX: u32 = 1000;

/// How the points of a range are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Scale {
    /// By equal differences.
    #[default]
    Linear,
    /// By equal ratios.
    Log,
}

/// A range of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Span {
    from: Spanned<toml::Value>,
    to: Spanned<toml::Value>,
    points: Spanned<u32>,
    #[serde(default)]
    scale: Scale,
}

impl Span {
    /// Whether equal ratios of the values have equal distances on an axis.
    pub(super) fn logarithmic(&self) -> bool {
        self.scale == Scale::Log
    }

    /// Returns its values. Values that are the same after rounding stand once.
    pub(super) fn values(&self) -> Result<Vec<toml::Value>, Mistake> {
        let (from, to) = (self.from.as_ref(), self.to.as_ref());
        let ends = amount(from).zip(amount(to));
        let Some(((low, high), kind)) =
            ends.and_then(|((a, low), (b, high))| Some(((low, high), a.with(b)?)))
        else {
            let what = format!(
                "a range goes between two numbers, times, rates or shares, like `from = 1, to = 100` or \
                 `from = \"1ms\", to = \"1s\"`; here between {from} and {to}"
            );
            return Err(Mistake::new(self.from.span(), what));
        };
        if low >= high {
            let what = format!("a range goes up: {from} is not below {to}");
            return Err(Mistake::new(self.from.span(), what));
        }
        if self.logarithmic() && low <= 0.0 {
            let what = format!("a range with `scale = \"log\"` begins above 0, not at {from}");
            return Err(Mistake::new(self.from.span(), what));
        }
        let points = *self.points.as_ref();
        if !(2..=POINTS_MAX).contains(&points) {
            let what = format!("`points` lies between 2 and {POINTS_MAX}, both ends of the range included");
            return Err(Mistake::new(self.points.span(), what));
        }
        let last = f64::from(points - 1);
        let at = |number: u32| {
            let share = f64::from(number) / last;
            match self.scale {
                Scale::Linear => low + (high - low) * share,
                Scale::Log => low * (high / low).powf(share),
            }
        };
        let inner = (1..points - 1).map(|number| kind.value(at(number), at(number) - at(number - 1)));
        // The ends are as they are written.
        let mut values: Vec<_> = std::iter::once(from.clone()).chain(inner).chain([to.clone()]).collect();
        values.dedup_by(|one, other| amount(one) == amount(other));
        Ok(values)
    }
}
