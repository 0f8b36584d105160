//! Path state of one sender that came by several interfaces (multicast): that which routing expects counts, what came by
//! others waits aside (RFC 2205 §3.1.3). Each is by itself: it has its own refreshes, its own end and its own tear.

use signalbox_core::Key;
use signalbox_resources::Resources;

use super::Rsvp;
use super::carried::Carried;
use super::forward::Tears;
use super::interfaces::Place;
use super::path::{Said, failure, readable};
use super::receive::Failure;
use super::sender::{Aside, E_POLICE, LOCAL, LOCAL_ONLY, NON_RSVP, PATH, REPAIR, RESV, Sender, UNSENT};
use super::session::Blocked;
use super::table::Refusal;
use crate::wire::{Message, RsvpHop};

impl Rsvp {
    /// If routing expects a sender by another interface than that it came by, what came by that one takes its place:
    /// reservations go there from now on.
    pub(super) fn turn(&mut self, session: Key, key: Key, resources: &mut Resources) {
        let Some(sender) = self.senders.get(key).filter(|sender| !sender.has(LOCAL)) else { return };
        let Some(extra) = sender.extra.as_ref() else { return };
        let expected = match extra.expected {
            Place::NONE => self.received_by(session),
            expected => expected,
        };
        if expected == Place::NONE || expected == sender.iif {
            return;
        }
        let Some(at) = extra.aside.iter().position(|aside| aside.iif == expected) else { return };
        let upstream = self.change_of_sender(session, key);
        let Some(extra) = self.senders.get_mut(key).and_then(|sender| sender.extra.as_mut()) else { return };
        let new = extra.aside.swap_remove(at);
        let said = |sender: &Sender| (sender.tspec, sender.adspec, sender.has(NON_RSVP));
        let heard = self.senders.get(key).filter(|sender| sender.goes_by(Place::LOCAL)).map(said);
        self.exchange(key, new);
        self.reinstall_of(session, key, resources);
        if let Some(mut upstream) = upstream {
            upstream.redirect(key, self.senders.get(key).map(|sender| sender.hop));
            self.send_upstream(upstream, session, Tears::Withhold, None);
        }
        self.rejoin(key, resources);
        // Applications that hear of it as before hear what it says now.
        if heard.is_some() && heard != self.senders.get(key).map(said) {
            self.path_event(key);
        }
        self.send_path(key);
        self.schedule_path(key, true);
        self.arm_sender(key);
    }

    /// Puts a sender's path state aside, and what was aside in its place.
    fn exchange(&mut self, key: Key, new: Aside) {
        let Some(sender) = self.senders.get_mut(key) else { return };
        let old = Aside {
            iif: sender.iif,
            hop: sender.hop,
            tspec: sender.tspec,
            adspec: sender.adspec,
            expires: sender.expires,
            ttl: sender.ttl,
            flags: sender.flags & (E_POLICE | NON_RSVP),
        };
        sender.extra().aside.push(old);
        let (refreshed, at) = (sender.has(RESV), sender.resv_at);
        sender.set(RESV, false);
        (sender.iif, sender.hop, sender.tspec, sender.adspec) = (new.iif, new.hop, new.tspec, new.adspec);
        (sender.expires, sender.ttl) = (new.expires, new.ttl);
        sender.flags = sender.flags & !(E_POLICE | NON_RSVP) | new.flags;
        let session = self.sessions.key_of(sender.session);
        if let Some(session) = session {
            if refreshed {
                self.hand_over_refresh(session, old.hop, at);
            }
            self.hop_left(session, old.hop);
        }
        self.counters.hop_changes += 1;
        // By the name that the other one gave it, only that one's state would live on.
        self.forget_sender(key);
        self.arm_sender(key);
    }

