//! SCTP over raw IP protocol 132, for Forwards-SCTP associations (RFC 6084).
//!
//! [`Sctp`] is all SCTP endpoints of a node. [`receive`](Sctp::receive) takes packets without their IP header,
//! [`poll_transmit`](Sctp::poll_transmit) returns packets to send, and [`poll_event`](Sctp::poll_event) returns events.
//! Messages keep their boundaries. Messages of one stream keep their order; messages of different streams do not wait
//! for each other. GIST sends all messages of a session over the same stream, and answers over the stream of the same
//! number (RFC 6084 §3.2).
//!
//! The four-way handshake (RFC 9260 §5.1) is done here: an INIT is answered without state and at a limited rate. State
//! begins with a COOKIE ECHO that contains a cookie of this node. After that `sctp-proto` does acknowledgement,
//! retransmission, congestion and flow control, fragmentation and partial reliability. Tags and sequence numbers come
//! from the seed, so that the same inputs give the same packets.
//!
//! Each end has one address: there is no multihoming.

mod answers;
mod endpoint;
mod handshake;
mod incoming;
mod link;
mod packet;

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use signalbox_core::metrics::{
    ASSOCIATION_EVENTS, MESSAGES_DROPPED, MESSAGES_RECEIVED, MESSAGES_SENT, RATE_LIMITED,
};
use signalbox_core::{IfIndex, Key, counters};

pub use self::endpoint::Sctp;
pub(crate) use self::packet::sealed;

/// Identifier of an association, valid until its last event.
pub type AssociationId = Key;

/// Configuration of the SCTP endpoints. The defaults are those of RFC 9260 §16, and 10,000 associations.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Config {
    /// Port that accepts associations; `None`: no association is accepted.
    pub port: Option<u16>,
    /// Most associations at one time, including those that this node opens.
    pub max_associations: u32,
    /// Most associations at one time that this node opens.
    pub max_opening: u32,
    /// INITs answered per second, and as many once more to nodes of which the user has state; the others are dropped. One source
    /// gets at most a quarter of them. A quarter of the burst is for interfaces by which few came. 0: no limit.
    pub init_rate: u32,
    /// INITs answered in a burst.
    pub init_burst: u32,
    /// Lifetime of a state cookie, at most. It is valid for at least half of this time.
    pub cookie_life: Duration,
    /// Streams in each direction, 1 to 255.
    pub streams: u16,
    /// Largest message, in octets.
    pub max_message: usize,
    /// Most octets of an association that are accepted for sending and not acknowledged.
    pub max_buffered: usize,
    /// Receive window, in octets: at least the largest message and 1500. The same number of octets may wait as events.
    pub window: u32,
    /// Most octets of data in a packet: the path MTU without the IP header, minus 28.
    pub max_payload: u32,
    /// First retransmission timeout (RTO.Initial).
    pub rto_initial: Duration,
    /// Shortest retransmission timeout (RTO.Min).
    pub rto_min: Duration,
    /// Longest retransmission timeout (RTO.Max).
    pub rto_max: Duration,
    /// Retransmissions of INIT or COOKIE ECHO before the association is given up (Max.Init.Retransmits).
    pub max_init_retries: u8,
    /// An association is lost if data waits and no packet was received for this time.
    pub peer_timeout: Duration,
    /// Longest time of a shutdown; then the association is aborted.
    pub shutdown_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: None,
            max_associations: 10_000,
            max_opening: 1_000,
            init_rate: 1_000,
            init_burst: 1_000,
            cookie_life: Duration::from_secs(60),
            streams: 64,
            max_message: 262_148,
            max_buffered: 1 << 20,
            window: 1 << 20,
            max_payload: 1200,
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_secs(1),
            rto_max: Duration::from_secs(60),
            max_init_retries: 8,
            peer_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(30),
        }
    }
}

/// How a packet came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Source address. It may be forged.
    pub src: IpAddr,
    /// Destination address: one of this node.
    pub dst: IpAddr,
    /// Interface.
    pub ifindex: IfIndex,
}

/// Options of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// The message is delivered in the order of its stream.
    pub ordered: bool,
    /// The message is given up after this time, if the peer supports it (PR-SCTP, RFC 6084 §3.3); `None`: it is sent
    /// until it is acknowledged. It is the Timeout of the application's SendMessage (§3.4), in whole milliseconds.
    pub lifetime: Option<Duration>,
}

