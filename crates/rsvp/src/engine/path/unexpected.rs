//! Path state of one multicast sender from several interfaces. The state from the interface that multicast routing
//! expects is used; state from other interfaces is stored and not forwarded (RFC 2205 §3.1.3). Each has its own
//! refreshes, expiry and tear.

use core::net::IpAddr;

use signalbox_core::{Key, invariant};

use super::arrival::{PathContents, failure};
use super::overdue::Pace;
use super::sender::{
    E_POLICE, HELD, LOCAL, LOCAL_ONLY, NON_RSVP, PATH, PROTECTED, REPAIR, RESV, Sender, UNSENT,
    UnexpectedPath,
};
use crate::engine::carried::Carried;
use crate::engine::interfaces::Iface;
use crate::engine::merging::{AT_ONCE, Tears};
use crate::engine::receive::Failure;
use crate::engine::session::{Blocked, Refusal};
use crate::engine::{Admission, Rsvp};
use crate::wire::{self, Message, RsvpHop};

impl Rsvp {
    /// Uses the path state from the interface that multicast routing expects, if there is such state. Reservations go
    /// to its previous hop from now on.
    pub(in crate::engine) fn follow_expected(
        &mut self,
        session: Key,
        key: Key,
        resources: &mut dyn Admission,
    ) {
        let Some(sender) = self.senders.get(key).filter(|sender| !sender.has(LOCAL)) else { return };
        let Some(extra) = sender.extra.as_ref() else { return };
        let expected = match extra.expected {
            Iface::NONE => self.received_by(session),
            expected => expected,
        };
        if expected == Iface::NONE || expected == sender.iif {
            return;
        }
        let Some(at) = extra.unexpected.iter().position(|path| path.iif == expected) else { return };
        let upstream = self.change_of_sender(session, key);
        let Some(extra) = invariant!(
            self.senders.get_mut(key).and_then(|sender| sender.extra.as_mut()),
            "a stored path stays until it is used"
        ) else {
            return;
        };
        let new = extra.unexpected.swap_remove(at);
        let seen = |sender: &Sender| (*sender.tspec, sender.adspec, sender.has(NON_RSVP));
        let reported = self.senders.get(key).filter(|sender| sender.leaves_by(Iface::LOCAL)).map(seen);
        let before = self.senders.get(key).map(|sender| self.composed(sender));
        self.swap_unexpected(key, new);
        if let Some(before) = before {
            self.follow_adspec(key, before);
        }
        self.reinstall_of(session, key, resources);
        if let Some(mut upstream) = upstream {
            upstream.redirect(key, self.senders.get(key).map(|sender| sender.hop));
            self.send_upstream(upstream, session, Tears::Withhold, None);
        }
        self.update_egress(key, resources);
        // Applications that had a report of the sender get a new one if it changed.
        if reported.is_some() && reported != self.senders.get(key).map(seen) {
            self.path_event(key);
        }
        self.send_path(key);
        self.schedule_path(key, true);
        self.arm_sender(key);
    }

    /// Exchanges the path state in use with stored state.
    fn swap_unexpected(&mut self, key: Key, new: UnexpectedPath) {
        self.merging.end_withheld(key);
        let Some(sender) = invariant!(self.senders.get_mut(key), "a swapped sender stands") else { return };
        let old = sender.as_stored();
        sender.extra().unexpected.push(old);
        let (refreshed, at) = (sender.has(RESV), sender.resv_at);
        sender.set(RESV, false);
        (sender.iif, sender.hop, sender.adspec) = (new.iif, new.hop, new.adspec);
        sender.tspec = self.shared.tspec(&new.tspec);
        (sender.expires, sender.ttl) = (new.expires, new.ttl);
        // The refresh period of the stored state is known with its next Path. A Path that was held back was that of the former one.
        sender.pace = Pace::default();
        sender.flags = sender.flags & !(E_POLICE | NON_RSVP | HELD) | new.flags;
        let session = self.sessions.key_of(sender.session);
        if let Some(session) = session {
            if refreshed {
                self.hand_over_refresh(session, old.hop, at);
            }
            self.hop_left(session, old.hop);
        }
        self.counters.hop_changes += 1;
        // The MESSAGE_ID of the former state must not refresh the new one.
        self.remove_path_id(key);
        self.arm_sender(key);
    }

