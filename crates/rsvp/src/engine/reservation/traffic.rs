//! Requests to admission control and policy, refusals, and grants that were lost (UPDATE TRAFFIC CONTROL of RFC 2209).

use core::net::IpAddr;

use signalbox_core::node::Prefix;
use signalbox_core::traffic::{FlowFilter, ServiceClass};
use signalbox_core::{IfIndex, Key, invariant};
use signalbox_resources::intserv::{ErrorTerms, Given, TSpec};
use signalbox_resources::request::GuaranteedRequest;
use signalbox_resources::{
    Cause, GrantId, GrantRequest, LostWhy, Neighbor, Owner, Proof, Refusal, RequestedBy, Requester,
};

use super::branch::{Branch, Request};
use super::error::ResvErrContents;
use super::policy;
use crate::engine::interfaces::Iface;
use crate::engine::merging::Tears;
use crate::engine::path::{LOCAL, Sender, policy_in};
use crate::engine::receive::Failure;
use crate::engine::session::{NONE, Session};
use crate::engine::{Admission, PROTOCOL, Rsvp};
use crate::wire::{
    AdmissionValue, ErrorCode, ErrorFlags, FlowSpec, PolicyValue, RsvpHop, Selector, SessionKind, Style,
    TrafficControlValue, UserError,
};

impl Rsvp {
    /// Asks for the merged requests of a reservation in place of the former grant. Policy and admission control must
    /// both accept, else the former grant stays (RFC 2205 §1.2, §2.5).
    pub(super) fn install(&mut self, key: Key, resources: &mut dyn Admission) -> Result<(), Failure> {
        self.queue_policing_check(key);
        let mut filters = core::mem::take(&mut self.branches.filters);
        filters.clear();
        let Some(branch) = invariant!(self.branches.get(key), "a reservation stands while it is installed")
        else {
            return Ok(());
        };
        if !branch.oif.is_real() {
            return Ok(()); // data for an application of this node leave by no interface
        }
        let grant = branch.grant();
        let mut ask = self.ask(key, branch, filters)?;
        let result = resources.request(self.now, grant, &ask);
        self.branches.filters = core::mem::take(&mut ask.filters);
        match result {
            Ok(admitted) => {
                self.counters.granted += 1;
                tracing::debug!(grant = admitted.grant.0, ifindex = ask.ifindex.0, "reservation granted");
                let forward =
                    admitted.rspec.filter(|rspec| ask.guaranteed.is_some_and(|asked| asked.rspec != *rspec));
                if let Some(branch) = self.branches.get_mut(key) {
                    branch.retry_install = false;
                    branch.set_grant(Some(admitted.grant));
                    branch.set_forward(forward);
                }
                Ok(())
            }
            Err(refusal) => {
                self.counters.refused += 1;
                tracing::debug!(ifindex = ask.ifindex.0, reason = %refusal, "reservation refused by admission control");
                Err(self.explained(&refusal, failure_of(&refusal, &ask), resources))
            }
        }
    }

    /// A failure with what this node adds to it, until the next input.
    fn explained(&mut self, refusal: &Refusal, failure: Failure, resources: &dyn Admission) -> Failure {
        let lacks = failure.code == ErrorCode::ADMISSION;
        let available = lacks.then_some(refusal.available);
        self.branches.told.push(UserError { available, note: resources.told(refusal) });
        Failure { told: self.branches.told.len(), ..failure }
    }

