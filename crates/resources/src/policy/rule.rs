//! One rule.

use std::sync::Arc;

use signalbox_core::pinhole::PinholeFlow;
use signalbox_core::security::Identity;
use signalbox_core::traffic::FlowFilter;

use super::requester::JudgedRequester;
use crate::config::{ANY_NAME, Action, Day, Opening, RuleConfig};
use crate::passage::{PassageRequest, Permission};
use crate::refusal::{PolicyWhy, RuleName};
use crate::request::{GrantRequest, Proof, Requester};
use crate::units::{Hours, Identity as Wanted, Net, Ports};

const DAY_MINUTES: u64 = 24 * 60;

/// A rule, and what passages share of it.
#[derive(Debug)]
pub(crate) struct Matcher {
    config: RuleConfig,
    /// The least proof of an address in `from` and `via`.
    least: Proof,
    permission: Arc<Permission>,
}

/// Whether a peer proved this identity.
pub(super) fn proved(wanted: &Wanted, peer: &Identity) -> bool {
    match wanted {
        Wanted::Any | Wanted::Authenticated => true,
        Wanted::Key(key) => *key == peer.key,
        Wanted::Address(address) => peer.addresses.contains(address),
        Wanted::Dns(pattern) => match pattern.strip_prefix('*') {
            // Any single label before this rest, which begins with a dot.
            Some(rest) => peer.dns_names().any(|dns| {
                dns.split_once('.').is_some_and(|(label, _)| {
                    !label.is_empty()
                        && dns.get(label.len()..).is_some_and(|tail| tail.eq_ignore_ascii_case(rest))
                })
            }),
            None => peer.dns_names().any(|dns| dns.eq_ignore_ascii_case(pattern)),
        },
    }
}

impl Matcher {
    /// The rule of this number; the first is 1.
    pub(super) fn new(number: u32, config: &RuleConfig, least: Proof) -> Self {
        let rule = RuleName { number, name: Arc::from(config.name.as_str()) };
        let max_lifetime = config.max_lifetime.map(|span| span.0);
        let least = config.proof.unwrap_or(least);
        Self { permission: Arc::new(Permission { rule, max_lifetime }), least, config: config.clone() }
    }

    /// Its name as refusals contain it.
    pub(crate) fn name(&self) -> &RuleName {
        &self.permission.rule
    }

    pub(crate) const fn permission(&self) -> &Arc<Permission> {
        &self.permission
    }

    pub(crate) fn max_total(&self) -> Option<u64> {
        self.config.max_total.map(|rate| rate.0)
    }

    pub(crate) const fn max_reservations(&self) -> Option<u32> {
        self.config.max_reservations
    }

    pub(crate) const fn limits_totals(&self) -> bool {
        self.config.max_total.is_some() || self.config.max_reservations.is_some()
    }

    /// Whether the rule applies to this request.
    pub(super) fn applies(
        &self,
        request: &GrantRequest,
        judged: &JudgedRequester<'_>,
        interface: &str,
        wall_us: u64,
    ) -> bool {
        let rule = &self.config;
        let requester = &request.requester;
        rule.opens.is_empty()
            && any_or_empty(&rule.signaling, |protocol| *protocol == request.owner.protocol)
            && self.is_for(judged)
            && any_or_empty(&rule.user, |user| {
                requester.names.as_ref().is_some_and(|names| user == ANY_NAME || names.contains(user))
            })
            && any_or_empty(&rule.service, |services| services.contains(request.service))
            && any_or_empty(&rule.interface, |name| name == interface)
            && self.is_now(wall_us)
            && match rule.action {
                Action::Allow => {
                    request.filters.iter().all(|filter| self.covers(filter) && self.is_of(judged, filter))
                }
                Action::Deny => request.filters.iter().any(|filter| self.touches(filter)),
            }
    }

