//! Many small networks, each from its own seed. Applications announce senders, make and change reservations under
//! faults: loss, reordering, duplication, kernels that refuse, nodes that restart or fail, route changes. Sessions are
//! unicast or multicast, of all three styles, IPv4 and IPv6; the nodes use refresh reduction, staged timers or Hello,
//! or none of these. `SIGNALBOX_SEEDS` in the environment is the number of networks; `SIGNALBOX_SEED` runs one of them
//! alone.
//!
//! At every moment the reservations that a node requests of its kernel stay within each link's share: [`Host`] checks
//! each request. After the faults and [`recovery`], each kernel holds exactly the reservations that the [`Oracle`]
//! computes from the users' requests; path state exists exactly where data pass; the applications have the correct
//! events. If the capacity of links is not sufficient, each receiver that can be served under any other grants is
//! served at every link of its path, although larger requests are made and refused again and again (RFC 2205 §2.5).
//! This does not hold at every moment: a previous hop stores one blockade, and while it blocks the large part of a
//! request, it blocks the rest too. When all users have left, no state is left.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use signalbox_core::traffic::{FlowFilter, Reservation};
use signalbox_sim::{Captured, Sim};

use super::net::Host;
use super::oracle::{Claim, Demand, Oracle, Place};
use super::world::{BLOCKADE, REFRESH, Storm, World};
use crate::after_end::{self, EndCounts};
use crate::parts::run_part;

/// Number of seeds, unless the environment variable is set.
const SEEDS: u64 = 300;
/// Lifetime of state: (K + 0.5) · 1.5 · R.
const LIFETIME: Duration = Duration::from_millis(5250);

/// Time from the end of the faults until all conditions hold. Path state without refreshes ends within a lifetime at
/// every node: the previous hop that refreshed it expires first, and then sends a tear. A next hop refreshes its
/// request as long as it has path state, and its old reservation ends a lifetime later. A request that was refused for
/// lack of capacity is made again when the blockade ends, with the refresh of each node on the path, one after the
/// other.
fn recovery(world: &World) -> Duration {
    let hops = u32::try_from(world.hosts.len()).unwrap();
    LIFETIME * 2 + REFRESH * BLOCKADE + REFRESH * 3 / 2 * hops
}

impl World {
    /// The reservations that the kernels hold.
    fn held(&self) -> BTreeMap<Place, Reservation> {
        let mut held = BTreeMap::new();
        for node in &self.hosts {
            for (id, reservation) in self.sim.reservations(*node) {
                let mut filters: Vec<String> = reservation.filters.iter().map(ToString::to_string).collect();
                filters.sort();
                let twice = held.insert((*node, reservation.ifindex, filters), reservation.clone());
                assert_eq!(twice, None, "{id} stands twice");
            }
        }
        held
    }

    /// Whether the capacity of all links is sufficient for all requests.
    fn suffices(&self, oracle: &Oracle) -> bool {
        self.shares.iter().all(|((node, ifindex), share)| {
            let here = oracle.installed.iter().filter(|((at, by, _), _)| at == node && by == ifindex);
            here.map(|(_, one)| one.rate).sum::<u64>() <= *share
        })
    }

    /// A difference from the expected state.
    fn fault(&self, oracle: &Oracle) -> Option<String> {
        self.path_fault(oracle).or_else(|| {
            if self.suffices(oracle) { self.exact_fault(oracle) } else { self.tight_fault(oracle) }
        })
    }

    fn path_fault(&self, oracle: &Oracle) -> Option<String> {
        let mut paths = BTreeSet::new();
        for node in &self.hosts {
            for view in self.sim.engine(*node)?.node.rsvp_sessions() {
                let Some(play) = self.plays.iter().find(|play| play.session == view.session) else {
                    return Some(format!("{node} knows {:?}", view.session));
                };
                paths.extend(view.senders.iter().map(|one| (*node, play.number, one.sender)));
            }
        }
        if paths != oracle.paths {
            let stale: Vec<_> = paths.difference(&oracle.paths).collect();
            let missing: Vec<_> = oracle.paths.difference(&paths).collect();
            return Some(format!("stale paths {stale:?}, missing {missing:?}"));
        }
        for play in &self.plays {
            for node in play.sinks.keys() {
                let host = self.sim.engine(*node)?;
                let known = host.known(play.sink_id());
                let here = play.senders.iter().map(|(actor, spec)| (self.filter(play, *actor), spec.tspec()));
                let here = here.filter(|(filter, _)| paths.contains(&(*node, play.number, *filter)));
                let here: BTreeMap<_, _> = here.collect();
                if known.senders != here {
                    return Some(format!("{node} knows the senders {:?}, not {here:?}", known.senders));
                }
                if !known.refused.is_empty() {
                    return Some(format!("{node} was refused: {:?}", known.refused));
                }
            }
        }
        None
    }

