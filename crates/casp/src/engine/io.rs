//! Inputs and outputs of the engine, and the contract between the messaging layer and its clients.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use signalbox_core::node::{Interface, NoRoute, Prefix, Route, RouteQuery, StreamId};
use signalbox_core::octets::Octets;
use signalbox_core::packet::{Received, Transmit};
use signalbox_core::security::Identity;
use signalbox_core::{IfIndex, SessionId};

use super::refused::Refused;
use crate::wire::{ClientType, ErrorCode, FlowId};

/// A transport of messages between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Transport {
    /// A TCP connection.
    Tcp,
    /// TLS over TCP, with the certificates of both nodes.
    Tls,
    /// An SCTP association.
    Sctp,
    /// UDP datagrams, for messages of at most 512 octets. Longer ones, and those beyond the rate, use TCP.
    Udp,
}

impl Transport {
    /// Whether messages have a Length Header.
    #[must_use]
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Tcp | Self::Tls)
    }
}

/// An input of the engine.
#[derive(Debug)]
pub enum Input<'a> {
    /// Time passed: a deadline is due.
    Timer,
    /// A datagram at the port of messages or of scout, for this node or intercepted.
    Packet(Received<'a>),
    /// The whole list of the node's interfaces; given at the start and after each change. The driver then closes the
    /// connections from addresses that the node has no longer.
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
    /// A router or host reported that a Scout Request cannot be delivered.
    Unreachable {
        /// The payload of the packet that the report quotes, as far as it quotes it.
        quoted: &'a [u8],
    },
    /// The answer to [`Output::Discover`].
    Discovered {
        /// Id of the discovery.
        id: u64,
        /// The next node; `None`: the mechanism found no node.
        address: Option<IpAddr>,
    },
    /// A node connected to this one. With TLS its handshake is over.
    Accepted {
        /// Id of the stream, even.
        stream: StreamId,
        /// Its transport.
        transport: Transport,
        /// The address of this node that the peer connected to.
        local: IpAddr,
        /// The address of the peer.
        peer: SocketAddr,
        /// Its authenticated identity.
        identity: Option<Arc<Identity>>,
    },
    /// The address of this node that the driver chose for an [`Output::Open`] without one. It comes before the stream is connected.
    Opening {
        /// Id of the stream.
        stream: StreamId,
        /// The address.
        local: IpAddr,
    },
    /// [`Output::Open`] succeeded. With TLS its handshake is over.
    Connected {
        /// Id of the stream.
        stream: StreamId,
        /// The authenticated identity of the peer.
        identity: Option<Arc<Identity>>,
    },
    /// Octets of a stream in pieces of any size; with SCTP one message.
    Octets {
        /// Id of the stream.
        stream: StreamId,
        /// The octets.
        octets: &'a [u8],
    },
    /// The number of octets that are written and not yet sent.
    Drained {
        /// Id of the stream.
        stream: StreamId,
        /// The octets.
        unsent: usize,
    },
    /// A stream ended, or could not be opened.
    Closed {
        /// Id of the stream.
        stream: StreamId,
    },
    /// A request of a client of this node.
    Request {
        /// The client.
        client: ClientType,
        /// The request.
        request: Request<'a>,
    },
}

/// An output of the engine.
#[derive(Debug)]
pub enum Output<'a> {
    /// Send this datagram.
    Send(Transmit<'a>),
    /// Look up the route of a packet.
    RouteLookup {
        /// Id for the answer.
        id: u64,
        /// The packet.
        query: RouteQuery,
    },
    /// Ask a mechanism outside of the engine for the next node.
    Discover {
        /// Id for the answer.
        id: u64,
        /// Number of the mechanism.
        mechanism: u8,
        /// Destination of the data.
        dst: IpAddr,
    },
    /// Open a connection.
    Open {
        /// Id of the stream, odd.
        stream: StreamId,
        /// Its transport.
        transport: Transport,
        /// Source address; `None`: any.
        local: Option<IpAddr>,
        /// Address and port of the peer.
        peer: SocketAddr,
    },
    /// Write to a connected stream; with SCTP one message.
    Write {
        /// Id of the stream.
        stream: StreamId,
        /// The octets.
        octets: &'a [u8],
    },
    /// Close a stream, after what was written to it.
    Close {
        /// Id of the stream.
        stream: StreamId,
    },
    /// Something that a client of this node must know.
    Indication {
        /// The client.
        client: ClientType,
        /// What it is.
        indication: Indication<'a>,
    },
}

