//! Summary refreshes and tears: several sessions in one RESERVE (RFC 5974 §3.2.6, §5.3.6, §5.3.7).

use std::collections::BTreeSet;

use signalbox_core::service::SiiHandle;
use signalbox_core::slab::Key;
use signalbox_core::{SessionId, invariant};
use signalbox_resources::{End, Resources};

use super::Qos;
use super::compose::{Extra, Form, Target};
use super::path_check::Then;
use super::session::{Marks, RequestKind, Session, Stage};
use super::table::MOST_LISTED;
use super::waiting::Arrival;
use crate::wire::{Info, Message, MessageType, Rsn, RsnList, SessionIds};

/// The values of SESSION-ID-LIST and RSN-LIST.
#[derive(Debug, Default)]
pub(super) struct Lists {
    sessions: Vec<u8>,
    rsns: Vec<u8>,
}

impl Lists {
    fn push(&mut self, session: SessionId, rsn: u32) {
        self.sessions.extend_from_slice(&session.0);
        self.rsns.extend_from_slice(&rsn.to_be_bytes());
    }

    fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    fn len(&self) -> u64 {
        u64::try_from(self.sessions.len() / 16).unwrap_or(0)
    }

    pub(super) fn objects(&self, epoch: u32) -> Option<(SessionIds<'_>, RsnList<'_>)> {
        if self.is_empty() {
            return None;
        }
        Some((SessionIds::from_octets(&self.sessions)?, RsnList::from_octets(epoch, &self.rsns)?))
    }
}

impl Qos {
    /// Refreshes the listed sessions of a summary refresh. Unknown sessions and sessions with another RSN are reported
    /// (RFC 5974 §5.3.6, §5.3.7).
    pub(super) fn on_listed_refreshes(&mut self, message: &Message<'_>, arrival: &Arrival) {
        let (Some(sessions), Some(rsns)) = (message.session_ids, message.rsns) else { return };
        let (mut unknown, mut mismatched) = (Lists::default(), Lists::default());
        for (id, number) in sessions.iter().zip(rsns.iter()) {
            let key = self.find(id).filter(|key| self.is_listed_peer(*key, arrival));
            let Some(session) = key.and_then(|key| self.sessions.get_mut(key)) else {
                unknown.push(id, number);
                continue;
            };
            let stored = session.rsn_in.get();
            if session.stage != Stage::Reserved || stored != Some(Rsn { number, epoch: rsns.epoch }) {
                mismatched.push(id, number);
                continue;
            }
            session.expires = (self.now + self.config.lifetime(session.period_in)).into();
            session.end_report(arrival.sii);
            self.counters.refreshed += 1;
            tracing::trace!(session = %id, "reservation refreshed by a summary");
            if let Some(key) = key {
                self.end_path_check(key, None);
                self.rearm(key);
            }
        }
        for (info, lists) in
            [(Info::UNKNOWN_LISTED_SESSION, unknown), (Info::LISTED_RSN_MISMATCH, mismatched)]
        {
            let Some((sessions, numbers)) = lists.objects(rsns.epoch) else { continue };
            let response = Message {
                rsn: message.rsn,
                info: Some(self.info(arrival, info)),
                session_ids: Some(sessions),
                rsns: (info == Info::LISTED_RSN_MISMATCH).then_some(numbers),
                ..Message::new(MessageType::RESPONSE)
            };
            self.send_response(Target::back_to(arrival), &response);
        }
    }

