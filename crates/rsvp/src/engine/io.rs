//! Inputs and outputs of the engine.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use signalbox_core::IfIndex;
use signalbox_core::handover::Entries;
use signalbox_core::node::{Interface, NoRoute, Prefix, Route, RouteQuery};
use signalbox_resources::intserv::TSpec;
use signalbox_resources::{GrantId, LostWhy};
use signalbox_wire::hops::Path;

use crate::engine::packet::{IpReceived, IpTransmit};
use crate::wire::{ErrorSpec, Filter, FlowSpec, Session, Style, UserError};

/// An input of the engine.
#[derive(Debug)]
pub enum Input<'a> {
    /// Time passed: a deadline is due.
    Timer,
    /// A packet of IP protocol 46.
    Packet(IpReceived<'a>),
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
    /// Another router may have the place of this neighbor, at the same address of the same link.
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
        /// The source.
        source: IpAddr,
        /// Expected incoming interface; [`IfIndex::NONE`]: the source is this node, or there is no route.
        iif: IfIndex,
        /// Outgoing interfaces.
        oifs: &'a [IfIndex],
    },
    /// A command of an application.
    Command {
        /// The application's id of its session, given back with each event: the Session-id of RFC 2205 §3.11.1.
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
    /// A grant was reduced for a stronger request (RFC 4495).
    Reduced {
        /// The owner's key.
        key: u64,
        /// The grant.
        grant: GrantId,
        /// The rate that is left, octets a second.
        rate: u64,
    },
    /// What [`Rsvp::hand_over`](super::Rsvp::hand_over) of the engine before this one wrote. It comes after the first
    /// [`Input::Interfaces`].
    Handover(Entries),
    /// An interface gets another refresh period R. The period shrinks at once and grows by `slew_max` at a time.
    Refresh {
        /// The interface.
        ifindex: IfIndex,
        /// The refresh period.
        period: Duration,
    },
}

/// An output of the engine.
#[derive(Debug)]
pub enum Output<'a> {
    /// Send this packet of IP protocol 46.
    Send(IpTransmit<'a>),
    /// Send this diagnostic reply to its requester by UDP (RFC 2745 §6).
    Reply {
        /// Address of this node, and source port.
        src: SocketAddr,
        /// The requester.
        dst: SocketAddr,
        /// TOS octet or traffic class.
        tos: u8,
        /// A whole DREP.
        payload: &'a [u8],
    },
    /// Look up the route of a packet of this flow.
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
        /// The source.
        source: IpAddr,
    },
    /// Do not report changes of this multicast route any more.
    MulticastRelease {
        /// The group.
        group: IpAddr,
        /// The source.
        source: IpAddr,
    },
    /// An event for an application.
    Event {
        /// The application's id of the session.
        id: u64,
        /// The event.
        event: RsvpEvent,
    },
}

/// A command of an application (RFC 2205 §3.11.1). A session is registered first; the other commands use its id.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Command {
    /// Registers a session.
    Session(Session),
    /// Announces a sender of the session, or changes it: Paths are sent from now on.
    Sender(SenderRequest),
    /// Reserves, or changes the reservation. It waits for the senders that it names.
    Reserve(ReserveRequest),
    /// Names the interface with this address as the one by which data of a multicast session are received. By default
    /// it is the one that routing, or the first Path, gives (RFC 2205 §3.9).
    ReceiveAt(IpAddr),
    /// Withdraws the sender: PathTear.
    ReleaseSender,
    /// Withdraws the reservation: ResvTear.
    ReleaseReservation,
    /// Withdraws everything and removes the session.
    Close,
    /// Ends path state that came from other nodes, for an administrator: PathTears go downstream, reservations for the senders end. It
    /// comes again with the next Path. It needs no registered session.
    EndSenders {
        /// The session.
        session: Session,
        /// The source of the data; `None`: all senders of the session.
        source: Option<IpAddr>,
    },
    /// Forgets what is known of a neighbor, for an administrator: it gets whole messages, as a new one. State that it sent, and what
    /// is reserved, stays. It needs no registered session.
    ForgetNeighbor {
        /// Its address.
        neighbor: IpAddr,
        /// Its interface; `None`: all.
        ifindex: Option<IfIndex>,
    },
}

/// A sender of this node.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SenderRequest {
    /// Source of the data: an address of this node, and the selector of its packets.
    pub template: Filter,
    /// Traffic of the sender.
    pub tspec: TSpec,
    /// Paths carry an ADSPEC, by which receivers learn the services of the path (RFC 2210).
    pub adspec: bool,
    /// TTL of the data, 1 to 255: Paths reach no farther (RFC 2205 §3.11.1).
    pub ttl: u8,
    /// POLICY_DATA objects, whole, one after the other; empty for none.
    pub policy: Box<[u8]>,
    /// A second reservation is held ready along the backup route, where the nodes have one.
    #[cfg_attr(feature = "serde", serde(default))]
    pub protect: bool,
    /// The nodes that grant a reservation name themselves.
    #[cfg_attr(feature = "serde", serde(default))]
    pub name_nodes: bool,
}

impl SenderRequest {
    /// TTL of data by default: that of Linux after the first router.
    pub const TTL: u8 = 63;

    /// A sender whose Paths carry an ADSPEC, without POLICY_DATA and options.
    #[must_use]
    pub fn new(template: Filter, tspec: TSpec) -> Self {
        Self {
            template,
            tspec,
            adspec: true,
            ttl: Self::TTL,
            policy: Box::default(),
            protect: false,
            name_nodes: false,
        }
    }
}

