//! The run: a scenario from its first step to its evidence, in network namespaces with real daemons, or in virtual time.
//!
//! `net` makes the network of a plan and takes it down, `lab` has the daemons, `steps` does the steps, `observe` reads the packets
//! of all links, `simulation` does the same in virtual time. What was observed is in `evidence`. Nothing is judged here but what
//! a step itself waits for.

mod certificates;
pub(crate) mod command;
pub(crate) mod daemon;
pub(crate) mod evidence;
pub(crate) mod expectation;
pub(crate) mod kernel;
pub(crate) mod lab;
pub mod machine;
pub(crate) mod net;
pub(crate) mod observe;
mod packets;
mod programs;
pub mod provenance;
mod queues;
pub(crate) mod requires;
mod routing;
pub mod scratch;
pub(crate) mod simulation;
mod state;
pub(crate) mod steps;
pub(crate) mod usage;
pub(crate) mod wait;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use signalbox_linux::multicast::MulticastRouter;

use crate::language::checks::{Check, Wanted};
use crate::language::{START, Scenario};
use crate::plan::Plan;
use crate::plan::subset::is_line;
use evidence::{Evidence, Outcome};
use expectation::Held;
use lab::Lab;
use observe::capture::Captures;
use observe::dissect;
use steps::act_of;
use steps::program::Process;
use usage::Reading;

/// Shows a person how far the run is.
pub(crate) type Progress<'a> = dyn Fn(&str) + 'a;

/// A run that is going on.
pub(crate) struct Run<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) lab: &'a mut Lab,
    pub(crate) captures: Captures,
    pub(crate) evidence: Evidence,
    /// The programs of `run` steps that may still run.
    pub(crate) programs: Vec<Process>,
    /// The seed of what the lab draws at random.
    pub(crate) seed: u64,
    /// The kernels forward multicast for as long as these live.
    routers: Vec<MulticastRouter>,
    /// What the last steps saw and what has to stay so until something else is done.
    held: Vec<Held<'a>>,
    background: BTreeMap<String, Box<dyn Background>>,
    progress: &'a Progress<'a>,
}

/// Something that goes on while other steps are taken.
pub(crate) trait Background: Debug {
    /// Ends it, or waits for its end, and records what was observed.
    ///
    /// # Errors
    /// What keeps the run from going on.
    fn stop(self: Box<Self>, id: &str, run: &mut Run<'_>) -> Result<()>;
}

impl<'a> Run<'a> {
    /// Starts captures and daemons of a lab whose network stands.
    pub(crate) fn start(
        scenario: &'a Scenario,
        lab: &'a mut Lab,
        progress: &'a Progress<'a>,
    ) -> Result<Self> {
        let captures = Captures::start(&lab.plan)?;
        progress("starting the daemons");
        lab.start_all()?;
        let evidence = Evidence::new(lab.plan.clone());
        let routers = multicast(scenario, &lab.plan)?;
        let (programs, held, background) = (Vec::new(), Vec::new(), BTreeMap::new());
        let seed = scenario.seed;
        Ok(Self { scenario, lab, captures, evidence, programs, seed, routers, held, background, progress })
    }

    /// Takes the steps, and ends what they started.
    pub(crate) fn work(&mut self) -> Result<()> {
        let scenario = self.scenario;
        let begin = now()?;
        self.evidence.spans.insert(START.to_owned(), (begin, begin));
        self.evidence.moments.insert(START.to_owned(), begin);
        self.read(START)?;
        let whole = Reading::new(self.lab, begin);
        let mut over = Instant::now();
        for (number, named) in scenario.workload.iter().enumerate() {
            wait::check()?;
            let id = named.name(number);
            let expectation = named.step.expectation();
            if expectation.is_none() {
                self.keep()?;
            }
            let begin = now()?;
            // A flow may ask for its own begin while it goes on.
            self.evidence.spans.insert(id.clone(), (begin, Duration::MAX));
            let window = named.id.is_some() && named.kind == "wait";
            let before = window.then(|| Reading::new(self.lab, begin));
            act_of(&named.step).run(self, &id)?;
            let end = now()?;
            if let Some(before) = before {
                self.evidence.record(Reading::new(self.lab, end).since(&before, Some(&id)));
            }
            match expectation {
                Some(expectation) if !expectation.holds().is_zero() => {
                    let outcomes = &self.evidence.outcomes;
                    if let Some(place) = outcomes.len().checked_sub(1).filter(|last| outcomes[*last].ok) {
                        self.held.push(Held { expectation, since: Instant::now(), place });
                    }
                }
                Some(_) => {}
                None => over = Instant::now(),
            }
            if !self.goes_on(&id) {
                self.ended(&id)?;
            }
            self.evidence.moments.insert(id.clone(), if named.step.moment_is_end() { end } else { begin });
            if named.id.is_some() {
                match named.kind {
                    "wait" => drop(self.evidence.windows.insert(id.clone(), (begin, end))),
                    "link" | "daemon" => self.evidence.marks.push((begin, id.clone())),
                    _ => {}
                }
            }
            self.read(&id)?;
        }
        self.keep()?;
        let running: Vec<usize> = self.lab.running().collect();
        self.evidence.verdicts.extend(expectation::observe(&scenario.checks, &self.lab.plan, &running)?);
        let listens = scenario.checks.iter().map(|check| check.check.listens()).max().unwrap_or_default();
        wait::pass(listens.saturating_sub(over.elapsed()))?;
        let left: Vec<String> = self.background.keys().cloned().collect();
        left.iter().try_for_each(|id| self.stop(id))?;
        while let Some(program) = self.programs.first() {
            let id = program.run.id.clone().unwrap_or_default();
            if program.run.reserves { self.stop(&id)? } else { self.wait_end(&id)? }
        }
        let used = Reading::new(self.lab, now()?).since(&whole, None);
        self.evidence.record(used);
        Ok(())
    }

