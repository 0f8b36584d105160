//! A node that receives any octets in Echo messages at any time.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use signalbox_core::node::{Interface, NoRoute, Route};
use signalbox_core::packet::Received;
use signalbox_core::{IfIndex, Time};
use signalbox_resources::config::Action;
use signalbox_resources::{Rate, ResourceOutput, Resources, Secret};

use crate::engine::{
    Aggregation as Aggregates, Boomerang, Command, Config, DomainKey, ENTRY, Input, Integrity, Output,
    Request, ServiceParameters,
};
use crate::wire::{
    Aggregation, Body, Classifier, Dropped, Ends, Flags, FlowSpec, Format, Known, Message, Options, Pass,
    Qos, Rates, checksum_is_valid, edit, icmp_error,
};

/// Capacity of each link, octets a second, and the part of it that reservations may have.
const CAPACITY: u64 = 100_000;
const SHARE: u64 = CAPACITY * 3 / 4;
const MAX_FLOWS: u32 = 24;
const MAX_AGGREGATES: u32 = 8;
/// Messages of one run.
const MESSAGES: usize = 256;
/// Deadlines in one pause; more are an endless loop.
const DEADLINES: u32 = 20_000;

const NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));
const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2));
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(232, 1, 1, 1));

struct Node {
    engine: Boomerang,
    resources: Resources,
    now: Time,
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
        let mut node = Self {
            engine: Boomerang::new(config, [1; 32]).ok()?,
            resources: Resources::new(links, 0, [2; 32]).ok()?,
            now: Time::from_secs(10),
            last: Vec::new(),
        };
        let interface = |n: u8| Interface {
            ifindex: IfIndex(n.into()),
            name: format!("eth{n}"),
            up: true,
            mtu: 1500,
            tunnel: false,
            addresses: vec![IpAddr::V4(Ipv4Addr::new(10, 0, n, 1))],
        };
        let interfaces = [interface(1), interface(2), interface(3)];
        node.resources.interfaces(&interfaces);
        node.input(Input::Interfaces(&interfaces));
        Some(node)
    }

    fn input(&mut self, input: Input<'_>) {
        self.engine.handle(self.now, input, &mut self.resources);
        loop {
            let (mut routes, mut groups, mut lost) = (Vec::new(), Vec::new(), Vec::new());
            while let Some(output) = self.engine.poll() {
                match output {
                    Output::Send(packet) => {
                        let ends = Ends { src: packet.src.ip(), dst: packet.dst.ip() };
                        if packet.src.ip() == NODE || packet.dont_fragment {
                            assert!(checksum_is_valid(&ends, packet.payload), "a whole message");
                            self.last = packet.payload.to_vec();
                        }
                    }
                    Output::RouteLookup { id, query } => routes.push((id, query.dst)),
                    Output::MulticastLookup { group, source } => groups.push((group, source)),
                    Output::MulticastRelease { .. } | Output::Event { .. } => {}
                }
            }
            while let Some(output) = self.resources.poll() {
                match output {
                    ResourceOutput::Install { id, .. } => self.resources.installed(id, Ok(())),
                    ResourceOutput::Lost { owner, grant, why } => {
                        lost.push(Input::Lost { key: owner.key, grant, why });
                    }
                    ResourceOutput::Remove { .. } | ResourceOutput::Reduced { .. } => {}
                }
            }
            if routes.is_empty() && groups.is_empty() && lost.is_empty() {
                return;
            }
            for (group, source) in groups {
                let input = branches(group, source, &[IfIndex(2), IfIndex(3), IfIndex(1)]);
                self.engine.handle(self.now, input, &mut self.resources);
            }
            for (id, dst) in routes {
                let ifindex = IfIndex(if dst == NEAR { 1 } else { 2 });
                let route = Route { ifindex, src: NODE, gateway: None, mtu: 1500, local: false };
                let known = matches!(dst, IpAddr::V4(v4) if v4.octets().first() == Some(&10));
                let result = if known { Ok(route) } else { Err(NoRoute::Unreachable) };
                self.engine.handle(self.now, Input::Route { id, result }, &mut self.resources);
            }
            for lost in lost {
                self.engine.handle(self.now, lost, &mut self.resources);
            }
        }
    }

    fn packet(&mut self, ends: Ends, octets: &[u8]) {
        let at = |address| SocketAddr::new(address, 0);
        let ifindex = IfIndex(if ends.src == NEAR { 1 } else { 2 });
        self.input(Input::Packet(Received {
            entry: ENTRY,
            src: at(ends.src),
            dst: at(ends.dst),
            ifindex,
            ttl: 60,
            tos: 0,
            options: &[],
            payload: octets,
        }));
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..DEADLINES {
            let Some(next) = self.engine.next_deadline().filter(|next| *next <= end) else {
                self.now = end;
                return self.input(Input::Timer);
            };
            self.now = self.now.max(next);
            self.input(Input::Timer);
        }
        panic!("timers come again and again");
    }

    /// Checks the properties that always hold.
    fn check(&self) {
        let (flows, aggregates) = (self.engine.flow_count(), self.engine.aggregate_count());
        assert!(flows <= MAX_FLOWS && aggregates <= MAX_AGGREGATES);
        assert_eq!(self.resources.len(), flows + aggregates, "a grant for each reservation");
        let mut sums = [0; 4];
        for one in self.resources.reservations() {
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
    let flow = FlowSpec::exact(Classifier {
        src: NEAR,
        dst: far,
        src_port: u16::from(number >> 2 & 15),
        dst_port: 5004,
        protocol: 17,
        tos: 0xb8,
        flags: 0,
    });
    let rate = 100_000 * u32::from(number >> 6);
    let qos = Qos::BitRate(Rates { forward: rate, reverse: rate / 2 });
    let format = Format::of(flow.family(), qos.format());
    let message = Message {
        pass,
        identifier: 1,
        sequence: 1,
        transaction: 1,
        format,
        flags: Flags::default(),
        refresh: 30,
        padding: 0,
        key: 1,
        body: Some(Body { flow, qos, options: Options::none() }),
    };
    let mut octets = Vec::new();
    message.encode(&ends, &mut octets);
    (ends, octets)
}

/// Adds the option of an aggregate, which `what` chooses.
fn aggregate(octets: &mut Vec<u8>, what: u8) {
    let mut flow = FlowSpec::exact(Classifier {
        src: NEAR,
        dst: FAR,
        src_port: 0,
        dst_port: 0,
        protocol: 17,
        tos: 0xb8,
        flags: 0,
    });
    (flow.mask.src_port, flow.mask.dst_port, flow.mask.tos) = (u16::MAX, u16::MAX, 0);
    let (address, transaction) = (FAR, u32::from(what >> 4 & 3));
    let option = Aggregation { address, transaction, flow, rate: 100_000 * u32::from(what >> 6) };
    edit::append_with(octets, u16::from(what >> 3 & 1), &Known::Aggregation(option));
}

/// The error of a router about a request.
fn unreachable(request: &[u8], ends: Ends) -> Vec<u8> {
    let packet = Received {
        entry: ENTRY,
        src: SocketAddr::new(ends.src, 0),
        dst: SocketAddr::new(ends.dst, 0),
        ifindex: IfIndex(2),
        ttl: 1,
        tos: 0,
        options: &[],
        payload: request,
    };
    let mut octets = Vec::new();
    icmp_error::compose(Dropped::NoRoute, &packet, &mut octets);
    octets
}

fn wish(far_end: IpAddr) -> Request {
    Request {
        far_end,
        src: None,
        dst: None,
        protocol: Some(17),
        src_port: Some(9),
        dst_port: Some(9),
        dscp: 46,
        rates: vec![Rates { forward: 80_000, reverse: 0 }],
        intserv: None,
        refresh: None,
        user: None,
        confirm_release: false,
        name_nodes: false,
    }
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
    assert_eq!((node.resources.len(), node.engine.session_count()), (0, 0), "state was left");
}
