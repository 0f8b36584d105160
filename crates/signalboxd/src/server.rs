//! The second thread: clients of the control socket, and the signals that the daemon obeys.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use signalbox_config::Config;
use signalbox_linux::Waker;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use crate::access::Roles;
use crate::api::{Api, CurrentConfig, Facts, InterfaceNames, reload};
use crate::connection::{Acceptor, Incoming, Timeouts};
use crate::decisions::DecisionHistory;
use crate::limits::Limits;
use crate::log::LogLevel;
use crate::metrics::http;
use crate::notify::Notifier;
use crate::protocols;
use crate::requests::{LoopHandle, LoopRequest};
use crate::services::Services;
use crate::sessions::Sessions;
use crate::socket::ControlSocket;
use crate::standing::StandingRequests;

/// Requests that may wait for the event loop; a sender of more has to wait.
const REQUESTS: usize = 64;
/// How long clients may take to read that the daemon stops.
const FAREWELL: Duration = Duration::from_millis(500);

/// What the second thread runs on.
///
/// From its making on, signals do not end the process any more where they come. A start that they ended would leave queues, rules and
/// routes in the kernel; those that come meanwhile are obeyed once the thread runs.
#[derive(Debug)]
pub(crate) struct ControlRuntime {
    runtime: Runtime,
    signals: Signals,
}

impl ControlRuntime {
    /// Makes it. It has no thread before [`Server::start`].
    pub(crate) fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = {
            let _entered = runtime.enter();
            Signals::new().context("cannot listen for signals")?
        };
        Ok(Self { runtime, signals })
    }
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct Server {
    thread: Option<JoinHandle<()>>,
    farewell: Option<oneshot::Sender<()>>,
}

impl Server {
    /// Serves `control` and obeys signals; gives their requests. `waker` is used with each request.
    pub(crate) fn start(
        ControlRuntime { runtime, signals }: ControlRuntime,
        (control, notifier): (ControlSocket, Notifier),
        config: &Config,
        waker: Waker,
        names: InterfaceNames,
        current: CurrentConfig,
        (log, decisions, sessions): (LogLevel, DecisionHistory, Sessions),
    ) -> Result<(Self, mpsc::Receiver<LoopRequest>)> {
        let metrics = config.metrics.listen.map(http::bind).transpose()?;
        let (listener, metrics) = {
            let _entered = runtime.enter();
            let listener = UnixListener::from_std(control.listener()?)?;
            (listener, metrics.map(TcpListener::from_std).transpose()?)
        };
        let (sender, requests) = mpsc::channel(REQUESTS);
        let (farewell, stopping) = oneshot::channel();
        let last_call = waker.clone();
        let handle = LoopHandle::new(sender, move || waker.wake());
        let facts = Arc::new(Facts::new(config));
        let roles = Roles::new(&config.control.access);
        let limits = Limits::new(&config.control);
        let api = Api {
            handle: handle.clone(),
            facts,
            names,
            config: current,
            log,
            decisions,
            roles,
            limits,
            sessions,
            standing: StandingRequests::default(),
        };
        let services = protocols::services(&api)?;
        let thread = thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                if let Some(listener) = metrics {
                    // It ends with the runtime.
                    runtime.spawn(http::serve(listener, handle.clone()));
                }
                runtime.block_on(serve(listener, services, signals, (api, notifier), stopping));
                // Calls that clients still have open end with the runtime, and their requests with them.
                drop(runtime);
                // A loop that still runs then finds the channel closed.
                last_call.wake();
                // The socket's file goes with the service.
                drop(control);
            })
            .context("cannot start the control thread")?;
        Ok((Self { thread: Some(thread), farewell: Some(farewell) }, requests))
    }

    /// Ends the service and waits for it.
    pub(crate) fn stop(&mut self) {
        // A thread that has ended already needs no message.
        let _ = self.farewell.take().map(|farewell| farewell.send(()));
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the control thread panicked");
        }
    }
}

/// What a signal asks for.
enum SignalRequest {
    /// To read the configuration again.
    Reload,
    /// To stop, by the signal of this name.
    Stop(&'static str),
}

/// The signals that the daemon obeys.
#[derive(Debug)]
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn wait(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::Stop("SIGTERM"),
            _ = self.interrupt.recv() => SignalRequest::Stop("SIGINT"),
            _ = self.hangup.recv() => SignalRequest::Reload,
        }
    }
}

async fn serve(
    listener: UnixListener,
    services: Services,
    mut signals: Signals,
    (api, notifier): (Api, Notifier),
    stopping: oneshot::Receiver<()>,
) {
    let limits = api.limits.clone();
    api.standing.apply(&api, &api.config.get().standing);
    let acceptor =
        Acceptor { limits: limits.clone(), roles: api.roles.clone(), timeouts: Timeouts::default() };
    tokio::spawn(async move {
        loop {
            match signals.wait().await {
                SignalRequest::Reload => {
                    notifier.send("RELOADING=1");
                    // The log has what went wrong.
                    let _ = reload::reload(&api).await;
                    api.decisions.reopen();
                    notifier.send("READY=1");
                }
                SignalRequest::Stop(signal) => {
                    // An error means that the loop has ended already.
                    let _ = api.handle.send(LoopRequest::Stop(signal)).await;
                }
            }
        }
    });
    let (end, ended) = oneshot::channel::<()>();
    let server =
        limits.server().serve_with_incoming_shutdown(services, Incoming::new(listener, acceptor), async {
            // A dropped sender means the same.
            let _ = ended.await;
        });
    tokio::pin!(server);
    let result = tokio::select! {
        result = &mut server => result,
        _ = stopping => {
            drop(end);
            // Clients that have not read it by then are disconnected.
            tokio::time::timeout(FAREWELL, server).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = result {
        tracing::error!(%error, "the control service failed");
    }
}
