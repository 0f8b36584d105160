//! Reservations of the QoS NSLP at the edge of the API.

use std::time::Duration;

use signalbox_api::v1;
use signalbox_api::v1::service::Service as ApiService;
use signalbox_node::qos::{
    Answer, Flow, Granted, Priority, QosEvent, QosRequest, QueryRequest, Refusal, ReserveRequest, Service,
};
use signalbox_show::qos as show;
use tonic::Status;

use crate::api::errors::{FieldError, Reason, not_running};
use crate::api::reserver::only_with;
use crate::api::types::{self, number};

/// The reservation that a client asks for. The application checks whether the values fit each other.
pub(super) fn reserve_request(open: &v1::ReserveOpen) -> Result<ReserveRequest, FieldError> {
    let flow = flow("open.flow", open.flow.as_ref())?;
    let (service, delay) = service("open.service", open.service.as_ref())?;
    let qos = QosRequest {
        service,
        delay,
        minimum: open.min_rate_octets_per_s,
        ..traffic("open.traffic", open.traffic.as_ref())?
    };
    let authority = open.authority.clone().unwrap_or_default();
    only_with(
        "rsvp",
        &[
            ("open.authority.policy_data", authority.policy_data.is_some()),
            ("open.authority.user", authority.user.is_some()),
        ],
    )?;
    let value = |name: &str, value| number(&format!("open.authority.priority.{name}"), value, 0, 0xffff);
    let priority = match authority.priority {
        Some(v1::Priority { setup, defending }) => Some(Priority {
            preemption: value("setup", setup)?,
            defending: value("defending", defending.unwrap_or(setup))?,
        }),
        None => None,
    };
    Ok(ReserveRequest {
        receiver_initiated: open.receiver_initiated,
        bidirectional: open.bidirectional,
        hold: open.hold_us.map(Duration::from_micros),
        priority,
        confirm_release: open.confirm_release,
        token: authority.session_auth,
        ..ReserveRequest::new(flow, qos)
    })
}

/// A reservation with other traffic.
pub(super) fn changed(
    request: &ReserveRequest,
    bucket: &v1::TokenBucket,
) -> Result<ReserveRequest, FieldError> {
    let QosRequest { service, delay, .. } = request.qos;
    let qos = QosRequest { service, delay, ..traffic("change.traffic", Some(bucket))? };
    Ok(ReserveRequest { qos, ..request.clone() })
}

/// The query that a client asks for.
pub(super) fn query_request(query: &v1::QueryRequest) -> Result<QueryRequest, FieldError> {
    only_with("Reserve", &[("authority", query.authority.is_some())])?;
    let (service, delay) = service("service", query.service.as_ref())?;
    let qos = QosRequest { service, delay, ..traffic("traffic", query.traffic.as_ref())? };
    Ok(QueryRequest::new(flow("flow", query.flow.as_ref())?, qos))
}

fn flow(field: &str, flow: Option<&v1::FlowSpec>) -> Result<Flow, FieldError> {
    let flow = types::Flow::read(field, flow)?;
    let (src, dst) = flow.hosts(field)?;
    Ok(Flow {
        dst,
        src,
        protocol: flow.protocol,
        src_port: flow.src_port,
        dst_port: flow.dst_port,
        dscp: flow.dscp,
        flow_label: flow.flow_label,
        spi: flow.spi,
    })
}

fn traffic(field: &str, bucket: Option<&v1::TokenBucket>) -> Result<QosRequest, FieldError> {
    let bucket = bucket.ok_or_else(|| FieldError::new(field, "missing"))?;
    if bucket.rate_octets_per_s == 0 {
        return Err(FieldError::new(format!("{field}.rate_octets_per_s"), "at least 1"));
    }
    let default = QosRequest::rate(bucket.rate_octets_per_s);
    let burst_field = format!("{field}.burst_octets");
    let burst = bucket.burst_octets.map(u32::try_from).transpose();
    let qos = QosRequest {
        burst: burst.map_err(|_| FieldError::new(&burst_field, "at most 4294967295"))?,
        peak: bucket.peak_octets_per_s,
        max_packet: bucket.max_packet_octets.unwrap_or(default.max_packet),
        fixed_packet: bucket.max_packet_octets.is_some(),
        min_policed: bucket.min_policed_octets.unwrap_or(default.min_policed),
        ..default
    };
    if qos.burst() < qos.max_packet {
        return Err(FieldError::new(burst_field, "at least one largest packet"));
    }
    Ok(qos)
}

fn service(field: &str, service: Option<&v1::Service>) -> Result<(Service, Option<Duration>), FieldError> {
    match service.and_then(|service| service.service.as_ref()) {
        None | Some(ApiService::ControlledLoad(_)) => Ok((Service::ControlledLoad, None)),
        Some(ApiService::Guaranteed(v1::Guaranteed {
            rate_octets_per_s: None,
            slack_us: None,
            delay_bound_us,
        })) => Ok((Service::Guaranteed, delay_bound_us.map(Duration::from_micros))),
        Some(ApiService::Guaranteed(_)) => {
            let what = "the node computes rate and slack: give `delay_bound_us`, or nothing";
            Err(FieldError::new(format!("{field}.guaranteed"), what))
        }
        Some(ApiService::Dscp(dscp)) => {
            Ok((Service::Dscp(number(&format!("{field}.dscp"), *dscp, 0, 63)?), None))
        }
    }
}

/// The answer to a query; `None` if the event is not the answer yet.
pub(super) fn query_response(event: QosEvent) -> Option<Result<v1::QueryResponse, Status>> {
    use v1::query_response::Answer as Reply;
    let answer = match event {
        QosEvent::Answer(Answer { session, available, hops, gaps, far_end }) => {
            let granted = Granted { session, quality: available, hops, gaps, far_end, back: None };
            Reply::Available(show::grant(&granted))
        }
        QosEvent::Failed(failed) | QosEvent::Lost(failed) => Reply::Failed(show::failure(failed)),
        QosEvent::Refused(refusal) => return Some(Err(refused(refusal))),
        other @ QosEvent::Released => return Some(Err(unexpected(&other))),
        QosEvent::Started { .. } | QosEvent::Granted(_) | QosEvent::Rerouted(_) => return None,
    };
    Some(Ok(v1::QueryResponse { answer: Some(answer) }))
}

/// The status for a request that the application refuses.
pub(super) fn refused(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Address | Refusal::Ports => FieldError::new("open.flow", refusal).into(),
        Refusal::Value => FieldError::new("open", refusal).into(),
        Refusal::TooMany => Reason::TableFull.status(refusal),
        Refusal::NoApplication => not_running("qos"),
        Refusal::NoRoute => Reason::NoRoute.status(refusal),
        Refusal::Stateless => Reason::Stateless.status(refusal),
        Refusal::IdInUse => Reason::Internal.status(refusal),
    }
}

/// The status for an event that cannot come.
pub(super) fn unexpected(event: &QosEvent) -> Status {
    Reason::Internal.status(format!("an event that does not fit the call: {event:?}"))
}
