//! RESPONSEs, and the requests that wait for them (RFC 5974 §5.4.3, §5.2.4).

use core::net::IpAddr;

use signalbox_core::service::SendError;
use signalbox_core::slab::Key;
use signalbox_core::stamp::Moment;
use signalbox_core::{Direction, SessionChange, invariant};
use signalbox_resources::{End, Resources};

use super::Qos;
use super::compose::{Extra, Form, Target, generic_back};
use super::event::{Failure, HopGrant};
use super::outbox::{Parcel, Purpose};
use super::path_check::Then;
use super::rmf;
use super::session::{Marks, Pending, RequestKind, Stage};
use super::waiting::Arrival;
use crate::wire::{GenericFlags, Hops, Info, InfoClass, InfoSpec, Message, MessageType, Rsn, Source};

impl Qos {
    pub(super) fn on_response(
        &mut self,
        message: &Message<'_>,
        arrival: &Arrival,
        resources: &mut Resources,
    ) {
        let Some(info) = message.info else { return };
        let Some(key) = self.find(arrival.session) else {
            self.counters.stray_responses += 1;
            tracing::debug!(session = %arrival.session, reason = "session is not known", "RESPONSE dropped");
            return;
        };
        let epoch = self.epoch;
        let Some(session) = invariant!(self.sessions.get_mut(key), "a RESPONSE's key is valid") else {
            return;
        };
        // A RESPONSE to a RESERVE comes in the opposite direction. One to a QUERY with RESERVE-INIT comes in the
        // direction of the RESERVEs.
        let about_reserve = arrival.mri.direction() != session.direction;
        let own = message.rii.and_then(|rii| session.pending.iter().position(|p| p.rii == rii));
        let passed = message.rii.is_some_and(|rii| session.passed(self.now, rii));
        let current = session.rsn_out.map(|number| Rsn { number, epoch });
        let by_rsn = about_reserve && message.rsn.is_some() && message.rsn == current;
        let of_refresh = message.rii.is_some() && message.rii == session.rare.circling;
        if of_refresh && info.info.class == InfoClass::SUCCESS {
            return;
        }
        if own.is_none() && !passed && !by_rsn {
            self.counters.stray_responses += 1;
            tracing::debug!(
                session = %arrival.session,
                peer = ?arrival.sii,
                reason = "no request waits for it",
                "RESPONSE dropped"
            );
            return;
        }
        // A RESPONSE of an old branch does not confirm the new one (§5.2.5.2).
        let from_old =
            own.is_none() && session.rare.old_branches.iter().any(|old| Some(old.sii) == arrival.sii);
        if about_reserve && !from_old {
            self.note_next_peer(key, arrival);
        }
        let succeeded = info.info.class == InfoClass::SUCCESS;
        if succeeded && about_reserve && !from_old {
            self.note_gaps(key, Marks::BREAK_BEHIND, message.generic, passed && own.is_none());
        }
        if self.deal_with_refresh_trouble(key, message, arrival, info.info, by_rsn) {
            return;
        }
        tracing::debug!(
            session = %arrival.session,
            peer = ?arrival.sii,
            info = %info.info,
            own = own.is_some(),
            "RESPONSE"
        );
        let Some(session) = invariant!(self.sessions.get_mut(key), "a RESPONSE ends no session") else {
            return;
        };
        let about_now = by_rsn || message.rii.is_some_and(|rii| session.is_about_now(rii));
        if succeeded && about_reserve && about_now && !from_old && session.stage == Stage::Reserved {
            if !session.marks.has(Marks::CONFIRMED) {
                self.changes.note(|| SessionChange::changed(session.id.to_string()));
            }
            session.marks.set(Marks::CONFIRMED, true);
            session.marks.set(Marks::ONCE_CONFIRMED, true);
            session.marks.set(Marks::UNANSWERED, false);
            session.rare.change(|rare| rare.waits_for = None);
            self.trim(key, message, resources);
        }
        if info.info.is_error() && about_reserve {
            resources.because(End::RefusedBeyond(source_address(&info.source)));
            if !self.has(key, Marks::QNI) {
                self.release_unconfirmed(key, resources);
            }
        }
        let kind = own.and_then(|at| {
            let session = invariant!(self.sessions.get_mut(key), "an own request stays")?;
            (at < session.pending.len()).then(|| session.pending.swap_remove(at).kind)
        });
        // A success ends at the node that inserted the RII. An error is forwarded, by RSN where it has no RII.
        let begins_here = self.sessions.get(key).is_none_or(|session| session.previous_peer().is_none());
        // A repair may be the request of another node, too.
        let answers_other = passed && matches!(kind, None | Some(RequestKind::Repair));
        let onwards = answers_other || (by_rsn && info.info.is_error() && !begins_here);
        if onwards {
            self.pass_response(key, message, arrival, &info, passed);
            if info.info == Info::TORN_DOWN {
                self.outlive_confirmation(key);
            }
        }
        let is_qni = self.has(key, Marks::QNI);
        match kind {
            Some(kind) if succeeded => self.on_success(key, kind, message, resources),
            Some(kind) if info.info.is_error() => {
                let failure = failure(message, &info);
                self.on_refused(key, kind, failure, resources);
            }
            None if is_qni && by_rsn && info.info.is_error() => {
                let failure = failure(message, &info);
                self.fail(key, failure, resources);
            }
            _ => {}
        }
    }

