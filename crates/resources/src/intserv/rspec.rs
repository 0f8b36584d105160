//! Service requests of guaranteed service: rate and slack.

use core::cmp::Ordering;

use super::tspec::{MAX_RATE, SpecError, TSpec, in_range};

/// What a receiver asks of guaranteed service (RFC 2212): the rate R and the slack S by which the delay may exceed
/// that of R.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "(f32, u32)", into = "(f32, u32)"))]
pub struct RSpec {
    rate: f32,
    slack: u32,
}

#[cfg(feature = "serde")]
impl From<RSpec> for (f32, u32) {
    fn from(from: RSpec) -> Self {
        (from.rate, from.slack)
    }
}

#[cfg(feature = "serde")]
impl TryFrom<(f32, u32)> for RSpec {
    type Error = SpecError;

    fn try_from((rate, slack): (f32, u32)) -> Result<Self, SpecError> {
        Self::new(rate, slack)
    }
}

impl RSpec {
    /// Rate in octets a second, slack in microseconds.
    ///
    /// # Errors
    /// [`SpecError::ServiceRate`]: not a number from 1 to 40e12.
    pub fn new(rate: f32, slack: u32) -> Result<Self, SpecError> {
        if in_range(rate, MAX_RATE) { Ok(Self { rate, slack }) } else { Err(SpecError::ServiceRate) }
    }

    /// The least that a flow can ask for: its own token rate, no slack.
    #[must_use]
    pub const fn of_rate(tspec: &TSpec) -> Self {
        Self { rate: tspec.rate(), slack: 0 }
    }

    /// With no more than this rate, octets a second; rounded down to what a single float holds.
    #[must_use]
    pub fn limited(self, rate: u64) -> Self {
        Self { rate: super::tspec::float_down(rate).max(1.0).min(self.rate), ..self }
    }

    /// R, octets a second.
    #[must_use]
    pub const fn rate(&self) -> f32 {
        self.rate
    }

    /// S, microseconds.
    #[must_use]
    pub const fn slack(&self) -> u32 {
        self.slack
    }

    /// Whether guaranteed service can be asked for with both: R ≥ r and p ≥ r (RFC 2212 "Invocation").
    ///
    /// # Errors
    /// [`SpecError::ServiceBelowRate`], [`SpecError::PeakBelowRate`].
    pub fn checked(self, tspec: &TSpec) -> Result<Self, SpecError> {
        if tspec.peak() < tspec.rate() {
            Err(SpecError::PeakBelowRate)
        } else if self.rate < tspec.rate() {
            Err(SpecError::ServiceBelowRate)
        } else {
            Ok(self)
        }
    }

    /// Suffices for both: the larger rate, the smaller slack (RFC 2212 "Ordering and Merging").
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        Self { rate: self.rate.max(other.rate), slack: self.slack.min(other.slack) }
    }

    /// What is left of the slack if this element reserves only `out` instead of R: Sout of
    /// Sout + b/Rout + Ctot/Rout ≤ Sin + b/Rin + Ctot/Rin, rounded down. `c_tot` is the sum of the rate-dependent error
    /// terms up to and including this element, octets. `None`: the slack does not suffice, or `out` is over R or
    /// below r.
    #[must_use]
    pub fn lowered_to(self, out: f32, tspec: &TSpec, c_tot: u32) -> Option<Self> {
        if !(tspec.rate()..=self.rate).contains(&out) {
            return None;
        }
        let (rate_in, rate_out) = (f64::from(self.rate), f64::from(out));
        let work = f64::from(tspec.bucket()) + f64::from(c_tot);
        // In one fraction: the difference of two nearly equal times would lose what it is about.
        let used = work * (rate_in - rate_out) / (rate_in * rate_out) * 1e6;
        let left = (f64::from(self.slack) - used).floor();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the slack")]
        (left >= 0.0).then_some(Self { rate: out, slack: left as u32 })
    }

    /// The lowest rate that the slack allows, using all of it; never below r.
    #[must_use]
    pub fn lowest_rate(self, tspec: &TSpec, c_tot: u32) -> f32 {
        let work = f64::from(tspec.bucket()) + f64::from(c_tot);
        let time = f64::from(self.slack) / 1e6 + work / f64::from(self.rate);
        #[expect(clippy::cast_possible_truncation, reason = "at most R")]
        let lowest = (work / time) as f32;
        // Rounding may have gone either way.
        let lowest = if f64::from(lowest) * time < work { lowest.next_up() } else { lowest };
        lowest.clamp(tspec.rate(), self.rate.max(tspec.rate()))
    }
}

impl PartialOrd for RSpec {
    /// A ≥ B if A's rate is ≥ B's and its slack ≤ B's; otherwise they may not be ordered.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self.rate.partial_cmp(&other.rate)?, other.slack.cmp(&self.slack)) {
            (Ordering::Equal, slack) => Some(slack),
            (rate, Ordering::Equal) => Some(rate),
            (rate, slack) => (rate == slack).then_some(rate),
        }
    }
}
