//! The RSVP engine, without clock, socket or thread: router and host in one, for IPv4 and IPv6, unicast and multicast.
//!
//! **Drain invariant.** After each [`Rsvp::handle`], call [`Rsvp::poll`] until it returns `None`, then ask
//! [`Rsvp::next_deadline`]. Extra polls do nothing. Time never runs backwards. The driver answers each
//! [`Output::RouteLookup`] by one [`Input::Route`] of the same id and each [`Output::MulticastLookup`] by an
//! [`Input::Multicast`]. It passes the reports of admission control ([`Admission`]) about grants whose owner is
//! [`PROTOCOL`] on as [`Input::Lost`] and [`Input::Reduced`].
//!
//! A packet goes through `receive` to the room of its message type. State is in three records: a session, a sender (path state, a PSB of
//! RFC 2209), and a branch (a reservation at one outgoing interface with the requests of its next hops, a TCSB with its RSBs). A room is a
//! folder with a struct whose fields only its own files see. Functions that need several rooms are methods of [`Rsvp`]; they stand in the
//! room whose rule they carry out.
//!
//! * `session`: sessions. `path`: path state. `reservation`: reservations and their grants. `merging`: what goes upstream for them.
//! * `output`: messages that leave. `message_ids`: state with MESSAGE_IDs (RFC 2961); `neighbor` is the layer below.
//! * `routes`: the ways of data. `local`: applications of this node. `diagnostic`: diagnostic messages (RFC 2745).
//! * `shared`: values that records share. `carried`: POLICY_DATA and unknown objects.
//! * `timers` does what is due. `ahead` reads records of many sessions before they are used. `packet` is a packet of IP protocol 46.
//! * `admission` is what the engine asks admission control.
//! * `handover` brings path state back after a planned restart.

mod admission;
mod ahead;
mod carried;
mod config;
mod counters;
mod diagnostic;
mod handover;
mod interfaces;
mod io;
mod keyring;
mod limits;
mod local;
mod merging;
mod message_ids;
pub mod neighbor;
mod outbox;
mod output;
mod packet;
mod path;
mod receive;
mod reservation;
mod routes;
mod session;
mod shared;
mod timers;
mod view;

use signalbox_core::handover::Entries;
use signalbox_core::index::KeyedHasher;
use signalbox_core::intern::Interner;
use signalbox_core::{Changes, IfIndex, Key, Random, ReserverId, SessionChange, Time, wheel};
use signalbox_resources::End;

pub use admission::{Admission, Granted};
pub use config::{Config, ConfigError, InterfaceConfig, Staged};
pub use counters::Counters;
pub use io::{Command, FlowRequest, Input, Output, Refused, ReserveRequest, RsvpEvent, SenderRequest};
pub use keyring::{Key as IntegrityKey, Secret};
pub use packet::{IpReceived, IpTransmit};
pub use view::{
    BlockadeView, InterfaceView, RequestView, ReservationView, SenderView, SessionView, UpstreamView,
};

use diagnostic::Diagnostics;
use interfaces::Interfaces;
use local::Clients;
use merging::Merging;
use message_ids::MessageIds;
use neighbor::Neighbors;
use outbox::Outbox;
use output::{Hashers, Sending};
use path::Senders;
use reservation::Branches;
use routes::Routes;
use session::{APPLICATIONS, Sessions};
use shared::{Hops, Packed, Shared};

/// The owner of this protocol's grants.
pub const PROTOCOL: ReserverId = ReserverId::RSVP;

/// Hops, IPv6 addresses and ADSPECs that records share, at most. It is no limit that a peer reaches: sessions, senders and
/// reservations refer to them, and the fair shares are those of these tables. A lower limit would refuse what has a share.
const SHARED: u32 = APPLICATIONS - 1;

/// One RSVP node.
#[derive(Debug)]
pub struct Rsvp {
    config: Config,
    counters: Counters,
    /// The time of the input that is handled.
    now: Time,
    interfaces: Interfaces,
    addresses: Packed,
    hops: Hops,
    /// Whole ADSPEC objects, shared.
    adspecs: Interner<Box<[u8]>>,
    shared: Shared,
    sessions: Sessions,
    senders: Senders,
    branches: Branches,
    merging: Merging,
    output: Sending,
    message_ids: MessageIds,
    neighbors: Neighbors,
    routes: Routes,
    clients: Clients,
    diagnostics: Diagnostics,
    /// Paths of the node before this one that are not handled yet.
    inherited: Entries,
    out: Outbox,
}

impl Rsvp {
    /// A node without sessions and interfaces; all its random numbers come from `seed`.
    ///
    /// # Errors
    /// The first setting that is not allowed.
    pub fn new(config: Config, seed: [u8; 32]) -> Result<Self, ConfigError> {
        config.validated()?;
        let mut rng = Random::new(seed);
        let interfaces = Interfaces::new(KeyedHasher::new(&mut rng));
        let records = KeyedHasher::new(&mut rng);
        let addresses = Packed::new(SHARED, KeyedHasher::new(&mut rng));
        let hops = Hops::new(SHARED, KeyedHasher::new(&mut rng));
        let adspecs = Interner::new(SHARED, KeyedHasher::new(&mut rng));
        let sessions = Sessions::new(config.max_sessions, records, || KeyedHasher::new(&mut rng));
        let sending = Hashers {
            errors: KeyedHasher::new(&mut rng),
            answers: KeyedHasher::new(&mut rng),
            closing: KeyedHasher::new(&mut rng),
        };
        let diagnostics = Diagnostics::new(&config, KeyedHasher::new(&mut rng));
        let neighbors = Neighbors::new(config.neighbors.clone(), rng.fork());
        let sent = config.max_senders.saturating_add(config.max_reservations);
        let message_ids = MessageIds::new(sent, || KeyedHasher::new(&mut rng));
        Ok(Self {
            counters: Counters::default(),
            now: Time::ZERO,
            interfaces,
            addresses,
            hops,
            adspecs,
            shared: Shared::default(),
            sessions,
            senders: Senders::new(config.max_senders, records),
            branches: Branches::new(config.max_reservations),
            merging: Merging::default(),
            output: Sending::new(&config, sending, rng),
            message_ids,
            neighbors,
            routes: Routes::default(),
            clients: Clients::default(),
            diagnostics,
            inherited: Entries::default(),
            out: Outbox::default(),
            config,
        })
    }

