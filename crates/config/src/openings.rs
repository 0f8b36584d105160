//! Warnings about what a configuration opens to strangers: senders that proved nothing, or nothing but an address.

use std::net::IpAddr;

use signalbox_core::ReserverId;
use signalbox_node::resources;
use signalbox_node::resources::config::{Action, Opening, RuleConfig};
use signalbox_node::resources::request::Proof;
use signalbox_node::resources::units::{Net, Trusted};

use crate::Config;
use crate::keys::Keys;
use crate::protocols::Protocol;

/// How each of these warnings begins.
pub(crate) const OPEN: &str = "open to strangers: ";

/// Warns about a key that opens something.
pub(crate) fn open(keys: &mut Keys<'_>, names: &[&str], what: &str) {
    keys.warn(names, &format!("{OPEN}{what}"));
}

/// Warns about what the tables open that belong to no protocol.
pub(crate) fn check(config: &Config, keys: &mut Keys<'_>) {
    if config.control.mode & 0o002 != 0 && config.control.access.is_empty() {
        let what = "every user of this host may control the daemon: write mode = \"0660\" and control.group, or give users \
                    roles by [[control.access]]";
        open(keys, &["control.mode", "control"], what);
    }
    // Where nothing can be reserved, every request is refused.
    let (reserves, opens) = (config.reserves() && !config.admission().links.is_empty(), config.opens());
    if reserves {
        reservations(&config.resources.0, keys);
    }
    if opens {
        passages(&config.resources.0, keys);
    }
    if reserves || opens {
        trusted(&config.resources.0, keys);
    }
    if reserves {
        links(config, keys);
    }
    let unproved = |section: &&dyn Protocol| {
        section.forgeable().is_some() || section.reserver() == Some(ReserverId::BOOMERANG)
    };
    if reserves && config.running().any(|section| unproved(&section)) {
        config.kernel.openings(keys);
    }
}

/// Warns about what strangers may reserve.
fn reservations(config: &resources::Config, keys: &mut Keys<'_>) {
    if config.default == Action::Allow {
        let what = "everybody whose messages reach this node may reserve: write default = \"deny\", and name neighbors \
                    in policy.trusted or write rules";
        open(keys, &["policy.default", "policy"], what);
    }
    for (number, rule) in (1..).zip(&config.rules) {
        if rule.action == Action::Allow && rule.opens.is_empty() && is_open(rule) {
            let what = format!(
                "the rule {} allows requests of everybody: give it from, via, peer or token (user names are not \
                 authenticated)",
                name(number, rule)
            );
            open(keys, &["policy.rules", "policy"], &what);
        }
    }
    if let Some(names) = together(config, |rule| rule.opens.is_empty()) {
        let what = format!(
            "the rules {names} together allow requests of everybody: write the prefixes of your own networks"
        );
        open(keys, &["policy.rules", "policy"], &what);
    }
}

/// Names of rules in one warning.
const NAMED: usize = 8;

/// The names of rules that allow, of which none is open, if their prefixes add up to most addresses.
fn together(config: &resources::Config, is_meant: impl Fn(&RuleConfig) -> bool) -> Option<String> {
    // With both conditions a requester has to meet the narrower one.
    let nets = |rule: &RuleConfig| match (&rule.from[..], &rule.via[..]) {
        (nets, []) | ([], nets) => nets.to_vec(),
        _ => Vec::new(),
    };
    let by_address = |rule: &RuleConfig| {
        rule.peer.is_empty() && rule.token.is_empty() && rule.proof != Some(Proof::Identity) && !is_open(rule)
    };
    let meant = |rule: &RuleConfig| rule.action == Action::Allow && is_meant(rule) && by_address(rule);
    let parts = (1..).zip(&config.rules).filter(|(_, rule)| meant(rule) && !nets(rule).is_empty());
    let parts: Vec<(u32, &RuleConfig)> = parts.collect();
    let all: Vec<Net> = parts.iter().flat_map(|(_, rule)| nets(rule)).collect();
    let mut names: Vec<String> = parts.iter().take(NAMED).map(|(number, rule)| name(*number, rule)).collect();
    if parts.len() > NAMED {
        names.push(format!("{} others", parts.len() - NAMED));
    }
    most(&all).then(|| names.join(" and "))
}

