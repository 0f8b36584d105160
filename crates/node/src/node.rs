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

use crate::composition::{Composition, Extended, Place};
use crate::config::{ConfigError, Member};
use crate::groups::Followers;
use crate::protocol::{
    self, Composed, Context, GrantInput, MulticastRoute, Next, Protocol, Setup, StreamInput,
};
use crate::protocols::{Command, Config, Event, Suite};
use crate::routes::Lookups;
use crate::streams::Streams;

/// Messages that protocols exchange for one input. What is left waits for the next input, which
/// [`Node::next_deadline`] asks for at once: protocols that exchange messages without end cannot hold their driver.
const EXCHANGES: u32 = 10_000;

/// Packets that are prepared together.
const PREPARED: usize = 16;

/// A node: protocols behind the contract of [`signalbox_core::node`]. Without another word they are those of the suite.
#[derive(Debug)]
pub struct Node<P: Composition = Suite> {
    pub(crate) protocols: P,
    pub(crate) resources: Resources,
    /// Which protocol is the signaling application of a number.
    pub(crate) applications: Vec<(Place, NslpId)>,
    /// The ports of entry.
    entries: Vec<EntryRequest>,
    /// The protocols that need them. One that shares an entry comes first.
    owners: Vec<(Entry, Place)>,
    lookups: Lookups,
    /// Who follows which multicast route.
    followers: Followers,
    streams: Streams,
    /// Streams of peers to be reset, because no protocol has them.
    refused: VecDeque<StreamId>,
    /// Events of commands to protocols that the node does not run.
    events: VecDeque<P::Event>,
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
        Self::compose(config, None, seed, |suite, _| Ok(suite))
    }
}

impl<P: Composed> Node<Extended<P>> {
    /// A node that runs a protocol of another crate with the settings `extension` beside those of the suite that have settings. The suite
    /// draws the random numbers that it draws without it. See [`Node::new`] for `seed`.
    ///
    /// # Errors
    /// A setting that [`Config::validated`] or the protocol refuses; a name, a port of entry, a port or a number of a signaling
    /// application that two of the protocols have; a signaling application without GIST.
    pub fn extended(config: Config, extension: P::Config, seed: [u8; 32]) -> Result<Self, ConfigError> {
        if Suite::names().any(|name| name == P::NAME) {
            return Err(ConfigError::Other(format!("{} is the name of a protocol of the suite", P::NAME)));
        }
        let member = Member::new::<P>(Place::EXTENSION, &extension);
        Self::compose(config, Some(member), seed, |suite, setup| {
            Ok(Extended { suite, extension: P::new(extension, setup)? })
        })
    }

    /// The protocol of the other crate, read only.
    #[must_use]
    pub const fn extension(&self) -> &P {
        &self.protocols.extension
    }
}

