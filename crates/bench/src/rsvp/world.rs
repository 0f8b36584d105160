//! A router between two neighbors whose messages are made here, before the clock starts.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use signalbox_core::node::Prefix;
use signalbox_core::node::{Interface, Route};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{IfIndex, ReserverId, Time};
use signalbox_resources::{self as resources, GrantRequest, Owner, Requester, Resources};
use signalbox_rsvp::engine::IpReceived;
use signalbox_rsvp::engine::{Config, Input, Output, Rsvp};
use signalbox_rsvp::kit::{Path, R, Resv, interface, load, tspec};
use signalbox_rsvp::wire::{
    Filter, HeaderFlags, ListedId, Message, MessageId, MessageType, RsvpHop, Selector, Session, SessionKind,
    Style, Writer,
};

use super::super::forward::rsvp::neighbor::messages;
use super::super::machine::{Meter, timed};
use super::super::runs::batch_time;

const UPSTREAM: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
const ROUTER_UP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));
const ROUTER_DOWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1));
const DOWNSTREAM: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2));
const UP: IfIndex = IfIndex(1);
const DOWN: IfIndex = IfIndex(2);
const SENDER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// First destination; each session has one of its own.
const FIRST_DEST: u32 = 0x0b00_0001;
const UDP: u8 = 17;
const MTU: u32 = 1500;
/// The most sessions that the engine can be configured with.
const ENGINE_MOST: u32 = 1 << 23;
/// Messages between two looks at the clock.
pub(super) const BATCH: u32 = 512;
/// The refresh period R of the router and of its neighbors.
pub(super) const REFRESH: Duration = Duration::from_millis(R as u64);
/// The epoch of both neighbors.
const EPOCH: u32 = 1;
/// MESSAGE_IDs in one Srefresh of a neighbor at most, and acknowledgments in one message.
pub(super) const MOST_LISTED: usize = 300;
const MOST_ACKS: usize = 64;
/// Octets a second of a flow.
const RATE: f32 = 10_000.0;
/// TTL of all messages.
const TTL: u8 = 60;
/// The most virtual time that a batch takes.
const BATCH_TIME: Duration = Duration::from_millis(5);

/// A kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Path,
    Resv,
    ResvTear,
    PathTear,
}

impl Kind {
    /// Returns the name of a message that makes this number of messages leave.
    const fn part(self, sent: u64) -> &'static str {
        match self {
            Self::Path if sent == 0 => "Path, refresh",
            Self::Path => "Path",
            Self::Resv if sent == 0 => "Resv, refresh",
            Self::Resv => "Resv",
            Self::ResvTear => "ResvTear",
            Self::PathTear => "PathTear",
        }
    }
}

/// The router.
pub(super) struct World {
    rsvp: Rsvp,
    resources: Resources,
    now: Time,
    /// Virtual time that a batch takes.
    batch_time: Duration,
    /// Messages that left since the count began, of the kind that is measured.
    sent: u64,
    /// The neighbors have refresh reduction (RFC 2961).
    reduction: bool,
    /// MESSAGE_IDs of the router that its neighbors did not acknowledge yet: those of Resvs upstream, those of Paths downstream.
    acks: [Vec<MessageId>; 2],
}

/// Messages of one batch, one after the other, all of one length.
struct Made {
    octets: Vec<u8>,
    length: usize,
}

