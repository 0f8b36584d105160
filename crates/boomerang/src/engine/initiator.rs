//! The initiating node (§2.1): the only one with a state machine and timers of a session.

use core::net::IpAddr;

use signalbox_core::hops::{Hop, Part, Path};
use signalbox_core::index::KeyedHasher;
use signalbox_core::node::Prefix;
use signalbox_core::packet::Received;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{Key, SessionChange, invariant};
use signalbox_resources::Resources;
use signalbox_resources::decision::End;

use super::Boomerang;
use super::flow::FlowKey;
use super::interfaces::Iface;
use super::io::{BoomerangEvent as Event, Command, Reason, Refusal, Rejected, Request};
use super::outbox::{Envelope, TTL};
use super::proof::MOST;
use super::request::{check, flow_of};
use super::routes::Waiting;
use super::service::offered;
use super::session::{MAX_LOOPS, Session, State};
use crate::wire::{Body, Ends, FlowSpec, KEY_FIRST, Message, Nodes, Pass, Qos, Rates};

/// Refresh interval of requests to a group, seconds: a new branch is asked within it.
const GROUP_REFRESH: u8 = 3;

/// What the timer of a session does next.
enum Due {
    Send,
    Lost,
    Drop,
}

impl Boomerang {
    pub(super) fn on_command(&mut self, id: u64, command: Command, resources: &mut Resources) {
        let known = self.by_id.get(&id).copied();
        match (command, known) {
            (Command::Open(request), None) => self.open(id, &request, false, resources),
            (Command::Query(request), None) => self.open(id, &request, true, resources),
            (Command::Open(_) | Command::Query(_), Some(_)) => self.reject(id, Rejected::NameTaken),
            (Command::Change(rates), Some(key)) => self.change(id, key, rates, resources),
            (Command::Close, Some(key)) => self.close(key, resources),
            (Command::Change(_) | Command::Close, None) => self.reject(id, Rejected::NoSession),
        }
    }

    /// A user leaves. A second time it does not wait for the answer of the path. BOOM-P-02.
    fn close(&mut self, key: Key, resources: &mut Resources) {
        let waits = |session: &Session| session.confirms && session.state != State::Closing;
        if !self.sessions.get(key).is_some_and(waits) {
            self.finish(key, Event::Closed { confirmed: false });
        }
        resources.because(End::User);
        self.release(key, resources);
    }

    fn reject(&mut self, id: u64, why: Rejected) {
        self.out.event(id, Event::Rejected(why));
    }

