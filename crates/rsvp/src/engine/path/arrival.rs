//! Path and PathTear messages that arrive (RFC 2205 §3.1.3, §3.1.5; PATH and PTEAR MESSAGE ARRIVES of RFC 2209).

use core::time::Duration;

use signalbox_core::stamp::Stamp;
use signalbox_core::{Key, invariant};
use signalbox_resources::End;
use signalbox_resources::intserv::TSpec;

use super::difference::{Change, KnownPath, Part, PreviousHop, Refresh};
use super::overdue::Pace;
use super::sender::{E_POLICE, HELD, LOCAL, NON_RSVP, PROTECTED, RESV, Sender};
use crate::engine::carried::{Carried, Compared, Received, Renewal};
use crate::engine::interfaces::Iface;
use crate::engine::io::RsvpEvent;
use crate::engine::merging::Tears;
use crate::engine::neighbor::Incoming;
use crate::engine::receive::Failure;
use crate::engine::session::{NONE, Refusal};
use crate::engine::{Admission, Rsvp};
use crate::wire::{
    Class, ErrorCode, Filter, HEADER_OCTETS, HeaderFlags, Message, MessageType, RawAdspec, RsvpHop, Session,
    Writer, attribute,
};

/// The parsed contents of a Path.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathContents<'a> {
    pub(in crate::engine) session: Session,
    pub(in crate::engine) filter: Filter,
    pub(in crate::engine) hop: RsvpHop,
    pub(in crate::engine) tspec: TSpec,
    pub(in crate::engine) adspec: Option<RawAdspec<'a>>,
    pub(in crate::engine) iface: Iface,
    pub(in crate::engine) expires: Stamp,
    pub(in crate::engine) received: Received,
    pub(in crate::engine) ttl: u8,
    pace: Pace,
    /// [`E_POLICE`] and [`NON_RSVP`].
    pub(in crate::engine) flags: u16,
    /// Whether it has a SESSION_ATTRIBUTE, and whether that desires local protection.
    pub(super) protection: Option<bool>,
}

impl Rsvp {
    /// Handles a Path (RFC 2205 §3.1.3). Returns the sender whose path state is now in use and forwarded, if there is
    /// one.
    pub(in crate::engine) fn on_path(
        &mut self,
        incoming: &Incoming<'_>,
        iface: Iface,
        resources: &mut dyn Admission,
    ) -> Option<Key> {
        let (message, packet) = (&incoming.message, &incoming.packet);
        let hop = message.hop?;
        let config = self.interfaces.get(iface).map(|known| known.config);
        let non_rsvp = config.and_then(|config| config.non_rsvp).unwrap_or(packet.ttl != message.send_ttl);
        let from = (iface, non_rsvp);
        if let Some(refusal) = message.refusal {
            self.reject_path(message, hop, from, Failure::new(refusal.code, refusal.value));
            return None;
        }
        let (Some(session), Some(filter), Some(period), Some(tspec)) =
            (message.session, message.sender, message.refresh_period, message.sender_tspec)
        else {
            return None; // the parser requires them
        };
        let tspec = match tspec.read() {
            Ok(tspec) => tspec,
            Err(fault) => {
                let failure = Failure::new(ErrorCode::TRAFFIC_CONTROL, fault.value.0);
                self.reject_path(message, hop, from, failure);
                return None;
            }
        };
        let life = self.interfaces.lifetime(iface, period);
        let flag = |flag, on| if on { flag } else { 0 };
        let contents = PathContents {
            session,
            filter,
            hop,
            tspec,
            adspec: message.adspec,
            iface,
            expires: Stamp::after(self.now + life),
            received: self.received(life, period),
            ttl: packet.ttl,
            pace: Pace::of(period),
            flags: flag(E_POLICE, message.e_police) | flag(NON_RSVP, non_rsvp),
            protection: message.kept().find_map(|object| attribute::protection(object.octets)),
        };
        let hash = self.hash_of(&session);
        let known = hash.and_then(|hash| self.find_hashed(&session, hash));
        let sender = known.and_then(|session| self.find_sender(session, &filter));
        let result = match (known, sender) {
            (Some(session), Some(sender)) => {
                self.refresh_sender(session, sender, &contents, message, resources)
            }
            _ => self.new_sender(known, hash, &contents, message),
        };
        match result {
            Ok(sender) => sender,
            Err(failure) => {
                self.reject_path(message, hop, from, failure);
                None
            }
        }
    }

