//! The network of a plan in the simulator.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use signalbox_core::Time;
use signalbox_core::node::{Interface, Prefix};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Boot, Fate, Impairment, LinkConfig, LinkId, NextHop, NodeId, Sim};
use signalbox_units::Percent;

use super::frames::frame;
use crate::language::Scenario;
use crate::plan::configuration::configuration;
use crate::plan::{Plan, PlannedNode};
use crate::protocols::frame::Frame;
use crate::run::observe::trace::{LinkTrace, Trace};

/// Microseconds since 1970 at the beginning of each run: 2026-09-21.
const WALL_US: u64 = 1_790_000_000_000_000;
/// The delay of a link for which the file has none.
const DELAY: Duration = Duration::from_micros(100);

/// The nodes and links of a plan, by their indexes there.
pub(crate) struct Network {
    sim: Sim<Node>,
    nodes: Vec<NodeId>,
    links: Vec<Link>,
}

/// A link, with what the scenario and a fault make of it.
struct Link {
    id: LinkId,
    impairment: Impairment,
    /// The scenario switched it off.
    off: bool,
    /// The number of faults that cut it now.
    cut: u32,
    /// The number of faults that let it lose everything now.
    lossy: u32,
}

impl Network {
    pub(super) fn new(scenario: &Scenario, plan: &Plan, seed: u64) -> Result<Self> {
        let mut sim = Sim::with_seed(seed);
        let nodes =
            plan.nodes.iter().map(|planned| add(&mut sim, plan, planned)).collect::<Result<Vec<_>>>()?;
        let mut links = Vec::new();
        for planned in &plan.links {
            let ends = [0, 1].map(|end| planned.ends[end].0);
            let impairment = Impairment {
                delay: planned.delay.map_or(DELAY, |delay| delay.0),
                loss: planned.loss.percent() / 100.0,
                ..Impairment::default()
            };
            let id = sim.link(nodes[ends[0]], nodes[ends[1]], &LinkConfig::impaired(impairment));
            links.push(Link { id, impairment, off: false, cut: 0, lossy: 0 });
        }
        // The simulator's own addresses could be those of other links, so that they are replaced when all links are there.
        for (node, planned) in plan.nodes.iter().enumerate() {
            for interface in &planned.interfaces {
                let link = links.get(interface.link).map(|link: &Link| link.id);
                let link = link.context("an interface without its link")?;
                sim.set_interface_name(nodes[node], link, interface.name.clone());
                sim.set_address_on(nodes[node], link, interface.address.address);
            }
        }
        sim.capture_all();
        for (planned, node) in plan.nodes.iter().zip(&nodes) {
            sim.set_forwarding(*node, planned.forward);
        }
        let mut network = Self { sim, nodes, links };
        network.routes(scenario, plan)?;
        Ok(network)
    }

    /// Sets the routes of the file, and those for which the simulator would choose another one of two shortest paths.
    fn routes(&mut self, scenario: &Scenario, plan: &Plan) -> Result<()> {
        let index = |name: &str| plan.node(name).ok_or_else(|| anyhow!("no node {name}"));
        let link = |from: usize, to: usize| {
            plan.leg(from, to).map(|leg| leg.link).ok_or_else(|| anyhow!("no link between two neighbors"))
        };
        for route in scenario.routes.iter().filter(|route| route.metric == 0) {
            let (node, via) = (index(route.node.as_ref())?, index(route.via.as_ref())?);
            let hop = NextHop::Link(self.links[link(node, via)?].id);
            let (addr, len) = route.to.network();
            self.sim.set_route(self.nodes[node], Prefix { addr, len }, hop);
        }
        for node in 0..plan.nodes.len() {
            for address in plan.nodes.iter().flat_map(|node| &node.interfaces).map(|i| i.address.address) {
                let Some(leg) = plan.path(node, address).first().copied() else { continue };
                let wanted = self.links[leg.link].id;
                let way = self.sim.path(self.nodes[node], address).unwrap_or_default();
                if way.first().is_none_or(|(_, link)| *link != wanted) {
                    self.sim.set_route(self.nodes[node], Prefix::host(address), NextHop::Link(wanted));
                }
            }
        }
        for tree in &scenario.multicast {
            let (node, source) = (index(tree.node.as_ref())?, index(tree.source.as_ref())?);
            let source = plan.address(source).ok_or_else(|| anyhow!("a sender without an address"))?;
            let iif = self.links[link(node, index(tree.from.as_ref())?)?].id;
            let mut oifs = Vec::new();
            for to in &tree.to {
                oifs.push(self.links[link(node, index(to.as_ref())?)?].id);
            }
            self.sim.set_multicast_route(self.nodes[node], *tree.group.as_ref(), source, Some(iif), &oifs);
        }
        Ok(())
    }

    /// Returns the time since the beginning.
    pub(super) fn elapsed(&self) -> Duration {
        self.sim.now().since(Time::ZERO)
    }

    /// Returns the time since 1970.
    pub(super) fn now(&self) -> Duration {
        wall(self.sim.now())
    }

    /// Returns a node's engine while it runs.
    pub(super) fn engine(&self, node: usize) -> Option<&Node> {
        self.sim.engine(self.nodes[node])
    }

    pub(super) fn interfaces(&self, node: usize) -> Vec<Interface> {
        self.sim.interfaces(self.nodes[node])
    }

