//! Requests and indications of applications at the edge of the API. Every error names its field, and what would be
//! right.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_api::v0;
use signalbox_api::v0::from_application::Request as AppRequest;
use signalbox_api::v0::to_application::Indication as ApiIndication;
use signalbox_core::mri::PathCoupled;
use signalbox_core::octets::Octets;
use signalbox_core::service::{
    CheckId, IndicationOf, InvalidStatus, MessageHandle, MessageStatus, NetworkEvent, OwnedIndication,
    OwnedRequest, PeeringOf, RecvMessageOf, RequestOf, Security, SendError, SendMessageOf, SiiHandle,
    TransferAttributes,
};
use signalbox_core::{Direction, LooseEnd, Mri, NslpId, SessionId};
use signalbox_node::RegisterError;
use signalbox_node::gist::{PeeringPolicy, Registration};
use tonic::Status;

/// The reason why a request is refused.
type Wrong = String;

/// The first message of an application.
pub(super) fn register(first: Option<v0::FromApplication>) -> Result<(NslpId, Registration), Status> {
    let Some(AppRequest::Register(register)) = first.and_then(|first| first.request) else {
        return Err(Status::invalid_argument("the first message of an application is `register`"));
    };
    let number = |name, value: u32| number(name, value, 0).map_err(Status::invalid_argument);
    let policy = match v0::PeeringPolicy::try_from(register.peering_policy) {
        Ok(v0::PeeringPolicy::Always) => PeeringPolicy::Always,
        Ok(v0::PeeringPolicy::Ask) => PeeringPolicy::Ask,
        Ok(v0::PeeringPolicy::Never) => PeeringPolicy::Never,
        Err(_) => return Err(Status::invalid_argument("register.peering_policy: always, ask or never")),
    };
    let nslp = NslpId(number("register.nslp_id", register.nslp_id)?);
    let router_alert = number("register.router_alert", register.router_alert)?;
    Ok((nslp, Registration { policy, router_alert }))
}

/// The status for an application whose registration is refused.
pub(super) fn not_registered(error: RegisterError) -> Status {
    let text = error.to_string();
    match error {
        RegisterError::InUse(_) => Status::already_exists(text),
        RegisterError::Reserved(_) => Status::invalid_argument(text),
        RegisterError::TooMany(_) => Status::resource_exhausted(text),
        RegisterError::NotRunning => Status::failed_precondition(text),
        RegisterError::NameInUse => Status::internal(text),
    }
}

/// A request of the application `nslp`.
pub(super) fn request(nslp: NslpId, asked: Option<AppRequest>) -> Result<OwnedRequest, Wrong> {
    match asked {
        None => Err("a request of a kind that this daemon does not know, or none".to_owned()),
        Some(AppRequest::Register(_)) => {
            Err("register: this call has registered already; another application makes a call of its own"
                .to_owned())
        }
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
            lifetime: Duration::from_millis(request.lifetime_ms),
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

fn send_message(nslp: NslpId, message: v0::SendMessage) -> Result<OwnedRequest, Wrong> {
    let attributes = message.attributes.unwrap_or_default();
    let octet = |name, value: Option<u32>| value.map(|value| number(name, value, 1)).transpose();
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
        ip_ttl: octet("send_message.ip_ttl", message.ip_ttl)?,
        hops: octet("send_message.gist_hops", message.gist_hops)?,
    }))
}

fn payload(field: &str, data: Vec<u8>) -> Result<Octets, Wrong> {
    if data.len().is_multiple_of(4) {
        return Ok(Octets(data));
    }
    Err(format!("{field}: {} octets, but NSLP data comes in multiples of 4: pad it", data.len()))
}

fn session_id(field: &str, octets: &[u8]) -> Result<SessionId, Wrong> {
    octets
        .try_into()
        .map(SessionId)
        .map_err(|_| format!("{field}: {} octets, but 16 are needed", octets.len()))
}

