//! ResvErrs that arrive and leave, and the blockade state that they set (RFC 2205 §3.1.8, §3.5; RERR MESSAGE ARRIVES of
//! RFC 2209).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use signalbox_core::stamp::Stamp;
use signalbox_core::{Key, invariant};

use super::branch::Branch;
use super::policy;
use super::reduce::is_reduction;
use crate::engine::interfaces::Iface;
use crate::engine::io::RsvpEvent;
use crate::engine::merging::AT_ONCE;
use crate::engine::message_ids::SentState;
use crate::engine::output::{Origin, copy_flows};
use crate::engine::path::{LOCAL, Sender};
use crate::engine::receive::Failure;
use crate::engine::session::{Blockade, Blocked, is_application};
use crate::engine::{Admission, Rsvp, merging};
use crate::wire::{
    self, Class, ErrorCode, ErrorFlags, ErrorSpec, Filter, Flow, FlowSpec, Message, MessageType, RsvpHop,
    Style, UserError,
};

/// Contents and destination of a ResvErr of this node.
#[derive(Debug)]
pub(super) struct ResvErrContents {
    pub(in crate::engine) session: wire::Session,
    pub(in crate::engine) oif: Iface,
    /// The next hop, shared, or an application of this node ([`is_application`]).
    pub(in crate::engine) hop: u32,
    pub(in crate::engine) application: Option<u64>,
    pub(in crate::engine) failure: Failure,
    pub(in crate::engine) flags: ErrorFlags,
    pub(in crate::engine) style: Style,
    pub(in crate::engine) flowspec: Option<FlowSpec>,
    pub(in crate::engine) filters: Vec<Filter>,
    pub(in crate::engine) scope: Vec<IpAddr>,
    /// POLICY_DATA objects.
    pub(in crate::engine) policy: Box<[u8]>,
}

/// A ResvErr that is passed on downstream.
#[derive(Debug, Clone, Copy)]
struct PassedError<'a> {
    session: Key,
    message: &'a Message<'a>,
    error: ErrorSpec,
    style: Style,
    /// The senders that it is about and whose previous hop sent it.
    senders: &'a [Key],
    /// Next hops that asked for less than this are not sent the error.
    spared_under: Option<FlowSpec>,
    /// The flowspec that failed, if the message has one.
    failed: Option<FlowSpec>,
    /// The senders of its SCOPE, in ascending order; `None`: it has none, or its style is explicit.
    scope: Option<&'a [IpAddr]>,
    /// Where it came from.
    from: Origin,
}

impl Rsvp {
    /// Reports to a next hop or application that its request failed or ended (RFC 2205 §3.1.8).
    pub(super) fn send_resv_err(&mut self, blame: ResvErrContents) {
        let v6 = blame.session.dest.is_ipv6();
        let Failure { code, value, .. } = blame.failure;
        let told = self.told_of(blame.failure);
        let error = ErrorSpec { node: self.own_address(blame.oif, v6), flags: blame.flags, code, value };
        if is_application(blame.hop) {
            if let Some(id) = blame.application {
                self.out.event(
                    id,
                    RsvpEvent::ResvError {
                        error,
                        told,
                        style: blame.style,
                        flowspec: blame.flowspec,
                        senders: blame.filters,
                        policy: blame.policy,
                    },
                );
            }
            return;
        }
        let Some(next) =
            invariant!(self.hops.lookup(blame.hop).copied(), "an error goes to a next hop that is stored")
        else {
            return;
        };
        let envelope = self.envelope_to(next.addr, blame.oif);
        self.transmit(envelope, MessageType::RESV_ERR, |node, w| {
            w.session(&blame.session, false).hop(&node.hop_at(blame.oif, v6)).error_spec(&error);
            w.body(&told.object());
            let mut scope = blame.scope;
            w.scope(&mut scope);
            if !blame.policy.is_empty() {
                w.body(&blame.policy);
            } else if code == ErrorCode::POLICY {
                w.body(&policy::empty_object(&node.hop_at(blame.oif, v6)));
            }
            w.style(blame.style);
            if let Some(flowspec) = &blame.flowspec {
                w.flowspec(flowspec);
            }
            for filter in &blame.filters {
                w.filter_spec(filter);
            }
        });
    }

