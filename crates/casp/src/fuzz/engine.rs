//! A node that receives any octets from its neighbors and clients at any time.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeSet;

use signalbox_core::node::{NoRoute, Prefix, Route, StreamId};
use signalbox_core::packet::Received;
use signalbox_core::{IfIndex, SessionId, Time};
use signalbox_wire::Writer;

use crate::engine::{
    Casp, Config, Indication, Input, Output, PeerView, Request, SendRequest, Transport, Verdict,
};
use crate::kit;
use crate::wire::route::{Hop, Routing};
use crate::wire::{Body, ClientType, ErrorCode, Flags, FlowId, Message, Proof, Signaling, framed};

const MAX_SESSIONS: u32 = 24;
/// Steps of one run.
const STEPS: usize = 256;
/// Deadlines in one pause; more are an endless loop.
const DEADLINES: u32 = 20_000;
const CLIENT: ClientType = ClientType(77);

const NODE: [u8; 4] = [10, 0, 0, 1];

fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

struct Node {
    engine: Casp,
    now: Time,
    /// Connections that stand, by the neighbor.
    streams: BTreeSet<StreamId>,
    next_stream: u64,
    verdict: u8,
    /// Sessions of this node, the last ones.
    own: Vec<SessionId>,
}

impl Node {
    fn new(setup: u8) -> Option<Self> {
        let config = Config {
            max_sessions: MAX_SESSIONS,
            max_connections: 16,
            max_searches: 16,
            max_waiting: 100_000,
            max_incomplete: 2000,
            max_held: 8,
            transport: if setup & 1 == 0 { Transport::Tcp } else { Transport::Udp },
            neighbors: if setup & 2 == 0 { BTreeSet::new() } else { [address(2)].into() },
            remove_unsecure: setup & 4 != 0,
            private_errors: setup & 8 != 0,
            rediscover: setup & 16 != 0,
            clients: [CLIENT.0, 78].into(),
            stateless_clients: [CLIENT.0].into(),
            stateless: setup & 64 == 0,
            ..Config::default()
        };
        let mut node = Self {
            engine: Casp::new(config, [1; 32]).ok()?,
            now: Time::from_secs(10),
            streams: BTreeSet::new(),
            next_stream: 2,
            verdict: setup >> 5,
            own: Vec::new(),
        };
        if setup & 20 == 20 {
            node.engine.set_opener(CLIENT, setup & 8 != 0);
        }
        node.input(Input::Interfaces(&[kit::interface(1, vec![NODE.into()])]));
        Some(node)
    }

    fn input(&mut self, input: Input<'_>) {
        self.engine.handle(self.now, input);
        self.drain();
    }

    /// Takes all outputs. Neighbors with an even address answer Scout Requests and accept connections.
    fn drain(&mut self) {
        for _ in 0..DEADLINES {
            let mut inputs: Vec<Input<'static>> = Vec::new();
            let mut answers = Vec::new();
            while let Some(output) = self.engine.poll() {
                match output {
                    Output::Send(packet) => match Message::parse(packet.payload) {
                        Ok(Message::ScoutRequest(cookie)) => answers.push((cookie, packet.dst.ip())),
                        Ok(Message::ScoutResponse { .. }) => {}
                        // A ROUTE leads to neighbors and to connected nodes only.
                        Ok(Message::Signaling(message)) => {
                            assert!(packet.dst.ip() != address(99) || message.route.is_none());
                        }
                        Err(error) => panic!("sent what cannot be read: {error}"),
                    },
                    Output::RouteLookup { id, query } => {
                        let route = Route {
                            ifindex: IfIndex(1),
                            src: IpAddr::from(NODE),
                            gateway: Some(address(2)),
                            mtu: 1500,
                            local: false,
                        };
                        let known = query.dst != address(99);
                        inputs.push(Input::Route {
                            id,
                            result: if known { Ok(route) } else { Err(NoRoute::Unreachable) },
                        });
                    }
                    Output::Discover { id, .. } => inputs.push(Input::Discovered { id, address: None }),
                    Output::Open { stream, peer, local, .. } => {
                        if local.is_none() {
                            inputs.push(Input::Opening { stream, local: IpAddr::from(NODE) });
                        }
                        let even = matches!(peer.ip(), IpAddr::V4(v4) if v4.octets()[3] % 2 == 0);
                        if even {
                            self.streams.insert(stream);
                            inputs.push(Input::Connected { stream, identity: None });
                        } else {
                            inputs.push(Input::Closed { stream });
                        }
                    }
                    Output::Write { stream, octets } => {
                        assert!(self.streams.contains(&stream), "{stream} is not connected");
                        assert!(octets.len() >= 24);
                        inputs.push(Input::Drained { stream, unsent: 0 });
                    }
                    Output::Close { stream } => {
                        self.streams.remove(&stream);
                    }
                    Output::Indication { client, indication } => match indication {
                        Indication::Received(arrival) if arrival.id != 0 => {
                            let verdict = match self.verdict {
                                0 | 1 => Verdict::Forward,
                                2 | 3 => Verdict::Replace(b"changed"),
                                4 => Verdict::Consume,
                                _ => continue,
                            };
                            let request = Request::Verdict { id: arrival.id, verdict };
                            inputs.push(Input::Request { client, request });
                        }
                        Indication::Opened { session, .. } => {
                            self.own.push(session);
                            if self.own.len() > 4 {
                                self.own.remove(0);
                            }
                        }
                        Indication::Received(_)
                        | Indication::Refused { .. }
                        | Indication::Error { .. }
                        | Indication::Branch { .. }
                        | Indication::Undelivered { .. }
                        | Indication::Ended { .. } => {}
                    },
                }
            }
            if inputs.is_empty() && answers.is_empty() {
                return;
            }
            for input in inputs {
                self.engine.handle(self.now, input);
            }
            for (cookie, dst) in answers {
                let last = match dst {
                    IpAddr::V4(v4) => v4.octets()[3] / 16 + 2,
                    IpAddr::V6(_) => 2,
                };
                let mut octets = Vec::new();
                let response = Message::ScoutResponse { initiator: cookie, responder: [1; 8] };
                if last < 12 && response.encode(&mut octets).is_ok() {
                    let packet = packet(50004, address(last), &octets);
                    self.engine.handle(self.now, Input::Packet(packet));
                }
            }
        }
        panic!("outputs without end");
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..DEADLINES {
            let Some(next) = self.engine.next_deadline().filter(|next| *next <= end) else {
                self.now = end;
                return self.input(Input::Timer);
            };
            self.now = self.now.max(next);
            self.input(Input::Timer);
        }
        panic!("timers come again and again");
    }

