//! Connection tracking: flows, their states and their translation.

use std::net::IpAddr;

use super::packet::{Packet, Tuple};

/// The direction of a packet in its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// That of its first packet.
    Original,
    /// That of the answers.
    Reply,
}

/// A flow.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    /// Its first packet as it arrived.
    pub(crate) first: Tuple,
    /// An answer as it arrives.
    pub(crate) answer: Tuple,
    pub(crate) mark: u32,
    pub(crate) answered: bool,
    /// Whether its source and its destination are decided: the first chain that translates decides, and once.
    translated: [bool; 2],
}

impl Flow {
    fn new(first: Tuple) -> Self {
        Self { first, answer: first.answer(), mark: 0, answered: false, translated: [false; 2] }
    }

    /// The state as rules see it: new, or established.
    pub(crate) const fn state(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Original if !self.answered => 8,
            _ => 2,
        }
    }

    /// Whether the first packet of the flow has been answered, or this is an answer.
    pub(crate) fn is_established(&self, direction: Direction) -> bool {
        self.state(direction) == 2
    }

    /// Translates the flow, unless a chain did so before.
    pub(crate) fn translate(&mut self, source: bool, address: IpAddr, port: Option<u16>) {
        if std::mem::replace(&mut self.translated[usize::from(source)], true) {
            return;
        }
        // The answer has the ends after translation, inverted.
        let (end, own) = if source {
            (&mut self.answer.dst, &mut self.answer.dst_port)
        } else {
            (&mut self.answer.src, &mut self.answer.src_port)
        };
        *end = address;
        *own = port.unwrap_or(*own);
    }

    /// The packet as it leaves.
    fn after(&self, packet: &Packet, direction: Direction) -> Packet {
        let other = match direction {
            Direction::Original => self.answer,
            Direction::Reply => self.first,
        };
        packet.translated(other)
    }
}

/// All flows that are confirmed: their first packet has passed.
#[derive(Debug, Default, Clone)]
pub(crate) struct Flows(Vec<Flow>);

/// A packet, with its flow.
pub(crate) struct Tracked {
    pub(crate) flow: Flow,
    pub(crate) direction: Direction,
    /// Its place among the flows; `None`: it is new.
    at: Option<usize>,
}

impl Flows {
    /// The flow of a packet, a new one if there is none; `None`: the packet begins no flow, and belongs to none.
    pub(crate) fn track(&mut self, packet: &Packet) -> Option<Tracked> {
        let tuple = packet.tuple();
        let found = self.0.iter().enumerate().find_map(|(at, flow)| {
            if flow.first == tuple {
                return Some((at, Direction::Original));
            }
            (flow.answer == tuple).then_some((at, Direction::Reply))
        });
        if let Some((at, direction)) = found {
            self.0[at].answered |= direction == Direction::Reply;
            return Some(Tracked { flow: self.0[at].clone(), direction, at: Some(at) });
        }
        let begins = packet.begins_flow();
        begins.then(|| Tracked { flow: Flow::new(tuple), direction: Direction::Original, at: None })
    }

    /// Keeps what has been changed of a flow. That of a new one is lost with its packet.
    pub(crate) fn keep(&mut self, tracked: &Tracked, passed: bool) {
        match tracked.at {
            Some(at) => self.0[at] = tracked.flow.clone(),
            None if passed => self.0.push(tracked.flow.clone()),
            None => {}
        }
    }

    /// Whether an answer to this new flow would belong to another one, so that the kernel chooses another port.
    pub(crate) fn clashes(&self, tracked: &Tracked) -> bool {
        tracked.at.is_none()
            && self.0.iter().any(|flow| [flow.first, flow.answer].contains(&tracked.flow.answer))
    }
}

impl Tracked {
    /// The packet after translation.
    pub(crate) fn after(&self, packet: &Packet) -> Packet {
        self.flow.after(packet, self.direction)
    }

    /// Whether chains that translate see the packet.
    pub(crate) fn is_new(&self) -> bool {
        self.direction == Direction::Original && self.at.is_none()
    }
}