    fn new_sender(
        &mut self,
        known: Option<Key>,
        hash: Option<u64>,
        contents: &PathContents<'_>,
        message: &Message<'_>,
    ) -> Result<Option<Key>, Failure> {
        let (src, iface) = (contents.filter.src, contents.iface);
        if !self.take_place(src, iface, known.is_none()) {
            return Err(failure(Refusal::Full));
        }
        let opened = known.map_or_else(|| self.open_session(&contents.session, hash), Ok);
        let opened = opened.and_then(|session| {
            let key = self.open_sender(session, &contents.filter, contents.tspec);
            if key.is_err() {
                self.close_if_idle(session);
            }
            Ok((session, key?))
        });
        let (session, key) = match opened {
            Ok(opened) => opened,
            Err(refusal) => {
                self.give_place_back(src, iface);
                return Err(failure(refusal));
            }
        };
        if let Some(sender) = self.senders.get_mut(key) {
            sender.held_by = iface;
        }
        self.note_changed(session);
        let Some(hop) = self.share_hop(contents.hop) else {
            self.remove_sender(key);
            self.close_if_idle(session);
            return Err(failure(Refusal::Full));
        };
        let adspec = self.share_adspec(contents.adspec);
        let carried = self.carried_of(message);
        if let Some(sender) = self.senders.get_mut(key) {
            sender.hop = hop;
            sender.iif = contents.iface;
            sender.adspec = adspec;
            sender.ttl = contents.ttl;
            sender.pace = contents.pace;
            sender.expires = contents.expires;
            sender.flags |= contents.flags;
            if !carried.is_empty() {
                sender.extra().carried = Carried::of(&carried, contents.received);
            }
        }
        if contents.protection.is_some() {
            self.note_protection(key);
        }
        self.counters.paths_taken += 1;
        tracing::debug!(session = %contents.session, sender = %contents.filter, peer = %contents.hop.addr, "path state created");
        self.start_sender(key);
        self.look_up_route(key);
        Ok(Some(key))
    }

    /// Handles a Path of a sender that this node has.
    fn refresh_sender(
        &mut self,
        session: Key,
        key: Key,
        contents: &PathContents<'_>,
        message: &Message<'_>,
        resources: &mut dyn Admission,
    ) -> Result<Option<Key>, Failure> {
        let Some(known) = self.compare_path(key, contents, message) else { return Ok(None) };
        match known {
            KnownPath::Own => {
                self.counters.own += 1;
                tracing::debug!(session = %contents.session, sender = %contents.filter, reason = "the sender is an application here", "Path dropped");
                Ok(None)
            }
            KnownPath::Elsewhere => self.take_elsewhere(session, key, contents, resources).map(|()| None),
            KnownPath::Standby => self.take_standby(session, key, contents).map(|()| None),
            KnownPath::Refresh(refresh) => {
                self.take_refresh(session, key, contents, refresh, resources);
                Ok(Some(key))
            }
            KnownPath::Change(change) => {
                self.take_change(session, key, contents, change, resources).map(|()| Some(key))
            }
        }
    }

    /// A Path to a group by another interface than the path state in use.
    fn take_elsewhere(
        &mut self,
        session: Key,
        key: Key,
        contents: &PathContents<'_>,
        resources: &mut dyn Admission,
    ) -> Result<(), Failure> {
        if !self.refresh_local_only(session, key, contents, resources) {
            self.store_unexpected(key, contents)?;
            self.follow_expected(session, key, resources);
            self.update_local_only(session, key, resources);
        }
        Ok(())
    }

    /// A Path that repeats the path state in use.
    fn take_refresh(
        &mut self,
        session: Key,
        key: Key,
        contents: &PathContents<'_>,
        Refresh { adspec, police, objects }: Refresh,
        resources: &mut dyn Admission,
    ) {
        let terms = self.take_adspec(key, adspec, contents);
        self.renew_objects(key, objects, contents);
        self.renew_sender(key, contents);
        self.counters.paths_refreshed += 1;
        tracing::trace!(session = %contents.session, sender = %contents.filter, "path state refreshed");
        self.resume(key);
        if police == Part::New || terms == Part::New {
            self.renew_grants(session, key, resources);
        }
        if adspec == Part::New {
            self.path_event(key); // other nodes get it with the next refresh
        }
    }