/// Warns about rules that take addresses which every node on their link can forge.
fn links(config: &Config, keys: &mut Keys<'_>) {
    let policy = &config.resources.0;
    for (number, rule) in (1..).zip(&policy.rules) {
        let by_address = !rule.from.is_empty() || !rule.via.is_empty();
        let known =
            rule.action == Action::Allow && rule.opens.is_empty() && rule.peer.is_empty() && !is_open(rule);
        if !by_address || !known || rule.proof.unwrap_or(policy.proof) > Proof::Link {
            continue;
        }
        for section in config.running() {
            let Some(instead) = section.forgeable() else { continue };
            let Some(protocol) = section.reserver() else { continue };
            if rule.signaling.is_empty() || rule.signaling.contains(&protocol) {
                let what = format!(
                    "the rule {} takes an address that every node on its link can forge in {protocol}: write {instead}",
                    name(number, rule)
                );
                open(keys, &["policy.rules", "policy"], &what);
            }
        }
    }
}

/// Warns about what strangers may open through a firewall or NAT.
fn passages(config: &resources::Config, keys: &mut Keys<'_>) {
    for (number, rule) in (1..).zip(&config.rules) {
        if rule.action == Action::Allow && !rule.opens.is_empty() && is_open(rule) {
            let all: Vec<String> =
                rule.opens.iter().map(|opening| format!("{:?}", opening.to_string())).collect();
            let what = format!(
                "the rule {} lets everybody open {}{}{}: give it from, via, peer or token",
                name(number, rule),
                all.join(" and "),
                zones(" from the zone", &rule.from_zone),
                zones(" to the zone", &rule.to_zone)
            );
            open(keys, &["policy.rules", "policy"], &what);
        }
    }
    for opening in Opening::ALL {
        if let Some(names) = together(config, |rule| rule.opens.contains(&opening)) {
            let what = format!(
                "the rules {names} together let everybody open \"{opening}\": write the prefixes of your own networks"
            );
            open(keys, &["policy.rules", "policy"], &what);
        }
    }
}

fn zones(what: &str, names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    if names.is_empty() { String::new() } else { format!("{what} {}", names.join(" or ")) }
}

/// Warns about prefixes in `trusted` that are most of all addresses.
fn trusted(config: &resources::Config, keys: &mut Keys<'_>) {
    let nets: Vec<Net> = config
        .trusted
        .iter()
        .filter_map(|trusted| match trusted {
            Trusted::Neighbors(net) => Some(*net),
            Trusted::Local | Trusted::Peer(_) => None,
        })
        .collect();
    if most(&nets) {
        let all: Vec<String> = nets.iter().map(Net::to_string).collect();
        let what = format!(
            "{} is every neighbor, and each speaks for every requester: write the prefixes of your own networks",
            all.join(" and ")
        );
        open(keys, &["policy.trusted", "policy"], &what);
    }
}

fn name(number: u32, rule: &RuleConfig) -> String {
    if rule.name.is_empty() { format!("number {number}") } else { format!("{:?}", rule.name) }
}

/// Whether a rule has no condition about the requester that needs a proof.
fn is_open(rule: &RuleConfig) -> bool {
    let everywhere = |nets: &[Net]| nets.is_empty() || most(nets);
    everywhere(&rule.from)
        && everywhere(&rule.via)
        && rule.peer.is_empty()
        && rule.token.is_empty()
        && rule.proof != Some(Proof::Identity)
}

/// Whether prefixes add up to half of the addresses of hosts, of one IP version. No owner has so many.
fn most(nets: &[Net]) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    // 224.0.0.0/3 and what is not 2000::/3 are of no host in the Internet.
    let hosts =
        [(true, 0, 0xdfff << 112 | u128::MAX >> 16), (false, 0x2 << 124, 0x3 << 124 | u128::MAX >> 4)];
    hosts.into_iter().any(|(v4, low, high)| {
        let mut ranges: Vec<(u128, u128)> = nets
            .iter()
            .filter(|net| net.0.addr.is_ipv4() == v4)
            .map(|net| {
                let wild = u128::MAX.checked_shr(net.0.len.into()).unwrap_or(0);
                let from = bits(net.0.addr) & !wild;
                (from.max(low), (from | wild).min(high))
            })
            .filter(|(from, to)| from <= to)
            .collect();
        ranges.sort_unstable();
        let (mut sum, mut next) = (0_u128, low);
        for (from, to) in ranges {
            sum += (to + 1).saturating_sub(from.max(next));
            next = next.max(to + 1);
        }
        sum > (high - low) / 2
    })
}
