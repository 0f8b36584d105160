//! Resv messages that arrive (RFC 2205 §3.1.4; RESV MESSAGE ARRIVES of RFC 2209).

use core::net::IpAddr;

use signalbox_core::Key;
use signalbox_core::stamp::Stamp;
use signalbox_resources::Resources;

use super::Rsvp;
use super::branch::{Request, RequestExtra};
use super::forward::{Confirm, Tell};
use super::interfaces::{Place, lifetime};
use super::merge;
use super::path::policy_in;
use super::receive::Failure;
use super::resv_err::Blame;
use super::session::{NONE, is_application};
use crate::wire::{
    self, ErrorCode, ErrorFlags, Filter, Flow, FlowSpec, Message, RsvpHop, Style, TrafficControlValue,
};

/// What one next hop, or an application of this node, asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) session: Key,
    pub(super) style: Style,
    pub(super) oif: Place,
    /// The next hop, shared, or an application of this node ([`is_application`]).
    pub(super) hop: u32,
    pub(super) application: Option<u64>,
    pub(super) expires: Stamp,
    /// Of WF: the senders that it is for, packed and ascending.
    pub(super) scope: Option<&'a [u32]>,
    pub(super) carried: &'a [u8],
    pub(super) confirm: Option<IpAddr>,
}

impl Wanted<'_> {
    /// The confirmation that is asked for.
    pub(super) fn confirmation(&self) -> Option<Confirm> {
        self.confirm.map(|receiver| Confirm { receiver, oif: self.oif, hop: self.hop })
    }
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing new; it lives on.
    Refreshed,
    /// The reservation is new or has changed, and stands; whether it is larger than all others at the interface.
    Changed { largest: bool },
    /// It failed; whether another reservation stands in its place, or its own former one.
    Failed(Failure, bool),
}

impl Rsvp {
    pub(super) fn on_resv(&mut self, message: &Message<'_>, place: Place, resources: &mut Resources) {
        let Some(hop) = message.hop else { return };
        // The handle tells the interface, wherever the message came in (RFC 2205 §3.3).
        let Some(oif) = self.interfaces.of_handle(hop.lih) else {
            self.counters.bad_handle += 1;
            return;
        };
        if let Some(refusal) = message.refusal {
            self.counters.rejected += 1;
            let failure = Failure::new(refusal.code, refusal.value);
            return self.reject_unread(message, hop, oif, failure);
        }
        let (Some(session), Some(style), Some(period)) =
            (message.session, message.style, message.refresh_period)
        else {
            return; // the parser demands them
        };
        let known = self.find_session(&session);
        let has_path = known.and_then(|key| self.sessions.get(key)).is_some_and(|one| one.first != NONE);
        let Some(key) = known.filter(|_| has_path) else {
            let conflict = known.is_none() && self.ports_conflict(&session);
            let code = if conflict { ErrorCode::CONFLICTING_DEST_PORTS } else { ErrorCode::NO_PATH };
            return self.reject_all(message, &session, hop, oif, Failure::new(code, 0));
        };
        let in_place = self.sessions.get(key).and_then(|one| one.style);
        if let Some(other) = in_place.filter(|other| *other != style) {
            return self.reject_all(message, &session, hop, oif, Failure::style_in_place(other));
        }
        let Some(next) = self.share_hop(RsvpHop { lih: 0, ..hop }) else { return };
        let carried = self.carried_of(message);
        let scope = message.scope.map(|scope| {
            let mut packed: Vec<u32> = scope.senders().filter_map(|src| self.addresses.find(src)).collect();
            packed.sort_unstable();
            packed
        });
        let expires = Stamp::after(self.now + lifetime(self.interfaces.cleanup(place), period));
        let wanted = Wanted {
            session: key,
            style,
            oif,
            hop: next,
            application: None,
            expires,
            scope: scope.as_deref(),
            carried: &carried,
            confirm: message.confirm,
        };
        self.lines.clear();
        if style == Style::Ff {
            self.take_each(message, &session, hop, &wanted, resources);
        } else {
            self.take_shared(message, &session, hop, &wanted, resources);
        }
        self.release_hop(next);
    }

