//! Removal of state and of dead branches (sections 4.2 and 6.1 of the draft).

use signalbox_core::Key;

use super::Casp;
use super::branch::Branch;
use super::io::SendRequest;
use super::receive::From;
use super::session::Mark;
use crate::wire::{Body, ClientType, Flags, Signaling};

impl Casp {
    /// Sends a message to all hops of one side, with the flow that they know. Nothing waits for a connection: what is not delivered expires.
    pub(super) fn send_to_all(&mut self, key: Key, message: &Signaling<'_>) {
        let Some(session) = self.sessions.get(key) else { return };
        let flow = self.sessions.flow_in(key, message.flags.is_reverse()).unwrap_or(message.flow);
        let mut octets = Vec::new();
        if (Signaling { flow, ..*message }).encode(&mut octets).is_err() {
            return;
        }
        let side = if message.flags.is_reverse() { &session.previous } else { &session.next };
        let hops: Vec<Branch> = side.iter().filter(|branch| !branch.is_local()).copied().collect();
        for hop in hops {
            if self.send_to(hop.peer, hop.datagram, &octets, None) != super::connect::Delivery::Sent {
                self.counters.no_connection += 1;
            }
        }
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
        let Some(session) = self.sessions.get(key) else { return };
        let others = session.previous.older().next().is_some();
        if !session.previous.is_last(branch.peer) || (tainted && others) {
            return self.remove_previous(key, branch.peer);
        }
        self.tear_down_all(key, from, branch.id, message);
    }

    /// R and T from a next hop. From an older one, it ends that branch.
    pub(super) fn tear_down_reverse(
        &mut self,
        key: Key,
        from: &From,
        branch: &Branch,
        message: &Signaling<'_>,
    ) {
        let Some(session) = self.sessions.get(key) else { return };
        if !session.next.is_last(branch.peer) {
            return self.remove_next(key, branch.peer, branch.id);
        }
        self.tear_down_all(key, from, branch.id, message);
    }

    /// A client ends a session.
    pub(super) fn tear_down_by_client(&mut self, key: Key, client: ClientType, send: &SendRequest<'_>) {
        let Some(session) = self.sessions.get(key) else { return };
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
            let Some(session) = self.sessions.get(key) else { return };
            let Some(last) = session.previous.last() else { return };
            let may =
                last.proved >= 2 && !session.is(Mark::Kept) && (!last.tainted || self.config.remove_unsecure);
            // A branch that joined later is no old one.
            let is_dead = |branch: &&Branch| last.id.wrapping_sub(branch.id) < 1 << 15;
            let Some(dead) = session.previous.older().find(is_dead).filter(|_| may).copied() else { return };
            let message = Signaling {
                flags: Flags::REVERSE.with(Flags::TEAR_DOWN),
                ..Signaling::new(session.id, session.flow)
            };
            // If it cannot be sent, the branch expires there.
            let _ = self.send_over(key, dead.id, &message);
            self.counters.dead_branches += 1;
            self.remove_previous(key, dead.peer);
        }
    }
}
