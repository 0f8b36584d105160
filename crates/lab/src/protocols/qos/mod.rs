//! The QoS application (RFC 5974): reservations over GIST.

pub(crate) mod granted;
pub(crate) mod reservations;
pub(crate) mod reserve;

use super::Protocol;

/// The command that shows the sessions of a node, and what it holds for them.
const SESSIONS: &str = "show qos sessions";

/// The entry of the table of protocols.
#[derive(Debug)]
pub(crate) struct Qos;

impl Protocol for Qos {
    fn name(&self) -> &'static str {
        "qos"
    }

    fn title(&self) -> &'static str {
        "QoS"
    }

    fn switch(&self) -> Option<bool> {
        Some(false)
    }

    fn reserves(&self) -> bool {
        true
    }

    fn tables(&self) -> &'static [&'static str] {
        &[SESSIONS]
    }
}
