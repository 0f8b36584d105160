//! The resource management function, between QSPECs and [`Resources`] (RFC 5974 §5.3.8, Appendix A).
//!
//! Only this module of the engine interprets the octets of a QSPEC.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use signalbox_core::node::Prefix;
use signalbox_core::security::Identity;
use signalbox_core::slab::Key;
use signalbox_core::traffic::{FlowFilter, ServiceClass, TrafficSpec};
use signalbox_core::{IfIndex, Mri, SessionId, Time};
use signalbox_resources::request::Session;
use signalbox_resources::{
    Cause, GrantId, GrantRequest, Owner, Priority, Refusal, RequestedBy, Requester, Resources,
};

use super::command::{self, QosRequest};
use super::event::Quality;
use crate::qspec::{self as rules, Collect, Demand, Message, Offer, Passed, Wish};
use crate::wire::qspec::{
    Flags, INDETERMINATE, ParameterId, PhbClass, Preemption, Procedure, Qspec, QspecError, Tmod, Value,
};
use crate::wire::{Carried, Classifier, Info, InfoClass};

/// What the note of a refusal begins with because of a reservation that stands: RFC 5974 has no code for it.
pub const CONFLICT: &str = "conflict: ";
/// Such a note of a node that keeps the reasons of refusals for itself.
pub(super) const CONFLICT_ALONE: &str = "conflict: another reservation has the flow";

/// The data of a request beside its QSPEC.
#[derive(Debug)]
pub(super) struct Flow<'a> {
    pub(super) key: Key,
    pub(super) session: SessionId,
    pub(super) mri: Mri,
    pub(super) classifier: Option<Classifier>,
    /// Egress interface of the packets; `None`: the flow ends here.
    pub(super) ifindex: Option<IfIndex>,
    pub(super) mtu: u32,
    pub(super) initiator: IpAddr,
    pub(super) peer: Option<Arc<Identity>>,
    pub(super) requested_by: RequestedBy,
    pub(super) auth: Carried<'a>,
    pub(super) lifetime: Duration,
    /// Code point that this node sets in the packets because they enter an aggregate.
    pub(super) mark_dscp: Option<u8>,
}

/// A granted request.
#[derive(Debug)]
pub(super) struct LocalGrant {
    pub(super) grant: Option<GrantId>,
    pub(super) ifindex: Option<IfIndex>,
    /// Reserved rate in octets a second.
    pub(super) rate: u64,
    /// The QSPEC for the next peer.
    pub(super) qspec: Vec<u8>,
}

/// A refused request.
#[derive(Debug)]
pub(super) struct LocalRefusal {
    pub(super) info: Info,
    pub(super) qspec: Option<Vec<u8>>,
    pub(super) note: Option<String>,
    pub(super) available: Option<u64>,
}

impl LocalRefusal {
    pub(super) const fn of(info: Info) -> Self {
        Self { info, qspec: None, note: None, available: None }
    }
}

/// Requests the resources of a QSPEC, in the place of the grant `old`.
pub(super) fn reserve(
    resources: &mut Resources,
    now: Time,
    flow: &Flow<'_>,
    qspec: &[u8],
    old: Option<GrantId>,
) -> Result<LocalGrant, LocalRefusal> {
    let mut onward = Vec::new();
    let held = old.and_then(|grant| resources.reservation(grant)).map_or(0, |view| view.charged);
    let limits = Limits { held, ..Limits::default() };
    let passed = pass_here(resources, flow, qspec, Message::Reserve, limits, &mut onward)?;
    let Some(ifindex) = flow.ifindex else {
        if let Some(old) = old {
            resources.release(old);
        }
        return Ok(LocalGrant { grant: None, ifindex: None, rate: 0, qspec: onward });
    };
    let Some(ask) = ask(resources, now, flow, ifindex, &passed.demand) else {
        return Err(LocalRefusal::of(Info::MALFORMED_QSPEC));
    };
    let ask = ask?;
    let rate = ask.traffic.rate;
    let ends = (flow.mri.src(), flow.mri.dst());
    let used =
        ask.requester.token.as_ref().map(|token| resources.check_token(now, token, flow.session, ends));
    if let Some(Err(error)) = used {
        let note = Some(error.to_string());
        return Err(LocalRefusal { note, ..LocalRefusal::of(Info::AUTHORISATION) });
    }
    let result = match old {
        Some(old) => resources.modify(now, old, &ask),
        None => resources.admit(now, &ask),
    };
    match result {
        Ok(admitted) => {
            if let Some(token) = &ask.requester.token {
                resources.use_token(now, token, flow.session, ends);
            }
            Ok(LocalGrant { grant: Some(admitted.grant), ifindex: Some(ifindex), rate, qspec: onward })
        }
        Err(refusal) => Err(local_refusal(&refusal, &onward)),
    }
}

