//! A gateway under a script: packets go in at explicit times, and what it sends and asks of the kernel is checked.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::ops::{Deref, DerefMut};

use signalbox_core::mri::PathCoupled;
use signalbox_core::node::Interface;
use signalbox_core::pinhole::Endpoint;
use signalbox_core::{Direction, IfIndex, Mri, SessionId, Time};
use signalbox_gist::gateway::{Config, Counters, Forward, Input};
pub(crate) use signalbox_gist::kit::{Gate, NSLP, Open, Packet, Via};
use signalbox_gist::kit::{Peer, datagram};
use signalbox_gist::wire::{
    Encapsulation, GistError, List, MaOptions, MaProtocolId, Message, MessageType, Profile,
    StackConfiguration, StackProposal,
};

pub(crate) const SESSION: SessionId = SessionId([0xa5; 16]);
pub(crate) const COOKIE: [u8; 8] = [0xc0; 8];
/// Inside: the gateway, two hosts. Outside: the gateway, two hosts.
pub(crate) const GATE: &str = "10.0.0.1";
pub(crate) const HOST: &str = "10.0.0.2";
pub(crate) const SECOND: &str = "10.0.0.3";
pub(crate) const EXTERNAL: &str = "203.0.113.1";
pub(crate) const FAR: &str = "198.51.100.20";
pub(crate) const FAR2: &str = "198.51.100.21";
pub(crate) const INSIDE: IfIndex = IfIndex(1);
pub(crate) const OUTSIDE: IfIndex = IfIndex(2);

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

pub(crate) fn at(text: &str, port: u16) -> SocketAddr {
    (ip(text), port).into()
}

pub(crate) fn endpoint(text: &str, port: u16) -> Option<Endpoint> {
    Some(Endpoint { address: ip(text), port: Some(port) })
}

/// A UDP flow.
pub(crate) fn udp(src: (&str, u16), dst: (&str, u16)) -> PathCoupled {
    PathCoupled {
        protocol: Some(17),
        src_port: Some(src.1),
        dst_port: Some(dst.1),
        ..PathCoupled::between(ip(src.0), ip(dst.0))
    }
}

/// The flow of most tests, from the host inside.
pub(crate) fn outbound() -> PathCoupled {
    udp((HOST, 5000), (FAR, 6000))
}

/// A flow to the external port that is forwarded to the host inside.
pub(crate) fn inbound() -> PathCoupled {
    udp((FAR, 6000), (EXTERNAL, 7000))
}

pub(crate) fn upstream(flow: PathCoupled) -> PathCoupled {
    PathCoupled { direction: Direction::Upstream, ..flow }
}

/// A node at this address.
pub(crate) fn node(address: &str) -> Peer<'static> {
    Peer { hops: 16, ..Peer::new(b"node-in1", ip(address)) }
}

pub(crate) fn query(flow: PathCoupled, address: &str) -> Message<'static> {
    let mut message = node(address).query(Mri::PathCoupled(flow), SESSION, &COOKIE);
    message.header.s = true;
    message
}

static TLS_TCP: [Profile<'static>; 1] = [Profile(&[2, 1])];
static NO_PORT: [MaOptions<'static>; 1] =
    [MaOptions { protocol: MaProtocolId::FORWARDS_TCP, profile: 0, disabled: false, data: &[] }];
static PORT_6123: [MaOptions<'static>; 1] = [MaOptions {
    protocol: MaProtocolId::FORWARDS_TCP,
    profile: 0,
    disabled: false,
    data: &[0x17, 0xeb, 0, 0],
}];

/// The same message with an offer of TLS over TCP; a Response has port 6123.
pub(crate) fn with_tls(mut message: Message<'_>) -> Message<'_> {
    let options = if message.header.kind == MessageType::QUERY { &NO_PORT } else { &PORT_6123 };
    message.stack_proposal = Some(StackProposal { profiles: List::of(&TLS_TCP) });
    message.stack_configuration =
        Some(StackConfiguration { hold_time_ms: 30_000, options: List::of(options) });
    message
}

/// The port in the Stack-Configuration-Data.
pub(crate) fn offered(message: &Message<'_>) -> Option<u16> {
    message.stack_configuration.unwrap().options.iter().next().unwrap().port()
}

/// The Response of a node at `address` to a Query as it was received.
pub(crate) fn response<'a>(query: &Message<'a>, address: &str) -> Message<'a> {
    let mut responder = node(address);
    responder.nli.peer_identity = b"responder";
    if query.stack_proposal.is_some() {
        return with_tls(responder.response_with(query, &[0xee; 16]));
    }
    responder.response(query)
}

/// The Error of a node at `address` about a Query as it was received.
pub(crate) fn error<'a>(query: &Message<'a>, address: &str, error: GistError) -> Message<'a> {
    let message = node(address).error(error, query.octets, Encapsulation::QMode);
    Message { nat_traversal: query.nat_traversal, ..message }
}

