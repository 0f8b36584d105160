//! A path of nodes: hosts at both ends, firewalls between them. The inner side of each firewall is that of the nearer host.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use signalbox_casp::clients::natfw::{
    Config, NatfwClient, NatfwEvent, NatfwOutput, NatfwRequest, NatfwTerms, Role,
};
use signalbox_casp::engine::{Arrival, Indication, Request, Verdict};
use signalbox_casp::kit;
pub(crate) use signalbox_casp::kit::LIFETIME;
use signalbox_casp::wire::FlowId;
use signalbox_casp::wire::natfw::{
    NatfwFilter, NatfwMessage, NatfwResult, NatfwStatus, NatfwType, NatfwValue, Tlvs,
};
use signalbox_core::node::{Interface, Prefix, Route};
use signalbox_core::pinhole::{Endpoint, PinholeError};
use signalbox_core::security::{Fingerprint, Identity};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{IfIndex, SessionId, Time};
use signalbox_resources::Resources;
use signalbox_resources::config::{Action, Opening, RuleConfig};

pub(crate) const LEFT: IfIndex = IfIndex(2);
pub(crate) const RIGHT: IfIndex = IfIndex(3);
/// The session that the first host opens.
pub(crate) const FIRST: SessionId = SessionId([2; 16]);

/// The address of node `n`.
pub(crate) fn at(n: usize) -> IpAddr {
    format!("10.0.{n}.1").parse().unwrap()
}

/// The flow from the first of `nodes` nodes to the last one.
pub(crate) fn flow(nodes: usize) -> FlowId {
    let v4 = |n| match at(n) {
        IpAddr::V4(v4) => v4,
        IpAddr::V6(_) => unreachable!(),
    };
    kit::flow(v4(0), v4(nodes - 1), 5000, 600)
}

/// The rig's flow from another address of its source.
pub(crate) fn moved(nodes: usize) -> FlowId {
    match flow(nodes) {
        FlowId::V4Ports { dst, src_port, dst_port, protocol, .. } => {
            FlowId::V4Ports { src: "10.0.0.9".parse().unwrap(), dst, src_port, dst_port, protocol }
        }
        _ => unreachable!(),
    }
}

/// The packets of the rig's flow, as a filter.
pub(crate) fn filter(nodes: usize) -> NatfwFilter {
    NatfwFilter {
        src: Prefix::host(at(0)),
        dst: Prefix::host(at(nodes - 1)),
        flow_label: None,
        protocols: vec![17],
        src_ports: vec![(5000, 5000)],
        dst_ports: vec![(600, 600)],
        spis: Vec::new(),
    }
}

/// The packets against those of the rig's flow.
pub(crate) fn back(nodes: usize) -> NatfwFilter {
    let there = filter(nodes);
    NatfwFilter {
        src: there.dst,
        dst: there.src,
        src_ports: there.dst_ports,
        dst_ports: there.src_ports,
        ..there
    }
}

/// The flow of a message as its next node gets it.
fn sent(
    outer: &BTreeMap<(SessionId, FlowId), FlowId>,
    session: SessionId,
    flow: FlowId,
    reverse: bool,
) -> FlowId {
    outer.get(&(session, flow)).filter(|_| !reverse).copied().unwrap_or(flow)
}

/// A message that is under way.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) session: SessionId,
    pub(crate) flow: FlowId,
    pub(crate) reverse: bool,
    /// The node that gets it.
    pub(crate) to: usize,
    pub(crate) from: usize,
    pub(crate) hops: u8,
    pub(crate) data: Vec<u8>,
}

impl Packet {
    pub(crate) fn kind(&self) -> NatfwType {
        NatfwMessage::parse(&self.data).unwrap().kind
    }

