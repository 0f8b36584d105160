//! `bench engine rsvp-refresh`: refreshes by MESSAGE_IDs (RFC 2961) of an RSVP router in memory.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use super::super::figures::Column;
use super::super::machine::Meter;
use super::super::runs::{Bench, Repeats, shuffled};
use super::MAX_SESSIONS;
use super::world::{BATCH, MOST_LISTED, REFRESH, World};

/// States that the router refreshes in one turn, as a rule, and the shortest turn: a tick of its timers.
const TURN: u32 = 64;
const SHORTEST: Duration = Duration::from_millis(1);

/// Options of `bench engine rsvp-refresh`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
EXAMPLES:
  signalbox bench engine rsvp-refresh --sessions 100000
  signalbox bench engine rsvp-refresh --sessions 10000,1000000 --runs 3 --json")]
pub struct RsvpRefreshArgs {
    /// Sessions that the router holds; several values are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSIONS)))]
    pub sessions: Vec<u32>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its documentation would be the help text of the command")]
    pub repeats: Repeats,
}

/// Nanoseconds of processor time for a state that an Srefresh of a neighbor refreshes, and for one that the router refreshes,
/// its timer included. Both of Path and of Resv: a session has four such refreshes in each period.
const COLUMNS: &[Column] = &[
    Column::ns("ns_per_state_received", "ns/state received"),
    Column::ns("ns_per_state_sent", "ns/state sent"),
    Column::ns("ns_per_session", "ns/session"),
];

pub(in super::super) fn run(args: &RsvpRefreshArgs) -> Result<()> {
    let bench = Bench {
        name: "rsvp-refresh-engine",
        command: ["engine", "rsvp-refresh"],
        columns: COLUMNS,
        limits: &[],
        options: &[],
        repeats: &args.repeats,
    };
    bench.run(&args.sessions, measure)
}

fn measure(sessions: u32) -> Result<Vec<f64>> {
    let order = shuffled(sessions);
    let mut world = World::new(sessions, true)?;
    for first in (0..sessions).step_by(BATCH as usize) {
        world.set_up(first, BATCH.min(sessions - first))?;
    }
    ensure!(world.state() == (sessions, sessions, sessions), "not all sessions are there");
    // The timers begin in the order of the set-ups; after a period they are in no order.
    period(&mut world, &order)?;
    let [received, sent] = period(&mut world, &order)?;
    ensure!(world.state() == (sessions, sessions, sessions), "not all sessions are still there");
    ensure!(sent.messages > u64::from(sessions), "the router refreshed {} states", sent.messages);
    let (received, sent) = (received.ns_each(), sent.ns_each());
    Ok(vec![received, sent, 2.0 * (received + sent)])
}

/// Lets a refresh period pass. Returns what states took that the neighbors refreshed, and those that the router refreshed.
fn period(world: &mut World, order: &[u32]) -> Result<[Meter; 2]> {
    let turns = u32::try_from(2 * order.len())?.div_ceil(TURN).max(1);
    let step = (REFRESH / turns).max(SHORTEST);
    let (mut received, mut sent) = (Meter::default(), Meter::default());
    let (mut time, mut lists) = (Duration::ZERO, order.chunks(MOST_LISTED).enumerate().peekable());
    let all = order.len().div_ceil(MOST_LISTED).max(1);
    while time < REFRESH {
        time += step;
        sent.add(world.refreshes(step)?);
        let due = time.as_secs_f64() / REFRESH.as_secs_f64() * all as f64;
        while let Some((_, sessions)) = lists.next_if(|(number, _)| (*number as f64) < due) {
            received.add(world.summaries(sessions)?);
        }
    }
    Ok([received, sent])
}
