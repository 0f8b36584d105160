//! Bindings between sessions and associations. A session in connection mode has [`ASSOCIATED`] set in its record, and an
//! entry here. The entries of an association form a linked list.

use signalbox_core::slab::Key;
use signalbox_core::{Direction, invariant};

use super::Association;
use crate::engine::Gist;
use crate::engine::io::ChannelId;
use crate::engine::routing::{ASSOCIATED, NONE, side};

/// The entry of one direction of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Binding {
    /// The association; [`NONE`] if it was lost and the session waits for another one.
    pub(super) association: u32,
    prev: u32,
    next: u32,
    /// Reliable messages were sent over it.
    pub(super) reliable: bool,
    /// The session needs a secure association.
    pub(super) secure: bool,
    /// Messages wait until the previous association is drained.
    pub(super) held: bool,
    /// Channel of the previous association. Messages of the peer may still arrive over it.
    pub(super) former: ChannelId,
}

/// No channel: identifiers of channels are much smaller.
const NO_CHANNEL: ChannelId = ChannelId(u64::MAX);

const FREE: Binding = Binding {
    association: NONE,
    prev: NONE,
    next: NONE,
    reliable: false,
    secure: false,
    held: false,
    former: NO_CHANNEL,
};

/// The place of the entry of a direction. A node has far less than 2³¹ records.
fn place(key: Key, direction: Direction) -> u32 {
    key.index() << 1 | u32::from(side(direction) == 1)
}

impl Gist {
    /// The association that a direction of a session uses.
    pub(in crate::engine) fn association_of(&self, key: Key, direction: Direction) -> Option<u32> {
        let binding = self.binding(key, direction)?;
        Some(binding.association)
            .filter(|association| *association != NONE && !self.associations.has_ended(*association))
    }

    /// Whether messages of a session may arrive over an association: its current or its previous one.
    pub(in crate::engine) fn may_arrive_over(&self, key: Key, direction: Direction, index: u32) -> bool {
        self.binding(key, direction).is_some_and(|binding| {
            binding.association == index || self.channel(index) == Some(binding.former)
        })
    }

    /// The entry of a session in connection mode, also while it has no association.
    pub(super) fn binding(&self, key: Key, direction: Direction) -> Option<Binding> {
        if !self.records.get(key)?.half(direction).has(ASSOCIATED) {
            return None;
        }
        let binding = self.associations.bindings.get(place(key, direction) as usize);
        invariant!(binding, "a session in connection mode has a binding").copied()
    }

    pub(super) fn binding_mut(&mut self, key: Key, direction: Direction) -> Option<&mut Binding> {
        if !self.records.get(key)?.half(direction).has(ASSOCIATED) {
            return None;
        }
        let binding = self.associations.bindings.get_mut(place(key, direction) as usize);
        invariant!(binding, "a session in connection mode has a binding to change")
    }

    /// Makes a direction of a session use an association, and no other. GIST-4.2.1-01, GIST-4.3.3-10,
    /// GIST-4.3.3-11.
    pub(super) fn bind(&mut self, key: Key, direction: Direction, index: u32) {
        let old = self.binding(key, direction);
        if old.is_some_and(|old| old.association == index) {
            return;
        }
        let former = old.and_then(|old| self.channel(old.association));
        if let Some(old) = old.filter(|old| self.associations.has_ended(old.association)) {
            self.notify_of_loss(key, direction, old.association);
        }
        self.detach(key, direction);
        let secure = self.associations.is_secure(index);
        let Some(record) = invariant!(self.records.get_mut(key), "a session that stands is bound") else {
            return;
        };
        record.half_mut(direction).set(ASSOCIATED, true);
        let place = place(key, direction);
        let table = &mut self.associations;
        let association =
            invariant!(table.slab.get_index_mut(index), "a session is bound to an association that stands");
        let Some(association) = association else { return };
        let next = core::mem::replace(&mut association.first, place);
        association.sessions += 1;
        association.unused = None;
        if table.bindings.len() <= place as usize {
            table.bindings.resize(place as usize + 1, FREE);
        }
        let former = former.unwrap_or(NO_CHANNEL);
        let new = Binding { association: index, next, secure, former, ..FREE };
        if let Some(binding) = table.bindings.get_mut(place as usize) {
            *binding = new;
        }
        if let Some(after) = table.bindings.get_mut(next as usize) {
            after.prev = place;
        }
        // GIST-4.4.5-07: reliable messages over the old association must arrive first. Where the route has changed, the old
        // peer is another one: it takes no further messages, and may be unreachable.
        if let Some(old) = old.filter(|old| old.reliable && old.association != NONE)
            && !self.have_different_peers(old.association, index)
        {
            self.hold_until_drained(key, direction, old.association);
        }
    }

    fn have_different_peers(&self, one: u32, other: u32) -> bool {
        let peer = |index| self.associations.get(index).and_then(Association::peer);
        peer(one).zip(peer(other)).is_some_and(|(one, other)| one.identity != other.identity)
    }

    /// Unbinds a direction of a session from its association; with `leave` it leaves connection mode.
    pub(in crate::engine) fn unbind(&mut self, key: Key, direction: Direction, leave: bool) {
        self.detach(key, direction);
        if leave
            && let Some(record) =
                invariant!(self.records.get_mut(key), "a session stands while it is unbound")
        {
            record.half_mut(direction).set(ASSOCIATED, false);
        }
    }

    fn detach(&mut self, key: Key, direction: Direction) {
        let now = self.now;
        let Some(Binding { association: index, prev, next, .. }) = self.binding(key, direction) else {
            return;
        };
        let table = &mut self.associations;
        if let Some(binding) = table.bindings.get_mut(place(key, direction) as usize) {
            (binding.association, binding.prev, binding.next, binding.held) = (NONE, NONE, NONE, false);
        }
        if let Some(after) = table.bindings.get_mut(next as usize) {
            after.prev = prev;
        }
        if let Some(before) = table.bindings.get_mut(prev as usize) {
            before.next = next;
        }
        let idle_after = table.config.idle_after;
        if index == NONE {
            return; // it was lost before
        }
        let association =
            invariant!(table.slab.get_index_mut(index), "an association stays while sessions use it");
        let Some(association) = association else { return };
        if prev == NONE {
            association.first = next;
        }
        association.sessions -= 1;
        if association.sessions == 0 && association.may_become_idle() {
            association.unused = Some(now + idle_after);
            table.arm(index);
        }
    }

    /// The first session of an association; [`Gist::next_user`] is the next one.
    pub(super) fn first_user(&self, index: u32) -> Option<(Key, Direction)> {
        self.user(
            invariant!(
                self.associations.get(index),
                "the sessions of an association are visited while it stands"
            )?
            .first,
        )
    }

    /// The session after this one.
    pub(super) fn next_user(&self, (key, direction): (Key, Direction)) -> Option<(Key, Direction)> {
        self.user(
            invariant!(self.binding(key, direction), "a session that uses an association is bound to it")?
                .next,
        )
    }

    fn user(&self, place: u32) -> Option<(Key, Direction)> {
        if place == NONE {
            return None;
        }
        let key = invariant!(
            self.records.key_of(place >> 1),
            "the users of an association are sessions that stand"
        )?;
        Some((key, if place & 1 == 0 { Direction::Downstream } else { Direction::Upstream }))
    }
}
