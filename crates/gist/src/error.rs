//! Decode and encode errors, and the GIST errors that they raise (RFC 5971 A.4.4).

use core::fmt;

use signalbox_wire::LengthOverflow;

use crate::wire::{ErrorClass, ErrorCode, ObjectType};

/// An error code and subcode of the Error object (RFC 5971 A.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GistError {
    /// Severity.
    pub class: ErrorClass,
    /// The error code.
    pub code: ErrorCode,
    /// The subcode; 0 if the code has no subcodes.
    pub subcode: u8,
}

macro_rules! catalogue {
    ($($(#[$meta:meta])* $name:ident = $class:ident, $code:ident / $subcode:literal, $text:expr;)*) => {
        impl GistError {
            $($(#[$meta])* pub const $name: Self =
                Self { class: ErrorClass::$class, code: ErrorCode::$code, subcode: $subcode };)*

            /// The whole catalogue of RFC 5971 A.4.4, in its order.
            pub const CATALOGUE: &'static [Self] = &[$(Self::$name),*];

            /// Name of the subcode, or of a code without subcodes; `None` if it is not in the catalogue.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                $(if self.code.0 == ErrorCode::$code.0 && self.subcode == $subcode {
                    return Some($text);
                })*
                None
            }
        }
    };
}

catalogue! {
    /// 1/0.
    UNKNOWN_VERSION = PROTOCOL_ERROR, COMMON_HEADER_PARSE / 0, "Unknown Version";
    /// 1/1.
    UNKNOWN_TYPE = PROTOCOL_ERROR, COMMON_HEADER_PARSE / 1, "Unknown Type";
    /// 1/2.
    INVALID_R_FLAG = PROTOCOL_ERROR, COMMON_HEADER_PARSE / 2, "Invalid R-flag";
    /// 1/3; carries Message Length Info.
    INCORRECT_MESSAGE_LENGTH = PROTOCOL_ERROR, COMMON_HEADER_PARSE / 3, "Incorrect Message Length";
    /// 1/4.
    INVALID_E_FLAG = PROTOCOL_ERROR, COMMON_HEADER_PARSE / 4, "Invalid E-flag";
    /// 1/5.
    INVALID_C_FLAG = PROTOCOL_ERROR, COMMON_HEADER_PARSE / 5, "Invalid C-flag";
    /// 2.
    HOP_LIMIT_EXCEEDED = PERMANENT_FAILURE, HOP_LIMIT_EXCEEDED / 0, "Hop Limit Exceeded";
    /// 3.
    INCORRECT_ENCAPSULATION = PROTOCOL_ERROR, INCORRECT_ENCAPSULATION / 0, "Incorrect Encapsulation";
    /// 4.
    INCORRECTLY_DELIVERED = PROTOCOL_ERROR, INCORRECTLY_DELIVERED / 0, "Incorrectly Delivered Message";
    /// 5.
    NO_ROUTING_STATE = PROTOCOL_ERROR, NO_ROUTING_STATE / 0, "No Routing State";
    /// 6.
    UNKNOWN_NSLPID = PERMANENT_FAILURE, UNKNOWN_NSLPID / 0, "Unknown NSLPID";
    /// 7; class Permanent-Failure although §4.3.4 calls it informational.
    ENDPOINT_FOUND = PERMANENT_FAILURE, ENDPOINT_FOUND / 0, "Endpoint Found";
    /// 8; carries MTU Info.
    MESSAGE_TOO_LARGE = PERMANENT_FAILURE, MESSAGE_TOO_LARGE / 0, "Message Too Large";
    /// 9/0; code 9 carries Object Type Info.
    DUPLICATE_OBJECT = PROTOCOL_ERROR, OBJECT_TYPE / 0, "Duplicate Object";
    /// 9/1.
    UNRECOGNISED_OBJECT = PROTOCOL_ERROR, OBJECT_TYPE / 1, "Unrecognised Object";
    /// 9/2.
    MISSING_OBJECT = PROTOCOL_ERROR, OBJECT_TYPE / 2, "Missing Object";
    /// 9/3.
    INVALID_OBJECT_TYPE = PROTOCOL_ERROR, OBJECT_TYPE / 3, "Invalid Object Type";
    /// 9/4.
    UNTRANSLATED_OBJECT = PROTOCOL_ERROR, OBJECT_TYPE / 4, "Untranslated Object";
    /// 9/5.
    INVALID_EXTENSIBILITY_FLAGS = PROTOCOL_ERROR, OBJECT_TYPE / 5, "Invalid Extensibility Flags";
    /// 10/0; code 10 carries Object Value Info.
    INCORRECT_LENGTH = PROTOCOL_ERROR, OBJECT_VALUE / 0, "Incorrect Length";
    /// 10/1.
    VALUE_NOT_SUPPORTED = PROTOCOL_ERROR, OBJECT_VALUE / 1, "Value Not Supported";
    /// 10/2.
    INVALID_FLAG_FIELD_COMBINATION = PROTOCOL_ERROR, OBJECT_VALUE / 2, "Invalid Flag-Field Combination";
    /// 10/3.
    EMPTY_LIST = PROTOCOL_ERROR, OBJECT_VALUE / 3, "Empty List";
    /// 10/4.
    INVALID_COOKIE = PROTOCOL_ERROR, OBJECT_VALUE / 4, "Invalid Cookie";
    /// 10/5; carries two Object Value Infos.
    STACK_MISMATCH = PROTOCOL_ERROR, OBJECT_VALUE / 5, "Stack-Proposal - Stack-Configuration-Data Mismatch";
    /// 11.
    INVALID_IP_TTL = PERMANENT_FAILURE, INVALID_IP_TTL / 0, "Invalid IP-Layer TTL";
    /// 12/0; code 12 carries Object Value Info with the MRI.
    MRI_TOO_WILD = PERMANENT_FAILURE, MRI_VALIDATION / 0, "MRI Too Wild";
    /// 12/1.
    IP_VERSION_MISMATCH = PERMANENT_FAILURE, MRI_VALIDATION / 1, "IP Version Mismatch";
    /// 12/2.
    INGRESS_FILTER_FAILURE = PERMANENT_FAILURE, MRI_VALIDATION / 2, "Ingress Filter Failure";
}

