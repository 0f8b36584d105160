//! Messages and sessions that wait for a route or for another message.

use core::net::IpAddr;
use std::sync::Arc;

use signalbox_core::node::RouteQuery;
use signalbox_core::security::Identity;
use signalbox_core::service::{Onward, RecvMessage, Security, SiiHandle, StateHandle};
use signalbox_core::slab::Key;
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Direction, IfIndex, Mri, NslpId, SessionId};
use signalbox_resources::{Neighbor, Proof, RequestedBy};

use super::command::Command;
use super::counters::Counters;
use super::holders::Holder;

/// The GIST hop count of a message whose peer preserves none: GIST's own initial value.
const OWN_HOPS: u8 = 64;

/// The circumstances in which a message arrived: [`RecvMessage`] without the octets.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) nslp: NslpId,
    pub(super) session: SessionId,
    pub(super) mri: Mri,
    pub(super) state: Option<StateHandle>,
    pub(super) sii: Option<SiiHandle>,
    pub(super) peer: Option<Arc<Identity>>,
    pub(super) peer_address: Option<IpAddr>,
    /// What shows that address.
    pub(super) proof: Proof,
    pub(super) authenticated: bool,
    pub(super) stateless: bool,
    pub(super) ip_distance: u8,
    /// GIST hop count with which the message may be passed on; 0: it may not.
    pub(super) hops: u8,
    /// Whether the peer preserves the hop count. Otherwise `hops` is a count of this node.
    pub(super) counted: bool,
    pub(super) ifindex: IfIndex,
    pub(super) at_flow_end: bool,
    /// The message that it was bound to has arrived (RFC 5974 §4.6).
    pub(super) synchronised: bool,
}

impl Arrival {
    /// Whether the message may pass a further node, by its GIST hop count. One that may not is counted.
    pub(super) fn may_pass(&self, counters: &mut Counters) -> bool {
        if self.hops == 0 {
            counters.hop_limit += 1;
            tracing::debug!(session = %self.session, reason = "GIST hop count is used up", "message dropped");
        }
        self.hops > 0
    }

    pub(super) fn of(message: &RecvMessage<'_>) -> Self {
        Self {
            nslp: message.nslp,
            session: message.session,
            mri: message.mri,
            state: message.state,
            sii: message.sii,
            peer: message.peer.clone(),
            peer_address: message.peer_address,
            proof: match (&message.peer, message.validation.return_routable) {
                (Some(_), _) => Proof::Identity,
                (None, true) => Proof::Handshake,
                (None, false) => Proof::Link,
            },
            authenticated: message.attributes.security == Security::Channel,
            stateless: message.attributes.stateless,
            ip_distance: message.ip_distance,
            hops: match message.onward() {
                Onward::Preserved(hops) => hops,
                Onward::Own => OWN_HOPS,
                Onward::Spent => 0,
            },
            counted: message.onward() != Onward::Own,
            ifindex: message.ifindex,
            at_flow_end: message.at_flow_end,
            synchronised: false,
        }
    }

    /// Whether routers without QoS NSLP are between the previous peer and this node. RFC 5974 §5.4.1 compares TTL
    /// values; GIST gives the number of IP hops instead, which is 0 for a peer on the same link.
    pub(super) const fn after_gap(&self) -> bool {
        self.ip_distance > 0
    }

    /// Where the request comes from, as far as GIST has proof of it.
    pub(super) fn requested_by(&self) -> RequestedBy {
        requested_by_peer(self.peer_address, self.ifindex, self.proof)
    }

    /// The route lookup for the packets of its flow. A message in the direction of the flow came in where they do.
    pub(super) fn route_query(&self) -> RouteQuery {
        let with_flow = self.mri.direction() == Direction::Downstream && self.ifindex != IfIndex::NONE;
        RouteQuery { iif: with_flow.then_some(self.ifindex), ..route_query(&self.mri) }
    }

    /// The address of the signaling initiator by the flow: its sender or, where RESERVEs go upstream, its receiver.
    pub(super) const fn initiator(&self) -> IpAddr {
        match self.mri.direction() {
            Direction::Downstream => self.mri.src(),
            Direction::Upstream => self.mri.dst(),
        }
    }
}

/// A requester that GIST knows by the address of a peer.
pub(super) fn requested_by_peer(address: Option<IpAddr>, ifindex: IfIndex, proof: Proof) -> RequestedBy {
    address
        .map_or(RequestedBy::Unknown, |address| RequestedBy::Neighbor(Neighbor { address, ifindex, proof }))
}

/// The content of a slot.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A received message waits for the route of its flow.
    Message(Vec<u8>, Arrival),
    /// A command waits for the route of its flow.
    Command(u64, Command),
    /// The reverse direction of a bidirectional reservation waits for the route of its flow.
    ReverseDirection(Key),
    /// A reservation in the place of the receiver waits for the route of its flow: the QUERY of the sender found no
    /// next node.
    ForSender(Key),
    /// The repair of a session waits for its new route.
    Repair(Key),
    /// A session whose peer GIST confirmed waits for the route of its flow: the egress interface may be another one.
    Verify(Key),
    /// A message waits for the message with the MSG-ID that it is bound to, until the timer is due.
    Bound {
        octets: Vec<u8>,
        arrival: Arrival,
        id: [u8; 16],
        /// It carries the MSG-ID itself, and waits for the message that is bound to it.
        trigger: bool,
    },
    /// The result of a message with this MSG-ID, kept until the timer is due.
    Processed { id: [u8; 16], granted: bool },
}

/// A slot of the waiting table.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) what: Waiting,
    /// The source whose share it takes: that of a message which waits for another message, or of its result.
    pub(super) holder: Option<Holder>,
    /// Octets of a long message that it keeps in the share of its holder.
    pub(super) contents: u32,
    pub(super) link: Link,
}

impl Timed for Slot {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// The route lookup for the packets of a flow that may come in by any interface.
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
