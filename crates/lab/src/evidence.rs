//! What was observed during a run, for the checks and the report.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use crate::observe::trace::Trace;
use crate::plan::{Leg, Plan};

/// Everything that was observed.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) plan: Plan,
    pub(crate) trace: Trace,
    /// What steps observed, in the order of time. Each step has a type of its own for it.
    records: Vec<Box<dyn Record>>,
    /// By label, in the order in which the daemons were asked.
    pub(crate) snapshots: Vec<(String, Snapshot)>,
    /// Since 1970, by label: from when to when the lab watched.
    pub(crate) windows: BTreeMap<String, (Duration, Duration)>,
    /// Since 1970, by label: when something was done to a link or a daemon.
    pub(crate) moments: BTreeMap<String, Duration>,
    pub(crate) losses: Vec<LossCount>,
    pub(crate) stops: Vec<Stop>,
}

/// What a step observed.
pub(crate) trait Record: Any + Debug {}

impl<T: Any + Debug> Record for T {}

/// What the daemons showed, by the index of the node.
pub(crate) type Snapshot = BTreeMap<usize, Shown>;

/// What the daemon of a node showed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    /// The rows of its tables, by the words of the command that shows them.
    pub(crate) tables: BTreeMap<&'static str, Vec<Value>>,
    /// What the kernel of a node that reserves held at that time, one thing a line.
    pub(crate) kernel: Vec<String>,
}

/// The command that shows the counters of any daemon.
pub(crate) const COUNTERS: &str = "show counters";

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
    /// Lines of the kernel's rules that were not there before (`+`) or are gone (`-`).
    pub(crate) changed: Vec<String>,
}

impl Shown {
    /// Returns the rows that a command showed; none if the node was not asked.
    pub(crate) fn table(&self, command: &str) -> &[Value] {
        self.tables.get(command).map_or(&[], Vec::as_slice)
    }

    /// Returns the sum of the samples of the metric with this name; 0 if there is none.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let families = self.table(COUNTERS).iter().filter(|family| family["name"] == name);
        let samples = families.flat_map(|family| family["samples"].as_array().into_iter().flatten());
        samples.filter_map(|sample| sample["count"].as_u64()).sum()
    }
}

impl Evidence {
    /// Returns the evidence of a run that has not begun.
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            plan,
            trace: Trace::default(),
            records: Vec::new(),
            snapshots: Vec::new(),
            windows: BTreeMap::new(),
            moments: BTreeMap::new(),
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
    pub(crate) fn forget<T: Record>(&mut self) {
        self.records.retain(|record| {
            let record: &dyn Any = &**record;
            !record.is::<T>()
        });
    }

    /// Returns what the daemons showed under a label.
    pub(crate) fn snapshot(&self, label: &str) -> Result<&Snapshot, String> {
        let found = self.snapshots.iter().find(|(known, _)| known == label);
        found.map(|(_, snapshot)| snapshot).ok_or_else(|| format!("no daemon was asked at {label:?}"))
    }

    /// Returns from when to when the lab watched under a label.
    pub(crate) fn window(&self, label: &str) -> Result<(Duration, Duration), String> {
        self.windows.get(label).copied().ok_or_else(|| format!("the lab did not watch at {label:?}"))
    }

    /// Returns when something happened under a label.
    pub(crate) fn moment(&self, label: &str) -> Result<Duration, String> {
        self.moments.get(label).copied().ok_or_else(|| format!("nothing happened at {label:?}"))
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
