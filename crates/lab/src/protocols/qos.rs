//! The QoS application (RFC 5974): reservations over GIST.

use super::Protocol;

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

    fn reserves(&self) -> bool {
        true
    }
}
