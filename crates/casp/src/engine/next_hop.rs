//! What a discovery found becomes the next hop of a session as soon as it can be reached.

use core::net::IpAddr;

use signalbox_core::{Key, invariant};

use super::Casp;
use super::branch::{Branch, MadeBy, Proved};
use super::deliver::Kind;
use super::discovery::News;
use super::io::{Indication, Transport};
use super::peers::Name;
use super::search::{Answer, Waiter};
use crate::wire::{ErrorCode, Flags};

impl Casp {
    /// Goes on with sessions and messages that waited, a part of them at a time.
    pub(super) fn run_ready(&mut self) {
        for _ in 0..super::BUDGET {
            let Some(ready) = self.ready.front_mut() else { return };
            let what = ready.what;
            let Some(waiter) = ready.waiting.pop_front() else {
                self.ready.pop_front();
                continue;
            };
            let key = match waiter {
                Waiter::Session(key) => key,
                Waiter::Message(key) => {
                    self.on_news(key, what);
                    continue;
                }
            };
            match what {
                News::Found(answer) => self.found(key, answer),
                News::NoPeer => self.no_peer(key),
                News::Connected(peer) => self.reached(key, peer),
                News::Failed(address) => self.unreached(key, address),
            }
            if let Some(session) = self.sessions.get_mut(key) {
                session.settle();
            }
        }
    }

    /// A discovery found a next hop. It becomes one as soon as it can be reached: the former one stays until then.
    fn found(&mut self, key: Key, answer: Answer) {
        // A session may end while it waits.
        let Some(session) = self.sessions.get_mut(key) else { return };
        let waiting = session.waiting();
        if !core::mem::take(&mut waiting.searching) {
            return;
        }
        waiting.answer = Some(answer);
        self.connect(key, answer);
    }

    fn connect(&mut self, key: Key, answer: Answer) {
        let address = answer.address;
        let transport = self.config.transport_to(address);
        if transport == Transport::Udp {
            let name = Name { address, proved: None };
            if let Ok(peer) = self.peers.hold(name, self.rng.u64()) {
                self.new_next(key, peer, (true, answer.cookie.is_some()));
                self.peers.drop_use(peer);
            }
            return;
        }
        let known = self.peers.at(address, transport == Transport::Tls);
        let up = known.filter(|peer| self.peers.connection_to(*peer).is_some_and(|(_, up)| up));
        if let Some(peer) = up {
            return self.new_next(key, peer, (false, true));
        }
        match self.open(Name { address, proved: None }, answer.local) {
            Some(connection) if self.wait_for(connection, Waiter::Session(key)) => {
                if let Some(session) = self.sessions.get_mut(key) {
                    session.waiting().candidate = Some(address);
                }
            }
            Some(_) | None => self.unreached(key, address),
        }
    }

    /// A connection that a session waited for is established.
    fn reached(&mut self, key: Key, peer: Key) {
        // The connection that was established may be lost again, and its node with it. A session may end while it waits.
        let Some(address) = self.peers.address(peer) else { return };
        let Some(session) = self.sessions.get_mut(key) else { return };
        let to_previous = session.previous.is_last(peer);
        let previous = session.previous.last().map(|branch| branch.peer);
        if !to_previous && previous.and_then(|peer| self.peers.address(peer)) == Some(address) {
            // Another node answers at the address of the previous hop.
            self.give_up_up(key);
        }
        let Some(session) = invariant!(self.sessions.get_mut(key), "giving up ends nothing") else { return };
        let Some(waiting) = session.waiting.as_mut() else { return };
        if to_previous && core::mem::take(&mut waiting.connecting_up) {
            while let Some(queued) =
                self.sessions.get_mut(key).and_then(|one| one.waiting.as_mut()?.up.pop_front())
            {
                self.dequeued(key, queued.octets.len());
                self.up(key, &queued.octets, queued.client);
                if self
                    .sessions
                    .get(key)
                    .is_some_and(|one| one.waiting.as_ref().is_some_and(|w| w.connecting_up))
                {
                    break;
                }
            }
        }
        let candidate = self
            .sessions
            .get_mut(key)
            .and_then(|one| one.waiting.as_mut())
            .filter(|waiting| waiting.candidate == Some(address));
        if let Some(waiting) = candidate {
            waiting.candidate = None;
            self.new_next(key, peer, (false, true));
        }
    }

