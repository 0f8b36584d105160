//! A router whose messages are made here, before the clock starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use signalbox_boomerang::engine::{Boomerang, Config, ENTRY, Input, Output};
use signalbox_boomerang::kit::{flow, interface, message};
use signalbox_boomerang::wire::{Ends, Message, Pass, Qos, Rates};
use signalbox_core::node::{Interface, Prefix, Route};
use signalbox_core::packet::Received;
use signalbox_core::traffic::{FlowFilter, ServiceClass, TrafficSpec};
use signalbox_core::{IfIndex, ReserverId, Time};
use signalbox_resources::{self as resources, GrantRequest, Owner, Requester, Resources};

use super::super::machine::timed;

const ROUTER_UP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));
const ROUTER_DOWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1));
const UP: IfIndex = IfIndex(1);
const DOWN: IfIndex = IfIndex(2);
const INITIATOR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// First far end. The messages of all flows go to this many of them, whose routes are known after the first message.
const FIRST_FAR_END: u32 = 0x0a00_0202;
const FAR_ENDS: u32 = 200;
/// Destination of the first flow; each has one of its own.
const FIRST_DEST: u32 = 0x0b00_0001;
const UDP: u8 = 17;
const MTU: u32 = 1500;
/// Messages between two looks at the clock.
pub(super) const BATCH: u32 = 512;
/// Virtual time that a batch takes: ten million reservations are refreshed long before they would expire.
const BATCH_TIME: Duration = Duration::from_millis(1);

/// A kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A new reservation, or a refresh if it stands.
    New,
    /// Another rate.
    Change,
    Release,
}

impl Kind {
    const fn rate(self) -> u32 {
        match self {
            Self::New => 64_000,
            Self::Change => 48_000,
            Self::Release => 0,
        }
    }
}

/// The router.
pub(super) struct World {
    engine: Boomerang,
    resources: Resources,
    now: Time,
    /// Messages that left since the count began.
    sent: u32,
}

fn interfaces() -> [Interface; 2] {
    [interface(UP.0, vec![ROUTER_UP]), interface(DOWN.0, vec![ROUTER_DOWN])]
}

/// Returns admission control of links that admit everything.
fn resources(reservations: u32) -> Result<Resources> {
    let mut links = resources::Config::of_link("*", "40000gbit".parse()?);
    links.max_reservations = reservations.max(1);
    let mut resources = Resources::new(links, 0, [1; 32])?;
    resources.interfaces(&interfaces());
    Ok(resources)
}

fn destination(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(FIRST_DEST + number))
}

/// Returns admission control that holds such reservations, so that its memory can be subtracted.
pub(super) fn admission(reservations: u32) -> Result<Resources> {
    let mut resources = resources(reservations)?;
    for number in 0..reservations {
        let flow = FlowFilter {
            protocol: Some(UDP),
            src_port: Some(4000),
            dst_port: Some(5004),
            ..FlowFilter::between(Prefix::host(INITIATOR), Prefix::host(destination(number)))
        };
        let owner = Owner { protocol: ReserverId(240), key: number.into() };
        let traffic =
            TrafficSpec { rate: 8000, burst: 2 * MTU, peak: None, min_policed: 20, max_packet: MTU };
        let ask = GrantRequest::new(owner, Requester::at(INITIATOR), DOWN, flow, traffic);
        let ask = GrantRequest { service: ServiceClass::Dscp(46), mark_dscp: Some(46), ..ask };
        resources.admit(Time::ZERO, &ask)?;
        install(&mut resources);
    }
    Ok(resources)
}

/// Answers as a kernel that installs every reservation.
fn install(resources: &mut Resources) {
    while let Some(output) = resources.poll() {
        if let resources::ResourceOutput::Install { id, .. } = output {
            resources.installed(id, Ok(()));
        }
    }
}

impl World {
    pub(super) fn new(reservations: u32) -> Result<Self> {
        let config = Config {
            // The last quarter of a table is for sources that hold little; all is of one source here.
            max_flows: reservations.saturating_mul(2),
            rate: 0,
            ..Config::default()
        };
        let mut resources = resources(reservations)?;
        let mut engine = Boomerang::new(config, [9; 32])?;
        engine.handle(Time::ZERO, Input::Interfaces(&interfaces()), &mut resources);
        Ok(Self { engine, resources, now: Time::ZERO, sent: 0 })
    }

    /// Reservations of the engine, and of admission control.
    pub(super) fn held(&self) -> (u32, u32) {
        (self.engine.flow_count(), self.resources.len())
    }

    /// Gives the router one message for each reservation from `first` on; returns the processor time. `part` is the name of
    /// these messages.
    pub(super) fn take(&mut self, part: &str, kind: Kind, first: u32, count: u32) -> Result<Duration> {
        let (octets, length) = made(kind, first, count)?;
        self.now = self.now + BATCH_TIME;
        self.sent = 0;
        let meter = timed(part, || {
            for (number, payload) in (first..).zip(octets.chunks_exact(length)) {
                let packet = Received {
                    entry: ENTRY,
                    src: SocketAddr::new(INITIATOR, 0),
                    dst: SocketAddr::new(far_end(number), 0),
                    ifindex: UP,
                    ttl: 60,
                    tos: 0,
                    options: &[],
                    payload,
                };
                self.engine.handle(self.now, Input::Packet(packet), &mut self.resources);
                self.drain();
            }
            Ok(count.into())
        })?;
        ensure!(self.sent == count, "{} messages left instead of {count}", self.sent);
        let refused = self.engine.counters().refused;
        ensure!(refused == 0, "{refused} messages were refused");
        Ok(meter.time)
    }

    /// Acts as a driver that answers route lookups at once.
    fn drain(&mut self) {
        loop {
            let id = match self.engine.poll() {
                Some(Output::Send(_)) => {
                    self.sent += 1;
                    continue;
                }
                Some(Output::RouteLookup { id, .. }) => id,
                // No message here is for a group.
                Some(
                    Output::Event { .. } | Output::MulticastLookup { .. } | Output::MulticastRelease { .. },
                ) => continue,
                None => break,
            };
            let route = Route { ifindex: DOWN, src: ROUTER_DOWN, gateway: None, mtu: MTU, local: false };
            self.engine.handle(self.now, Input::Route { id, result: Ok(route) }, &mut self.resources);
        }
        install(&mut self.resources);
    }
}

fn far_end(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(FIRST_FAR_END + number % FAR_ENDS))
}

/// Requests, one after the other, and the length of each.
fn made(kind: Kind, first: u32, count: u32) -> Result<(Vec<u8>, usize)> {
    let mut octets = Vec::new();
    for number in first..first + count {
        let qos = Qos::BitRate(Rates { forward: kind.rate(), reverse: 0 });
        let new = message(Pass::Request, flow(INITIATOR, destination(number), 4000), qos);
        let message = Message { transaction: number, refresh: 60, ..new };
        message.encode(&Ends { src: INITIATOR, dst: far_end(number) }, &mut octets);
    }
    let length = octets.len() / usize::try_from(count)?.max(1);
    let whole = octets.get(..length).context("no messages were made")?;
    Message::parse(whole, false).context("a message cannot be parsed")?;
    Ok((octets, length))
}
