//! `[beacon]`: the test protocol.

use signalbox_node::beacon;

use super::Protocol;
use crate::keys::Keys;
use crate::kind::address;

pub(super) const MEANING: &str = "The test protocol.";

/// `[beacon]`
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Beacon(beacon::Config);

impl Protocol for Beacon {
    fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.option("to", &mut self.0.to, address(), "none", "Address that beacons are sent to.");
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        node.beacon = Some(self.0);
    }
}
