//! Sessions as log events name them.

use core::fmt;

use signalbox_core::Key;

use crate::engine::Rsvp;
use crate::wire;

/// A session of the table in a log event.
#[derive(Debug)]
pub(in crate::engine) struct Logged(Option<wire::Session>);

impl fmt::Display for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(session) => session.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

impl Rsvp {
    /// A session for log events.
    pub(in crate::engine) fn logged(&self, session: Key) -> Logged {
        Logged(self.sessions.get(session).map(|record| self.session_of(record)))
    }

    /// The session of a sender for log events.
    pub(in crate::engine) fn logged_of(&self, sender: Key) -> Logged {
        let index = self.senders.get(sender).map(|sender| sender.session);
        Logged(index.and_then(|index| self.sessions.get_index(index)).map(|record| self.session_of(record)))
    }
}
