//! Resvs, ResvTears and ResvConfs that go out (RFC 2205 §3.1.4, §3.1.6, §3.1.9, §3.4).

use core::net::IpAddr;
use std::collections::BTreeSet;

use signalbox_core::{Key, invariant};

use super::closing::Torn;
use super::path::carry;
use crate::engine::interfaces::Iface;
use crate::engine::merging::Confirm;
use crate::engine::message_ids::SentState;
use crate::engine::outbox::Envelope;
use crate::engine::packet::IpReceived;
use crate::engine::path::{LOCAL, NON_RSVP, Sender};
use crate::engine::{Rsvp, merging};
use crate::wire::{
    Class, ErrorCode, ErrorFlags, ErrorSpec, Filter, FlowSpec, Message, MessageType, Objects, RsvpHop, Style,
    granting,
};

/// Flow descriptors of FF in one message: as many as fit an IP datagram.
const FF_AT_ONCE: usize = 750;

/// Octets of POLICY_DATA and unknown objects in one Resv at most. Those of many next hops would leave no room in an IP datagram
/// for what they request.
pub(in crate::engine) const MOST_CARRIED: usize = 16 * 1024;

/// What a Resv to a previous hop contains beside its flow descriptors.
#[derive(Debug, Clone, Copy)]
struct OutgoingResv {
    session: Key,
    hop: u32,
    style: Style,
    /// The receiver that asks for a confirmation.
    confirm: Option<IpAddr>,
    about: SentState,
    /// Its MESSAGE_ID may stand for it (RFC 2961 §5).
    by_id: bool,
}

/// The way of a Resv or ResvTear to a previous hop.
#[derive(Debug, Clone, Copy)]
struct Back {
    /// The handle of the previous hop for its interface.
    lih: u32,
    iif: Iface,
    envelope: Envelope,
}

impl Rsvp {
    /// Sends a previous hop the flow descriptors that changed (RFC 2205 §3.1.4); `confirm`: the receiver that asks for a
    /// confirmation.
    pub(in crate::engine) fn send_resv(
        &mut self,
        session: Key,
        hop: u32,
        style: Style,
        flows: &[(Key, FlowSpec)],
        confirm: Option<IpAddr>,
    ) {
        let Some((first, _)) = flows.first().copied() else { return };
        if self.compose_resv(session, hop, style, flows, confirm, false) {
            let keeper = self.refresh_keeper(session, hop, first);
            self.resv_changed(keeper);
        }
    }

    /// Sends a previous hop these flow descriptors as a refresh (RFC 2205 §3.7).
    pub(in crate::engine) fn refresh_resv(&mut self, session: Key, hop: u32, flows: &[(Key, FlowSpec)]) {
        if let Some(style) = self.sessions.get(session).and_then(|one| one.style) {
            self.compose_resv(session, hop, style, flows, None, true);
        }
    }

    /// Sends a previous hop these flow descriptors once more as a whole message, because it asked for that or lost its
    /// state.
    pub(in crate::engine) fn repeat_resv(&mut self, session: Key, hop: u32, flows: &[(Key, FlowSpec)]) {
        if let Some(style) = self.sessions.get(session).and_then(|one| one.style) {
            self.compose_resv(session, hop, style, flows, None, false);
        }
    }

    fn compose_resv(
        &mut self,
        session: Key,
        hop: u32,
        style: Style,
        flows: &[(Key, FlowSpec)],
        confirm: Option<IpAddr>,
        by_id: bool,
    ) -> bool {
        // Only a message with all flow descriptors of the previous hop can be refreshed by its MESSAGE_ID. One with a part
        // of them, or with a RESV_CONFIRM, is not repeated as it is.
        let whole = confirm.is_none()
            && (style != Style::Ff
                || flows.len() <= FF_AT_ONCE && flows.len() == self.count_flows(session, hop));
        let about = if whole { SentState::Resv(session, hop) } else { SentState::Part(session, hop) };
        let resv = OutgoingResv { session, hop, style, confirm, about, by_id };
        if !whole {
            self.remove_sent(SentState::Resv(session, hop));
        }
        let iif =
            flows.first().and_then(|(key, _)| self.senders.get(*key)).map_or(Iface::NONE, |one| one.iif);
        self.choose_pace(iif, &about, by_id);
        let mut sent = false;
        let scope = if style == Style::Wf { self.scope_for(session, hop) } else { None };
        // A Resv with an empty SCOPE is not sent (RFC 2205 §3.4).
        if scope.as_ref().is_none_or(|scope| !scope.is_empty()) {
            let at_once = if style == Style::Ff { FF_AT_ONCE } else { usize::MAX };
            for part in flows.chunks(at_once) {
                sent |= self.compose_part(&resv, part, scope.clone());
            }
        }
        sent
    }

