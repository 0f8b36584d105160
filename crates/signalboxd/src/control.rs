//! The control service: turns gRPC calls into questions to the event loop, and its answers into replies.
//!
//! Nothing here touches the node; a table is fetched in portions, so that a long one does not hold up messages.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use signalbox_api::v1;
use signalbox_api::v1::control_server::Control;
use signalbox_node::ping::PingRequest;
use signalbox_node::qos::{self, QosEvent};
use signalbox_node::rsvp::{self, RsvpEvent};
use signalbox_node::{ApplicationCommand, RegisterError};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::protocols;
use crate::protocols::applications::service::Joining;

/// Rows that the event loop gives in one turn.
pub(crate) const PORTION: usize = 256;
/// Ping events that wait for a slow client before its pings are stopped.
const PING_EVENTS: usize = 1024;
/// Events that wait for a slow client before its reservation is released.
const QOS_EVENTS: usize = 64;

/// A question to the event loop, with where to put the answer.
#[derive(Debug)]
pub(crate) enum Ask {
    /// What the daemon is and how it does.
    Status(oneshot::Sender<v1::GetStatusResponse>),
    /// At most [`PORTION`] rows of the session table.
    Sessions(Portion<SessionFilter, v1::Session>),
    /// At most [`PORTION`] rows of the peer table.
    Peers(Portion<(), v1::Peer>),
    /// At most [`PORTION`] rows of the association table.
    Associations(Portion<(), v1::Association>),
    /// All counters.
    Counters(oneshot::Sender<Vec<v1::Counter>>),
    /// Start pings; the answer is their id.
    PingStart {
        /// What to ping.
        request: PingRequest,
        /// Where the events go.
        events: mpsc::Sender<Result<v1::PingEvent, Status>>,
        /// Their id, for [`Ask::PingStop`].
        id: oneshot::Sender<u64>,
    },
    /// Nobody listens to these pings any more.
    PingStop(u64),
    /// Begin a reservation or a question about a path; the answer is its id.
    QosStart {
        /// What is wanted.
        command: qos::Command,
        /// Where the events go.
        events: mpsc::Sender<QosEvent>,
        /// Its id, for [`Ask::QosRelease`] and [`Ask::QosStop`].
        id: oneshot::Sender<u64>,
    },
    /// Release a reservation whose client goes on to listen; the answer is whether there is such a client.
    QosRelease(u64, oneshot::Sender<bool>),
    /// Nobody listens any more.
    QosStop(u64),
    /// At most [`PORTION`] sessions of the QoS application.
    Reservations(Portion<(), v1::Reservation>),
    /// The interfaces at which there is something to reserve.
    Interfaces(oneshot::Sender<Vec<v1::Interface>>),
    /// Register an RSVP session; the answer is its id, given when the node has looked at it.
    RsvpOpen {
        /// Which session.
        session: rsvp::Session,
        /// Where the events go.
        events: mpsc::Sender<RsvpEvent>,
        /// Its id, for [`Ask::Rsvp`] and [`Ask::RsvpClose`].
        answer: oneshot::Sender<u64>,
    },
    /// An application wants something of its RSVP session.
    Rsvp(u64, rsvp::Command),
    /// Nobody listens to this RSVP session any more.
    RsvpClose(u64),
    /// At most [`PORTION`] RSVP sessions.
    RsvpSessions(Portion<(), v1::RsvpSession>),
    /// At most [`PORTION`] RSVP neighbours.
    RsvpNeighbours(Portion<(), v1::RsvpNeighbour>),
    /// This node's address towards a destination.
    SourceTowards(std::net::IpAddr, oneshot::Sender<Option<std::net::IpAddr>>),
    /// An application of another process wants a place in the node.
    ApplicationJoin(Joining),
    /// It asks something, or leaves.
    Application(u64, ApplicationCommand),
    /// It has read what waited for it.
    ApplicationReady(u64),
    /// End the event loop; the name of the signal that says so.
    Stop(&'static str),
}

/// The way to the event loop: a channel, and what wakes the loop to look into it.
#[derive(Clone)]
pub(crate) struct Asks {
    sender: mpsc::Sender<Ask>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Asks {
    /// Asks through `sender` and calls `wake` each time.
    pub(crate) fn new(sender: mpsc::Sender<Ask>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { sender, wake: Arc::new(wake) }
    }

    /// Sends a question; waits while too many others do.
    ///
    /// # Errors
    /// The event loop has ended.
    pub(crate) async fn send(&self, question: Ask) -> Result<(), Status> {
        self.sender.send(question).await.map_err(|_| stopping())?;
        (self.wake)();
        Ok(())
    }

    /// Asks for a place for an application, and waits for the answer: its name in the node.
    pub(crate) async fn join(
        &self,
        joining: Joining,
        answer: oneshot::Receiver<Result<u64, RegisterError>>,
    ) -> Result<u64, Status> {
        self.send(Ask::ApplicationJoin(joining)).await?;
        answer.await.map_err(|_| stopping())?.map_err(protocols::applications::convert::not_registered)
    }

    /// Sends a question and waits for the answer.
    pub(crate) async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Status> {
        let (sender, answer) = oneshot::channel();
        self.send(question(sender)).await?;
        answer.await.map_err(|_| stopping())
    }

    /// Streams a table portion by portion, at most `limit` rows (0: all).
    pub(crate) fn table<F, T>(&self, filter: F, limit: u32, question: fn(Portion<F, T>) -> Ask) -> Replies<T>
    where
        F: Clone + Send + 'static,
        T: Send + 'static,
    {
        let asks = self.clone();
        let (rows, stream) = mpsc::channel(PORTION);
        tokio::spawn(async move {
            let mut left = if limit == 0 { u32::MAX } else { limit };
            let mut from = Some(0);
            while let Some(start) = from {
                let filter = filter.clone();
                let portion = asks.ask(|answer| question(Portion { filter, from: start, answer })).await;
                let (portion, next) = match portion {
                    Ok(portion) => portion,
                    Err(status) => {
                        // If the client is gone as well, nobody needs to know.
                        let _ = rows.send(Err(status)).await;
                        return;
                    }
                };
                for row in portion {
                    if left == 0 || rows.send(Ok(row)).await.is_err() {
                        return;
                    }
                    left -= 1;
                }
                from = next;
            }
        });
        Box::pin(ReceiverStream::new(stream))
    }
}

fn stopping() -> Status {
    Status::unavailable("the daemon is stopping")
}

/// Part of a table.
#[derive(Debug)]
pub(crate) struct Portion<F, T> {
    /// Which rows.
    pub(crate) filter: F,
    /// Rows of the table that earlier portions have passed.
    pub(crate) from: usize,
    /// The rows that fit the filter, and where the next portion begins; `None` after the last.
    pub(crate) answer: oneshot::Sender<(Vec<T>, Option<usize>)>,
}

/// Which sessions are asked for; all conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SessionFilter {
    /// First hexadecimal digits of the identifier, in lower case.
    pub(crate) prefix: String,
    /// Signaling application.
    pub(crate) nslp: Option<u16>,
    /// Source or destination of the flow.
    pub(crate) address: Option<std::net::IpAddr>,
}

/// Which applications the node runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runs {
    /// Ping.
    pub(crate) ping: bool,
    /// QoS.
    pub(crate) qos: bool,
    /// RSVP.
    pub(crate) rsvp: bool,
}

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct Service {
    asks: Asks,
    runs: Runs,
}

