//! Decoding and encoding of GIST messages (RFC 5971, Appendix A).
//!
//! [`Message`] is one borrowed view for both: `parse` fills it from a receive buffer without allocation, `encode` appends
//! it to a send buffer. [`error_object_for`] makes of a [`DecodeError`] the Error object that a receiver must send.
//!
//! A node that forwards a Query of an application that it does not have uses only [`Header::parse`], and [`find_mri`] for
//! the check of wildcards; the rest of the message is not checked.

mod code_points;
mod encode;
mod error_object;
mod header;
mod list;
mod message;
mod mri;
mod nat;
mod nli;
mod object;
mod report;
mod stack;

pub use crate::error::{DecodeError, EncodeError, Fault, GistError, Problem};
pub use code_points::{ErrorClass, ErrorCode, InfoType, MaProtocolId, MessageType, MrmId, ObjectType};
pub use error_object::{ErrorObject, Info, Infos, InfosIter};
pub use header::{Encapsulation, HEADER_LENGTH, Header, VERSION};
pub use list::{Item, List, ListIter};
pub use message::Message;
pub use mri::{MriObject, mri_encode, mri_parse};
#[cfg(feature = "engine")]
pub(crate) use mri::{address, write_address};
pub use nat::{NatTraversal, Replaced, Translated};
pub use nli::Nli;
pub use object::{Extensibility, Objects, RawObject, Unknown, find_mri, find_object, find_session};
pub use report::{MAX_INFO_OBJECT, error_object_for, object_value_info};
pub use stack::{MaOptions, Profile, StackConfiguration, StackProposal};

/// Magic number of a GIST datagram, before the common header (RFC 5971 §5.3.1).
pub const MAGIC: [u8; 4] = [0x4e, 0x04, 0xbd, 0xa5];

/// UDP port of GIST (RFC 5971 §9).
pub const PORT: u16 = 270;

/// Removes the magic number of a UDP payload (RFC 5971 §5.3.1); `None` if there is no magic number.
#[must_use]
pub fn strip_magic(payload: &[u8]) -> Option<&[u8]> {
    payload.strip_prefix(&MAGIC)
}
