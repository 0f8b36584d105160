//! Associations as shown to operators.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::security::Identity;

use super::{Association, State};
use crate::engine::Gist;
use crate::engine::io::{ChannelId, Transport};

/// State of a messaging association (RFC 5971 §6.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssociationState {
    /// Awaiting Connection.
    AwaitingConnection,
    /// Connected.
    Connected,
    /// Idle.
    Idle,
}

/// One messaging association.
#[derive(Debug, Clone, PartialEq)]
pub struct AssociationView<'a> {
    /// Its channel, which identifies it.
    pub channel: ChannelId,
    /// Its protocol stack.
    pub transport: Transport,
    /// Its state.
    pub state: AssociationState,
    /// This node opened it, as Querying node.
    pub opened: bool,
    /// Peer identity in the NLI of the peer; empty before its first Confirm.
    pub peer: &'a [u8],
    /// The interface address in the NLI of the peer; before, the remote address of the channel.
    pub address: IpAddr,
    /// This node's address.
    pub local: IpAddr,
    /// Since it was opened or accepted.
    pub age: Duration,
    /// The authenticated identity of the peer.
    pub authenticated: Option<&'a Identity>,
    /// Pieces of routing state that use it.
    pub sessions: u32,
    /// Queued messages.
    pub queued: usize,
    /// Their octets.
    pub queued_octets: usize,
    /// Octets that the channel buffers.
    pub unsent: usize,
    /// MA-Hold-Time of the peer; zero before it is known.
    pub hold_time: Duration,
    /// Until the next MA-Hello.
    pub hello_in: Option<Duration>,
    /// Until it is closed, unless the peer uses it.
    pub closes_in: Option<Duration>,
}

impl Gist {
    /// Number of messaging associations of each transport.
    pub fn association_counts(&self) -> impl Iterator<Item = (Transport, u32)> {
        Transport::ALL.into_iter().zip(self.associations.counts)
    }

    /// All messaging associations, by their place in the table.
    pub fn associations(&self) -> impl Iterator<Item = AssociationView<'_>> {
        self.associations.slab.iter().filter_map(|(_, association)| self.association_view(association))
    }

    /// Visits messaging associations from a place in the table on; see [`Slab::walk`](signalbox_core::Slab::walk).
    pub fn walk_associations(
        &self,
        from: u32,
        mut visit: impl FnMut(AssociationView<'_>) -> bool,
    ) -> Option<u32> {
        self.associations
            .slab
            .walk(from, |_, association| self.association_view(association).is_none_or(&mut visit))
    }

    /// The association of a channel.
    #[must_use]
    pub fn association(&self, channel: ChannelId) -> Option<AssociationView<'_>> {
        let key = self.associations.of_channel(channel)?;
        self.associations.slab.get(key).and_then(|association| self.association_view(association))
    }

    /// `None`: it has ended.
    fn association_view<'a>(&self, x: &'a Association) -> Option<AssociationView<'a>> {
        let left = |timer: Option<signalbox_core::Time>| timer.map(|at| at.since(self.now));
        Some(AssociationView {
            channel: x.channel,
            transport: x.transport,
            state: x.state.shown()?,
            opened: x.is_opened(),
            peer: x.peer().map_or(&[], |name| &name.identity),
            address: x.peer().map_or(x.remote, |name| name.interface),
            local: x.local,
            age: self.now.since(x.since),
            authenticated: x.identity.as_deref(),
            sessions: x.sessions,
            queued: x.queue.len(),
            queued_octets: x.queued,
            unsent: x.unsent(),
            hold_time: if x.peer().is_some() { x.hold_time } else { Duration::ZERO },
            hello_in: left(x.state.hellos().and_then(|hellos| hellos.send)),
            closes_in: left(match x.state {
                State::Idle { no_hello } => Some(no_hello),
                _ => x.state.setup(),
            }),
        })
    }

    /// The channel of an association.
    pub(in crate::engine) fn channel(&self, index: u32) -> Option<ChannelId> {
        self.associations.get(index).map(|association| association.channel)
    }
}
