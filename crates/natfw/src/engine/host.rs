//! Publications for hosts inside that do not run the application: a front end of this node asks in their place.
//!
//! The request is an EXTERNAL as if it had arrived from the host by the interface inside. So the policy judges the host, its share of
//! the tables counts, and this node is a NAT or firewall of the path like those further on. Only the answer goes to the front end. What the
//! host has proved is that its packets come from its link.

use core::net::{IpAddr, SocketAddr};

use signalbox_core::mri::{Direction, LooseEnd};
use signalbox_core::service::{AddressValidation, RecvMessage, Security, TransferAttributes};
use signalbox_core::slab::Key;
use signalbox_core::{IfIndex, Mri, SessionId, invariant};
use signalbox_resources::{End, Resources};

use super::Natfw;
use super::check::{Refused, seconds};
use super::event::Failure;
use super::far::{Far, Routes, Unplanned};
use super::outbox::Own;
use super::session::{Answer, Kind, Local, Origin, Request, Session};
use super::table::Opening;
use crate::wire::{
    DataTerminal, ExternalAddress, FlowInfo, Info, Message, MessageType, ObjectType, PUBLICATION,
    Publication, Wish,
};

/// What a front end asks for in the place of a host inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRequest {
    /// The address of the host.
    pub host: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// The port of the host.
    pub port: u16,
    /// The interface towards the host, by which its request came. Who drives the engine has looked that the route to it leads there.
    pub ifindex: IfIndex,
    /// An address behind the edge of the network (RFC 5973 Appendix A).
    pub towards: IpAddr,
    /// What is wished for.
    pub wish: Wish,
}

/// What becomes of a request of a front end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEvent {
    /// All nodes of the path are open; the place at the outermost one. It comes again when the place is another one.
    Granted(SocketAddr),
    /// The first answer is a refusal, or there is none. Nothing is open, and the request is over.
    Refused {
        /// The reason.
        failure: Failure,
        /// It is the wish that cannot be granted.
        wish: bool,
    },
    /// It was granted, and no node has it any more. The request is over.
    Lost,
}

/// A request of a front end that stands or waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Host {
    key: Key,
    /// The place that the front end knows.
    told: Option<SocketAddr>,
}

impl Natfw {
    /// A front end asks for something, or wants it no longer. What it asked for before with the same identifier ends without an event.
    pub(super) fn on_host(&mut self, id: u64, request: Option<&HostRequest>, resources: &mut Resources) {
        if let Some(Host { key, .. }) = self.hosts.remove(&id) {
            self.delete_beyond(key);
            resources.because(End::User);
            self.close(key, resources);
        }
        let Some(asked) = request else { return };
        if let Err(Refused { info, object, .. }) = self.ask_for_host(id, asked, resources) {
            self.counters.refused += 1;
            tracing::debug!(host = %asked.host, port = asked.port, reason = %info, "request of a front end refused");
            self.refuse_host(id, Failure::Code(info.into()), object);
        }
    }

    fn ask_for_host(
        &mut self,
        id: u64,
        asked: &HostRequest,
        resources: &mut Resources,
    ) -> Result<(), Refused> {
        if asked.host.is_ipv4() != asked.towards.is_ipv4() {
            return Err(Info::POLICY_CONFLICT.into());
        }
        let value = asked.wish.octets();
        let msn = self.rng.u32();
        let message = Message {
            lifetime: Some(seconds(self.config.lifetime().max(self.config.min_lifetime))),
            msn: Some(msn),
            efi: Some(FlowInfo::ALLOW),
            terminal: Some(DataTerminal::receiver(asked.protocol, asked.port)),
            publication: Publication::of(&value),
            ..Message::new(MessageType::EXTERNAL)
        };
        let direction = Direction::Downstream;
        let mri = Mri::LooseEnd(LooseEnd { src: asked.host, dst: asked.towards, direction });
        let received = RecvMessage {
            data: &[],
            nslp: self.config.nslp,
            session: self.rng.session_id(),
            mri,
            check: None,
            state: None,
            sii: None,
            peer: None,
            peer_address: Some(asked.host),
            attributes: TransferAttributes { reliable: true, stateless: false, security: Security::None },
            validation: AddressValidation::default(),
            ip_ttl: u8::MAX,
            ip_distance: 0,
            hops: u8::MAX,
            ifindex: asked.ifindex,
            at_flow_end: false,
        };
        let Some(request) = Request::of(&message, &mri) else { return Err(Info::INTERNAL.into()) };
        let route = Far { address: asked.host, ifindex: Some(asked.ifindex) };
        let routes = Routes::default().with(route);
        let planned = self.plan(&received, &message, &request, (&routes, None), resources);
        let (plan, lifetime) = planned.map_err(|unplanned| match unplanned {
            Unplanned::Refused(refused) => refused,
            // The only route that counts is that to the host.
            Unplanned::Routes(_) => Info::INTERNAL.into(),
        })?;
        let local = Local::new(Origin::Host(id), lifetime);
        let opening = Opening {
            id: received.session,
            kind: Kind::External,
            request,
            plan,
            source: asked.host,
            msn,
            lifetime,
            local: Some(Box::new(local)),
        };
        let key = self.open(opening, resources).ok_or(Info::NO_RESOURCES)?;
        self.hosts.insert(id, Host { key, told: None });
        self.send_for_host(key);
        self.rearm(key);
        Ok(())
    }

