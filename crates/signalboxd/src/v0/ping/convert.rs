//! Pings at the edge of the API.

use std::time::Duration;

use signalbox_api::v0;
use signalbox_node::ping::{Hop, PingEvent, PingRequest, Refusal, Reply};
use tonic::Status;

use crate::v0::convert::{address, flow, micros, session_id};

/// The ping that a client asks for. The application checks whether the values fit each other.
pub(super) fn ping_request(request: &v0::PingRequest) -> Result<PingRequest, Status> {
    let port = |name: &str, port: Option<u32>| {
        port.map(u16::try_from)
            .transpose()
            .map_err(|_| Status::invalid_argument(format!("{name}: between 0 and 65535")))
    };
    let dst = address("destination", &request.destination)?;
    let src = (!request.source.is_empty()).then(|| address("source", &request.source)).transpose()?;
    let protocol = request
        .protocol
        .map(u8::try_from)
        .transpose()
        .map_err(|_| Status::invalid_argument("protocol: between 0 and 255"))?;
    Ok(PingRequest {
        src,
        protocol,
        src_port: port("source_port", request.source_port)?,
        dst_port: port("destination_port", request.destination_port)?,
        count: (request.count != 0).then_some(request.count),
        interval: Duration::from_micros(request.interval_us),
        timeout: Duration::from_micros(request.timeout_us),
        padding: u16::try_from(request.padding)
            .map_err(|_| Status::invalid_argument("padding: between 0 and 16000"))?,
        ..PingRequest::to(dst)
    })
}

/// An event as the client receives it; an error ends the stream.
pub(super) fn ping_event(event: PingEvent) -> Result<v0::PingEvent, Status> {
    use v0::ping_event::Event;
    let event = match event {
        PingEvent::Started { session, mri } => {
            Event::Started(v0::PingStarted { session_id: session_id(session), flow: Some(flow(&mri)) })
        }
        PingEvent::Refused(refusal) => return Err(refused(refusal)),
        PingEvent::Reply(reply) => Event::Reply(ping_reply(reply)),
        PingEvent::Lost { seq, reason } => Event::Lost(v0::PingLost { seq, reason: reason.to_string() }),
        PingEvent::Done { sent, received } => Event::Done(v0::PingDone { sent, received }),
    };
    Ok(v0::PingEvent { event: Some(event) })
}

fn refused(refusal: Refusal) -> Status {
    let text = refusal.to_string();
    match refusal {
        Refusal::Address | Refusal::Ports | Refusal::Padding | Refusal::Timing => {
            Status::invalid_argument(text)
        }
        Refusal::TooMany => Status::resource_exhausted(text),
        Refusal::NoApplication | Refusal::NoRoute => Status::failed_precondition(text),
        Refusal::IdInUse => Status::internal(text),
    }
}

fn ping_reply(reply: Reply) -> v0::PingReply {
    v0::PingReply {
        seq: reply.seq,
        rtt_us: micros(reply.rtt),
        hops: reply.hops.iter().map(hop).collect(),
        back: reply.back.iter().map(hop).collect(),
        reached_end: reply.reached_end,
        sent_us: reply.sent_us,
        truncated: reply.truncated,
        padding: reply.padding.into(),
    }
}

fn hop(hop: &Hop) -> v0::Hop {
    v0::Hop {
        address: hop.address.to_string(),
        received_us: hop.received_us,
        sent_us: hop.sent_us,
        ip_distance: hop.ip_distance.into(),
    }
}
