//! `bench engine casp`: a router with CASP in memory, between two nodes that are connected over TCP.

pub(super) mod qos;
mod reservations;
mod world;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use signalbox_linux::memory;

use super::figures::Column;
use super::runs::{Bench, Limit, Repeats};
use world::{BATCH, Kind, World};

const MAX_SESSIONS: u32 = 10_000_000;

/// Options of `bench engine casp`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
EXAMPLES:
  signalbox bench engine casp
  signalbox bench engine casp --sessions 10000 --runs 5 --json")]
pub struct CaspArgs {
    /// Sessions that the router holds; several values are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSIONS)))]
    pub sessions: Vec<u32>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its documentation would be the help text of the command")]
    pub repeats: Repeats,
}

/// Octets for each session, table and index included; nanoseconds of processor time for each message, from the octets of one
/// connection to those of the other one.
const COLUMNS: &[Column] = &[
    Column::octets("bytes_per_session", "bytes"),
    Column::ns("ns_per_set_up", "ns/set-up"),
    Column::ns("ns_per_message", "message"),
    Column::ns("ns_per_answer", "answer"),
    Column::ns("ns_per_refresh", "refresh"),
    Column::ns("ns_per_own_refresh", "own refresh"),
    Column::ns("ns_per_tear_down", "tear-down"),
];

/// CASP-P-30: the memory of a session; the paper has 160 to 384 octets and a page for each thread.
const LIMITS: &[Limit] = &[
    Limit {
        name: "octets of a session",
        key: "bytes_per_session",
        wanted: "at most 200",
        limit: 200.0,
        growth: false,
    },
    Limit::flat("message, most sessions against fewest", "ns_per_message"),
];

pub(super) fn run(args: &CaspArgs) -> Result<()> {
    let bench = Bench {
        name: "casp-engine",
        command: ["engine", "casp"],
        columns: COLUMNS,
        limits: LIMITS,
        options: &[],
        repeats: &args.repeats,
    };
    bench.run(&args.sessions, measure)
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds and octets of one run")]
fn measure(sessions: u32) -> Result<Vec<f64>> {
    let mut world = World::new(sessions)?;
    // One session is made and torn down first: what is allocated once does not count for a session.
    for kind in [Kind::SetUp, Kind::Answer, Kind::TearDown] {
        world.take(kind, 0, 1)?;
    }
    let before = memory::resident()?;
    let each = |time: Duration| time.as_nanos() as f64 / f64::from(sessions);
    let phase = |world: &mut World, kind| -> Result<f64> {
        let mut time = Duration::ZERO;
        for first in (0..sessions).step_by(BATCH as usize) {
            time += world.take(kind, first, BATCH.min(sessions - first))?;
        }
        let held = if kind == Kind::TearDown { 0 } else { sessions };
        ensure!(world.held() == held, "{} sessions instead of {held}", world.held());
        Ok(each(time))
    };
    let set_up = phase(&mut world, Kind::SetUp)?;
    let bytes = memory::resident()?.saturating_sub(before) as f64 / f64::from(sessions);
    let message = phase(&mut world, Kind::Data)?;
    let answer = phase(&mut world, Kind::Answer)?;
    let refresh = phase(&mut world, Kind::Refresh)?;
    let own = each(world.own_refreshes(sessions)?);
    let tear_down = phase(&mut world, Kind::TearDown)?;
    Ok(vec![bytes, set_up, message, answer, refresh, own, tear_down])
}