impl<P: Composition> Node<P> {
    /// Makes the suite, admission control, and what else the node runs.
    fn compose(
        mut config: Config,
        extension: Option<Member>,
        seed: [u8; 32],
        make: impl FnOnce(Suite, &mut Setup) -> Result<P, ConfigError>,
    ) -> Result<Self, ConfigError> {
        let mut members = config.members();
        members.extend(extension);
        members.validated(&config.resources)?;
        let applications = members.applications();
        let mut setup = Setup {
            wall_clock_us: config.wall_clock_us,
            slowest_link: config.resources.slowest_link().unwrap_or(0),
            applications: applications.iter().map(|(_, nslp)| *nslp).collect(),
            ports: members.ports(),
            rng: Random::new(seed),
        };
        let resources = core::mem::take(&mut config.resources);
        let suite = Suite::new(config, &mut setup)?;
        let resources = Resources::new(resources, setup.wall_clock_us, setup.rng.array())?;
        Ok(Self {
            protocols: make(suite, &mut setup)?,
            resources,
            applications,
            entries: members.entries(),
            owners: members.owners(),
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
    fn each<'a>(&mut self, input: impl Fn() -> protocol::Input<'a>) {
        let mut cx = Context { now: self.now, resources: &mut self.resources };
        self.protocols.each(|protocol| protocol.handle(&mut cx, input()));
    }

    /// Lets one protocol do something, if the node runs it.
    pub(crate) fn one(&mut self, id: Place, give: impl FnOnce(&mut dyn Protocol, &mut Context<'_>)) {
        if let Some(protocol) = self.protocols.get_mut(id) {
            give(protocol, &mut Context { now: self.now, resources: &mut self.resources });
        }
    }

    /// Gives an input to one protocol, if the node runs it.
    #[inline]
    fn to(&mut self, id: Place, input: protocol::Input<'_>) {
        if let Some(protocol) = self.protocols.get_mut(id) {
            protocol.handle(&mut Context { now: self.now, resources: &mut self.resources }, input);
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
            let owns = |one: &dyn Protocol| one.owners().reserver == Some(owner.protocol);
            if let Some(place) = self.protocols.find(owns) {
                self.to(place, protocol::Input::Grant(input));
            }
        }
    }

    /// The first protocol that has an output, and who takes it.
    fn next(&mut self) -> Option<(Place, Next)> {
        let mut cx = Context { now: self.now, resources: &mut self.resources };
        self.protocols.next(&mut cx)
    }

    /// An output of a protocol for the driver.
    fn output(&mut self, id: Place) -> Option<Output<'_, P::Event>> {
        let mut output = self.protocols.poll(id, self.lookups.of(id));
        // It stays where it is: outputs are large.
        if let Some(output) = &mut output {
            self.streams.give(id, output);
            self.followers.note(id, output);
        }
        output
    }

    /// Gives an output of one protocol to another: a request to GIST, an indication of GIST to an application, or what a front end and
    /// NATFW have for each other.
    fn exchange(&mut self, from: Place, to: Place) {
        self.budget -= 1;
        tracing::trace!(from = P::name(from), to = P::name(to), "message between protocols");
        self.protocols.pass(&mut Context { now: self.now, resources: &mut self.resources }, from, to);
    }

    /// The protocols that need a port of entry.
    fn owners(&self, entry: Entry) -> impl Iterator<Item = Place> {
        self.owners.iter().filter(move |(own, _)| *own == entry).map(|(_, protocol)| *protocol)
    }

    /// The protocol that takes a packet: the last one that needs the port of entry, unless one that shares it wants the packet.
    fn taker(&mut self, packet: &Received<'_>) -> Option<Place> {
        let mut owners = self.owners(packet.entry);
        let (first, last) = (owners.next()?, owners.last());
        let Some(last) = last else { return Some(first) };
        let now = self.now;
        let takes = self.protocols.get_mut(first).is_some_and(|protocol| protocol.takes(now, packet));
        Some(if takes { first } else { last })
    }

    fn packet(&mut self, packet: Received<'_>) {
        match self.taker(&packet) {
            Some(owner) => self.to(owner, protocol::Input::Packet(packet)),
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
        if !self.protocols.iter().any(|one| one.prepare(&[])) {
            return usize::MAX;
        }
        let mut group = [(Entry::Udp(0), [].as_slice()); PREPARED];
        let mut count = 0;
        for (place, packet) in group.iter_mut().zip(packets) {
            *place = packet;
            count += 1;
        }
        let group = group.get(..count).unwrap_or_default();
        for protocol in self.protocols.iter() {
            protocol.prepare(group);
        }
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
        self.to(owner, protocol::Input::Stream(input(stream)));
    }

    /// A peer opened a stream. It belongs to the protocol that listens at the port.
    fn accepted(&mut self, stream: StreamId, kind: StreamKind, local: SocketAddr, peer: SocketAddr) {
        if !self.streams.is_new(stream) {
            return tracing::debug!(stream = stream.0, reason = "not a new even number", "stream discarded");
        }
        match self.streams.accept(stream, kind, local.port()) {
            Some(owner) => {
                let input = StreamInput::Accepted { stream, kind, local, peer };
                self.to(owner, protocol::Input::Stream(input));
            }
            None => {
                tracing::debug!(stream = stream.0, %peer, reason = "no protocol listens at the port", "stream reset");
                self.refused.push_back(stream);
            }
        }
    }

    /// Gives an answer of the kernel to the protocol that asked.
    fn opener(&mut self, id: PinholeId, input: protocol::Input<'_>) {
        match self.protocols.find(|one| one.owners().opener == Some(id.owner)) {
            Some(place) => self.to(place, input),
            None => tracing::debug!(%id, reason = "no protocol has it", "answer of the kernel discarded"),
        }
    }

    /// What the node that starts in place of this one needs, so that neighbors set up their state again at once. It walks
    /// over all state, so it is for a node that ends.
    #[must_use]
    pub fn hand_over(&self, now: Time) -> Vec<u8> {
        let mut octets = Vec::new();
        for (place, protocol) in self.protocols.named() {
            let Some(restart) = protocol.restart() else { continue };
            let mut entries = Entries::default();
            restart.hand_over(now, &mut entries);
            handover::write_part(&mut octets, P::name(place), &entries);
        }
        octets
    }

    /// Whether [`Node::hand_over`] writes what a pinhole is for, so that it may stay in the kernel for the node that starts in place
    /// of this one.
    #[must_use]
    pub fn leaves(&self, id: PinholeId) -> bool {
        let mut owners = self.protocols.iter().filter(|one| one.owners().opener == Some(id.owner));
        owners.any(|one| one.restart().is_some_and(|restart| restart.leaves(id)))
    }

    /// Gives each protocol what its predecessor wrote.
    fn take_over(&mut self, octets: &[u8]) {
        for (name, entries) in handover::parts(octets) {
            if let Some(place) = P::names().position(|one| one == name) {
                self.to(Place::nth(place), protocol::Input::Handover(entries));
            }
        }
    }

    /// The protocol inside of the node that is the signaling application of a number.
    fn application(&self, nslp: NslpId) -> Option<Place> {
        self.applications.iter().find(|(_, own)| *own == nslp).map(|(protocol, _)| *protocol)
    }

    /// Takes an input of the driver.
    fn take(&mut self, now: Time, input: Input<'_, P::Command>) {
        self.now = now;
        self.budget = EXCHANGES;
        self.resources.begin(now);
        match input {
            Input::Timer => self.each(|| protocol::Input::Timer),
            Input::Interfaces(interfaces) => {
                self.resources.interfaces(interfaces);
                self.each(|| protocol::Input::Interfaces(interfaces));
            }
            Input::Packet(packet) => self.packet(packet),
            Input::TransmitFailed { entry, dst, error } => {
                if let Some(owner) = self.owners(entry).last() {
                    self.to(owner, protocol::Input::TransmitFailed { entry, dst, error });
                }
            }
            Input::Undeliverable { entry, dst: _, quoted } => {
                if let Some(owner) = self.owners(entry).last() {
                    self.to(owner, protocol::Input::Undeliverable { quoted });
                }
            }
            Input::Route { id, result } => {
                let Some((owner, own)) = self.lookups.take(id) else {
                    return tracing::debug!(id, reason = "no such lookup", "route discarded");
                };
                self.to(owner, protocol::Input::Route { id: own, result });
            }
            Input::RouteChanged(prefix) => self.each(|| protocol::Input::RouteChanged(prefix)),
            Input::NeighborMoved { ifindex, address } => {
                self.each(|| protocol::Input::NeighborMoved { ifindex, address });
            }
            Input::Multicast { group, source, iif, oifs } => {
                let route = MulticastRoute { group, source, iif, oifs };
                self.each(|| protocol::Input::Multicast(route));
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
                    self.to(owner, protocol::Input::Stream(StreamInput::ListenFailed { kind, port }));
                }
            }
            Input::Reserved { id, result } => self.resources.installed(id, result),
            Input::PinholeOpened { id, result } => {
                self.opener(id, protocol::Input::PinholeOpened { id, result });
            }
            Input::FlowFound { id, translation } => {
                self.opener(id, protocol::Input::FlowFound { id, translation });
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

    /// The next output for the driver.
    fn give(&mut self) -> Option<Output<'_, P::Event>> {
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
                Some((id, Next::Gist)) => self.exchange(id, Place::GIST),
                Some((id, Next::Application(nslp))) => match self.application(nslp) {
                    Some(application) => self.exchange(id, application),
                    None => return None,
                },
                Some((id, Next::Protocol(to))) => self.exchange(id, to.place()),
                Some((_, Next::Worked)) => self.budget -= 1,
                None if self.protocols.flush() => self.budget -= 1,
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

    /// When the timer is due.
    fn deadline(&self) -> Option<Time> {
        if self.budget == 0 {
            return Some(self.now);
        }
        self.protocols.iter().filter_map(Protocol::next_deadline).min()
    }
}

// Each composition has its own implementation, so that the loop of the suite is compiled here with the protocols, and not in the
// crates that drive a node.

impl NodeEngine for Node {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        self.take(now, input);
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        self.give()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.deadline()
    }

    fn entries(&self) -> Vec<EntryRequest> {
        self.entries.clone()
    }
}

impl<P: Composed> NodeEngine for Node<Extended<P>> {
    type Command = <Extended<P> as Composition>::Command;
    type Event = <Extended<P> as Composition>::Event;

    fn handle(&mut self, now: Time, input: Input<'_, Self::Command>) {
        self.take(now, input);
    }

    fn poll(&mut self) -> Option<Output<'_, Self::Event>> {
        self.give()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.deadline()
    }

    fn entries(&self) -> Vec<EntryRequest> {
        self.entries.clone()
    }
}
