//! The search for the next hop: the mechanisms in their order, and scout as the last one (section 9 of the draft).

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::packet::{Received, router_alert_v4, router_alert_v6};
use signalbox_core::shares::source;
use signalbox_core::{Key, invariant};

use super::Casp;
use super::config::Mechanism;
use super::io::Transport;
use super::outbox::Datagram;
use super::search::{Answer, EXTERNAL_WAIT, Phase, REMEMBER, REQUESTS, Waiter};
use super::session::Mark;
use crate::wire::{Cookie, Message};

/// Sessions and messages that go on, in parts of bounded size.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) what: News,
    pub(super) waiting: VecDeque<Waiter>,
}

/// What they waited for.
#[derive(Debug, Clone, Copy)]
pub(super) enum News {
    /// A discovery found a node.
    Found(Answer),
    /// A discovery found no node.
    NoPeer,
    /// A connection to a node is established.
    Connected(Key),
    /// A connection to this address failed.
    Failed(IpAddr),
}

impl Casp {
    /// Searches for the next hop of a session. Whether the session waits for an answer.
    pub(super) fn search(&mut self, key: Key) -> bool {
        let Some(session) =
            invariant!(self.sessions.get_mut(key), "a next hop is searched for a session that stands")
        else {
            return false;
        };
        if session.waiting.as_ref().is_some_and(|waiting| waiting.searching) {
            return true;
        }
        let (dst, label, owner) = (session.flow.dst(), session.flow.label(), session.owner);
        session.discover_at = (self.now + super::DISCOVERY_INTERVAL).into();
        session.note(Mark::Rediscover, false);
        session.note(Mark::Repaired, false);
        let asked_by = self.source_of(owner);
        let waits = self.search_to(dst, label, asked_by, Waiter::Session(key));
        if let Some(session) = self.sessions.get_mut(key).filter(|_| waits) {
            session.waiting().searching = true;
        }
        waits
    }

    /// Searches for the next hop towards a destination, or waits for the search that goes on. `asked_by` pays for a new one. Whether
    /// `waiter` gets an answer.
    pub(super) fn search_to(&mut self, dst: IpAddr, label: u32, asked_by: IpAddr, waiter: Waiter) -> bool {
        let going_on = self.searches.to(dst).filter(|search| {
            self.searches.slab.get(*search).is_some_and(|search| search.phase != Phase::Over)
        });
        let (search, new) = match going_on {
            Some(search) => (search, false),
            None => {
                let cookie = self.rng.array();
                match self.searches.insert(dst, label, cookie, asked_by) {
                    Some(search) => (search, true),
                    None => {
                        self.counters.searches_full += 1;
                        tracing::debug!(%dst, source = %asked_by, reason = "table of discoveries full", "discovery refused");
                        return false;
                    }
                }
            }
        };
        let Some(going_on) =
            invariant!(self.searches.slab.get_mut(search), "a discovery for a destination is in the table")
        else {
            return false;
        };
        // Sessions that came and went while the search goes on are still on its list.
        if going_on.waiting.len() >= self.sessions.slab.limit() as usize {
            self.counters.searches_full += 1;
            tracing::debug!(%dst, source = %asked_by, reason = "too many sessions wait for it", "discovery refused");
            return false;
        }
        going_on.waiting.push_back(waiter);
        if new {
            self.next_mechanism(search);
        }
        true
    }

    /// Goes on with the mechanism that is next in the list of a discovery.
    fn next_mechanism(&mut self, key: Key) {
        loop {
            let Some(search) =
                invariant!(self.searches.slab.get_mut(key), "a discovery stands until it is concluded")
            else {
                return;
            };
            let (dst, route) = (search.dst, search.route);
            let Some(mechanism) = self.config.mechanisms_to(dst).get(search.mechanism).copied() else {
                return self.conclude(key, None);
            };
            let needs_route = matches!(mechanism, Mechanism::Routing | Mechanism::Scout);
            if needs_route && route.is_none() {
                search.phase = Phase::Route;
                return self.out.look_up(key.to_u64(), dst);
            }
            match mechanism {
                Mechanism::Static(address) if !self.interfaces.is_local(address) => {
                    return self.conclude(key, Some(Answer::at(address)));
                }
                Mechanism::Static(_) => {}
                Mechanism::Routing => {
                    let found = route.and_then(Result::ok).map(|route| route.gateway.unwrap_or(dst));
                    if let Some(address) = found.filter(|one| self.config.neighbors.contains(one)) {
                        return self.conclude(key, Some(Answer::at(address)));
                    }
                }
                Mechanism::Scout => {
                    if route.is_some_and(|route| route.is_ok_and(|route| !route.local)) {
                        search.phase = Phase::Scout;
                        return self.send_request(key);
                    }
                }
                Mechanism::External(mechanism) => {
                    search.phase = Phase::External;
                    self.searches.arm(key, self.now + EXTERNAL_WAIT);
                    return self.out.discover(key.to_u64(), mechanism, dst);
                }
            }
            search.mechanism += 1;
        }
    }

