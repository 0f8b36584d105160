//! The resource management function: QSPECs on one side, [`Resources`] on the other (RFC 5974 §5.3.8, Appendix A).
//!
//! The octets of a QSPEC are whole here and opaque everywhere else in the engine.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::slab::Key;
use signalbox_core::traffic::{FlowFilter, ServiceClass, TrafficSpec};
use signalbox_core::{IfIndex, Mri, SessionId, Time};
use signalbox_resources::ask::Session;
use signalbox_resources::{Ask, Asker, Cause, GrantId, Owner, Refusal, Resources};
use signalbox_wire::Writer;

use super::command::{self, QosRequest};
use super::event::Quality;
use crate::wire::qspec::{
    Composer, EncodeError, Flags, Header, ObjectComposer, ObjectType, ParameterId, PhbClass, Preemption,
    Procedure, Qspec, Tmod, Value,
};
use crate::wire::{Carried, Classifier, Info, InfoClass};

/// A request's surroundings.
#[derive(Debug)]
pub(super) struct Flow<'a> {
    pub(super) key: Key,
    pub(super) session: SessionId,
    pub(super) mri: &'a Mri,
    pub(super) classifier: Option<Classifier>,
    /// Where its packets leave; `None`: they end here.
    pub(super) ifindex: Option<IfIndex>,
    pub(super) mtu: u32,
    pub(super) initiator: IpAddr,
    pub(super) auth: Carried<'a>,
    pub(super) lifetime: Duration,
    /// Routers without the application are before this node.
    pub(super) gap: bool,
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

/// Asks for what a QSPEC wants, in the place of what `old` holds.
pub(super) fn reserve(
    resources: &mut Resources,
    now: Time,
    flow: &Flow<'_>,
    qspec: &[u8],
    old: Option<GrantId>,
) -> Result<Given, Denial> {
    let demand = demand(qspec)?;
    let qspec = qspec.to_vec();
    let Some(ifindex) = flow.ifindex else {
        if let Some(old) = old {
            resources.release(old);
        }
        return Ok(Given { grant: None, ifindex: None, rate: 0, qspec });
    };
    let ask = ask(flow, ifindex, &demand);
    let rate = ask.traffic.rate;
    let result = match old {
        Some(old) => resources.modify(now, old, &ask),
        None => resources.admit(now, &ask),
    };
    match result {
        Ok(admitted) => Ok(Given { grant: Some(admitted.grant), ifindex: Some(ifindex), rate, qspec }),
        Err(refusal) => Err(denied(&refusal)),
    }
}

struct Demand {
    tmod: Tmod,
    service: ServiceClass,
    priority: signalbox_resources::Priority,
}

fn demand(octets: &[u8]) -> Result<Demand, Denial> {
    let malformed = || Denial { info: Info::MALFORMED_QSPEC, qspec: None, note: None, available: None };
    let qspec = Qspec::parse(octets).map_err(|error| Denial {
        info: Info { class: InfoClass(error.outcome().class), code: error.outcome().code },
        ..malformed()
    })?;
    let desired = qspec.desired().ok_or_else(malformed)?;
    let Some(Value::Tmod1(tmod)) = desired.value(ParameterId::TMOD_1) else { return Err(malformed()) };
    let service = match (desired.value(ParameterId::SLACK_TERM), desired.value(ParameterId::PHB_CLASS)) {
        (Some(_), _) => ServiceClass::Guaranteed,
        (_, Some(Value::Phb(PhbClass::Standard { dscp, .. }))) => ServiceClass::Dscp(dscp),
        _ => ServiceClass::ControlledLoad,
    };
    let priority = match desired.value(ParameterId::PREEMPTION_PRIORITY) {
        Some(Value::Preemption(p)) => {
            signalbox_resources::Priority { setup: p.preemption, defending: p.defending }
        }
        _ => signalbox_resources::Priority::default(),
    };
    Ok(Demand { tmod, service, priority })
}

