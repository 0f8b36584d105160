//! Makes the network of a plan, and takes down what carries the mark of the lab.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use signalbox_core::node::Prefix;
use signalbox_linux::netns::{self, Namespace};
use signalbox_linux::topology;
use signalbox_units::{BitRate, Percent, Span};

use crate::plan::places;
use crate::plan::{Leg, NAMESPACE_PREFIX, Plan, PlannedNode, is_of};
use crate::run::evidence::LossCount;
use crate::run::kernel;
use crate::run::state::State;

/// The nftables table, of family netdev, that loses packets.
const LOSS_TABLE: &str = "signalbox_lab";

/// The time that a daemon has to end by itself.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// The time within which links that were switched on carry packets.
const SETTLE: Duration = Duration::from_secs(5);

/// Returns the alias of every interface that the lab makes, and of `lo` in its namespaces. No other interface has it.
fn mark(lab: &str) -> String {
    format!("signalbox-lab {lab}")
}

/// Makes namespaces, links, addresses, routes and impairments.
pub(crate) fn make(plan: &Plan) -> Result<()> {
    let mut namespaces = Vec::with_capacity(plan.nodes.len());
    for node in &plan.nodes {
        let made = make_node(plan, node).with_context(|| format!("cannot make node {}", node.name))?;
        namespaces.push(made);
    }
    for (index, link) in plan.links.iter().enumerate() {
        make_link(plan, &namespaces, index).with_context(|| format!("cannot make link {}", link.name))?;
    }
    for (node, namespace) in plan.nodes.iter().zip(&namespaces) {
        add_routes(node, namespace).with_context(|| format!("cannot set the routes of {}", node.name))?;
        set_up(plan, node, namespace).with_context(|| format!("cannot make the `setup` of {}", node.name))?;
        if let Some(ruleset) = &node.nftables {
            topology::nft(namespace, ruleset)
                .with_context(|| format!("cannot load the `nftables` of {}", node.name))?;
        }
    }
    // The kernel drops packets until carrier is reported, and the first Query would be dropped too.
    for namespace in &namespaces {
        topology::settle(namespace, SETTLE)?;
    }
    Ok(())
}

fn make_node(plan: &Plan, node: &PlannedNode) -> Result<Namespace> {
    let namespace = Namespace::create(&node.namespace)?;
    topology::set_alias(&namespace, "lo", &mark(&plan.name))?;
    topology::set_forwarding(&namespace, node.forward)?;
    for (key, value) in [
        ("net.ipv6.conf.default.accept_ra", "0"),
        // The interfaces' own addresses are usable at once as well.
        ("net.ipv6.conf.default.accept_dad", "0"),
        // Queries carry the flow's source address at every hop (RFC 5971 §5.8.1.2).
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
    ] {
        topology::set_sysctl(&namespace, key, value)?;
    }
    Ok(namespace)
}

fn make_link(plan: &Plan, namespaces: &[Namespace], index: usize) -> Result<()> {
    let link = &plan.links[index];
    let [(a, a_name), (b, b_name)] = &link.ends;
    topology::create_veth(&namespaces[*a], a_name, &namespaces[*b], b_name)?;
    for (node, name) in &link.ends {
        let namespace = &namespaces[*node];
        topology::set_alias(namespace, name, &mark(&plan.name))?;
        // Captures then hold checksums as they would be on a wire.
        topology::disable_offload(namespace, name)?;
        for interface in plan.nodes[*node].interfaces.iter().filter(|interface| interface.link == index) {
            topology::add_address(namespace, name, interface.address.address, interface.address.length)?;
        }
        topology::set_up(namespace, name, true)?;
        // At a node that reserves, enforcement limits the rate.
        let shaped = link.rate.filter(|_| !plan.nodes[*node].reserves());
        if let Some(rate) = shaped {
            shape(namespace, "add", name, rate)?;
        }
        if let Some(delay) = link.delay {
            let delay = format!("{}us", delay.0.as_micros());
            let place: &[&str] = if shaped.is_some() { &["parent", "1:1"] } else { &["root"] };
            let words =
                [&["qdisc", "add", "dev", name.as_str()], place, &["netem", "delay", &delay]].concat();
            kernel::output(namespace, "tc", &words).context(
                "cannot delay packets, which needs netem in the kernel: load sch_netem, or take `delay` out",
            )?;
        }
    }
    if link.loss.hundredths() > 0 {
        set_loss(plan, index, link.loss)?;
    }
    Ok(())
}

