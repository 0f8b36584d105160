//! Execution of the run, event by event.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeSet;

use signalbox_core::node::{Input, NodeEngine, Output, Prefix, StreamError, StreamKind, TransmitError};
use signalbox_core::{Entry, EntryRequest, IfIndex, Intercept, Reach, Through, Time, Towards};

use super::streams::StreamRequest;
use super::{Boot, Happened, Occurrence, Queued, Sim};
use crate::config::{Impairment, LinkId, NodeId};
use crate::network::{NextStep, RouteChange, family_of};
use crate::packet::{Captured, Fate, Packet};
use crate::seed::{Purpose, stream};

/// Limit on reported route changes: if more change at once, a node gets one report for the whole IP version.
const MOST_CHANGES: usize = 64;
/// Number of packets in the log; the oldest are removed first.
const LOG: usize = 400_000;
/// Limit on the outputs of one input. Beyond it, the simulation assumes that an engine is in an endless loop.
const MOST_OUTPUTS: usize = 1_000_000;

impl<N: NodeEngine> Sim<N> {
    pub(super) fn start(&mut self) {
        if !core::mem::replace(&mut self.started, true) {
            self.nodes().for_each(|node| self.boot(node));
        }
    }

    pub(super) fn boot(&mut self, node: NodeId) {
        let state = &mut self.nodes[node.at()];
        let seed = stream(self.seed, Purpose::Engine, node.0, state.incarnation).array();
        // A driver that starts removes the reservations of its predecessor. Pinholes end at their time.
        state.reservations.clear();
        state.pinholes.clear_ids();
        state.multicast.clear_asked();
        let Some(factory) = &mut state.factory else { return };
        let engine = factory(Boot { node, seed, now: self.now });
        state.entries = engine.entries();
        state.engine = Some(engine);
        self.report_interfaces(node);
    }

    /// Handles one event; returns false if the event was out of date.
    pub(super) fn step(&mut self, event: Occurrence) -> bool {
        match event {
            Occurrence::Arrival { link, end, packet } => self.arrive(link, end, packet),
            Occurrence::Loop { node, packet } => self.deliver(node, IfIndex(1), &packet),
            Occurrence::Timer { node } => {
                let state = &mut self.nodes[node.at()];
                if state.timer != Some(self.now) {
                    return false;
                }
                state.timer = None;
                self.drive(node, Input::Timer);
            }
            Occurrence::Lookup { node, incarnation, id, query } => {
                if self.nodes[node.at()].incarnation != incarnation {
                    return false;
                }
                let result = self.network.lookup(node, &query);
                self.drive(node, Input::Route { id, result });
            }
            Occurrence::Multicast { node, incarnation, group, source } => {
                if self.nodes[node.at()].incarnation != incarnation {
                    return false;
                }
                self.report_multicast(node, group, source);
            }
            Occurrence::Stream { connection, event } => self.stream_event(connection, event),
            Occurrence::ListenFailed { node, incarnation, port } => {
                if self.nodes[node.at()].incarnation != incarnation {
                    return false;
                }
                self.drive(
                    node,
                    Input::ListenFailed { kind: StreamKind::Tcp, port, error: StreamError::AddressInUse },
                );
            }
            Occurrence::Reserved { node, incarnation, id, result } => {
                if self.nodes[node.at()].incarnation != incarnation {
                    return false;
                }
                self.drive(node, Input::Reserved { id, result });
            }
            Occurrence::PinholeOpened { node, incarnation, id, result } => {
                if self.nodes[node.at()].incarnation != incarnation {
                    return false;
                }
                self.drive(node, Input::PinholeOpened { id, result });
            }
            Occurrence::FlowFound { node, incarnation, id } => {
                if self.nodes[node.at()].incarnation != incarnation {
                    return false;
                }
                self.drive(node, Input::FlowFound { id, translation: None });
            }
            Occurrence::Failure { node, incarnation, entry, dst, error } => {
                if self.nodes[node.at()].incarnation != incarnation {
                    return false;
                }
                self.drive(node, Input::TransmitFailed { entry, dst, error });
            }
        }
        true
    }

    pub(super) fn enqueue(&mut self, at: Time, event: Occurrence) {
        let Some(event) = self.held(event) else { return };
        self.queued += 1;
        self.queue.push(Queued { at, order: self.queued, event });
    }

