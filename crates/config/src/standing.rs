//! `[[reserve]]`, `[[pinhole]]`, `[[expose]]`: what the daemon asks for by itself, as users of this host do by the command.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::traffic::ServiceClass;
use signalbox_node::resources::Rate;
use signalbox_node::resources::units::Net;
use signalbox_units::Service;

use crate::Config;
use crate::keys::Keys;
use crate::kind::{address, choice, duration, flag, ip_protocol, network, number, rate, service, size, text};

const RESERVE: &str = "A standing reservation along the path of a flow: the daemon asks for it at its start and holds it, as `signalbox reserve` \
     does, and asks again after a refusal or a loss ([operation.md](operation.md#standing-requests)). Any number of tables.";
const PINHOLE: &str =
    "A standing passage for a flow that this host sends, as `signalbox pinhole open` asks for one.";
const EXPOSE: &str = "A port of this host that others reach through firewalls and NATs, as `signalbox pinhole expose` asks for it. `signalbox show \
     requests` has the external address.";

const NAME: &str = "Its name in `show requests` and in the log, which no other table of this kind has.";
const DEFAULT: &str = "that of the protocol";
/// Protocols that reserve.
const RESERVERS: &[(&str, &str)] =
    &[("qos", "qos"), ("rsvp", "rsvp"), ("boomerang", "boomerang"), ("casp", "casp")];
/// Protocols that open passages.
const OPENERS: &[(&str, &str)] = &[("natfw", "natfw"), ("casp", "casp")];

/// The largest packet of a flow whose request does not say it.
const LARGEST_PACKET: u32 = 1500;
/// Shortest and longest lifetime of a passage without a refresh.
const LIFETIME: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

/// The standing requests of a node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Standing {
    /// Reservations.
    pub reserve: Vec<Reserve>,
    /// Passages for flows that this host sends.
    pub pinhole: Vec<Pinhole>,
    /// Ports of this host that others reach.
    pub expose: Vec<Expose>,
}

/// The packets of a flow that this host sends, or of one between others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// Absent only while the configuration is read.
    pub destination: Option<IpAddr>,
    /// Absent: this host.
    pub source: Option<IpAddr>,
    /// Absent: all.
    pub protocol: Option<u8>,
    /// Absent: all.
    pub source_port: Option<u16>,
    /// Absent: all.
    pub destination_port: Option<u16>,
}

/// `[[reserve]]`
#[derive(Debug, Clone, PartialEq)]
pub struct Reserve {
    name: Option<String>,
    /// The name of the protocol.
    pub signaling: &'static str,
    /// Its packets.
    pub flow: Flow,
    /// Their code point; absent: any.
    pub dscp: Option<u8>,
    rate: Option<Rate>,
    /// In octets; absent: the protocol's default.
    pub burst: Option<u64>,
    /// In octets; absent: the protocol's default.
    pub max_packet: Option<u32>,
    at_least: Option<Rate>,
    service: Option<Service>,
    /// The preemption priority.
    pub priority: Option<u16>,
    /// The receiver of the flow reserves.
    pub receiver_initiated: bool,
    /// The reverse direction too.
    pub bidirectional: bool,
}

/// `[[pinhole]]`
#[derive(Debug, Clone, PartialEq)]
pub struct Pinhole {
    name: Option<String>,
    /// The name of the protocol.
    pub signaling: &'static str,
    /// Its packets.
    pub flow: Flow,
    /// What all passages have.
    pub passage: Passage,
}

/// `[[expose]]`
#[derive(Debug, Clone, PartialEq)]
pub struct Expose {
    name: Option<String>,
    /// The name of the protocol.
    pub signaling: &'static str,
    /// Absent only while the configuration is read.
    pub protocol: Option<u8>,
    /// Absent only while the configuration is read.
    pub port: Option<u16>,
    /// Of this host; absent: the one towards the edge.
    pub address: Option<IpAddr>,
    from: Option<Net>,
    /// Of the senders; absent: any.
    pub from_port: Option<u16>,
    /// An address outside, in whose direction the edge lies; absent: the senders.
    pub towards: Option<IpAddr>,
    /// What all passages have.
    pub passage: Passage,
}

/// What all passages have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passage {
    /// Without a refresh; absent: that of the protocol.
    pub lifetime: Option<Duration>,
    /// Also for packets to the next port.
    pub second_port: bool,
    /// The edge answers for the other end.
    pub proxy: bool,
}

impl Default for Reserve {
    fn default() -> Self {
        Self {
            name: None,
            signaling: "qos",
            flow: Flow::default(),
            dscp: None,
            rate: None,
            burst: None,
            max_packet: None,
            at_least: None,
            service: None,
            priority: None,
            receiver_initiated: false,
            bidirectional: false,
        }
    }
}

