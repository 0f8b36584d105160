//! Reservations and queries that users ask for, and the QoS client that carries them out.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use signalbox_casp::clients::qos::{Amount, QosClient, QosEvent, QosRequest, Range, Told};
use signalbox_casp::wire::FlowId;
use signalbox_core::hops::Path;
use signalbox_core::node::Interface;
use signalbox_core::traffic::TrafficSpec;
use signalbox_core::{SessionId, Time, invariant};
use signalbox_resources::Resources;

use super::flow;

/// The rate and the slack of guaranteed service (RFC 2212).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ServiceRate {
    /// Service rate, octets a second; not below the token rate.
    pub rate: u64,
    /// Slack, microseconds.
    pub slack_us: u32,
}

/// How much a reservation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Reserved {
    /// The traffic.
    pub traffic: TrafficSpec,
    /// Guaranteed service; `None`: controlled load.
    pub guaranteed: Option<ServiceRate>,
}

impl Reserved {
    fn amount(&self) -> Result<Amount, ReserveRefusal> {
        let guaranteed = self.guaranteed.map(|one| (one.rate, one.slack_us));
        Amount::of_traffic(&self.traffic, guaranteed).map_err(|_| ReserveRefusal::Traffic)
    }

    fn of(amount: &Amount) -> Option<Self> {
        let (traffic, guaranteed) = amount.to_traffic()?;
        Some(Self { traffic, guaranteed: guaranteed.map(|(rate, slack_us)| ServiceRate { rate, slack_us }) })
    }
}

/// A reservation, or a query for one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ReserveRequest {
    /// Destination of the flow.
    pub dst: IpAddr,
    /// Source of the flow; `None`: the address that routing chooses, now and whenever it is no longer one of this node.
    pub src: Option<IpAddr>,
    /// IP protocol of the flow; `None`: all.
    pub protocol: Option<u8>,
    /// Source port of the flow; `None`: all.
    pub src_port: Option<u16>,
    /// Destination port of the flow; `None`: all.
    pub dst_port: Option<u16>,
    /// Flow label, with IPv6 and neither protocol nor ports; `None`: all.
    pub flow_label: Option<u32>,
    /// What is wanted.
    pub wanted: Reserved,
    /// The least rate that will do; `None`: that of `wanted`.
    pub least: Option<u64>,
    /// The receiver of the flow reserves, because this node asks for it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub receiver_initiated: bool,
    /// The opposite flow is reserved too: each node of the path grants both, or none of them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub bidirectional: bool,
    /// Priority: a higher one preempts a lower one where policy allows it; `None`: the lowest.
    #[cfg_attr(feature = "serde", serde(default))]
    pub priority: Option<u16>,
    /// Nodes without the reservation are acceptable: how many that fail, and how many that do not run the QoS client; `None`: no
    /// node.
    #[cfg_attr(feature = "serde", serde(default))]
    pub partial: Option<(u16, u16)>,
    /// Start and end, microseconds since 1970: the nodes reserve at once, and the flow uses the reservation from the start
    /// to the end. The start is at most a day ahead. `None`: from now on until the release.
    #[cfg_attr(feature = "serde", serde(default))]
    pub time: Option<(u64, u64)>,
    /// The identifier of the session. Nodes of the path may have it from an earlier reservation of the same user, which this one then
    /// replaces. Another one is drawn if this node has the session, or if a node refuses it as that of somebody else. `None`: it is
    /// drawn.
    #[cfg_attr(feature = "serde", serde(default))]
    pub session: Option<SessionId>,
}

impl ReserveRequest {
    /// A reservation of controlled load for all packets to an address.
    #[must_use]
    pub const fn to(dst: IpAddr, traffic: TrafficSpec) -> Self {
        let wanted = Reserved { traffic, guaranteed: None };
        let (src, protocol, flow_label) = (None, None, None);
        Self {
            dst,
            src,
            protocol,
            src_port: None,
            dst_port: None,
            flow_label,
            wanted,
            least: None,
            receiver_initiated: false,
            bidirectional: false,
            priority: None,
            partial: None,
            time: None,
            session: None,
        }
    }

