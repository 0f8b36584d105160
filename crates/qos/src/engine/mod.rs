//! The QoS NSLP application as an engine without clock, socket or thread.
//!
//! **Drain invariant.** After each [`Qos::handle`], call [`Qos::poll`] until it returns `None`, then ask
//! [`Qos::next_deadline`]. Extra polls have no effect. Time never runs backwards. The driver of the engine answers
//! each [`Output::RouteLookup`] by one [`Input::Route`] of the same id, and gives each loss that [`Resources`] reports
//! of a grant of [`PROTOCOL`] to the engine as [`Input::Lost`].
//!
//! | file | RFC 5974 |
//! |---|---|
//! | `receive.rs` | §5.2.3, §5.4: what every message goes through |
//! | `reserve.rs`, `grant.rs`, `tear.rs` | §5.4.1 |
//! | `query.rs` | §5.4.2 |
//! | `response.rs` | §5.4.3, §5.2.4 |
//! | `notify.rs` | §5.4.4 |
//! | `refresh.rs`, `summary.rs` | §5.3.4, §5.3.6, §5.3.7 |
//! | `reroute.rs`, `path_check.rs`, `report.rs` | §5.2.5 |
//! | `binding.rs` | §3.2.8, §4.6 |
//! | `aggregate.rs` | §4.5 |
//! | `stateless.rs` | §4.7 |
//! | `initiator.rs`, `again.rs` | the user's side |
//! | `retry.rs` | §5.3.5: transient failures |
//! | `rmf.rs` | the resource management function: QSPEC on one side, [`Resources`] on the other |

mod again;
mod aggregate;
mod binding;
mod circle;
mod command;
mod compose;
mod config;
mod contents;
mod counters;
mod ends;
mod event;
mod grant;
mod holders;
mod initiator;
mod interfaces;
mod io;
mod limits;
mod notify;
mod outbox;
mod packed;
mod path_check;
mod query;
mod rare;
mod receive;
mod refresh;
mod release;
mod report;
mod reroute;
mod reserve;
mod response;
mod retry;
mod rmf;
mod session;
mod smaller;
mod source;
mod stateless;
mod summary;
mod table;
mod tear;
mod view;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::node::{NoRoute, Route, RouteQuery};
use signalbox_core::rng::Random;
use signalbox_core::service::{Indication, MessageStatus, Next};
use signalbox_core::slab::{Key, Slab};
use signalbox_core::wheel::{AT_ONCE, Wheel};
use signalbox_core::{Changes, Recent, ReserverId, SessionChange, SessionId, Time, TokenBucket, invariant};
use signalbox_resources::Resources;

pub use command::{Command, Flow, Priority, QosRequest, QueryRequest, ReserveRequest, Service};
pub use config::{Aggregate, Config, ReverseDirection, StateKeeping};
pub use counters::Counters;
pub use event::{Answer, Failure, Granted, HopGrant, QosEvent, Quality, Refusal};
pub use io::{Input, Output};
pub use rmf::CONFLICT;
pub use view::{Role, SessionView};

use aggregate::AggregateState;
use ends::Owner;
use holders::Holders;
use interfaces::Interfaces;
use outbox::Outbox;
use session::{Marks, Session};
use source::Sources;
use stateless::Sums;
use waiting::{Arrival, Slot, Waiting};

/// The owner of the grants of this protocol.
pub const PROTOCOL: ReserverId = ReserverId::QOS;

/// Messages a second that a node without state passes on for peers that preserve no hop count.
const UNCOUNTED_RATE: u32 = 64;

