//! The state of a session (RFC 5974 §5.2.1).
//!
//! A node has a record for each flow, so its fields are packed, and [`RareFields`] has those that most sessions do without.
//!
//! The previous peer is the one that RESERVEs come from, towards the QNI. The next peer is the one that they go to,
//! towards the QNR.

use core::time::Duration;
use std::sync::Arc;

use signalbox_core::node::RouteQuery;
use signalbox_core::service::{SiiHandle, StateHandle};
use signalbox_core::stamp::Moment;
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Direction, Flow, IfIndex, Mri, NslpId, Rare, RareVec, SessionId, Time};
use signalbox_resources::{GrantId, RequestedBy};

use super::command::ReserveRequest;
use super::event::{Granted, HopGrant};
use super::packed::Packed;
use super::rare::RareFields;
use super::source::Source;
use super::waiting::{Arrival, requested_by_peer, route_query};
use crate::wire::{Classifier, Rsn};

/// The state of a session at this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Only a QUERY passed. A RESPONSE, or a RESERVE in the other direction, may follow.
    Path,
    /// A RESERVE was granted here.
    Reserved,
    /// The reservation is gone. Operation state is kept so that messages still on the path find their destination.
    Torn,
}

/// Flags of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Marks(u32);

impl Marks {
    /// This node is the QNR: the flow ends here, or this node is configured as the P-QNE.
    pub(super) const QNR: Self = Self(0x01);
    /// GIST found no next node. This node answers requests, and still sends them.
    pub(super) const LAST_NODE: Self = Self(0x02);
    /// PROXY was set in the last message.
    pub(super) const PROXY: Self = Self(0x04);
    /// BREAK was set in the last message of the previous peer, or routers without QoS NSLP are before this node.
    pub(super) const BREAK: Self = Self(0x08);
    /// A RESPONSE confirmed the reservation on the rest of the path: refreshes need no QSPEC.
    pub(super) const CONFIRMED: Self = Self(0x10);
    /// The next peer demands a QSPEC in each refresh.
    pub(super) const FULL_ONLY: Self = Self(0x20);
    /// REPLACE was clear in the last RESERVE.
    pub(super) const NO_REPLACE: Self = Self(0x40);
    /// The last RESERVE had SCOPING: neither it nor a refresh is forwarded.
    pub(super) const SCOPED: Self = Self(0x80);
    /// The QUERY of this session had RESERVE-INIT: a RESERVE comes in the other direction.
    pub(super) const RECEIVER_INITIATED: Self = Self(0x100);
    /// A refresh with ACK-REQ was sent, and its acknowledgment has not arrived.
    pub(super) const UNACKNOWLEDGED: Self = Self(0x200);
    /// The route may have changed: the next RESERVE is sent with RSN + 2.
    pub(super) const REROUTING: Self = Self(0x400);
    /// GIST has a RESERVE whose status it has not reported.
    pub(super) const IN_GIST: Self = Self(0x800);
    /// This node is the QNI.
    pub(super) const QNI: Self = Self(0x1000);
    /// The reservation was confirmed at least once, perhaps before a change. A later error from the path does not end
    /// it here.
    pub(super) const ONCE_CONFIRMED: Self = Self(0x2000);
    /// The route to the next peer changed, and the new one is being looked up.
    pub(super) const REPAIRING: Self = Self(0x4000);
    /// The next peer reported that the route before it changed: this node may be off the path.
    pub(super) const ROUTE_REPORTED: Self = Self(0x8000);
    /// The previous peer was notified that the route after it changed.
    pub(super) const PREVIOUS_NOTIFIED: Self = Self(0x1_0000);
    /// The route of the flow leads back to the previous peer. This node sends nothing until a refresh shows that it is
    /// on the path.
    pub(super) const OFF_PATH: Self = Self(0x2_0000);
    /// The route changed lately. It is looked up again with the next refresh.
    pub(super) const ROUTE_UNSETTLED: Self = Self(0x4_0000);
    /// BREAK was set in the last message of the next peer: routers without QoS NSLP are on the path.
    pub(super) const BREAK_BEHIND: Self = Self(0x8_0000);
    /// The last notification of GIST about the previous peer named the one of the session.
    const GIST_PREVIOUS: Self = Self(0x10_0000);
    /// The last notification of GIST about the next peer named the one of the session.
    const GIST_NEXT: Self = Self(0x20_0000);
    /// The previous peer preserves no GIST hop count.
    pub(super) const UNCOUNTED: Self = Self(0x40_0000);
    /// The reservation has other contents than those that a RESPONSE confirmed, or began again after its end.
    pub(super) const UNANSWERED: Self = Self(0x80_0000);

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) const fn set(&mut self, other: Self, on: bool) {
        self.0 = if on { self.0 | other.0 } else { self.0 & !other.0 };
    }
}

