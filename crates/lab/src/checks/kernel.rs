//! The check `kernel`.

use serde::Deserialize;
use toml::Spanned;

use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{LABEL, Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kernel {
    node: Spanned<String>,
    label: Spanned<String>,
    like: Spanned<String>,
    #[serde(default)]
    differs: bool,
}

impl Check for Kernel {
    const NAME: &'static str = "kernel";
    const MEANING: &'static str =
        "The kernel of the node held the same queues, classes, filters and nftables rules at two moments.";
    const KEYS: &'static [Key] = &[
        key("node", "node", "a node that reserves"),
        key("label", "label", "the label of a `show` step"),
        key("like", "label", "the label of the `show` step that it is compared with"),
        key("differs", "boolean", "the kernel held something else").or("false"),
    ];
    const READS_CAPTURES: bool = false;

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.reserves(&self.node)?;
        scope.defined(LABEL, &self.label)?;
        scope.defined(LABEL, &self.like)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let (node, like) = (self.node.as_ref(), self.like.as_ref());
        let at = |label: &str| {
            let snapshot = evidence.snapshot(label)?;
            let lines =
                evidence.plan.node(node).and_then(|node| snapshot.get(&node)).map(|shown| &shown.kernel);
            // Routes change with links.
            let queues = |lines: &Vec<String>| -> Vec<String> {
                lines.iter().filter(|line| !line.starts_with("ip: ")).cloned().collect()
            };
            let lines = lines.map(queues).filter(|lines| !lines.is_empty());
            lines.ok_or_else(|| format!("{node} was not asked at {label:?}"))
        };
        let (now, then) = (at(self.label.as_ref())?, at(like)?);
        let missing = |from: &[String], lines: &[String], sign: &str| -> Vec<String> {
            from.iter().filter(|line| !lines.contains(line)).map(|line| format!("{sign} {line}")).collect()
        };
        let changed = [missing(&then, &now, "-"), missing(&now, &then, "+")].concat();
        match (changed.is_empty(), self.differs) {
            (true, false) => Ok(format!("{} lines of {node}, all as {like:?}", now.len())),
            (false, true) => Ok(changed.join("; ")),
            (true, true) => Err(format!("nothing in the kernel of {node} differs from {like:?}")),
            (false, false) => Err(changed.join("; ")),
        }
    }
}