    /// The request to admission control: the lesser of the merged flowspec and the senders' Tspecs (RFC 2205 §3.11.2).
    fn ask(&self, key: Key, branch: &Branch, mut filters: Vec<FlowFilter>) -> Result<GrantRequest, Failure> {
        const GONE: Failure = Failure::new(ErrorCode::RSVP_SYSTEM, 0);
        let session = self.sessions.get_index(branch.session).ok_or(GONE)?;
        let ifindex = self.interfaces.get(branch.oif).map_or(IfIndex::NONE, |known| known.ifindex);
        let flowspec = branch.flowspec();
        let bad = |_| Failure::new(ErrorCode::TRAFFIC_CONTROL, TrafficControlValue::BAD_FLOWSPEC.0);
        let (path, terms) = if branch.sender == NONE {
            if session.style == Some(Style::Wf) {
                filters.push(self.flow(session, None));
            }
            let all = self.sessions.key_of(branch.session).ok_or(GONE)?;
            let mut parts = Vec::new();
            let mut terms = None;
            for (key, sender) in self.senders_of(all).filter(|(_, sender)| sender.leaves_by(branch.oif)) {
                if session.style == Some(Style::Se) {
                    if !branch.names(key) {
                        continue;
                    }
                    filters.push(self.flow(session, Some(sender)));
                }
                parts.push(*sender.tspec);
                if flowspec.rspec.is_some() {
                    let of_sender = self.terms(sender);
                    terms = Some(terms.map_or(of_sender, |terms: ErrorTerms| terms.max(of_sender)));
                }
            }
            // A sum of Tspecs that overflows is larger than the receivers' request.
            (TSpec::sum(parts).unwrap_or(flowspec.tspec), terms)
        } else {
            let sender = self.senders.get_index(branch.sender).ok_or(GONE)?;
            filters.push(self.flow(session, Some(sender)));
            (*sender.tspec, flowspec.rspec.map(|_| self.terms(sender)))
        };
        let least = flowspec.tspec.minimum(Given::complete_senders(path, &flowspec.tspec));
        // The lesser of ordered Tspecs has the larger m; headers are counted for the smaller (RFC 2210 §3.2.1).
        let small = flowspec.tspec.smallest_packet().min(path.smallest_packet()).min(least.max_packet());
        let traffic = least.with_min_policed(small).unwrap_or(least).to_traffic().map_err(bad)?;
        // A Resv asks for its receiver. A group has many.
        let receiver = (!session.multicast).then(|| self.addresses.unpack(session.dest, session.v6));
        let requester = match self.own_sender(session, branch) {
            Some((own, command)) => Requester::local(own, command),
            None => Requester::new(self.next_hops(branch, ifindex), None, receiver),
        };
        let owner = Owner { protocol: PROTOCOL, key: key.to_u64() };
        if filters.is_empty() {
            return Err(GONE);
        }
        let mut ask = GrantRequest::of_all(owner, requester, ifindex, filters, traffic);
        ask.policing = self.policing(key, branch);
        ask.reducible = self.config.reduction;
        if branch.carries() {
            let own = |hop: &RsvpHop| self.interfaces.is_local(hop.addr);
            (ask.priority, ask.requester.names) = policy::read(branch.requests().map(Request::carried), own);
        }
        if let Some(rspec) = flowspec.rspec {
            ask.service = ServiceClass::Guaranteed;
            ask.guaranteed = Some(GuaranteedRequest { rspec, terms: terms.unwrap_or_default() });
        }
        Ok(ask)
    }

    /// The address of the sender and the identifier of its user's command, if users of this host announced all flows of a
    /// reservation. Then it is their request: RFC 2205 lets receivers reserve for no more than the Tspec of the Path.
    fn own_sender(&self, session: &Session, branch: &Branch) -> Option<(IpAddr, Option<u64>)> {
        let address = |sender: &Sender| {
            (
                self.addresses.unpack(sender.src, session.v6),
                sender.extra.as_ref().and_then(|extra| extra.application),
            )
        };
        if branch.sender == NONE {
            let mut senders = self
                .sessions
                .key_of(branch.session)
                .into_iter()
                .flat_map(|key| self.senders_of(key))
                .filter(|(key, sender)| {
                    sender.leaves_by(branch.oif) && (session.style != Some(Style::Se) || branch.names(*key))
                })
                .peekable();
            let first = senders.peek().map(|(_, sender)| address(sender))?;
            senders.all(|(_, sender)| sender.has(LOCAL)).then_some(first)
        } else {
            self.senders.get_index(branch.sender).filter(|sender| sender.has(LOCAL)).map(address)
        }
    }

    /// The next hops whose merged requests make a reservation. RSVP takes a Resv from the link of its next hop only.
    fn next_hops(&self, branch: &Branch, ifindex: IfIndex) -> RequestedBy {
        let authenticated = self.neighbors.config().of(ifindex).integrity.receiving;
        let proof = if authenticated { Proof::Identity } else { Proof::Link };
        let neighbor = |request: &Request| {
            self.hops.lookup(request.hop).map(|hop| Neighbor { address: hop.addr, ifindex, proof })
        };
        let more = branch.requests().skip(1);
        match (neighbor(&branch.first), more.map(neighbor).collect::<Option<Vec<_>>>()) {
            (Some(first), Some(more)) if more.is_empty() => RequestedBy::Neighbor(first),
            (Some(first), Some(mut more)) => {
                more.push(first);
                RequestedBy::Neighbors(more)
            }
            _ => RequestedBy::Unknown,
        }
    }