/// The purpose of a request of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A new or changed reservation.
    Reserve,
    /// The confirmation of a tear.
    Tear,
    /// The QoS that the path can give.
    Query,
    /// A reservation along the new path. The old one is torn down after the RESPONSE.
    Repair,
    /// A reservation that the far end makes: a RESERVE is the answer, not a RESPONSE.
    ReserveInit,
    /// A sign of life of the next peer: ACK-REQ without an RII.
    Acknowledgment,
    /// The end of a reservation that the receiver made: this node sends a NOTIFY, and the receiver answers with a
    /// tear.
    ReleaseNotice,
}

/// A request of this node that waits for its RESPONSE (RFC 5974 §5.2.4).
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) rii: u32,
    pub(super) kind: RequestKind,
    /// RSN of this node for the session when the request was sent.
    pub(super) rsn: Option<u32>,
    /// The message. It is sent again octet for octet.
    pub(super) octets: Vec<u8>,
    /// Time of the next retransmission.
    pub(super) retry_at: Option<Time>,
    pub(super) interval: Duration,
    pub(super) gives_up: Time,
}

/// A request of another node that was forwarded. Its RESPONSE is forwarded too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) rii: u32,
    pub(super) until: Moment,
    /// RSN of this node for the session when the request was forwarded, if it had one.
    rsn: u32,
    numbered: bool,
    /// Its remaining GIST hop count.
    hops: u8,
}

/// A branch of the old path after a route change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OldBranch {
    pub(super) sii: SiiHandle,
    /// RSN of its tear: above each RSN that was sent along the old branch, below each that was sent along the new one
    /// (RFC 5974 §5.2.5.2).
    pub(super) rsn: u32,
}

/// The reason why a session began at this node.
#[derive(Debug)]
pub(super) enum Origin {
    /// A user asked for a reservation.
    Reserve(Box<ReserveRequest>),
    /// A user asked what the path can give.
    Query,
    /// The sender of the flow asked this node, with RESERVE-INIT, to reserve.
    ForSender,
    /// A bidirectional reservation needs its reverse direction. The session of the forward direction.
    ReverseDirection(SessionId),
    /// Flows need an aggregate. Its position in the configuration.
    Aggregate(usize),
}

/// State of a session that began at this node or that a user of this node asked for.
#[derive(Debug)]
pub(super) struct Local {
    /// The user's identifier; `None`: no user asked for it.
    pub(super) command: Option<u64>,
    pub(super) origin: Origin,
    /// The user got the event that the reservation was granted.
    pub(super) granted: bool,
    /// Whether the end of the flow answered, as the last event for the user said.
    pub(super) far_end: Option<bool>,
    /// The user released it.
    pub(super) releasing: bool,
    pub(super) hold_until: Option<Time>,
    /// The session of the reverse direction, and whether it was granted.
    pub(super) reverse: Option<(SessionId, bool)>,
    /// The state before a change that is not granted yet.
    pub(super) before: Option<Before>,
    /// Hops in the last RESPONSE.
    pub(super) hops: Vec<HopGrant>,
    /// What was granted, and the user has no event of yet: the forward direction only, or what the user did not ask the receiver for.
    pub(super) unreported: Option<Box<Granted>>,
    /// Deadline for the grant of the reverse direction, or for what the user asked the receiver for.
    pub(super) report_by: Option<Time>,
    /// The request failed temporarily, and is repeated.
    pub(super) retry: Option<Retry>,
    /// Requests for smaller packets since the last one of the user.
    pub(super) smaller: u8,
}

