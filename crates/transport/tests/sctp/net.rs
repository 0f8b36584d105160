//! Two nodes and a network between them that loses, duplicates and reorders packets, in virtual time.

use std::net::{IpAddr, SocketAddr};

use core::time::Duration;

use signalbox_core::{IfIndex, Random, Time};
use signalbox_transport::sctp::{Arrival, AssociationId, Config, Event, EventKind, Sctp, Transmit};

pub(crate) const PORT: u16 = 270;

pub(crate) fn address(node: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, node])
}

/// A packet that came in by interface 1.
pub(crate) fn arrival(src: IpAddr, dst: IpAddr) -> Arrival {
    Arrival { src, dst, ifindex: IfIndex(1) }
}

pub(crate) struct Net {
    pub(crate) nodes: [Sctp; 2],
    pub(crate) now: Time,
    pub(crate) rng: Random,
    /// Packets under way: arrival time, sequence number, destination, packet.
    flying: Vec<(Time, u64, usize, Transmit)>,
    order: u64,
    pub(crate) loss: f64,
    pub(crate) doubling: f64,
    /// The largest extra delay.
    pub(crate) jitter: Duration,
    pub(crate) events: [Vec<Event>; 2],
    /// Every packet sent: time, sender, octets.
    pub(crate) log: Vec<(Time, usize, Vec<u8>)>,
}

pub(crate) fn listening() -> Config {
    Config { port: Some(PORT), ..Config::default() }
}

impl Net {
    pub(crate) fn new(config: &Config, seed: u64) -> Self {
        let mut rng = Random::from_number(seed);
        let nodes = [Sctp::new(config.clone(), rng.array()), Sctp::new(config.clone(), rng.array())];
        Self {
            nodes,
            // The time is not 0, so that no test depends on it.
            now: Time::from_secs(100_000),
            rng,
            flying: Vec::new(),
            order: 0,
            loss: 0.0,
            doubling: 0.0,
            jitter: Duration::ZERO,
            events: [Vec::new(), Vec::new()],
            log: Vec::new(),
        }
    }

    pub(crate) fn connect(&mut self) -> AssociationId {
        let (local, remote) = (SocketAddr::new(address(1), 0), SocketAddr::new(address(2), PORT));
        self.nodes[0].connect(self.now, local, remote).unwrap()
    }

    /// Sets up an association. Returns the identifiers of both ends.
    pub(crate) fn connected(&mut self) -> [AssociationId; 2] {
        let client = self.connect();
        self.run_until(|net| net.events.iter().all(|events| !events.is_empty()));
        let server = self.events[1][0].association;
        for events in &self.events {
            assert!(matches!(events[0].kind, EventKind::Connected { .. }), "{events:?}");
        }
        self.events = [Vec::new(), Vec::new()];
        [client, server]
    }

    /// Collects packets and events of the nodes.
    pub(crate) fn drain(&mut self) {
        for from in 0..2 {
            while let Some(event) = self.nodes[from].poll_event() {
                self.events[from].push(event);
            }
            while let Some(transmit) = self.nodes[from].poll_transmit() {
                self.log.push((self.now, from, transmit.octets.clone()));
                let copies = 1 + u32::from(self.rng.chance(self.doubling));
                for _ in 0..copies {
                    if self.rng.chance(self.loss) {
                        continue;
                    }
                    let extra = self.rng.range(0..u64::try_from(self.jitter.as_micros()).unwrap() + 1);
                    let at = self.now + Duration::from_micros(1000 + extra);
                    self.order += 1;
                    self.flying.push((at, self.order, 1 - from, transmit.clone()));
                }
            }
        }
    }

    /// Processes the next packet or timer. Returns false if neither exists.
    fn step(&mut self) -> bool {
        self.drain();
        let packet = self.flying.iter().enumerate().min_by_key(|(_, (at, order, ..))| (*at, *order));
        let packet = packet.map(|(index, (at, ..))| (*at, index));
        let timers = [self.nodes[0].next_deadline(), self.nodes[1].next_deadline()];
        let timer = timers.into_iter().flatten().min();
        match (packet, timer) {
            (Some((at, index)), timer) if timer.is_none_or(|timer| at <= timer) => {
                self.now = self.now.max(at);
                let (_, _, to, transmit) = self.flying.swap_remove(index);
                self.nodes[to].receive(
                    self.now,
                    arrival(transmit.src, transmit.dst),
                    &transmit.octets,
                    &|_| false,
                );
            }
            (_, Some(timer)) => {
                self.now = self.now.max(timer);
                for node in &mut self.nodes {
                    node.handle_timer(self.now);
                }
            }
            _ => return false,
        }
        self.drain();
        true
    }

    pub(crate) fn run_until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..2_000_000 {
            if done(self) {
                return;
            }
            assert!(self.step(), "nothing more happens; {:?}", self.events);
        }
        panic!("too many steps");
    }

    pub(crate) fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        for _ in 0..2_000_000 {
            if self.now >= end || !self.step() {
                return;
            }
        }
        panic!("too many steps");
    }

    pub(crate) fn messages(&self, node: usize) -> Vec<(u16, &[u8])> {
        self.events[node]
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::Message { stream, octets } => Some((*stream, &octets[..])),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn last(&self, node: usize) -> Option<&EventKind> {
        self.events[node].last().map(|event| &event.kind)
    }
}
