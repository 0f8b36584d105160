//! `bench engine boomerang`: a Boomerang router in memory.

mod world;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use signalbox_linux::memory;

use super::figures::Column;
use super::runs::{Bench, Limit, Repeats};
use world::{BATCH, Kind, World};

const MAX_RESERVATIONS: u32 = 10_000_000;
/// Admission control is measured with this many reservations at most, so that a run with many does not need their memory
/// twice.
const ADMISSION: u32 = 1_000_000;

/// Options of `bench engine boomerang`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
EXAMPLES:
  signalbox bench engine boomerang --sessions 60000
  signalbox bench engine boomerang --sessions 10000,1000000 --runs 5 --json")]
pub struct BoomerangArgs {
    /// Reservations that the router holds; several values are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 60_000, 1_000_000, 10_000_000],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RESERVATIONS)))]
    pub sessions: Vec<u32>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its documentation would be the help text of the command")]
    pub repeats: Repeats,
}

/// Nanoseconds of processor time for each message with all that comes of it, admission control included; octets of the
/// engine for each reservation, and of admission control beside it.
const COLUMNS: &[Column] = &[
    Column::octets("bytes_per_reservation", "bytes"),
    Column::octets("bytes_per_reservation_of_admission", "admission"),
    Column::ns("ns_per_reservation", "ns/new"),
    Column::ns("ns_per_refresh", "refresh"),
    Column::ns("ns_per_change", "change"),
    Column::ns("ns_per_release", "release"),
];

const LIMITS: &[Limit] = &[
    Limit {
        name: "octets of a reservation",
        key: "bytes_per_reservation",
        wanted: "at most 96",
        limit: 96.0,
        growth: false,
    },
    Limit::flat("refresh, most reservations against fewest", "ns_per_refresh"),
];

pub(super) fn run(args: &BoomerangArgs) -> Result<()> {
    let command = ["engine", "boomerang"];
    let bench = Bench {
        name: "boomerang-engine",
        command,
        columns: COLUMNS,
        limits: LIMITS,
        options: &[],
        repeats: &args.repeats,
    };
    bench.run(&args.sessions, measure)
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds and octets of one run")]
fn measure(reservations: u32) -> Result<Vec<f64>> {
    let bare = memory::resident()?;
    let sample = reservations.min(ADMISSION);
    let admission = world::admission(sample)?;
    let of_admission = memory::resident()?.saturating_sub(bare) as f64 / f64::from(sample);
    let mut world = World::new(reservations)?;
    // One reservation is made and released first: what is allocated once does not count.
    for (part, kind) in [("new", Kind::New), ("release", Kind::Release)] {
        world.take(part, kind, 0, 1)?;
    }
    let before = memory::resident()?;
    let mut phase = |part, kind, held| -> Result<f64> {
        let mut time = Duration::ZERO;
        for first in (0..reservations).step_by(BATCH as usize) {
            time += world.take(part, kind, first, BATCH.min(reservations - first))?;
        }
        ensure!(world.held() == (held, held), "{:?} reservations instead of {held}", world.held());
        Ok(time.as_nanos() as f64 / f64::from(reservations))
    };
    let new = phase("new", Kind::New, reservations)?;
    let with_all = memory::resident()?;
    let refresh = phase("refresh", Kind::New, reservations)?;
    let change = phase("change", Kind::Change, reservations)?;
    let release = phase("release", Kind::Release, 0)?;
    drop(admission);
    let bytes = with_all.saturating_sub(before) as f64 / f64::from(reservations);
    Ok(vec![bytes - of_admission, of_admission, new, refresh, change, release])
}
