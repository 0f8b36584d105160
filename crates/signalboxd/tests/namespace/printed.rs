//! The configurations that the documents print, as printed, on a router between an office, a stranger and a receiver.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use signalbox_api::rsvp::v1::rsvp_client::RsvpClient;
use signalbox_api::rsvp::v1::session_request::Request;
use signalbox_api::rsvp::v1::session_response::Upcall;
use signalbox_api::rsvp::v1::{
    FlowDescriptor, Flowspec, Register, Reserve, SessionRequest, SessionResponse, Style,
};
use signalbox_api::v1::pinholes_client::PinholesClient;
use signalbox_api::v1::reservations_client::ReservationsClient;
use signalbox_api::v1::{ListPinholesRequest, ListReservationsRequest, Reservation, TokenBucket};
use signalbox_core::node::Prefix;
use signalbox_linux::netns::Namespace;
use signalbox_linux::topology;
use tokio_stream::StreamExt as _;
use tonic::{Code, Response, Status, Streaming};

use crate::firewall::{put, station};
use crate::matrix::messages::{self, Composed, Form, Kind, QOS, Rsvp, query};
use crate::net::{Host, LONG};
use crate::user_requests::{Call, UserRequest};

const OFFICE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const STRANGER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
const UDP: u32 = 17;
/// The port of a reservation by RSVP, for which the receiver waits: that of the first composed message.
const RSVP_PORT: u16 = 20_001;
/// How long nothing has to be granted. A request that is granted takes some milliseconds.
const QUIET: Duration = Duration::from_secs(1);
/// What the router runs where the document does not say it.
const PROTOCOLS: &str = "[node]\nprotocols = [\"gist\", \"ping\", \"qos\", \"rsvp\", \"boomerang\"]\n";
/// The other nodes let pass what they take part in.
const HOSTS: &str = "node.protocols = [\"gist\", \"ping\", \"qos\", \"natfw\", \"rsvp\", \"boomerang\", \"casp\"]\n\
    policy.default = \"allow\"\nenforcement.mode = \"off\"\ninterfaces.\"*\".capacity = \"100mbit\"\n\
    [casp]\nclients = [\"qos\", \"natfw\"]\npeers = [\"0.0.0.0/0\"]\n";
/// How a stranger asks with the address of another host. RSVP asks for no flow of another host.
const ATTACKS: [UserRequest; 5] = [
    UserRequest::Qos,
    UserRequest::Boomerang,
    UserRequest::Casp,
    UserRequest::Create,
    UserRequest::CaspCreate,
];
/// What he sends with that source.
const FORGED: [Kind; 3] = [Kind::Rsvp(Rsvp::Path), Kind::Echo, query(QOS)];

/// A complete configuration.
struct Printed {
    /// The document, and which one of it.
    name: String,
    text: String,
}

/// All of them in the documents, and the file to begin with, also with the lines that are commented out.
fn all() -> Vec<Printed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> =
        pages.filter(|path| path.extension().is_some_and(|one| one == "md")).collect();
    pages.push(root.join("README.md"));
    pages.sort();
    let mut found = Vec::new();
    let mut add = |path: &Path, number: usize, text: String| {
        let name = format!("{} {}", path.file_name().unwrap().display(), number + 1);
        found.push(Printed { name, text });
    };
    for path in pages {
        let text = fs::read_to_string(&path).unwrap();
        let blocks = text.split("```toml").skip(1).filter_map(|rest| rest.split("```").next());
        let complete = blocks.filter(|block| block.trim_start().starts_with("version = 1"));
        complete.enumerate().for_each(|(number, block)| add(&path, number, block.to_owned()));
    }
    let path = root.join("etc/signalboxd.toml");
    let text = fs::read_to_string(&path).unwrap();
    let lines =
        text.lines().map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line));
    let whole = lines.collect::<Vec<_>>().join("\n");
    add(&path, 0, text.clone());
    add(&path, 1, whole);
    found
}

impl Printed {
    /// Whether the office may reserve by it.
    fn has_office(&self) -> bool {
        let lines: Vec<_> = self.text.lines().map(str::trim).collect();
        lines.contains(&"name = \"office\"") && lines.contains(&"max_rate = \"10mbit\"")
    }

    fn runs(&self, protocol: &str) -> bool {
        let mut lines = self.text.lines().filter_map(|line| line.split('#').next());
        let named = lines.find(|line| line.contains("protocols ="));
        named.is_none_or(|named| named.contains(&format!("\"{protocol}\"")))
    }

    /// The whole configuration of a router whose control socket is in this directory.
    fn whole(&self, directory: &Path) -> String {
        let protocols = if self.text.contains("protocols") { "" } else { PROTOCOLS };
        format!("{}\n[control]\nsocket = \"{}/sock\"\n{protocols}", self.text, directory.display())
    }

