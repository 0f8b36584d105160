//! Requests of the control thread to the event loop.
//!
//! The services of the control thread never touch the node. They open clients, pass on commands, and run queries on
//! the event loop's thread; a table is read in pages, so that a long one does not hold up messages.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use signalbox_core::SessionId;
use signalbox_linux::traffic::LinkConfig;
use signalbox_node::resources::GrantId;
use signalbox_node::{Command, Config};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::api::errors::stopping;
use crate::clients::{Client, ClientProtocol, EventQueue, EventReader, RequestId};
use crate::driver::Watched;
use crate::view::View;

/// A request to the event loop.
#[derive(Debug)]
pub(crate) enum LoopRequest {
    /// A client begins something.
    Open {
        /// Its identifier, for its commands and events.
        id: u64,
        /// Where its events go.
        client: Box<dyn Client>,
        /// What it begins.
        command: Command,
        /// The `request_id` of its call.
        request_id: Option<RequestId>,
        /// Answered when the node has handled the command.
        done: oneshot::Sender<()>,
    },
    /// A command of a client that is open. The answer, if one is wanted, is whether there is such a client.
    Command(Command, Option<oneshot::Sender<bool>>),
    /// Ends a reservation, also one of another client or node. The answer is whether there was one.
    DeleteReservation(GrantId, oneshot::Sender<bool>),
    /// Ends a session of a protocol that opens firewalls, also one of another client or host. The answer is whether there was
    /// one.
    DeletePinhole(SessionId, oneshot::Sender<bool>),
    /// Gives admission control, the protocols and the kernel other settings.
    Reload {
        /// Those of the node, by [`Config::changed_from`].
        config: Box<Config>,
        /// The links where the kernel enforces reservations.
        links: Vec<LinkConfig>,
        /// The answer is the number of reservations that ended.
        answer: oneshot::Sender<u64>,
    },
    /// Somebody watches what changes from now on.
    Watch(mpsc::Sender<Watched>),
    /// A client is gone; what it began ends.
    Close(u64),
    /// A look at the node.
    Query(Query),
    /// The event loop ends, because of the signal of this name.
    Stop(&'static str),
}

/// A function that looks at the node and sends its answer to the client.
pub(crate) struct Query(Box<dyn FnOnce(&mut View<'_>) + Send>);

impl Query {
    /// Runs it.
    pub(crate) fn run(self, view: &mut View<'_>) {
        (self.0)(view);
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Query")
    }
}

/// Sends requests to the event loop; cheap to clone.
#[derive(Clone)]
pub(crate) struct LoopHandle {
    sender: mpsc::Sender<LoopRequest>,
    wake: Arc<dyn Fn() + Send + Sync>,
    last_id: Arc<AtomicU64>,
    /// What the clients that it opens are for.
    request_id: Option<RequestId>,
}

impl fmt::Debug for LoopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoopHandle")
    }
}

/// A stream of replies to a client.
pub(crate) type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl LoopHandle {
    /// A handle that sends through `sender` and calls `wake` after each request.
    pub(crate) fn new(sender: mpsc::Sender<LoopRequest>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { sender, wake: Arc::new(wake), last_id: Arc::default(), request_id: None }
    }

    /// The same handle for a call with this `request_id`, which decisions about its clients have.
    pub(crate) fn named(&self, request_id: Option<RequestId>) -> Self {
        Self { request_id, ..self.clone() }
    }

    /// Sends a request; waits while too many others do.
    ///
    /// # Errors
    /// The event loop has ended.
    pub(crate) async fn send(&self, request: LoopRequest) -> Result<(), Status> {
        self.sender.send(request).await.map_err(|_| stopping())?;
        (self.wake)();
        Ok(())
    }

    /// Opens a client whose events `client` takes, and waits until the node has handled its first command.
    ///
    /// # Errors
    /// The event loop has ended.
    pub(crate) async fn open_as(
        &self,
        client: Box<dyn Client>,
        command: impl FnOnce(u64) -> Command,
    ) -> Result<Lease, Status> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (done, opened) = oneshot::channel();
        let (command, request_id) = (command(id), self.request_id);
        self.send(LoopRequest::Open { id, client, command, request_id, done }).await?;
        // From here on a caller that gives up closes the client as well.
        let lease = Lease::new(self.clone(), id);
        opened.await.map_err(|_| stopping())?;
        Ok(lease)
    }

