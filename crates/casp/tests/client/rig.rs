//! A path of nodes with the QoS client. The first one is the source of the data, the last one their destination; each has
//! an interface of 10 Mbit/s towards the next one and one towards the one before, of which all can be reserved.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use signalbox_casp::clients::qos::{
    Amount, Config, PROTOCOL, QosClient, QosEvent, QosOutput, QosRequest, Range,
};
use signalbox_casp::engine::{Arrival, Indication, Request, Verdict};
use signalbox_casp::kit;
pub(crate) use signalbox_casp::kit::LIFETIME;
use signalbox_casp::wire::FlowId;
use signalbox_casp::wire::qos::{Bandwidth, Flowspec, QosErrorCode, QosMessage, QosType, QosVersion};
use signalbox_core::node::{Interface, NoRoute, Route};
use signalbox_core::security::Identity;
use signalbox_core::traffic::{Reservation, ReservationId};
use signalbox_core::{IfIndex, SessionId, Time};
use signalbox_resources::config::LinkConfig;
use signalbox_resources::{Rate, ResourceOutput, Resources};

pub(crate) const ETH: IfIndex = IfIndex(2);
/// The interface towards the source of the data.
pub(crate) const BACK: IfIndex = IfIndex(3);
/// One Mbit/s in octets a second.
pub(crate) const MBIT: f32 = 125_000.0;
/// Microseconds since 1970 at the start of the clock.
pub(crate) const WALL_US: u64 = 1_700_000_000_000_000;

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The address of node `n`.
pub(crate) fn at(n: usize) -> IpAddr {
    ip(&format!("10.0.{n}.1"))
}

/// The flow from the first of `nodes` nodes to the last one.
pub(crate) fn flow(nodes: usize) -> FlowId {
    to_port(nodes, 600)
}

/// The same to another port.
pub(crate) fn to_port(nodes: usize, dst_port: u16) -> FlowId {
    let v4 = |n| match at(n) {
        IpAddr::V4(v4) => v4,
        IpAddr::V6(_) => unreachable!(),
    };
    kit::flow(v4(0), v4(nodes - 1), 5000, dst_port)
}

pub(crate) fn mbit(mbit: f32) -> Amount {
    Amount::Rate(mbit * MBIT)
}

pub(crate) fn flowspec(mbit: f32) -> Flowspec {
    kit::flowspec(mbit * MBIT)
}

pub(crate) fn between(least: f32, most: f32) -> Range {
    Range { least: mbit(least), most: mbit(most) }
}

/// Writes a rate into a request.
pub(crate) fn with_rate(message: &mut QosMessage<'_>, mbit: f32) {
    message.version = Some(QosVersion::BANDWIDTH);
    message.bandwidth = Some(Bandwidth { upper: mbit * MBIT, lower: mbit * MBIT });
}

/// The node, of `count`, that gets what node `n` sends along a flow or against it. A flow to the first node comes from the last
/// one, and goes round the node `around`.
fn onward(n: usize, count: usize, flow: &FlowId, reverse: bool, around: Option<usize>) -> Option<usize> {
    let opposed = flow.dst() == at(0);
    let up = |n: usize| Some(n + 1).filter(|to| *to < count);
    let step = |n: usize| if opposed == reverse { up(n) } else { n.checked_sub(1) };
    let to = step(n)?;
    if opposed && around == Some(to) { step(to) } else { Some(to) }
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
    pub(crate) branch: u16,
    pub(crate) data: Vec<u8>,
}

impl Packet {
    pub(crate) fn message(&self) -> QosMessage<'_> {
        QosMessage::parse(&self.data).unwrap()
    }
}

pub(crate) struct Node {
    pub(crate) client: QosClient,
    pub(crate) resources: Resources,
    /// What the kernel has.
    pub(crate) installed: BTreeMap<ReservationId, Reservation>,
    pub(crate) events: Vec<(u64, QosEvent)>,
    /// Branches of which the client keeps the old ones.
    pub(crate) kept: u32,
    pub(crate) torn_down: u32,
    /// Messages that wait for a verdict.
    held: BTreeMap<u64, Packet>,
}