fn session(number: u32) -> Session {
    let dest = IpAddr::V4(Ipv4Addr::from_bits(FIRST_DEST + number));
    Session { dest, protocol: UDP, kind: SessionKind::Ports, port: 5004 }
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

/// Returns admission control that holds as many reservations as the router will make, so that its memory can be
/// subtracted.
pub(super) fn admission(sessions: u32) -> Result<Resources> {
    let mut resources = resources(sessions)?;
    for number in 0..sessions {
        let dest = session(number).dest;
        let flow = FlowFilter {
            protocol: Some(UDP),
            src_port: Some(4000),
            dst_port: Some(5004),
            ..FlowFilter::between(Prefix::host(SENDER), Prefix::host(dest))
        };
        let owner = Owner { protocol: ReserverId(240), key: number.into() };
        let traffic = tspec(RATE).to_traffic()?;
        resources.admit(Time::ZERO, &GrantRequest::new(owner, Requester::at(dest), DOWN, flow, traffic))?;
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
    /// A router whose neighbors have refresh reduction, or are plain ones of RFC 2205.
    pub(super) fn new(sessions: u32, reduction: bool) -> Result<Self> {
        let mut config = Config {
            // The last quarter of a table is for sources that hold little; all is of one source here.
            max_sessions: sessions.saturating_mul(2).min(ENGINE_MOST),
            max_senders: sessions.saturating_mul(2),
            max_reservations: sessions.saturating_mul(2),
            ..Config::default()
        };
        config.neighbors.interface.reduction.reliable = reduction;
        // A session has two of each kind: those of its Path and of its Resv.
        config.neighbors.max_names = sessions.saturating_mul(4);
        let mut resources = resources(sessions)?;
        let mut rsvp = Rsvp::new(config, [9; 32])?;
        rsvp.handle(Time::ZERO, Input::Interfaces(&interfaces()), &mut resources);
        let batch_time = batch_time(sessions, BATCH, BATCH_TIME);
        let acks = [Vec::new(), Vec::new()];
        Ok(Self { rsvp, resources, now: Time::ZERO, batch_time, sent: 0, reduction, acks })
    }

    /// Gives the router one message of this kind for each session from `first` on; returns the processor time.
    pub(super) fn take(&mut self, kind: Kind, first: u32, count: u32, wanted: u64) -> Result<Duration> {
        let handle = self.rsvp.handle_of(DOWN).context("an interface is not known")?;
        let made = self.made(kind, handle, first, count)?;
        self.idle();
        self.sent = 0;
        let meter = timed(kind.part(wanted), || {
            for (number, payload) in (first..).zip(made.octets.chunks_exact(made.length)) {
                self.packet(kind, number, payload);
            }
            Ok(count.into())
        })?;
        ensure!(
            self.sent == wanted * u64::from(count),
            "{} messages left instead of {}",
            self.sent,
            wanted * u64::from(count)
        );
        Ok(meter.time)
    }

    /// Does what is due until the next batch, which is not measured.
    fn idle(&mut self) {
        self.now = self.now + self.batch_time;
        self.run_timers();
    }

    fn run_timers(&mut self) {
        while self.rsvp.next_deadline().is_some_and(|at| at <= self.now) {
            self.rsvp.handle(self.now, Input::Timer, &mut self.resources);
            self.drain();
        }
    }

    /// Sets sessions up, with acknowledgments of what the router sends.
    pub(super) fn set_up(&mut self, first: u32, count: u32) -> Result<()> {
        let handle = self.rsvp.handle_of(DOWN).context("an interface is not known")?;
        self.idle();
        for kind in [Kind::Path, Kind::Resv] {
            let made = self.made(kind, handle, first, count)?;
            for (number, payload) in (first..).zip(made.octets.chunks_exact(made.length)) {
                self.packet(kind, number, payload);
            }
            self.acknowledge()?;
        }
        Ok(())
    }

    /// Gives the router the acknowledgments of its neighbors.
    fn acknowledge(&mut self) -> Result<()> {
        let mut octets = Vec::new();
        for (side, acks) in std::mem::take(&mut self.acks).iter().enumerate() {
            for acks in acks.chunks(MOST_ACKS) {
                octets.clear();
                let mut w = Writer::new(&mut octets, MessageType::ACK, HeaderFlags::REFRESH_REDUCTION, TTL);
                for id in acks {
                    w.ack(id, false);
                }
                w.finish()?;
                self.direct(side == 0, &octets);
            }
        }
        Ok(())
    }

    /// Gives the router Srefreshes of both neighbors for these sessions (RFC 2961 §5), and measures them. The meter counts
    /// states.
    pub(super) fn summaries(&mut self, sessions: &[u32]) -> Result<Meter> {
        let listed = |number: &u32| ListedId { id: number + 1, source: None, group: None };
        let ids: Vec<ListedId> = sessions.iter().map(listed).collect();
        let mut octets = Vec::new();
        let mut w = Writer::new(&mut octets, MessageType::SREFRESH, HeaderFlags::REFRESH_REDUCTION, TTL);
        w.id_list(EPOCH, &ids);
        w.finish()?;
        let before = self.rsvp.neighbors().counters().states_refreshed;
        let meter = timed("state refreshed by a neighbor", || {
            self.direct(true, &octets);
            self.direct(false, &octets);
            Ok(2 * u64::try_from(ids.len())?)
        })?;
        let known = self.rsvp.neighbors().counters().states_refreshed - before;
        ensure!(known == meter.messages, "the router knows {known} of {} MESSAGE_IDs", meter.messages);
        Ok(meter)
    }

    /// Lets the router do what is due after this virtual time, and measures it. The meter counts the states that the router
    /// refreshed by Srefreshes.
    pub(super) fn refreshes(&mut self, step: Duration) -> Result<Meter> {
        self.now = self.now + step;
        let summarised = |world: &Self| world.rsvp.neighbors().counters().states_summarised;
        let before = summarised(self);
        let meter = timed("state refreshed by the router", || {
            self.run_timers();
            Ok(summarised(self) - before)
        })?;
        self.acknowledge()?;
        Ok(meter)
    }

    pub(super) fn state(&self) -> (u32, u32, u32) {
        (self.rsvp.sessions(), self.rsvp.senders(), self.rsvp.reservations())
    }

    fn packet(&mut self, kind: Kind, number: u32, payload: &[u8]) {
        let (ifindex, src, dst) = match kind {
            Kind::Path | Kind::PathTear => (UP, SENDER, session(number).dest),
            Kind::Resv | Kind::ResvTear => (DOWN, DOWNSTREAM, ROUTER_DOWN),
        };
        self.take_packet(IpReceived { src, dst, ifindex, ttl: TTL, tos: 0, router_alert: true, payload });
    }

    /// Gives the router a message of its upstream or downstream neighbor that is addressed to it.
    fn direct(&mut self, upstream: bool, payload: &[u8]) {
        let (ifindex, src, dst) =
            if upstream { (UP, UPSTREAM, ROUTER_UP) } else { (DOWN, DOWNSTREAM, ROUTER_DOWN) };
        self.take_packet(IpReceived { src, dst, ifindex, ttl: TTL, tos: 0, router_alert: false, payload });
    }

    fn take_packet(&mut self, packet: IpReceived<'_>) {
        self.rsvp.handle(self.now, Input::Packet(packet), &mut self.resources);
        self.drain();
    }

    /// Acts as a driver that answers route lookups at once.
    fn drain(&mut self) {
        loop {
            let lookup = match self.rsvp.poll() {
                Some(Output::Send(packet)) => {
                    self.sent += 1;
                    if self.reduction {
                        note(&mut self.acks, packet.payload);
                    }
                    continue;
                }
                Some(Output::RouteLookup { id, .. }) => id,
                Some(_) => continue,
                None => break,
            };
            let route =
                Route { ifindex: DOWN, src: ROUTER_DOWN, gateway: Some(DOWNSTREAM), mtu: MTU, local: false };
            let input = Input::Route { id: lookup, result: Ok(route) };
            self.rsvp.handle(self.now, input, &mut self.resources);
        }
        install(&mut self.resources);
    }

    fn made(&self, kind: Kind, handle: u32, first: u32, count: u32) -> Result<Made> {
        let flags = if self.reduction { HeaderFlags::REFRESH_REDUCTION } else { HeaderFlags::default() };
        let mut octets = Vec::new();
        for number in first..first + count {
            let id = self.reduction.then_some(MessageId { ack_desired: true, epoch: EPOCH, id: number + 1 });
            let (session, sender) = (session(number), Filter { src: SENDER, selector: Selector::Port(4000) });
            let hop = RsvpHop { addr: UPSTREAM, lih: 7 };
            let path =
                Path { flags, id, session, sender, hop, send_ttl: TTL, tspec: tspec(RATE), ..Path::new() };
            let hop = RsvpHop { addr: DOWNSTREAM, lih: handle };
            let flows = vec![(Some(load(RATE)), vec![sender])];
            let resv = Resv { flags, id, session, hop, send_ttl: TTL, ..Resv::of(Style::Ff, flows) };
            octets.extend(match kind {
                Kind::Path => path.octets(),
                Kind::Resv => resv.octets(),
                Kind::ResvTear => resv.tear_octets(),
                Kind::PathTear => path.tear_octets(),
            });
        }
        let length = octets.len() / usize::try_from(count)?.max(1);
        let whole = octets.get(..length).context("no messages were made")?;
        Message::parse(whole).context("a message cannot be parsed")?;
        Ok(Made { octets, length })
    }
}

/// Notes the MESSAGE_IDs in a packet of the router that its neighbors acknowledge.
fn note(acks: &mut [Vec<MessageId>; 2], packet: &[u8]) {
    // Srefreshes have none. They are not parsed, because that would be measured.
    if packet.get(1) == Some(&MessageType::SREFRESH.0) {
        return;
    }
    let [up, down] = acks;
    for message in messages(packet) {
        let to = match message.kind {
            MessageType::PATH => &mut *down,
            MessageType::RESV => &mut *up,
            _ => continue,
        };
        let wanted = message.message_id.filter(|id| id.ack_desired);
        to.extend(wanted.map(|id| MessageId { ack_desired: false, ..id }));
    }
}
