//! The application as an engine without clock, socket or thread.
//!
//! **Drain invariant.** After each [`Ping::handle`], call [`Ping::poll`] until it returns `None`, then ask
//! [`Ping::next_deadline`]. Extra polls are no-ops. Time never runs backwards.
//!
//! The side of the initiator is in `initiator.rs`, that of the nodes on the way in `relay.rs`.

mod addresses;
mod config;
mod event;
mod initiator;
mod relay;
mod routes;
mod session;

use std::collections::VecDeque;

use signalbox_core::index::Index;
use signalbox_core::node::{Interface, NoRoute, Route, RouteQuery};
use signalbox_core::outbox::{Outbox, Parcel};
use signalbox_core::rng::Random;
use signalbox_core::service::{
    CheckId, Indication, MessageStatus, Next, Peering, RecvMessage, Request, StateHandle,
};
use signalbox_core::slab::{Key, Slab};
use signalbox_core::wheel::Wheel;
use signalbox_core::{Mri, NslpId, SessionId, Time};

pub use config::Config;
pub use event::{Command, Hop, LostReason, MIN_INTERVAL, PingEvent, PingRequest, Refusal, Reply};

use crate::counters::Counters;
use addresses::Addresses;
use routes::Routes;
use session::Session;

/// What comes in.
#[derive(Debug)]
pub enum Input<'a> {
    /// Nothing but the time: a deadline is due.
    Timer,
    /// GIST tells something.
    Indication(Indication<'a>),
    /// The node's interfaces, whole; given at the start and after each change.
    Interfaces(&'a [Interface]),
    /// The answer to [`Output::RouteLookup`].
    Route {
        /// The identifier of the lookup.
        id: u64,
        /// The route, or why there is none.
        result: Result<Route, NoRoute>,
    },
    /// A user starts or stops a ping.
    Command {
        /// The user's identifier of the ping. It is given back with each event.
        id: u64,
        /// What is wanted.
        command: Command,
    },
}

/// What goes out.
#[derive(Debug)]
pub enum Output<'a> {
    /// GIST is asked for something.
    Request(Request<'a>),
    /// Find the route that a packet of this flow would take. It gives a ping its source address.
    RouteLookup {
        /// To be given back with [`Input::Route`].
        id: u64,
        /// Which packet.
        query: RouteQuery,
    },
    /// A user hears something.
    Event {
        /// The name that the ping was started under.
        id: u64,
        /// What happened.
        event: PingEvent,
    },
}

/// Whose message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Ours, of this ping, with this sequence number.
    Probe(Key, u32),
    /// A request that passes by; the state that leads back to where it came from.
    Request(Option<StateHandle>),
    /// A reply; nothing is to be done if it fails.
    Reply,
}

/// An output that waits to be polled. Small: what is large and seldom, at the initiator only, is boxed.
#[derive(Debug)]
enum Queued {
    Parcel(Key),
    Peering(CheckId),
    Lifetime(Box<(Mri, SessionId)>),
    Lookup(Box<(u64, RouteQuery)>),
    Event(u64, Box<PingEvent>),
}

/// The application.
#[derive(Debug)]
pub struct Ping {
    config: Config,
    /// Microseconds since 1970 at [`Time::ZERO`].
    wall_clock_us: u64,
    rng: Random,
    addresses: Addresses,
    sessions: Slab<Session>,
    /// Sessions by identifier. Their own octets are the hash: we drew them at random and nobody else can
    /// put one in.
    by_session: Index,
    routes: Routes,
    wheel: Wheel,
    outbox: Outbox<Origin>,
    queue: VecDeque<Queued>,
    counters: Counters,
}

