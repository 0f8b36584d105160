//! `bench engine casp-qos`: what a reservation costs the QoS client of CASP and admission control, beside its session of the messaging
//! layer (`bench engine casp`).

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use signalbox_linux::memory;

use super::super::figures::Column;
use super::super::runs::{Bench, Repeats};
use super::reservations::{Step, World};
use super::world::BATCH;

const MAX_RESERVATIONS: u32 = 1_000_000;

/// Options of `bench engine casp-qos`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
EXAMPLES:
  signalbox bench engine casp-qos
  signalbox bench engine casp-qos --sessions 10000 --runs 5 --json")]
pub struct CaspQosArgs {
    /// Reservations that the router holds; several values are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 100_000],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RESERVATIONS)))]
    pub sessions: Vec<u32>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its documentation would be the help text of the command")]
    pub repeats: Repeats,
}

/// Octets for each reservation, tables and indexes included: those of the client, and those of admission control and its books.
/// Nanoseconds of processor time for each message, admission control included.
const COLUMNS: &[Column] = &[
    Column::octets("bytes_per_reservation", "bytes"),
    Column::octets("bytes_of_admission", "of admission"),
    Column::ns("ns_per_reserve", "ns/Reserve"),
    Column::ns("ns_per_reserved", "Success"),
    Column::ns("ns_per_commit", "Commit"),
    Column::ns("ns_per_refresh", "refresh"),
    Column::ns("ns_per_release", "Release"),
];

pub(crate) fn run(args: &CaspQosArgs) -> Result<()> {
    let bench = Bench {
        name: "casp-qos-engine",
        command: ["engine", "casp-qos"],
        columns: COLUMNS,
        limits: &[],
        options: &[],
        repeats: &args.repeats,
    };
    bench.run(&args.sessions, measure)
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds and octets of one run")]
fn measure(reservations: u32) -> Result<Vec<f64>> {
    let bare = memory::resident()?;
    let admission = World::admission(reservations)?;
    let of_admission = memory::resident()?.saturating_sub(bare) as f64 / f64::from(reservations);
    let mut world = World::new(reservations)?;
    // One reservation is made and released first: what is allocated once does not count.
    for step in [Step::Reserve, Step::Reserved, Step::Commit, Step::Committed, Step::Release] {
        world.take(step, 0, 1)?;
    }
    world.settle();
    let before = memory::resident()?;
    let mut phase = |step| -> Result<f64> {
        let mut time = Duration::ZERO;
        for first in (0..reservations).step_by(BATCH as usize) {
            time += world.take(step, first, BATCH.min(reservations - first))?;
        }
        Ok(time.as_nanos() as f64 / f64::from(reservations))
    };
    let reserve = phase(Step::Reserve)?;
    let reserved = phase(Step::Reserved)?;
    let commit = phase(Step::Commit)?;
    phase(Step::Committed)?;
    let all = memory::resident()?.saturating_sub(before) as f64 / f64::from(reservations);
    let refresh = phase(Step::Refresh)?;
    let release = phase(Step::Release)?;
    ensure!(world.held().1 == 0, "admission control has {} grants left", world.held().1);
    drop(admission);
    Ok(vec![all - of_admission, of_admission, reserve, reserved, commit, refresh, release])
}
