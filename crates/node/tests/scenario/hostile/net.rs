//! A router between a sender and a receiver, and a third link by which strangers send.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use signalbox_boomerang::wire::{Ends, edit};
use signalbox_core::node::{Input, NodeEngine, Output, Prefix};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{SessionId, Time};
use signalbox_node::boomerang;
use signalbox_node::casp::{self, FlowId, RequestOf, SendRequestOf};
use signalbox_node::gist::AssociationConfig;
use signalbox_node::natfw;
use signalbox_node::ping::{self, PingRequest};
use signalbox_node::qos::{self, Flow, QosRequest, QueryRequest, ReserveRequest};
use signalbox_node::resources::intserv::TSpec;
use signalbox_node::resources::{Config as Resources, Rate, config::LinkConfig as Capacity};
use signalbox_node::rsvp::{
    self, Filter, FlowRequest, FlowSpec, Selector, SenderRequest, Session, SessionKind, Style,
};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Captured, Family, LinkConfig, LinkId, NextHop, NodeId, Packet, Sim};

use crate::net::WALL_US;
use crate::one_hop::OneHop;
use crate::{boomerang::net::request, natfw::net::open};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// The IP protocol of RSVP, and that of Boomerang.
pub(crate) const RSVP: u8 = 46;
pub(crate) const ICMP: u8 = 1;

/// The CASP client of another process.
const CLIENT: u8 = 200;

/// A forged source. Packets to it leave the router by the third link.
pub(crate) fn forged(number: u32) -> IpAddr {
    IpAddr::V4((0xc612_0000 + (number & 0x1_ffff)).into())
}

/// A node that counts the outputs of each packet.
pub(crate) struct Host {
    pub(crate) node: Node,
    packet: bool,
    outputs: usize,
    /// The most outputs of one packet.
    pub(crate) most: usize,
    /// Its Data messages have GIST hop count 1.
    pub(crate) one_hop: Option<OneHop>,
}

impl Host {
    pub(crate) fn new(config: &Config, seed: [u8; 32]) -> Self {
        Self {
            node: Node::new(config.clone(), seed).unwrap(),
            packet: false,
            outputs: 0,
            most: 0,
            one_hop: None,
        }
    }
}

impl NodeEngine for Host {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        (self.packet, self.outputs) = (matches!(input, Input::Packet(_)), 0);
        self.node.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        let output = self.node.poll()?;
        self.outputs += 1;
        if self.packet {
            self.most = self.most.max(self.outputs);
        }
        Some(match &mut self.one_hop {
            Some(one_hop) => one_hop.rewrite(output),
            None => output,
        })
    }

    fn entries(&self) -> Vec<signalbox_core::EntryRequest> {
        self.node.entries()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.node.next_deadline()
    }
}

/// All protocols, with their defaults. Associations are offered.
pub(crate) fn config() -> Config {
    let links = (0..3).map(|n| Capacity::new(&format!("eth{n}"), Some(Rate(12_500_000))));
    let mut config = Config {
        wall_clock_us: WALL_US,
        ping: Some(ping::Config::default()),
        qos: Some(qos::Config::default()),
        rsvp: Some(rsvp::Config::default()),
        natfw: Some(natfw::Config { edge: true, ..natfw::Config::default() }),
        boomerang: Some(boomerang::Config::default()),
        casp: Some(casp::Config::default()),
        resources: Resources { links: links.collect(), ..Resources::default() },
        ..Config::default()
    };
    let gist = crate::net::gist(&mut config);
    gist.associations =
        AssociationConfig { tcp_port: Some(270), sctp_port: Some(270), ..AssociationConfig::default() };
    config
}

/// The same without refreshes: what leaves after a packet leaves because of it.
pub(crate) fn silent(reduction: bool) -> Config {
    let mut config = config();
    let gist = crate::net::gist(&mut config);
    (gist.validity, gist.inactivity) = (HOUR, HOUR);
    if let Some(qos) = &mut config.qos {
        (qos.refresh, qos.max_lifetime) = (HOUR, 12 * HOUR);
    }
    if let Some(rsvp) = &mut config.rsvp {
        rsvp.interface.refresh = HOUR;
        rsvp.neighbors.interface.reduction.reliable = reduction;
    }
    if let Some(natfw) = &mut config.natfw {
        (natfw.refresh, natfw.max_lifetime) = (HOUR, 12 * HOUR);
        // An association would send Hellos.
        natfw.reliable = false;
    }
    if let Some(boomerang) = &mut config.boomerang {
        (boomerang.refresh, boomerang.max_refresh) = (u8::MAX, u8::MAX);
    }
    if let Some(casp) = &mut config.casp {
        (casp.engine.refresh, casp.engine.max_timeout) = (HOUR, 12 * 3600);
        casp.engine.transport = casp::Transport::Udp;
    }
    config
}

