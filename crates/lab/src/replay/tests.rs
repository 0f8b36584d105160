use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use signalbox_core::Time;
use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_dissect::hex;
use signalbox_node::ping::{self, PingRequest};
use signalbox_node::rsvp::neighbor::{Algorithm, KeyUse};
use signalbox_node::rsvp::{IntegrityKey, Session, SessionKind};
use signalbox_node::{Event, GistConfig, boomerang, casp, gist, gist_nat, rsvp};
use signalbox_record::Writer;
use signalbox_sim::{Boot, Family, Impairment, LinkConfig, Sim, topology};

use super::*;

/// A node whose inputs are written to a file, and whose datagrams are kept.
struct Taped {
    node: Node,
    tape: Writer<File>,
    now: Time,
    sent: Vec<Value>,
}

impl Taped {
    fn new(boot: Boot, file: &Path, config: Config) -> Self {
        let config = Config { wall_clock_us: 1_790_000_000_000_000, ..config };
        let tape = Writer::new(File::create(file).unwrap(), &config, &boot.seed, 1 << 24).unwrap();
        Self { node: Node::new(config, boot.seed).unwrap(), tape, now: Time::ZERO, sent: Vec::new() }
    }
}

impl NodeEngine for Taped {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        assert!(self.tape.record(now, &input).unwrap());
        self.now = now;
        self.node.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        let output = self.node.poll()?;
        if let Output::Transmit(t) = &output {
            let t = json!([self.now.as_micros(), t.src, t.dst, t.ttl, hex(t.options), hex(t.payload)]);
            self.sent.push(t);
        }
        Some(output)
    }

    fn entries(&self) -> Vec<signalbox_core::EntryRequest> {
        self.node.entries()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.node.next_deadline()
    }
}

/// The recordings of three nodes in a row, one that pings over bad links, one that relays, one that answers;
/// with each, what the node sent.
fn recordings(name: &str) -> Vec<Taping> {
    let engine = gist::Config { inactivity: Duration::from_secs(5), ..gist::Config::default() };
    let gist = Some(GistConfig { engine, ..GistConfig::default() });
    recordings_of(
        name,
        &Config { gist, ..Config::default() },
        &[(0, |dst| {
            let request = PingRequest { count: Some(5), ..PingRequest::to(dst) };
            Command::Ping { id: 9, command: ping::Command::Start(request) }
        })],
    )
}

/// What a user asks for, with the address of the last node.
type Asked = fn(IpAddr) -> Command;

/// What was recorded at a node, and what the node sent.
type Taping = (Vec<u8>, Vec<Value>);

/// The recordings of three nodes in a row. The first one takes the commands at their seconds, which get the address of the
/// third one.
fn recordings_of(name: &str, config: &Config, commands: &[(u64, Asked)]) -> Vec<Taping> {
    let config = config.clone();
    recordings_with(name, move |_| config.clone(), commands)
}

