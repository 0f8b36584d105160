//! What the shape of a file cannot say: names that exist, numbers in range, topologies that can be built.

use std::collections::BTreeSet;

use toml::Spanned;

use super::load::Mistake;
use super::{CheckKind, Family, Link, Scenario, Step};
use crate::traffic::LEAST_SIZE;

/// A node's name is part of interface names, which the kernel limits to 15 octets.
const NODE_NAME_MAX: usize = 8;
/// A scenario's name is part of namespace names and of socket paths.
const SCENARIO_NAME_MAX: usize = 24;
/// More would be a simulation, not a lab.
const NODES_MAX: usize = 64;
/// One process each.
const SESSIONS_MAX: u32 = 1_000;
/// The most padding that Ping has.
const SIZE_MAX: u16 = 16_000;
/// What a link carries in one piece.
const PACKET_MAX: u16 = 1500;
/// More than one thread can send, or a capture keep.
const RATE_MAX: u32 = 100_000;
/// More than one thread can send.
const PACE_MAX: u32 = 1_000_000;
/// Our own delay stays below what makes every timer meaningless.
const DELAY_MAX_MS: u128 = 10_000;

pub(super) fn validate(scenario: &Scenario) -> Result<(), Mistake> {
    nodes(scenario)?;
    links(scenario)?;
    files(scenario)?;
    routes(scenario)?;
    let mut names = Names::default();
    for step in &scenario.workload {
        one_step(scenario, step, &mut names)?;
    }
    scenario.checks.iter().try_for_each(|check| one_check(scenario, &check.kind, &names))
}

/// What steps name, so that later steps and checks can speak of it.
#[derive(Debug, Default)]
struct Names<'s> {
    /// When daemons were asked, or links watched.
    labels: BTreeSet<&'s str>,
    /// When something was done to a link or a daemon.
    moments: BTreeSet<&'s str>,
    /// Programs.
    programs: BTreeSet<&'s str>,
    /// What runs in the background.
    background: BTreeSet<&'s str>,
    /// Flows of datagrams.
    flows: BTreeSet<&'s str>,
    /// Reservations.
    reserves: BTreeSet<&'s str>,
    /// When queues were looked at.
    queues: BTreeSet<&'s str>,
    /// When packets were timed.
    costs: BTreeSet<&'s str>,
}

