//! Messages to the next hop and to the previous hop.

use signalbox_core::{Key, Time, invariant};

use super::Casp;
use super::connect::Delivery;
use super::discovery::{News, Ready};
use super::io::Indication;
use super::search::Waiter;
use super::session::{Mark, Queued};
use crate::wire::{ClientType, ErrorCode, Flags, Signaling};

/// What is known of a composed message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// Each node discovers its next hop again.
    pub(super) discover: bool,
    /// It only concerns state.
    pub(super) refresh: bool,
    /// The client that is informed if it cannot be sent.
    pub(super) client: Option<ClientType>,
}

impl Casp {
    /// Sends a received message on.
    pub(super) fn send_on(&mut self, key: Key, message: &Signaling<'_>, client: Option<ClientType>) {
        // A message that waited for its verdict may outlive its session.
        let Some(session) = self.sessions.get(key) else { return };
        let reverse = message.flags.is_reverse();
        if if reverse { session.is_own() } else { self.is_responder(&session.flow) } {
            return;
        }
        if message.ttd <= 1 {
            self.counters.ttd_exceeded += 1;
            unsent!(self, key, "TTD used up");
            return self.send_error(key, ErrorCode::TTD_EXCEEDED);
        }
        let hops = message.hops.saturating_add(1);
        self.counters.forwarded += 1;
        self.deliver(key, &Signaling { ttd: message.ttd - 1, hops, proof: None, ..*message }, client);
    }

    /// Sends a message along the session of which it is, unless it would leave a NAT with an inner source. Whether it could be composed.
    pub(super) fn deliver(&mut self, key: Key, message: &Signaling<'_>, client: Option<ClientType>) -> bool {
        let Some(flow) = invariant!(
            self.sessions.flow_in(key, message.flags.is_reverse()),
            "a message is delivered along a session that stands"
        ) else {
            return false;
        };
        if !self.may_leave(key, message) {
            self.counters.untranslated += 1;
            unsent!(self, key, "this NAT has no binding for its flow");
            self.undelivered(key, client);
            return true;
        }
        let mut octets = core::mem::take(&mut self.composed);
        octets.clear();
        let result = Signaling { flow, ..*message }.encode(&mut octets);
        if result.is_ok() {
            if message.flags.is_reverse() {
                self.up(key, &octets, client);
            } else {
                let discover = message.flags.contains(Flags::DISCOVER);
                let refresh = matches!(message.body, crate::wire::Body::Empty);
                self.down(key, &octets, Kind { discover, refresh, client });
            }
        }
        self.composed = octets;
        result.is_ok()
    }

    /// Sends a message to the next hop, as soon as the next hop is known and connected.
    fn down(&mut self, key: Key, octets: &[u8], kind: Kind) {
        let Some(session) = invariant!(self.sessions.get(key), "what goes down has a session") else {
            return;
        };
        let next = session.next.last().map(|branch| branch.peer);
        let search = kind.discover || session.is(Mark::Rediscover);
        let waits = session.waiting.as_ref().is_some_and(|waiting| match next {
            Some(peer) if !search => {
                waiting.candidate.is_some() && waiting.candidate == self.peers.address(peer)
            }
            Some(_) | None => waiting.searching || waiting.candidate.is_some(),
        });
        let discover_at = session.discover_at.time();
        let early = self.now < discover_at;
        if waits {
            return self.queue_down(key, octets, kind);
        }
        if search && early && next.is_some() {
            self.counters.discovery_limited += 1;
            tracing::debug!(
                session = self.logged(key),
                reason = "too soon after the last one",
                "discovery not repeated"
            );
        } else if search || next.is_none() {
            // A search that found no node is not repeated before the next refresh.
            if (next.is_some() || !early || discover_at == Time::ZERO) && self.search(key) {
                return self.queue_down(key, octets, kind);
            }
        }
        match next {
            Some(peer) => self.transmit_down(key, peer, octets, kind),
            None => {
                self.counters.no_next_hop += 1;
                unsent!(self, key, "no next hop");
                self.undelivered(key, kind.client);
            }
        }
    }

