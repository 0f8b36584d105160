//! What tests, benchmarks and fuzz targets of CASP have in common: flows, and what brings messages to a node and to its clients. The feature
//! `kit` has it; no program of users needs it.
//!
//! ```
//! use signalbox_casp::kit::{arrival, flow};
//! use signalbox_core::SessionId;
//!
//! let flow = flow([192, 0, 2, 1].into(), [198, 51, 100, 2].into(), 4000, 5004);
//! let arrival = arrival(1, SessionId([7; 16]), flow, b"hello");
//! assert!(!arrival.reverse && !arrival.last);
//! ```

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use signalbox_core::packet::Received;
use signalbox_core::{Entry, IfIndex, SessionId};

use crate::engine::Arrival;
use crate::wire::FlowId;
use crate::wire::qos::Flowspec;

pub use signalbox_core::kit::interface;

/// Lifetime of the sessions of the messaging layer, seconds.
pub const LIFETIME: u32 = 90;
const UDP: u8 = 17;

/// A flow of UDP.
pub const fn flow(src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> FlowId {
    FlowId::V4Ports { src, dst, src_port, dst_port, protocol: UDP }
}

/// Traffic of this rate, octets a second.
pub const fn flowspec(rate: f32) -> Flowspec {
    let (bucket, peak) = (3000.0, f32::INFINITY);
    Flowspec { rate, bucket, peak, min_policed: 64, max_packet: 1500, guaranteed: None }
}

/// The datagram that brings a message to this port by interface 1.
pub const fn packet(port: u16, from: IpAddr, to: IpAddr, payload: &[u8]) -> Received<'_> {
    Received {
        entry: Entry::Udp(port),
        src: SocketAddr::new(from, port),
        dst: SocketAddr::new(to, port),
        ifindex: IfIndex(1),
        ttl: 64,
        tos: 0,
        options: &[],
        payload,
    }
}

/// A message along the flow that the messaging layer gives to a client: it came over a connection from 10.0.0.2, and goes on.
#[inline]
pub fn arrival(id: u64, session: SessionId, flow: FlowId, data: &[u8]) -> Arrival<'_> {
    Arrival {
        id,
        session,
        flow,
        reverse: false,
        tear_down: false,
        unsecure: false,
        ttd: 60,
        hops: 1,
        peer: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        ifindex: IfIndex::NONE,
        answered: true,
        identity: None,
        branch: 0,
        last: false,
        timeout: LIFETIME,
        stateless: false,
        refresh: false,
        route: &[],
        data,
    }
}
