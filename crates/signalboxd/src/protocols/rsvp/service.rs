//! The service `Rsvp`: sessions of other processes, each with a call of its own, and the tables.

use std::net::IpAddr;

use signalbox_api::rsvp::v1;
use signalbox_api::rsvp::v1::rsvp_server::{Rsvp, RsvpServer};
use signalbox_api::rsvp::v1::session_request::Request as AppRequest;
use signalbox_api::rsvp::v1::session_response::Upcall;
use signalbox_core::node::RouteQuery;
use signalbox_node::rsvp::{Command as RsvpCommand, RsvpEvent, Session};
use signalbox_node::{Command, ProtocolId};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{Sessions, convert, tables};
use crate::api::errors::{Reason, already_open, must_open};
use crate::api::pages::{Range, pages};
use crate::api::{Api, types};
use crate::clients::EventReader;
use crate::limits::REQUEST;
use crate::requests::{LoopHandle, Opened, Replies};

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct RsvpService {
    api: Api,
}

/// The generated server with this service.
pub(crate) fn server(api: &Api) -> RsvpServer<RsvpService> {
    RsvpServer::new(RsvpService { api: api.clone() }).max_decoding_message_size(REQUEST)
}

#[tonic::async_trait]
impl Rsvp for RsvpService {
    type SessionStream = Replies<v1::SessionResponse>;

