//! Networks with GIST-aware NAT gateways: a host behind one or two of them signals to a host behind another one.

mod campaign;
mod with_natfw;

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::cell::Cell;
use std::rc::Rc;

use signalbox_gist::wire::MessageType;
use signalbox_node::gist_nat::{self, Forward};
use signalbox_node::ping::{self, PingRequest};
use signalbox_node::{Command, Config, Node};
use signalbox_sim::{Captured, Family, LinkConfig, LinkId, NodeId, Packet, Sim, topology};

use crate::net::{WALL_US, config, header, make, message, replies, sessions};

const UDP: u8 = 17;
const SECOND: Duration = Duration::from_secs(1);
/// The port of the sender of a flow.
const FROM: u16 = 20_000;
/// First of the ports that the NAT of the receiver forwards.
const TO: u16 = 5000;
/// How many it forwards.
const FORWARDED: u16 = 16;

/// The settings of a gateway whose inside is on one side of its row.
fn gateway(inside_left: bool, host: Option<Ipv4Addr>) -> Config {
    let side = |left: bool| vec![if left { "eth0" } else { "eth1" }.to_owned()];
    let forward =
        |address| Forward { protocol: UDP, first_port: TO, last_port: TO + FORWARDED - 1, address, port: TO };
    let gist_nat = Some(gist_nat::Config {
        inside: side(inside_left),
        outside: side(!inside_left),
        forwards: host.map(forward).into_iter().collect(),
        ..gist_nat::Config::default()
    });
    Config { wall_clock_us: WALL_US, gist_nat, ..Config::empty() }
}

/// A row: host, gateways of the sender, gateway of the receiver, host.
struct Net {
    sim: Sim<Node>,
    nodes: Vec<NodeId>,
    links: Vec<LinkId>,
}

impl Net {
    /// With this number of gateways before the sender.
    fn new(seed: u64, before: usize, host: impl Fn() -> Config + Copy + 'static) -> Self {
        let mut sim = Sim::new(seed);
        let (mut nodes, last) = (Vec::new(), before + 2);
        // The address of the receiver, which is known when the links are.
        let receiver = Rc::new(Cell::new(Ipv4Addr::UNSPECIFIED));
        for n in 0..=last {
            let receiver = Rc::clone(&receiver);
            let node = sim.add_engine(format!("n{n}"), move |boot| {
                let config = match n {
                    0 => host(),
                    n if n == last => host(),
                    n if n + 1 == last => gateway(false, Some(receiver.get())),
                    _ => gateway(true, None),
                };
                make(boot, config)
            });
            sim.set_drops(node, n > 0 && n < last);
            nodes.push(node);
        }
        let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
        links.iter().for_each(|link| sim.capture(*link));
        let net = Self { sim, nodes, links };
        if let IpAddr::V4(address) = net.left(last) {
            receiver.set(address);
        }
        net
    }

    fn last(&self) -> usize {
        self.nodes.len() - 1
    }

    /// The gateways, from the left.
    fn gateways(&self) -> Vec<NodeId> {
        self.nodes[1..self.last()].to_vec()
    }

    fn left(&self, node: usize) -> IpAddr {
        self.sim.address_on(self.nodes[node], self.links[node - 1], Family::V4)
    }

    fn right(&self, node: usize) -> IpAddr {
        self.sim.address_on(self.nodes[node], self.links[node], Family::V4)
    }

    /// Pings from the first node to a forwarded port of the last gateway.
    fn ping(&mut self, id: u64, to: u16, count: Option<u32>) {
        let request = PingRequest {
            protocol: Some(UDP),
            src_port: Some(FROM),
            dst_port: Some(to),
            count,
            ..PingRequest::to(self.left(self.last() - 1))
        };
        self.sim.command(self.nodes[0], Command::Ping { id, command: ping::Command::Start(request) });
    }

    fn replied(&mut self, id: u64, count: usize) {
        self.sim.expect("replies come", SECOND * 60, |sim| replies(sim, id).len() >= count);
    }

    fn flow(&self, to: u16) -> (SocketAddr, SocketAddr) {
        ((self.right(0), FROM).into(), (self.left(self.last() - 1), to).into())
    }

    /// GIST messages of this type on a link, in order.
    fn messages(&self, link: usize, kind: MessageType) -> Vec<&Captured> {
        let link = self.links[link];
        self.sim
            .captured()
            .filter(|one| one.link == link && one.packet.payload.len() > 12 && header(one).kind == kind)
            .collect()
    }

    /// Bindings that the kernels of the gateways have, all together.
    fn bindings(&self) -> usize {
        self.gateways().into_iter().map(|node| self.sim.pinholes(node).count()).sum()
    }
}

