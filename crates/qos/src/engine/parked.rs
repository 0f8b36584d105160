//! What waits for a route, or for another message.

use core::net::IpAddr;
use std::sync::Arc;

use signalbox_core::node::RouteQuery;
use signalbox_core::security::Identity;
use signalbox_core::service::{RecvMessage, Security, SiiHandle, StateHandle};
use signalbox_core::slab::Key;
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Direction, IfIndex, Mri, NslpId, SessionId};

use super::command::Command;

/// How a message came: all of [`RecvMessage`] that matters, without the octets.
#[derive(Debug, Clone)]
pub(super) struct Meta {
    pub(super) nslp: NslpId,
    pub(super) session: SessionId,
    pub(super) mri: Mri,
    pub(super) state: Option<StateHandle>,
    pub(super) sii: Option<SiiHandle>,
    pub(super) peer: Option<Arc<Identity>>,
    pub(super) authenticated: bool,
    pub(super) stateless: bool,
    pub(super) ip_distance: u8,
    pub(super) hops: u8,
    pub(super) ifindex: IfIndex,
    pub(super) at_flow_end: bool,
    /// The message that it had to wait for has come (§4.6).
    pub(super) synchronised: bool,
}

impl Meta {
    pub(super) fn of(message: &RecvMessage<'_>) -> Self {
        Self {
            nslp: message.nslp,
            session: message.session,
            mri: message.mri,
            state: message.state,
            sii: message.sii,
            peer: message.peer.clone(),
            authenticated: message.attributes.security == Security::Channel,
            stateless: message.attributes.stateless,
            ip_distance: message.ip_distance,
            hops: message.hops,
            ifindex: message.ifindex,
            at_flow_end: message.at_flow_end,
            synchronised: false,
        }
    }

    /// There are routers without the application between the peer and this node: GIST has no Original-TTL, which
    /// §5.4.1 wants compared, but counts the IP hops; a peer on the same link is none away.
    pub(super) const fn after_gap(&self) -> bool {
        self.ip_distance > 0
    }

    /// The signaling initiator, as far as the flow tells: its sender, or its receiver where RESERVEs go upstream.
    pub(super) const fn initiator(&self) -> IpAddr {
        match self.mri.direction() {
            Direction::Downstream => self.mri.src(),
            Direction::Upstream => self.mri.dst(),
        }
    }
}

/// What waits.
#[derive(Debug)]
pub(super) enum Parked {
    /// A message that came, for the route of its flow.
    Message(Vec<u8>, Meta),
    /// A command, for the route of its flow.
    Command(u64, Command),
    /// The way back of a session that ends here, for the route of its flow.
    WayBack(Key),
    /// A reservation for a sender whose QUERY found nobody further on, for the route of its flow.
    ForSender(Key),
    /// The repair of a session whose route changed, for the new one.
    Repair(Key),
    /// A session whose peer GIST found again, for the route of its flow.
    Verify(Key),
    /// A message that another has to come before, by that one's MSG-ID; until the timer is due.
    Bound {
        octets: Vec<u8>,
        meta: Meta,
        id: [u8; 16],
        /// It has the MSG-ID itself and waits for the message that is bound to it.
        trigger: bool,
    },
    /// The MSG-ID of a message that came, and whether it was granted; until the timer is due.
    Seen { id: [u8; 16], granted: bool },
}

/// A place where something waits.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) what: Parked,
    pub(super) link: Link,
}

impl Timed for Place {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// The route of a flow's packets.
pub(super) fn route_query(mri: &Mri) -> RouteQuery {
    let query = RouteQuery { src: Some(mri.src()), ..RouteQuery::to(mri.dst()) };
    match mri {
        Mri::PathCoupled(flow) => RouteQuery {
            protocol: flow.protocol,
            src_port: flow.src_port,
            dst_port: flow.dst_port,
            tos: flow.dscp.unwrap_or(0) << 2,
            ..query
        },
        Mri::LooseEnd(_) => query,
    }
}
