//! The first steps for every packet (MESSAGE ARRIVES of RFC 2209).

use core::net::IpAddr;

use super::interfaces::{Iface, InterfaceState};
use super::message_ids::{Keys, ReceivedState};
use super::neighbor::{Arrival, Arrivals, Incoming, Verdict};
use super::outbox::Envelope;
use super::{Admission, Rsvp};
use crate::engine::packet::IpReceived;
use crate::wire::{DecodeError, ErrorCode, Fault, Message, MessageType, RsvpHop, Session, Style};

impl Rsvp {
    /// Handles a packet of IP protocol 46.
    pub(super) fn receive(&mut self, packet: &IpReceived<'_>, resources: &mut dyn Admission) {
        let iface = self.interfaces.iface(packet.ifindex);
        if self.interfaces.get(iface).is_none_or(|known| !known.config.enabled) {
            self.counters.disabled += 1;
            tracing::debug!(peer = %packet.src, ifindex = packet.ifindex.0, reason = "RSVP is off at the interface, or it is unknown", "packet dropped");
            return;
        }
        let kind = packet.payload.get(1).copied().map_or(MessageType(0), MessageType);
        let passes = matches!(kind, MessageType::PATH | MessageType::PATH_TEAR | MessageType::RESV_CONF);
        if !passes && !self.interfaces.is_local(packet.dst) && !packet.dst.is_multicast() {
            // Faults of the common header are counted even in messages for other nodes.
            return match Message::parse(packet.payload) {
                Err(error)
                    if matches!(error.fault, Fault::Version | Fault::MessageLength | Fault::Checksum) =>
                {
                    self.count(packet, &error);
                }
                _ => self.pass_on(packet, packet.dst),
            };
        }
        let mut incoming = Incoming::none(*packet);
        let mut arrivals = self.neighbors.receive(&mut incoming);
        self.take_arrivals(packet, &mut arrivals, iface, resources);
    }

    /// Handles the messages of a packet.
    pub(super) fn take_arrivals(
        &mut self,
        packet: &IpReceived<'_>,
        arrivals: &mut Arrivals<'_, '_>,
        iface: Iface,
        resources: &mut dyn Admission,
    ) {
        self.message_ids.received.begin_packet();
        while let Some(arrival) = self.neighbors.next(arrivals) {
            match arrival {
                Arrival::Message => self.on_message(arrivals.message(), iface, resources),
                Arrival::Refreshed { tags } => self.refresh_by_ids(&tags),
                Arrival::Unknown(unknown) => self.on_unknown_id(&unknown),
                Arrival::Malformed(error) => self.count(packet, &error),
            }
        }
    }

    fn on_message(&mut self, incoming: &Incoming<'_>, iface: Iface, resources: &mut dyn Admission) {
        let message = &incoming.message;
        tracing::trace!(kind = %message.kind, peer = %incoming.neighbor, "message received");
        if matches!(message.kind, MessageType::DREQ | MessageType::DREP) {
            return self.on_diagnostic(incoming, iface);
        }
        // A group's packets come back to their sender, as do those of a routing loop.
        let own_error =
            message.kind == MessageType::PATH_ERR && self.interfaces.is_local(incoming.packet.src);
        if own_error || message.hop.is_some_and(|hop| self.interfaces.is_local(hop.addr)) {
            self.counters.own += 1;
            tracing::debug!(kind = %message.kind, peer = %incoming.neighbor, reason = "sent by this node", "message dropped");
            return;
        }
        if message.refusal.is_none() && matches!(message.kind, MessageType::PATH | MessageType::RESV) {
            return self.on_state(incoming, iface, resources);
        }
        if let Some(error) = message.error
            && matches!(message.kind, MessageType::PATH_ERR | MessageType::RESV_ERR)
        {
            self.counters.error_received(error.code);
        }
        // A tear with an older MESSAGE_ID does not end newer state (RFC 2961 §4.5).
        let tears = matches!(message.kind, MessageType::PATH_TEAR | MessageType::RESV_TEAR);
        let known = if tears && message.message_id.is_some() { self.known_by(message, iface) } else { None };
        let stored = known.and_then(|what| self.message_ids.received.handle_of(&what));
        if self.neighbors.judge(incoming, stored) == Verdict::OutOfOrder {
            return;
        }
        match message.kind {
            MessageType::PATH => {
                self.on_path(incoming, iface, resources);
            }
            MessageType::RESV => {
                self.on_resv(message, iface, resources);
            }
            MessageType::PATH_TEAR => self.on_path_tear(message, iface, resources),
            MessageType::RESV_TEAR => self.on_resv_tear(message, iface, resources),
            MessageType::PATH_ERR => self.on_path_err(message, iface, incoming.packet.src),
            MessageType::RESV_ERR => self.on_resv_err(message, iface, resources),
            MessageType::RESV_CONF => self.on_resv_conf(&incoming.packet, message, iface),
            kind => {
                self.counters.unsupported += 1;
                tracing::debug!(%kind, peer = %incoming.neighbor, reason = "message type not supported", "message dropped");
            }
        }
    }

