//! The passages that senders asked this host for, as a command that waits for them counts them.

use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_response::Event;

/// What became of them so far.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    standing: Vec<(Vec<u8>, Option<v1::FlowSpec>)>,
    lost: bool,
}

impl Accepted {
    /// Takes an event. True: the last passage that stood ended.
    pub(super) fn take(&mut self, event: &Event) -> bool {
        match event {
            Event::Accepted(v1::PinholeAccepted { session_id, flow }) => {
                let passage = (session_id.clone(), flow.clone());
                if !self.standing.contains(&passage) {
                    self.standing.push(passage);
                }
                false
            }
            Event::Ended(v1::PinholeEnded { session_id, flow, failure }) => {
                self.lost |= failure.is_some();
                let before = self.standing.len();
                self.standing.retain(|(session, one)| (session, one) != (session_id, flow));
                self.standing.is_empty() && before > 0
            }
            Event::Started(_)
            | Event::Granted(_)
            | Event::Notified(_)
            | Event::Failed(_)
            | Event::Released(_)
            | Event::Retrying(_) => false,
        }
    }

    /// Whether one was lost: it ended, and not because its sender closed it.
    pub(super) const fn lost(&self) -> bool {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(session: u8) -> Event {
        Event::Accepted(v1::PinholeAccepted { session_id: vec![session; 16], flow: None })
    }

    fn ended(session: u8, failure: Option<v1::Failure>) -> Event {
        Event::Ended(v1::PinholeEnded { session_id: vec![session; 16], flow: None, failure })
    }

    #[test]
    fn the_last_one_of_several_ends_them() {
        let mut all = Accepted::default();
        let steps = [accepted(1), accepted(2), accepted(1), ended(1, None), ended(1, None), ended(2, None)];
        assert_eq!(steps.map(|event| all.take(&event)), [false, false, false, false, false, true]);
        assert!(!all.lost());
    }

    #[test]
    fn what_its_sender_did_not_close_is_lost() {
        let mut all = Accepted::default();
        all.take(&accepted(1));
        assert!(all.take(&ended(1, Some(v1::Failure::default()))));
        assert!(all.lost());
    }
}
