//! The test protocol: one file, and lines beside those of the other protocols, and it has everything that a protocol needs.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::Time;
use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_core::pinhole::{OpenerId, PinholeError};
use signalbox_node::beacon::{self, Event as Beacon};
use signalbox_node::{Command, Config, Event, GistConfig, Node, ProtocolId};
use signalbox_sim::{Boot, LinkConfig, Sim, topology};

use crate::net::{FAMILIES, make, total};

/// The nodes in the middle intercept the beacon at its port of entry, the last one answers, and the user gets the
/// count.
#[test]
fn each_node_on_the_path_counts_a_beacon() {
    for family in FAMILIES {
        let mut sim: Sim<Node> = Sim::new(3);
        let engine =
            |boot: Boot| make(boot, Config { beacon: Some(beacon::Config::default()), ..Config::empty() });
        let nodes: Vec<_> = (0..4).map(|n| sim.add_engine(format!("n{n}"), engine)).collect();
        topology::chain(&mut sim, &nodes, &LinkConfig::default());
        sim.run_for(Duration::ZERO);
        assert_eq!(sim.engine(nodes[1]).unwrap().protocols().collect::<Vec<_>>(), [ProtocolId::Beacon]);
        let command = beacon::Command::Send(sim.address(nodes[3], family));
        sim.command(nodes[0], Command::Beacon { id: 5, command });
        sim.expect("an answer", Duration::from_secs(1), |sim| !sim.events().is_empty());
        assert_eq!(sim.events()[0].event, Event::Beacon { id: 5, event: Beacon::Answered(3) });
        let counted = ["sent", "passed_on", "answered"].map(|name| total(&sim, "beacon", name));
        assert_eq!(counted, [1, 2, 1]);
    }
}

/// Protocols choose the keys of their pinholes without regard to each other: the kernel's answer goes to the owner.
#[test]
fn the_answer_for_a_pinhole_goes_to_its_owner() {
    let config = Config {
        gist: Some(GistConfig::default()),
        natfw: Some(signalbox_node::natfw::Config::default()),
        beacon: Some(beacon::Config::default()),
        ..Config::empty()
    };
    let mut node = Node::new(config, [7; 32]).unwrap();
    let to = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    node.handle(Time::ZERO, Input::Command(Command::Beacon { id: 5, command: beacon::Command::Open(to) }));
    let Some(Output::OpenPinhole { id, .. }) = node.poll() else { panic!("no pinhole") };
    assert_eq!(id, OpenerId(240).pinhole(5));
    for other in [OpenerId::NATFW, OpenerId(241)] {
        node.handle(Time::ZERO, Input::PinholeOpened { id: other.pinhole(5), result: Ok(()) });
        assert!(node.poll().is_none());
    }
    node.handle(Time::ZERO, Input::PinholeOpened { id, result: Err(PinholeError::Conflict) });
    let Some(Output::Event(event)) = node.poll() else { panic!("no event") };
    assert_eq!(event, Event::Beacon { id: 5, event: Beacon::Opened(false) });
}
