//! The expected reservations by the rules of RFC 2205 §2.2 and §3.1.4 alone: the users' requests, followed from the
//! receivers upstream along the paths of the data.
//!
//! At a link the requests of all next hops behind it are merged (§1.2). A next hop requests the merge of its own links
//! and its receiver: with FF for each sender separately, otherwise for all senders that have the same previous hop, and
//! with SE only for the senders that a receiver behind it listed.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use signalbox_core::IfIndex;
use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;
use signalbox_node::rsvp::{Filter, Style};
use signalbox_sim::{LinkId, NodeId};

use super::spec::{Spec, Standing, merged};
use super::world::{Actor, Play, Tree, Wish, World};

/// A node and a link by which data leave it.
type Exit = (NodeId, LinkId);
/// An interface and the packets of the reservation, as text.
pub(crate) type Place = (NodeId, IfIndex, Vec<String>);

/// A receiver's request at one link of the path from one of its senders.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) node: NodeId,
    pub(crate) ifindex: IfIndex,
    pub(crate) sender: FlowFilter,
    /// The required rate there, in octets a second.
    pub(crate) rate: u64,
    /// The place of the reservation.
    pub(crate) place: Place,
}

/// A receiver's request: for one sender, or with a shared style for all its senders. It is one request, so that a
/// failure for one sender blocks it for all.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    /// All links that the request needs.
    pub(crate) claims: Vec<Claim>,
    /// Rates, in octets a second, of larger requests that take every link of this one. An SE Resv of a node to a
    /// previous hop is the upper bound over all senders of that hop (RFC 2209, RESV REFRESH, 5). Thus a larger request
    /// for one sender continues for another one as well, where the blockade does not apply to it.
    pub(crate) swept_by: Vec<u64>,
}

/// The expected state.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    /// The reservations of each kernel if the capacity is sufficient for all requests.
    pub(crate) installed: BTreeMap<Place, Standing>,
    /// Path state by node, session and sender.
    pub(crate) paths: BTreeSet<(NodeId, u64, Filter)>,
    /// The reservation that each sender is notified of, by session and sender.
    pub(crate) reserved: BTreeMap<(u64, Actor), Option<Spec>>,
    /// The requests of the receivers.
    pub(crate) demands: Vec<Demand>,
}

/// One session in its present state.
struct Scene<'a> {
    play: &'a Play,
    hosts: &'a [NodeId],
    /// Both ends of each link.
    ends: &'a BTreeMap<LinkId, [NodeId; 2]>,
    trees: Vec<(Actor, Spec, Tree)>,
}