    /// FF: each flow descriptor is judged by itself.
    fn take_each(
        &mut self,
        message: &Message<'_>,
        session: &wire::Session,
        hop: RsvpHop,
        wanted: &Wanted<'_>,
        resources: &mut Resources,
    ) {
        let confirm = wanted.confirmation();
        for flow in message.flows() {
            let Some(filter) = flow.filter else { continue };
            let flowspec = match self.read_flowspec(&flow) {
                Ok(flowspec) => flowspec,
                Err(failure) => {
                    self.reject_flow(message, session, hop, wanted.oif, failure, &flow, &[filter]);
                    continue;
                }
            };
            let sender = self.find_sender(wanted.session, &filter);
            let routed =
                sender.filter(|sender| self.senders.get(*sender).is_some_and(|s| s.goes_by(wanted.oif)));
            let Some(sender) = routed else {
                let failure = Failure::new(ErrorCode::NO_SENDER, 0);
                self.reject_flow(message, session, hop, wanted.oif, failure, &flow, &[filter]);
                continue;
            };
            match self.reserve(wanted, Some(sender), &[], &flowspec, resources) {
                Outcome::Refreshed => self.counters.resvs_refreshed += 1,
                Outcome::Changed { largest } => {
                    self.counters.resvs_taken += 1;
                    match confirm {
                        Some(asked) if !largest => {
                            self.send_confirmation(wanted.session, wanted.style, &asked, &[sender]);
                        }
                        _ => self.name(sender),
                    }
                }
                Outcome::Failed(failure, in_place) => {
                    self.reject_reserved(message, session, hop, wanted, failure, in_place, &flow, &[filter]);
                }
            }
        }
        self.tell(wanted.session, Tell::All, confirm);
    }

    /// SE and WF: one flowspec for all senders.
    fn take_shared(
        &mut self,
        message: &Message<'_>,
        session: &wire::Session,
        hop: RsvpHop,
        wanted: &Wanted<'_>,
        resources: &mut Resources,
    ) {
        let Some(flow) = message.flows().next() else { return };
        let flowspec = match self.read_flowspec(&flow) {
            Ok(flowspec) => flowspec,
            Err(failure) => {
                let filters: Vec<Filter> = message.flows().filter_map(|flow| flow.filter).collect();
                return self.reject_flow(message, session, hop, wanted.oif, failure, &flow, &filters);
            }
        };
        if wanted.style == Style::Wf
            && wanted.confirm.is_none()
            && let Some(key) = self.find_branch(wanted.session, None, wanted.oif)
            && self.refresh_request(key, wanted, &[], &flowspec)
        {
            self.counters.resvs_refreshed += 1;
            self.touched.push(key);
            return;
        }
        // Senders that are not known or whose data go another way are left out in silence.
        let mut senders = core::mem::take(&mut self.named);
        senders.clear();
        let mut asked = 0;
        if wanted.style == Style::Se {
            let filters = message.flows().filter_map(|flow| flow.filter).inspect(|_| asked += 1);
            senders.extend(filters.filter_map(|filter| self.find_sender(wanted.session, &filter)));
        } else {
            senders.extend(self.mates(wanted.session).map(|(key, _)| key));
        }
        senders.retain(|key| self.senders.get(*key).is_some_and(|sender| sender.goes_by(wanted.oif)));
        // What was left out may be there when the message comes again: a name does not stand for all of it.
        self.whole &= senders.len() >= asked;
        senders.sort_unstable();
        senders.dedup();
        if senders.is_empty() {
            let failure = Failure::new(ErrorCode::NO_SENDER, 0);
            let filters: Vec<Filter> = message.flows().filter_map(|flow| flow.filter).collect();
            return self.reject_flow(message, session, hop, wanted.oif, failure, &flow, &filters);
        }
        match self.reserve(wanted, None, &senders, &flowspec, resources) {
            Outcome::Refreshed => self.counters.resvs_refreshed += 1,
            Outcome::Changed { largest } => {
                self.counters.resvs_taken += 1;
                let asked = wanted.confirmation();
                for sender in &senders {
                    self.name(*sender);
                }
                self.tell(wanted.session, Tell::All, asked.filter(|_| largest));
                if let Some(asked) = asked.filter(|_| !largest) {
                    self.send_confirmation(wanted.session, wanted.style, &asked, &senders);
                }
            }
            Outcome::Failed(failure, in_place) => {
                self.lines.clear();
                let filters: Vec<Filter> = message.flows().filter_map(|flow| flow.filter).collect();
                self.reject_reserved(message, session, hop, wanted, failure, in_place, &flow, &filters);
            }
        }
        self.named = senders;
    }