    pub(crate) fn values(&self) -> Vec<NatfwValue<'_>> {
        NatfwMessage::parse(&self.data).unwrap().values().collect()
    }

    pub(crate) fn msg_id(&self) -> u64 {
        let id = |value: &NatfwValue<'_>| if let NatfwValue::MsgId(id) = value { Some(*id) } else { None };
        self.values().iter().find_map(id).unwrap()
    }

    pub(crate) fn age(&self) -> u64 {
        let age = |value: &NatfwValue<'_>| if let NatfwValue::Age(age) = value { Some(*age) } else { None };
        self.values().iter().find_map(age).unwrap()
    }

    pub(crate) fn lifetime(&self) -> Option<u32> {
        self.values().iter().find_map(|value| match value {
            NatfwValue::Lifetime(seconds) => Some(*seconds),
            _ => None,
        })
    }

    pub(crate) fn filters(&self) -> Vec<NatfwFilter> {
        let filter = |value| if let NatfwValue::Filter(filter) = value { Some(filter) } else { None };
        self.values().into_iter().filter_map(filter).collect()
    }

    /// NAT_OBJECT: absent, empty, or a filter.
    pub(crate) fn nat(&self) -> Option<Option<NatfwFilter>> {
        let nat = |value| if let NatfwValue::Nat(filter) = value { Some(filter) } else { None };
        self.values().into_iter().find_map(nat)
    }

    pub(crate) fn results(&self) -> Vec<NatfwResult<'_>> {
        let status = |value| if let NatfwValue::Status(result) = value { Some(result) } else { None };
        self.values().into_iter().filter_map(status).collect()
    }
}

pub(crate) struct Node {
    pub(crate) client: NatfwClient,
    pub(crate) resources: Resources,
    /// What the kernel lets pass, and until when.
    pub(crate) rules: BTreeMap<u64, (FlowFilter, Time)>,
    pub(crate) events: Vec<(u64, NatfwEvent)>,
    pub(crate) torn_down: u32,
    /// What the kernel answers to the next pinhole that is new.
    pub(crate) kernel: Result<(), PinholeError>,
    /// The kernel does not answer.
    pub(crate) silent: bool,
    /// Flows that the next hops see, by those of the previous hops.
    pub(crate) outer: BTreeMap<(SessionId, FlowId), FlowId>,
    /// The sources that the kernel gives to packets that it lets pass.
    pub(crate) sources: BTreeMap<u64, Option<Endpoint>>,
    /// Sessions with a flow of which a message arrived, and those that this node opened itself.
    known: BTreeSet<(SessionId, FlowId)>,
    initiated: BTreeSet<(SessionId, FlowId)>,
    held: BTreeMap<u64, Packet>,
}

pub(crate) struct Rig {
    pub(crate) nodes: Vec<Node>,
    pub(crate) now: Time,
    /// Messages that arrived, in their order.
    pub(crate) seen: Vec<Packet>,
    /// Hops prove who they are.
    pub(crate) authenticated: bool,
    /// All nodes have answered at their addresses.
    pub(crate) answered: bool,
    /// Messages to this node are lost.
    pub(crate) deaf: Option<usize>,
    refreshing: bool,
    /// Routes are given later, by [`Rig::routed`].
    pub(crate) slow_routes: bool,
    lookups: Vec<(usize, u64, Route)>,
    queue: VecDeque<Packet>,
    next_id: u64,
    next_session: u8,
}

impl Node {
    fn new(n: usize, policy: signalbox_resources::Config, config: Config, seed: u8) -> Self {
        let interfaces = [interface(LEFT, "left", vec![at(n)]), interface(RIGHT, "right", Vec::new())];
        let mut resources = Resources::new(policy, 0, [1; 32]).unwrap();
        resources.interfaces(&interfaces);
        let mut client = NatfwClient::new(config, [seed; 32]);
        client.interfaces(&interfaces);
        client.set_wall_clock(1_700_000_000_000_000);
        Self {
            client,
            resources,
            rules: BTreeMap::new(),
            events: Vec::new(),
            torn_down: 0,
            kernel: Ok(()),
            silent: false,
            outer: BTreeMap::new(),
            sources: BTreeMap::new(),
            known: BTreeSet::new(),
            initiated: BTreeSet::new(),
            held: BTreeMap::new(),
        }
    }
}

/// Policy by which anyone opens everything.
pub(crate) fn open_policy() -> signalbox_resources::Config {
    let opens = vec![Opening::Outward, Opening::Inward, Opening::Reserve];
    let rule = RuleConfig { opens, ..RuleConfig::new("all", Action::Allow) };
    signalbox_resources::Config { rules: vec![rule], ..signalbox_resources::Config::default() }
}

/// An interface that is up.
pub(crate) fn interface(ifindex: IfIndex, name: &str, addresses: Vec<IpAddr>) -> Interface {
    Interface { name: name.to_owned(), ..kit::interface(ifindex.0, addresses) }
}

impl Rig {
    /// Firewalls that let their own hosts decide.
    pub(crate) fn new(nodes: usize) -> Self {
        Self::with(nodes, &|_| signalbox_resources::Config::default(), &|_, config| config)
    }

    /// Firewalls that anyone opens.
    pub(crate) fn open(nodes: usize) -> Self {
        Self::with(nodes, &|_| open_policy(), &|_, config| config)
    }

