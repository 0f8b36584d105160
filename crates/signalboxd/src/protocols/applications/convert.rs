//! Requests and indications of applications at the edge of the API. Every error names its field, and what would be
//! right.

use std::time::Duration;

use signalbox_api::gist::v1;
use signalbox_api::gist::v1::application_request::Request as AppRequest;
use signalbox_api::gist::v1::application_response::Indication as ApiIndication;
use signalbox_api::v1 as common;
use signalbox_core::octets::Octets;
use signalbox_core::service::{
    CheckId, IndicationOf, InvalidStatus, MessageHandle, MessageStatus, NetworkEvent, OwnedIndication,
    OwnedRequest, PeeringOf, RecvMessageOf, RequestOf, Security, SendError, SendMessageOf, SiiHandle,
    TransferAttributes, Transports,
};
use signalbox_core::{Direction, LooseEnd, Mri, NslpId, SessionId};
use signalbox_node::RegisterError;
use signalbox_node::gist::{PeeringPolicy, Registration};
use signalbox_show::gist::routing_method;
use tonic::Status;

use crate::api::InterfaceNames;
use crate::api::errors::{FieldError, Reason, already_open, must_open, not_running};
use crate::api::types::{self, Flow, number, number_in};

/// The first message of an application.
pub(super) fn register(first: Option<v1::ApplicationRequest>) -> Result<(NslpId, Registration), Status> {
    let Some(AppRequest::Register(register)) = first.and_then(|first| first.request) else {
        return Err(must_open("register"));
    };
    let policy = match v1::PeeringPolicy::try_from(register.peering_policy) {
        Ok(v1::PeeringPolicy::Unspecified | v1::PeeringPolicy::Always) => PeeringPolicy::Always,
        Ok(v1::PeeringPolicy::Ask) => PeeringPolicy::Ask,
        Ok(v1::PeeringPolicy::Never) => PeeringPolicy::Never,
        Err(_) => return Err(FieldError::new("register.peering_policy", "always, ask or never").into()),
    };
    let nslp = NslpId(number("register.nslp_id", register.nslp_id, 0, 0xffff)?);
    let router_alert = number("register.router_alert", register.router_alert, 0, 0xffff)?;
    Ok((nslp, Registration { policy, router_alert, router_alert_v6: None }))
}

/// The status for an application whose registration is refused.
pub(super) fn not_registered(error: RegisterError) -> Status {
    match error {
        RegisterError::InUse(nslp) => Reason::NslpIdTaken.with(error, [("nslp_id", nslp.0.to_string())]),
        RegisterError::Reserved(_) => FieldError::new("register.nslp_id", error).into(),
        RegisterError::TooMany(_) => Reason::TableFull.status(error),
        RegisterError::NotRunning => not_running("gist"),
        RegisterError::NameInUse => Reason::Internal.status(error),
    }
}

/// A request of the application `nslp`.
pub(super) fn request(nslp: NslpId, asked: Option<AppRequest>) -> Result<OwnedRequest, FieldError> {
    match asked {
        None => Err(FieldError::new("request", "missing, or of a kind that this daemon does not know")),
        Some(AppRequest::Register(_)) => Err(FieldError::new("register", already_open("register").message())),
        Some(AppRequest::Unregister(_)) => Err(FieldError::new("unregister", "it has no answer")),
        Some(AppRequest::SendMessage(message)) => send_message(nslp, message),
        Some(AppRequest::PeeringDecision(decision)) => {
            let data = decision.data.map(|data| payload("peering_decision.data", data)).transpose()?;
            Ok(RequestOf::Peering {
                check: CheckId(decision.check_id),
                decision: if decision.peer { PeeringOf::Accept(data) } else { PeeringOf::Decline(data) },
            })
        }
        Some(AppRequest::SetStateLifetime(request)) => Ok(RequestOf::SetStateLifetime {
            nslp,
            mri: mri("set_state_lifetime.mri", request.mri)?,
            session: (!request.session_id.is_empty())
                .then(|| session_id("set_state_lifetime.session_id", &request.session_id))
                .transpose()?,
            lifetime: Duration::from_micros(request.lifetime_us),
        }),
        Some(AppRequest::InvalidateRoutingState(request)) => Ok(RequestOf::InvalidateRoutingState {
            nslp: (!request.all_applications).then_some(nslp),
            mri: mri("invalidate_routing_state.mri", request.mri)?,
            status: if request.bad { InvalidStatus::Bad } else { InvalidStatus::Tentative },
            data: payload("invalidate_routing_state.data", request.data)?,
            urgent: request.urgent,
        }),
    }
}

