//! Outputs of a signaling application that wait to be polled, in the order in which they were made: requests to GIST (RFC 5971
//! Appendix B), and what its driver does.
//!
//! An engine calls [`Outputs::release`] at the start of each `handle`, since a message that was given out lives until then.

use core::convert::Infallible;
use core::time::Duration;
use std::collections::VecDeque;

use crate::id::{NslpId, SessionId};
use crate::index::KeyedHasher;
use crate::invariant;
use crate::mri::Mri;
use crate::node::RouteQuery;
use crate::outbox::{Outbox, Parcel};
use crate::service::{CheckId, InvalidStatus, MessageHandle, Next, Peering, Request};
use crate::slab::Key;

/// One output of an application with events `E`, and with outputs `O` of its own.
#[derive(Debug)]
pub enum Output<'a, E, O = Infallible> {
    /// A request to GIST (RFC 5971 Appendix B).
    Request(Request<'a>),
    /// Find the route that a packet of this flow would take.
    RouteLookup {
        /// To be given back with the route.
        id: u64,
        /// The packet.
        query: RouteQuery,
    },
    /// An event for a user.
    Event {
        /// The identifier that the command carried.
        id: u64,
        /// The event.
        event: E,
    },
    /// An output that other applications do not have.
    Own(O),
}

/// A queued output. Large values are boxed, unless an output of each session has them.
#[derive(Debug)]
enum Queued<E, O> {
    Message(Key),
    Peering(CheckId),
    Invalidate(Box<(NslpId, Mri)>),
    Lifetime(Box<(NslpId, Mri, SessionId, Duration)>),
    Lookup(u64, RouteQuery),
    Event(u64, Box<E>),
    Own(O),
}

/// The queue of outputs. `P` is the purpose of a message, see [`Parcel`].
#[derive(Debug)]
pub struct Outputs<P, E, O = Infallible> {
    messages: Outbox<P>,
    queue: VecDeque<Queued<E, O>>,
}

impl<P, E, O> Outputs<P, E, O> {
    /// An empty queue that watches at most `max_watched` messages. The hasher is for their sources.
    #[must_use]
    pub fn new(max_watched: u32, hasher: KeyedHasher) -> Self {
        Self { messages: Outbox::new(max_watched, hasher), queue: VecDeque::new() }
    }

    /// Watches at most `max_watched` messages from now on.
    pub const fn set_limit(&mut self, max_watched: u32) {
        self.messages.set_limit(max_watched);
    }

    /// Frees the message that the last poll returned.
    pub fn release(&mut self) {
        self.messages.sweep();
    }