    /// A flowspec of a Resv with all that it does not give ([`Given`]). `sender`: the one that it is for; `None`: all senders of
    /// the session whose data leave by the interface.
    pub(super) fn completed(
        &self,
        flowspec: FlowSpec,
        session: Key,
        (sender, oif): (Option<Key>, Iface),
    ) -> FlowSpec {
        if flowspec.tspec.is_complete() {
            return flowspec;
        }
        let concerned = |key: Key, one: &Sender| match sender {
            Some(sender) => sender == key,
            None => one.leaves_by(oif),
        };
        let mut parts = Vec::new();
        let mut mtu = self.interfaces.get(oif).map_or(u32::MAX, |known| known.mtu);
        for (_, one) in self.senders_of(session).filter(|(key, one)| concerned(*key, one)) {
            parts.push(*one.tspec);
            mtu = self.adspec_of(one).map_or(mtu, |adspec| mtu.min(adspec.general.mtu));
        }
        let senders = TSpec::sum(parts).unwrap_or(flowspec.tspec);
        let tspec = Given::complete(flowspec.tspec, &senders, mtu);
        FlowSpec { tspec, ..flowspec }
    }

    /// The filter for the packets of one sender, or of all.
    fn flow(&self, session: &Session, sender: Option<&Sender>) -> FlowFilter {
        let dst = self.addresses.unpack(session.dest, session.v6);
        let src = sender.map(|sender| self.addresses.unpack(sender.src, session.v6));
        let port = |port: u16| (port != 0).then_some(port);
        let ports = session.kind == SessionKind::Ports;
        let mut flow = FlowFilter {
            protocol: Some(session.protocol),
            dst_port: port(session.port).filter(|_| ports),
            ..FlowFilter::between(src.map_or(Prefix::all_like(dst), Prefix::host), Prefix::host(dst))
        };
        match sender.map(Sender::selector) {
            Some(Selector::Port(number)) => flow.src_port = port(number),
            Some(Selector::FlowLabel(label)) => flow.flow_label = Some(label),
            Some(Selector::Gpi(spi)) => flow.spi = Some(spi),
            None => {}
        }
        flow
    }

    /// Asks again for a reservation whose next hops or senders changed. After a refusal the former grant stays, the
    /// next hops get a ResvErr, and their next request asks again.
    pub(in crate::engine) fn reinstall(&mut self, key: Key, resources: &mut dyn Admission) {
        if self.branches.get(key).is_none() {
            return;
        }
        let Err(failure) = self.install(key, resources) else { return };
        let Some(branch) = invariant!(self.branches.get_mut(key), "a refused branch stands") else { return };
        branch.retry_install = true;
        let flags = if branch.grant().is_some() { ErrorFlags::IN_PLACE } else { ErrorFlags::default() };
        let hops: Vec<u32> = branch.requests().map(|request| request.hop).collect();
        for hop in hops {
            self.remove_request_id(key, hop); // a refresh by MESSAGE_ID would not ask again
            self.report_failure(key, hop, failure, flags);
        }
    }

    /// Asks again for all reservations that may be for a sender, because it changed.
    pub(in crate::engine) fn reinstall_of(
        &mut self,
        session: Key,
        sender: Key,
        resources: &mut dyn Admission,
    ) {
        let Some(record) =
            invariant!(self.senders.get(sender), "a sender stands while its reservations are asked for")
        else {
            return;
        };
        if self.sessions.get(session).is_none_or(|one| one.reserved == 0) {
            return;
        }
        let branches: Vec<Key> = self.branches_of(record).map(|(key, _)| key).collect();
        for key in branches {
            let has_senders = self.branches.get(key).is_some_and(|branch| self.has_senders(session, branch));
            if has_senders {
                self.reinstall(key, resources);
            }
        }
    }

    /// Whether the data of any sender meet the reservation.
    pub(in crate::engine) fn has_senders(&self, session: Key, branch: &Branch) -> bool {
        let style = self.sessions.get(session).and_then(|one| one.style);
        if branch.sender != NONE {
            return self.senders.get_index(branch.sender).is_some_and(|one| one.leaves_by(branch.oif));
        }
        self.senders_of(session)
            .any(|(key, one)| one.leaves_by(branch.oif) && (style == Some(Style::Wf) || branch.names(key)))
    }

    /// A grant was lost: the reservation ends, its next hops get a ResvErr and previous hops are updated (RFC 2205
    /// §3.11.2).
    pub(in crate::engine) fn on_lost(
        &mut self,
        key: Key,
        grant: GrantId,
        why: LostWhy,
        resources: &mut dyn Admission,
    ) {
        let Some(branch) = self.branches.get_mut(key).filter(|branch| branch.grant() == Some(grant)) else {
            return;
        };
        branch.set_grant(None);
        let Some(session) =
            invariant!(self.sessions.key_of(branch.session), "the session of a lost grant stands")
        else {
            return;
        };
        self.counters.lost += 1;
        tracing::debug!(session = %self.logged(session), grant = grant.0, reason = ?why, "reservation lost");
        let failure = match why {
            LostWhy::Preempted | LostWhy::CapacityReduced => Failure::new(ErrorCode::PREEMPTED, 0),
            LostWhy::KernelRefused(_) | LostWhy::InterfaceGone => {
                Failure::new(ErrorCode::TRAFFIC_CONTROL_SYSTEM, 0)
            }
            // "Rejected for administrative reasons" (RFC 2205 appendix B).
            LostWhy::Deleted | LostWhy::Rules => Failure::new(ErrorCode::POLICY, 0),
        };
        let mut upstream = self.begin_change();
        self.record_branch(&mut upstream, session, key);
        let hops: Vec<u32> = match self.branches.get(key) {
            Some(branch) => branch.requests().map(|request| request.hop).collect(),
            None => return,
        };
        for hop in hops {
            self.report_failure(key, hop, failure, ErrorFlags::default());
        }
        self.remove_branch(key, resources);
        self.send_upstream(upstream, session, Tears::Send, None);
        self.close_if_idle(session);
    }

