//! The composition: one loop over the protocols that the node runs.

use core::net::SocketAddr;
use std::collections::VecDeque;

use signalbox_core::handover::{self, Entries};
use signalbox_core::node::{Input, NodeEngine, Output, StreamId, StreamKind};
use signalbox_core::packet::Received;
use signalbox_core::pinhole::PinholeId;
use signalbox_core::rng::Random;
use signalbox_core::traffic::{Reservation, ReservationId};
use signalbox_core::{Entry, EntryRequest, NslpId, Time};
use signalbox_resources::{ResourceOutput, Resources};

use crate::config::ConfigError;
use crate::groups::Followers;
use crate::protocol::{Context, GrantInput, MulticastRoute, Next, Protocol, StreamInput};
use crate::protocols::{Command, Config, Event, Instances, ProtocolId};
use crate::routes::Lookups;
use crate::streams::Streams;

/// Messages that protocols exchange for one input. What is left waits for the next input, which
/// [`Node::next_deadline`] asks for at once: protocols that exchange messages without end cannot hold their driver.
const EXCHANGES: u32 = 10_000;

/// Packets that are prepared together.
const PREPARED: usize = 16;

/// A node: the protocols of the suite behind the contract of [`signalbox_core::node`].
#[derive(Debug)]
pub struct Node {
    pub(crate) protocols: Instances,
    pub(crate) resources: Resources,
    /// Which protocol is the signaling application of a number.
    pub(crate) applications: Vec<(ProtocolId, NslpId)>,
    /// The ports of entry.
    entries: Vec<EntryRequest>,
    /// The protocols that need them. One that shares an entry comes first.
    owners: Vec<(Entry, ProtocolId)>,
    lookups: Lookups,
    /// Who follows which multicast route.
    followers: Followers,
    streams: Streams,
    /// Streams of peers to be reset, because no protocol has them.
    refused: VecDeque<StreamId>,
    /// Events of commands to protocols that the node does not run.
    events: VecDeque<Event>,
    pub(crate) now: Time,
    /// Exchanges left for this input.
    budget: u32,
    /// The reservation that was given out last.
    reserving: Option<Reservation>,
}

/// What the kernel is to do.
enum Kernel {
    /// Install the reservation in [`Node::reserving`].
    Reserve(ReservationId),
    Release(ReservationId),
}

impl Node {
    /// A node without state. All its randomness comes from `seed`, which must be secret outside of tests.
    ///
    /// # Errors
    /// A setting that [`Config::validated`] refuses, and keys or certificates that cannot be used.
    pub fn new(config: Config, seed: [u8; 32]) -> Result<Self, ConfigError> {
        config.validated()?;
        let wall_clock_us = config.wall_clock_us;
        let applications = config.claims();
        let (entries, owners) = (config.entries(), config.owners());
        let (mut protocols, resources, mut rng) = Instances::new(config, Random::new(seed))?;
        if let Some(gist) = protocols.get_mut(ProtocolId::Gist) {
            applications.iter().for_each(|(_, nslp)| gist.register(*nslp));
        }
        let resources = Resources::new(resources, wall_clock_us, rng.array())?;
        Ok(Self {
            protocols,
            resources,
            applications,
            entries,
            owners,
            lookups: Lookups::default(),
            followers: Followers::default(),
            streams: Streams::default(),
            refused: VecDeque::new(),
            events: VecDeque::new(),
            now: Time::ZERO,
            budget: EXCHANGES,
            reserving: None,
        })
    }

