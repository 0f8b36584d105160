//! Delivery without state (an extension of this suite, after section 6 of version 00 of the draft).
//!
//! A message with RECORD_ROUTE goes along the flow. Each node discovers its next hop, appends itself, and keeps nothing. The answer has
//! the list as its ROUTE, with R: each node removes itself, the last entry, and sends the answer to the one before.
//!
//! **Where a ROUTE leads.** The sender of a ROUTE decides where this node sends a message, so this node sends it only to a node with which it
//! has a connection, or that is one of [`Config::neighbors`](super::Config::neighbors). No message makes it connect to any other
//! address.
//!
//! **Nodes that keep state.** The last entry of RECORD_ROUTE is the node that sent the message here. Otherwise a node before
//! this one did not append itself, so it keeps state, and so does this node: the object passes as one of an unknown class. An answer from there
//! goes back by state, with a ROUTE that leads on from the first node that keeps none.
//!
//! **Messages that cannot be sent on.** Their initiator gets an ERROR with ROUTE if private codes are switched on, as with state.

use core::net::{IpAddr, SocketAddr};

use signalbox_core::shares::source;
use signalbox_core::{IfIndex, Key, invariant};
use signalbox_wire::Writer;

use super::Casp;
use super::connect::{Delivery, MAX_DATAGRAM, complete};
use super::discovery::News;
use super::io::{Arrival, Indication, SendRequest, Transport};
use super::outbox::Datagram;
use super::peers::Name;
use super::receive::From;
use super::refused::Refused;
use super::search::{Answer, Waiter};
use super::trace::session_of;
use crate::wire::route::{Hop, MAX_ENTRIES, Route, Routing};
use crate::wire::{Body, ClientType, ErrorCode, FIRST_TTD, Flags, Message, Signaling};

/// Reports a message that waited for its next hop, and is not sent.
macro_rules! lost {
    ($casp:expr, $key:expr, $reason:expr) => {
        tracing::debug!(
            session = $casp.pending.session_of($key),
            peer = $casp.pending.towards($key),
            reason = $reason,
            "message not sent"
        )
    };
}

impl Casp {
    /// Takes a message with RECORD_ROUTE or ROUTE. False: it is one for nodes with state.
    pub(super) fn take_without_state(&mut self, from: &From, message: &Signaling<'_>, proved: bool) -> bool {
        let Some(routing) = message.route else { return false };
        let Some(hops) = Route::parse(routing.contents()).filter(|_| !message.has_second_route()) else {
            self.counters.malformed += 1;
            dropped!(message, from, "malformed route");
            return true;
        };
        let (flags, is_error) = (message.flags, matches!(message.body, Body::Error(_)));
        let last = hops.last().map(|hop| hop.address.ip());
        let (stateless, others) = match routing {
            // An ERROR is about a message that went along the flow.
            Routing::Record(_) => (!flags.is_reverse() && !is_error && last == Some(from.name.address), hops),
            Routing::Route(_) => (
                flags.is_reverse() && last.is_some_and(|last| self.interfaces.is_local(last)),
                hops.without_last(),
            ),
        };
        if !stateless || flags.contains(Flags::TEAR_DOWN) {
            return false;
        }
        if !proved {
            self.counters.unproved += 1;
            dropped!(message, from, "its source is not proved");
            return true;
        }
        // A ROUTE that names a node twice could otherwise make nodes send a message to each other many times.
        if others.iter().any(|hop| self.interfaces.is_local(hop.address.ip())) {
            self.counters.loops += 1;
            dropped!(message, from, "its route names this node");
            return true;
        }
        let owner = source(from.name.address);
        if !self.stateless_rates.allow(self.now, &owner) {
            self.counters.stateless_limited += 1;
            dropped!(message, from, "too many of its source");
            return true;
        }
        let (route, recorded) = match routing {
            Routing::Record(octets) => (Routing::Record(octets), octets),
            Routing::Route(_) => (Routing::Route(others.octets()), &[][..]),
        };
        let message = Signaling { proof: None, route: Some(route), ..*message };
        let (client, data) = match message.body {
            Body::Client { client, data } => (client, data),
            Body::Error(code) if self.ends_here(&message) => {
                self.indicate_error_without_state(from, &message, code);
                return true;
            }
            Body::Error(_) | Body::Empty => {
                self.send_on_without_state(owner, &message, None);
                return true;
            }
        };
        if !self.config.has(client) {
            self.send_on_without_state(owner, &message, None);
        } else if self.config.stateless_clients.contains(&client.0) {
            let id = self.hold_message(None, owner, client, &message);
            let last = self.ends_here(&message);
            let arrival =
                Arrival { id: id.unwrap_or(0), last, stateless: true, ..self.arrival(from, &message) };
            self.out.received(client, arrival, data, recorded);
            if id.is_none() {
                self.send_on_without_state(owner, &message, Some(client));
            }
        } else {
            self.counters.needs_state += 1;
            dropped!(message, from, "its client needs state");
            self.report(&message, ErrorCode::NO_CLIENT);
        }
        true
    }

