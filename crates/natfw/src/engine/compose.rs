//! Messages that this node sends.

use core::time::Duration;

use signalbox_core::service::{Onward, RecvMessage, Security, SiiHandle, StateHandle, TransferAttributes};
use signalbox_core::slab::Key;
use signalbox_core::{Direction, Mri, SessionId, invariant};
use signalbox_wire::Writer;

use super::Natfw;
use super::check::Refused;
use super::outbox::{Parcel, Purpose};
use super::session::{Answer, Kind, Origin, Request, Session};
use crate::wire::{
    Bindings, Forwarded, Hop, Hops, IcmpTypes, Info, Information, Message, MessageType, Publication,
    refused_by,
};

/// How much longer GIST keeps the routing state of a session than the session lives.
const ROUTE_REST: Duration = Duration::from_secs(5);

/// Why the request of a session failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failed<'a> {
    pub(super) info: Information,
    /// A lifetime that would be accepted.
    pub(super) lifetime: Option<u32>,
    /// A node further on refused: the objects that its RESPONSE carries along.
    pub(super) beyond: Option<Forwarded<'a>>,
    /// This node refused: the reason, for people.
    pub(super) note: Option<&'a str>,
}

impl From<Info> for Failed<'_> {
    fn from(info: Info) -> Self {
        Self { info: info.into(), lifetime: None, beyond: None, note: None }
    }
}

/// Where a message goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) session: SessionId,
    /// With the direction of the message.
    pub(super) mri: Mri,
    pub(super) state: Option<StateHandle>,
    /// Explicit routing to this peer (RFC 5971 §7.1.5).
    pub(super) sii: Option<SiiHandle>,
    pub(super) hops: Option<u8>,
}

impl Target {
    /// Back to the sender of a message, which has no session here.
    pub(super) const fn back_to(received: &RecvMessage<'_>) -> Self {
        let mri = received.mri.inverted();
        Self { session: received.session, mri, state: received.state, sii: None, hops: None }
    }

    /// To the previous peer of a session.
    pub(super) fn previous(session: &Session) -> Self {
        let mri = session.request.mri().inverted();
        Self { session: session.id, mri, state: session.peers.previous_state(), sii: None, hops: None }
    }

    /// To the next peer of a session.
    pub(super) fn next(session: &Session) -> Self {
        Self { session: session.id, mri: session.plan.mri(), state: None, sii: None, hops: None }
    }

    /// To a peer, whatever the route is now (RFC 5973 §3.7.5).
    pub(super) const fn explicitly(self, sii: Option<SiiHandle>) -> Self {
        Self { sii, state: if sii.is_some() { None } else { self.state }, ..self }
    }
}

impl Natfw {
    pub(super) fn send(&mut self, to: Target, message: &Message<'_>, purpose: Purpose) {
        let mut octets = self.out.buffer();
        message.encode(&mut Writer::new(&mut octets));
        let counter = match message.kind {
            MessageType::CREATE => &mut self.counters.creates_sent,
            MessageType::EXTERNAL => &mut self.counters.externals_sent,
            MessageType::RESPONSE => &mut self.counters.responses_sent,
            _ => &mut self.counters.notifies_sent,
        };
        *counter += 1;
        tracing::trace!(session = %to.session, kind = %message.kind, "message sent");
        let secure = self.config.secure;
        let attributes = TransferAttributes {
            // §3.7.5: NOTIFY travels over messaging associations only.
            reliable: self.config.reliable || secure || message.kind == MessageType::NOTIFY,
            stateless: false,
            security: if secure { Security::Channel } else { Security::None },
        };
        let source = match purpose {
            Purpose::Request(key, _) => {
                invariant!(self.sessions.get(key), "a request has a session").and_then(Session::holder)
            }
            Purpose::Unwatched => None,
        };
        let parcel = Parcel {
            state: to.state,
            sii: to.sii,
            hops: to.hops,
            attributes,
            source,
            ..Parcel::new(octets, self.config.nslp, to.session, to.mri, purpose)
        };
        self.give(parcel);
    }

