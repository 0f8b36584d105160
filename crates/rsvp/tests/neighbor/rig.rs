//! Nodes on one link, each with the neighbor layer and, instead of the engine, a list of states by port.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::rng::Random;
use signalbox_core::{IfIndex, Time};
use signalbox_rsvp::engine::IpReceived;
use signalbox_rsvp::engine::neighbor::{
    Arrival, Config, Envelope, Incoming, Neighbors, Outgoing, ReceivedHandle, Reduction, SendReason,
    SentHandle, SummaryTo, Upcall, Verdict,
};
use signalbox_rsvp::wire::{
    ErrorCode, ErrorFlags, ErrorSpec, Filter, HeaderFlags, Message, MessageId, MessageType, RsvpHop,
    Selector, Session, SessionKind, Style, Writer,
};

pub(crate) const ETH: IfIndex = IfIndex(2);
pub(crate) const TSPEC: [u8; 36] = [
    0, 36, 12, 2, 0, 0, 0, 7, 1, 0, 0, 6, 127, 0, 0, 5, 0x47, 0xf4, 0x24, 0, 0x46, 0x1c, 0x40, 0, 0x7f, 0x80,
    0, 0, 0, 0, 0, 64, 0, 0, 5, 0xdc,
];

pub(crate) fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

pub(crate) fn addr(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 1, last])
}

pub(crate) fn group() -> IpAddr {
    IpAddr::from([224, 1, 1, 1])
}

/// A packet between two nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) ttl: u8,
    pub(crate) router_alert: bool,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    pub(crate) fn message(&self) -> Message<'_> {
        Message::parse(&self.payload).unwrap()
    }

    pub(crate) fn kind(&self) -> MessageType {
        self.message().kind
    }

    pub(crate) fn message_id(&self) -> MessageId {
        self.message().message_id.unwrap()
    }

    /// The packet with one octet changed.
    pub(crate) fn altered(&self, at: usize) -> Self {
        let mut altered = self.clone();
        altered.payload[at] ^= 1;
        altered
    }
}

/// What a packet contained for the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Got {
    /// A message about the state of this port.
    Message { kind: MessageType, port: u16, verdict: Verdict, non_rsvp: bool },
    /// A message that is rejected, with this value of error 13.
    Refused(u16),
    /// An Srefresh of this state.
    Refreshed(u32),
    /// An unknown MESSAGE_ID of a multicast source.
    Unknown,
    /// Octets that are not a valid message.
    Malformed,
}

pub(crate) fn took(kind: MessageType, port: u16, verdict: Verdict) -> Got {
    Got::Message { kind, port, verdict, non_rsvp: false }
}

pub(crate) struct Node {
    pub(crate) layer: Neighbors,
    pub(crate) addr: IpAddr,
    /// Handles of received state, by port.
    pub(crate) states: BTreeMap<u16, Option<ReceivedHandle>>,
    /// Handles of sent state, by port.
    pub(crate) handles: BTreeMap<u16, SentHandle>,
    /// It is on the tree of every group.
    pub(crate) on_tree: bool,
    pub(crate) upcalls: Vec<Upcall>,
}

/// Without delays, so that each step of a test has its effect at once.
pub(crate) fn prompt() -> Reduction {
    Reduction {
        ack_delay: Duration::ZERO,
        bundle_delay: Duration::from_millis(100),
        summary_delay: Duration::from_millis(50),
        ..Reduction::default()
    }
}

pub(crate) fn config(reduction: Reduction) -> Config {
    let mut config = Config::default();
    config.interface.reduction = reduction;
    config
}

impl Node {
    pub(crate) fn new(last: u8, config: Config) -> Self {
        Self::seeded(last, config, u64::from(last))
    }

    /// A node whose neighbors may be behind nodes without RSVP.
    pub(crate) fn distant(last: u8) -> Self {
        let mut config = config(prompt());
        config.interface.trust.distant_hops = true;
        Self::new(last, config)
    }

    pub(crate) fn seeded(last: u8, config: Config, seed: u64) -> Self {
        let mut layer = Neighbors::new(config, Random::from_number(seed));
        layer.set_addresses(ETH, Some(addr(last)), None);
        Self {
            layer,
            addr: addr(last),
            states: BTreeMap::new(),
            handles: BTreeMap::new(),
            on_tree: false,
            upcalls: Vec::new(),
        }
    }

    pub(crate) fn plain(last: u8) -> Self {
        Self::new(last, config(prompt()))
    }

