//! Keys and digests (RFC 2747 §4, §5).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use hmac::{Hmac, Mac as _};
use md5::Md5;
use signalbox_core::secret::same;
use signalbox_core::{IfIndex, Time};

use super::config::{Algorithm, KeyConfig, KeyUse};

/// Reason why a key table is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// An identifier over 48 bits.
    #[error("key {0}: an identifier has 48 bits")]
    Identifier(u64),
    /// No secret.
    #[error("key {0}: empty")]
    Empty(u64),
    /// Two keys of one identifier for the same use, interface and neighbor.
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

/// A key of the table.
pub(crate) struct Key {
    pub(crate) id: u64,
    usage: KeyUse,
    interface: Option<IfIndex>,
    neighbor: Option<IpAddr>,
    from: Time,
    until: Option<Time>,
    secret: Secret,
    /// Largest sequence number sent with it.
    pub(crate) sent: u64,
    /// The notice of its expiry was given (RFC 2747 §5.3).
    noticed: bool,
}

/// Octets of the longest digest.
const LARGEST: usize = 32;
/// The shortest time: a key is invalid this much after its end.
const TICK: Duration = Duration::from_micros(1);
const FOR_EVER: Time = Time::from_micros(u64::MAX);

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
        let KeyConfig { id, usage, interface, neighbor, from, until, .. } = *config;
        Ok(Self { id, usage, interface, neighbor, from, until, secret, sent: 0, noticed: false })
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

    /// Whether `digest` is that of the parts. The comparison takes constant time.
    pub(crate) fn verifies(&self, parts: &[&[u8]], digest: &[u8]) -> bool {
        let computed = self.digest(parts);
        digest.len() == self.digest_octets()
            && same(computed.get(..self.digest_octets()).unwrap_or_default(), digest)
    }

    fn is_for(&self, sending: bool, (interface, neighbor): Place) -> bool {
        self.usage != (if sending { KeyUse::Receive } else { KeyUse::Send })
            && (self.interface.is_none() || self.interface == interface)
            && (self.neighbor.is_none() || self.neighbor == neighbor)
    }

    fn valid(&self, now: Time) -> bool {
        self.from <= now && self.until.is_none_or(|until| now <= until)
    }
}

/// Interface and neighbor, each only if some key names it. All messages of one such place have the same keys.
type Place = (Option<IfIndex>, Option<IpAddr>);

/// The keys of one identifier for one interface and neighbor.
#[derive(Debug, Default)]
struct Named {
    send: Option<usize>,
    receive: Option<usize>,
}

/// A result for a place, which holds until `until`.
#[derive(Debug, Clone, Copy)]
struct Until<T> {
    what: T,
    until: Time,
}

/// The key table of a node. A message finds its key by the identifier, or by a stored result for its place; it does not
/// walk the table.
#[derive(Default)]
pub(crate) struct Keys {
    keys: Vec<Key>,
    /// Numbers of the keys in the order of their start.
    by_start: Vec<usize>,
    named: BTreeMap<(u64, Place), Named>,
    /// Interfaces and neighbors that keys name.
    interfaces: BTreeSet<IfIndex>,
    neighbors: BTreeSet<IpAddr>,
    /// The key to send with.
    choices: BTreeMap<Place, Until<Option<usize>>>,
    /// Whether any key is valid for receiving.
    open: BTreeMap<Place, Until<bool>>,
}

impl core::fmt::Debug for Keys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Keys").field("keys", &self.keys.len()).finish()
    }
}