    fn another_mechanism(&mut self, key: Key) {
        if let Some(search) = self.searches.slab.get_mut(key) {
            search.mechanism += 1;
        }
        self.next_mechanism(key);
    }

    /// Takes the answer to a route lookup.
    pub(super) fn on_route(&mut self, id: u64, result: Result<Route, NoRoute>) {
        let key = Key::from_u64(id);
        // The discovery may be over before the lookup is answered.
        let Some(search) = self.searches.slab.get_mut(key).filter(|one| one.phase == Phase::Route) else {
            return;
        };
        search.route = Some(result);
        let dst = search.dst;
        self.egresses.note(dst, result);
        self.next_mechanism(key);
    }

    /// Takes the answer of a mechanism outside of the engine.
    pub(super) fn on_discovered(&mut self, id: u64, address: Option<IpAddr>) {
        let key = Key::from_u64(id);
        if self.searches.slab.get(key).is_none_or(|search| search.phase != Phase::External) {
            return;
        }
        match address.filter(|address| self.can_be_a_node(*address)) {
            Some(address) => self.conclude(key, Some(Answer::at(address))),
            None => self.another_mechanism(key),
        }
    }

    /// Whether an address can be that of another node.
    fn can_be_a_node(&self, address: IpAddr) -> bool {
        let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
        let nowhere = address.is_unspecified() || address.is_loopback() || address.is_multicast();
        !nowhere && !broadcast && !self.interfaces.is_local(address)
    }

    /// Sends the Scout Request of a discovery, and waits twice as long as before.
    fn send_request(&mut self, key: Key) {
        let Some(search) =
            invariant!(self.searches.slab.get_mut(key), "a Scout Request is of a discovery that goes on")
        else {
            return;
        };
        let src = search.source();
        if search.sent > 0 {
            self.counters.requests_repeated += 1;
        }
        search.sent += 1;
        let (dst, label, cookie, wait) = (search.dst, search.label, search.cookie, search.wait());
        self.buffer.clear();
        if Message::ScoutRequest(cookie).encode(&mut self.buffer).is_err() {
            return;
        }
        let port = self.config.scout_port;
        let datagram = Datagram {
            port,
            src,
            dst: SocketAddr::new(dst, port),
            tos: self.config.scout_tos,
            flow_label: label,
            unproved: true,
        };
        let (v4, v6) = (router_alert_v4(0), router_alert_v6(self.config.router_alert_v6));
        let options: &[u8] = if dst.is_ipv4() { &v4 } else { &v6 };
        self.out.send(datagram, options, &self.buffer);
        self.counters.requests_sent += 1;
        self.searches.arm(key, self.now + wait);
    }

    /// Runs the timers of discoveries.
    pub(super) fn run_searches(&mut self, most: u32) {
        for _ in 0..most {
            let Some(index) = self.searches.wheel.pop_due(&mut self.searches.slab, self.now) else { return };
            let Some(key) =
                invariant!(self.searches.slab.key_of(index), "the timer of a discovery ends with it")
            else {
                continue;
            };
            let Some(search) =
                invariant!(self.searches.slab.get(key), "a discovery that is due is in the table")
            else {
                continue;
            };
            match search.phase {
                Phase::Over => self.searches.remove(key),
                Phase::Scout if search.sent < REQUESTS && !(search.unreachable && search.sent >= 2) => {
                    self.send_request(key);
                }
                Phase::Scout | Phase::External | Phase::Route => self.another_mechanism(key),
            }
        }
    }

    /// Ends a discovery. What waits for it goes on.
    fn conclude(&mut self, key: Key, answer: Option<Answer>) {
        let Some(search) = invariant!(self.searches.slab.get_mut(key), "a discovery is concluded once")
        else {
            return;
        };
        let waiting = core::mem::take(&mut search.waiting);
        let remember = search.phase == Phase::Scout && answer.is_some();
        search.phase = Phase::Over;
        search.found = answer.map(|answer| answer.address);
        let (src, dst) = (search.source(), search.dst);
        let answer = answer.map(|answer| Answer { src, ..answer });
        let what = match answer {
            Some(answer) => News::Found(answer),
            None => {
                self.counters.no_next_node += 1;
                tracing::debug!(%dst, "no node found");
                News::NoPeer
            }
        };
        self.ready.push_back(Ready { what, waiting });
        if remember {
            self.searches.arm(key, self.now + REMEMBER);
        } else {
            self.searches.remove(key);
        }
    }