pub(crate) fn encode(message: &Message<'_>) -> Vec<u8> {
    datagram(message).unwrap()
}

/// A Q-mode packet to the GIST port of `dst`, with a DSCP.
pub(crate) fn q_mode(ifindex: IfIndex, src: SocketAddr, dst: &str) -> Via {
    Via { tos: 0xb8, ..Via::q_mode(ifindex, src, at(dst, 270)) }
}

/// What a test reads in a packet that the gateway sent.
pub(crate) trait Translated {
    fn mri(&self) -> PathCoupled;
    /// Number of entries of NATs in the NAT-Traversal object.
    fn nats(&self) -> usize;
}

impl Translated for Packet {
    fn mri(&self) -> PathCoupled {
        match self.message().mri.unwrap().mri {
            Mri::PathCoupled(p) => p,
            Mri::LooseEnd(_) => panic!("loose end"),
        }
    }

    fn nats(&self) -> usize {
        self.message().nat_traversal.unwrap().replaced.len()
    }
}

pub(crate) struct Rig(pub(crate) Gate);

impl Deref for Rig {
    type Target = Gate;

    fn deref(&self) -> &Gate {
        &self.0
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Gate {
        &mut self.0
    }
}

pub(crate) fn config() -> Config {
    Config {
        inside: vec!["eth1".to_owned()],
        outside: vec!["eth2".to_owned()],
        forwards: vec![Forward {
            protocol: 17,
            first_port: 7000,
            last_port: 7009,
            address: v4(HOST),
            port: 5000,
        }],
        ..Config::default()
    }
}

pub(crate) fn interface(index: IfIndex, address: &str, mtu: u32) -> Interface {
    Interface { mtu, ..signalbox_gist::kit::interface(index.0, vec![ip(address)]) }
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: Config) -> Self {
        Self::between(config, [GATE, EXTERNAL], 7)
    }

    /// A gateway with these addresses inside and outside.
    pub(crate) fn between(config: Config, [inside, outside]: [&str; 2], seed: u8) -> Self {
        let mut gate = Gate::new(config, [seed; 32]).unwrap();
        let all = [interface(INSIDE, inside, 1500), interface(OUTSIDE, outside, 1500)];
        gate.handle(Input::Interfaces(&all));
        Self(gate)
    }

    pub(crate) fn mtu(&mut self, mtu: u32) {
        let all = [interface(INSIDE, GATE, 1500), interface(OUTSIDE, EXTERNAL, mtu)];
        self.handle(Input::Interfaces(&all));
    }

    /// A Query of the host inside, from its own address.
    pub(crate) fn outward(&mut self, message: &Message<'_>) {
        let src = SocketAddr::new(message.nli.unwrap().interface, 270);
        let dst = message.mri.unwrap().mri.target().to_string();
        self.packet(&q_mode(INSIDE, src, &dst), &encode(message));
    }

    /// A Query of a host outside to the external address.
    pub(crate) fn inward(&mut self, message: &Message<'_>) {
        let src = SocketAddr::new(message.nli.unwrap().interface, 270);
        self.packet(&q_mode(OUTSIDE, src, EXTERNAL), &encode(message));
    }

    /// Goes on to a time, with the timers on the way.
    pub(crate) fn until(&mut self, seconds: u64) {
        self.0.until(Time::from_secs(seconds));
    }

    /// The only packet that the gateway has sent since the last look.
    pub(crate) fn sent(&mut self) -> Packet {
        let packet = self.0.sent.pop_front().expect("nothing was sent");
        self.quiet();
        packet
    }

    /// The last packet that the gateway has sent since the last look.
    pub(crate) fn last(&mut self) -> Option<Packet> {
        let last = self.sent.pop_back();
        self.sent.clear();
        last
    }

    /// Removes what the gateway has sent.
    pub(crate) fn unwatched(&mut self) {
        self.sent.clear();
    }

    pub(crate) fn quiet(&mut self) {
        assert!(self.sent.is_empty(), "something was sent: {:?}", self.sent);
    }

    /// What the kernel was asked for since the last look.
    pub(crate) fn opened(&mut self) -> Vec<Open> {
        std::mem::take(&mut self.opened)
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.gateway.counters()
    }

    /// The binding of these packets in the kernel: protocol, source, destination.
    pub(crate) fn binding(
        &self,
        protocol: u8,
        src: Option<(&str, Option<u16>)>,
        dst: (&str, u16),
    ) -> Option<&Open> {
        self.standing.iter().find(|open| {
            let packets = &open.pinhole.packets;
            let source = src.is_none_or(|(a, port)| packets.src.addr == ip(a) && packets.src_port == port);
            let any = src.is_some() || packets.src.len == 0;
            let destination = (packets.dst.addr, packets.dst_port) == (ip(dst.0), Some(dst.1));
            packets.protocol == Some(protocol) && source && any && destination
        })
    }
}
