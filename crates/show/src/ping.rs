//! Ping: what becomes of the probes.

use signalbox_api::ping::v1;
use signalbox_api::ping::v1::ping_response::Event;
use signalbox_node::ping::{Hop, LostReason, PingEvent, Refusal, Reply};

use crate::types::{flow, micros, session_id};

/// An event of a ping.
///
/// # Errors
/// The node refused the ping, and this is its last event.
pub fn event(event: PingEvent) -> Result<Event, Refusal> {
    Ok(match event {
        PingEvent::Started { session, mri } => {
            Event::Started(v1::PingStarted { session_id: session_id(session), flow: Some(flow(&mri)) })
        }
        PingEvent::Refused(refusal) => return Err(refusal),
        PingEvent::Reply(answer) => Event::Reply(reply(answer)),
        PingEvent::Lost { seq, reason } => Event::Lost(v1::PingLost {
            sequence: seq,
            reason: lost(reason).into(),
            message: reason.to_string(),
        }),
        PingEvent::Done { sent, received } => Event::Done(v1::PingDone { sent, received }),
    })
}

const fn lost(reason: LostReason) -> v1::LostReason {
    match reason {
        LostReason::Timeout => v1::LostReason::Timeout,
        LostReason::NoNextNode | LostReason::FlowEndsHere => v1::LostReason::NoNextNode,
        LostReason::Unreached(_) => v1::LostReason::Unreached,
        LostReason::NoRoute => v1::LostReason::NoRoute,
        LostReason::Overload | LostReason::Refused => v1::LostReason::NotSent,
        LostReason::Damaged | LostReason::Peer { .. } => v1::LostReason::Peer,
    }
}

fn reply(reply: Reply) -> v1::PingReply {
    v1::PingReply {
        sequence: reply.seq,
        rtt_us: micros(reply.rtt),
        hops: reply.hops.iter().map(hop).collect(),
        reverse_hops: reply.back.iter().map(hop).collect(),
        reached_end: reply.reached_end,
        sent_unix_us: reply.sent_us,
        truncated: reply.truncated,
        padding_octets: reply.padding.into(),
    }
}

fn hop(hop: &Hop) -> v1::Hop {
    v1::Hop {
        address: hop.address.to_string(),
        received_unix_us: hop.received_us,
        sent_unix_us: hop.sent_us,
        ip_hops: Some(hop.ip_distance.into()),
        round_trip_us: hop.round_trip.map(micros),
    }
}
