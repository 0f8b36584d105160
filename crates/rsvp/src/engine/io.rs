//! What goes in and out.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use signalbox_core::IfIndex;
use signalbox_core::node::{Interface, NoRoute, Prefix, Route, RouteQuery};
use signalbox_core::packet::{IpReceived, IpTransmit};
use signalbox_resources::intserv::TSpec;
use signalbox_resources::{GrantId, LostWhy};

use crate::wire::{ErrorSpec, Filter, FlowSpec, Session, Style};

/// What comes in.
#[derive(Debug)]
pub enum Input<'a> {
    /// Nothing but the time: a deadline is due.
    Timer,
    /// A packet of IP protocol 46.
    Packet(IpReceived<'a>),
    /// The node's interfaces, whole; given at the start and after each change.
    Interfaces(&'a [Interface]),
    /// The answer to [`Output::RouteLookup`].
    Route {
        /// Its id.
        id: u64,
        /// Where the packets go.
        result: Result<Route, NoRoute>,
    },
    /// Routes to these destinations may have changed.
    RouteChanged(Prefix),
    /// The kernel's multicast route: the answer to [`Output::MulticastLookup`], and again after each change of it.
    Multicast {
        /// The group.
        group: IpAddr,
        /// Who sends to it.
        source: IpAddr,
        /// Interface by which such packets must come in; [`IfIndex::NONE`] where the source is this node, and where
        /// there is no route.
        iif: IfIndex,
        /// Interfaces by which they go out.
        oifs: &'a [IfIndex],
    },
    /// An application wants something.
    Command {
        /// The application's name for its session, given back with each event: the Session-id of RFC 2205 §3.11.1.
        id: u64,
        /// What is wanted.
        command: Command,
    },
    /// A grant of ours is no more.
    Lost {
        /// Our name of its owner.
        key: u64,
        /// Which one.
        grant: GrantId,
        /// Why.
        why: LostWhy,
    },
    /// A part of a grant of ours was taken for a stronger request (RFC 4495).
    Reduced {
        /// Our name of its owner.
        key: u64,
        /// Which one.
        grant: GrantId,
        /// What is left, octets a second.
        rate: u64,
    },
    /// An interface is to have another refresh period R. It shrinks at once and grows by its `slew_max` at a time.
    Refresh {
        /// Which one.
        ifindex: IfIndex,
        /// R.
        period: Duration,
    },
}

/// What goes out.
#[derive(Debug)]
pub enum Output<'a> {
    /// Send this packet of IP protocol 46.
    Send(IpTransmit<'a>),
    /// Send this reply to a diagnosis to whoever asked, by UDP (RFC 2745 §6).
    Reply {
        /// An address of this node, and the port to leave by.
        src: SocketAddr,
        /// The requester.
        dst: SocketAddr,
        /// TOS octet or traffic class.
        tos: u8,
        /// A DREP, whole.
        payload: &'a [u8],
    },
    /// Find the route that a packet of this flow would take.
    RouteLookup {
        /// To be given back with the answer.
        id: u64,
        /// Which packet.
        query: RouteQuery,
    },
    /// Find the multicast route, and tell whenever it changes.
    MulticastLookup {
        /// The group.
        group: IpAddr,
        /// Who sends to it.
        source: IpAddr,
    },
    /// An application hears something.
    Event {
        /// Its name for the session.
        id: u64,
        /// What happened.
        event: RsvpEvent,
    },
}

/// What an application asks for (RFC 2205 §3.11.1). A session is registered first, under a name that the others use.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Command {
    /// Registers a session.
    Session(Session),
    /// Announces a sender of the session, or changes what was announced: Paths go out from now on.
    Sender(SenderRequest),
    /// Reserves, or changes what was reserved. It waits for the senders that it names, if need be.
    Reserve(ReserveRequest),
    /// Of a multicast session: data are received at the interface with this address, where the group was joined. Without
    /// it that is where routing, or the first Path, says (RFC 2205 §3.9).
    ReceiveAt(IpAddr),
    /// Withdraws the sender: PathTear.
    ReleaseSender,
    /// Withdraws the reservation: ResvTear.
    ReleaseReservation,
    /// Withdraws everything and forgets the session.
    Close,
}

/// A sender of this node.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SenderRequest {
    /// Source of the data: an address of this node, and what tells its packets from others.
    pub template: Filter,
    /// The traffic.
    pub tspec: TSpec,
    /// Whether Paths carry an ADSPEC, which tells receivers what the path can do.
    pub adspec: bool,
    /// TTL of the data, 1–255: Paths reach no farther (RFC 2205 §3.11.1).
    pub ttl: u8,
    /// POLICY_DATA objects, whole, one after the other; empty for none.
    pub policy: Box<[u8]>,
}

/// A reservation of this node.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReserveRequest {
    /// The style.
    pub style: Style,
    /// What is asked for: one of WF (without senders) and SE, one for each sender of FF.
    pub flows: Vec<FlowRequest>,
    /// Whether a confirmation is asked for.
    pub confirm: bool,
    /// POLICY_DATA objects, whole, one after the other; empty for none.
    pub policy: Box<[u8]>,
}

