//! Signaling applications of other processes: each has one call, and one place in the node for as long as it lasts.
//!
//! Nothing here touches the node. What an application asks goes to the event loop as any question does, and waits
//! there while too many others do. What it hears waits in a queue of [`QUEUE`] indications: the event loop never
//! waits for an application. Past [`HIGH`] it tells the node that the application takes nothing for a while, so
//! that what is reliable waits at its sender; at [`LOW`] it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use signalbox_api::v1;
use signalbox_api::v1::from_application::Request as Asked;
use signalbox_api::v1::gist_server::Gist;
use signalbox_api::v1::to_application::Indication as Told;
use signalbox_core::NslpId;
use signalbox_core::service::OwnedIndication;
use signalbox_node::gist::Registration;
use signalbox_node::{ApplicationCommand, RegisterError};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::convert;
use crate::control::{Ask, Asks, Replies};

/// Indications that wait for one application before further ones are lost.
pub(crate) const QUEUE: usize = 2048;
/// Indications that wait for an application when it is given no more messages. What one read of one stream can
/// still bring fits behind them.
pub(crate) const HIGH: usize = 1024;
/// Indications that may still wait for an application when it is given messages again.
const LOW: usize = 256;

/// What waits for an application.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// What it hears.
    pub(crate) indication: OwnedIndication,
    /// Indications lost before this one.
    pub(crate) lost: u64,
}

/// The way to an application.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// Its queue.
    pub(crate) queue: mpsc::Sender<Waiting>,
    /// The event loop wants to hear when the queue has shrunk.
    pub(crate) lags: Arc<AtomicBool>,
    /// Indications lost.
    pub(crate) lost: Arc<AtomicU64>,
}

impl Line {
    /// A way, and its other end.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Waiting>) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        (Self { queue, lags: Arc::default(), lost: Arc::default() }, waiting)
    }
}

/// An application that wants a place in the node.
#[derive(Debug)]
pub(crate) struct Joining {
    /// Its number.
    pub(crate) nslp: NslpId,
    /// How GIST shall treat it.
    pub(crate) registration: Registration,
    /// The way to it.
    pub(crate) line: Line,
    /// Its name, for [`Ask::Application`] and [`Ask::ApplicationReady`], if it is taken.
    pub(crate) answer: oneshot::Sender<Result<u64, RegisterError>>,
}

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct Applications {
    asks: Asks,
    node: Arc<str>,
}

impl Applications {
    /// A service that asks through `asks`, of the node of this name.
    pub(crate) fn new(asks: Asks, node: &str) -> Self {
        Self { asks, node: node.into() }
    }
}

#[tonic::async_trait]
impl Gist for Applications {
    type ApplicationStream = Replies<v1::ToApplication>;

    async fn application(
        &self,
        requests: Request<Streaming<v1::FromApplication>>,
    ) -> Result<Response<Self::ApplicationStream>, Status> {
        let mut requests = requests.into_inner();
        let (nslp, registration) = convert::register(requests.message().await?)?;
        let (out, stream) = mpsc::channel(1);
        let (taken, answer) = oneshot::channel();
        let service = self.clone();
        // A task of its own: it takes the application out of the node also if the client is gone before the answer.
        tokio::spawn(async move {
            let (line, waiting) = Line::new();
            let lost = Arc::clone(&line.lost);
            let lags = Arc::clone(&line.lags);
            let (answer, joined) = oneshot::channel();
            let joining = Joining { nslp, registration, line, answer };
            let id = match service.asks.join(joining, joined).await {
                Ok(id) => id,
                Err(status) => {
                    // If the client is gone as well, nobody needs to know.
                    let _ = taken.send(Err(status));
                    return;
                }
            };
            let _ = taken.send(Ok(()));
            let call = Call { asks: service.asks.clone(), id, nslp, out };
            let registered = Told::Registered(v1::Registered { node: service.node.to_string() });
            call.tell(0, registered).await;
            tokio::select! {
                () = call.listen(requests, &lost) => {}
                () = call.speak(waiting, &lags) => {}
                () = call.out.closed() => {}
            }
            // An error means that the daemon stops, and the application's place with it.
            let _ = service.asks.send(Ask::Application(id, ApplicationCommand::Leave)).await;
        });
        answer.await.unwrap_or_else(|_| Err(Status::unavailable("the daemon is stopping")))?;
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

/// The call of an application that has its place.
struct Call {
    asks: Asks,
    id: u64,
    nslp: NslpId,
    out: mpsc::Sender<Result<v1::ToApplication, Status>>,
}

impl Call {
    /// Tells the application something; waits until it has read what was before.
    async fn tell(&self, lost: u64, told: Told) {
        // If it is gone, the call ends elsewhere.
        let _ = self.out.send(Ok(v1::ToApplication { lost, indication: Some(told) })).await;
    }

    /// Passes requests to the event loop until they end.
    async fn listen(&self, mut requests: Streaming<v1::FromApplication>, lost: &AtomicU64) {
        // The registration was number 0.
        for number in 1.. {
            // Broken off or ended: for the node it is the same.
            let Ok(Some(message)) = requests.message().await else { return };
            let handle = match &message.request {
                Some(Asked::SendMessage(message)) => message.handle,
                _ => None,
            };
            match convert::request(self.nslp, message.request) {
                Ok(request) => {
                    let ask = Ask::Application(self.id, ApplicationCommand::Request(request));
                    if self.asks.send(ask).await.is_err() {
                        return;
                    }
                }
                Err(reason) => {
                    let refused = v1::RequestRefused { request: number, handle, reason };
                    self.tell(lost.load(Ordering::SeqCst), Told::RequestRefused(refused)).await;
                }
            }
        }
    }

    /// Passes indications to the application until the event loop has no more.
    async fn speak(&self, mut waiting: mpsc::Receiver<Waiting>, lags: &AtomicBool) {
        while let Some(Waiting { indication, lost }) = waiting.recv().await {
            if waiting.len() <= LOW
                && lags.swap(false, Ordering::SeqCst)
                && self.asks.send(Ask::ApplicationReady(self.id)).await.is_err()
            {
                break;
            }
            self.tell(lost, convert::indication(indication)).await;
        }
        let _ = self.out.send(Err(Status::unavailable("the daemon is stopping"))).await;
    }
}

#[cfg(test)]
mod tests;
