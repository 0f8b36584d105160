//! Diagnostics (RFC 2745 §4). A DREQ collects the state of a session at each node on the path to the sender; a DREP
//! returns it. No state changes. A DREQ is not authenticated in general: the number handled in a second is limited.
//!
//! A DREQ comes from the node downstream, or from a requester to the LAST-HOP, where the collection begins. `finding`
//! is the answer of this node. Replies to requesters are UDP datagrams ([`Output::Reply`](super::Output::Reply)).
//! Between nodes DREPs follow the ROUTE object, if there is one, as RSVP messages.

mod finding;

use core::net::{IpAddr, SocketAddr};

use signalbox_core::bucket::TokenBucket;
use signalbox_core::index::KeyedHasher;
use signalbox_core::shares::{RateShares, source};
use signalbox_core::{Key, Time, invariant};

use super::{Config, Rsvp};
use crate::engine::interfaces::Iface;
use crate::engine::neighbor::Incoming;
use crate::engine::outbox::Envelope;
use crate::engine::packet::IpReceived;
use crate::wire::{
    self, Class, DiagErrors, DiagResponse, Diagnostic, HeaderFlags, Message, MessageType, RsvpHop, Writer,
};

/// UDP source port of replies: IANA's port for RSVP (`prsvp`). The RFC has none.
const REPLY_PORT: u16 = 3455;
/// Octets of an INTEGRITY with the longest digest.
const SIGNATURE: usize = 52;

/// TTL of replies.
const REPLY_TTL: u8 = 64;

/// What this node needs for diagnostics.
#[derive(Debug)]
pub(super) struct Diagnostics {
    /// Limit of the messages that are handled in a second.
    queries: TokenBucket,
    /// Limits of the replies, for each address to which they go.
    replies: RateShares,
    /// A message that is being composed. It is an allocation that is used again, and holds no facts.
    message: Vec<u8>,
}

impl Diagnostics {
    pub(super) fn new(config: &Config, hasher: KeyedHasher) -> Self {
        Self {
            queries: TokenBucket::new(config.diagnostics, config.diagnostics),
            replies: RateShares::new(replies_each(config), hasher),
            message: Vec::new(),
        }
    }

    /// Takes other limits.
    pub(super) fn set_limits(&mut self, now: Time, config: &Config) {
        self.queries.set_limits(now, config.diagnostics, config.diagnostics);
        self.replies.set_rate(now, replies_each(config));
    }
}

/// A DREQ or DREP that leaves: the message that arrived, with the changes of this node.
#[derive(Clone)]
struct Draft<'a> {
    message: &'a Message<'a>,
    hop: RsvpHop,
    asked: Diagnostic,
    /// Nodes of the ROUTE and the R-pointer; `None`: there is no ROUTE.
    route: Option<(Vec<IpAddr>, u8)>,
    /// The DIAG_RESPONSEs of other nodes are included.
    others: bool,
    own: Option<DiagResponse<'a>>,
}

impl Draft<'_> {
    fn write(&self, w: &mut Writer<'_>) {
        if let Some(session) = self.message.session {
            w.session(&session, self.message.e_police);
        }
        w.hop(&self.hop).diagnostic(&self.asked);
        let of_class = |class: Class| self.message.objects().filter(move |one| one.kind.class == class);
        of_class(Class::DIAG_SELECT).for_each(|one| _ = w.raw(one.octets));
        if let Some((nodes, pointer)) = &self.route {
            w.route(self.asked.last_hop.is_ipv6(), *pointer, nodes.iter().copied());
        }
        self.message.kept().for_each(|one| _ = w.raw(one.octets));
        if self.others {
            of_class(Class::DIAG_RESPONSE).for_each(|one| _ = w.raw(one.octets));
        }
        if let Some(own) = &self.own {
            w.diag_response(own);
        }
    }

    /// Octets of the message, without the objects of the neighbor layer.
    fn octets(&self) -> usize {
        let mut octets = Vec::new();
        let mut w = Writer::new(&mut octets, MessageType::DREQ, HeaderFlags::default(), 0);
        self.write(&mut w);
        w.len()
    }
}

/// Octets of an IP header before RSVP; that of IPv6 has a Router Alert.
const fn ip_header(ipv6: bool) -> usize {
    if ipv6 { 48 } else { 20 }
}

const fn address_octets(ipv6: bool) -> usize {
    if ipv6 { 16 } else { 4 }
}