impl fmt::Display for GistError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}", self.code.0, self.subcode, self.code)?;
        match self.name() {
            Some(name) if Some(name) != self.code.name() => write!(f, ": {name}"),
            _ => Ok(()),
        }
    }
}

/// The cause of a decode error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// They do not follow the format.
    Malformed,
    /// The format is correct, but RFC 5971 forbids these contents.
    Misbehaved,
    /// The octets may be correct, but this node does not know their meaning.
    Unsupported,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed",
            Self::Misbehaved => "misbehaved",
            Self::Unsupported => "unsupported",
        })
    }
}

/// What is wrong with received octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Problem {
    /// Less than a common header. It cannot be answered.
    ShortHeader,
    /// An unknown GIST version.
    UnknownVersion,
    /// An unknown message type.
    UnknownType,
    /// R does not fit the message type (or the Responder-Cookie).
    RFlag,
    /// The length in the header, the lengths of the objects and the number of octets do not agree.
    MessageLength {
        /// Length in words as the objects add up to.
        calculated: u16,
    },
    /// E in a message that is not Data.
    EFlag,
    /// C does not fit the message type and encapsulation.
    CFlag,
    /// The message type is not allowed in this encapsulation (§5.5).
    Encapsulation,
    /// An object occurs twice.
    Duplicate,
    /// An object of unknown type with AB=00.
    Unrecognised,
    /// An object that the grammar demands is not there.
    Missing,
    /// A known object that the grammar of the message does not allow, or allows only at an earlier place.
    NotAllowed,
    /// AB=11.
    ExtensibilityFlags,
    /// The object's length does not fit its contents.
    ObjectLength,
    /// A field's value is reserved or not known.
    Value,
    /// Flags and fields exclude each other.
    FlagField,
    /// A stack profile without protocols.
    EmptyList,
    /// Stack-Proposal and Stack-Configuration-Data contradict each other.
    StackMismatch,
}

impl Problem {
    /// Words for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::ShortHeader => "shorter than a common header",
            Self::UnknownVersion => "unknown version",
            Self::UnknownType => "unknown message type",
            Self::RFlag => "R-flag does not fit the message",
            Self::MessageLength { .. } => "message length does not fit the objects",
            Self::EFlag => "E-flag outside a Data message",
            Self::CFlag => "C-flag does not fit the message",
            Self::Encapsulation => "message type not allowed in this encapsulation",
            Self::Duplicate => "object occurs twice",
            Self::Unrecognised => "unknown object that must be understood",
            Self::Missing => "object is missing",
            Self::NotAllowed => "object not allowed here",
            Self::ExtensibilityFlags => "extensibility flags A and B both set",
            Self::ObjectLength => "object length does not fit its contents",
            Self::Value => "value not supported",
            Self::FlagField => "flags and fields exclude each other",
            Self::EmptyList => "empty list",
            Self::StackMismatch => "Stack-Proposal and Stack-Configuration-Data contradict each other",
        }
    }
}

