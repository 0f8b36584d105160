//! One node with three interfaces: eth1 towards initiating nodes, eth2 and eth3 towards far ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use signalbox_boomerang::engine::{
    Boomerang, BoomerangEvent, Command, Config, ENTRY, Input, Output, PROTOCOL, Request,
};
use signalbox_boomerang::wire::{
    Body, Classifier, Ends, Flags, FlowSpec, Format, Known, Message, Options, Pass, Qos, Rates, ReturnProof,
    checksum_is_valid,
};
use signalbox_core::node::{Interface, NoRoute, Route};
use signalbox_core::packet::Received;
use signalbox_core::traffic::{ReservationId, ReserveError};
use signalbox_core::{IfIndex, Time};
use signalbox_resources::{ResourceOutput, Resources};

pub(crate) const IN: &str = "192.0.2.1";
pub(crate) const FEN: &str = "198.51.100.2";
pub(crate) const NODE: &str = "192.0.2.254";

/// A packet that the node sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) ends: Ends,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) options: Vec<u8>,
    pub(crate) octets: Vec<u8>,
    /// The interface that a packet to a group leaves by.
    pub(crate) by: Option<u32>,
}

impl Sent {
    pub(crate) fn message(&self) -> Message<'_> {
        assert!(checksum_is_valid(&self.ends, &self.octets));
        Message::parse(&self.octets, self.ends.is_ipv6()).unwrap()
    }

    /// The proofs of return in it, with the flags of their options.
    pub(crate) fn proofs(&self) -> Vec<(u16, ReturnProof)> {
        let proofs = self.message().body.unwrap().options.proofs();
        proofs.map(|(placed, proof)| (placed.flags, proof)).collect()
    }

    pub(crate) fn rates(&self) -> Rates {
        self.message().body.unwrap().qos.rates().unwrap()
    }
}

/// Fields of a message, to be changed by a test.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    pub(crate) pass: Pass,
    pub(crate) ends: Ends,
    pub(crate) flow: FlowSpec,
    pub(crate) rates: Vec<Rates>,
    pub(crate) format: Option<u8>,
    pub(crate) flags: u16,
    pub(crate) refresh: u8,
    pub(crate) key: u64,
    pub(crate) ttl: u8,
    pub(crate) transaction: u32,
    pub(crate) options: Vec<u8>,
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn rates(forward: u32, reverse: u32) -> Rates {
    Rates { forward, reverse }
}

pub(crate) fn flow(port: u16) -> FlowSpec {
    FlowSpec::exact(Classifier {
        src: ip(IN),
        dst: ip(FEN),
        src_port: port,
        dst_port: 5004,
        protocol: 17,
        tos: 0xb8,
        flags: 0,
    })
}

/// A request of 64 kbit/s in both directions for the flow of this port.
pub(crate) fn request(port: u16) -> Fields {
    Fields {
        pass: Pass::Request,
        ends: Ends { src: ip(IN), dst: ip(FEN) },
        flow: flow(port),
        rates: vec![rates(64_000, 64_000)],
        format: None,
        flags: 0,
        refresh: 30,
        key: 1,
        ttl: 64,
        transaction: 1,
        options: Vec::new(),
    }
}

/// The flag of an initiating node that returns proofs in options.
pub(crate) const RETURNS: u16 = Flags::RETURNS.0;

/// The same of an initiating node that returns proofs in options.
pub(crate) fn returning(port: u16) -> Fields {
    Fields { flags: RETURNS, ..request(port) }
}

/// The reply that an unaware far end would send to it.
pub(crate) fn reply(port: u16) -> Fields {
    Fields { pass: Pass::Reply, ends: Ends { src: ip(FEN), dst: ip(IN) }, ..request(port) }
}

impl Fields {
    /// Gives it another source, which its flow has as well.
    pub(crate) fn be(&mut self, address: &str) {
        self.ends.src = ip(address);
        self.flow.classifier.src = ip(address);
    }

    /// The same with the proofs and the KEY of what a node sent.
    pub(crate) fn confirming(&self, sent: &Sent) -> Self {
        let mut options = Vec::new();
        for (flags, proof) in sent.proofs() {
            Known::ReturnProof(proof).encode(flags, &mut signalbox_wire::Writer::new(&mut options));
        }
        Self { key: sent.message().key, options, ..self.clone() }
    }

