//! Translated flows: at a NAT, the next hops of a session see another flow than its previous hops. The state has both, and
//! FLOW_ID is rewritten in both directions. The drafts leave the procedure open.
//!
//! A node that starts again has lost its sessions, and a session may come to a node by a new route. In both cases the first message is
//! often a refresh of a previous hop, which has nothing for the client that opens passages. So that client is asked about it: it may
//! inform who asked for the passage, and a NAT does not send on what it cannot translate.

use signalbox_core::{Key, SessionId, invariant};

use super::Casp;
use super::receive::From;
use super::refused::Refused;
use super::session::Mark;
use crate::wire::{Body, ClientType, Flags, FlowId, Message, Signaling};

/// The client that opens passages at this node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opener {
    pub(super) client: ClientType,
    /// It translates flows over IPv4.
    pub(super) nat: bool,
}

impl Casp {
    /// Whether the client that opens passages here does not know a session of other nodes, or at a NAT has not said which flow its next
    /// hops see.
    pub(super) fn is_unknown(&self, key: Key) -> bool {
        let unknown = |session: &super::session::Session| {
            !session.is(Mark::Known) && !session.is(Mark::Translated) && !session.is_own()
        };
        self.opener.is_some() && self.sessions.get(key).is_some_and(unknown)
    }

    fn is_opener(&self, client: ClientType) -> bool {
        self.opener.is_some_and(|opener| opener.client == client)
    }

    /// Whether the flow of a session is one that this node translates, unless its client says that it stays.
    fn may_be_inner(&self, key: Key) -> bool {
        self.opener.is_some_and(|opener| opener.nat)
            && self.sessions.get(key).is_some_and(|session| session.flow.src().is_ipv4())
    }

    /// Whether no refresh leaves along the flow of a session, because it is not known which flow the next hops see.
    pub(super) fn is_shut(&self, key: Key) -> bool {
        self.may_be_inner(key) && self.is_unknown(key)
    }

    /// A message of a client of this node arrived along the flow of a session.
    pub(super) fn note_known(&mut self, key: Key, client: ClientType) {
        let known = !self.is_opener(client) || !self.may_be_inner(key);
        if let Some(session) = self.sessions.get_mut(key).filter(|_| known) {
            session.note(Mark::Known, true);
        }
    }

    /// Gives a refresh to the client that opens passages, as a message without data, for its verdict. No other refresh of the session
    /// follows it, unless this node has to know which flow the next hops see.
    pub(super) fn ask_opener(&mut self, key: Key, from: &From, branch: u16, message: &Signaling<'_>) {
        let Some(Opener { client, .. }) = self.opener.filter(|_| !self.is_responder(&message.flow)) else {
            return;
        };
        self.note_known(key, client);
        self.sessions.join(key, client);
        let owner = self.owner(key);
        match owner.and_then(|owner| self.hold_message(Some(key), owner, client, message)) {
            Some(id) => self.announce(key, from, branch, message, id, client, &[]),
            None => self.send_on(key, message, None),
        }
    }

    /// Whether a message may leave along the flow of a session: at a NAT not before it is known which flow the next hops see. Flows of
    /// other clients are not translated.
    pub(super) fn may_leave(&mut self, key: Key, message: &Signaling<'_>) -> bool {
        if message.flags.is_reverse() || !self.is_shut(key) {
            return true;
        }
        match message.body {
            Body::Client { client, .. } if !self.is_opener(client) => {
                self.note_known(key, client);
                true
            }
            Body::Client { .. } | Body::Empty | Body::Error(_) => false,
        }
    }

    /// A client of this node translates the flow of a session.
    pub(super) fn on_translate(
        &mut self,
        id: SessionId,
        flow: &FlowId,
        outer: FlowId,
    ) -> Result<(), Refused> {
        self.check_flow(&outer)?;
        let key = self.sessions.find(id, flow).ok_or(Refused::NoSession)?;
        let outer = Some(outer).filter(|outer| outer != flow);
        if outer.is_none()
            && let Some(session) = self.sessions.get_mut(key)
        {
            session.note(Mark::Known, true);
        }
        if self.sessions.outer(key) == outer {
            return Ok(());
        }
        let session = self.sessions.get(key).ok_or(Refused::NoSession)?;
        // Discovery and the end of the path depend on the destination.
        let taken = outer.is_some_and(|outer| outer.dst() != flow.dst() || self.sessions.has(id, &outer));
        if session.is_own() || taken {
            return Err(Refused::Flow);
        }
        if session.next.last().is_some() {
            // The next hops have state of the former flow.
            let end = Signaling { flags: Flags::TEAR_DOWN, ..Signaling::new(id, *flow) };
            self.send_to_all(key, &end);
        }
        self.sessions.translate(key, outer);
        self.rewrite_waiting(key);
        Ok(())
    }

    /// Rewrites FLOW_ID of the messages that wait for the next hop. All forms of a flow between the same versions of IP that a
    /// NAT has are equally long.
    fn rewrite_waiting(&mut self, key: Key) {
        let Some(flow) = invariant!(self.sessions.flow_in(key, false), "a translated flow has a session")
        else {
            return;
        };
        let Some(waiting) = self.sessions.get_mut(key).and_then(|session| session.waiting.as_mut()) else {
            return;
        };
        for queued in waiting.down.iter_mut().chain(waiting.unproved.as_mut()) {
            let mut octets = Vec::new();
            if let Ok(Message::Signaling(message)) = Message::parse(&queued.octets)
                && (Signaling { flow, ..message }).encode(&mut octets).is_ok()
                && octets.len() == queued.octets.len()
            {
                queued.octets = octets.into();
            }
        }
    }
}