/// The responding node has the translated MRI and the querying node its own, through several gateways; the handshake and messages
/// in both directions pass, and the data of the flow too.
#[test]
fn a_host_behind_gateways_signals_to_a_host_behind_another_one() {
    for before in 1..=3 {
        let mut net = Net::new(before as u64, before, config);
        net.ping(1, TO, Some(3));
        net.replied(1, 3);
        let (src, dst) = net.flow(TO);
        let at = |net: &Net, node: usize| {
            let engine = net.sim.engine(net.nodes[node]).unwrap();
            let mris: Vec<_> =
                engine.sessions().map(|session| (session.mri.src(), session.mri.dst())).collect();
            mris
        };
        assert_eq!(at(&net, 0), [(src.ip(), dst.ip())]);
        let receiver = net.left(net.last());
        assert_eq!(
            at(&net, net.last()),
            [(net.right(before), receiver)],
            "as the last NAT of the sender has it"
        );
        // The responding node answers to an address of the network between the NATs.
        let outside = net.messages(before, MessageType::QUERY);
        assert!(outside.iter().all(|one| one.packet.src.ip() == net.right(before)), "{outside:?}");
        let inside = net.messages(net.last() - 1, MessageType::RESPONSE);
        assert!(inside.iter().all(|one| one.packet.dst.ip() == net.right(before)), "{inside:?}");
        assert!(net.sim.send(net.nodes[0], Packet::new(src, dst, [7; 40])).is_ok());
        net.sim.run_for(SECOND);
        let data = net.sim.captured().filter(|one| one.link == net.links[net.last() - 1]);
        let data: Vec<_> = data.filter(|one| one.packet.payload == [7; 40]).collect();
        assert_eq!(data.len(), 1);
        assert_eq!(data[0].packet.dst, (receiver, TO).into());
        assert_eq!(data[0].packet.src.ip(), net.right(before));
    }
}

/// GISTNAT-X-04: the gateways remove all entries on the way back, and the handshake completes.
#[test]
fn a_response_without_entries_completes_the_handshake() {
    let mut net = Net::new(4, 2, config);
    net.ping(1, TO, Some(1));
    net.replied(1, 1);
    let responses = net.messages(0, MessageType::RESPONSE);
    let entries = |one: &&Captured| message(one).nat_traversal.map(|object| object.replaced.len());
    assert_eq!(responses.iter().map(entries).collect::<Vec<_>>(), [Some(0)]);
    assert_eq!(net.messages(0, MessageType::CONFIRM).len(), 1);
}

/// GISTNAT-R7.2.3-10: all gateways translate a refresh like the first Query, although their kernels have bindings of the same
/// datagrams by then.
#[test]
fn a_refresh_is_translated_like_the_first_query() {
    let mut net = Net::new(8, 2, config);
    net.ping(1, TO, Some(40));
    net.replied(1, 40);
    let arrived = net.messages(net.last() - 1, MessageType::QUERY);
    let translated = |one: &&Captured| {
        let query = message(one);
        let entries = query.nat_traversal.map(|object| object.replaced.len());
        (
            one.packet.src,
            one.packet.dst,
            query.mri.map(|mri| mri.mri),
            query.nli.map(|nli| nli.interface),
            entries,
        )
    };
    let arrived: Vec<_> = arrived.iter().map(translated).collect();
    assert!(arrived.len() >= 2, "{arrived:?}");
    assert!(arrived.iter().all(|one| *one == arrived[0] && one.4 == Some(3)), "{arrived:?}");
}

/// Bindings end when the hosts stop, and nothing is left in the gateways.
#[test]
fn bindings_end_with_the_signaling() {
    let mut net = Net::new(7, 1, config);
    net.ping(1, TO, Some(40));
    net.replied(1, 40);
    assert!(net.bindings() > 0);
    net.sim.run_for(SECOND * 300);
    assert_eq!((net.bindings(), sessions(&net.sim, net.nodes[0])), (0, 0));
    for node in net.gateways() {
        let engine = net.sim.engine(node).unwrap().gist_nat().unwrap();
        assert_eq!(engine.tables().map(|table| table.size), [0, 0]);
    }
}

/// The gateway has IPv4 only. Messages over IPv6 pass it as data do: no address, hop count or object in them changes, and no binding is
/// made.
#[test]
fn messages_over_ipv6_pass_unchanged() {
    let mut net = Net::new(9, 2, config);
    for node in net.gateways() {
        net.sim.set_drops(node, false);
    }
    let last = net.last();
    let from = net.sim.address_on(net.nodes[0], net.links[0], Family::V6);
    let to = net.sim.address_on(net.nodes[last], net.links[last - 1], Family::V6);
    let command = ping::Command::Start(PingRequest { count: Some(2), ..PingRequest::to(to) });
    net.sim.command(net.nodes[0], Command::Ping { id: 1, command });
    net.replied(1, 2);
    for kind in [MessageType::QUERY, MessageType::RESPONSE, MessageType::CONFIRM] {
        let sent = net.messages(if kind == MessageType::RESPONSE { last - 1 } else { 0 }, kind);
        let payload = |one: &&Captured| one.packet.payload.clone();
        let octets: Vec<_> = sent.iter().map(payload).collect();
        assert!(!octets.is_empty());
        for link in 0..last {
            let seen = net.messages(link, kind);
            assert_eq!(seen.iter().map(payload).collect::<Vec<_>>(), octets, "{kind:?} on link {link}");
            let ends = |one: &&Captured| [one.packet.src.ip(), one.packet.dst.ip()];
            assert!(seen.iter().all(|one| ends(one).contains(&from) && ends(one).contains(&to)));
        }
    }
    assert_eq!(net.bindings(), 0);
}
