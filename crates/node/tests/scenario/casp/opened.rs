//! A random network with firewalls, the passages that users ask for, and the faults in it.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use signalbox_core::node::{Input, NodeEngine, Output, Prefix};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{EntryRequest, SessionId, Time};
use signalbox_node::casp::{
    self, Command as CaspCommand, Event as CaspEvent, FlowId, NatfwConfig, NatfwRole as Role, NatfwTerms,
    OpenRequest, PassageEvent,
};
use signalbox_node::resources::Config as Resources;
use signalbox_node::resources::config::{Action, Opening, RuleConfig};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Family, NodeId, Sim};

use super::field::{Field, REFRESH, Storm, Users, links, pick};
use crate::net::{WALL_US, make};

/// The user at each node who accepts the packets of all senders.
const RECEIVER: u64 = 1000;

/// A session with a flow.
type Passage = (SessionId, FlowId);

/// A node, and what its users know by their events.
pub(crate) struct Host {
    node: Node,
    /// The passage that each user asked for, and whether it stands.
    asked: BTreeMap<u64, (Passage, bool)>,
    /// The passages that the receiver of this node has not seen the end of.
    accepted: BTreeSet<Passage>,
}

impl NodeEngine for Host {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        if let Input::Command(Command::Casp { id: RECEIVER, command: CaspCommand::Close }) = &input {
            self.accepted.clear();
        }
        self.node.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        let Self { node, asked, accepted } = self;
        let output = node.poll()?;
        if let Output::Event(Event::Casp { id, event: CaspEvent::Passage(event) }) = &output {
            match event {
                PassageEvent::Started { session, flow } => {
                    let stands = asked.get(id).is_some_and(|(_, stands)| *stands);
                    asked.insert(*id, ((*session, *flow), stands));
                }
                PassageEvent::Granted { .. } => {
                    asked.get_mut(id).expect("a passage was begun").1 = true;
                }
                PassageEvent::Refused(_) | PassageEvent::Failed(_) | PassageEvent::Closed => {
                    asked.remove(id);
                }
                PassageEvent::Accepted { session, flow } => {
                    accepted.insert((*session, *flow));
                }
                PassageEvent::Ended { session, flow, .. } => {
                    assert!(accepted.remove(&(*session, *flow)), "what ends was accepted");
                }
                PassageEvent::Accepting(_) | PassageEvent::Notified(_) => {}
            }
        }
        Some(output)
    }

    fn entries(&self) -> Vec<EntryRequest> {
        self.node.entries()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.node.next_deadline()
    }
}

/// A user's passage. Its number is the destination port of its flow.
#[derive(Debug, Clone)]
struct Wish {
    from: NodeId,
    to: NodeId,
    by_receiver: bool,
    closed: bool,
}

/// The sources of the packets that pass a firewall, by user.
type Openings = BTreeMap<(NodeId, u64), Vec<IpAddr>>;

pub(crate) struct World {
    pub(crate) field: Field<Host>,
    walls: BTreeSet<NodeId>,
    wishes: Vec<Wish>,
}

/// A host or a firewall. Anyone opens each firewall: who may do so is not the matter here.
fn config(role: Role, transport: casp::Transport) -> Config {
    let opens = vec![Opening::Outward, Opening::Inward, Opening::Reserve];
    let rule = RuleConfig { opens, ..RuleConfig::new("all", Action::Allow) };
    let natfw = NatfwConfig { role, inside: vec!["eth0".to_owned()], ..NatfwConfig::default() };
    let mut casp = casp::Config { natfw: Some(natfw), ..casp::Config::default() };
    (casp.engine.refresh, casp.engine.transport) = (REFRESH, transport);
    Config {
        wall_clock_us: WALL_US,
        casp: Some(casp),
        resources: Resources { rules: vec![rule], ..Resources::default() },
        ..Config::empty()
    }
}

