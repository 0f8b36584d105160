//! Values that describe a Resv while it is handled.

use core::net::IpAddr;

use signalbox_core::Key;
use signalbox_core::stamp::Stamp;

use super::carried::Received;
use super::forward::{Confirm, UpstreamChange};
use super::interfaces::Iface;
use super::receive::Failure;
use crate::wire::{self, Filter, Message, RsvpHop, Style};

/// A request of one next hop, or of an application of this node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) session: Key,
    pub(super) style: Style,
    pub(super) oif: Iface,
    /// The next hop, shared, or an application of this node ([`is_application`](super::session::is_application)).
    pub(super) hop: u32,
    pub(super) application: Option<u64>,
    pub(super) expires: Stamp,
    /// With WF the senders of the SCOPE, packed and ascending.
    pub(super) scope: Option<&'a [u32]>,
    pub(super) carried: &'a [u8],
    pub(super) received: Received,
    pub(super) confirm: Option<IpAddr>,
}

impl Wanted<'_> {
    /// The confirmation that is requested.
    pub(super) fn confirmation(&self) -> Option<Confirm> {
        self.confirm.map(|receiver| Confirm { receiver, oif: self.oif, hop: self.hop })
    }
}

/// Result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
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
pub(super) struct Accepted {
    /// The reservations that hold its requests.
    pub(super) branches: Vec<Key>,
    /// With SE the senders that it names, in ascending order.
    pub(super) senders: Vec<Key>,
    /// A flow descriptor was refused, or named an unknown sender. The MESSAGE_ID then does not stand for the message:
    /// it must be received again as a whole.
    pub(super) partial: bool,
}

/// A Resv that is handled: its facts, and the results of its flow descriptors so far.
#[derive(Debug)]
pub(super) struct ResvContext<'a> {
    pub(super) message: &'a Message<'a>,
    pub(super) session: wire::Session,
    pub(super) hop: RsvpHop,
    /// The interface that its handle names.
    pub(super) oif: Iface,
    pub(super) upstream: UpstreamChange,
    pub(super) accepted: Accepted,
    /// ResvErrs that answered it so far.
    pub(super) errors: usize,
}

impl<'a> ResvContext<'a> {
    pub(super) fn of(message: &'a Message<'a>, session: wire::Session, hop: RsvpHop, oif: Iface) -> Self {
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
    pub(super) fn filters(&self) -> Vec<Filter> {
        self.message.flows().filter_map(|flow| flow.filter).collect()
    }
}