    /// Answers a request that is refused, or does not parse. The RESPONSE names this node.
    pub(super) fn refuse(&mut self, received: &RecvMessage<'_>, msn: u32, refused: impl Into<Refused>) {
        let Refused { info, object, lifetime, note } = refused.into();
        self.counters.refused += 1;
        tracing::debug!(session = %received.session, peer = ?received.sii, reason = %info, "request refused");
        let node = self.interfaces.address(Some(received.ifindex), received.mri.src().is_ipv4());
        let told = refused_by(node, note.as_deref());
        let response = Message {
            msn: Some(msn),
            lifetime,
            info: Some(Information { info, object }),
            forwarded: Forwarded::among(&told),
            ..Message::new(MessageType::RESPONSE)
        };
        self.send(Target::back_to(received), &response, Purpose::Unwatched);
    }

    /// Sends a RESPONSE other than success to the previous peer of a session. `failed` has what other nodes added.
    pub(super) fn answer_error(&mut self, key: Key, msn: u32, failed: &Failed<'_>) {
        let Some(session) = invariant!(self.sessions.get(key), "an error has a session") else { return };
        let to = Target::previous(session);
        let own = match failed.beyond {
            Some(_) => Vec::new(),
            None => {
                refused_by(self.interfaces.address(None, session.request.mri().src().is_ipv4()), failed.note)
            }
        };
        let response = Message {
            msn: Some(msn),
            lifetime: failed.lifetime,
            info: Some(failed.info),
            forwarded: failed.beyond.unwrap_or(Forwarded::among(&own)),
            ..Message::new(MessageType::RESPONSE)
        };
        self.send(to, &response, Purpose::Unwatched);
    }

    /// Sends the RESPONSE of success to the previous peer of a session (RFC 5973 §4.3.3).
    pub(super) fn answer_success(&mut self, key: Key, mut answer: Answer) {
        if let Some(Origin::Host(id)) = self.sessions.get(key).map(Session::origin) {
            return self.tell_host(id, key, answer.external);
        }
        // An edge that made the session for an EXTERNAL has no previous peer.
        let Some(session) = invariant!(self.sessions.get(key), "a success has a session")
            .filter(|session| !session.begins_here())
        else {
            return;
        };
        let to = Target::previous(session);
        let beyond = core::mem::take(&mut answer.hops);
        let hops = session.peers.lists().then(|| self.with_own(session, beyond, answer.own));
        let publication = session.request.publication_octets().to_vec();
        let response = Message {
            msn: Some(answer.msn),
            lifetime: Some(answer.lifetime),
            publication: Publication::of(&publication),
            hops: hops.as_deref().and_then(Hops::from_octets),
            forwarded: Forwarded::among(&answer.forwarded),
            info: Some(Info::PROCESSED.into()),
            external: answer.external,
            bindings: answer.bindings.as_ref().map(|(port, addresses)| Bindings::of(*port, addresses)),
            ..Message::new(MessageType::RESPONSE)
        };
        self.send(to, &response, Purpose::Unwatched);
    }

    /// The list of the nodes further on that granted a request, with an entry of this node. A full list is unchanged. `answered`: this
    /// node sent the answer.
    fn with_own(&self, session: &Session, mut hops: Vec<u8>, answered: bool) -> Vec<u8> {
        let (ifindex, after_gap, routers) = session.peers.before();
        if let Some(address) = self.interfaces.address(Some(ifindex), session.request.mri().src().is_ipv4()) {
            Hop { after_gap, routers, answered, ..Hop::new(address, session.part()) }.append(&mut hops);
        }
        hops
    }

