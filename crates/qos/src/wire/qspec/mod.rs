//! The octets of the QSPEC (RFC 5975 §5, RFC 5976 §3), both ways.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+-+---------+---+---------------+-----------------------+
//! | Vers. |I|  Type   |r r|   Procedure   |  Length of all below  |   common header
//! +-+-----+-+---------+---+-------+-------+-----------------------+
//! |E|r r r|      Object type      |r r r r|  Length of all below  |   up to four objects, each with
//! +-+-+-+-+-----------------------+-------+-----------------------+
//! |M|E|N|r|     Parameter id      |r r r r|        Length         |   one parameter or more
//! +-+-+-+-+-----------------------+-------+-----------------------+
//! //                            Value                            //
//! ```
//!
//! Lengths are in words of 32 bits, without the header that they stand in.
//!
//! Reading has two depths. [`Qspec::frame`] checks only what must hold to find the parts: version, lengths,
//! types of objects. [`Qspec::faults`] then lists everything else that is wrong, because a receiver has to flag
//! every bad parameter and not only the first (§4.2.1); [`Qspec::parse`] is both, and gives the first fault.
//! Nothing is copied: all parts are views into the received octets.
//!
//! What is composed goes through [`Composer`], which refuses what the format forbids.
//!
//! **Local QSPECs** (§4.1) end with the Initiator QSPEC that they stand for. Both kinds of header have their
//! length in the same twelve bits, so the last element of a Local QSPEC, whose length ends exactly
//! at the end of the QSPEC, is that Initiator QSPEC.

mod admission;
mod classes;
mod code_points;
mod compose;
mod element;
mod error;
mod header;
mod parse;
mod tmod;
mod value;
mod view;

pub use admission::{Admission, Preemption, Restoration, Rph};
pub use classes::{Excess, PhbClass, Y1541Objectives, y1541_objectives};
pub use code_points::{
    AdmissionPriority, ExcessTreatment, MessageSequence, ObjectType, ParameterId, Procedure, QspecType,
    RestorationPriority,
};
pub use compose::{Composer, ObjectComposer};
pub use element::{Flags, Object, Objects, Parameter, Parameters};
pub use error::{EncodeError, Outcome, Problem, QspecError};
pub use header::{HEADER_LENGTH, Header, VERSION};
pub use parse::Qspec;
pub use tmod::{MAX_BUCKET, MAX_RATE, Tmod};
pub use value::{INDETERMINATE, INDETERMINATE_RATIO, Jitter, Value};
pub use view::Field;
