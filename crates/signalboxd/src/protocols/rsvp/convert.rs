//! RSVP at the edge of the API.
//!
//! RSVP's rates are single floats. Those of a request become the next float that is not smaller, and those of an answer
//! the next whole number that is not smaller.

mod objects;

use std::net::IpAddr;

use signalbox_api::rsvp::v1;
use signalbox_api::rsvp::v1::filter::Selector as ApiSelector;
use signalbox_api::rsvp::v1::session_response::Upcall;
use signalbox_api::v1 as common;
use signalbox_node::resources::intserv::{RSpec, SpecError, TSpec};
use signalbox_node::rsvp::{
    ErrorCode, ErrorSpec, Filter, FlowRequest, FlowSpec, Refused, ReserveRequest, RsvpEvent, Selector,
    SenderRequest, Session, SessionKind, Style, TrafficControlValue, UserError,
};
use tonic::Status;

use crate::api::errors::{FieldError, Reason, not_running};
use crate::api::held::{guaranteed, whole};
use crate::api::types::{address, number, number_in, unix_us};
use objects::{adspec_object_to_api, policy};
pub(super) use objects::{adspec_to_api, policy_to_api};

/// ERROR_SPEC flags.
const IN_PLACE: u8 = 1;
const NOT_GUILTY: u8 = 2;
/// Largest packet of a request that does not give it.
const MAX_PACKET: u32 = 1500;

/// The session that a client registers.
pub(super) fn session(register: &v1::Register) -> Result<Session, FieldError> {
    Ok(Session {
        dest: address("register.destination", &register.destination)?,
        protocol: number("register.ip_protocol", register.ip_protocol, 1, 0xff)?,
        kind: if register.ipsec { SessionKind::Gpi } else { SessionKind::Ports },
        port: number_in("register.destination_port", register.destination_port, 1, 0xffff)?.unwrap_or(0),
    })
}

/// The sender that a client announces; without a source address it has that of `own`.
pub(super) fn sender(sender: &v1::Sender, own: Option<IpAddr>) -> Result<SenderRequest, FieldError> {
    const FILTER: &str = "sender.filter";
    let none = v1::Filter::default();
    let asked = sender.filter.as_ref().unwrap_or(&none);
    let template = Filter { src: source(FILTER, asked, own)?, selector: selector(FILTER, asked)? };
    let tspec = traffic("sender.traffic", sender.traffic.as_ref())?;
    Ok(SenderRequest {
        adspec: !sender.without_adspec,
        ttl: number_in("sender.ip_ttl", sender.ip_ttl, 1, 0xff)?.unwrap_or(SenderRequest::TTL),
        policy: policy("sender.policy", sender.policy.as_ref())?,
        protect: sender.protect,
        ..SenderRequest::new(template, tspec)
    })
}

/// The reservation that a client asks for.
pub(super) fn reserve(reserve: &v1::Reserve) -> Result<ReserveRequest, FieldError> {
    let style = style_in("reserve.style", reserve.style)?.unwrap_or(Style::Ff);
    const SENDERS: &str = "reserve.flows.senders";
    let flows = reserve.flows.iter().map(|flow| {
        let senders = flow.senders.iter().map(|sender| {
            let src = source(SENDERS, sender, None)?;
            Ok(Filter { src, selector: selector(SENDERS, sender)? })
        });
        Ok(FlowRequest {
            flowspec: flowspec("reserve.flows.flowspec", flow.flowspec.as_ref())?,
            senders: senders.collect::<Result<_, FieldError>>()?,
        })
    });
    let flows = flows.collect::<Result<Vec<_>, FieldError>>()?;
    let policy = policy("reserve.policy", reserve.policy.as_ref())?;
    Ok(ReserveRequest { style, flows, confirm: reserve.confirm, policy })
}

fn source(field: &str, asked: &v1::Filter, own: Option<IpAddr>) -> Result<IpAddr, FieldError> {
    let field = format!("{field}.source");
    match &asked.source {
        Some(source) => address(&field, source),
        None => own.ok_or_else(|| FieldError::new(field, "missing")),
    }
}

fn selector(field: &str, asked: &v1::Filter) -> Result<Selector, FieldError> {
    Ok(match asked.selector {
        None => Selector::Port(0),
        Some(ApiSelector::SourcePort(port)) => {
            Selector::Port(number(&format!("{field}.source_port"), port, 1, 0xffff)?)
        }
        Some(ApiSelector::FlowLabel(label)) => {
            Selector::FlowLabel(number(&format!("{field}.flow_label"), label, 0, 0xf_ffff)?)
        }
        Some(ApiSelector::Spi(spi)) => Selector::Gpi(spi),
    })
}

/// The next single float that is not smaller than a whole number.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "that is what it is for"
)]
fn float(number: u64) -> f32 {
    let near = number as f32;
    if (near as u64) < number { near.next_up() } else { near }
}