    /// What this node adds to a failure.
    fn told_of(&self, failure: Failure) -> UserError {
        failure
            .told
            .checked_sub(1)
            .and_then(|place| self.branches.told.get(place).cloned())
            .unwrap_or_default()
    }

    /// Whether errors repeat POLICY_DATA and unknown objects of a message. One message can cause several errors, so they do not
    /// if these objects are longer than what is kept of a message.
    fn may_repeat_in_errors(&self, message: &Message<'_>) -> bool {
        let policy = message.policy().map(|object| object.octets().len());
        let unknown = message.kept().map(|object| object.octets.len());
        !message.carries() || policy.chain(unknown).sum::<usize>() <= usize::from(self.config.max_carried)
    }

    /// Answers a flow descriptor of a Resv with a ResvErr.
    pub(super) fn answer_resv(
        &mut self,
        message: &Message<'_>,
        session: &wire::Session,
        (hop, oif): (RsvpHop, Iface),
        (failure, flags): (Failure, ErrorFlags),
        flow: &Flow<'_>,
        filters: &[Filter],
    ) {
        let envelope = self.envelope_to(hop.addr, oif);
        let error = ErrorSpec { node: envelope.src, flags, code: failure.code, value: failure.value };
        let style = message.style;
        let repeats = self.may_repeat_in_errors(message);
        let told = self.told_of(failure);
        self.transmit(envelope, MessageType::RESV_ERR, |node, w| {
            w.session(session, false).hop(&node.hop_at(oif, hop.addr.is_ipv6())).error_spec(&error);
            w.body(&told.object());
            for object in message.objects().filter(|object| object.kind.class == Class::SCOPE) {
                w.raw(object.octets);
            }
            for object in message.policy().filter(|_| repeats) {
                w.raw(object.octets());
            }
            // A policy error carries POLICY_DATA: at least an object with its origin (RFC 2750 §4.3).
            if failure.code == ErrorCode::POLICY && !(repeats && message.policy().next().is_some()) {
                w.body(&policy::empty_object(&node.hop_at(oif, hop.addr.is_ipv6())));
            }
            for object in message.kept().filter(|_| repeats) {
                w.raw(object.octets);
            }
            if let Some(style) = style {
                w.style(style);
            }
            if let Some(flowspec) = flow.flowspec {
                w.raw(flowspec.octets());
            }
            for filter in filters {
                w.filter_spec(filter);
            }
        });
    }

    /// Answers a Resv that has an unknown object with a ResvErr of its contents.
    pub(super) fn reject_unread(
        &mut self,
        message: &Message<'_>,
        hop: RsvpHop,
        oif: Iface,
        failure: Failure,
    ) {
        let envelope = self.envelope_to(hop.addr, oif);
        let Failure { code, value, .. } = failure;
        let error = ErrorSpec { node: envelope.src, flags: ErrorFlags::default(), code, value };
        self.transmit(envelope, MessageType::RESV_ERR, |node, w| {
            let of_class = |class: Class| message.objects().filter(move |object| object.kind.class == class);
            for object in of_class(Class::SESSION) {
                w.raw(object.octets);
            }
            w.hop(&node.hop_at(oif, hop.addr.is_ipv6())).error_spec(&error);
            for class in [Class::SCOPE, Class::POLICY_DATA] {
                for object in of_class(class) {
                    w.raw(object.octets);
                }
            }
            for object in message.kept().chain(of_class(Class::STYLE)) {
                w.raw(object.octets);
            }
            copy_flows(w, message);
        });
    }

