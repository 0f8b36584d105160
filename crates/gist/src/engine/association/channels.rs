//! Inputs of channels, as events of the state machine (RFC 5971 §6.4).

use core::net::SocketAddr;
use std::sync::Arc;

use signalbox_core::invariant;
use signalbox_core::security::Identity;
use signalbox_core::shares::source;

use super::machine::End;
use super::state::{Hellos, Silence};
use super::{Association, Origin, Reached, State};
use crate::engine::Gist;
use crate::engine::io::{ChannelClosed, ChannelId, Transport};

impl Gist {
    /// A peer opened a channel: birth at the Responding node (RFC 5971 §6.4). The first Confirm identifies the peer; if it is
    /// not received in time, the channel is closed. GIST-6.4-01, GIST-5.7.1-03, GIST-5.7.2-06, GIST-8.4-04.
    pub(in crate::engine) fn channel_accepted(
        &mut self,
        channel: ChannelId,
        transport: Transport,
        (local, peer): (SocketAddr, SocketAddr),
        identity: Option<&Identity>,
    ) {
        let (now, table) = (self.now, &mut self.associations);
        let usable = table.config.port(transport).is_some();
        let source = source(peer.ip());
        let allowed = usable
            && table.accepts_of.allow(now, &source)
            && table.accepts.as_mut().is_none_or(|bucket| bucket.allow(now));
        let index = allowed.then(|| {
            table.shares.take(source).ok()?;
            let state = State::AwaitingConfirm {
                setup: now + table.config.setup_timeout,
                hellos: Hellos { send: None, silence: Silence::Allowed },
            };
            let (ends, origin) = ((local.ip(), peer.ip()), Origin::Accepted { peer: None });
            let index = table.insert(Association {
                since: now,
                identity: identity.cloned().map(Arc::new),
                hold_time: table.config.hold_time,
                ifindex: self.interfaces.index_of(local.ip()),
                ..Association::new(channel, transport, ends, origin, state)
            });
            if index.is_none() {
                table.shares.release(source);
            }
            index
        });
        match index {
            Some(Some(_)) => {
                self.counters.associations_accepted += 1;
                tracing::debug!(channel = channel.0, %peer, ?transport, to = "Connected", reason = "peer opened a channel", "messaging association changed");
            }
            Some(None) => {
                self.counters.associations_full += 1;
                tracing::debug!(channel = channel.0, %peer, reason = "table of associations full", "channel refused");
                self.out.close_channel(channel, true);
            }
            None => {
                self.counters.associations_limited += 1;
                tracing::debug!(channel = channel.0, %peer, reason = "rate limit or transport not offered", "channel refused");
                self.out.close_channel(channel, true);
            }
        }
    }

    /// All layers of a channel that this node opened are established: `tg_Connected` (RFC 5971 §6.4), if the peer is
    /// authorised. GIST-6.4-03.
    pub(in crate::engine) fn channel_connected(&mut self, channel: ChannelId, identity: Option<&Identity>) {
        let Some(key) = self.associations.of_channel(channel) else { return };
        let association =
            invariant!(self.associations.get_mut(key.index()), "a channel that was found has an association");
        let Some(association) = association else { return };
        if association.is_up() {
            return;
        }
        association.identity = identity.cloned().map(Arc::new);
        if self.authorise(key) {
            self.tg_connected(key.index());
        }
    }

    /// A channel ended: `er_MAConnect` or `er_MAFailure`.
    pub(in crate::engine) fn channel_closed(
        &mut self,
        channel: ChannelId,
        reason: ChannelClosed,
        unacknowledged: bool,
    ) {
        let Some(key) = self.associations.of_channel(channel) else { return };
        self.deliver_waiting(key);
        // A message that was delivered may have ended the association.
        let Some(association) = self.associations.slab.get_mut(key) else { return };
        if let Origin::Opened(opened) = &mut association.origin
            && opened.reached == Reached::NotYet
            && reason == ChannelClosed::Security
        {
            opened.reached = Reached::Unproved;
        }
        let end = match reason {
            _ if !association.is_up() => End::NotConnected,
            ChannelClosed::Orderly if !unacknowledged => End::Orderly,
            _ => End::Failure,
        };
        self.end_association(key, end, unacknowledged);
    }
}