fn mri(field: &str, mri: Option<v0::Mri>) -> Result<Mri, Wrong> {
    let mri = mri.ok_or_else(|| format!("{field}: is missing"))?;
    let direction = match v0::Direction::try_from(mri.direction) {
        Ok(v0::Direction::Downstream) => Direction::Downstream,
        Ok(v0::Direction::Upstream) => Direction::Upstream,
        Err(_) => return Err(format!("{field}.direction: downstream or upstream")),
    };
    match mri.method {
        None => Err(format!("{field}: path_coupled or loose_end is missing")),
        Some(v0::mri::Method::PathCoupled(flow)) => {
            path_coupled(&format!("{field}.path_coupled"), &flow, direction).map(Mri::PathCoupled)
        }
        Some(v0::mri::Method::LooseEnd(ends)) => {
            let (src, dst) = ends_of(&format!("{field}.loose_end"), &ends.source, &ends.destination)?;
            Ok(Mri::LooseEnd(LooseEnd { src, dst, direction }))
        }
    }
}

fn path_coupled(field: &str, flow: &v0::PathCoupled, direction: Direction) -> Result<PathCoupled, Wrong> {
    let (src, dst) = ends_of(field, &flow.source, &flow.destination)?;
    let hosts = PathCoupled::between(src, dst);
    let width = u32::from(hosts.src_prefix);
    let within = |name: &str, value: Option<u32>, most: u32| match value {
        Some(value) if value > most => Err(format!("{field}.{name}: {value}, but 0 to {most} are possible")),
        value => Ok(value),
    };
    if flow.flow_label.is_some() && src.is_ipv4() {
        return Err(format!("{field}.flow_label: IPv4 has none"));
    }
    for (name, value) in
        [("spi", flow.spi), ("source_port", flow.source_port), ("destination_port", flow.destination_port)]
    {
        if value.is_some() && flow.protocol.is_none() {
            return Err(format!("{field}.{name}: needs protocol"));
        }
    }
    Ok(PathCoupled {
        src_prefix: prefix(within("source_prefix", flow.source_prefix, width)?, hosts.src_prefix),
        dst_prefix: prefix(within("destination_prefix", flow.destination_prefix, width)?, hosts.dst_prefix),
        protocol: within("protocol", flow.protocol, 0xff)?.map(low_octet),
        dscp: within("dscp", flow.dscp, 63)?.map(low_octet),
        flow_label: within("flow_label", flow.flow_label, 0xf_ffff)?,
        spi: flow.spi,
        src_port: port(&format!("{field}.source_port"), flow.source_port)?,
        dst_port: port(&format!("{field}.destination_port"), flow.destination_port)?,
        direction,
        ..hosts
    })
}

fn prefix(given: Option<u32>, host: u8) -> u8 {
    given.map_or(host, low_octet)
}

/// The low octet of a number that is known to fit.
const fn low_octet(value: u32) -> u8 {
    value.to_le_bytes()[0]
}

fn port(field: &str, port: Option<u32>) -> Result<Option<u16>, Wrong> {
    port.map(|port| number(field, port, 0)).transpose()
}

fn ends_of(field: &str, source: &str, destination: &str) -> Result<(IpAddr, IpAddr), Wrong> {
    let address = |name: &str, text: &str| -> Result<IpAddr, Wrong> {
        text.parse().map_err(|_| format!("{field}.{name}: {text:?} is no IP address"))
    };
    let (src, dst) = (address("source", source)?, address("destination", destination)?);
    if src.is_ipv4() != dst.is_ipv4() {
        return Err(format!("{field}: source and destination are of different IP versions"));
    }
    Ok((src, dst))
}

/// A number that fits its type and is not below `least`.
fn number<T: TryFrom<u32> + Into<u32> + Bounded>(field: &str, value: u32, least: u32) -> Result<T, Wrong> {
    match T::try_from(value) {
        Ok(number) if value >= least => Ok(number),
        _ => Err(format!("{field}: {value}, but {least} to {} are possible", T::MOST)),
    }
}

/// Integers with their largest value.
trait Bounded {
    const MOST: u32;
}

impl Bounded for u8 {
    const MOST: u32 = 0xff;
}

impl Bounded for u16 {
    const MOST: u32 = 0xffff;
}

