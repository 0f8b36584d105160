//! The step `daemon`, which does something to the daemon of a node.

use anyhow::Result;
use serde::Deserialize;
use toml::Spanned;

use super::Step;
use crate::kinds::{Key, key};
use crate::run::Run;
use crate::scenario::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Daemon {
    start: Option<Spanned<String>>,
    stop: Option<Spanned<String>>,
    kill: Option<Spanned<String>>,
}

impl Step for Daemon {
    const NAME: &'static str = "daemon";
    const MEANING: &'static str = "Starts the daemon of a node and waits until it is ready; or asks it to end and waits for its end; or ends it as a crash does.";
    const KEYS: &'static [Key] = &[
        key("start", "node", "its daemon starts").optional(),
        key("stop", "node", "SIGTERM to its daemon").optional(),
        key("kill", "node", "SIGKILL to its daemon").optional(),
    ];

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        let given: Vec<_> = [&self.start, &self.stop, &self.kill].into_iter().flatten().collect();
        match given[..] {
            [node] => scope.daemon(node),
            _ => Err(Mistake::new(
                0..0,
                "`daemon` needs one of `start`, `stop` and `kill`, like `daemon = { kill = \"r1\" }`",
            )),
        }
    }

    fn moment_is_end(&self) -> bool {
        self.start.is_some()
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
        Ok(())
    }
}
