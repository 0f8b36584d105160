//! A link that is lost under a reservation, and the router behind it, whose state expires.
//!
//! ```text
//!             r2
//!           /    \\
//! s --- r1          r4 --- d         the route over r2 is the shorter one
//!           \\    /
//!             r3
//! ```

use core::net::IpAddr;
use core::time::Duration;

use signalbox_node::resources::intserv::TSpec;
use signalbox_node::resources::{Config as Resources, Rate, config::LinkConfig as Capacity};
use signalbox_node::rsvp::{
    self, Filter, FlowRequest, FlowSpec, ReserveRequest, Selector, SenderRequest, Session, SessionKind, Style,
};
use signalbox_node::{Command, Config, Node};
use signalbox_rsvp::wire::MessageType;
use signalbox_sim::{Family, LinkConfig, LinkId, NodeId, Sim};

const REFRESH: Duration = Duration::from_secs(1);
/// Lifetime of state: (K + 0.5) · 1.5 · R.
const LIFETIME: Duration = Duration::from_millis(5250);

struct Net {
    sim: Sim<Node>,
    /// The nodes s, r1, r2, r3, r4, d.
    nodes: [NodeId; 6],
    /// The links from r1 to r2 and from r2 to r4.
    upper: [LinkId; 2],
}

impl Net {
    /// A network with a reservation, with refresh reduction or without.
    fn new(reduction: bool, family: Family) -> Self {
        Self::with(7, reduction, family, Duration::ZERO)
    }

    /// The same with a seed, and the time until a Path follows a new route (W of RFC 2205 §3.6).
    fn with(seed: u64, reduction: bool, family: Family, repair_delay: Duration) -> Self {
        let mut sim = Sim::new(seed);
        let nodes = ["s", "r1", "r2", "r3", "r4", "d"].map(|name| {
            let links = (0..4).map(|n| Capacity::new(&format!("eth{n}"), Some(Rate(1_250_000))));
            let mut rsvp = rsvp::Config::default();
            rsvp.interface.refresh = REFRESH;
            rsvp.interface.repair_delay = repair_delay;
            rsvp.neighbors.interface.reduction.reliable = reduction;
            let config = Config {
                rsvp: Some(rsvp),
                resources: Resources { links: links.collect(), ..Resources::default() },
                ..Config::empty()
            };
            sim.add_engine(name, move |boot| Node::new(config.clone(), boot.seed).unwrap())
        });
        let [s, r1, r2, r3, r4, d] = nodes;
        let mut link = |a, b| sim.link(a, b, &LinkConfig::default());
        link(s, r1);
        let upper = [link(r1, r2), link(r2, r4)];
        let lower = [link(r1, r3), link(r3, r4)];
        link(r4, d);
        lower.into_iter().for_each(|link| sim.set_cost(link, 5));
        for node in [s, d] {
            sim.add_address(node, IpAddr::V4((0xc000_0201 + node.0).into()));
            sim.add_address(node, IpAddr::V6((0xfd01 << 112 | (u128::from(node.0) + 1)).into()));
        }
        sim.run_for(Duration::ZERO);
        let mut net = Self { sim, nodes, upper };
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
        self.sim.run_for(REFRESH * 2);
        assert_eq!(self.held(), [1, 1, 1, 0, 1, 0]);
    }

    /// Number of reservations in each node's kernel.
    fn held(&self) -> [usize; 6] {
        self.nodes.map(|node| self.sim.reservations(node).count())
    }

    /// Number of changes of a sender's previous hop at a node.
    fn hop_changes(&self, node: NodeId) -> u64 {
        self.sim.engine(node).unwrap().rsvp().unwrap().counters().hop_changes
    }
}

/// The reservation moves to the other route at once and stays there. The router behind the lost link sends no Path any
/// more, so that the next router has one previous hop only; its reservation expires. When the link returns, so does the
/// reservation.
#[test]
fn the_router_behind_a_lost_link_keeps_quiet() {
    for (reduction, family) in [(false, Family::V4), (true, Family::V4), (true, Family::V6)] {
        let mut net = Net::new(reduction, family);
        let [_, _, r2, r3, r4, _] = net.nodes;
        let [cut, behind] = net.upper;
        net.sim.capture(behind);
        net.sim.set_link_up(cut, false);
        net.sim.run_for(Duration::from_millis(100));
        assert_eq!(net.sim.reservations(r3).count(), 1);
        for _ in 0..40 {
            net.sim.run_for(REFRESH / 2);
            assert_eq!((net.hop_changes(r4), net.sim.reservations(r3).count()), (1, 1));
        }
        assert_eq!(net.held(), [1, 1, 0, 1, 1, 0]);
        let rsvp = net.sim.engine(r2).and_then(Node::rsvp).unwrap();
        assert_eq!((rsvp.sessions(), rsvp.counters().senders_expired), (0, 1));
        let paths = net.sim.captured().filter(|one| {
            one.packet.protocol == 46 && one.packet.payload.get(1) == Some(&MessageType::PATH.0)
        });
        assert_eq!(paths.count(), 0);
        net.sim.set_link_up(cut, true);
        net.sim.run_for(LIFETIME * 2 + REFRESH * 4);
        assert_eq!(net.held(), [1, 1, 1, 0, 1, 0]);
    }
}

/// r2 loses its way to r4 and has it again before its path state expires. The data go by r3 meanwhile, and no Path comes to r2 before
/// r1 has waited for W. r2 takes no part before: its Path would make it the previous hop of r4, and the PathTear at the end of its
/// state would end the reservation behind r4.
#[test]
fn a_router_that_has_its_route_again_ends_nothing_behind_it() {
    let delay = REFRESH * 2;
    for reduction in [false, true] {
        for away in (2_500..=5_200).step_by(100) {
            for seed in 0..3 {
                let mut net = Net::with(seed, reduction, Family::V4, delay);
                let [.., r4, _] = net.nodes;
                let [_, lost] = net.upper;
                net.sim.set_link_up(lost, false);
                net.sim.run_for(Duration::from_millis(away));
                assert_eq!(net.held()[3..5], [1, 1], "{away}");
                net.sim.set_link_up(lost, true);
                let gone = net.sim.wait(delay + REFRESH, |sim| sim.reservations(r4).count() != 1);
                assert!(!gone, "{reduction} {away} {seed}: at {}", net.sim.now());
            }
        }
    }
}
