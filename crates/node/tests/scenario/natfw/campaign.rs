//! Many small networks, each from its own seed. Hosts open and close paths through firewalls and NATs under faults: loss,
//! reordering, duplication, kernels that refuse, nodes that restart or fail, NATs that lose their bindings.
//! `SIGNALBOX_SEEDS` in the environment is the number of networks; `SIGNALBOX_SEED` runs one of them alone.
//!
//! At every moment a pinhole is for a flow that a user asked for, and none is there a lifetime after its session ended.
//! After the faults and [`RECOVERY`], the packets of every session that its user holds arrive, with the addresses and ports
//! that the NATs on the way gave them, and so do the answers. All timers are shorter than those of the RFC, in proportion.

use core::net::SocketAddr;
use core::time::Duration;

use signalbox_core::pinhole::PinholeError;
use signalbox_core::rng::Random;
use signalbox_node::natfw::{self, Middlebox, Options, State};
use signalbox_node::{Config, Node};
use signalbox_sim::{Family, Impairment, NodeId, Packet, Sim, StreamConfig, seed_from_environment};

use super::net::{Kind, Net, open, sessions};

/// Number of seeds, unless the environment variable is set.
const SEEDS: u64 = 150;
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

const BAD: Impairment = Impairment {
    delay: Duration::from_millis(5),
    jitter: Duration::from_millis(20),
    loss: 0.12,
    duplication: 0.1,
};

/// The session that a user wants.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    id: u64,
    /// Its node sends: the first or the last one.
    from: usize,
    family: Family,
    closed: bool,
}

impl Wanted {
    /// The destination port, which is different for each request.
    fn port(&self) -> u16 {
        u16::try_from(self.id).unwrap() + 10_000
    }
}

struct World {
    net: Net,
    /// Firewalls and NATs.
    boxes: Vec<NodeId>,
    /// The network has a NAT, so that only IPv4 and only the first node reach the other end.
    nat: bool,
    wanted: Vec<Wanted>,
    random: Random,
}