/// A reservation of this node.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReserveRequest {
    /// The style.
    pub style: Style,
    /// The requests: one with WF (without senders) and SE, one for each sender with FF.
    pub flows: Vec<FlowRequest>,
    /// A confirmation is requested.
    pub confirm: bool,
    /// POLICY_DATA objects, whole, one after the other; empty for none.
    pub policy: Box<[u8]>,
}

/// A flowspec for some senders.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FlowRequest {
    /// The flowspec.
    pub flowspec: FlowSpec,
    /// The senders; none with WF, one with FF.
    pub senders: Vec<Filter>,
}

/// An event for an application. Path and reservation events are sent after a change, errors and confirmations each time
/// (RFC 2205 §3.11.1).
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RsvpEvent {
    /// The command cannot be carried out; nothing changed.
    Refused(Refused),
    /// PATH_EVENT: a sender is new or has changed.
    Path {
        /// The sender.
        sender: Filter,
        /// Its traffic.
        tspec: TSpec,
        /// Contents of the ADSPEC object at this node; empty if there is none.
        adspec: Box<[u8]>,
        /// POLICY_DATA objects; empty for none.
        policy: Box<[u8]>,
        /// A hop without RSVP or integrated services lies on the path, by the break bit of the ADSPEC or by a TTL.
        broken: bool,
    },
    /// A sender is gone.
    PathGone {
        /// The sender.
        sender: Filter,
    },
    /// RESV_EVENT: the reservation for the sender of this node is new or has changed.
    Resv {
        /// The style.
        style: Style,
        /// The effective flowspec at the outgoing interface.
        flowspec: FlowSpec,
        /// The senders; none with WF.
        senders: Vec<Filter>,
        /// POLICY_DATA objects of the requests; empty for none.
        policy: Box<[u8]>,
        /// The nodes that granted it, if the sender asked for them. With several receivers they are those on the way to one.
        #[cfg_attr(feature = "serde", serde(default))]
        path: Path,
    },
    /// No reservation is left for the sender of this node.
    ResvGone {
        /// The sender.
        sender: Filter,
    },
    /// PATH_ERROR: a PathErr for the sender of this node.
    PathError {
        /// Code, value and reporting node.
        error: ErrorSpec,
        /// The sender.
        sender: Filter,
        /// POLICY_DATA objects; empty for none.
        policy: Box<[u8]>,
    },
    /// RESV_ERROR: a ResvErr for the reservation of this node.
    ResvError {
        /// Code, value, flags and reporting node.
        error: ErrorSpec,
        /// What the reporting node adds.
        told: UserError,
        /// The style.
        style: Style,
        /// The flowspec that failed, if the message had one.
        flowspec: Option<FlowSpec>,
        /// The senders; none with WF.
        senders: Vec<Filter>,
        /// POLICY_DATA objects; empty for none.
        policy: Box<[u8]>,
    },
    /// RESV_CONFIRM: the reservation is probably in place up to `node`, but an error may still follow.
    Confirmed {
        /// The node that confirms.
        node: IpAddr,
        /// The style.
        style: Style,
        /// The confirmed flowspec, if the message had one.
        flowspec: Option<FlowSpec>,
        /// The senders; none with WF.
        senders: Vec<Filter>,
    },
    /// The answer to [`Command::EndSenders`].
    SendersEnded {
        /// How many path states ended.
        senders: u32,
        /// There are more: the command ends a part of them.
        more: bool,
    },
    /// The answer to [`Command::ForgetNeighbor`].
    NeighborForgotten {
        /// The number of interfaces where it was known.
        interfaces: u32,
    },
}

/// Reason why a command cannot be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Refused {
    /// RSVP is not running on this node.
    NotRunning,
    /// No session is registered under this id.
    NoSession,
    /// Another session is registered under this id.
    NameTaken,
    /// The session is not valid: its destination or protocol is zero.
    BadSession,
    /// Virtual ports are for ESP (50) and AH (51) only (RFC 2207 §4).
    NoGpi,
    /// A virtual port of 0 (RFC 2207 §4).
    BadPort,
    /// A sender with a port in a session of SPIs, or the other way round (RFC 2207 §4).
    ConflictingTypes,
    /// A zero and a non-zero port for the same destination and protocol, or for the same sender (RFC 2205 §3.2).
    ConflictingPorts,
    /// The source is not an address of this node, or of another IP version than the destination.
    BadSource,
    /// The address is not that of an interface of this node, or of another IP version than the session.
    BadReceiver,
    /// The source belongs to another sender, or differs from the one announced before.
    SenderTaken,
    /// The list of flows does not fit the style.
    BadFlows,
    /// Another style is in place in the session.
    ConflictingStyle,
    /// The flowspec or Tspec is not valid, or is for another service than the one that it would be merged with.
    BadFlowspec,
    /// The senders do not offer the service, or not all of them (RFC 2210 §2.2).
    NotOffered,
    /// The policy is not a list of whole POLICY_DATA objects, or is too long.
    BadPolicy,
    /// There is nothing to withdraw.
    NothingToRelease,
    /// A table of this node is full.
    Full,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRunning => "this node does not run RSVP",
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
            Self::ConflictingStyle => "another style is in place in the session",
            Self::BadFlowspec => "no such flowspec can be, or not together with those in place",
            Self::NotOffered => "the senders do not offer this service",
            Self::BadPolicy => "policy data that are no whole objects, or too many",
            Self::NothingToRelease => "nothing to release",
            Self::Full => "a table of this node is full",
        })
    }
}
