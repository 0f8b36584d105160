//! `[apps.ping]`

use serde::Deserialize;
use signalbox_core::NslpId;
use signalbox_node::ping;

use crate::config::Config;
use crate::config::error::Problem;
use crate::config::section::Section;
use crate::protocols::gist::config::needs_gist;

/// `[apps.ping]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PingConfig {
    /// Whether it runs.
    pub(crate) enabled: bool,
    /// NSLPID that its messages carry.
    pub(crate) nslp_id: u16,
}

impl Default for PingConfig {
    fn default() -> Self {
        Self { enabled: true, nslp_id: NslpId::PING.0 }
    }
}

/// NSLPIDs that are not free for Ping.
const TAKEN: [u16; 3] = [NslpId::NONE.0, NslpId::QOS.0, NslpId::NATFW.0];

impl Section for PingConfig {
    fn enabled(&self) -> bool {
        self.enabled
    }

    fn problem(&self, config: &Config) -> Option<Problem> {
        let taken = TAKEN.contains(&self.nslp_id).then(|| Problem {
            key: "apps.ping.nslp_id".to_owned(),
            message: "belongs to another application; 32704 to 32767 are for private use".to_owned(),
        });
        taken.or_else(|| needs_gist(config, "apps.ping"))
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        node.ping = Some(ping::Config { nslp: NslpId(self.nslp_id), ..ping::Config::default() });
    }

    fn nslps(&self) -> Vec<NslpId> {
        vec![NslpId(self.nslp_id)]
    }
}
