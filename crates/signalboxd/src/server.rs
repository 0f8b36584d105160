//! The second thread: clients of the control socket, and the signals that stop the daemon.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use signalbox_api::v1::control_server::ControlServer;
use signalbox_api::v1::gist_server::{self, GistServer};
use signalbox_api::v1::rsvp_server::{self, RsvpServer};
use signalbox_linux::Waker;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, http};
use tonic::transport;

use crate::config::Config;
use crate::control::{Ask, Asks, Runs, Service};
use crate::protocols::applications::service::Applications;
use crate::protocols::rsvp::service::Sessions;
use crate::socket::ControlSocket;

/// Questions that wait for the event loop; whoever asks more waits for a place.
const QUESTIONS: usize = 64;
/// How long clients may take to hear that the daemon stops.
const FAREWELL: Duration = Duration::from_millis(500);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Server {
    thread: Option<JoinHandle<()>>,
    farewell: Option<oneshot::Sender<()>>,
}

impl Server {
    /// Serves `control` and listens for signals; gives what clients ask. `waker` is used with each question.
    pub(crate) fn start(
        control: ControlSocket,
        config: &Config,
        waker: Waker,
    ) -> Result<(Self, mpsc::Receiver<Ask>)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (listener, signals) = {
            let _entered = runtime.enter();
            let listener = UnixListener::from_std(control.listener()?)?;
            (listener, StopSignals::new().context("cannot listen for signals")?)
        };
        let (sender, questions) = mpsc::channel(QUESTIONS);
        let (farewell, stopping) = oneshot::channel();
        let last_call = waker.clone();
        let asks = Asks::new(sender, move || waker.wake());
        let runs = Runs {
            ping: config.ping().is_some(),
            qos: config.qos().is_some(),
            rsvp: config.rsvp().is_some(),
        };
        let services = Services {
            control: ControlServer::new(Service::new(asks.clone(), runs)),
            gist: GistServer::new(Applications::new(asks.clone(), &config.node.name)),
            rsvp: RsvpServer::new(Sessions::new(asks.clone(), config.rsvp().is_some())),
        };
        let thread = thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                runtime.block_on(serve(listener, services, signals, asks, stopping));
                // Calls that clients still have open end with the runtime, and their questions with them.
                drop(runtime);
                // If the loop still runs, it shall find the channel closed.
                last_call.wake();
                // The socket's file goes with the service.
                drop(control);
            })
            .context("cannot start the control thread")?;
        Ok((Self { thread: Some(thread), farewell: Some(farewell) }, questions))
    }

    /// Ends the service and waits for it.
    pub(crate) fn stop(&mut self) {
        // If the thread has ended already, nobody needs the farewell.
        let _ = self.farewell.take().map(|farewell| farewell.send(()));
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the control thread panicked");
        }
    }
}

/// The signals that stop the daemon.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// The services of the control socket. A router of tonic's would bring a web framework with it, for three names.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) control: ControlServer<Service>,
    pub(crate) gist: GistServer<Applications>,
    pub(crate) rsvp: RsvpServer<Sessions>,
}

impl tonic::codegen::Service<http::Request<Body>> for Services {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // As all of them always are.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = request.uri().path().split('/').nth(1);
        match service {
            Some(gist_server::SERVICE_NAME) => self.gist.call(request),
            Some(rsvp_server::SERVICE_NAME) => self.rsvp.call(request),
            _ => self.control.call(request),
        }
    }
}

async fn serve(
    listener: UnixListener,
    services: Services,
    mut signals: StopSignals,
    asks: Asks,
    stopping: oneshot::Receiver<()>,
) {
    tokio::spawn(async move {
        loop {
            let signal = signals.wait().await;
            // An error means that the loop has ended already.
            let _ = asks.send(Ask::Stop(signal)).await;
        }
    });
    let (end, ended) = oneshot::channel::<()>();
    let server = transport::Server::builder().serve_with_incoming_shutdown(
        services,
        UnixListenerStream::new(listener),
        async {
            // A dropped sender means the same.
            let _ = ended.await;
        },
    );
    tokio::pin!(server);
    let result = tokio::select! {
        result = &mut server => result,
        _ = stopping => {
            drop(end);
            // Clients that have not heard it by then are cut off.
            tokio::time::timeout(FAREWELL, server).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = result {
        tracing::error!(%error, "the control service failed");
    }
}
