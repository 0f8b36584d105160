//! The QoS NSLP: its sessions, and what becomes of a reservation.

use signalbox_api::qos::v1;
use signalbox_api::v1 as common;
use signalbox_api::v1::service::Service as ApiService;
use signalbox_core::hops::{Hop, Part};
use signalbox_node::qos::{
    CONFLICT, Failure, Granted, HopGrant, Quality, ReserveRequest, Role, Service, SessionView,
};

use crate::types::{self, micros, session_id};

/// A session with what is held for it.
#[must_use]
pub fn session(session: &SessionView, held: Option<common::Reservation>) -> v1::Session {
    v1::Session {
        session_id: session_id(session.session),
        flow: Some(types::flow(&session.mri)),
        role: match session.role {
            Role::Initiator => v1::Role::Initiator,
            Role::Relay => v1::Role::Relay,
            Role::Responder => v1::Role::Responder,
        }
        .into(),
        state: match (session.reserved, session.confirmed) {
            (true, true) => v1::State::Confirmed,
            (true, false) => v1::State::Granted,
            (false, _) => v1::State::Signaling,
        }
        .into(),
        receiver_initiated: session.receiver_initiated,
        gaps: session.gaps,
        expires_in_us: session.expires_in.map(micros),
        held,
    }
}

/// A grant of the path for this request.
#[must_use]
pub fn path_grant(granted: &Granted, request: &ReserveRequest, rerouted: bool) -> common::PathGrant {
    let service = match request.qos.service {
        Service::ControlledLoad => ApiService::ControlledLoad(common::ControlledLoad {}),
        Service::Guaranteed => ApiService::Guaranteed(common::Guaranteed {
            delay_bound_us: request.qos.delay.map(micros),
            ..common::Guaranteed::default()
        }),
        Service::Dscp(dscp) => ApiService::Dscp(dscp.into()),
    };
    common::PathGrant {
        service: Some(common::Service { service: Some(service) }),
        rerouted,
        ..grant(granted)
    }
}

/// What a path granted, or could grant.
#[must_use]
pub fn grant(Granted { quality, hops, gaps, far_end, back, .. }: &Granted) -> common::PathGrant {
    let Quality { rate, burst, max_packet, delay_bound, latency_us } = *quality;
    common::PathGrant {
        traffic: rate.map(|rate| common::TokenBucket {
            rate_octets_per_s: rate,
            burst_octets: burst.map(Into::into),
            max_packet_octets: max_packet,
            ..common::TokenBucket::default()
        }),
        hops: hops.iter().map(hop).collect(),
        gaps: *gaps,
        far_end: *far_end,
        delay_bound_us: delay_bound.map(micros),
        latency_us: latency_us.map(Into::into),
        reverse_session_id: back.map(session_id),
        ..common::PathGrant::default()
    }
}

fn hop(hop: &HopGrant) -> common::HopGrant {
    let HopGrant { address, rate, after_gap, routers } = *hop;
    types::hop(&Hop { after_gap, routers, ..Hop::new(address, Part::Rate(rate)) })
}

/// A failure, with the cause that its INFO_SPEC gives (RFC 5974 §5.1.3.6).
#[must_use]
pub fn failure(failure: Failure) -> common::Failure {
    let conflict = failure.rule.as_deref().is_some_and(|note| note.starts_with(CONFLICT));
    let cause = match (failure.class, failure.code) {
        _ if conflict => common::Cause::Conflict,
        (0, _) => common::Cause::NoAnswer,
        (4, 0x03) => common::Cause::Conflict,
        (4, 0x06) => common::Cause::Preempted,
        (4, 0x07) => common::Cause::Admission,
        (4, 0x08) => common::Cause::Expired,
        (5, 0x01) => common::Cause::Kernel,
        (5, 0x02) => common::Cause::Policy,
        _ => common::Cause::Protocol,
    };
    let code = common::QosCode { class: failure.class.into(), code: failure.code.into() };
    // The note of the node that refused is the name of a rule only where a rule decided.
    let (rule, detail) =
        if cause == common::Cause::Policy { (failure.rule, None) } else { (None, failure.rule) };
    common::Failure {
        cause: cause.into(),
        message: failure.meaning,
        node: failure.node,
        rule,
        detail,
        available_octets_per_s: failure.available,
        code: (failure.class > 0).then_some(common::failure::Code::Qos(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One cause has one code in all protocols: RFC 5974 has no code for a conflict, and the note shows it.
    #[test]
    fn a_conflict_is_no_lack_of_capacity() {
        let refused = |rule: &str| {
            failure(Failure {
                class: 4,
                code: 7,
                meaning: "Reservation failure".into(),
                node: None,
                rule: Some(rule.into()),
                available: None,
                hops: Vec::new(),
            })
        };
        let conflict = refused("conflict: another reservation has the flow");
        assert_eq!(conflict.cause(), common::Cause::Conflict);
        assert_eq!(refused("eth1: share: all in use").cause(), common::Cause::Admission);
    }
}
