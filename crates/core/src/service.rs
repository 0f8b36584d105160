//! The service interface between GIST and its signaling applications (RFC 5971, Appendix B).
//!
//! A signaling application gives [`Request`]s to GIST and gets [`Indication`]s from it; payloads are borrowed
//! from whoever holds them. Neither side knows the other's crate. [`OwnedRequest`] and [`OwnedIndication`] hold
//! theirs: for applications that are not called but written to, and for recordings.

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

/// Who takes the next output of a signaling application's engine. Whoever composes engines asks for it before the
/// output is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The driver: a route lookup, or an event for a user.
    Driver,
    /// GIST: a [`Request`].
    Gist,
}

/// What an application asks of GIST; `D` holds payloads.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum RequestOf<D> {
    /// Send a message (B.1).
    SendMessage(SendMessageOf<D>),
    /// The answer to a [`RecvMessage`] that carried a [`CheckId`] (B.2).
    Peering {
        /// The check that is answered.
        check: CheckId,
        /// Whether to peer with the Querying node.
        decision: PeeringOf<D>,
    },
    /// How long to keep routing state (B.5).
    SetStateLifetime {
        /// The application.
        nslp: NslpId,
        /// Flow and direction.
        mri: Mri,
        /// Session; `None` stands for all of the flow.
        session: Option<SessionId>,
        /// From now; zero: no further interest.
        lifetime: Duration,
    },
    /// The next hop that GIST knows may be wrong (B.6).
    InvalidateRoutingState {
        /// The application; `None` for all.
        nslp: Option<NslpId>,
        /// Flow and direction.
        mri: Mri,
        /// What to assume.
        status: InvalidStatus,
        /// Payload for the next Query.
        data: D,
        /// Rediscover now, not with the next message.
        urgent: bool,
    },
}

/// What GIST tells an application; `D` holds payloads.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum IndicationOf<D> {
    /// A message arrived (B.2).
    RecvMessage(RecvMessageOf<D>),
    /// What became of a message that carried a handle (B.3).
    MessageStatus {
        /// The application.
        nslp: NslpId,
        /// The handle given with the message.
        handle: MessageHandle,
        /// The session it was for.
        session: SessionId,
        /// What happened.
        status: MessageStatus,
    },
    /// Something happened to a flow's routing state (B.4).
    NetworkNotification {
        /// The application.
        nslp: NslpId,
        /// Flow and direction.
        mri: Mri,
        /// Session.
        session: SessionId,
        /// What happened.
        event: NetworkEvent,
    },
}

/// `SendMessage` (B.1).
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SendMessageOf<D> {
    /// The application's octets, a multiple of 4.
    pub data: D,
    /// Ask for [`Indication::MessageStatus`] by this handle.
    pub handle: Option<MessageHandle>,
    /// The application.
    pub nslp: NslpId,
    /// Session.
    pub session: SessionId,
    /// Flow; its direction is the message's.
    pub mri: Mri,
    /// A state handle from an earlier [`RecvMessage`] of the same session spares GIST the search.
    pub state: Option<StateHandle>,
    /// Route explicitly to this peer (RFC 5971 §7.1.5).
    pub sii: Option<SiiHandle>,
    /// How to handle it.
    pub attributes: TransferAttributes,
    /// Give up after this time; `None`: GIST's own limit.
    pub timeout: Option<Duration>,
    /// IP TTL to use; `None`: GIST decides.
    pub ip_ttl: Option<u8>,
    /// GIST hop count to send, at least 1; `None`: GIST's initial value.
    pub hops: Option<u8>,
}

