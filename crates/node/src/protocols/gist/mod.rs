//! GIST (RFC 5971): the engine, the channels of its messaging associations, and the signaling applications of other
//! processes, which are its users.

mod applications;
mod channels;
mod config;

use core::net::{IpAddr, Ipv4Addr};
use std::collections::VecDeque;

use signalbox_core::Counter;
use signalbox_core::handover::Entries;
use signalbox_core::metrics::{ASSOCIATIONS, Gauge, PEERS, SESSIONS, Subsystem};
use signalbox_core::node::{Interface, Output, StreamId};
use signalbox_core::packet::Received;
use signalbox_core::pinhole::PinholeId;
use signalbox_core::{
    AlertRule, Changes, Entry, EntryRequest, IfIndex, Intercept, Match, NslpId, SessionChange, Time,
};
use signalbox_gist::engine::{self as gist, Gist, Input, Output as Out};

pub use self::applications::{ApplicationCommand, ApplicationEvent, ApplicationView, RegisterError};
pub use self::config::GistConfig;

pub(super) use self::applications::{ApplicationCommand as Command, ApplicationEvent as Event};
pub(super) use self::config::GistConfig as Config;

use self::applications::Applications;
use crate::channels::{Channels, SCTP};
use crate::config::ConfigError;
use crate::protocol::{
    self, Composed, Context, Needs, Next, Owners, Protocol, ProtocolLookups, Restart, Setup, Size,
    StreamInput,
};

/// The UDP port of GIST (RFC 5971 §9).
const ENTRY: Entry = Entry::Udp(signalbox_gist::wire::PORT);

/// The C-flag in the common header, behind the magic number (RFC 5971 A.1). Q-mode packets have it.
const C_FLAG: Match = Match { offset: 8, mask: 0x8000, value: 0x8000 };

/// GIST, as the node runs it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Gist,
    pub(crate) channels: Channels,
    pub(crate) applications: Applications,
    /// Microseconds since 1970 at [`Time::ZERO`].
    wall_clock_us: u64,
    /// Numbers of the signaling applications that run inside of the node.
    inside: Vec<NslpId>,
    /// Events for applications outside, with the identifiers of these.
    events: VecDeque<(u64, ApplicationEvent)>,
}

/// Whether packets to this address are for more than one node; an SCTP packet must not be (RFC 9260 §8.4).
fn is_group(addr: IpAddr) -> bool {
    addr.is_multicast() || addr == IpAddr::V4(Ipv4Addr::BROADCAST)
}

impl Instance {
    /// Who takes an output that concerns channels or an application outside of the node; `None`: it is done with.
    #[inline(never)]
    fn next_outside(&mut self, now: Time, next: gist::Next) -> Option<Next> {
        match next {
            gist::Next::Driver => return Some(Next::Driver),
            gist::Next::Application(nslp) if self.applications.contains(nslp) => return Some(Next::Driver),
            gist::Next::Application(nslp) => {
                tracing::debug!(nslp = nslp.0, reason = "the application has left", "indication discarded");
                drop(self.engine.poll());
            }
            gist::Next::ChannelSend(channel) if self.channels.is_plain(StreamId(channel.0)) => {
                return Some(Next::Driver);
            }
            gist::Next::ChannelSend(_) | gist::Next::Channel => {
                if self.drive_channel(now) {
                    return Some(Next::Worked);
                }
            }
        }
        None
    }

    fn interfaces(&mut self, now: Time, interfaces: &[Interface]) {
        self.channels.listen();
        self.engine.handle(now, Input::Interfaces(interfaces));
        self.channels.interfaces(now, interfaces, &mut self.engine);
    }

    /// The D-mode rate follows the slowest link. What the configuration says of a link counts, not its kernel's speed.
    fn link_speeds(&mut self, cx: &Context<'_>, speeds: &[(IfIndex, u64)]) {
        let of_kernel = speeds.iter().filter(|(ifindex, _)| cx.resources.is_measured(*ifindex));
        let slowest = of_kernel.map(|(_, speed)| *speed).chain(cx.resources.slowest_declared()).min();
        self.engine.slowest_link(cx.now, slowest.unwrap_or(0));
    }

