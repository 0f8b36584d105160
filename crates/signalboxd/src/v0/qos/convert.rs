//! Reservations at the edge of the API.

use std::time::Duration;

use signalbox_api::v0;
use signalbox_node::qos::{
    Answer, Failure, Flow, Granted, HopGrant, Priority, QosEvent, QosRequest, Quality, QueryRequest, Refusal,
    ReserveRequest, Role, Service, SessionView,
};
use tonic::Status;

use crate::v0::convert::{address, flow, micros, millis, session_id};

/// The reservation that a client asks for. The application checks whether the values fit each other.
pub(super) fn reserve_request(request: v0::ReserveRequest) -> Result<ReserveRequest, Status> {
    let (flow, qos) = wanted(request.wanted)?;
    let priority = narrow::<u16>("priority", request.priority, "between 0 and 65535")?;
    Ok(ReserveRequest {
        receiver_initiated: request.receiver_initiated,
        bidirectional: request.bidirectional,
        hold: request.hold_ms.map(Duration::from_millis),
        priority: priority.map(|priority| Priority { preemption: priority, defending: priority }),
        confirm_release: request.confirm_release,
        token: (!request.token.is_empty()).then_some(request.token),
        ..ReserveRequest::new(flow, qos)
    })
}

/// The query that a client asks for.
pub(super) fn query_request(request: v0::QueryRequest) -> Result<QueryRequest, Status> {
    let (flow, qos) = wanted(request.wanted)?;
    Ok(QueryRequest::new(flow, qos))
}

fn wanted(wanted: Option<v0::Wanted>) -> Result<(Flow, QosRequest), Status> {
    const PORT: &str = "between 0 and 65535";
    let wanted = wanted.ok_or_else(|| Status::invalid_argument("wanted: missing"))?;
    let src = (!wanted.source.is_empty()).then(|| address("wanted.source", &wanted.source)).transpose()?;
    let flow = Flow {
        src,
        protocol: narrow("wanted.protocol", wanted.protocol, "between 0 and 255")?,
        src_port: narrow("wanted.source_port", wanted.source_port, PORT)?,
        dst_port: narrow("wanted.destination_port", wanted.destination_port, PORT)?,
        ..Flow::to(address("wanted.destination", &wanted.destination)?)
    };
    if wanted.rate == 0 {
        return Err(Status::invalid_argument("wanted.rate: above 0"));
    }
    let default = QosRequest::rate(wanted.rate);
    let service = service(&wanted.service)?;
    if wanted.delay_us.is_some() && service != Service::Guaranteed {
        return Err(Status::invalid_argument("wanted.delay_us: only with the service \"guaranteed\""));
    }
    let qos = QosRequest {
        burst: wanted.burst,
        peak: wanted.peak,
        max_packet: wanted.max_packet.unwrap_or(default.max_packet),
        min_policed: wanted.min_policed,
        service,
        delay: wanted.delay_us.map(Duration::from_micros),
        minimum: wanted.minimum,
        ..default
    };
    if qos.burst() < qos.max_packet {
        return Err(Status::invalid_argument("wanted.burst: at least one largest packet"));
    }
    Ok((flow, qos))
}

fn narrow<T: TryFrom<u32>>(field: &str, value: Option<u32>, range: &str) -> Result<Option<T>, Status> {
    let wrong = |_| Status::invalid_argument(format!("{field}: {range}"));
    value.map(T::try_from).transpose().map_err(wrong)
}

fn service(text: &str) -> Result<Service, Status> {
    let dscp = |text: &str| text.trim().parse().ok().filter(|dscp| *dscp <= 63).map(Service::Dscp);
    let service = match text {
        "" | "controlled-load" => Some(Service::ControlledLoad),
        "guaranteed" => Some(Service::Guaranteed),
        _ => text.strip_prefix("dscp ").and_then(dscp),
    };
    service.ok_or_else(|| {
        Status::invalid_argument("wanted.service: \"controlled-load\", \"guaranteed\" or \"dscp N\", N to 63")
    })
}