    /// Gives an input to a running engine and executes its outputs.
    pub(super) fn drive(&mut self, node: NodeId, input: Input<'_, N::Command>) {
        let Some(engine) = &mut self.nodes[node.at()].engine else { return };
        engine.handle(self.now, input);
        let mut sent = Vec::new();
        let mut asked = Vec::new();
        let mut requests = Vec::new();
        let mut reserved = Vec::new();
        let mut pinholes = Vec::new();
        let mut sought = Vec::new();
        let mut groups = Vec::new();
        let mut removed = Vec::new();
        let mut outputs = 0;
        while let Some(output) = engine.poll() {
            match output {
                Output::Transmit(transmit) => {
                    sent.push((transmit.entry, Packet::from(&transmit), transmit.ifindex));
                }
                Output::RouteLookup { id, query } => asked.push((id, query)),
                Output::MulticastLookup { group, source } => groups.push((group, source)),
                Output::MulticastRelease { group, source } => {
                    groups.retain(|asked| *asked != (group, source));
                    removed.push((group, source));
                }
                Output::Reserve { id, reservation } => reserved.push((id, Some(reservation.clone()))),
                Output::Release { id } => reserved.push((id, None)),
                Output::OpenPinhole { id, pinhole, lifetime } => {
                    pinholes.push((id, Some((pinhole, self.now + lifetime))));
                }
                Output::ClosePinhole { id } => pinholes.push((id, None)),
                Output::FindFlow { id, .. } => sought.push(id),
                Output::Event(event) => self.happened.push(Happened { at: self.now, node, event }),
                Output::StreamListen { kind, port } => requests.push(StreamRequest::Listen(tcp(kind, port))),
                Output::StreamOpen { stream, kind, local, peer } => {
                    requests.push(StreamRequest::Open(stream, local, tcp(kind, peer)));
                }
                Output::StreamWrite { stream, octets } => {
                    requests.push(StreamRequest::Write(stream, octets.to_vec()));
                }
                Output::StreamMessage { .. } => tcp(StreamKind::Sctp, ()),
                Output::StreamRead { stream, on } => requests.push(StreamRequest::Read(stream, on)),
                Output::StreamClose { stream, abort } => {
                    requests.push(StreamRequest::Close { stream, abort });
                }
            }
            outputs += 1;
            assert!(
                outputs < MOST_OUTPUTS,
                "{node} does not stop sending at {} (seed {})",
                self.now,
                self.seed
            );
        }
        // A deadline in the past is due now. The step limit stops an engine that never removes it.
        let deadline = engine.next_deadline().map(|at| at.max(self.now));
        let state = &mut self.nodes[node.at()];
        let incarnation = state.incarnation;
        if state.timer != deadline {
            state.timer = deadline;
            if let Some(at) = deadline {
                self.enqueue(at, Occurrence::Timer { node });
            }
        }
        for (id, query) in asked {
            self.enqueue(self.now + self.lookup_delay, Occurrence::Lookup { node, incarnation, id, query });
        }
        for (group, source) in removed {
            self.nodes[node.at()].multicast.remove(group, source);
        }
        for (group, source) in groups {
            self.nodes[node.at()].multicast.ask(group, source);
            let at = self.now + self.lookup_delay;
            self.enqueue(at, Occurrence::Multicast { node, incarnation, group, source });
        }
        self.reserve(node, reserved);
        self.open_pinholes(node, pinholes);
        // The kernels of the simulation translate by pinholes only.
        for id in sought {
            self.enqueue(self.now, Occurrence::FlowFound { node, incarnation, id });
        }
        for (entry, packet, ifindex) in sent {
            let dst = packet.dst.ip();
            if let Err(error) = self.originate(node, packet, ifindex) {
                self.enqueue(self.now, Occurrence::Failure { node, incarnation, entry, dst, error });
            }
        }
        self.serve_streams(node, requests);
    }

