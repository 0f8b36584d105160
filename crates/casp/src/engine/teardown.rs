//! Removal of state and of dead branches (sections 4.2 and 6.1 of the draft).

use core::net::IpAddr;

use signalbox_core::{Key, invariant};

use super::Casp;
use super::branch::Branch;
use super::connect::Delivery;
use super::io::SendRequest;
use super::receive::From;
use super::session::Mark;
use super::trace::session_of;
use crate::wire::{Body, ClientType, Flags, Message, Signaling};

/// Most tear-downs that wait for one connection.
const MAX_KEPT: usize = 256;

/// A tear-down that waits for a connection.
#[derive(Debug)]
pub(super) struct TearDown {
    /// The node that made the session, whose share of the waiting octets it takes.
    owner: IpAddr,
    octets: Box<[u8]>,
}

fn count_of(octets: &[u8]) -> u32 {
    u32::try_from(octets.len()).unwrap_or(u32::MAX)
}

impl Casp {
    /// Sends a tear-down to all hops of one side, with the flow that they know.
    pub(super) fn send_to_all(&mut self, key: Key, message: &Signaling<'_>) {
        let Some(session) = invariant!(self.sessions.get(key), "a tear-down has a session") else { return };
        let flow = self.sessions.flow_in(key, message.flags.is_reverse()).unwrap_or(message.flow);
        let mut octets = Vec::new();
        if (Signaling { flow, ..*message }).encode(&mut octets).is_err() {
            return;
        }
        let side = if message.flags.is_reverse() { &session.previous } else { &session.next };
        let hops: Vec<Branch> = side.iter().filter(|branch| !branch.is_local()).copied().collect();
        for hop in hops {
            self.send_tear_down(key, &hop, &octets);
        }
    }

    /// Sends a tear-down to a hop of a session. Without a connection to that hop, the tear-down is kept until there is one, because no node
    /// repeats a tear-down.
    fn send_tear_down(&mut self, key: Key, hop: &Branch, octets: &[u8]) {
        // Behind what was written to a connection: a longer message of a branch of datagrams would make the session again.
        let connected = self.peers.connection_to(hop.peer).is_some_and(|(_, up)| up);
        match self.send_to(hop.peer, hop.takes_datagrams() && !connected, octets, None) {
            Delivery::Sent => {}
            Delivery::Connecting(connection) => {
                if !self.keep_tear_down(connection, key, octets) {
                    self.counters.waiting_full += 1;
                    unsent!(self, key, hop.peer, "too many tear-downs wait");
                }
            }
            Delivery::Blocked => {
                self.counters.peer_blocked += 1;
                unsent!(self, key, hop.peer, "the node does not read, or too many connections");
            }
        }
    }

    /// Keeps a tear-down until a connection is established. Its octets are of the share of the node that made the session,
    /// which does not live as long. False: there are too many.
    fn keep_tear_down(&mut self, connection: Key, session: Key, octets: &[u8]) -> bool {
        let Some(owner) = invariant!(self.owner(session), "what is kept has an owner") else { return false };
        let Some(connection) = invariant!(
            self.peers.connections.get_mut(connection),
            "a tear-down waits for a connection that stands"
        ) else {
            return false;
        };
        let fits = connection.tear_downs.len() < MAX_KEPT
            && self.waiting_octets.take_many(owner, count_of(octets)).is_ok();
        if fits {
            connection.tear_downs.push(TearDown { owner, octets: octets.into() });
        }
        fits
    }

    /// A connection is established: the tear-downs that waited for it leave before all other messages.
    pub(super) fn send_tear_downs(&mut self, connection: Key) {
        for TearDown { owner, octets } in self.take_tear_downs(connection) {
            self.waiting_octets.release_many(owner, count_of(&octets));
            if !self.is_outdated(connection, &octets)
                && self.write(connection, &octets, None) != Delivery::Sent
            {
                self.counters.peer_blocked += 1;
                tracing::debug!(
                    session = session_of(&octets),
                    peer = self.logged_end(connection),
                    reason = "the node does not read",
                    "tear-down not sent"
                );
            }
        }
    }

    /// A connection failed: what waits for it expires at the node.
    pub(super) fn drop_tear_downs(&mut self, connection: Key) {
        for TearDown { owner, octets } in self.take_tear_downs(connection) {
            self.waiting_octets.release_many(owner, count_of(&octets));
            self.counters.no_connection += 1;
            tracing::debug!(
                session = session_of(&octets),
                peer = self.logged_end(connection),
                reason = "no connection",
                "tear-down not sent"
            );
        }
    }

    fn take_tear_downs(&mut self, connection: Key) -> Vec<TearDown> {
        let connection = self.peers.connections.get_mut(connection);
        connection.map(|connection| core::mem::take(&mut connection.tear_downs)).unwrap_or_default()
    }

    /// Whether the node of a connection has become a hop of the session again since a tear-down was made for it.
    fn is_outdated(&self, connection: Key, octets: &[u8]) -> bool {
        let connection = self.peers.connections.get(connection);
        let address = connection.and_then(|connection| self.peers.address(connection.peer));
        let Ok(Message::Signaling(message)) = Message::parse(octets) else { return true };
        let reverse = message.flags.is_reverse();
        let found = if reverse {
            self.sessions.find(message.session, &message.flow)
        } else {
            self.sessions.find_reverse(message.session, &message.flow)
        };
        let Some(session) = found.and_then(|key| self.sessions.get(key)) else { return false };
        let side = if reverse { &session.previous } else { &session.next };
        side.iter().any(|branch| self.peers.address(branch.peer) == address)
    }

