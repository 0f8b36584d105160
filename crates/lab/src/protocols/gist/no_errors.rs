//! The check `no_errors`.

use serde::Deserialize;

use super::message::Kind;
use super::probe_expired::ExpiredProbe;
use super::seen::Seen;
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::Key;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoErrors {}

impl Check for NoErrors {
    const NAME: &'static str = "no_errors";
    const MEANING: &'static str =
        "No GIST Error passed any link before the first probe for an expired session.";
    const KEYS: &'static [Key] = &[];

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let before = evidence.all::<ExpiredProbe>().map(|probe| probe.at).min();
        for (link, planned) in Seen::all(evidence) {
            let error = link.messages.iter().find(|message| {
                message.kind == Kind::Error && before.is_none_or(|before| message.at < before)
            });
            if let Some(error) = error {
                return Err(format!("Error {:?} from {} on {}", error.error, error.src, planned.name));
            }
        }
        Ok("no Error message on any link".to_owned())
    }
}
