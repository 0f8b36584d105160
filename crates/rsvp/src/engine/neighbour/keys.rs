//! Keys and digests (RFC 2747 §4, §5).

use core::net::IpAddr;

use hmac::{Hmac, Mac as _};
use md5::Md5;
use signalbox_core::secret::same;
use signalbox_core::{IfIndex, Time};

use super::config::{Algorithm, KeyConfig, KeyUse};

/// Why a key table cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// An identifier over 48 bits.
    #[error("key {0}: an identifier has 48 bits")]
    Identifier(u64),
    /// No secret.
    #[error("key {0}: empty")]
    Empty(u64),
    /// Two keys of one identifier for the same use, interface and neighbour.
    #[error("key {0}: twice for the same")]
    Twice(u64),
    /// A lifetime that ends before it begins.
    #[error("key {0}: its lifetime ends before it begins")]
    Lifetime(u64),
}

enum Secret {
    Sha256(ring::hmac::Key),
    Md5(Box<Hmac<Md5>>),
}

/// A key, ready for use.
pub(crate) struct Key {
    pub(crate) id: u64,
    usage: KeyUse,
    interface: Option<IfIndex>,
    neighbour: Option<IpAddr>,
    from: Time,
    until: Option<Time>,
    secret: Secret,
    /// Largest sequence number sent with it.
    pub(crate) sent: u64,
    /// Its last-key notice was given.
    noticed: bool,
}

/// Most octets of a digest.
const LARGEST: usize = 32;

impl Key {
    fn new(config: &KeyConfig) -> Result<Self, KeyError> {
        if config.id >= 1 << 48 {
            return Err(KeyError::Identifier(config.id));
        }
        if config.until.is_some_and(|until| until < config.from) {
            return Err(KeyError::Lifetime(config.id));
        }
        if config.secret.is_empty() {
            return Err(KeyError::Empty(config.id));
        }
        let secret = match config.algorithm {
            Algorithm::HmacSha256 => {
                Secret::Sha256(ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &config.secret))
            }
            Algorithm::HmacMd5 => {
                // HMAC takes keys of any length.
                let mac = Hmac::<Md5>::new_from_slice(&config.secret);
                Secret::Md5(Box::new(mac.map_err(|_| KeyError::Empty(config.id))?))
            }
        };
        let KeyConfig { id, usage, interface, neighbour, from, until, .. } = *config;
        Ok(Self { id, usage, interface, neighbour, from, until, secret, sent: 0, noticed: false })
    }

    /// Octets of its digests.
    pub(crate) const fn digest_octets(&self) -> usize {
        match self.secret {
            Secret::Sha256(_) => 32,
            Secret::Md5(_) => 16,
        }
    }

    /// Digest of a message given in parts; the rest of the array is zero.
    pub(crate) fn digest(&self, parts: &[&[u8]]) -> [u8; LARGEST] {
        let mut digest = [0; LARGEST];
        match &self.secret {
            Secret::Sha256(key) => {
                let mut context = ring::hmac::Context::with_key(key);
                parts.iter().for_each(|part| context.update(part));
                digest.iter_mut().zip(context.sign().as_ref()).for_each(|(to, from)| *to = *from);
            }
            Secret::Md5(key) => {
                let mut mac = (**key).clone();
                parts.iter().for_each(|part| mac.update(part));
                digest.iter_mut().zip(mac.finalize().into_bytes()).for_each(|(to, from)| *to = from);
            }
        }
        digest
    }

    /// Whether `digest` is that of the parts. Takes the same time wherever a wrong one differs.
    pub(crate) fn verifies(&self, parts: &[&[u8]], digest: &[u8]) -> bool {
        let computed = self.digest(parts);
        digest.len() == self.digest_octets()
            && same(computed.get(..self.digest_octets()).unwrap_or_default(), digest)
    }

    fn is_for(&self, sending: bool, interface: IfIndex, neighbour: IpAddr) -> bool {
        self.usage != (if sending { KeyUse::Receive } else { KeyUse::Send })
            && self.interface.is_none_or(|own| own == interface)
            && self.neighbour.is_none_or(|own| own == neighbour)
    }

    fn valid(&self, now: Time) -> bool {
        self.from <= now && self.until.is_none_or(|until| now <= until)
    }

    /// The middle of its overlap with a key that starts at `start`: where a sender changes over.
    fn midpoint(&self, start: Time) -> Time {
        match self.until {
            Some(until) if until > start => start + until.since(start) / 2,
            _ => start,
        }
    }
}

