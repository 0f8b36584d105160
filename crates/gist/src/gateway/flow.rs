//! The flow of a message with C=1: its ends, what the kernel does with it, and its binding.

use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use core::time::Duration;

use signalbox_core::Direction;
use signalbox_core::mri::PathCoupled;
use signalbox_core::node::Prefix;
use signalbox_core::packet::Received;
use signalbox_core::pinhole::{Endpoint, Pinhole, Translation};
use signalbox_core::shares::source;
use signalbox_core::slab::Key;
use signalbox_core::traffic::FlowFilter;

use super::bindings::{Binding, BindingRequest, Course, Purpose, Requester, State};
use super::interfaces::Side;
use super::leases::Choice;
use super::message::NewMri;
use super::query::{NotTranslated, Rewrite, endpoint};
use super::{Gateway, UDP};
use crate::wire::{Nli, PORT};

/// IP protocols whose ports the kernel translates: TCP, UDP, DCCP, SCTP.
pub(super) const WITH_PORTS: [u8; 4] = [6, UDP, 33, 132];

/// What the kernel said of the flow of a message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kernel {
    /// It has not been asked.
    NotAsked,
    /// How it translates the flow already; `None`: it does not.
    Answered(Option<Translation>),
}

/// An address, and whether the kernel translates to it by itself.
#[derive(Debug, Clone, Copy)]
struct Existing {
    end: SocketAddrV4,
    adopted: bool,
}

/// An end of the flow as the kernel translates it already, if it does.
fn existing(kernel: Kernel, end: impl FnOnce(&Translation) -> SocketAddr) -> Option<Existing> {
    let Kernel::Answered(Some(translation)) = kernel else { return None };
    let SocketAddr::V4(end) = end(&translation) else { return None };
    Some(Existing { end, adopted: !translation.by_pinhole })
}

/// The packets from one end of a flow to the other.
fn between(protocol: u8, from: SocketAddrV4, to: SocketAddrV4) -> FlowFilter {
    let host = |end: SocketAddrV4| Prefix::host(IpAddr::V4(*end.ip()));
    FlowFilter {
        protocol: Some(protocol),
        src_port: Some(from.port()),
        dst_port: Some(to.port()),
        ..FlowFilter::between(host(from), host(to))
    }
}

/// An end of a flow with what an exact translation needs.
fn end_of(p: &PathCoupled, at_source: bool) -> Option<(u8, SocketAddrV4)> {
    let protocol = p.protocol.filter(|protocol| WITH_PORTS.contains(protocol))?;
    let (address, prefix, port) =
        if at_source { (p.src, p.src_prefix, p.src_port) } else { (p.dst, p.dst_prefix, p.dst_port) };
    match (address, prefix, port.filter(|port| *port > 0), p.spi) {
        (IpAddr::V4(address), 32, Some(port), None) => Some((protocol, SocketAddrV4::new(address, port))),
        _ => None,
    }
}

/// The packets of a flow, without what the kernel's NAT does not compare.
fn packets_of(p: &PathCoupled) -> FlowFilter {
    let port = |port: Option<u16>| port.filter(|port| *port > 0);
    FlowFilter {
        dscp: None,
        flow_label: None,
        src_port: port(p.src_port),
        dst_port: port(p.dst_port),
        ..FlowFilter::from(p)
    }
}

/// Who asks by a packet from inside for a binding of this host.
pub(super) fn requester(packet: &Received<'_>, host: IpAddr) -> Requester {
    if packet.src.ip() == host { Requester::Host } else { Requester::Other }
}

