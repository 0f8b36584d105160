//! RSVP at the edge of the API.

mod carried;

use signalbox_api::v0;
use signalbox_api::v0::rsvp_filter::Selector as ApiSelector;
use signalbox_api::v0::rsvp_upcall::Upcall;
use signalbox_core::node::Interface;
use signalbox_core::{IfIndex, Time};
use signalbox_node::resources::GrantId;
use signalbox_node::resources::intserv::{RSpec, SpecError, TSpec};
use signalbox_node::rsvp::neighbour::{self, AuthenticationFailure};
use signalbox_node::rsvp::{
    ErrorSpec, Filter, FlowRequest, FlowSpec, Refused, ReserveRequest, RsvpEvent, Selector, SenderRequest,
    Session, SessionKind, SessionView, Style,
};
use tonic::Status;

use crate::v0::convert::{address, millis};
use carried::{adspec_object_to_api, adspec_to_api, policy, policy_to_api};

/// TTL of the data if the client gives none: that of Linux after the first router.
const TTL: u8 = 63;
/// ERROR_SPEC flags.
const IN_PLACE: u8 = 1;
const NOT_GUILTY: u8 = 2;

/// The session that a client registers.
pub(super) fn session(register: &v0::RsvpRegister) -> Result<Session, Status> {
    let wrong = |what: &str| Status::invalid_argument(what.to_owned());
    let dest = address("register.destination", &register.destination)?;
    let protocol = u8::try_from(register.protocol).ok().filter(|protocol| *protocol != 0);
    Ok(Session {
        dest,
        protocol: protocol.ok_or_else(|| wrong("register.protocol: between 1 and 255"))?,
        kind: if register.ipsec { SessionKind::Gpi } else { SessionKind::Ports },
        port: u16::try_from(register.port).map_err(|_| wrong("register.port: between 0 and 65535"))?,
    })
}

/// The sender that a client announces; without a source address it has that of `own`.
pub(super) fn sender(
    sender: &v0::RsvpSender,
    own: impl FnOnce() -> Result<std::net::IpAddr, Status>,
) -> Result<SenderRequest, Status> {
    let none = v0::RsvpFilter::default();
    let asked = sender.filter.as_ref().unwrap_or(&none);
    let src = if asked.source.is_empty() { own()? } else { address("sender.filter.source", &asked.source)? };
    let ttl = match sender.ttl {
        0 => TTL,
        ttl => u8::try_from(ttl).map_err(|_| Status::invalid_argument("sender.ttl: up to 255"))?,
    };
    Ok(SenderRequest {
        template: Filter { src, selector: selector("sender.filter", asked)? },
        tspec: traffic("sender.traffic", sender.traffic.as_ref())?,
        adspec: !sender.without_adspec,
        ttl,
        policy: policy("sender.policy", sender.policy.as_ref())?,
    })
}

/// The reservation that a client asks for.
pub(super) fn reserve(reserve: &v0::RsvpReserve) -> Result<ReserveRequest, Status> {
    let style = match reserve.style() {
        v0::RsvpStyle::FixedFilter => Style::Ff,
        v0::RsvpStyle::WildcardFilter => Style::Wf,
        v0::RsvpStyle::SharedExplicit => Style::Se,
    };
    let flows = reserve.flows.iter().map(|flow| {
        let senders = flow.senders.iter().map(|sender| filter("reserve.flows.senders", sender));
        Ok(FlowRequest {
            flowspec: flowspec(flow.flowspec.as_ref())?,
            senders: senders.collect::<Result<_, _>>()?,
        })
    });
    let flows = flows.collect::<Result<Vec<_>, Status>>()?;
    let policy = policy("reserve.policy", reserve.policy.as_ref())?;
    Ok(ReserveRequest { style, flows, confirm: reserve.confirm, policy })
}

fn filter(field: &str, asked: &v0::RsvpFilter) -> Result<Filter, Status> {
    Ok(Filter { src: address(field, &asked.source)?, selector: selector(field, asked)? })
}

