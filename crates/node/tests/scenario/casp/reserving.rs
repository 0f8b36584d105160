//! Many small networks, each from its own seed. Users make, change and release reservations, some for both directions and some
//! in advance, one node answers by reservations of the opposite flow, and nodes change their addresses, under faults: loss, reordering, duplication, nodes that restart or fail, route changes.
//! `SIGNALBOX_SEEDS` in the environment is the number of networks; `SIGNALBOX_SEED` runs one of them alone.
//!
//! At every moment the reservations that a node requests of its kernel stay within each link's share: [`Host`] checks each
//! request. After the faults, and [`Users::refreshed`], what each user holds stands on the present path of its flow. After
//! [`HOLD`] more, nothing else stands. When all users have left, no reservation and no session is left.
//!
//! [`Host`]: super::held::Host

use core::time::Duration;

use super::field::{REFRESH, Storm, Users};
use super::held::Held;
use crate::parts::run_part;

/// Number of seeds, unless the environment variable is set.
const SEEDS: u64 = 300;
/// Time until state without refreshes has expired at all nodes of a path, one lifetime after the other.
const HOLD: Duration = Duration::from_secs(6 * 3 * REFRESH.as_secs() + 20);

/// Counts of events in a campaign, so that it cannot pass without any of them.
#[derive(Debug, Default)]
struct Met {
    reservations: u64,
    moved: u64,
    failed: u64,
}

fn run(seed: u64, storm: Storm, met: &mut Met) {
    let mut held = Held::new(seed, storm);
    held.storm(4);
    held.refreshed();
    held.stands(HOLD);
    met.reservations += held.live();
    met.moved += held.field.moved;
    met.failed += held.failed();
    held.close();
    held.field.sim.run_for(HOLD);
    let left = held
        .field
        .hosts
        .iter()
        .any(|node| held.field.sim.engine(*node).unwrap().node.casp().unwrap().session_count() > 0);
    let fault = held.surplus().or_else(|| left.then(|| "sessions are left".to_owned()));
    held.passes(fault);
}

/// Every third seed, so that tests share the work.
fn campaign(part: u64, storm: Storm) {
    let mut met = Met::default();
    let seeds = run_part(part, 3, SEEDS, |seed| run(seed, storm, &mut met));
    eprintln!("{storm:?}: {met:?}");
    if let Some(seeds) = seeds {
        let idle = [met.reservations, met.moved, met.failed];
        assert!(idle.iter().all(|count| *count > 10), "{seeds} idle seeds: {idle:?}");
    }
}

#[test]
fn nodes_that_start_anew_leave_what_users_hold() {
    campaign(0, Storm::Restarts);
}

#[test]
fn nodes_that_crash_leave_what_users_hold() {
    campaign(1, Storm::Crashes);
}

#[test]
fn paths_that_change_leave_what_users_hold() {
    campaign(2, Storm::Routes);
}
