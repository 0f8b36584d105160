//! The resource management function: QSPECs on one side, [`Resources`] on the other (RFC 5974 §5.3.8, Appendix A).
//!
//! The octets of a QSPEC are whole here and opaque everywhere else in the engine.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use signalbox_core::node::Prefix;
use signalbox_core::security::Identity;
use signalbox_core::slab::Key;
use signalbox_core::traffic::{FlowFilter, ServiceClass, TrafficSpec};
use signalbox_core::{IfIndex, Mri, SessionId, Time};
use signalbox_resources::ask::Session;
use signalbox_resources::{Ask, Asker, Cause, GrantId, Owner, Priority, Refusal, Resources};

use super::command::{self, QosRequest};
use super::event::Quality;
use crate::qspec::{self as rules, Collect, Demand, Message, Offer, Passed, Wish};
use crate::wire::qspec::{
    Flags, INDETERMINATE, ParameterId, PhbClass, Preemption, Procedure, Qspec, QspecError, Tmod, Value,
};
use crate::wire::{Carried, Classifier, Info, InfoClass};

/// A request's surroundings.
#[derive(Debug)]
pub(super) struct Flow<'a> {
    pub(super) key: Key,
    pub(super) session: SessionId,
    pub(super) mri: Mri,
    pub(super) classifier: Option<Classifier>,
    /// Where its packets leave; `None`: they end here.
    pub(super) ifindex: Option<IfIndex>,
    pub(super) mtu: u32,
    pub(super) initiator: IpAddr,
    pub(super) peer: Option<Arc<Identity>>,
    pub(super) auth: Carried<'a>,
    pub(super) lifetime: Duration,
    /// The code point that its packets get here: they enter an aggregate.
    pub(super) mark_dscp: Option<u8>,
}

/// What was granted.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) grant: Option<GrantId>,
    pub(super) ifindex: Option<IfIndex>,
    /// Octets a second held.
    pub(super) rate: u64,
    /// As it goes on.
    pub(super) qspec: Vec<u8>,
}

/// Why nothing was.
#[derive(Debug)]
pub(super) struct Denial {
    pub(super) info: Info,
    pub(super) qspec: Option<Vec<u8>>,
    pub(super) note: Option<String>,
    pub(super) available: Option<u64>,
}

impl Denial {
    pub(super) const fn of(info: Info) -> Self {
        Self { info, qspec: None, note: None, available: None }
    }
}

/// Asks for what a QSPEC wants, in the place of what `old` holds.
pub(super) fn reserve(
    resources: &mut Resources,
    now: Time,
    flow: &Flow<'_>,
    qspec: &[u8],
    old: Option<GrantId>,
) -> Result<Given, Denial> {
    let mut onward = Vec::new();
    let held = old.and_then(|grant| resources.reservation(grant)).map_or(0, |view| view.charged);
    let passed = pass_here(resources, flow, qspec, Message::Reserve, held, &mut onward)?;
    let Some(ifindex) = flow.ifindex else {
        if let Some(old) = old {
            resources.release(old);
        }
        return Ok(Given { grant: None, ifindex: None, rate: 0, qspec: onward });
    };
    let Some(ask) = ask(resources, now, flow, ifindex, &passed.demand) else {
        return Err(Denial::of(Info::MALFORMED_QSPEC));
    };
    let ask = ask?;
    let rate = ask.traffic.rate;
    let result = match old {
        Some(old) => resources.modify(now, old, &ask),
        None => resources.admit(now, &ask),
    };
    match result {
        Ok(admitted) => {
            Ok(Given { grant: Some(admitted.grant), ifindex: Some(ifindex), rate, qspec: onward })
        }
        Err(refusal) => Err(denied(&refusal, &onward)),
    }
}

/// The QSPEC of a QUERY as it goes on, and what could be given here, in octets a second.
pub(super) fn query(resources: &Resources, flow: &Flow<'_>, qspec: &[u8]) -> Result<(Vec<u8>, u64), Denial> {
    let mut onward = Vec::new();
    let passed = pass_here(resources, flow, qspec, Message::Query, 0, &mut onward)?;
    let available = flow.ifindex.and_then(|ifindex| resources.available(ifindex, passed.demand.service()));
    Ok((onward, available.map_or(0, |available| available.rate)))
}

