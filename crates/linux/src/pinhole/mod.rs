//! Pinholes and NAT bindings in the kernel: exactly the flows that were asked for pass, and only for their lifetime.
//!
//! * `flow` turns a pinhole into keys, `ruleset` into elements of the sets and maps of our table, with their rules.
//! * `table` owns the table; `accept` has the one rule in chains of the operator, where the configuration names them.
//! * `conntrack` ends the flows that a pinhole let in.
//! * `walks` says when it looks for them among all flows.
//! * `left` is about what a process leaves to the next one.
//! * `index` holds which pinholes are open for which packets, [`Pinholes`] all of it.
//!
//! docs/natfw.md has the hooks in a drawing, and how our table and the operator's ruleset work together.

mod accept;
mod config;
mod conntrack;
mod flow;
mod index;
mod left;
mod ruleset;
mod table;
mod walks;

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use signalbox_core::metrics::Family;
use signalbox_core::pinhole::{Pinhole, PinholeError, PinholeId, Translation};
use signalbox_core::traffic::FlowFilter;

pub use config::{Chain, ChainError, PinholeConfig};
use conntrack::Flows;
use flow::{Action, Flow, Tuple};
use index::{Held, Index};
use ruleset::Entry;
pub(crate) use ruleset::TABLE;
use table::Table;
use walks::Walks;

use crate::error::OpenError;
use crate::netlink::nftables::set::{Change, State};

/// Most requests in one transaction.
const MOST_AT_ONCE: usize = 256;
/// Most portions of a walk at once: the kernel gives about a hundred flows in each.
const PORTIONS: usize = 16;
/// The time between two looks at what other programs may have removed.
const CHECKS: Duration = Duration::from_secs(2);

/// What the kernel has of a pinhole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinholeView {
    /// Packets that it let pass, in both directions, or dropped.
    pub packets: u64,
    /// Their octets, IP headers included.
    pub octets: u64,
    /// Time until the kernel closes it.
    pub time_left: Duration,
}

/// Pinholes in the kernel.
const PINHOLE_EVENTS: Family =
    Family::counter("pinhole_events", &["event"], "Changes of the pinholes and NAT bindings in the kernel.");

signalbox_core::counters! {
    /// The counters of pinholes in the kernel.
    pub struct PinholeCounters {
        /// Pinholes opened.
        opened: u64 => PINHOLE_EVENTS { event: "opened" },
        /// Pinholes changed or prolonged.
        prolonged: u64 => PINHOLE_EVENTS { event: "prolonged" },
        /// Pinholes closed.
        closed: u64 => PINHOLE_EVENTS { event: "closed" },
        /// Pinholes refused because the limit is reached.
        full: u64 => PINHOLE_EVENTS { event: "full" },
        /// Pinholes refused because another one is for the same packets.
        conflict: u64 => PINHOLE_EVENTS { event: "conflict" },
        /// Pinholes that the kernel cannot implement or refused.
        failed: u64 => PINHOLE_EVENTS { event: "failed" },
        /// Flows of connection tracking that were ended with their pinhole.
        flows_ended: u64 => PINHOLE_EVENTS { event: "flow_ended" },
        /// Times that the table was made again because another program had removed it.
        restored: u64 => PINHOLE_EVENTS { event: "restored" },
    }
}

#[derive(Debug, Clone)]
enum Operation {
    Request(PinholeId, Pinhole, Duration),
    Release(PinholeId),
}

impl Operation {
    const fn id(&self) -> PinholeId {
        match self {
            Self::Request(id, ..) | Self::Release(id) => *id,
        }
    }
}

/// An operation that waits for the kernel. The index has its result already.
struct Step {
    operation: Operation,
    changes: Vec<(Entry, Change)>,
    /// The flows that no pinhole is open for any more.
    gone: Vec<Flow>,
    /// The flows that are translated from now on.
    translated: Vec<Flow>,
    /// What elements had counted that others replace.
    counted: Vec<(Flow, Counted)>,
    /// The former pinhole of that id.
    former: Option<Held>,
    /// Whether a former process left something for these packets.
    inherits: bool,
}

/// Packets of a flow, and their octets.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    packets: u64,
    octets: u64,
}

