//! The Boomerang engine, without clock, socket or thread: initiating node, node on the path and far-end node in one, for
//! IPv4 and IPv6.
//!
//! **Drain invariant.** After each [`Boomerang::handle`], call [`Boomerang::poll`] until it returns `None`, then ask
//! [`Boomerang::next_deadline`]. Time never runs backwards. The driver answers each [`Output::RouteLookup`] by one
//! [`Input::Route`] of the same id. It passes the reports of [`Resources`] about lost grants whose owner is [`PROTOCOL`] on
//! as [`Input::Lost`].
//!
//! * `receive` decides what happens to a packet. `path` is the procedure of a node on the path. `initiator` is the state
//!   machine of the sessions that this node opened, `compose` writes their requests.
//! * State is in two records: `flow` is a reservation of this node on the path, `session` a session of this node.
//! * `routes` finds the interface by which a message leaves, `groups` those of a request to a multicast group. `neighbors` follows a
//!   gateway whose place another router has. `proof` is the proof that replies are received, `guesses` counts wrong ones.

mod adopt;
mod answer;
mod compose;
mod config;
mod counters;
mod domain;
mod errors;
mod flow;
mod groups;
mod guesses;
mod initiator;
mod interfaces;
mod io;
mod limits;
mod lost;
mod neighbors;
mod outbox;
mod path;
mod proof;
mod propose;
mod receive;
mod request;
mod reserve;
mod routes;
mod service;
mod session;
mod view;

use std::collections::{BTreeMap, HashMap};

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::node::{NoRoute, Route};
use signalbox_core::shares::{RateShares, Shares};
use signalbox_core::slab::Slab;
use signalbox_core::wheel::{self, Wheel};
use signalbox_core::{Changes, Entry, Key, Match, Random, ReserverId, SessionChange, Time, TokenBucket};
use signalbox_resources::Resources;

pub use config::{Aggregation, Config, ConfigError};
pub use counters::Counters;
pub use domain::{DomainKey, Integrity};
pub use guesses::GuessView;
pub use io::{
    BoomerangEvent, Command, Input, Output, Reason, Refusal, Rejected, Request, ServiceParameters,
    Unreachable,
};
pub use session::State as SessionState;
pub use view::{AggregateView, FlowView, SessionView};

use crate::wire::{MAGIC, Message, MessageType, VERSION};
use adopt::Aggregates;
use domain::Domain;
use flow::{Flow, FlowKey};
use groups::Groups;
use guesses::Guesses;
use interfaces::{Iface, Interfaces};
use neighbors::MovedNeighbors;
use outbox::Outbox;
use proof::Proofs;
use propose::Proposals;
use routes::{Routes, Waiting};
use session::{ByTransaction, Session};

/// The owner of this protocol's grants.
pub const PROTOCOL: ReserverId = ReserverId::BOOMERANG;
/// The port of entry of this protocol.
pub const ENTRY: Entry = Entry::IcmpEcho(MAGIC);
/// What passing messages of [`ENTRY`] must have to be interpreted here: the type and the version of the message.
pub const INTERPRETED: [Match; 2] = [
    Match { offset: 16, mask: 0xff00_0000, value: (MessageType::RESERVATION.0 as u32) << 24 },
    Match { offset: 20, mask: 0x00ff_0000, value: (VERSION as u32) << 16 },
];

/// One Boomerang node.
#[derive(Debug)]
pub struct Boomerang {
    config: Config,
    counters: Counters,
    /// Sessions that appeared and disappeared, while somebody watches.
    changes: Changes<SessionChange>,
    rng: Random,
    /// The time of the input that is handled.
    now: Time,
    interfaces: Interfaces,
    routes: Routes,
    moved_neighbors: MovedNeighbors,
    groups: Groups,
    /// Keyed, because peers choose what is hashed.
    hasher: KeyedHasher,
    flows: Slab<Flow>,
    /// How many of them were lost.
    lost_flows: u32,
    by_flow: Index,
    wheel: Wheel,
    /// Reservations by the side of their initiating node, and by the interface of their first message.
    by_source: Shares<core::net::IpAddr>,
    by_interface: Shares<Iface>,
    /// Messages of each initiating node in a second.
    rates: RateShares,
    /// ICMP errors to each source in a second, and to all.
    errors: RateShares,
    all_errors: TokenBucket,
    proofs: Proofs,
    guesses: Guesses,
    proposals: Proposals,
    aggregates: Aggregates,
    domain: Domain,
    sessions: Slab<Session>,
    by_id: BTreeMap<u64, Key>,
    /// The sessions that reserve, by their flow: on the path the flow alone is the name of a reservation.
    by_data: BTreeMap<FlowKey, Key>,
    by_transaction: ByTransaction,
    wheel_of_sessions: Wheel,
    /// Identifier of all ICMP messages of this node, and the sequence number of the last one.
    identifier: u16,
    sequence: u16,
    next_transaction: u32,
    /// A message that is being composed or changed.
    buffer: Vec<u8>,
    out: Outbox,
}

