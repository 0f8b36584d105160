//! The slow refresh period Rs (draft-pan-rsvp-timer-00 §3.2): state that all next hops acknowledged is refreshed less and
//! less often. A longer period stands in the TIME_VALUES of a message that was acknowledged before it becomes the
//! interval, so the lifetime at the next hop grows first. Each step grows by Slew.Max at most (RFC 2205 §3.7). Any change
//! begins with R again.

use core::net::IpAddr;

use signalbox_core::{Key, invariant};

use super::SentState;
use crate::engine::Rsvp;
use crate::engine::interfaces::{Iface, milliseconds};

/// Refresh periods of a state that acknowledged messages have raised, milliseconds; 0: they are R.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::engine) struct Pace {
    /// In the TIME_VALUES of the last message.
    announced: u32,
    /// Acknowledged: the refresh interval.
    confirmed: u32,
}

impl Rsvp {
    /// Rs of an interface in milliseconds, and Slew.Max; `None`: the refresh period stays R.
    fn slow(&self, iface: Iface) -> Option<(u32, f64)> {
        let config = &self.interfaces.get(iface)?.config;
        let staged = config.staged.filter(|staged| staged.slow_refresh)?;
        Some((milliseconds(staged.slow), config.slew_max))
    }

    /// Chooses the period in the TIME_VALUES of the next whole message about a state. `refresh`: the message repeats the
    /// last one.
    pub(in crate::engine) fn choose_pace(&mut self, iface: Iface, about: &SentState, refresh: bool) {
        let Some((slow, slew_max)) = self.slow(iface) else { return };
        let period = self.interfaces.period(iface, self.now);
        let Some(before) = self.message_ids.pace(about) else { return };
        let pace = if refresh && slow > period && self.is_answered(about) {
            let confirmed = before.announced.clamp(period, slow);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, over 0")]
            let raised = (f64::from(confirmed) * (1.0 + slew_max)) as u32;
            Pace { announced: raised.min(slow), confirmed }
        } else {
            Pace::default()
        };
        self.message_ids.set_pace(about, pace);
    }

    /// The period in the TIME_VALUES of messages about a state, milliseconds.
    pub(in crate::engine) fn announced_period(&mut self, iface: Iface, about: &SentState) -> u32 {
        let raised = self.slow(iface).and_then(|_| self.message_ids.pace(about)).unwrap_or_default();
        self.interfaces.period(iface, self.now).max(raised.announced)
    }

    /// The mean refresh interval of a state, milliseconds.
    pub(in crate::engine) fn refresh_interval(&mut self, iface: Iface, about: &SentState) -> u32 {
        let raised = self.slow(iface).and_then(|_| self.message_ids.pace(about)).unwrap_or_default();
        self.interfaces.period(iface, self.now).max(raised.confirmed)
    }

    /// Whether all next hops acknowledged the last message about a state. Of a group those count that have reservations,
    /// and the configuration has to say that no node behind the interface lacks refresh reduction.
    fn is_answered(&self, about: &SentState) -> bool {
        let Some(state) = self.message_ids.handle_of(about).filter(|_| self.has_message_ids(about)) else {
            return false;
        };
        let (key, iface) = match about {
            SentState::Path(key, iface) => (*key, *iface),
            SentState::Resv(..) => return self.neighbors.acknowledged_by(state).is_some(),
            SentState::Part(..) | SentState::PathTear(..) | SentState::ResvTear(_) | SentState::Nothing => {
                return false;
            }
        };
        if !self.goes_to_group(key) {
            return self.neighbors.acknowledged_by(state).is_some();
        }
        let Some(known) = invariant!(self.interfaces.get(iface), "a Path was sent by a known interface")
        else {
            return false;
        };
        let hops = self.reserving_hops(key, iface);
        let answered = |hop: &IpAddr| self.neighbors.has_acknowledged(state, *hop);
        self.neighbors.config().of(known.ifindex).reduction.all_nodes_capable
            && !hops.is_empty()
            && hops.iter().all(answered)
    }

    /// Whether the data of a sender go to a group.
    fn goes_to_group(&self, key: Key) -> bool {
        let session = self.senders.get(key).and_then(|sender| self.sessions.get_index(sender.session));
        session.is_some_and(|session| self.addresses.unpack(session.dest, session.v6).is_multicast())
    }
}
