//! One node between a previous hop and a next hop that the test plays.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use signalbox_casp::engine::{
    Arrival, Casp, Config, Indication, Input, Output, Refused, Request, SendRequest, SessionView, Transport,
    Verdict,
};
use signalbox_casp::kit;
use signalbox_casp::wire::{
    Body, ClientType, Cookie, ErrorCode, Flags, FlowId, LENGTH_HEADER, Message, Proof, Signaling, frame,
    framed,
};
use signalbox_core::node::{Interface, NoRoute, Route, StreamId};
use signalbox_core::packet::Received;
use signalbox_core::security::{Fingerprint, Identity};
use signalbox_core::{IfIndex, SessionId, Time};

pub(crate) const UP: &str = "10.0.0.2";
pub(crate) const OTHER: &str = "10.0.0.3";
pub(crate) const DOWN: &str = "10.0.1.2";
pub(crate) const DOWN2: &str = "10.0.1.3";
/// The node's addresses towards the previous and towards the next hop.
pub(crate) const NEAR: &str = "10.0.0.1";
pub(crate) const FAR: &str = "10.0.1.1";
pub(crate) const DST: &str = "10.8.0.7";
pub(crate) const COOKIE: Cookie = [0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8];
/// A client that the node has, and one that it has not.
pub(crate) const CLIENT: ClientType = ClientType(77);
pub(crate) const UNKNOWN: ClientType = ClientType(78);

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

pub(crate) fn session(n: u8) -> SessionId {
    SessionId([n; 16])
}

pub(crate) fn flow_to(dst: &str, port: u16) -> FlowId {
    kit::flow("10.9.0.1".parse().unwrap(), dst.parse().unwrap(), 5004, port)
}

pub(crate) fn flow() -> FlowId {
    flow_to(DST, 5006)
}

/// A message of session 1 without contents, with a lifetime of 90 s.
pub(crate) fn message() -> Signaling<'static> {
    Signaling { timeout: Some(90), ..Signaling::new(session(1), flow()) }
}

pub(crate) fn data(client: ClientType) -> Signaling<'static> {
    Signaling { body: Body::Client { client, data: b"hello" }, ..message() }
}

pub(crate) fn flags(message: Signaling<'_>, flags: Flags) -> Signaling<'_> {
    Signaling { flags, ..message }
}

/// What the node sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) at: Time,
    /// `None`: a datagram.
    pub(crate) stream: Option<StreamId>,
    pub(crate) src: Option<SocketAddr>,
    pub(crate) dst: Option<SocketAddr>,
    pub(crate) options: Vec<u8>,
    pub(crate) tos: u8,
    pub(crate) label: u32,
    /// Without Length Header.
    pub(crate) octets: Vec<u8>,
    /// Number of the write, so that messages of one write are known.
    pub(crate) write: usize,
}

