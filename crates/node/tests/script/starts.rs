//! Pings that need a route first.

use signalbox_core::node::{Input, Interface, NoRoute, NodeEngine, Output, Route};
use signalbox_core::{IfIndex, Time};
use signalbox_node::ping::{self, PingEvent, PingRequest, Refusal};
use signalbox_node::{Command, Config, Event, Node};

fn node(config: Config) -> Node {
    let mut node = Node::new(config, [1; 32]).unwrap();
    let interface = Interface {
        ifindex: IfIndex(2),
        name: "eth0".to_owned(),
        up: true,
        mtu: 1500,
        tunnel: false,
        addresses: vec!["192.0.2.1".parse().unwrap()],
    };
    node.handle(Time::ZERO, Input::Interfaces(&[interface]));
    assert!(node.poll().is_none());
    node
}

fn route() -> Route {
    let gateway = Some("192.0.2.254".parse().unwrap());
    Route { ifindex: IfIndex(2), src: "192.0.2.1".parse().unwrap(), gateway, mtu: 1500, local: false }
}

/// Route lookups and events that follow an input.
fn drain(node: &mut Node) -> (Vec<u64>, Vec<(u64, PingEvent)>) {
    let (mut lookups, mut events) = (Vec::new(), Vec::new());
    while let Some(output) = node.poll() {
        match output {
            Output::RouteLookup { id, .. } => lookups.push(id),
            Output::Event(Event::Ping { id, event }) => events.push((id, event)),
            _ => {}
        }
    }
    assert!(node.poll().is_none(), "extra polls are no-ops");
    (lookups, events)
}

fn start(node: &mut Node, id: u64) -> (Vec<u64>, Vec<(u64, PingEvent)>) {
    let request = PingRequest::to("198.51.100.9".parse().unwrap());
    node.handle(Time::ZERO, Input::Command(Command::Ping { id, command: ping::Command::Start(request) }));
    drain(node)
}

#[test]
fn the_route_gives_the_source() {
    let mut node = node(Config::default());
    let (lookups, events) = start(&mut node, 9);
    assert_eq!((lookups.len(), events.len()), (1, 0));
    node.handle(Time::ZERO, Input::Route { id: lookups[0], result: Ok(route()) });
    let (_, events) = drain(&mut node);
    let [(9, PingEvent::Started { mri, .. })] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(mri.to_string(), "192.0.2.1 > 198.51.100.9");
    // The same answer a second time belongs to no lookup.
    node.handle(Time::ZERO, Input::Route { id: lookups[0], result: Ok(route()) });
    assert_eq!(drain(&mut node), (vec![], vec![]));
    assert_eq!(node.pings(), 1);
}

#[test]
fn no_route_no_ping() {
    let mut node = node(Config::default());
    let (lookups, _) = start(&mut node, 9);
    node.handle(Time::ZERO, Input::Route { id: lookups[0], result: Err(NoRoute::Prohibited) });
    assert_eq!(drain(&mut node).1, [(9, PingEvent::Refused(Refusal::NoRoute))]);
}

#[test]
fn a_node_without_the_application_refuses() {
    let mut node = node(Config { ping: None, ..Config::default() });
    assert_eq!(start(&mut node, 9), (vec![], vec![(9, PingEvent::Refused(Refusal::NoApplication))]));
    node.handle(Time::ZERO, Input::Command(Command::Ping { id: 9, command: ping::Command::Stop }));
    assert_eq!(drain(&mut node), (vec![], vec![]));
    assert!(node.counters().all(|counter| counter.subsystem.name != "ping"));
}

#[test]
fn names_are_unique_while_their_route_is_looked_up() {
    let mut node = node(Config::default());
    let (lookups, _) = start(&mut node, 9);
    assert_eq!(start(&mut node, 9).1, [(9, PingEvent::Refused(Refusal::IdInUse))]);
    node.handle(Time::ZERO, Input::Command(Command::Ping { id: 9, command: ping::Command::Stop }));
    assert_eq!(drain(&mut node).1, [(9, PingEvent::Done { sent: 0, received: 0 })]);
    node.handle(Time::ZERO, Input::Route { id: lookups[0], result: Ok(route()) });
    assert_eq!(drain(&mut node), (vec![], vec![]));
}

#[test]
fn a_name_that_runs_is_taken() {
    let mut node = node(Config::default());
    let (lookups, _) = start(&mut node, 9);
    node.handle(Time::ZERO, Input::Route { id: lookups[0], result: Ok(route()) });
    drain(&mut node);
    assert_eq!(start(&mut node, 9), (vec![], vec![(9, PingEvent::Refused(Refusal::IdInUse))]));
    node.handle(Time::ZERO, Input::Command(Command::Ping { id: 9, command: ping::Command::Stop }));
    assert_eq!(drain(&mut node).1, [(9, PingEvent::Done { sent: 1, received: 0 })]);
}

#[test]
fn pings_that_wait_for_a_route_are_bounded() {
    let mut node = node(Config::default());
    for id in 0..256 {
        assert_eq!(start(&mut node, id).0.len(), 1);
    }
    assert_eq!(start(&mut node, 256).1, [(256, PingEvent::Refused(Refusal::TooMany))]);
}

#[test]
fn counters_name_their_subsystem() {
    let node = node(Config::default());
    let names: Vec<_> = node.counters().map(|c| (c.subsystem.name, c.count.name)).collect();
    assert!(names.contains(&("gist", "queries_sent")) && names.contains(&("ping", "probes_sent")));
    assert!(node.counters().all(|c| c.count.help.ends_with('.') && c.count.value == 0));
}
