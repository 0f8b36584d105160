//! RSVP sessions of other processes: each has one call, and is closed with it.
//!
//! What an application asks goes to the event loop as any question does. What it hears waits in a queue of [`QUEUE`]
//! events; an application that does not read them loses its session.

use std::net::IpAddr;

use signalbox_api::v1;
use signalbox_api::v1::rsvp_request::Request as Asked;
use signalbox_api::v1::rsvp_server::Rsvp;
use signalbox_api::v1::rsvp_upcall::Upcall;
use signalbox_node::rsvp::{Command, RsvpEvent, Session};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::convert;
use crate::control::{Ask, Asks, Replies};

/// Events that wait for one application before it is dropped.
const QUEUE: usize = 1024;

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct Sessions {
    asks: Asks,
    running: bool,
}

impl Sessions {
    /// A service that asks through `asks`; `running`: the node speaks RSVP.
    pub(crate) const fn new(asks: Asks, running: bool) -> Self {
        Self { asks, running }
    }

    fn must_run(&self) -> Result<(), Status> {
        self.running.then_some(()).ok_or_else(|| {
            Status::failed_precondition("this node does not speak RSVP: add [rsvp] to its configuration")
        })
    }
}

#[tonic::async_trait]
impl Rsvp for Sessions {
    type SessionStream = Replies<v1::RsvpUpcall>;

    async fn session(
        &self,
        requests: Request<Streaming<v1::RsvpRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        self.must_run()?;
        let mut requests = requests.into_inner();
        let Some(v1::RsvpRequest { request: Some(Asked::Register(register)) }) = requests.message().await?
        else {
            return Err(Status::invalid_argument("the first message must be register"));
        };
        let session = convert::session(&register)?;
        let (events, mut heard) = mpsc::channel(QUEUE);
        let id = self.asks.ask(|answer| Ask::RsvpOpen { session, events, answer }).await?;
        // Events come in order: what a refusal follows at once was not registered.
        let first = heard.try_recv().ok();
        if let Some(RsvpEvent::Refused(refused)) = first {
            let _ = self.asks.send(Ask::RsvpClose(id)).await;
            return Err(convert::not_registered(refused));
        }
        let (out, stream) = mpsc::channel(1);
        let call = Call { asks: self.asks.clone(), id, session, out };
        tokio::spawn(async move {
            let registered = Upcall::Registered(v1::RsvpRegistered { id });
            call.tell(v1::RsvpUpcall { upcall: Some(registered) }).await;
            if let Some(event) = first {
                call.tell(convert::upcall(event)).await;
            }
            tokio::select! {
                () = call.listen(requests) => {}
                () = call.speak(heard) => {}
                () = call.out.closed() => {}
            }
            // An error means that the daemon stops, and the session with it.
            let _ = call.asks.send(Ask::RsvpClose(id)).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    type ListRsvpSessionsStream = Replies<v1::RsvpSession>;

    async fn list_rsvp_sessions(
        &self,
        _: Request<v1::ListRsvpSessionsRequest>,
    ) -> Result<Response<Self::ListRsvpSessionsStream>, Status> {
        self.must_run()?;
        Ok(Response::new(self.asks.table((), 0, Ask::RsvpSessions)))
    }

    type ListRsvpNeighboursStream = Replies<v1::RsvpNeighbour>;

    async fn list_rsvp_neighbours(
        &self,
        _: Request<v1::ListRsvpNeighboursRequest>,
    ) -> Result<Response<Self::ListRsvpNeighboursStream>, Status> {
        self.must_run()?;
        Ok(Response::new(self.asks.table((), 0, Ask::RsvpNeighbours)))
    }
}

/// The call of an application whose session is registered.
struct Call {
    asks: Asks,
    id: u64,
    session: Session,
    out: mpsc::Sender<Result<v1::RsvpUpcall, Status>>,
}

impl Call {
    /// If the client is gone, nobody needs to know.
    async fn tell(&self, upcall: v1::RsvpUpcall) {
        let _ = self.out.send(Ok(upcall)).await;
    }

    /// Passes on what the application asks, until it is gone or says something that cannot be.
    async fn listen(&self, mut requests: Streaming<v1::RsvpRequest>) {
        loop {
            match requests.message().await {
                Ok(Some(v1::RsvpRequest { request: Some(asked) })) => {
                    if let Err(status) = self.ask(asked).await {
                        let _ = self.out.send(Err(status)).await;
                        return;
                    }
                }
                // Of an application that is newer than this daemon.
                Ok(Some(_)) => {}
                // It has said all that it wants, and goes on to listen.
                Ok(None) => std::future::pending().await,
                Err(_) => return,
            }
        }
    }

    async fn ask(&self, asked: Asked) -> Result<(), Status> {
        let command = match asked {
            Asked::Register(_) => {
                return Err(Status::invalid_argument("register: the session is registered already"));
            }
            Asked::Sender(sender) => {
                let own = match &sender.filter {
                    Some(filter) if !filter.source.is_empty() => None,
                    _ => Some(self.own_address().await?),
                };
                let missing = || Status::invalid_argument("sender.filter.source: missing");
                Command::Sender(convert::sender(&sender, || own.ok_or_else(missing))?)
            }
            Asked::Reserve(reserve) => Command::Reserve(convert::reserve(&reserve)?),
            Asked::ReceiveAt(at) => Command::ReceiveAt(convert::receive_at(&at)?),
            Asked::ReleaseSender(_) => Command::ReleaseSender,
            Asked::ReleaseReservation(_) => Command::ReleaseReservation,
        };
        self.asks.send(Ask::Rsvp(self.id, command)).await
    }

    async fn own_address(&self) -> Result<IpAddr, Status> {
        let dest = self.session.dest;
        let source = self.asks.ask(|answer| Ask::SourceTowards(dest, answer)).await?;
        source.ok_or_else(|| Status::failed_precondition(format!("this node has no route to {dest}")))
    }

    /// Passes on what the application hears.
    async fn speak(&self, mut heard: mpsc::Receiver<RsvpEvent>) {
        while let Some(event) = heard.recv().await {
            self.tell(convert::upcall(event)).await;
        }
        let slow = Status::resource_exhausted("the upcalls were not read: the session is closed");
        let _ = self.out.send(Err(slow)).await;
    }
}
