//! Test networks, and functions that read their log.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::Time;
use signalbox_gist::wire::{Encapsulation, Header, MAGIC, Message, MessageType};
use signalbox_node::ping::{self, PingEvent, PingRequest, Reply};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Boot, Captured, Family, Fate, LinkConfig, LinkId, NodeId, Sim, topology};

/// The wall-clock time at the start of each run: 2026-09-21.
pub(crate) const WALL_US: u64 = 1_790_000_000_000_000;

pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// The software of a node in a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// GIST and Ping.
    Full,
    /// GIST without Ping.
    WithoutPing,
    /// No protocol: a router.
    Router,
}

/// Settings with short times: the state of a session lives for 10 s after its last message.
pub(crate) fn config() -> Config {
    let mut config = Config { wall_clock_us: WALL_US, ..Config::default() };
    gist(&mut config).inactivity = Duration::from_secs(10);
    config
}

/// The settings of GIST of the node.
pub(crate) fn gist(config: &mut Config) -> &mut signalbox_node::gist::Config {
    &mut config.gist.as_mut().unwrap().engine
}

/// After this much time without messages, no state is left anywhere: inactivity, then validity.
pub(crate) const QUIET: Duration = Duration::from_secs(10 + 30 + 5);

pub(crate) fn make(boot: Boot, config: Config) -> Node {
    Node::new(config, boot.seed).unwrap()
}

pub(crate) fn full(boot: Boot) -> Node {
    make(boot, config())
}

/// A network that a test builds.
pub(crate) struct Net {
    pub(crate) sim: Sim<Node>,
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) links: Vec<LinkId>,
}

impl Net {
    /// Nodes in a row.
    pub(crate) fn row(seed: u64, roles: &[Role], link: &LinkConfig) -> Self {
        let mut sim = Sim::new(seed);
        let mut nodes = Vec::new();
        for (n, role) in roles.iter().enumerate() {
            nodes.push(match role {
                Role::Full => sim.add_engine(format!("n{n}"), full),
                Role::WithoutPing => {
                    sim.add_engine(format!("n{n}"), |boot| make(boot, Config { ping: None, ..config() }))
                }
                Role::Router => sim.add_router(format!("n{n}")),
            });
        }
        let links = topology::chain(&mut sim, &nodes, link);
        Self { sim, nodes, links }
    }

    /// Full nodes in a row.
    pub(crate) fn chain(seed: u64, length: usize, link: &LinkConfig) -> Self {
        Self::row(seed, &vec![Role::Full; length], link)
    }

    pub(crate) fn first(&self) -> NodeId {
        self.nodes[0]
    }

    pub(crate) fn last(&self) -> NodeId {
        self.nodes[self.nodes.len() - 1]
    }

    /// Starts a ping from the first node to the last.
    pub(crate) fn ping(&mut self, id: u64, family: Family, count: Option<u32>) {
        let dst = self.sim.address(self.last(), family);
        let request = PingRequest { count, ..PingRequest::to(dst) };
        self.sim.command(self.first(), Command::Ping { id, command: ping::Command::Start(request) });
    }

    /// Runs until the ping ends. Returns the numbers of messages sent and of replies from the end.
    pub(crate) fn done(&mut self, id: u64, limit: Duration) -> (u32, u32) {
        self.sim.expect("the ping ends", limit, |sim| outcome(sim, id).is_some());
        outcome(&self.sim, id).unwrap()
    }

    /// Address that `node` has on its link towards the first node.
    pub(crate) fn towards_first(&self, node: usize, family: Family) -> IpAddr {
        self.sim.address_on(self.nodes[node], self.links[node - 1], family)
    }

    /// Address that `node` has on its link towards the last node.
    pub(crate) fn towards_last(&self, node: usize, family: Family) -> IpAddr {
        self.sim.address_on(self.nodes[node], self.links[node], family)
    }

    pub(crate) fn sessions(&self, node: usize) -> usize {
        sessions(&self.sim, self.nodes[node])
    }

    /// Types of the GIST messages that `node` put on `link`, in order.
    pub(crate) fn sent_on(&self, link: usize, node: usize) -> Vec<MessageType> {
        let (link, node) = (self.links[link], self.nodes[node]);
        self.sim.captured().filter(|c| c.link == link && c.from == node).map(|c| header(c).kind).collect()
    }
}

pub(crate) fn outcome(sim: &Sim<Node>, id: u64) -> Option<(u32, u32)> {
    sim.events().iter().find_map(|h| match &h.event {
        Event::Ping { id: i, event: PingEvent::Done { sent, received } } if *i == id => {
            Some((*sent, *received))
        }
        _ => None,
    })
}

/// Replies to the ping so far, with their times of arrival.
pub(crate) fn replies(sim: &Sim<Node>, id: u64) -> Vec<(Time, &Reply)> {
    sim.events()
        .iter()
        .filter_map(|h| match &h.event {
            Event::Ping { id: i, event: PingEvent::Reply(reply) } if *i == id => Some((h.at, reply)),
            _ => None,
        })
        .collect()
}

/// Addresses of the forward path.
pub(crate) fn path(reply: &Reply) -> Vec<IpAddr> {
    reply.hops.iter().map(|hop| hop.address).collect()
}

/// Number of sessions at a node; 0 if it has no engine.
pub(crate) fn sessions(sim: &Sim<Node>, node: NodeId) -> usize {
    sim.engine(node).map_or(0, Node::session_count)
}

/// Number of sessions at all nodes together.
pub(crate) fn all_sessions(sim: &Sim<Node>) -> usize {
    sim.nodes().map(|node| sessions(sim, node)).sum()
}

/// A counter, summed over all nodes.
pub(crate) fn total(sim: &Sim<Node>, subsystem: &str, name: &str) -> u64 {
    sim.nodes().filter_map(|node| sim.engine(node)).map(|node| node.counter(subsystem, name)).sum()
}

/// The GIST header of a captured packet.
pub(crate) fn header(captured: &Captured) -> Header {
    let payload = captured.packet.payload.strip_prefix(&MAGIC).unwrap();
    Header::parse(payload).unwrap()
}

/// The GIST message of a captured packet.
pub(crate) fn message(captured: &Captured) -> Message<'_> {
    let payload = captured.packet.payload.strip_prefix(&MAGIC).unwrap();
    let encapsulation = if header(captured).kind == MessageType::QUERY {
        Encapsulation::QMode
    } else {
        Encapsulation::Normal
    };
    Message::parse(payload, encapsulation).unwrap()
}

/// Checks rules that hold for every packet in the log.
///
/// GIST-4.3.1-10: no message has hop count 0. GIST-5.3.1-03, GIST-5.3.2.3-05: every datagram starts with the magic
/// number and goes to or comes from the GIST port. GIST-4.3.3-07: no message is larger than 512 octets.
/// GIST-5.3.2.1-08: Queries carry DF.
pub(crate) fn assert_clean_wire(sim: &Sim<Node>) {
    let mut seen = 0;
    for captured in sim.captured() {
        let header = header(captured);
        let _ = message(captured);
        assert!(header.hops > 0, "{captured:?}");
        assert!(captured.packet.dst.port() == 270, "{captured:?}");
        assert!(captured.packet.payload.len() - MAGIC.len() <= 512, "{captured:?}");
        if header.kind == MessageType::QUERY && captured.packet.dst.is_ipv4() {
            assert!(captured.packet.dont_fragment, "{captured:?}");
        }
        seen += usize::from(captured.fate == Fate::Carried);
    }
    assert!(seen > 0, "nothing was captured");
}
