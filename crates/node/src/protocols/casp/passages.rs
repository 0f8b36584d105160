//! Passages through firewalls that users ask for, and the client that carries them out.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use signalbox_casp::clients::natfw::{
    NatfwClient, NatfwEnd, NatfwEvent, NatfwPackets, NatfwRequest, NatfwTerms,
};
use signalbox_casp::wire::FlowId;
use signalbox_casp::wire::natfw::NatfwStatus;
use signalbox_core::hops::Path;
use signalbox_core::node::Interface;
use signalbox_core::pinhole::{Pinhole, PinholeId};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{SessionId, Time, invariant};
use signalbox_resources::Resources;

use super::flow;

/// A passage for a flow of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct OpenRequest {
    /// Destination of the flow.
    pub dst: IpAddr,
    /// Source of the flow; `None`: the address that routing chooses.
    pub src: Option<IpAddr>,
    /// IP protocol of the flow; `None`: all.
    pub protocol: Option<u8>,
    /// Source port of the flow; `None`: all.
    pub src_port: Option<u16>,
    /// Destination port of the flow; `None`: all.
    pub dst_port: Option<u16>,
    /// The other end opens the passage, if one of its users accepts the packets.
    pub receiver_initiated: bool,
    /// Lifetime of the rules, seconds; `None`: that of the session.
    pub lifetime: Option<u32>,
    /// What else the request says. With packets against the flow, the destination of the flow is their sender.
    #[cfg_attr(feature = "serde", serde(default))]
    pub terms: NatfwTerms,
    /// The identifier of the session. Nodes of the path may have it from an earlier passage of the same user, which this one then
    /// replaces. Another one is drawn if this node has the session. `None`: it is drawn.
    #[cfg_attr(feature = "serde", serde(default))]
    pub session: Option<SessionId>,
}

impl OpenRequest {
    /// The flow from a source; `None`: its ends are of different versions of IP.
    fn flow(&self, src: IpAddr) -> Option<FlowId> {
        flow::between(src, self.dst, self.protocol, [self.src_port, self.dst_port])
    }
}

/// Why this node does not send a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PassageRefusal {
    /// Source and destination are of different versions of IP, or the destination is a group.
    #[error("source and destination are unicast addresses of one version of IP")]
    Address,
    /// The form of the flow is one of this suite, and switched off.
    #[error(
        "CASP has no flows over IPv6 with protocol or ports: leave them out, or write private_flows = true into [casp] of all nodes"
    )]
    PrivateFlow,
    /// A scope is missing, or there is one where the other end opens the firewalls.
    #[error("both directions need a scope, and a request that the other end answers has none")]
    Scope,
    /// The tokens are no AUTH_TOKEN objects.
    #[error(
        "the token is not a sequence of whole AUTH_TOKEN objects: 0014, the length in words of 32 bits, the contents"
    )]
    Token,
    /// There is no route to the destination.
    #[error("no route to the destination")]
    NoRoute,
    /// A table is full.
    #[error("too many users of this node have asked: end one")]
    TooMany,
    /// The identifier is that of another passage: an error of the driver.
    #[error("a passage of this name stands already")]
    NameTaken,
    /// The node does not run CASP, or not its client for firewalls.
    #[error(
        "this node does not run the client for firewalls of CASP: write clients = [\"natfw\"] into [casp] of its configuration"
    )]
    NotRunning,
}

/// Why a node of the path refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PassageFailure {
    /// The code of STATUS.
    pub code: u16,
    /// The node, if another one refused.
    pub node: Option<IpAddr>,
    /// The rule or limit that refused, if the node gives it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub note: Option<String>,
}

/// Why a passage that this host accepted ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PassageEnd {
    /// Its sender closed it.
    Closed,
    /// Its sender did not refresh it.
    Expired,
    /// A node refused or removed it.
    Removed(PassageFailure),
}

/// What becomes of a passage.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PassageEvent {
    /// The session has its identifier.
    Started {
        /// The identifier.
        session: SessionId,
        /// The flow.
        flow: FlowId,
    },
    /// This host answers senders that ask for these packets.
    Accepting(FlowFilter),
    /// All firewalls of the path let the packets pass.
    Granted {
        /// Lifetime without a refresh, seconds.
        lifetime: u32,
        /// Source address and port behind the NATs of the path.
        external: Option<(IpAddr, Option<u16>)>,
        /// The nodes of the path. It is not known who answered within a scope.
        path: Path,
    },
    /// A sender asked for packets that this host accepts.
    Accepted {
        /// The session.
        session: SessionId,
        /// The flow.
        flow: FlowId,
    },
    /// A passage that [`PassageEvent::Accepted`] reported ended.
    Ended {
        /// The session.
        session: SessionId,
        /// The flow.
        flow: FlowId,
        /// The reason.
        why: PassageEnd,
    },
    /// This node does not send the request; the last event.
    Refused(PassageRefusal),
    /// A refresh failed. The rules of the path stand until they expire.
    Notified(PassageFailure),
    /// The path refused, or what it had granted ended; the last event.
    Failed(PassageFailure),
    /// The passage is closed; the last event.
    Closed,
}

