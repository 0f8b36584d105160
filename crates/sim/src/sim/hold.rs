//! Messages that an exploration holds: each one waits on its way until the exploration lets it arrive.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use signalbox_core::Time;
use signalbox_core::node::{NodeEngine, StreamError};

use super::{Occurrence, Sim};
use crate::config::NodeId;
use crate::packet::Packet;
use crate::stream::{Signal, StreamEvent};

/// The identity of a message: its sender, its number among the messages of this sender, and its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HeldId {
    pub(crate) from: NodeId,
    pub(crate) number: u32,
    pub(crate) copy: u8,
}

/// A message on its way.
pub(crate) struct Held {
    pub(crate) id: HeldId,
    pub(crate) to: NodeId,
    /// It is not decided yet whether it is lost.
    pub(crate) fresh: bool,
    /// Time has passed since it was sent.
    pub(crate) late: bool,
    event: Occurrence,
}

/// What a held message is.
pub(crate) enum Kind<'a> {
    Packet(&'a Packet),
    /// A signal of a stream, and the number of its octets.
    Stream(&'static str, usize),
}

impl Held {
    pub(crate) const fn kind(&self) -> Option<Kind<'_>> {
        match &self.event {
            Occurrence::Arrival { packet, .. } => Some(Kind::Packet(packet)),
            Occurrence::Stream { event: StreamEvent::Arrive { signal, .. }, .. } => Some(match signal {
                Signal::Syn => Kind::Stream("SYN", 0),
                Signal::SynAck => Kind::Stream("SYN and ACK", 0),
                Signal::Refusal => Kind::Stream("refusal", 0),
                Signal::Established => Kind::Stream("ACK", 0),
                Signal::Data(octets) => Kind::Stream("octets", octets.len()),
                Signal::Fin => Kind::Stream("FIN", 0),
                Signal::Reset => Kind::Stream("RST", 0),
                Signal::Credit(octets) => Kind::Stream("window", *octets),
            }),
            _ => None,
        }
    }

    /// The connection and the end of a stream's signal.
    const fn stream(&self) -> Option<(u64, usize)> {
        match &self.event {
            Occurrence::Stream { connection, event: StreamEvent::Arrive { to, .. } } => {
                Some((*connection, *to))
            }
            _ => None,
        }
    }
}

/// The held messages, and what each node has received.
#[derive(Default)]
pub(super) struct Hold {
    /// In the order of their identities.
    messages: Vec<Held>,
    /// Number of messages that each node has sent.
    sent: Vec<u32>,
    /// A hash of what each node has received, with the times, and of its restarts.
    received: Vec<u64>,
}

impl Hold {
    fn received(&mut self, node: NodeId, event: impl Hash) {
        if let Some(hash) = self.received.get_mut(node.at()) {
            let mut hasher = DefaultHasher::new();
            (*hash, event).hash(&mut hasher);
            *hash = hasher.finish();
        }
    }
}

impl<N: NodeEngine> Sim<N> {
    /// Holds all messages from now on.
    pub(crate) fn hold(&mut self) {
        self.start();
        let (nodes, now) = (self.nodes.len(), self.now);
        self.hold = Some(Hold { sent: vec![0; nodes], received: vec![0; nodes], ..Hold::default() });
        for queued in core::mem::take(&mut self.queue).into_sorted_vec().into_iter().rev() {
            self.enqueue(queued.at, queued.event);
        }
        self.settle(now);
    }

    pub(super) const fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    /// Ends [`Sim::hold`]: the held messages arrive, the oldest first.
    pub(crate) fn unhold(&mut self) {
        for message in self.hold.take().into_iter().flat_map(|hold| hold.messages) {
            self.enqueue(self.now, message.event);
        }
    }

    /// Takes an event that is a message on its way. Answers of kernels are not held: they come at once.
    pub(super) fn held(&mut self, event: Occurrence) -> Option<Occurrence> {
        let Some(hold) = &mut self.hold else { return Some(event) };
        let (from, to) = match &event {
            Occurrence::Arrival { link, end, .. } => {
                let link = self.network.link(*link);
                (link.node(1 - end), link.node(*end))
            }
            Occurrence::Stream { connection, event: StreamEvent::Arrive { to, signal } }
                if !matches!(signal, Signal::Credit(_)) =>
            {
                let nodes = self.streams.get(*connection).map(|both| both.nodes);
                let Some([Some(first), Some(second)]) = nodes else { return Some(event) };
                if *to == 0 { (second, first) } else { (first, second) }
            }
            _ => return Some(event),
        };
        let Some(number) = hold.sent.get_mut(from.at()) else { return Some(event) };
        *number += 1;
        let id = HeldId { from, number: *number, copy: 0 };
        let at = hold.messages.partition_point(|held| held.id < id);
        hold.messages.insert(at, Held { id, to, fresh: true, late: false, event });
        None
    }

    pub(crate) fn messages(&self) -> &[Held] {
        self.hold.as_ref().map_or(&[], |hold| &hold.messages)
    }

