//! Settings of the neighbor layer.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::{IfIndex, Time};

/// Settings of the layer. Everything that a peer can make grow is limited here.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Config {
    /// Settings of every interface that is not in [`Self::interfaces`].
    pub interface: Interface,
    /// Settings of single interfaces, by the kernel's number.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub interfaces: BTreeMap<IfIndex, Interface>,
    /// Seconds of real time at the start of the engine's clock: for the lifetimes of keys, and the first sequence number of
    /// INTEGRITY, so that numbers grow across restarts (RFC 2747 §3).
    pub real_time: u32,
    /// Maximum number of neighbors. Neighbors without state make room for others.
    pub max_neighbors: u32,
    /// Maximum number of states with a MESSAGE_ID from neighbors, and again of those with one from this node.
    pub max_names: u32,
    /// Maximum number of messages that wait for an acknowledgment.
    pub max_unacknowledged: u32,
    /// Maximum number of security associations.
    pub max_associations: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interface: Interface::default(),
            interfaces: BTreeMap::new(),
            real_time: 0,
            max_neighbors: 4096,
            max_names: 400_000,
            max_unacknowledged: 65_536,
            max_associations: 4096,
        }
    }
}

impl Config {
    /// The settings of an interface.
    #[must_use]
    pub fn of(&self, ifindex: IfIndex) -> &Interface {
        self.interfaces.get(&ifindex).unwrap_or(&self.interface)
    }

    /// Takes the limits of `new`. All other settings stay.
    pub(in crate::engine) const fn take_limits(&mut self, new: &Self) {
        self.max_neighbors = new.max_neighbors;
        self.max_names = new.max_names;
        self.max_unacknowledged = new.max_unacknowledged;
        self.max_associations = new.max_associations;
    }

    /// Takes the wall clock: microseconds since 1970 at [`Time::ZERO`].
    pub fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.real_time = u32::try_from(wall_clock_us / 1_000_000).unwrap_or(u32::MAX);
    }

    /// Time since 1970, for the lifetimes of keys.
    pub(crate) fn wall(&self, now: Time) -> Time {
        now + Duration::from_secs(self.real_time.into())
    }
}

/// Settings of one interface.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Interface {
    /// Refresh reduction (RFC 2961).
    pub reduction: Reduction,
    /// Hello (RFC 3209 §5); `None`: no requests are sent, and those of neighbors are not answered.
    pub hello: Option<HelloConfig>,
    /// Integrity (RFC 2747).
    pub integrity: Integrity,
    /// Which messages count as those of a neighbor.
    pub trust: Trust,
}

impl Interface {
    /// The first setting that is not allowed, and the reason.
    pub(crate) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let Self { reduction, hello, integrity, trust: _ } = self;
        let range = |time: Duration, least: u64, most: u64| {
            time >= Duration::from_millis(least) && time <= Duration::from_millis(most)
        };
        let hello = hello.unwrap_or_default();
        let checks = [
            (range(reduction.first, 10, 60_000), "reduction.first", "not from 10 ms to 1 min"),
            (reduction.limit > 0, "reduction.limit", "0: nothing would be sent"),
            ((0.0..=10.0).contains(&reduction.delta), "reduction.delta", "not from 0 to 10"),
            (
                reduction.ack_delay < reduction.first,
                "reduction.ack_delay",
                "not below the time to the first retransmission: neighbors would send everything twice",
            ),
            (range(reduction.multicast_ack_delay, 0, 60_000), "reduction.multicast_ack_delay", "over 1 min"),
            (range(reduction.bundle_delay, 0, 60_000), "reduction.bundle_delay", "over 1 min"),
            (range(reduction.summary_delay, 0, 60_000), "reduction.summary_delay", "over 1 min"),
            ((256..=65_000).contains(&reduction.largest), "reduction.largest", "not from 256 to 65000"),
            (range(hello.interval, 1, 3_600_000), "hello.interval", "not from 1 ms to 1 h"),
            ((1.0..=1000.0).contains(&hello.misses), "hello.misses", "not from 1 to 1000"),
            (hello.wrong > 0, "hello.wrong", "0: every neighbor would be lost at once"),
            ((1..=64).contains(&integrity.window), "integrity.window", "not from 1 to 64"),
            (range(integrity.challenge, 10, 60_000), "integrity.challenge", "not from 10 ms to 1 min"),
            (integrity.answers > 0, "integrity.answers", "0: no challenge would be answered"),
        ];
        checks.into_iter().find(|(fits, ..)| !fits).map(|(_, field, problem)| (field, problem))
    }
}

/// Exceptions from the rules by which a message counts as one of a neighbor, at one interface. All are off by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Trust {
    /// Nodes without RSVP may lie between this node and a neighbor (RFC 2205 §2.9): a message may have a lower TTL
    /// than its sender gave it, and come by another interface than its handle or the path state names.
    pub distant_hops: bool,
    /// The IP source of a message may be another address of its sender than the one in its RSVP_HOP.
    pub any_source: bool,
    /// A Path may be addressed to this node instead of the destination of its session.
    pub any_destination: bool,
}