    /// An ERROR about a message without state arrived at the node that sent it. It does not say which client that was.
    fn indicate_error_without_state(&mut self, from: &From, message: &Signaling<'_>, code: ErrorCode) {
        let (session, flow) = (message.session, message.flow);
        // It is no error about a session that has state.
        if self.sessions.find(session, &flow).is_some() {
            self.counters.strangers += 1;
            dropped!(message, from, "an ERROR about a session with state");
            return;
        }
        let clients = self.config.clients.intersection(&self.config.stateless_clients);
        for client in clients.copied().map(ClientType) {
            self.out.indicate(client, Indication::Error { session, flow, code });
        }
    }

    /// Sends a private error about a message without state back along its list, if private codes are switched on. It has no more
    /// octets than the message, and goes to the node from which that came, so that it is no means to flood others.
    fn report(&mut self, message: &Signaling<'_>, code: ErrorCode) {
        let Some(Routing::Record(passed)) = message.route.filter(|_| self.config.private_errors) else {
            return;
        };
        let Some(last) = Route::parse(passed).and_then(|hops| hops.last()) else { return };
        let owner = source(last.address.ip());
        if !self.errors.allow(self.now, &(owner, IfIndex::NONE)) {
            self.counters.errors_limited += 1;
            tracing::debug!(session = %message.session, source = %owner, reason = "too many of its source", "ERROR not sent");
            return;
        }
        let tainted = message.flags.contains(Flags::UNSECURE);
        let error = Signaling {
            flags: Flags::REVERSE.with_if(Flags::UNSECURE, tainted),
            body: Body::Error(code),
            route: Some(Routing::Route(passed)),
            ..Signaling::new(message.session, message.flow)
        };
        if self.dispatch(owner, &error, None).is_ok() {
            self.counters.errors_sent += 1;
        }
    }

    /// Whether a message without state has arrived at its end.
    fn ends_here(&self, message: &Signaling<'_>) -> bool {
        match message.route {
            Some(Routing::Route(octets)) => octets.is_empty(),
            Some(Routing::Record(_)) | None => self.is_responder(&message.flow),
        }
    }

    /// Sends a received message on. `owner` is the node that sent it here.
    pub(super) fn send_on_without_state(
        &mut self,
        owner: IpAddr,
        message: &Signaling<'_>,
        client: Option<ClientType>,
    ) {
        if self.ends_here(message) {
            return;
        }
        if message.ttd <= 1 {
            self.counters.ttd_exceeded += 1;
            tracing::debug!(session = %message.session, source = %owner, reason = "TTD used up", "message dropped");
            return self.report(message, ErrorCode::TTD_EXCEEDED);
        }
        let message = Signaling { ttd: message.ttd - 1, hops: message.hops.saturating_add(1), ..*message };
        if message.flags.is_reverse() {
            self.counters.stateless_returned += 1;
        } else {
            self.counters.stateless_forwarded += 1;
        }
        if self.dispatch(owner, &message, client).is_err() {
            self.inform_undelivered(&message, client);
        }
    }

