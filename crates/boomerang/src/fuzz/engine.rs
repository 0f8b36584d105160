//! A node that receives any octets in Echo messages at any time.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::IfIndex;
use signalbox_core::packet::Received;
use signalbox_resources::config::Action;
use signalbox_resources::{Rate, Secret};

use crate::engine::{
    Aggregation as Aggregates, Command, Config, DomainKey, Input, Integrity, Request, ServiceParameters,
};
use crate::kit::{self, World, flow, interface, packet};
use crate::wire::{
    Aggregation, Dropped, Ends, Known, Message, Pass, Qos, Rates, checksum_is_valid, edit, icmp_error,
};

/// Capacity of each link, octets a second, and the part of it that reservations may have.
const CAPACITY: u64 = 100_000;
const SHARE: u64 = CAPACITY * 3 / 4;
const MAX_FLOWS: u32 = 24;
const MAX_AGGREGATES: u32 = 8;
/// Messages of one run.
const MESSAGES: usize = 256;

const NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));
const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2));
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(232, 1, 1, 1));

struct Node {
    world: World,
    /// The last request that this node sent as initiating node.
    last: Vec<u8>,
}

impl Node {
    fn new(setup: u8) -> Option<Self> {
        let key = DomainKey {
            id: 1,
            secret: Secret::new(*b"of the domain"),
            signs: true,
            verifies: true,
            from: 0,
            until: None,
        };
        let keys = if setup & 2 == 0 { Vec::new() } else { vec![key] };
        let integrity = Integrity { sign: !keys.is_empty(), keys, ..Integrity::default() };
        let aggregates = Aggregates {
            propose: setup & 4 != 0,
            members: 2,
            adopt: setup & 8 != 0,
            max: MAX_AGGREGATES,
            from_elsewhere: setup & 16 == 0,
            ..Aggregates::default()
        };
        let prove = setup & 1 != 0;
        let config = Config { max_flows: MAX_FLOWS, prove, integrity, aggregates, ..Config::default() };
        let mut links = signalbox_resources::Config::of_link("*", Rate(CAPACITY));
        links.default = Action::Allow;
        let mut world = World::new(config, links, [1; 32])?;
        world.source = NODE;
        world.routes.insert(NEAR, 1);
        world.elsewhere = |dst| match dst {
            IpAddr::V4(v4) if v4.octets().first() == Some(&10) => 2,
            _ => 0,
        };
        world.other_tree = (1, vec![2, 3, 1]);
        let address = |n| IpAddr::V4(Ipv4Addr::new(10, 0, n, 1));
        world.interfaces(&[1, 2, 3].map(|n| interface(n.into(), vec![address(n)])));
        let mut node = Self { world, last: Vec::new() };
        node.look();
        Some(node)
    }

    fn input(&mut self, input: Input<'_>) {
        self.world.input(input);
        self.look();
    }

    /// Looks at what the node sent.
    fn look(&mut self) {
        for sent in self.world.sent.drain(..) {
            if sent.ends.src == NODE || sent.dont_fragment {
                assert!(checksum_is_valid(&sent.ends, &sent.octets), "a whole message");
                self.last = sent.octets;
            }
        }
        self.world.events.clear();
        self.world.removed.clear();
    }

    fn packet(&mut self, ends: Ends, octets: &[u8]) {
        let ifindex = if ends.src == NEAR { 1 } else { 2 };
        self.input(Input::Packet(Received { ttl: 60, ..packet(ends, ifindex, octets) }));
    }

    fn wait(&mut self, time: Duration) {
        self.world.wait(time);
        self.look();
    }

    /// Checks the properties that always hold.
    fn check(&self) {
        let World { node, resources, .. } = &self.world;
        let (flows, aggregates) = (node.flow_count(), node.aggregate_count());
        assert!(flows <= MAX_FLOWS && aggregates <= MAX_AGGREGATES);
        assert_eq!(resources.len(), flows + aggregates, "a grant for each reservation");
        let mut sums = [0; 4];
        for one in resources.reservations() {
            if let Some(sum) = usize::try_from(one.ifindex.0).ok().and_then(|at| sums.get_mut(at)) {
                *sum += one.traffic.rate;
            }
        }
        assert!(sums.iter().all(|sum| *sum <= SHARE), "more than the share of a link");
    }
}

/// The multicast route of a source.
const fn branches(group: IpAddr, source: IpAddr, oifs: &[IfIndex]) -> Input<'_> {
    Input::Multicast { group, source, iif: IfIndex(1), oifs }
}

