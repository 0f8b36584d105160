//! Own queues that are made before reservations need them.
//!
//! The kernel makes a class under a lock of all network namespaces, and walks the classes of the link for it. A daemon that made
//! all at its start would be late by 90 ms for each link, and by minutes where others hold the lock. A reservation that makes
//! its own class is late by 0.1 ms. So the daemon makes some classes at a time, for half of its time at most: a thousand in
//! 0.3 s.

use std::time::Duration;

use netlink_sys::protocols::NETLINK_ROUTE;

use super::Enforcer;
use crate::clock;
use crate::netlink::Batch;

/// Most classes that are made in one step: 2 ms among a thousand.
const MOST: u16 = 16;
/// Shortest time between two steps.
const PAUSE: Duration = Duration::from_millis(1);
/// A step that takes longer waited for the lock. The next one is smaller.
const LONG: Duration = Duration::from_millis(5);
/// The pause after a long step, in lengths of the step. The pause after any other step has one length.
const LONG_PAUSE: u32 = 4;

/// What is left to make.
#[derive(Debug)]
pub(super) struct Ahead {
    /// When the next step is due, by [`clock::monotonic`].
    due: Duration,
    /// Classes of the next step.
    step: u16,
    /// All own queues were there at the last look, and no link was opened or made again since.
    complete: bool,
}

impl Default for Ahead {
    fn default() -> Self {
        Self { due: Duration::ZERO, step: MOST, complete: false }
    }
}

impl Ahead {
    /// A link has new queues.
    pub(super) const fn begin(&mut self) {
        self.complete = false;
    }
}

impl Enforcer {
    /// Makes some own queues, if it is time for that. A queue that a reservation has made already stays as it is.
    pub fn prepare(&mut self) {
        let began = clock::monotonic();
        if self.ahead.complete || began < self.ahead.due {
            return;
        }
        let Some(link) = self.links.values_mut().find(|link| link.lacks_queues()) else {
            self.ahead.complete = true;
            return;
        };
        let made = Batch::open(NETLINK_ROUTE).and_then(|mut requests| {
            link.prepare(self.ahead.step, &mut requests);
            requests.send()
        });
        let exists = |error: &std::io::Error| error.raw_os_error() == Some(libc::EEXIST);
        match made {
            Ok(refused) if refused.iter().all(|(_, error)| exists(error)) => {}
            // A reservation makes its queue itself.
            Ok(refused) => tracing::debug!(?refused, "queues were not made ahead"),
            Err(error) => tracing::debug!(%error, "queues were not made ahead"),
        }
        let now = clock::monotonic();
        let took = now.saturating_sub(began);
        let long = took > LONG;
        self.ahead.step = if long { (self.ahead.step / 2).max(1) } else { (self.ahead.step * 2).min(MOST) };
        self.ahead.due = now + PAUSE.max(if long { took * LONG_PAUSE } else { took });
    }

    /// How long until [`Self::prepare`] has something to do; `None`: its last call found no queue to make.
    #[must_use]
    pub fn prepares_in(&self) -> Option<Duration> {
        (!self.ahead.complete).then(|| self.ahead.due.saturating_sub(clock::monotonic()))
    }
}
