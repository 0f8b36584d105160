//! Several nodes in a row, or in a ring, without delay and loss.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use signalbox_casp::engine::{
    Casp, Config, Indication, Input, Output, Request, SendRequest, SessionView, Verdict,
};
use signalbox_casp::kit;
use signalbox_casp::wire::{Body, ClientType, Flags, FlowId, Message, Signaling, frame};
use signalbox_core::node::{NoRoute, Prefix, Route, StreamId};
use signalbox_core::packet::Received;
use signalbox_core::{Entry, IfIndex, SessionId, Time};

use crate::rig::{CLIENT, Indicated, indicated, seconds};

pub(crate) fn address(node: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, u8::try_from(node).unwrap(), 1))
}

fn node_of(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(v4) => v4.octets()[2].into(),
        IpAddr::V6(_) => panic!("{address}"),
    }
}

pub(crate) fn flow_to(last: usize) -> FlowId {
    let IpAddr::V4(dst) = address(last) else { unreachable!() };
    let IpAddr::V4(src) = address(0) else { unreachable!() };
    kit::flow(src, dst, 1, 2)
}

/// The flow to the last node as a NAT sends it on.
fn translated(nat: usize, last: usize) -> FlowId {
    let IpAddr::V4(src) = address(nat) else { unreachable!() };
    match flow_to(last) {
        FlowId::V4Ports { dst, dst_port, protocol, .. } => {
            FlowId::V4Ports { src, dst, src_port: 40000, dst_port, protocol }
        }
        other => panic!("{other}"),
    }
}

enum Event {
    Timer(usize),
    Packet { to: usize, src: SocketAddr, dst: SocketAddr, payload: Vec<u8> },
    Route { to: usize, id: u64, towards: usize },
    Accepted { to: usize, stream: StreamId, from: usize },
    Opening { to: usize, stream: StreamId },
    Connected { to: usize, stream: StreamId },
    Octets { to: usize, stream: StreamId, octets: Vec<u8> },
    Closed { to: usize, stream: StreamId },
    Translate { to: usize, client: ClientType, session: SessionId, flow: FlowId },
    Verdict { to: usize, client: ClientType, id: u64, data: Vec<u8> },
}

/// A message that a node sent to another.
pub(crate) struct Sent {
    from: usize,
    to: usize,
    empty: bool,
    flow: FlowId,
}

pub(crate) struct Net {
    /// `None`: a router without CASP.
    nodes: Vec<Option<Casp>>,
    now: Time,
    /// The next node on the way from one to another.
    pub(crate) routes: BTreeMap<(usize, usize), usize>,
    ends: BTreeMap<(usize, StreamId), (usize, StreamId)>,
    next_stream: u64,
    events: VecDeque<Event>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) indicated: Vec<(usize, Indicated)>,
    /// The route of the last message without state that came to a node.
    pub(crate) routes_seen: BTreeMap<usize, Vec<u8>>,
    /// Each node with the client adds its number to the data.
    marks: bool,
    /// Nodes whose client translates the sources of flows.
    nats: Vec<usize>,
}

impl Net {
    /// Nodes in a row; those of `without` have no CASP.
    pub(crate) fn row(count: usize, without: &[usize], change: impl Fn(usize, &mut Config)) -> Self {
        let mut net = Self {
            nodes: Vec::new(),
            now: Time::from_secs(1),
            routes: BTreeMap::new(),
            ends: BTreeMap::new(),
            next_stream: 2,
            events: VecDeque::new(),
            sent: Vec::new(),
            indicated: Vec::new(),
            routes_seen: BTreeMap::new(),
            marks: false,
            nats: Vec::new(),
        };
        for node in 0..count {
            for other in (0..count).filter(|other| *other != node) {
                net.routes.insert((node, other), if other > node { node + 1 } else { node - 1 });
            }
            let mut config = Config { clients: [CLIENT.0].into(), ..Config::default() };
            change(node, &mut config);
            let seed = [u8::try_from(node + 1).unwrap(); 32];
            net.nodes.push((!without.contains(&node)).then(|| Casp::new(config, seed).unwrap()));
            let interface = kit::interface(1, vec![address(node)]);
            net.input(node, Input::Interfaces(&[interface]));
        }
        net
    }