    /// A Path that changes the path state in use. It goes on at once.
    fn take_change(
        &mut self,
        session: Key,
        key: Key,
        contents: &PathContents<'_>,
        Change { hop, tspec, adspec, police, objects }: Change,
        resources: &mut dyn Admission,
    ) -> Result<(), Failure> {
        let protection = match objects {
            Compared::Same(renewal) => {
                self.renew_objects(key, renewal, contents);
                Part::Same
            }
            Compared::Changed(new) => {
                if let Some(sender) = self.senders.get_mut(key) {
                    sender.extra().carried = new;
                }
                self.note_protection(key)
            }
        };
        let upstream = self.change_of_sender(session, key);
        if let PreviousHop::New { after_standby } = hop {
            self.change_hop(session, key, after_standby, contents)?;
        }
        // A Path that is refused leaves it, so that the same Path brings the new terms later.
        let terms = self.take_adspec(key, adspec, contents);
        if tspec == Part::New
            && let Some(sender) = self.senders.get_mut(key)
        {
            sender.tspec = self.shared.tspec(&contents.tspec);
        }
        self.renew_sender(key, contents);
        self.counters.paths_taken += 1;
        tracing::debug!(session = %contents.session, sender = %contents.filter, peer = %contents.hop.addr, "path state changed");
        if let Some(sender) = self.senders.get_mut(key) {
            sender.set(HELD, false);
        }
        self.send_path(key);
        self.schedule_path(key, true);
        self.arm_sender(key);
        self.path_event(key);
        // A route that led back to the former previous hop may be the way from the new one.
        let stays = |sender: &Sender| hop != PreviousHop::Same && sender.oif == Iface::NONE;
        if protection == Part::New || self.senders.get(key).is_some_and(stays) {
            self.look_up_again(key);
        }
        if let Some(mut upstream) = upstream {
            if [tspec, police, terms].contains(&Part::New) {
                self.reinstall_of(session, key, resources);
            }
            upstream.redirect(key, self.senders.get(key).map(|sender| sender.hop));
            self.send_upstream(upstream, session, Tears::Withhold, None);
        }
        Ok(())
    }

    /// Stores what each Path of path state renews.
    fn renew_sender(&mut self, key: Key, contents: &PathContents<'_>) {
        let Some(sender) = invariant!(self.senders.get_mut(key), "a sender stands while its Path is taken")
        else {
            return;
        };
        sender.flags = sender.flags & !(E_POLICE | NON_RSVP) | contents.flags;
        sender.ttl = contents.ttl;
        sender.pace = contents.pace;
        let former = core::mem::replace(&mut sender.expires, contents.expires);
        if contents.expires.min(former) != former {
            self.arm_sender(key);
        } else {
            self.keep_sender(key);
        }
    }

    fn renew_objects(&mut self, key: Key, renewal: Renewal, contents: &PathContents<'_>) {
        if let Some(extra) = self.senders.get_mut(key).and_then(|sender| sender.extra.as_mut()) {
            extra.carried.renew(renewal, contents.received);
        }
    }

    /// Stores the ADSPEC of a Path, if it is new. Returns whether the error terms are new for which reservations are granted.
    fn take_adspec(&mut self, key: Key, adspec: Part, contents: &PathContents<'_>) -> Part {
        if adspec == Part::Same {
            return Part::Same;
        }
        let adspec = self.share_adspec(contents.adspec);
        let Some(sender) = invariant!(self.senders.get(key), "a sender stands while its ADSPEC is taken")
        else {
            return Part::Same;
        };
        let before = self.composed(sender);
        let Some(sender) =
            invariant!(self.senders.get_mut(key), "a sender stands while its ADSPEC is stored")
        else {
            return Part::Same;
        };
        let old = core::mem::replace(&mut sender.adspec, adspec);
        self.release_adspec(old);
        self.follow_adspec(key, before)
    }

    /// Refreshes Local_Only path state; `false`: there is none, or it has another previous hop.
    fn refresh_local_only(
        &mut self,
        session: Key,
        key: Key,
        contents: &PathContents<'_>,
        resources: &mut dyn Admission,
    ) -> bool {
        let own = self.for_application(session, key);
        let Some(sender) = self.senders.get(own).filter(|one| own != key && one.iif == contents.iface) else {
            return false;
        };
        if self.hops.lookup(sender.hop) != Some(&contents.hop) {
            self.end_sender(own, None, resources);
            return false;
        }
        let adspec = self.share_adspec(contents.adspec);
        let Some(sender) =
            invariant!(self.senders.get_mut(own), "a Local_Only sender stands while it is refreshed")
        else {
            return false;
        };
        let changed = *sender.tspec != contents.tspec || sender.adspec != adspec;
        (sender.expires, sender.ttl) = (contents.expires, contents.ttl);
        sender.tspec = self.shared.tspec(&contents.tspec);
        let old = core::mem::replace(&mut sender.adspec, adspec);
        sender.flags = sender.flags & !(E_POLICE | NON_RSVP) | contents.flags;
        self.release_adspec(old);
        if changed {
            self.path_event(own);
        }
        self.arm_sender(own);
        true
    }