/// `RecvMessage` (B.2).
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RecvMessageOf<D> {
    /// The application's octets; empty for a Query without payload.
    pub data: D,
    /// The application.
    pub nslp: NslpId,
    /// Session.
    pub session: SessionId,
    /// Flow; its direction is the message's.
    pub mri: Mri,
    /// GIST asks whether to peer: answer with [`Request::Peering`].
    pub check: Option<CheckId>,
    /// Routing state that the message belongs to, for [`SendMessage::state`].
    pub state: Option<StateHandle>,
    /// The peer that sent it, also if that is no longer the session's peer; `None`: GIST knows nobody who proved to be
    /// it. What was routed explicitly ([`AddressValidation::unchecked_route`]) names its sender as well.
    pub sii: Option<SiiHandle>,
    /// Who the node before proved to be, where its messages come over an authenticated channel
    /// ([`Security::Channel`]).
    #[cfg_attr(feature = "serde", serde(default, with = "shared", skip_serializing_if = "Option::is_none"))]
    pub peer: Option<Arc<Identity>>,
    /// How it came.
    pub attributes: TransferAttributes,
    /// How far its addresses can be trusted.
    pub validation: AddressValidation,
    /// IP TTL as received.
    pub ip_ttl: u8,
    /// IP hops from the peer; 0 if not known.
    pub ip_distance: u8,
    /// GIST hop count after GIST's own decrement.
    pub hops: u8,
    /// Interface it came in by.
    pub ifindex: IfIndex,
    /// The flow ends here: its destination (downstream message) or source (upstream) is this node, so nobody
    /// is left to pass the message to.
    pub at_flow_end: bool,
}

/// How a message is or was carried (RFC 5971 §4.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TransferAttributes {
    /// Delivered once, in order, or reported lost.
    pub reliable: bool,
    /// Do without routing state: Q-mode Data.
    pub stateless: bool,
    /// What protection the message has or needs.
    pub security: Security,
}

/// Protection on the hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Security {
    /// None.
    #[default]
    None,
    /// Integrity and confidentiality by an authenticated channel.
    Channel,
}

/// How far the addresses of a received message can be trusted (B.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AddressValidation {
    /// The sender is an endpoint of the flow: first or last hop.
    pub first_or_last_hop: bool,
    /// The sender proved that it can be reached at its address.
    pub return_routable: bool,
    /// The message was routed explicitly or without state, so GIST did not check it against routing state.
    pub unchecked_route: bool,
}

/// Whether an application wants to peer with a Querying node (RFC 5971 §4.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PeeringOf<D> {
    /// Peer; the payload, if any, goes into the Response.
    Accept(Option<D>),
    /// Let the Query travel on; the payload, if any, replaces the one it carries.
    Decline(Option<D>),
}

/// What became of a sent message (B.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum MessageStatus {
    /// It left with these attributes.
    Sent(TransferAttributes),
    /// It did not leave.
    Failed(SendError),
}

/// Why a message could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum SendError {
    /// No node answered the Query.
    NoNextNode,
    /// The flow ends at this node in that direction.
    FlowEndsHere,
    /// No route to the flow's destination.
    NoRoute,
    /// No state in that direction and no way to make it (upstream, RFC 5971 §5.8.1.3).
    NoStateUpstream,
    /// Larger than what can be carried, in octets.
    TooLarge {
        /// Largest payload.
        max: usize,
    },
    /// Attributes that GIST cannot give, or a payload that is not a multiple of 4 octets.
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

/// Why routing state is declared invalid (B.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum InvalidStatus {
    /// Do not use it.
    Bad,
    /// Use it, but check.
    Tentative,
}

/// What happened to a flow (B.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum NetworkEvent {
    /// This is the last node of the path that has the application.
    LastNode,
    /// Routing state was installed or re-established, with this peer.
    Good(SiiHandle),
    /// Routing state may no longer be valid.
    Tentative,
    /// Routing state is gone.
    Bad,
    /// The old route is not used any more.
    RouteDeleted(SiiHandle),
    /// The peer is no longer authorised.
    AuthorisationChanged,
    /// Messages may have been lost.
    CommunicationFailure,
}

/// An application's name for a message it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MessageHandle(pub u64);

/// GIST's name for a pending peering decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CheckId(pub u64);

/// GIST's name for a piece of routing state; stale ones are recognised and harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StateHandle(pub u64);

/// Source identification information: GIST's name for a peer and the interface to it (RFC 5971 B.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SiiHandle(pub u64);

impl<D> RequestOf<D> {
    /// The same with its payload in another form.
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
    /// The application that it is for.
    pub const fn nslp(&self) -> NslpId {
        match self {
            Self::RecvMessage(message) => message.nslp,
            Self::MessageStatus { nslp, .. } | Self::NetworkNotification { nslp, .. } => *nslp,
        }
    }

    /// The same with its payload in another form.
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

/// An identity is written as it is, whoever shares it.
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
