//! Octets of CASP (draft-schulzrinne-nsis-casp-01). `docs/wire/casp.md` has drawings and test vectors.
//!
//! [`Message`] is a message from its Common Header on. [`frame`] and [`framed`] are the Length Header of streams.
//! [`route`] is the record of nodes that messages without state carry, an extension of this suite.

mod code_points;
mod flow_id;
mod listed;
mod message;
pub mod natfw;
mod object;
pub mod ping;
pub mod qos;
pub mod route;
mod stream;

pub use crate::error::{DecodeError, EncodeError, FramingError};
pub use code_points::{Class, ClientType, ErrorCode, Flags, FlowForm, MessageType, ONLY};
pub use flow_id::{FlowError, FlowId};
pub use listed::Listed;
pub use message::{Body, Cookie, FIRST_TTD, HEADER, Header, Message, Proof, Signaling};
pub use object::{MAX_CONTENTS, OBJECT_HEADER, Object, Objects, write};
pub use stream::{LENGTH_HEADER, frame, framed};
