//! A planned restart: what this node leaves to its successor, and what it does with what its predecessor left.
//!
//! GIST brings the sessions back in any case: its peers repeat their requests ([`core::handover`](signalbox_core::handover)). That is too
//! late for what others know already, which are the external ports, and for the packets that pass meanwhile. So this node leaves each
//! session whose passage stands: the last request, who made it and what that proved, the external port, and the time that is left. The
//! successor plans the request anew, as if it arrived now, by its own rules, roles and interfaces. If it is allowed, and what it opens
//! is the same, the session stands from the first moment on, with its port. If not, it ends, which is a decision for the log.
//!
//! Nothing of it is taken for proved later. The peer of the session is not known to GIST, so the first request that comes is judged
//! like a new one ([`Session::is_of`]).
//!
//! The CREATE of an edge for an EXTERNAL in proxy mode is made anew when the EXTERNAL is refreshed. It goes on in the session that the nodes
//! inside have, with the next number, so that it replaces what they have instead of being one more.
//!
//! A session whose requester showed a token is left out: the token itself is not kept, and what it allowed is not repeated without
//! it. The port is kept for its holder ([`leases`](super::leases)).

mod entry;

use core::time::Duration;

use signalbox_core::handover::Entries;
use signalbox_core::pinhole::{OpenerId, PinholeId};
use signalbox_core::ports::Binding;
use signalbox_core::service::{AddressValidation, RecvMessage, Security, TransferAttributes};
use signalbox_core::slab::Key;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{NslpId, Time, invariant};
use signalbox_resources::decision::{By, Extent, Outcome, Why};
use signalbox_resources::{Decided, Neighbor, Passage, Proof, RequestedBy, Requester, Resources};
use signalbox_wire::Writer;

use self::entry::{Entry, Former, FormerCreate};
use super::Natfw;
use super::create::Held;
use super::far::{Far, Routes};
use super::outbox::Own;
use super::request::kind_of;
use super::response::rule;
use super::session::{Kind, Origin, Peers, Request, Session, State, pinhole_id};
use super::table::Opening as NewSession;
use crate::wire::{IcmpTypes, Message, MessageType};

/// Why a session of the node before this one ends.
const CHANGED: &str = "what it asks for is no longer possible after the restart";

/// An entry for [`Input::Handover`](super::Input::Handover): a binding that the kernel has from a process that crashed, and the time
/// until it ends there.
#[must_use]
pub fn left_binding(binding: &Binding, left: Duration) -> Vec<u8> {
    entry::binding(binding, left)
}

impl Session {
    /// Whether the node that starts in place of this one takes it over.
    pub(super) fn is_handed_over(&self) -> bool {
        let requester = self.plan.passage.as_ref().map(Passage::requester);
        self.origin() == Origin::Peer
            && self.state == State::Established
            && self.active == self.plan.installs
            && requester.is_some_and(|requester| requester.token.is_none() && neighbor(requester).is_some())
    }
}

/// The only neighbor that asked.
const fn neighbor(requester: &Requester) -> Option<&Neighbor> {
    match &requester.requested_by {
        RequestedBy::Neighbor(neighbor) => Some(neighbor),
        RequestedBy::Unknown | RequestedBy::LocalUser(_) | RequestedBy::Neighbors(_) => None,
    }
}

impl Natfw {
    /// Writes the sessions whose passages stand. Those of hosts that wait come first: the requests of others are for them. It walks
    /// over all sessions, so it is for a node that ends.
    pub fn hand_over(&self, now: Time, to: &mut Entries) {
        let mut octets = Vec::new();
        for kind in [Kind::External, Kind::Create] {
            for (_, session) in self.sessions.iter().filter(|(_, session)| session.kind == kind) {
                octets.clear();
                if self.write(session, now, &mut octets).is_none() {
                    continue;
                }
                if !to.push(&octets) {
                    return;
                }
                if let Some(secondary) = self.sessions.get(session.secondary) {
                    octets.clear();
                    let (external, session, msn) = (session.id, secondary.id, secondary.msn);
                    FormerCreate { external, session, msn }.write(&mut octets);
                    to.push(&octets);
                }
            }
        }
    }

