//! Clients of CASP in other processes.

use std::net::IpAddr;

use signalbox_api::casp::v1;
use signalbox_api::casp::v1::client_request::Request;
use signalbox_api::casp::v1::client_response::Indication;
use signalbox_api::v1::FlowSpec;
use signalbox_core::SessionId;
use signalbox_core::octets::Octets;
use signalbox_node::casp::{
    ArrivalOf, ClientEvent, Command as CaspCommand, Event as CaspEvent, FlowId, IndicationOf,
    OwnedIndication, OwnedRequest, Refused, RegisterError, RequestOf, SendRequestOf, VerdictOf,
};
use signalbox_node::{Command, Event};
use signalbox_show::casp as show;
use tonic::Status;

use crate::api::InterfaceNames;
use crate::api::errors::{FieldError, Reason, already_open, must_open, not_running};
use crate::api::types::{self, Flow, number, number_in};
use crate::protocols::applications::{Layer, Outcome, ParsedRequest, RefusedRequest};

/// CASP as its clients in other processes see it.
pub(crate) struct Clients;

impl Layer for Clients {
    type Number = u8;
    type Command = CaspCommand;
    type Refusal = RegisterError;
    type Indication = OwnedIndication;
    type Request = v1::ClientRequest;
    type Answer = Indication;
    type Response = v1::ClientResponse;

    fn register(first: Option<v1::ClientRequest>) -> Result<(u8, CaspCommand), Status> {
        let Some(Request::Register(register)) = first.and_then(|first| first.request) else {
            return Err(must_open("register"));
        };
        let client = number("register.client_type", register.client_type, 0, 0xff)?;
        let stateless = register.stateless;
        Ok((client, CaspCommand::Register { client, stateless }))
    }

    fn not_registered(refusal: RegisterError) -> Status {
        match refusal {
            RegisterError::InUse(client) => {
                Reason::ClientTypeTaken.with(refusal, [("client_type", client.to_string())])
            }
            RegisterError::Reserved(_) => FieldError::new("register.client_type", refusal).into(),
            RegisterError::TooMany => Reason::TableFull.status(refusal),
            RegisterError::NotRunning => not_running("casp"),
        }
    }

    fn request(_: u8, message: v1::ClientRequest) -> ParsedRequest<Self> {
        let tag = match &message.request {
            Some(Request::Unregister(_)) => return ParsedRequest::Unregister,
            Some(Request::SendMessage(message)) => Some(message.tag),
            Some(
                Request::Register(_)
                | Request::Verdict(_)
                | Request::HoldSession(_)
                | Request::MoveSession(_)
                | Request::KeepBranches(_),
            )
            | None => None,
        };
        match request(message.request) {
            Ok(request) => ParsedRequest::Command(CaspCommand::Request(request)),
            Err(wrong) => ParsedRequest::Wrong(tag, wrong),
        }
    }

    fn command(id: u64, command: CaspCommand) -> Command {
        Command::Casp { id, command }
    }

    fn close(id: u64) -> Command {
        Self::command(id, CaspCommand::Close)
    }

    fn block(_: u64, _: bool) -> Option<Command> {
        None
    }

    fn event(event: Event) -> Option<Outcome<Self>> {
        let Event::Casp { event: CaspEvent::Client(event), .. } = event else { return None };
        Some(match event {
            ClientEvent::Registered => Outcome::Registered,
            ClientEvent::Refused(error) => Outcome::Refused(error),
            ClientEvent::Indication(indication) => Outcome::Indication(indication),
        })
    }

    fn octets(indication: &OwnedIndication) -> usize {
        match indication {
            IndicationOf::Received(arrival) => arrival.data.as_slice().len() + arrival.route.as_slice().len(),
            IndicationOf::Opened { .. }
            | IndicationOf::Refused { .. }
            | IndicationOf::Error { .. }
            | IndicationOf::Branch { .. }
            | IndicationOf::Undelivered { .. }
            | IndicationOf::Ended { .. } => 0,
        }
    }

    fn registered(node: String) -> Indication {
        Indication::Registered(v1::Registered { node })
    }

    fn refused(RefusedRequest { request, handle, reason }: RefusedRequest) -> Indication {
        Indication::RequestRefused(v1::RequestRefused { request, tag: handle, reason })
    }

