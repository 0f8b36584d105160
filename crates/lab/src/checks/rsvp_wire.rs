//! Checks of RSVP messages on the links.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::Verdict;
use super::rsvp::RATE_ERROR;
use crate::evidence::Evidence;
use crate::observe::rsvp::{RsvpMessage, RsvpSession, RsvpType};
use crate::plan::Leg;
use crate::scenario::{RsvpMessagesCheck, RsvpRepairedCheck};

/// So many messages like these went from one node to its neighbour.
pub(super) fn messages(evidence: &Evidence, check: &RsvpMessagesCheck) -> Verdict {
    let (from, to) = (check.from.as_ref(), check.to.as_ref());
    let leg = leg(evidence, from, to)?;
    let (begin, end) = match &check.during {
        Some(label) => *evidence
            .windows
            .get(label.as_ref())
            .ok_or_else(|| format!("nobody watched at {:?}", label.as_ref()))?,
        None => (Duration::ZERO, Duration::MAX),
    };
    let moment = |label: &toml::Spanned<String>| {
        let known = evidence.moments.get(label.as_ref()).copied();
        known.ok_or_else(|| format!("nothing happened at {:?}", label.as_ref()))
    };
    let after = check.after.as_ref().map(moment).transpose()?.unwrap_or(Duration::ZERO);
    let before = check.before.as_ref().map(moment).transpose()?.unwrap_or(Duration::MAX);
    let (begin, end) = (begin.max(after), end.min(before));
    let link = &evidence.trace.links[leg.link];
    let of_kind: Vec<_> = link
        .rsvp
        .iter()
        .filter(|one| link.along(one.outgoing, leg) && one.kind == check.message)
        .filter(|one| (begin..=end).contains(&one.at))
        .filter(|one| check.port.is_none_or(|port| one.session.is_some_and(|(_, _, known)| known == port)))
        .collect();
    let found = of_kind.iter().filter(|one| fits(evidence, check, one)).count();
    let most = check.most.unwrap_or(usize::MAX);
    let seen = format!("{found} of {} messages of this type from {from} to {to}", of_kind.len());
    if (check.least..=most).contains(&found) && (!check.every || found == of_kind.len()) {
        return Ok(seen);
    }
    let other = of_kind.iter().find(|one| !fits(evidence, check, one));
    let other = other.map(|one| format!("; another one says {}", said(evidence, one))).unwrap_or_default();
    Err(format!("{seen}{other}"))
}

fn fits(evidence: &Evidence, check: &RsvpMessagesCheck, one: &RsvpMessage) -> bool {
    let plan = &evidence.plan;
    let nodes = |addresses: &[std::net::IpAddr]| -> BTreeSet<_> {
        addresses.iter().map(|address| plan.owner(*address)).collect()
    };
    let named = |names: &[toml::Spanned<String>]| -> BTreeSet<_> {
        names.iter().map(|name| plan.node(name.as_ref())).collect()
    };
    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52")]
    let has_rate = |wanted: u64| {
        let wanted = wanted as f64;
        one.rates.iter().any(|rate| (f64::from(*rate) * 8.0 - wanted).abs() <= wanted * RATE_ERROR)
    };
    check.style.is_none_or(|style| one.style == Some(style))
        && check.rate.is_none_or(|rate| has_rate(rate.0))
        && check.senders.as_ref().is_none_or(|names| nodes(&one.senders) == named(names))
        && check.names.as_ref().is_none_or(|name| nodes(&one.senders).contains(&plan.node(name.as_ref())))
        && check.scope.as_ref().is_none_or(|names| {
            one.scope.as_ref().map(|scope| nodes(scope)).unwrap_or_default() == named(names)
        })
        && check.error.is_none_or(|code| one.error.is_some_and(|(known, _, _)| known == code))
        && check
            .in_place
            .is_none_or(|wanted| one.error.is_some_and(|(_, _, flags)| (flags & 1 != 0) == wanted))
        && check.broken.is_none_or(|broken| one.broken == Some(broken))
        && check.ttl_lost.is_none_or(|lost| one.sent_ttl.checked_sub(one.ttl) == Some(lost))
}

