//! The neighbors of the router under test: one program that sends Paths from the source, answers them with Resvs at the
//! sink, and takes the Resvs that arrive at the source.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use signalbox_core::metrics::Subsystem;
use signalbox_core::node::Prefix;
use signalbox_core::packet::Transmit;
use signalbox_core::{AlertRule, Entry, EntryRequest, Intercept};
use signalbox_linux::netns::Namespace;
use signalbox_linux::{Batch, Io, IoConfig, topology};
use signalbox_resources::intserv::TSpec;
use signalbox_rsvp::wire::{Filter, FlowSpec, MessageType, RsvpHop, Selector, Session, SessionKind, Style};

use super::super::site::{MIDDLE_DOWN, MIDDLE_UP, SINK, SOURCE, Site};
use super::neighbor::{MOST_LISTED, Neighbor, messages};

pub(super) const RSVP: Entry = Entry::Ip(46);
/// The destinations of the flows, which the sink receives for.
const DESTINATIONS: Prefix = Prefix { addr: IpAddr::V4(Ipv4Addr::new(10, 92, 0, 0)), len: 16 };
const FIRST_DESTINATION: u32 = 0x0a5c_0001;
/// Destinations of the flows at most; further flows have other ports.
pub(super) const MAX_DESTINATIONS: u32 = 65_000;
const FIRST_PORT: u32 = 1024;
const SOURCE_PORT: u16 = 4000;
const UDP: u8 = 17;
pub(super) const TTL: u8 = 63;
const REFRESH_MS: u32 = 30_000;
/// R of the neighbors.
pub(super) const REFRESH: Duration = Duration::from_secs(30);
/// Sessions whose Paths are refreshed together during a set-up.
const REFRESHED: u32 = 256;
/// After this time without an arrival, what has no answer is sent again.
const STALL: Duration = Duration::from_millis(300);
/// How often that may happen in a row.
const STALLS: u32 = 20;

/// The source and the sink.
pub(super) struct Ends {
    source: Neighbor,
    sink: Neighbor,
    /// It is away while its packets are handled. Making another one would take longer than that.
    batch: Option<Batch>,
    destinations: u32,
    tspec: TSpec,
    /// The interface handle that the last Path at the sink had in its RSVP_HOP, which Resvs carry.
    lih: Option<u32>,
    /// Sessions that were sent, in groups, and when their Paths are due again. Without refreshes the router removes the first of
    /// a million sessions before it has the last.
    sent: VecDeque<(Instant, Range<u32>)>,
}

/// The entry of RSVP, with interception of Paths.
pub(super) fn entry() -> EntryRequest {
    let intercept = Intercept::passing(AlertRule::Value { ipv4: 0, ipv6: 1 }, Vec::new());
    EntryRequest::local(RSVP, Subsystem::protocol("bench")).with_intercept(intercept)
}

/// Opens the sockets of an end, or of the bare forwarder.
pub(super) fn open(namespace: &Namespace) -> Result<Io> {
    let config = IoConfig { entries: vec![entry()], ipv6: false, ..IoConfig::default() };
    Ok(namespace.run(|| Io::open(&config))??)
}

impl Ends {
    /// Opens both ends, with or without refresh reduction; the flows go to `destinations` addresses.
    pub(super) fn open(site: &Site, destinations: u32, reduction: bool) -> Result<Self> {
        topology::add_route(&site.middle, DESTINATIONS, Some(IpAddr::V4(SINK)), None)?;
        // A Path passes the sink, which a router intercepts and a host would drop.
        topology::set_forwarding(&site.sink, true)?;
        Ok(Self {
            source: Neighbor::open(&site.source, SOURCE, MIDDLE_UP, reduction)?,
            // Resvs go to the router, not to the hop in the Path: that is the source if the bare forwarder passed it on.
            sink: Neighbor::open(&site.sink, SINK, MIDDLE_DOWN, reduction)?,
            batch: Some(Batch::new()),
            destinations,
            tspec: TSpec::new(1_000.0, 3000.0, f32::INFINITY, 64, 1500)?,
            lih: None,
            sent: VecDeque::new(),
        })
    }