    /// Handles a ResvErr from a previous hop: sets blockade state after an admission failure, and passes the error on
    /// to the next hops that may have caused it.
    pub(in crate::engine) fn on_resv_err(
        &mut self,
        message: &Message<'_>,
        iface: Iface,
        resources: &mut dyn Admission,
    ) {
        let (Some(session), Some(hop), Some(error), Some(style)) =
            (message.session, message.hop, message.error, message.style)
        else {
            return;
        };
        // NotGuilty is set by the receiver's own node (RFC 2205 §3.11.1).
        let error = ErrorSpec { flags: error.flags.only(ErrorFlags::IN_PLACE), ..error };
        let known = self.find_session(&session);
        let Some(key) =
            known.filter(|key| self.sessions.get(*key).is_some_and(|one| one.style == Some(style)))
        else {
            self.counters.unmatched += 1;
            tracing::debug!(%session, peer = %hop.addr, reason = "no such reservation", "ResvErr dropped");
            return;
        };
        let flowspec = message.flows().next().and_then(|flow| flow.flowspec?.read().ok());
        let filters: Vec<Filter> = message.flows().filter_map(|flow| flow.filter).collect();
        // Senders that the error is about and whose previous hop sent it.
        let named: Vec<Key> = if style.is_explicit() {
            filters
                .iter()
                .filter_map(|filter| self.find_sender(key, filter))
                .flat_map(|sender| {
                    let own = self.for_application(key, sender);
                    [Some(sender), Some(own).filter(|own| *own != sender)]
                })
                .flatten()
                .collect()
        } else {
            self.senders_of(key).map(|(key, _)| key).collect()
        };
        let from_there = |sender: &Sender| {
            !sender.has(LOCAL) && self.hops.lookup(sender.hop).is_some_and(|known| known.addr == hop.addr)
        };
        // A message may name a sender many times.
        let mut seen = BTreeSet::new();
        let mut concerned: Vec<Key> = named
            .into_iter()
            .filter(|key| self.senders.get(*key).is_some_and(from_there) && seen.insert(*key))
            .collect();
        let known = !concerned.is_empty();
        concerned.retain(|key| {
            let iif = self.senders.get(*key).map_or(Iface::NONE, |sender| sender.iif);
            self.may_come_by(iif, iface)
        });
        if known && concerned.is_empty() {
            return self.wrong_interface(message.kind, &session, hop.addr);
        }
        if concerned.is_empty() {
            self.counters.unmatched += 1;
            tracing::debug!(%session, peer = %hop.addr, reason = "not a previous hop", "ResvErr dropped");
            return;
        }
        tracing::debug!(%session, peer = %hop.addr, reason = %error, "ResvErr received");
        let of = concerned.iter().filter_map(|sender| self.senders.get(*sender));
        let hops: BTreeSet<u32> = of.map(|sender| sender.hop).collect();
        let sent: Vec<SentState> = hops.into_iter().map(|hop| SentState::Resv(key, hop)).collect();
        if self.message_ids_refused(&sent, &error) {
            return;
        }
        let blockade = flowspec.filter(|_| error.code == ErrorCode::ADMISSION);
        if let Some(flowspec) = blockade {
            self.set_blockades(key, style, &concerned, flowspec);
        }
        let in_place = error.flags.contains(ErrorFlags::IN_PLACE);
        let scope: Option<BTreeSet<IpAddr>> =
            message.scope.filter(|_| style == Style::Wf).map(|scope| scope.senders().collect());
        let scope: Option<Vec<IpAddr>> = scope.map(|scope| scope.into_iter().collect());
        let passed = PassedError {
            session: key,
            message,
            error,
            style,
            senders: &concerned,
            spared_under: blockade.filter(|_| in_place),
            failed: flowspec,
            scope: scope.as_deref(),
            from: (hop.addr, iface),
        };
        self.pass_resv_err(&passed, iface, resources);
    }

