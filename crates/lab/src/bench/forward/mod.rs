//! `bench forward gist`: the daemon between two namespaces, and bare forwarders in its place.

mod bare;
pub(super) mod boomerang;
mod ends;
pub(super) mod rsvp;
pub(super) mod site;
mod source;

use std::fmt::Write as _;
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use signalbox_linux::{Io, IoConfig};

use super::{Goal, machine, print, rounded};
use ends::Recorded;
use site::{Daemon, PORT, SINK, SOURCE, Site};

/// Where a bare forwarder sends to.
const SINK_PORT: SocketAddrV4 = SocketAddrV4::new(SINK, PORT);
const RATIO_GOAL: f64 = 0.5;
/// The source and this program on one processor, what is measured on the other.
const SOURCE_PROCESSOR: usize = 0;
const MIDDLE_PROCESSOR: usize = 1;
/// More than this share of the messages missing counts as loss.
const LOSS_ALLOWED: f64 = 0.001;
/// After this time without an arrival no packet is in transit.
const SETTLE: Duration = Duration::from_millis(50);
/// A full receive buffer of 8 MB is read much sooner than this many looks take.
const SETTLE_LOOKS: usize = 100;

/// State that outlasts the measurement without neighbours to refresh it, and no rate limits: both are for networks, and this
/// is a bench.
const SETTINGS: &str = "node.protocols = [\"gist\", \"ping\"]\n[gist]\nstate_validity = \"10m\"\ninactivity = \"10m\"\n\
     message_rate = \"0/s\"\nintercept_rate = \"0/s\"\nquery_rate_per_source = \"0/s\"\n";

/// Options of `bench forward gist`.
#[derive(Debug, Clone, Args)]
pub struct ForwardArgs {
    /// Sessions whose messages are sent, in turn
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub sessions: u16,
    /// Messages per second to offer, one after the other
    #[arg(long, value_name = "N", value_delimiter = ',',
          default_values_t = [50_000, 100_000, 150_000, 200_000, 250_000, 300_000, 400_000, 600_000],
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rates: Vec<u64>,
    /// Seconds at each rate
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub seconds: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// One rate through one forwarder, in messages and seconds.
struct Step {
    offered: u64,
    sent: u64,
    arrived: u64,
    overrun: u64,
    seconds: f64,
}

/// All rates through one forwarder.
struct Lane {
    name: &'static str,
    steps: Vec<Step>,
}

pub(super) fn run(args: &ForwardArgs) -> Result<()> {
    let watch = machine::Watch::start();
    let site = Site::build()?;
    let (node, recorded) = through_node(&site, args)?;
    let bare = through_bare(&site, args, &recorded)?;
    let segmented = through_segmented(&site, args, &recorded)?;
    let size = recorded.messages.first().map_or(0, Vec::len);
    let ratio = node.best() / bare.best().max(1.0);
    let goal = Goal::at_least("node against bare forwarder", "at least 0.5", RATIO_GOAL, ratio);
    if args.json {
        let report = json!({
            "bench": "gist-forward",
            "machine": watch.describe(),
            "sessions": args.sessions,
            "message_octets": size,
            "node": node.json(),
            "bare": bare.json(),
            "bare_segmented": segmented.json(),
            "ratio": rounded(ratio),
            "ratio_segmented": rounded(node.best() / segmented.best().max(1.0)),
            "goals": [goal.json()],
        });
        print(&report.to_string());
    } else {
        print(&watch.line());
        print(&table(size, &[node, bare, segmented], &goal)?);
    }
    Ok(())
}

fn through_node(site: &Site, args: &ForwardArgs) -> Result<(Lane, Recorded)> {
    let _daemon = Daemon::start(site, SETTINGS)?;
    let recorded = ends::establish(site, args.sessions)?;
    let steps = sweep(site, args, &recorded)?;
    Ok((Lane { name: "node", steps }, recorded))
}

fn through_bare(site: &Site, args: &ForwardArgs, recorded: &Recorded) -> Result<Lane> {
    let socket = Site::socket(&site.middle, recorded.to)?;
    let steps = beside(site, args, recorded, |stop| bare::forward(&socket, SINK_PORT, stop))?;
    Ok(Lane { name: "bare", steps })
}

fn through_segmented(site: &Site, args: &ForwardArgs, recorded: &Recorded) -> Result<Lane> {
    let entries = signalbox_node::Config::default().entries();
    let config = IoConfig { entries, ipv6: false, intercept: false, ..IoConfig::default() };
    let io = site.middle.run(|| Io::open(&config))??;
    let steps = beside(site, args, recorded, |stop| bare::forward_segmented(io, SINK_PORT, stop))?;
    Ok(Lane { name: "bare, segments", steps })
}

/// Runs a forwarder on a thread of its own, bound to its processor, while the source sends.
fn beside(
    site: &Site,
    args: &ForwardArgs,
    recorded: &Recorded,
    forward: impl FnOnce(&AtomicBool) -> Result<()> + Send,
) -> Result<Vec<Step>> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let forwarder = scope.spawn(|| {
            site::pin(MIDDLE_PROCESSOR)?;
            forward(&stop)
        });
        let steps = sweep(site, args, recorded);
        stop.store(true, Ordering::Relaxed);
        forwarder.join().map_err(|_| anyhow::anyhow!("the bare forwarder panicked"))??;
        steps
    })
}