    pub(crate) fn octets(&self) -> Vec<u8> {
        let pairs: Vec<[u8; 8]> = self.rates.iter().map(|pair| pair.octets()).collect();
        let qos = match &self.rates[..] {
            [one] => Qos::BitRate(*one),
            _ => Qos::list(&pairs),
        };
        let message = Message {
            pass: self.pass,
            identifier: 7,
            sequence: 9,
            transaction: self.transaction,
            format: Format(self.format.unwrap_or(Format::of(self.flow.family(), qos.format()).0)),
            flags: Flags(self.flags),
            refresh: self.refresh,
            padding: 0,
            key: self.key,
            body: Some(Body { flow: self.flow, qos, options: Options::none() }),
        };
        let mut octets = Vec::new();
        message.encode(&self.ends, &mut octets);
        octets.extend(&self.options);
        signalbox_boomerang::wire::edit::set_checksum(&mut octets, &self.ends);
        octets
    }
}

pub(crate) struct Rig {
    pub(crate) node: Boomerang,
    pub(crate) resources: Resources,
    pub(crate) now: Time,
    pub(crate) events: Vec<(u64, BoomerangEvent)>,
    /// Interfaces by which packets to other destinations than eth1's leave.
    pub(crate) routes: BTreeMap<IpAddr, u32>,
    /// Interfaces that packets to groups come in and leave by, by group and source.
    pub(crate) trees: BTreeMap<(IpAddr, IpAddr), (u32, Vec<u32>)>,
    /// Groups and sources whose routes the node follows.
    pub(crate) followed: BTreeSet<(IpAddr, IpAddr)>,
    pub(crate) lookups: u32,
    pub(crate) installs: u32,
    /// What the kernel was asked to remove.
    pub(crate) removed: Vec<ReservationId>,
    /// The kernel refuses what it is asked to install.
    pub(crate) kernel_refuses: bool,
    pub(crate) answer_lookups: bool,
    /// The source that routing chooses; unspecified: it is left to the node.
    pub(crate) source: IpAddr,
    /// The gateway of all routes.
    pub(crate) gateway: Option<IpAddr>,
    /// Largest packet of all routes.
    pub(crate) route_mtu: u32,
    /// The answer for destinations whose interface is 0.
    pub(crate) no_route: NoRoute,
    pub(crate) open: Vec<(u64, IpAddr)>,
    pub(crate) sent: Vec<Sent>,
}

fn interface(n: u32, addresses: &[&str]) -> Interface {
    Interface {
        ifindex: IfIndex(n),
        name: format!("eth{n}"),
        up: true,
        mtu: 1500,
        tunnel: false,
        addresses: addresses.iter().map(|text| ip(text)).collect(),
    }
}