    /// Stores path state from an interface that multicast routing does not expect. It is not forwarded (RFC 2205
    /// §3.1.3).
    pub(super) fn store_unexpected(&mut self, key: Key, contents: &PathContents<'_>) -> Result<(), Failure> {
        let Some(hop) = self.share_hop(contents.hop) else { return Err(failure(Refusal::Full)) };
        let adspec = self.share_adspec(contents.adspec);
        let new = UnexpectedPath {
            iif: contents.iface,
            hop,
            tspec: contents.tspec,
            adspec,
            expires: contents.expires,
            ttl: contents.ttl,
            flags: contents.flags,
        };
        let Some(sender) = invariant!(self.senders.get_mut(key), "a path is stored for a sender that stands")
        else {
            return Ok(());
        };
        let unexpected = &mut sender.extra().unexpected;
        let old = match unexpected.iter_mut().find(|one| one.iif == contents.iface) {
            Some(old) => Some(core::mem::replace(old, new)),
            None => {
                unexpected.push(new);
                None
            }
        };
        if let Some(old) = old {
            self.release_hop(old.hop);
            self.release_adspec(old.adspec);
        }
        self.arm_sender(key);
        Ok(())
    }

    /// A PathTear for stored path state.
    pub(super) fn tear_unexpected(&mut self, key: Key, iface: Iface, hop: &RsvpHop) {
        let hops = &self.hops;
        let same = |one: &UnexpectedPath| {
            one.iif == iface && hops.lookup(one.hop).map(|known| known.addr) == Some(hop.addr)
        };
        let extra = self.senders.get_mut(key).and_then(|sender| sender.extra.as_mut());
        let found = extra.and_then(|extra| {
            let at = extra.unexpected.iter().position(same)?;
            Some(extra.unexpected.swap_remove(at))
        });
        let Some(old) = found else {
            self.counters.unmatched += 1;
            return;
        };
        self.release_hop(old.hop);
        self.release_adspec(old.adspec);
        self.counters.senders_torn += 1;
    }

    /// Drops stored path state that expired.
    pub(in crate::engine) fn expire_unexpected(&mut self, key: Key) {
        let now = self.now;
        let Some(extra) = self.senders.get_mut(key).and_then(|sender| sender.extra.as_mut()) else { return };
        if extra.unexpected.iter().all(|path| !path.expires.is_due(now)) {
            return;
        }
        let over: Vec<_> = extra.unexpected.extract_if(.., |path| path.expires.is_due(now)).collect();
        for path in over {
            self.release_hop(path.hop);
            self.release_adspec(path.adspec);
        }
    }

    /// The path state in use ends: PathTear goes downstream, reservations for the sender end. Stored state, or state
    /// for applications only, takes its place if there is any.
    pub(in crate::engine) fn end_path(
        &mut self,
        key: Key,
        tear: Option<&Message<'_>>,
        resources: &mut dyn Admission,
    ) {
        self.expire_unexpected(key);
        let Some(sender) = invariant!(self.senders.get(key), "a path ends before its sender") else { return };
        let Some(session) = invariant!(self.sessions.key_of(sender.session), "the session of a path stands")
        else {
            return;
        };
        // Standby copies do not outlive the Path: it was their sender's end, or they come again.
        let stored = sender.extra.as_ref().filter(|_| !sender.has(PROTECTED));
        let next = stored.and_then(|extra| extra.unexpected.first().copied());
        let apart = self.received_by(session) != Iface::NONE;
        let own = apart.then(|| self.local_only(session, key)).flatten().filter(|own| *own != key);
        let (None, None) = (next, own) else {
            self.send_path_tear(key, tear);
            self.path_gone(key);
            self.leave_reservations(session, key, resources);
            return match (own, next) {
                (Some(own), _) => self.keep_local_only(session, key, own, resources),
                (None, Some(next)) => self.adopt_unexpected(session, key, next, resources),
                (None, None) => {}
            };
        };
        self.end_sender(key, tear, resources);
    }

