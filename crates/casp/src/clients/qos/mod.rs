//! The QoS client (draft-schulzrinne-nsis-casp-qos-01): reservations for the flow of a session, at the nodes that it passes.
//!
//! Call [`QosClient::poll`] until it returns `None` after each other call. Admission control is [`Resources`]: Reserve holds
//! resources back, Commit gives them to the flow, and both share one reservation, so that the larger one counts.
//!
//! * `node` handles requests and answers of others. `grant` keeps the reservations of a session.
//! * `originate` is the node that asks for a reservation, `suggest` what source and receiver do if the receiver is to make it.
//! * `opposite` is what a receiver does that reserves the opposite flow in the same session.
//! * `period` is the time of a reservation in advance.
//! * `repair` is what follows when the path of a session, or the address of its source, changes.
//! * `locate` finds the interfaces by which the data of a session leave.
//! * `segment` is LOCAL: what a network along the path adds to requests for its own nodes.
//! * `listed` is the list of the nodes that granted a request.
//! * `amount` is how much a request is for, `record` the state of a session, `output` what waits to be polled.

mod amount;
mod answer;
mod grant;
mod listed;
mod locate;
mod node;
mod opposite;
mod originate;
mod output;
mod period;
mod record;
mod repair;
mod segment;
mod suggest;

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use signalbox_core::metrics::{
    Family, MESSAGES_DROPPED, OBJECTS_DROPPED, RATE_LIMITED, RESERVATION_EVENTS, TABLE_FULL,
};
use signalbox_core::node::{Interface, NoRoute, Prefix, Route};
use signalbox_core::shares::Shares;
use signalbox_core::wheel::{AT_ONCE, Wheel, portion};
use signalbox_core::{IfIndex, Key, KeyedHasher, Random, ReserverId, SessionId, Slab, Time, invariant};
use signalbox_resources::Resources;

use crate::clients::shared::{Addresses, Clock, Errors, Lists, Lookups, seconds};
use crate::engine::Indication;
use crate::wire::FlowId;
use crate::wire::qos::{Partial, QosErrorCode};

pub use amount::{Amount, Range};
pub use output::{QosEvent, QosOutput, Told};
pub use segment::Segment;

use locate::Lookup;
use node::Job;
use output::Outputs;
use record::{Branch, Record};
use segment::Segments;

/// The owner of this client's grants.
pub const PROTOCOL: ReserverId = ReserverId::CASP;

/// Messages and requests that wait for the interfaces of their data at most.
const MAX_WAITING: usize = 1024;
/// The identifier of what this node reserves because the other end asks for it: no user has it.
const NO_USER: u64 = u64::MAX;

/// Requests that were not answered, by reason.
const REQUESTS: Family =
    Family::counter("casp_qos_requests", &["result"], "Requests of the QoS client, by result.");

signalbox_core::counters! {
    /// Counters of the QoS client.
    pub struct Counters {
        /// Requests that reserved or committed something here.
        granted: u64 => RESERVATION_EVENTS { event: "granted" },
        /// Requests that admission control refused.
        refused: u64 => RESERVATION_EVENTS { event: "refused" },
        /// Requests that only restarted timers.
        refreshed: u64 => RESERVATION_EVENTS { event: "refreshed" },
        /// Reservations removed by a message.
        released: u64 => RESERVATION_EVENTS { event: "torn_down" },
        /// Reserve or Commit state that no message refreshed.
        expired: u64 => RESERVATION_EVENTS { event: "expired" },
        /// Reservations that admission control took back.
        lost: u64 => RESERVATION_EVENTS { event: "lost" },
        /// Requests of this node that were not answered in time.
        unanswered: u64 => REQUESTS { result: "unanswered" },
        /// Messages without a readable header or number.
        unreadable: u64 => MESSAGES_DROPPED { reason: "malformed" },
        /// Messages whose object of the type of the list is not a list: they are processed without it.
        foreign_objects: u64 => OBJECTS_DROPPED { object: "hops" },
        /// Releases and errors of nodes that are no hop of their session, and releases of a new hop before its first answer.
        strangers: u64 => MESSAGES_DROPPED { reason: "stranger" },
        /// Messages whose flow differs from that of the messaging layer.
        other_flow: u64 => REQUESTS { result: "other_flow" },
        /// LOCAL objects of a segment of this node that came from outside, or from a node that is not authenticated.
        local_untrusted: u64 => REQUESTS { result: "local_untrusted" },
        /// Errors that were not sent.
        errors_limited: u64 => RATE_LIMITED { limit: "errors" },
        /// Sessions refused.
        sessions_full: u64 => TABLE_FULL { table: "sessions" },
        /// Messages that could not wait for the interfaces of their data.
        waiting_full: u64 => TABLE_FULL { table: "waiting" },
    }
}