    /// The previous hop changed: Resvs go to the new one (RFC 2205 §3.6).
    fn change_hop(
        &mut self,
        session: Key,
        key: Key,
        was_standby: bool,
        contents: &PathContents<'_>,
    ) -> Result<(), Failure> {
        let Some(hop) = self.share_hop(contents.hop) else { return Err(failure(Refusal::Full)) };
        self.counters.hop_changes += 1;
        tracing::debug!(session = %contents.session, sender = %contents.filter, peer = %contents.hop.addr, "previous hop changed");
        // The MESSAGE_ID of the former hop must not refresh state of the new one.
        self.remove_path_id(key);
        self.merging.end_withheld(key);
        let Some(sender) =
            invariant!(self.senders.get_mut(key), "a sender stands while its previous hop changes")
        else {
            return Ok(());
        };
        let former = sender.as_stored();
        let old = former.hop;
        sender.hop = hop;
        sender.iif = contents.iface;
        let (refreshed, at) = (sender.has(RESV), sender.resv_at);
        sender.set(RESV, false);
        if refreshed {
            self.hand_over_refresh(session, old, at);
        }
        self.exchange_standby(key, former, was_standby);
        self.hop_left(session, old);
        self.release_hop(old);
        Ok(())
    }

    /// Handles a PathTear (RFC 2205 §3.1.5).
    pub(in crate::engine) fn on_path_tear(
        &mut self,
        message: &Message<'_>,
        iface: Iface,
        resources: &mut dyn Admission,
    ) {
        let (Some(session), Some(filter), Some(hop)) = (message.session, message.sender, message.hop) else {
            return;
        };
        resources.because(End::TornDown);
        let known = self.find_session(&session);
        let sender = known.and_then(|session| self.find_sender(session, &filter));
        let remote = sender.filter(|key| self.senders.get(*key).is_some_and(|sender| !sender.has(LOCAL)));
        let Some((key, sender)) = remote.and_then(|key| Some((key, self.senders.get(key)?))) else {
            self.counters.unmatched += 1;
            tracing::debug!(%session, sender = %filter, peer = %hop.addr, reason = "no such path state", "PathTear dropped");
            return;
        };
        // A multicast PathTear is about the interface by which it came, any PathTear about its previous hop.
        if session.dest.is_multicast() && sender.iif != iface {
            let own = known.map_or(key, |session| self.for_application(session, key));
            if let Some(sender) = self.senders.get(own).filter(|one| own != key && one.iif == iface)
                && self.hops.lookup(sender.hop).map(|known| known.addr) == Some(hop.addr)
            {
                self.counters.senders_torn += 1;
                return self.end_sender(own, None, resources);
            }
            self.tear_unexpected(key, iface, &hop);
            return;
        }
        let iif = sender.iif;
        if self.hops.lookup(sender.hop).map(|known| known.addr) != Some(hop.addr) {
            if sender.has(PROTECTED) {
                return self.tear_unexpected(key, iface, &hop);
            }
            self.counters.unmatched += 1;
            tracing::debug!(%session, sender = %filter, peer = %hop.addr, reason = "not the previous hop", "PathTear dropped");
            return;
        }
        if !self.may_come_by(iif, iface) {
            return self.wrong_interface(message.kind, &session, hop.addr);
        }
        tracing::debug!(%session, sender = %filter, peer = %hop.addr, "path state torn down");
        self.counters.senders_torn += 1;
        self.end_path(key, Some(message), resources);
    }

    /// Reports a sender to the applications of this node that receive it (PATH_EVENT, RFC 2205 §3.11.1), and has them
    /// reserve if they waited for it.
    pub(in crate::engine) fn path_event(&mut self, key: Key) {
        let Some(sender) = self.senders.get(key).filter(|sender| sender.leaves_by(Iface::LOCAL)) else {
            return;
        };
        let Some(session) =
            invariant!(self.sessions.get_index(sender.session), "a reported sender has a session")
        else {
            return;
        };
        let own = sender.extra.as_ref().and_then(|extra| extra.application);
        let applications = session.applications().to_vec();
        for id in applications {
            if Some(id) != own {
                self.path_event_to(key, id);
            }
            self.clients.renew(id);
        }
    }

