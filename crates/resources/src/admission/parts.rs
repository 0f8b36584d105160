//! Several grants that are one reservation to users.
//!
//! CASP has a grant for what was reserved and one for what was committed, because one may end before the other, and both again while a
//! change is not answered. They have one owner and one session.

use signalbox_core::{Key, Time, invariant};

use super::Resources;
use super::group::Grant;
use crate::request::GrantId;

impl Resources {
    /// The grants of the reservation that a grant is a part of, the oldest first; the grant itself is one of them.
    fn parts(&self, key: Key) -> impl Iterator<Item = (Key, &Grant)> {
        let grant = self.grants.get(key);
        let group =
            grant.and_then(|grant| invariant!(self.groups.get(grant.group), "a grant has a reservation"));
        let members = group.into_iter().flat_map(|group| group.members.iter());
        members.filter_map(move |member| {
            let (grant, other) = (grant?, invariant!(self.grants.get(member), "a member is a grant")?);
            let same = member == key || (other.owner == grant.owner && other.filters() == grant.filters());
            same.then_some((member, other))
        })
    }

    /// Whether the reservation of a grant has other grants.
    pub(super) fn has_other_parts(&self, key: Key) -> bool {
        self.parts(key).nth(1).is_some()
    }

    /// Since when the reservation of a grant stands, as far as its other grants show it.
    pub(super) fn stands_since(&self, key: Key) -> Option<Time> {
        self.parts(key).filter(|(other, _)| *other != key).map(|(_, grant)| grant.since).min()
    }

    /// Whether another grant of the same reservation has the amount and the terms of this one.
    pub(super) fn has_equal_part(&self, key: Key) -> bool {
        let Some(own) = self.grants.get(key) else { return false };
        self.parts(key).any(|(other, grant)| {
            other != key
                && grant.terms.traffic == own.terms.traffic
                && grant.terms.rule == own.terms.rule
                && grant.terms.during == own.terms.during
                && grant.guaranteed() == own.guaranteed()
        })
    }

    /// The last grant of each reservation among these.
    pub(super) fn last_parts(&self, members: &[Key]) -> Vec<Key> {
        let is_last = |key: &Key| self.parts(*key).last().is_none_or(|(last, _)| last == *key);
        members.iter().copied().filter(is_last).collect()
    }

    /// Whether users see a grant as the row of its reservation: it is what the flow gets, or what is held back for it if it gets
    /// nothing; before a change is answered, what stood before.
    #[must_use]
    pub fn has_row(&self, grant: GrantId) -> bool {
        let key = Key::from_u64(grant.0);
        let first = self.parts(key).min_by_key(|(_, part)| part.terms.held);
        first.is_some_and(|(first, _)| first == key)
    }
}
