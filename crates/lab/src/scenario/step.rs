//! What happens in a scenario.

use serde::Deserialize;
use toml::Spanned;

use super::Prefix;
use crate::observe::rsvp::RsvpType;
use crate::units::{Percent, Rate, Span};

/// One thing that happens, after the one before it.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Udp(UdpStep),
    Ping(PingStep),
    Run(RunStep),
    Hear(HearStep),
    End(EndStep),
    Show(ShowStep),
    WaitFor(WaitStep),
    Watch(WatchStep),
    Flood(FloodStep),
    Traffic(TrafficStep),
    Reserve(ReserveStep),
    Queues(QueuesStep),
    Cost(CostStep),
    Join(JoinStep),
    ProbeExpired(ProbeStep),
    Resend(ResendStep),
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
    /// Octets of padding in each probe.
    #[serde(default = "no_octets")]
    pub(crate) size: Spanned<u16>,
    /// Ask every daemon as `show` does, under this label, once each session has had a reply.
    pub(crate) show: Option<String>,
    /// Go on with the next step once each session has had a reply; a `join` step waits for the rest.
    pub(crate) background: Option<String>,
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

/// Wait until a program that runs says something more.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HearStep {
    /// Label of its `run` step.
    pub(crate) label: Spanned<String>,
    /// Part of a line.
    pub(crate) text: String,
    #[serde(default = "wait_budget")]
    pub(crate) within: Span,
}

/// Ask a program that runs to end, as Ctrl-C does, and wait until it has.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndStep {
    /// Label of its `run` step.
    pub(crate) label: Spanned<String>,
}

/// Queries with invented sources, from a raw socket, to a flow's destination.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FloodStep {
    /// The node that sends them.
    pub(crate) from: Spanned<String>,
    /// The neighbour that gets them.
    pub(crate) via: Spanned<String>,
    /// Where the flows that they are for end.
    pub(crate) to: Spanned<String>,
    /// Where their sources are drawn from.
    pub(crate) sources: Spanned<Prefix>,
    /// Queries a second.
    pub(crate) rate: Spanned<u32>,
    #[serde(rename = "for")]
    pub(crate) span: Span,
    /// Go on with the next step at once; a `join` step waits for the end.
    pub(crate) background: Option<String>,
}

/// A flow of datagrams at a constant rate, until a `join` step of its name or the end.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrafficStep {
    pub(crate) name: Spanned<String>,
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    /// Where the sink listens.
    pub(crate) port: u16,
    /// Where the packets come from; any free one if not given.
    pub(crate) source_port: Option<u16>,
    /// With IP headers.
    pub(crate) rate: Rate,
    /// Octets of a packet, IP header included.
    #[serde(default = "packet_size")]
    pub(crate) size: Spanned<u16>,
}

/// A reservation, held until a `join` step of its name or the end.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReserveStep {
    pub(crate) name: Spanned<String>,
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    /// Destination port of the flow.
    pub(crate) port: u16,
    pub(crate) rate: Rate,
    /// More words for the command.
    #[serde(default)]
    pub(crate) options: Vec<String>,
    /// The next step is taken when there is an answer, at the latest then.
    #[serde(default = "wait_budget")]
    pub(crate) within: Span,
    /// Under which the moment of the answer is remembered.
    pub(crate) label: Option<String>,
    /// So many flows to ports that follow each other, in one command.
    #[serde(default = "one")]
    pub(crate) flows: Spanned<u32>,
}

/// Look at queues in the kernel until they are as they should be.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueuesStep {
    pub(crate) label: Spanned<String>,
    pub(crate) queues: Vec<Queues>,
    #[serde(default = "wait_budget")]
    pub(crate) within: Span,
}

/// What the queues of a link's end should be there for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Queues {
    pub(crate) node: Spanned<String>,
    /// The neighbour to which the packets leave.
    pub(crate) towards: Spanned<String>,
    /// Queues of single reservations.
    #[serde(default)]
    pub(crate) own: usize,
    /// Code points with a queue that is used.
    #[serde(default)]
    pub(crate) code_points: Vec<u8>,
    /// Sum of the rates of all queues of reservations; nothing if not given.
    pub(crate) reserved: Option<Rate>,
    /// At least so many packets have gone through them.
    #[serde(default)]
    pub(crate) packets: u64,
}

/// What it costs the kernels to bring a packet from one node to another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CostStep {
    pub(crate) label: Spanned<String>,
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    /// First destination port.
    pub(crate) port: u16,
    /// The packets go to so many ports in turn.
    #[serde(default = "one")]
    pub(crate) flows: Spanned<u32>,
    /// Packets a second, all flows together.
    #[serde(default = "cost_rate")]
    pub(crate) rate: Spanned<u32>,
}

/// Wait for the end of something in the background.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JoinStep {
    pub(crate) name: Spanned<String>,
}

/// Ask every daemon for its sessions, associations and counters.
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
    /// Of `no_rsvp`: who is asked.
    #[serde(default)]
    pub(crate) nodes: Vec<Spanned<String>>,
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
    /// None of the nodes knows an RSVP session.
    NoRsvp,
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

/// Send the last RSVP message that went from a node to its neighbour once more, from outside of the daemon.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResendStep {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    /// Of this type.
    pub(crate) message: RsvpType,
    /// Of a session with this port.
    pub(crate) port: Option<u16>,
    /// So often.
    #[serde(default = "once")]
    pub(crate) count: u32,
    /// With one bit of its refresh period changed, and a right checksum.
    #[serde(default)]
    pub(crate) alter: bool,
    /// Under which the moment before is remembered.
    pub(crate) label: Option<String>,
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
    /// Under which the moment is remembered.
    pub(crate) label: Option<String>,
}

/// Something happens to a node's daemon.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeStep {
    pub(crate) node: Spanned<String>,
    /// Under which the moment is remembered.
    pub(crate) label: Option<String>,
}

fn packet_size() -> Spanned<u16> {
    Spanned::new(0..0, 1000)
}

fn cost_rate() -> Spanned<u32> {
    Spanned::new(0..0, 50_000)
}

const fn once() -> u32 {
    1
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

fn no_octets() -> Spanned<u16> {
    Spanned::new(0..0, 0)
}
