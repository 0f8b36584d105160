//! A GIST-aware NAT gateway (RFC 5971 §7.2.2, §7.2.3), as an engine without clock, socket or thread.
//!
//! The kernel translates packets. The gateway translates what GIST messages carry: the MRI and the NLI of Queries and of
//! Data in Q-mode, the addresses and ports of Responses, and it maintains the NAT-Traversal object. It asks the kernel for
//! the bindings that flow, datagrams and messaging associations need. All other messages are the kernel's.
//!
//! A Query leaves no state behind except for its flow and for the host inside, both of which expire. What the gateway needs
//! for the Response is in the entry that it adds to the NAT-Traversal object, with keyed hashes.
//!
//! **Drain invariant.** After each [`Gateway::handle`], call [`Gateway::poll`] until it returns `None`, then ask
//! [`Gateway::next_deadline`]. The driver answers each [`Output::Open`] by one [`Input::Opened`] of the same id, and each
//! [`Output::Find`] by one [`Input::Found`].
//!
//! | file | contents |
//! |---|---|
//! | `query.rs`, `flow.rs` | messages with C=1: Queries and Data in Q-mode; the flow that they are about |
//! | `answer.rs` | messages with a NAT-Traversal object and C=0: Responses and Errors |
//! | `lookups.rs` | Queries that wait until the kernel has answered whether it translates their flow already |
//! | `message.rs`, `entry.rs` | the octets that change |
//! | `bindings.rs`, `leases.rs` | what the kernel is asked for, and external ports |
//! | `handover.rs`, `inherited.rs` | what a gateway leaves to the one that starts in its place |
//! | `refuse.rs` | Errors of the gateway |

mod answer;
mod bindings;
mod config;
mod counters;
mod entry;
mod flow;
mod handover;
mod inherited;
mod interfaces;
mod io;
mod leases;
mod lookups;
mod message;
mod outbox;
mod query;
mod refuse;
mod view;

use core::net::{IpAddr, SocketAddrV4};
use core::time::Duration;
use std::collections::HashMap;

use signalbox_core::bucket::TokenBucket;
use signalbox_core::index::KeyedHasher;
use signalbox_core::metrics::{Subsystem, Table};
use signalbox_core::packet::Received;
use signalbox_core::pinhole::{OpenerId, PinholeError, PinholeId, Translation};
use signalbox_core::ports::left::Left;
use signalbox_core::secret::RotatingSecret;
use signalbox_core::shares::RateShares;
use signalbox_core::slab::Key;
use signalbox_core::wheel;
use signalbox_core::{
    AlertRule, EntryRequest, IfIndex, Intercept, Match, NslpId, Random, Reach, SharedRate, Through, Time,
    Towards,
};

pub use bindings::{Purpose, State};
pub use config::{Config, ConfigError, Forward};
pub use counters::Counters;
pub use io::{Input, Output};
pub use view::BindingView;

use answer::OwnEntry;
use bindings::{BindingRequest, Bindings, InKernel, Insertion, NoBinding, Pair};
use flow::Kernel;
use interfaces::{Interfaces, Side};
use leases::{Choice, Hold, Leases};
use lookups::KernelLookups;
use message::Echo;
use outbox::{Envelope, Outbox};

use crate::wire::{HEADER_LENGTH, MAGIC, PORT, strip_magic};

/// Shortest lifetime of a binding after a Response (RFC 4787 REQ-5). GISTNAT-X-10.
pub(crate) const SHORTEST: Duration = Duration::from_secs(120);
/// How long a key of the entries is used. A handshake ends long before.
const KEY_PERIOD: Duration = Duration::from_secs(300);

/// The gateway of one node.
#[derive(Debug)]
pub struct Gateway {
    config: Config,
    counters: Counters,
    /// The time of the last input.
    now: Time,
    rng: Random,
    secret: RotatingSecret,
    /// Peer identity in Errors.
    identity: [u8; 8],
    interfaces: Interfaces,
    leases: Leases,
    /// Ports that are kept for ends inside whose bindings are not back yet.
    left: Left<Hold>,
    bindings: Bindings,
    /// Bindings of associations, by their nodes. Each has one entry at most.
    pairs: HashMap<Pair, Key, KeyedHasher>,
    queries: RateShares,
    errors: SharedRate,
    lookups: KernelLookups,
    /// Questions to the kernel because of Queries from outside.
    outside_questions: TokenBucket,
    out: Outbox,
}