/// What a message says, for people.
fn said(evidence: &Evidence, one: &RsvpMessage) -> String {
    let name = |address: &std::net::IpAddr| {
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

fn leg(evidence: &Evidence, from: &str, to: &str) -> Result<Leg, String> {
    let ends = evidence.plan.node(from).zip(evidence.plan.node(to));
    ends.and_then(|(from, to)| evidence.plan.leg(from, to))
        .ok_or_else(|| format!("no link from {from} to {to}"))
}

/// What was seen after the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RsvpRepair {
    /// Sessions with Paths and Resvs on every link of the new way.
    sessions: usize,
    /// From the moment to the first Path on the new way.
    first_path: Duration,
    /// To the last Resv that half of the sessions waited for.
    half: Duration,
    /// To the last one of all.
    last: Duration,
}

/// Looks for each session's Path and Resv on the links between the nodes after the moment.
pub(crate) fn repair(evidence: &Evidence, check: &RsvpRepairedCheck) -> Result<RsvpRepair, String> {
    let label = check.label.as_ref();
    let moment = *evidence.moments.get(label).ok_or_else(|| format!("nothing happened at {label:?}"))?;
    let mut first_path = Duration::MAX;
    let mut ends: Option<BTreeMap<RsvpSession, Duration>> = None;
    for pair in check.hops.windows(2) {
        let leg = leg(evidence, pair[0].as_ref(), pair[1].as_ref())?;
        let link = &evidence.trace.links[leg.link];
        let mut asked: BTreeSet<RsvpSession> = BTreeSet::new();
        let mut done: BTreeMap<RsvpSession, Duration> = BTreeMap::new();
        for one in link.rsvp.iter().filter(|one| one.at >= moment) {
            let Some(session) = one.session else { continue };
            match (one.kind, link.along(one.outgoing, leg)) {
                (RsvpType::Path, true) => {
                    first_path = first_path.min(one.at);
                    asked.insert(session);
                }
                // The answer to the Path, not what came before it.
                (RsvpType::Resv, false) if asked.contains(&session) => {
                    done.entry(session).or_insert(one.at);
                }
                _ => {}
            }
        }
        ends = Some(match ends {
            None => done,
            Some(before) => before
                .into_iter()
                .filter_map(|(session, at)| Some((session, at.max(*done.get(&session)?))))
                .collect(),
        });
    }
    let mut ends: Vec<Duration> = ends.unwrap_or_default().into_values().collect();
    ends.sort_unstable();
    let since = |at: Option<&Duration>| at.copied().unwrap_or(moment).saturating_sub(moment);
    Ok(RsvpRepair {
        sessions: ends.len(),
        first_path: if first_path == Duration::MAX {
            Duration::ZERO
        } else {
            first_path.saturating_sub(moment)
        },
        half: since(ends.get(ends.len().saturating_sub(1) / 2)),
        last: since(ends.last()),
    })
}

const fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl RsvpRepair {
    fn reached(self, check: &RsvpRepairedCheck) -> Option<bool> {
        check.goal.map(|goal| self.last <= goal.0)
    }

    /// For the report.
    pub(crate) fn measured(self, check: &RsvpRepairedCheck) -> Value {
        json!({
            "sessions": self.sessions,
            "first_path_ms": ms(self.first_path),
            "half_ms": ms(self.half),
            "last_ms": ms(self.last),
            "goal_ms": check.goal.map(|goal| ms(goal.0)),
            "goal_reached": self.reached(check),
            "published_ms": check.published.map(|published| ms(published.0)),
        })
    }
}

/// Every session is reserved on the new way in time.
pub(super) fn repaired(evidence: &Evidence, check: &RsvpRepairedCheck) -> Verdict {
    let repair = repair(evidence, check)?;
    let mut seen = format!(
        "{} sessions: the first Path after {:.1} ms, half of the reservations after {:.1} ms, the last after {:.1} ms",
        repair.sessions,
        ms(repair.first_path),
        ms(repair.half),
        ms(repair.last),
    );
    if let Some(goal) = check.goal {
        let reached = if repair.reached(check) == Some(true) { "reached" } else { "not reached" };
        seen += &format!("; the goal of {:.0} ms was {reached}", ms(goal.0));
    }
    if let Some(published) = check.published {
        seen += &format!("; published is {:.0} ms", ms(published.0));
    }
    if repair.sessions == check.sessions && repair.last <= check.within.0 {
        Ok(seen)
    } else {
        Err(format!("{seen}; {} within {} were expected", check.sessions, check.within))
    }
}
