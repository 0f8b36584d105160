//! `bench forward ping`: the daemon under many sessions that Ping now and then, as the end of their flows or as a node on their way.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::json;
use signalbox_core::SessionId;
use signalbox_lab::machine::Watch;
use signalbox_linux::process::Usage;
use signalbox_node::Event;
use signalbox_node::ping::{PingEvent, PingRequest};

use super::super::super::figures::{Column, Row, table};
use super::super::super::judged::Judged;
use super::super::end::Seen;
use super::super::site::{Daemon, MIDDLE_UP, Site};
use super::super::{on_source, quantiles};
use super::pair::{Kind, Pair, request, start};
use super::{SETTINGS, latency, streams};

/// The time after the set-up that is not measured.
const SETTLE: Duration = Duration::from_secs(1);
/// A request whose reply has not come after this time is lost.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Echoes for the baseline, for each gap.
const ECHOES: u32 = 200;
/// State is refreshed at random between a half and three quarters of its validity.
const REFRESHED_AT: f64 = 0.625;

const COLUMNS: &[Column] = &[
    Column::micros("processor_percent", "processor %"),
    Column::octets("octets_per_session", "octets/session"),
    Column::whole("replies_per_second", "replies/s"),
    Column::micros("lost_percent", "lost %"),
    Column::micros("round_trip_mean_us", "RTT mean µs"),
    Column::micros("round_trip_p50_us", "p50"),
    Column::micros("round_trip_p99_us", "p99"),
    Column::micros("data_mean_us", "Data µs"),
    Column::micros("query_response_mean_us", "Query→Response µs"),
    Column::micros("first_round_trip_p50_us", "first RTT µs"),
];
const ECHO_COLUMNS: &[Column] =
    &[Column::micros("round_trip_p50_us", "RTT p50 µs"), Column::micros("round_trip_p99_us", "p99")];

/// Options of `bench forward ping`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The sessions begin one after the other, evenly over the interval. Times are in microseconds: round trips of the Pings; where the daemon \
is between both ends, how long it keeps a Data message in a datagram, and how long it takes to answer a Query; and the first round trip of a new \
session, with its handshake, while the others are there.

EXAMPLES:
  signalbox bench forward ping --sessions 60000
  signalbox bench forward ping --sessions 15000 --carrier tcp --refresh 30 --seconds 60 --json")]
pub struct PingForwardArgs {
    /// Sessions that Ping
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub sessions: u32,
    /// Seconds between two Pings of a session
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub interval: u32,
    /// Mean seconds between two refreshes of the routing state of a session
    #[arg(long, value_name = "S", default_value_t = 180, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub refresh: u32,
    /// Seconds to measure
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Where the daemon is
    #[arg(long, value_name = "PLACE", value_enum, default_value_t = Place::End)]
    pub place: Place,
    /// What carries the messages
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Carrier::Datagrams)]
    pub carrier: Carrier,
    /// New sessions whose first round trip is measured, one at a time
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub timed: u32,
    /// How often to repeat; the median counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// A place on the path of the flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// The end, which answers
    End,
    /// Between both ends, as a router
    Between,
}

/// What carries the messages of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Carrier {
    /// Datagrams: D-mode
    Datagrams,
    /// An association over TCP, which all sessions share: C-mode
    Tcp,
}

impl PingForwardArgs {
    /// The settings of all nodes.
    fn settings(&self) -> String {
        let validity = f64::from(self.refresh) / REFRESHED_AT;
        let text = match self.carrier {
            Carrier::Datagrams => SETTINGS.to_owned(),
            Carrier::Tcp => streams::over_tcp(),
        };
        text.replace("state_validity = \"10m\"", &format!("state_validity = \"{:.0}ms\"", validity * 1e3))
    }

    /// The Ping of a session.
    fn request(&self, number: u32, count: Option<u32>) -> PingRequest {
        let interval = Duration::from_secs(self.interval.into());
        let one = PingRequest { count, interval, timeout: TIMEOUT, ..request(number) };
        match self.place {
            Place::End => PingRequest { dst: IpAddr::V4(MIDDLE_UP), ..one },
            Place::Between => one,
        }
    }
}