    /// Whether a pinhole stays in the kernel for the node that starts in place of this one.
    #[must_use]
    pub fn leaves(&self, id: PinholeId) -> bool {
        self.sessions
            .get(Key::from_u64(id.key))
            .is_some_and(|session| session.active && session.is_handed_over())
    }

    fn write(&self, session: &Session, now: Time, to: &mut Vec<u8>) -> Option<()> {
        if !session.is_handed_over() {
            return None;
        }
        let passage = session.plan.passage.as_ref()?;
        let requester = passage.requester();
        let Neighbor { address: peer, ifindex, .. } = *neighbor(requester)?;
        let left = u32::try_from(session.expires.since(now).as_secs()).ok().filter(|left| *left > 0)?;
        let known = |name: Option<&str>| name.and_then(|name| self.interfaces.index(name));
        let [from, towards] = passage.interfaces().map(known);
        let ends = match session.kind {
            Kind::Create => [from, towards],
            Kind::External => {
                let opens = session.plan.external.as_ref().and_then(|external| external.opens.first());
                [towards, opens.and_then(|passage| known(passage.interfaces()[0]))]
            }
        };
        let request = &session.request;
        let message = Message {
            proxy: request.proxy,
            extend: request.extend,
            lifetime: Some(session.accepted),
            msn: Some(session.msn),
            efi: Some(request.efi),
            terminal: request.terminal(),
            nonce: request.nonce(),
            publication: request.publication(),
            icmp_types: Some(request.icmp_types()).filter(|types| !types.is_empty()).map(IcmpTypes::of),
            ..Message::new(match session.kind {
                Kind::Create => MessageType::CREATE,
                Kind::External => MessageType::EXTERNAL,
            })
        };
        let mut octets = Vec::new();
        message.encode(&mut Writer::new(&mut octets));
        let former = Former {
            session: session.id,
            left,
            port: session
                .plan
                .lease
                .and_then(|lease| invariant!(self.ports.port(lease), "a session's lease has a port")),
            opening: passage.opening(),
            peer,
            ifindex,
            identity: requester.peer.as_deref().cloned(),
            ends,
            mri: request.mri(),
            message: &octets,
        };
        former.write(to);
        Some(())
    }

    /// Takes what the node before this one left. It is one turn for all sessions, at the start, before any message: what stands in the
    /// kernel afterwards has a session.
    pub(super) fn take_over(&mut self, mut entries: Entries, resources: &mut Resources) {
        while let Some(entry) = entries.take() {
            match Entry::parse(entry) {
                Some(Entry::Session(former)) => self.restore(&former, resources),
                Some(Entry::Binding(binding, left)) => self.keep_port(&binding, left),
                // One whose EXTERNAL was not restored expires.
                Some(Entry::Create(former)) if self.find(former.external).is_some() => {
                    self.former_creates.insert(former.external, (former.session, former.msn));
                }
                Some(Entry::Create(_)) => {}
                None => tracing::debug!(reason = "damaged", "session of the predecessor dropped"),
            }
        }
    }

    /// Plans the request of a session anew. A newer one may be there.
    fn restore(&mut self, former: &Former<'_>, resources: &mut Resources) {
        let message = Message::parse(former.message).ok().filter(|message| !message.deletes());
        let request = message.as_ref().and_then(|message| Request::of(message, &former.mri));
        let (Some(message), Some(request)) = (message, request) else {
            return tracing::debug!(reason = "damaged", "session of the predecessor dropped");
        };
        let Some(msn) = message.msn.filter(|_| self.find(former.session).is_none()) else { return };
        resources.passage_stood(OpenerId::NATFW, former.session);
        let received = arrived(former, self.config.nslp);
        let routes = self.former_routes(former, (kind_of(&message), &received, &request));
        let held = Held { port: former.port, opening: former.opening };
        let refusals = self.counters.not_restored;
        let planned = self.plan(&received, &message, &request, (&routes, Some(held)), resources);
        let (plan, lifetime) = match planned {
            Ok((plan, lifetime)) => (plan, lifetime),
            // A refusal of the policy is counted and recorded already.
            Err(_) if self.counters.not_restored != refusals => return,
            Err(_) => return self.lost(former, resources),
        };
        let port = plan.lease.and_then(|lease| invariant!(self.ports.port(lease), "a new lease has a port"));
        let opening = plan.passage.as_ref().map(Passage::opening);
        let same = (opening, port) == (Some(former.opening), former.port);
        let left = former.left.min(lifetime);
        if !same || left == 0 {
            self.undo(plan, resources);
            return self.lost(former, resources);
        }
        let opening = NewSession {
            id: former.session,
            kind: kind_of(&message),
            request,
            plan,
            source: former.peer,
            msn,
            lifetime,
            local: None,
        };
        match self.open(opening, resources) {
            Some(key) => self.stand(key, left),
            None => self.lost(former, resources),
        }
    }

