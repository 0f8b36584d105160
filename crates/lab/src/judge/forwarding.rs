//! The check `forwarding`: packets that a router, or all routers of a path, pass on.

use serde_json::Value;
use toml::Spanned;

use super::Judge;
use super::select;
use crate::language::checks::forwarding::Forwarding;
use crate::plan::Leg;
use crate::protocols;
use crate::run::evidence::{Evidence, Verdict};
use crate::run::observe::passed::Passed;
use crate::run::steps::traffic::ProbeRun;

impl Judge for Forwarding {
    fn judge(&self, evidence: &Evidence) -> Verdict {
        match (&self.flow, &self.node, &self.path, &self.protocol) {
            (_, Some(node), Some(path), Some(protocol)) => {
                self.messages(evidence, node.as_ref(), path, protocol.as_ref())
            }
            (Some(flow), ..) => datagrams(evidence, flow.as_ref()),
            _ => Err("nothing is to be judged".to_owned()),
        }
    }
}

impl Forwarding {
    fn messages(
        &self,
        evidence: &Evidence,
        name: &str,
        [from, to]: &[Spanned<String>; 2],
        protocol: &str,
    ) -> Verdict {
        let plan = &evidence.plan;
        let (from, to) = evidence.nodes(from.as_ref(), to.as_ref())?;
        let (legs, _) = evidence.legs(from, to)?;
        let node = plan.node(name);
        let pair = legs.windows(2).find(|pair| Some(pair[0].to) == node);
        let pair = pair.ok_or_else(|| format!("{name} is not on the path"))?;
        let table = protocols::all().find(|known| known.name() == protocol).map(|known| known.fields());
        let table = table.unwrap_or_default();
        let on = |leg: Leg| -> Vec<Passed<'_>> {
            let mut passed = select::on(evidence, protocol, leg);
            passed.retain(|passed| passed.leg == leg && passed.has(plan, &self.fields));
            passed
        };
        let (came, left) = (on(pair[0]), on(pair[1]));
        for after in &left {
            // A sender repeats a lost message: one that left is compared with the last one that had come.
            let key = after.text(&self.per);
            let mut known = came.iter().rev().filter(|before| before.text(&self.per) == key);
            let Some(before) = known.find(|before| before.message.at() <= after.message.at()) else {
                return Err(format!("{}: the message had not come to {name}", after.place(plan)));
            };
            for (field, _) in &table {
                let [then, now] = [before, after].map(|passed| passed.message.field(field));
                let same = match self.less.get(*field).and_then(toml::Value::as_integer) {
                    None => then == now,
                    Some(less) => {
                        let number = |value: &Option<Value>| value.as_ref().and_then(Value::as_i64);
                        number(&then).zip(number(&now)).is_some_and(|(then, now)| then == now + less)
                    }
                };
                if !same {
                    let text = |value: Option<Value>| {
                        value.map_or_else(|| "absent".to_owned(), |value| value.to_string())
                    };
                    return Err(format!(
                        "{}: {name} changed {field} from {} to {}",
                        after.place(plan),
                        text(then),
                        text(now)
                    ));
                }
            }
        }
        if left.is_empty() {
            return Err(format!("no such message passed {name}"));
        }
        let less: Vec<_> = self.less.iter().map(|(field, by)| format!("{field} {by}")).collect();
        Ok(format!("{} messages passed {name} with {} less, else unchanged", left.len(), less.join(", ")))
    }
}

fn datagrams(evidence: &Evidence, id: &str) -> Verdict {
    let plan = &evidence.plan;
    let Some(run) = evidence.all::<ProbeRun>().find(|run| run.id.as_deref() == Some(id)) else {
        return Err(format!("{id:?} sent no datagrams"));
    };
    let legs = evidence.legs(run.from, run.to)?;
    let (src, dst) = (plan.source(run.from, legs.1), legs.1);
    let mut ttls = Vec::new();
    for leg in &legs.0 {
        let link = &evidence.trace.links[leg.link];
        let passed: Vec<_> = link
            .probes
            .iter()
            .filter(|probe| link.along(probe.outgoing, *leg) && Some(probe.src) == src && probe.dst == dst)
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