impl Sent {
    pub(crate) fn message(&self) -> Signaling<'_> {
        match Message::parse(&self.octets).unwrap() {
            Message::Signaling(message) => message,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn is_scout(&self) -> bool {
        !matches!(Message::parse(&self.octets), Ok(Message::Signaling(_)))
    }
}

/// What a client was informed of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Indicated {
    Opened(u64, SessionId),
    Refused(u64, Refused),
    Received(Box<Arrival<'static>>, Vec<u8>),
    Error(ErrorCode),
    Branch { previous: bool, id: u16, ended: bool },
    Undelivered(FlowId),
    Ended { flow: FlowId, torn_down: bool },
}

pub(crate) fn indicated(indication: &Indication<'_>) -> Indicated {
    match indication.clone() {
        Indication::Opened { tag, session, .. } => Indicated::Opened(tag, session),
        Indication::Refused { tag, why } => Indicated::Refused(tag, why),
        Indication::Received(arrival) => {
            let data = arrival.data.to_vec();
            Indicated::Received(Box::new(Arrival { data: &[], route: &[], ..arrival }), data)
        }
        Indication::Error { code, .. } => Indicated::Error(code),
        Indication::Branch { previous, id, ended, .. } => Indicated::Branch { previous, id, ended },
        Indication::Undelivered { flow, .. } => Indicated::Undelivered(flow),
        Indication::Ended { flow, torn_down, .. } => Indicated::Ended { flow, torn_down },
    }
}

pub(crate) struct Rig {
    pub(crate) node: Casp,
    pub(crate) now: Time,
    pub(crate) sent: Vec<Sent>,
    pub(crate) opened: Vec<(StreamId, Transport, Option<IpAddr>, SocketAddr)>,
    pub(crate) closed: Vec<StreamId>,
    pub(crate) indicated: Vec<(ClientType, Indicated)>,
    pub(crate) discovers: Vec<(u64, u8, IpAddr)>,
    /// The client decides at once.
    pub(crate) verdict: Option<Verdict<'static>>,
    /// The next hop of the routing table; an error: there is no route.
    pub(crate) gateway: Result<Option<IpAddr>, NoRoute>,
    pub(crate) lookups: usize,
    /// Nodes that answer Scout Requests at once.
    pub(crate) answering: Vec<IpAddr>,
    /// Nodes that accept connections at once.
    pub(crate) accepting: bool,
    /// Nodes read what they are sent.
    pub(crate) reading: bool,
    next_stream: u64,
    writes: usize,
}

pub(crate) fn identity(n: u8) -> Option<Arc<Identity>> {
    Some(Arc::new(Identity::of_key(Fingerprint([n; 32]))))
}

pub(crate) fn config() -> Config {
    Config { clients: [CLIENT.0, 79].into(), ..Config::default() }
}

impl Rig {
    /// A node with scout, behind which [`DOWN`] answers and accepts connections.
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: Config) -> Self {
        let mut rig = Self {
            node: Casp::new(config, [7; 32]).unwrap(),
            now: Time::from_secs(100),
            sent: Vec::new(),
            opened: Vec::new(),
            closed: Vec::new(),
            indicated: Vec::new(),
            discovers: Vec::new(),
            verdict: Some(Verdict::Forward),
            gateway: Ok(Some(ip("10.0.1.254"))),
            lookups: 0,
            answering: vec![ip(DOWN)],
            accepting: true,
            reading: true,
            next_stream: 2,
            writes: 0,
        };
        rig.interfaces(FAR, true);
        rig
    }

    /// The node's interfaces, with this address on the side of the next hop, which is up or down.
    pub(crate) fn interfaces(&mut self, far: &str, up: bool) {
        let interface = |n: u32, up, addresses: &[&str]| Interface {
            up,
            ..kit::interface(n, addresses.iter().map(|text| ip(text)).collect())
        };
        let all = [interface(1, true, &[NEAR, "2001:db8::1"]), interface(2, up, &[far, "2001:db8:1::1"])];
        self.input(Input::Interfaces(&all));
    }