pub(crate) struct Net {
    pub(crate) sim: Sim<Host>,
    pub(crate) sender: NodeId,
    pub(crate) router: NodeId,
    pub(crate) receiver: NodeId,
    /// The links of the sender, of the receiver and of strangers.
    pub(crate) up: LinkId,
    pub(crate) down: LinkId,
    pub(crate) side: LinkId,
}

impl Net {
    pub(crate) fn new(seed: u64, config: &Config) -> Self {
        let mut sim = Sim::new(seed);
        let [sender, router, receiver] = ["sender", "router", "receiver"].map(|name| {
            let mut config = config.clone();
            if let Some(natfw) = config.natfw.as_mut().filter(|_| name == "router") {
                // The sender is inside.
                natfw.middlebox = natfw::Middlebox::Firewall;
                (natfw.inside, natfw.outside) = (vec!["eth0".into()], vec!["eth1".into(), "eth2".into()]);
            }
            let casp = config.casp.as_mut().and_then(|casp| casp.natfw.as_mut());
            if let Some(natfw) = casp.filter(|_| name == "router") {
                (natfw.role, natfw.inside) = (casp::NatfwRole::Firewall, vec!["eth0".into()]);
            }
            if let Some(boomerang) = config.boomerang.as_mut().filter(|_| name != "router") {
                boomerang.prove = false;
            }
            sim.add_engine(name, move |boot| Host::new(&config, boot.seed))
        });
        let stranger = sim.add_router("stranger");
        let [up, down, side] =
            [sender, receiver, stranger].map(|other| sim.link(router, other, &LinkConfig::default()));
        let strangers = Prefix { addr: forged(0), len: 15 };
        for node in [sender, router, receiver] {
            sim.set_route(
                node,
                strangers,
                NextHop::Link(match node {
                    node if node == sender => up,
                    node if node == receiver => down,
                    _ => side,
                }),
            );
        }
        sim.capture_all();
        sim.run_for(Duration::ZERO);
        for node in [sender, router, receiver].into_iter().filter(|_| config.casp.is_some()) {
            let command = casp::Command::Register { client: CLIENT, stateless: true };
            sim.command(node, Command::Casp { id: 1, command });
        }
        Self { sim, sender, router, receiver, up, down, side }
    }

    pub(crate) fn address(&self, node: NodeId) -> IpAddr {
        self.sim.address(node, Family::V4)
    }

    fn flow(&self, port: u16) -> Flow {
        Flow { protocol: Some(17), dst_port: Some(port), ..Flow::to(self.address(self.receiver)) }
    }

    pub(crate) fn qos(&mut self, id: u16, command: qos::Command) {
        self.sim.command(self.sender, Command::Qos { id: id.into(), command });
    }

    /// Reserves for a flow to this port by the QoS NSLP.
    pub(crate) fn reserve(&mut self, port: u16) {
        let request = ReserveRequest::new(self.flow(port), QosRequest::rate(12_500));
        self.qos(port, qos::Command::Reserve(Box::new(request)));
    }

    pub(crate) fn query(&mut self, id: u16) {
        let request = QueryRequest::new(self.flow(id), QosRequest::rate(12_500));
        self.qos(id, qos::Command::Query(Box::new(request)));
    }

    pub(crate) fn ping(&mut self, id: u64, count: Option<u32>, interval: Duration) {
        let request = PingRequest { count, interval, ..PingRequest::to(self.address(self.receiver)) };
        self.sim.command(self.sender, Command::Ping { id, command: ping::Command::Start(request) });
    }

    pub(crate) fn session(&self, port: u16) -> Session {
        Session { dest: self.address(self.receiver), protocol: 17, kind: SessionKind::Ports, port }
    }