    /// Handles a Path or Resv: its MESSAGE_ID may show that it repeats what is known (RFC 2961 §4.5).
    fn on_state(&mut self, incoming: &Incoming<'_>, iface: Iface, resources: &mut dyn Admission) {
        let message = &incoming.message;
        if message.kind == MessageType::PATH && !self.is_announced_well(incoming, iface) {
            return;
        }
        let named = message.message_id.is_some();
        let known = if named { self.known_by(message, iface) } else { None };
        let stored = known.as_ref().and_then(|what| self.message_ids.received.handle_of(what));
        match (self.neighbors.judge(incoming, stored), known) {
            (Verdict::OutOfOrder, _) => return,
            (Verdict::Refresh, Some(_)) if stored.is_some() => return self.refresh_received(stored),
            _ => {}
        }
        let period = message.refresh_period.unwrap_or_default();
        let life = self.interfaces.lifetime(iface, period);
        if message.kind == MessageType::PATH {
            let sender = self.on_path(incoming, iface, resources);
            if let Some(sender) = sender.filter(|_| named) {
                self.store_received_id(incoming, ReceivedState::Path(sender), life);
            }
            return;
        }
        let accepted = self.on_resv(message, iface, resources);
        if named
            && !accepted.partial
            && !accepted.branches.is_empty()
            && let Some(hop) = message.hop.and_then(|hop| self.hops.find(&RsvpHop { lih: 0, ..hop }))
        {
            let (branches, senders) =
                (Keys::from_slice(&accepted.branches), Keys::from_slice(&accepted.senders));
            self.store_received_id(incoming, ReceivedState::Resv { hop, branches, senders }, life);
        }
        self.recycle_accepted(accepted);
    }

    /// Whether messages about state at `at` may come by `iface`: by the same interface, or by any if hops without RSVP
    /// lie between (RFC 2205 §3.3).
    pub(super) fn may_come_by(&self, at: Iface, iface: Iface) -> bool {
        let trust = |known: &InterfaceState| self.neighbors.config().of(known.ifindex).trust;
        at == iface || self.interfaces.get(at).is_some_and(|known| trust(known).distant_hops)
    }

    /// Counts a message that came by another interface than its state's.
    pub(super) fn wrong_interface(&mut self, kind: MessageType, session: &Session, peer: IpAddr) {
        self.counters.wrong_interface += 1;
        tracing::debug!(%kind, %session, %peer, reason = "by another interface than its state's", "message dropped");
    }

    /// The state that a message is about, if there is such state.
    fn known_by(&self, message: &Message<'_>, iface: Iface) -> Option<ReceivedState> {
        let session = self.find_session(&message.session?)?;
        if matches!(message.kind, MessageType::PATH | MessageType::PATH_TEAR) {
            let key = self.find_sender(session, &message.sender?)?;
            return self
                .senders
                .get(key)
                .filter(|sender| sender.iif == iface)
                .map(|_| ReceivedState::Path(key));
        }
        let hop = message.hop?;
        let oif = self.interfaces.of_handle(hop.lih)?;
        let next = self.hops.find(&RsvpHop { lih: 0, ..hop })?;
        let own = match message.style? {
            Style::Ff => Some(self.find_sender(session, &message.flows().next()?.filter?)?),
            _ => None,
        };
        let branch = self.find_branch(session, own, oif)?;
        Some(ReceivedState::Resv { hop: next, branches: Keys::from_slice(&[branch]), senders: Keys::new() })
    }

    /// Passes on a packet that is not for this node, as any IP packet: a message that was intercepted (RFC 2205 §2.9),
    /// or a diagnostic request on its way to the LAST-HOP.
    pub(super) fn pass_on(&mut self, packet: &IpReceived<'_>, dst: IpAddr) {
        if packet.ttl <= 1 {
            tracing::debug!(src = %packet.src, %dst, reason = "TTL", "packet dropped");
            return;
        }
        tracing::trace!(src = %packet.src, %dst, "packet passed on");
        self.counters.passed_on += 1;
        let envelope = Envelope {
            src: packet.src,
            dst,
            ifindex: None,
            routed: true,
            ttl: packet.ttl - 1,
            tos: packet.tos,
            router_alert: packet.router_alert,
            towards: 0,
            gateway: None,
        };
        self.out.send(envelope, |octets| octets.extend_from_slice(packet.payload));
    }

    /// Counts a message that is dropped because of its format (RFC 2205 Appendix B).
    fn count(&mut self, packet: &IpReceived<'_>, error: &DecodeError) {
        tracing::debug!(peer = %packet.src, reason = %error, "message dropped");
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

/// Code and value of an ERROR_SPEC (RFC 2205 Appendix B).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: ErrorCode,
    pub(super) value: u16,
    /// What this node adds: the place in `Rsvp::told` behind the one that it names; 0: nothing.
    pub(super) told: usize,
}

impl Failure {
    pub(super) const fn new(code: ErrorCode, value: u16) -> Self {
        Self { code, value, told: 0 }
    }

    /// Another style is in place.
    pub(super) fn style_in_place(style: Style) -> Self {
        let vector = u16::try_from(style.option_vector() & 0xffff).unwrap_or(0);
        Self::new(ErrorCode::CONFLICTING_STYLE, vector)
    }
}
