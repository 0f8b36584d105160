//! The step `daemon`, which does something to the daemon of a node.

use anyhow::Result;
use serde::Deserialize;
use toml::Spanned;

use super::Step;
use crate::kinds::{Key, key};
use crate::run::Run;
use crate::scenario::{Mistake, Scope};
use crate::simulation::Simulation;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Daemon {
    start: Option<Spanned<String>>,
    stop: Option<Spanned<String>>,
    kill: Option<Spanned<String>>,
    reload: Option<Spanned<String>>,
    config: Option<toml::Table>,
    pause: Option<Spanned<String>>,
    resume: Option<Spanned<String>>,
}

impl Step for Daemon {
    const NAME: &'static str = "daemon";
    const MEANING: &'static str = "Starts the daemon of a node and waits until it is ready; or asks it to end and waits for its end; or ends it as a crash does; or makes it read another configuration; or makes it stand still for a time.";
    const KEYS: &'static [Key] = &[
        key("start", "node", "its daemon starts").optional(),
        key("stop", "node", "SIGTERM to its daemon").optional(),
        key("kill", "node", "SIGKILL to its daemon").optional(),
        key("reload", "node", "SIGHUP to its daemon, after `config` was laid over its configuration")
            .optional(),
        key("config", "table", "of `reload`: the keys that change, like the daemon's own").optional(),
        key("pause", "node", "SIGSTOP to its daemon").optional(),
        key("resume", "node", "SIGCONT to its daemon").optional(),
    ];

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        let all = [&self.start, &self.stop, &self.kill, &self.reload, &self.pause, &self.resume];
        let given: Vec<_> = all.into_iter().flatten().collect();
        match given[..] {
            [node] if self.config.is_some() && self.reload.is_none() => {
                Err(Mistake::new(node.span(), "`config` goes with `reload`: remove it, or reload the daemon"))
            }
            [node] => scope.daemon(node),
            _ => Err(Mistake::new(
                0..0,
                "`daemon` needs one of `start`, `stop`, `kill`, `reload`, `pause` and `resume`, like `daemon = { kill = \"r1\" }`",
            )),
        }
    }

    fn moment_is_end(&self) -> bool {
        self.start.is_some()
    }

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
