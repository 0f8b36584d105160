//! A planned restart of a router: it restores the path state that it had, and its next hop reserves again at once.

use core::time::Duration;

use signalbox_core::Time;
use signalbox_core::node::Input;
use signalbox_node::resources::intserv::TSpec;
use signalbox_node::resources::{Config as Resources, Rate, config::LinkConfig as Capacity};
use signalbox_node::rsvp::neighbor::HelloConfig;
use signalbox_node::rsvp::{
    self, Filter, FlowRequest, FlowSpec, ReserveRequest, Selector, SenderRequest, Session, SessionKind, Style,
};
use signalbox_node::{Command, Config, Node};
use signalbox_sim::{Family, LinkConfig, NodeId, Sim, topology};

/// The delay of a link is 1 ms. A neighbor is two of them away, there and back.
const ROUND_TRIP: Duration = Duration::from_millis(2);

/// The protocol features of the neighbors of the router.
#[derive(Debug, Clone, Copy)]
enum Neighbors {
    /// RFC 2205 alone.
    Plain,
    /// Refresh reduction (RFC 2961).
    Reduction,
    /// Refresh reduction and Hello (RFC 3209).
    Hello,
}

struct Net {
    sim: Sim<Node>,
    /// Sender, two routers, receiver.
    nodes: [NodeId; 4],
}

impl Net {
    fn new(seed: u64, neighbors: Neighbors, family: Family) -> Self {
        let mut sim = Sim::new(seed);
        let nodes = ["s", "r1", "r2", "d"].map(|name| {
            let links = (0..4).map(|n| Capacity::new(&format!("eth{n}"), Some(Rate(1_250_000))));
            let mut rsvp = rsvp::Config::default();
            let interface = &mut rsvp.neighbors.interface;
            interface.reduction.reliable = !matches!(neighbors, Neighbors::Plain);
            interface.hello = matches!(neighbors, Neighbors::Hello).then(HelloConfig::default);
            let config = Config {
                rsvp: Some(rsvp),
                resources: Resources { links: links.collect(), ..Resources::default() },
                ..Config::empty()
            };
            sim.add_engine(name, move |boot| Node::new(config.clone(), boot.seed).unwrap())
        });
        topology::chain(&mut sim, &nodes, &LinkConfig::default());
        sim.run_for(Duration::ZERO);
        let mut net = Self { sim, nodes };
        net.reserve(family);
        net
    }

    fn reserve(&mut self, family: Family) {
        let [s, .., d] = self.nodes;
        let dest = self.sim.address(d, family);
        let session = Session { dest, protocol: 17, kind: SessionKind::Ports, port: 5004 };
        let template = Filter { src: self.sim.address(s, family), selector: Selector::Port(4000) };
        let tspec = TSpec::new(10_000.0, 3000.0, f32::INFINITY, 64, 1000).unwrap();
        let sender = SenderRequest::new(template, tspec);
        let flows = vec![FlowRequest { flowspec: FlowSpec { tspec, rspec: None }, senders: vec![template] }];
        let receiver = ReserveRequest { style: Style::Ff, flows, confirm: false, policy: Box::default() };
        for (node, command) in [
            (s, rsvp::Command::Session(session)),
            (s, rsvp::Command::Sender(sender)),
            (d, rsvp::Command::Session(session)),
            (d, rsvp::Command::Reserve(receiver)),
        ] {
            self.sim.command(node, Command::Rsvp { id: 1, command });
        }
        self.sim.run_for(Duration::from_secs(70));
        assert_eq!(self.held(), WHOLE);
    }

    /// Number of reservations in each node's kernel.
    fn held(&self) -> [usize; 4] {
        self.nodes.map(|node| self.sim.reservations(node).count())
    }

    /// Ends a router as planned and starts it again after a while. Returns when it started.
    fn restart(&mut self, router: usize, without: Duration) -> Time {
        let node = self.nodes[router];
        let left = self.sim.engine(node).unwrap().hand_over(self.sim.now());
        self.sim.crash(node);
        self.sim.run_for(without);
        self.sim.restart(node);
        self.sim.run_for(Duration::ZERO);
        self.sim.input(node, Input::Handover(&left));
        self.sim.now()
    }
}

const WHOLE: [usize; 4] = [1, 1, 1, 0];

/// The reservation is whole again after one round trip to the next hop, whatever the neighbors support, and it stays.
#[test]
fn a_reservation_is_back_after_one_round_trip() {
    for neighbors in [Neighbors::Plain, Neighbors::Reduction, Neighbors::Hello] {
        for family in [Family::V4, Family::V6] {
            for router in [1, 2] {
                let what = format!("{neighbors:?} {family:?} {router}");
                let mut net = Net::new(3, neighbors, family);
                let start = net.restart(router, Duration::from_secs(1));
                let nodes = net.nodes;
                let whole = move |sim: &Sim<Node>| nodes.map(|node| sim.reservations(node).count()) == WHOLE;
                net.sim.expect(&what, Duration::from_secs(5), whole);
                let after = net.sim.now().since(start);
                assert!(after <= ROUND_TRIP, "{what}: {after:?}");
                let lost = net.sim.wait(Duration::from_secs(400), |sim| !whole(sim));
                assert!(!lost, "{what}: {:?}", net.held());
            }
        }
    }
}

/// What the neighbors tore down while the router was away expires when it would have expired without the restart.
#[test]
fn a_session_that_ended_meanwhile_does_not_stay() {
    let mut net = Net::new(4, Neighbors::Plain, Family::V4);
    let [s, r1, _, d] = net.nodes;
    let left = net.sim.engine(r1).unwrap().hand_over(net.sim.now());
    net.sim.crash(r1);
    for node in [s, d] {
        net.sim.command(node, Command::Rsvp { id: 1, command: rsvp::Command::Close });
    }
    net.sim.run_for(Duration::from_secs(1));
    net.sim.restart(r1);
    net.sim.run_for(Duration::ZERO);
    net.sim.input(r1, Input::Handover(&left));
    net.sim.run_for(Duration::from_secs(158));
    assert_eq!(net.held(), [0; 4]);
    assert_eq!(net.sim.engine(r1).and_then(Node::rsvp).unwrap().senders(), 0);
}
