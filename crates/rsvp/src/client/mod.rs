//! Who asks (RFC 2745 §6): a diagnostic client without clock or socket. It needs no RSVP node where it runs.
//!
//! ```text
//! let mut client = Client::new(query, Patience::default());
//! client.start(now);
//! loop {
//!     while let Some(action) = client.poll() { … }     // send a DREQ, or find the IP nodes towards the sender
//!     if let Some(report) = client.report() { break }
//!     // until client.deadline(): a DREP by UDP, or else Client::timer
//! }
//! ```
//!
//! First the LAST-HOP is asked for everything. A request that nobody answers is repeated; if that does not help either,
//! some node on the way does not know diagnostics. Then the LAST-HOP is asked for one hop, two hops and so on, until it is
//! silent again; what a traceroute finds behind the silent node is asked next as LAST-HOP (§5.6). Parts of replies are put
//! together (`parts`), and what is there is reported if not all of them come in time.

mod parts;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::Time;

use crate::wire::{
    DiagErrors, DiagResponse, Diagnostic, Filter, HeaderFlags, Message, MessageType, ObjectType, Objects,
    RsvpHop, Session, Writer,
};
use parts::Parts;

/// TTL that DREQs say they are sent with, and are to be sent with.
pub const TTL: u8 = 255;
/// Octets that RSVP nodes are not to go below (RFC 2745 §3.3), whatever a link's MTU: the least MTU of IPv6.
const LEAST_MTU: u16 = 1280;

/// What is asked. Addresses are all of one IP version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The session.
    pub session: Session,
    /// The sender that its path state is about.
    pub sender: Filter,
    /// The node where information starts being collected, on the path of the sender's data.
    pub last_hop: IpAddr,
    /// RSVP hops at most; 0: all.
    pub max_hops: u8,
    /// Which objects nodes are to report; empty: the default ones.
    pub select: Vec<ObjectType>,
    /// Whether replies come back from node to node (a firewall may want that) and not directly from where they are.
    pub with_route: bool,
    /// Octets that messages are to have at most; 0: 1280, which passes everywhere.
    pub path_mtu: u16,
    /// Where this client listens for UDP.
    pub requester: SocketAddr,
    /// Name of the first request; those that follow count on from it.
    pub request_id: u32,
}

/// How long is waited for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How often a request is sent at most, at least once.
    pub tries: u32,
    /// Between them, and after the last.
    pub timeout: Duration,
    /// From the first part of a reply to its last.
    pub reassembly: Duration,
    /// Whether nodes that do not answer are worked around.
    pub fall_back: bool,
}

impl Default for Patience {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self { tries: 3, timeout: second, reassembly: 3 * second, fall_back: true }
    }
}

/// What the client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send this DREQ as an IP packet of protocol 46 with TTL [`TTL`].
    Send {
        /// To this node.
        to: IpAddr,
        /// The message.
        octets: Vec<u8>,
    },
    /// Find the IP nodes on the way to the sender by a traceroute, and give them to [`Client::route`].
    FindRoute {
        /// The sender.
        to: IpAddr,
    },
}

/// What one node said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node(Box<[u8]>);

impl Node {
    /// Its DIAG_RESPONSE.
    #[must_use]
    pub fn response(&self) -> Option<DiagResponse<'_>> {
        let object = Objects::at(&self.0, 0).next()?.ok()?;
        DiagResponse::parse(&object).ok()
    }
}

/// A line of a report, in the order of the way towards the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A node that answered.
    Node(Node),
    /// A node that did not; what is behind it was asked by itself.
    Silent(IpAddr),
    /// Here a part of the reply is missing.
    Lost,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// At the sender's node, at the limit of hops, or where there is no path state or no way on, as the last node says.
    Complete,
    /// Parts of the reply did not come.
    Partial,
    /// The last node that was asked did not answer.
    Silent,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What was found.
    pub entries: Vec<Entry>,
    /// How it ended.
    pub end: End,
}

/// What is being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The node for everything.
    Whole,
    /// The node for so many hops, for which it did not answer all at once.
    Stepping(u8),
    /// For the way, to whoever finds it.
    Routing,
    Done(End),
}