    /// Waits until what the last steps saw has stayed so for its time.
    fn keep(&mut self) -> Result<()> {
        let running: Vec<usize> = self.lab.running().collect();
        let held = std::mem::take(&mut self.held);
        for (place, seen) in expectation::keep(held, &self.lab.plan, &running)? {
            self.progress(&format!("it is not so: {seen}"));
            let outcome = &mut self.evidence.outcomes[place];
            *outcome = Outcome::new(&outcome.name, Err(seen));
        }
        Ok(())
    }

    /// Reads what checks compare at the end of a step.
    fn read(&mut self, id: &str) -> Result<()> {
        let mut wanted: Vec<Wanted> =
            self.scenario.checks.iter().flat_map(|check| check.check.needs()).collect();
        wanted.retain(|wanted| wanted.place().0 == id);
        wanted.iter().try_for_each(|wanted| self.read_one(id, wanted))?;
        // What has to hold for a time is read once more at the end of this time.
        wanted.retain(|wanted| !wanted.holds().is_zero());
        wait::pass(wanted.iter().map(Wanted::holds).max().unwrap_or_default())?;
        wanted.iter().try_for_each(|wanted| self.read_one(id, wanted))
    }

    fn read_one(&mut self, id: &str, wanted: &Wanted) -> Result<()> {
        let node = self.node(wanted.place().1)?;
        let planned = &self.lab.plan.nodes[node];
        let key = (id.to_owned(), node);
        match wanted {
            Wanted::Kernel { .. } => {
                let rules = net::rules(&kernel::namespace(&planned.namespace)?)?;
                self.evidence.kernels.entry(key).or_default().push(rules);
            }
            Wanted::Counters { .. } => {
                let text = command::counters(&self.lab.plan.name, planned)?;
                self.evidence.counters.entry(key).or_default().push(text);
            }
        }
        Ok(())
    }

    /// Whether a step goes on while others are taken.
    fn goes_on(&self, id: &str) -> bool {
        self.background.contains_key(id)
            || self.programs.iter().any(|program| program.run.id.as_deref() == Some(id))
    }

    /// Remembers that a step has ended.
    fn ended(&mut self, id: &str) -> Result<()> {
        if let Some(span) = self.evidence.spans.get_mut(id) {
            span.1 = now()?;
        }
        Ok(())
    }

    /// Ends the daemons (unless they are to stay) and collects what was observed. The packets of the links are still there.
    pub(crate) fn finish(mut self, keep: bool) -> Result<(Evidence, Captures)> {
        self.evidence.losses = net::losses(&self.lab.plan)?;
        if !keep {
            self.progress("stopping the daemons");
            let mut stops = self.lab.stop_all()?;
            let rests =
                self.scenario.checks.iter().map(|check| check.check.rests()).max().unwrap_or_default();
            if !rests.is_zero() && !stops.is_empty() {
                wait::pass(rests)?;
                for stop in &mut stops {
                    stop.look(&self.lab.plan)?;
                }
            }
            self.evidence.stops.extend(stops);
        }
        let faults = self.lab.faults();
        if !faults.is_empty() {
            let name = "no daemon finds its own state wrong";
            self.evidence.outcomes.push(Outcome::new(name, Err(faults.join("; "))));
        }
        self.captures.stop()?;
        self.evidence.trace = self.captures.trace();
        if self.scenario.checks.iter().any(|check| matches!(check.check, Check::Dissected(_))) {
            self.progress("reading the captures with tshark");
            let report = dissect::read_all(&self.captures, &self.lab.plan);
            self.evidence.record(report);
        }
        self.routers.clear();
        Ok((self.evidence, self.captures))
    }

