//! What tests of this crate need of a node.

use super::*;
use signalbox_core::node::{Interface, NodeEngine};
use signalbox_core::{Counter, IfIndex};
use signalbox_linux::pinhole::PinholeCounters;
use signalbox_linux::stream::StreamCounters;
use signalbox_linux::traffic::TrafficCounters;
use signalbox_linux::{IpCounters, UdpCounters};

/// A node with all protocols, and with an interface of 8 Mbit/s of which half can be reserved.
pub(crate) fn whole_node() -> Node {
    let mut config = signalbox_node::Config::default();
    config.gist.as_mut().unwrap().engine.associations.sctp_port = Some(270);
    config.qos = Some(Default::default());
    config.rsvp = Some(Default::default());
    config.boomerang = Some(Default::default());
    config.natfw = Some(Default::default());
    config.gist_nat = Some(Default::default());
    config.mapping = Some(signalbox_node::MappingConfig {
        engine: signalbox_node::mapping::Config { interfaces: vec!["eth7".into()], ..Default::default() },
        ..Default::default()
    });
    config.casp = Some(signalbox_node::casp::Config {
        qos: Some(Default::default()),
        natfw: Some(Default::default()),
        ..Default::default()
    });
    let link = "version = 1\n[interfaces.eth7]\ncapacity = \"8mbit\"\nreservable = \"50%\"\n";
    let loaded = signalbox_config::parse(std::path::Path::new("node.toml"), link);
    config.resources = loaded.config.unwrap().settings(0, false).resources;
    let mut node = Node::new(config, [1; 32]).unwrap();
    let eth7 = Interface {
        ifindex: IfIndex(7),
        name: "eth7".into(),
        up: true,
        mtu: 1500,
        tunnel: false,
        addresses: vec!["192.0.2.1".parse().unwrap()],
    };
    node.handle(Time::ZERO, Input::Interfaces(&[eth7]));
    node
}

/// All counters that a daemon with all protocols has.
pub(crate) fn every_counter(node: &Node) -> Vec<Counter> {
    let counters_of = |entry: signalbox_core::EntryRequest| -> Vec<Counter> {
        let counter = Counter::of(entry.subsystem);
        match entry.entry {
            Entry::Udp(_) => UdpCounters::default().iter().map(counter).collect(),
            _ => IpCounters::default().iter().map(counter).collect(),
        }
    };
    let counted = Counted {
        daemon: DaemonCounters::default(),
        io: node.entries().into_iter().flat_map(counters_of).collect(),
        streams: &StreamCounters::default(),
        traffic: Some(&TrafficCounters::default()),
        pinholes: Some(&PinholeCounters::default()),
    };
    counted.with(node).collect()
}
