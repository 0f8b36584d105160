//! A gateway with a clock, an outbox and a kernel.

use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::Time;
use signalbox_core::pinhole::{Pinhole, PinholeError, PinholeId, Translation};
use signalbox_core::traffic::FlowFilter;

use super::{DEADLINES, Packet, Via};
use crate::gateway::{Config, ConfigError, Gateway, Input, Output};

/// Turns of questions and answers for one input. A gateway that takes more has an endless loop.
const TURNS: u32 = 64;

type Translates = Box<dyn Fn(&FlowFilter) -> Option<Translation>>;

/// A binding that the kernel is asked for.
#[derive(Debug, Clone)]
pub struct Open {
    /// The id of its pinhole.
    pub id: PinholeId,
    /// The packets and their translation.
    pub pinhole: Pinhole,
    /// Time until the kernel removes it.
    pub lifetime: Duration,
}

/// A gateway, and the kernel that makes its bindings.
pub struct Gate {
    /// The gateway.
    pub gateway: Gateway,
    /// The present time.
    pub now: Time,
    /// Packets that were sent and not taken yet.
    pub sent: VecDeque<Packet>,
    /// Requests for bindings that were answered and not taken yet.
    pub opened: Vec<Open>,
    /// Bindings that the kernel has.
    pub standing: Vec<Open>,
    /// Requests for bindings that wait for their answer.
    pub asked: VecDeque<Open>,
    /// The kernel answers them one by one, by [`Gate::answer`].
    pub slow: bool,
    /// The kernel refuses bindings.
    pub refusal: Option<PinholeError>,
    /// How the kernel translates packets without a binding of the gateway.
    pub translation: Translates,
    /// The number of questions about that.
    pub questions: usize,
}

impl Gate {
    /// A gateway at the time 0, without interfaces.
    ///
    /// # Errors
    /// As [`Gateway::new`].
    pub fn new(config: Config, seed: [u8; 32]) -> Result<Self, ConfigError> {
        Ok(Self {
            gateway: Gateway::new(config, seed)?,
            now: Time::ZERO,
            sent: VecDeque::new(),
            opened: Vec::new(),
            standing: Vec::new(),
            asked: VecDeque::new(),
            slow: false,
            refusal: None,
            translation: Box::new(|_| None),
            questions: 0,
        })
    }

    /// Gives the gateway an input, and takes all outputs.
    pub fn handle(&mut self, input: Input<'_>) {
        self.gateway.handle(self.now, input);
        self.drain();
    }

    /// Takes all outputs; the kernel answers.
    pub fn drain(&mut self) {
        for turn in 0.. {
            assert!(turn < TURNS, "outputs without end");
            let mut sought = Vec::new();
            while let Some(output) = self.gateway.poll() {
                match output {
                    Output::Transmit(packet) => self.sent.push_back(packet.into()),
                    Output::Open { id, pinhole, lifetime } => {
                        self.asked.push_back(Open { id, pinhole, lifetime });
                    }
                    Output::Close { id } => self.standing.retain(|open| open.id != id),
                    Output::Find { id, packets } => sought.push((id, packets)),
                }
            }
            let answered = if self.slow { 0 } else { self.asked.len() };
            if sought.is_empty() && answered == 0 {
                break;
            }
            self.questions += sought.len();
            for (id, packets) in sought {
                let translation = (self.translation)(&packets);
                self.gateway.handle(self.now, Input::Found { id, translation });
            }
            for open in self.asked.drain(..answered).collect::<Vec<_>>() {
                self.open(open);
            }
        }
    }

    fn open(&mut self, open: Open) {
        let (id, result) = (open.id, self.refusal.map_or(Ok(()), Err));
        if result.is_ok() {
            self.standing.retain(|standing| standing.id != id);
            self.standing.push(open.clone());
        }
        self.opened.push(open);
        self.gateway.handle(self.now, Input::Opened { id, result });
    }

    /// Answers the oldest request that waits. False if there is none.
    pub fn answer(&mut self) -> bool {
        let Some(open) = self.asked.pop_front() else { return false };
        self.open(open);
        self.drain();
        true
    }

    /// Gives the gateway a packet.
    pub fn packet(&mut self, via: &Via, payload: &[u8]) {
        self.handle(Input::Datagram(via.packet(payload)));
    }

    /// Lets time pass: timers fire at the times that the gateway asks for.
    pub fn until(&mut self, end: Time) {
        for count in 0.. {
            assert!(count < DEADLINES, "timers come again and again");
            let Some(due) = self.gateway.next_deadline().filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            self.handle(Input::Timer);
        }
        self.now = end;
    }
}
