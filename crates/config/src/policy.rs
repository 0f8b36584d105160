//! `[admission]` and `[policy]`: limits of admission control, and who may reserve.

use std::time::Duration;

use signalbox_core::ReserverId;
use signalbox_node::resources::config::{Action, Config, Day, Opening, RuleConfig, SENDERS_ANYWHERE};
use signalbox_node::resources::request::Proof;
use signalbox_node::resources::units::Trusted;
use signalbox_units::Identity;

use crate::keys::Keys;
use crate::kind::{
    choice, flag, ip_protocol, list, network, number, peer, ports, rate, rule_service, size, span, text,
    time_of_day, trusted,
};

pub(crate) const ADMISSION: &str = "Limits of admission control, for all protocols that reserve.";
pub(crate) const POLICY: &str =
    "Who may reserve, for all protocols that reserve, and who may open what through a firewall or NAT.";
const RULES: &str = "The first rule that matches decides. A rule matches if all its conditions match; an absent or empty condition always \
     matches. A rule that allows matches only if all packets of the request match, a rule that denies if any does. The \
     keys `max_…` limit what a rule allows.";

const OPENINGS: &[(&str, Opening)] = &[
    ("outward", Opening::Outward),
    ("inward", Opening::Inward),
    ("between", Opening::Between),
    ("reserve", Opening::Reserve),
    ("block", Opening::Block),
    ("publish", Opening::Publish),
];

const PROOFS: &[(&str, Proof)] =
    &[("link", Proof::Link), ("handshake", Proof::Handshake), ("identity", Proof::Identity)];

const ACTIONS: &[(&str, Action)] = &[("allow", Action::Allow), ("deny", Action::Deny)];

/// The configuration of admission control. By default only trusted requesters may reserve.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Admission(pub(crate) Config);

impl Default for Admission {
    fn default() -> Self {
        Self(Config { default: Action::Deny, trusted: Trusted::usual(), ..Config::default() })
    }
}

/// `[admission]`
pub(crate) fn admission(config: &mut Config, keys: &mut Keys<'_>) {
    keys.key(
        "preemption",
        &mut config.preemption,
        flag(),
        "Whether a request may preempt reservations of lower defending priority.",
    );
    keys.key(
        "max_victims",
        &mut config.max_victims,
        number(1..=1024),
        "Most reservations that one request may preempt.",
    );
    keys.key(
        "max_reservations",
        &mut config.max_reservations,
        number(1..=u32::MAX),
        "Most reservations at all interfaces.",
    );
    keys.key("max_filters", &mut config.max_filters, number(1..=1024), "Most filters of one reservation.");
    keys.key(
        "max_pinholes",
        &mut config.max_pinholes,
        number(1..=u32::MAX),
        "Most passages through a firewall or NAT; a quarter is kept for requesters that hold few.",
    );
    keys.key(
        "max_sharers",
        &mut config.max_sharers,
        number(1..=1024),
        "Most reservations of one session at one interface.",
    );
}

/// A rule while it is read: its action may be missing.
#[derive(Debug, Clone)]
pub(crate) struct Rule(Option<Action>, RuleConfig);

