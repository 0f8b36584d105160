//! `bench engine gateway`: the GIST-aware NAT gateway, in memory.

pub(super) mod messages;
mod world;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use signalbox_linux::memory;

use super::figures::Column;
use super::runs::{Bench, Limit, Repeats};
use world::{BATCH, Kind, MOST_FLOWS, World};

/// Options of `bench engine gateway`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
EXAMPLES:
  signalbox bench engine gateway
  signalbox bench engine gateway --sessions 100000 --runs 5 --json")]
pub struct GatewayArgs {
    /// Sessions that the gateway translates, each with a flow of its own; several values are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_FLOWS)))]
    pub sessions: Vec<u32>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its documentation would be the help text of the command")]
    pub repeats: Repeats,
}

/// Octets for each flow, with its bindings for signaling; nanoseconds of processor time for each message with all that comes of
/// it, the kernel's answers about bindings included.
const COLUMNS: &[Column] = &[
    Column::octets("bytes_per_flow", "bytes"),
    Column::ns("ns_per_query", "ns/Query"),
    Column::ns("ns_per_response", "Response"),
    Column::ns("ns_per_refresh", "refresh"),
    Column::ns("ns_per_refresh_response", "Response"),
];

const LIMITS: &[Limit] = &[Limit::flat("refreshing Query, most flows against fewest", "ns_per_refresh")];

pub(super) fn run(args: &GatewayArgs) -> Result<()> {
    let bench = Bench {
        name: "gateway-engine",
        command: ["engine", "gateway"],
        columns: COLUMNS,
        limits: LIMITS,
        options: &[],
        repeats: &args.repeats,
    };
    bench.run(&args.sessions, measure)
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds and octets of one run")]
fn measure(flows: u32) -> Result<Vec<f64>> {
    let mut world = World::new()?;
    let before = memory::resident()?;
    let mut phases = |kinds: [Kind; 2]| -> Result<Vec<f64>> {
        let mut times = [Duration::ZERO; 2];
        for first in (0..flows).step_by(BATCH as usize) {
            for (time, kind) in times.iter_mut().zip(kinds) {
                *time += world.take(kind, first, BATCH.min(flows - first))?;
            }
        }
        ensure!(world.held() >= flows, "{} bindings instead of {flows} and more", world.held());
        Ok(times.iter().map(|time| time.as_nanos() as f64 / f64::from(flows)).collect())
    };
    let new = phases([Kind::Query, Kind::Response])?;
    let bytes = memory::resident()?.saturating_sub(before) as f64 / f64::from(flows);
    let refresh = phases([Kind::Refresh, Kind::RefreshResponse])?;
    Ok([vec![bytes], new, refresh].concat())
}