impl Service {
    /// A service that asks through `asks`.
    pub(crate) fn new(asks: Asks, runs: Runs) -> Self {
        Self { asks, runs }
    }
}

/// A stream of answers.
pub(crate) type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Control for Service {
    async fn get_status(
        &self,
        _: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusResponse>, Status> {
        self.asks.ask(Ask::Status).await.map(Response::new)
    }

    type ListSessionsStream = Replies<v1::Session>;

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<Self::ListSessionsStream>, Status> {
        let request = request.into_inner();
        let filter = protocols::gist::convert::session_filter(&request)?;
        Ok(Response::new(self.asks.table(filter, request.limit, Ask::Sessions)))
    }

    type ListPeersStream = Replies<v1::Peer>;

    async fn list_peers(
        &self,
        _: Request<v1::ListPeersRequest>,
    ) -> Result<Response<Self::ListPeersStream>, Status> {
        Ok(Response::new(self.asks.table((), 0, Ask::Peers)))
    }

    type ListAssociationsStream = Replies<v1::Association>;

    async fn list_associations(
        &self,
        _: Request<v1::ListAssociationsRequest>,
    ) -> Result<Response<Self::ListAssociationsStream>, Status> {
        Ok(Response::new(self.asks.table((), 0, Ask::Associations)))
    }

    async fn list_counters(
        &self,
        _: Request<v1::ListCountersRequest>,
    ) -> Result<Response<v1::ListCountersResponse>, Status> {
        let counters = self.asks.ask(Ask::Counters).await?;
        Ok(Response::new(v1::ListCountersResponse { counters }))
    }

    type PingStream = Replies<v1::PingEvent>;

    async fn ping(&self, request: Request<v1::PingRequest>) -> Result<Response<Self::PingStream>, Status> {
        if !self.runs.ping {
            return Err(Status::failed_precondition(
                "this node does not run the Ping application: add [apps.ping] to its configuration",
            ));
        }
        let request = protocols::ping::convert::ping_request(&request.into_inner())?;
        let (events, stream) = mpsc::channel(PING_EVENTS);
        let listener = events.clone();
        let id = self.asks.ask(|id| Ask::PingStart { request, events, id }).await?;
        let asks = self.asks.clone();
        tokio::spawn(async move {
            listener.closed().await;
            // An error means that the daemon stops, and the pings with it.
            let _ = asks.send(Ask::PingStop(id)).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    type ReserveStream = Replies<v1::ReserveEvent>;

    async fn reserve(
        &self,
        request: Request<v1::ReserveRequest>,
    ) -> Result<Response<Self::ReserveStream>, Status> {
        self.needs_qos()?;
        let request = protocols::qos::convert::reserve_request(request.into_inner())?;
        let Begun { id, events, alive } = self.begin(qos::Command::Reserve(Box::new(request))).await?;
        let events = ReceiverStream::new(events).map(move |event| {
            // It goes with the stream.
            let _ = &alive;
            protocols::qos::convert::reserve_event(id, event)
        });
        Ok(Response::new(Box::pin(events)))
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        let id = request.into_inner().id;
        if self.asks.ask(|answer| Ask::QosRelease(id, answer)).await? {
            Ok(Response::new(v1::ReleaseResponse {}))
        } else {
            Err(Status::not_found(format!("id: no reservation has the name {id}")))
        }
    }

    async fn query(&self, request: Request<v1::QueryRequest>) -> Result<Response<v1::QueryResponse>, Status> {
        self.needs_qos()?;
        let request = protocols::qos::convert::query_request(request.into_inner())?;
        let Begun { mut events, alive: _alive, .. } =
            self.begin(qos::Command::Query(Box::new(request))).await?;
        while let Some(event) = events.recv().await {
            if let Some(answer) = protocols::qos::convert::query_response(event) {
                return answer.map(Response::new);
            }
        }
        Err(stopping())
    }

    type ListReservationsStream = Replies<v1::Reservation>;

    async fn list_reservations(
        &self,
        _: Request<v1::ListReservationsRequest>,
    ) -> Result<Response<Self::ListReservationsStream>, Status> {
        self.needs_qos()?;
        Ok(Response::new(self.asks.table((), 0, Ask::Reservations)))
    }

    async fn list_interfaces(
        &self,
        _: Request<v1::ListInterfacesRequest>,
    ) -> Result<Response<v1::ListInterfacesResponse>, Status> {
        if !self.runs.qos && !self.runs.rsvp {
            return Err(Status::failed_precondition(
                "this node reserves nothing: add [apps.qos] or [rsvp] to its configuration",
            ));
        }
        let interfaces = self.asks.ask(Ask::Interfaces).await?;
        Ok(Response::new(v1::ListInterfacesResponse { interfaces }))
    }
}

/// A command that was started.
struct Begun {
    id: u64,
    events: mpsc::Receiver<QosEvent>,
    /// The command ends when this is dropped, if not before.
    alive: oneshot::Sender<Infallible>,
}

impl Service {
    fn needs_qos(&self) -> Result<(), Status> {
        self.runs.qos.then_some(()).ok_or_else(|| {
            Status::failed_precondition(
                "this node does not run the QoS application: add [apps.qos] to its configuration",
            )
        })
    }

    /// Starts a command.
    async fn begin(&self, command: qos::Command) -> Result<Begun, Status> {
        let (events, stream) = mpsc::channel(QOS_EVENTS);
        let id = self.asks.ask(|id| Ask::QosStart { command, events, id }).await?;
        let (alive, gone) = oneshot::channel::<Infallible>();
        let asks = self.asks.clone();
        tokio::spawn(async move {
            // Nothing is ever sent: it ends when the other end is dropped.
            let _ = gone.await;
            // An error means that the daemon stops, and the reservation with it.
            let _ = asks.send(Ask::QosStop(id)).await;
        });
        Ok(Begun { id, events: stream, alive })
    }
}

#[cfg(test)]
mod tests;
