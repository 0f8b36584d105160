//! Rules of the firewall: from filters of requests to pinholes in the kernel.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{Endpoint, OpenerId, Pinhole, PinholeError, PinholeId};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{IfIndex, Key, SessionId, Time, invariant};
use signalbox_resources::config::Opening;
use signalbox_resources::decision::{By, Extent, Outcome, Why};
use signalbox_resources::opening::Crossing;
use signalbox_resources::refusal::{Rule as Reason, RuleName};
use signalbox_resources::token::Token;
use signalbox_resources::{Decided, End, Passage, PassageRequest, Requester, Resources};

use super::NatfwClient;
use super::record::{Asked, Asker, Change, Opened, Rule};
use super::request::Contents;
use crate::engine::OwnedArrival;
use crate::wire::FlowId;
use crate::wire::natfw::{NatfwFilter, NatfwMessage, NatfwStatus};

/// Most filters of one message.
const MAX_FILTERS: usize = 16;
/// Most pinholes of one session.
const MAX_RULES: usize = 16;

/// Who opens what, for whom.
#[derive(Debug)]
pub(super) struct PolicyRequest<'a> {
    pub(super) asker: &'a Asker,
    /// The end of the flow that asks, by what the asker says.
    pub(super) claimed: IpAddr,
    pub(super) token: Option<Arc<Token>>,
    pub(super) opening: Opening,
    pub(super) lifetime: Duration,
}

/// Whether a filter lies within the flow of its session: the same destination, the same source or any, and the flow's
/// protocol, ports, label and SPI among its own.
fn within(filter: &NatfwFilter, flow: &FlowId) -> bool {
    let packets = flow.filter();
    let holds = |ranges: &[(u16, u16)], port: Option<u16>| {
        let has = |port: u16| ranges.iter().any(|(low, high)| (*low..=*high).contains(&port));
        ranges.is_empty() || port.is_none_or(has)
    };
    filter.dst == packets.dst
        && (filter.src == packets.src
            || (filter.src.len == 0 && filter.src.addr.is_ipv4() == packets.src.addr.is_ipv4()))
        && (filter.protocols.is_empty()
            || packets.protocol.is_none_or(|protocol| filter.protocols.contains(&protocol)))
        && holds(&filter.src_ports, packets.src_port)
        && holds(&filter.dst_ports, packets.dst_port)
        && (filter.spis.is_empty() || packets.spi.is_none_or(|spi| filter.spis.contains(&spi)))
        && (filter.flow_label.is_none() || filter.flow_label == packets.flow_label)
}

/// Each port of some ranges; `None`: any port.
fn ports(ranges: &[(u16, u16)]) -> Result<Vec<Option<u16>>, NatfwStatus> {
    // The ranges are kept as they are.
    if ranges.len() > MAX_RULES {
        return Err(NatfwStatus::GRANULARITY);
    }
    if ranges.is_empty() || ranges.contains(&(0, u16::MAX)) {
        return Ok(vec![None]);
    }
    let count: usize = ranges.iter().map(|(low, high)| usize::from(high.saturating_sub(*low)) + 1).sum();
    if count > MAX_RULES {
        return Err(NatfwStatus::GRANULARITY);
    }
    Ok(ranges.iter().flat_map(|(low, high)| *low..=*high).map(Some).collect())
}

/// The flow as a filter, for a message without one.
pub(super) fn filter_of(flow: &FlowId) -> NatfwFilter {
    let packets = flow.filter();
    let ports = |port: Option<u16>| port.map(|port| (port, port)).into_iter().collect();
    NatfwFilter {
        src: packets.src,
        dst: packets.dst,
        flow_label: packets.flow_label,
        protocols: packets.protocol.into_iter().collect(),
        src_ports: ports(packets.src_port),
        dst_ports: ports(packets.dst_port),
        spis: packets.spi.into_iter().collect(),
    }
}

