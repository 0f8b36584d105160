//! The Ping application, by which the lab signals over GIST.

use super::Protocol;

/// The entry of the table of protocols.
#[derive(Debug)]
pub(crate) struct Ping;

impl Protocol for Ping {
    fn name(&self) -> &'static str {
        "ping"
    }

    fn title(&self) -> &'static str {
        "Ping"
    }
}