    /// Takes all packets that are ready.
    pub(crate) fn drain(&mut self) -> Vec<Packet> {
        while let Some(upcall) = self.layer.upcall() {
            self.upcalls.push(upcall);
        }
        let mut packets = Vec::new();
        while let Some(out) = self.layer.poll() {
            assert!(out.payload.len() >= 8 && out.ifindex == Some(ETH));
            let Ok(message) = Message::parse(out.payload) else { panic!("{:02x?}", out.payload) };
            assert_ne!(out.payload[2..4], [0, 0], "every message has a checksum");
            assert_eq!(message.send_ttl, out.ttl);
            packets.push(Packet {
                src: out.src,
                dst: out.dst,
                ttl: out.ttl,
                router_alert: out.router_alert,
                payload: out.payload.to_vec(),
            });
        }
        packets
    }

    /// Lets time pass; returns the packets that are sent meanwhile, with their times.
    pub(crate) fn until(&mut self, to: Time) -> Vec<(Time, Packet)> {
        let mut packets = Vec::new();
        while let Some(due) = self.layer.next_deadline().filter(|due| *due <= to) {
            self.layer.advance(due);
            self.layer.tick(u32::MAX);
            packets.extend(self.drain().into_iter().map(|packet| (due, packet)));
        }
        packets
    }

    pub(crate) fn packets_until(&mut self, to: Time) -> Vec<Packet> {
        self.until(to).into_iter().map(|(_, packet)| packet).collect()
    }

    /// Gives a packet, which the node handles as the engine would.
    pub(crate) fn take(&mut self, now: Time, packet: &Packet) -> Vec<Got> {
        self.take_at(now, ETH, packet)
    }

    /// The same by another interface.
    pub(crate) fn take_at(&mut self, now: Time, ifindex: IfIndex, packet: &Packet) -> Vec<Got> {
        let received = IpReceived {
            src: packet.src,
            dst: packet.dst,
            ifindex,
            ttl: packet.ttl,
            tos: 0,
            router_alert: packet.router_alert,
            payload: &packet.payload,
        };
        let mut incoming = Incoming::none(received);
        let mut arrivals = self.layer.receive(&mut incoming);
        let mut got = Vec::new();
        self.layer.advance(now);
        while let Some(arrival) = self.layer.next(&mut arrivals) {
            match arrival {
                Arrival::Malformed(_) => got.push(Got::Malformed),
                Arrival::Refreshed { tags } => got.extend(tags.into_iter().map(Got::Refreshed)),
                Arrival::Unknown(unknown) => {
                    if self.on_tree {
                        self.layer.nack(&unknown);
                    }
                    got.push(Got::Unknown);
                }
                Arrival::Message => got.push(self.work(arrivals.message())),
            }
        }
        got
    }

    fn work(&mut self, incoming: &Incoming<'_>) -> Got {
        let message = &incoming.message;
        if let Some(refusal) = message.refusal {
            return Got::Refused(refusal.value);
        }
        let port = message.session.unwrap().port;
        let stored = self.states.get(&port).copied();
        let verdict = self.layer.judge(incoming, stored.flatten());
        if verdict == Verdict::Process {
            match message.kind {
                MessageType::PATH | MessageType::RESV => {
                    let received = self.layer.store_received(incoming, stored.flatten(), u32::from(port));
                    self.states.insert(port, received);
                }
                MessageType::PATH_TEAR | MessageType::RESV_TEAR => {
                    if let Some(received) = self.states.remove(&port).flatten() {
                        self.layer.remove_received(received);
                    }
                }
                _ => {}
            }
        }
        Got::Message { kind: message.kind, port, verdict, non_rsvp: incoming.non_rsvp }
    }

    fn compose(&self, kind: MessageType, dest: IpAddr, port: u16, ttl: u8) -> Vec<u8> {
        let session = Session { dest, protocol: 17, kind: SessionKind::Ports, port };
        let sender = Filter { src: IpAddr::from([10, 0, 0, 1]), selector: Selector::Port(4000) };
        let mut octets = Vec::new();
        let mut w = Writer::new(&mut octets, kind, HeaderFlags::default(), ttl);
        w.session(&session, false);
        if !matches!(kind, MessageType::PATH_ERR | MessageType::RESV_CONF) {
            w.hop(&RsvpHop { addr: self.addr, lih: 1 });
        }
        let (node, flags) = (self.addr, ErrorFlags::default());
        let error = ErrorSpec { node, flags, code: ErrorCode::CONFIRMATION, value: 0 };
        match kind {
            MessageType::PATH => _ = w.time_values(30_000).sender_template(&sender).raw(&TSPEC),
            MessageType::PATH_TEAR => _ = w.sender_template(&sender),
            MessageType::RESV => _ = w.time_values(30_000).style(Style::Ff),
            MessageType::RESV_TEAR => _ = w.style(Style::Ff).filter_spec(&sender),
            MessageType::PATH_ERR => _ = w.error_spec(&error).sender_template(&sender),
            MessageType::RESV_ERR => _ = w.error_spec(&error).style(Style::Ff),
            MessageType::RESV_CONF => _ = w.error_spec(&error).resv_confirm(self.addr).style(Style::Ff),
            _ => panic!("{kind}"),
        }
        w.finish().unwrap();
        octets
    }