/// The packets of each rule that filters ask for; without a filter those of the flow.
pub(super) fn packets(filters: &[NatfwFilter], flow: &FlowId) -> Result<Vec<FlowFilter>, NatfwStatus> {
    if filters.is_empty() {
        return Ok(vec![flow.filter()]);
    }
    if filters.len() > MAX_FILTERS {
        return Err(NatfwStatus::RESOURCES);
    }
    let mut all: Vec<FlowFilter> = Vec::new();
    for filter in filters {
        if !within(filter, flow) {
            return Err(NatfwStatus::FILTER);
        }
        let (src_ports, dst_ports) = (ports(&filter.src_ports)?, ports(&filter.dst_ports)?);
        let any = |list: Vec<_>| if list.is_empty() { vec![None] } else { list };
        let protocols = any(filter.protocols.iter().copied().map(Some).collect());
        let spis: Vec<Option<u32>> = filter.spis.iter().copied().map(Some).collect();
        let spis = if spis.is_empty() { vec![None] } else { spis };
        let count = [protocols.len(), src_ports.len(), dst_ports.len(), spis.len()];
        if count.into_iter().try_fold(1usize, usize::checked_mul).is_none_or(|count| count > MAX_RULES) {
            return Err(NatfwStatus::GRANULARITY);
        }
        for protocol in &protocols {
            for src_port in &src_ports {
                for dst_port in &dst_ports {
                    for spi in &spis {
                        let packets = FlowFilter {
                            protocol: *protocol,
                            src_port: *src_port,
                            dst_port: *dst_port,
                            spi: *spi,
                            flow_label: filter.flow_label,
                            ..FlowFilter::between(filter.src, filter.dst)
                        };
                        if !all.contains(&packets) {
                            all.push(packets);
                        }
                    }
                }
            }
        }
        if all.len() > MAX_RULES {
            return Err(NatfwStatus::GRANULARITY);
        }
    }
    Ok(all)
}

/// The identifier of a rule's pinhole.
pub(super) const fn pinhole_id(key: u64) -> PinholeId {
    OpenerId::CASP.pinhole(key)
}

impl NatfwClient {
    /// Asks policy and kernel for the rules of a CREATE, which waits for them. `start`: when they begin, if not now.
    pub(super) fn install(
        &mut self,
        key: Key,
        (job, contents): (&OwnedArrival, &Contents),
        packets: Vec<FlowFilter>,
        policy_request: &PolicyRequest<'_>,
        start: Option<Time>,
        resources: &mut Resources,
    ) -> Result<(), NatfwStatus> {
        let mut rules = Vec::new();
        let mut lifetime = policy_request.lifetime;
        for packets in &packets {
            let passages = match self.ask_policy(job, policy_request, packets, resources) {
                Ok(passages) => passages,
                Err(status) => {
                    give_back(rules, resources);
                    return Err(status);
                }
            };
            let most = passages.iter().filter_map(Passage::max_lifetime);
            lifetime = most.fold(lifetime, Ord::min);
            let held = self.records.get(key).into_iter().flat_map(|record| record.opened.rules());
            let known = held.into_iter().find(|rule| rule.packets == *packets).map(|rule| rule.key);
            let key = known.unwrap_or_else(|| {
                self.next_rule += 1;
                self.next_rule
            });
            rules.push(Rule { key, packets: *packets, source: None, passages });
        }
        // The message was parsed before.
        if self.translates(job, policy_request.asker.inside)
            && let Ok(message) = NatfwMessage::parse(job.data.as_slice())
            && let Err(status) = self.bind(key, job, &message, &packets)
        {
            give_back(rules, resources);
            self.counters.refused += 1;
            return Err(status);
        }
        let source = self.records.get(key).and_then(|record| Some(record.binding.as_ref()?.source()));
        rules.iter_mut().for_each(|rule| rule.source = source);
        let mut missing = Vec::new();
        for rule in rules.iter().filter(|_| start.is_none()) {
            if self.by_rule.insert(rule.key, key).is_none() {
                missing.push(rule.key);
                self.out.open(pinhole_id(rule.key), rule.pinhole(), lifetime);
            }
        }
        let asker = Asker::of(job, policy_request.asker.inside, self.way.sender);
        let asked = Asked { asker, number: contents.msg_id };
        let Some(record) = invariant!(self.records.get_mut(key), "rules are for a record that stands") else {
            give_back(rules, resources);
            return Err(NatfwStatus::RESOURCES);
        };
        let (job, age, way) = (job.clone(), contents.age, self.way);
        let answered = missing.is_empty();
        let change = Change { job, asked, age, way, rules, start, lifetime, missing, failed: None };
        record.change = Some(Box::new(change));
        if answered {
            self.finish_change(key, resources);
        }
        Ok(())
    }

