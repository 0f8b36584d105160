//! A router between two peers. Their messages are those of real ends, which set one session up over the router; they are the
//! same for all sessions, since GIST carries the identifier of the session and the flow.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use signalbox_core::kit::{interface, received, route};
use signalbox_core::mri::PathCoupled;
use signalbox_core::node::Route;
use signalbox_core::service::{
    AddressValidation, Indication, MessageStatus, NetworkEvent, RecvMessage, Request, SiiHandle,
};
use signalbox_core::{Direction, IfIndex, Mri, NslpId, SessionId, Time};
use signalbox_qos::engine::{Command, Config, Flow, Input, Output, Qos, QosRequest, ReserveRequest};
use signalbox_resources::{self as resources, ResourceOutput, Resources};

use super::super::machine::timed;
use super::super::runs::{batch_time, session};

const PREVIOUS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
const ROUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1));
const NEXT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2));
const IN: IfIndex = IfIndex(1);
const OUT: IfIndex = IfIndex(2);
/// First source of a flow, and the number of flows of a source: one for each port.
const FIRST_SOURCE: u32 = 0x0a80_0001;
const PORTS: u32 = 50_000;
const FIRST_PORT: u32 = 10_000;
const DESTINATION: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
const UDP: u8 = 17;
/// Octets a second of a flow.
const RATE: u64 = 1_000;
/// Messages between two looks at the clock.
pub(super) const BATCH: u32 = 512;
const BATCH_TIME: Duration = Duration::from_millis(5);

/// A kind of message to the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first RESERVE of a session, and its RESPONSE.
    Reserve,
    Response,
    /// The refresh of the previous peer.
    Refresh,
    /// The tear, and its RESPONSE.
    Tear,
    TearResponse,
}

impl Kind {
    const fn is_response(self) -> bool {
        matches!(self, Self::Response | Self::TearResponse)
    }

    /// Returns the name of such a message.
    const fn part(self) -> &'static str {
        match self {
            Self::Reserve => "RESERVE",
            Self::Response => "RESPONSE",
            Self::Refresh => "RESERVE, refresh",
            Self::Tear => "RESERVE, tear",
            Self::TearResponse => "RESPONSE, tear",
        }
    }

    /// Messages that it makes leave. A refresh of the previous peer restarts a timer only.
    const fn goes_on(self) -> u32 {
        match self {
            Self::Reserve | Self::Response | Self::Tear | Self::TearResponse => 1,
            Self::Refresh => 0,
        }
    }
}

/// The flow of a session.
fn flow(number: u32) -> Mri {
    let port = |number| u16::try_from(FIRST_PORT + number % PORTS).ok();
    Mri::PathCoupled(PathCoupled {
        protocol: Some(UDP),
        src_port: port(0),
        dst_port: port(number),
        ..PathCoupled::between(IpAddr::V4(Ipv4Addr::from_bits(FIRST_SOURCE + number / PORTS)), DESTINATION)
    })
}

/// A node with the application, and a GIST that sends everything.
struct Station {
    qos: Qos,
    resources: Resources,
    /// The flow ends here.
    is_end: bool,
    now: Time,
    /// Messages that left in the last input.
    sent: u32,
    /// The last of them, and its session.
    last: Vec<u8>,
    session: SessionId,
}

impl Station {
    fn new(seed: u8, sessions: u32) -> Result<Self> {
        let own = IpAddr::V4(Ipv4Addr::new(10, 0, 1, seed));
        let interfaces = [interface(IN.0, vec![own]), interface(OUT.0, vec![ROUTER])];
        // The last quarter of a table is for sources that hold little; all is of one source here.
        let room = sessions.saturating_add(1).saturating_mul(2);
        let rules = resources::Config {
            max_reservations: room,
            ..resources::Config::of_link("*", "40000gbit".parse()?)
        };
        let mut resources = Resources::new(rules, 0, [seed; 32])?;
        resources.interfaces(&interfaces);
        let mut qos = Qos::new(Config { max_sessions: room, ..Config::default() }, [seed; 32]);
        qos.handle(Time::ZERO, Input::Interfaces(&interfaces), &mut resources);
        Ok(Self {
            qos,
            resources,
            is_end: false,
            now: Time::from_secs(10),
            sent: 0,
            last: Vec::new(),
            session: session(0),
        })
    }

    /// Gives the application an input, and acts as GIST, routing and the kernel until there is no output left.
    fn give(&mut self, input: Input<'_>) {
        self.sent = 0;
        self.qos.handle(self.now, input, &mut self.resources);
        loop {
            let input = match self.qos.poll() {
                Some(Output::Request(Request::SendMessage(message))) => {
                    self.sent += 1;
                    self.last.clear();
                    self.last.extend_from_slice(message.data);
                    self.session = message.session;
                    let Some(handle) = message.handle else { continue };
                    let (nslp, session, mri) = (message.nslp, message.session, message.mri);
                    let status = MessageStatus::Sent(message.attributes);
                    let sent = Indication::MessageStatus { nslp, handle, session, status };
                    self.qos.handle(self.now, Input::Indication(sent), &mut self.resources);
                    if mri.direction() == Direction::Upstream {
                        continue;
                    }
                    let event = NetworkEvent::Good(SiiHandle(OUT.0.into()));
                    Input::Indication(Indication::NetworkNotification { nslp, mri, session, event })
                }
                Some(Output::RouteLookup { id, .. }) => {
                    let route = Route { local: self.is_end, ..route(OUT, ROUTER) };
                    Input::Route { id, result: Ok(route) }
                }
                Some(Output::Request(_) | Output::Event { .. }) => continue,
                None => break,
            };
            self.qos.handle(self.now, input, &mut self.resources);
        }
        while let Some(output) = self.resources.poll() {
            if let ResourceOutput::Install { id, .. } = output {
                self.resources.installed(id, Ok(()));
            }
        }
    }

