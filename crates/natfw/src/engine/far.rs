//! The side where the packets of a request leave this node. A flow between two interfaces of the inside is opened by a rule only,
//! so the route decides what is asked for. The request waits for the routes to both ends, which are asked for at once.

use core::net::IpAddr;

use signalbox_core::node::{NoRoute, Prefix, Route, RouteQuery};
use signalbox_core::octets::Octets;
use signalbox_core::service::{Indication, RecvMessage};
use signalbox_core::{Direction, IfIndex, Mri, SessionId, invariant};
use signalbox_resources::Resources;
use signalbox_resources::config::Opening;

use super::Natfw;
use super::check::Refused;
use super::config::Middlebox;
use super::external::Receiver;
use super::interfaces::Side;
use super::parked::{Answered, Parked, Place, Queries};
use super::reservation::Invitation;
use super::session::{Kind, Request};
use crate::wire::{Info, Message, RuleAction};

/// The far end of a flow: the one that is not where the request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Far {
    pub(super) address: IpAddr,
    /// The interface of the route to it; `None`: there is no route, or it is this node.
    pub(super) ifindex: Option<IfIndex>,
}

/// The routes that are known for a request, at most two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Routes([Option<Far>; 2]);

impl Routes {
    fn of(&self, address: IpAddr) -> Option<Far> {
        self.0.into_iter().flatten().find(|known| known.address == address)
    }

    /// With one more. What was needed before may be no more, so the older one goes.
    pub(super) fn with(self, new: Far) -> Self {
        let Self([last, _]) = self;
        Self([Some(new), last.filter(|last| last.address != new.address)])
    }
}

/// The interfaces of a request's flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ends {
    /// Where the host is that the request is for: its sender or, of an EXTERNAL, its receiver. `None`: not where the request came from.
    pub(super) near: Option<IfIndex>,
    /// Where the other end is; `None`: not known, or of no meaning.
    pub(super) far: Option<IfIndex>,
}

/// Why there is no plan for a request.
#[derive(Debug)]
pub(super) enum Unplanned {
    /// It is refused.
    Refused(Refused),
    /// The routes to these addresses have to be known.
    Routes([Option<IpAddr>; 2]),
}

impl From<Refused> for Unplanned {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// What a flow through this node is: `near` is the side where it comes from, `far` the one where it leaves.
pub(super) fn opening(near: Side, far: Option<Side>) -> Opening {
    match (near, far) {
        (Side::Outside, _) => Opening::Inward,
        (Side::Inside, Some(Side::Outside)) => Opening::Outward,
        (Side::Inside, Some(Side::Inside) | None) => Opening::Between,
    }
}

impl Natfw {
    /// The address whose route decides what a request asks for: where a flow goes, or where one comes from that an edge opens by
    /// itself. `None`: no route is needed.
    pub(super) fn far_end(
        &self,
        kind: Kind,
        received: &RecvMessage<'_>,
        request: &Request,
    ) -> Option<IpAddr> {
        let boxed = matches!(self.config.middlebox, Middlebox::Firewall | Middlebox::Nat);
        if !boxed {
            return None;
        }
        match (kind, &received.mri) {
            (Kind::Create, Mri::PathCoupled(flow)) => {
                let second = request.efi.sub_ports > 0;
                if self.config.translates()
                    && self.interfaces.has(flow.dst)
                    && let Invitation::Reserved(key) = self.invitation(flow, second)
                {
                    return Some(
                        invariant!(self.sessions.get(key), "an invitation has a session")?
                            .plan
                            .reserved()?
                            .inside
                            .address,
                    );
                }
                (!received.at_flow_end).then_some(flow.dst)
            }
            (Kind::Create, Mri::LooseEnd(_)) => None,
            (Kind::External, mri) => {
                let receiver = Receiver::of(mri, &request.terminal()?)?;
                let inside = self.interfaces.side(received.ifindex) == Side::Inside;
                let opens =
                    inside && self.config.edge && request.proxy && request.efi.action == RuleAction::ALLOW;
                let single = receiver.senders.len >= Prefix::host(receiver.senders.addr).len;
                (opens && single).then_some(receiver.senders.addr)
            }
        }
    }

    /// The host that a request is for, if it is not the peer, which answered at its address by this interface. It is in the zone of
    /// the interface only if its route leads there: otherwise a host of one zone could ask for the packets of another one.
    pub(super) fn near_end(
        &self,
        kind: Kind,
        received: &RecvMessage<'_>,
        request: &Request,
    ) -> Option<IpAddr> {
        let boxed = matches!(self.config.middlebox, Middlebox::Firewall | Middlebox::Nat);
        let host = match kind {
            Kind::Create => received.mri.src(),
            // It is refused for its side.
            Kind::External if self.interfaces.side(received.ifindex) == Side::Outside => return None,
            Kind::External => Receiver::of(&received.mri, &request.terminal()?)?.address,
        };
        let answered = received.validation.return_routable && received.peer_address == Some(host);
        (boxed && !answered).then_some(host)
    }

