//! The procedure for a received signaling message (section 4.4 of the draft).

use core::net::{IpAddr, SocketAddr};

use signalbox_core::packet::Received;
use signalbox_core::shares::source;
use signalbox_core::stamp::Moment;
use signalbox_core::{IfIndex, Key, SessionChange, invariant};

use super::Casp;
use super::branch::{Branch, MadeBy, Proved};
use super::io::Arrival;
use super::outbox::Datagram;
use super::peers::Name;
use super::session::{DEFAULT_TIMEOUT, Mark, Session};
use crate::wire::route::Routing;
use crate::wire::{Body, ClientType, ErrorCode, Flags, FlowId, Message, Proof, Signaling};

/// Who sent a message, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct From {
    pub(super) name: Name,
    /// The node, if this node has state of it already.
    pub(super) peer: Option<Key>,
    /// `None`: a datagram.
    pub(super) connection: Option<Key>,
    /// The channel is protected.
    pub(super) protected: bool,
    /// Where a datagram was sent to.
    pub(super) local: Option<IpAddr>,
    /// The interface by which a datagram came in.
    pub(super) ifindex: IfIndex,
    /// It received something at its address: the message has a cookie of this node, or came over a connection.
    pub(super) answered: bool,
}

impl From {
    const fn is_datagram(&self) -> bool {
        self.connection.is_none()
    }
}

/// A message with what was found out about it.
struct Checked<'a> {
    message: Signaling<'a>,
    /// It crossed a hop without channel security.
    tainted: bool,
    /// Its sender has a cookie of this node, or is a configured neighbor, or uses a connection.
    proved: bool,
}

impl Casp {
    /// Takes a datagram at the port of messages.
    pub(super) fn on_datagram(&mut self, packet: &Received<'_>) {
        let address = packet.src.ip();
        if !self.interfaces.is_local(packet.dst.ip()) || self.interfaces.is_local(address) {
            self.counters.malformed += 1;
            tracing::debug!(peer = %address, reason = "not sent to this node", "message dropped");
            return;
        }
        if !self.rates.allow(self.now, &(source(address), packet.ifindex)) {
            self.counters.rate_limited += 1;
            tracing::debug!(peer = %address, reason = "too many of its source", "message dropped");
            return;
        }
        let name = Name { address, proved: None };
        let from = From {
            name,
            peer: self.peers.find(&name),
            connection: None,
            protected: self.is_protected(address),
            local: Some(packet.dst.ip()),
            ifindex: packet.ifindex,
            answered: false,
        };
        self.on_signaling(&from, packet.payload);
    }

    /// Takes a message from its Common Header on.
    pub(super) fn on_signaling(&mut self, from: &From, octets: &[u8]) {
        let message = match Message::parse(octets) {
            Ok(Message::Signaling(message)) if !message.flow.is_private() || self.config.private_flows => {
                message
            }
            Ok(Message::Signaling(_) | Message::ScoutRequest(_) | Message::ScoutResponse { .. }) | Err(_) => {
                self.counters.malformed += 1;
                tracing::debug!(peer = %from.name.address, reason = "malformed, or of another kind", "message dropped");
                return;
            }
        };
        self.counters.signaling_received += 1;
        self.counters.errors_received += u64::from(matches!(message.body, Body::Error(_)));
        if message.ttd == 0 {
            self.counters.ttd_exceeded += 1;
            dropped!(message, from, "TTD used up");
            return;
        }
        if message.flow.dst().is_multicast() {
            self.counters.multicast += 1;
            dropped!(message, from, "flow to a multicast group");
            return;
        }
        let tainted = message.flags.contains(Flags::UNSECURE) || !from.protected;
        let flags = message.flags.with_if(Flags::UNSECURE, tainted);
        let cookie = match message.proof {
            None => false,
            Some(Proof::Cookie(cookie))
                if self.cookies.is_good(self.now, from.name.address, message.flow.dst(), cookie) =>
            {
                true
            }
            Some(Proof::Cookie(_) | Proof::Unknown) => {
                self.counters.bad_cookies += 1;
                dropped!(message, from, "cookie is not one of this node");
                return self.refuse_cookie(from, &message);
            }
        };
        let answered = cookie || !from.is_datagram();
        let from = &From { answered, ..*from };
        let proved = answered || self.config.neighbors.contains(&from.name.address);
        // No state is made for more than this node grants.
        let timeout = message.timeout.map(|timeout| timeout.min(self.config.max_timeout));
        let message = Signaling { flags, timeout, ..message };
        if self.config.stateless && message.route.is_some() && self.take_without_state(from, &message, proved)
        {
            return;
        }
        let checked = Checked { message, tainted, proved };
        if flags.is_reverse() {
            self.on_reverse(from, &checked);
        } else {
            self.on_forward(from, &checked);
        }
    }

