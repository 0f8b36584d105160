//! The neighbor layer between packets and the engine: what RSVP neighbors do for each other on one hop, for messages
//! of any type. Refresh reduction (RFC 2961), integrity (RFC 2747, 3097), Hello (RFC 3209 §5).
//!
//! **In.** [`Neighbors::receive`] takes a packet for this node. [`Neighbors::next`] returns its messages one by one:
//! Bundles are unpacked, INTEGRITY is verified, acknowledgments and Hellos are handled. Before the engine handles a
//! message it calls [`Neighbors::judge`] with the stored handle of the state; afterwards it stores the handle from
//! [`Neighbors::store_received`].
//!
//! **Out.** [`Neighbors::send`] takes a composed message, adds a MESSAGE_ID, a digest and waiting acknowledgments, and
//! sends it again until it is acknowledged. [`Neighbors::summarise`] refreshes state by an Srefresh.
//!
//! Before each call, set the time by [`Neighbors::advance`]. After each call, drain [`Neighbors::upcall`] and
//! [`Neighbors::poll`], then ask [`Neighbors::next_deadline`].

mod acks;
mod association;
mod bundle;
mod clocks;
mod config;
mod failures;
mod forget;
mod hello;
mod inbound;
mod keys;
mod lists;
mod message_ids;
mod outbound;
mod outbox;
mod peers;
mod standing;
mod summary;
mod timers;
mod traffic;
mod trust;
mod verify;
mod view;

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use signalbox_core::index::KeyedHasher;
use signalbox_core::metrics::{
    Family, MESSAGES_DROPPED, MESSAGES_RECEIVED, MESSAGES_SENT, MESSAGES_UNANSWERED, MESSAGES_UNSENT,
    RATE_LIMITED, RETRANSMISSIONS, STATES_SUMMARIZED, TABLE_FULL,
};
use signalbox_core::rng::Random;
use signalbox_core::slab::Key;
use signalbox_core::{IfIndex, SharedRate, Time};

use association::Associations;
use failures::FailureTable;
use keys::Keys;
use message_ids::{ReceivedIds, SentIds};
use outbox::Outbox;
use peers::Peers;
use standing::Standings;
use summary::Summaries;

pub use clocks::OtherClock;
pub use config::{
    Algorithm, Config, HelloConfig, Integrity as IntegrityConfig, Interface, KeyConfig, KeyUse, Reduction,
    Trust,
};
pub use failures::{AuthenticationFailure, AuthenticationFailures};
pub use inbound::{Arrival, Arrivals, Incoming, Verdict};
pub use keys::KeyError;
pub use lists::Unknown;
pub use message_ids::{ReceivedHandle, SentHandle};
pub use outbound::{Outgoing, SendReason, SummaryTo};
pub use outbox::Envelope;
pub(in crate::engine) use standing::{Naming, Towards};
pub use traffic::{PeerTraffic, TYPES, Traffic};
pub use view::{AssociationView, HelloState, View};

use crate::engine::packet::IpTransmit;
use crate::wire::MessageId;

/// Messages that failed authentication.
const UNTRUSTED: Family = Family::counter(
    "rsvp_untrusted",
    &["reason"],
    "Messages dropped because INTEGRITY (RFC 2747) does not prove their sender, by reason.",
);
/// MESSAGE_IDs that are not known.
const MESSAGE_ID_EVENTS: Family = Family::counter(
    "rsvp_message_id_events",
    &["event"],
    "MESSAGE_IDs (RFC 2961) that this node or a neighbor does not know.",
);
/// Neighbors lost.
const NEIGHBORS_LOST: Family = Family::counter(
    "rsvp_neighbors_lost",
    &[],
    "Neighbors lost: they restarted, sent nothing for too long, or lost this node.",
);