    pub(super) fn originate(
        &mut self,
        node: NodeId,
        mut packet: Packet,
        by: Option<IfIndex>,
    ) -> Result<(), TransmitError> {
        let next_step = match by {
            None => self.network.next_step(node, packet.dst.ip()).map_err(|_| TransmitError::Unreachable)?,
            Some(IfIndex(1)) => NextStep::Local,
            Some(by) => {
                let (link, end) = self.network.port(node, by).ok_or(TransmitError::Other)?;
                NextStep::Out { link, end }
            }
        };
        let mixed = packet.src.is_ipv4() != packet.dst.is_ipv4();
        if packet.ttl == 0 || (mixed && !packet.src.ip().is_unspecified()) {
            return Err(TransmitError::Other);
        }
        match next_step {
            NextStep::Local => {
                if packet.src.ip().is_unspecified() {
                    packet.src.set_ip(packet.dst.ip());
                }
                self.enqueue(self.now, Occurrence::Loop { node, packet });
            }
            NextStep::Out { link, end } => {
                if !self.network.is_up(link) {
                    return Err(TransmitError::Unreachable);
                }
                let mtu = self.network.mtu(link);
                if packet.dont_fragment && packet.size() > mtu as usize {
                    return Err(TransmitError::TooBig(Some(mtu)));
                }
                if packet.src.ip().is_unspecified() {
                    packet.src.set_ip(self.network.address_on(link, end, family_of(packet.dst.ip())));
                }
                self.carry(link, end, packet);
            }
        }
        Ok(())
    }

    /// Puts a packet on a link from one of its ends.
    pub(super) fn carry(&mut self, link: LinkId, end: usize, packet: Packet) {
        self.counters.carried += 1;
        let now = self.now;
        let wire = self.network.link_mut(link);
        let (from, to) = (wire.node(end), wire.node(1 - end));
        let Impairment { delay, jitter, loss, duplication } = wire.impairment[end];
        let random = &mut wire.random[end];
        // Each packet takes the same number of values from the generator, whatever its fate.
        let (lost, doubled) = (random.chance(loss), random.chance(duplication));
        let delays = [0, 1].map(|_| delay + jitter.mul_f64(random.unit()));
        let filtered = wire.filter.as_mut().is_some_and(|drop| drop(now, from, &packet));
        let fate = match (filtered, lost, doubled) {
            (true, ..) => Fate::Filtered,
            (_, true, _) => Fate::Lost,
            (_, _, true) => Fate::Doubled,
            _ => Fate::Carried,
        };
        if wire.captured {
            if self.log.len() == LOG {
                self.log.pop_front();
            }
            let carried = matches!(fate, Fate::Carried | Fate::Doubled);
            let arrives =
                [carried.then(|| now + delays[0]), (fate == Fate::Doubled).then(|| now + delays[1])];
            self.log.push_back(Captured { at: now, link, from, to, packet: packet.clone(), fate, arrives });
        }
        let end = 1 - end;
        match fate {
            Fate::Filtered | Fate::Lost => self.counters.lost += 1,
            Fate::Carried => self.enqueue(now + delays[0], Occurrence::Arrival { link, end, packet }),
            Fate::Doubled => {
                self.counters.duplicated += 1;
                self.enqueue(now + delays[0], Occurrence::Arrival { link, end, packet: packet.clone() });
                self.enqueue(now + delays[1], Occurrence::Arrival { link, end, packet });
            }
        }
    }

    fn arrive(&mut self, link: LinkId, end: usize, mut packet: Packet) {
        let node = self.network.link(link).node(end);
        if self.nodes[node.at()].off {
            self.counters.unrouted += 1;
            return;
        }
        let ifindex = self.network.ifindex(link, end);
        if packet.dst.ip().is_multicast() {
            return self.arrive_multicast(node, ifindex, packet);
        }
        let next_step = self.network.next_step(node, packet.dst.ip());
        if let Some(entry) = self.interceptor(node, &packet, (ifindex, next_step.is_ok(), next_step.ok())) {
            self.counters.intercepted += 1;
            return self.drive(node, Input::Packet(packet.received_by(entry, ifindex)));
        }
        let passes = self.pass(node, &mut packet);
        let next_step = self.network.next_step(node, packet.dst.ip());
        if !passes && next_step != Ok(NextStep::Local) {
            self.counters.blocked += 1;
            return;
        }
        if next_step == Ok(NextStep::Local) {
            self.deliver(node, ifindex, &packet);
            return;
        }
        if packet.ttl <= 1 {
            self.counters.ttl_expired += 1;
            return;
        }
        packet.ttl -= 1;
        match next_step {
            Ok(NextStep::Out { link, end }) if self.network.is_up(link) && self.network.forwards(node) => {
                if packet.dont_fragment && packet.size() > self.network.mtu(link) as usize {
                    self.counters.too_big += 1;
                    return;
                }
                self.counters.forwarded += 1;
                self.carry(link, end, packet);
            }
            _ => self.counters.unrouted += 1,
        }
    }

