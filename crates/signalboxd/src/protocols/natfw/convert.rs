//! Passages of the NATFW NSLP at the edge of the API.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_response::Event;
use signalbox_core::node::Prefix;
use signalbox_core::service::SendError;
use signalbox_linux::pinhole::PinholeView;
use signalbox_node::natfw::{
    Code, Command, ExposeRequest, Failure, Granted, NatfwEvent, OpenRequest, Options, Publish, Refusal, Role,
    SessionView, State,
};
use signalbox_show::requester::requester_fields;
use tonic::Status;

use crate::api::errors::{FieldError, Reason, not_running};
use crate::api::reserver::only_with;
use crate::api::types::{self, micros, number};

/// The passage that a client asks for. The application checks whether the values fit each other.
pub(super) fn request(open: &v1::PinholeOpen) -> Result<Command, FieldError> {
    let action = v1::PinholeAction::try_from(open.action)
        .map_err(|_| FieldError::new("open.action", "open, expose or block"))?;
    let foreign = [
        ("open.receiver_initiated", open.receiver_initiated),
        ("open.scope", open.scope.is_some()),
        ("open.bidirectional", open.bidirectional),
        ("open.application_id", open.application_id.is_some()),
        ("open.start_unix_us", open.start_unix_us.is_some()),
    ];
    only_with("casp", &foreign)?;
    let flow = types::Flow::read("open.flow", open.flow.as_ref())?;
    for (name, given) in [
        ("dscp", flow.dscp.is_some()),
        ("flow_label", flow.flow_label.is_some()),
        ("spi", flow.spi.is_some()),
    ] {
        if given {
            return Err(FieldError::new(format!("open.flow.{name}"), "no part of a passage: leave it out"));
        }
    }
    let types = open.icmp_types.iter().map(|kind| number("open.icmp_types", *kind, 0, 255));
    let options = Options {
        lifetime: open.lifetime_us.map(Duration::from_micros),
        second_port: open.second_port,
        icmp_types: types.collect::<Result<_, _>>()?,
        proxy: open.proxy,
        extend: open.extend,
        token: open.session_auth.clone(),
    };
    let block = match action {
        v1::PinholeAction::Unspecified | v1::PinholeAction::Open => {
            let only = [
                ("open.towards", open.towards.is_some()),
                ("open.path_coupled", open.path_coupled),
                ("open.bindings", open.bindings),
                ("open.publish", open.publish.is_some()),
            ];
            only_with("expose and block", &only)?;
            return outward(&flow, options);
        }
        v1::PinholeAction::Expose => false,
        v1::PinholeAction::Block => true,
    };
    inward(open, &flow, options, block)
}

fn outward(flow: &types::Flow, options: Options) -> Result<Command, FieldError> {
    let (src, dst) = flow.hosts("open.flow")?;
    Ok(Command::Open(OpenRequest {
        src,
        dst,
        protocol: flow.protocol,
        src_port: flow.src_port,
        dst_port: flow.dst_port,
        options,
    }))
}

fn inward(
    open: &v1::PinholeOpen,
    flow: &types::Flow,
    options: Options,
    block: bool,
) -> Result<Command, FieldError> {
    let address = match flow.dst {
        Some(end) if end != Prefix::host(end.addr) => {
            let field = "open.flow.destination_prefix_length";
            return Err(FieldError::new(field, "one host only: leave it out"));
        }
        end => end.map(|end| end.addr),
    };
    let towards = match types::address_in("open.towards", open.towards.as_deref())? {
        Some(towards) => towards,
        None => flow.src.map(|from| from.addr).ok_or_else(|| {
            FieldError::new("open.towards", "missing: an address outside, or the source of the flow")
        })?,
    };
    let missing = |field: &str| FieldError::new(format!("open.flow.{field}"), "missing");
    Ok(Command::Expose(ExposeRequest {
        address,
        protocol: flow.protocol.ok_or_else(|| missing("ip_protocol"))?,
        port: flow.dst_port.ok_or_else(|| missing("destination_port"))?,
        from: flow.src,
        from_port: flow.src_port,
        towards,
        path_coupled: open.path_coupled,
        block,
        publish: open.publish.as_ref().map(publish).transpose()?,
        bindings: open.bindings,
        options,
    }))
}

