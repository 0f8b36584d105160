//! A scenario: what one TOML file says. The file is the experiment; `docs/lab.md` describes every key.

mod builtin;
mod load;
mod validate;

use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;
use toml::Spanned;

use crate::observe::packet::GIST_PORT;
use crate::units::{Percent, Rate, Span};

pub(crate) use builtin::{builtin, builtins};
pub(crate) use load::{find, read};

/// One experiment.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) family: Family,
    /// Draws what is drawn at random by the lab itself: when each of many sessions starts.
    pub(crate) seed: u64,
    /// Merged into the configuration of every daemon, before the node's own.
    pub(crate) config: toml::Table,
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Vec<Link>,
    pub(crate) routes: Vec<Route>,
    pub(crate) workload: Vec<Step>,
    pub(crate) checks: Vec<Check>,
}

/// Which IP versions links get addresses of when the file gives none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Family {
    #[default]
    Ipv4,
    Ipv6,
}

/// A host or router and what it runs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Node {
    pub(crate) name: Spanned<String>,
    /// Runs a signaling daemon.
    #[serde(default = "yes")]
    pub(crate) daemon: bool,
    /// The daemon runs the Ping application; without it the node lacks the NSLP.
    #[serde(default = "yes")]
    pub(crate) ping: bool,
    /// Forwards IP packets.
    #[serde(default)]
    pub(crate) forward: bool,
    /// Merged into the daemon's configuration.
    #[serde(default)]
    pub(crate) config: toml::Table,
}

/// A wire between two nodes; what is said of it holds in both directions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Link {
    pub(crate) ends: [Spanned<String>; 2],
    pub(crate) rate: Option<Rate>,
    pub(crate) delay: Option<Spanned<Span>>,
    #[serde(default)]
    pub(crate) loss: Percent,
    /// Of the two ends in their order, with prefix length.
    pub(crate) addresses: Option<Spanned<[Prefix; 2]>>,
}

/// An address with the length of its prefix, written `"10.0.1.1/24"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Prefix {
    pub(crate) address: IpAddr,
    pub(crate) length: u8,
}

/// A route that the file gives; nodes find the others by the shortest path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    pub(crate) node: Spanned<String>,
    pub(crate) to: Prefix,
    /// The neighbour that is the next hop.
    pub(crate) via: Spanned<String>,
}

/// One thing that happens, after the one before it.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Udp(UdpStep),
    Ping(PingStep),
    Run(RunStep),
    Show(ShowStep),
    WaitFor(WaitStep),
    Watch(WatchStep),
    ProbeExpired(ProbeStep),
    SetLoss(SetLossStep),
    LinkDown(LinkStep),
    LinkUp(LinkStep),
    Stop(NodeStep),
    Kill(NodeStep),
    Start(NodeStep),
}

/// Datagrams through the kernels, without any signaling.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UdpStep {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    #[serde(default = "three")]
    pub(crate) count: u32,
}

/// Ping signals from one node to another, by the real command.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PingStep {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    #[serde(default = "three")]
    pub(crate) count: u32,
    #[serde(default = "ping_interval")]
    pub(crate) interval: Span,
    #[serde(default = "one")]
    pub(crate) sessions: Spanned<u32>,
    /// The sessions start within this time of each other.
    #[serde(default = "no_time")]
    pub(crate) spread: Span,
    /// All sessions have to be through by then.
    #[serde(default = "ping_budget")]
    pub(crate) within: Span,
    /// Ask every daemon for its sessions, under this label, once each session has had a reply.
    pub(crate) show: Option<String>,
}

/// Run a program inside a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunStep {
    pub(crate) node: Spanned<String>,
    /// Program and arguments.
    pub(crate) command: Spanned<Vec<String>>,
    pub(crate) label: Spanned<String>,
    /// Go on as soon as it says a line with this text; without, when it has ended.
    pub(crate) until: Option<String>,
    /// It has to end by then.
    #[serde(default = "ping_budget")]
    pub(crate) within: Span,
}

