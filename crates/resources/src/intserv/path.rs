//! The general characterization parameters of a path, composed node by node (RFC 2215).

use super::tspec::{MAX_RATE, SpecError, in_range};

/// Bandwidth of a path, octets a second; 0: unknown (RFC 2215 §3.3).
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Bandwidth(f32);

impl Bandwidth {
    /// Unknown.
    pub const UNKNOWN: Self = Self(0.0);

    /// The largest value.
    pub const MOST: Self = Self(MAX_RATE);

    /// A value of the wire (RFC 2215 §3.3).
    ///
    /// # Errors
    /// [`SpecError::Rate`] for negative numbers, negative zero, infinities, NaN, and what is neither 0 nor from 1 to
    /// 40e12.
    pub fn new(value: f32) -> Result<Self, SpecError> {
        let zero = value.to_bits() == 0; // negative zero has a bit set
        if zero || in_range(value, MAX_RATE) { Ok(Self(value)) } else { Err(SpecError::Rate) }
    }

    /// The bandwidth of a link, rounded down to a single float. 0 becomes unknown, values above 40e12 become 40e12.
    #[must_use]
    pub fn of_link(octets: u64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "rounded down below")]
        let float = octets as f32;
        let float = if f64::from(float) > u64_as_f64(octets) { float.next_down() } else { float };
        Self(float.min(MAX_RATE))
    }

    /// The value for the wire.
    #[must_use]
    pub const fn value(self) -> f32 {
        self.0
    }

    /// The smaller one; unknown if either is.
    #[must_use]
    pub fn composed(self, local: Self) -> Self {
        Self(self.0.min(local.0))
    }
}

#[expect(clippy::cast_precision_loss, reason = "links are far below 2^53 octets a second")]
fn u64_as_f64(value: u64) -> f64 {
    value as f64
}

/// Latency of a path without queueing, microseconds; `u32::MAX` means indeterminate (RFC 2215 §3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Latency(pub u32);

impl Latency {
    /// Indeterminate.
    pub const INDETERMINATE: Self = Self(u32::MAX);

    /// The sum. An indeterminate latency stays so.
    #[must_use]
    pub const fn composed(self, local: Self) -> Self {
        Self(self.0.saturating_add(local.0))
    }
}

/// The general parameters of a path, or of one hop of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// A node or link does not provide integrated services: no other value here is reliable (RFC 2215 §3.1).
    pub broken: bool,
    /// Number of nodes that provide integrated services, at most 255 (RFC 2215 §3.2).
    pub hops: u8,
    /// The smallest bandwidth (RFC 2215 §3.3).
    pub bandwidth: Bandwidth,
    /// The sum of the latencies (RFC 2215 §3.4).
    pub latency: Latency,
    /// Path MTU: largest IP packet, octets, without link header (RFC 2215 §3.5).
    pub mtu: u32,
}

impl Path {
    /// The parameters with which a sender begins.
    pub const START: Self =
        Self { broken: false, hops: 0, bandwidth: Bandwidth(MAX_RATE), latency: Latency(0), mtu: u32::MAX };

    /// The parameters of one hop whose link has `capacity` octets a second (0: unknown).
    #[must_use]
    pub fn hop(capacity: u64, latency: Latency, mtu: u32) -> Self {
        Self { broken: false, hops: 1, bandwidth: Bandwidth::of_link(capacity), latency, mtu }
    }

    /// Composes this path with `local`: or, sum, minimum, sum, minimum.
    #[must_use]
    pub fn composed(self, local: &Self) -> Self {
        Self {
            broken: self.broken || local.broken,
            hops: self.hops.saturating_add(local.hops),
            bandwidth: self.bandwidth.composed(local.bandwidth),
            latency: self.latency.composed(local.latency),
            mtu: self.mtu.min(local.mtu),
        }
    }
}

/// The value of a general parameter in the fragment of one service (RFC 2210 §3.3.5, RFC 2215 §2): the received value
/// for the service, or else for all services, composed with the value of this node for the service, or else for all.
/// `None` if neither side has a value for the service: then the fragment needs none.
#[must_use]
pub fn compose_override<T>(
    arriving: (Option<T>, T),
    local: (Option<T>, T),
    compose: impl FnOnce(T, T) -> T,
) -> Option<T> {
    match (arriving, local) {
        ((None, _), (None, _)) => None,
        ((arriving, arriving_all), (local, local_all)) => {
            Some(compose(arriving.unwrap_or(arriving_all), local.unwrap_or(local_all)))
        }
    }
}
