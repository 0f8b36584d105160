//! Reservations that their user at this node releases (RFC 5974 §5.4.1, §5.4.4).

use signalbox_core::invariant;
use signalbox_core::slab::Key;
use signalbox_core::stamp::Moment;
use signalbox_resources::{End, Resources};

use super::Qos;
use super::event::QosEvent;
use super::session::{Marks, Origin, RequestKind, Stage};

impl Qos {
    /// Handles the command of a user to release its reservation.
    pub(super) fn on_release(&mut self, id: u64, resources: &mut Resources) {
        // A request or a change that waits for its route ends, too.
        let ended = self.end_commands(id);
        let Some(key) = self.commands.get(&id).copied() else {
            if ended {
                self.out.event(id, QosEvent::Released);
            }
            return;
        };
        self.release_local(key, resources);
        self.rearm(key);
    }

    /// Releases a reservation by command of its user.
    pub(super) fn release_local(&mut self, key: Key, resources: &mut Resources) {
        let Some(local) =
            invariant!(self.sessions.get_mut(key).and_then(|s| s.local.as_mut()), "a release has an origin")
        else {
            return;
        };
        if core::mem::replace(&mut local.releasing, true) {
            return;
        }
        local.hold_until = None;
        let (granted, id) = (local.granted, local.command);
        if !self.has(key, Marks::QNI) {
            // The receiver made the reservation. Only it may tear down; a NOTIFY informs it.
            let notify = self.notify_receiver(key);
            resources.because(End::User);
            self.release(key, resources);
            if let Some(id) = id {
                self.out.event(id, QosEvent::Released);
                self.commands.remove(&id);
            }
            if let Some(session) = invariant!(self.sessions.get_mut(key), "a released session stays") {
                session.local = None;
                session.pending.clear();
                session.refresh_at = Moment::NEVER;
            }
            if self.sessions.get(key).is_some_and(|s| s.stage == Stage::Path) {
                self.close(key, resources);
            } else {
                self.set_stage(key, Stage::Torn);
                if let Some(octets) = notify {
                    // While the route changes the NOTIFY may be lost: it is sent again.
                    let rii = self.new_rii(key);
                    self.expect(key, rii, RequestKind::ReleaseNotice, octets);
                }
            }
            return;
        }
        let Some(local) =
            invariant!(self.sessions.get_mut(key).and_then(|s| s.local.as_mut()), "a tear has an origin")
        else {
            return;
        };
        let confirm = matches!(&local.origin, Origin::Reserve(request) if request.confirm_release);
        resources.because(End::User);
        if !confirm || !granted {
            return self.end_local(key, Some(QosEvent::Released), resources);
        }
        self.release(key, resources);
        self.on_gone(key);
        self.tear_until_confirmed(key, resources);
    }
}
