//! The state of a session (RFC 5974 §5.2.1).
//!
//! The previous peer is the one that RESERVEs come from, towards the QNI. The next peer is the one that they go to,
//! towards the QNR.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use signalbox_core::security::Identity;
use signalbox_core::service::{SiiHandle, StateHandle};
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Direction, IfIndex, Mri, NslpId, RareVec, SessionId, Time};
use signalbox_resources::{GrantId, RequestedBy};

use super::command::ReserveRequest;
use super::doubt::Doubt;
use super::event::{Granted, HopGrant};
use super::holders::Holder;
use super::waiting::neighbour;
use crate::wire::{Classifier, MessageId, Rsn};

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
    pub(super) const ROUTE_DOUBTED: Self = Self(0x8000);
    /// The previous peer was notified that the route after it changed.
    pub(super) const PREVIOUS_NOTIFIED: Self = Self(0x1_0000);
    /// The route of the flow leads back to the previous peer. This node sends nothing until a refresh shows that it is
    /// on the path.
    pub(super) const OFF_PATH: Self = Self(0x2_0000);
    /// The route changed lately. It is looked up again with the next refresh.
    pub(super) const ROUTE_UNSETTLED: Self = Self(0x4_0000);
    /// BREAK was set in the last message of the next peer: routers without QoS NSLP are on the path.
    pub(super) const BREAK_BEHIND: Self = Self(0x8_0000);

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
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    pub(super) rii: u32,
    pub(super) until: Time,
    /// RSN of this node for the session when the request was forwarded.
    pub(super) rsn: Option<u32>,
    /// Its remaining GIST hop count.
    pub(super) hops: u8,
}

/// A branch of the old path after a route change.
#[derive(Debug, Clone, Copy)]
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
    /// The user released it.
    pub(super) releasing: bool,
    pub(super) hold_until: Option<Time>,
    /// The session of the reverse direction, and whether it was granted.
    pub(super) reverse: Option<(SessionId, bool)>,
    /// The state before a change that is not granted yet.
    pub(super) before: Option<Before>,
    /// Hops in the last RESPONSE.
    pub(super) hops: Vec<HopGrant>,
    /// The forward direction was granted. The user gets this event when the reverse direction is granted too.
    pub(super) unreported: Option<Box<Granted>>,
    /// Deadline for the grant of the reverse direction.
    pub(super) reverse_deadline: Option<Time>,
    /// The request failed temporarily, and is repeated.
    pub(super) retry: Option<Retry>,
}