    /// Positions of the messages that can arrive next: the signals of a stream keep their order.
    pub(crate) fn deliverable(&self) -> impl Iterator<Item = usize> {
        let mut streams = BTreeSet::new();
        let first = move |held: &Held| held.stream().is_none_or(|stream| streams.insert(stream));
        let all = self.messages().iter().map(first).enumerate();
        all.filter(|(_, first)| *first).map(|(at, _)| at)
    }

    /// Whether a message overtakes another one on its way, which was sent before it by the same node to the same node.
    /// Late messages and copies can be overtaken by all.
    pub(crate) fn overtakes(&self, at: usize) -> bool {
        let (before, Some(held)) = (self.messages().iter().take(at), self.messages().get(at)) else {
            return false;
        };
        let same =
            |one: &Held| (one.id.from, one.to) == (held.id.from, held.to) && one.id.number < held.id.number;
        held.stream().is_none()
            && before
                .into_iter()
                .any(|one| same(one) && one.stream().is_none() && !one.late && one.id.copy == 0)
    }

    fn message(&mut self, at: usize) -> Option<&mut Held> {
        self.hold.as_mut()?.messages.get_mut(at)
    }

    /// Decides that a message is not lost.
    pub(crate) fn keep(&mut self, at: usize) {
        if let Some(held) = self.message(at) {
            held.fresh = false;
        }
    }

    fn take(&mut self, at: usize) -> Option<Held> {
        let messages = &mut self.hold.as_mut()?.messages;
        (at < messages.len()).then(|| messages.remove(at))
    }

    /// Loses a message. The loss of a stream's signal breaks the connection, and both its ends notice it.
    pub(crate) fn lose(&mut self, at: usize) {
        let Some(lost) = self.take(at) else { return };
        let Some((connection, _)) = lost.stream() else { return };
        if let Some(hold) = &mut self.hold {
            let of_it = |held: &Held| held.stream().is_some_and(|(other, _)| other == connection);
            hold.messages.retain(|held| !of_it(held));
            for node in [lost.id.from, lost.to] {
                hold.received(node, (self.now, "broken", lost.id));
            }
        }
        for end in 0..2 {
            self.fail(connection, end, StreamError::TimedOut);
        }
        self.settle(self.now);
    }

    /// Sends a packet twice. Returns false for a stream's signal, which cannot be doubled.
    pub(crate) fn double(&mut self, at: usize) -> bool {
        let Some(held) = self.message(at) else { return false };
        let Occurrence::Arrival { link, end, packet } = &held.event else { return false };
        let event = Occurrence::Arrival { link: *link, end: *end, packet: packet.clone() };
        let id = HeldId { copy: 1, ..held.id };
        held.fresh = false;
        let copy = Held { id, to: held.to, fresh: false, late: false, event };
        if let Some(hold) = &mut self.hold {
            hold.messages.insert(at + 1, copy);
        }
        true
    }

    /// Lets a message arrive now.
    pub(crate) fn arrives(&mut self, at: usize) {
        let Some(held) = self.take(at) else { return };
        let now = self.now;
        if let Some(hold) = &mut self.hold {
            hold.received(held.to, (now, held.id));
        }
        self.steps += u64::from(self.step(held.event));
        self.settle(now);
    }

    /// Restarts a node. It receives what is on its way to it.
    pub(crate) fn restarts(&mut self, node: NodeId) {
        let now = self.now;
        if let Some(hold) = &mut self.hold {
            hold.received(node, (now, "restart"));
        }
        self.restart(node);
        self.settle(now);
    }

    /// Time of the next event that is not a held message, at most `end`.
    pub(crate) fn next_event(&self, end: Time) -> Option<Time> {
        let up_to_date = |event: &Occurrence, at: Time| match event {
            Occurrence::Timer { node } => self.nodes[node.at()].timer == Some(at),
            _ => true,
        };
        self.queue
            .iter()
            .filter(|one| one.at <= end && up_to_date(&one.event, one.at))
            .map(|one| one.at)
            .min()
    }

    /// Lets time pass until `at`. What is still on its way is late then.
    pub(crate) fn passes(&mut self, at: Time) {
        for held in self.hold.iter_mut().flat_map(|hold| &mut hold.messages) {
            held.late = true;
        }
        self.settle(at);
    }

    /// Handles the events up to a time. Their order among nodes has no effect: nodes share nothing but messages.
    fn settle(&mut self, until: Time) {
        self.run_until(until);
    }

    /// Hashes what determines the further run: what each node has received and when, and what is on its way. An engine
    /// is a function of its inputs, so equal values are equal states.
    pub(crate) fn hash_state(&self, hasher: &mut impl Hasher) {
        self.now.hash(hasher);
        let Some(hold) = &self.hold else { return };
        hold.received.hash(hasher);
        for held in &hold.messages {
            (held.id, held.fresh, held.late).hash(hasher);
        }
    }
}