/// The smallest Path MTU (RFC 2745 §3.3): a DREQ with an empty ROUTE and one default DIAG_RESPONSE of guaranteed
/// service, with its IP header.
const fn least_mtu(ipv6: bool) -> usize {
    let address = address_octets(ipv6);
    let (session_and_hop, diagnostic) = (2 * (8 + address), 32 + 3 * address);
    let response = DiagResponse::octets(ipv6) + 36 + 8 + 48 + 8 + address;
    ip_header(ipv6) + 8 + session_and_hop + diagnostic + 8 + response
}

/// The replies in a second that one requester gets: their octets are more than those of a request, and the request
/// may be forged.
fn replies_each(config: &Config) -> u32 {
    config.diagnostics.div_ceil(5)
}

impl Rsvp {
    /// Handles a DREQ or DREP that is addressed to this node (RFC 2745 §4).
    pub(super) fn on_diagnostic(&mut self, incoming: &Incoming<'_>, iface: Iface) {
        let (message, packet) = (&incoming.message, &incoming.packet);
        if self.config.diagnostics == 0 {
            self.counters.unsupported += 1;
            return;
        }
        if !self.diagnostics.queries.allow(self.now) {
            self.counters.diagnostics_limited += 1;
            tracing::debug!(peer = %packet.src, reason = "limit of a second", "diagnostic dropped");
            return;
        }
        // Diagnostic messages are unicast (§2).
        let (Some(asked), Some(hop), false) = (message.diagnostic(), message.hop, packet.dst.is_multicast())
        else {
            self.counters.diagnostics_dropped += 1;
            tracing::debug!(reason = "not unicast, or without a DIAGNOSTIC", "diagnostic dropped");
            return;
        };
        let route = message.route().map(|route| (route.nodes().collect(), route.pointer));
        let draft = Draft { message, hop, asked, route, others: true, own: None };
        if message.kind == MessageType::DREQ {
            self.on_dreq(packet, draft, iface);
        } else {
            self.on_drep(draft, iface);
        }
    }

    /// Forwards a DREQ, by the steps of RFC 2745 §4.1.
    fn on_dreq(&mut self, packet: &IpReceived<'_>, mut draft: Draft<'_>, iface: Iface) {
        let (message, asked) = (draft.message, draft.asked);
        let begins = asked.offset == 0 && message.responses().next().is_none();
        if begins && !self.interfaces.is_local(asked.last_hop) {
            return self.towards_last_hop(packet, asked.last_hop);
        }
        // Steps 1 to 6.
        let found = self.find(message, &asked, begins, iface);
        let ipv6 = asked.last_hop.is_ipv6();
        (draft.asked.more, draft.asked.hops) = (false, asked.hops.saturating_add(1));
        let limit = if asked.max_hops == 0 { u8::MAX } else { asked.max_hops };
        let onward = found.previous.filter(|_| draft.asked.hops < limit);
        if let Some(known) = onward.and_then(|_| self.interfaces.get(found.iif)) {
            draft.asked.path_mtu = asked.path_mtu.min(u16::try_from(known.mtu).unwrap_or(u16::MAX));
        }
        let room = self.room(&draft, onward.is_some(), [found.iif, iface]);
        let mut least = draft.clone();
        least.others = false;
        least.route = draft.route.as_ref().map(|_| (Vec::new(), 0));
        let Some(spare) = room.checked_sub(least.octets() + DiagResponse::octets(ipv6)) else {
            // The requested objects do not fit a packet, whatever they are.
            self.counters.diagnostics_dropped += 1;
            tracing::debug!(reason = "the response fits no packet", "diagnostic dropped");
            return;
        };
        self.counters.dreqs_taken += 1;
        tracing::debug!(requester = %asked.requester, sender = %asked.sender, "DREQ answered or passed on");
        let (objects, whole) = self.response_objects(&found, message.select().as_ref(), spare);
        let hops = message.send_ttl.saturating_sub(packet.ttl);
        let mut own = self.response(&found, hops, ipv6, &objects);
        if !whole {
            own.errors = own.errors.with(DiagErrors::TOO_BIG);
        }
        let mut draft = Draft { own: Some(own), ..draft };
        // Step 7, and Send_DREP.
        let full = draft.route.as_ref().is_some_and(|(nodes, _)| nodes.len() >= usize::from(u8::MAX));
        if draft.octets() > room || full {
            own.errors = own.errors.with(DiagErrors::TOO_BIG);
            let of_others = message.objects().filter(|one| one.kind.class == Class::DIAG_RESPONSE);
            let returned: usize = of_others.map(|one| one.octets.len()).sum();
            if returned > 0 {
                let asked = Diagnostic { more: true, ..draft.asked };
                self.send_back(Draft { asked, own: None, ..draft.clone() }, iface, hops > 0);
            }
            draft.others = false;
            let offset = u16::try_from(returned).ok().and_then(|more| asked.offset.checked_add(more));
            let Some(offset) = offset else {
                // The fragment offset of the rest cannot be expressed.
                self.counters.diagnostics_dropped += 1;
                tracing::debug!(reason = "the fragment offset overflows", "diagnostic dropped");
                return;
            };
            draft.asked.offset = offset;
            let too_big = full || draft.octets() > room;
            if let Some(route) = draft.route.as_mut().filter(|_| too_big) {
                *route = (Vec::new(), 0);
                own.errors = own.errors.with(DiagErrors::ROUTE_TOO_BIG);
            }
            draft.own = Some(own);
        }
        // Steps 8 to 10.
        match onward {
            Some(previous) => self.pass_upstream(draft, previous, found.sender),
            None => self.send_back(draft, iface, hops > 0),
        }
    }

