//! Errors of a QSPEC, and their INFO-SPEC.

use core::fmt;

use signalbox_wire::LengthOverflow;

use super::code_points::{ObjectType, ParameterId};

/// Error class and code of the INFO-SPEC that reports the outcome of a reservation (RFC 5975 §4.2.3; the numbers are
/// those of RFC 5974 §5.1.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// Error class: 2 success, 3 protocol error, 4 transient failure, 6 QoS model error.
    pub class: u8,
    /// Error code within the class.
    pub code: u8,
}

impl Outcome {
    /// Reservation successful: no E flag is set; N flags may be.
    pub const SUCCESS: Self = Self { class: 2, code: 0x01 };
    /// Malformed QSPEC: E flags are on the faulty parameters.
    pub const MALFORMED: Self = Self { class: 3, code: 0x0c };
    /// Incompatible QSPEC: its version is higher than the supported one.
    pub const INCOMPATIBLE: Self = Self { class: 3, code: 0x0f };
    /// Reservation failure: E flags are on parameters that could not be satisfied, N flags on those that are not
    /// supported.
    pub const FAILURE: Self = Self { class: 4, code: 0x07 };
    /// The error class that QoS models number by themselves; 64–67 of its codes are for private use, 0–63 are
    /// unassigned and the rest reserved (§7).
    pub const QOS_MODEL_CLASS: u8 = 6;

    /// Its meaning, if it is one of the above.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match (self.class, self.code) {
            (2, 0x01) => Some("reservation successful"),
            (3, 0x0c) => Some("malformed QSPEC"),
            (3, 0x0f) => Some("incompatible QSPEC"),
            (4, 0x07) => Some("reservation failure"),
            _ => None,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:#04x}", self.class, self.code)?;
        self.name().map_or(Ok(()), |name| write!(f, " {name}"))
    }
}

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Problem {
    /// A version above the supported one.
    Version,
    /// Lengths and octets do not agree. The rest cannot be parsed.
    Length,
    /// A QSPEC without objects, or an object without parameters.
    Empty,
    /// An object or a parameter occurs twice.
    Duplicate,
    /// An object that is neither one of the four nor for private use.
    UnknownObject,
    /// What a Local QSPEC encapsulates is not an Initiator QSPEC.
    NotInitiator,
    /// Message sequence and object combination are not one of the seven procedures.
    Procedure,
    /// The length of a known parameter is wrong.
    ParameterLength,
    /// A value out of its range.
    Value,
    /// Two values that contradict each other.
    Relation,
    /// RPH Priority without Admission Priority.
    Priorities,
    /// An object that the procedure demands in this message, or TMOD-1, is missing.
    Missing,
    /// The procedure has no such object in this message.
    NotAllowed,
}

impl Problem {
    /// The text for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Version => "unknown version",
            Self::Length => "length does not fit the octets",
            Self::Empty => "empty",
            Self::Duplicate => "occurs twice",
            Self::UnknownObject => "unknown object type",
            Self::NotInitiator => "encapsulated QSPEC is not an Initiator QSPEC",
            Self::Procedure => "unassigned procedure",
            Self::ParameterLength => "wrong length for this parameter",
            Self::Value => "value out of range",
            Self::Relation => "values contradict each other",
            Self::Priorities => "RPH Priority without Admission Priority",
            Self::Missing => "missing",
            Self::NotAllowed => "not allowed by the procedure in this message",
        }
    }
}

/// A fault of a QSPEC, and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QspecError {
    /// Object at fault; `None`: the common header or the QSPEC as a whole.
    pub object: Option<ObjectType>,
    /// Where the object's header starts; 0 if there is none.
    pub object_start: usize,
    /// Parameter at fault; `None`: the object as a whole.
    pub parameter: Option<ParameterId>,
    /// Where the parameter's header starts; `object_start` if there is none.
    pub parameter_start: usize,
    /// Field at fault, in the RFC's words.
    pub field: &'static str,
    /// Where the field is, in octets from the start of the QSPEC.
    pub offset: usize,
    /// The field's value.
    pub value: u64,
    /// What is wrong.
    pub problem: Problem,
}

impl QspecError {
    /// The outcome in the INFO-SPEC (RFC 5975 §4.2.3).
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self.problem {
            Problem::Version => Outcome::INCOMPATIBLE,
            _ => Outcome::MALFORMED,
        }
    }

    /// An error of the common header or the whole QSPEC.
    pub(crate) const fn header(problem: Problem, field: &'static str, offset: usize, value: u64) -> Self {
        Self {
            object: None,
            object_start: 0,
            parameter: None,
            parameter_start: 0,
            field,
            offset,
            value,
            problem,
        }
    }

    /// An error of an object as a whole.
    pub(crate) const fn object(
        problem: Problem,
        object: ObjectType,
        start: usize,
        field: &'static str,
        offset: usize,
    ) -> Self {
        Self {
            object: Some(object),
            object_start: start,
            parameter: None,
            parameter_start: start,
            field,
            offset,
            value: object.0 as u64,
            problem,
        }
    }
}

impl fmt::Display for QspecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QSPEC: ")?;
        if let Some(object) = self.object {
            write!(f, "{object}: ")?;
        }
        if let Some(parameter) = self.parameter {
            write!(f, "{parameter}: ")?;
        }
        write!(f, "{} at octet {}: {} (value {})", self.field, self.offset, self.problem.text(), self.value)
    }
}

impl core::error::Error for QspecError {}

/// A QSPEC that must not be sent as given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodeError {
    /// Something is longer than its length field can say.
    Length(LengthOverflow),
    /// No object in the QSPEC, or no parameter in this object.
    Empty(Option<ObjectType>),
    /// The object would occur twice.
    DuplicateObject(ObjectType),
    /// The parameter would occur twice in its object.
    DuplicateParameter(ParameterId),
    /// RPH Priority without Admission Priority.
    Priorities,
    /// A value that the format forbids.
    Forbidden {
        /// The parameter it is in; `None`: a header.
        parameter: Option<ParameterId>,
        /// The field.
        field: &'static str,
    },
}

impl EncodeError {
    /// Shorthand for a forbidden value in a header.
    pub(crate) const fn header(field: &'static str) -> Self {
        Self::Forbidden { parameter: None, field }
    }
}

impl From<LengthOverflow> for EncodeError {
    fn from(overflow: LengthOverflow) -> Self {
        Self::Length(overflow)
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QSPEC: ")?;
        match self {
            Self::Length(overflow) => overflow.fmt(f),
            Self::Empty(None) => f.write_str("no objects"),
            Self::Empty(Some(object)) => write!(f, "{object}: no parameters"),
            Self::DuplicateObject(object) => write!(f, "{object}: occurs twice"),
            Self::DuplicateParameter(parameter) => write!(f, "{parameter}: occurs twice"),
            Self::Priorities => f.write_str(Problem::Priorities.text()),
            Self::Forbidden { parameter: Some(parameter), field } => {
                write!(f, "{parameter}: {field} forbids this value")
            }
            Self::Forbidden { parameter: None, field } => write!(f, "{field} forbids this value"),
        }
    }
}

impl core::error::Error for EncodeError {}