impl Names<'_> {
    fn known(names: &BTreeSet<&str>, name: &Spanned<String>, what: &str) -> Result<(), Mistake> {
        if names.contains(name.as_ref().as_str()) {
            return Ok(());
        }
        let known = names.iter().copied().collect::<Vec<_>>().join(", ");
        let what = format!("no step has the {what} `{}`, expected one of {known}", name.as_ref());
        Err(Mistake::new(name.span(), what))
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

fn node(scenario: &Scenario, name: &Spanned<String>) -> Result<(), Mistake> {
    if scenario.nodes.iter().any(|node| node.name.as_ref() == name.as_ref()) {
        return Ok(());
    }
    let known: Vec<_> = scenario.nodes.iter().map(|node| node.name.as_ref().as_str()).collect();
    let what = format!("unknown node `{}`, expected one of {}", name.as_ref(), known.join(", "));
    Err(Mistake::new(name.span(), what))
}

fn daemon_node(scenario: &Scenario, name: &Spanned<String>) -> Result<(), Mistake> {
    node(scenario, name)?;
    let runs = |node: &&super::Node| node.name.as_ref() == name.as_ref() && node.daemon;
    if scenario.nodes.iter().any(|node| runs(&node)) {
        return Ok(());
    }
    let what = format!("node `{}` runs no daemon; name one that does", name.as_ref());
    Err(Mistake::new(name.span(), what))
}

fn rsvp_node(scenario: &Scenario, name: &Spanned<String>) -> Result<(), Mistake> {
    daemon_node(scenario, name)?;
    if scenario.nodes.iter().any(|node| node.name.as_ref() == name.as_ref() && node.rsvp) {
        return Ok(());
    }
    let what = format!("node `{}` does not speak RSVP; give it `rsvp = true`", name.as_ref());
    Err(Mistake::new(name.span(), what))
}

fn qos_node(scenario: &Scenario, name: &Spanned<String>) -> Result<(), Mistake> {
    daemon_node(scenario, name)?;
    if scenario.nodes.iter().any(|node| node.name.as_ref() == name.as_ref() && node.qos) {
        return Ok(());
    }
    let what = format!("node `{}` does not run QoS; give it `qos = true`", name.as_ref());
    Err(Mistake::new(name.span(), what))
}

/// Its kernel keeps reservations, of whichever protocol.
fn reserving_node(scenario: &Scenario, name: &Spanned<String>) -> Result<(), Mistake> {
    qos_node(scenario, name).or_else(|_| rsvp_node(scenario, name))
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

fn links(scenario: &Scenario) -> Result<(), Mistake> {
    let mut networks: BTreeSet<String> = BTreeSet::new();
    let mut pairs = BTreeSet::new();
    for link in &scenario.links {
        let [a, b] = &link.ends;
        node(scenario, a)?;
        node(scenario, b)?;
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
            && let Some(end) = link.ends.iter().find(|end| reserving_node(scenario, end).is_ok())
        {
            let what = format!("{} reserves, and needs to know the `rate` of each link", end.as_ref());
            return Err(Mistake::new(end.span(), what));
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

fn routes(scenario: &Scenario) -> Result<(), Mistake> {
    scenario.routes.iter().try_for_each(|route| neighbours(scenario, &route.node, &route.via))?;
    scenario.multicast.iter().try_for_each(|tree| {
        node(scenario, &tree.source)?;
        let around = core::iter::once(&tree.from).chain(&tree.to);
        around.into_iter().try_for_each(|other| neighbours(scenario, &tree.node, other))?;
        if tree.group.as_ref().is_multicast() {
            return Ok(());
        }
        let what = format!("{} is no multicast group; use one like 232.1.1.1", tree.group.as_ref());
        Err(Mistake::new(tree.group.span(), what))
    })
}

/// The second is at the other end of a link of the first.
fn neighbours(scenario: &Scenario, of: &Spanned<String>, other: &Spanned<String>) -> Result<(), Mistake> {
    node(scenario, of)?;
    node(scenario, other)?;
    let joined = |link: &Link| {
        let ends = [link.ends[0].as_ref(), link.ends[1].as_ref()];
        of.as_ref() != other.as_ref() && ends.contains(&of.as_ref()) && ends.contains(&other.as_ref())
    };
    if scenario.links.iter().any(joined) {
        return Ok(());
    }
    let what =
        format!("{} is no neighbour of {}; name one at the other end of a link", other.as_ref(), of.as_ref());
    Err(Mistake::new(other.span(), what))
}

fn link(scenario: &Scenario, name: &Spanned<String>) -> Result<(), Mistake> {
    let names: Vec<_> = scenario.links.iter().map(Link::name).collect();
    if names.contains(name.as_ref()) {
        return Ok(());
    }
    let what = format!("unknown link `{}`, expected one of {}", name.as_ref(), names.join(", "));
    Err(Mistake::new(name.span(), what))
}

fn one_step<'s>(scenario: &'s Scenario, step: &'s Step, names: &mut Names<'s>) -> Result<(), Mistake> {
    match step {
        Step::Udp(step) => {
            node(scenario, &step.from)?;
            node(scenario, &step.to)
        }
        Step::Ping(step) => {
            daemon_node(scenario, &step.from)?;
            node(scenario, &step.to)?;
            names.labels.extend(step.show.as_deref());
            names.background.extend(step.background.as_deref());
            if *step.size.as_ref() > SIZE_MAX || !step.size.as_ref().is_multiple_of(4) {
                let what = format!("`size` is a multiple of 4 between 0 and {SIZE_MAX}");
                return Err(Mistake::new(step.size.span(), what));
            }
            let sessions = *step.sessions.as_ref();
            if (1..=SESSIONS_MAX).contains(&sessions) {
                return Ok(());
            }
            Err(Mistake::new(step.sessions.span(), format!("`sessions` lies between 1 and {SESSIONS_MAX}")))
        }
        Step::Run(step) => {
            node(scenario, &step.node)?;
            names.labels.insert(step.label.as_ref());
            names.moments.insert(step.label.as_ref());
            names.programs.insert(step.label.as_ref());
            if step.command.as_ref().is_empty() {
                return Err(Mistake::new(step.command.span(), "`command` names a program and its arguments"));
            }
            Ok(())
        }
        Step::Hear(step) => Names::known(&names.programs, &step.label, "program"),
        Step::End(step) => Names::known(&names.programs, &step.label, "program"),
        Step::Show(step) => {
            names.labels.insert(&step.label);
            Ok(())
        }
        Step::Watch(step) => {
            names.labels.insert(&step.label);
            names.moments.insert(&step.label);
            Ok(())
        }
        Step::WaitFor(step) => step.nodes.iter().try_for_each(|node| rsvp_node(scenario, node)),
        Step::Resend(step) => {
            names.moments.extend(step.label.as_deref());
            neighbours(scenario, &step.from, &step.to)
        }
        Step::ProbeExpired(step) => {
            node(scenario, &step.from)?;
            daemon_node(scenario, &step.to)
        }
        Step::SetLoss(step) => link(scenario, &step.link),
        Step::LinkDown(step) | Step::LinkUp(step) => {
            names.moments.extend(step.label.as_deref());
            link(scenario, &step.link)
        }
        Step::Stop(step) | Step::Kill(step) | Step::Start(step) => {
            names.moments.extend(step.label.as_deref());
            daemon_node(scenario, &step.node)
        }
        Step::Flood(step) => {
            node(scenario, &step.from)?;
            daemon_node(scenario, &step.via)?;
            node(scenario, &step.to)?;
            neighbours(scenario, &step.from, &step.via)?;
            names.background.extend(step.background.as_deref());
            if !step.sources.as_ref().address.is_ipv4() || scenario.family != Family::Ipv4 {
                return Err(Mistake::new(step.sources.span(), "a flood is IPv4"));
            }
            if (1..=RATE_MAX).contains(step.rate.as_ref()) {
                return Ok(());
            }
            Err(Mistake::new(step.rate.span(), format!("`rate` lies between 1 and {RATE_MAX}")))
        }
        Step::Traffic(step) => {
            node(scenario, &step.from)?;
            node(scenario, &step.to)?;
            names.flows.insert(step.name.as_ref());
            names.background.insert(step.name.as_ref());
            if (LEAST_SIZE..=PACKET_MAX).contains(step.size.as_ref()) {
                return Ok(());
            }
            let what = format!("`size` lies between {LEAST_SIZE} and {PACKET_MAX}");
            Err(Mistake::new(step.size.span(), what))
        }
        Step::Reserve(step) => {
            qos_node(scenario, &step.from)?;
            node(scenario, &step.to)?;
            names.moments.extend(step.label.as_deref());
            names.reserves.insert(step.name.as_ref());
            names.background.insert(step.name.as_ref());
            ports(step.port, &step.flows)
        }
        Step::Queues(step) => {
            names.queues.insert(step.label.as_ref());
            step.queues.iter().try_for_each(|queues| {
                reserving_node(scenario, &queues.node)?;
                neighbours(scenario, &queues.node, &queues.towards)
            })
        }
        Step::Cost(step) => {
            node(scenario, &step.from)?;
            node(scenario, &step.to)?;
            names.costs.insert(step.label.as_ref());
            ports(step.port, &step.flows)?;
            if (1..=PACE_MAX).contains(step.rate.as_ref()) {
                return Ok(());
            }
            Err(Mistake::new(step.rate.span(), format!("`rate` lies between 1 and {PACE_MAX}")))
        }
        Step::Join(step) => Names::known(&names.background, &step.name, "background"),
    }
}

/// There are so many ports from the first.
fn ports(first: u16, flows: &Spanned<u32>) -> Result<(), Mistake> {
    let most = u32::from(u16::MAX - first) + 1;
    if (1..=most).contains(flows.as_ref()) {
        return Ok(());
    }
    Err(Mistake::new(flows.span(), format!("`flows` lies between 1 and {most}, the ports from {first}")))
}

fn one_check(scenario: &Scenario, kind: &CheckKind, names: &Names<'_>) -> Result<(), Mistake> {
    let label = |label: &Spanned<String>| Names::known(&names.labels, label, "label");
    let moment = |label: &Spanned<String>| Names::known(&names.moments, label, "label");
    match kind {
        CheckKind::Forwarding(check) | CheckKind::Handshake(check) => {
            node(scenario, &check.from)?;
            node(scenario, &check.to)
        }
        CheckKind::SetUp(check) => {
            node(scenario, &check.from)?;
            node(scenario, &check.to)
        }
        CheckKind::Associations(check) => {
            node(scenario, &check.from)?;
            node(scenario, &check.to)
        }
        CheckKind::Path(check) => {
            check.after.iter().chain(&check.before).try_for_each(moment)?;
            check.hops.iter().try_for_each(|hop| node(scenario, hop))
        }
        CheckKind::Refused(check) => {
            node(scenario, &check.to)?;
            neighbours(scenario, &check.from, &check.by)?;
            label(&check.label)
        }
        CheckKind::Whole(check) => {
            node(scenario, &check.from)?;
            node(scenario, &check.to)
        }
        CheckKind::Repaired(check) => {
            moment(&check.label)?;
            check.hops.iter().try_for_each(|hop| node(scenario, hop))?;
            let pairs = check.hops.iter().zip(check.hops.iter().skip(1));
            pairs.into_iter().try_for_each(|(from, to)| neighbours(scenario, from, to))
        }
        CheckKind::Traffic(check) => {
            Names::known(&names.flows, &check.flow, "flow")?;
            label(&check.phase)
        }
        CheckKind::Granted(check) => {
            Names::known(&names.reserves, &check.reserve, "reservation")?;
            let hops = check.hops.iter().flatten();
            hops.chain(&check.lost_at).try_for_each(|hop| qos_node(scenario, hop))
        }
        CheckKind::NotGranted(check) => {
            Names::known(&names.reserves, &check.reserve, "reservation")?;
            qos_node(scenario, &check.by)
        }
        CheckKind::Reservations(check) => {
            check.except.iter().try_for_each(|except| qos_node(scenario, except))?;
            label(&check.label)
        }
        CheckKind::Queues(check) => Names::known(&names.queues, &check.label, "queues"),
        CheckKind::Cost(check) => {
            Names::known(&names.costs, &check.label, "cost")?;
            Names::known(&names.costs, &check.base, "cost")
        }
        CheckKind::Kernel(check) => {
            reserving_node(scenario, &check.node)?;
            label(&check.label)?;
            label(&check.like)
        }
        CheckKind::Gap(check) => {
            Names::known(&names.flows, &check.flow, "flow")?;
            moment(&check.after)?;
            label(&check.phase)
        }
        CheckKind::Rsvp(check) => {
            check.nodes.iter().try_for_each(|node| rsvp_node(scenario, node))?;
            check.towards.iter().try_for_each(|other| node(scenario, other))?;
            label(&check.label)
        }
        CheckKind::RsvpMessages(check) => {
            neighbours(scenario, &check.from, &check.to)?;
            let senders = check.senders.iter().flatten().chain(check.scope.iter().flatten());
            senders.chain(&check.names).try_for_each(|name| node(scenario, name))?;
            check.after.iter().chain(&check.before).try_for_each(moment)?;
            check.during.iter().try_for_each(label)
        }
        CheckKind::RsvpNeighbour(check) => {
            rsvp_node(scenario, &check.node)?;
            neighbours(scenario, &check.node, &check.neighbour)?;
            label(&check.label)
        }
        CheckKind::RsvpLoad(check) => {
            link(scenario, &check.link)?;
            link(scenario, &check.base_link)?;
            label(&check.during)?;
            label(&check.base)
        }
        CheckKind::RsvpRepaired(check) => {
            moment(&check.label)?;
            let pairs = check.hops.iter().zip(check.hops.iter().skip(1));
            pairs.into_iter().try_for_each(|(from, to)| neighbours(scenario, from, to))
        }
        CheckKind::Flood(check) => daemon_node(scenario, &check.node),
        CheckKind::PassesQuery(check) => {
            let ends = check.ends.iter().flatten();
            ends.chain([&check.node]).try_for_each(|name| node(scenario, name))
        }
        CheckKind::Program(check) => label(&check.label),
        CheckKind::NoRoutingState(check) => daemon_node(scenario, &check.node),
        CheckKind::State(check) => {
            check.except.iter().try_for_each(|except| daemon_node(scenario, except))?;
            label(&check.label)
        }
        CheckKind::Silent(check) => label(&check.label),
        CheckKind::Loss(_) | CheckKind::Dissected(_) | CheckKind::NoErrors(_) | CheckKind::CleanStop(_) => {
            Ok(())
        }
    }
}