signalbox_core::counters! {
    /// Counters of the neighbor layer.
    pub struct Counters {
        /// Paths received, including those that are dropped; the same holds for the types below.
        paths_received: u64 => MESSAGES_RECEIVED { type: "path" },
        /// Resvs received.
        resvs_received: u64 => MESSAGES_RECEIVED { type: "resv" },
        /// PathErrs received.
        path_errors_received: u64 => MESSAGES_RECEIVED { type: "path_err" },
        /// ResvErrs received.
        resv_errors_received: u64 => MESSAGES_RECEIVED { type: "resv_err" },
        /// PathTears received.
        path_tears_received: u64 => MESSAGES_RECEIVED { type: "path_tear" },
        /// ResvTears received.
        resv_tears_received: u64 => MESSAGES_RECEIVED { type: "resv_tear" },
        /// ResvConfs received.
        confirmations_received: u64 => MESSAGES_RECEIVED { type: "resv_conf" },
        /// DREPs received.
        dreps_received: u64 => MESSAGES_RECEIVED { type: "drep" },
        /// Bundles received.
        bundles_received: u64 => MESSAGES_RECEIVED { type: "bundle" },
        /// Bundles sent.
        bundles_sent: u64 => MESSAGES_SENT { type: "bundle" },
        /// Bundles received although they are switched off; dropped.
        bundles_refused: u64 => MESSAGES_DROPPED { reason: "bundle_off" },
        /// Srefreshes received.
        srefreshes_received: u64 => MESSAGES_RECEIVED { type: "srefresh" },
        /// Srefreshes sent.
        srefreshes_sent: u64 => MESSAGES_SENT { type: "srefresh" },
        /// States refreshed by an Srefresh that was received.
        states_refreshed: u64,
        /// MESSAGE_IDs in received Srefreshes that belong to no state of this node.
        names_unknown: u64 => MESSAGE_ID_EVENTS { event: "unknown" },
        /// States refreshed by an Srefresh that was sent.
        states_summarised: u64 => STATES_SUMMARIZED,
        /// Messages received out of order; dropped.
        out_of_order: u64 => MESSAGES_DROPPED { reason: "out_of_order" },
        /// Acknowledgments received for a message of this node.
        acks_received: u64 => MESSAGES_RECEIVED { type: "ack" },
        /// Acknowledgments sent, in messages of any type.
        acks_sent: u64 => MESSAGES_SENT { type: "ack" },
        /// Negative acknowledgments received for state of this node.
        nacks_received: u64 => MESSAGES_RECEIVED { type: "nack" },
        /// Negative acknowledgments sent.
        nacks_sent: u64 => MESSAGES_SENT { type: "nack" },
        /// Messages sent again because no acknowledgment was received.
        retransmissions: u64 => RETRANSMISSIONS,
        /// Messages given up because no acknowledgment was received.
        unacknowledged: u64 => MESSAGES_UNANSWERED,
        /// Messages sent again without a MESSAGE_ID because the neighbor refused it.
        names_refused: u64 => MESSAGE_ID_EVENTS { event: "refused" },
        /// Messages sent again without a MESSAGE_ID because the neighbor did not acknowledge them.
        names_ignored: u64 => MESSAGE_ID_EVENTS { event: "ignored" },
        /// Messages with a lower TTL than their sender gave them: nodes without RSVP lie between, and `distant_hops` is
        /// off; dropped.
        distant: u64 => MESSAGES_DROPPED { reason: "distant_hop" },
        /// Messages whose IP source is not the address in their RSVP_HOP, or of a Path that of its sender; dropped.
        wrong_source: u64 => MESSAGES_DROPPED { reason: "wrong_source" },
        /// Paths and PathTears that are not addressed to the destination of their session; dropped.
        wrong_destination: u64 => MESSAGES_DROPPED { reason: "wrong_destination" },
        /// Acknowledgments that came by another interface than their message had left; ignored.
        acks_elsewhere: u64 => MESSAGES_DROPPED { reason: "ack_elsewhere" },
        /// Neighbors that get plain RFC 2205 because they did not acknowledge, or refused MESSAGE_IDs.
        neighbors_plain: u64 => MESSAGE_ID_EVENTS { event: "given_up" },
        /// MESSAGE_ID_NACKs not sent, because the neighbor has proved nothing and sent too few octets.
        nacks_limited: u64 => RATE_LIMITED { limit: "nacks" },
        /// Messages without INTEGRITY where it is required; dropped.
        integrity_missing: u64 => UNTRUSTED { reason: "integrity_missing" },
        /// Messages signed with a key that is unknown for their sender; dropped.
        key_unknown: u64 => UNTRUSTED { reason: "key_unknown" },
        /// Messages with a wrong digest; dropped.
        digest_wrong: u64 => UNTRUSTED { reason: "digest_wrong" },
        /// Messages whose sequence number was received before or is too old; dropped.
        replayed: u64 => UNTRUSTED { reason: "replayed" },
        /// Messages whose INTEGRITY shows a clock that differs from this node's by more than an hour: one of the two clocks is wrong, and what
        /// is signed by the one that is behind is dropped as replayed.
        clock_differs: u64,
        /// Messages of senders that have not answered a challenge yet; dropped.
        challenge_pending: u64 => UNTRUSTED { reason: "challenge_pending" },
        /// Messages of senders that do not answer challenges; dropped.
        handshake_refused: u64 => UNTRUSTED { reason: "handshake_refused" },
        /// Challenges sent.
        challenges_sent: u64 => MESSAGES_SENT { type: "integrity_challenge" },
        /// Challenges received, including those that are not answered.
        challenges_received: u64 => MESSAGES_RECEIVED { type: "integrity_challenge" },
        /// Responses to challenges sent.
        responses_sent: u64 => MESSAGES_SENT { type: "integrity_response" },
        /// Responses received that answer a challenge of this node.
        responses_taken: u64 => MESSAGES_RECEIVED { type: "integrity_response" },
        /// Responses received that answer no present challenge; dropped.
        responses_ignored: u64 => MESSAGES_DROPPED { reason: "stray_integrity_response" },
        /// Messages not sent because there is no key for them.
        no_key: u64 => MESSAGES_UNSENT { reason: "no_key" },
        /// Times that the last key of an association had expired and was used because there is no other.
        last_key_expired: u64,
        /// Hellos received where Hello is off, or from an unknown neighbor; dropped.
        hellos_refused: u64 => MESSAGES_DROPPED { reason: "hello_refused" },
        /// Hellos received.
        hellos_received: u64 => MESSAGES_RECEIVED { type: "hello" },
        /// Hellos sent.
        hellos_sent: u64 => MESSAGES_SENT { type: "hello" },
        /// Neighbors lost: they restarted, sent nothing for too long, or lost this node. Their state was sent again.
        neighbors_lost: u64 => NEIGHBORS_LOST,
        /// Neighbors, MESSAGE_IDs or waiting messages that a full table did not take.
        overload: u64 => TABLE_FULL { table: "neighbors" },
    }
}

