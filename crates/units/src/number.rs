//! A decimal number and its unit.

use core::fmt;

/// A number as text, split from its unit.
pub(crate) struct Number<'a> {
    digits: &'a str,
    fraction: &'a str,
    /// What follows the number, without blanks around it.
    pub(crate) unit: &'a str,
}

/// The number is not a whole number of the smallest unit, or is too large.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Inexact {
    Finer,
    TooLarge,
}

impl<'a> Number<'a> {
    /// Splits a text; `None` if it does not begin with a number.
    pub(crate) fn split(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (digits, fraction) = match number.split_once('.') {
            Some((digits, fraction)) if !fraction.is_empty() => (digits, fraction),
            Some(_) => return None,
            None => (number, ""),
        };
        let whole = !digits.is_empty() && !fraction.contains('.');
        whole.then_some(Self { digits, fraction: fraction.trim_end_matches('0'), unit: unit.trim() })
    }

    /// The number times `factor`.
    pub(crate) fn times(&self, factor: u64) -> Result<u64, Inexact> {
        let whole: u64 = self.digits.parse().map_err(|_| Inexact::TooLarge)?;
        let whole = whole.checked_mul(factor).ok_or(Inexact::TooLarge)?;
        if self.fraction.is_empty() {
            return Ok(whole);
        }
        // The factor is below 2^64 < 10^20: a longer fraction is finer than the unit.
        let places = u32::try_from(self.fraction.len()).map_err(|_| Inexact::Finer)?;
        let scale = 10_u128.checked_pow(places).filter(|_| places <= 18).ok_or(Inexact::Finer)?;
        let fraction: u64 = self.fraction.parse().map_err(|_| Inexact::Finer)?;
        let part = u128::from(fraction) * u128::from(factor);
        if !part.is_multiple_of(scale) {
            return Err(Inexact::Finer);
        }
        let part = u64::try_from(part / scale).map_err(|_| Inexact::TooLarge)?;
        whole.checked_add(part).ok_or(Inexact::TooLarge)
    }
}

/// Writes `value` in units of `factor`, which is a power of ten, without zeros at the end of the fraction.
pub(crate) fn write_decimal(f: &mut fmt::Formatter<'_>, value: u64, factor: u64) -> fmt::Result {
    write!(f, "{}", value / factor)?;
    let rest = value % factor;
    if rest == 0 {
        return Ok(());
    }
    let places = factor.ilog10() as usize;
    let digits = format!("{rest:0places$}");
    write!(f, ".{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_exact() {
        let times = |text: &str, factor| Number::split(text).map(|number| number.times(factor));
        assert_eq!(times("1.5", 1000), Some(Ok(1500)));
        assert_eq!(times("0.0010", 1000), Some(Ok(1)));
        assert_eq!(times("0.0015", 1000), Some(Err(Inexact::Finer)));
        assert_eq!(times("18446744073709551615", 1), Some(Ok(u64::MAX)));
        assert_eq!(times("18446744073709551616", 1), Some(Err(Inexact::TooLarge)));
        assert_eq!(times("18446744073709551615.5", 2), Some(Err(Inexact::TooLarge)));
        assert_eq!(times(&format!("0.{}1", "0".repeat(200)), 1000), Some(Err(Inexact::Finer)));
        for text in ["", ".5", "1.", "1..5", "1.5.", "-1", "s"] {
            assert!(Number::split(text).is_none(), "{text}");
        }
    }
}
