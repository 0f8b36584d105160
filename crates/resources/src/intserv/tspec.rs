//! Token bucket traffic specifications: validity, order, sums and merges.

use core::cmp::Ordering;

use signalbox_core::traffic::TrafficSpec;

/// Largest rate of RFC 2215 §3.6, octets a second.
pub const MAX_RATE: f32 = 40e12;
/// Largest bucket of RFC 2215 §3.6, octets.
pub const MAX_BUCKET: f32 = 250e9;

/// Fraction bits of the fixed-point numbers in which sums are taken: a single float from 1 up is a whole multiple of
/// 2^-23.
const FRACTION: u32 = 23;

/// Values that are no TSpec or RSpec, by the parameter at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// *r* is not a number from 1 to 40e12.
    #[error("token rate r: not a number from 1 to 40e12 octets a second")]
    Rate,
    /// *b* is not a number from 1 to 250e9.
    #[error("bucket depth b: not a number from 1 to 250e9 octets")]
    Bucket,
    /// *p* is neither a number from 1 to 40e12 nor infinite.
    #[error("peak rate p: neither a number from 1 to 40e12 octets a second nor infinity")]
    Peak,
    /// *M* is 0 or less than *m*.
    #[error("maximum packet size M: 0 or less than the minimum policed unit m")]
    MaxPacket,
    /// *R* is not a number from 1 to 40e12.
    #[error("service rate R: not a number from 1 to 40e12 octets a second")]
    ServiceRate,
    /// *R* is less than *r*.
    #[error("service rate R: less than the token rate r")]
    ServiceBelowRate,
    /// *p* is less than *r*, which guaranteed service does not take.
    #[error("peak rate p: less than the token rate r")]
    PeakBelowRate,
    /// In range, and more than this implementation can police.
    #[error("bucket depth b: over 4294967295 octets, which is not supported here")]
    Unsupported,
    /// A sum or merge of nothing.
    #[error("no traffic specification at all")]
    Empty,
}

/// The token bucket TSpec: over any time T the flow sends at most rT + b, and at most pT + M (RFC 2215 §3.6).
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "saved::TSpec", into = "saved::TSpec"))]
pub struct TSpec {
    rate: f32,
    bucket: f32,
    peak: f32,
    min_policed: u32,
    max_packet: u32,
}

/// How specifications are written down: infinity is no number of JSON.
#[cfg(feature = "serde")]
mod saved {
    use super::{SpecError, TSpec as Checked};

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct TSpec {
        rate: f32,
        bucket: f32,
        peak: Option<f32>,
        min_policed: u32,
        max_packet: u32,
    }

    impl From<Checked> for TSpec {
        fn from(from: Checked) -> Self {
            let Checked { rate, bucket, peak, min_policed, max_packet } = from;
            Self { rate, bucket, peak: peak.is_finite().then_some(peak), min_policed, max_packet }
        }
    }

    impl TryFrom<TSpec> for Checked {
        type Error = SpecError;

        fn try_from(from: TSpec) -> Result<Self, SpecError> {
            let TSpec { rate, bucket, peak, min_policed, max_packet } = from;
            super::super::Given::tspec(rate, bucket, peak.unwrap_or(f32::INFINITY), min_policed, max_packet)
        }
    }
}

/// Octets of the smallest IP packet.
const IP_HEADER: u32 = 20;

/// Whether `value` is a number from 1 to `max`; NaN is not.
pub(super) fn in_range(value: f32, max: f32) -> bool {
    (1.0..=max).contains(&value)
}

impl TSpec {
    /// A specification of token rate *r*, bucket depth *b*, peak rate *p* (infinite: unknown), minimum policed unit
    /// *m* and maximum packet size *M*. Whether p ≥ r is guaranteed service's business
    /// ([`RSpec::checked`](super::RSpec::checked)).
    ///
    /// # Errors
    /// The first parameter that is out of its range (RFC 2215 §3.6, RFC 2210 §3.1).
    pub fn new(
        rate: f32,
        bucket: f32,
        peak: f32,
        min_policed: u32,
        max_packet: u32,
    ) -> Result<Self, SpecError> {
        if !in_range(rate, MAX_RATE) {
            Err(SpecError::Rate)
        } else if !in_range(bucket, MAX_BUCKET) {
            Err(SpecError::Bucket)
        } else if !in_range(peak, MAX_RATE) && peak != f32::INFINITY {
            Err(SpecError::Peak)
        } else if max_packet == 0 || max_packet < min_policed {
            Err(SpecError::MaxPacket)
        } else {
            Ok(Self { rate, bucket, peak, min_policed, max_packet })
        }
    }

    /// The same without these values: they are 0, "not given".
    pub(super) const fn without(self, rate: bool, bucket: bool, max_packet: bool) -> Self {
        Self {
            rate: if rate { 0.0 } else { self.rate },
            bucket: if bucket { 0.0 } else { self.bucket },
            max_packet: if max_packet { 0 } else { self.max_packet },
            ..self
        }
    }

