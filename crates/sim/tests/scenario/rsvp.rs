//! RSVP as raw IP, and multicast, with an engine that reports each received packet.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use signalbox_core::metrics::Subsystem;
use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_core::packet::{Transmit, router_alert, router_alert_v4, router_alert_v6_before};
use signalbox_core::{AlertRule, Entry, EntryRequest, IfIndex, Intercept, Time};
use signalbox_sim::{Family, LinkConfig, NodeId, Sim, topology};

const SECOND: Duration = Duration::from_secs(1);

/// A command for the engine.
#[derive(Debug, Clone)]
enum Command {
    Send { src: IpAddr, dst: IpAddr, ifindex: Option<IfIndex>, alert: bool },
    Lookup { group: IpAddr, source: IpAddr },
}

/// RSVP's port of entry.
const ENTRY: Entry = Entry::Ip(46);

/// The Router Alerts of RSVP (RFC 2205 §3.3, RFC 2711 §2.1).
const ALERT_V4: [u8; 4] = router_alert_v4(0);
const ALERT_V6: [u8; 8] = router_alert_v6_before(46, 1);

/// An event of the engine.
#[derive(Debug, Clone, PartialEq)]
enum Event {
    Packet { src: IpAddr, ifindex: IfIndex, ttl: u8, alert: bool },
    Multicast { iif: IfIndex, oifs: Vec<IfIndex> },
}

#[derive(Default)]
struct Recorder {
    commands: Vec<Command>,
    events: Vec<Event>,
    said: Option<Command>,
}

