//! What became of the keys of the language before version 1.

use crate::findings::Findings;
use crate::tree::{Place, Tree, Value};

/// Old keys and what to write now. `.*` stands for all keys below; the longest line that fits decides.
const BECAME: &[(&str, &str)] = &[
    ("io.ipv4", "node.families = [\"ipv4\", \"ipv6\"]"),
    ("io.ipv6", "node.families = [\"ipv4\", \"ipv6\"]"),
    ("io.*", "kernel.*"),
    ("gist.enabled", "node.protocols, a list"),
    ("gist.ipv4.*", "node.families = [\"ipv4\", \"ipv6\"]"),
    ("gist.ipv6.*", "node.families = [\"ipv4\", \"ipv6\"]"),
    ("gist.t1", "gist.retry.first"),
    ("gist.t2", "gist.retry.max"),
    ("gist.attempts", "gist.retry.attempts"),
    ("gist.max_datagram", "gist.max_datagram_size"),
    ("gist.rate_limit", "gist.message_rate = \"20000/s\""),
    ("gist.rate_burst", "gist.message_burst"),
    ("gist.error_rate_limit", "gist.error_rate = \"100/s\""),
    ("gist.intercept_rate_limit", "gist.intercept_rate = \"200000/s\""),
    ("gist.hold_down", "gist.route_damping.first"),
    ("gist.hold_down_max", "gist.route_damping.max"),
    ("gist.associations.retry_min", "gist.associations.retry.first"),
    ("gist.associations.retry_max", "gist.associations.retry.max"),
    ("gist.associations.max", "gist.associations.max_associations"),
    ("gist.associations.max_queued", "gist.associations.max_queued_size"),
    ("gist.associations.max_queued_total", "gist.associations.max_total_queued_size"),
    ("gist.associations.max_buffered", "gist.associations.max_buffered_size"),
    ("gist.associations.max_unsent", "gist.associations.max_unsent_size"),
    ("gist.associations.tls.key", "gist.tls.key_file"),
    ("gist.associations.tls.certificate", "gist.tls.certificate_file"),
    ("gist.associations.tls.anchors", "gist.tls.anchors_file"),
    ("gist.associations.tls.peer_keys", "gist.tls.peer_keys_file"),
    ("gist.associations.tls.versions", "gist.tls.versions = [\"1.2\", \"1.3\"]"),
    ("gist.associations.tls.*", "gist.tls.*"),
    ("gist.associations.authorised.name", "peer in [[gist.peer_rules]]"),
    ("gist.associations.authorised.peers", "at in [[gist.peer_rules]]"),
    ("gist.associations.authorised.verdict", "action in [[gist.peer_rules]]"),
    ("gist.associations.authorised.*", "* in [[gist.peer_rules]]"),
    ("apps.ping.enabled", "node.protocols, a list"),
    ("apps.ping.*", "ping.*"),
    ("apps.qos.enabled", "node.protocols, a list"),
    ("apps.qos.way_back", "qos.reverse"),
    ("apps.qos.summary", "qos.summary_sessions"),
    ("apps.qos.tell_rule", "policy.report_rule"),
    ("apps.qos.request_retry", "qos.retry.first"),
    ("apps.qos.retry_max", "qos.retry.timeout"),
    ("apps.qos.aggregate.interface", "the name in [interfaces.NAME.qos.aggregate]"),
    ("apps.qos.aggregate.*", "* in [interfaces.NAME.qos.aggregate]"),
    ("apps.qos.*", "qos.*"),
    ("qos.report_rule", "policy.report_rule"),
    ("rsvp.enabled", "node.protocols, a list"),
    ("rsvp.diagnostics", "rsvp.diagnostic_rate = \"50/s\""),
    ("rsvp.staged.*", "rsvp.staged_refresh.*, with enabled = true"),
    ("rsvp.max_neighbours", "rsvp.max_neighbors"),
    ("rsvp.max_names", "rsvp.max_message_ids"),
    ("rsvp.interface.name", "the name in [interfaces.NAME.rsvp]"),
    ("rsvp.interface.*", "* in [interfaces.NAME.rsvp]"),
    ("rsvp.refresh_reduction.everybody", "rsvp.refresh_reduction.all_nodes_capable"),
    ("rsvp.refresh_reduction.first_retransmission", "rsvp.refresh_reduction.retry.first"),
    ("rsvp.refresh_reduction.transmissions", "rsvp.refresh_reduction.retry.attempts"),
    ("rsvp.refresh_reduction.backoff", "rsvp.refresh_reduction.retry.factor, which is 1 + backoff"),
    ("rsvp.refresh_reduction.summaries_in_a_row", "rsvp.refresh_reduction.max_summaries"),
    ("rsvp.refresh_reduction.max_packet", "rsvp.refresh_reduction.max_packet_size"),
    ("rsvp.hello.wrong", "rsvp.hello.instance_mismatches"),
    ("rsvp.integrity.challenge_answers", "rsvp.integrity.challenge_rate = \"10/s\""),
    ("rsvp.key.file", "secret_file in [[keys]], with use = \"rsvp\""),
    ("rsvp.key.use", "direction in [[keys]], with use = \"rsvp\""),
    ("rsvp.key.neighbour", "neighbor in [[keys]], with use = \"rsvp\""),
    ("rsvp.key.from", "valid_from in [[keys]], a date and time"),
    ("rsvp.key.until", "valid_until in [[keys]], a date and time"),
    ("rsvp.key.*", "* in [[keys]], with use = \"rsvp\""),
    ("resources.default", "policy.default"),
    ("resources.link.interface", "the name in [interfaces.NAME]"),
    ("resources.link.own_queues", "per_flow_queues in [interfaces.NAME]"),
    (
        "resources.link.controlled_load.max_packet",
        "max_packet_size in [interfaces.NAME.services.controlled-load]",
    ),
    ("resources.link.controlled_load.*", "* in [interfaces.NAME.services.controlled-load]"),
    ("resources.link.guaranteed.max_packet", "max_packet_size in [interfaces.NAME.services.guaranteed]"),
    ("resources.link.guaranteed.*", "* in [interfaces.NAME.services.guaranteed]"),
    ("resources.link.diffserv.max_packet", "max_packet_size in [interfaces.NAME.services.dscp]"),
    ("resources.link.diffserv.*", "* in [interfaces.NAME.services.dscp]"),
    ("resources.link.dscp.code", "the name in [interfaces.NAME.services.\"dscp:N\"]"),
    ("resources.link.dscp.service.max_packet", "max_packet_size in [interfaces.NAME.services.\"dscp:N\"]"),
    ("resources.link.dscp.service.*", "* in [interfaces.NAME.services.\"dscp:N\"]"),
    ("resources.link.*", "* in [interfaces.NAME]"),
    (
        "resources.rule.peer",
        "peer in [[policy.rules]]: \"dns:NAME\", \"key:FINGERPRINT\" or \"authenticated\"",
    ),
    ("resources.rule.protocol", "ip_protocol in [[policy.rules]]"),
    ("resources.rule.*", "* in [[policy.rules]]"),
    ("resources.key.secret", "secret_file in [[keys]], with use = \"tokens\""),
    ("resources.key.from", "valid_from in [[keys]], a date and time"),
    ("resources.key.until", "valid_until in [[keys]], a date and time"),
    ("resources.key.*", "* in [[keys]], with use = \"tokens\""),
    ("resources.*", "admission.*"),
    ("traffic.enforcement", "enforcement.mode"),
    ("traffic.*", "enforcement.*"),
    ("record.limit_mib", "record.limit = \"1GiB\""),
    // Sections that have nothing in them.
    ("apps", "node.protocols, a list, and [ping] and [qos]"),
    ("apps.ping", "node.protocols, a list, and [ping]"),
    ("apps.qos", "node.protocols, a list, and [qos]"),
    ("io", "[kernel]"),
    ("traffic", "[enforcement]"),
    ("resources", "[interfaces], [admission], [policy] and [[keys]]"),
];

