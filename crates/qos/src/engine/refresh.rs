//! Refreshes, received and sent (RFC 5974 §5.3.4; RFC 2205 §3.7).

use signalbox_core::invariant;
use signalbox_core::slab::Key;
use signalbox_core::stamp::Moment;

use super::Qos;
use super::compose::{DEFAULT_PERIOD_MS, Extra, Form};
use super::grant::copy_objects;
use super::path_check::Request;
use super::session::{Marks, RequestKind, Session, Stage};
use super::summary::Lists;
use super::waiting::Arrival;
use crate::wire::{GenericFlags, Hops, Info, Message};

/// The next refresh period R: it grows by at most 30 % from one refresh to the next (Slew.Max), and falls at once (RFC
/// 2205 §3.7).
pub(super) fn slewed(current: u32, target: u32) -> u32 {
    let most = u64::from(current) + u64::from(current) * 3 / 10;
    target.min(u32::try_from(most).unwrap_or(u32::MAX)).max(1)
}

impl Qos {
    /// Handles a RESERVE that only refreshes (RFC 5974 §5.4.1).
    pub(super) fn on_refresh(&mut self, key: Key, message: &Message<'_>, arrival: &Arrival) {
        let period = message.refresh_period.unwrap_or(DEFAULT_PERIOD_MS);
        let expires = self.now + self.config.lifetime(period);
        let until = self.now + self.config.retry_max;
        let forced = self.now + self.config.forced_refresh_interval;
        let Some(session) = invariant!(self.sessions.get_mut(key), "a refresh has a session") else { return };
        self.counters.refreshed += 1;
        tracing::trace!(session = %session.id, "reservation refreshed");
        session.expires = expires.into();
        session.period_in = period;
        session.state = arrival.state.into();
        session.hops = Some(arrival.hops);
        session.end_report(arrival.sii);
        session.marks.set(Marks::UNCOUNTED, !arrival.counted);
        if !message.refreshed.is_empty() {
            session.rare.change(|rare| copy_objects(&mut rare.refreshed, &message.refreshed));
        }
        if message.generic.contains(GenericFlags::PROXY) {
            session.marks.set(Marks::PROXY, true);
        }
        let off_path = session.marks.has(Marks::OFF_PATH);
        let gap = self.after_gap(arrival) && !self.config.ignore_gaps;
        self.note_gaps(key, Marks::BREAK, message.generic.with_if(GenericFlags::BREAK, gap), false);
        self.verify_route(key);
        if off_path {
            self.send_whole(key, RequestKind::Repair);
        }
        self.acknowledge(arrival, message, message.rsn);
        self.on_listed_refreshes(message, arrival);
        let Some(session) = invariant!(self.sessions.get(key), "a list ends no session") else { return };
        let (checks, rate) = (session.checks_path(), session.rate);
        let request = message.rii.filter(|_| checks).map(|rii| Request {
            rii,
            hops: self.hops_with_own(message.hops, arrival, rate).unwrap_or_default(),
        });
        if self.end_path_check(key, request) {
            return;
        }
        let Some(rii) = message.rii else { return };
        let Some(session) = invariant!(self.sessions.get(key), "a path check ends no session") else {
            return;
        };
        let hops = self.hops_with_own(message.hops, arrival, session.rate);
        let bound = self.unsettled(message, arrival);
        let hops = hops.as_deref().and_then(Hops::from_octets);
        let Some(session) = invariant!(self.sessions.get_mut(key), "hops are of a session") else { return };
        if session.is_end() || message.generic.contains(GenericFlags::SCOPING) {
            return self.respond(key, rii, Info::REFRESHED, hops);
        }
        // With an RII the refresh goes to the QNR (§5.1.2.1), but the rate is limited (§7). While GIST still looks for
        // the next node, a retransmission is not forwarded: the first copy is.
        if session.marks.has(Marks::IN_GIST) && session.passed(self.now, rii) {
            return;
        }
        if !session.forced_after.is_due(self.now) {
            self.counters.rate_limited += 1;
            tracing::debug!(
                session = %session.id,
                reason = "refreshes with RII come too fast",
                "refresh not forwarded"
            );
            return;
        }
        session.forced_after = forced.into();
        session.note(rii, until, arrival.hops);
        let extra = Extra {
            rii: Some(rii),
            hops,
            msg_id: message.msg_id.filter(|_| session.rare.waits_for.is_none()),
            bound_msg_id: session.rare.waits_for.or(bound),
            forwarded: Some(message.forwarded),
            gist_hops: Some(arrival.hops),
            sii: session.explicit_next(),
            ..Extra::default()
        };
        if self.send_reserve(key, Form::Full, extra).is_some() {
            self.counters.full_refreshes_sent += 1;
        }
    }

