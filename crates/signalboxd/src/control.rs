//! The control service: turns gRPC calls into questions to the event loop, and its answers into replies.
//!
//! Nothing here touches the node; a table is fetched in portions, so that a long one does not hold up messages.

use std::pin::Pin;
use std::sync::Arc;

use signalbox_api::v1;
use signalbox_api::v1::control_server::Control;
use signalbox_node::ping::PingRequest;
use signalbox_node::{ApplicationCommand, RegisterError};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::application::Joining;
use crate::convert;

/// Rows that the event loop gives in one turn.
pub(crate) const PORTION: usize = 256;
/// Ping events that wait for a slow client before its pings are stopped.
const PING_EVENTS: usize = 1024;

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
        answer.await.map_err(|_| stopping())?.map_err(convert::application::not_registered)
    }

    /// Sends a question and waits for the answer.
    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Status> {
        let (sender, answer) = oneshot::channel();
        self.send(question(sender)).await?;
        answer.await.map_err(|_| stopping())
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

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct Service {
    asks: Asks,
    ping: bool,
}

impl Service {
    /// A service that asks through `asks`; `ping` says whether the node runs the Ping application.
    pub(crate) fn new(asks: Asks, ping: bool) -> Self {
        Self { asks, ping }
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
        let filter = convert::session_filter(&request)?;
        Ok(Response::new(self.table(filter, request.limit, Ask::Sessions)))
    }

    type ListPeersStream = Replies<v1::Peer>;

    async fn list_peers(
        &self,
        _: Request<v1::ListPeersRequest>,
    ) -> Result<Response<Self::ListPeersStream>, Status> {
        Ok(Response::new(self.table((), 0, Ask::Peers)))
    }

    type ListAssociationsStream = Replies<v1::Association>;

    async fn list_associations(
        &self,
        _: Request<v1::ListAssociationsRequest>,
    ) -> Result<Response<Self::ListAssociationsStream>, Status> {
        Ok(Response::new(self.table((), 0, Ask::Associations)))
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
        if !self.ping {
            return Err(Status::failed_precondition(
                "this node does not run the Ping application: add [apps.ping] to its configuration",
            ));
        }
        let request = convert::ping_request(&request.into_inner())?;
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
}

impl Service {
    /// Streams a table portion by portion, at most `limit` rows (0: all).
    fn table<F, T>(&self, filter: F, limit: u32, question: fn(Portion<F, T>) -> Ask) -> Replies<T>
    where
        F: Clone + Send + 'static,
        T: Send + 'static,
    {
        let asks = self.asks.clone();
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

#[cfg(test)]
mod tests;