/// Ordered and reliable.
impl Default for Delivery {
    fn default() -> Self {
        Self { ordered: true, lifetime: None }
    }
}

/// An event of an association.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The association.
    pub association: AssociationId,
    /// The kind of the event.
    pub kind: EventKind,
}

/// Kinds of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// The association is established. This is its first event.
    Connected {
        /// Address and port of this node.
        local: SocketAddr,
        /// Address and port of the peer.
        remote: SocketAddr,
        /// The peer opened the association.
        incoming: bool,
        /// Number of streams in both directions; the first is stream 0.
        streams: u16,
        /// The peer supports partial reliability. Otherwise messages with a lifetime are sent like the others.
        partial_reliability: bool,
    },
    /// A whole message was received.
    Message {
        /// Its stream.
        stream: u16,
        /// Its octets.
        octets: Vec<u8>,
    },
    /// One end shut the association down, and all sent messages have arrived. This is the last event.
    Closed,
    /// The association failed. This is the last event.
    Lost {
        /// The reason.
        reason: LossReason,
        /// Octets that were not acknowledged.
        unsent: usize,
    },
}

/// The reason why an association failed. Applications receive a notification (RFC 6084 §3.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LossReason {
    /// The peer aborted it, or refused it.
    #[error("[sctp-aborted] aborted by the peer")]
    Aborted,
    /// This node aborted it.
    #[error("[sctp-abort] aborted here")]
    Local,
    /// No answer to INIT or COOKIE ECHO.
    #[error("[sctp-no-answer] no answer from the peer")]
    NoAnswer,
    /// No packet was received while data waited, or the shutdown took too long.
    #[error("[sctp-timeout] the peer does not answer any more")]
    TimedOut,
    /// The peer has restarted and opened another association between the same ports.
    #[error("[sctp-restarted] the peer has restarted")]
    Restarted,
    /// The peer violated the protocol.
    #[error("[sctp-violation] protocol violation by the peer")]
    Violation,
}

/// The reason why no association is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// An association between these addresses and ports exists; RFC 6084 §2 allows one.
    #[error("[sctp-exists] there is an association between these endpoints")]
    Exists,
    /// A limit of the configuration is reached.
    #[error("[sctp-full] too many associations")]
    Full,
    /// The remote port is 0, or the addresses are of different versions.
    #[error("[sctp-address] unusable address")]
    Address,
}

/// The reason why a message was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The association does not exist, is not established, or is closing.
    #[error("[sctp-not-up] the association is not up")]
    NotUp,
    /// Too many octets wait. Try again when some are acknowledged.
    #[error("[sctp-buffer] send buffer full")]
    Full,
    /// The message is longer than the limit or empty. SCTP cannot send an empty message.
    #[error("[sctp-size] message empty or too long")]
    Size,
    /// The stream does not exist.
    #[error("[sctp-stream] no such stream")]
    Stream,
}

/// A packet to send as payload of IP protocol 132.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// From the SCTP common header on.
    pub octets: Vec<u8>,
}

counters! {
    /// Counts of SCTP since the start.
    pub struct Counters {
        /// SCTP packets received.
        received: u64 => MESSAGES_RECEIVED { type: "packet" },
        /// SCTP packets sent.
        sent: u64 => MESSAGES_SENT { type: "packet" },
        /// Packets dropped because they are malformed or their checksum is wrong.
        malformed: u64 => MESSAGES_DROPPED { reason: "malformed" },
        /// INITs dropped by the rate limit.
        inits_limited: u64 => RATE_LIMITED { limit: "inits" },
        /// COOKIE ECHOs dropped because the cookie was not made by this node, is too old, or is for other addresses.
        bad_cookies: u64 => MESSAGES_DROPPED { reason: "bad_cookie" },
        /// Packets that belong to no association.
        out_of_the_blue: u64 => MESSAGES_DROPPED { reason: "out_of_the_blue" },
        /// Packets dropped because their verification tag is wrong.
        bad_tags: u64 => MESSAGES_DROPPED { reason: "bad_tag" },
        /// Associations refused because there are too many.
        refused: u64 => ASSOCIATION_EVENTS { event: "refused" },
        /// Associations established.
        connected: u64 => ASSOCIATION_EVENTS { event: "opened" },
        /// Associations closed in order.
        closed: u64 => ASSOCIATION_EVENTS { event: "closed" },
        /// Associations that failed after they were established.
        lost: u64 => ASSOCIATION_EVENTS { event: "failed" },
    }
}