    fn accept(&mut self, which: u8) {
        let stream = StreamId(self.next_stream);
        self.next_stream += 2;
        self.streams.insert(stream);
        let peer = SocketAddr::new(address(which % 8 + 2), 40000);
        let local = address(1);
        self.input(Input::Accepted { stream, transport: Transport::Tcp, local, peer, identity: None });
    }

    fn stream(&self, which: u8) -> Option<StreamId> {
        let at = usize::from(which) % self.streams.len().max(1);
        self.streams.iter().nth(at).copied()
    }

    /// Checks the properties that always hold.
    fn check(&self) {
        let open = |peer: &PeerView| peer.address == address(99) && !peer.connections.is_empty();
        let mut connected = false;
        self.engine.walk_peers(0, |peer| {
            connected |= open(&peer);
            true
        });
        assert!(!connected, "a ROUTE made the node connect to an address");
        assert!(self.engine.session_count() <= MAX_SESSIONS);
        for table in self.engine.tables() {
            assert!(table.size <= table.limit, "{table:?}");
        }
        let mut names = BTreeSet::new();
        for session in self.engine.sessions() {
            let flows = core::iter::once(session.flow).chain(session.outer);
            assert!(flows.into_iter().all(|flow| names.insert((session.session, flow))), "two have one name");
            assert!(!session.previous.is_empty(), "a session without previous hop");
            assert!(session.previous.len() <= 4 && session.next.len() <= 4 && session.waiting <= 33);
            let newest = session.previous.iter().filter(|one| one.newest).count();
            assert_eq!(newest, 1);
        }
    }
}

fn packet(port: u16, from: IpAddr, payload: &[u8]) -> Received<'_> {
    kit::packet(port, from, NODE.into(), payload)
}

fn flow(number: u8) -> FlowId {
    kit::flow([10, 9, 0, 1].into(), [10, 8, 0, number % 8 * 32].into(), 1, u16::from(number % 4))
}

/// The flow from another source.
fn translated(flow: FlowId, number: u8) -> FlowId {
    match flow {
        FlowId::V4Ports { dst, dst_port, protocol, .. } => FlowId::V4Ports {
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst,
            src_port: u16::from(number >> 6),
            dst_port,
            protocol,
        },
        other => other,
    }
}

/// The contents of a RECORD_ROUTE or ROUTE: entries of neighbors, and of this node.
fn route(number: u8) -> Vec<u8> {
    let mut octets = Vec::new();
    let last = [2, 3, 1, 99, 4, 1, 2, number % 8];
    for last in last.iter().take(usize::from(number >> 5)).chain([&(number % 8 + 1)]) {
        let hop = Hop { transport: 6, address: SocketAddr::new(address(*last), 50003) };
        hop.encode(&mut Writer::new(&mut octets));
    }
    octets.truncate(octets.len() - usize::from(number == 0x77));
    octets
}

