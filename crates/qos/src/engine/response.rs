//! RESPONSEs, and the requests that wait for them (RFC 5974 §5.4.3, §5.2.4).

use signalbox_core::Direction;
use signalbox_core::service::SendError;
use signalbox_core::slab::Key;
use signalbox_resources::Resources;

use super::Qos;
use super::compose::{Extra, Form, Target, generic};
use super::event::{Failure, HopGrant};
use super::outbox::{Parcel, Purpose};
use super::parked::Meta;
use super::rmf;
use super::session::{Marks, Pending, Stage, Want};
use crate::wire::{GenericFlags, Hops, Info, InfoClass, InfoSpec, Message, MessageType, Rsn, Source};

impl Qos {
    pub(super) fn on_response(&mut self, message: &Message<'_>, meta: &Meta, resources: &mut Resources) {
        let Some(info) = message.info else { return };
        let Some(key) = self.find(meta.session) else {
            self.counters.stray_responses += 1;
            return;
        };
        let epoch = self.epoch;
        let Some(session) = self.sessions.get_mut(key) else { return };
        // RESPONSEs to RESERVEs come against them; those to QUERYs with RESERVE-INIT come with them.
        let about_reserve = meta.mri.direction() != session.mri.direction();
        let own = message.rii.and_then(|rii| session.pending.iter().position(|p| p.rii == rii));
        let passed = message.rii.is_some_and(|rii| session.passed(self.now, rii));
        let current = session.rsn_out.map(|number| Rsn { number, epoch });
        let by_rsn = about_reserve && message.rsn.is_some() && message.rsn == current;
        if own.is_none() && !passed && !by_rsn {
            self.counters.stray_responses += 1;
            return;
        }
        if message.generic.contains(GenericFlags::BREAK) {
            session.marks.set(Marks::BREAK, true);
        }
        // What an old branch still answers says nothing of the new one, unless it is the old one (§5.2.5.2).
        let from_old = own.is_none() && session.old_branches.iter().any(|old| Some(old.sii) == meta.sii);
        if about_reserve && !from_old {
            self.heard_onward(key, meta);
        }
        if self.deal_with_refresh_trouble(key, message, meta, info.info, by_rsn) {
            return;
        }
        let succeeded = info.info.class == InfoClass::SUCCESS;
        let Some(session) = self.sessions.get_mut(key) else { return };
        let about_now = by_rsn || message.rii.is_some_and(|rii| session.is_about_now(rii));
        if succeeded && about_reserve && about_now && !from_old && session.stage == Stage::Reserved {
            session.marks.set(Marks::CONFIRMED, true);
            session.marks.set(Marks::STOOD, true);
            session.waits_for = None;
            self.trim(key, message, resources);
        }
        if info.info.is_error() && about_reserve && !self.has(key, Marks::QNI) {
            self.release_unconfirmed(key, resources);
        }
        let want = own.and_then(|at| {
            let session = self.sessions.get_mut(key)?;
            (at < session.pending.len()).then(|| session.pending.swap_remove(at).want)
        });
        // Success stops at the node that put the RII in; an error goes on, by RSN where there is no RII.
        let begins_here = self.sessions.get(key).is_none_or(|session| session.back.is_none());
        let onwards = (passed && want.is_none()) || (by_rsn && info.info.is_error() && !begins_here);
        if onwards {
            self.pass_response(key, message, meta, &info, passed);
            if info.info == Info::TORN_DOWN {
                self.outlive_confirmation(key);
            }
        }
        let is_qni = self.has(key, Marks::QNI);
        match want {
            Some(want) if succeeded => self.on_success(key, want, message, resources),
            Some(want) if info.info.is_error() => {
                let failure = failure(message, &info);
                self.on_refused(key, want, failure, resources);
            }
            None if is_qni && by_rsn && info.info.is_error() => {
                let failure = failure(message, &info);
                self.fail(key, failure, resources);
            }
            _ => {}
        }
    }

    /// Errors of refreshes concern the node that refreshed, and it can do something about them itself: they go no
    /// further, although §5.4.3 has every error with an RSN forwarded.
    fn deal_with_refresh_trouble(
        &mut self,
        key: Key,
        message: &Message<'_>,
        meta: &Meta,
        info: Info,
        by_rsn: bool,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return true };
        match info {
            Info::ACKNOWLEDGED => {
                session.marks.set(Marks::UNACKNOWLEDGED, false);
                session.pending.retain(|p| p.want != Want::Acknowledge);
                true
            }
            Info::FULL_QSPEC_REQUIRED if by_rsn => {
                session.marks.set(Marks::CONFIRMED, false);
                session.pending.retain(|p| p.want != Want::Acknowledge);
                if session.stage == Stage::Reserved {
                    self.send_whole(key, Want::Repair);
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
                self.on_listed_trouble(message, meta);
                true
            }
            _ => false,
        }
    }

    /// Sends a full RESERVE of a session with an RII of this node's own.
    pub(super) fn send_whole(&mut self, key: Key, want: Want) {
        let rii = self.new_rii(key);
        let extra = Extra { rii: Some(rii), keep: true, ..Extra::default() };
        if let Some(octets) = self.send_reserve(key, Form::Full, extra) {
            self.counters.full_refreshes_sent += 1;
            self.expect(key, rii, want, octets);
        }
    }

