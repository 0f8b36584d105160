//! Many small networks with firewalls, each from its own seed. Users open and close passages, by the sender and by the receiver,
//! administrators and receivers end some, and nodes change their addresses, under faults: loss, reordering, duplication, nodes that restart
//! or fail, route changes. `SIGNALBOX_SEEDS` in the environment is the number of networks; `SIGNALBOX_SEED` runs one of them
//! alone.
//!
//! After the faults, and [`Users::refreshed`], each firewall on the present path of a passage that its user holds lets its packets pass.
//! After [`HOLD`] more, nothing else passes a firewall, and each receiver has been informed of the end of all other passages.
//! When all users have left, no pinhole and no session is left.

use core::time::Duration;

use signalbox_node::casp::{PassageEnd, PassageEvent};

use super::field::{REFRESH, Storm, Users};
use super::opened::World;
use crate::parts::run_part;

/// Number of seeds, unless the environment variable is set.
const SEEDS: u64 = 300;
/// Time until state without refreshes has expired at all nodes of a path, one lifetime after the other.
const HOLD: Duration = Duration::from_secs(7 * 3 * REFRESH.as_secs() + 20);

/// Counts of events in a campaign, so that it cannot pass without any of them.
#[derive(Debug, Default)]
struct Met {
    passages: u64,
    moved: u64,
    failed: u64,
    closed: u64,
    expired: u64,
    removed: u64,
    left: u64,
}

fn run(seed: u64, storm: Storm, met: &mut Met) {
    let mut world = World::new(seed, storm);
    world.storm(4);
    // What was lost is noticed one lifetime later, and who asks again waits until the former request is closed.
    for _ in 0..3 {
        world.field.sim.run_for(3 * REFRESH + Duration::from_secs(1));
        world.ask_again();
    }
    world.refreshed();
    world.stands(HOLD);
    let ended = |why: fn(&PassageEnd) -> bool| {
        world.count(|event| matches!(event, PassageEvent::Ended { why: found, .. } if why(found)))
    };
    met.passages += world.live();
    met.moved += world.field.moved;
    met.failed += world.count(|event| matches!(event, PassageEvent::Failed(_)));
    met.closed += ended(|why| *why == PassageEnd::Closed);
    met.expired += ended(|why| *why == PassageEnd::Expired);
    met.left += world.count(|event| matches!(event, PassageEvent::Failed(why) if why.code == 22));
    met.removed += ended(|why| matches!(why, PassageEnd::Removed(_)));
    world.close();
    world.field.sim.run_for(HOLD);
    let left = (world.sessions() > 0).then(|| format!("{} sessions are left", world.sessions()));
    let fault = world.surplus().or(left);
    world.passes(fault);
}

/// Every third seed, so that tests share the work.
fn campaign(part: u64, storm: Storm) {
    let mut met = Met::default();
    let seeds = run_part(part, 3, SEEDS, |seed| run(seed, storm, &mut met));
    eprintln!("{storm:?}: {met:?}");
    if let Some(seeds) = seeds {
        let Met { passages, moved, failed, closed, expired, removed, left } = met;
        let idle = [passages, moved, failed, closed, expired, 20 * removed, 20 * left];
        assert!(idle.iter().all(|count| *count > 10), "{seeds} idle seeds: {idle:?}");
    }
}

#[test]
fn nodes_that_start_anew_leave_what_users_opened() {
    campaign(0, Storm::Restarts);
}

#[test]
fn nodes_that_crash_leave_what_users_opened() {
    campaign(1, Storm::Crashes);
}

#[test]
fn paths_that_change_leave_what_users_opened() {
    campaign(2, Storm::Routes);
}