fn send_message(nslp: NslpId, message: v1::SendMessage) -> Result<OwnedRequest, FieldError> {
    let attributes = message.attributes.unwrap_or_default();
    Ok(RequestOf::SendMessage(SendMessageOf {
        data: payload("send_message.data", message.data)?,
        handle: message.handle.map(MessageHandle),
        nslp,
        session: session_id("send_message.session_id", &message.session_id)?,
        mri: mri("send_message.mri", message.mri)?,
        state: None,
        sii: message.sii_handle.map(SiiHandle),
        attributes: TransferAttributes {
            reliable: attributes.reliable,
            stateless: attributes.stateless,
            security: if attributes.secure { Security::Channel } else { Security::None },
        },
        timeout: message.timeout_us.map(Duration::from_micros),
        ip_ttl: number_in("send_message.ip_ttl", message.ip_ttl, 1, 0xff)?,
        hops: number_in("send_message.gist_hops", message.gist_hops, 1, 0xff)?,
    }))
}

fn payload(field: &str, data: Vec<u8>) -> Result<Octets, FieldError> {
    if data.len().is_multiple_of(4) {
        return Ok(Octets(data));
    }
    let what = format!("{} octets, but NSLP data comes in multiples of 4: pad it", data.len());
    Err(FieldError::new(field, what))
}

fn session_id(field: &str, octets: &[u8]) -> Result<SessionId, FieldError> {
    let wrong = |_| FieldError::new(field, format_args!("{} octets, but 16 are needed", octets.len()));
    octets.try_into().map(SessionId).map_err(wrong)
}

fn mri(field: &str, mri: Option<v1::Mri>) -> Result<Mri, FieldError> {
    let mri = mri.ok_or_else(|| FieldError::new(field, "missing"))?;
    let direction = match common::Direction::try_from(mri.direction) {
        Ok(common::Direction::Unspecified | common::Direction::Downstream) => Direction::Downstream,
        Ok(common::Direction::Upstream) => Direction::Upstream,
        Err(_) => return Err(FieldError::new(format!("{field}.direction"), "downstream or upstream")),
    };
    let name = format!("{field}.flow");
    let flow = Flow::read(&name, mri.flow.as_ref())?.path_coupled(&name, direction)?;
    match v1::RoutingMethod::try_from(mri.method) {
        Ok(v1::RoutingMethod::Unspecified | v1::RoutingMethod::PathCoupled) => Ok(Mri::PathCoupled(flow)),
        Ok(v1::RoutingMethod::LooseEnd) => {
            Ok(Mri::LooseEnd(LooseEnd { src: flow.src, dst: flow.dst, direction }))
        }
        Err(_) => Err(FieldError::new(format!("{field}.method"), "path-coupled or loose-end")),
    }
}

/// An indication as an application receives it.
pub(super) fn indication(indication: OwnedIndication, names: &InterfaceNames) -> ApiIndication {
    match indication {
        IndicationOf::RecvMessage(message) => ApiIndication::RecvMessage(recv_message(message, names)),
        IndicationOf::MessageStatus { handle, session, status, .. } => {
            use v1::message_status::Status;
            ApiIndication::MessageStatus(v1::MessageStatus {
                handle: handle.0,
                session_id: session.0.to_vec(),
                status: Some(match status {
                    MessageStatus::Sent(attributes) => Status::Sent(transfer_attributes(attributes)),
                    MessageStatus::Failed(error) => Status::Failed(send_failure(error)),
                }),
            })
        }
        IndicationOf::NetworkNotification { mri, session, event, .. } => {
            let (event, sii) = network_event(event);
            ApiIndication::NetworkNotification(v1::NetworkNotification {
                session_id: session.0.to_vec(),
                mri: Some(routing_information(&mri)),
                event: event.into(),
                sii_handle: sii.map(|sii| sii.0),
            })
        }
    }
}

