//! The RSVP engine, without clock, socket or thread: router and host in one, for IPv4 and IPv6, unicast and multicast.
//!
//! **Drain invariant.** After each [`Rsvp::handle`], call [`Rsvp::poll`] until it returns `None`, then ask
//! [`Rsvp::next_deadline`]. Extra polls do nothing. Time never runs backwards. The driver answers each
//! [`Output::RouteLookup`] by one [`Input::Route`] of the same id and each [`Output::MulticastLookup`] by an
//! [`Input::Multicast`]. It passes the reports of [`Resources`] about grants whose owner is [`PROTOCOL`] on as
//! [`Input::Lost`] and [`Input::Reduced`].
//!
//! * A packet goes through `receive` to the file of its message type: `path`, `resv`, `resv_err`, `resv_tear`.
//!   `path_out` and `resv_out` compose the messages that leave; all of them go through `Rsvp::transmit_state`.
//! * State is in three records. `session` is a session. `sender` is path state (a PSB of RFC 2209). `branch` is a
//!   reservation at one outgoing interface with the requests of its next hops (a TCSB with its RSBs). `table` finds and
//!   connects the records, `destinations` finds the sessions that a change of routes concerns.
//! * `difference` decides what a Path changes in path state that stands.
//! * `holders` divides the tables among sources and interfaces.
//! * `merge` compares and merges flowspecs. `forward` computes what goes upstream and sends the differences after a
//!   change.
//! * `unexpected` holds path state of a group from interfaces that multicast routing does not expect. `local_only`
//!   chooses the interface by which an application receives a group.
//! * `protection` holds a second reservation ready along the backup route of a sender that asks for it.
//! * `announced` has routing judge the senders of Paths in Bundles.
//! * `errors` limits the errors that are passed on.
//! * `carried` keeps POLICY_DATA and unknown objects, `policy` reads policy elements, `reduce` handles grants that were
//!   reduced.
//! * `traffic` asks admission control and handles grants that were lost, `police` computes where traffic is policed.
//! * `route` looks up routes, `trees` keeps those of groups, `timers` does what is due, `local` is the interface to applications.
//! * `diagnostic` passes on diagnostic requests and replies, `finding` is the answer of this node (RFC 2745).
//! * `ahead` reads records of many sessions before they are used.
//! * `packet` is a packet of IP protocol 46.
//! * `handover` brings path state back after a planned restart.
//! * `moved` sends Paths whole to next hops that another router takes over.
//! * `message_ids` connects state that was sent with its MESSAGE_IDs (RFC 2961), `received` that of neighbours; `neighbour` is
//!   the layer below.

mod ahead;
mod announced;
mod branch;
mod carried;
mod closing;
mod config;
mod counters;
mod destinations;
mod diagnostic;
mod difference;
mod errors;
mod finding;
mod forward;
mod granting;
mod handover;
mod holders;
mod interfaces;
mod io;
mod keyring;
mod limits;
mod local;
mod local_only;
mod logged;
mod merge;
mod message_ids;
mod moved;
pub mod neighbour;
mod outbox;
mod overdue;
mod packed;
mod packet;
mod path;
mod path_out;
mod police;
mod policy;
mod protection;
mod receive;
mod received;
mod recent;
mod reduce;
mod resv;
mod resv_context;
mod resv_err;
mod resv_out;
mod resv_tear;
mod route;
mod sender;
mod session;
mod shared;
mod slow;
mod staged;
mod table;
mod timers;
mod traffic;
mod trees;
mod unexpected;
mod unnamed;
mod view;
mod withheld;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::bucket::TokenBucket;
use signalbox_core::handover::Entries;
use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::intern::Interner;
use signalbox_core::shares::RateShares;
use signalbox_core::slab::Slab;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::wheel::{self, Wheel};
use signalbox_core::{Changes, IfIndex, Key, Random, ReserverId, SessionChange, Time};
use signalbox_resources::{End, Resources};

pub use config::{Config, ConfigError, InterfaceConfig, Staged};
pub use counters::Counters;
pub use io::{Command, FlowRequest, Input, Output, Refused, ReserveRequest, RsvpEvent, SenderRequest};
pub use keyring::{Key as IntegrityKey, Secret};
pub use packet::{IpReceived, IpTransmit};
pub use view::{
    BlockadeView, InterfaceView, RequestView, ReservationView, SenderView, SessionView, UpstreamView,
};