/// The QoS NSLP application of one node.
#[derive(Debug)]
pub struct Qos {
    config: Config,
    counters: Counters,
    /// Sessions that appeared and disappeared, while somebody watches.
    changes: Changes<SessionChange>,
    /// The time of the last input.
    now: Time,
    rng: Random,
    hasher: KeyedHasher,
    /// Source identification information of the RSN, drawn at the start: a new value shows peers that this node
    /// restarted (RFC 5974 §5.3.1).
    epoch: u32,
    interfaces: Interfaces,
    sessions: Slab<Session>,
    by_session: Index,
    /// Sessions by the user's identifier.
    commands: BTreeMap<u64, Key>,
    /// Sessions that are bound to a session: its identifier and their keys.
    bound_to: BTreeSet<(SessionId, u64)>,
    /// Ended reservations, with the least key of a bound session that is not handled yet.
    gone: BTreeMap<SessionId, u64>,
    /// What sources hold of the table of sessions.
    holders: Holders,
    wheel: Wheel,
    waiting: Slab<Slot>,
    /// Slots of what waits, by whose message or command it is.
    by_owner: BTreeSet<(Owner, u64)>,
    waiting_wheel: Wheel,
    /// Route lookups without an answer yet.
    lookups: u32,
    /// Waiting slots by MSG-ID: a bound message (0), a triggering message (1), or the result of a triggering message
    /// (2).
    by_message: BTreeMap<([u8; 16], u8), Key>,
    /// Messages whose triggering message has arrived.
    resume: VecDeque<(Vec<u8>, Arrival)>,
    /// Sessions by their next peer, for summary refreshes. They take turns. Some have another next peer by now.
    rings: BTreeMap<u64, VecDeque<Key>>,
    sums: Sums,
    /// Limits what a node without state passes on for peers that preserve no hop count.
    uncounted: TokenBucket,
    /// Sources of sessions that were stored lately.
    sources: Sources,
    /// QSPECs that were stored lately.
    qspecs: Recent<[u8]>,
    aggregates: Vec<AggregateState>,
    out: Outbox,
}

