//! Settings of the neighbour layer.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::{IfIndex, Time};

/// Settings. Everything that a peer can make grow is limited here.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// What holds for every interface that is not named in [`Self::interfaces`].
    pub interface: Interface,
    /// What holds for single interfaces.
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
}

/// Settings of one interface.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Interface {
    /// Refresh reduction (RFC 2961).
    pub reduction: Reduction,
    /// Hello (RFC 3209 §5); `None`: no requests are sent. Those of others are answered all the same.
    pub hello: Option<HelloConfig>,
    /// Integrity (RFC 2747).
    pub integrity: Integrity,
}

/// Refresh reduction (RFC 2961) at one interface.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reduction {
    /// MESSAGE_ID objects and their acknowledgment. Off: they are refused like any object that is not known.
    pub reliable: bool,
    /// Bundles and summary refreshes, and the capability bit; needs `reliable`.
    pub summary: bool,
    /// All nodes behind the interface do refresh reduction: Paths of multicast sessions are refreshed by SRC_LISTs.
    pub everybody: bool,
    /// *Rf*: time to the first retransmission.
    pub first: Duration,
    /// *Rl*: transmissions at most, the first included; at least 1.
    pub limit: u8,
    /// *Δ*: each interval is by so much longer than the one before.
    pub delta: f64,
    /// An acknowledgment waits so long for a message that takes it along.
    pub ack_delay: Duration,
    /// An acknowledgment of what came by multicast waits at random up to so long; well below the peers' Rf.
    pub multicast_ack_delay: Duration,
    /// A refresh waits so long for others to go along in a Bundle.
    pub bundle_delay: Duration,
    /// A state to be refreshed waits so long for others to go along in an Srefresh.
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
pub struct HelloConfig {
    /// Time between requests.
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
pub enum Algorithm {
    /// HMAC-SHA-256, 32 octets.
    #[default]
    HmacSha256,
    /// HMAC-MD5, 16 octets: what RFC 2747 demands of all.
    HmacMd5,
}

/// What a key is for. Associations are simplex (RFC 2747 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyUse {
    /// For what is sent.
    Send,
    /// For what is received.
    Receive,
    /// For both.
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
    /// KeyStartValid.
    pub from: Time,
    /// KeyEndValid; `None`: for ever.
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
