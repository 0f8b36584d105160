//! What this node does with a CREATE (RFC 5973 §3.7.1).

use core::net::IpAddr;
use std::sync::Arc;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{Endpoint, Pinhole};
use signalbox_core::ports::Inside;
use signalbox_core::service::RecvMessage;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{Direction, IfIndex, Mri, PathCoupled, invariant};
use signalbox_resources::config::Opening;
use signalbox_resources::decision::Outcome;
use signalbox_resources::opening::Crossing;
use signalbox_resources::token::Token;
use signalbox_resources::{Neighbor, Passage, PassageRequest, Proof, RequestedBy, Requester, Resources};

use super::Natfw;
use super::check::{self, Refused};
use super::config::Middlebox;
use super::far::{Ends, opening};
use super::interfaces::Side;
use super::leases::PortWish;
use super::plan::Plan;
use super::reservation::Invitation;
use super::response::rule;
use super::session::Request;
use super::sweep::initiator;
use crate::wire::{Info, RuleAction};

/// A request that arrived.
#[derive(Debug)]
pub(super) struct Arrived<'a, 'm> {
    pub(super) received: &'a RecvMessage<'m>,
    /// Its verified token (RFC 5981).
    pub(super) token: Option<Arc<Token>>,
    /// The lifetime in seconds that this node accepts.
    pub(super) lifetime: u32,
    /// The interfaces of its flow.
    pub(super) ends: Ends,
    /// It did not arrive: a session of the node before this one has it.
    pub(super) former: Option<Held>,
}

impl Arrived<'_, '_> {
    /// The external port that it has to have; `None`: any.
    pub(super) fn port(&self) -> Option<u16> {
        self.former.and_then(|held| held.port)
    }
}

/// What a session of the node before this one holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// Its external port.
    pub(super) port: Option<u16>,
    /// What it opens.
    pub(super) opening: Opening,
}

/// What a request opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) opening: Opening,
    pub(super) crossing: Crossing,
    /// A host inside waits for it.
    pub(super) invited: bool,
}

impl Opened {
    /// What the sender of a flow asks for, by the interface where its packets come in. Packets to several addresses may leave
    /// anywhere, and those of several senders come from anywhere.
    pub(super) fn by_sender(
        from: &Arrived<'_, '_>,
        flow: &PathCoupled,
        opening: Opening,
        invited: bool,
    ) -> Self {
        let single = |prefix: u8, address| prefix >= Prefix::host(address).len;
        let near = from.ends.near.filter(|_| single(flow.src_prefix, flow.src));
        let far = from.ends.far.filter(|_| single(flow.dst_prefix, flow.dst));
        let crossing = Crossing { from: near.unwrap_or_default(), to: far.unwrap_or_default() };
        Self { opening, crossing, invited }
    }

    /// What its receiver asks for, by the interface where they leave; `far`: where they come in.
    pub(super) fn by_receiver(
        from: &Arrived<'_, '_>,
        far: Option<IfIndex>,
        opening: Opening,
        invited: bool,
    ) -> Self {
        let crossing = Crossing { from: far.unwrap_or_default(), to: from.ends.near.unwrap_or_default() };
        Self { opening, crossing, invited }
    }
}

impl Natfw {
    /// The plan for a CREATE that arrived. What it takes is given back by [`Natfw::undo`].
    pub(super) fn plan_create(
        &mut self,
        from: &Arrived<'_, '_>,
        request: &Request,
        resources: &mut Resources,
    ) -> Result<Plan, Refused> {
        let received = from.received;
        // §4.3.1: path-coupled, downstream.
        let Mri::PathCoupled(flow) = received.mri else { return Err(Info::POLICY_CONFLICT.into()) };
        if flow.direction != Direction::Downstream {
            return Err(Info::POLICY_CONFLICT.into());
        }
        check::values(&self.config, request, flow.protocol)?;
        // Blocking is for receivers (§3.2.4).
        if request.efi.action != RuleAction::ALLOW {
            return Err(Info::ACTION_NOT_APPLICABLE.into());
        }
        let ends_here = received.at_flow_end;
        match self.config.middlebox {
            Middlebox::None => Ok(Plan::plain(&received.mri, None, ends_here)),
            Middlebox::TwiceNat => {
                let outward = self.interfaces.side(received.ifindex) == Side::Inside;
                let mapped = self.mapped(flow, outward)?;
                // An alias of this node is no end of the flow.
                Ok(Plan::plain(&Mri::PathCoupled(mapped), None, ends_here && mapped.dst == flow.dst))
            }
            Middlebox::Firewall if ends_here => Ok(Plan::plain(&received.mri, None, true)),
            Middlebox::Firewall => self.through_firewall(from, request, flow, resources),
            Middlebox::Nat => self.through_nat(from, request, flow, resources),
        }
    }