    /// Whose address a stranger writes: that of the office, and of a host in each network that a rule names.
    fn claims(&self) -> Vec<IpAddr> {
        let named =
            self.text.lines().filter_map(|line| line.trim().strip_prefix("from = [\"")?.split('/').next());
        let hosts = named.map(|net| Ipv4Addr::from_bits(net.parse::<Ipv4Addr>().unwrap().to_bits() | 7));
        [OFFICE].into_iter().chain(hosts).map(IpAddr::V4).collect()
    }
}

/// The answer of a router that runs a protocol which can give one.
fn running<T>(answer: Result<Response<Streaming<T>>, Status>) -> Option<Streaming<T>> {
    match answer {
        Ok(answer) => Some(answer.into_inner()),
        Err(status) => {
            assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
            None
        }
    }
}

/// The office and a stranger at links of a router, and a receiver behind it.
struct Net {
    office: Host,
    stranger: Host,
    receiver: Host,
    router: Host,
    /// The link-layer addresses of the stranger and of the router towards him.
    stations: [Vec<u8>; 2],
}

impl Net {
    /// All nodes, the router with this configuration.
    async fn start(first: &Printed) -> Self {
        let name = |node: &str| format!("sbxd-{}-printed-{node}", std::process::id());
        let nodes = ["office", "stranger", "receiver", "router"];
        let [office, stranger, receiver, router] =
            nodes.map(|node| Namespace::create(&name(node)).expect("namespaces need root"));
        topology::set_forwarding(&router, true).unwrap();
        let anywhere = Prefix::all_like(Ipv4Addr::UNSPECIFIED.into());
        for (host, address, interface) in
            [(&office, OFFICE, "eth0"), (&receiver, RECEIVER, "eth1"), (&stranger, STRANGER, "eth2")]
        {
            let gateway = Ipv4Addr::from_bits(address.to_bits() - 1).into();
            topology::create_veth(host, "veth", &router, interface).unwrap();
            topology::add_address(host, "veth", address.into(), 24).unwrap();
            topology::add_address(&router, interface, gateway, 24).unwrap();
            topology::set_up(host, "lo", true).unwrap();
            topology::set_up(host, "veth", true).unwrap();
            topology::set_up(&router, interface, true).unwrap();
            topology::add_route(host, anywhere, Some(gateway), None).unwrap();
        }
        topology::create_veth(&router, "eth3", &receiver, "spare").unwrap();
        for (space, interface) in [(&router, "lo"), (&router, "eth3"), (&receiver, "spare")] {
            topology::set_up(space, interface, true).unwrap();
        }
        for space in [&office, &stranger, &receiver, &router] {
            topology::settle(space, LONG).unwrap();
        }
        let stations = [station(&stranger, "veth"), station(&router, "eth2")];
        let host = |space, address: Ipv4Addr, node: &str| {
            Host::start(space, address.into(), std::env::temp_dir().join(name(node)), HOSTS)
        };
        let [office, stranger, receiver] = [
            host(office, OFFICE, "office"),
            host(stranger, STRANGER, "stranger"),
            host(receiver, RECEIVER, "receiver"),
        ];
        let directory = std::env::temp_dir().join(name("router"));
        let config = first.whole(&directory);
        let router = Host::start_with(router, Ipv4Addr::new(203, 0, 113, 1).into(), directory, &config);
        for host in [&office, &stranger, &receiver] {
            host.ready().await;
        }
        let net = Self { office, stranger, receiver, router, stations };
        net.started(first).await;
        net
    }

    /// Gives the router another configuration.
    async fn restart(&mut self, printed: &Printed) {
        self.router.stop();
        let directory = &self.router.directory;
        fs::write(directory.join("config.toml"), printed.whole(directory)).unwrap();
        self.router.start_again();
        self.started(printed).await;
    }

    async fn started(&self, printed: &Printed) {
        // Its control socket is there before it intercepts.
        let log = || fs::read_to_string(self.router.directory.join("log")).unwrap_or_default();
        let what = format!("the router runs with {}", printed.name);
        self.router.eventually(&what, async || log().contains(" ready node=")).await;
    }

    /// Has the receiver reserve for whoever sends to it by RSVP.
    async fn receive(&self) -> Streaming<SessionResponse> {
        let session = Register {
            destination: RECEIVER.to_string(),
            ip_protocol: UDP,
            destination_port: Some(RSVP_PORT.into()),
            ipsec: false,
        };
        let traffic = TokenBucket { rate_octets_per_s: 8000, ..TokenBucket::default() };
        let flowspec = Flowspec { traffic: Some(traffic), ..Flowspec::default() };
        let all = FlowDescriptor { flowspec: Some(flowspec), senders: Vec::new() };
        let reserve = Reserve { style: Style::WildcardFilter.into(), flows: vec![all], ..Reserve::default() };
        let requests = [Request::Register(session), Request::Reserve(reserve)];
        let requests = requests.map(|request| SessionRequest { request: Some(request) });
        let requests = tokio_stream::iter(requests).chain(tokio_stream::pending());
        let mut client = RsvpClient::new(self.receiver.connect().await.expect("it runs"));
        let mut upcalls = client.session(requests).await.unwrap().into_inner();
        let first = upcalls.message().await.unwrap().and_then(|response| response.upcall);
        assert!(matches!(first, Some(Upcall::Registered(_))), "{first:?}");
        upcalls
    }

