//! Pings at the edge of the API.

use std::time::Duration;

use signalbox_api::ping::v1;
use signalbox_node::ping::{Format, PingEvent, PingRequest, Refusal};
use signalbox_show::ping as show;
use tonic::Status;

use crate::api::errors::{FieldError, Reason, not_running};
use crate::api::types::{self, Flow, unix_us};

/// Interval and timeout of a request that does not give them.
const DEFAULT: Duration = Duration::from_secs(1);

/// The ping that a client asks for. The application checks whether the values fit each other.
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
    if request.record_route {
        return Err(FieldError::new("record_route", "only probes of CASP have it: leave it out"));
    }
    let format = match v1::PingFormat::try_from(request.format) {
        Ok(v1::PingFormat::Unspecified | v1::PingFormat::Signalbox) => Format::Signalbox,
        Ok(v1::PingFormat::Nsis) => Format::Nsis,
        Err(_) => return Err(FieldError::new("format", "no format that this daemon knows")),
    };
    let time = |value: Option<u64>| value.map_or(DEFAULT, Duration::from_micros);
    Ok(PingRequest {
        src,
        protocol: asked.protocol,
        src_port: asked.src_port,
        dst_port: asked.dst_port,
        count: request.count,
        interval: time(request.interval_us),
        timeout: time(request.timeout_us),
        format,
        padding: types::number("padding_octets", request.padding_octets, 0, 16_000)?,
        ..PingRequest::to(dst)
    })
}

/// An event as the client receives it; an error ends the stream.
pub(super) fn response(event: PingEvent) -> Result<v1::PingResponse, Status> {
    let event = show::event(event).map_err(refused)?;
    Ok(v1::PingResponse { time_unix_us: unix_us(), event: Some(event) })
}

fn refused(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Address | Refusal::Ports => FieldError::new("flow", refusal).into(),
        Refusal::Padding => FieldError::new("padding_octets", refusal).into(),
        Refusal::Format => FieldError::new("format", refusal).into(),
        Refusal::Timing => FieldError::new("count", refusal).into(),
        Refusal::TooMany => Reason::TableFull.status(refusal),
        Refusal::NoRoute => Reason::NoRoute.status(refusal),
        Refusal::NoApplication => not_running("ping"),
        Refusal::IdInUse => Reason::Internal.status(refusal),
    }
}