    pub(crate) fn with(
        nodes: usize,
        policy: &dyn Fn(usize) -> signalbox_resources::Config,
        set: &dyn Fn(usize, Config) -> Config,
    ) -> Self {
        let node = |n: usize| {
            let near_first = n < nodes.div_ceil(2);
            let inside = vec![if near_first { "left" } else { "right" }.to_owned()];
            let role = if n != 0 && n + 1 != nodes { Role::Firewall } else { Role::Host };
            let config = set(n, Config { role, inside, ..Config::default() });
            Node::new(n, policy(n), config, u8::try_from(n).unwrap())
        };
        Self {
            nodes: (0..nodes).map(node).collect(),
            now: Time::from_secs(10),
            seen: Vec::new(),
            authenticated: false,
            answered: true,
            deaf: None,
            refreshing: false,
            slow_routes: false,
            lookups: Vec::new(),
            queue: VecDeque::new(),
            next_id: 1,
            next_session: 1,
        }
    }

    /// A host crashes and starts again, with nothing.
    pub(crate) fn restart(&mut self, n: usize) {
        self.restart_as(n, Config::default());
    }

    /// The same with a configuration.
    pub(crate) fn restart_as(&mut self, n: usize, config: Config) {
        // The next one draws other numbers.
        let seed = u8::try_from(self.next_id % 64).unwrap() + 128;
        self.nodes[n] = Node::new(n, signalbox_resources::Config::default(), config, seed);
    }

    /// A request of the first node to the last one.
    pub(crate) fn request(&self, by_receiver: bool) -> NatfwRequest {
        NatfwRequest {
            flow: flow(self.nodes.len()),
            filters: Vec::new(),
            by_receiver,
            lifetime: None,
            terms: NatfwTerms::default(),
            kept: None,
        }
    }

    /// Asks for a passage from the first node to the last one.
    pub(crate) fn ask(&mut self, by_receiver: bool) {
        let request = self.request(by_receiver);
        self.nodes[0].client.open(self.now, 1, &request);
        self.run();
    }

    /// The last node accepts what is for it.
    pub(crate) fn accept(&mut self) {
        let last = self.nodes.len() - 1;
        let any = Prefix { addr: "0.0.0.0".parse().unwrap(), len: 0 };
        assert!(self.nodes[last].client.accept(
            self.now,
            9,
            FlowFilter::between(any, Prefix::host(at(last)))
        ));
    }

    /// A passage that stands.
    pub(crate) fn standing(nodes: usize, by_receiver: bool) -> Self {
        let mut rig = if by_receiver { Self::new(nodes) } else { Self::open(nodes) };
        if by_receiver {
            rig.accept();
        }
        rig.ask(by_receiver);
        assert!(
            matches!(rig.nodes[0].events.last(), Some((1, NatfwEvent::Opened { .. }))),
            "{:?} {:?}",
            rig.nodes[0].events,
            rig.seen
        );
        rig.clear();
        rig
    }

    pub(crate) fn close(&mut self) {
        let Node { client, resources, .. } = &mut self.nodes[0];
        client.close(self.now, 1, resources);
        self.run();
    }

    pub(crate) fn clear(&mut self) {
        self.seen.clear();
        self.nodes.iter_mut().for_each(|node| node.events.clear());
    }