/// Sends at each rate from a thread of its own, bound to its processor, and counts what arrives.
fn sweep(site: &Site, args: &ForwardArgs, recorded: &Recorded) -> Result<Vec<Step>> {
    // The socket is not read: arrivals fill its buffer once, and the kernel counts all further ones as drops.
    let sink = Site::socket(&site.sink, (SINK, PORT).into())?;
    let source = Site::socket(&site.source, (SOURCE, PORT).into())?;
    source.connect(recorded.to).context("cannot reach the middle")?;
    let span = Duration::from_secs(args.seconds);
    let steps = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            site::pin(SOURCE_PROCESSOR)?;
            fill(site, &source, &recorded.messages)?;
            args.rates.iter().map(|rate| step(site, &source, &recorded.messages, *rate, span)).collect()
        });
        worker.join().map_err(|_| anyhow::anyhow!("the source panicked"))?
    });
    drop(sink);
    steps
}

/// Sends until the sink's buffer is full, so that every further message is counted.
fn fill(site: &Site, source: &UdpSocket, messages: &[Vec<u8>]) -> Result<()> {
    let start = site.arrived()?;
    for _ in 0..200 {
        source::send(source, messages, 20_000, Duration::from_millis(50))?;
        if site.arrived()? > start {
            return settle(|| site.arrived());
        }
    }
    anyhow::bail!("nothing reaches the sink")
}

/// Waits until no message arrives any more.
fn settle(arrived: impl Fn() -> Result<u64>) -> Result<()> {
    for _ in 0..SETTLE_LOOKS {
        let before = arrived()?;
        thread::sleep(SETTLE);
        if arrived()? == before {
            return Ok(());
        }
    }
    anyhow::bail!("messages arrive without end")
}

fn step(site: &Site, source: &UdpSocket, messages: &[Vec<u8>], rate: u64, span: Duration) -> Result<Step> {
    let (arrived, overrun) = (site.arrived()?, site.overrun()?);
    let (sent, time) = source::send(source, messages, rate, span)?;
    settle(|| site.arrived())?;
    Ok(Step {
        offered: rate,
        sent,
        arrived: site.arrived()? - arrived,
        overrun: site.overrun()? - overrun,
        seconds: time.as_secs_f64(),
    })
}

impl Step {
    fn per_second(&self) -> f64 {
        self.arrived as f64 / self.seconds
    }

    fn loss(&self) -> f64 {
        1.0 - self.arrived as f64 / self.sent.max(1) as f64
    }

    fn json(&self) -> Value {
        json!({
            "offered_per_second": self.offered,
            "sent": self.sent,
            "arrived": self.arrived,
            "arrived_per_second": self.per_second().round(),
            "loss": rounded(self.loss()),
            "middle_overrun": self.overrun,
        })
    }
}

impl Lane {
    /// Most messages per second that arrived at any rate.
    fn best(&self) -> f64 {
        self.steps.iter().map(Step::per_second).fold(0.0, f64::max)
    }

    /// Most messages per second without loss.
    fn lossless(&self) -> f64 {
        let without = self.steps.iter().filter(|step| step.loss() <= LOSS_ALLOWED);
        without.map(Step::per_second).fold(0.0, f64::max)
    }

    fn json(&self) -> Value {
        json!({
            "messages_per_second": self.best().round(),
            "messages_per_second_without_loss": self.lossless().round(),
            "steps": self.steps.iter().map(Step::json).collect::<Vec<_>>(),
        })
    }
}

fn table(size: usize, lanes: &[Lane], goal: &Goal) -> Result<String> {
    let mut text = format!("messages of {size} octets, one processor for what is measured\n\n");
    writeln!(
        text,
        "{:<14} {:>10} {:>10} {:>10} {:>12} {:>7}",
        "", "offered/s", "sent", "arrived", "arrived/s", "loss"
    )?;
    for lane in lanes {
        for step in &lane.steps {
            writeln!(
                text,
                "{:<14} {:>10} {:>10} {:>10} {:>12.0} {:>6.2}%",
                lane.name,
                step.offered,
                step.sent,
                step.arrived,
                step.per_second(),
                step.loss() * 100.0
            )?;
        }
    }
    for lane in lanes {
        write!(
            text,
            "\n{}: at most {:.0} messages/s, {:.0} without loss",
            lane.name,
            lane.best(),
            lane.lossless()
        )?;
    }
    write!(text, "\n{goal}")?;
    Ok(text)
}
