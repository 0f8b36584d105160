//! The resources that a node offers to a flow at one of its interfaces.

use super::combine::{MAX_LOCAL_RATIO, MAX_LOCAL_US, add_jitter, add_latency, add_ratio};
use crate::wire::qspec::{
    AdmissionPriority, Excess, ExcessTreatment, INDETERMINATE, INDETERMINATE_RATIO, Jitter, ParameterId,
    PhbClass, Tmod, Value,
};

/// The information that a node has about a quality of its link. All variants but the first set the N flag (RFC 5975
/// §5.2.3 to §5.2.6).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Estimate<T> {
    /// The value.
    Known(T),
    /// A lower bound of the value: the sum becomes a lower bound.
    AtLeast(T),
    /// No information. The sum stays as it is.
    #[default]
    Unknown,
    /// No information. The sum becomes indeterminate.
    Indeterminate,
}

impl<T: Copy> Estimate<T> {
    /// Whether it sets the N flag.
    pub(super) const fn is_vague(&self) -> bool {
        !matches!(self, Self::Known(_))
    }

    /// `sum` with this value added.
    pub(super) fn add(self, sum: T, indeterminate: T, add: impl Fn(T, T) -> T) -> T {
        match self {
            Self::Known(own) | Self::AtLeast(own) => add(sum, own),
            Self::Unknown => sum,
            Self::Indeterminate => indeterminate,
        }
    }

    fn map(self, f: impl FnOnce(T) -> T) -> Self {
        match self {
            Self::Known(own) => Self::Known(f(own)),
            Self::AtLeast(own) => Self::AtLeast(f(own)),
            other => other,
        }
    }
}

/// The resolution of the measurements of a node. Smaller values are reported as zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resolution {
    /// Resolution of its clock, microseconds, at least 1.
    pub time_us: u32,
    /// Resolution of its loss and error ratios, 1e-11 or more.
    pub ratio: f64,
}

impl Default for Resolution {
    fn default() -> Self {
        Self { time_us: 1, ratio: 1e-11 }
    }
}

/// Delay and loss of a link.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Quality {
    /// Mean delay, microseconds.
    pub latency: Estimate<u32>,
    /// Jitter, microseconds.
    pub jitter: Estimate<Jitter>,
    /// Packet loss ratio.
    pub plr: Estimate<f32>,
    /// Packet error ratio.
    pub per: Estimate<f32>,
}

impl Quality {
    /// No information, reported to all: the N flags are set, and all sums but that of latency become indeterminate.
    pub const NOT_KNOWN: Self = Self {
        latency: Estimate::Unknown,
        jitter: Estimate::Indeterminate,
        plr: Estimate::Indeterminate,
        per: Estimate::Indeterminate,
    };

    /// The report of a node that measures with `resolution`, within the limits of one node: latency and jitter from 1
    /// to 2^28 microseconds, ratios up to 10^-2 (RFC 5975 §5.2.3 to §5.2.6).
    #[must_use]
    pub fn reported(self, resolution: Resolution) -> Self {
        let step = resolution.time_us.clamp(1, MAX_LOCAL_US);
        let most = MAX_LOCAL_US / step * step;
        let time = |us: u32| us.clamp(1, most).next_multiple_of(step).min(most);
        let ratio = |x: f32| {
            let step = resolution.ratio.max(1e-11);
            #[expect(clippy::cast_possible_truncation, reason = "between 0 and 0.01")]
            let rounded = ((f64::from(x) / step).round() * step) as f32;
            // NaN becomes the larger limit too.
            if rounded < MAX_LOCAL_RATIO { rounded.max(0.0) } else { MAX_LOCAL_RATIO }
        };
        Self {
            latency: self.latency.map(time),
            jitter: self.jitter.map(|j| Jitter {
                variance: time(j.variance),
                percentile: time(j.percentile),
                minimum: time(j.minimum),
            }),
            plr: self.plr.map(ratio),
            per: self.per.map(ratio),
        }
    }

    /// A value that adds up along the path with the share of this link, and whether N is set. `None` for all other
    /// values.
    pub(super) fn add_to<'a>(&self, value: &Value<'a>) -> Option<(Value<'a>, bool)> {
        const NO_JITTER: Jitter =
            Jitter { variance: INDETERMINATE, percentile: INDETERMINATE, minimum: INDETERMINATE };
        Some(match *value {
            Value::PathLatency(sum) => {
                let sum = self.latency.add(sum, INDETERMINATE, add_latency);
                (Value::PathLatency(sum), self.latency.is_vague())
            }
            Value::PathJitter(sum) => {
                let sum = self.jitter.add(sum, NO_JITTER, add_jitter);
                (Value::PathJitter(sum), self.jitter.is_vague())
            }
            Value::PathPlr(sum) => {
                (Value::PathPlr(self.plr.add(sum, INDETERMINATE_RATIO, add_ratio)), self.plr.is_vague())
            }
            Value::PathPer(sum) => {
                (Value::PathPer(self.per.add(sum, INDETERMINATE_RATIO, add_ratio)), self.per.is_vague())
            }
            _ => return None,
        })
    }
}