    fn indication(indication: OwnedIndication, _: &InterfaceNames) -> Indication {
        match indication {
            IndicationOf::Opened { tag, session, .. } => {
                Indication::SessionOpened(v1::SessionOpened { tag, session_id: session.0.to_vec() })
            }
            IndicationOf::Refused { tag, why } => Indication::SendRefused(v1::SendRefused {
                tag,
                error: send_error(why).into(),
                reason: why.to_string(),
            }),
            IndicationOf::Received(arrival) => Indication::RecvMessage(recv_message(arrival)),
            IndicationOf::Error { session, flow, code } => Indication::SessionError(v1::SessionError {
                session: reference(session, &flow),
                code: code.0,
            }),
            IndicationOf::Branch { session, flow, previous, id, ended } => {
                let session = reference(session, &flow);
                Indication::BranchChanged(v1::BranchChanged { session, previous, branch: id.into(), ended })
            }
            IndicationOf::Undelivered { session, flow } => {
                Indication::Undelivered(v1::Undelivered { session: reference(session, &flow) })
            }
            IndicationOf::Ended { session, flow, torn_down } => {
                Indication::SessionEnded(v1::SessionEnded { session: reference(session, &flow), torn_down })
            }
        }
    }

    fn response(time_unix_us: u64, lost: u64, indication: Indication) -> v1::ClientResponse {
        v1::ClientResponse { time_unix_us, lost, indication: Some(indication) }
    }
}

fn request(asked: Option<Request>) -> Result<OwnedRequest, FieldError> {
    Ok(match asked {
        None => {
            return Err(FieldError::new("request", "missing, or of a kind that this daemon does not know"));
        }
        Some(Request::Register(_)) => {
            return Err(FieldError::new("register", already_open("register").message()));
        }
        Some(Request::Unregister(_)) => return Err(FieldError::new("unregister", "it has no answer")),
        Some(Request::SendMessage(message)) => RequestOf::Send(send_message(message)?),
        Some(Request::Verdict(verdict)) => RequestOf::Verdict {
            id: verdict.verdict_id,
            verdict: match verdict.data {
                Some(_) if verdict.consume => {
                    return Err(FieldError::new("verdict.data", "a message that ends here has none"));
                }
                Some(data) => VerdictOf::Replace(Octets(data)),
                None if verdict.consume => VerdictOf::Consume,
                None => VerdictOf::Forward,
            },
        },
        Some(Request::HoldSession(hold)) => {
            let (session, flow) = named("hold_session.session", hold.session)?;
            RequestOf::Hold { session, flow, on: hold.hold }
        }
        Some(Request::MoveSession(moved)) => {
            let (session, from) = named("move_session.session", moved.session)?;
            RequestOf::Move { session, from, to: flow("move_session.to", moved.to.as_ref())? }
        }
        Some(Request::KeepBranches(keep)) => {
            let (session, flow) = named("keep_branches.session", keep.session)?;
            RequestOf::KeepBranches { session, flow }
        }
    })
}

fn send_message(message: v1::SendMessage) -> Result<SendRequestOf<Octets>, FieldError> {
    const SESSION: &str = "send_message.session";
    let named = message.session.ok_or_else(|| FieldError::new(SESSION, "missing"))?;
    let session =
        (!named.session_id.is_empty()).then(|| session_id(SESSION, &named.session_id)).transpose()?;
    if message.record_route && message.route.is_some() {
        let what = "excludes record_route: an answer goes back along the route of its request";
        return Err(FieldError::new("send_message.route", what));
    }
    if session.is_none() && (message.reverse || message.tear_down || message.branch.is_some()) {
        let what = "reverse, tear_down and branch need a session that exists";
        return Err(FieldError::new(format!("{SESSION}.session_id"), what));
    }
    Ok(SendRequestOf {
        tag: message.tag,
        session,
        flow: flow(&format!("{SESSION}.flow"), named.flow.as_ref())?,
        reverse: message.reverse,
        tear_down: message.tear_down,
        discover: message.discover,
        hold: message.hold,
        branch: number_in("send_message.branch", message.branch, 0, 0xffff)?,
        ttd: number_in("send_message.ttd", message.ttd, 1, 0xff)?,
        record_route: message.record_route,
        route: message.route.map(Octets),
        data: message.data.map(Octets),
    })
}

