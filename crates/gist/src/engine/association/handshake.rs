//! Selection of the association of a session: it is proposed and chosen in the handshake, or an existing one is shared
//! (RFC 5971 §4.4.1, §4.4.3, §5.7.1).

use core::net::SocketAddr;
use core::time::Duration;

use signalbox_core::service::{SendError, SiiHandle};
use signalbox_core::slab::Key;
use signalbox_core::{Direction, invariant};

use super::machine::End;
use super::stack::{Offer, Stacks, configuration};
use super::{Association, AssociationState, Need, Origin, Owner, PeerKey, State, Transport};
use crate::engine::Gist;
use crate::engine::io::ChannelId;
use crate::engine::output::nli;
use crate::engine::receive::{Arrival, Subject};
use crate::engine::routing::NONE;
use crate::wire::{GistError, Info, Infos, Message, MessageType, Nli, ObjectType, PORT, StackConfiguration};

/// The least time between two attempts to reach a peer that failed, where a new message needs an association.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// Least hold time of a peer. MA-Hellos are sent twice in a hold time, and a peer must not cause a flood of them.
const LEAST_HOLD_TIME: Duration = Duration::from_millis(100);

fn hold_time_of(configuration: &StackConfiguration<'_>) -> Duration {
    Duration::from_millis(configuration.hold_time_ms.into()).max(LEAST_HOLD_TIME)
}

/// The transport of the answer to a Query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Answer {
    /// By a datagram, for datagram mode.
    Datagram,
    /// By a datagram that proposes a new association.
    Offer,
    /// Over this association, which the session will share.
    Over(u32),
}

/// The stack of a new association.
#[derive(Debug, Clone, Copy)]
struct Choice {
    transport: Transport,
    port: u16,
    /// The peer offers another one that could be used as well.
    alternative: bool,
}

/// What a new association with a peer can use.
#[derive(Debug, Clone, Copy)]
enum Selection {
    Stack(Choice),
    /// The peer could not be reached by any stack that it offers.
    Failed,
    /// The peer must wait for its next association: it was reached, and failed otherwise.
    Wait,
}

impl Gist {
    // Querying node

    /// The transport that the Queries of a record request: that of queued messages, and that of the session before (RFC 5971
    /// §5.1). GIST-5.1-07.
    pub(in crate::engine) fn need_of_queries(&self, key: Key, direction: Direction) -> Need {
        if !self.associations.enabled() {
            return Need::Datagram;
        }
        let base = if self.associations.config.always { Need::Preferred } else { Need::Datagram };
        let bound = self
            .binding(key, direction)
            .map_or(Need::Datagram, |binding| if binding.secure { Need::Secure } else { Need::Association });
        let pending = self.records.get(key).and_then(|record| record.pending.as_ref());
        let waiting = pending.and_then(|p| p.queued(direction).iter().map(|queued| queued.need).max());
        base.max(bound).max(waiting.unwrap_or_default())
    }

    /// Rule 4 of RFC 5971 §6.2: "if a new MA-SM is needed create one". Finds or opens the association that the Response
    /// proposes, and binds the session to it. GIST-4.4.1-04, GIST-4.4.3-04, GIST-4.4.3-07.
    ///
    /// # Errors
    /// There is no usable association, and the handshake fails.
    pub(in crate::engine) fn associate(
        &mut self,
        key: Key,
        direction: Direction,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
    ) -> Result<(), SendError> {
        if !self.associations.enabled() {
            return Ok(());
        }
        let secure = self.need_of_queries(key, direction) == Need::Secure;
        if a.association != NONE {
            // GIST-4.4.3-05: the peer chose to share it.
            let enough = !secure || self.associations.is_secure(a.association);
            if !enough || !self.is_authorised(a.association, key, direction) {
                return Err(SendError::Refused);
            }
            self.bind(key, direction, a.association);
            return Ok(());
        }
        let (Some(proposal), Some(configuration)) = (message.stack_proposal, message.stack_configuration)
        else {
            // The peer has no connection mode, or the Query did not request it.
            self.unbind(key, direction, true);
            return Ok(());
        };
        let offer = Offer { proposal, configuration };
        let fits = |x: &Association| (!secure || x.transport.is_secure()) && offer.satisfied_by(x.transport);
        let name = &subject.nli;
        let identity = &self.config.identity;
        let known = self.associations.find(identity, name.peer_identity, name.interface, fits);
        let stale = known.filter(|index| self.end_stale(*index)).is_some();
        if stale && !self.records.state(key, direction).is_querying() {
            // The session used that attempt, and ended with it.
            return Err(SendError::Unreached(self.unreached(name.peer_identity, name.interface)));
        }
        let index = match known.filter(|_| !stale) {
            Some(index) => index,
            None => {
                match self.select(&offer, subject, (secure, stale), self.may_use_datagrams(key, direction))? {
                    Selection::Stack(choice) => self.open(key, direction, &offer, subject, choice)?,
                    Selection::Failed if self.may_use_datagrams(key, direction) => {
                        // GIST-4.3.3-05: no message needs an association, and none can be had now. The Confirm is a datagram,
                        // since no association has been set up (RFC 5971 §5.5).
                        self.counters.associations_waiting += 1;
                        self.unbind(key, direction, true);
                        return Ok(());
                    }
                    Selection::Failed | Selection::Wait => {
                        self.counters.associations_waiting += 1;
                        dropped!(a, subject, "peer must wait for its next association");
                        let offered = offer.choices(&self.associations.config, secure);
                        return Err(SendError::Unreached(offered.map(|(transport, _)| transport).collect()));
                    }
                }
            }
        };
        if self.associations.get(index).is_some_and(Association::is_up)
            && !self.is_authorised(index, key, direction)
        {
            return Err(SendError::Refused); // GIST-4.4.3-06
        }
        self.bind(key, direction, index);
        Ok(())
    }

