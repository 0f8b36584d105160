//! Decisions on a RESERVE (RFC 5974 §5.4.1), before any state changes.

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::service::SiiHandle;
use signalbox_core::slab::Key;
use signalbox_core::{Direction, Time, invariant};
use signalbox_resources::Resources;

use super::Qos;
use super::counters::Counters;
use super::receive::Progress;
use super::session::{Marks, Session, Stage};
use super::waiting::Arrival;
use crate::wire::{GenericFlags, Info, Message, Rsn};

/// What this node does with a RESERVE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// Count and discard it.
    Drop,
    /// Answer it with this error.
    Answer(Info),
    /// Ask admission control: for a new session, or for other resources than before.
    Admit(Option<Key>),
    /// Refresh the reservation.
    Refresh(Key),
    /// Tear down the reservation.
    Tear(Key),
}

impl Qos {
    pub(super) fn on_reserve(
        &mut self,
        message: &Message<'_>,
        arrival: &Arrival,
        route: Option<Result<Route, NoRoute>>,
        resources: &mut Resources,
    ) -> Progress {
        // A tear must not overtake an earlier RESERVE of the session that waits for its route.
        let room = self.waiting.len() < self.config.max_parked;
        if message.is_tear() && self.lookups > 0 && route.is_none() && room {
            return Progress::NeedsRoute;
        }
        let ended = match message.rsn {
            Some(rsn) if message.is_tear() => self.end_reserves(arrival.session, arrival.sii, rsn),
            _ => false,
        };
        if !message.is_tear() && route.is_none() && self.goes_no_further(message, arrival, resources) {
            return Progress::Done;
        }
        match self.decide(message, arrival) {
            Decision::Drop if ended => self.confirm_end(arrival, message),
            Decision::Drop => {}
            Decision::Answer(info) => self.answer(arrival, message, info, None),
            Decision::Tear(key) => self.on_tear(key, message, arrival, resources),
            Decision::Refresh(key) => self.on_refresh(key, message, arrival),
            Decision::Admit(Some(key)) if self.is_given_up(key, message) => {
                self.answer(arrival, message, Info::NO_PATH_STATE, None);
            }
            Decision::Admit(key) => {
                let Some(route) = route else { return Progress::NeedsRoute };
                self.admit(key, message, arrival, route, resources);
            }
        }
        Progress::Done
    }

    fn decide(&mut self, message: &Message<'_>, arrival: &Arrival) -> Decision {
        let Some(rsn) = message.rsn else { return Decision::Drop };
        let Some(key) = self.find(arrival.session) else { return self.decide_unknown(message, arrival) };
        let counters = &mut self.counters;
        let Some(session) = invariant!(self.sessions.get_mut(key), "a RESERVE's key is valid") else {
            return Decision::Drop;
        };
        let direction = arrival.mri.direction();
        let begins_here = session.marks.has(Marks::QNI) && !session.stands_in();
        if session.direction != direction || begins_here {
            counters.wrong_direction += 1;
            tracing::debug!(session = %arrival.session, reason = "wrong direction", "RESERVE refused");
            return Decision::Answer(Info::WRONG_DIRECTION);
        }
        let tear = message.is_tear();
        let Some(stored) = session.rsn_in.get() else {
            // Only QUERYs passed so far.
            if tear {
                counters.unknown_session += 1;
                tracing::debug!(
                    session = %arrival.session,
                    reason = "no reservation to tear down",
                    "RESERVE dropped"
                );
                return Decision::Drop;
            }
            return match message.qspec {
                Some(_) => Decision::Admit(Some(key)),
                None => Decision::Answer(Info::FULL_QSPEC_REQUIRED),
            };
        };
        if session.previous_peer() != arrival.sii {
            // GIST gives no SII-handle of a former peer whose message arrived without routing state.
            let nameless = arrival.sii.is_none() && session.previous_peer().is_some();
            if nameless || arrival.sii.is_some_and(|sii| session.is_next_peer(sii)) {
                counters.old_peer += 1;
                tracing::debug!(
                    session = %arrival.session,
                    peer = ?arrival.sii,
                    reason = "from another than the previous peer",
                    "RESERVE dropped"
                );
                return Decision::Drop;
            }
            return other_peer(self.now, key, session, rsn, message, arrival.sii, &self.config, counters);
        }
        if rsn.epoch != stored.epoch {
            // The peer restarted: its RESERVE is an update, whatever the number (§5.3.1).
            return match (tear, message.qspec) {
                (true, _) => Decision::Tear(key),
                (false, Some(_)) => Decision::Admit(Some(key)),
                (false, None) => Decision::Answer(Info::FULL_QSPEC_REQUIRED),
            };
        }
        let newer = Rsn::newer(rsn.number, stored.number);
        if !newer && rsn.number != stored.number {
            counters.old_rsn += 1;
            tracing::debug!(
                session = %arrival.session,
                peer = ?arrival.sii,
                reason = "RSN is old",
                "RESERVE dropped"
            );
            return Decision::Drop;
        }
        if tear {
            return Decision::Tear(key);
        }
        let same_flow = session.has_mri(&arrival.mri);
        if newer || !same_flow {
            // A reduced refresh with a newer RSN: the RESERVE with the QSPEC was lost (§5.3.1).
            return match message.qspec {
                Some(_) => Decision::Admit(Some(key)),
                None => Decision::Answer(Info::FULL_QSPEC_REQUIRED),
            };
        }
        if session.stage == Stage::Torn {
            counters.after_tear += 1;
            tracing::debug!(session = %arrival.session, reason = "session is torn down", "RESERVE dropped");
            return Decision::Drop;
        }
        if message.qspec.is_none() && !self.config.reduced_refresh {
            return Decision::Answer(Info::NO_REDUCED_REFRESH);
        }
        Decision::Refresh(key)
    }

