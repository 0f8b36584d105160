//! A node under a script: packets are injected at explicit times, and its outputs are checked one by one. Timers fire
//! meanwhile at exactly the times that the engine requests.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use signalbox_core::mri::PathCoupled;
use signalbox_core::node::{Interface, NoRoute, Route, RouteQuery};
use signalbox_core::packet::{Received, router_alert_v4, router_alert_v6};
use signalbox_core::security::Identity;
use signalbox_core::service::{
    AddressValidation, CheckId, Indication, MessageHandle, MessageStatus, NetworkEvent, Request, SendError,
    SendMessage, SiiHandle, StateHandle, TransferAttributes,
};
use signalbox_core::{Direction, IfIndex, Mri, NslpId, SessionId, Time};
use signalbox_gist::engine::{
    ChannelId, Config, Gist, Input, Output, PeeringPolicy, Registration, RoutingState, SessionView, Transport,
};
use signalbox_gist::wire::{
    Encapsulation, ErrorObject, GistError, Header, Infos, MAGIC, Message, MessageType, Nli, PORT, strip_magic,
};
use signalbox_wire::Writer;

/// The identifier of the application under test.
pub(crate) const NSLP: NslpId = NslpId::PING;
/// An application that the node lacks.
pub(crate) const OTHER: NslpId = NslpId(999);
pub(crate) const SESSION: SessionId = SessionId([0xa5; 16]);
/// Router Alert value of the application.
pub(crate) const ALERT: u16 = 7;
/// Addresses of the node on its two interfaces.
pub(crate) const LEFT: &str = "10.1.0.1";
pub(crate) const RIGHT: &str = "10.2.0.1";
/// Ends of a flow that passes the node from left to right.
pub(crate) const SRC: &str = "10.8.0.8";
pub(crate) const DST: &str = "10.9.0.9";
/// Peers upstream and downstream.
pub(crate) const UP: &str = "10.1.0.2";
pub(crate) const DOWN: &str = "10.2.0.2";

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn at_port(text: &str) -> SocketAddr {
    (ip(text), PORT).into()
}

pub(crate) fn flow(src: &str, dst: &str) -> Mri {
    Mri::PathCoupled(PathCoupled::between(ip(src), ip(dst)))
}

/// The flow through the node.
pub(crate) fn through() -> Mri {
    flow(SRC, DST)
}

/// The flow that begins at the node.
pub(crate) fn own() -> Mri {
    flow(RIGHT, DST)
}

/// A datagram that the node sent.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) ifindex: Option<IfIndex>,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) dont_fragment: bool,
    pub(crate) flow_label: u32,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    /// The octets from the common header on.
    pub(crate) fn octets(&self) -> &[u8] {
        strip_magic(&self.payload).unwrap()
    }

    /// The parsed message.
    pub(crate) fn message(&self) -> Message<'_> {
        let header = Header::parse(self.octets()).unwrap();
        Message::parse(self.octets(), Encapsulation::of(&header, true)).unwrap()
    }

    pub(crate) fn is(self, kind: MessageType) -> Self {
        assert_eq!(self.message().header.kind, kind, "{:?}", self.message());
        self
    }

    /// Checks that it is an Error message with this error.
    pub(crate) fn error_is(self, error: GistError) -> Self {
        assert_eq!(self.message().error.map(|e| e.error), Some(error));
        self
    }

    pub(crate) fn nli(&self) -> Nli<'_> {
        self.message().nli.unwrap()
    }

    pub(crate) fn cookie(&self) -> Vec<u8> {
        self.message().query_cookie.unwrap().to_vec()
    }
}

/// A delivered message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Delivery {
    pub(crate) data: Vec<u8>,
    pub(crate) session: SessionId,
    pub(crate) mri: Mri,
    pub(crate) check: Option<CheckId>,
    pub(crate) state: Option<StateHandle>,
    pub(crate) sii: Option<SiiHandle>,
    pub(crate) peer: Option<Arc<Identity>>,
    pub(crate) peer_address: Option<IpAddr>,
    pub(crate) attributes: TransferAttributes,
    pub(crate) validation: AddressValidation,
    pub(crate) ip_ttl: u8,
    pub(crate) ip_distance: u8,
    pub(crate) hops: u8,
    pub(crate) ifindex: IfIndex,
    pub(crate) at_flow_end: bool,
}

