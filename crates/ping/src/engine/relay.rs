//! A node on the way: adds itself and passes on, or turns the message round. It keeps nothing for a session.

use core::net::IpAddr;

use signalbox_core::outbox::Parcel;
use signalbox_core::service::{RecvMessage, SendError};
use signalbox_core::{Direction, Time};

use super::{Origin, Ping};
use crate::wire::{Flags, Kind, List, Message, Record};

impl Ping {
    /// A message with payload arrived.
    pub(super) fn on_data(&mut self, now: Time, received: &RecvMessage<'_>) {
        let Ok(message) = Message::parse(received.data) else {
            self.counters.malformed += 1;
            return;
        };
        match (message.kind, received.mri.direction()) {
            (Kind::REQUEST, Direction::Downstream) if received.at_flow_end => {
                self.turn_at_end(now, received, message);
            }
            (Kind::REQUEST, Direction::Downstream) => {
                let origin = Origin::Request(received.state);
                if self.pass_on(now, received, &message, List::There, origin) {
                    self.counters.requests_relayed += 1;
                }
            }
            (Kind::REPLY, Direction::Upstream) => {
                if self.on_reply(now, received, &message) {
                    return;
                }
                if received.at_flow_end {
                    self.counters.unexpected_replies += 1;
                } else if self.pass_on(now, received, &message, List::Back, Origin::Reply) {
                    self.counters.replies_relayed += 1;
                }
            }
            _ => self.counters.misdirected += 1,
        }
    }

    /// Passes a message on in its direction, with our record. False if it was dropped.
    fn pass_on(
        &mut self,
        now: Time,
        received: &RecvMessage<'_>,
        message: &Message<'_>,
        list: List,
        origin: Origin,
    ) -> bool {
        if received.hops == 0 {
            self.counters.hop_limit += 1;
            return false;
        }
        let address = self.addresses.on(received.ifindex, received.mri.dst());
        let record = self.record(now, received, address);
        let timeout = Some(self.config.relay_timeout);
        let parcel = Parcel { hops: Some(received.hops), timeout, ..onward(received, origin) };
        self.send(parcel, |w| message.encode(Some((list, record)), w))
    }

    /// Makes a request that has reached the end of its flow a reply.
    fn turn_at_end(&mut self, now: Time, received: &RecvMessage<'_>, mut message: Message<'_>) {
        let record = self.record(now, received, received.mri.dst());
        message.kind = Kind::REPLY;
        message.flags = message.flags.with(Flags::END_REACHED);
        let parcel = Parcel { mri: received.mri.inverted(), ..onward(received, Origin::Reply) };
        if self.send(parcel, |w| message.encode(Some((List::There, record)), w)) {
            self.counters.turned_at_end += 1;
        }
    }

    /// GIST could not send a message that we watched.
    pub(super) fn on_failed(&mut self, now: Time, parcel: Parcel<Origin>, error: SendError) {
        match parcel.purpose {
            Origin::Probe(key, seq) => self.on_probe_failed(now, key, seq, error),
            Origin::Request(back) => {
                let flag = match error {
                    SendError::NoNextNode => Flags::NO_NEXT_NODE,
                    SendError::FlowEndsHere => Flags::END_REACHED,
                    _ => Flags::NOT_SENT,
                };
                // Our own octets: they parse.
                if let Ok(mut message) = Message::parse(&parcel.octets) {
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
        self.outbox.reuse(parcel.octets);
    }

    fn record(&self, now: Time, received: &RecvMessage<'_>, address: IpAddr) -> Record {
        // The engine holds nothing: it passes a message on in the instant in which it arrives.
        let ip_distance = received.ip_distance;
        Record { address, received_us: self.wall_us(now), held_us: 0, ip_distance }
    }
}

/// A message that goes on as `received` came, as far as GIST is concerned.
fn onward(received: &RecvMessage<'_>, origin: Origin) -> Parcel<Origin> {
    Parcel {
        state: received.state,
        ..Parcel::new(Vec::new(), received.nslp, received.session, received.mri, origin)
    }
}
