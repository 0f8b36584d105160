//! The edge of the API: its types to ours and back. No API type goes further into the daemon.

pub(crate) mod application;
pub(crate) mod qos;
pub(crate) mod rsvp;

use std::net::IpAddr;
use std::time::Duration;

use signalbox_api::v1;
use signalbox_core::Mri;
use signalbox_core::SessionId;
use signalbox_node::Counter;
use signalbox_node::gist::{AssociationView, DirectionView, PeerView, SessionView, Transport, Validity};
use signalbox_node::ping::{Hop, PingEvent, PingRequest, Refusal, Reply};
use tonic::Status;

use crate::control::SessionFilter;

/// The filter that a client asks for.
pub(crate) fn session_filter(request: &v1::ListSessionsRequest) -> Result<SessionFilter, Status> {
    let prefix = request.session_prefix.to_ascii_lowercase();
    if prefix.len() > 32 || !prefix.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(Status::invalid_argument("session_prefix: at most 32 hexadecimal digits"));
    }
    let nslp = request
        .nslp_id
        .map(u16::try_from)
        .transpose()
        .map_err(|_| Status::invalid_argument("nslp_id: between 0 and 65535"))?;
    let address = (!request.address.is_empty()).then(|| address("address", &request.address)).transpose()?;
    Ok(SessionFilter { prefix, nslp, address })
}

/// The pings that a client asks for. What the values mean together is the application's to check.
pub(crate) fn ping_request(request: &v1::PingRequest) -> Result<PingRequest, Status> {
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

fn address(field: &str, text: &str) -> Result<IpAddr, Status> {
    text.parse().map_err(|_| Status::invalid_argument(format!("{field}: {text:?} is no IP address")))
}

/// A flow, without its direction.
fn flow(mri: &Mri) -> v1::Flow {
    match mri {
        Mri::PathCoupled(p) => v1::Flow {
            method: "path-coupled".into(),
            source: p.src.to_string(),
            source_prefix: p.src_prefix.into(),
            destination: p.dst.to_string(),
            destination_prefix: p.dst_prefix.into(),
            protocol: p.protocol.map(Into::into),
            dscp: p.dscp.map(Into::into),
            flow_label: p.flow_label,
            spi: p.spi,
            source_port: p.src_port.map(Into::into),
            destination_port: p.dst_port.map(Into::into),
        },
        Mri::LooseEnd(l) => v1::Flow {
            method: "loose-end".into(),
            source: l.src.to_string(),
            destination: l.dst.to_string(),
            ..v1::Flow::default()
        },
    }
}

/// A session.
pub(crate) fn session(session: &SessionView<'_>) -> v1::Session {
    v1::Session {
        session_id: session_id(session.session),
        nslp_id: session.nslp.0.into(),
        flow: Some(flow(&session.mri)),
        upstream: session.upstream.as_ref().map(routing_state),
        downstream: session.downstream.as_ref().map(routing_state),
        queued: u32::try_from(session.queued).unwrap_or(u32::MAX),
    }
}

fn routing_state(state: &DirectionView<'_>) -> v1::RoutingState {
    v1::RoutingState {
        role: state.role.to_owned(),
        state: state.state.to_owned(),
        validity: match state.validity {
            Validity::Bad => "bad",
            Validity::Tentative => "tentative",
            Validity::Good => "good",
        }
        .to_owned(),
        peer: state.peer.map(|peer| peer.to_string()).unwrap_or_default(),
        peer_identity: state.identity.to_vec(),
        local: state.local.map(|local| local.to_string()).unwrap_or_default(),
        ifindex: state.ifindex.0,
        ip_distance: state.ip_distance.into(),
        age_ms: millis(state.age),
        refresh_in_ms: state.refresh_in.map(millis),
        expires_in_ms: state.expires_in.map(millis),
    }
}

/// A peer.
pub(crate) fn peer(peer: &PeerView<'_>) -> v1::Peer {
    v1::Peer {
        identity: peer.identity.to_vec(),
        address: peer.address.to_string(),
        ifindex: peer.ifindex.0,
        sessions: peer.sessions,
    }
}

/// A messaging association.
pub(crate) fn association(association: &AssociationView<'_>) -> v1::Association {
    v1::Association {
        channel: association.channel.0,
        stack: match association.transport {
            Transport::Tcp => "tcp",
            Transport::TlsTcp => "tls",
            Transport::Sctp => "sctp",
        }
        .to_owned(),
        state: association.state.to_owned(),
        opened: association.opened,
        peer_identity: association.peer.to_vec(),
        peer: association.address.to_string(),
        local: association.local.to_string(),
        authenticated: association.authenticated.map(ToString::to_string).unwrap_or_default(),
        sessions: association.sessions,
        queued: u32::try_from(association.queued).unwrap_or(u32::MAX),
        queued_octets: association.queued_octets as u64,
        unsent_octets: association.unsent as u64,
        hold_time_ms: (!association.hold_time.is_zero()).then(|| millis(association.hold_time)),
        hello_in_ms: association.hello_in.map(millis),
        closes_in_ms: association.closes_in.map(millis),
        age_ms: millis(association.age),
    }
}

/// A counter.
pub(crate) fn counter(counter: Counter) -> v1::Counter {
    v1::Counter {
        room: counter.room.to_owned(),
        name: counter.name.to_owned(),
        help: counter.help.to_owned(),
        value: counter.value,
    }
}

/// What a client hears of its pings; an error is the last thing it hears.
pub(crate) fn ping_event(event: PingEvent) -> Result<v1::PingEvent, Status> {
    use v1::ping_event::Event;
    let event = match event {
        PingEvent::Started { session, mri } => {
            Event::Started(v1::PingStarted { session_id: session_id(session), flow: Some(flow(&mri)) })
        }
        PingEvent::Refused(refusal) => return Err(refused(refusal)),
        PingEvent::Reply(reply) => Event::Reply(ping_reply(reply)),
        PingEvent::Lost { seq, reason } => Event::Lost(v1::PingLost { seq, reason: reason.to_string() }),
        PingEvent::Done { sent, received } => Event::Done(v1::PingDone { sent, received }),
    };
    Ok(v1::PingEvent { event: Some(event) })
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

fn ping_reply(reply: Reply) -> v1::PingReply {
    v1::PingReply {
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

fn hop(hop: &Hop) -> v1::Hop {
    v1::Hop {
        address: hop.address.to_string(),
        received_us: hop.received_us,
        sent_us: hop.sent_us,
        ip_distance: hop.ip_distance.into(),
    }
}

fn session_id(session: SessionId) -> Vec<u8> {
    session.0.to_vec()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
