//! Policies as an operator writes them, and tokens that hosts have.

use std::net::IpAddr;

use ring::hmac;
use signalbox_core::Time;
use signalbox_core::node::Prefix;
use signalbox_node::resources::config::{self, Action, OUTSIDE as DEFAULT, Opening, RuleConfig, Zones};
use signalbox_node::resources::token::KeyConfig;
use signalbox_node::resources::units::Net;

use crate::draw::Draw;
use crate::kernel::{TCP, Tuple, UDP};
use crate::messages::casp_object;
use crate::network::Network;
use crate::policy::ZONES;

/// The name of who signs tokens.
const ENTITY: &str = "auth.example";
const SECRET: u8 = 0x0b;
/// Seconds from 1900 to 1970.
const NTP: u64 = 2_208_988_800;

/// A rule.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) allows: bool,
    opens: Vec<Opening>,
    from: Option<IpAddr>,
    /// A token is needed.
    pub(crate) token: bool,
    /// Zones where packets come in, and where they leave; empty: any.
    zones: [Vec<&'static str>; 2],
    /// A protocol, and the ports of it.
    service: Option<(u8, [u16; 2])>,
    destination: Option<IpAddr>,
}

impl Rule {
    /// A rule that allows each requester everything that a firewall can open.
    fn any() -> Self {
        let opens = vec![Opening::Outward, Opening::Inward, Opening::Between, Opening::Reserve];
        let [from, destination] = [None; 2];
        Self {
            allows: true,
            opens,
            from,
            token: false,
            zones: Default::default(),
            service: None,
            destination,
        }
    }

    fn draw(draw: &mut Draw, network: &Network) -> Self {
        let all = [Opening::Outward, Opening::Inward, Opening::Inward, Opening::Between, Opening::Reserve];
        let names = [ZONES[0], ZONES[1], "inside", DEFAULT];
        let first = port(draw);
        let opens: Vec<_> = (0..=draw.below(2)).map(|_| draw.one(&all)).collect();
        let mut zones = [(); 2].map(|()| {
            let number = if draw.percent(30) { 1 + draw.below(2) } else { 0 };
            (0..number).map(|_| draw.one(&names)).collect()
        });
        if opens.contains(&Opening::Reserve) {
            zones[0] = Vec::new();
        }
        Self {
            allows: draw.percent(55),
            opens,
            from: draw.percent(40).then(|| network.one(draw)),
            token: draw.percent(15),
            zones,
            service: draw.percent(80).then(|| {
                let last = first + u16::try_from(draw.below(3)).unwrap();
                (draw.one(&[UDP, UDP, TCP]), [first, last])
            }),
            destination: draw.percent(25).then(|| network.one(draw)),
        }
    }

    fn config(&self) -> RuleConfig {
        let net = |address: &IpAddr| Net(Prefix::host(*address));
        let ports = |[first, last]: [u16; 2]| format!("{first}-{last}").parse().unwrap();
        let [from_zone, to_zone] =
            self.zones.each_ref().map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        RuleConfig {
            opens: self.opens.clone(),
            from: self.from.iter().map(net).collect(),
            token: Some(ENTITY.to_owned()).filter(|_| self.token).into_iter().collect(),
            from_zone,
            to_zone,
            protocol: self.service.iter().map(|(protocol, _)| *protocol).collect(),
            ports: self.service.iter().map(|(_, range)| ports(*range)).collect(),
            destination: self.destination.iter().map(net).collect(),
            ..RuleConfig::new("", if self.allows { Action::Allow } else { Action::Deny })
        }
    }

    /// Whether the rule is about a packet of this direction, of which one asked.
    pub(crate) fn is_about(&self, opening: Opening, from: IpAddr, packet: &Tuple) -> bool {
        self.opens.contains(&opening)
            && self.from.is_none_or(|address| address == from)
            && self.service.is_none_or(|(protocol, [first, last])| {
                protocol == packet.protocol && (first..=last).contains(&packet.dst_port)
            })
            && self.destination.is_none_or(|address| address == packet.dst)
    }

    /// Whether the rule is about packets from one zone to another. What is not known is none that it allows, and may be one that it
    /// denies.
    pub(crate) fn is_between(&self, zones: [Option<&'static str>; 2]) -> bool {
        let is_one =
            |named: &Vec<_>, zone: Option<_>| zone.map_or(!self.allows, |zone| named.contains(&zone));
        self.zones.iter().zip(zones).all(|(named, zone)| named.is_empty() || is_one(named, zone))
    }
}

pub(crate) fn port(draw: &mut Draw) -> u16 {
    5000 + u16::try_from(draw.below(4)).unwrap()
}

/// The rules of a firewall, and the zones of its interfaces.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) rules: Vec<Rule>,
    zones: Vec<&'static str>,
}

