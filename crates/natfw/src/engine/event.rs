//! Events for users.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::service::SendError;
use signalbox_core::{Mri, SessionId};
use signalbox_wire::hops::Hop;

/// An event of a request. [`NatfwEvent::Refused`], [`NatfwEvent::Failed`] and [`NatfwEvent::Closed`] are the last of
/// their request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum NatfwEvent {
    /// Signaling has started.
    Started {
        /// The session.
        session: SessionId,
        /// Its flow or, with EXTERNAL, the routing of the message.
        mri: Mri,
    },
    /// The request is invalid or cannot run here: no signaling has started.
    Refused(Refusal),
    /// The whole path granted the request; it comes again after each refresh whose result differs.
    Granted(Granted),
    /// A node reported an event (RFC 5973 §3.7.5); the request is repeated.
    Notified(Code),
    /// A node refused the request or ended the session, or no RESPONSE came.
    Failed(Failure),
    /// The user ended the request.
    Closed,
}

/// What the path granted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Granted {
    /// The session.
    pub session: SessionId,
    /// Lifetime without a refresh.
    pub lifetime: Duration,
    /// The external address and port, to be given to the other side.
    pub external: Option<(Ipv4Addr, Option<u16>)>,
    /// External addresses of the other NATs.
    pub bindings: Vec<Ipv4Addr>,
    /// Nodes of the path that reported what they did, in the order of the request. This one is not among them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub hops: Vec<Hop>,
    /// Some routers or nodes of the path are not known.
    #[cfg_attr(feature = "serde", serde(default))]
    pub gaps: bool,
    /// The end of the flow itself answered. `None`: another node may have answered in its place, or the request goes to the edge only.
    #[cfg_attr(feature = "serde", serde(default))]
    pub far_end: Option<bool>,
}

/// Class and code of a NATFW_INFO (RFC 5973 §4.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Code {
    /// The class.
    pub class: u8,
    /// The code.
    pub code: u8,
}

impl From<crate::wire::Info> for Code {
    fn from(info: crate::wire::Info) -> Self {
        Self { class: info.class.0, code: info.code }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = crate::wire::Info { class: crate::wire::InfoClass(self.class), code: self.code };
        info.fmt(f)
    }
}

/// Why a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Failure {
    /// A node answered or reported so.
    Code(Code),
    /// A node answered so, and named itself.
    By {
        /// Its answer.
        code: Code,
        /// Its address.
        node: IpAddr,
        /// The rule or limit that refused, if the node gives it.
        note: Option<String>,
    },
    /// No RESPONSE came within the lifetime of the request.
    NoResponse,
    /// GIST found no other node on the path.
    NoNextNode,
    /// GIST could not send the request.
    NotSent(SendError),
    /// GIST cannot begin signaling from the receiver of a flow towards its sender here (RFC 5971 §5.8.1.3).
    NotUpstream,
    /// The edge of the network granted, but what it asks for in the place of the sender does not arrive here.
    NoCreate,
}

/// What to do where GIST sends no upstream Queries.
pub(super) const NOT_UPSTREAM: &str = "GIST sends no Queries against the flow here: set upstream_queries = true in [gist] \
    (one middlebox on the path at most), or ask without path-coupled routing";

/// Why a command does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Refusal {
    /// The node does not run the application.
    NoApplication,
    /// The identifier is in use.
    IdInUse,
    /// Too many sessions, or too many requests that wait for a route.
    TooMany,
    /// There is no route to the destination.
    NoRoute,
    /// Addresses of different IP versions, or not of hosts.
    Address,
    /// Ports without a protocol, or a second port without ports.
    Ports,
    /// Senders with IPv6 addresses, in a message that has no place for them: that of the loose-end method.
    Senders,
    /// Proxy mode without one sender: the CREATE of the edge goes from the sender to the receiver, and has to name both (RFC 5973
    /// §3.7.6.1).
    ProxySender,
    /// More than 255 types of ICMP messages, or types of another protocol.
    IcmpTypes,
    /// The lifetime is 0 or too long.
    Lifetime,
    /// The token does not fit into an object.
    Token,
    /// A publication that blocks or is in proxy mode, or its filters are too many, of another IP version, or beside a sender.
    Publication,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoApplication => "the NATFW application does not run on this node",
            Self::IdInUse => "a request with this identifier runs already",
            Self::TooMany => "too many requests",
            Self::NoRoute => "no route to the destination",
            Self::Address => "not two addresses of hosts of one IP version",
            Self::Ports => "ports need a protocol, and a second port needs a port",
            Self::Senders => {
                "senders with IPv6 addresses can be named on the reverse path of their packets only (path-coupled)"
            }
            Self::ProxySender => {
                "in proxy mode the edge asks in the place of one sender: give its address as the source of the flow, no network"
            }
            Self::IcmpTypes => "at most 255 types of ICMP messages",
            Self::Lifetime => "a lifetime of 1 s to 136 years is wanted",
            Self::Publication => {
                "a publication does not block and has no proxy; at most 8 filters of the IP version of the receiver, and no other sender with them"
            }
            Self::Token => "a token of 4 to 16,380 octets is wanted",
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) | Self::By { code, .. } => code.fmt(f),
            Self::NoResponse => f.write_str("no answer"),
            Self::NoNextNode => f.write_str("no other node of the path runs the application"),
            Self::NotSent(error) => error.fmt(f),
            Self::NotUpstream => f.write_str(NOT_UPSTREAM),
            Self::NoCreate => f.write_str(
                "the edge of the network granted, but its request in the place of the sender does not arrive here: a node between them \
                 stops it",
            ),
        }
    }
}
