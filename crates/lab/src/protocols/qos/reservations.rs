//! The check `reservations`.

use serde::Deserialize;
use toml::Spanned;

use super::{Qos, SESSIONS};
use crate::checks::{Check, Verdict};
use crate::evidence::{Evidence, Shown};
use crate::kinds::{Key, key};
use crate::scenario::{LABEL, Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reservations {
    label: Spanned<String>,
    count: usize,
    #[serde(default)]
    except: Vec<Spanned<String>>,
}

impl Check for Reservations {
    const NAME: &'static str = "reservations";
    const MEANING: &'static str =
        "Each daemon with QoS showed this number of sessions for which it reserves something.";
    const KEYS: &'static [Key] = &[
        key("label", "label", "when the daemons were asked"),
        key("count", "number", "of each node"),
        key("except", "list of nodes", "nodes that showed no session").or("[]"),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        self.except.iter().try_for_each(|except| scope.runs(&Qos, except))?;
        scope.defined(LABEL, &self.label)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let label = self.label.as_ref();
        let snapshot = evidence.snapshot(label)?;
        let (mut good, mut seen) = (true, Vec::new());
        for (node, planned) in evidence.plan.nodes.iter().enumerate().filter(|(_, node)| node.runs(&Qos)) {
            // A node may show a session for which it reserves nothing.
            let held = |shown: &Shown| {
                shown.table(SESSIONS).iter().filter(|session| !session["held"].is_null()).count()
            };
            let count = snapshot.get(&node).map(held);
            let spared = self.except.iter().any(|except| *except.as_ref() == planned.name);
            good &= count == Some(if spared { 0 } else { self.count });
            seen.push(format!(
                "{} {}",
                planned.name,
                count.map_or_else(|| "?".to_owned(), |count| count.to_string())
            ));
        }
        let detail = format!("reservations at {label:?}: {}", seen.join(", "));
        if good { Ok(detail) } else { Err(format!("{detail}; {} each were expected", self.count)) }
    }
}