    fn input(&mut self, node: usize, input: Input<'_>) {
        if let Some(engine) = &mut self.nodes[node] {
            engine.handle(self.now, input);
            self.collect(node);
        }
        self.run();
    }

    fn collect(&mut self, node: usize) {
        let has: Vec<bool> = self.nodes.iter().map(Option::is_some).collect();
        let Some(engine) = &mut self.nodes[node] else { return };
        while let Some(output) = engine.poll() {
            match output {
                Output::Send(packet) => {
                    assert_eq!(packet.src.ip(), address(node), "a scout message has its own source");
                    let payload = packet.payload.to_vec();
                    let (src, dst) = (packet.src, packet.dst);
                    // A Router Alert stops at the next node with CASP.
                    let end = node_of(dst.ip());
                    let mut to = node;
                    loop {
                        to = self.routes[&(to, end)];
                        if to == end || (!packet.options.is_empty() && has[to]) {
                            break;
                        }
                    }
                    self.events.push_back(Event::Packet { to, src, dst, payload });
                }
                Output::RouteLookup { id, query } => {
                    self.events.push_back(Event::Route { to: node, id, towards: node_of(query.dst) });
                }
                Output::Discover { .. } => panic!("no such mechanism"),
                Output::Open { stream, peer, local, .. } => {
                    if local.is_none() {
                        self.events.push_back(Event::Opening { to: node, stream });
                    }
                    let to = node_of(peer.ip());
                    let other = StreamId(self.next_stream);
                    self.next_stream += 2;
                    self.ends.insert((node, stream), (to, other));
                    self.ends.insert((to, other), (node, stream));
                    self.events.push_back(Event::Accepted { to, stream: other, from: node });
                    self.events.push_back(Event::Connected { to: node, stream });
                }
                Output::Write { stream, octets } => {
                    let Some((to, other)) = self.ends.get(&(node, stream)).copied() else { continue };
                    let mut rest = octets;
                    while let Ok(Some(length)) = frame(rest, u32::MAX) {
                        let (one, behind) = rest.split_at(length);
                        let Ok(Message::Signaling(message)) = Message::parse(&one[4..]) else { panic!() };
                        let empty = message.body == Body::Empty;
                        self.sent.push(Sent { from: node, to, empty, flow: message.flow });
                        rest = behind;
                    }
                    self.events.push_back(Event::Octets { to, stream: other, octets: octets.to_vec() });
                }
                Output::Close { stream } => {
                    if let Some((to, other)) = self.ends.remove(&(node, stream)) {
                        self.ends.remove(&(to, other));
                        self.events.push_back(Event::Closed { to, stream: other });
                    }
                }
                Output::Indication { client, indication } => {
                    if let Indication::Received(arrival) = &indication {
                        if !arrival.reverse && self.nats.contains(&node) {
                            let (session, flow) = (arrival.session, arrival.flow);
                            self.events.push_back(Event::Translate { to: node, client, session, flow });
                        }
                        if arrival.id != 0 {
                            let mut data = arrival.data.to_vec();
                            data.push(u8::try_from(node).unwrap());
                            self.events.push_back(Event::Verdict { to: node, client, id: arrival.id, data });
                        }
                        if !arrival.route.is_empty() {
                            self.routes_seen.insert(node, arrival.route.to_vec());
                        }
                    }
                    self.indicated.push((node, indicated(&indication)));
                }
            }
        }
    }

