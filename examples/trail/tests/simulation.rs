//! Networks of nodes with the protocol, in virtual time.

use core::time::Duration;

use signalbox_core::Entry;
use signalbox_example_trail::{Command, Config, Event, Trail};
use signalbox_node::ping::{self, PingEvent, PingRequest};
use signalbox_node::{ConfigError, Extended, ExtendedCommand, ExtendedEvent, Node};
use signalbox_sim::{Boot, Family, LinkConfig, NodeId, Sim, topology};

type TrailNode = Node<Extended<Trail>>;

const LIFETIME: Duration = Duration::from_secs(6);

/// Nodes in a row; `false`: a router without the protocol.
fn row(suite: &signalbox_node::Config, roles: &[bool]) -> (Sim<TrailNode>, Vec<NodeId>) {
    let mut sim = Sim::new(3);
    let mut nodes = Vec::new();
    for (n, runs) in roles.iter().enumerate() {
        let suite = suite.clone();
        let engine = move |boot: Boot| {
            let settings = Config { lifetime: LIFETIME, limit: 1, ..Config::default() };
            Node::extended(suite.clone(), settings, boot.seed).unwrap()
        };
        nodes.push(if *runs {
            sim.add_engine(format!("n{n}"), engine)
        } else {
            sim.add_router(format!("n{n}"))
        });
    }
    topology::chain(&mut sim, &nodes, &LinkConfig::default());
    sim.run_for(Duration::ZERO);
    (sim, nodes)
}

fn start(sim: &mut Sim<TrailNode>, id: u64, from: NodeId, to: NodeId, family: Family) {
    let command = Command::Start(sim.address(to, family));
    sim.command(from, ExtendedCommand::Extension { id, command });
}

/// The numbers of the trails that each node notes; routers are left out.
fn noted(sim: &Sim<TrailNode>, nodes: &[NodeId]) -> Vec<Vec<u64>> {
    let noted = |node: &NodeId| Some(sim.engine(*node)?.extension().noted().map(|(_, id)| id).collect());
    nodes.iter().filter_map(noted).collect()
}

fn events(sim: &Sim<TrailNode>) -> Vec<ExtendedEvent<Event>> {
    sim.events().iter().map(|one| one.event.clone()).collect()
}

/// Nodes with the protocol note the trail, the router between passes the mark on, and the user gets the count. The state lives as
/// long as the marks come, and ends a lifetime after the last one.
#[test]
fn nodes_on_the_path_note_a_trail_until_it_stops() {
    for family in [Family::V4, Family::V6] {
        let (mut sim, nodes) = row(&signalbox_node::Config::empty(), &[true, true, false, true]);
        start(&mut sim, 5, nodes[0], nodes[3], family);
        sim.run_for(Duration::from_secs(1));
        assert_eq!(events(&sim), [ExtendedEvent::Extension { id: 5, event: Event::Reached(2) }]);
        sim.run_for(LIFETIME * 10);
        assert_eq!(noted(&sim, &nodes), [vec![], vec![5], vec![5]], "the marks keep it");
        sim.command(nodes[0], ExtendedCommand::Extension { id: 5, command: Command::Stop });
        sim.run_for(LIFETIME + Duration::from_secs(1));
        assert_eq!(noted(&sim, &nodes), [vec![], vec![], Vec::<u64>::new()]);
        assert_eq!(events(&sim).len(), 1, "the count did not change");
        let node = sim.engine(nodes[1]).unwrap();
        assert_eq!(node.counter("trail", "expired"), 1);
    }
}

/// Peers cannot make the table grow beyond its limit; other settings come into force while the node runs.
#[test]
fn the_limit_holds_until_it_is_raised() {
    let (mut sim, nodes) = row(&signalbox_node::Config::empty(), &[true, true, true]);
    start(&mut sim, 1, nodes[0], nodes[2], Family::V4);
    sim.run_for(Duration::from_secs(1));
    start(&mut sim, 2, nodes[0], nodes[2], Family::V4);
    sim.run_for(Duration::from_secs(1));
    assert_eq!(noted(&sim, &nodes), [vec![], vec![1], vec![1]]);
    // Settings that make no node change nothing.
    sim.command(nodes[1], ExtendedCommand::Reload(Config { lifetime: Duration::ZERO, ..Config::default() }));
    sim.run_for(LIFETIME);
    assert_eq!(noted(&sim, &nodes), [vec![], vec![1], vec![1]]);
    sim.command(nodes[1], ExtendedCommand::Reload(Config { lifetime: LIFETIME, ..Config::default() }));
    sim.run_for(LIFETIME);
    assert_eq!(noted(&sim, &nodes), [vec![], vec![1, 2], vec![1]]);
    let last = events(&sim).pop();
    assert_eq!(last, Some(ExtendedEvent::Extension { id: 2, event: Event::Reached(1) }));
}

/// A node runs it together with protocols of the suite, and its users ask both.
#[test]
fn it_runs_beside_gist_and_ping() {
    let (mut sim, nodes) = row(&signalbox_node::Config::default(), &[true, true, true]);
    start(&mut sim, 1, nodes[0], nodes[2], Family::V4);
    let request = PingRequest { count: Some(1), ..PingRequest::to(sim.address(nodes[2], Family::V4)) };
    let command = signalbox_node::Command::Ping { id: 2, command: ping::Command::Start(request) };
    sim.command(nodes[0], ExtendedCommand::Suite(command));
    let done = signalbox_node::Event::Ping { id: 2, event: PingEvent::Done { sent: 1, received: 1 } };
    let done = ExtendedEvent::Suite(done);
    sim.expect("the ping ends", Duration::from_secs(10), |sim| events(sim).contains(&done));
    assert!(events(&sim).contains(&ExtendedEvent::Extension { id: 1, event: Event::Reached(2) }));
}

/// Two protocols cannot have one port, whichever crates they are of; and what the protocol says of its settings reaches the user.
#[test]
fn settings_that_make_no_node_are_refused() {
    let error =
        |settings| TrailNode::extended(signalbox_node::Config::default(), settings, [7; 32]).unwrap_err();
    let port = error(Config { port: 270, ..Config::default() });
    let expected = ConfigError::EntryInUse { entry: Entry::Udp(270), first: "gist", second: "trail" };
    assert_eq!(port, expected);
    let lifetime = error(Config { lifetime: Duration::ZERO, ..Config::default() });
    assert_eq!(lifetime.to_string(), "trail.lifetime: at least 1 s");
}
