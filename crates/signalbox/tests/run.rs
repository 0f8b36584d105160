//! `signalbox run`, with a daemon of the test that grants what it is asked for.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use signalbox_api::v1;
use signalbox_api::v1::reservations_server::{Reservations, ReservationsServer};
use signalbox_api::v1::reserve_request::Request as Asked;
use signalbox_api::v1::reserve_response::Event;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// Upper limit of anything that is waited for: machines may be slow.
const LONG: Duration = Duration::from_secs(120);
/// The destination port of flows that the daemon refuses.
const REFUSED: u32 = 9999;

/// What the daemon is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Call {
    /// IP protocol, destination, and destination port.
    Opened(u32, String, u32),
    Released(u32),
    /// The call ended without a release.
    Dropped(u32),
}

#[derive(Debug)]
struct Daemon(mpsc::UnboundedSender<Call>);

type Answers<T> = std::pin::Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Reservations for Daemon {
    type ReserveStream = ReceiverStream<Result<v1::ReserveResponse, Status>>;
    type ListReservationsStream = Answers<v1::ListReservationsResponse>;

    async fn reserve(
        &self,
        request: Request<Streaming<v1::ReserveRequest>>,
    ) -> Result<Response<Self::ReserveStream>, Status> {
        let (calls, mut requests) = (self.0.clone(), request.into_inner());
        let (answers, stream) = mpsc::channel(8);
        tokio::spawn(async move {
            let Some(Asked::Open(open)) = requests.message().await.unwrap().and_then(|first| first.request)
            else {
                panic!("a call begins with a request");
            };
            let flow = open.flow.unwrap();
            let port = flow.destination_port.unwrap();
            let say = async |event| {
                let response = v1::ReserveResponse { time_unix_us: 1, event: Some(event) };
                let _ = answers.send(Ok(response)).await;
            };
            let _ =
                calls.send(Call::Opened(flow.ip_protocol.unwrap(), flow.destination.clone().unwrap(), port));
            say(Event::Started(v1::ReserveStarted { flow: Some(flow), ..v1::ReserveStarted::default() }))
                .await;
            if port == REFUSED {
                let cause = v1::Cause::Policy.into();
                say(Event::Failed(v1::Failure { cause, ..v1::Failure::default() })).await;
                return;
            }
            say(Event::Granted(v1::PathGrant { far_end: Some(true), ..v1::PathGrant::default() })).await;
            if let Ok(Some(v1::ReserveRequest { request: Some(Asked::Release(_)) })) =
                requests.message().await
            {
                let _ = calls.send(Call::Released(port));
                say(Event::Released(v1::ReserveReleased { confirmed: true })).await;
            } else {
                let _ = calls.send(Call::Dropped(port));
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn query(&self, _: Request<v1::QueryRequest>) -> Result<Response<v1::QueryResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn list_reservations(
        &self,
        _: Request<v1::ListReservationsRequest>,
    ) -> Result<Response<Self::ListReservationsStream>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn delete_reservation(
        &self,
        _: Request<v1::DeleteReservationRequest>,
    ) -> Result<Response<v1::DeleteReservationResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn test_policy(
        &self,
        _: Request<v1::TestPolicyRequest>,
    ) -> Result<Response<v1::TestPolicyResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

/// A running daemon of the test, with a directory.
struct Rig {
    directory: PathBuf,
    calls: mpsc::UnboundedReceiver<Call>,
}

impl Rig {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("signalbox-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let listener = UnixListener::bind(directory.join("sock")).unwrap();
        let (sender, calls) = mpsc::unbounded_channel();
        let server = ReservationsServer::new(Daemon(sender));
        tokio::spawn(
            tonic::transport::Server::builder()
                .serve_with_incoming(server, UnixListenerStream::new(listener)),
        );
        Self { directory, calls }
    }

    /// The command with these options, for a script of bash.
    fn command(&self, options: &[&str], script: &str) -> Command {
        // Who runs the tests may ignore signals, as a shell does for what it starts in the background.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_signalbox")]);
        command.args(["run", "--rate", "1mbit", "--to", "127.0.0.1", "--to", "::1"]).args(options);
        command.args(["--", "bash", "-c", script]).env("SIGNALBOX_SOCKET", self.directory.join("sock"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A terminal would send its signals to the group of the test, and the command leaves these to it.
        command.process_group(0);
        command
    }

    async fn next(&mut self) -> Call {
        tokio::time::timeout(LONG, self.calls.recv()).await.expect("a call comes").unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Waits for the end of a program without holding up the daemon.
async fn output(child: Child) -> Output {
    let group = format!("-{}", child.id());
    let mut ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    let Ok(output) = tokio::time::timeout(LONG, &mut ended).await else {
        // The test would wait for it all the same.
        Command::new("kill").args(["-s", "KILL", "--", &group]).status().unwrap();
        panic!("it does not end: {:?}", ended.await.unwrap());
    };
    output.unwrap()
}

fn text(octets: &[u8]) -> &str {
    std::str::from_utf8(octets).unwrap()
}

fn type_of(line: &str) -> String {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    line["type"].as_str().unwrap().to_owned()
}

/// Each flow is reserved for while its socket is open, of both protocols and IP versions, and the status is that of the program.
#[tokio::test]
async fn a_flow_has_a_reservation_while_it_lives() {
    let mut rig = Rig::new("lives");
    let (udp, tcp) = (UdpSocket::bind("[::1]:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let [udp, tcp] = [udp.local_addr().unwrap().port(), tcp.local_addr().unwrap().port()];
    let script = format!(
        "exec 3<>/dev/udp/::1/{udp}; read -r _; exec 3>&-; read -r _; exec 4<>/dev/tcp/127.0.0.1/{tcp}; read -r line; echo $line; exit 7"
    );
    let mut child = rig.command(&[], &script).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    assert_eq!(rig.next().await, Call::Opened(17, "::1".into(), udp.into()));
    writeln!(input).unwrap();
    assert_eq!(rig.next().await, Call::Released(udp.into()));
    writeln!(input).unwrap();
    assert_eq!(rig.next().await, Call::Opened(6, "127.0.0.1".into(), tcp.into()));
    writeln!(input, "through").unwrap();
    // The end of the program ends what stands.
    assert_eq!(rig.next().await, Call::Released(tcp.into()));
    let output = output(child).await;
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), "through\n"));
    let said = text(&output.stderr);
    assert!(said.contains(&format!("port {udp} proto 17: granted\n")), "{said}");
    assert!(said.ends_with(&format!("port {tcp} proto 6: released\n")), "{said}");
}

#[tokio::test]
async fn signals_go_to_the_program_and_its_end_by_one_shows_in_the_status() {
    let rig = Rig::new("signals");
    for (signal, script, status) in [
        ("TERM", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done", 9),
        ("INT", "trap 'exit 8' INT; echo ready; while :; do sleep 0.02; done", 8),
        ("USR1", "trap 'kill -KILL $$' USR1; echo ready; while :; do sleep 0.02; done", 128 + 9),
    ] {
        let mut child = rig.command(&["--quiet"], script).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let ready = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            out.read_line(&mut line).map(|_| line)
        });
        assert_eq!(ready.await.unwrap().unwrap(), "ready\n");
        Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        let output = output(child).await;
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(status), ""), "{signal}");
    }
}

/// Further flows have no reservation, and what a rule refuses is not asked for again; the program goes on.
#[tokio::test]
async fn flows_are_bounded_and_a_refusal_does_not_end_the_program() {
    let mut rig = Rig::new("bounded");
    let events = rig.directory.join("events");
    let file = events.to_str().unwrap();
    let script = "exec 3<>/dev/udp/127.0.0.1/5004 4<>/dev/udp/127.0.0.1/5005; read -r _";
    let mut child = rig.command(&["--flows", "1", "--json", "--events", file], script).spawn().unwrap();
    let Call::Opened(17, _, port) = rig.next().await else { panic!("a flow") };
    let all_said = async {
        while !fs::read_to_string(&events).unwrap().contains("unreserved") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, all_said).await.expect("the other flow is named");
    drop(child.stdin.take());
    assert_eq!(rig.next().await, Call::Released(port));
    let bounded = output(child).await;
    assert_eq!((bounded.status.code(), text(&bounded.stderr)), (Some(1), ""));
    let said = fs::read_to_string(&events).unwrap();
    let kinds: Vec<String> = said.lines().map(type_of).collect();
    assert_eq!(kinds.first().map(String::as_str), Some("running"));
    assert_eq!(kinds[kinds.len() - 2..], ["released", "ended"]);
    let script = format!("exec 3<>/dev/udp/127.0.0.1/{REFUSED}; read -r _; true");
    let mut child = rig.command(&["--json"], &script).spawn().unwrap();
    assert_eq!(rig.next().await, Call::Opened(17, "127.0.0.1".into(), REFUSED));
    drop(child.stdin.take());
    let refused = output(child).await;
    assert_eq!(refused.status.code(), Some(0));
    let kinds: Vec<String> = text(&refused.stderr).lines().map(type_of).collect();
    assert_eq!(kinds, ["running", "started", "failed", "ended"]);
    assert!(rig.calls.try_recv().is_err(), "it asked again");
}

/// A socket without a peer is reserved for from its port to what the user names; without that the command says what is missing.
#[tokio::test]
async fn a_socket_without_a_peer_needs_a_name() {
    let mut rig = Rig::new("unconnected");
    let script = "exec python3 -c 'import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((\"0.0.0.0\", 0))
sys.stdin.read()'";
    let mut child = rig.command(&["--dport", "5004"], script).spawn().unwrap();
    assert_eq!(rig.next().await, Call::Opened(17, "127.0.0.1".into(), 5004));
    drop(child.stdin.take());
    assert_eq!(rig.next().await, Call::Released(5004));
    assert!(output(child).await.status.success());
    let mut child = rig.command(&[], script).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let said = tokio::task::spawn_blocking(move || {
        let mut all = String::new();
        while !all.contains("is not connected") && said.read_line(&mut all).unwrap() > 0 {}
        all
    });
    let said = tokio::time::timeout(LONG, said).await.expect("it says so").unwrap();
    assert!(said.contains("name the host by --to and the port by --dport"), "{said}");
    drop(child.stdin.take());
    assert!(output(child).await.status.success());
    assert!(rig.calls.try_recv().is_err(), "a reservation to somewhere");
}

/// Without a daemon, or with options that contradict each other, the program does not start. A missing program has the status of a shell.
#[tokio::test]
async fn what_is_wrong_is_said_before_the_program_starts() {
    let rig = Rig::new("wrong");
    let mark = rig.directory.join("started");
    let script = format!("touch {}", mark.display());
    for (options, status, says) in [
        (&["--socket", "/none/such"][..], 3, "is signalboxd running?"),
        (&["--delay", "20ms"], 2, "--service guaranteed"),
        (&["--to", "no such host"], 3, "cannot resolve the host name"),
        (&["--dport", "0"], 2, "use a port"),
        (&["--events", "/none/such"], 3, "cannot write /none/such"),
    ] {
        let wrong = output(rig.command(options, &script).spawn().unwrap()).await;
        assert_eq!(wrong.status.code(), Some(status), "{options:?}: {wrong:?}");
        assert!(text(&wrong.stderr).contains(says), "{wrong:?}");
    }
    assert!(!mark.exists());
    let mut missing = Command::new(env!("CARGO_BIN_EXE_signalbox"));
    missing
        .args(["run", "--rate", "1mbit", "--", "/none/such"])
        .env("SIGNALBOX_SOCKET", rig.directory.join("sock"));
    let missing = output(missing.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).await;
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
    assert!(text(&missing.stderr).contains("cannot start /none/such"), "{missing:?}");
}
