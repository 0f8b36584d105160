//! Peers that send each Data message with GIST hop count 1, as RFC 5971 A.1 lets them: only an application can preserve the
//! count of a message that it passes on (§4.3.3).

use core::time::Duration;

use signalbox_core::node::Output;
use signalbox_core::packet::Transmit;
use signalbox_gist::wire::{Header, MAGIC, MessageType};
use signalbox_node::natfw::{self, Middlebox, NatfwEvent, Options};
use signalbox_node::ping::{self, PingEvent, PingRequest};
use signalbox_node::qos::{self, Flow, QosEvent, QosRequest, ReserveRequest};
use signalbox_node::{Command, Config, Event};
use signalbox_sim::{Family, LinkConfig, NodeId, Sim, topology};

use crate::hostile::net::{Host, SECOND, config};
use crate::natfw::net::open;

/// Octets of GIST's common header.
const HEADER_OCTETS: usize = 8;

/// What makes of a node such a peer.
#[derive(Debug, Default)]
pub(crate) struct OneHop {
    octets: Vec<u8>,
    /// Data messages that it changed.
    pub(crate) changed: u64,
}

impl OneHop {
    /// The output with hop count 1 in its Data messages.
    pub(crate) fn rewrite<'a>(&'a mut self, output: Output<'a, Event>) -> Output<'a, Event> {
        match output {
            Output::Transmit(transmit) if transmit.payload.starts_with(&MAGIC) => {
                self.copy(transmit.payload, MAGIC.len());
                Output::Transmit(Transmit { payload: &self.octets, ..transmit })
            }
            Output::StreamWrite { stream, octets } => {
                self.copy(octets, 0);
                Output::StreamWrite { stream, octets: &self.octets }
            }
            other => other,
        }
    }

    /// Copies whole messages; the first one begins at `start`.
    fn copy(&mut self, octets: &[u8], start: usize) {
        self.octets.clear();
        self.octets.extend_from_slice(octets);
        let mut rest = &mut self.octets[start..];
        while let Some(first) = rest.first_chunk_mut::<HEADER_OCTETS>() {
            // The octets of a TLS channel are no messages.
            let Ok(header) = Header::parse(first) else { return };
            if header.kind == MessageType::DATA && header.hops > 1 {
                first[1] = 1;
                self.changed += 1;
            }
            let whole = HEADER_OCTETS + usize::from(header.length_words) * 4;
            let Some((_, next)) = rest.split_at_mut_checked(whole) else { return };
            rest = next;
        }
    }
}

/// Five nodes in a row, a sender, a peer that sends hop count 1, two nodes of ours and a receiver.
struct Row {
    sim: Sim<Host>,
    nodes: Vec<NodeId>,
}

impl Row {
    fn new(seed: u64, config: &Config) -> Self {
        let mut sim = Sim::new(seed);
        let nodes: Vec<_> = (0..5)
            .map(|n| {
                let mut config = config.clone();
                if let Some(natfw) = config.natfw.as_mut().filter(|_| n == 2 || n == 3) {
                    natfw.middlebox = Middlebox::Firewall;
                    (natfw.inside, natfw.outside) = (vec!["eth0".to_owned()], vec!["eth1".to_owned()]);
                }
                let trusted = ["0.0.0.0/0".parse().unwrap()];
                config.resources.trusted = trusted.into();
                sim.add_engine(format!("n{n}"), move |boot| {
                    let mut host = Host::new(&config, boot.seed);
                    host.one_hop = (n == 1).then(OneHop::default);
                    host
                })
            })
            .collect();
        topology::chain(&mut sim, &nodes, &LinkConfig::default());
        sim.run_for(Duration::ZERO);
        Self { sim, nodes }
    }

