//! RSVP sessions of other processes: each has one call, and is closed with it.

use std::net::IpAddr;

use signalbox_api::v0;
use signalbox_api::v0::rsvp_request::Request as AppRequest;
use signalbox_api::v0::rsvp_server::{Rsvp, RsvpServer};
use signalbox_api::v0::rsvp_upcall::Upcall;
use signalbox_config::Config;
use signalbox_core::node::RouteQuery;
use signalbox_node::Command;
use signalbox_node::rsvp::{Command as RsvpCommand, RsvpEvent, Session};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{convert, tables};
use crate::clients::EventReader;
use crate::protocols::rsvp::Sessions;
use crate::requests::{Lease, LoopHandle, Opened, Replies, must_run};

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct RsvpService {
    handle: LoopHandle,
    running: bool,
}

/// The generated server with this service.
pub(crate) fn server(handle: &LoopHandle, config: &Config) -> RsvpServer<RsvpService> {
    RsvpServer::new(RsvpService { handle: handle.clone(), running: config.node.runs("rsvp") })
}

impl RsvpService {
    fn must_run(&self) -> Result<(), Status> {
        must_run(self.running, "this node does not speak RSVP: add \"rsvp\" to node.protocols")
    }
}

#[tonic::async_trait]
impl Rsvp for RsvpService {
    type SessionStream = Replies<v0::RsvpUpcall>;

    async fn session(
        &self,
        requests: Request<Streaming<v0::RsvpRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        self.must_run()?;
        let mut requests = requests.into_inner();
        let Some(v0::RsvpRequest { request: Some(AppRequest::Register(register)) }) =
            requests.message().await?
        else {
            return Err(Status::invalid_argument("the first message must be register"));
        };
        let session = convert::session(&register)?;
        let Opened { lease, mut events } =
            self.handle.open::<Sessions>(RsvpCommand::Session(session)).await?;
        // The node has handled the registration: if it is refused, that is the first event.
        let first = events.waiting();
        if let Some(RsvpEvent::Refused(refused)) = first {
            return Err(convert::not_registered(refused));
        }
        let (out, stream) = mpsc::channel(1);
        let call = Call { handle: self.handle.clone(), lease, session, out };
        tokio::spawn(async move {
            let registered = Upcall::Registered(v0::RsvpRegistered { id: call.lease.id });
            call.send(v0::RsvpUpcall { upcall: Some(registered) }).await;
            if let Some(event) = first {
                call.send(convert::upcall(event)).await;
            }
            tokio::select! {
                () = call.pass_requests(requests) => {}
                () = call.pass_events(events) => {}
                () = call.out.closed() => {}
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    type ListRsvpSessionsStream = Replies<v0::RsvpSession>;

    async fn list_rsvp_sessions(
        &self,
        _: Request<v0::ListRsvpSessionsRequest>,
    ) -> Result<Response<Self::ListRsvpSessionsStream>, Status> {
        self.must_run()?;
        Ok(Response::new(self.handle.table(0, tables::sessions)))
    }

    type ListRsvpNeighboursStream = Replies<v0::RsvpNeighbour>;

    async fn list_rsvp_neighbours(
        &self,
        _: Request<v0::ListRsvpNeighboursRequest>,
    ) -> Result<Response<Self::ListRsvpNeighboursStream>, Status> {
        self.must_run()?;
        Ok(Response::new(self.handle.table(0, tables::neighbours)))
    }
}

/// The call of an application whose session is registered. The session is closed when this is dropped.
struct Call {
    handle: LoopHandle,
    lease: Lease,
    session: Session,
    out: mpsc::Sender<Result<v0::RsvpUpcall, Status>>,
}

impl Call {
    async fn send(&self, upcall: v0::RsvpUpcall) {
        // If the client is gone, the call ends elsewhere.
        let _ = self.out.send(Ok(upcall)).await;
    }

    /// Passes requests to the event loop, until the client is gone or sends one that cannot be.
    async fn pass_requests(&self, mut requests: Streaming<v0::RsvpRequest>) {
        loop {
            match requests.message().await {
                Ok(Some(v0::RsvpRequest { request: Some(request) })) => {
                    if let Err(status) = self.pass_request(request).await {
                        let _ = self.out.send(Err(status)).await;
                        return;
                    }
                }
                // A request of a client that is newer than this daemon.
                Ok(Some(v0::RsvpRequest { request: None })) => {}
                // The client has no more requests, and goes on to read upcalls.
                Ok(None) => std::future::pending().await,
                Err(_) => return,
            }
        }
    }

    async fn pass_request(&self, request: AppRequest) -> Result<(), Status> {
        let command = match request {
            AppRequest::Register(_) => {
                return Err(Status::invalid_argument("register: the session is registered already"));
            }
            AppRequest::Sender(sender) => {
                let own = match &sender.filter {
                    Some(filter) if !filter.source.is_empty() => None,
                    Some(_) | None => Some(self.own_address().await?),
                };
                let missing = || Status::invalid_argument("sender.filter.source: missing");
                RsvpCommand::Sender(convert::sender(&sender, || own.ok_or_else(missing))?)
            }
            AppRequest::Reserve(reserve) => RsvpCommand::Reserve(convert::reserve(&reserve)?),
            AppRequest::ReceiveAt(at) => RsvpCommand::ReceiveAt(convert::receive_at(&at)?),
            AppRequest::ReleaseSender(_) => RsvpCommand::ReleaseSender,
            AppRequest::ReleaseReservation(_) => RsvpCommand::ReleaseReservation,
        };
        self.handle.post(Command::Rsvp { id: self.lease.id, command }).await
    }

    /// This node's address towards the destination of the session.
    async fn own_address(&self) -> Result<IpAddr, Status> {
        let dest = self.session.dest;
        let route = self.handle.query(move |view| view.kernel.route(&RouteQuery::to(dest)));
        match route.await? {
            Ok(route) if route.local => Ok(dest),
            Ok(route) => Ok(route.src),
            Err(_) => Err(Status::failed_precondition(format!("this node has no route to {dest}"))),
        }
    }

    /// Passes events to the client until the event loop closes the session.
    async fn pass_events(&self, mut events: EventReader<Sessions>) {
        while let Some(event) = events.next().await {
            let _ = self.out.send(event.map(convert::upcall)).await;
        }
    }
}