impl Local {
    pub(super) const fn of(command: Option<u64>, origin: Origin) -> Self {
        Self {
            command,
            origin,
            granted: false,
            releasing: false,
            hold_until: None,
            reverse: None,
            before: None,
            hops: Vec::new(),
            unreported: None,
            reverse_deadline: None,
            retry: None,
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
    /// The flow. The direction is that of RESERVEs.
    pub(super) mri: Mri,
    pub(super) stage: Stage,
    pub(super) marks: Marks,
    /// The grant of admission control; `None` at the end of the flow.
    pub(super) grant: Option<GrantId>,
    /// The egress interface of the flow.
    pub(super) ifindex: Option<IfIndex>,
    /// Grants of other flows of the session, kept because REPLACE was clear.
    pub(super) kept: RareVec<(Mri, GrantId)>,
    /// Grants at the old egress interface while a changed route is repaired.
    pub(super) old_grants: RareVec<GrantId>,
    /// The aggregate that the flow is in, and its rate there.
    pub(super) aggregate: Option<(usize, u64)>,
    /// The MSG-ID that its RESERVEs are bound to, retransmissions included (RFC 5974 §4.6).
    pub(super) waits_for: Option<MessageId>,
    /// Reserved rate in octets a second.
    pub(super) rate: u64,
    /// The peer that RESERVEs come from; `None`: they begin here.
    pub(super) previous_peer: Option<SiiHandle>,
    /// The previous peer before the route changed. Until this time its messages are refreshes of the old branch (RFC
    /// 5974 §5.2.5.4).
    pub(super) old_previous_peer: Option<(SiiHandle, Time)>,
    /// The previous peer by the last notification of GIST.
    pub(super) gist_previous: Option<SiiHandle>,
    /// The peer that RESERVEs go to, once it is known.
    pub(super) next_peer: Option<SiiHandle>,
    /// The next peer by the last notification of GIST.
    pub(super) gist_next: Option<SiiHandle>,
    /// Branches to be torn down when the new one is confirmed.
    pub(super) old_branches: RareVec<OldBranch>,
    pub(super) state: Option<StateHandle>,
    pub(super) nslp_previous: NslpId,
    pub(super) nslp_next: NslpId,
    /// Remaining GIST hop count of the last RESERVE of the previous peer; `None`: they begin here. All RESERVEs of this
    /// node have it, refreshes too: nodes whose routes form a circle do not keep the session alive by each other.
    pub(super) hops: Option<u8>,
    /// The same of the last QUERY.
    pub(super) query_hops: Option<u8>,
    /// RSN of the previous peer.
    pub(super) rsn_in: Option<Rsn>,
    /// RSN of this node; `None` before the first RESERVE.
    pub(super) rsn_out: Option<u32>,
    pub(super) classifier: Option<Classifier>,
    /// The QSPEC that was sent to the next peer. Sessions with equal terms share it.
    pub(super) qspec: Arc<[u8]>,
    /// The QSPEC of the last QUERY that was sent. A QUERY with RESERVE-INIT is sent again when the route changes.
    pub(super) init_qspec: Arc<[u8]>,
    /// BOUND-SESSION-ID objects.
    pub(super) bound: RareVec<u8>,
    /// SESSION-AUTH objects. A RESERVE along a new path needs them again.
    pub(super) auth: RareVec<u8>,
    /// The authenticated sender of the last RESERVE.
    pub(super) peer: Option<Arc<Identity>>,
    /// Its address, if it answered a handshake there.
    pub(super) peer_address: Option<IpAddr>,
    /// Whose place in the table it has.
    pub(super) holder: Holder,
    /// Octets of long objects that it keeps in the share of its holder.
    pub(super) contents: u32,
    /// Unknown objects with AB=11.
    pub(super) refreshed: RareVec<u8>,
    pub(super) pending: RareVec<Pending>,
    pub(super) passed: Vec<Passed>,
    pub(super) local: Option<Box<Local>>,
    /// This relay waits for a RESERVE of its previous peer before it reserves further on.
    pub(super) doubt: Option<Box<Doubt>>,
    /// Refresh period R of the previous peer, in milliseconds.
    pub(super) period_in: u32,
    /// Refresh period R that this node sends, in milliseconds.
    pub(super) period_out: u32,
    /// End of the state unless it is refreshed; `None`: the session began here.
    pub(super) expires: Option<Time>,
    /// Time of the next refresh that this node sends.
    pub(super) refresh_at: Option<Time>,
    /// Refreshes since the last own one that were part of the summary of another session.
    pub(super) listed: u8,
    /// Refreshes with an RII are not forwarded before this time.
    pub(super) forced_after: Time,
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

    pub(super) fn new(id: SessionId, mri: Mri, nslp: NslpId, period_ms: u32) -> Self {
        Self {
            id,
            mri,
            stage: Stage::Path,
            marks: Marks::default(),
            grant: None,
            ifindex: None,
            kept: RareVec::new(),
            old_grants: RareVec::new(),
            aggregate: None,
            waits_for: None,
            rate: 0,
            previous_peer: None,
            old_previous_peer: None,
            gist_previous: None,
            next_peer: None,
            gist_next: None,
            old_branches: RareVec::new(),
            state: None,
            nslp_previous: nslp,
            nslp_next: nslp,
            hops: None,
            query_hops: None,
            rsn_in: None,
            rsn_out: None,
            classifier: None,
            qspec: Arc::default(),
            init_qspec: Arc::default(),
            bound: RareVec::new(),
            auth: RareVec::new(),
            peer: None,
            peer_address: None,
            holder: None,
            contents: 0,
            refreshed: RareVec::new(),
            pending: RareVec::new(),
            passed: Vec::new(),
            local: None,
            doubt: None,
            period_in: period_ms,
            period_out: period_ms,
            expires: None,
            refresh_at: None,
            listed: 0,
            forced_after: Time::ZERO,
            link: Link::default(),
        }
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
            return RequestedBy::LocalUser;
        }
        neighbour(self.peer_address, self.peer.is_some())
    }

    /// Whether this node answers requests because no node follows.
    pub(super) const fn is_end(&self) -> bool {
        self.marks.has(Marks::QNR) || self.marks.has(Marks::LAST_NODE) || self.marks.has(Marks::SCOPED)
    }

    /// The previous peer, if messages reach it by explicit routing only: routing state of GIST leads to another peer,
    /// which a stale branch can cause (RFC 5974 §5.2.5.4).
    pub(super) fn explicit_previous(&self) -> Option<SiiHandle> {
        self.previous_peer.filter(|back| self.gist_previous.is_some_and(|gist| gist != *back))
    }

    /// The next peer, if messages reach it by explicit routing only. It happens where RESERVEs go upstream.
    pub(super) fn explicit_next(&self) -> Option<SiiHandle> {
        let upstream = self.mri.direction() == Direction::Upstream;
        self.next_peer.filter(|onward| upstream && self.gist_next.is_some_and(|gist| gist != *onward))
    }

    /// Whether RESERVEs come from this peer, or came from it until lately.
    pub(super) fn is_previous_peer(&self, now: Time, sii: SiiHandle) -> bool {
        self.previous_peer == Some(sii)
            || self.old_previous_peer.is_some_and(|(old, until)| old == sii && now < until)
    }

    /// Whether RESERVEs go to this peer, or went to it until lately. A node that is off the path after a route change
    /// may send RESERVEs back to the node that it got them from. They must not reverse the session.
    pub(super) fn is_next_peer(&self, sii: SiiHandle) -> bool {
        self.next_peer == Some(sii) || self.old_branches.iter().any(|old| old.sii == sii)
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
    pub(super) fn remember(&mut self, rii: u32, until: Time, hops: u8) {
        const MOST: usize = 8;
        self.passed.retain(|passed| passed.rii != rii);
        if self.passed.len() >= MOST {
            self.passed.remove(0);
        }
        // Most sessions have one, which a vector would give the room of four.
        self.passed.reserve_exact(1);
        self.passed.push(Passed { rii, until, rsn: self.rsn_out, hops });
    }

    /// Whether a request that this node sent or forwarded comes back to it, since the routes form a circle. A forwarded one
    /// comes from another peer than before, with fewer hops left. `until`: a request that was forwarded so late has not been
    /// sent again by its initiator yet, perhaps on another route.
    pub(super) fn returns(&self, rii: u32, sii: Option<SiiHandle>, hops: u8, until: Time) -> bool {
        let strange = sii.is_some() && sii != self.previous_peer;
        self.pending.iter().any(|own| own.rii == rii)
            || self.passed.iter().any(|p| p.rii == rii && strange && hops < p.hops && until < p.until)
    }

    /// The same of a QUERY with RESERVE-INIT, which has no RII.
    pub(super) fn query_returns(&self, hops: u8, until: Time) -> bool {
        let lately = self.stage == Stage::Path && self.expires.is_some_and(|expires| until < expires);
        lately && self.query_hops.is_some_and(|before| hops < before)
    }

    /// Whether a request with this RII was forwarded and may still be answered.
    pub(super) fn passed(&self, now: Time, rii: u32) -> bool {
        self.passed.iter().any(|passed| passed.rii == rii && now < passed.until)
    }

    /// Whether a RESPONSE with this RII answers the latest request of the session, not an earlier one.
    pub(super) fn is_about_now(&self, rii: u32) -> bool {
        let own = self.pending.iter().map(|p| (p.rii, p.rsn));
        let passed = self.passed.iter().map(|p| (p.rii, p.rsn));
        own.chain(passed).any(|(of, rsn)| of == rii && rsn == self.rsn_out)
    }

    /// The time of the next action of the session.
    pub(super) fn deadline(&self) -> Option<Time> {
        let pending = self.pending.iter().flat_map(|p| [p.retry_at, Some(p.gives_up)]).flatten().min();
        let local = self.local.as_ref();
        let hold = local.and_then(|l| l.hold_until);
        let again = local.and_then(|l| l.reverse_deadline);
        let retry = local.and_then(|l| l.retry?.at);
        let doubt = self.doubt.as_ref().map(|doubt| doubt.at);
        [self.expires, self.refresh_at, pending, hold, again, retry, doubt].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record of a session, without its part of the tables. Its QSPEC is shared, its lists are empty as a rule.
    #[test]
    fn a_session_is_small() {
        assert_eq!(size_of::<Option<Session>>(), 536);
    }
}
