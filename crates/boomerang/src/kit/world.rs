//! A node with a clock, an outbox and a kernel.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use signalbox_core::node::{Interface, NoRoute, Route};
use signalbox_core::packet::Transmit;
use signalbox_core::traffic::{ReservationId, ReserveError};
use signalbox_core::{IfIndex, Time};
use signalbox_resources::{ResourceOutput, Resources};

use crate::engine::{Boomerang, BoomerangEvent, Config, ENTRY, Input, Output, PROTOCOL};
use crate::wire::Ends;

/// Deadlines in one pause. An engine that asks for more has an endless loop.
const DEADLINES: u32 = 100_000;

/// A packet that the node sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Source and destination.
    pub ends: Ends,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TOS octet or traffic class.
    pub tos: u8,
    /// The DF bit of IPv4.
    pub dont_fragment: bool,
    /// IP options.
    pub options: Vec<u8>,
    /// The ICMP message.
    pub octets: Vec<u8>,
    /// The interface that a packet to a group leaves by.
    pub by: Option<u32>,
}

impl From<Transmit<'_>> for Sent {
    fn from(packet: Transmit<'_>) -> Self {
        assert_eq!(packet.entry, ENTRY);
        assert!(packet.ifindex.is_none() || packet.dst.ip().is_multicast());
        Self {
            ends: Ends { src: packet.src.ip(), dst: packet.dst.ip() },
            ttl: packet.ttl,
            tos: packet.tos,
            dont_fragment: packet.dont_fragment,
            options: packet.options.to_vec(),
            octets: packet.payload.to_vec(),
            by: packet.ifindex.map(|index| index.0),
        }
    }
}

/// A node, its admission control, and the kernel that answers both.
pub struct World {
    /// The node.
    pub node: Boomerang,
    /// Its admission control.
    pub resources: Resources,
    /// The present time.
    pub now: Time,
    /// Packets that were sent and not taken yet.
    pub sent: Vec<Sent>,
    /// Events for users, with the ids of their sessions.
    pub events: Vec<(u64, BoomerangEvent)>,
    /// Interfaces by which packets leave, by destination; 0: there is no route.
    pub routes: BTreeMap<IpAddr, u32>,
    /// The interface for destinations that are not in `routes`.
    pub elsewhere: fn(IpAddr) -> u32,
    /// The source that routing chooses; unspecified: it is left to the node.
    pub source: IpAddr,
    /// The gateway of all routes.
    pub gateway: Option<IpAddr>,
    /// Largest packet of all routes.
    pub route_mtu: u32,
    /// The answer where there is no route.
    pub no_route: NoRoute,
    /// Interfaces that packets to groups come in and leave by, by group and source.
    pub trees: BTreeMap<(IpAddr, IpAddr), (u32, Vec<u32>)>,
    /// The same for groups and sources that are not in `trees`.
    pub other_tree: (u32, Vec<u32>),
    /// Groups and sources whose routes the node follows.
    pub followed: BTreeSet<(IpAddr, IpAddr)>,
    /// Routes are answered at once. Otherwise the lookups wait in `open`.
    pub answer_lookups: bool,
    /// Ids and destinations of lookups that wait.
    pub open: Vec<(u64, IpAddr)>,
    /// The number of lookups.
    pub lookups: u32,
    /// The number of reservations that the kernel was asked for.
    pub installs: u32,
    /// The kernel refuses what it is asked to install.
    pub kernel_refuses: bool,
    /// What the kernel was asked to remove.
    pub removed: Vec<ReservationId>,
}

impl World {
    /// A node without interfaces and with all routes by the second one. `None`: the configuration is wrong.
    pub fn new(config: Config, links: signalbox_resources::Config, seed: [u8; 32]) -> Option<Self> {
        Some(Self {
            node: Boomerang::new(config, seed).ok()?,
            resources: Resources::new(links, 0, [8; 32]).ok()?,
            now: Time::from_secs(10),
            sent: Vec::new(),
            events: Vec::new(),
            routes: BTreeMap::new(),
            elsewhere: |_| 2,
            source: IpAddr::from([0; 4]),
            gateway: None,
            route_mtu: 1500,
            no_route: NoRoute::Unreachable,
            trees: BTreeMap::new(),
            other_tree: (0, Vec::new()),
            followed: BTreeSet::new(),
            answer_lookups: true,
            open: Vec::new(),
            lookups: 0,
            installs: 0,
            kernel_refuses: false,
            removed: Vec::new(),
        })
    }