    /// Whether it gives all that a request needs: a rate, a bucket within the range of finite ones, and *M*.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.rate > 0.0 && self.bucket > 0.0 && self.bucket < MAX_BUCKET && self.max_packet > 0
    }

    /// Token rate *r*, octets a second; 0: not given ([`Given`](super::Given)).
    #[must_use]
    pub const fn rate(&self) -> f32 {
        self.rate
    }

    /// Bucket depth *b*, octets; 0: not given.
    #[must_use]
    pub const fn bucket(&self) -> f32 {
        self.bucket
    }

    /// Peak rate *p*, octets a second; infinite if unknown.
    #[must_use]
    pub const fn peak(&self) -> f32 {
        self.peak
    }

    /// Minimum policed unit *m*, octets; 0: not given.
    #[must_use]
    pub const fn min_policed(&self) -> u32 {
        self.min_policed
    }

    /// The smallest packet that *m* permits, octets. Some senders leave *m* 0, which says nothing: no packet is smaller
    /// than an IPv4 header.
    #[must_use]
    pub fn smallest_packet(&self) -> u32 {
        if self.min_policed == 0 { IP_HEADER.min(self.largest_packet()) } else { self.min_policed }
    }

    /// Maximum packet size *M*, octets; 0: not given.
    #[must_use]
    pub const fn max_packet(&self) -> u32 {
        self.max_packet
    }

    /// The largest packet that *M* permits, octets: any if *M* is not given.
    const fn largest_packet(&self) -> u32 {
        if self.max_packet == 0 { u32::MAX } else { self.max_packet }
    }

    /// The same with another maximum packet size: a receiver takes the path MTU (RFC 2210 §2.3.2). *m* falls with it.
    ///
    /// # Errors
    /// [`SpecError::MaxPacket`] for 0.
    pub fn with_max_packet(self, max_packet: u32) -> Result<Self, SpecError> {
        if max_packet == 0 {
            return Err(SpecError::MaxPacket);
        }
        Ok(Self { max_packet, min_policed: self.min_policed.min(max_packet), ..self })
    }

    /// The same with another minimum policed unit, at most *M*.
    ///
    /// # Errors
    /// [`SpecError::MaxPacket`] for more than *M*.
    pub fn with_min_policed(self, min_policed: u32) -> Result<Self, SpecError> {
        if min_policed > self.largest_packet() {
            return Err(SpecError::MaxPacket);
        }
        Ok(Self { min_policed, ..self })
    }

    /// The same with no more than this token rate, octets a second.
    #[must_use]
    pub fn limited(self, rate: u64) -> Self {
        Self { rate: float_down(rate).max(1.0).min(self.rate), ..self }
    }

    /// The same with no more than the token and peak rates of another.
    #[must_use]
    pub fn within(self, other: &Self) -> Self {
        Self { rate: self.rate.min(other.rate), peak: self.peak.min(other.peak), ..self }
    }

    /// Merges what several receivers ask for: largest r, b and p, smallest m **and smallest M** (RFC 2211 §8, RFC 2212
    /// "Ordering and Merging"). M goes against the order, so the result need not be ≥ both.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        Self { max_packet: self.max_packet.min(other.max_packet), ..self.least_common(other) }
    }

    /// Suffices for either flow: largest r, b, p and M, smallest m. The least upper bound in the order of TSpecs; not
    /// what goes upstream (RFC 2211 §8).
    #[must_use]
    pub fn least_common(self, other: Self) -> Self {
        Self {
            rate: self.rate.max(other.rate),
            bucket: self.bucket.max(other.bucket),
            peak: self.peak.max(other.peak),
            min_policed: self.min_policed.min(other.min_policed),
            max_packet: self.max_packet.max(other.max_packet),
        }
    }

    /// Contained in both: smallest r, b, p and M, largest m. The greatest lower bound in the order of TSpecs (RFC 2205's
    /// GLB), which is not the RFC's "minimum". Two specifications without a packet size in common (m of one over M of
    /// the other) have none: *m* is then M.
    #[must_use]
    pub fn greatest_common(self, other: Self) -> Self {
        let common = Self {
            rate: self.rate.min(other.rate),
            bucket: self.bucket.min(other.bucket),
            peak: self.peak.min(other.peak),
            min_policed: self.min_policed.max(other.min_policed),
            max_packet: self.max_packet.min(other.max_packet),
        };
        Self { min_policed: common.min_policed.min(common.max_packet), ..common }
    }

    /// The RFCs' minimum: the smaller one if they are ordered, else the smaller r, p, m and M **and the larger b** (RFC
    /// 2211 §8, RFC 2212). Used to install the lesser of what receivers ask and senders send.
    #[must_use]
    pub fn minimum(self, other: Self) -> Self {
        match self.partial_cmp(&other) {
            Some(Ordering::Less | Ordering::Equal) => self,
            Some(Ordering::Greater) => other,
            None => Self {
                rate: self.rate.min(other.rate),
                bucket: self.bucket.max(other.bucket),
                peak: self.peak.min(other.peak),
                min_policed: self.min_policed.min(other.min_policed),
                max_packet: self.max_packet.min(other.max_packet),
            },
        }
    }

    /// The sum of flows that share a reservation: r, b and p added, smallest m, largest M (RFC 2211 §8). Added exactly
    /// and rounded up once, so the order of the flows does not matter and the sum is never less than its parts. What one flow
    /// does not give is not given in the sum.
    ///
    /// # Errors
    /// [`SpecError::Empty`]; the parameter whose sum leaves its range.
    pub fn sum(specs: impl IntoIterator<Item = Self>) -> Result<Self, SpecError> {
        let mut specs = specs.into_iter();
        let first = specs.next().ok_or(SpecError::Empty)?;
        let mut sums = [fixed(first.rate), fixed(first.bucket), fixed(first.peak)];
        let mut total = first;
        let (mut rate, mut bucket, mut most) =
            (first.rate == 0.0, first.bucket == 0.0, first.max_packet == 0);
        for spec in specs {
            rate |= spec.rate == 0.0;
            bucket |= spec.bucket == 0.0;
            most |= spec.max_packet == 0;
            for (sum, part) in sums.iter_mut().zip([spec.rate, spec.bucket, spec.peak]) {
                *sum = sum.saturating_add(fixed(part));
            }
            if spec.peak == f32::INFINITY {
                total.peak = f32::INFINITY;
            }
            total.min_policed = total.min_policed.min(spec.min_policed);
            total.max_packet = total.max_packet.max(spec.largest_packet());
        }
        let peak = if total.peak == f32::INFINITY { f32::INFINITY } else { float_up(sums[2]) };
        let given = |open: bool, sum: u128| if open { 1.0 } else { float_up(sum) };
        let sum = Self::new(
            given(rate, sums[0]),
            given(bucket, sums[1]),
            peak,
            total.min_policed,
            total.largest_packet(),
        )?;
        Ok(sum.without(rate, bucket, most))
    }

    /// For the kernel and for admission: whole octets, rounded up.
    ///
    /// # Errors
    /// [`SpecError::Unsupported`]: a bucket that does not fit.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ranges are checked")]
    pub fn to_traffic(&self) -> Result<TrafficSpec, SpecError> {
        let burst = f64::from(self.bucket).ceil();
        if burst > f64::from(u32::MAX) {
            return Err(SpecError::Unsupported);
        }
        Ok(TrafficSpec {
            rate: whole(self.rate),
            burst: burst as u32,
            peak: (self.peak != f32::INFINITY).then(|| whole(self.peak)),
            min_policed: self.smallest_packet(),
            max_packet: self.max_packet,
        })
    }

    /// From whole octets; what a single float cannot hold is rounded up.
    ///
    /// # Errors
    /// The first parameter that is out of its range.
    pub fn from_traffic(traffic: &TrafficSpec) -> Result<Self, SpecError> {
        let float = |value: u64| match u16::try_from(value >> 8) {
            // Up to 2^24 a float holds all of them.
            Ok(high) => f32::from(high) * 256.0 + f32::from(value.to_le_bytes()[0]),
            Err(_) => float_up(u128::from(value) << FRACTION),
        };
        let peak = traffic.peak.map_or(f32::INFINITY, float);
        Self::new(
            float(traffic.rate),
            float(u64::from(traffic.burst)),
            peak,
            traffic.min_policed,
            traffic.max_packet,
        )
    }
}

