//! Composition of values along a path, and their comparison (RFC 5975 §3.3, §5.2; RFC 5976 §4.4).

use crate::wire::qspec::{INDETERMINATE_RATIO, Jitter, Tmod, Value, y1541_objectives};

/// The largest latency and jitter that one node may add, microseconds (§5.2.3, §5.2.4).
pub(super) const MAX_LOCAL_US: u32 = 1 << 28;
/// The largest loss and error ratio that one node may add (§5.2.5, §5.2.6).
pub(super) const MAX_LOCAL_RATIO: f32 = 1e-2;

/// A TMOD that both allow: the smaller r, b, p and MPS and the larger m (RFC 5975 §3.3.1). If m is above MPS, no
/// packet fits both.
#[must_use]
pub fn common_tmod(a: Tmod, b: Tmod) -> Tmod {
    Tmod {
        rate: a.rate.min(b.rate),
        bucket: a.bucket.min(b.bucket),
        peak: a.peak.min(b.peak),
        min_policed: a.min_policed.max(b.min_policed),
        max_packet: a.max_packet.min(b.max_packet),
    }
}

/// A TMOD within `limit`: [`common_tmod`], but never below the smallest values of a TMOD.
pub(super) fn lowered(tmod: Tmod, limit: Tmod) -> Tmod {
    let common = common_tmod(tmod, limit);
    let rate = common.rate.max(1.0);
    let max_packet = common.max_packet.max(1);
    Tmod {
        rate,
        bucket: common.bucket.max(1.0),
        peak: common.peak.max(rate),
        min_policed: common.min_policed.clamp(1, max_packet),
        max_packet,
    }
}

/// The sum of two latencies, microseconds. Above 2^32−2 it is 2^32−1, indeterminate, and stays so (RFC 5975 §5.2.3).
#[must_use]
pub const fn add_latency(a: u32, b: u32) -> u32 {
    a.saturating_add(b)
}

/// The jitter of two parts of a path (RFC 5975 §5.2.4). Each statistic is summed like a latency. This is exact for the
/// variance of independent delays and for the minimum. For the percentile it is a bound, because the exact combination
/// (Y.1541 clause 8) needs more data than the parameter has.
#[must_use]
pub const fn add_jitter(a: Jitter, b: Jitter) -> Jitter {
    Jitter {
        variance: add_latency(a.variance, b.variance),
        percentile: add_latency(a.percentile, b.percentile),
        minimum: add_latency(a.minimum, b.minimum),
    }
}

/// The sum of two loss or error ratios, at most [`INDETERMINATE_RATIO`] (RFC 5975 §5.2.5, §5.2.6).
#[must_use]
pub fn add_ratio(a: f32, b: f32) -> f32 {
    (a + b).min(INDETERMINATE_RATIO)
}

/// Delay, delay variation and loss as comparable numbers; an unspecified objective is infinite.
fn objectives(class: u8) -> Option<[f64; 3]> {
    let o = y1541_objectives(class)?;
    let time = |us: Option<u32>| us.map_or(f64::INFINITY, f64::from);
    Some([time(o.delay_us), time(o.variation_us), o.loss.map_or(f64::INFINITY, f64::from)])
}

fn covers(outer: [f64; 3], inner: [f64; 3]) -> bool {
    outer.iter().zip(inner).all(|(outer, inner)| *outer >= inner)
}

/// Whether the objectives of Y.1541 class `a` include those of class `b`. Some classes cannot be compared.
#[must_use]
pub fn is_stronger_class(a: u8, b: u8) -> bool {
    match (objectives(a), objectives(b)) {
        (Some(a), Some(b)) => covers(b, a),
        _ => false,
    }
}

/// The strongest Y.1541 class whose objectives both classes include.
#[must_use]
pub fn weaker_class(a: u8, b: u8) -> u8 {
    strongest(|class| is_stronger_class(a, class) && is_stronger_class(b, class))
}

/// The strongest Y.1541 class not above `class` whose objectives hold for measured values; `None` is not measured.
/// Latency and jitter are microseconds.
#[must_use]
pub fn class_for(class: u8, latency: Option<u32>, jitter: Option<Jitter>, loss: Option<f32>) -> u8 {
    let time = |us: Option<u32>| match us {
        Some(u32::MAX) => f64::MAX,
        Some(us) => us.into(),
        None => 0.0,
    };
    let loss = match loss {
        Some(loss) if loss >= INDETERMINATE_RATIO => f64::MAX,
        Some(loss) => loss.into(),
        None => 0.0,
    };
    let measured = [time(latency), time(jitter.map(|j| j.percentile)), loss];
    strongest(|c| {
        is_stronger_class(class, c) && objectives(c).is_some_and(|promise| covers(promise, measured))
    })
}

/// The strongest class with the property; 5, which has no objectives, always has it.
fn strongest(property: impl Fn(u8) -> bool) -> u8 {
    (0..8).filter(|class| property(*class)).fold(
        5,
        |best, class| {
            if is_stronger_class(class, best) { class } else { best }
        },
    )
}

/// Whether an available value is as good as the minimum of the same parameter (RFC 5975 §3.2): not below it or, for
/// delays, jitter and ratios, not above it. `None` if the parameter has no order.
#[must_use]
pub fn meets(available: &Value<'_>, minimum: &Value<'_>) -> Option<bool> {
    Some(match (*available, *minimum) {
        (Value::Tmod1(a), Value::Tmod1(m)) | (Value::Tmod2(a), Value::Tmod2(m)) => {
            // An unknown peak rate demands nothing.
            a.rate >= m.rate
                && a.bucket >= m.bucket
                && (a.peak >= m.peak || m.peak.is_infinite())
                && a.max_packet >= m.max_packet
                && a.min_policed <= m.min_policed
        }
        (Value::TmodExtension(a), Value::TmodExtension(m)) => a >= m || m.is_infinite(),
        (Value::PathLatency(a), Value::PathLatency(m)) => a <= m,
        (Value::PathJitter(a), Value::PathJitter(m)) => {
            a.variance <= m.variance && a.percentile <= m.percentile && a.minimum <= m.minimum
        }
        (Value::PathPlr(a), Value::PathPlr(m)) | (Value::PathPer(a), Value::PathPer(m)) => a <= m,
        (Value::Y1541(a), Value::Y1541(m)) => is_stronger_class(a, m),
        _ => return None,
    })
}