/// Settings of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Config {
    /// Most sessions with state of this client.
    pub max_sessions: u32,
    /// Requests that crossed a hop without channel security are refused.
    pub refuse_unsecure: bool,
    /// A known session may come by a further previous hop that is not authenticated.
    pub merge_unauthenticated: bool,
    /// Segments of the path with LOCAL objects that this node has a part in. Each has a scope of its own.
    pub segments: Vec<Segment>,
    /// Nodes whose packets are protected by IPsec: they count as authenticated for LOCAL. The node sets it.
    pub protected: Vec<Prefix>,
    /// The last node answers for a receiver without CASP.
    pub proxy: bool,
    /// This node answers the Reserve of a source by a Reserve for the opposite flow, as large as its own.
    pub reserve_opposite: bool,
    /// Lifetime of the reservations of this node, seconds: that of its sessions.
    pub lifetime: u32,
    /// Microseconds since 1970 at [`Time::ZERO`]. The node sets it.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub wall_clock_us: u64,
}

impl Config {
    /// What is wrong with the segments; `None`: nothing.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        segment::problem(&self.segments)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_sessions: 100_000,
            refuse_unsecure: false,
            merge_unauthenticated: false,
            segments: Vec::new(),
            protected: Vec::new(),
            proxy: false,
            reserve_opposite: false,
            lifetime: 90,
            wall_clock_us: 0,
        }
    }
}

/// A reservation or query that a user asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QosRequest {
    /// The data flow.
    pub flow: FlowId,
    /// The session of a Query of the other end; then this node reserves as the receiver of the data. `None`: a new session.
    pub session: Option<SessionId>,
    /// The identifier of the new session. Nodes of the path may have it from an earlier request of the same user, which this one
    /// then replaces. Another one is drawn if this node has the session, or if a node refuses it as that of somebody else. `None`: it
    /// is drawn.
    pub kept: Option<SessionId>,
    /// The receiver of the data is asked to reserve: by a Query with flag C.
    pub by_receiver: bool,
    /// The least and the most that is asked for.
    pub range: Range,
    /// The receiver commits at once (flag C).
    pub at_once: bool,
    /// Priority of the reservation: a higher one preempts a lower one where policy allows it. `None`: 0, and the message has none.
    pub priority: Option<u16>,
    /// The opposite flow is reserved too, in one decision of each node. Its packets take the path of the flow.
    pub both: bool,
    /// Start and end of a reservation in advance, microseconds since 1970; start 0: now. A start is at most a day ahead.
    /// `None`: from now on until the release.
    pub time: Option<(u64, u64)>,
    /// Nodes without a reservation are acceptable: how many that fail, and how many without CASP-QoS.
    pub partial: Option<(u16, u16)>,
}

/// What waits for the interfaces of its data.
#[derive(Debug)]
enum Waiting {
    Message(Box<Job>),
    /// A reservation or query of this node, in its record.
    Own(Key),
    /// The last request of a session, which goes to a new hop.
    Again(Key),
}

/// The QoS client of one node.
#[derive(Debug)]
pub struct QosClient {
    config: Config,
    counters: Counters,
    rng: Random,
    now: Time,
    local: Addresses,
    segments: Segments,
    records: Slab<Record>,
    /// A session has a record of its own for the opposite flow, if a request is for it instead.
    by_session: HashMap<(SessionId, bool), Key, KeyedHasher>,
    /// Reservations and queries of this node, by the identifier of their user.
    by_user: BTreeMap<u64, Key>,
    /// The lists of nodes that answers to requests of this node brought.
    lists: Lists,
    /// The records with a time, by its end.
    periods: BTreeSet<(Time, Key)>,
    holders: Shares<IpAddr>,
    errors: Errors,
    wheel: Wheel,
    waiting: Lookups<Lookup>,
    clock: Clock,
    /// What this node, or the Error that it handles, adds to the refusal that follows.
    told: Told,
    out: Outputs,
}

