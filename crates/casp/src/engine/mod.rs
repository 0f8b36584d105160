//! The messaging layer of CASP, without clock, socket or thread: initiator, forwarder and responder in one, for IPv4 and
//! IPv6.
//!
//! **Drain invariant.** After each [`Casp::handle`], call [`Casp::poll`] until it returns `None`, then ask
//! [`Casp::next_deadline`]. Time never runs backwards. The driver answers each [`Output::RouteLookup`] by one
//! [`Input::Route`] of the same id, each [`Output::Discover`] by one [`Input::Discovered`], and each [`Output::Open`] by
//! [`Input::Connected`] or [`Input::Closed`].
//!
//! **Clients** are outside of the engine. [`Output::Indication`] and [`Input::Request`] are the contract with them, and
//! [`Config::clients`] the list of those that this node has. A message for a client waits for the client's verdict.
//!
//! * `receive` is the procedure for a received message, `deliver` sends messages on. `request` is what clients ask for, `held`
//!   the messages that wait for their verdicts.
//! * State is in `session` (one session with one flow) with its hops (`branch`); `timers` refreshes and ends it, `teardown`
//!   removes it, `route` repairs it, `egress` has the gateways of its data, `translate` changes the flow that its next hops see.
//! * `stateless` delivers messages without state of a session, `pending` has those that wait for a next hop.
//! * `peers` has the nodes and the connections with them, `connect` what happens to connections.
//! * `search` has the discoveries that go on, `discovery` their mechanisms and scout, `cookies` the proof that scout gives.

#[macro_use]
mod trace;

mod branch;
mod config;
mod connect;
mod cookies;
mod counters;
mod deliver;
mod discovery;
mod egress;
mod held;
mod interfaces;
mod io;
mod limits;
mod next_hop;
mod outbox;
mod peers;
mod pending;
mod receive;
mod refused;
mod request;
mod route;
mod search;
mod session;
mod stateless;
mod teardown;
mod timers;
mod translate;
mod view;

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::entry::{AlertRule, Intercept, Match};
use signalbox_core::index::KeyedHasher;
use signalbox_core::metrics::Subsystem;
use signalbox_core::shares::{RateShares, Shares};
use signalbox_core::wheel::{self, Wheel};
use signalbox_core::{
    Changes, Entry, EntryRequest, IfIndex, Key, Random, SessionChange, SharedRate, Slab, Time, Unproved,
};

pub use config::{Config, ConfigError, Mechanism};
pub use counters::Counters;
pub use io::{
    Arrival, ArrivalOf, Indication, IndicationOf, Input, Next, Output, OwnedArrival, OwnedIndication,
    OwnedRequest, Request, RequestOf, SendRequest, SendRequestOf, Transport, Verdict, VerdictOf,
};
pub use refused::Refused;
pub use view::{BranchView, ConnectionView, PeerView, SessionView};

use cookies::Cookies;
use discovery::Ready;
use egress::Egresses;
use held::Held;
use interfaces::Interfaces;
use outbox::Outbox;
use peers::Peers;
use pending::Pending;
use route::Sweep;
use search::Searches;
use session::Sessions;
use translate::Opener;

use crate::wire::ClientType;

/// A message may make a node discover the next hop of a session again once in this time.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(5);
/// Records that one call handles of work that has no other bound.
const BUDGET: usize = 256;

/// The key that stands for a client of this node where a session names its owner. No node has it: it has no generation.
const fn key_of_client(client: ClientType) -> Key {
    Key::from_u64(client.0 as u64)
}

/// The source whose share sessions of a client of this node take: an address of 0.0.0.0/8, from which no packet comes.
const fn source_of_client(owner: Key) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(owner.index()))
}

