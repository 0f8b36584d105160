//! `bench forward qos`: reservations of the QoS NSLP through the daemon, with and without enforcement by the kernel.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::json;
use signalbox_linux::process::Usage;
use signalbox_node::qos::{self, Flow, QosEvent, QosRequest, ReserveRequest};
use signalbox_node::{Command, Event};

use super::super::figures::{Column, Row, table};
use super::super::{Goal, machine, print};
use super::end::{End, Seen};
use super::on_source;
use super::site::{Daemon, MIDDLE_LINKS, SINK, SOURCE, Site};

/// Sessions that are set up before the clock starts, so that what is made once does not count.
const WARM_UP: u32 = 64;
/// Ports of the flows.
const FIRST_PORT: u32 = 10_000;
const PER_PORT: u32 = 50_000;
/// Octets a second of each reservation.
const RATE: u64 = 1_000;
/// The longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(15);
const OCTETS_GOAL: f64 = 350.0;

const COLUMNS: &[Column] = &[
    Column::whole("set_ups_per_second", "set-ups/s"),
    Column::micros("processor_us_per_set_up", "µs each"),
    Column::octets("octets_per_session", "octets/session"),
];

/// Options of `bench forward qos`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Both ends are nodes of this program on one processor. The row without a daemon shows what they can offer.

EXAMPLES:
  signalbox bench forward qos
  signalbox bench forward qos --sessions 50000 --runs 1 --json")]
pub struct QosForwardArgs {
    /// Reservations to set up
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub sessions: u32,
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

pub(in super::super) fn run(args: &QosForwardArgs) -> Result<()> {
    let watch = machine::Watch::start();
    let site = Site::build()?;
    let mut rows = ["node", "node, enforced", "no daemon"].map(Row::new);
    for _ in 0..args.runs {
        let [node, enforced, without] = &mut rows;
        node.add(&through_node(&site, args, "off")?);
        enforced.add(&through_node(&site, args, "required")?);
        without.add(&on_source(|| set_up(&site, args, || Ok(())))?.1);
    }
    let octets = rows[0].median(COLUMNS, "octets_per_session");
    let goals = [Goal::at_most("resident octets per session", "at most 350", OCTETS_GOAL, octets)];
    if args.json {
        let mut report = json!({
            "bench": "qos-forward",
            "machine": watch.describe(),
            "repeated": args.runs,
            "sessions": args.sessions,
            "goals": goals.iter().map(Goal::json).collect::<Vec<_>>(),
        });
        for row in &rows {
            report["lanes"][&row.name] = row.json(COLUMNS).into();
        }
        print(&report.to_string());
    } else {
        let [goal] = goals;
        print(&watch.line());
        print(&format!("{} reservations, medians of {} runs\n", args.sessions, args.runs));
        print(&format!("{}\n\n{goal}", table("", COLUMNS, &rows)?));
    }
    Ok(())
}

/// Nodes without limits of rates and numbers.
fn settings(args: &QosForwardArgs, enforcement: &str, interfaces: &str) -> String {
    // The last quarter of a table is for sources that hold little; all is of one source here.
    let room = args.sessions.saturating_add(WARM_UP).saturating_mul(2);
    format!(
        "node.protocols = [\"gist\", \"qos\"]\nnode.families = [\"ipv4\"]\n[gist]\nmessage_rate = \"0/s\"\n\
         intercept_rate = \"0/s\"\nquery_rate_per_source = \"0/s\"\nmax_sessions_per_source = 0\n[qos]\n\
         max_sessions = {room}\nmax_commands = {room}\n[admission]\nmax_reservations = {room}\n[policy]\n\
         default = \"allow\"\n[enforcement]\nmode = \"{enforcement}\"\n{interfaces}"
    )
}

fn through_node(site: &Site, args: &QosForwardArgs, enforcement: &str) -> Result<[f64; 3]> {
    let daemon = Daemon::start(site, &settings(args, enforcement, MIDDLE_LINKS))?;
    let process = daemon.process()?;
    let usage = || Usage::of(&process).context("the daemon has ended");
    let ([before, after], [rate, ..]) = on_source(|| set_up(site, args, usage))?;
    let sessions = f64::from(args.sessions);
    let each = (after.cpu - before.cpu).as_secs_f64() * 1e6 / sessions;
    Ok([rate, each, after.memory.saturating_sub(before.memory) as f64 / sessions])
}

/// Sets all sessions up. Returns what `look` saw before and after, and the figures of a path without a daemon.
fn set_up<T>(
    site: &Site,
    args: &QosForwardArgs,
    mut look: impl FnMut() -> Result<T>,
) -> Result<([T; 2], [f64; 3])> {
    let settings = settings(args, "off", "[interfaces.\"*\"]\ncapacity = \"40gbit\"\n");
    let mut ends = [End::open(&site.source, &settings)?, End::open(&site.sink, &settings)?];
    reserve(&mut ends, args.sessions, args.sessions + WARM_UP, args.window)?;
    let (before, start) = (look()?, Instant::now());
    reserve(&mut ends, 0, args.sessions, args.window)?;
    let rate = f64::from(args.sessions) / start.elapsed().as_secs_f64();
    Ok(([before, look()?], [rate, f64::NAN, f64::NAN]))
}

/// Reserves for the flows `first..end`, `window` at a time, and waits until all are granted.
fn reserve([source, sink]: &mut [End; 2], first: u32, end: u32, window: u32) -> Result<()> {
    let (mut next, mut granted) = (first, 0);
    let mut progress = Instant::now();
    while granted < end - first {
        while next < end && next - first - granted < window {
            source.command(command(next), &mut |_| {})?;
            next += 1;
        }
        let before = granted;
        let mut failed = None;
        source.turn(Duration::ZERO, &mut |seen| {
            if let Seen::Event(Event::Qos { event, .. }) = seen {
                match *event {
                    QosEvent::Granted(_) => granted += 1,
                    QosEvent::Refused(refusal) => failed = Some(refusal.to_string()),
                    QosEvent::Failed(failure) | QosEvent::Lost(failure) => {
                        failed = Some(format!("{failure:?}"))
                    }
                    QosEvent::Started { .. }
                    | QosEvent::Rerouted(_)
                    | QosEvent::Released
                    | QosEvent::Answer(_) => {}
                }
            }
        })?;
        if let Some(failed) = failed {
            bail!("a reservation was not granted: {failed}");
        }
        sink.turn(Duration::ZERO, &mut |_| {})?;
        if granted > before {
            progress = Instant::now();
        }
        ensure!(progress.elapsed() < PATIENCE, "{granted} of {} reservations were granted", end - first);
    }
    Ok(())
}

fn command(number: u32) -> Command {
    let port = |number| u16::try_from(FIRST_PORT + number).ok();
    let flow = Flow {
        src: Some(SOURCE.into()),
        protocol: Some(17),
        src_port: port(number / PER_PORT),
        dst_port: port(number % PER_PORT),
        ..Flow::to(SINK.into())
    };
    let request = ReserveRequest::new(flow, QosRequest::rate(RATE));
    Command::Qos { id: number.into(), command: qos::Command::Reserve(Box::new(request)) }
}
