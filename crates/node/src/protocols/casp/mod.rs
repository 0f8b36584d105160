//! CASP (draft-schulzrinne-nsis-casp-01): the messaging layer, its connections, and the clients of this node.

mod channels;
mod config;
mod discovery;
pub(crate) mod dns;
mod drive;
mod external_clients;
mod flow;
mod lookups;
mod passages;
mod pings;
mod reservations;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet};

use signalbox_casp::clients::natfw::{self, NatfwClient};
use signalbox_casp::clients::ping::PingClient;
use signalbox_casp::clients::qos::{self, PROTOCOL, QosClient};
use signalbox_casp::engine::{self as casp, Casp, Input, Output as Out, OwnedRequest};
use signalbox_casp::wire::ClientType;
use signalbox_core::handover::Entries;
use signalbox_core::metrics::{Gauge, PEERS, SESSIONS, Subsystem};
use signalbox_core::node::{Interface, Output, Prefix, RouteQuery, StreamId};
use signalbox_core::packet::Received;
use signalbox_core::pinhole::{OpenerId, PinholeId};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{Changes, Counter, Entry, EntryRequest, IfIndex, SessionChange, SessionId, Time};

pub use self::config::CaspConfig;
pub use self::dns::{DNS, DnsConfig, is_domain};
pub use self::external_clients::{ClientEvent, RegisterError};
pub use self::passages::{OpenRequest, PassageEnd, PassageEvent, PassageFailure, PassageRefusal};
pub use self::pings::{Lost, MIN_INTERVAL, PingRefusal, PingRequest, SeriesEvent};
pub use self::reservations::{
    PathAmount, ReservationEvent, ReserveFailure, ReserveRefusal, ReserveRequest, Reserved, ServiceRate,
};

pub(super) use self::config::CaspConfig as Config;

use self::dns::Dns;
use self::external_clients::ExternalClients;
use self::lookups::LookupPurpose;
use self::passages::{Passages, Work};
use self::pings::Pings;
use self::reservations::Reservations;
use crate::channels::{Channels, SCTP, Transport};
use crate::config::ConfigError;
use crate::protocol::{
    self, Composed, Context, GrantInput, Needs, Next, Owners, Protocol, ProtocolLookups, Restart, Setup, Size,
};

/// What a user asks CASP.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Command {
    /// Sends pings. The answer is a series of [`SeriesEvent`].
    Ping(PingRequest),
    /// Reserves for a flow. The answer is a series of [`ReservationEvent`].
    Reserve(Box<ReserveRequest>),
    /// Asks what a path could reserve.
    Query(Box<ReserveRequest>),
    /// Asks for another amount for a reservation that stands.
    Change(Reserved),
    /// Opens firewalls for a flow of this host. The answer is a series of [`PassageEvent`].
    Open(Box<OpenRequest>),
    /// Answers senders that ask for these packets. The answer is a series of [`PassageEvent`].
    Accept(FlowFilter),
    /// An administrator ends a session of the client for firewalls at this node.
    Delete(SessionId),
    /// A client in another process registers. The answer is a [`ClientEvent`].
    Register {
        /// Its number, from 1 to 253.
        client: u8,
        /// It takes messages without state too.
        #[cfg_attr(feature = "serde", serde(default))]
        stateless: bool,
    },
    /// A request of a registered client.
    Request(OwnedRequest),
    /// The user no longer wants what it asked for: its pings stop, its reservation is released, its passage is closed, and it is
    /// a client no longer.
    Close,
}

/// What CASP reports to a user.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Event {
    /// Of pings.
    Ping(SeriesEvent),
    /// Of a reservation or a query.
    Reservation(ReservationEvent),
    /// Of a passage.
    Passage(PassageEvent),
    /// Of a client in another process.
    Client(ClientEvent),
}

/// The answer to who asks for a reservation where there is no QoS client.
const NOT_RESERVING: Event = Event::Reservation(ReservationEvent::Refused(ReserveRefusal::NotRunning));

