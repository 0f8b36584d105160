//! Many small networks, each from its own seed. Hosts open and close passages through firewalls and NATs under faults: loss,
//! reordering, duplication, kernels that refuse, nodes that restart or fail, NATs that lose their bindings, routes that change.
//! `SIGNALBOX_SEEDS` in the environment is the number of networks; `SIGNALBOX_SEED` runs one of them alone.
//!
//! At every moment a pinhole is for a flow that a user asked for, and none is there longer than a lifetime after its session
//! ended ([`Overdue`]). After the faults and [`RECOVERY`], the packets of every session that its user holds arrive, with the
//! addresses and ports that the NATs on the way gave them, and so do the answers. All timers are shorter than those of the
//! RFC, in proportion.

mod edge;
mod path;
mod routes;

use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::Time;
use signalbox_core::pinhole::{Pinhole, PinholeError};
use signalbox_core::rng::Random;
use signalbox_node::natfw::{self, State};
use signalbox_node::{Config, Node};
use signalbox_sim::{Captured, Impairment, NodeId, Sim, StreamConfig};

use super::net::{Kind, Net, sessions};
use crate::after_end::{self, EndCounts};
use crate::parts::run_part;

/// Number of seeds of each campaign, unless the environment variable is set.
const SEEDS: u64 = 100;
/// Validity of GIST's routing state, and the application's refresh period.
const VALIDITY: Duration = Duration::from_secs(6);
const REFRESH: Duration = Duration::from_secs(2);
/// Time after which a stream or an association without an answer is given up.
const GIVE_UP: Duration = Duration::from_secs(3);
/// Lifetime of a session: 5.25 · R (RFC 5973 §3.4), in whole seconds.
const LIFETIME: Duration = Duration::from_secs(11);
/// Time from the end of the faults until every live session is complete: GIST finds the present peers, the next refresh
/// finds the nodes without state, or a session that cannot be refreshed ends.
const RECOVERY: Duration = Duration::from_secs(6 + 3 + 3 + 11);
/// Hold time after a NOTIFY, the least that there is.
const HOLD: Duration = Duration::from_secs(30);
/// Time that a message may be on its way under faults: a hop waits for an association, or gives it up.
const TRANSIT: Duration = Duration::from_secs(12);

const BAD: Impairment = Impairment {
    delay: Duration::from_millis(5),
    jitter: Duration::from_millis(20),
    loss: 0.12,
    duplication: 0.1,
};

fn settings(config: &mut Config) {
    let gist = crate::net::gist(config);
    gist.validity = VALIDITY;
    gist.inactivity = VALIDITY;
    gist.t1 = Duration::from_millis(200);
    gist.t2 = Duration::from_secs(1);
    gist.attempts = 4;
    gist.hold_down = Duration::from_millis(200);
    gist.hold_down_max = GIVE_UP;
    gist.associations.hold_time = GIVE_UP;
    gist.associations.setup_timeout = GIVE_UP;
    gist.associations.idle_after = Duration::from_secs(1);
    if let Some(natfw) = &mut config.natfw {
        natfw.refresh = REFRESH;
        natfw.retry = Duration::from_millis(500);
    }
}

/// Runs a campaign. The result is the number of seeds if there were as many as usual.
fn campaign(run: impl FnMut(u64)) -> Option<u64> {
    run_part(0, 1, SEEDS, run)
}

/// A network under faults.
struct World {
    net: Net,
    /// Firewalls and NATs.
    boxes: Vec<NodeId>,
    random: Random,
    overdue: Overdue,
}

