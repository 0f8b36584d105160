//! Rates, sizes and shares.

use core::fmt;
use core::str::FromStr;

use crate::number::{Inexact, Number, write_decimal};
use crate::{BadText, Form};

/// A rate in **bits** a second: `"64kbit"`, `"2.5mbit"`, `"1 Gbit/s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(pub u64);

const RATES: [(u64, &str); 4] = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit"), (1, "bit")];

impl BitRate {
    /// Its text.
    pub const FORM: Form =
        Form { what: "a rate", parts: "a number and bit, kbit, mbit or gbit", example: "10mbit" };

    /// The rate in octets a second, rounded down.
    #[must_use]
    pub const fn octets(self) -> u64 {
        self.0 / 8
    }

    /// A rate in octets a second; the largest rate if it does not fit.
    #[must_use]
    pub const fn of_octets(octets: u64) -> Self {
        Self(octets.saturating_mul(8))
    }
}

impl FromStr for BitRate {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let number = Number::split(text).ok_or(Self::FORM.bad(text))?;
        if number.unit.is_empty() {
            return Err(Self::FORM.because(text, "has no unit"));
        }
        let unit = number.unit.strip_suffix("/s").unwrap_or(number.unit);
        let known = RATES.iter().find(|(_, name)| name.eq_ignore_ascii_case(unit));
        let (factor, _) = known.ok_or(Self::FORM.bad(text))?;
        number.times(*factor).map(Self).map_err(|error| match error {
            Inexact::Finer => Self::FORM.because(text, "is not a whole number of bits"),
            Inexact::TooLarge => Self::FORM.because(text, "is too large"),
        })
    }
}

/// In the largest unit that gives at least 1 and at most three decimals.
impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |factor: u64| self.0 >= factor && self.0.is_multiple_of((factor / 1000).max(1));
        let (factor, unit) = RATES.into_iter().find(|(factor, _)| short(*factor)).unwrap_or((1, "bit"));
        write_decimal(f, self.0, factor)?;
        f.write_str(unit)
    }
}

/// A size in octets: `"1400"`, `"64KiB"`, `"1.5M"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Size(pub u64);

const SIZES: [(u64, &str); 6] = [
    (1 << 30, "GiB"),
    (1 << 20, "MiB"),
    (1 << 10, "KiB"),
    (1_000_000_000, "G"),
    (1_000_000, "M"),
    (1_000, "k"),
];

impl Size {
    /// Its text.
    pub const FORM: Form = Form {
        what: "a size",
        parts: "a number of octets, or a number and k, M, G, KiB, MiB or GiB",
        example: "64KiB",
    };
}

impl FromStr for Size {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let number = Number::split(text).ok_or(Self::FORM.bad(text))?;
        let factor = match number.unit {
            "" => 1,
            unit => SIZES.iter().find(|(_, name)| *name == unit).ok_or(Self::FORM.bad(text))?.0,
        };
        number.times(factor).map(Self).map_err(|error| match error {
            Inexact::Finer => Self::FORM.because(text, "is not a whole number of octets"),
            Inexact::TooLarge => Self::FORM.because(text, "is too large"),
        })
    }
}

