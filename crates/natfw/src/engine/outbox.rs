//! Outputs that wait to be polled.

use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::index::KeyedHasher;
use signalbox_core::node::RouteQuery;
use signalbox_core::outbox::Outbox as Messages;
use signalbox_core::pinhole::{Pinhole, PinholeId};
use signalbox_core::service::{CheckId, MessageHandle, Next, Peering, Request};
use signalbox_core::slab::Key;
use signalbox_core::{Mri, NslpId, SessionId, invariant};

use super::counters::Counters;
use super::event::NatfwEvent;
use super::io::Output;

/// What this node does if GIST cannot send a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Nothing: GIST does not report the status of the message.
    Unwatched,
    /// A CREATE or EXTERNAL with this sequence number to the next node. If there is none, this node answers it.
    Request(Key, u32),
}

pub(super) type Parcel = signalbox_core::outbox::Parcel<Purpose>;

/// A queued output. Large values are boxed.
#[derive(Debug)]
enum Queued {
    Message(Key),
    Peering(CheckId),
    Lifetime(Box<(NslpId, Mri, SessionId, Duration)>),
    Lookup(u64, Box<RouteQuery>),
    Open(PinholeId, Box<Pinhole>, Duration),
    Close(PinholeId),
    Event(u64, Box<NatfwEvent>),
}

#[derive(Debug)]
pub(super) struct Outbox {
    messages: Messages<Purpose>,
    queue: VecDeque<Queued>,
}

impl Outbox {
    pub(super) fn new(max_watched: u32, hasher: KeyedHasher) -> Self {
        Self { messages: Messages::new(max_watched, hasher), queue: VecDeque::new() }
    }

    /// Watches at most `max_watched` messages from now on.
    pub(super) const fn set_limit(&mut self, max_watched: u32) {
        self.messages.set_limit(max_watched);
    }

    /// Frees the message that the last poll returned. Called at the start of each `handle` and `poll`.
    pub(super) fn release(&mut self) {
        self.messages.sweep();
    }

    /// An empty buffer to compose a message in.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.messages.buffer()
    }

    /// Queues a composed message for GIST.
    pub(super) fn send(&mut self, counters: &mut Counters, parcel: Parcel) {
        let watch = parcel.purpose != Purpose::Unwatched;
        let session = parcel.session;
        let Some(key) = self.messages.put(parcel, watch) else {
            counters.overload += 1;
            tracing::debug!(%session, reason = "table of messages full", "message dropped");
            return;
        };
        if watch && !self.messages.is_watched(key) {
            counters.unwatched += 1;
        }
        self.queue.push_back(Queued::Message(key));
    }

    /// Takes out the purpose of the message that GIST reports the status of.
    pub(super) fn settle(&mut self, handle: MessageHandle, session: SessionId) -> Option<Purpose> {
        let parcel = self.messages.settle(handle, session)?;
        self.messages.reuse(parcel.octets);
        Some(parcel.purpose)
    }

    /// Accepts a peer that GIST asks about (RFC 5971 B.2).
    pub(super) fn accept_peer(&mut self, check: CheckId) {
        self.queue.push_back(Queued::Peering(check));
    }

    /// Sets how long GIST keeps the routing state of a session (RFC 5971 B.5).
    pub(super) fn keep_route(&mut self, nslp: NslpId, mri: Mri, session: SessionId, lifetime: Duration) {
        self.queue.push_back(Queued::Lifetime(Box::new((nslp, mri, session, lifetime))));
    }

    pub(super) fn look_up(&mut self, id: u64, query: RouteQuery) {
        self.queue.push_back(Queued::Lookup(id, Box::new(query)));
    }

    pub(super) fn open(&mut self, id: PinholeId, pinhole: Pinhole, lifetime: Duration) {
        self.queue.push_back(Queued::Open(id, Box::new(pinhole), lifetime));
    }

    pub(super) fn close(&mut self, id: PinholeId) {
        self.queue.push_back(Queued::Close(id));
    }

    pub(super) fn event(&mut self, id: u64, event: NatfwEvent) {
        self.queue.push_back(Queued::Event(id, Box::new(event)));
    }

    pub(super) fn poll(&mut self) -> Option<Output<'_>> {
        self.release();
        Some(match self.queue.pop_front()? {
            Queued::Message(key) => Output::Request(Request::SendMessage(invariant!(
                self.messages.give(key),
                "a queued message is kept"
            )?)),
            Queued::Peering(check) => {
                Output::Request(Request::Peering { check, decision: Peering::Accept(None) })
            }
            Queued::Lifetime(of) => {
                let (nslp, mri, session, lifetime) = *of;
                Output::Request(Request::SetStateLifetime { nslp, mri, session: Some(session), lifetime })
            }
            Queued::Lookup(id, query) => Output::RouteLookup { id, query: *query },
            Queued::Open(id, pinhole, lifetime) => Output::Open { id, pinhole: *pinhole, lifetime },
            Queued::Close(id) => Output::Close { id },
            Queued::Event(id, event) => Output::Event { id, event: *event },
        })
    }

    #[inline]
    pub(super) fn next(&self) -> Option<Next> {
        Some(match self.queue.front()? {
            Queued::Message(_) | Queued::Peering(_) | Queued::Lifetime(_) => Next::Gist,
            Queued::Lookup(..) | Queued::Open(..) | Queued::Close(_) | Queued::Event(..) => Next::Driver,
        })
    }
}
