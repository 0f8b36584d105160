//! A node that peers, strangers, applications and channels drive in any order.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeSet;

use signalbox_core::mri::PathCoupled;
use signalbox_core::node::{Interface, NoRoute, Prefix, Route};
use signalbox_core::packet::{Received, router_alert_v4};
use signalbox_core::service::{
    Indication, MessageHandle, Request, SendMessage, SiiHandle, StateHandle, TransferAttributes,
};
use signalbox_core::{Direction, Entry, IfIndex, Mri, NslpId, SessionId, Time};
use signalbox_wire::Writer;

use crate::engine::{
    ChannelClosed, ChannelId, Config, Gist, Input, Output, PeeringPolicy, Registration, Transport,
};
use crate::wire::{Encapsulation, Header, MAGIC, Message, MessageType, Nli, PORT, strip_magic};

/// The application of the node.
const NSLP: NslpId = NslpId::PING;
/// Router Alert value of the application.
const ALERT: u16 = 7;
/// Operations of one run.
const OPERATIONS: usize = 256;
/// Deadlines in one pause; more are an endless loop.
const DEADLINES: u32 = 20_000;
/// Octets of the headers of IPv4 and UDP. Amplification is counted in IP packets, as docs/security.md does.
const HEADERS: usize = 28;

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const LEFT: IpAddr = v4(10, 1, 0, 1);
const RIGHT: IpAddr = v4(10, 2, 0, 1);
const SOURCE: IpAddr = v4(10, 8, 0, 8);
const DESTINATION: IpAddr = v4(10, 9, 0, 9);

/// An address of a neighbour: `left` and `right` of the node.
fn neighbour(number: u8) -> (IpAddr, IpAddr, IfIndex) {
    match number & 3 {
        0 => (v4(10, 1, 0, 2), LEFT, IfIndex(1)),
        1 => (v4(10, 2, 0, 2), RIGHT, IfIndex(2)),
        2 => (v4(10, 1, 0, 3), LEFT, IfIndex(1)),
        _ => (v4(10, 2, 0, 3), RIGHT, IfIndex(2)),
    }
}

fn session(number: u8) -> SessionId {
    SessionId([number & 3; 16])
}

fn flow(number: u8) -> Mri {
    let (src, dst) = match number & 3 {
        0 | 1 => (SOURCE, DESTINATION),
        2 => (SOURCE, RIGHT),
        _ => (RIGHT, DESTINATION),
    };
    Mri::PathCoupled(PathCoupled::between(src, dst))
}

fn nli(identity: &[u8], interface: IpAddr) -> Nli<'_> {
    Nli { peer_identity: identity, ip_ttl: 64, validity_ms: 30_000, interface }
}

/// Octets of the operation list.
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Changes single octets of a message: the count in the low two bits of an octet, then offset and value of each.
    fn change(&mut self, message: &mut [u8]) {
        let count = self.next().unwrap_or(0) & 3;
        for _ in 0..count {
            let (Some(at), Some(value)) = (self.next(), self.next()) else { return };
            if let Some(octet) = message.get_mut(usize::from(at)) {
                *octet = value;
            }
        }
    }
}

struct Node {
    gist: Gist,
    now: Time,
    /// The newest Query and the newest Response that the node sent, from the magic number on.
    query: Vec<u8>,
    response: Vec<u8>,
    /// Channels of which the node has state.
    channels: BTreeSet<ChannelId>,
    /// Octets of IP packets that left since the last look.
    sent: usize,
    /// Route lookups that are not answered.
    lookups: Vec<u64>,
    state: Option<(StateHandle, Option<SiiHandle>)>,
    accepted: u64,
}

