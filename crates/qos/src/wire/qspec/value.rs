//! Values of parameters (RFC 5975 §5.2, RFC 5976 §3).

use signalbox_wire::Writer;

use super::admission::{Admission, Preemption, Restoration, Rph};
use super::classes::{Excess, PhbClass};
use super::code_points::{AdmissionPriority, ExcessTreatment, ParameterId, RestorationPriority};
use super::error::{EncodeError, Problem};
use super::tmod::{Tmod, peak_bucket_is_wrong};

/// An unknown latency or jitter: the range was exceeded, or a node has no value (RFC 5975 §5.2.3, §5.2.4).
pub const INDETERMINATE: u32 = u32::MAX;
/// An unknown loss or error ratio (RFC 5975 §5.2.5, §5.2.6).
pub const INDETERMINATE_RATIO: f32 = 0.1;

/// Path Jitter, in microseconds; [`INDETERMINATE`] is not known. A fourth statistic is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Jitter {
    /// STAT1: variance.
    pub variance: u32,
    /// STAT2: 99.9th percentile.
    pub percentile: u32,
    /// STAT3: minimum latency.
    pub minimum: u32,
}

/// The value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// The traffic.
    Tmod1(Tmod),
    /// A second token bucket.
    Tmod2(Tmod),
    /// Mean latency of the path, microseconds.
    PathLatency(u32),
    /// Jitter of the path.
    PathJitter(Jitter),
    /// Packet loss ratio of the path, 0–1.
    PathPlr(f32),
    /// Packet error ratio of the path, 0–1.
    PathPer(f32),
    /// Difference between the delay that is wanted and the one that the reserved rate gives (RFC 2212),
    /// microseconds.
    SlackTerm(u32),
    /// Preemption and Defending Priority.
    Preemption(Preemption),
    /// Admission Priority.
    Admission(Admission),
    /// RPH Priority.
    Rph(Rph),
    /// Excess Treatment.
    Excess(Excess),
    /// PHB Class.
    Phb(PhbClass),
    /// PHB Class whose field has none of the four forms.
    BadPhb(u16),
    /// DSTE Class Type, 0–7.
    Dste(u8),
    /// Y.1541 QoS Class, 0–7.
    Y1541(u8),
    /// Size of the bucket for the peak rate, octets: 1 or more, or infinite.
    TmodExtension(f32),
    /// Restoration Priority.
    Restoration(Restoration),
    /// A parameter that this implementation does not know.
    Unknown {
        /// Its id (12 bits).
        id: ParameterId,
        /// Its value, whole words.
        octets: &'a [u8],
    },
}

/// The fault of a value, and the word that it is in.
pub(super) struct Wrong {
    pub(super) field: &'static str,
    pub(super) word: usize,
    pub(super) problem: Problem,
}

/// Exactly `N` words.
fn words<const N: usize>(octets: &[u8]) -> Option<[u32; N]> {
    let (words, []) = octets.as_chunks::<4>() else { return None };
    <[[u8; 4]; N]>::try_from(words).ok().map(|words| words.map(u32::from_be_bytes))
}

impl<'a> Value<'a> {
    /// The parameter of the value.
    #[must_use]
    pub const fn id(&self) -> ParameterId {
        match self {
            Self::Tmod1(_) => ParameterId::TMOD_1,
            Self::Tmod2(_) => ParameterId::TMOD_2,
            Self::PathLatency(_) => ParameterId::PATH_LATENCY,
            Self::PathJitter(_) => ParameterId::PATH_JITTER,
            Self::PathPlr(_) => ParameterId::PATH_PLR,
            Self::PathPer(_) => ParameterId::PATH_PER,
            Self::SlackTerm(_) => ParameterId::SLACK_TERM,
            Self::Preemption(_) => ParameterId::PREEMPTION_PRIORITY,
            Self::Admission(_) => ParameterId::ADMISSION_PRIORITY,
            Self::Rph(_) => ParameterId::RPH_PRIORITY,
            Self::Excess(_) => ParameterId::EXCESS_TREATMENT,
            Self::Phb(_) | Self::BadPhb(_) => ParameterId::PHB_CLASS,
            Self::Dste(_) => ParameterId::DSTE_CLASS_TYPE,
            Self::Y1541(_) => ParameterId::Y1541_CLASS,
            Self::TmodExtension(_) => ParameterId::TMOD_EXTENSION,
            Self::Restoration(_) => ParameterId::RESTORATION_PRIORITY,
            Self::Unknown { id, .. } => *id,
        }
    }