    /// Tears down the listed sessions of a tear for `first`. Unknown sessions and old RSNs are ignored. Sessions with
    /// the same next peer are torn down there in one message (RFC 5974 §5.3.6).
    pub(super) fn on_listed_tears(
        &mut self,
        first: Key,
        message: &Message<'_>,
        arrival: &Arrival,
        resources: &mut Resources,
    ) {
        let (Some(sessions), Some(rsns)) = (message.session_ids, message.rsns) else { return };
        let onward = self.sessions.get(first).and_then(|s| s.next_peer().filter(|_| !s.is_end()));
        let mut groups: Vec<(Option<SiiHandle>, Vec<Key>)> = vec![(onward, vec![first])];
        // A peer may list a session twice, or that of the tear itself.
        let mut listed = BTreeSet::from([first]);
        for (id, number) in sessions.iter().zip(rsns.iter()) {
            self.end_reserves(id, arrival.sii, Rsn { number, epoch: rsns.epoch });
            let Some(key) = self.find(id).filter(|key| self.is_listed_peer(*key, arrival)) else { continue };
            if !listed.insert(key) {
                continue;
            }
            let Some(session) = invariant!(self.sessions.get_mut(key), "a listed key is valid") else {
                continue;
            };
            let Some(stored) = session.rsn_in.get() else { continue };
            let same_epoch = stored.epoch == rsns.epoch;
            if same_epoch && number != stored.number && !Rsn::newer(number, stored.number) {
                self.counters.old_rsn += 1;
                tracing::debug!(session = %id, reason = "RSN is old", "listed tear dropped");
                continue;
            }
            session.rsn_in = Some(Rsn { number, epoch: rsns.epoch }).into();
            if session.stage == Stage::Reserved {
                self.counters.torn_down += 1;
                resources.because(End::TornDown);
                self.release(key, resources);
                self.on_gone(key);
            }
            let Some(session) = invariant!(self.sessions.get(key), "an end keeps its session") else {
                continue;
            };
            let onward = session.next_peer().filter(|_| !session.is_end());
            match groups.iter_mut().find(|(sii, _)| onward.is_some() && *sii == onward) {
                Some((_, keys)) => keys.push(key),
                None => groups.push((onward, vec![key])),
            }
        }
        for (_, keys) in groups {
            self.tear_together(&keys, arrival.hops, resources);
        }
    }

    fn is_listed_peer(&self, key: Key, arrival: &Arrival) -> bool {
        self.sessions.get(key).is_some_and(|session| {
            session.previous_peer() == arrival.sii
                && !session.marks.has(Marks::QNI)
                && session.direction == arrival.mri.direction()
        })
    }

    /// Tears down sessions with the same next peer: the message is for the first, the lists contain the others.
    pub(super) fn tear_together(&mut self, keys: &[Key], hops: u8, resources: &mut Resources) {
        let Some((first, others)) = invariant!(keys.split_first(), "a group is not empty") else { return };
        let mut lists = Lists::default();
        for key in others {
            if let Some(session) = invariant!(self.sessions.get_mut(*key), "a listed tear has a session") {
                let rsn = session.next_rsn();
                lists.push(session.id, rsn);
            }
        }
        self.counters.summarised += lists.len();
        let Some(session) = invariant!(self.sessions.get_mut(*first), "a tear has a session") else { return };
        session.next_rsn();
        if !session.marks.has(Marks::QNR) && !session.marks.has(Marks::SCOPED) && hops > 0 {
            let extra = Extra {
                lists: lists.objects(self.epoch),
                gist_hops: Some(hops).filter(|hops| *hops < u8::MAX),
                ..Extra::default()
            };
            if self.send_reserve(*first, Form::Tear, extra).is_some() {
                self.counters.tears_sent += 1;
            }
        }
        for key in keys {
            self.release_route(*key);
            self.close(*key, resources);
        }
    }

    /// Releases several reservations of users at once. A summary tear cannot be confirmed for each session: if tears
    /// are to be confirmed, each session gets its own.
    pub(super) fn on_release_many(&mut self, ids: &[u64], resources: &mut Resources) {
        let mut groups: Vec<(Option<SiiHandle>, Vec<Key>)> = Vec::new();
        for id in ids.iter().collect::<BTreeSet<_>>() {
            let Some(key) = self.commands.get(id).copied() else {
                self.on_release(*id, resources);
                continue;
            };
            let Some(session) = invariant!(self.sessions.get(key), "a command has a session") else {
                continue;
            };
            let summarised = session.marks.has(Marks::QNI)
                && session.stage == Stage::Reserved
                && session.next_peer().is_some()
                && !session.is_end()
                && self.config.summary > 0
                && !self.config.repeats_tears();
            if !summarised {
                self.on_release(*id, resources);
                continue;
            }
            let onward = session.next_peer();
            self.end_commands(*id);
            match groups
                .iter_mut()
                .find(|(sii, keys)| *sii == onward && keys.len() <= usize::from(self.config.summary))
            {
                Some((_, keys)) => keys.push(key),
                None => groups.push((onward, vec![key])),
            }
            resources.because(End::User);
            self.release(key, resources);
            self.on_gone(key);
            self.out.event(*id, super::QosEvent::Released);
        }
        for (_, keys) in groups {
            self.tear_together(&keys, u8::MAX, resources);
        }
    }