/// A session that exists.
fn named(field: &str, session: Option<v1::SessionRef>) -> Result<(SessionId, FlowId), FieldError> {
    let session = session.ok_or_else(|| FieldError::new(field, "missing"))?;
    let id = session_id(field, &session.session_id)?;
    Ok((id, flow(&format!("{field}.flow"), session.flow.as_ref())?))
}

fn session_id(field: &str, octets: &[u8]) -> Result<SessionId, FieldError> {
    let wrong = |_| {
        FieldError::new(
            format!("{field}.session_id"),
            format_args!("{} octets, but 16 are needed", octets.len()),
        )
    };
    octets.try_into().map(SessionId).map_err(wrong)
}

/// The flow identifier of a flow: with an SPI, else with ports, else with a label.
fn flow(field: &str, spec: Option<&FlowSpec>) -> Result<FlowId, FieldError> {
    let asked = Flow::read(field, spec)?;
    let (src, dst) = asked.hosts(field)?;
    let src = src.ok_or_else(|| FieldError::new(format!("{field}.source"), "missing"))?;
    if asked.dscp.is_some() {
        return Err(FieldError::new(format!("{field}.dscp"), "a flow of CASP has none: leave it out"));
    }
    let protocol = asked.protocol.unwrap_or_default();
    let src_port = asked.src_port.unwrap_or_default();
    let dst_port = asked.dst_port.unwrap_or_default();
    let label = asked.flow_label.unwrap_or_default();
    let without = |part: &str, given: bool, reason: &str| {
        if given { Err(FieldError::new(format!("{field}.{part}"), reason)) } else { Ok(()) }
    };
    without("flow_label", asked.flow_label.is_some() && asked.protocol.is_some(), "excludes ip_protocol")?;
    without("spi", asked.spi.is_some() && (src_port, dst_port) != (0, 0), "excludes ports")?;
    let flow = match (src, dst, asked.spi) {
        (IpAddr::V4(src), IpAddr::V4(dst), Some(spi)) => FlowId::V4Spi { src, dst, spi, protocol },
        (IpAddr::V4(src), IpAddr::V4(dst), None) => {
            FlowId::V4Ports { src, dst, src_port, dst_port, protocol }
        }
        (IpAddr::V6(src), IpAddr::V6(dst), Some(spi)) => FlowId::V6Spi { src, dst, spi, protocol },
        (IpAddr::V6(src), IpAddr::V6(dst), None) if asked.protocol.is_some() => {
            FlowId::V6Ports { src, dst, src_port, dst_port, protocol }
        }
        (IpAddr::V6(src), IpAddr::V6(dst), None) => FlowId::V6Label { src, dst, label },
        (IpAddr::V4(_), IpAddr::V6(_), _) | (IpAddr::V6(_), IpAddr::V4(_), _) => {
            return Err(FieldError::new(field, "source and destination are of different IP versions"));
        }
    };
    flow.checked().map_err(|error| FieldError::new(field, error))
}

fn reference(session: SessionId, flow: &FlowId) -> Option<v1::SessionRef> {
    Some(v1::SessionRef { session_id: session.0.to_vec(), flow: Some(show::flow_id(flow)) })
}

fn recv_message(message: ArrivalOf<Octets>) -> v1::RecvMessage {
    v1::RecvMessage {
        session: reference(message.session, &message.flow),
        verdict_id: (message.id != 0).then_some(message.id),
        reverse: message.reverse,
        tear_down: message.tear_down,
        unsecure: message.unsecure,
        ttd: message.ttd.into(),
        hops: message.hops.into(),
        peer: message.peer.to_string(),
        authenticated: message.identity.as_deref().map(types::identity),
        branch: message.branch.into(),
        at_end: message.last,
        lifetime_us: u64::from(message.timeout) * 1_000_000,
        stateless: message.stateless,
        route: message.route.0,
        data: message.data.0,
    }
}

const fn send_error(why: Refused) -> v1::SendError {
    match why {
        Refused::NoSession => v1::SendError::NoSession,
        Refused::NoHop => v1::SendError::NoHop,
        Refused::ReverseDiscovery => v1::SendError::ReverseDiscovery,
        Refused::Flow => v1::SendError::Flow,
        Refused::Multicast => v1::SendError::Multicast,
        Refused::TooLong => v1::SendError::TooLong,
        Refused::Full => v1::SendError::Full,
        Refused::Stateless => v1::SendError::Stateless,
    }
}

#[cfg(test)]
mod tests;
