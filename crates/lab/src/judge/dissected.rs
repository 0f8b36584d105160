//! The check `dissected`: messages as another dissector reads them.

use super::Judge;
use crate::language::checks::dissected::Dissected;
use crate::run::evidence::{Evidence, Verdict};
use crate::run::observe::dissect::Report;

impl Judge for Dissected {
    fn judge(&self, evidence: &Evidence) -> Verdict {
        let report = evidence.all::<Report>().next().ok_or("tshark was not run")?;
        let links = report.0.as_ref().map_err(|error| format!("{error:#}"))?;
        if let Some(link) = links.iter().find(|link| !link.faults.is_empty()) {
            let faults = link.faults.len();
            return Err(format!("{faults} faults on {}, first {:?}", link.link, link.faults[0]));
        }
        let messages: usize = links.iter().map(|link| link.messages).sum();
        if messages == 0 {
            return Err("no RSVP message on any link".to_owned());
        }
        let each: Vec<_> = links.iter().map(|link| format!("{} on {}", link.messages, link.link)).collect();
        Ok(format!(
            "{messages} RSVP messages without a malformed field or a wrong checksum: {}",
            each.join(", ")
        ))
    }
}