/// Who takes the next output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The driver: [`Output::Send`] or [`Output::RouteLookup`].
    Driver,
    /// This stream: [`Output::Write`].
    Write(StreamId),
    /// The streams: [`Output::Open`] or [`Output::Close`].
    Stream,
    /// A mechanism outside of the engine: [`Output::Discover`].
    Discover,
    /// This client: [`Output::Indication`].
    Client(ClientType),
}

/// A request of a client inside of the process, which lends its octets.
pub type Request<'a> = RequestOf<&'a [u8]>;
/// A request of a client of another process.
pub type OwnedRequest = RequestOf<Octets>;

/// A request of a client to the messaging layer; `D` is how it holds octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum RequestOf<D> {
    /// Sends a message.
    Send(SendRequestOf<D>),
    /// The verdict on a message that [`Indication::Received`] announced.
    Verdict {
        /// Its id.
        id: u64,
        /// The verdict.
        verdict: VerdictOf<D>,
    },
    /// The client needs a session of this node, or needs it no longer. Sessions that a client needs are refreshed.
    Hold {
        /// The session.
        session: SessionId,
        /// The flow.
        flow: FlowId,
        /// Whether the client needs it.
        on: bool,
    },
    /// The address of this node changed: the session goes on with another flow, and the old branch is torn down as soon as
    /// the first message left for the new one.
    Move {
        /// The session.
        session: SessionId,
        /// Its flow up to now.
        from: FlowId,
        /// Its flow from now on.
        to: FlowId,
    },
    /// The client is a NAT: from now on, the next hops of a session see another flow with the same destination. FLOW_ID is
    /// rewritten in messages to them, and back in messages from them. Indications have the flow of the previous hops. With the
    /// flow of the session itself nothing is rewritten any more.
    Translate {
        /// The session.
        session: SessionId,
        /// The flow, as the previous hops see it.
        flow: FlowId,
        /// The flow, as the next hops see it.
        outer: FlowId,
    },
    /// Old branches of a session are not torn down; they expire.
    KeepBranches {
        /// The session.
        session: SessionId,
        /// The flow.
        flow: FlowId,
    },
}

/// A message of a client inside of the process.
pub type SendRequest<'a> = SendRequestOf<&'a [u8]>;

/// A message that a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct SendRequestOf<D> {
    /// Given back with [`Indication::Opened`] and [`Indication::Refused`].
    pub tag: u64,
    /// The session; `None`: a new one.
    pub session: Option<SessionId>,
    /// The data flow.
    pub flow: FlowId,
    /// Against the data flow. It needs state.
    pub reverse: bool,
    /// Removes the session.
    pub tear_down: bool,
    /// Each node discovers its next hop again.
    pub discover: bool,
    /// The session is refreshed until the client no longer holds it.
    pub hold: bool,
    /// The branch to send to; `None`: the most recent one.
    pub branch: Option<u16>,
    /// How many nodes the message may reach; `None`: 64.
    pub ttd: Option<u8>,
    /// The message is delivered without state: each node of the path appends itself to it, and keeps nothing. Neither does this
    /// one, so that nothing is refreshed or torn down.
    #[cfg_attr(feature = "serde", serde(default))]
    pub record_route: bool,
    /// An answer to a message with [`ArrivalOf::route`]: these octets of it. The answer is against the data flow.
    pub route: Option<D>,
    /// The client's octets; `None`: a message that only concerns state.
    pub data: Option<D>,
}

impl<D> SendRequestOf<D> {
    /// A message with data, along the flow, of a session that may not exist yet.
    #[must_use]
    pub const fn new(session: Option<SessionId>, flow: FlowId, data: D) -> Self {
        Self {
            tag: 0,
            session,
            flow,
            reverse: false,
            tear_down: false,
            discover: false,
            hold: false,
            branch: None,
            ttd: None,
            record_route: false,
            route: None,
            data: Some(data),
        }
    }
}