/// Ask every daemon for its sessions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowStep {
    pub(crate) label: String,
}

/// Wait until something holds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitStep {
    pub(crate) condition: Condition,
    #[serde(default = "wait_budget")]
    pub(crate) within: Span,
}

/// What can be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Condition {
    /// No daemon holds routing state.
    NoSessions,
    /// Every daemon that runs Ping holds routing state.
    Sessions,
}

/// Keep still and remember what passes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchStep {
    pub(crate) label: String,
    #[serde(rename = "for")]
    pub(crate) span: Span,
}

/// Send the last Data message of an expired session to a daemon once more.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProbeStep {
    /// The node that sends it.
    pub(crate) from: Spanned<String>,
    /// The neighbour that gets it.
    pub(crate) to: Spanned<String>,
}

/// From now on lose this share of a link's packets.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetLossStep {
    pub(crate) link: Spanned<String>,
    pub(crate) loss: Percent,
}

/// Something happens to a link.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkStep {
    pub(crate) link: Spanned<String>,
}

/// Something happens to a node's daemon.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeStep {
    pub(crate) node: Spanned<String>,
}

/// Something that has to hold for the run to be good.
#[derive(Debug, Clone)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) kind: CheckKind,
}

/// What is checked; all of it is observed from outside the daemons.
#[derive(Debug, Clone)]
pub(crate) enum CheckKind {
    Forwarding(PathCheck),
    Path(HopsCheck),
    Handshake(PathCheck),
    PassesQuery(PassesCheck),
    SetUp(SetUpCheck),
    Program(ProgramCheck),
    Associations(AssociationsCheck),
    Loss(LossCheck),
    State(StateCheck),
    Silent(SilentCheck),
    NoRoutingState(NodeCheck),
    NoErrors(NoParameters),
    CleanStop(NoParameters),
}

/// About the path between two nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PathCheck {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
}

/// Which nodes a Ping signal visited, in order.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HopsCheck {
    pub(crate) hops: Vec<Spanned<String>>,
}

/// A node lets Queries pass.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PassesCheck {
    pub(crate) node: Spanned<String>,
    /// By how much the GIST hop count falls: 1 at a node with GIST, 0 at a plain router.
    pub(crate) gist_hops: u8,
    /// Ends of the flow; without them, those of each ping.
    pub(crate) ends: Option<[Spanned<String>; 2]>,
}

/// A program came to its end and said these things.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramCheck {
    pub(crate) label: Spanned<String>,
    /// Parts of lines, in order.
    pub(crate) lines: Vec<String>,
}

/// Every session was set up on every link of a path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetUpCheck {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    pub(crate) sessions: usize,
}

/// All sessions of a path share one messaging association on each link.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AssociationsCheck {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    pub(crate) sessions: usize,
    /// Where the responding nodes accept.
    #[serde(default = "gist_port")]
    pub(crate) port: u16,
    /// The connections carry TLS, and nothing can be read in them.
    #[serde(default)]
    pub(crate) tls: bool,
}

/// The share of packets that every link lost.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LossCheck {
    pub(crate) min: Percent,
    pub(crate) max: Percent,
}

/// How many sessions each daemon that runs Ping held.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateCheck {
    pub(crate) label: Spanned<String>,
    pub(crate) sessions: usize,
}

/// No GIST message passed while the lab watched.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SilentCheck {
    pub(crate) label: Spanned<String>,
}

/// A node answered the probe for an expired session as RFC 5971 A.4.4.5 says.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeCheck {
    pub(crate) node: Spanned<String>,
}

/// A check that has no parameters.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParameters {}

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

const fn gist_port() -> u16 {
    GIST_PORT
}

const fn yes() -> bool {
    true
}

const fn three() -> u32 {
    3
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

const fn no_time() -> Span {
    Span::millis(0)
}

const fn ping_interval() -> Span {
    Span::millis(200)
}

const fn ping_budget() -> Span {
    Span::millis(30_000)
}

const fn wait_budget() -> Span {
    Span::millis(15_000)
}