    /// Sends the request of a front end on. At an edge, this node answers it.
    pub(super) fn send_for_host(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get(key), "a request has a session") else { return };
        if session.plan.forwards {
            return self.first_request(key);
        }
        let external = session.plan.external.as_ref().and_then(|external| external.address);
        let (msn, lifetime) = (session.msn, session.accepted);
        self.refresh_later(key, lifetime);
        self.succeed(key, Answer { msn, lifetime, external, own: true, ..Answer::default() });
    }

    /// A request of a front end succeeded: it is refreshed by this node, as often as those of users.
    pub(super) fn refresh_later(&mut self, key: Key, lifetime: u32) {
        let period = self.refresh_period(core::time::Duration::from_secs(lifetime.into()));
        let at = self.now + period;
        let local = self.sessions.get_mut(key).and_then(|session| session.local.as_mut());
        if let Some(local) = invariant!(local, "a request of a front end begins here") {
            (local.retry, local.refresh) = (None, Some(at));
        }
    }

    /// The rules of all nodes are active.
    pub(super) fn tell_host(&mut self, id: u64, key: Key, external: Option<ExternalAddress>) {
        let reserved = self.sessions.get(key).and_then(|session| session.plan.reserved());
        let Some(reserved) = invariant!(reserved, "a publication reserves") else { return };
        // NATFW_EXTERNAL_IP has no IPv6 form: without a NAT the place is that of the host.
        let (address, port) =
            external.map_or((reserved.address, reserved.port), |place| (place.address.into(), place.port));
        let place = SocketAddr::new(address, port.unwrap_or(0));
        let Some(host) = invariant!(self.hosts.get_mut(&id), "who is told has asked") else { return };
        if host.told.replace(place) != Some(place) {
            self.out.push(Own::Host(id, Box::new(HostEvent::Granted(place))));
        }
    }

    /// A request of a front end failed; its session is closed afterwards.
    pub(super) fn host_failed(&mut self, id: u64, failure: Failure, object: Option<ObjectType>) {
        match self.hosts.remove(&id) {
            Some(Host { told: Some(_), .. }) => self.out.push(Own::Host(id, Box::new(HostEvent::Lost))),
            Some(Host { told: None, .. }) => self.refuse_host(id, failure, object),
            None => {}
        }
    }

    fn refuse_host(&mut self, id: u64, failure: Failure, object: Option<ObjectType>) {
        let wish = object == Some(PUBLICATION);
        self.out.push(Own::Host(id, Box::new(HostEvent::Refused { failure, wish })));
    }

    /// The session of what a front end asked for with this identifier.
    #[must_use]
    pub fn session_of_host(&self, id: u64) -> Option<SessionId> {
        let host = self.hosts.get(&id)?;
        self.sessions.get(host.key).map(|session| session.id)
    }

    /// The nodes further on are told that a session of this node ends.
    pub(super) fn delete_beyond(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "an end has a session") else { return };
        if session.plan.forwards {
            session.msn = session.msn.wrapping_add(1);
            self.send_on(key, 0, None);
        }
    }

    /// Deletes what front ends asked for at the nodes further on, because this node stops.
    pub(super) fn delete_for_hosts(&mut self, most: usize) {
        let keys: Vec<Key> = self.hosts.values().map(|host| host.key).take(most).collect();
        keys.into_iter().for_each(|key| self.delete_beyond(key));
    }
}

impl Session {
    /// Whether a front end asked for it.
    pub(super) fn is_of_host(&self) -> bool {
        matches!(self.origin(), Origin::Host(_))
    }

    /// Whether the nodes further on learn of its end by a deletion of this node.
    pub(super) fn is_deleted_here(&self) -> bool {
        matches!(self.origin(), Origin::Host(_) | Origin::Command(_))
    }
}