impl OwnedRequest {
    /// The request with its octets lent.
    #[must_use]
    pub fn lend(&self) -> Request<'_> {
        match self {
            Self::Send(send) => Request::Send(SendRequest {
                tag: send.tag,
                session: send.session,
                flow: send.flow,
                reverse: send.reverse,
                tear_down: send.tear_down,
                discover: send.discover,
                hold: send.hold,
                branch: send.branch,
                ttd: send.ttd,
                record_route: send.record_route,
                route: send.route.as_ref().map(Octets::as_slice),
                data: send.data.as_ref().map(Octets::as_slice),
            }),
            Self::Verdict { id, verdict } => Request::Verdict {
                id: *id,
                verdict: match verdict {
                    VerdictOf::Forward => Verdict::Forward,
                    VerdictOf::Replace(data) => Verdict::Replace(data.as_slice()),
                    VerdictOf::Consume => Verdict::Consume,
                },
            },
            Self::Hold { session, flow, on } => Request::Hold { session: *session, flow: *flow, on: *on },
            Self::Move { session, from, to } => Request::Move { session: *session, from: *from, to: *to },
            Self::Translate { session, flow, outer } => {
                Request::Translate { session: *session, flow: *flow, outer: *outer }
            }
            Self::KeepBranches { session, flow } => Request::KeepBranches { session: *session, flow: *flow },
        }
    }
}

/// A decision of a client inside of the process.
pub type Verdict<'a> = VerdictOf<&'a [u8]>;

/// What a client decides about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum VerdictOf<D> {
    /// It goes on.
    Forward,
    /// It goes on with these octets instead of the client's.
    Replace(D),
    /// It ends here.
    Consume,
}

/// What the messaging layer reports, with its octets lent.
pub type Indication<'a> = IndicationOf<&'a [u8]>;
/// What the messaging layer reports to a client of another process.
pub type OwnedIndication = IndicationOf<Octets>;

/// What the messaging layer reports to a client; `D` is how it holds octets.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum IndicationOf<D> {
    /// A session was opened by [`Request::Send`].
    Opened {
        /// The tag of the request.
        tag: u64,
        /// Its identifier.
        session: SessionId,
        /// Its flow.
        flow: FlowId,
        /// Whether the client holds it.
        hold: bool,
    },
    /// A request cannot be carried out; nothing changed.
    Refused {
        /// The tag of the request; 0 of [`Request::Move`] and [`Request::Translate`], which have none.
        tag: u64,
        /// The reason.
        why: Refused,
    },
    /// A message for the client.
    Received(ArrivalOf<D>),
    /// An error came back.
    Error {
        /// The session.
        session: SessionId,
        /// The flow.
        flow: FlowId,
        /// Its code.
        #[cfg_attr(feature = "serde", serde(with = "number"))]
        code: ErrorCode,
    },
    /// A session has a further hop, or lost one that was not the last.
    Branch {
        /// The session.
        session: SessionId,
        /// The flow.
        flow: FlowId,
        /// A previous hop; otherwise a next hop.
        previous: bool,
        /// Number of the branch on its side.
        id: u16,
        /// Whether it ended.
        ended: bool,
    },
    /// Messages could not be sent on: this is the last node, or the next one cannot be reached.
    Undelivered {
        /// The session.
        session: SessionId,
        /// The flow.
        flow: FlowId,
    },
    /// The session ended at this node.
    Ended {
        /// The session.
        session: SessionId,
        /// The flow.
        flow: FlowId,
        /// Whether it was torn down; otherwise it expired.
        torn_down: bool,
    },
}