impl Node {
    fn new(settings: u8) -> Option<Self> {
        let mut config =
            Config { identity: b"node".to_vec(), max_sessions: 6, max_peers: 4, ..Config::default() };
        config.max_sessions_per_source = 6;
        config.max_queued = 8 << 10;
        config.upstream_queries = settings & 1 != 0;
        config.cookie_errors = settings & 2 != 0;
        config.piggyback = settings & 4 != 0;
        config.associations.tcp_port = (settings & 8 != 0).then_some(PORT);
        config.associations.sctp_port = (settings & 16 != 0).then_some(PORT);
        config.associations.always = settings & 32 != 0;
        config.associations.max = 4;
        let policy = if settings & 64 == 0 { PeeringPolicy::Always } else { PeeringPolicy::Ask };
        let mut gist = Gist::new(config, [1; 32]).ok()?;
        gist.register(NSLP, Registration { policy, router_alert: ALERT, router_alert_v6: None });
        let mut node = Self {
            gist,
            now: Time::from_secs(10),
            query: Vec::new(),
            response: Vec::new(),
            channels: BTreeSet::new(),
            sent: 0,
            lookups: Vec::new(),
            state: None,
            accepted: 0,
        };
        let interfaces = [(1, LEFT), (2, RIGHT)].map(|(number, address)| Interface {
            ifindex: IfIndex(number),
            name: format!("eth{number}"),
            up: true,
            tunnel: false,
            mtu: 1500,
            addresses: vec![address],
        });
        node.input(Input::Interfaces(&interfaces));
        Some(node)
    }

    fn input(&mut self, input: Input<'_>) {
        self.gist.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.gist.poll() {
            match output {
                Output::Transmit(packet) => {
                    self.sent += HEADERS + packet.options.len() + packet.payload.len();
                    let header = strip_magic(packet.payload).and_then(|octets| Header::parse(octets).ok());
                    match header.map(|header| header.kind) {
                        Some(MessageType::QUERY) => self.query = packet.payload.to_vec(),
                        Some(MessageType::RESPONSE) => self.response = packet.payload.to_vec(),
                        _ => {}
                    }
                }
                Output::RouteLookup { id, .. } => self.lookups.push(id),
                Output::Indication(Indication::RecvMessage(message)) => {
                    if let Some(state) = message.state {
                        self.state = Some((state, message.sii));
                    }
                }
                Output::Indication(_) => {}
                Output::ChannelOpen { channel, .. } => {
                    assert!(channel.0 & 1 == 1 && self.channels.insert(channel), "{channel} is not new");
                }
                Output::ChannelSend { channel, .. } | Output::ChannelRead { channel, .. } => {
                    assert!(self.channels.contains(&channel), "{channel} is not open");
                }
                Output::ChannelClose { channel, .. } => {
                    assert!(self.channels.remove(&channel), "{channel} is not open");
                }
            }
        }
    }

    /// Answers the lookups that are open.
    fn routes(&mut self, fail: bool) {
        for id in core::mem::take(&mut self.lookups) {
            let route = Route { ifindex: IfIndex(2), src: RIGHT, gateway: None, mtu: 1500, local: false };
            let result = if fail { Err(NoRoute::Unreachable) } else { Ok(route) };
            self.input(Input::Route { id, result });
        }
    }

    /// Gives the node a datagram, and bounds what leaves because of it.
    fn datagram(&mut self, src: IpAddr, dst: IpAddr, ifindex: IfIndex, alert: bool, payload: &[u8]) {
        let alert_option = router_alert_v4(ALERT);
        let options = if alert { &alert_option[..] } else { &[] };
        let (src, dst) = (SocketAddr::new(src, PORT), SocketAddr::new(dst, PORT));
        // A node without state has no messages that wait for this one.
        let queued = if self.gist.session_count() == 0 { 0 } else { self.gist.config().max_queued };
        self.sent = 0;
        self.gist.prepare([payload].into_iter());
        self.input(Input::Datagram(Received {
            entry: Entry::Udp(PORT),
            src,
            dst,
            ifindex,
            ttl: 64,
            tos: 0,
            options,
            payload,
        }));
        let came = HEADERS + options.len() + payload.len();
        assert!(self.sent <= came * 3 / 2 + queued, "{} octets because of {came}", self.sent);
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..DEADLINES {
            let Some(next) = self.gist.next_deadline().filter(|next| *next <= end) else {
                self.now = end;
                return self.input(Input::Timer);
            };
            self.now = self.now.max(next);
            self.input(Input::Timer);
        }
        panic!("timers come again and again");
    }

    /// Checks the properties that always hold.
    fn check(&self) {
        for table in self.gist.tables() {
            assert!(table.size <= table.limit, "{table:?}");
        }
        assert!(self.gist.session_count() <= 6 && self.gist.peer_count() <= 4);
    }

