//! Messages and commands that end before they are processed.
//!
//! What waits for a reservation dies with it: a RESERVE that is processed after the tear of its session, or a command after its
//! release, would make a reservation that no request ends.

use signalbox_core::service::SiiHandle;
use signalbox_core::slab::Key;
use signalbox_core::{SessionId, invariant};

use super::Qos;
use super::compose::Target;
use super::session::RequestKind;
use super::waiting::{Arrival, Slot, Waiting};
use crate::wire::{Info, Message, MessageType, Rsn};

/// Whose message or command waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Session(SessionId),
    Command(u64),
}

impl Waiting {
    /// Whose it is; `None`: it dies with the record of its session.
    pub(super) const fn owner(&self) -> Option<Owner> {
        match self {
            Self::Message(_, arrival) | Self::Bound { arrival, .. } => Some(Owner::Session(arrival.session)),
            Self::Command(id, _) => Some(Owner::Command(*id)),
            Self::ReverseDirection(_)
            | Self::ForSender(_)
            | Self::Repair(_)
            | Self::Verify(_)
            | Self::Processed { .. } => None,
        }
    }

    /// Whether it is a RESERVE of this peer that its tear with this RSN ends.
    fn is_ended_by(&self, peer: Option<SiiHandle>, tear: Rsn) -> bool {
        let (Self::Message(octets, arrival) | Self::Bound { octets, arrival, .. }) = self else {
            return false;
        };
        let Ok(message) = Message::parse(octets) else { return false };
        let reserves = message.kind == MessageType::RESERVE && !message.is_tear();
        let later = |rsn: Rsn| rsn.epoch == tear.epoch && Rsn::newer(rsn.number, tear.number);
        reserves && arrival.sii == peer && !message.rsn.is_some_and(later)
    }
}

impl RequestKind {
    /// Whether it is sent again after its session ended.
    pub(super) const fn outlives(self) -> bool {
        match self {
            Self::Tear | Self::ReleaseNotice => true,
            Self::Reserve | Self::Query | Self::Repair | Self::ReserveInit | Self::Acknowledgment => false,
        }
    }
}

impl Qos {
    /// Takes a slot out of the table of what waits.
    pub(super) fn take_slot(&mut self, key: Key) -> Option<Slot> {
        let slot = self.waiting.remove(key)?;
        if let Some(owner) = slot.what.owner() {
            self.by_owner.remove(&(owner, key.to_u64()));
        }
        if let Some(holder) = slot.holder {
            self.holders.unpark(holder);
            self.holders.keep(holder, slot.contents, 0);
        } else {
            self.lookups = self.lookups.saturating_sub(1);
        }
        Some(slot)
    }

    fn slots_of(&self, owner: Owner) -> Vec<Key> {
        let slots = self.by_owner.range((owner, 0)..=(owner, u64::MAX));
        slots.map(|(_, key)| Key::from_u64(*key)).collect()
    }

    /// Ends the RESERVEs of a peer that wait when it tears their session down. False: there is none.
    pub(super) fn end_reserves(&mut self, session: SessionId, peer: Option<SiiHandle>, tear: Rsn) -> bool {
        let mut ended = false;
        for key in self.slots_of(Owner::Session(session)) {
            if !self.waiting.get(key).is_some_and(|slot| slot.what.is_ended_by(peer, tear)) {
                continue;
            }
            self.waiting_wheel.cancel(&mut self.waiting, key.index());
            let Some(slot) = invariant!(self.take_slot(key), "an ended RESERVE waits") else { continue };
            if let Waiting::Bound { id, trigger, .. } = slot.what {
                self.by_message.remove(&(id, u8::from(trigger)));
            }
            self.counters.torn_down += 1;
            tracing::debug!(%session, ?peer, "RESERVE that waited ended by its tear");
            ended = true;
        }
        ended
    }

    /// Confirms a tear that ended what waited only (RFC 5974 §5.4.1): no node beyond has the session.
    pub(super) fn confirm_end(&mut self, arrival: &Arrival, message: &Message<'_>) {
        if message.rii.is_none() {
            return;
        }
        let info = Some(self.info(arrival, Info::TORN_DOWN));
        let response = Message { rii: message.rii, info, ..Message::new(MessageType::RESPONSE) };
        self.send_response(Target::back_to(arrival), &response);
    }

    /// Ends the commands of a user that wait for a route. False: there is none.
    pub(super) fn end_commands(&mut self, id: u64) -> bool {
        let waiting = self.slots_of(Owner::Command(id));
        waiting
            .into_iter()
            .filter_map(|key| invariant!(self.take_slot(key), "an ended command waits"))
            .count()
            > 0
    }
}