/// In the first unit of which it is a whole number: binary ones first, octets last.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |factor: u64| self.0 != 0 && self.0.is_multiple_of(factor);
        match SIZES.iter().find(|(factor, _)| whole(*factor)) {
            Some((factor, unit)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A number of events a second: `"20000/s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PerSecond(pub u64);

impl PerSecond {
    /// Its text.
    pub const FORM: Form =
        Form { what: "a rate of events", parts: "a whole number and /s", example: "20000/s" };
}

impl FromStr for PerSecond {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let number = Number::split(text).ok_or(Self::FORM.bad(text))?;
        match number.unit {
            "/s" => number.times(1).map(Self).map_err(|error| match error {
                Inexact::Finer => Self::FORM.because(text, "is not a whole number"),
                Inexact::TooLarge => Self::FORM.because(text, "is too large"),
            }),
            "" => Err(Self::FORM.because(text, "has no /s")),
            _ => Err(Self::FORM.bad(text)),
        }
    }
}

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.0)
    }
}

/// A share in hundredths of a percent, 0 to 10,000: `"75%"`, `"12.5%"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Percent(u16);

impl Percent {
    /// Its text.
    pub const FORM: Form = Form { what: "a share", parts: "a number from 0 to 100 and %", example: "75%" };
    /// All of it.
    pub const ALL: Self = Self(10_000);

    /// A share of whole percents; 100 if it is more.
    #[must_use]
    pub const fn whole(percent: u8) -> Self {
        // In a const function there is no `From`.
        if percent < 100 { Self(percent as u16 * 100) } else { Self::ALL }
    }

    /// The share in hundredths of a percent, 0 to 10,000.
    #[must_use]
    pub const fn hundredths(self) -> u16 {
        self.0
    }

    /// The share in percent, 0 to 100.
    #[must_use]
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// This share of `whole`, rounded down.
    #[must_use]
    pub fn of(self, whole: u64) -> u64 {
        let part = u128::from(whole) * u128::from(self.0) / 10_000;
        // At most `whole`.
        u64::try_from(part).unwrap_or(whole)
    }
}

impl FromStr for Percent {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let number = Number::split(text).ok_or(Self::FORM.bad(text))?;
        match number.unit {
            "%" => {}
            "" => return Err(Self::FORM.because(text, "has no %")),
            _ => return Err(Self::FORM.bad(text)),
        }
        match number.times(100).map(u16::try_from) {
            Ok(Ok(hundredths @ 0..=10_000)) => Ok(Self(hundredths)),
            Err(Inexact::Finer) => Err(Self::FORM.because(text, "has more than two decimals")),
            _ => Err(Self::FORM.because(text, "is more than 100%")),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0.into(), 100)?;
        f.write_str("%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: FromStr<Err = BadText>>(cases: &[(&str, &str)]) {
        for (text, part) in cases {
            let Err(error) = text.parse::<T>() else { panic!("{text}") };
            let error = error.to_string();
            assert!(error.contains(part) && error.contains("such as"), "{text}: {error}");
        }
    }

    #[test]
    fn rates_are_bits() {
        for (text, bits) in [
            ("0bit", 0),
            ("64kbit", 64_000),
            ("2.5mbit", 2_500_000),
            ("2.5 Gbit/s", 2_500_000_000),
            ("10Mbit", 10_000_000),
        ] {
            assert_eq!(text.parse(), Ok(BitRate(bits)), "{text}");
        }
        refused::<BitRate>(&[
            ("10", "has no unit"),
            ("10mb", "is not a rate"),
            ("fast", "is not a rate"),
            ("0.5bit", "whole number of bits"),
            ("99999999999gbit", "too large"),
        ]);
        for text in ["2.5mbit", "1.234567mbit", "8bit", "0bit", "1gbit", "100mbit"] {
            let rate: BitRate = text.parse().unwrap();
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
        assert_eq!(BitRate(1_234_567).to_string(), "1234.567kbit");
        assert_eq!(BitRate(64_000).to_string(), "64kbit");
    }

    #[test]
    fn sizes_are_octets_with_or_without_unit() {
        for (text, octets) in
            [("1400", 1400), ("15k", 15_000), ("1.5M", 1_500_000), ("64KiB", 65_536), ("1GiB", 1 << 30)]
        {
            assert_eq!(text.parse(), Ok(Size(octets)), "{text}");
        }
        refused::<Size>(&[
            ("1m", "is not a size"),
            ("1.5", "whole number of octets"),
            ("1MB", "is not a size"),
        ]);
        assert_eq!(
            [1 << 20, 1500, 3000, 0].map(|octets| Size(octets).to_string()),
            ["1MiB", "1500", "3k", "0"]
        );
    }

    #[test]
    fn events_are_counted_each_second() {
        assert_eq!("20000/s".parse(), Ok(PerSecond(20_000)));
        refused::<PerSecond>(&[("20000", "has no /s"), ("1.5/s", "whole number"), ("5/m", "is not a rate")]);
    }

    #[test]
    fn shares_have_two_decimals() {
        assert_eq!("75%".parse(), Ok(Percent::whole(75)));
        assert_eq!("12.5 %".parse::<Percent>().map(Percent::hundredths), Ok(1250));
        assert_eq!("12.5%".parse::<Percent>().map(Percent::percent), Ok(12.5));
        refused::<Percent>(&[("101%", "more than 100%"), ("0.001%", "two decimals"), ("75", "has no %")]);
        assert_eq!("2.5%".parse::<Percent>().map(|share| share.of(u64::MAX)), Ok(461_168_601_842_738_790));
        assert_eq!(Percent::ALL.of(u64::MAX), u64::MAX);
    }
}