/// A request to the engine that no message carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upcall {
    /// A neighbor does not have this state: send it as a whole message.
    SendWhole {
        /// The tag with which the state was sent.
        tag: u32,
    },
    /// A neighbor is gone or restarted: the engine acts as if the link to it were down (RFC 3209 §5.4).
    Lost {
        /// Its address.
        neighbor: IpAddr,
        /// Its interface.
        ifindex: IfIndex,
    },
    /// A neighbor that was tried, or had plain RFC 2205, has shown whether it handles MESSAGE_IDs.
    Shown {
        /// Its interface and mark.
        towards: (IfIndex, u32),
        /// It does.
        able: bool,
    },
    /// The last key for sending expired, and is still used (RFC 2747 §5.3).
    LastKeyExpired {
        /// Key Identifier.
        id: u64,
        /// Interface of the message.
        ifindex: IfIndex,
    },
}

/// An interface: this node's addresses, as in its RSVP_HOPs, and the messages there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Own {
    v4: Option<IpAddr>,
    v6: Option<IpAddr>,
    traffic: Traffic,
}

/// The neighbor layer of one node.
#[derive(Debug)]
pub struct Neighbors {
    config: Config,
    counters: Counters,
    rng: Random,
    /// The time of the input that is handled.
    now: Time,
    epoch: u32,
    own: BTreeMap<IfIndex, Own>,
    peers: Peers,
    received: ReceivedIds,
    sent: SentIds,
    summaries: Summaries,
    keys: Keys,
    associations: Associations,
    failures: FailureTable,
    other_clock: Option<OtherClock>,
    /// Answers to challenges, which are not signed: neighbors, and each interface, have a part.
    answers: SharedRate,
    standings: Standings,
    /// Makes the marks of neighbors.
    marks: KeyedHasher,
    out: Outbox,
    upcalls: VecDeque<Upcall>,
    /// Neighbors whose Bundles are sent at the next poll.
    ready: Vec<Key>,
    scratch: Vec<u8>,
}

