//! What tests, benchmarks and fuzz targets of RSVP have in common. The feature `kit` has it; no program of users needs it.
//!
//! [`World`] is a node with four interfaces, its admission control, its clock, and a kernel that answers. Interface *n* is `eth`*n*, number
//! *n*, with addresses `10.0.n.1` and `fd00:n::1`. Each has 10 Mbit/s, of which reservations may have 7.5. [`World::route`] sets the routes of
//! destinations; others have no route. Neighbor `k` at interface *n* is `10.0.n.k` ([`at`]). [`Path`] and [`Resv`] compose its messages.
//!
//! ```
//! use signalbox_rsvp::kit::{Path, World, at, one};
//! use signalbox_rsvp::wire::MessageType;
//!
//! let mut world = World::new(); // 10.9.0.0/16 goes out by eth2
//! let sent = world.path(&Path::new()); // from 10.0.1.9 by eth1
//! let path = one(&sent, MessageType::PATH); // what left
//! assert_eq!(path.message().hop.unwrap().addr, at(2, 1));
//! ```

mod peer;
mod sent;
mod world;

use core::net::IpAddr;
use std::sync::OnceLock;

use signalbox_core::IfIndex;
use signalbox_resources::intserv::{RSpec, TSpec};

use crate::engine::IpReceived;
use crate::wire::{Filter, FlowSpec, Selector, Session, SessionKind};

pub use peer::{Path, Resv, compose};
pub use sent::{Reply, Sent, all, kinds, one, one_to};
pub use signalbox_core::kit::interface;
pub use world::World;

/// Refresh period of the neighbors by default, milliseconds.
pub const R: u32 = 30_000;

/// A unit of rate: 10 000 octets a second. A link has 93 of them.
pub const B: f32 = 10_000.0;

/// An address.
pub fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Neighbor `k` at interface `n`.
pub fn at(n: u32, k: u32) -> IpAddr {
    IpAddr::from([10, 0, octet(n), octet(k)])
}

fn octet(number: u32) -> u8 {
    number.try_into().expect("an octet of an address")
}

/// The logical interface handle of a [`World`] at interface `n`, the same in all worlds: they have the same seed.
pub fn handle(n: u32) -> u32 {
    static HANDLES: OnceLock<Vec<Option<u32>>> = OnceLock::new();
    let all = HANDLES.get_or_init(|| {
        let world = World::new();
        (0..=4).map(|n| world.rsvp.handle_of(IfIndex(n))).collect()
    });
    let handle = usize::try_from(n).ok().and_then(|n| *all.get(n)?);
    handle.expect("an interface of the node")
}

/// The session of most scripts: UDP to a unicast receiver behind eth2.
pub fn session() -> Session {
    to("10.9.0.1")
}

/// UDP port 5004 of a destination.
pub fn to(dest: &str) -> Session {
    Session { dest: addr(dest), protocol: 17, kind: SessionKind::Ports, port: 5004 }
}

/// The multicast session of most scripts.
pub fn group() -> Session {
    to("239.1.1.1")
}

/// Sender `n` of most scripts: `10.8.0.n`, port 4000.
pub fn sender(n: u32) -> Filter {
    Filter { src: IpAddr::from([10, 8, 0, octet(n)]), selector: Selector::Port(4000) }
}

/// A Tspec with this rate in octets a second, a bucket of 3000, packets of 64 to 1500.
pub fn tspec(rate: f32) -> TSpec {
    TSpec::new(rate, 3000.0, f32::INFINITY, 64, 1500).expect("a rate")
}

/// Controlled load with this rate in octets a second.
pub fn load(rate: f32) -> FlowSpec {
    FlowSpec { tspec: tspec(rate), rspec: None }
}

/// Guaranteed service with this rate in octets a second.
pub fn guaranteed(rate: f32, service: f32, slack: u32) -> FlowSpec {
    FlowSpec { tspec: tspec(rate), rspec: Some(RSpec::new(service, slack).expect("a rate")) }
}

/// The packet that brings a message to this interface.
pub const fn packet(iif: u32, src: IpAddr, dst: IpAddr, ttl: u8, payload: &[u8]) -> IpReceived<'_> {
    IpReceived { src, dst, ifindex: IfIndex(iif), ttl, tos: 0xc0, router_alert: true, payload }
}
