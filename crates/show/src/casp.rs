//! CASP: sessions, peers, and what becomes of probes.

use signalbox_api::casp::v1;
use signalbox_api::ping::v1 as ping;
use signalbox_api::ping::v1::ping_response::Event;
use signalbox_api::v1 as common;
use signalbox_api::v1::open_pinhole_response::Event as PinholeEvent;
use signalbox_api::v1::service::Service as ApiService;
use signalbox_core::Time;
use signalbox_core::hops::Path;
use signalbox_node::casp::{
    BranchView, ConnectionView, Entry, FlowId, Lost, NatfwStatus, PassageEnd, PassageEvent, PassageFailure,
    PassageRefusal, PassageView, PeerView, PingRefusal, QosErrorCode, ReserveFailure, Reserved, RuleView,
    SeriesEvent, SessionView, Transport,
};

use crate::requester::requester_fields;
use crate::types::{self, count, filter, micros, pinhole_rule, session_id};

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

/// A flow identifier with all of its fields, so that it can be read back.
#[must_use]
pub fn flow_id(flow: &FlowId) -> common::FlowSpec {
    let label = flow.protocol().is_none().then(|| flow.label());
    common::FlowSpec {
        source: Some(flow.src().to_string()),
        destination: Some(flow.dst().to_string()),
        ip_protocol: flow.protocol().map(Into::into),
        flow_label: label,
        spi: flow.spi(),
        source_port: flow.ports().map(|(port, _)| port.into()),
        destination_port: flow.ports().map(|(_, port)| port.into()),
        ..common::FlowSpec::default()
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

/// What a path granted, or could grant; `None`: its answer does not say.
#[must_use]
pub fn path_grant(granted: Option<&Reserved>, path: &Path, rerouted: bool) -> common::PathGrant {
    let service = |granted: &Reserved| match granted.guaranteed {
        None => ApiService::ControlledLoad(common::ControlledLoad {}),
        Some(rate) => ApiService::Guaranteed(common::Guaranteed {
            rate_octets_per_s: Some(rate.rate),
            slack_us: Some(rate.slack_us.into()),
            ..common::Guaranteed::default()
        }),
    };
    common::PathGrant {
        traffic: granted.map(|granted| common::TokenBucket {
            rate_octets_per_s: granted.traffic.rate,
            burst_octets: Some(granted.traffic.burst.into()),
            ..common::TokenBucket::default()
        }),
        service: granted.map(|granted| common::Service { service: Some(service(granted)) }),
        hops: path.hops.iter().map(types::hop).collect(),
        gaps: path.gaps,
        far_end: path.far_end,
        rerouted,
        ..common::PathGrant::default()
    }
}

/// Why a node of the path refused, or took back what it had granted.
#[must_use]
pub fn failure(failure: ReserveFailure) -> common::Failure {
    let code = QosErrorCode(failure.code);
    let cause = match code {
        QosErrorCode::BELOW_MINIMUM | QosErrorCode::TOO_MANY_FAILED => common::Cause::Admission,
        QosErrorCode::POLICY
        | QosErrorCode::AUTHENTICATION
        | QosErrorCode::NOT_OWNER
        | QosErrorCode::UNSECURE => common::Cause::Policy,
        QosErrorCode::NO_ANSWER => common::Cause::NoAnswer,
        QosErrorCode::PREEMPTED => common::Cause::Preempted,
        QosErrorCode::NO_RESERVATION => common::Cause::Expired,
        _ => common::Cause::Protocol,
    };
    common::Failure {
        cause: cause.into(),
        message: code.to_string(),
        node: failure.node.map(|node| node.to_string()),
        rule: failure.note.clone().filter(|_| cause == common::Cause::Policy),
        detail: failure
            .note
            .filter(|_| cause != common::Cause::Policy)
            .or_else(|| (failure.detail > 0).then(|| format!("detail {}", failure.detail))),
        available_octets_per_s: failure.available,
        ..common::Failure::default()
    }
}

/// The sessions of the client for firewalls, a row for each rule; `seen` gives what the kernel counted of each rule.
pub fn pinholes(
    row: &PassageView,
    now: Time,
    seen: &mut dyn Iterator<Item = Option<(u64, u64)>>,
) -> Vec<common::Pinhole> {
    let role = match (row.user, row.ends_here) {
        (Some(_), _) => common::PinholeRole::Initiator,
        (None, true) => common::PinholeRole::Responder,
        (None, false) => common::PinholeRole::Forwarder,
    };
    let state = if row.granted { common::PinholeState::Established } else { common::PinholeState::Pending };
    let requester = row.requester.as_ref().map(requester_fields);
    let pinhole = common::Pinhole {
        session_id: session_id(row.session),
        protocol: common::Protocol::Casp.into(),
        flow: Some(filter(&row.flow.filter())),
        role: role.into(),
        state: state.into(),
        neighbor: requester.as_ref().and_then(|fields| fields.neighbor.clone()),
        proof: requester.as_ref().and_then(|fields| fields.proof.clone()),
        identity: requester.as_ref().and_then(|fields| fields.identity.clone()),
        claimed: requester.and_then(|fields| fields.claimed),
        expires_in_us: micros(row.until.since(now)),
        ..common::Pinhole::default()
    };
    let rule = |rule: &RuleView| common::Pinhole {
        rule: Some(pinhole_rule(&rule.pinhole(), rule.active, seen.next().flatten())),
        policy_rule: rule.policy.clone(),
        ..pinhole.clone()
    };
    let rows: Vec<_> = row.rules.iter().map(rule).collect();
    if rows.is_empty() { vec![pinhole] } else { rows }
}

/// An event of a passage with the identifier `id`.
///
/// # Errors
/// The node refused it, and this is the last event.
pub fn passage(id: u64, event: PassageEvent) -> Result<PinholeEvent, PassageRefusal> {
    let started = |session_id, flow| common::PinholeStarted {
        id: id.to_string(),
        session_id,
        flow: Some(flow),
        taken_over: false,
    };
    Ok(match event {
        PassageEvent::Started { session, flow } => {
            PinholeEvent::Started(started(session_id(session), filter(&flow.filter())))
        }
        // Each sender has a session of its own.
        PassageEvent::Accepting(packets) => PinholeEvent::Started(started(Vec::new(), filter(&packets))),
        PassageEvent::Granted { lifetime, external, path } => PinholeEvent::Granted(common::PinholeGranted {
            lifetime_us: u64::from(lifetime) * 1_000_000,
            external: external.map(|(address, port)| common::Endpoint {
                address: address.to_string(),
                port: port.map(Into::into),
            }),
            bindings: Vec::new(),
            far_end: path.far_end,
            hops: path.hops.iter().map(types::hop).collect(),
            gaps: path.gaps,
        }),
        PassageEvent::Accepted { session, flow } => PinholeEvent::Accepted(common::PinholeAccepted {
            session_id: session_id(session),
            flow: Some(filter(&flow.filter())),
        }),
        PassageEvent::Ended { session, flow, why } => PinholeEvent::Ended(common::PinholeEnded {
            session_id: session_id(session),
            flow: Some(filter(&flow.filter())),
            failure: match why {
                PassageEnd::Closed => None,
                PassageEnd::Expired => Some(common::Failure {
                    cause: common::Cause::Expired.into(),
                    message: "its sender does not refresh it".to_owned(),
                    ..common::Failure::default()
                }),
                PassageEnd::Removed(why) => Some(passage_failure(why)),
            },
        }),
        PassageEvent::Notified(why) => PinholeEvent::Notified(passage_failure(why)),
        PassageEvent::Failed(why) => PinholeEvent::Failed(passage_failure(why)),
        PassageEvent::Closed => PinholeEvent::Released(common::PinholeReleased {}),
        PassageEvent::Refused(refusal) => return Err(refusal),
    })
}

/// Why a node of the path refused a passage, or took it back.
fn passage_failure(failure: PassageFailure) -> common::Failure {
    let status = NatfwStatus(failure.code);
    let cause = match status {
        NatfwStatus::AUTHENTICATION_REQUIRED
        | NatfwStatus::POLICY
        | NatfwStatus::APPLICATION_ID_REQUIRED
        | NatfwStatus::TOKEN_REQUIRED
        | NatfwStatus::TOKEN
        | NatfwStatus::CREDENTIALS
        | NatfwStatus::NOT_OWNER
        | NatfwStatus::LOGGING
        | NatfwStatus::ADMINISTRATOR
        | NatfwStatus::RECEIVER => common::Cause::Policy,
        NatfwStatus::RESOURCES => common::Cause::Admission,
        NatfwStatus::NOT_DELIVERED => common::Cause::NoAnswer,
        NatfwStatus::NO_STATE => common::Cause::Expired,
        _ => common::Cause::Protocol,
    };
    common::Failure {
        cause: cause.into(),
        message: status.to_string(),
        node: failure.node.map(|node| node.to_string()),
        rule: failure.note.clone().filter(|_| cause == common::Cause::Policy),
        detail: failure.note.filter(|_| cause != common::Cause::Policy),
        ..common::Failure::default()
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
                Lost::Reported => ping::LostReason::Peer,
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
