//! Requests of applications other than messages (RFC 5971 B.2, B.5, B.6), and timers of records.

use core::time::Duration;

use signalbox_core::service::{InvalidStatus, MessageStatus, Request, SendError};
use signalbox_core::slab::Key;
use signalbox_core::stamp::Span;
use signalbox_core::{Direction, invariant};

use crate::engine::Gist;
use crate::engine::routing::{BY_APPLICATION, State, TENTATIVE};

impl Gist {
    pub(in crate::engine) fn request(&mut self, request: Request<'_>) {
        match request {
            Request::SendMessage(ref message) => self.send_message(message),
            Request::Peering { check, decision } => self.decide(check, decision),
            Request::SetStateLifetime { nslp, mri, session, lifetime } => {
                let done = match session {
                    Some(session) => match self.records.find(&mri, session, nslp) {
                        Some(key) => {
                            self.set_lifetime(key, mri.direction(), lifetime);
                            true
                        }
                        None => false,
                    },
                    None => self.sweep_lifetime(nslp, mri, lifetime),
                };
                self.counters.requests_refused += u64::from(!done);
            }
            // Also without urgency it begins when the walk visits the session (GIST-7.1.3-11).
            Request::InvalidateRoutingState { nslp, mri, status, data, urgent: _ } => {
                let sane =
                    data.len().is_multiple_of(4) && data.len() <= usize::from(self.config.max_datagram);
                let done = sane && self.sweep_invalid(nslp, mri, status, data);
                self.counters.requests_refused += u64::from(!done);
            }
        }
    }

    /// `SetStateLifetime` for one session (RFC 5971 B.5): the period of `Inactive_QNode`, which starts again (GIST-6.2-24). A
    /// lifetime of zero removes the state (GIST-4.4.4-08, GIST-B.5-01). A Responding-SM cannot extend its own lifetime, so
    /// only zero has an effect on it.
    pub(in crate::engine) fn set_lifetime(&mut self, key: Key, direction: Direction, lifetime: Duration) {
        let now = self.now;
        let Some(record) =
            invariant!(self.records.get_mut(key), "a lifetime is set for a session that stands")
        else {
            return;
        };
        let half = record.half_mut(direction);
        if half.state == State::None {
            return;
        }
        if lifetime.is_zero() {
            half.set(BY_APPLICATION, true);
            return self.remove_half(key, direction, SendError::NoNextNode);
        }
        if half.state.is_querying() {
            record.querying_mut(direction).inactivity = Span::of(lifetime);
            record.start_inactive(direction, now);
            self.arm(key);
        }
    }

    /// `InvalidateRoutingState` for one session (RFC 5971 §7.1.3, B.6). Tentative: a Query is sent, and Data is still sent.
    /// Bad: a Query is sent, and Data is queued (GIST-7.1.3-10). A Responding-SM cannot repair its state (GIST-7.1.3-07):
    /// Bad state is removed, Tentative state is kept. The application gets no notification (GIST-7.1.3-06), and the other
    /// direction does not change (GIST-7.1.3-05).
    pub(in crate::engine) fn invalidate(
        &mut self,
        key: Key,
        direction: Direction,
        status: InvalidStatus,
        data: &[u8],
    ) {
        let Some(record) = invariant!(self.records.get_mut(key), "only a session that stands is invalidated")
        else {
            return;
        };
        let half = record.half_mut(direction);
        if !half.state.is_established() {
            return;
        }
        if half.state.is_responding() {
            match status {
                InvalidStatus::Tentative => half.set(TENTATIVE, true),
                InvalidStatus::Bad => self.remove_half(key, direction, SendError::NoNextNode),
            }
            return;
        }
        half.set(TENTATIVE, true);
        // GIST-B.6-02: the payload travels with the Queries.
        if !data.is_empty()
            && let Some(pending) = self.records.pending(key)
        {
            pending.query_mut(direction).data = data.to_vec();
        }
        match status {
            InvalidStatus::Tentative => self.start_refresh(key, direction),
            InvalidStatus::Bad => self.query_bad_state(key, direction),
        }
    }

    /// Handles all timers of a record that are due, then arms the next one.
    pub(in crate::engine) fn deadline(&mut self, key: Key) {
        for direction in [Direction::Downstream, Direction::Upstream] {
            let state = self.records.state(key, direction);
            if state.is_querying() {
                self.querying_deadline(key, direction);
            } else if state.is_responding() {
                self.responding_deadline(key, direction);
            }
        }
        self.expire_queued(key);
        self.settle(key);
    }

    /// Fails queued messages whose timeout is over (GIST-5.3.3-08, GIST-B.1-04). A handshake that was started for them ends
    /// with the last one.
    fn expire_queued(&mut self, key: Key) {
        let now = self.now;
        for direction in [Direction::Downstream, Direction::Upstream] {
            // The timer of a direction, or the last message, may have ended the session.
            let Some(record) = self.records.get_mut(key) else { return };
            let (app_session, state) = ((record.nslp, record.session), record.half(direction).state);
            let Some(pending) = &mut record.pending else { return };
            let queue = pending.queue(direction);
            let before = queue.len();
            let mut first = true;
            let mut piggyback_gone = false;
            queue.retain(|queued| {
                let over = queued.deadline.is_some_and(|deadline| deadline.is_due(now));
                if over {
                    self.handshakes.release(queued.source, queued.data.len());
                    piggyback_gone |= first;
                    let status = MessageStatus::Failed(SendError::NoNextNode);
                    self.out.status(app_session, queued.handle, status);
                }
                first = false;
                !over
            });
            let emptied = before > 0 && queue.is_empty();
            if piggyback_gone {
                pending.query_mut(direction).piggybacked = false;
            }
            if emptied && matches!(state, State::Resolving | State::AwaitingResponse) {
                self.counters.no_response += 1;
                self.remove_half(key, direction, SendError::NoNextNode);
            }
        }
    }
}