    /// Parses a value without checking it (RFC 5975 §5.2); `None` if the length is not that of a known parameter.
    /// Reserved bits are ignored.
    pub(super) fn read(id: ParameterId, octets: &'a [u8]) -> Option<Self> {
        let word = || words::<1>(octets).map(|[word]| word);
        let bytes = || word().map(u32::to_be_bytes);
        let halves = || bytes().map(|[a, b, c, d]| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
        Some(match id {
            ParameterId::TMOD_1 => Self::Tmod1(Tmod::from_words(words(octets)?)),
            ParameterId::TMOD_2 => Self::Tmod2(Tmod::from_words(words(octets)?)),
            ParameterId::PATH_LATENCY => Self::PathLatency(word()?),
            ParameterId::PATH_JITTER => {
                let [variance, percentile, minimum, _] = words(octets)?;
                Self::PathJitter(Jitter { variance, percentile, minimum })
            }
            ParameterId::PATH_PLR => Self::PathPlr(f32::from_bits(word()?)),
            ParameterId::PATH_PER => Self::PathPer(f32::from_bits(word()?)),
            ParameterId::SLACK_TERM => Self::SlackTerm(word()?),
            ParameterId::PREEMPTION_PRIORITY => {
                let (preemption, defending) = halves()?;
                Self::Preemption(Preemption { preemption, defending })
            }
            ParameterId::ADMISSION_PRIORITY => {
                let [y2171, priority, ..] = bytes()?;
                Self::Admission(Admission { y2171: AdmissionPriority(y2171), priority })
            }
            ParameterId::RPH_PRIORITY => {
                let [high, low, priority, _] = bytes()?;
                Self::Rph(Rph { namespace: u16::from_be_bytes([high, low]), priority })
            }
            ParameterId::EXCESS_TREATMENT => {
                let [treatment, remark, ..] = bytes()?;
                let treatment = ExcessTreatment(treatment);
                let remark = (treatment == ExcessTreatment::RE_MARK).then_some(remark >> 2);
                Self::Excess(Excess { treatment, remark })
            }
            ParameterId::PHB_CLASS => {
                let (field, _) = halves()?;
                PhbClass::from_field(field).map_or(Self::BadPhb(field), Self::Phb)
            }
            ParameterId::DSTE_CLASS_TYPE => Self::Dste(bytes()?[0]),
            ParameterId::Y1541_CLASS => Self::Y1541(bytes()?[0]),
            ParameterId::TMOD_EXTENSION => Self::TmodExtension(f32::from_bits(word()?)),
            ParameterId::RESTORATION_PRIORITY => {
                let [priority, both, ..] = bytes()?;
                let priority = RestorationPriority(priority);
                Self::Restoration(Restoration { priority, time: both >> 4, extent: both & 0x0f })
            }
            _ => Self::Unknown { id, octets },
        })
    }

    /// The first rule that it breaks (RFC 5975 §5.2).
    pub(super) fn wrong(&self) -> Option<Wrong> {
        let at = |field, problem| Some(Wrong { field, word: 0, problem });
        match *self {
            Self::Tmod1(tmod) | Self::Tmod2(tmod) => tmod.wrong(),
            Self::PathPlr(x) if !is_ratio(x) => at("Path Packet Loss Ratio", Problem::Value),
            Self::PathPer(x) if !is_ratio(x) => at("Path Packet Error Ratio", Problem::Value),
            Self::Preemption(p) if p.preemption > p.defending => at("Preemption Priority", Problem::Relation),
            Self::Excess(e) if e.remark.is_some() != (e.treatment == ExcessTreatment::RE_MARK) => {
                at("Re-mark Value", Problem::Relation)
            }
            Self::Excess(Excess { remark: Some(64..), .. }) => at("Re-mark Value", Problem::Value),
            Self::Phb(class) if class.field().is_none() => at("PHB Field", Problem::Value),
            Self::BadPhb(_) => at("PHB Field", Problem::Value),
            Self::Dste(8..) => at("DSTE Class Type", Problem::Value),
            Self::Y1541(8..) => at("Y.1541 QoS Class", Problem::Value),
            Self::TmodExtension(x) if peak_bucket_is_wrong(x) => at("Peak Bucket Size (Bp)", Problem::Value),
            Self::Restoration(Restoration { time: 16.., .. }) => at("Time to Restore", Problem::Value),
            Self::Restoration(Restoration { extent: 16.., .. }) => {
                at("Extent of Restoration", Problem::Value)
            }
            Self::Unknown { id, .. } if id.0 > 0xfff || id.name().is_some() => {
                at("Parameter ID", Problem::Value)
            }
            Self::Unknown { octets, .. } if octets.len() % 4 != 0 => at("Length", Problem::Length),
            _ => None,
        }
    }

    /// Appends the value with reserved bits zero (RFC 5975 §5.2).
    pub(super) fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        if let Some(wrong) = self.wrong() {
            return Err(EncodeError::Forbidden { parameter: Some(self.id()), field: wrong.field });
        }
        match *self {
            Self::Tmod1(tmod) | Self::Tmod2(tmod) => tmod.words().iter().for_each(|word| w.u32(*word)),
            Self::PathLatency(us) | Self::SlackTerm(us) => w.u32(us),
            Self::PathJitter(Jitter { variance, percentile, minimum }) => {
                [variance, percentile, minimum, 0].iter().for_each(|word| w.u32(*word));
            }
            Self::PathPlr(x) | Self::PathPer(x) | Self::TmodExtension(x) => w.u32(x.to_bits()),
            Self::Preemption(Preemption { preemption, defending }) => {
                w.u16(preemption);
                w.u16(defending);
            }
            Self::Admission(Admission { y2171, priority }) => w.bytes(&[y2171.0, priority, 0, 0]),
            Self::Rph(Rph { namespace, priority }) => {
                w.u16(namespace);
                w.bytes(&[priority, 0]);
            }
            Self::Excess(Excess { treatment, remark }) => {
                w.bytes(&[treatment.0, remark.unwrap_or(0) << 2, 0, 0]);
            }
            Self::Phb(class) => {
                w.u16(class.field().unwrap_or(0));
                w.u16(0);
            }
            Self::BadPhb(field) => {
                w.u16(field);
                w.u16(0);
            }
            Self::Dste(class) | Self::Y1541(class) => w.bytes(&[class, 0, 0, 0]),
            Self::Restoration(Restoration { priority, time, extent }) => {
                w.bytes(&[priority.0, time << 4 | extent, 0, 0]);
            }
            Self::Unknown { octets, .. } => w.bytes(octets),
        }
        Ok(())
    }
}

/// Whether `x` is between 0 and 1 and has no sign.
fn is_ratio(x: f32) -> bool {
    x.is_sign_positive() && x <= 1.0
}
