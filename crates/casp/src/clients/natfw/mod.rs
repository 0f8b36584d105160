//! The client for firewalls and NATs (draft-tschofenig-nsis-casp-midcom-01): passages and bindings for the flow of a session at the
//! firewalls and NATs that it passes.
//!
//! Call [`NatfwClient::poll`] until it returns `None` after each other call. Who may open what is decided by
//! [`Resources::open_passage`]. A CREATE waits for the kernel before it goes on.
//!
//! * `request` handles requests of others, `respond` their results.
//! * `rules` makes pinholes of filters.
//! * `back` opens packets against the flow of a request, for TRIGGER and for the border of a scope.
//! * `bind` gives flows their outer ends at a NAT, and rewrites messages.
//! * `initiate` is the node that asks for a passage, `accept` the one at the other end of the path.
//! * `left` is what a NAT leaves to the node that starts in its place.
//! * `listed` is the list of the nodes that opened the path.
//! * `moved` is a passage whose source has another address.
//! * `refreshed` is about sessions that begin at this node with a refresh: it has lost their passages, or they are new here.
//! * `record` is the state of a session with a flow, `output` what waits to be polled, `view` what people see.
//! * `terms` is what requests of this node say besides their packets.
//! * `token` verifies authorization tokens.
//! * `withdraw` removes rules that no message removed, and reports it to the host that asked.
//!
//! CMS credentials are not processed: they are sent on. A request with a scope ends at the
//! border of that scope, if the configuration says that this node is one.

mod accept;
mod back;
mod bind;
mod counters;
mod initiate;
mod left;
mod listed;
mod moved;
mod output;
mod record;
mod refreshed;
mod request;
mod respond;
mod rules;
mod terms;
mod token;
mod view;
mod withdraw;

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use signalbox_core::node::{Interface, NoRoute, Route, RouteQuery};
use signalbox_core::ports::left::Left;
use signalbox_core::ports::{Ports, external_address};
use signalbox_core::shares::{Shares, source};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::wheel::{AT_ONCE, Wheel};
use signalbox_core::{IfIndex, Key, KeyedHasher, Random, SessionId, Slab, Time, invariant};
use signalbox_resources::Resources;
use signalbox_resources::opening::Crossing;

use crate::clients::shared::{Addresses, Clock, Errors, Lists, Lookups, Waits, seconds};
use crate::engine::{Indication, OwnedArrival};
use crate::wire::FlowId;
use crate::wire::natfw::{NatfwFilter, NatfwStatus};

pub use counters::Counters;
pub use output::{NatfwEnd, NatfwEvent, NatfwNode, NatfwOutput};
pub use terms::{NatfwPackets, NatfwScope, NatfwTerms};
pub use view::{PassageView, RuleView};

use output::Outputs;
use record::{Origin, Record, Stage};
use refreshed::Unknown;
use token::Used;

/// Messages that wait for the route to their hop at most.
const MAX_WAITING: usize = 1024;
/// Most flows of one session with state.
const FLOWS: usize = 4;

/// What a node is on the path of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Role {
    /// A host or router: its users ask for passages, and accept them.
    #[default]
    Host,
    /// It opens passages in the kernel.
    Firewall,
    /// It opens passages, and translates the sources of IPv4 flows that leave the inside.
    Nat,
}

impl Role {
    /// Whether the node opens passages of others.
    #[must_use]
    pub const fn opens(self) -> bool {
        matches!(self, Self::Firewall | Self::Nat)
    }
}

