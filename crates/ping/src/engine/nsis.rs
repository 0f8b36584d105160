//! A node on the path of a message of the NSIS Ping tool (draft-juchem-nsis-ping-tool-02 §2.2). As with our own format, the
//! node keeps no state of a session.

use signalbox_core::Direction;
use signalbox_core::outbox::Parcel;
use signalbox_core::service::{RecvMessage, SendError, StateHandle, TransferAttributes};
use signalbox_wire::Writer;

use super::Ping;
use super::outbox::Origin;
use super::relay::onward;
use crate::wire::nsis::{Message, Record, Stamp};

/// Nodes that a message meets, there and back, where the previous node preserves no GIST hop count.
const MOST_NODES: u8 = 128;

impl Ping {
    /// Takes a message with payload.
    pub(super) fn receive_nsis(&mut self, received: &RecvMessage<'_>) {
        let message = match Message::parse(received.data) {
            Ok(message) => message,
            Err(error) => {
                self.counters.malformed += 1;
                tracing::debug!(session = %received.session, reason = %error, "message dropped");
                return;
            }
        };
        // The direction distinguishes them (draft-dickmann-nsis-ping).
        match received.mri.direction() {
            Direction::Downstream => self.counters.requests_received += 1,
            Direction::Upstream => self.counters.replies_received += 1,
        }
        match received.mri.direction() {
            Direction::Downstream if received.at_flow_end => self.answer_nsis(received, message),
            Direction::Downstream => {
                if self.forward_nsis(received, message, Origin::Request(received.state)) {
                    self.counters.requests_relayed += 1;
                }
            }
            Direction::Upstream if self.receive_nsis_reply(received, &message) => {}
            Direction::Upstream if received.at_flow_end => {
                self.counters.unexpected_replies += 1;
                tracing::debug!(session = %received.session, reason = "no such ping", "reply dropped");
            }
            Direction::Upstream => {
                if self.forward_nsis(received, message, Origin::Reply) {
                    self.counters.replies_relayed += 1;
                }
            }
        }
    }

    /// Sends a message on in its direction, with the record of this node. False if it was dropped.
    fn forward_nsis(&mut self, received: &RecvMessage<'_>, message: Message<'_>, origin: Origin) -> bool {
        let address = self.interfaces.on(received.ifindex, received.mri.dst());
        let stamp = Stamp { address, time_us: self.wall_us() };
        let attributes = attributes(received);
        let Some(parcel) = self.onward_by_hop(received, origin, |ping| ping.met_nsis(&message)) else {
            let mut parcel = Parcel { attributes, ..onward(received, origin) };
            message.encode(Some(stamp), &mut Writer::new(&mut parcel.octets));
            self.not_sent(parcel, SendError::Refused);
            return false;
        };
        self.stamp(message, stamp, Parcel { attributes, ..parcel })
    }

    /// Whether a message has an address of this node twice, which is once for each direction, or has met many nodes.
    fn met_nsis(&self, message: &Message<'_>) -> bool {
        let own = |record: &Record| record.address.is_some_and(|address| self.interfaces.has(address));
        message.hops >= MOST_NODES || message.records().filter(own).count() > 1
    }

    /// Sends a message back that has reached the end of its flow. The record has the flow's destination, from which the
    /// initiator sees that the message was there.
    fn answer_nsis(&mut self, received: &RecvMessage<'_>, message: Message<'_>) {
        let stamp = Stamp { address: received.mri.dst(), time_us: self.wall_us() };
        let (mri, attributes) = (received.mri.inverted(), attributes(received));
        let parcel = Parcel { mri, attributes, ..onward(received, Origin::Reply) };
        if self.stamp(message, stamp, parcel) {
            self.counters.turned_at_end += 1;
        }
    }

    /// Sends a message with one hop and one record more. Where the record has no room, only the hop is counted.
    fn stamp(&mut self, mut message: Message<'_>, stamp: Stamp, parcel: Parcel<Origin>) -> bool {
        message.hops = message.hops.saturating_add(1);
        tracing::trace!(session = %parcel.session, seq = message.sequence, "message forwarded");
        self.send(parcel, |w| message.encode(Some(stamp), w))
    }

    /// Sends a message back that GIST could not send on: this node is the last one of the path. Its record stands in the
    /// message already.
    pub(super) fn turn_nsis(&mut self, back: Option<StateHandle>, parcel: &Parcel<Origin>) {
        let to = Parcel::new(Vec::new(), parcel.nslp, parcel.session, parcel.mri.inverted(), Origin::Reply);
        let reply = Parcel { state: back, attributes: parcel.attributes, ..to };
        if self.send(reply, |w| w.bytes(&parcel.octets)) {
            self.counters.turned_early += 1;
        }
    }
}

/// How a message is sent on: as it arrived. The protection of the hop before does not bind the next one, and a reply needs
/// the routing state.
fn attributes(received: &RecvMessage<'_>) -> TransferAttributes {
    TransferAttributes { reliable: received.attributes.reliable, ..TransferAttributes::default() }
}