fn publish(asked: &v1::PinholePublish) -> Result<Publish, FieldError> {
    let address = match types::address_in("open.publish.address", asked.address.as_deref())? {
        Some(IpAddr::V4(v4)) => Some(v4),
        Some(IpAddr::V6(_)) => return Err(FieldError::new("open.publish.address", "NATs have IPv4 only")),
        None => None,
    };
    let port = asked.port.map(|port| number("open.publish.port", port, 1, u16::MAX.into())).transpose()?;
    Ok(Publish { address, port, exactly: asked.exactly, filters: Vec::new() })
}

/// The status for a request that the application refuses.
fn refused(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Address | Refusal::Ports | Refusal::Senders => FieldError::new("open.flow", refusal).into(),
        Refusal::ProxySender => FieldError::new("open.flow.source", refusal).into(),
        Refusal::Publication => FieldError::new("open.publish", refusal).into(),
        Refusal::IcmpTypes => FieldError::new("open.icmp_types", refusal).into(),
        Refusal::Lifetime => FieldError::new("open.lifetime_us", refusal).into(),
        Refusal::Token => FieldError::new("open.session_auth", refusal).into(),
        Refusal::TooMany => Reason::TableFull.status(refusal),
        Refusal::NoApplication => not_running("natfw"),
        Refusal::NoRoute => Reason::NoRoute.status(refusal),
        Refusal::IdInUse => Reason::Internal.status(refusal),
    }
}

/// An event of a passage; the error ends its call.
pub(super) fn event(id: u64, event: NatfwEvent) -> Result<Event, Status> {
    Ok(match event {
        NatfwEvent::Started { session, mri } => Event::Started(v1::PinholeStarted {
            id: id.to_string(),
            session_id: types::session_id(session),
            flow: Some(types::flow(&mri)),
            taken_over: false,
        }),
        NatfwEvent::Granted(granted) => Event::Granted(grant(&granted)),
        NatfwEvent::Notified(code) => Event::Notified(failure(Failure::Code(code))),
        NatfwEvent::Failed(failed) => Event::Failed(failure(failed)),
        NatfwEvent::Closed => Event::Released(v1::PinholeReleased {}),
        NatfwEvent::Refused(refusal) => return Err(refused(refusal)),
    })
}

fn grant(granted: &Granted) -> v1::PinholeGranted {
    v1::PinholeGranted {
        lifetime_us: micros(granted.lifetime),
        external: granted.external.map(|(address, port)| endpoint(address.into(), port)),
        bindings: granted.bindings.iter().map(ToString::to_string).collect(),
        far_end: granted.far_end,
        hops: granted.hops.iter().map(types::hop).collect(),
        gaps: granted.gaps,
    }
}

fn endpoint(address: IpAddr, port: Option<u16>) -> v1::Endpoint {
    v1::Endpoint { address: address.to_string(), port: port.map(Into::into) }
}