    fn set_blockades(&mut self, session: Key, style: Style, concerned: &[Key], flowspec: FlowSpec) {
        if let Some(record) =
            invariant!(self.sessions.get_mut(session), "blockade state is set in a session that stands")
        {
            record.drop_ended_blockades(self.now);
        }
        let (mut hops, mut changed) = (BTreeSet::new(), BTreeSet::new());
        for sender in concerned {
            let Some(record) =
                invariant!(self.senders.get(*sender), "blockade state is about a sender that stands")
            else {
                continue;
            };
            let (hop, iif) = (record.hop, record.iif);
            if !hops.insert(hop) && !style.is_explicit() {
                continue; // one piece of state for each previous hop
            }
            let of = if style.is_explicit() { Blocked::Sender(*sender) } else { Blocked::Hop(hop) };
            let period = self.interfaces.period(iif, self.now);
            let life = Duration::from_millis(u64::from(period)) * self.config.blockade_multiplier;
            let until = Stamp::after(self.now + life);
            if let Some(record) =
                invariant!(self.sessions.get_mut(session), "a session stands while it is blockaded")
            {
                if record.blockade(Blockade { of, flowspec, until }) {
                    changed.insert(hop);
                }
                self.counters.blockades += 1;
            }
            tracing::debug!(session = %self.logged(session), lifetime = ?life, "blockade state set");
        }
        // Requests that are not blockaded go upstream at once; if all are, none does before the next refresh. An error that is
        // repeated changes nothing that goes upstream.
        let named: BTreeSet<Key> = concerned.iter().copied().collect();
        let mut flows: Vec<(u32, (Key, FlowSpec))> = self
            .senders_of(session)
            .filter(|(key, sender)| {
                changed.contains(&sender.hop)
                    && !sender.has(LOCAL)
                    && (style != Style::Ff || named.contains(key))
            })
            .filter_map(|(key, sender)| Some((sender.hop, (key, self.forwarded(key, sender, true)?))))
            .collect();
        flows.sort_by_key(|(hop, _)| *hop);
        for (place, group) in flows.chunk_by(|a, b| a.0 == b.0).enumerate() {
            let Some((hop, (first, _))) = group.first().copied() else { continue };
            if place >= AT_ONCE {
                self.send_resv_soon(session, hop, first, place);
                continue;
            }
            let flows: Vec<(Key, FlowSpec)> = group.iter().map(|(_, flow)| *flow).collect();
            self.send_resv(session, hop, style, &flows, None);
        }
    }

    /// Passes a ResvErr on to the next hops whose requests share a sender with it, but not back to where it came from
    /// (RFC 2205 §3.1.8).
    fn pass_resv_err(&mut self, passed: &PassedError<'_>, iface: Iface, resources: &mut dyn Admission) {
        let mut branches: Vec<Key> = Vec::new();
        for sender in passed.senders.iter().filter_map(|key| self.senders.get(*key)) {
            for (key, branch) in self.branches_of(sender) {
                if branch.oif != iface && !branches.contains(&key) {
                    branches.push(key);
                }
            }
        }
        for key in branches {
            let Some(branch) =
                invariant!(self.branches.get(key), "an error is passed on for a reservation that stands")
            else {
                continue;
            };
            let hops: Vec<u32> = branch.requests().map(|request| request.hop).collect();
            let mut concerned = false;
            for hop in hops {
                concerned |= self.pass_to(passed, key, hop);
            }
            // What is reserved here stays (RFC 2205 §3.1.8), so nothing ends.
            let branch = invariant!(self.branches.get(key), "a reservation stands after an error about it");
            if let Some(grant) = branch.filter(|_| concerned).and_then(Branch::grant) {
                resources.note_refused_beyond(grant, passed.error.node);
            }
        }
    }

