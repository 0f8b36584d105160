//! A diagnostic client (RFC 2745 §6) without clock or socket. It needs no RSVP node on its host.
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
//! First the client asks the LAST-HOP for all hops, and repeats the request. Without an answer, some node on the path
//! does not support diagnostics. Then the client asks the LAST-HOP for one hop, two hops and so on, until there is no
//! answer. A traceroute finds the nodes behind the silent one, and the client asks them as LAST-HOP (§5.6). Fragments
//! of replies are reassembled (`parts`); if some do not arrive in time, the others are reported.

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

/// TTL of DREQs, in the message and in the IP packet.
pub const TTL: u8 = 255;
/// Path MTU that RSVP nodes must support (RFC 2745 §3.3): the minimum MTU of IPv6.
const LEAST_MTU: u16 = 1280;

/// A diagnostic query. All addresses are of one IP version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The session.
    pub session: Session,
    /// The sender of the path state.
    pub sender: Filter,
    /// The node where the collection begins, on the path of the sender's data.
    pub last_hop: IpAddr,
    /// Limit of RSVP hops; 0: no limit.
    pub max_hops: u8,
    /// Objects that nodes report; empty: the default ones.
    pub select: Vec<ObjectType>,
    /// Replies return from node to node, for firewalls; else they are sent directly.
    pub with_route: bool,
    /// Limit of the octets of messages; 0: 1280.
    pub path_mtu: u16,
    /// UDP address of this client.
    pub requester: SocketAddr,
    /// Identifier of the first request; later ones count from it.
    pub request_id: u32,
}

/// Timeouts and repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Transmissions of a request, at least one.
    pub tries: u32,
    /// Time between transmissions, and after the last.
    pub timeout: Duration,
    /// Time from the first fragment of a reply to the last.
    pub reassembly: Duration,
    /// Nodes that do not answer are bypassed.
    pub fall_back: bool,
}

impl Default for Patience {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self { tries: 3, timeout: second, reassembly: 3 * second, fall_back: true }
    }
}

/// An action for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send this DREQ as an IP packet of protocol 46 with TTL [`TTL`].
    Send {
        /// Destination.
        to: IpAddr,
        /// The message.
        octets: Vec<u8>,
    },
    /// Find the IP nodes on the path to the sender by a traceroute, and pass them to [`Client::route`].
    FindRoute {
        /// The sender.
        to: IpAddr,
    },
}

/// The response of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node(Box<[u8]>);

impl Node {
    /// Its DIAG_RESPONSE (RFC 2745 §3.6).
    #[must_use]
    pub fn response(&self) -> Option<DiagResponse<'_>> {
        let object = Objects::at(&self.0, 0).next()?.ok()?;
        DiagResponse::parse(&object).ok()
    }
}

/// An entry of a report, in the order of the path towards the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A node that answered.
    Node(Node),
    /// A node that did not answer. The nodes behind it were asked separately.
    Silent(IpAddr),
    /// A fragment of the reply is missing here.
    Lost,
}

/// How a diagnosis ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// At the sender's node, at the limit of hops, or at a node without path state or previous hop.
    Complete,
    /// Fragments of the reply are missing.
    Partial,
    /// The last node that was asked did not answer.
    Silent,
}

/// The result of a diagnosis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What was found.
    pub entries: Vec<Entry>,
    /// How it ended.
    pub end: End,
}

/// State of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The LAST-HOP is asked for all hops.
    Whole,
    /// The LAST-HOP is asked for this number of hops, because it did not answer for all.
    Stepping(u8),
    /// The driver looks for the path.
    Routing,
    Done(End),
}

