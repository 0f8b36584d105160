//! What a node knows of a session (RFC 5974 §5.2.1).
//!
//! "Onward" is the way RESERVEs go, towards the QNR; "back" is towards the QNI.

use core::time::Duration;
use std::sync::Arc;

use signalbox_core::security::Identity;
use signalbox_core::service::{SiiHandle, StateHandle};
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Direction, IfIndex, Mri, NslpId, SessionId, Time};
use signalbox_resources::GrantId;

use super::command::ReserveRequest;
use super::event::{Granted, HopGrant};
use crate::wire::{Classifier, MessageId, Rsn};

/// How far a session has come at this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// A QUERY passed: an answer, or a RESERVE the other way, may come back.
    Path,
    /// A RESERVE was granted here.
    Reserved,
    /// Operation state only: the reservation is gone, and what is still on its way shall find its way.
    Torn,
}

/// Facts that are true or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Marks(u32);

impl Marks {
    /// The flow ends here, or the operator said so: this node is the QNR.
    pub(super) const END: Self = Self(0x01);
    /// GIST found nobody further on: this node answers, and goes on looking.
    pub(super) const LAST: Self = Self(0x02);
    /// PROXY was set in what was received.
    pub(super) const PROXY: Self = Self(0x04);
    /// BREAK was set in what was received, or there are gaps before this node.
    pub(super) const BREAK: Self = Self(0x08);
    /// A RESPONSE told that the reservation stands further on: refreshes need no QSPEC.
    pub(super) const CONFIRMED: Self = Self(0x10);
    /// The next peer wants a QSPEC in each refresh.
    pub(super) const FULL_ONLY: Self = Self(0x20);
    /// REPLACE was clear.
    pub(super) const KEEP: Self = Self(0x40);
    /// The last RESERVE had SCOPING: it did not go on, and refreshes do not either.
    pub(super) const SCOPED: Self = Self(0x80);
    /// The QUERY of this session had RESERVE-INIT: a RESERVE comes the other way.
    pub(super) const RECEIVER: Self = Self(0x100);
    /// A refresh that the next peer shall acknowledge was sent, and it did not yet.
    pub(super) const UNACKNOWLEDGED: Self = Self(0x200);
    /// The route may have changed: the RESERVE that is to come leaves with RSN + 2.
    pub(super) const REROUTING: Self = Self(0x400);
    /// A RESERVE is with GIST, which has not told what became of it.
    pub(super) const IN_GIST: Self = Self(0x800);
    /// RESERVEs begin here: this node is the QNI.
    pub(super) const QNI: Self = Self(0x1000);
    /// It was confirmed once, before a change perhaps: an error further on does not end it here.
    pub(super) const STOOD: Self = Self(0x2000);
    /// The route onward changed, and the new one is being looked up.
    pub(super) const REPAIRING: Self = Self(0x4000);
    /// The next peer says that the route before it changed: this node may be off the path.
    pub(super) const DOUBTED: Self = Self(0x8000);
    /// The peer that RESERVEs come from was told that the route after it changed.
    pub(super) const TOLD: Self = Self(0x1_0000);
    /// The flow's route leads back to where it comes from: this node waits to hear that it is on the path.
    pub(super) const OFF_PATH: Self = Self(0x2_0000);
    /// The route changed lately, and is looked up again with the next refresh.
    pub(super) const UNSETTLED: Self = Self(0x4_0000);

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) const fn set(&mut self, other: Self, on: bool) {
        self.0 = if on { self.0 | other.0 } else { self.0 & !other.0 };
    }
}

/// What a request of this node is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// A reservation, new or changed.
    Reserve,
    /// The confirmation that it was torn down.
    Tear,
    /// What the path could give.
    Query,
    /// That the new path holds it as well; then the old one is torn down.
    Repair,
    /// That the far end reserves: a RESERVE comes, and no RESPONSE.
    Init,
    /// That the next peer is alive: no RII, but ACK-REQ.
    Acknowledge,
    /// That the receiver tears down what this node, which sends, does not want any more: a NOTIFY, and a tear comes.
    Farewell,
}