/// The same, with a configuration for each node.
fn recordings_with(
    name: &str,
    config: impl Fn(u32) -> Config + Clone + 'static,
    commands: &[(u64, Asked)],
) -> Vec<Taping> {
    let directory = std::env::temp_dir().join(format!("signalbox-replay-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let mut sim = Sim::new(4);
    let at = directory.clone();
    let nodes = sim.add_engines(3, move |boot| {
        Taped::new(boot, &at.join(format!("{}.jsonl", boot.node)), config(boot.node.0))
    });
    let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
    sim.set_impairment(links[0], Impairment::lossy(0.3));
    let mut left = 20;
    for (pause, command) in commands {
        sim.run_for(Duration::from_secs(*pause));
        left -= pause;
        let command = command(sim.address(nodes[2], Family::V4));
        sim.command(nodes[0], command);
    }
    sim.run_for(Duration::from_secs(left));
    let taped = nodes.iter().map(|node| {
        let recording = fs::read(directory.join(format!("{node}.jsonl"))).unwrap();
        (recording, sim.engine(*node).unwrap().sent.clone())
    });
    let taped = taped.collect();
    fs::remove_dir_all(&directory).unwrap();
    taped
}

fn replayed(recording: &[u8], json: bool) -> (String, Option<ReadError>) {
    let mut out = Vec::new();
    let fault = replay(recording, &[], json, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), fault)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_type<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

#[test]
fn a_replayed_node_sends_what_the_recorded_one_sent() {
    for (recording, sent) in recordings("same") {
        sends_the_same(&recording, &sent);
    }
}

/// Boomerang: a reservation over bad links, refreshed and released. The node in the middle carries its messages and
/// asks its kernel for queues, the third one answers.
#[test]
fn a_replayed_boomerang_node_sends_what_the_recorded_one_sent() {
    let mut resources = signalbox_node::resources::Config::of_link("*", "10mbit".parse().unwrap());
    resources.default = signalbox_node::resources::config::Action::Allow;
    let engine = boomerang::Config { refresh: 2, ..boomerang::Config::default() };
    let config = Config { boomerang: Some(engine), resources, ..Config::empty() };
    let open: Asked = |far_end| {
        let rates = vec![boomerang::Rates { forward: 64_000, reverse: 32_000 }];
        let request = boomerang::Request {
            far_end,
            src: None,
            dst: None,
            protocol: Some(17),
            src_port: None,
            dst_port: Some(5004),
            dscp: 46,
            rates,
            intserv: None,
            refresh: None,
            user: None,
            confirm_release: false,
            name_nodes: false,
        };
        Command::Boomerang { id: 9, command: boomerang::Command::Open(request) }
    };
    let close: Asked = |_| Command::Boomerang { id: 9, command: boomerang::Command::Close };
    let recordings = recordings_of("boomerang", &config, &[(0, open), (12, close)]);
    for (recording, sent) in &recordings {
        sends_the_same(recording, sent);
    }
    let text = replayed(&recordings[0].0, false).0;
    assert!(text.contains("Boomerang session 9: Reserved"), "{text}");
}

/// CASP: pings without state over bad links, in the daemon's own SCTP, whose packets are compared. The node in the middle appends itself and
/// removes itself again.
#[test]
fn a_replayed_casp_node_sends_what_the_recorded_one_sent() {
    let mut config = casp::Config { sctp: true, ..casp::Config::default() };
    config.engine.transport = casp::Transport::Sctp;
    let config = Config { casp: Some(config), ..Config::empty() };
    let ping: Asked = |dst| {
        let timeout = Duration::from_secs(10);
        let request =
            casp::PingRequest { count: Some(5), timeout, record_route: true, ..casp::PingRequest::to(dst) };
        Command::Casp { id: 9, command: casp::Command::Ping(request) }
    };
    let recordings = recordings_of("casp", &config, &[(0, ping)]);
    for (recording, sent) in &recordings {
        sends_the_same(recording, sent);
    }
    let text = replayed(&recordings[0].0, false).0;
    assert!(text.contains("CASP 9: Ping(Reply"), "{text}");
}

/// A GIST-aware NAT gateway between two hosts. What its kernel answers about bindings is in the recording, and so are its keys: it adds
/// and accepts the same entries of NAT-Traversal objects.
#[test]
fn a_replayed_gateway_sends_what_the_recorded_one_sent() {
    let config = |node| {
        let side = |name: &str| vec![name.to_owned()];
        let gateway =
            gist_nat::Config { inside: side("eth0"), outside: side("eth1"), ..gist_nat::Config::default() };
        match node {
            1 => Config { gist_nat: Some(gateway), ..Config::empty() },
            _ => Config::default(),
        }
    };
    let ping: Asked = |dst| {
        let (protocol, src_port, dst_port) = (Some(17), Some(4000), Some(5000));
        let request = PingRequest { count: Some(5), protocol, src_port, dst_port, ..PingRequest::to(dst) };
        Command::Ping { id: 9, command: ping::Command::Start(request) }
    };
    let recordings = recordings_with("gateway", config, &[(0, ping)]);
    for (recording, sent) in &recordings {
        sends_the_same(recording, sent);
    }
    let text = replayed(&recordings[1].0, false).0;
    assert!(text.contains("Query, NSLP Ping, ") && text.contains("Response, NSLP Ping, "), "{text}");
    let lines = lines(&replayed(&recordings[1].0, true).0);
    assert!(of_type(&lines, "open-pinhole").len() >= 3, "flow, datagrams in both directions");
}

/// Replays a recording, and compares what the node sends with what it sent.
fn sends_the_same(recording: &[u8], sent: &[Value]) {
    let (text, fault) = replayed(recording, true);
    assert!(fault.is_none());
    let lines = lines(&text);
    let again: Vec<_> = of_type(&lines, "transmit")
        .into_iter()
        .map(|l| json!([l["t"], l["src"], l["dst"], l["ttl"], l["options"], l["payload"]]))
        .collect();
    assert!(!again.is_empty(), "{text}");
    assert_eq!(again, sent);
    let summary = lines.last().unwrap();
    assert_eq!(summary["transmits"], sent.len());
    assert_eq!(summary["outputs"], lines.len() - 1);
    assert_eq!(summary["fault"], Value::Null);
    assert!(summary["counters"].as_object().unwrap().values().all(|value| value != 0));
    assert_eq!(replayed(recording, true).0, text);
}

#[test]
fn the_text_has_the_messages_and_events() {
    let (recording, _) = recordings("text").swap_remove(0);
    let (text, _) = replayed(&recording, false);
    for wanted in [
        "ping 9: started, 10.0.0.1 > 10.0.0.6, session ",
        ": route to 10.0.0.6\n",
        "send 10.0.0.1:270 > 10.0.0.6:270, TTL 64: Query, NSLP Ping, 10.0.0.1 > 10.0.0.6 downstream, session ",
        ": Confirm, NSLP Ping",
        ": Data, NSLP Ping, echo request 0, ",
        "ping 9: done, ",
        "\nleft: ",
        "protocol=\"ping\"",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in\n{text}");
    }
    assert_eq!(replayed(&recording, false).0, text);
}

#[test]
fn a_torn_recording_is_replayed_up_to_the_tear() {
    let (mut recording, sent) = recordings("torn").swap_remove(1);
    let count = recording.iter().filter(|octet| **octet == b'\n').count();
    recording.truncate(recording.len() - 2);
    let (text, fault) = replayed(&recording, true);
    assert!(matches!(fault, Some(ReadError::Torn { line }) if line == count as u64), "{fault:?}");
    let lines = lines(&text);
    let summary = lines.last().unwrap();
    assert_eq!(summary["inputs"], count - 2);
    assert!(summary["fault"].as_str().unwrap().starts_with(&format!("line {count}: cut off")), "{summary}");
    assert!(of_type(&lines, "transmit").len() <= sent.len());
}

#[test]
fn a_header_that_makes_no_node_is_refused() {
    let (recording, _) = recordings("header").swap_remove(0);
    let recording = String::from_utf8(recording).unwrap();
    for (from, to, reason) in [
        ("\"hops\":64", "\"hops\":0", "line 1: config: gist.hops: 1 to 255"),
        ("\"hops\":64", "\"hopps\":64", "unknown field `hopps`"),
        ("\"hops\":64,", "", "missing field `hops`"),
        ("recording\":2", "recording\":3", "version 3"),
    ] {
        assert!(recording.contains(from));
        let error =
            replay(recording.replacen(from, to, 1).as_bytes(), &[], false, &mut Vec::new()).unwrap_err();
        assert!(format!("{error:#}").contains(reason), "{error:#}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_replay() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (recording, _) = recordings("closed").swap_remove(0);
    let error = replay(&recording[..], &[], false, &mut Closed).unwrap_err();
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    assert_eq!(kind, Some(io::ErrorKind::BrokenPipe));
}

/// A host that signs its RSVP messages.
fn signing(secret: &[u8]) -> Config {
    let mut config = rsvp::Config::default();
    config.neighbors.interface.integrity.sending = true;
    config.neighbors.interface.integrity.receiving = true;
    config.keys.push(IntegrityKey {
        id: 1,
        algorithm: Algorithm::HmacSha256,
        secret: Secret::new(secret),
        usage: KeyUse::Both,
        interface: None,
        neighbor: None,
        from: 0,
        until: None,
    });
    Config { rsvp: Some(config), ..Config::default() }
}

#[test]
fn keys_are_not_in_a_recording_and_a_replay_asks_for_them() {
    const SECRET: &[u8] = b"nobody shall know";
    let config = signing(SECRET);
    let mut node = Node::new(config.clone(), [7; 32]).unwrap();
    let mut tape = Writer::new(Vec::new(), &config, &[7; 32], 1 << 20).unwrap();
    let mut sent = Vec::new();
    let host: IpAddr = [10, 0, 0, 1].into();
    let interface = signalbox_core::node::Interface {
        ifindex: signalbox_core::IfIndex(2),
        name: "eth0".to_owned(),
        up: true,
        mtu: 1500,
        addresses: vec![host],
        tunnel: false,
    };
    let session = Session { dest: [10, 0, 1, 9].into(), protocol: 17, kind: SessionKind::Ports, port: 5004 };
    let sender = rsvp::SenderRequest::new(
        rsvp::Filter { src: host, selector: rsvp::Selector::Port(9) },
        signalbox_node::resources::intserv::TSpec::new(8000.0, 3000.0, f32::INFINITY, 64, 1500).unwrap(),
    );
    let route = signalbox_core::node::Route {
        local: false,
        src: host,
        ifindex: signalbox_core::IfIndex(2),
        gateway: Some([10, 0, 0, 2].into()),
        mtu: 1500,
    };
    let mut asked = None;
    for step in 0..4 {
        let list = [interface.clone()];
        let rsvp = |command| Input::Command(Command::Rsvp { id: 1, command });
        let input = match step {
            0 => Input::Interfaces(&list),
            1 => rsvp(rsvp::Command::Session(session)),
            2 => rsvp(rsvp::Command::Sender(sender.clone())),
            _ => Input::Route { id: asked.take().unwrap(), result: Ok(route) },
        };
        let now = Time::from_millis(step);
        assert!(tape.record(now, &input).unwrap());
        node.handle(now, input);
        while let Some(output) = node.poll() {
            if let Output::RouteLookup { id, .. } = output {
                asked = Some(id);
            } else if let Output::Transmit(packet) = output {
                sent.push(Value::from(hex(packet.payload)));
            }
        }
    }
    assert!(!sent.is_empty());
    let recording = tape.finish().unwrap();
    let text = String::from_utf8(recording.clone()).unwrap();
    assert!(!text.contains("nobody") && !text.contains(&hex(SECRET)));

    let refused =
        |keys: &[Secret]| format!("{:#}", replay(&recording[..], keys, true, &mut Vec::new()).unwrap_err());
    for keys in [&[][..], &[Secret::new(*b"another")]] {
        let error = refused(keys);
        assert!(error.contains("the RSVP key 1") && error.contains("--key FILE"), "{error}");
    }
    let keys = [Secret::new(*b"another"), Secret::from_file(b"nobody shall know\n")];
    let mut out = Vec::new();
    assert!(replay(&recording[..], &keys, true, &mut out).unwrap().is_none());
    let again = lines(&String::from_utf8(out).unwrap());
    let again: Vec<_> = of_type(&again, "transmit").into_iter().map(|line| line["payload"].clone()).collect();
    assert_eq!(again, sent);
}
