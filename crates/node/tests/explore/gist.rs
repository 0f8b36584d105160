//! GIST: routing state and messaging associations (RFC 5971 §6), in a row of nodes with one Ping session.
//!
//! After the faults every live session is whole within one validity time: each node has routing state with its two
//! neighbors, and replies return. Other state is gone soon after that. When the user stops, all state and all channels
//! end. A deadlock is a session that is not whole in the end.

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;

use signalbox_gist::apd::{Apd, Verdict};
use signalbox_gist::engine::{AssociationConfig, Transport};
use signalbox_gist::wire::{Header, MAGIC};
use signalbox_node::ping::{self, PingEvent, PingRequest};
use signalbox_node::{Command, Config, Event, GistConfig, Node};
use signalbox_sim::explore::Model;
use signalbox_sim::{Boot, Family, LinkConfig, NodeId, Packet, Sim, StreamConfig, topology};

use crate::explored;

/// Validity of routing state.
const VALIDITY: Duration = Duration::from_secs(6);
/// Time without messages after which a session ends.
const INACTIVITY: Duration = Duration::from_secs(6);
/// Most time between two Queries of a handshake.
const T2: Duration = Duration::from_secs(1);
/// Time after which a stream or an association without an answer is given up.
const GIVE_UP: Duration = Duration::from_secs(3);
/// Time between two messages of the user.
const INTERVAL: Duration = Duration::from_secs(2);

/// The present peer identity of each node; a restart changes it.
type Identities = Rc<RefCell<Vec<Vec<u8>>>>;

/// When faults happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// From the first message on, for this time.
    Start(Duration),
    /// While the session stands and is refreshed.
    Refresh(Duration),
    /// From when the user stops.
    Stop(Duration),
}

struct Row {
    nodes: u32,
    /// Messages over TCP.
    tcp: bool,
    /// The last node has a session towards the first one too.
    both: bool,
    phase: Phase,
    identities: Identities,
}

impl Row {
    fn new(nodes: u32, phase: Phase) -> Self {
        Self { nodes, tcp: false, both: false, phase, identities: Identities::default() }
    }

    fn config(&self, identity: Vec<u8>) -> Config {
        let mut config = Config::default();
        let GistConfig { engine: gist, .. } = config.gist.as_mut().unwrap();
        gist.identity = identity;
        gist.validity = VALIDITY;
        gist.inactivity = INACTIVITY;
        gist.t1 = Duration::from_millis(250);
        gist.t2 = T2;
        gist.attempts = 4;
        gist.hold_down = Duration::from_millis(200);
        gist.hold_down_max = Duration::from_secs(3);
        gist.associations = AssociationConfig {
            tcp_port: self.tcp.then_some(270),
            sctp_port: None,
            preference: vec![Transport::Tcp],
            always: true,
            hold_time: Duration::from_secs(3),
            setup_timeout: GIVE_UP,
            idle_after: Duration::from_secs(1),
            authorised: Apd::new(64, Verdict::Allow),
            ..AssociationConfig::default()
        };
        config
    }

    /// The users: the number of the ping, its node, and the other end.
    fn users(&self) -> Vec<(u64, NodeId, NodeId)> {
        let (first, last) = (NodeId(0), NodeId(self.nodes - 1));
        let mut users = vec![(0, first, last)];
        users.extend(self.both.then_some((1, last, first)));
        users
    }

    fn start(&self, sim: &mut Sim<Node>, only: impl Fn(NodeId) -> bool) {
        for (id, from, to) in self.users() {
            if !only(from) {
                continue;
            }
            let [src, dst] = [from, to].map(|node| sim.address(node, Family::V4));
            let timeout = Duration::from_secs(1);
            let request = PingRequest { src: Some(src), interval: INTERVAL, timeout, ..PingRequest::to(dst) };
            sim.command(from, Command::Ping { id, command: ping::Command::Start(request) });
        }
    }

    fn stop(&self, sim: &mut Sim<Node>) {
        for (id, from, _) in self.users() {
            sim.command(from, Command::Ping { id, command: ping::Command::Stop });
        }
    }

    /// The fault in the routing state of a user's session, if there is one.
    fn broken(&self, sim: &Sim<Node>, (id, from, to): (u64, NodeId, NodeId)) -> Result<(), String> {
        let started = sim.events().iter().rev().find_map(|one| match &one.event {
            Event::Ping { id: of, event: PingEvent::Started { session, .. } } if *of == id => Some(*session),
            _ => None,
        });
        let session = started.ok_or("the user is refused")?;
        let mut row: Vec<NodeId> = sim.nodes().collect();
        if from > to {
            row.reverse();
        }
        let identities = self.identities.borrow();
        let identity = |node: Option<&NodeId>| node.map(|node| &identities[node.0 as usize][..]);
        for (at, node) in row.iter().enumerate() {
            let views = sim.engine(*node).into_iter().flat_map(Node::sessions);
            let view = views.into_iter().find(|view| view.session == session);
            let view = view.ok_or_else(|| format!("{node} has no state of session {id}"))?;
            let [up, down] = [view.upstream, view.downstream].map(|half| half.map(|half| half.identity));
            let before = at.checked_sub(1).and_then(|before| row.get(before));
            if (up, down) != (identity(before), identity(row.get(at + 1))) {
                return Err(format!("{node} has the peers {up:?} and {down:?} for session {id}"));
            }
            if view.queued > 0 {
                return Err(format!("{node} holds {} messages of session {id}", view.queued));
            }
        }
        Ok(())
    }

    fn whole(&self, sim: &Sim<Node>) -> Result<(), String> {
        self.users().into_iter().try_for_each(|user| self.broken(sim, user))
    }

