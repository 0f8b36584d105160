//! Parts that all crates of Signalbox share: time, identifiers, the tables and timers that hold state, and
//! the contracts between crates.
//!
//! * [`node`] is the contract between a node without I/O and the driver that runs it (daemon, simulator,
//!   replay, benchmark).
//! * [`packet`] and [`entry`] are the packets that go in and out, and the ports of entry that they use.
//! * [`service`] is the contract between GIST and its signaling applications (RFC 5971, Appendix B).
//! * [`security`] is the proved identity of a peer.
//! * [`mri`] is the Message Routing Information, by which both sides of that contract describe a flow, and [`flow`] its packed
//!   form for records.
//! * [`traffic`] is a reservation and [`pinhole`] a passage through a firewall or NAT, as the kernel implements them.
//! * [`slab`], [`index`], [`intern`] and [`wheel`] hold state and its timers: with small ids, with growth
//!   that copies no records, and without allocation per message.
//! * [`rare`] is for parts of records that few records have: a vector, or fields.
//! * [`recent`] lets records with equal values share them, where values are many over time and few at a time.
//! * [`handover`] is what a node that ends leaves to the node that starts in its place.
//! * [`outbox`] holds an application's messages until GIST has taken them, and [`outputs`] puts them in order with its other outputs.
//! * [`shares`] limits what one source takes of a table or of a rate.
//! * [`mod@invariant`] reports what an engine's own state must have and lacks.
//! * [`counter`] and [`metrics`] are the counters of engines, and the names by which monitoring systems see them.
//! * [`rng`], [`secret`] and [`bucket`] are the small tools that every engine needs.
//!
//! The crate reads no clock, opens no socket and starts no thread. Time is always a parameter.
//!
#![doc = include_str!("../README.md")]

pub use signalbox_wire::hops;

pub mod bucket;
pub mod changes;
pub mod counter;
pub mod entry;
pub mod fair_rate;
pub mod flow;
pub mod handover;
pub mod id;
pub mod index;
pub mod intern;
pub mod invariant;
#[cfg(feature = "kit")]
pub mod kit;
pub mod metrics;
pub mod mri;
pub mod node;
pub mod octets;
pub mod outbox;
pub mod outputs;
pub mod packet;
pub mod pinhole;
pub mod ports;
pub mod rare;
pub mod recent;
pub mod rng;
pub mod secret;
pub mod security;
pub mod service;
pub mod shared_rate;
pub mod shares;
pub mod slab;
pub mod stamp;
pub mod time;
pub mod traffic;
pub mod wheel;

pub use bucket::TokenBucket;
pub use changes::{Changes, SessionChange, SessionEvent};
pub use counter::{Count, Counter};
pub use entry::{
    AlertRule, Entry, EntryRequest, Intercept, Interfaces, Match, Reach, Through, Towards, Unproved,
};
pub use fair_rate::{Causer, FairRate};
pub use flow::Flow;
pub use id::{IfIndex, NslpId, ReserverId, SessionId};
pub use index::{Index, KeyedHasher};
pub use intern::Interner;
pub use mri::{Direction, LooseEnd, Mri, PathCoupled};
pub use rare::{Rare, RareVec};
pub use recent::Recent;
pub use rng::Random;
pub use secret::RotatingSecret;
pub use security::Identity;
pub use shared_rate::SharedRate;
pub use slab::{Full, Key, Slab};
pub use time::Time;
pub use traffic::{FlowFilter, Reservation, ReservationId, ReserveError, TrafficSpec};
pub use wheel::{Link, Links, Wheel};
