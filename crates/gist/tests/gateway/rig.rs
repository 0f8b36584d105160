//! A gateway under a script: packets go in at explicit times, and what it sends and asks of the kernel is checked.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::mri::PathCoupled;
use signalbox_core::node::Interface;
use signalbox_core::packet::{Received, router_alert_v4};
use signalbox_core::pinhole::{Endpoint, Pinhole, PinholeError, PinholeId, Translation};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{Direction, Entry, IfIndex, Mri, NslpId, SessionId, Time};
use signalbox_gist::gateway::{Config, Counters, Forward, Gateway, Input, Output};
use signalbox_gist::wire::{
    Encapsulation, ErrorObject, GistError, Header, Infos, List, MAGIC, MaOptions, MaProtocolId, Message,
    MessageType, Nli, Profile, StackConfiguration, StackProposal, strip_magic,
};
use signalbox_wire::Writer;

pub(crate) const NSLP: NslpId = NslpId::PING;
pub(crate) const SESSION: SessionId = SessionId([0xa5; 16]);
pub(crate) const COOKIE: [u8; 8] = [0xc0; 8];
/// Inside: the gateway, two hosts. Outside: the gateway, two hosts.
pub(crate) const GATE: &str = "10.0.0.1";
pub(crate) const HOST: &str = "10.0.0.2";
pub(crate) const SECOND: &str = "10.0.0.3";
pub(crate) const EXTERNAL: &str = "203.0.113.1";
pub(crate) const FAR: &str = "198.51.100.20";
pub(crate) const FAR2: &str = "198.51.100.21";
pub(crate) const INSIDE: u32 = 1;
pub(crate) const OUTSIDE: u32 = 2;

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

pub(crate) fn nli(address: &str) -> Nli<'static> {
    Nli { peer_identity: b"node-in1", ip_ttl: 64, validity_ms: 30_000, interface: ip(address) }
}

pub(crate) fn query(flow: PathCoupled, address: &str) -> Message<'static> {
    let mut message = Message::new(MessageType::QUERY, NSLP, 16);
    message.header.s = true;
    (message.mri, message.session) = (Some(Mri::PathCoupled(flow).into()), Some(SESSION));
    (message.nli, message.query_cookie) = (Some(nli(address)), Some(&COOKIE[..]));
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
    let mut message = Message::new(MessageType::RESPONSE, query.header.nslp, 16);
    (message.nat_traversal, message.session) = (query.nat_traversal, query.session);
    message.mri = query.mri.map(|mri| mri.inverted());
    message.nli = Some(Nli { peer_identity: b"responder", ..nli(address) });
    message.query_cookie = query.query_cookie;
    if query.stack_proposal.is_some() {
        (message.responder_cookie, message.header.r) = (Some(&[0xee; 16][..]), true);
        return with_tls(message);
    }
    message
}

/// The Error of a node at `address` about a Query as it was received.
pub(crate) fn error<'a>(query: &Message<'a>, address: &str, error: GistError) -> Message<'a> {
    let mut message = Message::new(MessageType::ERROR, NslpId::NONE, 16);
    message.nat_traversal = query.nat_traversal;
    message.nli = Some(nli(address));
    message.error = ErrorObject::about(error, query.octets, Encapsulation::QMode, Infos::NONE);
    message
}

pub(crate) fn encode(message: &Message<'_>) -> Vec<u8> {
    let mut octets = MAGIC.to_vec();
    message.encode(&mut Writer::new(&mut octets)).unwrap();
    octets
}

/// The headers of a packet to the gateway.
#[derive(Debug, Clone)]
pub(crate) struct Via {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) ifindex: u32,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) options: Vec<u8>,
}

impl Via {
    /// A Q-mode packet.
    pub(crate) fn q_mode(ifindex: u32, src: SocketAddr, dst: &str) -> Self {
        let options = router_alert_v4(7).to_vec();
        Self { src, dst: at(dst, 270), ifindex, ttl: 64, tos: 0xb8, options }
    }

    /// A packet from peer to peer.
    pub(crate) fn normal(ifindex: u32, src: SocketAddr, dst: SocketAddr) -> Self {
        Self { src, dst, ifindex, ttl: 64, tos: 0, options: Vec::new() }
    }
}

/// A packet that the gateway sent.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) ifindex: Option<IfIndex>,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) dont_fragment: bool,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    pub(crate) fn octets(&self) -> &[u8] {
        strip_magic(&self.payload).unwrap()
    }

    pub(crate) fn message(&self) -> Message<'_> {
        let header = Header::parse(self.octets()).unwrap();
        Message::parse(self.octets(), Encapsulation::of(&header, true)).unwrap()
    }

    pub(crate) fn mri(&self) -> PathCoupled {
        match self.message().mri.unwrap().mri {
            Mri::PathCoupled(p) => p,
            Mri::LooseEnd(_) => panic!("loose end"),
        }
    }

    pub(crate) fn error(&self) -> GistError {
        self.message().error.unwrap().error
    }

    /// Number of entries of NATs in the NAT-Traversal object.
    pub(crate) fn nats(&self) -> usize {
        self.message().nat_traversal.unwrap().replaced.len()
    }
}

/// A binding as the kernel has it.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    pub(crate) id: PinholeId,
    pub(crate) pinhole: Pinhole,
    pub(crate) lifetime: Duration,
}

