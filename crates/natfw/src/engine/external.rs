//! What this node does with an EXTERNAL (RFC 5973 §3.7.2).

use core::net::IpAddr;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::Endpoint;
use signalbox_core::ports::Inside;
use signalbox_core::{Direction, FlowFilter, Mri, invariant};
use signalbox_resources::Resources;
use signalbox_resources::config::Opening;

use super::Natfw;
use super::check::{self, Refused};
use super::config::Middlebox;
use super::create::{Arrived, Opened, towards};
use super::interfaces::Side;
use super::leases::PortWish;
use super::plan::{External, Plan, Reserved};
use super::publish;
use super::response::rule;
use super::session::Request;
use crate::wire::{DataTerminal, ExternalAddress, Info, ObjectType, Ports, RuleAction, TerminalPorts};

/// The receiver of an EXTERNAL, and the senders that it means.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receiver {
    pub(super) address: IpAddr,
    pub(super) senders: Prefix,
}

impl Receiver {
    /// The receiver by the MRI: the source with the loose-end method (§3.8), the destination with the path-coupled one.
    /// The loose-end destination is for the routing only. `None`: the message must not travel in this direction.
    pub(super) fn of(mri: &Mri, terminal: &DataTerminal) -> Option<Self> {
        let (sender, prefix) = terminal.sender;
        let given = (prefix > 0).then_some(Prefix { addr: IpAddr::V4(sender), len: prefix });
        match mri {
            Mri::LooseEnd(end) if end.direction == Direction::Downstream => {
                Some(Self { address: end.src, senders: given.unwrap_or(Prefix::all_like(end.src)) })
            }
            Mri::PathCoupled(flow) if flow.direction == Direction::Upstream => {
                let senders = given.unwrap_or(Prefix { addr: flow.src, len: flow.src_prefix });
                Some(Self { address: flow.dst, senders })
            }
            Mri::LooseEnd(_) | Mri::PathCoupled(_) => None,
        }
    }

    /// The packets that may reach it.
    pub(super) fn packets(&self, terminal: &DataTerminal) -> FlowFilter {
        let ports = terminal.ports();
        let inside = Endpoint { address: self.address, port: ports.receiver };
        let packets = towards(self.senders, inside, terminal.protocol(), ports.sender);
        FlowFilter { spi: terminal.spi(), ..packets }
    }
}

impl Natfw {
    /// The plan for an EXTERNAL that arrived. What it takes is given back by [`Natfw::undo`].
    pub(super) fn plan_external(
        &mut self,
        from: &Arrived<'_, '_>,
        request: &Request,
        resources: &mut Resources,
    ) -> Result<Plan, Refused> {
        let Some(terminal) = request.terminal() else { return Err(Info::DTINFO_REQUIRED.into()) };
        let mri = from.received.mri;
        let receiver = Receiver::of(&mri, &terminal).ok_or(Info::POLICY_CONFLICT)?;
        check::values(&self.config, request, terminal.protocol())?;
        let side = self.interfaces.side(from.received.ifindex);
        if !matches!(self.config.middlebox, Middlebox::None) && side == Side::Outside {
            return Err(Info::EXTERNAL_SIDE.into());
        }
        let ends_here = from.received.at_flow_end && !self.config.edge;
        if ends_here {
            return Err(Info::NO_EDGE.into());
        }
        match self.config.middlebox {
            Middlebox::None => Ok(Plan::plain(&mri, Some(terminal), false)),
            Middlebox::TwiceNat => {
                let mri = match mri {
                    Mri::PathCoupled(flow) => Mri::PathCoupled(self.mapped(flow, true)?),
                    Mri::LooseEnd(end) => {
                        let found = self.config.mappings.iter().find(|mapping| mapping.inside == end.src);
                        let mapping = found.ok_or(Info::POLICY_CONFLICT)?;
                        Mri::LooseEnd(signalbox_core::LooseEnd { src: mapping.outside, ..end })
                    }
                };
                Ok(Plan::plain(&mri, Some(terminal), false))
            }
            Middlebox::Firewall | Middlebox::Nat => {
                self.reserve_for(from, request, &terminal, receiver, resources)
            }
        }
    }