impl Gateway {
    /// A gateway without bindings. Keys and ports are drawn from `seed`, which must be secret outside of tests.
    ///
    /// # Errors
    /// A value of the configuration that is out of its range.
    pub fn new(config: Config, seed: [u8; 32]) -> Result<Self, ConfigError> {
        config.validated()?;
        let mut rng = Random::new(seed);
        let (secret, identity) = (RotatingSecret::new(KEY_PERIOD, &mut rng), rng.array());
        let leases = Leases::new(&config, &mut rng);
        Ok(Self {
            counters: Counters::default(),
            now: Time::ZERO,
            secret,
            identity,
            interfaces: Interfaces::default(),
            left: Left::new(leases.hasher()),
            leases,
            bindings: Bindings::new(config.max_bindings, &mut rng),
            pairs: HashMap::with_hasher(KeyedHasher::new(&mut rng)),
            queries: RateShares::new(config.queries_of_source, KeyedHasher::new(&mut rng)),
            errors: SharedRate::new(config.errors, config.errors, None),
            lookups: KernelLookups::default(),
            outside_questions: TokenBucket::new(OUTSIDE_QUESTIONS, OUTSIDE_QUESTIONS / 4),
            out: Outbox::default(),
            rng,
            config,
        })
    }

    /// Takes the limits and rates of other settings ([`Config::take_limits`]). Bindings beyond a lower limit stay.
    ///
    /// # Errors
    /// The first setting that is not allowed. All are as before.
    pub fn set_limits(&mut self, now: Time, new: &Config) -> Result<(), ConfigError> {
        let mut config = self.config.clone();
        config.take_limits(new);
        config.validated()?;
        self.bindings.set_limit(config.max_bindings);
        self.queries.set_rate(now, config.queries_of_source);
        self.errors.set_limits(now, config.errors, config.errors);
        self.config = config;
        Ok(())
    }

    /// The port of entry: GIST's, with the packets that are to be translated. These are packets with the C-flag to GIST's port,
    /// and answers with a NAT-Traversal object to any port, since the gateway gives the Querying node a port of its own
    /// (GISTNAT-R7.2-01). Connection tracking must not translate what the gateway translates.
    ///
    /// Only packets from one side to the other, or to this node, are taken. All others are the kernel's, which judges them by
    /// the operator's rules for forwarded packets.
    #[must_use]
    pub fn entry(config: &Config) -> EntryRequest {
        let magic = Match::word(0, u32::from_be_bytes(MAGIC));
        // In the common header, behind the magic number.
        let c_flag = |value| Match { offset: 8, mask: 0x8000, value };
        // The TLV header of the first object.
        let traversal = Match { offset: 12, mask: 0x0fff_0000, value: 0x0007_0000 };
        let kinds = [
            (vec![magic, c_flag(0x8000)], Reach::Translated),
            (vec![magic, c_flag(0), traversal], Reach::TranslatedAnyPort),
        ];
        let mut request = EntryRequest {
            untracked: vec![magic, traversal],
            shared: true,
            ..EntryRequest::local(outbox::ENTRY, Subsystem::part("gist_nat_io", "gist_nat"))
        };
        for through in ways(config) {
            for (matches, reach) in &kinds {
                request = request.with_intercept(Intercept {
                    alert: AlertRule::NotRequired,
                    matches: matches.clone(),
                    reach: *reach,
                    through: Some(through.clone()),
                });
            }
        }
        request
    }