/// The pinholes of this node. [`Pinholes::request`] and [`Pinholes::release`] only queue; [`Pinholes::flush`] carries out,
/// many at once.
pub struct Pinholes {
    config: PinholeConfig,
    table: Table,
    flows: Flows,
    wanted: Vec<Operation>,
    index: Index,
    /// What was counted by elements that others have replaced: a kernel that prolongs no element in place begins to count anew.
    counted: HashMap<Flow, Counted>,
    walks: Walks,
    next_check: Instant,
    /// When this process removes what a former process left, and no pinhole has replaced.
    adopted: Option<Instant>,
    counters: PinholeCounters,
    laid: bool,
}

impl Pinholes {
    /// Makes our table in this thread's network namespace. Pinholes of a former process that ended stay open until their
    /// time, or until a pinhole for the same packets replaces them.
    ///
    /// # Errors
    /// The kernel lacks a part, or this process a privilege.
    pub fn open(config: &PinholeConfig) -> Result<Self, OpenError> {
        if config.mark.count_ones() != 1 {
            return Err(OpenError::new(
                "bad-mark",
                format!("the mark {:#x} of pinholes is not one bit", config.mark),
                "correct the configuration",
            ));
        }
        let flows =
            Flows::open(config.mark).map_err(|error| OpenError::system("opening ctnetlink", &error))?;
        let mut table = Table::open(config)?;
        let index = left::inherited(&mut table);
        Ok(Self {
            config: config.clone(),
            table,
            flows,
            wanted: Vec::new(),
            index,
            counted: HashMap::new(),
            walks: Walks::default(),
            next_check: Instant::now(),
            adopted: None,
            counters: PinholeCounters::default(),
            laid: true,
        })
    }

    /// Queues a pinhole that is to be open for this time: a new one, a changed one or one to be prolonged.
    /// [`Self::flush`] returns the result.
    pub fn request(&mut self, id: PinholeId, pinhole: Pinhole, lifetime: Duration) {
        self.wanted.push(Operation::Request(id, pinhole, lifetime));
    }

    /// Queues the end of a pinhole and of the flows that it let in. An unknown one is ignored.
    pub fn release(&mut self, id: PinholeId) {
        self.wanted.push(Operation::Release(id));
    }

