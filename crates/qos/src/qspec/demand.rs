//! Translation between QSPECs and the values of admission control.

use signalbox_core::traffic::{self, ServiceClass, TrafficSpec};

use super::offer::{NO_PRIORITY, Offer};
use crate::wire::qspec::{
    Admission, AdmissionPriority, Excess, ExcessTreatment, Object, ObjectType, Parameter, ParameterId,
    PhbClass, Preemption, Qspec, Tmod, Value,
};

/// The request of a QSPEC to one node. Parameters that the node does not support are left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// The traffic; `None` only in a Local QSPEC that has no TMOD-1.
    pub tmod: Option<Tmod>,
    /// A second token bucket.
    pub second_tmod: Option<Tmod>,
    /// Slack, microseconds: guaranteed service.
    pub slack_us: Option<u32>,
    /// Preemption and defending priority.
    pub preemption: Option<Preemption>,
    /// Admission priority; normal if the QSPEC has none (RFC 5975 §5.2.9).
    pub admission: Admission,
    /// The treatment of excess traffic; `None`: any.
    pub excess: Option<Excess>,
    /// A per-hop behaviour.
    pub phb: Option<PhbClass>,
    /// A Y.1541 class, 0–7.
    pub y1541: Option<u8>,
}

impl Demand {
    /// Takes each parameter from QoS Available as the node lowered it, else from QoS Desired (RFC 5975 §4.3.1).
    pub(super) fn of<'a>(
        qspec: &Qspec<'a>,
        offer: &Offer,
        leaving: impl Fn(&Parameter<'a>) -> Value<'a>,
    ) -> Self {
        let value = |id: ParameterId| {
            let find = |object: Option<Object<'a>>| object?.parameter(id);
            let parameter = find(qspec.object(ObjectType::AVAILABLE)).or_else(|| find(qspec.desired()))?;
            Some(leaving(&parameter)).filter(|value| offer.understands(value))
        };
        macro_rules! find {
            ($id:ident, $variant:ident) => {
                match value(ParameterId::$id) {
                    Some(Value::$variant(found)) => Some(found),
                    _ => None,
                }
            };
        }
        Self {
            tmod: find!(TMOD_1, Tmod1),
            second_tmod: find!(TMOD_2, Tmod2),
            slack_us: find!(SLACK_TERM, SlackTerm),
            preemption: find!(PREEMPTION_PRIORITY, Preemption),
            admission: find!(ADMISSION_PRIORITY, Admission).unwrap_or(Admission::y2171(NO_PRIORITY)),
            excess: find!(EXCESS_TREATMENT, Excess),
            phb: find!(PHB_CLASS, Phb),
            y1541: find!(Y1541_CLASS, Y1541),
        }
    }

    /// The traffic specification of the request.
    #[must_use]
    pub fn traffic(&self) -> Option<TrafficSpec> {
        self.tmod.as_ref().map(traffic_of)
    }

    /// The service: see [the module](super).
    #[must_use]
    pub fn service(&self) -> ServiceClass {
        match (self.slack_us, self.dscp()) {
            (Some(_), _) => ServiceClass::Guaranteed,
            (None, Some(dscp)) => ServiceClass::Dscp(dscp),
            (None, None) => ServiceClass::ControlledLoad,
        }
    }

    /// The code point of the requested behaviour, 0–63.
    #[must_use]
    pub const fn dscp(&self) -> Option<u8> {
        match self.phb {
            Some(PhbClass::Standard { dscp, .. }) => Some(dscp),
            _ => None,
        }
    }

    /// The treatment of excess traffic; `None`: as configured. The kernel provides one of the four treatments of RFC
    /// 5975 §5.2.11.
    #[must_use]
    pub fn excess(&self) -> Option<traffic::Excess> {
        (self.excess?.treatment == ExcessTreatment::DROP).then_some(traffic::Excess::Drop)
    }

    /// Setup and defending priority; higher is stronger. Without a Preemption Priority the admission priority is used
    /// for both: best effort is 0, normal 1, high 2; a local one has its own value.
    #[must_use]
    pub const fn priorities(&self) -> Preemption {
        match (self.preemption, self.admission.y2171) {
            (Some(preemption), _) => preemption,
            (None, AdmissionPriority::LOCAL) => same(self.admission.priority as u16),
            (None, AdmissionPriority(priority)) => same(priority as u16),
        }
    }
}

const fn same(priority: u16) -> Preemption {
    Preemption { preemption: priority, defending: priority }
}

/// Whole octets, rounded up, so that no flow gets less than it requested.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
fn whole(x: f32) -> u64 {
    x.ceil() as u64
}

/// The traffic in whole octets, rounded up. A bucket above 4 GiB saturates; an infinite peak rate becomes `None`.
#[must_use]
pub fn traffic_of(tmod: &Tmod) -> TrafficSpec {
    TrafficSpec {
        rate: whole(tmod.rate),
        burst: u32::try_from(whole(tmod.bucket)).unwrap_or(u32::MAX),
        peak: tmod.peak.is_finite().then(|| whole(tmod.peak)),
        min_policed: tmod.min_policed,
        max_packet: tmod.max_packet,
    }
}

/// The float next to `n` that is not below it.
fn float_up(n: u64) -> f32 {
    let x = float_down(n);
    if whole(x) < n { x.next_up() } else { x }
}

/// The float next to `n` that is not above it.
pub(super) fn float_down(n: u64) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "corrected below")]
    let x = n as f32;
    if whole(x) > n { x.next_down() } else { x }
}

/// The traffic as a TMOD, rounded up, for a request. It may break the rules of a TMOD ([`Tmod::is_valid`]) if the
/// traffic does.
#[must_use]
pub fn tmod_of(traffic: &TrafficSpec) -> Tmod {
    Tmod {
        rate: float_up(traffic.rate),
        bucket: float_up(traffic.burst.into()),
        peak: traffic.peak.map_or(f32::INFINITY, float_up),
        min_policed: traffic.min_policed,
        max_packet: traffic.max_packet,
    }
}

/// The resources of a link as the limit of an [`Offer`], rounded down.
///
/// `rate` and `peak` are octets a second, `bucket` and `mtu` octets. A bucket above the range of [`traffic_of`] is
/// never offered.
#[must_use]
pub fn limit_of(rate: u64, bucket: Option<u64>, peak: u64, mtu: u32) -> Tmod {
    let most = u64::from(u32::MAX);
    Tmod {
        rate: float_down(rate),
        bucket: float_down(bucket.unwrap_or(most).min(most)),
        peak: float_down(peak.max(rate)),
        min_policed: 1,
        max_packet: mtu,
    }
}
