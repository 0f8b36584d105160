//! Messages that would go round a circle of routes.
//!
//! A message that is passed on has a GIST hop count, which ends a circle of nodes that preserve it. Peers need not
//! preserve it (RFC 5971 A.1). A message of such a peer is passed on with a count of this node, and is stopped by what
//! needs no help of others: a request that this node sent or forwarded is known by its session and RII, a node passes
//! few messages of one session on in one time, and a refresh carries an RII of this node, which comes back to it if
//! only a circle refreshes the session.

use signalbox_core::slab::Key;
use signalbox_core::{Time, invariant};
use signalbox_resources::{End, Resources};

use super::Qos;
use super::session::{Marks, Stage};
use super::waiting::Arrival;
use crate::wire::{GenericFlags, Info, Message, MessageType};

/// Why a message that returns is refused.
const CIRCLE: &str = "the route of the flow leads in a circle";
/// Why a message that may pass no further node is refused.
const SPENT: &str = "the GIST hop count is used up";

/// Messages of peers that preserve no hop count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Uncounted {
    /// The RII that they have, and whether they are RESPONSEs.
    what: (Option<u32>, bool),
    /// How many were passed on. Each half of QOSNSLP_RETRY_MAX makes room for one more.
    count: u8,
    since: Time,
}

/// How often a session passes on a request with one RII, and a RESPONSE to it, for peers that preserve no hop count: more often
/// than an initiator repeats a request.
const MOST_TIMES: u8 = 8;
/// How many requests of a session are known so; the oldest is removed first.
const MOST_KNOWN: usize = 8;
/// Messages without RII of such peers that a session passes on.
const MOST_UNCOUNTED: u8 = 16;

impl Qos {
    /// Refuses a RESERVE or QUERY that this node may not pass on, and answers it. False: it may.
    pub(super) fn goes_no_further(
        &mut self,
        message: &Message<'_>,
        arrival: &Arrival,
        resources: &mut Resources,
    ) -> bool {
        if arrival.hops == 0 && !self.ends_here(message, arrival) {
            self.counters.hop_limit += 1;
            tracing::debug!(session = %arrival.session, peer = ?arrival.sii, reason = SPENT, "message refused");
            self.answer(arrival, message, Info::RESERVATION_FAILURE, Some(SPENT));
            return true;
        }
        if !self.returns(message, arrival) {
            return false;
        }
        self.counters.returned += 1;
        tracing::debug!(session = %arrival.session, peer = ?arrival.sii, reason = CIRCLE, "message refused");
        self.answer(arrival, message, Info::RESERVATION_FAILURE, Some(CIRCLE));
        self.end_circle(message, arrival, resources);
        true
    }

    /// Whether the path of a RESERVE or QUERY ends at this node, so that it is not passed on.
    fn ends_here(&self, message: &Message<'_>, arrival: &Arrival) -> bool {
        arrival.at_flow_end
            || message.generic.contains(GenericFlags::SCOPING)
            || super::binding::ends_at_proxy(&self.config, message)
    }

    /// Whether a RESERVE or QUERY comes back to this node, which sent or forwarded it. Without an answer it would go round
    /// until its hop count is used up, and its initiator would have no event.
    fn returns(&mut self, message: &Message<'_>, arrival: &Arrival) -> bool {
        let first_try = self.now + self.config.retry_max.saturating_sub(self.config.request_retry);
        let Some(key) = self.find(arrival.session) else { return false };
        let Some(session) = invariant!(self.sessions.get(key), "a return has a session") else {
            return false;
        };
        let known = match message.rii {
            Some(rii) => session.returns(rii, arrival, first_try),
            None => {
                arrival.counted && message.is_reserve_init() && session.query_returns(arrival.hops, first_try)
            }
        };
        // A refresh without RII is not forwarded.
        let news = message.kind == MessageType::QUERY || session.rsn_in.get() != message.rsn;
        let passes = message.rii.is_some() || news;
        known || (!arrival.counted && passes && !self.may_pass_uncounted(key, (message.rii, false)))
    }

    /// Whether one more message of a peer that preserves no hop count may be passed on for a session.
    fn may_pass_uncounted(&mut self, key: Key, what: (Option<u32>, bool)) -> bool {
        let (now, pause) = (self.now, self.config.retry_max / 2);
        let most = if what.0.is_some() { MOST_TIMES } else { MOST_UNCOUNTED };
        let Some(session) = invariant!(self.sessions.get_mut(key), "a counted message has a session") else {
            return false;
        };
        session.rare.change(|rare| {
            let known = &mut rare.uncounted;
            let Some(entry) = known.iter_mut().find(|entry| entry.what == what) else {
                if known.len() >= MOST_KNOWN {
                    known.remove(0);
                }
                known.push(Uncounted { what, count: 1, since: now });
                return true;
            };
            while entry.count > 0 && entry.since + pause <= now {
                entry.count -= 1;
                entry.since = entry.since + pause;
            }
            if entry.count == 0 {
                entry.since = now;
            }
            let passes = entry.count < most;
            entry.count = (entry.count + 1).min(most);
            passes
        })
    }

    /// Whether a RESPONSE or NOTIFY may pass a further node. One that may not is counted.
    pub(super) fn may_pass_back(&mut self, key: Key, rii: Option<u32>, arrival: &Arrival) -> bool {
        if arrival.counted {
            return arrival.may_pass(&mut self.counters);
        }
        if self.may_pass_uncounted(key, (rii, true)) {
            return true;
        }
        self.counters.returned += 1;
        tracing::debug!(session = %arrival.session, peer = ?arrival.sii, reason = CIRCLE, "message dropped");
        false
    }

    /// The RII of a refresh whose hop count would be one of this node. A RESERVE with it that comes back shows that only a
    /// circle refreshes the session. Every second refresh has none if refreshes are to be acknowledged, because a RESERVE
    /// cannot ask for both.
    pub(super) fn mark_refresh(&mut self, key: Key, acknowledged: bool) -> Option<u32> {
        let uncounted = self.has(key, Marks::UNCOUNTED);
        let last = invariant!(self.sessions.get(key), "a mark has a session")?.rare.circling;
        if !uncounted && last.is_none() {
            return None;
        }
        let rii = (uncounted && !(acknowledged && last.is_some())).then(|| self.new_rii(key));
        invariant!(self.sessions.get_mut(key), "an RII ends no session")?
            .rare
            .change(|rare| rare.circling = rii);
        rii
    }

    /// Ends a reservation that only a circle refreshes: an own refresh came back from the previous peer.
    fn end_circle(&mut self, message: &Message<'_>, arrival: &Arrival, resources: &mut Resources) {
        let Some(key) = invariant!(self.find(arrival.session), "what returns is known") else { return };
        let Some(session) = invariant!(self.sessions.get(key), "a circle has a session") else { return };
        let own = message.rii.is_some() && message.rii == session.rare.circling;
        if !own || session.previous_peer() != arrival.sii || session.stage != Stage::Reserved {
            return;
        }
        resources.because(End::TornDown);
        self.release(key, resources);
        self.on_gone(key);
        self.tear_towards_qnr(key, None, None, 0, resources);
    }
}