/// Why a passage failed. Classes and codes are those of RFC 5973 §4.2.5.
fn failure(failure: Failure) -> v1::Failure {
    let message = failure.to_string();
    let cause = match &failure {
        Failure::NotUpstream | Failure::NotSent(SendError::TooLarge { .. } | SendError::Refused) => {
            v1::Cause::Protocol
        }
        Failure::NotSent(SendError::Overload) => v1::Cause::Admission,
        Failure::NotSent(_)
        | Failure::Code(_)
        | Failure::By { .. }
        | Failure::NoResponse
        | Failure::NoNextNode
        | Failure::NoCreate => v1::Cause::NoAnswer,
    };
    let (code, node, note) = match failure {
        Failure::Code(code) => (Some(code), None, None),
        Failure::By { code, node, note } => (Some(code), Some(node.to_string()), note),
        Failure::NoResponse
        | Failure::NoNextNode
        | Failure::NotSent(_)
        | Failure::NotUpstream
        | Failure::NoCreate => (None, None, None),
    };
    let cause = match code.map(|Code { class, code }| (class, code)) {
        None => cause,
        // Authentication and authorization failed; no reservation of the receiver is for the flow.
        Some((5, 1 | 2) | (7, 3)) => v1::Cause::Policy,
        // Resources temporarily not available.
        Some((4, _)) => v1::Cause::Admission,
        // Policy conflict.
        Some((7, 4)) => v1::Cause::Conflict,
        // Internal error: the kernel refused.
        Some((5, 4)) => v1::Cause::Kernel,
        // No edge, and no receiver, that runs the application.
        Some((5, 6 | 7)) => v1::Cause::NoAnswer,
        // The session expired or was terminated, or the route changed.
        Some((1, 1 | 4 | 5) | (7, 1)) => v1::Cause::Expired,
        Some(_) => v1::Cause::Protocol,
    };
    let code = code.map(|Code { class, code }| {
        v1::failure::Code::Natfw(v1::NatfwCode { class: class.into(), code: code.into() })
    });
    // The note of the node that refused is the name of a rule only where a rule decided.
    let (rule, detail) = if cause == v1::Cause::Policy { (note, None) } else { (None, note) };
    v1::Failure { cause: cause.into(), message, node, rule, detail, code, ..v1::Failure::default() }
}

/// A session, and what the kernel has counted of its rule.
pub(super) fn pinhole(session: &SessionView, seen: Option<PinholeView>) -> v1::Pinhole {
    let requester = session.requester.as_ref().map(requester_fields);
    let peer = session.peer.map(|peer| peer.to_string());
    v1::Pinhole {
        session_id: types::session_id(session.session),
        protocol: v1::Protocol::Natfw.into(),
        flow: Some(types::flow(&session.mri)),
        role: match session.role {
            Role::Initiator => v1::PinholeRole::Initiator,
            Role::Forwarder => v1::PinholeRole::Forwarder,
            Role::Responder => v1::PinholeRole::Responder,
        }
        .into(),
        state: match session.state {
            State::Pending => v1::PinholeState::Pending,
            State::Established => v1::PinholeState::Established,
            State::Transitory => v1::PinholeState::Transitory,
        }
        .into(),
        rule: session.rule.as_ref().map(|rule| {
            types::pinhole_rule(rule, session.active, seen.map(|seen| (seen.packets, seen.octets)))
        }),
        policy_rule: session.policy.clone(),
        neighbor: requester.as_ref().and_then(|fields| fields.neighbor.clone()).or(peer),
        proof: requester.as_ref().and_then(|fields| fields.proof.clone()),
        identity: requester.as_ref().and_then(|fields| fields.identity.clone()),
        claimed: requester.and_then(|fields| fields.claimed),
        external: session.external.map(|(address, port)| endpoint(address.into(), port)),
        expires_in_us: micros(session.expires_in),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NATFW-A-01
    #[test]
    fn an_external_travels_towards_the_sender_if_it_is_known() {
        let flow = v1::FlowSpec {
            source: Some("203.0.113.7".to_owned()),
            ip_protocol: Some(17),
            destination_port: Some(5004),
            ..v1::FlowSpec::default()
        };
        let expose = v1::PinholeOpen {
            action: v1::PinholeAction::Expose.into(),
            flow: Some(flow),
            ..v1::PinholeOpen::default()
        };
        for (towards, expected) in [(None, "203.0.113.7"), (Some("198.51.100.1"), "198.51.100.1")] {
            let open = v1::PinholeOpen { towards: towards.map(str::to_owned), ..expose.clone() };
            let Ok(Command::Expose(request)) = request(&open) else { panic!("an EXTERNAL") };
            assert_eq!(request.towards.to_string(), expected);
        }
    }
}
