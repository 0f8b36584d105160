//! FLOWSPEC and SENDER_TSPEC (RFC 2210 §3.1, §3.2), and the headers that ADSPEC shares with them (RFC 2210 Appendix A).

use core::fmt;

use signalbox_resources::intserv::{Given, RSpec, SpecError, TSpec};
use signalbox_wire::Reader;

use super::code_points::{Class, TrafficControlValue};
use super::object::{OBJECT_HEADER_OCTETS, RawObject, whole};

/// TOKEN_BUCKET_TSPEC.
pub(crate) const PARAMETER_TSPEC: u8 = 127;
/// The RSpec of guaranteed service.
pub(crate) const PARAMETER_RSPEC: u8 = 130;

/// A quality of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Guaranteed service (RFC 2212): a bound on the delay.
    Guaranteed,
    /// Controlled load (RFC 2211): the service of an unloaded network.
    ControlledLoad,
}

impl Service {
    /// Service number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Guaranteed => 2,
            Self::ControlledLoad => 5,
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guaranteed => "guaranteed",
            Self::ControlledLoad => "controlled load",
        })
    }
}

/// Contents that traffic control rejects: error 21 with this value (RFC 2205 Appendix B).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{value}: {why}")]
pub struct SpecFault {
    /// Error Value of [`ErrorCode::TRAFFIC_CONTROL`](super::ErrorCode::TRAFFIC_CONTROL).
    pub value: TrafficControlValue,
    /// The reason, as text.
    pub why: &'static str,
}

impl SpecFault {
    pub(crate) const fn new(value: TrafficControlValue, why: &'static str) -> Self {
        Self { value, why }
    }

    fn of(value: TrafficControlValue, error: SpecError) -> Self {
        Self::new(value, why(error))
    }
}

const fn why(error: SpecError) -> &'static str {
    match error {
        SpecError::Rate => "token rate r out of range",
        SpecError::Bucket => "bucket depth b out of range",
        SpecError::Peak => "peak rate p out of range",
        SpecError::MaxPacket => "maximum packet size M is below m",
        SpecError::ServiceRate => "service rate R out of range",
        SpecError::ServiceBelowRate => "service rate R below token rate r",
        SpecError::PeakBelowRate => "peak rate p below token rate r",
        SpecError::Unsupported => "more than can be policed here",
        SpecError::Empty => "nothing specified",
    }
}

/// The contents of a FLOWSPEC (RFC 2210 §3.2). Its values are valid, or not given ([`Given`]).
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FlowSpec {
    /// The traffic.
    pub tspec: TSpec,
    /// Rate and slack of guaranteed service; `None`: controlled load.
    pub rspec: Option<RSpec>,
}

impl FlowSpec {
    /// The requested service.
    #[must_use]
    pub const fn service(&self) -> Service {
        if self.rspec.is_some() { Service::Guaranteed } else { Service::ControlledLoad }
    }
}

/// A FLOWSPEC object whose contents were not parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawFlowSpec<'a> {
    octets: &'a [u8],
}

impl<'a> RawFlowSpec<'a> {
    /// A FLOWSPEC from a whole object with its header; `None`: the object is of another class.
    #[must_use]
    pub fn from_octets(object: &'a [u8]) -> Option<Self> {
        whole(object, Class::FLOWSPEC).map(|object| Self::of(&object))
    }

    pub(crate) const fn of(object: &RawObject<'a>) -> Self {
        Self { octets: object.octets }
    }

    /// The whole object with its header.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.octets
    }

    /// Parses the contents (RFC 2210 §3.2).
    ///
    /// # Errors
    /// 21/2 for an unknown service, 21/3 for bad contents: other parameters, several services, values out of range that
    /// cannot be read as not given ([`Given`]), for guaranteed service also p < r or R < r.
    pub fn read(&self) -> Result<FlowSpec, SpecFault> {
        const BAD: TrafficControlValue = TrafficControlValue::BAD_FLOWSPEC;
        let bad = |why| SpecFault::new(BAD, why);
        let mut all = message(self.octets).ok_or(bad("length or version of the message header"))?;
        let mut service = fragment(&mut all).ok_or(bad("length of a service"))?;
        if !all.is_empty() {
            return Err(bad("several services"));
        }
        if !matches!(service.number, 2 | 5) {
            return Err(SpecFault::new(TrafficControlValue::SERVICE_UNSUPPORTED, "no such service here"));
        }
        let tspec = tspec(&mut service.rest, BAD)?;
        let rspec = if service.number == 2 {
            let (rate, slack) = if service.rest.is_empty() {
                (0.0, 0) // not given
            } else {
                let mut rspec = parameter(&mut service.rest, PARAMETER_RSPEC)
                    .ok_or(bad("not the RSpec of guaranteed service"))?;
                let short = |_| bad("length of the RSpec");
                let rate = f32::from_bits(rspec.u32().map_err(short)?);
                let slack = rspec.u32().map_err(short)?;
                if !rspec.is_empty() {
                    return Err(bad("length of the RSpec"));
                }
                (rate, slack)
            };
            Some(Given::rspec(rate, slack, &tspec).map_err(|error| SpecFault::of(BAD, error))?)
        } else {
            None
        };
        if service.rest.is_empty() { Ok(FlowSpec { tspec, rspec }) } else { Err(bad("unknown parameters")) }
    }
}

