//! `bench forward rsvp`: the daemon as an RSVP router between two namespaces, and a forwarder without any protocol in
//! its place.

mod ends;
pub(in super::super) mod neighbor;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use signalbox_lab::machine::Watch;
use signalbox_linux::process::Usage;
use signalbox_linux::{Batch, Io};

use super::super::judged::{Judged, faster, nothing, sooner};
use super::super::{Goal, machine, median, rounded};
use super::set_ups::MEASURABLE;
use super::site::{self, Daemon, MIDDLE_LINKS, SOURCE, Site};
use super::{MIDDLE_PROCESSOR, arrivals, on_source};
use ends::{Ends, MAX_DESTINATIONS, REFRESH};

const PATIENCE: Duration = Duration::from_millis(20);
const RATIO_GOAL: f64 = 0.7;
const LATENCY_GOAL: f64 = 1.3;
const OCTETS_GOAL: f64 = 350.0;
/// Sessions that are set up before the clock starts, so that what is made once does not count.
const WARM_UP: u32 = 64;
/// The pauses between two set-ups whose latency is measured.
const GAPS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1)];

/// Options of `bench forward rsvp`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
EXAMPLES:
  signalbox bench forward rsvp
  signalbox bench forward rsvp --sessions 100000 --refresh-reduction --runs 1 --json")]
pub struct RsvpForwardArgs {
    /// Sessions to set up
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub sessions: u32,
    /// Addresses that the flows go to; flows to one address have different ports
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(32..=i64::from(MAX_DESTINATIONS)))]
    pub destinations: u32,
    /// Set-ups that may be under way at a time
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub window: u32,
    /// Set-ups whose latency is measured, one at a time, for each gap
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
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// The figures of one run through the daemon or the forwarder.
#[derive(Default)]
struct Run {
    /// Set-ups per second.
    rate: f64,
    /// Microseconds of processor time for each set-up.
    processor: f64,
    /// For each gap: the microseconds of Paths and of Resvs, sorted.
    latencies: Vec<[Vec<f64>; 2]>,
    /// Resident octets for each session, and the share of a processor that refreshes take; of the daemon only.
    octets: f64,
    refresh: f64,
    /// Seconds that a list of all sessions and the end of the daemon take, and octets of memory for each session that the
    /// list takes at most.
    show: f64,
    show_octets: f64,
    end: f64,
}

/// All runs through one of both.
struct Lane {
    name: &'static str,
    runs: Vec<Run>,
}

