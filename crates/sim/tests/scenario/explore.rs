//! Explorations of a protocol with a few messages, of which every run is known.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use signalbox_core::metrics::Subsystem;
use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_core::packet::Transmit;
use signalbox_core::{Entry, EntryRequest, Time};
use signalbox_sim::explore::{Bounds, Explored, Model, explore};
use signalbox_sim::{Boot, Family, LinkConfig, NodeId, Sim, topology};

const ENTRY: Entry = Entry::Ip(253);
const AGAIN: Duration = Duration::from_secs(1);

/// Sends a number to each of its peers until the peer acknowledges it, and counts the numbers that it receives.
struct Counter {
    /// Whether it notices that it has received a number before.
    careful: bool,
    peers: Vec<IpAddr>,
    again: Option<Time>,
    out: VecDeque<(IpAddr, [u8; 1])>,
    said: Option<(IpAddr, [u8; 1])>,
    known: Vec<u8>,
    counted: u32,
}

const NUMBER: u8 = 7;
const ACK: u8 = 0x80;

impl NodeEngine for Counter {
    type Command = Vec<IpAddr>;
    type Event = ();

    fn handle(&mut self, now: Time, input: Input<'_, Self::Command>) {
        match input {
            Input::Command(peers) => self.peers = peers,
            Input::Packet(packet) => {
                let (from, octet) = (packet.src.ip(), packet.payload[0]);
                if octet & ACK != 0 {
                    self.peers.retain(|peer| *peer != from);
                    self.again = self.again.filter(|_| !self.peers.is_empty());
                    return;
                }
                self.out.push_back((from, [octet | ACK]));
                if !self.careful || !self.known.contains(&octet) {
                    self.known.push(octet);
                    self.counted += 1;
                }
                return;
            }
            Input::Timer if self.again.is_some_and(|at| at <= now) => {}
            _ => return,
        }
        self.out.extend(self.peers.iter().map(|peer| (*peer, [NUMBER])));
        self.again = (!self.peers.is_empty()).then(|| now + AGAIN);
    }

    fn poll(&mut self) -> Option<Output<'_, ()>> {
        self.said = self.out.pop_front();
        let (dst, payload) = self.said.as_ref()?;
        Some(Output::Transmit(Transmit {
            gateway: None,
            entry: ENTRY,
            src: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            dst: SocketAddr::new(*dst, 0),
            ifindex: None,
            ttl: 64,
            tos: 0,
            dont_fragment: false,
            flow_label: 0,
            unproved: false,
            options: &[],
            payload,
        }))
    }

    fn next_deadline(&self) -> Option<Time> {
        self.again
    }

    fn entries(&self) -> Vec<EntryRequest> {
        vec![EntryRequest::local(ENTRY, Subsystem::protocol("counter"))]
    }
}

/// One sender in the middle, and its peers.
struct Star {
    peers: u32,
    careful: bool,
    duration: Duration,
}

impl Model for Star {
    type Engine = Counter;

    fn network(&self) -> Sim<Counter> {
        let mut sim = Sim::new(1);
        let careful = self.careful;
        let make = move |_: Boot| Counter {
            careful,
            peers: Vec::new(),
            again: None,
            out: VecDeque::new(),
            said: None,
            known: Vec::new(),
            counted: 0,
        };
        let nodes = sim.add_engines(self.peers + 1, make);
        for peer in &nodes[1..] {
            topology::chain(&mut sim, &[nodes[0], *peer], &LinkConfig::default());
        }
        let peers = nodes[1..].iter().map(|peer| sim.address(*peer, Family::V4)).collect();
        sim.command(nodes[0], peers);
        sim
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn restarted(&self, _: &mut Sim<Counter>, _: NodeId) {}

    fn always(&self, sim: &Sim<Counter>) -> Result<(), String> {
        match sim.nodes().filter_map(|node| sim.engine(node)).map(|engine| engine.counted).max() {
            Some(0 | 1) | None => Ok(()),
            Some(counted) => Err(format!("a number was counted {counted} times")),
        }
    }

    fn finally(&self, sim: &mut Sim<Counter>) -> Result<(), String> {
        sim.run_for(AGAIN * 3);
        let counted = sim.nodes().filter_map(|node| sim.engine(node)).filter(|engine| engine.counted > 0);
        if counted.count() < self.peers as usize { Err("a number is missing".to_owned()) } else { Ok(()) }
    }
}

fn star(peers: u32, careful: bool, duration: Duration) -> Star {
    Star { peers, careful, duration }
}

const fn faults(faults: u32) -> Bounds {
    Bounds { faults, restarts: 0 }
}

/// Two messages and their answers, without faults. Each pair is on its way, answered, or done. That makes nine states, but
/// the order of the two answers makes a tenth, and from both last ones time passes. Runs that differ in the order of
/// other events are the same state.
#[test]
fn every_order_is_a_run_and_equal_states_are_one() {
    let explored = explore(&star(1, true, AGAIN / 2), faults(0)).unwrap();
    assert_eq!(explored, Explored { states: 4, transitions: 3, ends: 1, depth: 3 });
    let explored = explore(&star(2, true, AGAIN / 2), faults(0)).unwrap();
    assert_eq!(explored, Explored { states: 12, transitions: 14, ends: 2, depth: 5 });
}

#[test]
fn a_protocol_that_is_right_passes_with_all_faults() {
    let explored = explore(&star(2, true, AGAIN * 3), faults(2)).unwrap();
    assert!(explored.states > 1000, "{explored}");
}

/// One late acknowledgment or one doubled packet is enough, and the report shows it.
#[test]
fn a_protocol_that_counts_twice_is_found() {
    let broken = explore(&star(1, false, AGAIN * 3), faults(1)).unwrap_err();
    assert_eq!(broken.promise, "a number was counted 2 times");
    assert!(broken.to_string().contains("DELAYED 1 messages until 1.0"), "{broken}");
    assert!(explore(&star(1, false, AGAIN * 3), faults(0)).is_ok());
    // Before the first message is repeated, only its copy can be counted.
    let broken = explore(&star(1, false, AGAIN / 2), faults(1)).unwrap_err();
    assert!(broken.to_string().contains("DOUBLED message 1 of n0 to n1"), "{broken}");
}

/// A node that restarts has lost its state, and counts again; a message that is late arrives after it.
#[test]
fn restarts_and_delays_are_faults() {
    struct Restarting(Star);
    impl Model for Restarting {
        type Engine = Counter;
        fn network(&self) -> Sim<Counter> {
            self.0.network()
        }
        fn duration(&self) -> Duration {
            self.0.duration
        }
        fn restarted(&self, _: &mut Sim<Counter>, _: NodeId) {}
        fn always(&self, _: &Sim<Counter>) -> Result<(), String> {
            Ok(())
        }
        fn finally(&self, sim: &mut Sim<Counter>) -> Result<(), String> {
            self.0.finally(sim)
        }
    }
    let model = Restarting(star(1, true, AGAIN * 2));
    let broken = explore(&model, Bounds { faults: 1, restarts: 1 }).unwrap_err();
    assert_eq!(broken.promise, "a number is missing");
    assert!(broken.run.iter().any(|line| line.contains("RESTART of n")), "{broken}");
    let explored = explore(&model, faults(1)).unwrap();
    assert!(explored.states > 10, "{explored}");
}
