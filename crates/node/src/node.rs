//! The composition: who hears what.

use std::collections::{BTreeMap, VecDeque};

use signalbox_core::node::{Input, NoRoute, NodeEngine, Output, Route};
use signalbox_core::packet::{IpTransmit, Transmit};
use signalbox_core::rng::Random;
use signalbox_core::traffic::{Reservation, ReservationId};
use signalbox_core::{NslpId, Time};
use signalbox_gist::engine::{self as gist, Gist, PeeringPolicy, Registration};
use signalbox_ping::engine::{self as ping, Ping, PingEvent, Refusal};
use signalbox_qos::engine::{self as qos, Qos, QosEvent};
use signalbox_resources::{ResourceOutput, Resources};
use signalbox_rsvp::engine::{self as rsvp, Rsvp, RsvpEvent};

use crate::applications::Applications;
use crate::channels::{Channels, Sent};
use crate::command::{Command, Event};
use crate::config::{Config, ConfigError};

/// Messages that pass between the rooms for one input. What is left then waits for the next input, which
/// [`Node::next_deadline`] asks for at once: rooms that never come to an end cannot hold their driver.
const EXCHANGES: u32 = 10_000;

/// A node: every room of the suite behind the contract of [`signalbox_core::node`].
#[derive(Debug)]
pub struct Node {
    pub(crate) gist: Gist,
    pub(crate) ping: Option<Ping>,
    pub(crate) qos: Option<Qos>,
    pub(crate) rsvp: Option<Rsvp>,
    pub(crate) resources: Resources,
    pub(crate) applications: Applications,
    pub(crate) channels: Channels,
    /// Lookups of rooms other than GIST: the node's name for them, and whose they are.
    lookups: BTreeMap<u64, Waiting>,
    last_lookup: u32,
    /// Outputs of the node's own.
    own: VecDeque<Own>,
    pub(crate) now: Time,
    /// Exchanges left for this input.
    budget: u32,
    /// What was given out last: a datagram's options, then payload, or what is to be written to a stream. Its
    /// buffer is used again and again.
    given: Vec<u8>,
    /// The reservation that was given out last.
    reserving: Option<Reservation>,
}

/// What the kernel is to do.
enum Kernel {
    /// What stands in [`Node::reserving`].
    Reserve(ReservationId),
    Release(ReservationId),
}

/// Who waits for a route.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    /// Ping, by its name for it.
    Ping(u64),
    /// QoS, by its name for it.
    Qos(u64),
    /// RSVP, by its name for it.
    Rsvp(u64),
}

/// Whether this lookup is ours, and not GIST's. Ours are small numbers. GIST's are never: they are names of
/// records, whose upper half is a generation from 1 on, or have the highest bit set.
const fn is_ours(lookup: u64) -> bool {
    lookup <= u32::MAX as u64
}

#[derive(Debug)]
enum Own {
    Event(Box<Event>),
}

