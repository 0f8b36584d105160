//! What every room of Signalbox shares: time, identifiers, the tables and timers that state lives in, and
//! the contracts by which rooms meet.
//!
//! * [`node`] is the contract between the sans-IO whole and whoever drives it (daemon, simulator, replay,
//!   benchmark).
//! * [`service`] is the contract between GIST and its signaling applications (RFC 5971, Appendix B).
//! * [`mri`] names flows the way both sides of that contract do.
//!
//! Nothing here reads a clock, opens a socket or starts a thread.

pub mod id;
pub mod mri;
pub mod node;
pub mod packet;
pub mod service;
pub mod time;

pub use id::{IfIndex, NslpId, SessionId};
pub use mri::{Direction, LooseEnd, Mri, PathCoupled};
pub use time::Time;