    /// The client gets its part of a tear-down first, then it is sent on, then the state goes.
    fn tear_down_all(&mut self, key: Key, from: &From, branch: u16, message: &Signaling<'_>) {
        if let Body::Client { client, data } = message.body
            && self.config.has(client)
        {
            self.announce(key, from, branch, message, 0, client, data);
        }
        if message.ttd > 1 {
            let (ttd, hops) = (message.ttd - 1, message.hops.saturating_add(1));
            let flags = message.flags.without(Flags::DISCOVER);
            self.send_to_all(key, &Signaling { flags, ttd, hops, proof: None, ..*message });
        }
        self.counters.torn_down += 1;
        self.end(key, true);
    }

    /// T from a previous hop. From an older one, it ends that branch. From the most recent one, it ends the session, unless
    /// the message was not protected and another previous hop lives: whoever joined with a session identifier that it has
    /// learned cannot end the session of its owner.
    pub(super) fn tear_down_forward(
        &mut self,
        key: Key,
        from: &From,
        branch: &Branch,
        message: &Signaling<'_>,
        tainted: bool,
    ) {
        let Some(session) = invariant!(self.sessions.get(key), "previous hops have sessions") else { return };
        let others = session.previous.others().next().is_some();
        if !session.previous.is_last(branch.peer) || (tainted && others) {
            return self.remove_previous(key, branch.peer);
        }
        self.tear_down_all(key, from, branch.id, message);
    }

    /// R and T from a next hop. From an older one, it ends that branch. From one to which the path came back, it has no effect until
    /// this hop has answered: a tear-down of the former branch waits in the connection as long as the link is lost.
    pub(super) fn tear_down_reverse(
        &mut self,
        key: Key,
        from: &From,
        branch: &Branch,
        message: &Signaling<'_>,
    ) {
        let Some(session) = invariant!(self.sessions.get(key), "next hops have sessions") else { return };
        if !session.next.is_last(branch.peer) {
            return self.remove_next(key, branch.peer, branch.id);
        }
        if branch.proved.may_be_former() {
            self.counters.strangers += 1;
            dropped!(message, from, "it was sent before the path came back");
            return;
        }
        self.tear_down_all(key, from, branch.id, message);
    }

    /// A client ends a session.
    pub(super) fn tear_down_by_client(&mut self, key: Key, client: ClientType, send: &SendRequest<'_>) {
        let Some(session) = invariant!(self.sessions.get(key), "clients have sessions") else { return };
        let message = Signaling {
            flags: Flags::TEAR_DOWN.with_if(Flags::REVERSE, send.reverse),
            body: send.data.map_or(Body::Empty, |data| Body::Client { client, data }),
            ..Signaling::new(session.id, session.flow)
        };
        self.send_to_all(key, &message);
        self.counters.torn_down += 1;
        self.end(key, true);
    }

    /// Ends a session of this node that another one has replaced.
    pub(super) fn tear_down_own(&mut self, key: Key) {
        // The former session may have expired before the new one got its next hop.
        let Some(session) = self.sessions.get(key) else { return };
        let message = Signaling { flags: Flags::TEAR_DOWN, ..Signaling::new(session.id, session.flow) };
        self.send_to_all(key, &message);
        self.counters.torn_down += 1;
        self.end(key, true);
    }

    /// The most recent previous hop has sent a second message, or was answered: older ones are dead, and this node removes
    /// them. It does so only if the new branch is protected, because anybody who knows the session could join it, and only if
    /// no client keeps them.
    pub(super) fn prove_branch(&mut self, key: Key) {
        loop {
            let Some(session) = invariant!(self.sessions.get(key), "a proof has a session") else { return };
            let Some(last) = invariant!(session.previous.last(), "a session that stands has a previous hop")
            else {
                return;
            };
            let may = last.proved.messages() >= 2
                && !session.is(Mark::Kept)
                && (!last.tainted || self.config.remove_unsecure);
            let Some(dead) = session.previous.older().next().filter(|_| may).copied() else { return };
            let message = Signaling {
                flags: Flags::REVERSE.with(Flags::TEAR_DOWN),
                ..Signaling::new(session.id, session.flow)
            };
            let mut octets = Vec::new();
            if message.encode(&mut octets).is_ok() {
                self.send_tear_down(key, &dead, &octets);
            }
            self.counters.dead_branches += 1;
            self.remove_previous(key, dead.peer);
        }
    }

    /// The most recent next hop has answered: the way over it stands, and this node tears the branches down that it has left, as
    /// far as their nodes can be reached at once. Others expire.
    ///
    /// The tear-down has U in any case, so that it ends the branch alone where both ways meet, whichever of the two is the most
    /// recent one there: routes may have changed again in the meantime.
    pub(super) fn leave_old_hops(&mut self, key: Key) {
        loop {
            let Some(session) = self.sessions.get(key).filter(|session| !session.is(Mark::Kept)) else {
                return;
            };
            let connected = |branch: &Branch| self.peers.connection_to(branch.peer).is_some_and(|(_, up)| up);
            let is_left = |branch: &&Branch| branch.takes_datagrams() || connected(branch);
            let Some(left) = session.next.older().find(is_left).copied() else { return };
            let datagram = left.takes_datagrams() && !connected(&left);
            let message = Signaling {
                flags: Flags::TEAR_DOWN.with(Flags::UNSECURE),
                ..Signaling::new(session.id, self.sessions.flow_in(key, false).unwrap_or(session.flow))
            };
            let mut octets = Vec::new();
            if message.encode(&mut octets).is_ok()
                && self.send_to(left.peer, datagram, &octets, None) == Delivery::Sent
            {
                self.counters.dead_branches += 1;
            }
            self.remove_next(key, left.peer, left.id);
        }
    }
}