impl Node {
    /// A node without state. All its randomness comes from `seed`, which must be secret outside of tests.
    ///
    /// # Errors
    /// What [`Config::validated`] says, and keys or certificates that cannot be used.
    pub fn new(config: Config, seed: [u8; 32]) -> Result<Self, ConfigError> {
        config.validated()?;
        let mut rng = Random::new(seed);
        let associations = config.gist.associations.clone();
        let tls = config.channels.tls.as_ref().map(|tls| tls.load(config.wall_clock_us)).transpose()?;
        let mut gist = Gist::new(config.gist, rng.array())?;
        let ping = config.ping.map(|mut ping| {
            ping.wall_clock_us = config.wall_clock_us;
            gist.register(
                ping.nslp,
                Registration { policy: PeeringPolicy::Always, ..Registration::default() },
            );
            Ping::new(ping, rng.array())
        });
        let qos = config.qos.map(|qos| {
            for nslp in [Some(qos.nslp), qos.bypass_nslp].into_iter().flatten() {
                gist.register(
                    nslp,
                    Registration { policy: PeeringPolicy::Always, ..Registration::default() },
                );
            }
            Qos::new(qos, rng.array())
        });
        let rsvp = config.rsvp.map(|mut rsvp| {
            // Sequence numbers of INTEGRITY grow across restarts.
            rsvp.neighbours.real_time = u32::try_from(config.wall_clock_us / 1_000_000).unwrap_or(u32::MAX);
            rsvp.wall_clock_us = config.wall_clock_us;
            Rsvp::new(rsvp, rng.array())
        });
        let rsvp = rsvp.transpose()?;
        let resources = Resources::new(config.resources, config.wall_clock_us, rng.array())?;
        let channels = Channels::new(config.channels, tls, &associations, rng.array());
        Ok(Self {
            gist,
            ping,
            qos,
            rsvp,
            resources,
            applications: Applications::default(),
            channels,
            lookups: BTreeMap::new(),
            last_lookup: 0,
            own: VecDeque::new(),
            now: Time::ZERO,
            budget: EXCHANGES,
            given: Vec::new(),
            reserving: None,
        })
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Ping { id, command } => match &mut self.ping {
                Some(ping) => ping.handle(self.now, ping::Input::Command { id, command }),
                None => match command {
                    ping::Command::Start(_) => {
                        let event = PingEvent::Refused(Refusal::NoApplication);
                        self.tell(Event::Ping { id, event });
                    }
                    ping::Command::Stop => {}
                },
            },
            Command::Qos { id, command } => match &mut self.qos {
                Some(qos) => qos.handle(self.now, qos::Input::Command { id, command }, &mut self.resources),
                None => {
                    let event = Box::new(QosEvent::Refused(qos::Refusal::NoApplication));
                    self.tell(Event::Qos { id, event });
                }
            },
            Command::Rsvp { id, command } => match &mut self.rsvp {
                Some(rsvp) => {
                    rsvp.handle(self.now, rsvp::Input::Command { id, command }, &mut self.resources);
                }
                None => {
                    let event = Box::new(RsvpEvent::Refused(rsvp::Refused::NotRunning));
                    self.tell(Event::Rsvp { id, event });
                }
            },
            Command::Gist { id, command } => self.application(id, command),
        }
    }

    /// What the resources want of the kernel; what they want of the rooms is done.
    fn resource_output(&mut self) -> Option<Kernel> {
        loop {
            match self.resources.poll()? {
                ResourceOutput::Install { id, reservation } => {
                    self.reserving = Some(reservation.clone());
                    return Some(Kernel::Reserve(id));
                }
                ResourceOutput::Remove { id } => return Some(Kernel::Release(id)),
                ResourceOutput::Reduced { owner, grant, rate } => {
                    // Only RSVP says that a part may be taken.
                    if owner.protocol == rsvp::PROTOCOL {
                        self.tell_rsvp(rsvp::Input::Reduced { key: owner.key, grant, rate });
                    }
                }
                ResourceOutput::Lost { owner, grant, why } => {
                    if let Some(qos) = self.qos.as_mut().filter(|_| owner.protocol == qos::PROTOCOL) {
                        let lost = qos::Input::Lost { key: owner.key, grant, why };
                        qos.handle(self.now, lost, &mut self.resources);
                    } else if owner.protocol == rsvp::PROTOCOL {
                        self.tell_rsvp(rsvp::Input::Lost { key: owner.key, grant, why });
                    }
                }
            }
        }
    }

    /// A name for a lookup. Each is answered, so that there are no more than what waits in the rooms.
    fn lookup(&mut self, waiting: Waiting) -> u64 {
        loop {
            self.last_lookup = self.last_lookup.wrapping_add(1);
            let lookup = u64::from(self.last_lookup);
            if let std::collections::btree_map::Entry::Vacant(free) = self.lookups.entry(lookup) {
                free.insert(waiting);
                return lookup;
            }
        }
    }

    fn route(&mut self, lookup: u64, result: Result<Route, NoRoute>) {
        if !is_ours(lookup) {
            return self.gist.handle(self.now, gist::Input::Route { id: lookup, result });
        }
        match self.lookups.remove(&lookup) {
            Some(Waiting::Ping(id)) => {
                if let Some(ping) = &mut self.ping {
                    ping.handle(self.now, ping::Input::Route { id, result });
                }
            }
            Some(Waiting::Qos(id)) => {
                if let Some(qos) = &mut self.qos {
                    qos.handle(self.now, qos::Input::Route { id, result }, &mut self.resources);
                }
            }
            Some(Waiting::Rsvp(id)) => self.tell_rsvp(rsvp::Input::Route { id, result }),
            None => {}
        }
    }

    fn tell_rsvp(&mut self, input: rsvp::Input<'_>) {
        if let Some(rsvp) = &mut self.rsvp {
            rsvp.handle(self.now, input, &mut self.resources);
        }
    }

    /// Gives out an event of the node's own.
    pub(crate) fn tell(&mut self, event: Event) {
        self.own.push_back(Own::Event(Box::new(event)));
    }

    /// Whether an application inside has this number.
    pub(crate) fn hosts(&self, nslp: NslpId) -> bool {
        self.ping.as_ref().is_some_and(|ping| ping.nslp() == nslp)
            || self.qos.as_ref().is_some_and(|qos| qos.config().is_ours(nslp))
    }
}