    /// The routes to both ends of its flow, as the node before this one knew them. The next request is judged by those of then.
    fn former_routes(
        &self,
        former: &Former<'_>,
        (kind, received, request): (Kind, &RecvMessage<'_>, &Request),
    ) -> Routes {
        let ends = [self.near_end(kind, received, request), self.far_end(kind, received, request)];
        let known = ends
            .into_iter()
            .zip(former.ends)
            .filter_map(|(end, ifindex)| Some(Far { address: end?, ifindex }));
        known.fold(Routes::default(), Routes::with)
    }

    /// A session stands as it stood at the node before this one.
    fn stand(&mut self, key: Key, left: u32) {
        let left = Duration::from_secs(left.into());
        let Some(session) = invariant!(self.sessions.get_mut(key), "a restored session exists") else {
            return;
        };
        self.counters.restored += 1;
        session.peers = Peers::former();
        session.state = State::Established;
        session.expires = self.now + left;
        if let Some(pinhole) = rule(&session.request, &session.plan).filter(|_| session.plan.installs) {
            session.kernel = 1;
            self.out.push(Own::Open(pinhole_id(key), Box::new(pinhole), left));
        }
        self.rearm(key);
    }

    /// A session of the node before this one ends for another reason than the policy.
    fn lost(&mut self, former: &Former<'_>, resources: &mut Resources) {
        self.counters.not_restored += 1;
        tracing::info!(session = %former.session, opening = %former.opening, reason = CHANGED, "passage ended by the restart");
        let opening = former.opening;
        let lifetime = Some(Duration::from_secs(former.left.into()));
        resources.decide(Decided {
            outcome: Outcome::Lost,
            subject: opening.into(),
            by: By::Opener(OpenerId::NATFW),
            session: Some(former.session),
            requester: &requester(former),
            flows: &[FlowFilter::from(&former.mri)],
            extent: Extent { opening: Some(opening), lifetime, ..Extent::default() },
            rule: None,
            why: Why::Protocol(CHANGED),
        });
    }
}

fn requester(former: &Former<'_>) -> Requester {
    let proof = if former.identity.is_some() { Proof::Identity } else { Proof::Handshake };
    let neighbor = Neighbor { address: former.peer, ifindex: former.ifindex, proof };
    let peer = former.identity.clone().map(std::sync::Arc::new);
    Requester::new(RequestedBy::Neighbor(neighbor), peer, Some(former.mri.src()))
}

/// The request as it arrived at the node before this one.
fn arrived<'a>(former: &Former<'a>, nslp: NslpId) -> RecvMessage<'a> {
    let security = if former.identity.is_some() { Security::Channel } else { Security::None };
    RecvMessage {
        data: former.message,
        nslp,
        session: former.session,
        mri: former.mri,
        check: None,
        state: None,
        sii: None,
        peer: former.identity.clone().map(std::sync::Arc::new),
        peer_address: Some(former.peer),
        attributes: TransferAttributes { reliable: true, stateless: false, security },
        validation: AddressValidation { return_routable: true, ..AddressValidation::default() },
        ip_ttl: u8::MAX,
        ip_distance: 0,
        hops: u8::MAX,
        ifindex: former.ifindex,
        // A flow that ends here opens nothing, and no session is left.
        at_flow_end: false,
    }
}