/// A diagnosis.
#[derive(Debug)]
pub struct Client {
    query: Query,
    patience: Patience,
    phase: Phase,
    /// The present LAST-HOP.
    asked: IpAddr,
    /// The responses for one hop less.
    steps: Vec<Node>,
    request_id: u32,
    tries_left: u32,
    deadline: Option<Time>,
    parts: Parts,
    /// IP nodes behind those that were asked, towards the sender; `None`: not known yet.
    behind: Option<VecDeque<IpAddr>>,
    entries: Vec<Entry>,
    actions: VecDeque<Action>,
}

impl Client {
    /// A client that has not started.
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

    /// Starts the diagnosis.
    pub fn start(&mut self, now: Time) {
        self.ask(now, self.query.last_hop, Phase::Whole);
    }

    /// The next action, if there is one.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Time when [`Client::timer`] is due; `None`: nothing waits.
    #[must_use]
    pub const fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// The result, once the diagnosis ended.
    #[must_use]
    pub fn report(&self) -> Option<Report> {
        match self.phase {
            Phase::Done(end) => Some(Report { entries: self.entries.clone(), end }),
            _ => None,
        }
    }

    /// Handles a UDP datagram to the requester (RFC 2745 §6). Datagrams that do not answer the present request are
    /// ignored.
    pub fn datagram(&mut self, now: Time, octets: &[u8]) {
        if !matches!(self.phase, Phase::Whole | Phase::Stepping(_)) {
            return;
        }
        let Ok(message) = Message::parse(octets) else { return };
        let Some(diagnostic) = message.diagnostic().filter(|_| message.kind == MessageType::DREP) else {
            return;
        };
        let ours = diagnostic.request_id == self.request_id
            && message.session == Some(self.query.session)
            && diagnostic.sender == self.query.sender
            && diagnostic.requester == self.query.requester;
        if !ours {
            return;
        }
        if self.parts.is_empty() {
            // The request is not repeated any more: further datagrams are fragments of this reply.
            self.deadline = Some(now + self.patience.reassembly);
        }
        self.parts.add(&diagnostic, &message);
        if let Some(nodes) = self.parts.whole() {
            self.answered(now, nodes);
        }
    }

    /// Handles the time: a deadline may be due.
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

    /// Takes the IP nodes on the path to the sender, the nearest first; empty if they could not be found.
    pub fn route(&mut self, now: Time, nodes: &[IpAddr]) {
        if self.phase != Phase::Routing {
            return;
        }
        let mut all: Vec<IpAddr> = nodes.to_vec();
        all.retain(|node| *node != self.query.sender.src);
        all.push(self.query.sender.src);
        // Nodes that are in the report lie before the next one to be asked.
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

    /// Number of hops that may still be asked for; `None`: no limit.
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
        // With a new identifier late replies to former requests are ignored.
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
        // If too many objects are selected for a message, nothing is sent, and nothing answers.
        let _ = w.finish();
        octets
    }

    /// Handles a complete reply.
    fn answered(&mut self, now: Time, nodes: Vec<Node>) {
        self.deadline = None;
        let last = nodes.last().and_then(Node::response);
        let ends = last
            .is_none_or(|last| last.errors.contains(DiagErrors::NO_PATH) || last.previous.is_unspecified());
        let off_path = nodes.len() == 1 && last.is_some_and(|last| last.errors.contains(DiagErrors::NO_PATH));
        if off_path && self.behind.is_some() {
            // Here the route to the sender is not the path of its data (§5.6).
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

    /// Handles a request without an answer.
    fn unanswered(&mut self, now: Time) {
        match self.phase {
            Phase::Whole if self.patience.fall_back => self.ask(now, self.asked, Phase::Stepping(1)),
            Phase::Stepping(_) => {
                // The previous hop of the last node that answered, or the LAST-HOP itself.
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

    /// Asks the next IP node towards the sender.
    fn ask_next(&mut self, now: Time) {
        match self.behind.as_mut().and_then(VecDeque::pop_front) {
            Some(node) => self.ask(now, node, Phase::Whole),
            None => self.phase = Phase::Done(End::Silent),
        }
    }
}
