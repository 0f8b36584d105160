//! State that is sent without a MESSAGE_ID (RFC 2961), although the interface has refresh reduction: the neighbor has no
//! MESSAGE_IDs, refused them, or a few other states try first whether it has them.

use std::collections::VecDeque;

use signalbox_core::IfIndex;

use super::SentState;
use crate::engine::Rsvp;
use crate::engine::neighbor::{Naming, Towards};
use crate::engine::outbox::Envelope;
use crate::wire::{Class, ErrorCode, ErrorSpec};

/// Number of states that wait at most until a neighbor has shown whether it handles MESSAGE_IDs. Others get one with their
/// next refresh.
const MOST: usize = 1024;

/// States that were sent without a MESSAGE_ID while others tried their neighbor. When that shows that it handles MESSAGE_IDs,
/// they are sent again with one, so that a lost message does not cost a refresh period.
#[derive(Debug, Default)]
pub(super) struct Unnamed(VecDeque<(Towards, SentState)>);

impl Unnamed {
    fn add(&mut self, towards: Towards, about: SentState) {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((towards, about));
    }

    /// Takes the states of a neighbor.
    fn take(&mut self, towards: Towards) -> Vec<SentState> {
        let (of, others) = core::mem::take(&mut self.0).into_iter().partition(|(to, _)| *to == towards);
        self.0 = others;
        let of: VecDeque<(Towards, SentState)> = of;
        of.into_iter().map(|(_, about)| about).collect()
    }
}

impl Rsvp {
    /// Whether a message leaves like one of plain RFC 2205, because its neighbor gets no MESSAGE_ID. Nothing is stored of its
    /// state then.
    pub(in crate::engine) fn gets_plain(&mut self, envelope: &Envelope, about: SentState) -> bool {
        let ifindex = envelope.ifindex.unwrap_or_default();
        let settings = self.neighbors.config().of(ifindex);
        let (signed, hello) = (settings.integrity.sending, settings.hello.is_some());
        if !settings.reduction.reliable {
            return false;
        }
        let mark = if envelope.towards == 0 { self.mark(envelope.dst) } else { envelope.towards };
        let naming = self.neighbors.naming(ifindex, mark);
        if naming == Naming::Yes {
            return false;
        }
        if !matches!(about, SentState::Path(..) | SentState::Resv(..)) {
            return !signed;
        }
        if naming == Naming::Later {
            self.message_ids.unnamed.add((ifindex, mark), about);
        }
        // With Hello the list of what was sent is needed: a lost neighbor gets all of it again.
        if hello || signed {
            return false;
        }
        if self.has_sent_ids() {
            self.remove_sent(about);
        }
        true
    }

    /// A neighbor has shown whether it handles MESSAGE_IDs.
    pub(super) fn neighbor_shown(&mut self, towards: Towards, able: bool) {
        if self.message_ids.unnamed.0.is_empty() {
            return;
        }
        let waited = self.message_ids.unnamed.take(towards);
        if able {
            let without = waited.into_iter().filter(|about| self.message_ids.handle_of(about).is_none());
            let without = without.collect();
            self.message_ids.send_soon(without);
        }
    }

    /// Handles an error about the class MESSAGE_ID (RFC 2961 §4.8): the neighbor gets messages without one from now on, and
    /// the message that it refused at once. Whether the error is about that. No user has to know: the object is this node's.
    pub(in crate::engine) fn message_ids_refused(&mut self, states: &[SentState], error: &ErrorSpec) -> bool {
        let class = Class(error.value.to_be_bytes()[0]);
        if error.code != ErrorCode::UNKNOWN_CLASS
            || !matches!(class, Class::MESSAGE_ID | Class::MESSAGE_ID_ACK)
        {
            return false;
        }
        for about in states {
            tracing::debug!(?about, "neighbor refuses MESSAGE_IDs");
            let (iface, mark) = self.next_of(about);
            let ifindex = self.interfaces.get(iface).map_or(IfIndex::NONE, |known| known.ifindex);
            let state = self.message_ids.handle_of(about).filter(|state| self.neighbors.has_id(*state));
            let news = self.neighbors.refused(ifindex, mark);
            // A Resv with a RESV_CONFIRM, or one of several parts, has no handle.
            let part = match *about {
                SentState::Resv(session, hop) => self.mark_of(&SentState::Part(session, hop)),
                _ => 0,
            };
            let parts = part != 0 && self.neighbors.has_owned() && self.neighbors.repeat_owned_without(part);
            let whole = state.is_some_and(|state| self.neighbors.repeat_without(state));
            if !parts && !whole && (news || state.is_some()) {
                self.send_again(*about);
            }
        }
        true
    }
}
