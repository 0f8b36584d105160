//! The NATFW application as an engine without clock, socket or thread.
//!
//! **Drain invariant.** After each [`Natfw::handle`], call [`Natfw::poll`] until it returns `None`, then ask
//! [`Natfw::next_deadline`]. Extra polls have no effect. Time never runs backwards. The driver of the engine answers each
//! [`Output::RouteLookup`] by one [`Input::Route`] and each [`Output::Open`] by one [`Input::Opened`] of the same id.
//!
//! | file | RFC 5973 |
//! |---|---|
//! | `receive.rs` | §3.3: what every message goes through |
//! | `request.rs` | §3.5, §3.7.3, §3.7.4, §3.10: new sessions, refreshes, updates, deletions |
//! | `deletion.rs` | §3.7.4: deletions of sessions that the peer does not have here |
//! | `create.rs` | §3.7.1, §3.7.6.2 |
//! | `external.rs` | §3.7.2 |
//! | `reservation.rs` | §3.8 |
//! | `proxy.rs` | §3.7.6.1 |
//! | `response.rs` | §3.4, §3.7.1: RESPONSE, and rules that become active |
//! | `notify.rs`, `sweep.rs` | §3.7.5, §3.9, aggregated messages |
//! | `stop.rs` | §3.7.5: what a node that stops reports |
//! | `far.rs` | the side where a flow leaves, before it is judged |
//! | `parked.rs` | requests that wait for a route |
//! | `ending.rs` | sessions that this node ends by itself |
//! | `ended.rs` | §3.5: sequence numbers of sessions that ended, and of deletions that came first |
//! | `initiator.rs` | §3.4, §3.5: the user's side |
//! | `check.rs` | values that are refused |
//! | `handover/` | a planned restart |
//! | `leases.rs` | external ports |
//! | `host.rs` | publications for hosts that do not run the application |
//! | `publish.rs` | receivers that are reached without a CREATE, which the RFC does not have |

mod check;
mod command;
mod compose;
mod config;
mod counters;
mod create;
mod decided;
mod deletion;
mod ended;
mod ending;
mod event;
mod external;
mod far;
mod handover;
mod host;
mod initiator;
mod interfaces;
mod io;
mod leases;
mod limits;
mod notify;
mod outbox;
mod parked;
mod plan;
mod proxy;
mod publish;
mod receive;
mod request;
mod reservation;
mod response;
mod session;
mod stop;
mod sweep;
mod table;
mod view;

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::ports::Ports;
use signalbox_core::ports::left::Left;
use signalbox_core::rng::Random;
use signalbox_core::service::{Indication, MessageStatus, Next};
use signalbox_core::shares::Shares;
use signalbox_core::slab::{Key, Slab};
use signalbox_core::wheel::{AT_ONCE, Wheel};
use signalbox_core::{Changes, SessionChange, SessionId, Time, invariant};
use signalbox_resources::{End, Resources};

pub use command::{Command, ExposeRequest, OpenRequest, Options, Publish};
pub use config::{Config, ConfigError, Mapping, Middlebox, OpenBits};
pub use counters::Counters;
pub use event::{Code, Failure, Granted, NatfwEvent, Refusal};
pub use handover::left_binding;
pub use host::{HostEvent, HostRequest};
pub use io::{Input, Output};
pub use session::{Kind, State};
pub use view::{Role, SessionView};

use ended::Ended;
use host::Host;
use initiator::Lookup;
use interfaces::Interfaces;
use outbox::{Outbox, Own, Purpose};
use parked::Requests;
use publish::Lessee;
use session::Session;
use sweep::Sweep;

/// The NATFW application of one node.
#[derive(Debug)]
pub struct Natfw {
    config: Config,
    counters: Counters,
    /// Sessions that appeared and disappeared, while somebody watches.
    changes: Changes<SessionChange>,
    /// The time of the last input.
    now: Time,
    rng: Random,
    hasher: KeyedHasher,
    interfaces: Interfaces,
    sessions: Slab<Session>,
    by_session: Index,
    /// Sessions by what they reserve.
    reservations: Index,
    /// What each source holds of the table of sessions.
    shares: Shares<IpAddr>,
    /// Sequence numbers of sessions that ended of late, and of deletions that came first.
    ended: Ended,
    ports: Ports,
    /// Ports that are kept for ends inside whose sessions a crash ended.
    left: Left<Key>,
    /// Sessions by which their initiators, if they lose them, get their ports again.
    lessees: BTreeMap<Lessee, Key>,
    /// Sessions of users, by the user's identifier.
    commands: BTreeMap<u64, Key>,
    /// Requests of front ends, by the front end's identifier.
    hosts: BTreeMap<u64, Host>,
    /// Requests of users for which an edge is to send a CREATE, by their nonces.
    proxied: BTreeMap<u32, Key>,
    /// Requests of users that wait for a route.
    lookups: Vec<Lookup>,
    /// Requests of peers that wait for a route.
    parked: Requests,
    last_lookup: u64,
    /// EXTERNALs in proxy mode whose CREATE is to be made at the end of this turn; one at most.
    pending_proxies: Vec<Key>,
    /// The sessions of CREATEs that the node before this one sent, and the numbers of their last requests, by the EXTERNALs in proxy mode
    /// that stand and have none yet.
    former_creates: BTreeMap<SessionId, (SessionId, u32)>,
    /// Aggregated messages that are being processed.
    sweeps: VecDeque<Sweep>,
    wheel: Wheel,
    out: Outbox,
}

