//! SCTP over raw IP protocol 132, for Forwards-SCTP associations (RFC 6084).
//!
//! [`Sctp`] is all SCTP endpoints of a node: packets without their IP header go into
//! [`receive`](Sctp::receive), [`poll_transmit`](Sctp::poll_transmit) gives packets to send, and
//! [`poll_event`](Sctp::poll_event) what happened. Messages keep their boundaries; messages of one stream
//! keep their order, streams do not wait for each other. GIST sends all messages of a session over the same
//! stream, and answers over the stream of the same number (RFC 6084 §3.2).
//!
//! The handshake (four ways, RFC 9260 §5.1) is done here: an INIT is answered without keeping anything, and at
//! a limited rate; state begins with a COOKIE ECHO that carries our own cookie. From then on `sctp-proto` does
//! acknowledgement, retransmission, congestion and flow control, fragmentation and partial reliability. Tags
//! and sequence numbers are from the seed, so that the same inputs give the same packets.
//!
//! One address at each end: no multihoming.

mod endpoint;
mod handshake;
mod incoming;
mod link;
mod packet;

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use signalbox_core::{Key, counters};

pub use self::endpoint::Sctp;
pub(crate) use self::packet::sealed;

/// Names an association, ours from its beginning to its last event.
pub type AssociationId = Key;

/// Limits and times. `Default` gives those of RFC 9260 and room for 10,000 associations.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Config {
    /// Port at which associations are accepted; `None` accepts none.
    pub port: Option<u16>,
    /// Most associations at a time, those included that we are opening.
    pub max_associations: u32,
    /// Most associations at a time that we are opening.
    pub max_opening: u32,
    /// INITs answered a second; the others are dropped.
    pub init_rate: u32,
    /// INITs answered at once.
    pub init_burst: u32,
    /// Time for which a cookie is taken.
    pub cookie_life: Duration,
    /// Streams in each direction, at least 1.
    pub streams: u16,
    /// Largest message, in octets.
    pub max_message: usize,
    /// Octets of an association that are accepted for sending and not acknowledged.
    pub max_buffered: usize,
    /// Receive window, in octets: at least the largest message and 1500. As much may wait as events.
    pub window: u32,
    /// Octets of data in a packet: 28 less than fits the path under the IP header.
    pub max_payload: u32,
    /// Retransmission time-out at the start.
    pub rto_initial: Duration,
    /// Least retransmission time-out.
    pub rto_min: Duration,
    /// Most.
    pub rto_max: Duration,
    /// How often INIT or COOKIE ECHO is sent again before giving up.
    pub max_init_retries: u8,
    /// An association is lost when data waits and nothing was heard for so long.
    pub peer_timeout: Duration,
    /// Time for an orderly end; then it is aborted.
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

/// How a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// In the order of its stream.
    pub ordered: bool,
    /// Given up after so long, if the peer can do that (PR-SCTP, RFC 6084 §3.3); `None` never. It is the
    /// Timeout of the application's SendMessage (§3.4). Milliseconds count.
    pub lifetime: Option<Duration>,
}

/// In order and without end.
impl Default for Delivery {
    fn default() -> Self {
        Self { ordered: true, lifetime: None }
    }
}

/// What happened to an association.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Which.
    pub association: AssociationId,
    /// What.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// It is up; the first event of each association that comes up.
    Connected {
        /// Our address and port.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
        /// The peer opened it.
        incoming: bool,
        /// Streams that can be used, numbered from 0, in both directions.
        streams: u16,
        /// Messages with a lifetime can be given up; otherwise they are sent like the others.
        partial_reliability: bool,
    },
    /// A message, whole.
    Message {
        /// Its stream.
        stream: u16,
        /// Its octets.
        octets: Vec<u8>,
    },
    /// It ended orderly, by either end; everything that was sent has arrived. Its last event.
    Closed,
    /// It broke. Its last event.
    Lost {
        /// Why.
        reason: LossReason,
        /// Octets of which it is not known whether they arrived.
        unsent: usize,
    },
}

/// Why an association is no more. RFC 6084 §3.1.2: applications are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LossReason {
    /// The peer aborted it, or refused it.
    #[error("[sctp-aborted] aborted by the peer")]
    Aborted,
    /// We aborted it.
    #[error("[sctp-abort] aborted here")]
    Local,
    /// No answer to INIT or COOKIE ECHO.
    #[error("[sctp-no-answer] no answer from the peer")]
    NoAnswer,
    /// Nothing heard while data waited, or the orderly end took too long.
    #[error("[sctp-timeout] the peer fell silent")]
    TimedOut,
    /// The peer has started anew and opened another one between the same ports.
    #[error("[sctp-restarted] the peer has restarted")]
    Restarted,
    /// The peer broke the rules.
    #[error("[sctp-violation] protocol violation by the peer")]
    Violation,
}

/// Why no association is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// There is one between these addresses and ports; RFC 6084 §2 allows one.
    #[error("[sctp-exists] there is an association between these endpoints")]
    Exists,
    /// A limit of the configuration is reached.
    #[error("[sctp-full] too many associations")]
    Full,
    /// The remote port is 0, or the addresses are of different versions.
    #[error("[sctp-address] unusable address")]
    Address,
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No such association, or it is not up, or it is closing.
    #[error("[sctp-not-up] the association is not up")]
    NotUp,
    /// Too much waits: try again when something was acknowledged.
    #[error("[sctp-buffer] send buffer full")]
    Full,
    /// Longer than the limit, or empty, which SCTP cannot send.
    #[error("[sctp-size] message empty or too long")]
    Size,
    /// No such stream.
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
    /// What SCTP counts.
    pub struct Counters {
        /// SCTP packets received.
        received: u64,
        /// SCTP packets sent.
        sent: u64,
        /// Packets dropped because they were malformed or their checksum was wrong.
        malformed: u64,
        /// INITs dropped by the rate limit.
        inits_limited: u64,
        /// COOKIE ECHOs dropped because the cookie was not ours, too old, or for other addresses.
        bad_cookies: u64,
        /// Packets that belong to no association.
        out_of_the_blue: u64,
        /// Packets with a wrong verification tag, dropped.
        bad_tags: u64,
        /// Associations refused because there are too many.
        refused: u64,
        /// Associations that came up.
        connected: u64,
        /// Associations that ended orderly.
        closed: u64,
        /// Associations that broke.
        lost: u64,
    }
}