/// An output of the node.
#[derive(Debug, Clone)]
pub(crate) enum Out {
    Sent(Packet),
    Delivered(Delivery),
    Status(MessageHandle, MessageStatus),
    Notified(Direction, NetworkEvent),
    Lookup(u64, RouteQuery),
    Opened(ChannelId, Transport, IpAddr, SocketAddr),
    Over(Over),
    Read(ChannelId, bool),
    Closed(ChannelId, bool),
}

/// A message that the node sent over a channel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Over {
    pub(crate) channel: ChannelId,
    pub(crate) stream: u16,
    pub(crate) lifetime: Option<Duration>,
    pub(crate) octets: Vec<u8>,
}

impl Over {
    /// The parsed message.
    pub(crate) fn message(&self) -> Message<'_> {
        Message::parse(&self.octets, Encapsulation::Association).unwrap()
    }

    pub(crate) fn is(self, kind: MessageType) -> Self {
        assert_eq!(self.message().header.kind, kind, "{:?}", self.message());
        self
    }

    /// Checks that it is an Error message with this error.
    pub(crate) fn error_is(self, error: GistError) -> Self {
        assert_eq!(self.message().error.map(|e| e.error), Some(error));
        self
    }
}

/// The IP header of a received packet.
#[derive(Debug, Clone)]
pub(crate) struct Via {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) ifindex: IfIndex,
    pub(crate) ttl: u8,
    pub(crate) options: Vec<u8>,
}

impl Via {
    /// A packet from a peer directly to the node.
    pub(crate) fn direct(from: &str, to: &str) -> Self {
        let ifindex = IfIndex(if ip(to) == ip(RIGHT) { 2 } else { 1 });
        Self { src: at_port(from), dst: at_port(to), ifindex, ttl: 64, options: Vec::new() }
    }

    /// A Q-mode packet, intercepted on the left interface.
    pub(crate) fn intercepted(src: &str, dst: &str) -> Self {
        let v6 = ip(dst).is_ipv6();
        let options = if v6 { router_alert_v6(ALERT).to_vec() } else { router_alert_v4(ALERT).to_vec() };
        Self { src: at_port(src), dst: at_port(dst), ifindex: IfIndex(1), ttl: 64, options }
    }

    pub(crate) fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }
}

pub(crate) const ROUTE: Route = Route {
    ifindex: IfIndex(2),
    src: IpAddr::V4(core::net::Ipv4Addr::new(10, 2, 0, 1)),
    gateway: None,
    mtu: 1500,
    local: false,
};

pub(crate) struct Rig {
    pub(crate) gist: Gist,
    pub(crate) now: Time,
    pub(crate) out: VecDeque<(Time, Out)>,
    /// The immediate answer to route lookups; `None`: they appear as outputs.
    pub(crate) route: Option<Result<Route, NoRoute>>,
}

pub(crate) fn interface(number: u32, addresses: &[&str]) -> Interface {
    Interface {
        ifindex: IfIndex(number),
        name: format!("eth{number}"),
        up: true,
        mtu: 1500,
        tunnel: false,
        addresses: addresses.iter().map(|a| ip(a)).collect(),
    }
}

