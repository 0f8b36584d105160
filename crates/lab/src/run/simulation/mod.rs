//! Scenarios in virtual time.
//!
//! The network of a plan becomes a network of the simulator, and each daemon a node with the same configuration. Steps and
//! checks are those of the lab, as far as they need neither the kernel nor programs. All randomness follows from one number:
//! with the same seed and the same faults a run is the same, octet by octet.

pub(crate) mod client;
pub(crate) mod fault;
mod frames;
mod network;
mod rows;

use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use serde_json::Value;
use signalbox_node::Command;

use crate::language::{START, Scenario};
use crate::plan::Plan;
use crate::plan::subset::is_line;
use crate::protocols::frame::Frame;
use crate::run::evidence::{Evidence, Outcome};
use crate::run::steps::act_of;
use client::{Client, Running};
use fault::{Act, Fault};
use network::Network;
pub(crate) use rows::is_table;

/// Virtual time between two looks at what nodes show.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// What a user started has this long to end when asked to.
const END: Duration = Duration::from_secs(15);
/// The name of the outcome of a run in which an engine panicked.
const NO_PANIC: &str = "no engine panics";

/// What a run is made of, beside the scenario.
#[derive(Debug, Clone, Default)]
pub(crate) struct Order {
    pub(crate) seed: u64,
    pub(crate) faults: Vec<Fault>,
    /// Only so many of the first steps.
    pub(crate) steps: Option<usize>,
}

/// Something of the scenario that was not done or judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LeftOut {
    pub(crate) name: String,
    pub(crate) why: String,
}

/// What a run left behind, to be judged.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) evidence: Evidence,
    pub(crate) left_out: Vec<LeftOut>,
    /// The steps that were taken.
    pub(crate) steps: usize,
    /// The virtual time at the end.
    pub(crate) virtual_us: u64,
    /// All steps were taken, so that the checks can judge the evidence.
    pub(crate) whole: bool,
    /// Octets went over TCP connections, which are in no capture.
    pub(crate) streams: bool,
    /// The frames of each link.
    pub(crate) traffic: Vec<Vec<Frame>>,
}

/// Returns the steps and parts of a scenario that the simulator cannot do, each with its number and the reason.
pub(crate) fn unsupported(scenario: &Scenario) -> Vec<LeftOut> {
    let name = |what: &str| LeftOut { name: what.to_owned(), why: String::new() };
    let mut all = Vec::new();
    if !scenario.files.is_empty() {
        let why = "keys come from files, which a simulated node does not read".to_owned();
        all.push(LeftOut { why, ..name("`files`") });
    }
    for node in scenario.nodes.iter().filter(|node| node.certificate.is_some()) {
        let why = "the randomness of TLS follows from no seed".to_owned();
        all.push(LeftOut { why, ..name(&format!("`certificate` of {}", node.name.as_ref())) });
    }
    for node in &scenario.nodes {
        for (given, key) in [(!node.setup.is_empty(), "setup"), (node.routing.is_some(), "routing")] {
            if given {
                let why = "a simulated node has no kernel and no programs beside the daemon".to_owned();
                all.push(LeftOut { why, ..name(&format!("`{key}` of {}", node.name.as_ref())) });
            }
        }
    }
    for (number, named) in scenario.workload.iter().enumerate() {
        if let Some(why) = act_of(&named.step).unsimulated() {
            all.push(LeftOut { name: step_name(scenario, number), why });
        }
    }
    all
}

/// Returns the name of a step in reports: its number, kind and id.
pub(crate) fn step_name(scenario: &Scenario, number: usize) -> String {
    let Some(named) = scenario.workload.get(number) else { return format!("step {}", number + 1) };
    let id = named.id.as_ref().map(|id| format!(" {:?}", id.as_ref())).unwrap_or_default();
    format!("step {} (`{}`{id})", number + 1, named.kind)
}

