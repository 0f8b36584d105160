//! Traffic and flowspecs in whole octets. The arithmetic of RFC 2211 §8 and RFC 2212 "Ordering and Merging" is written
//! a second time here, to check the results of the engine.

use signalbox_core::traffic::{Reservation, TrafficSpec};
use signalbox_node::resources::intserv::{RSpec, TSpec};
use signalbox_node::rsvp::FlowSpec;

/// A TSpec, and with guaranteed service its RSpec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) r: u64,
    pub(crate) b: u64,
    /// The peak rate; `None`: infinite.
    pub(crate) p: Option<u64>,
    pub(crate) m: u32,
    pub(crate) max: u32,
    /// The rate R and slack term S of guaranteed service.
    pub(crate) service: Option<(u64, u32)>,
}

#[expect(clippy::cast_precision_loss, reason = "test values are below 2^24")]
fn float(value: u64) -> f32 {
    value as f32
}

fn larger(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a?.max(b?))
}

fn smaller(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

impl Spec {
    pub(crate) fn tspec(&self) -> TSpec {
        let peak = self.p.map_or(f32::INFINITY, float);
        TSpec::new(float(self.r), float(self.b), peak, self.m, self.max).unwrap()
    }

    pub(crate) fn flowspec(&self) -> FlowSpec {
        let rspec = self.service.map(|(rate, slack)| RSpec::new(float(rate), slack).unwrap());
        FlowSpec { tspec: self.tspec(), rspec }
    }

    /// The merge of both, as it is sent upstream.
    pub(crate) fn merged(self, other: Self) -> Self {
        let service = self.service.zip(other.service).map(|((r, s), (q, t))| (r.max(q), s.min(t)));
        Self {
            r: self.r.max(other.r),
            b: self.b.max(other.b),
            p: larger(self.p, other.p),
            m: self.m.min(other.m),
            max: self.max.min(other.max),
            service,
        }
    }

    /// The sum of the traffic of senders.
    fn plus(self, other: Self) -> Self {
        Self {
            r: self.r + other.r,
            b: self.b + other.b,
            p: self.p.zip(other.p).map(|(a, b)| a + b),
            m: self.m.min(other.m),
            max: self.max.max(other.max),
            service: None,
        }
    }

    /// Whether its traffic is greater than or equal to the other's in all respects.
    fn covers(&self, other: &Self) -> bool {
        let peak = self.p.is_none_or(|p| other.p.is_some_and(|q| p >= q));
        self.r >= other.r && self.b >= other.b && peak && self.m <= other.m && self.max >= other.max
    }

    /// The lesser of two; if they cannot be compared, the smaller value of each parameter, but the larger bucket.
    fn minimum(self, other: Self) -> Self {
        if self.covers(&other) {
            return other;
        }
        if other.covers(&self) {
            return self;
        }
        Self {
            r: self.r.min(other.r),
            b: self.b.max(other.b),
            p: smaller(self.p, other.p),
            m: self.m.min(other.m),
            max: self.max.min(other.max),
            service: None,
        }
    }

    /// The reservation that the kernel has to install for receivers that request this from senders of `path`.
    pub(crate) fn installed(self, path: impl IntoIterator<Item = Self>) -> Standing {
        let sum = path.into_iter().reduce(Self::plus).expect("a reservation is for senders");
        let least = self.minimum(sum);
        let traffic = TrafficSpec {
            rate: least.r,
            burst: u32::try_from(least.b).unwrap(),
            peak: least.p,
            // If two can be compared, the lesser one has the larger m; headers count for the smallest packets.
            min_policed: self.m.min(sum.m).min(least.max),
            max_packet: least.max,
        };
        let rate = self.service.map_or(0, |(rate, _)| rate).max(least.r);
        Standing { traffic, rate, guaranteed: self.service.is_some() }
    }
}

/// The expected reservation in a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) traffic: TrafficSpec,
    /// The service rate of its queue, octets a second.
    pub(crate) rate: u64,
    guaranteed: bool,
}

impl Standing {
    /// Whether the reservation is the expected one. With guaranteed service the bucket covers the bursts that queues on
    /// the path cause, and the peak rate does not apply any more; other tests check the amount.
    pub(crate) fn is(&self, reservation: &Reservation) -> bool {
        let here = reservation.traffic;
        let shape = if self.guaranteed {
            here.burst >= self.traffic.burst && here.peak.is_none_or(|peak| Some(peak) == self.traffic.peak)
        } else {
            (here.burst, here.peak) == (self.traffic.burst, self.traffic.peak)
        };
        let TrafficSpec { rate, min_policed, max_packet, .. } = self.traffic;
        shape
            && reservation.rate() == self.rate
            && (here.rate, here.min_policed, here.max_packet) == (rate, min_policed, max_packet)
    }
}

/// The merge of all of them.
pub(crate) fn merged(all: impl IntoIterator<Item = Spec>) -> Option<Spec> {
    all.into_iter().reduce(Spec::merged)
}