    /// Octets that a message may have: the Path MTU without the IP header and the objects that may be added.
    fn room(&self, draft: &Draft<'_>, onward: bool, ifaces: [Iface; 2]) -> usize {
        let ipv6 = draft.asked.last_hop.is_ipv6();
        let signs = |iface| {
            let ifindex = self.interfaces.get(iface).map(|known| known.ifindex);
            ifindex.is_some_and(|ifindex| self.neighbors.config().of(ifindex).integrity.sending)
        };
        let signature = if ifaces.into_iter().any(signs) { SIGNATURE } else { 0 };
        let listed = if onward && draft.route.is_some() { address_octets(ipv6) } else { 0 };
        let packet = usize::from(draft.asked.path_mtu).max(least_mtu(ipv6));
        packet.saturating_sub(ip_header(ipv6) + signature + listed)
    }

    /// Passes on a DREQ on its way to the LAST-HOP; this node is downstream of it and collects nothing.
    fn towards_last_hop(&mut self, packet: &IpReceived<'_>, last_hop: IpAddr) {
        if packet.ttl <= 1 {
            self.counters.diagnostics_dropped += 1;
            tracing::debug!(reason = "TTL", "diagnostic dropped");
            return;
        }
        self.pass_on(packet, last_hop);
    }

    /// Step 9 of RFC 2745 §4.1: sends the DREQ towards the sender.
    fn pass_upstream(&mut self, mut draft: Draft<'_>, previous: RsvpHop, sender: Option<Key>) {
        let Some(sender) =
            invariant!(sender.and_then(|key| self.senders.get(key)), "a previous hop is that of a sender")
        else {
            return;
        };
        let envelope = self.envelope_before(previous.addr, sender);
        draft.hop = RsvpHop { addr: envelope.src, lih: previous.lih };
        if let Some((nodes, pointer)) = &mut draft.route {
            nodes.push(envelope.src);
            *pointer = u8::try_from(nodes.len()).unwrap_or(u8::MAX);
        }
        self.send_diagnostic(envelope, MessageType::DREQ, &draft);
    }

    /// Step 10 and Send_DREP of RFC 2745 §4.1: sends a DREP back along the ROUTE or to the requester; `far`: nodes
    /// without RSVP lie between, and routing decides the way back.
    fn send_back(&mut self, mut draft: Draft<'_>, iface: Iface, far: bool) {
        let last = draft.route.as_mut().and_then(|(nodes, pointer)| {
            let last = *nodes.last()?;
            *pointer = u8::try_from(nodes.len() - 1).unwrap_or(u8::MAX);
            Some(last)
        });
        let to = last.unwrap_or_else(|| draft.asked.requester.ip());
        if !self.diagnostics.replies.allow(self.now, &source(to)) {
            self.counters.diagnostics_limited += 1;
            tracing::debug!(%to, reason = "limit of a second for its address", "DREP not sent");
            return;
        }
        match last {
            Some(node) => {
                let envelope = self.envelope_back(node, iface, far);
                self.send_diagnostic(envelope, MessageType::DREP, &draft);
            }
            None => self.reply(&draft, iface),
        }
    }

