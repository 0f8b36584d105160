//! The HMAC with a key of the domain: which messages have one, and whether it is right.
//!
//! The initiating node signs what no other node changes, and the largest rates that may be reserved. Nodes on the path and the
//! far end leave the option as it is, so the reply proves the same. A message proves that a member of the domain sent it
//! lately: its time must be near to the time here, and newer than the last message of its reservation.

use core::time::Duration;

use ring::hmac::{self, HMAC_SHA256};
use signalbox_core::Time;
use signalbox_core::secret::same;
use signalbox_resources::Secret;

use super::config::ConfigError;
use crate::wire::{Authentication, DIGEST_OCTETS, Rates, edit, signed};

/// Reservations that ended, of which the time of the last message is kept.
const ENDED: usize = 4096;

/// The settings of authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Integrity {
    /// Own requests are signed.
    pub sign: bool,
    /// Only requests that are signed are granted.
    pub require: bool,
    /// Largest difference between the time of a message and the time here.
    pub window: Duration,
    /// The keys.
    pub keys: Vec<DomainKey>,
}

impl Default for Integrity {
    fn default() -> Self {
        Self { sign: false, require: false, window: Duration::from_secs(10), keys: Vec::new() }
    }
}

/// A key that the nodes of a domain share.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct DomainKey {
    /// Its number in messages.
    pub id: u32,
    /// The shared secret.
    pub secret: Secret,
    /// Whether own requests may be signed with it.
    pub signs: bool,
    /// Whether messages of others are verified with it.
    pub verifies: bool,
    /// Start of its validity: seconds since 1970.
    pub from: u64,
    /// End of its validity: seconds since 1970; `None`: it does not expire.
    pub until: Option<u64>,
}

impl DomainKey {
    const fn is_valid(&self, now: u64) -> bool {
        self.from <= now
            && match self.until {
                Some(until) => now <= until,
                None => true,
            }
    }

    /// Until when an older key with this end is preferred: the middle of the time in which both are valid.
    fn takes_over(&self, older_end: Option<u64>) -> u64 {
        older_end.map_or(self.from, |end| self.from + end.saturating_sub(self.from) / 2)
    }
}

impl Integrity {
    /// Checks every setting.
    pub(super) fn validated(&self) -> Result<(), ConfigError> {
        let fault = |problem| Err(ConfigError { field: "integrity", problem });
        for (at, key) in self.keys.iter().enumerate() {
            if self.keys.iter().take(at).any(|other| other.id == key.id) {
                return fault("two keys of one id");
            }
            if key.secret.octets().is_none_or(<[u8]>::is_empty) {
                return fault("a key without its secret");
            }
            if key.until.is_some_and(|until| until < key.from) {
                return fault("a key that ends before it begins");
            }
        }
        if self.sign && !self.keys.iter().any(|key| key.signs) {
            return fault("no key to sign with");
        }
        if self.require && !self.keys.iter().any(|key| key.verifies) {
            return fault("no key to verify with");
        }
        if self.window.is_zero() || self.window > Duration::from_secs(3600) {
            return fault("a window that is not up to an hour");
        }
        Ok(())
    }
}

/// What the option of a message proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proven {
    /// A member of the domain sent it at this time. The rates are the largest that it asks for.
    Member { stamp: Stamp, most: Rates },
    /// Nothing: there is no option of a known key.
    Nothing,
    /// The option is wrong, or the time is not near.
    Wrong,
}

/// Microseconds of one unit of a stamp. Half of the range of stamps is longer than any holding time.
const UNIT_US: u64 = 128;

/// When a message was sent: units since 1970, modulo 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(pub(super) u32);

impl Stamp {
    /// The stamp of a time in microseconds.
    #[expect(clippy::cast_possible_truncation, reason = "stamps count modulo 2^32")]
    const fn of(time_us: u64) -> Self {
        Self((time_us / UNIT_US) as u32)
    }

    /// Whether a message of this stamp is newer than one of the other.
    pub(super) const fn is_after(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).wrapping_sub(1) < u32::MAX / 2
    }
}

