//! A node under a script: packets are injected at explicit times, and its outputs are checked one by one. Timers fire
//! meanwhile at exactly the times that the engine requests.

use core::net::{IpAddr, SocketAddr};
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use signalbox_core::mri::PathCoupled;
use signalbox_core::node::{Interface, Route};
use signalbox_core::service::{MessageHandle, MessageStatus, NetworkEvent, Request, SendError, SendMessage};
use signalbox_core::{Direction, IfIndex, Mri, NslpId, SessionId, Time};
use signalbox_gist::engine::{Config, Input, PeeringPolicy, RoutingState, SessionView};
use signalbox_gist::kit;
pub(crate) use signalbox_gist::kit::{ALERT, Delivery, NSLP, Node, Out, Over, Packet, Peer, Via};
use signalbox_gist::wire::{Encapsulation, GistError, Message, MessageType, Nli, PORT};

/// An application that the node lacks.
pub(crate) const OTHER: NslpId = NslpId(999);
pub(crate) const SESSION: SessionId = SessionId([0xa5; 16]);
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

/// The ways of packets to the node.
pub(crate) trait Ways {
    /// A packet from a peer directly to the node.
    fn direct(from: &str, to: &str) -> Self;
    /// A Q-mode packet, intercepted on the left interface.
    fn intercepted(src: &str, dst: &str) -> Self;
}

impl Ways for Via {
    fn direct(from: &str, to: &str) -> Self {
        let ifindex = IfIndex(if ip(to) == ip(RIGHT) { 2 } else { 1 });
        Self::normal(ifindex, at_port(from), at_port(to))
    }

    fn intercepted(src: &str, dst: &str) -> Self {
        Self::q_mode(IfIndex(1), at_port(src), at_port(dst))
    }
}

pub(crate) const ROUTE: Route = kit::route(IfIndex(2), IpAddr::V4(core::net::Ipv4Addr::new(10, 2, 0, 1)));

pub(crate) struct Rig(pub(crate) Node);

impl Deref for Rig {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.0
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Node {
        &mut self.0
    }
}

pub(crate) fn interface(number: u32, addresses: &[&str]) -> Interface {
    kit::interface(number, addresses.iter().map(|a| ip(a)).collect())
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
        let mut node = Node::new(config, policy, [seed; 32]).unwrap();
        node.route = Some(Ok(ROUTE));
        node.handle(Input::Interfaces(&interfaces()));
        Self(node)
    }

    /// Advances the time to `ms` after the start.
    pub(crate) fn until(&mut self, ms: u64) {
        self.0.until(Time::from_millis(ms));
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
        let mut message = SendMessage { handle: Some(MessageHandle(1)), ..kit::message(data, mri, SESSION) };
        tweak(&mut message);
        self.handle(Input::Request(Request::SendMessage(message)));
    }

    pub(crate) fn lifetime(&mut self, mri: Mri, session: Option<SessionId>, lifetime: Duration) {
        self.handle(Input::Request(Request::SetStateLifetime { nslp: NSLP, mri, session, lifetime }));
    }

    // Packets

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
        let mut message = peer(b"down", DOWN).response_with(&query.message(), b"downstream peer.");
        tweak(&mut message);
        self.inject(&Via::direct(DOWN, RIGHT), &message);
    }

    /// Confirms `response` of the node from `UP`.
    pub(crate) fn confirm(&mut self, response: &Packet) {
        self.confirm_with(response, |_| {});
    }

    pub(crate) fn confirm_with<'a>(&mut self, response: &'a Packet, tweak: impl FnOnce(&mut Message<'a>)) {
        let mut message = peer(b"up", UP).confirm(&response.message());
        tweak(&mut message);
        self.inject(&Via::direct(UP, LEFT), &message);
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
        let encapsulation = Encapsulation::of(&about.message().header, true);
        let message = peer(b"peer", from).error(error, about.octets(), encapsulation);
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
    kit::datagram(message).unwrap()
}

pub(crate) fn peer<'a>(identity: &'a [u8], address: &str) -> Peer<'a> {
    Peer::new(identity, ip(address))
}

pub(crate) fn nli<'a>(identity: &'a [u8], address: &str) -> Nli<'a> {
    peer(identity, address).nli
}

pub(crate) fn query<'a>(mri: Mri, cookie: &'a [u8]) -> Message<'a> {
    peer(b"up", UP).query(mri, SESSION, cookie)
}

pub(crate) fn data<'a>(mri: Mri, nli: Nli<'a>, data: &'a [u8]) -> Message<'a> {
    Peer { nli, ..peer(b"up", UP) }.data(mri, SESSION, data)
}