    /// Number of senders in a whole Resv to a previous hop.
    fn count_flows(&self, session: Key, hop: u32) -> usize {
        if self.sessions.get(session).is_some_and(|one| one.count <= 1) {
            return 1;
        }
        self.senders_of(session)
            .filter(|(key, sender)| {
                sender.hop == hop && !sender.has(LOCAL) && self.forwarded(*key, sender, false).is_some()
            })
            .count()
    }

    fn compose_part(
        &mut self,
        resv: &OutgoingResv,
        flows: &[(Key, FlowSpec)],
        scope: Option<Vec<IpAddr>>,
    ) -> bool {
        let Some(before) =
            invariant!(self.hops.lookup(resv.hop).copied(), "a Resv goes to a previous hop that is stored")
        else {
            return false;
        };
        let Some(sender) = invariant!(
            flows.first().and_then(|(key, _)| self.senders.get(*key)),
            "a Resv names senders that stand"
        ) else {
            return false;
        };
        let back =
            Back { lih: before.lih, iif: sender.iif, envelope: self.envelope_before(before.addr, sender) };
        let sent = self.compose_back(resv, back, flows, scope);
        self.compose_standby(resv, flows);
        sent
    }

    /// Sends the previous hops of standby copies what goes to that of the Path in use. It is whole each time, because its
    /// MESSAGE_ID would stand for another message.
    fn compose_standby(&mut self, resv: &OutgoingResv, flows: &[(Key, FlowSpec)]) {
        for (hop, back) in self.standby_hops(flows.iter().map(|(key, _)| *key)) {
            let about = SentState::Part(resv.session, hop);
            let resv = OutgoingResv { confirm: None, about, by_id: false, ..*resv };
            let of_hop = |key: Key| self.senders.get(key).is_some_and(|one| self.has_standby(one, hop));
            let there: Vec<_> = flows.iter().filter(|(key, _)| of_hop(*key)).copied().collect();
            self.compose_back(&resv, back, &there, None);
        }
    }

    /// Sends the previous hops of a sender's standby copies what is reserved.
    pub(in crate::engine) fn reserve_standby(&mut self, session: Key, key: Key) {
        let Some(hop) = invariant!(
            self.senders.get(key).map(|sender| sender.hop),
            "a standby reservation is for a sender that stands"
        ) else {
            return;
        };
        let Some(style) = self.sessions.get(session).and_then(|one| one.style) else { return };
        let about = SentState::Part(session, hop);
        let resv = OutgoingResv { session, hop, style, confirm: None, about, by_id: false };
        let flows = self.resv_contents(session, hop);
        self.compose_standby(&resv, &flows);
        self.merging.give_back(flows);
    }

    /// The previous hops of standby copies of these senders' Paths.
    fn standby_hops(&self, senders: impl Iterator<Item = Key>) -> Vec<(u32, Back)> {
        let mut hops: Vec<(u32, Back)> = Vec::new();
        for sender in senders.filter_map(|key| self.senders.get(key)) {
            for path in self.standbys(sender) {
                if hops.iter().any(|(hop, _)| *hop == path.hop) {
                    continue;
                }
                let Some(hop) =
                    invariant!(self.hops.lookup(path.hop), "the previous hop of a standby copy is stored")
                else {
                    continue;
                };
                let envelope = self.envelope_back(hop.addr, path.iif, path.flags & NON_RSVP != 0);
                hops.push((path.hop, Back { lih: hop.lih, iif: path.iif, envelope }));
            }
        }
        hops
    }

    fn has_standby(&self, sender: &Sender, hop: u32) -> bool {
        self.standbys(sender).any(|path| path.hop == hop)
    }