/// The QSPEC of a QUERY for the next node, and the available rate here in octets a second (RFC 5975 §4.3.3). The rules for
/// a RESERVE apply if the sender of the QUERY will send it (`ruled`): a rate that they refuse is not available.
pub(super) fn query(
    resources: &Resources,
    now: Time,
    flow: &Flow<'_>,
    qspec: &[u8],
    ruled: bool,
) -> Result<(Vec<u8>, u64), LocalRefusal> {
    let mut onward = Vec::new();
    let limits = Limits::default();
    let passed = pass_here(resources, flow, qspec, Message::Query, limits, &mut onward)?;
    let Some(ifindex) = flow.ifindex else { return Ok((onward, 0)) };
    let available = resources.available(ifindex, passed.demand.service());
    let rate = available.map_or(0, |available| available.rate);
    let asked = ask(resources, now, flow, ifindex, &passed.demand).filter(|_| ruled).transpose()?;
    let Some(asked) = asked else { return Ok((onward, rate)) };
    let permitted = resources.permitted(now, &asked).map_err(|refusal| local_refusal(&refusal, &onward))?;
    if permitted < rate {
        onward.clear();
        let limits = Limits { permitted, ..limits };
        pass_here(resources, flow, qspec, Message::Query, limits, &mut onward)?;
    }
    Ok((onward, rate.min(permitted)))
}

/// The limits of a request besides the free capacity.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// The rate that the session holds already, octets a second.
    held: u64,
    /// The rate that the rules permit, octets a second.
    permitted: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { held: 0, permitted: u64::MAX }
    }
}

/// Processes a QSPEC at this node. If the requested QoS is exact, admission control decides, and the QSPEC is compared
/// with no limit. Otherwise it is compared with the available resources of the interface.
fn pass_here(
    resources: &Resources,
    flow: &Flow<'_>,
    octets: &[u8],
    message: Message,
    limits: Limits,
    onward: &mut Vec<u8>,
) -> Result<Passed, LocalRefusal> {
    let mtu = if flow.ifindex.is_some() && flow.mtu > 0 { flow.mtu } else { u32::MAX };
    let unlimited = Offer::of(Tmod { max_packet: mtu, ..Offer::UNLIMITED });
    let bad = |error: QspecError| {
        let mut shown = Vec::new();
        let outcome = error.outcome();
        LocalRefusal {
            qspec: rules::malformed(octets, message, &mut shown).then_some(shown),
            note: Some(error.to_string()),
            ..LocalRefusal::of(Info { class: InfoClass(outcome.class), code: outcome.code })
        }
    };
    let mut passed = rules::pass(octets, message, &unlimited, onward).map_err(bad)?;
    let procedure = Qspec::frame(octets).map(|qspec| qspec.header.procedure);
    let collects = procedure.is_ok_and(|procedure| rules::available_is_collected(procedure, message));
    if collects && let Some(ifindex) = flow.ifindex {
        let available = resources.available(ifindex, passed.demand.service());
        let limit = available.map_or_else(
            || rules::limit_of(0, None, 0, mtu),
            |a| {
                let rate = a.rate.saturating_add(limits.held).min(limits.permitted);
                rules::limit_of(rate, a.buffer, a.capacity, a.mtu.min(mtu))
            },
        );
        onward.clear();
        passed = rules::pass(octets, message, &Offer::of(limit), onward).map_err(bad)?;
    }
    if passed.failed {
        let (mut note, mut available) =
            ("the QSPEC asks for something that this node cannot give or does not know".to_owned(), None);
        if desired(octets).is_some_and(|traffic| traffic.max_packet > mtu) {
            let link = flow.ifindex.and_then(|ifindex| resources.interface_name(ifindex));
            note = super::smaller::note(link.as_deref(), mtu);
            let ifindex = flow.ifindex.unwrap_or_default();
            available = resources.available(ifindex, passed.demand.service()).map(|available| available.rate);
        }
        return Err(LocalRefusal {
            qspec: Some(core::mem::take(onward)),
            note: Some(note),
            available,
            ..LocalRefusal::of(Info::RESERVATION_FAILURE)
        });
    }
    Ok(passed)
}