/// A diagnosis.
#[derive(Debug)]
pub struct Client {
    query: Query,
    patience: Patience,
    phase: Phase,
    /// The node that is asked as LAST-HOP.
    asked: IpAddr,
    /// What it said when it was asked for one hop less.
    steps: Vec<Node>,
    request_id: u32,
    tries_left: u32,
    deadline: Option<Time>,
    parts: Parts,
    /// IP nodes behind all that was asked, towards the sender; `None`: not known yet.
    behind: Option<VecDeque<IpAddr>>,
    entries: Vec<Entry>,
    actions: VecDeque<Action>,
}

impl Client {
    /// A client that has not begun.
    #[must_use]
    pub fn new(query: Query, patience: Patience) -> Self {
        Self {
            phase: Phase::Whole,
            asked: query.last_hop,
            steps: Vec::new(),
            request_id: query.request_id.wrapping_sub(1),
            tries_left: 0,
            deadline: None,
            parts: Parts::default(),
            behind: None,
            entries: Vec::new(),
            actions: VecDeque::new(),
            query,
            patience,
        }
    }

    /// Begins.
    pub fn start(&mut self, now: Time) {
        self.ask(now, self.query.last_hop, Phase::Whole);
    }

    /// The next thing to do, if any.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Client::timer`] is due; `None`: nothing waits for time.
    #[must_use]
    pub const fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// The result, once there is one.
    #[must_use]
    pub fn report(&self) -> Option<Report> {
        match self.phase {
            Phase::Done(end) => Some(Report { entries: self.entries.clone(), end }),
            _ => None,
        }
    }

    /// A UDP datagram that came to the requester's port. Whatever is no reply to the request under way is ignored.
    pub fn datagram(&mut self, now: Time, octets: &[u8]) {
        if !matches!(self.phase, Phase::Whole | Phase::Stepping(_)) {
            return;
        }
        let Ok(message) = Message::parse(octets) else { return };
        let Some(told) = message.diagnostic().filter(|_| message.kind == MessageType::DREP) else { return };
        let ours = told.request_id == self.request_id
            && message.session == Some(self.query.session)
            && told.sender == self.query.sender
            && told.requester == self.query.requester;
        if !ours {
            return;
        }
        if self.parts.is_empty() {
            // No more requests: what follows are parts of this reply.
            self.deadline = Some(now + self.patience.reassembly);
        }
        self.parts.add(&told, &message);
        if let Some(nodes) = self.parts.whole() {
            self.answered(now, nodes);
        }
    }

