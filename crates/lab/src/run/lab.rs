//! A lab that exists: its nodes, its daemons, its end.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result, anyhow};
use signalbox_linux::process::{Identity, Usage};

use crate::language::merge;
use crate::plan::Plan;
use crate::plan::places;
use crate::run::daemon::{self, Daemon};
use crate::run::evidence::Stop;
use crate::run::routing::{self, Router};
use crate::run::state::{self, State};
use crate::run::{certificates, net, wait};

/// A lab that this process has made.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) plan: Plan,
    state: State,
    daemons: BTreeMap<usize, Daemon>,
    /// The routing programs of nodes.
    routers: BTreeMap<usize, Router>,
    /// The kernel's rules before the daemons that were killed.
    before: BTreeMap<usize, Vec<String>>,
}

impl Lab {
    /// Makes the network of a plan; a failure leaves nothing behind.
    pub(crate) fn make(plan: Plan) -> Result<Self> {
        if net::remove_remains(&plan.name)? {
            // Progress that cannot be printed is no reason to fail.
            let _ = writeln!(io::stderr(), "{}: what a run that was killed left is removed", plan.name);
        }
        net::refuse_standing(&plan)?;
        let namespaces = plan.nodes.iter().map(|node| node.namespace.clone()).collect();
        let state = State::create(&plan.name, namespaces)?;
        let mut lab =
            Self { plan, state, daemons: BTreeMap::new(), routers: BTreeMap::new(), before: BTreeMap::new() };
        let directory = places::directory(&lab.plan.name);
        let made = fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))
            .and_then(|()| certificates::make(&lab.plan.nodes, &directory))
            .and_then(|()| {
                lab.plan.files.iter().try_for_each(|(name, text)| certificates::write(&directory, name, text))
            })
            .and_then(|()| net::make(&lab.plan))
            .and_then(|()| lab.start_routing())
            .and_then(|()| wait::check());
        match made {
            Ok(()) => Ok(lab),
            Err(error) => Err(lab.abandon(error)),
        }
    }

    /// Takes the lab down after a failure; returns the failure.
    pub(crate) fn abandon(self, error: anyhow::Error) -> anyhow::Error {
        match self.down() {
            Ok(()) => error,
            Err(second) => error.context(format!("and what was made cannot be taken down: {second:#}")),
        }
    }

    /// Starts the routing programs and waits until they have found all routes.
    fn start_routing(&mut self) -> Result<()> {
        let nodes: Vec<_> = self.plan.nodes.iter().map(|node| node.routing).enumerate().collect();
        for (node, kind) in nodes.into_iter().filter_map(|(node, kind)| Some((node, kind?))) {
            let router = Router::start(&self.plan, node, kind)?;
            self.routers.insert(node, router);
            self.record(node)?;
        }
        routing::converge(&self.plan)
    }

    /// Writes the processes of a node's routing into the state, from which `lab down` ends them after a crash.
    fn record(&mut self, node: usize) -> Result<()> {
        let name = &self.plan.nodes[node].name;
        for process in self.routers.get(&node).into_iter().flat_map(Router::processes) {
            if let Ok(process) = Identity::of(process) {
                self.state.daemons.push(state::Daemon { node: name.clone(), process: process.into() });
            }
        }
        self.state.save()
    }

    /// Ends the routing programs of a node and starts them again.
    pub(crate) fn restart_routing(&mut self, node: usize) -> Result<()> {
        self.routers.get_mut(&node).map_or(Ok(()), |router| router.restart(&self.plan))?;
        self.record(node)
    }

    /// Sets the cost of an interface in the routing program of a node.
    pub(crate) fn set_cost(&mut self, node: usize, interface: &str, cost: u16) -> Result<()> {
        self.routers.get_mut(&node).map_or(Ok(()), |router| router.set_cost(&self.plan, interface, cost))
    }

    /// Starts all daemons and waits until each is ready.
    pub(crate) fn start_all(&mut self) -> Result<()> {
        let nodes: Vec<usize> =
            (0..self.plan.nodes.len()).filter(|node| self.plan.nodes[*node].daemon).collect();
        for node in &nodes {
            self.launch(*node)?;
        }
        nodes.into_iter().try_for_each(|node| self.wait_ready(node))
    }

    /// Starts the daemon of a node and waits until it is ready.
    pub(crate) fn start(&mut self, node: usize) -> Result<()> {
        self.launch(node)?;
        self.wait_ready(node)
    }

    fn launch(&mut self, node: usize) -> Result<()> {
        let daemon = Daemon::start(&self.plan, node, self.before.remove(&node))?;
        let name = self.plan.nodes[node].name.clone();
        self.state.daemons.push(state::Daemon { node: name, process: daemon.process.into() });
        self.daemons.insert(node, daemon);
        self.state.save()
    }

    fn wait_ready(&mut self, node: usize) -> Result<()> {
        let planned = &self.plan.nodes[node];
        self.daemons.get_mut(&node).map_or(Ok(()), |daemon| daemon.wait_ready(planned))
    }

    /// Asks the daemon of a node to end, and waits for it.
    pub(crate) fn stop(&mut self, node: usize) -> Result<Stop> {
        self.take(node)?.stop()
    }

    /// Lays `config` over the configuration of a node's daemon, and makes the daemon read it.
    pub(crate) fn reload(&mut self, node: usize, config: &toml::Table) -> Result<()> {
        merge(&mut self.plan.nodes[node].config, config);
        let name = &self.plan.nodes[node].name;
        let daemon = self.daemons.get_mut(&node);
        daemon.ok_or_else(|| anyhow!("the daemon of {name} does not run"))?.reload(&self.plan)
    }

    /// Ends the daemon of a node as a crash does.
    pub(crate) fn kill(&mut self, node: usize) -> Result<()> {
        let before = self.take(node)?.kill()?;
        self.before.insert(node, before);
        Ok(())
    }

    /// Stops the process of a node's daemon, or lets it run on.
    pub(crate) fn pause(&self, node: usize, on: bool) -> Result<()> {
        let name = &self.plan.nodes[node].name;
        let daemon = self.daemons.get(&node).ok_or_else(|| anyhow!("the daemon of {name} does not run"))?;
        daemon.pause(on)
    }

    /// Returns the process of a node's daemon.
    pub(crate) fn process(&self, node: usize) -> Result<Identity> {
        let name = &self.plan.nodes[node].name;
        let daemon = self.daemons.get(&node).ok_or_else(|| anyhow!("the daemon of {name} does not run"))?;
        Ok(daemon.process)
    }

    /// Returns the processes of the daemons that run, with the indexes of their nodes.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (usize, Identity)> {
        self.daemons.iter().map(|(node, daemon)| (*node, daemon.process))
    }

    /// Returns the processor time that daemons and routing programs have taken which run.
    pub(crate) fn used(&self) -> Duration {
        let routing =
            self.routers.values().flat_map(Router::processes).filter_map(|pid| Identity::of(pid).ok());
        let all = self.processes().map(|(_, process)| process).chain(routing);
        // What has ended meanwhile counts already.
        all.filter_map(|process| Some(Usage::of(&process).ok()?.cpu)).sum()
    }

    fn take(&mut self, node: usize) -> Result<Daemon> {
        let name = &self.plan.nodes[node].name;
        self.daemons.remove(&node).ok_or_else(|| anyhow!("the daemon of {name} does not run"))
    }

    /// Ends all daemons that still run.
    pub(crate) fn stop_all(&mut self) -> Result<Vec<Stop>> {
        std::mem::take(&mut self.daemons).into_values().map(Daemon::stop).collect()
    }

    /// Returns the indexes of the nodes whose daemon runs.
    pub(crate) fn running(&self) -> impl Iterator<Item = usize> {
        self.daemons.keys().copied()
    }

    /// Returns the end of each daemon's log.
    pub(crate) fn logs(&self) -> Vec<(String, String)> {
        let directory = places::directory(&self.plan.name);
        let tail = |name: &String| daemon::tail(&directory.join(format!("{name}.log")));
        let nodes = self.plan.nodes.iter().filter(|node| node.daemon);
        nodes.map(|node| (node.name.clone(), tail(&node.name))).collect()
    }

    /// What the daemons say about faults of their own.
    pub(crate) fn faults(&self) -> Vec<String> {
        let directory = places::directory(&self.plan.name);
        let nodes = self.plan.nodes.iter().filter(|node| node.daemon);
        nodes
            .flat_map(|node| {
                let lines = daemon::faults(&directory.join(format!("{}.log", node.name)));
                lines.into_iter().map(|line| format!("{}: {line}", node.name))
            })
            .collect()
    }

    /// Lets the lab stand after the end of this process. `lab down` takes it down.
    pub(crate) fn leave(&mut self) -> Result<()> {
        std::mem::take(&mut self.routers).into_values().for_each(Router::leave);
        self.state.temporary = false;
        self.state.save()
    }

    /// Takes the lab down.
    pub(crate) fn down(mut self) -> Result<()> {
        let stopped = self.stop_all();
        let ended = self.routers.values_mut().try_for_each(Router::end);
        net::remove(&self.plan.name)?;
        ended?;
        stopped.map(drop)
    }
}