impl QosClient {
    /// A client without sessions; its random numbers come from `seed`.
    #[must_use]
    pub fn new(mut config: Config, seed: [u8; 32]) -> Self {
        let mut rng = Random::new(seed);
        let segments =
            Segments::new(core::mem::take(&mut config.segments), core::mem::take(&mut config.protected));
        Self {
            counters: Counters::default(),
            now: Time::ZERO,
            local: Addresses::default(),
            segments,
            records: Slab::new(config.max_sessions),
            by_session: HashMap::with_hasher(KeyedHasher::new(&mut rng)),
            by_user: BTreeMap::new(),
            lists: Lists::default(),
            periods: BTreeSet::new(),
            errors: Errors::new(KeyedHasher::new(&mut rng)),
            holders: Shares::new(config.max_sessions, KeyedHasher::new(&mut rng)),
            wheel: Wheel::default(),
            waiting: Lookups::default(),
            clock: Clock::new(config.wall_clock_us),
            told: Told::default(),
            out: Outputs::default(),
            rng,
            config,
        }
    }

    /// Takes over the node's interfaces.
    pub fn interfaces(&mut self, list: &[Interface]) {
        self.local.set(list);
        self.segments.interfaces(list);
    }

    /// Takes the limit of sessions of other settings. Sessions beyond a lower one stay.
    pub const fn set_limits(&mut self, new: &Config) {
        self.config.max_sessions = new.max_sessions;
        self.records.set_limit(new.max_sessions);
        self.holders.set_limit(new.max_sessions);
    }

