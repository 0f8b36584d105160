//! The step `daemon`, which does something to the daemon of a node.

use anyhow::Result;

use super::Act;
use crate::language::steps::daemon::Daemon;
use crate::run::Run;
use crate::run::simulation::Simulation;

impl Act for Daemon {
    fn unsimulated(&self) -> Option<String> {
        let has = |word: &str| Some(format!("a simulated daemon has no `{word}`"));
        match (&self.reload, &self.pause, &self.resume) {
            (Some(_), _, _) => has("reload"),
            (_, Some(_), _) => has("pause"),
            (_, _, Some(_)) => has("resume"),
            (None, None, None) => None,
        }
    }

    fn simulate(&self, run: &mut Simulation<'_>, _id: &str) -> Result<()> {
        if let Some(node) = &self.start {
            let node = run.node(node.as_ref())?;
            run.start_daemon(node);
        }
        for node in self.stop.iter().chain(&self.kill) {
            let node = run.node(node.as_ref())?;
            run.end_daemon(node);
        }
        Ok(())
    }

    fn run(&self, run: &mut Run<'_>, _id: &str) -> Result<()> {
        if let Some(node) = &self.start {
            run.progress(&format!("starting the daemon of {}", node.as_ref()));
            let node = run.node(node.as_ref())?;
            run.lab.start(node)?;
        }
        if let Some(node) = &self.stop {
            run.progress(&format!("stopping the daemon of {}", node.as_ref()));
            let node = run.node(node.as_ref())?;
            let stop = run.lab.stop(node)?;
            run.evidence.stops.push(stop);
        }
        if let Some(node) = &self.kill {
            run.progress(&format!("killing the daemon of {}", node.as_ref()));
            let node = run.node(node.as_ref())?;
            run.lab.kill(node)?;
        }
        if let Some(node) = &self.reload {
            run.progress(&format!("reloading the daemon of {}", node.as_ref()));
            let node = run.node(node.as_ref())?;
            run.lab.reload(node, self.config.as_ref().unwrap_or(&toml::Table::new()))?;
        }
        for (node, on) in [(&self.pause, true), (&self.resume, false)] {
            let Some(node) = node else { continue };
            let doing = if on { "pausing" } else { "resuming" };
            run.progress(&format!("{doing} the daemon of {}", node.as_ref()));
            let node = run.node(node.as_ref())?;
            run.lab.pause(node, on)?;
        }
        Ok(())
    }
}