    async fn session(
        &self,
        requests: Request<Streaming<v1::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        self.api.must_run(ProtocolId::Rsvp)?;
        let mut requests = requests.into_inner();
        let Some(v1::SessionRequest { request: Some(AppRequest::Register(register)) }) =
            requests.message().await?
        else {
            return Err(must_open("register"));
        };
        let session = convert::session(&register)?;
        let Opened { lease, mut events } =
            self.api.handle.open::<Sessions>(RsvpCommand::Session(session)).await?;
        // The node has handled the registration: if it is refused, that is the first event.
        let first = events.waiting();
        if let Some(RsvpEvent::Refused(refused)) = first {
            return Err(convert::not_registered(refused));
        }
        let (out, stream) = mpsc::channel(1);
        let call = Call { handle: self.api.handle.clone(), id: lease.id, session, out };
        tokio::spawn(async move {
            let registered = Upcall::Registered(v1::Registered { id: call.id.to_string() });
            call.send(convert::response(registered)).await;
            if let Some(response) = first.and_then(convert::upcall) {
                call.send(response).await;
            }
            tokio::select! {
                () = call.pass_requests(requests) => {}
                () = call.pass_events(events) => {}
                () = call.out.closed() => {}
            }
            // The session is gone when the client reads the end of the call.
            lease.close().await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    type ListSessionsStream = Replies<v1::ListSessionsResponse>;

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<Self::ListSessionsStream>, Status> {
        self.api.must_run(ProtocolId::Rsvp)?;
        let request = request.into_inner();
        let wanted = tables::Wanted {
            address: types::address_in("address", request.address.as_deref())?,
            port: request
                .destination_port
                .map(|port| types::number("destination_port", port, 1, 0xffff))
                .transpose()?,
            interface: request.interface.clone(),
            style: convert::style_in("style", request.style)?,
            neighbor: types::address_in("neighbor", request.neighbor.as_deref())?,
        };
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let list = pages(&self.api.handle, range, move |view, from, most| {
            tables::sessions(view, from, most, &wanted)
        });
        list.map(Response::new)
    }

    type ListNeighborsStream = Replies<v1::ListNeighborsResponse>;

    async fn list_neighbors(
        &self,
        request: Request<v1::ListNeighborsRequest>,
    ) -> Result<Response<Self::ListNeighborsStream>, Status> {
        self.api.must_run(ProtocolId::Rsvp)?;
        let request = request.into_inner();
        let range = Range { limit: request.limit, page_token: &request.page_token };
        let name = request.interface.clone();
        let list = pages(&self.api.handle, range, move |view, after, most| {
            tables::neighbors(view, after, most, name.as_deref())
        });
        list.map(Response::new)
    }

    type ListInterfacesStream = Replies<v1::ListInterfacesResponse>;

    async fn list_interfaces(
        &self,
        request: Request<v1::ListInterfacesRequest>,
    ) -> Result<Response<Self::ListInterfacesStream>, Status> {
        self.api.must_run(ProtocolId::Rsvp)?;
        let request = request.into_inner();
        let range = Range { limit: request.limit, page_token: &request.page_token };
        pages(&self.api.handle, range, tables::interfaces).map(Response::new)
    }

    async fn delete_senders(
        &self,
        request: Request<v1::DeleteSendersRequest>,
    ) -> Result<Response<v1::DeleteSendersResponse>, Status> {
        self.api.must_run(ProtocolId::Rsvp)?;
        let request = request.into_inner();
        let session = convert::session(&request.session.unwrap_or_default())?;
        let source = types::address_in("source", request.source.as_deref())?;
        let mut ended = 0;
        // The event loop ends a part of them at a time.
        loop {
            let answer = self.order(RsvpCommand::EndSenders { session, source }).await?;
            let RsvpEvent::SendersEnded { senders, more } = answer else { return Err(no_answer(&answer)) };
            ended += senders;
            if !more || senders == 0 {
                break;
            }
        }
        if ended == 0 {
            let text =
                "no node has sent such a sender: `signalbox show rsvp sessions` lists those that stand";
            return Err(Reason::NoSender.status(text));
        }
        Ok(Response::new(v1::DeleteSendersResponse { senders: ended }))
    }

    async fn forget_neighbor(
        &self,
        request: Request<v1::ForgetNeighborRequest>,
    ) -> Result<Response<v1::ForgetNeighborResponse>, Status> {
        self.api.must_run(ProtocolId::Rsvp)?;
        let request = request.into_inner();
        let neighbor = types::address("address", &request.address)?;
        let ifindex = match request.interface {
            None => None,
            Some(name) => {
                let found = self.api.handle.query(move |view| {
                    let interfaces = view.kernel.interfaces();
                    interfaces.iter().find(|one| one.name == name).map(|one| one.ifindex)
                });
                Some(found.await?.ok_or_else(unknown_neighbor)?)
            }
        };
        let answer = self.order(RsvpCommand::ForgetNeighbor { neighbor, ifindex }).await?;
        let RsvpEvent::NeighborForgotten { interfaces } = answer else { return Err(no_answer(&answer)) };
        if interfaces == 0 {
            return Err(unknown_neighbor());
        }
        Ok(Response::new(v1::ForgetNeighborResponse { interfaces }))
    }
}

fn unknown_neighbor() -> Status {
    let text = "RSVP knows no such neighbor: `signalbox show rsvp neighbors` lists those that it knows";
    Reason::NoNeighbor.status(text)
}

/// The engine answered the command of an administrator by another event.
fn no_answer(event: &RsvpEvent) -> Status {
    match event {
        RsvpEvent::Refused(refused) => convert::not_registered(*refused),
        RsvpEvent::Path { .. }
        | RsvpEvent::PathGone { .. }
        | RsvpEvent::Resv { .. }
        | RsvpEvent::ResvGone { .. }
        | RsvpEvent::PathError { .. }
        | RsvpEvent::ResvError { .. }
        | RsvpEvent::Confirmed { .. }
        | RsvpEvent::SendersEnded { .. }
        | RsvpEvent::NeighborForgotten { .. } => Reason::Internal.status("the node has not answered"),
    }
}

impl RsvpService {
    /// The answer to a command of an administrator, which needs no session.
    async fn order(&self, command: RsvpCommand) -> Result<RsvpEvent, Status> {
        let Opened { lease, mut events } = self.api.handle.open::<Sessions>(command).await?;
        let answer = events.waiting();
        lease.close().await;
        answer.ok_or_else(|| Reason::Internal.status("the node has not answered"))
    }
}

/// The call of an application whose session is registered.
struct Call {
    handle: LoopHandle,
    id: u64,
    session: Session,
    out: mpsc::Sender<Result<v1::SessionResponse, Status>>,
}

impl Call {
    async fn send(&self, response: v1::SessionResponse) {
        // If the client is gone, the call ends elsewhere.
        let _ = self.out.send(Ok(response)).await;
    }

    /// Passes requests to the event loop, until the client is gone, asks for the end, or sends a request that cannot be.
    async fn pass_requests(&self, mut requests: Streaming<v1::SessionRequest>) {
        loop {
            match requests.message().await {
                Ok(Some(v1::SessionRequest { request: Some(AppRequest::Unregister(_)) })) => return,
                Ok(Some(v1::SessionRequest { request: Some(request) })) => {
                    if let Err(status) = self.pass_request(request).await {
                        let _ = self.out.send(Err(status)).await;
                        return;
                    }
                }
                // A request of a client that is newer than this daemon.
                Ok(Some(v1::SessionRequest { request: None })) => {}
                // The client has no more requests, and goes on to read upcalls.
                Ok(None) => std::future::pending().await,
                Err(_) => return,
            }
        }
    }

    async fn pass_request(&self, request: AppRequest) -> Result<(), Status> {
        let command = match request {
            AppRequest::Register(_) => return Err(already_open("register")),
            AppRequest::Sender(sender) => {
                let source = sender.filter.as_ref().and_then(|filter| filter.source.as_ref());
                let own_source = match source {
                    Some(_) => None,
                    None => Some(own_address(&self.handle, self.session.dest).await?),
                };
                RsvpCommand::Sender(convert::sender(&sender, own_source)?)
            }
            AppRequest::Reserve(reserve) => RsvpCommand::Reserve(convert::reserve(&reserve)?),
            AppRequest::ReceiveAt(at) => RsvpCommand::ReceiveAt(convert::receive_at(&at)?),
            AppRequest::ReleaseSender(_) => RsvpCommand::ReleaseSender,
            AppRequest::ReleaseReservation(_) => RsvpCommand::ReleaseReservation,
            AppRequest::Unregister(_) => return Ok(()),
        };
        self.handle.post(Command::Rsvp { id: self.id, command }).await
    }

    /// Passes events to the client until there are no more.
    async fn pass_events(&self, mut events: EventReader<Sessions>) {
        while let Some(event) = events.next().await {
            let Some(response) = event.map(convert::upcall).transpose() else { continue };
            // If the client is gone, the call ends elsewhere.
            let _ = self.out.send(response).await;
        }
    }
}

/// This node's address towards a destination.
pub(super) async fn own_address(handle: &LoopHandle, dst: IpAddr) -> Result<IpAddr, Status> {
    match handle.query(move |view| view.kernel.route(&RouteQuery::to(dst))).await? {
        Ok(route) if route.local => Ok(dst),
        Ok(route) => Ok(route.src),
        Err(_) => Err(Reason::NoRoute.status(format!("this node has no route to {dst}"))),
    }
}

#[cfg(test)]
mod tests;