/// What a user began.
#[derive(Debug)]
struct User {
    request: OpenRequest,
    /// `None` while the route is looked up.
    flow: Option<FlowId>,
    granted: bool,
}

/// What the kernel is to do.
#[derive(Debug)]
pub(super) enum Work {
    Open(PinholeId, Pinhole, Duration),
    Close(PinholeId),
}

/// All passages of the node's users.
#[derive(Debug)]
pub(super) struct Passages {
    pub(super) client: NatfwClient,
    /// Flows of the private forms can be sent.
    private_flows: bool,
    users: BTreeMap<u64, User>,
    /// Users whose source is no address of this node any more. The source that routing chooses takes its place.
    homeless: BTreeSet<u64>,
    events: VecDeque<(u64, PassageEvent)>,
    work: VecDeque<Work>,
}

impl Passages {
    pub(super) const fn new(client: NatfwClient, private_flows: bool) -> Self {
        Self {
            client,
            private_flows,
            users: BTreeMap::new(),
            homeless: BTreeSet::new(),
            events: VecDeque::new(),
            work: VecDeque::new(),
        }
    }

    fn refuse(&mut self, id: u64, why: PassageRefusal) {
        self.events.push_back((id, PassageEvent::Refused(why)));
    }

    /// Begins a passage. The result is the destination whose route the caller looks up, if it has to.
    pub(super) fn start(&mut self, now: Time, id: u64, request: OpenRequest) -> Option<IpAddr> {
        let (src, dst) = (request.src, request.dst);
        let refusal = if self.users.contains_key(&id) {
            Some(PassageRefusal::NameTaken)
        } else if dst.is_multicast() || dst.is_unspecified() {
            Some(PassageRefusal::Address)
        } else {
            request.terms.check(request.receiver_initiated).err().map(|status| match status {
                NatfwStatus::TOKEN => PassageRefusal::Token,
                _ => PassageRefusal::Scope,
            })
        };
        if let Some(refusal) = refusal {
            self.refuse(id, refusal);
            return None;
        }
        self.users.insert(id, User { request, flow: None, granted: false });
        match src {
            Some(src) => {
                self.route(now, id, Ok(src));
                None
            }
            None => Some(dst),
        }
    }

    /// The source of a flow is known.
    pub(super) fn route(&mut self, now: Time, id: u64, src: Result<IpAddr, PassageRefusal>) {
        let Some(user) = self.users.get_mut(&id).filter(|user| user.flow.is_none()) else { return };
        let OpenRequest { receiver_initiated, lifetime, session: kept, .. } = user.request;
        let allowed = |flow: &FlowId| self.private_flows || !flow.is_private();
        let flow = src
            .and_then(|src| user.request.flow(src).ok_or(PassageRefusal::Address))
            .and_then(|flow| Some(flow).filter(allowed).ok_or(PassageRefusal::PrivateFlow));
        match flow {
            Ok(flow) => {
                user.flow = Some(flow);
                let filters = Vec::new();
                let terms = user.request.terms.clone();
                let by_receiver = receiver_initiated;
                let request = NatfwRequest { flow, filters, by_receiver, lifetime, terms, kept };
                self.client.open(now, id, &request);
            }
            Err(refusal) => {
                self.users.remove(&id);
                self.refuse(id, refusal);
            }
        }
    }

    /// Takes over the node's interfaces. Passages whose source is gone get another one: see [`Self::homeless`].
    pub(super) fn interfaces(&mut self, interfaces: &[Interface]) {
        self.client.interfaces(interfaces);
        let own: BTreeSet<IpAddr> = interfaces.iter().flat_map(|one| one.addresses.iter().copied()).collect();
        let lost = |user: &User| {
            let flow = user.flow.filter(|_| user.request.src.is_none());
            flow.is_some_and(|flow| !own.contains(&flow.src()))
        };
        self.homeless = self.users.iter().filter(|(_, user)| lost(user)).map(|(id, _)| *id).collect();
    }

    /// The passages whose route the caller looks up to learn their new source, with their destinations.
    pub(super) fn homeless(&self) -> Vec<(u64, IpAddr)> {
        let with_destination = |id: &u64| Some((*id, self.users.get(id)?.request.dst));
        self.homeless.iter().filter_map(with_destination).collect()
    }