impl World {
    pub(crate) fn new(seed: u64, storm: Storm) -> Self {
        let mut sim = Sim::new(seed);
        let mut random = sim.random(1);
        let count = 4 + usize::try_from(random.range(0..4)).unwrap();
        let pairs = links(&mut random, count, storm);
        let transport =
            pick(&mut random, &[casp::Transport::Tcp, casp::Transport::Tcp, casp::Transport::Udp]);
        let mut walls = BTreeSet::new();
        let hosts: Vec<NodeId> = (0..count)
            .map(|n| {
                let role = if random.chance(0.6) { Role::Firewall } else { Role::Host };
                let config = config(role, transport);
                let node = sim.add_engine(format!("n{n}"), move |boot| Host {
                    node: make(boot, config.clone()),
                    asked: BTreeMap::new(),
                    accepted: BTreeSet::new(),
                });
                if role == Role::Firewall {
                    walls.insert(node);
                }
                node
            })
            .collect();
        let mut field = Field::new(sim, random, storm, (&hosts, &pairs), hosts.clone());
        field.add_lasting_addresses();
        field.sim.run_for(Duration::ZERO);
        let mut world = Self { field, walls, wishes: Vec::new() };
        world.field.hosts.clone().into_iter().for_each(|node| world.accept(node));
        world
    }

    fn accept(&mut self, node: NodeId) {
        let any = Prefix { addr: "0.0.0.0".parse().unwrap(), len: 0 };
        let command = CaspCommand::Accept(FlowFilter::between(any, any));
        self.field.sim.command(node, Command::Casp { id: RECEIVER, command });
    }

    fn command(&mut self, at: usize, command: CaspCommand) {
        let node = self.wishes[at].from;
        if self.field.sim.engine(node).is_some() {
            self.field.sim.command(node, Command::Casp { id: at as u64, command });
        }
    }

    fn ask(&mut self, at: usize) {
        let Wish { to, by_receiver, .. } = self.wishes[at];
        let request = OpenRequest {
            dst: self.field.sim.address(to, Family::V4),
            src: None,
            protocol: Some(17),
            src_port: Some(4000),
            dst_port: u16::try_from(at).ok(),
            receiver_initiated: by_receiver,
            lifetime: None,
            terms: NatfwTerms::default(),
            session: None,
        };
        self.command(at, CaspCommand::Open(Box::new(request)));
    }

    /// The passage of a user that stands.
    fn known(&self, at: usize) -> Option<Passage> {
        let (passage, stands) = self.field.sim.engine(self.wishes[at].from)?.asked.get(&(at as u64))?;
        stands.then_some(*passage)
    }

    fn close_one(&mut self, at: usize) {
        self.wishes[at].closed = true;
        self.command(at, CaspCommand::Close);
    }

    /// Users whose passage was refused or lost ask again.
    pub(crate) fn ask_again(&mut self) {
        for at in 0..self.wishes.len() {
            let Wish { from, closed, .. } = self.wishes[at];
            let asks = self.field.sim.engine(from).is_some_and(|host| host.asked.contains_key(&(at as u64)));
            if !closed && !asks {
                self.ask(at);
            }
        }
    }

    /// All users leave.
    pub(crate) fn close(&mut self) {
        (0..self.wishes.len()).for_each(|at| self.close_one(at));
    }

    /// What the firewalls of the present paths let pass for the live passages.
    fn expected(&mut self) -> Openings {
        let mut expected = Openings::new();
        for at in 0..self.wishes.len() {
            let Some((_, flow)) = self.known(at) else { continue };
            let path = self.field.sim.path(self.wishes[at].from, flow.dst()).unwrap();
            for (node, _) in path.into_iter().skip(1).filter(|(node, _)| self.walls.contains(node)) {
                expected.insert((node, at as u64), vec![flow.src()]);
            }
        }
        expected
    }

    fn present(&self) -> Openings {
        let mut present = Openings::new();
        for node in &self.field.hosts {
            for (_, one) in self.field.sim.pinholes(*node) {
                let user = one.packets.dst_port.unwrap_or_default().into();
                present.entry((*node, user)).or_default().push(one.packets.src.addr);
            }
        }
        present
    }

    /// Sessions of all nodes together.
    pub(crate) fn sessions(&self) -> u32 {
        let of = |node: &NodeId| {
            let node = &self.field.sim.engine(*node)?.node;
            Some(node.casp()?.session_count() + node.casp_firewall()?.sessions())
        };
        self.field.hosts.iter().filter_map(of).sum()
    }

    pub(crate) fn live(&self) -> u64 {
        (0..self.wishes.len()).filter(|at| self.known(*at).is_some()).count() as u64
    }

    /// Events that fit.
    pub(crate) fn count(&self, fits: impl Fn(&PassageEvent) -> bool) -> u64 {
        let is = |event: &Event| matches!(event, Event::Casp { event: CaspEvent::Passage(event), .. } if fits(event));
        self.field.sim.events().iter().filter(|one| is(&one.event)).count() as u64
    }
}