    /// Sends the refresh of a session that is due (RFC 5974 §5.3.4).
    pub(super) fn refresh(&mut self, key: Key) {
        let target = self.config.period_ms();
        let Some(session) = invariant!(self.sessions.get_mut(key), "a due refresh has a session") else {
            return;
        };
        if session.stage != Stage::Reserved
            || session.marks.has(Marks::QNR)
            || session.marks.has(Marks::SCOPED)
        {
            session.refresh_at = Moment::NEVER;
            return;
        }
        if session.marks.has(Marks::ROUTE_UNSETTLED) {
            session.marks.set(Marks::ROUTE_UNSETTLED, false);
            self.verify_interface(key);
        }
        self.forget_taken(key);
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.period_out = slewed(session.period_out, target);
        let period = core::time::Duration::from_millis(session.period_out.into());
        session.refresh_at = (self.now + self.rng.jitter(period, 0.5, 1.5)).into();
        // A session with a pending request is not refreshed: the request is retransmitted.
        if !session.pending.is_empty() || session.marks.has(Marks::OFF_PATH) || session.checks_path() {
            return;
        }
        self.send_refresh(key);
        // §5.2.5.1: a node nearer to the receiver may exist now.
        if let Some(session) = self.sessions.get(key).filter(|session| session.stands_in()) {
            self.send_query(key, session.mri().inverted(), true, Extra::default());
        }
        self.rearm(key);
    }

    /// Refreshes the state of a session at the next peer now: without QSPEC if that peer is known to have it.
    pub(super) fn send_refresh(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get(key), "a sent refresh has a session") else {
            return;
        };
        let marks = session.marks;
        // A node without a next peer sends all objects that a new next node would need (§5.2.5.1).
        let reduced = self.config.reduced_refresh
            && marks.has(Marks::CONFIRMED)
            && !marks.has(Marks::FULL_ONLY)
            && !marks.has(Marks::LAST_NODE);
        let form = if reduced { Form::Reduced } else { Form::Full };
        let ack =
            self.config.acknowledged_refresh && marks.has(Marks::CONFIRMED) && !marks.has(Marks::LAST_NODE);
        let rii = self.mark_refresh(key, ack);
        let ack = ack && rii.is_none();
        let may_list = reduced && !ack && self.config.summary > 0 && !marks.has(Marks::UNCOUNTED);
        let lists = if may_list { self.companions(key) } else { Lists::default() };
        let sii = self.sessions.get(key).and_then(Session::explicit_next);
        let extra = Extra { rii, ack, sii, keep: ack, lists: lists.objects(self.epoch), ..Extra::default() };
        if let Some(octets) = self.send_reserve(key, form, extra) {
            if let Some(session) = invariant!(self.sessions.get_mut(key), "sending ends no session") {
                session.listed = 0;
            }
            if ack {
                // §5.2.4: it is retransmitted like a request. After QOSNSLP_RETRY_MAX the loss of the next peer is
                // reported.
                let rii = self.new_rii(key);
                self.expect(key, rii, RequestKind::Acknowledgment, octets);
            }
            match form {
                Form::Reduced => self.counters.reduced_refreshes_sent += 1,
                _ => self.counters.full_refreshes_sent += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::slewed;

    /// QOS-5.3.4-03
    #[test]
    fn the_period_grows_by_three_tenths_at_most() {
        let mut sent = vec![10_000];
        while sent.last() != Some(&20_000) {
            sent.push(slewed(*sent.last().unwrap(), 20_000));
        }
        assert_eq!(sent, [10_000, 13_000, 16_900, 20_000]);
        assert_eq!(slewed(20_000, 5_000), 5_000, "it falls at once");
        assert_eq!(slewed(u32::MAX, u32::MAX), u32::MAX);
    }
}
