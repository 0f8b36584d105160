//! RSVP.

use core::net::IpAddr;
use core::time::Duration;
use std::rc::Rc;

use signalbox_node::resources::intserv::TSpec;
use signalbox_node::resources::{Config as Resources, Rate, config::LinkConfig as Capacity};
use signalbox_node::rsvp::{
    self, Filter, FlowRequest, FlowSpec, ReserveRequest, Selector, SenderRequest, Session, SessionKind, Style,
};
use signalbox_node::{Command, Config, Node};
use signalbox_rsvp::wire::MessageType;
use signalbox_sim::{Captured, Family, LinkConfig, LinkId, NodeId, Packet, Sim, topology};

use super::meter::{Meter, Metered, child};

const MS: Duration = Duration::from_millis(1);

fn tspec() -> TSpec {
    TSpec::new(10_000.0, 3000.0, f32::INFINITY, 64, 1000).unwrap()
}

struct Net {
    sim: Sim<Metered>,
    nodes: [NodeId; 3],
    links: Vec<LinkId>,
    meter: Rc<Meter>,
    style: Style,
}

impl Net {
    fn new(reduction: bool, style: Style) -> Self {
        let mut sim = Sim::new(1);
        let meter = Rc::new(Meter::default());
        let nodes = ["sender", "router", "receiver"].map(|name| {
            let meter = if name == "router" { meter.clone() } else { Rc::default() };
            let links = (0..2).map(|n| Capacity::new(&format!("eth{n}"), Some(Rate(1_250_000_000))));
            let mut rsvp = rsvp::Config::default();
            rsvp.neighbors.interface.reduction.reliable = reduction;
            let config = Config {
                rsvp: Some(rsvp),
                resources: Resources { links: links.collect(), ..Resources::default() },
                ..Config::empty()
            };
            sim.add_engine(name, move |boot| {
                Metered::new(Node::new(config.clone(), boot.seed).unwrap(), meter.clone())
            })
        });
        let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
        sim.run_for(Duration::ZERO);
        Self { sim, nodes, links, meter, style }
    }

    fn address(&self, node: usize) -> IpAddr {
        self.sim.address(self.nodes[node], Family::V4)
    }

    fn command(&mut self, node: usize, id: u16, command: rsvp::Command) {
        self.sim.command(self.nodes[node], Command::Rsvp { id: id.into(), command });
    }

    fn session(&self, port: u16) -> rsvp::Command {
        rsvp::Command::Session(Session {
            dest: self.address(2),
            protocol: 17,
            kind: SessionKind::Ports,
            port,
        })
    }

    fn sender(&mut self, id: u16, port: u16, source_port: u16) -> Filter {
        let template = Filter { src: self.address(0), selector: Selector::Port(source_port) };
        let sender = SenderRequest::new(template, tspec());
        self.command(0, id, self.session(port));
        self.command(0, id, rsvp::Command::Sender(sender));
        template
    }

    fn receiver(&mut self, id: u16, port: u16, senders: Vec<Filter>) {
        let flows = vec![FlowRequest { flowspec: FlowSpec { tspec: tspec(), rspec: None }, senders }];
        let request = ReserveRequest { style: self.style, flows, confirm: true, policy: Box::default() };
        self.command(2, id, self.session(port));
        self.command(2, id, rsvp::Command::Reserve(request));
    }

    /// A session with one sender and one receiver.
    fn open(&mut self, id: u16) {
        let template = self.sender(id, id, 4000);
        self.receiver(id, id, if self.style == Style::Wf { Vec::new() } else { vec![template] });
    }

    fn reserved(&self) -> usize {
        self.sim.reservations(self.nodes[1]).count()
    }

    fn fill(&mut self, count: u16) {
        for id in 1..=count {
            self.open(id);
            self.sim.run_for(2 * MS);
        }
        self.sim.run_for(1000 * MS);
        assert_eq!(self.reserved(), usize::from(count));
    }

    fn counted(&mut self, life: u16, time: Duration) {
        self.meter.start(life);
        self.sim.run_for(time);
    }
}

/// One session of each style beside the others, and packets of strangers.
fn life(name: &str, reduction: bool, style: Style) {
    let Some(sessions) = child() else { return super::compare(name) };
    let mut net = Net::new(reduction, style);
    net.fill(sessions);
    for link in net.links.clone() {
        net.sim.capture(link);
    }
    for life in super::LIVES {
        net.live(sessions + life, life);
        assert_eq!(net.reserved(), usize::from(sessions));
    }
    net.meter.stop();
}

impl Net {
    fn live(&mut self, id: u16, life: u16) {
        let before = self.sim.captured().count();
        self.open(id);
        self.counted(life, 400 * MS);
        self.command(2, id, rsvp::Command::Close);
        self.counted(life, 200 * MS);
        self.command(0, id, rsvp::Command::Close);
        self.counted(life, 200 * MS);
        let captured: Vec<Captured> = self.sim.captured().skip(before).cloned().collect();
        let router = self.nodes[1];
        // Each message again by either link: as the neighbor sent it, and from another host.
        for one in captured.iter().filter(|one| one.to == router) {
            for link in self.links.clone() {
                for src in [one.packet.src.ip(), "198.51.100.7".parse().unwrap()] {
                    let mut packet = one.packet.clone();
                    packet.src.set_ip(src);
                    self.sim.inject(link, router, packet);
                    self.counted(life, 2 * MS);
                }
            }
        }
    }
}