    /// Reports the failure of a request to its next hop.
    pub(super) fn report_failure(&mut self, key: Key, hop: u32, failure: Failure, flags: ErrorFlags) {
        let Some(branch) = invariant!(self.branches.get(key), "a reported branch stands") else { return };
        let Some(request) = invariant!(branch.request(hop), "a reported request stands") else { return };
        let policy =
            if failure.code == ErrorCode::POLICY { policy_in(request.carried()) } else { Box::default() };
        self.report_failure_with(key, hop, (failure, flags), *request.flowspec, policy);
    }

    /// Reports the failure of a request to its next hop, with this flowspec and these POLICY_DATA objects.
    pub(super) fn report_failure_with(
        &mut self,
        key: Key,
        hop: u32,
        (failure, flags): (Failure, ErrorFlags),
        flowspec: FlowSpec,
        policy: Box<[u8]>,
    ) {
        let Some(branch) = invariant!(self.branches.get(key), "a blamed branch stands") else { return };
        let Some(request) = invariant!(branch.request(hop), "a blamed request stands") else { return };
        let Some(session) =
            invariant!(self.sessions.get_index(branch.session), "an error is about a session that stands")
        else {
            return;
        };
        let Some(style) = invariant!(session.style, "a reserved session has a style") else { return };
        let filters = if branch.sender == NONE {
            let senders = request.senders().iter();
            senders.filter_map(|(sender, _)| Some(self.filter_of(self.senders.get(*sender)?))).collect()
        } else {
            self.senders.get_index(branch.sender).map(|one| self.filter_of(one)).into_iter().collect()
        };
        let scope = request
            .scope()
            .map(|scope| scope.iter().map(|src| self.addresses.unpack(*src, session.v6)).collect::<Vec<_>>());
        let blame = ResvErrContents {
            session: self.session_of(session),
            oif: branch.oif,
            hop,
            application: request.extra.as_ref().and_then(|extra| extra.application),
            failure,
            flags,
            style,
            flowspec: Some(flowspec),
            filters,
            scope: scope.unwrap_or_default(),
            policy,
        };
        self.send_resv_err(blame);
    }
}

/// Whether the refusal is about the delay only: the flow has room, but not at the rate that its delay bound takes. A
/// receiver that accepts more delay can be served.
fn is_too_late(refusal: &Refusal, ask: &GrantRequest) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "rates come from floats")]
    let faster = |asked: GuaranteedRequest| asked.rspec.rate() > ask.traffic.rate as f32;
    ask.guaranteed.is_some_and(faster) && refusal.available >= ask.traffic.rate
}

/// The error code and value of a refusal by admission control (RFC 2205 Appendix B).
fn failure_of(refusal: &Refusal, ask: &GrantRequest) -> Failure {
    use ErrorCode as C;
    match refusal.cause() {
        Cause::Bandwidth if is_too_late(refusal, ask) => {
            Failure::new(C::ADMISSION, AdmissionValue::DELAY_BOUND.0)
        }
        Cause::Policy | Cause::Token => Failure::new(C::POLICY, PolicyValue::REJECT.0),
        Cause::Mtu => Failure::new(C::ADMISSION, AdmissionValue::MTU.0),
        Cause::Bandwidth | Cause::Buffer | Cause::Interface => {
            Failure::new(C::ADMISSION, AdmissionValue::BANDWIDTH.0)
        }
        Cause::BadRequest => Failure::new(C::TRAFFIC_CONTROL, TrafficControlValue::BAD_FLOWSPEC.0),
        Cause::Unsupported => Failure::new(C::TRAFFIC_CONTROL, TrafficControlValue::SERVICE_UNSUPPORTED.0),
        Cause::Conflict => Failure::new(C::TRAFFIC_CONTROL, TrafficControlValue::SERVICE_CONFLICT.0),
        Cause::Full | Cause::NoGrant => Failure::new(C::TRAFFIC_CONTROL_SYSTEM, 0),
    }
}
