//! What becomes of a RESERVE (RFC 5974 §5.4.1): the decision, before anything changes.

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::service::SiiHandle;
use signalbox_core::slab::Key;
use signalbox_core::{Direction, Time};
use signalbox_resources::Resources;

use super::Qos;
use super::counters::Counters;
use super::parked::Meta;
use super::receive::Progress;
use super::session::{Marks, Session, Stage};
use crate::wire::{GenericFlags, Info, Message, Rsn};

/// What to do with a RESERVE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// Nothing; it is counted.
    Drop,
    /// Answer with this error.
    Answer(Info),
    /// It asks for resources: for a new session, or for others than before.
    Admit(Option<Key>),
    /// It refreshes what is there.
    Refresh(Key),
    /// It ends what is there.
    Tear(Key),
}

impl Qos {
    pub(super) fn on_reserve(
        &mut self,
        message: &Message<'_>,
        meta: &Meta,
        route: Option<Result<Route, NoRoute>>,
        resources: &mut Resources,
    ) -> Progress {
        // A tear must not overtake the RESERVE that it follows, which waits for its route.
        let room = self.parked.len() < self.config.max_parked;
        if message.is_tear() && self.lookups > 0 && route.is_none() && room {
            return Progress::NeedsRoute;
        }
        match self.course(message, meta) {
            Course::Drop => {}
            Course::Answer(info) => self.answer(meta, message, info, None),
            Course::Tear(key) => self.on_tear(key, message, meta, resources),
            Course::Refresh(key) => self.on_refresh(key, message, meta),
            Course::Admit(Some(key)) if self.is_given_up(key, message) => {
                self.answer(meta, message, Info::NO_PATH_STATE, None);
            }
            Course::Admit(key) => {
                let Some(route) = route else { return Progress::NeedsRoute };
                self.admit(key, message, meta, route, resources);
            }
        }
        Progress::Done
    }

    fn course(&mut self, message: &Message<'_>, meta: &Meta) -> Course {
        let Some(rsn) = message.rsn else { return Course::Drop };
        let Some(key) = self.find(meta.session) else { return self.course_of_unknown(message, meta) };
        let counters = &mut self.counters;
        let Some(session) = self.sessions.get_mut(key) else { return Course::Drop };
        let direction = meta.mri.direction();
        let begins_here = session.marks.has(Marks::QNI) && !session.stands_in();
        if session.mri.direction() != direction || begins_here {
            counters.wrong_direction += 1;
            return Course::Answer(Info::WRONG_DIRECTION);
        }
        let tear = message.is_tear();
        let Some(stored) = session.rsn_in else {
            // Only QUERYs passed so far.
            if tear {
                counters.unknown_session += 1;
                return Course::Drop;
            }
            return match message.qspec {
                Some(_) => Course::Admit(Some(key)),
                None => Course::Answer(Info::FULL_QSPEC_REQUIRED),
            };
        };
        if session.back != meta.sii {
            // Of a former peer, on an odd way, GIST does not tell the name.
            let nameless = meta.sii.is_none() && session.back.is_some();
            if nameless || meta.sii.is_some_and(|sii| session.is_ahead(sii)) {
                counters.old_peer += 1;
                return Course::Drop;
            }
            return other_peer(self.now, key, session, rsn, message, meta.sii, &self.config, counters);
        }
        if rsn.epoch != stored.epoch {
            // The peer restarted: its RESERVE is an update whatever its number (§5.3.1).
            return match (tear, message.qspec) {
                (true, _) => Course::Tear(key),
                (false, Some(_)) => Course::Admit(Some(key)),
                (false, None) => Course::Answer(Info::FULL_QSPEC_REQUIRED),
            };
        }
        let newer = Rsn::newer(rsn.number, stored.number);
        if !newer && rsn.number != stored.number {
            counters.old_rsn += 1;
            return Course::Drop;
        }
        if tear {
            return Course::Tear(key);
        }
        let same_flow = session.mri == meta.mri;
        if newer || !same_flow {
            // A reduced refresh that is newer: the QSPEC that goes with the number got lost (§5.3.1).
            return match message.qspec {
                Some(_) => Course::Admit(Some(key)),
                None => Course::Answer(Info::FULL_QSPEC_REQUIRED),
            };
        }
        if session.stage == Stage::Torn {
            counters.after_tear += 1;
            return Course::Drop;
        }
        if message.qspec.is_none() && !self.config.reduced_refresh {
            return Course::Answer(Info::NO_REDUCED_REFRESH);
        }
        Course::Refresh(key)
    }

    /// Whether a user at the flow's source has given up what the receiver reserved, or lost it here. The receiver was told,
    /// but word of that may be lost, or meet a receiver that restarted: without this a RESERVE on another path, or with
    /// another number, would take up again what nobody is left to release. It fares as one without QUERY before it does.
    fn is_given_up(&self, key: Key, message: &Message<'_>) -> bool {
        let Some(session) = self.sessions.get(key) else { return false };
        session.stage == Stage::Torn
            && session.marks.has(Marks::END)
            && session.mri.direction() == Direction::Upstream
            && session.local.is_none()
            && !message.generic.contains(GenericFlags::PROXY)
    }

    fn course_of_unknown(&mut self, message: &Message<'_>, meta: &Meta) -> Course {
        if message.is_tear() {
            self.counters.unknown_session += 1;
            return Course::Drop;
        }
        if message.qspec.is_none() {
            self.counters.unknown_session += 1;
            return Course::Answer(Info::FULL_QSPEC_REQUIRED);
        }
        // A RESERVE against the flow follows the QUERY that went before it; without one GIST has no way on, unless
        // the session is confined by a proxy (§4.8).
        let upstream = meta.mri.direction() == Direction::Upstream;
        if upstream && !message.generic.contains(GenericFlags::PROXY) {
            return Course::Answer(Info::NO_PATH_STATE);
        }
        Course::Admit(None)
    }
}

/// A RESERVE from another peer than the session's: the route before this node changed, or it did not and the message
/// is from the old one (§3.2.12, §5.2.5.4).
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
) -> Course {
    if message.is_tear() {
        // §5.4.1: a tear that does not come from the current peer is ignored and not forwarded. Nor does the old
        // branch refresh anything from now on (§5.2.5.4).
        counters.old_peer += 1;
        session.old_back = session.old_back.filter(|(old, _)| Some(*old) != sii);
        return Course::Drop;
    }
    let stored = session.rsn_in.unwrap_or_default();
    let same_node = stored.epoch == rsn.epoch;
    if same_node && rsn.number != stored.number && !Rsn::newer(rsn.number, stored.number) {
        counters.old_rsn += 1;
        return Course::Drop;
    }
    if let Some((old, until)) = session.old_back
        && Some(old) == sii
        && now < until
    {
        // It goes on refreshing until its state ends, and does not count. A full RESERVE with an RII is no refresh
        // of that sort but what a node sends that saw the route change back: §5.2.5.4 does not tell them apart, and
        // a path that flaps would be without reservation for a lifetime.
        let repair = message.qspec.is_some() && message.rii.is_some();
        if !repair {
            let period = message.refresh_period.unwrap_or(super::compose::DEFAULT_PERIOD_MS);
            session.old_back = Some((old, now + config.lifetime(period)));
            counters.old_peer += 1;
            return Course::Drop;
        }
    }
    match message.qspec {
        Some(_) => Course::Admit(Some(key)),
        None => Course::Answer(Info::FULL_QSPEC_REQUIRED),
    }
}