    /// A message of a neighbour, changed as the operations say.
    fn message(&mut self, kind: MessageType, control: u8, source: &mut Source<'_>) {
        let (from, to, ifindex) = neighbour(control >> 3);
        let (query, response) = (core::mem::take(&mut self.query), core::mem::take(&mut self.response));
        let number = source.next().unwrap_or(0);
        let identity = [b'p', control >> 3 & 3];
        let cookie = [number; 8];
        let mut message = Message::new(kind, NSLP, 64);
        message.mri = Some(flow(number).into());
        message.session = Some(session(number >> 2));
        message.nli = Some(nli(&identity, from));
        let about = parsed(if kind == MessageType::RESPONSE { &query } else { &response });
        match kind {
            MessageType::QUERY => message.query_cookie = Some(&cookie),
            MessageType::RESPONSE | MessageType::CONFIRM => {
                let Some(about) = about else { return };
                message.mri = about.mri.map(|mri| mri.inverted());
                message.session = about.session;
                message.query_cookie = about.query_cookie.filter(|_| kind == MessageType::RESPONSE);
                message.responder_cookie = about.responder_cookie;
                if kind == MessageType::RESPONSE {
                    message.header.r = number & 1 == 0;
                    message.responder_cookie = Some(b"responder cookie");
                    message.stack_proposal = about.stack_proposal;
                    message.stack_configuration = about.stack_configuration;
                }
            }
            _ => {
                message.nslp_data = Some(b"data");
                if number & 0x80 != 0 {
                    let mri = flow(number).with_direction(Direction::Upstream);
                    message.mri = Some(mri.into());
                }
            }
        }
        let mut octets = MAGIC.to_vec();
        if message.encode(&mut Writer::new(&mut octets)).is_err() {
            return;
        }
        source.change(&mut octets);
        let query_mode = kind == MessageType::QUERY && number & 0x40 == 0;
        if query_mode {
            self.datagram(SOURCE, DESTINATION, ifindex, true, &octets);
        } else {
            self.datagram(from, to, ifindex, false, &octets);
        }
        // The node may have sent newer ones meanwhile.
        if self.query.is_empty() {
            self.query = query;
        }
        if self.response.is_empty() {
            self.response = response;
        }
    }

    fn request(&mut self, source: &mut Source<'_>) {
        let number = source.next().unwrap_or(0);
        let (mri, session) = (flow(number | 2), session(number >> 2));
        let request = match number >> 4 & 7 {
            0 => Request::SetStateLifetime {
                nslp: NSLP,
                mri,
                session: Some(session),
                lifetime: Duration::ZERO,
            },
            1 => Request::SetStateLifetime {
                nslp: NSLP,
                mri,
                session: None,
                lifetime: Duration::from_secs(number.into()),
            },
            kind => {
                let (state, sii) = self.state.map_or((None, None), |(state, sii)| (Some(state), sii));
                Request::SendMessage(SendMessage {
                    data: &[7; 64],
                    handle: Some(MessageHandle(number.into())),
                    nslp: NSLP,
                    session,
                    mri,
                    state: state.filter(|_| kind & 1 == 0),
                    sii: sii.filter(|_| kind == 7),
                    attributes: TransferAttributes {
                        reliable: kind & 2 != 0,
                        ..TransferAttributes::default()
                    },
                    timeout: None,
                    ip_ttl: None,
                    hops: None,
                })
            }
        };
        self.input(Input::Request(request));
    }