    /// Whether the rule applies to this request for a passage.
    pub(super) fn applies_to_passage(
        &self,
        request: &PassageRequest<'_>,
        judged: &JudgedRequester<'_>,
        zones: [Option<&str>; 2],
        wall_us: u64,
    ) -> bool {
        let rule = &self.config;
        rule.opens.contains(&request.opening)
            && self.is_between(zones)
            && self.is_for(judged)
            && self.is_now(wall_us)
            && match rule.action {
                Action::Allow => {
                    request.pinhole.flows().all(|flow| self.covers_passage(&flow, request.opening, judged))
                }
                Action::Deny => request.pinhole.flows().any(|flow| self.touches_passage(&flow)),
            }
    }

    /// Whether the rule is about packets from one zone to another. What is not known may be in any, so that rules that deny match.
    fn is_between(&self, [from, to]: [Option<&str>; 2]) -> bool {
        let in_one = |named: &[String], zone: Option<&str>| {
            any_or_empty(named, |one| zone.map_or(self.denies(), |zone| one == zone))
        };
        in_one(&self.config.from_zone, from) && in_one(&self.config.to_zone, to)
    }

    /// Whether the conditions about the requester match.
    fn is_for(&self, judged: &JudgedRequester<'_>) -> bool {
        let rule = &self.config;
        let by_address = match rule.action {
            Action::Allow => {
                judged.requester.proof() >= rule.proof.unwrap_or_default()
                    && (rule.from.is_empty() || judged.is_from(&rule.from, self.least))
                    && (rule.via.is_empty() || judged.is_via(&rule.via, self.least))
            }
            Action::Deny => {
                (rule.from.is_empty() || judged.names(&rule.from))
                    && (rule.via.is_empty() || judged.passes(&rule.via))
            }
        };
        let peer = judged.requester.peer.as_ref();
        by_address
            && any_or_empty(&rule.peer, |wanted| peer.is_some_and(|peer| proved(wanted, peer)))
            && self.has_token(judged.requester)
    }

    /// Whether the requester has a token of an entity that the rule names.
    fn has_token(&self, requester: &Requester) -> bool {
        any_or_empty(&self.config.token, |entity| {
            requester.token.as_ref().is_some_and(|token| entity == ANY_NAME || *entity == token.entity)
        })
    }

    pub(crate) const fn denies(&self) -> bool {
        matches!(self.config.action, Action::Deny)
    }

    /// The limit of the rule that this request exceeds, totals excepted.
    pub(crate) fn permits(&self, request: &GrantRequest) -> Result<(), PolicyWhy> {
        let rule = &self.config;
        let over = |asked: u64, limit: Option<u64>| limit.filter(|limit| asked > *limit);
        if rule.action == Action::Deny {
            return Err(PolicyWhy::Denied);
        }
        let asked = request.rate();
        if let Some(limit) = over(asked, rule.max_rate.map(|rate| rate.0)) {
            return Err(PolicyWhy::Rate { asked, limit });
        }
        if let Some(limit) = rule.max_burst.filter(|limit| request.traffic.burst > *limit) {
            return Err(PolicyWhy::Burst { asked: request.traffic.burst, limit });
        }
        if let Some(limit) = rule.max_setup_priority.filter(|limit| request.priority.setup > *limit) {
            return Err(PolicyWhy::SetupPriority { asked: request.priority.setup, limit });
        }
        if let Some(limit) = rule.max_defending_priority.filter(|limit| request.priority.defending > *limit) {
            return Err(PolicyWhy::DefendingPriority { asked: request.priority.defending, limit });
        }
        if let Some(limit) = rule.max_lifetime
            && request.lifetime.is_none_or(|asked| asked > limit.0)
        {
            return Err(PolicyWhy::Lifetime { asked: request.lifetime.map(crate::units::Span), limit });
        }
        Ok(())
    }

