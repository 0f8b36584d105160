//! A node with the QoS client that receives any messages and requests in any order.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::node::{NoRoute, Prefix, Route};
use signalbox_core::{IfIndex, SessionId, Time};
use signalbox_resources::config::LinkConfig;
use signalbox_resources::{Rate, ResourceOutput, Resources};

use super::client::{self, Layer, OWN, STEPS, arrival, flow, indication};
use crate::clients::qos::{Amount, Config, PROTOCOL, QosClient, QosOutput, QosRequest, Range, Segment};
use crate::kit::interface;
use crate::wire::Objects;

use crate::wire::qos::{
    Bandwidth, Partial, QosClass, QosErrorCode, QosFlags, QosMessage, QosType, QosVersion,
};

const MAX_SESSIONS: u32 = 16;
const ETH: IfIndex = IfIndex(2);
/// Octets a second of the link.
const CAPACITY: u64 = 1_000_000;

/// A segment into which the interface leads, and to which some of the neighbors belong.
fn segment() -> Segment {
    Segment {
        scope: 1,
        interfaces: vec!["eth2".to_owned()],
        nodes: vec![Prefix { addr: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), len: 30 }],
        dscp: Some(10),
        map: vec![(1, 2)],
        outside: 0,
    }
}

struct Node {
    client: QosClient,
    resources: Resources,
    now: Time,
    layer: Layer,
}

impl Node {
    fn new(setup: u8) -> Option<Self> {
        let link =
            LinkConfig { reservable: "100%".parse().ok()?, ..LinkConfig::new("eth2", Some(Rate(CAPACITY))) };
        let links = signalbox_resources::Config { links: vec![link], ..Default::default() };
        let mut resources = Resources::new(links, 0, [1; 32]).ok()?;
        let config = Config {
            max_sessions: MAX_SESSIONS,
            refuse_unsecure: setup & 1 != 0,
            merge_unauthenticated: setup & 2 != 0,
            proxy: setup & 4 != 0,
            reserve_opposite: setup & 8 != 0,
            segments: if setup & 16 != 0 { vec![segment()] } else { Vec::new() },
            protected: vec![Prefix::host(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)))],
            ..Config::default()
        };
        let interfaces = [interface(ETH.0, vec![OWN.into()])];
        resources.interfaces(&interfaces);
        let mut client = QosClient::new(config, [1; 32]);
        client.interfaces(&interfaces);
        let layer = Layer::new(|octets| QosMessage::parse(octets).is_ok());
        Some(Self { client, resources, now: Time::from_secs(10), layer })
    }

    /// Takes all outputs; the messaging layer and the kernel do what they are asked.
    fn drain(&mut self) {
        loop {
            let mut lost = Vec::new();
            while let Some(output) = self.resources.poll() {
                match output {
                    ResourceOutput::Install { id, .. } => self.resources.installed(id, Ok(())),
                    ResourceOutput::Lost { owner, .. } if owner.protocol == PROTOCOL => lost.push(owner.key),
                    ResourceOutput::Lost { .. }
                    | ResourceOutput::Reduced { .. }
                    | ResourceOutput::Remove { .. } => {}
                }
            }
            for key in lost {
                self.client.lost(self.now, key, &mut self.resources);
            }
            let mut opened = None;
            match self.client.poll() {
                None => return,
                Some(QosOutput::Event { .. }) => {}
                Some(QosOutput::RouteLookup { id, query }) => {
                    let local = query.dst == IpAddr::from(OWN);
                    let route = Route { ifindex: ETH, src: OWN.into(), gateway: None, mtu: 1500, local };
                    let unreachable = query.dst_port == Some(3);
                    let result = if unreachable { Err(NoRoute::Unreachable) } else { Ok(route) };
                    self.client.route(self.now, id, result, &mut self.resources);
                }
                Some(QosOutput::Request(request)) => opened = self.layer.request(&request),
            }
            if let Some(opened) = opened {
                self.client.indication(self.now, &opened, &mut self.resources);
            }
        }
    }

    fn check(&self) {
        assert!(self.layer.has_all_verdicts(), "a message without verdict");
        assert!(self.client.sessions() <= MAX_SESSIONS);
        let reserved: u64 = self.resources.links().map(|link| link.reserved).sum();
        assert!(reserved <= CAPACITY, "{reserved} are booked");
    }

    fn wait(&mut self, time: Duration) {
        let step = |node: &mut Self| {
            node.client.timer(node.now, &mut node.resources);
            node.drain();
        };
        client::wait(self, time, |node| &mut node.now, |node| node.client.next_deadline(), step);
    }

    fn arrive(&mut self, choices: [u8; 3], data: &[u8]) {
        let id = self.layer.next_id();
        self.client.indication(self.now, &arrival(id, choices, data), &mut self.resources);
        self.drain();
    }
}