    /// The wall clock was corrected: microseconds since 1970 at [`Time::ZERO`].
    pub const fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.clock.set(wall_clock_us);
    }

    /// Takes an indication of the messaging layer.
    pub fn indication(&mut self, now: Time, indication: &Indication<'_>, resources: &mut Resources) {
        self.now = self.now.max(now);
        self.end_periods(portion(false), resources);
        match indication {
            Indication::Opened { tag, session, .. } => self.opened(*tag, *session),
            Indication::Refused { tag, .. } => self.own_failed(Key::from_u64(*tag), resources),
            Indication::Received(arrival) => self.received(arrival, resources),
            Indication::Error { session, flow, .. } => {
                // An error of the messaging layer ends the wait of the originator and changes no state.
                for key in self.of_flow(*session, flow).into_iter().flatten() {
                    self.no_answer(key, QosErrorCode::NO_ANSWER, resources);
                }
            }
            Indication::Undelivered { session, flow } => {
                for key in self.of_flow(*session, flow).into_iter().flatten() {
                    self.undelivered(key, resources);
                }
            }
            Indication::Branch { session, flow, previous, id, ended } => {
                for key in self.of_flow(*session, flow).into_iter().flatten() {
                    if !*ended {
                        self.new_hop(key, *previous, *id, resources);
                    } else if let Some(record) = self.records.get_mut(key) {
                        record.side(!*previous).retain(|branch| branch.id != *id);
                    }
                }
            }
            Indication::Ended { session, flow, .. } => {
                for key in self.of_flow(*session, flow).into_iter().flatten() {
                    self.end(key, Some(QosErrorCode::NO_ANSWER), resources);
                }
                self.end_waiting(*session, |job| job.flow == *flow);
            }
        }
    }

    /// Takes the answer to [`QosOutput::RouteLookup`].
    pub fn route(&mut self, now: Time, id: u64, result: Result<Route, NoRoute>, resources: &mut Resources) {
        self.now = self.now.max(now);
        self.end_periods(portion(false), resources);
        let place = result.ok().map(|route| if route.local { IfIndex::NONE } else { route.ifindex });
        self.place_found(id, place, resources);
    }

    /// Admission control took a grant back.
    pub fn lost(&mut self, now: Time, key: u64, resources: &mut Resources) {
        self.now = self.now.max(now);
        let key = Key::from_u64(key);
        if self.records.get(key).is_none_or(|record| !record.has_state()) {
            return;
        }
        self.counters.lost += 1;
        self.report_lost(key, QosErrorCode::PREEMPTED);
        self.end_session(key, Some(QosErrorCode::PREEMPTED), resources);
    }

    /// Handles what is due, a part of it at a time.
    pub fn timer(&mut self, now: Time, resources: &mut Resources) {
        self.now = self.now.max(now);
        self.end_periods(AT_ONCE, resources);
        for _ in 0..AT_ONCE {
            let Some(index) = self.wheel.pop_due(&mut self.records, self.now) else { return };
            if let Some(key) = invariant!(self.records.key_of(index), "the timer of a record ends with it") {
                self.step(key, resources);
            }
        }
    }

    /// When [`QosClient::timer`] is due; `None`: nothing waits.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let period = self.periods.first().map(|(end, _)| *end);
        [self.wheel.next_deadline(), period].into_iter().flatten().min()
    }

    /// The next output, if any; its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<QosOutput<'_>> {
        self.out.poll()
    }

    /// Number of sessions with state.
    #[must_use]
    pub const fn sessions(&self) -> u32 {
        self.records.len()
    }

    /// Counts since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The record of a session for its flow, or the one for the opposite flow.
    fn find(&self, session: SessionId, instead: bool) -> Option<Key> {
        self.by_session.get(&(session, instead)).copied()
    }

    /// The records of a session.
    fn find_all(&self, session: SessionId) -> [Option<Key>; 2] {
        [false, true].map(|instead| self.find(session, instead))
    }

    /// The records of a session that has this flow now.
    fn of_flow(&self, session: SessionId, flow: &FlowId) -> [Option<Key>; 2] {
        let has_it = |key: &Key| self.records.get(*key).is_some_and(|record| record.flow == *flow);
        self.find_all(session).map(|key| key.filter(has_it))
    }

    /// Sets the timer of a record for what is due next.
    fn arm(&mut self, key: Key) {
        if let Some(at) = self.records.get(key).and_then(Record::deadline) {
            self.wheel.arm(&mut self.records, key.index(), at);
        }
    }

    /// Ends what expired, and does what is due for the originator.
    fn step(&mut self, key: Key, resources: &mut Resources) {
        self.expire(key, resources);
        self.period_due(key, resources);
        self.own_due(key, resources);
        // What was due may have ended it.
        let Some(record) = self.records.get(key) else { return };
        let idle = !record.has_state() && record.own.is_none() && record.used + record.lifetime <= self.now;
        if idle {
            self.end(key, None, resources);
        } else {
            self.arm(key);
        }
    }

    /// Removes all that the session of a record has. `why`: its user is informed.
    fn end_session(&mut self, key: Key, why: Option<QosErrorCode>, resources: &mut Resources) {
        let session = self.records.get(key).and_then(|record| record.session);
        if let Some(session) = session {
            self.end_waiting(session, |_| true);
        }
        if let Some(main) = session.and_then(|session| self.find(session, false)) {
            self.end(main, why, resources);
        }
        self.end(key, why, resources);
    }

    /// Removes a record, and the one for the opposite flow with that of the session. `why`: its user is informed.
    fn end(&mut self, key: Key, why: Option<QosErrorCode>, resources: &mut Resources) {
        // The record for the opposite flow ends with that of the session.
        let Some(record) = self.records.get(key) else { return };
        let session = record.session.filter(|_| !record.instead);
        if let Some(opposite) = session.and_then(|session| self.find(session, true)) {
            self.end(opposite, None, resources);
        }
        self.release_all(key, resources);
        self.tear_down(key);
        self.wheel.cancel(&mut self.records, key.index());
        let Some(record) = self.records.remove(key) else { return };
        let name = record.session.or(record.kept());
        if let Some(period) = record.period {
            self.periods.remove(&(period.end, key));
        }
        if let Some(session) = name {
            self.by_session.remove(&(session, record.instead));
        }
        if let Some(holder) = record.holder {
            self.holders.release(holder);
        }
        self.lists.remove(key);
        if let Some(own) = record.own {
            if own.id != NO_USER {
                self.by_user.remove(&own.id);
            }
            if let Some(code) = why {
                self.out.event(own.id, QosEvent::Lost { code });
            }
        }
    }
}

/// How many failures a partial reservation still allows, as an object.
fn allowance((failures_allowed, indeterminate_allowed): (u16, u16)) -> Partial {
    Partial { failures_allowed, indeterminate_allowed, ..Partial::default() }
}

/// The branch by which a message came.
const fn branch_of(id: u16, peer: IpAddr) -> Branch {
    Branch { id, peer }
}
