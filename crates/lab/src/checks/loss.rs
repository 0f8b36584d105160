//! The check `loss`.

use serde::Deserialize;

use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::units::Percent;

/// A share of fewer packets means little.
const PACKETS_MIN: u64 = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Loss {
    min: Percent,
    max: Percent,
}

impl Check for Loss {
    const NAME: &'static str = "loss";
    const MEANING: &'static str =
        "Each end of each lossy link received at least 100 packets and discarded such a share.";
    const KEYS: &'static [Key] =
        &[key("min", "percent", "the least share"), key("max", "percent", "the greatest share")];

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let mut seen = Vec::new();
        let mut good = !evidence.losses.is_empty();
        for count in &evidence.losses {
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 packets")]
            let share = 100.0 * count.dropped as f64 / count.seen.max(1) as f64;
            good &= count.seen >= PACKETS_MIN;
            good &= (self.min.percent()..=self.max.percent()).contains(&share);
            let (link, node) = (&evidence.plan.links[count.link].name, &evidence.plan.nodes[count.node].name);
            seen.push(format!("{link} to {node} {share:.1} % of {}", count.seen));
        }
        if seen.is_empty() {
            return Err("no link has a loss".to_owned());
        }
        if good { Ok(seen.join(", ")) } else { Err(seen.join(", ")) }
    }
}