/// An Srefresh with the largest list that fits a packet. The C-Type is that of the object (RFC 2961 section 5.1).
fn srefresh(c_type: u8, entry: &[u8]) -> Vec<u8> {
    let entries = entry.repeat(1200 / entry.len());
    let object = u16::try_from(8 + entries.len()).unwrap();
    // A checksum of zero is no checksum; Send_TTL is 1.
    let mut octets = vec![0x11, MessageType::SREFRESH.0, 0, 0, 1, 0];
    octets.extend((object + 8).to_be_bytes());
    octets.extend(object.to_be_bytes());
    octets.extend([25, c_type, 0, 0, 0, 7]);
    octets.extend(entries);
    octets
}

/// Work at all sessions is done in parts: the loss of a link and its return, a route that changes, and lists of
/// MESSAGE_IDs that no state has.
#[test]
fn work_at_many_sessions() {
    let Some(sessions) = child() else { return super::bounded("cost::rsvp::work_at_many_sessions") };
    let mut net = Net::new(true, Style::Wf);
    net.sim.capture(net.links[0]);
    net.fill(sessions);
    let [_, router, receiver] = net.nodes;
    let path = net.sim.captured().find(|one| one.to == router).unwrap().packet.clone();
    let neighbor = net.address(1);
    for (c_type, entry) in [(1, &[0, 0, 0, 1][..]), (4, &[0, 0, 0, 1, 10, 0, 0, 6, 10, 0, 0, 1])] {
        let mut packet =
            Packet { ttl: 1, options: Vec::new(), payload: srefresh(c_type, entry), ..path.clone() };
        packet.dst.set_ip(neighbor);
        net.sim.inject(net.links[0], router, packet);
        net.counted(1, 10 * MS);
    }
    for link in [net.links[1], net.links[0]] {
        for up in [false, true] {
            net.meter.start(1);
            net.sim.set_link_up(link, up);
            net.counted(1, 100 * MS);
        }
    }
    net.sim.crash(receiver);
    net.sim.restart(receiver);
    net.counted(1, 100 * MS);
    net.meter.stop();
}

/// A session with many senders: what a Resv of style WF changes concerns all of them.
#[test]
fn one_session_of_many_senders() {
    let Some(senders) = child() else { return super::bounded("cost::rsvp::one_session_of_many_senders") };
    let mut net = Net::new(false, Style::Wf);
    for number in 1..=senders {
        net.sender(number, 5004, 10_000 + number);
        net.sim.run_for(2 * MS);
    }
    net.receiver(1, 5004, Vec::new());
    net.counted(1, 400 * MS);
    assert_eq!(net.reserved(), 1);
    net.command(2, 1, rsvp::Command::Close);
    net.counted(1, 400 * MS);
    assert_eq!(net.reserved(), 0);
    net.meter.stop();
}

#[test]
fn plain() {
    life("cost::rsvp::plain", false, Style::Ff);
}

#[test]
fn with_refresh_reduction() {
    life("cost::rsvp::with_refresh_reduction", true, Style::Wf);
}

/// A message of RSVP about another session and sender: the SESSION and SENDER_TEMPLATE of `like` are changed.
fn about(like: &Packet, dest: [u8; 4], port: u16, source_port: u16) -> Packet {
    const SESSION: u8 = 1;
    const SENDER_TEMPLATE: u8 = 11;
    let mut packet = like.clone();
    let payload = &mut packet.payload;
    payload[2..4].fill(0); // no checksum
    let mut at = 8;
    while at < payload.len() {
        match payload[at + 2] {
            SESSION => {
                payload[at + 4..at + 8].copy_from_slice(&dest);
                payload[at + 10..at + 12].copy_from_slice(&port.to_be_bytes());
            }
            SENDER_TEMPLATE => payload[at + 10..at + 12].copy_from_slice(&source_port.to_be_bytes()),
            _ => {}
        }
        at += usize::from(u16::from_be_bytes([payload[at], payload[at + 1]]));
    }
    packet.dst.set_ip(dest.into());
    packet
}

/// Paths and PathTears of strangers to one destination that has many sessions.
fn crowded(name: &str, dest: [u8; 4], ports: [u16; 2]) {
    let Some(sessions) = child() else { return super::compare(name) };
    let mut net = Net::new(false, Style::Ff);
    let [_, router, _] = net.nodes;
    let group = IpAddr::from(dest);
    let source = net.address(0);
    net.sim.set_multicast_route(router, group, source, Some(net.links[0]), &[net.links[1]]);
    for link in net.links.clone() {
        net.sim.capture(link);
    }
    net.live(1, 0);
    net.meter.start(0);
    let captured = |kind| {
        let is = |one: &&Captured| one.to == router && one.packet.payload.get(1) == Some(&kind);
        net.sim.captured().find(is).unwrap().packet.clone()
    };
    let (path, tear) = (captured(MessageType::PATH.0), captured(MessageType::PATH_TEAR.0));
    let dest = if group.is_multicast() { dest } else { address_octets(net.address(2)) };
    let link = net.links[0];
    for port in 1..=sessions {
        net.sim.inject(link, router, about(&path, dest, 100 + port, 4000));
        net.sim.run_for(MS);
    }
    net.sim.run_for(1000 * MS);
    for life in super::LIVES {
        let [port, source_port] = ports.map(|port| if port == 0 { 0 } else { port + life });
        for like in [&path, &path, &tear] {
            net.sim.inject(link, router, about(like, dest, port, source_port));
            net.counted(life, 50 * MS);
        }
    }
    net.meter.stop();
}

fn address_octets(address: IpAddr) -> [u8; 4] {
    match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => unreachable!("the network has IPv4"),
    }
}

/// The sessions of one group.
#[test]
fn paths_to_a_group() {
    crowded("cost::rsvp::paths_to_a_group", [239, 1, 2, 3], [50_000, 4000]);
}

/// A session without a port is in conflict with all sessions of its destination that have one (RFC 2205 §3.2).
#[test]
fn paths_without_ports() {
    crowded("cost::rsvp::paths_without_ports", [0; 4], [0, 0]);
}
