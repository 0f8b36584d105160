//! Rules that need two engines and a path between them: virtual time, a seeded path that loses and delays.

mod engine;

use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::mri::PathCoupled;
use signalbox_core::rng::Random;
use signalbox_core::service::{MessageHandle, MessageStatus, NetworkEvent, Request, SendError, SendMessage};
use signalbox_core::{Direction, IfIndex, Mri, SessionId, Time};
use signalbox_gist::engine::{Config, Input, Installation, PeeringPolicy};
use signalbox_gist::kit::{Node, Out, Packet, Via, interface, message, route};

const ADDRESSES: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const ONE_WAY: Duration = Duration::from_millis(5);
/// The least time from the first Query of a refresh to the end of the state: a quarter of the validity time.
const REFRESH: Duration = Duration::from_millis(7500);

/// A path that loses packets.
struct Path {
    rng: Random,
    loss: f64,
    /// The most packets that are lost in any time of [`REFRESH`].
    most_lost: usize,
    lost: Vec<Time>,
}

impl Path {
    /// Whether the next packet is lost.
    fn loses(&mut self, now: Time) -> bool {
        let lately = self.lost.iter().rev().take_while(|at| **at + REFRESH >= now).count();
        let lost = self.loss > 0.0 && lately < self.most_lost && self.rng.chance(self.loss);
        if lost {
            self.lost.push(now);
        }
        lost
    }
}

/// Two hosts on one link.
struct Pair {
    nodes: [Node; 2],
    path: Path,
    now: Time,
    flying: BTreeMap<(Time, u64), (usize, Packet)>,
    number: u64,
    received: [Vec<Vec<u8>>; 2],
    events: [Vec<NetworkEvent>; 2],
    statuses: Vec<MessageStatus>,
}

fn session() -> SessionId {
    SessionId([3; 16])
}

fn mri() -> Mri {
    Mri::PathCoupled(PathCoupled::between(ADDRESSES[0].parse().unwrap(), ADDRESSES[1].parse().unwrap()))
}

impl Pair {
    fn new(seed: u64, loss: f64, config: &Config) -> Self {
        let mut rng = Random::from_number(seed);
        let nodes = [(); 2].map(|()| Node::new(config.clone(), PeeringPolicy::Always, rng.array()).unwrap());
        let mut pair = Self {
            nodes,
            path: Path { rng, loss, most_lost: usize::MAX, lost: Vec::new() },
            now: Time::ZERO,
            flying: BTreeMap::new(),
            number: 0,
            received: [Vec::new(), Vec::new()],
            events: [Vec::new(), Vec::new()],
            statuses: Vec::new(),
        };
        (0..2).for_each(|at| pair.introduce(at));
        pair
    }

    fn introduce(&mut self, at: usize) {
        let address = ADDRESSES[at].parse().unwrap();
        self.nodes[at].route = Some(Ok(route(IfIndex(1), address)));
        self.handle(at, Input::Interfaces(&[interface(1, vec![address])]));
    }

    fn handle(&mut self, at: usize, input: Input<'_>) {
        self.nodes[at].now = self.now;
        self.nodes[at].handle(input);
        for (_, out) in core::mem::take(&mut self.nodes[at].out) {
            match out {
                Out::Sent(packet) => {
                    if !self.path.loses(self.now) {
                        self.number += 1;
                        self.flying.insert((self.now + ONE_WAY, self.number), (1 - at, packet));
                    }
                }
                Out::Delivered(message) => self.received[at].push(message.data),
                Out::Notified(_, event) => self.events[at].push(event),
                Out::Status(_, status) => self.statuses.push(status),
                other => panic!("these nodes have no channels: {other:?}"),
            }
        }
    }

    fn until(&mut self, seconds: u64) {
        let end = Time::from_secs(seconds);
        for step in 0.. {
            assert!(step < 1_000_000, "it does not come to rest");
            let timers = self.nodes.iter().filter_map(|node| node.gist.next_deadline()).min();
            let packet = self.flying.keys().next().map(|(at, _)| *at);
            let Some(next) = timers.into_iter().chain(packet).min().filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if packet.is_some_and(|at| at <= self.now) {
                let (_, (to, p)) = self.flying.pop_first().unwrap();
                let Packet { src, dst, ttl, options, payload, .. } = p;
                let via = Via { ttl, options, ..Via::normal(IfIndex(1), src, dst) };
                self.handle(to, Input::Datagram(via.packet(&payload)));
            } else {
                self.handle(0, Input::Timer);
                self.handle(1, Input::Timer);
            }
        }
        self.now = end;
    }

    fn send(&mut self, at: usize, data: &[u8], direction: Direction) {
        let message = message(data, mri().with_direction(direction), session());
        let message = SendMessage { handle: Some(MessageHandle(0)), ..message };
        self.handle(at, Input::Request(Request::SendMessage(message)));
    }

