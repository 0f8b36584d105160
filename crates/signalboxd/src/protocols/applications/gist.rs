//! Applications of GIST.

use signalbox_api::gist::v1;
use signalbox_api::gist::v1::application_request::Request as AppRequest;
use signalbox_api::gist::v1::application_response::Indication;
use signalbox_core::NslpId;
use signalbox_core::service::{IndicationOf, OwnedIndication};
use signalbox_node::{ApplicationCommand, ApplicationEvent, Command, Event, RegisterError};
use tonic::Status;

use super::{Layer, Outcome, ParsedRequest, RefusedRequest, convert};
use crate::api::InterfaceNames;

/// GIST as its applications in other processes see it.
pub(crate) struct Gist;

impl Layer for Gist {
    type Number = NslpId;
    type Command = ApplicationCommand;
    type Refusal = RegisterError;
    type Indication = OwnedIndication;
    type Request = v1::ApplicationRequest;
    type Answer = Indication;
    type Response = v1::ApplicationResponse;

    fn register(first: Option<v1::ApplicationRequest>) -> Result<(NslpId, ApplicationCommand), Status> {
        let (nslp, registration) = convert::register(first)?;
        Ok((nslp, ApplicationCommand::Register { nslp, registration }))
    }

    fn not_registered(refusal: RegisterError) -> Status {
        convert::not_registered(refusal)
    }

    fn request(nslp: NslpId, message: v1::ApplicationRequest) -> ParsedRequest<Self> {
        let handle = match &message.request {
            Some(AppRequest::Unregister(_)) => return ParsedRequest::Unregister,
            Some(AppRequest::SendMessage(message)) => message.handle,
            Some(
                AppRequest::Register(_)
                | AppRequest::PeeringDecision(_)
                | AppRequest::SetStateLifetime(_)
                | AppRequest::InvalidateRoutingState(_),
            )
            | None => None,
        };
        match convert::request(nslp, message.request) {
            Ok(request) => ParsedRequest::Command(ApplicationCommand::Request(request)),
            Err(wrong) => ParsedRequest::Wrong(handle, wrong),
        }
    }

    fn command(id: u64, command: ApplicationCommand) -> Command {
        Command::Gist { id, command }
    }

    fn close(id: u64) -> Command {
        Self::command(id, ApplicationCommand::Leave)
    }

    fn block(id: u64, blocked: bool) -> Option<Command> {
        Some(Self::command(id, ApplicationCommand::Blocked(blocked)))
    }

    fn event(event: Event) -> Option<Outcome<Self>> {
        let Event::Gist { event, .. } = event else { return None };
        Some(match event {
            ApplicationEvent::Registered => Outcome::Registered,
            ApplicationEvent::Refused(error) => Outcome::Refused(error),
            ApplicationEvent::Indication(indication) => Outcome::Indication(indication),
        })
    }

    fn octets(indication: &OwnedIndication) -> usize {
        match indication {
            IndicationOf::RecvMessage(message) => message.data.as_slice().len(),
            IndicationOf::MessageStatus { .. } | IndicationOf::NetworkNotification { .. } => 0,
        }
    }

    fn registered(node: String) -> Indication {
        Indication::Registered(v1::Registered { node })
    }

    fn refused(RefusedRequest { request, handle, reason }: RefusedRequest) -> Indication {
        Indication::RequestRefused(v1::RequestRefused { request, handle, reason })
    }

    fn indication(indication: OwnedIndication, names: &InterfaceNames) -> Indication {
        convert::indication(indication, names)
    }

    fn response(time_unix_us: u64, lost: u64, indication: Indication) -> v1::ApplicationResponse {
        v1::ApplicationResponse { time_unix_us, lost, indication: Some(indication) }
    }
}
