//! Two namespaces with a wire between them, or three in a row, a daemon in each, and applications as their clients.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use signalbox_api::gist::v1;
use signalbox_api::gist::v1::application_request::Request;
use signalbox_api::gist::v1::application_response::Indication;
use signalbox_api::gist::v1::gist_client::GistClient;
use signalbox_api::v1::node_client::NodeClient;
use signalbox_api::v1::sample::Value;
use signalbox_api::v1::{
    Decision, GetNodeRequest, ListDecisionsRequest, ListMetricsRequest, Protocol, Sample,
};
use signalbox_core::node::Prefix;
use signalbox_linux::capture::{Capture, CaptureConfig};
use signalbox_linux::netns::Namespace;
use signalbox_linux::topology;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// Upper limit of anything that is waited for: machines may be slow.
pub(crate) const LONG: Duration = Duration::from_secs(120);
pub(crate) const NSLP: u32 = 32_710;

/// A daemon in its namespace.
pub(crate) struct Host {
    pub(crate) address: IpAddr,
    pub(crate) directory: PathBuf,
    namespace: Option<Namespace>,
    daemon: Child,
}

/// Two hosts, `a` and `b`, with Ping and associations over TCP.
pub(crate) async fn pair(test: &str) -> [Host; 2] {
    let name = |end: &str| format!("sbxd-{}-{test}-{end}", std::process::id());
    let spaces = ["a", "b"].map(|end| Namespace::create(&name(end)).expect("namespaces need root"));
    topology::create_veth(&spaces[0], "veth", &spaces[1], "veth").unwrap();
    let hosts = spaces.into_iter().zip(["a", "b"]).zip(1..);
    let hosts: Vec<_> = hosts
        .map(|((namespace, end), number)| {
            let address = IpAddr::V4(Ipv4Addr::new(10, 77, 0, number));
            topology::add_address(&namespace, "veth", address, 24).unwrap();
            for interface in ["lo", "veth"] {
                topology::set_up(&namespace, interface, true).unwrap();
            }
            (namespace, address, std::env::temp_dir().join(name(end)))
        })
        .collect();
    let hosts: [_; 2] = hosts.try_into().unwrap_or_else(|_| panic!("two"));
    let hosts = hosts.map(|(namespace, address, directory)| {
        topology::settle(&namespace, LONG).unwrap();
        Host::start(namespace, address, directory, "gist.associations.tcp_port = 270\n")
    });
    for host in &hosts {
        host.ready().await;
    }
    hosts
}

/// Host `a`, router `r` and host `b` in a row, with `settings` in the configuration of each daemon. Packets to other
/// networks go from `a` to `r` and from there to `b`. The router has its interfaces `left` and `right`.
pub(crate) async fn row(test: &str, settings: &str) -> [Host; 3] {
    let name = |node: &str| format!("sbxd-{}-{test}-{node}", std::process::id());
    let spaces = ["a", "r", "b"].map(|node| Namespace::create(&name(node)).expect("namespaces need root"));
    let [a, r, b] = &spaces;
    topology::create_veth(a, "veth", r, "left").unwrap();
    topology::create_veth(r, "right", b, "veth").unwrap();
    let ip = |net, host| IpAddr::V4(Ipv4Addr::new(10, net, 0, host));
    topology::set_forwarding(r, true).unwrap();
    for (space, interface, address) in
        [(a, "veth", ip(77, 1)), (r, "left", ip(77, 2)), (r, "right", ip(78, 1)), (b, "veth", ip(78, 2))]
    {
        topology::add_address(space, interface, address, 24).unwrap();
        topology::set_up(space, interface, true).unwrap();
    }
    let anywhere = Prefix::all_like(Ipv4Addr::UNSPECIFIED.into());
    for (space, gateway) in [(a, ip(77, 2)), (r, ip(78, 2)), (b, ip(78, 1))] {
        topology::set_up(space, "lo", true).unwrap();
        topology::add_route(space, anywhere, Some(gateway), None).unwrap();
        topology::settle(space, LONG).unwrap();
    }
    let mut ends = [("a", ip(77, 1)), ("r", ip(77, 2)), ("b", ip(78, 2))].into_iter();
    let hosts = spaces.map(|namespace| {
        let (node, address) = ends.next().unwrap_or_else(|| panic!("three"));
        Host::start(namespace, address, std::env::temp_dir().join(name(node)), settings)
    });
    for host in &hosts {
        host.ready().await;
    }
    hosts
}