/// The keys of the domain, and what was received lately.
#[derive(Debug)]
pub(super) struct Domain {
    keys: Vec<hmac::Key>,
    /// Hashes of reservations that ended, with the stamps of their last messages; empty without keys. Only messages of
    /// members change it.
    ended: Vec<(u64, Stamp)>,
    /// Time of the last message of this node.
    sent_us: u64,
    /// Microseconds since 1970 at [`Time::ZERO`].
    pub(super) wall_clock_us: u64,
}

impl Domain {
    pub(super) fn new(integrity: &Integrity, wall_clock_us: u64) -> Self {
        let mut domain = Self { keys: Vec::new(), ended: Vec::new(), sent_us: 0, wall_clock_us };
        domain.set(integrity);
        domain
    }

    /// Takes other keys. What was received stays known.
    pub(super) fn set(&mut self, integrity: &Integrity) {
        let keys = integrity.keys.iter();
        let keys = keys.map(|key| hmac::Key::new(HMAC_SHA256, key.secret.octets().unwrap_or_default()));
        self.keys = keys.collect();
        if self.ended.is_empty() && !self.keys.is_empty() {
            self.ended = vec![(0, Stamp(0)); ENDED];
        }
    }

    fn time_us(&self, now: Time) -> u64 {
        self.wall_clock_us.saturating_add(now.as_micros())
    }

    /// The option for a message of this node, without digest. After its end the last key stays in use.
    pub(super) fn option(&mut self, integrity: &Integrity, now: Time, most: Rates) -> Option<Authentication> {
        if !integrity.sign {
            return None;
        }
        let time_us = self.time_us(now);
        let seconds = time_us / 1_000_000;
        let signing = || integrity.keys.iter().filter(|key| key.signs);
        let valid = || signing().filter(|key| key.is_valid(seconds));
        let early = |key: &DomainKey| {
            let mut older = valid().filter(|older| older.from < key.from);
            older.any(|older| seconds < key.takes_over(older.until))
        };
        let newest = valid().filter(|key| !early(key)).max_by_key(|key| key.from);
        let over = signing().filter(|key| key.until.is_some_and(|end| end < seconds));
        let key = newest.or_else(|| over.max_by_key(|key| key.until))?;
        // Each message has a stamp of its own.
        self.sent_us = time_us.max(self.sent_us.saturating_add(UNIT_US));
        let time_us = self.sent_us;
        Some(Authentication { key: key.id, time_us, most, digest: [0; DIGEST_OCTETS] })
    }

    /// Writes the digest of the option at `offset` into a message.
    pub(super) fn sign(&self, integrity: &Integrity, octets: &mut [u8], ipv6: bool, offset: usize, key: u32) {
        if let Some(digest) = self.digest(integrity, octets, ipv6, offset, key) {
            edit::set_octets(octets, offset + signed::DIGEST, digest);
        }
    }

    fn digest(
        &self,
        integrity: &Integrity,
        octets: &[u8],
        ipv6: bool,
        offset: usize,
        id: u32,
    ) -> Option<[u8; DIGEST_OCTETS]> {
        let at = integrity.keys.iter().position(|key| key.id == id)?;
        let mut context = hmac::Context::with_key(self.keys.get(at)?);
        signed::parts(octets, ipv6, offset).for_each(|part| context.update(part));
        context.sign().as_ref().first_chunk().copied()
    }

    /// Whether the digest of an option is right.
    pub(super) fn is_right(
        &self,
        integrity: &Integrity,
        octets: &[u8],
        ipv6: bool,
        (offset, option): (usize, Authentication),
    ) -> bool {
        let digest = self.digest(integrity, octets, ipv6, offset, option.key);
        digest.is_some_and(|digest| same(&digest, &option.digest))
    }

