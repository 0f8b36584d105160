//! The service of signaling applications: each application has one call, and is registered for as long as it lasts.
//!
//! Nothing here touches the node. A request of an application goes to the event loop as a command, and waits
//! while too many others do. Indications wait in the queue of [`client`](super::client): the event loop never waits
//! for an application.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use signalbox_api::v0;
use signalbox_api::v0::from_application::Request as AppRequest;
use signalbox_api::v0::gist_server::{Gist, GistServer};
use signalbox_api::v0::to_application::Indication;
use signalbox_config::Config;
use signalbox_core::NslpId;
use signalbox_node::{ApplicationCommand, Command};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::convert;
use crate::api::errors::stopping;
use crate::protocols::applications::client::{Application, LOW, Reader, Shared, Waiting};
use crate::requests::{Lease, LoopHandle, Replies};

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct Applications {
    handle: LoopHandle,
    node: Arc<str>,
}

/// The generated server with this service.
pub(crate) fn server(handle: &LoopHandle, config: &Config) -> GistServer<Applications> {
    GistServer::new(Applications { handle: handle.clone(), node: config.node.name.as_str().into() })
}

#[tonic::async_trait]
impl Gist for Applications {
    type ApplicationStream = Replies<v0::ToApplication>;

    async fn application(
        &self,
        requests: Request<Streaming<v0::FromApplication>>,
    ) -> Result<Response<Self::ApplicationStream>, Status> {
        let mut requests = requests.into_inner();
        let (nslp, registration) = convert::register(requests.message().await?)?;
        let (application, Reader { queue, shared, registered }) = Application::new(nslp);
        let command = ApplicationCommand::Register { nslp, registration };
        let lease = self.handle.open_as(Box::new(application), |id| Command::Gist { id, command }).await?;
        registered.await.map_err(|_| stopping())?.map_err(convert::not_registered)?;
        let (out, stream) = mpsc::channel(1);
        let call = Call { handle: self.handle.clone(), lease, nslp, out };
        let registered = Indication::Registered(v0::Registered { node: self.node.to_string() });
        tokio::spawn(async move {
            call.send(0, registered).await;
            tokio::select! {
                () = call.pass_requests(requests, &shared) => {}
                () = call.pass_indications(queue, &shared) => {}
                () = call.out.closed() => {}
            }
            tracing::info!(client = call.lease.id, "an application of another process is gone");
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

/// The call of a registered application. The application leaves the node when this is dropped.
struct Call {
    handle: LoopHandle,
    lease: Lease,
    nslp: NslpId,
    out: mpsc::Sender<Result<v0::ToApplication, Status>>,
}

impl Call {
    /// Sends an indication to the application; waits until it has read what was before.
    async fn send(&self, lost: u64, indication: Indication) {
        // If the application is gone, the call ends elsewhere.
        let _ = self.out.send(Ok(v0::ToApplication { lost, indication: Some(indication) })).await;
    }

    const fn command(&self, command: ApplicationCommand) -> Command {
        Command::Gist { id: self.lease.id, command }
    }

    /// Passes requests to the event loop until they end.
    async fn pass_requests(&self, mut requests: Streaming<v0::FromApplication>, shared: &Shared) {
        // The registration was number 0.
        for number in 1.. {
            // For the node a broken connection is the same as an orderly end.
            let Ok(Some(message)) = requests.message().await else { return };
            let handle = match &message.request {
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
                        return;
                    }
                }
                Err(reason) => {
                    let refused = v0::RequestRefused { request: number, handle, reason };
                    let lost = shared.lost.load(Ordering::SeqCst);
                    self.send(lost, Indication::RequestRefused(refused)).await;
                }
            }
        }
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
            self.send(lost, convert::indication(indication)).await;
        }
        let _ = self.out.send(Err(stopping())).await;
    }
}
