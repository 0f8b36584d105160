//! Sessions that this node ends by itself.

use signalbox_core::slab::Key;
use signalbox_core::{SessionId, invariant};
use signalbox_resources::Resources;

use super::Natfw;
use super::event::{Failure, NatfwEvent};
use super::session::Origin;
use crate::wire::Info;

impl Natfw {
    /// Ends a session for an administrator. Nothing happens if there is none.
    pub(super) fn delete(&mut self, session: SessionId, resources: &mut Resources) {
        let Some(key) = self.find(session) else { return self.refuse_parked(session) };
        tracing::info!(%session, "session deleted by an administrator");
        self.end(key, Info::TERMINATED, resources);
    }

    /// Ends a session. The nodes towards the initiator get a NOTIFY with `event`, those towards the responder get one that
    /// ends the session too (RFC 5973 §3.7.5). If the session begins here, this node deletes it there.
    pub(super) fn end(&mut self, key: Key, event: Info, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "an end has a session") else { return };
        self.counters.ended += 1;
        match session.origin() {
            Origin::Peer => {
                self.notify(key, event, false);
                self.notify(key, Info::TERMINATED, true);
                self.close(key, resources);
            }
            Origin::Command(_) => {
                session.msn = session.msn.wrapping_add(1);
                self.send_on(key, 0, None);
                self.emit(key, NatfwEvent::Failed(Failure::Code(event.into())));
                self.close(key, resources);
            }
            Origin::Host(_) => {
                self.delete_beyond(key);
                self.close(key, resources);
            }
            Origin::Proxy(primary) => {
                self.secondary_failed(primary, resources);
                self.delete_secondary(key, resources);
            }
        }
    }
}