    /// A connection that a session waited for could not be established.
    fn unreached(&mut self, key: Key, address: IpAddr) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let dst = session.flow.dst();
        let previous = session.previous.last().map(|branch| branch.peer);
        let next = session.next.last().map(|branch| branch.peer);
        let previous = previous.and_then(|peer| self.peers.address(peer));
        let next = next.and_then(|peer| self.peers.address(peer));
        if previous == Some(address) {
            self.give_up_up(key);
        }
        let Some(waiting) = self.sessions.get_mut(key).and_then(|one| one.waiting.as_mut()) else { return };
        let of_candidate =
            waiting.candidate == Some(address) || waiting.answer.is_some_and(|a| a.address == address);
        if !of_candidate {
            return;
        }
        (waiting.candidate, waiting.answer) = (None, None);
        if let Some(answer) = self.substitute(dst) {
            if let Some(session) = self.sessions.get_mut(key) {
                session.waiting().answer = Some(answer);
            }
            return self.connect(key, answer);
        }
        if next.is_some() && next != Some(address) {
            // The former next hop stays.
            return self.flush_down(key);
        }
        // The next hop itself is gone. There may be another one.
        if self.sessions.get(key).is_some_and(|session| session.discover_at.is_due(self.now))
            && self.search(key)
        {
            return;
        }
        self.counters.no_connection += 1;
        tracing::debug!(session = self.logged(key), peer = %address, reason = "no connection with the next hop", "message not sent");
        self.give_up_down(key);
    }

    /// A discovery found no node: this is the last one, unless it knew a next hop before.
    fn no_peer(&mut self, key: Key) {
        let interval = self.sessions.get(key).map(super::session::Session::interval);
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.waiting().searching = false;
        session.discover_at = (self.now + interval.unwrap_or_default()).into();
        if session.next.last().is_some() {
            return self.flush_down(key);
        }
        self.counters.no_next_hop += 1;
        unsent!(self, key, "no next hop was found");
        self.give_up_down(key);
        self.send_error(key, ErrorCode::NO_NEXT_PEER);
    }

    /// The previous hop cannot be reached: what waits for the connection to it is dropped.
    fn give_up_up(&mut self, key: Key) {
        let waiting = self.sessions.get_mut(key).and_then(|session| session.waiting.as_mut());
        if !waiting.is_some_and(|waiting| core::mem::take(&mut waiting.connecting_up)) {
            return;
        }
        let previous = self.sessions.get(key).and_then(|session| session.previous.last());
        let previous = previous.map_or(Branch::LOCAL, |branch| branch.peer);
        while let Some(queued) =
            self.sessions.get_mut(key).and_then(|one| one.waiting.as_mut()?.up.pop_front())
        {
            self.dequeued(key, queued.octets.len());
            self.counters.no_connection += 1;
            unsent!(self, key, previous, "no connection with the previous hop");
            self.undelivered(key, queued.client);
        }
    }

    fn give_up_down(&mut self, key: Key) {
        let mut informed = Vec::new();
        while let Some(queued) = self.pop_down(key) {
            // One report for each client, however many of its messages are lost.
            if let Some(client) = queued.client.filter(|client| !informed.contains(client)) {
                informed.push(client);
                self.undelivered(key, Some(client));
            }
        }
        if informed.is_empty() {
            self.indicate_all(key, |session, flow| Indication::Undelivered { session, flow });
        }
    }

    /// Makes a node the next hop of a session, and sends what waited for it. A node that scout found has returned a cookie.
    fn new_next(&mut self, key: Key, peer: Key, (datagram, answered): (bool, bool)) {
        let address = self.peers.address(peer);
        let secure = self.peers.connection_to(peer).and_then(|(one, _)| self.peers.connections.get(one));
        let protected = secure.is_some_and(|connection| connection.protected)
            || (datagram && address.is_some_and(|address| self.is_protected(address)));
        let Some(session) = invariant!(self.sessions.get_mut(key), "a new hop has a session") else { return };
        let until = (self.now + session.lifetime()).into();
        let (first, is_last) = (session.next.last().is_none(), session.next.is_last(peer));
        let id = if let Some(known) = session.next.get_mut(peer) {
            known.until = until;
            known.also_by(datagram, answered);
            if !is_last {
                known.proved = Proved::default();
            }
            session.next.promote(peer)
        } else {
            let oldest = session.next.others().next().map(|branch| branch.peer);
            if let Some(oldest) = oldest.filter(|_| session.next.is_full()) {
                session.next.remove(oldest);
                self.peers.drop_use(oldest);
            }
            let (proved, made_by) = (Proved::default(), MadeBy::new(datagram, answered));
            let branch = Branch { peer, until, id: 0, proved, protected, tainted: !protected, made_by };
            self.peers.hold_again(peer);
            session.next.add(branch, true)
        };
        if let Some(id) = id.filter(|_| !first) {
            self.counters.next_branches += 1;
            self.indicate_branch(key, false, id, false);
            // The first message over another hop makes the rest of the chain discover as well.
            let queued = self.sessions.get_mut(key).and_then(|one| one.waiting.as_mut()?.down.front_mut());
            match queued {
                Some(queued) => {
                    if let Some(flags) = queued.octets.first_mut() {
                        *flags |= Flags::DISCOVER.octet();
                    }
                }
                None => self.refresh_over(key, peer),
            }
        }
        self.flush_down(key);
    }

    /// Sends a refresh with the D flag to a new next hop.
    fn refresh_over(&mut self, key: Key, peer: Key) {
        let Some(message) = invariant!(
            self.refresh_message(key, true),
            "a refresh goes over the new hop of a session that stands"
        ) else {
            return;
        };
        let mut octets = Vec::new();
        if message.encode(&mut octets).is_ok() {
            self.transmit_down(key, peer, &octets, Kind { discover: false, refresh: true, client: None });
        }
    }
}