    fn range(&self, wanted: &Reserved) -> Result<Range, ReserveRefusal> {
        let most = wanted.amount()?;
        let Some(least) = self.least else { return Ok(Range::only(most)) };
        let wrong = least == 0 || least > wanted.traffic.rate;
        let traffic = TrafficSpec { rate: least, ..wanted.traffic };
        let guaranteed = wanted.guaranteed.map(|one| ServiceRate { rate: least, ..one });
        let least = Reserved { traffic, guaranteed }.amount()?;
        if wrong { Err(ReserveRefusal::Traffic) } else { Ok(Range { least, most }) }
    }

    fn flow(&self, src: IpAddr) -> Result<FlowId, ReserveRefusal> {
        let ports = [self.src_port, self.dst_port];
        let flow = flow::between(src, self.dst, self.protocol, ports).ok_or(ReserveRefusal::Address)?;
        match (flow, self.flow_label) {
            (flow, None) => Ok(flow),
            (FlowId::V6Label { src, dst, .. }, Some(label)) => Ok(FlowId::V6Label { src, dst, label }),
            (_, Some(_)) => Err(ReserveRefusal::Label),
        }
    }
}

/// Why this node does not send a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ReserveRefusal {
    /// Source and destination are of different versions of IP, or the destination is a group.
    #[error("source and destination are unicast addresses of one version of IP")]
    Address,
    /// A flow label with another flow than one over IPv6 without protocol and ports.
    #[error("a flow label belongs to a flow over IPv6 without protocol and ports")]
    Label,
    /// The form of the flow is one of this suite, and switched off.
    #[error(
        "CASP has no flows over IPv6 with protocol or ports: leave them out, or write private_flows = true into [casp] of all nodes"
    )]
    PrivateFlow,
    /// The values are no traffic specification.
    #[error("the rates, the bucket or the packet sizes do not fit each other")]
    Traffic,
    /// The receiver of the flow made the reservation: its source cannot change it.
    #[error("the receiver reserves: release the reservation, and ask for another one")]
    Receiver,
    /// There is no route to the destination.
    #[error("no route to the destination")]
    NoRoute,
    /// The identifier is that of another reservation: an error of the driver.
    #[error("a reservation of this name stands already")]
    NameTaken,
    /// The node does not run CASP, or not its QoS client.
    #[error(
        "this node does not run the QoS client of CASP: write clients = [\"qos\"] into [casp] of its configuration"
    )]
    NotRunning,
}

/// Why a node of the path refused, or took back what it had granted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ReserveFailure {
    /// The code of the QoS client's ERROR_CODE.
    pub code: u16,
    /// More about it.
    pub detail: u16,
    /// The node, if it is another one.
    pub node: Option<IpAddr>,
    /// The rule or limit that refused, if the node gives it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub note: Option<String>,
    /// Rate that the node could still give, octets a second.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub available: Option<u64>,
}

/// What the nodes of a path have for a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PathAmount<T> {
    /// How much.
    pub amount: T,
    /// The nodes.
    pub path: Path,
}

/// What becomes of a reservation or query.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ReservationEvent {
    /// The session has its identifier.
    Started {
        /// The identifier.
        session: SessionId,
        /// The flow.
        flow: FlowId,
    },
    /// The whole path has granted this.
    Granted(PathAmount<Reserved>),
    /// The path could grant this; `None`: the answer does not say. The last event of a query.
    Available(PathAmount<Option<Reserved>>),
    /// This node refuses the request; what stood before stands.
    Refused(ReserveRefusal),
    /// The path refused the request; what stood before stands.
    Failed(ReserveFailure),
    /// The reservation ended; the last event.
    Lost(ReserveFailure),
    /// The reservation was released; the last event.
    Released {
        /// The far end has answered.
        confirmed: bool,
    },
}

