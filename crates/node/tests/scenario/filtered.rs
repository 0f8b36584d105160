//! A peer that answers Queries, and whose TCP a filter drops. The user gets this as the reason; soon after the filter is gone a new
//! request succeeds.

use core::cell::Cell;
use core::net::SocketAddr;
use core::time::Duration;

use signalbox_core::Time;
use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_node::natfw::{self, NatfwEvent, Options};
use signalbox_node::qos::{self, Flow, QosEvent, QosRequest, ReserveRequest};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Family, LinkConfig, NodeId, Sim, topology};

use crate::hostile::net::{SECOND, config};
use crate::natfw::net::open;

/// A node whose connections get no answer while they are filtered.
struct Host {
    node: Node,
    filtered: Cell<bool>,
}

impl NodeEngine for Host {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        self.node.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        Some(match self.node.poll()? {
            // An address of the same link that no node has.
            Output::StreamOpen { stream, kind, local, peer: SocketAddr::V4(peer) } if self.filtered.get() => {
                let [a, b, c, _] = peer.ip().octets();
                let absent = SocketAddr::from(([a, b, c, 250], peer.port()));
                Output::StreamOpen { stream, kind, local, peer: absent }
            }
            output => output,
        })
    }

    fn entries(&self) -> Vec<signalbox_core::EntryRequest> {
        self.node.entries()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.node.next_deadline()
    }
}

/// Two nodes. The first one asks; what it opens is filtered.
struct Pair {
    sim: Sim<Host>,
    from: NodeId,
    to: NodeId,
}

impl Pair {
    fn new(config: &Config) -> Self {
        let mut sim = Sim::new(1);
        let [from, to] = ["from", "to"].map(|name| {
            let config = config.clone();
            sim.add_engine(name, move |boot| {
                let node = Node::new(config.clone(), boot.seed).unwrap();
                Host { node, filtered: Cell::new(true) }
            })
        });
        topology::chain(&mut sim, &[from, to], &LinkConfig::default());
        sim.run_for(Duration::ZERO);
        Self { sim, from, to }
    }

    fn reserve(&mut self, id: u64) {
        let port = Some(5000 + u16::try_from(id).unwrap());
        let flow =
            Flow { protocol: Some(17), dst_port: port, ..Flow::to(self.sim.address(self.to, Family::V4)) };
        let request = ReserveRequest::new(flow, QosRequest::rate(12_500));
        let command = qos::Command::Reserve(Box::new(request));
        self.sim.command(self.from, Command::Qos { id, command });
    }

    fn open(&mut self, id: u64) {
        let to = (self.sim.address(self.to, Family::V4), 6000 + u16::try_from(id).unwrap()).into();
        let command = natfw::Command::Open(open(to, Options::default()));
        self.sim.command(self.from, Command::Natfw { id, command });
    }

    fn lift(&self) {
        self.sim.engine(self.from).unwrap().filtered.set(false);
    }

    /// What the user of a request has: true if it was granted, the text of its failure.
    fn result(sim: &Sim<Host>, asked: u64) -> Option<Result<(), String>> {
        sim.events().iter().find_map(|happened| match &happened.event {
            Event::Qos { id, event } if *id == asked => match &**event {
                QosEvent::Granted(_) => Some(Ok(())),
                QosEvent::Failed(failure) => Some(Err(format!("{failure:?}"))),
                _ => None,
            },
            Event::Natfw { id, event } if *id == asked => match event {
                NatfwEvent::Granted(_) => Some(Ok(())),
                NatfwEvent::Failed(failure) => Some(Err(failure.to_string())),
                _ => None,
            },
            _ => None,
        })
    }

    fn waits(&mut self, asked: u64, limit: Duration) -> Result<(), String> {
        let came = self.sim.wait(limit, |sim| Self::result(sim, asked).is_some());
        assert!(came, "nothing about {asked} in {limit:?}: {:?}", self.sim.events());
        Self::result(&self.sim, asked).unwrap()
    }
}

fn tcp() -> Config {
    let mut config = config();
    let gist = crate::net::gist(&mut config);
    gist.associations.sctp_port = None;
    config.qos.as_mut().unwrap().reliable = true;
    config.natfw.as_mut().unwrap().reliable = true;
    config.resources.trusted = ["0.0.0.0/0".parse().unwrap()].into();
    config
}

/// P13: the failure says that the peer answered, and by which transports it could not be reached. However long the obstacle
/// stood, and whatever was asked last, a request that follows its end is granted within five seconds.
#[test]
fn a_filtered_peer_is_no_absent_one_and_is_soon_tried_again() {
    let ask: [fn(&mut Pair, u64); 2] = [Pair::reserve, Pair::open];
    for ask in ask {
        for last in [0, 1, 3, 6, 9, 20] {
            let mut pair = Pair::new(&tcp());
            ask(&mut pair, 1);
            let failure = pair.waits(1, 60 * SECOND).unwrap_err();
            assert!(failure.contains("answered, but could not be reached by tcp"), "{failure}");
            for id in 2..6 {
                pair.sim.run_for(20 * SECOND);
                ask(&mut pair, id);
            }
            pair.sim.run_for(last * SECOND);
            pair.lift();
            ask(&mut pair, 6);
            let granted = pair.waits(6, 5 * SECOND);
            assert_eq!(granted, Ok(()), "{last} s after the last attempt");
        }
    }
}
