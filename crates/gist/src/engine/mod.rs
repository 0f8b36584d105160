//! The state machines of GIST (RFC 5971 §4, §6): datagram mode and connection mode, path-coupled and loose-end routing.
//!
//! [`Gist`] is sans-IO: call [`Gist::handle`] with an input, then [`Gist::poll`] until it returns `None`, then
//! [`Gist::next_deadline`]. It reads no clock and opens no socket. Once its tables have grown, it allocates no memory for
//! a message.
//!
//! * `receive` takes a datagram and checks whether it is for this node. `output` sends on a message of an application
//!   that this node does not have; it composes messages and Errors, and limits their rates. Other messages go to the
//!   state machine of their type in `handshake`. Each transition of RFC 5971 §6 is one function, named by its rule.
//! * `applications` has their registrations, sends their messages, and handles their other requests.
//! * `nat` translates between the two MRIs of a flow if a GIST-aware NAT is between this node and a peer.
//! * `routing` is the routing state: the table of all sessions, and the peers and egresses that they share.
//! * `routes` looks routes up, finds the sessions that a route change concerns, and repairs them.
//! * `handover` makes the peers set up their sessions again after a planned restart.
//! * `association` is connection mode: the messaging associations (RFC 5971 §6.4). The driver owns the channels (TCP,
//!   TLS, SCTP); the engine decides what to open, send and close.
//!
//! Without a port for connection mode in its configuration a node has datagram mode only. It parses a Stack-Proposal in a
//! Query and completes the handshake for datagram mode, since §4.4.1 ("in case a messaging association was requested")
//! applies to nodes with connection mode. Messages that need an association (reliable, secure, or too large for a
//! datagram) are refused.

#[macro_use]
mod trace;

mod applications;
mod association;
mod config;
mod counters;
mod handover;
mod handshake;
mod interfaces;
mod io;
mod limits;
mod nat;
mod outbox;
mod output;
mod receive;
mod report;
mod routes;
mod routing;
mod sender;
mod view;

use signalbox_core::index::KeyedHasher;
use signalbox_core::rng::Random;
use signalbox_core::service::Request;
use signalbox_core::wheel;
use signalbox_core::{Changes, SessionChange, Time, invariant};

use applications::Applications;
use association::Associations;
use handover::Inherited;
use handshake::Handshakes;
use interfaces::Interfaces;
use nat::Translations;
use outbox::Outbox;
use output::Rates;
use routes::Routes;
use routing::{Peers, Records};

pub use association::{AssociationConfig, AssociationState, AssociationView};
pub use config::{ANY_INTERFACE, Config, ConfigError, IngressFilter, Installation, OwnAddress};
pub use counters::Counters;
pub use io::{ChannelClosed, ChannelId, Input, Next, Output, PeeringPolicy, Registration, Transport};
pub use routing::PeerChange;
pub use view::{DirectionView, PeerView, Role, RoutingState, SessionView, Validity};

/// One GIST node.
#[derive(Debug)]
pub struct Gist {
    config: Config,
    counters: Counters,
    /// Sessions that appeared and disappeared, while somebody watches.
    changes: Changes<SessionChange>,
    rng: Random,
    /// The time of the last input.
    now: Time,
    applications: Applications,
    interfaces: Interfaces,
    records: Records,
    peers: Peers,
    handshakes: Handshakes,
    routes: Routes,
    rates: Rates,
    associations: Associations,
    nat: Translations,
    inherited: Inherited,
    out: Outbox,
}

impl Gist {
    /// A node without applications and interfaces.
    ///
    /// # Errors
    /// A value of `config` is out of its range.
    pub fn new(mut config: Config, seed: [u8; 32]) -> Result<Self, ConfigError> {
        config.validated()?;
        let mut rng = Random::new(seed);
        if config.identity.is_empty() {
            config.identity = rng.array::<16>().to_vec();
        }
        let hasher = KeyedHasher::new(&mut rng);
        Ok(Self {
            counters: Counters::default(),
            changes: Changes::default(),
            now: Time::ZERO,
            applications: Applications::default(),
            interfaces: Interfaces::default(),
            records: Records::new(config.max_sessions, hasher),
            peers: Peers::new(config.max_peers, KeyedHasher::new(&mut rng)),
            handshakes: Handshakes::new(&config, hasher, &mut rng),
            routes: Routes::new(&config),
            rates: Rates::new(&config, hasher),
            associations: Associations::new(core::mem::take(&mut config.associations), &mut rng),
            nat: Translations::default(),
            inherited: Inherited::default(),
            out: Outbox::default(),
            rng,
            config,
        })
    }

