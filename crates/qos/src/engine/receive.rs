//! What every message goes through (RFC 5974 §5.2.3, §5.4).

use signalbox_core::mri::Mri;
use signalbox_core::node::{NoRoute, Route};
use signalbox_core::service::RecvMessage;
use signalbox_resources::Resources;

use super::Qos;
use super::compose::Target;
use super::config::StateKeeping;
use super::parked::{Meta, Parked, route_query};
use crate::wire::{
    DecodeError, Diagnosis, GenericFlags, Info, InfoSpec, Message, MessageType, Rsn, identify,
};

/// Whether a message can be dealt with at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It was.
    Done,
    /// Its flow's route has to be known first.
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
        let meta = Meta::of(received);
        self.receive(received.data, &meta, None, resources);
    }

    /// The route of a message's flow is known.
    pub(super) fn on_routed(
        &mut self,
        octets: &[u8],
        meta: &Meta,
        route: Result<Route, NoRoute>,
        resources: &mut Resources,
    ) {
        self.receive(octets, meta, Some(route), resources);
    }

    fn receive(
        &mut self,
        octets: &[u8],
        meta: &Meta,
        route: Option<Result<Route, NoRoute>>,
        resources: &mut Resources,
    ) {
        if self.config.state != StateKeeping::Stateful {
            return self.pass_without_state(octets, meta, route, resources);
        }
        let message = match Message::parse(octets) {
            Ok(message) => message,
            Err(error) => return self.on_fault(octets, meta, &error),
        };
        if !matches!(meta.mri, Mri::PathCoupled(_)) {
            self.counters.unknown_mri += 1;
            if matches!(message.kind, MessageType::RESERVE | MessageType::QUERY) {
                self.answer(meta, &message, Info::UNKNOWN_MRI, None);
            }
            return;
        }
        let progress = match message.kind {
            MessageType::RESERVE => match self.synchronise(&message, meta, octets) {
                Some(progress) => progress,
                None => self.on_reserve(&message, meta, route, resources),
            },
            MessageType::QUERY => self.on_query(&message, meta, route, resources),
            MessageType::RESPONSE => {
                self.on_response(&message, meta, resources);
                Progress::Done
            }
            _ => {
                self.on_notify(&message, meta, resources);
                Progress::Done
            }
        };
        if progress == Progress::NeedsRoute {
            let mut copy = self.out.buffer();
            copy.extend_from_slice(octets);
            self.look_up(Parked::Message(copy, meta.clone()), route_query(&meta.mri));
        }
        if let Some(key) = self.find(meta.session) {
            self.rearm(key);
        }
    }

    /// The message that this one waited for came.
    pub(super) fn receive_resumed(&mut self, octets: &[u8], meta: &Meta, resources: &mut Resources) {
        let Ok(mut message) = Message::parse(octets) else { return };
        // §4.6: it goes on without the object that made it wait.
        message.bound_msg_id = None;
        let progress = self.on_reserve(&message, meta, None, resources);
        if progress == Progress::NeedsRoute {
            let mut copy = self.out.buffer();
            if message.encode(&mut signalbox_wire::Writer::new(&mut copy)).is_ok() {
                self.look_up(Parked::Message(copy, meta.clone()), route_query(&meta.mri));
            }
        }
        if let Some(key) = self.find(meta.session) {
            self.rearm(key);
        }
    }

    /// A message that cannot be read, or breaks its grammar. Missing and unknown objects are always answered, as §5.2.3
    /// and §5.1.3 demand; the rest only to peers who proved who they are, or if the operator wants it (§5.4).
    fn on_fault(&mut self, octets: &[u8], meta: &Meta, error: &DecodeError) {
        self.counters.malformed += 1;
        let kind = octets.first().copied().map(MessageType);
        let tear = kind == Some(MessageType::RESERVE) && octets.get(1).is_some_and(|flags| flags & 0x02 != 0);
        // RESPONSEs and NOTIFYs are never answered, nor are tears (§5.3.5).
        if matches!(kind, None | Some(MessageType::RESPONSE | MessageType::NOTIFY)) || tear {
            return;
        }
        if !error.must_be_answered() && !meta.authenticated && !self.config.answer_faults {
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
                    // The object as far as the message goes, 64 octets at most: enough to see what is wrong.
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
        let info = InfoSpec { specific: &specific, ..self.info(meta, error.info) };
        let response = Message { rii, rsn, info: Some(info), ..Message::new(MessageType::RESPONSE) };
        self.send_response(Target::back_to(meta), &response);
    }

    /// Answers a RESERVE or QUERY with an error, by RII and RSN (§5.4.3); a tear is not answered (§5.3.5).
    pub(super) fn answer(&mut self, meta: &Meta, message: &Message<'_>, info: Info, note: Option<&str>) {
        self.answer_with(meta, message, info, None, note);
    }

    pub(super) fn answer_with(
        &mut self,
        meta: &Meta,
        message: &Message<'_>,
        info: Info,
        qspec: Option<&[u8]>,
        note: Option<&str>,
    ) {
        if message.is_tear() {
            return;
        }
        let response = Message {
            generic: message.generic.without(GenericFlags::ACK_REQ).without(GenericFlags::SCOPING),
            rii: message.rii,
            rsn: message.rsn,
            info: Some(self.info(meta, info)),
            qspec,
            hops: message.hops,
            note: note.filter(|_| self.config.tell_rule).map(cut),
            ..Message::new(MessageType::RESPONSE)
        };
        self.send_response(Target::back_to(meta), &response);
    }

    /// Tells the peer that its refresh arrived.
    pub(super) fn acknowledge(&mut self, meta: &Meta, message: &Message<'_>, rsn: Option<Rsn>) {
        if message.generic.contains(GenericFlags::ACK_REQ) {
            let info = Some(self.info(meta, Info::ACKNOWLEDGED));
            let response = Message { rsn, info, ..Message::new(MessageType::RESPONSE) };
            self.send_response(Target::back_to(meta), &response);
        }
    }
}

/// A note as long as it may be on the wire.
fn cut(note: &str) -> &str {
    const MOST: usize = 120;
    let mut end = note.len().min(MOST);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note.get(..end).unwrap_or_default()
}