pub(crate) struct Rig {
    pub(crate) gateway: Gateway,
    pub(crate) now: Time,
    sent: VecDeque<Packet>,
    /// What the gateway asked the kernel for since the last look.
    opened: Vec<Open>,
    /// Bindings that the kernel has.
    pub(crate) standing: Vec<Open>,
    /// The kernel has not answered yet: the answers wait in `asked`.
    pub(crate) slow: bool,
    asked: Vec<Open>,
    /// The kernel's answer.
    pub(crate) refusal: Option<PinholeError>,
    /// The packets that the kernel translates already.
    pub(crate) tracked: Vec<(FlowFilter, Translation)>,
    /// Number of questions about flows.
    pub(crate) questions: usize,
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

pub(crate) fn interface(number: u32, address: &str, mtu: u32) -> Interface {
    let name = format!("eth{number}");
    Interface { ifindex: IfIndex(number), name, up: true, mtu, tunnel: false, addresses: vec![ip(address)] }
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
        let gateway = Gateway::new(config, [seed; 32]).unwrap();
        let mut rig = Self {
            gateway,
            now: Time::ZERO,
            sent: VecDeque::new(),
            opened: Vec::new(),
            standing: Vec::new(),
            slow: false,
            asked: Vec::new(),
            refusal: None,
            tracked: Vec::new(),
            questions: 0,
        };
        let all = [interface(INSIDE, inside, 1500), interface(OUTSIDE, outside, 1500)];
        rig.gateway.handle(rig.now, Input::Interfaces(&all));
        rig
    }

    pub(crate) fn mtu(&mut self, mtu: u32) {
        let all = [interface(INSIDE, GATE, 1500), interface(OUTSIDE, EXTERNAL, mtu)];
        self.gateway.handle(self.now, Input::Interfaces(&all));
    }

    pub(crate) fn inject(&mut self, via: &Via, payload: &[u8]) {
        let packet = Received {
            entry: Entry::Udp(270),
            src: via.src,
            dst: via.dst,
            ifindex: IfIndex(via.ifindex),
            ttl: via.ttl,
            tos: via.tos,
            options: &via.options,
            payload,
        };
        self.gateway.handle(self.now, Input::Datagram(packet));
        self.drain();
    }

    /// A Query of the host inside, from its own address.
    pub(crate) fn outward(&mut self, message: &Message<'_>) {
        let src = SocketAddr::new(message.nli.unwrap().interface, 270);
        let dst = message.mri.unwrap().mri.target().to_string();
        self.inject(&Via::q_mode(INSIDE, src, &dst), &encode(message));
    }

    /// A Query of a host outside to the external address.
    pub(crate) fn inward(&mut self, message: &Message<'_>) {
        let src = SocketAddr::new(message.nli.unwrap().interface, 270);
        self.inject(&Via::q_mode(OUTSIDE, src, EXTERNAL), &encode(message));
    }

    pub(crate) fn drain(&mut self) {
        loop {
            let (mut asked, mut sought) = (Vec::new(), Vec::new());
            while let Some(output) = self.gateway.poll() {
                match output {
                    Output::Transmit(t) => self.sent.push_back(Packet {
                        src: t.src,
                        dst: t.dst,
                        ifindex: t.ifindex,
                        ttl: t.ttl,
                        tos: t.tos,
                        dont_fragment: t.dont_fragment,
                        options: t.options.to_vec(),
                        payload: t.payload.to_vec(),
                    }),
                    Output::Open { id, pinhole, lifetime } => asked.push(Open { id, pinhole, lifetime }),
                    Output::Close { id } => self.standing.retain(|open| open.id != id),
                    Output::Find { id, packets } => sought.push((id, packets)),
                }
            }
            if asked.is_empty() && sought.is_empty() {
                return;
            }
            let found_any = !sought.is_empty();
            for (id, packets) in sought {
                self.questions += 1;
                let found = self.tracked.iter().find(|(tracked, _)| *tracked == packets);
                let translation = found.map(|(_, translation)| *translation);
                self.gateway.handle(self.now, Input::Found { id, translation });
            }
            if self.slow {
                self.asked.extend(asked);
                if found_any {
                    continue;
                }
                return;
            }
            for open in asked {
                let result = self.refusal.map_or(Ok(()), Err);
                let id = open.id;
                if result.is_ok() {
                    self.standing.retain(|standing| standing.id != id);
                    self.standing.push(open.clone());
                }
                self.opened.push(open);
                self.gateway.handle(self.now, Input::Opened { id, result });
            }
        }
    }

    /// Gives the kernel's answer to the oldest request that waits; false if no request waits.
    pub(crate) fn answer(&mut self) -> bool {
        let Some(open) = (!self.asked.is_empty()).then(|| self.asked.remove(0)) else { return false };
        let result = self.refusal.map_or(Ok(()), Err);
        if result.is_ok() {
            self.standing.push(open.clone());
        }
        self.gateway.handle(self.now, Input::Opened { id: open.id, result });
        self.drain();
        true
    }

    /// Goes on to a time, with the timers on the way.
    pub(crate) fn until(&mut self, seconds: u64) {
        let end = Time::from_secs(seconds);
        while let Some(deadline) = self.gateway.next_deadline().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            self.gateway.handle(self.now, Input::Timer);
            self.drain();
        }
        self.now = end;
    }

    /// The only packet that the gateway has sent since the last look.
    pub(crate) fn sent(&mut self) -> Packet {
        let packet = self.sent.pop_front().expect("nothing was sent");
        assert!(self.sent.is_empty(), "more was sent: {:?}", self.sent);
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
