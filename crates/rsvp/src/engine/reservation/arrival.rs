//! Resv messages that arrive (RFC 2205 §3.1.4; RESV MESSAGE ARRIVES of RFC 2209).

use std::collections::BTreeSet;

use signalbox_core::stamp::{Since, Stamp};
use signalbox_core::{Key, Time, invariant};

use super::branch::{Request, RequestExtra};
use super::context::{Accepted, Outcome, ResvContext, Wanted};
use super::error::ResvErrContents;
use crate::engine::carried::Carried;
use crate::engine::interfaces::Iface;
use crate::engine::merging::{Tears, UpstreamChange};
use crate::engine::path::policy_in;
use crate::engine::receive::Failure;
use crate::engine::session::{NONE, is_application};
use crate::engine::shared::Shared;
use crate::engine::{Admission, Rsvp, merging};
use crate::wire::{
    ErrorCode, ErrorFlags, Filter, Flow, FlowSpec, Message, RsvpHop, Scope, Style, TrafficControlValue,
};

/// ResvErrs that answer one Resv at most. A filter has 12 octets, and the ResvErr about it many more.
const MOST_ERRORS: usize = 64;

impl Rsvp {
    /// Handles a Resv that came by `iface` (RFC 2205 §3.1.4). Returns what of it is reserved now.
    pub(in crate::engine) fn on_resv(
        &mut self,
        message: &Message<'_>,
        iface: Iface,
        resources: &mut dyn Admission,
    ) -> Accepted {
        let Some(hop) = message.hop else { return Accepted::default() };
        // The handle names the interface (RFC 2205 §3.3).
        let Some(oif) = self.interfaces.of_handle(hop.lih) else {
            self.counters.bad_handle += 1;
            tracing::debug!(peer = %hop.addr, handle = hop.lih, reason = "no such interface handle", "Resv dropped");
            return Accepted::default();
        };
        if !self.may_come_by(oif, iface) {
            if let Some(session) = message.session {
                self.wrong_interface(message.kind, &session, hop.addr);
            }
            return Accepted::default();
        }
        if let Some(known) = self.interfaces.get(iface) {
            self.neighbors.proved(hop.addr, known.ifindex);
        }
        if let Some(refusal) = message.refusal {
            self.counters.rejected += 1;
            let failure = Failure::new(refusal.code, refusal.value);
            self.reject_unread(message, hop, oif, failure);
            return Accepted::default();
        }
        let (Some(session), Some(style), Some(period)) =
            (message.session, message.style, message.refresh_period)
        else {
            return Accepted::default(); // the parser requires them
        };
        let mut context = ResvContext::of(message, session, hop, oif);
        let known = self.find_session(&session);
        let has_path = known.and_then(|key| self.sessions.get(key)).is_some_and(|one| one.first != NONE);
        let Some(key) = known.filter(|_| has_path) else {
            let conflict = known.is_none() && self.ports_conflict(&session);
            let code = if conflict { ErrorCode::CONFLICTING_DEST_PORTS } else { ErrorCode::NO_PATH };
            self.reject_all(&mut context, Failure::new(code, 0));
            return context.accepted;
        };
        let in_place = self.sessions.get(key).and_then(|one| one.style);
        if let Some(other) = in_place.filter(|other| *other != style) {
            self.reject_all(&mut context, Failure::style_in_place(other));
            return context.accepted;
        }
        let Some(next) = self.share_hop(RsvpHop { lih: 0, ..hop }) else { return context.accepted };
        let carried = self.carried_of(message);
        let scope = message.scope.filter(|_| style == Style::Wf).map(|scope| self.stored_scope(key, &scope));
        let life = self.interfaces.lifetime(iface, period);
        let expires = Stamp::after(self.now + life);
        let wanted = Wanted {
            session: key,
            style,
            oif,
            hop: next,
            application: None,
            expires,
            scope: scope.as_deref(),
            carried: &carried,
            received: self.received(life, period),
            confirm: message.confirm,
        };
        context.upstream = self.begin_change();
        context.accepted = self.begin_accepted();
        if style == Style::Ff {
            self.take_each(&mut context, &wanted, resources);
        } else {
            self.take_shared(&mut context, &wanted, resources);
        }
        self.recycle_change(context.upstream);
        self.release_hop(next);
        context.accepted
    }