    /// Ends path states of a session that other nodes made, [`AT_ONCE`] of them at most: their number, and whether there are more.
    pub(in crate::engine) fn end_senders(
        &mut self,
        session: &wire::Session,
        source: Option<IpAddr>,
        resources: &mut dyn Admission,
    ) -> (u32, bool) {
        let Some(session) = self.find_session(session) else { return (0, false) };
        let wanted = |sender: &Sender| {
            !sender.has(LOCAL) && source.is_none_or(|source| self.filter_of(sender).src == source)
        };
        let mut found = self.senders_of(session).filter(|(_, sender)| wanted(sender)).map(|(key, _)| key);
        let senders: Vec<Key> = found.by_ref().take(AT_ONCE).collect();
        let more = found.next().is_some();
        let mut ended = 0;
        for key in senders {
            // A part of it that applications of this node made may have ended with another one.
            if self.senders.get(key).is_some() {
                tracing::debug!(session = %self.logged(session), "path state ended by an administrator");
                self.end_path(key, None, resources);
                ended += 1;
            }
        }
        (ended, more)
    }

    /// Stored path state takes the place of the state that ended.
    fn adopt_unexpected(
        &mut self,
        session: Key,
        key: Key,
        new: UnexpectedPath,
        resources: &mut dyn Admission,
    ) {
        self.set_egress(key, &[]);
        self.remove_path_id(key);
        if let Some(record) = self.sessions.get_mut(session) {
            record.unblock(Blocked::Sender(key));
        }
        let Some(sender) = invariant!(self.senders.get_mut(key), "an adopting sender stands") else { return };
        let (hop, adspec) = (sender.hop, sender.adspec);
        let refreshed = sender.has(RESV).then_some(sender.resv_at);
        (sender.iif, sender.hop, sender.adspec) = (new.iif, new.hop, new.adspec);
        sender.tspec = self.shared.tspec(&new.tspec);
        (sender.expires, sender.ttl) = (new.expires, new.ttl);
        sender.pace = Pace::default();
        sender.flags =
            sender.flags & !(E_POLICE | NON_RSVP | RESV | PATH | REPAIR | HELD) | new.flags | UNSENT;
        let extra = sender.extra();
        extra.carried = Carried::default();
        extra.path_times.clear();
        extra.unexpected.retain(|one| one.iif != new.iif);
        if let Some(at) = refreshed {
            self.hand_over_refresh(session, hop, at);
        }
        self.hop_left(session, hop);
        self.release_hop(hop);
        self.release_adspec(adspec);
        self.update_egress(key, resources);
        self.arm_sender(key);
    }

    /// Path state for applications only takes the place of the state that ended.
    fn keep_local_only(&mut self, session: Key, key: Key, own: Key, resources: &mut dyn Admission) {
        let extra = self.senders.get_mut(key).and_then(|sender| sender.extra.as_mut());
        let (expected, routed, unexpected) = extra.map_or_else(
            || (Iface::NONE, Vec::new(), Vec::new()),
            |extra| {
                (extra.expected, core::mem::take(&mut extra.routed), core::mem::take(&mut extra.unexpected))
            },
        );
        if let Some(pair) = self.senders.get(own).and_then(|own| self.pair_of(own)) {
            self.routes.enter(pair, own.index());
        }
        self.remove_sender(key);
        if let Some(sender) = self.senders.get_mut(own) {
            sender.set(LOCAL_ONLY, false);
            let extra = sender.extra();
            (extra.expected, extra.routed, extra.unexpected) = (expected, routed, unexpected);
        }
        self.update_egress(own, resources);
        self.arm_sender(own);
        self.close_if_idle(session);
    }
}