impl Policy {
    /// That of a firewall. Of two, some allow more, so that packets pass both.
    pub(crate) fn draw(draw: &mut Draw, network: &Network, at: usize) -> Self {
        let mut rules: Vec<_> = (0..draw.below(5)).map(|_| Rule::draw(draw, network)).collect();
        if network.places.len() > 1 && draw.percent(40) {
            rules.push(Rule::any());
        }
        let zones = (0..network.interfaces()).map(|interface| {
            let of_side = if network.is_outside(at, Some(interface)) { DEFAULT } else { "inside" };
            draw.one(&[ZONES[0], ZONES[1], of_side])
        });
        Self { rules, zones: zones.collect() }
    }

    pub(crate) fn config(&self) -> config::Config {
        let zones =
            (0..).zip(&self.zones).map(|(at, zone): (usize, _)| (format!("eth{at}"), (*zone).to_owned()));
        let key = KeyConfig {
            entity: ENTITY.to_owned(),
            id: 1,
            secret: format!("{SECRET:02x}").repeat(32),
            length: 32,
            from: 0,
            until: None,
        };
        config::Config {
            zones: Zones(zones.collect()),
            rules: self.rules.iter().map(Rule::config).collect(),
            keys: vec![key],
            ..config::Config::default()
        }
    }

    /// The zone of an interface. What has none is outside.
    pub(crate) fn zone(&self, interface: Option<usize>) -> &'static str {
        interface.map_or(DEFAULT, |at| self.zones[at])
    }
}

/// A token for packets to a host, which may have a wrong signature.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    destination: IpAddr,
    right: bool,
}

impl Token {
    pub(crate) fn draw(draw: &mut Draw, network: &Network) -> Option<Self> {
        draw.percent(25).then(|| Self { destination: network.one(draw), right: draw.percent(80) })
    }

    /// Its attributes (RFC 5981 §3.2).
    pub(crate) fn attributes(&self) -> Vec<u8> {
        let mut attributes = Vec::new();
        let mut put = |kind: u8, sub: u8, value: &[u8]| {
            attributes.extend(u16::try_from(4 + value.len()).unwrap().to_be_bytes());
            attributes.extend([kind, sub]);
            attributes.extend(value);
        };
        put(1, 3, ENTITY.as_bytes());
        match self.destination {
            IpAddr::V4(destination) => put(4, 1, &destination.octets()),
            IpAddr::V6(destination) => put(4, 2, &destination.octets()),
        }
        let secret = if self.right { SECRET } else { SECRET + 1 };
        let signed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &[secret; 32]), &attributes);
        attributes.extend([0, 40, 8, 0]);
        attributes.extend(1u32.to_be_bytes());
        attributes.extend(signed.as_ref());
        attributes
    }

    /// An AUTH_TOKEN of CASP with this number, made at a time.
    pub(crate) fn object(&self, number: u64, now: Time) -> Vec<u8> {
        let secret = if self.right { SECRET } else { SECRET + 1 };
        let seconds = NTP + now.as_micros() / 1_000_000;
        let contents = |hmac: &[u8]| {
            let number = u32::try_from(number).unwrap().to_be_bytes();
            // The creator, a domain name; who asked for it, who uses it and the source are left out.
            let creator = [&[0, 12, 3, 0][..], ENTITY.as_bytes(), &[0; 12]].concat();
            let destination = match self.destination {
                IpAddr::V4(address) => [&[0, 4, 1, 0][..], &address.octets()].concat(),
                IpAddr::V6(address) => [&[0, 16, 2, 0][..], &address.octets()].concat(),
            };
            let stamp = (seconds << 32).to_be_bytes();
            [&number[..], &creator, &destination, &stamp, &[3], hmac, &[0; 3]].concat()
        };
        let signed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &[secret; 32]), &contents(&[0; 20]));
        casp_object(0x14, &contents(&signed.as_ref()[..20]))
    }
}

/// Whether a request with this token is not refused because of its signature.
pub(crate) fn valid(token: &Option<Token>) -> bool {
    token.as_ref().is_none_or(|token| token.right)
}

/// Whether a token is for a packet, in one of its forms.
pub(crate) fn covers(token: &Option<Token>, forms: [&Tuple; 2]) -> bool {
    token.as_ref().is_none_or(|token| forms.iter().any(|form| form.dst == token.destination))
}