    /// Sets the sessions `first..end` up, `window` of them at a time, and waits until the source has the Resv of each.
    pub(super) fn set_up(&mut self, first: u32, end: u32, window: u32) -> Result<()> {
        let mut done = vec![false; usize::try_from(end - first)?];
        let (mut next, mut missing) = (first, end - first);
        let (mut progress, mut stalls) = (Instant::now(), 0);
        while missing > 0 {
            let answered = (end - first) - missing;
            while next < end && (next - first) - answered < window {
                self.path(next)?;
                next += 1;
                if next == end || (next - first).is_multiple_of(REFRESHED) {
                    let from = (next - 1 - first) / REFRESHED * REFRESHED + first;
                    self.sent.push_back((Instant::now() + REFRESH, from..next));
                }
            }
            self.refresh_due()?;
            self.source.flush()?;
            // Paths that the router refreshes are answered too, which refreshes their Resvs.
            self.answer(|_| true)?;
            let before = missing;
            self.arrivals(|number| {
                let at = number.checked_sub(first).and_then(|at| done.get_mut(at as usize));
                if let Some(done) = at.filter(|done| !**done) {
                    *done = true;
                    missing -= 1;
                }
            })?;
            if missing < before {
                (progress, stalls) = (Instant::now(), 0);
            } else if progress.elapsed() > STALL {
                ensure!(stalls < STALLS, "{missing} of {} sessions were not set up", end - first);
                (progress, stalls) = (Instant::now(), stalls + 1);
                let lost = (first..next).zip(&done).filter(|(_, done)| !**done).map(|(number, _)| number);
                lost.take(window as usize).try_for_each(|number| self.path(number))?;
            }
        }
        Ok(())
    }

    /// Sets session `number` up and returns how long its Path took to the sink, and its Resv to the source.
    pub(super) fn time(&mut self, number: u32) -> Result<(Duration, Duration)> {
        let start = Instant::now();
        self.path(number)?;
        self.source.flush()?;
        let mut path = None;
        while path.is_none() {
            self.answer(|arrived| {
                path = (arrived == number).then(|| start.elapsed()).or(path);
                false
            })?;
            ensure!(start.elapsed() < STALL * STALLS, "a Path did not pass the router");
        }
        let begin = Instant::now();
        self.resv(number)?;
        self.sink.flush()?;
        let mut resv = None;
        while resv.is_none() {
            self.arrivals(|arrived| resv = (arrived == number).then(|| begin.elapsed()).or(resv))?;
            ensure!(begin.elapsed() < STALL * STALLS, "a Resv did not pass the router");
        }
        path.zip(resv).context("a message was lost")
    }

    /// Sets the sessions `first..end` up, one each `gap`, whether or not the former one stands. Returns how long each Path took to the
    /// sink, from the moment at which it was to be sent, and each Resv to the source.
    pub(super) fn time_at_gaps(&mut self, first: u32, end: u32, gap: Duration) -> Result<[Vec<Duration>; 2]> {
        let count = usize::try_from(end - first)?;
        let (mut paths, mut resvs) = (vec![None; count], vec![None; count]);
        let mut answered = vec![None; count];
        let start = Instant::now();
        let at = |number: u32| number.checked_sub(first).map(|at| at as usize).filter(|at| *at < count);
        let (mut next, mut missing) = (first, count);
        while missing > 0 {
            if next < end && start.elapsed() >= gap * (next - first) {
                self.path(next)?;
                self.source.flush()?;
                next += 1;
            }
            self.answer(|number| {
                let new = at(number).filter(|at| paths[*at].is_none());
                if let Some(at) = new {
                    let due = gap * (number - first);
                    paths[at] = Some(start.elapsed().saturating_sub(due));
                    answered[at] = Some(Instant::now());
                }
                new.is_some()
            })?;
            self.arrivals(|number| {
                if let Some(at) = at(number).filter(|at| resvs[*at].is_none()) {
                    resvs[at] = answered[at].map(|begin: Instant| begin.elapsed());
                    missing -= usize::from(resvs[at].is_some());
                }
            })?;
            let late = gap * (end - first) + STALL * STALLS;
            ensure!(start.elapsed() < late, "{missing} of {count} sessions were not set up");
        }
        Ok([paths, resvs].map(|times| times.into_iter().flatten().collect()))
    }

    /// Refreshes the Paths of the group that is due, if one is; with refresh reduction the Resvs too, because the router then
    /// sends no Paths again that the sink could answer.
    fn refresh_due(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.sent.front().is_none_or(|(due, _)| *due > now) {
            return Ok(());
        }
        if let Some((_, sessions)) = self.sent.pop_front() {
            if self.source.reduces() {
                self.source.summarise(sessions.clone())?;
                self.sink.summarise(sessions.clone())?;
            } else {
                sessions.clone().try_for_each(|number| self.path(number))?;
            }
            self.sent.push_back((now + REFRESH, sessions));
        }
        Ok(())
    }