    /// The interfaces of the node from now on.
    pub fn interfaces(&mut self, all: &[Interface]) {
        self.resources.interfaces(all);
        self.input(Input::Interfaces(all));
    }

    /// Gives the node an input, and takes all outputs.
    pub fn input(&mut self, input: Input<'_>) {
        self.node.handle(self.now, input, &mut self.resources);
        self.drain();
    }

    /// Takes all outputs; the kernel answers.
    pub fn drain(&mut self) {
        loop {
            let (mut lookups, mut groups, mut lost) = (Vec::new(), Vec::new(), Vec::new());
            while let Some(output) = self.node.poll() {
                match output {
                    Output::Send(packet) => self.sent.push(packet.into()),
                    Output::RouteLookup { id, query } => lookups.push((id, query.dst)),
                    Output::MulticastLookup { group, source } => {
                        self.followed.insert((group, source));
                        groups.push((group, source));
                    }
                    Output::MulticastRelease { group, source } => {
                        assert!(self.followed.remove(&(group, source)), "{group} is not followed");
                    }
                    Output::Event { id, event } => self.events.push((id, event)),
                }
            }
            while let Some(output) = self.resources.poll() {
                match output {
                    ResourceOutput::Install { id, .. } => {
                        self.installs += 1;
                        let result = if self.kernel_refuses { Err(ReserveError::Failed) } else { Ok(()) };
                        self.resources.installed(id, result);
                    }
                    ResourceOutput::Remove { id } => self.removed.push(id),
                    ResourceOutput::Lost { owner, grant, why } => {
                        assert_eq!(owner.protocol, PROTOCOL);
                        lost.push(Input::Lost { key: owner.key, grant, why });
                    }
                    ResourceOutput::Reduced { .. } => {}
                }
            }
            if lookups.is_empty() && groups.is_empty() && lost.is_empty() {
                return;
            }
            if self.answer_lookups {
                groups.into_iter().for_each(|(group, source)| self.tree(group, source));
            }
            for lost in lost {
                self.node.handle(self.now, lost, &mut self.resources);
            }
            self.lookups += u32::try_from(lookups.len()).unwrap_or(u32::MAX);
            if self.answer_lookups {
                lookups.into_iter().for_each(|(id, dst)| self.answer(id, dst));
            } else {
                self.open.extend(lookups);
            }
        }
    }

    /// Gives the node the multicast route of these packets.
    pub fn tree(&mut self, group: IpAddr, source: IpAddr) {
        let (iif, oifs) = self.trees.get(&(group, source)).unwrap_or(&self.other_tree);
        let oifs: Vec<_> = oifs.iter().copied().map(IfIndex).collect();
        let input = Input::Multicast { group, source, iif: IfIndex(*iif), oifs: &oifs };
        self.node.handle(self.now, input, &mut self.resources);
    }

    /// Answers a lookup.
    pub fn answer(&mut self, id: u64, dst: IpAddr) {
        let number = self.routes.get(&dst).copied().unwrap_or_else(|| (self.elsewhere)(dst));
        let (ifindex, src, gateway, mtu) = (IfIndex(number), self.source, self.gateway, self.route_mtu);
        let route = Route { ifindex, src, gateway, mtu, local: false };
        let result = if number == 0 { Err(self.no_route) } else { Ok(route) };
        self.node.handle(self.now, Input::Route { id, result }, &mut self.resources);
    }

    /// Lets time pass: timers fire at the times that the node asks for, and once more at the end.
    pub fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        for count in 0.. {
            assert!(count < DEADLINES, "timers come again and again");
            let Some(due) = self.node.next_deadline().filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            self.input(Input::Timer);
        }
        self.now = end;
        self.input(Input::Timer);
    }
}