    /// Gives an input to each protocol.
    fn each(&mut self, mut give: impl FnMut(&mut dyn Protocol, &mut Context<'_>)) {
        let mut cx = Context { now: self.now, resources: &mut self.resources };
        for protocol in self.protocols.iter_mut() {
            give(protocol, &mut cx);
        }
    }

    /// Gives an input to one protocol, if the node runs it.
    pub(crate) fn one(&mut self, id: ProtocolId, give: impl FnOnce(&mut dyn Protocol, &mut Context<'_>)) {
        if let Some(protocol) = self.protocols.get_mut(id) {
            give(protocol, &mut Context { now: self.now, resources: &mut self.resources });
        }
    }

    /// What admission control requests of the kernel. What it has for the protocols is given to them.
    fn kernel_output(&mut self) -> Option<Kernel> {
        loop {
            let (owner, input) = match self.resources.poll()? {
                ResourceOutput::Install { id, reservation } => {
                    self.reserving = Some(reservation.clone());
                    return Some(Kernel::Reserve(id));
                }
                ResourceOutput::Remove { id } => return Some(Kernel::Release(id)),
                ResourceOutput::Reduced { owner, grant, rate } => {
                    (owner, GrantInput::Reduced { key: owner.key, grant, rate })
                }
                ResourceOutput::Lost { owner, grant, why } => {
                    (owner, GrantInput::Lost { key: owner.key, grant, why })
                }
            };
            tracing::debug!(?owner, ?input, "admission control took from a grant");
            let mut cx = Context { now: self.now, resources: &mut self.resources };
            let mut protocols = self.protocols.iter_mut();
            if let Some(protocol) = protocols.find(|one| one.reserver() == Some(owner.protocol)) {
                protocol.grant(&mut cx, input);
            }
        }
    }

    /// The first protocol that has an output, and who takes it.
    fn next(&mut self) -> Option<(ProtocolId, Next)> {
        let mut cx = Context { now: self.now, resources: &mut self.resources };
        self.protocols.next(&mut cx)
    }

    /// An output of a protocol for the driver.
    fn output(&mut self, id: ProtocolId) -> Option<Output<'_, Event>> {
        let mut output = self.protocols.poll(id, self.lookups.of(id));
        // It stays where it is: outputs are large.
        if let Some(output) = &mut output {
            self.streams.give(id, output);
            self.followers.note(id, output);
        }
        output
    }

    /// Gives an output of one protocol to another: a request to GIST, or an indication of GIST to an application.
    fn exchange(&mut self, from: ProtocolId, to: ProtocolId) {
        self.budget -= 1;
        tracing::trace!(%from, %to, "message between protocols");
        self.protocols.pass(&mut Context { now: self.now, resources: &mut self.resources }, from, to);
    }

    /// The protocols that need a port of entry.
    fn owners(&self, entry: Entry) -> impl Iterator<Item = ProtocolId> {
        self.owners.iter().filter(move |(own, _)| *own == entry).map(|(_, protocol)| *protocol)
    }

    /// The protocol that takes a packet: the last one that needs the port of entry, unless one that shares it wants the packet.
    fn taker(&mut self, packet: &Received<'_>) -> Option<ProtocolId> {
        let mut owners = self.owners(packet.entry);
        let (first, last) = (owners.next()?, owners.last());
        let Some(last) = last else { return Some(first) };
        let now = self.now;
        let takes = self.protocols.get_mut(first).is_some_and(|protocol| protocol.takes(now, packet));
        Some(if takes { first } else { last })
    }

    fn packet(&mut self, packet: Received<'_>) {
        match self.taker(&packet) {
            Some(owner) => self.one(owner, |protocol, cx| protocol.packet(cx, packet)),
            None => {
                tracing::debug!(entry = ?packet.entry, reason = "no protocol needs the entry", "packet discarded")
            }
        }
    }

    /// Takes some of the packets that the driver gives next, and lets the protocols read the state that these will need. Nothing
    /// changes but the time of what follows. Returns for how many packets there is nothing more to prepare.
    ///
    /// The octets are those of a UDP payload, or of a packet of IP as the driver received it.
    pub fn prepare<'a>(&self, packets: &mut impl Iterator<Item = (Entry, &'a [u8])>) -> usize {
        if !self.protocols.iter().any(Protocol::is_large) {
            return usize::MAX;
        }
        let mut group = [(Entry::Udp(0), [].as_slice()); PREPARED];
        let mut count = 0;
        for (place, packet) in group.iter_mut().zip(packets) {
            *place = packet;
            count += 1;
        }
        let group = group.get(..count).unwrap_or_default();
        self.protocols.iter().filter(|one| one.is_large()).for_each(|one| one.prepare(group));
        count.max(1)
    }

    /// Gives a protocol what happened to its stream, with its own number of the stream.
    fn stream<'a>(&mut self, stream: StreamId, input: impl FnOnce(StreamId) -> StreamInput<'a>) {
        let Some((owner, stream)) = self.streams.owner(stream) else {
            return tracing::debug!(
                stream = stream.0,
                reason = "no protocol has it",
                "event of a stream discarded"
            );
        };
        self.one(owner, |protocol, cx| protocol.stream(cx, input(stream)));
    }

    /// A peer opened a stream. It belongs to the protocol that listens at the port.
    fn accepted(&mut self, stream: StreamId, kind: StreamKind, local: SocketAddr, peer: SocketAddr) {
        if !self.streams.is_new(stream) {
            return tracing::debug!(stream = stream.0, reason = "not a new even number", "stream discarded");
        }
        match self.streams.accept(stream, kind, local.port()) {
            Some(owner) => self.one(owner, |protocol, cx| {
                protocol.stream(cx, StreamInput::Accepted { stream, kind, local, peer });
            }),
            None => {
                tracing::debug!(stream = stream.0, %peer, reason = "no protocol listens at the port", "stream reset");
                self.refused.push_back(stream);
            }
        }
    }

    /// Gives an answer of the kernel to the protocol that asked.
    fn opener(&mut self, id: PinholeId, give: impl FnOnce(&mut dyn Protocol, &mut Context<'_>)) {
        let mut cx = Context { now: self.now, resources: &mut self.resources };
        let mut protocols = self.protocols.iter_mut();
        match protocols.find(|one| one.opener() == Some(id.owner)) {
            Some(protocol) => give(protocol, &mut cx),
            None => tracing::debug!(%id, reason = "no protocol has it", "answer of the kernel discarded"),
        }
    }

    /// What the node that starts in place of this one needs, so that neighbours set up their state again at once. It walks
    /// over all state, so it is for a node that ends.
    #[must_use]
    pub fn hand_over(&self, now: Time) -> Vec<u8> {
        let mut octets = Vec::new();
        for (id, protocol) in self.protocols.named() {
            let mut entries = Entries::default();
            protocol.hand_over(now, &mut entries);
            handover::write_part(&mut octets, id.name(), &entries);
        }
        octets
    }

    /// Whether [`Node::hand_over`] writes what a pinhole is for, so that it may stay in the kernel for the node that starts in place
    /// of this one.
    #[must_use]
    pub fn leaves(&self, id: PinholeId) -> bool {
        self.protocols.iter().any(|one| one.opener() == Some(id.owner) && one.leaves(id))
    }

    /// Gives each protocol what its predecessor wrote.
    fn take_over(&mut self, octets: &[u8]) {
        for (name, entries) in handover::parts(octets) {
            if let Some(id) = ProtocolId::ALL.iter().find(|id| id.name() == name) {
                self.one(*id, |protocol, cx| protocol.take_over(cx, entries));
            }
        }
    }

    /// The protocol inside of the node that is the signaling application of a number.
    fn application(&self, nslp: NslpId) -> Option<ProtocolId> {
        self.applications.iter().find(|(_, own)| *own == nslp).map(|(protocol, _)| *protocol)
    }
}

