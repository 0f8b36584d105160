//! The step `daemon`: something is done to the daemon of a node.

use serde::Deserialize;
use toml::Spanned;

use super::StepKeys;
use crate::language::kinds::{Key, key};
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Daemon {
    pub(crate) start: Option<Spanned<String>>,
    pub(crate) stop: Option<Spanned<String>>,
    pub(crate) kill: Option<Spanned<String>>,
    pub(crate) reload: Option<Spanned<String>>,
    pub(crate) config: Option<toml::Table>,
    pub(crate) pause: Option<Spanned<String>>,
    pub(crate) resume: Option<Spanned<String>>,
}

impl StepKeys for Daemon {
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
}