    /// Sends the request of a session to the next peer, with the objects that `received` carries along.
    pub(super) fn send_on(
        &mut self,
        key: Key,
        lifetime: u32,
        received: Option<(&RecvMessage<'_>, &Message<'_>)>,
    ) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a sent request has a session") else {
            return;
        };
        session.unanswered.get_or_insert(session.msn);
        let (msn, deletes) = (session.msn, lifetime == 0);
        let Request { efi, proxy, extend, .. } = session.request;
        let (nonce, icmp_types) = (session.request.nonce(), Box::<[u8]>::from(session.request.icmp_types()));
        let publication = Box::<[u8]>::from(session.request.publication_octets());
        let external = session.plan.external.as_ref();
        let terminal = external.map(|external| external.terminal);
        let binding = external.and_then(|external| external.binding);
        let asks_bindings = session.local.as_ref().is_some_and(|local| local.bindings);
        let token = session.local.as_ref().map(|local| local.token.clone()).unwrap_or_default();
        let lists = match received {
            Some((_, message)) => message.hops.is_some(),
            None => matches!(session.origin(), Origin::Command(_)) && !deletes,
        };
        // A request that comes back is known by its sequence number, so that it may go on with a hop count of this node.
        let hops = received.and_then(|(received, _)| match received.onward() {
            Onward::Preserved(hops) => Some(hops),
            Onward::Own | Onward::Spent => None,
        });
        let to = Target { hops, ..Target::next(session) };
        let kind = match session.kind {
            Kind::Create => MessageType::CREATE,
            Kind::External => MessageType::EXTERNAL,
        };
        let mut addresses = Vec::new();
        let bindings = match received.and_then(|(_, message)| message.bindings) {
            // §3.7.2: each NAT that is not the edge adds its own.
            Some(old) => {
                addresses.extend_from_slice(old.octets());
                addresses.extend(binding.iter().flat_map(|own| own.address.octets()));
                let port = binding.map_or(old.port, |own| own.port);
                Some(Bindings::of(port, &addresses))
            }
            None => asks_bindings.then_some(Bindings::EMPTY),
        };
        let message = Message {
            proxy,
            extend,
            lifetime: Some(lifetime),
            msn: Some(msn),
            efi: Some(efi),
            terminal,
            nonce,
            icmp_types: (!icmp_types.is_empty()).then(|| IcmpTypes::of(&icmp_types)),
            bindings,
            publication: Publication::of(&publication),
            hops: lists.then_some(Hops::EMPTY),
            neighbor: lists,
            forwarded: received.map_or(Forwarded::among(&token), |(_, message)| message.forwarded),
            ..Message::new(kind)
        };
        let purpose = if deletes { Purpose::Unwatched } else { Purpose::Request(key, msn) };
        self.send(to, &message, purpose);
    }

    /// Sends a NOTIFY about a session in one direction, if there is a peer (RFC 5973 §3.7.5).
    pub(super) fn notify(&mut self, key: Key, info: Info, outbound: bool) {
        let Some(session) = invariant!(self.sessions.get(key), "a NOTIFY has a session") else { return };
        let to = if outbound {
            if !session.plan.forwards {
                return;
            }
            // The route may have changed: the old peer is meant.
            Target::next(session).explicitly(session.peers.next())
        } else {
            if session.begins_here() {
                return;
            }
            Target::previous(session)
        };
        let notify = Message { info: Some(info.into()), ..Message::new(MessageType::NOTIFY) };
        self.send(to, &notify, Purpose::Unwatched);
    }

    /// Makes GIST keep the routing state towards the responder as long as the session lives, so that a NOTIFY finds
    /// its way; zero: GIST needs to keep it no longer.
    pub(super) fn keep_route(&mut self, key: Key, lifetime: u32) {
        let Some(session) = invariant!(self.sessions.get(key), "a kept route has a session")
            .filter(|session| session.plan.forwards)
        else {
            return;
        };
        let (mri, id) = (session.plan.mri(), session.id);
        // Only the node that queries can keep it, which is the upstream one.
        if mri.direction() == Direction::Downstream {
            // Longer than the session: state of GIST that ends first would look like a change of the route.
            let rest = if lifetime > 0 { ROUTE_REST } else { Duration::ZERO };
            let lifetime = Duration::from_secs(lifetime.into()) + rest;
            self.out.set_state_lifetime(self.config.nslp, mri, id, lifetime);
        }
    }
}
