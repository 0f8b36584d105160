//! A node on the path: it adds its record and sends the message on, or returns it to the initiator. It keeps no state
//! of a session.

use core::net::{IpAddr, Ipv6Addr};

use signalbox_core::outbox::Parcel;
use signalbox_core::service::{Onward, RecvMessage, SendError};
use signalbox_core::shares::source;
use signalbox_core::{Direction, invariant};
use signalbox_wire::Writer;

use super::Ping;
use super::outbox::Origin;
use crate::wire::{Flags, Kind, List, Message, Record};

impl Ping {
    /// Takes a message with payload.
    pub(super) fn receive_data(&mut self, received: &RecvMessage<'_>) {
        let message = match Message::parse(received.data) {
            Ok(message) => message,
            Err(error) => {
                self.counters.malformed += 1;
                tracing::debug!(session = %received.session, reason = %error, "message dropped");
                return;
            }
        };
        match message.kind {
            Kind::REQUEST => self.counters.requests_received += 1,
            Kind::REPLY => self.counters.replies_received += 1,
            _ => {}
        }
        match (message.kind, received.mri.direction()) {
            (Kind::REQUEST, Direction::Downstream) if received.at_flow_end => {
                self.reply_at_end(received, message);
            }
            (Kind::REQUEST, Direction::Downstream) => {
                let origin = Origin::Request(received.state);
                if self.forward(received, &message, List::There, origin) {
                    self.counters.requests_relayed += 1;
                }
            }
            (Kind::REPLY, Direction::Upstream) => {
                if self.receive_reply(received, &message) {
                    return;
                }
                if received.at_flow_end {
                    self.counters.unexpected_replies += 1;
                    tracing::debug!(session = %received.session, reason = "no such ping", "reply dropped");
                } else if self.forward(received, &message, List::Back, Origin::Reply) {
                    self.counters.replies_relayed += 1;
                }
            }
            (kind, direction) => {
                self.counters.misdirected += 1;
                tracing::debug!(
                    session = %received.session, kind = kind.0, ?direction,
                    reason = "kind and direction do not match", "message dropped"
                );
            }
        }
    }

    /// Sends a message on in its direction, with the record of this node. False if it was dropped.
    fn forward(
        &mut self,
        received: &RecvMessage<'_>,
        message: &Message<'_>,
        list: List,
        origin: Origin,
    ) -> bool {
        let address = self.interfaces.on(received.ifindex, received.mri.dst());
        let record = self.record(received, address);
        let Some(parcel) = self.onward_by_hop(received, origin, |ping| ping.met(message, list)) else {
            let mut parcel = onward(received, origin);
            message.encode(Some((list, record)), &mut Writer::new(&mut parcel.octets));
            self.not_sent(parcel, SendError::Refused);
            return false;
        };
        tracing::trace!(session = %received.session, seq = message.sequence, "message forwarded");
        self.send(parcel, |w| message.encode(Some((list, record)), w))
    }

    /// Whether a message may have met this node in this direction before: its list has an address of this node, or is full.
    fn met(&self, message: &Message<'_>, list: List) -> bool {
        let (records, full) = match list {
            List::There => (message.there, Flags::THERE_TRUNCATED),
            List::Back => (message.back, Flags::BACK_TRUNCATED),
        };
        message.flags.contains(full) || records.iter().any(|record| self.interfaces.has(record.address))
    }

    /// A message for the next node of the direction of `received`, which uses one of its hops. `None`: none is left. Where
    /// the previous node preserves no hop count, `met` says whether the message may have been here before.
    pub(super) fn onward_by_hop(
        &mut self,
        received: &RecvMessage<'_>,
        origin: Origin,
        met: impl FnOnce(&Self) -> bool,
    ) -> Option<Parcel<Origin>> {
        let hops = match received.onward() {
            Onward::Preserved(hops) => Some(Some(hops)),
            Onward::Own => (!met(self)).then_some(None),
            Onward::Spent => None,
        };
        let Some(hops) = hops else {
            self.counters.hop_limit += 1;
            tracing::debug!(session = %received.session, reason = "GIST hop count is used up", "message not sent on");
            return None;
        };
        let mut parcel = onward(received, origin);
        parcel.hops = hops;
        parcel.timeout = Some(self.config.relay_timeout);
        // Senders that did not prove their address are one source together.
        parcel.source = Some(received.peer_address.map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), source));
        Some(parcel)
    }

    /// Answers a request that has reached the end of its flow.
    fn reply_at_end(&mut self, received: &RecvMessage<'_>, mut message: Message<'_>) {
        let record = self.record(received, received.mri.dst());
        message.kind = Kind::REPLY;
        message.flags = message.flags.with(Flags::END_REACHED);
        let parcel = Parcel { mri: received.mri.inverted(), ..onward(received, Origin::Reply) };
        tracing::trace!(session = %received.session, seq = message.sequence, "request answered");
        if self.send(parcel, |w| message.encode(Some((List::There, record)), w)) {
            self.counters.turned_at_end += 1;
        }
    }

    /// Handles the failure of a message that GIST could not send. A request of another node goes back to its initiator.
    pub(super) fn not_sent(&mut self, parcel: Parcel<Origin>, error: SendError) {
        match parcel.purpose {
            Origin::Probe(key, seq) => self.probe_not_sent(key, seq, error),
            Origin::Request(back) if self.config.nsis == Some(parcel.nslp) => self.turn_nsis(back, &parcel),
            Origin::Request(back) => {
                let flag = match error {
                    SendError::NoNextNode => Flags::NO_NEXT_NODE,
                    SendError::FlowEndsHere => Flags::END_REACHED,
                    SendError::NoStateUpstream
                    | SendError::Unreached(_)
                    | SendError::Connecting(_)
                    | SendError::NoRoute
                    | SendError::TooLarge { .. }
                    | SendError::Overload
                    | SendError::Refused
                    | SendError::Peer { .. } => Flags::NOT_SENT,
                };
                tracing::debug!(session = %parcel.session, reason = ?error, "request returned");
                let composed = Message::parse(&parcel.octets).ok();
                if let Some(mut message) = invariant!(composed, "what this node composed can be parsed") {
                    message.kind = Kind::REPLY;
                    message.flags = message.flags.with(flag);
                    let mri = parcel.mri.inverted();
                    let reply = Parcel {
                        state: back,
                        ..Parcel::new(Vec::new(), parcel.nslp, parcel.session, mri, Origin::Reply)
                    };
                    if self.send(reply, |w| message.encode(None, w)) {
                        self.counters.turned_early += 1;
                    }
                }
            }
            Origin::Reply => {}
        }
        self.out.reuse(parcel.octets);
    }

    fn record(&self, received: &RecvMessage<'_>, address: IpAddr) -> Record {
        // The engine sends a message on at the instant in which it arrives, so it is held for 0 µs.
        let ip_distance = received.ip_distance;
        Record { address, received_us: self.wall_us(), held_us: 0, ip_distance }
    }
}

/// A message for the peer beyond this node, with the session and flow of `received`.
pub(super) fn onward(received: &RecvMessage<'_>, origin: Origin) -> Parcel<Origin> {
    let mut parcel = Parcel::new(Vec::new(), received.nslp, received.session, received.mri, origin);
    parcel.state = received.state;
    parcel
}