/// A message that `number` selects, with the flags of `more`.
fn message(number: u8, more: u8, own: &[SessionId]) -> Vec<u8> {
    let session = own.get(usize::from(number >> 6)).copied().filter(|_| more & 8 != 0);
    let flags = Flags::from_octet(more & 0xf0);
    let flags = if flags.is_reverse() { flags.without(Flags::DISCOVER) } else { flags };
    let body = match more & 7 {
        0 | 1 => Body::Empty,
        2 => Body::Error(ErrorCode::COOKIE_ERROR),
        3 => Body::Error(ErrorCode::UNKNOWN),
        4 => Body::Client { client: ClientType(9), data: &[1, 2, 3] },
        _ => Body::Client { client: CLIENT, data: b"hello" },
    };
    // Messages against the flow may have the flow that the next hops see.
    let outer = flags.is_reverse() && number & 8 != 0;
    let flow = if outer { translated(flow(number), number) } else { flow(number) };
    let contents = route(number);
    let message = Signaling {
        flags,
        timeout: (number & 32 == 0).then_some(7),
        proof: (more & 7 == 1).then_some(Proof::Cookie([1; 8])),
        body,
        route: match more & 24 {
            16 if flags.is_reverse() => Some(Routing::Route(&contents)),
            16 => Some(Routing::Record(&contents)),
            _ => None,
        },
        ..Signaling::new(session.unwrap_or(SessionId([number >> 5; 16])), flow)
    };
    let mut octets = Vec::new();
    let _ = message.encode(&mut octets);
    octets
}

/// A node handles all messages and stays within its limits. Input: the first octet selects the settings. Then triples follow:
/// what happens, and two numbers. 0: a message over a connection; 1: time passes; 2: a node connects; 3: a datagram; 4: a client
/// asks; 5: a connection ends; 6: routes change; 7: raw octets on a connection, as many as the second number says.
///
/// # Panics
/// If one of these properties does not hold.
pub fn casp_engine(octets: &[u8]) {
    let mut octets = octets.iter().copied();
    let Some(setup) = octets.next() else { return };
    let Some(mut node) = Node::new(setup) else { return };
    for _ in 0..STEPS {
        let (Some(what), Some(which), Some(more)) = (octets.next(), octets.next(), octets.next()) else {
            break;
        };
        match what & 7 {
            0 => {
                let message = message(which, more, &node.own);
                let mut octets = Vec::new();
                let composed = framed(&mut octets, |into| {
                    into.extend_from_slice(&message);
                    Ok::<(), ()>(())
                });
                if let (Ok(()), Some(stream)) = (composed, node.stream(what >> 3)) {
                    node.input(Input::Octets { stream, octets: &octets });
                }
            }
            1 => node.wait(Duration::from_millis(u64::from(which) * 100 + u64::from(more) * 5)),
            2 => node.accept(which),
            3 => {
                let message = message(which, more, &node.own);
                let port = if what & 8 == 0 { 50003 } else { 50004 };
                node.input(Input::Packet(packet(port, address(what >> 4), &message)));
            }
            4 => {
                let session = node.own.get(usize::from(which >> 6)).copied();
                let (flow, to, contents) = (flow(which), flow(more), route(more));
                let request = match (more & 7, session) {
                    (0, Some(session)) => Request::Move { session, from: flow, to },
                    (1, Some(session)) => Request::Hold { session, flow, on: false },
                    (2, Some(session)) => Request::KeepBranches { session, flow },
                    // Of a neighbor's session, or of one of this node, which is refused.
                    (3, _) => Request::Translate {
                        session: SessionId([which >> 5; 16]),
                        flow,
                        outer: translated(flow, more),
                    },
                    _ => Request::Send(SendRequest {
                        reverse: more & 8 != 0,
                        tear_down: more & 16 != 0,
                        discover: more & 32 != 0,
                        hold: more & 64 != 0,
                        record_route: what & 8 != 0,
                        route: (what & 16 != 0).then_some(&contents[..]),
                        ..SendRequest::new(session, flow, b"x")
                    }),
                };
                node.input(Input::Request { client: CLIENT, request });
            }
            5 => {
                if let Some(stream) = node.stream(which) {
                    node.streams.remove(&stream);
                    node.input(Input::Closed { stream });
                }
            }
            6 if what & 1 == 1 => {
                let address = IpAddr::V4(Ipv4Addr::new(10, 8, 0, which));
                node.input(Input::NeighborMoved { ifindex: IfIndex(u32::from(more & 3)), address });
            }
            6 => node.input(Input::RouteChanged(Prefix {
                addr: IpAddr::V4(Ipv4Addr::new(10, 8, 0, 0)),
                len: which % 33,
            })),
            _ => {
                let raw: Vec<u8> = octets.by_ref().take(usize::from(more)).collect();
                if let Some(stream) = node.stream(which).filter(|_| !raw.is_empty()) {
                    node.input(Input::Octets { stream, octets: &raw });
                }
            }
        }
        node.check();
    }
    // Without clients that hold them, sessions end.
    for session in node.own.clone() {
        for number in 0..=255 {
            let request = Request::Hold { session, flow: flow(number), on: false };
            node.input(Input::Request { client: CLIENT, request });
        }
    }
    node.wait(Duration::from_secs(200));
    node.check();
}
