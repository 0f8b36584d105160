//! Inputs and outputs of the engine.

use core::fmt;
use core::net::IpAddr;

use signalbox_core::IfIndex;
use signalbox_core::hops::Path;
use signalbox_core::node::{Interface, NoRoute, Prefix, Route, RouteQuery};
use signalbox_core::packet::{Received, Transmit};
use signalbox_resources::{Cause, GrantId, LostWhy};

use crate::wire::{self, Rates};

/// An input of the engine.
#[derive(Debug)]
pub enum Input<'a> {
    /// Time passed: a deadline is due.
    Timer,
    /// An ICMP Echo with the magic number of Boomerang, passing or addressed to this node.
    Packet(Received<'a>),
    /// The whole list of the node's interfaces; given at the start and after each change.
    Interfaces(&'a [Interface]),
    /// The answer to [`Output::RouteLookup`].
    Route {
        /// Id of the lookup.
        id: u64,
        /// The route.
        result: Result<Route, NoRoute>,
    },
    /// Routes to these destinations may have changed.
    RouteChanged(Prefix),
    /// Another router may have the place of a neighbor, and no route changes. Anybody on the link can forge that; the driver limits its
    /// rate.
    NeighborMoved {
        /// The link.
        ifindex: IfIndex,
        /// Address of the neighbor.
        address: IpAddr,
    },
    /// The kernel's multicast route: the answer to [`Output::MulticastLookup`], given again after each change.
    Multicast {
        /// The group.
        group: IpAddr,
        /// Source of the packets.
        source: IpAddr,
        /// The interface by which the packets must come in.
        iif: IfIndex,
        /// The interfaces by which they leave; empty: they are not forwarded.
        oifs: &'a [IfIndex],
    },
    /// A packet to this destination could not be sent.
    NotSent(IpAddr),
    /// A command of a user.
    Command {
        /// The user's id of the session, given back with each event.
        id: u64,
        /// The command.
        command: Command,
    },
    /// A grant was lost.
    Lost {
        /// The owner's key.
        key: u64,
        /// The grant.
        grant: GrantId,
        /// The reason.
        why: LostWhy,
    },
}

/// An output of the engine.
#[derive(Debug)]
pub enum Output<'a> {
    /// Send this packet.
    Send(Transmit<'a>),
    /// Look up the route of a packet.
    RouteLookup {
        /// Id for the answer.
        id: u64,
        /// The packet.
        query: RouteQuery,
    },
    /// Look up the multicast route, and report its changes.
    MulticastLookup {
        /// The group.
        group: IpAddr,
        /// Source of the packets.
        source: IpAddr,
    },
    /// Do not report changes of this multicast route any more.
    MulticastRelease {
        /// The group.
        group: IpAddr,
        /// Source of the packets.
        source: IpAddr,
    },
    /// An event for a user.
    Event {
        /// The user's id of the session.
        id: u64,
        /// The event.
        event: BoomerangEvent,
    },
}

/// A command of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Command {
    /// Opens a session: this node is its initiating node.
    Open(Request),
    /// Asks what the path could reserve. Nothing is reserved.
    Query(Request),
    /// Asks for other rates.
    Change(Rates),
    /// Releases the reservation and ends the session.
    Close,
}

/// What a user wants reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Request {
    /// The far end: any host that answers pings, or a multicast group.
    pub far_end: IpAddr,
    /// Source of the data that travel to the far end; `None`: this node.
    pub src: Option<IpAddr>,
    /// Destination of these data; `None`: the far end.
    pub dst: Option<IpAddr>,
    /// IP protocol of the data; `None`: any.
    pub protocol: Option<u8>,
    /// Source port of the data to the far end; needs `protocol`.
    pub src_port: Option<u16>,
    /// Destination port of the data to the far end; needs `protocol`.
    pub dst_port: Option<u16>,
    /// Code point of the PHB, 0–63.
    pub dscp: u8,
    /// Rates, bit/s. Several pairs in decreasing order: the first that fits is granted.
    pub rates: Vec<Rates>,
    /// IntServ parameters of the flow; it then has one pair of rates, which are its token rates. `None`: the rates are all.
    #[cfg_attr(feature = "serde", serde(default))]
    pub intserv: Option<ServiceParameters>,
    /// Refresh interval to propose, seconds; `None`: that of the configuration, and 3 s for a group.
    pub refresh: Option<u8>,
    /// User of the option Boomerang_UID.
    pub user: Option<[u8; 8]>,
    /// The last event waits until the path has answered the release.
    #[cfg_attr(feature = "serde", serde(default))]
    pub confirm_release: bool,
    /// The nodes that grant it name themselves.
    #[cfg_attr(feature = "serde", serde(default))]
    pub name_nodes: bool,
}

