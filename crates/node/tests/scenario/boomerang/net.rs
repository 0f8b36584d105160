//! A node whose requests to the kernel are checked, and what its users know by their events.

use core::net::IpAddr;
use std::collections::BTreeMap;

use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_core::{IfIndex, Time};
use signalbox_node::boomerang::{BoomerangEvent, Command as BoomerangCommand, Rates, Request};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Boot, NodeId, Sim};

use crate::kernel::Kernel;

/// A node whose requests to the kernel are checked: the reservations at an interface never exceed its share.
pub(crate) struct Host {
    pub(crate) node: Node,
    name: NodeId,
    /// Reservable octets a second by interface.
    shares: BTreeMap<IfIndex, u64>,
    kernel: Kernel,
    /// The rates that each user holds, by the last event.
    pub(crate) known: BTreeMap<u64, Rates>,
}

impl Host {
    pub(crate) fn new(boot: Boot, config: Config, shares: BTreeMap<IfIndex, u64>) -> Self {
        let node = Node::new(config, boot.seed).unwrap();
        Self { node, name: boot.node, shares, kernel: Kernel::default(), known: BTreeMap::new() }
    }
}

impl NodeEngine for Host {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        self.kernel.answers(&input);
        self.node.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        let Self { node, name, shares, kernel, known } = self;
        let output = node.poll()?;
        if let Output::Event(Event::Boomerang { id, event }) = &output {
            match event {
                BoomerangEvent::Reserved { rates, .. } => drop(known.insert(*id, *rates)),
                BoomerangEvent::Refused(_)
                | BoomerangEvent::Unanswered
                | BoomerangEvent::Unreachable(_)
                | BoomerangEvent::Closed { .. } => {
                    known.remove(id);
                }
                BoomerangEvent::Rejected(_)
                | BoomerangEvent::ChangeRefused(_)
                | BoomerangEvent::Available(_) => {}
            }
        }
        kernel.take_request(*name, &output, |ifindex| shares[&ifindex]);
        Some(output)
    }

    fn entries(&self) -> Vec<signalbox_core::EntryRequest> {
        self.node.entries()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.node.next_deadline()
    }
}

/// A request for UDP to this port of the far end, with these pairs of forward and reverse rates in bit/s.
pub(crate) fn request(far_end: IpAddr, port: u16, rates: &[(u32, u32)]) -> Request {
    Request {
        far_end,
        src: None,
        dst: None,
        protocol: Some(17),
        src_port: None,
        dst_port: Some(port),
        dscp: 46,
        rates: rates
            .iter()
            .map(|(forward, reverse)| Rates { forward: *forward, reverse: *reverse })
            .collect(),
        intserv: None,
        refresh: None,
        user: None,
        confirm_release: false,
        name_nodes: false,
    }
}

/// Gives a node a command, if it runs.
pub(crate) fn command(sim: &mut Sim<Host>, node: NodeId, id: u64, command: BoomerangCommand) {
    if sim.engine(node).is_some() {
        sim.command(node, Command::Boomerang { id, command });
    }
}

/// Octets a second by node, interface, port of the flow, and whether its data come from the far end.
pub(crate) type Held = BTreeMap<(NodeId, IfIndex, u16, bool), u64>;

/// What the kernels of these nodes hold.
pub(crate) fn held(sim: &Sim<Host>, nodes: &[NodeId]) -> Held {
    let mut held = Held::new();
    for node in nodes {
        for (id, reservation) in sim.reservations(*node) {
            let [filter] = &reservation.filters[..] else { panic!("{:?}", reservation.filters) };
            let (port, reverse) = match (filter.src_port, filter.dst_port) {
                (None, Some(port)) => (port, false),
                (Some(port), None) => (port, true),
                _ => panic!("{filter}"),
            };
            let twice = held.insert((*node, reservation.ifindex, port, reverse), reservation.rate());
            assert_eq!(twice, None, "{id} stands twice");
        }
    }
    held
}

/// Octets a second by node and interface.
pub(crate) type Sums = BTreeMap<(NodeId, IfIndex), u64>;

pub(crate) fn sums(held: &Held) -> Sums {
    let mut sums = Sums::new();
    for ((node, ifindex, ..), rate) in held {
        *sums.entry((*node, *ifindex)).or_default() += rate;
    }
    sums
}

/// What the kernels of these nodes hold in all, aggregates included.
pub(crate) fn totals(sim: &Sim<Host>, nodes: &[NodeId]) -> Sums {
    let mut sums = Sums::new();
    for node in nodes {
        for (_, reservation) in sim.reservations(*node) {
            *sums.entry((*node, reservation.ifindex)).or_default() += reservation.rate();
        }
    }
    sums
}

/// Octets a second of a rate in bit/s.
pub(crate) fn octets(rate: u32) -> u64 {
    u64::from(rate).div_ceil(8)
}
