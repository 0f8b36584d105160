//! The Error objects that report decode errors (RFC 5971 A.4).

use super::code_points::{ErrorCode, MessageType, ObjectType};
use super::error_object::{ErrorObject, Info, Infos};
use super::header::{Encapsulation, HEADER_LENGTH};
use super::mri::mri_parse;
use super::object::{find_object, find_session};
use crate::error::{DecodeError, GistError, Problem};

/// Octets of a faulty object that are quoted at most. With the other parts of an Error message this keeps
/// below 512 octets, which every path carries (RFC 5971 §5.3.3), and two of them do so as well; an object
/// that is longer is cut.
pub const MAX_INFO_OBJECT: usize = 160;

/// The Error object that reports `error` in the message `original`, which starts at the common header (RFC 5971 A.4).
/// `None` if no Error may be sent: for less than a common header, and for an Error message (§5.6).
///
/// It has the information that A.4.4 requires, and session and MRI if they can be parsed and the code is not 1.
#[must_use]
pub fn error_object_for<'a>(
    error: &DecodeError,
    original: &'a [u8],
    encapsulation: Encapsulation,
) -> Option<ErrorObject<'a>> {
    let gist_error = error.gist_error()?;
    let quote = |kind| {
        let offset = error.offset.saturating_sub(error.object_start);
        let offset = if error.object == Some(kind) { u16::try_from(offset).ok()? } else { 0 };
        object_value_info(original, kind, offset)
    };
    let infos = match (error.problem, error.object) {
        (Problem::MessageLength { calculated }, _) => Infos::one(Info::MessageLength(calculated)),
        (Problem::StackMismatch, _) => {
            Infos::some(quote(ObjectType::STACK_PROPOSAL), quote(ObjectType::STACK_CONFIGURATION))
        }
        (_, Some(kind)) if gist_error.code == ErrorCode::OBJECT_TYPE => Infos::one(Info::ObjectType(kind)),
        (_, Some(kind)) if gist_error.code == ErrorCode::OBJECT_VALUE => Infos::some(quote(kind), None),
        _ => Infos::NONE,
    };
    let mut object = ErrorObject::about(gist_error, original, encapsulation, infos)?;
    object.mri_octets = object.mri_octets.filter(|octets| mri_parse(octets).is_ok());
    Some(object)
}

/// Object Value Info (RFC 5971 A.4.3): the first object of type `kind` in `original`, and the offset of the wrong octet
/// from the start of its TLV header; `None` if there is no such object.
#[must_use]
pub fn object_value_info(original: &[u8], kind: ObjectType, offset: u16) -> Option<Info<'_>> {
    let object = find_object(original, kind)?.octets;
    let object = object.get(..MAX_INFO_OBJECT).unwrap_or(object);
    Some(Info::ObjectValue { offset, object })
}

impl<'a> ErrorObject<'a> {
    /// An Error object about the message `original`, which starts at the common header: with its header and, unless the
    /// code is 1 (A.4.4.1), its session and MRI. `None` if no Error may be sent: for less than a common header, and for an
    /// Error message (§5.6). The MRI is copied without a check, since a node without the application sends Errors too
    /// (§4.3.4).
    #[must_use]
    pub fn about(
        error: GistError,
        original: &'a [u8],
        encapsulation: Encapsulation,
        infos: Infos<'a>,
    ) -> Option<Self> {
        let header: [u8; HEADER_LENGTH] = *original.first_chunk()?;
        let [.., kind, _] = header;
        if kind & 0x7f == MessageType::ERROR.0 {
            return None;
        }
        let named = error.code != ErrorCode::COMMON_HEADER_PARSE;
        let mri = find_object(original, ObjectType::MRI).map(|o| o.value).filter(|v| v.len() / 4 <= 255);
        Some(Self {
            error,
            d_mode: encapsulation.is_datagram(),
            q_mode: encapsulation == Encapsulation::QMode,
            header,
            session: if named { find_session(original) } else { None },
            mri_octets: if named { mri } else { None },
            infos,
            comment: None,
        })
    }
}