/// A SENDER_TSPEC object whose contents were not parsed. No node changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawTspec<'a> {
    octets: &'a [u8],
}

impl<'a> RawTspec<'a> {
    /// A SENDER_TSPEC from a whole object with its header; `None`: the object is of another class.
    #[must_use]
    pub fn from_octets(object: &'a [u8]) -> Option<Self> {
        whole(object, Class::SENDER_TSPEC).map(|object| Self::of(&object))
    }

    pub(crate) const fn of(object: &RawObject<'a>) -> Self {
        Self { octets: object.octets }
    }

    /// The whole object with its header.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.octets
    }

    /// Parses the contents (RFC 2210 §3.1).
    ///
    /// # Errors
    /// 21/4 for bad contents, and values out of range that cannot be read as not given ([`Given`]).
    pub fn read(&self) -> Result<TSpec, SpecFault> {
        const BAD: TrafficControlValue = TrafficControlValue::BAD_TSPEC;
        let bad = |why| SpecFault::new(BAD, why);
        let mut all = message(self.octets).ok_or(bad("length or version of the message header"))?;
        let mut service = fragment(&mut all).ok_or(bad("length of a service"))?;
        if !all.is_empty() {
            return Err(bad("several services"));
        }
        if service.number != 1 {
            return Err(bad("not of the general service"));
        }
        let tspec = tspec(&mut service.rest, BAD)?;
        if service.rest.is_empty() { Ok(tspec) } else { Err(bad("unknown parameters")) }
    }
}

fn tspec(rest: &mut Reader<'_>, value: TrafficControlValue) -> Result<TSpec, SpecFault> {
    let mut words = parameter(rest, PARAMETER_TSPEC).ok_or(SpecFault::new(value, "no TSpec"))?;
    let short = |_| SpecFault::new(value, "length of the TSpec");
    let mut word = || words.u32().map_err(short);
    let (r, b, p, m, max) = (word()?, word()?, word()?, word()?, word()?);
    if !words.is_empty() {
        return Err(SpecFault::new(value, "length of the TSpec"));
    }
    let [r, b, p] = [r, b, p].map(f32::from_bits);
    Given::tspec(r, b, p, m, max).map_err(|error| SpecFault::of(value, error))
}

/// The data after the message header of a whole object, in version 0 (RFC 2210 Appendix A.1).
pub(crate) fn message(object: &[u8]) -> Option<Reader<'_>> {
    let mut r = Reader::at(object.get(OBJECT_HEADER_OCTETS..)?, OBJECT_HEADER_OCTETS);
    let [version, _, l1, l0] = r.array().ok()?;
    let words = usize::from(u16::from_be_bytes([l1, l0]));
    (version >> 4 == 0 && words * 4 == r.left()).then_some(r)
}

/// The data of one service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fragment<'a> {
    pub(crate) number: u8,
    pub(crate) broken: bool,
    pub(crate) rest: Reader<'a>,
}

pub(crate) fn fragment<'a>(r: &mut Reader<'a>) -> Option<Fragment<'a>> {
    let [number, flags, l1, l0] = r.array().ok()?;
    let rest = r.sub(usize::from(u16::from_be_bytes([l1, l0])) * 4).ok()?;
    Some(Fragment { number, broken: flags & 0x80 != 0, rest })
}

/// Parses the next parameter: number, whether it is marked invalid, and value.
pub(crate) fn any_parameter<'a>(r: &mut Reader<'a>) -> Option<(u8, bool, Reader<'a>)> {
    let [number, flags, l1, l0] = r.array().ok()?;
    let value = r.sub(usize::from(u16::from_be_bytes([l1, l0])) * 4).ok()?;
    Some((number, flags & 0x80 != 0, value))
}

/// The value of the next parameter, which must be `wanted` and valid.
fn parameter<'a>(r: &mut Reader<'a>, wanted: u8) -> Option<Reader<'a>> {
    any_parameter(r).filter(|(number, invalid, _)| *number == wanted && !invalid).map(|(.., value)| value)
}