fn message(number: u8, to_group: bool) -> (Ends, Vec<u8>) {
    let far = if to_group { GROUP } else { FAR };
    let pass = if number & 1 == 0 { Pass::Request } else { Pass::Reply };
    let ends = match (pass, number & 2 == 0) {
        (Pass::Request, true) => Ends { src: NEAR, dst: far },
        (Pass::Request, false) => Ends { src: NEAR, dst: NODE },
        (Pass::Reply, true) => Ends { src: FAR, dst: NEAR },
        (Pass::Reply, false) => Ends { src: FAR, dst: NODE },
    };
    let rate = 100_000 * u32::from(number >> 6);
    let qos = Qos::BitRate(Rates { forward: rate, reverse: rate / 2 });
    let new = kit::message(pass, flow(NEAR, far, u16::from(number >> 2 & 15)), qos);
    let message = Message { identifier: 1, sequence: 1, ..new };
    let mut octets = Vec::new();
    message.encode(&ends, &mut octets);
    (ends, octets)
}

/// Adds the option of an aggregate, which `what` chooses.
fn aggregate(octets: &mut Vec<u8>, what: u8) {
    let mut flow = flow(NEAR, FAR, 0);
    flow.classifier.dst_port = 0;
    (flow.mask.src_port, flow.mask.dst_port, flow.mask.tos) = (u16::MAX, u16::MAX, 0);
    let (address, transaction) = (FAR, u32::from(what >> 4 & 3));
    let option = Aggregation { address, transaction, flow, rate: 100_000 * u32::from(what >> 6) };
    edit::append_with(octets, u16::from(what >> 3 & 1), &Known::Aggregation(option));
}

/// The error of a router about a request.
fn unreachable(request: &[u8], ends: Ends) -> Vec<u8> {
    let packet = Received { ttl: 1, ..packet(ends, 2, request) };
    let mut octets = Vec::new();
    icmp_error::compose(Dropped::NoRoute, &packet, &mut octets);
    octets
}

fn wish(far_end: IpAddr) -> Request {
    let rates = Rates { forward: 80_000, reverse: 0 };
    Request { src_port: Some(9), dst_port: Some(9), ..kit::request(far_end, rates) }
}

/// A node handles all messages and stays within its limits. Input: the first octet selects the settings. Then triples
/// follow: what happens (0: a message, with 4 one that has the option of an aggregate, with 8 one to a group; 1: time passes, with 8 after a change of the
/// route of the group; 2: a user opens or closes a session, or asks what the path has; 3: the
/// far end answers the last request of this node, or a router reports it as unreachable), which message or how long, and the number of changes (low three bits), each an offset and a
/// value. Checksums are corrected.
///
/// # Panics
/// If one of these properties does not hold.
pub fn boomerang_engine(octets: &[u8]) {
    let mut octets = octets.iter().copied();
    let Some(setup) = octets.next() else { return };
    let Some(mut node) = Node::new(setup) else { return };
    for _ in 0..MESSAGES {
        let (Some(what), Some(which), Some(changes)) = (octets.next(), octets.next(), octets.next()) else {
            break;
        };
        match what & 3 {
            1 => {
                if what & 8 != 0 {
                    let oifs = [IfIndex(2), IfIndex(3)];
                    let some = oifs.get(usize::from(which & 3)..).unwrap_or_default();
                    node.input(branches(GROUP, NEAR, some));
                }
                node.wait(Duration::from_millis(u64::from(which) * 200));
            }
            2 => {
                let far_end = if what & 8 == 0 { FAR } else { GROUP };
                let parameters = ServiceParameters {
                    bucket: 3000,
                    peak: None,
                    min_policed: 64,
                    max_packet: 1500,
                    guaranteed: (what & 32 != 0).then_some((20_000, 0)),
                };
                let intserv = (what & 16 != 0).then_some(parameters);
                let command = match which & 9 {
                    0 => Command::Open(Request { intserv, ..wish(far_end) }),
                    8 => Command::Query(wish(far_end)),
                    _ => Command::Close,
                };
                node.input(Input::Command { id: u64::from(which >> 1 & 3), command });
            }
            kind => {
                let (ends, mut message) = if kind == 0 {
                    let (ends, mut octets) = message(which, what & 12 == 8);
                    if what & 4 != 0 {
                        aggregate(&mut octets, what);
                    }
                    (ends, octets)
                } else if which & 1 != 0 {
                    (Ends { src: FAR, dst: NODE }, unreachable(&node.last, Ends { src: NODE, dst: FAR }))
                } else {
                    let mut reply = node.last.clone();
                    edit::turn_round(&mut reply, false);
                    (Ends { src: FAR, dst: NODE }, reply)
                };
                for _ in 0..changes & 7 {
                    let (Some(at), Some(value)) = (octets.next(), octets.next()) else { break };
                    if let Some(octet) = message.get_mut(usize::from(at)) {
                        *octet = value;
                    }
                }
                edit::set_checksum(&mut message, &ends);
                node.packet(ends, &message);
            }
        }
        node.check();
    }
    // After the longest holding time nothing is left but what own sessions refresh.
    node.wait(Duration::from_secs(600));
    node.check();
    let World { node, resources, .. } = &node.world;
    assert_eq!((resources.len(), node.session_count()), (0, 0), "state was left");
}
