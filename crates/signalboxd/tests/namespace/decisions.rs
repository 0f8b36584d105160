//! What becomes of requests, in the audit file of a router: SIGHUP opens it again, a full disk costs lines and nothing else, and a stop
//! ends what stands.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use signalbox_api::v1;
use signalbox_api::v1::reservations_client::ReservationsClient;
use signalbox_api::v1::reserve_request::Request;
use signalbox_api::v1::reserve_response::Event;
use tonic::Streaming;

use crate::net::{Host, row};

const SETTINGS: &str = "node.protocols = [\"gist\", \"qos\"]\npolicy.default = \"allow\"\n\
    enforcement.mode = \"off\"\ninterfaces.\"*\".capacity = \"10mbit\"\nqos.retry.first = \"100ms\"\n";

/// Three nodes; the router writes an audit file in a directory of its own.
struct Audited {
    hosts: [Host; 3],
    directory: PathBuf,
    file: PathBuf,
    /// A reservation ends with its call.
    calls: Vec<Streaming<v1::ReserveResponse>>,
}

impl Audited {
    /// `prepare` gets the directory before the file is opened.
    async fn start(test: &str, prepare: impl FnOnce(&Path)) -> Self {
        let mut hosts = row(test, SETTINGS).await;
        let router = &mut hosts[1];
        let directory = router.directory.join("audit");
        fs::create_dir(&directory).unwrap();
        prepare(&directory);
        // The user that the daemon becomes opens the file again.
        fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        let file = directory.join("audit.jsonl");
        let config = router.directory.join("config.toml");
        let former = fs::read_to_string(&config).unwrap();
        fs::write(&config, format!("{former}audit.file = \"{}\"\n", file.display())).unwrap();
        router.stop();
        router.start_again();
        let net = Self { hosts, directory, file, calls: Vec::new() };
        // Its control socket is there before it intercepts.
        net.hosts[1].eventually("the daemon is ready", async || net.log().contains(" ready node=")).await;
        net
    }

