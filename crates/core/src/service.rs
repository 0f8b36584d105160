//! The service interface between GIST and its signaling applications (RFC 5971, Appendix B).
//!
//! A signaling application gives [`Request`]s to GIST and receives [`Indication`]s from it. Their payloads
//! are borrowed. Neither crate depends on the other. [`OwnedRequest`] and [`OwnedIndication`] own their
//! payloads, for recordings and for applications behind a queue or in another process.

use core::fmt;
use core::net::IpAddr;
use core::ops::BitOr;
use core::time::Duration;
use std::sync::Arc;

use crate::id::{IfIndex, NslpId, SessionId};
use crate::mri::Mri;
use crate::octets::Octets;
use crate::security::Identity;

/// A [`RequestOf`] with a borrowed payload.
pub type Request<'a> = RequestOf<&'a [u8]>;
/// A [`RequestOf`] with a payload of its own.
pub type OwnedRequest = RequestOf<Octets>;
/// A [`SendMessageOf`] with a borrowed payload.
pub type SendMessage<'a> = SendMessageOf<&'a [u8]>;
/// A [`PeeringOf`] with a borrowed payload.
pub type Peering<'a> = PeeringOf<&'a [u8]>;
/// An [`IndicationOf`] with a borrowed payload.
pub type Indication<'a> = IndicationOf<&'a [u8]>;
/// An [`IndicationOf`] with a payload of its own.
pub type OwnedIndication = IndicationOf<Octets>;
/// A [`RecvMessageOf`] with a borrowed payload.
pub type RecvMessage<'a> = RecvMessageOf<&'a [u8]>;

/// The receiver of the next output of a signaling application's engine. The code that composes engines asks
/// for it before it takes the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The driver. The output is a route lookup, or an event for a user.
    Driver,
    /// GIST. The output is a [`Request`].
    Gist,
}

/// A request of an application to GIST. `D` holds payloads.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum RequestOf<D> {
    /// Send a message (B.1).
    SendMessage(SendMessageOf<D>),
    /// The answer to a [`RecvMessage`] that carried a [`CheckId`] (B.2).
    Peering {
        /// Id of the check.
        check: CheckId,
        /// Whether to peer with the Querying node.
        decision: PeeringOf<D>,
    },
    /// Set the lifetime of routing state (B.5).
    SetStateLifetime {
        /// The application.
        nslp: NslpId,
        /// Flow, with the direction.
        mri: Mri,
        /// Session; `None`: all sessions of the flow.
        session: Option<SessionId>,
        /// Lifetime from now; zero: the application needs the state no longer.
        lifetime: Duration,
    },
    /// Report that GIST's next hop may be wrong (B.6).
    InvalidateRoutingState {
        /// The application; `None`: all applications.
        nslp: Option<NslpId>,
        /// Flow, with the direction.
        mri: Mri,
        /// Assumed status of the routing state.
        status: InvalidStatus,
        /// Payload for the next Query.
        data: D,
        /// Whether to start discovery now, not with the next message.
        urgent: bool,
    },
}

/// An indication of GIST to an application. `D` holds payloads.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum IndicationOf<D> {
    /// A message arrived (B.2).
    RecvMessage(RecvMessageOf<D>),
    /// Delivery status of a message that carried a handle (B.3).
    MessageStatus {
        /// The application.
        nslp: NslpId,
        /// The handle that was given with the message.
        handle: MessageHandle,
        /// The session of the message.
        session: SessionId,
        /// Delivery status.
        status: MessageStatus,
    },
    /// An event in the routing state of a flow (B.4).
    NetworkNotification {
        /// The application.
        nslp: NslpId,
        /// Flow, with the direction.
        mri: Mri,
        /// The session.
        session: SessionId,
        /// The event.
        event: NetworkEvent,
    },
}