    /// Runs until nothing is on its way.
    fn run(&mut self) {
        let mut steps = 0;
        while let Some(event) = self.events.pop_front() {
            steps += 1;
            assert!(steps < 100_000, "messages without end");
            let (to, now) = match &event {
                Event::Timer(to)
                | Event::Packet { to, .. }
                | Event::Route { to, .. }
                | Event::Accepted { to, .. }
                | Event::Opening { to, .. }
                | Event::Connected { to, .. }
                | Event::Octets { to, .. }
                | Event::Closed { to, .. }
                | Event::Translate { to, .. }
                | Event::Verdict { to, .. } => (*to, self.now),
            };
            let gateway = match &event {
                Event::Route { towards, .. } => self.routes.get(&(to, *towards)).copied(),
                _ => None,
            };
            let Some(engine) = &mut self.nodes[to] else { continue };
            match event {
                Event::Timer(_) => engine.handle(now, Input::Timer),
                Event::Packet { src, dst, payload, .. } => engine.handle(
                    now,
                    Input::Packet(Received {
                        entry: Entry::Udp(dst.port()),
                        src,
                        dst,
                        ifindex: IfIndex(1),
                        ttl: 60,
                        tos: 0,
                        options: &[],
                        payload: &payload,
                    }),
                ),
                Event::Route { id, .. } => {
                    let route = gateway.map(|gateway| Route {
                        ifindex: IfIndex(1),
                        src: address(to),
                        gateway: Some(address(gateway)),
                        mtu: 1500,
                        local: false,
                    });
                    engine.handle(now, Input::Route { id, result: route.ok_or(NoRoute::Unreachable) });
                }
                Event::Accepted { stream, from, .. } => engine.handle(
                    now,
                    Input::Accepted {
                        stream,
                        transport: signalbox_casp::engine::Transport::Tcp,
                        local: address(to),
                        peer: SocketAddr::new(address(from), 40000),
                        identity: None,
                    },
                ),
                Event::Opening { stream, .. } => {
                    engine.handle(now, Input::Opening { stream, local: address(to) });
                }
                Event::Connected { stream, .. } => {
                    engine.handle(now, Input::Connected { stream, identity: None });
                }
                Event::Octets { stream, octets, .. } => {
                    engine.handle(now, Input::Octets { stream, octets: &octets });
                }
                Event::Closed { stream, .. } => engine.handle(now, Input::Closed { stream }),
                Event::Translate { client, session, flow, .. } => {
                    let outer = translated(to, node_of(flow.dst()));
                    let request = Request::Translate { session, flow, outer };
                    engine.handle(now, Input::Request { client, request });
                }
                Event::Verdict { client, id, data, .. } => {
                    let verdict = if self.marks { Verdict::Replace(&data) } else { Verdict::Forward };
                    engine.handle(now, Input::Request { client, request: Request::Verdict { id, verdict } });
                }
            }
            self.collect(to);
        }
    }

    pub(crate) fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let next = |engine: &Casp| engine.next_deadline().filter(|next| *next <= end);
            let due = (0..self.nodes.len())
                .filter_map(|node| Some((next(self.nodes[node].as_ref()?)?, node)))
                .min();
            let Some((next, node)) = due else { break };
            self.now = self.now.max(next);
            self.events.push_back(Event::Timer(node));
            self.run();
        }
        self.now = end;
    }

    pub(crate) fn request(&mut self, node: usize, send: SendRequest<'_>) {
        self.input(node, Input::Request { client: CLIENT, request: Request::Send(send) });
    }

    /// A client of node 0 opens a session to the last node and holds it.
    fn open(&mut self, last: usize) -> SessionId {
        self.request(0, SendRequest { hold: true, ..SendRequest::new(None, flow_to(last), b"x") });
        let opened = self.indicated.iter().find_map(|(_, indicated)| match indicated {
            Indicated::Opened(_, session) => Some(*session),
            _ => None,
        });
        opened.unwrap()
    }

    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node] = None;
        let lost: Vec<_> = self.ends.iter().filter(|((at, _), _)| *at == node).map(|(_, end)| *end).collect();
        for (to, stream) in lost {
            self.ends.remove(&(to, stream));
            self.input(to, Input::Closed { stream });
        }
        self.ends.retain(|(at, _), _| *at != node);
    }

    pub(crate) fn states(&self, node: usize) -> Vec<SessionView> {
        self.nodes[node].as_ref().map_or_else(Vec::new, |engine| engine.sessions().collect())
    }

    pub(crate) fn counts(&self) -> Vec<usize> {
        (0..self.nodes.len()).map(|node| self.states(node).len()).collect()
    }

    /// Nodes whose client received a message, in their order, and the data that each saw.
    fn received(&mut self) -> Vec<(usize, bool, Vec<u8>)> {
        core::mem::take(&mut self.indicated)
            .into_iter()
            .filter_map(|(node, indicated)| match indicated {
                Indicated::Received(arrival, data) => Some((node, arrival.reverse, data)),
                _ => None,
            })
            .collect()
    }

    fn previous(&self, node: usize) -> Vec<Option<usize>> {
        self.states(node)[0].previous.iter().map(|one| one.peer.map(node_of)).collect()
    }

    fn next(&self, node: usize) -> Vec<Option<usize>> {
        self.states(node)[0].next.iter().map(|one| one.peer.map(node_of)).collect()
    }
}