    /// Takes a report that a Scout Request cannot be delivered. It counts if it quotes the request, and only once a second
    /// one is unanswered too: a forged report must not end the search at once.
    pub(super) fn on_unreachable(&mut self, quoted: &[u8]) {
        let Ok(Message::ScoutRequest(cookie)) = Message::parse(quoted) else { return };
        let search = self.searches.of_cookie(&cookie).and_then(|key| self.searches.slab.get_mut(key));
        if let Some(search) = search.filter(|search| search.phase == Phase::Scout) {
            search.unreachable = true;
        }
    }

    /// Takes a datagram at the port of scout.
    pub(super) fn on_scout(&mut self, packet: &Received<'_>) {
        match Message::parse(packet.payload) {
            Ok(Message::ScoutRequest(cookie)) => self.on_request(packet, cookie),
            Ok(Message::ScoutResponse { initiator, responder }) => {
                self.on_response(packet, initiator, responder);
            }
            Ok(Message::Signaling(_)) | Err(_) => {
                self.counters.malformed += 1;
                tracing::debug!(peer = %packet.src.ip(), reason = "malformed, or of another kind", "message dropped");
            }
        }
    }

    /// Answers a Scout Request, without any state.
    fn on_request(&mut self, packet: &Received<'_>, initiator: Cookie) {
        self.counters.requests_received += 1;
        let requester = packet.src.ip();
        if !self.can_be_a_node(requester) {
            self.counters.malformed += 1;
            tracing::debug!(peer = %requester, reason = "no address of a node", "Scout Request dropped");
            return;
        }
        let allowed = self.answers.allow(self.now, &(source(requester), packet.ifindex))
            && self.answers_one_more((requester, packet.ifindex));
        if !allowed {
            self.counters.answers_limited += 1;
            tracing::debug!(peer = %requester, reason = "too many answers", "Scout Request dropped");
            return;
        }
        let dst = packet.dst.ip();
        let own = Some(dst).filter(|dst| self.interfaces.is_local(*dst));
        let Some(src) = own.or_else(|| self.interfaces.address(packet.ifindex, dst)) else {
            self.counters.malformed += 1;
            tracing::debug!(peer = %requester, reason = "its interface has no address for an answer", "Scout Request dropped");
            return;
        };
        let responder = self.cookies.make(self.now, requester, dst);
        self.buffer.clear();
        let response = Message::ScoutResponse { initiator, responder };
        if response.encode(&mut self.buffer).is_err() {
            return;
        }
        let datagram = Datagram {
            port: packet.dst.port(),
            src: Some(src),
            dst: packet.src,
            tos: packet.tos,
            flow_label: 0,
            unproved: true,
        };
        self.out.send(datagram, &[], &self.buffer);
        self.counters.responses_sent += 1;
    }

    /// Takes a Scout Response. The first one counts; one other node is remembered.
    fn on_response(&mut self, packet: &Received<'_>, initiator: Cookie, responder: Cookie) {
        let address = packet.src.ip();
        let search =
            self.searches.of_cookie(&initiator).and_then(|key| Some((key, self.searches.slab.get(key)?)));
        let Some((key, search)) =
            search.filter(|_| packet.src.port() == self.config.scout_port && self.can_be_a_node(address))
        else {
            self.counters.unexpected_responses += 1;
            tracing::debug!(peer = %address, reason = "no request waits for it, or no address of a node", "Scout Response dropped");
            return;
        };
        self.counters.responses_received += 1;
        let local = search.source();
        let answer = Answer { address, cookie: Some(responder), local, src: local };
        let again = search.asks_from.is_none().then(|| self.other_end(&answer)).flatten();
        match search.phase {
            Phase::Scout => match again {
                Some(own) => {
                    let cookie = self.rng.array();
                    self.searches.ask_from(key, own, cookie);
                    self.send_request(key);
                }
                None => self.conclude(key, Some(answer)),
            },
            Phase::Over if search.found != Some(address) => {
                if let Some(search) = self.searches.slab.get_mut(key) {
                    search.other.get_or_insert(answer);
                }
            }
            Phase::Over | Phase::Route | Phase::External => {}
        }
    }

    /// The address of this node at its connection to a node that answered, if the cookie in the answer is not good for it. This
    /// node then asks from that address: without a cookie it could not notice a forged answer that names the other node.
    fn other_end(&self, answer: &Answer) -> Option<IpAddr> {
        let transport = self.config.transport_to(answer.address);
        if transport == Transport::Udp {
            return None;
        }
        let peer = self.peers.at(answer.address, transport == Transport::Tls)?;
        let (connection, _) = self.peers.connection_to(peer)?;
        let local = self.peers.connections.get(connection)?.local;
        local.filter(|local| Some(*local) != answer.local)
    }

    /// Another node than the first one that answered a discovery for this destination.
    pub(super) fn substitute(&mut self, dst: IpAddr) -> Option<Answer> {
        let search = self.searches.to(dst)?;
        self.searches.slab.get_mut(search).and_then(|search| search.other.take())
    }
}