    fn stream(&mut self, now: Time, input: StreamInput<'_>) {
        let Self { engine, channels, .. } = self;
        match input {
            StreamInput::Accepted { stream, kind, local, peer } => {
                channels.accepted(now, (stream, kind), local, peer, engine);
            }
            StreamInput::Connected { stream, local } => channels.connected(now, stream, local.ip(), engine),
            StreamInput::Octets { stream, octets } => channels.octets(now, stream, octets, engine),
            StreamInput::Drained { stream, unsent } => channels.drained(now, stream, unsent, engine),
            StreamInput::Closed { stream, error, unacknowledged } => {
                channels.closed(now, stream, error, unacknowledged, engine);
            }
            StreamInput::ListenFailed { kind, port } => channels.listen_failed(now, (kind, port), engine),
        }
    }

    /// Does what the engine asks of the channels next. True if it opened one.
    fn drive_channel(&mut self, now: Time) -> bool {
        let Self { engine, channels, .. } = self;
        match engine.poll() {
            Some(Out::ChannelOpen { channel, transport, local, peer }) => {
                let (transport, ends) = (channels::below(transport), [local, peer.ip()]);
                channels.open(now, StreamId(channel.0), transport, ends, peer.port(), engine);
                return true;
            }
            Some(Out::ChannelSend { channel, stream, lifetime, octets }) => {
                let sent = channels.send(now, StreamId(channel.0), (stream, lifetime), octets);
                channels.after_send(now, StreamId(channel.0), sent, engine);
            }
            Some(Out::ChannelRead { channel, on }) => channels.read(now, StreamId(channel.0), on, engine),
            Some(Out::ChannelClose { channel, abort }) => channels.close(now, StreamId(channel.0), abort),
            Some(Out::Transmit(_) | Out::RouteLookup { .. } | Out::Indication(_)) | None => {
                debug_assert!(false, "the engine gives another output than it announced");
            }
        }
        false
    }
}

impl Protocol for Instance {
    #[inline]
    fn handle(&mut self, cx: &mut Context<'_>, input: protocol::Input<'_>) {
        let now = cx.now;
        let input = match input {
            protocol::Input::Timer => {
                self.channels.timer(now, &mut self.engine);
                Input::Timer
            }
            protocol::Input::Interfaces(interfaces) => return self.interfaces(now, interfaces),
            protocol::Input::WallClock(wall_clock_us) => {
                self.wall_clock_us = wall_clock_us;
                return self.channels.set_wall_clock(wall_clock_us);
            }
            protocol::Input::LinkSpeeds(speeds) => return self.link_speeds(cx, speeds),
            protocol::Input::Packet(packet) if packet.entry == ENTRY => Input::Datagram(packet),
            protocol::Input::Packet(packet) => {
                if packet.entry == SCTP && !is_group(packet.dst.ip()) {
                    self.channels.sctp_packet(now, packet, &mut self.engine);
                }
                return;
            }
            protocol::Input::TransmitFailed { entry, dst, error } if entry == ENTRY => {
                Input::TransmitFailed { dst, error }
            }
            protocol::Input::Route { id, result } => Input::Route { id, result },
            protocol::Input::RouteChanged(prefix) => Input::RouteChanged(prefix),
            protocol::Input::NeighborMoved { ifindex, address } => Input::NeighborMoved { ifindex, address },
            protocol::Input::Stream(input) => return self.stream(now, input),
            protocol::Input::Request(request) => Input::Request(request),
            protocol::Input::Handover(entries) => Input::Handover(entries),
            // SCTP sends again what was not sent.
            protocol::Input::TransmitFailed { .. }
            | protocol::Input::Rules
            | protocol::Input::Undeliverable { .. }
            | protocol::Input::Multicast(_)
            | protocol::Input::Grant(_)
            | protocol::Input::PinholeOpened { .. }
            | protocol::Input::FlowFound { .. }
            | protocol::Input::Indication(_)
            | protocol::Input::HostRequest { .. }
            | protocol::Input::HostEvent { .. }
            | protocol::Input::Stop { .. } => return,
        };
        self.engine.handle(now, input);
    }

