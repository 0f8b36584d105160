//! Secrets that change with time, for cookies that are checked without being stored (RFC 5971 §8.5).

use core::cell::Cell;
use core::hash::Hasher as _;
use core::time::Duration;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::rng::Random;
use crate::time::Time;

/// Parts of a tag that have this many octets together, with their lengths, are hashed at once.
const AT_ONCE: usize = 256;

/// A family of 128-bit keys, one for each generation of length `period`. The present and the previous
/// generation are valid.
///
/// All keys are derived from one master key, and the time alone selects the key. The key that was used last is kept: deriving it takes
/// 200 instructions, and handshakes need it up to four times.
#[derive(Clone)]
pub struct RotatingSecret {
    master: [u8; 16],
    period_us: u64,
    last: Cell<Derived>,
}

/// What follows from the master key for one generation.
#[derive(Clone, Copy)]
struct Derived {
    generation: u32,
    key: [u8; 16],
    mark: [u8; 4],
}

impl Derived {
    fn new(master: &[u8; 16], generation: u32) -> Self {
        let mut derive = SipHasher24::new_with_key(master);
        derive.write_u32(generation.to_le());
        let key = derive.finish128().as_bytes();
        let [a, b, c, d, ..] = SipHasher24::new_with_key(&key).hash(b"mark").as_bytes();
        Self { generation, key, mark: [a, b, c, d] }
    }
}

impl core::fmt::Debug for RotatingSecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RotatingSecret").field("period_us", &self.period_us).finish_non_exhaustive()
    }
}

impl RotatingSecret {
    /// A new secret that changes each `period` (at least 1 µs). A tag is valid for one to two periods.
    #[must_use]
    pub fn new(period: Duration, rng: &mut Random) -> Self {
        let master = rng.array();
        let period_us = u64::try_from(period.as_micros()).unwrap_or(u64::MAX).max(1);
        Self { master, period_us, last: Cell::new(Derived::new(&master, 0)) }
    }

    fn derived(&self, generation: u32) -> Derived {
        let last = self.last.get();
        if last.generation == generation {
            return last;
        }
        let new = Derived::new(&self.master, generation);
        self.last.set(new);
        new
    }

    /// An unpredictable number for `generation`. Formats that have it compare it before they compute a tag.
    #[must_use]
    pub fn mark(&self, generation: u32) -> [u8; 4] {
        self.derived(generation).mark
    }

    /// The generation for tags that are made at `now`.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "generations count modulo 2^32")]
    pub const fn current(&self, now: Time) -> u32 {
        (now.as_micros() / self.period_us) as u32
    }

    /// Whether tags of `generation` are accepted at `now`: it is the present or the previous generation.
    #[must_use]
    pub const fn is_valid(&self, now: Time, generation: u32) -> bool {
        self.current(now).wrapping_sub(generation) <= 1
    }

    /// The valid generation whose low octet is `octet`, for formats that carry one octet of it.
    #[must_use]
    pub fn from_octet(&self, now: Time, octet: u8) -> Option<u32> {
        let current = self.current(now);
        [current, current.wrapping_sub(1)].into_iter().find(|g| g.to_be_bytes()[3] == octet)
    }

    /// The tag of `parts` under the key of `generation`: SipHash-2-4 with a result of 128 bits. The length of
    /// each part is hashed before it, so that no two different lists of parts hash the same octets.
    #[must_use]
    pub fn tag(&self, generation: u32, parts: &[&[u8]]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.derived(generation).key);
        // Hashing a row of octets takes half of the instructions of hashing it part by part.
        let (mut row, mut used) = ([0; AT_ONCE], 0);
        for part in parts {
            let end = used + 8 + part.len();
            let Some((length, octets)) = row.get_mut(used..end).and_then(<[u8]>::split_first_chunk_mut)
            else {
                parts.iter().for_each(|part| {
                    hasher.write(&(part.len() as u64).to_le_bytes());
                    hasher.write(part);
                });
                return hasher.finish128().as_bytes();
            };
            *length = (part.len() as u64).to_le_bytes();
            octets.copy_from_slice(part);
            used = end;
        }
        hasher.hash(row.get(..used).unwrap_or_default()).as_bytes()
    }

    /// Whether `tag` belongs to `parts` under a generation that is valid at `now`. The check takes constant
    /// time, wherever a wrong tag differs.
    #[must_use]
    pub fn verify(&self, now: Time, generation: u32, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.is_valid(now, generation) && same(&self.tag(generation, parts), tag)
    }
}

/// Compares secrets in a time that depends on their length only.
#[must_use]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> RotatingSecret {
        RotatingSecret::new(Duration::from_secs(10), &mut Random::from_number(1))
    }

    #[test]
    fn a_tag_is_valid_for_one_to_two_periods() {
        let secret = secret();
        let made = Time::from_millis(19_999);
        let generation = secret.current(made);
        let tag = secret.tag(generation, &[b"a", b"b"]);
        let valid = |at| secret.verify(at, generation, &[b"a", b"b"], &tag);
        assert!(valid(made) && valid(Time::from_millis(29_999)));
        assert!(!valid(Time::from_secs(30)));
        assert!(!secret.is_valid(made, generation + 1), "not from the future");
        assert_eq!(secret.from_octet(Time::from_secs(25), 1), Some(1));
        assert_eq!(secret.from_octet(Time::from_secs(25), 0), None);
        assert_eq!(secret.from_octet(Time::from_secs(2560), 255), Some(255));
    }

    #[test]
    fn a_tag_of_many_octets_is_bound_to_the_last_of_them() {
        let secret = secret();
        let tag = |octets: &[u8]| secret.tag(1, &[b"a", octets]);
        for length in [AT_ONCE - 18, AT_ONCE - 17, AT_ONCE - 16, 4 * AT_ONCE] {
            let mut octets = vec![7; length];
            let before = tag(&octets);
            *octets.last_mut().unwrap() = 8;
            assert_ne!(tag(&octets), before, "{length}");
            assert_ne!(tag(&octets[1..]), tag(&octets), "{length}");
        }
    }

    #[test]
    fn each_generation_has_a_mark_of_its_own() {
        let (secret, other) =
            (secret(), RotatingSecret::new(Duration::from_secs(10), &mut Random::from_number(2)));
        let marks = [secret.mark(0), secret.mark(1), secret.mark(0), other.mark(0)];
        assert_eq!(marks[0], marks[2]);
        assert!(marks[0] != marks[1] && marks[0] != marks[3]);
    }

    #[test]
    fn a_tag_depends_on_all_that_goes_into_it() {
        let secret = secret();
        let tag = secret.tag(1, &[b"ab", b"c"]);
        let other = RotatingSecret::new(Duration::from_secs(10), &mut Random::from_number(2));
        assert_eq!(tag, secret.tag(1, &[b"ab", b"c"]));
        for different in [
            secret.tag(2, &[b"ab", b"c"]),
            secret.tag(1, &[b"a", b"bc"]),
            secret.tag(1, &[b"abc"]),
            other.tag(1, &[b"ab", b"c"]),
        ] {
            assert_ne!(tag, different);
        }
        assert!(!secret.verify(Time::from_secs(10), 1, &[b"ab", b"c"], &tag[..15]));
    }
}
