//! What has to hold in a scenario.

use serde::Deserialize;
use toml::Spanned;

use crate::observe::packet::GIST_PORT;
use crate::observe::rsvp::{RsvpStyle, RsvpType};
use crate::units::{Percent, Rate, Span};

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
    Refused(RefusedCheck),
    Whole(WholeCheck),
    Repaired(RepairedCheck),
    Flood(FloodCheck),
    Traffic(TrafficCheck),
    Granted(GrantedCheck),
    NotGranted(NotGrantedCheck),
    Reservations(ReservationsCheck),
    Queues(QueuesCheck),
    Cost(CostCheck),
    Kernel(KernelCheck),
    Gap(GapCheck),
    Rsvp(RsvpCheck),
    RsvpMessages(RsvpMessagesCheck),
    RsvpRepaired(RsvpRepairedCheck),
    RsvpNeighbour(RsvpNeighbourCheck),
    RsvpLoad(RsvpLoadCheck),
    Dissected(NoParameters),
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
    /// Only of probes that were sent after the moment with this label.
    pub(crate) after: Option<Spanned<String>>,
    /// Only of probes that were sent before it.
    pub(crate) before: Option<Spanned<String>>,
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
    /// The connections are SCTP associations and not TCP.
    #[serde(default)]
    pub(crate) sctp: bool,
}

const fn any_number() -> usize {
    usize::MAX
}

/// A node does not get into the signaling: its neighbour refuses the association.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefusedCheck {
    /// Who is refused.
    pub(crate) from: Spanned<String>,
    /// Whom it wanted to signal to.
    pub(crate) to: Spanned<String>,
    /// The neighbour that refuses.
    pub(crate) by: Spanned<String>,
    /// When the neighbour was asked.
    pub(crate) label: Spanned<String>,
    /// What the neighbour counts then, like `"channels.handshakes_failed"`.
    pub(crate) counter: Spanned<String>,
    /// Most connections that it may try.
    #[serde(default = "any_number")]
    pub(crate) most: usize,
}

/// Large messages arrive as they were sent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WholeCheck {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    /// How many in each direction.
    pub(crate) messages: usize,
    /// The padding of each.
    pub(crate) octets: usize,
}

/// After something happened, every session is signaled again along these nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepairedCheck {
    /// What happened.
    pub(crate) label: Spanned<String>,
    pub(crate) hops: Vec<Spanned<String>>,
    pub(crate) sessions: usize,
    /// The last session is there by then.
    pub(crate) within: Span,
    /// Reported, not judged: the time that was wished for, a Query's round trip added.
    pub(crate) goal: Option<Span>,
}

/// A flood was met at a small cost.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FloodCheck {
    /// The node that was flooded.
    pub(crate) node: Spanned<String>,
    /// At least so many Queries were sent.
    pub(crate) queries: u64,
    /// Time of a processor that its daemon may take for one Query.
    pub(crate) cpu_per_query: Span,
    /// By how much its daemon's memory may grow, in KiB.
    pub(crate) memory_kib: u64,
}

/// What a flow had of the network while the lab watched.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrafficCheck {
    /// Name of the `traffic` step.
    pub(crate) flow: Spanned<String>,
    /// Label of the `watch` step: packets sent meanwhile count.
    pub(crate) phase: Spanned<String>,
    pub(crate) min_loss: Option<Percent>,
    pub(crate) max_loss: Option<Percent>,
    pub(crate) min_goodput: Option<Rate>,
    pub(crate) max_goodput: Option<Rate>,
}

/// A reservation was granted by the whole path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantedCheck {
    /// Name of the `reserve` step.
    pub(crate) reserve: Spanned<String>,
    /// Nodes that told what they gave, in order.
    pub(crate) hops: Option<Vec<Spanned<String>>>,
    /// Node that took it away later.
    pub(crate) lost_at: Option<Spanned<String>>,
    /// And what it said.
    pub(crate) says: Option<String>,
}

/// A reservation was refused.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NotGrantedCheck {
    /// Name of the `reserve` step.
    pub(crate) reserve: Spanned<String>,
    /// The node that refused.
    pub(crate) by: Spanned<String>,
    /// Part of the rule that it named.
    pub(crate) rule: String,
}

/// How many reservations each node with QoS held.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReservationsCheck {
    pub(crate) label: Spanned<String>,
    pub(crate) count: usize,
    /// Nodes that held none.
    #[serde(default)]
    pub(crate) except: Vec<Spanned<String>>,
}

/// Queues became as they should be.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueuesCheck {
    /// Of the `queues` step.
    pub(crate) label: Spanned<String>,
}

