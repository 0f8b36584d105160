//! The places that applications of other processes have in the node.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use signalbox_core::service::OwnedIndication;
use signalbox_node::{ApplicationEvent, RegisterError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use crate::protocols::applications::service::{HIGH, Line, QUEUE, Waiting};

/// The applications, by the name that they have in the node.
#[derive(Debug, Default)]
pub(super) struct Applications {
    places: BTreeMap<u64, Place>,
    last: u64,
    lost: u64,
    lagged: u64,
    /// Those that shall be given no more messages, of which the node has not heard yet.
    to_block: Vec<u64>,
}

#[derive(Debug)]
struct Place {
    line: Line,
    /// Whoever waits to hear whether the node takes it.
    answer: Option<oneshot::Sender<Result<u64, RegisterError>>>,
    /// The node gives it no messages.
    blocked: bool,
}

impl Applications {
    /// Gives an application a place; the node has yet to say whether it takes it.
    pub(super) fn add(&mut self, line: Line, answer: oneshot::Sender<Result<u64, RegisterError>>) -> u64 {
        self.last += 1;
        self.places.insert(self.last, Place { line, answer: Some(answer), blocked: false });
        self.last
    }

    /// Forgets an application. True if it was there.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        self.places.remove(&id).is_some()
    }

    /// An application has read what waited. True if the node should hear of it.
    pub(super) fn ready(&mut self, id: u64) -> bool {
        self.places.get_mut(&id).is_some_and(|place| std::mem::take(&mut place.blocked))
    }

    /// The next one that the node shall give no messages.
    pub(super) fn next_to_block(&mut self) -> Option<u64> {
        self.to_block.pop()
    }

    /// Indications lost because their application did not read.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Times that an application was given no messages for a while.
    pub(super) const fn lagged(&self) -> u64 {
        self.lagged
    }

    /// Passes on what the node says to an application.
    pub(super) fn deliver(&mut self, id: u64, event: ApplicationEvent) {
        match event {
            ApplicationEvent::Registered => self.answer(id, Ok(id)),
            ApplicationEvent::Refused(error) => {
                self.answer(id, Err(error));
                self.places.remove(&id);
            }
            ApplicationEvent::Indication(indication) => self.indicate(id, indication),
        }
    }

    fn answer(&mut self, id: u64, answer: Result<u64, RegisterError>) {
        if let Some(waiting) = self.places.get_mut(&id).and_then(|place| place.answer.take()) {
            // Whoever asked sees to it that the place is given back.
            let _ = waiting.send(answer);
        }
    }

    fn indicate(&mut self, id: u64, indication: OwnedIndication) {
        let Some(place) = self.places.get_mut(&id) else { return };
        let Line { queue, lags, lost } = &place.line;
        if !place.blocked && QUEUE - queue.capacity() >= HIGH {
            place.blocked = true;
            self.lagged += 1;
            self.to_block.push(id);
            // Before the indication is put in, so that whoever takes it out sees it.
            lags.store(true, Ordering::SeqCst);
        }
        let waiting = Waiting { indication, lost: lost.load(Ordering::SeqCst) };
        // One that is gone is about to be removed.
        if let Err(TrySendError::Full(_)) = queue.try_send(waiting) {
            lost.fetch_add(1, Ordering::SeqCst);
            self.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use signalbox_core::octets::Octets;
    use signalbox_core::service::{IndicationOf, MessageHandle, MessageStatus, SendError};
    use signalbox_core::{NslpId, SessionId};
    use tokio::sync::mpsc;

    use super::*;

    fn indication(number: u64) -> ApplicationEvent {
        let status = MessageStatus::Failed(SendError::NoNextNode);
        let (nslp, session) = (NslpId(5), SessionId::default());
        let handle = MessageHandle(number);
        let indication: IndicationOf<Octets> = IndicationOf::MessageStatus { nslp, handle, session, status };
        ApplicationEvent::Indication(indication)
    }

    fn joined() -> (Applications, u64, mpsc::Receiver<Waiting>) {
        let mut applications = Applications::default();
        let (line, waiting) = Line::new();
        let (answer, mut answered) = oneshot::channel();
        let id = applications.add(line, answer);
        applications.deliver(id, ApplicationEvent::Registered);
        assert_eq!(answered.try_recv(), Ok(Ok(id)));
        (applications, id, waiting)
    }

    #[test]
    fn one_that_is_refused_has_no_place() {
        let mut applications = Applications::default();
        let (line, _waiting) = Line::new();
        let (answer, mut answered) = oneshot::channel();
        let id = applications.add(line, answer);
        let error = RegisterError::Reserved(NslpId(0));
        applications.deliver(id, ApplicationEvent::Refused(error));
        assert_eq!(answered.try_recv(), Ok(Err(error)));
        assert!(!applications.remove(id));
    }

    #[test]
    fn one_that_does_not_read_is_blocked_once_and_then_loses() {
        let (mut applications, id, mut waiting) = joined();
        for number in 0..QUEUE as u64 + 3 {
            applications.deliver(id, indication(number));
            assert_eq!(applications.next_to_block(), (number == HIGH as u64).then_some(id));
        }
        assert_eq!((applications.lost(), applications.lagged()), (3, 1));
        assert_eq!(waiting.try_recv().unwrap().lost, 0);
        applications.deliver(id, indication(0));
        let mut last = None;
        while let Ok(next) = waiting.try_recv() {
            last = Some(next.lost);
        }
        assert_eq!(last, Some(3), "what comes after the gap tells how wide it is");
        assert!(applications.ready(id), "the node hears of it");
        assert!(!applications.ready(id), "once");
    }

    #[test]
    fn what_is_for_nobody_is_dropped() {
        let (mut applications, id, waiting) = joined();
        drop(waiting);
        applications.deliver(id, indication(0));
        applications.deliver(id + 1, indication(0));
        assert!(applications.remove(id));
        assert_eq!(applications.lost(), 0);
    }
}