    /// The stack for a new association: the first one offered that did not fail with this peer a short time ago. A transport
    /// that gave no answer is avoided for longer if all messages may be sent as `datagrams`. `at_once`: an attempt was ended to
    /// make place for this one.
    ///
    /// # Errors
    /// The peer offers no stack that this node has and the messages can use. GIST-4.3.3-13.
    fn select(
        &self,
        offer: &Offer<'_>,
        subject: &Subject<'_>,
        (secure, at_once): (bool, bool),
        datagrams: bool,
    ) -> Result<Selection, SendError> {
        let (table, name) = (&self.associations, &subject.nli);
        if offer.choices(&table.config, secure).next().is_none() {
            return Err(SendError::Refused);
        }
        let peer = PeerKey { identity: name.peer_identity.into(), interface: name.interface };
        let avoided = |transport| {
            let way = (peer.clone(), transport);
            table.avoided.until(self.now, &way).is_some()
                || datagrams && table.filtered.until(self.now, &way).is_some()
        };
        let mut left = offer.choices(&table.config, secure).filter(|(transport, _)| !avoided(*transport));
        let Some((transport, port)) = left.next() else {
            // A message that needs an association does not wait for the end of a long delay: what was in the way may be gone.
            let paused = |transport| table.avoided.pauses(self.now, RETRY_PAUSE, &(peer.clone(), transport));
            let again =
                offer.choices(&table.config, secure).find(|(transport, _)| at_once || !paused(*transport));
            return Ok(match again.filter(|_| !datagrams) {
                Some((transport, port)) => Selection::Stack(Choice { transport, port, alternative: false }),
                None => Selection::Failed,
            });
        };
        if table.retry_delays.pauses(self.now, RETRY_PAUSE, &peer) {
            return Ok(Selection::Wait);
        }
        Ok(Selection::Stack(Choice { transport, port, alternative: left.next().is_some() }))
    }

    /// Ends an attempt of this node to reach a peer that has had no answer for a long time. False: it is no such attempt.
    pub(super) fn end_stale(&mut self, index: u32) -> bool {
        let key = invariant!(self.associations.slab.key_of(index), "an attempt is judged while it lasts");
        let association = invariant!(self.associations.get(index), "an attempt is that of an association");
        let (Some(key), Some(association)) = (key, association) else { return false };
        if association.is_up() || !association.is_stale(self.now) {
            return false;
        }
        self.close_channel(index, true);
        self.end_association(key, End::NotConnected, false);
        true
    }

    /// Whether all messages of a session may be sent as datagrams: it prefers associations, but no message needs one.
    pub(super) fn may_use_datagrams(&self, key: Key, direction: Direction) -> bool {
        let bound = self.binding(key, direction).is_some_and(|binding| binding.secure || binding.reliable);
        let pending = self.records.get(key).and_then(|record| record.pending.as_ref());
        let waiting = pending.and_then(|p| p.queued(direction).iter().map(|queued| queued.need).max());
        !bound && waiting.unwrap_or_default() <= Need::Preferred
    }

