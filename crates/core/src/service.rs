//! The service interface between GIST and its signaling applications (RFC 5971, Appendix B).
//!
//! A signaling application gives [`Request`]s to GIST and gets [`Indication`]s from it; payloads are borrowed
//! from whoever holds them. Neither side knows the other's crate.

use core::time::Duration;

use crate::id::{IfIndex, NslpId, SessionId};
use crate::mri::Mri;

/// What an application asks of GIST.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Request<'a> {
    /// Send a message (B.1).
    SendMessage(SendMessage<'a>),
    /// The answer to a [`RecvMessage`] that carried a [`CheckId`] (B.2).
    Peering {
        /// The check that is answered.
        check: CheckId,
        /// Whether to peer with the Querying node.
        decision: Peering<'a>,
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
        data: &'a [u8],
        /// Rediscover now, not with the next message.
        urgent: bool,
    },
}

/// What GIST tells an application.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Indication<'a> {
    /// A message arrived (B.2).
    RecvMessage(RecvMessage<'a>),
    /// What became of a message that carried a handle (B.3).
    MessageStatus {
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
pub struct SendMessage<'a> {
    /// The application's octets, a multiple of 4.
    pub data: &'a [u8],
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
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecvMessage<'a> {
    /// The application's octets; empty for a Query without payload.
    pub data: &'a [u8],
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
    /// The peer that sent it.
    pub sii: Option<SiiHandle>,
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
pub enum Security {
    /// None.
    #[default]
    None,
    /// Integrity and confidentiality by an authenticated channel.
    Channel,
}

/// How far the addresses of a received message can be trusted (B.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
pub enum Peering<'a> {
    /// Peer; the payload, if any, goes into the Response.
    Accept(Option<&'a [u8]>),
    /// Let the Query travel on; the payload, if any, replaces the one it carries.
    Decline(Option<&'a [u8]>),
}

/// What became of a sent message (B.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageStatus {
    /// It left with these attributes.
    Sent(TransferAttributes),
    /// It did not leave.
    Failed(SendError),
}

/// Why a message could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
pub enum InvalidStatus {
    /// Do not use it.
    Bad,
    /// Use it, but check.
    Tentative,
}

/// What happened to a flow (B.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
pub struct MessageHandle(pub u64);

/// GIST's name for a pending peering decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CheckId(pub u64);

/// GIST's name for a piece of routing state; stale ones are recognised and harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateHandle(pub u64);

/// Source identification information: GIST's name for a peer and the interface to it (RFC 5971 B.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SiiHandle(pub u64);
