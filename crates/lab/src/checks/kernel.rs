//! The check `kernel`: what the kernel of a node held at two moments.

use serde::Deserialize;
use toml::Spanned;

use super::{Check, Verdict, Wanted};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kernel {
    node: Spanned<String>,
    at: Spanned<String>,
    same_as: Option<Spanned<String>>,
    differs_from: Option<Spanned<String>>,
}

impl Check for Kernel {
    const NAME: &'static str = "kernel";
    const MEANING: &'static str = "The kernel of the node held the same queues, classes, filters and nftables rules at the ends of two steps.";
    const KEYS: &'static [Key] = &[
        key("node", "node", "a node that reserves"),
        key(
            "at",
            "id",
            "the step at whose end the kernel is read; \"start\" is the time before the first step",
        ),
        key("same_as", "id", "the step at whose end the kernel held the same").optional(),
        key("differs_from", "id", "the step at whose end the kernel held something else").optional(),
    ];
    const READS_CAPTURES: bool = false;

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.reserves(&self.node)?;
        scope.ids([&self.at].into_iter().chain(&self.same_as).chain(&self.differs_from))?;
        if self.same_as.is_some() == self.differs_from.is_some() {
            return Err(Mistake::new(self.at.span(), "`kernel` needs `same_as` or `differs_from`, not both"));
        }
        Ok(())
    }

    fn needs(&self) -> Vec<Wanted> {
        let at = [&self.at].into_iter().chain(&self.same_as).chain(&self.differs_from);
        at.map(|at| Wanted::Kernel { at: at.as_ref().clone(), node: self.node.as_ref().clone() }).collect()
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let node = self.node.as_ref();
        let at = |id: &str| {
            let index = evidence.plan.node(node);
            let lines = index.and_then(|node| evidence.kernels.get(&(id.to_owned(), node)));
            // Routes change with links.
            let queues = |lines: &Vec<String>| -> Vec<String> {
                lines.iter().filter(|line| !line.starts_with("ip: ")).cloned().collect()
            };
            let lines = lines.map(queues).filter(|lines| !lines.is_empty());
            lines.ok_or_else(|| format!("the kernel of {node} was not read at {id:?}"))
        };
        let like = self.same_as.as_ref().or(self.differs_from.as_ref()).map_or("", |like| like.as_ref());
        let (now, then) = (at(self.at.as_ref())?, at(like)?);
        let missing = |from: &[String], lines: &[String], sign: &str| -> Vec<String> {
            from.iter().filter(|line| !lines.contains(line)).map(|line| format!("{sign} {line}")).collect()
        };
        let changed = [missing(&then, &now, "-"), missing(&now, &then, "+")].concat();
        match (changed.is_empty(), self.differs_from.is_some()) {
            (true, false) => Ok(format!("{} lines of {node}, all as at {like:?}", now.len())),
            (false, true) => Ok(changed.join("; ")),
            (true, true) => Err(format!("nothing in the kernel of {node} differs from {like:?}")),
            (false, false) => Err(changed.join("; ")),
        }
    }
}