    /// Stores BREAK of a message of the previous or the next peer. The previous peer is informed of a change by a RESPONSE to
    /// its last RESERVE, since a repair or a refresh behind it has no other answer for it; unless the message itself is
    /// forwarded to it (`passed`).
    pub(super) fn note_gaps(&mut self, key: Key, side: Marks, generic: GenericFlags, passed: bool) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a gap has a session") else { return };
        let before = session.has_gaps();
        session.marks.set(side, generic.contains(GenericFlags::BREAK));
        let changed = session.has_gaps() != before && session.stage == Stage::Reserved;
        if !changed || passed || session.previous_peer().is_none() || session.rsn_in.is_none() {
            return;
        }
        let Some(session) = invariant!(self.sessions.get(key), "a gap ends no session") else { return };
        let response = Message {
            generic: generic_back(session),
            rsn: session.rsn_in.get(),
            info: Some(InfoSpec { source: self.own_source(session), ..InfoSpec::from(Info::REFRESHED) }),
            ..Message::new(MessageType::RESPONSE)
        };
        self.send_response(Target::towards_initiator(session), &response);
    }

    /// Handles errors of refreshes. The node that sent the refresh corrects them itself. They are not forwarded,
    /// although RFC 5974 §5.4.3 forwards each error with an RSN.
    fn deal_with_refresh_trouble(
        &mut self,
        key: Key,
        message: &Message<'_>,
        arrival: &Arrival,
        info: Info,
        by_rsn: bool,
    ) -> bool {
        let Some(session) = invariant!(self.sessions.get_mut(key), "an error has a session") else {
            return true;
        };
        match info {
            Info::ACKNOWLEDGED => {
                session.marks.set(Marks::UNACKNOWLEDGED, false);
                session.pending.retain(|p| p.kind != RequestKind::Acknowledgment);
                true
            }
            Info::FULL_QSPEC_REQUIRED if by_rsn => {
                session.marks.set(Marks::CONFIRMED, false);
                session.pending.retain(|p| p.kind != RequestKind::Acknowledgment);
                if session.stage == Stage::Reserved && !self.ask_previous_peer(key, Then::Whole) {
                    self.send_whole(key, RequestKind::Repair);
                }
                true
            }
            Info::NO_REDUCED_REFRESH if by_rsn => {
                session.marks.set(Marks::FULL_ONLY, true);
                if session.stage == Stage::Reserved {
                    self.send_refresh(key);
                }
                true
            }
            Info::UNKNOWN_LISTED_SESSION | Info::LISTED_RSN_MISMATCH if by_rsn => {
                self.on_listed_trouble(message, arrival);
                true
            }
            _ => false,
        }
    }

    /// Sends a full RESERVE of a session with an RII of this node, or with that of a request that waits for the new route.
    pub(super) fn send_whole(&mut self, key: Key, kind: RequestKind) {
        let until = self.now + self.config.retry_max;
        let request = self.sessions.get_mut(key).and_then(|session| {
            let request = session.rare.change(|rare| rare.request.take())?;
            session.note(request.rii, until, session.hops.unwrap_or_default());
            Some((request.rii, request.hops))
        });
        // Its RESPONSE shows the user the path as it is now.
        let (rii, hops) = request.unwrap_or_else(|| (self.new_rii(key), self.own_hops(key)));
        let extra = Extra {
            rii: Some(rii),
            hops: Hops::from_octets(&hops).filter(|_| !hops.is_empty()),
            keep: true,
            ..Extra::default()
        };
        if let Some(octets) = self.send_reserve(key, Form::Full, extra) {
            self.counters.full_refreshes_sent += 1;
            self.expect(key, rii, kind, octets);
        }
    }

    /// A random RII that no request of the session has (RFC 5974 §5.3.2).
    pub(super) fn new_rii(&mut self, key: Key) -> u32 {
        loop {
            let rii = self.rng.u32();
            let taken = self.sessions.get(key).is_some_and(|s| s.has_rii(rii));
            if !taken {
                return rii;
            }
        }
    }

    /// Stores a request that was sent. It is retransmitted until a RESPONSE comes or QOSNSLP_RETRY_MAX is over (RFC
    /// 5974 §5.2.4).
    pub(super) fn expect(&mut self, key: Key, rii: u32, kind: RequestKind, octets: Vec<u8>) {
        let interval = self.config.request_retry;
        let gives_up = self.now + self.config.retry_max;
        let repeats = kind != RequestKind::Tear || self.config.repeats_tears();
        let retry_at = repeats.then(|| self.now + interval).filter(|at| *at < gives_up);
        let Some(session) = invariant!(self.sessions.get_mut(key), "a request has a session") else { return };
        let rsn = session.rsn_out;
        session.pending.push(Pending { rii, kind, rsn, octets, retry_at, interval, gives_up });
    }

    /// Retransmits or gives up the requests that are due.
    pub(super) fn step_requests(&mut self, key: Key, resources: &mut Resources) {
        let mut at = 0;
        while let Some(session) = self.sessions.get_mut(key)
            && let Some(pending) = session.pending.get_mut(at)
        {
            if session.stage == Stage::Torn && !pending.kind.outlives() {
                session.pending.swap_remove(at);
                continue;
            }
            if pending.gives_up <= self.now {
                let (id, kind) = (session.id, session.pending.swap_remove(at).kind);
                self.counters.gave_up += 1;
                tracing::debug!(session = %id, request = ?kind, reason = "no RESPONSE", "request given up");
                self.on_silence(key, kind, resources);
                continue;
            }
            at += 1;
            if pending.retry_at.is_none_or(|due| due > self.now) {
                continue;
            }
            pending.interval = pending.interval.saturating_mul(2);
            let next = self.now + pending.interval;
            pending.retry_at = Some(next).filter(|next| *next < pending.gives_up);
            let kind = pending.kind;
            let rii = (!matches!(
                kind,
                RequestKind::Acknowledgment | RequestKind::ReserveInit | RequestKind::ReleaseNotice
            ))
            .then_some(pending.rii);
            // GIST still looks for the next node, and has the first copy.
            if !session.marks.has(Marks::IN_GIST) {
                let octets = core::mem::take(&mut pending.octets);
                self.send_again(key, &octets, kind, rii);
                let slot = invariant!(
                    self.sessions.get_mut(key).and_then(|s| s.pending.get_mut(at - 1)),
                    "a request that is repeated stays"
                );
                if let Some(pending) = slot {
                    pending.octets = octets;
                }
            }
        }
    }

    /// Handles a request without a RESPONSE. No other node is informed (RFC 5974 §5.3.2).
    fn on_silence(&mut self, key: Key, kind: RequestKind, resources: &mut Resources) {
        if kind == RequestKind::Acknowledgment {
            // §5.4.1: the previous peer is informed that the path is truncated.
            self.notify_initiator(key, Info::PATH_TRUNCATED, None);
            if self.has(key, Marks::QNI) {
                self.send_whole(key, RequestKind::Repair);
            }
            return;
        }
        let failure = Failure {
            class: 0,
            code: 0,
            meaning: "no answer".to_owned(),
            ..own_failure(Info::INTERNAL, None)
        };
        self.on_refused(key, kind, failure, resources);
    }

    /// Stores the next peer that a message came from.
    pub(super) fn note_next_peer(&mut self, key: Key, arrival: &Arrival) {
        if let Some(sii) = arrival.sii {
            self.set_next_peer(key, sii);
        }
    }

    /// Releases a reservation that was never confirmed when a node nearer to the QNR refused it. Operation state stays
    /// for the tear that follows.
    fn release_unconfirmed(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get(key), "a refusal has a session") else { return };
        if session.stage != Stage::Reserved || session.marks.has(Marks::ONCE_CONFIRMED) {
            return;
        }
        self.release(key, resources);
        self.set_stage(key, Stage::Torn);
        if let Some(session) = invariant!(self.sessions.get_mut(key), "a release ends no session") {
            session.refresh_at = Moment::NEVER;
            session.rare.change(|rare| rare.path_check = None);
        }
    }

    /// Shortens the life of operation state after the confirmation of a tear was forwarded (RFC 5974 §5.4.1). It stays
    /// as long as a retransmission of the tear can come, because the confirmation may be lost.
    fn outlive_confirmation(&mut self, key: Key) {
        let until = self.now + self.config.request_retry.saturating_mul(2);
        let torn = self.sessions.get_mut(key).filter(|session| session.stage == Stage::Torn);
        if let Some(session) = torn
            && session.expires.get().is_some_and(|at| at > until)
        {
            session.expires = until.into();
        }
    }

    /// Forwards a RESPONSE towards the sender of the request (RFC 5974 §5.4.3).
    fn pass_response(
        &mut self,
        key: Key,
        message: &Message<'_>,
        arrival: &Arrival,
        info: &InfoSpec<'_>,
        with_rii: bool,
    ) {
        if !self.may_pass_back(key, message.rii.filter(|_| with_rii), arrival) {
            return;
        }
        let Some(session) = invariant!(self.sessions.get(key), "a passed RESPONSE has a session") else {
            return;
        };
        let about_reserve = arrival.mri.direction() != session.direction;
        let response = Message {
            generic: generic_back(session),
            rii: message.rii.filter(|_| with_rii),
            // An error carries the RSN of the previous peer, the only one that this peer can match (§5.4.3).
            rsn: session.rsn_in.get().filter(|_| about_reserve && info.info.is_error()),
            info: Some(*info),
            ..*message
        };
        let nslp = if about_reserve { session.nslp_previous } else { session.nslp_next };
        let sii = session.explicit_previous().filter(|_| about_reserve);
        let gist_hops = Some(arrival.hops);
        let to = Target { session: session.id, mri: arrival.mri, nslp, state: arrival.state, sii, gist_hops };
        self.send_response(to, &response);
    }

    /// Handles the report of GIST that a request was sent.
    pub(super) fn on_sent(&mut self, parcel: &Parcel) {
        if let Purpose::Request { session, .. } = parcel.purpose
            && let Some(session) = self.sessions.get_mut(session)
        {
            session.marks.set(Marks::IN_GIST, false);
            // A next node exists: the path has become longer (§5.2.5.1).
            session.marks.set(Marks::LAST_NODE, false);
        }
    }

    /// Handles the report of GIST that a request was not sent.
    pub(super) fn on_unsent(&mut self, parcel: &Parcel, error: SendError, resources: &mut Resources) {
        let Purpose::Request { session: key, rii, query } = parcel.purpose else { return };
        let Some(session) = self.sessions.get_mut(key) else { return }; // it may have ended meanwhile
        session.marks.set(Marks::IN_GIST, false);
        // A QUERY in the direction opposite to the RESERVEs does not show where they end.
        let against = query && session.direction == Direction::Upstream;
        match error {
            SendError::NoNextNode | SendError::FlowEndsHere => {
                if !against {
                    session.marks.set(Marks::LAST_NODE, true);
                }
                // The list of hops that was to be forwarded is returned.
                let hops = Message::parse(&parcel.octets).ok().and_then(|message| message.hops);
                self.take_over_as_last(key, (rii, hops), query, resources);
            }
            SendError::NoStateUpstream => {
                let note = "GIST has no routing state towards the flow's source";
                self.unsendable(key, rii, Info::NO_REVERSE_STATE, note, resources);
            }
            // What stands may survive: the retransmission, or the next refresh, may succeed.
            SendError::Overload | SendError::Peer { .. } | SendError::Unreached(_)
                if session.marks.has(Marks::ONCE_CONFIRMED) => {}
            // The retransmission finds the association, or learns that there will be none.
            SendError::Connecting(_) => {}
            SendError::Overload | SendError::Peer { .. } | SendError::Unreached(_) | SendError::NoRoute => {
                let note = error.to_string();
                self.unsendable(key, rii, Info::RESERVATION_FAILURE, &note, resources);
            }
            SendError::TooLarge { .. } | SendError::Refused => {
                let note = error.to_string();
                self.unsendable(key, rii, Info::INTERNAL, &note, resources);
            }
        }
        self.rearm(key);
    }

    /// Answers a request because no next node exists (RFC 5974 §5.2.5.1).
    fn take_over_as_last(
        &mut self,
        key: Key,
        (rii, hops): (Option<u32>, Option<Hops<'_>>),
        query: bool,
        resources: &mut Resources,
    ) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a last node's key is valid") else {
            return;
        };
        let own = rii.and_then(|rii| session.pending.iter().position(|p| p.rii == rii));
        let of_other = rii.is_some_and(|rii| session.passed(self.now, rii));
        if let Some(at) = own {
            let kind = session.pending.swap_remove(at).kind;
            self.on_alone(key, kind, resources);
            if !of_other {
                return;
            }
        }
        let Some(session) = self.sessions.get(key) else { return }; // that may have ended it
        if query {
            self.query_ends_here(key, rii);
        } else if let Some(rii) = rii {
            let info = if session.stage == Stage::Torn { Info::TORN_DOWN } else { Info::RESERVED };
            self.respond(key, rii, info, hops);
        }
    }

    /// Handles a request that GIST cannot send.
    fn unsendable(&mut self, key: Key, rii: Option<u32>, info: Info, note: &str, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a failure's key is valid") else {
            return;
        };
        let source = self.interfaces.on(session.ifindex.unwrap_or_default(), session.mri().dst());
        let source = source.map_or(Source::None, Source::Address);
        let own = rii.and_then(|rii| session.pending.iter().position(|p| p.rii == rii));
        let of_other = rii.is_some_and(|rii| session.passed(self.now, rii));
        if let Some(at) = own {
            let kind = session.pending.swap_remove(at).kind;
            let failure = Failure { node: source_text(&source), ..own_failure(info, Some(note)) };
            self.on_refused(key, kind, failure, resources);
            if !of_other {
                return;
            }
        }
        let Some(session) = self.sessions.get_mut(key) else { return }; // that may have ended it
        if rii.is_none() && session.marks.has(Marks::CONFIRMED) {
            return; // a refresh: the next one may succeed
        }
        if session.marks.has(Marks::QNI) {
            let failure = Failure { node: source_text(&source), ..own_failure(info, Some(note)) };
            return self.fail(key, failure, resources);
        }
        let response = Message {
            generic: generic_back(session),
            rii,
            rsn: session.rsn_in.get(),
            info: Some(InfoSpec { source, ..InfoSpec::from(info) }),
            note: Some(super::receive::cut(note)),
            ..Message::new(MessageType::RESPONSE)
        };
        let to = Target::towards_initiator(session);
        self.send_response(to, &response);
        self.release_unconfirmed(key, resources);
    }
}

