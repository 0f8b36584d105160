//! Pings and sessions along single paths.

use core::net::IpAddr;
use core::time::Duration;

use rcgen::KeyPair;
use signalbox_casp::wire::ClientType;
use signalbox_gist::engine::Transport as Stack;
use signalbox_node::casp::{
    self, ClientEvent, Command as CaspCommand, Event as CaspEvent, IndicationOf, Lost, PingRefusal,
    PingRequest, RequestOf, SendRequestOf, SeriesEvent, Transport,
};
use signalbox_node::{ChannelConfig, Command, Config, Credentials, Event, Node, Tls, ping as gist_ping};
use signalbox_sim::{Family, LinkConfig, LinkId, NodeId, Sim, topology};

use crate::cmode::over;
use crate::net::{FAMILIES, WALL_US, make, outcome};

/// A client of another process.
const CLIENT: u8 = 200;

fn node(casp: casp::Config) -> Config {
    Config { wall_clock_us: WALL_US, casp: Some(casp), ..Config::empty() }
}

fn row(seed: u64, configs: &[Option<casp::Config>]) -> (Sim<Node>, Vec<NodeId>, Vec<LinkId>) {
    let mut sim = Sim::new(seed);
    let mut nodes = Vec::new();
    for (n, config) in configs.iter().enumerate() {
        nodes.push(match config.clone() {
            Some(config) => sim.add_engine(format!("n{n}"), move |boot| make(boot, node(config.clone()))),
            None => sim.add_router(format!("n{n}")),
        });
    }
    let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
    sim.capture_all();
    (sim, nodes, links)
}

fn series(sim: &Sim<Node>, id: u64) -> Vec<&SeriesEvent> {
    let of = |event: &'_ Event| matches!(event, Event::Casp { id: own, .. } if *own == id);
    let events = sim.events().iter().filter(|one| of(&one.event));
    events
        .filter_map(|one| match &one.event {
            Event::Casp { event: CaspEvent::Ping(event), .. } => Some(event),
            _ => None,
        })
        .collect()
}

fn ping(sim: &mut Sim<Node>, from: NodeId, id: u64, request: PingRequest) {
    sim.command(from, Command::Casp { id, command: CaspCommand::Ping(request) });
    let over = |sim: &Sim<Node>| {
        matches!(series(sim, id).last(), Some(SeriesEvent::Done { .. } | SeriesEvent::Refused(_)))
    };
    sim.expect("the pings end", Duration::from_secs(60), over);
}

/// The addresses in the first reply.
fn nodes_of(sim: &Sim<Node>, id: u64) -> Vec<IpAddr> {
    let replies = series(sim, id).into_iter().find_map(|event| match event {
        SeriesEvent::Reply { nodes, .. } => Some(nodes.iter().map(|entry| entry.address).collect()),
        _ => None,
    });
    replies.unwrap_or_default()
}

fn is_of(sim: &Sim<Node>, node: NodeId, address: IpAddr) -> bool {
    sim.interfaces(node).iter().any(|one| one.addresses.contains(&address))
}

/// CASP-P-20: scout finds each next node, a connection to it carries the ping, and all nodes of the path are in the reply.
#[test]
fn a_ping_passes_all_nodes() {
    for family in FAMILIES {
        let (mut sim, nodes, _) = row(1, &vec![Some(casp::Config::default()); 4]);
        let dst = sim.address(nodes[3], family);
        let request = PingRequest { count: Some(3), timeout: Duration::from_secs(3), ..PingRequest::to(dst) };
        ping(&mut sim, nodes[0], 1, request);
        let passed = nodes_of(&sim, 1);
        assert_eq!(passed.len(), 3, "{passed:?}");
        assert!(nodes[1..].iter().zip(&passed).all(|(node, address)| is_of(&sim, *node, *address)));
        assert_eq!(series(&sim, 1).last(), Some(&&SeriesEvent::Done { sent: 3, received: 3 }));
        sim.run_for(Duration::from_secs(1));
        // One connection for each hop, for all three.
        for node in &nodes[..3] {
            let casp = sim.engine(*node).unwrap().casp().unwrap();
            let mut connections = 0;
            casp.walk_peers(0, |peer| {
                connections += peer.connections.iter().filter(|one| one.up).count();
                true
            });
            assert_eq!(connections, if *node == nodes[0] { 1 } else { 2 });
            assert_eq!(casp.session_count(), 0, "the sessions were torn down");
        }
    }
}

