//! The only crate that reaches the kernel.
//!
//! * [`Io`] is the daemon's driver of the network: packets of any port of entry in batches, their interception, route
//!   lookups, interfaces, and changes of both. Its [`stream::Streams`] are the TCP connections and SCTP associations of
//!   messaging associations.
//! * [`accounts`] are the users and groups of this host.
//! * [`capability`] lists before the start what is missing and what helps.
//! * [`helper`] is a process that holds the privileges, for a daemon that has none.
//! * [`confine`] takes privileges from the daemon after its start.
//! * [`netns`], [`topology`], [`multicast`], [`process`], [`capture`] and [`relay`] are the modules from which the lab
//!   and tests build networks.
//! * [`launch`] starts a program and finds the sockets that its processes have.
//! * [`diagnosis`] has the sockets of a program that requests a diagnosis from RSVP nodes.
//! * [`traffic`] makes the kernel enforce reservations.
//! * [`pinhole`] makes the kernel let flows pass a firewall, and translate them.
//! * `simulated` (a feature, for tests) is a kernel that a test makes.
//! * [`Leftovers`] is what a daemon that did not end in order left in the kernel.
//! * [`clock`] and [`memory`] measure this process and machine. [`program`] finds other programs of ours.
//!
//! Everything that this crate makes in the kernel has a fixed name or number, by which it is found and removed: the
//! nftables tables `signalbox`, `signalbox_ip46`, `signalbox_traffic` and `signalbox_pinholes`, the rule and route with the configured mark
//! and table, the qdisc `5342:`. Tables of a daemon of one VRF have its name, too ([`Scope`]).

pub mod accounts;
pub mod capability;
pub mod capture;
pub mod clock;
pub mod confine;
pub mod diagnosis;
mod error;
pub mod files;
pub mod helper;
pub mod ingress;
mod intercept;
mod io;
pub mod launch;
mod leftovers;
pub mod memory;
pub mod multicast;
mod netlink;
pub mod netns;
pub mod pinhole;
pub mod process;
pub mod program;
pub mod relay;
mod scope;
#[cfg(any(test, feature = "simulated-kernel"))]
pub mod simulated;
pub mod stream;
mod sys;
pub mod topology;
pub mod traffic;

pub use error::OpenError;
pub use io::{Batch, Failure, Io, IoConfig, IpCounters, Judged, Ready, UdpCounters, Undeliverable, Waker};
pub use leftovers::Leftovers;
pub use netlink::{Change, MulticastRoute, interface_names, rules_before, sent_octets};
pub use scope::Scope;
pub use stream::kernel_speaks_sctp;
pub use sys::kernel_version;
