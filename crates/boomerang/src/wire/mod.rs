//! Octets of Boomerang (draft-bergkvist-boomerang-spec-00). `docs/wire/boomerang.md` has drawings and test vectors.
//!
//! A message is an ICMP or ICMPv6 Echo. Its data are the container header, the reservation message and options.
//! [`Message`] is a view of received octets. A node on the path changes fields in place: [`edit`].

mod checksum;
mod code_points;
pub mod edit;
mod flow;
pub mod icmp_error;
mod intserv;
mod message;
mod option;
mod qos;
pub mod signed;

pub use crate::error::DecodeError;
pub use checksum::{Ends, checksum, checksum_is_valid};
pub use code_points::{Family, Flags, Format, MessageType, OptionType, Pass, QosFormat};
pub use flow::{Classifier, FlowSpec};
pub use icmp_error::{Dropped, Unreachable};
pub use intserv::Parameters;
pub use message::{Body, CONTAINER, KEY_FIRST, MAGIC, Message, VERSION};
pub use option::{
    Aggregation, Authentication, DIGEST_OCTETS, Known, Nodes, Note, OF_REPLY, Options, Placed, Refusal,
    ReturnProof, UserId,
};
pub use qos::{Downgrade, IntServ, MAX_PAIRS, Qos, Rates};