    /// Sessions and channels that are left.
    fn left(sim: &Sim<Node>) -> (usize, usize) {
        let engines = || sim.nodes().filter_map(|node| sim.engine(node));
        (engines().map(Node::session_count).sum(), engines().map(Node::channel_count).sum())
    }

    fn ends(sim: &mut Sim<Node>) -> Result<(), String> {
        let limit = INACTIVITY + VALIDITY + GIVE_UP * 2 + T2 * 4;
        if sim.wait(limit, |sim| Self::left(sim) == (0, 0)) {
            return Ok(());
        }
        Err(format!("{:?} sessions and channels are left", Self::left(sim)))
    }
}

impl Model for Row {
    type Engine = Node;

    fn network(&self) -> Sim<Node> {
        let mut sim = Sim::new(1);
        sim.set_stream_config(StreamConfig {
            connect_timeout: GIVE_UP,
            give_up: GIVE_UP,
            ..StreamConfig::default()
        });
        *self.identities.borrow_mut() = vec![Vec::new(); self.nodes as usize];
        let (shared, config) = (Rc::clone(&self.identities), self.config(Vec::new()));
        let nodes = sim.add_engines(self.nodes, move |boot: Boot| {
            let identity = [&boot.node.0.to_be_bytes()[..], &boot.seed[..8]].concat();
            shared.borrow_mut()[boot.node.0 as usize].clone_from(&identity);
            let mut config = config.clone();
            config.gist.as_mut().unwrap().engine.identity = identity;
            Node::new(config, boot.seed).unwrap()
        });
        topology::chain(&mut sim, &nodes, &LinkConfig::default());
        self.start(&mut sim, |_| true);
        match self.phase {
            Phase::Start(_) => {}
            Phase::Refresh(_) | Phase::Stop(_) => {
                sim.run_for(INTERVAL + INTERVAL / 4);
                self.whole(&sim).unwrap();
            }
        }
        if let Phase::Stop(_) = self.phase {
            self.stop(&mut sim);
        }
        sim
    }

    fn duration(&self) -> Duration {
        match self.phase {
            Phase::Start(duration) | Phase::Refresh(duration) | Phase::Stop(duration) => duration,
        }
    }

    fn restarted(&self, sim: &mut Sim<Node>, node: NodeId) {
        if !matches!(self.phase, Phase::Stop(_)) {
            self.start(sim, |user| user == node);
        }
    }

    /// A session has one record at a node, also when its user started again.
    fn always(&self, sim: &Sim<Node>) -> Result<(), String> {
        let most = self.users().len() + 1;
        match sim.nodes().find(|node| sim.engine(*node).is_some_and(|node| node.session_count() > most)) {
            Some(node) => Err(format!("{node} has more than {most} sessions")),
            None => Ok(()),
        }
    }

    fn finally(&self, sim: &mut Sim<Node>) -> Result<(), String> {
        if matches!(self.phase, Phase::Stop(_)) {
            return Self::ends(sim);
        }
        sim.run_for(VALIDITY);
        self.whole(sim)?;
        let since = sim.now();
        // Other state was refreshed shortly after the faults at the latest.
        sim.run_for(GIVE_UP + T2);
        self.whole(sim)?;
        let most = self.users().len();
        if let Some(node) = sim.nodes().find(|node| sim.engine(*node).unwrap().session_count() != most) {
            let count = sim.engine(node).unwrap().session_count();
            return Err(format!("{node} has {count} sessions, not {most}"));
        }
        for (id, ..) in self.users() {
            let answered = |event: &Event| matches!(event, Event::Ping { id: of, event: PingEvent::Reply(reply) } if *of == id && reply.reached_end);
            if !sim.events().iter().any(|one| one.at > since && answered(&one.event)) {
                return Err(format!("no reply in session {id}"));
            }
        }
        self.stop(sim);
        Self::ends(sim)
    }

    fn name(&self, packet: &Packet) -> String {
        let header = packet.payload.strip_prefix(&MAGIC).and_then(|octets| Header::parse(octets).ok());
        header.map_or_else(String::new, |header| format!("{:?}", header.kind))
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Nodes in a row whose messages use TCP.
fn over_tcp(nodes: u32, phase: Phase) -> Row {
    Row { tcp: true, ..Row::new(nodes, phase) }
}

#[test]
fn two_nodes() {
    let explored = explored("GIST, 2 nodes, Start", &Row::new(2, Phase::Start(SECOND)), 2);
    assert!(explored.ends > 1000, "{explored}");
    for phase in [Phase::Refresh(VALIDITY), Phase::Stop(VALIDITY)] {
        crate::explored(&format!("GIST, 2 nodes, {phase:?}"), &Row::new(2, phase), 1);
    }
}

#[test]
fn three_and_four_nodes() {
    for nodes in [3, 4] {
        let row = Row::new(nodes, Phase::Start(SECOND / 2));
        explored(&format!("GIST, {nodes} nodes, {:?}", row.phase), &row, 1);
    }
}

#[test]
fn an_association() {
    for phase in [Phase::Start(SECOND), Phase::Refresh(VALIDITY), Phase::Stop(VALIDITY)] {
        let explored = explored(&format!("GIST, association, {phase:?}"), &over_tcp(2, phase), 1);
        assert!(explored.ends > 100, "{explored}");
    }
}

/// Each end may open an association to the other at the same time. With one fault this takes some hours.
#[test]
fn associations_of_both_ends() {
    let row = Row { both: true, ..over_tcp(2, Phase::Start(SECOND / 8)) };
    explored("GIST, associations of both ends", &row, 0);
}

#[test]
fn associations_of_three_nodes() {
    explored("GIST, 3 nodes, associations", &over_tcp(3, Phase::Start(SECOND / 8)), 1);
}