    pub(super) fn transmit_down(&mut self, key: Key, peer: Key, octets: &[u8], kind: Kind) {
        let answer = self.sessions.get(key).and_then(|session| session.waiting.as_ref()?.answer);
        let next = self.sessions.get(key).and_then(|session| session.next.get(peer));
        let datagram = next.is_some_and(|branch| branch.takes_datagrams());
        match self.send_to(peer, datagram, octets, answer.as_ref()) {
            Delivery::Sent => {
                if answer.is_some_and(|answer| answer.cookie.is_some()) {
                    self.keep_until_proved(key, octets, kind);
                }
                if let Some(waiting) = self.sessions.get_mut(key).and_then(|one| one.waiting.as_mut()) {
                    waiting.answer = None;
                }
                self.sent_down(key, peer);
            }
            Delivery::Connecting(connection) if self.wait_for(connection, Waiter::Session(key)) => {
                let address = self.peers.address(peer);
                if let Some(session) = self.sessions.get_mut(key) {
                    session.waiting().candidate = address;
                }
                self.queue_down(key, octets, kind);
            }
            Delivery::Blocked | Delivery::Connecting(_) => {
                self.counters.peer_blocked += 1;
                unsent!(self, key, peer, "the node does not read, or too many connections");
                self.undelivered(key, kind.client);
            }
        }
    }

    /// A message left for the next hop: no refresh is needed for a while.
    fn sent_down(&mut self, key: Key, peer: Key) {
        let at = self.next_refresh(key, peer);
        let Some(session) = invariant!(self.sessions.get_mut(key), "what left has a session") else { return };
        let until = self.now + session.lifetime();
        if let Some(branch) = session.next.get_mut(peer) {
            branch.until = until.into();
        }
        session.refresh_at = at.into();
        let replaced = session.waiting.as_mut().and_then(|waiting| waiting.replaces.take());
        session.settle();
        self.arm(key);
        if let Some(former) = replaced {
            self.tear_down_own(former);
        }
    }

    /// When a refresh is due if no message is sent before, at one of the times that sessions with the same next hop share: at
    /// random from half an interval to one and a half. A forwarder waits for one and a quarter at least, so that the
    /// refreshes of the initiator mostly spare it its own.
    fn next_refresh(&mut self, key: Key, peer: Key) -> Time {
        let Some(session) =
            invariant!(self.sessions.get(key), "a refresh is planned for a session that stands")
        else {
            return self.now;
        };
        // A third of 2³² seconds at most, so that nothing overflows.
        let (interval, quarters) = (session.interval_us(), if session.is_own() { 2 } else { 5 });
        let phase = self.peers.get(peer).map_or(0, |peer| peer.phase);
        let quarter = (interval / 4).max(1);
        let now = self.now.as_micros();
        let first = now.saturating_add(interval * quarters / 4);
        let last = now.saturating_add(interval * 6 / 4);
        let wanted = self.rng.range(first..last);
        let phase = phase % quarter;
        let slots = wanted.saturating_sub(phase).saturating_add(quarter / 2) / quarter;
        let slot = slots.saturating_mul(quarter).saturating_add(phase);
        Time::from_micros(match slot {
            // A timer fires up to a tick late.
            early if early + 1000 < first => early.saturating_add(quarter),
            late if late > last => late.saturating_sub(quarter),
            slot => slot,
        })
    }

    /// Sends a message to the previous hop. At the initiator it ends.
    pub(super) fn up(&mut self, key: Key, octets: &[u8], client: Option<ClientType>) {
        let Some(session) = invariant!(self.sessions.get(key), "what goes up has a session") else { return };
        let Some(hop) = session.previous.last().filter(|branch| !branch.is_local()).copied() else { return };
        if session.waiting.as_ref().is_some_and(|waiting| waiting.connecting_up) {
            return self.queue_up(key, octets, client);
        }
        match self.send_to(hop.peer, hop.takes_datagrams(), octets, None) {
            Delivery::Sent => {}
            Delivery::Connecting(connection) if self.wait_for(connection, Waiter::Session(key)) => {
                if let Some(session) = self.sessions.get_mut(key) {
                    session.waiting().connecting_up = true;
                }
                self.queue_up(key, octets, client);
            }
            Delivery::Blocked | Delivery::Connecting(_) => {
                self.counters.peer_blocked += 1;
                unsent!(self, key, hop.peer, "the node does not read, or too many connections");
                self.undelivered(key, client);
            }
        }
    }

    /// Takes octets of the share of the node that made a session.
    fn take_octets(&mut self, key: Key, octets: usize) -> bool {
        let Some(owner) = invariant!(self.owner(key), "octets belong to a session") else { return false };
        let count = u32::try_from(octets).unwrap_or(u32::MAX);
        self.waiting_octets.take_many(owner, count).is_ok()
    }