/// CASP-3-09, CASP-5.2-07, CASP-P-11, CASP-3-02, CASP-4.2-04: a chain of peers in both directions.
#[test]
fn a_message_and_its_answer_pass_the_same_nodes() {
    let mut net = Net::row(5, &[], |_, _| {});
    let session = net.open(4);
    assert_eq!(net.counts(), [1; 5]);
    for node in 1..5 {
        assert_eq!(net.previous(node), [if node == 1 { Some(0) } else { Some(node - 1) }]);
    }
    let order: Vec<usize> = net.received().into_iter().map(|(node, ..)| node).collect();
    assert_eq!(order, [1, 2, 3, 4]);
    // Routing back is another one: the answer follows the state.
    net.routes.insert((4, 0), 0);
    net.request(4, SendRequest { reverse: true, ..SendRequest::new(Some(session), flow_to(4), b"y") });
    let order: Vec<(usize, bool)> =
        net.received().into_iter().map(|(node, reverse, _)| (node, reverse)).collect();
    assert_eq!(order, [(3, true), (2, true), (1, true), (0, true)]);
}

/// CASP-G-20, CASP-00-09: with two NATs on the way, each link has its own flow in both directions, and one session.
#[test]
fn each_side_of_a_nat_has_its_own_flow() {
    let mut net = Net::row(5, &[], |_, _| {});
    net.nats = vec![1, 3];
    let session = net.open(4);
    let flows = [flow_to(4), translated(1, 4), translated(1, 4), translated(3, 4)];
    for node in 0..5 {
        let state = &net.states(node)[0];
        assert_eq!((state.session, state.flow), (session, flows[node.saturating_sub(1)]), "node {node}");
        assert_eq!(state.outer, [1, 3].contains(&node).then(|| flows[node]), "node {node}");
    }
    net.indicated.clear();
    net.request(4, SendRequest { reverse: true, ..SendRequest::new(Some(session), flows[3], b"y") });
    let seen: Vec<(usize, FlowId)> = core::mem::take(&mut net.indicated)
        .into_iter()
        .filter_map(|(node, indicated)| match indicated {
            Indicated::Received(arrival, _) => Some((node, arrival.flow)),
            _ => None,
        })
        .collect();
    assert_eq!(seen, [(3, flows[2]), (2, flows[1]), (1, flows[0]), (0, flows[0])]);
    // Refreshes of all nodes keep the flow of their link, and T ends the state on both sides of the NATs.
    net.wait(seconds(300.0));
    assert!(net.sent.iter().all(|sent| sent.flow == flows[sent.from.min(sent.to)]));
    assert_eq!(net.counts(), [1; 5]);
    net.request(0, SendRequest { tear_down: true, ..SendRequest::new(Some(session), flow_to(4), b"bye") });
    assert_eq!(net.counts(), [0; 5]);
}

/// CASP-5.2-05: a router without CASP between two nodes passes the request on.
#[test]
fn routers_without_casp_are_no_hops() {
    let mut net = Net::row(6, &[1, 3, 4], |_, _| {});
    net.open(5);
    assert_eq!(net.counts(), [1, 0, 1, 0, 0, 1]);
    assert_eq!((net.next(0), net.next(2)), (vec![Some(2)], vec![Some(5)]));
}