    /// Composes a Resv to one previous hop.
    fn compose_back(
        &mut self,
        resv: &OutgoingResv,
        back: Back,
        flows: &[(Key, FlowSpec)],
        scope: Option<Vec<IpAddr>>,
    ) -> bool {
        let OutgoingResv { session, style, confirm, about, by_id, .. } = *resv;
        let Back { lih, iif, envelope } = back;
        if !self.interfaces.get(iif).is_some_and(|known| known.config.enabled) {
            return false;
        }
        let period = self.announced_period(iif, &about);
        let mut carried = self.carried_for(flows);
        self.name_granting(flows, envelope.src, &mut carried);
        if !self.output.closing.is_empty() {
            self.resv_again(session, RsvpHop { addr: envelope.dst, lih }, flows);
        }
        if self.neighbors.has_owned() {
            self.end_waiting_tears(session, RsvpHop { addr: envelope.dst, lih }, style, flows);
        }
        self.transmit_state(envelope, MessageType::RESV, about, by_id, |node, w| {
            let Some(record) = invariant!(node.sessions.get(session), "a Resv has a session") else { return };
            let own = RsvpHop { addr: envelope.src, lih };
            w.session(&node.session_of(record), false).hop(&own).time_values(period);
            if let Some(receiver) = confirm {
                w.resv_confirm(receiver);
            }
            if let Some(mut scope) = scope {
                w.scope(&mut scope);
            }
            carry(w, &carried);
            w.style(style);
            let filter = |key: &Key| node.senders.get(*key).map(|sender| node.filter_of(sender));
            if style == Style::Ff {
                for (key, flowspec) in flows {
                    if let Some(filter) = filter(key) {
                        w.flowspec(flowspec).filter_spec(&filter);
                    }
                }
                return;
            }
            let merged = flows.iter().map(|(_, flowspec)| *flowspec).reduce(|a, b| merging::merged(&a, &b));
            if let Some(merged) = merged {
                w.flowspec(&merged);
            }
            if style == Style::Se {
                for filter in flows.iter().filter_map(|(key, _)| filter(key)) {
                    w.filter_spec(&filter);
                }
            }
        })
    }

    /// A Resv goes out: ResvTears of what it requests that wait for their acknowledgment are not sent again. Those of another
    /// style are, because they end what a Resv of this style does not replace.
    fn end_waiting_tears(&mut self, session: Key, hop: RsvpHop, style: Style, flows: &[(Key, FlowSpec)]) {
        let Some(record) = invariant!(self.sessions.get(session), "a Resv has its session") else { return };
        let mark = self.torn_mark(&Torn::resv(self.session_of(record), hop));
        if !self.neighbors.waits(mark) {
            return;
        }
        let senders = self.filters_of(flows);
        self.neighbors.end_waiting(mark, |octets| {
            let Ok(tear) = Message::parse(octets) else { return false };
            let mut named = tear.flows().filter_map(|flow| flow.filter).peekable();
            tear.style == Some(style)
                && (named.peek().is_none() || named.any(|sender| senders.contains(&sender)))
        });
    }

    fn filters_of(&self, flows: &[(Key, FlowSpec)]) -> Vec<Filter> {
        let filter = |(key, _): &(Key, FlowSpec)| Some(self.filter_of(self.senders.get(*key)?));
        flows.iter().filter_map(filter).collect()
    }

    /// A Resv goes out: tears of what it requests are not repeated any more.
    fn resv_again(&mut self, session: Key, hop: RsvpHop, flows: &[(Key, FlowSpec)]) {
        let Some(record) = invariant!(self.sessions.get(session), "a new Resv has a session") else { return };
        let senders = self.filters_of(flows);
        self.end_repetition(&Torn::resv(self.session_of(record), hop), Some(&senders));
    }

    /// POLICY_DATA and unknown objects of all requests that go into a Resv, each once, up to [`MOST_CARRIED`]. The lists of nodes that
    /// granted are not among them, because this node adds itself.
    pub(in crate::engine) fn carried_for(&self, flows: &[(Key, FlowSpec)]) -> Vec<u8> {
        let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
        for request in self.carrying(flows) {
            let objects = Objects::at(request.carried(), 0).map_while(Result::ok);
            for object in objects.filter(|object| granting::list(object).is_none()) {
                if seen.insert(object.octets) {
                    if all.len() + object.octets.len() > MOST_CARRIED {
                        tracing::debug!(reason = "too many octets", "objects of some next hops left out");
                        return all;
                    }
                    all.extend_from_slice(object.octets);
                }
            }
        }
        all
    }

    /// The SCOPE of a Resv to a previous hop; `None`: it needs none (RFC 2205 §3.4).
    fn scope_for(&self, session: Key, hop: u32) -> Option<Vec<IpAddr>> {
        let record = self.sessions.get(session)?;
        if !self.config.source_trees {
            return None;
        }
        let remote = || self.senders_of(session).filter(|(_, sender)| !sender.has(LOCAL));
        let several = remote().any(|(_, sender)| sender.hop != hop);
        // A request with a SCOPE is forwarded with a SCOPE.
        let scoped = || {
            self.shared_branches(session)
                .any(|(_, branch)| branch.requests().any(|one| one.scope().is_some()))
        };
        if !several && !scoped() {
            return None;
        }
        let here = remote().filter(|(_, sender)| sender.hop == hop && self.is_in_scope(session, sender));
        Some(here.map(|(_, sender)| self.addresses.unpack(sender.src, record.v6)).collect())
    }

