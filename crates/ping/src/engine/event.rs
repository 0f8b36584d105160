//! Commands of users and events for them.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::service::{SendError, Transports};
use signalbox_core::{Mri, SessionId};

/// A command of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Command {
    /// Start a ping. Its identifier must be free. Without source address the application asks for the route to the
    /// destination, and takes the address of this node on it.
    Start(PingRequest),
    /// Stop a ping. Nothing happens if it does not run.
    Stop,
}

/// The octets of the messages of a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Format {
    /// Ours ([`crate::wire`]).
    #[default]
    Signalbox,
    /// That of the NSIS Ping tool ([`crate::wire::nsis`]). Its length has 8 bits: records of a path with more than four
    /// nodes after the initiator are not complete. It has no padding.
    Nsis,
}

/// A ping that a user wants: messages along the flow from `src` to `dst`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PingRequest {
    /// Destination of the flow: a unicast address.
    pub dst: IpAddr,
    /// Source of the flow, of the same IP version as `dst`. If it is `None`, the node takes its own address.
    #[cfg_attr(feature = "serde", serde(default))]
    pub src: Option<IpAddr>,
    /// IP protocol of the flow; `None`: any protocol.
    #[cfg_attr(feature = "serde", serde(default))]
    pub protocol: Option<u8>,
    /// Source port of the flow; needs `protocol`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub src_port: Option<u16>,
    /// Destination port of the flow; needs `protocol`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub dst_port: Option<u16>,
    /// How many messages to send, at least 1; `None`: until stopped.
    #[cfg_attr(feature = "serde", serde(default))]
    pub count: Option<u32>,
    /// Octets of padding in each message, a multiple of 4, at most [`MAX_PADDING`](crate::wire::MAX_PADDING). The reply
    /// contains the same padding; with other padding the message counts as lost.
    #[cfg_attr(feature = "serde", serde(default))]
    pub padding: u16,
    /// The octets of its messages.
    #[cfg_attr(feature = "serde", serde(default))]
    pub format: Format,
    /// Time between two messages, at least [`MIN_INTERVAL`].
    #[cfg_attr(feature = "serde", serde(default = "default_interval"))]
    pub interval: Duration,
    /// How long to wait for a reply before the message counts as lost, at least [`MIN_INTERVAL`].
    #[cfg_attr(feature = "serde", serde(default = "default_timeout"))]
    pub timeout: Duration,
}

/// Smallest interval and timeout of a ping.
pub const MIN_INTERVAL: Duration = Duration::from_millis(1);

const fn default_interval() -> Duration {
    Duration::from_secs(1)
}

const fn default_timeout() -> Duration {
    Duration::from_secs(5)
}

impl PingRequest {
    /// One message a second to `dst` until stopped, each given up after five seconds.
    #[must_use]
    pub const fn to(dst: IpAddr) -> Self {
        Self {
            dst,
            src: None,
            protocol: None,
            src_port: None,
            dst_port: None,
            count: None,
            padding: 0,
            format: Format::Signalbox,
            interval: default_interval(),
            timeout: default_timeout(),
        }
    }
}

/// An event of a ping, for its user. [`PingEvent::Refused`] or [`PingEvent::Done`] is the last event of each ping.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PingEvent {
    /// The ping runs.
    Started {
        /// Its session.
        session: SessionId,
        /// Its flow, downstream.
        mri: Mri,
    },
    /// The ping does not run.
    Refused(Refusal),
    /// A reply was received.
    Reply(Reply),
    /// A request had no reply.
    Lost {
        /// Sequence number of the request, from 0.
        seq: u32,
        /// The reason.
        reason: LostReason,
    },
    /// The ping ended: every request has a reply or is lost, or the user stopped it.
    Done {
        /// Requests sent.
        sent: u32,
        /// Replies from the end of the flow.
        received: u32,
    },
}

/// A reply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reply {
    /// Sequence number of the request, from 0.
    pub seq: u32,
    /// When the request was sent, in microseconds since 1970.
    pub sent_us: u64,
    /// Time from the request to the reply.
    pub rtt: Duration,
    /// Nodes on the way to the end of the flow, in order, without the initiator. The last one made the request a reply.
    pub hops: Vec<Hop>,
    /// Nodes on the way back, in order.
    pub back: Vec<Hop>,
    /// Whether the reply comes from the end of the flow, and not from a node that found no further node.
    pub reached_end: bool,
    /// Whether records are missing because the message was too long for them.
    pub truncated: bool,
    /// Octets of padding.
    #[cfg_attr(feature = "serde", serde(default))]
    pub padding: u16,
}