/// The traffic of a request.
pub(super) fn traffic(field: &str, asked: Option<&common::TokenBucket>) -> Result<TSpec, FieldError> {
    let asked = asked.ok_or_else(|| FieldError::new(field, "missing"))?;
    let rate = asked.rate_octets_per_s;
    let max_packet = asked.max_packet_octets.unwrap_or(MAX_PACKET);
    let burst = asked.burst_octets.unwrap_or_else(|| (rate / 10).max(2 * u64::from(max_packet)));
    let peak = asked.peak_octets_per_s.map_or(f32::INFINITY, float);
    TSpec::new(float(rate), float(burst), peak, asked.min_policed_octets.unwrap_or(1), max_packet)
        .map_err(|error| out_of_range(field, error))
}

fn flowspec(field: &str, asked: Option<&v1::Flowspec>) -> Result<FlowSpec, FieldError> {
    use common::service::Service;
    let asked = asked.ok_or_else(|| FieldError::new(field, "missing"))?;
    let tspec = traffic(&format!("{field}.traffic"), asked.traffic.as_ref())?;
    let name = format!("{field}.service");
    let rspec = match asked.service.as_ref().and_then(|service| service.service.as_ref()) {
        None | Some(Service::ControlledLoad(_)) => None,
        Some(Service::Guaranteed(common::Guaranteed {
            rate_octets_per_s,
            slack_us,
            delay_bound_us: None,
        })) => {
            let slack = u32::try_from(slack_us.unwrap_or(0));
            let slack =
                slack.map_err(|_| FieldError::new(format!("{name}.guaranteed.slack_us"), "32 bits"))?;
            let rate = rate_octets_per_s.map_or(tspec.rate(), float);
            let rspec = RSpec::new(rate, slack).and_then(|rspec| rspec.checked(&tspec));
            Some(rspec.map_err(|error| out_of_range(&name, error))?)
        }
        Some(Service::Guaranteed(_)) => {
            return Err(FieldError::new(
                format!("{name}.guaranteed.delay_bound_us"),
                "with qos only: give the rate",
            ));
        }
        Some(Service::Dscp(_)) => {
            return Err(FieldError::new(format!("{name}.dscp"), "RSVP has no such service"));
        }
    };
    Ok(FlowSpec { tspec, rspec })
}

/// This host's address at the interface where a client receives a group.
pub(super) fn receive_at(at: &v1::ReceiveAt) -> Result<IpAddr, FieldError> {
    address("receive_at.address", &at.address)
}

fn out_of_range(field: &str, error: SpecError) -> FieldError {
    FieldError::new(field, error)
}

/// The status that ends the call of a client whose registration is refused.
pub(super) fn not_registered(refused: Refused) -> Status {
    match refused {
        Refused::NotRunning => not_running("rsvp"),
        Refused::Full => Reason::TableFull.status(refused),
        Refused::NameTaken => Reason::Internal.status(refused),
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
        | Refused::NothingToRelease => FieldError::new("register", refused).into(),
    }
}

/// An event as an application receives it (RFC 2205 §3.11.1); `None`: it is of no application.
pub(super) fn upcall(event: RsvpEvent) -> Option<v1::SessionResponse> {
    let upcall = match event {
        RsvpEvent::Refused(refused) => Upcall::Refused(v1::Refused { message: refused.to_string() }),
        RsvpEvent::Path { sender, tspec, adspec, policy, broken } => Upcall::Path(v1::Path {
            sender: Some(filter_to_api(&sender)),
            traffic: Some(traffic_to_api(&tspec)),
            broken,
            adspec: adspec_object_to_api(&adspec),
            policy: policy_to_api(&policy),
        }),
        RsvpEvent::PathGone { sender } => Upcall::PathRemoved(filter_to_api(&sender)),
        RsvpEvent::Resv { style, flowspec, senders, policy, path: _ } => Upcall::Reserved(v1::Reserved {
            style: style_to_api(style).into(),
            flowspec: Some(flowspec_to_api(&flowspec)),
            senders: senders.iter().map(filter_to_api).collect(),
            policy: policy_to_api(&policy),
        }),
        RsvpEvent::ResvGone { sender } => Upcall::ReservedRemoved(filter_to_api(&sender)),
        RsvpEvent::PathError { error, sender, policy } => Upcall::PathError(v1::Error {
            senders: vec![filter_to_api(&sender)],
            policy: policy_to_api(&policy),
            ..error_to_api(error)
        }),
        RsvpEvent::ResvError { error, told, flowspec, senders, policy, .. } => {
            Upcall::ReservationError(v1::Error {
                failure: Some(explained(error, told)),
                senders: senders.iter().map(filter_to_api).collect(),
                flowspec: flowspec.as_ref().map(flowspec_to_api),
                policy: policy_to_api(&policy),
                ..error_to_api(error)
            })
        }
        RsvpEvent::Confirmed { node, style, flowspec, senders } => Upcall::Confirmed(v1::Confirmed {
            node: node.to_string(),
            style: style_to_api(style).into(),
            flowspec: flowspec.as_ref().map(flowspec_to_api),
            senders: senders.iter().map(filter_to_api).collect(),
        }),
        RsvpEvent::SendersEnded { .. } | RsvpEvent::NeighborForgotten { .. } => return None,
    };
    Some(response(upcall))
}