impl Boomerang {
    /// A node without reservations and interfaces; all its random numbers come from `seed`. BOOM-G34-01.
    ///
    /// # Errors
    /// The first setting that is not allowed.
    pub fn new(config: Config, seed: [u8; 32]) -> Result<Self, ConfigError> {
        config.validated()?;
        let mut rng = Random::new(seed);
        let [i1, i0, s1, s0] = rng.array();
        Ok(Self {
            counters: Counters::default(),
            changes: Changes::default(),
            now: Time::ZERO,
            interfaces: Interfaces::default(),
            routes: Routes::new(KeyedHasher::new(&mut rng), config.max_waiting),
            moved_neighbors: MovedNeighbors::default(),
            groups: Groups::new(config.max_waiting, KeyedHasher::new(&mut rng)),
            hasher: KeyedHasher::new(&mut rng),
            flows: Slab::new(config.max_flows),
            lost_flows: 0,
            by_flow: Index::new(),
            wheel: Wheel::default(),
            by_source: Shares::new(config.max_flows, KeyedHasher::new(&mut rng)),
            by_interface: Shares::new(config.max_flows, KeyedHasher::new(&mut rng)),
            rates: RateShares::new(config.rate, KeyedHasher::new(&mut rng)),
            errors: RateShares::new(errors::RATE, KeyedHasher::new(&mut rng)),
            all_errors: TokenBucket::new(errors::TOTAL_RATE, errors::TOTAL_RATE / 4),
            proofs: Proofs::new(&mut rng),
            guesses: Guesses::new(&mut rng),
            proposals: Proposals::new(KeyedHasher::new(&mut rng)),
            aggregates: Aggregates::new(config.aggregates.max, config.max_flows, &mut rng),
            domain: Domain::new(&config.integrity, config.wall_clock_us),
            sessions: Slab::new(config.max_sessions),
            by_id: BTreeMap::new(),
            by_data: BTreeMap::new(),
            by_transaction: HashMap::with_hasher(KeyedHasher::new(&mut rng)),
            wheel_of_sessions: Wheel::default(),
            identifier: u16::from_be_bytes([i1, i0]),
            sequence: u16::from_be_bytes([s1, s0]),
            next_transaction: rng.u32(),
            buffer: Vec::new(),
            out: Outbox::default(),
            rng,
            config,
        })
    }

    /// Takes one input at `now`, which never runs backwards. Drain [`Boomerang::poll`] afterwards.
    pub fn handle(&mut self, now: Time, input: Input<'_>, resources: &mut Resources) {
        self.now = self.now.max(now);
        self.out.recycle();
        // State that is over is not refreshed by a message that arrives at the same time.
        let most = wheel::portion(matches!(input, Input::Timer));
        self.run_flows(most, resources);
        self.run_aggregates(most, resources);
        self.run_groups();
        match input {
            Input::Timer => {}
            Input::Packet(packet) => self.receive(&packet, resources),
            Input::Interfaces(list) => {
                self.interfaces.set(list, &self.config);
                self.routes.changed();
            }
            Input::Route { id, result } => self.on_route(id, result, resources),
            Input::RouteChanged(_) => self.routes.changed(),
            Input::NeighborMoved { ifindex, address } => self.on_neighbor_moved(ifindex, address),
            Input::Multicast { group, source, iif, oifs } => {
                self.on_multicast((group, source), iif, oifs, resources);
            }
            Input::NotSent(dst) => self.on_not_sent(dst),
            Input::Command { id, command } => self.on_command(id, command, resources),
            Input::Lost { key, grant, why } => self.on_lost(Key::from_u64(key), grant, why, resources),
        }
        self.run_moved_neighbors();
        self.run_sessions(most, resources);
    }

    fn on_route(&mut self, id: u64, result: Result<Route, NoRoute>, resources: &mut Resources) {
        // The driver may answer a lookup twice.
        let Some(dst) = self.routes.answered(id) else { return };
        // The address of an interface that is down still belongs to this node.
        let is_local = result.is_ok_and(|route| route.local);
        let oif = result.ok().and_then(|route| self.interfaces.iface(route.ifindex));
        if let (Some(oif), Ok(route), false) = (oif, result, is_local) {
            self.routes.store(dst, oif, &route);
        }
        for waiting in self.routes.take(dst) {
            match (waiting, oif) {
                (Waiting::Session(key), oif) => self.routed(key, oif, resources),
                (Waiting::Packet(packet), None) => {
                    self.counters.no_route += 1;
                    tracing::debug!(peer = %packet.src, dst = %packet.dst, reason = "no route", "message dropped");
                    if let Some(dropped) = errors::of_route(result).filter(|_| !packet.local) {
                        self.report_dropped(&packet.as_received(), dropped);
                    }
                }
                (Waiting::Packet(packet), Some(oif)) => {
                    let received = packet.as_received();
                    let Ok(message) = Message::parse(received.payload, received.dst.is_ipv6()) else {
                        continue;
                    };
                    if is_local && !packet.local {
                        self.arrived(&received, &message, resources);
                    } else {
                        self.go_on(&received, &message, packet.local, oif, resources);
                    }
                }
            }
        }
    }

    /// The wall clock was corrected: microseconds since 1970 at [`Time::ZERO`].
    pub const fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.domain.wall_clock_us = wall_clock_us;
    }

    /// Takes other keys of the domain and what is done with them. Reservations that were signed obey signed messages only, as
    /// before.
    ///
    /// # Errors
    /// The first setting that is not allowed. All are as before.
    pub fn set_integrity(&mut self, integrity: Integrity) -> Result<(), ConfigError> {
        integrity.validated()?;
        self.domain.set(&integrity);
        self.config.integrity = integrity;
        Ok(())
    }

    /// The next output, if any; its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        self.out.poll()
    }

    /// Whether [`Boomerang::poll`] has an output.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Time when [`Input::Timer`] is due; `None`: nothing waits. It may be earlier than necessary.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let wheels = [&self.wheel, &self.aggregates.wheel, &self.wheel_of_sessions];
        let walks = (!self.moved_neighbors.is_empty()).then_some(self.now);
        wheels.into_iter().filter_map(Wheel::next_deadline).chain(self.groups.sweep).chain(walks).min()
    }

    /// The list of sessions that appear and disappear, to watch and to take from.
    pub const fn changes(&mut self) -> &mut Changes<SessionChange> {
        &mut self.changes
    }

    /// Counters since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }
}
