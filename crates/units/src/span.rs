//! Durations.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::number::{Inexact, Number};
use crate::{BadText, Form};

/// A duration: `"250us"`, `"500ms"`, `"1.5s"`, `"2m"` or `"2min"`, `"1h"`, `"1d"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub Duration);

/// Units with their nanoseconds, the largest first. `min` is read as well.
const UNITS: [(u64, &str); 6] = [
    (86_400_000_000_000, "d"),
    (3_600_000_000_000, "h"),
    (60_000_000_000, "m"),
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "us"),
];

impl Span {
    /// Its text.
    pub const FORM: Form =
        Form { what: "a duration", parts: "a number and us, ms, s, m, h or d", example: "500ms" };

    /// A span of whole milliseconds.
    #[must_use]
    pub const fn millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }
}

impl FromStr for Span {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let number = Number::split(text).ok_or(Self::FORM.bad(text))?;
        let unit = match number.unit {
            "" => return Err(Self::FORM.because(text, "has no unit")),
            "min" => "m",
            "µs" => "us",
            unit => unit,
        };
        let (factor, _) = UNITS.iter().find(|(_, name)| *name == unit).ok_or(Self::FORM.bad(text))?;
        match number.times(*factor) {
            Ok(nanoseconds) => Ok(Self(Duration::from_nanos(nanoseconds))),
            Err(Inexact::Finer) => Err(Self::FORM.because(text, "is finer than a nanosecond")),
            // 2^64 nanoseconds are 584 years.
            Err(Inexact::TooLarge) => Err(Self::FORM.because(text, "is too long")),
        }
    }
}

/// In the largest unit of which it is a whole number.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        if nanoseconds == 0 {
            return f.write_str("0s");
        }
        let whole = UNITS.iter().find(|(factor, _)| nanoseconds.is_multiple_of(u128::from(*factor)));
        match whole {
            Some((factor, unit)) => write!(f, "{}{unit}", nanoseconds / u128::from(*factor)),
            None => {
                let digits = format!("{:03}", nanoseconds % 1000);
                write!(f, "{}.{}us", nanoseconds / 1000, digits.trim_end_matches('0'))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_takes_fractions() {
        for (text, us) in [
            ("250us", 250),
            ("500ms", 500_000),
            ("1 s", 1_000_000),
            ("1.5s", 1_500_000),
            ("2m", 120_000_000),
            ("2min", 120_000_000),
            ("0.5h", 1_800_000_000),
            ("1d", 86_400_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_micros(us))), "{text}");
        }
        assert_eq!("0.5us".parse(), Ok(Span(Duration::from_nanos(500))));
    }

    #[test]
    fn a_text_that_is_no_duration_is_refused_with_an_example() {
        for (text, part) in [
            ("", "is not a duration"),
            ("30", "has no unit"),
            ("s", "is not a duration"),
            ("-1s", "is not a duration"),
            ("1 fortnight", "is not a duration"),
            ("1e3s", "is not a duration"),
            ("0.0001us", "finer than a nanosecond"),
            ("99999999999999999999s", "too long"),
            ("18446744073709551615h", "too long"),
        ] {
            let error = text.parse::<Span>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("such as \"500ms\""), "{text}: {error}");
        }
    }

    #[test]
    fn it_displays_in_the_largest_whole_unit() {
        for text in ["0s", "90s", "2m", "1d", "1500ms", "250us", "0.5us", "36h"] {
            assert_eq!(text.parse::<Span>().map(|span| span.to_string()).as_deref(), Ok(text));
        }
        assert_eq!(Span(Duration::from_secs(7200)).to_string(), "2h");
    }
}