    /// Shows a person what happens now.
    pub(crate) fn progress(&self, what: &str) {
        (self.progress)(what);
    }

    /// Returns the index of a node.
    pub(crate) fn node(&self, name: &str) -> Result<usize> {
        self.lab.plan.node(name).ok_or_else(|| anyhow!("no node {name}"))
    }

    /// Returns the index of a link.
    pub(crate) fn link(&self, name: &str) -> Result<usize> {
        self.lab.plan.link(name).ok_or_else(|| anyhow!("no link {name}"))
    }

    /// Returns the indexes of two nodes, and the address of the second.
    pub(crate) fn ends(&self, from: &str, to: &str) -> Result<(usize, usize, IpAddr)> {
        let (from, to) = (self.node(from)?, self.node(to)?);
        let address = self.lab.plan.address(to).ok_or_else(|| anyhow!("{to} has no address"))?;
        Ok((from, to, address))
    }

    /// Lets something go on while the next steps are taken.
    pub(crate) fn in_background(&mut self, name: &str, what: impl Background + 'static) {
        self.background.insert(name.to_owned(), Box::new(what));
    }

    /// Ends a step that goes on. It may have ended before.
    pub(crate) fn stop(&mut self, id: &str) -> Result<()> {
        if let Some(background) = self.background.remove(id) {
            background.stop(id, self)?;
            return self.ended(id);
        }
        if let Some(program) = self.programs.iter_mut().find(|program| program.run.id.as_deref() == Some(id))
        {
            program.interrupt()?;
        }
        self.wait_end(id)
    }

    /// Waits for the end of a step that goes on. It may have ended before.
    pub(crate) fn wait_end(&mut self, id: &str) -> Result<()> {
        if let Some(at) = self.programs.iter().position(|program| program.run.id.as_deref() == Some(id)) {
            let program = self.programs.remove(at);
            let run = program.finish(&self.evidence)?;
            self.evidence.record(run);
            return self.ended(id);
        }
        match self.background.remove(id) {
            Some(background) => {
                background.stop(id, self)?;
                self.ended(id)
            }
            None => Ok(()),
        }
    }

    /// Waits until a program prints a line like this, or ends; `false`: no such line came.
    pub(crate) fn wait_line(&mut self, id: &str, wanted: &toml::Value, within: Duration) -> Result<bool> {
        let mut programs = self.programs.iter_mut();
        let Some(program) = programs.find(|program| program.run.id.as_deref() == Some(id)) else {
            return Ok(false);
        };
        // The time of the program itself goes on afterwards.
        let deadline = program.deadline;
        program.limit(within);
        let came = program.wait(&self.evidence, |evidence, line| is_line(&evidence.plan, wanted, line));
        program.deadline = deadline.max(program.deadline);
        came
    }
}

/// Sets the multicast routes of the file.
fn multicast(scenario: &Scenario, plan: &Plan) -> Result<Vec<MulticastRouter>> {
    let mut routers: BTreeMap<usize, MulticastRouter> = BTreeMap::new();
    let index = |name: &str| plan.node(name).ok_or_else(|| anyhow!("no node {name}"));
    for tree in &scenario.multicast {
        let (node, source) = (index(tree.node.as_ref())?, index(tree.source.as_ref())?);
        let planned = &plan.nodes[node];
        let source = plan.address(source).ok_or_else(|| anyhow!("a sender without an address"))?;
        let interface = |neighbor: &str| -> Result<String> {
            let peer = index(neighbor)?;
            let found = planned.interfaces.iter().find(|interface| interface.peer.0 == peer);
            Ok(found.ok_or_else(|| anyhow!("no link to {neighbor}"))?.name.clone())
        };
        let iif = interface(tree.from.as_ref())?;
        let oifs = tree.to.iter().map(|to| interface(to.as_ref())).collect::<Result<Vec<_>>>()?;
        let namespace = kernel::namespace(&planned.namespace)?;
        let router = routers.entry(node).or_default();
        router
            .set_route(&namespace, *tree.group.as_ref(), source, &iif, &oifs)
            .with_context(|| format!("cannot lay the multicast route of {}", planned.name))?;
    }
    Ok(routers.into_values().collect())
}

/// Returns the time since 1970.
pub(crate) fn now() -> Result<Duration> {
    SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")
}
