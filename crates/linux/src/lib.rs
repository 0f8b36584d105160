//! The one room that reaches the kernel.
//!
//! * [`Io`] is what the daemon drives a node with: datagrams in batches, interception of what passes by with a
//!   Router Alert, route lookups, interfaces, changes of both; its [`stream::Streams`] are the TCP connections of
//!   messaging associations, and [`sctp`] and [`rsvp`] packets go through it as well.
//! * [`capability`] says before the start what is missing and what to do about it.
//! * [`netns`], [`topology`], [`multicast`], [`process`], [`capture`] and [`relay`] are what the lab and tests build networks of.
//! * [`diagnosis`] is what a program asks RSVP nodes with.
//! * [`traffic`] makes the kernel keep what was reserved.
//! * [`clock`] and [`memory`] are measurements of this process and machine.
//!
//! Everything made here is found again and removed by name or number: the nftables tables `signalbox`, `signalbox_rsvp`
//! and `signalbox_traffic`, the rule and route with the configured mark and table, the qdisc `5342:`.

pub mod capability;
pub mod capture;
pub mod clock;
pub mod diagnosis;
mod error;
mod intercept;
mod io;
pub mod memory;
pub mod multicast;
mod netlink;
pub mod netns;
pub mod process;
mod raw;
pub mod relay;
pub mod rsvp;
pub mod sctp;
pub mod stream;
mod sys;
pub mod topology;
pub mod traffic;

pub use error::OpenError;
pub use io::{Batch, Io, IoConfig, IoCounters, Ready, Waker};
pub use netlink::{Change, MulticastRoute};