    pub(super) fn give_octets(&mut self, owner: Key, octets: usize) {
        let source = self.source_of(owner);
        self.waiting_octets.release_many(source, u32::try_from(octets).unwrap_or(u32::MAX));
    }

    fn queue_down(&mut self, key: Key, octets: &[u8], kind: Kind) {
        // A refresh gives way to a message that has more to say.
        let Some(waiting) = invariant!(
            self.sessions.get_mut(key).map(|session| session.waiting()),
            "a message waits for the next hop of a session that stands"
        ) else {
            return;
        };
        if !waiting.fits(waiting.down.len(), octets.len())
            && let Some(at) = waiting.down.iter().position(|queued| queued.refresh)
            && let Some(refresh) = waiting.down.remove(at)
        {
            self.dequeued(key, refresh.octets.len());
        }
        let fits = self.sessions.get_mut(key).is_some_and(|session| {
            let waiting = session.waiting();
            waiting.fits(waiting.down.len(), octets.len())
        });
        if !fits || !self.take_octets(key, octets.len()) {
            self.counters.waiting_full += 1;
            unsent!(self, key, "too many messages wait");
            return self.undelivered(key, kind.client);
        }
        let Kind { refresh, client, .. } = kind;
        let Some(session) = invariant!(
            self.sessions.get_mut(key),
            "a session stands while its message is queued for the next hop"
        ) else {
            return;
        };
        let waiting = session.waiting();
        waiting.octets += octets.len();
        waiting.down.push_back(Queued { octets: octets.into(), client, refresh });
    }

    fn queue_up(&mut self, key: Key, octets: &[u8], client: Option<ClientType>) {
        let fits = self.sessions.get_mut(key).is_some_and(|session| {
            let waiting = session.waiting();
            waiting.fits(waiting.up.len(), octets.len())
        });
        if !fits || !self.take_octets(key, octets.len()) {
            self.counters.waiting_full += 1;
            unsent!(self, key, "too many messages wait");
            return self.undelivered(key, client);
        }
        let Some(session) = invariant!(
            self.sessions.get_mut(key),
            "a session stands while its message is queued for the previous hop"
        ) else {
            return;
        };
        let waiting = session.waiting();
        waiting.octets += octets.len();
        waiting.up.push_back(Queued { octets: octets.into(), client, refresh: false });
    }

