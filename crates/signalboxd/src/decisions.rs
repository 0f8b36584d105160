//! What became of requests: decisions of the node, on their way to the log, the audit file, and clients.
//!
//! A thread of its own does all this. The event loop only puts decisions into a bounded queue, and never waits for a disk, a pipe or a
//! client. What finds no room is counted. To wake the thread costs the loop more than a small request does, so the thread takes what a
//! few milliseconds bring at once.

mod file;
mod line;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use signalbox_api::v1;
use signalbox_core::Time;
use signalbox_node::resources::decision::Decision;
use signalbox_show::decision::decision as shown;

use crate::clients::RequestId;

pub(crate) use file::{AuditFile, lost as lines_lost};

/// The module whose lines are decisions.
pub(crate) const TARGET: &str = "signalboxd::decisions::line";
/// Decisions that wait for the thread, at most.
const QUEUE: usize = 8192;
/// Decisions that are kept for clients.
const KEPT: usize = 1000;
/// How long the thread lets decisions gather after the first one.
const GATHER: Duration = Duration::from_millis(2);
/// How long a client that asks waits for what was decided before, at most: the disk may not answer.
const CATCHING_UP: Duration = Duration::from_millis(200);
/// How long the end of the daemon waits for the audit file.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a daemon that stops waits for room, each time.
const PAUSE: Duration = Duration::from_millis(1);

/// Decisions that found no room in the queue.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Decisions that are in no log since the start, because the thread did not take them in time.
pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// What clients and signals reach; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct DecisionHistory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    last: Mutex<VecDeque<Entry>>,
    /// Decisions that were put into the queue, and those that the thread has written and kept.
    given: AtomicU64,
    done: AtomicU64,
    /// The audit file is opened again before the next line.
    reopen: AtomicBool,
}

impl DecisionHistory {
    /// Waits until what the event loop has decided so far is kept, for a moment at most.
    pub(crate) async fn catch_up(&self) {
        let (given, until) = (self.0.given.load(Ordering::Acquire), Instant::now() + CATCHING_UP);
        while self.0.done.load(Ordering::Acquire) < given && Instant::now() < until {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The last decisions that `wanted` wants, the oldest first. The thread of decisions can keep others while their text is made.
    pub(crate) fn list(&self, wanted: impl Fn(&v1::Decision) -> bool) -> Vec<v1::Decision> {
        let last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.iter().map(Entry::row).filter(wanted).collect()
    }

    /// The audit file was moved away: it is opened again.
    pub(crate) fn reopen(&self) {
        self.0.reopen.store(true, Ordering::Relaxed);
    }

    fn keep(&self, entry: Entry) {
        let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= KEPT {
            last.pop_front();
        }
        last.push_back(entry);
    }
}

/// A decision as it is kept. Its row, which is all text, is made for who reads it.
#[derive(Debug, Clone)]
struct Entry {
    time_unix_us: u64,
    /// That of the call that asked.
    request_id: Option<RequestId>,
    decision: Arc<Decision>,
}

impl Entry {
    fn row(&self) -> v1::Decision {
        shown(&self.decision, self.time_unix_us, self.request_id)
    }
}

enum Order {
    Decision(Entry),
    /// Everything is written when this is answered.
    Stop(mpsc::Sender<()>),
}

/// The event loop's end of the queue. Its end waits until all decisions are written, for a second at most.
#[derive(Debug)]
pub(crate) struct Decisions {
    queue: SyncSender<Order>,
    history: DecisionHistory,
}

impl Decisions {
    /// Starts the thread. It has the privileges that the caller has now.
    pub(crate) fn start(history: DecisionHistory, mut file: Option<AuditFile>) -> Result<Self> {
        let (queue, orders) = mpsc::sync_channel(QUEUE);
        let shared = history.clone();
        thread::Builder::new()
            .name("decisions".into())
            .spawn(move || run(&orders, &shared, &mut file, || thread::sleep(GATHER)))
            .context("cannot start the thread of decisions")?;
        Ok(Self { queue, history })
    }

    /// Takes a decision; it is dropped if too many wait. `now` and `unix_us` are the present time on both clocks.
    pub(crate) fn give(&self, request_id: Option<RequestId>, decision: Decision, now: Time, unix_us: u64) {
        match self.queue.try_send(order(request_id, decision, now, unix_us)) {
            Ok(()) => self.given(),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                LOST.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// For the last decisions of a daemon that stops: they wait for room.
    pub(crate) fn last(&self) -> Last<'_> {
        Last { decisions: self, until: Instant::now() + PATIENCE, left_out: 0 }
    }

    fn given(&self) {
        self.history.0.given.fetch_add(1, Ordering::Release);
    }

    /// Puts an order into the queue as soon as there is room. False: there was none in time.
    fn wait_for_room(&self, mut order: Order, until: Instant) -> bool {
        loop {
            order = match self.queue.try_send(order) {
                Ok(()) => return true,
                Err(TrySendError::Full(order)) if Instant::now() < until => order,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return false,
            };
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Decisions {
    /// Also if the event loop panics: what it decided before is on record.
    fn drop(&mut self) {
        let (done, written) = mpsc::channel();
        let until = Instant::now() + PATIENCE;
        // A disk that does not answer cannot hold up the end.
        if self.wait_for_room(Order::Stop(done), until) {
            let _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// Decisions of a daemon that stops.
#[derive(Debug)]
pub(crate) struct Last<'a> {
    decisions: &'a Decisions,
    until: Instant,
    left_out: u64,
}

impl Last<'_> {
    /// Takes a decision; it is left out if there is no room for it in time.
    pub(crate) fn give(
        &mut self,
        request_id: Option<RequestId>,
        decision: Decision,
        now: Time,
        unix_us: u64,
    ) {
        let order = order(request_id, decision, now, unix_us);
        if self.decisions.wait_for_room(order, self.until) {
            self.decisions.given();
        } else {
            self.left_out += 1;
            LOST.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were left out.
    pub(crate) const fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// A decision with the time of day at which it was made.
fn order(request_id: Option<RequestId>, decision: Decision, now: Time, unix_us: u64) -> Order {
    let ago = u64::try_from(now.since(decision.at).as_micros()).unwrap_or_default();
    Order::Decision(Entry {
        time_unix_us: unix_us.saturating_sub(ago),
        request_id,
        decision: Arc::new(decision),
    })
}

/// Handles orders until one is to stop. `gather` is called for the first of those that come together.
fn run(
    orders: &mpsc::Receiver<Order>,
    history: &DecisionHistory,
    file: &mut Option<AuditFile>,
    mut gather: impl FnMut(),
) {
    while let Ok(first) = orders.recv() {
        if matches!(first, Order::Decision(..)) {
            gather();
        }
        for order in core::iter::once(first).chain(orders.try_iter()) {
            match order {
                Order::Decision(entry) => {
                    if file.is_some() || line::is_wanted() {
                        let row = entry.row();
                        line::log(&row);
                        if let Some(file) = file {
                            if history.0.reopen.swap(false, Ordering::Relaxed) {
                                file.reopen();
                            }
                            file.write(&row);
                        }
                    }
                    history.keep(entry);
                    history.0.done.fetch_add(1, Ordering::Release);
                }
                Order::Stop(done) => {
                    // The user who stops may have lost patience.
                    let _ = done.send(());
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