pub(crate) struct Rig {
    pub(crate) nodes: Vec<Node>,
    pub(crate) now: Time,
    /// Messages that arrived, in order: the type, and the node that got it.
    pub(crate) seen: Vec<Packet>,
    /// Messages to this node are lost.
    pub(crate) deaf: Option<usize>,
    /// The way of flows to the first node does not lead over this node.
    pub(crate) around: Option<usize>,
    pub(crate) unsecure: bool,
    /// The branch by which messages against the flow arrive.
    pub(crate) branch: u16,
    pub(crate) no_route: bool,
    /// Routes are given later, by [`Rig::routed`].
    pub(crate) slow_routes: bool,
    lookups: Vec<(usize, u64, Route)>,
    /// All nodes have answered at their addresses.
    pub(crate) answered: bool,
    /// What TLS proved of all nodes.
    pub(crate) identity: Option<Arc<Identity>>,
    /// Tag of the last request that a node sent.
    pub(crate) last_tag: u64,
    queue: VecDeque<Packet>,
    next_id: u64,
    next_session: u16,
    /// The sessions that each node has opened, with the present flow.
    named: BTreeMap<(usize, SessionId), FlowId>,
}

impl Node {
    fn new(n: usize, config: Config) -> Self {
        let all = |name| LinkConfig {
            reservable: "100%".parse().unwrap(),
            ..LinkConfig::new(name, Some(Rate(1_250_000)))
        };
        let (links, preemption) = (vec![all("eth0"), all("eth1")], true);
        let links = signalbox_resources::Config { links, preemption, ..Default::default() };
        let mut resources = Resources::new(links, 0, [1; 32]).unwrap();
        let named = |ifindex: IfIndex, name: &str, addresses| Interface {
            name: name.to_owned(),
            ..kit::interface(ifindex.0, addresses)
        };
        let interfaces = [named(ETH, "eth0", vec![at(n)]), named(BACK, "eth1", Vec::new())];
        resources.interfaces(&interfaces);
        let mut client = QosClient::new(config, [u8::try_from(n).unwrap(); 32]);
        client.interfaces(&interfaces);
        client.set_wall_clock(WALL_US);
        Self {
            client,
            resources,
            installed: BTreeMap::new(),
            events: Vec::new(),
            kept: 0,
            torn_down: 0,
            held: BTreeMap::new(),
        }
    }
}

impl Rig {
    pub(crate) fn new(nodes: usize) -> Self {
        Self::with(nodes, Config::default())
    }

    pub(crate) fn with(nodes: usize, config: Config) -> Self {
        Self::with_each(nodes, |_| config.clone())
    }

    /// Nodes with a configuration of their own.
    pub(crate) fn with_each(nodes: usize, config: impl Fn(usize) -> Config) -> Self {
        Self {
            nodes: (0..nodes).map(|n| Node::new(n, config(n))).collect(),
            now: Time::from_secs(10),
            seen: Vec::new(),
            deaf: None,
            around: None,
            unsecure: false,
            branch: 0,
            no_route: false,
            answered: true,
            identity: None,
            last_tag: 0,
            slow_routes: false,
            lookups: Vec::new(),
            queue: VecDeque::new(),
            next_id: 1,
            next_session: 1,
            named: BTreeMap::new(),
        }
    }

    /// A node crashes and starts again, with nothing.
    pub(crate) fn restart(&mut self, n: usize) {
        self.nodes[n] = Node::new(n, Config::default());
        self.named.retain(|(node, _), _| *node != n);
    }

    /// A request of the first node to the last one.
    pub(crate) fn request(&self, range: Range) -> QosRequest {
        QosRequest {
            flow: flow(self.nodes.len()),
            session: None,
            kept: None,
            by_receiver: false,
            priority: None,
            range,
            at_once: false,
            both: false,
            time: None,
            partial: None,
        }
    }