    pub(crate) fn input(&mut self, input: Input<'_>) {
        self.node.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        enum Then {
            Route(u64, IpAddr),
            Answer(Cookie, IpAddr, IpAddr, u16),
            Connect(StreamId, Transport, Option<IpAddr>),
            Decide(ClientType, u64),
            Drained(StreamId),
        }
        loop {
            let mut then = Vec::new();
            while let Some(output) = self.node.poll() {
                match output {
                    Output::Send(packet) => {
                        let octets = packet.payload.to_vec();
                        self.writes += 1;
                        if let Ok(Message::ScoutRequest(cookie)) = Message::parse(&octets) {
                            for from in &self.answering {
                                then.push(Then::Answer(cookie, *from, packet.src.ip(), packet.src.port()));
                            }
                        }
                        self.sent.push(Sent {
                            at: self.now,
                            stream: None,
                            src: Some(packet.src),
                            dst: Some(packet.dst),
                            options: packet.options.to_vec(),
                            tos: packet.tos,
                            label: packet.flow_label,
                            octets,
                            write: self.writes,
                        });
                    }
                    Output::RouteLookup { id, query } => {
                        self.lookups += 1;
                        then.push(Then::Route(id, query.dst));
                    }
                    Output::Discover { id, mechanism, dst } => self.discovers.push((id, mechanism, dst)),
                    Output::Open { stream, transport, local, peer } => {
                        self.opened.push((stream, transport, local, peer));
                        if self.accepting {
                            let near = peer.ip().to_string().starts_with("10.0.0.");
                            let chosen = local.is_none().then(|| ip(if near { NEAR } else { FAR }));
                            then.push(Then::Connect(stream, transport, chosen));
                        }
                    }
                    Output::Write { stream, octets } => {
                        self.writes += 1;
                        let mut rest = octets;
                        while let Ok(Some(length)) = frame(rest, u32::MAX) {
                            let (one, behind) = rest.split_at(length);
                            self.sent.push(Sent {
                                at: self.now,
                                stream: Some(stream),
                                src: None,
                                dst: None,
                                options: Vec::new(),
                                tos: 0,
                                label: 0,
                                octets: one[LENGTH_HEADER..].to_vec(),
                                write: self.writes,
                            });
                            rest = behind;
                        }
                        assert!(rest.is_empty(), "a part of a message: {octets:02x?}");
                        if self.reading {
                            then.push(Then::Drained(stream));
                        }
                    }
                    Output::Close { stream } => self.closed.push(stream),
                    Output::Indication { client, indication } => {
                        if let Indication::Received(arrival) = &indication
                            && arrival.id != 0
                        {
                            then.push(Then::Decide(client, arrival.id));
                        }
                        self.indicated.push((client, indicated(&indication)));
                    }
                }
            }
            if then.is_empty() {
                return;
            }
            for step in then {
                match step {
                    Then::Route(id, dst) => {
                        let src = if dst.is_ipv4() { ip(FAR) } else { ip("2001:db8:1::1") };
                        let result = self.gateway.map(|gateway| Route {
                            ifindex: IfIndex(2),
                            src,
                            gateway,
                            mtu: 1500,
                            local: false,
                        });
                        self.node.handle(self.now, Input::Route { id, result });
                    }
                    Then::Answer(cookie, from, to, port) => self.response(cookie, COOKIE, from, to, port),
                    Then::Connect(stream, transport, chosen) => {
                        if let Some(local) = chosen {
                            self.node.handle(self.now, Input::Opening { stream, local });
                        }
                        let identity = if transport == Transport::Tls { identity(9) } else { None };
                        self.node.handle(self.now, Input::Connected { stream, identity });
                    }
                    Then::Drained(stream) => self.node.handle(self.now, Input::Drained { stream, unsent: 0 }),
                    Then::Decide(client, id) => {
                        if let Some(verdict) = self.verdict {
                            let request = Request::Verdict { id, verdict };
                            self.node.handle(self.now, Input::Request { client, request });
                        }
                    }
                }
            }
        }
    }

    /// A Scout Response arrives. The outputs are not drained yet.
    pub(crate) fn response(
        &mut self,
        initiator: Cookie,
        responder: Cookie,
        from: IpAddr,
        to: IpAddr,
        port: u16,
    ) {
        let mut octets = Vec::new();
        Message::ScoutResponse { initiator, responder }.encode(&mut octets).unwrap();
        let packet = packet(port, from, to, &[], &octets);
        self.node.handle(self.now, Input::Packet(packet));
    }

    /// A connection from a node.
    pub(crate) fn accept(&mut self, from: &str) -> StreamId {
        self.accept_by(from, Transport::Tcp, None)
    }

    pub(crate) fn accept_by(
        &mut self,
        from: &str,
        transport: Transport,
        identity: Option<Arc<Identity>>,
    ) -> StreamId {
        let stream = StreamId(self.next_stream);
        self.next_stream += 2;
        let peer = SocketAddr::new(ip(from), 40000);
        let local = ip(if from.starts_with("10.0.1.") { FAR } else { NEAR });
        self.input(Input::Accepted { stream, transport, local, peer, identity });
        stream
    }

    /// A node connects by TCP to this address of the node.
    pub(crate) fn accept_at(&mut self, from: &str, local: &str) -> StreamId {
        let stream = StreamId(self.next_stream);
        self.next_stream += 2;
        let (local, peer) = (ip(local), SocketAddr::new(ip(from), 40000));
        self.input(Input::Accepted { stream, transport: Transport::Tcp, local, peer, identity: None });
        stream
    }