impl Scene<'_> {
    /// The nodes with RSVP that are the next on the data path behind a link.
    fn next(&self, tree: &Tree, (node, link): Exit) -> Vec<NodeId> {
        let [a, b] = self.ends[&link];
        let next = if a == node { b } else { a };
        if self.hosts.contains(&next) {
            return vec![next];
        }
        let onward = tree.out.get(&next).into_iter().flatten();
        onward.flat_map(|link| self.next(tree, (next, *link))).collect()
    }

    fn exits(tree: &Tree, node: NodeId) -> impl Iterator<Item = Exit> {
        tree.out.get(&node).into_iter().flatten().map(move |link| (node, *link))
    }

    fn uses(tree: &Tree, (node, link): Exit) -> bool {
        tree.out.get(&node).is_some_and(|links| links.contains(&link))
    }

    /// The request of the receiver at a node for a sender, if its data reach the node.
    fn own(&self, node: NodeId, actor: Actor) -> Option<Spec> {
        let wish: &Wish = self.play.sinks.get(&node)?.as_ref()?;
        let any = self.play.style == Style::Wf;
        wish.flows.iter().find(|(actors, _)| any || actors.contains(&actor)).map(|(_, spec)| *spec)
    }

    /// Whether a receiver at or behind a node makes a request for a sender.
    fn wanted(&self, tree: &Tree, node: NodeId, actor: Actor) -> bool {
        self.own(node, actor).is_some()
            || Self::exits(tree, node).any(|exit| self.wanted_by(tree, exit, actor))
    }

    fn wanted_by(&self, tree: &Tree, exit: Exit, actor: Actor) -> bool {
        self.next(tree, exit).into_iter().any(|next| self.wanted(tree, next, actor))
    }

    /// The request of a node to its previous hop for a sender. With a shared style it is part of the request for all
    /// senders.
    fn asked(&self, at: usize, node: NodeId) -> Option<Spec> {
        let (actor, _, tree) = &self.trees[at];
        let exits = Self::exits(tree, node).filter(|exit| self.wanted_by(tree, *exit, *actor));
        merged(self.own(node, *actor).into_iter().chain(exits.filter_map(|exit| self.at(at, exit))))
    }

    /// The nodes on the path of a receiver's request for a sender, each with its previous hop.
    fn route_of(&self, at: usize, receiver: NodeId) -> BTreeMap<NodeId, Exit> {
        let (actor, _, tree) = &self.trees[at];
        let first = Some(receiver).filter(|_| self.own(receiver, *actor).is_some());
        let each = core::iter::successors(first, |node| tree.from.get(node).map(|(before, _)| *before));
        each.filter_map(|node| Some((node, *tree.from.get(&node)?))).collect()
    }

    /// The rate of a receiver in a session where it makes one request.
    fn rate(&self, receiver: NodeId) -> Option<u64> {
        let each =
            self.trees.iter().filter_map(|(actor, traffic, _)| Some((self.own(receiver, *actor)?, *traffic)));
        each.map(|(spec, traffic)| spec.installed([traffic]).rate).max()
    }

    /// Larger requests that a node on the path merges with that of a receiver towards a previous hop, although for
    /// another sender.
    fn larger(&self, receiver: NodeId) -> Vec<u64> {
        let own_rate = self.rate(receiver);
        let meet = |other: NodeId| {
            (0..self.trees.len()).any(|one| {
                let first = self.route_of(one, receiver);
                (0..self.trees.len()).filter(|another| *another != one).any(|another| {
                    self.route_of(another, other).iter().any(|(node, before)| first.get(node) == Some(before))
                })
            })
        };
        let others = self.play.sinks.keys().copied().filter(|other| *other != receiver);
        let others = others.filter_map(|other| Some((other, self.rate(other)?)));
        others.filter(|(other, rate)| Some(*rate) > own_rate && meet(*other)).map(|(_, rate)| rate).collect()
    }

    /// The reservation at a link: with FF for one sender, otherwise for all.
    fn at(&self, at: usize, exit: Exit) -> Option<Spec> {
        let shared = self.play.style != Style::Ff;
        let senders = (0..self.trees.len()).filter(|one| *one == at || shared);
        merged(senders.flat_map(|one| {
            let tree = &self.trees[one].2;
            let next = if Self::uses(tree, exit) { self.next(tree, exit) } else { Vec::new() };
            next.into_iter().filter_map(move |next| self.asked(one, next))
        }))
    }
}

impl Oracle {
    pub(crate) fn of(world: &mut World) -> Self {
        let mut oracle = Self::default();
        let (hosts, ends) = (world.hosts.clone(), world.ends.clone());
        for play in world.plays.clone() {
            let senders: Vec<_> = play.senders.iter().map(|(actor, spec)| (*actor, *spec)).collect();
            let trees: Vec<_> =
                senders.into_iter().map(|(actor, spec)| (actor, spec, world.tree(&play, actor))).collect();
            let scene = Scene { play: &play, hosts: &hosts, ends: &ends, trees };
            oracle.take(world, &scene);
        }
        oracle
    }