impl Local {
    /// Whether its user was told that it was granted.
    pub(super) const fn is_told(&self) -> bool {
        self.granted && self.command.is_some()
    }

    /// Whether its user may have asked for the same session before, and takes no less than the rate that it asks for.
    pub(super) fn is_kept_whole(&self) -> bool {
        matches!(&self.origin, Origin::Reserve(request) if request.session.is_some() && request.qos.minimum.is_none())
    }

    pub(super) const fn of(command: Option<u64>, origin: Origin) -> Self {
        Self {
            command,
            origin,
            granted: false,
            far_end: None,
            releasing: false,
            hold_until: None,
            reverse: None,
            before: None,
            hops: Vec::new(),
            unreported: None,
            report_by: None,
            retry: None,
            smaller: 0,
        }
    }
}

/// A new attempt after a temporary failure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    pub(super) kind: RequestKind,
    /// Attempts so far.
    pub(super) count: u8,
    /// Time of the next attempt; `None`: it was sent.
    pub(super) at: Option<Time>,
}

/// The state that is restored when a change is refused.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) request: Box<ReserveRequest>,
    pub(super) mri: Mri,
}

/// The record of a session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    /// The flow.
    flow: Flow,
    /// The direction of RESERVEs.
    pub(super) direction: Direction,
    pub(super) stage: Stage,
    pub(super) marks: Marks,
    /// The grant of admission control; `None` at the end of the flow.
    pub(super) grant: Packed<GrantId>,
    /// The egress interface of the flow.
    pub(super) ifindex: Option<IfIndex>,
    /// Reserved rate in octets a second.
    pub(super) rate: u64,
    previous_peer: Packed<SiiHandle>,
    next_peer: Packed<SiiHandle>,
    pub(super) state: Packed<StateHandle>,
    pub(super) nslp_previous: NslpId,
    pub(super) nslp_next: NslpId,
    /// Remaining GIST hop count of the last RESERVE of the previous peer; `None`: they begin here. All RESERVEs of this
    /// node have it, refreshes too: nodes whose routes form a circle do not refresh the session by each other.
    pub(super) hops: Option<u8>,
    /// The same of the last QUERY.
    pub(super) query_hops: Option<u8>,
    /// RSN of the previous peer.
    pub(super) rsn_in: Packed<Rsn>,
    /// RSN of this node; `None` before the first RESERVE.
    pub(super) rsn_out: Option<u32>,
    pub(super) classifier: Option<Classifier>,
    /// The QSPEC that was sent to the next peer. Sessions with equal terms share it.
    pub(super) qspec: Arc<[u8]>,
    /// Where the last RESERVE came from, and whose place in the table the session has. Sessions of one source share it.
    pub(super) source: Arc<Source>,
    pub(super) pending: RareVec<Pending>,
    /// The last request that was forwarded, and those before it.
    passed: Option<Passed>,
    passed_before: RareVec<Passed>,
    pub(super) local: Option<Box<Local>>,
    pub(super) rare: Rare<RareFields>,
    /// Refresh period R of the previous peer, in milliseconds.
    pub(super) period_in: u32,
    /// Refresh period R that this node sends, in milliseconds.
    pub(super) period_out: u32,
    /// End of the state unless it is refreshed; [`Moment::NEVER`]: the session began here.
    pub(super) expires: Moment,
    /// Time of the next refresh that this node sends.
    pub(super) refresh_at: Moment,
    /// Refreshes since the last own one that were part of the summary of another session.
    pub(super) listed: u8,
    /// Refreshes with an RII are not forwarded before this time.
    pub(super) forced_after: Moment,
    pub(super) link: Link,
}

