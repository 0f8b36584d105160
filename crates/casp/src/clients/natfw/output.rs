//! Outputs that wait to be polled.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::SessionId;
use signalbox_core::node::RouteQuery;
use signalbox_core::pinhole::{Pinhole, PinholeId};

use crate::clients::shared::{Polled, Queue};
use crate::engine::Request;
use crate::wire::FlowId;
use crate::wire::natfw::{NatfwFilter, NatfwStatus};

/// What one node reports about a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatfwNode {
    /// Its address, if it gives one.
    pub node: Option<IpAddr>,
    /// Lifetime that is left, seconds.
    pub lifetime: Option<u32>,
    /// The packets that it lets pass.
    pub filters: Vec<NatfwFilter>,
}

/// What becomes of a request of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NatfwEvent {
    /// The messaging layer named the session.
    Named {
        /// Its identifier.
        session: SessionId,
    },
    /// All firewalls of the path let the packets pass: at first, and after a refresh that failed.
    Opened {
        /// Lifetime without a refresh, seconds.
        lifetime: u32,
        /// The packets as the other end of the path sees them, if a NAT changes them.
        nat: Option<NatfwFilter>,
    },
    /// The request, or a refresh of it, failed. What firewalls opened stays until it is closed or expires; refreshes go on until
    /// then.
    Refused {
        /// The reason.
        status: NatfwStatus,
        /// The node that refused, if another one did.
        node: Option<IpAddr>,
        /// The rule or limit that refused, if the node gives it.
        note: Option<String>,
    },
    /// The answer to a query: the other end of the path is the first one.
    State {
        /// The nodes with state.
        nodes: Vec<NatfwNode>,
    },
    /// The passage is closed; the last event.
    Closed,
    /// A node removed its rules, the session ended, or the rules expired because refreshes failed; the last event.
    Lost {
        /// The reason; after refreshes that failed that of the last one.
        status: NatfwStatus,
        /// The node that removed the rules, or refused the last refresh, if another one did.
        node: Option<IpAddr>,
    },
    /// A request for packets that this node accepts was answered.
    Accepted {
        /// The session.
        session: SessionId,
        /// The flow.
        flow: FlowId,
    },
    /// What [`NatfwEvent::Accepted`] reported ended.
    Ended {
        /// The session.
        session: SessionId,
        /// The flow.
        flow: FlowId,
        /// The reason.
        why: NatfwEnd,
    },
}

/// Why a passage that this node accepted ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatfwEnd {
    /// The sender of the data closed it.
    Closed,
    /// Its sender did not refresh it.
    Expired,
    /// A node refused the CREATE of this node, or removed its rules.
    Removed {
        /// The reason.
        status: NatfwStatus,
        /// The node, if another one did.
        node: Option<IpAddr>,
    },
}

/// An output of the client.
#[derive(Debug)]
pub enum NatfwOutput<'a> {
    /// For the messaging layer.
    Request(Request<'a>),
    /// Look up the route to a hop: which side of the firewall it is on.
    RouteLookup {
        /// Id for [`NatfwClient::route`](super::NatfwClient::route).
        id: u64,
        /// A packet to the hop.
        query: RouteQuery,
    },
    /// Put a pinhole into the kernel, or prolong it. The answer is [`NatfwClient::opened`](super::NatfwClient::opened).
    Open {
        /// The pinhole.
        id: PinholeId,
        /// What it does.
        pinhole: Pinhole,
        /// Time after which the kernel removes it by itself.
        lifetime: Duration,
    },
    /// Remove a pinhole.
    Close {
        /// The pinhole.
        id: PinholeId,
    },
    /// For the user who asked.
    Event {
        /// The user's id.
        id: u64,
        /// The event.
        event: NatfwEvent,
    },
}

/// An output that is no request to the messaging layer.
#[derive(Debug)]
pub(super) enum Other {
    Lookup(u64, RouteQuery),
    Open(PinholeId, Pinhole, Duration),
    Close(PinholeId),
    Event(u64, Box<NatfwEvent>),
}

pub(super) type Outputs = Queue<Other>;

impl Outputs {
    pub(super) fn look_up(&mut self, id: u64, query: RouteQuery) {
        self.push(Other::Lookup(id, query));
    }

    pub(super) fn open(&mut self, id: PinholeId, pinhole: Pinhole, lifetime: Duration) {
        self.push(Other::Open(id, pinhole, lifetime));
    }

    pub(super) fn close(&mut self, id: PinholeId) {
        self.push(Other::Close(id));
    }

    pub(super) fn event(&mut self, id: u64, event: NatfwEvent) {
        self.push(Other::Event(id, Box::new(event)));
    }

    pub(super) fn poll(&mut self) -> Option<NatfwOutput<'_>> {
        Some(match self.take()? {
            Polled::Request(request) => NatfwOutput::Request(request),
            Polled::Other(Other::Lookup(id, query)) => NatfwOutput::RouteLookup { id, query },
            Polled::Other(Other::Open(id, pinhole, lifetime)) => NatfwOutput::Open { id, pinhole, lifetime },
            Polled::Other(Other::Close(id)) => NatfwOutput::Close { id },
            Polled::Other(Other::Event(id, event)) => NatfwOutput::Event { id, event: *event },
        })
    }
}