impl Keys {
    /// Replaces all keys; those that stay keep their sequence numbers.
    pub(crate) fn set(&mut self, configs: &[KeyConfig]) -> Result<(), KeyError> {
        let mut new = Self::default();
        for (at, config) in configs.iter().enumerate() {
            let mut key = Key::new(config)?;
            let named = new.named.entry((key.id, (key.interface, key.neighbor))).or_default();
            let sends = key.usage != KeyUse::Receive && named.send.replace(at).is_some();
            let receives = key.usage != KeyUse::Send && named.receive.replace(at).is_some();
            if sends || receives {
                return Err(KeyError::Twice(key.id));
            }
            // Sequence numbers are never reused, not even if a key returns with another secret.
            key.sent = self.keys.iter().filter(|old| old.id == key.id).map(|old| old.sent).max().unwrap_or(0);
            new.interfaces.extend(key.interface);
            new.neighbors.extend(key.neighbor);
            new.keys.push(key);
        }
        new.by_start = (0..new.keys.len()).collect();
        new.by_start.sort_by_key(|at| new.keys.get(*at).map(|key| key.from));
        *self = new;
        Ok(())
    }

    fn place(&self, interface: IfIndex, neighbor: IpAddr) -> Place {
        let interface = Some(interface).filter(|one| self.interfaces.contains(one));
        (interface, Some(neighbor).filter(|one| self.neighbors.contains(one)))
    }

    /// The keys for sending to, or receiving from, a place, with their numbers, in the order of their start.
    fn fitting(&self, sending: bool, place: Place) -> impl Iterator<Item = (usize, &Key)> {
        let keys = self.by_start.iter().filter_map(|at| Some((*at, self.keys.get(*at)?)));
        keys.filter(move |(_, key)| key.is_for(sending, place))
    }

    /// The key for sending (RFC 2747 §5.1): of the valid keys the one that started last, after the first half of its
    /// overlap with the one before. If all expired, the one that expired last stays in use (§5.3).
    fn choose(&self, now: Time, place: Place) -> Until<Option<usize>> {
        let mut until = FOR_EVER;
        let (mut chosen, mut expired) = (None, None);
        // The latest end of the keys that started before.
        let mut overlap: Option<Time> = None;
        let mut started = (Time::ZERO, None);
        for (at, key) in self.fitting(true, place) {
            if key.from > now {
                until = until.min(key.from);
                break;
            }
            if !key.valid(now) {
                expired = expired.max(key.until.map(|until| (until, at)));
                continue;
            }
            if started.0 < key.from {
                overlap = overlap.max(started.1);
                started = (key.from, None);
            }
            if let Some(end) = key.until {
                until = until.min(end + TICK);
                started.1 = started.1.max(Some(end));
            }
            // The sender changes to the new key in the middle of the overlap.
            let middle = overlap.filter(|end| *end > key.from).map(|end| key.from + end.since(key.from) / 2);
            if let Some(middle) = middle.filter(|middle| now < *middle) {
                until = until.min(middle);
            } else {
                chosen = chosen.max(Some((key.neighbor.is_some(), key.interface.is_some(), key.from, at)));
            }
        }
        let last = || expired.map(|(_, at)| at);
        Until { what: chosen.map(|(_, _, _, at)| at).or_else(last), until }
    }

    /// The key for sending; `true`: it expired, and this was not reported before.
    pub(crate) fn sending(
        &mut self,
        now: Time,
        interface: IfIndex,
        neighbor: IpAddr,
    ) -> Option<(usize, bool)> {
        let place = self.place(interface, neighbor);
        let known = self.choices.get(&place).filter(|known| now < known.until).copied();
        let known = known.unwrap_or_else(|| {
            let choice = self.choose(now, place);
            self.choices.insert(place, choice);
            choice
        });
        let at = known.what?;
        let key = self.keys.get_mut(at)?;
        let news = !key.valid(now) && !core::mem::replace(&mut key.noticed, true);
        Some((at, news))
    }

