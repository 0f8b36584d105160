//! Octets of the QoS client (draft-schulzrinne-nsis-casp-qos-01): the contents of CLIENT_DATA of C-Type 1.
//! `docs/wire/casp-qos.md` has drawings and test vectors.

mod code_points;
mod message;
mod values;

pub use code_points::{QosClass, QosErrorCode, QosFlags, QosType, QosVersion};
pub use message::{QosFault, QosMessage};
pub use values::{Bandwidth, Flowspec, Local, Partial, Refusal};