    /// Whether the responder has state.
    fn responder_has_state(&self) -> bool {
        self.nodes[1].gist.sessions().any(|s| s.upstream.is_some())
    }
}

fn busy() -> Config {
    Config { inactivity: Duration::from_secs(10_000), ..Config::default() }
}

const POLICIES: [Installation; 3] = [Installation::Immediate, Installation::Confirmed, Installation::Delayed];

/// A handshake and Data both ways under each policy, in one and a half round trips.
#[test]
fn two_nodes_exchange_data() {
    for installation in POLICIES {
        let mut pair = Pair::new(1, 0.0, &Config { installation, ..busy() });
        pair.send(0, b"ping", Direction::Downstream);
        pair.until(1);
        assert_eq!(pair.received[1], [b"ping"]);
        pair.send(1, b"pong", Direction::Upstream);
        pair.until(2);
        assert_eq!(pair.received[0], [b"pong"]);
        let both = pair.nodes.iter().map(|node| node.gist.counters());
        assert!(both.clone().all(|c| c.queries_retransmitted == 0 && c.errors_sent == 0));
    }
}

/// GIST-4.4.4-05, GIST-4.4.4-09, GIST-5.3.3-11: ten periods with half of all packets lost, but at most three in one
/// refresh: the Querying node refreshes so that the responder's state never runs out.
///
/// The Queries of a refresh are sent after 0, 0.5, 1.5 and 3.5 s, and the Responses that wait for a Confirm with the same
/// intervals. So four packets that are lost one after the other can end the state, and three cannot. Without this limit the
/// test would depend on the seed.
#[test]
fn refreshes_come_in_time() {
    let mut without = 0;
    for seed in 0..20 {
        for installation in POLICIES {
            let mut pair = Pair::new(seed, 0.0, &Config { installation, ..busy() });
            pair.send(0, b"ping", Direction::Downstream);
            pair.until(1);
            (pair.path.loss, pair.path.most_lost) = (0.5, 3);
            for second in 2..301 {
                pair.until(second);
                without += u32::from(!pair.responder_has_state());
            }
        }
    }
    assert_eq!(without, 0, "seconds without state in 60 runs");
}

/// Data is delivered in the end for any packet loss: lost Queries and Responses are repeated, a lost Confirm is detected by
/// an Error and repaired.
#[test]
fn losses_are_mended() {
    for seed in 0..60 {
        for installation in POLICIES {
            let config = Config { installation, attempts: 12, ..busy() };
            let mut pair = Pair::new(seed, 0.3, &config);
            let mut second = 0;
            while pair.received[1].is_empty() {
                assert!(second < 300, "seed {seed} {installation:?}: nothing arrives");
                pair.send(0, b"ping", Direction::Downstream);
                second += 1;
                pair.until(second);
            }
        }
    }
}

/// GIST-4.4.6-06, GIST-4.4.6-08, GIST-6.1-07: the responder restarted without state: the next Data is refused, and a
/// new handshake completes within a second.
#[test]
fn a_crash_is_found_out() {
    let mut pair = Pair::new(1, 0.0, &busy());
    pair.send(0, b"ping", Direction::Downstream);
    pair.until(1);
    pair.nodes[1] = Node::new(busy(), PeeringPolicy::Always, [9; 32]).unwrap();
    pair.introduce(1);
    pair.events = [Vec::new(), Vec::new()];
    pair.send(0, b"lost", Direction::Downstream);
    pair.until(2);
    pair.send(0, b"back", Direction::Downstream);
    pair.until(3);
    assert_eq!(pair.received[1], [b"ping", b"back"]);
    // Its identity changed, so it is another peer.
    assert!(matches!(
        pair.events[0][..],
        [NetworkEvent::Bad, NetworkEvent::Good(_), NetworkEvent::RouteDeleted(_)]
    ));
}

/// GIST-4.4.6-09: the querying node failed: Data of the responder is refused, and its state ends.
#[test]
fn a_crash_upstream_is_found_out() {
    let mut pair = Pair::new(1, 0.0, &busy());
    pair.send(0, b"ping", Direction::Downstream);
    pair.until(1);
    pair.nodes[0] = Node::new(busy(), PeeringPolicy::Always, [9; 32]).unwrap();
    pair.introduce(0);
    pair.send(1, b"pong", Direction::Upstream);
    pair.until(2);
    assert!(!pair.responder_has_state());
    assert_eq!(pair.events[1].last(), Some(&NetworkEvent::Bad));
    pair.statuses.clear();
    pair.send(1, b"pong", Direction::Upstream);
    assert_eq!(pair.statuses, [MessageStatus::Failed(SendError::NoStateUpstream)]);
}