    /// A random RII that no request of the session has (§5.3.2).
    pub(super) fn new_rii(&mut self, key: Key) -> u32 {
        loop {
            let rii = self.rng.u32();
            let taken = self.sessions.get(key).is_some_and(|s| {
                s.pending.iter().any(|p| p.rii == rii) || s.passed.iter().any(|p| p.rii == rii)
            });
            if !taken {
                return rii;
            }
        }
    }

    /// A request was sent: it is sent again until a RESPONSE comes or time is over (§5.2.4).
    pub(super) fn expect(&mut self, key: Key, rii: u32, want: Want, octets: Vec<u8>) {
        let interval = self.config.request_retry;
        let gives_up = self.now + self.config.retry_max;
        let repeats = want != Want::Tear || self.config.repeats_tears();
        let retry_at = repeats.then(|| self.now + interval).filter(|at| *at < gives_up);
        let Some(session) = self.sessions.get_mut(key) else { return };
        let rsn = session.rsn_out;
        session.pending.push(Pending { rii, want, rsn, octets, retry_at, interval, gives_up });
    }

    /// Requests that are due to be sent again or given up.
    pub(super) fn step_requests(&mut self, key: Key, resources: &mut Resources) {
        let mut at = 0;
        while let Some(session) = self.sessions.get_mut(key)
            && let Some(pending) = session.pending.get_mut(at)
        {
            if pending.gives_up <= self.now {
                let want = session.pending.swap_remove(at).want;
                self.counters.gave_up += 1;
                self.on_silence(key, want, resources);
                continue;
            }
            at += 1;
            if pending.retry_at.is_none_or(|due| due > self.now) {
                continue;
            }
            pending.interval = pending.interval.saturating_mul(2);
            let next = self.now + pending.interval;
            pending.retry_at = Some(next).filter(|next| *next < pending.gives_up);
            let want = pending.want;
            let rii =
                (!matches!(want, Want::Acknowledge | Want::Init | Want::Farewell)).then_some(pending.rii);
            // While GIST still looks for the next node, the first one is on its way.
            if !session.marks.has(Marks::IN_GIST) {
                let octets = core::mem::take(&mut pending.octets);
                self.send_again(key, &octets, want, rii);
                let slot = self.sessions.get_mut(key).and_then(|s| s.pending.get_mut(at - 1));
                if let Some(pending) = slot {
                    pending.octets = octets;
                }
            }
        }
    }

    /// No RESPONSE came. Nobody else is told of it (§5.3.2).
    fn on_silence(&mut self, key: Key, want: Want, resources: &mut Resources) {
        if want == Want::Acknowledge {
            // §5.4.1: the peer before hears that the one behind is gone.
            self.notify_initiator(key, Info::PATH_TRUNCATED, None);
            if self.has(key, Marks::QNI) {
                self.send_whole(key, Want::Repair);
            }
            return;
        }
        let failure = Failure {
            class: 0,
            code: 0,
            meaning: "no answer".to_owned(),
            ..own_failure(Info::INTERNAL, None)
        };
        self.on_refused(key, want, failure, resources);
    }

    /// The next peer of a session showed itself.
    pub(super) fn heard_onward(&mut self, key: Key, meta: &Meta) {
        if let Some(sii) = meta.sii {
            self.set_onward(key, sii);
        }
    }

    /// A reservation that was never confirmed does not wait for its end when a node further on refused it. Operation
    /// state stays for the tear to come.
    fn release_unconfirmed(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = self.sessions.get(key) else { return };
        if session.stage != Stage::Reserved || session.marks.has(Marks::STOOD) {
            return;
        }
        self.release(key, resources);
        self.set_stage(key, Stage::Torn);
        if let Some(session) = self.sessions.get_mut(key) {
            session.refresh_at = None;
        }
    }

    /// The confirmation of a tear has passed, and what is known of the session can go (§5.4.1); but not before a
    /// repetition could have come, for the confirmation may get lost behind this node.
    fn outlive_confirmation(&mut self, key: Key) {
        let until = self.now + self.config.request_retry.saturating_mul(2);
        let torn = self.sessions.get_mut(key).filter(|session| session.stage == Stage::Torn);
        if let Some(session) = torn
            && session.expires.is_some_and(|at| at > until)
        {
            session.expires = Some(until);
        }
    }

    /// Passes a RESPONSE on towards where its request came from.
    fn pass_response(
        &mut self,
        key: Key,
        message: &Message<'_>,
        meta: &Meta,
        info: &InfoSpec<'_>,
        with_rii: bool,
    ) {
        let Some(session) = self.sessions.get(key) else { return };
        let about_reserve = meta.mri.direction() != session.mri.direction();
        let response = Message {
            generic: generic(session),
            rii: message.rii.filter(|_| with_rii),
            // Of an error the RSN of the peer before this node, who knows only its own (§5.4.3).
            rsn: session.rsn_in.filter(|_| about_reserve && info.info.is_error()),
            info: Some(*info),
            ..*message
        };
        let nslp = if about_reserve { session.nslp_back } else { session.nslp_onward };
        let sii = session.astray().filter(|_| about_reserve);
        let to = Target { session: session.id, mri: meta.mri, nslp, state: meta.state, sii };
        self.send_response(to, &response);
    }