/// A packet costs at most so many times what it cost at another time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CostCheck {
    /// Of a `cost` step.
    pub(crate) label: Spanned<String>,
    /// Of the one that it is compared with.
    pub(crate) base: Spanned<String>,
    /// Most times as much.
    pub(crate) most: f64,
}

/// A node's kernel held the same at two moments: queues, classes, filters, nftables.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelCheck {
    pub(crate) node: Spanned<String>,
    /// Labels of `show` steps.
    pub(crate) label: Spanned<String>,
    pub(crate) like: Spanned<String>,
    /// It held something else.
    #[serde(default)]
    pub(crate) differs: bool,
}

/// How long a flow was not served after something happened.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GapCheck {
    /// Name of the `traffic` step.
    pub(crate) flow: Spanned<String>,
    /// What happened.
    pub(crate) after: Spanned<String>,
    /// Label of the `watch` step by whose end it has to be over; none of the packets behind the gap is lost until then.
    pub(crate) phase: Spanned<String>,
    pub(crate) within: Span,
}

/// What nodes that speak RSVP held.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RsvpCheck {
    pub(crate) label: Spanned<String>,
    pub(crate) nodes: Vec<Spanned<String>>,
    /// Senders, of all sessions.
    pub(crate) senders: usize,
    /// Reservations on outgoing links.
    pub(crate) reservations: usize,
    /// What each of them is for.
    pub(crate) rate: Option<Rate>,
    /// The link towards this neighbour only.
    pub(crate) towards: Option<Spanned<String>>,
}

/// So many RSVP messages went from a node to its neighbour that are like this; what is not said may be anything.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RsvpMessagesCheck {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    pub(crate) message: RsvpType,
    /// Label of a `watch` step: only while the lab watched.
    pub(crate) during: Option<Spanned<String>>,
    /// Only after, and before, the moments with these labels.
    pub(crate) after: Option<Spanned<String>>,
    pub(crate) before: Option<Spanned<String>>,
    /// Of the session.
    pub(crate) port: Option<u16>,
    pub(crate) style: Option<RsvpStyle>,
    /// Token rate of a flowspec, or of the sender.
    pub(crate) rate: Option<Rate>,
    /// Exactly these senders are named.
    pub(crate) senders: Option<Vec<Spanned<String>>>,
    /// This sender is among them.
    pub(crate) names: Option<Spanned<String>>,
    /// SCOPE holds exactly these senders; none: there is no SCOPE.
    pub(crate) scope: Option<Vec<Spanned<String>>>,
    /// Error code.
    pub(crate) error: Option<u8>,
    /// Flag of an error: what was reserved before still is.
    pub(crate) in_place: Option<bool>,
    /// Global break bit of the ADSPEC.
    pub(crate) broken: Option<bool>,
    /// By how much the packet's TTL is below that which the message says it was sent with.
    pub(crate) ttl_lost: Option<u8>,
    /// Every message of this type, of the port if one is given, is like this.
    #[serde(default)]
    pub(crate) every: bool,
    #[serde(default = "once")]
    pub(crate) least: usize,
    pub(crate) most: Option<usize>,
}

/// After something happened, every RSVP session is reserved along these nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RsvpRepairedCheck {
    /// What happened.
    pub(crate) label: Spanned<String>,
    pub(crate) hops: Vec<Spanned<String>>,
    pub(crate) sessions: usize,
    /// The last reservation is there by then.
    pub(crate) within: Span,
    /// Reported, not judged: the time that was wished for.
    pub(crate) goal: Option<Span>,
    /// Reported, not judged: what others have published for such a case.
    pub(crate) published: Option<Span>,
}

/// What a node showed of its RSVP neighbour.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RsvpNeighbourCheck {
    pub(crate) label: Spanned<String>,
    pub(crate) node: Spanned<String>,
    pub(crate) neighbour: Spanned<String>,
    /// Something of it was believed.
    pub(crate) heard: Option<bool>,
    /// As the command names it.
    pub(crate) refresh_reduction: Option<String>,
    /// Least number of messages that were refused for a reason, by its name.
    #[serde(default)]
    pub(crate) refused: std::collections::BTreeMap<String, u64>,
}

/// RSVP on a link takes so many times fewer packets and octets than on another one, or at another time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RsvpLoadCheck {
    pub(crate) link: Spanned<String>,
    /// Label of a `watch` step.
    pub(crate) during: Spanned<String>,
    pub(crate) base_link: Spanned<String>,
    /// Label of a `watch` step.
    pub(crate) base: Spanned<String>,
    pub(crate) packets: f64,
    pub(crate) octets: f64,
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
    /// Nodes that the sessions do not visit: they held none.
    #[serde(default)]
    pub(crate) except: Vec<Spanned<String>>,
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

const fn once() -> usize {
    1
}

const fn gist_port() -> u16 {
    GIST_PORT
}