    /// Makes, changes or refreshes what one next hop asks for: of FF for `sender`, else for `senders` (of WF all that go
    /// by the interface). What it may change upstream is taken down, not yet told.
    pub(super) fn reserve(
        &mut self,
        wanted: &Wanted<'_>,
        sender: Option<Key>,
        senders: &[Key],
        flowspec: &FlowSpec,
        resources: &mut Resources,
    ) -> Outcome {
        let branch = self.find_branch(wanted.session, sender, wanted.oif);
        if let Some(key) = branch
            && wanted.confirm.is_none()
            && self.refresh_request(key, wanted, senders, flowspec)
        {
            self.touched.push(key);
            return Outcome::Refreshed;
        }
        if !self.is_compatible(wanted.session, sender, wanted.hop, branch, flowspec) {
            let value = TrafficControlValue::SERVICE_CONFLICT.0;
            let standing = branch.is_some();
            return Outcome::Failed(Failure::new(ErrorCode::TRAFFIC_CONTROL, value), standing);
        }
        match sender {
            Some(sender) => self.note(sender, false, false),
            None => self.note_all(wanted.session),
        }
        let known =
            branch.is_some_and(|key| self.branches.get(key).is_some_and(|b| b.request(wanted.hop).is_some()));
        let outcome = match branch {
            Some(key) if known => self.change_request(key, wanted, senders, flowspec, resources),
            Some(key) => self.add_request(key, wanted, senders, flowspec, resources),
            None => self.new_branch(wanted, sender, senders, flowspec, resources),
        };
        if matches!(outcome, Outcome::Changed { .. }) {
            self.touched.extend(self.find_branch(wanted.session, sender, wanted.oif));
        }
        outcome
    }

    /// Lets a request live on; `false` if it is another one.
    fn refresh_request(
        &mut self,
        key: Key,
        wanted: &Wanted<'_>,
        senders: &[Key],
        flowspec: &FlowSpec,
    ) -> bool {
        let Some(branch) = self.branches.get_mut(key) else { return false };
        let installed = branch.is_installed();
        let Some(request) = branch.request_mut(wanted.hop) else { return false };
        let same = installed
            && request.flowspec == *flowspec
            && request.carried() == wanted.carried
            && request.scope() == wanted.scope
            && (wanted.style != Style::Se || senders.iter().all(|sender| request.names(*sender)));
        if !same {
            return false;
        }
        let mut sooner = wanted.expires.min(request.expires) != request.expires;
        request.expires = wanted.expires;
        if let Some(extra) = request.extra.as_mut().filter(|extra| !extra.senders.is_empty()) {
            for (named, expires) in &mut extra.senders {
                if senders.binary_search(named).is_ok() {
                    sooner |= wanted.expires.min(*expires) != *expires;
                    *expires = wanted.expires;
                }
            }
        }
        if sooner {
            self.arm_branch(key);
        } else {
            self.keep_branch(key);
        }
        self.remind_of_reduction(key, wanted.hop);
        true
    }

    /// Whether the service asked for can be merged with what others ask for the same senders.
    fn is_compatible(
        &self,
        session: Key,
        sender: Option<Key>,
        hop: u32,
        branch: Option<Key>,
        flowspec: &FlowSpec,
    ) -> bool {
        let fits = |key: Key, other: &super::branch::Branch| {
            other.requests().all(|request| {
                // Its own former request does not stand in its way.
                Some(key) == branch && request.hop == hop
                    || merge::compare(&request.flowspec, flowspec).is_ok()
            })
        };
        match sender.and_then(|sender| self.senders.get(sender)) {
            Some(sender) => self.branches_of(sender).all(|(key, other)| fits(key, other)),
            None => self.shared_branches(session).all(|(key, other)| fits(key, other)),
        }
    }