    /// Whether the SCOPE of any next hop of a sender has it.
    fn is_in_scope(&self, session: Key, sender: &Sender) -> bool {
        self.shared_branches(session)
            .any(|(_, branch)| sender.leaves_by(branch.oif) && branch.is_for(sender.src))
    }

    /// The interface by which all data of a session leave, if there is only one.
    pub(in crate::engine) fn only_egress(&self, session: Key) -> Option<Iface> {
        let mut egress = self.senders_of(session).flat_map(|(_, sender)| sender.egress());
        let first = egress.next()?;
        (first.is_real() && egress.all(|iface| iface == first)).then_some(first)
    }

    /// Sends a previous hop a ResvTear for these senders (RFC 2205 §3.1.6).
    pub(in crate::engine) fn send_resv_tear(
        &mut self,
        session: Key,
        hop: u32,
        style: Style,
        senders: impl Iterator<Item = Key>,
        objects: &[u8],
    ) {
        let senders: Vec<Key> = senders.collect();
        let Some(before) =
            invariant!(self.hops.lookup(hop).copied(), "a ResvTear goes to a previous hop that is stored")
        else {
            return;
        };
        // The list is empty if nothing was sent for the senders of the hop.
        let Some(sender) = senders.iter().find_map(|key| self.senders.get(*key)) else { return };
        let back =
            Back { lih: before.lih, iif: sender.iif, envelope: self.envelope_before(before.addr, sender) };
        self.remove_sent(SentState::Resv(session, hop));
        self.end_parts(session, hop);
        self.tear_back(session, back, style, &senders, objects);
        for (hop, back) in self.standby_hops(senders.iter().copied()) {
            let of_hop = |key: &Key| self.senders.get(*key).is_some_and(|one| self.has_standby(one, hop));
            let there: Vec<Key> = senders.iter().copied().filter(of_hop).collect();
            self.end_parts(session, hop);
            self.tear_back(session, back, style, &there, objects);
        }
    }

    /// Composes a ResvTear to one previous hop.
    fn tear_back(&mut self, session: Key, back: Back, style: Style, senders: &[Key], objects: &[u8]) {
        let Back { lih, iif, envelope } = back;
        let Some(record) = invariant!(self.sessions.get(session), "a tear has its session") else { return };
        let torn = Torn::resv(self.session_of(record), RsvpHop { addr: envelope.dst, lih });
        let named = senders.iter().filter(|_| style.is_explicit());
        let named = named.filter_map(|key| Some(self.filter_of(self.senders.get(*key)?))).collect();
        let about = SentState::ResvTear(self.torn_mark(&torn));
        let (way, torn) = ((iif, envelope), (torn, named));
        self.send_tear(way, MessageType::RESV_TEAR, torn, about, |node, w| {
            let Some(record) = invariant!(node.sessions.get(session), "a tear has a session") else { return };
            let own = RsvpHop { addr: envelope.src, lih };
            w.session(&node.session_of(record), false).hop(&own);
            carry(w, objects);
            w.style(style);
            if style.is_explicit() {
                for sender in senders.iter().filter_map(|key| node.senders.get(*key)) {
                    w.filter_spec(&node.filter_of(sender));
                }
            }
        });
    }

    /// Sends the receiver of a request ResvConfs for these senders: one, unless they are more than an IP datagram has room for.
    pub(in crate::engine) fn send_confirmations(
        &mut self,
        session: Key,
        style: Style,
        confirm: &Confirm,
        senders: &[Key],
    ) {
        for part in senders.chunks(FF_AT_ONCE) {
            self.send_confirmation(session, style, confirm, part);
        }
    }