impl Users for World {
    type Engine = Host;

    fn field(&mut self) -> &mut Field<Host> {
        &mut self.field
    }

    fn open(&mut self) {
        let (from, to) = self.field.pair();
        let by_receiver = self.field.random.chance(0.5);
        self.wishes.push(Wish { from, to, by_receiver, closed: false });
        self.ask(self.wishes.len() - 1);
    }

    fn act(&mut self) {
        let at = usize::try_from(self.field.random.range(0..self.wishes.len() as u64)).unwrap();
        match self.field.random.range(0..7) {
            0 => self.close_one(at),
            1 | 2 => self.field.change_address(self.wishes[at].from),
            3 => {
                // The administrator of a firewall ends it.
                let walls: Vec<NodeId> = self
                    .present()
                    .into_keys()
                    .filter(|(_, user)| *user == at as u64)
                    .map(|(node, _)| node)
                    .collect();
                if let (Some((session, _)), false) = (self.known(at), walls.is_empty()) {
                    let node = pick(&mut self.field.random, &walls);
                    if self.field.sim.engine(node).is_some() {
                        let command = CaspCommand::Delete(session);
                        self.field.sim.command(node, Command::Casp { id: 0, command });
                    }
                }
            }
            4 if self.wishes.len() < 10 => self.open(),
            5 => self.ask_again(),
            6 => {
                // The receiver leaves, and another one comes.
                let node = self.wishes[at].to;
                if self.field.sim.engine(node).is_some() {
                    self.field.sim.command(node, Command::Casp { id: RECEIVER, command: CaspCommand::Close });
                    self.accept(node);
                }
            }
            _ => {}
        }
    }

    fn restart(&mut self, node: NodeId) {
        self.field.sim.restart(node);
        self.accept(node);
        for at in 0..self.wishes.len() {
            if self.wishes[at].from == node && !self.wishes[at].closed {
                self.ask(at);
            }
        }
    }

    fn missing(&mut self) -> Option<String> {
        let (expected, present) = (self.expected(), self.present());
        let lacks = |(place, sources): &(&_, &Vec<IpAddr>)| {
            !present.get(*place).is_some_and(|there| there.contains(&sources[0]))
        };
        let (place, sources) = expected.iter().find(lacks)?;
        Some(format!("{place:?} lets {:?} pass, not {sources:?}", present.get(place)))
    }

    fn surplus(&mut self) -> Option<String> {
        let (expected, present) = (self.expected(), self.present());
        if let Some((place, sources)) =
            present.iter().find(|(place, there)| expected.get(place) != Some(there))
        {
            return Some(format!("{place:?} lets {sources:?} pass, not {:?}", expected.get(place)));
        }
        let live: BTreeSet<(NodeId, Passage)> = (0..self.wishes.len())
            .filter(|at| self.wishes[*at].by_receiver)
            .filter_map(|at| Some((self.wishes[at].to, self.known(at)?)))
            .collect();
        let mut seen = BTreeSet::new();
        for node in &self.field.hosts {
            let accepted = self.field.sim.engine(*node).into_iter().flat_map(|host| &host.accepted);
            seen.extend(accepted.map(|passage| (*node, *passage)));
        }
        (seen != live).then(|| format!("receivers have {seen:?}, not {live:?}"))
    }

    fn says(&self, fault: &str) -> String {
        let mut text = format!("{fault}\nrun again with SIGNALBOX_SEED={}\n", self.field.sim.seed());
        for (at, wish) in self.wishes.iter().enumerate() {
            text += &format!("{at}: {wish:?} has {:?}\n", self.known(at));
        }
        for node in &self.field.hosts {
            let Some(host) = self.field.sim.engine(*node) else { continue };
            let wall = if self.walls.contains(node) { "firewall" } else { "host" };
            text += &format!("{node}: {wall}\n");
            host.node
                .casp()
                .into_iter()
                .for_each(|casp| casp.sessions().for_each(|one| text += &format!("  {one:?}\n")));
            if let Some(firewall) = host.node.casp_firewall() {
                firewall.walk(0, |one| {
                    text += &format!("  {one:?}\n");
                    true
                });
            }
        }
        for one in self.field.sim.events() {
            text += &format!("{} {} {:?}\n", one.at, one.node, one.event);
        }
        text
    }
}