/// What a user began.
#[derive(Debug)]
struct User {
    request: ReserveRequest,
    query: bool,
    /// `None` while the route is looked up.
    flow: Option<FlowId>,
    /// A query that is answered: what follows does not concern its user.
    answered: bool,
}

/// All reservations and queries of the node's users.
#[derive(Debug)]
pub(super) struct Reservations {
    pub(super) client: QosClient,
    /// Flows of the private forms can be sent.
    private_flows: bool,
    users: BTreeMap<u64, User>,
    /// Those whose source is no longer an address of this node.
    homeless: BTreeSet<u64>,
    events: VecDeque<(u64, ReservationEvent)>,
}

impl Reservations {
    pub(super) const fn new(client: QosClient, private_flows: bool) -> Self {
        let homeless = BTreeSet::new();
        Self { client, private_flows, users: BTreeMap::new(), homeless, events: VecDeque::new() }
    }

    fn refuse(&mut self, id: u64, why: ReserveRefusal) {
        self.events.push_back((id, ReservationEvent::Refused(why)));
    }

    /// Begins a reservation or a query. The result is the destination whose route the caller looks up, if it has to.
    pub(super) fn start(
        &mut self,
        now: Time,
        id: u64,
        query: bool,
        request: ReserveRequest,
        resources: &mut Resources,
    ) -> Option<IpAddr> {
        let (src, dst) = (request.src, request.dst);
        let refusal = if self.users.contains_key(&id) {
            Some(ReserveRefusal::NameTaken)
        } else if dst.is_multicast() || dst.is_unspecified() {
            Some(ReserveRefusal::Address)
        } else {
            request.range(&request.wanted).err()
        };
        if let Some(refusal) = refusal {
            self.refuse(id, refusal);
            return None;
        }
        self.users.insert(id, User { request, query, flow: None, answered: false });
        match src {
            Some(src) => {
                self.route(now, id, Ok(src), resources);
                None
            }
            None => Some(dst),
        }
    }

    /// The source of a flow is known.
    pub(super) fn route(
        &mut self,
        now: Time,
        id: u64,
        src: Result<IpAddr, ReserveRefusal>,
        resources: &mut Resources,
    ) {
        let Some(user) = self.users.get_mut(&id).filter(|user| user.flow.is_none()) else { return };
        let allowed = |flow: &FlowId| self.private_flows || !flow.is_private();
        let wanted = src
            .and_then(|src| user.request.flow(src))
            .and_then(|flow| Some(flow).filter(allowed).ok_or(ReserveRefusal::PrivateFlow))
            .and_then(|flow| Ok((flow, user.request.range(&user.request.wanted)?)));
        match wanted {
            Ok((flow, range)) => {
                user.flow = Some(flow);
                let ReserveRequest { receiver_initiated, bidirectional, priority, partial, time, .. } =
                    user.request;
                let request = QosRequest {
                    flow,
                    session: None,
                    kept: user.request.session.filter(|_| !user.query),
                    by_receiver: receiver_initiated,
                    range,
                    at_once: false,
                    both: bidirectional,
                    time,
                    priority,
                    partial,
                };
                if user.query {
                    self.client.query(now, id, &request, resources);
                } else {
                    self.client.reserve(now, id, &request, resources);
                }
            }
            Err(refusal) => {
                self.users.remove(&id);
                self.refuse(id, refusal);
            }
        }
    }

    /// Takes over the node's interfaces. Flows whose source is gone get another one: see [`Self::homeless`].
    pub(super) fn interfaces(&mut self, interfaces: &[Interface]) {
        self.client.interfaces(interfaces);
        let own: BTreeSet<IpAddr> = interfaces.iter().flat_map(|one| one.addresses.iter().copied()).collect();
        let lost = |user: &User| {
            let flow = user.flow.filter(|_| user.request.src.is_none() && !user.answered);
            flow.is_some_and(|flow| !own.contains(&flow.src()))
        };
        self.homeless = self.users.iter().filter(|(_, user)| lost(user)).map(|(id, _)| *id).collect();
    }