/// Settings of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Config {
    /// Most sessions with state of this client.
    pub max_sessions: u32,
    /// What the node is.
    pub role: Role,
    /// Names of the interfaces towards the protected network.
    pub inside: Vec<String>,
    /// Names of the interfaces towards the other network.
    pub outside: Vec<String>,
    /// External address of a NAT; `None`: the first IPv4 address of the first interface of `outside`.
    pub external: Option<Ipv4Addr>,
    /// First external port of a NAT.
    pub first_port: u16,
    /// Last external port of a NAT.
    pub last_port: u16,
    /// A request whose wish for an external address or port cannot be met gets another one. Otherwise it is refused.
    pub substitutes: bool,
    /// Requests without APPLICATION_ID are refused.
    pub require_application_id: bool,
    /// Requests of hops that are not authenticated are refused.
    pub require_authentication: bool,
    /// Requests from outside without a token that this node verifies are refused.
    pub require_token: bool,
    /// This node is the border of its network: requests from inside whose scope is the local network end here.
    pub border: bool,
    /// The name of the network, for requests whose scope is a domain; empty: it has none.
    pub domain: String,
    /// Lifetime of the passages that this node asks for, seconds: that of its sessions.
    pub lifetime: u32,
    /// Microseconds since 1970 at [`Time::ZERO`]. The node sets it.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub wall_clock_us: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_sessions: 100_000,
            role: Role::Host,
            inside: Vec::new(),
            outside: Vec::new(),
            external: None,
            first_port: 32768,
            last_port: 60999,
            substitutes: true,
            require_application_id: false,
            require_authentication: false,
            require_token: false,
            border: false,
            domain: String::new(),
            lifetime: 90,
            wall_clock_us: 0,
        }
    }
}

/// A passage that a user asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatfwRequest {
    /// The data flow. Its source is this node.
    pub flow: FlowId,
    /// The packets; empty: those of the flow.
    pub filters: Vec<NatfwFilter>,
    /// The other end opens the passage (PATH, answered by CREATE); otherwise this node does.
    pub by_receiver: bool,
    /// Lifetime of the rules, seconds; `None`: that of the session.
    pub lifetime: Option<u32>,
    /// What else the request says.
    pub terms: NatfwTerms,
    /// The identifier of the new session. Nodes of the path may have it from an earlier request of the same user, which this one
    /// then replaces. Another one is drawn if this node has the session. `None`: it is drawn.
    pub kept: Option<SessionId>,
}

/// A request that waits for a route.
#[derive(Debug)]
struct Waiting {
    job: OwnedArrival,
    of: End,
    seen: Seen,
}

impl Waits for Waiting {
    fn session(&self) -> Option<SessionId> {
        Some(self.job.session)
    }
}

/// Interfaces towards the node that sent a request, and those by which its flow passes; [`IfIndex::NONE`]: not looked up, or no
/// route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    sender: IfIndex,
    crossing: Crossing,
}

/// The node whose route a request waits for, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Sender,
    Destination,
    Source,
}

/// How the flow of a request goes through this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Way {
    /// The interfaces by which it passes.
    crossing: Crossing,
    /// It goes from the inside to the inside, as the sender of the request sees it.
    between: bool,
    /// The interface towards the node that sent the request.
    sender: IfIndex,
}

/// The client for firewalls and NATs of one node.
#[derive(Debug)]
pub struct NatfwClient {
    config: Config,
    counters: Counters,
    rng: Random,
    now: Time,
    local: Addresses,
    inside: Vec<IfIndex>,
    /// The external address of a NAT.
    external: Option<Ipv4Addr>,
    /// The external ports of a NAT.
    ports: Option<Ports>,
    /// Ports that are kept for ends inside whose sessions are not back yet.
    left: Left<Key>,
    records: Slab<Record>,
    by_session: BTreeMap<(SessionId, FlowId), Key>,
    /// Requests of this node, by the identifier of their user.
    by_user: BTreeMap<u64, Key>,
    /// The lists of nodes that answers to requests of this node brought.
    lists: Lists,
    /// Packets that users of this node accept, by the identifier of the user.
    accepted: BTreeMap<u64, FlowFilter>,
    /// The records whose packets a user accepted.
    answered: BTreeSet<(u64, Key)>,
    /// Users who accept nothing any more, and who have records left.
    leaving: VecDeque<u64>,
    /// Records by the key of their pinholes in the kernel.
    by_rule: HashMap<u64, Key>,
    next_rule: u64,
    /// Slot of the table up to which passages were judged by the present rules; `None`: all were.
    judging: Option<u32>,
    used: Used,
    /// Hashes what is compared, but not kept.
    hasher: KeyedHasher,
    holders: Shares<IpAddr>,
    errors: Errors,
    wheel: Wheel,
    waiting: Lookups<Waiting>,
    unknown: Unknown,
    /// That of the flow of the present request.
    way: Way,
    clock: Clock,
    out: Outputs,
    /// What this node adds to the refusal that follows.
    note: Option<String>,
}