pub(in super::super) fn run(args: &RsvpForwardArgs) -> Result<()> {
    let total = args.sessions + WARM_UP + 2 * args.timed;
    let ports = total.div_ceil(args.destinations);
    ensure!(ports <= 60_000, "too many sessions for one port each: use more --destinations");
    let watch = Watch::start();
    let site = Site::build()?;
    let mut lanes = [Lane { name: "node", runs: Vec::new() }, Lane { name: "bare", runs: Vec::new() }];
    for _ in 0..args.runs {
        let [node, bare] = &mut lanes;
        node.runs.push(through_node(&site, args, total)?);
        bare.runs.push(through_bare(&site, args)?);
    }
    let [node, bare] = &lanes;
    let mut goals = vec![Goal::at_least(
        "set-ups against bare forwarder",
        "at least 0.7",
        RATIO_GOAL,
        node.rate() / bare.rate().max(1.0),
    )];
    let mut faults: Vec<String> = faster("node", node.rate(), bare.rate()).into_iter().collect();
    for (at, name) in
        ["latency of Path, back to back", "latency of Path, gaps of 1 ms"].into_iter().enumerate()
    {
        let [time, bare] = [node, bare].map(|lane| lane.latency(at, 0, 50));
        faults.extend(sooner(name, time, bare));
        let ratio = time / bare.max(0.001);
        goals.push(Goal::at_most(name, "at most 1.3 times the bare forwarder's", LATENCY_GOAL, ratio));
    }
    let octets = median(node.runs.iter().map(|run| run.octets));
    goals.push(Goal::at_most("resident octets per session", "at most 350", OCTETS_GOAL, octets));
    goals.extend(refresh_goal(args, node));
    faults.extend(nothing("node", octets).filter(|_| args.sessions >= MEASURABLE));
    let figures = json!({
        "sessions": args.sessions,
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
    match (args.refresh, args.sessions, args.refresh_reduction) {
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

fn through_node(site: &Site, args: &RsvpForwardArgs, total: u32) -> Result<Run> {
    let daemon = Daemon::start(site, &settings(args, total))?;
    let process = daemon.process()?;
    let usage = || Usage::of(&process).context("the daemon has ended");
    let mut run = on_source(|| {
        let mut ends = Ends::open(site, args.destinations, args.refresh_reduction)?;
        ends.set_up(args.sessions, args.sessions + WARM_UP, args.window)?;
        let (before, start) = (usage()?, Instant::now());
        ends.set_up(0, args.sessions, args.window)?;
        let (time, after) = (start.elapsed(), usage()?);
        let latencies = latencies(&mut ends, args)?;
        let refresh = if args.refresh > 0 {
            // The daemon's own refreshes begin half a period after the set-up.
            ends.refresh(args.sessions, REFRESH)?;
            let (before, span) = (usage()?, Duration::from_secs(args.refresh));
            ends.refresh(args.sessions, span)?;
            (usage()?.cpu - before.cpu).as_secs_f64() / span.as_secs_f64()
        } else {
            0.0
        };
        let sessions = f64::from(args.sessions);
        Ok(Run {
            rate: sessions / time.as_secs_f64(),
            processor: micros(after.cpu - before.cpu) / sessions,
            latencies,
            octets: after.memory.saturating_sub(before.memory) as f64 / sessions,
            refresh,
            ..Run::default()
        })
    })?;
    let (before, start) = (usage()?.memory, Instant::now());
    let shown = daemon.rsvp_sessions()?;
    ensure!(shown >= usize::try_from(args.sessions)?, "{shown} of {} sessions were shown", args.sessions);
    run.show = start.elapsed().as_secs_f64();
    run.show_octets = daemon.peak()?.saturating_sub(before) as f64 / f64::from(args.sessions);
    let start = Instant::now();
    daemon.end()?;
    run.end = start.elapsed().as_secs_f64();
    Ok(run)
}

/// The same messages through the daemon's own sockets, without any protocol: each is sent on as it came.
fn through_bare(site: &Site, args: &RsvpForwardArgs) -> Result<Run> {
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
            ends.set_up(args.sessions, args.sessions + WARM_UP, args.window)?;
            let (before, start) = (used.load(Ordering::Relaxed), Instant::now());
            ends.set_up(0, args.sessions, args.window)?;
            let time = start.elapsed();
            let processor = Duration::from_nanos(used.load(Ordering::Relaxed) - before);
            let latencies = latencies(&mut ends, args)?;
            let sessions = f64::from(args.sessions);
            let rate = sessions / time.as_secs_f64();
            Ok(Run { rate, processor: micros(processor) / sessions, latencies, ..Run::default() })
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

/// Times new sessions, one at a time, with each gap.
fn latencies(ends: &mut Ends, args: &RsvpForwardArgs) -> Result<Vec<[Vec<f64>; 2]>> {
    let mut next = args.sessions + WARM_UP;
    let mut all = Vec::new();
    for gap in GAPS {
        let (mut paths, mut resvs) = (Vec::new(), Vec::new());
        for _ in 0..args.timed {
            let (path, resv) = ends.time(next)?;
            next += 1;
            paths.push(micros(path));
            resvs.push(micros(resv));
            if !gap.is_zero() {
                thread::sleep(gap);
            }
        }
        for times in [&mut paths, &mut resvs] {
            times.sort_by(f64::total_cmp);
        }
        all.push([paths, resvs]);
    }
    Ok(all)
}

impl Lane {
    fn rate(&self) -> f64 {
        median(self.runs.iter().map(|run| run.rate))
    }

    /// The median of the runs of a percentile of Paths (0) or Resvs (1).
    fn latency(&self, gap: usize, of: usize, percent: usize) -> f64 {
        let times = self.runs.iter().filter_map(|run| run.latencies.get(gap)?.get(of));
        median(times.filter_map(|times| times.get(times.len().saturating_sub(1) * percent / 100).copied()))
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
        for (gap, name) in ["back_to_back", "gaps_of_1_ms"].into_iter().enumerate() {
            let quantiles = |of| json!({"p50": rounded(self.latency(gap, of, 50)), "p99": rounded(self.latency(gap, of, 99))});
            report[name] = json!({"path_us": quantiles(0), "resv_us": quantiles(1)});
        }
        report
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn table(args: &RsvpForwardArgs, lanes: &[Lane]) -> Result<String> {
    let mut text = format!(
        "{} sessions to {} addresses, one processor for what is measured; medians of {} runs; latencies in µs: p50/p99\n\n",
        args.sessions, args.destinations, args.runs
    );
    writeln!(
        text,
        "{:<6} {:>10} {:>10} {:>13} {:>13} {:>13} {:>13}",
        "", "set-ups/s", "µs each", "Path", "Resv", "Path, 1 ms", "Resv, 1 ms"
    )?;
    for lane in lanes {
        let processor = median(lane.runs.iter().map(|run| run.processor));
        write!(text, "{:<6} {:>10.0} {:>10.1}", lane.name, lane.rate(), processor)?;
        for (gap, of) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let quantiles = format!("{:.0}/{:.0}", lane.latency(gap, of, 50), lane.latency(gap, of, 99));
            write!(text, " {quantiles:>13}")?;
        }
        text.push('\n');
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
