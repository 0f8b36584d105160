//! A random network with reservations, the actions of their users, and the faults in it.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_core::{EntryRequest, IfIndex, Time};
use signalbox_node::casp::{
    self, Command as CaspCommand, Event as CaspEvent, QosConfig, ReservationEvent, ReserveRequest, Reserved,
};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Family, NodeId, Sim};

use super::field::{Field, REFRESH, Storm, Users, links, pick};
use super::reserve::{SHARE, config, traffic};
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
                ReservationEvent::Granted(granted) => drop(known.insert(*id, granted.amount.traffic.rate)),
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
    pub(crate) field: Field<Host>,
    wishes: Vec<Wish>,
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
        let mut field = Field::new(sim, random, storm, (&hosts, &pairs), hosts.clone());
        field.add_lasting_addresses();
        field.sim.run_for(Duration::ZERO);
        Self { field, wishes: Vec::new() }
    }

    fn command(&mut self, at: usize, command: CaspCommand) {
        let node = self.wishes[at].from;
        if self.field.sim.engine(node).is_some() {
            self.field.sim.command(node, Command::Casp { id: at as u64, command });
        }
    }

    fn ask(&mut self, at: usize) {
        let wish = self.wishes[at].clone();
        let dst = self.field.sim.address(wish.to, Family::V4);
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
        self.field.sim.engine(self.wishes[at].from)?.known.get(&(at as u64)).copied()
    }

    fn close_one(&mut self, at: usize) {
        self.wishes[at].closed = true;
        self.command(at, CaspCommand::Close);
    }

    /// All users leave.
    pub(crate) fn close(&mut self) {
        (0..self.wishes.len()).for_each(|at| self.close_one(at));
    }

    /// What the live reservations hold on their present paths.
    fn expected(&mut self) -> Holdings {
        let mut expected = Holdings::new();
        for at in 0..self.wishes.len() {
            let Some(rate) = self.known(at) else { continue };
            let Wish { from, to, both, .. } = self.wishes[at];
            let dst = self.field.sim.address(to, Family::V4);
            let both = both || to == self.field.hosts[0];
            let src = self.field.sim.engine(from).and_then(|host| host.sources.get(&(at as u64)).copied());
            let path = self.field.sim.path(from, dst).unwrap();
            // The opposite flow is reserved at the nodes of the path, whatever way its packets take.
            let nodes = path.iter().skip(1).map(|(node, _)| *node).chain([to]);
            for node in nodes.filter(|_| both) {
                let back = src
                    .and_then(|src| self.field.sim.path(node, src).ok())
                    .and_then(|back| back.first().copied());
                if let Some((node, link)) = back {
                    expected.insert((node, self.field.sim.ifindex(node, link), at as u64, true), rate);
                }
            }
            for (node, link) in path {
                expected.insert((node, self.field.sim.ifindex(node, link), at as u64, false), rate);
            }
        }
        expected
    }

    fn present(&self) -> Holdings {
        let mut present = Holdings::new();
        for node in &self.field.hosts {
            for (_, one) in self.field.sim.reservations(*node) {
                let filter = &one.filters[0];
                let back = filter.dst_port.is_none();
                let user = u64::from(filter.dst_port.or(filter.src_port).unwrap_or(1)) - 1;
                *present.entry((*node, one.ifindex, user, back)).or_default() += one.rate();
            }
        }
        present
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
        self.field.sim.events().iter().filter(|one| is(&one.event)).count() as u64
    }
}

impl Users for Held {
    type Engine = Host;

    fn field(&mut self) -> &mut Field<Host> {
        &mut self.field
    }

    fn open(&mut self) {
        let (from, to) = self.field.pair();
        let rate = STEP * (1 + self.field.random.range(0..3));
        let both = self.field.random.range(0..3) == 0;
        let now = self.field.sim.now().as_micros() / 1_000_000;
        let time = (self.field.random.range(0..4) == 0).then(|| {
            let start = now + self.field.random.range(0..30);
            (start, start + pick(&mut self.field.random, &[10, 100_000]))
        });
        self.wishes.push(Wish { from, to, rate, both, time, closed: false });
        self.ask(self.wishes.len() - 1);
    }

    fn act(&mut self) {
        let at = usize::try_from(self.field.random.range(0..self.wishes.len() as u64)).unwrap();
        match self.field.random.range(0..6) {
            0 => self.close_one(at),
            1 if !self.wishes[at].closed => {
                let rate = STEP * (1 + self.field.random.range(0..3));
                let wanted = Reserved { traffic: traffic(rate), guaranteed: None };
                self.command(at, CaspCommand::Change(wanted));
            }
            2 | 3 => self.field.change_address(self.wishes[at].from),
            4 if self.wishes.len() < 10 => self.open(),
            _ => {}
        }
    }

    fn restart(&mut self, node: NodeId) {
        self.field.sim.restart(node);
        for at in 0..self.wishes.len() {
            if self.wishes[at].from == node && !self.wishes[at].closed {
                self.ask(at);
            }
        }
    }

    fn missing(&mut self) -> Option<String> {
        let (expected, present) = (self.expected(), self.present());
        let lacks = |(place, rate): (&_, &u64)| present.get(place).is_none_or(|there| there < rate);
        let (place, rate) = expected.iter().find(|one| lacks(*one))?;
        Some(format!("{place:?} has {:?}, not {rate}", present.get(place)))
    }

    fn surplus(&mut self) -> Option<String> {
        let (expected, present) = (self.expected(), self.present());
        let (place, rate) = present.iter().find(|(place, rate)| expected.get(place) != Some(rate))?;
        Some(format!("{place:?} has {rate}, not {:?}", expected.get(place)))
    }

    fn says(&self, fault: &str) -> String {
        let mut text = format!("{fault}\nrun again with SIGNALBOX_SEED={}\n", self.field.sim.seed());
        for (at, wish) in self.wishes.iter().enumerate() {
            text += &format!("{at}: {wish:?} holds {:?}\n", self.known(at));
        }
        for node in &self.field.hosts {
            let Some(casp) = self.field.sim.engine(*node).and_then(|host| host.node.casp()) else { continue };
            casp.sessions().for_each(|one| text += &format!("{node}: {one:?}\n"));
        }
        for one in self.field.sim.events() {
            text += &format!("{} {} {:?}\n", one.at, one.node, one.event);
        }
        text
    }
}
