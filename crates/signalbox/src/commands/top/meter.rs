//! Rates, from numbers that only grow.

use std::collections::HashMap;
use std::time::Duration;

/// What several numbers grow by in a second, between the last two times that they were read.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// When they were read last, and what they were.
    last: Option<(Duration, HashMap<String, u64>)>,
    /// Thousandths a second.
    rates: HashMap<String, u64>,
}

impl Meter {
    /// Takes the numbers that were read at `at`. What is not among them any more is forgotten.
    pub(super) fn read(&mut self, at: Duration, numbers: impl Iterator<Item = (String, u64)>) {
        let numbers: HashMap<String, u64> = numbers.collect();
        let before = self.last.take();
        self.rates.clear();
        if let Some((then, before)) = before {
            let us = at.saturating_sub(then).as_micros();
            for (key, now) in &numbers {
                // A number that is smaller than before counts from 0 again.
                let more = before.get(key).and_then(|before| now.checked_sub(*before));
                let rate = more.and_then(|more| (u128::from(more) * 1_000_000_000).checked_div(us));
                if let Some(rate) = rate {
                    self.rates.insert(key.clone(), u64::try_from(rate).unwrap_or(u64::MAX));
                }
            }
        }
        self.last = Some((at, numbers));
    }

    /// Forgets all numbers.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The growth of a number, in thousandths a second; `None` before it was read twice.
    pub(super) fn thousandths(&self, key: &str) -> Option<u64> {
        self.rates.get(key).copied()
    }

    /// The growth of a number in a second.
    pub(super) fn rate(&self, key: &str) -> Option<u64> {
        self.thousandths(key).map(|rate| rate / 1000)
    }

    /// How many numbers it keeps.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.rates.len().max(self.last.as_ref().map_or(0, |(_, numbers)| numbers.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(all: &[(&str, u64)]) -> impl Iterator<Item = (String, u64)> {
        all.iter().map(|(key, number)| ((*key).to_owned(), *number))
    }

    #[test]
    fn a_rate_needs_two_numbers_and_what_is_gone_is_forgotten() {
        let mut meter = Meter::default();
        meter.read(Duration::from_secs(1), numbers(&[("a", 10), ("b", 500)]));
        assert_eq!(meter.rate("a"), None);
        meter.read(Duration::from_secs(3), numbers(&[("a", 15), ("b", 100)]));
        assert_eq!((meter.thousandths("a"), meter.rate("a")), (Some(2500), Some(2)));
        assert_eq!(meter.rate("b"), None, "it counts from 0 again");
        // Two answers of one moment have no rate, and nothing divides by zero.
        meter.read(Duration::from_secs(3), numbers(&[("a", 16)]));
        assert_eq!((meter.rate("a"), meter.len()), (None, 1));
    }
}