impl Qos {
    /// An application without sessions. All its random numbers come from `seed`.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32]) -> Self {
        let mut rng = Random::new(seed);
        let hasher = KeyedHasher::new(&mut rng);
        let epoch = rng.u32();
        let sessions = config.max_sessions.saturating_add(config.max_queries);
        Self {
            counters: Counters::default(),
            changes: Changes::default(),
            now: Time::ZERO,
            rng,
            hasher,
            epoch,
            interfaces: Interfaces::default(),
            sessions: Slab::new(sessions),
            by_session: Index::new(),
            commands: BTreeMap::new(),
            bound_to: BTreeSet::new(),
            gone: BTreeMap::new(),
            holders: Holders::new(&config, hasher),
            wheel: Wheel::default(),
            waiting: Slab::new(config.max_parked),
            by_owner: BTreeSet::new(),
            waiting_wheel: Wheel::default(),
            lookups: 0,
            by_message: BTreeMap::new(),
            resume: VecDeque::new(),
            rings: BTreeMap::new(),
            sums: Sums::default(),
            uncounted: TokenBucket::new(UNCOUNTED_RATE, UNCOUNTED_RATE),
            sources: Sources::default(),
            qspecs: Recent::default(),
            aggregates: config.aggregates.iter().map(|_| AggregateState::default()).collect(),
            out: Outbox::new(config.max_watched, hasher),
            config,
        }
    }

    /// Takes one input at `now`. Drain [`Qos::poll`] afterwards.
    pub fn handle(&mut self, now: Time, input: Input<'_>, resources: &mut Resources) {
        self.now = self.now.max(now);
        self.out.release();
        match input {
            Input::Timer => self.on_timer(resources),
            Input::Indication(Indication::RecvMessage(message)) => self.on_message(&message, resources),
            Input::Indication(Indication::MessageStatus { handle, session, status, .. }) => {
                let Some(parcel) = self.out.settle(handle, session) else { return };
                match status {
                    MessageStatus::Sent(_) => self.on_sent(&parcel),
                    MessageStatus::Failed(error) => self.on_unsent(&parcel, error, resources),
                }
                self.out.reuse(parcel.octets);
            }
            Input::Indication(Indication::NetworkNotification { nslp, mri, session, event }) => {
                if self.config.is_ours(nslp) {
                    self.on_network(&mri, session, event);
                }
            }
            Input::Interfaces(interfaces) => self.interfaces.set(interfaces),
            Input::Route { id, result } => self.on_route(Key::from_u64(id), result, resources),
            Input::Command { id, command } => self.on_command(id, command, resources),
            Input::Lost { key, grant, why } => self.on_lost(Key::from_u64(key), grant, why, resources),
        }
        self.step_resumed(resources);
        self.step_gone(resources);
        self.step_aggregates(resources);
    }

    /// The next output, if any. Its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        self.out.poll()
    }

    /// Who takes the next output of [`Qos::poll`]; `None`: there is no output.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        self.out.next()
    }

    /// When [`Input::Timer`] is due next; `None` while no timer runs.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let gone = (!self.gone.is_empty()).then_some(self.now);
        [self.wheel.next_deadline(), self.waiting_wheel.next_deadline(), self.sums_deadline(), gone]
            .into_iter()
            .flatten()
            .min()
    }

    /// The list of sessions that appear and disappear, to watch and to take from.
    pub const fn changes(&mut self) -> &mut Changes<SessionChange> {
        &mut self.changes
    }

    /// Counts since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Whether a command with this identifier runs.
    #[must_use]
    pub fn runs(&self, id: u64) -> bool {
        self.commands.contains_key(&id)
    }

    /// The number of sessions, those of QUERYs included.
    #[must_use]
    pub const fn sessions(&self) -> u32 {
        self.sessions.len()
    }

    /// Messages whose status GIST has not reported yet.
    #[must_use]
    pub const fn watched(&self) -> u32 {
        self.out.watched()
    }

    /// Stores `what` until the route is known.
    fn look_up(&mut self, what: Waiting, query: RouteQuery) -> bool {
        let owner = what.owner();
        let place = Slot { what, holder: None, contents: 0, link: signalbox_core::Link::default() };
        match self.waiting.insert(place) {
            Ok(key) => {
                if let Some(owner) = owner {
                    self.by_owner.insert((owner, key.to_u64()));
                }
                self.out.look_up(key.to_u64(), query);
                self.lookups += 1;
                true
            }
            Err(_) => {
                self.counters.overload += 1;
                tracing::debug!(reason = "table of waiting messages full", "route not looked up");
                false
            }
        }
    }

    fn on_route(&mut self, key: Key, result: Result<Route, NoRoute>, resources: &mut Resources) {
        let waits = self
            .waiting
            .get(key)
            .is_some_and(|place| !matches!(place.what, Waiting::Bound { .. } | Waiting::Processed { .. }));
        if !waits {
            return;
        }
        let Some(place) = invariant!(self.take_slot(key), "a route is for what waits") else { return };
        match place.what {
            Waiting::Message(octets, arrival) => {
                self.on_routed(&octets, &arrival, result, resources);
                self.out.reuse(octets);
            }
            Waiting::Command(id, command) => self.on_routed_command(id, command, result, resources),
            Waiting::ReverseDirection(key) => self.on_routed_reverse(key, result, resources),
            Waiting::Repair(key) => self.on_routed_repair(key, result, resources),
            Waiting::Verify(key) => self.on_verified(key, result, resources),
            Waiting::ForSender(key) => {
                if let Ok(route) = result {
                    self.begin_for_sender(key, &route, resources);
                    self.rearm(key);
                }
            }
            Waiting::Bound { .. } | Waiting::Processed { .. } => {}
        }
    }

    fn on_timer(&mut self, resources: &mut Resources) {
        self.step_waiting();
        self.turn_sums(resources);
        for _ in 0..AT_ONCE {
            let Some(index) = self.wheel.pop_due(&mut self.sessions, self.now) else { return };
            if let Some(key) = invariant!(self.sessions.key_of(index), "a timer is of a session") {
                self.step(key, resources);
                self.rearm(key);
            }
        }
    }

    /// Does all actions of a session that are due.
    fn step(&mut self, key: Key, resources: &mut Resources) {
        self.step_requests(key, resources);
        self.step_local(key, resources);
        self.step_report(key);
        self.step_path_check(key, resources);
        let Some(session) = self.sessions.get(key) else { return }; // what was due may have ended it
        if session.expires.is_due(self.now) {
            return self.expire(key, resources);
        }
        if session.refresh_at.is_due(self.now) {
            self.refresh(key);
        }
    }

    fn has(&self, key: Key, marks: Marks) -> bool {
        self.sessions.get(key).is_some_and(|s| s.marks.has(marks))
    }
}
