//! The language: what the file of a scenario says, read and checked. One TOML file is the whole experiment, and `docs/lab.md`
//! describes every key. What is done with it is in the layers above.

mod builtin;
pub(crate) mod checks;
pub(crate) mod expectation;
pub(crate) mod fields;
pub(crate) mod kinds;
mod load;
mod merge;
mod scope;
mod source;
pub(crate) mod steps;
pub(crate) mod sweep;
mod together;
mod topology;
mod validate;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use serde::Deserialize;
use signalbox_units::{BitRate, Percent, Span};
use toml::Spanned;

use crate::protocols;
use checks::Check;
use steps::Step;

pub(crate) use builtin::{PROGRAMS, builtin, builtins, missing_program, programs};
pub(crate) use load::{Element, Mistake, find, read, rest};
pub(crate) use merge::merge;
pub(crate) use scope::{START, Scope};

/// One experiment.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    /// SHA-256 of its text, and of those that it extends behind it, in hexadecimal.
    pub(crate) digest: String,
    /// Its parameters with the values that they have here.
    pub(crate) parameters: toml::Table,
    /// What varies, and how often it is run.
    pub(crate) sweep: Option<sweep::Sweep>,
    pub(crate) description: String,
    /// What the machine has to have; without it the scenario is skipped.
    pub(crate) requires: Vec<Requirement>,
    /// A run that takes longer is ended.
    pub(crate) timeout: Option<Span>,
    pub(crate) tags: Vec<String>,
    pub(crate) family: Family,
    /// The seed of what the lab itself draws at random: when each of many sessions starts.
    pub(crate) seed: u64,
    /// Merged into the configuration of every daemon, before the node's own.
    pub(crate) config: toml::Table,
    /// Files beside the daemons' configurations, by their names: keys that they name.
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Vec<Link>,
    pub(crate) routes: Vec<Route>,
    pub(crate) multicast: Vec<Tree>,
    pub(crate) workload: Vec<NamedStep>,
    pub(crate) checks: Vec<NamedCheck>,
}

/// A step with the `id` by which other steps and checks refer to it.
#[derive(Debug)]
pub(crate) struct NamedStep {
    pub(crate) id: Option<Spanned<String>>,
    /// Its place in the file.
    pub(crate) at: Range<usize>,
    /// Its kind, like "ping".
    pub(crate) kind: &'static str,
    pub(crate) step: Step,
}

impl NamedStep {
    /// Returns the `id` of the step, or what stands for it: its place in the order of the steps, from 0.
    pub(crate) fn name(&self, place: usize) -> String {
        self.id.as_ref().map_or_else(|| format!("step {}", place + 1), |id| id.as_ref().clone())
    }
}

/// A check with the name that the report shows.
#[derive(Debug)]
pub(crate) struct NamedCheck {
    pub(crate) name: String,
    /// Its place in the file.
    pub(crate) at: Range<usize>,
    pub(crate) check: Check,
}

/// The IP version of the addresses of links for which the file has no addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Family {
    #[default]
    Ipv4,
    Ipv6,
}

/// A host or router and what it runs.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: Spanned<String>,
    /// Runs a signaling daemon.
    pub(crate) daemon: bool,
    /// The protocols that the daemon runs, by their names.
    pub(crate) protocols: protocols::Set,
    /// Forwards IP packets.
    pub(crate) forward: bool,
    /// The lab makes it a key and a certificate, and puts them into its configuration.
    pub(crate) certificate: Option<Certificate>,
    /// The ruleset that its kernel has before the daemon starts: what its operator made.
    pub(crate) nftables: Option<String>,
    /// Commands that change its network before the daemon starts, one after the other.
    pub(crate) setup: Vec<String>,
    /// The program that sets its routes.
    pub(crate) routing: Option<Routing>,
    /// Merged into the daemon's configuration.
    pub(crate) config: toml::Table,
}

/// Kinds of network devices that a scenario can require.
const DEVICES: [&str; 6] = ["bond", "gre", "vlan", "vrf", "vxlan", "wireguard"];

