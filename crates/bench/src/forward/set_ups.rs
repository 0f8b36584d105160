//! Set-ups through the daemon, asked for by a node of this program at the source and answered by one at the sink.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::json;
use signalbox_lab::machine::Watch;
use signalbox_linux::process::Usage;
use signalbox_node::{Command, Event};

use super::super::Goal;
use super::super::figures::{Column, Row, table};
use super::super::judged::{Judged, nothing};
use super::end::{End, Seen};
use super::on_source;
use super::site::{Daemon, Site};

/// Sessions that are set up before the clock starts, so that what is made once does not count.
pub(super) const WARM_UP: u32 = 64;
/// Ports of the flows.
const FIRST_PORT: u32 = 10_000;
const PER_PORT: u32 = 50_000;
/// With fewer sessions, memory that the daemon had may do for them.
pub(super) const MEASURABLE: u32 = 1_000;
/// The longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) const RATE: &str = "set_ups_per_second";
pub(super) const OCTETS: &str = "octets_per_session";
pub(super) const COLUMNS: &[Column] = &[
    Column::whole(RATE, "set-ups/s"),
    Column::micros("processor_us_per_set_up", "µs each"),
    Column::octets(OCTETS, "octets/session"),
];

/// Options of a benchmark of set-ups.
#[derive(Debug, Clone, Args)]
pub struct SetUpArgs {
    /// Set-ups that may be under way at a time
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub window: u32,
    /// How often to repeat, all lanes in turn; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What became of a set-up.
pub(super) enum Outcome {
    Granted,
    /// The reason, in words.
    Failed(String),
}

/// What is set up, and how it is measured.
pub(super) struct Bench<'a> {
    /// Its name in JSON.
    pub(super) name: &'static str,
    /// What is set up, in the plural.
    pub(super) what: &'static str,
    pub(super) sessions: u32,
    pub(super) args: &'a SetUpArgs,
    /// Settings of both ends.
    pub(super) ends: String,
    /// The name of each lane, and the settings of its daemon; `None`: there is no daemon.
    pub(super) lanes: Vec<(&'static str, Option<String>)>,
    /// The command that sets session `number` up.
    pub(super) command: fn(u32) -> Command,
    /// What an event at the source says about a set-up; `None`: it is under way.
    pub(super) outcome: fn(&Event) -> Option<Outcome>,
    /// The goals, from the rows of all lanes.
    pub(super) goals: fn(&[Row]) -> Vec<Goal>,
}

impl Bench<'_> {
    /// Measures all lanes in turn, and prints the table or JSON.
    pub(super) fn run(&self) -> Result<()> {
        let watch = Watch::start();
        let site = Site::build()?;
        let mut rows: Vec<_> = self.lanes.iter().map(|(name, _)| Row::new(*name)).collect();
        for _ in 0..self.args.runs {
            for (row, (name, daemon)) in rows.iter_mut().zip(&self.lanes) {
                let figures = match daemon {
                    Some(settings) => self.through_node(&site, settings),
                    None => on_source(|| self.set_up(&site, || Ok(()))).map(|(_, figures)| figures),
                };
                row.add(&figures.with_context(|| format!("lane {name}"))?);
            }
        }
        let mut figures = json!({"repeated": self.args.runs, "sessions": self.sessions});
        for row in &rows {
            figures["lanes"][&row.name] = row.json(COLUMNS).into();
        }
        let about = format!("{} {}, medians of {} runs", self.sessions, self.what, self.args.runs);
        let text = format!("{about}\n\n{}", table("", COLUMNS, &rows)?);
        // The ends without a daemon do more themselves, so that they bound no rate. Few sessions may fit into a page that was there.
        let octets = |row: &Row| nothing(&row.name, row.median(COLUMNS, OCTETS));
        let measurable = rows.iter().filter(|_| self.sessions >= MEASURABLE);
        let faults = measurable.filter_map(octets).collect();
        let judged = Judged::new(self.name, &watch, (self.goals)(&rows), faults);
        judged.print(self.args.json, &figures, &text)
    }

    fn through_node(&self, site: &Site, settings: &str) -> Result<[f64; 3]> {
        let daemon = Daemon::start(site, settings)?;
        let process = daemon.process()?;
        let usage = || Usage::of(&process).context("the daemon has ended");
        let ([before, after], [rate, ..]) = on_source(|| self.set_up(site, usage))?;
        let sessions = f64::from(self.sessions);
        let each = (after.cpu - before.cpu).as_secs_f64() * 1e6 / sessions;
        Ok([rate, each, after.memory.saturating_sub(before.memory) as f64 / sessions])
    }

    /// Sets all sessions up. Returns what `look` saw before and after, and the figures of a path without a daemon.
    fn set_up<T>(&self, site: &Site, mut look: impl FnMut() -> Result<T>) -> Result<([T; 2], [f64; 3])> {
        let mut ends = [End::open(&site.source, &self.ends)?, End::open(&site.sink, &self.ends)?];
        self.ask(&mut ends, self.sessions, self.sessions + WARM_UP)?;
        let (before, start) = (look()?, Instant::now());
        self.ask(&mut ends, 0, self.sessions)?;
        let rate = f64::from(self.sessions) / start.elapsed().as_secs_f64();
        Ok(([before, look()?], [rate, f64::NAN, f64::NAN]))
    }

    /// Asks for the sessions `first..end`, some at a time, and waits until all are granted.
    fn ask(&self, [source, sink]: &mut [End; 2], first: u32, end: u32) -> Result<()> {
        let (mut next, mut granted) = (first, 0);
        let mut progress = Instant::now();
        while granted < end - first {
            let (before, mut failed) = (granted, None);
            let mut see = |seen: Seen<'_>| {
                if let Seen::Event(event) = &seen {
                    match (self.outcome)(event) {
                        Some(Outcome::Granted) => granted += 1,
                        Some(Outcome::Failed(reason)) => failed = Some(reason),
                        None => {}
                    }
                }
            };
            while next < end && next - first - before < self.args.window {
                source.command((self.command)(next), &mut see)?;
                next += 1;
            }
            source.turn(Duration::ZERO, &mut see)?;
            if let Some(reason) = failed {
                bail!("of {} one was not granted: {reason}", self.what);
            }
            sink.turn(Duration::ZERO, &mut |_| {})?;
            if granted > before {
                progress = Instant::now();
            }
            ensure!(progress.elapsed() < PATIENCE, "{granted} of {} {} were granted", end - first, self.what);
        }
        Ok(())
    }
}

/// The source and destination port of session `number`.
pub(super) fn ports(number: u32) -> [Option<u16>; 2] {
    let port = |number| u16::try_from(FIRST_PORT + number).ok();
    [port(number / PER_PORT), port(number % PER_PORT)]
}

/// Settings of GIST without limits of rates and numbers of one source.
pub(super) const GIST: &str = "[gist]\nmessage_rate = \"0/s\"\nintercept_rate = \"0/s\"\nquery_rate_per_source = \"0/s\"\n\
     max_sessions_per_source = 0\n";
