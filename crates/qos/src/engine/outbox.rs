//! Outputs that wait to be polled.

use signalbox_core::outputs::Outputs;
use signalbox_core::slab::Key;

use super::Qos;
use super::event::QosEvent;

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

pub(super) type Outbox = Outputs<Purpose, QosEvent>;

impl Qos {
    /// Queues a composed message for GIST. The result is whether GIST reports its status; `None`: the table of messages is
    /// full.
    pub(super) fn send(&mut self, parcel: Parcel) -> Option<bool> {
        let watch = parcel.purpose != Purpose::Unwatched;
        let session = parcel.session;
        let Some(watched) = self.out.send(parcel, watch) else {
            self.counters.overload += 1;
            tracing::debug!(%session, reason = "table of messages full", "message dropped");
            return None;
        };
        self.counters.unwatched += u64::from(watch && !watched);
        tracing::trace!(%session, "message sent");
        Some(watched)
    }
}
