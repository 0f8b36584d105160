//! An engine that answers "ping" with "pong", for tests of the simulation itself.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use signalbox_core::metrics::Subsystem;
use signalbox_core::node::{
    Input, Interface, NoRoute, NodeEngine, Output, Prefix, Route, RouteQuery, TransmitError,
};
use signalbox_core::packet::{Transmit, router_alert_v4, router_alert_v6};
use signalbox_core::traffic::{Reservation, ReservationId, ReserveError};
use signalbox_core::{AlertRule, Entry, EntryRequest, IfIndex, Intercept, Match, Time};
use signalbox_sim::Boot;

pub(crate) const MAGIC: [u8; 4] = [0x4e, 0x04, 0xbd, 0xa5];

/// A command for the engine.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Send {
        src: Option<IpAddr>,
        dst: IpAddr,
        alert: bool,
        ttl: u8,
        text: &'static str,
    },
    SendBy {
        ifindex: IfIndex,
        dst: IpAddr,
        size: usize,
    },
    Lookup(IpAddr),
    Alarm(Duration),
    Reserve(ReservationId, Reservation),
    Release(ReservationId),
    /// Keeps a deadline that never goes away.
    Hang,
}

/// An event of the engine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Received { src: IpAddr, dst: IpAddr, ttl: u8, ifindex: IfIndex, text: String },
    Route(u64, Result<Route, NoRoute>),
    Interfaces(Vec<Interface>),
    RouteChanged(Prefix),
    Failed(IpAddr, TransmitError),
    Reserved(ReservationId, Result<(), ReserveError>),
    Alarm,
}

enum Pending {
    Transmit { src: SocketAddr, dst: SocketAddr, ifindex: Option<IfIndex>, ttl: u8, options: Vec<u8> },
    Lookup(IpAddr),
    Reserve(ReservationId, Reservation),
    Release(ReservationId),
    Event(Event),
}

pub(crate) struct Toy {
    pub(crate) seed: [u8; 32],
    pending: VecDeque<Pending>,
    payload: Vec<u8>,
    options: Vec<u8>,
    reservation: Option<Reservation>,
    alarms: Vec<Time>,
    hang: bool,
    lookups: u64,
}

impl Toy {
    pub(crate) fn new(boot: Boot) -> Self {
        Self {
            seed: boot.seed,
            pending: VecDeque::new(),
            payload: Vec::new(),
            options: Vec::new(),
            reservation: None,
            alarms: Vec::new(),
            hang: false,
            lookups: 0,
        }
    }

    fn say(&mut self, src: Option<IpAddr>, dst: SocketAddr, ttl: u8, alert: bool, text: &str) {
        let unspecified: IpAddr =
            if dst.is_ipv4() { [0, 0, 0, 0].into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
        let options = match (alert, dst.is_ipv4()) {
            (false, _) => Vec::new(),
            (true, true) => router_alert_v4(0).to_vec(),
            (true, false) => router_alert_v6(0).to_vec(),
        };
        self.payload = [&MAGIC[..], text.as_bytes()].concat();
        let src = SocketAddr::new(src.unwrap_or(unspecified), 270);
        self.pending.push_back(Pending::Transmit { src, dst, ifindex: None, ttl, options });
    }
}

impl NodeEngine for Toy {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        match input {
            Input::Timer => {
                let due = self.alarms.extract_if(.., |at| *at <= now).count();
                self.pending.extend((0..due).map(|_| Pending::Event(Event::Alarm)));
            }
            Input::Packet(packet) => {
                let text = String::from_utf8_lossy(&packet.payload[4..]).into_owned();
                if text == "ping" {
                    self.say(None, packet.src, 64, false, "pong");
                }
                self.pending.push_back(Pending::Event(Event::Received {
                    src: packet.src.ip(),
                    dst: packet.dst.ip(),
                    ttl: packet.ttl,
                    ifindex: packet.ifindex,
                    text,
                }));
            }
            Input::Interfaces(all) => self.pending.push_back(Pending::Event(Event::Interfaces(all.to_vec()))),
            Input::Route { id, result } => self.pending.push_back(Pending::Event(Event::Route(id, result))),
            Input::RouteChanged(prefix) => {
                self.pending.push_back(Pending::Event(Event::RouteChanged(prefix)))
            }
            Input::TransmitFailed { dst, error, .. } => {
                self.pending.push_back(Pending::Event(Event::Failed(dst, error)));
            }
            Input::Command(Command::Send { src, dst, alert, ttl, text }) => {
                self.say(src, SocketAddr::new(dst, 270), ttl, alert, text);
            }
            Input::Command(Command::SendBy { ifindex, dst, size }) => {
                self.payload = vec![0x4e; size];
                let src = SocketAddr::new([0, 0, 0, 0].into(), 270);
                let dst = SocketAddr::new(dst, 270);
                let by = Pending::Transmit { src, dst, ifindex: Some(ifindex), ttl: 64, options: Vec::new() };
                self.pending.push_back(by);
            }
            Input::Reserved { id, result } => {
                self.pending.push_back(Pending::Event(Event::Reserved(id, result)));
            }
            Input::Command(Command::Reserve(id, reservation)) => {
                self.pending.push_back(Pending::Reserve(id, reservation));
            }
            Input::Command(Command::Release(id)) => self.pending.push_back(Pending::Release(id)),
            Input::Command(Command::Lookup(dst)) => self.pending.push_back(Pending::Lookup(dst)),
            Input::Command(Command::Alarm(after)) => self.alarms.push(now + after),
            Input::Command(Command::Hang) => self.hang = true,
            _ => {}
        }
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        Some(match self.pending.pop_front()? {
            Pending::Transmit { src, dst, ifindex, ttl, options } => {
                self.options = options;
                Output::Transmit(Transmit {
                    gateway: None,
                    entry: Entry::Udp(270),
                    src,
                    dst,
                    ifindex,
                    ttl,
                    tos: 0,
                    dont_fragment: true,
                    flow_label: 0,
                    unproved: false,
                    options: &self.options,
                    payload: &self.payload,
                })
            }
            Pending::Lookup(dst) => {
                self.lookups += 1;
                Output::RouteLookup { id: self.lookups, query: RouteQuery::to(dst) }
            }
            Pending::Reserve(id, reservation) => {
                Output::Reserve { id, reservation: self.reservation.insert(reservation) }
            }
            Pending::Release(id) => Output::Release { id },
            Pending::Event(event) => Output::Event(event),
        })
    }

    fn entries(&self) -> Vec<EntryRequest> {
        let intercept = Intercept::passing(AlertRule::Any, vec![Match::word(0, 0x4e04_bda5)]);
        vec![EntryRequest::local(Entry::Udp(270), Subsystem::protocol("toy")).with_intercept(intercept)]
    }

    fn next_deadline(&self) -> Option<Time> {
        if self.hang { Some(Time::ZERO) } else { self.alarms.iter().min().copied() }
    }
}