fn settings(_: usize, config: &mut Config) {
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

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Sim::<Node>::new(seed).random(1);
        let count = 1 + random.range(0..4);
        let middle: Vec<_> = (0..count)
            .map(|_| match random.range(0..4) {
                0 => Kind::Left(Middlebox::Nat),
                1 => Kind::Right(Middlebox::Firewall),
                _ => Kind::Left(Middlebox::Firewall),
            })
            .collect();
        let nat = middle.contains(&Kind::Left(Middlebox::Nat));
        let kinds: Vec<_> = core::iter::once(Kind::Host).chain(middle).chain([Kind::Host]).collect();
        let mut net = Net::with(seed, &kinds, settings);
        net.sim.set_stream_config(StreamConfig {
            connect_timeout: GIVE_UP,
            give_up: GIVE_UP,
            ..StreamConfig::default()
        });
        net.links.clone().into_iter().for_each(|link| net.sim.set_impairment(link, BAD));
        let boxes = net.nodes[1..net.last()].to_vec();
        Self { net, boxes, nat, wanted: Vec::new(), random }
    }

    /// The destination of the packets, as the sender addresses them.
    fn ends(&self, wanted: &Wanted) -> (SocketAddr, SocketAddr) {
        let to = if wanted.from == 0 { self.net.last() } else { 0 };
        let src = SocketAddr::new(self.net.address(wanted.from, wanted.family), super::net::FROM);
        (src, SocketAddr::new(self.net.address(to, wanted.family), wanted.port()))
    }

    fn open(&mut self) {
        let first = self.nat || self.random.chance(0.5);
        let v4 = self.nat || self.random.chance(0.5);
        let wanted = Wanted {
            id: self.wanted.len() as u64,
            from: if first { 0 } else { self.net.last() },
            family: if v4 { Family::V4 } else { Family::V6 },
            closed: false,
        };
        self.wanted.push(wanted);
        let (_, dst) = self.ends(&wanted);
        self.command(&wanted, natfw::Command::Open(open(dst, Options::default())));
    }

    fn command(&mut self, wanted: &Wanted, command: natfw::Command) {
        if self.net.sim.engine(self.net.nodes[wanted.from]).is_some() {
            self.net.command(wanted.from, wanted.id, command);
        }
    }

    /// Does a random action of a user.
    fn whim(&mut self) {
        let one = usize::try_from(self.random.range(0..self.wanted.len() as u64)).unwrap();
        match self.random.range(0..4) {
            0 => {
                self.wanted[one].closed = true;
                let wanted = self.wanted[one];
                self.command(&wanted, natfw::Command::Close);
            }
            1 | 2 if self.wanted.len() < 8 => self.open(),
            _ => {}
        }
    }

    /// Injects one fault.
    fn trouble(&mut self) {
        let at = usize::try_from(self.random.range(0..self.net.nodes.len() as u64)).unwrap();
        let node = self.net.nodes[at];
        match self.random.range(0..7) {
            0 => self.net.sim.restart(node),
            1 => self.net.sim.set_open_refusal(node, Some(PinholeError::Failed)),
            2 => self.net.sim.set_open_refusal(node, None),
            3 => self.net.sim.crash(node),
            4 => self.net.sim.power_off(node),
            5 => {
                self.net.sim.lose_pinholes(node);
                self.net.sim.restart(node);
            }
            _ => self.net.sim.lose_pinholes(node),
        }
    }

    /// Ends all faults.
    fn heal(&mut self) {
        for link in self.net.links.clone() {
            self.net.sim.set_impairment(link, Impairment::default());
        }
        for node in self.net.nodes.clone() {
            self.net.sim.set_open_refusal(node, None);
            if self.net.sim.engine(node).is_none() {
                self.net.sim.restart(node);
            }
        }
    }

    /// Whether the user holds the session.
    fn stands(&self, wanted: &Wanted) -> Option<State> {
        let engine = self.net.sim.engine(self.net.nodes[wanted.from])?.natfw()?;
        engine.view_of_command(self.net.sim.now(), wanted.id).map(|session| session.state)
    }

    /// Ports of the pinholes at a node, each once.
    fn ports(&self, node: NodeId) -> Vec<u16> {
        let mut ports: Vec<u16> =
            self.net.sim.pinholes(node).filter_map(|(_, pinhole)| pinhole.packets.dst_port).collect();
        ports.sort_unstable();
        ports
    }

    /// The pinholes of each firewall and NAT are those of the sessions that stand.
    fn fault(&mut self) -> Option<String> {
        let mut live = Vec::new();
        for wanted in self.wanted.clone() {
            match self.stands(&wanted) {
                None => continue,
                Some(State::Established) => live.push(wanted.port()),
                Some(other) => return Some(format!("{wanted:?} is {other:?}")),
            }
            let (src, dst) = self.ends(&wanted);
            let Some((at, seen, to)) = self.net.sends(wanted.from, Packet::new(src, dst, [])) else {
                return Some(format!("packets of {wanted:?} are dropped"));
            };
            let far = if wanted.from == 0 { self.net.last() } else { 0 };
            if (at, to) != (far, dst) || (!self.nat && seen != src) {
                return Some(format!("a packet of {wanted:?} is at {at}, from {seen} to {to}"));
            }
            let back = self.net.sends(far, Packet::new(to, seen, []));
            if back != Some((wanted.from, dst, src)) {
                return Some(format!("the answer to {wanted:?} arrives as {back:?}"));
            }
        }
        live.sort_unstable();
        let wrong = self.boxes.iter().map(|node| self.ports(*node)).find(|ports| *ports != live)?;
        Some(format!("{wrong:?} are open, and {live:?} stand"))
    }

    fn says(&self, fault: &str) -> String {
        format!("{fault}; at {}, seed {}", self.net.sim.now(), self.net.sim.seed())
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..3 {
        world.open();
    }
    for _ in 0..8 {
        let pause = Duration::from_millis(300 + world.random.range(0..2500));
        world.net.sim.run_for(pause);
        world.trouble();
        world.whim();
    }
    world.net.sim.run_for(Duration::from_secs(1));
    world.heal();
    world.net.sim.run_for(RECOVERY);
    // Sessions that ended behind a node without their state live for a lifetime, or for the hold time after a NOTIFY.
    world.net.sim.run_for(LIFETIME.max(HOLD));
    if let Some(fault) = world.fault() {
        panic!("{}", world.says(&fault));
    }
    for wanted in world.wanted.clone() {
        world.command(&wanted, natfw::Command::Close);
    }
    let boxes = world.boxes.clone();
    let nothing = |sim: &Sim<Node>| boxes.iter().all(|node| sim.pinholes(*node).next().is_none());
    let gone = world.net.sim.wait(Duration::from_secs(5), nothing);
    assert!(gone, "{}", world.says("pinholes are left"));
    let quiet = |sim: &Sim<Node>| sim.nodes().all(|node| sessions(sim, node).is_empty());
    let quiet = world.net.sim.wait(LIFETIME + HOLD, quiet);
    assert!(quiet, "{}", world.says("sessions are left"));
}

#[test]
fn storms_leave_what_users_hold_and_nothing_else() {
    let seeds = std::env::var("SIGNALBOX_SEEDS").ok().map(|text| text.parse().unwrap());
    match std::env::var_os("SIGNALBOX_SEED") {
        Some(_) => run(seed_from_environment(0)),
        None => (0..seeds.unwrap_or(SEEDS)).for_each(run),
    }
}
