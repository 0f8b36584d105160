//! Requests of clients that cannot be carried out.

use core::fmt;

/// Why a request of a client cannot be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Refused {
    /// No session of this name exists.
    NoSession,
    /// The session has no hop in this direction, or no such branch.
    NoHop,
    /// R and D are set together.
    ReverseDiscovery,
    /// The flow is of a form that is not valid, or not switched on.
    Flow,
    /// The destination is a multicast group.
    Multicast,
    /// The data are too long.
    TooLong,
    /// A table is full.
    Full,
    /// Delivery without state is switched off, the client does not take such messages, the session has state, or the request needs
    /// state; or a route cannot be read.
    Stateless,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSession => "no such session",
            Self::NoHop => "the session has no such hop",
            Self::ReverseDiscovery => "discovery against the data flow",
            Self::Flow => "a form of the flow that is not valid here",
            Self::Multicast => "multicast is not supported",
            Self::TooLong => "the data are too long",
            Self::Full => "a table is full",
            Self::Stateless => "delivery without state is not possible for this request",
        })
    }
}