impl NodeEngine for Node {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        self.now = now;
        self.budget = EXCHANGES;
        let gist = match input {
            Input::Timer => {
                if let Some(ping) = &mut self.ping {
                    ping.handle(now, ping::Input::Timer);
                }
                if let Some(qos) = &mut self.qos {
                    qos.handle(now, qos::Input::Timer, &mut self.resources);
                }
                self.tell_rsvp(rsvp::Input::Timer);
                self.channels.timer(now, &mut self.gist);
                gist::Input::Timer
            }
            Input::Interfaces(interfaces) => {
                if let Some(ping) = &mut self.ping {
                    ping.handle(now, ping::Input::Interfaces(interfaces));
                }
                self.resources.interfaces(interfaces);
                if let Some(qos) = &mut self.qos {
                    qos.handle(now, qos::Input::Interfaces(interfaces), &mut self.resources);
                }
                self.tell_rsvp(rsvp::Input::Interfaces(interfaces));
                self.channels.listen();
                gist::Input::Interfaces(interfaces)
            }
            Input::Datagram(datagram) => gist::Input::Datagram(datagram),
            Input::RouteChanged(prefix) => {
                self.tell_rsvp(rsvp::Input::RouteChanged(prefix));
                gist::Input::RouteChanged(prefix)
            }
            Input::TransmitFailed { dst, error } => gist::Input::TransmitFailed { dst, error },
            Input::Route { id, result } => return self.route(id, result),
            Input::StreamAccepted { stream, kind, local, peer } => {
                return self.channels.accepted(now, (stream, kind), local, peer, &mut self.gist);
            }
            Input::StreamConnected { stream, .. } => {
                return self.channels.connected(now, stream, &mut self.gist);
            }
            Input::StreamOctets { stream, octets } => {
                return self.channels.octets(now, stream, octets, &mut self.gist);
            }
            Input::StreamDrained { stream, unsent } => {
                return self.channels.drained(now, stream, unsent, &mut self.gist);
            }
            Input::StreamClosed { stream, error, unacknowledged } => {
                return self.channels.closed(now, stream, error, unacknowledged, &mut self.gist);
            }
            Input::ListenFailed { kind, port, .. } => {
                return self.channels.listen_failed(now, (kind, port), &mut self.gist);
            }
            Input::Sctp { src, dst, packet } => {
                return self.channels.sctp_packet(now, [src, dst], packet, &mut self.gist);
            }
            Input::Rsvp(packet) => return self.tell_rsvp(rsvp::Input::Packet(packet)),
            Input::Multicast { group, source, iif, oifs } => {
                return self.tell_rsvp(rsvp::Input::Multicast { group, source, iif, oifs });
            }
            Input::Reserved { id, result } => return self.resources.installed(id, result),
            Input::Command(command) => return self.command(command),
        };
        self.gist.handle(now, gist);
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        if let Some(own) = self.own.pop_front() {
            return Some(match own {
                Own::Event(event) => Output::Event(*event),
            });
        }
        while self.budget > 0 {
            // Before each word of the rooms: what they did last may have been all that there was to do.
            if let Some(output) = self.resource_output() {
                return Some(match output {
                    Kernel::Reserve(id) => Output::Reserve { id, reservation: self.reserving.as_ref()? },
                    Kernel::Release(id) => Output::Release { id },
                });
            }
            if let Some(down) = self.channels.out.pop() {
                return Some(self.channels.out.output(down));
            }
            match self.gist.poll() {
                Some(gist::Output::Transmit(t)) => {
                    let Transmit { options, payload, .. } = t;
                    // The borrow checker does not let a loop give out what it borrowed: one copy.
                    self.given.clear();
                    self.given.extend_from_slice(options);
                    self.given.extend_from_slice(payload);
                    let (options, payload) = self.given.split_at(options.len());
                    return Some(Output::Transmit(Transmit { options, payload, ..t }));
                }
                Some(gist::Output::RouteLookup { id, query }) => {
                    return Some(Output::RouteLookup { id, query });
                }
                Some(gist::Output::ChannelOpen { channel, transport, local, peer }) => {
                    self.budget -= 1;
                    let addresses = [local, peer.ip()];
                    let (now, port) = (self.now, peer.port());
                    self.channels.open(now, channel, transport, addresses, port, &mut self.gist);
                }
                Some(gist::Output::ChannelSend { channel, lane, lifetime, octets }) => {
                    self.given.clear();
                    self.given.extend_from_slice(octets);
                    let how = (lane, lifetime);
                    let sent = self.channels.send(self.now, channel, how, &self.given, &mut self.gist);
                    if let Sent::AsItIs(stream) = sent {
                        return Some(Output::StreamWrite { stream, octets: &self.given });
                    }
                }
                Some(gist::Output::ChannelRead { channel, on }) => {
                    self.channels.read(self.now, channel, on, &mut self.gist);
                }
                Some(gist::Output::ChannelClose { channel, abort }) => {
                    self.channels.close(self.now, channel, abort);
                }
                Some(gist::Output::Indication(indication)) => {
                    self.budget -= 1;
                    match &mut self.ping {
                        Some(ping) if ping.nslp() == indication.nslp() => {
                            ping.handle(self.now, ping::Input::Indication(indication));
                        }
                        _ if self.qos.as_ref().is_some_and(|qos| qos.config().is_ours(indication.nslp())) => {
                            if let Some(qos) = &mut self.qos {
                                qos.handle(self.now, qos::Input::Indication(indication), &mut self.resources);
                            }
                        }
                        _ => {
                            if let Some(event) = self.applications.event(&indication) {
                                return Some(Output::Event(event));
                            }
                        }
                    }
                }
                None => match self.ping.as_mut().and_then(Ping::poll) {
                    Some(ping::Output::Request(request)) => {
                        self.budget -= 1;
                        self.gist.handle(self.now, gist::Input::Request(request));
                    }
                    Some(ping::Output::RouteLookup { id, query }) => {
                        let id = self.lookup(Waiting::Ping(id));
                        return Some(Output::RouteLookup { id, query });
                    }
                    Some(ping::Output::Event { id, event }) => {
                        return Some(Output::Event(Event::Ping { id, event }));
                    }
                    None => match self.qos.as_mut().and_then(Qos::poll) {
                        Some(qos::Output::Request(request)) => {
                            self.budget -= 1;
                            self.gist.handle(self.now, gist::Input::Request(request));
                        }
                        Some(qos::Output::RouteLookup { id, query }) => {
                            let id = self.lookup(Waiting::Qos(id));
                            return Some(Output::RouteLookup { id, query });
                        }
                        Some(qos::Output::Event { id, event }) => {
                            return Some(Output::Event(Event::Qos { id, event: Box::new(event) }));
                        }
                        None => match self.rsvp.as_mut().and_then(Rsvp::poll) {
                            Some(rsvp::Output::Send(packet)) => {
                                self.given.clear();
                                self.given.extend_from_slice(packet.payload);
                                return Some(Output::Rsvp(IpTransmit { payload: &self.given, ..packet }));
                            }
                            Some(rsvp::Output::Reply { src, dst, tos, payload }) => {
                                self.given.clear();
                                self.given.extend_from_slice(payload);
                                return Some(Output::Transmit(Transmit {
                                    src,
                                    dst,
                                    ifindex: None,
                                    ttl: 64,
                                    tos,
                                    dont_fragment: false,
                                    flow_label: 0,
                                    options: &[],
                                    payload: &self.given,
                                }));
                            }
                            Some(rsvp::Output::RouteLookup { id, query }) => {
                                let id = self.lookup(Waiting::Rsvp(id));
                                return Some(Output::RouteLookup { id, query });
                            }
                            Some(rsvp::Output::MulticastLookup { group, source }) => {
                                return Some(Output::MulticastLookup { group, source });
                            }
                            Some(rsvp::Output::Event { id, event }) => {
                                return Some(Output::Event(Event::Rsvp { id, event: Box::new(event) }));
                            }
                            None if self.channels.flush() => {}
                            None => return None,
                        },
                    },
                },
            }
        }
        None
    }

    fn next_deadline(&self) -> Option<Time> {
        if self.budget == 0 {
            return Some(self.now);
        }
        let ping = self.ping.as_ref().and_then(Ping::next_deadline);
        let qos = self.qos.as_ref().and_then(Qos::next_deadline);
        let rsvp = self.rsvp.as_ref().and_then(Rsvp::next_deadline);
        let others = [self.gist.next_deadline(), self.channels.next_deadline(), rsvp];
        others.into_iter().chain([ping, qos]).flatten().min()
    }
}