    /// Reports a sender to one application.
    pub(in crate::engine) fn path_event_to(&mut self, key: Key, id: u64) {
        let Some(sender) = invariant!(self.senders.get(key), "a reported sender stands") else { return };
        let policy = policy_in(sender.carried());
        let adspec = self.adspecs.lookup(sender.adspec).cloned().unwrap_or_default();
        let broken = self.is_broken(sender);
        let (sender, tspec) = (self.filter_of(sender), *sender.tspec);
        self.out.event(id, RsvpEvent::Path { sender, tspec, adspec, policy, broken });
    }

    /// Reports to applications of this node that a sender is gone.
    pub(super) fn path_gone(&mut self, key: Key) {
        let Some(sender) = self.senders.get(key).filter(|sender| sender.leaves_by(Iface::LOCAL)) else {
            return;
        };
        let Some(session) =
            invariant!(self.sessions.get_index(sender.session), "a sender that ends has a session")
        else {
            return;
        };
        let own = sender.extra.as_ref().and_then(|extra| extra.application);
        let filter = self.filter_of(sender);
        for id in session.applications().iter().copied().filter(|id| Some(*id) != own) {
            self.out.event(id, RsvpEvent::PathGone { sender: filter });
        }
    }

    pub(in crate::engine) fn share_hop(&mut self, hop: RsvpHop) -> Option<u32> {
        let shared = self.hops.share(hop);
        self.counters.overload += u64::from(shared.is_none());
        shared
    }

    /// Shares the contents of an ADSPEC, without a part that is bad; [`NONE`]: there is no ADSPEC, it is bad as a whole,
    /// or the table is full. Paths then go on without it: the reservation does not need it.
    ///
    /// Of a long ADSPEC only the services stay that this node knows: the sender chooses the length of the others.
    pub(super) fn share_adspec(&mut self, adspec: Option<RawAdspec<'_>>) -> u32 {
        let Some(adspec) = adspec else { return NONE };
        let fault = adspec.read().err();
        let octets = if fault.is_none() && adspec.octets().len() <= usize::from(self.config.max_carried) {
            adspec.octets().into()
        } else {
            self.counters.adspecs_mended += 1;
            tracing::debug!(?fault, octets = adspec.octets().len(), "part of an ADSPEC left out");
            match usable(&adspec) {
                Some(part) => part.into_boxed_slice(),
                None => return NONE,
            }
        };
        let shared = self.adspecs.intern(octets);
        self.counters.overload += u64::from(shared.is_err());
        shared.unwrap_or(NONE)
    }

    /// Arrival time and lifetime of the message that is handled.
    pub(in crate::engine) fn received(&self, life: Duration, period: u32) -> Received {
        Received { now: self.now, life, period, limit: usize::from(self.config.max_carried) }
    }

    /// POLICY_DATA and unknown objects of a message; empty if they are too long.
    pub(in crate::engine) fn carried_of(&mut self, message: &Message<'_>) -> Vec<u8> {
        let mut carried = Vec::new();
        if !message.carries() {
            return carried;
        }
        for object in message.policy() {
            carried.extend_from_slice(object.octets());
        }
        for object in message.kept() {
            carried.extend_from_slice(object.octets);
        }
        if carried.len() > usize::from(self.config.max_carried) {
            self.counters.overload += 1;
            carried.clear();
        }
        carried
    }
}

/// The POLICY_DATA objects among carried objects.
pub(in crate::engine) fn policy_in(carried: &[u8]) -> Box<[u8]> {
    let mut policy = Vec::new();
    for object in crate::wire::Objects::at(carried, 0).map_while(Result::ok) {
        if object.kind.class == Class::POLICY_DATA {
            policy.extend_from_slice(object.octets);
        }
    }
    policy.into_boxed_slice()
}

/// What of a bad ADSPEC can be used, as a whole object; `None`: nothing can.
pub(in crate::engine) fn usable(adspec: &RawAdspec<'_>) -> Option<Vec<u8>> {
    let part = adspec.read_part()?;
    let mut octets = Vec::new();
    let mut writer = Writer::new(&mut octets, MessageType::PATH, HeaderFlags::default(), 0);
    writer.adspec(&part);
    writer.finish_without_checksum().ok()?;
    Some(octets.split_off(HEADER_OCTETS))
}

/// The error code of a refusal.
pub(in crate::engine) const fn failure(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::DestPorts => Failure::new(ErrorCode::CONFLICTING_DEST_PORTS, 0),
        Refusal::SenderPorts => Failure::new(ErrorCode::CONFLICTING_SENDER_PORTS, 0),
        Refusal::Full => Failure::new(ErrorCode::RSVP_SYSTEM, 0),
    }
}