/// A request of this node that waits for its RESPONSE (§5.2.4).
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) rii: u32,
    pub(super) want: Want,
    /// The session's own number when it was sent.
    pub(super) rsn: Option<u32>,
    /// As sent; sent again octet for octet.
    pub(super) octets: Vec<u8>,
    /// When it is sent again.
    pub(super) retry_at: Option<Time>,
    pub(super) interval: Duration,
    pub(super) gives_up: Time,
}

/// A request of somebody else that passed: its RESPONSE passes too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    pub(super) rii: u32,
    pub(super) until: Time,
    /// The session's own number when it passed.
    pub(super) rsn: Option<u32>,
}

/// A branch that the session left after a change of the route.
#[derive(Debug, Clone, Copy)]
pub(super) struct OldBranch {
    pub(super) sii: SiiHandle,
    /// The number that its tear has: above all that went there, below what went along the new branch (§5.2.5.2).
    pub(super) rsn: u32,
}

/// What a user wanted of a session that began here.
#[derive(Debug)]
pub(super) enum Wish {
    /// A reservation.
    Reserve(Box<ReserveRequest>),
    /// An answer.
    Query,
    /// A reservation, because the flow's sender asked for it.
    ForSender,
    /// The way back of somebody's bidirectional reservation.
    WayBack(SessionId),
    /// An aggregate, by its number in the configuration.
    Aggregate(usize),
}

/// What only a session has that began here, or is asked for from here.
#[derive(Debug)]
pub(super) struct Local {
    /// The user's name for it; `None` for our own purposes.
    pub(super) command: Option<u64>,
    pub(super) wish: Wish,
    /// The user heard that it stands.
    pub(super) granted: bool,
    /// The user has enough of it.
    pub(super) releasing: bool,
    pub(super) hold_until: Option<Time>,
    /// The session of the way back, and whether it stands.
    pub(super) back: Option<(SessionId, bool)>,
    /// What stood before a change that is not granted yet.
    pub(super) before: Option<Before>,
    /// What the nodes on the way told last.
    pub(super) hops: Vec<HopGrant>,
    /// The forward direction stands, and the user hears of it when the way back does.
    pub(super) waiting: Option<Box<Granted>>,
    /// Until when the way back has to stand.
    pub(super) again_at: Option<Time>,
    /// It failed for the moment, and is asked for again.
    pub(super) retry: Option<Retry>,
}

impl Local {
    pub(super) const fn of(command: Option<u64>, wish: Wish) -> Self {
        Self {
            command,
            wish,
            granted: false,
            releasing: false,
            hold_until: None,
            back: None,
            before: None,
            hops: Vec::new(),
            waiting: None,
            again_at: None,
            retry: None,
        }
    }
}

/// A request that is sent anew.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    pub(super) want: Want,
    /// How often it was.
    pub(super) count: u8,
    /// When it will be; `None`: it is on its way.
    pub(super) at: Option<Time>,
}

/// What a change goes back to if it is refused.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) request: Box<ReserveRequest>,
    pub(super) mri: Mri,
}