    pub(crate) fn reserve(&mut self, node: usize, id: u64, request: &QosRequest) {
        let Node { client, resources, .. } = &mut self.nodes[node];
        client.reserve(self.now, id, request, resources);
        self.run();
    }

    pub(crate) fn query(&mut self, node: usize, id: u64, request: &QosRequest) {
        let Node { client, resources, .. } = &mut self.nodes[node];
        client.query(self.now, id, request, resources);
        self.run();
    }

    pub(crate) fn change(&mut self, node: usize, id: u64, range: Range) {
        let Node { client, resources, .. } = &mut self.nodes[node];
        client.change(self.now, id, range, resources);
        self.run();
    }

    pub(crate) fn release(&mut self, node: usize, id: u64) {
        let Node { client, resources, .. } = &mut self.nodes[node];
        client.release(self.now, id, resources);
        self.run();
    }

    /// A reservation of the first node that stands.
    pub(crate) fn standing(nodes: usize, range: Range) -> Self {
        let mut rig = Self::new(nodes);
        let request = rig.request(range);
        rig.reserve(0, 1, &request);
        assert!(
            matches!(rig.nodes[0].events.last(), Some((1, QosEvent::Committed { .. }))),
            "{:?}",
            rig.nodes[0].events
        );
        rig.clear();
        rig
    }

    pub(crate) fn clear(&mut self) {
        self.seen.clear();
        self.nodes.iter_mut().for_each(|node| node.events.clear());
    }

