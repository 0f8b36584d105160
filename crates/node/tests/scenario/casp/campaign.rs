//! Many small networks, each from its own seed. Users open, move and close sessions under faults: loss, reordering,
//! duplication, nodes that restart or fail, route changes. `SIGNALBOX_SEEDS` in the environment is the number of networks;
//! `SIGNALBOX_SEED` runs one of them alone.
//!
//! After the faults, state of each live session stands at every node of its present path within [`Users::refreshed`], and each
//! node's most recent hops are the next and the previous node of the path. After [`HOLD`] more, no node keeps state of a
//! session that ended, of an address that its initiator left, or beside the path. When all users have left, no state is left.
//! Pings without state go on all the time. After the faults one is answered by the nodes of its path, and none of them leaves state.

use core::time::Duration;

use signalbox_sim::Captured;

use super::field::{REFRESH, Storm, Users};
use super::world::World;
use crate::after_end::{self, EndCounts};
use crate::parts::run_part;

/// Number of seeds, unless the environment variable is set.
const SEEDS: u64 = 300;
/// Time until state without refreshes has expired at all nodes of a path, one lifetime after the other.
const HOLD: Duration = Duration::from_secs(6 * 3 * REFRESH.as_secs() + 20);

/// Pings without state after the faults, one a second.
const PINGS: u32 = 20;

/// Counts of events in a campaign, so that it cannot pass without any of them.
#[derive(Debug, Default)]
struct Met {
    sessions: u64,
    moved: u64,
    expired: u64,
    torn_down: u64,
    branches: u64,
    disconnected: u64,
    stateless: u64,
    /// Tear-downs over UDP, and sessions that came back after them.
    after_end: EndCounts,
}

fn run(seed: u64, storm: Storm, met: &mut Met) {
    let mut world = World::new(seed, storm);
    world.field.sim.capture_all();
    world.storm(3);
    world.ask_again();
    world.refreshed();
    let (id, nodes) = world.ping(PINGS);
    let answered = (0..PINGS).any(|_| {
        world.field.sim.run_for(Duration::from_secs(1));
        world.replied(id) == Some(nodes)
    });
    if !answered {
        let fault = format!("ping {id} reached {:?} of {nodes} nodes", world.replied(id));
        panic!("{}", world.says(&fault));
    }
    world.stands(HOLD);
    met.sessions += world.live() as u64;
    met.moved += world.field.moved;
    for node in &world.field.hosts {
        let counters = world.field.sim.engine(*node).and_then(signalbox_node::Node::casp).unwrap().counters();
        met.expired += counters.expired;
        met.torn_down += counters.torn_down;
        met.branches += counters.next_branches + counters.previous_branches;
        met.disconnected += counters.disconnected;
        met.stateless += counters.stateless_returned;
    }
    world.close();
    world.field.sim.run_for(HOLD);
    let fault = world.surplus();
    world.passes(fault);
    let ends = |captured: &Captured| after_end::between(&world.field.sim, captured);
    match after_end::check(
        world.field.sim.captured(),
        after_end::StateRequests::new(),
        after_end::casp_sessions,
        ends,
    ) {
        Ok(seen) => met.after_end.add(seen),
        Err(fault) => panic!("{}", world.says(&fault)),
    }
}

/// Every third seed, so that tests share the work.
fn campaign(part: u64, storm: Storm) {
    let mut met = Met::default();
    let seeds = run_part(part, 3, SEEDS, |seed| run(seed, storm, &mut met));
    eprintln!("{storm:?}: {met:?}");
    if let Some(seeds) = seeds {
        let Met { sessions, moved, expired, torn_down, branches, disconnected, stateless, after_end } = met;
        assert!(after_end.ends > 10, "{after_end:?}");
        let idle = [sessions, moved, expired, torn_down, disconnected, stateless];
        assert!(idle.iter().all(|count| *count > 10), "{seeds} idle seeds: {idle:?}");
        assert!(storm != Storm::Routes || branches > 10, "no path changed");
    }
}

#[test]
fn nodes_that_start_anew_leave_what_sessions_hold() {
    campaign(0, Storm::Restarts);
}

#[test]
fn nodes_that_crash_leave_what_sessions_hold() {
    campaign(1, Storm::Crashes);
}

#[test]
fn paths_that_change_leave_what_sessions_hold() {
    campaign(2, Storm::Routes);
}