fn sessions(sim: &Sim<Node>, node: NodeId) -> u32 {
    sim.engine(node).unwrap().casp().unwrap().session_count()
}

/// CASP-G-33: over each transport the probe and its reply pass all nodes, and no node ever has a session.
#[test]
fn a_ping_passes_nodes_that_keep_nothing() {
    let keys: Vec<KeyPair> = (0..4).map(|_| KeyPair::generate().unwrap()).collect();
    let all: Vec<&KeyPair> = keys.iter().collect();
    for transport in [Transport::Tcp, Transport::Tls, Transport::Sctp, Transport::Udp] {
        let config = |key: &KeyPair| {
            let mut config = casp::Config { sctp: transport == Transport::Sctp, ..casp::Config::default() };
            config.engine.transport = transport;
            if transport == Transport::Tls {
                let tls = Some(certificate_of(key, &all));
                config.channels = ChannelConfig { tls, ..ChannelConfig::default() };
            }
            Some(config)
        };
        let (mut sim, nodes, _) = row(11, &keys.iter().map(config).collect::<Vec<_>>());
        for (id, family) in (1..).zip(FAMILIES) {
            let timeout = Duration::from_secs(5);
            let request = PingRequest {
                count: Some(3),
                timeout,
                record_route: true,
                ..PingRequest::to(sim.address(nodes[3], family))
            };
            ping(&mut sim, nodes[0], id, request);
            let passed = nodes_of(&sim, id);
            assert_eq!(passed.len(), 3, "{transport:?} {family:?}: {:?}", series(&sim, id));
            assert!(nodes[1..].iter().zip(&passed).all(|(node, address)| is_of(&sim, *node, *address)));
            assert_eq!(series(&sim, id).last(), Some(&&SeriesEvent::Done { sent: 3, received: 3 }));
        }
        for node in &nodes {
            let counters = sim.engine(*node).unwrap().casp().unwrap().counters();
            assert_eq!((sessions(&sim, *node), counters.opened), (0, 0), "{transport:?}");
        }
    }
}

/// CASP-G-33: neighbors that routing finds exchange messages without state in datagrams, and no connection is made.
#[test]
fn neighbors_need_no_connection_without_state() {
    let mut config = casp::Config::default();
    config.engine.transport = Transport::Udp;
    let (sim, nodes, _) = row(12, &vec![Some(config.clone()); 4]);
    let addresses = nodes.iter().flat_map(|node| sim.interfaces(*node)).flat_map(|one| one.addresses.clone());
    config.engine.neighbors = addresses.collect();
    let (mut sim, nodes, _) = row(12, &vec![Some(config); 4]);
    let dst = sim.address(nodes[3], Family::V4);
    let request = PingRequest { count: Some(2), record_route: true, ..PingRequest::to(dst) };
    ping(&mut sim, nodes[0], 1, request);
    assert_eq!(nodes_of(&sim, 1).len(), 3, "{:?}", series(&sim, 1));
    assert_eq!((sim.streams(), sessions(&sim, nodes[1])), (0, 0));
}

/// Where delivery without state is switched off, pings of users who ask for it are refused.
#[test]
fn a_node_refuses_pings_without_state() {
    let mut config = casp::Config::default();
    config.engine.stateless = false;
    let (mut sim, nodes, _) = row(13, &vec![Some(config); 2]);
    let dst = sim.address(nodes[1], Family::V4);
    ping(&mut sim, nodes[0], 1, PingRequest { record_route: true, ..PingRequest::to(dst) });
    assert!(series(&sim, 1).contains(&&SeriesEvent::Lost { seq: 0, why: Lost::Refused }));
}

