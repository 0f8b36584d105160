//! A node with four interfaces, a clock, and a kernel that answers.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::node::{Interface, NoRoute, Prefix, Route, RouteQuery};
use signalbox_core::traffic::{Reservation, ReservationId};
use signalbox_core::{IfIndex, Time};
use signalbox_resources::{LostWhy, ResourceOutput, Resources};

use super::{Path, Reply, Resv, Sent, addr, at, interface, packet, sender};
use crate::engine::{Command, Config, Input, IpTransmit, Output, PROTOCOL, Rsvp, RsvpEvent};
use crate::wire::Session;

/// Deadlines in one pause. An engine that asks for more has an endless loop.
const DEADLINES: u32 = 1_000_000;

/// A node, its admission control, and the kernel that answers both.
pub struct World {
    /// The node.
    pub rsvp: Rsvp,
    /// Its admission control.
    pub resources: Resources,
    /// The present time.
    pub now: Time,
    /// The interfaces that lookups of routes know as those of the node.
    pub interfaces: Vec<Interface>,
    /// Replies by UDP that were not taken yet.
    pub replies: Vec<Reply>,
    /// Events of applications.
    pub events: Vec<(u64, RsvpEvent)>,
    /// Interface of each unicast destination; 0: this node.
    pub routes: Vec<(Prefix, u32)>,
    /// Interface of the backup route of all unicast destinations; 0: they have no backup route.
    pub backup: u32,
    /// Number of the neighbor at the end of unicast routes.
    pub gateway: u32,
    /// Incoming and outgoing interfaces by group and source.
    pub trees: BTreeMap<(IpAddr, IpAddr), (u32, Vec<u32>)>,
    /// The same for groups and sources that are not in `trees`.
    pub other_tree: (u32, Vec<u32>),
    /// Reservations in the kernel.
    pub installed: BTreeMap<ReservationId, Reservation>,
    /// Number of answered route lookups.
    pub lookups: u32,
    /// The last unicast and multicast lookups.
    pub asked: (Option<RouteQuery>, Option<(IpAddr, IpAddr)>),
    /// Multicast routes that the node released.
    pub released: Vec<(IpAddr, IpAddr)>,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// A node with the default configuration, whose neighbors support RFC 2205 only. 10.9.0.0/16 goes out by eth2, 10.8.0.0/16 by eth1.
    pub fn new() -> Self {
        Self::with(Config::default())
    }

    /// A node with this configuration, whose neighbors support RFC 2205 only.
    pub fn with(config: Config) -> Self {
        Self::with_links(config, "10mbit")
    }

    /// A node whose neighbors may be behind nodes without RSVP.
    pub fn distant() -> Self {
        let mut config = Config::default();
        config.neighbors.interface.trust.distant_hops = true;
        Self::with(config)
    }

    /// A node whose links have this capacity.
    pub fn with_links(mut config: Config, capacity: &str) -> Self {
        // The neighbors support RFC 2205 only.
        config.neighbors.interface.reduction.reliable = false;
        Self::with_neighbors(config, capacity)
    }

    /// A node with its own settings for neighbors.
    pub fn with_neighbors(config: Config, capacity: &str) -> Self {
        Self::with_all(config, signalbox_resources::Config::of_link("*", capacity.parse().expect("a rate")))
    }

    /// A node with these links and policy, whose neighbors support RFC 2205 only.
    pub fn with_resources(links: signalbox_resources::Config) -> Self {
        let mut config = Config::default();
        config.neighbors.interface.reduction.reliable = false;
        Self::with_all(config, links)
    }

    /// A node with this configuration, and these links and policy.
    pub fn with_all(config: Config, links: signalbox_resources::Config) -> Self {
        let interfaces: Vec<Interface> =
            (1..=4).map(|n| interface(n, vec![at(n, 1), addr(&format!("fd00:{n}::1"))])).collect();
        let mut resources = Resources::new(links, 0, [1; 32]).expect("links and policy");
        resources.interfaces(&interfaces);
        let routes = vec![
            (Prefix { addr: addr("10.9.0.0"), len: 16 }, 2),
            (Prefix { addr: addr("fd09::"), len: 16 }, 2),
            (Prefix { addr: addr("10.8.0.0"), len: 16 }, 1),
        ];
        let mut world = Self {
            rsvp: Rsvp::new(config, [9; 32]).expect("a configuration"),
            resources,
            now: Time::from_secs(10),
            interfaces,
            replies: Vec::new(),
            events: Vec::new(),
            routes,
            backup: 0,
            gateway: 9,
            trees: BTreeMap::new(),
            other_tree: (0, Vec::new()),
            installed: BTreeMap::new(),
            lookups: 0,
            asked: (None, None),
            released: Vec::new(),
        };
        world.input(Input::Interfaces(&world.interfaces.clone()));
        world
    }

