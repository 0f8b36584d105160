//! Registration of signaling applications, and removal of the routing state of one that is unregistered.

use signalbox_core::service::SendError;
use signalbox_core::wheel;
use signalbox_core::{Direction, NslpId, Time};

use crate::engine::Gist;
use crate::engine::io::Registration;
use crate::engine::routing::{BY_APPLICATION, State};

/// Records that one call visits to remove the state of an unregistered application.
const STEP: u32 = 4096;

/// An unregistered application, and the first slot of the table where its state may still be.
#[derive(Debug)]
pub(super) struct Departed {
    nslp: NslpId,
    next: u32,
}

impl Gist {
    /// Registers an application; a second call replaces the registration. The NSLPID 0 of MA-Hello is not an application.
    ///
    /// It may be called while the node runs. State of an earlier application with the same NSLPID is removed first.
    pub fn register(&mut self, nslp: NslpId, registration: Registration) {
        while let Some(at) = self.applications.departed.iter().position(|departed| departed.nslp == nslp) {
            if let Some(departed) = self.applications.departed.remove(at) {
                self.remove_of(nslp, departed.next, u32::MAX);
            }
        }
        match self.applications.registered.iter_mut().find(|(known, _)| *known == nslp) {
            Some((_, known)) => *known = registration,
            None => self.applications.registered.push((nslp, registration)),
        }
    }

    /// Unregisters an application. Its messages, and Queries that wait for its decision, are forwarded from now on. Its
    /// routing state is removed, a bounded number of sessions in each call; peers notice it by their next refresh. Drain
    /// [`Gist::poll`] afterwards. An unknown application is ignored.
    pub fn unregister(&mut self, now: Time, nslp: NslpId) {
        self.now = self.now.max(now);
        let before = self.applications.registered.len();
        self.applications.registered.retain(|(known, _)| *known != nslp);
        if self.applications.registered.len() == before {
            return;
        }
        self.out.recycle();
        self.applications.departed.push_back(Departed { nslp, next: 0 });
        self.block(nslp, false);
        self.abandon_checks(nslp);
        self.run_timers(wheel::portion(false));
    }

    /// Continues to remove the state of the first unregistered application.
    pub(in crate::engine) fn run_departures(&mut self) {
        let Some(Departed { nslp, next }) = self.applications.departed.pop_front() else { return };
        let end = next.saturating_add(STEP);
        self.remove_of(nslp, next, end);
        if end < self.records.used_slots() {
            self.applications.departed.push_front(Departed { nslp, next: end });
        }
    }

    fn remove_of(&mut self, nslp: NslpId, from: u32, to: u32) {
        for index in from..to.min(self.records.used_slots()) {
            let Some(key) = self.records.key_of(index) else { continue };
            for direction in [Direction::Downstream, Direction::Upstream] {
                // The end of its first direction may have been that of the session.
                let Some(record) = self.records.get_mut(key).filter(|record| record.nslp == nslp) else {
                    break;
                };
                let half = record.half_mut(direction);
                if half.state != State::None {
                    // The application does not exist any more and gets no notification.
                    half.set(BY_APPLICATION, true);
                    self.remove_half(key, direction, SendError::Refused);
                }
            }
        }
    }
}