    /// Gives a message of a peer to a node.
    pub(crate) fn inject(&mut self, packet: Packet) {
        self.queue.push_back(packet);
        self.run();
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
            self.deliver(packet);
        }
    }

    fn deliver(&mut self, packet: Packet) {
        let n = packet.to;
        if self.deaf == Some(n) {
            return;
        }
        self.seen.push(packet.clone());
        let id = self.next_id;
        self.next_id += 1;
        let last = onward(n, self.nodes.len(), &packet.flow, packet.reverse, self.around).is_none();
        let arrival = Arrival {
            reverse: packet.reverse,
            unsecure: self.unsecure,
            hops: packet.hops,
            peer: at(packet.from),
            ifindex: if packet.flow.dst() == at(0) { ETH } else { BACK },
            answered: self.answered,
            identity: self.identity.clone(),
            branch: packet.branch,
            last,
            ..kit::arrival(id, packet.session, packet.flow, &packet.data)
        };
        let node = &mut self.nodes[n];
        node.client.indication(self.now, &Indication::Received(arrival), &mut node.resources);
        node.held.insert(id, packet);
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
        self.kernel(n);
        let (count, no_route, now, around) = (self.nodes.len(), self.no_route, self.now, self.around);
        let back = self.branch;
        let branch_of = |reverse: bool| if reverse { back } else { 0 };
        let Node { client, resources, events, kept, torn_down, held, .. } = &mut self.nodes[n];
        let Some(output) = client.poll() else { return false };
        match output {
            QosOutput::Event { id, event } => events.push((id, event)),
            QosOutput::RouteLookup { id, query } => {
                let ifindex = if (0..n).any(|before| at(before) == query.dst) { BACK } else { ETH };
                let local = query.dst == at(n);
                let route = Route { ifindex, src: at(n), gateway: None, mtu: 1500, local };
                if self.slow_routes {
                    self.lookups.push((n, id, route));
                    return true;
                }
                let result = if no_route { Err(NoRoute::Unreachable) } else { Ok(route) };
                client.route(now, id, result, resources);
            }
            QosOutput::Request(Request::KeepBranches { .. }) => *kept += 1,
            QosOutput::Request(Request::Send(send)) => {
                let Some(data) = send.data else {
                    assert!(send.tear_down);
                    *torn_down += 1;
                    self.named
                        .retain(|(node, one), of| (*node, Some(*one), *of) != (n, send.session, send.flow));
                    return true;
                };
                let (tag, flow, reverse, branch) = (send.tag, send.flow, send.reverse, send.branch);
                let to = onward(n, count, &flow, reverse, around);
                // A name that a node gives to its own new session is new to the messaging layer, too.
                let own = tag != 0 && !reverse;
                let named = send.session.filter(|name| !own || self.named.contains_key(&(n, *name)));
                let (wanted, data) = (send.session, data.to_vec());
                self.last_tag = tag;
                let session = wanted.unwrap_or_else(|| {
                    self.next_session += 1;
                    let number = self.next_session;
                    SessionId(
                        u8::try_from(number).map_or(u128::from(number).to_be_bytes(), |octet| [octet; 16]),
                    )
                });
                if own || named.is_none() {
                    self.named.insert((n, session), flow);
                }
                if named.is_none() {
                    let opened = Indication::Opened { tag, session, flow, hold: true };
                    client.indication(now, &opened, resources);
                }
                if let Some(to) = to {
                    let branch = branch.unwrap_or(branch_of(reverse));
                    self.queue.push_back(Packet {
                        session,
                        flow,
                        reverse,
                        to,
                        from: n,
                        hops: 1,
                        branch,
                        data,
                    });
                } else {
                    client.indication(now, &Indication::Undelivered { session, flow }, resources);
                }
            }
            QosOutput::Request(Request::Verdict { id, verdict }) => {
                let packet = held.remove(&id).expect("one verdict for each message");
                let data = match verdict {
                    Verdict::Consume => return true,
                    Verdict::Forward => packet.data.clone(),
                    Verdict::Replace(data) => data.to_vec(),
                };
                let to = onward(n, count, &packet.flow, packet.reverse, around);
                let to = to.expect("the last node ends the message");
                self.queue.push_back(Packet {
                    to,
                    from: n,
                    hops: packet.hops + 1,
                    data,
                    branch: branch_of(packet.reverse),
                    ..packet
                });
            }
            QosOutput::Request(other) => panic!("{other:?}"),
        }
        true
    }

    /// The kernel of a node.
    fn kernel(&mut self, n: usize) {
        let Node { client, resources, installed, .. } = &mut self.nodes[n];
        let mut lost = Vec::new();
        while let Some(output) = resources.poll() {
            match output {
                ResourceOutput::Install { id, reservation } => {
                    installed.insert(id, reservation.clone());
                    resources.installed(id, Ok(()));
                }
                ResourceOutput::Remove { id } => drop(installed.remove(&id)),
                ResourceOutput::Lost { owner, .. } if owner.protocol == PROTOCOL => lost.push(owner.key),
                ResourceOutput::Lost { .. } | ResourceOutput::Reduced { .. } => {}
            }
        }
        for key in lost {
            client.lost(self.now, key, resources);
        }
    }

    /// Mbit/s that are booked at node `n`.
    pub(crate) fn booked(&self, n: usize) -> f64 {
        let booked: u64 = self.nodes[n].resources.links().map(|link| link.reserved).sum();
        (booked as f64 / 125_000.0 * 100.0).round() / 100.0
    }

    /// Mbit/s that are booked at node `n` for the data to the last node, and for those to the first one.
    pub(crate) fn both(&self, n: usize) -> [f64; 2] {
        [ETH, BACK].map(|ifindex| {
            let here = self.nodes[n].resources.links().filter(|link| link.ifindex == ifindex);
            here.map(|link| (link.reserved as f64 / 1250.0).round() / 100.0).sum()
        })
    }

    /// Mbit/s that flows have at node `n`.
    pub(crate) fn given(&self, n: usize) -> f64 {
        let given: u64 = self.nodes[n].installed.values().map(|one| one.traffic.rate).sum();
        (given as f64 / 125_000.0 * 100.0).round() / 100.0
    }

    /// The DSCP that node `n` gives to the packets of its only flow.
    pub(crate) fn mark(&self, n: usize) -> Option<u8> {
        let mut marks = self.nodes[n].installed.values().map(|one| one.mark_dscp);
        let first = marks.next().expect("a flow");
        assert!(marks.next().is_none(), "one flow");
        first
    }

    /// The DSCPs that node `n` gives to the packets of the flow, and to those of the opposite one.
    pub(crate) fn marks(&self, n: usize) -> [Option<u8>; 2] {
        [ETH, BACK].map(|ifindex| {
            let mut here = self.nodes[n].installed.values().filter(|one| one.ifindex == ifindex);
            let mark = here.next().and_then(|one| one.mark_dscp);
            assert!(here.next().is_none(), "one flow");
            mark
        })
    }

    /// Types of the messages that arrived at node `n`.
    pub(crate) fn kinds(&self, n: usize) -> Vec<QosType> {
        self.seen.iter().filter(|one| one.to == n).map(|one| one.message().kind).collect()
    }

    /// The last message of a type that arrived at node `n`.
    pub(crate) fn last(&self, n: usize, kind: QosType) -> Packet {
        let is_it = |one: &&Packet| one.to == n && one.message().kind == kind;
        self.seen.iter().rev().find(is_it).cloned().unwrap_or_else(|| panic!("no {kind} at {n}"))
    }

    pub(crate) fn events(&self, n: usize) -> Vec<QosEvent> {
        self.nodes[n].events.iter().map(|(_, event)| event.clone()).collect()
    }

    /// The error that the user of node `n` got.
    pub(crate) fn refused(&self, n: usize) -> (QosErrorCode, u16) {
        match self.events(n).last() {
            Some(QosEvent::Refused { code, detail, .. }) => (*code, *detail),
            other => panic!("{other:?}"),
        }
    }

    /// Takes Mbit/s of node `n` for others.
    pub(crate) fn occupy(&mut self, n: usize, mbit: f32) {
        self.occupy_at(n, ETH, mbit);
    }

    /// Admission control takes away what is reserved at an interface of a node.
    pub(crate) fn lose(&mut self, n: usize, ifindex: IfIndex) {
        let resources = &mut self.nodes[n].resources;
        let lost = resources.reservations().find(|one| one.ifindex == ifindex).unwrap().grant;
        resources.delete(lost);
        self.run();
    }

    /// Takes Mbit/s of an interface of node `n` for others.
    pub(crate) fn occupy_at(&mut self, n: usize, ifindex: IfIndex, mbit: f32) {
        use signalbox_core::node::Prefix;
        use signalbox_core::traffic::{FlowFilter, TrafficSpec};
        use signalbox_resources::{GrantRequest, Owner, Requester};
        let rate = format!("{}", (mbit * MBIT).round()).parse().unwrap();
        let traffic = TrafficSpec { rate, burst: 3000, peak: None, min_policed: 64, max_packet: 1500 };
        let filter = FlowFilter::between(Prefix::host(ip("192.0.2.1")), Prefix::host(ip("192.0.2.2")));
        let owner = Owner { protocol: signalbox_core::ReserverId(240), key: 1 };
        let ask = GrantRequest::new(owner, Requester::at(ip("192.0.2.1")), ifindex, filter, traffic);
        self.nodes[n].resources.admit(self.now, &ask).unwrap();
        self.run();
    }

    /// A message of the QoS client as a packet to node `to`.
    pub(crate) fn packet(
        &self,
        to: usize,
        from: usize,
        session: SessionId,
        message: &QosMessage<'_>,
    ) -> Packet {
        let mut data = Vec::new();
        message.encode(&mut data).unwrap();
        let flow = flow(self.nodes.len());
        Packet { session, flow, reverse: from > to, to, from, hops: 1, branch: 0, data }
    }
}