impl World {
    fn new(mut net: Net, kinds: &[Kind], random: Random, key: fn(&Pinhole) -> Option<u16>) -> Self {
        net.sim.set_stream_config(StreamConfig {
            connect_timeout: GIVE_UP,
            give_up: GIVE_UP,
            ..StreamConfig::default()
        });
        net.links.clone().into_iter().for_each(|link| net.sim.set_impairment(link, BAD));
        net.sim.capture_all();
        let boxes = net.nodes.iter().zip(kinds).filter(|(_, kind)| kind.drops()).map(|(node, _)| *node);
        Self { boxes: boxes.collect(), net, random, overdue: Overdue { key, live: BTreeMap::new() } }
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.random.range(0..limit as u64)).unwrap()
    }

    /// Gives a command to a node, if its engine runs.
    fn command(&mut self, node: usize, id: u64, command: natfw::Command) {
        if self.net.sim.engine(self.net.nodes[node]).is_some() {
            self.net.command(node, id, command);
        }
    }

    /// A user asks for the flow of this key now.
    fn asked(&mut self, key: u16) {
        self.overdue.live.insert(key, self.net.sim.now());
    }

    /// The state of the session that a user holds.
    fn stands(&self, node: usize, id: u64) -> Option<State> {
        let engine = self.net.sim.engine(self.net.nodes[node])?.natfw()?;
        engine.view_of_command(self.net.sim.now(), id).map(|session| session.state)
    }

    /// Injects one fault.
    fn inject_fault(&mut self) {
        let at = self.below(self.net.nodes.len());
        let node = self.net.nodes[at];
        match self.random.range(0..7) {
            0 => self.net.sim.restart(node),
            1 => self.net.sim.set_open_refusal(node, Some(PinholeError::Failed)),
            2 => self.net.sim.set_open_refusal(node, None),
            3 => self.net.sim.crash(node),
            4 => self.net.sim.power_off(node),
            // A reboot.
            5 => {
                self.net.sim.lose_pinholes(node);
                self.net.sim.restart(node);
            }
            _ => self.net.sim.lose_pinholes(node),
        }
    }

    /// Ends all faults.
    fn end_faults(&mut self) {
        for link in self.net.links.clone() {
            self.net.sim.set_impairment(link, Impairment::default());
            self.net.sim.set_link_up(link, true);
        }
        for node in self.net.nodes.clone() {
            self.net.sim.set_open_refusal(node, None);
            if self.net.sim.engine(node).is_none() {
                self.net.sim.restart(node);
            }
        }
    }

    /// Lets time pass and looks at the pinholes meanwhile. `live`: the keys of the sessions that users hold.
    fn pass(&mut self, time: Duration, live: impl Fn(&Self) -> Vec<u16>) {
        let end = self.net.sim.now() + time;
        loop {
            let held = live(self);
            if let Some(fault) = self.overdue.look(&self.net, &self.boxes, &held) {
                panic!("{}", self.says(&fault));
            }
            let rest = end.since(self.net.sim.now());
            if rest.is_zero() {
                return;
            }
            self.net.sim.run_for(Duration::from_millis(500).min(rest));
        }
    }

    /// Every session ends, and nothing is left. The result is what was seen of their ends.
    fn expect_nothing(&mut self) -> EndCounts {
        let boxes = self.boxes.clone();
        let nothing = |sim: &Sim<Node>| boxes.iter().all(|node| sim.pinholes(*node).next().is_none());
        let gone = self.net.sim.wait(Duration::from_secs(5), nothing);
        assert!(gone, "{}", self.says("pinholes are left"));
        let quiet = |sim: &Sim<Node>| sim.nodes().all(|node| sessions(sim, node).is_empty());
        let quiet = self.net.sim.wait(LIFETIME + HOLD, quiet);
        assert!(quiet, "{}", self.says("sessions are left"));
        // Nothing that makes a session left a node after its deletion.
        let ends = |captured: &Captured| after_end::between(&self.net.sim, captured);
        match after_end::check(
            self.net.sim.captured(),
            after_end::StateRequests::new(),
            after_end::passages,
            ends,
        ) {
            Ok(seen) => seen,
            Err(fault) => panic!("{}", self.says(&fault)),
        }
    }

    fn says(&self, fault: &str) -> String {
        format!("{fault}; at {}, seed {}", self.net.sim.now(), self.net.sim.seed())
    }
}

/// Whether a pinhole is there that no session asked for, or longer than its session.
struct Overdue {
    /// The number that distinguishes the flow of a session: one of its ports.
    key: fn(&Pinhole) -> Option<u16>,
    /// When a user asked for the session of this key, or held it last.
    live: BTreeMap<u16, Time>,
}

impl Overdue {
    fn look(&mut self, net: &Net, boxes: &[NodeId], held: &[u16]) -> Option<String> {
        let now = net.sim.now();
        self.live.extend(held.iter().map(|key| (*key, now)));
        boxes.iter().flat_map(|node| net.sim.pinholes(*node)).find_map(|(_, pinhole)| {
            let Some(last) = (self.key)(pinhole).and_then(|key| self.live.get(&key)) else {
                return Some(format!("no user asked for {pinhole:?}"));
            };
            let late = now.since(*last) > LIFETIME + TRANSIT;
            late.then(|| format!("{pinhole:?} is open, and its session ended at {last}"))
        })
    }
}
