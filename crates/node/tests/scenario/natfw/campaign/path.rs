//! Rows of firewalls and NATs between two hosts that open paths to each other.

use core::net::SocketAddr;
use core::time::Duration;

use signalbox_node::Node;
use signalbox_node::natfw::{self, Middlebox, Options, State};
use signalbox_sim::{Family, NodeId, Packet, Sim};

use super::super::net::{FROM, Kind, Net, open};
use super::{HOLD, LIFETIME, RECOVERY, World, campaign, settings};
use crate::after_end::EndCounts;

/// The session that a user wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) id: u64,
    /// Its node sends: the first or the last one.
    pub(super) from: usize,
    pub(super) family: Family,
}

impl Wanted {
    /// The destination port, which is different for each request.
    pub(super) fn port(&self) -> u16 {
        u16::try_from(self.id).unwrap() + 10_000
    }

    /// Source and destination of the packets, as the sender addresses them. `last` is the other host.
    fn ends(&self, net: &Net, last: usize) -> (SocketAddr, SocketAddr) {
        let to = if self.from == 0 { last } else { 0 };
        let src = SocketAddr::new(net.address(self.from, self.family), FROM);
        (src, SocketAddr::new(net.address(to, self.family), self.port()))
    }
}

/// Two hosts and what they want from each other.
pub(super) struct Paths {
    pub(super) world: World,
    pub(super) wanted: Vec<Wanted>,
    /// The number of the other host; the first one is 0.
    pub(super) last: usize,
    /// The network has a NAT, so that only IPv4 and only the first node reach the other end.
    pub(super) nat: bool,
}

impl Paths {
    pub(super) fn open(&mut self) {
        let first = self.nat || self.world.random.chance(0.5);
        let v4 = self.nat || self.world.random.chance(0.5);
        let wanted = Wanted {
            id: self.wanted.len() as u64,
            from: if first { 0 } else { self.last },
            family: if v4 { Family::V4 } else { Family::V6 },
        };
        self.wanted.push(wanted);
        self.world.asked(wanted.port());
        let (_, dst) = wanted.ends(&self.world.net, self.last);
        self.world.command(wanted.from, wanted.id, natfw::Command::Open(open(dst, Options::default())));
    }

    /// Does a random action of a user.
    pub(super) fn act(&mut self) {
        let at = self.world.below(self.wanted.len());
        match self.world.random.range(0..4) {
            0 => {
                let wanted = self.wanted[at];
                self.world.command(wanted.from, wanted.id, natfw::Command::Close);
            }
            1 | 2 if self.wanted.len() < 8 => self.open(),
            _ => {}
        }
    }

    /// Lets time pass and looks at the pinholes meanwhile.
    pub(super) fn pass(&mut self, time: Duration) {
        let wanted = self.wanted.clone();
        self.world.pass(time, |world| {
            let held = wanted.iter().filter(|one| world.stands(one.from, one.id).is_some());
            held.map(Wanted::port).collect()
        });
    }

    /// The pinholes of the firewalls and NATs on the path are those of the sessions that stand, and the others have none.
    pub(super) fn fault(&mut self, on_path: &[NodeId]) -> Option<String> {
        let mut live = Vec::new();
        for wanted in self.wanted.clone() {
            match self.world.stands(wanted.from, wanted.id) {
                None => continue,
                Some(State::Established) => live.push(wanted.port()),
                Some(other) => return Some(format!("{wanted:?} is {other:?}")),
            }
            let net = &mut self.world.net;
            let (src, dst) = wanted.ends(net, self.last);
            let Some((at, seen, to)) = net.sends(wanted.from, Packet::new(src, dst, [])) else {
                return Some(format!("packets of {wanted:?} are dropped"));
            };
            let far = if wanted.from == 0 { self.last } else { 0 };
            if (at, to) != (far, dst) || (!self.nat && seen != src) {
                return Some(format!("a packet of {wanted:?} is at {at}, from {seen} to {to}"));
            }
            let back = net.sends(far, Packet::new(to, seen, []));
            if back != Some((wanted.from, dst, src)) {
                return Some(format!("the answer to {wanted:?} arrives as {back:?}"));
            }
        }
        live.sort_unstable();
        self.world.boxes.iter().find_map(|node| {
            let open = ports(&self.world.net.sim, *node);
            let right = if on_path.contains(node) { live.as_slice() } else { &[] };
            (open != right).then(|| format!("{open:?} are open, and {right:?} stand"))
        })
    }

    /// After the faults: what stands works, and ends when its user says so.
    pub(super) fn settle(&mut self, on_path: &[NodeId]) -> EndCounts {
        self.world.end_faults();
        self.pass(RECOVERY);
        // Sessions that ended behind a node without their state live for a lifetime, or for the hold time after a NOTIFY.
        self.pass(LIFETIME.max(HOLD));
        if let Some(fault) = self.fault(on_path) {
            panic!("{}", self.world.says(&fault));
        }
        for wanted in self.wanted.clone() {
            self.world.command(wanted.from, wanted.id, natfw::Command::Close);
        }
        self.world.expect_nothing()
    }
}

/// Ports of the pinholes at a node.
fn ports(sim: &Sim<Node>, node: NodeId) -> Vec<u16> {
    let mut ports: Vec<u16> = sim.pinholes(node).filter_map(|(_, hole)| hole.packets.dst_port).collect();
    ports.sort_unstable();
    ports
}

fn run(seed: u64) -> EndCounts {
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
    let net = Net::with(seed, &kinds, |_, config| {
        settings(config);
        // Without associations the requests are datagrams, and what the nodes send can be seen.
        let reliable = seed.is_multiple_of(2);
        crate::net::gist(config).associations.always = reliable;
        if let Some(natfw) = &mut config.natfw {
            natfw.reliable = reliable;
        }
    });
    let last = net.last();
    let world = World::new(net, &kinds, random, |pinhole| pinhole.packets.dst_port);
    let mut paths = Paths { world, wanted: Vec::new(), last, nat };
    for _ in 0..3 {
        paths.open();
    }
    for _ in 0..8 {
        let pause = Duration::from_millis(300 + paths.world.random.range(0..2500));
        paths.pass(pause);
        paths.world.inject_fault();
        paths.act();
    }
    paths.pass(Duration::from_secs(1));
    let boxes = paths.world.boxes.clone();
    paths.settle(&boxes)
}

#[test]
fn storms_leave_what_users_hold_and_nothing_else() {
    let mut seen = EndCounts::default();
    if campaign(|seed| seen.add(run(seed))).is_some() {
        assert!(seen.ends > 50, "{seen:?}");
    }
}
