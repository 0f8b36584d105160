//! The check `no_routing_state`.

use serde::Deserialize;
use toml::Spanned;

use super::message::{Kind, NO_ROUTING_STATE};
use super::probe_expired::ExpiredProbe;
use super::seen::Seen;
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoRoutingState {
    node: Spanned<String>,
}

impl Check for NoRoutingState {
    const NAME: &'static str = "no_routing_state";
    const MEANING: &'static str = "The node answered the probe for an expired session with Error 5, No Routing State (RFC 5971 A.4.4.5).";
    const KEYS: &'static [Key] = &[key("node", "node", "`to` of the `probe_expired` step")];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.daemon(&self.node)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let node = evidence.plan.node(self.node.as_ref());
        let Some(probe) = evidence.all::<ExpiredProbe>().find(|probe| Some(probe.to) == node) else {
            return Err(format!("nothing was sent to {} for an expired session", self.node.as_ref()));
        };
        let errors: Vec<_> = Seen::all(evidence)
            .flat_map(|(link, _)| &link.messages)
            .filter(|m| m.kind == Kind::Error && m.at >= probe.at && evidence.plan.owner(m.src) == node)
            .collect();
        let answer = errors.iter().find(|message| {
            message.error == Some(NO_ROUTING_STATE) && message.session.is_none_or(|s| s == probe.session)
        });
        match (answer, errors.first()) {
            (Some(answer), _) => Ok(format!(
                "{} answers Data for the expired session with Error 5, No Routing State, after {:.1} ms",
                self.node.as_ref(),
                answer.at.saturating_sub(probe.at).as_secs_f64() * 1e3
            )),
            (None, Some(other)) => {
                Err(format!("{} answers with Error {:?}", self.node.as_ref(), other.error))
            }
            (None, None) => Err(format!("{} does not answer", self.node.as_ref())),
        }
    }
}