    /// Answers a message with a cookie that this node did not make.
    fn refuse_cookie(&mut self, from: &From, message: &Signaling<'_>) {
        if matches!(message.body, Body::Error(_)) {
            return;
        }
        // The source of a datagram can be forged.
        let few = !from.is_datagram() || self.answers_one_more((from.name.address, from.ifindex));
        if !(few && self.errors.allow(self.now, &(source(from.name.address), from.ifindex))) {
            self.counters.errors_limited += 1;
            tracing::debug!(session = %message.session, peer = %from.name.address, reason = "too many of its source", "ERROR not sent");
            return;
        }
        let error = Signaling {
            flags: Flags::REVERSE.with_if(Flags::UNSECURE, !from.protected),
            body: Body::Error(ErrorCode::COOKIE_ERROR),
            ..Signaling::new(message.session, message.flow)
        };
        let mut octets = core::mem::take(&mut self.composed);
        octets.clear();
        if error.encode(&mut octets).is_ok() {
            match from.connection {
                Some(connection) => {
                    self.write(connection, &octets, None);
                }
                None => {
                    let port = self.config.port;
                    let datagram = Datagram {
                        port,
                        src: from.local,
                        dst: SocketAddr::new(from.name.address, port),
                        tos: 0,
                        flow_label: 0,
                        unproved: true,
                    };
                    self.out.send(datagram, &[], &octets);
                }
            }
            self.counters.errors_sent += 1;
        }
        self.composed = octets;
    }

    /// A message along the data flow.
    fn on_forward(&mut self, from: &From, checked: &Checked<'_>) {
        let message = &checked.message;
        let tear_down = message.flags.contains(Flags::TEAR_DOWN);
        let Some(key) = self.sessions.find(message.session, &message.flow) else {
            if self.sessions.find_translated(message.session, &message.flow).is_some() {
                // This node itself sent it on with that flow.
                self.counters.loops += 1;
                dropped!(message, from, "this node sent it");
                return;
            }
            if tear_down || matches!(message.body, Body::Error(_)) {
                self.counters.no_state += 1;
                dropped!(message, from, "no such session");
                return;
            }
            if let Some(key) = self.new_session(from, checked) {
                self.go_on(key, from, 0, message);
            }
            return;
        };
        let Some(session) = invariant!(self.sessions.get_mut(key), "a found session stands") else { return };
        if session.is_own() || from.peer.is_some_and(|peer| session.next.is_last(peer)) {
            self.counters.loops += 1;
            dropped!(message, from, "it came from the next hop");
            // The route does not lead on over that hop any more.
            session.note(Mark::Rediscover, true);
            return;
        }
        let known = from.peer.and_then(|peer| session.previous.get(peer)).copied();
        // A datagram counts as one of its node only if the branch was made by one.
        let known = known.filter(|branch| branch.takes_datagrams() || checked.proved);
        if tear_down {
            match known {
                Some(branch) => self.tear_down_forward(key, from, &branch, message, checked.tainted),
                None => {
                    self.counters.strangers += 1;
                    dropped!(message, from, "its sender is no hop of the session");
                }
            }
            return;
        }
        let id = match known {
            Some(branch) => self.refresh_branch(key, &branch, from, checked),
            None => match self.new_branch(key, from, checked) {
                Some(id) => id,
                None => return,
            },
        };
        self.go_on(key, from, id, message);
    }