impl Gateway {
    /// From inside: the end of the flow towards the sender becomes the external one. If the other end is the external
    /// address too, both ends are inside (GISTNAT-X-21).
    pub(super) fn outward(
        &mut self,
        packet: &Received<'_>,
        nli: &Nli<'_>,
        p: &PathCoupled,
        external: Ipv4Addr,
        kernel: Kernel,
    ) -> Result<Rewrite, NotTranslated> {
        let downstream = p.direction == Direction::Downstream;
        let (protocol, inside) = end_of(p, downstream).ok_or(NotTranslated::Untranslatable)?;
        let hairpin = packet.dst.ip() == external;
        let mut destination = None;
        if hairpin {
            let (_, far) = end_of(p, false)
                .filter(|(_, far)| downstream && *far.ip() == external)
                .ok_or(NotTranslated::Untranslatable)?;
            destination = Some(self.leases.inside(protocol, far.port()).ok_or(NotTranslated::NoHost)?);
        }
        let requester = requester(packet, IpAddr::V4(*inside.ip()));
        let by_host = requester == Requester::Host;
        let mut packets = packets_of(p);
        // GISTNAT-D6.1-03: of a flow without a binding the kernel knows whether it is translated already.
        let bound = if downstream {
            self.bindings.find(&packets)
        } else {
            self.leases.port_of(protocol, inside).and_then(|port| {
                let to = SocketAddrV4::new(external, port);
                self.bindings.find(&FlowFilter {
                    dst: Prefix::host(IpAddr::V4(external)),
                    dst_port: Some(to.port()),
                    ..packets
                })
            })
        };
        let adopted = bound.and_then(|key| self.adopted(key, Side::Inside, downstream).map(|end| (key, end)));
        if let (Kernel::NotAsked, Some((_, far)), false) = (kernel, end_of(p, !downstream), hairpin)
            && (bound.is_none() || adopted.is_some())
        {
            return Err(NotTranslated::LookUpFirst(between(protocol, inside, far)));
        }
        let found = existing(kernel, |translation| translation.source).filter(|found| found.end != inside);
        let adopt = found.filter(|found| found.adopted).map(|found| found.end);
        if let Some((key, former)) = adopted
            && adopt != Some(former)
        {
            self.remove(key);
        }
        let (outside, hold) = if let Some(end) = adopt {
            let port = (*end.ip() == external).then_some((protocol, end.port()));
            let hold = port.and_then(|port| self.leases.adopt(port, inside, by_host));
            (endpoint(*end.ip(), end.port()), hold)
        } else {
            // A flow that stood keeps its port.
            let former = found.map(|found| found.end).or(adopted.map(|(_, end)| end));
            let former = former.filter(|end| *end.ip() == external).map(|end| end.port());
            let choice = (former.map_or(Choice::Range, Choice::Prefer), by_host);
            let hold = self.lease(packet.ifindex, (protocol, inside), choice).ok_or(NotTranslated::Busy)?;
            (endpoint(external, hold.external.1), Some(hold))
        };
        let mut pinhole;
        if downstream {
            pinhole = Pinhole { source: Some(outside), ..Pinhole::allow(packets) };
            pinhole.destination = destination.map(|far: SocketAddrV4| endpoint(*far.ip(), far.port()));
        } else {
            (packets.dst, packets.dst_port) = (Prefix::host(outside.address), outside.port);
            let destination = Some(endpoint(*inside.ip(), inside.port()));
            pinhole = Pinhole { destination, ..Pinhole::allow(packets) };
        }
        let request = BindingRequest {
            purpose: Purpose::Flow,
            pinhole,
            hold,
            owner: source(packet.src.ip()),
            ifindex: packet.ifindex,
            requester,
            adopted: adopt.is_some(),
        };
        self.counters.adopted += u64::from(adopt.is_some() && adopted.is_none());
        let key = self.bind(request, self.config.reserve).ok_or(NotTranslated::Busy)?;
        if !self.bindings.get(key).is_some_and(Binding::may_open) {
            return Err(NotTranslated::OtherHost);
        }
        let far = packet.dst.ip();
        let course = if hairpin { Course::Hairpin } else { Course::Outward };
        self.note(key, packet, nli, course, far);
        // GISTNAT-D6.1-01: what the MRI says outside is what the kernel does, at the latest when the Response has passed.
        // Packets to the inside wait for the Response.
        if downstream && !hairpin {
            self.activate(key);
        }
        let end = |one: Endpoint| Some((one.address, one.port));
        let far = destination.map(|far| (IpAddr::V4(*far.ip()), Some(far.port())));
        let mri = if downstream {
            NewMri { source: end(outside), destination: far }
        } else {
            NewMri { source: None, destination: end(outside) }
        };
        let dst = destination.map_or(packet.dst, |far| (*far.ip(), PORT).into());
        self.outward_way(packet, nli, external, (mri, Some(key)), dst)
    }

