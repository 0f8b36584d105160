//! NOTIFY (RFC 5973 §3.7.5), and changes of routes (§3.9).

use signalbox_core::service::{NetworkEvent, RecvMessage};
use signalbox_core::slab::Key;
use signalbox_core::{Mri, SessionId, invariant};
use signalbox_resources::Resources;

use super::Natfw;
use super::event::{Failure, NatfwEvent};
use super::request::ALL_SESSIONS;
use super::session::{Origin, State};
use crate::wire::{Info, InfoClass, Message};

impl Natfw {
    pub(super) fn on_notify(
        &mut self,
        received: &RecvMessage<'_>,
        message: &Message<'_>,
        resources: &mut Resources,
    ) {
        let Some(info) = message.info.map(|info| info.info) else { return };
        // §3.7.5: over messaging associations only.
        if !received.attributes.reliable || info.class != InfoClass::INFORMATIONAL {
            self.counters.stray_notifies += 1;
            tracing::debug!(session = %received.session, peer = ?received.sii, reason = "not over a messaging association, or no event", "NOTIFY dropped");
            return;
        }
        if received.session == ALL_SESSIONS {
            return self.on_aggregate_notify(received, info);
        }
        let found = self
            .find(received.session)
            .and_then(|key| Some((key, invariant!(self.sessions.get(key), "a NOTIFY's key is valid")?)));
        let outbound = found.and_then(|(key, session)| match received.sii {
            Some(_) if session.peers.next() == received.sii => Some((key, false)),
            Some(_) if session.peers.previous() == received.sii => Some((key, true)),
            _ => None,
        });
        let Some((key, outbound)) = outbound else {
            self.counters.stray_notifies += 1;
            tracing::debug!(session = %received.session, peer = ?received.sii, reason = "of no peer of the session", "NOTIFY dropped");
            return;
        };
        // A re-authentication is asked of the initiator.
        if outbound && info == Info::REAUTHENTICATE {
            self.counters.stray_notifies += 1;
            tracing::debug!(session = %received.session, peer = ?received.sii, reason = "asks a node that is not the initiator", "NOTIFY dropped");
            return;
        }
        self.notified(key, info, outbound, resources);
    }

    /// An event of a session, from the peer on one side: it goes on to the other side.
    pub(super) fn notified(&mut self, key: Key, info: Info, outbound: bool, resources: &mut Resources) {
        let Some(session) = self.sessions.get(key) else { return }; // one before it in a sweep may have ended it
        let again = session.state == State::Transitory && info == Info::ROUTE_CHANGE;
        if again {
            return;
        }
        let ends = matches!(info, Info::EXPIRED | Info::TERMINATED);
        if !session.begins_here() {
            self.notify(key, info, outbound);
            if ends {
                self.counters.ended += 1;
                self.close(key, resources);
            } else {
                self.hold(key);
            }
            return;
        }
        match session.origin() {
            Origin::Proxy(primary) if ends => {
                self.secondary_failed(primary, resources);
                self.close(key, resources);
            }
            Origin::Command(_) if ends => {
                self.emit(key, NatfwEvent::Failed(Failure::Code(info.into())));
                self.close(key, resources);
            }
            Origin::Host(_) if ends => self.close(key, resources),
            // §3.7.6.1: an edge refreshes its CREATE only when the EXTERNAL is refreshed.
            Origin::Proxy(_) | Origin::Peer => {}
            // §3.9: the request again, with the same session.
            Origin::Host(_) => self.request_again(key),
            Origin::Command(_) => {
                self.emit(key, NatfwEvent::Notified(info.into()));
                self.request_again(key);
            }
        }
    }

    /// A session becomes Transitory: without another request it ends after the hold time (§3.2.8).
    fn hold(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "who waits has a session") else { return };
        session.state = State::Transitory;
        session.expires = self.now + self.config.hold;
        self.rearm(key);
    }

    /// GIST noticed something about the route of a session (§3.9).
    pub(super) fn on_network(&mut self, mri: &Mri, session: SessionId, event: NetworkEvent) {
        let Some(key) = self.find(session) else { return };
        let Some(session) = invariant!(self.sessions.get(key), "an event has a session") else { return };
        // Only the route towards the responder counts: NIs learn of it, and the other side signals by itself.
        if !session.plan.sends(mri) || !session.plan.forwards {
            return;
        }
        let changed = match event {
            NetworkEvent::Good(peer) => session.peers.next().is_some_and(|next| next != peer),
            NetworkEvent::RouteDeleted(peer) => session.peers.next() == Some(peer),
            NetworkEvent::Bad => session.peers.next().is_some(),
            // Not certain, or no matter of the route.
            NetworkEvent::Tentative
            | NetworkEvent::LastNode
            | NetworkEvent::AuthorisationChanged
            | NetworkEvent::CommunicationFailure => false,
        };
        if !changed || session.state != State::Established {
            return;
        }
        self.counters.route_changes += 1;
        tracing::debug!(session = %session.id, ?event, "route changed");
        if session.begins_here() {
            if session.is_deleted_here() {
                self.request_again(key);
            }
        } else {
            self.notify(key, Info::ROUTE_CHANGE, false);
            self.notify(key, Info::ROUTE_CHANGE, true);
            self.hold(key);
        }
        if let Some(session) = invariant!(self.sessions.get_mut(key), "a change ends no session") {
            session.peers.set_next(None);
        }
        self.rearm(key);
    }
}