/// The record.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    /// Flow; the direction is that of its RESERVEs.
    pub(super) mri: Mri,
    pub(super) stage: Stage,
    pub(super) marks: Marks,
    /// What it holds here; none at the flow's end.
    pub(super) grant: Option<GrantId>,
    /// Where.
    pub(super) ifindex: Option<IfIndex>,
    /// What it holds for flows that it was told not to replace (REPLACE=0).
    pub(super) kept: Vec<(Mri, GrantId)>,
    /// What it still holds at the old interface while a changed route is repaired.
    pub(super) old_grants: Vec<GrantId>,
    /// The aggregate that it is in, and with how much.
    pub(super) trunk: Option<(usize, u64)>,
    /// The message that its RESERVE onward has to wait for, repetitions included (§4.6).
    pub(super) waits_for: Option<MessageId>,
    /// Octets a second held.
    pub(super) rate: u64,
    /// The peer that RESERVEs come from; `None`: they begin here.
    pub(super) back: Option<SiiHandle>,
    /// The peer before that one, which counts again only when it was silent until then (§5.2.5.4).
    pub(super) old_back: Option<(SiiHandle, Time)>,
    /// Where GIST's way back led when it changed last.
    pub(super) gist_back: Option<SiiHandle>,
    /// The peer that RESERVEs go to, once it was heard of.
    pub(super) onward: Option<SiiHandle>,
    /// Where GIST's way onward led when it changed last.
    pub(super) gist_onward: Option<SiiHandle>,
    /// Branches to be torn down when the new one stands.
    pub(super) old_branches: Vec<OldBranch>,
    pub(super) state: Option<StateHandle>,
    pub(super) nslp_back: NslpId,
    pub(super) nslp_onward: NslpId,
    /// Of the peer that RESERVEs come from.
    pub(super) rsn_in: Option<Rsn>,
    /// Ours; `None` before the first RESERVE.
    pub(super) rsn_out: Option<u32>,
    pub(super) classifier: Option<Classifier>,
    /// As sent onward.
    pub(super) qspec: Vec<u8>,
    /// The QSPEC of the last QUERY with RESERVE-INIT as it went on, to ask again when the route changes.
    pub(super) init_qspec: Vec<u8>,
    /// BOUND-SESSION-ID objects.
    pub(super) bound: Vec<u8>,
    /// SESSION-AUTH objects: a repair on a new path needs them again.
    pub(super) auth: Vec<u8>,
    /// Who proved to have sent the last RESERVE.
    pub(super) peer: Option<Arc<Identity>>,
    /// Unknown objects with AB=11.
    pub(super) refreshed: Vec<u8>,
    pub(super) pending: Vec<Pending>,
    pub(super) passed: Vec<Passed>,
    pub(super) local: Option<Box<Local>>,
    /// R of the peer that RESERVEs come from, in milliseconds.
    pub(super) period_in: u32,
    /// R that we tell the next one, in milliseconds.
    pub(super) period_out: u32,
    /// When the state ends unless refreshed; `None`: it began here.
    pub(super) expires: Option<Time>,
    /// When we refresh.
    pub(super) refresh_at: Option<Time>,
    /// So many of its last refreshes went in the lists of other sessions.
    pub(super) listed: u8,
    /// A forced refresh does not go on before.
    pub(super) forced_after: Time,
    pub(super) link: Link,
}

impl Timed for Session {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Session {
    pub(super) fn new(id: SessionId, mri: Mri, nslp: NslpId, period_ms: u32) -> Self {
        Self {
            id,
            mri,
            stage: Stage::Path,
            marks: Marks::default(),
            grant: None,
            ifindex: None,
            kept: Vec::new(),
            old_grants: Vec::new(),
            trunk: None,
            waits_for: None,
            rate: 0,
            back: None,
            old_back: None,
            gist_back: None,
            onward: None,
            gist_onward: None,
            old_branches: Vec::new(),
            state: None,
            nslp_back: nslp,
            nslp_onward: nslp,
            rsn_in: None,
            rsn_out: None,
            classifier: None,
            qspec: Vec::new(),
            init_qspec: Vec::new(),
            bound: Vec::new(),
            auth: Vec::new(),
            peer: None,
            refreshed: Vec::new(),
            pending: Vec::new(),
            passed: Vec::new(),
            local: None,
            period_in: period_ms,
            period_out: period_ms,
            expires: None,
            refresh_at: None,
            listed: 0,
            forced_after: Time::ZERO,
            link: Link::default(),
        }
    }

