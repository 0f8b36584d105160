//! Delay and buffers of guaranteed service (RFC 2212).

use core::time::Duration;

use super::rspec::RSpec;
use super::tspec::{MAX_RATE, TSpec};

/// Largest error term that one element may export (RFC 2212 "Exported Information").
const MAX_TERM: u32 = 1 << 28;

/// The error terms of one element: how far it may fall behind a fluid of rate R.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalTerms {
    /// C, octets: depends on the rate; 1 to 2^28.
    pub c: u32,
    /// D, microseconds: does not; 1 to 2^28.
    pub d: u32,
}

impl LocalTerms {
    /// Those of a fair queue on a link of `capacity` octets a second whose largest packet has `mtu` octets: C is one
    /// packet, D the time of one largest packet that was begun before (RFC 2212 "Guidelines for Implementors").
    /// Clamped to the range that may be exported.
    #[must_use]
    pub fn fair_queue(capacity: u64, mtu: u32) -> Self {
        let d = (u64::from(mtu) * 1_000_000).div_ceil(capacity.max(1));
        Self { c: mtu.clamp(1, MAX_TERM), d: u32::try_from(d).map_or(MAX_TERM, |d| d.clamp(1, MAX_TERM)) }
    }
}

/// Error terms composed along a path: sums that saturate at 2^32 − 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ErrorTerms {
    /// Ctot, octets: from the sender on.
    pub c_tot: u32,
    /// Dtot, microseconds: from the sender on.
    pub d_tot: u32,
    /// Csum, octets: since the last point that shapes the flow again.
    pub c_sum: u32,
    /// Dsum, microseconds: since the last point that shapes the flow again.
    pub d_sum: u32,
}

impl ErrorTerms {
    /// One element further.
    #[must_use]
    pub const fn plus(self, local: LocalTerms) -> Self {
        Self {
            c_tot: self.c_tot.saturating_add(local.c),
            d_tot: self.d_tot.saturating_add(local.d),
            c_sum: self.c_sum.saturating_add(local.c),
            d_sum: self.d_sum.saturating_add(local.d),
        }
    }

    /// The larger of each: of flows that come different ways to one reservation.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            c_tot: self.c_tot.max(other.c_tot),
            d_tot: self.d_tot.max(other.d_tot),
            c_sum: self.c_sum.max(other.c_sum),
            d_sum: self.d_sum.max(other.d_sum),
        }
    }

    /// Behind a point that shapes the flow to its TSpec again: Csum and Dsum start again.
    #[must_use]
    pub const fn reshaped(self) -> Self {
        Self { c_sum: 0, d_sum: 0, ..self }
    }
}

/// The largest end-to-end queueing delay: (b−M)/R·(p−R)/(p−r) + (M+Ctot)/R + Dtot if p > R ≥ r, and
/// (M+Ctot)/R + Dtot if R ≥ p ≥ r. The path's own latency comes on top. A bucket smaller than a packet counts as one
/// packet; the slack of `rspec` is not looked at.
#[must_use]
pub fn delay_bound(tspec: &TSpec, rspec: RSpec, terms: &ErrorTerms) -> Duration {
    let rate = f64::from(rspec.rate());
    let fixed = (f64::from(tspec.max_packet()) + f64::from(terms.c_tot)) / rate;
    let seconds = burst_time(tspec, rate) + fixed;
    microseconds(seconds * 1e6 + f64::from(terms.d_tot))
}

/// (b−M)/R·(p−R)/(p−r), in seconds; its limits where p is infinite or not over R.
fn burst_time(tspec: &TSpec, rate: f64) -> f64 {
    let beyond_packet = (f64::from(tspec.bucket()) - f64::from(tspec.max_packet())).max(0.0);
    let (r, peak) = (f64::from(tspec.rate()), f64::from(tspec.peak()));
    if peak <= rate {
        0.0
    } else if peak.is_infinite() {
        beyond_packet / rate
    } else {
        beyond_packet / rate * (peak - rate) / (peak - r)
    }
}

/// The lowest R by which the queueing delay stays within `wanted`, never below r: [`delay_bound`] solved for R. `None`
/// if no rate of a TSpec is enough.
#[must_use]
pub fn rate_for_delay(tspec: &TSpec, terms: &ErrorTerms, wanted: Duration) -> Option<RSpec> {
    let left = wanted.as_secs_f64() - f64::from(terms.d_tot) / 1e6;
    if left <= 0.0 {
        return None;
    }
    let (r, peak) = (f64::from(tspec.rate()), f64::from(tspec.peak()));
    let packet = f64::from(tspec.max_packet()) + f64::from(terms.c_tot);
    let beyond_packet = (f64::from(tspec.bucket()) - f64::from(tspec.max_packet())).max(0.0);
    let below_peak = if peak.is_infinite() {
        (beyond_packet + packet) / left
    } else if peak > r {
        let burst = beyond_packet / (peak - r);
        (burst * peak + packet) / (left + burst)
    } else {
        f64::INFINITY
    };
    let rate = if below_peak <= peak { below_peak } else { (packet / left).max(peak) }.max(r);
    if rate > f64::from(MAX_RATE) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most the largest rate")]
    let mut float = (rate as f32).max(tspec.rate());
    if f64::from(float) < rate {
        float = float.next_up();
    }
    // The result is rounded up to whole microseconds: one step more may be needed.
    let mut rspec = RSpec::new(float, 0).ok()?;
    for _ in 0..8 {
        if delay_bound(tspec, rspec, terms) <= wanted {
            return Some(rspec);
        }
        rspec = RSpec::new((rspec.rate() * (1.0 + 1e-6)).max(rspec.rate().next_up()), 0).ok()?;
    }
    None
}

/// Octets of buffer by which no conforming packet is lost at an element that the flow reaches with `terms` (Csum and
/// Dsum count): b + Csum + Dsum·R if the peak rate is unknown, else M + (b−M)(p−X)/(p−r) + (Csum/R + Dsum)·X (RFC 2212
/// "Guidelines for Implementors"). The slack of `rspec` is what was returned upstream and is added to Dsum.
#[must_use]
pub fn buffer(tspec: &TSpec, rspec: RSpec, terms: &ErrorTerms) -> u64 {
    let (bucket, packet) = (f64::from(tspec.bucket()), f64::from(tspec.max_packet()));
    let (r, peak, rate) = (f64::from(tspec.rate()), f64::from(tspec.peak()), f64::from(rspec.rate()));
    let c_sum = f64::from(terms.c_sum);
    let d_sum = (f64::from(terms.d_sum) + f64::from(rspec.slack())) / 1e6;
    let beyond_packet = (bucket - packet).max(0.0);
    let octets = if peak.is_infinite() || peak <= r {
        bucket.max(packet) + c_sum + d_sum * rate
    } else {
        let behind = c_sum / rate + d_sum;
        let burst = beyond_packet / (peak - r);
        let x = if burst < behind {
            r
        } else if peak > rate {
            rate
        } else {
            peak
        };
        packet + burst * (peak - x) + behind * x
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "finite, positive, saturates"
    )]
    let octets = octets.ceil() as u64;
    octets
}

/// Whole microseconds, rounded up; the longest duration of 64 bits if there are more.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn microseconds(value: f64) -> Duration {
    Duration::from_micros(value.ceil() as u64)
}
