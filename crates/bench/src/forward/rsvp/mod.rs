//! `bench forward rsvp`: the daemon as an RSVP router between two namespaces, and a forwarder without any protocol in
//! its place.

mod ends;
mod latency;
pub(in super::super) mod neighbor;
mod steps;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use signalbox_lab::machine::Watch;
use signalbox_linux::process::{Scheduling, Usage};
use signalbox_linux::{Batch, Io};

use super::super::judged::{Judged, faster, nothing, sooner};
use super::super::{Goal, machine, median, rounded};
use super::set_ups::MEASURABLE;
use super::site::{self, Daemon, MIDDLE_LINKS, SOURCE, Site};
use super::{MIDDLE_PROCESSOR, arrivals, on_source};
use ends::{Ends, MAX_DESTINATIONS, REFRESH};
use latency::{PACES, PERCENTILES, Times};
use steps::{Step, Used};

const NODE: &str = "node";
const PATIENCE: Duration = Duration::from_millis(20);
const RATIO_GOAL: f64 = 0.7;
const LATENCY_GOAL: f64 = 1.3;
const OCTETS_GOAL: f64 = 350.0;
/// Sessions that are set up before the clock starts, so that what is made once does not count.
const WARM_UP: u32 = 64;

/// Options of `bench forward rsvp`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
EXAMPLES:
  signalbox bench forward rsvp
  signalbox bench forward rsvp --sessions 100000 --refresh-reduction --runs 1 --json
  signalbox bench forward rsvp --fill 10000,60000,1000000 --runs 1
  signalbox bench forward rsvp --unpinned")]
pub struct RsvpForwardArgs {
    /// Sessions to set up
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub sessions: u32,
    /// Numbers of sessions up to which the table fills, with the figures of each step; instead of --sessions
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with = "sessions", value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub fill: Vec<u32>,
    /// Addresses that the flows go to; flows to one address have different ports
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(32..=i64::from(MAX_DESTINATIONS)))]
    pub destinations: u32,
    /// Set-ups that may be under way at a time
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub window: u32,
    /// Set-ups whose latency is measured: so many one after the other, and so many one each millisecond
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub timed: u32,
    /// How often to repeat, the daemon and the forwarder in turn; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of refreshes to measure afterwards, after 30 s without measuring; R = 30 s
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub refresh: u64,
    /// Let the kernel enforce the reservations
    #[arg(long)]
    pub enforce: bool,
    /// Use refresh reduction (RFC 2961) between the daemon and its neighbors; the forwarder's have none
    #[arg(long)]
    pub refresh_reduction: bool,
    /// Bind nothing to a processor; without it what is measured has one, and its neighbors another
    #[arg(long)]
    pub unpinned: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

impl RsvpForwardArgs {
    /// The numbers of sessions up to which the table fills.
    fn steps(&self) -> Result<Vec<u32>> {
        let steps = if self.fill.is_empty() { vec![self.sessions] } else { self.fill.clone() };
        ensure!(
            steps.is_sorted_by(|one, next| one < next),
            "--fill: each number has to be larger than the one before"
        );
        Ok(steps)
    }

    /// All sessions of the table.
    fn sessions(&self) -> u32 {
        self.fill.last().copied().unwrap_or(self.sessions)
    }
}

/// The figures of one run through the daemon or the forwarder.
#[derive(Default)]
struct Run {
    steps: Vec<Step>,
    /// Microseconds, for each pace.
    latencies: Vec<Times>,
    /// Set-ups per second, microseconds of processor time for each, and resident octets for each session, all steps together.
    rate: f64,
    processor: f64,
    octets: f64,
    /// The share of a processor that refreshes take; of the daemon only, as what follows.
    refresh: f64,
    /// Seconds that a list of all sessions and the end of the daemon take, and octets of memory for each session that the
    /// list takes at most.
    show: f64,
    show_octets: f64,
    end: f64,
}