/// Refresh reduction (RFC 2961) at one interface.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Reduction {
    /// MESSAGE_ID objects and acknowledgments. If off, they are refused like objects of an unknown class.
    pub reliable: bool,
    /// Bundles and summary refreshes, and the capability bit; needs `reliable`.
    pub summary: bool,
    /// All nodes behind the interface support refresh reduction: multicast Paths are refreshed by SRC_LISTs (RFC 2961
    /// §5.1).
    pub all_nodes_capable: bool,
    /// *Rf*: time to the first retransmission (RFC 2961 §6).
    #[cfg_attr(feature = "serde", serde(with = "crate::engine::config::seconds"))]
    pub first: Duration,
    /// *Rl*: maximum number of transmissions, the first included; at least 1.
    pub limit: u8,
    /// *Δ*: growth of the retransmission interval, as a part of it.
    pub delta: f64,
    /// Time that an acknowledgment waits for a message that can carry it.
    #[cfg_attr(feature = "serde", serde(with = "crate::engine::config::seconds"))]
    pub ack_delay: Duration,
    /// Longest random delay of an acknowledgment for a multicast message; well below the peers' Rf.
    #[cfg_attr(feature = "serde", serde(with = "crate::engine::config::seconds"))]
    pub multicast_ack_delay: Duration,
    /// Time that a refresh waits for others in a Bundle.
    #[cfg_attr(feature = "serde", serde(with = "crate::engine::config::seconds"))]
    pub bundle_delay: Duration,
    /// Time that a refreshed state waits for others in an Srefresh.
    #[cfg_attr(feature = "serde", serde(with = "crate::engine::config::seconds"))]
    pub summary_delay: Duration,
    /// Summary refreshes of a state in a row; then it is sent as a whole message once (RFC 2961 §5.5).
    pub summaries: u8,
    /// Largest Bundle or Srefresh, octets of the IP payload.
    pub largest: u16,
}

impl Default for Reduction {
    fn default() -> Self {
        Self {
            reliable: true,
            summary: true,
            all_nodes_capable: false,
            first: Duration::from_millis(500),
            limit: 3,
            delta: 1.0,
            ack_delay: Duration::from_millis(10),
            multicast_ack_delay: Duration::from_millis(200),
            bundle_delay: Duration::from_millis(100),
            summary_delay: Duration::from_secs(1),
            summaries: 20,
            largest: 1400,
        }
    }
}

/// Hello (RFC 3209 §5.3) at one interface.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct HelloConfig {
    /// Time between requests.
    #[cfg_attr(feature = "serde", serde(with = "crate::engine::config::seconds"))]
    pub interval: Duration,
    /// Intervals of silence after which the neighbor is lost.
    pub misses: f64,
    /// Requests in a row with a wrong instance of this node, after which the neighbor is lost.
    pub wrong: u32,
}

impl Default for HelloConfig {
    fn default() -> Self {
        Self { interval: Duration::from_millis(5), misses: 3.5, wrong: 3 }
    }
}

/// Integrity (RFC 2747) at one interface.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Integrity {
    /// Messages carry INTEGRITY.
    pub sending: bool,
    /// Messages without INTEGRITY are dropped.
    pub receiving: bool,
    /// Size of the reordering window: messages out of order are accepted within it. 1 to 64; 1: none are.
    pub window: u8,
    /// Senders must answer a challenge before their messages are accepted, and challenges are answered (RFC 2747 §4.3).
    pub handshake: bool,
    /// Messages of senders that do not answer challenges are accepted.
    pub without_handshake: bool,
    /// Time to the repetition of a challenge; it doubles with each, up to a minute.
    #[cfg_attr(feature = "serde", serde(with = "crate::engine::config::seconds"))]
    pub challenge: Duration,
    /// Challenges that are answered in a second, and in one burst, at most; as many once more are those of known neighbors.
    pub answers: u32,
}

impl Default for Integrity {
    fn default() -> Self {
        Self {
            sending: false,
            receiving: false,
            window: 32,
            handshake: true,
            without_handshake: false,
            challenge: Duration::from_secs(1),
            answers: 10,
        }
    }
}

/// Digest algorithm of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Algorithm {
    /// HMAC-SHA-256, 32 octets.
    #[default]
    HmacSha256,
    /// HMAC-MD5, 16 octets: mandatory in RFC 2747.
    HmacMd5,
}

/// Use of a key. Associations are simplex (RFC 2747 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum KeyUse {
    /// The key signs.
    Send,
    /// The key verifies.
    Receive,
    /// The key signs and verifies.
    #[default]
    Both,
}

/// A key of the key table (RFC 2747 §2).
#[derive(Clone, PartialEq, Eq)]
pub struct KeyConfig {
    /// Key Identifier, 48 bits; unique for a sender.
    pub id: u64,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// The secret.
    pub secret: Vec<u8>,
    /// Whether it signs, verifies, or both.
    pub usage: KeyUse,
    /// The interface; `None`: all interfaces.
    pub interface: Option<IfIndex>,
    /// The neighbor: destination of messages that are sent, RSVP_HOP of messages that are received; `None`: all
    /// neighbors.
    pub neighbor: Option<IpAddr>,
    /// KeyStartValid: time since 1970.
    pub from: Time,
    /// KeyEndValid: time since 1970; `None`: the key does not expire.
    pub until: Option<Time>,
}

impl fmt::Debug for KeyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyConfig")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .field("usage", &self.usage)
            .field("from", &self.from)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}