    /// Takes one input at `now`. Drain [`Gateway::poll`] afterwards.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        self.now = self.now.max(now);
        self.out.sweep();
        match input {
            Input::Datagram(packet) => self.on_datagram(&packet),
            Input::Timer => self.on_timer(),
            Input::Interfaces(interfaces) => {
                self.interfaces.set(interfaces, &self.config);
                self.bindings.set_interfaces(self.interfaces.with_side());
            }
            Input::Opened { id, result } => self.on_opened(id, result),
            Input::Found { id, translation } => self.on_found(id, translation),
        }
    }

    /// Whether there is an output.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// The next output. Its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        self.out.poll()
    }

    /// When [`Input::Timer`] is due; `None` while nothing waits.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        [self.bindings.next_deadline(), self.left.deadline()].into_iter().flatten().min()
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Size and limit of each table.
    #[must_use]
    pub fn tables(&self) -> [Table; 2] {
        [
            Table::new("bindings", self.bindings.len(), self.bindings.limit()),
            Table::new("ports", self.leases.len(), self.leases.limit()),
        ]
    }

    /// Whether this packet is the gateway's, to be translated or to be dropped. Other packets are for GIST on this node.
    ///
    /// Queries and Data in Q-mode from one side of the NAT to the other are treated, unless this node has their application
    /// (GISTNAT-D5.3-01); of all others those with an entry that this gateway made. Messages of a side that cannot be verified
    /// are dropped, since GIST would send some of them on.
    #[must_use]
    pub fn takes(&self, now: Time, packet: &Received<'_>) -> bool {
        let octets = strip_magic(packet.payload);
        octets.is_some_and(|octets| self.kind(now.max(self.now), packet, octets).is_some())
    }

    /// What a packet is to the gateway; `None`: nothing.
    fn kind<'a>(&self, now: Time, packet: &Received<'_>, octets: &'a [u8]) -> Option<Kind<'a>> {
        let [_, _, _, _, n1, n0, kind, _] = octets.first_chunk::<HEADER_LENGTH>().copied()?;
        let external = self.interfaces.external().filter(|_| packet.dst.is_ipv4())?;
        let side = self.interfaces.side(packet.ifindex);
        let dst = packet.dst.ip();
        if kind & 0x80 == 0 {
            let own = self.own_entry(now, octets);
            if own.is_some() {
                return own.map(Kind::Answer);
            }
            // GIST's own answers come to its port.
            let is_for_gist = self.interfaces.has(dst) && packet.dst.port() == PORT;
            let is_foreign = side.is_some() && !is_for_gist && Echo::of(octets).is_some();
            return is_foreign.then_some(Kind::Foreign);
        }
        if self.config.hosted.contains(&NslpId(u16::from_be_bytes([n1, n0]))) {
            return None;
        }
        match side? {
            Side::Inside => (dst == external || !self.interfaces.has(dst)).then_some(Kind::QMode),
            Side::Outside if dst == external => Some(Kind::QMode),
            Side::Outside => (!self.interfaces.has(dst)).then_some(Kind::Foreign),
        }
    }

    fn on_datagram(&mut self, packet: &Received<'_>) {
        let octets = strip_magic(packet.payload).unwrap_or_default();
        match self.kind(self.now, packet, octets) {
            Some(Kind::QMode) if self.is_allowed(packet) => self.on_q_mode(packet, octets, Kernel::NotAsked),
            Some(Kind::QMode) => {}
            Some(Kind::Answer(own)) => self.on_answer(packet, octets, &own),
            Some(Kind::Foreign) => {
                self.counters.foreign_forged += 1;
                tracing::debug!(peer = %packet.src, reason = "no entry of this gateway", "message dropped");
            }
            None => {
                self.counters.not_for_gateway += 1;
                tracing::debug!(peer = %packet.src, reason = "not for the gateway", "message dropped");
            }
        }
    }

    /// A Response goes on that has waited for the kernel's answer.
    fn resume(&mut self, packet: &Received<'_>) {
        let octets = strip_magic(packet.payload).unwrap_or_default();
        if let Some(own) = self.own_entry(self.now, octets) {
            self.on_answer(packet, octets, &own);
        }
    }

    fn on_ttl_expired(&mut self, packet: &Received<'_>) {
        self.counters.ttl_expired += 1;
        tracing::debug!(peer = %packet.src, reason = "IP TTL used up", "message dropped");
    }

    fn on_timer(&mut self) {
        self.step_left();
        for _ in 0..wheel::AT_ONCE {
            let Some(key) = self.bindings.expired(self.now) else { return };
            self.counters.expired += 1;
            self.remove(key);
        }
    }

    /// Removes a binding, here and in the kernel.
    fn remove(&mut self, key: Key) {
        let Some((binding, hold)) = self.bindings.remove(key) else { return };
        tracing::debug!(binding = %binding.pinhole, purpose = ?binding.purpose, "binding removed");
        if matches!(binding.kernel, InKernel::Asked { .. } | InKernel::Active { .. }) {
            self.out.close(id_of(key));
        }
        if let Some(hold) = hold {
            self.leases.release(hold);
        }
        if let Some(pair) = binding.pair.filter(|pair| self.pairs.get(pair) == Some(&key)) {
            self.pairs.remove(&pair);
        }
    }

    fn on_opened(&mut self, id: PinholeId, result: Result<(), PinholeError>) {
        let Some(key) = (id.owner == OpenerId::GIST_NAT).then(|| Key::from_u64(id.key)) else { return };
        let Some(binding) = self.bindings.get_mut(key) else { return };
        let (until, awaited_by) = match binding.kernel {
            InKernel::Asked { until, awaited_by } => (until, awaited_by),
            InKernel::Active { until } => (until, None),
            InKernel::Reserved | InKernel::Adopted => return,
        };
        let flow = awaited_by.unwrap_or(key);
        match result {
            Ok(()) => binding.kernel = InKernel::Active { until },
            Err(error) => {
                self.counters.refused += 1;
                tracing::info!(binding = %binding.pinhole, %error, "binding refused by the kernel");
                self.remove(key);
                // Responses that wait for it do not pass. Each would ask the kernel for the same again.
                let waiting = self.bindings.get_mut(flow).map(|flow| core::mem::take(&mut flow.waiting));
                self.counters.binding_gone += waiting.map_or(0, |waiting| waiting.len() as u64);
                return;
            }
        }
        let Some(flow) = self.bindings.get_mut(flow) else { return };
        for waiting in core::mem::take(&mut flow.waiting) {
            self.resume(&waiting.as_received());
        }
    }

    /// A message goes on whose flow the kernel was asked about.
    fn on_found(&mut self, id: PinholeId, translation: Option<Translation>) {
        let Some(waiting) = (id.owner == OpenerId::GIST_NAT).then(|| self.lookups.take(id.key)).flatten()
        else {
            return;
        };
        let packet = waiting.as_received();
        let octets = strip_magic(packet.payload).unwrap_or_default();
        self.on_q_mode(&packet, octets, Kernel::Answered(translation));
        self.lookups.give_back(waiting);
    }

    /// Makes a binding, and gives its lease back if it exists already or cannot be made.
    fn bind(&mut self, request: BindingRequest, lifetime: Duration) -> Option<Key> {
        let (hold, owner) = (request.hold, request.owner);
        let is_new = self.bindings.find(&request.pinhole.packets).is_none();
        let victim = is_new.then(|| self.bindings.victim(owner, request.ifindex)).flatten();
        victim.into_iter().for_each(|key| self.evict(key));
        let made = self.bindings.make(request, self.now + lifetime, victim.is_some());
        match made {
            Ok((key, Insertion::New)) => {
                self.counters.made += 1;
                Some(key)
            }
            Ok((key, Insertion::Found(hold))) => {
                hold.into_iter().for_each(|hold| self.leases.release(hold));
                if self.bindings.get(key).is_some_and(|binding| binding.may_prolong(owner)) {
                    self.bindings.prolong(key, self.now + lifetime);
                }
                Some(key)
            }
            Err(reason) => {
                hold.into_iter().for_each(|hold| self.leases.release(hold));
                match reason {
                    NoBinding::Full => self.counters.bindings_full += 1,
                    NoBinding::Share => self.counters.bindings_of_host += 1,
                    NoBinding::Interface => self.counters.bindings_of_interface += 1,
                    NoBinding::Conflict => self.counters.conflicts += 1,
                }
                tracing::debug!(?reason, "binding not made");
                None
            }
        }
    }

    /// Removes a binding without a Response, because another one needs its place.
    fn evict(&mut self, key: Key) {
        self.counters.evicted += 1;
        self.remove(key);
    }

    /// An external port for an end inside, for a message that came in by an interface: [`Leases::acquire`]. An interface that has more
    /// than its share of the ports gets one of those that it has without a Response, and so does everybody when none is left.
    fn lease(
        &mut self,
        ifindex: IfIndex,
        (protocol, inside): (u8, SocketAddrV4),
        choice: (Choice, bool),
    ) -> Option<Hold> {
        let is_new = self.leases.port_of(protocol, inside).is_none();
        if is_new && self.leases.is_scarce() && !self.bindings.has_share(self.leases.limit(), ifindex) {
            match self.bindings.oldest(ifindex) {
                Some(key) => self.evict(key),
                None => {
                    self.counters.ports_full += 1;
                    return None;
                }
            }
        }
        for _ in 0..EVICTIONS {
            if let Some(hold) = self.leases.acquire(protocol, inside, choice, &mut self.rng) {
                return Some(hold);
            }
            let Some(key) = self.bindings.oldest_of_most() else { break };
            self.evict(key);
        }
        self.counters.ports_full += 1;
        None
    }

    /// Asks the kernel for a binding, or for a longer life of it if less than half of what is wanted is left. A way to the
    /// inside for which another host asked stays a reservation.
    fn activate(&mut self, key: Key) {
        let now = self.now;
        let Some(binding) = self.bindings.get_mut(key) else { return };
        if !binding.may_open() {
            return;
        }
        let lifetime = binding.until.since(now);
        match &mut binding.kernel {
            InKernel::Adopted => return,
            InKernel::Reserved => {
                binding.kernel = InKernel::Asked { until: binding.until, awaited_by: None };
            }
            InKernel::Asked { until, .. } | InKernel::Active { until } => {
                if *until > now + lifetime / 2 {
                    return;
                }
                *until = binding.until;
            }
        }
        self.out.open(id_of(key), binding.pinhole.clone(), lifetime);
    }

    /// Lets a binding live for `lifetime` from now on, and the kernel know of it, if messages of this sender may do so.
    fn keep(&mut self, key: Key, owner: IpAddr, lifetime: Duration) {
        if self.bindings.get(key).is_some_and(|binding| binding.may_prolong(owner)) {
            if let Some(binding) = self.bindings.get_mut(key) {
                binding.prove();
            }
            self.bindings.prolong(key, self.now + lifetime);
            self.activate(key);
        }
    }
}

