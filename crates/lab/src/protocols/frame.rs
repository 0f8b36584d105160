//! What passed a link, octet by octet.

use std::time::Duration;

/// A frame as a capture saw it at the first end of its link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Its number in the capture of the link, counted from 1.
    pub(crate) number: usize,
    /// Since 1970.
    pub(crate) at: Duration,
    /// The first end sent it.
    pub(crate) outgoing: bool,
    /// From the Ethernet header on.
    pub(crate) octets: Vec<u8>,
}