/// The answer to who asks for a passage where there is no client for firewalls.
const NOT_OPENING: Event = Event::Passage(PassageEvent::Refused(PassageRefusal::NotRunning));

/// CASP, as the node runs it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Casp,
    channels: Channels,
    wall_clock_us: u64,
    ping: PingClient,
    pings: Pings,
    /// `None`: the node has no QoS client.
    reservations: Option<Reservations>,
    /// `None`: the node has no client for firewalls.
    passages: Option<Passages>,
    /// Who asked for what the node has no client for, and the answer.
    refused: Vec<(u64, Event)>,
    external_clients: ExternalClients,
    /// Route lookups that are not answered.
    lookup_purposes: BTreeMap<u64, LookupPurpose>,
    /// Those that the driver was not given yet.
    lookups: Vec<(u64, RouteQuery)>,
    next_lookup: u64,
    /// Interfaces that are up.
    up: BTreeSet<IfIndex>,
    /// Connections whose source address is looked up.
    opening: BTreeMap<StreamId, (Transport, SocketAddr)>,
    /// Connections of this node that are not established, with their peers.
    dialing: BTreeMap<StreamId, IpAddr>,
    dns: Dns,
}

impl Instance {
    /// The client for firewalls, if the node has it.
    pub(crate) fn passages(&self) -> Option<&NatfwClient> {
        self.passages.as_ref().map(|passages| &passages.client)
    }

    fn open(&mut self, now: Time, stream: StreamId, transport: Transport, local: IpAddr, peer: SocketAddr) {
        self.channels.open(now, stream, transport, [local, peer.ip()], peer.port(), &mut self.engine);
    }

    /// Begins a reservation or a query of a user.
    fn start(&mut self, cx: &mut Context<'_>, id: u64, query: bool, request: ReserveRequest) {
        match &mut self.reservations {
            Some(reservations) => {
                if let Some(dst) = reservations.start(cx.now, id, query, request, cx.resources) {
                    self.look_up(RouteQuery::to(dst), LookupPurpose::Reservation(id));
                }
            }
            None => self.refused.push((id, NOT_RESERVING)),
        }
    }

    /// Begins a passage of a user.
    fn open_passage(&mut self, now: Time, id: u64, request: OpenRequest) {
        match &mut self.passages {
            Some(passages) => {
                if let Some(dst) = passages.start(now, id, request) {
                    self.look_up(RouteQuery::to(dst), LookupPurpose::Passage(id));
                }
            }
            None => self.refused.push((id, NOT_OPENING)),
        }
    }

    fn timer(&mut self, cx: &mut Context<'_>) {
        self.channels.timer(cx.now, &mut self.engine);
        self.dns.timer(cx.now, &mut self.channels.out);
        self.after_dns(cx.now);
        self.ping.timer(cx.now);
        self.pings.timer(cx.now, &mut self.ping);
        if let Some(reservations) = &mut self.reservations {
            reservations.client.timer(cx.now, cx.resources);
        }
        if let Some(passages) = &mut self.passages {
            passages.client.timer(cx.now, cx.resources);
        }
        self.engine.handle(cx.now, Input::Timer);
    }