    /// GIST sent what was watched.
    pub(super) fn on_sent(&mut self, parcel: &Parcel) {
        if let Purpose::Request { session, .. } = parcel.purpose
            && let Some(session) = self.sessions.get_mut(session)
        {
            session.marks.set(Marks::IN_GIST, false);
            // Somebody is there after all: the path grew (§5.2.5.1).
            session.marks.set(Marks::LAST, false);
        }
    }

    /// GIST could not send what was watched.
    pub(super) fn on_unsent(&mut self, parcel: &Parcel, error: SendError, resources: &mut Resources) {
        let Purpose::Request { session: key, rii, query } = parcel.purpose else { return };
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.marks.set(Marks::IN_GIST, false);
        // Against the RESERVEs, a QUERY tells nothing of whom they meet.
        let against = query && session.mri.direction() == Direction::Upstream;
        match error {
            SendError::NoNextNode | SendError::FlowEndsHere => {
                if !against {
                    session.marks.set(Marks::LAST, true);
                }
                // The list of nodes that was to go on goes back.
                let hops = Message::parse(&parcel.octets).ok().and_then(|message| message.hops);
                self.take_over_as_last(key, (rii, hops), query, resources);
            }
            SendError::NoStateUpstream => {
                let note = "GIST has no way towards the flow's source";
                self.unsendable(key, rii, Info::NO_REVERSE_STATE, note, resources);
            }
            // What has a retransmission to come may fare better then; a refresh is followed by the next.
            SendError::Overload | SendError::Peer { .. } => {}
            SendError::NoRoute => {
                self.unsendable(key, rii, Info::RESERVATION_FAILURE, "no route to the next node", resources);
            }
            SendError::TooLarge { .. } | SendError::Refused => {
                self.unsendable(key, rii, Info::INTERNAL, "GIST cannot carry the message", resources);
            }
        }
        self.rearm(key);
    }

    /// Nobody is further on: this node answers (§5.2.5.1).
    fn take_over_as_last(
        &mut self,
        key: Key,
        (rii, hops): (Option<u32>, Option<Hops<'_>>),
        query: bool,
        resources: &mut Resources,
    ) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let own = rii.and_then(|rii| session.pending.iter().position(|p| p.rii == rii));
        if let Some(at) = own {
            let want = session.pending.swap_remove(at).want;
            self.on_alone(key, want, resources);
        } else if query {
            self.query_ends_here(key, rii);
        } else if let Some(rii) = rii {
            let info = if session.stage == Stage::Torn { Info::TORN_DOWN } else { Info::RESERVED };
            self.respond(key, rii, info, hops);
        }
    }

    /// GIST cannot send a session's request.
    fn unsendable(&mut self, key: Key, rii: Option<u32>, info: Info, note: &str, resources: &mut Resources) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let source = self.interfaces.on(session.ifindex.unwrap_or_default(), session.mri.dst());
        let source = source.map_or(Source::None, Source::Address);
        let own = rii.and_then(|rii| session.pending.iter().position(|p| p.rii == rii));
        if let Some(at) = own {
            let want = session.pending.swap_remove(at).want;
            let failure = Failure { node: source_text(&source), ..own_failure(info, Some(note)) };
            return self.on_refused(key, want, failure, resources);
        }
        if rii.is_none() && session.marks.has(Marks::CONFIRMED) {
            return; // a refresh: the next one may fare better
        }
        if session.marks.has(Marks::QNI) {
            let failure = Failure { node: source_text(&source), ..own_failure(info, Some(note)) };
            return self.fail(key, failure, resources);
        }
        let response = Message {
            generic: generic(session),
            rii,
            rsn: session.rsn_in,
            info: Some(InfoSpec { source, ..InfoSpec::from(info) }),
            note: Some(note),
            ..Message::new(MessageType::RESPONSE)
        };
        let to = Target::towards_initiator(session);
        self.send_response(to, &response);
        self.release_unconfirmed(key, resources);
    }
}

/// What a user reads of where an INFO-SPEC comes from.
pub(super) fn source_text(source: &Source<'_>) -> Option<String> {
    match source {
        Source::None | Source::Other { .. } => None,
        Source::Address(address) => Some(address.to_string()),
        Source::Name(name) => Some((*name).to_owned()),
    }
}

/// What a user reads of an error that this node found.
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

/// What a user reads of an error.
pub(super) fn failure(message: &Message<'_>, info: &InfoSpec<'_>) -> Failure {
    Failure {
        class: info.info.class.0,
        code: info.info.code,
        meaning: info.info.to_string(),
        node: source_text(&info.source),
        rule: message.note.map(str::to_owned),
        available: message.qspec.and_then(rmf::available_rate),
        hops: message.hops.map(|hops| hops.iter().map(HopGrant::from).collect()).unwrap_or_default(),
    }
}