fn selector(field: &str, asked: &v0::RsvpFilter) -> Result<Selector, Status> {
    Ok(match asked.selector {
        None => Selector::Port(0),
        Some(ApiSelector::Port(port)) => Selector::Port(
            u16::try_from(port)
                .map_err(|_| Status::invalid_argument(format!("{field}.port: between 0 and 65535")))?,
        ),
        Some(ApiSelector::FlowLabel(label)) if label >> 20 == 0 => Selector::FlowLabel(label),
        Some(ApiSelector::FlowLabel(_)) => {
            return Err(Status::invalid_argument(format!("{field}.flow_label: 20 bits")));
        }
        Some(ApiSelector::Spi(spi)) => Selector::Gpi(spi),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "RSVP's numbers are single floats; their range is checked"
)]
fn traffic(field: &str, asked: Option<&v0::RsvpTraffic>) -> Result<TSpec, Status> {
    let asked = asked.ok_or_else(|| Status::invalid_argument(format!("{field}: missing")))?;
    let peak = asked.peak.map_or(f32::INFINITY, |peak| peak as f32);
    TSpec::new(asked.rate as f32, asked.burst as f32, peak, asked.min_policed, asked.max_packet)
        .map_err(|error| out_of_range(field, error))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "RSVP's numbers are single floats; their range is checked"
)]
fn flowspec(asked: Option<&v0::RsvpFlowspec>) -> Result<FlowSpec, Status> {
    const FIELD: &str = "reserve.flows.flowspec";
    let asked = asked.ok_or_else(|| Status::invalid_argument(format!("{FIELD}: missing")))?;
    let tspec = traffic(FIELD, asked.traffic.as_ref())?;
    let rspec = asked
        .service_rate
        .map(|rate| RSpec::new(rate as f32, asked.slack_us).and_then(|rspec| rspec.checked(&tspec)));
    Ok(FlowSpec { tspec, rspec: rspec.transpose().map_err(|error| out_of_range(FIELD, error))? })
}

/// This host's address at the interface where a client receives a group.
pub(super) fn receive_at(at: &v0::RsvpReceiveAt) -> Result<std::net::IpAddr, Status> {
    address("receive_at.address", &at.address)
}

fn out_of_range(field: &str, error: SpecError) -> Status {
    Status::invalid_argument(format!("{field}: {error}"))
}

/// The status that ends the call of a client whose registration is refused.
pub(super) fn not_registered(refused: Refused) -> Status {
    let text = refused.to_string();
    match refused {
        Refused::NotRunning => Status::failed_precondition(text),
        Refused::Full => Status::resource_exhausted(text),
        Refused::NameTaken => Status::internal(text),
        Refused::NoSession
        | Refused::BadSession
        | Refused::NoGpi
        | Refused::BadPort
        | Refused::ConflictingTypes
        | Refused::ConflictingPorts
        | Refused::BadSource
        | Refused::BadReceiver
        | Refused::SenderTaken
        | Refused::BadFlows
        | Refused::ConflictingStyle
        | Refused::BadFlowspec
        | Refused::NotOffered
        | Refused::BadPolicy
        | Refused::NothingToRelease => Status::invalid_argument(text),
    }
}

