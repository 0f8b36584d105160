//! What a node can do for a flow at one of its interfaces.

use super::combine::{MAX_LOCAL_RATIO, MAX_LOCAL_US, add_jitter, add_latency, add_ratio};
use crate::wire::qspec::{
    AdmissionPriority, Excess, ExcessTreatment, INDETERMINATE, INDETERMINATE_RATIO, Jitter, ParameterId,
    PhbClass, Tmod, Value,
};

/// What a node knows of a quality of its link. All but the first raise the N flag (RFC 5975 §5.2.3 to §5.2.6).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Estimate<T> {
    /// The value.
    Known(T),
    /// It is this or worse: what is added is a lower bound.
    AtLeast(T),
    /// Nothing; what others collected stays as it is.
    #[default]
    Unknown,
    /// Nothing, and the sum says so: it becomes indeterminate.
    Indeterminate,
}

impl<T: Copy> Estimate<T> {
    /// Whether the N flag has to be set.
    pub(super) const fn is_vague(&self) -> bool {
        !matches!(self, Self::Known(_))
    }

    /// `sum` with this added.
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

/// How finely a node can tell; what is finer is zero in what it reports.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resolution {
    /// Of its clock, microseconds, from 1 on.
    pub time_us: u32,
    /// Of its loss and error ratios, 1e-11 or more.
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
    /// Nothing is known and everybody shall see it: N flags, and all sums but the latency's become indeterminate.
    pub const NOT_KNOWN: Self = Self {
        latency: Estimate::Unknown,
        jitter: Estimate::Indeterminate,
        plr: Estimate::Indeterminate,
        per: Estimate::Indeterminate,
    };

    /// The same as a node reports it that measures with `resolution`, within what one node may add: latency and
    /// jitter from 1 to 2^28 microseconds, ratios up to 10^-2.
    #[must_use]
    pub fn reported(self, resolution: Resolution) -> Self {
        let step = resolution.time_us.clamp(1, MAX_LOCAL_US);
        let most = MAX_LOCAL_US / step * step;
        let time = |us: u32| us.clamp(1, most).next_multiple_of(step).min(most);
        let ratio = |x: f32| {
            let step = resolution.ratio.max(1e-11);
            #[expect(clippy::cast_possible_truncation, reason = "between 0 and 0.01")]
            let rounded = ((f64::from(x) / step).round() * step) as f32;
            // Also takes NaN to the larger end: who divides by zero knows nothing good.
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

    /// A value that adds up along the path, with this link's share, and whether the N flag has to be set. `None` for
    /// all other values.
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

/// Which parameters a node interprets. TMOD-1 is always among them, unknown ones never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supported {
    parameters: u32,
    treatments: u8,
}

impl Supported {
    /// TMOD-1 alone.
    pub const NOTHING: Self = Self { parameters: 1 << 1, treatments: 0 };
    /// All sixteen parameters and all four treatments of excess traffic.
    pub const EVERYTHING: Self = Self { parameters: 0x1_fffe, treatments: 0x0f };

    /// This and `parameter`.
    #[must_use]
    pub const fn with(self, parameter: ParameterId) -> Self {
        let bit = if matches!(parameter.0, 1..=16) { 1 << parameter.0 } else { 0 };
        Self { parameters: self.parameters | bit, ..self }
    }

    /// This without `parameter`; TMOD-1 stays.
    #[must_use]
    pub const fn without(self, parameter: ParameterId) -> Self {
        let bit = if matches!(parameter.0, 2..=16) { 1 << parameter.0 } else { 0 };
        Self { parameters: self.parameters & !bit, ..self }
    }

    /// This and one treatment of excess traffic, with the parameter that asks for it.
    #[must_use]
    pub const fn with_treatment(self, treatment: ExcessTreatment) -> Self {
        let bit = if treatment.0 < 4 { 1 << treatment.0 } else { 0 };
        let this = self.with(ParameterId::EXCESS_TREATMENT);
        Self { treatments: this.treatments | bit, ..this }
    }

    /// Whether the parameter is among them.
    #[must_use]
    pub const fn has(&self, parameter: ParameterId) -> bool {
        matches!(parameter.0, 1..=16) && self.parameters >> parameter.0 & 1 != 0
    }

    /// Whether this very value can be interpreted: a known parameter with an unassigned code point cannot.
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

/// What the resources of this suite can act on: one token bucket, delay and loss, slack, preemption and admission
/// priority, PHB and Y.1541 classes, and excess traffic that is dropped.
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

/// What a node can do for a flow at the interface by which it leaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// The most that could be reserved, a reservation that the message replaces included; MPS is the MTU. Rates
    /// below 1 mean that nothing is left. A node that lets its admission control decide gives
    /// [`UNLIMITED`](Self::UNLIMITED) but for the MTU.
    pub limit: Tmod,
    /// Delay and loss of the link.
    pub quality: Quality,
    /// The strongest Y.1541 class; `None`: the node promises no class, and does not support the parameter.
    pub y1541: Option<u8>,
    /// How the initiator has to mark its packets for this node (§3.3.4); `None`: as it likes.
    pub phb: Option<PhbClass>,
    /// What it interprets.
    pub supported: Supported,
}

impl Offer {
    /// No limit but those of the formats.
    pub const UNLIMITED: Tmod = Tmod {
        rate: crate::wire::qspec::MAX_RATE,
        bucket: crate::wire::qspec::MAX_BUCKET,
        peak: f32::INFINITY,
        min_policed: 1,
        max_packet: u32::MAX,
    };

    /// Of a link of which no more is known than what could be reserved.
    #[must_use]
    pub fn of(limit: Tmod) -> Self {
        Self { limit, quality: Quality::NOT_KNOWN, y1541: None, phb: None, supported: Supported::default() }
    }

    /// Whether this value can be interpreted here.
    pub(super) fn understands(&self, value: &Value<'_>) -> bool {
        self.supported.understands(value) && !(matches!(value, Value::Y1541(_)) && self.y1541.is_none())
    }
}

/// The priority of a reservation that says none (§5.2.9).
pub(super) const NO_PRIORITY: AdmissionPriority = AdmissionPriority::NORMAL;