impl Timed for Session {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Session {
    /// Whether routers without QoS NSLP are on the path, as far as this node knows.
    pub(super) const fn has_gaps(&self) -> bool {
        self.marks.has(Marks::BREAK) || self.marks.has(Marks::BREAK_BEHIND)
    }

    /// A session without state. `source` is whose place in the table it has.
    pub(super) fn new(id: SessionId, mri: &Mri, nslp: NslpId, period_ms: u32, source: Arc<Source>) -> Self {
        Self {
            id,
            flow: Flow::of(mri),
            direction: mri.direction(),
            stage: Stage::Path,
            marks: Marks::default(),
            grant: Packed::NONE,
            ifindex: None,
            rate: 0,
            previous_peer: Packed::NONE,
            next_peer: Packed::NONE,
            state: Packed::NONE,
            nslp_previous: nslp,
            nslp_next: nslp,
            hops: None,
            query_hops: None,
            rsn_in: Packed::NONE,
            rsn_out: None,
            classifier: None,
            qspec: Arc::default(),
            source,
            pending: RareVec::new(),
            passed: None,
            passed_before: RareVec::new(),
            local: None,
            rare: Rare::default(),
            period_in: period_ms,
            period_out: period_ms,
            expires: Moment::NEVER,
            refresh_at: Moment::NEVER,
            listed: 0,
            forced_after: Moment::from(Time::ZERO),
            link: Link::default(),
        }
    }

    /// The flow, in the direction of RESERVEs.
    pub(super) fn mri(&self) -> Mri {
        self.flow.mri(self.direction)
    }

    pub(super) fn set_mri(&mut self, mri: &Mri) {
        if !self.has_mri(mri) {
            (self.flow, self.direction) = (Flow::of(mri), mri.direction());
        }
    }

    /// Whether its RESERVEs have this MRI.
    pub(super) fn has_mri(&self, mri: &Mri) -> bool {
        mri.direction() == self.direction && self.flow.is_of(mri)
    }

    /// The peer that RESERVEs come from; `None`: they begin here.
    pub(super) fn previous_peer(&self) -> Option<SiiHandle> {
        self.previous_peer.get()
    }

    pub(super) fn set_previous_peer(&mut self, peer: Option<SiiHandle>) {
        let gist = self.gist_previous();
        self.previous_peer = peer.into();
        self.set_gist_previous(gist);
    }

    /// The peer that RESERVEs go to, once it is known.
    pub(super) fn next_peer(&self) -> Option<SiiHandle> {
        self.next_peer.get()
    }

    pub(super) fn set_next_peer(&mut self, peer: Option<SiiHandle>) {
        let gist = self.gist_next();
        self.next_peer = peer.into();
        self.set_gist_next(gist);
    }

    /// The previous peer by the last notification of GIST.
    fn gist_previous(&self) -> Option<SiiHandle> {
        let same = self.marks.has(Marks::GIST_PREVIOUS);
        if same { self.previous_peer() } else { self.rare.gist_previous }
    }

    pub(super) fn set_gist_previous(&mut self, peer: Option<SiiHandle>) {
        let same = peer.is_some() && peer == self.previous_peer();
        self.marks.set(Marks::GIST_PREVIOUS, same);
        let other = peer.filter(|_| !same);
        if other != self.rare.gist_previous {
            self.rare.change(|rare| rare.gist_previous = other);
        }
    }

    /// The next peer by the last notification of GIST.
    fn gist_next(&self) -> Option<SiiHandle> {
        let same = self.marks.has(Marks::GIST_NEXT);
        if same { self.next_peer() } else { self.rare.gist_next }
    }

    pub(super) fn set_gist_next(&mut self, peer: Option<SiiHandle>) {
        let same = peer.is_some() && peer == self.next_peer();
        self.marks.set(Marks::GIST_NEXT, same);
        let other = peer.filter(|_| !same);
        if other != self.rare.gist_next {
            self.rare.change(|rare| rare.gist_next = other);
        }
    }

    /// The QSPEC of the last QUERY that was sent.
    pub(super) fn init_qspec(&self) -> &[u8] {
        self.rare.init_qspec.as_deref().unwrap_or_default()
    }

