//! The event loop's end of a signaling application, with flow control.
//!
//! Indications wait for the application in a queue of [`QUEUE`], with [`OCTETS`] at most. Past [`HIGH`], or half of the octets,
//! the node gives the application no more messages for a while, so that reliable ones wait at their sender; at [`LOW`] it goes
//! on. A layer that cannot wait loses indications when the queue is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use signalbox_node::{Command, Event};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;

use super::{Layer, Outcome};
use crate::clients::{Client, Delivery};
use crate::driver::DaemonCounters;

/// Indications that wait for one application before further ones are lost.
pub(crate) const QUEUE: usize = 2048;
/// Octets of messages that wait for one application. Neighbors choose their number and size, and the application chooses when
/// it reads.
pub(crate) const OCTETS: usize = 16 << 20;
/// Indications that wait for an application when it is given no more messages. What one read of one stream can
/// still bring fits behind them.
pub(crate) const HIGH: usize = 1024;
/// Indications that may still wait for an application when it is given messages again.
pub(crate) const LOW: usize = 256;

/// An indication that waits for an application.
#[derive(Debug)]
pub(crate) struct Waiting<I> {
    /// The indication.
    pub(crate) indication: I,
    /// Indications lost before this one.
    pub(crate) lost: u64,
}

/// The event loop's end of an application.
pub(crate) struct Application<L: Layer> {
    number: L::Number,
    queue: mpsc::Sender<Waiting<L::Indication>>,
    shared: Arc<Shared>,
    /// Where the result of the registration goes; empty once it is known.
    registered: Option<oneshot::Sender<Result<(), L::Refusal>>>,
    /// The node gives it no messages.
    blocked: bool,
}

/// What both ends of an application see.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The node gives the application no messages until its queue has shrunk.
    pub(crate) lags: AtomicBool,
    /// Indications lost.
    pub(crate) lost: AtomicU64,
    /// Octets of the messages that wait.
    pub(crate) octets: AtomicUsize,
}

/// The other end: where the application's call reads.
pub(crate) struct Reader<L: Layer> {
    /// The indications.
    pub(crate) queue: mpsc::Receiver<Waiting<L::Indication>>,
    /// What both ends see.
    pub(crate) shared: Arc<Shared>,
    /// The result of the registration.
    pub(crate) registered: oneshot::Receiver<Result<(), L::Refusal>>,
}

impl<L: Layer> Application<L> {
    /// Both ends of an application with this number.
    pub(crate) fn new(number: L::Number) -> (Self, Reader<L>) {
        let (queue, reader) = mpsc::channel(QUEUE);
        let (registered, result) = oneshot::channel();
        let shared = Arc::<Shared>::default();
        let reader = Reader { queue: reader, shared: Arc::clone(&shared), registered: result };
        (Self { number, queue, shared, registered: Some(registered), blocked: false }, reader)
    }

    fn answer(&mut self, result: Result<(), L::Refusal>) {
        if let Some(registered) = self.registered.take() {
            // A call that has ended closes its client.
            let _ = registered.send(result);
        }
    }

    fn indicate(&mut self, id: u64, indication: L::Indication) -> Delivery {
        let size = L::octets(&indication);
        let octets = self.shared.octets.load(Ordering::SeqCst);
        let full = QUEUE - self.queue.capacity() >= HIGH || octets >= OCTETS / 2;
        let pause = (full && !self.blocked).then(|| L::block(id, true)).flatten();
        if pause.is_some() {
            self.blocked = true;
            // Before the indication is queued, so that the reader that takes it out sees the flag.
            self.shared.lags.store(true, Ordering::SeqCst);
        }
        if octets + size > OCTETS {
            return self.lose();
        }
        let waiting = Waiting { indication, lost: self.shared.lost.load(Ordering::SeqCst) };
        // Before the indication is queued, so that the reader that takes it out has something to subtract from.
        self.shared.octets.fetch_add(size, Ordering::SeqCst);
        match self.queue.try_send(waiting) {
            Ok(()) => pause.map_or(Delivery::Queued, Delivery::Paused),
            Err(TrySendError::Full(_)) => {
                self.shared.octets.fetch_sub(size, Ordering::SeqCst);
                self.lose()
            }
            Err(TrySendError::Closed(_)) => Delivery::Gone,
        }
    }