/// The parameters that a node supports. TMOD-1 is always among them, unknown parameters never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supported {
    parameters: u32,
    treatments: u8,
}

impl Supported {
    /// Only TMOD-1.
    pub const NOTHING: Self = Self { parameters: 1 << 1, treatments: 0 };
    /// All sixteen parameters and all four treatments of excess traffic.
    pub const EVERYTHING: Self = Self { parameters: 0x1_fffe, treatments: 0x0f };

    /// This set with `parameter`.
    #[must_use]
    pub const fn with(self, parameter: ParameterId) -> Self {
        let bit = if matches!(parameter.0, 1..=16) { 1 << parameter.0 } else { 0 };
        Self { parameters: self.parameters | bit, ..self }
    }

    /// This set without `parameter`; TMOD-1 stays.
    #[must_use]
    pub const fn without(self, parameter: ParameterId) -> Self {
        let bit = if matches!(parameter.0, 2..=16) { 1 << parameter.0 } else { 0 };
        Self { parameters: self.parameters & !bit, ..self }
    }

    /// This set with one treatment of excess traffic, and with its parameter.
    #[must_use]
    pub const fn with_treatment(self, treatment: ExcessTreatment) -> Self {
        let bit = if treatment.0 < 4 { 1 << treatment.0 } else { 0 };
        let this = self.with(ParameterId::EXCESS_TREATMENT);
        Self { treatments: this.treatments | bit, ..this }
    }

    /// Whether the set contains the parameter.
    #[must_use]
    pub const fn has(&self, parameter: ParameterId) -> bool {
        matches!(parameter.0, 1..=16) && self.parameters >> parameter.0 & 1 != 0
    }

    /// Whether the node supports this value. A known parameter with an unassigned code point is not supported.
    pub(super) fn understands(&self, value: &Value<'_>) -> bool {
        self.has(value.id())
            && match *value {
                Value::Excess(Excess { treatment, .. }) => {
                    treatment.0 < 4 && self.treatments >> treatment.0 & 1 != 0
                }
                Value::Admission(admission) => admission.y2171.name().is_some(),
                Value::Phb(class) => matches!(class, PhbClass::Standard { .. }),
                Value::Restoration(restoration) => restoration.priority.name().is_some(),
                _ => true,
            }
    }
}

/// The parameters that the resources of Signalbox support: one token bucket, delay and loss, slack, preemption and
/// admission priority, PHB and Y.1541 classes, and dropping of excess traffic.
impl Default for Supported {
    fn default() -> Self {
        [
            ParameterId::PATH_LATENCY,
            ParameterId::PATH_JITTER,
            ParameterId::PATH_PLR,
            ParameterId::PATH_PER,
            ParameterId::SLACK_TERM,
            ParameterId::PREEMPTION_PRIORITY,
            ParameterId::ADMISSION_PRIORITY,
            ParameterId::PHB_CLASS,
            ParameterId::Y1541_CLASS,
        ]
        .into_iter()
        .fold(Self::NOTHING, Self::with)
        .with_treatment(ExcessTreatment::DROP)
    }
}

/// The resources that a node offers to a flow at its egress interface.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// The largest reservation, including one that the message replaces; MPS is the MTU. Rates below 1 mean that
    /// nothing is left. A node whose admission control decides gives [`UNLIMITED`](Self::UNLIMITED) with its MTU.
    pub limit: Tmod,
    /// Delay and loss of the link.
    pub quality: Quality,
    /// The strongest Y.1541 class; `None`: the node does not support the parameter.
    pub y1541: Option<u8>,
    /// The PHB class with which the initiator has to mark packets for this node (RFC 5975 §3.3.4); `None`: any.
    pub phb: Option<PhbClass>,
    /// The supported parameters.
    pub supported: Supported,
}

impl Offer {
    /// No limits but those of the format.
    pub const UNLIMITED: Tmod = Tmod {
        rate: crate::wire::qspec::MAX_RATE,
        bucket: crate::wire::qspec::MAX_BUCKET,
        peak: f32::INFINITY,
        min_policed: 1,
        max_packet: u32::MAX,
    };

    /// An offer of which only the limit is known.
    #[must_use]
    pub fn of(limit: Tmod) -> Self {
        Self { limit, quality: Quality::NOT_KNOWN, y1541: None, phb: None, supported: Supported::default() }
    }

    /// Whether the node supports this value.
    pub(super) fn understands(&self, value: &Value<'_>) -> bool {
        self.supported.understands(value) && !(matches!(value, Value::Y1541(_)) && self.y1541.is_none())
    }
}

/// The priority of a reservation without Admission Priority (RFC 5975 §5.2.9).
pub(super) const NO_PRIORITY: AdmissionPriority = AdmissionPriority::NORMAL;
