//! The call of a signaling application. It is registered for as long as the call lasts.
//!
//! Nothing here touches the node. A request of an application goes to the event loop as a command, and waits
//! while too many others do. Indications wait in the queue of [`client`](super::client): the event loop never waits
//! for an application.

use std::sync::atomic::Ordering;

use signalbox_api::gist::v1;
use signalbox_api::gist::v1::application_request::Request as AppRequest;
use signalbox_api::gist::v1::application_response::Indication;
use signalbox_core::NslpId;
use signalbox_node::{ApplicationCommand, Command};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::client::{Application, LOW, Reader, Shared, Waiting};
use super::convert;
use crate::api::errors::stopping;
use crate::api::types::unix_us;
use crate::api::{Api, Names};
use crate::requests::{Lease, LoopHandle, Replies};

/// Serves one application: its first request registers it.
pub(crate) async fn serve(
    api: &Api,
    mut requests: Streaming<v1::ApplicationRequest>,
) -> Result<Replies<v1::ApplicationResponse>, Status> {
    let (nslp, registration) = convert::register(requests.message().await?)?;
    let (application, Reader { queue, shared, registered }) = Application::new(nslp);
    let command = ApplicationCommand::Register { nslp, registration };
    let lease = api.handle.open_as(Box::new(application), |id| Command::Gist { id, command }).await?;
    registered.await.map_err(|_| stopping())?.map_err(convert::not_registered)?;
    let (out, stream) = mpsc::channel(1);
    let call = Call { handle: api.handle.clone(), names: api.names.clone(), id: lease.id, nslp, out };
    let registered = Indication::Registered(v1::Registered { node: api.facts.node.clone() });
    tokio::spawn(async move {
        call.send(0, registered).await;
        let end = tokio::select! {
            end = call.pass_requests(requests, &shared) => end,
            () = call.pass_indications(queue, &shared) => End::Lost,
            () = call.out.closed() => End::Lost,
        };
        tracing::info!(client = call.id, "an application of another process is gone");
        match end {
            // The NSLPID is free when the client reads the end of the call.
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
struct Call {
    handle: LoopHandle,
    names: Names,
    id: u64,
    nslp: NslpId,
    out: mpsc::Sender<Result<v1::ApplicationResponse, Status>>,
}

impl Call {
    /// Sends an indication to the application; waits until it has read what was before.
    async fn send(&self, lost: u64, indication: Indication) {
        let response =
            v1::ApplicationResponse { time_unix_us: unix_us(), lost, indication: Some(indication) };
        // If the application is gone, the call ends elsewhere.
        let _ = self.out.send(Ok(response)).await;
    }

    const fn command(&self, command: ApplicationCommand) -> Command {
        Command::Gist { id: self.id, command }
    }

    /// Passes requests to the event loop until the application is gone, or asks for the end.
    async fn pass_requests(&self, mut requests: Streaming<v1::ApplicationRequest>, shared: &Shared) -> End {
        // The registration was number 0.
        for number in 1.. {
            let message = match requests.message().await {
                Ok(Some(message)) => message,
                // The application has no more requests, and goes on to read indications.
                Ok(None) => std::future::pending().await,
                Err(_) => return End::Lost,
            };
            let handle = match &message.request {
                Some(AppRequest::Unregister(_)) => return End::Unregistered,
                Some(AppRequest::SendMessage(message)) => message.handle,
                Some(
                    AppRequest::Register(_)
                    | AppRequest::PeeringDecision(_)
                    | AppRequest::SetStateLifetime(_)
                    | AppRequest::InvalidateRoutingState(_),
                )
                | None => None,
            };
            match convert::request(self.nslp, message.request) {
                Ok(request) => {
                    let command = self.command(ApplicationCommand::Request(request));
                    if self.handle.post(command).await.is_err() {
                        break;
                    }
                }
                Err(wrong) => {
                    let refused = v1::RequestRefused { request: number, handle, reason: wrong.to_string() };
                    let lost = shared.lost.load(Ordering::SeqCst);
                    self.send(lost, Indication::RequestRefused(refused)).await;
                }
            }
        }
        End::Lost
    }

    /// Passes indications to the application until the event loop has no more.
    async fn pass_indications(&self, mut queue: mpsc::Receiver<Waiting>, shared: &Shared) {
        while let Some(Waiting { indication, lost }) = queue.recv().await {
            if queue.len() <= LOW && shared.lags.swap(false, Ordering::SeqCst) {
                let command = self.command(ApplicationCommand::Blocked(false));
                if self.handle.post(command).await.is_err() {
                    break;
                }
            }
            self.send(lost, convert::indication(indication, &self.names)).await;
        }
        let _ = self.out.send(Err(stopping())).await;
    }
}

#[cfg(test)]
mod tests;
