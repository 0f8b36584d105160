//! `bench forward gist`: the daemon between two namespaces, and bare programs in its place.

mod bare;
mod data;
mod handshakes;
mod latency;
pub(in super::super) mod load;
mod pair;
pub(super) mod recorded;
mod source;
mod streams;

use std::fmt::Write as _;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Map, json};
use signalbox_lab::machine::Watch;

use super::super::Goal;
use super::super::figures::{Column, Row, table};
use super::super::judged::Judged;
use super::site::Site;

/// State that outlasts the measurement without neighbors to refresh it, and no rate limits: both are for networks, and this
/// is a bench.
const SETTINGS: &str = "node.protocols = [\"gist\", \"ping\"]\nnode.families = [\"ipv4\"]\n[gist]\n\
     state_validity = \"10m\"\ninactivity = \"10m\"\nmessage_rate = \"0/s\"\nintercept_rate = \"0/s\"\n\
     query_rate_per_source = \"0/s\"\nmax_sessions = 4000000\nmax_sessions_per_source = 0\n";

const HELP: &str = "\
A Ping crosses two handshakes of the daemon: one with the source and one with the sink. Where nodes of this program \
offer the load, the rows without a daemon show what they can offer.

EXAMPLES:
  signalbox bench forward gist --parts data --sessions 100000
  signalbox bench forward gist --parts latency --settings 'io.busy_poll = \"200us\"' --json";

/// Options of `bench forward gist`.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct ForwardArgs {
    /// What to measure; without it, everything
    #[arg(long, value_name = "PART", value_delimiter = ',', value_enum)]
    pub parts: Vec<Part>,
    /// Sessions whose messages are sent in datagrams, in turn
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub sessions: u32,
    /// Messages per second to offer in datagrams, one after the other
    #[arg(long, value_name = "N", value_delimiter = ',',
          default_values_t = [50_000, 100_000, 150_000, 200_000, 250_000, 300_000, 400_000, 600_000],
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rates: Vec<u64>,
    /// Seconds at each rate
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub seconds: u64,
    /// Transports of associations to measure; SCTP on request only: the daemon's own can be too slow for any of the rates
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum, default_values_t = [Transport::Tcp, Transport::Tls])]
    pub transports: Vec<Transport>,
    /// Sessions to set up, to count handshakes
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub set_ups: u32,
    /// Handshakes whose latency is measured, one at a time, for each gap
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub timed: u32,
    /// How often to repeat, all lanes in turn; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// A line of the daemon's configuration, such as: io.busy_poll = "200us"
    #[arg(long, value_name = "LINE")]
    pub settings: Vec<String>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Data messages in datagrams at rising rates
    Data,
    /// Messages over associations
    Streams,
    /// New sessions, one after the other
    Handshakes,
    /// Times from Query to Response and from Response to Confirm
    Latency,
}

/// What associations run over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// TCP alone
    Tcp,
    /// TLS over TCP
    Tls,
    /// SCTP: the kernel's, or that of the daemon
    Sctp,
}

/// What a part measured.
struct Measured {
    name: &'static str,
    /// What the figures are about, in words.
    about: String,
    columns: &'static [Column],
    rows: Vec<Row>,
    goals: Vec<Goal>,
    /// Figures that cannot be.
    faults: Vec<String>,
}

impl ForwardArgs {
    /// The settings of the daemon: lines for its top, and then these.
    fn daemon(&self, settings: &str) -> String {
        let mut lines: String = self.settings.iter().map(|line| format!("{line}\n")).collect();
        lines.push_str(settings);
        lines
    }
}

pub(in super::super) fn run(args: &ForwardArgs) -> Result<()> {
    let watch = Watch::start();
    let site = Site::build()?;
    let wanted = |part| args.parts.is_empty() || args.parts.contains(&part);
    let mut all = Vec::new();
    let mut steps = None;
    if wanted(Part::Data) {
        let (measured, lanes) = data::measure(&site, args)?;
        all.push(measured);
        steps = Some(lanes);
    }
    if wanted(Part::Streams) {
        all.push(streams::measure(&site, args)?);
    }
    if wanted(Part::Handshakes) {
        all.push(handshakes::measure(&site, args)?);
    }
    if wanted(Part::Latency) {
        all.push(latency::measure(&site, args)?);
    }
    let mut figures = json!({"repeated": args.runs, "sessions": args.sessions, "settings": args.settings});
    let mut text = String::new();
    for part in &all {
        let rows: Map<_, _> =
            part.rows.iter().map(|row| (row.name.clone(), row.json(part.columns).into())).collect();
        figures[part.name] = json!({"about": part.about, "lanes": rows});
        write!(text, "\n{}: {}\n\n", part.name, part.about)?;
        if let Some(lanes) = steps.as_ref().filter(|_| part.name == data::NAME) {
            figures[part.name]["last_steps"] = data::json(lanes);
            writeln!(text, "{}", data::text(lanes)?)?;
        }
        writeln!(text, "{}", table("", part.columns, &part.rows)?)?;
    }
    let (mut goals, mut faults) = (Vec::new(), Vec::new());
    for part in all {
        goals.extend(part.goals);
        faults.extend(part.faults);
    }
    Judged::new("gist-forward", &watch, goals, faults).print(args.json, &figures, text.trim_end())
}
