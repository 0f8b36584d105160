//! Settings of GIST and of what its associations run over.

use core::time::Duration;

use signalbox_gist::engine;

use crate::channels::ChannelConfig;
use crate::config::ConfigError;

/// Settings of GIST on a node.
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct GistConfig {
    /// Settings of the protocol. They say which associations there are.
    pub engine: engine::Config,
    /// Settings of the channels that associations run over.
    pub channels: ChannelConfig,
}

impl GistConfig {
    /// Checks every range. Keys and certificates are read by [`Node::new`](crate::Node::new).
    pub(crate) fn validated(&self) -> Result<(), ConfigError> {
        self.engine.validated()?;
        if self.engine.associations.tls_port.is_some() && self.channels.tls.is_none() {
            return Err(ConfigError::NoCredentials);
        }
        if self.channels.handshake < Duration::from_secs(1) {
            return Err(ConfigError::Channels("handshake", "1 s"));
        }
        if self.channels.max_handshakes == 0 {
            return Err(ConfigError::Channels("max_handshakes", "1"));
        }
        Ok(())
    }
}