    fn channel(&mut self, source: &mut Source<'_>) {
        let number = source.next().unwrap_or(0);
        let at = usize::from(number >> 4);
        let channel = self.channels.iter().nth(at % self.channels.len().max(1)).copied();
        match (number & 7, channel) {
            (0, _) => {
                let (peer, local, _) = neighbour(number >> 4);
                self.accepted += 2;
                let channel = ChannelId(self.accepted);
                self.channels.insert(channel);
                self.input(Input::ChannelAccepted {
                    channel,
                    transport: if number & 8 == 0 { Transport::Tcp } else { Transport::Sctp },
                    local: SocketAddr::new(local, PORT),
                    peer: SocketAddr::new(peer, 40_000),
                    identity: None,
                });
            }
            (1, Some(channel)) => {
                if channel.0 & 1 == 1 {
                    self.input(Input::ChannelConnected { channel, identity: None });
                }
            }
            (2, Some(channel)) => {
                self.input(Input::ChannelDrained { channel, unsent: usize::from(number) << 12 })
            }
            (3, Some(channel)) => {
                self.channels.remove(&channel);
                let reason = match number >> 6 {
                    0 => ChannelClosed::Orderly,
                    1 => ChannelClosed::Refused,
                    2 => ChannelClosed::TimedOut,
                    _ => ChannelClosed::Reset,
                };
                self.input(Input::ChannelClosed { channel, reason, unacknowledged: number & 8 != 0 });
            }
            (4, Some(channel)) => {
                let length = usize::from(source.next().unwrap_or(0));
                let octets = source.take(length);
                self.input(Input::ChannelOctets { channel, octets });
            }
            (_, Some(channel)) => self.over(channel, number, source),
            (_, None) => {}
        }
    }

    /// A whole message over a channel.
    fn over(&mut self, channel: ChannelId, number: u8, source: &mut Source<'_>) {
        let response = core::mem::take(&mut self.response);
        let kind = if number & 8 == 0 { MessageType::DATA } else { MessageType::CONFIRM };
        let mut message = Message::new(kind, NSLP, 64);
        let about = parsed(&response);
        message.mri = about.as_ref().and_then(|about| about.mri.as_ref()).map(|mri| mri.inverted());
        message.session = about.as_ref().and_then(|about| about.session);
        if kind == MessageType::DATA {
            message.nslp_data = Some(b"data");
        } else if let Some(about) = &about {
            message.nli = Some(nli(b"p\0", v4(10, 1, 0, 2)));
            message.responder_cookie = about.responder_cookie;
        }
        let mut octets = Vec::new();
        if message.encode(&mut Writer::new(&mut octets)).is_ok() {
            source.change(&mut octets);
            self.input(Input::ChannelOctets { channel, octets: &octets });
        }
        if self.response.is_empty() {
            self.response = response;
        }
    }
}

/// A message that the node sent, from the magic number on.
fn parsed(octets: &[u8]) -> Option<Message<'_>> {
    let octets = strip_magic(octets)?;
    let header = Header::parse(octets).ok()?;
    Message::parse(octets, Encapsulation::of(&header, true)).ok()
}

/// A node handles all messages of its peers and of strangers, all requests of its application and all events of its
/// channels; its tables keep their limits, its answers are bounded, and after ten minutes without messages no session is
/// left. Input: the first octet selects the settings. Then operations follow: an octet with the operation (low three
/// bits) and the neighbour (next two), and what the operation needs.
pub fn gist_engine(octets: &[u8]) {
    let mut source = Source(octets);
    let Some(mut node) = source.next().and_then(Node::new) else { return };
    for _ in 0..OPERATIONS {
        let Some(control) = source.next() else { break };
        match control & 7 {
            0 => node.message(MessageType::QUERY, control, &mut source),
            1 => node.message(MessageType::RESPONSE, control, &mut source),
            2 => node.message(MessageType::CONFIRM, control, &mut source),
            3 => node.message(MessageType::DATA, control, &mut source),
            4 => node.request(&mut source),
            5 => node.channel(&mut source),
            6 if control & 0x80 != 0 => node.input(Input::RouteChanged(Prefix::host(DESTINATION))),
            6 => {
                let length = usize::from(source.next().unwrap_or(0));
                let (from, to, ifindex) = neighbour(control >> 3);
                let mut payload = MAGIC.to_vec();
                payload.extend_from_slice(source.take(length));
                node.datagram(from, to, ifindex, control & 0x40 != 0, &payload);
            }
            _ => node.wait(Duration::from_millis(u64::from(source.next().unwrap_or(0)) * 50)),
        }
        if control & 0x20 == 0 {
            node.routes(control & 0xc0 == 0xc0);
        }
        node.check();
    }
    for channel in core::mem::take(&mut node.channels) {
        node.input(Input::ChannelClosed { channel, reason: ChannelClosed::Orderly, unacknowledged: false });
    }
    for _ in 0..20 {
        node.routes(true);
        node.wait(Duration::from_secs(30));
    }
    node.check();
    assert_eq!(node.gist.session_count(), 0, "soft state ends");
}