    /// The interfaces of a request's flow, by the routes that are known. A request for a host of the other side is refused: its
    /// direction would not be that of the packets.
    pub(super) fn ends(
        &self,
        kind: Kind,
        received: &RecvMessage<'_>,
        request: &Request,
        routes: &Routes,
        resources: &Resources,
    ) -> Result<Ends, Unplanned> {
        let far = self.far_end(kind, received, request);
        let passes = far.is_some() || kind == Kind::External;
        let here = received.ifindex;
        let near = self.near_end(kind, received, request).filter(|_| passes);
        let missing = |end: &IpAddr| routes.of(*end).is_none();
        let needed = [near.filter(missing), far.filter(missing).filter(|_| far != near)];
        if needed.iter().any(Option::is_some) {
            return Err(Unplanned::Routes(needed));
        }
        let route = |address: IpAddr| routes.of(address).and_then(|known| known.ifindex);
        let near = match near {
            Some(host) => {
                let at = route(host);
                if at.is_some_and(|at| self.interfaces.side(at) != self.interfaces.side(here)) {
                    let peer = received.peer_address;
                    tracing::debug!(session = %received.session, ?peer, %host, reason = "the host is on the other side", "passage refused");
                    return Err(Refused::from(Info::AUTHORIZATION).into());
                }
                at.filter(|at| resources.same_zone(*at, here)).map(|_| here)
            }
            None => Some(here),
        };
        Ok(Ends { near, far: far.and_then(route) })
    }

    /// Lets a request wait for the routes to these addresses, beside those that are known.
    pub(super) fn park(
        &mut self,
        received: &RecvMessage<'_>,
        message: &Message<'_>,
        ends: [Option<IpAddr>; 2],
        routes: Routes,
    ) {
        let Some(msn) = message.msn else { return };
        let query = |end: IpAddr| match &received.mri {
            Mri::PathCoupled(flow) if flow.dst == end => RouteQuery {
                src: Some(flow.src),
                protocol: flow.protocol,
                src_port: flow.src_port,
                dst_port: flow.dst_port,
                // A message in the direction of the flow came in where its packets do.
                iif: Some(received.ifindex)
                    .filter(|from| flow.direction == Direction::Downstream && *from != IfIndex::NONE),
                ..RouteQuery::to(end)
            },
            Mri::PathCoupled(_) | Mri::LooseEnd(_) => RouteQuery::to(end),
        };
        let queries = ends.map(|end| end.map(query));
        match self.parked.put(self.next_lookup(), received, msn, (queries, routes)) {
            Place::New => self.look_up_ends(queries),
            Place::Taken => {}
            Place::Old => {
                self.counters.old_msn += 1;
                tracing::debug!(session = %received.session, peer = ?received.sii, reason = "old sequence number", "message dropped");
            }
            Place::None => {
                self.counters.overload += 1;
                self.refuse(received, msn, Info::NO_RESOURCES);
            }
        }
    }

    const fn next_lookup(&self) -> u64 {
        self.last_lookup + 1
    }

    /// Asks for the routes of one request. Each request takes two numbers.
    fn look_up_ends(&mut self, queries: Queries) {
        for query in queries {
            self.last_lookup += 1;
            if let Some(query) = query {
                self.out.look_up(self.last_lookup, query);
            }
        }
    }

    /// A route is known: handles the request that waits for it, if it waits for no other one.
    pub(super) fn on_any_route(
        &mut self,
        lookup: u64,
        result: Result<Route, NoRoute>,
        resources: &mut Resources,
    ) {
        let ifindex = result.ok().filter(|route| !route.local).map(|route| route.ifindex);
        match self.parked.answer(lookup, ifindex, self.next_lookup()) {
            Answered::Request(parked) => self.resume(&parked, resources),
            Answered::Waits => {}
            Answered::Again(queries) => self.look_up_ends(queries),
            Answered::Unknown => self.on_route(lookup, result, resources),
        }
    }

    /// Handles a request whose routes are known.
    fn resume(&mut self, parked: &Parked, resources: &mut Resources) {
        let last = self.last_lookup;
        self.handle_again(parked, resources);
        if self.last_lookup == last {
            self.parked.release(parked);
        }
    }

    fn handle_again(&mut self, parked: &Parked, resources: &mut Resources) {
        let Indication::RecvMessage(received) = parked.request.map(Octets::as_slice) else { return };
        // It was parsed before.
        let Ok(message) = Message::parse(received.data) else { return };
        self.on_request(&received, &message, parked.routes, resources);
        if let Some(key) = self.find(received.session) {
            self.rearm(key);
        }
    }

    /// Refuses the requests of a session that wait, for an administrator who ends it.
    pub(super) fn refuse_parked(&mut self, session: SessionId) {
        while let Some(parked) = self.parked.end_any(session) {
            let Indication::RecvMessage(received) = parked.request.map(Octets::as_slice) else { continue };
            self.refuse(&received, parked.msn, Info::AUTHORIZATION);
            self.keep_number(session, parked.peer, (parked.msn, None));
        }
    }
}
