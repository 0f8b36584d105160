//! The application as an engine without clock, socket or thread.
//!
//! **Drain invariant.** After each [`Qos::handle`], call [`Qos::poll`] until it returns `None`, then ask
//! [`Qos::next_deadline`]. Extra polls are no-ops. Time never runs backwards. Whoever drives the engine answers each
//! [`Output::RouteLookup`] by one [`Input::Route`] of the same id, and passes what [`Resources`] says of grants whose
//! owner's protocol is [`PROTOCOL`] as [`Input::Lost`].
//!
//! | file | RFC 5974 |
//! |---|---|
//! | `receive.rs` | §5.2.3, §5.4: what every message goes through |
//! | `reserve.rs`, `grant.rs`, `tear.rs` | §5.4.1 |
//! | `query.rs` | §5.4.2 |
//! | `response.rs` | §5.4.3, §5.2.4 |
//! | `notify.rs` | §5.4.4 |
//! | `refresh.rs`, `summary.rs` | §5.3.4, §5.3.6, §5.3.7 |
//! | `reroute.rs` | §5.2.5 |
//! | `binding.rs` | §3.2.8, §4.6 |
//! | `aggregate.rs` | §4.5 |
//! | `stateless.rs` | §4.7 |
//! | `initiator.rs` | the user's side |
//! | `retry.rs` | §5.3.5: transient failures |
//! | `rmf.rs` | the resource management function: QSPEC on one side, [`Resources`] on the other |

mod aggregate;
mod binding;
mod command;
mod compose;
mod config;
mod counters;
mod event;
mod grant;
mod initiator;
mod interfaces;
mod io;
mod notify;
mod outbox;
mod parked;
mod query;
mod receive;
mod refresh;
mod reroute;
mod reserve;
mod response;
mod retry;
mod rmf;
mod session;
mod stateless;
mod summary;
mod table;
mod tear;
mod token;
mod view;

use std::collections::{BTreeMap, VecDeque};

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::node::{NoRoute, Route, RouteQuery};
use signalbox_core::rng::Random;
use signalbox_core::service::{Indication, MessageStatus, Next};
use signalbox_core::slab::{Key, Slab};
use signalbox_core::wheel::Wheel;
use signalbox_core::{ReserverId, SessionId, Time};
use signalbox_resources::Resources;

pub use command::{Command, Flow, Priority, QosRequest, QueryRequest, ReserveRequest, Service};
pub use config::{Aggregate, Config, StateKeeping, WayBack};
pub use counters::Counters;
pub use event::{Answer, Failure, Granted, HopGrant, QosEvent, Quality, Refusal};
pub use io::{Input, Output};
pub use view::{Role, SessionView};

use aggregate::Trunk;
use interfaces::Interfaces;
use outbox::Outbox;
use parked::{Meta, Parked, Place};
use session::{Marks, Session};
use stateless::Sums;

/// The owner of this protocol's grants.
pub const PROTOCOL: ReserverId = ReserverId::QOS;

/// The application.
#[derive(Debug)]
pub struct Qos {
    config: Config,
    counters: Counters,
    /// The time of the last input.
    now: Time,
    rng: Random,
    hasher: KeyedHasher,
    /// Tells peers that we restarted (§5.3.1): drawn at the start.
    epoch: u32,
    interfaces: Interfaces,
    sessions: Slab<Session>,
    by_session: Index,
    /// Sessions by the user's name for them.
    commands: BTreeMap<u64, Key>,
    /// Sessions that are bound to one.
    bound_to: BTreeMap<SessionId, Vec<Key>>,
    /// Sessions without a reservation.
    paths: u32,
    wheel: Wheel,
    parked: Slab<Place>,
    parked_wheel: Wheel,
    /// Routes that are being looked up.
    lookups: u32,
    /// What waits by its MSG-ID: a bound message (0), a triggering one (1), or what became of one (2).
    by_message: BTreeMap<([u8; 16], u8), Key>,
    /// Messages whose wait is over.
    resume: VecDeque<(Vec<u8>, Meta)>,
    /// Sessions by their next peer, for summary refreshes; in turn, and with some that have another peer by now.
    rings: BTreeMap<u64, VecDeque<Key>>,
    sums: Sums,
    trunks: Vec<Trunk>,
    out: Outbox,
}

