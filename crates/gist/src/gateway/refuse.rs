//! Errors of the gateway (RFC 5971 §5.6).

use core::net::SocketAddr;

use signalbox_core::NslpId;
use signalbox_core::packet::Received;
use signalbox_wire::Writer;

use super::Gateway;
use super::message::Broken;
use super::outbox::Envelope;
use crate::error::DecodeError;
use crate::wire::{
    Encapsulation, ErrorObject, GistError, Header, Infos, Message, MessageType, NatTraversal, Nli,
    ObjectType, PORT, error_object_for, find_object,
};

/// Hop count and IP TTL of Errors.
const HOPS: u8 = 32;
const TTL: u8 = 64;
/// Validity time in the NLI of Errors, in milliseconds. No state follows from it.
const VALIDITY: u32 = 30_000;

impl Gateway {
    /// Refuses a message that cannot be parsed.
    pub(super) fn refuse_broken(&mut self, packet: &Received<'_>, octets: &[u8], broken: &Broken) {
        self.counters.malformed += 1;
        match broken {
            Broken::Error(error) => self.refuse_decoded(packet, octets, error),
            Broken::Objects => tracing::debug!(peer = %packet.src, reason = "objects", "message dropped"),
        }
    }

    /// Refuses a message for a decode error. GISTNAT-X-17.
    pub(super) fn refuse_decoded(&mut self, packet: &Received<'_>, octets: &[u8], error: &DecodeError) {
        tracing::debug!(peer = %packet.src, reason = %error, "message dropped");
        if let Some(object) = error_object_for(error, octets, Encapsulation::QMode) {
            self.send_error(packet, octets, object, false);
        }
    }

    /// Refuses a message. With `to_source` the Error goes to the source of the packet, from the address that the packet was
    /// sent to, so that a NAT between treats it as an answer (RFC 5971 §7.2.1).
    pub(super) fn refuse(
        &mut self,
        packet: &Received<'_>,
        octets: &[u8],
        (error, infos): (GistError, Infos<'_>),
        to_source: bool,
    ) {
        tracing::debug!(peer = %packet.src, reason = %error, "message dropped");
        if let Some(object) = ErrorObject::about(error, octets, Encapsulation::QMode, infos) {
            self.send_error(packet, octets, object, to_source);
        }
    }

    /// Sends an Error to the Interface-Address of the message, or to its IP source if S=1. GISTNAT-X-18.
    fn send_error(&mut self, packet: &Received<'_>, octets: &[u8], error: ErrorObject<'_>, to_source: bool) {
        let from_source = to_source || Header::parse(octets).is_ok_and(|header| header.s);
        let nli = || Nli::parse(&find_object(octets, ObjectType::NLI)?).ok();
        let to = if from_source {
            Some(packet.src)
        } else {
            nli().map(|nli| SocketAddr::new(nli.interface, packet.src.port()))
        };
        let to = to.filter(|to| {
            let ip = to.ip();
            to.is_ipv4()
                && !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || self.interfaces.has(ip))
        });
        let addressed = Some(packet.dst.ip()).filter(|own| self.interfaces.has(*own));
        let source = addressed.or_else(|| self.interfaces.address(packet.ifindex));
        let (Some(to), Some(source)) = (to, source) else {
            self.counters.errors_unsendable += 1;
            return;
        };
        if !self.errors.allow(self.now, (packet.src.ip(), packet.ifindex), || false) {
            self.counters.errors_suppressed += 1;
            return;
        }
        let from = if to_source { packet.dst.ip() } else { source };
        let mut message = Message::new(MessageType::ERROR, NslpId::NONE, HOPS);
        message.header.s = from == source;
        message.nat_traversal = find_object(octets, ObjectType::NAT_TRAVERSAL)
            .and_then(|object| NatTraversal::parse(&object).ok());
        message.nli =
            Some(Nli { peer_identity: &self.identity, ip_ttl: 0, validity_ms: VALIDITY, interface: source });
        message.error = Some(error);
        let envelope = Envelope {
            src: (from, PORT).into(),
            dst: to,
            ifindex: None,
            ttl: TTL,
            tos: 0,
            dont_fragment: false,
        };
        let sent =
            self.out.packet(envelope, &[], |out, _| message.encode_datagram(&mut Writer::new(out)).ok());
        if sent.is_some() {
            self.counters.errors_sent += 1;
        } else {
            self.counters.errors_unsendable += 1;
        }
    }
}
