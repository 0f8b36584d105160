//! CASP: sessions, peers, and what becomes of probes.

use signalbox_api::casp::v1;
use signalbox_api::ping::v1 as ping;
use signalbox_api::ping::v1::ping_response::Event;
use signalbox_core::Time;
use signalbox_node::casp::{
    BranchView, ConnectionView, Entry, Lost, PeerView, PingRefusal, SeriesEvent, SessionView, Transport,
};

use crate::types::{count, filter, micros, session_id};

/// State of a session.
#[must_use]
pub fn session(row: &SessionView, now: Time) -> v1::Session {
    let hops = |side: &[BranchView]| side.iter().map(|one| branch(one, now)).collect();
    v1::Session {
        session_id: session_id(row.session),
        flow: Some(filter(&row.flow.filter())),
        previous: hops(&row.previous),
        next: hops(&row.next),
        lifetime_us: u64::from(row.timeout) * 1_000_000,
        refresh_in_us: row.refresh_at.map(|at| micros(at.since(now))),
        own: row.own,
        waiting: count(row.waiting),
    }
}

fn branch(row: &BranchView, now: Time) -> v1::Branch {
    let ends = row.until.as_micros() < u64::MAX;
    v1::Branch {
        peer: row.peer.map(|peer| peer.to_string()),
        id: row.id.into(),
        protected: row.protected,
        expires_in_us: ends.then(|| micros(row.until.since(now))),
    }
}

/// A node that this node exchanges messages with.
#[must_use]
pub fn peer(row: &PeerView, now: Time) -> v1::Peer {
    v1::Peer {
        address: row.address.to_string(),
        key_sha256: row.proved.map(|key| key.0.to_vec()),
        uses: row.uses,
        connections: row.connections.iter().map(|one| connection(one, now)).collect(),
    }
}

fn connection(row: &ConnectionView, now: Time) -> v1::Connection {
    let transport = match row.transport {
        Transport::Tcp => v1::Transport::Tcp,
        Transport::Tls => v1::Transport::Tls,
        Transport::Sctp => v1::Transport::Sctp,
        Transport::Udp => v1::Transport::Udp,
    };
    v1::Connection {
        transport: transport.into(),
        up: row.up,
        unsent_octets: row.unsent as u64,
        idle_us: micros(now.since(row.used)),
    }
}

/// An event of a series of probes; `unix_us` is the wall clock at [`Time::ZERO`].
///
/// # Errors
/// The node refused the probes, and this is the last event.
pub fn event(event: SeriesEvent, unix_us: u64) -> Result<Event, PingRefusal> {
    Ok(match event {
        SeriesEvent::Started { flow } => {
            // Each probe has a session of its own.
            Event::Started(ping::PingStarted { session_id: Vec::new(), flow: Some(filter(&flow.filter())) })
        }
        SeriesEvent::Refused(refusal) => return Err(refusal),
        SeriesEvent::Reply { seq, nodes, time, sent } => Event::Reply(ping::PingReply {
            sequence: seq,
            rtt_us: micros(time),
            hops: nodes.iter().map(hop).collect(),
            reached_end: true,
            sent_unix_us: unix_us.saturating_add(sent.as_micros()),
            ..ping::PingReply::default()
        }),
        SeriesEvent::Lost { seq, why } => Event::Lost(ping::PingLost {
            sequence: seq,
            reason: match why {
                Lost::Timeout => ping::LostReason::Timeout,
                Lost::NoNext => ping::LostReason::NoNextNode,
                Lost::Refused => ping::LostReason::NotSent,
            }
            .into(),
            message: why.to_string(),
        }),
        SeriesEvent::Done { sent, received } => Event::Done(ping::PingDone { sent, received }),
    })
}

/// A node sends the request on as soon as it has it.
fn hop(entry: &Entry) -> ping::Hop {
    ping::Hop {
        address: entry.address.to_string(),
        received_unix_us: entry.time_us,
        sent_unix_us: entry.time_us,
        ip_hops: None,
        round_trip_us: None,
    }
}