    fn event<T>(&mut self, of: impl Fn(&Event) -> Option<T>) -> T {
        let find = |sim: &Sim<Host>| sim.events().iter().find_map(|happened| of(&happened.event));
        let came = self.sim.wait(30 * SECOND, |sim| find(sim).is_some());
        assert!(came, "{:?}", self.sim.events());
        let changed = self.sim.engine(self.nodes[1]).unwrap().one_hop.as_ref().unwrap().changed;
        assert!(changed > 0, "no message had hop count 1");
        find(&self.sim).unwrap()
    }
}

fn configs() -> [Config; 2] {
    [false, true].map(|always| {
        let mut config = config();
        let gist = crate::net::gist(&mut config);
        (gist.associations.always, gist.associations.sctp_port) = (always, None);
        config.qos.as_mut().unwrap().reliable = always;
        config
    })
}

/// A RESERVE of a peer that preserves no count reaches the receiver, and the reservation stands at every node for longer than
/// its lifetime.
#[test]
fn a_reservation_passes_a_peer_that_preserves_no_hop_count() {
    for config in configs() {
        let mut row = Row::new(1, &config);
        let flow = Flow {
            protocol: Some(17),
            dst_port: Some(5004),
            ..Flow::to(row.sim.address(row.nodes[4], Family::V4))
        };
        let request = ReserveRequest::new(flow, QosRequest::rate(12_500));
        let command = qos::Command::Reserve(Box::new(request));
        row.sim.command(row.nodes[0], Command::Qos { id: 1, command });
        let granted = row.event(|event| match event {
            Event::Qos { event, .. } => match &**event {
                QosEvent::Granted(granted) => Some(granted.clone()),
                QosEvent::Failed(failure) => panic!("{failure:?}"),
                _ => None,
            },
            _ => None,
        });
        assert_eq!(granted.hops.len(), 5, "{granted:?}");
        for _ in 0..40 {
            row.sim.run_for(10 * SECOND);
            let held: Vec<_> = row.nodes.iter().map(|node| row.sim.reservations(*node).count()).collect();
            assert_eq!(held, [1, 1, 1, 1, 0], "at {}", row.sim.now());
        }
        row.sim.command(row.nodes[0], Command::Qos { id: 1, command: qos::Command::Release });
        let nodes = row.nodes.clone();
        let free = |sim: &Sim<Host>| nodes.iter().all(|node| sim.reservations(*node).count() == 0);
        assert!(row.sim.wait(5 * SECOND, free));
    }
}

/// So does a CREATE.
#[test]
fn a_pinhole_passes_a_peer_that_preserves_no_hop_count() {
    let [config, _] = configs();
    let mut row = Row::new(2, &config);
    let to = (row.sim.address(row.nodes[4], Family::V4), 6000).into();
    let command = natfw::Command::Open(open(to, Options::default()));
    row.sim.command(row.nodes[0], Command::Natfw { id: 1, command });
    row.event(|event| match event {
        Event::Natfw { event: NatfwEvent::Granted(_), .. } => Some(()),
        Event::Natfw { event: NatfwEvent::Failed(failure), .. } => panic!("{failure:?}"),
        _ => None,
    });
}

/// And a ping of each format, there and back.
#[test]
fn a_ping_passes_a_peer_that_preserves_no_hop_count() {
    for format in [ping::Format::Signalbox, ping::Format::Nsis] {
        let [config, _] = configs();
        let mut row = Row::new(3, &config);
        let dst = row.sim.address(row.nodes[4], Family::V4);
        let request = PingRequest { count: Some(1), format, ..PingRequest::to(dst) };
        row.sim.command(row.nodes[0], Command::Ping { id: 1, command: ping::Command::Start(request) });
        let reply = row.event(|event| match event {
            Event::Ping { event: PingEvent::Reply(reply), .. } => Some(reply.clone()),
            Event::Ping { event: PingEvent::Lost { reason, .. }, .. } => panic!("{reason:?}"),
            _ => None,
        });
        assert!(reply.reached_end, "{reply:?}");
    }
}
