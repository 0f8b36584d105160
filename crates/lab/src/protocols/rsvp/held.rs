//! The check `rsvp`: the state that nodes hold.

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::{RATE_ERROR, Rsvp, SESSIONS};
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{LABEL, Mistake, Scope};
use crate::units::Rate;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Held {
    label: Spanned<String>,
    nodes: Vec<Spanned<String>>,
    senders: usize,
    reservations: usize,
    rate: Option<Rate>,
    towards: Option<Spanned<String>>,
}

impl Check for Held {
    const NAME: &'static str = "rsvp";
    const MEANING: &'static str = "Each of these nodes showed this number of RSVP senders and of reservations on its outgoing links, each kept by the kernel.";
    const KEYS: &'static [Key] = &[
        key("label", "label", "when the nodes were asked"),
        key("nodes", "list of nodes", "the nodes"),
        key("senders", "number", "of all sessions"),
        key("reservations", "number", "on outgoing links"),
        key("rate", "rate", "of each reservation").optional(),
        key("towards", "node", "only the link towards this neighbour").optional(),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        self.nodes.iter().try_for_each(|node| scope.runs(&Rsvp, node))?;
        scope.nodes(&self.towards)?;
        scope.defined(LABEL, &self.label)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let label = self.label.as_ref();
        let snapshot = evidence.snapshot(label)?;
        let interface = self.towards.as_ref().map(|to| format!("to-{}", to.as_ref()));
        let (mut good, mut seen) = (true, Vec::new());
        for name in &self.nodes {
            let name = name.as_ref();
            let shown = evidence.plan.node(name).and_then(|node| snapshot.get(&node));
            let Some(shown) = shown else { return Err(format!("{name} was not asked at {label:?}")) };
            let all = |what: &str| -> Vec<&Value> {
                shown
                    .table(SESSIONS)
                    .iter()
                    .flat_map(|session| session[what].as_array().into_iter().flatten())
                    .collect()
            };
            // The reservation of a receiving application at the node itself is on no link.
            let reservations: Vec<_> = all("reservations")
                .into_iter()
                .filter(|one| one["interface"]["name"].is_string())
                .filter(|one| {
                    interface.as_ref().is_none_or(|wanted| one["interface"]["name"] == wanted.as_str())
                })
                .collect();
            let senders = all("senders").len();
            good &= senders == self.senders && reservations.len() == self.reservations;
            // Reservations of the same rate are listed once, with their number.
            let mut rates: Vec<(String, usize)> = Vec::new();
            for one in &reservations {
                let rate = one["flowspec"]["traffic"]["rate_octets_per_s"].as_f64().unwrap_or(0.0) * 8.0;
                let is = |wanted: f64| (rate - wanted).abs() <= wanted * RATE_ERROR;
                #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52")]
                let fits = self.rate.is_none_or(|wanted| is(wanted.0 as f64));
                let enforced = one["enforced"] == true;
                good &= fits && enforced;
                let text = format!(
                    "{:.0} kbit/s at {}{}",
                    rate / 1e3,
                    one["interface"]["name"].as_str().unwrap_or("?"),
                    if enforced { "" } else { ", not enforced" }
                );
                match rates.iter_mut().find(|(known, _)| *known == text) {
                    Some((_, times)) => *times += 1,
                    None => rates.push((text, 1)),
                }
            }
            let times =
                |(text, times): (String, usize)| if times > 1 { format!("{times} of {text}") } else { text };
            let rates: Vec<_> = rates.into_iter().map(times).collect();
            let rates = if rates.is_empty() { String::new() } else { format!(" ({})", rates.join(", ")) };
            seen.push(format!("{name} {senders} senders, {} reservations{rates}", reservations.len()));
        }
        let seen = format!("at {label:?}: {}", seen.join("; "));
        if good { Ok(seen) } else { Err(seen) }
    }
}