    /// Whether a user at the flow's source has released the reservation that the receiver made, or lost it. The NOTIFY
    /// to the receiver may be lost, or the receiver may restart. Then a RESERVE on another path, or with another RSN,
    /// would restore a reservation that no user can release. Such a RESERVE is answered like one without an earlier
    /// QUERY.
    fn is_given_up(&self, key: Key, message: &Message<'_>) -> bool {
        let Some(session) = self.sessions.get(key) else { return false };
        session.is_given_up() && !message.generic.contains(GenericFlags::PROXY)
    }

    fn decide_unknown(&mut self, message: &Message<'_>, arrival: &Arrival) -> Decision {
        if message.is_tear() {
            self.counters.unknown_session += 1;
            tracing::debug!(session = %arrival.session, reason = "session is not known", "tear dropped");
            return Decision::Drop;
        }
        if message.qspec.is_none() {
            self.counters.unknown_session += 1;
            tracing::debug!(session = %arrival.session, reason = "session is not known", "refresh refused");
            return Decision::Answer(Info::FULL_QSPEC_REQUIRED);
        }
        // An upstream RESERVE follows a QUERY. Without one GIST has no upstream routing state, unless a proxy confines
        // the session (§4.8).
        let upstream = arrival.mri.direction() == Direction::Upstream;
        if upstream && !message.generic.contains(GenericFlags::PROXY) {
            return Decision::Answer(Info::NO_PATH_STATE);
        }
        Decision::Admit(None)
    }
}

/// Decides on a RESERVE from another peer than the previous one: the route before this node changed, or the message
/// comes from the old branch (RFC 5974 §3.2.12, §5.2.5.4).
#[expect(clippy::too_many_arguments, reason = "parts of the engine that are borrowed one by one")]
fn other_peer(
    now: Time,
    key: Key,
    session: &mut Session,
    rsn: Rsn,
    message: &Message<'_>,
    sii: Option<SiiHandle>,
    config: &super::Config,
    counters: &mut Counters,
) -> Decision {
    if message.is_tear() {
        // §5.4.1: a tear that does not come from the current peer is ignored and not forwarded. The old branch
        // refreshes nothing after it (§5.2.5.4).
        counters.old_peer += 1;
        tracing::debug!(
            session = %session.id,
            peer = ?sii,
            reason = "from another than the previous peer",
            "tear dropped"
        );
        session.rare.change(|rare| rare.old_previous_peer.take_if(|(old, _)| Some(*old) == sii));
        session.end_report(sii);
        return Decision::Drop;
    }
    let stored = session.rsn_in.get().unwrap_or_default();
    let same_node = stored.epoch == rsn.epoch;
    if same_node && rsn.number != stored.number && !Rsn::newer(rsn.number, stored.number) {
        counters.old_rsn += 1;
        tracing::debug!(session = %session.id, peer = ?sii, reason = "RSN is old", "RESERVE dropped");
        return Decision::Drop;
    }
    if let Some((old, until)) = session.rare.old_previous_peer
        && Some(old) == sii
        && now < until
    {
        // Refreshes of the old branch have no effect until its state ends. A full RESERVE with an RII is not such a
        // refresh: the node saw the route change back. RFC 5974 §5.2.5.4 does not distinguish them. Without this, a
        // route that flaps would leave the path without a reservation for a lifetime.
        let repair = message.qspec.is_some() && message.rii.is_some();
        if !repair {
            let period = message.refresh_period.unwrap_or(super::compose::DEFAULT_PERIOD_MS);
            let until = now + config.lifetime(period);
            session.rare.change(|rare| rare.old_previous_peer = Some((old, until)));
            counters.old_peer += 1;
            tracing::debug!(
                session = %session.id,
                peer = ?sii,
                reason = "refresh of the old branch",
                "RESERVE dropped"
            );
            return Decision::Drop;
        }
    }
    match message.qspec {
        Some(_) => Decision::Admit(Some(key)),
        None => Decision::Answer(Info::FULL_QSPEC_REQUIRED),
    }
}