    fn interfaces(&mut self, now: Time, interfaces: &[Interface]) {
        self.channels.listen();
        self.ping.interfaces(interfaces);
        self.dns.set_own(interfaces.iter().flat_map(|one| one.addresses.iter().copied()).collect());
        if let Some(reservations) = &mut self.reservations {
            reservations.interfaces(interfaces);
        }
        if let Some(passages) = &mut self.passages {
            passages.interfaces(interfaces);
        }
        self.find_sources();
        self.engine.handle(now, Input::Interfaces(interfaces));
        self.channels.interfaces(now, interfaces, &mut self.engine);
        let (opening, channels) = (&self.opening, &self.channels);
        self.dialing.retain(|stream, _| opening.contains_key(stream) || channels.has(*stream));
        // The kernel does not report the routes that disappear with a link.
        let up = interfaces.iter().filter(|one| one.up).map(|one| one.ifindex).collect();
        if !core::mem::replace(&mut self.up, up).is_subset(&self.up) {
            for addr in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
                self.engine.handle(now, Input::RouteChanged(Prefix { addr, len: 0 }));
            }
        }
    }

    fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.wall_clock_us = wall_clock_us;
        self.ping.set_wall_clock(wall_clock_us);
        if let Some(reservations) = &mut self.reservations {
            reservations.client.set_wall_clock(wall_clock_us);
        }
        if let Some(passages) = &mut self.passages {
            passages.client.set_wall_clock(wall_clock_us);
        }
        self.channels.set_wall_clock(wall_clock_us);
    }
}

impl Protocol for Instance {
    fn handle(&mut self, cx: &mut Context<'_>, input: protocol::Input<'_>) {
        let now = cx.now;
        match input {
            protocol::Input::Timer => self.timer(cx),
            protocol::Input::Interfaces(interfaces) => self.interfaces(now, interfaces),
            protocol::Input::WallClock(wall_clock_us) => self.set_wall_clock(wall_clock_us),
            protocol::Input::Rules => {
                if let Some(passages) = &mut self.passages {
                    passages.client.rules_changed(now);
                }
            }
            protocol::Input::Packet(packet) if packet.entry == SCTP => {
                if !packet.dst.ip().is_multicast() && packet.dst.ip() != IpAddr::V4(Ipv4Addr::BROADCAST) {
                    self.channels.sctp_packet(now, packet, &mut self.engine);
                }
            }
            protocol::Input::Packet(packet) => self.engine.handle(now, Input::Packet(packet)),
            protocol::Input::Undeliverable { quoted } => {
                self.engine.handle(now, Input::Unreachable { quoted })
            }
            protocol::Input::Route { id, result } => match self.lookup_purposes.remove(&id) {
                Some(purpose) => self.answered(cx, purpose, result),
                None => self.engine.handle(now, Input::Route { id, result }),
            },
            protocol::Input::RouteChanged(prefix) => {
                self.find_sources();
                self.engine.handle(now, Input::RouteChanged(prefix));
            }
            protocol::Input::NeighborMoved { ifindex, address } => {
                self.engine.handle(now, Input::NeighborMoved { ifindex, address });
            }
            protocol::Input::Stream(input) => self.stream(now, input),
            protocol::Input::Grant(GrantInput::Lost { key, .. }) => {
                if let Some(reservations) = &mut self.reservations {
                    reservations.client.lost(now, key, cx.resources);
                }
            }
            protocol::Input::PinholeOpened { id, result } => {
                if let Some(passages) = &mut self.passages {
                    passages.client.opened(now, id, result, cx.resources);
                }
            }
            protocol::Input::Handover(entries) => {
                if let Some(passages) = &mut self.passages {
                    passages.client.take_over(now, entries);
                }
            }
            // The client never marks a request as reducible, so no part of a grant is taken.
            protocol::Input::Grant(GrantInput::Reduced { .. })
            | protocol::Input::LinkSpeeds(_)
            | protocol::Input::TransmitFailed { .. }
            | protocol::Input::Multicast(_)
            | protocol::Input::FlowFound { .. }
            | protocol::Input::Indication(_)
            | protocol::Input::Request(_)
            | protocol::Input::HostRequest { .. }
            | protocol::Input::HostEvent { .. }
            | protocol::Input::Stop { .. } => {}
        }
    }

    fn prepare(&self, _: &[(Entry, &[u8])]) -> bool {
        false
    }