/// CASP-3-07, CASP-10-02, CASP-4.4-12: nodes without the client pass its messages on.
#[test]
fn nodes_without_the_client_are_hops() {
    let mut net = Net::row(4, &[], |node, config| {
        if node == 1 || node == 2 {
            config.clients.clear();
        }
    });
    net.open(3);
    assert_eq!(net.counts(), [1; 4]);
    assert_eq!(net.received(), [(3, false, b"x".to_vec())]);
}

/// CASP-10-01: static, routing table and scout along one chain.
#[test]
fn several_mechanisms_find_one_chain() {
    use signalbox_casp::engine::Mechanism;
    let mut net = Net::row(4, &[], |node, config| match node {
        0 => config.mechanisms = vec![Mechanism::Static(address(1))],
        1 => config.neighbors = [address(2)].into(),
        _ => {}
    });
    net.open(3);
    assert_eq!(net.counts(), [1; 4]);
    let requests = |node: usize| net.nodes[node].as_ref().unwrap().counters().requests_sent;
    assert_eq!([requests(0), requests(1), requests(2)], [0, 0, 1]);
}

/// CASP-G-11: TTD n reaches n nodes.
#[test]
fn ttd_counts_nodes() {
    let mut net = Net::row(6, &[], |_, _| {});
    net.request(0, SendRequest { ttd: Some(3), ..SendRequest::new(None, flow_to(5), b"x") });
    assert_eq!(net.counts(), [1, 1, 1, 1, 0, 0]);
}

/// CASP-4.2-05: T removes all state of a chain.
#[test]
fn a_tear_down_leaves_nothing() {
    let mut net = Net::row(5, &[], |_, _| {});
    let session = net.open(4);
    net.request(0, SendRequest { tear_down: true, ..SendRequest::new(Some(session), flow_to(4), b"bye") });
    assert_eq!(net.counts(), [0; 5]);
    let ended = net
        .indicated
        .iter()
        .filter(|(_, indicated)| matches!(indicated, Indicated::Ended { torn_down: true, .. }))
        .count();
    assert_eq!(ended, 5, "each client is informed");
}

/// CASP-G-09, CASP-P-02: after the death of the initiator all state goes within as many lifetimes as there are nodes, while
/// forwarders refresh on their own.
#[test]
fn a_dead_initiator_leaves_nothing() {
    let mut net = Net::row(4, &[], |_, _| {});
    net.open(3);
    net.wait(seconds(100.0));
    net.kill(0);
    net.wait(seconds(40.0));
    assert_eq!(net.counts(), [0, 1, 1, 1]);
    net.wait(seconds(3.0 * 91.0));
    assert_eq!(net.counts(), [0; 4]);
    let before = net.sent.len();
    net.wait(seconds(600.0));
    assert_eq!(net.sent.len(), before);
}

/// CASP-G-08: each link sees about one message in a refresh interval, however long the chain is.
#[test]
fn refreshes_do_not_add_up_along_a_chain() {
    let mut net = Net::row(5, &[], |_, _| {});
    net.open(4);
    net.sent.clear();
    net.wait(seconds(3000.0));
    for link in 0..4 {
        let count = net.sent.iter().filter(|sent| (sent.from, sent.to) == (link, link + 1)).count();
        assert!((80..170).contains(&count), "link {link}: {count} messages in 100 intervals");
    }
    assert!(net.sent.iter().all(|sent| sent.empty && sent.from < sent.to));
    assert_eq!(net.counts(), [1; 5]);
}

/// CASP-P-20, CASP-G-16: each node reads and changes the data of a message, and no node needs state of a client.
#[test]
fn each_node_adds_to_a_message() {
    let mut net = Net::row(4, &[], |_, _| {});
    net.marks = true;
    net.open(3);
    let last = net.received().into_iter().last().unwrap();
    assert_eq!(last, (3, false, vec![b'x', 1, 2]));
}

