//! Security associations, one for each sender and key: received sequence numbers and the state of the handshake (RFC
//! 2747 §4.2, §4.3).

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::rng::Random;
use signalbox_core::slab::{Key as SlabKey, Slab};
use signalbox_core::wheel::{Link, Timed, Wheel};
use signalbox_core::{IfIndex, Time, invariant};

use super::config::Integrity;
use super::view::AssociationView;

/// The received sequence numbers of the reordering window, lowest first. Numbers grow modulo 2^64 (RFC 2747 §4.2).
#[derive(Debug, Default)]
struct Window {
    seen: Vec<u64>,
}

impl Window {
    /// Clears the window and starts it with `number`.
    fn start(&mut self, number: u64) {
        self.seen.clear();
        self.seen.push(number);
    }

    /// Accepts a number that was not received and is not too old.
    fn accept(&mut self, number: u64, size: usize) -> bool {
        let base = self.seen.last().copied().unwrap_or(number);
        // Distance from the largest number: numbers ahead of it count as larger.
        let place = |n: u64| n.wrapping_sub(base).cast_signed();
        match self.seen.binary_search_by_key(&place(number), |n| place(*n)) {
            Ok(_) if !self.seen.is_empty() => false,
            Err(0) if !self.seen.is_empty() => false, // below the lower end of the list
            Ok(at) | Err(at) => {
                self.seen.insert(at, number);
                if self.seen.len() > size.max(1) {
                    self.seen.remove(0);
                }
                true
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handshake {
    /// The sender answered a challenge, or none is required.
    Done,
    /// A challenge was sent this many times. It is repeated when the timer fires.
    Pending { cookie: u64, asked: u32 },
}

#[derive(Debug)]
struct Association {
    sender: IpAddr,
    key_id: u64,
    ifindex: IfIndex,
    window: Window,
    handshake: Handshake,
    link: Link,
}

impl Timed for Association {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// A challenge to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChallengeRequest {
    pub(crate) to: IpAddr,
    pub(crate) ifindex: IfIndex,
    pub(crate) key_id: u64,
    pub(crate) cookie: u64,
}

/// Result for a message whose digest is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// The message is accepted.
    Yes,
    /// Its sequence number was received before or is too old.
    Replayed,
    /// Its sender must answer a challenge first; the challenge to send, if one is due.
    Challenged(Option<ChallengeRequest>),
    /// Its sender does not answer challenges.
    Unwilling,
    /// The table of associations is full.
    Full,
}

/// Longest interval between two challenges.
const LONGEST: Duration = Duration::from_secs(60);
/// Repetitions of a challenge while the sender sends no message.
const REPETITIONS: u32 = 5;

/// All associations.
#[derive(Debug)]
pub(crate) struct Associations {
    slab: Slab<Association>,
    index: Index,
    hasher: KeyedHasher,
    wheel: Wheel,
}

impl Associations {
    pub(crate) fn new(limit: u32, rng: &mut Random) -> Self {
        Self {
            slab: Slab::new(limit),
            index: Index::new(),
            hasher: KeyedHasher::new(rng),
            wheel: Wheel::new(Duration::from_millis(1)),
        }
    }

    pub(crate) const fn set_limit(&mut self, limit: u32) {
        self.slab.set_limit(limit);
    }

    fn find(&self, sender: IpAddr, key_id: u64) -> Option<u32> {
        let hash = self.hasher.hash_one(&(sender, key_id));
        let is = |at| self.slab.get_index(at).is_some_and(|a| a.sender == sender && a.key_id == key_id);
        self.index.find(hash, is)
    }

    fn insert(
        &mut self,
        sender: IpAddr,
        key_id: u64,
        ifindex: IfIndex,
        handshake: Handshake,
    ) -> Option<SlabKey> {
        let association = Association {
            sender,
            key_id,
            ifindex,
            window: Window::default(),
            handshake,
            link: Link::default(),
        };
        let key = self.slab.insert(association).ok()?;
        let hash = self.hasher.hash_one(&(sender, key_id));
        let (slab, hasher) = (&self.slab, &self.hasher);
        self.index.insert(hash, key.index(), |at| {
            slab.get_index(at).map_or(0, |a| hasher.hash_one(&(a.sender, a.key_id)))
        });
        Some(key)
    }

    /// Checks the sequence number and handshake of a message whose digest was verified (RFC 2747 §4.2, §4.3). No other
    /// message may change an association.
    pub(crate) fn admit(
        &mut self,
        now: Time,
        (sender, key_id, ifindex): (IpAddr, u64, IfIndex),
        (number, willing): (u64, bool),
        settings: &Integrity,
        rng: &mut Random,
    ) -> Admitted {
        let size = usize::from(settings.window.clamp(1, 64));
        if let Some(at) = self.find(sender, key_id) {
            let Some(association) = invariant!(self.slab.get_index_mut(at), "an indexed association stands")
            else {
                return Admitted::Full;
            };
            return match association.handshake {
                Handshake::Done if association.window.accept(number, size) => Admitted::Yes,
                Handshake::Done => Admitted::Replayed,
                // The timer repeats the challenge; after the last repetition the next message does.
                Handshake::Pending { .. } if association.link.is_armed() => Admitted::Challenged(None),
                Handshake::Pending { cookie, .. } => {
                    association.handshake = Handshake::Pending { cookie, asked: 1 };
                    let ask = ChallengeRequest { to: sender, ifindex, key_id, cookie };
                    self.wheel.arm(&mut self.slab, at, now + settings.challenge);
                    Admitted::Challenged(Some(ask))
                }
            };
        }
        if settings.handshake && !willing && !settings.without_handshake {
            return Admitted::Unwilling;
        }
        let challenge = settings.handshake && willing;
        let cookie = rng.u64();
        let handshake = if challenge { Handshake::Pending { cookie, asked: 1 } } else { Handshake::Done };
        let Some(key) = self.insert(sender, key_id, ifindex, handshake) else { return Admitted::Full };
        if challenge {
            self.wheel.arm(&mut self.slab, key.index(), now + settings.challenge);
            return Admitted::Challenged(Some(ChallengeRequest { to: sender, ifindex, key_id, cookie }));
        }
        if let Some(association) = self.slab.get_mut(key) {
            association.window.start(number);
        }
        Admitted::Yes
    }

    /// Handles an Integrity Response whose digest was verified (RFC 2747 §4.3): whether it answers the challenge.
    /// Messages of the sender are accepted from its number on.
    pub(crate) fn answered(&mut self, sender: IpAddr, key_id: u64, cookie: u64, number: u64) -> bool {
        let Some(at) = self.find(sender, key_id) else { return false };
        let Some(association) = invariant!(self.slab.get_index_mut(at), "a challenged association stands")
        else {
            return false;
        };
        match association.handshake {
            Handshake::Pending { cookie: sent, .. } if sent == cookie => {
                association.handshake = Handshake::Done;
                association.window.start(number);
                self.wheel.cancel(&mut self.slab, at);
                true
            }
            _ => false,
        }
    }

    /// The next challenge that was not answered in time.
    pub(crate) fn next_challenge(
        &mut self,
        now: Time,
        settings: impl Fn(IfIndex) -> Integrity,
    ) -> Option<ChallengeRequest> {
        while let Some(at) = self.wheel.pop_due(&mut self.slab, now) {
            let Some(association) =
                invariant!(self.slab.get_index_mut(at), "a timer ends with its association")
            else {
                continue;
            };
            let Handshake::Pending { cookie, asked } = association.handshake else { continue };
            if asked > REPETITIONS {
                continue; // the next message of the sender starts another challenge
            }
            association.handshake = Handshake::Pending { cookie, asked: asked + 1 };
            let ask = ChallengeRequest {
                to: association.sender,
                ifindex: association.ifindex,
                key_id: association.key_id,
                cookie,
            };
            let interval = settings(ask.ifindex).challenge.saturating_mul(1 << asked.min(10)).min(LONGEST);
            self.wheel.arm(&mut self.slab, at, now + interval);
            return Some(ask);
        }
        None
    }

    /// All associations: sender, first interface, and state.
    pub(crate) fn view(&self) -> impl Iterator<Item = (IpAddr, IfIndex, AssociationView)> {
        self.slab.iter().map(|(_, one)| {
            let asked = match one.handshake {
                Handshake::Done => 0,
                Handshake::Pending { asked, .. } => asked,
            };
            let sequence = one.window.seen.last().copied();
            (one.sender, one.ifindex, AssociationView { key_id: one.key_id, sequence, asked })
        })
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(size: usize, numbers: &[u64]) -> Vec<bool> {
        let mut window = Window::default();
        window.start(numbers[0]);
        numbers[1..].iter().map(|number| window.accept(*number, size)).collect()
    }

    /// Proves RSVPINT-2747-4.2-03, RSVPINT-2747-4.2-04, RSVPINT-2747-4.2-05 and RSVPINT-2747-4.2-06.
    #[test]
    fn windows() {
        assert_eq!(numbers(1, &[10, 11, 11, 10, 13, 12, 14]), [true, false, false, true, false, true]);
        assert_eq!(numbers(32, &[10, 20, 15, 15, 20, 12, 9]), [true, true, false, false, true, false]);
        // Of three numbers only the last three are stored, and nothing below them is accepted.
        assert_eq!(
            numbers(3, &[10, 20, 30, 40, 15, 25, 35, 35]),
            [true, true, true, false, true, true, false]
        );
        // Modulo 2^64, with steps of seconds in the high half.
        let start = u64::MAX - 1;
        assert_eq!(numbers(4, &[start, u64::MAX, 0, 1 << 32, start, 5]), [true, true, true, false, true]);
        let mut window = Window::default();
        window.start(0);
        for number in 1..100 {
            assert!(window.accept(number << 32, 32));
            assert!(window.seen.len() <= 32);
        }
        assert_eq!(window.seen.len(), 32);
    }
}