impl Run {
    /// A run with these steps.
    fn of(steps: Vec<Step>, latencies: Vec<Times>) -> Self {
        let sessions = steps.last().map_or(0, |step| step.sessions);
        let mut from = 0;
        let (mut time, mut processor, mut octets) = (0.0, 0.0, 0.0);
        for step in &steps {
            let count = f64::from(step.sessions - from);
            time += count / step.rate;
            processor += count * step.processor;
            octets += count * step.octets;
            from = step.sessions;
        }
        let count = f64::from(sessions);
        Self {
            rate: count / time,
            processor: processor / count,
            octets: octets / count,
            steps,
            latencies,
            ..Self::default()
        }
    }
}

/// All runs through one of both.
struct Lane {
    name: &'static str,
    runs: Vec<Run>,
}

pub(in super::super) fn run(args: &RsvpForwardArgs) -> Result<()> {
    let (steps, sessions) = (args.steps()?, args.sessions());
    let total = sessions + WARM_UP + 2 * args.timed;
    let ports = total.div_ceil(args.destinations);
    ensure!(ports <= 60_000, "too many sessions for one port each: use more --destinations");
    if args.unpinned {
        site::leave_unpinned();
    }
    let watch = Watch::start();
    let site = Site::build()?;
    let mut lanes = [Lane { name: NODE, runs: Vec::new() }, Lane { name: "bare", runs: Vec::new() }];
    for _ in 0..args.runs {
        let [node, bare] = &mut lanes;
        node.runs.push(through_node(&site, args, &steps, total)?);
        bare.runs.push(through_bare(&site, args, &steps)?);
    }
    let [node, bare] = &lanes;
    let rates = |lane: &Lane| -> Vec<f64> {
        (0..steps.len()).map(|at| steps::figure(&lane.runs, at, |step| step.rate)).collect()
    };
    let compared: Vec<(f64, f64)> = rates(node).into_iter().zip(rates(bare)).collect();
    let ratio = compared.iter().map(|(node, bare)| node / bare.max(1.0)).fold(f64::INFINITY, f64::min);
    let mut goals = vec![Goal::at_least(
        "set-ups against bare forwarder, at each step",
        "at least 0.7",
        RATIO_GOAL,
        ratio,
    )];
    let mut faults: Vec<String> =
        compared.iter().filter_map(|(node, bare)| faster("node", *node, *bare)).collect();
    for (at, pace) in PACES.iter().enumerate() {
        let [time, bare] = [node, bare].map(|lane| latency::percentile(&lane.runs, at, 0, 50));
        faults.extend(sooner(pace.name, time, bare));
        let ratio = time / bare.max(0.001);
        goals.push(Goal::at_most(pace.name, "at most 1.3 times the bare forwarder's", LATENCY_GOAL, ratio));
    }
    let octets = median(node.runs.iter().map(|run| run.octets));
    goals.push(Goal::at_most("resident octets per session", "at most 350", OCTETS_GOAL, octets));
    goals.extend(refresh_goal(args, node));
    faults.extend(nothing("node", octets).filter(|_| sessions >= MEASURABLE));
    let figures = json!({
        "sessions": sessions,
        "pinned": !args.unpinned,
        "destinations": args.destinations,
        "enforced": args.enforce,
        "refresh_reduction": args.refresh_reduction,
        "node": node.json(),
        "bare": bare.json(),
    });
    let text = table(args, &lanes)?;
    Judged::new("rsvp-forward", &watch, goals, faults).print(args.json, &figures, &text)
}

/// The greatest share of a processor that refreshes of this number of sessions may take; `None`: there is no goal for this number.
fn refresh_goal(args: &RsvpForwardArgs, node: &Lane) -> Option<Goal> {
    let percent = median(node.runs.iter().map(|run| run.refresh)) * 100.0;
    let name = "refreshes, percent of a processor";
    match (args.refresh, args.sessions(), args.refresh_reduction) {
        (0, ..) => None,
        (_, 1_000_000.., true) => {
            Some(Goal::at_most(name, "at most 10 for 1,000,000 sessions", 10.0, percent))
        }
        (_, 60_000..1_000_000, _) => Some(Goal::at_most(name, "at most 3 for 60,000 sessions", 3.0, percent)),
        _ => None,
    }
}

