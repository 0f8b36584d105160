//! What the end of an association means for its sessions, and when the next attempt to reach its peer may be made (RFC 5971
//! §6.4, RFC 5972).

use core::net::IpAddr;

use signalbox_core::service::{NetworkEvent, SendError, Transports};
use signalbox_core::slab::Key;
use signalbox_core::{Direction, Time, invariant};

use super::handshake::RETRY_PAUSE;
use super::machine::End;
use super::{Associations, Opened, Origin, PeerKey, Reached, Transport};
use crate::engine::Gist;
use crate::engine::routing::{NO_REFRESH, State, TENTATIVE};

impl Gist {
    /// Handles the end of the association of a session (RFC 5971 §6.4, RFC 5972). GIST-6.4-16, GIST-5972-03, GIST-5972-05.
    pub(super) fn association_lost(&mut self, key: Key, direction: Direction, end: End) {
        let queries = self.records.state(key, direction).is_querying();
        let former =
            self.binding(key, direction).and_then(|binding| self.associations.get(binding.association));
        let refused = former.and_then(|former| Some((former.unanswered()?, former.transport)));
        let is_avoided = |opened: &Opened, transport| {
            let way = (opened.peer.clone(), transport);
            self.associations.avoided.until(self.now, &way).is_some()
        };
        let alternative = refused
            .filter(|&(opened, transport)| is_avoided(opened, transport))
            .is_some_and(|(opened, _)| opened.alternative || self.may_use_datagrams(key, direction));
        match end {
            End::Unauthorised => {
                self.unbind(key, direction, true);
                // GIST-4.4.2-06, GIST-4.4.2-09, GIST-B.4-04
                self.notify_always(key, direction, NetworkEvent::AuthorisationChanged);
                self.remove_half(key, direction, SendError::Refused);
            }
            // GIST-5.7.1-05: another handshake finds the next stack, or datagrams, because the failed stack is avoided.
            End::NotConnected if alternative => {
                self.unbind(key, direction, true);
                self.query_bad_state(key, direction);
            }
            End::NotConnected => {
                let error = SendError::Unreached(self.unreached_by(key, direction));
                self.unbind(key, direction, true);
                self.end_handshake(key, direction, error);
            }
            End::Unused | End::Orderly | End::Failure => {
                self.unbind(key, direction, false);
                let record =
                    invariant!(self.records.get_mut(key), "a session stands when its association is lost");
                let Some(record) = record else { return };
                let half = record.half_mut(direction);
                if !queries || half.has(NO_REFRESH) || !half.state.is_established() {
                    return;
                }
                // The peer may have restarted. A Query checks the state and requests a new association.
                if end == End::Failure {
                    half.set(TENTATIVE, true);
                }
                match self.retry_at(key, direction).filter(|_| !alternative) {
                    Some(until) => self.refresh_later(key, direction, until),
                    None => self.start_refresh(key, direction),
                }
            }
        }
    }

    /// The first message of the peer over an association that this node opened ends the retry delay of the peer.
    pub(super) fn peer_answered(&mut self, index: u32) {
        let table = &mut self.associations;
        let association =
            invariant!(table.slab.get_index_mut(index), "a peer answers over an association that stands");
        let Some(association) = association else { return };
        let Origin::Opened(opened) = &mut association.origin else { return };
        if opened.reached == Reached::Yes {
            return;
        }
        opened.reached = Reached::Yes;
        table.retry_delays.succeeded(&opened.peer);
        if !table.avoided.is_empty() || !table.filtered.is_empty() {
            let way = (opened.peer.clone(), association.transport);
            table.avoided.succeeded(&way);
            table.filtered.succeeded(&way);
        }
    }

    /// The transports by which the peer of a session could not be reached of late, with that of its association.
    pub(super) fn unreached_by(&self, key: Key, direction: Direction) -> Transports {
        let peer = self.records.get(key).and_then(|record| self.peers.peer(record.half(direction).peer));
        let of_late = peer.map(|peer| self.unreached(&peer.identity, peer.address.ip()));
        let bound = self.binding(key, direction).and_then(|to| self.associations.get(to.association));
        of_late.unwrap_or_default() | bound.map(|association| association.transport).into_iter().collect()
    }

    /// The transports by which a peer could not be reached of late.
    pub(in crate::engine) fn unreached(&self, identity: &[u8], interface: IpAddr) -> Transports {
        let table = &self.associations;
        if table.avoided.is_empty() && table.filtered.is_empty() {
            return Transports::default();
        }
        let name = PeerKey { identity: identity.into(), interface };
        let failed = |transport: &Transport| {
            let way = (name.clone(), *transport);
            table.avoided.has(&way) || table.filtered.has(&way)
        };
        Transport::ALL.into_iter().filter(failed).collect()
    }

    /// The end of the retry delay for the peer of a session, if there is one.
    pub(super) fn retry_at(&self, key: Key, direction: Direction) -> Option<Time> {
        if self.associations.retry_delays.is_empty() {
            return None;
        }
        let record = invariant!(self.records.get(key), "a session that lost its association stands")?;
        let peer = self.peers.peer(record.half(direction).peer);
        let peer = invariant!(peer, "established state has a peer")?;
        self.associations.retry_not_before(self.now, &peer.identity, peer.address.ip())
    }

    /// Defers the refresh of a session until the end of the retry delay. Queued messages fail.
    fn refresh_later(&mut self, key: Key, direction: Direction, until: Time) {
        self.counters.associations_waiting += 1;
        let later = self.rng.jitter(until.since(self.now), 1.0, 1.25);
        let now = self.now;
        if let Some(record) =
            invariant!(self.records.get_mut(key), "a refresh is deferred in a session that stands")
        {
            let half = record.half_mut(direction);
            let from = core::mem::replace(&mut half.state, State::Established);
            half.start_retry(now, later);
            transition!(self.peers, record, direction, from, "peer must wait for its next association");
        }
        let error = SendError::Unreached(self.unreached_by(key, direction));
        self.fail_queue(key, direction, error);
        self.settle(key);
    }

    /// Whether a new message has to wait for the next attempt to reach the peer of its session.
    pub(super) fn pauses(&self, key: Key, direction: Direction) -> bool {
        let peer = self.records.get(key).and_then(|record| self.peers.peer(record.half(direction).peer));
        peer.is_some_and(|peer| {
            let name = PeerKey { identity: peer.identity.clone(), interface: peer.address.ip() };
            self.associations.retry_delays.pauses(self.now, RETRY_PAUSE, &name)
        })
    }

    /// Notifies the application, also of a change that it caused. The session may have ended before the association that it had.
    pub(super) fn notify_always(&mut self, key: Key, direction: Direction, event: NetworkEvent) {
        if let Some(record) = self.records.get(key) {
            self.out.notify(record.nslp, record.flow.mri(direction), record.session, event);
        }
    }
}

impl Associations {
    /// The end of the retry delay for a peer, if there is one.
    fn retry_not_before(&self, now: Time, identity: &[u8], interface: IpAddr) -> Option<Time> {
        if self.retry_delays.is_empty() {
            return None;
        }
        self.retry_delays.until(now, &PeerKey { identity: identity.into(), interface })
    }
}