    /// Asks policy for one pinhole of a request. A receiver inside who asks opens the way in without the sender, so that the rules about
    /// flows to the inside count too.
    pub(super) fn ask_policy(
        &mut self,
        job: &OwnedArrival,
        policy_request: &PolicyRequest<'_>,
        packets: &FlowFilter,
        resources: &mut Resources,
    ) -> Result<Vec<Passage>, NatfwStatus> {
        let requester = policy_request.asker.hop.requester(policy_request.claimed);
        let requester = Requester { token: policy_request.token.clone(), ..requester };
        // The external port follows: no rule names source ports.
        let external = self.external.filter(|_| self.translates(job, policy_request.asker.inside));
        let source = external.map(|address| Endpoint { address: address.into(), port: None });
        let pinhole = Pinhole { source, ..Pinhole::allow(*packets) };
        let openings: &[Opening] = match policy_request.opening {
            // From the inside to the inside only a rule opens.
            _ if self.way.between => &[Opening::Between],
            Opening::Reserve => &[Opening::Reserve, Opening::Inward],
            Opening::Outward => &[Opening::Outward],
            Opening::Inward | Opening::Between | Opening::Block | Opening::Publish => &[Opening::Inward],
        };
        let crossing = self.crossing_of(job, packets, policy_request, resources);
        let mut passages = Vec::with_capacity(openings.len());
        for opening in openings.iter().copied() {
            let request = PassageRequest {
                requester: &requester,
                opening,
                crossing,
                pinhole: &pinhole,
                lifetime: policy_request.lifetime,
                invited: openings.contains(&Opening::Reserve) && opening == Opening::Inward,
            };
            match resources.open_passage(self.now, &request) {
                Ok(passage) => passages.push(passage),
                Err(refusal) => {
                    self.counters.refused += 1;
                    tracing::debug!(session = %job.session, %requester, reason = %refusal, "passage refused");
                    note(
                        Outcome::Refused,
                        Some(job.session),
                        (&requester, opening),
                        &[*packets],
                        (None, Why::Refusal(refusal.clone())),
                        resources,
                    );
                    passages.into_iter().for_each(|passage| resources.close_passage(passage));
                    self.note = resources.told(&refusal);
                    let full = matches!(refusal.rule, Reason::TableFull { .. });
                    return Err(if full { NatfwStatus::RESOURCES } else { NatfwStatus::POLICY });
                }
            }
        }
        Ok(passages)
    }

    /// The interfaces by which packets pass that a request asks for: those of its flow, or the opposite ones. Packets of any source
    /// come in anywhere. The end that asks is known to be in its zone if who asks is in it: otherwise a host of one zone could ask for the
    /// packets of another one.
    fn crossing_of(
        &self,
        job: &OwnedArrival,
        packets: &FlowFilter,
        policy_request: &PolicyRequest<'_>,
        resources: &Resources,
    ) -> Crossing {
        let Crossing { mut from, mut to } = self.way.crossing;
        let near = if policy_request.claimed == job.flow.src() { &mut from } else { &mut to };
        if !resources.same_zone(*near, policy_request.asker.at) {
            *near = IfIndex::NONE;
        }
        let along = packets.dst.contains(job.flow.dst());
        let (from, to) = if along { (from, to) } else { (to, from) };
        let one_source = packets.src == Prefix::host(packets.src.addr);
        Crossing { from: if one_source { from } else { IfIndex::NONE }, to }
    }