/// Passes a QSPEC through this node: against no limit where an exact request is left to admission control, else
/// against what the interface has to give.
fn pass_here(
    resources: &Resources,
    flow: &Flow<'_>,
    octets: &[u8],
    message: Message,
    held: u64,
    onward: &mut Vec<u8>,
) -> Result<Passed, Denial> {
    let mtu = if flow.ifindex.is_some() && flow.mtu > 0 { flow.mtu } else { u32::MAX };
    let unlimited = Offer::of(Tmod { max_packet: mtu, ..Offer::UNLIMITED });
    let bad = |error: QspecError| {
        let mut shown = Vec::new();
        let outcome = error.outcome();
        Denial {
            qspec: rules::malformed(octets, message, &mut shown).then_some(shown),
            note: Some(error.to_string()),
            ..Denial::of(Info { class: InfoClass(outcome.class), code: outcome.code })
        }
    };
    let mut passed = rules::pass(octets, message, &unlimited, onward).map_err(bad)?;
    let procedure = Qspec::frame(octets).map(|qspec| qspec.header.procedure);
    let collects = procedure.is_ok_and(|procedure| rules::available_is_collected(procedure, message));
    if collects && let Some(ifindex) = flow.ifindex {
        let available = resources.available(ifindex, passed.demand.service());
        let limit = available.map_or_else(
            || rules::limit_of(0, None, 0, mtu),
            |a| rules::limit_of(a.rate.saturating_add(held), a.buffer, a.capacity, a.mtu.min(mtu)),
        );
        onward.clear();
        passed = rules::pass(octets, message, &Offer::of(limit), onward).map_err(bad)?;
    }
    if passed.failed {
        return Err(Denial {
            qspec: Some(core::mem::take(onward)),
            note: Some("the QSPEC asks for something that this node cannot give or does not know".to_owned()),
            ..Denial::of(Info::RESERVATION_FAILURE)
        });
    }
    Ok(passed)
}

/// The question to admission control; `None` if the QSPEC says nothing of traffic.
fn ask(
    resources: &Resources,
    now: Time,
    flow: &Flow<'_>,
    ifindex: IfIndex,
    demand: &Demand,
) -> Option<Result<Ask, Denial>> {
    let traffic = demand.traffic()?;
    let priorities = demand.priorities();
    let owner = Owner { protocol: super::PROTOCOL, key: flow.key.to_u64() };
    let token = match super::token::verified(resources, now, &flow.auth) {
        Ok(token) => token,
        Err(error) => {
            let note = Some(format!("token: {error}"));
            return Some(Err(Denial { note, ..Denial::of(Info::AUTHORISATION) }));
        }
    };
    Some(Ok(Ask {
        service: flow.mark_dscp.map_or(demand.service(), ServiceClass::Dscp),
        priority: Priority { setup: priorities.preemption, defending: priorities.defending },
        lifetime: Some(flow.lifetime),
        session: Some(Session(u128::from_be_bytes(flow.session.0))),
        mark_dscp: flow.mark_dscp,
        excess: demand.excess(),
        ..Ask::new(
            owner,
            Asker { peer: flow.peer.clone(), token, ..Asker::at(flow.initiator) },
            ifindex,
            filter(&flow.mri, flow.classifier),
            traffic,
        )
    }))
}

/// The packets that a PACKET-CLASSIFIER leaves of a flow (§5.1.3.5); without one all that the MRI says.
pub(super) fn filter(mri: &Mri, classifier: Option<Classifier>) -> FlowFilter {
    let mut filter = FlowFilter::from(mri);
    let Some(classifier) = classifier else { return filter };
    if !classifier.contains(Classifier::X) {
        filter.src = Prefix::all_like(filter.src.addr);
    }
    if !classifier.contains(Classifier::Y) {
        filter.dst = Prefix::all_like(filter.dst.addr);
    }
    filter.protocol = filter.protocol.filter(|_| classifier.contains(Classifier::P));
    filter.dscp = filter.dscp.filter(|_| classifier.contains(Classifier::T));
    filter.flow_label = filter.flow_label.filter(|_| classifier.contains(Classifier::F));
    filter.spi = filter.spi.filter(|_| classifier.contains(Classifier::S));
    filter.src_port = filter.src_port.filter(|_| classifier.contains(Classifier::A));
    filter.dst_port = filter.dst_port.filter(|_| classifier.contains(Classifier::B));
    filter
}

