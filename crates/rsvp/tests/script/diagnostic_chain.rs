//! Diagnostics (RFC 2745) along chains of nodes: replies to the requester.
//!
//! Node 0 is the sender's, the last one the receiver's and the LAST-HOP. Link *k* joins node *k* (`10.1.k.1`, its
//! interface 2) and node *k*+1 (`10.1.k.2`, its interface 1).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use signalbox_core::node::{Interface, Route};
use signalbox_core::{IfIndex, Time};
use signalbox_resources::{ResourceOutput, Resources};
use signalbox_rsvp::engine::IpReceived;
use signalbox_rsvp::engine::{
    Command, Config, FlowRequest, Input, Output, ReserveRequest, Rsvp, SenderRequest,
};
use signalbox_rsvp::wire::{
    Class, DiagErrors, Diagnostic, Filter, Message, MessageType, RsvpHop, Selector, Session, SessionKind,
    Style,
};

use super::rig::{B, compose, load, tspec};

pub(crate) struct Node {
    rsvp: Rsvp,
    resources: Resources,
}

/// A packet that a node sent.
pub(crate) struct Packet {
    from: usize,
    kind: MessageType,
    dst: IpAddr,
    octets: Vec<u8>,
}

pub(crate) struct Chain {
    nodes: Vec<Node>,
    /// Nodes that drop diagnostic messages.
    pub(crate) deaf: Vec<usize>,
    /// Diagnostic messages between nodes.
    seen: Vec<Packet>,
    /// Replies to the requester.
    replies: Vec<(SocketAddr, Vec<u8>)>,
    now: Time,
}

pub(crate) fn address(link: usize, end: u8) -> IpAddr {
    Ipv4Addr::new(10, 1, u8::try_from(link).unwrap(), end).into()
}

pub(crate) fn requester() -> SocketAddr {
    "10.7.0.1:40000".parse().unwrap()
}

pub(crate) fn sender() -> Filter {
    Filter { src: address(0, 1), selector: Selector::Port(4000) }
}

impl Chain {
    /// A chain of this many nodes, with a reservation from end to end.
    pub(crate) fn new(count: usize) -> Self {
        let nodes = (0..count).map(|n| {
            let interface = |number: u32, address| Interface {
                ifindex: IfIndex(number),
                name: format!("eth{number}"),
                up: true,
                tunnel: false,
                mtu: 1500,
                addresses: vec![address],
            };
            let down = (n + 1 < count).then(|| interface(2, address(n, 1)));
            let up = n.checked_sub(1).map(|link| interface(1, address(link, 2)));
            let list: Vec<Interface> = up.into_iter().chain(down).collect();
            let links = signalbox_resources::Config::of_link("*", "10mbit".parse().unwrap());
            let mut resources = Resources::new(links, 0, [1; 32]).unwrap();
            resources.interfaces(&list);
            let mut config = Config { diagnostics: 1000, ..Config::default() };
            config.neighbors.interface.reduction.reliable = false;
            let mut rsvp = Rsvp::new(config, [u8::try_from(n).unwrap(); 32]).unwrap();
            rsvp.handle(Time::from_secs(10), Input::Interfaces(&list), &mut resources);
            Node { rsvp, resources }
        });
        let nodes = nodes.collect();
        let mut chain =
            Self { nodes, deaf: Vec::new(), seen: Vec::new(), replies: Vec::new(), now: Time::from_secs(10) };
        let session = chain.session();
        chain.command(count - 1, Command::Session(session));
        chain.command(0, Command::Session(session));
        let tspec = tspec(10.0 * B);
        let announce = SenderRequest { ttl: 64, ..SenderRequest::new(sender(), tspec) };
        chain.command(0, Command::Sender(announce));
        let flows = vec![FlowRequest { flowspec: load(2.0 * B), senders: vec![sender()] }];
        let reserve = ReserveRequest { style: Style::Ff, flows, confirm: false, policy: Box::default() };
        chain.command(count - 1, Command::Reserve(reserve));
        for node in &chain.nodes {
            assert_eq!((node.rsvp.senders(), node.rsvp.reservations()), (1, 1));
        }
        chain
    }

    pub(crate) fn last_hop(&self) -> IpAddr {
        address(self.nodes.len() - 2, 2)
    }

    pub(crate) fn session(&self) -> Session {
        Session { dest: self.last_hop(), protocol: 17, kind: SessionKind::Ports, port: 5004 }
    }

    fn command(&mut self, node: usize, command: Command) {
        self.input(node, Input::Command { id: 1, command });
    }

    /// Gives an input to a node and carries all packets that follow.
    fn input(&mut self, node: usize, input: Input<'_>) {
        let mut waiting = std::collections::VecDeque::new();
        self.one(node, input, &mut waiting);
        while let Some((to, ifindex, src, dst, octets)) = waiting.pop_front() {
            let (payload, ttl) = (&octets[..], octets[4]);
            let packet = IpReceived { src, dst, ifindex, ttl, tos: 0, router_alert: true, payload };
            self.one(to, Input::Packet(packet), &mut waiting);
        }
    }

