//! Commands of users.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::SessionId;
use signalbox_core::node::Prefix;

use crate::wire::Filter;

/// A command of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Command {
    /// Open the path for a flow that this host sends: CREATE. The identifier must be free.
    Open(OpenRequest),
    /// Let others reach this host, or stop them: EXTERNAL.
    Expose(ExposeRequest),
    /// End a request. Nothing happens if it does not run.
    Close,
    /// End a session for an administrator, whoever asked for it. Nothing happens if there is none.
    Delete(SessionId),
}

/// Options that all requests have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct Options {
    /// Lifetime to request; `None`: that of the configuration.
    pub lifetime: Option<Duration>,
    /// Also the following port (RFC 5973 §4.2.4, sub_ports).
    pub second_port: bool,
    /// Types of ICMP messages, at most 255.
    pub icmp_types: Vec<u8>,
    /// Proxy mode: the edge answers for the other end (RFC 5973 §3.7.6).
    pub proxy: bool,
    /// In proxy mode the edge also sends the request on.
    pub extend: bool,
    /// Attributes of a SESSION_AUTH object (RFC 5981 §3.2), by which nodes on the path authorize the request.
    pub token: Option<Vec<u8>>,
}

/// A request for the path of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct OpenRequest {
    /// Source of the flow; `None`: this node's address on the route to `dst`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub src: Option<IpAddr>,
    /// Destination of the flow.
    pub dst: IpAddr,
    /// IP protocol.
    #[cfg_attr(feature = "serde", serde(default))]
    pub protocol: Option<u8>,
    /// Source port; needs `protocol`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub src_port: Option<u16>,
    /// Destination port; needs `protocol`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub dst_port: Option<u16>,
    /// Options.
    #[cfg_attr(feature = "serde", serde(default))]
    pub options: Options,
}

/// A request to be reached, or not to be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ExposeRequest {
    /// Address of the receiver; `None`: this node's address on the route to `towards`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub address: Option<IpAddr>,
    /// IP protocol.
    pub protocol: u8,
    /// Port of the receiver.
    pub port: u16,
    /// Senders that are meant; `None`: all.
    #[cfg_attr(feature = "serde", serde(default))]
    pub from: Option<Prefix>,
    /// Port of the senders; `None`: any.
    #[cfg_attr(feature = "serde", serde(default))]
    pub from_port: Option<u16>,
    /// The address towards which the message travels, in the outermost network (RFC 5973 Appendix A).
    pub towards: IpAddr,
    /// The message follows the reverse path of the data, not the loose-end method: for hosts behind firewalls only.
    #[cfg_attr(feature = "serde", serde(default))]
    pub path_coupled: bool,
    /// Block the senders.
    #[cfg_attr(feature = "serde", serde(default))]
    pub block: bool,
    /// All these senders reach the receiver at once, without a request of their own.
    #[cfg_attr(feature = "serde", serde(default))]
    pub publish: Option<Publish>,
    /// Ask for the addresses of all NATs on the path (RFC 5973 §4.2.3).
    #[cfg_attr(feature = "serde", serde(default))]
    pub bindings: bool,
    /// Options.
    #[cfg_attr(feature = "serde", serde(default))]
    pub options: Options,
}

/// How a receiver is to be reached without a request of its senders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct Publish {
    /// The external address that is wished for; `None`: any.
    pub address: Option<Ipv4Addr>,
    /// The external port that is wished for; `None`: any.
    pub port: Option<u16>,
    /// Nothing but the wish will do.
    pub exactly: bool,
    /// Senders that are meant, if [`ExposeRequest::from`] names none; empty: all.
    pub filters: Vec<Filter>,
}
