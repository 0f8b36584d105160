//! Sessions that begin at this node with a refresh of the messaging layer: the node was started anew, or the path has changed.
//!
//! Who asked for the passage does not know that this node has it no more, or never had it. A RESPONSE says so, and names no request: its
//! status is "no such state" with the flag for removed state, its type of the request is 0, and its MSG_ID is drawn, so that no node on the
//! way takes it for one that has passed before. Who asked sends its request again.
//!
//! At a NAT, nothing of a flow from the inside that has no binding goes on: it would leave with an inner source.

use core::time::Duration;

use signalbox_core::{Key, invariant};

use super::record::Stage;
use super::request::Said;
use super::{End, MAX_WAITING, NatfwClient, Role, Seen};
use crate::engine::OwnedArrival;
use crate::wire::natfw::{NatfwMessage, NatfwStatus, NatfwType, REMOVED};

/// When a request goes out again, from here to three times as long: a host may have many.
const SOON: Duration = Duration::from_millis(200);

impl NatfwClient {
    /// Takes a refresh, which is a message without data. A NAT looks up from which side it comes.
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
        // Its request may have arrived meanwhile.
        if !known {
            self.counters.unknown += 1;
            let of = (job.session, job.flow);
            let number = self.rng.u64();
            self.respond(of, true, (number, 0), (NatfwStatus::NO_STATE, REMOVED), &[]);
        }
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
        said: &Said,
        inside: bool,
    ) -> bool {
        let asks = match message.kind {
            NatfwType::PATH | NatfwType::CREATE => true,
            NatfwType::TRIGGER => self.is_border(said, inside),
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

    /// A node of the path has no passage for a session of this node: the request goes out again before its time.
    pub(super) fn ask_soon(&mut self, key: Key) {
        let at = self.now + self.rng.jitter(SOON, 1.0, 3.0);
        let Some(own) = invariant!(
            self.records.get_mut(key).and_then(|record| record.own.as_mut()),
            "who asks again has asked"
        ) else {
            return;
        };
        // One that is under way may have been lost with the node.
        if own.stage == Stage::Standing && at < own.due {
            (own.waits, own.due) = (None, at);
            self.arm(key);
        }
    }
}
