//! A node that peers, strangers, applications and channels drive in any order.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeSet;

use signalbox_core::mri::PathCoupled;
use signalbox_core::node::{NoRoute, Prefix};
use signalbox_core::service::{
    MessageHandle, Request, SendMessage, SiiHandle, StateHandle, TransferAttributes,
};
use signalbox_core::{Direction, IfIndex, Mri, SessionId, Time};

use crate::engine::{ChannelClosed, ChannelId, Config, Input, PeeringPolicy, Transport};
use crate::kit::{self, NSLP, Out, Peer, Via, bare, datagram, interface, read, route};
use crate::wire::{Header, MAGIC, Message, MessageType, PORT, strip_magic};

/// Operations of one run.
const OPERATIONS: usize = 256;
/// Octets of the headers of IPv4 and UDP. Amplification is counted in IP packets, as docs/security.md does.
const HEADERS: usize = 28;

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const LEFT: IpAddr = v4(10, 1, 0, 1);
const RIGHT: IpAddr = v4(10, 2, 0, 1);
const SOURCE: IpAddr = v4(10, 8, 0, 8);
const DESTINATION: IpAddr = v4(10, 9, 0, 9);

/// An address of a neighbor: `left` and `right` of the node.
fn neighbor(number: u8) -> (IpAddr, IpAddr, IfIndex) {
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
    kit: kit::Node,
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
        let mut node = Self {
            kit: kit::Node::new(config, policy, [1; 32]).ok()?,
            query: Vec::new(),
            response: Vec::new(),
            channels: BTreeSet::new(),
            sent: 0,
            lookups: Vec::new(),
            state: None,
            accepted: 0,
        };
        node.kit.now = Time::from_secs(10);
        node.input(Input::Interfaces(&[interface(1, vec![LEFT]), interface(2, vec![RIGHT])]));
        Some(node)
    }

    fn input(&mut self, input: Input<'_>) {
        self.kit.handle(input);
        self.drain();
    }

    fn drain(&mut self) {
        for (_, out) in self.kit.out.drain(..) {
            match out {
                Out::Sent(packet) => {
                    self.sent += HEADERS + packet.options.len() + packet.payload.len();
                    let header = strip_magic(&packet.payload).and_then(|octets| Header::parse(octets).ok());
                    match header.map(|header| header.kind) {
                        Some(MessageType::QUERY) => self.query = packet.payload,
                        Some(MessageType::RESPONSE) => self.response = packet.payload,
                        _ => {}
                    }
                }
                Out::Lookup(id, _) => self.lookups.push(id),
                Out::Delivered(message) => {
                    self.state = message.state.map(|state| (state, message.sii)).or(self.state);
                }
                Out::Status(..) | Out::Notified(..) => {}
                Out::Opened(channel, ..) => {
                    assert!(channel.0 & 1 == 1 && self.channels.insert(channel), "{channel} is not new");
                }
                Out::Over(kit::Over { channel, .. }) | Out::Read(channel, _) => {
                    assert!(self.channels.contains(&channel), "{channel} is not open");
                }
                Out::Closed(channel, _) => {
                    assert!(self.channels.remove(&channel), "{channel} is not open");
                }
            }
        }
    }

    /// Answers the lookups that are open.
    fn routes(&mut self, fail: bool) {
        for id in core::mem::take(&mut self.lookups) {
            let result = if fail { Err(NoRoute::Unreachable) } else { Ok(route(IfIndex(2), RIGHT)) };
            self.input(Input::Route { id, result });
        }
    }

    /// Gives the node a datagram, and bounds what leaves because of it.
    fn datagram(&mut self, src: IpAddr, dst: IpAddr, ifindex: IfIndex, alert: bool, payload: &[u8]) {
        let way = if alert { Via::q_mode } else { Via::normal };
        let via = way(ifindex, (src, PORT).into(), (dst, PORT).into());
        let gist = &mut self.kit.gist;
        // A node without state has no messages that wait for this one.
        let queued = if gist.session_count() == 0 { 0 } else { gist.config().max_queued };
        self.sent = 0;
        gist.prepare([payload].into_iter());
        self.input(Input::Datagram(via.packet(payload)));
        let came = HEADERS + via.options.len() + payload.len();
        assert!(self.sent <= came * 3 / 2 + queued, "{} octets because of {came}", self.sent);
    }

    fn wait(&mut self, time: Duration) {
        self.kit.until(self.kit.now + time);
        self.input(Input::Timer);
    }

    /// Checks the properties that always hold.
    fn check(&self) {
        let gist = &self.kit.gist;
        for table in gist.tables() {
            assert!(table.size <= table.limit, "{table:?}");
        }
        assert!(gist.session_count() <= 6 && gist.peer_count() <= 4);
    }

    /// A message of a neighbor, changed as the operations say.
    fn message(&mut self, kind: MessageType, control: u8, source: &mut Source<'_>) {
        let (from, to, ifindex) = neighbor(control >> 3);
        let (query, response) = (core::mem::take(&mut self.query), core::mem::take(&mut self.response));
        let number = source.next().unwrap_or(0);
        let identity = [b'p', control >> 3 & 3];
        let cookie = [number; 8];
        let peer = Peer::new(&identity, from);
        let (mri, session) = (flow(number), session(number >> 2));
        let message = match kind {
            MessageType::QUERY => peer.query(mri, session, &cookie),
            MessageType::RESPONSE => {
                let Some(query) = read(&query) else { return };
                let mut message = peer.response_with(&query, b"responder cookie");
                message.header.r = number & 1 == 0;
                message.stack_proposal = query.stack_proposal;
                message.stack_configuration = query.stack_configuration;
                message
            }
            MessageType::CONFIRM => {
                let Some(response) = read(&response) else { return };
                peer.confirm(&response)
            }
            _ if number & 0x80 != 0 => peer.data(mri.with_direction(Direction::Upstream), session, b"data"),
            _ => peer.data(mri, session, b"data"),
        };
        let Ok(mut octets) = datagram(&message) else { return };
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
                    handle: Some(MessageHandle(number.into())),
                    state: state.filter(|_| kind & 1 == 0),
                    sii: sii.filter(|_| kind == 7),
                    attributes: TransferAttributes {
                        reliable: kind & 2 != 0,
                        ..TransferAttributes::default()
                    },
                    ..kit::message(&[7; 64], mri, session)
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
                let (peer, local, _) = neighbor(number >> 4);
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
        let peer = Peer::new(b"p\0", v4(10, 1, 0, 2));
        let nothing = Message::new(MessageType::CONFIRM, NSLP, 64);
        let mut message = read(&response).map_or(nothing, |response| peer.confirm(&response));
        if number & 8 == 0 {
            // Data have the flow and the session of a Confirm.
            message.header.kind = MessageType::DATA;
            (message.nli, message.responder_cookie) = (None, None);
            message.nslp_data = Some(b"data");
        }
        if let Ok(mut octets) = bare(&message) {
            source.change(&mut octets);
            self.input(Input::ChannelOctets { channel, octets: &octets });
        }
        if self.response.is_empty() {
            self.response = response;
        }
    }
}

/// A node handles all messages of its peers and of strangers, all requests of its application and all events of its
/// channels; its tables keep their limits, its answers are bounded, and after ten minutes without messages no session is
/// left. Input: the first octet selects the settings. Then operations follow: an octet with the operation (low three
/// bits) and the neighbor (next two), and what the operation needs.
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
                let (from, to, ifindex) = neighbor(control >> 3);
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
    assert_eq!(node.kit.gist.session_count(), 0, "soft state ends");
}
