//! CASP (draft-schulzrinne-nsis-casp-01): the messaging layer, its connections, and the clients of this node.

mod channels;
mod config;
mod outside;
mod pings;

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::collections::BTreeMap;

use signalbox_casp::clients::ping::{PingClient, PingOutput};
use signalbox_casp::engine::{self as casp, Casp, Input, Output as Out, OwnedRequest};
use signalbox_casp::wire::ClientType;
use signalbox_core::metrics::{Gauge, PEERS, SESSIONS, Subsystem};
use signalbox_core::node::{Interface, NoRoute, Output, Prefix, Route, RouteQuery, StreamId};
use signalbox_core::packet::Received;
use signalbox_core::{Changes, Counter, EntryRequest, SessionChange, Time};

pub use self::config::CaspConfig;
pub use self::outside::{ClientEvent, RegisterError};
pub use self::pings::{Lost, MIN_INTERVAL, PingRefusal, PingRequest, SeriesEvent};

pub(super) use self::config::CaspConfig as Config;

use self::outside::Outside;
use self::pings::Pings;
use crate::channels::{Channels, SCTP, Transport};
use crate::config::ConfigError;
use crate::protocol::{Composed, Context, Next, Protocol, Setup, Size, StreamInput};
use crate::routes::LookupsOf;

/// The bit of an identifier of a route lookup that the instance made; the engine's have it clear.
const OWN: u64 = 1 << 63;

/// What a user asks CASP.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Command {
    /// Sends pings. The answer is a series of [`SeriesEvent`].
    Ping(PingRequest),
    /// A client in another process registers. The answer is a [`ClientEvent`].
    Register {
        /// Its number, from 1 to 253.
        client: u8,
    },
    /// A request of a registered client.
    Request(OwnedRequest),
    /// The user no longer wants what it asked for: its pings stop, and it is a client no longer.
    Close,
}

/// What CASP reports to a user.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Event {
    /// Of pings.
    Ping(SeriesEvent),
    /// Of a client in another process.
    Client(ClientEvent),
}

/// What a route lookup of the instance is for.
#[derive(Debug, Clone, Copy)]
enum Asked {
    /// The source address of a series of pings.
    Ping(u64),
    /// The source address of a connection.
    Connection(StreamId),
}

/// CASP, as the node runs it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Casp,
    channels: Channels,
    ping: PingClient,
    pings: Pings,
    outside: Outside,
    /// Route lookups that are not answered.
    asked: BTreeMap<u64, Asked>,
    /// Those that the driver was not given yet.
    lookups: Vec<(u64, IpAddr)>,
    next_lookup: u64,
    /// Connections whose source address is looked up.
    opening: BTreeMap<StreamId, (Transport, SocketAddr)>,
}

impl Instance {
    fn look_up(&mut self, dst: IpAddr, what: Asked) {
        let id = OWN | self.next_lookup;
        self.next_lookup = (self.next_lookup + 1) & !OWN;
        self.asked.insert(id, what);
        self.lookups.push((id, dst));
    }

    /// The answer to a lookup of the instance.
    fn answered(&mut self, now: Time, what: Asked, result: Result<Route, NoRoute>) {
        match what {
            Asked::Ping(id) => {
                let src = result.map(|route| route.src).map_err(|_| PingRefusal::NoRoute);
                self.pings.route(now, id, src, &mut self.ping);
            }
            Asked::Connection(stream) => {
                let Some((transport, peer)) = self.opening.remove(&stream) else { return };
                match result {
                    Ok(route) => self.open(now, stream, transport, route.src, peer),
                    Err(_) => self.engine.handle(now, Input::Closed { stream }),
                }
            }
        }
    }

    fn open(&mut self, now: Time, stream: StreamId, transport: Transport, local: IpAddr, peer: SocketAddr) {
        self.channels.open(now, stream, transport, [local, peer.ip()], peer.port(), &mut self.engine);
    }

    /// Does what the engine asks of the streams next.
    fn drive_stream(&mut self, now: Time) {
        match self.engine.poll() {
            Some(Out::Open { stream, transport, local, peer }) => {
                let transport = channels::below(transport);
                match local {
                    Some(local) => self.open(now, stream, transport, local, peer),
                    None => {
                        self.opening.insert(stream, (transport, peer));
                        self.look_up(peer.ip(), Asked::Connection(stream));
                    }
                }
            }
            Some(Out::Write { stream, octets }) => {
                let sent = self.channels.send(now, stream, (0, None), octets);
                self.channels.after_send(now, stream, sent, &mut self.engine);
            }
            Some(Out::Close { stream }) => {
                self.opening.remove(&stream);
                self.channels.close(now, stream, false);
            }
            Some(Out::Send(_) | Out::RouteLookup { .. } | Out::Discover { .. } | Out::Indication { .. })
            | None => debug_assert!(false, "the engine gives another output than it announced"),
        }
    }

