//! Discovery by DNS: a resolver in the network names the server of a destination's domain.

use core::cell::RefCell;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use signalbox_core::node::{Input, NodeEngine, Output, Prefix, StreamId, StreamKind};
use signalbox_core::{EntryRequest, Time};
use signalbox_node::casp::{
    self, Command as CaspCommand, DNS, DnsConfig, EngineConfig, Event as CaspEvent, Mechanism, PingRequest,
    SeriesEvent,
};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Boot, Family, LinkConfig, NodeId, Sim};

use crate::net::{WALL_US, make};

const SRV: u16 = 33;
const A: u16 = 1;
const CNAME: u16 = 5;

/// A name as messages have it.
fn name(text: &str) -> Vec<u8> {
    let labels =
        text.split('.').flat_map(|label| [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

/// A record: owner, type and content. Each lives for a minute.
type Record = (Vec<u8>, u16, Vec<u8>);

fn server(owner: &str, target: &str) -> Record {
    let numbers = [0, 0, EngineConfig::default().port].map(u16::to_be_bytes).concat();
    (name(owner), SRV, [numbers, name(target)].concat())
}

fn address(owner: &str, address: IpAddr) -> Record {
    let IpAddr::V4(address) = address else { panic!("{address}") };
    (name(owner), A, address.octets().to_vec())
}

/// The records, which a test changes.
type Zone = Rc<RefCell<Vec<Record>>>;

/// A resolver: it answers over TCP, one message for each question, with the aliases on the way.
#[derive(Debug, Default)]
struct Resolver {
    zone: Zone,
    /// Octets of a question that is not whole.
    octets: BTreeMap<StreamId, Vec<u8>>,
    listens: bool,
    writes: VecDeque<(StreamId, Vec<u8>)>,
    written: Vec<u8>,
}

impl Resolver {
    fn answer(&self, query: &[u8]) -> Vec<u8> {
        let question = &query[12..];
        let (mut owner, kind) = question.split_at(question.len() - 4);
        let kind = u16::from_be_bytes([kind[0], kind[1]]);
        let (zone, mut records) = (self.zone.borrow(), Vec::new());
        loop {
            records.extend(zone.iter().filter(|one| one.0 == owner && one.1 == kind));
            let Some(alias) = zone.iter().find(|one| one.0 == owner && one.1 == CNAME) else { break };
            owner = &alias.2;
            records.push(alias);
        }
        let count = u16::try_from(records.len()).unwrap().to_be_bytes();
        let mut message = [&query[..2], &[0x81, 0x80, 0, 1], &count, &[0; 4], question].concat();
        for (owner, kind, content) in records {
            let length = u16::try_from(content.len()).unwrap();
            message.extend_from_slice(owner);
            message.extend([kind.to_be_bytes(), [0, 1], [0, 0], [0, 60], length.to_be_bytes()].concat());
            message.extend_from_slice(content);
        }
        [&u16::try_from(message.len()).unwrap().to_be_bytes()[..], &message].concat()
    }
}

/// The software of a node.
enum Host {
    Node(Box<Node>),
    Resolver(Resolver),
}

impl NodeEngine for Host {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        let resolver = match self {
            Self::Node(node) => return node.handle(now, input),
            Self::Resolver(resolver) => resolver,
        };
        if let Input::StreamOctets { stream, octets } = input {
            let buffer = resolver.octets.entry(stream).or_default();
            buffer.extend_from_slice(octets);
            let mut rest = core::mem::take(buffer);
            while let Some((length, message)) = rest.split_first_chunk() {
                let length = usize::from(u16::from_be_bytes(*length));
                let Some(query) = message.get(..length) else { break };
                let answer = resolver.answer(query);
                resolver.writes.push_back((stream, answer));
                rest.drain(..2 + length);
            }
            resolver.octets.insert(stream, rest);
        }
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        match self {
            Self::Node(node) => node.poll(),
            Self::Resolver(resolver) if !resolver.listens => {
                resolver.listens = true;
                Some(Output::StreamListen { kind: StreamKind::Tcp, port: 53 })
            }
            Self::Resolver(resolver) => {
                let (stream, octets) = resolver.writes.pop_front()?;
                resolver.written = octets;
                Some(Output::StreamWrite { stream, octets: &resolver.written })
            }
        }
    }

    fn entries(&self) -> Vec<EntryRequest> {
        match self {
            Self::Node(node) => node.entries(),
            Self::Resolver(_) => Vec::new(),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        match self {
            Self::Node(node) => node.next_deadline(),
            Self::Resolver(_) => None,
        }
    }
}

/// A host, a server that is not on its path, the destination, and a resolver, around one router.
struct Net {
    sim: Sim<Host>,
    host: NodeId,
    server: NodeId,
    end: NodeId,
    resolver: NodeId,
    zone: Zone,
}

impl Net {
    fn new(seed: u64) -> Self {
        let mut sim = Sim::new(seed);
        let node = |casp: casp::Config| {
            let config = Config { wall_clock_us: WALL_US, casp: Some(casp), ..Config::empty() };
            move |boot: Boot| Host::Node(Box::new(make(boot, config.clone())))
        };
        let router = sim.add_router("r");
        let zone = Zone::default();
        let of_resolver = zone.clone();
        let resolver = sim.add_engine("resolver", move |_| {
            Host::Resolver(Resolver { zone: of_resolver.clone(), ..Resolver::default() })
        });
        let server = sim.add_engine("server", node(casp::Config::default()));
        let end = sim.add_engine("end", node(casp::Config::default()));
        for one in [resolver, server, end] {
            sim.link(router, one, &LinkConfig::default());
        }
        let config = casp::Config {
            engine: EngineConfig {
                mechanisms: vec![Mechanism::External(DNS), Mechanism::Scout],
                ..EngineConfig::default()
            },
            dns: DnsConfig {
                resolvers: vec!["192.0.2.1".parse().unwrap(), sim.address(resolver, Family::V4)],
                domains: vec![(
                    Prefix { addr: "0.0.0.0".parse().unwrap(), len: 0 },
                    "example.net".to_owned(),
                )],
            },
            ..casp::Config::default()
        };
        let host = sim.add_engine("host", node(config));
        sim.link(router, host, &LinkConfig::default());
        sim.run_for(Duration::ZERO);
        Self { sim, host, server, end, resolver, zone }
    }

    /// The nodes of the path of a ping, by its reply.
    fn ping(&mut self, id: u64) -> Vec<IpAddr> {
        let dst = self.sim.address(self.end, Family::V4);
        let request = PingRequest { timeout: Duration::from_secs(30), ..PingRequest::to(dst) };
        self.sim.command(self.host, Command::Casp { id, command: CaspCommand::Ping(request) });
        let of = |event: &Event| match event {
            Event::Casp { id: own, event: CaspEvent::Ping(event) } if *own == id => Some(event.clone()),
            _ => None,
        };
        let events =
            |sim: &Sim<Host>| sim.events().iter().filter_map(|one| of(&one.event)).collect::<Vec<_>>();
        self.sim.expect("the ping ends", Duration::from_secs(60), |sim| {
            matches!(events(sim).last(), Some(SeriesEvent::Done { .. }))
        });
        let reply = events(&self.sim).into_iter().find_map(|event| match event {
            SeriesEvent::Reply { nodes, .. } => Some(nodes.iter().map(|entry| entry.address).collect()),
            _ => None,
        });
        reply.unwrap_or_default()
    }
}

/// The records of a domain with one server, by an alias of its service and an alias of the server.
fn zone(net: &Net) -> Vec<Record> {
    vec![
        (name("_casp._tcp.example.net"), CNAME, name("signaling.example.org")),
        server("signaling.example.org", "one.example.org"),
        (name("one.example.org"), CNAME, name("two.example.org")),
        address("two.example.org", net.sim.address(net.server, Family::V4)),
    ]
}

/// The first resolver does not exist. The second one names the server, and the result is stored for the next lookup.
#[test]
fn a_session_passes_the_server_that_dns_names() {
    let mut net = Net::new(21);
    *net.zone.borrow_mut() = zone(&net);
    let path = [net.server, net.end].map(|node| net.sim.address(node, Family::V4));
    assert_eq!(net.ping(1), path);
    net.sim.power_off(net.resolver);
    assert_eq!(net.ping(2), path);
}

/// Without a server, scout has its turn; so it has when the resolver does not answer.
#[test]
fn without_a_server_the_next_mechanism_has_its_turn() {
    let mut net = Net::new(22);
    let end = [net.sim.address(net.end, Family::V4)];
    assert_eq!(net.ping(1), end);
    net.sim.run_for(Duration::from_secs(20));
    *net.zone.borrow_mut() = zone(&net);
    net.sim.power_off(net.resolver);
    assert_eq!(net.ping(2), end);
}

/// A server that cannot be reached is avoided.
#[test]
fn a_server_that_is_down_is_avoided() {
    let mut net = Net::new(23);
    let mut zone = zone(&net);
    let far = "192.0.2.9".parse().unwrap();
    zone.extend([server("signaling.example.org", "far.example.org"), address("far.example.org", far)]);
    *net.zone.borrow_mut() = zone;
    let path = [net.server, net.end].map(|node| net.sim.address(node, Family::V4));
    let found: Vec<_> = (1..=4).map(|id| net.ping(id)).collect();
    assert!(found[3] == path, "{found:?}");
}