impl Qos {
    /// An application without sessions; all its random numbers come from `seed`.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32]) -> Self {
        let mut rng = Random::new(seed);
        let hasher = KeyedHasher::new(&mut rng);
        let epoch = rng.u32();
        let sessions = config.max_sessions.saturating_add(config.max_queries);
        Self {
            counters: Counters::default(),
            now: Time::ZERO,
            rng,
            hasher,
            epoch,
            interfaces: Interfaces::default(),
            sessions: Slab::new(sessions),
            by_session: Index::new(),
            commands: BTreeMap::new(),
            bound_to: BTreeMap::new(),
            paths: 0,
            wheel: Wheel::default(),
            parked: Slab::new(config.max_parked),
            parked_wheel: Wheel::default(),
            lookups: 0,
            by_message: BTreeMap::new(),
            resume: VecDeque::new(),
            rings: BTreeMap::new(),
            sums: Sums::default(),
            trunks: config.aggregates.iter().map(|_| Trunk::default()).collect(),
            out: Outbox::new(config.max_watched),
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
        self.step_trunks(resources);
    }

    /// The next output, if any. Its octets live until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        self.out.poll()
    }

    /// Who takes the next output of [`Qos::poll`]; `None`: there is no output.
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        self.out.next()
    }

    /// When [`Input::Timer`] is due next; `None` while nothing waits.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        [self.wheel.next_deadline(), self.parked_wheel.next_deadline(), self.sums_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// What was counted since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Whether a command of this name runs.
    #[must_use]
    pub fn runs(&self, id: u64) -> bool {
        self.commands.contains_key(&id)
    }

    /// Sessions known, those of QUERYs among them.
    #[must_use]
    pub const fn sessions(&self) -> u32 {
        self.sessions.len()
    }

    /// Messages whose fate GIST has not told yet.
    #[must_use]
    pub const fn watched(&self) -> u32 {
        self.out.watched()
    }

    /// Puts something aside until a route is known.
    fn look_up(&mut self, what: Parked, query: RouteQuery) -> bool {
        let place = Place { what, link: signalbox_core::Link::default() };
        match self.parked.insert(place) {
            Ok(key) => {
                self.out.look_up(key.to_u64(), query);
                self.lookups += 1;
                true
            }
            Err(_) => {
                self.counters.overload += 1;
                false
            }
        }
    }

    fn on_route(&mut self, key: Key, result: Result<Route, NoRoute>, resources: &mut Resources) {
        let waits = self
            .parked
            .get(key)
            .is_some_and(|place| !matches!(place.what, Parked::Bound { .. } | Parked::Seen { .. }));
        if !waits {
            return;
        }
        let Some(place) = self.parked.remove(key) else { return };
        self.lookups = self.lookups.saturating_sub(1);
        match place.what {
            Parked::Message(octets, meta) => {
                self.on_routed(&octets, &meta, result, resources);
                self.out.reuse(octets);
            }
            Parked::Command(id, command) => self.on_routed_command(id, command, result, resources),
            Parked::WayBack(key) => self.on_routed_way_back(key, result, resources),
            Parked::Repair(key) => self.on_routed_repair(key, result, resources),
            Parked::Verify(key) => self.on_verified(key, result, resources),
            Parked::ForSender(key) => {
                if let Ok(route) = result {
                    self.begin_for_sender(key, &route, resources);
                    self.rearm(key);
                }
            }
            Parked::Bound { .. } | Parked::Seen { .. } => {}
        }
    }

    fn on_timer(&mut self, resources: &mut Resources) {
        self.step_waiting();
        self.turn_sums(resources);
        while let Some(index) = self.wheel.pop_due(&mut self.sessions, self.now) {
            if let Some(key) = self.sessions.key_of(index) {
                self.step(key, resources);
                self.rearm(key);
            }
        }
    }

    /// Whatever is due in a session.
    fn step(&mut self, key: Key, resources: &mut Resources) {
        self.step_requests(key, resources);
        self.step_local(key, resources);
        let Some(session) = self.sessions.get(key) else { return };
        if session.expires.is_some_and(|at| at <= self.now) {
            return self.expire(key, resources);
        }
        if session.refresh_at.is_some_and(|at| at <= self.now) {
            self.refresh(key);
        }
    }

    fn has(&self, key: Key, marks: Marks) -> bool {
        self.sessions.get(key).is_some_and(|s| s.marks.has(marks))
    }
}