impl PartialOrd for TSpec {
    /// A ≥ B if A's r, b, p and M are ≥ B's and A's m ≤ B's; otherwise, and not the other way round either, they are
    /// not ordered (RFC 2211 §8, RFC 2212 "Ordering and Merging").
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let fields = [
            self.rate.partial_cmp(&other.rate)?,
            self.bucket.partial_cmp(&other.bucket)?,
            self.peak.partial_cmp(&other.peak)?,
            other.min_policed.cmp(&self.min_policed),
            self.max_packet.cmp(&other.max_packet),
        ];
        fields.into_iter().try_fold(Ordering::Equal, |so_far, field| match (so_far, field) {
            (Ordering::Equal, field) => Some(field),
            (so_far, Ordering::Equal) => Some(so_far),
            (so_far, field) => (so_far == field).then_some(so_far),
        })
    }
}

/// A float of the ranges above as an exact multiple of 2^-23; infinity as 0, for it is looked at apart.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 40e12, exact in a double")]
fn fixed(value: f32) -> u128 {
    if value.is_finite() { (f64::from(value) * f64::from(1_u32 << FRACTION)) as u128 } else { 0 }
}

/// The smallest float that is not below; infinite beyond all floats.
#[expect(clippy::cast_precision_loss, reason = "made up for below")]
fn float_up(value: u128) -> f32 {
    let float = value as f32 / (1_u32 << FRACTION) as f32;
    if float.is_finite() && fixed(float) < value { float.next_up() } else { float }
}

/// The largest float that is not above.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "made up for"
)]
pub(crate) fn float_down(value: u64) -> f32 {
    let float = value as f32;
    if float as u128 > u128::from(value) { float.next_down() } else { float }
}

/// A rate in whole octets, rounded up.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 40e12")]
pub(crate) fn whole(rate: f32) -> u64 {
    f64::from(rate).ceil() as u64
}