    /// What the node says after a message over a stream.
    pub(crate) fn say(&mut self, stream: StreamId, message: &Signaling<'_>) -> Vec<Sent> {
        let mut octets = Vec::new();
        framed(&mut octets, |octets| message.encode(octets)).unwrap();
        self.octets(stream, &octets)
    }

    pub(crate) fn octets(&mut self, stream: StreamId, octets: &[u8]) -> Vec<Sent> {
        self.sent.clear();
        self.input(Input::Octets { stream, octets });
        self.sent.clone()
    }

    /// What the node says after a message in a datagram.
    pub(crate) fn datagram(&mut self, from: &str, to: &str, message: &Signaling<'_>) -> Vec<Sent> {
        let mut octets = Vec::new();
        message.encode(&mut octets).unwrap();
        self.sent.clear();
        self.input(Input::Packet(packet(50003, ip(from), ip(to), &[], &octets)));
        self.sent.clone()
    }

    pub(crate) fn request(&mut self, client: ClientType, request: Request<'_>) -> Vec<Sent> {
        self.sent.clear();
        self.input(Input::Request { client, request });
        self.sent.clone()
    }

    /// A client of the node opens a session.
    pub(crate) fn open(&mut self, hold: bool) -> SessionId {
        let send = SendRequest { hold, ..SendRequest::new(None, flow(), b"hello") };
        self.request(CLIENT, Request::Send(send));
        match self.indicated.iter().rev().find_map(|(_, indicated)| match indicated {
            Indicated::Opened(_, session) => Some(*session),
            _ => None,
        }) {
            Some(session) => session,
            None => panic!("{:?}", self.indicated),
        }
    }

    /// Lets time pass. The result is what the node says in the meantime.
    pub(crate) fn wait(&mut self, time: Duration) -> Vec<Sent> {
        self.sent.clear();
        let end = self.now + time;
        while let Some(next) = self.node.next_deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.input(Input::Timer);
        }
        self.now = end;
        self.input(Input::Timer);
        self.sent.clone()
    }

    /// The only session.
    pub(crate) fn state(&self) -> SessionView {
        let all: Vec<_> = self.node.sessions().collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().unwrap()
    }

    /// The stream that the node opened to an address last.
    pub(crate) fn stream_to(&self, address: &str) -> StreamId {
        let found = self.opened.iter().rev().find(|(.., peer)| peer.ip() == ip(address));
        found.unwrap_or_else(|| panic!("{:?}", self.opened)).0
    }

    pub(crate) fn take_indicated(&mut self) -> Vec<Indicated> {
        core::mem::take(&mut self.indicated).into_iter().map(|(_, indicated)| indicated).collect()
    }

    /// A session over a previous and a next hop, both by TCP. The result is the stream of each.
    pub(crate) fn chain(&mut self) -> (StreamId, StreamId) {
        let up = self.accept(UP);
        self.say(up, &message());
        let down = self.stream_to(DOWN);
        self.sent.clear();
        (up, down)
    }
}

pub(crate) fn packet<'a>(
    port: u16,
    from: IpAddr,
    to: IpAddr,
    options: &'a [u8],
    payload: &'a [u8],
) -> Received<'a> {
    Received { options, ..kit::packet(port, from, to, payload) }
}

/// The messages that are not scout's.
pub(crate) fn signaling(outputs: &[Sent]) -> Vec<Sent> {
    outputs.iter().filter(|one| !one.is_scout()).cloned().collect()
}

pub(crate) fn scouts(outputs: &[Sent]) -> Vec<Sent> {
    outputs.iter().filter(|one| one.is_scout()).cloned().collect()
}

/// The one message that was sent over a stream.
pub(crate) fn only(outputs: &[Sent], stream: StreamId) -> Sent {
    let found: Vec<_> = outputs.iter().filter(|one| one.stream == Some(stream)).cloned().collect();
    assert_eq!(found.len(), 1, "{outputs:?}");
    found.into_iter().next().unwrap()
}

pub(crate) fn cookie_of(sent: &Sent) -> Option<Cookie> {
    match sent.message().proof {
        Some(Proof::Cookie(cookie)) => Some(cookie),
        Some(Proof::Unknown) | None => None,
    }
}