    /// What is stored of a SCOPE: its senders, packed, ascending, each once. If they are more than a session can have, those that
    /// have no path state here are left out.
    fn stored_scope(&self, session: Key, scope: &Scope<'_>) -> Vec<u32> {
        let v6 = self.sessions.get(session).is_some_and(|one| one.v6);
        let of_session = scope.senders().filter(|src| src.is_ipv6() == v6);
        let mut packed: Vec<u32> = of_session.filter_map(|src| self.addresses.find(src)).collect();
        packed.sort_unstable();
        packed.dedup();
        if packed.len() > usize::from(self.config.max_senders_per_session) {
            let known: BTreeSet<u32> = self.senders_of(session).map(|(_, sender)| sender.src).collect();
            packed.retain(|src| known.contains(src));
            packed.shrink_to_fit();
        }
        packed
    }

    /// FF: each flow descriptor succeeds or fails by itself.
    fn take_each(
        &mut self,
        context: &mut ResvContext<'_>,
        wanted: &Wanted<'_>,
        resources: &mut dyn Admission,
    ) {
        let confirm = wanted.confirmation();
        let mut confirmed = Vec::new();
        for flow in context.message.flows() {
            let Some(filter) = flow.filter else { continue };
            let flowspec = match self.read_flowspec(&flow) {
                Ok(flowspec) => flowspec,
                Err(failure) => {
                    self.reject_flow(context, (failure, false), &flow, &[filter]);
                    continue;
                }
            };
            let sender = self.find_sender(wanted.session, &filter);
            let routed =
                sender.filter(|sender| self.senders.get(*sender).is_some_and(|s| s.leaves_by(wanted.oif)));
            let Some(sender) = routed else {
                let failure = Failure::new(ErrorCode::NO_SENDER, 0);
                self.reject_flow(context, (failure, false), &flow, &[filter]);
                continue;
            };
            let of = (Some(sender), wanted.oif);
            let flowspec = self.completed(flowspec, wanted.session, of);
            match self.reserve(&mut context.upstream, wanted, Some(sender), &[], &flowspec, resources) {
                Outcome::Refreshed { branch } => {
                    self.counters.resvs_refreshed += 1;
                    context.accepted.branches.push(branch);
                }
                Outcome::Changed { branch, largest } => {
                    self.counters.resvs_taken += 1;
                    tracing::debug!(session = %context.session, sender = %filter, peer = %context.hop.addr, "reservation state changed");
                    context.accepted.branches.push(branch);
                    if confirm.is_some() && !largest {
                        confirmed.push(sender);
                    } else {
                        context.upstream.confirm(sender);
                    }
                }
                Outcome::Failed(failure, in_place) => {
                    self.reject_flow(context, (failure, in_place), &flow, &[filter]);
                }
            }
        }
        // A message may name a sender many times.
        confirmed.sort_unstable();
        confirmed.dedup();
        if let Some(asked) = &confirm {
            self.send_confirmations(wanted.session, wanted.style, asked, &confirmed);
        }
        let upstream = core::mem::take(&mut context.upstream);
        self.send_upstream(upstream, wanted.session, Tears::Send, confirm);
    }