    /// Passes a ResvErr on to a next hop. Whether that hop has a part in what failed, and gets it.
    fn pass_to(&mut self, passed: &PassedError<'_>, branch: Key, hop: u32) -> bool {
        let PassedError { session, message, error, style, senders: concerned, spared_under, failed, .. } =
            *passed;
        let Some(record) =
            invariant!(self.branches.get(branch), "an error is passed to a reservation that stands")
        else {
            return false;
        };
        let Some(request) = invariant!(record.request(hop), "a blamed request stands") else { return false };
        // Next hops with smaller requests did not cause the error.
        if spared_under.is_some_and(|blockade| merging::exceeds(&blockade, &request.flowspec)) {
            return false;
        }
        let oif = record.oif;
        let shared: Vec<Key> = match style {
            Style::Ff => concerned.iter().copied().filter(|key| key.index() == record.sender).collect(),
            Style::Se => concerned.iter().copied().filter(|key| request.names(*key)).collect(),
            Style::Wf => Vec::new(),
        };
        if style.is_explicit() && shared.is_empty() {
            return false;
        }
        let filters: Vec<Filter> =
            shared.iter().filter_map(|key| Some(self.filter_of(self.senders.get(*key)?))).collect();
        let mut scope = Vec::new();
        if let Some(arrived) = passed.scope {
            scope.extend(
                self.senders_of(session)
                    .filter(|(_, sender)| sender.leaves_by(oif))
                    .map(|(_, sender)| self.filter_of(sender).src)
                    .filter(|src| arrived.binary_search(src).is_ok()),
            );
            if scope.is_empty() {
                return false;
            }
        }
        if is_application(hop) {
            let guilty = failed.is_none_or(|failed| !merging::exceeds(&failed, &request.flowspec));
            let flags = if guilty { error.flags } else { error.flags.with(ErrorFlags::NOT_GUILTY) };
            let application = request.extra.as_ref().and_then(|extra| extra.application);
            let mut policy = Vec::new();
            for object in message.policy() {
                policy.extend_from_slice(object.octets());
            }
            if let Some(id) = application {
                if let Some(left) = failed.filter(|_| self.config.reduction && is_reduction(&error)) {
                    self.ask_for_less(id, &left, &filters);
                }
                self.out.event(
                    id,
                    RsvpEvent::ResvError {
                        error: ErrorSpec { flags, ..error },
                        told: UserError::among(message.kept()).unwrap_or_default(),
                        style,
                        flowspec: failed,
                        senders: filters,
                        policy: policy.into_boxed_slice(),
                    },
                );
            }
            return true;
        }
        let Some(next) =
            invariant!(self.hops.lookup(hop).copied(), "an error is passed to a next hop that is stored")
        else {
            return false;
        };
        if message.hop.is_some_and(|from| from.addr == next.addr) {
            self.counters.errors_returning += 1;
            tracing::debug!(peer = %next.addr, reason = "its next hop sent it", "ResvErr dropped");
            return false;
        }
        // Hops may form a circle: each passes on few errors of each request.
        let flowspec = message.objects().find(|object| object.kind.class == Class::FLOWSPEC);
        let contents = (error, flowspec.map(|object| object.octets), &scope);
        if !self.output.passes_on(self.now, passed.from, &(branch, hop), &contents) {
            self.counters.errors_limited += 1;
            tracing::debug!(peer = %next.addr, reason = "too many for the request", "ResvErr dropped");
            return false;
        }
        let Some(of) = invariant!(
            self.sessions.get(session).map(|one| self.session_of(one)),
            "an error is passed in a session that stands"
        ) else {
            return false;
        };
        let repeats = self.may_repeat_in_errors(message);
        let envelope = self.envelope_to(next.addr, oif);
        self.transmit(envelope, MessageType::RESV_ERR, |node, w| {
            w.session(&of, false)
                .hop(&node.hop_at(oif, of.dest.is_ipv6()))
                .error_spec(&error)
                .scope(&mut scope);
            for object in message.policy().filter(|_| repeats) {
                w.raw(object.octets());
            }
            for object in message.kept().filter(|_| repeats) {
                w.raw(object.octets);
            }
            w.style(style);
            if let Some(flowspec) = flowspec {
                w.raw(flowspec.octets);
            }
            for filter in &filters {
                w.filter_spec(filter);
            }
        });
        true
    }
}