impl Rig {
    /// A node whose links have 200 kbit/s to reserve, and where everybody may.
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        Self::of(config, Self::links())
    }

    /// Another node, which stands behind the first one towards the far ends.
    pub(crate) fn behind(config: Config) -> Self {
        Self::behind_others(config, 9)
    }

    /// The same with random numbers of its own.
    pub(crate) fn behind_others(config: Config, seed: u8) -> Self {
        let mut rig = Self::seeded(config, Self::links(), seed);
        rig.input(Input::Interfaces(&[interface(1, &["203.0.113.77"]), interface(2, &["203.0.113.78"])]));
        rig
    }

    fn links() -> signalbox_resources::Config {
        let mut links = signalbox_resources::Config::of_link("*", "200kbit".parse().unwrap());
        links.default = signalbox_resources::config::Action::Allow;
        for link in &mut links.links {
            link.reservable = signalbox_resources::units::Share::percent(100);
        }
        links
    }

    pub(crate) fn of(config: Config, links: signalbox_resources::Config) -> Self {
        Self::seeded(config, links, 7)
    }

    fn seeded(config: Config, links: signalbox_resources::Config, seed: u8) -> Self {
        let mut rig = Self {
            node: Boomerang::new(config, [seed; 32]).unwrap(),
            resources: Resources::new(links, 0, [8; 32]).unwrap(),
            now: Time::from_secs(10),
            events: Vec::new(),
            routes: BTreeMap::new(),
            trees: BTreeMap::new(),
            followed: BTreeSet::new(),
            lookups: 0,
            installs: 0,
            removed: Vec::new(),
            kernel_refuses: false,
            gateway: None,
            route_mtu: 1500,
            answer_lookups: true,
            source: ip("0.0.0.0"),
            no_route: NoRoute::Unreachable,
            open: Vec::new(),
            sent: Vec::new(),
        };
        rig.routes.insert(ip(IN), 1);
        rig.interfaces(&[1, 2, 3]);
        rig
    }

    /// Gives the node another address, which routing chooses as its source.
    pub(crate) fn be(&mut self, address: &str) {
        self.source = ip(address);
        self.input(Input::Interfaces(&[interface(2, &["198.51.100.1", address])]));
    }

    /// The interfaces of the node from now on.
    pub(crate) fn interfaces(&mut self, numbers: &[u32]) {
        let all = [
            interface(1, &[NODE, "2001:db8::fe"]),
            interface(2, &["198.51.100.1", "2001:db8:1::1"]),
            interface(3, &["203.0.113.1"]),
        ];
        let some: Vec<_> = all.into_iter().filter(|one| numbers.contains(&one.ifindex.0)).collect();
        self.resources.interfaces(&some);
        self.input(Input::Interfaces(&some));
    }

    /// Gives an interface another MTU.
    pub(crate) fn mtu(&mut self, n: u32, mtu: u32) {
        self.input(Input::Interfaces(&[Interface { mtu, ..interface(n, &["198.51.100.1"]) }]));
    }

    pub(crate) fn input(&mut self, input: Input<'_>) {
        self.node.handle(self.now, input, &mut self.resources);
        self.drain();
    }

    pub(crate) fn drain(&mut self) {
        loop {
            let (mut lookups, mut groups) = (Vec::new(), Vec::new());
            while let Some(output) = self.node.poll() {
                match output {
                    Output::Send(packet) => {
                        assert_eq!(packet.entry, ENTRY);
                        assert!(packet.ifindex.is_none() || packet.dst.ip().is_multicast());
                        self.sent.push(Sent {
                            ends: Ends { src: packet.src.ip(), dst: packet.dst.ip() },
                            ttl: packet.ttl,
                            tos: packet.tos,
                            options: packet.options.to_vec(),
                            octets: packet.payload.to_vec(),
                            by: packet.ifindex.map(|index| index.0),
                        });
                    }
                    Output::RouteLookup { id, query } => lookups.push((id, query.dst)),
                    Output::MulticastLookup { group, source } => {
                        self.followed.insert((group, source));
                        groups.push((group, source));
                    }
                    Output::MulticastRelease { group, source } => {
                        assert!(self.followed.remove(&(group, source)));
                    }
                    Output::Event { id, event } => self.events.push((id, event)),
                }
            }
            let mut lost = Vec::new();
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
                        lost.push((owner.key, grant, why));
                    }
                    _ => {}
                }
            }
            if lookups.is_empty() && groups.is_empty() && lost.is_empty() {
                return;
            }
            if self.answer_lookups {
                groups.into_iter().for_each(|(group, source)| self.tree(group, source));
            }
            for (key, grant, why) in lost {
                self.node.handle(self.now, Input::Lost { key, grant, why }, &mut self.resources);
            }
            self.lookups += u32::try_from(lookups.len()).unwrap();
            if self.answer_lookups {
                lookups.into_iter().for_each(|(id, dst)| self.answer(id, dst));
            } else {
                self.open.extend(lookups);
            }
        }
    }

    /// Gives the node the multicast route of these packets.
    fn tree(&mut self, group: IpAddr, source: IpAddr) {
        let (iif, oifs) = self.trees.get(&(group, source)).cloned().unwrap_or_default();
        let oifs: Vec<_> = oifs.into_iter().map(IfIndex).collect();
        let input = Input::Multicast { group, source, iif: IfIndex(iif), oifs: &oifs };
        self.node.handle(self.now, input, &mut self.resources);
    }

    /// Changes the multicast route of these packets. The result is what the node sends.
    pub(crate) fn branch(&mut self, group: IpAddr, source: IpAddr, oifs: &[u32]) -> Vec<Sent> {
        self.trees.insert((group, source), (1, oifs.to_vec()));
        self.sent.clear();
        self.tree(group, source);
        self.drain();
        self.sent.clone()
    }

    pub(crate) fn answer(&mut self, id: u64, dst: IpAddr) {
        let ifindex = IfIndex(self.routes.get(&dst).copied().unwrap_or(2));
        let route =
            Route { ifindex, src: self.source, gateway: self.gateway, mtu: self.route_mtu, local: false };
        let result = if ifindex.0 == 0 { Err(self.no_route) } else { Ok(route) };
        self.node.handle(self.now, Input::Route { id, result }, &mut self.resources);
    }

    /// What the node sends because of these octets, received by an interface in a packet with a Router Alert.
    pub(crate) fn octets(&mut self, ifindex: u32, fields: &Fields, octets: &[u8]) -> Vec<Sent> {
        self.octets_with(ifindex, fields, octets, &[0x94, 4, 0, 0])
    }

    /// The same with these IP options.
    pub(crate) fn octets_with(
        &mut self,
        ifindex: u32,
        fields: &Fields,
        octets: &[u8],
        options: &[u8],
    ) -> Vec<Sent> {
        self.sent.clear();
        let (src, dst) = (SocketAddr::new(fields.ends.src, 0), SocketAddr::new(fields.ends.dst, 0));
        let ifindex = IfIndex(ifindex);
        self.input(Input::Packet(Received {
            entry: ENTRY,
            src,
            dst,
            ifindex,
            ttl: fields.ttl,
            tos: 0,
            options,
            payload: octets,
        }));
        self.sent.clone()
    }

    /// What the node sends because of this message: one packet.
    pub(crate) fn pass(&mut self, fields: &Fields) -> Sent {
        let ifindex = if fields.pass == Pass::Request { 1 } else { 2 };
        let mut sent = self.octets(ifindex, fields, &fields.octets());
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    /// Lets time pass. The result is what the node sends in the meantime.
    pub(crate) fn wait(&mut self, time: Duration) -> Vec<Sent> {
        self.sent.clear();
        let end = self.now + time;
        while let Some(next) = self.node.next_deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.input(Input::Timer);
        }
        self.now = end;
        self.input(Input::Timer);
        self.sent.clone()
    }

    pub(crate) fn command(&mut self, id: u64, command: Command) -> Vec<Sent> {
        self.sent.clear();
        self.input(Input::Command { id, command });
        self.sent.clone()
    }

    /// The far end answers the last request like a host without Boomerang, after `change`.
    pub(crate) fn echo(&mut self, sent: &Sent, change: impl FnOnce(&mut Vec<u8>)) -> Vec<Sent> {
        let mut octets = sent.octets.clone();
        octets[0] = Pass::Reply.icmp_type(sent.ends.is_ipv6());
        change(&mut octets);
        let ends = Ends { src: sent.ends.dst, dst: sent.ends.src };
        signalbox_boomerang::wire::edit::set_checksum(&mut octets, &ends);
        let fields = Fields { ends, ..reply(0) };
        self.octets(2, &fields, &octets)
    }

    /// Rates of the reservations, by direction and interface.
    pub(crate) fn reserved(&self) -> Vec<(Pass, u32, u32)> {
        let mut all: Vec<_> =
            self.node.flows().map(|flow| (flow.pass, flow.ifindex.0, flow.rate.unwrap_or(0))).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn expires(&self) -> Option<Time> {
        self.node.flows().next().and_then(|flow| flow.expires)
    }

    pub(crate) fn last_event(&self) -> &BoomerangEvent {
        &self.events.last().unwrap().1
    }
}

pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// What a user of this node asks for.
pub(crate) fn wish() -> Request {
    Request {
        far_end: ip(FEN),
        src: None,
        dst: None,
        protocol: Some(17),
        src_port: Some(4000),
        dst_port: Some(5004),
        dscp: 46,
        rates: vec![rates(64_000, 32_000)],
        intserv: None,
        refresh: None,
        user: None,
        confirm_release: false,
        name_nodes: false,
    }
}