    /// The identifier of the key for sending.
    pub(crate) fn in_use(&self, now: Time, interface: IfIndex, neighbor: IpAddr) -> Option<u64> {
        let chosen = self.choose(now, self.place(interface, neighbor)).what?;
        self.keys.get(chosen).map(|key| key.id)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Key> {
        self.keys.get_mut(at)
    }

    /// The keys with an identifier at a place: keys for this neighbor come before keys for all, then keys for this
    /// interface.
    fn of_id(&self, id: u64, (interface, neighbor): Place) -> impl Iterator<Item = &Named> {
        let places = [(interface, neighbor), (None, neighbor), (interface, None), (None, None)];
        places.into_iter().filter_map(move |place| self.named.get(&(id, place)))
    }

    /// The key that a challenge names.
    pub(crate) fn answering(&self, id: u64, interface: IfIndex, neighbor: IpAddr) -> Option<usize> {
        self.of_id(id, self.place(interface, neighbor)).find_map(|named| named.send)
    }

    /// The key of a received message. A key for this neighbor comes before one for all. An expired key counts while no
    /// other is valid for the sender (§5.3).
    pub(crate) fn received(
        &mut self,
        now: Time,
        id: u64,
        interface: IfIndex,
        neighbor: IpAddr,
    ) -> Option<&Key> {
        let place = self.place(interface, neighbor);
        let started = |at: &usize| self.keys.get(*at).is_some_and(|key| key.from <= now);
        let at = self.of_id(id, place).find_map(|named| named.receive.filter(started))?;
        let counts = self.keys.get(at)?.valid(now) || !self.is_open(now, place);
        self.keys.get(at).filter(|_| counts)
    }

    /// Whether any key is valid for receiving at a place.
    fn is_open(&mut self, now: Time, place: Place) -> bool {
        if let Some(known) = self.open.get(&place).filter(|known| now < known.until) {
            return known.what;
        }
        let valid = self.fitting(false, place).filter(|(_, key)| key.valid(now));
        let known = match valid.map(|(_, key)| key.until.map_or(FOR_EVER, |end| end + TICK)).max() {
            Some(until) => Until { what: true, until },
            None => {
                let next = self.fitting(false, place).map(|(_, key)| key.from).find(|from| *from > now);
                Until { what: false, until: next.unwrap_or(FOR_EVER) }
            }
        };
        self.open.insert(place, known);
        known.what
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
            neighbor: None,
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

    fn takes(keys: &mut Keys, id: u64, at: u64) -> bool {
        keys.received(Time::from_secs(at), id, ETH, peer()).is_some()
    }

    /// Proves RSVPINT-2747-6-01 and RSVPINT-2747-5.2-05: the vectors of RFC 2104's appendix and RFC 2202 §2; HMAC-SHA-256
    /// by RFC 4231.
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
        assert!(
            !takes(&mut keys, 1, 9)
                && takes(&mut keys, 1, 10)
                && takes(&mut keys, 1, 100)
                && !takes(&mut keys, 1, 101)
        );
        assert!(!takes(&mut keys, 2, 79) && takes(&mut keys, 2, 80) && takes(&mut keys, 2, 1_000_000));
        // The order of entry does not matter.
        let mut keys = table(&[config(2, 80, None), config(1, 10, Some(100))]);
        assert_eq!((sends(&mut keys, 89), sends(&mut keys, 90)), (Some(1), Some(2)));
    }

    /// Proves RSVPINT-2747-5.3-01 and RSVPINT-2747-5.3-02: the last key stays in use, and its expiry is reported once.
    #[test]
    fn the_last_key_does_not_run_out() {
        let mut keys = table(&[config(1, 0, Some(10)), config(2, 0, Some(20))]);
        assert_eq!(keys.sending(Time::from_secs(21), ETH, peer()), Some((1, true)));
        assert_eq!(keys.sending(Time::from_secs(22), ETH, peer()), Some((1, false)));
        assert!(takes(&mut keys, 2, 1000));
    }

    /// Proves RSVPINT-2747-5.2-04 and RSVPINT-2747-5.2-06: entered and deleted by hand.
    #[test]
    fn entered_and_deleted() {
        let mut keys = table(&[config(1, 0, None), config(2, 0, None)]);
        assert!(takes(&mut keys, 1, 1) && takes(&mut keys, 2, 1) && !takes(&mut keys, 3, 1));
        keys.keys[1].sent = 77;
        keys.set(&[config(2, 0, None)]).unwrap();
        assert!(!takes(&mut keys, 1, 1) && takes(&mut keys, 2, 1));
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

    /// Proves RSVPINT-2747-4-04, RSVPINT-2747-4-05 and RSVPINT-2747-2.1-04: by direction, interface
    /// and sender.
    #[test]
    fn whom_a_key_is_for() {
        let send = KeyConfig { usage: KeyUse::Send, interface: Some(ETH), ..config(1, 0, None) };
        let receive = KeyConfig { usage: KeyUse::Receive, neighbor: Some(peer()), ..config(1, 0, None) };
        let other = KeyConfig { interface: Some(IfIndex(3)), ..send.clone() };
        let mut keys = table(&[send, receive, other]);
        assert_eq!(keys.sending(Time::ZERO, ETH, peer()).unwrap().0, 0);
        assert_eq!(keys.sending(Time::ZERO, IfIndex(3), peer()).unwrap().0, 2);
        assert!(keys.sending(Time::ZERO, IfIndex(4), peer()).is_none());
        assert!(takes(&mut keys, 1, 0));
        assert!(keys.received(Time::ZERO, 1, ETH, IpAddr::from([10, 0, 0, 2])).is_none());
    }

    /// The stored result for a place is that of a walk over all keys.
    #[test]
    fn what_is_remembered_is_what_holds() {
        let mut random = signalbox_core::rng::Random::from_number(7);
        for _ in 0..300 {
            let configs: Vec<KeyConfig> = (0..random.range(1..7))
                .map(|id| {
                    let from = random.range(0..60);
                    let end = from + random.range(0..60);
                    KeyConfig {
                        neighbor: (random.range(0..3) == 0).then(peer),
                        interface: (random.range(0..3) == 0).then_some(ETH),
                        ..config(id, from, (random.range(0..5) > 0).then_some(end))
                    }
                })
                .collect();
            let mut keys = table(&configs);
            for now in (0..140).map(Time::from_secs) {
                for (interface, neighbor) in
                    [(ETH, peer()), (IfIndex(9), peer()), (ETH, IpAddr::from([10, 0, 0, 9]))]
                {
                    let place = keys.place(interface, neighbor);
                    let kept = keys.sending(now, interface, neighbor).map(|(at, _)| at);
                    assert_eq!(kept, walked(&keys, now, place), "at {now:?} of {configs:?}");
                    for id in 0..7 {
                        let fitting = || keys.fitting(false, place);
                        let valid = fitting().any(|(_, key)| key.valid(now));
                        let named = fitting().filter(|(_, key)| key.id == id && key.from <= now);
                        let expected = named.map(|(_, key)| key).any(|key| key.valid(now) || !valid);
                        assert_eq!(keys.received(now, id, interface, neighbor).is_some(), expected);
                    }
                }
            }
        }
    }

    /// The key for sending by the text of §5.1 and §5.3, each key compared with each.
    fn walked(keys: &Keys, now: Time, place: Place) -> Option<usize> {
        let fitting = || keys.fitting(true, place);
        let valid = || fitting().filter(|(_, key)| key.valid(now));
        let too_early = |key: &Key| {
            valid().filter(|(_, older)| older.from < key.from).any(|(_, older)| {
                let overlap = older.until.filter(|end| *end > key.from).map(|end| end.since(key.from));
                overlap.is_some_and(|overlap| now < key.from + overlap / 2)
            })
        };
        let strength =
            |(at, key): &(usize, &Key)| (key.neighbor.is_some(), key.interface.is_some(), key.from, *at);
        let chosen = valid().filter(|(_, key)| !too_early(key)).max_by_key(strength);
        let last = || {
            let over = fitting().filter(|(_, key)| key.until.is_some_and(|end| end < now));
            over.max_by_key(|(at, key)| (key.until, *at))
        };
        chosen.or_else(last).map(|(at, _)| at)
    }
}
