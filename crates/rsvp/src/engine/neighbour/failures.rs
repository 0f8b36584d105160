//! Who sent what was not believed, for operators. Addresses here are claimed, not proven, so the list is short.

use core::net::IpAddr;

use signalbox_core::{IfIndex, Time};

/// Why a message was not believed (RFC 2747).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthenticationFailure {
    /// It has no INTEGRITY.
    Unsigned,
    /// It names a key that is not known for its sender, or not valid now.
    UnknownKey,
    /// Its digest is wrong: another secret or algorithm under the same identifier, or octets that were altered.
    WrongDigest,
    /// Its sequence number was seen, or is too old.
    Replayed,
    /// Its sender has not answered our challenge yet.
    Unproven,
    /// Its sender answers no challenges.
    Unwilling,
}

impl AuthenticationFailure {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::Unsigned,
        Self::UnknownKey,
        Self::WrongDigest,
        Self::Replayed,
        Self::Unproven,
        Self::Unwilling,
    ];
}

/// What was not believed of one sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthenticationFailures {
    counts: [u64; AuthenticationFailure::ALL.len()],
    /// Why the last message was not.
    pub last: AuthenticationFailure,
    /// When it came.
    pub at: Time,
}

impl AuthenticationFailures {
    /// How many messages were not believed for this reason.
    #[must_use]
    pub fn count(&self, why: AuthenticationFailure) -> u64 {
        self.counts.get(why as usize).copied().unwrap_or(0)
    }
}

/// Senders remembered at most; of more the one that was silent for longest is forgotten.
const MOST: usize = 64;

/// A sender, by the address that it claims and the interface that it came in by.
pub(super) type Claimed = (IpAddr, IfIndex);

#[derive(Debug, Default)]
pub(super) struct FailureTable {
    list: Vec<(Claimed, AuthenticationFailures)>,
}

impl FailureTable {
    pub(super) fn note(&mut self, now: Time, who: Claimed, why: AuthenticationFailure) {
        let at = match self.list.iter().position(|(known, _)| *known == who) {
            Some(at) => at,
            None => {
                let new = (
                    who,
                    AuthenticationFailures {
                        counts: [0; AuthenticationFailure::ALL.len()],
                        last: why,
                        at: now,
                    },
                );
                if self.list.len() < MOST {
                    self.list.push(new);
                    self.list.len() - 1
                } else {
                    let oldest = self.list.iter().enumerate().min_by_key(|(_, (_, one))| one.at);
                    let at = oldest.map_or(0, |(at, _)| at);
                    if let Some(place) = self.list.get_mut(at) {
                        *place = new;
                    }
                    at
                }
            }
        };
        if let Some((_, one)) = self.list.get_mut(at) {
            (one.last, one.at) = (why, now);
            if let Some(count) = one.counts.get_mut(why as usize) {
                *count = count.saturating_add(1);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(Claimed, AuthenticationFailures)> {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silent_makes_room() {
        let mut table = FailureTable::default();
        let who = |n: u16| (IpAddr::from([10, 0, n.to_be_bytes()[0], n.to_be_bytes()[1]]), IfIndex(2));
        for n in 0..1000 {
            table.note(Time::from_secs(n.into()), who(n), AuthenticationFailure::Replayed);
            table.note(Time::from_secs(n.into()), who(0), AuthenticationFailure::Unsigned);
        }
        assert_eq!(table.iter().count(), MOST);
        let of = |n| table.iter().find(|(one, _)| *one == who(n)).map(|(_, one)| *one);
        let first = of(0).unwrap();
        assert_eq!(
            (first.count(AuthenticationFailure::Unsigned), first.count(AuthenticationFailure::Replayed)),
            (1000, 1)
        );
        assert_eq!((first.last, first.at), (AuthenticationFailure::Unsigned, Time::from_secs(999)));
        assert!(of(1).is_none() && of(999).is_some());
        for (at, why) in AuthenticationFailure::ALL.into_iter().enumerate() {
            assert_eq!(at, why as usize);
        }
    }
}