    /// A message against the data flow.
    fn on_reverse(&mut self, from: &From, checked: &Checked<'_>) {
        let Signaling { session: id, flow, .. } = checked.message;
        let found = self.sessions.find_reverse(id, &flow);
        let Some((key, session)) = found.and_then(|key| Some((key, self.sessions.get_mut(key)?))) else {
            self.counters.no_state += 1;
            dropped!(checked.message, from, "no such session");
            return;
        };
        // From here on the flow is that of the previous hops.
        let message = &Signaling { flow: session.flow, ..checked.message };
        let known = from.peer.and_then(|peer| session.next.get_mut(peer));
        let Some(branch) = known.filter(|branch| branch.takes_datagrams() || checked.proved) else {
            self.counters.strangers += 1;
            dropped!(message, from, "its sender is no hop of the session");
            return;
        };
        let branch = *branch;
        let answers = session.next.is_last(branch.peer) && !matches!(message.body, Body::Error(_));
        if matches!(message.body, Body::Error(ErrorCode::COOKIE_ERROR)) {
            return self.on_cookie_error(key, branch.peer);
        }
        // The next hop accepted what this node sent to it.
        if session.next.is_last(branch.peer) && session.waiting.is_some() {
            self.accepted(key);
        }
        if message.flags.contains(Flags::TEAR_DOWN) {
            return self.tear_down_reverse(key, from, &branch, message);
        }
        self.refresh_by_reverse(key, branch.peer, message);
        self.prove_branch(key);
        if answers {
            self.leave_old_hops(key);
        }
        self.go_on(key, from, branch.id, message);
    }

    /// Makes state. The sender is its previous hop.
    fn new_session(&mut self, from: &From, checked: &Checked<'_>) -> Option<Key> {
        if !checked.proved {
            self.counters.unproved += 1;
            dropped!(checked.message, from, "its source is not proved");
            return None;
        }
        let address = from.name.address;
        if self.by_source.take(source(address)).is_err() {
            self.counters.sessions_full += 1;
            tracing::debug!(session = %checked.message.session, peer = %address, reason = "share of its source in max_sessions is used up", "message dropped");
            return None;
        }
        let Signaling { session: id, flow, .. } = checked.message;
        let key = self.peers.hold(from.name, self.rng.u64()).ok().and_then(|peer| {
            let mut session = Session::new(id, flow, peer);
            session.previous.add(self.branch_of(peer, from, checked), true);
            self.peers.hold_again(peer);
            let key = self.sessions.insert(session);
            if key.is_none() {
                self.peers.drop_use(peer);
                self.peers.drop_use(peer);
            }
            key
        });
        let Some(key) = key else {
            self.by_source.release(source(address));
            self.counters.sessions_full += 1;
            tracing::debug!(session = %id, peer = %address, reason = "table of sessions or peers full", "message dropped");
            return None;
        };
        self.counters.opened += 1;
        tracing::debug!(session = %id, peer = %address, %flow, "session opened");
        self.changes.note(|| SessionChange::opened(name(id, &flow)));
        self.take_timeout(key, checked.message.timeout);
        self.arm(key);
        Some(key)
    }

    /// The lifetime that a message asks for, as far as this node grants it, seconds.
    fn granted(&self, timeout: Option<u32>) -> u32 {
        timeout.unwrap_or(DEFAULT_TIMEOUT).min(self.config.max_timeout).max(1)
    }

    fn branch_of(&self, peer: Key, from: &From, checked: &Checked<'_>) -> Branch {
        let seconds = self.granted(checked.message.timeout);
        Branch {
            peer,
            until: (self.now + core::time::Duration::from_secs(seconds.into())).into(),
            id: 0,
            proved: Proved::by(1),
            protected: from.protected,
            tainted: checked.tainted,
            made_by: MadeBy::new(from.is_datagram(), from.answered),
        }
    }

    /// Notes the lifetime of the session, and with it the interval of refreshes.
    fn take_timeout(&mut self, key: Key, timeout: Option<u32>) {
        let granted = self.granted(timeout);
        let Some(session) = invariant!(self.sessions.get_mut(key), "a timeout has a session") else { return };
        session.note(Mark::Explicit, timeout.is_some());
        let changed = core::mem::replace(&mut session.timeout, granted) != granted;
        // Most messages change nothing: whether the chain ends here is not asked for each of them.
        if !changed && session.refresh_at != Moment::NEVER {
            return;
        }
        let flow = session.flow;
        let responder = self.is_responder(&flow);
        let Some(session) = invariant!(self.sessions.get_mut(key), "a timeout ends nothing") else { return };
        // A node without next hop has no refreshes to make.
        session.refresh_at = if responder {
            Moment::NEVER
        } else {
            (self.now + self.rng.jitter(session.interval(), 0.5, 1.5)).into()
        };
    }

