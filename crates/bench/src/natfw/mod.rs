//! `bench engine natfw`: a NAT that runs the NATFW application, in memory.

mod world;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use signalbox_linux::memory;

use super::figures::Column;
use super::runs::{Bench, Limit, Repeats};
use world::{BATCH, Kind, World};

const MAX_SESSIONS: u32 = 10_000_000;

/// Options of `bench engine natfw`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
EXAMPLES:
  signalbox bench engine natfw --sessions 100000
  signalbox bench engine natfw --sessions 10000,1000000 --runs 5 --json")]
pub struct NatfwArgs {
    /// Sessions that the NAT holds; several values are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSIONS)))]
    pub sessions: Vec<u32>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its documentation would be the help text of the command")]
    pub repeats: Repeats,
}

/// Octets for each session, with what the policy and the table of external ports hold for it; nanoseconds of processor
/// time for each message with all that comes of it, the answer about the rule included.
const COLUMNS: &[Column] = &[
    Column::octets("bytes_per_session", "bytes"),
    Column::ns("ns_per_create", "ns/CREATE"),
    Column::ns("ns_per_response", "RESPONSE"),
    Column::ns("ns_per_refresh", "refresh"),
    Column::ns("ns_per_refresh_response", "RESPONSE"),
    Column::ns("ns_per_deletion", "deletion"),
];

const LIMITS: &[Limit] = &[
    Limit::size("octets of a session with policy and binding", "bytes_per_session"),
    Limit::flat("CREATE, most sessions against fewest", "ns_per_create"),
];

pub(super) fn run(args: &NatfwArgs) -> Result<()> {
    let bench = Bench {
        name: "natfw-engine",
        command: ["engine", "natfw"],
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
    // A session of its own is made and closed first: what is allocated once does not count for a session.
    for kind in [Kind::Create, Kind::Response, Kind::Deletion] {
        world.take(kind, sessions, 1)?;
    }
    let before = memory::resident()?;
    let mut phases = |kinds: &[Kind]| -> Result<Vec<f64>> {
        let mut times = vec![Duration::ZERO; kinds.len()];
        for first in (0..sessions).step_by(BATCH as usize) {
            for (time, kind) in times.iter_mut().zip(kinds) {
                *time += world.take(*kind, first, BATCH.min(sessions - first))?;
            }
        }
        let held = if kinds.contains(&Kind::Deletion) { 0 } else { sessions };
        ensure!(world.held() == (held, held), "{:?} sessions and passages instead of {held}", world.held());
        Ok(times.iter().map(|time| time.as_nanos() as f64 / f64::from(sessions)).collect())
    };
    let new = phases(&[Kind::Create, Kind::Response])?;
    let with_all = memory::resident()?;
    let refresh = phases(&[Kind::Refresh, Kind::RefreshResponse])?;
    let deletion = phases(&[Kind::Deletion])?;
    let bytes = with_all.saturating_sub(before) as f64 / f64::from(sessions);
    Ok([vec![bytes], new, refresh, deletion].concat())
}
