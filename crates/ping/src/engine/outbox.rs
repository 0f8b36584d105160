//! Outputs that wait to be polled.

use std::collections::VecDeque;

use signalbox_core::index::KeyedHasher;
use signalbox_core::node::RouteQuery;
use signalbox_core::outbox::{Outbox as Messages, Parcel};
use signalbox_core::service::{CheckId, MessageHandle, Next, Peering, Request, StateHandle};
use signalbox_core::slab::Key;
use signalbox_core::{Mri, NslpId, SessionId, invariant};
use signalbox_wire::Writer;

use super::config::Config;
use super::counters::Counters;
use super::event::PingEvent;
use super::io::Output;

/// Why this node sends a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// This node is the initiator: the ping and the sequence number of the message.
    Probe(Key, u32),
    /// A request from another node; the routing state that leads back to its sender.
    Request(Option<StateHandle>),
    /// A reply. If it fails, this node does nothing.
    Reply,
}

/// A queued output. Large values, which only the initiator has, are boxed.
#[derive(Debug)]
enum Queued {
    Message(Key),
    Peering(CheckId),
    Lifetime(Box<(NslpId, Mri, SessionId)>),
    Lookup(Box<(u64, RouteQuery)>),
    Event(u64, Box<PingEvent>),
}

#[derive(Debug)]
pub(super) struct Outbox {
    messages: Messages<Origin>,
    queue: VecDeque<Queued>,
}

impl Outbox {
    pub(super) fn new(max_watched: u32, hasher: KeyedHasher) -> Self {
        Self { messages: Messages::new(max_watched, hasher), queue: VecDeque::new() }
    }

    /// Frees the message that the last poll returned. Called at the start of each `handle` and `poll`.
    pub(super) fn release(&mut self) {
        self.messages.sweep();
    }

    /// Composes a message with `write` and queues it. False: the table of messages is full.
    pub(super) fn send(
        &mut self,
        counters: &mut Counters,
        mut parcel: Parcel<Origin>,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> bool {
        let watch = parcel.purpose != Origin::Reply;
        let session = parcel.session;
        parcel.octets = self.messages.buffer();
        write(&mut Writer::new(&mut parcel.octets));
        let Some(key) = self.messages.put(parcel, watch) else {
            counters.overload += 1;
            tracing::debug!(%session, reason = "table of messages full", "message dropped");
            return false;
        };
        if watch && !self.messages.is_watched(key) {
            counters.unwatched += 1;
        }
        self.queue.push_back(Queued::Message(key));
        true
    }

    /// Accepts a peer that GIST asks about (RFC 5971 B.2).
    pub(super) fn accept_peer(&mut self, check: CheckId) {
        self.queue.push_back(Queued::Peering(check));
    }

    /// Limits the lifetime of a session's routing state to [`Config::linger`] (RFC 5971 B.5).
    pub(super) fn end_session(&mut self, nslp: NslpId, mri: Mri, session: SessionId) {
        self.queue.push_back(Queued::Lifetime(Box::new((nslp, mri, session))));
    }

    pub(super) fn look_up(&mut self, id: u64, query: RouteQuery) {
        self.queue.push_back(Queued::Lookup(Box::new((id, query))));
    }

    pub(super) fn event(&mut self, id: u64, event: PingEvent) {
        self.queue.push_back(Queued::Event(id, Box::new(event)));
    }

    /// GIST reports that it sent a message: the table needs it no longer.
    pub(super) fn sent(&mut self, handle: MessageHandle, session: SessionId) {
        self.messages.sent(handle, session);
    }

    /// Takes out the message that GIST reports the status of.
    pub(super) fn settle(&mut self, handle: MessageHandle, session: SessionId) -> Option<Parcel<Origin>> {
        self.messages.settle(handle, session)
    }

    /// Takes back the buffer of a message.
    pub(super) fn reuse(&mut self, parcel: Parcel<Origin>) {
        self.messages.reuse(parcel.octets);
    }

    /// Messages whose status GIST has not reported yet.
    pub(super) const fn watched(&self) -> u32 {
        self.messages.watched()
    }

    pub(super) fn poll(&mut self, config: &Config) -> Option<Output<'_>> {
        self.release();
        match self.queue.pop_front()? {
            Queued::Message(key) => {
                let message =
                    invariant!(self.messages.give(key), "a queued message is there until it is given out")?;
                Some(Output::Request(Request::SendMessage(message)))
            }
            Queued::Peering(check) => {
                Some(Output::Request(Request::Peering { check, decision: Peering::Accept(None) }))
            }
            Queued::Lifetime(of) => {
                let (nslp, mri, session) = *of;
                Some(Output::Request(Request::SetStateLifetime {
                    nslp,
                    mri,
                    session: Some(session),
                    lifetime: config.linger,
                }))
            }
            Queued::Lookup(of) => {
                let (id, query) = *of;
                Some(Output::RouteLookup { id, query })
            }
            Queued::Event(id, event) => Some(Output::Event { id, event: *event }),
        }
    }

    #[inline]
    pub(super) fn next(&self) -> Option<Next> {
        Some(match self.queue.front()? {
            Queued::Message(_) | Queued::Peering(_) | Queued::Lifetime(_) => Next::Gist,
            Queued::Lookup(_) | Queued::Event(..) => Next::Driver,
        })
    }
}