/// Runs a scenario. Steps that the simulator cannot take are left out.
///
/// # Errors
/// The network cannot be made. Whatever goes wrong later is an outcome.
pub(crate) fn run(scenario: &Scenario, order: &Order) -> Result<Ran> {
    let mut run = Simulation::new(scenario, order)?;
    let worked = catch_unwind(AssertUnwindSafe(|| run.work(order)));
    Ok(match worked {
        Ok(Ok(())) => run.finish(order),
        Ok(Err(error)) => {
            run.evidence.outcomes.push(Outcome::new("the steps can be taken", Err(format!("{error:#}"))));
            run.finish(order)
        }
        Err(panic) => {
            // The network may be half changed, so that it is not asked any more.
            let mut evidence = Evidence::new(run.evidence.plan.clone());
            evidence.outcomes = run.evidence.outcomes.clone();
            evidence.outcomes.push(Outcome::new(NO_PANIC, Err(said(&*panic))));
            let (steps, virtual_us) = (run.taken, run.virtual_us());
            // Its end would panic again.
            std::mem::forget(run);
            let (left_out, traffic) = (Vec::new(), Vec::new());
            Ran { evidence, left_out, steps, virtual_us, whole: false, streams: false, traffic }
        }
    })
}

/// Rounds a time up to the microseconds in which the simulator counts.
fn in_micros(time: Duration) -> Duration {
    let micros = time.as_nanos().div_ceil(1000);
    u64::try_from(micros).map_or(Duration::MAX, Duration::from_micros)
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("an engine panicked").to_owned()
}

