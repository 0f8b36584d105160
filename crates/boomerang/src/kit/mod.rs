//! What tests, benchmarks and fuzz targets of Boomerang have in common. The feature `kit` has it; no program of users needs it.
//!
//! [`message`] and [`flow`] compose what an initiating node sends, [`packet`] is the packet that brings it, and [`request`] is what a user
//! of this node asks for. [`World`] is a node with its admission control, its clock, and a kernel that answers; what it sends is kept until
//! it is taken.
//!
//! ```
//! use signalbox_boomerang::kit::{World, flow, interface, message, packet};
//! use signalbox_boomerang::engine::{Config, Input};
//! use signalbox_boomerang::wire::{Ends, Pass, Qos, Rates};
//!
//! let links = signalbox_resources::Config::of_link("*", "1mbit".parse().unwrap());
//! let mut world = World::new(Config::default(), links, [1; 32]).unwrap();
//! world.interfaces(&[interface(1, vec![[192, 0, 2, 254].into()]), interface(2, vec![[10, 1, 0, 1].into()])]);
//!
//! let ends = Ends { src: [192, 0, 2, 1].into(), dst: [198, 51, 100, 2].into() };
//! let rates = Rates { forward: 64_000, reverse: 0 };
//! let mut octets = Vec::new();
//! message(Pass::Request, flow(ends.src, ends.dst, 4000), Qos::BitRate(rates)).encode(&ends, &mut octets);
//! world.input(Input::Packet(packet(ends, 1, &octets)));
//! assert_eq!(world.sent[0].ends, ends, "it is sent on");
//! ```

mod world;

use core::net::{IpAddr, SocketAddr};

use signalbox_core::IfIndex;
use signalbox_core::packet::Received;

use crate::engine::{ENTRY, Request};
use crate::wire::{
    Body, Classifier, Ends, Flags, FlowSpec, Format, KEY_FIRST, Message, Options, Pass, Qos, Rates,
};

pub use signalbox_core::kit::interface;
pub use world::{Sent, World};

const UDP: u8 = 17;
/// The class of flows and requests: expedited forwarding.
const EF: u8 = 46;
const PORT: u16 = 5004;

/// The UDP flow from this port to port 5004, with the class of telephony.
pub const fn flow(src: IpAddr, dst: IpAddr, src_port: u16) -> FlowSpec {
    let tos = EF << 2;
    FlowSpec::exact(Classifier { src, dst, src_port, dst_port: PORT, protocol: UDP, tos, flags: 0 })
}

/// The first message of a session. Its user changes what is to be otherwise.
pub fn message(pass: Pass, flow: FlowSpec, qos: Qos<'_>) -> Message<'_> {
    Message {
        pass,
        identifier: 7,
        sequence: 9,
        transaction: 1,
        format: Format::of(flow.family(), qos.format()),
        flags: Flags::default(),
        refresh: 30,
        padding: 0,
        key: KEY_FIRST,
        body: Some(Body { flow, qos, options: Options::none() }),
    }
}

/// The packet that brings a message to this interface.
pub const fn packet(ends: Ends, ifindex: u32, payload: &[u8]) -> Received<'_> {
    Received {
        entry: ENTRY,
        src: SocketAddr::new(ends.src, 0),
        dst: SocketAddr::new(ends.dst, 0),
        ifindex: IfIndex(ifindex),
        ttl: 64,
        tos: 0,
        options: &[],
        payload,
    }
}

/// What a user of the node asks for.
pub fn request(far_end: IpAddr, rates: Rates) -> Request {
    Request {
        far_end,
        src: None,
        dst: None,
        protocol: Some(UDP),
        src_port: Some(4000),
        dst_port: Some(PORT),
        dscp: EF,
        rates: vec![rates],
        intserv: None,
        refresh: None,
        user: None,
        confirm_release: false,
        name_nodes: false,
    }
}