impl Host {
    pub(crate) fn start(namespace: Namespace, address: IpAddr, directory: PathBuf, settings: &str) -> Self {
        let at = directory.display();
        let usual = "node.protocols = [\"gist\", \"ping\", \"beacon\"]\n";
        let protocols = if settings.contains("node.protocols") { "" } else { usual };
        let config = format!(
            "version = 1\nnode.name = \"{}\"\ncontrol.socket = \"{at}/sock\"\n\
             {protocols}record.file = \"{at}/recording\"\n{settings}",
            namespace.name()
        );
        Self::start_with(namespace, address, directory, &config)
    }

    /// The same with a whole configuration, whose control socket is `sock` in this directory.
    pub(crate) fn start_with(
        namespace: Namespace,
        address: IpAddr,
        directory: PathBuf,
        config: &str,
    ) -> Self {
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("config.toml"), config).unwrap();
        let daemon = run(&namespace, &directory);
        Self { address, directory, namespace: Some(namespace), daemon }
    }

    /// Starts the daemon once more, after its end, and does not wait for it.
    pub(crate) fn start_again(&mut self) {
        let namespace = self.namespace.as_ref().expect("it is there until the end");
        self.daemon = run(namespace, &self.directory);
    }

    /// Sends a signal to the daemon, such as "HUP". Whether the daemon runs.
    pub(crate) fn signal(&mut self, signal: &str) -> bool {
        let pid = self.daemon.id().to_string();
        // It fails where the process has ended.
        let _ = Command::new("kill").args(["-s", signal, &pid]).status().unwrap();
        self.daemon.try_wait().unwrap().is_none()
    }

    /// Ends the daemon without an order.
    pub(crate) fn crash(&mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        self.namespace.as_ref().expect("it is there until the end")
    }

    /// The packets that pass an interface from now on.
    pub(crate) fn capture(&self, interface: &str) -> Capture {
        let namespace = self.namespace.as_ref().expect("it is there until the end");
        Capture::open(namespace, interface, CaptureConfig::default()).unwrap()
    }

    /// A connection of its own.
    pub(crate) async fn connect(&self) -> Option<Channel> {
        let path = self.directory.join("sock");
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://localhost").connect_with_connector(connector).await.ok()
    }

    pub(crate) async fn ready(&self) {
        self.eventually("the daemon answers", async || self.connect().await.is_some()).await;
    }

    /// Waits until the loop of the daemon answers: the control socket is there before.
    pub(crate) async fn runs(&self) {
        let mut client = NodeClient::new(self.connect().await.expect("it runs"));
        client.get_node(GetNodeRequest {}).await.unwrap();
    }

    /// Waits until something holds.
    pub(crate) async fn eventually(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let wait = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(LONG, wait).await.is_ok(), "not after {LONG:?}: {what}");
    }

    pub(crate) async fn status(&self) -> NodeState {
        let mut client = NodeClient::new(self.connect().await.expect("it runs"));
        let node = client.get_node(GetNodeRequest {}).await.unwrap().into_inner();
        let inside = node.protocols.iter().filter_map(|protocol| protocol.nslp_id);
        let others = node.applications.iter().map(|application| application.nslp_id);
        let gist = node.protocols.iter().find(|protocol| protocol.protocol() == Protocol::Gist);
        NodeState { nslp_ids: inside.chain(others).collect(), sessions: gist.expect("it runs").sessions }
    }

    /// The counters of a metric family; with `label` only those that have this value of a label.
    pub(crate) async fn counter(&self, family: &str, label: Option<&str>) -> u64 {
        let samples = self.samples(family).await;
        let wanted =
            |sample: &&Sample| label.is_none_or(|label| sample.labels.iter().any(|one| one.value == label));
        let counts = samples.iter().filter(wanted).map(|sample| match sample.value {
            Some(Value::Count(count)) => count,
            _ => panic!("no counter"),
        });
        counts.sum()
    }

    /// The turns of the daemon's event loop.
    pub(crate) async fn turns(&self) -> u64 {
        let samples = self.samples("signalbox_event_loop_seconds").await;
        let count = samples.iter().find_map(|sample| match &sample.value {
            Some(Value::Histogram(turns)) => Some(turns.count),
            _ => None,
        });
        count.expect("a histogram")
    }

    async fn samples(&self, family: &str) -> Vec<Sample> {
        let mut client = NodeClient::new(self.connect().await.expect("it runs"));
        let request = ListMetricsRequest { name_prefixes: vec![family.to_owned()] };
        let mut responses = client.list_metrics(request).await.unwrap().into_inner();
        let families = responses.message().await.unwrap().expect("one response").families;
        families.into_iter().find(|one| one.name == family).expect("a family").samples
    }

    /// The last decisions of the daemon.
    pub(crate) async fn decisions(&self) -> Vec<Decision> {
        let mut client = NodeClient::new(self.connect().await.expect("it runs"));
        let mut pages = client.list_decisions(ListDecisionsRequest::default()).await.unwrap().into_inner();
        let mut all = Vec::new();
        while let Some(page) = pages.message().await.unwrap() {
            all.extend(page.decisions);
        }
        all
    }

    /// Ends the daemon as an operator does.
    pub(crate) fn stop(&mut self) {
        self.signal("TERM");
        assert!(self.daemon.wait().unwrap().success());
    }

    /// An application with this NSLPID, or why it is refused.
    pub(crate) async fn application(&self, nslp_id: u32, policy: v1::PeeringPolicy) -> Result<App, Status> {
        let mut client = GistClient::new(self.connect().await.expect("it runs"));
        let (requests, stream) = mpsc::channel(64);
        let register = v1::Register { nslp_id, router_alert: 0, peering_policy: policy.into() };
        let mut app = App { requests, indications: None };
        app.request(Request::Register(register)).await;
        app.indications = Some(client.application(ReceiverStream::new(stream)).await?.into_inner());
        assert!(matches!(app.indication().await, Indication::Registered(_)));
        Ok(app)
    }
}