    /// Nobody follows: this node answers.
    pub(super) const fn is_end(&self) -> bool {
        self.marks.has(Marks::END) || self.marks.has(Marks::LAST) || self.marks.has(Marks::SCOPED)
    }

    /// The peer that has to be named so that a message reaches it: GIST's way back leads to another one, which is
    /// what a stale branch may do to it (§5.2.5.4).
    pub(super) fn astray(&self) -> Option<SiiHandle> {
        self.back.filter(|back| self.gist_back.is_some_and(|gist| gist != *back))
    }

    /// The same onward, where RESERVEs go against the flow.
    pub(super) fn astray_onward(&self) -> Option<SiiHandle> {
        let upstream = self.mri.direction() == Direction::Upstream;
        self.onward.filter(|onward| upstream && self.gist_onward.is_some_and(|gist| gist != *onward))
    }

    /// Whether RESERVEs come, or came until lately, from this peer.
    pub(super) fn is_behind(&self, now: Time, sii: SiiHandle) -> bool {
        self.back == Some(sii) || self.old_back.is_some_and(|(old, until)| old == sii && now < until)
    }

    /// Whether RESERVEs go to this peer, or went until lately: a node that a changed route left may find its way back
    /// to the one that it was reached from, and must not turn the session round.
    pub(super) fn is_ahead(&self, sii: SiiHandle) -> bool {
        self.onward == Some(sii) || self.old_branches.iter().any(|old| old.sii == sii)
    }

    /// RESERVEs begin here because nobody nearer to the receiver could be found when the sender asked; packets go on.
    pub(super) fn stands_in(&self) -> bool {
        let for_sender = self.local.as_ref().is_some_and(|local| matches!(local.wish, Wish::ForSender));
        for_sender && self.ifindex.is_some()
    }

    /// The tear of this node waits for its confirmation.
    pub(super) fn is_being_torn(&self) -> bool {
        self.pending.iter().any(|pending| pending.want == Want::Tear)
    }

    /// The next own sequence number: 0 at first, then one more (RFC 5974 §5.3.1).
    pub(super) fn next_rsn(&mut self) -> u32 {
        let next = self.rsn_out.map_or(0, |rsn| rsn.wrapping_add(1));
        self.rsn_out = Some(next);
        next
    }

    /// Remembers the RII of a request that passes. Few are kept: the oldest goes first.
    pub(super) fn remember(&mut self, rii: u32, until: Time) {
        const MOST: usize = 8;
        self.passed.retain(|passed| passed.rii != rii);
        if self.passed.len() >= MOST {
            self.passed.remove(0);
        }
        self.passed.push(Passed { rii, until, rsn: self.rsn_out });
    }

    /// Whether a request with this RII passed and may still be answered.
    pub(super) fn passed(&self, now: Time, rii: u32) -> bool {
        self.passed.iter().any(|passed| passed.rii == rii && now < passed.until)
    }

    /// Whether a RESPONSE of this RII is about what the session asks for now, and not about what it asked for before.
    pub(super) fn is_about_now(&self, rii: u32) -> bool {
        let own = self.pending.iter().map(|p| (p.rii, p.rsn));
        let passed = self.passed.iter().map(|p| (p.rii, p.rsn));
        own.chain(passed).any(|(of, rsn)| of == rii && rsn == self.rsn_out)
    }

    /// When something is to be done next.
    pub(super) fn deadline(&self) -> Option<Time> {
        let pending = self.pending.iter().flat_map(|p| [p.retry_at, Some(p.gives_up)]).flatten().min();
        let local = self.local.as_ref();
        let hold = local.and_then(|l| l.hold_until);
        let again = local.and_then(|l| l.again_at);
        let retry = local.and_then(|l| l.retry?.at);
        [self.expires, self.refresh_at, pending, hold, again, retry].into_iter().flatten().min()
    }
}