    /// From outside: the external end of the flow becomes that of a host inside, if the configuration forwards the port or
    /// the host has it by another binding. GISTNAT-D6.2-02, GISTNAT-D7.2-01.
    pub(super) fn inward(
        &mut self,
        packet: &Received<'_>,
        nli: &Nli<'_>,
        p: &PathCoupled,
        external: Ipv4Addr,
        kernel: Kernel,
    ) -> Result<Rewrite, NotTranslated> {
        let downstream = p.direction == Direction::Downstream;
        let (protocol, outside) = end_of(p, !downstream).ok_or(NotTranslated::Untranslatable)?;
        if *outside.ip() != external {
            return Err(NotTranslated::Untranslatable);
        }
        let configured = self.leases.inside(protocol, outside.port());
        let mut packets = packets_of(p);
        let bound = if downstream {
            self.bindings.find(&packets)
        } else {
            configured.and_then(|end| {
                let src = Prefix::host(IpAddr::V4(*end.ip()));
                self.bindings.find(&FlowFilter { src, src_port: Some(end.port()), ..packets })
            })
        };
        let adopted =
            bound.and_then(|key| self.adopted(key, Side::Outside, downstream).map(|end| (key, end)));
        // Sources outside can be forged, and a question costs more than the rest of a Query. Beyond the rate an adopted flow
        // keeps its host, and others are translated as the configuration says.
        if let (Kernel::NotAsked, Some((_, far))) = (kernel, end_of(p, downstream))
            && (bound.is_none() || adopted.is_some())
            && self.outside_questions.allow(self.now)
        {
            return Err(NotTranslated::LookUpFirst(between(protocol, far, outside)));
        }
        let found = match (kernel, adopted) {
            (Kernel::NotAsked, Some((_, end))) => Some(Existing { end, adopted: true }),
            _ => existing(kernel, |translation| translation.destination),
        };
        let leads_inside = |end: SocketAddrV4| end != outside && !self.interfaces.has(IpAddr::V4(*end.ip()));
        let found = found.filter(|found| leads_inside(found.end) && (found.adopted || configured.is_none()));
        if let (Some(configured), Some(found), None) = (configured, found, adopted)
            && configured != found.end
        {
            self.counters.contradictions += 1;
            let external = outside.port();
            tracing::error!(%configured, existing = %found.end, external, "a flow contradicts the configuration");
        }
        let adopt = found.filter(|found| found.adopted).map(|found| found.end);
        if let Some((key, former)) = adopted
            && adopt != Some(former)
        {
            self.remove(key);
        }
        let inside = found.map(|found| found.end).or(configured).ok_or(NotTranslated::NoHost)?;
        let inside_end = endpoint(*inside.ip(), inside.port());
        let mut pinhole;
        if downstream {
            pinhole = Pinhole { destination: Some(inside_end), ..Pinhole::allow(packets) };
        } else {
            (packets.src, packets.src_port) = (Prefix::host(inside_end.address), inside_end.port);
            pinhole = Pinhole::allow(packets);
            pinhole.source = Some(endpoint(external, outside.port()));
        }
        let hold = match adopt {
            Some(_) => None,
            None => self.lease(packet.ifindex, (protocol, inside), (Choice::Prefer(outside.port()), false)),
        };
        self.counters.adopted += u64::from(adopt.is_some() && adopted.is_none());
        let request = BindingRequest {
            purpose: Purpose::Flow,
            pinhole,
            hold,
            owner: source(packet.src.ip()),
            ifindex: packet.ifindex,
            requester: Requester::Outside,
            adopted: adopt.is_some(),
        };
        let key = self.bind(request, self.config.reserve).ok_or(NotTranslated::Busy)?;
        self.note(key, packet, nli, Course::Inward, IpAddr::V4(*inside.ip()));
        let end = Some((inside_end.address, inside_end.port));
        let mri = if downstream {
            NewMri { source: None, destination: end }
        } else {
            NewMri { source: end, destination: None }
        };
        let dst = SocketAddr::new(inside_end.address, PORT);
        Ok(Rewrite { mri, binding: Some(key), interface: None, src: packet.src, dst, towards: Side::Inside })
    }

    /// The external end of an adopted flow, or from outside its end inside; `None`: the binding is the gateway's own.
    fn adopted(&self, key: Key, from: Side, downstream: bool) -> Option<SocketAddrV4> {
        let binding = self.bindings.get(key).filter(|binding| binding.state() == State::Adopted)?;
        let Pinhole { packets, source, destination, .. } = &binding.pinhole;
        let end = |prefix: Prefix, port| Endpoint { address: prefix.addr, port };
        let end = match (from, downstream) {
            (Side::Inside, true) => (*source)?,
            (Side::Inside, false) => end(packets.dst, packets.dst_port),
            (Side::Outside, true) => (*destination)?,
            (Side::Outside, false) => end(packets.src, packets.src_port),
        };
        match (end.address, end.port) {
            (IpAddr::V4(address), Some(port)) => Some(SocketAddrV4::new(address, port)),
            _ => None,
        }
    }

    /// Notes a message of a flow. If a Response has confirmed the flow before, its bindings live on: a Response to a refresh
    /// can pass over an association, where the gateway cannot read it. GISTNAT-D6.1-04, GISTNAT-R7.2.3-10.
    ///
    /// The same holds for a new flow if its Querying and Responding node have an association.
    fn note(&mut self, key: Key, packet: &Received<'_>, nli: &Nli<'_>, course: Course, far: IpAddr) {
        let associated = match (nli.interface, far) {
            (IpAddr::V4(querying), IpAddr::V4(far)) => self.pairs.get(&(querying, far)).copied(),
            _ => None,
        };
        let Some(binding) = self.bindings.get_mut(key) else { return };
        let validity = Duration::from_millis(nli.validity_ms.into());
        binding.validity = validity;
        binding.course = course;
        if !binding.is_confirmed() && associated.is_none() {
            return;
        }
        let related = binding.related;
        let lifetime = self.lifetime(validity);
        let owner = source(packet.src.ip());
        for key in related.into_iter().flatten().chain(associated).chain([key]) {
            self.keep(key, owner, lifetime);
        }
    }
}