    fn takes(&self, _: Time, _: &Received<'_>) -> bool {
        true
    }

    fn prepare(&self, packets: &[(Entry, &[u8])]) -> bool {
        let is_large = self.engine.is_large();
        if is_large {
            self.engine
                .prepare(packets.iter().filter(|(entry, _)| *entry == ENTRY).map(|(_, octets)| *octets));
        }
        is_large
    }

    fn owners(&self) -> Owners {
        Owners::NEITHER
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    #[inline]
    fn next(&mut self, cx: &mut Context<'_>) -> Option<Next> {
        loop {
            if !self.events.is_empty() || !self.channels.out.is_empty() {
                return Some(Next::Driver);
            }
            match self.engine.next()? {
                gist::Next::Driver => return Some(Next::Driver),
                gist::Next::Application(nslp) if self.inside.contains(&nslp) => {
                    return Some(Next::Application(nslp));
                }
                outside => {
                    if let Some(next) = self.next_outside(cx.now, outside) {
                        return Some(next);
                    }
                }
            }
        }
    }

    fn pass(&mut self, cx: &mut Context<'_>, to: &mut dyn Protocol) {
        match self.engine.poll() {
            Some(Out::Indication(indication)) => to.handle(cx, protocol::Input::Indication(indication)),
            Some(
                Out::Transmit(_)
                | Out::RouteLookup { .. }
                | Out::ChannelOpen { .. }
                | Out::ChannelSend { .. }
                | Out::ChannelRead { .. }
                | Out::ChannelClose { .. },
            )
            | None => debug_assert!(false, "the output is the driver's"),
        }
    }

    fn flush(&mut self) -> bool {
        self.channels.flush()
    }

    fn next_deadline(&self) -> Option<Time> {
        [self.engine.next_deadline(), self.channels.next_deadline()].into_iter().flatten().min()
    }

    fn size(&self) -> Size {
        Size { sessions: self.engine.session_count(), peers: Some(self.engine.peer_count()) }
    }

    fn changes(&mut self) -> Option<&mut Changes<SessionChange>> {
        Some(self.engine.changes())
    }

    fn counters(&self, to: &mut Vec<Counter>) {
        to.extend(self.engine.counters().iter().map(Counter::of(Subsystem::protocol("gist"))));
        to.extend(self.channels.counters.iter().map(Counter::of(Subsystem::part("channels", "gist"))));
        self.channels.count_sctp(to);
        to.extend(self.applications.counters.iter().map(Counter::of(Subsystem::shared("applications"))));
    }

    fn gauges(&self, to: &mut Vec<Gauge>) {
        to.push(Gauge::new(&SESSIONS, &["gist"], self.engine.session_count().into()));
        to.push(Gauge::new(&PEERS, &["gist"], self.engine.peer_count().into()));
        let associations = self.engine.association_counts();
        to.extend(
            associations.map(|(stack, count)| Gauge::new(&ASSOCIATIONS, &[stack.name()], count.into())),
        );
        to.extend(self.engine.tables().into_iter().flat_map(|table| Gauge::table("gist", table)));
    }
}

impl Restart for Instance {
    fn hand_over(&self, _: Time, to: &mut Entries) {
        self.engine.hand_over(to);
    }

    fn leaves(&self, _: PinholeId) -> bool {
        false
    }

    fn record_stop(&self, _: &mut Context<'_>, _: u32, _: bool) -> Option<u32> {
        None
    }
}

impl Composed for Instance {
    const NAME: &'static str = "gist";

    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &GistConfig) -> Result<(), ConfigError> {
        config.validated()
    }

