//! The call of a signaling application. It is registered for as long as the call lasts.
//!
//! Nothing here touches the node. A request of an application goes to the event loop as a command, and waits
//! while too many others do. Indications wait in the queue of [`client`](super::client): the event loop never waits
//! for an application.

use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::client::{Application, LOW, OCTETS, Reader, Shared, Waiting};
use super::{Layer, ParsedRequest, RefusedRequest};
use crate::api::errors::stopping;
use crate::api::types::unix_us;
use crate::api::{Api, InterfaceNames};
use crate::requests::{Lease, LoopHandle, Replies};

/// Serves one application: its first request registers it.
pub(crate) async fn serve<L: Layer>(
    api: &Api,
    mut requests: Streaming<L::Request>,
) -> Result<Replies<L::Response>, Status> {
    let (number, command) = L::register(requests.message().await?)?;
    let (application, Reader { queue, shared, registered }) = Application::<L>::new(number);
    let lease = api.handle.open_as(Box::new(application), |id| L::command(id, command)).await?;
    registered.await.map_err(|_| stopping())?.map_err(L::not_registered)?;
    let (out, stream) = mpsc::channel(1);
    let call = Call::<L> { handle: api.handle.clone(), names: api.names.clone(), id: lease.id, number, out };
    let registered = L::registered(api.facts.node.clone());
    tokio::spawn(async move {
        call.send(0, registered).await;
        let end = tokio::select! {
            end = call.pass_requests(requests, &shared) => end,
            () = call.pass_indications(queue, &shared) => End::Lost,
            () = call.out.closed() => End::Lost,
        };
        tracing::info!(client = call.id, "an application of another process is gone");
        match end {
            // The application's number is free when the client reads the end of the call.
            End::Unregistered => lease.close().await,
            End::Lost => drop::<Lease>(lease),
        }
    });
    Ok(Box::pin(ReceiverStream::new(stream)))
}

/// How a call ends.
enum End {
    /// The application asked for it.
    Unregistered,
    /// The application, or the event loop, is gone.
    Lost,
}

/// The call of a registered application.
struct Call<L: Layer> {
    handle: LoopHandle,
    names: InterfaceNames,
    id: u64,
    number: L::Number,
    out: mpsc::Sender<Result<L::Response, Status>>,
}

impl<L: Layer> Call<L> {
    /// Sends an indication to the application; waits until it has read what was before.
    async fn send(&self, lost: u64, answer: L::Answer) {
        // If the application is gone, the call ends elsewhere.
        let _ = self.out.send(Ok(L::response(unix_us(), lost, answer))).await;
    }

    /// Passes requests to the event loop until the application is gone, or asks for the end.
    async fn pass_requests(&self, mut requests: Streaming<L::Request>, shared: &Shared) -> End {
        // The registration was number 0.
        for request in 1.. {
            let message = match requests.message().await {
                Ok(Some(message)) => message,
                // The application has no more requests, and goes on to read indications.
                Ok(None) => std::future::pending().await,
                Err(_) => return End::Lost,
            };
            match L::request(self.number, message) {
                ParsedRequest::Unregister => return End::Unregistered,
                ParsedRequest::Command(command) => {
                    if self.handle.post(L::command(self.id, command)).await.is_err() {
                        break;
                    }
                }
                ParsedRequest::Wrong(handle, wrong) => {
                    let lost = shared.lost.load(Ordering::SeqCst);
                    let refused = RefusedRequest { request, handle, reason: wrong.to_string() };
                    self.send(lost, L::refused(refused)).await;
                }
            }
        }
        End::Lost
    }

    /// Passes indications to the application until the event loop has no more.
    async fn pass_indications(&self, mut queue: mpsc::Receiver<Waiting<L::Indication>>, shared: &Shared) {
        while let Some(Waiting { indication, lost }) = queue.recv().await {
            let size = L::octets(&indication);
            let octets = shared.octets.fetch_sub(size, Ordering::SeqCst) - size;
            if queue.len() <= LOW
                && octets <= OCTETS / 4
                && shared.lags.swap(false, Ordering::SeqCst)
                && let Some(command) = L::block(self.id, false)
                && self.handle.post(command).await.is_err()
            {
                break;
            }
            self.send(lost, L::indication(indication, &self.names)).await;
        }
        let _ = self.out.send(Err(stopping())).await;
    }
}

#[cfg(test)]
mod tests;
