//! GIST-aware NAT gateways (RFC 5971 §7.2).

use super::Protocol;

/// The entry of the table of protocols.
#[derive(Debug)]
pub(crate) struct GistNat;

impl Protocol for GistNat {
    fn name(&self) -> &'static str {
        "gist_nat"
    }

    fn title(&self) -> &'static str {
        "GIST-aware NAT"
    }
}
