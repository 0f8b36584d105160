//! A scenario from its first step to its evidence.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use signalbox_linux::multicast::MulticastRouter;

use crate::evidence::{Evidence, Snapshot};
use crate::lab::Lab;
use crate::observe::capture::Captures;
use crate::plan::Plan;
use crate::scenario::Scenario;
use crate::steps::program::Process;
use crate::{command, kernel, net, wait};

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
    /// The kernels forward multicast for as long as these live.
    routers: Vec<MulticastRouter>,
    background: BTreeMap<String, Box<dyn Background>>,
    progress: &'a Progress<'a>,
}

/// Something that goes on while other steps are taken.
pub(crate) trait Background: Debug {
    /// Waits for its end, or ends it, and records what was observed.
    ///
    /// # Errors
    /// What keeps the run from going on.
    fn join(self: Box<Self>, name: &str, run: &mut Run<'_>) -> Result<()>;
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
        let (programs, background) = (Vec::new(), BTreeMap::new());
        Ok(Self { scenario, lab, captures, evidence, programs, routers, background, progress })
    }

    /// Does the workload, and waits for what it started.
    pub(crate) fn work(&mut self) -> Result<()> {
        let scenario = self.scenario;
        for step in &scenario.workload {
            wait::check()?;
            step.run(self)?;
        }
        let left: Vec<String> = self.background.keys().cloned().collect();
        left.iter().try_for_each(|name| self.join(name))?;
        for program in self.programs.drain(..) {
            self.evidence.record(program.finish()?);
        }
        Ok(())
    }

    /// Ends the daemons (unless they are to stay) and collects what was observed.
    pub(crate) fn finish(mut self, keep: bool, pcap: Option<&Path>) -> Result<Evidence> {
        self.evidence.losses = net::losses(&self.lab.plan)?;
        if !keep {
            self.progress("stopping the daemons");
            self.evidence.stops.extend(self.lab.stop_all()?);
        }
        self.captures.stop()?;
        self.evidence.trace = self.captures.trace();
        for check in &self.scenario.checks {
            check.check.collect(&self.captures, &mut self.evidence, self.progress);
        }
        self.routers.clear();
        if let Some(directory) = pcap {
            self.captures.write(&self.lab.plan, directory)?;
        }
        Ok(self.evidence)
    }

    /// Shows a person what happens now.
    pub(crate) fn progress(&self, what: &str) {
        (self.progress)(what);
    }

    /// Remembers this moment under a label, if there is one.
    pub(crate) fn remember(&mut self, label: Option<&String>, what: &str) -> Result<()> {
        if let Some(label) = label {
            self.progress(&format!("{what}: {label}"));
            self.evidence.moments.insert(label.clone(), now()?);
        }
        Ok(())
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

    /// Waits for the end of something in the background. It may have ended before.
    pub(crate) fn join(&mut self, name: &str) -> Result<()> {
        match self.background.remove(name) {
            Some(background) => background.join(name, self),
            None => Ok(()),
        }
    }

    /// Asks all daemons for what they show, under a label.
    pub(crate) fn show(&mut self, label: &str) -> Result<()> {
        let plan = &self.lab.plan;
        let ask = |node: usize| Ok((node, command::shown(&plan.name, &plan.nodes[node])?));
        let snapshot = self.lab.running().map(ask).collect::<Result<Snapshot>>()?;
        self.evidence.snapshots.push((label.to_owned(), snapshot));
        Ok(())
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
        let interface = |neighbour: &str| -> Result<String> {
            let peer = index(neighbour)?;
            let found = planned.interfaces.iter().find(|interface| interface.peer.0 == peer);
            Ok(found.ok_or_else(|| anyhow!("no link to {neighbour}"))?.name.clone())
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