/// The keys of a node. An operator's list: short, and walked.
#[derive(Default)]
pub(crate) struct Keys {
    keys: Vec<Key>,
}

impl core::fmt::Debug for Keys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Keys").field("keys", &self.keys.len()).finish()
    }
}

impl Keys {
    /// Replaces all keys; those that stay keep their sequence numbers.
    pub(crate) fn set(&mut self, configs: &[KeyConfig]) -> Result<(), KeyError> {
        let mut keys: Vec<Key> = Vec::with_capacity(configs.len());
        for config in configs {
            let mut key = Key::new(config)?;
            let same_place = |other: &Key| {
                other.id == key.id
                    && (other.usage == key.usage || [other.usage, key.usage].contains(&KeyUse::Both))
                    && other.interface == key.interface
                    && other.neighbour == key.neighbour
            };
            if keys.iter().any(same_place) {
                return Err(KeyError::Twice(key.id));
            }
            // Numbers are never used twice, not even if a key comes back with another secret.
            key.sent = self.keys.iter().filter(|old| old.id == key.id).map(|old| old.sent).max().unwrap_or(0);
            keys.push(key);
        }
        self.keys = keys;
        Ok(())
    }

    /// The key to send with: of those that are valid the one that started last, but for the first half of its overlap
    /// with the one before (§5.1). When all have run out, the one that did so last goes on (§5.3).
    fn choose(&self, now: Time, interface: IfIndex, neighbour: IpAddr) -> Option<usize> {
        let fitting = |key: &Key| key.is_for(true, interface, neighbour);
        let valid = |key: &Key| fitting(key) && key.valid(now);
        let too_early = |key: &Key| {
            let older = self.keys.iter().filter(|older| valid(older) && older.from < key.from);
            older.into_iter().any(|older| now < older.midpoint(key.from))
        };
        let candidates = self.keys.iter().enumerate().filter(|(_, key)| valid(key) && !too_early(key));
        let chosen =
            candidates.max_by_key(|(_, key)| (key.neighbour.is_some(), key.interface.is_some(), key.from));
        let expired = |key: &Key| fitting(key) && key.until.is_some_and(|until| until < now);
        let last =
            || self.keys.iter().enumerate().filter(|(_, key)| expired(key)).max_by_key(|(_, key)| key.until);
        chosen.or_else(last).map(|(at, _)| at)
    }

    /// The key to send with; the flag tells that it has run out and that this was not told before.
    pub(crate) fn sending(
        &mut self,
        now: Time,
        interface: IfIndex,
        neighbour: IpAddr,
    ) -> Option<(usize, bool)> {
        let at = self.choose(now, interface, neighbour)?;
        let key = self.keys.get_mut(at)?;
        let news = !key.valid(now) && !core::mem::replace(&mut key.noticed, true);
        Some((at, news))
    }