/// The messaging layer of one node.
#[derive(Debug)]
pub struct Casp {
    config: Config,
    /// The client that opens passages at this node.
    opener: Option<Opener>,
    counters: Counters,
    /// Sessions that appeared and disappeared, while somebody watches.
    changes: Changes<SessionChange>,
    rng: Random,
    /// The time of the input that is handled.
    now: Time,
    interfaces: Interfaces,
    sessions: Sessions,
    wheel: Wheel,
    /// Sessions by the node that made them.
    by_source: Shares<IpAddr>,
    /// Octets that wait, by the node that made their session.
    waiting_octets: Shares<IpAddr>,
    peers: Peers,
    searches: Searches,
    egresses: Egresses,
    cookies: Cookies,
    /// Scout Responses by the node that gets them and the interface: who forges its address behind another one takes nothing of its rate.
    answers: RateShares,
    /// Scout Responses and errors about datagrams, to all nodes.
    all_answers: SharedRate,
    /// Errors about cookies, in the same way.
    errors: RateShares,
    /// Datagrams by their source and interface.
    rates: RateShares,
    /// Messages without state by the node that sent them here.
    stateless_rates: RateShares,
    /// Messages without state over UDP by the node that gets them.
    stateless_to: RateShares,
    /// Messages without state that wait for a next hop.
    pending: Pending,
    held: Slab<Held>,
    /// Messages that are held, by the node that made their session.
    held_by: Shares<IpAddr>,
    wheel_of_held: Wheel,
    /// Buffers of messages that were held, or waited without state.
    spare: Vec<Vec<u8>>,
    ready: VecDeque<Ready>,
    sweeps: VecDeque<Sweep>,
    /// A message that is composed for a session.
    composed: Vec<u8>,
    /// A message that is composed for a datagram.
    buffer: Vec<u8>,
    /// A RECORD_ROUTE that is composed.
    recorded: Vec<u8>,
    out: Outbox,
}

impl Casp {
    /// A node without sessions and interfaces; all its random numbers come from `seed`.
    ///
    /// # Errors
    /// The first setting that is not allowed.
    pub fn new(config: Config, seed: [u8; 32]) -> Result<Self, ConfigError> {
        config.validated()?;
        let mut rng = Random::new(seed);
        let key: [u8; 16] = rng.array();
        let hasher = || KeyedHasher::with_key(key);
        let total = config.total_answer_rate;
        Ok(Self {
            opener: None,
            counters: Counters::default(),
            changes: Changes::default(),
            now: Time::ZERO,
            interfaces: Interfaces::default(),
            sessions: Sessions::new(config.max_sessions, hasher()),
            wheel: Wheel::default(),
            by_source: Shares::new(config.max_sessions, hasher()),
            waiting_octets: Shares::new(config.max_waiting, hasher()),
            peers: Peers::new(&config, hasher),
            searches: Searches::new(config.max_searches, hasher),
            egresses: Egresses::new(hasher()),
            cookies: Cookies::new(&mut rng),
            answers: RateShares::new(config.answer_rate, hasher()),
            all_answers: SharedRate::new(total, total.div_ceil(4), Some(hasher())),
            errors: RateShares::new(config.answer_rate, hasher()),
            rates: RateShares::new(config.rate, hasher()),
            stateless_rates: RateShares::new(config.stateless_rate, hasher()),
            stateless_to: RateShares::new(peers::UDP_RATE, hasher()),
            pending: Pending::new(config.max_searches, hasher()),
            held: Slab::new(config.max_held),
            held_by: Shares::new(config.max_held, hasher()),
            wheel_of_held: Wheel::default(),
            spare: Vec::new(),
            ready: VecDeque::new(),
            sweeps: VecDeque::new(),
            composed: Vec::new(),
            buffer: Vec::new(),
            recorded: Vec::new(),
            out: Outbox::default(),
            rng,
            config,
        })
    }

    /// The ports of entry: messages over UDP, and scout with the rule for passing Scout Requests.
    #[must_use]
    pub fn entries(config: &Config) -> [EntryRequest; 2] {
        let alert = AlertRule::Value { ipv4: 0, ipv6: config.router_alert_v6 };
        // Only the type counts: the other fields of the header are not processed.
        let requests = Intercept::passing(alert, vec![Match { offset: 0, mask: 0xff, value: 2 }]);
        let scout = EntryRequest::local(
            Entry::Udp(config.scout_port),
            Subsystem::part("casp_scout_io", "casp_scout"),
        );
        // The datagrams of configured neighbors need no cookie.
        let unproved = (!config.neighbors.is_empty()).then(Unproved::default);
        let messages = EntryRequest::local(Entry::Udp(config.port), Subsystem::part("casp_io", "casp"));
        [
            EntryRequest { unproved, ..messages },
            EntryRequest { reports: true, ..scout.with_intercept(requests) },
        ]
    }