pub(in super::super::super) fn run(args: &PingForwardArgs) -> Result<()> {
    let watch = Watch::start();
    let site = Site::build()?;
    let (mut node, mut echo) = (Row::new("node"), Row::new("bare echo"));
    for _ in 0..args.runs {
        // With the longest gap: Pings come one at a time, too.
        if let Some([p50, p99, ..]) = latency::through_echo(&site, ECHOES)?.last() {
            echo.add(&[*p50, *p99]);
        }
        node.add(&through_node(&site, args)?);
    }
    let figures = json!({
        "repeated": args.runs, "sessions": args.sessions, "interval_s": args.interval, "refresh_s": args.refresh, "seconds": args.seconds,
        "place": args.place.to_possible_value().map(|value| value.get_name().to_owned()),
        "carrier": args.carrier.to_possible_value().map(|value| value.get_name().to_owned()),
        "node": node.json(COLUMNS), "bare_echo": echo.json(ECHO_COLUMNS),
    });
    let replies = node.median(COLUMNS, "replies_per_second");
    let faults = if replies > 0.0 { Vec::new() } else { vec!["no reply came".to_owned()] };
    let rows = [node];
    let text = format!(
        "{} sessions, a Ping of each every {} s, a refresh every {} s\n\n{}\n\n{}",
        args.sessions,
        args.interval,
        args.refresh,
        table("", COLUMNS, &rows)?,
        table("", ECHO_COLUMNS, &[echo])?
    );
    Judged::new("ping-forward", &watch, Vec::new(), faults).print(args.json, &figures, &text)
}

fn through_node(site: &Site, args: &PingForwardArgs) -> Result<[f64; 10]> {
    let settings = args.settings();
    let daemon = Daemon::start(site, &settings)?;
    let process = daemon.process()?;
    let usage = || Usage::of(&process).context("the daemon has ended");
    on_source(|| {
        let mut load = Load { pair: Pair::open(site, &settings)?, args, noted: Noted::default() };
        let before = usage()?;
        load.begin()?;
        load.go_on(SETTLE)?;
        load.noted.forget();
        let (then, start) = (usage()?, Instant::now());
        load.go_on(Duration::from_secs(args.seconds))?;
        let (now, took) = (usage()?, start.elapsed().as_secs_f64());
        let noted = std::mem::take(&mut load.noted);
        let first = load.first_round_trips()?;
        let (replies, lost) = (noted.round_trips.len() as f64, f64::from(noted.lost));
        let mean = micros(&noted.round_trips);
        let [p50, p99] = quantiles(noted.round_trips);
        Ok([
            (now.cpu - then.cpu).as_secs_f64() / took * 100.0,
            now.memory.saturating_sub(before.memory) as f64 / f64::from(args.sessions),
            replies / took,
            lost / (replies + lost).max(1.0) * 100.0,
            mean,
            p50,
            p99,
            micros(&noted.data),
            micros(&noted.answers),
            quantiles(first)[0],
        ])
    })
}

/// Returns the mean in microseconds; of nothing, not a number.
fn micros(times: &[Duration]) -> f64 {
    times.iter().sum::<Duration>().as_secs_f64() * 1e6 / times.len() as f64
}

/// Both neighbors of the daemon, of which the source Pings.
struct Load<'a> {
    pair: Pair,
    args: &'a PingForwardArgs,
    noted: Noted,
}

/// What the ends notice.
#[derive(Debug, Default)]
struct Noted {
    round_trips: Vec<Duration>,
    lost: u32,
    /// The times of Data messages from the source to the sink, and of Queries until their Response.
    data: Vec<Duration>,
    answers: Vec<Duration>,
    /// When the last message of each session was sent.
    data_sent: HashMap<SessionId, Instant>,
    queries_sent: HashMap<SessionId, Instant>,
    /// The Ping whose reply is waited for.
    awaited: Option<u64>,
    refused: Option<String>,
}

impl Noted {
    /// Forgets the times, but not what is under way.
    fn forget(&mut self) {
        self.round_trips.clear();
        self.data.clear();
        self.answers.clear();
        self.lost = 0;
    }

    fn at_source(&mut self, seen: Seen<'_>) {
        match seen {
            Seen::Sent(packet) => {
                let sent = match Kind::of(packet.payload) {
                    Kind::Query => &mut self.queries_sent,
                    Kind::Data => &mut self.data_sent,
                    _ => return,
                };
                sent.extend(session(packet.payload).map(|session| (session, Instant::now())));
            }
            Seen::Received(packet) if Kind::of(packet.payload) == Kind::Response => {
                let sent = session(packet.payload).and_then(|session| self.queries_sent.remove(&session));
                self.answers.extend(sent.map(|sent| sent.elapsed()));
            }
            Seen::Event(Event::Ping { id, event }) => match event {
                PingEvent::Reply(reply) => {
                    self.round_trips.push(reply.rtt);
                    self.awaited = self.awaited.filter(|awaited| *awaited != id);
                }
                PingEvent::Lost { .. } => self.lost += 1,
                PingEvent::Refused(refusal) => self.refused = Some(refusal.to_string()),
                PingEvent::Started { .. } | PingEvent::Done { .. } => {}
            },
            _ => {}
        }
    }