/// IntServ parameters of a flow beside its token rates, in octets and octets a second (RFC 2210 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ServiceParameters {
    /// Depth of the token bucket.
    pub bucket: u32,
    /// Peak rate; `None`: no limit.
    pub peak: Option<u32>,
    /// Minimum policed unit.
    pub min_policed: u32,
    /// Maximum packet size.
    pub max_packet: u32,
    /// Rate and slack of guaranteed service, in octets a second and microseconds; `None`: controlled load.
    pub guaranteed: Option<(u32, u32)>,
}

/// An event for a user. [`BoomerangEvent::Rejected`], [`BoomerangEvent::Available`], [`BoomerangEvent::Refused`],
/// [`BoomerangEvent::Unanswered`], [`BoomerangEvent::Unreachable`] or [`BoomerangEvent::Closed`] is the last one of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum BoomerangEvent {
    /// The command cannot be carried out; nothing changed.
    Rejected(Rejected),
    /// The path reserved these rates in both directions, at first or after a change.
    Reserved {
        /// The rates, bit/s.
        rates: Rates,
        /// Interval of the refreshes, seconds.
        refresh: u8,
        /// Messages that it took.
        loops: u8,
        /// The nodes that granted it, if the request asked for them.
        #[cfg_attr(feature = "serde", serde(default))]
        path: Path,
    },
    /// What the path could reserve: the answer to a query.
    Available(Rates),
    /// A node of the path refused. What other nodes reserved is released.
    Refused(Refusal),
    /// A node of the path refused a change; the former reservation stands.
    ChangeRefused(Refusal),
    /// No reply: the path or the far end does not answer. What was reserved is released.
    Unanswered,
    /// A router of the path reported that the far end cannot be reached: about a first request, or about each message since the last
    /// reply. What was reserved is released.
    Unreachable(Unreachable),
    /// The session was closed by its user.
    Closed {
        /// The path answered the release: the user asked for it.
        confirmed: bool,
    },
}

/// A Destination Unreachable about a request of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Unreachable {
    /// The node that reported it.
    pub node: IpAddr,
    /// Its ICMP code.
    pub code: u8,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(wire::Unreachable::reason(self.code, self.node.is_ipv6()))
    }
}

/// A refusal as the path reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Refusal {
    /// What the path could grant, bit/s.
    pub offer: Rates,
    /// The node that refused; `None`: it did not report itself.
    pub node: Option<IpAddr>,
    /// Its reason.
    pub reason: Reason,
    /// The rule or limit that refused, if the node gives it.
    pub note: Option<String>,
}

/// Reason of a refusal. The numbers are those of the refusal option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Reason {
    /// Not known: the node has no option for it.
    Unknown,
    /// Not enough rate or buffer.
    Resources,
    /// A policy rule.
    Policy,
    /// The flow, the service or the format is not supported.
    Unsupported,
    /// Another reservation has the flow.
    Conflict,
    /// A table is full.
    Full,
    /// A field of the request is not valid.
    BadRequest,
    /// The request has no authentication that holds here.
    Unauthenticated,
    /// The message has no room for another proof of return.
    KeyFull,
    /// The node demands a proof of return in an option that the initiating node does not have.
    NoProof,
    /// Too many wrong proofs of return came.
    WrongProof,
    /// A stronger request preempted it.
    Preempted,
    /// The link has less to give than before.
    Reduced,
    /// The interface is gone.
    Gone,
    /// The kernel did not install it.
    Kernel,
    /// An administrator ended it.
    Ended,
}

impl Reason {
    const ALL: [Self; 16] = [
        Self::Unknown,
        Self::Resources,
        Self::Policy,
        Self::Unsupported,
        Self::Conflict,
        Self::Full,
        Self::BadRequest,
        Self::Unauthenticated,
        Self::KeyFull,
        Self::NoProof,
        Self::WrongProof,
        Self::Preempted,
        Self::Reduced,
        Self::Gone,
        Self::Kernel,
        Self::Ended,
    ];

