//! Outputs that wait to be polled.

use core::net::IpAddr;

use signalbox_core::SessionId;
use signalbox_core::node::RouteQuery;

use super::amount::{Amount, Range};
use crate::clients::shared::{Polled, Queue};
use crate::engine::Request;
use crate::wire::FlowId;
use crate::wire::qos::{QosErrorCode, Refusal};

/// What a node adds to its refusal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// Rate that it could still give, octets a second.
    pub available: Option<u64>,
    /// The rule or limit that refused.
    pub note: Option<String>,
}

impl From<&Refusal<'_>> for Told {
    fn from(refusal: &Refusal<'_>) -> Self {
        Self { available: refusal.available, note: refusal.text() }
    }
}

/// What becomes of a reservation or query of this node.
#[derive(Debug, Clone, PartialEq)]
pub enum QosEvent {
    /// The session has its identifier.
    Opened {
        /// The identifier.
        session: SessionId,
    },
    /// The path reserved this amount.
    Reserved {
        /// The amount.
        amount: Amount,
    },
    /// The flow has this amount now.
    Committed {
        /// The amount.
        amount: Amount,
    },
    /// The path could reserve this amount now.
    Available {
        /// The amount; `None`: the answer does not say.
        amount: Option<Amount>,
    },
    /// The request failed.
    Refused {
        /// The reason.
        code: QosErrorCode,
        /// More about it.
        detail: u16,
        /// The node that failed, if another one did.
        node: Option<IpAddr>,
        /// What it adds.
        told: Told,
        /// A reservation that stood before the request stands on. Otherwise this is the last event.
        stands: bool,
    },
    /// The reservation was released; the last event.
    Released {
        /// The other end has answered.
        confirmed: bool,
    },
    /// The reservation ended; the last event.
    Lost {
        /// The reason.
        code: QosErrorCode,
    },
    /// The source of a flow to this node suggests a reservation. The identifier of the event is 0.
    Suggested {
        /// The session to reserve in.
        session: SessionId,
        /// The flow.
        flow: FlowId,
        /// The bounds.
        range: Range,
    },
}

/// An output of the client.
#[derive(Debug)]
pub enum QosOutput<'a> {
    /// For the messaging layer.
    Request(Request<'a>),
    /// Look up the route of a flow's data.
    RouteLookup {
        /// Id for [`QosClient::route`](super::QosClient::route).
        id: u64,
        /// A packet of the flow.
        query: RouteQuery,
    },
    /// For the user who asked.
    Event {
        /// The user's id.
        id: u64,
        /// The event.
        event: QosEvent,
    },
}

/// An output that is no request to the messaging layer.
#[derive(Debug)]
pub(super) enum Other {
    Lookup(u64, RouteQuery),
    Event(u64, Box<QosEvent>),
}

pub(super) type Outputs = Queue<Other>;

impl Outputs {
    pub(super) fn look_up(&mut self, id: u64, query: RouteQuery) {
        self.push(Other::Lookup(id, query));
    }

    pub(super) fn event(&mut self, id: u64, event: QosEvent) {
        self.push(Other::Event(id, Box::new(event)));
    }

    pub(super) fn poll(&mut self) -> Option<QosOutput<'_>> {
        Some(match self.take()? {
            Polled::Request(request) => QosOutput::Request(request),
            Polled::Other(Other::Lookup(id, query)) => QosOutput::RouteLookup { id, query },
            Polled::Other(Other::Event(id, event)) => QosOutput::Event { id, event: *event },
        })
    }
}
