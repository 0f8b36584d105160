//! The NATFW application (RFC 5973): passages through firewalls and NATs, over GIST.

use super::Protocol;

/// The entry of the table of protocols.
#[derive(Debug)]
pub(crate) struct Natfw;

impl Protocol for Natfw {
    fn name(&self) -> &'static str {
        "natfw"
    }

    fn title(&self) -> &'static str {
        "NATFW"
    }
}