    /// Takes the kernel's answer to [`NatfwOutput::Open`](super::NatfwOutput::Open).
    pub fn opened(
        &mut self,
        now: Time,
        pinhole: PinholeId,
        result: Result<(), PinholeError>,
        resources: &mut Resources,
    ) {
        self.now = self.now.max(now);
        // The kernel may answer after the rule was removed.
        let Some(key) = self.by_rule.get(&pinhole.key).copied() else { return };
        let failed = result.err().map(|error| match error {
            PinholeError::Unsupported => NatfwStatus::GRANULARITY,
            PinholeError::Full | PinholeError::Failed | PinholeError::Conflict => NatfwStatus::RESOURCES,
        });
        let Some(record) = invariant!(self.records.get_mut(key), "a rule has a record") else { return };
        let waits = |change: &&mut Box<Change>| change.missing.contains(&pinhole.key);
        let Some(change) = record.change.as_mut().filter(waits) else {
            // The rule was to be prolonged, or to begin.
            if let Some(status) = failed {
                self.withdraw(key, (status, None), resources);
            }
            return;
        };
        change.missing.retain(|key| *key != pinhole.key);
        change.failed = failed.or(change.failed);
        if change.missing.is_empty() {
            self.finish_change(key, resources);
        }
    }

    /// The kernel answered for all rules of a CREATE.
    fn finish_change(&mut self, key: Key, resources: &mut Resources) {
        let now = self.now;
        let Some(record) = invariant!(self.records.get_mut(key), "a change has a record") else { return };
        let Some(change) = invariant!(record.change.take(), "answers are about a change") else { return };
        let Change { job, asked, age, way, rules, start, lifetime, failed, .. } = *change;
        // Rules that begin later are not in the kernel yet.
        let begun: Vec<u64> = record.opened.active().iter().map(|rule| rule.key).collect();
        if let Some(status) = failed {
            for rule in rules.iter().filter(|rule| !begun.contains(&rule.key)) {
                self.by_rule.remove(&rule.key);
                self.out.close(pinhole_id(rule.key));
            }
            give_back(rules, resources);
            self.counters.refused += 1;
            self.refuse(&job, status);
            return;
        }
        let opened = match start {
            Some(start) => Opened::Planned { age, rules, start },
            None => Opened::Active { age, rules },
        };
        let former = core::mem::replace(&mut record.opened, opened).into_rules();
        record.lifetime = lifetime;
        record.rules_until = start.unwrap_or(now) + lifetime;
        record.until = record.until.max(record.rules_until);
        *record.asked(job.reverse) = Some(asked);
        let stays: Vec<u64> = record.opened.rules().iter().map(|rule| rule.key).collect();
        for rule in former.iter().filter(|rule| !stays.contains(&rule.key)) {
            self.by_rule.remove(&rule.key);
            self.out.close(pinhole_id(rule.key));
        }
        for rule in record.opened.active().iter().filter(|rule| begun.contains(&rule.key)) {
            self.out.open(pinhole_id(rule.key), rule.pinhole(), lifetime);
        }
        note_rules(Outcome::Granted, record.origin.session(), record.opened.rules(), Why::Allowed, resources);
        give_back(former, resources);
        self.counters.granted += 1;
        // What the request opens against its flow is judged by the way of its flow, too.
        let present = core::mem::replace(&mut self.way, way);
        self.created(key, &job, resources);
        self.way = present;
        self.arm(key);
    }