    /// A difference from the expected state if the capacity is sufficient for all requests.
    fn exact_fault(&self, oracle: &Oracle) -> Option<String> {
        let held = self.held();
        let stale =
            held.iter().find(|(at, one)| !oracle.installed.get(at).is_some_and(|wanted| wanted.is(one)));
        let missing =
            oracle.installed.iter().find(|(at, wanted)| !held.get(at).is_some_and(|one| wanted.is(one)));
        if stale.is_some() || missing.is_some() {
            return Some(format!("stale {stale:?}, missing {missing:?}"));
        }
        for play in &self.plays {
            for actor in play.senders.keys() {
                let known = self.sim.engine(actor.node)?.known(play.sender_id(*actor));
                let wanted = oracle.reserved[&(play.number, *actor)].map(|spec| spec.flowspec());
                if known.reserved != wanted || !known.refused.is_empty() {
                    return Some(format!("{actor:?} knows {known:?}, not {wanted:?}"));
                }
            }
        }
        self.charges(&held)
    }

    /// An error in the sums of admission control for the installed reservations.
    fn charges(&self, held: &BTreeMap<Place, Reservation>) -> Option<String> {
        for node in &self.hosts {
            for link in self.sim.engine(*node)?.node.resources().links() {
                let at = held.iter().filter(|((n, at, _), _)| n == node && *at == link.ifindex);
                let sum: u64 = at.map(|(_, one)| one.rate()).sum();
                if link.reserved != sum {
                    return Some(format!("{node} charges {}, holds {sum} at {}", link.reserved, link.name));
                }
            }
        }
        None
    }

    /// A reservation without a request, if the capacity is not sufficient for all requests.
    fn tight_fault(&self, oracle: &Oracle) -> Option<String> {
        let held = self.held();
        for ((node, ifindex, filters), one) in &held {
            let asked = oracle.installed.iter().any(|((at, by, named), most)| {
                at == node
                    && by == ifindex
                    && filters.iter().all(|filter| named.contains(filter))
                    && one.rate() <= most.rate
            });
            if !asked {
                return Some(format!("stale at {node} {ifindex:?}: {filters:?} {one:?}"));
            }
        }
        self.charges(&held)
    }

    /// The demands that can be served under any other grants, even if all links of their paths were given to larger
    /// requests on the same path.
    fn sure(&self, oracle: &Oracle) -> BTreeSet<usize> {
        let fits = |claim: &Claim, rate: u64| {
            let others = oracle.installed.iter().filter(|(place, _)| {
                (place.0, place.1) == (claim.node, claim.ifindex) && **place != claim.place
            });
            let others: u64 = others.map(|(_, one)| one.rate).sum();
            others + rate <= self.shares[&(claim.node, claim.ifindex)]
        };
        let sure = |demand: &Demand| {
            let fit =
                |claim| fits(claim, claim.rate) && demand.swept_by.iter().all(|rate| fits(claim, *rate));
            demand.claims.iter().all(fit)
        };
        let all = oracle.demands.iter().enumerate();
        all.filter(|(_, demand)| sure(demand)).map(|(at, _)| at).collect()
    }

    /// Those of them that are not served now.
    fn unserved(&self, oracle: &Oracle) -> BTreeSet<usize> {
        let serves = |claim: &Claim, one: &Reservation| {
            let covers = |filter: &FlowFilter| {
                filter.dst == claim.sender.dst
                    && filter.dst_port == claim.sender.dst_port
                    && filter.src_port.is_none_or(|port| Some(port) == claim.sender.src_port)
                    && filter.src.contains(claim.sender.src.addr)
            };
            one.ifindex == claim.ifindex && one.rate() >= claim.rate && one.filters.iter().any(covers)
        };
        let served = |claim: &Claim| self.sim.reservations(claim.node).any(|(_, one)| serves(claim, one));
        let mut sure = self.sure(oracle);
        sure.retain(|at| !oracle.demands[*at].claims.iter().all(served));
        sure
    }

    /// Nothing that makes path state left a node after its tear.
    fn after_end(&self) -> EndCounts {
        let composed = |captured: &Captured| [self.hosts.contains(&captured.from), true];
        match after_end::check(self.sim.captured(), self.path_requests.clone(), after_end::paths, composed) {
            Ok(seen) => seen,
            Err(fault) => panic!("{}", self.says(&fault)),
        }
    }

    fn says(&self, fault: &str) -> String {
        let (variant, storm) = (self.variant, self.storm);
        let wishes = &self.plays;
        let seed = self.sim.seed();
        format!("{fault}\n{variant:?} {storm:?}, at {}, seed {seed}; {wishes:?}", self.sim.now())
    }

    /// State that is left at any node.
    fn left(sim: &Sim<Host>) -> Option<String> {
        sim.nodes().find_map(|node| {
            let host = &sim.engine(node)?.node;
            let rsvp = host.rsvp()?;
            if sim.reservations(node).next().is_some() || host.resources().reservations().next().is_some() {
                return Some(format!("{node} holds reservations"));
            }
            let counts = (rsvp.sessions(), rsvp.senders(), rsvp.reservations());
            (counts != (0, 0, 0) || !rsvp.holds_nothing()).then(|| format!("{node} holds {counts:?}"))
        })
    }
}