impl Natfw {
    /// An application without sessions. Session identifiers, sequence numbers and ports are drawn from `seed`.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32]) -> Self {
        let mut rng = Random::new(seed);
        let hasher = KeyedHasher::new(&mut rng);
        let (first, last) = if config.translates() { (config.first_port, config.last_port) } else { (1, 0) };
        let (first_wish, last_wish) = (config.first_wish, config.last_wish);
        Self {
            counters: Counters::default(),
            changes: Changes::default(),
            now: Time::ZERO,
            hasher,
            interfaces: Interfaces::default(),
            sessions: Slab::new(config.max_sessions),
            by_session: Index::new(),
            reservations: Index::new(),
            shares: Shares::new(config.max_sessions, KeyedHasher::new(&mut rng)),
            ended: Ended::new(config.max_sessions, hasher),
            ports: Ports::new(first, last, &mut rng).with_wishes(first_wish, last_wish),
            left: Left::new(hasher),
            lessees: BTreeMap::new(),
            commands: BTreeMap::new(),
            hosts: BTreeMap::new(),
            proxied: BTreeMap::new(),
            lookups: Vec::new(),
            parked: Requests::new(hasher),
            last_lookup: 0,
            pending_proxies: Vec::new(),
            former_creates: BTreeMap::new(),
            sweeps: VecDeque::new(),
            wheel: Wheel::default(),
            out: Outbox::new(config.max_watched, hasher),
            rng,
            config,
        }
    }

    /// Takes one input at `now`. Drain [`Natfw::poll`] afterwards.
    pub fn handle(&mut self, now: Time, input: Input<'_>, resources: &mut Resources) {
        self.now = self.now.max(now);
        self.out.release();
        match input {
            Input::Timer => self.on_timer(resources),
            Input::Indication(Indication::RecvMessage(ref message)) => self.on_message(message, resources),
            Input::Indication(Indication::MessageStatus { handle, session, status, .. }) => {
                let purpose = self.out.settle(handle, session).map(|parcel| {
                    self.out.reuse(parcel.octets);
                    parcel.purpose
                });
                match (purpose, status) {
                    (Some(Purpose::Request(key, msn)), MessageStatus::Failed(error)) => {
                        self.on_unsent(key, msn, error, resources);
                        self.rearm(key);
                    }
                    (Some(Purpose::Request(..) | Purpose::Unwatched) | None, _) => {}
                }
            }
            Input::Indication(Indication::NetworkNotification { nslp, mri, session, event }) => {
                if nslp == self.config.nslp {
                    self.on_network(&mri, session, event);
                }
            }
            Input::Interfaces(interfaces) => {
                let former = self.interfaces.external();
                self.interfaces.set(interfaces, &self.config);
                if let Some(former) = former.filter(|former| self.interfaces.external() != Some(*former)) {
                    self.on_moved(former);
                }
            }
            Input::Route { id, result } => self.on_any_route(id, result, resources),
            Input::Opened { id, result } => {
                self.on_opened(id, result, resources);
                self.rearm(Key::from_u64(id.key));
            }
            Input::Rules => self.on_rules(),
            Input::Stop { handed_over } => self.on_stop(handed_over),
            Input::Handover(entries) => self.take_over(entries, resources),
            Input::Host { id, request } => self.on_host(id, request.as_ref(), resources),
            Input::Command { id, command } => self.on_command(id, command, resources),
        }
        self.step_proxies(resources);
        self.step_sweep(resources);
    }

    /// The next output, if any. Its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        self.out.poll().map(Output::from)
    }

    /// Whether the next output of [`Natfw::poll`] is for a front end.
    #[inline]
    #[must_use]
    pub fn is_for_host(&self) -> bool {
        matches!(self.out.next_own(), Some(Own::Host(..)))
    }

    /// Who takes the next output of [`Natfw::poll`]; `None`: there is no output.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        self.out.next()
    }

    /// When [`Input::Timer`] is due next; `None` while no timer runs.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let sweep = (!self.sweeps.is_empty()).then_some(self.now);
        [self.wheel.next_deadline(), sweep, self.left.deadline()].into_iter().flatten().min()
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

    fn on_timer(&mut self, resources: &mut Resources) {
        self.step_left();
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
        let Some(session) = invariant!(self.sessions.get(key), "what is due has a session") else { return };
        if session.expires > self.now {
            if session.waits_in_vain(self.now) {
                return self.give_up_create(key, resources);
            }
            // What a host may publish is judged again with each refresh, as where it asks itself.
            let refreshed = session.is_refreshed(self.now) && session.is_of_host();
            if refreshed && !self.judge(key, resources) {
                return;
            }
            return self.step_local(key);
        }
        if session.begins_here() {
            return self.give_up(key, resources);
        }
        self.counters.expired += 1;
        tracing::debug!(session = %session.id, state = ?session.state, "session expired");
        resources.because(End::Expired);
        self.close(key, resources);
    }
}
