//! Composing a message (RFC 5973 §4.3).

use signalbox_wire::Writer;

use super::code_points::{MessageType, ObjectType};
use super::message::{Message, allowed};
use super::object::{put, put_hops, put_neighbor, put_publication};

impl Message<'_> {
    /// Appends the message to `w`. Objects that its type must not have are left out.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u8(self.kind.0);
        // §4.1: the flags are for CREATE and EXTERNAL only, and E needs P.
        let request = matches!(self.kind, MessageType::CREATE | MessageType::EXTERNAL);
        let proxy = request && self.proxy;
        w.u8(u8::from(proxy) << 7 | u8::from(proxy && self.extend) << 6);
        w.u16(0);
        let may = |object| allowed(self.kind, object);
        let word = |w: &mut Writer<'_>, object, value: Option<u32>| {
            if let Some(value) = value.filter(|_| may(object)) {
                put(w, object, |w| w.u32(value));
            }
        };
        word(w, ObjectType::LT, self.lifetime);
        word(w, ObjectType::MSN, self.msn);
        if let Some(efi) = self.efi.filter(|_| may(ObjectType::EFI)) {
            put(w, ObjectType::EFI, |w| efi.write(w));
        }
        if let Some(info) = self.info.filter(|_| may(ObjectType::INFO)) {
            put(w, ObjectType::INFO, |w| info.write(w));
        }
        if let Some(terminal) = self.terminal.filter(|_| may(ObjectType::DTINFO)) {
            put(w, ObjectType::DTINFO, |w| terminal.write(w));
        }
        word(w, ObjectType::NONCE, self.nonce);
        if let Some(types) = self.icmp_types.filter(|_| may(ObjectType::ICMP_TYPES)) {
            put(w, ObjectType::ICMP_TYPES, |w| types.write(w));
        }
        if let Some(external) = self.external.filter(|_| may(ObjectType::EXTERNAL_IP)) {
            put(w, ObjectType::EXTERNAL_IP, |w| external.write(w));
        }
        if let Some(bindings) = self.bindings.filter(|_| may(ObjectType::EXTERNAL_BINDING)) {
            put(w, ObjectType::EXTERNAL_BINDING, |w| bindings.write(w));
        }
        let published = matches!(self.kind, MessageType::EXTERNAL | MessageType::RESPONSE);
        if let Some(publication) = self.publication.filter(|_| published) {
            put_publication(w, publication);
        }
        if let Some(hops) = self.hops {
            put_hops(w, hops);
        }
        if self.neighbor {
            put_neighbor(w);
        }
        self.forwarded.iter().for_each(|object| w.bytes(object));
    }
}