fn add_routes(node: &PlannedNode, namespace: &Namespace) -> Result<()> {
    // A routing program finds the others.
    for route in node.routes.iter().filter(|route| route.given || node.routing.is_none()) {
        let to = Prefix { addr: route.to.address, len: route.to.length };
        match route.metric {
            0 => topology::add_route(namespace, to, Some(route.via), None)?,
            metric => {
                let [to, via, metric] = [route.to.to_string(), route.via.to_string(), metric.to_string()];
                kernel::output(namespace, "ip", &["route", "replace", &to, "via", &via, "metric", &metric])?;
            }
        }
    }
    Ok(())
}

/// Runs the commands of a node's `setup`.
fn set_up(plan: &Plan, node: &PlannedNode, namespace: &Namespace) -> Result<()> {
    for command in &node.setup {
        let command = plan.with_addresses(command);
        let mut words = command.split_whitespace();
        if let Some(program) = words.next() {
            kernel::output(namespace, program, &words.collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

/// From now on each end of the link discards this share of the IP packets that arrive, except neighbor discovery, whose
/// loss would delay all packets by seconds.
pub(crate) fn set_loss(plan: &Plan, index: usize, loss: Percent) -> Result<()> {
    for (node, interface) in &plan.links[index].ends {
        let chance = match loss.hundredths() {
            10_000.. => String::new(),
            hundredths => format!("numgen random mod 10000 < {hundredths}"),
        };
        let drop = format!("{chance} counter name dropped{index} drop");
        let rules = [
            "icmpv6 type { 133, 134, 135, 136, 137 } accept",
            &format!("meta protocol {{ ip, ip6 }} counter name seen{index}"),
            &format!("meta protocol {{ ip, ip6 }} {drop}"),
        ];
        let mut script = format!(
            "add table netdev {LOSS_TABLE}\n\
             add counter netdev {LOSS_TABLE} seen{index}\n\
             add counter netdev {LOSS_TABLE} dropped{index}\n\
             add chain netdev {LOSS_TABLE} in{index} \
             {{ type filter hook ingress device \"{interface}\" priority 0; }}\n\
             flush chain netdev {LOSS_TABLE} in{index}\n"
        );
        // Without loss only the counters remain.
        for rule in rules.iter().take(if loss.hundredths() > 0 { 3 } else { 2 }) {
            writeln!(script, "add rule netdev {LOSS_TABLE} in{index} {rule}")?;
        }
        let namespace = kernel::namespace(&plan.nodes[*node].namespace)?;
        topology::nft(&namespace, &script).context("cannot lose packets")?;
    }
    Ok(())
}

/// Returns what the links have lost so far.
pub(crate) fn losses(plan: &Plan) -> Result<Vec<LossCount>> {
    let mut counts = Vec::new();
    for (node, planned) in plan.nodes.iter().enumerate() {
        let namespace = kernel::namespace(&planned.namespace)?;
        let text = kernel::output(&namespace, "nft", &["-j", "list", "counters"])?;
        let value: Value = serde_json::from_str(&text).context("nft wrote something else than JSON")?;
        let counters: Vec<&Value> = value["nftables"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.get("counter"))
            .collect();
        for interface in &planned.interfaces {
            let packets = |name: String| {
                counters.iter().find(|counter| counter["name"] == *name)?.get("packets")?.as_u64()
            };
            let link = interface.link;
            if let (Some(seen), Some(dropped)) =
                (packets(format!("seen{link}")), packets(format!("dropped{link}")))
            {
                counts.push(LossCount { link, node, seen, dropped });
            }
        }
    }
    Ok(counts)
}

/// Limits the rate of one end of a link; `verb` is `add` or `change`.
fn shape(namespace: &Namespace, verb: &str, interface: &str, rate: BitRate) -> Result<()> {
    let rate = format!("{}bit", rate.0);
    let words = ["qdisc", verb, "dev", interface, "root", "handle", "1:", "tbf", "rate", &rate];
    let limits = ["burst", "16k", "latency", "100ms"];
    kernel::output(namespace, "tc", &[&words[..], &limits[..]].concat())
        .map(drop)
        .context("cannot limit the rate")
}

/// From now on the ends of the link whose nodes do not reserve send at this rate.
pub(crate) fn set_rate(plan: &Plan, index: usize, rate: BitRate) -> Result<()> {
    let ends = plan.links[index].ends.iter().map(|(node, name)| (&plan.nodes[*node], name));
    ends.filter(|(node, _)| !node.reserves())
        .try_for_each(|(node, name)| shape(&kernel::namespace(&node.namespace)?, "change", name, rate))
}

/// From now on both ends of the link delay packets.
pub(crate) fn set_delay(plan: &Plan, index: usize, delay: Span) -> Result<()> {
    let delay = format!("{}us", delay.0.as_micros());
    for (node, name) in &plan.links[index].ends {
        let planned = &plan.nodes[*node];
        let shaped = plan.links[index].rate.is_some() && !planned.reserves();
        let place: &[&str] = if shaped { &["parent", "1:1"] } else { &["root"] };
        let words =
            [&["qdisc", "replace", "dev", name.as_str()], place, &["netem", "delay", &delay]].concat();
        kernel::output(&kernel::namespace(&planned.namespace)?, "tc", &words).context(
            "cannot delay packets, which needs netem in the kernel: load sch_netem, or take `delay` out",
        )?;
    }
    Ok(())
}

/// Returns the Ethernet header of packets along a leg, of IPv4 or IPv6.
pub(crate) fn ethernet(plan: &Plan, leg: Leg, version: u8) -> Result<Vec<u8>> {
    let link = &plan.links[leg.link];
    let mac = |node: usize| -> Result<[u8; 6]> {
        let (_, name) = link.ends.iter().find(|(end, _)| *end == node).context("no such end")?;
        let namespace = kernel::namespace(&plan.nodes[node].namespace)?;
        let text = kernel::output(&namespace, "ip", &["-j", "link", "show", "dev", name])?;
        let shown: Value = serde_json::from_str(&text)?;
        mac_of(shown[0]["address"].as_str().unwrap_or_default())
            .with_context(|| format!("{name} has no Ethernet address"))
    };
    let kind = if version == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    Ok([&mac(leg.to)?[..], &mac(leg.from)?, &kind].concat())
}

fn mac_of(text: &str) -> Option<[u8; 6]> {
    let octets: Vec<u8> =
        text.split(':').map(|octet| u8::from_str_radix(octet, 16)).collect::<Result<_, _>>().ok()?;
    octets.try_into().ok()
}

/// Takes a link down or up again.
pub(crate) fn set_link(plan: &Plan, index: usize, up: bool) -> Result<()> {
    let ends = &plan.links[index].ends;
    let (node, interface) = &ends[0];
    topology::set_up(&kernel::namespace(&plan.nodes[*node].namespace)?, interface, up)?;
    if up {
        // The kernel removed the routes of the link, and the IPv6 addresses of the end that was switched off.
        for (node, name) in ends {
            let node = &plan.nodes[*node];
            let namespace = kernel::namespace(&node.namespace)?;
            for interface in node.interfaces.iter().filter(|i| i.link == index && i.address.address.is_ipv6())
            {
                let address = interface.address.to_string();
                kernel::output(&namespace, "ip", &["address", "replace", &address, "dev", name, "nodad"])?;
            }
            add_routes(node, &namespace)?;
        }
    }
    Ok(())
}

/// Returns the rules of a node's kernel that a daemon may change, one a line, without counts.
pub(crate) fn rules(namespace: &Namespace) -> Result<Vec<String>> {
    let commands: [(&str, &[&str]); 5] = [
        ("nft", &["-s", "list", "ruleset"]),
        ("ip", &["-4", "rule", "show"]),
        ("ip", &["-6", "rule", "show"]),
        ("ip", &["-o", "-4", "route", "show", "table", "all"]),
        ("ip", &["-o", "-6", "route", "show", "table", "all"]),
    ];
    let mut lines = queues(namespace)?;
    for (program, words) in commands {
        let text = kernel::output(namespace, program, words)?;
        // The kernel's own routes come and go with its link-local addresses, those of a routing program as it finds them.
        let theirs = ["proto kernel", "proto bird", "proto ospf", "proto isis"];
        let lines_of = text.lines().filter(|line| !theirs.iter().any(|proto| line.contains(proto)));
        lines.extend(lines_of.map(|line| format!("{program}: {}", without_comment(line).trim_end())));
    }
    Ok(lines)
}

/// Returns a line without its comment. nft names the thread that holds the socket of a table in one: that is no state of the
/// kernel, and changes.
fn without_comment(line: &str) -> &str {
    match line.rfind('#') {
        Some(at) if !line[at..].contains('"') => &line[..at],
        _ => line,
    }
}

/// Returns queueing disciplines, classes and filters of all interfaces, one a line. The kernel's order of classes changes with their
/// number.
fn queues(namespace: &Namespace) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut take = |of: &str, text: String| {
        let mut some: Vec<_> = text.lines().filter(|line| !crate::run::queues::is_idle(line)).collect();
        some.sort_unstable();
        lines.extend(some.iter().map(|line| format!("tc {of}: {}", line.trim_end())));
    };
    take("qdisc", kernel::output(namespace, "tc", &["qdisc", "show"])?);
    for interface in interfaces(namespace)?.iter().filter_map(|interface| interface["ifname"].as_str()) {
        for of in ["class", "filter"] {
            take(of, kernel::output(namespace, "tc", &[of, "show", "dev", interface])?);
        }
    }
    Ok(lines)
}

/// Takes a lab down: ends the daemons that it recorded, deletes the namespaces that carry its mark.
pub(crate) fn remove(lab: &str) -> Result<bool> {
    let state = State::load(lab)?;
    let mut found = state.is_some();
    for daemon in state.iter().flat_map(|state| &state.daemons) {
        let ended = daemon.process.identity().terminate(STOP_GRACE);
        ended.with_context(|| format!("cannot stop the daemon of {}", daemon.node))?;
    }
    let planned = state.map(|state| state.namespaces).unwrap_or_default();
    for namespace in netns::list(NAMESPACE_PREFIX)?.into_iter().filter(|name| is_of(lab, name)) {
        if !netns::stands(&namespace) {
            if planned.contains(&namespace) {
                netns::delete(&namespace)?;
            }
            continue;
        }
        // A namespace that was made just before a crash has no mark yet, but it is in the state and is empty.
        let aliases = aliases(&namespace)?;
        let fresh = planned.contains(&namespace) && aliases.len() <= 1;
        if aliases.contains(&mark(lab)) || fresh {
            netns::delete(&namespace)?;
            found = true;
        }
    }
    State::remove(lab)?;
    Ok(found)
}

/// Takes away what is left of a lab whose maker was killed, or of which no process and no namespace is left: it ended with its machine
/// or container.
pub(crate) fn remove_remains(lab: &str) -> Result<bool> {
    let Some(state) = State::load(lab)? else { return Ok(false) };
    if state.temporary && !state.maker.identity().is_alive() {
        return remove(lab);
    }
    let mut processes = state.daemons.iter().map(|daemon| daemon.process).chain([state.maker]);
    if processes.any(|process| process.identity().is_alive())
        || state.namespaces.iter().any(|name| netns::stands(name))
    {
        return Ok(false);
    }
    remove(lab)
}

/// Returns the labs of which something exists: by their state, or by their mark where the state is lost.
pub(crate) fn standing() -> Result<Vec<String>> {
    let mut labs = State::labs()?;
    for namespace in netns::list(NAMESPACE_PREFIX)? {
        // Another lab is just making or removing a namespace that cannot be entered.
        let Ok(marks) = aliases(&namespace) else { continue };
        labs.extend(marks.iter().filter_map(|alias| alias.strip_prefix("signalbox-lab ")).map(str::to_owned));
    }
    labs.sort();
    labs.dedup();
    Ok(labs)
}

/// Fails if a part of the lab exists already.
pub(crate) fn refuse_standing(plan: &Plan) -> Result<()> {
    let existing = netns::list(NAMESPACE_PREFIX)?;
    let ours = plan.nodes.iter().find(|node| existing.contains(&node.namespace));
    if ours.is_some() || State::load(&plan.name)?.is_some() || places::directory(&plan.name).exists() {
        bail!(
            "the lab {0} stands already; if it is yours, take it down with `signalbox lab down {0}`; otherwise copy the \
             scenario to a file with another `name`",
            plan.name
        );
    }
    Ok(())
}

/// Returns the aliases of a namespace's interfaces, empty for one without an alias.
fn aliases(namespace: &str) -> Result<Vec<String>> {
    let alias = |interface: &Value| interface["ifalias"].as_str().unwrap_or_default().to_owned();
    Ok(interfaces(&kernel::namespace(namespace)?)?.iter().map(alias).collect())
}

/// Returns what `ip` prints of a namespace's interfaces.
fn interfaces(namespace: &Namespace) -> Result<Vec<Value>> {
    let text = kernel::output(namespace, "ip", &["-j", "link", "show"])?;
    serde_json::from_str(&text).context("ip wrote something else than JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_interfaces_are_read() {
        assert_eq!(mac_of("02:00:00:0a:ff:10"), Some([2, 0, 0, 10, 255, 16]));
        assert_eq!(mac_of("02:00"), None);
    }
}
