//! A thousand small networks, each from its own seed, with faults for a while: loss, reordering, duplication, crashes,
//! links that go down, route changes. `SIGNALBOX_SEEDS` in the environment is the number of networks; `SIGNALBOX_SEED`
//! runs one of them alone.
//!
//! All timers are shorter than those of the RFC, in proportion, so that a run is short. The conditions after the faults
//! are:
//!
//! * **One refresh period after the end of the faults every live session's chain is complete**: routing state in both
//!   directions, at nodes that are on the present path, from the flow's source to its destination. The period is the
//!   validity time: state has to be refreshed within it or it expires (RFC 5971 §4.4.4). By then the source has sent a
//!   Query along the path once (after half to three quarters of the period), and each node has passed it on.
//! * **A moment later no other state of a session is left.** GIST cannot remove it sooner (§4.4.4: "There is no mechanism
//!   at the GIST level for explicit teardown of routing state"). State that was refreshed during the faults ends one
//!   validity time after its last refresh. That refresh may come a moment after the faults: a lost Query is sent again
//!   after T2 at most, its handshake completes, and nodes further on that branch are refreshed by it. An association
//!   whose other end failed is given up by then, and its sessions set up another one. After this, a node that is off the
//!   path is not refreshed and does not refresh other nodes.
//! * **When the applications stop**, all state and all channels end.

use core::net::IpAddr;
use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;

use signalbox_core::rng::Random;
use signalbox_core::{SessionId, Time};
use signalbox_gist::apd::{Apd, Verdict};
use signalbox_gist::engine::{AssociationConfig, Transport};
use signalbox_node::ping::{self, PingEvent, PingRequest};
use signalbox_node::{Command, Config, Event, GistConfig, Node};
use signalbox_sim::{Family, Impairment, LinkConfig, LinkId, NodeId, Sim, StreamConfig, topology};

use crate::net::{WALL_US, make, replies};
use crate::parts::run_part;

/// Number of seeds, unless the environment variable is set.
const SEEDS: u64 = 1000;
const PINGS: u64 = 3;
/// Validity of routing state: a refresh comes after half to three quarters of it.
const VALIDITY: Duration = Duration::from_secs(6);
/// Most time between two Queries of a handshake.
const T2: Duration = Duration::from_secs(1);
/// Time after which a stream or an association without an answer is given up.
const GIVE_UP: Duration = Duration::from_secs(3);

/// Time from the end of the faults until every chain is complete: one refresh period.
const RECOVERY: Duration = VALIDITY;
/// Duration of a handshake on links without faults.
const HANDSHAKE: Duration = Duration::from_millis(500);

const BAD: Impairment = Impairment {
    delay: Duration::from_millis(5),
    jitter: Duration::from_millis(20),
    loss: 0.15,
    duplication: 0.1,
};

/// The present peer identity of each node; a restart changes it.
type Identities = Rc<RefCell<Vec<Vec<u8>>>>;

/// The transport of messages.
#[derive(Debug, Clone, Copy)]
enum Mode {
    Datagrams,
    Tcp,
    Sctp,
    /// Every node offers datagrams and associations, and prefers one of them.
    Either,
}

impl Mode {
    /// Time from when the chains are complete until no other state is left.
    const fn last_word(self) -> Duration {
        match self {
            Self::Datagrams => T2.saturating_add(HANDSHAKE),
            _ => GIVE_UP.saturating_add(HANDSHAKE),
        }
    }
}

fn config(mode: Mode, node: NodeId, identity: Vec<u8>) -> Config {
    let mut config = Config { wall_clock_us: WALL_US, ..Config::default() };
    let GistConfig { engine: gist, channels } = config.gist.as_mut().unwrap();
    gist.identity = identity;
    gist.validity = VALIDITY;
    gist.inactivity = Duration::from_secs(6);
    gist.t1 = Duration::from_millis(200);
    gist.t2 = T2;
    gist.attempts = 4;
    gist.hold_down = Duration::from_millis(200);
    gist.hold_down_max = Duration::from_secs(3);
    let port_if = |modes: [bool; 4]| modes[mode as usize].then_some(270);
    let (first, second) = if node.0.is_multiple_of(2) {
        (Transport::Tcp, Transport::Sctp)
    } else {
        (Transport::Sctp, Transport::Tcp)
    };
    gist.associations = AssociationConfig {
        tcp_port: port_if([false, true, false, true]),
        sctp_port: port_if([false, false, true, true]),
        preference: vec![first, second],
        always: true,
        hold_time: Duration::from_secs(3),
        setup_timeout: GIVE_UP,
        idle_after: Duration::from_secs(1),
        authorised: Apd::new(4096, Verdict::Allow),
        ..AssociationConfig::default()
    };
    let sctp = &mut channels.sctp;
    sctp.rto_initial = Duration::from_millis(200);
    sctp.rto_min = Duration::from_millis(200);
    sctp.rto_max = Duration::from_secs(1);
    sctp.max_init_retries = 3;
    sctp.peer_timeout = GIVE_UP;
    config
}