    fn reserve_for(
        &mut self,
        from: &Arrived<'_, '_>,
        request: &Request,
        terminal: &DataTerminal,
        receiver: Receiver,
        resources: &mut Resources,
    ) -> Result<Plan, Refused> {
        let (nat, edge) = (self.config.translates(), self.config.edge);
        let (blocks, second) = (request.efi.action == RuleAction::DENY, request.efi.sub_ports > 0);
        // §3.7.2: a NAT lets nothing in by itself, so there is nothing to block.
        if nat && blocks {
            return Err(Refused::of(Info::ACTION_NOT_APPLICABLE, ObjectType::EFI));
        }
        publish::check(request, &receiver, terminal)?;
        let publication = request.publication();
        let opens = publication.is_some_and(|publication| publication.opens());
        let (protocol, ports) = (terminal.protocol(), terminal.ports());
        let inside = Endpoint { address: receiver.address, port: ports.receiver };
        let packets = receiver.packets(terminal);
        let dtinfo = |info| Refused::of(info, ObjectType::DTINFO);
        check::packets(&self.config, &packets, true, second).map_err(dtinfo)?;
        let opening = match (blocks, opens) {
            (true, _) => Opening::Block,
            (false, true) => Opening::Publish,
            (false, false) => Opening::Reserve,
        };
        let (mut lease, mut mri) = (None, from.received.mri);
        let mut external = External::of(*terminal);
        let mut place = inside;
        if nat {
            // Who asks for a place only, and opens nothing, needs no rule for it: it gets any port.
            let published = publication.filter(|publication| publication.opens());
            let former = self.take_lease_over(from, published.as_ref(), (inside, protocol), resources);
            let wish = published.and_then(|publication| publication.port());
            let wish = former.map(|(port, _)| port).or(wish);
            let port = PortWish { needs: from.port(), wish, published: published.is_some() };
            let (held, given) = self.lease_receiver(inside, protocol, second, port).map_err(dtinfo)?;
            lease = Some(held);
            external.replaces = former.and_then(|(_, session)| session);
            place = Endpoint { address: IpAddr::V4(given.address), port: given.port };
            let ports = Ports { receiver: given.port, sender: ports.sender };
            let transport = protocol.map(|protocol| (protocol, Some(TerminalPorts::Ports(ports))));
            external.terminal = DataTerminal { transport, ..*terminal };
            mri = match mri {
                Mri::LooseEnd(end) => Mri::LooseEnd(signalbox_core::LooseEnd { src: place.address, ..end }),
                Mri::PathCoupled(flow) => {
                    let dst_port = flow.dst_port.and(place.port);
                    Mri::PathCoupled(signalbox_core::PathCoupled { dst: place.address, dst_port, ..flow })
                }
            };
            external.address = Some(given).filter(|_| edge);
            external.binding = Some(given).filter(|_| !edge);
        } else if let (IpAddr::V4(address), true, false, Mri::LooseEnd(_)) =
            (receiver.address, edge, blocks, mri)
        {
            // The address that an inner NAT gave, or the receiver's own.
            external.address = Some(ExternalAddress { address, port: ports.receiver });
        }
        if edge && publication.is_some_and(|publication| !publish::takes(&publication, place)) {
            lease.into_iter().for_each(|lease| self.ports.release(lease));
            return Err(publish::refused());
        }
        let reserved = Reserved {
            address: place.address,
            port: place.port,
            protocol,
            inside,
            senders: receiver.senders,
            sender_port: ports.sender,
            spi: terminal.spi(),
            second,
            blocks,
        };
        external.reserved = Some(reserved);
        let external = Some(Box::new(external));
        let mut plan = Plan { lease, external, installs: opens, ..Plan::plain(&mri, None, false) };
        if edge {
            // §3.7.2: EXTERNAL does not leave the network, but in proxy mode with E (§3.7.6.3).
            plan.answers = true;
            plan.forwards = request.proxy && request.extend;
            plan.installs = blocks || opens;
        }
        if !self.has_place(&reserved) {
            self.undo(plan, resources);
            return Err(Info::NO_RESOURCES.into());
        }
        // Its senders are anywhere.
        let opened = Opened::by_receiver(from, None, opening, false);
        let plan = self.judged(from, request, plan, opened, resources)?;
        if edge && request.proxy && !blocks {
            self.with_flow(from, request, plan, receiver, resources)
        } else {
            Ok(plan)
        }
    }

    /// In proxy mode this edge opens a flow to the inside although no sender asks for it. It is judged as such a flow: a host inside
    /// waits for it, as far as it comes from the outside. Any senders are some inside, too.
    fn with_flow(
        &mut self,
        from: &Arrived<'_, '_>,
        request: &Request,
        mut plan: Plan,
        receiver: Receiver,
        resources: &mut Resources,
    ) -> Result<Plan, Refused> {
        let single = receiver.senders.len >= Prefix::host(receiver.senders.addr).len;
        let openings: &[Opening] = match (single, from.ends.far.map(|far| self.interfaces.side(far))) {
            (true, Some(Side::Outside)) => &[Opening::Inward],
            (true, Some(Side::Inside) | None) => &[Opening::Between],
            (false, _) => &[Opening::Inward, Opening::Between],
        };
        for opening in openings {
            let asks = rule(request, &plan).ok_or_else(|| Info::POLICY_CONFLICT.into());
            let opened = Opened::by_receiver(from, from.ends.far, *opening, *opening == Opening::Inward);
            match asks.and_then(|pinhole| self.passage(from, opened, &pinhole, resources)) {
                Ok(passage) => {
                    if let Some(external) =
                        invariant!(plan.external.as_mut(), "an EXTERNAL has its part of the plan")
                    {
                        external.opens.push(passage);
                    }
                }
                Err(refused) => {
                    self.undo(plan, resources);
                    return Err(refused);
                }
            }
        }
        Ok(plan)
    }

    /// External address and port for a receiver inside.
    fn lease_receiver(
        &mut self,
        inside: Endpoint,
        protocol: Option<u8>,
        second: bool,
        wish: PortWish,
    ) -> Result<(signalbox_core::Key, ExternalAddress), Info> {
        let protocol = protocol.ok_or(Info::PLAIN_IP)?;
        if !check::has_ports(protocol) {
            return Err(Info::PROTOCOL_NOT_SUPPORTED);
        }
        let port = inside.port.ok_or(Info::DESTINATION_PORTS)?;
        let address = self.interfaces.external().filter(|_| inside.address.is_ipv4());
        let address = address.ok_or(Info::POLICY_CONFLICT)?;
        let inside = Inside { address: inside.address, protocol, port, second };
        let (lease, port) = self.lease(inside, wish)?;
        Ok((lease, ExternalAddress { address, port: Some(port) }))
    }
}