/// `SendMessage` (B.1).
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SendMessageOf<D> {
    /// The application's octets, a multiple of 4.
    pub data: D,
    /// Handle by which [`Indication::MessageStatus`] is requested.
    pub handle: Option<MessageHandle>,
    /// The application.
    pub nslp: NslpId,
    /// The session.
    pub session: SessionId,
    /// Flow; its direction is the direction of the message.
    pub mri: Mri,
    /// A state handle from an earlier [`RecvMessage`] of the same session. It saves GIST a lookup.
    pub state: Option<StateHandle>,
    /// Peer to which the message is routed explicitly (RFC 5971 §7.1.5).
    pub sii: Option<SiiHandle>,
    /// Transfer attributes.
    pub attributes: TransferAttributes,
    /// Time after which GIST gives up; `None`: GIST's own limit.
    pub timeout: Option<Duration>,
    /// IP TTL to use; `None`: GIST chooses it.
    pub ip_ttl: Option<u8>,
    /// GIST hop count to send, at least 1; `None`: GIST's initial value.
    pub hops: Option<u8>,
}

/// GIST hop count with which an application passes a received message on (RFC 5971 §4.3.3).
///
/// A peer need not preserve the count: it may send each Data message with count 1, which reaches the adjacent node (A.1). To
/// distinguish this from a count that is used up, no application of ours passes a message on with count 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onward {
    /// What is left of the count that the peer preserved.
    Preserved(u8),
    /// The peer preserves no count. The message goes on with one of this node, so that something else has to stop it in a
    /// circle of routes.
    Own,
    /// The count is used up: the message may not be passed on.
    Spent,
}

/// `RecvMessage` (B.2).
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RecvMessageOf<D> {
    /// The application's octets; empty for a Query without payload.
    pub data: D,
    /// The application.
    pub nslp: NslpId,
    /// The session.
    pub session: SessionId,
    /// Flow; its direction is the direction of the message.
    pub mri: Mri,
    /// Id of a peering check: GIST asks whether to peer, and the application answers with
    /// [`Request::Peering`].
    pub check: Option<CheckId>,
    /// Routing state of the message, for [`SendMessage::state`].
    pub state: Option<StateHandle>,
    /// The peer that sent the message, even if it is no longer the peer of the session. `None`: GIST has no
    /// proof of the peer's identity. A message that was routed explicitly
    /// ([`AddressValidation::unchecked_route`]) also carries the handle of its sender.
    pub sii: Option<SiiHandle>,
    /// Proved identity of the previous node, if its messages come over an authenticated channel
    /// ([`Security::Channel`]).
    #[cfg_attr(feature = "serde", serde(default, with = "shared", skip_serializing_if = "Option::is_none"))]
    pub peer: Option<Arc<Identity>>,
    /// Address of the previous node, if it answered a handshake there ([`AddressValidation::return_routable`]), or answered a
    /// Query by the interface of the route to this address.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub peer_address: Option<IpAddr>,
    /// Transfer attributes of the message.
    pub attributes: TransferAttributes,
    /// Checks that the addresses of the message have passed.
    pub validation: AddressValidation,
    /// IP TTL as received.
    pub ip_ttl: u8,
    /// IP hops from the peer; 0 if not known.
    pub ip_distance: u8,
    /// GIST hop count after GIST's own decrement.
    pub hops: u8,
    /// Interface by which it came in.
    pub ifindex: IfIndex,
    /// Whether the flow ends here. The flow's destination (downstream message) or source (upstream message)
    /// is this node, so the message has no further hop.
    pub at_flow_end: bool,
}

impl<D> RecvMessageOf<D> {
    /// The hop count with which the message is passed on.
    #[must_use]
    pub const fn onward(&self) -> Onward {
        match self.hops {
            0 => Onward::Own,
            1 => Onward::Spent,
            count => Onward::Preserved(count),
        }
    }
}

/// Attributes of a message's transfer (RFC 5971 §4.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TransferAttributes {
    /// Reliable transfer: delivered once and in order, or reported as lost.
    pub reliable: bool,
    /// Transfer without routing state: Q-mode Data.
    pub stateless: bool,
    /// Protection that the message has or needs.
    pub security: Security,
}

/// Protection of a message on the hop between two peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Security {
    /// No protection.
    #[default]
    None,
    /// Integrity and confidentiality by an authenticated channel.
    Channel,
}

