//! What every packet goes through before its type matters (MESSAGE ARRIVES of RFC 2209).

use signalbox_core::packet::IpReceived;
use signalbox_resources::Resources;

use super::Rsvp;
use super::interfaces::Place;
use super::outbox::Envelope;
use crate::wire::{DecodeError, ErrorCode, Fault, Message, MessageType};

impl Rsvp {
    /// A packet of IP protocol 46.
    pub(super) fn receive(&mut self, packet: &IpReceived<'_>, resources: &mut Resources) {
        let place = self.interfaces.place(packet.ifindex);
        if self.interfaces.get(place).is_some_and(|known| !known.config.enabled) {
            self.counters.disabled += 1;
            return;
        }
        let parsed = Message::parse(packet.payload);
        // Faults of the common header come before the question whose it is, all others after.
        if let Err(error) = &parsed
            && matches!(error.fault, Fault::Version | Fault::MessageLength | Fault::Checksum)
        {
            return self.count(error);
        }
        let kind = packet.payload.get(1).copied().map_or(MessageType(0), MessageType);
        let passes = matches!(kind, MessageType::PATH | MessageType::PATH_TEAR | MessageType::RESV_CONF);
        if !passes && !self.interfaces.is_local(packet.dst) && !packet.dst.is_multicast() {
            return self.pass_on(packet);
        }
        match parsed {
            Ok(message) => self.on_message(packet, &message, place, resources),
            Err(error) => self.count(&error),
        }
    }

    fn on_message(
        &mut self,
        packet: &IpReceived<'_>,
        message: &Message<'_>,
        place: Place,
        resources: &mut Resources,
    ) {
        // A group's packets come back to who sent them, as do those of a routing loop.
        if message.hop.is_some_and(|hop| self.interfaces.is_local(hop.addr)) {
            self.counters.own += 1;
            return;
        }
        match message.kind {
            MessageType::PATH => self.on_path(packet, message, place, resources),
            MessageType::RESV => self.on_resv(message, place, resources),
            MessageType::PATH_TEAR => self.on_path_tear(message, place, resources),
            MessageType::RESV_TEAR => self.on_resv_tear(message, resources),
            MessageType::PATH_ERR => self.on_path_err(message),
            MessageType::RESV_ERR => self.on_resv_err(message, place),
            MessageType::RESV_CONF => self.on_resv_conf(packet, message, place),
            _ => self.counters.unsupported += 1,
        }
    }

    /// Somebody else's message that was taken out of forwarding goes on as any IP packet (RFC 2205 §2.9).
    fn pass_on(&mut self, packet: &IpReceived<'_>) {
        if packet.ttl <= 1 {
            return;
        }
        self.counters.passed_on += 1;
        let envelope = Envelope {
            src: packet.src,
            dst: packet.dst,
            ifindex: None,
            ttl: packet.ttl - 1,
            tos: packet.tos,
            router_alert: packet.router_alert,
        };
        self.out.send(envelope, |octets| octets.extend_from_slice(packet.payload));
    }

    fn count(&mut self, error: &DecodeError) {
        let counters = &mut self.counters;
        let counter = match error.fault {
            Fault::MessageLength => &mut counters.bad_length,
            Fault::Version => &mut counters.bad_version,
            Fault::Checksum => &mut counters.bad_checksum,
            Fault::MessageType => &mut counters.bad_type,
            Fault::ObjectLength => &mut counters.bad_object_length,
            Fault::HopAddress => &mut counters.bad_hop,
            Fault::SourcePort => &mut counters.bad_source_port,
            Fault::Missing => &mut counters.missing_object,
            Fault::NotAllowed | Fault::Duplicate => &mut counters.illegal_object,
            Fault::Order => &mut counters.wrong_order,
            Fault::DescriptorCount => &mut counters.bad_descriptors,
            Fault::UnknownClass | Fault::UnknownCType => &mut counters.unknown_object,
            _ => &mut counters.malformed,
        };
        *counter += 1;
    }
}

/// What an ERROR_SPEC says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: ErrorCode,
    pub(super) value: u16,
}

impl Failure {
    pub(super) const fn new(code: ErrorCode, value: u16) -> Self {
        Self { code, value }
    }
}