    /// Gives the next indication to its client.
    fn drive_client(&mut self, now: Time) {
        let Self { engine, ping, outside, .. } = self;
        match engine.poll() {
            Some(Out::Indication { client: ClientType::PING, indication }) => {
                ping.indication(now, &indication);
            }
            Some(Out::Indication { client, indication }) => outside.indication(client, &indication),
            Some(
                Out::Send(_)
                | Out::RouteLookup { .. }
                | Out::Discover { .. }
                | Out::Open { .. }
                | Out::Write { .. }
                | Out::Close { .. },
            )
            | None => debug_assert!(false, "the engine gives another output than it announced"),
        }
    }

    /// Takes one output of the clients. False if there was none.
    fn drive_requests(&mut self, now: Time) -> bool {
        let Self { engine, ping, pings, .. } = self;
        match ping.poll() {
            Some(PingOutput::Request(request)) => {
                engine.handle(now, Input::Request { client: ClientType::PING, request });
            }
            Some(PingOutput::Event { id, event }) => pings.event(id, event),
            None => return false,
        }
        true
    }
}

impl Protocol for Instance {
    fn timer(&mut self, cx: &mut Context<'_>) {
        self.channels.timer(cx.now, &mut self.engine);
        self.ping.timer(cx.now);
        self.pings.timer(cx.now, &mut self.ping);
        self.engine.handle(cx.now, Input::Timer);
    }

    fn interfaces(&mut self, cx: &mut Context<'_>, interfaces: &[Interface]) {
        self.channels.listen();
        self.ping.interfaces(interfaces);
        self.engine.handle(cx.now, Input::Interfaces(interfaces));
    }

    fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.ping.set_wall_clock(wall_clock_us);
        self.channels.set_wall_clock(wall_clock_us);
    }

    fn packet(&mut self, cx: &mut Context<'_>, packet: Received<'_>) {
        if packet.entry == SCTP {
            if !packet.dst.ip().is_multicast() && packet.dst.ip() != IpAddr::V4(Ipv4Addr::BROADCAST) {
                let ends = [packet.src.ip(), packet.dst.ip()];
                self.channels.sctp_packet(cx.now, ends, packet.payload, &mut self.engine);
            }
            return;
        }
        self.engine.handle(cx.now, Input::Packet(packet));
    }

    fn route(&mut self, cx: &mut Context<'_>, id: u64, result: Result<Route, NoRoute>) {
        match self.asked.remove(&id) {
            Some(what) => self.answered(cx.now, what, result),
            None => self.engine.handle(cx.now, Input::Route { id, result }),
        }
    }

    fn route_changed(&mut self, cx: &mut Context<'_>, prefix: Prefix) {
        self.engine.handle(cx.now, Input::RouteChanged(prefix));
    }

    fn stream(&mut self, cx: &mut Context<'_>, input: StreamInput<'_>) {
        let (now, Self { engine, channels, .. }) = (cx.now, self);
        match input {
            StreamInput::Accepted { stream, kind, local, peer } => {
                channels.accepted(now, (stream, kind), local, peer, engine);
            }
            StreamInput::Connected { stream } => channels.connected(now, stream, engine),
            StreamInput::Octets { stream, octets } => channels.octets(now, stream, octets, engine),
            StreamInput::Drained { stream, unsent } => channels.drained(now, stream, unsent, engine),
            StreamInput::Closed { stream, error, unacknowledged } => {
                channels.closed(now, stream, error, unacknowledged, engine);
            }
            StreamInput::ListenFailed { kind, port } => channels.listen_failed(now, (kind, port), engine),
        }
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Option<Next> {
        if self.pings.has_event()
            || self.outside.has_event()
            || !self.lookups.is_empty()
            || !self.channels.out.is_empty()
        {
            return Some(Next::Driver);
        }
        match self.engine.next() {
            Some(casp::Next::Driver) => return Some(Next::Driver),
            Some(casp::Next::Write(stream)) if self.channels.is_plain(stream) => return Some(Next::Driver),
            Some(casp::Next::Write(_) | casp::Next::Stream) => self.drive_stream(cx.now),
            Some(casp::Next::Client(_)) => self.drive_client(cx.now),
            Some(casp::Next::Discover) => {
                if let Some(Out::Discover { id, .. }) = self.engine.poll() {
                    self.engine.handle(cx.now, Input::Discovered { id, address: None });
                }
            }
            None if self.drive_requests(cx.now) || self.outside.give_up(cx.now, &mut self.engine) => {}
            None => return None,
        }
        Some(Next::Worked)
    }

    fn poll(&mut self, lookups: LookupsOf<'_>) -> Option<Output<'_, super::Event>> {
        if let Some((id, event)) = self.pings.take_event() {
            return Some(Output::Event(super::Event::Casp { id, event: Event::Ping(event) }));
        }
        if let Some((id, event)) = self.outside.take_event() {
            return Some(Output::Event(super::Event::Casp { id, event: Event::Client(event) }));
        }
        if let Some((id, dst)) = self.lookups.pop() {
            return Some(Output::RouteLookup { id: lookups.put(id), query: RouteQuery::to(dst) });
        }
        if !self.channels.out.is_empty() {
            let down = self.channels.out.pop()?;
            return Some(self.channels.out.output(down));
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

    fn flush(&mut self) -> bool {
        self.channels.flush()
    }

    fn next_deadline(&self) -> Option<Time> {
        let all = [
            self.engine.next_deadline(),
            self.channels.next_deadline(),
            self.ping.next_deadline(),
            self.pings.next_deadline(),
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
        to.extend(self.channels.counters.iter().map(Counter::of(Subsystem::part("casp_channels", "casp"))));
        let sctp = self.channels.sctp_counters().into_iter().flat_map(|counters| counters.iter());
        to.extend(sctp.map(Counter::of(Subsystem::protocol("sctp"))));
    }

    fn gauges(&self, to: &mut Vec<Gauge>) {
        to.push(Gauge::new(&SESSIONS, &["casp"], self.engine.session_count().into()));
        to.push(Gauge::new(&PEERS, &["casp"], self.engine.peer_count().into()));
        to.extend(self.engine.tables().into_iter().flat_map(|table| Gauge::table("casp", table)));
    }
}

impl Composed for Instance {
    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        config.validated()
    }

    /// UDP ports of messages and of scout, and SCTP, unless the kernel has it.
    fn entries(config: &Config) -> Vec<EntryRequest> {
        let mut entries = Casp::entries(&config.engine).to_vec();
        if config.sctp && !config.channels.kernel_sctp {
            entries.push(EntryRequest::local(SCTP, Subsystem::part("sctp_io", "sctp")));
        }
        entries
    }

    fn new(config: Config, setup: &mut Setup) -> Result<Self, ConfigError> {
        let ports = config.ports();
        let Config { mut engine, channels, sctp: _ } = config;
        engine.clients.insert(ClientType::PING.0);
        let tls = channels.tls.as_ref().map(|tls| tls.load(setup.wall_clock_us)).transpose()?;
        let engine = Casp::new(engine, setup.rng.array())?;
        let mut ping = PingClient::new(setup.rng.array());
        ping.set_wall_clock(setup.wall_clock_us);
        Ok(Self {
            engine,
            channels: Channels::new(channels, tls, ports, 0, setup.rng.array()),
            ping,
            pings: Pings::default(),
            outside: Outside::default(),
            asked: BTreeMap::new(),
            lookups: Vec::new(),
            next_lookup: 0,
            opening: BTreeMap::new(),
        })
    }

    fn command(&mut self, cx: &mut Context<'_>, id: u64, command: Command) {
        match command {
            Command::Ping(request) => {
                if let Some(dst) = self.pings.start(cx.now, id, request, &mut self.ping) {
                    self.look_up(dst, Asked::Ping(id));
                }
            }
            Command::Register { client } => self.outside.register(id, client, &mut self.engine),
            Command::Request(request) => self.outside.request(cx.now, id, &request, &mut self.engine),
            Command::Close => {
                self.pings.stop(id);
                self.outside.leave(id, &mut self.engine);
            }
        }
    }

    fn not_running(command: &Command) -> Option<Event> {
        match command {
            Command::Ping(_) => Some(Event::Ping(SeriesEvent::Refused(PingRefusal::NotRunning))),
            Command::Register { .. } => Some(Event::Client(ClientEvent::Refused(RegisterError::NotRunning))),
            Command::Request(_) | Command::Close => None,
        }
    }
}