    pub(super) fn command(&mut self, node: usize, command: Command) {
        self.sim.command(self.nodes[node], command);
    }

    /// Runs until this time since the beginning, or until there is an event for a user. Returns whether there is one.
    pub(super) fn run_until(&mut self, end: Duration) -> bool {
        let limit = end.saturating_sub(self.elapsed());
        self.sim.wait(limit, |sim| !sim.events().is_empty())
    }

    /// Takes the events for users, each with its time since 1970 and its node.
    pub(super) fn take_events(&mut self) -> Vec<(Duration, usize, Event)> {
        let nodes = &self.nodes;
        let index = |id: NodeId| nodes.iter().position(|node| *node == id);
        let events = self.sim.take_events().into_iter();
        events.filter_map(|one| Some((wall(one.at), index(one.node)?, one.event))).collect()
    }

    pub(super) fn crash(&mut self, node: usize) {
        self.sim.crash(self.nodes[node]);
    }

    pub(super) fn restart(&mut self, node: usize) {
        self.sim.restart(self.nodes[node]);
    }

    /// The scenario switches a link on or off.
    pub(crate) fn set_link(&mut self, link: usize, up: bool) {
        self.links[link].off = !up;
        self.apply(link);
    }

    /// The scenario changes the loss of a link.
    pub(crate) fn set_loss(&mut self, link: usize, loss: Percent) {
        self.links[link].impairment.loss = loss.percent() / 100.0;
        self.apply(link);
    }

    /// The scenario changes the delay of a link.
    pub(crate) fn set_delay(&mut self, link: usize, delay: Duration) {
        self.links[link].impairment.delay = delay;
        self.apply(link);
    }

    pub(super) fn fault_link(&mut self, link: usize, cut: bool) {
        let cuts = &mut self.links[link].cut;
        *cuts = if cut { *cuts + 1 } else { cuts.saturating_sub(1) };
        self.apply(link);
    }

    pub(super) fn fault_loss(&mut self, link: usize, all: bool) {
        let lossy = &mut self.links[link].lossy;
        *lossy = if all { *lossy + 1 } else { lossy.saturating_sub(1) };
        self.apply(link);
    }

    fn apply(&mut self, link: usize) {
        let Link { id, impairment, off, cut, lossy } = self.links[link];
        let loss = if lossy > 0 { 1.0 } else { impairment.loss };
        self.sim.set_impairment(id, Impairment { loss, ..impairment });
        self.sim.set_link_up(id, !off && cut == 0);
    }

    /// Whether octets went over TCP connections, which are no packets of the simulator.
    pub(super) fn used_streams(&self) -> bool {
        self.sim.counters().streams_opened > 0
    }

    /// Returns what passed the links, as captures at their first ends have it.
    pub(super) fn traffic(&self, plan: &Plan) -> (Trace, Vec<Vec<Frame>>) {
        let carried = self.sim.counters().carried;
        let kept = u64::try_from(self.sim.captured().count()).unwrap_or(u64::MAX);
        let mut all: Vec<Vec<Frame>> = self.links.iter().map(|_| Vec::new()).collect();
        for packet in self.sim.captured() {
            let Some(link) = self.links.iter().position(|link| link.id == packet.link) else { continue };
            let outgoing = packet.from == self.nodes[plan.links[link].ends[0].0];
            let arrives = matches!(packet.fate, Fate::Carried | Fate::Doubled);
            if !outgoing && !arrives {
                continue;
            }
            let (number, at) = (all[link].len() + 1, wall(packet.at));
            all[link].push(Frame { number, at, outgoing, octets: frame(&packet.packet) });
        }
        let traces = all.iter().zip(&plan.links);
        let links = traces
            .map(|(frames, link)| LinkTrace::read(link.ends[0].0, frames, carried.saturating_sub(kept)))
            .collect();
        (Trace { links }, all)
    }
}

/// Adds a node with the configuration of its daemon.
fn add(sim: &mut Sim<Node>, plan: &Plan, planned: &PlannedNode) -> Result<NodeId> {
    if !planned.daemon {
        return Ok(sim.add_router(planned.name.clone()));
    }
    let (settings, intercept) = settings(plan, planned)?;
    Node::new(settings.clone(), [0; 32]).with_context(|| format!("{} cannot start", planned.name))?;
    let node = sim.add_engine(planned.name.clone(), move |boot: Boot| {
        Node::new(settings.clone(), boot.seed).expect("a node was made of the same settings before")
    });
    sim.set_interception(node, intercept);
    Ok(node)
}

/// Returns the settings of a node, and whether it takes packets that pass by.
fn settings(plan: &Plan, planned: &PlannedNode) -> Result<(Config, bool)> {
    let text = configuration(plan, planned)?;
    let path = format!("{}.toml", planned.name);
    let loaded = signalbox_config::parse(Path::new(&path), &text).usable();
    let (config, _) = loaded.map_err(|findings| {
        let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
        anyhow!("the configuration of {}: {}", planned.name, lines.join("; "))
    })?;
    let intercept = config.io(Vec::new()).intercept;
    Ok((config.settings(WALL_US, false), intercept))
}

fn wall(at: Time) -> Duration {
    Duration::from_micros(WALL_US + at.as_micros())
}
