//! `[beacon]`

use std::net::IpAddr;

use serde::Deserialize;
use signalbox_node::beacon;

use crate::config::Config;
use crate::config::error::Problem;
use crate::config::section::Section;

/// `[beacon]`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BeaconConfig {
    /// Where beacons are sent to.
    to: Option<IpAddr>,
}

impl Section for BeaconConfig {
    fn enabled(&self) -> bool {
        true
    }

    fn problem(&self, _: &Config) -> Option<Problem> {
        None
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        node.beacon = Some(beacon::Config { to: self.to });
    }
}