/// An indication as an application receives it.
pub(super) fn indication(indication: OwnedIndication) -> ApiIndication {
    match indication {
        IndicationOf::RecvMessage(message) => ApiIndication::RecvMessage(recv_message(message)),
        IndicationOf::MessageStatus { handle, session, status, .. } => {
            use v0::message_status::Status;
            ApiIndication::MessageStatus(v0::MessageStatus {
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
            ApiIndication::NetworkNotification(v0::NetworkNotification {
                session_id: session.0.to_vec(),
                mri: Some(routing_information(&mri)),
                event: event.into(),
                sii_handle: sii.map(|sii| sii.0),
            })
        }
    }
}

fn recv_message(message: RecvMessageOf<Octets>) -> v0::RecvMessage {
    v0::RecvMessage {
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
        ip_distance: message.ip_distance.into(),
        gist_hops: message.hops.into(),
        ifindex: message.ifindex.0,
        at_flow_end: message.at_flow_end,
        authenticated: message.peer.as_deref().map(ToString::to_string).unwrap_or_default(),
    }
}

fn transfer_attributes(attributes: TransferAttributes) -> v0::TransferAttributes {
    let TransferAttributes { reliable, stateless, security } = attributes;
    v0::TransferAttributes { reliable, stateless, secure: security == Security::Channel }
}

fn routing_information(mri: &Mri) -> v0::Mri {
    let direction = match mri.direction() {
        Direction::Downstream => v0::Direction::Downstream,
        Direction::Upstream => v0::Direction::Upstream,
    };
    let method = match mri {
        Mri::PathCoupled(p) => v0::mri::Method::PathCoupled(v0::PathCoupled {
            source: p.src.to_string(),
            source_prefix: Some(p.src_prefix.into()),
            destination: p.dst.to_string(),
            destination_prefix: Some(p.dst_prefix.into()),
            protocol: p.protocol.map(Into::into),
            dscp: p.dscp.map(Into::into),
            flow_label: p.flow_label,
            spi: p.spi,
            source_port: p.src_port.map(Into::into),
            destination_port: p.dst_port.map(Into::into),
        }),
        Mri::LooseEnd(l) => v0::mri::Method::LooseEnd(v0::LooseEnd {
            source: l.src.to_string(),
            destination: l.dst.to_string(),
        }),
    };
    v0::Mri { direction: direction.into(), method: Some(method) }
}

fn network_event(event: NetworkEvent) -> (v0::NetworkEvent, Option<SiiHandle>) {
    match event {
        NetworkEvent::LastNode => (v0::NetworkEvent::LastNode, None),
        NetworkEvent::Good(sii) => (v0::NetworkEvent::Good, Some(sii)),
        NetworkEvent::Tentative => (v0::NetworkEvent::Tentative, None),
        NetworkEvent::Bad => (v0::NetworkEvent::Bad, None),
        NetworkEvent::RouteDeleted(sii) => (v0::NetworkEvent::RouteDeleted, Some(sii)),
        NetworkEvent::AuthorisationChanged => (v0::NetworkEvent::AuthorisationChanged, None),
        NetworkEvent::CommunicationFailure => (v0::NetworkEvent::CommunicationFailure, None),
    }
}

fn send_failure(failure: SendError) -> v0::SendFailure {
    let (error, reason) = match failure {
        SendError::NoNextNode => {
            (v0::SendError::NoNextNode, "no node further on with this application answered in time")
        }
        SendError::FlowEndsHere => (v0::SendError::FlowEndsHere, "the flow ends at this node"),
        SendError::NoRoute => (v0::SendError::NoRoute, "no route to the flow's destination"),
        SendError::NoStateUpstream => (
            v0::SendError::NoStateUpstream,
            "no routing state upstream: it is made by messages that come downstream",
        ),
        SendError::TooLarge { .. } => (
            v0::SendError::TooLarge,
            "too many octets; more fit into one message where all nodes have messaging associations",
        ),
        SendError::Refused => (
            v0::SendError::Refused,
            "GIST cannot give these attributes: reliable and secure need messaging associations \
             ([gist.associations] in the configuration), stateless is for downstream only",
        ),
        SendError::Overload => (v0::SendError::Overload, "a queue or table of this node is full: try later"),
        SendError::Peer { .. } => (v0::SendError::Peer, "the peer's GIST refused it (RFC 5971 A.4.4)"),
    };
    let max = if let SendError::TooLarge { max } = failure { Some(max) } else { None };
    let peer = if let SendError::Peer { code, subcode } = failure { Some((code, subcode)) } else { None };
    v0::SendFailure {
        error: error.into(),
        reason: reason.to_owned(),
        max_octets: max.map(|max| max as u64),
        peer_code: peer.map(|(code, _)| code.into()),
        peer_subcode: peer.map(|(_, subcode)| subcode.into()),
    }
}