/// Checks that the addresses of a received message have passed (B.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AddressValidation {
    /// The sender is an endpoint of the flow: first or last hop.
    pub first_or_last_hop: bool,
    /// The sender proved that it can be reached at its address: it returned a cookie that was sent there, or a Query that was sent
    /// there, or through it as the next hop, or its messages come over an association.
    pub return_routable: bool,
    /// The message was routed explicitly or without state, so GIST did not check its route against routing
    /// state.
    pub unchecked_route: bool,
}

/// Whether an application peers with a Querying node (RFC 5971 §4.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PeeringOf<D> {
    /// Peer. The payload, if any, is carried in the Response.
    Accept(Option<D>),
    /// Forward the Query. The payload, if any, replaces the one in the Query.
    Decline(Option<D>),
}

/// Delivery status of a message (B.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum MessageStatus {
    /// The message was sent with these attributes.
    Sent(TransferAttributes),
    /// The message was not sent.
    Failed(SendError),
}

/// Transports of messaging associations (RFC 5971 §5.7). As text: "tcp, tls".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Transports {
    /// Plain TCP.
    pub tcp: bool,
    /// TLS over TCP.
    pub tls: bool,
    /// SCTP.
    pub sctp: bool,
}

impl Transports {
    /// Their names.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [(self.tcp, "tcp"), (self.tls, "tls"), (self.sctp, "sctp")]
            .into_iter()
            .filter_map(|(has, name)| has.then_some(name))
    }
}

impl BitOr for Transports {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self { tcp: self.tcp | other.tcp, tls: self.tls | other.tls, sctp: self.sctp | other.sctp }
    }
}

impl fmt::Display for Transports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.names().enumerate() {
            f.write_str(if at > 0 { ", " } else { "" })?;
            f.write_str(name)?;
        }
        Ok(())
    }
}

/// Reason why a message could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum SendError {
    /// No node answered the Query.
    NoNextNode,
    /// A node answered the Query, but no messaging association with it can be set up over these transports: a firewall between
    /// the nodes may drop their packets.
    Unreached(Transports),
    /// The same, but the attempt goes on: the path may be slow, and a later message may find the association.
    Connecting(Transports),
    /// The flow ends at this node in that direction.
    FlowEndsHere,
    /// The node has no route to the flow's destination.
    NoRoute,
    /// The node has no state in that direction and cannot create it (upstream, RFC 5971 §5.8.1.3).
    NoStateUpstream,
    /// The payload is larger than the transfer can carry.
    TooLarge {
        /// Largest payload, in octets.
        max: usize,
    },
    /// GIST cannot provide the attributes, or the payload is not a multiple of 4 octets.
    Refused,
    /// A table or queue is full.
    Overload,
    /// The peer's GIST refused it, with error code and subcode (RFC 5971 A.4.4).
    Peer {
        /// Error code.
        code: u16,
        /// Subcode.
        subcode: u8,
    },
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNextNode => f.write_str("no node further on with this application answered in time"),
            Self::Unreached(by) if *by == Transports::default() => {
                f.write_str("the next node answered, but could not be reached by a transport that it offers")
            }
            Self::Unreached(by) => write!(
                f,
                "the next node answered, but could not be reached by {by}: a firewall between the nodes may drop the packets"
            ),
            Self::Connecting(by) => {
                write!(f, "the next node answered, but no connection with it by {by} was set up in time")
            }
            Self::FlowEndsHere => f.write_str("the flow ends at this node"),
            Self::NoRoute => f.write_str("no route to the flow's destination"),
            Self::NoStateUpstream => {
                f.write_str("no routing state upstream: it is made by messages that come downstream")
            }
            Self::TooLarge { max } => write!(
                f,
                "too many octets, at most {max} fit: more fit where all nodes have messaging associations"
            ),
            Self::Refused => f.write_str(
                "GIST cannot give these attributes: reliable and secure need messaging associations \
                 ([gist.associations] in the configuration), stateless is for downstream only",
            ),
            Self::Overload => f.write_str("a queue or table of GIST at this node is full: try later"),
            Self::Peer { code, subcode } => {
                write!(f, "the next node's GIST refused it with error {code}/{subcode} (RFC 5971 A.4.4)")
            }
        }
    }
}

/// Status of routing state that an application reports (B.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum InvalidStatus {
    /// The state must not be used.
    Bad,
    /// The state may be used, but must be checked.
    Tentative,
}