    /// Reserves 64 kbit/s from the first host to the last one.
    async fn reserve(&mut self, port: u32) {
        let open = v1::ReserveOpen {
            protocol: v1::Protocol::Qos.into(),
            flow: Some(v1::FlowSpec {
                destination: Some(self.hosts[2].address.to_string()),
                ip_protocol: Some(17),
                destination_port: Some(port),
                ..Default::default()
            }),
            traffic: Some(v1::TokenBucket { rate_octets_per_s: 8000, ..Default::default() }),
            ..Default::default()
        };
        let request = v1::ReserveRequest { request: Some(Request::Open(open)) };
        let mut client = ReservationsClient::new(self.hosts[0].connect().await.expect("it runs"));
        let mut events = client.reserve(tokio_stream::iter([request])).await.unwrap().into_inner();
        loop {
            match events.message().await.unwrap().expect("an event").event {
                Some(Event::Granted(_)) => break,
                Some(Event::Started(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        self.calls.push(events);
    }

    fn log(&self) -> String {
        fs::read_to_string(self.hosts[1].directory.join("log")).unwrap()
    }
}

/// Outcome and destination port of the whole lines of a file, as far as they are there.
fn lines(file: &Path) -> Vec<(String, u64)> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let rows = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    rows.map(|row| {
        let port = row["flows"][0]["destination_port"].as_u64().unwrap();
        (row["outcome"].as_str().unwrap().to_owned(), port)
    })
    .collect()
}

fn granted(port: u64) -> (String, u64) {
    ("granted".to_owned(), port)
}

#[tokio::test]
async fn a_file_that_was_moved_is_opened_again_and_no_line_is_lost() {
    let mut net = Audited::start("reopen", |_| {}).await;
    let (file, moved) = (net.file.clone(), net.directory.join("audit.jsonl.1"));
    net.reserve(5000).await;
    net.hosts[1].eventually("the first line", async || lines(&file) == [granted(5000)]).await;
    fs::rename(&file, &moved).unwrap();
    net.reserve(5001).await;
    net.hosts[1].eventually("the file has another name", async || lines(&moved).len() == 2).await;
    assert!(!file.exists());
    assert!(net.hosts[1].signal("HUP"));
    // The signal is handled beside the requests.
    let mut last = 5001;
    while lines(&file).is_empty() {
        last += 1;
        net.reserve(last).await;
        let (file, moved) = (file.clone(), moved.clone());
        let all = u64::from(last) - 4999;
        let written = async || (lines(&moved).len() + lines(&file).len()) as u64 == all;
        net.hosts[1].eventually("a line of each", written).await;
    }
    let all: Vec<_> = lines(&moved).into_iter().chain(lines(&file)).collect();
    assert_eq!(all, (5000..=u64::from(last)).map(granted).collect::<Vec<_>>());
    // A thread of its own writes the log.
    net.hosts[1].eventually("the log has it", async || net.log().contains("audit file opened again")).await;
}

/// A file system of few pages.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path) -> Self {
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(at).status();
        assert!(done.unwrap().success());
        Self(at.to_owned())
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_costs_lines_and_nothing_else() {
    const LOST: &str = "signalbox_daemon_audit_lines_lost";
    let mut small = None;
    let mut net = Audited::start("full", |directory| small = Some(Small::mount(directory))).await;
    let file = net.file.clone();
    net.reserve(5000).await;
    net.hosts[1].eventually("the first line", async || lines(&file) == [granted(5000)]).await;
    let filler = net.directory.join("filler");
    let mut full = File::create(&filler).unwrap();
    while full.write_all(&[0; 512]).is_ok() {}
    // The last page of the audit file has room for some lines. Reservations are granted all the time.
    let mut port = 5000;
    while net.hosts[1].counter(LOST, None).await < 2 {
        port += 1;
        net.reserve(port).await;
    }
    drop(full);
    fs::remove_file(&filler).unwrap();
    port += 1;
    net.reserve(port).await;
    let last = granted(port.into());
    net.hosts[1].eventually("a line after the trouble", async || lines(&file).last() == Some(&last)).await;
    let again = async || net.log().contains("the audit file can be written again");
    net.hosts[1].eventually("the log has it", again).await;
    let (log, lost) = (net.log(), net.hosts[1].counter(LOST, None).await);
    let count = |text: &str| log.matches(text).count();
    assert_eq!(count("the audit file cannot be written: lines are lost"), 1, "{log}");
    assert_eq!(count("the audit file can be written again"), 1, "{log}");
    assert!(log.contains(&format!("missing={lost}")), "{log}");
    assert_eq!(lines(&file).len() as u64 + lost, u64::from(port) - 4999, "each is written or counted");
    drop(net);
    drop(small);
}

/// The end of the daemon is the end of what stands, with its reason.
#[tokio::test]
async fn a_stop_ends_what_stands() {
    let mut net = Audited::start("stop", |_| {}).await;
    for port in [5000, 5001] {
        net.reserve(port).await;
    }
    net.hosts[1].stop();
    let mut all = lines(&net.file);
    all.sort();
    let ended = |port| ("ended".to_owned(), port);
    assert_eq!(all, [ended(5000), ended(5001), granted(5000), granted(5001)]);
    let text = fs::read_to_string(&net.file).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["reason"], "the daemon stopped");
    assert!(last["lasted_us"].as_u64().is_some() || last["lasted_us"].as_str().is_some(), "{last}");
}

/// Who asked with a `request_id` finds by it what became of the request, also how it ended.
#[tokio::test]
async fn decisions_have_the_request_id_of_the_call_that_asked() {
    let settings = "node.protocols = [\"gist\", \"qos\", \"boomerang\", \"casp\"]\npolicy.default = \"allow\"\n\
        enforcement.mode = \"off\"\ninterfaces.\"*\".capacity = \"10mbit\"\n\
        casp.clients = [\"qos\"]\ncasp.peers = [\"10.0.0.0/8\"]\n";
    let hosts = row("asked", settings).await;
    let protocols = [v1::Protocol::Qos, v1::Protocol::Boomerang, v1::Protocol::Casp];
    for (n, protocol) in (1..).zip(protocols) {
        let open = v1::ReserveOpen {
            protocol: protocol.into(),
            flow: Some(v1::FlowSpec {
                destination: Some(hosts[2].address.to_string()),
                ip_protocol: Some(17),
                destination_port: Some(5000),
                ..Default::default()
            }),
            traffic: Some(v1::TokenBucket { rate_octets_per_s: 8000, ..Default::default() }),
            request_id: Some(vec![n; 16]),
            ..Default::default()
        };
        let mut client = ReservationsClient::new(hosts[0].connect().await.expect("it runs"));
        let (requests, open) = (tokio::sync::mpsc::channel(2), Request::Open(open));
        let send = async |request| {
            requests.0.send(v1::ReserveRequest { request: Some(request) }).await.unwrap();
        };
        send(open).await;
        let stream = tokio_stream::wrappers::ReceiverStream::new(requests.1);
        let mut events = client.reserve(stream).await.unwrap().into_inner();
        loop {
            match events.message().await.unwrap().expect("an event").event {
                Some(Event::Granted(_)) => send(Request::Release(v1::ReserveRelease {})).await,
                Some(Event::Released(_)) => break,
                Some(_) => {}
                None => panic!("an event"),
            }
        }
    }
    for (n, protocol) in (1..).zip(protocols) {
        let outcomes = async |host: &Host| {
            let all = host.decisions().await.into_iter().filter(|one| one.protocol() == protocol);
            all.map(|one| (one.outcome(), one.request_id)).collect::<Vec<_>>()
        };
        let expected = |id: Option<u8>| {
            [v1::Outcome::Granted, v1::Outcome::Ended].map(|outcome| (outcome, id.map(|n| vec![n; 16])))
        };
        assert_eq!(outcomes(&hosts[0]).await, expected(Some(n)), "{protocol:?}");
        assert_eq!(outcomes(&hosts[1]).await, expected(None), "{protocol:?}: it does not leave the host");
    }
}
