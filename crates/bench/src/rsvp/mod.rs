//! `bench engine rsvp`: an RSVP router in memory.

pub(super) mod refresh;
mod world;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use signalbox_linux::memory;

use super::figures::Column;
use super::runs::{Bench, Limit, Repeats};
use world::{BATCH, Kind, World};

/// The engine has 2^23 sessions at most, and one source three quarters of them.
pub(super) const MAX_SESSIONS: u32 = 6_000_000;

/// Options of `bench engine rsvp`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
EXAMPLES:
  signalbox bench engine rsvp --sessions 100000
  signalbox bench engine rsvp --sessions 10000,1000000 --runs 5 --json")]
pub struct RsvpArgs {
    /// Sessions that the router holds; several values are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSIONS)))]
    pub sessions: Vec<u32>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its documentation would be the help text of the command")]
    pub repeats: Repeats,
}

/// Nanoseconds of processor time for each message with all that comes of it, admission control included; octets of path
/// state, of path and reservation state, and of what admission control holds beside it.
const COLUMNS: &[Column] = &[
    Column::octets("bytes_per_path", "bytes/path"),
    Column::octets("bytes_per_session", "bytes"),
    Column::octets("bytes_per_session_of_admission", ""),
    Column::ns("ns_per_path", "ns/Path"),
    Column::ns("ns_per_path_refresh", "refresh"),
    Column::ns("ns_per_resv", "ns/Resv"),
    Column::ns("ns_per_resv_refresh", "refresh"),
    Column::ns("ns_per_resv_tear", "ResvTear"),
    Column::ns("ns_per_path_tear", "PathTear"),
    Column::ns("ns_per_set_up", "set-up"),
];

const LIMITS: &[Limit] = &[
    Limit { name: "ns per set-up", key: "ns_per_set_up", wanted: "under 3000", limit: 3000.0, growth: false },
    Limit::size("octets of path and reservation state", "bytes_per_session"),
    Limit::flat("set-up, most sessions against fewest", "ns_per_set_up"),
];

pub(super) fn run(args: &RsvpArgs) -> Result<()> {
    let bench = Bench {
        name: "rsvp-engine",
        command: ["engine", "rsvp"],
        columns: COLUMNS,
        limits: LIMITS,
        options: &[],
        repeats: &args.repeats,
    };
    bench.run(&args.sessions, measure)
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds and octets of one run")]
fn measure(sessions: u32) -> Result<Vec<f64>> {
    let bare = memory::resident()?;
    let admission = world::admission(sessions)?;
    let admission_bytes = memory::resident()?.saturating_sub(bare);
    let mut world = World::new(sessions, false)?;
    // One session is made and removed first: what is allocated once does not count for a session.
    for (kind, sent) in [(Kind::Path, 1), (Kind::Resv, 1), (Kind::ResvTear, 1), (Kind::PathTear, 1)] {
        world.take(kind, 0, 1, sent)?;
    }
    let before = memory::resident()?;
    let each = |time: Duration| time.as_nanos() as f64 / f64::from(sessions);
    let phase = |world: &mut World, kind, sent| -> Result<f64> {
        let mut time = Duration::ZERO;
        for first in (0..sessions).step_by(BATCH as usize) {
            let count = BATCH.min(sessions - first);
            time += world.take(kind, first, count, sent)?;
        }
        Ok(each(time))
    };
    let path = phase(&mut world, Kind::Path, 1)?;
    let with_paths = memory::resident()?;
    let resv = phase(&mut world, Kind::Resv, 1)?;
    let with_all = memory::resident()?;
    ensure!(world.state() == (sessions, sessions, sessions), "not all sessions are there");
    let path_refresh = phase(&mut world, Kind::Path, 0)?;
    let resv_refresh = phase(&mut world, Kind::Resv, 0)?;
    let resv_tear = phase(&mut world, Kind::ResvTear, 1)?;
    let path_tear = phase(&mut world, Kind::PathTear, 1)?;
    ensure!(world.state() == (0, 0, 0), "some state was left");
    drop(admission);
    let bytes = |now: u64| now.saturating_sub(before) as f64 / f64::from(sessions);
    let admission = admission_bytes as f64 / f64::from(sessions);
    let state = [bytes(with_paths), bytes(with_all.saturating_sub(admission_bytes)), admission];
    let times = [path, path_refresh, resv, resv_refresh, resv_tear, path_tear, path + resv];
    Ok(state.into_iter().chain(times).collect())
}