    /// Its number in the refusal option.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Resources => 1,
            Self::Policy => 2,
            Self::Unsupported => 3,
            Self::Conflict => 4,
            Self::Full => 5,
            Self::BadRequest => 6,
            Self::Unauthenticated => 7,
            Self::KeyFull => 8,
            Self::NoProof => 9,
            Self::WrongProof => 10,
            Self::Preempted => 11,
            Self::Reduced => 12,
            Self::Gone => 13,
            Self::Kernel => 14,
            Self::Ended => 15,
        }
    }

    /// The reason of a number.
    #[must_use]
    pub fn of(number: u8) -> Self {
        Self::ALL.into_iter().find(|reason| reason.number() == number).unwrap_or(Self::Unknown)
    }

    /// The reason of a refusal by admission control.
    pub(super) const fn of_cause(cause: Cause) -> Self {
        match cause {
            Cause::Policy | Cause::Token => Self::Policy,
            Cause::Bandwidth | Cause::Buffer | Cause::Interface => Self::Resources,
            Cause::Mtu | Cause::BadRequest | Cause::NoGrant => Self::BadRequest,
            Cause::Unsupported => Self::Unsupported,
            Cause::Conflict => Self::Conflict,
            Cause::Full => Self::Full,
        }
    }

    /// The reason of a loss.
    pub(super) const fn of_loss(why: LostWhy) -> Self {
        match why {
            LostWhy::Preempted => Self::Preempted,
            LostWhy::KernelRefused(_) => Self::Kernel,
            LostWhy::InterfaceGone => Self::Gone,
            LostWhy::CapacityReduced => Self::Reduced,
            LostWhy::Deleted => Self::Ended,
            LostWhy::Rules => Self::Policy,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "reason not reported",
            Self::Resources => "not enough resources",
            Self::Policy => "forbidden by policy",
            Self::Unsupported => "flow or service not supported",
            Self::Conflict => "another reservation has the flow",
            Self::Full => "a table is full",
            Self::BadRequest => "bad request",
            Self::Unauthenticated => "not authenticated by a key of the domain",
            Self::KeyFull => {
                "too many routers of the path demand a proof of return: let fewer demand it (boomerang.prove_return)"
            }
            Self::NoProof => {
                "the router demands a proof of return by an option that the initiating node does not have: with boomerang.provers = 1 the KEY is enough"
            }
            Self::WrongProof => "too many wrong proofs of return came about this flow or from this side",
            Self::Preempted => "preempted by a stronger request",
            Self::Reduced => "the interface has less to give than before",
            Self::Gone => "the interface is gone",
            Self::Kernel => "the kernel did not install it",
            Self::Ended => "an administrator ended it",
        })
    }
}

/// Reason why a command cannot be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Rejected {
    /// Boomerang is not running on this node.
    NotRunning,
    /// No session has this id.
    NoSession,
    /// Another session has this id.
    NameTaken,
    /// The addresses are of different IP versions, or not those of hosts.
    Address,
    /// A port without a protocol.
    Ports,
    /// No rate, more than 32 pairs, or a pair that exceeds the one before it.
    Rates,
    /// IntServ parameters that no service has, or beside a list of rates.
    Parameters,
    /// A refresh interval of 0.
    Refresh,
    /// No code point.
    Dscp,
    /// A rate from a group, or a query to one: nothing comes back from it.
    Group,
    /// There is no route to the far end.
    NoRoute,
    /// Another session of this node has the flow.
    FlowTaken,
    /// The table of sessions is full.
    Full,
    /// The request exceeds the MTU of the link to the first node of the path.
    TooLong,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRunning => "this node does not run Boomerang",
            Self::NoSession => "no such session",
            Self::NameTaken => "another session has this name",
            Self::Address => "addresses of different IP versions, or not of hosts",
            Self::Ports => "a port without a protocol",
            Self::Rates => "no list of rates in decreasing order",
            Self::Parameters => "no IntServ parameters (RFC 2210), or beside a list of rates",
            Self::Refresh => "a refresh interval of 0",
            Self::Dscp => "not a code point from 0 to 63",
            Self::Group => {
                "nothing comes back from a group: ask for one direction, and reserve instead of a query"
            }
            Self::NoRoute => "no route to the far end",
            Self::FlowTaken => "another session of this node reserves for the flow: change that one",
            Self::Full => "the table of sessions is full",
            Self::TooLong => "the request exceeds the MTU of the link to the first node: fewer rates",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_number_of_its_own() {
        for reason in Reason::ALL {
            assert_eq!(Reason::of(reason.number()), reason);
        }
        assert_eq!(Reason::of(200), Reason::Unknown);
    }
}