/// An event of reservation `id` as its client receives it; an error ends the stream.
pub(super) fn reserve_event(id: u64, event: QosEvent) -> Result<v0::ReserveEvent, Status> {
    use v0::reserve_event::Event;
    let event = match event {
        QosEvent::Started { session, mri } => {
            Event::Started(v0::ReserveStarted { id, session_id: session_id(session), flow: Some(flow(&mri)) })
        }
        QosEvent::Refused(refusal) => return Err(refused(refusal)),
        QosEvent::Granted(granted) => Event::Granted(path_grant(&granted)),
        QosEvent::Rerouted(granted) => Event::Rerouted(path_grant(&granted)),
        QosEvent::Failed(failure) => Event::Failed(path_refusal(failure)),
        QosEvent::Lost(failure) => Event::Lost(path_refusal(failure)),
        QosEvent::Released => Event::Released(v0::ReserveReleased {}),
        QosEvent::Answer(_) => return Err(Status::internal("an answer without a query")),
    };
    Ok(v0::ReserveEvent { event: Some(event) })
}

/// The answer to a query; `None` if the event is not the answer yet.
pub(super) fn query_response(event: QosEvent) -> Option<Result<v0::QueryResponse, Status>> {
    use v0::query_response::Answer as Reply;
    let answer = match event {
        QosEvent::Answer(Answer { session, available, hops, gaps }) => {
            let granted = Granted { session, quality: available, hops, gaps, back: None };
            Reply::Available(path_grant(&granted))
        }
        QosEvent::Failed(failure) | QosEvent::Lost(failure) => Reply::Failed(path_refusal(failure)),
        QosEvent::Refused(refusal) => return Some(Err(refused(refusal))),
        QosEvent::Released => return Some(Err(Status::aborted("the query was withdrawn"))),
        QosEvent::Started { .. } | QosEvent::Granted(_) | QosEvent::Rerouted(_) => return None,
    };
    Some(Ok(v0::QueryResponse { answer: Some(answer) }))
}

fn refused(refusal: Refusal) -> Status {
    let text = refusal.to_string();
    match refusal {
        Refusal::Address | Refusal::Ports | Refusal::Value => Status::invalid_argument(text),
        Refusal::TooMany => Status::resource_exhausted(text),
        Refusal::NoApplication | Refusal::NoRoute | Refusal::Stateless => Status::failed_precondition(text),
        Refusal::IdInUse => Status::internal(text),
    }
}

fn path_grant(Granted { session, quality, hops, gaps, back }: &Granted) -> v0::PathGrant {
    let Quality { rate, burst, delay_bound, latency_us } = *quality;
    v0::PathGrant {
        session_id: session_id(*session),
        rate,
        burst,
        delay_bound_us: delay_bound.map(micros),
        latency_us,
        hops: hops.iter().map(hop).collect(),
        gaps: *gaps,
        back_session_id: back.map(session_id).unwrap_or_default(),
    }
}

fn hop(hop: &HopGrant) -> v0::HopGrant {
    v0::HopGrant { address: hop.address.to_string(), rate: hop.rate, after_gap: hop.after_gap }
}

fn path_refusal(failure: Failure) -> v0::PathRefusal {
    v0::PathRefusal {
        class: failure.class.into(),
        code: failure.code.into(),
        meaning: failure.meaning,
        node: failure.node.unwrap_or_default(),
        rule: failure.rule.unwrap_or_default(),
        available: failure.available,
        hops: failure.hops.iter().map(hop).collect(),
    }
}

/// A session with what is held for it.
pub(super) fn reservation(session: &SessionView, held: Option<v0::HeldReservation>) -> v0::Reservation {
    let state = match (session.reserved, session.confirmed) {
        (true, true) => "confirmed",
        (true, false) => "granted",
        (false, _) => "signaling",
    };
    v0::Reservation {
        session_id: session_id(session.session),
        flow: Some(flow(&session.mri)),
        role: match session.role {
            Role::Initiator => "initiator",
            Role::Relay => "relay",
            Role::Responder => "responder",
        }
        .to_owned(),
        state: state.to_owned(),
        receiver_initiated: session.receiver_initiated,
        gaps: session.gaps,
        expires_in_ms: session.expires_in.map(millis),
        held,
    }
}
