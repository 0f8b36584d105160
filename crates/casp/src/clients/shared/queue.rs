//! The next outputs of a client: requests to the messaging layer with octets of their own, and outputs of its own kind.

use std::collections::VecDeque;

use signalbox_core::SessionId;

use crate::engine::{Request, SendRequest, Verdict};
use crate::wire::FlowId;

/// A message of a client.
#[derive(Debug)]
pub(in crate::clients) struct Message {
    /// The messaging layer gives it back when it names the session, or refuses.
    pub(in crate::clients) tag: u64,
    pub(in crate::clients) session: Option<SessionId>,
    pub(in crate::clients) flow: FlowId,
    pub(in crate::clients) reverse: bool,
    /// The messaging layer refreshes the session.
    pub(in crate::clients) hold: bool,
    /// The session ends with the message.
    pub(in crate::clients) tear_down: bool,
    pub(in crate::clients) branch: Option<u16>,
    pub(in crate::clients) data: Option<Vec<u8>>,
    /// No node has state of its session: each appends itself to the message.
    pub(in crate::clients) record_route: bool,
    /// The nodes that an answer to such a message goes back over.
    pub(in crate::clients) route: Option<Vec<u8>>,
}

impl Message {
    /// A message along the flow of a session; `None`: the messaging layer draws the identifier of the session.
    pub(in crate::clients) const fn new(session: Option<SessionId>, flow: FlowId, data: Vec<u8>) -> Self {
        Self::of(session, flow, Some(data))
    }

    /// Ends a session with one flow in the messaging layer.
    pub(in crate::clients) fn tear_down(session: SessionId, flow: FlowId) -> Self {
        Self { tear_down: true, ..Self::of(Some(session), flow, None) }
    }

    const fn of(session: Option<SessionId>, flow: FlowId, data: Option<Vec<u8>>) -> Self {
        Self {
            tag: 0,
            session,
            flow,
            reverse: false,
            hold: false,
            tear_down: false,
            branch: None,
            data,
            record_route: false,
            route: None,
        }
    }
}

#[derive(Debug)]
enum Queued<T> {
    Send(Box<Message>),
    Verdict { id: u64, data: Option<Vec<u8>>, consume: bool },
    KeepBranches(SessionId, FlowId),
    Translate(SessionId, [FlowId; 2]),
    Other(T),
}

/// An output that was polled.
#[derive(Debug)]
pub(in crate::clients) enum Polled<'a, T> {
    Request(Request<'a>),
    Other(T),
}

/// Outputs in their order; `T` is what else the client gives out.
#[derive(Debug)]
pub(in crate::clients) struct Queue<T> {
    queue: VecDeque<Queued<T>>,
    /// The octets of the request that was polled last, and its route.
    octets: Vec<u8>,
    route: Vec<u8>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), octets: Vec::new(), route: Vec::new() }
    }
}

impl<T> Queue<T> {
    pub(in crate::clients) fn send(&mut self, message: Message) {
        self.queue.push_back(Queued::Send(Box::new(message)));
    }

    /// The message ends here.
    pub(in crate::clients) fn consume(&mut self, id: u64) {
        self.verdict(id, None, true);
    }

    /// The message goes on, with these octets if there are any.
    pub(in crate::clients) fn forward(&mut self, id: u64, data: Option<Vec<u8>>) {
        self.verdict(id, data, false);
    }

    fn verdict(&mut self, id: u64, data: Option<Vec<u8>>, consume: bool) {
        if id != 0 {
            self.queue.push_back(Queued::Verdict { id, data, consume });
        }
    }

    /// Old branches of the session expire.
    pub(in crate::clients) fn keep_branches(&mut self, session: SessionId, flow: FlowId) {
        self.queue.push_back(Queued::KeepBranches(session, flow));
    }

    /// The next hops of a session see another flow.
    pub(in crate::clients) fn translate(&mut self, session: SessionId, flow: FlowId, outer: FlowId) {
        self.queue.push_back(Queued::Translate(session, [flow, outer]));
    }

    /// An output of the client's own kind.
    pub(in crate::clients) fn push(&mut self, output: T) {
        self.queue.push_back(Queued::Other(output));
    }

    /// Takes the next output; its octets are valid until the next call.
    pub(in crate::clients) fn take(&mut self) -> Option<Polled<'_, T>> {
        let request = match self.queue.pop_front()? {
            Queued::Other(output) => return Some(Polled::Other(output)),
            Queued::Translate(session, [flow, outer]) => Request::Translate { session, flow, outer },
            Queued::KeepBranches(session, flow) => Request::KeepBranches { session, flow },
            Queued::Verdict { id, data, consume } => {
                let verdict = match data {
                    _ if consume => Verdict::Consume,
                    Some(data) => {
                        self.octets = data;
                        Verdict::Replace(&self.octets)
                    }
                    None => Verdict::Forward,
                };
                Request::Verdict { id, verdict }
            }
            Queued::Send(message) => {
                let Message {
                    tag,
                    session,
                    flow,
                    reverse,
                    hold,
                    tear_down,
                    branch,
                    data,
                    record_route,
                    route,
                } = *message;
                let (has_data, has_route) = (data.is_some(), route.is_some());
                self.octets = data.unwrap_or_default();
                self.route = route.unwrap_or_default();
                Request::Send(SendRequest {
                    tag,
                    reverse,
                    hold,
                    tear_down,
                    branch,
                    record_route,
                    route: has_route.then_some(&self.route[..]),
                    data: has_data.then_some(&self.octets[..]),
                    ..SendRequest::new(session, flow, &[])
                })
            }
        };
        Some(Polled::Request(request))
    }
}