/// The request to admission control; `None` if the QSPEC has no traffic model.
fn ask(
    resources: &Resources,
    now: Time,
    flow: &Flow<'_>,
    ifindex: IfIndex,
    demand: &Demand,
) -> Option<Result<GrantRequest, LocalRefusal>> {
    let traffic = demand.traffic()?;
    let priorities = demand.priorities();
    let owner = Owner { protocol: super::PROTOCOL, key: flow.key.to_u64() };
    let token = match resources.token(now, flow.auth.iter().map(|object| object.value)) {
        Ok(token) => token,
        Err(error) => {
            let note = Some(format!("token: {error}"));
            return Some(Err(LocalRefusal { note, ..LocalRefusal::of(Info::AUTHORISATION) }));
        }
    };
    Some(Ok(GrantRequest {
        service: flow.mark_dscp.map_or(demand.service(), ServiceClass::Dscp),
        priority: Priority { setup: priorities.preemption, defending: priorities.defending },
        lifetime: Some(flow.lifetime),
        session: Session::of(flow.key),
        session_id: Some(flow.session),
        mark_dscp: flow.mark_dscp,
        excess: demand.excess(),
        ..GrantRequest::new(
            owner,
            Requester { token, ..requester(flow) },
            ifindex,
            filter(&flow.mri, flow.classifier),
            traffic,
        )
    }))
}

fn requester(flow: &Flow<'_>) -> Requester {
    Requester::new(flow.requested_by.clone(), flow.peer.clone(), Some(flow.initiator))
}

/// The packet filter of a flow with a PACKET-CLASSIFIER (RFC 5974 §5.1.3.5). Without one all fields of the MRI count.
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

/// Reduces a grant to the QoS Reserved of a RESPONSE. Returns the reserved rate in octets a second.
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
    let ask = GrantRequest {
        service: view.service,
        priority: view.priority,
        session: view.session,
        lifetime: Some(flow.lifetime),
        mark_dscp: flow.mark_dscp,
        ..GrantRequest::new(
            view.owner,
            view.requester.clone(),
            ifindex,
            filter(&flow.mri, flow.classifier),
            traffic,
        )
    };
    match resources.modify(now, grant, &ask) {
        Ok(_) => traffic.rate,
        Err(_) => held,
    }
}

/// The refusal of admission control or policy as INFO-SPEC and QSPEC.
fn local_refusal(refusal: &Refusal, qspec: &[u8]) -> LocalRefusal {
    let (info, blame) = match refusal.cause() {
        Cause::Policy | Cause::Token => (Info::AUTHORISATION, None),
        Cause::NoGrant => (Info::INTERNAL, None),
        _ => (Info::RESERVATION_FAILURE, Some(ParameterId::TMOD_1)),
    };
    let mut shown = Vec::new();
    let failure = info == Info::RESERVATION_FAILURE;
    let conflict = refusal.cause() == Cause::Conflict;
    LocalRefusal {
        qspec: (failure && rules::refuse(qspec, blame, &mut shown).is_ok()).then_some(shown),
        note: Some(if conflict { format!("{CONFLICT}{refusal}") } else { refusal.to_string() }),
        // A conflict says nothing about the link.
        available: Some(refusal.available).filter(|_| !conflict),
        ..LocalRefusal::of(info)
    }
}