impl Default for Pinhole {
    fn default() -> Self {
        Self { name: None, signaling: "natfw", flow: Flow::default(), passage: Passage::default() }
    }
}

impl Default for Expose {
    fn default() -> Self {
        Self {
            name: None,
            signaling: "natfw",
            protocol: None,
            port: None,
            address: None,
            from: None,
            from_port: None,
            towards: None,
            passage: Passage::default(),
        }
    }
}

impl Reserve {
    /// By which it is known.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// In octets a second.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rate.map_or(0, |rate| rate.0)
    }

    /// The least rate that will do, in octets a second.
    #[must_use]
    pub fn at_least(&self) -> Option<u64> {
        self.at_least.map(|rate| rate.0)
    }

    /// How its packets are served; absent: controlled load.
    #[must_use]
    pub fn service(&self) -> Option<ServiceClass> {
        self.service.map(|Service(class)| class)
    }

    fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.needed("name", &mut self.name, text(64), NAME);
        keys.key("signaling", &mut self.signaling, choice(RESERVERS), "The protocol that asks for it.");
        self.flow.declare(keys);
        let meaning = "Differentiated-services code point of the packets.";
        keys.option("dscp", &mut self.dscp, number(0..=63), "any", meaning);
        let meaning = "Rate of IP packets. A reload that changes `rate`, `burst` and `max_packet` alone changes what stands, if the \
                       protocol can; other keys make a new request.";
        keys.needed("rate", &mut self.rate, rate(1), meaning);
        let meaning = "Burst.";
        keys.option("burst", &mut self.burst, size(1..=u64::from(u32::MAX)), DEFAULT, meaning);
        let meaning = "Largest packet.";
        keys.option("max_packet", &mut self.max_packet, size(1..=65_535), DEFAULT, meaning);
        let meaning = "Least rate that will do if `rate` is not available; not with RSVP.";
        keys.option("at_least", &mut self.at_least, rate(1), "`rate`", meaning);
        let meaning = "Service of the packets; with RSVP the receiver decides.";
        keys.option("service", &mut self.service, service(), "controlled load", meaning);
        let meaning = "Preemption priority [RFC 3181]; not with Boomerang.";
        keys.option("priority", &mut self.priority, number(0..=u16::MAX), "no priority", meaning);
        let meaning = "The receiver of the flow reserves, at the request of this host; with QoS and CASP.";
        keys.key("receiver_initiated", &mut self.receiver_initiated, flag(), meaning);
        let meaning = "Also for the reverse direction; not with RSVP.";
        keys.key("bidirectional", &mut self.bidirectional, flag(), meaning);
        let packet = u64::from(self.max_packet.unwrap_or(LARGEST_PACKET));
        let message = "less than one largest packet: max_packet, which is 1500 without a value";
        keys.check(self.burst.is_none_or(|burst| burst >= packet), &["burst", "max_packet"], message);
        let one = !(self.receiver_initiated && self.bidirectional);
        keys.check(one, &["receiver_initiated", "bidirectional"], "one of the two: remove the other");
        if self.signaling == "rsvp" {
            let message = "RSVP has none: the receiver decides; remove it";
            for key in ["at_least", "service", "receiver_initiated", "bidirectional"] {
                keys.check(!keys.given(key), &[key], message);
            }
            let message = "RSVP needs the IP protocol of the flow, such as protocol = \"udp\"";
            keys.check(self.flow.protocol.is_some(), &["protocol"], message);
        }
    }
}

impl Flow {
    fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.needed("destination", &mut self.destination, address(), "Destination of the flow.");
        let meaning = "Source of the flow.";
        keys.option("source", &mut self.source, address(), "this host", meaning);
        keys.option("protocol", &mut self.protocol, ip_protocol(), "all", "IP protocol of the flow.");
        keys.option("source_port", &mut self.source_port, number(1..=u16::MAX), "all", "Its source port.");
        let meaning = "Its destination port.";
        keys.option("destination_port", &mut self.destination_port, number(1..=u16::MAX), "all", meaning);
        let message = "ports belong to an IP protocol: write protocol = \"udp\"";
        let ports = self.source_port.is_some() || self.destination_port.is_some();
        keys.check(!ports || self.protocol.is_some(), &["source_port", "destination_port"], message);
        alike(keys, [("source", self.source), ("destination", self.destination)]);
    }
}

impl Pinhole {
    /// By which it is known.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.needed("name", &mut self.name, text(64), NAME);
        keys.key("signaling", &mut self.signaling, choice(OPENERS), "The protocol that asks for it.");
        self.flow.declare(keys);
        self.passage.declare(keys, self.signaling);
    }
}

impl Expose {
    /// By which it is known.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The senders; absent: all.
    #[must_use]
    pub fn from(&self) -> Option<Prefix> {
        self.from.map(|Net(prefix)| prefix)
    }

    fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.needed("name", &mut self.name, text(64), NAME);
        keys.key("signaling", &mut self.signaling, choice(OPENERS), "The protocol that asks for it.");
        keys.needed("protocol", &mut self.protocol, ip_protocol(), "IP protocol.");
        keys.needed("port", &mut self.port, number(1..=u16::MAX), "Port of this host.");
        let meaning = "Address of this host.";
        keys.option("address", &mut self.address, address(), "the one towards the edge", meaning);
        keys.option("from", &mut self.from, network(), "all", "Senders that are meant.");
        let meaning = "Port of the senders.";
        keys.option("from_port", &mut self.from_port, number(1..=u16::MAX), "any", meaning);
        let meaning = "An address outside, in whose direction the edge of this network lies; with NATFW. It needs this or the \
                       address of one sender in `from`.";
        keys.option("towards", &mut self.towards, address(), "the address of `from`", meaning);
        self.passage.declare(keys, self.signaling);
        let from = self.from.map(|Net(prefix)| prefix);
        let one_sender = from.is_some_and(|prefix| prefix == Prefix::host(prefix.addr));
        if self.signaling == "natfw" {
            let message = "write where the edge lies: an address outside, or one sender in from";
            keys.check(self.towards.is_some() || one_sender, &["towards", "name"], message);
        } else {
            keys.check(self.towards.is_none(), &["towards"], "CASP has none: remove it");
        }
        let from = from.map(|prefix| prefix.addr);
        alike(keys, [("from", from), ("address", self.address)]);
        alike(keys, [("towards", self.towards), ("address", self.address)]);
    }
}

impl Passage {
    fn declare(&mut self, keys: &mut Keys<'_>, signaling: &str) {
        let meaning = "Lifetime without a refresh; the daemon refreshes.";
        keys.option("lifetime", &mut self.lifetime, duration(LIFETIME), DEFAULT, meaning);
        let meaning = "Also for packets to the next port, such as RTCP; with NATFW.";
        keys.key("second_port", &mut self.second_port, flag(), meaning);
        let meaning =
            "The other end does not run the application: the edge of its network answers for it; with NATFW.";
        keys.key("proxy", &mut self.proxy, flag(), meaning);
        if signaling == "casp" {
            for (key, given) in [("second_port", self.second_port), ("proxy", self.proxy)] {
                keys.check(!given, &[key], "CASP has none: remove it");
            }
        }
    }
}

/// Addresses of one request are of one version of IP.
fn alike(keys: &mut Keys<'_>, [(one, first), (other, second)]: [(&str, Option<IpAddr>); 2]) {
    let alike = first.zip(second).is_none_or(|(first, second)| first.is_ipv4() == second.is_ipv4());
    keys.check(alike, &[one, other], "IPv4 here, and IPv6 in the other address: write two of one version");
}

impl Standing {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        let Self { reserve, pinhole, expose } = self;
        keys.array("reserve", RESERVE, reserve, Reserve::default, |keys, one| one.declare(keys));
        keys.array("pinhole", PINHOLE, pinhole, Pinhole::default, |keys, one| one.declare(keys));
        keys.array("expose", EXPOSE, expose, Expose::default, |keys, one| one.declare(keys));
    }

    /// The name of the table, its number there, the name of the request, and the protocol.
    fn each(&self) -> impl Iterator<Item = (&'static str, usize, &str, &'static str)> {
        let reserve = (1..).zip(&self.reserve).map(|(at, one)| ("reserve", at, one.name(), one.signaling));
        let pinhole = (1..).zip(&self.pinhole).map(|(at, one)| ("pinhole", at, one.name(), one.signaling));
        let expose = (1..).zip(&self.expose).map(|(at, one)| ("expose", at, one.name(), one.signaling));
        reserve.chain(pinhole).chain(expose)
    }
}

impl Config {
    /// Checks that each request has a name of its own, and a protocol that runs.
    pub(crate) fn check_standing(&self, keys: &mut Keys<'_>) {
        let mut names = BTreeSet::new();
        for (table, at, name, signaling) in self.standing.each() {
            let named = format!("{table}[{at}].name");
            if !names.insert((table, name)) && !name.is_empty() {
                keys.fault(&[&named], "another table has this name: write another one");
            }
            let runs = self.running_named(signaling).is_some_and(|section| match table {
                "reserve" => section.reserver().is_some(),
                _ => section.asks_for_passages(),
            });
            if !runs {
                let what = if table == "reserve" { "reserves" } else { "asks for passages" };
                let message = format!(
                    "{signaling} does not run here, or not with what {what}: add it to node.protocols (for CASP also to casp.clients), or \
                     write another signaling"
                );
                keys.fault(&[&format!("{table}[{at}].signaling"), &named], &message);
            }
        }
    }
}