    /// Keeps the rules of a record for another lifetime.
    pub(super) fn prolong(&mut self, key: Key, lifetime: Duration) {
        let now = self.now;
        let Some(record) = invariant!(self.records.get_mut(key), "a refresh has a record") else { return };
        let passages = record.opened.rules().iter().flat_map(|rule| &rule.passages);
        let most = passages.filter_map(Passage::max_lifetime).min();
        record.lifetime = most.map_or(lifetime, |most| lifetime.min(most));
        record.rules_until = record.opened.start().unwrap_or(now) + record.lifetime;
        record.until = record.until.max(record.rules_until);
        for rule in record.opened.active() {
            self.out.open(pinhole_id(rule.key), rule.pinhole(), record.lifetime);
        }
        self.counters.refreshed += 1;
    }

    /// The start time of the rules has come. They were judged at the time of the request.
    pub(super) fn begin_rules(&mut self, key: Key, resources: &mut Resources) {
        let now = self.now;
        let Some(record) = invariant!(self.records.get_mut(key), "a start has a record") else { return };
        if !record.opened.begin(now) || !self.judge(key, resources) {
            return;
        }
        let Some(record) = invariant!(self.records.get(key), "what begins has a record") else { return };
        let left = record.rules_until.since(now);
        for rule in record.opened.active() {
            self.by_rule.insert(rule.key, key);
            self.out.open(pinhole_id(rule.key), rule.pinhole(), left);
        }
    }

    /// The node stops: the rules of the records from a place in the table on end. The result is the place that follows.
    pub fn record_stop(&self, from: u32, resources: &mut Resources) -> Option<u32> {
        self.records.walk(from, |_, record| {
            let why = Why::End(End::Stopped);
            note_rules(Outcome::Ended, record.origin.session(), record.opened.rules(), why, resources);
            true
        })
    }

    /// Removes the rules of a record, and those that wait for the kernel. The CREATE that waits ends here.
    pub(super) fn close_rules(&mut self, key: Key, resources: &mut Resources) {
        let Some(record) = invariant!(self.records.get_mut(key), "what ends has a record") else { return };
        let rules = core::mem::take(&mut record.opened).into_rules();
        let why = Why::End(resources.ending());
        note_rules(Outcome::Ended, record.origin.session(), &rules, why, resources);
        let change = record.change.take();
        for rule in rules.iter().chain(change.iter().flat_map(|change| &change.rules)) {
            if self.by_rule.remove(&rule.key).is_some() {
                self.out.close(pinhole_id(rule.key));
            }
        }
        give_back(rules, resources);
        if let Some(change) = change {
            self.out.consume(change.job.id);
            give_back(change.rules, resources);
        }
    }
}

fn give_back(rules: Vec<Rule>, resources: &mut Resources) {
    rules.into_iter().flat_map(|rule| rule.passages).for_each(|passage| resources.close_passage(passage));
}

/// Records what became of the rules of a session.
fn note_rules(
    outcome: Outcome,
    session: Option<SessionId>,
    rules: &[Rule],
    why: Why,
    resources: &mut Resources,
) {
    let Some(passage) = rules.iter().flat_map(|rule| &rule.passages).next() else { return };
    let (requester, rule, opening) =
        (passage.requester().clone(), passage.rule().cloned(), passage.opening());
    let flows: Vec<FlowFilter> = rules.iter().map(|rule| rule.packets).collect();
    note(outcome, session, (&requester, opening), &flows, (rule, why), resources);
}

fn note(
    outcome: Outcome,
    session: Option<SessionId>,
    (requester, opening): (&Requester, Opening),
    flows: &[FlowFilter],
    (rule, why): (Option<RuleName>, Why),
    resources: &mut Resources,
) {
    resources.decide(Decided {
        outcome,
        subject: opening.into(),
        by: By::Opener(OpenerId::CASP),
        session,
        requester,
        flows,
        extent: Extent { opening: Some(opening), ..Extent::default() },
        rule,
        why,
    });
}