/// Gives back what the end of the path turned out not to give: QoS Reserved of its RESPONSE is less than what is held
/// here. What is held afterwards, in octets a second.
pub(super) fn trim(
    resources: &mut Resources,
    now: Time,
    flow: &Flow<'_>,
    response: &[u8],
    grant: GrantId,
    held: u64,
) -> u64 {
    let reserved = Qspec::parse(response).ok().and_then(|qspec| qspec.reserved()?.value(ParameterId::TMOD_1));
    let (Some(Value::Tmod1(tmod)), Some(ifindex)) = (reserved, flow.ifindex) else { return held };
    let traffic = rules::traffic_of(&tmod);
    let Some(view) = resources.reservation(grant).filter(|_| traffic.rate < held) else { return held };
    let ask = Ask {
        service: view.service,
        priority: view.priority,
        session: view.session,
        lifetime: Some(flow.lifetime),
        mark_dscp: flow.mark_dscp,
        ..Ask::new(view.owner, view.asker.clone(), ifindex, filter(&flow.mri, flow.classifier), traffic)
    };
    match resources.modify(now, grant, &ask) {
        Ok(_) => traffic.rate,
        Err(_) => held,
    }
}

/// Why admission control or policy refused, as an INFO-SPEC says it.
fn denied(refusal: &Refusal, qspec: &[u8]) -> Denial {
    let (info, blame) = match refusal.cause() {
        Cause::Policy | Cause::Token => (Info::AUTHORISATION, None),
        Cause::NoGrant => (Info::INTERNAL, None),
        _ => (Info::RESERVATION_FAILURE, Some(ParameterId::TMOD_1)),
    };
    let mut shown = Vec::new();
    let failure = info == Info::RESERVATION_FAILURE;
    Denial {
        qspec: (failure && rules::refuse(qspec, blame, &mut shown).is_ok()).then_some(shown),
        note: Some(refusal.to_string()),
        available: Some(refusal.available),
        ..Denial::of(info)
    }
}

/// What the initiator's QSPEC is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    /// A RESERVE.
    Reserve,
    /// A QUERY with RESERVE-INIT.
    Init,
    /// A QUERY.
    Query,
}

/// The QSPEC of a user's wish; empty if its values cannot be said.
pub(super) fn initial(qos: &QosRequest, priority: Option<command::Priority>, aim: Aim) -> Vec<u8> {
    let tmod = |rate: u64| {
        rules::tmod_of(&TrafficSpec {
            rate,
            burst: qos.burst(),
            peak: qos.peak.map(|peak| peak.max(rate)),
            min_policed: qos.min_policed.max(1),
            max_packet: qos.max_packet,
        })
    };
    // A QSPEC has no error terms (RFC 5975 §3.3.1): the rate that bounds the delay is the one of the fluid model, at
    // which the burst has left when the time is over.
    let for_delay = qos.delay.map_or(0, |delay| {
        let us = delay.as_micros().max(1);
        u64::try_from((u128::from(qos.burst()) * 1_000_000).div_ceil(us)).unwrap_or(u64::MAX)
    });
    let mut desired = vec![(Flags::MANDATORY, Value::Tmod1(tmod(qos.rate.max(for_delay))))];
    match qos.service {
        command::Service::ControlledLoad => {}
        command::Service::Guaranteed => desired.push((Flags::MANDATORY, Value::SlackTerm(0))),
        command::Service::Dscp(dscp) => desired.push((Flags::MANDATORY, Value::Phb(PhbClass::dscp(dscp)))),
    }
    if let Some(priority) = priority {
        let preemption = Preemption { preemption: priority.preemption, defending: priority.defending };
        desired.push((Flags::default(), Value::Preemption(preemption)));
    }
    let minimum: Vec<_> =
        qos.minimum.iter().map(|rate| (Flags::MANDATORY, Value::Tmod1(tmod(*rate)))).collect();
    let procedure = match (aim, minimum.is_empty()) {
        (Aim::Reserve, true) => Procedure::DESIRED,
        (Aim::Reserve, false) => Procedure::MINIMUM,
        (Aim::Init, true) => Procedure::RECEIVER_DESIRED,
        (Aim::Init, false) => Procedure::RECEIVER_AVAILABLE,
        (Aim::Query, _) => Procedure::QUERY,
    };
    let wish = Wish {
        minimum: if aim == Aim::Query { &[] } else { &minimum },
        collect: Collect { latency: aim == Aim::Query, ..Collect::default() },
        ..Wish::of(procedure, &desired)
    };
    let mut octets = Vec::new();
    let _ = wish.compose(&mut octets);
    octets
}