/// Starts a daemon with the configuration of this directory.
fn run(namespace: &Namespace, directory: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_signalboxd"));
    let log = File::create(directory.join("log")).unwrap();
    let file = directory.join("config.toml");
    command.arg("--config").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    namespace.spawn(&mut command).unwrap()
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            eprintln!("log of the daemon at {}:\n{log}", self.address);
        }
        // It may have ended already; files that are left in the temporary directory do no harm.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
        if let Some(namespace) = self.namespace.take() {
            let _ = namespace.delete();
        }
    }
}

/// What a node answers about itself.
pub(crate) struct NodeState {
    /// The signaling applications, inside of the daemon first.
    pub(crate) nslp_ids: Vec<u32>,
    /// Sessions of GIST.
    pub(crate) sessions: u64,
}

/// An application: the client's end of its call.
pub(crate) struct App {
    requests: mpsc::Sender<v1::ApplicationRequest>,
    indications: Option<Streaming<v1::ApplicationResponse>>,
}

impl App {
    pub(crate) async fn request(&self, request: Request) {
        self.requests.send(v1::ApplicationRequest { request: Some(request) }).await.unwrap();
    }

    /// The next indication.
    pub(crate) async fn indication(&mut self) -> Indication {
        let next = self.indications.as_mut().expect("the call stands").message();
        let next = tokio::time::timeout(LONG, next).await.expect("an indication comes");
        next.unwrap().expect("the call goes on").indication.expect("a known indication")
    }

    /// What `find` gives for the first indication that it fits.
    pub(crate) async fn find<T>(&mut self, find: impl Fn(Indication) -> Option<T>) -> T {
        loop {
            if let Some(found) = find(self.indication().await) {
                return found;
            }
        }
    }

    pub(crate) async fn message(&mut self) -> v1::RecvMessage {
        self.find(|indication| match indication {
            Indication::RecvMessage(message) => Some(message),
            Indication::Registered(_)
            | Indication::RequestRefused(_)
            | Indication::MessageStatus(_)
            | Indication::NetworkNotification(_) => None,
        })
        .await
    }

    pub(crate) async fn message_status(&mut self, handle: u64) -> v1::message_status::Status {
        self.find(|indication| match indication {
            Indication::MessageStatus(status) if status.handle == handle => status.status,
            Indication::Registered(_)
            | Indication::RequestRefused(_)
            | Indication::RecvMessage(_)
            | Indication::MessageStatus(_)
            | Indication::NetworkNotification(_) => None,
        })
        .await
    }
}