fn recv_message(message: RecvMessageOf<Octets>, names: &InterfaceNames) -> v1::RecvMessage {
    v1::RecvMessage {
        data: message.data.0,
        session_id: message.session.0.to_vec(),
        mri: Some(routing_information(&message.mri)),
        check_id: message.check.map(|check| check.0),
        sii_handle: message.sii.map(|sii| sii.0),
        attributes: Some(transfer_attributes(message.attributes)),
        first_or_last_hop: message.validation.first_or_last_hop,
        return_routable: message.validation.return_routable,
        unchecked_route: message.validation.unchecked_route,
        ip_ttl: message.ip_ttl.into(),
        ip_hops: Some(message.ip_distance.into()),
        gist_hops: message.hops.into(),
        interface: names.interface(message.ifindex),
        at_flow_end: message.at_flow_end,
        authenticated: message.peer.as_deref().map(types::identity),
    }
}

fn transfer_attributes(attributes: TransferAttributes) -> v1::TransferAttributes {
    let TransferAttributes { reliable, stateless, security } = attributes;
    v1::TransferAttributes { reliable, stateless, secure: security == Security::Channel }
}

fn routing_information(mri: &Mri) -> v1::Mri {
    let direction = match mri.direction() {
        Direction::Downstream => common::Direction::Downstream,
        Direction::Upstream => common::Direction::Upstream,
    };
    v1::Mri { method: routing_method(mri).into(), direction: direction.into(), flow: Some(types::flow(mri)) }
}

fn network_event(event: NetworkEvent) -> (v1::NetworkEvent, Option<SiiHandle>) {
    match event {
        NetworkEvent::LastNode => (v1::NetworkEvent::LastNode, None),
        NetworkEvent::Good(sii) => (v1::NetworkEvent::Good, Some(sii)),
        NetworkEvent::Tentative => (v1::NetworkEvent::Tentative, None),
        NetworkEvent::Bad => (v1::NetworkEvent::Bad, None),
        NetworkEvent::RouteDeleted(sii) => (v1::NetworkEvent::RouteDeleted, Some(sii)),
        NetworkEvent::AuthorisationChanged => (v1::NetworkEvent::AuthorizationChanged, None),
        NetworkEvent::CommunicationFailure => (v1::NetworkEvent::CommunicationFailure, None),
    }
}

fn send_failure(failure: SendError) -> v1::SendFailure {
    let error = match failure {
        SendError::NoNextNode => v1::SendError::NoNextNode,
        SendError::Unreached(_) | SendError::Connecting(_) => v1::SendError::Unreached,
        SendError::FlowEndsHere => v1::SendError::FlowEndsHere,
        SendError::NoRoute => v1::SendError::NoRoute,
        SendError::NoStateUpstream => v1::SendError::NoStateUpstream,
        SendError::TooLarge { .. } => v1::SendError::TooLarge,
        SendError::Refused => v1::SendError::Refused,
        SendError::Overload => v1::SendError::Overload,
        SendError::Peer { .. } => v1::SendError::Peer,
    };
    let unreached = if let SendError::Unreached(by) | SendError::Connecting(by) = failure {
        by
    } else {
        Transports::default()
    };
    let max = if let SendError::TooLarge { max } = failure { Some(max) } else { None };
    let peer = if let SendError::Peer { code, subcode } = failure { Some((code, subcode)) } else { None };
    v1::SendFailure {
        error: error.into(),
        reason: failure.to_string(),
        max_octets: max.map(|max| max as u64),
        peer_code: peer.map(|(code, _)| code.into()),
        peer_subcode: peer.map(|(_, subcode)| subcode.into()),
        unreached_by: unreached.names().map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests;