    /// Sends a refresh of the Path and of the Resv of `sessions` sessions in turn, each once in 30 s, for `span`, and takes
    /// what the router sends.
    pub(super) fn refresh(&mut self, sessions: u32, span: Duration) -> Result<()> {
        let (start, mut sent) = (Instant::now(), 0_u64);
        let mut listed = Vec::with_capacity(MOST_LISTED);
        while start.elapsed() < span {
            let due = u128::from(sessions) * start.elapsed().as_nanos() / REFRESH.as_nanos();
            while u128::from(sent) < due {
                let number = u32::try_from(sent % u64::from(sessions))?;
                sent += 1;
                if !self.source.reduces() {
                    self.path(number)?;
                    self.resv(number)?;
                    continue;
                }
                listed.push(number);
                if listed.len() == MOST_LISTED || number + 1 == sessions {
                    self.source.summarise(listed.iter().copied())?;
                    self.sink.summarise(listed.drain(..))?;
                }
            }
            self.source.flush()?;
            self.sink.flush()?;
            self.answer(|_| false)?;
            self.arrivals(|_| {})?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Takes the Paths that arrived at the sink, and answers those for which `wanted` says so.
    fn answer(&mut self, mut wanted: impl FnMut(u32) -> bool) -> Result<()> {
        let mut batch = self.batch.take().unwrap_or_default();
        self.sink.receive(&mut batch)?;
        for message in batch.iter().flat_map(|received| messages(received.payload)) {
            self.sink.note(&message);
            if message.kind != MessageType::PATH {
                continue;
            }
            let (Some(session), Some(hop)) = (message.session, message.hop) else { continue };
            self.lih = Some(hop.lih);
            let number = self.number(&session);
            if wanted(number) {
                self.resv(number)?;
            }
        }
        self.sink.take_unknown().into_iter().try_for_each(|number| self.resv(number))?;
        self.sink.flush()?;
        self.batch = Some(batch);
        Ok(())
    }

    /// Takes the Resvs that arrived at the source.
    fn arrivals(&mut self, mut each: impl FnMut(u32)) -> Result<()> {
        let mut batch = self.batch.take().unwrap_or_default();
        self.source.receive(&mut batch)?;
        for message in batch.iter().flat_map(|received| messages(received.payload)) {
            self.source.note(&message);
            if let (MessageType::RESV, Some(session)) = (message.kind, message.session) {
                each(self.number(&session));
            }
        }
        self.source.take_unknown().into_iter().try_for_each(|number| self.path(number))?;
        self.batch = Some(batch);
        Ok(())
    }

    fn session(&self, number: u32) -> Session {
        let dest = Ipv4Addr::from_bits(FIRST_DESTINATION + number % self.destinations);
        let port = u16::try_from(FIRST_PORT + number / self.destinations).unwrap_or(u16::MAX);
        Session { dest: dest.into(), protocol: UDP, kind: SessionKind::Ports, port }
    }

    fn number(&self, session: &Session) -> u32 {
        let IpAddr::V4(dest) = session.dest else { return u32::MAX };
        let port = u32::from(session.port).saturating_sub(FIRST_PORT);
        port.saturating_mul(self.destinations).saturating_add(dest.to_bits().wrapping_sub(FIRST_DESTINATION))
    }

    fn path(&mut self, number: u32) -> Result<()> {
        let session = self.session(number);
        let filter = Filter { src: SOURCE.into(), selector: Selector::Port(SOURCE_PORT) };
        let hop = RsvpHop { addr: SOURCE.into(), lih: 7 };
        self.source.send(MessageType::PATH, Some(session.dest), number, |w| {
            w.session(&session, false).hop(&hop).time_values(REFRESH_MS);
            w.sender_template(&filter).sender_tspec(&self.tspec);
        })
    }

    fn resv(&mut self, number: u32) -> Result<()> {
        let lih = self.lih.context("no Path has arrived at the sink")?;
        let session = self.session(number);
        let filter = Filter { src: SOURCE.into(), selector: Selector::Port(SOURCE_PORT) };
        let flowspec = FlowSpec { tspec: self.tspec, rspec: None };
        self.sink.send(MessageType::RESV, None, number, |w| {
            w.session(&session, false).hop(&RsvpHop { addr: SINK.into(), lih }).time_values(REFRESH_MS);
            w.style(Style::Ff).flowspec(&flowspec).filter_spec(&filter);
        })
    }
}

/// A packet of RSVP.
pub(super) const fn packet<'a>(
    src: IpAddr,
    dst: IpAddr,
    options: &'a [u8],
    payload: &'a [u8],
) -> Transmit<'a> {
    Transmit {
        entry: RSVP,
        src: SocketAddr::new(src, 0),
        dst: SocketAddr::new(dst, 0),
        ifindex: None,
        gateway: None,
        ttl: TTL,
        tos: 0,
        dont_fragment: false,
        flow_label: 0,
        unproved: false,
        options,
        payload,
    }
}
