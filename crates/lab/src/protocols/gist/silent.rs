//! The check `silent`.

use serde::Deserialize;
use toml::Spanned;

use super::seen::Seen;
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{LABEL, Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Silent {
    label: Spanned<String>,
}

impl Check for Silent {
    const NAME: &'static str = "silent";
    const MEANING: &'static str = "No GIST message passed any link while the lab watched.";
    const KEYS: &'static [Key] = &[key("label", "label", "the label of the `watch` step")];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.defined(LABEL, &self.label)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let (from, to) = evidence.window(self.label.as_ref())?;
        for (link, planned) in Seen::all(evidence) {
            let inside = link.messages.iter().find(|message| (from..=to).contains(&message.at));
            if let Some(message) = inside {
                return Err(format!(
                    "{:?} from {} on {} after {} ms",
                    message.kind,
                    message.src,
                    planned.name,
                    (message.at.saturating_sub(from)).as_millis()
                ));
            }
        }
        Ok(format!("no GIST message on any link for {} ms", to.saturating_sub(from).as_millis()))
    }
}
