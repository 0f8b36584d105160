//! The check `rsvp_messages`: the RSVP messages on a link.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::message::{RsvpMessage, RsvpStyle, RsvpType};
use super::{RATE_ERROR, Seen, leg, owners};
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{LABEL, MOMENT, Mistake, Scope};
use crate::units::Rate;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Messages {
    from: Spanned<String>,
    to: Spanned<String>,
    message: RsvpType,
    during: Option<Spanned<String>>,
    after: Option<Spanned<String>>,
    before: Option<Spanned<String>>,
    port: Option<u16>,
    style: Option<RsvpStyle>,
    rate: Option<Rate>,
    senders: Option<Vec<Spanned<String>>>,
    names: Option<Spanned<String>>,
    scope: Option<Vec<Spanned<String>>>,
    error: Option<u8>,
    in_place: Option<bool>,
    broken: Option<bool>,
    ttl_lost: Option<u8>,
    #[serde(default)]
    every: bool,
    #[serde(default = "once")]
    least: usize,
    most: Option<usize>,
}

impl Check for Messages {
    const NAME: &'static str = "rsvp_messages";
    const MEANING: &'static str =
        "This number of RSVP messages with these values went from a node to its neighbour.";
    const KEYS: &'static [Key] = &[
        key("from", "node", "the sender"),
        key("to", "node", "its neighbour"),
        key(
            "message",
            "message type",
            "`path`, `resv`, `path_err`, `resv_err`, `path_tear`, `resv_tear`, `resv_conf`, `dreq` or `drep`",
        ),
        key("during", "label", "only while the lab watched").optional(),
        key("after", "moment", "only after this moment").optional(),
        key("before", "moment", "only before this moment").optional(),
        key("port", "port", "of the session").optional(),
        key("style", "style", "`wf`, `ff` or `se`").optional(),
        key("rate", "rate", "token rate of a flowspec, or of the sender").optional(),
        key("senders", "list of nodes", "exactly these senders").optional(),
        key("names", "node", "this sender is among them").optional(),
        key("scope", "list of nodes", "exactly these senders in SCOPE; `[]`: there is no SCOPE").optional(),
        key("error", "number", "error code").optional(),
        key("in_place", "boolean", "the InPlace flag of the error").optional(),
        key("broken", "boolean", "the global break bit of the ADSPEC").optional(),
        key("ttl_lost", "number", "the difference between Send_TTL and the packet's TTL").optional(),
        key("every", "boolean", "every message of this type (and port) has these values").or("false"),
        key("least", "number", "the least number of messages").or("1"),
        key("most", "number", "the greatest number of messages").optional(),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.neighbours(&self.from, &self.to)?;
        let senders = self.senders.iter().flatten().chain(self.scope.iter().flatten());
        scope.nodes(senders.chain(&self.names))?;
        self.after.iter().chain(&self.before).try_for_each(|label| scope.defined(MOMENT, label))?;
        self.during.iter().try_for_each(|label| scope.defined(LABEL, label))
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let (from, to) = (self.from.as_ref(), self.to.as_ref());
        let leg = leg(evidence, from, to)?;
        let window = |label: &Spanned<String>| evidence.window(label.as_ref());
        let during = self.during.as_ref().map(window).transpose()?;
        let (begin, end) = during.unwrap_or((Duration::ZERO, Duration::MAX));
        let moment = |label: &Spanned<String>| evidence.moment(label.as_ref());
        let after = self.after.as_ref().map(moment).transpose()?.unwrap_or(Duration::ZERO);
        let before = self.before.as_ref().map(moment).transpose()?.unwrap_or(Duration::MAX);
        let (begin, end) = (begin.max(after), end.min(before));
        let link = Seen::on(&evidence.trace.links[leg.link]);
        let of_kind: Vec<_> = link
            .messages
            .iter()
            .filter(|one| link.along(one, leg) && one.kind == self.message)
            .filter(|one| (begin..=end).contains(&one.at))
            .filter(|one| self.port.is_none_or(|port| one.session.is_some_and(|(_, _, known)| known == port)))
            .collect();
        let found = of_kind.iter().filter(|one| self.fits(evidence, one)).count();
        let most = self.most.unwrap_or(usize::MAX);
        let seen = format!("{found} of {} messages of this type from {from} to {to}", of_kind.len());
        if (self.least..=most).contains(&found) && (!self.every || found == of_kind.len()) {
            return Ok(seen);
        }
        let other = of_kind.iter().find(|one| !self.fits(evidence, one));
        let other =
            other.map(|one| format!("; another one has {}", described(evidence, one))).unwrap_or_default();
        Err(format!("{seen}{other}"))
    }
}

const fn once() -> usize {
    1
}

impl Messages {
    /// Whether a message has the values.
    fn fits(&self, evidence: &Evidence, one: &RsvpMessage) -> bool {
        let plan = &evidence.plan;
        let nodes = |addresses: &[IpAddr]| owners(evidence, addresses);
        let named = |names: &[Spanned<String>]| -> BTreeSet<_> {
            names.iter().map(|name| plan.node(name.as_ref())).collect()
        };
        #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52")]
        let has_rate = |wanted: u64| {
            let wanted = wanted as f64;
            one.rates.iter().any(|rate| (f64::from(*rate) * 8.0 - wanted).abs() <= wanted * RATE_ERROR)
        };
        self.style.is_none_or(|style| one.style == Some(style))
            && self.rate.is_none_or(|rate| has_rate(rate.0))
            && self.senders.as_ref().is_none_or(|names| nodes(&one.senders) == named(names))
            && self.names.as_ref().is_none_or(|name| nodes(&one.senders).contains(&plan.node(name.as_ref())))
            && self.scope.as_ref().is_none_or(|names| {
                one.scope.as_ref().map(|scope| nodes(scope)).unwrap_or_default() == named(names)
            })
            && self.error.is_none_or(|code| one.error.is_some_and(|(known, _, _)| known == code))
            && self
                .in_place
                .is_none_or(|wanted| one.error.is_some_and(|(_, _, flags)| (flags & 1 != 0) == wanted))
            && self.broken.is_none_or(|broken| one.broken == Some(broken))
            && self.ttl_lost.is_none_or(|lost| one.sent_ttl.checked_sub(one.ttl) == Some(lost))
    }
}

/// Describes a message, for people.
fn described(evidence: &Evidence, one: &RsvpMessage) -> String {
    let name = |address: &IpAddr| {
        let node = evidence.plan.owner(*address).and_then(|node| evidence.plan.nodes.get(node));
        node.map_or_else(|| address.to_string(), |node| node.name.clone())
    };
    let RsvpMessage { session, style, rates, senders, scope, error, broken, ttl, sent_ttl, .. } = one;
    let rates: Vec<_> = rates.iter().map(|rate| format!("{:.0} kbit/s", f64::from(*rate) * 8e-3)).collect();
    let senders: Vec<_> = senders.iter().map(name).collect();
    let scope = scope.as_ref().map(|scope| scope.iter().map(name).collect::<Vec<_>>());
    let port = session.map(|(_, _, port)| port);
    format!(
        "port {port:?}, {style:?}, {rates:?}, senders {senders:?}, scope {scope:?}, error {error:?}, broken {broken:?}, \
         TTL {ttl} of {sent_ttl}"
    )
}
