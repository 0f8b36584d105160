//! Sessions of which this node learns by a refresh of the messaging layer, because it has restarted or the path has changed.
//!
//! Who asked for the passage does not know that this node has it no more, or never had it. A RESPONSE says so, and names no request: its
//! status is "no such state" with the flag for removed state, its type of the request is 0, and its MSG_ID is drawn, so that no node on the
//! way takes it for one that has passed before. Who asked sends its request again.
//!
//! At a NAT, nothing of a flow from the inside that has no binding goes on: it would leave with an inner source.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use signalbox_core::shares::{Shares, source};
use signalbox_core::{Key, KeyedHasher, SessionId, Time, invariant};

use super::request::Contents;
use super::{End, MAX_WAITING, NatfwClient, Role, Seen};
use crate::engine::OwnedArrival;
use crate::wire::FlowId;
use crate::wire::natfw::{NatfwMessage, NatfwStatus, NatfwType, REMOVED};

/// After a change of the route, the request of the host follows the refresh in this time: then there is nothing to report, and the old
/// branch is not torn down before the new one stands.
const FOLLOWS: Duration = Duration::from_millis(500);
/// When a request goes out again, from here to three times as long: a host may have many.
const SOON: Duration = Duration::from_millis(200);
/// A request that left within this time is under way.
const UNDER_WAY: Duration = Duration::from_secs(1);
/// Reports that wait at most.
const MOST_UNKNOWN: u32 = 1024;
/// Requests that go out again because of such reports leave so far apart: a node may report without end.
const APART: Duration = Duration::from_secs(5);

/// A session that began here with a refresh.
#[derive(Debug, Clone, Copy)]
struct Begun {
    of: (SessionId, FlowId),
    /// The hop that sent the refresh.
    hop: IpAddr,
    /// When its host is informed.
    due: Time,
}

/// Sessions that began here with a refresh, and whose hosts are not informed yet. A session is here once with each flow, however often
/// it is refreshed. Each hop has a share of the places.
#[derive(Debug)]
pub(super) struct Unknown {
    queue: VecDeque<Begun>,
    queued: BTreeSet<(SessionId, FlowId)>,
    by_hop: Shares<IpAddr>,
}

impl Unknown {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self { queue: VecDeque::new(), queued: BTreeSet::new(), by_hop: Shares::new(MOST_UNKNOWN, hasher) }
    }

    /// When the first report is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.queue.front().map(|begun| begun.due)
    }

    fn has(&self, of: &(SessionId, FlowId)) -> bool {
        self.queued.contains(of)
    }

    /// Whether a place is left for a session of this hop.
    fn has_place(&self, hop: IpAddr) -> bool {
        self.by_hop.check(&source(hop), 1).is_ok()
    }

    fn keep(&mut self, begun: Begun) {
        self.by_hop.hold(source(begun.hop));
        self.queued.insert(begun.of);
        self.queue.push_back(begun);
    }

    fn take_due(&mut self, now: Time) -> Option<Begun> {
        let begun = self.queue.front().copied().filter(|begun| begun.due <= now)?;
        self.queue.pop_front();
        self.queued.remove(&begun.of);
        self.by_hop.release(source(begun.hop));
        Some(begun)
    }
}

impl NatfwClient {
    /// Takes a refresh, which is a message without octets. A NAT looks up from which side it comes.
    pub(super) fn refreshed(&mut self, job: OwnedArrival) {
        if job.last {
            self.out.consume(job.id);
        } else if self.is_unbound(&job) {
            self.look_up_sender(job);
        } else {
            self.refreshed_from(&job, false);
        }
    }

    /// Takes a refresh whose side is known. `inside`: it came from the protected network.
    pub(super) fn refreshed_from(&mut self, job: &OwnedArrival, inside: bool) {
        let known = self.find(job.session, &job.flow).is_some();
        if inside && self.is_unbound(job) {
            self.drop_unbound(job);
            self.out.consume(job.id);
        } else {
            self.go_on(job, None);
        }
        let begun = Begun { of: (job.session, job.flow), hop: job.peer, due: self.now + FOLLOWS };
        if known || self.unknown.has(&begun.of) {
            return;
        }
        if self.unknown.has_place(begun.hop) {
            self.unknown.keep(begun);
        } else if !self.report_unknown(&begun) {
            self.counters.errors_limited += 1;
            tracing::debug!(session = %job.session, peer = %job.peer, reason = "too many of its source", "report not sent");
        }
    }

