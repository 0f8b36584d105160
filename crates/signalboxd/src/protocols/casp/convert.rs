//! Probes and reservations of CASP at the edge of the API.

use std::time::Duration;

use signalbox_api::ping::v1;
use signalbox_api::v1 as common;
use signalbox_api::v1::service::Service as ApiService;
use signalbox_node::casp::{
    PingRefusal, PingRequest, ReservationEvent, ReserveRefusal, ReserveRequest, Reserved, SeriesEvent,
    ServiceRate,
};
use signalbox_show::casp as show;
use tonic::Status;

use crate::api::errors::{FieldError, Reason, not_running};
use crate::api::types::{self, Flow, unix_us};

/// The farthest start of a reservation, microseconds from now: nodes refuse later ones.
const LATEST_US: u64 = 24 * 3_600_000_000;
/// Interval and timeout of a request that does not give them.
const DEFAULT: Duration = Duration::from_secs(1);

/// The probes that a client asks for.
pub(super) fn request(request: &v1::PingRequest) -> Result<PingRequest, FieldError> {
    let asked = Flow::read("flow", request.flow.as_ref())?;
    let (src, dst) = asked.hosts("flow")?;
    for (name, value) in
        [("dscp", asked.dscp.map(u32::from)), ("flow_label", asked.flow_label), ("spi", asked.spi)]
    {
        if value.is_some() {
            return Err(FieldError::new(format!("flow.{name}"), "a ping has none"));
        }
    }
    if request.padding_octets != 0 {
        return Err(FieldError::new("padding_octets", "probes of CASP have none: leave it out"));
    }
    if request.format() != v1::PingFormat::Unspecified {
        return Err(FieldError::new("format", "it is one of Ping over GIST: leave it out"));
    }
    let time = |value: Option<u64>| value.map_or(DEFAULT, Duration::from_micros);
    Ok(PingRequest {
        src,
        protocol: asked.protocol,
        src_port: asked.src_port,
        dst_port: asked.dst_port,
        count: request.count,
        interval: time(request.interval_us),
        timeout: time(request.timeout_us),
        record_route: request.record_route,
        ..PingRequest::to(dst)
    })
}

/// An event as the client receives it; an error ends the stream. `start_us` is the wall clock at the node's start.
pub(super) fn response(event: SeriesEvent, start_us: u64) -> Result<v1::PingResponse, Status> {
    let event = show::event(event, start_us).map_err(refused)?;
    Ok(v1::PingResponse { time_unix_us: unix_us(), event: Some(event) })
}

fn refused(refusal: PingRefusal) -> Status {
    match refusal {
        PingRefusal::Address => FieldError::new("flow", refusal).into(),
        PingRefusal::Timing => FieldError::new("count", refusal).into(),
        PingRefusal::TooMany => Reason::TableFull.status(refusal),
        PingRefusal::NoRoute => Reason::NoRoute.status(refusal),
        PingRefusal::NotRunning => not_running("casp"),
        PingRefusal::NameTaken => Reason::Internal.status(refusal),
    }
}

/// The reservation that a client asks for.
pub(super) fn reserve_request(open: &common::ReserveOpen) -> Result<ReserveRequest, FieldError> {
    const FLOW: &str = "open.flow";
    let authority = open.authority.clone().unwrap_or_default();
    for (field, given) in [
        ("open.ip_ttl", open.ip_ttl.is_some()),
        ("open.protect", open.protect),
        ("open.authority.session_auth", authority.session_auth.is_some()),
        ("open.authority.policy_data", authority.policy_data.is_some()),
        ("open.authority.user", authority.user.is_some()),
    ] {
        if given {
            return Err(FieldError::new(field, "CASP has none here: leave it out"));
        }
    }
    let flow = Flow::read(FLOW, open.flow.as_ref())?;
    let (src, dst) = flow.hosts(FLOW)?;
    for (part, given) in [("dscp", flow.dscp.is_some()), ("spi", flow.spi.is_some())] {
        if given {
            return Err(FieldError::new(
                format!("{FLOW}.{part}"),
                "a flow of CASP has none here: leave it out",
            ));
        }
    }
    let wanted = wanted("open.traffic", open.traffic.as_ref(), open.service.as_ref())?;
    let priority = authority.priority.map(|priority| match u16::try_from(priority.setup) {
        Ok(level) if priority.defending.is_none_or(|defending| defending == priority.setup) => Ok(level),
        Ok(_) => {
            Err(FieldError::new("open.authority.priority.defending", "CASP has one priority: leave it out"))
        }
        Err(_) => Err(FieldError::new("open.authority.priority.setup", "0 to 65535")),
    });
    let partial = open.partial.map(|common::PartialReservation { failures, unaware }| {
        let number = |field, value| u16::try_from(value).map_err(|_| FieldError::new(field, "0 to 65535"));
        Ok((number("open.partial.failures", failures)?, number("open.partial.unaware", unaware)?))
    });
    Ok(ReserveRequest {
        src,
        protocol: flow.protocol,
        src_port: flow.src_port,
        dst_port: flow.dst_port,
        flow_label: flow.flow_label,
        wanted,
        least: open.min_rate_octets_per_s,
        receiver_initiated: open.receiver_initiated,
        bidirectional: open.bidirectional,
        priority: priority.transpose()?,
        partial: partial.transpose()?,
        time: time(open)?,
        ..ReserveRequest::to(dst, wanted.traffic)
    })
}

