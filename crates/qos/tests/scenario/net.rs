//! Nodes in virtual time. The GIST of this network finds the path of each flow at once. Like the real one it stores
//! where the messages of a session came from. It loses messages if configured to, and reports missing nodes after a
//! delay.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use signalbox_core::node::{Interface, NoRoute, Route};
use signalbox_core::rng::Random;
use signalbox_core::service::{
    AddressValidation, Indication, MessageHandle, MessageStatus, NetworkEvent, RecvMessage, Request,
    SendError, SiiHandle, StateHandle, TransferAttributes,
};
use signalbox_core::{Direction, IfIndex, Mri, NslpId, SessionId, Time};
use signalbox_qos::engine::{
    Command, Config, Flow, Input, Output, Qos, QosEvent, QosRequest, ReserveRequest,
};
use signalbox_resources::{ResourceOutput, Resources};

/// Delay from a node to the next one.
const DELAY: Duration = Duration::from_millis(5);
/// Time in which GIST finds out that there is no next node.
const GIVES_UP: Duration = Duration::from_secs(1);

/// A message as it was given to GIST.
#[derive(Debug, Clone)]
pub(crate) struct Logged {
    pub(crate) at: Time,
    pub(crate) from: usize,
    /// The receiving node; `None`: the message was lost, or there was no node.
    pub(crate) to: Option<usize>,
    pub(crate) mri: Mri,
    pub(crate) nslp: NslpId,
    pub(crate) session: SessionId,
    pub(crate) explicit: bool,
    pub(crate) octets: Vec<u8>,
}

impl Logged {
    pub(crate) fn message(&self) -> signalbox_qos::wire::Message<'_> {
        signalbox_qos::wire::Message::parse(&self.octets).unwrap()
    }
}

#[derive(Debug)]
enum Happens {
    Arrives { to: usize, from: usize, octets: Vec<u8>, session: SessionId, mri: Mri, nslp: NslpId, hops: u8 },
    Status { node: usize, handle: MessageHandle, session: SessionId, nslp: NslpId, status: MessageStatus },
    Event { node: usize, session: SessionId, mri: Mri, nslp: NslpId, event: NetworkEvent },
}

pub(crate) struct Node {
    pub(crate) qos: Qos,
    pub(crate) resources: Resources,
    pub(crate) events: Vec<(u64, QosEvent)>,
    /// It is switched off.
    pub(crate) down: bool,
}

pub(crate) struct Net {
    pub(crate) nodes: Vec<Node>,
    pub(crate) now: Time,
    pub(crate) log: Vec<Logged>,
    /// The nodes with the application between two addresses, in order; otherwise all nodes in their order.
    pub(crate) paths: BTreeMap<(IpAddr, IpAddr), Vec<usize>>,
    /// Share of messages that get lost.
    pub(crate) loss: f64,
    /// Routers without the application before a node.
    pub(crate) gaps: BTreeMap<usize, u8>,
    /// Messages from the first node to the second are lost.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// Nodes where GIST hands on messages of these numbers only; others are passed by.
    pub(crate) hosts: BTreeMap<usize, BTreeSet<NslpId>>,
    /// MTUs of the links by which nodes send, where they are not 1500.
    pub(crate) mtus: BTreeMap<usize, u32>,
    rng: Random,
    due: BTreeMap<(Time, u64), Happens>,
    sequence: u64,
    /// Origin of a session's downstream messages, by node.
    came_from: BTreeMap<(usize, SessionId), usize>,
    /// The last destination of a session, by node: a node off the path still has its next node.
    went_to: BTreeMap<(usize, SessionId), usize>,
}

/// The address of a node.
pub(crate) fn addr(node: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, u8::try_from(node + 1).unwrap()))
}

/// The interface of a node towards another.
pub(crate) fn towards(node: usize) -> IfIndex {
    IfIndex(u32::try_from(node).unwrap() + 10)
}

/// The egress interface of a flow when no other node is on the path.
pub(crate) const BEYOND: IfIndex = IfIndex(99);

pub(crate) fn sii(node: usize) -> SiiHandle {
    SiiHandle(u64::try_from(node).unwrap() + 1000)
}