    /// An empty buffer to compose a message in.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.messages.buffer()
    }

    /// Takes back the buffer of a message.
    pub fn reuse(&mut self, octets: Vec<u8>) {
        self.messages.reuse(octets);
    }

    /// Queues a composed message for GIST. It is watched if `watch` is set and there is room. The result is whether it is watched;
    /// `None`: the table of messages is full.
    pub fn send(&mut self, parcel: Parcel<P>, watch: bool) -> Option<bool> {
        let key = self.messages.put(parcel, watch)?;
        self.queue.push_back(Queued::Message(key));
        Some(watch && self.messages.is_watched(key))
    }

    /// GIST reports that it sent a message: see [`Outbox::sent`].
    pub fn sent(&mut self, handle: MessageHandle, session: SessionId) {
        self.messages.sent(handle, session);
    }

    /// Takes out the message that GIST reports the status of: see [`Outbox::settle`].
    pub fn settle(&mut self, handle: MessageHandle, session: SessionId) -> Option<Parcel<P>> {
        self.messages.settle(handle, session)
    }

    /// Messages whose status GIST has not reported yet.
    #[must_use]
    pub const fn watched(&self) -> u32 {
        self.messages.watched()
    }

    /// Accepts a peer that GIST asks about (RFC 5971 B.2).
    pub fn accept_peer(&mut self, check: CheckId) {
        self.queue.push_back(Queued::Peering(check));
    }

    /// Sets how long GIST keeps the routing state of a session (RFC 5971 B.5).
    pub fn set_state_lifetime(&mut self, nslp: NslpId, mri: Mri, session: SessionId, lifetime: Duration) {
        self.queue.push_back(Queued::Lifetime(Box::new((nslp, mri, session, lifetime))));
    }

    /// Makes GIST look for the next peer of a flow again (RFC 5971 B.6).
    pub fn invalidate_route(&mut self, nslp: NslpId, mri: Mri) {
        self.queue.push_back(Queued::Invalidate(Box::new((nslp, mri))));
    }

    /// Asks the driver for a route.
    pub fn look_up(&mut self, id: u64, query: RouteQuery) {
        self.queue.push_back(Queued::Lookup(id, query));
    }

    /// Gives an event to the user of this identifier.
    pub fn event(&mut self, id: u64, event: E) {
        self.queue.push_back(Queued::Event(id, Box::new(event)));
    }

    /// Queues an output that other applications do not have.
    pub fn push(&mut self, output: O) {
        self.queue.push_back(Queued::Own(output));
    }

    /// The next output, if there is one. Its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<Output<'_, E, O>> {
        self.release();
        Some(match self.queue.pop_front()? {
            Queued::Message(key) => Output::Request(Request::SendMessage(invariant!(
                self.messages.give(key),
                "a queued message is kept"
            )?)),
            Queued::Peering(check) => {
                Output::Request(Request::Peering { check, decision: Peering::Accept(None) })
            }
            Queued::Invalidate(state) => {
                let (nslp, mri) = *state;
                Output::Request(Request::InvalidateRoutingState {
                    nslp: Some(nslp),
                    mri,
                    status: InvalidStatus::Tentative,
                    data: &[],
                    urgent: true,
                })
            }
            Queued::Lifetime(state) => {
                let (nslp, mri, session, lifetime) = *state;
                Output::Request(Request::SetStateLifetime { nslp, mri, session: Some(session), lifetime })
            }
            Queued::Lookup(id, query) => Output::RouteLookup { id, query },
            Queued::Event(id, event) => Output::Event { id, event: *event },
            Queued::Own(output) => Output::Own(output),
        })
    }

    /// The next output, if it is one that other applications do not have.
    #[inline]
    #[must_use]
    pub fn next_own(&self) -> Option<&O> {
        match self.queue.front()? {
            Queued::Own(output) => Some(output),
            Queued::Message(_)
            | Queued::Peering(_)
            | Queued::Invalidate(_)
            | Queued::Lifetime(_)
            | Queued::Lookup(..)
            | Queued::Event(..) => None,
        }
    }

    /// Who takes the next output of [`Outputs::poll`]; `None`: there is no output.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        Some(match self.queue.front()? {
            Queued::Message(_) | Queued::Peering(_) | Queued::Invalidate(_) | Queued::Lifetime(_) => {
                Next::Gist
            }
            Queued::Lookup(..) | Queued::Event(..) | Queued::Own(_) => Next::Driver,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mri::PathCoupled;

    const SESSION: SessionId = SessionId([7; 16]);

    fn mri() -> Mri {
        Mri::PathCoupled(PathCoupled::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into()))
    }

    fn outputs() -> Outputs<u8, &'static str, char> {
        Outputs::new(1, KeyedHasher::with_key([3; 16]))
    }

    fn parcel(outputs: &mut Outputs<u8, &'static str, char>) -> Parcel<u8> {
        let mut octets = outputs.buffer();
        octets.extend([1; 8]);
        Parcel::new(octets, NslpId::QOS, SESSION, mri(), 5)
    }

    #[test]
    fn outputs_come_in_their_order_and_each_to_its_receiver() {
        let mut outputs = outputs();
        let message = parcel(&mut outputs);
        outputs.event(4, "first");
        assert_eq!(outputs.send(message, false), Some(false));
        outputs.push('x');
        outputs.accept_peer(CheckId(3));
        outputs.look_up(9, RouteQuery::to([10, 0, 0, 2].into()));
        outputs.set_state_lifetime(NslpId::QOS, mri(), SESSION, Duration::ZERO);
        outputs.invalidate_route(NslpId::QOS, mri());
        let mut all = Vec::new();
        while let Some(next) = outputs.next() {
            let what = match outputs.poll().unwrap() {
                Output::Request(Request::SendMessage(message)) => format!("{} octets", message.data.len()),
                Output::Request(Request::Peering { check, .. }) => format!("check {}", check.0),
                Output::Request(Request::SetStateLifetime { session, .. }) => {
                    format!("lifetime {}", session == Some(SESSION))
                }
                Output::Request(Request::InvalidateRoutingState { .. }) => "invalid".to_owned(),
                Output::RouteLookup { id, .. } => format!("lookup {id}"),
                Output::Event { id, event } => format!("{event} {id}"),
                Output::Own(own) => own.to_string(),
            };
            all.push((next == Next::Gist, what));
        }
        let expected = [
            (false, "first 4"),
            (true, "8 octets"),
            (false, "x"),
            (true, "check 3"),
            (false, "lookup 9"),
            (true, "lifetime true"),
            (true, "invalid"),
        ];
        assert!(all.iter().map(|(gist, what)| (*gist, what.as_str())).eq(expected), "{all:?}");
        assert!(outputs.poll().is_none() && outputs.poll().is_none());
    }

    #[test]
    fn a_message_is_watched_while_there_is_room() {
        let mut outputs = outputs();
        let [first, second] = [(); 2].map(|()| parcel(&mut outputs));
        assert_eq!([outputs.send(first, true), outputs.send(second, true)], [Some(true), Some(false)]);
        let Some(Output::Request(Request::SendMessage(message))) = outputs.poll() else { panic!() };
        let handle = message.handle.unwrap();
        let settled = outputs.settle(handle, SESSION).unwrap();
        assert_eq!((settled.purpose, outputs.watched()), (5, 0));
        outputs.reuse(settled.octets);
        assert!(outputs.buffer().capacity() >= 8, "its buffer is used again");
    }
}