/// The message that carries the QSPEC of the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CarriedBy {
    /// A RESERVE.
    Reserve,
    /// A QUERY with RESERVE-INIT.
    Init,
    /// A QUERY.
    Query,
}

/// The QSPEC of a request of a user (RFC 5975 §4.3); empty if its values have no encoding.
pub(super) fn initial(
    qos: &QosRequest,
    priority: Option<command::Priority>,
    carried_by: CarriedBy,
) -> Vec<u8> {
    let tmod = |rate: u64| {
        rules::tmod_of(&TrafficSpec {
            rate,
            burst: qos.burst(),
            peak: qos.peak.map(|peak| peak.max(rate)),
            min_policed: qos.min_policed.max(1),
            max_packet: qos.max_packet,
        })
    };
    // A QSPEC has no error terms (RFC 5975 §3.3.1). The rate for a delay bound is that of the fluid model: the burst
    // is sent within the delay.
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
    let procedure = match (carried_by, minimum.is_empty()) {
        (CarriedBy::Reserve, true) => Procedure::DESIRED,
        (CarriedBy::Reserve, false) => Procedure::MINIMUM,
        (CarriedBy::Init, true) => Procedure::RECEIVER_DESIRED,
        (CarriedBy::Init, false) => Procedure::RECEIVER_AVAILABLE,
        (CarriedBy::Query, _) => Procedure::QUERY,
    };
    let wish = Wish {
        minimum: if carried_by == CarriedBy::Query { &[] } else { &minimum },
        collect: Collect { latency: carried_by == CarriedBy::Query, ..Collect::default() },
        ..Wish::of(procedure, &desired)
    };
    let mut octets = Vec::new();
    let _ = wish.compose(&mut octets);
    octets
}

/// The QSPEC of a RESPONSE at the end of the path (RFC 5975 §4.3).
pub(super) fn answer(octets: &[u8], query: bool) -> Option<Vec<u8>> {
    let mut answer = Vec::new();
    let message = if query { Message::Query } else { Message::Reserve };
    rules::respond(octets, message, &mut answer).ok().map(|()| answer)
}

/// The QSPEC of the RESERVE that answers a QUERY with RESERVE-INIT (RFC 5975 §4.3.2).
pub(super) fn reserve_for(octets: &[u8]) -> Option<Vec<u8>> {
    let mut reserve = Vec::new();
    rules::reserve_for(octets, &mut reserve).ok().map(|()| reserve)
}

/// Whether a RESERVE with a QSPEC is for what a QUERY with RESERVE-INIT asks for, perhaps for smaller packets.
pub(super) fn answers(reserve: &[u8], query: &[u8]) -> bool {
    rules::answers(reserve, query)
}

/// A QSPEC for packets of at most this size.
pub(super) fn with_packets(octets: &[u8], most: u32) -> Option<Vec<u8>> {
    let mut smaller = Vec::new();
    rules::with_packets(octets, most, &mut smaller).ok().map(|()| smaller)
}

/// The requested traffic of a QSPEC.
pub(super) fn desired(octets: &[u8]) -> Option<TrafficSpec> {
    match Qspec::frame(octets).ok()?.desired()?.value(ParameterId::TMOD_1)? {
        Value::Tmod1(tmod) => Some(rules::traffic_of(&tmod)),
        _ => None,
    }
}

/// The requested rate of a QSPEC, in octets a second.
pub(super) fn rate(octets: &[u8]) -> Option<u64> {
    desired(octets).map(|traffic| traffic.rate)
}

/// The QoS of a QSPEC, for users.
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
        max_packet: Some(traffic.max_packet).filter(|packet| *packet < u32::MAX),
        delay_bound: slack.then(bound),
        latency_us: latency,
    }
}

/// A parameter of a QSPEC that a node on the path could not interpret: its N flag is set (RFC 5975 §4.2.2).
pub(super) fn not_supported(octets: &[u8]) -> Option<ParameterId> {
    let qspec = Qspec::frame(octets).ok()?;
    let mut parameters = qspec.objects().flat_map(|object| object.parameters());
    parameters.find(|parameter| parameter.flags.not_supported).map(|parameter| parameter.id)
}