/// An upcall with its time.
pub(super) fn response(upcall: Upcall) -> v1::SessionResponse {
    v1::SessionResponse { time_unix_us: unix_us(), upcall: Some(upcall) }
}

fn error_to_api(error: ErrorSpec) -> v1::Error {
    v1::Error {
        in_place: error.flags.0 & IN_PLACE != 0,
        not_guilty: error.flags.0 & NOT_GUILTY != 0,
        failure: Some(failure(error)),
        ..v1::Error::default()
    }
}

/// An error that a node reports (RFC 2205 appendix B, RFC 2750, RFC 3209).
pub(super) fn failure(error: ErrorSpec) -> common::Failure {
    let code = common::RsvpCode { code: error.code.0.into(), value: error.value.into() };
    let cause = match error.code {
        ErrorCode::ADMISSION => common::Cause::Admission,
        ErrorCode::POLICY => common::Cause::Policy,
        ErrorCode::PREEMPTED => common::Cause::Preempted,
        ErrorCode::TRAFFIC_CONTROL_SYSTEM => common::Cause::Kernel,
        ErrorCode::CONFLICTING_STYLE
        | ErrorCode::CONFLICTING_DEST_PORTS
        | ErrorCode::CONFLICTING_SENDER_PORTS => common::Cause::Conflict,
        ErrorCode::TRAFFIC_CONTROL if error.value == TrafficControlValue::SERVICE_CONFLICT.0 => {
            common::Cause::Conflict
        }
        _ => common::Cause::Protocol,
    };
    common::Failure {
        cause: cause.into(),
        message: error.code.to_string(),
        node: Some(error.node.to_string()),
        code: Some(common::failure::Code::Rsvp(code)),
        ..common::Failure::default()
    }
}

/// An error with what the node that reports it adds.
fn explained(error: ErrorSpec, told: UserError) -> common::Failure {
    // The text is the name of a rule only where a rule decided.
    let by_rule = error.code == ErrorCode::POLICY;
    let (rule, detail) = if by_rule { (told.note, None) } else { (None, told.note) };
    common::Failure { rule, detail, available_octets_per_s: told.available, ..failure(error) }
}

/// The filter that selects a sender's packets.
pub(super) fn filter_to_api(filter: &Filter) -> v1::Filter {
    let selector = match filter.selector {
        Selector::Port(0) => None,
        Selector::Port(port) => Some(ApiSelector::SourcePort(port.into())),
        Selector::FlowLabel(label) => Some(ApiSelector::FlowLabel(label)),
        Selector::Gpi(spi) => Some(ApiSelector::Spi(spi)),
    };
    v1::Filter { source: Some(filter.src.to_string()), selector }
}

/// A token bucket. What its message does not give is absent; a rate of 0 is one that is not given.
pub(super) fn traffic_to_api(tspec: &TSpec) -> common::TokenBucket {
    common::TokenBucket {
        rate_octets_per_s: whole(tspec.rate()),
        burst_octets: Some(whole(tspec.bucket())).filter(|burst| *burst > 0),
        peak_octets_per_s: tspec.peak().is_finite().then(|| whole(tspec.peak())),
        min_policed_octets: Some(tspec.min_policed()),
        max_packet_octets: Some(tspec.max_packet()).filter(|packet| *packet > 0),
    }
}

/// A flowspec that is requested, or in place.
pub(super) fn flowspec_to_api(flowspec: &FlowSpec) -> v1::Flowspec {
    v1::Flowspec { traffic: Some(traffic_to_api(&flowspec.tspec)), service: Some(service(flowspec)) }
}

/// The service of a flowspec.
pub(super) fn service(flowspec: &FlowSpec) -> common::Service {
    use common::service::Service;
    let service = match flowspec.rspec {
        None => Service::ControlledLoad(common::ControlledLoad {}),
        Some(rspec) => Service::Guaranteed(guaranteed(Some(rspec))),
    };
    common::Service { service: Some(service) }
}

/// The style that a client names in this field.
pub(super) fn style_in(field: &'static str, style: i32) -> Result<Option<Style>, FieldError> {
    Ok(Some(match v1::Style::try_from(style) {
        Ok(v1::Style::Unspecified) => return Ok(None),
        Ok(v1::Style::FixedFilter) => Style::Ff,
        Ok(v1::Style::WildcardFilter) => Style::Wf,
        Ok(v1::Style::SharedExplicit) => Style::Se,
        Err(_) => return Err(FieldError::new(field, "fixed, wildcard or shared explicit filter")),
    }))
}

/// A style.
pub(super) const fn style_to_api(style: Style) -> v1::Style {
    match style {
        Style::Ff => v1::Style::FixedFilter,
        Style::Wf => v1::Style::WildcardFilter,
        Style::Se => v1::Style::SharedExplicit,
    }
}

#[cfg(test)]
mod tests;
