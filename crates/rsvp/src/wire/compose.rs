//! Composing a parsed message again.

use super::code_points::{Class, MessageType};
use super::message::Message;
use super::writer::Writer;
use crate::error::EncodeError;

impl Message<'_> {
    /// Appends the message as this crate writes it (RFC 2205 §3.1): objects in the order of the grammars, lists sorted,
    /// unused fields zero, NULL objects left out, checksum right. Digests, traffic specifications and POLICY_DATA are
    /// copied.
    ///
    /// # Errors
    /// [`EncodeError`]; nothing is appended then.
    pub fn compose(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.kind == MessageType::BUNDLE {
            let mut inside = Vec::new();
            for octets in self.sub_messages() {
                match Message::parse(octets) {
                    Ok(message) => message.compose(&mut inside)?,
                    Err(_) => inside.extend_from_slice(octets),
                }
            }
            let mut w = Writer::new(out, self.kind, self.flags, self.send_ttl);
            w.body(&inside);
            return w.finish();
        }
        let mut w = Writer::new(out, self.kind, self.flags, self.send_ttl);
        if let Some(object) = self.object(Class::INTEGRITY) {
            w.raw(object.octets);
        }
        self.acks().for_each(|(id, nack)| {
            w.ack(&id, nack);
        });
        self.message_id.iter().for_each(|id| {
            w.message_id(id);
        });
        if let Some(session) = self.session {
            w.session(&session, self.e_police);
        }
        if let Some(hop) = self.hop {
            w.hop(&hop);
        }
        if let Some(period) = self.refresh_period {
            w.time_values(period);
        }
        if let Some(error) = self.error {
            w.error_spec(&error);
        }
        if let Some(receiver) = self.confirm {
            w.resv_confirm(receiver);
        }
        if let Some(scope) = self.scope {
            w.scope(&mut scope.senders().collect::<Vec<_>>());
        }
        for policy in self.policy() {
            w.raw(policy.octets());
        }
        if let Some(sender) = self.sender {
            w.sender_template(&sender);
        }
        // Traffic specifications are copied.
        for class in [Class::SENDER_TSPEC, Class::ADSPEC] {
            if let Some(object) = self.object(class) {
                w.raw(object.octets);
            }
        }
        if let Some(asked) = self.diagnostic() {
            w.diagnostic(&asked);
        }
        if let Some(select) = self.select() {
            w.diag_select(select.kinds());
        }
        if let (Some(route), Some(session)) = (self.route(), self.session) {
            w.route(session.dest.is_ipv6(), route.pointer, route.nodes());
        }
        for response in self.responses() {
            w.diag_response(&response);
        }
        for list in self.lists() {
            w.id_list(list.epoch, &list.ids().collect::<Vec<_>>());
        }
        if let Some(hello) = self.hello {
            w.hello(&hello);
        }
        if let Some(challenge) = self.challenge {
            w.challenge(&challenge);
        }
        for kept in self.kept() {
            w.raw(kept.octets);
        }
        if let Some(style) = self.style {
            w.style(style);
            for object in self.objects() {
                if matches!(object.kind.class, Class::FLOWSPEC | Class::FILTER_SPEC) {
                    w.raw(object.octets);
                }
            }
        }
        w.finish()
    }
}