    /// Whether all packets of the filter match.
    fn covers(&self, filter: &FlowFilter) -> bool {
        let rule = &self.config;
        any_or_empty(&rule.source, |net: &Net| net.covers(&filter.src))
            && any_or_empty(&rule.destination, |net: &Net| net.covers(&filter.dst))
            && any_or_empty(&rule.protocol, |protocol| filter.protocol == Some(*protocol))
            && any_or_empty(&rule.ports, |ports| filter.dst_port.is_some_and(|port| is_in(ports, port)))
    }

    /// Whether the packets are of the requester. Rules that name them by `source` or `destination` decide by that.
    fn is_of(&self, judged: &JudgedRequester<'_>, filter: &FlowFilter) -> bool {
        let rule = &self.config;
        rule.from.is_empty()
            || !(rule.source.is_empty() && rule.destination.is_empty())
            || judged.owns(&rule.from, filter)
    }

    /// Whether any packet of the filter matches.
    fn touches(&self, filter: &FlowFilter) -> bool {
        let rule = &self.config;
        any_or_empty(&rule.source, |net: &Net| net.overlaps(&filter.src))
            && any_or_empty(&rule.destination, |net: &Net| net.overlaps(&filter.dst))
            && any_or_empty(&rule.protocol, |protocol| filter.protocol.is_none_or(|p| p == *protocol))
            && any_or_empty(&rule.ports, |ports| filter.dst_port.is_none_or(|port| is_in(ports, port)))
    }

    /// Whether all packets of a flow match, with their destination as it is before a translation or behind it. Their source is that
    /// of their sender: behind a translation all senders have one. Of a publication the place behind it counts alone, because who asks
    /// chooses the one before. It is that of the requester, unless the rule names the place.
    fn covers_passage(&self, flow: &PinholeFlow, opening: Opening, judged: &JudgedRequester<'_>) -> bool {
        let PinholeFlow { packets, destination, .. } = *flow;
        let behind = PinholeFlow { packets, source: None, destination }.translated();
        if opening == Opening::Publish {
            let RuleConfig { from, destination, .. } = &self.config;
            let own = from.is_empty() || !destination.is_empty() || judged.owns(from, &behind);
            return own && self.covers(&behind);
        }
        self.covers(&packets) || self.covers(&behind)
    }

    /// Whether any packet of a flow matches, before a translation of its source or destination or behind it.
    fn touches_passage(&self, flow: &PinholeFlow) -> bool {
        let PinholeFlow { packets, source, destination } = *flow;
        [None, source].into_iter().any(|source| {
            let touches =
                |destination| self.touches(&PinholeFlow { packets, source, destination }.translated());
            touches(None) || touches(destination)
        })
    }

    fn is_now(&self, wall_us: u64) -> bool {
        if self.config.days.is_empty() && self.config.hours.is_none() {
            return true;
        }
        let minutes = wall_us / 60_000_000;
        let (mut day, minute) = (minutes / DAY_MINUTES, minutes % DAY_MINUTES);
        if let Some(Hours { from, to }) = self.config.hours {
            let (from, to) = (u64::from(from), u64::from(to));
            let inside = if from < to { (from..to).contains(&minute) } else { minute >= from || minute < to };
            if !inside {
                return false;
            }
            if from > to && minute < to {
                day = day.saturating_sub(1); // a night belongs to the day on which it began
            }
        }
        any_or_empty(&self.config.days, |one| *one == weekday(day))
    }
}

/// An empty list matches everything.
fn any_or_empty<T>(list: &[T], is: impl Fn(&T) -> bool) -> bool {
    list.is_empty() || list.iter().any(is)
}

const fn is_in(ports: &Ports, port: u16) -> bool {
    ports.from <= port && port <= ports.to
}

/// Day of the week of a day since 1970, which began on a Thursday.
const fn weekday(day: u64) -> Day {
    match day % 7 {
        0 => Day::Thu,
        1 => Day::Fri,
        2 => Day::Sat,
        3 => Day::Sun,
        4 => Day::Mon,
        5 => Day::Tue,
        _ => Day::Wed,
    }
}
