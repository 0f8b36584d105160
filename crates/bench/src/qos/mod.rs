//! `bench engine qos`: a router with the QoS application, in memory.

mod world;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use signalbox_linux::memory;

use super::figures::Column;
use super::runs::{Bench, Limit, Repeats};
use world::{BATCH, Kind, World};

const MAX_SESSIONS: u32 = 10_000_000;

/// Options of `bench engine qos`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
EXAMPLES:
  signalbox bench engine qos --sessions 100000
  signalbox bench engine qos --sessions 10000,1000000 --runs 5 --json")]
pub struct QosArgs {
    /// Sessions that the router holds; several values are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSIONS)))]
    pub sessions: Vec<u32>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its documentation would be the help text of the command")]
    pub repeats: Repeats,
}

/// Octets for each session, with its reservation in admission control; nanoseconds of processor time for each message with
/// all that comes of it: the route, admission, the message that goes on, and GIST's reports of it. The own refresh is what
/// the timer of a session does once in a refresh period.
const COLUMNS: &[Column] = &[
    Column::octets("bytes_per_session", "bytes"),
    Column::ns("ns_per_reserve", "ns/RESERVE"),
    Column::ns("ns_per_response", "RESPONSE"),
    Column::ns("ns_per_refresh", "refresh"),
    Column::ns("ns_per_own_refresh", "own refresh"),
    Column::ns("ns_per_tear", "tear"),
    Column::ns("ns_per_tear_response", "RESPONSE"),
];

const LIMITS: &[Limit] = &[Limit::flat("RESERVE, most sessions against fewest", "ns_per_reserve")];

pub(super) fn run(args: &QosArgs) -> Result<()> {
    let bench = Bench {
        name: "qos-engine",
        command: ["engine", "qos"],
        columns: COLUMNS,
        limits: LIMITS,
        options: &[],
        repeats: &args.repeats,
    };
    bench.run(&args.sessions, measure)
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds and octets of one run")]
fn measure(sessions: u32) -> Result<Vec<f64>> {
    // A session of its own is made and ended first: what is allocated once does not count for a session.
    let mut world = World::new(sessions)?;
    let before = memory::resident()?;
    let each = |time: Duration| time.as_nanos() as f64 / f64::from(sessions);
    let phase = |world: &mut World, kinds: &[Kind], held: u32| -> Result<Vec<f64>> {
        let mut times = vec![Duration::ZERO; kinds.len()];
        for first in (0..sessions).step_by(BATCH as usize) {
            for (time, kind) in times.iter_mut().zip(kinds) {
                *time += world.take(*kind, first, BATCH.min(sessions - first))?;
            }
        }
        ensure!(world.held() == held, "{} reservations instead of {held}", world.held());
        Ok(times.into_iter().map(each).collect())
    };
    let new = phase(&mut world, &[Kind::Reserve, Kind::Response], sessions)?;
    let with_all = memory::resident()?;
    let refresh = phase(&mut world, &[Kind::Refresh], sessions)?;
    let own = each(world.refresh_period(sessions)?);
    let tear = phase(&mut world, &[Kind::Tear, Kind::TearResponse], 0)?;
    let bytes = with_all.saturating_sub(before) as f64 / f64::from(sessions);
    Ok([vec![bytes], new, refresh, vec![own], tear].concat())
}