    /// Whether a user of this host asked for the session, or the configuration did.
    pub(super) fn is_of_this_host(&self) -> bool {
        self.local.as_ref().is_some_and(|local| match local.origin {
            Origin::Reserve(_) | Origin::Query | Origin::Aggregate(_) => true,
            Origin::ForSender | Origin::ReverseDirection(_) => false,
        })
    }

    /// Where the request for the reservation comes from, as far as GIST has proof of it.
    pub(super) fn requested_by(&self) -> RequestedBy {
        if self.is_of_this_host() {
            return RequestedBy::LocalUser(self.local.as_ref().and_then(|local| local.command));
        }
        requested_by_peer(self.source.address, self.source.ifindex, self.source.proof)
    }

    /// The route lookup for the packets of its flow. Where the request came with the flow, its packets come in by the same interface:
    /// rules and multipath routes can depend on that.
    pub(super) fn route_query(&self) -> RouteQuery {
        let (from, here) = (self.source.ifindex, self.local.is_some());
        let with_flow = self.direction == Direction::Downstream && !here && from != IfIndex::NONE;
        RouteQuery { iif: with_flow.then_some(from), ..route_query(&self.mri()) }
    }

    /// Whether this node answers requests because no node follows.
    pub(super) const fn is_end(&self) -> bool {
        self.marks.has(Marks::QNR) || self.marks.has(Marks::LAST_NODE) || self.marks.has(Marks::SCOPED)
    }

    /// The previous peer, if messages reach it by explicit routing only: routing state of GIST leads to another peer,
    /// which a stale branch can cause (RFC 5974 §5.2.5.4).
    pub(super) fn explicit_previous(&self) -> Option<SiiHandle> {
        self.previous_peer().filter(|back| self.gist_previous().is_some_and(|gist| gist != *back))
    }

    /// The next peer, if messages reach it by explicit routing only. It happens where RESERVEs go upstream.
    pub(super) fn explicit_next(&self) -> Option<SiiHandle> {
        let upstream = self.direction == Direction::Upstream;
        self.next_peer().filter(|onward| upstream && self.gist_next().is_some_and(|gist| gist != *onward))
    }

    /// The next peer of a node that is off the path: a message by routing would go back, and not to this peer.
    pub(super) fn next_off_path(&self) -> Option<SiiHandle> {
        self.next_peer().filter(|_| self.marks.has(Marks::OFF_PATH))
    }

    /// Whether RESERVEs come from this peer, or came from it until lately.
    pub(super) fn is_previous_peer(&self, now: Time, sii: SiiHandle) -> bool {
        self.previous_peer() == Some(sii)
            || self.rare.old_previous_peer.is_some_and(|(old, until)| old == sii && now < until)
    }

    /// Whether RESERVEs go to this peer, or went to it until lately. A node that is off the path after a route change
    /// may send RESERVEs back to the node that it got them from. They must not reverse the session.
    pub(super) fn is_next_peer(&self, sii: SiiHandle) -> bool {
        self.next_peer() == Some(sii) || self.rare.old_branches.iter().any(|old| old.sii == sii)
    }

    /// Whether this node reserves in the place of the receiver, because the QUERY of the sender found no node nearer
    /// to it.
    pub(super) fn stands_in(&self) -> bool {
        let for_sender = self.local.as_ref().is_some_and(|local| matches!(local.origin, Origin::ForSender));
        for_sender && self.ifindex.is_some()
    }

    /// Whether a tear of this node waits for its confirmation.
    pub(super) fn is_being_torn(&self) -> bool {
        self.pending.iter().any(|pending| pending.kind == RequestKind::Tear)
    }

    /// The next RSN of this node: 0 at first, then one more each time (RFC 5974 §5.3.1).
    pub(super) fn next_rsn(&mut self) -> u32 {
        let next = self.rsn_out.map_or(0, |rsn| rsn.wrapping_add(1));
        self.rsn_out = Some(next);
        next
    }