    fn one(
        &mut self,
        at: usize,
        input: Input<'_>,
        waiting: &mut std::collections::VecDeque<(usize, IfIndex, IpAddr, IpAddr, Vec<u8>)>,
    ) {
        let (now, count) = (self.now, self.nodes.len());
        let here = &mut self.nodes[at];
        let diagnosis = matches!(&input, Input::Packet(packet) if matches!(packet.payload[1], 8 | 9));
        if diagnosis && self.deaf.contains(&at) {
            return;
        }
        here.rsvp.handle(now, input, &mut here.resources);
        loop {
            let mut lookups = Vec::new();
            while let Some(output) = here.rsvp.poll() {
                match output {
                    Output::Send(packet) => {
                        let octets = packet.payload.to_vec();
                        let kind = MessageType(octets[1]);
                        let diagnostic = matches!(kind, MessageType::DREQ | MessageType::DREP);
                        // Between neighbors, whatever routing would say.
                        let up = match packet.ifindex {
                            Some(ifindex) => ifindex == IfIndex(1),
                            None => panic!("{kind} to {} without an interface", packet.dst),
                        };
                        let (to, ifindex) = if up { (at - 1, IfIndex(2)) } else { (at + 1, IfIndex(1)) };
                        if diagnostic {
                            let other = if up { address(at - 1, 1) } else { address(at, 2) };
                            assert_eq!(packet.dst, other, "{kind} to a neighbor");
                            let octets = octets.clone();
                            self.seen.push(Packet { from: at, kind, dst: packet.dst, octets });
                        }
                        waiting.push_back((to, ifindex, packet.src, packet.dst, octets));
                    }
                    Output::Reply { dst, payload, .. } => self.replies.push((dst, payload.to_vec())),
                    Output::RouteLookup { id, .. } => lookups.push(id),
                    _ => {}
                }
            }
            while let Some(output) = here.resources.poll() {
                if let ResourceOutput::Install { id, .. } = output {
                    here.resources.installed(id, Ok(()));
                }
            }
            if lookups.is_empty() {
                return;
            }
            for id in lookups {
                let local = at + 1 == count;
                let ifindex = if local { IfIndex(100) } else { IfIndex(2) };
                let src = if local { address(at - 1, 2) } else { address(at, 1) };
                let route = Route { ifindex, src, gateway: None, mtu: 1500, local };
                here.rsvp.handle(now, Input::Route { id, result: Ok(route) }, &mut here.resources);
            }
        }
    }

    /// Asks from the LAST-HOP on; replies to the requester.
    fn ask(&mut self, max_hops: u8, path_mtu: u16, with_route: bool) -> Vec<Vec<u8>> {
        let (last_hop, session) = (self.last_hop(), self.session());
        let octets = compose(MessageType::DREQ, 255, |w| {
            let asked = Diagnostic {
                max_hops,
                hops: 0,
                more: false,
                request_id: 7,
                path_mtu,
                offset: 0,
                last_hop,
                sender: sender(),
                requester: requester(),
            };
            w.session(&session, false).hop(&RsvpHop { addr: requester().ip(), lih: 0 }).diagnostic(&asked);
            if with_route {
                w.route(false, 0, std::iter::empty());
            }
        });
        self.request(last_hop, &octets)
    }

    /// Gives a DREQ to the node with this address; replies to the requester.
    pub(crate) fn request(&mut self, to: IpAddr, octets: &[u8]) -> Vec<Vec<u8>> {
        let last = self.nodes.len() - 1;
        let owner = (0..last).find_map(|link| match to {
            _ if to == address(link, 1) => Some(link),
            _ if to == address(link, 2) => Some(link + 1),
            _ => None,
        });
        let Some(node) = owner else { return Vec::new() };
        self.seen.clear();
        let src = requester().ip();
        let ifindex = IfIndex(if node == last { 1 } else { 2 });
        let packet =
            IpReceived { src, dst: to, ifindex, ttl: 250, tos: 0, router_alert: false, payload: octets };
        self.input(node, Input::Packet(packet));
        let replies = std::mem::take(&mut self.replies);
        assert!(replies.iter().all(|(dst, _)| *dst == requester()));
        replies.into_iter().map(|(_, octets)| octets).collect()
    }
}

fn asked(octets: &[u8]) -> Diagnostic {
    Message::parse(octets).unwrap().diagnostic().unwrap()
}

/// Incoming interfaces of the nodes in a reply.
fn ways(octets: &[u8]) -> Vec<IpAddr> {
    Message::parse(octets).unwrap().responses().map(|one| one.incoming).collect()
}

