//! What tests and fuzz targets of the QoS application have in common. The feature `kit` has it; no program of users needs it.
//!
//! [`World`] is a node between two peers, with its admission control, its clock, a scripted GIST and a kernel that answers. [`reserve`],
//! [`qspec`] and [`octets`] compose what its peers send; [`World::receive`] and [`World::back`] are the messages of the previous and of the
//! next one.
//!
//! ```
//! use signalbox_qos::kit::{World, qspec, reserve};
//! use signalbox_qos::wire::MessageType;
//!
//! let mut world = World::new();
//! let sent = world.receive(&reserve(1, &qspec(10_000)));
//! assert_eq!(sent[0].message().kind, MessageType::RESERVE, "it goes on");
//! ```

mod world;

use core::net::IpAddr;

use signalbox_core::mri::PathCoupled;
use signalbox_core::service::SiiHandle;
use signalbox_core::{Mri, SessionId};
use signalbox_wire::Writer;

use crate::qspec::Wish;
use crate::wire::qspec::{Flags, Procedure, Tmod, Value};
use crate::wire::{Message, MessageFlags, MessageType, Rsn};

pub use world::{Sent, World};

/// The session of most scripts.
pub const SESSION: SessionId = SessionId([7; 16]);
/// The previous peer.
pub const BEFORE: SiiHandle = SiiHandle(1);
/// Another one.
pub const OTHER: SiiHandle = SiiHandle(2);
/// The next peer.
pub const BEHIND: SiiHandle = SiiHandle(3);
/// The epoch of the previous peer.
pub const EPOCH: u32 = 77;

/// An address.
pub fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The flow of most scripts: UDP to port 5004.
pub fn flow() -> Mri {
    flow_to(5004)
}

/// The same to another port.
pub fn flow_to(port: u16) -> Mri {
    let ends = PathCoupled::between(addr("192.0.2.1"), addr("203.0.113.9"));
    Mri::PathCoupled(PathCoupled { protocol: Some(17), dst_port: Some(port), ..ends })
}

/// That of a RESERVE.
pub fn qspec(rate: u16) -> Vec<u8> {
    wish(Procedure::DESIRED, rate.into())
}

/// That of a QUERY.
pub fn query_qspec(rate: u16) -> Vec<u8> {
    wish(Procedure::QUERY, rate.into())
}

/// That of a QUERY with RESERVE-INIT, and of the RESERVE that answers it.
pub fn init_qspec(rate: u16) -> Vec<u8> {
    wish(Procedure::RECEIVER_DESIRED, rate.into())
}

/// A QSPEC that asks for this rate, octets a second.
pub fn wish(procedure: Procedure, rate: f32) -> Vec<u8> {
    let tmod = Tmod { rate, bucket: 3000.0, peak: f32::INFINITY, min_policed: 64, max_packet: 1500 };
    let desired = [(Flags::MANDATORY, Value::Tmod1(tmod))];
    let mut octets = Vec::new();
    Wish::of(procedure, &desired).compose(&mut octets).expect("a QSPEC of one parameter");
    octets
}

/// A RESERVE with this RSN.
pub fn reserve(rsn: u32, qspec: &[u8]) -> Message<'_> {
    Message {
        flags: MessageFlags::REPLACE,
        rsn: Some(Rsn { number: rsn, epoch: EPOCH }),
        qspec: (!qspec.is_empty()).then_some(qspec),
        ..Message::new(MessageType::RESERVE)
    }
}

/// The octets of a message.
pub fn octets(message: &Message<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    message.encode(&mut Writer::new(&mut octets)).expect("a message that is not too long");
    octets
}
