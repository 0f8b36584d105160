//! Messages that wait for the verdict of their client.

use signalbox_core::Key;
use signalbox_core::wheel::{Link, Timed};

use super::Casp;
use super::io::Verdict;
use crate::wire::{Body, Message, Signaling};

/// Buffers that are kept for messages to come.
const SPARE: usize = 64;

/// A message that waits for a verdict.
#[derive(Debug)]
pub(super) struct Held {
    link: Link,
    session: Key,
    octets: Vec<u8>,
}

impl Timed for Held {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Casp {
    /// Keeps a message until its client decides. The result is the id for the verdict; `None`: there are too many.
    pub(super) fn hold_message(&mut self, session: Key, message: &Signaling<'_>) -> Option<u64> {
        let mut octets = self.spare.pop().unwrap_or_default();
        octets.clear();
        if message.encode(&mut octets).is_err() {
            return None;
        }
        let Ok(key) = self.held.insert(Held { link: Link::default(), session, octets }) else {
            self.counters.held_full += 1;
            return None;
        };
        let at = self.now + self.config.verdict;
        self.wheel_of_held.arm(&mut self.held, key.index(), at);
        Some(key.to_u64())
    }

    /// A client decided.
    pub(super) fn on_verdict(&mut self, id: u64, verdict: &Verdict<'_>) {
        let key = Key::from_u64(id);
        if self.held.get(key).is_none() {
            return;
        }
        self.wheel_of_held.cancel(&mut self.held, key.index());
        self.decide(key, verdict);
    }

    fn decide(&mut self, key: Key, verdict: &Verdict<'_>) {
        let Some(Held { session, octets, .. }) = self.held.remove(key) else { return };
        if let Ok(Message::Signaling(message)) = Message::parse(&octets) {
            let client = match message.body {
                Body::Client { client, .. } => Some(client),
                Body::Empty | Body::Error(_) => None,
            };
            match (verdict, message.body) {
                (Verdict::Replace(data), Body::Client { client: of, .. }) => {
                    let body = Body::Client { client: of, data };
                    self.send_on(session, &Signaling { body, ..message }, client);
                }
                (Verdict::Forward | Verdict::Replace(_), _) => self.send_on(session, &message, client),
                (Verdict::Consume, _) => {}
            }
        }
        if self.spare.len() < SPARE {
            self.spare.push(octets);
        }
    }

    /// Messages whose client took too long go on.
    pub(super) fn run_held(&mut self) {
        for _ in 0..super::BUDGET {
            let Some(index) = self.wheel_of_held.pop_due(&mut self.held, self.now) else { return };
            if let Some(key) = self.held.key_of(index) {
                self.decide(key, &Verdict::Forward);
            }
        }
    }
}
