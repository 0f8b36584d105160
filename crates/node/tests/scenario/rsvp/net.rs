//! A node whose words to its kernel are checked, and what its applications know.

use std::collections::{BTreeMap, VecDeque};

use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_core::traffic::ReservationId;
use signalbox_core::{IfIndex, Time};
use signalbox_node::resources::intserv::TSpec;
use signalbox_node::rsvp::{Filter, FlowSpec, Refused, RsvpEvent};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Boot, NodeId};

/// What an application knows by what it heard.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Known {
    /// What is reserved for its own sender.
    pub(crate) reserved: Option<FlowSpec>,
    /// The senders that it hears of.
    pub(crate) senders: BTreeMap<Filter, TSpec>,
    pub(crate) refused: Vec<Refused>,
}

/// A node whose every word to the kernel is checked: never is more installed at an interface than may be.
pub(crate) struct Host {
    pub(crate) node: Node,
    name: NodeId,
    /// By interface: octets a second that may be reserved.
    shares: BTreeMap<IfIndex, u64>,
    installed: BTreeMap<ReservationId, Standing>,
    /// What stood before that which the kernel has not answered yet.
    before: VecDeque<(ReservationId, Option<Standing>)>,
    known: BTreeMap<u64, Known>,
}

/// An interface, and octets a second there.
type Standing = (IfIndex, u64);

impl Host {
    pub(crate) fn new(boot: Boot, config: Config, shares: BTreeMap<IfIndex, u64>) -> Self {
        Self {
            node: Node::new(config, boot.seed).unwrap(),
            name: boot.node,
            shares,
            installed: BTreeMap::new(),
            before: VecDeque::new(),
            known: BTreeMap::new(),
        }
    }

    /// What an application of this node knows.
    pub(crate) fn known(&self, id: u64) -> Known {
        self.known.get(&id).cloned().unwrap_or_default()
    }
}

impl Known {
    fn hear(&mut self, event: &RsvpEvent) {
        match event {
            RsvpEvent::Refused(why) => self.refused.push(*why),
            RsvpEvent::Path { sender, tspec, .. } => drop(self.senders.insert(*sender, *tspec)),
            RsvpEvent::PathGone { sender } => drop(self.senders.remove(sender)),
            RsvpEvent::Resv { flowspec, .. } => self.reserved = Some(*flowspec),
            RsvpEvent::ResvGone { .. } => self.reserved = None,
            RsvpEvent::PathError { .. } | RsvpEvent::ResvError { .. } | RsvpEvent::Confirmed { .. } => {}
        }
    }
}

impl NodeEngine for Host {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        if let Input::Reserved { id, result } = &input
            && let Some(at) = self.before.iter().position(|(of, _)| of == id)
            && let Some((id, before)) = self.before.remove(at)
            && result.is_err()
        {
            match before {
                Some(before) => self.installed.insert(id, before),
                None => self.installed.remove(&id),
            };
        }
        // Whoever closes knows nothing any more.
        if let Input::Command(Command::Rsvp { id, command: signalbox_node::rsvp::Command::Close }) = &input {
            self.known.remove(id);
        }
        self.node.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        let Self { node, name, shares, installed, before, known } = self;
        let output = node.poll()?;
        match &output {
            Output::Event(Event::Rsvp { id, event }) => known.entry(*id).or_default().hear(event),
            Output::Reserve { id, reservation } => {
                let ifindex = reservation.ifindex;
                let stood = installed.insert(*id, (ifindex, reservation.rate()));
                before.push_back((*id, stood));
                let at = installed.values().filter(|(at, _)| *at == ifindex);
                let (sum, share) = (at.map(|(_, rate)| rate).sum::<u64>(), shares[&ifindex]);
                assert!(sum <= share, "{name} holds {sum} of {share} at {ifindex:?}");
            }
            Output::Release { id } => {
                installed.remove(id);
                before.retain(|(of, _)| of != id);
            }
            _ => {}
        }
        Some(output)
    }

    fn next_deadline(&self) -> Option<Time> {
        self.node.next_deadline()
    }
}