    /// Routes a prefix to `oif` (0: to this node) from now on, and reports the change to the node.
    pub fn route(&mut self, prefix: &str, len: u8, oif: u32) -> Vec<Sent> {
        let prefix = Prefix { addr: addr(prefix), len };
        self.routes.retain(|(known, _)| *known != prefix);
        self.routes.insert(0, (prefix, oif));
        self.input(Input::RouteChanged(prefix))
    }

    /// Sets the multicast route of sender `n` to `session`, and reports it to the node.
    pub fn tree(&mut self, session: Session, n: u32, iif: u32, oifs: &[u32]) -> Vec<Sent> {
        let key = (session.dest, sender(n).src);
        self.trees.insert(key, (iif, oifs.to_vec()));
        let oifs: Vec<IfIndex> = oifs.iter().copied().map(IfIndex).collect();
        self.input(Input::Multicast { group: key.0, source: key.1, iif: IfIndex(iif), oifs: &oifs })
    }

    /// Gives an input and answers the lookups that follow; returns the packets that the node sends.
    pub fn input(&mut self, input: Input<'_>) -> Vec<Sent> {
        let mut sent = Vec::new();
        self.give(input, |now, packet| sent.push(Sent::new(now, packet)));
        sent
    }

    /// The same without a list: each packet that the node sends is given to `each`.
    pub fn give(&mut self, input: Input<'_>, mut each: impl FnMut(Time, &IpTransmit<'_>)) {
        self.rsvp.handle(self.now, input, &mut self.resources);
        loop {
            let (mut lookups, mut groups) = (Vec::new(), Vec::new());
            while let Some(output) = self.rsvp.poll() {
                match output {
                    Output::Send(packet) => each(self.now, &packet),
                    Output::Reply { src, dst, payload, .. } => {
                        self.replies.push(Reply { src, dst, octets: payload.to_vec() });
                    }
                    Output::RouteLookup { id, query } => {
                        self.asked.0 = Some(query);
                        lookups.push((id, query));
                    }
                    Output::MulticastLookup { group, source } => {
                        self.asked.1 = Some((group, source));
                        groups.push((group, source));
                    }
                    Output::MulticastRelease { group, source } => self.released.push((group, source)),
                    Output::Event { id, event } => self.events.push((id, event)),
                }
            }
            let (mut lost, mut reduced) = (Vec::new(), Vec::new());
            while let Some(output) = self.resources.poll() {
                match output {
                    ResourceOutput::Install { id, reservation } => {
                        self.installed.insert(id, reservation.clone());
                        self.resources.installed(id, Ok(()));
                    }
                    ResourceOutput::Remove { id } => {
                        self.installed.remove(&id);
                    }
                    ResourceOutput::Reduced { owner, grant, rate } => reduced.push((owner.key, grant, rate)),
                    ResourceOutput::Lost { owner, grant, why } if owner.protocol == PROTOCOL => {
                        lost.push((owner.key, grant, why));
                    }
                    ResourceOutput::Lost { .. } => {}
                }
            }
            if lookups.is_empty() && groups.is_empty() && lost.is_empty() && reduced.is_empty() {
                return;
            }
            for (id, query) in lookups {
                self.lookups += 1;
                let result = self.way_to(&query);
                self.rsvp.handle(self.now, Input::Route { id, result }, &mut self.resources);
            }
            for (group, source) in groups {
                let (iif, oifs) = self.trees.get(&(group, source)).unwrap_or(&self.other_tree);
                let oifs: Vec<IfIndex> = oifs.iter().copied().map(IfIndex).collect();
                let input = Input::Multicast { group, source, iif: IfIndex(*iif), oifs: &oifs };
                self.rsvp.handle(self.now, input, &mut self.resources);
            }
            for (key, grant, rate) in reduced {
                self.rsvp.handle(self.now, Input::Reduced { key, grant, rate }, &mut self.resources);
            }
            for (key, grant, why) in lost {
                self.rsvp.handle(self.now, Input::Lost { key, grant, why }, &mut self.resources);
            }
        }
    }

    fn way_to(&self, query: &RouteQuery) -> Result<Route, NoRoute> {
        let dst = query.dst;
        let local = self.interfaces.iter().any(|one| one.addresses.contains(&dst));
        let routed = match query.without {
            Some(_) => Some(self.backup).filter(|oif| *oif != 0),
            None => self.routes.iter().find(|(prefix, _)| prefix.contains(dst)).map(|(_, oif)| *oif),
        };
        match routed.filter(|_| !local) {
            None if !local => Err(NoRoute::Unreachable),
            None | Some(0) => {
                let lo = IfIndex(100);
                Ok(Route { ifindex: lo, src: dst, gateway: None, mtu: 65536, local: true })
            }
            Some(oif) => {
                let gateway = Some(at(oif, self.gateway));
                Ok(Route { ifindex: IfIndex(oif), src: at(oif, 1), gateway, mtu: 1500, local: false })
            }
        }
    }

    /// Gives a packet from interface `iif`.
    pub fn packet(&mut self, iif: u32, src: IpAddr, dst: IpAddr, ttl: u8, octets: &[u8]) -> Vec<Sent> {
        self.input(Input::Packet(packet(iif, src, dst, ttl, octets)))
    }

    /// Gives a Path.
    pub fn path(&mut self, path: &Path) -> Vec<Sent> {
        self.packet(path.iif, path.sender.src, path.session.dest, path.ttl, &path.octets())
    }

    /// Gives a PathTear.
    pub fn path_tear(&mut self, path: &Path) -> Vec<Sent> {
        self.packet(path.iif, path.sender.src, path.session.dest, path.ttl, &path.tear_octets())
    }

    /// Gives a Resv.
    pub fn resv(&mut self, resv: &Resv) -> Vec<Sent> {
        self.neighborly(resv.iif, resv.hop.addr, &resv.octets())
    }

    /// Gives a ResvTear.
    pub fn resv_tear(&mut self, resv: &Resv) -> Vec<Sent> {
        self.neighborly(resv.iif, resv.hop.addr, &resv.tear_octets())
    }

    /// The reservation at interface `n` is lost.
    pub fn lose(&mut self, n: u32, why: LostWhy) -> Vec<Sent> {
        let one = self.resources.reservations().find(|one| one.ifindex.0 == n).expect("a reservation");
        let (key, grant) = (one.owner.key, one.grant);
        self.resources.release(grant);
        self.input(Input::Lost { key, grant, why })
    }

    /// Gives a message that is addressed to this node, by interface `iif` from the neighbor `src`.
    pub fn neighborly(&mut self, iif: u32, src: IpAddr, octets: &[u8]) -> Vec<Sent> {
        let dst = if src.is_ipv6() { addr(&format!("fd00:{iif}::1")) } else { at(iif, 1) };
        self.packet(iif, src, dst, 255, octets)
    }

    /// Gives a command of an application.
    pub fn command(&mut self, id: u64, command: Command) -> Vec<Sent> {
        self.input(Input::Command { id, command })
    }

    /// Lets time pass; returns the packets that the node sends meanwhile.
    pub fn wait(&mut self, time: Duration) -> Vec<Sent> {
        let end = self.now + time;
        let mut sent = Vec::new();
        for count in 0.. {
            assert!(count < DEADLINES, "timers come again and again");
            let Some(next) = self.rsvp.next_deadline().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            sent.extend(self.input(Input::Timer));
        }
        self.now = end;
        sent
    }

    /// Octets a second reserved at interface `n`.
    pub fn reserved(&self, n: u32) -> u64 {
        self.resources.links().filter(|link| link.ifindex == IfIndex(n)).map(|link| link.reserved).sum()
    }

    /// Bucket depth of each reservation at interface `n`, octets.
    pub fn bursts(&self, n: u32) -> Vec<u32> {
        self.installed.values().filter(|one| one.ifindex.0 == n).map(|one| one.traffic.burst).collect()
    }

    /// Number of reservations at all interfaces.
    pub fn reservations(&self) -> usize {
        self.resources.reservations().count()
    }

    /// Takes the events of an application.
    pub fn take_events(&mut self, id: u64) -> Vec<RsvpEvent> {
        self.events.extract_if(.., |(to, _)| *to == id).map(|(_, event)| event).collect()
    }
}
