//! A random network with reservations, the actions of their users, and the faults in it.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_core::rng::Random;
use signalbox_core::{EntryRequest, IfIndex, Time};
use signalbox_node::casp::{
    self, Command as CaspCommand, Event as CaspEvent, QosConfig, ReservationEvent, ReserveRequest, Reserved,
};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Family, Impairment, LinkConfig, LinkId, NodeId, Sim};

use super::reserve::{SHARE, config, traffic};
use super::world::{BAD, REFRESH, Storm, fault, links, pick};
use crate::kernel::Kernel;
use crate::net::{WALL_US, make};

/// Rates of the reservations are multiples of it: a few fill a link.
const STEP: u64 = 10_000;

/// A node whose requests to the kernel are checked, and what its users know by their events.
pub(crate) struct Host {
    pub(crate) node: Node,
    name: NodeId,
    kernel: Kernel,
    /// The rate that each user holds.
    known: BTreeMap<u64, u64>,
    /// The source of each user's flow.
    sources: BTreeMap<u64, IpAddr>,
}

impl NodeEngine for Host {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        self.kernel.answers(&input);
        self.node.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        let Self { node, name, kernel, known, sources } = self;
        let output = node.poll()?;
        if let Output::Event(Event::Casp { id, event: CaspEvent::Reservation(event) }) = &output {
            match event {
                ReservationEvent::Granted(granted) => drop(known.insert(*id, granted.traffic.rate)),
                ReservationEvent::Lost(_) | ReservationEvent::Released { .. } => drop(known.remove(id)),
                ReservationEvent::Started { flow, .. } => drop(sources.insert(*id, flow.src())),
                // What stood before stands.
                ReservationEvent::Failed(_)
                | ReservationEvent::Available(_)
                | ReservationEvent::Refused(_) => {}
            }
        }
        kernel.take_request(*name, &output, |_| SHARE);
        Some(output)
    }

    fn entries(&self) -> Vec<EntryRequest> {
        self.node.entries()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.node.next_deadline()
    }
}

/// A second of virtual time in microseconds since 1970.
const fn wall(second: u64) -> u64 {
    WALL_US + second * 1_000_000
}

/// A user's reservation. Its number and one is the destination port of its flow.
#[derive(Debug, Clone)]
struct Wish {
    from: NodeId,
    to: NodeId,
    rate: u64,
    /// The opposite flow is reserved too.
    both: bool,
    /// Start and end in virtual time, seconds.
    time: Option<(u64, u64)>,
    closed: bool,
}

/// What nodes hold, by node, interface, user, and whether it is for the opposite flow.
type Holdings = BTreeMap<(NodeId, IfIndex, u64, bool), u64>;

pub(crate) struct Held {
    pub(crate) sim: Sim<Host>,
    storm: Storm,
    pub(crate) hosts: Vec<NodeId>,
    /// The links with the nodes at their ends.
    links: Vec<(LinkId, [NodeId; 2])>,
    wishes: Vec<Wish>,
    random: Random,
    pub(crate) moved: u64,
}

impl Held {
    pub(crate) fn new(seed: u64, storm: Storm) -> Self {
        let mut sim = Sim::new(seed);
        let mut random = sim.random(1);
        let count = 3 + usize::try_from(random.range(0..4)).unwrap();
        let pairs = links(&mut random, count, storm);
        let transport =
            pick(&mut random, &[casp::Transport::Tcp, casp::Transport::Tcp, casp::Transport::Udp]);
        let hosts: Vec<NodeId> = (0..count)
            .map(|n| {
                let reserve_opposite = n == 0;
                let qos = QosConfig { merge_unauthenticated: true, reserve_opposite, ..QosConfig::default() };
                let mut config: Config = config(Some(qos));
                if let Some(casp) = &mut config.casp {
                    (casp.engine.refresh, casp.engine.transport) = (REFRESH, transport);
                }
                sim.add_engine(format!("n{n}"), move |boot| Host {
                    name: boot.node,
                    node: make(boot, config.clone()),
                    kernel: Kernel::default(),
                    known: BTreeMap::new(),
                    sources: BTreeMap::new(),
                })
            })
            .collect();
        let links = pairs
            .iter()
            .map(|(a, b)| {
                let ends = [hosts[*a], hosts[*b]];
                (sim.link(ends[0], ends[1], &LinkConfig::impaired(BAD)), ends)
            })
            .collect();
        // What flows go to does not move.
        for node in &hosts {
            sim.add_address(*node, format!("198.51.100.{}", node.0 + 1).parse().unwrap());
        }
        sim.run_for(Duration::ZERO);
        Self { sim, storm, hosts, links, wishes: Vec::new(), random, moved: 0 }
    }

