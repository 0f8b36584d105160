//! Many small networks, each from its own seed, with faults for a while.

use core::time::Duration;

use signalbox_core::rng::Random;
use signalbox_node::ping::{self, PingRequest};
use signalbox_node::{Command, Config, Node};
use signalbox_sim::{Family, Impairment, LinkConfig, LinkId, NodeId, Sim, topology};

use crate::net::{QUIET, all_sessions, config, full, make, path, replies};

const SEEDS: u64 = 100;
const PINGS: u64 = 4;

/// The longest time for which a node may keep a peer that has failed: the time to the next refresh, and all Queries of
/// that refresh, with their backoff, until it gives up.
const RECOVERY: Duration = Duration::from_millis(22_500 + 63_500 + 5_000);

/// The impairment of links during the faults.
const BAD: Impairment = Impairment {
    delay: Duration::from_millis(5),
    jitter: Duration::from_millis(20),
    loss: 0.15,
    duplication: 0.1,
};

struct World {
    sim: Sim<Node>,
    /// Nodes with an engine.
    engines: Vec<NodeId>,
    /// Nodes with Ping.
    full: Vec<NodeId>,
    links: Vec<LinkId>,
    random: Random,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut sim = Sim::new(seed);
        let mut random = sim.random(1);
        let count = 4 + random.range(0..7);
        let (mut nodes, mut engines, mut with_ping) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..count {
            // At least two nodes have Ping.
            let node = match if n < 2 { 0 } else { random.range(0..8) } {
                0..6 => {
                    let node = sim.add_engine(format!("full{n}"), full);
                    with_ping.push(node);
                    engines.push(node);
                    node
                }
                6 => {
                    let without = |boot| make(boot, Config { ping: None, ..config() });
                    let node = sim.add_engine(format!("bare{n}"), without);
                    engines.push(node);
                    node
                }
                _ => sim.add_router(format!("router{n}")),
            };
            nodes.push(node);
        }
        let links = topology::connected(&mut sim, &nodes, 3, &LinkConfig::impaired(BAD));
        Self { sim, engines, full: with_ping, links, random }
    }

    fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
        from[usize::try_from(random.range(0..from.len() as u64)).unwrap()]
    }

    /// Starts pings between nodes with Ping. Returns the node and the request of each.
    fn start(&mut self) -> Vec<(NodeId, PingRequest)> {
        let mut started = Vec::new();
        for id in 0..PINGS {
            let from = Self::pick(&mut self.random, &self.full);
            let to = loop {
                let to = Self::pick(&mut self.random, &self.full);
                if to != from {
                    break to;
                }
            };
            let family = if self.random.chance(0.5) { Family::V4 } else { Family::V6 };
            let src = Some(self.sim.address(from, family));
            let request = PingRequest { src, ..PingRequest::to(self.sim.address(to, family)) };
            self.sim.command(from, Command::Ping { id, command: ping::Command::Start(request) });
            started.push((from, request));
        }
        started
    }

    /// Injects one fault.
    fn inject_fault(&mut self, starters: &[NodeId]) {
        match self.random.range(0..4) {
            0 => {
                let node = Self::pick(&mut self.random, &self.engines);
                if !starters.contains(&node) {
                    self.sim.restart(node);
                }
            }
            1 => {
                let node = Self::pick(&mut self.random, &self.engines);
                if !starters.contains(&node) {
                    self.sim.crash(node);
                }
            }
            2 => {
                let link = Self::pick(&mut self.random, &self.links);
                let cost = u32::try_from(1 + self.random.range(0..5)).unwrap();
                self.sim.set_cost(link, cost);
            }
            _ => {
                let link = Self::pick(&mut self.random, &self.links);
                let up = self.random.chance(0.5);
                self.sim.set_link_up(link, up);
            }
        }
    }

    /// Ends all faults.
    fn end_faults(&mut self) {
        for link in self.links.clone() {
            self.sim.set_link_up(link, true);
            self.sim.set_impairment(link, Impairment::default());
        }
        for node in self.engines.clone() {
            if self.sim.engine(node).is_none() {
                self.sim.restart(node);
            }
        }
    }
}

/// Some time after the end of all faults every message is answered along the present path from the end of its flow.
/// When the pings stop, all state ends.
#[test]
fn every_network_recovers_and_removes_its_state() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        let started = world.start();
        let starters: Vec<_> = started.iter().map(|(node, _)| *node).collect();
        for _ in 0..8 {
            world.sim.run_for(Duration::from_secs(5));
            world.inject_fault(&starters);
        }
        world.end_faults();
        world.sim.run_for(RECOVERY);
        let healed = world.sim.now();
        world.sim.run_for(Duration::from_secs(30));
        for id in 0..PINGS {
            let replies = replies(&world.sim, id);
            let good =
                replies.iter().filter(|(at, reply)| *at - reply.rtt > healed && reply.reached_end).count();
            assert!(good >= 29, "ping {id}: {good} replies of 30, seed {}", world.sim.seed());
        }
        // The old sessions take the path that a new one finds.
        for (id, (node, request)) in (0..).zip(&started) {
            let request = PingRequest { count: Some(1), ..*request };
            world
                .sim
                .command(*node, Command::Ping { id: PINGS + id, command: ping::Command::Start(request) });
        }
        world.sim.run_for(Duration::from_secs(5));
        for id in 0..PINGS {
            let last = |id| replies(&world.sim, id).last().map(|(_, reply)| path(reply));
            let new = last(PINGS + id);
            assert!(
                new.is_some() && last(id) == new,
                "ping {id}: {:?} {new:?}, seed {}",
                last(id),
                world.sim.seed()
            );
        }
        for (id, node) in (0..).zip(&starters) {
            world.sim.command(*node, Command::Ping { id, command: ping::Command::Stop });
        }
        world.sim.run_for(QUIET);
        assert_eq!(all_sessions(&world.sim), 0, "seed {}", world.sim.seed());
    }
}

/// The same seed gives the same run: every packet, every event.
#[test]
fn a_seed_is_a_run() {
    for seed in [3, 4] {
        let run = || {
            let mut world = World::new(seed);
            world.sim.capture_all();
            let started = world.start();
            let starters: Vec<_> = started.iter().map(|(node, _)| *node).collect();
            for _ in 0..8 {
                world.sim.run_for(Duration::from_secs(5));
                world.inject_fault(&starters);
            }
            let packets: Vec<_> = world.sim.captured().cloned().collect();
            (packets, world.sim.take_events())
        };
        let (first, second) = (run(), run());
        assert!(first.0.len() > 100);
        assert!(first == second, "seed {seed}");
    }
}
