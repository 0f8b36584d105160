//! Many small networks, each from its own seed. Users make, change and release reservations in both directions under
//! faults: loss, reordering, duplication, kernels that refuse, nodes that restart or fail, route changes, paths whose way
//! back is another one. `SIGNALBOX_SEEDS` in the environment is the number of networks; `SIGNALBOX_SEED` runs one of
//! them alone.
//!
//! At every moment the reservations that a node requests of its kernel stay within each link's share: [`Host`] checks
//! each request. After the faults, every session has been refreshed after [`REFRESHED`]: its reservations stand on its
//! present path, with the rates that its user knows. After [`HOLD`] more, nothing else stands: what a lost release or a
//! former path left behind has expired. When all users have left, no state is left.
//!
//! [`Host`]: super::net::Host

use core::time::Duration;

use signalbox_sim::Captured;

use super::world::{REFRESH, Storm, World};
use crate::after_end::{self, Effect, EndCounts};
use crate::parts::run_part;

/// Number of seeds, unless the environment variable is set.
const SEEDS: u64 = 900;
/// Time from the end of the faults until every session has been refreshed: the longest reply timer, a refresh that makes the
/// reservations of the path, and one that takes back what the first nodes hold more than the last ones.
const REFRESHED: Duration = Duration::from_secs(4 + 2 * REFRESH as u64 + 2);
/// Time until a reservation without refresh has expired: 3.5 intervals.
const HOLD: Duration = Duration::from_secs(4 * REFRESH as u64);

/// Counts of events in a campaign, so that it cannot pass without any of them.
#[derive(Debug, Default)]
struct Met {
    /// Reservations that stood after the faults.
    reservations: usize,
    /// Sessions whose way back was another one.
    bent: usize,
    refused: u64,
    expired: u64,
    unproved: u64,
    unanswered: u64,
    /// Flows that became members of aggregates, and options that ended at the node that added them.
    joined: u64,
    ended_here: u64,
    /// Releases, and reservations that came back after them.
    after_end: EndCounts,
}

fn storm_over(world: &mut World) {
    for _ in 0..4 {
        world.open();
    }
    for _ in 0..10 {
        world.pause();
        world.inject_fault();
        world.act();
    }
    world.pause();
    world.end_faults();
}

fn run(seed: u64, storm: Storm, met: &mut Met) {
    let mut world = World::new(seed, storm);
    world.sim.capture_all();
    storm_over(&mut world);
    world.sim.run_for(REFRESHED);
    if let Some(fault) = world.missing() {
        panic!("{}", world.says(&fault));
    }
    // Members of aggregates have no timers: they are left out of the second count.
    world.sim.run_for(if world.aggregates { 3 * HOLD } else { HOLD });
    if let Some(fault) = world.fault() {
        panic!("{}", world.says(&fault));
    }
    let (held, bent) = world.expected().unwrap();
    met.reservations += held.len();
    met.bent += bent;
    for node in &world.hosts {
        let engine = world.sim.engine(*node).and_then(|host| host.node.boomerang()).unwrap();
        let counters = engine.counters();
        met.refused += counters.refused;
        met.expired += counters.expired;
        met.unproved += counters.unproved;
        met.unanswered += counters.unanswered;
        met.joined += counters.joined;
        met.ended_here += counters.options_removed;
    }
    world.close();
    // A node that demands proofs knows no KEY of a member, and lets its aggregate expire.
    let patience = if world.aggregates { HOLD } else { Duration::from_secs(2) };
    let gone = world.sim.wait(patience, |sim| World::left(sim).is_none());
    assert!(gone, "{}", world.says(&World::left(&world.sim).unwrap_or_default()));
    let messages_of = |captured: &Captured| {
        let (hop, mut messages) = after_end::requests(captured)?;
        // A request that nodes lowered to nothing is no release.
        messages.retain(|one| one.effect != Effect::Ends || world.has_left(one.state.2[1], captured.at));
        Some((hop, messages))
    };
    let ends = |captured: &Captured| [world.hosts.contains(&captured.from), true];
    match after_end::check(world.sim.captured(), after_end::StateRequests::new(), messages_of, ends) {
        Ok(counts) => met.after_end.add(counts),
        Err(fault) => panic!("{}", world.says(&fault)),
    }
}

/// Every third seed, so that tests share the work.
fn campaign(part: u64, storm: Storm) {
    let mut met = Met::default();
    let seeds = run_part(part, 3, SEEDS, |seed| run(seed, storm, &mut met));
    eprintln!("{storm:?}: {met:?}");
    if let Some(seeds) = seeds {
        let Met { reservations, bent, refused, expired, unproved, unanswered, joined, ended_here, after_end } =
            met;
        assert!(after_end.ends > 100, "{after_end:?}");
        let idle = [reservations as u64 / 10, refused, expired, unproved, unanswered, 2 * joined, ended_here];
        assert!(idle.iter().all(|count| *count > 100), "{seeds} idle seeds: {idle:?}");
        assert!(storm != Storm::Routes || bent > 30, "all paths were straight");
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

/// The same seed gives the same run: every packet, every event.
#[test]
fn a_seed_is_a_run() {
    for (seed, storm) in [(22, Storm::Crashes), (23, Storm::Routes)] {
        let run = || {
            let mut world = World::new(seed, storm);
            world.sim.capture_all();
            storm_over(&mut world);
            let packets: Vec<_> = world.sim.captured().cloned().collect();
            (packets, world.sim.take_events())
        };
        let (first, second) = (run(), run());
        assert!(!first.0.is_empty());
        assert!(first == second, "seed {seed}");
    }
}