/// A node that the message visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Hop {
    /// Its address on the interface where the message arrived; the flow's destination at the flow's end.
    pub address: IpAddr,
    /// When the message arrived, in microseconds since 1970 by the node's own clock.
    pub received_us: u64,
    /// When the node sent it on, by the same clock.
    pub sent_us: u64,
    /// Routers without the application between the node before it and this one; 0: no router, or not known.
    pub ip_distance: u8,
    /// From its record on the way there to that on the way back, by its own clock; zero for the node that sent the message
    /// back. Only in the format of the NSIS Ping tool, and only if the message had room for both records.
    #[cfg_attr(feature = "serde", serde(default))]
    pub round_trip: Option<Duration>,
}

/// The reason why a ping does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Refusal {
    /// The node does not run the application.
    NoApplication,
    /// A ping with this id runs already.
    IdInUse,
    /// The limit of running pings is reached.
    TooMany,
    /// No source address is given, and no route to the destination gives one.
    NoRoute,
    /// The addresses are not unicast, or of different IP versions.
    Address,
    /// Ports without a protocol.
    Ports,
    /// Padding that is not a multiple of 4 octets, or too long.
    Padding,
    /// The node does not run the format of the ping.
    Format,
    /// Count is zero, or interval or timeout is shorter than [`MIN_INTERVAL`].
    Timing,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoApplication => "this node does not run the Ping application",
            Self::IdInUse => "a ping with this id runs already",
            Self::TooMany => "as many pings run as the configuration allows",
            Self::NoRoute => "no route to the destination",
            Self::Address => "source and destination must be unicast addresses of the same IP version",
            Self::Ports => "ports need a protocol",
            Self::Padding => {
                "padding must be a multiple of 4 octets, at most 16000, and the format of the NSIS Ping tool has none"
            }
            Self::Format => {
                "this node does not run the format of the NSIS Ping tool: give it an NSLPID with ping.nsis_nslp_id"
            }
            Self::Timing => "count must be at least 1, interval and timeout at least 1 ms",
        })
    }
}

/// The reason why a request had no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LostReason {
    /// No reply was received in time.
    Timeout,
    /// No node on the path answered.
    NoNextNode,
    /// The next node answered, but could not be reached by these transports.
    Unreached(Transports),
    /// No route to the flow's destination.
    NoRoute,
    /// The flow ends at the initiator itself.
    FlowEndsHere,
    /// The reply had other padding than the request.
    Damaged,
    /// A table or queue of GIST is full.
    Overload,
    /// GIST refused it.
    Refused,
    /// The next node's GIST refused it, with this error code and subcode (RFC 5971 A.4.4).
    Peer {
        /// Error code.
        code: u16,
        /// Subcode.
        subcode: u8,
    },
}

impl From<SendError> for LostReason {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NoNextNode => Self::NoNextNode,
            SendError::Unreached(by) | SendError::Connecting(by) => Self::Unreached(by),
            SendError::NoRoute => Self::NoRoute,
            SendError::FlowEndsHere => Self::FlowEndsHere,
            SendError::Overload => Self::Overload,
            SendError::NoStateUpstream | SendError::TooLarge { .. } | SendError::Refused => Self::Refused,
            SendError::Peer { code, subcode } => Self::Peer { code, subcode },
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("no reply in time"),
            Self::NoNextNode => f.write_str("no node on the path answered"),
            Self::Unreached(by) => SendError::Unreached(*by).fmt(f),
            Self::NoRoute => f.write_str("no route to the destination"),
            Self::FlowEndsHere => f.write_str("the flow ends at this node"),
            Self::Damaged => f.write_str("the reply has other padding than the request"),
            Self::Overload => f.write_str("GIST has no room for it now"),
            Self::Refused => f.write_str("GIST refused it"),
            // RFC 5971 §7.2.1: an address in a message differs from that of its packet.
            Self::Peer { code: 9, subcode: 4 } => f.write_str(
                "a NAT on the path does not translate GIST messages (GIST error 9/4): signal between nodes on one side of it",
            ),
            Self::Peer { code, subcode } => {
                write!(f, "the next node refused it with GIST error {code}/{subcode}")
            }
        }
    }
}