    /// Whether there is nothing to do now.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.wait_time() != Some(Duration::ZERO)
    }

    /// The time after which [`Self::flush`] has something to do; `None`: only after a request.
    #[must_use]
    pub fn wait_time(&self) -> Option<Duration> {
        if !self.wanted.is_empty() || self.flows.is_walking() {
            return Some(Duration::ZERO);
        }
        let walk = self.walks.next(self.next_check);
        let check = self.watches().then_some(self.next_check);
        let adopted = self.adopted.filter(|_| self.index.inherits());
        let next = walk.into_iter().chain(check).chain(adopted).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Whether other programs can remove something of ours.
    fn watches(&self) -> bool {
        !self.config.accept_in.is_empty() || !self.table.is_owned()
    }

    /// Carries out the queued requests in order, and returns one result for each [`Self::request`]. A change that failed
    /// leaves the previous state.
    pub fn flush(&mut self) -> Vec<(PinholeId, Result<(), PinholeError>)> {
        let now = Instant::now();
        let mut results = Vec::new();
        let (mut steps, mut ids, mut touched) = (Vec::new(), HashSet::new(), HashSet::new());
        for operation in std::mem::take(&mut self.wanted) {
            // Each flow and each pinhole changes once in a transaction.
            let flows = self.flows_of(&operation);
            let inherits = flows.iter().any(|flow| self.index.is_inherited(flow));
            if steps.len() == MOST_AT_ONCE
                || inherits
                || ids.contains(&operation.id())
                || flows.iter().any(|flow| touched.contains(flow))
            {
                self.carry_out(std::mem::take(&mut steps), &mut results);
                ids.clear();
                touched.clear();
            }
            match self.plan(&operation, now) {
                Ok(step) => {
                    ids.insert(operation.id());
                    touched.extend(flows);
                    steps.push(step);
                    if inherits {
                        self.carry_out(std::mem::take(&mut steps), &mut results);
                    }
                }
                Err(error) => results.push((operation.id(), Err(error))),
            }
        }
        self.carry_out(steps, &mut results);
        for (_, result) in &results {
            match result {
                Ok(()) => {}
                Err(PinholeError::Full) => self.counters.full += 1,
                Err(PinholeError::Conflict) => self.counters.conflict += 1,
                Err(PinholeError::Unsupported | PinholeError::Failed) => self.counters.failed += 1,
            }
        }
        self.maintain();
        results
    }

    /// The flows that an operation is about.
    fn flows_of(&self, operation: &Operation) -> Vec<Flow> {
        let held = self.index.get(operation.id()).into_iter().flat_map(|held| &held.parts);
        let mut flows: Vec<Flow> = held.map(|(flow, _)| *flow).collect();
        if let Operation::Request(_, pinhole, _) = operation
            && let Ok(parts) = Flow::of(pinhole)
        {
            flows.extend(parts.into_iter().map(|(flow, _)| flow));
        }
        flows
    }

    /// Enters an operation into the index, and finds what changes in the kernel.
    fn plan(&mut self, operation: &Operation, now: Instant) -> Result<Step, PinholeError> {
        let (id, new) = match operation {
            Operation::Release(id) => (*id, None),
            Operation::Request(id, pinhole, lifetime) => {
                let parts = Flow::of(pinhole)?;
                let translated = pinhole.source.is_some() || pinhole.destination.is_some();
                if translated && !self.config.translate {
                    return Err(PinholeError::Unsupported);
                }
                if self.index.get(*id).is_none() && self.index.len() >= self.config.max as usize {
                    return Err(PinholeError::Full);
                }
                if parts.iter().any(|(flow, action)| self.index.conflicts(*id, flow, action)) {
                    return Err(PinholeError::Conflict);
                }
                (*id, Some(Held { parts, until: now + *lifetime }))
            }
        };
        let parts = new.as_ref().map(|held| held.parts.clone()).unwrap_or_default();
        let former = self.index.put(id, new);
        let (mut changes, mut gone, mut counted) = (Vec::new(), Vec::new(), Vec::new());
        let old = former.as_ref().map_or(&[][..], |held| &held.parts);
        for part in old.iter().filter(|part| !parts.contains(part)) {
            let (flow, action) = part;
            match self.index.until(flow).filter(|_| self.index.action(flow) == Some(*action)) {
                // Another pinhole is for the same packets.
                Some(until) => {
                    counted.extend(self.counted_before(part));
                    self.add(part, until - now, true, &mut changes);
                }
                None => {
                    let removal = self.table.removal();
                    let entries = ruleset::entries(flow, action).into_iter();
                    changes.extend(entries.map(|entry| (entry, removal)));
                    gone.push(*flow);
                }
            }
        }
        for part in &parts {
            let until = self.index.until(&part.0).unwrap_or(now);
            let stands =
                old.contains(part) || self.index.is_shared(&part.0) || self.index.is_inherited(&part.0);
            if stands {
                counted.extend(self.counted_before(part));
            }
            self.add(part, until - now, stands, &mut changes);
        }
        let inherits = parts.iter().any(|(flow, _)| self.index.is_inherited(flow));
        let new = parts.iter().filter(|part| !old.contains(part) && part.1.translates());
        let translated = new.map(|(flow, _)| *flow).collect();
        Ok(Step { operation: operation.clone(), changes, gone, translated, counted, former, inherits })
    }

    /// What the element of a part has counted that another one replaces.
    fn counted_before(&mut self, (flow, action): &(Flow, Action)) -> Option<(Flow, Counted)> {
        if self.table.prolongs() {
            return None;
        }
        let State { packets, octets, .. } = self.table.state(&ruleset::verdict_of(flow, action)).ok()??;
        Some((*flow, Counted { packets, octets }))
    }

    /// Notes the elements of a part of a pinhole, which may stand already.
    fn add(
        &self,
        (flow, action): &(Flow, Action),
        left: Duration,
        stands: bool,
        changes: &mut Vec<(Entry, Change)>,
    ) {
        for entry in ruleset::entries(flow, action) {
            if stands && !self.table.prolongs() {
                changes.push((entry.clone(), Change::Delete));
            }
            changes.push((entry, Change::Add(left)));
        }
    }

    /// Brings steps into the kernel: all at once, or one by one if the kernel refuses that.
    fn carry_out(&mut self, steps: Vec<Step>, results: &mut Vec<(PinholeId, Result<(), PinholeError>)>) {
        if steps.is_empty() {
            return;
        }
        let inherits = steps.iter().any(|step| step.inherits);
        if !inherits && self.table.change(steps.iter().flat_map(|step| &step.changes)).is_ok() {
            steps.into_iter().for_each(|step| self.settle(step, results));
            return;
        }
        let mut operations = Vec::with_capacity(steps.len());
        for step in steps.into_iter().rev() {
            self.index.put(step.operation.id(), step.former);
            operations.push(step.operation);
        }
        for operation in operations.into_iter().rev() {
            let id = operation.id();
            match self.plan(&operation, Instant::now()) {
                Ok(step) => match self.carry_out_one(&step) {
                    Ok(()) => self.settle(step, results),
                    Err(error) => {
                        tracing::debug!(%id, %error, "the kernel refused");
                        self.index.put(id, step.former);
                        if matches!(operation, Operation::Request(..)) {
                            results.push((id, Err(reason(&error))));
                        }
                    }
                },
                Err(error) => results.push((id, Err(error))),
            }
        }
    }

    /// Brings one step into the kernel. Elements that have reached their timeout, or that a former process left, are no
    /// reason to refuse it.
    fn carry_out_one(&mut self, step: &Step) -> io::Result<()> {
        if !step.inherits && self.table.change(&step.changes).is_ok() {
            return Ok(());
        }
        let added: Vec<Entry> = step
            .changes
            .iter()
            .filter(|(_, change)| matches!(change, Change::Add(_)))
            .map(|(entry, _)| entry.clone())
            .collect();
        if step.inherits {
            for flow in self.flows_of(&step.operation) {
                self.table.clear(&ruleset::elsewhere(&flow, &added))?;
                self.index.disinherit(&flow);
            }
            // What is equal is only prolonged, so that its flows go on.
            if self.table.change(&step.changes).is_ok() {
                return Ok(());
            }
        }
        self.table.clear(step.changes.iter().map(|(entry, _)| entry))?;
        let result =
            self.table.change(step.changes.iter().filter(|(_, change)| matches!(change, Change::Add(_))));
        if result.is_err()
            && let Some(former) = &step.former
        {
            let left = former.until.saturating_duration_since(Instant::now());
            let entries = former.parts.iter().flat_map(|(flow, action)| ruleset::entries(flow, action));
            let changes: Vec<_> = entries.map(|entry| (entry, Change::Add(left))).collect();
            self.table.change(&changes)?;
        }
        result
    }

    /// The kernel has what a step asked for.
    fn settle(&mut self, step: Step, results: &mut Vec<(PinholeId, Result<(), PinholeError>)>) {
        for (flow, Counted { packets, octets }) in &step.counted {
            let counted = self.counted.entry(*flow).or_default();
            counted.packets += packets;
            counted.octets += octets;
        }
        for flow in &step.gone {
            self.counted.remove(flow);
            match flow.tuple() {
                Some(tuple) => {
                    if let Err(error) = self.flows.end(&tuple) {
                        tracing::debug!(%error, "a flow was not found");
                        self.walks.want();
                    }
                }
                None => self.walks.want(),
            }
        }
        // A flow of any port or sender may stand untranslated until it pauses: a search would visit all flows of the node.
        for tuple in step.translated.iter().filter_map(Flow::tuple) {
            if let Err(error) = self.flows.begin_anew(&tuple) {
                tracing::debug!(%error, "a flow that stood before its binding was not found");
            }
        }
        match (step.operation, step.former) {
            (Operation::Request(id, ..), None) => {
                self.counters.opened += 1;
                results.push((id, Ok(())));
            }
            (Operation::Request(id, ..), Some(_)) => {
                self.counters.prolonged += 1;
                results.push((id, Ok(())));
            }
            (Operation::Release(_), former) => self.counters.closed += u64::from(former.is_some()),
        }
    }

    /// Deletes flows whose pinholes are closed, and restores what other programs have removed.
    fn maintain(&mut self) {
        let now = Instant::now();
        self.step_left(now);
        match self.end_flows(now) {
            Ok(()) => self.walks.ended(self.flows.is_walking()),
            // They pass without a pinhole.
            Err(error) => self.walks.failed(&error),
        }
        if self.watches() && self.next_check <= now {
            self.next_check = now + CHECKS;
            match self.table.check() {
                Ok(false) => {}
                Ok(true) => self.restore(now),
                Err(error) => tracing::warn!(%error, "the ruleset cannot be checked"),
            }
        }
    }

    fn end_flows(&mut self, now: Instant) -> io::Result<()> {
        // What was found before the walk failed is deleted nevertheless.
        let walked = self.walk_flows(now);
        self.flows.delete(&mut self.counters.flows_ended)?;
        walked
    }

    /// Begins a walk over all flows, if one is due, and reads some portions of it.
    fn walk_flows(&mut self, now: Instant) -> io::Result<()> {
        if !self.flows.is_walking() && self.walks.begin(now) {
            self.index.remove_expired(now);
            self.flows.begin_walk()?;
        }
        for _ in 0..PORTIONS {
            if !self.flows.is_walking() {
                break;
            }
            let index = &self.index;
            self.flows.step(|first, answer| index.lets_in(first, answer))?;
        }
        Ok(())
    }

    /// Fills our table again, which another program had removed.
    fn restore(&mut self, now: Instant) {
        self.counters.restored += 1;
        tracing::warn!("another program removed the table of pinholes; it is made again");
        let changes: Vec<(Entry, Change)> = self
            .index
            .flows()
            .filter(|(.., until)| *until > now)
            .flat_map(|(flow, action, until)| {
                let entries = ruleset::entries(flow, action).into_iter();
                entries.map(move |entry| (entry, Change::Add(until - now)))
            })
            .collect();
        for some in changes.chunks(MOST_AT_ONCE) {
            if let Err(error) = self.table.change(some) {
                tracing::warn!(%error, "pinholes were not opened again");
            }
        }
    }

    /// How the kernel translates a flow that it tracks already, by connection tracking alone; `None`: it does not, or the
    /// packets have no exact addresses and ports. It asks the kernel once, and does not wait.
    pub fn find(&mut self, packets: &FlowFilter) -> Option<Translation> {
        let found = self.flows.translation(&Tuple::of(packets)?);
        found.inspect_err(|error| tracing::debug!(%error, "connection tracking cannot be asked")).ok()?
    }

    /// What the kernel has of these pinholes; `None`: it has no such pinhole any more.
    pub fn read(&mut self, ids: &[PinholeId]) -> Vec<Option<PinholeView>> {
        ids.iter().map(|id| self.view(*id)).collect()
    }

    fn view(&mut self, id: PinholeId) -> Option<PinholeView> {
        let mut view: Option<PinholeView> = None;
        for (flow, action) in &self.index.get(id)?.parts {
            let before = self.counted.get(flow).copied().unwrap_or_default();
            let entry = ruleset::verdict_of(flow, action);
            let state = self.table.state(&entry).inspect_err(|error| tracing::debug!(%error, "no counters"));
            let Ok(Some(state)) = state else { continue };
            let view = view.get_or_insert(PinholeView { packets: 0, octets: 0, time_left: state.left });
            view.packets += before.packets + state.packets;
            view.octets += before.octets + state.octets;
        }
        view
    }

    /// The number of pinholes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are no pinholes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &PinholeCounters {
        &self.counters
    }

    /// Closes all pinholes, ends their flows, and removes what we made.
    ///
    /// # Errors
    /// The kernel refuses a part; the others are removed nevertheless.
    pub fn close(mut self) -> Result<(), OpenError> {
        self.take_away().map_err(|error| OpenError::system("removing the table of pinholes", &error))
    }

    fn take_away(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.laid) {
            return Ok(());
        }
        let removed = self.table.remove();
        let ended = (|| {
            self.flows.begin_walk()?;
            while self.flows.is_walking() {
                self.flows.step(|_, _| false)?;
            }
            self.flows.delete(&mut self.counters.flows_ended)
        })();
        removed.and(ended)
    }
}

impl Drop for Pinholes {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            tracing::warn!(%error, "the table of pinholes stays behind; signalboxd --clean removes it");
        }
    }
}

fn reason(error: &io::Error) -> PinholeError {
    match error.raw_os_error() {
        Some(libc::ENFILE | libc::ENOSPC | libc::ENOMEM) => PinholeError::Full,
        Some(libc::EEXIST | libc::ENOTEMPTY | libc::EBUSY) => PinholeError::Conflict,
        _ => PinholeError::Failed,
    }
}