    /// What the router reserves.
    async fn reserved(&self) -> Vec<Reservation> {
        let mut client = ReservationsClient::new(self.router.connect().await.expect("it runs"));
        let request = ListReservationsRequest::default();
        let Some(mut answer) = running(client.list_reservations(request).await) else { return Vec::new() };
        answer.message().await.unwrap().map(|rows| rows.reservations).unwrap_or_default()
    }

    /// How many passages the router opened.
    async fn opened(&self) -> usize {
        let mut client = PinholesClient::new(self.router.connect().await.expect("it runs"));
        let request = ListPinholesRequest::default();
        let Some(mut answer) = running(client.list_pinholes(request).await) else { return 0 };
        let rows = answer.message().await.unwrap().map(|rows| rows.pinholes);
        rows.unwrap_or_default().iter().filter(|row| row.rule.is_some()).count()
    }

    /// A host asks for a flow from an address.
    async fn ask(&self, host: &Host, request: UserRequest, source: IpAddr) -> Call {
        let node = host.connect().await.expect("it runs");
        let port = if request == UserRequest::Rsvp { RSVP_PORT } else { 5000 + request as u16 };
        let call = request.begin(&node, [source, RECEIVER.into()], port).await;
        call.unwrap_or_else(|status| panic!("{request:?}: {status}"))
    }

    /// Whatever a stranger asks for in the name of another host, the router gives nothing for it.
    async fn attack(&self, printed: &Printed) {
        let mut calls = Vec::new();
        for source in printed.claims() {
            for request in ATTACKS {
                let mut call = self.ask(&self.stranger, request, source).await;
                // The request comes to the router, which answers it.
                let answered = request == UserRequest::Qos && printed.runs("qos")
                    || request == UserRequest::Boomerang && printed.runs("boomerang");
                assert!(!(answered && call.granted().await), "{}: {request:?} from {source}", printed.name);
                calls.push(call);
            }
            for kind in FORGED {
                let ends = [source, RECEIVER.into()];
                let Composed { protocol, octets, .. } = messages::compose(ends, kind, 1, false);
                let form = Form { alert: Some(messages::alert(kind)), fragments: false };
                for packet in messages::packets(ends, protocol, form, &octets, 1) {
                    put(self.stranger.namespace(), self.stations.each_ref().map(Vec::as_slice), &packet);
                }
            }
        }
        let begin = Instant::now();
        while begin.elapsed() < QUIET {
            let (reserved, opened) = (self.reserved().await, self.opened().await);
            assert!(reserved.is_empty() && opened == 0, "{}: {reserved:#?}, {opened} passages", printed.name);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The office reserves for its own address. By RSVP the receiver asks, which is a neighbor that the router trusts.
    async fn reserve(&self, printed: &Printed) {
        for (request, neighbor, proof) in
            [(UserRequest::Qos, OFFICE, "handshake"), (UserRequest::Rsvp, RECEIVER, "link")]
        {
            if request == UserRequest::Rsvp && !printed.runs("rsvp") {
                continue;
            }
            let mut call = self.ask(&self.office, request, OFFICE.into()).await;
            assert!(call.granted().await, "{}: the office by {request:?}", printed.name);
            let reserved = self.reserved().await;
            let [one] = reserved.as_slice() else { panic!("{}: {reserved:#?}", printed.name) };
            let asker = (one.neighbor.clone().unwrap_or_default(), one.proof.clone().unwrap_or_default());
            assert_eq!(asker, (neighbor.to_string(), proof.to_owned()), "{}", printed.name);
            assert!(
                one.enforced
                    && (request != UserRequest::Qos
                        || one.rule.as_ref().is_some_and(|rule| rule.contains("office"))),
                "{}: {one:#?}",
                printed.name
            );
            drop(call);
            self.router.eventually("it is released", async || self.reserved().await.is_empty()).await;
        }
    }
}

/// (T31) A stranger who writes the address of a host that a printed configuration is for gets nothing from a router with this
/// configuration, by any protocol; and a host of the office reserves where the document says so.
#[tokio::test]
async fn a_stranger_gets_nothing_from_a_router_with_a_printed_configuration() {
    let all = all();
    for file in ["README.md 1", "signalboxd.toml 2"] {
        assert!(all.iter().any(|one| one.name == file && one.has_office()), "{file} is for an office");
    }
    let mut net = Net::start(&all[0]).await;
    let _upcalls = net.receive().await;
    for (number, printed) in all.iter().enumerate() {
        if number > 0 {
            net.restart(printed).await;
        }
        net.attack(printed).await;
        if printed.has_office() {
            net.reserve(printed).await;
        }
    }
}