/// With private codes the user learns that the last node with CASP finds no next one; otherwise that no reply came in time.
#[test]
fn a_ping_without_state_that_is_lost_is_reported() {
    for (private_errors, why) in [(true, Lost::Reported), (false, Lost::Timeout)] {
        let mut config = casp::Config::default();
        config.engine.private_errors = private_errors;
        let config = Some(config);
        let (mut sim, nodes, _) = row(14, &[config.clone(), config.clone(), config, None]);
        let dst = sim.address(nodes[3], Family::V4);
        let timeout = Duration::from_secs(19);
        let request = PingRequest { timeout, record_route: true, ..PingRequest::to(dst) };
        ping(&mut sim, nodes[0], 1, request);
        assert!(series(&sim, 1).contains(&&SeriesEvent::Lost { seq: 0, why }), "{:?}", series(&sim, 1));
    }
}

/// A router and a last host without CASP do not matter to the nodes that have it, but the end of the flow does not answer.
#[test]
fn nodes_without_casp_pass_messages() {
    let casp = || Some(casp::Config::default());
    let (mut sim, nodes, _) = row(2, &[casp(), None, casp(), None, casp()]);
    let dst = sim.address(nodes[4], Family::V4);
    let wait = |dst| PingRequest { timeout: Duration::from_secs(19), ..PingRequest::to(dst) };
    ping(&mut sim, nodes[0], 1, wait(dst));
    assert_eq!(nodes_of(&sim, 1).len(), 2);
    let dst = sim.address(nodes[1], Family::V4);
    ping(&mut sim, nodes[0], 2, wait(dst));
    assert!(series(&sim, 2).contains(&&SeriesEvent::Lost { seq: 0, why: Lost::NoNext }));
}

#[test]
fn pings_that_cannot_be_are_refused() {
    let (mut sim, nodes, _) = row(3, &[Some(casp::Config::default()), None]);
    let dst = sim.address(nodes[1], Family::V4);
    for (id, request, refusal) in [
        (1, PingRequest { count: Some(0), ..PingRequest::to(dst) }, PingRefusal::Timing),
        (2, PingRequest::to("224.0.0.5".parse().unwrap()), PingRefusal::Address),
        (3, PingRequest::to("203.0.113.77".parse().unwrap()), PingRefusal::NoRoute),
        (4, PingRequest { src: Some("::1".parse().unwrap()), ..PingRequest::to(dst) }, PingRefusal::Address),
    ] {
        ping(&mut sim, nodes[0], id, request);
        assert_eq!(series(&sim, id), [&SeriesEvent::Refused(refusal)]);
    }
}

fn certificate_of(own: &KeyPair, peers: &[&KeyPair]) -> Tls {
    let peers = peers.iter().map(|peer| peer.public_key_pem()).collect();
    Tls::new(Credentials::RawKeys { key: own.serialize_pem(), peers })
}

/// CASP-9.2-01: messages pass over TLS, and nodes know each other by their keys.
#[test]
fn connections_run_over_tls() {
    let keys: Vec<KeyPair> = (0..3).map(|_| KeyPair::generate().unwrap()).collect();
    let all: Vec<&KeyPair> = keys.iter().collect();
    let configs: Vec<_> = keys
        .iter()
        .map(|key| {
            let mut config = casp::Config::default();
            config.engine.transport = Transport::Tls;
            config.channels =
                ChannelConfig { tls: Some(certificate_of(key, &all)), ..ChannelConfig::default() };
            Some(config)
        })
        .collect();
    let (mut sim, nodes, _) = row(4, &configs);
    let dst = sim.address(nodes[2], Family::V4);
    ping(&mut sim, nodes[0], 1, PingRequest { timeout: Duration::from_secs(5), ..PingRequest::to(dst) });
    assert_eq!(nodes_of(&sim, 1).len(), 2, "{:?}", series(&sim, 1));
    let mut proved = 0;
    sim.engine(nodes[1]).unwrap().casp().unwrap().walk_peers(0, |peer| {
        proved += usize::from(peer.proved.is_some());
        assert!(peer.connections.iter().all(|one| one.transport == Transport::Tls));
        true
    });
    assert_eq!(proved, 2);
}