/// `[policy]`
pub(crate) fn policy(config: &mut Config, keys: &mut Keys<'_>) {
    let meaning =
        "The decision for requests that no rule matches. With `\"deny\"` those of `trusted` are allowed.";
    keys.key("default", &mut config.default, choice(ACTIONS), meaning);
    keys.key(
        "trusted",
        &mut config.trusted,
        list(trusted()),
        "Who may reserve although no rule matches, where `default` is `\"deny\"`. `\"local\"`: users of this host, and \
         answers to what they announced or asked for. `\"authenticated\"`: neighbors that proved an identity over TLS or \
         share a key of `[rsvp.integrity]`. `\"dns:NAME\"`, `\"address:ADDRESS\"`, `\"key:FINGERPRINT\"`: neighbors that \
         proved this identity over TLS. A prefix: neighbors with these addresses, by a handshake of GIST or by the rules \
         of `[rsvp]`. A neighbor is the adjacent node of the signaling protocol, not the sender of the flow. A neighbor in \
         this list speaks for the requester that its messages name: `from` of a rule is compared with that one. Rules that \
         deny come first.",
    );
    let meaning = "The least proof of an address in `trusted`, and in `from` and `via` of rules that have no `proof`. \
                   `\"link\"`: the message came by the link of this address, which every node on the link can forge (RSVP). \
                   `\"handshake\"`: the node answered at this address (GIST, CASP, `boomerang.prove_return`). \
                   `\"identity\"`: the node has a key (TLS, `[rsvp.integrity]`, `[boomerang.integrity]`).";
    keys.key("proof", &mut config.proof, choice(PROOFS), meaning);
    let meaning = "Whether who asks gets the rule or the limit that refused, with its numbers, as text: RESPONSE of `qos` and `natfw`, ResvErr of \
                   `rsvp`, replies of `boomerang`, Error and RESPONSE of `casp`. The node that refused, the kind of the reason and \
                   the rate that is left are always given, as far as the protocol has a place for them.";
    keys.key("report_rule", &mut config.report_rule, flag(), meaning);
    let mut rules: Vec<_> = config.rules.drain(..).map(|rule| Rule(Some(rule.action), rule)).collect();
    let new = || Rule(None, RuleConfig::new("", Action::Deny));
    keys.array("rules", RULES, &mut rules, new, |keys, Rule(action, rule)| {
        requester(action, rule, keys);
        request(rule, keys);
        limits(rule, keys);
        rule.action = action.unwrap_or(Action::Deny);
        for (name, zones) in [("from_zone", &rule.from_zone), ("to_zone", &rule.to_zone)] {
            let message = "it belongs to rules with opens: write opens = [\"between\"], or remove it";
            keys.check(zones.is_empty() || !rule.opens.is_empty(), &[name], message);
        }
        let known = !rule.opens.iter().any(|opening| opening.is_of_receiver());
        keys.check(rule.from_zone.is_empty() || known, &["from_zone"], SENDERS_ANYWHERE);
        let foreign = [
            "protocols",
            "user",
            "service",
            "interface",
            "max_rate",
            "max_burst",
            "max_total",
            "max_setup_priority",
            "max_defending_priority",
        ];
        let foreign = foreign.into_iter().find(|key| keys.given(key));
        if let (false, Some(key)) = (rule.opens.is_empty(), foreign) {
            keys.fault(&[key], "it belongs to rules for reservations: remove it, or opens");
        }
        let limited =
            ["rate", "burst", "total", "reservations", "setup_priority", "defending_priority", "lifetime"];
        let limit = limited.iter().map(|limit| format!("max_{limit}")).find(|limit| keys.given(limit));
        if *action == Some(Action::Deny) && keys.given("proof") {
            keys.fault(
                &["proof"],
                "\"deny\" matches whatever is proved: remove it, or write action = \"allow\"",
            );
        }
        if let (Some(Action::Deny), Some(limit)) = (*action, limit) {
            keys.fault(&[&limit], "\"deny\" takes no limits: remove it, or write action = \"allow\"");
        }
    });
    config.rules = rules.into_iter().map(|Rule(_, rule)| rule).collect();
}

fn requester(action: &mut Option<Action>, rule: &mut RuleConfig, keys: &mut Keys<'_>) {
    keys.key("name", &mut rule.name, text(64), "Name of the rule, which refusals contain.");
    keys.needed("action", action, choice(ACTIONS), "The decision.");
    keys.key(
        "protocols",
        &mut rule.signaling,
        list(choice(&[
            ("qos", ReserverId::QOS),
            ("rsvp", ReserverId::RSVP),
            ("boomerang", ReserverId::BOOMERANG),
            ("casp", ReserverId::CASP),
        ])),
        "Signaling protocols of the request.",
    );
    keys.key(
        "opens",
        &mut rule.opens,
        list(choice(OPENINGS)),
        "What is opened through a firewall or NAT by `natfw` or `casp`. A rule with this condition is for such requests only, a rule \
         without it for reservations only. `\"outward\"`: a flow from the inside to the outside. `\"inward\"`: a flow from the outside. \
         `\"between\"`: a flow between interfaces of the inside, or by one of them, which only a rule opens. `\"reserve\"`: an external address for a host inside, or that it is known at the edge. `\"block\"`: senders that \
         a host inside does not want. `\"publish\"`: a host inside that all senders may reach without asking, or those that it names, \
         which only a rule opens.",
    );
    keys.key(
        "from_zone",
        &mut rule.from_zone,
        list(text(64)),
        "Zones of the interface by which the packets of a passage come in: `zone` in `[interfaces.NAME]`. A rule with zones restricts \
         `opens` further. If the interface is not known, because packets of any source come in anywhere, a rule that allows does \
         not match, and a rule that denies does.",
    );
    keys.key(
        "to_zone",
        &mut rule.to_zone,
        list(text(64)),
        "Zones of the interface by which they leave, by the route to their destination. With `\"reserve\"` and `\"block\"`, the \
         zone of the host that asks.",
    );
    keys.key(
        "from",
        &mut rule.from,
        list(network()),
        "Prefixes of the requester's address: that of the neighbor that asks or, if the neighbor is in `trusted`, that of \
         the party that its message names (with RSVP the receiver, else the signaling initiator). A rule that allows needs a \
         proof of it. Without `source` and `destination`, the packets of a reservation have to come from the requester or go \
         to it, or to a group.",
    );
    keys.key("via", &mut rule.via, list(network()), "Prefixes of the address of the neighbor that asks.");
    keys.option(
        "proof",
        &mut rule.proof,
        choice(PROOFS),
        "none without `from` and `via`, else that of `policy.proof`",
        "The least proof that a rule that allows needs.",
    );
    keys.key(
        "peer",
        &mut rule.peer,
        list(peer()),
        "Identities that the adjacent peer proved over TLS: `\"authenticated\"`, `\"dns:NAME\"`, `\"address:ADDRESS\"`, \
         `\"key:FINGERPRINT\"`, as in `[[gist.peer_rules]]`.",
    );
    let message = "\"any\" matches every request, as does a rule without peer: write \"authenticated\"";
    keys.check(!rule.peer.contains(&Identity::Any), &["peer"], message);
    keys.key("token", &mut rule.token, list(text(255)), "Entities of verified tokens, or `\"any\"`.");
    keys.key(
        "user",
        &mut rule.user,
        list(text(255)),
        "Names of the user or application in an RSVP request [RFC 3182], or `\"any\"`. They are not authenticated: use \
         them only where strangers cannot send requests.",
    );
    for (name, empty) in
        [("token", rule.token.contains(&String::new())), ("user", rule.user.contains(&String::new()))]
    {
        keys.check(!empty, &[name], "an empty name: write a name, or \"any\"");
    }
}

