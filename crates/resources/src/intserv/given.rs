//! What the fields of TSpec, RSpec and ADSPEC mean that a message does not give.
//!
//! Routers and hosts leave fields 0, or infinite, that they do not set. The RFCs forbid most of these values, but each can be
//! read in one way only: as "not given". A message with such a field is not refused. [`Given`] has the whole table.
//! Boomerang, CASP and the QoS NSLP (RFC 5975 §3.3.1) have rules of their own and refuse these values.
//!
//! | Object | Field | Value | Meaning here |
//! |---|---|---|---|
//! | SENDER_TSPEC | r | 0, +∞ | The sender does not limit its rate: the FLOWSPEC alone counts (RFC 2210 §3.1) |
//! | SENDER_TSPEC | b | 0, +∞ | The FLOWSPEC alone counts |
//! | FLOWSPEC | r | 0 | No bandwidth is requested: 1 octet a second, the least of RFC 2215 §3.6 |
//! | FLOWSPEC | r | +∞ | As much as the senders announce (RFC 2205 §3.11.2: the lesser of both is installed) |
//! | FLOWSPEC | b | 0, +∞ | The bucket of the senders, else one packet of M |
//! | both | p | 0 | Unknown, as +∞ (RFC 2210 §3.1) |
//! | both | m | 0 | The smallest IP packet, 20 octets (RFC 2215 §3.6) |
//! | both | M | 0 | The M of the senders, else the path MTU of their ADSPECs, at most the MTU of the link (RFC 2210 §2.3.2) |
//! | FLOWSPEC | R | 0, or no RSpec | The least that RFC 2212 allows: R = r, S = 0 |
//! | ADSPEC | hops | missing | 0 |
//! | ADSPEC | bandwidth | 0, missing | Unknown (RFC 2215 §3.3) |
//! | ADSPEC | bandwidth | +∞ | No limit so far: 40e12 octets a second |
//! | ADSPEC | latency | missing | Indeterminate (RFC 2215 §3.4) |
//! | ADSPEC | PATH_MTU | 0, missing | No limit so far: the next link limits it |
//! | ADSPEC | services | none | Nothing is said of services: any may be requested |
//!
//! Negative numbers, negative zero, NaN, numbers between 0 and 1, and numbers over the ranges of RFC 2215 are faults, and are
//! refused. So is R = +∞, which no link can grant.

use super::path::{Bandwidth, Latency, Path};
use super::rspec::RSpec;
use super::tspec::{MAX_BUCKET, MAX_RATE, SpecError, TSpec};

/// Values of messages, in which fields may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given;

/// A field that is 0 in a message; negative zero has a bit set.
const fn is_zero(value: f32) -> bool {
    value.to_bits() == 0
}

/// Infinity as the largest value.
fn finite(value: f32, most: f32) -> f32 {
    if value == f32::INFINITY { most } else { value }
}

impl Given {
    /// The TSpec of a SENDER_TSPEC or FLOWSPEC: octets a second, octets. What is not given stays 0 in it: r, b, m and M.
    ///
    /// # Errors
    /// The first parameter whose value is a fault.
    pub fn tspec(rate: f32, bucket: f32, peak: f32, min: u32, max: u32) -> Result<TSpec, SpecError> {
        let some = |value: f32, most: f32| if is_zero(value) { 1.0 } else { finite(value, most) };
        let peak = if is_zero(peak) { f32::INFINITY } else { peak };
        let most = if max == 0 { u32::MAX } else { max };
        let whole = TSpec::new(some(rate, MAX_RATE), some(bucket, MAX_BUCKET), peak, min, most)?;
        Ok(whole.without(is_zero(rate), is_zero(bucket), max == 0))
    }

    /// The RSpec of a FLOWSPEC for guaranteed service; `rate` in octets a second, `slack` in microseconds.
    ///
    /// # Errors
    /// A rate that is a fault, or below the token rate; a peak rate below the token rate.
    pub fn rspec(rate: f32, slack: u32, tspec: &TSpec) -> Result<RSpec, SpecError> {
        let rate = if is_zero(rate) { tspec.rate().max(1.0) } else { rate };
        RSpec::new(rate, slack)?.checked(tspec)
    }

    /// The TSpec that a FLOWSPEC asks for, complete. `senders`: the TSpec of the senders that it is for; `mtu`: the largest
    /// packet of their path, octets.
    #[must_use]
    pub fn complete(asked: TSpec, senders: &TSpec, mtu: u32) -> TSpec {
        let of_senders = if senders.max_packet() == 0 { mtu } else { senders.max_packet().min(mtu) };
        let max = if asked.max_packet() == 0 { of_senders } else { asked.max_packet() };
        let max = max.max(asked.min_policed()).max(1);
        #[expect(clippy::cast_precision_loss, reason = "packets have at most 64 KiB")]
        let packet = max as f32;
        let open = is_zero(asked.bucket()) || asked.bucket() >= MAX_BUCKET;
        let bucket = match (open, is_zero(senders.bucket())) {
            (false, _) => asked.bucket(),
            (true, false) => senders.bucket(),
            (true, true) => packet,
        };
        let rate = if is_zero(asked.rate()) { 1.0 } else { asked.rate() };
        TSpec::new(rate, bucket, asked.peak(), asked.min_policed(), max).unwrap_or(asked)
    }

    /// The TSpec of senders beside a complete request: what they do not give is as in the request.
    #[must_use]
    pub fn complete_senders(senders: TSpec, asked: &TSpec) -> TSpec {
        let (rate, bucket) = (senders.rate(), senders.bucket());
        let rate = if is_zero(rate) || rate >= MAX_RATE { asked.rate() } else { rate };
        let bucket = if is_zero(bucket) || bucket >= MAX_BUCKET { asked.bucket() } else { bucket };
        let max = if senders.max_packet() == 0 { asked.max_packet() } else { senders.max_packet() };
        let min = senders.min_policed().min(max);
        TSpec::new(rate, bucket, senders.peak(), min, max).unwrap_or(*asked)
    }