    /// Sends a ResvConf to the receiver that requested it (RFC 2205 §3.1.9).
    pub(in crate::engine) fn send_confirmation(
        &mut self,
        session: Key,
        style: Style,
        confirm: &Confirm,
        senders: &[Key],
    ) {
        let Some(record) = invariant!(self.sessions.get(session), "a receiver has a session") else { return };
        let v6 = confirm.receiver.is_ipv6();
        let (of, node) = (self.session_of(record), self.own_address(confirm.oif, v6));
        let mut flows: Vec<(Option<Filter>, FlowSpec)> = Vec::new();
        for key in senders {
            let own = Some(*key).filter(|_| style == Style::Ff);
            let branch = self.find_branch(session, own, confirm.oif).and_then(|key| self.branches.get(key));
            let filter = self.senders.get(*key).map(|sender| self.filter_of(sender));
            if let Some(request) = branch.and_then(|branch| branch.request(confirm.hop)) {
                flows.push((filter.filter(|_| style.is_explicit()), *request.flowspec));
            }
        }
        let Some((_, flowspec)) = flows.first().copied() else { return };
        if self.interfaces.is_local(confirm.receiver) {
            let senders = flows.iter().filter_map(|(filter, _)| *filter).collect();
            let asked = self.application_of(session, confirm.hop);
            self.confirm_here(session, asked, node, style, Some(flowspec), senders);
            return;
        }
        tracing::debug!(session = %of, receiver = %confirm.receiver, "reservation confirmed");
        let towards = self.hops.lookup(confirm.hop).map_or(0, |hop| self.mark(hop.addr));
        let envelope =
            Envelope { router_alert: true, towards, ..self.envelope_to(confirm.receiver, confirm.oif) };
        let receiver = confirm.receiver;
        self.transmit(envelope, MessageType::RESV_CONF, |_, w| {
            let error =
                ErrorSpec { node, flags: ErrorFlags::default(), code: ErrorCode::CONFIRMATION, value: 0 };
            w.session(&of, false).error_spec(&error).resv_confirm(receiver).style(style);
            if style != Style::Ff {
                w.flowspec(&flowspec);
            }
            for (filter, flowspec) in &flows {
                if style == Style::Ff {
                    w.flowspec(flowspec);
                }
                if let Some(filter) = filter {
                    w.filter_spec(filter);
                }
            }
        });
    }

    /// Handles a ResvConf: reports it to the application that it is for, or passes it on (RFC 2205 §3.1.9).
    pub(in crate::engine) fn on_resv_conf(
        &mut self,
        packet: &IpReceived<'_>,
        message: &Message<'_>,
        iface: Iface,
    ) {
        let (Some(session), Some(error), Some(receiver), Some(style)) =
            (message.session, message.error, message.confirm, message.style)
        else {
            return;
        };
        if packet.dst != receiver {
            self.counters.bad_confirmation += 1;
            tracing::debug!(%session, dst = %packet.dst, %receiver, reason = "addressed to another than its receiver", "ResvConf dropped");
            return;
        }
        if self.interfaces.is_local(receiver) {
            let Some(session) = self.find_session(&session) else {
                self.counters.unmatched += 1;
                tracing::debug!(%session, reason = "no such session", "ResvConf dropped");
                return;
            };
            let flowspec = message.flows().next().and_then(|flow| flow.flowspec?.read().ok());
            let senders: Vec<Filter> = message.flows().filter_map(|flow| flow.filter).collect();
            return self.confirm_here(session, None, error.node, style, flowspec, senders);
        }
        if packet.ttl <= 1 {
            tracing::debug!(%session, %receiver, reason = "TTL", "ResvConf dropped");
            return;
        }
        let ttl = packet.ttl - 1;
        // It leaves by the interface of the reservation, if there is only one and the message did not come by it; else
        // routing decides.
        let known = self.find_session(&session);
        let oif = known.and_then(|key| self.only_egress(key)).filter(|egress| *egress != iface);
        let own = self.envelope_to(receiver, oif.unwrap_or(iface));
        let ifindex = own.ifindex.filter(|_| oif.is_some());
        let towards = known.and_then(|key| self.senders_of(key).find(|(_, one)| !one.has(LOCAL)));
        let towards = towards.map_or(0, |(_, sender)| sender.gateway);
        let envelope = Envelope { router_alert: true, ttl, ifindex, towards, ..own };
        self.transmit(envelope, MessageType::RESV_CONF, |_, w| {
            let of_class = |class: Class| message.objects().filter(move |object| object.kind.class == class);
            w.session(&session, false).error_spec(&error).resv_confirm(receiver);
            for object in message.kept() {
                w.raw(object.octets);
            }
            for object in of_class(Class::STYLE) {
                w.raw(object.octets);
            }
            copy_flows(w, message);
        });
    }
}

/// Copies the flow descriptors of a message.
pub(in crate::engine) fn copy_flows(w: &mut crate::wire::Writer<'_>, message: &Message<'_>) {
    for object in message.objects() {
        if matches!(object.kind.class, Class::FLOWSPEC | Class::FILTER_SPEC) {
            w.raw(object.octets);
        }
    }
}