/// An event as an application receives it (RFC 2205 §3.11.1).
pub(super) fn upcall(event: RsvpEvent) -> v0::RsvpUpcall {
    let upcall = match event {
        RsvpEvent::Refused(refused) => Upcall::Refused(v0::RsvpRefused { reason: refused.to_string() }),
        RsvpEvent::Path { sender, tspec, adspec, policy, broken } => Upcall::Path(v0::RsvpPath {
            sender: Some(filter_to_api(&sender)),
            traffic: Some(traffic_to_api(&tspec)),
            broken,
            adspec: adspec_object_to_api(&adspec),
            policy: policy_to_api(&policy),
        }),
        RsvpEvent::PathGone { sender } => Upcall::PathGone(filter_to_api(&sender)),
        RsvpEvent::Resv { style, flowspec, senders, policy } => Upcall::Reserved(v0::RsvpReserved {
            style: style_to_api(style).into(),
            flowspec: Some(flowspec_to_api(&flowspec)),
            senders: senders.iter().map(filter_to_api).collect(),
            policy: policy_to_api(&policy),
        }),
        RsvpEvent::ResvGone { sender } => Upcall::ReservedGone(filter_to_api(&sender)),
        RsvpEvent::PathError { error, sender, policy } => Upcall::PathError(v0::RsvpError {
            senders: vec![filter_to_api(&sender)],
            policy: policy_to_api(&policy),
            ..error_to_api(error)
        }),
        RsvpEvent::ResvError { error, flowspec, senders, policy, .. } => {
            Upcall::ReservationError(v0::RsvpError {
                senders: senders.iter().map(filter_to_api).collect(),
                flowspec: flowspec.as_ref().map(flowspec_to_api),
                policy: policy_to_api(&policy),
                ..error_to_api(error)
            })
        }
        RsvpEvent::Confirmed { node, style, flowspec, senders } => Upcall::Confirmed(v0::RsvpConfirmed {
            node: node.to_string(),
            style: style_to_api(style).into(),
            flowspec: flowspec.as_ref().map(flowspec_to_api),
            senders: senders.iter().map(filter_to_api).collect(),
        }),
    };
    v0::RsvpUpcall { upcall: Some(upcall) }
}

fn error_to_api(error: ErrorSpec) -> v0::RsvpError {
    v0::RsvpError {
        node: error.node.to_string(),
        code: error.code.0.into(),
        value: error.value.into(),
        meaning: error.code.to_string(),
        in_place: error.flags.0 & IN_PLACE != 0,
        not_guilty: error.flags.0 & NOT_GUILTY != 0,
        ..v0::RsvpError::default()
    }
}

/// The filter that selects a sender's packets.
pub(super) fn filter_to_api(filter: &Filter) -> v0::RsvpFilter {
    let selector = match filter.selector {
        Selector::Port(0) => None,
        Selector::Port(port) => Some(ApiSelector::Port(port.into())),
        Selector::FlowLabel(label) => Some(ApiSelector::FlowLabel(label)),
        Selector::Gpi(spi) => Some(ApiSelector::Spi(spi)),
    };
    v0::RsvpFilter { source: filter.src.to_string(), selector }
}

/// A token bucket.
pub(super) fn traffic_to_api(tspec: &TSpec) -> v0::RsvpTraffic {
    v0::RsvpTraffic {
        rate: tspec.rate().into(),
        burst: tspec.bucket().into(),
        peak: tspec.peak().is_finite().then_some(tspec.peak().into()),
        min_policed: tspec.min_policed(),
        max_packet: tspec.max_packet(),
    }
}

/// A flowspec that is requested, or in place.
pub(super) fn flowspec_to_api(flowspec: &FlowSpec) -> v0::RsvpFlowspec {
    v0::RsvpFlowspec {
        traffic: Some(traffic_to_api(&flowspec.tspec)),
        service_rate: flowspec.rspec.map(|rspec| rspec.rate().into()),
        slack_us: flowspec.rspec.map_or(0, |rspec| rspec.slack()),
    }
}

/// A style.
pub(super) const fn style_to_api(style: Style) -> v0::RsvpStyle {
    match style {
        Style::Ff => v0::RsvpStyle::FixedFilter,
        Style::Wf => v0::RsvpStyle::WildcardFilter,
        Style::Se => v0::RsvpStyle::SharedExplicit,
    }
}

