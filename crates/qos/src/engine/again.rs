//! Reservations that are asked for again with their session.
//!
//! A user gets the same session for the same flow each time ([`ReserveRequest::session`]). What a crash or a lost link left under it
//! on the path is then replaced by the next request, instead of being in its way until it expires.
//!
//! Nodes that remember the session drop a RESERVE whose RSN is not newer. So a node that begins it again numbers by time. A receiver
//! that reserves for a sender, and a far end that reserves the reverse direction, do not know whether they have had the session
//! before: they always do.

use signalbox_core::slab::Key;
use signalbox_core::{Direction, SessionId, Time};
use signalbox_resources::Resources;

use super::Qos;
use super::command::ReserveRequest;
use super::event::QosEvent;
use super::rmf;
use super::session::{Marks, Origin, RequestKind, Session, Stage};

/// The least RSN of a continued session. The others begin with 0, and grow by one with each change (RFC 5974 §5.3.1).
pub(super) const CONTINUED: u32 = 1 << 16;

/// An RSN of a continued session that is newer than all that this node gave it before: they grow by less than one in a millisecond
/// (RFC 5974 §5.1.3.1 compares RSNs as serial numbers).
#[expect(clippy::cast_possible_truncation, reason = "serial numbers wrap")]
pub(super) const fn rsn_by_time(now: Time) -> u32 {
    ((now.as_micros() / 1000) as u32).wrapping_add(CONTINUED)
}

/// The sessions of a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) session: SessionId,
    /// That of the reverse direction of a bidirectional one.
    pub(super) back: Option<SessionId>,
    /// The user has had them before, perhaps.
    pub(super) kept: bool,
}

impl Qos {
    /// Chooses the sessions of a request: those that its user has for the flow each time, or others if these are in use.
    pub(super) fn choose_sessions(&mut self, request: &ReserveRequest, resources: &mut Resources) -> Chosen {
        let chosen = |id, kept| {
            let [there, back] = both_directions(id);
            if request.bidirectional {
                Chosen { session: there, back: Some(back), kept }
            } else {
                Chosen { session: id, back: None, kept }
            }
        };
        let wanted = request.session.map(|id| chosen(id, true));
        wanted
            .filter(|wanted| self.may_continue(wanted.session, resources))
            .unwrap_or_else(|| chosen(self.rng.session_id(), false))
    }

    /// Whether a new reservation can have this session: no record has it, or only one that is over, which is removed.
    pub(super) fn may_continue(&mut self, wanted: SessionId, resources: &mut Resources) -> bool {
        let Some(key) = self.find(wanted) else { return true };
        let over = self.sessions.get(key).is_some_and(Session::is_over);
        if over {
            self.close(key, resources);
        }
        over
    }

    /// Reports a reservation of the receiver that is not for what the user asked: nothing else has come, and the receiver decides.
    pub(super) fn report_as_it_stands(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.pending.retain(|pending| pending.kind != RequestKind::ReserveInit);
        let Some(local) = session.local.as_mut() else { return };
        local.granted = true;
        if let (Some(granted), Some(id)) = (local.unreported.take(), local.command) {
            self.out.event(id, QosEvent::Granted(*granted));
        }
    }

    /// Whether a reservation stands of which the user of this node has no event yet.
    pub(super) fn is_unreported(&self, key: Key) -> bool {
        let local = self.sessions.get(key).and_then(|session| session.local.as_ref());
        local.is_some_and(|local| local.unreported.is_some())
    }
}

impl Session {
    /// Whether no user of this node waits for anything of the session, and only its end is left: it is torn down from here, or it is
    /// given up.
    pub(super) fn is_over(&self) -> bool {
        let unwatched = self.local.as_ref().is_some_and(|local| local.command.is_none());
        let torn = self.marks.has(Marks::QNI) && self.is_being_torn() && unwatched;
        torn || self.is_given_up()
    }

    /// Whether a user at the flow's source has released what the receiver reserved, or lost it.
    pub(super) fn is_given_up(&self) -> bool {
        self.stage == Stage::Torn
            && self.marks.has(Marks::QNR)
            && self.direction == Direction::Upstream
            && self.local.is_none()
    }

    /// Whether a RESERVE with this QSPEC is for what the user of this node asked the receiver for. A node that still has an earlier
    /// request with this session may send one for that request first.
    pub(super) fn is_asked_for(&self, qspec: &[u8]) -> bool {
        let Some(local) = self.local.as_ref().filter(|local| !local.granted) else { return true };
        let kept = matches!(&local.origin, Origin::Reserve(request) if request.session == Some(self.id));
        !kept || rmf::answers(qspec, self.init_qspec())
    }
}

/// The sessions of both directions of a bidirectional reservation. The forward one has the lower identifier: see
/// [`Qos::start_reverse_direction`].
fn both_directions(id: SessionId) -> [SessionId; 2] {
    const HIGHEST: u8 = 0x80;
    let mut both = [id; 2];
    for (SessionId([first, ..]), bit) in both.iter_mut().zip([0, HIGHEST]) {
        *first = (*first & !HIGHEST) | bit;
    }
    both
}