/// The address of the node that an INFO-SPEC comes from, if it has one.
const fn source_address(source: &Source<'_>) -> Option<IpAddr> {
    match source {
        Source::Address(address) => Some(*address),
        Source::None | Source::Name(_) | Source::Other { .. } => None,
    }
}

/// The source of an INFO-SPEC, for users.
pub(super) fn source_text(source: &Source<'_>) -> Option<String> {
    match source {
        Source::None | Source::Other { .. } => None,
        Source::Address(address) => Some(address.to_string()),
        Source::Name(name) => Some((*name).to_owned()),
    }
}

/// An error that this node found, for users.
pub(super) fn own_failure(info: Info, note: Option<&str>) -> Failure {
    Failure {
        class: info.class.0,
        code: info.code,
        meaning: info.to_string(),
        node: None,
        rule: note.map(str::to_owned),
        available: None,
        hops: Vec::new(),
    }
}

/// An error that another node reported, for users.
pub(super) fn failure(message: &Message<'_>, info: &InfoSpec<'_>) -> Failure {
    Failure {
        class: info.info.class.0,
        code: info.info.code,
        meaning: info.info.to_string(),
        node: source_text(&info.source),
        rule: message.note.map(str::to_owned),
        available: message.available.or_else(|| message.qspec.and_then(rmf::available_rate)),
        hops: message.hops.map(|hops| hops.iter().map(HopGrant::from).collect()).unwrap_or_default(),
    }
}
