//! A firewall or NAT that receives any messages and requests in any order.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::node::{NoRoute, Prefix, Route};
use signalbox_core::pinhole::{PinholeError, PinholeId};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{IfIndex, SessionId, Time};
use signalbox_resources::Resources;
use signalbox_resources::config::{Action, Opening, RuleConfig};

use super::client::{self, Layer, OWN, STEPS, arrival, flow, indication};
use crate::clients::natfw::{
    Config, NatfwClient, NatfwOutput, NatfwPackets, NatfwRequest, NatfwScope, NatfwTerms, Role,
};
use crate::engine::Request;
use crate::kit::interface;
use crate::wire::FlowId;
use crate::wire::natfw::{NatfwFilter, NatfwMessage, NatfwResult, NatfwStatus, NatfwType, NatfwValue, Tlvs};

const MAX_SESSIONS: u32 = 16;
const MAX_PINHOLES: u32 = 24;
/// The external address of a NAT, and its ports.
const OUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const PORTS: [u16; 2] = [40000, 40003];

struct Node {
    client: NatfwClient,
    resources: Resources,
    now: Time,
    /// What the kernel has.
    rules: BTreeMap<PinholeId, FlowFilter>,
    /// Pinholes whose answer the kernel keeps back.
    slow: Vec<(PinholeId, Result<(), PinholeError>)>,
    /// The kernel answers later; it refuses what is new.
    late: bool,
    full: bool,
    layer: Layer,
}

impl Node {
    fn new(setup: u8) -> Option<Self> {
        let opens = vec![Opening::Outward, Opening::Inward, Opening::Reserve];
        let rule = RuleConfig { opens, ..RuleConfig::new("all", Action::Allow) };
        let rules = if setup & 1 == 0 { vec![rule] } else { Vec::new() };
        let policy = signalbox_resources::Config { rules, max_pinholes: MAX_PINHOLES, ..Default::default() };
        let mut resources = Resources::new(policy, 0, [1; 32]).ok()?;
        let role = match setup >> 1 & 1 | setup >> 3 & 2 {
            0 => Role::Firewall,
            2 => Role::Nat,
            _ => Role::Host,
        };
        let config = Config {
            max_sessions: MAX_SESSIONS,
            role,
            external: Some(OUTER),
            first_port: PORTS[0],
            last_port: PORTS[1],
            substitutes: setup & 32 == 0,
            inside: vec!["eth2".to_owned()],
            require_application_id: setup & 4 != 0,
            require_authentication: setup & 8 != 0,
            ..Config::default()
        };
        let interfaces = [2, 3].map(|number| interface(number, vec![OWN.into()]));
        resources.interfaces(&interfaces);
        let mut client = NatfwClient::new(config, [1; 32]);
        client.interfaces(&interfaces);
        Some(Self {
            client,
            resources,
            now: Time::from_secs(10),
            rules: BTreeMap::new(),
            slow: Vec::new(),
            late: false,
            full: false,
            layer: Layer::new(|octets| NatfwMessage::parse(octets).is_ok()),
        })
    }

    /// Takes all outputs; the messaging layer and the kernel do what they are asked.
    fn drain(&mut self) {
        loop {
            let mut opened = None;
            match self.client.poll() {
                None => return,
                Some(NatfwOutput::Event { .. }) => {}
                Some(NatfwOutput::RouteLookup { id, query }) => {
                    let odd = matches!(query.dst, IpAddr::V4(v4) if v4.octets()[3] & 1 != 0);
                    let ifindex = IfIndex(if odd { 2 } else { 3 });
                    let route = Route { ifindex, src: OWN.into(), gateway: None, mtu: 1500, local: false };
                    let none = matches!(query.dst, IpAddr::V4(v4) if v4.octets()[3] == 5);
                    let result = if none { Err(NoRoute::Unreachable) } else { Ok(route) };
                    self.client.route(self.now, id, result, &mut self.resources);
                }
                Some(NatfwOutput::Open { id, pinhole, .. }) => {
                    let answer = if self.full && !self.rules.contains_key(&id) {
                        Err(PinholeError::Full)
                    } else {
                        self.rules.insert(id, pinhole.packets);
                        Ok(())
                    };
                    self.slow.push((id, answer));
                }
                Some(NatfwOutput::Close { id }) => drop(self.rules.remove(&id)),
                // A flow that stays as it is.
                Some(NatfwOutput::Request(Request::Translate { flow, outer, .. })) if flow == outer => {}
                Some(NatfwOutput::Request(Request::Translate { flow, outer, .. })) => {
                    assert_eq!((outer.src(), outer.dst()), (OUTER.into(), flow.dst()));
                    let port = outer.filter().src_port;
                    assert!(port.is_some_and(|port| (PORTS[0]..=PORTS[1]).contains(&port)), "{port:?}");
                }
                Some(NatfwOutput::Request(request)) => opened = self.layer.request(&request),
            }
            if let Some(opened) = opened {
                self.client.indication(self.now, &opened, &mut self.resources);
            }
            if !self.late {
                self.answer();
            }
        }
    }

    /// The kernel answers, in the order in which it was asked.
    fn answer(&mut self) {
        for (id, answer) in core::mem::take(&mut self.slow) {
            self.client.opened(self.now, id, answer, &mut self.resources);
        }
    }