/// The available rate in the QSPEC of a refusal, in octets a second.
pub(super) fn available_rate(octets: &[u8]) -> Option<u64> {
    match Qspec::frame(octets).ok()?.available()?.value(ParameterId::TMOD_1)? {
        Value::Tmod1(tmod) => Some(rules::traffic_of(&tmod).rate),
        _ => None,
    }
}

/// The QSPEC of a QUERY with RESERVE-INIT that requests the same as a RESERVE.
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

/// Whether admission control would grant the request of a QSPEC.
pub(super) fn would_fit(resources: &Resources, now: Time, flow: &Flow<'_>, qspec: &[u8]) -> bool {
    let mut onward = Vec::new();
    let Ok(passed) = pass_here(resources, flow, qspec, Message::Reserve, Limits::default(), &mut onward)
    else {
        return true;
    };
    let Some(ifindex) = flow.ifindex else { return true };
    match ask(resources, now, flow, ifindex, &passed.demand) {
        Some(Ok(ask)) => resources.dry_run(now, &ask).result.is_ok(),
        _ => false,
    }
}

/// The QSPEC that a stateless node forwards: with flags on parameters that it cannot satisfy.
pub(super) fn pass_stateless(
    resources: &Resources,
    flow: &Flow<'_>,
    octets: &[u8],
    query: bool,
    refused: bool,
) -> Vec<u8> {
    let message = if query { Message::Query } else { Message::Reserve };
    let mut onward = Vec::new();
    match pass_here(resources, flow, octets, message, Limits::default(), &mut onward) {
        Ok(_) if refused => {
            let mut marked = Vec::new();
            match rules::refuse(&onward, Some(ParameterId::TMOD_1), &mut marked) {
                Ok(()) => marked,
                Err(_) => onward,
            }
        }
        Ok(_) => onward,
        // A QSPEC that an earlier node marked as failed is forwarded unchanged; a malformed one with flags.
        Err(LocalRefusal { info: Info::RESERVATION_FAILURE, qspec: Some(qspec), .. }) => qspec,
        Err(_) => {
            let mut marked = Vec::new();
            if rules::flagged(octets, message, &mut marked) { marked } else { octets.to_vec() }
        }
    }
}

/// Reserves a rate for all flows of one code point at an interface, in the place of `grant`.
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
    let ask = GrantRequest {
        service: ServiceClass::Dscp(dscp),
        lifetime: Some(flow.lifetime),
        ..GrantRequest::new(owner, requester(flow), ifindex, filter, sum_of(rate))
    };
    let result = match grant {
        Some(grant) => resources.modify(now, grant, &ask),
        None => resources.admit(now, &ask),
    };
    result.map(|admitted| Some(admitted.grant)).map_err(|_| ())
}

/// Reduces such a reservation. Returns its grant, if any.
pub(super) fn shrink(resources: &mut Resources, now: Time, grant: GrantId, rate: u64) -> Option<GrantId> {
    if rate == 0 {
        resources.release(grant);
        return None;
    }
    let view = resources.reservation(grant)?;
    let filter = *view.filters.first()?;
    let ask = GrantRequest {
        service: view.service,
        ..GrantRequest::new(view.owner, view.requester.clone(), view.ifindex, filter, sum_of(rate))
    };
    resources.modify(now, grant, &ask).ok().map(|admitted| admitted.grant)
}

fn sum_of(rate: u64) -> TrafficSpec {
    let burst = u32::try_from(rate / 10).unwrap_or(u32::MAX).max(3000);
    TrafficSpec { rate, burst, peak: None, min_policed: 1, max_packet: 1500 }
}

/// The code point of the PHB that a QSPEC requests.
pub(super) fn dscp(octets: &[u8]) -> Option<u8> {
    match Qspec::frame(octets).ok()?.desired()?.value(ParameterId::PHB_CLASS)? {
        Value::Phb(PhbClass::Standard { dscp, .. }) => Some(dscp),
        _ => None,
    }
}