    /// Opens a client of protocol `P` with its first command, and waits until the node has handled it.
    ///
    /// # Errors
    /// The event loop has ended.
    pub(crate) async fn open<P: ClientProtocol>(&self, command: P::Command) -> Result<Opened<P>, Status> {
        let (queue, events) = EventQueue::<P>::new();
        let lease = self.open_as(Box::new(queue), |id| P::command(id, command)).await?;
        Ok(Opened { lease, events })
    }

    /// Passes a command of a client on. False if there is no such client.
    ///
    /// # Errors
    /// The event loop has ended.
    pub(crate) async fn command(&self, command: Command) -> Result<bool, Status> {
        let (answer, answered) = oneshot::channel();
        self.send(LoopRequest::Command(command, Some(answer))).await?;
        answered.await.map_err(|_| stopping())
    }

    /// Ends a reservation, also one of another client or node. False if there is no such reservation.
    ///
    /// # Errors
    /// The event loop has ended.
    pub(crate) async fn delete_reservation(&self, grant: GrantId) -> Result<bool, Status> {
        let (answer, answered) = oneshot::channel();
        self.send(LoopRequest::DeleteReservation(grant, answer)).await?;
        answered.await.map_err(|_| stopping())
    }

    /// Ends a session of a protocol that opens firewalls, also one of another client or host. Returns whether there was one.
    ///
    /// # Errors
    /// The event loop has ended.
    pub(crate) async fn delete_pinhole(&self, session: SessionId) -> Result<bool, Status> {
        let (answer, answered) = oneshot::channel();
        self.send(LoopRequest::DeletePinhole(session, answer)).await?;
        answered.await.map_err(|_| stopping())
    }

    /// Gives admission control, the protocols and the kernel other settings. Returns the number of reservations that ended.
    ///
    /// # Errors
    /// The event loop has ended.
    pub(crate) async fn reload(&self, config: Config, links: Vec<LinkConfig>) -> Result<u64, Status> {
        let (answer, answered) = oneshot::channel();
        self.send(LoopRequest::Reload { config: Box::new(config), links, answer }).await?;
        answered.await.map_err(|_| stopping())
    }

    /// Passes a command of a client on, without waiting for the node to handle it.
    ///
    /// # Errors
    /// The event loop has ended.
    pub(crate) async fn post(&self, command: Command) -> Result<(), Status> {
        self.send(LoopRequest::Command(command, None)).await
    }

    /// Runs `query` on the event loop's thread, and waits for what it gives.
    ///
    /// # Errors
    /// The event loop has ended.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut View<'_>) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let (sender, answer) = oneshot::channel();
        let query = Query(Box::new(move |view| {
            // A client that is gone needs no answer.
            let _ = sender.send(query(view));
        }));
        self.send(LoopRequest::Query(query)).await?;
        answer.await.map_err(|_| stopping())
    }
}

/// Keeps a client open: the client is closed when this is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The client's identifier.
    pub(crate) id: u64,
    handle: LoopHandle,
    /// The other end closes the client when this one is dropped; it does nothing when it gets a message.
    held: oneshot::Sender<()>,
}

impl Lease {
    fn new(handle: LoopHandle, id: u64) -> Self {
        let (held, gone) = oneshot::channel();
        let closing = handle.clone();
        tokio::spawn(async move {
            if gone.await.is_err() {
                // An error means that the event loop has ended, and the client with it.
                let _ = closing.send(LoopRequest::Close(id)).await;
            }
        });
        Self { id, handle, held }
    }

    /// Closes the client. Requests to the event loop that follow come after it.
    pub(crate) async fn close(self) {
        let Self { id, handle, held } = self;
        // An error means that the event loop has ended, and the client with it.
        let _ = handle.send(LoopRequest::Close(id)).await;
        let _ = held.send(());
    }
}

/// An open client of protocol `P`; it is closed when this is dropped.
pub(crate) struct Opened<P: ClientProtocol> {
    /// Keeps it open.
    pub(crate) lease: Lease,
    /// Its events.
    pub(crate) events: EventReader<P>,
}

impl<P: ClientProtocol> Opened<P> {
    /// The events as a stream of replies, which ends after the last event. The client is closed when the stream is
    /// dropped.
    pub(crate) fn replies<T: Send + 'static>(
        self,
        convert: impl Fn(P::Event) -> Result<T, Status> + Send + 'static,
    ) -> Replies<T> {
        let Self { lease, mut events } = self;
        let (out, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    () = out.closed() => break,
                };
                let Some(reply) = event.map(|event| event.and_then(&convert)) else { break };
                if out.send(reply).await.is_err() {
                    break;
                }
            }
            drop(lease);
        });
        Box::pin(ReceiverStream::new(stream))
    }
}