    /// What the option of a message of another node proves.
    pub(super) fn proven(
        &self,
        integrity: &Integrity,
        now: Time,
        octets: &[u8],
        ipv6: bool,
        found: Option<(usize, Authentication)>,
    ) -> Proven {
        let Some((offset, option)) = found else { return Proven::Nothing };
        let verifying = || integrity.keys.iter().filter(|key| key.verifies);
        let Some(key) = verifying().find(|key| key.id == option.key) else { return Proven::Nothing };
        let here_us = self.time_us(now);
        let seconds = here_us / 1_000_000;
        // As with RSVP (RFC 2747 §5.3), keys that are over are accepted rather than none.
        let current =
            key.is_valid(seconds) || key.from <= seconds && !verifying().any(|other| other.is_valid(seconds));
        let near = u128::from(here_us.abs_diff(option.time_us)) <= integrity.window.as_micros();
        if current && near && self.is_right(integrity, octets, ipv6, (offset, option)) {
            Proven::Member { stamp: Stamp::of(option.time_us), most: option.most }
        } else {
            Proven::Wrong
        }
    }

    fn place(&self, hash: u64) -> usize {
        usize::try_from(hash % ENDED as u64).unwrap_or(0)
    }

    /// Notes the last message of a reservation that ended.
    pub(super) fn note_end(&mut self, hash: u64, stamp: Stamp) {
        let at = self.place(hash);
        if let Some(place) = self.ended.get_mut(at) {
            *place = (hash, stamp);
        }
    }

    /// Whether a message is newer than the last one of a reservation that ended.
    pub(super) fn is_new(&self, hash: u64, stamp: Stamp) -> bool {
        let last = self.ended.get(self.place(hash)).filter(|(of, _)| *of == hash);
        last.is_none_or(|(_, last)| stamp.is_after(*last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u32, from: u64, until: Option<u64>) -> DomainKey {
        DomainKey { id, secret: Secret::new(*b"secret"), signs: true, verifies: true, from, until }
    }

    fn chosen(keys: &[DomainKey], seconds: u64) -> Option<u32> {
        let integrity = Integrity { sign: true, keys: keys.to_vec(), ..Integrity::default() };
        let mut domain = Domain::new(&integrity, 0);
        let now = Time::from_secs(seconds);
        domain.option(&integrity, now, Rates::default()).map(|option| option.key)
    }

    /// Senders change to the newer key in the middle of the time in which both are valid.
    #[test]
    fn keys_follow_each_other() {
        let keys = [key(1, 0, Some(100)), key(2, 50, Some(200))];
        let at = |seconds| chosen(&keys, seconds);
        assert_eq!([at(0), at(49), at(74), at(75), at(150)], [Some(1), Some(1), Some(1), Some(2), Some(2)]);
        assert_eq!(at(900), Some(2), "the last key stays");
        assert_eq!(chosen(&[key(3, 10, None)], 9), None);
        let open = [key(1, 0, None), key(2, 50, None)];
        assert_eq!((chosen(&open, 49), chosen(&open, 50)), (Some(1), Some(2)));
    }

    #[test]
    fn stamps_count_modulo() {
        assert!(Stamp(5).is_after(Stamp(4)) && Stamp(3).is_after(Stamp(u32::MAX - 3)));
        assert!(!Stamp(4).is_after(Stamp(4)) && !Stamp(4).is_after(Stamp(5)));
    }

    #[test]
    fn settings_that_cannot_be() {
        let with = |keys: Vec<DomainKey>| Integrity { keys, ..Integrity::default() };
        assert!(with(vec![key(1, 0, None), key(2, 0, None)]).validated().is_ok());
        assert!(with(vec![key(1, 0, None), key(1, 9, None)]).validated().is_err());
        assert!(with(vec![key(1, 10, Some(9))]).validated().is_err());
        assert!(with(vec![DomainKey { secret: Secret::new(*b""), ..key(1, 0, None) }]).validated().is_err());
        assert!(Integrity { sign: true, ..with(Vec::new()) }.validated().is_err());
        assert!(Integrity { require: true, ..with(Vec::new()) }.validated().is_err());
        assert!(Integrity { window: Duration::ZERO, ..with(Vec::new()) }.validated().is_err());
    }
}