    /// Gives a message of node `from` to node `to`.
    pub(crate) fn inject(&mut self, from: usize, to: usize, kind: NatfwType, values: &[NatfwValue<'_>]) {
        let mut data = Vec::new();
        NatfwMessage::compose(kind, values, &mut data).unwrap();
        self.inject_octets(from, to, data);
    }

    pub(crate) fn inject_octets(&mut self, from: usize, to: usize, data: Vec<u8>) {
        let flow = flow(self.nodes.len());
        self.carry(Packet { session: FIRST, flow, reverse: from > to, to, from, hops: 1, data });
    }

    pub(crate) fn carry(&mut self, packet: Packet) {
        self.queue.push_back(packet);
        self.run();
    }

    /// A refresh of the rig's flow arrives at the second node, whose messaging layer does not know the session. Whether it goes on.
    pub(crate) fn refresh(&mut self, session: SessionId) -> bool {
        self.refresh_of(session, 0)
    }

    /// The same from a hop with the address of node `from`.
    pub(crate) fn refresh_of(&mut self, session: SessionId, from: usize) -> bool {
        let (flow, data) = (flow(self.nodes.len()), Vec::new());
        self.refreshing = true;
        self.deliver(Packet { session, flow, reverse: false, to: 1, from, hops: 1, data });
        self.refreshing = false;
        while self.drain(1) {}
        let (refreshes, others) = self.queue.drain(..).partition(|one: &Packet| one.data.is_empty());
        self.queue = others;
        self.seen.retain(|one| !one.data.is_empty());
        self.run();
        !VecDeque::is_empty(&refreshes)
    }

    pub(crate) fn indicate(&mut self, node: usize, indication: &Indication<'_>) {
        let Node { client, resources, .. } = &mut self.nodes[node];
        client.indication(self.now, indication, resources);
        self.run();
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..100_000 {
            let next = self.nodes.iter().filter_map(|node| node.client.next_deadline()).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            for node in &mut self.nodes {
                node.client.timer(self.now, &mut node.resources);
            }
            self.run();
        }
        panic!("the timers make no progress");
    }

    /// Carries messages until none is left.
    pub(crate) fn run(&mut self) {
        loop {
            for n in 0..self.nodes.len() {
                while self.drain(n) {}
            }
            let Some(packet) = self.queue.pop_front() else { return };
            if self.deaf != Some(packet.to) {
                self.deliver(packet);
            }
        }
    }

    fn deliver(&mut self, mut packet: Packet) {
        let n = packet.to;
        // The messaging layer of a NAT rewrites FLOW_ID on the way back.
        let outer = |((session, inner), outer): (&(SessionId, FlowId), &FlowId)| {
            (*session == packet.session && *outer == packet.flow).then_some(*inner)
        };
        let arrived = packet.clone();
        if let Some(inner) = self.nodes[n].outer.iter().find_map(outer).filter(|_| packet.reverse) {
            packet.flow = inner;
        }
        self.seen.push(arrived);
        let id = self.next_id;
        self.next_id += 1;
        let at_end =
            if self.goes_left(&packet.flow, packet.reverse) { n == 0 } else { n + 1 == self.nodes.len() };
        let node = &mut self.nodes[n];
        node.known.insert((packet.session, packet.flow));
        let last = at_end || (packet.reverse && node.initiated.contains(&(packet.session, packet.flow)));
        let arrival = Arrival {
            reverse: packet.reverse,
            hops: packet.hops,
            peer: at(packet.from),
            answered: self.answered,
            identity: self.authenticated.then(|| Arc::new(Identity::of_key(Fingerprint([1; 32])))),
            last,
            refresh: self.refreshing,
            ..kit::arrival(id, packet.session, packet.flow, &packet.data)
        };
        let node = &mut self.nodes[n];
        node.client.indication(self.now, &Indication::Received(arrival), &mut node.resources);
        node.held.insert(id, packet);
    }

    /// Whether a message goes to the first node: against a flow to the last node, or along another one.
    fn goes_left(&self, flow: &FlowId, reverse: bool) -> bool {
        reverse != (flow.dst() != at(self.nodes.len() - 1))
    }

    /// The node behind `n` in a direction.
    fn next(&self, n: usize, reverse: bool) -> Option<usize> {
        if reverse { n.checked_sub(1) } else { Some(n + 1).filter(|to| *to < self.nodes.len()) }
    }

    /// All routes that were asked for are known.
    pub(crate) fn routed(&mut self) {
        self.slow_routes = false;
        for (n, id, route) in core::mem::take(&mut self.lookups) {
            let Node { client, resources, .. } = &mut self.nodes[n];
            client.route(self.now, id, Ok(route), resources);
            self.run();
        }
    }

    /// Takes one output of a node. False: no output waits.
    fn drain(&mut self, n: usize) -> bool {
        let (forward, back, now) = (self.next(n, false), self.next(n, true), self.now);
        let last = at(self.nodes.len() - 1);
        // What goes along the opposite flow goes to the first node.
        let way = |flow: &FlowId, reverse: bool| if reverse != (flow.dst() != last) { back } else { forward };
        let Node {
            client,
            resources,
            rules,
            events,
            torn_down,
            kernel,
            silent,
            outer,
            sources,
            known,
            initiated,
            held,
        } = &mut self.nodes[n];
        let Some(output) = client.poll() else { return false };
        match output {
            NatfwOutput::Event { id, event } => events.push((id, event)),
            NatfwOutput::RouteLookup { id, query } => {
                let left = (0..n).any(|other| Prefix { addr: at(other), len: 24 }.contains(query.dst));
                let ifindex = if left { LEFT } else { RIGHT };
                let route = Route { ifindex, src: at(n), gateway: None, mtu: 1500, local: false };
                if self.slow_routes {
                    self.lookups.push((n, id, route));
                    return true;
                }
                client.route(now, id, Ok(route), resources);
            }
            NatfwOutput::Open { id, pinhole, lifetime } => {
                let answer = if rules.contains_key(&id.key) { Ok(()) } else { *kernel };
                if answer.is_ok() {
                    rules.insert(id.key, (pinhole.packets, now + lifetime));
                    sources.insert(id.key, pinhole.source);
                }
                if !*silent {
                    client.opened(now, id, answer, resources);
                }
            }
            NatfwOutput::Close { id } => {
                rules.remove(&id.key);
                sources.remove(&id.key);
            }
            NatfwOutput::Request(Request::Send(send)) => {
                let Some(data) = send.data else {
                    assert!(send.tear_down);
                    *torn_down += 1;
                    return true;
                };
                assert!(!send.tear_down);
                let (tag, flow, wanted, data) = (send.tag, send.flow, send.session, data.to_vec());
                let reverse = send.reverse;
                // A name that a node gives to its own new session is new to the messaging layer, too.
                let has = |name: &SessionId| {
                    let mut all = initiated.iter().chain(known.iter());
                    tag == 0 || all.any(|(session, _)| session == name)
                };
                let named = wanted.filter(has);
                let session = wanted.unwrap_or_else(|| {
                    self.next_session += 1;
                    SessionId([self.next_session; 16])
                });
                if !reverse && !known.contains(&(session, flow)) {
                    initiated.insert((session, flow));
                }
                if named.is_none() {
                    let opened = Indication::Opened { tag, session, flow, hold: true };
                    client.indication(now, &opened, resources);
                }
                match way(&flow, reverse) {
                    Some(to) => {
                        let flow = sent(outer, session, flow, reverse);
                        self.queue.push_back(Packet { session, flow, reverse, to, from: n, hops: 1, data });
                    }
                    None => client.indication(now, &Indication::Undelivered { session, flow }, resources),
                }
            }
            NatfwOutput::Request(Request::Verdict { id, verdict }) => {
                let packet = held.remove(&id).expect("one verdict for each message");
                let data = match verdict {
                    Verdict::Consume => return true,
                    Verdict::Forward => packet.data.clone(),
                    Verdict::Replace(data) => data.to_vec(),
                };
                let to = way(&packet.flow, packet.reverse).expect("the last node ends the message");
                let flow = sent(outer, packet.session, packet.flow, packet.reverse);
                self.queue.push_back(Packet { to, from: n, hops: packet.hops + 1, flow, data, ..packet });
            }
            NatfwOutput::Request(Request::Translate { session, flow, outer: to }) => {
                outer.insert((session, flow), to);
            }
            NatfwOutput::Request(other) => panic!("{other:?}"),
        }
        true
    }

    /// The packets that the kernel of node `n` lets pass now.
    pub(crate) fn passes(&self, n: usize) -> Vec<FlowFilter> {
        let now = self.now;
        self.nodes[n].rules.values().filter(|(_, until)| *until > now).map(|(packets, _)| *packets).collect()
    }

    /// The sources that the kernel of node `n` gives to packets.
    pub(crate) fn sources(&self, n: usize) -> Vec<Option<Endpoint>> {
        self.nodes[n].sources.values().copied().collect()
    }

    /// Types of the messages that arrived at node `n`.
    pub(crate) fn kinds(&self, n: usize) -> Vec<NatfwType> {
        self.seen.iter().filter(|one| one.to == n).map(Packet::kind).collect()
    }

    /// The last message of a type that arrived at node `n`.
    pub(crate) fn last(&self, n: usize, kind: NatfwType) -> Packet {
        let is_it = |one: &&Packet| one.to == n && one.kind() == kind;
        self.seen.iter().rev().find(is_it).cloned().unwrap_or_else(|| panic!("no {kind} at {n}"))
    }

    /// The status of the last RESPONSE that arrived at node `n`.
    pub(crate) fn status(&self, n: usize) -> NatfwStatus {
        self.last(n, NatfwType::RESPONSE).results()[0].status
    }

    pub(crate) fn events(&self, n: usize) -> Vec<NatfwEvent> {
        self.nodes[n].events.iter().map(|(_, event)| event.clone()).collect()
    }
}

/// A request for a RESPONSE.
pub(crate) fn wants_response<'a>() -> NatfwValue<'a> {
    NatfwValue::Next(NatfwType::RESPONSE, Tlvs::of(&[]))
}
