//! State that is shown to users.

use core::net::IpAddr;

use signalbox_core::metrics::Table;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{IfIndex, Time};
use signalbox_resources::GrantId;

use super::Boomerang;
use super::adopt::Aggregate;
use super::flow::{Flow, IS_INTSERV, IS_LOST};
use super::initiator::filter_of;
use super::session::{Session, State as SessionState};
use crate::wire::{Pass, Rates};

/// A reservation of this node as a node on the path.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowView {
    /// The pass whose messages it follows: requests for data to the far end, replies for data from it.
    pub pass: Pass,
    /// Its data packets.
    pub filter: FlowFilter,
    /// The side of the initiating node.
    pub initiator: IpAddr,
    /// Rate, bit/s; `None`: its grant has IntServ parameters.
    pub rate: Option<u32>,
    /// Code point of the PHB.
    pub dscp: u8,
    /// Interface that the data leave by.
    pub ifindex: IfIndex,
    /// Refresh interval, seconds.
    pub refresh: u8,
    /// Whether its messages are authenticated, or the initiating node proved that it receives replies.
    pub proved: bool,
    /// When it ends without a refresh.
    pub expires: Option<Time>,
    /// Its grant.
    pub grant: GrantId,
    /// The aggregate that another node of the path may reserve for, of which this flow is a member; or that this reservation is
    /// for.
    pub aggregate: Option<AggregateView>,
}

/// An aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregateView {
    /// Address of the node that proposes it.
    pub proposer: IpAddr,
    /// Its number there.
    pub number: u32,
    /// Whether this node adopted it: the row is the one reservation for its members. Otherwise the row is a flow of its own.
    pub adopted: bool,
}

/// A session of this node as initiating node.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionView {
    /// The user's id; `None`: the user has left, and the release is under way.
    pub id: Option<u64>,
    /// Source of the requests; unspecified while the route is looked up.
    pub src: IpAddr,
    /// Their destination.
    pub far_end: IpAddr,
    /// Data packets to the far end.
    pub filter: FlowFilter,
    /// Code point of the PHB.
    pub dscp: u8,
    /// State of the set-up.
    pub state: SessionState,
    /// What the path reserved; `None`: nothing yet.
    pub granted: Option<Rates>,
    /// Refresh interval, seconds.
    pub refresh: u8,
}

impl From<&Session> for SessionView {
    fn from(session: &Session) -> Self {
        Self {
            id: session.id,
            src: session.ends.src,
            far_end: session.ends.dst,
            filter: filter_of(&session.flow),
            dscp: session.flow.classifier.tos >> 2,
            state: session.state,
            granted: session.granted,
            refresh: session.refresh,
        }
    }
}

impl Boomerang {
    fn view_of_aggregate(&self, aggregate: &Aggregate) -> FlowView {
        let (proposer, number) = aggregate.name();
        let filter = aggregate.filter();
        let initiator = match aggregate.pass() {
            Pass::Request => filter.src.addr,
            Pass::Reply => filter.dst.addr,
        };
        FlowView {
            pass: aggregate.pass(),
            filter,
            initiator,
            rate: Some(aggregate.held()),
            dscp: aggregate.tos() >> 2,
            ifindex: self.interfaces.ifindex(aggregate.oif()),
            refresh: aggregate.refresh(),
            proved: false,
            expires: self.aggregates.wheel.due(aggregate.timer()),
            grant: aggregate.grant(),
            aggregate: Some(AggregateView { proposer, number, adopted: true }),
        }
    }

    fn view(&self, flow: &Flow) -> FlowView {
        let proposed = self.offer(flow).and_then(|offer| {
            let proposer = self.interfaces.address(flow.oif, flow.key.initiator())?;
            Some(AggregateView { proposer, number: offer.number(), adopted: false })
        });
        FlowView {
            pass: flow.key.pass(),
            filter: flow.filter(),
            initiator: flow.key.initiator(),
            rate: (!flow.has(IS_INTSERV)).then_some(flow.rate),
            dscp: flow.tos >> 2,
            ifindex: self.interfaces.ifindex(flow.oif),
            refresh: flow.refresh,
            proved: flow.proof != 0 || flow.signed,
            expires: self.wheel.due(&flow.link),
            grant: flow.grant,
            aggregate: proposed,
        }
    }

    /// Visits the reservations of this node from a place in the table on, and after them those for aggregates; see
    /// [`Slab::walk`](signalbox_core::slab::Slab::walk).
    pub fn walk(&self, from: u32, mut visit: impl FnMut(FlowView) -> bool) -> Option<u32> {
        // The places of aggregates follow those of the flows.
        let flows = self.flows.limit();
        if from < flows {
            let mut more = true;
            let next = self.flows.walk(from, |_, flow| {
                more = flow.has(IS_LOST) || visit(self.view(flow));
                more
            });
            if next.is_some() || !more {
                return next.or_else(|| (!self.aggregates.table.is_empty()).then_some(flows));
            }
        }
        let next = self
            .aggregates
            .table
            .walk(from.saturating_sub(flows), |_, aggregate| visit(self.view_of_aggregate(aggregate)));
        next.map(|next| next.saturating_add(flows))
    }

    /// All reservations of this node as a node on the path, those for aggregates last. For tests.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> {
        let held = self.flows.iter().filter(|(_, flow)| !flow.has(IS_LOST));
        let flows = held.map(|(_, flow)| self.view(flow));
        flows.chain(self.aggregates.table.iter().map(|(_, aggregate)| self.view_of_aggregate(aggregate)))
    }

    /// The interfaces by which wrong proofs of return came in the last seconds.
    pub fn guesses(&self) -> impl Iterator<Item = super::GuessView> {
        self.guesses.views(self.now)
    }

    /// Visits the sessions of this node as initiating node, as [`Boomerang::walk`] does.
    pub fn walk_sessions(&self, from: u32, mut visit: impl FnMut(SessionView) -> bool) -> Option<u32> {
        self.sessions.walk(from, |_, session| visit(session.into()))
    }

    /// All sessions of this node as initiating node. For tests.
    pub fn sessions(&self) -> impl Iterator<Item = SessionView> {
        self.sessions.iter().map(|(_, session)| session.into())
    }

    /// Number of reservations as a node on the path.
    #[must_use]
    pub const fn flow_count(&self) -> u32 {
        self.flows.len().saturating_sub(self.lost_flows)
    }

    /// Number of reservations for aggregates of other nodes.
    #[must_use]
    pub const fn aggregate_count(&self) -> u32 {
        self.aggregates.table.len()
    }

    /// Number of sessions of this node as initiating node.
    #[must_use]
    pub const fn session_count(&self) -> u32 {
        self.sessions.len()
    }

    /// The tables that peers and users can fill.
    #[must_use]
    pub fn tables(&self) -> [Table; 5] {
        let members = u32::try_from(self.aggregates.members()).unwrap_or(u32::MAX);
        [
            Table::new("flows", self.flows.len(), self.flows.limit()),
            Table::new("aggregates", self.aggregates.table.len(), self.aggregates.table.limit()),
            Table::new("members", members, self.config.max_flows),
            self.groups.table(),
            Table::new("sessions", self.sessions.len(), self.sessions.limit()),
        ]
    }
}