/// A run that is going on.
pub(crate) struct Simulation<'a> {
    scenario: &'a Scenario,
    pub(crate) evidence: Evidence,
    pub(crate) network: Network,
    /// The seed of what a step draws at random.
    pub(crate) seed: u64,
    /// What users started and did not end yet, in the order of their beginning.
    clients: Vec<Running>,
    /// The identifier of the next request of a user.
    next: u64,
    /// What faults do, in the order of time.
    acts: VecDeque<(Duration, Act)>,
    /// The nodes whose daemon the scenario has ended.
    ended: BTreeSet<usize>,
    left_out: Vec<LeftOut>,
    taken: usize,
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario, order: &Order) -> Result<Self> {
        let plan = Plan::new(scenario);
        let network = Network::new(scenario, &plan, order.seed)?;
        let acts = fault::acts(&plan, &order.faults)?;
        Ok(Self {
            scenario,
            evidence: Evidence::new(plan),
            network,
            seed: order.seed,
            clients: Vec::new(),
            next: 1,
            acts: acts.into(),
            ended: BTreeSet::new(),
            left_out: Vec::new(),
            taken: 0,
        })
    }

    /// Takes the steps, and ends what they started.
    fn work(&mut self, order: &Order) -> Result<()> {
        let scenario = self.scenario;
        // Nodes learn their interfaces before anything is asked of them.
        self.advance(Duration::ZERO);
        let begin = self.now();
        self.evidence.spans.insert(START.to_owned(), (begin, begin));
        self.evidence.moments.insert(START.to_owned(), begin);
        let limit = order.steps.unwrap_or(usize::MAX);
        for (number, named) in scenario.workload.iter().enumerate().take(limit) {
            self.taken = number + 1;
            if let Some(why) = act_of(&named.step).unsimulated() {
                self.left_out.push(LeftOut { name: step_name(scenario, number), why });
                continue;
            }
            let id = named.name(number);
            let begin = self.now();
            self.evidence.spans.insert(id.clone(), (begin, Duration::MAX));
            act_of(&named.step).simulate(self, &id).with_context(|| step_name(scenario, number))?;
            let end = self.now();
            if !self.clients.iter().any(|running| running.step == id) {
                self.step_ended(&id);
            }
            self.evidence.moments.insert(id.clone(), if named.step.moment_is_end() { end } else { begin });
        }
        if limit >= scenario.workload.len() {
            for (number, check) in scenario.checks.iter().enumerate() {
                if let Some(expectation) = check.check.expectation() {
                    let verdict = expectation.simulated_verdict(self);
                    self.evidence.verdicts.insert(number, verdict);
                }
            }
        }
        while let Some(running) = self.clients.first() {
            let step = running.step.clone();
            self.stop(&step);
        }
        Ok(())
    }

    /// Collects what was observed.
    fn finish(mut self, order: &Order) -> Ran {
        let (trace, traffic) = self.network.traffic(&self.evidence.plan);
        self.evidence.trace = trace;
        Ran {
            left_out: std::mem::take(&mut self.left_out),
            steps: self.taken,
            virtual_us: self.virtual_us(),
            whole: order.steps.is_none_or(|steps| steps >= self.scenario.workload.len()),
            streams: self.network.used_streams(),
            traffic,
            evidence: self.evidence,
        }
    }

    /// Returns the present time since 1970.
    pub(crate) fn now(&self) -> Duration {
        self.network.now()
    }

    fn virtual_us(&self) -> u64 {
        u64::try_from(self.network.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the index of a node.
    pub(crate) fn node(&self, name: &str) -> Result<usize> {
        self.evidence.plan.node(name).ok_or_else(|| anyhow!("no node {name}"))
    }

    /// Returns the index of a link.
    pub(crate) fn link(&self, name: &str) -> Result<usize> {
        self.evidence.plan.link(name).ok_or_else(|| anyhow!("no link {name}"))
    }

    /// Returns the indexes of two nodes, and the address of the second.
    pub(crate) fn ends(&self, from: &str, to: &str) -> Result<(usize, usize, IpAddr)> {
        let (from, to) = (self.node(from)?, self.node(to)?);
        let address = self.evidence.plan.address(to).ok_or_else(|| anyhow!("the node has no address"))?;
        Ok((from, to, address))
    }

    /// Returns the rows that a node shows, as `signalbox show` prints them with `--json`.
    pub(crate) fn table(&self, node: usize, words: &str) -> Result<Vec<Value>> {
        let engine = self.network.engine(node);
        let engine = engine
            .ok_or_else(|| anyhow!("the daemon of {} does not run", self.evidence.plan.nodes[node].name))?;
        rows::table(engine, &self.network.interfaces(node), words)
    }

    /// Returns the indexes of the nodes whose daemon runs.
    pub(crate) fn running(&self) -> Vec<usize> {
        (0..self.evidence.plan.nodes.len()).filter(|node| self.network.engine(*node).is_some()).collect()
    }

    /// A user of a node asks for something. It has until `within` from now to end by itself.
    pub(crate) fn begin(
        &mut self,
        step: &str,
        node: usize,
        within: Duration,
        command: impl FnOnce(u64) -> Command,
        mut client: Box<dyn Client>,
    ) {
        let (id, now) = (self.next, self.now());
        self.next += 1;
        if self.network.engine(node).is_some() {
            self.network.command(node, command(id));
        } else {
            client.node_ended(now);
        }
        self.clients.push(Running {
            step: step.to_owned(),
            node,
            id,
            deadline: now + within,
            read: 0,
            client,
        });
        self.dispatch();
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, time: Duration) {
        self.wait(time, |_| false);
    }

    /// Lets time pass until `done`, which is asked after each event of a user. Returns whether it is done.
    pub(crate) fn wait(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.network.elapsed().saturating_add(in_micros(limit));
        loop {
            self.dispatch();
            if done(self) {
                return true;
            }
            let next = self.acts.front().map_or(end, |(at, _)| end.min(*at));
            let happened = self.network.run_until(next);
            self.dispatch();
            if happened {
                continue;
            }
            if self.acts.front().is_some_and(|(at, _)| *at <= self.network.elapsed()) {
                if let Some((_, act)) = self.acts.pop_front() {
                    self.act(act);
                }
            } else if self.network.elapsed() >= end {
                return done(self);
            }
        }
    }

    /// Gives users the events of their requests.
    fn dispatch(&mut self) {
        for (at, node, event) in self.network.take_events() {
            let wanted = |running: &&mut Running| running.node == node && running.id == event.id();
            if let Some(running) = self.clients.iter_mut().find(wanted) {
                running.client.event(at, event);
            }
        }
    }

    /// Whether all that a step started has been answered.
    pub(crate) fn answered(&self, step: &str) -> bool {
        self.clients.iter().filter(|running| running.step == step).all(|running| running.client.answered())
    }

    /// Whether all that a step started has ended.
    pub(crate) fn all_ended(&self, step: &str) -> bool {
        self.clients.iter().filter(|running| running.step == step).all(|running| running.client.ended())
    }

    /// Ends what a step started, and waits for the end. It may have ended before.
    pub(crate) fn stop(&mut self, step: &str) {
        let mut commands = Vec::new();
        let (now, mut stopped) = (self.now(), false);
        for running in self.clients.iter_mut().filter(|running| running.step == step) {
            if running.client.ended() {
                continue;
            }
            if let Some(command) = running.client.stop(running.id) {
                stopped = true;
                commands.push((running.node, command));
            }
        }
        if stopped {
            for running in self.clients.iter_mut().filter(|running| running.step == step) {
                running.deadline = now + END;
            }
        }
        for (node, command) in commands {
            if self.network.engine(node).is_some() {
                self.network.command(node, command);
            }
        }
        self.wait_end(step);
    }

    /// Waits for the end of what a step started, as long as it may take. It may have ended before.
    pub(crate) fn wait_end(&mut self, step: &str) {
        let of_step = self.clients.iter().filter(|running| running.step == step);
        let Some(deadline) = of_step.map(|running| running.deadline).max() else { return };
        let left = deadline.saturating_sub(self.now());
        self.wait(left, |run| run.all_ended(step));
        let (over, left) = std::mem::take(&mut self.clients).into_iter().partition(|one| one.step == step);
        self.clients = left;
        let over: Vec<Running> = over;
        for running in over {
            // What is still under way ends with its user.
            if !running.client.ended()
                && let Some(command) = running.client.close(running.id)
                && self.network.engine(running.node).is_some()
            {
                self.network.command(running.node, command);
            }
            running.client.record(&mut self.evidence);
        }
        self.step_ended(step);
    }

    /// Waits until what a step started has printed such a line, or has ended; `false`: no such line came.
    pub(crate) fn wait_line(&mut self, step: &str, wanted: &toml::Value, within: Duration) -> bool {
        let found = |run: &Self, running: &Running| {
            let new = running.client.lines().get(running.read..).unwrap_or_default();
            new.iter().position(|line| is_line(&run.evidence.plan, wanted, line))
        };
        let came = |run: &Self| {
            let place = run.clients.iter().position(|running| running.step == step)?;
            Some((place, found(run, &run.clients[place])?))
        };
        self.wait(within, |run| came(run).is_some() || run.all_ended(step));
        let line = came(self);
        match line {
            Some((place, at)) => self.clients[place].read += at + 1,
            None => self.pass_lines(step),
        }
        line.is_some()
    }

    /// The lines that what a step started has printed are not looked for again.
    pub(crate) fn pass_lines(&mut self, step: &str) {
        for running in self.clients.iter_mut().filter(|running| running.step == step) {
            running.read = running.client.lines().len();
        }
    }

    fn step_ended(&mut self, step: &str) {
        let now = self.now();
        if let Some(span) = self.evidence.spans.get_mut(step) {
            span.1 = now;
        }
    }

    /// The scenario ends the daemon of a node.
    pub(crate) fn end_daemon(&mut self, node: usize) {
        self.ended.insert(node);
        self.crash(node);
    }

    /// The scenario starts the daemon of a node.
    pub(crate) fn start_daemon(&mut self, node: usize) {
        self.ended.remove(&node);
        self.network.restart(node);
        self.dispatch();
    }

    fn crash(&mut self, node: usize) {
        self.dispatch();
        self.network.crash(node);
        let now = self.now();
        for running in self.clients.iter_mut().filter(|running| running.node == node) {
            if !running.client.ended() {
                running.client.node_ended(now);
            }
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Link { link, cut } => self.network.fault_link(link, cut),
            Act::Loss { link, all } => self.network.fault_loss(link, all),
            Act::Crash(node) => self.crash(node),
            Act::Restart(node) if self.ended.contains(&node) => {}
            Act::Restart(node) => {
                self.network.restart(node);
                self.dispatch();
            }
        }
    }
}