impl NodeEngine for Recorder {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, _: Time, input: Input<'_, Command>) {
        match input {
            Input::Packet(p) => {
                let (src, ifindex, ttl) = (p.src.ip(), p.ifindex, p.ttl);
                let alert = router_alert(p.options, p.dst.is_ipv6()).is_some();
                assert_eq!(p.payload, b"path");
                self.events.push(Event::Packet { src, ifindex, ttl, alert });
            }
            Input::Multicast { iif, oifs, .. } => {
                self.events.push(Event::Multicast { iif, oifs: oifs.to_vec() })
            }
            Input::Command(command) => self.commands.push(command),
            _ => {}
        }
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        if let Some(event) = self.events.pop() {
            return Some(Output::Event(event));
        }
        self.said = self.commands.pop();
        Some(match *self.said.as_ref()? {
            Command::Send { src, dst, ifindex, alert } => Output::Transmit(Transmit {
                gateway: None,
                entry: ENTRY,
                src: SocketAddr::new(src, 0),
                dst: SocketAddr::new(dst, 0),
                ifindex,
                ttl: 63,
                tos: 0,
                dont_fragment: false,
                flow_label: 0,
                unproved: false,
                options: match (alert, dst) {
                    (false, _) => &[],
                    (true, IpAddr::V4(_)) => &ALERT_V4,
                    (true, IpAddr::V6(_)) => &ALERT_V6,
                },
                payload: b"path",
            }),
            Command::Lookup { group, source } => Output::MulticastLookup { group, source },
        })
    }

    fn entries(&self) -> Vec<EntryRequest> {
        let alert = AlertRule::Value { ipv4: 0, ipv6: 1 };
        let intercept = Intercept::passing(alert, Vec::new());
        vec![EntryRequest::local(ENTRY, Subsystem::protocol("rsvp")).with_intercept(intercept)]
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

fn received(sim: &mut Sim<Recorder>) -> Vec<(NodeId, Event)> {
    sim.run_for(SECOND);
    sim.take_events().into_iter().map(|happened| (happened.node, happened.event)).collect()
}

#[test]
fn an_alert_is_taken_by_the_next_node_that_runs_rsvp() {
    for family in [Family::V4, Family::V6] {
        let mut sim = Sim::new(1);
        let nodes = sim.add_engines(4, |_| Recorder::default());
        let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
        let (src, dst) = (sim.address(nodes[0], family), sim.address(nodes[3], family));
        let send = |alert| Command::Send { src, dst, ifindex: None, alert };
        let packet = |sim: &Sim<Recorder>, node: usize, link: usize, ttl, alert| {
            let ifindex = sim.ifindex(nodes[node], links[link]);
            (nodes[node], Event::Packet { src, ifindex, ttl, alert })
        };
        sim.command(nodes[0], send(true));
        assert_eq!(received(&mut sim), [packet(&sim, 1, 0, 63, true)]);
        // A hop without RSVP forwards it, with the TTL decremented once.
        sim.set_entry(nodes[1], ENTRY, false);
        sim.command(nodes[0], send(true));
        assert_eq!(received(&mut sim), [packet(&sim, 2, 1, 62, true)]);
        // The source stays that of the flow when another node sends the packet.
        sim.command(nodes[2], send(true));
        assert_eq!(received(&mut sim), [packet(&sim, 3, 2, 63, true)]);
        // Without a Router Alert only the destination receives it.
        sim.command(nodes[0], send(false));
        assert_eq!(received(&mut sim), [packet(&sim, 3, 2, 61, false)]);
    }
}

#[test]
fn multicast_goes_by_the_routes_that_were_laid() {
    let mut sim = Sim::new(1);
    let nodes = sim.add_engines(5, |_| Recorder::default());
    let config = LinkConfig::default();
    // Topology: 0 – 1 – 2, with 3 and 4 as leaves of 2.
    let links: Vec<_> =
        [(0, 1), (1, 2), (2, 3), (2, 4)].map(|(a, b)| sim.link(nodes[a], nodes[b], &config)).into();
    let source = sim.address(nodes[0], Family::V4);
    let group: IpAddr = "232.1.1.1".parse().unwrap();
    let way = |sim: &Sim<Recorder>, node: usize, iif: usize, oifs: &[usize]| Event::Multicast {
        iif: sim.ifindex(nodes[node], links[iif]),
        oifs: oifs.iter().map(|oif| sim.ifindex(nodes[node], links[*oif])).collect(),
    };
    sim.command(nodes[2], Command::Lookup { group, source });
    assert_eq!(received(&mut sim), [(nodes[2], Event::Multicast { iif: IfIndex::NONE, oifs: vec![] })]);
    sim.set_multicast_route(nodes[1], group, source, Some(links[0]), &[links[1]]);
    sim.set_multicast_route(nodes[2], group, source, Some(links[1]), &[links[2], links[3]]);
    let changed = way(&sim, 2, 1, &[2, 3]);
    assert_eq!(received(&mut sim), [(nodes[2], changed)], "whoever asked gets the change");
    for leaf in [3, 4] {
        sim.join(nodes[leaf], group);
    }
    let send = |sim: &mut Sim<Recorder>, alert| {
        let ifindex = Some(sim.ifindex(nodes[0], links[0]));
        sim.command(nodes[0], Command::Send { src: source, dst: group, ifindex, alert });
        received(sim)
    };
    let packet = |sim: &Sim<Recorder>, node: usize, link: usize, ttl, alert| {
        let ifindex = sim.ifindex(nodes[node], links[link]);
        (nodes[node], Event::Packet { src: source, ifindex, ttl, alert })
    };
    assert_eq!(send(&mut sim, true), [packet(&sim, 1, 0, 63, true)], "an alert stops at the first router");
    let leaves = [packet(&sim, 3, 2, 61, false), packet(&sim, 4, 3, 61, false)];
    assert_eq!(send(&mut sim, false), leaves);
    sim.leave(nodes[3], group);
    assert_eq!(send(&mut sim, false), leaves[1..]);
    sim.set_multicast_route(nodes[2], group, source, None, &[]);
    assert_eq!(received(&mut sim), [(nodes[2], Event::Multicast { iif: IfIndex::NONE, oifs: vec![] })]);
    assert_eq!(send(&mut sim, false), []);
}