    /// The engine's request for packets of this entry, if the engine runs and its driver has the entry open.
    fn entry(&self, node: NodeId, entry: Entry) -> Option<&EntryRequest> {
        let state = &self.nodes[node.at()];
        let open = state.engine.is_some() && !state.closed.contains(&entry);
        state.entries.iter().find(|request| open && request.receive && request.entry == entry)
    }

    /// The port of entry whose rule takes this packet, so that the node's engine receives it: one that came in by this
    /// interface; `routed` is true if the node has a route for it, `next_step` is where that leads, if to one place only.
    pub(super) fn interceptor(
        &self,
        node: NodeId,
        packet: &Packet,
        (arrived, routed, next_step): (IfIndex, bool, Option<NextStep>),
    ) -> Option<Entry> {
        let state = &self.nodes[node.at()];
        let local = next_step == Some(NextStep::Local);
        let entry = packet.entry();
        let takes = |request: &EntryRequest, rule: &Intercept| {
            let is_udp = matches!(request.entry, Entry::Udp(_));
            let reached = match rule.reach {
                Reach::Passing => !local && request.entry == entry,
                // Also those to the node, which connection tracking does not see and does not translate.
                Reach::Translated => request.entry == entry,
                Reach::TranslatedAnyPort => is_udp && matches!(entry, Entry::Udp(_)),
            };
            // Linux redirects datagrams before the route lookup, raw packets after it.
            let through = rule.through.as_ref();
            reached
                && (routed || is_udp)
                && through
                    .is_none_or(|through| self.passes_through(node, packet, (arrived, next_step), through))
                && rule.takes(packet.dst.is_ipv6(), &packet.options, &packet.payload)
        };
        let open = |request: &&EntryRequest| state.interception && self.entry(node, request.entry).is_some();
        let mut requests = state.entries.iter().filter(open);
        requests
            .find(|request| request.intercept.iter().any(|rule| takes(request, rule)))
            .map(|one| one.entry)
    }

    /// Whether a packet comes from and leads to where a rule says.
    fn passes_through(
        &self,
        node: NodeId,
        packet: &Packet,
        (arrived, next_step): (IfIndex, Option<NextStep>),
        through: &Through,
    ) -> bool {
        let is = |ifindex: IfIndex, name: &str| self.network.interface_name(node, ifindex) == Some(name);
        is(arrived, &through.from)
            && match (&through.to, next_step) {
                (Towards::Address(address), _) => packet.dst.ip() == *address,
                (Towards::ThisNode, next_step) => next_step == Some(NextStep::Local),
                (Towards::Interface(name), Some(NextStep::Out { link, end })) => {
                    is(self.network.ifindex(link, end), name)
                }
                (Towards::Interface(_), Some(NextStep::Local) | None) => false,
            }
    }

    pub(super) fn deliver(&mut self, node: NodeId, ifindex: IfIndex, packet: &Packet) {
        if self.entry(node, packet.entry()).is_none() {
            if let Some(reply) = packet.echoed() {
                self.counters.echoed += 1;
                // As in the kernel, an answer without a route is lost.
                let _ = self.originate(node, reply, None);
            } else {
                self.counters.unreceived += 1;
            }
            return;
        }
        self.counters.delivered += 1;
        self.drive(node, Input::Packet(packet.received(ifindex)));
    }

    pub(super) fn report_ends(&mut self, link: LinkId) {
        for end in 0..2 {
            self.report_interfaces(self.network.link(link).node(end));
        }
    }

    pub(super) fn report_interfaces(&mut self, node: NodeId) {
        if self.started {
            let interfaces = self.network.interfaces(node);
            self.drive(node, Input::Interfaces(&interfaces));
        }
    }

    pub(super) fn report_routes(&mut self, changes: Vec<RouteChange>) {
        if !self.started {
            return;
        }
        for node in changes.iter().map(|(node, _)| *node).collect::<BTreeSet<_>>() {
            let of_node = || changes.iter().filter(|(n, _)| *n == node).map(|(_, prefix)| *prefix);
            if of_node().count() <= MOST_CHANGES {
                of_node().for_each(|prefix| self.drive(node, Input::RouteChanged(prefix)));
                continue;
            }
            for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
                self.drive(node, Input::RouteChanged(Prefix::all_like(any)));
            }
        }
    }
}

/// Checks that a stream is a TCP stream. The simulated hosts have no SCTP; nodes bring their own.
fn tcp<T>(kind: StreamKind, port_or_peer: T) -> T {
    assert_eq!(kind, StreamKind::Tcp, "the simulator's hosts do not support SCTP");
    port_or_peer
}