/// A router without limits of rates and numbers, and one source that may have everything.
fn settings(args: &RsvpForwardArgs, total: u32) -> String {
    let mode = if args.enforce { "required" } else { "off" };
    // The last quarter of a table is for sources that hold little; all is of one source here.
    let room = total.saturating_mul(2);
    format!(
        "node.protocols = [\"rsvp\"]\n[rsvp]\nmax_sessions = {room}\nmax_senders = {room}\nmax_reservations = {room}\n\
         max_message_ids = {}\nmax_senders_per_session = 1024\n[rsvp.refresh_reduction]\nenabled = {}\n[admission]\nmax_reservations = {room}\n\
         [policy]\ndefault = \"allow\"\n[enforcement]\nmode = \"{mode}\"\n{MIDDLE_LINKS}",
        // A session has two of each kind: those of its Path and of its Resv.
        room.saturating_mul(2),
        args.refresh_reduction
    )
}

fn through_node(site: &Site, args: &RsvpForwardArgs, steps: &[u32], total: u32) -> Result<Run> {
    let daemon = Daemon::start(site, &settings(args, total))?;
    let process = daemon.process()?;
    let usage = || Usage::of(&process).context("the daemon has ended");
    let used = || Ok(Used::from((usage()?, Scheduling::of(&process)?)));
    let sessions = args.sessions();
    let mut run = on_source(|| {
        let mut ends = Ends::open(site, args.destinations, args.refresh_reduction)?;
        ends.set_up(sessions, sessions + WARM_UP, args.window)?;
        let steps = steps::fill(&mut ends, steps, args.window, used)?;
        let mut run = Run::of(steps, latency::measure(&mut ends, sessions + WARM_UP, args.timed)?);
        if args.refresh > 0 {
            // The daemon's own refreshes begin half a period after the set-up.
            ends.refresh(sessions, REFRESH)?;
            let (before, span) = (usage()?, Duration::from_secs(args.refresh));
            ends.refresh(sessions, span)?;
            run.refresh = (usage()?.cpu - before.cpu).as_secs_f64() / span.as_secs_f64();
        }
        Ok(run)
    })?;
    let (before, start) = (usage()?.memory, Instant::now());
    let shown = daemon.rsvp_sessions()?;
    ensure!(shown >= usize::try_from(sessions)?, "{shown} of {sessions} sessions were shown");
    run.show = start.elapsed().as_secs_f64();
    run.show_octets = daemon.peak()?.saturating_sub(before) as f64 / f64::from(sessions);
    let start = Instant::now();
    daemon.end()?;
    run.end = start.elapsed().as_secs_f64();
    Ok(run)
}

/// The same messages through the daemon's own sockets, without any protocol: each is sent on as it came.
fn through_bare(site: &Site, args: &RsvpForwardArgs, steps: &[u32]) -> Result<Run> {
    let io = ends::open(&site.middle)?;
    let stop = AtomicBool::new(false);
    // Nanoseconds of processor time, which another thread can ask for at any moment.
    let used = std::sync::atomic::AtomicU64::new(0);
    thread::scope(|scope| {
        let forwarder = scope.spawn(|| {
            site::pin(MIDDLE_PROCESSOR)?;
            forward(io, &stop, &used)
        });
        let run = on_source(|| {
            let mut ends = Ends::open(site, args.destinations, false)?;
            let sessions = args.sessions();
            ends.set_up(sessions, sessions + WARM_UP, args.window)?;
            let used = || {
                let cpu = Duration::from_nanos(used.load(Ordering::Relaxed));
                Ok(Used { cpu, ..Used::default() })
            };
            let steps = steps::fill(&mut ends, steps, args.window, used)?;
            Ok(Run::of(steps, latency::measure(&mut ends, sessions + WARM_UP, args.timed)?))
        });
        stop.store(true, Ordering::Relaxed);
        forwarder.join().map_err(|_| anyhow::anyhow!("the bare forwarder panicked"))??;
        run
    })
}

fn forward(mut io: Io, stop: &AtomicBool, used: &std::sync::atomic::AtomicU64) -> Result<()> {
    let mut batch = Batch::new();
    while !stop.load(Ordering::Relaxed) {
        arrivals(&mut io, &mut batch, PATIENCE)?;
        for received in batch.iter() {
            let (src, dst) = (received.src.ip(), received.dst.ip());
            // A Resv is addressed to the router.
            if received.options.is_empty() {
                io.send(&ends::packet(dst, SOURCE.into(), &[], received.payload));
            } else {
                io.send(&ends::packet(src, dst, received.options, received.payload));
            }
        }
        io.flush();
        let time = u64::try_from(machine::processor_time()?.as_nanos())?;
        used.store(time, Ordering::Relaxed);
    }
    Ok(())
}