    fn check(&self) {
        assert!(self.late || self.layer.has_all_verdicts(), "a message without verdict");
        assert!(self.client.sessions() <= MAX_SESSIONS);
        assert!(self.resources.passage_count() <= MAX_PINHOLES);
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

fn filter(number: u8, flow: &FlowId) -> NatfwFilter {
    let packets = flow.filter();
    let port = u16::from(number & 3);
    NatfwFilter {
        src: packets.src,
        dst: packets.dst,
        flow_label: None,
        protocols: if number & 4 == 0 { vec![17] } else { vec![6, 17] },
        src_ports: if number & 8 == 0 { Vec::new() } else { vec![(1, 1)] },
        dst_ports: vec![(0, port), (port + 1, port + u16::from(number >> 4))],
        spis: Vec::new(),
    }
}

/// A message with these choices.
fn message([what, which, more]: [u8; 3]) -> Vec<u8> {
    let kind = NatfwType(u16::from(what & 7));
    let msg_id = u64::from(more & 15);
    let mut values = vec![NatfwValue::MsgId(msg_id)];
    if kind == NatfwType::RESPONSE {
        let nested = Tlvs::of(&[]);
        let status = NatfwStatus(u16::from(what >> 3 & 3));
        let result = NatfwResult { status, flags: more, request: which & 7, msg_id, nested };
        values = vec![NatfwValue::Status(result)];
    } else {
        values.push(NatfwValue::Age(u64::from(which & 3)));
        if what & 8 != 0 || kind == NatfwType::TRIGGER {
            values.push(NatfwValue::Filter(filter(more, &flow(which >> 3))));
        }
        if what & 16 != 0 {
            values.push(NatfwValue::Lifetime(u32::from(more)));
        }
        let next = NatfwType(u16::from(more >> 5));
        if kind.may_be_followed_by(next) {
            values.push(NatfwValue::Next(next, Tlvs::of(&[])));
        }
        if what & 32 != 0 {
            values.push(NatfwValue::Time((2_208_988_800 + u64::from(more) * 20) << 32));
        }
        if what & 128 != 0 {
            // A wish, or the outer end of a filter that comes back.
            let port = PORTS[0] + u16::from(more & 3);
            let outer = NatfwFilter {
                src: Prefix::host(OUTER.into()),
                src_ports: vec![(port, port)],
                ..filter(more | 8, &flow(which >> 3))
            };
            values.push(if what & 8 == 0 { NatfwValue::Filter(outer) } else { NatfwValue::Nat(Some(outer)) });
        }
        if what & 64 != 0 {
            values.push(NatfwValue::ApplicationId(b"a"));
        }
    }
    let mut octets = Vec::new();
    // What cannot be composed is a message without octets.
    let _ = NatfwMessage::compose(kind, &values, &mut octets);
    octets
}

/// Plays a run that the octets describe: four for each step.
///
/// # Panics
/// If a message gets no verdict or two, more passages are open than policy allows, or something stays for ever.
pub fn casp_natfw_client(octets: &[u8]) {
    let Some((setup, steps)) = octets.split_first() else { return };
    let Some(mut node) = Node::new(*setup) else { return };
    for step in steps.chunks_exact(4).take(STEPS) {
        let [action, what, which, more] = *step else { return };
        let (now, id) = (node.now, u64::from(which & 7));
        let Node { client, resources, .. } = &mut node;
        match action & 7 {
            0 => node.wait(Duration::from_millis(u64::from(what) * 400 + u64::from(more))),
            1 if what & 1 == 0 => {
                let flow = flow(which >> 3);
                let filters = if what & 2 == 0 { Vec::new() } else { vec![filter(more, &flow)] };
                let by_receiver = what & 4 != 0;
                let packets = match what >> 3 & 3 {
                    0 | 1 => NatfwPackets::Along,
                    2 => NatfwPackets::Both,
                    _ => NatfwPackets::Against,
                };
                let scope = (what & 32 != 0).then_some(NatfwScope::Local);
                let terms = NatfwTerms { packets, scope, ..NatfwTerms::default() };
                let kept = (what & 64 != 0).then_some(SessionId([which & 7; 16]));
                let lifetime = Some(more.into());
                let request = NatfwRequest { flow, filters, by_receiver, lifetime, terms, kept };
                client.open(now, id, &request);
            }
            1 => {
                let any = Prefix { addr: Ipv4Addr::UNSPECIFIED.into(), len: 0 };
                client.accept(now, id, FlowFilter::between(any, any));
            }
            2 if what & 1 == 0 => client.query(now, id),
            2 if what & 2 == 0 => client.close(now, id, resources),
            2 => {
                client.move_to(now, id, flow(which >> 3));
            }
            3 => client.indication(now, &indication([what, which, more]), resources),
            4 => {
                (node.late, node.full) = (what & 1 != 0, what & 2 != 0);
                node.answer();
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
    node.late = false;
    node.answer();
    node.drain();
    for id in 0..8 {
        let Node { client, resources, now, .. } = &mut node;
        client.close(*now, id, resources);
        node.drain();
    }
    node.wait(Duration::from_secs(6000));
    node.check();
    assert_eq!(node.client.sessions(), 0, "sessions stay");
    assert_eq!(node.client.ports(), 0, "external ports stay");
    assert!(node.rules.is_empty(), "rules stay");
    assert_eq!(node.resources.passage_count(), 0, "passages stay");
}