    /// Birth of a Messaging-Association-SM at the Querying node (RFC 5971 §6.4), which opens the channel to the address in the
    /// NLI of the Response and the port in its Stack-Configuration-Data. GIST-6.4-01,
    /// GIST-5.7.2-05, GIST-5.7.2-07, GIST-5.7.1-05, GIST-5.7.1-06, GIST-5.7.1-07.
    fn open(
        &mut self,
        key: Key,
        direction: Direction,
        offer: &Offer<'_>,
        subject: &Subject<'_>,
        choice: Choice,
    ) -> Result<u32, SendError> {
        let Choice { transport, port, alternative } = choice;
        let egress = self.records.get(key).and_then(|r| self.peers.egress(r.half(direction).egress).copied());
        let egress = invariant!(egress, "a Query that was answered had an egress");
        let egress = egress.ok_or(SendError::NoRoute)?;
        let channel = ChannelId(self.associations.next_channel);
        let hold_time = hold_time_of(&offer.configuration);
        let name = PeerKey { identity: subject.nli.peer_identity.into(), interface: subject.nli.interface };
        let (ends, origin) = ((egress.address, subject.nli.interface), Origin::opened(name, alternative));
        let setup = self.now + self.associations.config.setup_timeout;
        let index = self.associations.insert(Association {
            since: self.now,
            hold_time,
            ifindex: egress.ifindex,
            ..Association::new(channel, transport, ends, origin, State::AwaitingConnection { setup })
        });
        let Some(index) = index else {
            self.counters.associations_full += 1;
            tracing::debug!(peer = %subject.nli.interface, reason = "table of associations full", "messaging association refused");
            return Err(SendError::Overload);
        };
        self.associations.next_channel += 2;
        tracing::debug!(
            channel = channel.0,
            peer = %subject.nli.interface,
            ?transport,
            to = ?AssociationState::AwaitingConnection,
            reason = "Response with a Stack-Proposal",
            "messaging association changed"
        );
        let peer = SocketAddr::new(subject.nli.interface, port);
        self.out.open_channel(channel, transport, egress.address, peer);
        Ok(index)
    }

    /// Sends the Confirm over an association, before other messages of the session (RFC 5971 §4.4.1). It repeats the
    /// Stack-Proposal of the Response. The first Confirm over a new association contains the hold time of this node.
    /// GIST-4.4.1-08, GIST-4.4.1-09,
    /// GIST-4.4.1-10, GIST-D-04.
    pub(in crate::engine) fn confirm_over(
        &mut self,
        key: Key,
        direction: Direction,
        index: u32,
        response: &Message<'_>,
    ) {
        let validity = self.validity();
        let Some(record) = invariant!(self.records.get(key), "a Confirm is one of a session") else { return };
        let egress = self.peers.egress(record.half(direction).egress);
        let Some(egress) = invariant!(egress, "a session that is confirmed has an egress") else { return };
        let mut message = Message::new(MessageType::CONFIRM, record.nslp, self.config.hops);
        message.mri = Some(record.flow.mri(direction).into());
        message.session = Some(record.session);
        message.nli = Some(nli(&self.config, validity, egress.address, 0));
        message.responder_cookie = response.responder_cookie;
        message.stack_proposal = response.stack_proposal;
        let origin = self.associations.get(index).map(|association| &association.origin);
        let first = matches!(origin, Some(Origin::Opened(opened)) if !opened.confirmed);
        if first && message.stack_proposal.is_some() {
            message.stack_configuration = Some(configuration(self.associations.config.hold_time, &[]));
        }
        let tools = (&mut self.out, &mut self.rng, &mut self.counters);
        let owner = Owner::Gist;
        if self.associations.send(tools, self.now, index, &message, &owner).is_ok() {
            self.counters.confirms_sent += 1;
            if let Some(association) =
                invariant!(self.associations.get_mut(index), "a Confirm was sent over an association")
                && let Origin::Opened(opened) = &mut association.origin
            {
                opened.confirmed = true;
            }
        }
    }

    // Responding node

    /// The transport of the answer to a Query: if it requests an association, an existing suitable one, or a datagram with
    /// a Stack-Proposal (RFC 5971 §4.4.3, §5.7.1). GIST-4.4.3-04, GIST-5.7.1-09, GIST-5.7.1-12, GIST-5.7.1-13, GIST-4.4.1-02.
    pub(in crate::engine) fn answer(&mut self, message: &Message<'_>, subject: &Subject<'_>) -> Answer {
        let (Some(proposal), Some(configuration)) = (message.stack_proposal, message.stack_configuration)
        else {
            return Answer::Datagram;
        };
        if !self.associations.enabled() {
            return Answer::Datagram;
        }
        let offer = Offer { proposal, configuration };
        let all_secure = Stacks::offered(&self.associations).are_secure();
        let fits = |x: &Association| {
            x.is_up() && offer.satisfied_by(x.transport) && (x.transport.is_secure() || !all_secure)
        };
        let name = &subject.nli;
        let identity = &self.config.identity;
        match self.associations.find(identity, name.peer_identity, name.interface, fits) {
            Some(index) if self.may_use(index, &subject.mri, &[]) => Answer::Over(index),
            // No port is open, so there is no stack to propose.
            _ if Stacks::offered(&self.associations).is_empty() => Answer::Datagram,
            _ => Answer::Offer,
        }
    }