    fn through_firewall(
        &mut self,
        from: &Arrived<'_, '_>,
        request: &Request,
        flow: PathCoupled,
        resources: &mut Resources,
    ) -> Result<Plan, Refused> {
        let side = self.interfaces.side(from.received.ifindex);
        let (packets, second) = (FlowFilter::from(&flow), request.efi.sub_ports > 0);
        check::packets(&self.config, &packets, false, second)?;
        let opening = opening(side, from.ends.far.map(|far| self.interfaces.side(far)));
        let invitation = match opening {
            Opening::Outward => Invitation::None,
            Opening::Inward | Opening::Between | Opening::Reserve | Opening::Block | Opening::Publish => {
                self.invitation(&flow, second)
            }
        };
        // §4.2.4: where data is blocked, signaling is not forwarded.
        if invitation == Invitation::Blocked {
            return Err(Info::POLICY_CONFLICT.into());
        }
        let invited = opening == Opening::Inward && matches!(invitation, Invitation::Reserved(_));
        let plan = Plan { installs: true, ..Plan::plain(&from.received.mri, None, false) };
        let plan =
            self.judged(from, request, plan, Opened::by_sender(from, &flow, opening, invited), resources)?;
        Ok(self.proxied(side, request, plan))
    }

    fn through_nat(
        &mut self,
        from: &Arrived<'_, '_>,
        request: &Request,
        flow: PathCoupled,
        resources: &mut Resources,
    ) -> Result<Plan, Refused> {
        let received = from.received;
        let side = self.interfaces.side(received.ifindex);
        let (packets, second) = (FlowFilter::from(&flow), request.efi.sub_ports > 0);
        let mut onward = flow;
        let invitation =
            if self.interfaces.has(flow.dst) { self.invitation(&flow, second) } else { Invitation::None };
        let reserved = match invitation {
            Invitation::Reserved(key) => invariant!(self.sessions.get(key), "an invitation has a session")
                .and_then(|session| {
                    // The port stays with the reservation as long as any flow uses it.
                    Some((session.plan.reserved()?.inside, session.plan.lease))
                }),
            Invitation::Blocked | Invitation::None => None,
        };
        if side == Side::Outside && reserved.is_none() {
            return Err(Info::NO_RESERVATION.into());
        }
        if reserved.is_none() && received.at_flow_end {
            return Ok(Plan::plain(&received.mri, None, true));
        }
        check::packets(&self.config, &packets, false, second)?;
        let mut lease = None;
        if let Some((inside, held)) = reserved {
            onward.dst = inside.address;
            onward.dst_port = inside.port.or(flow.dst_port);
            if let Some(held) = held {
                self.ports.hold(held);
                lease = Some(held);
            }
        }
        // From the inside to an external address of this NAT, both ends are translated (RFC 4787 REQ-9). The source
        // keeps its port then, because the session holds one lease only.
        if side == Side::Inside {
            let external = self.interfaces.external().filter(|_| flow.src.is_ipv4());
            let external = external.ok_or(Info::POLICY_CONFLICT)?;
            if reserved.is_none() {
                (lease, onward.src_port) = self.lease_source(&flow, second, from.port())?;
            }
            onward.src = IpAddr::V4(external);
        }
        let plan = Plan { lease, installs: true, ..Plan::plain(&Mri::PathCoupled(onward), None, false) };
        // Here a flow from the outside is one that a host inside waits for.
        let opening = opening(side, from.ends.far.map(|far| self.interfaces.side(far)));
        let opened = Opened::by_sender(from, &flow, opening, opening == Opening::Inward);
        let plan = self.judged(from, request, plan, opened, resources)?;
        Ok(self.proxied(side, request, plan))
    }

    /// External port for the source of a flow from the inside.
    fn lease_source(
        &mut self,
        flow: &PathCoupled,
        second: bool,
        needs: Option<u16>,
    ) -> Result<(Option<signalbox_core::Key>, Option<u16>), Refused> {
        let protocol = flow.protocol.ok_or(Info::PLAIN_IP)?;
        if flow.src_prefix != 32 {
            return Err(Info::SOURCE_RANGE.into());
        }
        if check::is_icmp(protocol) {
            return Ok((None, None));
        }
        if !check::has_ports(protocol) {
            return Err(Info::PROTOCOL_NOT_SUPPORTED.into());
        }
        let port = flow.src_port.filter(|port| *port != 0).ok_or(Info::SOURCE_PORTS)?;
        let inside = Inside { address: flow.src, protocol, port, second };
        let (lease, port) = self.lease(inside, PortWish::drawn(needs))?;
        Ok((Some(lease), Some(port)))
    }