/// What a user's reservations have in common that take each other's place: the flow, who reserves, the directions, and the start.
pub(super) fn name(request: &ReserveRequest) -> String {
    let ReserveRequest { src, dst, protocol, src_port, dst_port, flow_label, .. } = request;
    let flow = (src, dst, protocol, src_port, dst_port, flow_label);
    let kind = (request.receiver_initiated, request.bidirectional);
    format!("casp {flow:?} {kind:?} {:?}", request.time.map(|(start, _)| start))
}

/// Start and end of a reservation in advance.
fn time(open: &common::ReserveOpen) -> Result<Option<(u64, u64)>, FieldError> {
    const FIELD: &str = "open.start_unix_us";
    let Some(start) = open.start_unix_us else { return Ok(None) };
    let Some(hold) = open.hold_us else {
        return Err(FieldError::new(FIELD, "a reservation in advance has an end: give open.hold_us too"));
    };
    if start > unix_us().saturating_add(LATEST_US) {
        return Err(FieldError::new(FIELD, "a day from now at most"));
    }
    Ok(Some((start, start.saturating_add(hold))))
}

/// The query that a client makes.
pub(super) fn query_request(query: &common::QueryRequest) -> Result<ReserveRequest, FieldError> {
    let common::QueryRequest { protocol: _, flow, traffic, service, authority, partial, .. } = query.clone();
    let open = common::ReserveOpen { flow, traffic, service, authority, partial, ..Default::default() };
    // Whatever there is answers the question about the whole path. With a part of it, a node has the rate or has no part.
    let least = if partial.is_some() { query.min_rate_octets_per_s } else { Some(1) };
    Ok(ReserveRequest { least, ..reserve_request(&open)? })
}

/// How much is asked for.
pub(super) fn wanted(
    field: &str,
    bucket: Option<&common::TokenBucket>,
    service: Option<&common::Service>,
) -> Result<Reserved, FieldError> {
    let traffic = types::traffic(field, bucket)?;
    let guaranteed = match service.and_then(|service| service.service.as_ref()) {
        None | Some(ApiService::ControlledLoad(_)) => None,
        Some(ApiService::Guaranteed(asked)) => {
            if asked.delay_bound_us.is_some() {
                let what = "CASP does not learn what the path adds: give the rate, or nothing";
                return Err(FieldError::new("open.service.guaranteed.delay_bound_us", what));
            }
            let slack = u32::try_from(asked.slack_us.unwrap_or(0));
            let slack_us =
                slack.map_err(|_| FieldError::new("open.service.guaranteed.slack_us", "32 bits"))?;
            Some(ServiceRate { rate: asked.rate_octets_per_s.unwrap_or(traffic.rate), slack_us })
        }
        Some(ApiService::Dscp(_)) => {
            let what = "CASP reserves controlled load and guaranteed service";
            return Err(FieldError::new("open.service.dscp", what));
        }
    };
    Ok(Reserved { traffic, guaranteed })
}

/// The status for a request that the node refuses.
pub(super) fn reserve_refused(refusal: ReserveRefusal) -> Status {
    match refusal {
        ReserveRefusal::Address | ReserveRefusal::Label | ReserveRefusal::PrivateFlow => {
            FieldError::new("open.flow", refusal).into()
        }
        ReserveRefusal::Receiver => FieldError::new("change", refusal).into(),
        ReserveRefusal::Traffic => FieldError::new("open.traffic", refusal).into(),
        ReserveRefusal::NoRoute => Reason::NoRoute.status(refusal),
        ReserveRefusal::NotRunning => Reason::ProtocolNotRunning.status(refusal),
        ReserveRefusal::NameTaken => Reason::Internal.status(refusal),
    }
}

/// The status for an event that cannot come.
pub(super) fn unexpected(event: &ReservationEvent) -> Status {
    Reason::Internal.status(format!("an event that does not fit the call: {event:?}"))
}