    /// The identifier of the key that is sent with.
    pub(crate) fn in_use(&self, now: Time, interface: IfIndex, neighbour: IpAddr) -> Option<u64> {
        self.keys.get(self.choose(now, interface, neighbour)?).map(|key| key.id)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Key> {
        self.keys.get_mut(at)
    }

    /// The key to answer a challenge with, which names it.
    pub(crate) fn answering(&self, id: u64, interface: IfIndex, neighbour: IpAddr) -> Option<usize> {
        self.keys.iter().position(|key| key.id == id && key.is_for(true, interface, neighbour))
    }

    /// The key that a message was signed with. One for this neighbour goes before one for all; a key that ran out
    /// counts as long as no other is valid for the same sender (§5.3).
    pub(crate) fn received(&self, now: Time, id: u64, interface: IfIndex, neighbour: IpAddr) -> Option<&Key> {
        let fitting = |key: &&Key| key.is_for(false, interface, neighbour);
        let named = self.keys.iter().filter(fitting).filter(|key| key.id == id && key.from <= now);
        let key = named.max_by_key(|key| (key.neighbour.is_some(), key.interface.is_some()))?;
        let another = || self.keys.iter().filter(fitting).any(|other| other.valid(now));
        (key.valid(now) || !another()).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETH: IfIndex = IfIndex(2);

    fn config(id: u64, from: u64, until: Option<u64>) -> KeyConfig {
        KeyConfig {
            id,
            algorithm: Algorithm::HmacMd5,
            secret: b"Jefe".to_vec(),
            usage: KeyUse::Both,
            interface: None,
            neighbour: None,
            from: Time::from_secs(from),
            until: until.map(Time::from_secs),
        }
    }

    fn table(configs: &[KeyConfig]) -> Keys {
        let mut keys = Keys::default();
        keys.set(configs).unwrap();
        keys
    }

    fn peer() -> IpAddr {
        IpAddr::from([10, 0, 0, 1])
    }

    fn sends(keys: &mut Keys, at: u64) -> Option<u64> {
        let at = keys.sending(Time::from_secs(at), ETH, peer())?.0;
        Some(keys.keys[at].id)
    }

    fn takes(keys: &Keys, id: u64, at: u64) -> bool {
        keys.received(Time::from_secs(at), id, ETH, peer()).is_some()
    }

    /// Proves RSVPINT-2747-6-01: the vectors of RFC 2104's appendix and RFC 2202 §2; HMAC-SHA-256 by RFC 4231.
    #[test]
    fn digests() {
        let md5 = |secret: &[u8], data: &[u8]| {
            let key = Key::new(&KeyConfig { secret: secret.to_vec(), ..config(1, 0, None) }).unwrap();
            assert!(key.verifies(&[data], &key.digest(&[data])[..16]));
            signalbox_wire::hex(&key.digest(&[data])[..16])
        };
        assert_eq!(md5(&[0x0b; 16], b"Hi There"), "9294727a3638bb1c13f48ef8158bfc9d");
        assert_eq!(md5(b"Jefe", b"what do ya want for nothing?"), "750c783e6ab0b503eaa86e310a5db738");
        assert_eq!(md5(&[0xaa; 16], &[0xdd; 50]), "56be34521d144c88dbb8c733f0e8b3f6");
        assert_eq!(
            md5(&[0xaa; 80], b"Test Using Larger Than Block-Size Key - Hash Key First"),
            "6b1ab7fe4bd7bf8f0b62e6ce61b9d0cd"
        );
        let sha = KeyConfig { algorithm: Algorithm::HmacSha256, ..config(1, 0, None) };
        let key = Key::new(&sha).unwrap();
        let digest = key.digest(&[b"what do ya want ", b"for nothing?"]);
        assert_eq!(
            signalbox_wire::hex(&digest),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert!(!key.verifies(&[b"what do ya want for nothing!"], &digest));
        assert!(!key.verifies(&[b"what do ya want for nothing?"], &digest[..16]), "no shorter digest");
    }

    /// Proves RSVPINT-2747-5.1-01, RSVPINT-2747-5.1-02, RSVPINT-2747-5.1-03, RSVPINT-2747-5.2-02 and
    /// RSVPINT-2747-5.2-03.
    #[test]
    fn keys_change_in_the_middle_of_their_overlap() {
        let mut keys = table(&[config(1, 10, Some(100)), config(2, 80, None)]);
        assert_eq!(sends(&mut keys, 9), None, "not yet valid");
        assert_eq!(
            (sends(&mut keys, 10), sends(&mut keys, 80), sends(&mut keys, 89)),
            (Some(1), Some(1), Some(1))
        );
        assert_eq!(
            (sends(&mut keys, 90), sends(&mut keys, 101), sends(&mut keys, 1_000_000)),
            (Some(2), Some(2), Some(2))
        );
        assert!(!takes(&keys, 1, 9) && takes(&keys, 1, 10) && takes(&keys, 1, 100) && !takes(&keys, 1, 101));
        assert!(!takes(&keys, 2, 79) && takes(&keys, 2, 80) && takes(&keys, 2, 1_000_000));
        // Whatever order they were entered in.
        let mut keys = table(&[config(2, 80, None), config(1, 10, Some(100))]);
        assert_eq!((sends(&mut keys, 89), sends(&mut keys, 90)), (Some(1), Some(2)));
    }

    /// Proves RSVPINT-2747-5.3-01 and RSVPINT-2747-5.3-02: the last key goes on, and says so once.
    #[test]
    fn the_last_key_does_not_run_out() {
        let mut keys = table(&[config(1, 0, Some(10)), config(2, 0, Some(20))]);
        assert_eq!(keys.sending(Time::from_secs(21), ETH, peer()), Some((1, true)));
        assert_eq!(keys.sending(Time::from_secs(22), ETH, peer()), Some((1, false)));
        assert!(takes(&keys, 2, 1000));
    }

    /// Proves RSVPINT-2747-5.2-04, RSVPINT-2747-5.2-05 and RSVPINT-2747-5.2-06: entered and deleted by hand.
    #[test]
    fn entered_and_deleted() {
        let mut keys = table(&[config(1, 0, None), config(2, 0, None)]);
        assert!(takes(&keys, 1, 1) && takes(&keys, 2, 1) && !takes(&keys, 3, 1));
        keys.keys[1].sent = 77;
        keys.set(&[config(2, 0, None)]).unwrap();
        assert!(!takes(&keys, 1, 1) && takes(&keys, 2, 1));
        assert_eq!(keys.keys[0].sent, 77, "numbers are not used again");
        let refused = |config: KeyConfig| Keys::default().set(&[config]);
        assert_eq!(refused(config(1 << 48, 0, None)), Err(KeyError::Identifier(1 << 48)));
        assert_eq!(refused(config(1, 5, Some(4))), Err(KeyError::Lifetime(1)));
        assert_eq!(refused(KeyConfig { secret: Vec::new(), ..config(1, 0, None) }), Err(KeyError::Empty(1)));
        assert_eq!(keys.set(&[config(1, 0, None), config(1, 5, None)]), Err(KeyError::Twice(1)));
        assert!(
            !format!("{:?}", config(1, 0, None)).contains("Jefe")
                && !format!("{:?}", config(1, 0, None)).contains("74")
        );
    }

    /// Proves RSVPINT-2747-4-04, RSVPINT-2747-4-05, RSVPINT-2747-4-06 and RSVPINT-2747-2.1-04: by direction, interface
    /// and sender.
    #[test]
    fn whom_a_key_is_for() {
        let send = KeyConfig { usage: KeyUse::Send, interface: Some(ETH), ..config(1, 0, None) };
        let receive = KeyConfig { usage: KeyUse::Receive, neighbour: Some(peer()), ..config(1, 0, None) };
        let other = KeyConfig { interface: Some(IfIndex(3)), ..send.clone() };
        let mut keys = table(&[send, receive, other]);
        assert_eq!(keys.sending(Time::ZERO, ETH, peer()).unwrap().0, 0);
        assert_eq!(keys.sending(Time::ZERO, IfIndex(3), peer()).unwrap().0, 2);
        assert!(keys.sending(Time::ZERO, IfIndex(4), peer()).is_none());
        assert!(takes(&keys, 1, 0));
        assert!(keys.received(Time::ZERO, 1, ETH, IpAddr::from([10, 0, 0, 2])).is_none());
    }
}