    fn inform_undelivered(&mut self, message: &Signaling<'_>, client: Option<ClientType>) {
        if let Some(client) = client {
            let (session, flow) = (message.session, message.flow);
            self.out.indicate(client, Indication::Undelivered { session, flow });
        }
    }

    /// Whether a client may send a message without state, or an answer to one.
    pub(super) fn check_stateless(
        &self,
        client: ClientType,
        send: &SendRequest<'_>,
        has_state: bool,
    ) -> Result<(), Refused> {
        let takes = self.config.stateless && self.config.stateless_clients.contains(&client.0);
        let needs_state = send.tear_down || send.hold || send.discover || send.branch.is_some();
        let fits = match send.route {
            None => !send.reverse && !has_state,
            Some(octets) => {
                let hops = Route::parse(octets).filter(|hops| !hops.is_empty());
                send.reverse && !send.record_route && hops.is_some()
            }
        };
        if takes && fits && !needs_state { Ok(()) } else { Err(Refused::Stateless) }
    }

    /// Sends a message of a client of this node, which keeps no state either.
    pub(super) fn send_without_state(
        &mut self,
        client: ClientType,
        send: &SendRequest<'_>,
    ) -> Result<(), Refused> {
        let session = send.session.unwrap_or_else(|| self.rng.session_id());
        let message = Signaling {
            flags: Flags::NONE.with_if(Flags::REVERSE, send.reverse),
            ttd: send.ttd.unwrap_or(FIRST_TTD),
            body: send.data.map_or(Body::Empty, |data| Body::Client { client, data }),
            route: Some(send.route.map_or(Routing::Record(&[]), Routing::Route)),
            ..Signaling::new(session, send.flow)
        };
        let owner = super::source_of_client(super::key_of_client(client));
        self.dispatch(owner, &message, Some(client))?;
        if send.record_route {
            let opened = Indication::Opened { tag: send.tag, session, flow: send.flow, hold: false };
            self.out.indicate(client, opened);
        }
        Ok(())
    }

    /// Sends a message, or keeps it until its next hop is known and connected. Its route ends with the node that sent it here, or with
    /// the one that it goes to.
    fn dispatch(
        &mut self,
        owner: IpAddr,
        message: &Signaling<'_>,
        client: Option<ClientType>,
    ) -> Result<(), Refused> {
        let hops = message.route.and_then(|routing| Route::parse(routing.contents()));
        let hops = hops.ok_or(Refused::Stateless)?;
        let mut octets = core::mem::take(&mut self.composed);
        octets.clear();
        let encoded = message.encode(&mut octets).map_err(|_| Refused::TooLong);
        let result = encoded.and_then(|()| {
            if message.flags.is_reverse() {
                return self.send_back(owner, &hops, &octets, client);
            }
            if hops.len() >= MAX_ENTRIES {
                self.counters.route_full += 1;
                tracing::debug!(session = %message.session, source = %owner, reason = "its route is full", "message dropped");
                return Err(Refused::TooLong);
            }
            let dst = message.flow.dst();
            let key = self.keep_pending(owner, &octets, client, dst).ok_or(Refused::Full)?;
            if self.search_to(dst, message.flow.label(), owner, Waiter::Message(key)) {
                return Ok(());
            }
            self.drop_pending(key);
            Err(Refused::Full)
        });
        self.composed = octets;
        result
    }