impl Indication<'_> {
    /// The indication with octets of its own.
    #[must_use]
    pub fn own(&self) -> OwnedIndication {
        match self {
            Self::Opened { tag, session, flow, hold } => {
                IndicationOf::Opened { tag: *tag, session: *session, flow: *flow, hold: *hold }
            }
            Self::Refused { tag, why } => IndicationOf::Refused { tag: *tag, why: *why },
            Self::Received(arrival) => IndicationOf::Received(arrival.own()),
            Self::Error { session, flow, code } => {
                IndicationOf::Error { session: *session, flow: *flow, code: *code }
            }
            Self::Branch { session, flow, previous, id, ended } => IndicationOf::Branch {
                session: *session,
                flow: *flow,
                previous: *previous,
                id: *id,
                ended: *ended,
            },
            Self::Undelivered { session, flow } => {
                IndicationOf::Undelivered { session: *session, flow: *flow }
            }
            Self::Ended { session, flow, torn_down } => {
                IndicationOf::Ended { session: *session, flow: *flow, torn_down: *torn_down }
            }
        }
    }
}

/// An identity, which all messages of a connection share.
#[cfg(feature = "serde")]
mod whom {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use signalbox_core::security::Identity;

    pub(super) fn serialize<S: Serializer>(
        identity: &Option<Arc<Identity>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        identity.as_deref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<Identity>>, D::Error> {
        Ok(Option::<Identity>::deserialize(deserializer)?.map(Arc::new))
    }
}

/// The number of a code.
#[cfg(feature = "serde")]
mod number {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::wire::ErrorCode;

    pub(super) fn serialize<S: Serializer>(code: &ErrorCode, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(code.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ErrorCode, D::Error> {
        u32::deserialize(deserializer).map(ErrorCode)
    }
}

/// A message for a client inside of the process.
pub type Arrival<'a> = ArrivalOf<&'a [u8]>;

/// A message for a client, with octets of its own.
pub type OwnedArrival = ArrivalOf<Octets>;

impl Arrival<'_> {
    /// The message with octets of its own.
    #[must_use]
    pub fn own(&self) -> OwnedArrival {
        ArrivalOf {
            id: self.id,
            session: self.session,
            flow: self.flow,
            reverse: self.reverse,
            tear_down: self.tear_down,
            unsecure: self.unsecure,
            ttd: self.ttd,
            hops: self.hops,
            peer: self.peer,
            ifindex: self.ifindex,
            answered: self.answered,
            identity: self.identity.clone(),
            branch: self.branch,
            last: self.last,
            timeout: self.timeout,
            stateless: self.stateless,
            refresh: self.refresh,
            route: Octets::from(self.route),
            data: Octets::from(self.data),
        }
    }
}

/// A message for a client.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ArrivalOf<D> {
    /// Id for the verdict; 0: none is asked for.
    pub id: u64,
    /// The session.
    pub session: SessionId,
    /// The flow.
    pub flow: FlowId,
    /// Against the data flow.
    pub reverse: bool,
    /// The session is removed.
    pub tear_down: bool,
    /// Whether it crossed a hop without channel security.
    pub unsecure: bool,
    /// How many further nodes may take it.
    pub ttd: u8,
    /// Number of nodes that it passed.
    pub hops: u8,
    /// Address of the hop that sent it.
    pub peer: IpAddr,
    /// The interface by which it came in as a datagram; [`IfIndex::NONE`]: it came over a connection.
    #[cfg_attr(feature = "serde", serde(default))]
    pub ifindex: IfIndex,
    /// That hop received something at its address: it uses a connection, or has returned a cookie of this node. Otherwise any node
    /// that can forge the address may have sent the message.
    #[cfg_attr(feature = "serde", serde(default))]
    pub answered: bool,
    /// The authenticated identity of that hop.
    #[cfg_attr(feature = "serde", serde(with = "whom"))]
    pub identity: Option<Arc<Identity>>,
    /// The branch by which it came.
    pub branch: u16,
    /// Whether this node is an end of the session in the direction of the message.
    pub last: bool,
    /// Lifetime of the session without refresh, seconds; 0 without state.
    pub timeout: u32,
    /// No node has state of the session for this message.
    pub stateless: bool,
    /// The messaging layer asks about a refresh, which has no octets of the client. Only the client that opens passages is asked
    /// ([`Casp::set_opener`](super::Casp::set_opener)).
    #[cfg_attr(feature = "serde", serde(default))]
    pub refresh: bool,
    /// The nodes that the message passed without state, in the octets of RECORD_ROUTE: an answer needs them
    /// ([`SendRequestOf::route`]). Empty: none is known.
    pub route: D,
    /// The client's octets.
    pub data: D,
}
