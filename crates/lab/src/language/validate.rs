//! Checks of the network that types cannot do: names that exist, topologies that can be built.

use std::collections::BTreeSet;

use toml::Spanned;

use super::load::Mistake;
use super::scope::Scope;
use super::{Family, Link, Scenario};

/// A node's name is part of interface names, which the kernel limits to 15 octets.
const NODE_NAME_MAX: usize = 8;
/// A scenario's name is part of namespace names and of socket paths.
const SCENARIO_NAME_MAX: usize = 24;
/// A larger network is a matter for the simulator.
const NODES_MAX: usize = 64;
/// With a longer delay every timer of the protocols runs out.
const DELAY_MAX_MS: u128 = 10_000;

/// Adds the mistakes of a scenario: at most one of each part, step and check.
pub(super) fn validate(scenario: &Scenario, mistakes: &mut Vec<Mistake>) {
    let mut scope = Scope::new(scenario);
    let parts = [nodes(scenario), links(&scope), files(scenario), routes(&scope)];
    mistakes.extend(parts.into_iter().filter_map(Result::err));
    for named in &scenario.workload {
        let at = |mistake: Mistake| {
            if mistake.at.is_empty() { Mistake { at: named.at.clone(), ..mistake } } else { mistake }
        };
        mistakes.extend(named.step.validate(&scope, named.id.as_ref()).map_err(at).err());
        mistakes.extend(named.id.as_ref().and_then(|id| scope.define(id, named.kind).err()));
    }
    for named in &scenario.checks {
        let at = |mistake: Mistake| {
            if mistake.at.is_empty() { Mistake { at: named.at.clone(), ..mistake } } else { mistake }
        };
        mistakes.extend(named.check.validate(&scope).map_err(at).err());
    }
}

/// Names become parts of namespace, interface and file names.
pub(super) fn name(name: &Spanned<String>, of: &str) -> Result<(), Mistake> {
    let text = name.as_ref();
    // A hyphen joins the parts of a link's name, so that nodes cannot have one.
    let (most, hyphen, letters) = if of == "a node" {
        (NODE_NAME_MAX, false, "a-z and 0-9")
    } else {
        (SCENARIO_NAME_MAX, true, "a-z, 0-9 and -")
    };
    let legal = text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || (hyphen && c == b'-'))
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.len() <= most;
    let what =
        || format!("{text:?} cannot be the name of {of}; use 1 to {most} of {letters}, a letter first");
    if legal { Ok(()) } else { Err(Mistake::new(name.span(), what())) }
}

fn nodes(scenario: &Scenario) -> Result<(), Mistake> {
    let mut seen = BTreeSet::new();
    for (index, node) in scenario.nodes.iter().enumerate() {
        name(&node.name, "a node")?;
        if !seen.insert(node.name.as_ref()) {
            let what =
                format!("node {:?} stands here a second time; give it another name", node.name.as_ref());
            return Err(Mistake::new(node.name.span(), what));
        }
        if index == NODES_MAX {
            return Err(Mistake::new(node.name.span(), format!("a lab has at most {NODES_MAX} nodes")));
        }
        if node.routing.is_some() && scenario.family == Family::Ipv6 {
            let what = "the routing programs of a lab have IPv4 only; take `routing` out, or `family`";
            return Err(Mistake::new(node.name.span(), what));
        }
        if !node.daemon && (!node.config.is_empty() || node.certificate.is_some()) {
            let what = format!(
                "node {:?} has a `config` or a `certificate` but no daemon; take one of them out",
                node.name.as_ref()
            );
            return Err(Mistake::new(node.name.span(), what));
        }
    }
    Ok(())
}

/// Names of files beside those of the daemons.
fn files(scenario: &Scenario) -> Result<(), Mistake> {
    let good = |name: &str| {
        !name.starts_with('.')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    let Some(bad) = scenario.files.keys().find(|name| name.is_empty() || !good(name)) else { return Ok(()) };
    Err(Mistake::new(0..0, format!("a file named {bad:?}; use letters, digits, `.`, `-` and `_`")))
}

fn links(scope: &Scope<'_>) -> Result<(), Mistake> {
    let mut networks: BTreeSet<String> = BTreeSet::new();
    let mut pairs = BTreeSet::new();
    for link in &scope.scenario.links {
        let [a, b] = &link.ends;
        scope.nodes([a, b])?;
        if a.as_ref() == b.as_ref() {
            return Err(Mistake::new(b.span(), "a link joins two nodes; name another one here"));
        }
        let mut pair = [a.as_ref(), b.as_ref()];
        pair.sort();
        if !pairs.insert(pair) {
            let what =
                format!("{} and {} are joined already; one link joins two nodes", a.as_ref(), b.as_ref());
            return Err(Mistake::new(a.span(), what));
        }
        if let Some(delay) = &link.delay
            && delay.as_ref().0.as_millis() > DELAY_MAX_MS
        {
            return Err(Mistake::new(delay.span(), "a link's delay lies between 0ms and 10s"));
        }
        if link.rate.is_none()
            && let Some(end) = link.ends.iter().find(|end| scope.reserves(end).is_ok())
        {
            let what = format!("{} reserves, so that each of its links needs a `rate`", end.as_ref());
            return Err(Mistake::new(end.span(), what));
        }
        if let Some(rate) = link.rate {
            scope.rate(rate, b.span())?;
        }
        addresses(link, &mut networks)?;
    }
    Ok(())
}

fn addresses(link: &Link, seen: &mut BTreeSet<String>) -> Result<(), Mistake> {
    let Some(addresses) = &link.addresses else { return Ok(()) };
    let [a, b] = *addresses.as_ref();
    let wrong = |what: String| Err(Mistake::new(addresses.span(), what));
    if a.network() != b.network() || a.address == b.address {
        return wrong(format!(
            "{} and {} are not two addresses of one network; write two like \"10.0.1.1/24\", \"10.0.1.2/24\"",
            a.address, b.address
        ));
    }
    for prefix in [a, b] {
        if !seen.insert(prefix.address.to_string()) {
            return wrong(format!("{} is given twice; every address stands once", prefix.address));
        }
    }
    Ok(())
}

fn routes(scope: &Scope<'_>) -> Result<(), Mistake> {
    scope.scenario.routes.iter().try_for_each(|route| scope.neighbors(&route.node, &route.via))?;
    scope.scenario.multicast.iter().try_for_each(|tree| {
        scope.node(&tree.source)?;
        let mut around = core::iter::once(&tree.from).chain(&tree.to);
        around.try_for_each(|other| scope.neighbors(&tree.node, other))?;
        if tree.group.as_ref().is_multicast() {
            return Ok(());
        }
        let what = format!("{} is no multicast group; use one like 232.1.1.1", tree.group.as_ref());
        Err(Mistake::new(tree.group.span(), what))
    })
}