fn request(rule: &mut RuleConfig, keys: &mut Keys<'_>) {
    let meaning = "Services: `\"controlled-load\"`, `\"guaranteed\"`, `\"ef\"`, `\"dscp:N\"`, or `\"dscp\"` for every \
                   code point.";
    keys.key("service", &mut rule.service, list(rule_service()), meaning);
    keys.key("interface", &mut rule.interface, list(text(64)), "Names of outgoing interfaces.");
    keys.key("source", &mut rule.source, list(network()), "Prefixes of the packets' source.");
    keys.key("destination", &mut rule.destination, list(network()), "Prefixes of the packets' destination.");
    let meaning = "IP protocols of the packets, by name or number.";
    keys.key("ip_protocol", &mut rule.protocol, list(ip_protocol()), meaning);
    let meaning = "Destination ports; they need `ip_protocol`.";
    keys.key("ports", &mut rule.ports, list(ports()), meaning);
    let fits = rule.ports.is_empty() || !rule.protocol.is_empty();
    keys.check(fits, &["ports"], "needs ip_protocol: write ip_protocol = [\"udp\", \"tcp\"]");
    keys.key(
        "days",
        &mut rule.days,
        list(choice(&[
            ("mon", Day::Mon),
            ("tue", Day::Tue),
            ("wed", Day::Wed),
            ("thu", Day::Thu),
            ("fri", Day::Fri),
            ("sat", Day::Sat),
            ("sun", Day::Sun),
        ])),
        "Days of the week, in UTC.",
    );
    let meaning = "Hours of the day in UTC, without the end; they span midnight if the end is earlier.";
    keys.option("hours", &mut rule.hours, time_of_day(), "always", meaning);
}

fn limits(rule: &mut RuleConfig, keys: &mut Keys<'_>) {
    keys.option("max_rate", &mut rule.max_rate, rate(0), "unlimited", "Largest rate of one reservation.");
    keys.option(
        "max_burst",
        &mut rule.max_burst,
        size(0..=u32::MAX),
        "unlimited",
        "Largest burst of one reservation.",
    );
    let meaning = "Largest sum of rates of one requester at one interface.";
    keys.option("max_total", &mut rule.max_total, rate(0), "unlimited", meaning);
    let meaning = "Most reservations of one requester at one interface.";
    keys.option("max_reservations", &mut rule.max_reservations, number(0..=u32::MAX), "unlimited", meaning);
    let meaning = "Highest setup priority.";
    keys.option(
        "max_setup_priority",
        &mut rule.max_setup_priority,
        number(0..=u16::MAX),
        "unlimited",
        meaning,
    );
    let meaning = "Highest defending priority.";
    keys.option(
        "max_defending_priority",
        &mut rule.max_defending_priority,
        number(0..=u16::MAX),
        "unlimited",
        meaning,
    );
    let meaning = "Longest time without a refresh.";
    keys.option(
        "max_lifetime",
        &mut rule.max_lifetime,
        span(Duration::ZERO..=Duration::MAX),
        "unlimited",
        meaning,
    );
}