impl Neighbors {
    /// A layer without keys and neighbors. Epoch, cookies and instances come from `rng`.
    #[must_use]
    pub fn new(config: Config, mut rng: Random) -> Self {
        let epoch = loop {
            let epoch = rng.u32() & MessageId::MAX_EPOCH;
            if epoch != 0 {
                break epoch;
            }
        };
        let (answers, hasher) = (config.interface.integrity.answers.max(1), KeyedHasher::new(&mut rng));
        Self {
            counters: Counters::default(),
            now: Time::ZERO,
            epoch,
            own: BTreeMap::new(),
            peers: Peers::new(config.max_neighbors, &mut rng),
            received: ReceivedIds::new(config.max_names, &mut rng),
            sent: SentIds::new(config.max_names, config.max_unacknowledged, &mut rng),
            summaries: Summaries::new(&mut rng),
            keys: Keys::default(),
            associations: Associations::new(config.max_associations, &mut rng),
            failures: FailureTable::default(),
            other_clock: None,
            answers: SharedRate::new(answers, answers, Some(hasher)),
            standings: Standings::new(hasher),
            marks: KeyedHasher::new(&mut rng),
            out: Outbox::default(),
            upcalls: VecDeque::new(),
            ready: Vec::new(),
            scratch: Vec::new(),
            rng,
            config,
        }
    }

    /// Takes the limits of other settings. What stands beyond a lower limit stays.
    pub(in crate::engine) const fn set_limits(&mut self, new: &Config) {
        self.config.take_limits(new);
        self.peers.set_limit(new.max_neighbors);
        self.received.set_limit(new.max_names);
        self.sent.set_limits(new.max_names, new.max_unacknowledged);
        self.associations.set_limit(new.max_associations);
    }

    /// Sets the time of the next calls; it never runs backwards.
    pub fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// Sets this node's addresses at an interface, as in its RSVP_HOPs.
    pub fn set_addresses(&mut self, ifindex: IfIndex, v4: Option<IpAddr>, v6: Option<IpAddr>) {
        let own = self.own.entry(ifindex).or_default();
        (own.v4, own.v6) = (v4, v6);
    }

    /// The mark of a router or RSVP node ([`Envelope::towards`]).
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a part of a hash")]
    pub fn mark(&self, address: IpAddr) -> u32 {
        self.marks.hash_one(&address) as u32
    }

    /// Replaces the settings of an interface.
    pub fn set_interface(&mut self, ifindex: IfIndex, settings: Interface) {
        self.config.interfaces.insert(ifindex, settings);
    }

    /// Replaces all keys. Keys that stay keep their sequence numbers and associations (RFC 2747 §5).
    ///
    /// # Errors
    /// The first key that is not allowed; nothing is changed then.
    pub fn set_keys(&mut self, keys: &[KeyConfig]) -> Result<(), KeyError> {
        self.keys.set(keys)
    }

    /// The next request to the engine.
    pub fn upcall(&mut self) -> Option<Upcall> {
        self.upcalls.pop_front()
    }

    /// The next packet to be sent; its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<IpTransmit<'_>> {
        self.flush_ready();
        let unproved = self.out.next().is_some_and(|(envelope, _)| !self.is_reached(envelope));
        self.count_sent();
        self.out.poll(unproved)
    }

    /// Whether [`Neighbors::poll`] has a packet.
    pub(crate) fn has_output(&mut self) -> bool {
        self.flush_ready();
        !self.out.is_empty()
    }

    fn flush_ready(&mut self) {
        while let Some(key) = self.ready.pop() {
            self.flush_bundle(key);
        }
    }

    /// Time when [`Neighbors::tick`] is due; `None`: nothing waits.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let deadlines = [
            self.peers.next_deadline(),
            self.sent.next_deadline(),
            self.summaries.next_deadline(),
            self.associations.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Counters since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The wall clock was corrected. The numbers of INTEGRITY grow all the same.
    pub fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.config.set_wall_clock(wall_clock_us);
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    fn own(&self, ifindex: IfIndex, like: IpAddr) -> Option<IpAddr> {
        let own = self.own.get(&ifindex)?;
        if like.is_ipv4() { own.v4 } else { own.v6 }
    }
}
