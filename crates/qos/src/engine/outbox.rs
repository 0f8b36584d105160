//! Outputs that wait to be polled.

use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::index::KeyedHasher;
use signalbox_core::node::RouteQuery;
use signalbox_core::outbox::Outbox as Messages;
use signalbox_core::service::{CheckId, InvalidStatus, MessageHandle, Next, Peering, Request};
use signalbox_core::slab::Key;
use signalbox_core::{Mri, NslpId, SessionId, invariant};

use super::counters::Counters;
use super::event::QosEvent;
use super::io::Output;

/// What this node does if GIST cannot send a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Nothing: GIST does not report the status of the message.
    Unwatched,
    /// A RESERVE or QUERY to the next node. If there is no next node, this node answers it.
    Request {
        /// The session's record.
        session: Key,
        /// The RII that the last node has to answer.
        rii: Option<u32>,
        /// The message is a QUERY.
        query: bool,
    },
}

pub(super) type Parcel = signalbox_core::outbox::Parcel<Purpose>;

/// A queued output. Large values are boxed.
#[derive(Debug)]
enum Queued {
    Message(Key),
    Peering(CheckId),
    Lookup(u64, RouteQuery),
    Invalidate(Box<(NslpId, Mri)>),
    Lifetime(Box<(NslpId, Mri, SessionId, Duration)>),
    Event(u64, Box<QosEvent>),
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

    /// Frees the message that the last poll returned. Called at the start of each `handle` and `poll`.
    pub(super) fn release(&mut self) {
        self.messages.sweep();
    }

    /// An empty buffer to compose a message in.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.messages.buffer()
    }

    /// Takes back the buffer of a message.
    pub(super) fn reuse(&mut self, octets: Vec<u8>) {
        self.messages.reuse(octets);
    }

    /// Queues a composed message for GIST. The result is whether GIST reports its status; `None`: the table of messages is
    /// full.
    pub(super) fn send(&mut self, counters: &mut Counters, parcel: Parcel) -> Option<bool> {
        let watch = parcel.purpose != Purpose::Unwatched;
        let session = parcel.session;
        let Some(key) = self.messages.put(parcel, watch) else {
            counters.overload += 1;
            tracing::debug!(%session, reason = "table of messages full", "message dropped");
            return None;
        };
        let watched = self.messages.is_watched(key);
        if watch && !watched {
            counters.unwatched += 1;
        }
        tracing::trace!(%session, "message sent");
        self.queue.push_back(Queued::Message(key));
        Some(watched)
    }

    /// Takes out the message that GIST reports the status of.
    pub(super) fn settle(&mut self, handle: MessageHandle, session: SessionId) -> Option<Parcel> {
        self.messages.settle(handle, session)
    }

    /// Accepts a peer that GIST asks about (RFC 5971 B.2).
    pub(super) fn accept_peer(&mut self, check: CheckId) {
        self.queue.push_back(Queued::Peering(check));
    }

    pub(super) fn look_up(&mut self, id: u64, query: RouteQuery) {
        self.queue.push_back(Queued::Lookup(id, query));
    }

    /// Makes GIST look for the next peer of a flow again (RFC 5971 B.6).
    pub(super) fn invalidate_route(&mut self, nslp: NslpId, mri: Mri) {
        self.queue.push_back(Queued::Invalidate(Box::new((nslp, mri))));
    }

    /// Sets how long GIST keeps the routing state of a session (RFC 5971 B.5).
    pub(super) fn set_state_lifetime(
        &mut self,
        nslp: NslpId,
        mri: Mri,
        session: SessionId,
        lifetime: Duration,
    ) {
        self.queue.push_back(Queued::Lifetime(Box::new((nslp, mri, session, lifetime))));
    }

    pub(super) fn event(&mut self, id: u64, event: QosEvent) {
        self.queue.push_back(Queued::Event(id, Box::new(event)));
    }

    /// Messages whose status GIST has not reported yet.
    pub(super) const fn watched(&self) -> u32 {
        self.messages.watched()
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
            Queued::Lookup(id, query) => Output::RouteLookup { id, query },
            Queued::Invalidate(of) => {
                let (nslp, mri) = *of;
                Output::Request(Request::InvalidateRoutingState {
                    nslp: Some(nslp),
                    mri,
                    status: InvalidStatus::Tentative,
                    data: &[],
                    urgent: true,
                })
            }
            Queued::Lifetime(of) => {
                let (nslp, mri, session, lifetime) = *of;
                Output::Request(Request::SetStateLifetime { nslp, mri, session: Some(session), lifetime })
            }
            Queued::Event(id, event) => Output::Event { id, event: *event },
        })
    }

    #[inline]
    pub(super) fn next(&self) -> Option<Next> {
        Some(match self.queue.front()? {
            Queued::Message(_) | Queued::Peering(_) | Queued::Invalidate(_) | Queued::Lifetime(_) => {
                Next::Gist
            }
            Queued::Lookup(..) | Queued::Event(..) => Next::Driver,
        })
    }
}