impl NodeEngine for Node {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        self.now = now;
        self.budget = EXCHANGES;
        self.resources.begin(now);
        match input {
            Input::Timer => self.each(|protocol, cx| protocol.timer(cx)),
            Input::Interfaces(interfaces) => {
                self.resources.interfaces(interfaces);
                self.each(|protocol, cx| protocol.interfaces(cx, interfaces));
            }
            Input::Packet(packet) => self.packet(packet),
            Input::TransmitFailed { entry, dst, error } => {
                if let Some(owner) = self.owners(entry).last() {
                    self.one(owner, |protocol, cx| protocol.transmit_failed(cx, entry, dst, error));
                }
            }
            Input::Undeliverable { entry, dst: _, quoted } => {
                if let Some(owner) = self.owners(entry).last() {
                    self.one(owner, |protocol, cx| protocol.undeliverable(cx, quoted));
                }
            }
            Input::Route { id, result } => {
                let Some((owner, own)) = self.lookups.take(id) else {
                    return tracing::debug!(id, reason = "no such lookup", "route discarded");
                };
                self.one(owner, |protocol, cx| protocol.route(cx, own, result));
            }
            Input::RouteChanged(prefix) => self.each(|protocol, cx| protocol.route_changed(cx, prefix)),
            Input::NeighbourMoved { ifindex, address } => {
                self.each(|protocol, cx| protocol.neighbour_moved(cx, ifindex, address));
            }
            Input::Multicast { group, source, iif, oifs } => {
                let route = MulticastRoute { group, source, iif, oifs };
                self.each(|protocol, cx| protocol.multicast(cx, route));
            }
            Input::StreamAccepted { stream, kind, local, peer } => {
                self.accepted(stream, kind, local, peer);
            }
            Input::StreamConnected { stream, local } => {
                self.stream(stream, |stream| StreamInput::Connected { stream, local });
            }
            Input::StreamOctets { stream, octets } => {
                self.stream(stream, |stream| StreamInput::Octets { stream, octets });
            }
            Input::StreamDrained { stream, unsent } => {
                self.stream(stream, |stream| StreamInput::Drained { stream, unsent });
            }
            Input::StreamClosed { stream, error, unacknowledged } => {
                self.stream(stream, |stream| StreamInput::Closed { stream, error, unacknowledged });
                self.streams.end(stream);
            }
            Input::ListenFailed { kind, port, error: _ } => {
                if let Some(owner) = self.streams.listener(kind, port) {
                    self.one(owner, |protocol, cx| {
                        protocol.stream(cx, StreamInput::ListenFailed { kind, port });
                    });
                }
            }
            Input::Reserved { id, result } => self.resources.installed(id, result),
            Input::PinholeOpened { id, result } => {
                self.opener(id, |protocol, cx| protocol.pinhole(cx, id, result));
            }
            Input::FlowFound { id, translation } => {
                self.opener(id, |protocol, cx| protocol.flow(cx, id, translation));
            }
            Input::Handover(octets) => self.take_over(octets),
            Input::Command(command) => {
                let mut cx = Context { now, resources: &mut self.resources };
                let refused = self.protocols.command(&mut cx, command);
                if refused.is_some() {
                    tracing::debug!(reason = "the node does not run the protocol", "command refused");
                }
                self.events.extend(refused);
            }
        }
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        if let Some(event) = self.events.pop_front() {
            return Some(Output::Event(event));
        }
        if let Some(stream) = self.refused.pop_front() {
            return Some(Output::StreamClose { stream, abort: true });
        }
        while self.budget > 0 {
            // Before each output of a protocol: what the protocols did last may have ended with a grant.
            if let Some(output) = self.kernel_output() {
                return Some(match output {
                    Kernel::Reserve(id) => Output::Reserve { id, reservation: self.reserving.as_ref()? },
                    Kernel::Release(id) => Output::Release { id },
                });
            }
            match self.next() {
                Some((id, Next::Driver)) => return self.output(id),
                Some((id, Next::Gist)) => self.exchange(id, ProtocolId::Gist),
                Some((id, Next::Application(nslp))) => match self.application(nslp) {
                    Some(application) => self.exchange(id, application),
                    None => return None,
                },
                Some((_, Next::Worked)) => self.budget -= 1,
                None if self.protocols.flush() => {}
                None => return None,
            }
        }
        tracing::debug!(
            exchanges = EXCHANGES,
            reason = "too many exchanges for one input",
            "outputs postponed"
        );
        None
    }

    fn next_deadline(&self) -> Option<Time> {
        if self.budget == 0 {
            return Some(self.now);
        }
        self.protocols.iter().filter_map(Protocol::next_deadline).min()
    }

    fn entries(&self) -> Vec<EntryRequest> {
        self.entries.clone()
    }
}