    /// The PATH_MTU of an ADSPEC, octets.
    #[must_use]
    pub const fn mtu(mtu: u32) -> u32 {
        if mtu == 0 { u32::MAX } else { mtu }
    }

    /// The AVAILABLE_PATH_BANDWIDTH of an ADSPEC, octets a second.
    ///
    /// # Errors
    /// A value that is a fault.
    pub fn bandwidth(value: f32) -> Result<Bandwidth, SpecError> {
        Bandwidth::new(finite(value, MAX_RATE))
    }

    /// The general parameters of an ADSPEC; `None`: it does not have the parameter.
    #[must_use]
    pub fn path(
        broken: bool,
        hops: Option<u8>,
        bandwidth: Option<Bandwidth>,
        latency: Option<Latency>,
        mtu: Option<u32>,
    ) -> Path {
        Path {
            broken,
            hops: hops.unwrap_or(0),
            bandwidth: bandwidth.unwrap_or(Bandwidth::UNKNOWN),
            latency: latency.unwrap_or(Latency::INDETERMINATE),
            mtu: mtu.unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: f32 = f32::INFINITY;

    fn given(r: f32, b: f32, p: f32, m: u32, max: u32) -> TSpec {
        Given::tspec(r, b, p, m, max).unwrap()
    }

    fn sender() -> TSpec {
        TSpec::new(8000.0, 3000.0, OPEN, 64, 1200).unwrap()
    }

    #[test]
    fn each_field_that_is_not_given_has_its_meaning_in_a_flowspec() {
        let whole = |r, b, p, m, max| TSpec::new(r, b, p, m, max).unwrap();
        for (asked, meant) in [
            (given(5000.0, 2000.0, OPEN, 0, 0), whole(5000.0, 2000.0, OPEN, 0, 1200)),
            (given(0.0, 0.0, 0.0, 0, 0), whole(1.0, 3000.0, OPEN, 0, 1200)),
            (given(5000.0, OPEN, 0.0, 64, 900), whole(5000.0, 3000.0, OPEN, 64, 900)),
            (given(OPEN, 2000.0, 9000.0, 64, 900), whole(MAX_RATE, 2000.0, 9000.0, 64, 900)),
            (given(5000.0, 2000.0, OPEN, 1400, 0), whole(5000.0, 2000.0, OPEN, 1400, 1400)),
        ] {
            assert_eq!(Given::complete(asked, &sender(), 1500), meant, "{asked:?}");
        }
        // The path limits M; without any M it is the path's, and a bucket takes one packet.
        let open = given(0.0, 0.0, 0.0, 0, 0);
        assert_eq!(Given::complete(open, &sender(), 1000).max_packet(), 1000);
        assert_eq!(Given::complete(open, &open, 1400), whole(1.0, 1400.0, OPEN, 0, 1400));
    }

    #[test]
    fn a_sender_that_gives_nothing_limits_nothing() {
        let asked = sender();
        assert_eq!(asked.minimum(Given::complete_senders(given(0.0, 0.0, 0.0, 0, 0), &asked)).rate(), 8000.0);
        assert_eq!(Given::complete_senders(given(OPEN, OPEN, 0.0, 64, 0), &asked), asked);
        let slow = given(1000.0, 0.0, 0.0, 0, 0);
        assert_eq!(asked.minimum(Given::complete_senders(slow, &asked)).rate(), 1000.0);
    }

    #[test]
    fn a_missing_service_rate_is_the_token_rate() {
        let tspec = sender();
        assert_eq!(Given::rspec(0.0, 7, &tspec), RSpec::new(8000.0, 7));
        assert_eq!(Given::rspec(0.0, 0, &given(0.0, 0.0, 0.0, 0, 0)), RSpec::new(1.0, 0));
        assert_eq!(Given::rspec(OPEN, 0, &tspec), Err(SpecError::ServiceRate));
        assert_eq!(Given::rspec(7999.0, 0, &tspec), Err(SpecError::ServiceBelowRate));
    }

    #[test]
    fn faults_are_no_fields_that_are_left_out() {
        for bad in [-0.0, -1.0, 0.5, f32::NAN, f32::NEG_INFINITY] {
            assert_eq!(Given::tspec(bad, 1.0, 1.0, 1, 1), Err(SpecError::Rate), "{bad}");
            assert_eq!(Given::tspec(1.0, bad, 1.0, 1, 1), Err(SpecError::Bucket), "{bad}");
            assert_eq!(Given::tspec(1.0, 1.0, bad, 1, 1), Err(SpecError::Peak), "{bad}");
        }
        assert_eq!(Given::tspec(1.0, 1.0, 1.0, 2, 1), Err(SpecError::MaxPacket));
    }

    #[test]
    fn missing_parameters_of_a_path_say_nothing() {
        let path = Given::path(false, None, None, None, Some(Given::mtu(0)));
        let hop = Path::hop(1000, Latency(5), 1500);
        let next = path.composed(&hop);
        assert_eq!((next.hops, next.mtu, next.latency), (1, 1500, Latency::INDETERMINATE));
        assert_eq!(next.bandwidth, Bandwidth::UNKNOWN);
        assert_eq!(Given::bandwidth(OPEN), Ok(Bandwidth::MOST));
        assert!(Given::bandwidth(-0.0).is_err() && Given::bandwidth(0.5).is_err());
    }
}