    /// A further message of a branch. The result is the number of the branch.
    fn refresh_branch(&mut self, key: Key, branch: &Branch, from: &From, checked: &Checked<'_>) -> u16 {
        let message = &checked.message;
        let fresh = self.granted(message.timeout);
        let until = (self.now + core::time::Duration::from_secs(fresh.into())).into();
        let Some(session) = invariant!(self.sessions.get_mut(key), "a branch is of a session that stands")
        else {
            return branch.id;
        };
        // A protected branch is not displaced by one that is not.
        let displaces = session.previous.last().is_some_and(|last| branch.protected || !last.protected);
        let promoted = if message.flags.contains(Flags::DISCOVER) && displaces {
            session.previous.promote(branch.peer)
        } else {
            None
        };
        let newest = session.previous.is_last(branch.peer);
        if let Some(branch) = invariant!(
            session.previous.get_mut(branch.peer),
            "a branch that is refreshed is one of its session"
        ) {
            branch.until = until;
            branch.tainted = checked.tainted;
            branch.also_by(false, from.answered);
            branch.proved.one_more();
        }
        if newest {
            self.take_timeout(key, message.timeout);
        }
        if let Some(id) = promoted {
            self.counters.previous_branches += 1;
            self.indicate_branch(key, true, id, false);
        } else if newest {
            self.prove_branch(key);
        }
        self.arm(key);
        promoted.unwrap_or(branch.id)
    }

    /// Another previous hop of a session. The result is the number of its branch.
    fn new_branch(&mut self, key: Key, from: &From, checked: &Checked<'_>) -> Option<u16> {
        if !checked.proved || matches!(checked.message.body, Body::Error(_)) {
            self.counters.unproved += 1;
            dropped!(checked.message, from, "its source is not proved, or it is an ERROR of no hop");
            return None;
        }
        let Ok(peer) = self.peers.hold(from.name, self.rng.u64()) else {
            self.counters.branches_full += 1;
            dropped!(checked.message, from, "table of peers full");
            return None;
        };
        let branch = self.branch_of(peer, from, checked);
        let session = invariant!(self.sessions.get_mut(key), "a new branch is of a session that stands")?;
        // A datagram of a node whose branch is not one of datagrams has proved itself by a cookie.
        if let Some(known) = session.previous.get_mut(peer) {
            known.until = branch.until;
            let id = known.id;
            self.peers.drop_use(peer);
            return Some(id);
        }
        let last = session.previous.last().copied();
        let displaces = last.is_none_or(|last| branch.protected || !last.protected);
        let Some(id) = session.previous.add(branch, displaces) else {
            self.peers.drop_use(peer);
            self.counters.branches_full += 1;
            dropped!(checked.message, from, "too many branches of its session");
            return None;
        };
        self.counters.previous_branches += 1;
        if displaces {
            self.take_timeout(key, checked.message.timeout);
        }
        self.indicate_branch(key, true, id, false);
        self.arm(key);
        Some(id)
    }

    /// A message against the flow refreshes the branch that it came from, the state, and its most recent previous hop.
    fn refresh_by_reverse(&mut self, key: Key, peer: Key, message: &Signaling<'_>) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a reply has a session") else { return };
        let until = (self.now + session.lifetime()).into();
        if let Some(branch) =
            invariant!(session.next.get_mut(peer), "a reply comes by a branch of its session")
        {
            branch.until = until;
            branch.tainted = message.flags.contains(Flags::UNSECURE);
            branch.proved.one_more();
        }
        if let Some(branch) = session.previous.last_mut().filter(|branch| !branch.is_local()) {
            branch.until = branch.until.max(until);
            branch.proved.one_more();
        }
        self.arm(key);
    }

