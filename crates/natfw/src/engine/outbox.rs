//! Outputs that wait to be polled.

use core::time::Duration;

use signalbox_core::outputs::{self, Outputs};
use signalbox_core::pinhole::{Pinhole, PinholeId};
use signalbox_core::slab::Key;

use super::Natfw;
use super::event::NatfwEvent;
use super::host::HostEvent;
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

/// What other applications do not have.
#[derive(Debug)]
pub(super) enum Own {
    Open(PinholeId, Box<Pinhole>, Duration),
    Close(PinholeId),
    /// What becomes of a request of a front end.
    Host(u64, Box<HostEvent>),
}

pub(super) type Outbox = Outputs<Purpose, NatfwEvent, Own>;

impl<'a> From<outputs::Output<'a, NatfwEvent, Own>> for Output<'a> {
    #[inline]
    fn from(output: outputs::Output<'a, NatfwEvent, Own>) -> Self {
        match output {
            outputs::Output::Request(request) => Self::Request(request),
            outputs::Output::RouteLookup { id, query } => Self::RouteLookup { id, query },
            outputs::Output::Event { id, event } => Self::Event { id, event },
            outputs::Output::Own(Own::Open(id, pinhole, lifetime)) => {
                Self::Open { id, pinhole: *pinhole, lifetime }
            }
            outputs::Output::Own(Own::Close(id)) => Self::Close { id },
            outputs::Output::Own(Own::Host(id, event)) => Self::Host { id, event: *event },
        }
    }
}

impl Natfw {
    /// Queues a composed message for GIST.
    pub(super) fn give(&mut self, parcel: Parcel) {
        let watch = parcel.purpose != Purpose::Unwatched;
        let session = parcel.session;
        let Some(watched) = self.out.send(parcel, watch) else {
            self.counters.overload += 1;
            tracing::debug!(%session, reason = "table of messages full", "message dropped");
            return;
        };
        self.counters.unwatched += u64::from(watch && !watched);
    }
}
