//! The next outputs of a client: requests to the messaging layer with octets of their own, and outputs of its own kind.

use std::collections::VecDeque;

use signalbox_core::SessionId;

use crate::engine::{Request, SendRequest, Verdict};
use crate::wire::FlowId;

/// A message of a client.
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

impl Message {
    /// Ends a session with one flow in the messaging layer.
    pub(super) const fn tear_down(session: SessionId, flow: FlowId) -> Self {
        Self {
            tag: 0,
            session: Some(session),
            flow,
            reverse: false,
            hold: false,
            tear_down: true,
            branch: None,
            data: None,
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
pub(super) enum Polled<'a, T> {
    Request(Request<'a>),
    Other(T),
}

/// Outputs in their order; `T` is what else the client gives out.
#[derive(Debug)]
pub(super) struct Queue<T> {
    queue: VecDeque<Queued<T>>,
    /// The octets of the request that was polled last.
    octets: Vec<u8>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), octets: Vec::new() }
    }
}

impl<T> Queue<T> {
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

    /// The next hops of a session see another flow.
    pub(super) fn translate(&mut self, session: SessionId, flow: FlowId, outer: FlowId) {
        self.queue.push_back(Queued::Translate(session, [flow, outer]));
    }

    pub(super) fn other(&mut self, output: T) {
        self.queue.push_back(Queued::Other(output));
    }

    pub(super) fn poll(&mut self) -> Option<Polled<'_, T>> {
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
                let Message { tag, session, flow, reverse, hold, tear_down, branch, data } = *message;
                let has_data = data.is_some();
                self.octets = data.unwrap_or_default();
                Request::Send(SendRequest {
                    tag,
                    reverse,
                    hold,
                    tear_down,
                    branch,
                    data: has_data.then_some(&self.octets[..]),
                    ..SendRequest::new(session, flow, &[])
                })
            }
        };
        Some(Polled::Request(request))
    }
}