/// The QSPEC of a RESPONSE at the end of the path, out of that of the request.
pub(super) fn answer(octets: &[u8], query: bool) -> Option<Vec<u8>> {
    let mut answer = Vec::new();
    let message = if query { Message::Query } else { Message::Reserve };
    rules::respond(octets, message, &mut answer).ok().map(|()| answer)
}

/// The QSPEC of the RESERVE with which a receiver answers a QUERY.
pub(super) fn reserve_for(octets: &[u8]) -> Option<Vec<u8>> {
    let mut reserve = Vec::new();
    rules::reserve_for(octets, &mut reserve).ok().map(|()| reserve)
}

/// The rate that a QSPEC asks for, in octets a second.
pub(super) fn rate(octets: &[u8]) -> Option<u64> {
    match Qspec::frame(octets).ok()?.desired()?.value(ParameterId::TMOD_1)? {
        Value::Tmod1(tmod) => Some(rules::traffic_of(&tmod).rate),
        _ => None,
    }
}

/// What a QSPEC gives, for people.
pub(super) fn quality(octets: &[u8]) -> Quality {
    let Ok(qspec) = Qspec::frame(octets) else { return Quality::default() };
    let object = qspec.reserved().or_else(|| qspec.available()).or_else(|| qspec.desired());
    let Some(Value::Tmod1(tmod)) = object.and_then(|object| object.value(ParameterId::TMOD_1)) else {
        return Quality::default();
    };
    let traffic = rules::traffic_of(&tmod);
    let slack = object.and_then(|object| object.value(ParameterId::SLACK_TERM)).is_some();
    let bound = || {
        let us = u128::from(traffic.burst) * 1_000_000 / u128::from(traffic.rate.max(1));
        Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
    };
    let latency = match qspec.available().and_then(|object| object.value(ParameterId::PATH_LATENCY)) {
        Some(Value::PathLatency(us)) if us != INDETERMINATE => Some(us),
        _ => None,
    };
    Quality {
        rate: Some(traffic.rate),
        burst: Some(traffic.burst),
        delay_bound: slack.then(bound),
        latency_us: latency,
    }
}

/// What a refusal offers instead, in octets a second.
pub(super) fn available_rate(octets: &[u8]) -> Option<u64> {
    match Qspec::frame(octets).ok()?.available()?.value(ParameterId::TMOD_1)? {
        Value::Tmod1(tmod) => Some(rules::traffic_of(&tmod).rate),
        _ => None,
    }
}

/// The QSPEC of a QUERY with RESERVE-INIT that wants the same as a RESERVE.
pub(super) fn as_init(octets: &[u8]) -> Vec<u8> {
    let mut init = Vec::new();
    if let Ok(qspec) = Qspec::parse(octets)
        && let Some(object) = qspec.desired()
    {
        let desired: Vec<_> = object.parameters().filter_map(|p| Some((p.flags, p.value().ok()?))).collect();
        let _ = Wish::of(Procedure::RECEIVER_DESIRED, &desired).compose(&mut init);
    }
    init
}