    // BOOM-3.2.1-04, BOOM-F5.3-04
    fn open(&mut self, id: u64, request: &Request, query: bool, resources: &mut Resources) {
        if let Err(why) = check(request, query) {
            return self.reject(id, why);
        }
        if request.intserv.is_some_and(|intserv| !intserv.fit(&request.rates, &self.hasher)) {
            return self.reject(id, Rejected::Parameters);
        }
        let far_end = request.far_end;
        let unspecified = match far_end {
            IpAddr::V4(_) => IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED),
        };
        // The source of the requests is known with the route.
        let ends = Ends { src: unspecified, dst: far_end };
        let usual = if far_end.is_multicast() { GROUP_REFRESH } else { self.config.refresh };
        let refresh = request.refresh.unwrap_or(usual);
        let mut session =
            Session::new(id, ends, flow_of(request, unspecified), request.rates.clone(), refresh);
        session.intserv = request.intserv;
        session.user = request.user;
        session.query = query;
        session.confirms = request.confirm_release;
        session.names_nodes = request.name_nodes && !query && !far_end.is_multicast();
        let Ok(key) = self.sessions.insert(session) else {
            self.counters.sessions_full += 1;
            tracing::debug!(id, %far_end, reason = "table of sessions full", "request refused");
            return self.reject(id, Rejected::Full);
        };
        self.by_id.insert(id, key);
        self.find_route(key, resources);
    }

    /// Looks for the route to the far end of a session.
    fn find_route(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get(key), "a session that opens stands") else { return };
        let dst = session.ends.dst;
        match self.routes.find(dst) {
            Some(oif) => self.start(key, Some(oif), resources),
            None => match self.routes.wait(dst, Waiting::Session(key)) {
                Ok(lookup) => lookup.into_iter().for_each(|id| self.out.look_up(id, dst)),
                Err(_) => {
                    self.counters.waiting_full += 1;
                    tracing::debug!(%dst, reason = "too many messages wait for a route", "request not sent");
                    self.start(key, None, resources);
                }
            },
        }
    }

    /// Handles the answer to the route lookup of a session. `oif` is `None` if the destination has no route.
    pub(super) fn routed(&mut self, key: Key, oif: Option<Iface>, resources: &mut Resources) {
        // The session may have ended while it waited for its route.
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.looks_up = false;
        match session.state {
            State::Route => self.start(key, oif, resources),
            State::Setup | State::Established | State::Closing => self.transmit(key, oif, resources),
        }
    }

    /// Sends the first message of a session.
    fn start(&mut self, key: Key, oif: Option<Iface>, resources: &mut Resources) {
        let Some(session) = self.sessions.get_mut(key).filter(|one| one.state == State::Route) else {
            return;
        };
        let dst = session.ends.dst;
        let address = |oif| self.routes.source(dst).or_else(|| self.interfaces.address(oif, dst));
        let source = oif.and_then(|oif| Some((oif, address(oif)?)));
        let Some((oif, source)) = source else {
            if let Some(id) = session.id {
                self.reject(id, Rejected::NoRoute);
            }
            return self.drop_session(key);
        };
        session.oif = oif;
        session.ends.src = source;
        if session.flow.classifier.src.is_unspecified() {
            session.flow.classifier.src = source;
        }
        let (flow, query) = (session.flow, session.query);
        if !query && !self.take_flow(key, &flow) {
            if let Some(id) = self.sessions.get(key).and_then(|session| session.id) {
                self.reject(id, Rejected::FlowTaken);
            }
            return self.drop_session(key);
        }
        let Some(session) = invariant!(self.sessions.get_mut(key), "a flow has its session") else { return };
        session.state = State::Setup;
        self.changes.note(|| SessionChange::opened(name(&flow)));
        self.transmit(key, Some(oif), resources);
    }

    /// The identifier of the command of the user who reserves for a flow.
    pub(super) fn command_for(&self, flow: FlowKey) -> Option<u64> {
        let session = self.by_data.get(&flow).and_then(|key| self.sessions.get(*key));
        session.and_then(|session| session.id)
    }

    /// Makes a session the one that reserves for its flow. False: another user has a session for it, which its messages would change and
    /// end. A session that only waits for the answer to its release ends.
    fn take_flow(&mut self, key: Key, flow: &FlowSpec) -> bool {
        let Ok(name) = FlowKey::of(flow, Pass::Request) else { return true };
        if let Some(other) = self.by_data.get(&name).copied() {
            if self.sessions.get(other).is_some_and(|session| session.state != State::Closing) {
                return false;
            }
            self.finish(other, Event::Closed { confirmed: false });
            self.drop_session(other);
        }
        self.by_data.insert(name, key);
        true
    }

    // BOOM-P-01
    fn change(&mut self, id: u64, key: Key, rates: Rates, resources: &mut Resources) {
        let Some(session) =
            self.sessions.get_mut(key).filter(|session| !session.query && session.state != State::Closing)
        else {
            return self.reject(id, Rejected::NoSession);
        };
        if rates.is_zero() {
            return self.reject(id, Rejected::Rates);
        }
        if session.is_for_group() && rates.reverse != 0 {
            return self.reject(id, Rejected::Group);
        }
        if session.intserv.is_some_and(|intserv| !intserv.are_valid(rates, &self.hasher)) {
            return self.reject(id, Rejected::Parameters);
        }
        session.wanted = vec![rates];
        if session.state == State::Route {
            return;
        }
        session.asked = true;
        session.state = State::Setup;
        session.loops = 0;
        self.settle(key);
        self.send(key, resources);
    }

    /// Removes the transactions of a session.
    fn settle(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "sends have a session") else { return };
        for transaction in session.settle().into_iter().flatten() {
            self.by_transaction.remove(&transaction);
        }
    }

    /// Sends the message of a session in its present state by the present route, which is looked up if it is not known.
    fn send(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a message has a session") else { return };
        let dst = session.ends.dst;
        match self.routes.find(dst) {
            Some(oif) => self.transmit(key, Some(oif), resources),
            // The answer sends what is due then.
            None if session.looks_up => {}
            None => match self.routes.wait(dst, Waiting::Session(key)) {
                Ok(lookup) => {
                    session.looks_up = true;
                    lookup.into_iter().for_each(|id| self.out.look_up(id, dst));
                }
                Err(_) => {
                    self.counters.waiting_full += 1;
                    tracing::debug!(%dst, reason = "too many messages wait for a route", "route not looked up");
                    let oif = session.oif;
                    self.transmit(key, Some(oif), resources);
                }
            },
        }
    }

    /// Sends the message of a session by an interface, and starts the reply timer. Without a route the message counts as
    /// lost.
    fn transmit(&mut self, key: Key, oif: Option<Iface>, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a request has a session") else { return };
        let Some(oif) = oif else {
            self.counters.no_route += 1;
            tracing::debug!(dst = %session.ends.dst, reason = "no route", "request not sent");
            let due = self.now + session.attempt();
            return self.wheel_of_sessions.arm(&mut self.sessions, key.index(), due);
        };
        (session.oif, session.sent_at) = (oif, self.now);
        let transaction = self.next_transaction;
        // BOOM-G16-02, BOOM-G34-01
        self.next_transaction = self.next_transaction.wrapping_add(1);
        // BOOM-G2-02
        self.sequence = self.sequence.wrapping_add(1);
        let ends = session.ends;
        let mut octets = core::mem::take(&mut self.buffer);
        octets.clear();
        let Some(alert) = self.compose(key, oif, transaction, &mut octets, resources) else {
            self.buffer = octets;
            return self.too_large(key);
        };
        let Some(session) = invariant!(self.sessions.get_mut(key), "its request ends no session") else {
            return;
        };
        // BOOM-G44-01
        let for_group = session.is_for_group();
        if !for_group {
            let wait = session.sent(transaction);
            if session.state == State::Setup {
                session.loops = session.loops.saturating_add(1);
            }
            // BOOM-G16-02
            self.by_transaction.insert(transaction, key);
            self.wheel_of_sessions.arm(&mut self.sessions, key.index(), self.now + wait);
        }
        let by = for_group.then(|| self.interfaces.ifindex(oif));
        // BOOM-G33-02
        let envelope = Envelope { ends, ttl: TTL, tos: self.config.tos, own: true, by };
        self.out.send(envelope, alert.options(), &octets);
        self.counters.requests_sent += 1;
        if for_group {
            let refused = refusal_in(&octets, ends.is_ipv6(), &self.hasher);
            self.buffer = octets;
            return self.sent_to_group(key, refused, resources);
        }
        self.buffer = octets;
    }

    /// Handles a request that exceeds the MTU of the first hop or of the route. The first one of a session is rejected; a later one counts
    /// as lost.
    fn too_large(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "what is too large has a session") else {
            return;
        };
        self.counters.too_large += 1;
        tracing::debug!(dst = %session.ends.dst, reason = "larger than the MTU of the first hop or of the route", "request not sent");
        if session.granted.is_none() && session.loops == 0 && !session.is_waiting() {
            self.finish(key, Event::Rejected(Rejected::TooLong));
            return self.drop_session(key);
        }
        let due = self.now + session.attempt();
        self.wheel_of_sessions.arm(&mut self.sessions, key.index(), due);
    }

    /// A request to a group is sent. Nothing comes back, so what this node decided for its own link is all that it learns.
    fn sent_to_group(&mut self, key: Key, refused: Option<Refusal>, resources: &mut Resources) {
        self.settle(key);
        let Some(session) =
            invariant!(self.sessions.get_mut(key), "a session outlives its request to a group")
        else {
            return;
        };
        if session.state == State::Closing {
            self.finish(key, Event::Closed { confirmed: false });
            return self.drop_session(key);
        }
        if let Some(refusal) = refused {
            return self.on_refusal(key, refusal, resources);
        }
        let rates = session.wanted.first().copied().unwrap_or_default();
        self.established(key, rates, Path::default());
    }

    /// The path granted these rates. BOOM-F5.7.1-01.
    fn established(&mut self, key: Key, rates: Rates, path: Path) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a grant has a session") else { return };
        let new = core::mem::take(&mut session.asked) || session.granted != Some(rates);
        session.granted = Some(rates);
        session.state = State::Established;
        let (loops, refresh) = (core::mem::take(&mut session.loops), session.refresh);
        let due = session.next_refresh(self.now, &mut self.rng);
        let id = session.id.filter(|_| new);
        self.wheel_of_sessions.arm(&mut self.sessions, key.index(), due);
        if let Some(id) = id {
            self.out.event(id, Event::Reserved { rates, refresh, loops: loops.max(1), path });
        }
    }

    /// A reply came to this node.
    pub(super) fn on_reply(
        &mut self,
        packet: &Received<'_>,
        message: &Message<'_>,
        resources: &mut Resources,
    ) {
        // BOOM-3.1-03
        let Some(key) = self.by_transaction.get(&message.transaction).copied() else {
            self.counters.unexpected_replies += 1;
            tracing::debug!(peer = %packet.src.ip(), reason = "no request waits for it", "reply dropped");
            return;
        };
        let Some(session) = invariant!(self.sessions.get_mut(key), "a reply has a session") else { return };
        let body =
            // BOOM-G38-03
            message.body.filter(|body| body.flow == session.flow && packet.src.ip() == session.ends.dst);
        let authentic = !session.signed
            || body.and_then(|body| body.options.authentication()).is_some_and(|option| {
                let ipv6 = packet.dst.is_ipv6();
                self.domain.is_right(&self.config.integrity, packet.payload, ipv6, option)
            });
        // BOOM-G10-06
        let is_multiple = message.key == 0 || message.key.is_multiple_of(session.key.max(1));
        let (Some(body), true) = (body, is_multiple && authentic) else {
            self.counters.invalid_replies += 1;
            tracing::debug!(peer = %packet.src.ip(), reason = "other flow, KEY or authentication than that of the request", "reply dropped");
            return;
        };
        let offer = offered(&body.qos, &self.hasher);
        if session.state == State::Closing {
            self.finish(key, Event::Closed { confirmed: true });
            return self.drop_session(key);
        }
        if session.query {
            self.finish(key, Event::Available(offer));
            return self.drop_session(key);
        }
        // BOOM-1-03, BOOM-F3.3.3-01, BOOM-F3.4-01, BOOM-G10-05
        let sent = session.key;
        let proofs = || body.options.proofs().take(MOST).map(|(placed, proof)| (placed.flags, proof));
        // BOOM-2.1-04, BOOM-F4.1.1-01, BOOM-F4.2-09
        session.refresh = message.refresh.max(1);
        // BOOM-F4.2-08
        self.settle(key);
        if message.is_refused() {
            return self.on_refusal(key, refusal_of(&body, offer), resources);
        }
        let Some(session) = invariant!(self.sessions.get_mut(key), "a reply ends no session") else { return };
        // BOOM-3.2.1-13
        if message.key != sent || !session.proofs.iter().copied().eq(proofs()) {
            session.key = message.key;
            session.proofs = proofs().collect();
            // BOOM-G10-05
            if session.loops >= MAX_LOOPS {
                self.finish(key, Event::Unanswered);
                return self.release(key, resources);
            }
            session.state = State::Setup;
            return self.send(key, resources);
        }
        match body.qos {
            // BOOM-F4.2-11
            Qos::BitRate(rates) => session.wanted = vec![rates],
            // BOOM-G20-03
            Qos::Downgrade(list) => session.wanted = list.pairs().collect(),
            Qos::IntServ(_) => {}
        }
        self.established(key, offer, path_of(&body, offer));
    }

    // BOOM-G17-03, BOOM-F4.2-10, BOOM-G17-02
    fn on_refusal(&mut self, key: Key, refusal: Refusal, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a refusal has a session") else { return };
        // The message is full of proofs for nodes that left the path or were restarted, or an outdated one was refused. The proof
        // begins again.
        let outdated = matches!(refusal.reason, Reason::KeyFull | Reason::WrongProof);
        // A node that does not know the list has no room behind it. No other refusal is about the list.
        let names = refusal.reason == Reason::KeyFull && core::mem::take(&mut session.names_nodes);
        let shows = names || session.key != KEY_FIRST || !session.proofs.is_empty();
        if outdated && shows && session.loops < MAX_LOOPS {
            session.key = KEY_FIRST;
            session.proofs.clear();
            session.state = State::Setup;
            return self.send(key, resources);
        }
        match session.granted {
            Some(granted) if core::mem::take(&mut session.asked) => {
                // The path holds parts of the change: the former values are sent at once.
                session.wanted = vec![granted];
                session.state = State::Established;
                session.loops = 0;
                if let Some(id) = session.id {
                    self.out.event(id, Event::ChangeRefused(refusal));
                }
                self.send(key, resources);
            }
            _ => {
                resources.because(End::RefusedBeyond(refusal.node));
                self.finish(key, Event::Refused(refusal));
                self.release(key, resources);
            }
        }
    }

    /// A packet to this destination could not be sent: the sessions with this far end lost their message.
    pub(super) fn on_not_sent(&mut self, dst: IpAddr) {
        // The reply timer repeats it; the loss is only logged.
        tracing::debug!(%dst, reason = "the kernel did not send it", "request lost");
    }

    /// The timers of sessions that are due, `most` of them. BOOM-F4.2.1-02.
    pub(super) fn run_sessions(&mut self, most: u32, resources: &mut Resources) {
        for _ in 0..most {
            let Some(index) = self.wheel_of_sessions.pop_due(&mut self.sessions, self.now) else { return };
            let Some(key) = invariant!(self.sessions.key_of(index), "a timer has a record") else { continue };
            let Some(session) = invariant!(self.sessions.get(key), "a timer has a session") else { continue };
            let due = match session.state {
                State::Route => continue,
                State::Closing if session.is_given_up() => Due::Drop,
                State::Setup | State::Established if session.is_given_up() => Due::Lost,
                State::Setup | State::Established | State::Closing => Due::Send,
            };
            if session.is_waiting() {
                self.counters.unanswered += 1;
            }
            match due {
                Due::Send => self.send(key, resources),
                Due::Lost => {
                    let report = self.sessions.get(key).and_then(|session| session.unreachable);
                    self.finish(key, report.map_or(Event::Unanswered, Event::Unreachable));
                    self.release(key, resources);
                }
                Due::Drop => {
                    self.finish(key, Event::Closed { confirmed: false });
                    self.drop_session(key);
                }
            }
        }
    }

    /// Gives the last event of a session to its user.
    pub(super) fn finish(&mut self, key: Key, event: Event) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "an event has a session") else { return };
        if let Some(id) = session.id.take() {
            self.by_id.remove(&id);
            self.out.event(id, event);
        }
    }

    /// Releases what a session reserved, and ends it.
    pub(super) fn release(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a release has a session") else { return };
        if session.state == State::Route || session.query {
            self.finish(key, Event::Closed { confirmed: false });
            return self.drop_session(key);
        }
        session.state = State::Closing;
        self.settle(key);
        self.send(key, resources);
    }

    pub(super) fn drop_session(&mut self, key: Key) {
        self.settle(key);
        self.wheel_of_sessions.cancel(&mut self.sessions, key.index());
        let Some(session) = invariant!(self.sessions.remove(key), "a session ends once") else { return };
        if let Some(id) = session.id {
            self.by_id.remove(&id);
        }
        if let Ok(name) = FlowKey::of(&session.flow, Pass::Request)
            && self.by_data.get(&name) == Some(&key)
        {
            self.by_data.remove(&name);
        }
        self.changes.note(|| SessionChange::closed(name(&session.flow)));
    }
}