    fn request_of(wanted: &Wanted<'_>, senders: &[Key], flowspec: &FlowSpec) -> Request {
        let plain = wanted.style != Style::Se
            && wanted.scope.is_none()
            && wanted.carried.is_empty()
            && wanted.application.is_none();
        let extra = (!plain).then(|| {
            let named = if wanted.style == Style::Se { senders } else { &[] };
            Box::new(RequestExtra {
                senders: named.iter().map(|sender| (*sender, wanted.expires)).collect(),
                scope: wanted.scope.map(<[u32]>::to_vec),
                carried: wanted.carried.to_vec(),
                application: wanted.application,
            })
        });
        Request { hop: wanted.hop, expires: wanted.expires, flowspec: *flowspec, extra }
    }

    fn new_branch(
        &mut self,
        wanted: &Wanted<'_>,
        sender: Option<Key>,
        senders: &[Key],
        flowspec: &FlowSpec,
        resources: &mut Resources,
    ) -> Outcome {
        let request = Self::request_of(wanted, senders, flowspec);
        let opened = self.open_branch(wanted.session, sender, wanted.oif, request, wanted.style);
        let Ok(key) = opened else {
            return Outcome::Failed(Failure::new(ErrorCode::RSVP_SYSTEM, 0), false);
        };
        if !is_application(wanted.hop) {
            self.hops.retain(wanted.hop);
        }
        if let Err(failure) = self.install(key, resources) {
            self.remove_branch(key, resources);
            return Outcome::Failed(failure, false);
        }
        self.arm_branch(key);
        Outcome::Changed { largest: true }
    }

    fn add_request(
        &mut self,
        key: Key,
        wanted: &Wanted<'_>,
        senders: &[Key],
        flowspec: &FlowSpec,
        resources: &mut Resources,
    ) -> Outcome {
        let Some(branch) = self.branches.get_mut(key) else {
            return Outcome::Failed(Failure::new(ErrorCode::RSVP_SYSTEM, 0), false);
        };
        if branch.len() >= usize::from(self.config.max_next_hops) {
            self.counters.reservations_full += 1;
            return Outcome::Failed(Failure::new(ErrorCode::RSVP_SYSTEM, 0), true);
        }
        branch.add(Self::request_of(wanted, senders, flowspec));
        if !is_application(wanted.hop) {
            self.hops.retain(wanted.hop);
        }
        if let Err(failure) = self.install(key, resources) {
            if let Some(request) = self.branches.get_mut(key).and_then(|branch| branch.remove(wanted.hop)) {
                self.release_hop(request.hop);
            }
            return Outcome::Failed(failure, true);
        }
        self.arm_branch(key);
        Outcome::Changed { largest: self.is_largest(key, wanted.hop) }
    }

    fn change_request(
        &mut self,
        key: Key,
        wanted: &Wanted<'_>,
        senders: &[Key],
        flowspec: &FlowSpec,
        resources: &mut Resources,
    ) -> Outcome {
        let gone = Outcome::Failed(Failure::new(ErrorCode::RSVP_SYSTEM, 0), false);
        let Some(branch) = self.branches.get_mut(key) else { return gone };
        let mut new = Self::request_of(wanted, senders, flowspec);
        let Some(request) = branch.request_mut(wanted.hop) else { return gone };
        // Senders that this message does not name stay until their own time is over.
        if wanted.style == Style::Se {
            let kept = request.senders().iter().filter(|(sender, _)| senders.binary_search(sender).is_err());
            let kept: Vec<_> = kept.copied().collect();
            let named = &mut new.extra().senders;
            named.extend(kept);
            named.sort_unstable_by_key(|(sender, _)| *sender);
        }
        let unchanged = request.flowspec == new.flowspec
            && request.carried() == new.carried()
            && request.senders().iter().map(|(sender, _)| sender).eq(new.senders().iter().map(|(s, _)| s));
        let old = core::mem::replace(request, new);
        // Asked for again with the wish of a confirmation only: nothing for traffic control to do.
        let installed = branch.is_installed();
        if !(unchanged && installed)
            && let Err(failure) = self.install(key, resources)
        {
            let branch = self.branches.get_mut(key);
            let in_place = branch.as_ref().is_some_and(|branch| branch.grant().is_some());
            if let Some(request) = branch.and_then(|branch| branch.request_mut(wanted.hop)) {
                // What stood stands, and was asked for again just now.
                *request = old;
                request.expires = wanted.expires;
                if let Some(extra) = &mut request.extra {
                    for (sender, expires) in &mut extra.senders {
                        if senders.binary_search(sender).is_ok() {
                            *expires = wanted.expires;
                        }
                    }
                }
            }
            self.arm_branch(key);
            return Outcome::Failed(failure, in_place);
        }
        self.arm_branch(key);
        Outcome::Changed { largest: self.is_largest(key, wanted.hop) }
    }