/// Octets that are no acceptable GIST message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DecodeError {
    /// Object at fault (or missing); `None`: the common header or the message as a whole.
    pub object: Option<ObjectType>,
    /// Field at fault, in the RFC's words.
    pub field: &'static str,
    /// Offset of the field in octets from the start of the common header.
    pub offset: usize,
    /// Offset of the object's TLV header; `offset` if there is no such object.
    pub object_start: usize,
    /// The value of the field.
    pub value: u64,
    /// What is wrong.
    pub problem: Problem,
}

impl DecodeError {
    /// The GIST error that it raises (RFC 5971 A.4.4); `None` if RFC 5971 has no error for it.
    #[must_use]
    pub const fn gist_error(&self) -> Option<GistError> {
        Some(match self.problem {
            Problem::ShortHeader => return None,
            Problem::UnknownVersion => GistError::UNKNOWN_VERSION,
            Problem::UnknownType => GistError::UNKNOWN_TYPE,
            Problem::RFlag => GistError::INVALID_R_FLAG,
            Problem::MessageLength { .. } => GistError::INCORRECT_MESSAGE_LENGTH,
            Problem::EFlag => GistError::INVALID_E_FLAG,
            Problem::CFlag => GistError::INVALID_C_FLAG,
            Problem::Encapsulation => GistError::INCORRECT_ENCAPSULATION,
            Problem::Duplicate => GistError::DUPLICATE_OBJECT,
            Problem::Unrecognised => GistError::UNRECOGNISED_OBJECT,
            Problem::Missing => GistError::MISSING_OBJECT,
            Problem::NotAllowed => GistError::INVALID_OBJECT_TYPE,
            Problem::ExtensibilityFlags => GistError::INVALID_EXTENSIBILITY_FLAGS,
            Problem::ObjectLength => GistError::INCORRECT_LENGTH,
            Problem::Value => GistError::VALUE_NOT_SUPPORTED,
            Problem::FlagField => GistError::INVALID_FLAG_FIELD_COMBINATION,
            Problem::EmptyList => GistError::EMPTY_LIST,
            Problem::StackMismatch => GistError::STACK_MISMATCH,
        })
    }

    /// The cause of the error.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        match self.problem {
            Problem::UnknownVersion | Problem::UnknownType | Problem::Unrecognised | Problem::Value => {
                Fault::Unsupported
            }
            Problem::RFlag
            | Problem::EFlag
            | Problem::CFlag
            | Problem::Encapsulation
            | Problem::Duplicate
            | Problem::Missing
            | Problem::NotAllowed
            | Problem::StackMismatch => Fault::Misbehaved,
            Problem::ShortHeader
            | Problem::MessageLength { .. }
            | Problem::ExtensibilityFlags
            | Problem::ObjectLength
            | Problem::FlagField
            | Problem::EmptyList => Fault::Malformed,
        }
    }

    /// An error of the common header or the whole message.
    pub(crate) const fn header(problem: Problem, field: &'static str, offset: usize, value: u64) -> Self {
        Self { object: None, field, offset, object_start: offset, value, problem }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.object {
            Some(object) => write!(f, "{object}: ")?,
            None => f.write_str("message: ")?,
        }
        write!(f, "{} at octet {}: {} (value {})", self.field, self.offset, self.problem.text(), self.value)
    }
}

impl core::error::Error for DecodeError {}

/// The reason why a message cannot be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodeError {
    /// A part is longer than its length field allows.
    Length(LengthOverflow),
    /// A value that the format forbids.
    Forbidden {
        /// The object it is in; `None`: the common header.
        object: Option<ObjectType>,
        /// The field.
        field: &'static str,
    },
}

impl EncodeError {
    /// Shorthand for a forbidden value.
    pub(crate) const fn forbidden(object: ObjectType, field: &'static str) -> Self {
        Self::Forbidden { object: Some(object), field }
    }
}

impl From<LengthOverflow> for EncodeError {
    fn from(overflow: LengthOverflow) -> Self {
        Self::Length(overflow)
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(overflow) => overflow.fmt(f),
            Self::Forbidden { object: Some(object), field } => {
                write!(f, "{object}: {field} forbids this value")
            }
            Self::Forbidden { object: None, field } => write!(f, "common header: {field} forbids this value"),
        }
    }
}

impl core::error::Error for EncodeError {}