    pub(crate) fn template(&self) -> Filter {
        Filter { src: self.address(self.sender), selector: Selector::Port(4000) }
    }

    pub(crate) fn rsvp(&mut self, node: NodeId, id: u16, command: rsvp::Command) {
        self.sim.command(node, Command::Rsvp { id: id.into(), command });
    }

    /// Reserves for a flow to this port by RSVP.
    pub(crate) fn rsvp_reserve(&mut self, port: u16) {
        let (template, tspec) = (self.template(), tspec());
        let request = SenderRequest::new(template, tspec);
        self.rsvp(self.sender, port, rsvp::Command::Session(self.session(port)));
        self.rsvp(self.sender, port, rsvp::Command::Sender(request));
        let flows = vec![FlowRequest { flowspec: FlowSpec { tspec, rspec: None }, senders: vec![template] }];
        let request = rsvp::ReserveRequest { style: Style::Ff, flows, confirm: true, policy: Box::default() };
        self.rsvp(self.receiver, port, rsvp::Command::Session(self.session(port)));
        self.rsvp(self.receiver, port, rsvp::Command::Reserve(request));
    }

    /// Opens the firewall for a flow to this port.
    pub(crate) fn passage(&mut self, port: u16) {
        self.sim.command(self.sender, passage(self.address(self.receiver), port));
    }

    /// Opens the firewall for a flow to this port by CASP.
    pub(crate) fn casp_passage(&mut self, port: u16) {
        let request = casp::OpenRequest {
            dst: self.address(self.receiver),
            src: None,
            protocol: Some(17),
            src_port: Some(4000),
            dst_port: Some(port),
            receiver_initiated: false,
            lifetime: None,
            terms: casp::NatfwTerms::default(),
            session: None,
        };
        let command = casp::Command::Open(Box::new(request));
        self.sim.command(self.sender, Command::Casp { id: port.into(), command });
    }

    /// Reserves for a flow to this port by Boomerang.
    pub(crate) fn boomerang(&mut self, port: u16) {
        let request = request(self.address(self.receiver), port, &[(64_000, 0)]);
        let command = boomerang::Command::Open(request);
        self.sim.command(self.sender, Command::Boomerang { id: port.into(), command });
    }

    /// A message of a client of CASP about a flow to this port. `tear_down` ends the session; otherwise it is held.
    pub(crate) fn casp(&mut self, port: u16, tear_down: bool) {
        let ends = [self.address(self.sender), self.address(self.receiver)];
        // Another network has other identifiers, as if they were random.
        let number = u128::from(self.sim.seed()) << 16 | u128::from(port);
        let session = SessionId(number.to_be_bytes());
        self.sim.command(self.sender, casp_message(ends, session, port, tear_down));
    }

    /// Whether the router's kernel has an opening for a flow to this port.
    pub(crate) fn is_open(&self, port: u16) -> bool {
        self.sim.pinholes(self.router).any(|(_, one)| one.packets.dst_port == Some(port))
    }

    /// Whether the router has a next hop of a session of CASP to this port.
    pub(crate) fn is_known_to_casp(&self, port: u16) -> bool {
        let casp = self.sim.engine(self.router).and_then(|host| host.node.casp());
        let meant = |flow: FlowId| matches!(flow, FlowId::V4Ports { dst_port, .. } if dst_port == port);
        casp.is_some_and(|casp| casp.sessions().any(|one| meant(one.flow) && !one.next.is_empty()))
    }

    /// The number of reservations in the router's kernel to these ports.
    pub(crate) fn held(&self, ports: core::ops::Range<u16>) -> usize {
        let meant = |port: Option<u16>| port.is_some_and(|port| ports.contains(&port));
        let all = self.sim.reservations(self.router);
        all.filter(|(_, one)| one.filters.iter().any(|filter| meant(filter.dst_port))).count()
    }

    /// Whether the router's kernel has a reservation for the sender's flow to this port. Others may have reserved for theirs.
    pub(crate) fn holds(&self, port: u16) -> bool {
        let sender = Prefix::host(self.address(self.sender));
        let meant = |filter: &FlowFilter| filter.dst_port == Some(port) && filter.src == sender;
        self.sim.reservations(self.router).any(|(_, one)| one.filters.iter().any(meant))
    }