impl NatfwClient {
    /// A client without sessions; its random numbers come from `seed`.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32]) -> Self {
        let mut rng = Random::new(seed);
        // A node that is no NAT draws what it drew before, so that recordings replay.
        let ports =
            (config.role == Role::Nat).then(|| Ports::new(config.first_port, config.last_port, &mut rng));
        let hasher = KeyedHasher::new(&mut rng);
        Self {
            counters: Counters::default(),
            now: Time::ZERO,
            local: Addresses::default(),
            inside: Vec::new(),
            external: config.external,
            ports,
            left: Left::new(hasher),
            records: Slab::new(config.max_sessions),
            by_session: BTreeMap::new(),
            by_user: BTreeMap::new(),
            lists: Lists::default(),
            accepted: BTreeMap::new(),
            answered: BTreeSet::new(),
            leaving: VecDeque::new(),
            by_rule: HashMap::new(),
            next_rule: 0,
            judging: None,
            used: Used::new(hasher),
            hasher,
            holders: Shares::new(config.max_sessions, KeyedHasher::new(&mut rng)),
            errors: Errors::new(KeyedHasher::new(&mut rng)),
            wheel: Wheel::default(),
            waiting: Lookups::default(),
            unknown: Unknown::new(hasher),
            way: Way::default(),
            clock: Clock::new(config.wall_clock_us),
            out: Outputs::default(),
            note: None,
            rng,
            config,
        }
    }

    /// Takes over the node's interfaces.
    pub fn interfaces(&mut self, list: &[Interface]) {
        self.local.set(list);
        let inside = list.iter().filter(|one| one.up && self.config.inside.contains(&one.name));
        self.inside = inside.map(|one| one.ifindex).collect();
        self.external = self.config.external.or_else(|| external_address(list, &self.config.outside));
    }

    /// The wall clock was corrected: microseconds since 1970 at [`Time::ZERO`].
    pub const fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.clock.set(wall_clock_us);
    }

    /// Takes an indication of the messaging layer.
    pub fn indication(&mut self, now: Time, indication: &Indication<'_>, resources: &mut Resources) {
        self.now = self.now.max(now);
        self.note = None;
        match indication {
            Indication::Opened { tag, session, .. } => self.named(Key::from_u64(*tag), *session),
            Indication::Refused { tag, .. } => self.own_failed(Key::from_u64(*tag), resources),
            Indication::Received(arrival) => self.received(arrival, resources),
            // The messaging layer searches again; what was not delivered is seen by its missing answer.
            Indication::Error { session, flow, .. } | Indication::Undelivered { session, flow } => {
                if let Some(key) = self.find(*session, flow) {
                    self.undelivered(key, resources);
                }
            }
            Indication::Branch { session, flow, previous: false, ended: false, .. } => {
                if let Some(key) = self.find(*session, flow) {
                    self.new_hop(key);
                }
            }
            // A request by a new branch is judged like the first one.
            Indication::Branch { .. } => {}
            Indication::Ended { session, flow, torn_down } => {
                if let Some(key) = self.find(*session, flow) {
                    self.accepted_ends(key, if *torn_down { NatfwEnd::Closed } else { NatfwEnd::Expired });
                    let why = NatfwEvent::Lost { status: NatfwStatus::NO_STATE, node: None };
                    self.end(key, Some(why), resources);
                }
                self.end_back(*session, flow, resources);
                self.end_waiting(*session, |job| job.flow == *flow);
            }
        }
    }

    /// Takes the answer to [`NatfwOutput::RouteLookup`].
    pub fn route(&mut self, now: Time, id: u64, result: Result<Route, NoRoute>, resources: &mut Resources) {
        self.now = self.now.max(now);
        self.note = None;
        let Some(Waiting { job, of, mut seen }) = self.waiting.take(id) else { return };
        let ifindex = result.map_or(IfIndex::NONE, |route| route.ifindex);
        let (src, dst) = (job.flow.src(), job.flow.dst());
        match of {
            End::Sender => {
                seen.sender = ifindex;
                return self.look_up(job, dst, End::Destination, seen);
            }
            End::Destination => {
                seen.crossing.to = ifindex;
                return self.look_up(job, src, End::Source, seen);
            }
            End::Source => seen.crossing.from = ifindex,
        }
        let Seen { sender, crossing } = seen;
        let inside = |ifindex| self.inside.contains(&ifindex);
        // An end without a route is not known to be outside.
        let inner = |ifindex| ifindex == IfIndex::NONE || inside(ifindex);
        let from_inside = inside(sender);
        // The end for which the sender speaks. If it were on the other side, the direction of the request would not be that of the packets.
        let near = if job.reverse { crossing.to } else { crossing.from };
        if near != IfIndex::NONE && inside(near) != from_inside {
            tracing::debug!(session = %job.session, peer = %job.peer, reason = "the host is on the other side", "passage refused");
            self.counters.refused += 1;
            return self.refuse(&job, NatfwStatus::POLICY);
        }
        let between = from_inside && inner(crossing.to) && inner(crossing.from);
        self.way = Way { crossing, between, sender };
        self.request(job, from_inside, resources);
        self.way = Way::default();
    }

    /// Handles what is due, a part of it at a time.
    pub fn timer(&mut self, now: Time, resources: &mut Resources) {
        self.now = self.now.max(now);
        self.judge_part(resources);
        self.leave_part(resources);
        self.step_left();
        self.report_due();
        for _ in 0..AT_ONCE {
            let Some(index) = self.wheel.pop_due(&mut self.records, self.now) else { return };
            if let Some(key) = invariant!(self.records.key_of(index), "the timer of a record ends with it") {
                self.step(key, resources);
            }
        }
    }

    /// When [`NatfwClient::timer`] is due; `None`: nothing waits.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let at_work = self.judging.is_some() || !self.leaving.is_empty();
        let all = [
            self.wheel.next_deadline(),
            at_work.then_some(self.now),
            self.left.deadline(),
            self.unknown.deadline(),
        ];
        all.into_iter().flatten().min()
    }

    /// The next output, if any; its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<NatfwOutput<'_>> {
        self.out.poll()
    }

    /// Number of sessions with state, each flow counted.
    #[must_use]
    pub const fn sessions(&self) -> u32 {
        self.records.len()
    }

    /// External ports that are in use.
    #[must_use]
    pub fn ports(&self) -> u32 {
        self.ports.as_ref().map_or(0, Ports::len)
    }

    /// Counts since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    fn find(&self, session: SessionId, flow: &FlowId) -> Option<Key> {
        self.by_session.get(&(session, *flow)).copied()
    }

    /// Asks by which interface a hop is reached.
    fn look_up(&mut self, job: OwnedArrival, to: IpAddr, of: End, seen: Seen) {
        let id = self.waiting.keep(Waiting { job, of, seen });
        self.out.look_up(id, RouteQuery::to(to));
    }

    /// Ends requests of a session that wait for a route.
    fn end_waiting(&mut self, session: SessionId, ends: impl Fn(&OwnedArrival) -> bool) {
        for Waiting { job, .. } in self.waiting.end(session, |waiting| ends(&waiting.job)) {
            self.out.consume(job.id);
        }
    }

    /// The records of a session, one for each flow.
    fn of_session(&self, session: SessionId) -> Vec<Key> {
        let all = self.by_session.range((session, FlowId::FIRST)..);
        all.take_while(|((one, _), _)| *one == session).map(|(_, key)| *key).take(FLOWS).collect()
    }

    /// The record of the session and flow of a message; `None`: there are too many.
    fn record_of(&mut self, job: &OwnedArrival) -> Option<Key> {
        if let Some(key) = self.find(job.session, &job.flow) {
            return Some(key);
        }
        let holder = source(job.peer);
        if self.of_session(job.session).len() >= FLOWS || self.holders.take(holder).is_err() {
            self.counters.sessions_full += 1;
            tracing::debug!(session = %job.session, peer = %job.peer, reason = "too many flows of the session, or share of its source in the table of sessions", "message dropped");
            return None;
        }
        let until = self.now + seconds(job.timeout.max(1));
        let record = Record::new(Origin::Peer { session: job.session, holder }, job.flow, until);
        match self.records.insert(record) {
            Ok(key) => {
                self.by_session.insert((job.session, job.flow), key);
                self.arm(key);
                Some(key)
            }
            Err(_) => {
                self.holders.release(holder);
                self.counters.sessions_full += 1;
                tracing::debug!(session = %job.session, peer = %job.peer, reason = "table of sessions full", "message dropped");
                None
            }
        }
    }

    /// Sets the timer of a record for what is due next.
    fn arm(&mut self, key: Key) {
        if let Some(at) = self.records.get(key).map(Record::deadline) {
            self.wheel.arm(&mut self.records, key.index(), at);
        }
    }

    /// Ends what expired, and does what is due.
    fn step(&mut self, key: Key, resources: &mut Resources) {
        let now = self.now;
        self.begin_rules(key, resources);
        self.reply_due(key);
        self.own_due(key, resources);
        // What was due may have ended it.
        let Some(record) = self.records.get(key) else { return };
        if !record.opened.rules().is_empty() && record.rules_until <= now {
            self.counters.expired += 1;
            self.close_rules(key, resources);
        }
        let Some(record) = invariant!(self.records.get(key), "a record outlives its rules") else { return };
        if record.until <= now && record.origin.own().is_none() {
            self.accepted_ends(key, NatfwEnd::Expired);
            self.end(key, None, resources);
        } else {
            self.arm(key);
        }
    }

    /// Removes a record. `why`: its user is informed.
    fn end(&mut self, key: Key, why: Option<NatfwEvent>, resources: &mut Resources) {
        self.close_rules(key, resources);
        self.wheel.cancel(&mut self.records, key.index());
        let Some(record) = self.records.remove(key) else { return };
        if let Some(user) = record.answered.and_then(|answered| answered.receiver.user()) {
            self.answered.remove(&(user, key));
        }
        if let (Some(binding), Some(ports)) = (record.binding, &mut self.ports) {
            ports.release(binding.lease);
        }
        self.lists.remove(key);
        let name = match record.origin {
            Origin::Peer { session, holder } => {
                self.holders.release(holder);
                Some(session)
            }
            Origin::User(own) => {
                self.by_user.remove(&own.id);
                if let Some(event) = why.filter(|_| own.stage != Stage::Lost) {
                    self.out.event(own.id, event);
                }
                own.name.known()
            }
        };
        if let Some(session) = name {
            self.by_session.remove(&(session, record.flow));
        }
    }

    /// When an NTP timestamp is; `None`: it is past.
    fn at(&self, stamp: u64) -> Option<Time> {
        self.clock.time_of(stamp).filter(|at| *at > self.now)
    }
}

/// Whole seconds of a time.
fn whole(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// Why a request fails here.
type Failure = NatfwStatus;
