//! A client of the control socket over a real connection, against an event loop that the test plays.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper_util::rt::TokioIo;
use signalbox_core::Time;
use signalbox_node::{Command, Event, Node};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tonic_types::StatusExt as _;

use crate::access::Roles;
use crate::api::{Api, CurrentConfig, Facts, InterfaceNames};
use crate::clients::{Client, Delivery};
use crate::connection::{Acceptor, Timeouts};
use crate::limits::Limits;
use crate::log::LogLevel;
use crate::protocols;
use crate::requests::{LoopHandle, LoopRequest, Query};
use crate::view::View;
use crate::view::tests::NoKernel;

/// A configuration with all protocols.
pub(crate) const ALL: &str = "version = 1\n[node]\nname = \"r7\"\nprotocols = [\"gist\", \"ping\", \"qos\", \"rsvp\", \"boomerang\", \"casp\"]\n[casp]\nclients = [\"qos\"]\n";

/// The reason of an error, as programs read it.
pub(crate) fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

/// A client's connection, and the requests that its calls make.
pub(crate) struct Rig {
    pub(crate) channel: Channel,
    pub(crate) handle: LoopHandle,
    pub(crate) requests: mpsc::Receiver<LoopRequest>,
    pub(crate) woken: Arc<AtomicUsize>,
    pub(crate) limits: Limits,
    /// What the services have.
    pub(crate) api: Api,
    node: Node,
}

/// A client that was opened, and that the test plays the node for.
pub(crate) struct OpenClient {
    pub(crate) id: u64,
    pub(crate) command: Command,
    client: Box<dyn Client>,
    done: Option<oneshot::Sender<()>>,
}

impl OpenClient {
    /// The node has handled the first command.
    pub(crate) fn done(&mut self) {
        let _ = self.done.take().map(|done| done.send(()));
    }

    /// The node gives an event.
    pub(crate) fn event(&mut self, event: Event) -> Delivery {
        self.client.deliver(event)
    }

    /// The event loop takes note of a command.
    pub(crate) fn commanded(&mut self, command: &Command) {
        self.client.commanded(command);
    }
}

impl Rig {
    /// The services of a node of this configuration.
    pub(crate) async fn new(config: &str) -> Self {
        Self::with_file(config, PathBuf::new()).await
    }

    /// The services of a node with the configuration in a file.
    pub(crate) async fn loaded(path: PathBuf) -> Self {
        let config = signalbox_config::load(&path).unwrap().config.unwrap();
        Self::of(config, path).await
    }

    /// The services of a node of this configuration, whose file is `path`.
    pub(crate) async fn with_file(config: &str, path: PathBuf) -> Self {
        let config = signalbox_config::parse(Path::new("node.toml"), config).config.unwrap();
        Self::of(config, path).await
    }

    async fn of(config: signalbox_config::Config, path: PathBuf) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (sender, requests) = mpsc::channel(8);
        let woken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&woken);
        let handle = LoopHandle::new(sender, move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let api = Api {
            handle: handle.clone(),
            facts: Arc::new(Facts::new(&config)),
            names: InterfaceNames::default(),
            decisions: crate::decisions::DecisionHistory::default(),
            roles: Roles::new(&config.control.access),
            limits: Limits::new(&config.control),
            config: CurrentConfig::new(path, config),
            log: LogLevel::default(),
            sessions: crate::sessions::Sessions::of(&[0; 32]),
            standing: crate::standing::StandingRequests::default(),
        };
        let services = protocols::services(&api).unwrap();
        let (limits, roles) = (api.limits.clone(), api.roles.clone());
        let acceptor = Acceptor { limits: limits.clone(), roles, timeouts: Timeouts::default() };
        let connections = tokio_stream::once(Ok::<_, std::io::Error>(acceptor.admit(theirs).unwrap()));
        tokio::spawn(limits.server().serve_with_incoming(services, connections));
        let mut ours = Some(TokioIo::new(ours));
        let connector = tower::service_fn(move |_| {
            let stream = ours.take().ok_or(std::io::ErrorKind::NotConnected);
            async move { stream.map_err(std::io::Error::from) }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector(connector).await.unwrap();
        let node = Node::new(signalbox_node::Config::default(), [1; 32]).unwrap();
        Self { channel, handle, requests, woken, limits, api, node }
    }

    /// The next request, which must open a client.
    pub(crate) async fn open(&mut self) -> OpenClient {
        match self.requests.recv().await {
            Some(LoopRequest::Open { id, client, command, done, .. }) => {
                OpenClient { id, command, client, done: Some(done) }
            }
            other => panic!("{other:?}"),
        }
    }

    /// The next request, which must be a command.
    pub(crate) async fn command(&mut self) -> (Command, Option<oneshot::Sender<bool>>) {
        match self.requests.recv().await {
            Some(LoopRequest::Command(command, answer)) => (command, answer),
            other => panic!("{other:?}"),
        }
    }

    /// The next request, which must close a client; gives its identifier.
    pub(crate) async fn closed(&mut self) -> u64 {
        match self.requests.recv().await {
            Some(LoopRequest::Close(id)) => id,
            other => panic!("{other:?}"),
        }
    }

    /// Runs a query on a node without state.
    pub(crate) fn run(&self, query: Query) {
        query.run(&mut View { now: Time::from_secs(5), node: &self.node, kernel: &mut NoKernel });
    }
}
