//! A router with the QoS client alone: what a reservation costs beside its session.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Result, ensure};
use signalbox_casp::clients::qos::{Config, QosClient, QosOutput};
use signalbox_casp::engine::{Arrival, Indication, Request};
use signalbox_casp::kit::{LIFETIME, arrival, flow, flowspec, interface};
use signalbox_casp::wire::FlowId;
use signalbox_casp::wire::qos::{QosMessage, QosType, QosVersion};
use signalbox_core::kit::route;
use signalbox_core::traffic::TrafficSpec;
use signalbox_core::{IfIndex, Key, ReserverId, Time};
use signalbox_resources::request::Session;
use signalbox_resources::{self as resources, GrantRequest, Owner, Requester, Resources};

use super::super::machine::timed;
use super::super::runs::{batch_time, session};
use super::world::BATCH;

const ROUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1));
const PREVIOUS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
const NEXT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2));
const DOWN: IfIndex = IfIndex(2);
const SOURCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FIRST_DESTINATION: u32 = 0x0b00_0001;
const MTU: u32 = 1500;
const BATCH_TIME: Duration = Duration::from_millis(1);

/// A message of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Reserve,
    /// The Success that answers it.
    Reserved,
    Commit,
    /// The Success that answers it.
    Committed,
    /// A Commit with the AGE of the first one.
    Refresh,
    Release,
}

impl Step {
    const fn part(self) -> &'static str {
        match self {
            Self::Reserve => "Reserve",
            Self::Commit => "Commit",
            Self::Reserved | Self::Committed => "Success",
            Self::Refresh => "refresh of a reservation",
            Self::Release => "Release",
        }
    }

    const fn kind(self) -> QosType {
        match self {
            Self::Reserve => QosType::RESERVE,
            Self::Commit | Self::Refresh => QosType::COMMIT,
            Self::Reserved | Self::Committed => QosType::SUCCESS,
            Self::Release => QosType::RELEASE,
        }
    }

    /// The number of the request that it is, or answers.
    const fn number(self) -> u32 {
        match self {
            Self::Reserve | Self::Reserved => 1,
            Self::Commit | Self::Committed => 2,
            Self::Refresh => 3,
            Self::Release => 4,
        }
    }

    fn message(self, flow: FlowId) -> QosMessage<'static> {
        let mut message = QosMessage::new(self.kind(), flow);
        if self.kind() == QosType::SUCCESS {
            message.echo = Some(self.number());
        } else {
            message.sequence = Some(self.number());
        }
        if self.kind() != QosType::RELEASE {
            (message.version, message.age) = (Some(QosVersion::FLOWSPEC), Some(7));
        }
        if matches!(self, Self::Reserve | Self::Commit | Self::Refresh) {
            message.minimum = Some(flowspec(8000.0));
        }
        message
    }
}

/// Returns admission control of a link that admits everything. Reserve and Commit of a session are a grant each.
fn resources(reservations: u32) -> Result<Resources> {
    let mut links = resources::Config::of_link("*", "40000gbit".parse()?);
    // The last quarter of a table is for sources that hold little; all is of one source here.
    links.max_reservations = reservations.saturating_mul(4);
    let mut resources = Resources::new(links, 0, [1; 32])?;
    resources.interfaces(&[interface(DOWN.0, vec![ROUTER])]);
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

/// The client and admission control of the router.
pub(super) struct World {
    client: QosClient,
    resources: Resources,
    now: Time,
    batch_time: Duration,
    /// Messages that went on.
    sent: u32,
}

impl World {
    pub(super) fn new(reservations: u32) -> Result<Self> {
        let config = Config { max_sessions: reservations.saturating_mul(2), ..Config::default() };
        let mut client = QosClient::new(config, [9; 32]);
        client.interfaces(&[interface(DOWN.0, vec![ROUTER])]);
        let batch_time = batch_time(reservations, BATCH, BATCH_TIME);
        Ok(Self { client, resources: resources(reservations)?, now: Time::ZERO, batch_time, sent: 0 })
    }

    /// Returns admission control that holds two grants for each reservation, so that its memory can be subtracted.
    pub(super) fn admission(reservations: u32) -> Result<Resources> {
        let mut resources = resources(reservations)?;
        for number in 0..reservations {
            let traffic =
                TrafficSpec { rate: 8000, burst: 3000, peak: None, min_policed: 64, max_packet: MTU };
            let owner = Owner { protocol: ReserverId::CASP, key: number.into() };
            let ask = GrantRequest::new(
                owner,
                Requester::at(SOURCE.into()),
                DOWN,
                flow_of(number).filter(),
                traffic,
            );
            for held in [true, false] {
                let session = Session::of(Key::from_u64(u64::from(number) + 1));
                resources.admit(Time::ZERO, &GrantRequest { session, held, ..ask.clone() })?;
                install(&mut resources);
            }
        }
        Ok(resources)
    }

    /// Lets the lifetimes pass.
    pub(super) fn settle(&mut self) {
        self.now = self.now + Duration::from_secs(2 * u64::from(LIFETIME));
        self.client.timer(self.now, &mut self.resources);
        self.drain();
    }

    /// Sessions of the client, and grants of admission control.
    pub(super) fn held(&self) -> (u32, u32) {
        (self.client.sessions(), self.resources.len())
    }

    /// Gives the client one message for each reservation from `first` on; returns the processor time.
    pub(super) fn take(&mut self, step: Step, first: u32, count: u32) -> Result<Duration> {
        let mut octets = Vec::new();
        let mut ends = Vec::new();
        for number in first..first + count {
            step.message(flow_of(number)).encode(&mut octets)?;
            ends.push(octets.len());
        }
        self.now = self.now + self.batch_time;
        self.sent = 0;
        let meter = timed(step.part(), || {
            let mut start = 0;
            for (number, end) in (first..).zip(&ends) {
                let data = octets.get(start..*end).unwrap_or_default();
                start = *end;
                self.arrives(step, number, data);
            }
            Ok(count.into())
        })?;
        ensure!(self.sent == count, "{} messages left instead of {count}", self.sent);
        let refused = self.client.counters().refused;
        ensure!(refused == 0, "{refused} requests were refused");
        Ok(meter.time)
    }

    fn arrives(&mut self, step: Step, number: u32, data: &[u8]) {
        let reverse = step.kind() == QosType::SUCCESS;
        let peer = if reverse { NEXT } else { PREVIOUS };
        let arrival =
            Arrival { reverse, peer, branch: 1, ..arrival(1, session(number), flow_of(number), data) };
        self.client.indication(self.now, &Indication::Received(arrival), &mut self.resources);
        self.drain();
    }

    /// Acts as a driver that answers route lookups at once, and as a kernel that installs every reservation.
    fn drain(&mut self) {
        loop {
            let id = match self.client.poll() {
                Some(QosOutput::Request(Request::Verdict { .. })) => {
                    self.sent += 1;
                    continue;
                }
                Some(QosOutput::RouteLookup { id, .. }) => id,
                Some(_) => continue,
                None => break,
            };
            self.client.route(self.now, id, Ok(route(DOWN, ROUTER)), &mut self.resources);
        }
        install(&mut self.resources);
    }
}

fn flow_of(number: u32) -> FlowId {
    flow(SOURCE, Ipv4Addr::from_bits(FIRST_DESTINATION + number), 4000, 5004)
}