struct World {
    sim: Sim<Node>,
    mode: Mode,
    identities: Identities,
    /// Nodes with an engine.
    engines: Vec<NodeId>,
    /// Nodes with Ping.
    full: Vec<NodeId>,
    links: Vec<LinkId>,
    random: Random,
}

struct Started {
    id: u64,
    from: NodeId,
    to: NodeId,
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[usize::try_from(random.range(0..from.len() as u64)).unwrap()]
}

impl World {
    fn new(seed: u64) -> Self {
        let mut sim = Sim::new(seed);
        sim.set_stream_config(StreamConfig {
            connect_timeout: GIVE_UP,
            give_up: GIVE_UP,
            ..StreamConfig::default()
        });
        let modes = [Mode::Datagrams, Mode::Tcp, Mode::Sctp, Mode::Either];
        let mode = modes[usize::try_from(sim.seed() % 4).unwrap()];
        let identities = Identities::default();
        let mut random = sim.random(1);
        let count = 3 + random.range(0..6);
        let (mut nodes, mut engines, mut full) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..count {
            // At least two nodes have Ping.
            let kind = if n < 2 { 0 } else { random.range(0..8) };
            identities.borrow_mut().push(Vec::new());
            let with_ping = kind < 6;
            let shared = Rc::clone(&identities);
            let factory = move |boot: signalbox_sim::Boot| {
                let identity = [&boot.node.0.to_be_bytes()[..], &boot.seed[..8]].concat();
                shared.borrow_mut()[boot.node.0 as usize] = identity.clone();
                let mut config = config(mode, boot.node, identity);
                config.ping = config.ping.filter(|_| with_ping);
                make(boot, config)
            };
            let node = match kind {
                0..7 => sim.add_engine(format!("n{n}"), factory),
                _ => sim.add_router(format!("router{n}")),
            };
            full.extend(with_ping.then_some(node));
            engines.extend((kind < 7).then_some(node));
            nodes.push(node);
        }
        let links = topology::connected(&mut sim, &nodes, 3, &LinkConfig::impaired(BAD));
        Self { sim, mode, identities, engines, full, links, random }
    }

    fn start(&mut self) -> Vec<Started> {
        let mut started = Vec::new();
        for id in 0..PINGS {
            let from = pick(&mut self.random, &self.full);
            let others: Vec<_> = self.full.iter().copied().filter(|node| *node != from).collect();
            let to = pick(&mut self.random, &others);
            let family = if self.random.chance(0.5) { Family::V4 } else { Family::V6 };
            let (src, dst): (IpAddr, IpAddr) = (self.sim.address(from, family), self.sim.address(to, family));
            let request = PingRequest { src: Some(src), ..PingRequest::to(dst) };
            self.sim.command(from, Command::Ping { id, command: ping::Command::Start(request) });
            started.push(Started { id, from, to });
        }
        started
    }

