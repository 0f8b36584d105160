//! Times, rates and shares as a scenario file writes them: a number with its unit.

use core::fmt;
use core::time::Duration;

use serde::Deserialize;

/// A span of time, written `"250us"`, `"200ms"`, `"3s"` or `"2m"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Span(pub(crate) Duration);

impl Span {
    /// A span of whole milliseconds.
    pub(crate) const fn millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a time; write a number and us, ms, s or m, like \"200ms\"");
        let (number, unit) = split(&text).ok_or_else(wrong)?;
        let seconds = match unit {
            "us" => number / 1e6,
            "ms" => number / 1e3,
            "s" => number,
            "m" => number * 60.0,
            _ => return Err(wrong()),
        };
        Duration::try_from_secs_f64(seconds).map(Self).map_err(|_| wrong())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// The rate of a link in bits per second, written `"64kbit"`, `"10mbit"` or `"1gbit"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Rate(pub(crate) u64);

impl TryFrom<String> for Rate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a rate; write a number and bit, kbit, mbit or gbit, like \"10mbit\"");
        let (number, unit) = split(&text).ok_or_else(wrong)?;
        let factor: u64 = match unit {
            "bit" => 1,
            "kbit" => 1_000,
            "mbit" => 1_000_000,
            "gbit" => 1_000_000_000,
            _ => return Err(wrong()),
        };
        let whole = Duration::try_from_secs_f64(number).map_err(|_| wrong())?;
        let bits = u128::from(factor) * whole.as_nanos() / 1_000_000_000;
        match u64::try_from(bits) {
            Ok(bits @ 8_000..=100_000_000_000) => Ok(Self(bits)),
            _ => Err(format!("{text:?} is out of range; a link's rate lies between 8kbit and 100gbit")),
        }
    }
}

/// A share in percent, 0 to 100, kept in steps of a hundredth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Percent(u16);

impl Percent {
    /// In hundredths of a percent, 0 to 10,000.
    pub(crate) const fn hundredths(self) -> u16 {
        self.0
    }

    /// In percent.
    pub(crate) fn percent(self) -> f64 {
        f64::from(self.0) / 100.0
    }
}

impl TryFrom<f64> for Percent {
    type Error = String;

    fn try_from(percent: f64) -> Result<Self, String> {
        let wrong =
            || format!("{percent} is not a share in percent; write a number from 0 to 100, like 12.5");
        if !(0.0..=100.0).contains(&percent) {
            return Err(wrong());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 10,000 by the test above"
        )]
        let hundredths = (percent * 100.0).round() as u16;
        Ok(Self(hundredths))
    }
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let number: f64 = number.trim().parse().ok()?;
    (number >= 0.0).then_some((number, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_and_mistakes_name_what_is_right() {
        assert_eq!(Span::try_from("200ms".to_owned()), Ok(Span::millis(200)));
        assert_eq!(Span::try_from("1.5s".to_owned()), Ok(Span::millis(1500)));
        assert_eq!(Span::try_from("2m".to_owned()), Ok(Span::millis(120_000)));
        for wrong in ["200", "ms", "-1s", "1 fortnight", "1e400s"] {
            let message = Span::try_from(wrong.to_owned()).expect_err(wrong);
            assert!(message.contains("\"200ms\""), "{message}");
        }
        assert_eq!(Rate::try_from("1gbit".to_owned()), Ok(Rate(1_000_000_000)));
        assert_eq!(Rate::try_from("2.5mbit".to_owned()), Ok(Rate(2_500_000)));
        assert!(Rate::try_from("1kbit".to_owned()).expect_err("too slow").contains("8kbit"));
        assert_eq!(Percent::try_from(12.5).map(Percent::hundredths), Ok(1250));
        assert!(Percent::try_from(100.5).expect_err("too much").contains("0 to 100"));
        assert!(Percent::try_from(f64::NAN).is_err());
    }
}