    fn command(&mut self, at: usize, command: CaspCommand) {
        let node = self.wishes[at].from;
        if self.sim.engine(node).is_some() {
            self.sim.command(node, Command::Casp { id: at as u64, command });
        }
    }

    /// A new user asks for a reservation.
    pub(crate) fn open(&mut self) {
        let from = pick(&mut self.random, &self.hosts);
        let others: Vec<NodeId> = self.hosts.iter().copied().filter(|node| *node != from).collect();
        let to = pick(&mut self.random, &others);
        let rate = STEP * (1 + self.random.range(0..3));
        let both = self.random.range(0..3) == 0;
        let now = self.sim.now().as_micros() / 1_000_000;
        let time = (self.random.range(0..4) == 0).then(|| {
            let start = now + self.random.range(0..30);
            (start, start + pick(&mut self.random, &[10, 100_000]))
        });
        self.wishes.push(Wish { from, to, rate, both, time, closed: false });
        self.ask(self.wishes.len() - 1);
    }

    fn ask(&mut self, at: usize) {
        let wish = self.wishes[at].clone();
        let dst = self.sim.address(wish.to, Family::V4);
        let request = ReserveRequest {
            protocol: Some(17),
            dst_port: u16::try_from(at + 1).ok(),
            bidirectional: wish.both,
            time: wish.time.map(|(start, end)| (wall(start), wall(end))),
            ..ReserveRequest::to(dst, traffic(wish.rate))
        };
        self.command(at, CaspCommand::Reserve(Box::new(request)));
    }

    fn known(&self, at: usize) -> Option<u64> {
        self.sim.engine(self.wishes[at].from)?.known.get(&(at as u64)).copied()
    }

    fn close_one(&mut self, at: usize) {
        self.wishes[at].closed = true;
        self.command(at, CaspCommand::Close);
    }

    /// Does a random action of a user.
    pub(crate) fn whim(&mut self) {
        let at = usize::try_from(self.random.range(0..self.wishes.len() as u64)).unwrap();
        match self.random.range(0..6) {
            0 => self.close_one(at),
            1 if !self.wishes[at].closed => {
                let rate = STEP * (1 + self.random.range(0..3));
                let wanted = Reserved { traffic: traffic(rate), guaranteed: None };
                self.command(at, CaspCommand::Change(wanted));
            }
            2 | 3 => self.change_address(self.wishes[at].from),
            4 if self.wishes.len() < 10 => self.open(),
            _ => {}
        }
    }

    /// A node gets another address on one of its links.
    fn change_address(&mut self, node: NodeId) {
        let own: Vec<LinkId> =
            self.links.iter().filter(|(_, ends)| ends.contains(&node)).map(|(link, _)| *link).collect();
        let link = pick(&mut self.random, &own);
        self.moved += 1;
        let address = format!("10.99.{}.{}", self.moved, node.0 + 1);
        self.sim.set_address_on(node, link, address.parse().unwrap());
    }

    /// All users leave.
    pub(crate) fn close(&mut self) {
        (0..self.wishes.len()).for_each(|at| self.close_one(at));
    }

    /// Restarts a node; its users ask again.
    fn restart(&mut self, node: NodeId) {
        self.sim.restart(node);
        for at in 0..self.wishes.len() {
            if self.wishes[at].from == node && !self.wishes[at].closed {
                self.ask(at);
            }
        }
    }

    /// Injects one fault.
    pub(crate) fn trouble(&mut self) {
        let node = pick(&mut self.random, &self.hosts);
        let (link, _) = pick(&mut self.random, &self.links);
        if fault(&mut self.sim, &mut self.random, self.storm, node, link) {
            self.restart(node);
        }
    }

