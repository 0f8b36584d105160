//! The front end for programs that ask by PCP (RFC 6887) and NAT-PMP (RFC 6886). Their own packets show what they get.

use super::Protocol;

/// The entry of the table of protocols.
#[derive(Debug)]
pub(crate) struct Mapping;

impl Protocol for Mapping {
    fn name(&self) -> &'static str {
        "mapping"
    }

    fn title(&self) -> &'static str {
        "PCP and NAT-PMP"
    }
}