    /// SE and WF: one flowspec for all senders.
    fn take_shared(
        &mut self,
        context: &mut ResvContext<'_>,
        wanted: &Wanted<'_>,
        resources: &mut dyn Admission,
    ) {
        let message = context.message;
        let Some(flow) = message.flows().next() else { return };
        let flowspec = match self.read_flowspec(&flow) {
            Ok(flowspec) => flowspec,
            Err(failure) => {
                let filters = context.filters();
                return self.reject_flow(context, (failure, false), &flow, &filters);
            }
        };
        let flowspec = self.completed(flowspec, wanted.session, (None, wanted.oif));
        if wanted.style == Style::Wf
            && wanted.confirm.is_none()
            && let Some(key) = self.find_branch(wanted.session, None, wanted.oif)
            && self.refresh_request(key, wanted, &[], &flowspec)
        {
            self.counters.resvs_refreshed += 1;
            context.accepted.branches.push(key);
            return;
        }
        let mut senders = core::mem::take(&mut context.accepted.senders);
        let mut named = 0;
        if wanted.style == Style::Se {
            let filters = message.flows().filter_map(|flow| flow.filter).inspect(|_| named += 1);
            senders.extend(filters.filter_map(|filter| self.find_sender(wanted.session, &filter)));
        } else {
            senders.extend(self.senders_of(wanted.session).map(|(key, _)| key));
        }
        // Senders that are not known, or whose data leave by another interface, are ignored without an error.
        senders.retain(|key| self.senders.get(*key).is_some_and(|sender| sender.leaves_by(wanted.oif)));
        context.accepted.partial |= senders.len() < named;
        senders.sort_unstable();
        senders.dedup();
        if senders.is_empty() {
            let failure = Failure::new(ErrorCode::NO_SENDER, 0);
            let filters = context.filters();
            return self.reject_flow(context, (failure, false), &flow, &filters);
        }
        match self.reserve(&mut context.upstream, wanted, None, &senders, &flowspec, resources) {
            Outcome::Refreshed { branch } => {
                self.counters.resvs_refreshed += 1;
                context.accepted.branches.push(branch);
            }
            Outcome::Changed { branch, largest } => {
                self.counters.resvs_taken += 1;
                tracing::debug!(session = %context.session, style = %wanted.style, peer = %context.hop.addr, "reservation state changed");
                context.accepted.branches.push(branch);
                let asked = wanted.confirmation();
                let mut upstream = core::mem::take(&mut context.upstream);
                upstream.confirm_all(&senders);
                self.send_upstream(upstream, wanted.session, Tears::Send, asked.filter(|_| largest));
                if let Some(asked) = asked.filter(|_| !largest) {
                    self.send_confirmation(wanted.session, wanted.style, &asked, &senders);
                }
            }
            Outcome::Failed(failure, in_place) => {
                let filters = context.filters();
                self.reject_flow(context, (failure, in_place), &flow, &filters);
            }
        }
        context.accepted.senders = senders;
    }

    /// Makes, changes or refreshes the request of one next hop: with FF for `sender`, else for `senders` (with WF all whose
    /// data leave by the interface). What goes upstream is recorded before, and not sent yet.
    pub(in crate::engine) fn reserve(
        &mut self,
        upstream: &mut UpstreamChange,
        wanted: &Wanted<'_>,
        sender: Option<Key>,
        senders: &[Key],
        flowspec: &FlowSpec,
        resources: &mut dyn Admission,
    ) -> Outcome {
        let branch = self.find_branch(wanted.session, sender, wanted.oif);
        if let Some(key) = branch
            && wanted.confirm.is_none()
            && self.refresh_request(key, wanted, senders, flowspec)
        {
            return Outcome::Refreshed { branch: key };
        }
        if !self.is_compatible(wanted.session, sender, wanted.hop, branch, flowspec) {
            let value = TrafficControlValue::SERVICE_CONFLICT.0;
            let standing = branch.is_some();
            return Outcome::Failed(Failure::new(ErrorCode::TRAFFIC_CONTROL, value), standing);
        }
        match sender {
            Some(sender) => self.record_sender(upstream, sender),
            None => self.record_session(upstream, wanted.session),
        }
        let known =
            branch.is_some_and(|key| self.branches.get(key).is_some_and(|b| b.request(wanted.hop).is_some()));
        let carried = |node: &Self, branch: Option<Key>| {
            let request = branch.and_then(|key| node.branches.get(key)?.request(wanted.hop));
            request.map_or_else(Vec::new, |request| request.carried().to_vec())
        };
        let before = carried(self, branch);
        let outcome = match branch {
            Some(key) if known => self.change_request(key, wanted, senders, flowspec, resources),
            Some(key) => self.add_request(key, wanted, senders, flowspec, resources),
            None => self.new_branch(wanted, sender, senders, flowspec, resources),
        };
        // A change of policy goes upstream at once (RFC 2750 §3.2).
        if let Outcome::Changed { branch, .. } = outcome
            && carried(self, Some(branch)) != before
        {
            upstream.force(sender);
        }
        outcome
    }