/// Proves RSVPX-2745-3-06: the reply comes directly from the sender's node, or with a ROUTE from node to node and from
/// the LAST-HOP; each hop is reported once, with its reservation; all is unicast, a DREQ is one datagram.
#[test]
fn there_and_back_both_ways() {
    let mut chain = Chain::new(4);
    for with_route in [false, true] {
        let replies = chain.ask(0, 1500, with_route);
        assert_eq!(replies.len(), 1);
        let message = Message::parse(&replies[0]).unwrap();
        assert_eq!((message.kind, asked(&replies[0]).hops), (MessageType::DREP, 4));
        let zero: IpAddr = Ipv4Addr::UNSPECIFIED.into();
        assert_eq!(ways(&replies[0]), [address(2, 2), address(1, 2), address(0, 2), zero]);
        for found in message.responses() {
            let classes: Vec<_> = found.objects().map(|object| object.kind.class).collect();
            assert_eq!(classes, [Class::SENDER_TSPEC, Class::STYLE, Class::FLOWSPEC, Class::FILTER_SPEC]);
        }
        let hops: Vec<u8> = message.responses().map(|found| found.d_ttl).collect();
        assert_eq!(hops, [5, 0, 0, 0]);
        let outgoing: Vec<_> = message.responses().map(|found| found.outgoing).collect();
        assert_eq!(outgoing, [address(2, 2), address(2, 1), address(1, 1), address(0, 1)]);

        let kinds: Vec<_> = chain.seen.iter().map(|one| (one.from, one.kind)).collect();
        let (dreq, drep) = (MessageType::DREQ, MessageType::DREP);
        let there = [(3, dreq), (2, dreq), (1, dreq)];
        let back = [(0, drep), (1, drep), (2, drep)];
        if with_route {
            assert_eq!(kinds, [there, back].concat());
            let pointers: Vec<_> = chain
                .seen
                .iter()
                .map(|one| Message::parse(&one.octets).unwrap().route().unwrap().pointer)
                .collect();
            assert_eq!(pointers, [1, 2, 3, 2, 1, 0]);
        } else {
            assert_eq!(kinds, there);
        }
        assert!(chain.seen.iter().all(|one| !one.dst.is_multicast() && one.octets.len() <= 1480));
    }
}

/// Proves RSVPX-2745-3-03: an expanding search.
#[test]
fn an_expanding_search() {
    let mut chain = Chain::new(4);
    for max_hops in 1..=5 {
        let replies = chain.ask(max_hops, 1500, true);
        let reached = max_hops.min(4);
        assert_eq!((replies.len(), asked(&replies[0]).hops), (1, reached));
        assert_eq!(ways(&replies[0]).len(), usize::from(reached));
        let sent = chain.seen.iter().filter(|one| one.kind == MessageType::DREQ).count();
        assert_eq!(sent, usize::from(reached) - 1);
    }
}

/// Proves RSVPX-2745-4.1-03 and RSVPX-2745-3-04: ten nodes and a Path MTU of 300. Fragments have MF and an offset;
/// reassembled they equal one large reply. A ROUTE that grew too big starts again, and replies from beyond still
/// arrive.
#[test]
fn parts_of_a_long_path() {
    let mut chain = Chain::new(10);
    let whole = chain.ask(0, 1500, false);
    let objects = |octets: &[u8]| -> Vec<u8> {
        let message = Message::parse(octets).unwrap();
        let found = message.objects().filter(|object| object.kind.class == Class::DIAG_RESPONSE);
        found.flat_map(|object| object.octets.to_vec()).collect()
    };
    for (path_mtu, with_route, too_long) in [(300, false, false), (300, true, false), (240, true, true)] {
        let mut replies = chain.ask(0, path_mtu, with_route);
        // Later fragments may take a shorter path.
        replies.sort_by_key(|reply| asked(reply).offset);
        assert!(replies.len() > 5, "{}", replies.len());
        let most = usize::from(path_mtu) - 20;
        assert!(replies.iter().chain(chain.seen.iter().map(|one| &one.octets)).all(|one| one.len() <= most));
        assert!(chain.seen.iter().all(|one| one.kind == MessageType::DREP || !asked(&one.octets).more));
        let (end, parts) = replies.split_last().unwrap();
        assert!(parts.iter().all(|part| asked(part).more) && !asked(end).more);
        let mut together = Vec::new();
        for reply in &replies {
            assert_eq!(usize::from(asked(reply).offset), together.len());
            together.extend(objects(reply));
        }
        assert_eq!(together.len(), objects(&whole[0]).len(), "one node, one response");
        let errors = replies.iter().flat_map(|reply| {
            let errors: Vec<_> = Message::parse(reply).unwrap().responses().map(|one| one.errors).collect();
            errors
        });
        let errors: Vec<DiagErrors> = errors.collect();
        assert_eq!(errors.len(), 10);
        assert_eq!(errors[0], DiagErrors::default(), "the first one had room");
        assert!(errors.contains(&DiagErrors::TOO_BIG));
        let anew = errors.iter().filter(|one| one.contains(DiagErrors::ROUTE_TOO_BIG)).count();
        assert_eq!(anew > 0, too_long);
    }
    // A Path MTU below the minimum counts as the minimum.
    let replies = chain.ask(0, 0, false);
    assert_eq!(replies.len(), 10);
    assert!(replies.iter().all(|reply| ways(reply).len() == 1));
}
