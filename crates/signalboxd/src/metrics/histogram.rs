//! A histogram of durations.

use std::time::Duration;

/// Counts durations by upper bounds.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    bounds: &'static [Duration],
    /// Durations of each bucket alone; the last one has those above all bounds.
    counts: Vec<u64>,
    sum: Duration,
}

impl Histogram {
    /// An empty histogram. The bounds ascend.
    pub(crate) fn new(bounds: &'static [Duration]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: Duration::ZERO }
    }

    /// Counts a duration.
    pub(crate) fn observe(&mut self, duration: Duration) {
        let bucket = self.bounds.partition_point(|bound| *bound < duration);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(duration);
    }

    /// Upper bounds in seconds, `None` for infinity, each with the number of durations up to it.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (Option<f64>, u64)> {
        let bounds = self.bounds.iter().map(|bound| Some(bound.as_secs_f64())).chain([None]);
        let counts = self.counts.iter().scan(0, |all, count| {
            *all += count;
            Some(*all)
        });
        bounds.zip(counts)
    }

    /// Number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of all durations, in seconds.
    pub(crate) fn sum(&self) -> f64 {
        self.sum.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: &[Duration] = &[Duration::from_millis(1), Duration::from_millis(10)];

    #[test]
    fn a_bucket_has_everything_up_to_its_bound() {
        let mut histogram = Histogram::new(BOUNDS);
        for us in [0, 1000, 1001, 10_000, 10_001, 5_000_000] {
            histogram.observe(Duration::from_micros(us));
        }
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets, [(Some(0.001), 2), (Some(0.01), 4), (None, 6)]);
        assert_eq!(histogram.count(), 6);
        assert!((histogram.sum() - 5.022_002).abs() < 1e-9);
    }
}
