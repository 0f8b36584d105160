//! GIST and the QoS NSLP.

use core::time::Duration;
use std::rc::Rc;

use signalbox_node::ping::{self, PingRequest};
use signalbox_node::qos::{self, Flow, QosRequest, QueryRequest, ReserveRequest};
use signalbox_node::resources::{Config as Resources, Rate, config::LinkConfig as Capacity};
use signalbox_node::{Command, Config, Node};
use signalbox_sim::{Captured, Family, LinkConfig, LinkId, NodeId, Packet, Sim, topology};

use super::meter::{Meter, Metered, child};
use crate::net::WALL_US;

const MS: Duration = Duration::from_millis(1);

struct Net {
    sim: Sim<Metered>,
    nodes: [NodeId; 3],
    links: Vec<LinkId>,
    meter: Rc<Meter>,
}

impl Net {
    /// Sender, router and receiver. The inputs of the router are counted.
    fn new() -> Self {
        let mut sim = Sim::new(1);
        let meter = Rc::new(Meter::default());
        let nodes = ["sender", "router", "receiver"].map(|name| {
            let meter = if name == "router" { meter.clone() } else { Rc::default() };
            let links = (0..2).map(|n| Capacity::new(&format!("eth{n}"), Some(Rate(1_250_000_000))));
            let mut config = Config {
                wall_clock_us: WALL_US,
                ping: Some(ping::Config::default()),
                qos: Some(qos::Config::default()),
                resources: Resources { links: links.collect(), ..Resources::default() },
                ..Config::default()
            };
            crate::net::gist(&mut config).dmode_rate = 100_000;
            sim.add_engine(name, move |boot| {
                Metered::new(Node::new(config.clone(), boot.seed).unwrap(), meter.clone())
            })
        });
        let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
        Self { sim, nodes, links, meter }
    }

    fn request(&self, port: u16, rate: u64) -> Box<ReserveRequest> {
        let dst = self.sim.address(self.nodes[2], Family::V4);
        let flow = Flow { protocol: Some(17), dst_port: Some(port), ..Flow::to(dst) };
        Box::new(ReserveRequest::new(flow, QosRequest::rate(rate)))
    }

    fn qos(&mut self, id: u16, command: qos::Command) {
        self.sim.command(self.nodes[0], Command::Qos { id: id.into(), command });
    }

    fn reserved(&self) -> usize {
        self.sim.reservations(self.nodes[1]).count()
    }

    /// Sessions number 1 to `count`.
    fn fill(&mut self, count: u16) {
        for id in 1..=count {
            let request = self.request(id, 12_500);
            self.qos(id, qos::Command::Reserve(request));
            self.sim.run_for(2 * MS);
        }
        self.sim.run_for(1000 * MS);
        assert_eq!(self.reserved(), usize::from(count), "{:?}", self.sim.events().last());
    }

    /// Runs for so long and counts.
    fn counted(&mut self, life: u16, time: Duration) {
        self.meter.start(life);
        self.sim.run_for(time);
    }
}

/// Packets that a stranger sends: what the sender sent, from another host.
fn forged(captured: &[Captured], from: NodeId) -> Vec<Packet> {
    let sent = captured.iter().filter(|one| one.from == from);
    sent.map(|one| {
        let mut packet = one.packet.clone();
        packet.src.set_ip("198.51.100.7".parse().unwrap());
        packet
    })
    .collect()
}

/// The life of one session beside the others, and packets of strangers.
#[test]
fn gist_and_qos() {
    let Some(sessions) = child() else { return super::compare("cost::qos::gist_and_qos") };
    let mut net = Net::new();
    net.fill(sessions);
    net.sim.capture(net.links[0]);
    for life in super::LIVES {
        net.live(sessions, life);
        assert_eq!(net.reserved(), usize::from(sessions));
    }
    net.meter.stop();
}

impl Net {
    fn live(&mut self, sessions: u16, life: u16) {
        let id = sessions + 2 * life;
        let setup = self.request(id, 12_500);
        let query = QueryRequest::new(setup.flow, QosRequest::rate(12_500));
        let change = self.request(id, 25_000);
        let before = self.sim.captured().count();
        for (id, command) in [
            (id, qos::Command::Reserve(setup)),
            (id, qos::Command::Reserve(change)),
            (id + 1, qos::Command::Query(Box::new(query))),
            (id, qos::Command::Release),
        ] {
            self.qos(id, command);
            self.counted(life, 200 * MS);
        }
        let dst = self.sim.address(self.nodes[2], Family::V4);
        let ping = PingRequest { count: Some(2), interval: 20 * MS, ..PingRequest::to(dst) };
        self.sim
            .command(self.nodes[0], Command::Ping { id: life.into(), command: ping::Command::Start(ping) });
        self.counted(life, 200 * MS);
        let captured: Vec<_> = self.sim.captured().skip(before).cloned().collect();
        let [sender, router, _] = self.nodes;
        let replayed = captured.iter().filter(|one| one.from == sender).map(|one| one.packet.clone());
        for packet in replayed.chain(forged(&captured, sender)) {
            self.sim.inject(self.links[0], router, packet);
            self.counted(life, 2 * MS);
        }
    }
}