pub(crate) fn interfaces() -> Vec<Interface> {
    vec![interface(1, &[LEFT, "2001:db8:1::1"]), interface(2, &[RIGHT, "2001:db8:2::1"])]
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        Self::asking(config, PeeringPolicy::Always)
    }

    pub(crate) fn asking(config: Config, policy: PeeringPolicy) -> Self {
        Self::seeded(config, policy, 1)
    }

    pub(crate) fn seeded(config: Config, policy: PeeringPolicy, seed: u8) -> Self {
        let identity = if config.identity.is_empty() { b"node".to_vec() } else { config.identity.clone() };
        let config = Config { identity, ..config };
        let mut gist = Gist::new(config, [seed; 32]).unwrap();
        gist.register(NSLP, Registration { policy, router_alert: ALERT, router_alert_v6: None });
        let mut rig = Self { gist, now: Time::ZERO, out: VecDeque::new(), route: Some(Ok(ROUTE)) };
        let list = interfaces();
        rig.handle(Input::Interfaces(&list));
        rig
    }

    pub(crate) fn handle(&mut self, input: Input<'_>) {
        self.gist.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        loop {
            let mut answer = None;
            while let Some(output) = self.gist.poll() {
                let out = match output {
                    Output::Transmit(t) => Out::Sent(Packet {
                        src: t.src,
                        dst: t.dst,
                        ifindex: t.ifindex,
                        ttl: t.ttl,
                        tos: t.tos,
                        dont_fragment: t.dont_fragment,
                        flow_label: t.flow_label,
                        options: t.options.to_vec(),
                        payload: t.payload.to_vec(),
                    }),
                    Output::RouteLookup { id, query } => match self.route {
                        Some(result) => {
                            answer = Some((id, result));
                            break;
                        }
                        None => Out::Lookup(id, query),
                    },
                    Output::Indication(Indication::RecvMessage(m)) => {
                        assert_eq!(m.nslp, NSLP);
                        Out::Delivered(Delivery {
                            data: m.data.to_vec(),
                            session: m.session,
                            mri: m.mri,
                            check: m.check,
                            state: m.state,
                            sii: m.sii,
                            peer: m.peer,
                            peer_address: m.peer_address,
                            attributes: m.attributes,
                            validation: m.validation,
                            ip_ttl: m.ip_ttl,
                            ip_distance: m.ip_distance,
                            hops: m.hops,
                            ifindex: m.ifindex,
                            at_flow_end: m.at_flow_end,
                        })
                    }
                    Output::Indication(Indication::MessageStatus { handle, status, .. }) => {
                        Out::Status(handle, status)
                    }
                    Output::Indication(Indication::NetworkNotification { mri, event, .. }) => {
                        Out::Notified(mri.direction(), event)
                    }
                    Output::ChannelOpen { channel, transport, local, peer } => {
                        Out::Opened(channel, transport, local, peer)
                    }
                    Output::ChannelSend { channel, stream, lifetime, octets } => {
                        Out::Over(Over { channel, stream, lifetime, octets: octets.to_vec() })
                    }
                    Output::ChannelRead { channel, on } => Out::Read(channel, on),
                    Output::ChannelClose { channel, abort } => Out::Closed(channel, abort),
                };
                self.out.push_back((self.now, out));
            }
            match answer {
                Some((id, result)) => self.gist.handle(self.now, Input::Route { id, result }),
                None => return,
            }
        }
    }

    /// Advances the time to `ms` after the start.
    pub(crate) fn until(&mut self, ms: u64) {
        let target = Time::from_millis(ms);
        for step in 0.. {
            assert!(step < 100_000, "the engine asks for timers without end");
            match self.gist.next_deadline() {
                Some(due) if due <= target => {
                    self.now = self.now.max(due);
                    self.handle(Input::Timer);
                }
                _ => break,
            }
        }
        self.now = target;
    }

    /// Milliseconds since the start.
    pub(crate) fn ms(&self) -> u64 {
        self.now.as_micros() / 1000
    }

    /// The next output and its time in milliseconds.
    pub(crate) fn next(&mut self) -> (u64, Out) {
        let (time, out) = self.out.pop_front().expect("something comes out");
        (time.as_micros() / 1000, out)
    }

    /// The next output, which must be a packet.
    pub(crate) fn sent(&mut self) -> Packet {
        self.sent_at().1
    }

    pub(crate) fn sent_at(&mut self) -> (u64, Packet) {
        match self.next() {
            (at, Out::Sent(packet)) => (at, packet),
            other => panic!("a packet was expected, not {other:?}"),
        }
    }

    pub(crate) fn delivered(&mut self) -> Delivery {
        match self.next() {
            (_, Out::Delivered(delivery)) => delivery,
            other => panic!("a delivery was expected, not {other:?}"),
        }
    }

    pub(crate) fn status(&mut self) -> (u64, MessageHandle, MessageStatus) {
        match self.next() {
            (at, Out::Status(handle, status)) => (at, handle, status),
            other => panic!("a status was expected, not {other:?}"),
        }
    }

    pub(crate) fn failed(&mut self) -> SendError {
        match self.status() {
            (_, _, MessageStatus::Failed(error)) => error,
            other => panic!("a failure was expected, not {other:?}"),
        }
    }

    pub(crate) fn notified(&mut self) -> (Direction, NetworkEvent) {
        match self.next() {
            (_, Out::Notified(direction, event)) => (direction, event),
            other => panic!("a notification was expected, not {other:?}"),
        }
    }

    /// Checks that there is no (further) output.
    pub(crate) fn quiet(&self) {
        assert!(self.out.is_empty(), "nothing was expected, not {:?}", self.out);
    }

    /// The only session.
    pub(crate) fn session(&self) -> SessionView<'_> {
        let mut all = self.gist.sessions();
        let session = all.next().expect("a session");
        assert!(all.next().is_none());
        session
    }

    pub(crate) fn no_state(&self) {
        assert_eq!(self.gist.sessions().count(), 0);
    }

    /// Names of the states downstream and upstream.
    pub(crate) fn states(&self) -> (Option<RoutingState>, Option<RoutingState>) {
        let view = self.session();
        (view.downstream.map(|d| d.state), view.upstream.map(|d| d.state))
    }

    // Requests

    pub(crate) fn send(&mut self, data: &[u8], mri: Mri) {
        self.send_with(data, mri, |_| {});
    }

    pub(crate) fn send_with(&mut self, data: &[u8], mri: Mri, tweak: impl FnOnce(&mut SendMessage<'_>)) {
        let mut message = SendMessage {
            data,
            handle: Some(MessageHandle(1)),
            nslp: NSLP,
            session: SESSION,
            mri,
            state: None,
            sii: None,
            attributes: TransferAttributes::default(),
            timeout: None,
            ip_ttl: None,
            hops: None,
        };
        tweak(&mut message);
        self.handle(Input::Request(Request::SendMessage(message)));
    }

    pub(crate) fn lifetime(&mut self, mri: Mri, session: Option<SessionId>, lifetime: Duration) {
        self.handle(Input::Request(Request::SetStateLifetime { nslp: NSLP, mri, session, lifetime }));
    }

    // Packets

    pub(crate) fn packet(&mut self, via: &Via, payload: &[u8]) {
        self.handle(Input::Datagram(Received {
            entry: signalbox_core::Entry::Udp(270),
            src: via.src,
            dst: via.dst,
            ifindex: via.ifindex,
            ttl: via.ttl,
            tos: 0,
            options: &via.options,
            payload,
        }));
    }

    pub(crate) fn inject(&mut self, via: &Via, message: &Message<'_>) {
        self.packet(via, &encode(message));
    }

    /// Injects a Query from `UP` for the flow through the node, S=0, as intercepted.
    pub(crate) fn query(&mut self, data: Option<&[u8]>) {
        self.query_numbered(1, data);
    }

    pub(crate) fn query_numbered(&mut self, number: u8, data: Option<&[u8]>) {
        let cookie = [number; 8];
        let mut message = query(through(), &cookie);
        message.nslp_data = data;
        self.inject(&Via::intercepted(SRC, DST), &message);
    }

    /// Answers `query` of the node from `DOWN`.
    pub(crate) fn respond(&mut self, query: &Packet) {
        self.respond_with(query, |_| {});
    }

    pub(crate) fn respond_with<'a>(&mut self, query: &'a Packet, tweak: impl FnOnce(&mut Message<'a>)) {
        let asked = query.message();
        let mut message = Message::new(MessageType::RESPONSE, NSLP, 64);
        message.header.r = true;
        message.mri = asked.mri.map(|m| m.inverted());
        message.session = asked.session;
        message.nli = Some(nli(b"down", DOWN));
        message.query_cookie = asked.query_cookie;
        message.responder_cookie = Some(b"downstream peer.");
        tweak(&mut message);
        let payload = encode(&message);
        self.packet(&Via::direct(DOWN, RIGHT), &payload);
    }

    /// Confirms `response` of the node from `UP`.
    pub(crate) fn confirm(&mut self, response: &Packet) {
        self.confirm_with(response, |_| {});
    }

    pub(crate) fn confirm_with<'a>(&mut self, response: &'a Packet, tweak: impl FnOnce(&mut Message<'a>)) {
        let answered = response.message();
        let mut message = Message::new(MessageType::CONFIRM, NSLP, 64);
        message.mri = answered.mri.map(|m| m.inverted());
        message.session = answered.session;
        message.nli = Some(nli(b"up", UP));
        message.responder_cookie = answered.responder_cookie;
        tweak(&mut message);
        let payload = encode(&message);
        self.packet(&Via::direct(UP, LEFT), &payload);
    }

    /// Data from `UP`, downstream.
    pub(crate) fn data_down(&mut self, data: &[u8]) {
        self.inject(&Via::direct(UP, LEFT), &self::data(through(), nli(b"up", UP), data));
    }

    /// Data from `DOWN`, upstream.
    pub(crate) fn data_up(&mut self, mri: Mri, data: &[u8]) {
        let mri = mri.with_direction(Direction::Upstream);
        self.inject(
            &Via::direct(DOWN, RIGHT),
            &self::data(mri, Nli { ip_ttl: 3, ..nli(b"down", DOWN) }, data),
        );
    }

    /// An Error from `from` about a message of the node.
    pub(crate) fn error(&mut self, from: &str, error: GistError, about: &Packet) {
        let header = about.message().header;
        let encapsulation = Encapsulation::of(&header, true);
        let mut message = Message::new(MessageType::ERROR, NslpId::NONE, 64);
        message.nli = Some(nli(b"peer", from));
        message.error = ErrorObject::about(error, about.octets(), encapsulation, Infos::NONE);
        let to = if from == UP { LEFT } else { RIGHT };
        self.inject(&Via::direct(from, to), &message);
    }

    // Functions that lead to a state

    /// Sets up a Querying-SM for the node's own flow, Established with `DOWN`. Returns Query, Confirm and Data.
    pub(crate) fn established(&mut self) -> (Packet, Packet) {
        self.established_for(own())
    }

    pub(crate) fn established_for(&mut self, mri: Mri) -> (Packet, Packet) {
        self.send(b"data", mri);
        let query = self.sent().is(MessageType::QUERY);
        self.respond(&query);
        let _confirm = self.sent().is(MessageType::CONFIRM);
        let data = self.sent().is(MessageType::DATA);
        let _sent = self.status();
        let (_, event) = self.notified();
        assert!(matches!(event, NetworkEvent::Good(_)));
        self.quiet();
        (query, data)
    }

    /// Sets up a Responding-SM for the flow through the node, Established with `UP`. Returns the Response.
    pub(crate) fn responding(&mut self) -> Packet {
        self.query(None);
        let response = self.sent().is(MessageType::RESPONSE);
        if response.message().header.r {
            self.confirm(&response);
        }
        let (direction, event) = self.notified();
        assert_eq!(direction, Direction::Upstream);
        assert!(matches!(event, NetworkEvent::Good(_)));
        self.quiet();
        response
    }
}

pub(crate) fn encode(message: &Message<'_>) -> Vec<u8> {
    let mut octets = MAGIC.to_vec();
    message.encode(&mut Writer::new(&mut octets)).unwrap();
    octets
}

pub(crate) fn nli<'a>(identity: &'a [u8], address: &str) -> Nli<'a> {
    Nli { peer_identity: identity, ip_ttl: 64, validity_ms: 30_000, interface: ip(address) }
}

pub(crate) fn query<'a>(mri: Mri, cookie: &'a [u8]) -> Message<'a> {
    let mut message = Message::new(MessageType::QUERY, NSLP, 64);
    message.mri = Some(mri.into());
    message.session = Some(SESSION);
    message.nli = Some(nli(b"up", UP));
    message.query_cookie = Some(cookie);
    message
}

pub(crate) fn data<'a>(mri: Mri, nli: Nli<'a>, data: &'a [u8]) -> Message<'a> {
    let mut message = Message::new(MessageType::DATA, NSLP, 64);
    message.mri = Some(mri.into());
    message.session = Some(SESSION);
    message.nli = Some(nli);
    message.nslp_data = Some(data);
    message
}