    /// A message is no longer kept.
    pub(super) fn dequeued(&mut self, key: Key, octets: usize) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a message that waited has its session")
        else {
            return;
        };
        let owner = session.owner;
        if let Some(waiting) = session.waiting.as_mut() {
            waiting.octets = waiting.octets.saturating_sub(octets);
        }
        self.give_octets(owner, octets);
    }

    pub(super) fn pop_down(&mut self, key: Key) -> Option<Queued> {
        let queued = self.sessions.get_mut(key)?.waiting.as_mut()?.down.pop_front()?;
        self.dequeued(key, queued.octets.len());
        Some(queued)
    }

    /// Keeps the first message to a node that scout found, in case it refuses the cookie.
    fn keep_until_proved(&mut self, key: Key, octets: &[u8], kind: Kind) {
        self.remove_unproved(key);
        let fits = self.sessions.get_mut(key).is_some_and(|session| session.waiting().fits(0, octets.len()));
        if !fits || !self.take_octets(key, octets.len()) {
            return;
        }
        let Some(session) = invariant!(self.sessions.get_mut(key), "a proof has a session") else { return };
        let waiting = session.waiting();
        waiting.octets += octets.len();
        waiting.unproved = Some(Queued { octets: octets.into(), client: kind.client, refresh: kind.refresh });
    }

    pub(super) fn remove_unproved(&mut self, key: Key) {
        let kept = self.sessions.get_mut(key).and_then(|session| session.waiting.as_mut()?.unproved.take());
        if let Some(kept) = kept {
            self.dequeued(key, kept.octets.len());
        }
    }

    /// The next hop accepted the first message.
    pub(super) fn accepted(&mut self, key: Key) {
        self.remove_unproved(key);
        if let Some(session) = self.sessions.get_mut(key) {
            if let Some(waiting) = session.waiting.as_mut() {
                waiting.retried = false;
            }
            session.settle();
        }
    }

    /// The next hop refused the cookie: this node discovers once more, and sends the message again.
    pub(super) fn on_cookie_error(&mut self, key: Key, peer: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "an error has a session") else { return };
        let Some(waiting) = session.waiting.as_mut().filter(|waiting| waiting.unproved.is_some()) else {
            return;
        };
        let Some(kept) = invariant!(waiting.unproved.take(), "what is unproved is kept") else { return };
        let again = !core::mem::replace(&mut waiting.retried, true);
        let dst = session.flow.dst();
        let removed = session.next.remove(peer);
        self.peers.drop_use(peer);
        // Clients know the hops from which a message came.
        if let Some(branch) = removed.filter(|branch| branch.proved.messages() > 0) {
            self.indicate_branch(key, false, branch.id, true);
        }
        self.dequeued(key, kept.octets.len());
        if !again {
            self.counters.no_next_hop += 1;
            unsent!(self, key, peer, "the next hop refused the second cookie too");
            self.undelivered(key, kept.client);
            return self.send_error(key, ErrorCode::NO_NEXT_PEER);
        }
        let found = match self.substitute(dst) {
            Some(answer) => {
                self.ready
                    .push_back(Ready { what: News::Found(answer), waiting: [Waiter::Session(key)].into() });
                if let Some(session) = self.sessions.get_mut(key) {
                    session.waiting().searching = true;
                }
                true
            }
            None => self.search(key),
        };
        if found {
            let (refresh, client) = (kept.refresh, kept.client);
            self.queue_down(key, &kept.octets, Kind { discover: false, refresh, client });
        } else {
            self.undelivered(key, kept.client);
        }
    }

    /// Sends what waited for the next hop.
    pub(super) fn flush_down(&mut self, key: Key) {
        loop {
            let Some(session) = invariant!(self.sessions.get(key), "a queue has a session") else { return };
            let Some(peer) = invariant!(
                session.next.last().map(|branch| branch.peer),
                "a queue is flushed towards a next hop"
            ) else {
                return;
            };
            if session.waiting.as_ref().is_none_or(|waiting| waiting.candidate.is_some()) {
                return;
            }
            let Some(queued) = self.pop_down(key) else { return };
            let Queued { octets, client, refresh } = queued;
            self.transmit_down(key, peer, &octets, Kind { discover: false, refresh, client });
        }
    }

    /// Informs a client that its message was not sent on.
    pub(super) fn undelivered(&mut self, key: Key, client: Option<ClientType>) {
        let Some(session) = invariant!(self.sessions.get(key), "what is lost has a session") else { return };
        let (session, flow) = (session.id, session.flow);
        if let Some(client) = client {
            self.out.indicate(client, Indication::Undelivered { session, flow });
        }
    }

    /// Informs the clients that took part in a session.
    pub(super) fn indicate_all(
        &mut self,
        key: Key,
        indication: impl Fn(signalbox_core::SessionId, crate::wire::FlowId) -> Indication<'static>,
    ) {
        let Some(session) = invariant!(self.sessions.get(key), "news are about a session") else { return };
        let (id, flow) = (session.id, session.flow);
        for client in self.config.clients.iter().copied().map(ClientType) {
            if self.sessions.takes_part(key, client) {
                self.out.indicate(client, indication(id, flow));
            }
        }
    }

    pub(super) fn indicate_branch(&mut self, key: Key, previous: bool, id: u16, ended: bool) {
        tracing::debug!(
            session = self.logged(key),
            branch = id,
            previous,
            ended,
            "hops of the session changed"
        );
        self.indicate_all(key, |session, flow| Indication::Branch { session, flow, previous, id, ended });
    }

    pub(super) fn indicate_error(&mut self, key: Key, code: ErrorCode) {
        self.indicate_all(key, |session, flow| Indication::Error { session, flow, code });
    }

    /// Sends a private error towards the initiator, if private codes are switched on.
    pub(super) fn send_error(&mut self, key: Key, code: ErrorCode) {
        if !self.config.private_errors || !self.may_send_error(key) {
            return;
        }
        self.indicate_error(key, code);
        let Some(session) = invariant!(self.sessions.get(key), "errors are about a session") else { return };
        let error = Signaling {
            flags: Flags::REVERSE,
            body: crate::wire::Body::Error(code),
            ..Signaling::new(session.id, session.flow)
        };
        if self.deliver(key, &error, None) {
            self.counters.errors_sent += 1;
        }
    }
}
