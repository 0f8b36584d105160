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
//! ```
//! use signalbox_core::node::{Interface, Prefix};
//! use signalbox_core::traffic::{FlowFilter, TrafficSpec};
//! use signalbox_core::{IfIndex, ReserverId, Time};
//! use signalbox_resources::{GrantRequest, Requester, Config, Owner, ResourceOutput, Resources};
//!
//! let mut resources = Resources::new(Config::of_link("eth1", "10mbit".parse()?), 0, [1; 32])?;
//! let eth1 = Interface { ifindex: IfIndex(2), name: "eth1".into(), up: true, mtu: 1500, tunnel: false, addresses: vec![] };
//! resources.interfaces(&[eth1]);
//!
//! let (from, to) = ("10.0.0.1".parse()?, "10.0.9.1".parse()?);
//! let flow = FlowFilter::between(Prefix::host(from), Prefix::host(to));
//! let traffic =
//!     TrafficSpec { rate: 500_000, burst: 15_000, peak: None, min_policed: 64, max_packet: 1500 };
//! let owner = Owner { protocol: ReserverId::RSVP, key: 7 };
//! let ask = GrantRequest::new(owner, Requester::at(from), IfIndex(2), flow, traffic);
//!
//! let admitted = resources.admit(Time::ZERO, &ask)?;
//! assert!(matches!(resources.poll(), Some(ResourceOutput::Install { .. })));
//! let another = FlowFilter { dst_port: Some(5004), protocol: Some(17), ..flow };
//! let refusal = resources
//!     .admit(Time::ZERO, &GrantRequest { filters: vec![another], ..ask.clone() })
//!     .unwrap_err();
//! assert_eq!(refusal.to_string(), "eth1: share: 4 of 7.5 Mbit/s in use, 4 Mbit/s asked");
//! resources.release(admitted.grant);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
    Admitted, Available, DryRun, During, GrantId, GrantRequest, LostWhy, Neighbour, Owner, Policing,
    Priority, Proof, RequestedBy, Requester, ResourceOutput,
};
pub use secret::Secret;
pub use units::Rate;