use crate::wire::{FlowSpec, RsvpHop, UserError};
use announced::Announced;
use branch::Branch;
use closing::ClosingStates;
use destinations::Destinations;
use errors::PassedErrors;
use forward::SenderChange;
use holders::Holders;
use interfaces::Interfaces;
use local::Application;
use message_ids::MessageIds;
use moved::MovedHops;
use neighbour::Neighbours;
use outbox::Outbox;
use packed::Packed;
use path_out::Advertised;
use police::PolicingCheck;
use recent::Recent;
use route::RouteChecks;
use sender::Sender;
use session::{APPLICATIONS, Session};
use shared::Shared;
use trees::Trees;
use unnamed::Unnamed;
use withheld::Withheld;

/// The owner of this protocol's grants.
pub const PROTOCOL: ReserverId = ReserverId::RSVP;

/// The services of the interfaces are asked for again after this time.
const ADVERTISE: Duration = Duration::from_secs(1);

/// Hops, IPv6 addresses and ADSPECs that records share, at most. It is no limit that a peer reaches: sessions, senders and
/// reservations refer to them, and the fair shares are those of these tables. A lower limit would refuse what has a share.
const SHARED: u32 = APPLICATIONS - 1;

/// PathErrs in a second, by each interface, that answer Paths whose previous hop has proved nothing.
const ANSWERS: u32 = 1000;

/// Allocations that are used again. They hold no facts: the user of one clears it first and puts it back afterwards.
#[derive(Debug, Default)]
struct Buffers {
    /// Entries of a [`forward::UpstreamChange`].
    changes: Vec<SenderChange>,
    /// Senders of one previous hop with the flowspec of each, for a Resv.
    flows: Vec<(Key, FlowSpec)>,
    /// An ADSPEC that is being composed.
    adspec: Vec<u8>,
    /// The flows of a request to admission control.
    filters: Vec<FlowFilter>,
    /// A message that is being composed.
    message: Vec<u8>,
    /// Lists of a [`resv_context::Accepted`]: reservations and senders.
    accepted: [Vec<Key>; 2],
}