    /// The reservations whose route the caller looks up to learn their new source, with their destinations.
    pub(super) fn homeless(&self) -> Vec<(u64, IpAddr)> {
        let with_destination = |id: &u64| Some((*id, self.users.get(id)?.request.dst));
        self.homeless.iter().filter_map(with_destination).collect()
    }

    /// A flow whose source is gone goes on from another address.
    pub(super) fn move_to(&mut self, now: Time, id: u64, src: IpAddr, resources: &mut Resources) {
        let Some(user) = self.users.get_mut(&id).filter(|_| self.homeless.remove(&id)) else { return };
        if let Ok(flow) = user.request.flow(src) {
            user.flow = Some(flow);
            self.client.move_to(now, id, flow, resources);
        }
    }

    /// Asks for another amount.
    pub(super) fn change(&mut self, now: Time, id: u64, wanted: &Reserved, resources: &mut Resources) {
        // The reservation may have ended before its user knows.
        let Some(user) = self.users.get(&id) else { return };
        if user.request.receiver_initiated {
            return self.refuse(id, ReserveRefusal::Receiver);
        }
        let request = ReserveRequest { least: None, ..user.request.clone() };
        match request.range(wanted) {
            Ok(range) => self.client.change(now, id, range, resources),
            Err(refusal) => self.refuse(id, refusal),
        }
    }

    /// Ends a reservation or a query.
    pub(super) fn close(&mut self, now: Time, id: u64, resources: &mut Resources) {
        match self.users.get(&id) {
            Some(User { flow: Some(_), answered: false, .. }) => self.client.release(now, id, resources),
            Some(User { flow: None, .. }) => {
                self.users.remove(&id);
                self.events.push_back((id, ReservationEvent::Released { confirmed: false }));
            }
            Some(User { answered: true, .. }) | None => {}
        }
    }

    /// Takes what the client reports of a reservation.
    pub(super) fn event(&mut self, now: Time, id: u64, event: QosEvent, resources: &mut Resources) {
        let Some(user) = self.users.get_mut(&id) else {
            // A suggestion of the other end: its user asks for the reservation.
            return tracing::debug!(id, ?event, "event of no user");
        };
        let failure = |code, detail, node, Told { available, note }| ReserveFailure {
            code,
            detail,
            node,
            note,
            available,
        };
        let path = || self.client.path_of(id);
        let (event, last) = match event {
            QosEvent::Opened { session } => {
                let Some(flow) = invariant!(user.flow, "who has a session has a flow") else { return };
                (ReservationEvent::Started { session, flow }, false)
            }
            QosEvent::Reserved { .. } | QosEvent::Suggested { .. } => return,
            // The receiver reserves next.
            QosEvent::Available { .. } if !user.query => return,
            QosEvent::Committed { amount } => match Reserved::of(&amount) {
                Some(amount) => (ReservationEvent::Granted(PathAmount { amount, path: path() }), false),
                None => return,
            },
            QosEvent::Available { amount } => {
                let amount = amount.as_ref().and_then(Reserved::of);
                (ReservationEvent::Available(PathAmount { amount, path: path() }), false)
            }
            QosEvent::Refused { code, detail, node, told, stands } => {
                (ReservationEvent::Failed(failure(code.0, detail, node, told)), !stands)
            }
            QosEvent::Released { confirmed } => (ReservationEvent::Released { confirmed }, true),
            QosEvent::Lost { code } => {
                (ReservationEvent::Lost(failure(code.0, 0, None, Told::default())), true)
            }
        };
        let (silent, query) = (user.answered, user.query);
        let answers = query && matches!(event, ReservationEvent::Available(_));
        user.answered |= answers;
        if !silent {
            self.events.push_back((id, event));
        }
        if last {
            self.users.remove(&id);
            self.homeless.remove(&id);
        } else if answers {
            // The path was laid for the question only.
            self.client.release(now, id, resources);
        }
    }

    pub(super) fn take_event(&mut self) -> Option<(u64, ReservationEvent)> {
        self.events.pop_front()
    }

    pub(super) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }
}