    /// Checks a Confirm over an association, and completes the set-up with the first one (RFC 5971 §4.4.1, §4.4.2).
    /// GIST-4.4.5-05, GIST-5.7.1-18, GIST-4.4.1-05, GIST-4.4.1-06, GIST-4.4.1-11.
    pub(super) fn rx_confirm_associated(
        &mut self,
        key: Key,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
    ) {
        let index = key.index();
        let association = invariant!(self.associations.get(index), "a Confirm came over an association");
        let Some(association) = association else { return };
        let first = association.peer().is_none();
        let hold_time = message.stack_configuration.as_ref().map(hold_time_of);
        if first && hold_time.is_none() {
            let missing = Infos::one(Info::ObjectType(ObjectType::STACK_CONFIGURATION));
            return self.refuse(a, GistError::MISSING_OBJECT, missing);
        }
        if association.peer().is_some_and(|name| *name.identity != *subject.nli.peer_identity) {
            self.counters.data_misdelivered += 1;
            dropped!(a, subject, "peer identity differs from that of the association");
            return self.refuse(a, GistError::INCORRECTLY_DELIVERED, Infos::NONE);
        }
        let only = association.sessions == 0;
        if !self.may_use(index, &subject.mri, &[]) {
            self.counters.associations_unauthorized += u64::from(!only);
            tracing::debug!(session = %subject.session, peer = %a.src, reason = "not in the authorised peer database", "Confirm refused");
            if only {
                // GIST-4.4.2-05, GIST-4.4.2-07: without another message.
                self.close_channel(index, true);
                self.end_association(key, End::Unauthorised, false);
            }
            return;
        }
        self.rx_confirm(a, message, subject);
        if !first || self.associations.live(key).is_none() {
            return;
        }
        let direction = subject.mri.direction().inverted();
        let session = self.records.find(&subject.mri, subject.session, subject.nslp);
        if session.and_then(|session| self.association_of(session, direction)) != Some(index) {
            self.close_channel(index, true);
            return self.end_association(key, End::Failure, false);
        }
        let name = PeerKey { identity: subject.nli.peer_identity.into(), interface: subject.nli.interface };
        self.associations.set_peer(index, name);
        if let Some(association) =
            invariant!(self.associations.get_mut(index), "an association that is confirmed stands")
        {
            // It replaces the hold time of the Query, which is not stored (RFC 5971 §4.4.1, §4.4.5).
            association.hold_time = hold_time.unwrap_or(association.hold_time);
        }
        self.tg_connected(index);
    }

    /// Sets the mode of a session after a Confirm, or after a Query that needs no Confirm.
    pub(in crate::engine) fn settle_mode(&mut self, key: Key, direction: Direction, association: u32) {
        if association == NONE {
            self.unbind(key, direction, true);
        } else {
            self.bind(key, direction, association);
            self.note_sii(key, direction);
        }
    }

    // Both

    /// Stores the SII handle of the peer for the association of a session.
    pub(in crate::engine) fn note_sii(&mut self, key: Key, direction: Direction) {
        let Some(index) = self.association_of(key, direction) else { return };
        let record = invariant!(self.records.get(key), "a session with an association stands");
        let Some(id) = record.map(|record| record.half(direction).peer) else { return };
        let peer = invariant!(self.peers.peer(id), "a session with an association has a peer");
        let (Some(peer), sii) = (peer, self.peers.sii(id)) else { return };
        let association = invariant!(self.associations.get_mut(index), "the association of a session stands");
        let Some(association) = association else { return };
        // The NLI of a Response over an association cannot change the peer of the association.
        if association.peer().is_none_or(|name| name.identity == peer.identity) {
            association.sii = sii;
        }
    }

    /// The SII handle of the peer of an association, while it is valid.
    pub(in crate::engine) fn sii_of_association(&self, index: u32) -> Option<SiiHandle> {
        let association = self.associations.get(index)?;
        if let Some(sii) = association.sii
            && self.peers.by_sii(sii).is_some()
        {
            return Some(sii);
        }
        let name = association.peer()?;
        let (ip_ttl, validity_ms) = (0, 1);
        let nli = Nli { peer_identity: &name.identity, ip_ttl, validity_ms, interface: name.interface };
        self.peers.find(&nli, PORT, association.ifindex)
    }

    /// The stacks in the Stack-Proposal of a record's Queries; empty if they request no association.
    pub(in crate::engine) fn query_stacks(&self, key: Key, direction: Direction) -> Stacks {
        let need = self.need_of_queries(key, direction);
        Stacks::suitable(&self.associations.config, |transport| match need {
            Need::Datagram => false,
            Need::Preferred | Need::Association => true,
            Need::Secure => transport.is_secure(),
        })
    }
}