/// What an old key became; numbers of list elements are left out of `key`.
fn became(key: &str) -> Option<String> {
    let exact = BECAME.iter().find(|(old, _)| *old == key).map(|(_, new)| (*new).to_owned());
    let below = || {
        let fits = BECAME.iter().filter_map(|(old, new)| {
            let rest = key.strip_prefix(old.strip_suffix('*')?)?;
            Some((old.len(), new.replace('*', rest)))
        });
        fits.max_by_key(|(length, _)| *length).map(|(_, new)| new)
    };
    exact.or_else(below)
}

/// Reports an old key, or every key of an old table. The result is false if the key is no old one.
pub(crate) fn report(findings: &mut Findings, key: &str, place: Place, tree: &Tree) -> bool {
    let plain = plain(key);
    let inside = BECAME
        .iter()
        .any(|(old, _)| old.strip_prefix(plain.as_str()).is_some_and(|rest| rest.starts_with('.')));
    match &tree.value {
        Value::Table(table) if inside && !table.0.is_empty() => {
            for (name, (place, tree)) in &table.0 {
                let key = format!("{key}.{name}");
                if !report(findings, &key, *place, tree) {
                    findings.error(*place, &key, "unknown key");
                }
            }
            true
        }
        Value::List(list) if inside && list.iter().all(|one| matches!(one.value, Value::Table(_))) => {
            for (number, tree) in (1..).zip(list) {
                report(findings, &format!("{key}[{number}]"), tree.place, tree);
            }
            true
        }
        _ => match became(&plain) {
            Some(new) => {
                findings.error(
                    place,
                    key,
                    format!("a key of the language before version 1: it is now {new}"),
                );
                true
            }
            None => false,
        },
    }
}

/// A path without the numbers of list elements.
fn plain(key: &str) -> String {
    let mut plain = String::new();
    let mut inside = false;
    for c in key.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ if !inside => plain.push(c),
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_line_decides() {
        for (old, new) in [
            ("apps.qos.way_back", Some("qos.reverse")),
            ("apps.qos.proxy", Some("qos.proxy")),
            ("io.mark", Some("kernel.mark")),
            ("resources.link.capacity", Some("capacity in [interfaces.NAME]")),
            ("resources.link.guaranteed.queue", Some("queue in [interfaces.NAME.services.guaranteed]")),
            ("resources.preemption", Some("admission.preemption")),
            ("rsvp.refresh", None),
        ] {
            assert_eq!(became(old).as_deref(), new, "{old}");
        }
    }
}