    /// Whether a next hop asks for more than all others at the interface.
    fn is_largest(&self, key: Key, hop: u32) -> bool {
        let Some(branch) = self.branches.get(key) else { return false };
        let Some(own) = branch.request(hop) else { return false };
        branch.requests().filter(|one| one.hop != hop).all(|one| merge::exceeds(&own.flowspec, &one.flowspec))
    }

    fn read_flowspec(&self, flow: &Flow<'_>) -> Result<FlowSpec, Failure> {
        let value = TrafficControlValue::BAD_FLOWSPEC.0;
        let raw = flow.flowspec.ok_or(Failure::new(ErrorCode::TRAFFIC_CONTROL, value))?;
        raw.read().map_err(|fault| Failure::new(ErrorCode::TRAFFIC_CONTROL, fault.value.0))
    }

    /// Admission control refused: the next hop hears of it.
    #[expect(clippy::too_many_arguments, reason = "all that the error says")]
    fn reject_reserved(
        &mut self,
        message: &Message<'_>,
        session: &wire::Session,
        hop: RsvpHop,
        wanted: &Wanted<'_>,
        failure: Failure,
        in_place: bool,
        flow: &Flow<'_>,
        filters: &[Filter],
    ) {
        let flags = if in_place { ErrorFlags::IN_PLACE } else { ErrorFlags::default() };
        self.counters.rejected += 1;
        self.answer_resv(message, session, hop, wanted.oif, (failure, flags), flow, filters);
    }

    #[expect(clippy::too_many_arguments, reason = "all that the error says")]
    fn reject_flow(
        &mut self,
        message: &Message<'_>,
        session: &wire::Session,
        hop: RsvpHop,
        oif: Place,
        failure: Failure,
        flow: &Flow<'_>,
        filters: &[Filter],
    ) {
        self.counters.rejected += 1;
        self.answer_resv(message, session, hop, oif, (failure, ErrorFlags::default()), flow, filters);
    }

    /// Every flow descriptor of a Resv fails alike; each has its own ResvErr (RFC 2205 §3.1.8).
    fn reject_all(
        &mut self,
        message: &Message<'_>,
        session: &wire::Session,
        hop: RsvpHop,
        oif: Place,
        failure: Failure,
    ) {
        if message.style == Some(Style::Ff) {
            for flow in message.flows() {
                let filters: Vec<Filter> = flow.filter.into_iter().collect();
                self.reject_flow(message, session, hop, oif, failure, &flow, &filters);
            }
        } else if let Some(flow) = message.flows().next() {
            let filters: Vec<Filter> = message.flows().filter_map(|flow| flow.filter).collect();
            self.reject_flow(message, session, hop, oif, failure, &flow, &filters);
        }
    }

    /// A request of an application of this node failed; it hears of it.
    pub(super) fn blame_application(
        &mut self,
        wanted: &Wanted<'_>,
        failure: Failure,
        in_place: bool,
        flowspec: &FlowSpec,
        filters: Vec<Filter>,
    ) {
        let Some(session) = self.sessions.get(wanted.session).map(|one| self.session_of(one)) else { return };
        let flags = if in_place { ErrorFlags::IN_PLACE } else { ErrorFlags::default() };
        self.send_resv_err(Blame {
            session,
            oif: wanted.oif,
            hop: wanted.hop,
            application: wanted.application,
            failure,
            flags,
            style: wanted.style,
            flowspec: Some(*flowspec),
            filters,
            scope: Vec::new(),
            policy: if failure.code == ErrorCode::POLICY {
                policy_in(wanted.carried)
            } else {
                Box::default()
            },
        });
    }
}
