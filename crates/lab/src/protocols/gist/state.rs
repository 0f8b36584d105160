//! The check `state`.

use serde::Deserialize;
use toml::Spanned;

use super::{SESSIONS, session_ids};
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::protocols::ping::Ping;
use crate::scenario::{LABEL, Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    label: Spanned<String>,
    sessions: usize,
    #[serde(default)]
    except: Vec<Spanned<String>>,
}

impl Check for State {
    const NAME: &'static str = "state";
    const MEANING: &'static str = "Each daemon with Ping showed routing state of this number of sessions.";
    const KEYS: &'static [Key] = &[
        key("label", "label", "when the daemons were asked"),
        key("sessions", "number", "of each node"),
        key("except", "list of nodes", "nodes that the sessions do not visit: they showed no session")
            .or("[]"),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        self.except.iter().try_for_each(|except| scope.daemon(except))?;
        scope.defined(LABEL, &self.label)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let label = self.label.as_ref();
        let snapshot = evidence.snapshot(label)?;
        let (mut good, mut seen) = (true, Vec::new());
        for (node, planned) in evidence.plan.nodes.iter().enumerate().filter(|(_, node)| node.runs(&Ping)) {
            let sessions = session_ids(snapshot.get(&node).map_or(&[], |shown| shown.table(SESSIONS)));
            let spared = self.except.iter().any(|except| *except.as_ref() == planned.name);
            let wanted = if spared { 0 } else { self.sessions };
            good &= snapshot.contains_key(&node) && sessions.len() == wanted;
            seen.push(format!("{} {}", planned.name, sessions.len()));
        }
        let detail = format!("sessions at {label:?}: {}", seen.join(", "));
        if good { Ok(detail) } else { Err(format!("{detail}; {} each were expected", self.sessions)) }
    }
}