fn range(number: u8) -> Range {
    let rate = |steps: u8| Amount::Rate(f32::from(steps) * 50_000.0 + 1.0);
    let least = number & 15;
    Range { least: rate(least), most: rate(least.saturating_add(number >> 4)) }
}

/// A message with these choices.
fn message([what, which, more]: [u8; 3]) -> Vec<u8> {
    let mut message = QosMessage::new(QosType(what & 7), flow(which >> 3));
    message.flags = QosFlags::from_octet(more);
    message.sequence = message.kind.is_request().then_some(u32::from(more & 15));
    message.echo = (what & 8 != 0 || !message.kind.is_request()).then_some(u32::from(which & 15));
    message.age = (what & 16 == 0).then_some(u64::from(which & 3));
    message.version = Some(QosVersion(u32::from(what >> 7)));
    message.version = (what & 32 == 0).then_some(QosVersion::BANDWIDTH).or(message.version);
    let (Amount::Rate(lower), Amount::Rate(upper)) = (range(more).least, range(more).most) else {
        return Vec::new();
    };
    message.bandwidth = Some(Bandwidth { upper, lower });
    // Of every fourth session both directions are reserved.
    message.reverse_flow = (which & 3 == 3).then(|| (message.flow.reversed(), what & 1 == 0));
    let stamp = |seconds: u64| (2_208_988_800 + seconds) << 32;
    message.time = (which >> 6 == 3)
        .then(|| (stamp(u64::from(more) * 4), stamp(u64::from(more) * 4 + u64::from(what) * 8)));
    message.partial = (what & 64 != 0 || message.kind == QosType::ERROR)
        .then(|| Partial { failures_allowed: 1, ..Partial::default() });
    message.error_node = (message.kind == QosType::ERROR).then_some(OWN.into());
    message.error = (message.kind == QosType::ERROR).then_some((QosErrorCode::BELOW_MINIMUM, 0));
    // LOCAL: the DSCP of a segment.
    let local = [0, 9, QosClass::LOCAL.0, 1, 0, 1, which & 3, more & 1, more >> 1, 0, 0, 0];
    if which & 0x80 != 0 {
        message.objects = Objects::of(&local);
    }
    let mut octets = Vec::new();
    // What cannot be composed is a message without octets.
    let _ = message.encode(&mut octets);
    octets
}

/// Plays a run that the octets describe: four for each step.
///
/// # Panics
/// If a message gets no verdict or two, more is booked than the link has, or something stays for ever.
pub fn casp_qos_client(octets: &[u8]) {
    let Some((setup, steps)) = octets.split_first() else { return };
    let Some(mut node) = Node::new(*setup) else { return };
    for step in steps.chunks_exact(4).take(STEPS) {
        let [action, what, which, more] = *step else { return };
        let (now, id) = (node.now, u64::from(which & 7));
        let Node { client, resources, .. } = &mut node;
        match action & 7 {
            0 => node.wait(Duration::from_millis(u64::from(what) * 400 + u64::from(more))),
            1 => {
                let request = QosRequest {
                    flow: flow(which >> 3),
                    session: (what & 1 != 0).then_some(SessionId([which & 7; 16])),
                    kept: (what & 3 == 2).then_some(SessionId([which & 7; 16])),
                    by_receiver: what & 17 == 16,
                    range: range(more),
                    at_once: what & 2 != 0,
                    priority: (what & 32 != 0).then_some(which.into()),
                    both: what & 64 != 0,
                    time: (what & 128 != 0)
                        .then(|| (u64::from(more) * 1_000_000, u64::from(more) * 2_000_000)),
                    partial: (what & 4 != 0).then_some((1, 1)),
                };
                if what & 8 == 0 {
                    client.reserve(now, id, &request, resources);
                } else {
                    client.query(now, id, &request, resources);
                }
            }
            2 if what & 1 == 0 => client.change(now, id, range(more), resources),
            2 => client.release(now, id, resources),
            3 => client.indication(now, &indication([what, which, more]), resources),
            4 => {
                let first = resources.reservations().next().map(|one| one.grant);
                if let Some(grant) = first {
                    resources.delete(grant);
                }
            }
            5 => {
                let octets = message([what, which, more]);
                let raw = octets.get(usize::from(which)..).unwrap_or_default();
                node.arrive([action >> 3, which, more], raw);
            }
            _ => node.arrive([action >> 3, which, more], &message([what, which, more])),
        }
        node.drain();
        node.check();
    }
    for id in 0..8 {
        let Node { client, resources, now, .. } = &mut node;
        client.release(*now, id, resources);
        node.drain();
    }
    node.wait(Duration::from_secs(2000));
    assert_eq!(node.client.sessions(), 0, "sessions stay");
    assert_eq!(node.resources.reservations().count(), 0, "reservations stay");
}
