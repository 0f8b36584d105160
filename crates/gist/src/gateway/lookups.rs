//! Messages that wait until the kernel has answered whether it translates their flow already. Buffers are used again.

use signalbox_core::packet::Received;

use super::outbox::Waiting;

/// Most messages that wait.
const MOST: usize = 256;

#[derive(Debug, Default)]
pub(super) struct KernelLookups {
    slots: Vec<Option<(u64, Waiting)>>,
    free: Vec<usize>,
    buffers: Vec<Waiting>,
    /// Number of the last question, so that no two have the same key.
    last: u64,
}

impl KernelLookups {
    /// Keeps a message, and returns the key of its question; `None`: too many wait.
    pub(super) fn put(&mut self, packet: &Received<'_>) -> Option<u64> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < MOST => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return None,
        };
        self.last = self.last.wrapping_add(1);
        let waiting = match self.buffers.pop() {
            Some(mut waiting) => {
                waiting.set(packet);
                waiting
            }
            None => Waiting::of(packet),
        };
        *self.slots.get_mut(slot)? = Some((self.last, waiting));
        Some(self.last * MOST as u64 + slot as u64)
    }

    /// The message of a question. [`KernelLookups::give_back`] takes its buffers.
    pub(super) fn take(&mut self, key: u64) -> Option<Waiting> {
        let slot = usize::try_from(key % MOST as u64).ok()?;
        let (_, waiting) = self.slots.get_mut(slot)?.take_if(|(number, _)| *number == key / MOST as u64)?;
        self.free.push(slot);
        Some(waiting)
    }

    pub(super) fn give_back(&mut self, waiting: Waiting) {
        self.buffers.push(waiting);
    }
}