    /// Injects one fault. A node that started a ping is not stopped.
    fn inject_fault(&mut self, started: &[Started]) {
        let node = pick(&mut self.random, &self.engines);
        let spared = started.iter().any(|ping| ping.from == node);
        let link = pick(&mut self.random, &self.links);
        match self.random.range(0..5) {
            0 if !spared => self.sim.restart(node),
            1 if !spared => self.sim.crash(node),
            2 if !spared => self.sim.power_off(node),
            3 => {
                let cost = u32::try_from(1 + self.random.range(0..5)).unwrap();
                self.sim.set_cost(link, cost);
            }
            _ => {
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

    /// The node that has this peer identity now.
    fn who(&self, identity: &[u8]) -> Option<NodeId> {
        let at = self.identities.borrow().iter().position(|known| known == identity)?;
        u32::try_from(at).ok().map(NodeId)
    }

    /// The nodes of a session's chain, or the fault in the chain.
    fn chain(&self, ping: &Started, session: SessionId) -> Result<Vec<NodeId>, String> {
        let mut chain = vec![ping.from];
        loop {
            let at = *chain.last().unwrap();
            let engine = self.sim.engine(at).ok_or(format!("{at} is down"))?;
            let view = engine.sessions().find(|view| view.session == session);
            let view = view.ok_or(format!("{at} has no state"))?;
            if let [.., before, _] = chain[..] {
                let back = view.upstream.map(|half| self.who(half.identity));
                if back != Some(Some(before)) {
                    return Err(format!("{at} has {back:?} upstream and not {before}"));
                }
            }
            let Some(half) = view.downstream else { return Ok(chain) };
            let next = self.who(half.identity).ok_or(format!("{at}: next is {:?}", half.identity))?;
            if chain.contains(&next) {
                return Err(format!("{at} leads back to {next}"));
            }
            chain.push(next);
        }
    }

    fn session(&self, ping: &Started) -> SessionId {
        let started = self.sim.events().iter().find_map(|h| match &h.event {
            Event::Ping { id, event: PingEvent::Started { session, .. } } if *id == ping.id => Some(*session),
            _ => None,
        });
        started.unwrap()
    }

    /// The nodes of a ping's chain, or the fault in the chain.
    fn whole(&self, ping: &Started) -> Result<Vec<NodeId>, String> {
        let session = self.session(ping);
        let chain = self.chain(ping, session)?;
        if chain.last() != Some(&ping.to) {
            return Err(format!("{chain:?} does not end at {}", ping.to));
        }
        Ok(chain)
    }

    /// State of a ping's session at nodes off the path, or the fault in its chain.
    fn stale(&self, ping: &Started) -> Option<String> {
        let chain = match self.whole(ping) {
            Ok(chain) => chain,
            Err(fault) => return Some(fault),
        };
        let session = self.session(ping);
        let holds = |node: &NodeId| {
            let engine = self.sim.engine(*node);
            engine.is_some_and(|engine| engine.sessions().any(|view| view.session == session))
        };
        let stale: Vec<_> = self.engines.iter().filter(|n| holds(n) && !chain.contains(n)).collect();
        (!stale.is_empty()).then(|| format!("state off the path {chain:?} at {stale:?}"))
    }

    /// The fault in the answers to a ping since that time, if any.
    fn unanswered(&self, ping: &Started, since: Time) -> Option<String> {
        let chain = match self.whole(ping) {
            Ok(chain) => chain,
            Err(fault) => return Some(fault),
        };
        let replies = replies(&self.sim, ping.id);
        let good = replies.iter().filter(|(at, reply)| {
            *at - reply.rtt > since && reply.reached_end && reply.hops.len() + 1 == chain.len()
        });
        let good = good.count();
        (good < 4).then(|| format!("only {good} replies along {chain:?}"))
    }

    fn check(&self, started: &[Started], fault: impl Fn(&Self, &Started) -> Option<String>) {
        for ping in started {
            if let Some(fault) = fault(self, ping) {
                panic!("ping {} of {:?}: {fault}, seed {}", ping.id, self.mode, self.sim.seed());
            }
        }
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    let started = world.start();
    for _ in 0..6 {
        let pause = Duration::from_millis(500 + world.random.range(0..2500));
        world.sim.run_for(pause);
        world.inject_fault(&started);
    }
    world.sim.run_for(Duration::from_secs(1));
    world.end_faults();
    world.sim.run_for(RECOVERY);
    let associations = |node| world.sim.engine(node).is_some_and(|node| node.associations().next().is_some());
    let any = world.sim.nodes().any(associations);
    assert_eq!(any, !matches!(world.mode, Mode::Datagrams), "seed {}", world.sim.seed());
    world.check(&started, |world, ping| world.whole(ping).err());
    let since = world.sim.now();
    let last_word = world.mode.last_word();
    world.sim.run_for(last_word);
    world.check(&started, World::stale);
    world.sim.run_for(VALIDITY - last_word);
    world.check(&started, World::stale);
    world.check(&started, |world, ping| world.unanswered(ping, since));
    // When the pings stop, no state is left.
    for ping in &started {
        world.sim.command(ping.from, Command::Ping { id: ping.id, command: ping::Command::Stop });
    }
    let left = |sim: &Sim<Node>| {
        let engines = || sim.nodes().filter_map(|node| sim.engine(node));
        (engines().map(Node::session_count).sum::<usize>(), engines().map(Node::channel_count).sum::<usize>())
    };
    let quiet = world.sim.wait(Duration::from_secs(60), |sim| left(sim) == (0, 0));
    assert!(quiet, "{:?} sessions and channels are left, seed {}", left(&world.sim), world.sim.seed());
}

/// Every fourth seed, so that tests share the work.
fn campaign(part: u64) {
    run_part(part, 4, SEEDS, run);
}

#[test]
fn over_datagrams_every_network_recovers() {
    campaign(0);
}

#[test]
fn over_tcp_every_network_recovers() {
    campaign(1);
}

#[test]
fn over_sctp_every_network_recovers() {
    campaign(2);
}

#[test]
fn over_either_every_network_recovers() {
    campaign(3);
}