    /// The packets that a node has sent.
    pub(crate) fn sent_by(&self, node: NodeId) -> impl Iterator<Item = &Captured> {
        self.sim.captured().filter(move |one| one.from == node)
    }

    /// The lives of sessions of all protocols. Returns what the router received.
    pub(crate) fn lives(&mut self) -> Vec<Captured> {
        self.reserve(7001);
        self.query(7002);
        self.ping(1, Some(2), 20 * MS);
        self.rsvp_reserve(7003);
        self.passage(7005);
        let expose = crate::natfw::net::expose(self.address(self.receiver));
        self.sim.command(self.sender, Command::Natfw { id: 1, command: natfw::Command::Expose(expose) });
        self.boomerang(7007);
        self.casp(7009, false);
        let ping = casp::PingRequest::to(self.address(self.receiver));
        self.sim.command(self.sender, Command::Casp { id: 2, command: casp::Command::Ping(ping) });
        self.sim.run_for(2 * SECOND);
        assert_eq!(self.held(7001..7008), 3, "{:?}", self.sim.events());
        assert!(self.is_open(7005) && self.is_known_to_casp(7009), "{:?}", self.sim.events());
        self.sim.command(self.sender, Command::Natfw { id: 7005, command: natfw::Command::Close });
        self.sim.command(self.sender, Command::Boomerang { id: 7007, command: boomerang::Command::Close });
        self.casp(7009, true);
        self.qos(7001, qos::Command::Release);
        self.rsvp(self.receiver, 7003, rsvp::Command::Close);
        self.sim.run_for(SECOND);
        self.rsvp(self.sender, 7003, rsvp::Command::Close);
        self.sim.run_for(SECOND);
        self.sim.captured().filter(|one| one.to == self.router).cloned().collect()
    }
}

/// A request of the NATFW NSLP for a flow to this port.
pub(crate) fn passage(to: IpAddr, port: u16) -> Command {
    let command = natfw::Command::Open(open(SocketAddr::new(to, port), natfw::Options::default()));
    Command::Natfw { id: port.into(), command }
}

/// A request of the CASP client for a flow to this port: a message of a session that it holds, or the tear-down.
pub(crate) fn casp_message(ends: [IpAddr; 2], session: SessionId, port: u16, tear_down: bool) -> Command {
    let [IpAddr::V4(src), IpAddr::V4(dst)] = ends else { panic!("{ends:?}") };
    let flow = FlowId::V4Ports { src, dst, src_port: 4000, dst_port: port, protocol: 17 };
    let send = SendRequestOf::new(Some(session), flow, b"session"[..].into());
    let send = if tear_down {
        SendRequestOf { tear_down, data: None, ..send }
    } else {
        SendRequestOf { hold: true, ..send }
    };
    Command::Casp { id: 1, command: casp::Command::Request(RequestOf::Send(send)) }
}

pub(crate) fn tspec() -> TSpec {
    TSpec::new(10_000.0, 3000.0, f32::INFINITY, 64, 1000).unwrap()
}

/// The packet with another source, also in its payload.
pub(crate) fn from_elsewhere(packet: &Packet, src: IpAddr) -> Packet {
    let (IpAddr::V4(old), IpAddr::V4(new)) = (packet.src.ip(), src) else { return packet.clone() };
    let mut packet = packet.clone();
    packet.src.set_ip(src);
    let mut at = 0;
    while let Some(found) = packet.payload[at..].windows(4).position(|four| four == old.octets()) {
        packet.payload[at + found..at + found + 4].copy_from_slice(&new.octets());
        at += found + 4;
    }
    with_checksum(packet)
}

/// The packet with a checksum that fits. RSVP's checksum of zero is no checksum (RFC 2205 §3.1.1).
pub(crate) fn with_checksum(mut packet: Packet) -> Packet {
    if packet.protocol == RSVP && packet.payload.len() >= 4 {
        packet.payload[2..4].fill(0);
    }
    if packet.protocol == ICMP && packet.payload.len() >= 4 {
        let ends = Ends { src: packet.src.ip(), dst: packet.dst.ip() };
        edit::set_checksum(&mut packet.payload, &ends);
    }
    packet
}
