//! Both neighbors of the daemon: nodes in this process, which Ping over it.

use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use signalbox_node::ping::{self, PingEvent, PingRequest};
use signalbox_node::{Command, Event};

use super::super::end::{End, Seen};
use super::super::site::{SINK, SOURCE, Site};

pub(super) use super::super::super::gist::Kind;

/// New sessions that may be under way at a time.
pub(super) const WINDOW: u32 = 128;
/// The time after which a message is lost.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time without a reply.
const PATIENCE: Duration = Duration::from_secs(15);
/// First port of the flows.
const FIRST_PORT: u32 = 20_000;
/// Flows with one source port.
const PER_PORT: u32 = 40_000;

/// A Ping of the flow of session `number`.
pub(super) fn request(number: u32) -> PingRequest {
    let port = |number| u16::try_from(FIRST_PORT + number).unwrap_or(u16::MAX);
    PingRequest {
        src: Some(IpAddr::V4(SOURCE)),
        protocol: Some(17),
        src_port: Some(port(number / PER_PORT)),
        dst_port: Some(port(number % PER_PORT)),
        count: Some(1),
        timeout: TIMEOUT,
        ..PingRequest::to(IpAddr::V4(SINK))
    }
}

/// The command that starts a Ping.
pub(super) fn start(number: u32, request: PingRequest) -> Command {
    Command::Ping { id: number.into(), command: ping::Command::Start(request) }
}

/// The source and the sink, which one thread serves without waiting.
pub(super) struct Pair {
    pub(super) source: End,
    pub(super) sink: End,
}

impl Pair {
    pub(super) fn open(site: &Site, settings: &str) -> Result<Self> {
        Ok(Self { source: End::open(&site.source, settings)?, sink: End::open(&site.sink, settings)? })
    }

    /// Serves both ends once. `see` gets what the source sees.
    pub(super) fn turn(&mut self, see: &mut dyn FnMut(Seen<'_>)) -> Result<()> {
        self.source.turn(Duration::ZERO, see)?;
        self.sink.turn(Duration::ZERO, &mut |_| {})
    }

    /// Serves both ends for `time`.
    pub(super) fn settle(&mut self, time: Duration) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.turn(&mut |_| {})?;
        }
        Ok(())
    }

    /// Sets sessions up by one Ping each, `window` of them at a time, and waits for all replies. `see` gets what the
    /// source sees.
    pub(super) fn set_up(
        &mut self,
        sessions: Range<u32>,
        window: u32,
        see: &mut dyn FnMut(Seen<'_>),
    ) -> Result<()> {
        let (mut next, mut under_way, mut missing) = (sessions.start, 0, sessions.len());
        let mut again = Vec::new();
        let mut progress = Instant::now();
        while missing > 0 {
            while under_way < window
                && let Some(number) = again.pop().or_else(|| (next < sessions.end).then_some(next))
            {
                next += u32::from(number == next);
                under_way += 1;
                self.source.command(start(number, request(number)), see)?;
            }
            let mut refused = None;
            self.turn(&mut |seen| {
                if let Seen::Event(Event::Ping { id, event }) = &seen {
                    match event {
                        PingEvent::Done { received, .. } => {
                            under_way -= 1;
                            if *received > 0 {
                                missing -= 1;
                                progress = Instant::now();
                            } else {
                                again.extend(u32::try_from(*id));
                            }
                        }
                        PingEvent::Refused(refusal) => refused = Some(*refusal),
                        PingEvent::Started { .. } | PingEvent::Reply(_) | PingEvent::Lost { .. } => {}
                    }
                }
                see(seen);
            })?;
            if let Some(refusal) = refused {
                bail!("the source refuses to ping: {refusal}");
            }
            ensure!(
                progress.elapsed() < PATIENCE,
                "{missing} of {} sessions were not set up",
                sessions.len()
            );
        }
        Ok(())
    }
}