    fn take(&mut self, world: &World, scene: &Scene<'_>) {
        let play = scene.play;
        for (at, (actor, _, tree)) in scene.trees.iter().enumerate() {
            let filter = world.filter(play, *actor);
            let reached = tree.from.keys().chain([&actor.node]).filter(|node| scene.hosts.contains(node));
            self.paths.extend(reached.map(|node| (*node, play.number, filter)));
            self.reserved.insert((play.number, *actor), scene.asked(at, actor.node));
            for exit in tree.out.iter().flat_map(|(node, links)| links.iter().map(move |link| (*node, *link)))
            {
                if scene.hosts.contains(&exit.0) {
                    self.install(world, scene, at, exit);
                }
            }
        }
        for receiver in play.sinks.keys() {
            let each = (0..scene.trees.len()).filter_map(|at| Self::claim(world, scene, at, *receiver));
            if play.style == Style::Ff {
                self.demands.extend(each.map(|claims| Demand { claims, swept_by: Vec::new() }));
            } else {
                let swept_by = if play.style == Style::Se { scene.larger(*receiver) } else { Vec::new() };
                self.demands.push(Demand { claims: each.flatten().collect(), swept_by });
            }
        }
    }

    /// Records the reservation at a link for a sender, alone or with others.
    fn install(&mut self, world: &World, scene: &Scene<'_>, at: usize, exit: Exit) {
        let Some(spec) = scene.at(at, exit) else { return };
        let Some((place, senders)) = place(world, scene, at, exit) else { return };
        let path = senders.iter().map(|one| scene.trees[*one].1);
        self.installed.insert(place, spec.installed(path));
    }

    /// The place of a receiver's request for a sender, if the data of the sender reach it.
    fn claim(world: &World, scene: &Scene<'_>, at: usize, receiver: NodeId) -> Option<Vec<Claim>> {
        let (actor, traffic, tree) = &scene.trees[at];
        let spec = scene.own(receiver, *actor)?;
        let rate = spec.installed([*traffic]).rate;
        let sender = flow(world, scene.play, Some(*actor));
        let mut claims = Vec::new();
        let mut at_node = receiver;
        while let Some((node, link)) = tree.from.get(&at_node).copied() {
            at_node = node;
            if let Some((place, _)) =
                place(world, scene, at, (node, link)).filter(|_| scene.hosts.contains(&node))
            {
                claims.push(Claim { node, ifindex: world.sim.ifindex(node, link), sender, rate, place });
            }
        }
        (at_node == actor.node).then_some(claims)
    }
}

/// The packets of a sender, or of all senders.
fn flow(world: &World, play: &Play, actor: Option<Actor>) -> FlowFilter {
    let dst: IpAddr = play.session.dest;
    let src = actor.map(|actor| world.sim.address(actor.node, play.family));
    FlowFilter {
        protocol: Some(play.session.protocol),
        src_port: actor.map(|actor| actor.port),
        dst_port: Some(play.session.port),
        ..FlowFilter::between(src.map_or(Prefix::all_like(dst), Prefix::host), Prefix::host(dst))
    }
}

/// The identity of a reservation at a link, and the senders whose traffic it covers.
fn place(world: &World, scene: &Scene<'_>, at: usize, exit: Exit) -> Option<(Place, Vec<usize>)> {
    let play = scene.play;
    let senders = (0..scene.trees.len()).filter(|one| Scene::uses(&scene.trees[*one].2, exit));
    let senders: Vec<usize> = match play.style {
        Style::Ff => vec![at],
        Style::Wf => senders.collect(),
        Style::Se => {
            senders.filter(|one| scene.wanted_by(&scene.trees[*one].2, exit, scene.trees[*one].0)).collect()
        }
    };
    // With SE a sender that no receiver behind the link listed has no part in it.
    if !senders.contains(&at) {
        return None;
    }
    let named = senders.iter().map(|one| flow(world, play, Some(scene.trees[*one].0)).to_string());
    let mut filters: Vec<String> = match play.style {
        Style::Wf => vec![flow(world, play, None).to_string()],
        _ => named.collect(),
    };
    filters.sort();
    Some(((exit.0, world.sim.ifindex(exit.0, exit.1), filters), senders))
}