    /// Informs the hosts of sessions whose request has not followed.
    pub(super) fn report_due(&mut self) {
        while let Some(begun) = self.unknown.take_due(self.now) {
            if !self.report_unknown(&begun) {
                // A node that has restarted may have lost many sessions of one hop. They are reported one after the other.
                self.unknown.keep(Begun { due: self.now + FOLLOWS, ..begun });
            }
        }
    }

    /// Reports a session, if it is still unknown. False: too many reports have left to its hop, and this one may not.
    fn report_unknown(&mut self, begun: &Begun) -> bool {
        let (session, flow) = begun.of;
        if self.find(session, &flow).is_some() {
            return true;
        }
        if !self.errors.allow(self.now, None, begun.hop) {
            return false;
        }
        self.counters.unknown += 1;
        let number = self.rng.u64();
        self.respond(begun.of, true, (number, 0), (NatfwStatus::NO_STATE, REMOVED), &[]);
        true
    }

    /// Asks from which side a message comes.
    pub(super) fn look_up_sender(&mut self, job: OwnedArrival) {
        if self.waiting.len() >= MAX_WAITING {
            self.counters.waiting_full += 1;
            tracing::debug!(session = %job.session, peer = %job.peer, reason = "too many messages wait for a route", "message dropped");
            return self.out.consume(job.id);
        }
        let peer = job.peer;
        self.look_up(job, peer, End::Sender, Seen::default());
    }

    /// Whether a message goes on along a flow for which this NAT has no binding. If it comes from the inside, it cannot be translated.
    pub(super) fn is_unbound(&self, job: &OwnedArrival) -> bool {
        let record = || self.find(job.session, &job.flow).and_then(|key| self.records.get(key));
        self.config.role == Role::Nat
            && !job.reverse
            && !job.last
            && job.flow.src().is_ipv4()
            && record().is_none_or(|record| record.binding.is_none())
    }

    /// Ends a message from the inside that asks for no binding, and has none. False: it is another one.
    pub(super) fn end_unbound(
        &mut self,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
        inside: bool,
    ) -> bool {
        let asks = match message.kind {
            NatfwType::PATH | NatfwType::CREATE => true,
            NatfwType::TRIGGER => self.is_border(contents, inside),
            _ => false,
        };
        if asks || !inside || !self.is_unbound(job) {
            return false;
        }
        self.drop_unbound(job);
        match message.kind {
            NatfwType::RESPONSE => self.out.consume(job.id),
            // What it asks for, no binding can express.
            NatfwType::TRIGGER => self.refuse(job, NatfwStatus::GRANULARITY),
            _ => self.refuse(job, NatfwStatus::NO_STATE),
        }
        true
    }

    fn drop_unbound(&mut self, job: &OwnedArrival) {
        self.counters.unbound += 1;
        tracing::debug!(session = %job.session, peer = %job.peer, reason = "this NAT has no binding for its flow", "message dropped");
    }

    /// A node of the path has no passage for a session of this node: the request goes out again before its time. One that has left a
    /// moment ago comes behind the refresh that the node reports; an older one may have been lost with the node.
    pub(super) fn ask_soon(&mut self, key: Key) {
        let now = self.now;
        let soon = now + self.rng.jitter(SOON, 1.0, 3.0);
        let Some(own) = invariant!(
            self.records.get_mut(key).and_then(|record| record.origin.own_mut()),
            "who asks again has asked"
        ) else {
            return;
        };
        let at = soon.max(own.early_from);
        let under_way = own.waits.is_some() && own.sent + UNDER_WAY > now;
        if own.stage.is_standing() && at < own.due && !under_way {
            (own.waits, own.due, own.early_from) = (None, at, at + APART);
            self.arm(key);
        }
    }
}
