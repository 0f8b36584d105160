//! A router and its neighbors, whose messages are made here, before the clock starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use signalbox_casp::engine::{Casp, Config, Input, Mechanism, Output, Transport};
use signalbox_casp::kit::{LIFETIME, flow, interface};
use signalbox_casp::wire::{Body, ClientType, Flags, Signaling, framed};
use signalbox_core::Time;
use signalbox_core::node::StreamId;

use super::super::machine::timed;
use super::super::runs::{batch_time, session};

const ROUTER_UP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));
const ROUTER_DOWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1));
const PREVIOUS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2)), 40_000);
const NEXT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2));
/// The connection that the previous node opened.
const FROM_PREVIOUS: StreamId = StreamId(2);
/// Source of all flows, and destination of the first one.
const SOURCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FIRST_DESTINATION: u32 = 0x0b00_0001;
/// A client that the router does not have.
const CLIENT: ClientType = ClientType(200);
const DATA: &[u8] = b"a message of a client";
/// Messages between two looks at the clock.
pub(super) const BATCH: u32 = 512;
/// The most virtual time that a batch takes.
const BATCH_TIME: Duration = Duration::from_millis(1);

/// A kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first message of a session.
    SetUp,
    /// A further one with octets of a client.
    Data,
    /// One against the flow.
    Answer,
    /// One that only refreshes.
    Refresh,
    TearDown,
}

impl Kind {
    const fn part(self) -> &'static str {
        match self {
            Self::SetUp => "set-up",
            Self::Data => "message",
            Self::Answer => "answer",
            Self::Refresh => "refresh",
            Self::TearDown => "tear-down",
        }
    }

    const fn flags(self) -> Flags {
        match self {
            Self::SetUp | Self::Data | Self::Refresh => Flags::NONE,
            Self::Answer => Flags::REVERSE,
            Self::TearDown => Flags::TEAR_DOWN,
        }
    }

    /// Returns such a message for a session.
    fn message(self, number: u32) -> Signaling<'static> {
        let dst = Ipv4Addr::from_bits(FIRST_DESTINATION + number);
        let flow = flow(SOURCE, dst, 4000, 5004);
        let body = match self {
            Self::SetUp | Self::Data | Self::Answer => Body::Client { client: CLIENT, data: DATA },
            Self::Refresh | Self::TearDown => Body::Empty,
        };
        let flags = self.flags();
        Signaling { flags, timeout: Some(LIFETIME), body, ..Signaling::new(session(number), flow) }
    }
}

/// The router.
pub(super) struct World {
    engine: Casp,
    now: Time,
    /// Virtual time that a batch takes.
    batch_time: Duration,
    /// The connection with the next node.
    to_next: Option<StreamId>,
}

impl World {
    pub(super) fn new(sessions: u32) -> Result<Self> {
        let config = Config {
            // The last quarter of a table is for sources that hold little; all is of one source here.
            max_sessions: sessions.saturating_mul(2),
            mechanisms: vec![Mechanism::Static(NEXT)],
            rate: 0,
            ..Config::default()
        };
        let mut engine = Casp::new(config, [9; 32])?;
        let all = [interface(1, vec![ROUTER_UP]), interface(2, vec![ROUTER_DOWN])];
        engine.handle(Time::ZERO, Input::Interfaces(&all));
        let accepted = Input::Accepted {
            stream: FROM_PREVIOUS,
            transport: Transport::Tcp,
            local: ROUTER_UP,
            peer: PREVIOUS,
            identity: None,
        };
        engine.handle(Time::ZERO, accepted);
        let batch_time = batch_time(sessions, BATCH, BATCH_TIME);
        Ok(Self { engine, now: Time::ZERO, batch_time, to_next: None })
    }

    /// Sessions of the router.
    pub(super) fn held(&self) -> u32 {
        self.engine.session_count()
    }

    /// Gives the router one message for each session from `first` on; returns the processor time.
    pub(super) fn take(&mut self, kind: Kind, first: u32, count: u32) -> Result<Duration> {
        let mut octets = Vec::new();
        for number in first..first + count {
            framed(&mut octets, |into| kind.message(number).encode(into))?;
        }
        let length = octets.len() / usize::try_from(count)?.max(1);
        let from = if kind == Kind::Answer { self.to_next.context("no next node")? } else { FROM_PREVIOUS };
        self.now = self.now + self.batch_time;
        let sent = self.engine.counters().signaling_sent;
        let meter = timed(kind.part(), || {
            for message in octets.chunks_exact(length) {
                self.engine.handle(self.now, Input::Octets { stream: from, octets: message });
                self.drain();
            }
            Ok(count.into())
        })?;
        self.all_is_sent();
        let sent = self.engine.counters().signaling_sent - sent;
        ensure!(sent == u64::from(count), "{sent} messages left instead of {count}");
        Ok(meter.time)
    }

    /// Lets the time pass until the router has made a refresh of its own for each session, after half of their lifetime at the latest; returns the processor time.
    pub(super) fn own_refreshes(&mut self, sessions: u32) -> Result<Duration> {
        let wanted = self.engine.counters().refreshed + u64::from(sessions);
        let mut time = Duration::ZERO;
        while self.engine.counters().refreshed < wanted {
            let before = self.engine.counters().refreshed;
            let until = self.engine.next_deadline().context("the router makes no refresh")? + BATCH_TIME;
            self.now = self.now.max(until);
            let meter = timed("own refresh", || {
                self.engine.handle(self.now, Input::Timer);
                self.drain();
                Ok(self.engine.counters().refreshed - before)
            })?;
            time += meter.time;
            self.all_is_sent();
        }
        Ok(time)
    }

    /// Acts as a driver whose connection succeeds at once.
    fn drain(&mut self) {
        loop {
            let stream = match self.engine.poll() {
                Some(Output::Open { stream, .. }) => stream,
                Some(_) => continue,
                None => return,
            };
            self.to_next = Some(stream);
            self.engine.handle(self.now, Input::Connected { stream, identity: None });
        }
    }

    /// Reports that all octets were sent.
    fn all_is_sent(&mut self) {
        for stream in self.to_next.into_iter().chain([FROM_PREVIOUS]) {
            self.engine.handle(self.now, Input::Drained { stream, unsent: 0 });
            self.drain();
        }
    }
}
