//! Events for the log: one for each message that is dropped or not sent.
//!
//! These are macros, so that the target of an event is the module that reports it and a filter can select it. All fields are
//! evaluated only if a subscriber takes the event.

use core::net::IpAddr;

use signalbox_core::{Key, SessionId};
use tracing::field::{DisplayValue, display};

use super::Casp;
use crate::wire::Message;

/// Reports a received message that is discarded. `$message` has its session, `$from` is who sent it.
macro_rules! dropped {
    ($message:expr, $from:expr, $reason:expr) => {
        tracing::debug!(
            session = %$message.session, peer = %$from.name.address, reason = $reason, "message dropped"
        )
    };
}

/// Reports a message of the session `$key` that does not go on; `$peer`, if given, is the node to which it should go.
macro_rules! unsent {
    ($casp:expr, $key:expr, $reason:expr) => {
        tracing::debug!(session = $casp.logged($key), reason = $reason, "message not sent")
    };
    ($casp:expr, $key:expr, $peer:expr, $reason:expr) => {
        tracing::debug!(
            session = $casp.logged($key),
            peer = $casp.logged_peer($peer),
            reason = $reason,
            "message not sent"
        )
    };
}

/// The session of a composed message for the log.
pub(super) fn session_of(octets: &[u8]) -> Option<DisplayValue<SessionId>> {
    match Message::parse(octets) {
        Ok(Message::Signaling(message)) => Some(display(message.session)),
        Ok(Message::ScoutRequest(_) | Message::ScoutResponse { .. }) | Err(_) => None,
    }
}

impl Casp {
    /// The identifier of a session for the log.
    pub(super) fn logged(&self, key: Key) -> Option<DisplayValue<SessionId>> {
        self.sessions.get(key).map(|session| display(session.id))
    }

    /// The address of a node for the log.
    pub(super) fn logged_peer(&self, key: Key) -> Option<DisplayValue<IpAddr>> {
        self.peers.address(key).map(display)
    }

    /// The address of the node at the other end of a connection for the log.
    pub(super) fn logged_end(&self, connection: Key) -> Option<DisplayValue<IpAddr>> {
        let connection = self.peers.connections.get(connection)?;
        self.logged_peer(connection.peer)
    }
}