    /// In proxy mode the edge of the sender's network answers for the receiver (§3.7.6.2). It does so for its own side
    /// only, so that no node outside makes it answer for a receiver inside.
    fn proxied(&self, side: Side, request: &Request, plan: Plan) -> Plan {
        if request.proxy && self.config.edge && side == Side::Inside {
            Plan { answers: true, forwards: request.extend, ..plan }
        } else {
            plan
        }
    }

    /// The flow as the other side of a twice-NAT knows it (§2.5, Appendix D.4).
    pub(super) fn mapped(&self, flow: PathCoupled, outward: bool) -> Result<PathCoupled, Refused> {
        let map = |address: IpAddr| {
            let found = self.config.mappings.iter().find_map(|mapping| {
                let (from, to) = if outward {
                    (mapping.inside, mapping.outside)
                } else {
                    (mapping.outside, mapping.inside)
                };
                (from == address).then_some(to)
            });
            found.ok_or(Info::POLICY_CONFLICT)
        };
        Ok(PathCoupled { src: map(flow.src)?, dst: map(flow.dst)?, ..flow })
    }

    /// The plan with the passage of its rule, if the policy of the node allows it (§3.6). If the policy refuses, what the plan takes is
    /// given back.
    pub(super) fn judged(
        &mut self,
        from: &Arrived<'_, '_>,
        request: &Request,
        plan: Plan,
        opened: Opened,
        resources: &mut Resources,
    ) -> Result<Plan, Refused> {
        let asks = rule(request, &plan).ok_or_else(|| Info::POLICY_CONFLICT.into());
        match asks.and_then(|pinhole| self.passage(from, opened, &pinhole, resources)) {
            Ok(passage) => Ok(Plan { passage: Some(passage), ..plan }),
            Err(refused) => {
                self.undo(plan, resources);
                Err(refused)
            }
        }
    }

    /// Asks the policy of the node.
    pub(super) fn passage(
        &mut self,
        from: &Arrived<'_, '_>,
        Opened { opening, crossing, invited }: Opened,
        pinhole: &Pinhole,
        resources: &mut Resources,
    ) -> Result<Passage, Refused> {
        let received = from.received;
        let proof = match (&received.peer, received.validation.return_routable) {
            (Some(_), _) => Proof::Identity,
            (None, true) => Proof::Handshake,
            (None, false) => Proof::Link,
        };
        let requested_by = received.peer_address.map_or(RequestedBy::Unknown, |address| {
            RequestedBy::Neighbor(Neighbor { address, ifindex: received.ifindex, proof })
        });
        let requester = Requester {
            token: from.token.clone(),
            ..Requester::new(requested_by, received.peer.clone(), Some(initiator(&received.mri)))
        };
        let lifetime = core::time::Duration::from_secs(from.lifetime.into());
        let ask = PassageRequest { requester: &requester, opening, crossing, pinhole, lifetime, invited };
        resources.open_passage(self.now, &ask).map_err(|refusal| {
            tracing::debug!(
                session = %received.session,
                %requester,
                %opening,
                %pinhole,
                reason = %refusal,
                "passage refused"
            );
            let flows: Vec<FlowFilter> = pinhole.flows().map(|flow| flow.packets).collect();
            let opened = (opening, flows.as_slice());
            let former = from.former.is_some();
            self.counters.not_restored += u64::from(former);
            let outcome = if former { Outcome::Lost } else { Outcome::Refused };
            Self::note_refused(
                outcome,
                (received.session, &requester),
                opened,
                lifetime,
                &refusal,
                resources,
            );
            let info = match refusal.rule {
                signalbox_resources::refusal::Rule::TableFull { .. } => Info::NO_RESOURCES,
                _ => Info::AUTHORIZATION,
            };
            Refused { note: resources.told(&refusal), ..info.into() }
        })
    }
}

/// The filter of the packets towards a receiver.
pub(super) fn towards(
    senders: Prefix,
    receiver: Endpoint,
    protocol: Option<u8>,
    sender_port: Option<u16>,
) -> FlowFilter {
    FlowFilter {
        protocol,
        src_port: sender_port,
        dst_port: receiver.port,
        ..FlowFilter::between(senders, Prefix::host(receiver.address))
    }
}