pub(crate) fn resources(capacity: &str) -> Resources {
    let config = signalbox_resources::Config {
        preemption: true,
        ..signalbox_resources::Config::of_link("*", capacity.parse().unwrap())
    };
    let mut resources = Resources::new(config, 0, [7; 32]).unwrap();
    resources.interfaces(&interfaces(0));
    resources
}

pub(crate) fn interfaces(node: usize) -> Vec<Interface> {
    let one = |ifindex: IfIndex, name: String, address: IpAddr| Interface {
        ifindex,
        name,
        up: true,
        mtu: 1500,
        tunnel: false,
        addresses: vec![address],
    };
    let own = u8::try_from(node).unwrap();
    let mut all = vec![one(IfIndex(1), "host".into(), addr(node))];
    all.extend((0..12).map(|other| {
        let octet = u8::try_from(other).unwrap();
        one(towards(other), format!("to{other}"), Ipv4Addr::new(10, own, octet, 1).into())
    }));
    all.push(one(BEYOND, "beyond".into(), Ipv4Addr::new(10, own, 99, 1).into()));
    all
}

impl Net {
    /// Nodes in a row, links of 10 Mbit/s.
    pub(crate) fn chain(nodes: usize) -> Self {
        Self::with(vec![Config::default(); nodes], "10mbit")
    }

    pub(crate) fn with(configs: Vec<Config>, capacity: &str) -> Self {
        let nodes = configs.into_iter().enumerate().map(|(n, config)| {
            let mut qos = Qos::new(config, [u8::try_from(n).unwrap(); 32]);
            let mut resources = resources(capacity);
            qos.handle(Time::ZERO, Input::Interfaces(&interfaces(n)), &mut resources);
            Node { qos, resources, events: Vec::new(), down: false }
        });
        Self {
            nodes: nodes.collect(),
            now: Time::from_secs(1),
            log: Vec::new(),
            paths: BTreeMap::new(),
            loss: 0.0,
            gaps: BTreeMap::new(),
            cut: BTreeSet::new(),
            hosts: BTreeMap::new(),
            mtus: BTreeMap::new(),
            rng: Random::from_number(1),
            due: BTreeMap::new(),
            sequence: 0,
            came_from: BTreeMap::new(),
            went_to: BTreeMap::new(),
        }
    }

    /// Restarts a node. Only its configuration stays.
    pub(crate) fn restart(&mut self, node: usize, capacity: &str) {
        let config = self.nodes[node].qos.config().clone();
        let mut qos = Qos::new(config, [100 + u8::try_from(node).unwrap(); 32]);
        let mut fresh = resources(capacity);
        qos.handle(self.now, Input::Interfaces(&interfaces(node)), &mut fresh);
        self.nodes[node] = Node { qos, resources: fresh, events: Vec::new(), down: false };
        self.came_from.retain(|(at, _), _| *at != node);
    }

    fn path(&self, mri: &Mri) -> Vec<usize> {
        let found = self.paths.get(&(mri.src(), mri.dst())).cloned();
        found.unwrap_or_else(|| {
            let at = |address| (0..self.nodes.len()).find(|n| addr(*n) == address);
            match (at(mri.src()), at(mri.dst())) {
                (Some(from), Some(to)) if from > to => (to..=from).rev().collect(),
                (Some(from), Some(to)) => (from..=to).collect(),
                (Some(from), None) => (from..self.nodes.len()).collect(),
                _ => (0..self.nodes.len()).collect(),
            }
        })
    }

    /// The next node with the application, from one on the path.
    fn next(&self, node: usize, mri: &Mri, nslp: NslpId) -> Option<usize> {
        let path = self.path(mri);
        let at = path.iter().position(|n| *n == node)?;
        path[at + 1..]
            .iter()
            .copied()
            .find(|n| !self.nodes[*n].down && self.hosts.get(n).is_none_or(|numbers| numbers.contains(&nslp)))
    }

    fn route(&self, node: usize, dst: IpAddr, src: Option<IpAddr>) -> Result<Route, NoRoute> {
        if dst == Ipv4Addr::new(203, 0, 113, 255) {
            return Err(NoRoute::Unreachable);
        }
        let local = dst == addr(node);
        let src = src.unwrap_or(addr(node));
        let flow = Mri::PathCoupled(signalbox_core::PathCoupled::between(src, dst));
        let path = self.path(&flow);
        let next = path.iter().position(|n| *n == node).and_then(|at| path.get(at + 1)).copied();
        let ifindex = if local { IfIndex(1) } else { next.map_or(BEYOND, towards) };
        let mtu = self.mtus.get(&node).copied().unwrap_or(1500);
        Ok(Route { ifindex, src: addr(node), gateway: None, mtu, local })
    }