/// SCTP in the process carries messages without Length Header.
#[test]
fn connections_run_over_sctp() {
    let mut config = casp::Config { sctp: true, ..casp::Config::default() };
    config.engine.transport = Transport::Sctp;
    let (mut sim, nodes, _) = row(5, &vec![Some(config); 3]);
    let dst = sim.address(nodes[2], Family::V4);
    ping(&mut sim, nodes[0], 1, PingRequest { timeout: Duration::from_secs(5), ..PingRequest::to(dst) });
    assert_eq!(nodes_of(&sim, 1).len(), 2, "{:?}", series(&sim, 1));
    assert_eq!(sim.streams(), 0, "no TCP");
}

/// GIST and CASP of a node use SCTP of the process at the same time: its one raw socket serves both.
#[test]
fn gist_and_casp_share_sctp() {
    let mut sim = Sim::new(7);
    let nodes: Vec<NodeId> = (0..3)
        .map(|n| {
            let mut casp = casp::Config { sctp: true, ..casp::Config::default() };
            casp.engine.transport = Transport::Sctp;
            let config = Config { casp: Some(casp), ..over(Stack::Sctp) };
            sim.add_engine(format!("n{n}"), move |boot| make(boot, config.clone()))
        })
        .collect();
    topology::chain(&mut sim, &nodes, &LinkConfig::default());
    let dst = sim.address(nodes[2], Family::V4);
    for id in [1, 3, 5] {
        let request = PingRequest { timeout: Duration::from_secs(5), ..PingRequest::to(dst) };
        ping(&mut sim, nodes[0], id, request);
        assert_eq!(nodes_of(&sim, id).len(), 2, "{:?}", series(&sim, id));
        let request = gist_ping::PingRequest { count: Some(2), ..gist_ping::PingRequest::to(dst) };
        let command = gist_ping::Command::Start(request);
        sim.command(nodes[0], Command::Ping { id: id + 1, command });
        sim.expect("replies by GIST", Duration::from_secs(30), |sim| outcome(sim, id + 1) == Some((2, 2)));
    }
    assert_eq!(sim.streams(), 0, "no TCP");
    for node in &nodes {
        let counters: Vec<_> = sim.engine(*node).unwrap().counters().collect();
        let of = |name| {
            let found = counters.iter().filter(|one| (one.subsystem.name, one.count.name) == ("sctp", name));
            found.map(|one| one.count.value).collect::<Vec<_>>()
        };
        // One association for each protocol and neighbor, and one sum for both protocols.
        assert_eq!(of("connected"), [if *node == nodes[1] { 4 } else { 2 }]);
        assert_eq!((of("malformed"), of("out_of_the_blue")), (vec![0], vec![0]));
    }
}

fn client_events(sim: &Sim<Node>, id: u64) -> Vec<&ClientEvent> {
    let events = sim.events().iter().filter_map(|one| match &one.event {
        Event::Casp { id: own, event: CaspEvent::Client(event) } if *own == id => Some(event),
        _ => None,
    });
    events.collect()
}

/// A client of another process takes messages and decides about them; when it leaves, its sessions end. It may have the number of one that
/// the node itself does not run.
#[test]
fn a_client_outside_of_the_node_takes_part() {
    [CLIENT, ClientType::QOS.0, ClientType::NATFW.0].into_iter().for_each(takes_part);
}