    fn at_sink(&mut self, seen: Seen<'_>) {
        if let Seen::Received(packet) = seen
            && Kind::of(packet.payload) == Kind::Data
        {
            let sent = session(packet.payload).and_then(|session| self.data_sent.remove(&session));
            self.data.extend(sent.map(|sent| sent.elapsed()));
        }
    }
}

impl Load<'_> {
    /// Starts all Pings, evenly over an interval.
    fn begin(&mut self) -> Result<()> {
        let (begin, interval) = (Instant::now(), Duration::from_secs(self.args.interval.into()));
        for number in 0..self.args.sessions {
            let due = interval.mul_f64(f64::from(number) / f64::from(self.args.sessions));
            while begin.elapsed() < due {
                self.turn()?;
            }
            self.start(number, None)?;
        }
        self.go_on(interval.saturating_sub(begin.elapsed()))
    }

    fn start(&mut self, number: u32, count: Option<u32>) -> Result<()> {
        let Self { pair, args, noted } = self;
        let command = start(number, args.request(number, count));
        pair.source.command(command, &mut |seen| noted.at_source(seen))
    }

    fn turn(&mut self) -> Result<()> {
        let Self { pair, args, noted } = self;
        pair.source.turn(Duration::ZERO, &mut |seen| noted.at_source(seen))?;
        if args.place == Place::Between {
            pair.sink.turn(Duration::ZERO, &mut |seen| noted.at_sink(seen))?;
        }
        if let Some(refusal) = &self.noted.refused {
            bail!("the source refuses to ping: {refusal}");
        }
        Ok(())
    }

    fn go_on(&mut self, time: Duration) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.turn()?;
        }
        Ok(())
    }

    /// Starts new sessions, one after the other, and returns how long each took until its first reply.
    fn first_round_trips(&mut self) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        for number in self.args.sessions..self.args.sessions + self.args.timed {
            let begin = Instant::now();
            self.noted.awaited = Some(number.into());
            self.start(number, Some(1))?;
            self.pair.source.flush();
            while self.noted.awaited.is_some() {
                self.turn()?;
                ensure!(begin.elapsed() < TIMEOUT, "a new session had no reply");
            }
            times.push(begin.elapsed());
        }
        Ok(times)
    }
}

/// Returns the session of a message in a datagram: its object follows the routing information (RFC 5971 A.1, A.3).
fn session(payload: &[u8]) -> Option<SessionId> {
    let objects = payload.get(12..)?;
    let words = u16::from_be_bytes(*objects.get(2..4)?.first_chunk()?) & 0x0fff;
    let behind = objects.get(4 + 4 * usize::from(words)..)?;
    Some(SessionId(*behind.get(4..20)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(carrier: Carrier, place: Place) -> PingForwardArgs {
        PingForwardArgs {
            sessions: 9,
            interval: 30,
            refresh: 90,
            seconds: 1,
            place,
            carrier,
            timed: 1,
            runs: 1,
            json: true,
        }
    }

    #[test]
    fn state_is_refreshed_as_often_as_it_is_asked() {
        let text = args(Carrier::Tcp, Place::End).settings();
        assert!(text.contains("state_validity = \"144000ms\"") && text.contains("tcp_port"), "{text}");
        assert!(!args(Carrier::Datagrams, Place::End).settings().contains("tcp_port"));
    }

    #[test]
    fn the_daemon_is_the_end_of_flows_or_on_their_way() {
        let end = args(Carrier::Datagrams, Place::End).request(3, None);
        let between = args(Carrier::Datagrams, Place::Between).request(3, Some(1));
        assert_eq!(
            (end.dst, end.count, end.interval),
            (IpAddr::V4(MIDDLE_UP), None, Duration::from_secs(30))
        );
        assert_ne!(between.dst, end.dst);
    }

    #[test]
    fn the_session_stands_behind_the_routing_information() {
        let mut payload = vec![0; 12];
        payload.extend([0, 0, 0, 1, 9, 9, 9, 9, 0, 1, 0, 4]);
        payload.extend([7; 16]);
        assert_eq!(session(&payload), Some(SessionId([7; 16])));
        assert_eq!(session(&payload[..30]), None);
    }
}