impl Lane {
    fn rate(&self) -> f64 {
        median(self.runs.iter().map(|run| run.rate))
    }

    fn json(&self) -> Value {
        let of = |figure: fn(&Run) -> f64| {
            let all: Vec<f64> = self.runs.iter().map(|run| rounded(figure(run))).collect();
            json!({"median": rounded(median(all.iter().copied())), "runs": all})
        };
        let mut report = json!({
            "set_ups_per_second": of(|run| run.rate),
            "processor_us_per_set_up": of(|run| run.processor),
            "octets_per_session": of(|run| run.octets),
            "refresh_processor_share": of(|run| run.refresh),
            "show_seconds": of(|run| run.show),
            "show_octets_per_session": of(|run| run.show_octets),
            "end_seconds": of(|run| run.end),
        });
        report["steps"] = steps::json(&self.runs, self.name == NODE);
        for (key, percentiles) in latency::json(&self.runs) {
            report[key] = percentiles;
        }
        report
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn table(args: &RsvpForwardArgs, lanes: &[Lane]) -> Result<String> {
    let bound =
        if args.unpinned { "nothing bound to a processor" } else { "one processor for what is measured" };
    let mut text = format!(
        "{} sessions to {} addresses, {bound}; medians of {} runs; latencies in µs: p50/p90/p99\n\n",
        args.sessions(),
        args.destinations,
        args.runs
    );
    write!(text, "{:<6} {:>10} {:>10}", "", "set-ups/s", "µs each")?;
    for pace in PACES {
        for of in ["Path", "Resv"] {
            write!(text, " {:>16}", format!("{of}{}", pace.head))?;
        }
    }
    text.push('\n');
    for lane in lanes {
        let processor = median(lane.runs.iter().map(|run| run.processor));
        write!(text, "{:<6} {:>10.0} {:>10.1}", lane.name, lane.rate(), processor)?;
        for (pace, of) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let [p50, p90, p99] =
                PERCENTILES.map(|percent| latency::percentile(&lane.runs, pace, of, percent));
            write!(text, " {:>16}", format!("{p50:.0}/{p90:.0}/{p99:.0}"))?;
        }
        text.push('\n');
    }
    write!(
        text,
        "\n{:<6} {:>10} {:>10} {:>10} {:>12} {:>14} {:>16}\n",
        "", "up to", "set-ups/s", "µs each", "octets each", "µs of waiting", "switches each"
    )?;
    for lane in lanes {
        for (at, sessions) in args.steps()?.into_iter().enumerate() {
            let of = |figure: fn(&Step) -> f64| steps::figure(&lane.runs, at, figure);
            write!(
                text,
                "{:<6} {sessions:>10} {:>10.0} {:>10.1}",
                lane.name,
                of(|step| step.rate),
                of(|step| step.processor)
            )?;
            // They are those of a process, and the forwarder is a thread of this program.
            if lane.name == NODE {
                let (octets, waiting) = (of(|step| step.octets), of(|step| step.waiting));
                write!(text, " {octets:>12.0} {waiting:>14.2} {:>16.3}", of(|step| step.switches))?;
            }
            text.push('\n');
        }
    }
    if let Some(node) = lanes.first() {
        if args.refresh > 0 {
            let share = median(node.runs.iter().map(|run| run.refresh));
            writeln!(text, "\nrefreshes of all sessions each 30 s: {:.2} % of a processor", share * 100.0)?;
        }
        let of = |figure: fn(&Run) -> f64| median(node.runs.iter().map(figure));
        let (show, octets, end) = (of(|run| run.show), of(|run| run.show_octets), of(|run| run.end));
        writeln!(
            text,
            "a list of all sessions: {show:.2} s, at most {octets:.1} octets for each; end: {end:.2} s"
        )?;
        for run in &node.runs {
            writeln!(text, "run: {:.0} set-ups/s, {:.0} octets per session", run.rate, run.octets)?;
        }
    }
    Ok(text.trim_end().to_owned())
}