    /// Refreshes a request; `false`: it differs from the former one.
    fn refresh_request(
        &mut self,
        key: Key,
        wanted: &Wanted<'_>,
        senders: &[Key],
        flowspec: &FlowSpec,
    ) -> bool {
        let Some(branch) = invariant!(self.branches.get_mut(key), "a refreshed reservation stands") else {
            return false;
        };
        let installed = branch.is_installed();
        let Some(request) = branch.request_mut(wanted.hop) else { return false };
        let same = installed
            && *request.flowspec == *flowspec
            && request.scope() == wanted.scope
            && (wanted.style != Style::Se || senders.iter().all(|sender| request.names(*sender)));
        let repeated = same
            && match &mut request.extra {
                Some(extra) => extra.carried.repeat(wanted.carried, wanted.received),
                None => wanted.carried.is_empty(),
            };
        if !repeated {
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
        self.report_reduction(key, wanted.hop);
        true
    }

    /// Whether the service can be merged with the other requests for the same senders.
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
                // A next hop may replace its own former request.
                Some(key) == branch && request.hop == hop
                    || merging::compare(&request.flowspec, flowspec).is_ok()
            })
        };
        match sender.and_then(|sender| self.senders.get(sender)) {
            Some(sender) => self.branches_of(sender).all(|(key, other)| fits(key, other)),
            None => self.shared_branches(session).all(|(key, other)| fits(key, other)),
        }
    }

    fn request_of(
        (shared, now): (&mut Shared, Time),
        wanted: &Wanted<'_>,
        senders: &[Key],
        flowspec: &FlowSpec,
    ) -> Request {
        let plain = wanted.style != Style::Se
            && wanted.scope.is_none()
            && wanted.carried.is_empty()
            && wanted.application.is_none();
        let extra = (!plain).then(|| {
            let named = if wanted.style == Style::Se { senders } else { &[] };
            Box::new(RequestExtra {
                senders: named.iter().map(|sender| (*sender, wanted.expires)).collect(),
                scope: wanted.scope.map(<[u32]>::to_vec),
                carried: Carried::of(wanted.carried, wanted.received),
                application: wanted.application,
                since: Since::of(now),
            })
        });
        let flowspec = shared.flowspec(flowspec);
        Request { hop: wanted.hop, expires: wanted.expires, flowspec, extra }
    }

    fn new_branch(
        &mut self,
        wanted: &Wanted<'_>,
        sender: Option<Key>,
        senders: &[Key],
        flowspec: &FlowSpec,
        resources: &mut dyn Admission,
    ) -> Outcome {
        let request = Self::request_of((&mut self.shared, self.now), wanted, senders, flowspec);
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
        Outcome::Changed { branch: key, largest: true }
    }

    fn add_request(
        &mut self,
        key: Key,
        wanted: &Wanted<'_>,
        senders: &[Key],
        flowspec: &FlowSpec,
        resources: &mut dyn Admission,
    ) -> Outcome {
        let Some(branch) = invariant!(self.branches.get_mut(key), "an extended branch stands") else {
            return Outcome::Failed(Failure::new(ErrorCode::RSVP_SYSTEM, 0), false);
        };
        if branch.len() >= usize::from(self.config.max_next_hops) {
            self.counters.reservations_full += 1;
            return Outcome::Failed(Failure::new(ErrorCode::RSVP_SYSTEM, 0), true);
        }
        branch.add(Self::request_of((&mut self.shared, self.now), wanted, senders, flowspec));
        if !is_application(wanted.hop) {
            self.hops.retain(wanted.hop);
        }
        if let Err(failure) = self.install(key, resources) {
            let added = self.branches.get_mut(key).and_then(|branch| branch.remove(wanted.hop));
            if let Some(request) = invariant!(added, "a request that is refused was added") {
                self.release_hop(request.hop);
            }
            return Outcome::Failed(failure, true);
        }
        self.arm_branch(key);
        Outcome::Changed { branch: key, largest: self.is_largest(key, wanted.hop) }
    }

    fn change_request(
        &mut self,
        key: Key,
        wanted: &Wanted<'_>,
        senders: &[Key],
        flowspec: &FlowSpec,
        resources: &mut dyn Admission,
    ) -> Outcome {
        let gone = Outcome::Failed(Failure::new(ErrorCode::RSVP_SYSTEM, 0), false);
        let Some(branch) = invariant!(self.branches.get_mut(key), "a changed reservation stands") else {
            return gone;
        };
        let mut new = Self::request_of((&mut self.shared, self.now), wanted, senders, flowspec);
        let Some(request) = invariant!(branch.request_mut(wanted.hop), "a changed request stands") else {
            return gone;
        };
        if !request.carried().is_empty()
            && let Some(extra) = &request.extra
        {
            new.extra().carried = extra.carried.after(wanted.carried, wanted.received);
        }
        if let (Some(new), Some(old)) = (&mut new.extra, &request.extra) {
            new.since = old.since;
        }
        // Senders that this message does not name stay until they expire.
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
        // Only a confirmation is requested: traffic control has nothing to do.
        let installed = branch.is_installed();
        if !(unchanged && installed)
            && let Err(failure) = self.install(key, resources)
        {
            let branch = self.branches.get_mut(key);
            let in_place = branch.as_ref().is_some_and(|branch| branch.grant().is_some());
            let changed = branch.and_then(|branch| branch.request_mut(wanted.hop));
            if let Some(request) = invariant!(changed, "a request stands after its change is refused") {
                // The former request stays, and this message refreshed it.
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
        Outcome::Changed { branch: key, largest: self.is_largest(key, wanted.hop) }
    }

    /// Whether a next hop requests more than all others at the interface.
    fn is_largest(&self, key: Key, hop: u32) -> bool {
        let Some(branch) =
            invariant!(self.branches.get(key), "requests are compared in a reservation that stands")
        else {
            return false;
        };
        let Some(own) = invariant!(branch.request(hop), "a compared request stands") else { return false };
        branch
            .requests()
            .filter(|one| one.hop != hop)
            .all(|one| merging::exceeds(&own.flowspec, &one.flowspec))
    }

    fn read_flowspec(&self, flow: &Flow<'_>) -> Result<FlowSpec, Failure> {
        let value = TrafficControlValue::BAD_FLOWSPEC.0;
        let raw = flow.flowspec.ok_or(Failure::new(ErrorCode::TRAFFIC_CONTROL, value))?;
        raw.read().map_err(|fault| Failure::new(ErrorCode::TRAFFIC_CONTROL, fault.value.0))
    }

    /// Answers a flow descriptor that cannot be granted with a ResvErr (RFC 2205 §3.1.8). `true`: a reservation is in
    /// place all the same.
    fn reject_flow(
        &mut self,
        context: &mut ResvContext<'_>,
        (failure, in_place): (Failure, bool),
        flow: &Flow<'_>,
        filters: &[Filter],
    ) {
        self.counters.rejected += 1;
        context.accepted.partial = true;
        tracing::debug!(session = %context.session, peer = %context.hop.addr, code = %failure.code, value = failure.value, "reservation refused");
        if context.errors >= MOST_ERRORS {
            self.counters.errors_limited += 1;
            return;
        }
        context.errors += 1;
        let flags = if in_place { ErrorFlags::IN_PLACE } else { ErrorFlags::default() };
        let ResvContext { message, session, hop, oif, .. } = &*context;
        self.answer_resv(message, session, (*hop, *oif), (failure, flags), flow, filters);
    }

    /// Every flow descriptor of a Resv fails alike; each has its own ResvErr (RFC 2205 §3.1.8).
    fn reject_all(&mut self, context: &mut ResvContext<'_>, failure: Failure) {
        let message = context.message;
        if message.style == Some(Style::Ff) {
            for flow in message.flows() {
                let filters: Vec<Filter> = flow.filter.into_iter().collect();
                self.reject_flow(context, (failure, false), &flow, &filters);
            }
        } else if let Some(flow) = message.flows().next() {
            let filters = context.filters();
            self.reject_flow(context, (failure, false), &flow, &filters);
        }
    }

    /// Reports the failure of a request to an application of this node.
    pub(in crate::engine) fn report_failure_to_application(
        &mut self,
        wanted: &Wanted<'_>,
        failure: Failure,
        in_place: bool,
        flowspec: &FlowSpec,
        filters: Vec<Filter>,
    ) {
        let Some(session) = invariant!(
            self.sessions.get(wanted.session).map(|one| self.session_of(one)),
            "an application's request is for a session that stands"
        ) else {
            return;
        };
        let flags = if in_place { ErrorFlags::IN_PLACE } else { ErrorFlags::default() };
        self.send_resv_err(ResvErrContents {
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