    /// GIST's UDP port; a datagram that passes by is intercepted if it has the magic number, and a Router Alert or, where it
    /// is configured so, the C-flag (RFC 5971 §4.3.1, §5.3.2.1). And SCTP, unless the kernel has it.
    fn needs(config: &GistConfig) -> Needs {
        let magic = Match::word(0, u32::from_be_bytes(signalbox_gist::wire::MAGIC));
        let intercept = if config.engine.intercept_without_alert {
            Intercept::passing(AlertRule::NotRequired, vec![magic, C_FLAG])
        } else {
            Intercept::passing(AlertRule::Any, vec![magic])
        };
        let mut entries =
            vec![EntryRequest::local(ENTRY, Subsystem::part("gist_io", "gist")).with_intercept(intercept)];
        if config.engine.associations.sctp_port.is_some() && !config.channels.kernel_sctp {
            entries.push(EntryRequest::local(SCTP, Subsystem::part("sctp_io", "sctp")));
        }
        let ports = channels::ports(&config.engine.associations).listening();
        Needs { applications: Vec::new(), ports, entries }
    }

    fn new(config: GistConfig, setup: &mut Setup) -> Result<Self, ConfigError> {
        let GistConfig { mut engine, channels } = config;
        engine.slowest_link = setup.slowest_link;
        let (ports, dscp) = (channels::ports(&engine.associations), engine.dscp);
        let tls = channels.tls.as_ref().map(|tls| tls.load(setup.wall_clock_us)).transpose()?;
        let mut engine = Gist::new(engine, setup.rng.array())?;
        let inside = setup.applications.clone();
        for nslp in &inside {
            let policy = gist::PeeringPolicy::Always;
            let (router_alert, v6) = nslp.router_alert();
            engine.register(*nslp, gist::Registration { policy, router_alert, router_alert_v6: Some(v6) });
        }
        let channels = Channels::new(channels, tls, ports, &setup.ports, dscp, setup.rng.array());
        let (applications, events) = (Applications::default(), VecDeque::new());
        let wall_clock_us = setup.wall_clock_us;
        Ok(Self { engine, channels, applications, wall_clock_us, inside, events })
    }

    fn reload(&mut self, now: Time, config: GistConfig) {
        if let Err(error) = self.engine.set_limits(now, &config.engine) {
            tracing::warn!(%error, "limits of GIST ignored");
        }
        self.channels.reload(config.channels.tls.as_ref(), self.wall_clock_us);
    }

    fn command(&mut self, cx: &mut Context<'_>, id: u64, command: ApplicationCommand) {
        self.application(cx.now, id, command);
    }

    fn poll<E>(
        &mut self,
        lookups: ProtocolLookups<'_>,
        event: impl FnOnce(u64, Event) -> E,
    ) -> Option<Output<'_, E>> {
        if !self.events.is_empty() {
            let (id, of) = self.events.pop_front()?;
            return Some(Output::Event(event(id, of)));
        }
        if !self.channels.out.is_empty() {
            let request = self.channels.out.pop()?;
            return Some(self.channels.out.output(request));
        }
        Some(match self.engine.poll()? {
            Out::Transmit(datagram) => Output::Transmit(datagram),
            Out::RouteLookup { id, query } => Output::RouteLookup { id: lookups.put(id), query },
            Out::Indication(indication) => {
                let (id, of) = self.applications.event(&indication)?;
                Output::Event(event(id, of))
            }
            // Of a channel over plain TCP: the octets are the stream's as they are.
            Out::ChannelSend { channel, octets, .. } => {
                Output::StreamWrite { stream: StreamId(channel.0), octets }
            }
            Out::ChannelOpen { .. } | Out::ChannelRead { .. } | Out::ChannelClose { .. } => {
                debug_assert!(false, "the channels take it");
                return None;
            }
        })
    }

    fn not_running(command: &ApplicationCommand) -> Option<ApplicationEvent> {
        match command {
            ApplicationCommand::Register { .. } => Some(ApplicationEvent::Refused(RegisterError::NotRunning)),
            ApplicationCommand::Request(_) | ApplicationCommand::Blocked(_) | ApplicationCommand::Leave => {
                None
            }
        }
    }
}
