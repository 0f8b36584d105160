//! Values that describe a Resv while it is handled.

use core::net::IpAddr;

use signalbox_core::Key;
use signalbox_core::stamp::Stamp;

use crate::engine::Rsvp;
use crate::engine::carried::Received;
use crate::engine::interfaces::Iface;
use crate::engine::merging::{Confirm, UpstreamChange};
use crate::engine::receive::Failure;
use crate::wire::{self, Filter, Message, RsvpHop, Style};

/// A request of one next hop, or of an application of this node.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Wanted<'a> {
    pub(in crate::engine) session: Key,
    pub(in crate::engine) style: Style,
    pub(in crate::engine) oif: Iface,
    /// The next hop, shared, or an application of this node ([`is_application`](crate::engine::session::is_application)).
    pub(in crate::engine) hop: u32,
    pub(in crate::engine) application: Option<u64>,
    pub(in crate::engine) expires: Stamp,
    /// With WF the senders of the SCOPE, packed and ascending.
    pub(in crate::engine) scope: Option<&'a [u32]>,
    pub(in crate::engine) carried: &'a [u8],
    pub(in crate::engine) received: Received,
    pub(in crate::engine) confirm: Option<IpAddr>,
}

impl Wanted<'_> {
    /// The confirmation that is requested.
    pub(in crate::engine) fn confirmation(&self) -> Option<Confirm> {
        self.confirm.map(|receiver| Confirm { receiver, oif: self.oif, hop: self.hop })
    }
}

/// Result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Outcome {
    /// The request was there already; its lifetime begins again.
    Refreshed {
        /// The reservation.
        branch: Key,
    },
    /// The reservation is new or has changed.
    Changed {
        /// The reservation.
        branch: Key,
        /// The request is larger than all others at the interface.
        largest: bool,
    },
    /// The request failed; `true`: another reservation is in place, or the former one of this next hop.
    Failed(Failure, bool),
}

/// What a Resv reserved. Its lists borrow allocations of the engine, which `Rsvp::recycle_accepted` gives back.
#[derive(Debug, Default)]
pub(in crate::engine) struct Accepted {
    /// The reservations that hold its requests.
    pub(in crate::engine) branches: Vec<Key>,
    /// With SE the senders that it names, in ascending order.
    pub(in crate::engine) senders: Vec<Key>,
    /// A flow descriptor was refused, or named an unknown sender. The MESSAGE_ID then does not stand for the message:
    /// it must be received again as a whole.
    pub(in crate::engine) partial: bool,
}

/// A Resv that is handled: its facts, and the results of its flow descriptors so far.
#[derive(Debug)]
pub(super) struct ResvContext<'a> {
    pub(in crate::engine) message: &'a Message<'a>,
    pub(in crate::engine) session: wire::Session,
    pub(in crate::engine) hop: RsvpHop,
    /// The interface that its handle names.
    pub(in crate::engine) oif: Iface,
    pub(in crate::engine) upstream: UpstreamChange,
    pub(in crate::engine) accepted: Accepted,
    /// ResvErrs that answered it so far.
    pub(in crate::engine) errors: usize,
}

impl<'a> ResvContext<'a> {
    pub(in crate::engine) fn of(
        message: &'a Message<'a>,
        session: wire::Session,
        hop: RsvpHop,
        oif: Iface,
    ) -> Self {
        Self {
            message,
            session,
            hop,
            oif,
            upstream: UpstreamChange::default(),
            accepted: Accepted::default(),
            errors: 0,
        }
    }

    /// All filter specs of the message.
    pub(in crate::engine) fn filters(&self) -> Vec<Filter> {
        self.message.flows().filter_map(|flow| flow.filter).collect()
    }
}

impl Rsvp {
    /// Lists for what a Resv reserves.
    pub(super) fn begin_accepted(&mut self) -> Accepted {
        let [branches, senders] = core::mem::take(&mut self.branches.accepted);
        Accepted { branches, senders, partial: false }
    }

    /// Gives the lists back to the engine.
    pub(in crate::engine) fn recycle_accepted(&mut self, accepted: Accepted) {
        for (kept, mut list) in self.branches.accepted.iter_mut().zip([accepted.branches, accepted.senders]) {
            if list.capacity() > kept.capacity() {
                list.clear();
                *kept = list;
            }
        }
    }
}