    /// A passage whose source is gone goes on from another address.
    pub(super) fn move_to(&mut self, now: Time, id: u64, src: IpAddr) {
        let Some(user) = self.users.get_mut(&id).filter(|_| self.homeless.remove(&id)) else { return };
        if let Some(flow) = user.request.flow(src)
            && self.client.move_to(now, id, flow)
        {
            user.flow = Some(flow);
        }
    }

    /// A user accepts packets of senders that ask for them.
    pub(super) fn accept(&mut self, now: Time, id: u64, packets: FlowFilter) {
        if self.client.accept(now, id, packets) {
            self.events.push_back((id, PassageEvent::Accepting(packets)));
        } else {
            self.refuse(id, PassageRefusal::TooMany);
        }
    }

    /// Ends what a user began.
    pub(super) fn close(&mut self, now: Time, id: u64, resources: &mut Resources) {
        match self.users.get(&id) {
            Some(User { flow: None, .. }) => {
                self.users.remove(&id);
                self.events.push_back((id, PassageEvent::Closed));
            }
            Some(User { flow: Some(_), .. }) => self.client.close(now, id, resources),
            None if self.client.is_accepting(id) => {
                self.client.close(now, id, resources);
                self.events.push_back((id, PassageEvent::Closed));
            }
            None => {}
        }
    }

    /// Takes what the client reports of a passage.
    pub(super) fn event(&mut self, now: Time, id: u64, event: NatfwEvent, resources: &mut Resources) {
        let failure = |status: NatfwStatus, node, note| PassageFailure { code: status.0, node, note };
        if let NatfwEvent::Accepted { session, flow } = event {
            self.events.push_back((id, PassageEvent::Accepted { session, flow }));
            return;
        }
        if let NatfwEvent::Ended { session, flow, why } = event {
            let why = match why {
                NatfwEnd::Closed => PassageEnd::Closed,
                NatfwEnd::Expired => PassageEnd::Expired,
                NatfwEnd::Removed { status, node } => PassageEnd::Removed(failure(status, node, None)),
            };
            self.events.push_back((id, PassageEvent::Ended { session, flow, why }));
            return;
        }
        let Some(user) = self.users.get_mut(&id) else { return };
        let (event, last) = match event {
            NatfwEvent::Named { session } => {
                let Some(flow) = invariant!(user.flow, "a passage with a session has a flow") else { return };
                let against = user.request.terms.packets == NatfwPackets::Against;
                let flow = if against { flow.reversed() } else { flow };
                (PassageEvent::Started { session, flow }, false)
            }
            NatfwEvent::Opened { lifetime, nat } => {
                user.granted = true;
                let external = nat.map(|seen| {
                    let port = seen.src_ports.first().filter(|(low, high)| low == high);
                    (seen.src.addr, port.map(|(port, _)| *port))
                });
                let mut path = self.client.path_of(id);
                if user.request.terms.scope.is_some() {
                    // The border is meant to answer.
                    path.far_end = None;
                }
                (PassageEvent::Granted { lifetime, external, path }, false)
            }
            NatfwEvent::Refused { status, node, note } if user.granted => {
                (PassageEvent::Notified(failure(status, node, note)), false)
            }
            NatfwEvent::Refused { status, node, note } => {
                (PassageEvent::Failed(failure(status, node, note)), true)
            }
            NatfwEvent::Lost { status, node } => (PassageEvent::Failed(failure(status, node, None)), true),
            NatfwEvent::Closed => (PassageEvent::Closed, true),
            NatfwEvent::State { .. } | NatfwEvent::Accepted { .. } | NatfwEvent::Ended { .. } => return,
        };
        let failed = last && matches!(event, PassageEvent::Failed(_));
        self.events.push_back((id, event));
        if last {
            self.users.remove(&id);
        }
        if failed {
            // Firewalls before the one that refused may have opened already.
            self.client.close(now, id, resources);
        }
    }

    /// Ends a session at this node.
    pub(super) fn delete(&mut self, now: Time, session: SessionId, resources: &mut Resources) {
        self.client.delete(now, session, resources);
    }

    /// Takes what the client asks of the kernel.
    pub(super) fn work(&mut self, work: Work) {
        self.work.push_back(work);
    }

    /// The next of what the kernel is to do.
    pub(super) fn take_work(&mut self) -> Option<Work> {
        self.work.pop_front()
    }

    pub(super) fn take_event(&mut self) -> Option<(u64, PassageEvent)> {
        self.events.pop_front()
    }

    /// The driver has something to take.
    pub(super) fn is_ready(&self) -> bool {
        !self.events.is_empty() || !self.work.is_empty()
    }
}
