//! Admission control, policy and IntServ arithmetic for the outgoing links of a node, for every signaling protocol.
//!
//! * [`Resources`] exists once in a node. The node passes it to each of its engines. It admits, changes and releases
//!   reservations at outgoing interfaces, preempts weaker reservations for stronger requests, and reports which
//!   reservations the kernel has to install and which were lost.
//! * [`decision`] is the record of what became of requests, which the node takes from it.
//! * [`intserv`] is the arithmetic of RFC 2210, 2211, 2212 and 2215, usable on its own.
//! * [`config`] is the configuration: links, their shares, and policy rules. [`token`] verifies the authorization
//!   tokens of RFC 5981 that rules can demand.
//!
//! The crate has no code for any single protocol: an [`Owner`] identifies the protocol and its key of a reservation.
//! Nothing reads a clock: calls that need the time get it as an argument.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod admission;
pub mod config;
mod counters;
pub mod decision;
pub mod intserv;
pub mod opening;
pub mod passage;
mod policy;
pub mod refusal;
pub mod request;
pub mod requester;
mod secret;
pub mod token;
pub mod units;
pub mod view;

pub use admission::{Decided, Resources};
pub use config::{Config, ConfigError};
pub use counters::Counters;
pub use decision::{Decision, End};
pub use passage::{DryPassage, Passage, PassageRequest};
pub use refusal::{Cause, Refusal};
pub use request::{
    Admitted, Available, DryRun, During, GrantId, GrantRequest, LostWhy, Neighbor, Owner, Policing, Priority,
    Proof, RequestedBy, Requester, ResourceOutput,
};
pub use secret::Secret;
pub use units::Rate;
