//! Settings of the neighbour layer.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::{IfIndex, Time};

/// Settings. Everything that a peer can make grow is limited here.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Config {
    /// What holds for every interface that is not named in [`Self::interfaces`].
    pub interface: Interface,
    /// What holds for single interfaces, by the number that the kernel gave them.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub interfaces: BTreeMap<IfIndex, Interface>,
    /// First number of the sequence numbers of INTEGRITY: seconds of real time at the start of the engine's clock, so
    /// that numbers grow across restarts (RFC 2747 §3).
    pub real_time: u32,
    /// Neighbours at most. Those that nothing refers to make room for others.
    pub max_neighbours: u32,
    /// States at most that neighbours named, and again that were named to them.
    pub max_names: u32,
    /// Messages at most that wait for an acknowledgment.
    pub max_unacknowledged: u32,
    /// Senders at most whose sequence numbers are kept, by key.
    pub max_associations: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interface: Interface::default(),
            interfaces: BTreeMap::new(),
            real_time: 0,
            max_neighbours: 4096,
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

    /// Time since 1970, by which keys live.
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
    /// Hello (RFC 3209 §5); `None`: no requests are sent. Those of others are answered all the same.
    pub hello: Option<HelloConfig>,
    /// Integrity (RFC 2747).
    pub integrity: Integrity,
}

impl Interface {
    /// The first setting that cannot be, and why.
    pub(crate) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let Self { reduction, hello, integrity } = self;
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
                "not below the time to the first retransmission: neighbours would send everything twice",
            ),
            (range(reduction.multicast_ack_delay, 0, 60_000), "reduction.multicast_ack_delay", "over 1 min"),
            (range(reduction.bundle_delay, 0, 60_000), "reduction.bundle_delay", "over 1 min"),
            (range(reduction.summary_delay, 0, 60_000), "reduction.summary_delay", "over 1 min"),
            ((256..=65_000).contains(&reduction.largest), "reduction.largest", "not from 256 to 65000"),
            (range(hello.interval, 1, 3_600_000), "hello.interval", "not from 1 ms to 1 h"),
            ((1.0..=1000.0).contains(&hello.misses), "hello.misses", "not from 1 to 1000"),
            (hello.wrong > 0, "hello.wrong", "0: every neighbour would be lost at once"),
            ((1..=64).contains(&integrity.window), "integrity.window", "not from 1 to 64"),
            (range(integrity.challenge, 10, 60_000), "integrity.challenge", "not from 10 ms to 1 min"),
            (integrity.answers > 0, "integrity.answers", "0: no challenge would be answered"),
        ];
        checks.into_iter().find(|(fits, ..)| !fits).map(|(_, field, problem)| (field, problem))
    }
}

/// Refresh reduction (RFC 2961) at one interface.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Reduction {
    /// MESSAGE_ID objects and their acknowledgment. Off: they are refused like any object that is not known.
    pub reliable: bool,
    /// Bundles and summary refreshes, and the capability bit; needs `reliable`.
    pub summary: bool,
    /// All nodes behind the interface do refresh reduction: Paths of multicast sessions are refreshed by SRC_LISTs.
    pub everybody: bool,
    /// *Rf*: time to the first retransmission.
    #[cfg_attr(feature = "serde", serde(with = "crate::engine::config::seconds"))]
    pub first: Duration,
    /// *Rl*: transmissions at most, the first included; at least 1.
    pub limit: u8,
    /// *Δ*: each interval is by so much longer than the one before.
    pub delta: f64,
    /// An acknowledgment waits so long for a message that takes it along.
    #[cfg_attr(feature = "serde", serde(with = "crate::engine::config::seconds"))]
    pub ack_delay: Duration,
    /// An acknowledgment of what came by multicast waits at random up to so long; well below the peers' Rf.
    #[cfg_attr(feature = "serde", serde(with = "crate::engine::config::seconds"))]
    pub multicast_ack_delay: Duration,
    /// A refresh waits so long for others to go along in a Bundle.
    #[cfg_attr(feature = "serde", serde(with = "crate::engine::config::seconds"))]
    pub bundle_delay: Duration,
    /// A state to be refreshed waits so long for others to go along in an Srefresh.
    #[cfg_attr(feature = "serde", serde(with = "crate::engine::config::seconds"))]
    pub summary_delay: Duration,
    /// So many summary refreshes of a state may follow each other, then it is sent whole once (RFC 2961 §5.5).
    pub summaries: u8,
    /// Largest Bundle or Srefresh, octets of the IP payload.
    pub largest: u16,
}

impl Default for Reduction {
    fn default() -> Self {
        Self {
            reliable: true,
            summary: true,
            everybody: false,
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
    /// After so many intervals of silence the neighbour is lost.
    pub misses: f64,
    /// A wrong instance of ours in so many requests in a row tells that the neighbour lost us.
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
    /// All that is sent carries INTEGRITY.
    pub sending: bool,
    /// Nothing is taken without.
    pub receiving: bool,
    /// Out-of-order messages are taken if they are among so many last ones; 1: none are. 1 to 64.
    pub window: u8,
    /// Challenges are sent before anything is taken, and answered.
    pub handshake: bool,
    /// Senders that do not answer challenges are taken all the same.
    pub without_handshake: bool,
    /// Time to the repetition of a challenge; each is twice as long as the one before, up to a minute.
    #[cfg_attr(feature = "serde", serde(with = "crate::engine::config::seconds"))]
    pub challenge: Duration,
    /// Challenges answered in a second, at most, and at once.
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

/// How a digest is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Algorithm {
    /// HMAC-SHA-256, 32 octets.
    #[default]
    HmacSha256,
    /// HMAC-MD5, 16 octets: what RFC 2747 demands of all.
    HmacMd5,
}

/// What a key is for. Associations are simplex (RFC 2747 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum KeyUse {
    /// For what is sent.
    Send,
    /// For what is received.
    Receive,
    /// For both.
    #[default]
    Both,
}

/// One key, as an operator enters it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyConfig {
    /// Key Identifier, 48 bits; unique for a sender.
    pub id: u64,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// The secret.
    pub secret: Vec<u8>,
    /// What it is for.
    pub usage: KeyUse,
    /// At which interface; `None`: at all.
    pub interface: Option<IfIndex>,
    /// For which neighbour: to be sent to, or the address in its RSVP_HOP; `None`: for all.
    pub neighbour: Option<IpAddr>,
    /// KeyStartValid: time since 1970.
    pub from: Time,
    /// KeyEndValid: time since 1970; `None`: for ever.
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