/// What a packet is to the gateway.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for one packet, and a box would be an allocation for each"
)]
enum Kind<'a> {
    /// A message with C=1 from one side to the other.
    QMode,
    /// An answer with an entry of this gateway.
    Answer(OwnEntry<'a>),
    /// It would pass the NAT, but nothing shows that it may. It is dropped: what the gateway sent on would pass by the
    /// operator's rules for forwarded packets. GISTNAT-X-06.
    Foreign,
}

/// Where the packets of the gateway come from, and where they lead.
fn ways(config: &Config) -> impl Iterator<Item = Through> {
    let external = config.external.map(Towards::Address);
    let to_node = [Towards::ThisNode].into_iter().chain(external);
    let out = config.outside.iter().map(|name| Towards::Interface(name.clone()));
    let from = |name: &String, to: Towards| Through { from: name.clone(), to };
    let inside = config.inside.iter().flat_map({
        let to = to_node.clone().chain(out);
        move |name| to.clone().map(move |to| from(name, to))
    });
    let outside = config.outside.iter().flat_map(move |name| to_node.clone().map(move |to| from(name, to)));
    inside.chain(outside)
}

/// Questions to the kernel in a second because of Queries from outside: some 3 % of a processor.
const OUTSIDE_QUESTIONS: u32 = 500;
/// Bindings without a Response that are removed at most for one port.
const EVICTIONS: u32 = 4;
/// The IP protocol UDP.
const UDP: u8 = 17;

/// The id of a binding in the kernel.
const fn id_of(key: Key) -> PinholeId {
    OpenerId::GIST_NAT.pinhole(key.to_u64())
}

/// The headers of a packet that is forwarded.
fn envelope_of(packet: &Received<'_>) -> Envelope {
    Envelope {
        src: packet.src,
        dst: packet.dst,
        ifindex: None,
        ttl: packet.ttl.saturating_sub(1),
        tos: packet.tos,
        dont_fragment: false,
    }
}