    /// Gives a message to its client, or sends it on.
    fn go_on(&mut self, key: Key, from: &From, branch: u16, message: &Signaling<'_>) {
        match message.body {
            Body::Client { client, data } if self.config.has(client) => {
                self.sessions.join(key, client);
                if !message.flags.is_reverse() && self.is_unknown(key) {
                    self.note_known(key, client);
                }
                let owner = self.owner(key);
                let held = owner.and_then(|owner| self.hold_message(Some(key), owner, client, message));
                let Some(id) = held else {
                    self.announce(key, from, branch, message, 0, client, data);
                    return self.send_on(key, message, Some(client));
                };
                self.announce(key, from, branch, message, id, client, data);
            }
            Body::Error(code) => {
                if self.may_send_error(key) {
                    self.indicate_error(key, code);
                    self.send_on(key, message, None);
                }
            }
            Body::Empty if !message.flags.is_reverse() && self.is_unknown(key) => {
                self.ask_opener(key, from, branch, message);
            }
            Body::Client { .. } | Body::Empty => self.send_on(key, message, None),
        }
    }

    /// Whether a state may carry an error now: one a second.
    pub(super) fn may_send_error(&mut self, key: Key) -> bool {
        let Some(session) = invariant!(self.sessions.get_mut(key), "an error is about a session that stands")
        else {
            return false;
        };
        if !session.error_at.is_due(self.now) {
            self.counters.errors_limited += 1;
            unsent!(self, key, "one ERROR a second for a session");
            return false;
        }
        session.error_at = (self.now + core::time::Duration::from_secs(1)).into();
        true
    }

    /// Announces a message to its client. With the id 0 no verdict is asked for.
    #[expect(clippy::too_many_arguments, reason = "the parts of one message")]
    pub(super) fn announce(
        &mut self,
        key: Key,
        from: &From,
        branch: u16,
        message: &Signaling<'_>,
        id: u64,
        client: ClientType,
        data: &[u8],
    ) {
        let Some(session) = invariant!(self.sessions.get(key), "what is told has a session") else { return };
        let reverse = message.flags.is_reverse();
        let last = if reverse { session.is_own() } else { self.is_responder(&session.flow) };
        let timeout = session.timeout;
        // A node that has answered once is at its address as long as its branch stands.
        let side = if reverse { &session.next } else { &session.previous };
        let answered = from.answered || side.by_id(branch).is_some_and(Branch::proves_datagrams);
        let arrival = Arrival { id, branch, last, timeout, answered, ..self.arrival(from, message) };
        // Nodes before the one that keeps state may have passed the message on without it.
        let route = match message.route {
            Some(Routing::Record(octets)) if self.config.stateless && !reverse => octets,
            Some(Routing::Record(_) | Routing::Route(_)) | None => &[],
        };
        self.out.received(client, arrival, data, route);
    }

    /// What a client learns of any message. No verdict is asked for yet.
    pub(super) fn arrival(&self, from: &From, message: &Signaling<'_>) -> Arrival<'static> {
        let identity = from.connection.and_then(|connection| self.peers.connections.get(connection));
        Arrival {
            id: 0,
            session: message.session,
            flow: message.flow,
            reverse: message.flags.is_reverse(),
            tear_down: message.flags.contains(Flags::TEAR_DOWN),
            unsecure: message.flags.contains(Flags::UNSECURE),
            ttd: message.ttd,
            hops: message.hops,
            peer: from.name.address,
            ifindex: from.ifindex,
            answered: from.answered,
            identity: identity.and_then(|connection| connection.identity.clone()),
            branch: 0,
            last: false,
            timeout: 0,
            stateless: false,
            refresh: matches!(message.body, Body::Empty),
            route: &[],
            data: &[],
        }
    }

    /// Whether the chain of a flow ends at this node.
    pub(super) fn is_responder(&self, flow: &FlowId) -> bool {
        let dst = flow.dst();
        self.interfaces.is_local(dst) || self.config.proxy.iter().any(|prefix| prefix.contains(dst))
    }
}

/// A session as users see it.
pub(super) fn name(id: signalbox_core::SessionId, flow: &FlowId) -> String {
    format!("{id} {flow}")
}
