//! Values of parameters as quantities: numbers, times, rates and shares, which have an order and a place on an axis.

use std::time::Duration;

use signalbox_units::{BitRate, Percent, Span};

/// What a value of a parameter is a number of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Things: a whole number.
    Whole,
    Number,
    /// Nanoseconds.
    Time,
    /// Bits a second.
    Rate,
    /// Percent.
    Share,
}

/// Digits that values between the ends of a range keep, so that people can read them. Values that are close to each other keep more.
const DIGITS: i32 = 3;
/// The steps of a share in a percent.
const SHARE_STEPS: f64 = 100.0;

/// Returns what a value is a number of, and the number; nothing of a value without an order.
#[expect(clippy::cast_precision_loss, reason = "values of experiments are far below 2^52")]
pub(crate) fn amount(value: &toml::Value) -> Option<(Kind, f64)> {
    match value {
        toml::Value::Integer(number) => Some((Kind::Whole, *number as f64)),
        toml::Value::Float(number) => number.is_finite().then_some((Kind::Number, *number)),
        toml::Value::String(text) => {
            let time = || Some((Kind::Time, text.parse::<Span>().ok()?.0.as_nanos() as f64));
            let rate = || Some((Kind::Rate, text.parse::<BitRate>().ok()?.0 as f64));
            let share = || Some((Kind::Share, text.parse::<Percent>().ok()?.percent()));
            time().or_else(rate).or_else(share)
        }
        toml::Value::Boolean(_)
        | toml::Value::Datetime(_)
        | toml::Value::Array(_)
        | toml::Value::Table(_) => None,
    }
}

impl Kind {
    /// Returns the kind of a range between values of these kinds.
    pub(super) fn with(self, other: Self) -> Option<Self> {
        match (self, other) {
            _ if self == other => Some(self),
            (Self::Whole, Self::Number) | (Self::Number, Self::Whole) => Some(Self::Number),
            _ => None,
        }
    }

    /// Returns a number of this kind as a value of a parameter, rounded as far as people do, and by less than a tenth of `step`, the distance
    /// of its neighbor: so it stays between the ends of its range.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between the ends of a range"
    )]
    pub(super) fn value(self, number: f64, step: f64) -> toml::Value {
        let short = rounded(number, step);
        match self {
            Self::Whole => toml::Value::Integer(number.round() as i64),
            Self::Number => toml::Value::Float(short),
            Self::Time => Span(Duration::from_nanos(short.round() as u64)).to_string().into(),
            Self::Rate => BitRate(short.round() as u64).to_string().into(),
            Self::Share => format!("{}%", (number * SHARE_STEPS).round() / SHARE_STEPS).into(),
        }
    }
}

/// Keeps the first digits of a number, and those that tell it from its neighbor.
#[expect(clippy::cast_possible_truncation, reason = "the logarithm of a number has few digits")]
fn rounded(number: f64, step: f64) -> f64 {
    if number == 0.0 {
        return number;
    }
    let first = |number: f64| number.abs().log10().floor() as i32;
    let places = (DIGITS - 1 - first(number)).max(1 - first(step));
    // Division by a power of ten gives 0.3 where a product with 0.1 gives 0.30000000000000004.
    let power = 10_f64.powi(places.abs());
    if places >= 0 { (number * power).round() / power } else { (number / power).round() * power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_units_are_quantities() {
        for (value, expected) in [
            (toml::Value::Integer(7), Some((Kind::Whole, 7.0))),
            (0.25.into(), Some((Kind::Number, 0.25))),
            ("1.5ms".into(), Some((Kind::Time, 1.5e6))),
            ("64kbit".into(), Some((Kind::Rate, 64e3))),
            ("12.5%".into(), Some((Kind::Share, 12.5))),
            ("gist".into(), None),
            (true.into(), None),
        ] {
            assert_eq!(amount(&value), expected, "{value}");
        }
    }

    #[test]
    fn numbers_are_rounded_to_what_people_read() {
        for (kind, number, expected) in [
            (Kind::Whole, 31.62, toml::Value::Integer(32)),
            (Kind::Number, 0.123_456, 0.123.into()),
            (Kind::Number, 316_227.7, 316_000.0.into()),
            (Kind::Time, 3_162_277.66, "3.16ms".into()),
            (Kind::Time, 1e9, "1s".into()),
            (Kind::Rate, 31_622_776.6, "31.6mbit".into()),
            (Kind::Share, 12.344, "12.34%".into()),
            (Kind::Share, 0.3, "0.3%".into()),
        ] {
            let (shown, wanted) = (kind.value(number, number), expected);
            match (&shown, &wanted) {
                // "3160us" is the same time as "3.16ms".
                (toml::Value::String(_), toml::Value::String(_)) => {
                    assert_eq!(amount(&shown), amount(&wanted), "{shown}")
                }
                _ => assert_eq!(shown, wanted),
            }
        }
    }
}