    pub(crate) fn pause(&mut self) {
        let pause = Duration::from_millis(200 + self.random.range(0..2500));
        self.sim.run_for(pause);
    }

    /// Ends all faults. Routes and addresses stay as they are.
    pub(crate) fn heal(&mut self) {
        for (link, _) in self.links.clone() {
            self.sim.set_link_up(link, true);
            self.sim.set_impairment(link, Impairment::default());
        }
        for node in self.hosts.clone() {
            if self.sim.engine(node).is_none() {
                self.restart(node);
            }
        }
    }

    /// What the live reservations hold on their present paths.
    fn expected(&mut self) -> Holdings {
        let mut expected = Holdings::new();
        for at in 0..self.wishes.len() {
            let Some(rate) = self.known(at) else { continue };
            let Wish { from, to, both, .. } = self.wishes[at];
            let dst = self.sim.address(to, Family::V4);
            let both = both || to == self.hosts[0];
            let src = self.sim.engine(from).and_then(|host| host.sources.get(&(at as u64)).copied());
            let path = self.sim.path(from, dst).unwrap();
            // The opposite flow is reserved at the nodes of the path, whatever way its packets take.
            let nodes = path.iter().skip(1).map(|(node, _)| *node).chain([to]);
            for node in nodes.filter(|_| both) {
                let back =
                    src.and_then(|src| self.sim.path(node, src).ok()).and_then(|back| back.first().copied());
                if let Some((node, link)) = back {
                    expected.insert((node, self.sim.ifindex(node, link), at as u64, true), rate);
                }
            }
            for (node, link) in path {
                expected.insert((node, self.sim.ifindex(node, link), at as u64, false), rate);
            }
        }
        expected
    }

    fn present(&self) -> Holdings {
        let mut present = Holdings::new();
        for node in &self.hosts {
            for (_, one) in self.sim.reservations(*node) {
                let filter = &one.filters[0];
                let back = filter.dst_port.is_none();
                let user = u64::from(filter.dst_port.or(filter.src_port).unwrap_or(1)) - 1;
                *present.entry((*node, one.ifindex, user, back)).or_default() += one.rate();
            }
        }
        present
    }

    /// What a live reservation lacks on its path.
    pub(crate) fn missing(&mut self) -> Option<String> {
        let (expected, present) = (self.expected(), self.present());
        let lacks = |(place, rate): (&_, &u64)| present.get(place).is_none_or(|there| there < rate);
        let (place, rate) = expected.iter().find(|one| lacks(*one))?;
        Some(format!("{place:?} has {:?}, not {rate}", present.get(place)))
    }

    /// What is held for no live reservation, or beside its path, or too much.
    pub(crate) fn surplus(&mut self) -> Option<String> {
        let (expected, present) = (self.expected(), self.present());
        let (place, rate) = present.iter().find(|(place, rate)| expected.get(place) != Some(rate))?;
        Some(format!("{place:?} has {rate}, not {:?}", expected.get(place)))
    }

    pub(crate) fn says(&self, fault: &str) -> String {
        let mut text = format!("{fault}\nrun again with SIGNALBOX_SEED={}\n", self.sim.seed());
        for (at, wish) in self.wishes.iter().enumerate() {
            text += &format!("{at}: {wish:?} holds {:?}\n", self.known(at));
        }
        for node in &self.hosts {
            let Some(casp) = self.sim.engine(*node).and_then(|host| host.node.casp()) else { continue };
            casp.sessions().for_each(|one| text += &format!("{node}: {one:?}\n"));
        }
        for one in self.sim.events() {
            text += &format!("{} {} {:?}\n", one.at, one.node, one.event);
        }
        text
    }

    pub(crate) fn live(&self) -> u64 {
        (0..self.wishes.len()).filter(|at| self.known(*at).is_some()).count() as u64
    }

    /// Events in which a reservation was refused or lost.
    pub(crate) fn failed(&self) -> u64 {
        let is = |event: &Event| {
            matches!(
                event,
                Event::Casp {
                    event: CaspEvent::Reservation(ReservationEvent::Failed(_) | ReservationEvent::Lost(_)),
                    ..
                }
            )
        };
        self.sim.events().iter().filter(|one| is(&one.event)).count() as u64
    }
}