    /// Whether the rate of all answers to nodes that have proved nothing allows one more, to a packet with this source and interface.
    fn answers_one_more(&mut self, (src, ifindex): (IpAddr, IfIndex)) -> bool {
        let Self { config, by_source, all_answers, now, .. } = self;
        all_answers.allow(*now, (src, ifindex), || limits::is_known(config, by_source, src))
    }

    /// Takes one input at `now`, which never runs backwards. Drain [`Casp::poll`] afterwards.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        self.now = self.now.max(now);
        self.out.recycle();
        // State that is over is not refreshed by a message that arrives at the same time.
        let most = wheel::portion(matches!(input, Input::Timer));
        self.run_sessions(most);
        match input {
            Input::Timer => {}
            Input::Packet(packet) if packet.entry == Entry::Udp(self.config.scout_port) => {
                self.on_scout(&packet)
            }
            Input::Packet(packet) => self.on_datagram(&packet),
            Input::Interfaces(list) => self.interfaces.set(list),
            Input::Route { id, result } => self.on_route(id, result),
            Input::RouteChanged(prefix) => self.on_route_changed(prefix),
            Input::NeighborMoved { ifindex, address } => self.on_neighbor_moved((ifindex, address)),
            Input::Unreachable { quoted } => self.on_unreachable(quoted),
            Input::Discovered { id, address } => self.on_discovered(id, address),
            Input::Accepted { stream, transport, local, peer, identity } => {
                self.on_accepted(stream, transport, [local, peer.ip()], identity);
            }
            Input::Opening { stream, local } => self.on_opening(stream, local),
            Input::Connected { stream, identity } => self.on_connected(stream, identity),
            Input::Octets { stream, octets } => self.on_octets(stream, octets),
            Input::Drained { stream, unsent } => self.on_drained(stream, unsent),
            Input::Closed { stream } => self.on_closed(stream),
            Input::Request { client, request } => self.on_request_of(client, &request),
        }
        self.run_searches(most);
        self.run_connections(most);
        self.run_held(most);
        self.run_ready();
        self.run_sweeps();
        self.flush();
    }

    /// The node has this client from now on. With `stateless` it takes messages without state too.
    pub fn register(&mut self, client: ClientType, stateless: bool) {
        self.config.clients.insert(client.0);
        if stateless {
            self.config.stateless_clients.insert(client.0);
        }
    }

    /// The node has this client no longer. Its messages pass on.
    pub fn unregister(&mut self, client: ClientType) {
        self.config.clients.remove(&client.0);
        self.config.stateless_clients.remove(&client.0);
    }

    /// This client opens passages at this node. From now on it is asked about each session that begins with a refresh, which has no message
    /// for it: it may have lost the passage. At a NAT, messages and refreshes leave along an IPv4 flow only after the client has said which flow
    /// the next hops see ([`Request::Translate`]).
    pub const fn set_opener(&mut self, client: ClientType, nat: bool) {
        self.opener = Some(Opener { client, nat });
    }

    /// The next output, if any; its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        self.out.poll()
    }

    /// Who takes the output that [`Casp::poll`] gives next; `None`: it gives none.
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        self.out.next()
    }

    /// Whether [`Casp::poll`] has an output.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Time when [`Input::Timer`] is due; `None`: nothing waits. It may be earlier than necessary.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let at_once = !self.ready.is_empty() || !self.sweeps.is_empty();
        [
            at_once.then_some(self.now),
            self.wheel.next_deadline(),
            self.searches.wheel.next_deadline(),
            self.peers.wheel.next_deadline(),
            self.wheel_of_held.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
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
