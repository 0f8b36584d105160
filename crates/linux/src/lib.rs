//! The only crate that reaches the kernel.
//!
//! * [`Io`] is what the daemon drives a node with: packets of any port of entry in batches, their interception, route
//!   lookups, interfaces, changes of both; its [`stream::Streams`] are the TCP connections and SCTP associations of
//!   messaging associations.
//! * [`capability`] lists before the start what is missing and what to do about it.
//! * [`netns`], [`topology`], [`multicast`], [`process`], [`capture`] and [`relay`] are what the lab and tests build networks of.
//! * [`diagnosis`] has the sockets of a program that asks RSVP nodes for a diagnosis.
//! * [`traffic`] makes the kernel enforce reservations.
//! * [`clock`] and [`memory`] are measurements of this process and machine.
//!
//! Everything made here is found again and removed by name or number: the nftables tables `signalbox`, `signalbox_ip46`
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
pub mod relay;
pub mod stream;
mod sys;
pub mod topology;
pub mod traffic;

pub use error::OpenError;
pub use io::{Batch, CounterValue, Failure, Io, IoConfig, IpCounters, Ready, UdpCounters, Waker};
pub use netlink::{Change, MulticastRoute};
pub use stream::kernel_speaks_sctp;
