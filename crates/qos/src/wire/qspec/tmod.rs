//! The traffic model: token bucket, peak rate and packet sizes (RFC 5975 §3.3.1, §5.2.1).

use super::error::Problem;
use super::value::Wrong;

/// Largest token and peak rate, octets a second: 40 teraoctets.
pub const MAX_RATE: f32 = 40e12;
/// Largest bucket, octets: 250 gigaoctets.
pub const MAX_BUCKET: f32 = 250e9;

/// A TMOD: traffic that is sent, or allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tmod {
    /// r, octets a second: 1 to [`MAX_RATE`].
    pub rate: f32,
    /// b, octets: 1 to [`MAX_BUCKET`].
    pub bucket: f32,
    /// p, octets a second: from `rate` to [`MAX_RATE`], or infinite where it is not known.
    pub peak: f32,
    /// m, octets: smaller packets count with this size. From 1 to `max_packet`.
    pub min_policed: u32,
    /// MPS, octets: no packet is longer.
    pub max_packet: u32,
}

/// Whether `x` has no sign, is no NaN and not below 1, the least that a biased exponent of 127 can say.
fn at_least_one(x: f32) -> bool {
    x.is_sign_positive() && x >= 1.0
}

/// What is wrong with a peak bucket (RFC 5976 §3.1): infinity is allowed there.
pub(super) fn peak_bucket_is_wrong(x: f32) -> bool {
    !at_least_one(x)
}

impl Tmod {
    pub(super) fn from_words([r, b, p, m, mps]: [u32; 5]) -> Self {
        Self {
            rate: f32::from_bits(r),
            bucket: f32::from_bits(b),
            peak: f32::from_bits(p),
            min_policed: m,
            max_packet: mps,
        }
    }

    pub(super) fn words(&self) -> [u32; 5] {
        [self.rate.to_bits(), self.bucket.to_bits(), self.peak.to_bits(), self.min_policed, self.max_packet]
    }

    /// The first rule of RFC 5975 §3.3.1 and §5.2.1 that it breaks. Biased exponents above 162 are discouraged there
    /// and accepted here: half of the range of rates needs them.
    pub(super) fn wrong(&self) -> Option<Wrong> {
        let at = |word, field, problem| Some(Wrong { field, word, problem });
        if !at_least_one(self.rate) || self.rate > MAX_RATE {
            return at(0, "TMOD Rate (r)", Problem::Value);
        }
        if !at_least_one(self.bucket) || self.bucket > MAX_BUCKET {
            return at(1, "TMOD Size (b)", Problem::Value);
        }
        if !at_least_one(self.peak) || (self.peak > MAX_RATE && self.peak.is_finite()) {
            return at(2, "Peak Data Rate (p)", Problem::Value);
        }
        if self.peak < self.rate {
            return at(2, "Peak Data Rate (p)", Problem::Relation);
        }
        if self.min_policed == 0 {
            return at(3, "Minimum Policed Unit (m)", Problem::Value);
        }
        if self.max_packet == 0 {
            return at(4, "Maximum Packet Size (MPS)", Problem::Value);
        }
        if self.min_policed > self.max_packet {
            return at(3, "Minimum Policed Unit (m)", Problem::Relation);
        }
        None
    }

    /// Whether it may be sent.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.wrong().is_none()
    }
}