    /// Gives it a message of session `number` from the peer at one side. `is_response`: it comes from the next peer.
    fn receive(&mut self, number: u32, is_response: bool, data: &[u8]) {
        self.receive_of(session(number), flow(number), is_response, data);
    }

    fn receive_of(&mut self, session: SessionId, mri: Mri, is_response: bool, data: &[u8]) {
        let (ifindex, peer) = if is_response { (OUT, NEXT) } else { (IN, PREVIOUS) };
        let mri = if is_response { mri.inverted() } else { mri };
        self.give(Input::Indication(Indication::RecvMessage(RecvMessage {
            sii: Some(SiiHandle(ifindex.0.into())),
            peer_address: Some(peer),
            validation: AddressValidation { return_routable: true, ..AddressValidation::default() },
            ifindex,
            at_flow_end: self.is_end && !is_response,
            ..received(NslpId::QOS, session, mri, data)
        })));
    }

    /// The message that it sent last, which is the only one.
    fn sent(&self, what: &str) -> Result<Vec<u8>> {
        ensure!(self.sent == 1, "{} messages instead of the {what}", self.sent);
        Ok(self.last.clone())
    }

    /// Lets the time of its next timer come.
    fn wait(&mut self) -> Result<()> {
        self.now = self.now.max(self.qos.next_deadline().context("no timer runs")?);
        self.give(Input::Timer);
        Ok(())
    }
}

/// The router, and the messages to it.
pub(super) struct World {
    router: Station,
    batch_time: Duration,
    reserve: Vec<u8>,
    response: Vec<u8>,
    refresh: Vec<u8>,
    tear: Vec<u8>,
    tear_response: Vec<u8>,
}

impl World {
    /// Makes a router that can hold `sessions` sessions. One further session was set up and torn down.
    pub(super) fn new(sessions: u32) -> Result<Self> {
        let mut router = Station::new(1, sessions)?;
        let (mut first, mut last) = (Station::new(2, 1)?, Station::new(3, 1)?);
        last.is_end = true;

        let mri = flow(sessions);
        let Mri::PathCoupled(PathCoupled { src_port, dst_port, .. }) = mri else { bail!("no flow") };
        let asked =
            Flow { src: Some(mri.src()), protocol: Some(UDP), src_port, dst_port, ..Flow::to(mri.dst()) };
        let request = ReserveRequest::new(asked, QosRequest::rate(RATE));
        first.give(Input::Command { id: 1, command: Command::Reserve(Box::new(request)) });
        let reserve = first.sent("RESERVE")?;
        router.receive(sessions, false, &reserve);
        last.receive(sessions, false, &router.sent("RESERVE")?);
        let response = last.sent("RESPONSE")?;
        router.receive(sessions, true, &response);
        first.receive_of(first.session, mri, true, &router.sent("RESPONSE")?);
        first.wait()?;
        while first.sent == 0 {
            first.wait()?;
        }
        let refresh = first.sent("refresh")?;
        router.receive(sessions, false, &refresh);
        first.give(Input::Command { id: 1, command: Command::Release });
        let tear = first.sent("tear")?;
        router.receive(sessions, false, &tear);
        last.receive(sessions, false, &router.sent("tear")?);
        let tear_response = last.sent("RESPONSE to the tear")?;
        router.receive(sessions, true, &tear_response);
        ensure!(router.resources.reservations().count() == 0, "the first session was not torn down");
        let batch_time = batch_time(sessions, BATCH, BATCH_TIME);
        Ok(Self { router, batch_time, reserve, response, refresh, tear, tear_response })
    }

    /// Reservations that the router holds.
    pub(super) fn held(&self) -> u32 {
        u32::try_from(self.router.resources.reservations().count()).unwrap_or(u32::MAX)
    }

    /// Gives the router one message for each session from `first` on; returns the processor time.
    pub(super) fn take(&mut self, kind: Kind, first: u32, count: u32) -> Result<Duration> {
        let Self { router, batch_time, .. } = self;
        router.now = router.now + *batch_time;
        let octets = match kind {
            Kind::Reserve => &self.reserve,
            Kind::Response => &self.response,
            Kind::Refresh => &self.refresh,
            Kind::Tear => &self.tear,
            Kind::TearResponse => &self.tear_response,
        };
        let mut sent = 0;
        let meter = timed(kind.part(), || {
            for number in first..first + count {
                router.receive(number, kind.is_response(), octets);
                sent += router.sent;
            }
            Ok(count.into())
        })?;
        let expected = count * kind.goes_on();
        ensure!(sent == expected, "{kind:?}: {sent} messages went on instead of {expected}");
        Ok(meter.time)
    }

    /// Lets each session refresh the next peer; returns the processor time.
    pub(super) fn refresh_period(&mut self, sessions: u32) -> Result<Duration> {
        let Self { router, .. } = self;
        // Refreshes come after half a period to one and a half.
        let end = router.now + router.qos.config().refresh.mul_f64(1.5);
        let meter = timed("own refresh", || {
            while let Some(due) = router.qos.next_deadline().filter(|due| *due <= end) {
                router.now = router.now.max(due);
                router.give(Input::Timer);
            }
            Ok(sessions.into())
        })?;
        Ok(meter.time)
    }
}