/// What is asked for which senders.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FlowRequest {
    /// The flowspec.
    pub flowspec: FlowSpec,
    /// The senders; none of WF, one of FF.
    pub senders: Vec<Filter>,
}

/// What an application hears. Path and reservation events come when something is new or has changed, errors and
/// confirmations each time (RFC 2205 §3.11.1).
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RsvpEvent {
    /// The command cannot be carried out; what stood stands.
    Refused(Refused),
    /// PATH_EVENT: a sender is there, or has changed.
    Path {
        /// Which one.
        sender: Filter,
        /// Its traffic.
        tspec: TSpec,
        /// The ADSPEC object's content as it arrived here; empty if there was none.
        adspec: Box<[u8]>,
        /// POLICY_DATA objects; empty for none.
        policy: Box<[u8]>,
        /// Somewhere on the way is a hop without RSVP or integrated services: the ADSPEC's break bit, or a TTL.
        broken: bool,
    },
    /// A sender is gone.
    PathGone {
        /// Which one.
        sender: Filter,
    },
    /// RESV_EVENT: what is reserved for the sender of this node is new or has changed.
    Resv {
        /// The style.
        style: Style,
        /// The effective flowspec at the interface by which the data leave.
        flowspec: FlowSpec,
        /// For which senders; none of WF.
        senders: Vec<Filter>,
        /// POLICY_DATA objects of those who asked; empty for none.
        policy: Box<[u8]>,
    },
    /// Nothing is reserved for the sender of this node any more.
    ResvGone {
        /// Which sender.
        sender: Filter,
    },
    /// PATH_ERROR.
    PathError {
        /// Code, value and the node that says it.
        error: ErrorSpec,
        /// The sender that it is about.
        sender: Filter,
        /// POLICY_DATA objects; empty for none.
        policy: Box<[u8]>,
    },
    /// RESV_ERROR.
    ResvError {
        /// Code, value, flags and the node that says it.
        error: ErrorSpec,
        /// The style.
        style: Style,
        /// The flowspec that failed, if the message had one.
        flowspec: Option<FlowSpec>,
        /// For which senders; none of WF.
        senders: Vec<Filter>,
        /// POLICY_DATA objects; empty for none.
        policy: Box<[u8]>,
    },
    /// RESV_CONFIRM: the reservation probably stands all the way up to `node`, but an error may still follow.
    Confirmed {
        /// The node that confirms.
        node: IpAddr,
        /// The style.
        style: Style,
        /// What is confirmed, if the message had it.
        flowspec: Option<FlowSpec>,
        /// For which senders; none of WF.
        senders: Vec<Filter>,
    },
}

/// Why a command cannot be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Refused {
    /// This node does not speak RSVP.
    NotRunning,
    /// No session is registered under that name.
    NoSession,
    /// Another session is registered under that name.
    NameTaken,
    /// The session cannot be: its destination or protocol is zero, or the port is no port of that protocol.
    BadSession,
    /// Virtual ports are for ESP (50) and AH (51) only (RFC 2207 §4).
    NoGpi,
    /// A virtual port of 0 (RFC 2207 §4).
    BadPort,
    /// Ports in a session of SPIs, or the other way round (RFC 2207 §4).
    ConflictingTypes,
    /// Zero and other ports for the same destination and protocol, or the same sender (RFC 2205 §3.2).
    ConflictingPorts,
    /// The source is no address of this node, or of another IP version than the destination.
    BadSource,
    /// Not the address of an interface of this node, or of another IP version than the session.
    BadReceiver,
    /// The source is that of another sender already, or a sender cannot change its source.
    SenderTaken,
    /// The list of flows does not suit the style.
    BadFlows,
    /// Another style is in iface in the session.
    ConflictingStyle,
    /// The flowspec or traffic specification is none, or is for another service than what it would be merged with.
    BadFlowspec,
    /// The senders do not offer the service, or not all of them (RFC 2210 §2.2).
    NotOffered,
    /// POLICY_DATA that is no list of whole objects, or too long.
    BadPolicy,
    /// There is nothing to withdraw.
    NothingToRelease,
    /// A table of this node is full.
    Full,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRunning => "this node does not speak RSVP",
            Self::NoSession => "no such session",
            Self::NameTaken => "another session has this name",
            Self::BadSession => "no such session can be",
            Self::NoGpi => "virtual ports are for ESP and AH only",
            Self::BadPort => "a virtual destination port of 0",
            Self::ConflictingTypes => "senders by port in a session of SPIs, or the other way round",
            Self::ConflictingPorts => "zero and other ports of one destination or sender",
            Self::BadSource => "the source is not an address of this node that can reach the destination",
            Self::BadReceiver => "the receiver's address is not that of an interface here",
            Self::SenderTaken => "the sender is announced already, or was announced with another source",
            Self::BadFlows => "the list of flows does not suit the style",
            Self::ConflictingStyle => "another style is in iface in the session",
            Self::BadFlowspec => "no such flowspec can be, or not together with those in iface",
            Self::NotOffered => "the senders do not offer this service",
            Self::BadPolicy => "policy data that are no whole objects, or too many",
            Self::NothingToRelease => "nothing to release",
            Self::Full => "a table of this node is full",
        })
    }
}
