//! A network of a thousand nodes.

use core::time::Duration;

use signalbox_node::Command;
use signalbox_node::ping::{self, PingRequest};
use signalbox_sim::{Family, LinkConfig, NodeId, Sim, topology};

use crate::net::{QUIET, all_sessions, full, replies, total};

const NODES: u32 = 1000;
const PINGS: u64 = 300;
const COUNT: u32 = 3;

/// The end of each of 300 pings between random nodes answers, and afterwards no state is left.
#[test]
fn three_hundred_pings_among_a_thousand_nodes() {
    let mut sim = Sim::new(1000);
    let nodes = sim.add_engines(NODES, full);
    topology::connected(&mut sim, &nodes, 600, &LinkConfig::default());
    let mut random = sim.random(1);
    for id in 0..PINGS {
        let mut any = || NodeId(u32::try_from(random.range(0..u64::from(NODES))).unwrap());
        let (from, to) = (any(), any());
        if from == to {
            continue;
        }
        let family = if id % 2 == 0 { Family::V4 } else { Family::V6 };
        let request = PingRequest { count: Some(COUNT), ..PingRequest::to(sim.address(to, family)) };
        sim.command(from, Command::Ping { id, command: ping::Command::Start(request) });
        sim.run_for(Duration::from_millis(10));
    }
    sim.run_for(Duration::from_secs(10));
    let started = total(&sim, "ping", "probes_sent") / u64::from(COUNT);
    assert!(started > PINGS - 5);
    assert_eq!(total(&sim, "ping", "probes_lost"), 0);
    assert_eq!(total(&sim, "ping", "probes_answered"), started * u64::from(COUNT));
    for id in 0..PINGS {
        assert!(replies(&sim, id).iter().all(|(_, reply)| reply.reached_end), "ping {id}");
    }
    assert!(all_sessions(&sim) > 1000, "{}", all_sessions(&sim));
    sim.run_for(QUIET);
    assert_eq!(all_sessions(&sim), 0);
}