    /// Further sessions for a refresh to the same peer: those that are due soon. Each call examines at most as many
    /// sessions as one message may list.
    pub(super) fn companions(&mut self, key: Key) -> Lists {
        let mut lists = Lists::default();
        let Some(session) = invariant!(self.sessions.get(key), "a refresh has a session") else {
            return lists;
        };
        let (Some(sii), nslp, direction) = (session.next_peer(), session.nslp_next, session.direction) else {
            return lists;
        };
        let period = core::time::Duration::from_millis(session.period_out.into());
        let soon = self.now + period / 2;
        let mut ring = self.rings.remove(&sii.0).unwrap_or_default();
        for _ in 0..ring.len().min(usize::from(self.config.summary)) {
            let Some(other) = invariant!(ring.pop_front(), "a ring is not empty") else { break };
            let Some(session) = self.sessions.get_mut(other) else { continue }; // it may have ended since
            if session.next_peer() != Some(sii) {
                continue;
            }
            let may = other != key
                && session.nslp_next == nslp
                && session.direction == direction
                && is_reducible(session)
                && session.rare.bound.is_empty()
                && session.rare.refreshed.is_empty()
                && session.listed < MOST_LISTED
                && session.refresh_at.is_due(soon);
            if may && let Some(rsn) = session.rsn_out {
                lists.push(session.id, rsn);
                session.listed += 1;
                session.refresh_at = (self.now + self.rng.jitter(period, 0.5, 1.5)).into();
            }
            ring.push_back(other);
            if may {
                self.rearm(other);
            }
        }
        if !ring.is_empty() {
            self.rings.insert(sii.0, ring);
        }
        self.counters.summarised += lists.len();
        lists
    }

    /// Stores the next peer of a session.
    pub(super) fn set_next_peer(&mut self, key: Key, sii: SiiHandle) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a peer has a session") else { return };
        if session.next_peer() == Some(sii) {
            return;
        }
        session.set_next_peer(Some(sii));
        if self.config.summary > 0 {
            self.rings.entry(sii.0).or_default().push_back(key);
        }
    }

    /// Sends full RESERVEs for listed sessions that the next peer does not have.
    pub(super) fn on_listed_trouble(&mut self, message: &Message<'_>, arrival: &Arrival) {
        for id in message.session_ids.iter().flat_map(|sessions| sessions.iter()) {
            let Some(key) = self.find(id) else { continue };
            let Some(session) = invariant!(self.sessions.get_mut(key), "a reported key is valid") else {
                continue;
            };
            let ours = session.next_peer() == arrival.sii && session.stage == Stage::Reserved;
            if ours && session.pending.is_empty() {
                session.marks.set(Marks::CONFIRMED, false);
                if !self.ask_previous_peer(key, Then::Whole) {
                    self.send_whole(key, RequestKind::Repair);
                }
                self.rearm(key);
            }
        }
    }
}

/// Whether the next peer is known to have the session, so that the RSN refreshes it.
pub(super) fn is_reducible(session: &Session) -> bool {
    session.stage == Stage::Reserved
        && session.marks.has(Marks::CONFIRMED)
        && !session.marks.has(Marks::FULL_ONLY)
        && !session.marks.has(Marks::UNCOUNTED)
        && !session.is_end()
        && !session.checks_path()
        && session.pending.is_empty()
}
