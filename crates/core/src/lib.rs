//! What every room of Signalbox shares: time, identifiers, the tables and timers that state lives in, and
//! the contracts by which rooms meet.
//!
//! * [`node`] is the contract between the sans-IO whole and whoever drives it (daemon, simulator, replay,
//!   benchmark).
//! * [`packet`] and [`entry`] are the packets that go in and out, and the ports of entry that they use.
//! * [`service`] is the contract between GIST and its signaling applications (RFC 5971, Appendix B).
//! * [`security`] says who a peer has proved to be.
//! * [`mri`] names flows the way both sides of that contract do.
//! * [`traffic`] says what a reservation is to the kernel.
//! * [`slab`], [`index`], [`intern`] and [`wheel`] hold state and its timers: small ids, no copying growth, no
//!   allocation per message.
//! * [`outbox`] holds an application's messages until GIST has taken them.
//! * [`rng`], [`secret`], [`bucket`] and [`counter`] are the small tools that every engine needs.
//!
//! Nothing here reads a clock, opens a socket or starts a thread.

pub mod bucket;
pub mod counter;
pub mod entry;
pub mod id;
pub mod index;
pub mod intern;
pub mod mri;
pub mod node;
pub mod octets;
pub mod outbox;
pub mod packet;
pub mod rng;
pub mod secret;
pub mod security;
pub mod service;
pub mod slab;
pub mod stamp;
pub mod time;
pub mod traffic;
pub mod wheel;

pub use bucket::TokenBucket;
pub use entry::{AlertRule, Entry, EntryRequest, Intercept, Match};
pub use id::{IfIndex, NslpId, ReserverId, SessionId};
pub use index::{Index, KeyedHasher};
pub use intern::Interner;
pub use mri::{Direction, LooseEnd, Mri, PathCoupled};
pub use rng::Random;
pub use secret::RotatingSecret;
pub use security::Identity;
pub use slab::{Full, Key, Slab};
pub use time::Time;
pub use traffic::{FlowFilter, Reservation, ReservationId, ReserveError, TrafficSpec};
pub use wheel::{Link, Links, Wheel};