    /// Sends an answer to the last node of its route, if this node may.
    fn send_back(
        &mut self,
        owner: IpAddr,
        hops: &Route<'_>,
        octets: &[u8],
        client: Option<ClientType>,
    ) -> Result<(), Refused> {
        let address = hops.last().ok_or(Refused::Stateless)?.address.ip();
        let neighbor = self.config.neighbors.contains(&address);
        let by_datagram = neighbor && self.config.transport_to(address) == Transport::Udp;
        if by_datagram && self.send_datagram(address, None, octets, None) {
            return Ok(());
        }
        // A node that proved its key before others at its address.
        let up = [true, false].iter().find_map(|proved| self.connection_at(address, *proved));
        let opening = match up {
            Some(connection) if self.write(connection, octets, None) == Delivery::Sent => return Ok(()),
            Some(_) => {
                self.counters.peer_blocked += 1;
                tracing::debug!(session = session_of(octets), peer = %address, reason = "the node does not read", "message not sent");
                return Err(Refused::Full);
            }
            None if neighbor => self.open(Name { address, proved: None }, None),
            None => {
                self.counters.route_refused += 1;
                tracing::debug!(session = session_of(octets), peer = %address, reason = "its route names a node without connection that is no neighbor", "message dropped");
                return Err(Refused::NoHop);
            }
        };
        let connection = opening.ok_or(Refused::Full)?;
        let key = self.keep_pending(owner, octets, client, address).ok_or(Refused::Full)?;
        if self.wait_for(connection, Waiter::Message(key)) {
            return Ok(());
        }
        self.drop_pending(key);
        Err(Refused::Full)
    }

    /// An established connection with the node at an address: one that proved a key if `proved`.
    fn connection_at(&self, address: IpAddr, proved: bool) -> Option<Key> {
        let (connection, up) = self.peers.connection_to(self.peers.at(address, proved)?)?;
        up.then_some(connection)
    }

    /// Sends a message to a neighbor in a datagram, if its length and the rate allow it.
    fn send_datagram(
        &mut self,
        address: IpAddr,
        src: Option<IpAddr>,
        octets: &[u8],
        answer: Option<&Answer>,
    ) -> bool {
        let protected = self.is_protected(address);
        self.buffer.clear();
        let fits = complete(octets, answer, protected, &mut self.buffer).is_ok()
            && self.buffer.len() <= MAX_DATAGRAM;
        if !fits || !self.stateless_to.allow(self.now, &address) {
            return false;
        }
        let port = self.config.port;
        let dst = SocketAddr::new(address, port);
        let datagram = Datagram { port, src, dst, tos: 0, flow_label: 0, unproved: false };
        self.out.send(datagram, &[], &self.buffer);
        self.counters.signaling_sent += 1;
        true
    }

    /// Goes on with a message that waited.
    pub(super) fn on_news(&mut self, key: Key, what: News) {
        match what {
            News::Found(answer) => self.found_for(key, answer),
            News::NoPeer => {
                self.counters.no_next_hop += 1;
                lost!(self, key, "no next hop was found");
                self.give_up(key);
            }
            News::Connected(peer) => match self.peers.connection_to(peer) {
                Some((connection, true)) => self.send_over_connection(key, connection),
                Some(_) | None => self.lose(key),
            },
            News::Failed(_) => {
                let Some(unsent) = invariant!(
                    self.pending.get_mut(key),
                    "a message stands as long as it waits for a connection"
                ) else {
                    return;
                };
                let (dst, again) = (unsent.dst, !core::mem::replace(&mut unsent.retried, true));
                let found = unsent.answer.is_some() && again;
                match found.then(|| self.substitute(dst)).flatten() {
                    Some(answer) => self.found_for(key, answer),
                    None => self.lose(key),
                }
            }
        }
    }

    /// A discovery found the next hop of a message.
    fn found_for(&mut self, key: Key, answer: Answer) {
        let Some(unsent) = invariant!(self.pending.get_mut(key), "a search has its messages") else { return };
        unsent.answer = Some(answer);
        let address = answer.address;
        let octets = core::mem::take(&mut unsent.octets);
        let returns = match Message::parse(&octets) {
            Ok(Message::Signaling(message)) => message
                .route
                .and_then(|routing| Route::parse(routing.contents()))
                .is_none_or(|hops| hops.has(address)),
            Ok(Message::ScoutRequest(_) | Message::ScoutResponse { .. }) | Err(_) => true,
        };
        let transport = self.config.transport_to(address);
        let by_datagram = transport == Transport::Udp && self.config.neighbors.contains(&address);
        let sent = match answer.src.filter(|_| by_datagram && !returns) {
            Some(src) => {
                self.with_entry(Transport::Udp, src, &octets, |casp, octets| {
                    casp.send_datagram(address, Some(src), octets, Some(&answer))
                }) == Some(true)
            }
            None => false,
        };
        let Some(unsent) = invariant!(self.pending.get_mut(key), "a datagram ends nothing") else { return };
        unsent.octets = octets;
        if sent {
            return self.done(key);
        }
        if returns {
            self.counters.loops += 1;
            lost!(self, key, "its route names its next hop");
            return self.give_up(key);
        }
        if let Some(connection) = self.connection_at(address, transport == Transport::Tls) {
            return self.send_over_connection(key, connection);
        }
        match self.open(Name { address, proved: None }, answer.local) {
            Some(connection) if self.wait_for(connection, Waiter::Message(key)) => {}
            Some(_) | None => self.lose(key),
        }
    }