/// A program of the machine that finds the routes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Routing {
    /// BIRD, by OSPF.
    Bird,
    /// FRR, by OSPF.
    Frr,
    /// FRR, by IS-IS.
    FrrIsis,
}

/// Something that a machine may lack.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub(crate) enum Requirement {
    /// Root, and not only that of a user namespace.
    Root,
    /// Delays of links, by netem in the kernel.
    Netem,
    /// Programs for packets, which enforcement installs.
    Ebpf,
    /// SCTP in the kernel.
    Sctp,
    /// A kind of network device, as `ip link add type` names it.
    Device(String),
    /// A kernel of this version at least, written `linux-5.12`.
    Kernel((u32, u32)),
    /// A program in one of the directories of `PATH`.
    Program(String),
}

impl From<String> for Requirement {
    fn from(name: String) -> Self {
        let version = name.strip_prefix("linux-").and_then(|version| version.split_once('.'));
        if let Some((Ok(major), Ok(minor))) = version.map(|(major, minor)| (major.parse(), minor.parse())) {
            return Self::Kernel((major, minor));
        }
        match name.as_str() {
            "root" => Self::Root,
            "netem" => Self::Netem,
            "ebpf" => Self::Ebpf,
            "sctp" => Self::Sctp,
            kind if DEVICES.contains(&kind) => Self::Device(name),
            _ => Self::Program(name),
        }
    }
}

/// The authority that signed a node's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Certificate {
    /// The lab's authority, which all nodes with a certificate trust.
    Trusted,
    /// An authority that no node trusts.
    Foreign,
}

/// A link between two nodes. Its values hold in both directions.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) ends: [Spanned<String>; 2],
    pub(crate) rate: Option<BitRate>,
    /// The share of the rate that may be reserved, as the daemons' configuration writes it.
    pub(crate) reservable: Option<String>,
    /// Reservations at each end that have a queue of their own.
    pub(crate) per_flow_queues: u16,
    pub(crate) delay: Option<Spanned<Span>>,
    pub(crate) loss: Percent,
    /// The addresses of the two ends in their order.
    pub(crate) addresses: Option<Spanned<[Prefix; 2]>>,
}

/// An address with the length of its prefix, written `"10.0.1.1/24"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Prefix {
    pub(crate) address: IpAddr,
    pub(crate) length: u8,
}

/// A route of the file. The lab finds the other routes by the shortest path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    pub(crate) node: Spanned<String>,
    pub(crate) to: Prefix,
    /// The neighbor that is the next hop.
    pub(crate) via: Spanned<String>,
    /// The kernel uses the route with the lowest metric. The routes that nodes find themselves have 0.
    #[serde(default)]
    pub(crate) metric: u32,
}

/// A route of a router for the packets from a sender to a multicast group.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tree {
    pub(crate) node: Spanned<String>,
    pub(crate) group: Spanned<IpAddr>,
    /// The node that sends.
    pub(crate) source: Spanned<String>,
    /// The neighbor that the packets come from.
    pub(crate) from: Spanned<String>,
    /// The neighbors that the packets go to.
    pub(crate) to: Vec<Spanned<String>>,
}

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not an address with a prefix length; write one like \"10.0.1.1/24\" or \"fd00::1/64\""
            )
        };
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let length: u8 = length.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if length > most {
            return Err(wrong());
        }
        Ok(Self { address, length })
    }
}

impl Prefix {
    /// The network's first address and the length.
    pub(crate) fn network(self) -> (IpAddr, u8) {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                IpAddr::from((address.to_bits() & mask).to_be_bytes())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                IpAddr::from((address.to_bits() & mask).to_be_bytes())
            }
        };
        (address, self.length)
    }

    /// Whether the network holds the address.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Self { address, length: self.length }.network() == self.network()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Link {
    /// Its two ends in their order, joined by a hyphen: `h1-r1`.
    pub(crate) fn name(&self) -> String {
        format!("{}-{}", self.ends[0].as_ref(), self.ends[1].as_ref())
    }
}
