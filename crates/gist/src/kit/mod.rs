//! What tests, benchmarks and fuzz targets of GIST have in common. The feature `kit` has it; no program of users needs it.
//!
//! [`Node`] is an engine with a clock and an outbox: inputs go in, and what comes out is kept until it is taken. [`Gate`] is the same for
//! the NAT gateway, with a kernel that makes its bindings. [`Peer`] composes the messages of another node: flow, session and cookies of an
//! answer are those of the message that it answers. [`Via`] has the headers of a packet to an engine; [`Packet`] is one that an engine
//! sent.
//!
//! ```
//! use signalbox_core::{IfIndex, Mri, PathCoupled, SessionId};
//! use signalbox_gist::engine::{Config, Input, PeeringPolicy};
//! use signalbox_gist::kit::{self, Node, Out, Peer, Via};
//!
//! let mut node = Node::new(Config::default(), PeeringPolicy::Always, [1; 32]).unwrap();
//! let (own, peer) = ([10, 1, 0, 1].into(), [10, 1, 0, 2].into());
//! node.handle(Input::Interfaces(&[kit::interface(1, vec![own])]));
//!
//! let flow = Mri::PathCoupled(PathCoupled::between(peer, [10, 9, 0, 9].into()));
//! let query = Peer::new(b"peer", peer).query(flow, SessionId([7; 16]), b"a cookie");
//! let via = Via::q_mode(IfIndex(1), (peer, 270).into(), ([10, 9, 0, 9], 270).into());
//! node.packet(&via, &kit::datagram(&query).unwrap());
//! let Some((_, Out::Sent(response))) = node.out.pop_front() else { panic!("no Response") };
//! assert_eq!(response.message().query_cookie, Some(&b"a cookie"[..]));
//! ```

mod gate;
mod node;
mod packet;
mod peer;

use signalbox_core::service::{SendMessage, TransferAttributes};
use signalbox_core::{Mri, NslpId, SessionId};

pub use gate::{Gate, Open};
pub use node::{Delivery, Node, Out};
pub use packet::{Over, Packet, Via};
pub use peer::{Peer, bare, datagram, read};
pub use signalbox_core::kit::{interface, route};

/// The application of a [`Node`].
pub const NSLP: NslpId = NslpId::PING;
/// Router Alert value of the application.
pub const ALERT: u16 = 7;
/// Deadlines in one pause. An engine that asks for more has an endless loop.
const DEADLINES: u32 = 100_000;

/// A message of the application, without wishes about its transfer.
pub fn message(data: &[u8], mri: Mri, session: SessionId) -> SendMessage<'_> {
    SendMessage {
        data,
        handle: None,
        nslp: NSLP,
        session,
        mri,
        state: None,
        sii: None,
        attributes: TransferAttributes::default(),
        timeout: None,
        ip_ttl: None,
        hops: None,
    }
}