    fn owners(&self) -> Owners {
        Owners { reserver: Some(PROTOCOL), opener: Some(OpenerId::CASP) }
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    /// It never answers [`Next::Gist`].
    fn pass(&mut self, _: &mut Context<'_>, _: &mut dyn Protocol) {}

    /// A packet of SCTP that is not for CASP is GIST's, which answers those of no association, too (RFC 9260 §8.4).
    fn takes(&self, _: Time, packet: &Received<'_>) -> bool {
        packet.entry != SCTP || self.channels.takes_sctp(packet)
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Option<Next> {
        if self.pings.has_event()
            || !self.refused.is_empty()
            || self.reservations.as_ref().is_some_and(Reservations::has_event)
            || self.passages.as_ref().is_some_and(Passages::is_ready)
            || self.external_clients.has_event()
            || !self.lookups.is_empty()
            || !self.channels.out.is_empty()
        {
            return Some(Next::Driver);
        }
        match self.engine.next() {
            Some(casp::Next::Driver) => return Some(Next::Driver),
            Some(casp::Next::Write(stream)) if self.channels.is_plain(stream) => return Some(Next::Driver),
            Some(casp::Next::Write(_) | casp::Next::Stream) => self.drive_stream(cx.now),
            Some(casp::Next::Client(_)) => self.drive_client(cx),
            Some(casp::Next::Discover) => {
                if let Some(Out::Discover { id, mechanism, dst }) = self.engine.poll() {
                    self.discover(cx.now, id, mechanism, dst);
                }
            }
            None if self.drive_requests(cx) || self.external_clients.give_up(cx.now, &mut self.engine) => {}
            None => return None,
        }
        Some(Next::Worked)
    }

    fn flush(&mut self) -> bool {
        self.channels.flush()
    }

    fn next_deadline(&self) -> Option<Time> {
        let all = [
            self.engine.next_deadline(),
            self.channels.next_deadline(),
            self.dns.next_deadline(),
            self.ping.next_deadline(),
            self.pings.next_deadline(),
            self.reservations.as_ref().and_then(|one| one.client.next_deadline()),
            self.passages.as_ref().and_then(|one| one.client.next_deadline()),
        ];
        all.into_iter().flatten().min()
    }

    fn size(&self) -> Size {
        Size { sessions: self.engine.session_count(), peers: Some(self.engine.peer_count()) }
    }

    fn changes(&mut self) -> Option<&mut Changes<SessionChange>> {
        Some(self.engine.changes())
    }

    fn counters(&self, to: &mut Vec<Counter>) {
        to.extend(self.engine.counters().iter().map(Counter::of(Subsystem::protocol("casp"))));
        let qos = self.reservations.iter().flat_map(|one| one.client.counters().iter());
        to.extend(qos.map(Counter::of(Subsystem::protocol("casp_qos"))));
        let natfw = self.passages.iter().flat_map(|one| one.client.counters().iter());
        to.extend(natfw.map(Counter::of(Subsystem::protocol("casp_natfw"))));
        to.extend(self.channels.counters.iter().map(Counter::of(Subsystem::part("casp_channels", "casp"))));
        to.extend(self.dns.counters.iter().map(Counter::of(Subsystem::part("casp_dns", "casp"))));
        self.channels.count_sctp(to);
    }

    fn gauges(&self, to: &mut Vec<Gauge>) {
        to.push(Gauge::new(&SESSIONS, &["casp"], self.engine.session_count().into()));
        to.push(Gauge::new(&PEERS, &["casp"], self.engine.peer_count().into()));
        to.extend(self.engine.tables().into_iter().flat_map(|table| Gauge::table("casp", table)));
    }
}

impl Restart for Instance {
    fn hand_over(&self, now: Time, to: &mut Entries) {
        if let Some(passages) = &self.passages {
            passages.client.hand_over(now, to);
        }
    }

    fn leaves(&self, _: PinholeId) -> bool {
        false
    }

    fn record_stop(&self, cx: &mut Context<'_>, from: u32, _left: bool) -> Option<u32> {
        self.passages()?.record_stop(from, cx.resources)
    }
}

impl Composed for Instance {
    const NAME: &'static str = "casp";

    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        config.validated()
    }

    /// UDP ports of messages and of scout, and SCTP, unless the kernel has it. GIST can have SCTP too.
    fn needs(config: &Config) -> Needs {
        let mut entries = Casp::entries(&config.engine).to_vec();
        if config.sctp && !config.channels.kernel_sctp {
            let entry = EntryRequest::local(SCTP, Subsystem::part("sctp_io", "sctp"));
            entries.push(EntryRequest { shared: true, ..entry });
        }
        Needs { applications: Vec::new(), ports: config.ports().listening(), entries }
    }

    fn new(config: Config, setup: &mut Setup) -> Result<Self, ConfigError> {
        let ports = config.ports();
        let Config { mut engine, channels, sctp: _, qos, natfw, dns } = config;
        engine.clients.insert(ClientType::PING.0);
        // The other clients of this process have state that ends with the session.
        engine.stateless_clients = [ClientType::PING.0].into();
        engine.clients.extend(qos.as_ref().map(|_| ClientType::QOS.0));
        engine.clients.extend(natfw.as_ref().map(|_| ClientType::NATFW.0));
        let role = natfw.as_ref().map(|natfw| natfw.role).filter(|role| role.opens());
        let lifetime = engine.lifetime();
        let (private_flows, proxy) = (engine.private_flows, !engine.proxy.is_empty());
        let reservations = qos.map(|qos| {
            let wall_clock_us = setup.wall_clock_us;
            let protected = engine.protected.clone();
            let config = qos::Config { proxy, lifetime, protected, wall_clock_us, ..qos };
            Reservations::new(QosClient::new(config, setup.rng.array()), private_flows)
        });
        let passages = natfw.map(|natfw| {
            let wall_clock_us = setup.wall_clock_us;
            let config = natfw::Config { lifetime, wall_clock_us, ..natfw };
            Passages::new(NatfwClient::new(config, setup.rng.array()), private_flows)
        });
        let tls = channels.tls.as_ref().map(|tls| tls.load(setup.wall_clock_us)).transpose()?;
        // A node without it draws what it drew before, so that recordings replay.
        let seed = if dns.domains.is_empty() { [0; 32] } else { setup.rng.array() };
        let dns = Dns::new(&dns, &engine, seed);
        let mut engine = Casp::new(engine, setup.rng.array())?;
        if let Some(role) = role {
            engine.set_opener(ClientType::NATFW, role == natfw::Role::Nat);
        }
        let mut ping = PingClient::new(setup.rng.array());
        ping.set_wall_clock(setup.wall_clock_us);
        Ok(Self {
            engine,
            channels: Channels::new(channels, tls, ports, &setup.ports, 0, setup.rng.array()),
            wall_clock_us: setup.wall_clock_us,
            ping,
            pings: Pings::default(),
            reservations,
            passages,
            refused: Vec::new(),
            external_clients: ExternalClients::default(),
            lookup_purposes: BTreeMap::new(),
            lookups: Vec::new(),
            next_lookup: 0,
            up: BTreeSet::new(),
            opening: BTreeMap::new(),
            dialing: BTreeMap::new(),
            dns,
        })
    }

    fn reload(&mut self, now: Time, config: Config) {
        if let Err(error) = self.engine.set_limits(now, &config.engine) {
            tracing::warn!(%error, "limits of CASP ignored");
        }
        if let (Some(reservations), Some(qos)) = (&mut self.reservations, &config.qos) {
            reservations.client.set_limits(qos);
        }
        self.channels.reload(config.channels.tls.as_ref(), self.wall_clock_us);
    }

    fn command(&mut self, cx: &mut Context<'_>, id: u64, command: Command) {
        match command {
            Command::Ping(request) => {
                if let Some(dst) = self.pings.start(cx.now, id, request, &mut self.ping) {
                    self.look_up(RouteQuery::to(dst), LookupPurpose::Ping(id));
                }
            }
            Command::Reserve(request) => self.start(cx, id, false, *request),
            Command::Query(request) => self.start(cx, id, true, *request),
            Command::Change(wanted) => {
                if let Some(reservations) = &mut self.reservations {
                    reservations.change(cx.now, id, &wanted, cx.resources);
                }
            }
            Command::Open(request) => self.open_passage(cx.now, id, *request),
            Command::Accept(packets) => match &mut self.passages {
                Some(passages) => passages.accept(cx.now, id, packets),
                None => self.refused.push((id, NOT_OPENING)),
            },
            Command::Delete(session) => {
                if let Some(passages) = &mut self.passages {
                    passages.delete(cx.now, session, cx.resources);
                }
            }
            Command::Register { client, stateless } => {
                self.external_clients.register(id, client, stateless, &mut self.engine);
            }
            Command::Request(request) => {
                self.external_clients.request(cx.now, id, &request, &mut self.engine)
            }
            Command::Close => {
                self.pings.stop(id);
                if let Some(reservations) = &mut self.reservations {
                    reservations.close(cx.now, id, cx.resources);
                }
                if let Some(passages) = &mut self.passages {
                    passages.close(cx.now, id, cx.resources);
                }
                self.external_clients.leave(id, &mut self.engine);
            }
        }
    }

    fn poll<E>(
        &mut self,
        lookups: ProtocolLookups<'_>,
        event: impl FnOnce(u64, Event) -> E,
    ) -> Option<Output<'_, E>> {
        if let Some((id, of)) = self.pings.take_event() {
            return Some(Output::Event(event(id, Event::Ping(of))));
        }
        if let Some((id, of)) = self.reservations.as_mut().and_then(Reservations::take_event) {
            return Some(Output::Event(event(id, Event::Reservation(of))));
        }
        if let Some((id, of)) = self.passages.as_mut().and_then(Passages::take_event) {
            return Some(Output::Event(event(id, Event::Passage(of))));
        }
        match self.passages.as_mut().and_then(Passages::take_work) {
            Some(Work::Open(id, pinhole, lifetime)) => {
                return Some(Output::OpenPinhole { id, pinhole, lifetime });
            }
            Some(Work::Close(id)) => return Some(Output::ClosePinhole { id }),
            None => {}
        }
        if let Some((id, of)) = self.refused.pop() {
            return Some(Output::Event(event(id, of)));
        }
        if let Some((id, of)) = self.external_clients.take_event() {
            return Some(Output::Event(event(id, Event::Client(of))));
        }
        if let Some((id, query)) = self.lookups.pop() {
            return Some(Output::RouteLookup { id: lookups.put(id), query });
        }
        if !self.channels.out.is_empty() {
            let request = self.channels.out.pop()?;
            return Some(self.channels.out.output(request));
        }
        Some(match self.engine.poll()? {
            Out::Send(packet) => Output::Transmit(packet),
            Out::RouteLookup { id, query } => Output::RouteLookup { id: lookups.put(id), query },
            // Of a plain TCP connection: the octets are the stream's as they are.
            Out::Write { stream, octets } => Output::StreamWrite { stream, octets },
            Out::Discover { .. } | Out::Open { .. } | Out::Close { .. } | Out::Indication { .. } => {
                debug_assert!(false, "it is not the driver's");
                return None;
            }
        })
    }

    fn not_running(command: &Command) -> Option<Event> {
        match command {
            Command::Ping(_) => Some(Event::Ping(SeriesEvent::Refused(PingRefusal::NotRunning))),
            Command::Reserve(_) | Command::Query(_) => Some(NOT_RESERVING),
            Command::Open(_) | Command::Accept(_) => Some(NOT_OPENING),
            Command::Register { .. } => Some(Event::Client(ClientEvent::Refused(RegisterError::NotRunning))),
            Command::Change(_) | Command::Delete(_) | Command::Request(_) | Command::Close => None,
        }
    }
}