/// Event in the routing state of a flow (B.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum NetworkEvent {
    /// This is the last node of the path that runs the application.
    LastNode,
    /// Routing state with this peer was installed or re-established.
    Good(SiiHandle),
    /// Routing state may no longer be valid.
    Tentative,
    /// Routing state was removed.
    Bad,
    /// The old route is no longer in use.
    RouteDeleted(SiiHandle),
    /// The peer is no longer authorised.
    AuthorisationChanged,
    /// Messages may have been lost.
    CommunicationFailure,
}

/// Handle that an application chooses for a message it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MessageHandle(pub u64);

/// Handle that GIST chooses for a pending peering decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CheckId(pub u64);

/// Handle that GIST chooses for a piece of routing state. Stale handles are recognised and do no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StateHandle(pub u64);

/// Source identification information: handle of a peer and of the interface to it (RFC 5971 B.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SiiHandle(pub u64);

impl<D> RequestOf<D> {
    /// The same request with its payload converted.
    pub fn map<'a, E>(&'a self, form: impl FnOnce(&'a D) -> E) -> RequestOf<E> {
        match *self {
            Self::SendMessage(SendMessageOf {
                ref data,
                handle,
                nslp,
                session,
                mri,
                state,
                sii,
                attributes,
                timeout,
                ip_ttl,
                hops,
            }) => RequestOf::SendMessage(SendMessageOf {
                data: form(data),
                handle,
                nslp,
                session,
                mri,
                state,
                sii,
                attributes,
                timeout,
                ip_ttl,
                hops,
            }),
            Self::Peering { check, ref decision } => RequestOf::Peering {
                check,
                decision: match decision {
                    PeeringOf::Accept(data) => PeeringOf::Accept(data.as_ref().map(form)),
                    PeeringOf::Decline(data) => PeeringOf::Decline(data.as_ref().map(form)),
                },
            },
            Self::SetStateLifetime { nslp, mri, session, lifetime } => {
                RequestOf::SetStateLifetime { nslp, mri, session, lifetime }
            }
            Self::InvalidateRoutingState { nslp, mri, status, ref data, urgent } => {
                RequestOf::InvalidateRoutingState { nslp, mri, status, data: form(data), urgent }
            }
        }
    }
}

impl<D> IndicationOf<D> {
    /// The application that receives it.
    pub const fn nslp(&self) -> NslpId {
        match self {
            Self::RecvMessage(message) => message.nslp,
            Self::MessageStatus { nslp, .. } | Self::NetworkNotification { nslp, .. } => *nslp,
        }
    }

    /// The same indication with its payload converted.
    pub fn map<'a, E>(&'a self, form: impl FnOnce(&'a D) -> E) -> IndicationOf<E> {
        match *self {
            Self::RecvMessage(RecvMessageOf {
                ref data,
                nslp,
                session,
                mri,
                check,
                state,
                sii,
                ref peer,
                peer_address,
                attributes,
                validation,
                ip_ttl,
                ip_distance,
                hops,
                ifindex,
                at_flow_end,
            }) => IndicationOf::RecvMessage(RecvMessageOf {
                data: form(data),
                nslp,
                session,
                mri,
                check,
                state,
                sii,
                peer: peer.clone(),
                peer_address,
                attributes,
                validation,
                ip_ttl,
                ip_distance,
                hops,
                ifindex,
                at_flow_end,
            }),
            Self::MessageStatus { nslp, handle, session, status } => {
                IndicationOf::MessageStatus { nslp, handle, session, status }
            }
            Self::NetworkNotification { nslp, mri, session, event } => {
                IndicationOf::NetworkNotification { nslp, mri, session, event }
            }
        }
    }
}

/// Serializes a shared identity like an identity that is not shared.
#[cfg(feature = "serde")]
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::security::Identity;

    pub(super) fn serialize<S: Serializer>(peer: &Option<Arc<Identity>>, to: S) -> Result<S::Ok, S::Error> {
        peer.as_deref().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<Identity>>, D::Error> {
        Option::<Identity>::deserialize(from).map(|peer| peer.map(Arc::new))
    }
}
