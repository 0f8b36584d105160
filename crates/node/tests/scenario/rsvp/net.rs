//! A node whose requests to the kernel are checked, and the state of its applications by their events.

use std::collections::BTreeMap;

use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_core::{IfIndex, Time};
use signalbox_node::resources::intserv::TSpec;
use signalbox_node::rsvp::{Filter, FlowSpec, Refused, RsvpEvent};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Boot, NodeId};

use crate::kernel::Kernel;

/// The state of an application according to its events.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Known {
    /// The reservation for its own sender.
    pub(crate) reserved: Option<FlowSpec>,
    /// The senders of which it received path events.
    pub(crate) senders: BTreeMap<Filter, TSpec>,
    pub(crate) refused: Vec<Refused>,
}

/// A node whose requests to the kernel are checked: the reservations at an interface never exceed its share.
pub(crate) struct Host {
    pub(crate) node: Node,
    name: NodeId,
    /// Reservable octets a second by interface.
    shares: BTreeMap<IfIndex, u64>,
    kernel: Kernel,
    known: BTreeMap<u64, Known>,
}

impl Host {
    pub(crate) fn new(boot: Boot, config: Config, shares: BTreeMap<IfIndex, u64>) -> Self {
        Self {
            node: Node::new(config, boot.seed).unwrap(),
            name: boot.node,
            shares,
            kernel: Kernel::default(),
            known: BTreeMap::new(),
        }
    }

    /// The state of an application of this node.
    pub(crate) fn known(&self, id: u64) -> Known {
        self.known.get(&id).cloned().unwrap_or_default()
    }
}

impl Known {
    fn take(&mut self, event: &RsvpEvent) {
        match event {
            RsvpEvent::Refused(why) => self.refused.push(*why),
            RsvpEvent::Path { sender, tspec, .. } => drop(self.senders.insert(*sender, *tspec)),
            RsvpEvent::PathGone { sender } => drop(self.senders.remove(sender)),
            RsvpEvent::Resv { flowspec, .. } => self.reserved = Some(*flowspec),
            RsvpEvent::ResvGone { .. } => self.reserved = None,
            RsvpEvent::PathError { .. }
            | RsvpEvent::ResvError { .. }
            | RsvpEvent::Confirmed { .. }
            | RsvpEvent::SendersEnded { .. }
            | RsvpEvent::NeighborForgotten { .. } => {}
        }
    }
}

impl NodeEngine for Host {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        self.kernel.answers(&input);
        // A closed session has no state.
        if let Input::Command(Command::Rsvp { id, command: signalbox_node::rsvp::Command::Close }) = &input {
            self.known.remove(id);
        }
        self.node.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        let Self { node, name, shares, kernel, known } = self;
        let output = node.poll()?;
        if let Output::Event(Event::Rsvp { id, event }) = &output {
            known.entry(*id).or_default().take(event);
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
