//! Outputs that wait to be polled.

use core::net::IpAddr;
use std::collections::VecDeque;

use signalbox_core::SessionId;
use signalbox_core::node::RouteQuery;

use super::amount::{Amount, Range};
use crate::engine::{Request, SendRequest, Verdict};
use crate::wire::FlowId;
use crate::wire::qos::QosErrorCode;

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
    /// The request failed. A reservation that stood before it stands on.
    Refused {
        /// The reason.
        code: QosErrorCode,
        /// More about it.
        detail: u16,
        /// The node that failed, if another one did.
        node: Option<IpAddr>,
    },
    /// The reservation was released; the last event.
    Released,
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

/// A message of the client, with owned octets.
#[derive(Debug)]
pub(super) struct Message {
    /// The messaging layer gives it back when it names the session, or refuses.
    pub(super) tag: u64,
    pub(super) session: Option<SessionId>,
    pub(super) flow: FlowId,
    pub(super) reverse: bool,
    /// The messaging layer refreshes the session.
    pub(super) hold: bool,
    /// The session ends with the message.
    pub(super) tear_down: bool,
    pub(super) branch: Option<u16>,
    pub(super) data: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Queued {
    Send(Box<Message>),
    Verdict { id: u64, data: Option<Vec<u8>>, consume: bool },
    KeepBranches(SessionId, FlowId),
    Lookup(u64, RouteQuery),
    Event(u64, Box<QosEvent>),
}

#[derive(Debug, Default)]
pub(super) struct Outputs {
    queue: VecDeque<Queued>,
    /// The octets of the request that was polled last.
    octets: Vec<u8>,
}

impl Outputs {
    pub(super) fn send(&mut self, message: Message) {
        self.queue.push_back(Queued::Send(Box::new(message)));
    }

    /// The message ends here.
    pub(super) fn consume(&mut self, id: u64) {
        self.verdict(id, None, true);
    }

    /// The message goes on, with these octets if there are any.
    pub(super) fn forward(&mut self, id: u64, data: Option<Vec<u8>>) {
        self.verdict(id, data, false);
    }

    fn verdict(&mut self, id: u64, data: Option<Vec<u8>>, consume: bool) {
        if id != 0 {
            self.queue.push_back(Queued::Verdict { id, data, consume });
        }
    }

    /// Old branches of the session expire.
    pub(super) fn keep_branches(&mut self, session: SessionId, flow: FlowId) {
        self.queue.push_back(Queued::KeepBranches(session, flow));
    }

    pub(super) fn look_up(&mut self, id: u64, query: RouteQuery) {
        self.queue.push_back(Queued::Lookup(id, query));
    }

    pub(super) fn event(&mut self, id: u64, event: QosEvent) {
        self.queue.push_back(Queued::Event(id, Box::new(event)));
    }

    pub(super) fn poll(&mut self) -> Option<QosOutput<'_>> {
        Some(match self.queue.pop_front()? {
            Queued::Lookup(id, query) => QosOutput::RouteLookup { id, query },
            Queued::Event(id, event) => QosOutput::Event { id, event: *event },
            Queued::KeepBranches(session, flow) => {
                QosOutput::Request(Request::KeepBranches { session, flow })
            }
            Queued::Verdict { id, data, consume } => {
                let verdict = match data {
                    _ if consume => Verdict::Consume,
                    Some(data) => {
                        self.octets = data;
                        Verdict::Replace(&self.octets)
                    }
                    None => Verdict::Forward,
                };
                QosOutput::Request(Request::Verdict { id, verdict })
            }
            Queued::Send(message) => {
                let Message { tag, session, flow, reverse, hold, tear_down, branch, data } = *message;
                let has_data = data.is_some();
                self.octets = data.unwrap_or_default();
                QosOutput::Request(Request::Send(SendRequest {
                    tag,
                    reverse,
                    hold,
                    tear_down,
                    branch,
                    data: has_data.then_some(&self.octets[..]),
                    ..SendRequest::new(session, flow, &[])
                }))
            }
        })
    }
}