    fn lose(&self) -> Delivery {
        self.shared.lost.fetch_add(1, Ordering::SeqCst);
        Delivery::Lost
    }
}

impl<L: Layer> Client for Application<L> {
    fn deliver(&mut self, event: Event) -> Delivery {
        let id = event.id();
        match L::event(event) {
            None => Delivery::Queued,
            Some(Outcome::Registered) => {
                self.answer(Ok(()));
                Delivery::Queued
            }
            Some(Outcome::Refused(error)) => {
                self.answer(Err(error));
                Delivery::Last
            }
            Some(Outcome::Indication(indication)) => self.indicate(id, indication),
        }
    }

    fn commanded(&mut self, command: &Command) {
        if self.blocked && command.id().and_then(|id| L::block(id, false)).as_ref() == Some(command) {
            self.blocked = false;
        }
    }

    fn close(&self, id: u64) -> Command {
        L::close(id)
    }

    fn opened(&self, id: u64, _: &mut DaemonCounters) {
        tracing::info!(client = id, number = ?self.number, "an application of another process registers");
    }
}

#[cfg(test)]
mod tests {
    use signalbox_core::octets::Octets;
    use signalbox_core::service::{IndicationOf, MessageHandle, MessageStatus, SendError};
    use signalbox_core::{NslpId, SessionId};

    use signalbox_node::{ApplicationCommand, ApplicationEvent, RegisterError};

    use super::super::Gist;
    use super::*;

    fn indication(number: u64) -> Event {
        let status = MessageStatus::Failed(SendError::NoNextNode);
        let (nslp, session) = (NslpId(5), SessionId::default());
        let handle = MessageHandle(number);
        let indication: IndicationOf<Octets> = IndicationOf::MessageStatus { nslp, handle, session, status };
        Event::Gist { id: 7, event: ApplicationEvent::Indication(indication) }
    }

    fn blocked(blocked: bool) -> Command {
        Command::Gist { id: 7, command: ApplicationCommand::Blocked(blocked) }
    }

    fn registered() -> (Application<Gist>, Reader<Gist>) {
        let (mut application, mut reader) = Application::<Gist>::new(NslpId(5));
        let event = Event::Gist { id: 7, event: ApplicationEvent::Registered };
        assert_eq!(application.deliver(event), Delivery::Queued);
        assert_eq!(reader.registered.try_recv(), Ok(Ok(())));
        (application, reader)
    }

    #[test]
    fn one_that_is_refused_is_no_client() {
        let (mut application, mut reader) = Application::<Gist>::new(NslpId(5));
        let error = RegisterError::Reserved(NslpId(0));
        let event = Event::Gist { id: 7, event: ApplicationEvent::Refused(error) };
        assert_eq!(application.deliver(event), Delivery::Last);
        assert_eq!(reader.registered.try_recv(), Ok(Err(error)));
    }

    #[test]
    fn one_that_does_not_read_is_blocked_once_and_then_loses() {
        let (mut application, mut reader) = registered();
        for number in 0..QUEUE as u64 + 3 {
            let expected = match number {
                _ if number == HIGH as u64 => Delivery::Paused(blocked(true)),
                _ if number >= QUEUE as u64 => Delivery::Lost,
                _ => Delivery::Queued,
            };
            assert_eq!(application.deliver(indication(number)), expected);
        }
        assert_eq!(reader.queue.try_recv().unwrap().lost, 0);
        assert_eq!(application.deliver(indication(0)), Delivery::Queued);
        let mut last = None;
        while let Ok(next) = reader.queue.try_recv() {
            last = Some(next.lost);
        }
        assert_eq!(last, Some(3), "the first one after the gap has the number of lost ones");
        application.commanded(&blocked(false));
        assert!(!application.blocked, "it may be blocked again");
    }

    #[test]
    fn one_that_is_gone_is_closed() {
        let (mut application, reader) = registered();
        drop(reader);
        assert_eq!(application.deliver(indication(0)), Delivery::Gone);
    }
}
