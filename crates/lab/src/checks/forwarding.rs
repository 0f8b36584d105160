//! The check `forwarding`.

use serde::Deserialize;
use toml::Spanned;

use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{Mistake, Scope};
use crate::steps::UdpRun;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Forwarding {
    from: Spanned<String>,
    to: Spanned<String>,
}

impl Check for Forwarding {
    const NAME: &'static str = "forwarding";
    const MEANING: &'static str = "The datagrams of the `udp` step crossed each link of the path, one TTL less behind each router, and arrived.";
    const KEYS: &'static [Key] =
        &[key("from", "node", "`from` of the `udp` step"), key("to", "node", "`to` of the `udp` step")];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.nodes([&self.from, &self.to])
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let plan = &evidence.plan;
        let ends = plan.node(self.from.as_ref()).zip(plan.node(self.to.as_ref()));
        let Some(run) = evidence.all::<UdpRun>().find(|run| Some((run.from, run.to)) == ends) else {
            return Err("no datagrams were sent between these nodes".to_owned());
        };
        let legs = evidence.legs(run.from, run.to)?;
        let (src, dst) = (plan.source(run.from, legs.1), legs.1);
        let mut ttls = Vec::new();
        for leg in &legs.0 {
            let link = &evidence.trace.links[leg.link];
            let passed: Vec<_> = link
                .probes
                .iter()
                .filter(|probe| {
                    link.along(probe.outgoing, *leg) && Some(probe.src) == src && probe.dst == dst
                })
                .collect();
            let name = &plan.links[leg.link].name;
            if passed.len() < run.sent as usize {
                return Err(format!("{} of {} datagrams on {name}", passed.len(), run.sent));
            }
            ttls.extend(passed.first().map(|probe| probe.ttl));
        }
        if ttls.windows(2).any(|pair| pair[0] != pair[1] + 1) {
            return Err(format!("TTL on the links: {ttls:?}; every router takes one"));
        }
        if run.arrived < run.sent {
            return Err(format!("{} of {} datagrams arrived", run.arrived, run.sent));
        }
        Ok(format!("{} datagrams arrived, TTL on the links {ttls:?}", run.arrived))
    }
}
