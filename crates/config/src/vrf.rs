//! What a daemon of one VRF cannot do.

use crate::Config;
use crate::keys::Keys;
use crate::protocols::Opens;

impl Config {
    /// Refuses protocols that need what the kernel does not have for each VRF.
    pub(crate) fn check_vrf(&self, keys: &mut Keys<'_>) {
        if self.node.vrf.is_none() {
            return;
        }
        let running = self.protocols.each().filter(|(name, _)| self.node.runs(name));
        for (name, section) in running {
            let why = if section.opens() != Opens::Nothing {
                "the kernel keeps the connections of all VRFs in one table, so that a passage would be open for the same addresses of another one"
            } else if name == "boomerang" {
                "the kernel's queue does not name the interface by which a message came into a VRF"
            } else {
                continue;
            };
            keys.fault(
                &["node.vrf"],
                &format!("{name} cannot do its work in a VRF: {why}: remove the key, or what needs it"),
            );
        }
    }
}
