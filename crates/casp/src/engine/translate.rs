//! Translated flows: at a NAT, the next hops of a session see another flow than its previous hops. The state has both, and
//! FLOW_ID is rewritten in both directions. The drafts leave the procedure open.

use signalbox_core::{Key, SessionId, invariant};

use super::Casp;
use super::refused::Refused;
use crate::wire::{Flags, FlowId, Message, Signaling};

impl Casp {
    /// A client of this node translates the flow of a session.
    pub(super) fn on_translate(
        &mut self,
        id: SessionId,
        flow: &FlowId,
        outer: FlowId,
    ) -> Result<(), Refused> {
        self.check_flow(&outer)?;
        let key = self.sessions.find(id, flow).ok_or(Refused::NoSession)?;
        let session = self.sessions.get(key).ok_or(Refused::NoSession)?;
        let outer = Some(outer).filter(|outer| outer != flow);
        if self.sessions.outer(key) == outer {
            return Ok(());
        }
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
