//! `[apps.ping]`

use serde::Deserialize;
use signalbox_core::NslpId;

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
