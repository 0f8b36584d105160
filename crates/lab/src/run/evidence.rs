//! What was observed during a run, for the checks and the report.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::plan::{Leg, Plan};
use crate::run::observe::trace::Trace;
use crate::run::{kernel, net};

/// How the reason ends why nothing is known of a step.
pub(crate) const NOT_TAKEN: &str = "was not taken";

/// Everything that was observed.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) plan: Plan,
    pub(crate) trace: Trace,
    /// What steps observed, in the order of time. Each step has a type of its own for it.
    records: Vec<Box<dyn Record>>,
    /// What `expect` steps found, in their order.
    pub(crate) outcomes: Vec<Outcome>,
    /// What checks found after the last step, by their numbers.
    pub(crate) verdicts: BTreeMap<usize, Verdict>,
    /// Since 1970, by `id`: when each step began and ended.
    pub(crate) spans: BTreeMap<String, (Duration, Duration)>,
    /// Since 1970, by `id`: the moment of each step.
    pub(crate) moments: BTreeMap<String, Duration>,
    /// The spans of `wait` steps, in which flows are measured.
    pub(crate) windows: BTreeMap<String, (Duration, Duration)>,
    /// Since 1970: when something was done to a link or a daemon.
    pub(crate) marks: Vec<(Duration, String)>,
    /// What the kernels of nodes held at the ends of steps, one thing a line; each time that it was read.
    pub(crate) kernels: BTreeMap<(String, usize), Vec<Vec<String>>>,
    /// What `show counters` of nodes printed at the ends of steps, each time.
    pub(crate) counters: BTreeMap<(String, usize), Vec<String>>,
    pub(crate) losses: Vec<LossCount>,
    pub(crate) stops: Vec<Stop>,
}

/// The observation that holds, or the observation that does not.
pub(crate) type Verdict = Result<String, String>;

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) ok: bool,
    pub(crate) detail: String,
}

impl Outcome {
    /// Returns the outcome of a verdict.
    pub(crate) fn new(name: &str, verdict: Verdict) -> Self {
        let (ok, detail) = match verdict {
            Ok(detail) => (true, detail),
            Err(detail) => (false, detail),
        };
        Self { name: name.to_owned(), ok, detail }
    }

    /// Returns the outcome of a step.
    pub(crate) fn of_step(name: &str, verdict: Verdict) -> Self {
        Self::new(&format!("the step {name:?}"), verdict)
    }
}

/// What a step observed.
pub(crate) trait Record: Any + Debug {}

impl<T: Any + Debug> Record for T {}

/// Packets that came to one end of a link, and how many of them were discarded there.
#[derive(Debug, Clone)]
pub(crate) struct LossCount {
    /// Index of the link.
    pub(crate) link: usize,
    /// Index of the node that they came to.
    pub(crate) node: usize,
    pub(crate) seen: u64,
    pub(crate) dropped: u64,
}

/// How a daemon ended.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    pub(crate) node: usize,
    /// Why the end was not clean, if it was not.
    pub(crate) fault: Option<String>,
    /// The kernel's rules before the daemon's start.
    pub(crate) before: Vec<String>,
    /// Lines of the kernel's rules that were not there before (`+`) or are gone (`-`).
    pub(crate) changed: Vec<String>,
}

impl Stop {
    /// Reads the kernel's rules, and adds what differs from those before.
    pub(crate) fn look(&mut self, plan: &Plan) -> Result<()> {
        self.compare(&net::rules(&kernel::namespace(&plan.nodes[self.node].namespace)?)?);
        Ok(())
    }

    /// Adds what differs between these rules of the kernel and those before.
    pub(crate) fn compare(&mut self, after: &[String]) {
        let (old, new): (BTreeSet<_>, BTreeSet<_>) = (self.before.iter().collect(), after.iter().collect());
        let gone = old.difference(&new).map(|line| format!("- {line}"));
        let all: Vec<String> = new.difference(&old).map(|line| format!("+ {line}")).chain(gone).collect();
        let known = |line: &String| self.changed.contains(line);
        let more: Vec<String> = all.into_iter().filter(|line| !known(line)).collect();
        self.changed.extend(more);
    }
}

impl Evidence {
    /// Returns the evidence of a run that has not begun.
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            plan,
            trace: Trace::default(),
            records: Vec::new(),
            outcomes: Vec::new(),
            verdicts: BTreeMap::new(),
            spans: BTreeMap::new(),
            moments: BTreeMap::new(),
            windows: BTreeMap::new(),
            marks: Vec::new(),
            kernels: BTreeMap::new(),
            counters: BTreeMap::new(),
            losses: Vec::new(),
            stops: Vec::new(),
        }
    }

    /// Adds what a step observed.
    pub(crate) fn record<T: Record>(&mut self, record: T) {
        self.records.push(Box::new(record));
    }

    /// Returns what all steps of a kind observed, in the order of time.
    pub(crate) fn all<T: Record>(&self) -> impl Iterator<Item = &T> {
        self.records.iter().filter_map(|record| {
            let record: &dyn Any = &**record;
            record.downcast_ref()
        })
    }

    /// Returns the first record of a kind, to be changed by a test.
    #[cfg(test)]
    pub(crate) fn first_mut<T: Record>(&mut self) -> &mut T {
        let mut records = self.records.iter_mut().filter_map(|record| {
            let record: &mut dyn Any = &mut **record;
            record.downcast_mut()
        });
        records.next().expect("there is one")
    }

    /// Removes all records of a kind.
    #[cfg(test)]
    pub(crate) fn remove<T: Record>(&mut self) {
        self.records.retain(|record| {
            let record: &dyn Any = &**record;
            !record.is::<T>()
        });
    }

    /// Returns when a step began and ended.
    pub(crate) fn window(&self, id: &str) -> Result<(Duration, Duration), String> {
        self.spans.get(id).copied().ok_or_else(|| format!("the step {id:?} {NOT_TAKEN}"))
    }

    /// Returns the moment of a step: its begin, or its end for a step that waits for something.
    pub(crate) fn moment(&self, id: &str) -> Result<Duration, String> {
        self.moments.get(id).copied().ok_or_else(|| format!("the step {id:?} {NOT_TAKEN}"))
    }

    /// Returns the indexes of two nodes.
    pub(crate) fn nodes(&self, from: &str, to: &str) -> Result<(usize, usize), String> {
        let pair = self.plan.node(from).zip(self.plan.node(to));
        pair.ok_or_else(|| format!("{from} or {to} is no node"))
    }

    /// Returns the links between two nodes, and the address of the far one.
    pub(crate) fn legs(&self, from: usize, to: usize) -> Result<(Vec<Leg>, IpAddr), String> {
        let name = |node: usize| self.plan.nodes.get(node).map_or("?", |node| node.name.as_str());
        let dst = self.plan.address(to).ok_or_else(|| format!("{} has no address", name(to)))?;
        let legs = self.plan.path(from, dst);
        if legs.is_empty() {
            Err(format!("no route from {} to {}", name(from), name(to)))
        } else {
            Ok((legs, dst))
        }
    }
}