    pub(crate) fn input(&mut self, node: usize, input: Input<'_>) {
        let Node { qos, resources, .. } = &mut self.nodes[node];
        qos.handle(self.now, input, resources);
        self.drain(node);
    }

    fn drain(&mut self, node: usize) {
        loop {
            let mut answers = Vec::new();
            loop {
                let owned = match self.nodes[node].qos.poll() {
                    None => break,
                    Some(Output::Event { id, event }) => {
                        self.nodes[node].events.push((id, event));
                        continue;
                    }
                    Some(Output::RouteLookup { id, query }) => {
                        answers.push((id, query));
                        continue;
                    }
                    Some(Output::Request(Request::SendMessage(m))) => {
                        (m.data.to_vec(), m.handle, m.nslp, m.session, m.mri, m.sii, m.hops, m.state)
                    }
                    Some(Output::Request(_)) => continue,
                };
                let (octets, handle, nslp, session, mri, sii, hops, _) = owned;
                self.send(node, octets, handle, nslp, session, mri, sii, hops.unwrap_or(64));
            }
            if answers.is_empty() {
                break;
            }
            for (id, query) in answers {
                let result = self.route(node, query.dst, query.src);
                let Node { qos, resources, .. } = &mut self.nodes[node];
                qos.handle(self.now, Input::Route { id, result }, resources);
            }
        }
        let mut lost = Vec::new();
        loop {
            match self.nodes[node].resources.poll() {
                Some(ResourceOutput::Install { id, .. }) => self.nodes[node].resources.installed(id, Ok(())),
                Some(ResourceOutput::Remove { .. } | ResourceOutput::Reduced { .. }) => {}
                Some(ResourceOutput::Lost { owner, grant, why }) => lost.push((owner.key, grant, why)),
                None => break,
            }
        }
        for (key, grant, why) in lost {
            self.input(node, Input::Lost { key, grant, why });
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a message has")]
    fn send(
        &mut self,
        node: usize,
        octets: Vec<u8>,
        handle: Option<MessageHandle>,
        nslp: NslpId,
        session: SessionId,
        mri: Mri,
        explicit: Option<SiiHandle>,
        hops: u8,
    ) {
        assert!(octets.len().is_multiple_of(4));
        let to = match (explicit, mri.direction()) {
            (Some(handle), _) => usize::try_from(handle.0 - 1000).ok().filter(|n| !self.nodes[*n].down),
            (None, Direction::Downstream) if self.path(&mri).contains(&node) => self.next(node, &mri, nslp),
            (None, Direction::Downstream) => self.went_to.get(&(node, session)).copied(),
            (None, Direction::Upstream) => {
                self.came_from.get(&(node, session)).copied().filter(|n| !self.nodes[*n].down)
            }
        };
        let lost = self.rng.chance(self.loss) || to.is_some_and(|to| self.cut.contains(&(node, to)));
        let (at, mri_logged) = (self.now, mri);
        self.log.push(Logged {
            at,
            from: node,
            to: to.filter(|_| !lost),
            mri: mri_logged,
            nslp,
            session,
            explicit: explicit.is_some(),
            octets: octets.clone(),
        });
        let flow_end = match mri.direction() {
            Direction::Downstream => mri.dst() == addr(node),
            Direction::Upstream => mri.src() == addr(node),
        };
        let (status, delay) = match to {
            Some(_) => (MessageStatus::Sent(TransferAttributes::default()), Duration::ZERO),
            None if flow_end => (MessageStatus::Failed(SendError::FlowEndsHere), Duration::ZERO),
            None if mri.direction() == Direction::Upstream => {
                (MessageStatus::Failed(SendError::NoStateUpstream), Duration::ZERO)
            }
            None => (MessageStatus::Failed(SendError::NoNextNode), GIVES_UP),
        };
        if let Some(handle) = handle {
            self.plan(delay, Happens::Status { node, handle, session, nslp, status });
        }
        if let Some(to) = to.filter(|_| !lost) {
            if mri.direction() == Direction::Downstream && explicit.is_none() {
                self.came_from.insert((to, session), node);
                self.went_to.insert((node, session), to);
            }
            self.plan(DELAY, Happens::Arrives { to, from: node, octets, session, mri, nslp, hops: hops - 1 });
        }
    }

    fn plan(&mut self, delay: Duration, what: Happens) {
        self.sequence += 1;
        self.due.insert((self.now + delay, self.sequence), what);
    }

    fn happen(&mut self, what: Happens) {
        match what {
            Happens::Arrives { to, from, octets, session, mri, nslp, hops } => {
                if self.nodes[to].down {
                    return;
                }
                let end = match mri.direction() {
                    Direction::Downstream => mri.dst(),
                    Direction::Upstream => mri.src(),
                };
                let gap = self.gaps.get(&to.max(from)).copied().unwrap_or(0);
                let message = RecvMessage {
                    data: &octets,
                    nslp,
                    session,
                    mri,
                    check: None,
                    state: Some(StateHandle(5)),
                    sii: Some(sii(from)),
                    peer: None,
                    peer_address: Some(addr(from)),
                    attributes: TransferAttributes::default(),
                    validation: AddressValidation::default(),
                    ip_ttl: 64 - gap,
                    ip_distance: gap,
                    hops,
                    ifindex: towards(from),
                    at_flow_end: end == addr(to),
                };
                self.input(to, Input::Indication(Indication::RecvMessage(message)));
            }
            Happens::Status { node, handle, session, nslp, status } => {
                self.input(
                    node,
                    Input::Indication(Indication::MessageStatus { nslp, handle, session, status }),
                );
            }
            Happens::Event { node, session, mri, nslp, event } => {
                let notification = Indication::NetworkNotification { nslp, mri, session, event };
                self.input(node, Input::Indication(notification));
            }
        }
    }

    /// A network notification of GIST.
    pub(crate) fn notify(&mut self, node: usize, session: SessionId, mri: Mri, event: NetworkEvent) {
        self.happen(Happens::Event { node, session, mri, nslp: NslpId::QOS, event });
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let message = self.due.keys().next().map(|(at, _)| *at);
            let timer = self
                .nodes
                .iter()
                .enumerate()
                .filter(|(_, n)| !n.down)
                .filter_map(|(n, node)| Some((node.qos.next_deadline()?, n)))
                .min();
            let next = [message, timer.map(|(at, _)| at)].into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(next);
            if message == Some(next) {
                let (_, what) = self.due.pop_first().unwrap();
                self.happen(what);
            } else if let Some((_, node)) = timer {
                self.input(node, Input::Timer);
            }
        }
        self.now = end;
    }

    pub(crate) fn seconds(&mut self, seconds: u64) {
        self.run(Duration::from_secs(seconds));
    }

    pub(crate) fn command(&mut self, node: usize, id: u64, command: Command) {
        self.input(node, Input::Command { id, command });
    }

    pub(crate) fn reserve(&mut self, node: usize, id: u64, request: ReserveRequest) {
        self.command(node, id, Command::Reserve(Box::new(request)));
    }

    /// The rate that a node holds at all its links, in octets a second.
    pub(crate) fn held(&self, node: usize) -> u64 {
        self.nodes[node].resources.links().map(|link| link.reserved).sum()
    }

    /// The rate of every node.
    pub(crate) fn all_held(&self) -> Vec<u64> {
        (0..self.nodes.len()).map(|n| self.held(n)).collect()
    }

    /// The events of a user since the last call.
    pub(crate) fn events(&mut self, node: usize) -> Vec<QosEvent> {
        std::mem::take(&mut self.nodes[node].events).into_iter().map(|(_, event)| event).collect()
    }
}

/// A flow from one node to another, UDP to port 5004.
pub(crate) fn flow(to: IpAddr) -> Flow {
    Flow { protocol: Some(17), dst_port: Some(5004), ..Flow::to(to) }
}

/// A request for a rate in octets a second.
pub(crate) fn request(to: usize, rate: u64) -> ReserveRequest {
    ReserveRequest::new(flow(addr(to)), QosRequest::rate(rate))
}
