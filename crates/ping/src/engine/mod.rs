//! The Ping application as an engine without clock, socket or thread.
//!
//! **Drain invariant.** After each [`Ping::handle`], call [`Ping::poll`] until it returns `None`, then ask
//! [`Ping::next_deadline`]. Extra polls have no effect. Time never runs backwards.
//!
//! * `initiator` is the node that starts a ping. `session` is the state of one ping, `routes` is the list of pings that
//!   wait for the route to their destination.
//! * `relay` is a node on the path. `nsis` is one for messages of the NSIS Ping tool, and `trace` reads such a message that
//!   came back.
//! * `outbox` holds outputs until they are polled, `interfaces` the addresses of this node.

mod config;
mod counters;
mod event;
mod initiator;
mod interfaces;
mod io;
mod nsis;
mod outbox;
mod relay;
mod routes;
mod session;
mod trace;
mod view;

use signalbox_core::Time;
use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::metrics::Table;
use signalbox_core::rng::Random;
use signalbox_core::service::{Indication, MessageStatus, Next, RecvMessage};
use signalbox_core::slab::Slab;
use signalbox_core::wheel::Wheel;

pub use config::Config;
pub use counters::Counters;
pub use event::{Command, Format, Hop, LostReason, MIN_INTERVAL, PingEvent, PingRequest, Refusal, Reply};
pub use io::{Input, Output};

use interfaces::Interfaces;
use outbox::Outbox;
use routes::Routes;
use session::Session;

/// The Ping application of one node.
#[derive(Debug)]
pub struct Ping {
    config: Config,
    counters: Counters,
    /// The time of the last input.
    now: Time,
    rng: Random,
    interfaces: Interfaces,
    sessions: Slab<Session>,
    /// Sessions by identifier. The hash is taken from the identifier's own octets: this node drew them at random, and
    /// no peer can insert one.
    by_session: Index,
    routes: Routes,
    wheel: Wheel,
    out: Outbox,
}

impl Ping {
    /// An application without sessions. Session identifiers are drawn from `seed`.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32]) -> Self {
        let mut rng = Random::new(seed);
        let hasher = KeyedHasher::new(&mut rng);
        Self {
            config,
            counters: Counters::default(),
            now: Time::ZERO,
            rng,
            interfaces: Interfaces::default(),
            sessions: Slab::new(config.max_pings),
            by_session: Index::new(),
            routes: Routes::default(),
            wheel: Wheel::default(),
            out: Outbox::new(config.max_watched, hasher),
        }
    }

    /// Takes one input at `now`. Drain [`Ping::poll`] afterwards.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        self.now = self.now.max(now);
        self.out.release();
        match input {
            Input::Timer => self.run_timers(),
            Input::Indication(Indication::RecvMessage(ref message)) => self.receive(message),
            Input::Indication(Indication::MessageStatus { handle, session, status, .. }) => match status {
                MessageStatus::Sent(_) => self.out.sent(handle, session),
                MessageStatus::Failed(error) => {
                    if let Some(parcel) = self.out.settle(handle, session) {
                        self.not_sent(parcel, error);
                    }
                }
            },
            // The status of each message contains all that this application needs of a notification.
            Input::Indication(Indication::NetworkNotification { .. }) => {}
            Input::Interfaces(interfaces) => self.interfaces.set(interfaces),
            Input::Route { id, result } => {
                if let Some((id, request)) = self.take_route(id, result) {
                    self.start(id, request);
                }
            }
            Input::Command { id, command: Command::Start(request) } if request.src.is_none() => {
                self.look_up(id, request);
            }
            Input::Command { id, command: Command::Start(request) } => self.start(id, request),
            Input::Command { id, command: Command::Stop } => self.stop(id),
        }
    }

    /// The next output, if any. Its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        self.out.poll()
    }

    /// Who takes the next output of [`Ping::poll`]; `None`: there is no output.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        self.out.next()
    }

    /// When [`Input::Timer`] is due next; `None` while no timer runs.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }

    /// The tables that users can fill.
    #[must_use]
    pub const fn tables(&self) -> [Table; 1] {
        [Table::new("pings", self.sessions.len(), self.sessions.limit())]
    }

    /// Counts since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The wall clock was corrected: microseconds since 1970 at [`Time::ZERO`].
    pub const fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.config.wall_clock_us = wall_clock_us;
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Takes a message that GIST received (RFC 5971 B.2).
    fn receive(&mut self, message: &RecvMessage<'_>) {
        if let Some(check) = message.check {
            self.out.accept_peer(check);
        }
        if message.data.is_empty() {
            return; // a Query without payload
        }
        if self.config.nsis == Some(message.nslp) {
            self.receive_nsis(message);
        } else {
            self.receive_data(message);
        }
    }

    /// The time now in microseconds since 1970.
    const fn wall_us(&self) -> u64 {
        self.config.wall_clock_us.saturating_add(self.now.as_micros())
    }
}