    /// A Path of the session at this port.
    pub(crate) fn path(&mut self, now: Time, what: Kind, port: u16, to: To) {
        self.say(now, MessageType::PATH, what, port, to);
    }

    /// A Resv of the session at this port, to a neighbor.
    pub(crate) fn resv(&mut self, now: Time, what: Kind, port: u16, to: u8) {
        self.say(now, MessageType::RESV, what, port, To::Next(to));
    }

    pub(crate) fn say(&mut self, now: Time, kind: MessageType, what: Kind, port: u16, to: To) {
        let down = matches!(kind, MessageType::PATH | MessageType::PATH_TEAR);
        let dest = if to == To::Group { group() } else { IpAddr::from([10, 0, 9, 9]) };
        let ttl = if down { 63 } else { 255 };
        let octets = self.compose(kind, dest, port, ttl);
        let next_hop = match to {
            To::Next(last) => Some(addr(last)),
            // Node 2 acknowledged the state before.
            To::Group => Some(addr(2)),
            To::Unknown => None,
        };
        let envelope = Envelope {
            src: if down { IpAddr::from([10, 0, 0, 1]) } else { self.addr },
            dst: if down { dest } else { next_hop.unwrap() },
            ifindex: ETH,
            routed: false,
            ttl,
            tos: 0,
            router_alert: down,
            towards: 0,
            through: false,
            gateway: None,
        };
        let state = self.handles.get(&port).copied();
        let reason = match what {
            Kind::Trigger => SendReason::Trigger { state, tag: u32::from(port) },
            Kind::Refresh => SendReason::Refresh { state },
            Kind::Once => SendReason::Once { about: 0 },
        };
        let outgoing = Outgoing { envelope, next_hop, octets: &octets, reason };
        self.layer.advance(now);
        if let Some(handle) = self.layer.send(&outgoing) {
            self.handles.insert(port, handle);
        }
    }

    /// Refreshes the state at this port by its MESSAGE_ID, to a neighbor.
    pub(crate) fn summarise(&mut self, now: Time, port: u16, to: u8) -> bool {
        let to = SummaryTo::Neighbor { neighbor: addr(to), src: self.addr, ifindex: ETH };
        self.layer.advance(now);
        self.layer.summarise(self.handles[&port], &to)
    }

    /// The same for a multicast session.
    pub(crate) fn summarise_group(&mut self, now: Time, port: u16) -> bool {
        let source = IpAddr::from([10, 0, 0, 1]);
        let to = SummaryTo::Group { group: group(), source, src: self.addr, ifindex: ETH, ttl: 63 };
        self.layer.advance(now);
        self.layer.summarise(self.handles[&port], &to)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Trigger,
    Refresh,
    Once,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// Routing has the next node.
    Next(u8),
    /// The next node is unknown, or does not support RSVP.
    Unknown,
    /// Multicast.
    Group,
}

/// Carries packets between two nodes until both send none.
pub(crate) fn exchange(now: Time, a: &mut Node, b: &mut Node) -> Vec<Got> {
    let mut all = Vec::new();
    loop {
        for node in [&mut *a, &mut *b] {
            node.layer.advance(now);
            node.layer.tick(u32::MAX);
        }
        let (from_a, from_b) = (a.drain(), b.drain());
        if from_a.is_empty() && from_b.is_empty() {
            return all;
        }
        from_a.iter().for_each(|packet| all.extend(b.take(now, packet)));
        from_b.iter().for_each(|packet| all.extend(a.take(now, packet)));
    }
}

/// Two nodes; the second acknowledged these states of the first.
pub(crate) fn acquainted(ports: std::ops::Range<u16>) -> (Node, Node) {
    let (mut a, mut b) = (Node::plain(1), Node::plain(2));
    for port in ports {
        a.path(ms(0), Kind::Trigger, port, To::Next(2));
    }
    exchange(ms(0), &mut a, &mut b);
    exchange(ms(1), &mut a, &mut b);
    (a, b)
}
