//! Networks of Signalbox nodes in virtual time.
//!
//! A [`Sim`] holds nodes and links. A node is a plain router, or runs an engine: any type that keeps the
//! contract of [`signalbox_core::node`]. Packets are of any IP protocol over IPv4 or IPv6. Routers forward
//! them by longest prefix and decrement their TTL. A node with a running engine receives the packets of the
//! entries that the engine asks for ([`NodeEngine::entries`](signalbox_core::node::NodeEngine::entries)), and
//! those that pass by and meet the entry's interception rule, like the daemon from the kernel. A node answers
//! Echo Requests that no engine of it receives. Multicast packets follow the routes that the test sets
//! ([`Sim::set_multicast_route`]). Links lose, delay, reorder and duplicate packets at random, from a seed; the
//! two directions are independent.
//!
//! Streams are TCP as applications see it: octets arrive complete and in order, in segments of any size,
//! after the delays of the routed path. Loss delays them; on a path that stays broken the stream times out.
//!
//! The same seed gives the same run, octet by octet. `SIGNALBOX_SEED` in the environment replaces a test's
//! seed, and a test that fails while a [`Sim`] lives prints the seed. An engine whose own state is not as it must be
//! ([`mod@signalbox_core::invariant`]) panics, also in a release build.
//!
//! ```
//! # use signalbox_sim::{Family, LinkConfig, Sim, topology};
//! # use signalbox_core::node::{Input, NodeEngine, Output};
//! # use signalbox_core::Time;
//! # struct Deaf;
//! # impl NodeEngine for Deaf {
//! #     type Command = (); type Event = ();
//! #     fn handle(&mut self, _: Time, _: Input<'_, ()>) {}
//! #     fn poll(&mut self) -> Option<Output<'_, ()>> { None }
//! #     fn next_deadline(&self) -> Option<Time> { None }
//! # }
//! let mut sim = Sim::new(7);
//! let nodes = sim.add_engines(3, |boot| { let _ = boot.seed; Deaf });
//! topology::chain(&mut sim, &nodes, &LinkConfig::default());
//! let far_end = sim.address(nodes[2], Family::V4);
//! sim.run_for(std::time::Duration::from_secs(1));
//! assert_eq!(far_end.to_string(), "10.0.0.6");
//! ```

mod config;
pub mod explore;
mod network;
mod packet;
mod routing;
mod seed;
mod sim;
mod stream;
pub mod topology;

pub use config::{Family, Impairment, LinkConfig, LinkId, NextHop, NodeId};
pub use packet::{Captured, Fate, Packet};
pub use seed::seed_from_environment;
pub use sim::{Boot, Counters, Happened, Sim};
pub use stream::StreamConfig;