/// What a refused message reports.
fn refusal_of(body: &Body<'_>, offer: Rates) -> Refusal {
    let node = body.options.refusal();
    Refusal {
        offer,
        node: node.map(|one| one.address),
        reason: node.map_or(Reason::Unknown, |one| Reason::of(one.cause)),
        note: node.and_then(|_| body.options.note()),
    }
}

/// The nodes that granted, if the reply has a list of them. A far end without Boomerang is not in it.
fn path_of(body: &Body<'_>, granted: Rates) -> Path {
    let Some((placed, nodes)) = body.options.nodes() else { return Path::default() };
    let count = usize::from(nodes.count);
    let ended = placed.flags & Nodes::END != 0;
    let hop = |(place, address): (usize, &IpAddr)| {
        let end = ended && place + 1 == count;
        let part = if end { Part::End } else { Part::Rate(u64::from(granted.forward) / 8) };
        Hop { after_gap: nodes.is_after_gap(place), answered: end, ..Hop::new(*address, part) }
    };
    let hops: Vec<Hop> = nodes.places.iter().take(count).enumerate().map(hop).collect();
    let gaps = !ended || count > Nodes::MOST || hops.iter().any(|hop| hop.after_gap);
    Path { hops, gaps, far_end: Some(true) }
}

/// The refusal in a message of this node, if it has one.
fn refusal_in(octets: &[u8], ipv6: bool, hasher: &KeyedHasher) -> Option<Refusal> {
    let message = Message::parse(octets, ipv6).ok().filter(Message::is_refused)?;
    let body = message.body?;
    Some(refusal_of(&body, offered(&body.qos, hasher)))
}

/// A flow as users see it.
fn name(flow: &FlowSpec) -> String {
    filter_of(flow).to_string()
}

/// The data packets to the far end. A session of this node has no mask without a filter.
pub(super) fn filter_of(flow: &FlowSpec) -> FlowFilter {
    let key = FlowKey::of(flow, Pass::Request);
    let all =
        || FlowFilter::between(Prefix::all_like(flow.classifier.src), Prefix::all_like(flow.classifier.dst));
    key.map_or_else(|_| all(), |key| key.filter(None))
}