    /// Forwards a DREP along the ROUTE (RFC 2745 §4.2); the R-pointer names this node.
    fn on_drep(&mut self, mut draft: Draft<'_>, iface: Iface) {
        let last_hop = self.interfaces.is_local(draft.asked.last_hop);
        let Some((nodes, pointer)) = &mut draft.route else {
            self.counters.diagnostics_dropped += 1;
            tracing::debug!(reason = "no ROUTE", "diagnostic dropped");
            return;
        };
        let at = usize::from(*pointer);
        // This node forwards only DREPs whose ROUTE names it.
        if !nodes.get(at).is_some_and(|own| self.interfaces.is_local(*own)) {
            self.counters.diagnostics_dropped += 1;
            tracing::debug!(reason = "this node is not where the R-pointer says", "diagnostic dropped");
            return;
        }
        let before = at.checked_sub(1).filter(|_| !last_hop);
        let Some(node) = before.and_then(|before| nodes.get(before).copied()) else {
            return self.reply(&draft, iface);
        };
        *pointer -= 1;
        // It leaves by the outgoing interface of the data, if there is only one; else routing decides.
        let session = draft.message.session.and_then(|session| self.find_session(&session));
        let iface = session.and_then(|session| self.only_egress(session)).unwrap_or(Iface::NONE);
        self.send_diagnostic(self.envelope_to(node, iface), MessageType::DREP, &draft);
    }

    /// Sends a DREQ or DREP to the next node, with INTEGRITY where it is configured.
    fn send_diagnostic(&mut self, envelope: Envelope, kind: MessageType, draft: &Draft<'_>) {
        let mut octets = core::mem::take(&mut self.diagnostics.message);
        octets.clear();
        let mut w = Writer::new(&mut octets, kind, HeaderFlags::default(), envelope.ttl);
        draft.write(&mut w);
        if !wire::is_host(envelope.dst) || envelope.dst.is_ipv6() != draft.asked.last_hop.is_ipv6() {
            self.counters.diagnostics_dropped += 1;
            tracing::debug!(reason = "the next node has no usable address", "diagnostic dropped");
        } else if w.finish_without_checksum().is_ok() {
            let ifindex = envelope.ifindex.unwrap_or_default();
            self.neighbors.send_alone(envelope.at(ifindex), &octets);
            let counters = &mut self.counters;
            let counter =
                if kind == MessageType::DREQ { &mut counters.dreqs_sent } else { &mut counters.dreps_sent };
            *counter += 1;
        } else {
            self.counters.too_large += 1;
        }
        self.diagnostics.message = octets;
    }

    /// Replies to the requester by UDP (RFC 2745 §6). A reply that cannot be sent is dropped (§4.4).
    fn reply(&mut self, draft: &Draft<'_>, iface: Iface) {
        let Diagnostic { requester, last_hop, .. } = draft.asked;
        if requester.port() == 0 {
            self.counters.diagnostics_dropped += 1;
            tracing::debug!(reason = "no port to reply to", "diagnostic dropped");
            return;
        }
        let own = self.interfaces.is_local(last_hop).then_some(last_hop);
        let src = own.unwrap_or_else(|| self.own_address(iface, requester.is_ipv6()));
        let src = SocketAddr::new(src, REPLY_PORT);
        let sent = self.out.reply(src, requester, self.config.interface.tos, |octets| {
            let start = octets.len();
            let mut w = Writer::new(octets, MessageType::DREP, HeaderFlags::default(), REPLY_TTL);
            draft.write(&mut w);
            if w.finish().is_err() {
                octets.truncate(start);
            }
        });
        let counters = &mut self.counters;
        *(if sent { &mut counters.dreps_sent } else { &mut counters.too_large }) += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted by hand: common header, SESSION, RSVP_HOP, DIAGNOSTIC, empty ROUTE, DIAG_RESPONSE with SENDER_TSPEC, STYLE,
    /// guaranteed FLOWSPEC and FILTER_SPEC.
    #[test]
    fn the_smallest_path_mtu() {
        assert_eq!(least_mtu(false), 20 + 8 + 12 + 12 + 44 + 8 + (24 + 36 + 8 + 48 + 12));
        assert_eq!(least_mtu(true), 48 + 8 + 24 + 24 + 80 + 8 + (60 + 36 + 8 + 48 + 24));
    }
}