/// Nodes 0 and 1 in a row, then 2 or 4 in parallel, then 3.
fn ring(unsecure: bool) -> Net {
    let mut net = Net::row(5, &[], |_, config| config.remove_unsecure = unsecure);
    for (from, to, next) in [(1, 3, 2), (0, 3, 1), (2, 3, 3), (4, 3, 3), (4, 1, 1), (4, 0, 1), (3, 0, 2)] {
        net.routes.insert((from, to), next);
    }
    net
}

/// CASP-6.1-01, CASP-6.1-02, CASP-6.1-07, CASP-P-03: after a change of the route, the next refresh of the initiator finds the
/// new way: both sides have a new branch, and session and flow are the same.
#[test]
fn a_changed_route_is_found_by_refreshes() {
    let mut net = ring(false);
    let session = net.open(3);
    assert_eq!((net.next(1), net.previous(3)), (vec![Some(2)], vec![Some(2)]));
    net.routes.insert((1, 3), 4);
    net.wait(seconds(46.0));
    assert_eq!((net.next(1), net.previous(3)), (vec![Some(4), Some(2)], vec![Some(4), Some(2)]));
    assert_eq!((net.states(4)[0].session, net.states(4)[0].flow), (session, flow_to(3)));
    // The old way ages out.
    net.wait(seconds(400.0));
    assert_eq!(
        (net.next(1), net.previous(3), net.counts()),
        (vec![Some(4)], vec![Some(4)], vec![1, 1, 0, 1, 1])
    );
}

/// CASP-G-36, CASP-G-18, CASP-P-08: a change that routing reports is repaired at once, and the merge point tears the old way
/// down up to the branch point, which stops it.
#[test]
fn the_old_way_is_torn_down_up_to_the_branch_point() {
    let mut net = ring(true);
    let session = net.open(3);
    net.wait(seconds(6.0));
    net.routes.insert((1, 3), 4);
    net.input(1, Input::RouteChanged(Prefix::host(address(3))));
    net.wait(seconds(0.1));
    assert_eq!(net.previous(3)[0], Some(4));
    net.request(3, SendRequest { reverse: true, ..SendRequest::new(Some(session), flow_to(3), b"y") });
    // The next refresh proves the new way; the old one would live longer than that.
    net.wait(seconds(46.0));
    assert_eq!(
        (net.next(1), net.previous(3), net.counts()),
        (vec![Some(4)], vec![Some(4)], vec![1, 1, 0, 1, 1])
    );
}

/// CASP-G-19: the route changes and changes back; messages against the flow follow the way that is used.
#[test]
fn a_route_that_flips_back_is_followed() {
    let mut net = ring(false);
    let session = net.open(3);
    for way in [4, 2, 4] {
        net.wait(seconds(6.0));
        net.routes.insert((1, 3), way);
        net.input(1, Input::RouteChanged(Prefix::host(address(3))));
        net.wait(seconds(0.1));
        assert_eq!((net.next(1)[0], net.previous(3)[0]), (Some(way), Some(way)));
        net.received();
        net.request(3, SendRequest { reverse: true, ..SendRequest::new(Some(session), flow_to(3), b"y") });
        let order: Vec<usize> = net.received().into_iter().map(|(node, ..)| node).collect();
        assert_eq!(order, [way, 1, 0]);
    }
}

/// CASP-G-04: a message that a stranger sends from the middle of nowhere changes no chain.
#[test]
fn octets_of_a_stranger_change_no_chain() {
    let mut net = Net::row(4, &[], |_, _| {});
    let session = net.open(3);
    let tear = Signaling { flags: Flags::TEAR_DOWN, ..Signaling::new(session, flow_to(3)) };
    let mut payload = Vec::new();
    tear.encode(&mut payload).unwrap();
    for (from, to) in [(1, 2), (3, 2), (0, 3)] {
        let (src, dst) = (SocketAddr::new(address(from), 50003), SocketAddr::new(address(to), 50003));
        net.events.push_back(Event::Packet { to, src, dst, payload: payload.clone() });
        net.run();
    }
    assert_eq!(net.counts(), [1; 4]);
}