impl Ping {
    /// An application without sessions. `wall_clock_us` is the time in microseconds since 1970 at
    /// [`Time::ZERO`]; session identifiers are drawn from `seed`.
    #[must_use]
    pub fn new(config: Config, wall_clock_us: u64, seed: [u8; 32]) -> Self {
        Self {
            config,
            wall_clock_us,
            rng: Random::new(seed),
            addresses: Addresses::default(),
            sessions: Slab::new(config.max_pings),
            by_session: Index::new(),
            routes: Routes::default(),
            wheel: Wheel::default(),
            outbox: Outbox::new(config.max_watched),
            queue: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// The number that its messages carry.
    #[must_use]
    pub const fn nslp(&self) -> NslpId {
        self.config.nslp
    }

    /// Takes one input at `now`.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        self.outbox.sweep();
        match input {
            Input::Timer => self.on_timer(now),
            Input::Indication(Indication::RecvMessage(message)) => self.on_message(now, &message),
            Input::Indication(Indication::MessageStatus { handle, session, status, .. }) => {
                let Some(parcel) = self.outbox.settle(handle, session) else { return };
                match status {
                    MessageStatus::Sent(_) => self.outbox.reuse(parcel.octets),
                    MessageStatus::Failed(error) => self.on_failed(now, parcel, error),
                }
            }
            // Each message's own status says what matters of these.
            Input::Indication(Indication::NetworkNotification { .. }) => {}
            Input::Interfaces(interfaces) => self.addresses.set(interfaces),
            Input::Route { id, result } => {
                if let Some((id, request)) = self.take_route(id, result) {
                    self.on_start(now, id, request);
                }
            }
            Input::Command { id, command: Command::Start(request) } if request.src.is_none() => {
                self.look_up(id, request);
            }
            Input::Command { id, command: Command::Start(request) } => self.on_start(now, id, request),
            Input::Command { id, command: Command::Stop } => self.on_stop(id),
        }
    }

    /// The next output, if any; its octets live until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        self.outbox.sweep();
        let nslp = self.config.nslp;
        match self.queue.pop_front()? {
            Queued::Parcel(key) => Some(Output::Request(Request::SendMessage(self.outbox.give(key)?))),
            Queued::Peering(check) => {
                Some(Output::Request(Request::Peering { check, decision: Peering::Accept(None) }))
            }
            Queued::Lifetime(of) => {
                let (mri, session) = *of;
                Some(Output::Request(Request::SetStateLifetime {
                    nslp,
                    mri,
                    session: Some(session),
                    lifetime: self.config.linger,
                }))
            }
            Queued::Lookup(of) => {
                let (id, query) = *of;
                Some(Output::RouteLookup { id, query })
            }
            Queued::Event(id, event) => Some(Output::Event { id, event: *event }),
        }
    }

    /// Who takes the next output of [`Ping::poll`]; `None`: there is no output.
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        Some(match self.queue.front()? {
            Queued::Parcel(_) | Queued::Peering(_) | Queued::Lifetime(_) => Next::Gist,
            Queued::Lookup(_) | Queued::Event(..) => Next::Driver,
        })
    }

    /// When [`Input::Timer`] is due next; `None` while nothing waits.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }

    /// What was counted since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Pings that this node started and that run.
    #[must_use]
    pub const fn running(&self) -> u32 {
        self.sessions.len()
    }

    /// Messages whose fate GIST has not told yet.
    #[must_use]
    pub const fn watched(&self) -> u32 {
        self.outbox.watched()
    }

    fn on_message(&mut self, now: Time, message: &RecvMessage<'_>) {
        if let Some(check) = message.check {
            self.queue.push_back(Queued::Peering(check));
        }
        if message.data.is_empty() {
            return; // a Query without payload
        }
        self.on_data(now, message);
    }

    fn tell(&mut self, id: u64, event: PingEvent) {
        self.queue.push_back(Queued::Event(id, Box::new(event)));
    }

    /// Microseconds since 1970 at `now`.
    const fn wall_us(&self, now: Time) -> u64 {
        self.wall_clock_us.saturating_add(now.as_micros())
    }

    /// Composes a message and queues it.
    fn send(
        &mut self,
        mut parcel: Parcel<Origin>,
        write: impl FnOnce(&mut signalbox_wire::Writer<'_>),
    ) -> bool {
        let watch = parcel.purpose != Origin::Reply;
        parcel.octets = self.outbox.buffer();
        write(&mut signalbox_wire::Writer::new(&mut parcel.octets));
        let Some(key) = self.outbox.put(parcel, watch) else {
            self.counters.overload += 1;
            return false;
        };
        if watch && !self.outbox.is_watched(key) {
            self.counters.unwatched += 1;
        }
        self.queue.push_back(Queued::Parcel(key));
        true
    }
}
