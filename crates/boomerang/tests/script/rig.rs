//! One node with three interfaces: eth1 towards initiating nodes, eth2 and eth3 towards far ends.

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use signalbox_boomerang::engine::{BoomerangEvent, Command, Config, Input, Request};
pub(crate) use signalbox_boomerang::kit::{self, Sent, World};
use signalbox_boomerang::wire::{
    Ends, Flags, FlowSpec, Format, Known, Message, Pass, Qos, Rates, ReturnProof, checksum_is_valid,
};
use signalbox_core::Time;
use signalbox_core::node::Interface;
use signalbox_core::packet::Received;

pub(crate) const IN: &str = "192.0.2.1";
pub(crate) const FEN: &str = "198.51.100.2";
pub(crate) const NODE: &str = "192.0.2.254";

/// What a test reads in a packet that the node sent.
pub(crate) trait Read {
    fn message(&self) -> Message<'_>;
    /// The proofs of return in it, with the flags of their options.
    fn proofs(&self) -> Vec<(u16, ReturnProof)>;
    fn rates(&self) -> Rates;
}

impl Read for Sent {
    fn message(&self) -> Message<'_> {
        assert!(checksum_is_valid(&self.ends, &self.octets));
        Message::parse(&self.octets, self.ends.is_ipv6()).unwrap()
    }

    fn proofs(&self) -> Vec<(u16, ReturnProof)> {
        let proofs = self.message().body.unwrap().options.proofs();
        proofs.map(|(placed, proof)| (placed.flags, proof)).collect()
    }

    fn rates(&self) -> Rates {
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
    kit::flow(ip(IN), ip(FEN), port)
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

    /// The message with this quality of service, without the options.
    pub(crate) fn message<'a>(&self, qos: Qos<'a>) -> Message<'a> {
        Message {
            transaction: self.transaction,
            flags: Flags(self.flags),
            refresh: self.refresh,
            key: self.key,
            ..kit::message(self.pass, self.flow, qos)
        }
    }

    pub(crate) fn octets(&self) -> Vec<u8> {
        let pairs: Vec<[u8; 8]> = self.rates.iter().map(|pair| pair.octets()).collect();
        let mut message = self.message(match &self.rates[..] {
            [one] => Qos::BitRate(*one),
            _ => Qos::list(&pairs),
        });
        message.format = self.format.map_or(message.format, Format);
        let mut octets = Vec::new();
        message.encode(&self.ends, &mut octets);
        octets.extend(&self.options);
        signalbox_boomerang::wire::edit::set_checksum(&mut octets, &self.ends);
        octets
    }
}

pub(crate) struct Rig(pub(crate) World);

impl Deref for Rig {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.0
    }
}

fn interface(n: u32, addresses: &[&str]) -> Interface {
    kit::interface(n, addresses.iter().map(|text| ip(text)).collect())
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
        let mut rig = Self(World::new(config, links, [seed; 32]).unwrap());
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
        self.0.interfaces(&some);
    }

    /// Gives an interface another MTU.
    pub(crate) fn mtu(&mut self, n: u32, mtu: u32) {
        self.input(Input::Interfaces(&[Interface { mtu, ..interface(n, &["198.51.100.1"]) }]));
    }

    /// Changes the multicast route of these packets. The result is what the node sends.
    pub(crate) fn branch(&mut self, group: IpAddr, source: IpAddr, oifs: &[u32]) -> Vec<Sent> {
        self.trees.insert((group, source), (1, oifs.to_vec()));
        self.sent.clear();
        self.tree(group, source);
        self.drain();
        self.sent.clone()
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
        let packet = kit::packet(fields.ends, ifindex, octets);
        self.input(Input::Packet(Received { ttl: fields.ttl, options, ..packet }));
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
        self.0.wait(time);
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
    kit::request(ip(FEN), rates(64_000, 32_000))
}