/// Counts of events in a campaign, so that it cannot pass without any of them.
#[derive(Debug, Default)]
struct Met {
    /// Reservations that kernels held after the faults.
    reservations: usize,
    /// Requests that admission control refused at nodes that did not restart afterwards.
    refused: u64,
    blockades: u64,
    /// States that were refreshed by MESSAGE_ID.
    by_name: u64,
    repairs: u64,
    /// Demands that had to be served at links without capacity for all.
    sure: usize,
    /// Links that were lost permanently.
    lost: usize,
    /// Tears, and states that came back after them.
    after_end: EndCounts,
}

impl Met {
    fn add(&mut self, world: &mut World) {
        self.reservations += world.held().len();
        self.lost += world.lost.len();
        if world.variant.tight {
            let oracle = Oracle::of(world);
            self.sure += if world.suffices(&oracle) { 0 } else { world.sure(&oracle).len() };
        }
        for node in &world.hosts {
            let Some(rsvp) = world.sim.engine(*node).and_then(|host| host.node.rsvp()) else { continue };
            let counters = rsvp.counters();
            self.refused += counters.refused;
            self.blockades += counters.blockades;
            self.repairs += counters.repairs;
            self.by_name += rsvp.neighbors().counters().states_refreshed;
        }
    }
}

fn run(seed: u64, storm: Storm, met: &mut Met) {
    let mut world = World::new(seed, storm);
    world.sim.capture_all();
    storm_over(&mut world);
    let recovery = recovery(&world);
    world.sim.run_for(recovery);
    // Larger requests are refused, blocked and refused again, each with its own timers.
    let mut hungry: Option<BTreeSet<usize>> = None;
    for _ in 0..BLOCKADE * 4 {
        let oracle = Oracle::of(&mut world);
        if let Some(fault) = world.fault(&oracle) {
            panic!("{}", world.says(&fault));
        }
        if !world.variant.tight {
            break;
        }
        let now = world.unserved(&oracle);
        hungry = Some(hungry.map_or(now.clone(), |before| &before & &now));
        world.sim.run_for(REFRESH / 2);
    }
    if let Some(at) = hungry.and_then(|hungry| hungry.first().copied()) {
        let demand = &Oracle::of(&mut world).demands[at];
        panic!("{}", world.says(&format!("never served: {demand:?}")));
    }
    met.add(&mut world);
    world.close();
    // Tears reach every node with state on their path; other state expires after its lifetime.
    world.sim.wait(LIFETIME * 2, |sim| World::left(sim).is_none());
    if let Some(left) = World::left(&world.sim) {
        panic!("{}", world.says(&left));
    }
    met.after_end.add(world.after_end());
}

/// Opens sessions, does actions of users, and injects faults.
fn storm_over(world: &mut World) {
    for _ in 0..2 {
        world.open();
    }
    for _ in 0..8 {
        world.act();
    }
    for step in 0..8 {
        world.pause();
        world.inject_fault();
        if step % 3 == 0 {
            world.open();
        }
        for _ in 0..2 {
            world.act();
        }
    }
    world.pause();
    world.end_faults();
}

/// Every third seed, so that tests share the work.
fn campaign(part: u64, storm: Storm) {
    let mut met = Met::default();
    let seeds = run_part(part, 3, SEEDS, |seed| run(seed, storm, &mut met));
    eprintln!("{storm:?}: {met:?}");
    if let Some(seeds) = seeds {
        let Met { reservations, refused, blockades, by_name, repairs, sure, lost, after_end } = met;
        assert!(after_end.ends > 100 && after_end.again > 10, "{after_end:?}");
        assert!(reservations > 100 && refused > 10 && blockades > 10 && by_name > 100, "{seeds} idle seeds");
        assert!(sure > 20, "{seeds} seeds without a shortage");
        assert!(storm != Storm::Routes || repairs > 10 && lost > 10, "no path was repaired");
    }
}

#[test]
fn nodes_that_start_anew_leave_what_receivers_hold() {
    campaign(0, Storm::Restarts);
}

#[test]
fn nodes_that_crash_leave_what_receivers_hold() {
    campaign(1, Storm::Crashes);
}

#[test]
fn paths_that_change_leave_what_receivers_hold() {
    campaign(2, Storm::Routes);
}

/// O18: senders end soon after their state changed, while messages about it wait at the nodes.
#[test]
fn what_waits_ends_with_its_sender() {
    let mut seen = EndCounts::default();
    let seeds = run_part(0, 1, SEEDS / 5, |seed| {
        let mut world = World::new(seed, Storm::Restarts);
        world.sim.capture_all();
        (0..3).for_each(|_| world.open());
        for _ in 0..20 {
            world.hurry();
        }
        world.close();
        world.sim.run_for(LIFETIME);
        seen.add(world.after_end());
    });
    if seeds.is_some() {
        assert!(seen.ends > 1000, "{seen:?}");
    }
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
