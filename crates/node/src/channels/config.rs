//! Settings of channels.

use core::time::Duration;

use signalbox_transport::sctp;
use signalbox_transport::stream::TlsConfig;

/// What channels are made with; which ones there are is GIST's business (its ports).
#[derive(Debug, Clone)]
pub struct ChannelConfig {
    /// Keys and certificates; needed where GIST has a TLS port.
    pub tls: Option<TlsConfig>,
    /// Time that a TLS handshake may take, at least 1 s; default 10 s.
    pub handshake: Duration,
    /// Most TLS handshakes with peers that connected, at one time; more are reset. At least 1; default 256.
    pub max_handshakes: u32,
    /// SCTP; its port is GIST's.
    pub sctp: sctp::Config,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self {
            tls: None,
            handshake: Duration::from_secs(10),
            max_handshakes: 256,
            sctp: sctp::Config::default(),
        }
    }
}