fn ask(flow: &Flow<'_>, ifindex: IfIndex, demand: &Demand) -> Ask {
    let owner = Owner { protocol: super::PROTOCOL, key: flow.key.to_u64() };
    Ask {
        service: demand.service,
        priority: demand.priority,
        lifetime: Some(flow.lifetime),
        session: Some(Session(u128::from_be_bytes(flow.session.0))),
        ..Ask::new(
            owner,
            Asker::at(flow.initiator),
            ifindex,
            filter(flow.mri, flow.classifier),
            traffic(&demand.tmod),
        )
    }
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

/// Why admission control or policy refused, as an INFO-SPEC says it.
fn denied(refusal: &Refusal) -> Denial {
    let info = match refusal.cause() {
        Cause::Policy | Cause::Token => Info::AUTHORISATION,
        Cause::NoGrant => Info::INTERNAL,
        _ => Info::RESERVATION_FAILURE,
    };
    let note = Some(refusal.to_string());
    Denial { info, qspec: None, note, available: Some(refusal.available) }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
fn whole(x: f32) -> u64 {
    x.ceil() as u64
}

fn traffic(tmod: &Tmod) -> TrafficSpec {
    TrafficSpec {
        rate: whole(tmod.rate),
        burst: u32::try_from(whole(tmod.bucket)).unwrap_or(u32::MAX),
        peak: tmod.peak.is_finite().then(|| whole(tmod.peak)),
        min_policed: tmod.min_policed,
        max_packet: tmod.max_packet,
    }
}

/// The QSPEC of a user's wish.
pub(super) fn initial(qos: &QosRequest, priority: Option<command::Priority>) -> Vec<u8> {
    #[expect(clippy::cast_precision_loss, reason = "rates need no more than 24 bits")]
    let float = |n: u64| n as f32;
    let tmod = Tmod {
        rate: float(qos.rate),
        bucket: float(qos.burst().into()),
        peak: qos.peak.map_or(f32::INFINITY, float),
        min_policed: qos.min_policed.max(1),
        max_packet: qos.max_packet,
    };
    composed(ObjectType::DESIRED, |object| {
        object.put(Flags::MANDATORY, &Value::Tmod1(tmod))?;
        if qos.service == command::Service::Guaranteed {
            object.put(Flags::MANDATORY, &Value::SlackTerm(0))?;
        }
        if let command::Service::Dscp(dscp) = qos.service {
            object.put(Flags::MANDATORY, &Value::Phb(PhbClass::dscp(dscp)))?;
        }
        if let Some(priority) = priority {
            let preemption = Preemption { preemption: priority.preemption, defending: priority.defending };
            object.put(Flags::default(), &Value::Preemption(preemption))?;
        }
        Ok(())
    })
}

fn composed(
    kind: ObjectType,
    parameters: impl FnOnce(&mut ObjectComposer<'_, '_>) -> Result<(), EncodeError>,
) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut w = Writer::new(&mut octets);
    let written = Composer::new(Header::initiator(Procedure::DESIRED), &mut w).and_then(|mut composer| {
        composer.object(kind, false, parameters)?;
        composer.finish(None)
    });
    if written.is_err() {
        octets.clear();
    }
    octets
}

/// The QSPEC of a RESPONSE at the end of the path, out of that of the RESERVE.
pub(super) fn answer(octets: &[u8]) -> Option<Vec<u8>> {
    let qspec = Qspec::parse(octets).ok()?;
    let desired = qspec.desired()?;
    Some(composed(ObjectType::RESERVED, |object| {
        desired.parameters().try_for_each(|parameter| object.copy(&parameter))
    }))
}

/// What a QSPEC gives, for people.
pub(super) fn quality(octets: &[u8]) -> Quality {
    let Ok(qspec) = Qspec::parse(octets) else { return Quality::default() };
    let object = qspec.reserved().or_else(|| qspec.available()).or_else(|| qspec.desired());
    let Some(Value::Tmod1(tmod)) = object.and_then(|object| object.value(ParameterId::TMOD_1)) else {
        return Quality::default();
    };
    let traffic = traffic(&tmod);
    Quality { rate: Some(traffic.rate), burst: Some(traffic.burst), delay_bound: None, latency_us: None }
}

/// What a refusal offers instead, in octets a second.
pub(super) fn available_rate(octets: &[u8]) -> Option<u64> {
    let qspec = Qspec::frame(octets).ok()?;
    match qspec.available()?.value(ParameterId::TMOD_1)? {
        Value::Tmod1(tmod) => Some(whole(tmod.rate)),
        _ => None,
    }
}
