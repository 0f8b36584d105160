//! Outputs that wait to be polled.

use signalbox_core::outbox::Parcel;
use signalbox_core::outputs::Outputs;
use signalbox_core::service::StateHandle;
use signalbox_core::slab::Key;
use signalbox_wire::Writer;

use super::Ping;
use super::event::PingEvent;

/// Why this node sends a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// This node is the initiator: the ping and the sequence number of the message.
    Probe(Key, u32),
    /// A request from another node; the routing state that leads back to its sender.
    Request(Option<StateHandle>),
    /// A reply. If it fails, this node does nothing.
    Reply,
}

pub(super) type Outbox = Outputs<Origin, PingEvent>;

impl Ping {
    /// Composes a message with `write` and queues it. False: the table of messages is full.
    pub(super) fn send(&mut self, mut parcel: Parcel<Origin>, write: impl FnOnce(&mut Writer<'_>)) -> bool {
        let watch = parcel.purpose != Origin::Reply;
        let session = parcel.session;
        parcel.octets = self.out.buffer();
        write(&mut Writer::new(&mut parcel.octets));
        let Some(watched) = self.out.send(parcel, watch) else {
            self.counters.overload += 1;
            tracing::debug!(%session, reason = "table of messages full", "message dropped");
            return false;
        };
        self.counters.unwatched += u64::from(watch && !watched);
        true
    }
}
