//! Timers of the neighbor layer.

use core::time::Duration;

use signalbox_core::slab::Key;
use signalbox_core::{Time, invariant};

use super::{Neighbors, Upcall, hello};

/// Longest interval between retransmissions.
const LONGEST: Duration = Duration::from_secs(600);

impl Neighbors {
    /// Handles what is due now, `most` of each kind. The rest stays due.
    pub fn tick(&mut self, most: u32) {
        self.out.recycle();
        for _ in 0..most {
            let Some(waiting) = self.sent.pop_due(self.now) else { break };
            self.overdue(waiting);
        }
        for _ in 0..most {
            let Some(summary) = self.summaries.pop_due(self.now) else { break };
            self.flush_summary(summary);
        }
        for _ in 0..most {
            let Some(peer) = self.peers.pop_due(self.now) else { break };
            self.serve(peer);
        }
        for _ in 0..most {
            let config = &self.config;
            let ask = self.associations.next_challenge(self.now, |ifindex| config.of(ifindex).integrity);
            let Some(ask) = ask else { break };
            self.challenge(&ask);
        }
    }

    /// Handles a message that was not acknowledged in time (RFC 2961 §6): it is sent again up to the limit. State does
    /// not change.
    fn overdue(&mut self, waiting: Key) {
        let Some(pending) = invariant!(self.sent.pending_mut(waiting), "a timer ends with its message")
        else {
            return;
        };
        let settings = self.config.of(pending.envelope.ifindex).reduction;
        let entry = pending.entry;
        let id = self.sent.get(entry).map(|sent| (sent.id, sent.tag()));
        let Some((id, tag)) = invariant!(id, "a message ends with its MESSAGE_ID") else { return };
        let Some(pending) = invariant!(self.sent.pending_mut(waiting), "an overdue message stands") else {
            return;
        };
        let towards = (pending.envelope.ifindex, pending.envelope.towards);
        if pending.count >= settings.limit.max(1) {
            self.counters.unacknowledged += 1;
            tracing::debug!(dst = %pending.envelope.dst, id, reason = "retry limit", "message not acknowledged");
            let (envelope, interval, answered) = (pending.envelope, pending.interval, pending.answered);
            if !answered && self.standings.exhausted(self.now, towards, interval) {
                self.counters.neighbors_plain += 1;
                tracing::info!(dst = %envelope.dst, "neighbor acknowledges nothing, and gets plain RFC 2205 for some time");
            }
            if !answered && !self.is_reliable(towards.0, towards.1) {
                return self.send_without(entry);
            }
            if tag.is_none() {
                self.sent.remove(entry);
            } else {
                self.sent.settle(entry);
            }
            return;
        }
        if pending.count == 1 && !pending.answered {
            let unicast = towards.1 != 0 && !pending.envelope.dst.is_multicast();
            if unicast && !self.standings.is_able(towards) {
                // The message may have been dropped for its MESSAGE_ID: the next try has none.
                if self.standings.ignored(self.now, towards) {
                    self.counters.neighbors_plain += 1;
                    self.upcalls.push_back(Upcall::Shown { towards, able: false });
                    tracing::info!(dst = %pending.envelope.dst, "neighbor does not acknowledge, and gets plain RFC 2205 until it shows that it can");
                }
                self.counters.names_ignored += 1;
                return self.send_without(entry);
            }
            self.standings.silent(self.now, towards);
        }
        let Some(pending) =
            invariant!(self.sent.pending_mut(waiting), "a message stands until it is sent again")
        else {
            return;
        };
        pending.count += 1;
        let longer =
            Duration::try_from_secs_f64(pending.interval.as_secs_f64() * (1.0 + settings.delta.max(0.0)));
        pending.interval = longer.unwrap_or(LONGEST).min(LONGEST);
        let (envelope, interval) = (pending.envelope, pending.interval);
        let octets = core::mem::take(&mut pending.octets);
        self.sent.rearm(waiting, self.now + interval);
        self.counters.retransmissions += 1;
        tracing::debug!(dst = %envelope.dst, id, "message sent again");
        self.retransmit(envelope, &octets, (entry, id));
        if let Some(pending) = self.sent.pending_mut(waiting) {
            pending.octets = octets;
        }
    }

    fn serve(&mut self, key: Key) {
        let Some(peer) = invariant!(self.peers.get_mut(key), "a timed neighbor stands") else { return };
        let due = |time: Option<Time>| time.is_some_and(|time| time <= self.now);
        let (acks, bundle) = (due(peer.acks_due), due(peer.bundle_due));
        let (addr, ifindex) = (peer.addr, peer.ifindex);
        if acks {
            self.flush_acks(key);
        }
        if bundle {
            self.flush_bundle(key);
        }
        self.serve_hello(key);
        let Some(peer) = invariant!(self.peers.get_mut(key), "a served neighbor stands") else { return };
        if peer.is_idle(self.now) {
            let towards = (ifindex, self.mark(addr));
            self.standings.forget(towards);
            self.peers.remove(key);
            return;
        }
        if peer.refs > 0 {
            peer.touch_if_silent(self.now);
        }
        self.peers.rearm(key);
    }

    fn serve_hello(&mut self, key: Key) {
        let Some(peer) = invariant!(self.peers.get_mut(key), "a neighbor with Hello stands") else { return };
        let (neighbor, ifindex) = (peer.addr, peer.ifindex);
        let Some(config) = self.config.of(ifindex).hello else { return };
        let Some(state) = &mut peer.hello else { return };
        let (verdict, request) = state.tick(self.now, &config, &mut self.rng);
        if verdict == hello::Verdict::Lost {
            self.lost(neighbor, ifindex);
        }
        if let Some(request) = request {
            self.send_hello(neighbor, ifindex, &request);
        }
    }
}
