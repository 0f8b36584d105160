//! Processing rules of all messages (RFC 5974 §5.2.3, §5.4).

use signalbox_core::mri::Mri;
use signalbox_core::node::{NoRoute, Route};
use signalbox_core::service::{RecvMessage, Security};
use signalbox_resources::Resources;

use super::Qos;
use super::compose::Target;
use super::config::StateKeeping;
use super::waiting::{Arrival, Waiting};
use crate::wire::{
    DecodeError, Diagnosis, GenericFlags, Info, InfoSpec, Message, MessageType, Rsn, identify,
};

/// The progress of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It is processed.
    Done,
    /// It needs the route of its flow first.
    NeedsRoute,
}

impl Qos {
    pub(super) fn on_message(&mut self, received: &RecvMessage<'_>, resources: &mut Resources) {
        if let Some(check) = received.check {
            self.out.accept_peer(check);
        }
        if received.data.is_empty() || !self.config.is_ours(received.nslp) {
            return; // a Query without payload
        }
        let arrival = Arrival::of(received);
        if let Some(reason) = self.mistrust(received) {
            tracing::debug!(session = %received.session, peer = ?received.sii, reason, "message dropped");
            return;
        }
        self.receive(received.data, &arrival, None, resources);
    }

    /// Why a message must not change state: its sender has not proved that it is on the path, or the message is not
    /// protected although `secure` demands it.
    ///
    /// RFC 5974 allows messages without routing state, but anybody can send them, from any address. A message over
    /// routing state comes from a node that answered GIST's handshake, if its sender is a peer that GIST knows: a node that
    /// reads the session can send datagrams for it from other addresses. An explicitly routed message needs a session that
    /// stands, whose identifier only nodes of its path know, and such a peer.
    fn mistrust(&mut self, received: &RecvMessage<'_>) -> Option<&'static str> {
        if self.config.secure && received.attributes.security != Security::Channel {
            self.counters.insecure += 1;
            return Some("not protected by an authenticated channel");
        }
        if self.config.accept_stateless || received.attributes.security == Security::Channel {
            return None;
        }
        let verified = if received.validation.unchecked_route {
            self.find(received.session).is_some()
        } else {
            received.state.is_some()
        };
        let verified = verified && received.sii.is_some();
        if received.attributes.stateless || !verified {
            self.counters.unverified += 1;
            return Some("no verified routing state");
        }
        None
    }

    /// Processes a message whose route is known now.
    pub(super) fn on_routed(
        &mut self,
        octets: &[u8],
        arrival: &Arrival,
        route: Result<Route, NoRoute>,
        resources: &mut Resources,
    ) {
        self.receive(octets, arrival, Some(route), resources);
    }

    fn receive(
        &mut self,
        octets: &[u8],
        arrival: &Arrival,
        route: Option<Result<Route, NoRoute>>,
        resources: &mut Resources,
    ) {
        if self.config.state != StateKeeping::Stateful {
            return self.pass_without_state(octets, arrival, route, resources);
        }
        let message = match Message::parse(octets) {
            Ok(message) => message,
            Err(error) => return self.on_fault(octets, arrival, &error),
        };
        // A message that waited for its route comes again with it.
        if route.is_none() {
            self.counters.received(&message);
            self.counters.foreign_objects += u64::from(message.foreign);
        }
        tracing::trace!(
            session = %arrival.session,
            peer = ?arrival.sii,
            kind = %message.kind,
            "message received"
        );
        if !matches!(arrival.mri, Mri::PathCoupled(_)) {
            self.counters.unknown_mri += 1;
            tracing::debug!(
                session = %arrival.session,
                reason = "message routing method is not path-coupled",
                "message dropped"
            );
            if matches!(message.kind, MessageType::RESERVE | MessageType::QUERY) {
                self.answer(arrival, &message, Info::UNKNOWN_MRI, None);
            }
            return;
        }
        let progress = match message.kind {
            MessageType::RESERVE => match self.synchronise(&message, arrival, octets) {
                Some(progress) => progress,
                None => self.on_reserve(&message, arrival, route, resources),
            },
            MessageType::QUERY => self.on_query(&message, arrival, route, resources),
            MessageType::RESPONSE => {
                self.on_response(&message, arrival, resources);
                Progress::Done
            }
            _ => {
                self.on_notify(&message, arrival, resources);
                Progress::Done
            }
        };
        if progress == Progress::NeedsRoute {
            let mut copy = self.out.buffer();
            copy.extend_from_slice(octets);
            self.look_up(Waiting::Message(copy, arrival.clone()), arrival.route_query());
        }
        if let Some(key) = self.find(arrival.session) {
            self.rearm(key);
        }
    }

    /// Processes a message whose triggering message has arrived (RFC 5974 §4.6).
    pub(super) fn receive_resumed(&mut self, octets: &[u8], arrival: &Arrival, resources: &mut Resources) {
        let Ok(mut message) = Message::parse(octets) else { return };
        // §4.6: it is forwarded without the object that it waited for.
        message.bound_msg_id = None;
        let progress = self.on_reserve(&message, arrival, None, resources);
        if progress == Progress::NeedsRoute {
            let mut copy = self.out.buffer();
            if message.encode(&mut signalbox_wire::Writer::new(&mut copy)).is_ok() {
                self.look_up(Waiting::Message(copy, arrival.clone()), arrival.route_query());
            }
        }
        if let Some(key) = self.find(arrival.session) {
            self.rearm(key);
        }
    }

    /// Answers a message that is malformed. Missing and unknown objects are always answered (RFC 5974 §5.2.3, §5.1.3).
    /// Other errors are answered if the sender is authenticated or the configuration demands it (§5.4).
    fn on_fault(&mut self, octets: &[u8], arrival: &Arrival, error: &DecodeError) {
        self.counters.malformed += 1;
        tracing::debug!(session = %arrival.session, peer = ?arrival.sii, reason = %error, "message dropped");
        let kind = octets.first().copied().map(MessageType);
        let tear = kind == Some(MessageType::RESERVE) && octets.get(1).is_some_and(|flags| flags & 0x02 != 0);
        // A RESPONSE, a NOTIFY and a tear are never answered (§5.3.5).
        if matches!(kind, None | Some(MessageType::RESPONSE | MessageType::NOTIFY)) || tear {
            return;
        }
        if !error.must_be_answered() && !arrival.authenticated && !self.config.answer_faults {
            return;
        }
        let mut specific = Vec::new();
        if let Some(kind) = error.object {
            let mut w = signalbox_wire::Writer::new(&mut specific);
            let about_type =
                [Info::MISSING_OBJECT, Info::UNKNOWN_OBJECT, Info::ILLEGAL_OBJECT, Info::DUPLICATE_OBJECT];
            let object = octets.get(error.object_start..).filter(|_| error.object_start > 0);
            match object {
                Some(object) if !about_type.contains(&error.info) => {
                    // The object, as far as the message has it, at most 64 octets.
                    let claimed = object.get(2..4).map_or(0, |l| {
                        usize::from(
                            u16::from_be_bytes([
                                l.first().copied().unwrap_or(0),
                                l.get(1).copied().unwrap_or(0),
                            ]) & 0xfff,
                        ) * 4
                            + 4
                    });
                    let length = claimed.min(object.len()).min(64) & !3;
                    let object = object.get(..length).unwrap_or_default();
                    let length = u16::try_from(length).unwrap_or(0);
                    Diagnosis::Value { length, offset: 0, object }.write(&mut w);
                }
                _ => Diagnosis::Type(kind).write(&mut w),
            }
        }
        let (rii, rsn) = identify(octets);
        let info = InfoSpec { specific: &specific, ..self.info(arrival, error.info) };
        let response = Message { rii, rsn, info: Some(info), ..Message::new(MessageType::RESPONSE) };
        self.send_response(Target::back_to(arrival), &response);
    }

    /// Answers a RESERVE or QUERY with an error, identified by RII and RSN (RFC 5974 §5.4.3). A tear is not answered
    /// (§5.3.5).
    pub(super) fn answer(
        &mut self,
        arrival: &Arrival,
        message: &Message<'_>,
        info: Info,
        note: Option<&str>,
    ) {
        self.answer_with(arrival, message, info, None, (note, None));
    }

    pub(super) fn answer_with(
        &mut self,
        arrival: &Arrival,
        message: &Message<'_>,
        info: Info,
        qspec: Option<&[u8]>,
        (note, available): (Option<&str>, Option<u64>),
    ) {
        if message.is_tear() {
            return;
        }
        let response = Message {
            generic: message.generic.without(GenericFlags::ACK_REQ).without(GenericFlags::SCOPING),
            rii: message.rii,
            rsn: message.rsn,
            info: Some(self.info(arrival, info)),
            qspec,
            hops: message.hops,
            // The MTU is no secret: routers tell it to the senders of large packets, too.
            note: note.and_then(|note| self.told(note)).map(cut),
            // A refusal for another reason says nothing about the link.
            available: available.filter(|_| info == Info::RESERVATION_FAILURE),
            ..Message::new(MessageType::RESPONSE)
        };
        self.send_response(Target::back_to(arrival), &response);
    }

    /// What another node is told of the reason of a refusal.
    pub(super) fn told<'a>(&self, note: &'a str) -> Option<&'a str> {
        if self.config.report_rule || super::smaller::mtu_of(note).is_some() {
            return Some(note);
        }
        note.starts_with(super::rmf::CONFLICT).then_some(super::rmf::CONFLICT_ALONE)
    }

    /// Acknowledges a refresh with ACK-REQ (RFC 5974 §5.4.1).
    pub(super) fn acknowledge(&mut self, arrival: &Arrival, message: &Message<'_>, rsn: Option<Rsn>) {
        if message.generic.contains(GenericFlags::ACK_REQ) {
            let info = Some(self.info(arrival, Info::ACKNOWLEDGED));
            let response = Message { rsn, info, ..Message::new(MessageType::RESPONSE) };
            self.send_response(Target::back_to(arrival), &response);
        }
    }
}

/// A note of at most the length that a message can carry.
pub(super) fn cut(note: &str) -> &str {
    const MOST: usize = 120;
    let mut end = note.len().min(MOST);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note.get(..end).unwrap_or_default()
}
