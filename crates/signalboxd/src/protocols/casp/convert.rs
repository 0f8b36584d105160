//! Probes of CASP at the edge of the API.

use std::time::Duration;

use signalbox_api::ping::v1;
use signalbox_node::casp::{PingRefusal, PingRequest, SeriesEvent};
use signalbox_show::casp as show;
use tonic::Status;

use crate::api::errors::{Reason, Wrong, not_running};
use crate::api::types::{Flow, unix_us};

/// Interval and timeout of a request that does not give them.
const DEFAULT: Duration = Duration::from_secs(1);

/// The probes that a client asks for.
pub(super) fn request(request: &v1::PingRequest) -> Result<PingRequest, Wrong> {
    let asked = Flow::read("flow", request.flow.as_ref())?;
    let (src, dst) = asked.hosts("flow")?;
    for (name, value) in
        [("dscp", asked.dscp.map(u32::from)), ("flow_label", asked.flow_label), ("spi", asked.spi)]
    {
        if value.is_some() {
            return Err(Wrong::new(format!("flow.{name}"), "a ping has none"));
        }
    }
    if request.padding_octets != 0 {
        return Err(Wrong::new("padding_octets", "probes of CASP have none: leave it out"));
    }
    if request.format() != v1::PingFormat::Unspecified {
        return Err(Wrong::new("format", "it is one of Ping over GIST: leave it out"));
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
        PingRefusal::Address => Wrong::new("flow", refusal).into(),
        PingRefusal::Timing => Wrong::new("count", refusal).into(),
        PingRefusal::TooMany => Reason::TableFull.status(refusal),
        PingRefusal::NoRoute => Reason::NoRoute.status(refusal),
        PingRefusal::NotRunning => not_running("casp"),
        PingRefusal::NameTaken => Reason::Internal.status(refusal),
    }
}