    /// Composes a message with RECORD_ROUTE and an entry of this node at its end, and gives it to `send`. `None`: it cannot be
    /// composed.
    fn with_entry<T>(
        &mut self,
        transport: Transport,
        own: IpAddr,
        octets: &[u8],
        send: impl FnOnce(&mut Self, &[u8]) -> T,
    ) -> Option<T> {
        let Ok(Message::Signaling(message)) = Message::parse(octets) else { return None };
        let (protocol, port) = match transport {
            Transport::Tcp => (6, self.config.port),
            Transport::Tls => (6, self.config.tls_port),
            Transport::Sctp => (132, self.config.port),
            Transport::Udp => (17, self.config.port),
        };
        let passed = message.route?.contents();
        let own = Hop { transport: protocol, address: SocketAddr::new(own, port) };
        let mut contents = core::mem::take(&mut self.recorded);
        contents.clear();
        contents.extend_from_slice(passed);
        own.encode(&mut Writer::new(&mut contents));
        let mut composed = core::mem::take(&mut self.composed);
        composed.clear();
        let route = Some(Routing::Record(&contents));
        let encoded = Signaling { route, ..message }.encode(&mut composed);
        let result = encoded.is_ok().then(|| send(self, &composed));
        (self.recorded, self.composed) = (contents, composed);
        result
    }

    /// Sends a message that waited over a connection. Along the flow it gets an entry with the address of this node there, from
    /// which the next hop has the message: a ROUTE with that entry leads back over the connection.
    fn send_over_connection(&mut self, key: Key, connection: Key) {
        let Some(unsent) = invariant!(self.pending.get_mut(key), "what is to be sent waits") else { return };
        let (octets, answer) = (core::mem::take(&mut unsent.octets), unsent.answer);
        let over = self.peers.connections.get(connection).map(|one| (one.transport, one.local));
        let sent = match (over, answer) {
            (Some((transport, Some(local))), Some(answer)) => {
                self.with_entry(transport, local, &octets, |casp, octets| {
                    casp.write(connection, octets, Some(&answer))
                })
            }
            (Some(_), None) => Some(self.write(connection, &octets, None)),
            (Some((_, None)) | None, _) => None,
        };
        if let Some(unsent) = self.pending.get_mut(key) {
            unsent.octets = octets;
        }
        match sent {
            Some(Delivery::Sent) => self.done(key),
            Some(Delivery::Blocked | Delivery::Connecting(_)) => {
                self.counters.peer_blocked += 1;
                lost!(self, key, "the node does not read");
                self.give_up(key);
            }
            None => self.lose(key),
        }
    }

    /// A message has left.
    fn done(&mut self, key: Key) {
        if let Some(unsent) = self.drop_pending(key) {
            self.keep_buffer(unsent.octets);
        }
    }

    /// The next hop of a message cannot be reached.
    fn lose(&mut self, key: Key) {
        self.counters.no_connection += 1;
        lost!(self, key, "no connection with the next hop");
        self.give_up(key);
    }

    /// A message cannot be sent.
    fn give_up(&mut self, key: Key) {
        let Some(unsent) = invariant!(self.drop_pending(key), "a message is given up once") else { return };
        if let Ok(Message::Signaling(message)) = Message::parse(&unsent.octets) {
            self.inform_undelivered(&message, unsent.client);
            self.report(&message, ErrorCode::NO_NEXT_PEER);
        }
        self.keep_buffer(unsent.octets);
    }
}
