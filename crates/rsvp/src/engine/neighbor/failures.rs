//! Authentication failures by sender, for operators. Addresses are claimed, not proven, so the list is short.

use core::net::IpAddr;

use signalbox_core::{IfIndex, Time};

/// Reason why a message was not authenticated (RFC 2747).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthenticationFailure {
    /// The message has no INTEGRITY.
    Unsigned,
    /// Its key is unknown for its sender, or not valid now.
    UnknownKey,
    /// Its digest is wrong: another secret or algorithm under the same identifier, or altered octets.
    WrongDigest,
    /// Its sequence number was received before or is too old.
    Replayed,
    /// Its sender has not answered the challenge yet.
    Unproven,
    /// Its sender does not answer challenges.
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

/// Authentication failures of one sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthenticationFailures {
    counts: [u64; AuthenticationFailure::ALL.len()],
    /// Reason of the last failure.
    pub last: AuthenticationFailure,
    /// Time of the last failure.
    pub at: Time,
}

impl AuthenticationFailures {
    /// Number of failures for this reason.
    #[must_use]
    pub fn count(&self, why: AuthenticationFailure) -> u64 {
        self.counts.get(why as usize).copied().unwrap_or(0)
    }
}

/// Maximum number of senders; the one that was silent for longest makes room.
const MOST: usize = 64;

/// A sender: the claimed address and the incoming interface.
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