/// A session as it stands at `now`, with the names of its interfaces; `enforced` gives whether the kernel keeps a grant.
pub(super) fn listed(
    view: &SessionView,
    now: Time,
    interfaces: &[Interface],
    enforced: impl Fn(Option<GrantId>) -> bool,
) -> v0::RsvpSession {
    let name = |ifindex: IfIndex| interface_name(interfaces, ifindex);
    let address = |address: Option<std::net::IpAddr>| address.map(|a| a.to_string()).unwrap_or_default();
    let senders = view.senders.iter().map(|sender| v0::RsvpSenderState {
        filter: Some(filter_to_api(&sender.sender)),
        traffic: Some(traffic_to_api(&sender.tspec)),
        previous_hop: address(sender.previous_hop),
        interface: name(sender.ifindex),
        expires_in_ms: sender.expires.map(|expires| millis(expires.since(now))),
        non_rsvp_hop: sender.non_rsvp_hop,
        broken: sender.broken,
        adspec: sender.adspec.as_ref().map(adspec_to_api),
        policy: policy_to_api(&sender.policy),
    });
    let reservations = view.reservations.iter().map(|reservation| v0::RsvpReservationState {
        style: style_to_api(reservation.style).into(),
        interface: name(reservation.ifindex),
        senders: reservation.senders.iter().map(filter_to_api).collect(),
        flowspec: Some(flowspec_to_api(&reservation.flowspec)),
        next_hops: reservation.next_hops.iter().map(|hop| address(*hop)).collect(),
        enforced: enforced(reservation.grant),
        policy: policy_to_api(&reservation.policy),
    });
    v0::RsvpSession {
        destination: view.session.dest.to_string(),
        protocol: view.session.protocol.into(),
        port: view.session.port.into(),
        ipsec: view.session.kind == SessionKind::Gpi,
        senders: senders.collect(),
        reservations: reservations.collect(),
    }
}

/// The name of an interface; empty if it is gone.
fn interface_name(interfaces: &[Interface], ifindex: IfIndex) -> String {
    let known = interfaces.iter().find(|interface| interface.ifindex == ifindex);
    known.map(|interface| interface.name.clone()).unwrap_or_default()
}

/// A neighbour as it stands at `now`, with the name of its interface.
pub(super) fn neighbour(view: &neighbour::View, now: Time, interfaces: &[Interface]) -> v0::RsvpNeighbour {
    let reduction = match view.reduction {
        (false, _) => v0::RsvpReduction::Off,
        (true, false) => v0::RsvpReduction::Names,
        (true, true) if !view.capable => v0::RsvpReduction::NotOffered,
        (true, true) if view.far => v0::RsvpReduction::Far,
        (true, true) => v0::RsvpReduction::Whole,
    };
    let hello = match view.hello {
        None => v0::RsvpHello::None,
        Some(true) => v0::RsvpHello::Up,
        Some(false) => v0::RsvpHello::Lost,
    };
    let associations = view.associations.iter().map(|one| v0::RsvpAssociation {
        key_id: one.key_id,
        sequence: one.sequence,
        unanswered: one.asked,
    });
    let distrusted = AuthenticationFailure::ALL.into_iter().filter_map(|why| {
        let messages = view.failures.map(|failures| failures.count(why)).filter(|count| *count > 0)?;
        Some(v0::RsvpDistrusted { reason: distrust(why).into(), messages })
    });
    v0::RsvpNeighbour {
        address: view.address.to_string(),
        interface: interface_name(interfaces, view.ifindex),
        heard_ms_ago: view.last_message.map(|heard| millis(now.since(heard))),
        reduction: reduction.into(),
        names: view.states,
        hello: hello.into(),
        signs: view.integrity.sending,
        requires_signature: view.integrity.receiving,
        key_id: view.signs_with,
        associations: associations.collect(),
        distrusted: distrusted.collect(),
        last_distrust: view.failures.map_or(0, |failures| distrust(failures.last).into()),
        distrusted_ms_ago: view.failures.map_or(0, |failures| millis(now.since(failures.at))),
    }
}

const fn distrust(why: AuthenticationFailure) -> v0::RsvpDistrust {
    match why {
        AuthenticationFailure::Unsigned => v0::RsvpDistrust::Unsigned,
        AuthenticationFailure::UnknownKey => v0::RsvpDistrust::UnknownKey,
        AuthenticationFailure::WrongDigest => v0::RsvpDistrust::WrongDigest,
        AuthenticationFailure::Replayed => v0::RsvpDistrust::Replayed,
        AuthenticationFailure::Unproven => v0::RsvpDistrust::Unproven,
        AuthenticationFailure::Unwilling => v0::RsvpDistrust::Unwilling,
    }
}