    /// Takes one input at `now`, which never runs backwards. Drain [`Rsvp::poll`] afterwards.
    pub fn handle(&mut self, now: Time, input: Input<'_>, resources: &mut dyn Admission) {
        self.now = self.now.max(now);
        self.neighbors.advance(self.now);
        self.branches.forget_told();
        self.out.recycle();
        self.advertise_in_time(resources);
        let most = wheel::portion(matches!(input, Input::Timer));
        match input {
            Input::Packet(packet) => self.receive(&packet, resources),
            // Not with each input: the answers to the lookups of one part are inputs too, and would bring the next part into the
            // same turn of the driver.
            Input::Timer => {
                self.run_inherited(resources);
                self.run_route_checks();
            }
            Input::Interfaces(list) => {
                self.on_interfaces(list);
                self.advertise(resources);
                self.run_route_checks();
            }
            Input::Route { id, result } => self.on_route(id, result, resources),
            Input::RouteChanged(prefix) => {
                self.on_route_changed(prefix);
                self.run_route_checks();
            }
            Input::NeighborMoved { ifindex, address } => self.on_neighbor_moved(ifindex, address),
            Input::Multicast { group, source, iif, oifs } => {
                self.on_multicast(group, source, iif, oifs);
            }
            Input::Command { id, command } => {
                resources.because(End::User);
                self.on_command(id, command, resources);
            }
            Input::Lost { key, grant, why } => self.on_lost(Key::from_u64(key), grant, why, resources),
            Input::Reduced { key, grant, rate } => self.on_reduced(Key::from_u64(key), grant, rate),
            Input::Handover(entries) => {
                self.inherit(entries);
                self.run_inherited(resources);
            }
            Input::Refresh { ifindex, period } => {
                self.interfaces.set_period(ifindex, period);
            }
        }
        while let Some(id) = self.clients.next_to_renew() {
            self.apply_reserve(id, resources);
        }
        self.follow_trees(resources);
        self.neighbors.tick(most);
        self.run_timers(most, resources);
        self.serve_neighbors();
        self.send_to_lost();
        while let Some(id) = self.clients.next_to_renew() {
            self.apply_reserve(id, resources);
        }
        self.run_policing_checks(resources);
    }

    /// The next output, if any; its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        if self.out.is_empty() { self.neighbors.poll().map(Output::Send) } else { self.out.poll() }
    }

    /// Whether [`Rsvp::poll`] has an output.
    pub fn has_output(&mut self) -> bool {
        !self.out.is_empty() || self.neighbors.has_output()
    }

    /// Time when [`Input::Timer`] is due; `None`: nothing waits. It may be earlier than necessary.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let walk = (!self.routes.is_idle()).then_some(self.now);
        let neighbors = self.neighbors.next_deadline();
        let lost = self.next_to_lost();
        let inherited = self.next_inherited();
        [
            lost,
            inherited,
            self.senders.next_deadline(),
            self.branches.next_deadline(),
            self.output.next_deadline(),
            neighbors,
            walk,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The logical interface handle of this node's RSVP_HOPs at an interface (RFC 2205 §3.3); `None`: the interface is
    /// unknown.
    #[must_use]
    pub fn handle_of(&self, ifindex: IfIndex) -> Option<u32> {
        self.interfaces.get(self.interfaces.iface(ifindex)).map(|known| known.handle)
    }

    /// Number of sessions.
    #[must_use]
    pub const fn sessions(&self) -> u32 {
        self.sessions.len()
    }

    /// Number of senders in all sessions.
    #[must_use]
    pub const fn senders(&self) -> u32 {
        self.senders.len()
    }

    /// Number of reservations in all sessions, at all interfaces and for applications of this node.
    #[must_use]
    pub const fn reservations(&self) -> u32 {
        self.branches.len()
    }

    /// Whether all tables are empty: shared neighbors, addresses, ADSPECs, MESSAGE_IDs, tears, indexes. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn holds_nothing(&self) -> bool {
        self.hops.is_empty()
            && self.adspecs.is_empty()
            && self.addresses.is_empty()
            && self.sessions.holds_nothing()
            && self.senders.holds_nothing()
            && self.routes.is_empty()
            && self.message_ids.is_empty()
            && self.output.is_empty()
            && self.merging.is_empty()
            && self.clients.is_empty()
    }

    /// The list of sessions that appear and disappear, to watch and to take from.
    pub const fn changes(&mut self) -> &mut Changes<SessionChange> {
        self.sessions.changes()
    }

    /// Counters since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The neighbor layer: refresh reduction, integrity and Hello with their settings, keys and counters.
    #[must_use]
    pub const fn neighbors(&self) -> &Neighbors {
        &self.neighbors
    }

    /// The wall clock was corrected: microseconds since 1970 at [`Time::ZERO`]. The lifetimes of keys follow it.
    pub fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.config.wall_clock_us = wall_clock_us;
        self.neighbors.set_wall_clock(wall_clock_us);
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }
}
