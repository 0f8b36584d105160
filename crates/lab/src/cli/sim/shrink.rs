//! From a run that fails to the fewest faults and steps with which it fails in the same way.

use anyhow::Result;

use crate::language::Scenario;
use crate::report::simulated::{Simulated, simulate};
use crate::run::simulation::Order;

/// What is left of a run that fails.
#[derive(Debug)]
pub(super) struct Shrunk {
    pub(super) order: Order,
    /// The check that does not hold, as in the run at the beginning.
    pub(super) failure: String,
    pub(super) simulated: Simulated,
    /// The number of runs that it took.
    pub(super) runs: usize,
}

/// Leaves out faults, then steps from the end, while the first failure stays the same. `progress` shows each smaller run.
/// Returns nothing if the run does not fail.
///
/// # Errors
/// The network cannot be made.
pub(super) fn shrink(scenario: &Scenario, order: Order, progress: &dyn Fn(&Order)) -> Result<Option<Shrunk>> {
    let first = simulate(scenario, &order)?;
    let Some(failure) = first.failed().next().map(str::to_owned) else { return Ok(None) };
    let mut best = Shrunk { order, failure, simulated: first, runs: 1 };
    // Large parts first, so that many faults take few runs.
    let mut part = best.order.faults.len();
    while part > 0 {
        let mut at = 0;
        while at < best.order.faults.len() {
            let mut order = best.order.clone();
            let end = (at + part).min(order.faults.len());
            order.faults.drain(at..end);
            if best.fails(scenario, order)? {
                progress(&best.order);
            } else {
                at += part;
            }
        }
        part /= 2;
    }
    // With fewer steps there are fewer checks; a failure of an `expect` step needs no step after it.
    let (mut least, mut most) = (0, best.simulated.steps);
    while least < most {
        let steps = least + (most - least) / 2;
        if best.fails(scenario, Order { steps: Some(steps), ..best.order.clone() })? {
            progress(&best.order);
            most = steps;
        } else {
            least = steps + 1;
        }
    }
    Ok(Some(best))
}

impl Shrunk {
    /// Whether a smaller run fails in the same way. It is the best one then.
    fn fails(&mut self, scenario: &Scenario, order: Order) -> Result<bool> {
        let simulated = simulate(scenario, &order)?;
        self.runs += 1;
        let same = simulated.failed().next() == Some(self.failure.as_str());
        if same {
            self.order = order;
            self.simulated = simulated;
        }
        Ok(same)
    }
}
