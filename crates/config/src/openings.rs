//! Warnings about what a configuration opens to strangers: senders that proved nothing, or nothing but an address.

use signalbox_node::resources;
use signalbox_node::resources::config::{Action, RuleConfig};
use signalbox_node::resources::units::Trusted;

use crate::Config;
use crate::keys::Keys;

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
    if config.reserves() && !config.admission().links.is_empty() {
        policy(&config.resources.0, keys);
    }
}

fn policy(config: &resources::Config, keys: &mut Keys<'_>) {
    if config.default == Action::Allow {
        let what = "everybody whose messages reach this node may reserve: write default = \"deny\", and name neighbors \
                    in policy.trusted or write rules";
        open(keys, &["policy.default", "policy"], what);
    }
    let all = |trusted: &&Trusted| matches!(trusted, Trusted::Neighbours(net) if net.0.len == 0);
    if let Some(all) = config.trusted.iter().find(all) {
        let what = format!("{all} is every neighbor: write the prefixes of your own networks");
        open(keys, &["policy.trusted", "policy"], &what);
    }
    for (number, rule) in (1..).zip(&config.rules) {
        if rule.action == Action::Allow && is_open(rule) {
            let name =
                if rule.name.is_empty() { format!("number {number}") } else { format!("{:?}", rule.name) };
            let what = format!(
                "the rule {name} allows requests of everybody: give it from, peer or token (user names are not \
                 authenticated)"
            );
            open(keys, &["policy.rules", "policy"], &what);
        }
    }
}

/// Whether a rule has no condition about the requester that needs a proof.
fn is_open(rule: &RuleConfig) -> bool {
    let everywhere = rule.from.is_empty() || rule.from.iter().any(|net| net.0.len == 0);
    everywhere && rule.peer.is_empty() && rule.token.is_empty()
}