/// One RSVP node.
#[derive(Debug)]
pub struct Rsvp {
    config: Config,
    counters: Counters,
    /// Sessions that appeared and disappeared, while somebody watches.
    changes: Changes<SessionChange>,
    rng: Random,
    /// What this node adds to the errors of this input.
    told: Vec<UserError>,
    /// The time of the input that is handled.
    now: Time,
    interfaces: Interfaces,
    /// Services of each interface, by its number, and the time until which they hold.
    advertised: Vec<Option<Advertised>>,
    advertised_until: Time,
    /// Keyed, because peers choose what is hashed.
    hasher: KeyedHasher,
    addresses: Packed,
    /// The next hops of routes, by the marks that senders keep of them.
    gateways: BTreeMap<u32, IpAddr>,
    hops: Interner<RsvpHop>,
    /// Next hops and previous hops that were found last. Their handles distinguish them.
    recent_hops: [Recent; 2],
    /// Whole ADSPEC objects, shared.
    adspecs: Interner<Box<[u8]>>,
    shared: Shared,
    sessions: Slab<Session>,
    by_session: Index,
    /// Number of sessions without a port.
    portless: u32,
    destinations: Destinations,
    senders: Slab<Sender>,
    /// Index of all senders but the first of each session.
    by_sender: Index,
    sender_wheel: Wheel,
    holders: Holders,
    branches: Slab<Branch>,
    branch_wheel: Wheel,
    applications: BTreeMap<u64, Application>,
    /// Applications whose reservation has to be made again.
    pending: Vec<u64>,
    route_checks: RouteChecks,
    moved: MovedHops,
    trees: Trees,
    buffers: Buffers,
    /// Reservations that have to be compared with each other again, for policing.
    policing_checks: Vec<PolicingCheck>,
    neighbours: Neighbours,
    /// Limits of the errors that are passed on, for each state.
    errors: PassedErrors,
    /// Limits of the errors that answer Paths, for each interface.
    answers: RateShares,
    /// Paths of Bundles that wait for the routes to their senders.
    announced: Announced,
    /// Limit of the diagnostic messages that are handled in a second.
    diagnoses: TokenBucket,
    /// Limit of the staged refreshes in a second.
    staged_limit: TokenBucket,
    /// The last time at which staged refreshes of a state began.
    last_trigger: Option<Time>,
    /// Tears that are sent again.
    closing: ClosingStates,
    /// Limits of the replies to diagnostic messages, for each address to which they go.
    replies: RateShares,
    message_ids: MessageIds,
    withheld: Withheld,
    unnamed: Unnamed,
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
        Ok(Self {
            counters: Counters::default(),
            changes: Changes::default(),
            told: Vec::new(),
            now: Time::ZERO,
            interfaces: Interfaces::new(KeyedHasher::new(&mut rng)),
            advertised: Vec::new(),
            advertised_until: Time::ZERO,
            hasher: KeyedHasher::new(&mut rng),
            addresses: Packed::new(SHARED, KeyedHasher::new(&mut rng)),
            gateways: BTreeMap::new(),
            hops: Interner::new(SHARED, KeyedHasher::new(&mut rng)),
            recent_hops: [Recent::new(), Recent::new()],
            adspecs: Interner::new(SHARED, KeyedHasher::new(&mut rng)),
            shared: Shared::default(),
            sessions: Slab::new(config.max_sessions),
            by_session: Index::new(),
            portless: 0,
            destinations: Destinations::default(),
            senders: Slab::new(config.max_senders),
            by_sender: Index::new(),
            sender_wheel: Wheel::default(),
            holders: Holders::new(|| KeyedHasher::new(&mut rng)),
            branches: Slab::new(config.max_reservations),
            branch_wheel: Wheel::default(),
            applications: BTreeMap::new(),
            pending: Vec::new(),
            route_checks: RouteChecks::default(),
            moved: MovedHops::default(),
            trees: Trees::default(),
            buffers: Buffers::default(),
            policing_checks: Vec::new(),
            errors: PassedErrors::new(KeyedHasher::new(&mut rng), config.interface.refresh),
            announced: Announced::default(),
            answers: RateShares::new(ANSWERS, KeyedHasher::new(&mut rng)),
            diagnoses: TokenBucket::new(config.diagnostics, config.diagnostics),
            staged_limit: TokenBucket::new(config.staged_rate, config.staged_rate),
            last_trigger: None,
            closing: ClosingStates::new(KeyedHasher::new(&mut rng)),
            replies: RateShares::new(diagnostic::replies_each(&config), KeyedHasher::new(&mut rng)),
            neighbours: Neighbours::new(config.neighbours.clone(), rng.fork()),
            message_ids: MessageIds::new(config.max_senders.saturating_add(config.max_reservations), || {
                KeyedHasher::new(&mut rng)
            }),
            withheld: Withheld::default(),
            unnamed: Unnamed::default(),
            inherited: Entries::default(),
            out: Outbox::default(),
            rng,
            config,
        })
    }

    /// Takes one input at `now`, which never runs backwards. Drain [`Rsvp::poll`] afterwards.
    pub fn handle(&mut self, now: Time, input: Input<'_>, resources: &mut Resources) {
        self.now = self.now.max(now);
        self.neighbours.advance(self.now);
        self.told.clear();
        self.out.recycle();
        if self.now >= self.advertised_until {
            self.advertise(resources);
            self.advertised_until = self.now + ADVERTISE;
        }
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
            Input::NeighbourMoved { ifindex, address } => self.on_neighbour_moved(ifindex, address),
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
        while let Some(id) = self.pending.pop() {
            self.apply_reserve(id, resources);
        }
        self.follow_trees(resources);
        self.neighbours.tick(most);
        self.run_timers(most, resources);
        self.serve_neighbours();
        self.send_to_lost();
        while let Some(id) = self.pending.pop() {
            self.apply_reserve(id, resources);
        }
        self.run_policing_checks(resources);
    }

    /// The next output, if any; its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        if self.out.is_empty() { self.neighbours.poll().map(Output::Send) } else { self.out.poll() }
    }

    /// Whether [`Rsvp::poll`] has an output.
    pub fn has_output(&mut self) -> bool {
        !self.out.is_empty() || self.neighbours.has_output()
    }

    /// Time when [`Input::Timer`] is due; `None`: nothing waits. It may be earlier than necessary.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let walk = !self.route_checks.is_idle() || !self.trees.is_idle();
        let walk = walk.then_some(self.now);
        let neighbours = self.neighbours.next_deadline();
        let lost = self.next_to_lost();
        let inherited = self.next_inherited();
        [
            lost,
            inherited,
            self.sender_wheel.next_deadline(),
            self.branch_wheel.next_deadline(),
            self.closing.next_deadline(),
            neighbours,
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

    /// Whether all tables are empty: shared neighbours, addresses, ADSPECs, MESSAGE_IDs, tears, indexes. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn holds_nothing(&self) -> bool {
        self.hops.is_empty()
            && self.adspecs.is_empty()
            && self.addresses.is_empty()
            && self.by_session.is_empty()
            && self.trees.is_empty()
            && self.holders.is_empty()
            && self.by_sender.is_empty()
            && self.message_ids.is_empty()
            && self.closing.is_empty()
            && self.withheld.is_empty()
            && self.applications.is_empty()
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

    /// The neighbour layer: refresh reduction, integrity and Hello with their settings, keys and counters.
    #[must_use]
    pub const fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// The wall clock was corrected: microseconds since 1970 at [`Time::ZERO`]. The lifetimes of keys follow it.
    pub fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.config.wall_clock_us = wall_clock_us;
        self.neighbours.set_wall_clock(wall_clock_us);
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }
}