    /// Takes one input at `now`. Drain [`Gist::poll`] afterwards.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        self.now = self.now.max(now);
        self.out.recycle();
        let most = wheel::portion(matches!(input, Input::Timer));
        match input {
            Input::Datagram(ref received) => self.receive(received),
            Input::Timer => self.run_walks(),
            Input::Route { id, result } => self.route_answer(id, result),
            Input::Interfaces(interfaces) => {
                self.interfaces_changed(interfaces);
                self.run_walks();
            }
            Input::RouteChanged(prefix) => {
                self.route_changed(prefix);
                self.run_walks();
            }
            Input::NeighborMoved { ifindex, address } => {
                self.neighbor_moved(ifindex, address);
                self.run_walks();
            }
            Input::TransmitFailed { dst, error } => {
                self.counters.transmit_failed += 1;
                tracing::debug!(%dst, reason = ?error, "datagram not sent");
            }
            // An application sends at the time of the input that it answers, so no timer is due.
            Input::Request(request @ Request::SendMessage(_)) => return self.request(request),
            Input::Request(request) => self.request(request),
            Input::Blocked { nslp, blocked } => self.block(nslp, blocked),
            Input::Handover(entries) => self.inherit(entries),
            Input::AuthorisedPeers(apd) => self.authorised_peers_changed(apd),
            Input::Listening { transport, on } => self.associations.set_listening(transport, on),
            Input::ChannelAccepted { channel, transport, local, peer, identity } => {
                self.channel_accepted(channel, transport, (local, peer), identity);
            }
            Input::ChannelConnected { channel, identity } => self.channel_connected(channel, identity),
            Input::ChannelOctets { channel, octets } => self.channel_octets(channel, octets),
            Input::ChannelDrained { channel, unsent } => self.channel_drained(channel, unsent),
            Input::ChannelClosed { channel, reason, unacknowledged } => {
                self.channel_closed(channel, reason, unacknowledged);
            }
        }
        self.run_timers(most);
    }

    /// The next output, if any. Its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        self.out.poll()
    }

    /// Who takes the next output; `None`: there is no output.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        self.out.next()
    }

    /// When [`Input::Timer`] is due, or an earlier time; `None` while no timer runs.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let sweeping = self.applications.is_walking() || self.routes.is_walking();
        let sweep = (sweeping || self.associations.has_withdrawn()).then_some(self.now);
        [
            self.records.next_deadline(),
            sweep,
            self.routes.next_deadline(),
            self.handshakes.next_deadline(),
            self.peers.deadline(self.now),
            self.associations.next_deadline(),
            self.inherited.deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The list of sessions that appear and disappear, to watch and to take from.
    pub const fn changes(&mut self) -> &mut Changes<SessionChange> {
        &mut self.changes
    }

    /// The list of peers that appear and disappear, to watch and to take from.
    pub const fn peer_changes(&mut self) -> &mut Changes<PeerChange> {
        self.peers.changes()
    }

    /// The list of channels whose association appears, changes its state or disappears, to watch and to take from.
    pub const fn association_changes(&mut self) -> &mut Changes<ChannelId> {
        self.associations.changes()
    }

    /// Counts since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The configuration in force: defaults are filled in, the peer identity among them.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// This node's peer identity.
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        &self.config.identity
    }

    /// Takes the capacity of the slowest link in octets per second; 0: not known. The rate of D-mode messages follows it
    /// (RFC 5971 §5.3.3). GIST-5.3.3-25.
    pub fn slowest_link(&mut self, now: Time, capacity: u64) {
        self.config.slowest_link = capacity;
        self.rates.set_dmode(now, &self.config);
    }

    /// Handles what is due, at most so much of each kind. The rest stays due.
    fn run_timers(&mut self, most: u32) {
        self.run_record_timers(most);
        self.run_association_timers(most);
        self.run_withdrawn(most);
        self.run_sweeps();
        self.run_departures();
        self.run_inherited();
        self.expire_checks(most);
        self.expire_lookups(most);
        self.peers.expire(self.now, most);
    }

    fn run_record_timers(&mut self, most: u32) {
        for _ in 0..most {
            let Some(index) = self.records.pop_due(self.now) else { return };
            if let Some(key) = invariant!(self.records.key_of(index), "a timer ends with its session") {
                self.deadline(key);
            }
        }
    }
}