    /// Path state of a sender that routing does not expect by this interface: kept, not forwarded (RFC 2205 §3.1.3).
    pub(super) fn take_aside(&mut self, key: Key, said: &Said<'_>) -> Result<(), Failure> {
        let Some(hop) = self.share_hop(said.hop) else { return Err(failure(Refusal::Full)) };
        if let Some(adspec) = said.adspec {
            readable(&adspec)?;
        }
        let adspec = self.share_adspec(said.adspec);
        let new = Aside {
            iif: said.place,
            hop,
            tspec: said.tspec,
            adspec,
            expires: said.expires,
            ttl: said.ttl,
            flags: said.flags,
        };
        let Some(sender) = self.senders.get_mut(key) else { return Ok(()) };
        let aside = &mut sender.extra().aside;
        let old = match aside.iter_mut().find(|one| one.iif == said.place) {
            Some(old) => Some(core::mem::replace(old, new)),
            None => {
                aside.push(new);
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

    /// A PathTear of path state that waits aside.
    pub(super) fn tear_aside(&mut self, key: Key, place: Place, hop: &RsvpHop) {
        let hops = &self.hops;
        let same =
            |one: &Aside| one.iif == place && hops.lookup(one.hop).map(|known| known.addr) == Some(hop.addr);
        let extra = self.senders.get_mut(key).and_then(|sender| sender.extra.as_mut());
        let found = extra.and_then(|extra| {
            let at = extra.aside.iter().position(same)?;
            Some(extra.aside.swap_remove(at))
        });
        let Some(old) = found else {
            self.counters.unmatched += 1;
            return;
        };
        self.release_hop(old.hop);
        self.release_adspec(old.adspec);
        self.counters.senders_torn += 1;
    }

    /// Path state aside that nobody refreshes ends alone.
    pub(super) fn drop_aside(&mut self, key: Key) {
        let now = self.now;
        let Some(extra) = self.senders.get_mut(key).and_then(|sender| sender.extra.as_mut()) else { return };
        if extra.aside.iter().all(|aside| !aside.expires.is_due(now)) {
            return;
        }
        let over: Vec<_> = extra.aside.extract_if(.., |aside| aside.expires.is_due(now)).collect();
        for aside in over {
            self.release_hop(aside.hop);
            self.release_adspec(aside.adspec);
        }
    }

    /// The path state of a sender that counts is over: PathTear goes where it went on to, what is reserved for the sender
    /// ends. What of the sender is still there, aside or for applications alone, stays, and its record with it.
    pub(super) fn end_path(&mut self, key: Key, tear: Option<&Message<'_>>, resources: &mut Resources) {
        self.drop_aside(key);
        let Some(sender) = self.senders.get(key) else { return };
        let Some(session) = self.sessions.key_of(sender.session) else { return };
        let next = sender.extra.as_ref().and_then(|extra| extra.aside.first().copied());
        let apart = self.received_by(session) != Place::NONE;
        let own = apart.then(|| self.local_only(session, key)).flatten().filter(|own| *own != key);
        let (None, None) = (next, own) else {
            self.send_path_tear(key, tear);
            self.path_gone(key);
            self.leave_reservations(session, key, resources);
            return match (own, next) {
                (Some(own), _) => self.outlive(session, key, own, resources),
                (None, Some(next)) => self.succeed(session, key, next, resources),
                (None, None) => {}
            };
        };
        self.end_sender(key, tear, resources);
    }

    /// What waited aside is a sender's path state now.
    fn succeed(&mut self, session: Key, key: Key, new: Aside, resources: &mut Resources) {
        self.set_ways(key, &[]);
        self.forget_sender(key);
        if let Some(record) = self.sessions.get_mut(session) {
            record.unblock(Blocked::Sender(key));
        }
        let Some(sender) = self.senders.get_mut(key) else { return };
        let (hop, adspec) = (sender.hop, sender.adspec);
        let refreshed = sender.has(RESV).then_some(sender.resv_at);
        (sender.iif, sender.hop, sender.tspec, sender.adspec) = (new.iif, new.hop, new.tspec, new.adspec);
        (sender.expires, sender.ttl) = (new.expires, new.ttl);
        sender.flags = sender.flags & !(E_POLICE | NON_RSVP | RESV | PATH | REPAIR) | new.flags | UNSENT;
        let extra = sender.extra();
        extra.carried = Carried::default();
        extra.turns.clear();
        extra.aside.retain(|one| one.iif != new.iif);
        if let Some(at) = refreshed {
            self.hand_over_refresh(session, hop, at);
        }
        self.hop_left(session, hop);
        self.release_hop(hop);
        self.release_adspec(adspec);
        self.rejoin(key, resources);
        self.arm_sender(key);
    }

    /// What was for applications alone is all there is of a sender now.
    fn outlive(&mut self, session: Key, key: Key, own: Key, resources: &mut Resources) {
        let extra = self.senders.get_mut(key).and_then(|sender| sender.extra.as_mut());
        let (expected, routed, aside) = extra.map_or_else(
            || (Place::NONE, Vec::new(), Vec::new()),
            |extra| (extra.expected, core::mem::take(&mut extra.routed), core::mem::take(&mut extra.aside)),
        );
        self.remove_sender(key);
        if let Some(sender) = self.senders.get_mut(own) {
            sender.set(LOCAL_ONLY, false);
            let extra = sender.extra();
            (extra.expected, extra.routed, extra.aside) = (expected, routed, aside);
        }
        self.rejoin(own, resources);
        self.arm_sender(own);
        self.close_if_idle(session);
    }
}