    /// A deadline is due, or may be.
    pub fn timer(&mut self, now: Time) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.deadline = None;
        if !self.parts.is_empty() {
            self.entries.extend(self.parts.entries());
            self.phase = Phase::Done(End::Partial);
        } else if self.tries_left > 0 {
            self.send(now);
        } else {
            self.unanswered(now);
        }
    }

    /// The IP nodes on the way to the sender, the nearest first; empty if they could not be found.
    pub fn route(&mut self, now: Time, nodes: &[IpAddr]) {
        if self.phase != Phase::Routing {
            return;
        }
        let mut all: Vec<IpAddr> = nodes.to_vec();
        all.retain(|node| *node != self.query.sender.src);
        all.push(self.query.sender.src);
        // What has been heard of lies before what is asked next.
        let known = all.iter().rposition(|node| self.has_met(*node));
        let behind = all.get(known.map_or(0, |known| known + 1)..).unwrap_or_default();
        self.behind = Some(behind.iter().copied().collect());
        self.ask_next(now);
    }

    fn has_met(&self, node: IpAddr) -> bool {
        self.entries.iter().any(|entry| match entry {
            Entry::Node(known) => {
                known.response().is_some_and(|found| [found.incoming, found.outgoing].contains(&node))
            }
            Entry::Silent(known) => *known == node,
            Entry::Lost => false,
        })
    }

    /// Hops that may still be asked for: `Some(0)` are none, `None` all.
    fn hops_left(&self) -> Option<u8> {
        if self.query.max_hops == 0 {
            return None;
        }
        Some(self.query.max_hops.saturating_sub(u8::try_from(self.entries.len()).unwrap_or(u8::MAX)))
    }

    fn ask(&mut self, now: Time, node: IpAddr, phase: Phase) {
        if self.hops_left() == Some(0) {
            self.phase = Phase::Done(End::Complete);
            return;
        }
        (self.asked, self.phase) = (node, phase);
        self.parts.clear();
        self.tries_left = self.patience.tries.max(1);
        // Another name: late replies to what was asked before are none to this.
        self.request_id = self.request_id.wrapping_add(1);
        self.send(now);
    }

    fn send(&mut self, now: Time) {
        self.tries_left = self.tries_left.saturating_sub(1);
        self.deadline = Some(now + self.patience.timeout);
        let octets = self.dreq();
        self.actions.push_back(Action::Send { to: self.asked, octets });
    }

    fn dreq(&self) -> Vec<u8> {
        let query = &self.query;
        let left = self.hops_left().unwrap_or(0);
        let max_hops = match self.phase {
            Phase::Stepping(hops) => hops,
            _ => left,
        };
        let asked = Diagnostic {
            max_hops,
            hops: 0,
            more: false,
            request_id: self.request_id,
            path_mtu: if query.path_mtu == 0 { LEAST_MTU } else { query.path_mtu },
            offset: 0,
            last_hop: self.asked,
            sender: query.sender,
            requester: query.requester,
        };
        let mut octets = Vec::new();
        let mut w = Writer::new(&mut octets, MessageType::DREQ, HeaderFlags::default(), TTL);
        w.session(&query.session, false).hop(&RsvpHop { addr: query.requester.ip(), lih: 0 });
        w.diagnostic(&asked);
        if !query.select.is_empty() {
            w.diag_select(query.select.iter().copied());
        }
        if query.with_route {
            w.route(self.asked.is_ipv6(), 0, core::iter::empty());
        }
        // Too many objects selected for a message leave nothing, which nobody answers.
        let _ = w.finish();
        octets
    }

    /// All of a reply is there.
    fn answered(&mut self, now: Time, nodes: Vec<Node>) {
        self.deadline = None;
        let last = nodes.last().and_then(Node::response);
        let ends = last
            .is_none_or(|last| last.errors.contains(DiagErrors::NO_PATH) || last.previous.is_unspecified());
        let off_path = nodes.len() == 1 && last.is_some_and(|last| last.errors.contains(DiagErrors::NO_PATH));
        if off_path && self.behind.is_some() {
            // Routing to the sender goes another way here than its data do (§5.6).
            return self.ask_next(now);
        }
        match self.phase {
            Phase::Stepping(hops) if !ends && nodes.len() >= usize::from(hops) => {
                self.steps = nodes;
                match hops.checked_add(1).filter(|next| self.hops_left().is_none_or(|left| *next <= left)) {
                    Some(next) => self.ask(now, self.asked, Phase::Stepping(next)),
                    None => self.end_steps(End::Complete),
                }
            }
            _ => {
                self.steps = nodes;
                self.end_steps(End::Complete);
            }
        }
    }

    fn end_steps(&mut self, end: End) {
        self.entries.extend(self.steps.drain(..).map(Entry::Node));
        self.phase = Phase::Done(end);
    }

    /// A request was repeated in vain.
    fn unanswered(&mut self, now: Time) {
        match self.phase {
            Phase::Whole if self.patience.fall_back => self.ask(now, self.asked, Phase::Stepping(1)),
            Phase::Stepping(_) => {
                // The next hop of the last node that answered, or the LAST-HOP itself.
                let last = self.steps.last().and_then(Node::response);
                let silent = last.map_or(self.asked, |last| last.previous);
                self.entries.extend(self.steps.drain(..).map(Entry::Node));
                self.entries.push(Entry::Silent(silent));
                if let Some(behind) = &mut self.behind {
                    if let Some(at) = behind.iter().position(|node| *node == silent) {
                        behind.drain(..=at);
                    }
                    return self.ask_next(now);
                }
                self.phase = Phase::Routing;
                self.actions.push_back(Action::FindRoute { to: self.query.sender.src });
            }
            _ => {
                self.entries.push(Entry::Silent(self.asked));
                self.phase = Phase::Done(End::Silent);
            }
        }
    }

    /// Goes on with the next IP node towards the sender.
    fn ask_next(&mut self, now: Time) {
        match self.behind.as_mut().and_then(VecDeque::pop_front) {
            Some(node) => self.ask(now, node, Phase::Whole),
            None => self.phase = Phase::Done(End::Silent),
        }
    }
}
