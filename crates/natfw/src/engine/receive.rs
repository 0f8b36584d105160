//! Processing rules of all messages (RFC 5973 §3.3).

use signalbox_core::service::{RecvMessage, Security};
use signalbox_resources::Resources;

use super::Natfw;
use super::check::Refused;
use super::far::Routes;
use crate::wire::{DecodeError, Message, MessageType, sequence_number};

impl Natfw {
    pub(super) fn on_message(&mut self, received: &RecvMessage<'_>, resources: &mut Resources) {
        if let Some(check) = received.check {
            self.out.accept_peer(check);
        }
        if received.data.is_empty() || received.nslp != self.config.nslp {
            return; // a Query without payload
        }
        if let Some(reason) = self.mistrust(received) {
            tracing::debug!(session = %received.session, peer = ?received.sii, reason, "message dropped");
            return;
        }
        let message = match Message::parse(received.data) {
            Ok(message) => message,
            Err(error) => return self.on_fault(received, &error),
        };
        tracing::trace!(session = %received.session, peer = ?received.sii, kind = %message.kind, "message received");
        let counter = match message.kind {
            MessageType::CREATE => &mut self.counters.creates_received,
            MessageType::EXTERNAL => &mut self.counters.externals_received,
            MessageType::RESPONSE => &mut self.counters.responses_received,
            _ => &mut self.counters.notifies_received,
        };
        *counter += 1;
        self.counters.foreign_objects += u64::from(message.foreign);
        match message.kind {
            MessageType::CREATE | MessageType::EXTERNAL => {
                self.on_request(received, &message, Routes::default(), resources)
            }
            MessageType::RESPONSE => self.on_response(received, &message, resources),
            _ => self.on_notify(received, &message, resources),
        }
        if let Some(key) = self.find(received.session) {
            self.rearm(key);
        }
    }

    /// Why a message must not change state: its sender has not proved that it is on the path, or the message is not
    /// protected although `secure` demands it. A message over routing state comes from a node that answered GIST's
    /// handshake. An explicitly routed one has a peer that GIST knows; who may send it, each message type decides.
    fn mistrust(&mut self, received: &RecvMessage<'_>) -> Option<&'static str> {
        if received.attributes.security == Security::Channel {
            return None;
        }
        if self.config.secure {
            self.counters.insecure += 1;
            return Some("not protected by an authenticated channel");
        }
        let verified = if received.validation.unchecked_route {
            received.sii.is_some() && received.attributes.reliable
        } else {
            received.state.is_some()
        };
        if received.attributes.stateless || !verified {
            self.counters.unverified += 1;
            return Some("no verified routing state");
        }
        None
    }

    /// Answers a malformed request. A RESPONSE or NOTIFY is never answered (RFC 5973 §3.2.7).
    fn on_fault(&mut self, received: &RecvMessage<'_>, error: &DecodeError) {
        self.counters.malformed += 1;
        tracing::debug!(session = %received.session, peer = ?received.sii, reason = %error, "message dropped");
        let kind = received.data.first().copied().map(MessageType);
        if matches!(kind, None | Some(MessageType::RESPONSE | MessageType::NOTIFY)) {
            return;
        }
        let msn = sequence_number(received.data).unwrap_or(0);
        self.refuse(received, msn, Refused { object: error.object, ..error.info.into() });
    }
}
