//! QSPECs for people and for dissectors.

use core::fmt;

use signalbox_wire::hex;

use super::admission::{Admission, Preemption, Restoration, Rph};
use super::classes::Excess;
use super::element::{Object, Parameter};
use super::parse::Qspec;
use super::tmod::Tmod;
use super::value::{INDETERMINATE, Jitter, Value};

/// One field of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Field<'a> {
    /// A number.
    Number(u64),
    /// A number with the name that it has.
    Named(u64, Option<&'static str>),
    /// A fraction; may be infinite.
    Real(f32),
    /// Yes or no.
    Flag(bool),
    /// Octets without a known format.
    Octets(&'a [u8]),
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Named(_, Some(name)) => f.write_str(name),
            Self::Number(n) | Self::Named(n, None) => write!(f, "{n}"),
            Self::Real(x) if x != 0.0 && x.abs() < 1e-3 => write!(f, "{x:e}"),
            Self::Real(x) => write!(f, "{x}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Octets(octets) => f.write_str(&hex(octets)),
        }
    }
}

/// A time that may be indeterminate.
const fn time(us: u32) -> Field<'static> {
    Field::Named(us as u64, if us == INDETERMINATE { Some("indeterminate") } else { None })
}

impl<'a> Value<'a> {
    /// Calls `each` with the name and contents of each field. The names stay: they are part of what
    /// `signalbox decode` prints.
    pub fn fields(&self, mut each: impl FnMut(&'static str, Field<'a>)) {
        match *self {
            Self::Tmod1(Tmod { rate, bucket, peak, min_policed, max_packet })
            | Self::Tmod2(Tmod { rate, bucket, peak, min_policed, max_packet }) => {
                each("rate", Field::Real(rate));
                each("bucket", Field::Real(bucket));
                each("peak", Field::Real(peak));
                each("min_policed", Field::Number(min_policed.into()));
                each("max_packet", Field::Number(max_packet.into()));
            }
            Self::PathLatency(us) => each("latency_us", time(us)),
            Self::PathJitter(Jitter { variance, percentile, minimum }) => {
                each("variance_us", time(variance));
                each("percentile_us", time(percentile));
                each("minimum_us", time(minimum));
            }
            Self::PathPlr(x) | Self::PathPer(x) => each("ratio", Field::Real(x)),
            Self::SlackTerm(us) => each("slack_us", Field::Number(us.into())),
            Self::Preemption(Preemption { preemption, defending }) => {
                each("preemption", Field::Number(preemption.into()));
                each("defending", Field::Number(defending.into()));
            }
            Self::Admission(Admission { y2171, priority }) => {
                each("y2171", Field::Named(y2171.0.into(), y2171.name()));
                each("priority", Field::Number(priority.into()));
            }
            Self::Rph(Rph { namespace, priority }) => {
                each("namespace", Field::Number(namespace.into()));
                each("priority", Field::Number(priority.into()));
            }
            Self::Excess(Excess { treatment, remark }) => {
                each("treatment", Field::Named(treatment.0.into(), treatment.name()));
                if let Some(dscp) = remark {
                    each("remark_dscp", Field::Number(dscp.into()));
                }
            }
            Self::Phb(class) => {
                let (name, number, set) = match class {
                    super::PhbClass::Standard { dscp, set } => ("dscp", u64::from(dscp), set),
                    super::PhbClass::Local { code, set } => ("phb_code", u64::from(code), set),
                };
                each(name, Field::Number(number));
                each("set", Field::Flag(set));
            }
            Self::BadPhb(field) => each("phb_field", Field::Number(field.into())),
            Self::Dste(class) | Self::Y1541(class) => each("class", Field::Number(class.into())),
            Self::TmodExtension(octets) => each("peak_bucket", Field::Real(octets)),
            Self::Restoration(Restoration { priority, time, extent }) => {
                each("priority", Field::Named(priority.0.into(), priority.name()));
                each("time_to_restore", Field::Number(time.into()));
                each("extent", Field::Number(extent.into()));
            }
            Self::Unknown { octets, .. } => each("octets", Field::Octets(octets)),
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id())?;
        let mut result = Ok(());
        self.fields(|name, field| {
            if result.is_ok() {
                result = write!(f, " {name}={field}");
            }
        });
        result
    }
}

impl fmt::Display for Parameter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value() {
            Ok(value) => write!(f, "{value}")?,
            Err(error) => write!(f, "{} {} ({})", self.id, hex(self.octets), error.problem.text())?,
        }
        let set = [(self.flags.mandatory, 'M'), (self.flags.error, 'E'), (self.flags.not_supported, 'N')];
        let mut mark = '[';
        for (_, name) in set.iter().filter(|(set, _)| *set) {
            write!(f, "{}{name}", if mark == '[' { " [" } else { " " })?;
            mark = ']';
        }
        if mark == ']' { f.write_str("]") } else { Ok(()) }
    }
}

impl fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}: ", self.kind, if self.error { " [E]" } else { "" })?;
        for (n, parameter) in self.parameters().enumerate() {
            write!(f, "{}{parameter}", if n == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// One line for the header, one for each object.
impl fmt::Display for Qspec<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.header.local { "Local" } else { "Initiator" };
        write!(f, "{role} QSPEC, type {}, procedure {}", self.header.qspec_type, self.header.procedure)?;
        for object in self.objects() {
            write!(f, "\n{object}")?;
        }
        if let Some(inner) = self.encapsulated().and_then(|octets| Qspec::frame(octets).ok()) {
            write!(f, "\nencapsulated {inner}")?;
        }
        Ok(())
    }
}