fn takes_part(client: u8) {
    let (mut sim, nodes, _) = row(6, &vec![Some(casp::Config::default()); 3]);
    for node in &nodes {
        sim.command(
            *node,
            Command::Casp { id: 9, command: CaspCommand::Register { client, stateless: true } },
        );
    }
    sim.command(
        nodes[0],
        Command::Casp { id: 8, command: CaspCommand::Register { client, stateless: true } },
    );
    assert!(matches!(client_events(&sim, 8)[..], [ClientEvent::Refused(_)]));
    let (src, dst) = (sim.address(nodes[0], Family::V4), sim.address(nodes[2], Family::V4));
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) else { panic!() };
    let flow = casp::FlowId::V4Ports { src, dst, src_port: 1, dst_port: 2, protocol: 17 };
    let send = SendRequestOf { hold: true, ..SendRequestOf::new(None, flow, b"hello"[..].into()) };
    let command = CaspCommand::Request(RequestOf::Send(send));
    sim.command(nodes[0], Command::Casp { id: 9, command });
    let arrived = |sim: &Sim<Node>| {
        client_events(sim, 9).iter().any(|event| {
            matches!(event, ClientEvent::Indication(IndicationOf::Received(one)) if one.last && one.data.0 == b"hello")
        })
    };
    sim.expect("the message arrives at the end", Duration::from_secs(10), arrived);
    sim.run_for(Duration::from_secs(200));
    assert_eq!(
        nodes.iter().map(|node| sessions(&sim, *node)).collect::<Vec<_>>(),
        [1, 1, 1],
        "it is refreshed"
    );
    sim.command(nodes[0], Command::Casp { id: 9, command: CaspCommand::Close });
    let all = nodes.clone();
    let gone = move |sim: &Sim<Node>| all.iter().all(|node| sessions(sim, *node) == 0);
    sim.expect("the session ends everywhere", Duration::from_secs(400), gone);
}

/// A session belongs to the client that opened it: another one, which knows its identifier, neither gives it up nor holds it. What the
/// engine refuses changes nothing of what is held.
#[test]
fn a_client_neither_ends_nor_holds_the_session_of_another() {
    let (mut sim, nodes, _) = row(6, &vec![Some(casp::Config::default()); 3]);
    let [first, second] = [(9, CLIENT), (10, CLIENT + 1)];
    for (id, client) in [first, second] {
        sim.command(
            nodes[0],
            Command::Casp { id, command: CaspCommand::Register { client, stateless: false } },
        );
    }
    let (src, dst) = (sim.address(nodes[0], Family::V4), sim.address(nodes[2], Family::V4));
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) else { panic!() };
    let flow = |dst_port| casp::FlowId::V4Ports { src, dst, src_port: 1, dst_port, protocol: 17 };
    let ask = |sim: &mut Sim<Node>, (id, _): (u64, u8), request| {
        sim.command(nodes[0], Command::Casp { id, command: CaspCommand::Request(request) });
    };
    let hold = |session, on| RequestOf::Hold { session, flow: flow(2), on };
    let send = SendRequestOf { hold: true, ..SendRequestOf::new(None, flow(2), b"hello"[..].into()) };
    ask(&mut sim, first, RequestOf::Send(send));
    let opened = |sim: &Sim<Node>| {
        client_events(sim, 9).iter().find_map(|event| match event {
            ClientEvent::Indication(IndicationOf::Opened { session, .. }) => Some(*session),
            _ => None,
        })
    };
    sim.expect("a session", Duration::from_secs(1), |sim| opened(sim).is_some());
    let session = opened(&sim).unwrap();
    ask(&mut sim, second, hold(session, true));
    ask(&mut sim, second, RequestOf::Move { session, from: flow(2), to: flow(3) });
    ask(&mut sim, second, hold(session, false));
    sim.run_for(Duration::from_secs(200));
    let sessions = |sim: &Sim<Node>| {
        let count = |node: &NodeId| sim.engine(*node).unwrap().casp().unwrap().session_count();
        nodes.iter().map(count).collect::<Vec<_>>()
    };
    assert_eq!(sessions(&sim), [1, 1, 1], "the first client holds it");
    ask(&mut sim, second, hold(session, true));
    ask(&mut sim, first, hold(session, false));
    sim.expect("the session ends", Duration::from_secs(400), |sim| sessions(sim) == [0, 0, 0]);
}
