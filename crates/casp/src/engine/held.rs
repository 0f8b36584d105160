//! Messages that wait for the verdict of their client.
//!
//! A quarter of their places is for nodes that have few of them. Their octets count as those of other messages that wait.

use core::net::IpAddr;

use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Key, invariant};

use super::Casp;
use super::io::Verdict;
use crate::wire::{Body, ClientType, Message, Signaling};

/// Buffers that are kept for messages to come.
const SPARE: usize = 64;

/// A message that waits for a verdict.
#[derive(Debug)]
pub(super) struct Held {
    link: Link,
    /// `None`: a message without state.
    session: Option<Key>,
    /// Who decides.
    client: ClientType,
    octets: Vec<u8>,
    /// The node that made the session, whose share of the places and octets it takes.
    owner: IpAddr,
}

impl Timed for Held {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Casp {
    /// Keeps a message of a session, or one without state, until its client decides. `owner` is the node that pays for it. The result
    /// is the id for the verdict; `None`: there are too many.
    pub(super) fn hold_message(
        &mut self,
        session: Option<Key>,
        owner: IpAddr,
        client: ClientType,
        message: &Signaling<'_>,
    ) -> Option<u64> {
        if self.held.len() >= self.held.limit() || self.held_by.check(&owner, 1).is_err() {
            self.counters.held_full += 1;
            tracing::debug!(session = %message.session, source = %owner, reason = "too many messages wait for their client", "message goes on without its client");
            return None;
        }
        let mut octets = self.spare.pop().unwrap_or_default();
        octets.clear();
        if message.encode(&mut octets).is_err() {
            return None;
        }
        let count = u32::try_from(octets.len()).unwrap_or(u32::MAX);
        if self.waiting_octets.take_many(owner, count).is_err() {
            self.counters.held_full += 1;
            tracing::debug!(session = %message.session, source = %owner, reason = "too many octets wait", "message goes on without its client");
            self.spare.push(octets);
            return None;
        }
        self.held_by.hold(owner);
        let key = self.held.insert(Held { link: Link::default(), session, client, octets, owner }).ok()?;
        let at = self.now + self.config.verdict;
        self.wheel_of_held.arm(&mut self.held, key.index(), at);
        Some(key.to_u64())
    }

    fn give_held(&mut self, owner: IpAddr, octets: usize) {
        self.held_by.release(owner);
        self.waiting_octets.release_many(owner, u32::try_from(octets).unwrap_or(u32::MAX));
    }

    /// A client decided. Identifiers can be guessed, so a message of another client stays.
    pub(super) fn on_verdict(&mut self, client: ClientType, id: u64, verdict: &Verdict<'_>) {
        let key = Key::from_u64(id);
        if self.held.get(key).is_none_or(|held| held.client != client) {
            return;
        }
        self.wheel_of_held.cancel(&mut self.held, key.index());
        self.decide(key, verdict);
    }

    fn decide(&mut self, key: Key, verdict: &Verdict<'_>) {
        let Some(Held { session, client, octets, owner, .. }) =
            invariant!(self.held.remove(key), "a verdict is for a message that is held")
        else {
            return;
        };
        self.give_held(owner, octets.len());
        if let Ok(Message::Signaling(message)) = Message::parse(&octets) {
            let message = match verdict {
                Verdict::Replace(data) => {
                    let body = Body::Client { client, data };
                    Some(Signaling { body, ..message })
                }
                Verdict::Forward => Some(message),
                Verdict::Consume => None,
            };
            match (session, message) {
                (Some(session), Some(message)) => self.send_on(session, &message, Some(client)),
                (None, Some(message)) => self.send_on_without_state(owner, &message, Some(client)),
                (Some(_) | None, None) => {}
            }
        }
        self.keep_buffer(octets);
    }

    /// Keeps the buffer of a message for messages to come.
    pub(super) fn keep_buffer(&mut self, octets: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(octets);
        }
    }

    /// Messages whose client took too long go on.
    pub(super) fn run_held(&mut self, most: u32) {
        for _ in 0..most {
            let Some(index) = self.wheel_of_held.pop_due(&mut self.held, self.now) else { return };
            if let Some(key) = invariant!(self.held.key_of(index), "the timer of a message ends with it") {
                self.decide(key, &Verdict::Forward);
            }
        }
    }
}
