//! Which signaling applications this node has, and what goes with one that leaves.

use signalbox_core::service::SendError;
use signalbox_core::{Direction, NslpId, Time};

use super::Gist;
use super::io::Registration;
use super::record::{BY_APPLICATION, State};

/// Records that one call looks at to remove those of an application that is gone.
const STEP: u32 = 4096;

/// An application that is gone, and the first slot of the table where its state may still be.
#[derive(Debug)]
pub(super) struct Departed {
    nslp: NslpId,
    next: u32,
}

impl Gist {
    /// Makes an application known; a second call replaces the first. MA-Hello's number 0 is no application.
    ///
    /// It may come while the node runs. State that an application of the same number left behind is gone then.
    pub fn register(&mut self, nslp: NslpId, registration: Registration) {
        while let Some(at) = self.departed.iter().position(|departed| departed.nslp == nslp) {
            if let Some(departed) = self.departed.remove(at) {
                self.remove_of(nslp, departed.next, u32::MAX);
            }
        }
        match self.applications.iter_mut().find(|(known, _)| *known == nslp) {
            Some((_, known)) => *known = registration,
            None => self.applications.push((nslp, registration)),
        }
    }

    /// Forgets an application: from now on its signaling passes, Queries that wait for its decision included.
    /// Its routing state goes, a bounded number of sessions a call; peers find out by their next refresh. Drain
    /// [`Gist::poll`] afterwards. One that is not known is no mistake.
    pub fn unregister(&mut self, now: Time, nslp: NslpId) {
        self.now = self.now.max(now);
        let before = self.applications.len();
        self.applications.retain(|(known, _)| *known != nslp);
        if self.applications.len() == before {
            return;
        }
        self.out.recycle();
        self.departed.push_back(Departed { nslp, next: 0 });
        self.block(nslp, false);
        self.abandon_checks(nslp);
        self.run_timers();
    }

    /// What GIST knows of an application, if it is here.
    pub(super) fn registration(&self, nslp: NslpId) -> Option<Registration> {
        self.applications.iter().find(|(known, _)| *known == nslp).map(|(_, registration)| *registration)
    }

    /// Goes on removing what the first of the departed left.
    pub(super) fn run_departures(&mut self) {
        let Some(Departed { nslp, next }) = self.departed.pop_front() else { return };
        let end = next.saturating_add(STEP);
        self.remove_of(nslp, next, end);
        if end < self.used_slots {
            self.departed.push_front(Departed { nslp, next: end });
        }
    }

    fn remove_of(&mut self, nslp: NslpId, from: u32, to: u32) {
        for index in from..to.min(self.used_slots) {
            let Some(key) = self.records.key_of(index) else { continue };
            for direction in [Direction::Downstream, Direction::Upstream] {
                let Some(record) = self.records.get_mut(key).filter(|record| record.nslp == nslp) else {
                    break;
                };
                let half = record.half_mut(direction);
                if half.state != State::None {
                    // Nobody is left to be told.
                    half.set(BY_APPLICATION, true);
                    self.remove_half(key, direction, SendError::Refused);
                }
            }
        }
    }
}