    /// Stores the RII of a request that is forwarded. A session keeps few of them; the oldest is removed first.
    pub(super) fn note(&mut self, rii: u32, until: Time, hops: u8) {
        const MOST: usize = 8;
        let (rsn, numbered) = (self.rsn_out.unwrap_or_default(), self.rsn_out.is_some());
        let last = self.passed.replace(Passed { rii, until: until.into(), rsn, numbered, hops });
        let before = &mut self.passed_before;
        before.retain(|passed| passed.rii != rii);
        if let Some(last) = last.filter(|last| last.rii != rii) {
            if before.len() + 1 >= MOST {
                before.remove(0);
            }
            before.push(last);
        }
    }

    /// The requests that were forwarded, the last one first.
    fn forwarded(&self) -> impl Iterator<Item = &Passed> {
        self.passed.iter().chain(self.passed_before.iter().rev())
    }

    /// The RII of the last request that was forwarded.
    pub(super) fn last_forwarded(&self) -> Option<u32> {
        self.passed.map(|passed| passed.rii)
    }

    /// Whether a request with this RII was sent or forwarded.
    pub(super) fn has_rii(&self, rii: u32) -> bool {
        self.has_own_rii(rii) || self.forwarded().any(|passed| passed.rii == rii)
    }

    /// Whether a request of this node has this RII.
    fn has_own_rii(&self, rii: u32) -> bool {
        self.pending.iter().any(|own| own.rii == rii) || self.rare.circling == Some(rii)
    }

    /// Whether a request that this node sent or forwarded comes back to it, since the routes form a circle. A forwarded one
    /// comes from another peer than before, with fewer hops left. `until`: a request that was forwarded so late has not been
    /// sent again by its initiator yet, perhaps on another route.
    pub(super) fn returns(&self, rii: u32, arrival: &Arrival, until: Time) -> bool {
        let strange = arrival.sii.is_some() && arrival.sii != self.previous_peer();
        let fewer = |p: &Passed| arrival.hops < p.hops || !arrival.counted;
        let other = self.forwarded().any(|passed| passed.rii == rii);
        (!other && self.has_own_rii(rii))
            || self.forwarded().any(|p| p.rii == rii && strange && fewer(p) && !p.until.is_due(until))
    }

    /// The same of a QUERY with RESERVE-INIT, which has no RII.
    pub(super) fn query_returns(&self, hops: u8, until: Time) -> bool {
        let lately = self.stage == Stage::Path && self.expires.get().is_some_and(|expires| until < expires);
        lately && self.query_hops.is_some_and(|before| hops < before)
    }

    /// Whether a request with this RII was forwarded and may still be answered.
    pub(super) fn passed(&self, now: Time, rii: u32) -> bool {
        self.forwarded().any(|passed| passed.rii == rii && !passed.until.is_due(now))
    }

    /// Whether a RESPONSE with this RII answers the latest request of the session, not an earlier one.
    pub(super) fn is_about_now(&self, rii: u32) -> bool {
        let own = self.pending.iter().map(|p| (p.rii, p.rsn));
        let passed = self.forwarded().map(|p| (p.rii, p.numbered.then_some(p.rsn)));
        own.chain(passed).any(|(of, rsn)| of == rii && rsn == self.rsn_out)
    }

    /// The time of the next action of the session.
    pub(super) fn deadline(&self) -> Option<Time> {
        let pending = self.pending.iter().flat_map(|p| [p.retry_at, Some(p.gives_up)]).flatten().min();
        let local = self.local.as_ref();
        let hold = local.and_then(|l| l.hold_until);
        let again = local.and_then(|l| l.report_by);
        let retry = local.and_then(|l| l.retry?.at);
        let rare = &*self.rare;
        let path_check = rare.path_check.as_ref().map(|path_check| path_check.at);
        let report = rare.report.as_ref().map(|report| report.at);
        [self.expires.get(), self.refresh_at.get(), pending, hold, again, retry, path_check, report]
            .into_iter()
            .flatten()
            .min()
    }
}

#[cfg(test)]
mod tests;
