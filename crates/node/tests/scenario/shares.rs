//! A greedy neighbor beside an honest one: what peers share is shared fairly.

use core::time::Duration;

use signalbox_node::ping::{self, PingRequest};
use signalbox_node::{Command, Config, Node};
use signalbox_sim::{Family, LinkConfig, NodeId, Sim};

use crate::net::{config, gist, make, outcome, total};

const SECOND: Duration = Duration::from_secs(1);
/// D-mode messages of the routers in a second: less than the greedy neighbor asks for.
const RATE: u32 = 1000;

/// Two hosts at one router or behind two routers, and a host far away.
struct Net {
    sim: Sim<Node>,
    greedy: NodeId,
    honest: NodeId,
    far: NodeId,
}

/// A router that sends at a rate. The hosts have no limit.
fn limited(limited: bool) -> Config {
    let mut config = config();
    let gist = gist(&mut config);
    (gist.dmode_by_link, gist.dmode_rate, gist.dmode_burst) =
        (false, if limited { RATE } else { 0 }, RATE / 2);
    config
}

impl Net {
    /// With `common` both hosts are behind the same router, which a second one sees as one peer.
    fn new(seed: u64, common: bool) -> Self {
        let mut sim = Sim::new(seed);
        let mut add = |name: &str, router| sim.add_engine(name, move |boot| make(boot, limited(router)));
        let [greedy, honest, far] = ["greedy", "honest", "far"].map(|name| add(name, false));
        let [first, second] = ["first", "second"].map(|name| add(name, true));
        for (a, b) in
            [(greedy, first), (honest, if common { first } else { second }), (first, second), (second, far)]
        {
            sim.link(a, b, &LinkConfig::default());
        }
        sim.run_for(Duration::ZERO);
        Self { sim, greedy, honest, far }
    }

    fn ping(&mut self, from: NodeId, id: u64, count: Option<u32>, interval: Duration, port: u16) {
        let dst = self.sim.address(self.far, Family::V4);
        let request =
            PingRequest { count, interval, protocol: Some(17), src_port: Some(port), ..PingRequest::to(dst) };
        self.sim.command(from, Command::Ping { id, command: ping::Command::Start(request) });
    }

    /// 200 requests and 13 sessions of the honest host in ten seconds.
    fn honest_host_loses_nothing(&mut self) {
        self.ping(self.honest, 200, Some(200), SECOND / 20, 1);
        for id in 201..=213 {
            self.ping(self.honest, id, Some(1), SECOND, u16::try_from(id).unwrap());
            self.sim.run_for(SECOND * 3 / 4);
        }
        self.sim.run_for(SECOND * 5);
        assert_eq!(outcome(&self.sim, 200), Some((200, 200)));
        for id in 201..=213 {
            assert_eq!(outcome(&self.sim, id), Some((1, 1)), "session {id}");
        }
        assert!(total(&self.sim, "gist", "dmode_limited") > 0, "the greedy neighbor is limited");
    }
}

/// A neighbor with a real address sends 1,500 allowed requests a second in two sessions.
#[test]
fn a_busy_peer_leaves_the_rate_of_messages_to_others() {
    for (seed, common) in [(1, true), (2, false)] {
        let mut net = Net::new(seed, common);
        net.ping(net.greedy, 1, None, SECOND / 1000, 9);
        net.ping(net.greedy, 2, None, SECOND / 500, 10);
        net.sim.run_for(SECOND * 3);
        net.honest_host_loses_nothing();
    }
}

/// As before, in a hundred sessions with flows of many sources.
#[test]
fn many_sessions_of_a_busy_peer_leave_the_rate_of_messages_to_others() {
    for (seed, common) in [(3, true), (4, false)] {
        let mut net = Net::new(seed, common);
        for number in 0..100 {
            net.ping(net.greedy, 1 + number, None, SECOND / 30, 1000 + u16::try_from(number).unwrap());
        }
        net.sim.run_for(SECOND * 3);
        net.honest_host_loses_nothing();
    }
}
