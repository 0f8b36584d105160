//! Whether the kernel looks up the sources of packets of IPv4 with their mark, and the rules that are necessary then.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::error::OpenError;
use crate::io::IoConfig;
use crate::netlink::codec::Connection;
use crate::netlink::{interfaces, rules};
use crate::scope::Scope;
use crate::sys;

/// From this version on the kernel looks up the source of a packet of a VRF as if it came in by the loopback interface. Before, as if
/// it came in by the device of the VRF, as the packet itself: no rule tells one lookup from the other.
const DISTINCT_IN_VRF: (u32, u32) = (5, 18);

/// The setting of the kernel, of which it reports no change, and what was done about it.
pub(crate) struct Sources {
    /// That of all interfaces. It stays open: a daemon without privileges cannot open it again.
    all: Option<File>,
    connection: Connection,
    setting: Option<String>,
    in_place: bool,
    in_vain: bool,
}

impl Sources {
    pub(crate) fn open() -> io::Result<Self> {
        let all = File::open("/proc/sys/net/ipv4/conf/all/src_valid_mark").ok();
        Ok(Self { all, connection: Connection::open()?, setting: None, in_place: false, in_vain: false })
    }

    /// Reads the setting, and puts the rules that it demands around that of the interception, or removes them.
    pub(crate) fn keep(&mut self, config: &IoConfig) -> Result<(), OpenError> {
        let system = |error: io::Error| OpenError::system("the routing rules for sources", &error);
        let set = if self.all.as_ref().and_then(value).is_some_and(|value| value > 0) {
            Some("all".to_owned())
        } else {
            interfaces::with_valid_mark(&mut self.connection).map_err(system)?
        };
        self.setting = set.map(|of| format!("net.ipv4.conf.{of}.src_valid_mark"));
        self.in_vain = rules_are_in_vain(&config.scope, sys::kernel_version());
        self.in_place = false;
        self.in_place = rules::sources::keep(config.rule(), self.setting.is_some()).map_err(system)?;
        Ok(())
    }

    /// The setting, if it is 1 and the rules are in place. What comes by the loopback interface is not led to this node then.
    pub(crate) fn passed_over(&self) -> Option<&str> {
        self.setting.as_deref().filter(|_| self.in_place)
    }

    /// The setting, if it is 1 and the rules are not in place, or in vain: the kernel drops all intercepted packets of IPv4.
    pub(crate) fn obstacle(&self) -> Option<&str> {
        self.setting.as_deref().filter(|_| !self.in_place || self.in_vain)
    }

    /// What to do about an obstacle.
    pub(crate) const fn remedy(&self) -> &'static str {
        if self.in_vain {
            "write 0 (before Linux 5.18 no rule prevents that in a VRF)"
        } else {
            "write 0, or let kernel.rule_preference be more than 0"
        }
    }
}

/// Whether the rules around that of the interception change nothing on a kernel of this version.
fn rules_are_in_vain(scope: &Scope, kernel: Option<(u32, u32)>) -> bool {
    scope.vrf().is_some() && kernel.is_some_and(|version| version < DISTINCT_IN_VRF)
}

/// The value of a setting.
pub(crate) fn value(file: &File) -> Option<u8> {
    let mut text = [0; 8];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(text.get(..length)?).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_for_sources_are_in_vain_in_a_vrf_of_an_old_kernel() {
        let red = Scope::of(Some("red".to_owned()));
        assert!(rules_are_in_vain(&red, Some((5, 10))));
        assert!(!rules_are_in_vain(&red, Some((5, 18))));
        assert!(!rules_are_in_vain(&red, None));
        assert!(!rules_are_in_vain(&Scope::default(), Some((5, 10))));
    }
}