/// Whether admission control would grant a QSPEC's wish.
pub(super) fn would_fit(resources: &Resources, now: Time, flow: &Flow<'_>, qspec: &[u8]) -> bool {
    let mut onward = Vec::new();
    let Ok(passed) = pass_here(resources, flow, qspec, Message::Reserve, 0, &mut onward) else { return true };
    let Some(ifindex) = flow.ifindex else { return true };
    match ask(resources, now, flow, ifindex, &passed.demand) {
        Some(Ok(ask)) => resources.dry_run(now, &ask).result.is_ok(),
        _ => false,
    }
}

/// The QSPEC as a node without state passes it on: with flags on what it cannot give.
pub(super) fn pass_stateless(
    resources: &Resources,
    flow: &Flow<'_>,
    octets: &[u8],
    query: bool,
    refused: bool,
) -> Vec<u8> {
    let message = if query { Message::Query } else { Message::Reserve };
    let mut onward = Vec::new();
    match pass_here(resources, flow, octets, message, 0, &mut onward) {
        Ok(_) if refused => {
            let mut marked = Vec::new();
            match rules::refuse(&onward, Some(ParameterId::TMOD_1), &mut marked) {
                Ok(()) => marked,
                Err(_) => onward,
            }
        }
        Ok(_) => onward,
        // What a node before marked as failed goes on as it is, what is malformed with flags.
        Err(Denial { info: Info::RESERVATION_FAILURE, qspec: Some(qspec), .. }) => qspec,
        Err(_) => {
            let mut marked = Vec::new();
            if rules::flagged(octets, message, &mut marked) { marked } else { octets.to_vec() }
        }
    }
}

/// Holds so much for the flows of one code point together, in the place of what is held. `None` of a code point: the
/// request names no class, and a node without sessions can tell flows by nothing else.
pub(super) fn hold(
    resources: &mut Resources,
    now: Time,
    flow: &Flow<'_>,
    (ifindex, dscp): (IfIndex, u8),
    rate: u64,
    grant: Option<GrantId>,
) -> Result<Option<GrantId>, ()> {
    if rate == 0 {
        if let Some(grant) = grant {
            resources.release(grant);
        }
        return Ok(None);
    }
    let like = flow.mri.dst();
    let filter = FlowFilter {
        dscp: Some(dscp),
        ..FlowFilter::between(Prefix::all_like(like), Prefix::all_like(like))
    };
    let owner = Owner { protocol: super::PROTOCOL, key: 0 };
    let asker = Asker { peer: flow.peer.clone(), ..Asker::at(flow.initiator) };
    let ask = Ask {
        service: ServiceClass::Dscp(dscp),
        lifetime: Some(flow.lifetime),
        ..Ask::new(owner, asker, ifindex, filter, sum_of(rate))
    };
    let result = match grant {
        Some(grant) => resources.modify(now, grant, &ask),
        None => resources.admit(now, &ask),
    };
    result.map(|admitted| Some(admitted.grant)).map_err(|_| ())
}

/// Holds less than before; what is held then.
pub(super) fn shrink(resources: &mut Resources, now: Time, grant: GrantId, rate: u64) -> Option<GrantId> {
    if rate == 0 {
        resources.release(grant);
        return None;
    }
    let view = resources.reservation(grant)?;
    let filter = *view.filters.first()?;
    let ask = Ask {
        service: view.service,
        ..Ask::new(view.owner, view.asker.clone(), view.ifindex, filter, sum_of(rate))
    };
    resources.modify(now, grant, &ask).ok().map(|admitted| admitted.grant)
}

fn sum_of(rate: u64) -> TrafficSpec {
    let burst = u32::try_from(rate / 10).unwrap_or(u32::MAX).max(3000);
    TrafficSpec { rate, burst, peak: None, min_policed: 1, max_packet: 1500 }
}

/// The code point of the behaviour that a QSPEC asks for.
pub(super) fn dscp(octets: &[u8]) -> Option<u8> {
    match Qspec::frame(octets).ok()?.desired()?.value(ParameterId::PHB_CLASS)? {
        Value::Phb(PhbClass::Standard { dscp, .. }) => Some(dscp),
        _ => None,
    }
}
